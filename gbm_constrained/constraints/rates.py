"""What a user writes: rates, their algebra, and the bounds put on them.

A rate is a weighted mean, over a set of rows, of something that depends on a row's predicted
class: an error, a selection, a change of the deployed model's decision; or its mean cross-entropy
in nats. Rates are added, subtracted and scaled, compared between groups and divided by each
other; ``<=`` and ``>=`` make a :class:`Constraint`: an immutable, hashable description that holds
no data. What the rows are is settled when the data are known, by
:func:`gbm_constrained.problem.compiler.compile_constraints`.

>>> from gbm_constrained.constraints.rates import fnr, fpr, gap, precision, selection_rate
>>> fnr() <= 0.05
fnr <= 0.05
>>> fpr(on={"sex": "F"}) - fpr(on={"sex": "M"}) <= 0.02
fpr[sex=F] - fpr[sex=M] <= 0.02
>>> gap(selection_rate(), by="sex") <= 0.02
gap(selection_rate, by='sex') <= 0.02
>>> precision() >= 0.9
precision >= 0.9
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Literal

from gbm_constrained.constraints.events import Differs, Event, Predicted, Term
from gbm_constrained.constraints.expressions import RATE_NAMES, Quotient, Rate
from gbm_constrained.constraints.grouped import Each, Gap, Ratio
from gbm_constrained.constraints.selectors import (
    ClassPosition,
    Deployed,
    Judged,
    Label,
    Selector,
    as_level,
    as_selectors,
    check_hashable,
    plain,
)

__all__ = [
    "accuracy",
    "churn",
    "class_error",
    "confusion",
    "each",
    "error_rate",
    "f1",
    "fnr",
    "fpr",
    "gap",
    "log_loss",
    "losses",
    "precision",
    "ratio",
    "recall",
    "selection_rate",
    "tnr",
    "tpr",
    "wins",
]

_POSITIVE, _NEGATIVE = ClassPosition(1), ClassPosition(0)
# Parts of several docstrings, in the place of their names in braces.
_SHARED_DOCS = {
    "on": """on : label(...), dataset(...), dict, bool array or tuple, default=None
    The rows it is taken over; all training rows by default. A dict such as ``{"sex": "F"}``
    selects by columns of the sensitive features or of X, ``{"sex": None}`` the rows without a
    value; a tuple intersects. A mask, of shape (n_samples,), speaks of training rows: it has no
    value on an evaluation set.""",
    "label": """label : hashable, default=None
    The class taken as positive, against all others. By default that of the classifier's
    parameter ``positive``, else the last of two sorted labels (``classes_[1]``).""",
    "deployed": """classifier, str or array-like of shape (n_samples,)
    The other model: fitted, with a ``predict`` for the features given to ``fit``; or the name
    of a column of its decisions, in the sensitive features or X; or its decisions on the
    training rows, which do not survive cross-validation.""",
    "groups": """by : str or list of str, default=None
    Columns of the sensitive features, or of X when it is a DataFrame; several make
    intersections. All sensitive features by default.
missing : {"group", "raise"}, default="group"
    Whether rows without a value are a group of their own, or an error.
min_group_size : int, default=30
    Groups in which the rate is taken over fewer rows are small: they are named in a warning.
    Rows of weight zero do not count.
