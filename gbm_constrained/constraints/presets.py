r"""Constraints by name: fairness notions, coverage of classes, and fairlearn's constraints.

With the share of predictions :math:`q_i = P(\hat y = i)`, also called coverage, and a target
:math:`\tau_i` of each class,

- coverage is :math:`\max_i |q_i - \tau_i|`,
- quantification is the divergence :math:`\sum_i \tau_i \log(\tau_i / q_i)` of Kullback and Leibler

(Narasimhan et al., "Consistent Multiclass Algorithms for Complex Metrics and Constraints",
section 3.2 and Table 1). The targets are given, or are the shares :math:`\pi_i` of labels. Then
:math:`q_i - \pi_i = P(y \ne i, \hat y = i) - P(y = i, \hat y \ne i)` is a rate itself.

The classes are known once labels are. Until then an expression has no rates.

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

Each preset bounds the absolute value of one metric (eq. 1, Appendix A) of Yao, Lin and Yang,
"Stochastic Methods for AUC Optimization subject to AUC-based Fairness Constraints", 2023. The
paper has two groups; here any number is compared. AUC(U, V) is the probability that a row of U
scores above a row of V, ties counted by half, g and h are groups, and + and - are the positives
and negatives.

==========================  =======================================  =======
preset                      bounds                                   Example
==========================  =======================================  =======
`GroupAUC`                  AUC(g, all) - AUC(h, all)                1
`CrossAUC`                  AUC(g+, not g-) - AUC(h+, not h-)        2
`SubgroupAUC`               AUC(g+, g-) - AUC(h+, h-)                3
`AverageEqualityGap`        AUC(rows of g, rows) - 1/2, of a label   4
`BackgroundSubgroupAUC`     AUC(all+, g-) - AUC(g+, all-)            5
==========================  =======================================  =======

No rule of these depends on a threshold, and none says anything of the decisions at one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from numbers import Real
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gbm_constrained._messages import is_finite, is_number
from gbm_constrained._typing import Float
from gbm_constrained.constraints import rates
from gbm_constrained.constraints.base import (
    Constraint,
    Expression,
    LinearRow,
    Rate,
    Sense,
    documented,
    make_factory,
)
from gbm_constrained.constraints.comparisons import overall
from gbm_constrained.constraints.selectors import (
    Correct,
    Misclassified,
    Predicted,
    as_selectors,
    name_with_label,
    to_python_scalar,
    write_level,
)
from gbm_constrained.constraints.selectors import label as rows_of_label
from gbm_constrained.constraints.writing import write_call, write_list, write_number

__all__ = [
    "AverageEqualityGap",
    "BackgroundSubgroupAUC",
    "BoundedGroupLoss",
    "Churn",
    "Coverage",
    "CrossAUC",
    "DemographicParity",
    "EqualOpportunity",
    "EqualizedOdds",
    "ErrorRateParity",
    "FalsePositiveRateParity",
    "FourFifths",
    "GroupAUC",
    "NeymanPearson",
    "Quantification",
    "SubgroupAUC",
    "TruePositiveRateParity",
    "UtilityParity",
    "from_fairlearn",
]


SMALLEST_SHARE = 1e-9
"""Smallest share of predictions at which the divergence has a gradient: less than one row of any
table, and steeper than any cut that solvers take."""
Targets: TypeAlias = tuple[tuple[Hashable, float], ...] | tuple[float, ...] | None


@dataclass(frozen=True, repr=False)
class OfShares(Expression):
    """A distance of the shares of predictions from targets.

    Parameters
    ----------
    to : tuple of (label, float), tuple of float, or None
        Target of each class, or of each of the sorted classes; the share of its labels when None.
    classes : tuple of labels, default=None
        The sorted classes; None until they are known.
    """

    senses: ClassVar[tuple[Sense, ...]] = ("<=",)
    preset: ClassVar[str]

    to: Targets = None
    classes: tuple[Hashable, ...] | None = None

    @property
    def needs_classes(self) -> bool:  # type: ignore[override]
        """Whether the rates are unknown until the classes are known."""
        return self.classes is None

    def with_classes(self, classes: Sequence[Any] | NDArray[Any]) -> OfShares:
        """Name the classes, now that they are known.

        Raises
        ------
        ValueError
            If the targets are not those of these classes.
        """
        known = tuple(to_python_scalar(label) for label in classes)
        if self.to is None:
            return replace(self, classes=known)
        named = [target for target in self.to if isinstance(target, tuple)]
        given = dict(named) if named else dict(zip(known, self.to, strict=False))
        if len(self.to) != len(known) or set(given) != set(known):
            shown = list(given) if named else f"{len(self.to)} targets"
            raise ValueError(
                f"to= of {self.preset} has {shown}, and the classes of y are {list(known)}: give "
                f"one target for each class, zero for a class that is never to be predicted."
            )
        return replace(self, to=tuple((k, given[k]) for k in known), classes=known)

    @property
    def targets(self) -> Float | None:
        """Target of each class; None where it is the share of the labels."""
        if self.to is None:
            return None
        return np.array([target[1] if isinstance(target, tuple) else target for target in self.to])

    @property
    def one_sided(self) -> str:  # type: ignore[override]
        """Why it has no bounds from below."""
        return f"{self.preset} can only be bounded from above"

    def write_bound(self, sense: Sense, bound: float | None, *, exact: bool) -> str:
        """Write the preset that makes a bound, if there is one, with all digits where asked."""
        share, label = (write_number, write_level) if exact else ("{:g}".format, repr)
        to = None
        if self.to is not None and isinstance(self.to[0], tuple):
            to = f"{{{', '.join(f'{label(k)}: {share(target)}' for k, target in self.to)}}}"
        elif self.to is not None:
            to = write_list([share(target) for target in self.to])
        return write_call(self.preset, within=None if bound is None else share(bound), to=to)

    def __str__(self) -> str:
        return self.write_bound("<=", None, exact=False)


@dataclass(frozen=True, repr=False)
class CoverageDifference(OfShares):
    r"""The largest difference :math:`\max_i |q_i - \tau_i|` of a share of predictions."""

    bounds_each_rate = True
    preset: ClassVar[str] = "Coverage"
    range = (0.0, 1.0)
    accepted = (0.0, "a difference of shares in [0, 1]: 1 per cent is written 0.01")

    @property
    def rates(self) -> tuple[Rate, ...]:
        """The difference of each class."""
        labels = self.classes or ()
        if self.targets is None:
            joint = map(_joint_rates, labels)
            return tuple(more - missed for _, more, missed in joint)
        # There are no labels before they are known.
        pairs = zip(labels, self.targets.tolist(), strict=False)
        return tuple(rates.selection_rate(label) - target for label, target in pairs)

    def n_comparisons(self, n_functionals: int) -> int:
        """Count the classes."""
        return n_functionals

    def rows(self, of: Constraint, at: Sequence[int], names: Sequence[str]) -> list[LinearRow]:
        """Write the bound as two linear rows for each class."""
        found = []
        for i, (label, k) in enumerate(zip(self.classes or (), at, strict=True)):
            share = f"selection_rate({label!r})"
            target = f"share({label!r})" if self.targets is None else f"{self.targets[i]:g}"
            found += [
                LinearRow(f"{share} - {target} <= {of.bound:g}", {k: 1.0}, of.bound),
                LinearRow(f"{target} - {share} <= {of.bound:g}", {k: -1.0}, of.bound),
            ]
        return found

    def value(self, functionals: Float, sense: Sense) -> float:
        """Find the largest difference."""
        return float(np.abs(functionals).max())


@dataclass(frozen=True, repr=False)
class CoverageDivergence(OfShares):
    r"""The divergence :math:`\sum_i \tau_i \log(\tau_i / q_i)`, in nats.

    The functionals are the q, and after them the :math:`\pi` where these are the targets. The
    divergence is convex in both together.
    """

    preset: ClassVar[str] = "Quantification"
    range = (0.0, math.inf)
    accepted = (0.0, "a finite divergence in nats that is not negative")

    @property
    def rates(self) -> tuple[Rate, ...]:
        """The share of predictions of each class, and the share of labels if it is the target."""
        labels = self.classes or ()
        predicted = tuple(rates.selection_rate(label) for label in labels)
        if self.to is not None:
            return predicted
        # No decision changes the share of the labels.
        return (*predicted, *(right + missed for right, _, missed in map(_joint_rates, labels)))

    def _parts(self, functionals: Float) -> tuple[Float, Float]:
        """Split functionals into the shares of predictions and the targets."""
        if self.targets is not None:
            return functionals, self.targets
        n = functionals.size // 2
        return functionals[:n], functionals[n:]

    def value(self, functionals: Float, sense: Sense) -> float:
        """Compute the divergence, infinite where a class with a target is never predicted."""
        predicted, target = self._parts(functionals)
        if np.isnan(functionals).any():
            return np.nan
        some = target > 0.0
        if (predicted[some] <= 0.0).any():
            return np.inf
        return float(np.sum(target[some] * np.log(target[some] / predicted[some])))

    def gradient(self, functionals: Float) -> Float:
        """Compute the gradient of the divergence in the functionals.

        Where the divergence is infinite, the gradient points away from the classes that are never
        predicted.
        """
        predicted, target = self._parts(functionals)
        some = target > 0.0
        ratio = target / np.maximum(predicted, SMALLEST_SHARE)
        if self.targets is not None:
            return -ratio
        of_target = np.zeros(target.size)
        of_target[some] = np.log(ratio[some]) + 1.0
        return np.concatenate([-ratio, of_target])


def _joint_rates(label: Hashable) -> tuple[Rate, Rate, Rate]:
    """Make the shares of all rows that a class is found in, found in wrongly, and missed in."""
    negative, positive = rates.classes_of(label)
    right, more, missed = (
        rates.make_rate(name_with_label(name, label), event, where=(where,))
        for name, event, where in (
            ("true_positives", Correct(), positive),
            ("false_positives", Predicted(positive), negative),
            ("false_negatives", Misclassified(), positive),
        )
    )
    return right, more, missed


def read_targets(preset: str, to: Any) -> Targets:
    """Read ``to=`` of a preset.

    Raises
    ------
    TypeError
        If it is neither a mapping nor an array of numbers.
    ValueError
        If a target is negative, or they do not sum to one.
    """
    if to is None:
        return None
    is_named = hasattr(to, "keys") and hasattr(to, "items")  # a dict, or a Series
    if not is_named and (isinstance(to, str) or not hasattr(to, "__len__")):
        raise TypeError(
            f"to= of {preset} must be a dict from label to share, or an array of one share for "
            f"each class, got {to!r}."
        )
    labels = [to_python_scalar(label) for label, _ in to.items()] if is_named else []
    shares = [to_python_scalar(share) for _, share in to.items()] if is_named else [*to]
    for share in shares:
        if not is_number(share) or not is_finite(share) or share < 0.0:
            raise ValueError(
                f"to= of {preset} must be shares of the classes, numbers from 0 to 1, got "
                f"{share!r}: 20 per cent is written 0.2."
            )
    total = math.fsum(shares)
    if abs(total - 1.0) > 1e-6:  # Shares may be rounded to six digits.
        raise ValueError(
            f"to= of {preset} must sum to one, and its {len(shares)} shares sum to {total:g}: "
            f"divide each by the sum, or leave to= out for the shares of the labels."
        )
    numbers = tuple(map(float, shares))
    return tuple(zip(labels, numbers, strict=True)) if is_named else numbers


FAIRLEARN_LOSSES = {
    "ZeroOneLoss": "zero_one", "SquareLoss": "squared", "AbsoluteLoss": "absolute"
}  # fmt: skip
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


_document = documented(SHARED_PARAMETERS)
_document_parity = documented(SHARED_PARAMETERS, _PARITY_RETURNS, _PARITY_RAISES)
_document_pair_preset = documented(
    {
        **SHARED_PARAMETERS,
        "bound": """bound : float, default=0.02
    Largest allowed absolute value, in [0, 1].""",
    },
    """Raises
