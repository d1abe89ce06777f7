"""Common constraints by name, fairlearn's among them.

**Two meanings of parity.** fairlearn compares every group with the rate of *all* rows;
:func:`gbm_constrained.constraints.rates.gap` is the largest difference *between groups*:

- ``DemographicParity(difference_bound=0.02)``: ``|selection_rate[g] - selection_rate| <= 0.02``
- ``gap(selection_rate(), by="sex") <= 0.02``: ``selection_rate[g] - selection_rate[h] <= 0.02``

A bound d of the first implies at most 2 d in the second, and d in the second at most d in the
first. The classes' names here and their parameters are fairlearn's, and so is the meaning.

Every preset is a function that returns one constraint or a tuple of them; both can stand in
``constraints=[...]``.

**Several classes.** The parities are about the positive class: that of the classifier's parameter
``positive``, or the last one of two. Of several classes, give that, or the rate of one:
``UtilityParity(selection_rate(label="a"))``, or ``gap(selection_rate(label="a"))``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from numbers import Real
from typing import Any

from gbm_constrained._docstrings import Function, document_parameters
from gbm_constrained.constraints.base import Constraint
from gbm_constrained.constraints.coverage import (
    CoverageDifference,
    CoverageDivergence,
    read_targets,
)
from gbm_constrained.constraints.expressions import Rate
from gbm_constrained.constraints.factories import make_factory
from gbm_constrained.constraints.grouped import overall
from gbm_constrained.constraints.rates import (
    churn,
    class_error,
    each,
    error_rate,
    fpr,
    gap,
    log_loss,
    ratio,
    selection_rate,
    tpr,
)
from gbm_constrained.constraints.row_means import mean_loss

__all__ = [
    "BoundedGroupLoss",
    "Churn",
    "Coverage",
    "DemographicParity",
    "EqualOpportunity",
    "EqualizedOdds",
    "ErrorRateParity",
    "FalsePositiveRateParity",
    "FourFifths",
    "NeymanPearson",
    "Quantification",
    "TruePositiveRateParity",
    "UtilityParity",
]

FAIRLEARN_LOSSES = {
    "ZeroOneLoss": "zero_one", "SquareLoss": "squared", "AbsoluteLoss": "absolute"
}  # fmt: skip
DEFAULT_DIFFERENCE_BOUND = 0.01  # The default of fairlearn.
By = str | Sequence[str] | None
SHARED_PARAMETERS = {
    "difference_bound": """difference_bound : float, default=None
    Largest allowed difference between any group and all rows; 0.01 without any bound.""",
    "ratio_bound": """ratio_bound : float, default=None
    Smallest allowed ratio of any group to all rows, and of all rows to any group.""",
    "ratio_bound_slack": """ratio_bound_slack : float, default=0
    Slack of the ratio: ``ratio_bound * rate[g] - rate <= slack``, and the same with the two
    exchanged.""",
    "by": """by : str or list of str, default=None
    Columns that make the groups; all sensitive features together by default.""",
    "on": """on : default=None
    Rows that the constraint is about; see :mod:`gbm_constrained.constraints.rates`.""",
}
_PARITY_RETURNS = """Returns
-------
Constraint or tuple of Constraint"""
_PARITY_RAISES = """Raises
------
TypeError
    If a bound is no number, ``rate`` cannot be compared between groups, ``on`` names no rows, or
    ``by`` no columns.