small_groups : {"keep", "merge", "drop"}, default="keep"
    Whether small groups are kept all the same, merged into one group, or left out.""",
}


def _documented(function: Callable[..., Any]) -> Callable[..., Any]:
    RATE_NAMES.add(function.__name__)
    # From Python 3.13 on docstrings come without the indentation of the code.
    doc = inspect.cleandoc(function.__doc__ or "")
    for name, shared in _SHARED_DOCS.items():
        doc = doc.replace(f"{{{name}}}", shared)
    function.__doc__ = doc
    return function


def _rate(
    name: str,
    event: Event,
    on: Any,
    rows: tuple[Selector, ...] = (),
    where: tuple[Selector, ...] = (),
) -> Rate:
    return Rate(((1.0, Term(name, event, rows, as_selectors(on), where)),))


def _classes(label: Hashable | None) -> tuple[Label | ClassPosition, Label | ClassPosition]:
    """Negative and positive rows."""
    if label is None:
        return _NEGATIVE, _POSITIVE
    return Label(plain(label), excluded=True), Label(plain(label))


def name_with_label(name: str, label: Hashable | None) -> str:
    return name if label is None else f"{name}({plain(label)!r})"


@_documented
def error_rate(*, on: Any = None) -> Rate:
    """Weighted fraction of misclassified rows, ``P(prediction != y)``.

    Parameters
    ----------
    {on}
    """
    return _rate("error_rate", "error", on)


@_documented
def accuracy(*, on: Any = None) -> Rate:
    """Weighted fraction of rows that are classified correctly, ``P(prediction = y)``.

    Parameters
    ----------
    {on}
    """
    return _rate("accuracy", "correct", on)


@_documented
def selection_rate(label: Hashable | None = None, *, on: Any = None) -> Rate:
    """Weighted fraction of rows predicted positive (coverage), ``P(prediction = 1)``.

    Rows need no label: it can be taken over an unlabelled data set.

    Parameters
    ----------
    {label}
    {on}
    """
    return _rate(name_with_label("selection_rate", label), Predicted(_classes(label)[1]), on)


@_documented
def tpr(label: Hashable | None = None, *, on: Any = None) -> Rate:
    """Make the true positive rate, ``P(prediction = 1 | y = 1)``.

    Parameters
    ----------
    {label}
    {on}
    """
    _, positive = _classes(label)
    return _rate(name_with_label("tpr", label), Predicted(positive), on, (positive,))


@_documented
def recall(label: Hashable | None = None, *, on: Any = None) -> Rate:
    """Make the recall, which is the true positive rate, ``P(prediction = 1 | y = 1)``.

    Parameters
    ----------
    {label}
    {on}
    """
    _, positive = _classes(label)
    return _rate(name_with_label("recall", label), Predicted(positive), on, (positive,))


@_documented
def fnr(label: Hashable | None = None, *, on: Any = None) -> Rate:
    """Make the miss rate (false negative rate), ``P(prediction != 1 | y = 1)``.

    Parameters
    ----------
    {label}
    {on}
    """
    return _rate(name_with_label("fnr", label), "error", on, (_classes(label)[1],))


@_documented
def fpr(label: Hashable | None = None, *, on: Any = None) -> Rate:
    """Make the false positive rate, ``P(prediction = 1 | y != 1)``.

    Parameters
    ----------
    {label}
    {on}
    """
    negative, positive = _classes(label)
    return _rate(name_with_label("fpr", label), Predicted(positive), on, (negative,))


@_documented
def tnr(label: Hashable | None = None, *, on: Any = None) -> Rate:
    """Make the true negative rate, ``P(prediction != 1 | y != 1) = 1 - fpr``.

    Parameters
    ----------
    {label}
    {on}
    """
    negative, _ = _classes(label)
    return _rate(name_with_label("tnr", label), Predicted(negative), on, (negative,))


@_documented
def class_error(k: Hashable, *, on: Any = None) -> Rate:
    """Weighted fraction of the rows of class `k` that are misclassified.

    ``P(prediction != k | y = k)``, the rate of Neyman-Pearson classification; one minus the
    recall of class `k`.

    Parameters
    ----------
    k : hashable
        The class label, as it stands in ``y``.
    {on}
    """
    return _rate(name_with_label("class_error", k), "error", on, (Label(plain(k)),))


@_documented
def confusion(
    i: Hashable, j: Hashable, *, normalize: Literal["true", "pred", "all"] = "true", on: Any = None
) -> Any:
    """Make an entry of the confusion matrix, normalised as scikit-learn's ``confusion_matrix``.

    Parameters
    ----------
    i, j : hashable
        True class and predicted class.
    normalize : {"true", "pred", "all"}, default="true"
        ``P(prediction = j | y = i)``, ``P(y = i | prediction = j)`` (a quotient), or
        ``P(y = i, prediction = j)``.
    {on}
    """
    i, j = plain(i), plain(j)
    name = f"confusion({i!r}, {j!r})"
    if normalize == "true":
        return _rate(name, Predicted(Label(j)), on, (Label(i),))
    if normalize not in ("pred", "all"):
        raise ValueError(f"normalize must be 'true', 'pred' or 'all', got {normalize!r}.")
    joint = _rate(f"{name}/all", Predicted(Label(j)), on, where=(Label(i),))
    if normalize == "all":
        return joint
    others = _rate(f"{name}/all", Predicted(Label(j)), on, where=(Label(i, excluded=True),))
    return Quotient(_printed(f"{name}/pred", on), joint, joint + others)


def _printed(name: str, on: Any) -> str:
    return str(Term(name, "error", on=as_selectors(on)))


def _joint(label: Hashable | None, on: Any) -> tuple[Rate, Rate, Rate]:
    """Fractions of all rows that are true positive, false positive, false negative."""
    negative, positive = _classes(label)
    return (
        _rate("true_positives", Predicted(positive), on, where=(positive,)),
        _rate("false_positives", Predicted(positive), on, where=(negative,)),
        _rate("false_negatives", "error", on, where=(positive,)),
    )


@_documented
def precision(label: Hashable | None = None, *, on: Any = None) -> Quotient:
    """Make the precision, ``P(y = 1 | prediction = 1)``.

    Parameters
    ----------
    {label}
    {on}
    """
    true_positives, false_positives, _ = _joint(label, on)
    name = _printed(name_with_label("precision", label), on)
    return Quotient(name, true_positives, true_positives + false_positives)


@_documented
def f1(label: Hashable | None = None, *, on: Any = None) -> Quotient:
    """Make the F1 score, ``2 TP / (2 TP + FP + FN)``.

    Parameters
    ----------
    {label}
    {on}
    """
    true_positives, false_positives, false_negatives = _joint(label, on)
    doubled = 2.0 * true_positives
    name = _printed(name_with_label("f1", label), on)
    return Quotient(name, doubled, doubled + false_positives + false_negatives)


@_documented
def log_loss(*, on: Any = None) -> Rate:
    """Weighted mean cross-entropy, in nats: the constraint of the source paper.

    ``log_loss(on=label(k)) <= alpha`` is constraint ``l_k(x) <= alpha_k`` of [1]_, eq. (3.1), and
    ``gap(log_loss(), by=...) <= alpha`` the fairness constraint of eq. (4.1), with means in the
    place of sums.

    Parameters
    ----------
    {on}

    References
    ----------
    .. [1] Lin and Deng, "GBM-based Bregman Proximal Algorithms for Constrained Learning", 2023.
    """
    return _rate("log_loss", "log_loss", on)


@_documented
def churn(*, to: Any, on: Any = None) -> Rate:
    """Weighted fraction of rows whose decision differs from that of a deployed model.

    Rows need no label.

    Parameters
    ----------
    to : {deployed}
    {on}
    """
    return _rate("churn", Differs(Deployed.of("to", to)), on)


@_documented
def wins(*, over: Any, on: Any = None) -> Rate:
    """Weighted fraction of rows that are right here and wrong by another model.

    ``wins(over=m) / losses(to=m) >= 2`` bounds the win/loss ratio, and
    ``wins(over=m) / (wins(over=m) + losses(to=m))`` is the win/change ratio of two classes.

    Parameters
    ----------
    over : {deployed}
    {on}
    """
    return _rate("wins", "correct", on, where=(Judged(Deployed.of("over", over), right=False),))


@_documented
def losses(*, to: Any, on: Any = None) -> Rate:
    """Weighted fraction of rows that are wrong here and right by another model.

    Parameters
    ----------
    to : {deployed}
    {on}
    """
    return _rate("losses", "error", on, where=(Judged(Deployed.of("to", to), right=True),))


def _reference(reference: Any) -> Any:
    if isinstance(reference, (list, tuple)):
        found: Any = tuple(map(as_level, reference))
    else:
        found = None if reference is None else as_level(reference)
    check_hashable(found, "reference= must be a group's value, or a tuple of values")
    return found


def _columns(by: Any) -> tuple[Hashable, ...] | None:
    if by is None:
        return None
    if isinstance(by, (list, tuple)):
        if not by:
            raise ValueError("by= is empty: name at least one column, or leave it out.")
        columns = tuple(map(plain, by))
    else:
        columns = (plain(by),)
    check_hashable(columns, "by= must be the name of a column, or a list of names")
    return columns


@_documented
def each(rate: Rate, *, by: str | Sequence[str] | None = None, **options: Any) -> Each:
    """Bound a rate in every group: ``each(recall(), by="region") >= 0.8``.

    Parameters
    ----------
    rate : Rate
        The rate of each group.
    {groups}
    """
    return Each(rate=rate, by=_columns(by), **options)


@_documented
def gap(
    rate: Rate,
    *,
    by: str | Sequence[str] | None = None,
    reference: Any = None,
    **options: Any,
) -> Gap:
    """Largest difference of a rate between groups, ``max - min``.

    ``gap(...) <= b`` compiles to the rows ``rate[g] - rate[h] <= b`` of every ordered pair of
    groups, or of every group and the reference.

    Parameters
    ----------
    rate : Rate
        The rate of each group.
    reference : value, tuple of values or ``overall``, default=None
        Compare every other group with this one only (a tuple names an intersection, NaN the rows
        without a value), or every group with the rate of all rows, as fairlearn does; the gap is
        then the largest absolute difference.
    {groups}
    """
    return Gap(rate=rate, by=_columns(by), reference=_reference(reference), **options)


@_documented
def ratio(
    rate: Rate,
    *,
    by: str | Sequence[str] | None = None,
    reference: Any = None,
    slack: float = 0.0,
    **options: Any,
) -> Ratio:
    """Smallest rate of a group over the largest; ``ratio(...) >= 0.8`` is the four-fifths rule.

    ``>= k`` compiles to ``k rate[h] - rate[g] <= slack`` for every ordered pair of groups, or for
    every group and the reference both ways.

    Parameters
    ----------
    rate : Rate
        The rate of each group.
    reference : value, tuple of values or ``overall``, default=None
        As in :func:`gap`.
    slack : float, default=0
        Added to the right-hand side.
    {groups}
    """
    reference = _reference(reference)
    return Ratio(rate=rate, by=_columns(by), reference=reference, slack=slack, **options)