------
TypeError
    If ``bound`` is no number, ``on`` names no rows, or ``by`` no columns.
ValueError
    If ``bound`` is outside [0, 1], or ``by`` empty.""",
)


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
    rate = rates.selection_rate() if rate is None else rate
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
        compared = rates.ratio(rate, by=by, reference=overall, slack=ratio_bound_slack)
        return Constraint(compared, ">=", ratio_bound)
    bound = 0.01 if difference_bound is None else difference_bound  # As in fairlearn.
    return Constraint(rates.gap(rate, by=by, reference=overall), "<=", bound)


def _make_parity(name: str, summary: str, *makers: Callable[..., Rate]) -> Callable[..., Any]:
    """Make a parity of fairlearn: that of one rate, or a tuple of those of several."""

    def parity(
        *,
        difference_bound: float | None = None,
        ratio_bound: float | None = None,
        ratio_bound_slack: float = 0.0,
        by: By = None,
        on: Any = None,
    ) -> Constraint | tuple[Constraint, ...]:
        bounds: dict[str, Any] = {"difference_bound": difference_bound, "ratio_bound": ratio_bound}
        bounds |= {"ratio_bound_slack": ratio_bound_slack, "by": by}
        found = tuple(UtilityParity(make(on=on), **bounds) for make in makers)
        return found if len(found) > 1 else found[0]

    parity.__name__, parity.__doc__ = name, summary
    return _document_parity(parity)


DemographicParity = _make_parity(
    "DemographicParity",
    "``P(prediction = 1 | group) = P(prediction = 1)``.",
    rates.selection_rate,
)
TruePositiveRateParity = _make_parity(
    "TruePositiveRateParity",
    "``P(prediction = 1 | y = 1, group) = P(prediction = 1 | y = 1)``.",
    rates.tpr,
)
FalsePositiveRateParity = _make_parity(
    "FalsePositiveRateParity",
    "``P(prediction = 1 | y = 0, group) = P(prediction = 1 | y = 0)``.",
    rates.fpr,
)
EqualizedOdds = _make_parity(
    "EqualizedOdds", "Parity of both the true and the false positive rate.", rates.tpr, rates.fpr
)
ErrorRateParity = _make_parity(
    "ErrorRateParity", "``P(prediction != y | group) = P(prediction != y)``.", rates.error_rate
)


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
        "log_loss": rates.log_loss,
        "zero_one": rates.error_rate,
        "squared": partial(rates.mean_loss, "squared"),
        "absolute": partial(rates.mean_loss, "absolute"),
    }
    loss = name_of_loss(loss)
    if not isinstance(loss, str) or loss not in losses:
        raise ValueError(
            f"loss must be one of {list(losses)}, or one of fairlearn's losses "
            f"{list(FAIRLEARN_LOSSES)}; got {loss!r}."
        )
    return Constraint(rates.each(losses[loss](on=on), by=by), "<=", upper_bound)


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
    return tuple(rates.class_error(k) <= level for k, level in levels.items())


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
    return Constraint(rates.churn(to=to, on=on), "<=", bound)


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
    return Constraint(rates.gap(rates.tpr(on=on), by=by), "<=", bound)


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
    return Constraint(rates.ratio(rates.selection_rate(on=on), by=by), ">=", bound)


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


@_document_pair_preset
def GroupAUC(bound: float = 0.02, *, by: By = None, on: Any = None) -> Constraint:  # noqa: N802
    """Bound the differences between the mean ranks of groups: group AUC fairness.

    Of two groups the difference is ``|AUC(g, h) - 1/2|``, where every row of one group is compared
    with every row of the other whatever their labels: Appendix A, Example 1, of the source paper.
    """
    return rates.gap(rates.mean_rank(on=on), by=by) <= bound


@_document_pair_preset
def CrossAUC(bound: float = 0.02, *, by: By = None, on: Any = None) -> Constraint:  # noqa: N802
    """Bound the differences between the AUCs of a group's positives against others' negatives.

    It is the inter-group pairwise fairness of Appendix A, Example 2, also called xAUC.
    """
    return rates.gap(rates.cross_auc(on=on), by=by) <= bound


@_document_pair_preset
def SubgroupAUC(bound: float = 0.02, *, by: By = None, on: Any = None) -> Constraint:  # noqa: N802
    """Bound the differences between the AUCs within groups.

    It is the intra-group pairwise fairness of Appendix A, Example 3.
    """
    return rates.gap(rates.auc(on=on), by=by) <= bound


@_document_pair_preset
def AverageEqualityGap(  # noqa: N802
    label: Hashable, bound: float = 0.02, *, by: By = None, on: Any = None
) -> Constraint:
    """Bound the distance of the groups' mean ranks among the rows of a label from one half.

    It is the positive or the negative average equality gap of Appendix A, Example 4.

    Parameters
    ----------
    label : hashable
        The label: that of the positives for the positive gap, of the negatives for the negative
        one.
    """
    ranked = rates.mean_rank(on=(rows_of_label(label), *as_selectors(on)))
    return rates.gap(ranked, by=by, reference=overall) <= bound


@_document_pair_preset
def BackgroundSubgroupAUC(  # noqa: N802
    bound: float = 0.02,
    *,
    by: By = None,
    on: Any = None,
    background: Literal["all", "others"] = "all",
) -> tuple[Constraint, Constraint]:
    """Bound the difference between the background-subgroup AUCs BPSN and BNSP of each group.

    BPSN compares the positives of the background with the negatives of the group, and BNSP the
    positives of the group with the negatives of the background. The rule has two sides, each a
    constraint. For one group alone write
    ``auc(negatives={"sex": "F"}) - auc(positives={"sex": "F"})``.

    Parameters
    ----------
    background : {"all", "others"}, default="all"
        All rows, as in Appendix A, Example 5; or the rows outside the group, as in Borkan et al.,
        "Nuanced Metrics for Measuring Unintended Bias with Real Data for Text Classification",
        2019. Of two groups the latter are the bounds of :func:`CrossAUC`.
    """
    bpsn = rates.cross_auc(on=on, group="negatives", background=background)
    bnsp = rates.cross_auc(on=on, group="positives", background=background)
    return rates.each(bpsn - bnsp, by=by) <= bound, rates.each(bpsn - bnsp, by=by) >= -bound


def from_fairlearn(moment: Any) -> tuple[Constraint, ...]:
    """Read a constraint of ``fairlearn.reductions``, with its meaning and its bounds.

    Parameters
    ----------
    moment : DemographicParity, TruePositiveRateParity, FalsePositiveRateParity, EqualizedOdds, \