ValueError
    If both bounds are given, or one is outside its range (of a ratio, (0, 1]); if the slack is no
    number from 0 on, or given without a ``ratio_bound``; or if ``by`` is empty."""


def _document(function: Function) -> Function:
    """Describe the parameters that presets share."""
    return make_factory(document_parameters(function, SHARED_PARAMETERS))


def _document_parity(function: Function) -> Function:
    """Describe the parameters, the result and the errors of parities."""
    documented = document_parameters(function, SHARED_PARAMETERS, _PARITY_RETURNS, _PARITY_RAISES)
    return make_factory(documented)


def _parity(
    rate: Rate,
    difference_bound: float | None,
    ratio_bound: float | None,
    ratio_bound_slack: float,
    by: By,
) -> Constraint:
    if difference_bound is not None and ratio_bound is not None:
        raise ValueError(
            f"difference_bound={difference_bound!r} and ratio_bound={ratio_bound!r} cannot both "
            f"be given: choose one, or pass two constraints."
        )
    if ratio_bound is None and ratio_bound_slack != 0.0:
        raise ValueError(
            f"ratio_bound_slack={ratio_bound_slack!r} is the slack of a ratio_bound: give that, "
            f"or leave it out."
        )
    if ratio_bound is not None:
        if not isinstance(ratio_bound, Real):
            raise TypeError(f"ratio_bound must be a number in (0, 1], got {ratio_bound!r}.")
        if not 0.0 < ratio_bound <= 1.0:
            raise ValueError(f"ratio_bound must be in (0, 1], got {ratio_bound!r}.")
        compared = ratio(rate, by=by, reference=overall, slack=ratio_bound_slack)
        return Constraint(compared, ">=", ratio_bound)
    bound = DEFAULT_DIFFERENCE_BOUND if difference_bound is None else difference_bound
    return Constraint(gap(rate, by=by, reference=overall), "<=", bound)


@_document_parity
def UtilityParity(  # noqa: N802 - fairlearn's name
    rate: Rate | None = None,
    *,
    difference_bound: float | None = None,
    ratio_bound: float | None = None,
    ratio_bound_slack: float = 0.0,
    by: By = None,
) -> Constraint:
    """Parity of any rate between each group and all rows; the selection rate by default.

    Parameters
    ----------
    rate : Rate, default=None
        Rate that is compared, with its own ``on=``; the selection rate by default.
    """
    rate = selection_rate() if rate is None else rate
    return _parity(rate, difference_bound, ratio_bound, ratio_bound_slack, by)


@_document_parity
def DemographicParity(  # noqa: N802
    *,
    difference_bound: float | None = None,
    ratio_bound: float | None = None,
    ratio_bound_slack: float = 0.0,
    by: By = None,
    on: Any = None,
) -> Constraint:
    """``P(prediction = 1 | group) = P(prediction = 1)``."""
    rate = selection_rate(on=on)
    return _parity(rate, difference_bound, ratio_bound, ratio_bound_slack, by)


@_document_parity
def TruePositiveRateParity(  # noqa: N802
    *,
    difference_bound: float | None = None,
    ratio_bound: float | None = None,
    ratio_bound_slack: float = 0.0,
    by: By = None,
    on: Any = None,
) -> Constraint:
    """``P(prediction = 1 | y = 1, group) = P(prediction = 1 | y = 1)``."""
    return _parity(tpr(on=on), difference_bound, ratio_bound, ratio_bound_slack, by)


@_document_parity
def FalsePositiveRateParity(  # noqa: N802
    *,
    difference_bound: float | None = None,
    ratio_bound: float | None = None,
    ratio_bound_slack: float = 0.0,
    by: By = None,
    on: Any = None,
) -> Constraint:
    """``P(prediction = 1 | y = 0, group) = P(prediction = 1 | y = 0)``."""
    return _parity(fpr(on=on), difference_bound, ratio_bound, ratio_bound_slack, by)


@_document_parity
def EqualizedOdds(  # noqa: N802
    *,
    difference_bound: float | None = None,
    ratio_bound: float | None = None,
    ratio_bound_slack: float = 0.0,
    by: By = None,
    on: Any = None,
) -> tuple[Constraint, ...]:
    """Parity of both the true and the false positive rate."""
    bounds = (difference_bound, ratio_bound, ratio_bound_slack, by)
    return _parity(tpr(on=on), *bounds), _parity(fpr(on=on), *bounds)


@_document_parity
def ErrorRateParity(  # noqa: N802
    *,
    difference_bound: float | None = None,
    ratio_bound: float | None = None,
    ratio_bound_slack: float = 0.0,
    by: By = None,
    on: Any = None,
) -> Constraint:
    """``P(prediction != y | group) = P(prediction != y)``."""
    return _parity(error_rate(on=on), difference_bound, ratio_bound, ratio_bound_slack, by)


@_document
def BoundedGroupLoss(  # noqa: N802
    loss: Any = "log_loss", *, upper_bound: float, by: By = None, on: Any = None
) -> Constraint:
    """Bound the loss of every group.

    Parameters
    ----------
    loss : {"log_loss", "zero_one", "squared", "absolute"} or loss, default="log_loss"
        Mean cross-entropy in nats, or error rate; of a regressor the mean squared or absolute
        error. fairlearn's ``ZeroOneLoss()``, ``SquareLoss(low, high)`` and ``AbsoluteLoss(low,
        high)`` are read, without the range that the latter clip targets and predictions to.
    upper_bound : float
        Largest allowed loss of a group.

    Raises
    ------
    TypeError
        If ``upper_bound`` is no number, ``on`` names no rows, or ``by`` no columns.
    ValueError
        If ``loss`` is another one, ``upper_bound`` outside its range, or ``by`` empty.
    """
    losses: dict[str, Callable[..., Rate]] = {
        "log_loss": log_loss,
        "zero_one": error_rate,
        "squared": partial(mean_loss, "squared"),
        "absolute": partial(mean_loss, "absolute"),
    }
    loss = name_of_loss(loss)
    if not isinstance(loss, str) or loss not in losses:
        raise ValueError(
            f"loss must be one of {list(losses)}, or one of fairlearn's losses "
            f"{list(FAIRLEARN_LOSSES)}; got {loss!r}."
        )
    return Constraint(each(losses[loss](on=on), by=by), "<=", upper_bound)


@make_factory
def NeymanPearson(levels: Mapping[Hashable, float]) -> tuple[Constraint, ...]:  # noqa: N802
    """Bound the error of some classes: ``NeymanPearson({0: 0.05})``.

    Parameters
    ----------
    levels : dict from class label to float
        Largest allowed error rate of each class; at least one class.

    Raises
    ------
    TypeError
        If ``levels`` is no dict, or a level no number.
    ValueError
        If it is empty, so that the model would have no constraint, or a level is outside [0, 1].
    """
    if not isinstance(levels, Mapping):
        raise TypeError(
            f"levels must be a dict from class label to the largest allowed error rate of the "
            f"class, such as {{0: 0.05}}; got {levels!r}."
        )
    if not levels:
        raise ValueError(
            "levels is empty, so that no error would be bounded; give the largest allowed error "
            "rate of a class, such as {0: 0.05}, or constraints=[] for a fit without constraints."
        )
    return tuple(class_error(k) <= level for k, level in levels.items())


@_document
def Churn(to: Any, bound: float, *, on: Any = None) -> Constraint:  # noqa: N802
    """Bound the fraction of decisions that differ from those of a deployed model.

    Parameters
    ----------
    to : fitted classifier, str or array-like
        The deployed model, the name of a column of its decisions, or one decision for each
        training row.
    bound : float
        Largest allowed fraction.

    Raises
    ------
    TypeError
        If ``to`` is none of these, ``bound`` no number, or ``on`` names no rows.
    ValueError
        If ``bound`` is outside [0, 1].
    """
    return Constraint(churn(to=to, on=on), "<=", bound)


@_document
def EqualOpportunity(bound: float = 0.02, *, by: By = None, on: Any = None) -> Constraint:  # noqa: N802
    """Bound the largest difference of true positive rates between groups.

    :func:`TruePositiveRateParity` compares each group with all rows instead.

    Parameters
    ----------
    bound : float, default=0.02
        Largest allowed difference.

    Raises
    ------
    TypeError
        If ``bound`` is no number, ``on`` names no rows, or ``by`` no columns.
    ValueError
        If ``bound`` is outside [0, 1], or ``by`` empty.
    """
    return Constraint(gap(tpr(on=on), by=by), "<=", bound)


@_document
def FourFifths(*, by: By = None, bound: float = 0.8, on: Any = None) -> Constraint:  # noqa: N802
    """Bound the smallest selection rate of a group over the largest: the 80 per cent rule.

    Parameters
    ----------
    bound : float, default=0.8
        Smallest allowed ratio.

    Raises
    ------
    TypeError
        If ``bound`` is no number, ``on`` names no rows, or ``by`` no columns.
    ValueError
        If ``bound`` is outside [0, 1], or ``by`` empty.
    """
    return Constraint(ratio(selection_rate(on=on), by=by), ">=", bound)


@make_factory
def Coverage(*, within: float, to: Any = None) -> Constraint:  # noqa: N802
    r"""Bound the difference between how often each class is predicted and a target.

    .. math:: \max_i |P(\hat y = i) - \tau_i| \le within

    Parameters
    ----------
    within : float
        Largest allowed difference.
    to : dict from label to float, or array-like of shape (n_classes,), default=None
        The target :math:`\tau_i` of each class, by its label or in the order of the sorted labels;
        the share of the rows with the label by default.

    Raises
    ------
    TypeError
        If ``within`` is no number, or ``to`` neither a dict nor an array.
    ValueError
        If ``within`` is outside [0, 1], or if the targets are negative or do not sum to one; in
        ``fit``, if they are not those of the classes of y.
    """
    return Constraint(CoverageDifference(read_targets("Coverage", to)), "<=", within)


@make_factory
def Quantification(*, within: float, to: Any = None) -> Constraint:  # noqa: N802
    r"""Bound the divergence between how often each class is predicted and a target.

    .. math:: \sum_i \tau_i \log\frac{\tau_i}{P(\hat y = i)} \le within

    The divergence is convex and not linear, so that a fit with this constraint needs an objective
    of the confusion matrix: ``maximize=`` or ``minimize=``.

    Parameters
    ----------
    within : float
        Largest allowed divergence, in nats.
    to : dict from label to float, or array-like of shape (n_classes,), default=None
        As in :func:`Coverage`, with its errors.
    """
    return Constraint(CoverageDivergence(read_targets("Quantification", to)), "<=", within)


def is_fairlearn(constraint: Any) -> bool:
    """Whether an object is one of fairlearn's constraints."""
    return type(constraint).__module__.partition(".")[0] == "fairlearn"


def name_of_loss(loss: Any) -> Any:
    """Name a loss of fairlearn as it is called here; others stay what they are."""
    return FAIRLEARN_LOSSES.get(type(loss).__name__, loss) if is_fairlearn(loss) else loss
