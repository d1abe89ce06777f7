"""Rates, their algebra, and bounds on them: the language of constraints.

A rate is a weighted mean over a set of rows: of errors, selections, changes of a deployed model's
decisions, or of the cross-entropy in nats. Rates are added, subtracted and scaled, compared
between groups and divided by each other. ``<=`` and ``>=`` make a :class:`Constraint`: an
immutable, hashable description that holds no data.
:func:`gbm_constrained.problem.compiler.compile_constraints` finds the rows in the data.

>>> from gbm_constrained.constraints.rates import fnr, fpr, gap, precision, selection_rate
>>> fnr() <= 0.05
fnr() <= 0.05
>>> fpr(on={"sex": "F"}) - fpr(on={"sex": "M"}) <= 0.02
fpr(on={'sex': 'F'}) - fpr(on={'sex': 'M'}) <= 0.02
>>> gap(selection_rate(), by="sex") <= 0.02
gap(selection_rate(), by='sex') <= 0.02
>>> precision() >= 0.9
precision() >= 0.9
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Literal

from gbm_constrained.constraints.calibration import (
    CalibrationError,
    CalibrationGap,
    EachCalibrationError,
)
from gbm_constrained.constraints.events import (
    Correct,
    CrossEntropy,
    Differs,
    Misclassified,
    Predicted,
)
from gbm_constrained.constraints.expressions import Quotient, Rate
from gbm_constrained.constraints.gaps import Gap, GapNorm, Ratio
from gbm_constrained.constraints.grouped import Each
from gbm_constrained.constraints.rate_parts import (
    Taken,
    classes_of,
    document_rate,
    joint_rates,
    make_rate,
    name_with_label,
    name_with_rows,
    read_columns,
    read_reference,
)
from gbm_constrained.constraints.reference_models import ReferenceModel
from gbm_constrained.constraints.selectors import ClassifiedBy, Label, to_python_scalar

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
    "gap_norm",
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


@document_rate
def error_rate(*, on: Any = None, weight: Any = None, cap: float | None = None) -> Rate:
    """Make the error rate, the weighted fraction of misclassified rows, ``P(prediction != y)``."""
    return make_rate("error_rate", Misclassified(), Taken(on, weight, cap))


@document_rate
def accuracy(*, on: Any = None, weight: Any = None, cap: float | None = None) -> Rate:
    """Make the accuracy, ``P(prediction = y)``."""
    return make_rate("accuracy", Correct(), Taken(on, weight, cap))


@document_rate
def selection_rate(
    label: Hashable | None = None, *, on: Any = None, weight: Any = None, cap: float | None = None
) -> Rate:
    """Make the selection rate (coverage), ``P(prediction = 1)``.

    Rows need no label: the rate can be taken over an unlabelled data set.
    """
    return make_rate(
        name_with_label("selection_rate", label),
        Predicted(classes_of(label)[1]),
        Taken(on, weight, cap),
    )


@document_rate
def tpr(
    label: Hashable | None = None, *, on: Any = None, weight: Any = None, cap: float | None = None
) -> Rate:
    """Make the true positive rate, ``P(prediction = 1 | y = 1)``."""
    _, positive = classes_of(label)
    return make_rate(
        name_with_label("tpr", label), Predicted(positive), Taken(on, weight, cap), (positive,)
    )


@document_rate
def recall(
    label: Hashable | None = None, *, on: Any = None, weight: Any = None, cap: float | None = None
) -> Rate:
    """Make the recall, which is the true positive rate, ``P(prediction = 1 | y = 1)``."""
    _, positive = classes_of(label)
    return make_rate(
        name_with_label("recall", label), Predicted(positive), Taken(on, weight, cap), (positive,)
    )


@document_rate
def fnr(
    label: Hashable | None = None, *, on: Any = None, weight: Any = None, cap: float | None = None
) -> Rate:
    """Make the miss rate (false negative rate), ``P(prediction != 1 | y = 1)``."""
    return make_rate(
        name_with_label("fnr", label),
        Misclassified(),
        Taken(on, weight, cap),
        (classes_of(label)[1],),
    )


@document_rate
def fpr(
    label: Hashable | None = None, *, on: Any = None, weight: Any = None, cap: float | None = None
) -> Rate:
    """Make the false positive rate, ``P(prediction = 1 | y != 1)``."""
    negative, positive = classes_of(label)
    return make_rate(
        name_with_label("fpr", label), Predicted(positive), Taken(on, weight, cap), (negative,)
    )


@document_rate
def tnr(
    label: Hashable | None = None, *, on: Any = None, weight: Any = None, cap: float | None = None
) -> Rate:
    """Make the true negative rate, ``P(prediction != 1 | y != 1) = 1 - fpr``."""
    negative, _ = classes_of(label)
    return make_rate(
        name_with_label("tnr", label), Predicted(negative), Taken(on, weight, cap), (negative,)
    )


@document_rate
def class_error(
    k: Hashable, *, on: Any = None, weight: Any = None, cap: float | None = None
) -> Rate:
    """Make the error rate of class `k`, ``P(prediction != k | y = k)``.

    This is the rate of Neyman-Pearson classification, and one minus the recall of class `k`.

    Parameters
    ----------
    k : hashable
        The class label, as it stands in ``y``.
    """
    return make_rate(
        name_with_label("class_error", k),
        Misclassified(),
        Taken(on, weight, cap),
        (Label(to_python_scalar(k)),),
    )


@document_rate
def confusion(
    i: Hashable,
    j: Hashable,
    *,
    normalize: Literal["true", "pred", "all"] = "true",
    on: Any = None,
    weight: Any = None,
    cap: float | None = None,
) -> Any:
    """Make an entry of the confusion matrix, normalised as scikit-learn does.

    Parameters
    ----------
    i, j : hashable
        True class and predicted class.
    normalize : {"true", "pred", "all"}, default="true"
        ``P(prediction = j | y = i)``, ``P(y = i | prediction = j)`` (a quotient), or
        ``P(y = i, prediction = j)``.
    """
    i, j = to_python_scalar(i), to_python_scalar(j)
    name = f"confusion({i!r}, {j!r})"
    if normalize == "true":
        return make_rate(name, Predicted(Label(j)), Taken(on, weight, cap), (Label(i),))
    if normalize not in ("pred", "all"):
        raise ValueError(f"normalize must be 'true', 'pred' or 'all', got {normalize!r}.")
    joint = make_rate(
        f"{name}/all", Predicted(Label(j)), Taken(on, weight, cap), where=(Label(i),)
    )
    if normalize == "all":
        return joint
    others = make_rate(
        f"{name}/all",
        Predicted(Label(j)),
        Taken(on, weight, cap),
        where=(Label(i, excluded=True),),
    )
    return Quotient(name_with_rows(f"{name}/pred", Taken(on, weight, cap)), joint, joint + others)


@document_rate
def precision(
    label: Hashable | None = None, *, on: Any = None, weight: Any = None, cap: float | None = None
) -> Quotient:
    """Make the precision, ``P(y = 1 | prediction = 1)``."""
    true_positives, false_positives, _ = joint_rates(label, Taken(on, weight, cap))
    name = name_with_rows(name_with_label("precision", label), Taken(on, weight, cap))
    return Quotient(name, true_positives, true_positives + false_positives)


@document_rate
def f1(
    label: Hashable | None = None, *, on: Any = None, weight: Any = None, cap: float | None = None
) -> Quotient:
    """Make the F1 score, ``2 TP / (2 TP + FP + FN)``."""
    true_positives, false_positives, false_negatives = joint_rates(label, Taken(on, weight, cap))
    doubled = 2.0 * true_positives
    name = name_with_rows(name_with_label("f1", label), Taken(on, weight, cap))
    return Quotient(name, doubled, doubled + false_positives + false_negatives)


@document_rate
def log_loss(*, on: Any = None, weight: Any = None, cap: float | None = None) -> Rate:
    """Make the weighted mean cross-entropy in nats: the constraint of the source paper.

    ``log_loss(on=label(k)) <= alpha`` is constraint ``l_k(x) <= alpha_k`` of [1]_, eq. (3.1), and
    ``gap(log_loss(), by=...) <= alpha`` the fairness constraint of eq. (4.1), with means in the
    place of sums.

    References
    ----------
    .. [1] Lin and Deng, "GBM-based Bregman Proximal Algorithms for Constrained Learning", 2023.
    """
    return make_rate("log_loss", CrossEntropy(), Taken(on, weight, cap))


@document_rate
def churn(*, to: Any, on: Any = None, weight: Any = None, cap: float | None = None) -> Rate:
    """Make the churn, the fraction of decisions that differ from those of a deployed model.

    Rows need no label.
    """
    return make_rate("churn", Differs(ReferenceModel.of("to", to)), Taken(on, weight, cap))


@document_rate
def wins(*, over: Any, on: Any = None, weight: Any = None, cap: float | None = None) -> Rate:
    """Make the wins, the fraction of correct decisions that another model gets wrong.

    ``wins(over=m) / losses(to=m) >= 2`` bounds the win/loss ratio, and
    ``wins(over=m) / (wins(over=m) + losses(to=m))`` is the win/change ratio of two classes.
    """
    return make_rate(
        "wins",
        Correct(),
        Taken(on, weight, cap),
        where=(ClassifiedBy(ReferenceModel.of("over", over), is_correct=False),),
    )


@document_rate
def losses(*, to: Any, on: Any = None, weight: Any = None, cap: float | None = None) -> Rate:
    """Make the losses, the fraction of wrong decisions that another model gets right."""
    return make_rate(
        "losses",
        Misclassified(),
        Taken(on, weight, cap),
        where=(ClassifiedBy(ReferenceModel.of("to", to), is_correct=True),),
    )


@document_rate
def each(
    rate: Rate | CalibrationError, *, by: str | Sequence[str] | None = None, **options: Any
) -> Each | EachCalibrationError:
    """Bound a rate in every group: ``each(recall(), by="region") >= 0.8``.

    Parameters
    ----------
    rate : Rate or CalibrationError
        The rate of each group.
    """
    if isinstance(rate, CalibrationError):
        return EachCalibrationError(of=rate, by=read_columns(by), **options)
    return Each(rate=rate, by=read_columns(by), **options)


@document_rate
def gap(
    rate: Rate | Quotient | CalibrationError,
    *,
    by: str | Sequence[str] | None = None,
    reference: Any = None,
    **options: Any,
) -> Gap | GapNorm | CalibrationGap:
    """Compare a rate between groups by the largest difference, ``max - min``.

    ``gap(...) <= b`` compiles to the rows ``rate[g] - rate[h] <= b`` of every ordered pair of
    groups, or of every group and the reference. Gaps between the same groups are added and
    multiplied by positive numbers: average odds are ``(gap(fpr(), by=...) + gap(tpr(), by=...)) /
    2``. The gap of a quotient such as ``precision()`` is not linear in the predictions, and is
    met by its tangents.

    Parameters
    ----------
    rate : Rate, Quotient or CalibrationError
        The rate of each group.
    reference : value, tuple of values or ``overall``, default=None
        Compare every other group with this one only (a tuple names an intersection, NaN the rows
        without a value), or every group with the rate of all rows, as fairlearn does; the gap is
        then the largest absolute difference.
    """
    reference = read_reference(reference)
    if isinstance(rate, Quotient):
        parts = ((1.0, rate),)
        return GapNorm(parts=parts, by=read_columns(by), reference=reference, **options)
    if isinstance(rate, CalibrationError):
        return CalibrationGap(of=rate, by=read_columns(by), reference=reference, **options)
    return Gap(rate=rate, by=read_columns(by), reference=reference, **options)


@document_rate
def gap_norm(
    rates: Sequence[Rate | Quotient],
    *,
    p: float = 2.0,
    by: str | Sequence[str] | None = None,
    reference: Any = None,
    **options: Any,
) -> GapNorm:
    r"""Combine gaps by their p-norm, :math:`(\sum_i G_i^p)^{1/p}`.

    Parameters
    ----------
    rates : sequence of Rate or Quotient
        The rate of each gap.
    p : float, default=2
        Order of the norm, one or more: 1 is the sum of the gaps, and infinity the largest.
    reference : value, tuple of values or ``overall``, default=None
        As in :func:`gap`.

    Raises
    ------
    TypeError
        If `rates` are no rates or quotients.
    ValueError
        If `p` is no number from one on, or there is no rate.
    """
    given: Sequence[Any] = rates if isinstance(rates, (list, tuple)) else [rates]
    parts = tuple((1.0, rate) for rate in given)
    reference = read_reference(reference)
    return GapNorm(parts=parts, p=p, by=read_columns(by), reference=reference, **options)


@document_rate
def ratio(
    rate: Rate,
    *,
    by: str | Sequence[str] | None = None,
    reference: Any = None,
    slack: float = 0.0,
    **options: Any,
) -> Ratio:
    """Divide the smallest rate of a group by the largest: the four-fifths rule is ``>= 0.8``.

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
    """
    reference = read_reference(reference)
    return Ratio(rate=rate, by=read_columns(by), reference=reference, slack=slack, **options)