ErrorRateParity or BoundedGroupLoss
        A moment. Those with ``SquareLoss`` or ``AbsoluteLoss`` are about regressors, and are read
        without the range that fairlearn clips targets and predictions to.

    Raises
    ------
    TypeError, ValueError
        If the constraint is another one, or has no bound.
    """
    name = type(moment).__name__
    parities = (
        DemographicParity, TruePositiveRateParity, FalsePositiveRateParity, EqualizedOdds,
        ErrorRateParity,
    )  # fmt: skip
    presets = {preset.__name__: preset for preset in parities}
    if name == "BoundedGroupLoss" and isinstance(name_of_loss(moment.reduction_loss), str):
        if moment.upper_bound is None:
            raise ValueError(
                "BoundedGroupLoss of fairlearn has no upper_bound: give it one, or use "
                "each(error_rate()) <= bound, or each(mean_loss()) <= bound."
            )
        loss = moment.reduction_loss
        return (BoundedGroupLoss(loss, upper_bound=float(moment.upper_bound)),)
    if name not in presets:
        raise TypeError(
            f"fairlearn's {moment!r} is not a constraint on a classifier's rates that is known "
            f"here: {list(presets)} and BoundedGroupLoss are."
        )
    bounds = {"ratio_bound": float(moment.ratio), "ratio_bound_slack": float(moment.eps)}
    if moment.ratio == 1.0:
        bounds = {"difference_bound": float(moment.eps)}
    found = presets[name](**bounds)
    return found if isinstance(found, tuple) else (found,)
