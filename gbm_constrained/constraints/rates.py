r"""Functions that make rates, costs, means, pair rates and calibration errors.

The cost of a row with label i that is decided as class j is :math:`a M_{ij}`, with the amount a of
the row, or one. The expected cost is the mean over all rows, in the unit of the amounts:

.. math:: \frac{\sum_i w_i a_i M_{y_i \hat y_i}}{\sum_i w_i}

Rates of amounts divide by the sum of the amounts instead. Costs of several amounts are added, as
in ``cost([[0, 0], [1, 0]], weight="Amount") + cost([[0, 3], [0, 3]])``, where a missed row costs
its amount and each alarm 3.

A pair rate is ``Pr(score of a row of U > score of a row of V) + Pr(tie) / 2``, over weighted
pairs. The three functions here choose U and V: the AUC, the AUC between a group and others, and
the mean rank of a group. Pair rates are added, subtracted and compared between groups as all rates
are (:mod:`gbm_constrained.constraints.rates`), and depend on no threshold.

>>> from gbm_constrained import auc, cross_auc, gap
>>> gap(auc(), by="sex") <= 0.02
gap(auc(), by='sex') <= 0.02
>>> gap(cross_auc(), by="race", reference="white") <= 0.05
gap(cross_auc(), by='race', reference='white') <= 0.05
>>> auc(negatives={"sex": "F"}) - auc(positives={"sex": "F"}) <= 0.02
auc(negatives={'sex': 'F'}) - auc(positives={'sex': 'F'}) <= 0.02

A constraint of a regression bounds the weighted mean of a function h(y, f) of a row's target y and
prediction f, both in the unit of the target. Means are added, compared between groups and bounded
as rates of classifiers are.

>>> from gbm_constrained.constraints.rates import each, gap
>>> each(mean_loss("squared"), by="race") <= 0.02
each(mean_loss('squared'), by='race') <= 0.02
>>> gap(mean_prediction(), by="sex") <= 0.1
gap(mean_prediction(), by='sex') <= 0.1
>>> coverage() >= 0.9
coverage() >= 0.9

Probabilities of the positive class of two are put into bins of equal width. The mean residual of
bin b over rows of weights w is

.. math:: r_b = \sum_i w_i \, 1[p_i \in b] \, (y_i - p_i) \Big/ \sum_i w_i ,

and the expected calibration error is :math:`\sum_b |r_b|` (Naeini, Cooper and Hauskrecht,
"Obtaining Well Calibrated Probabilities Using Bayesian Binning", 2015). Mean residuals are
functionals as rates are, so that an error is a curved function of them.

>>> from gbm_constrained import each, gap
>>> calibration_error() <= 0.05
calibration_error() <= 0.05
>>> each(calibration_error(bins=5), by="sex") <= 0.05
each(calibration_error(bins=5), by='sex') <= 0.05

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

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike

from gbm_constrained._messages import check_choice, is_finite, is_number
from gbm_constrained._typing import Bool, Float
from gbm_constrained.constraints.base import (
    CalibrationError,
    Constraint,
    Quotient,
    Rate,
    documented,
)
from gbm_constrained.constraints.comparisons import Each, Gap, GapNorm, Ratio
from gbm_constrained.constraints.selectors import (
    Amount,
    ClassifiedBy,
    ClassPosition,
    Columns,
    Correct,
    CrossEntropy,
    Differs,
    Event,
    EventKind,
    Label,
    Levels,
    Misclassified,
    Predicted,
    RankedAbove,
    ReferenceModel,
    Selector,
    Term,
    as_level,
    as_selectors,
    check_hashable,
    name_with_label,
    to_python_scalar,
)
from gbm_constrained.constraints.writing import write_list, write_number, write_value

__all__ = [
    "accuracy",
    "auc",
    "calibration_error",
    "churn",
    "class_error",
    "confusion",
    "cost",
    "coverage",
    "cross_auc",
    "each",
    "error_rate",
    "f1",
    "fnr",
    "fpr",
    "gap",
    "gap_norm",
    "log_loss",
    "losses",
    "mean_loss",
    "mean_prediction",
    "mean_rank",
    "mean_residual",
    "precision",
    "ratio",
    "recall",
    "selection_rate",
    "share_above",
    "tnr",
    "tpr",
    "wins",
]


POSITIVE, NEGATIVE = ClassPosition(1), ClassPosition(0)
_DEPLOYED = """classifier, str or array-like of shape (n_samples,)
    The other model: fitted, with a ``predict`` for the features given to ``fit``; or the name
    of a column of its decisions, in the sensitive features or X; or its decisions on the
    training rows, which do not survive cross-validation."""
_SHARED_PARAMETERS = {
    "label": """label : hashable, default=None
    The class taken as positive, against all others. By default that of the classifier's
    parameter ``positive``, else the last of two sorted labels (``classes_[1]``).""",
    "to": f"to : {_DEPLOYED}",
    "over": f"over : {_DEPLOYED}",
    "on": """on : label(...), dataset(...), dict, bool array or tuple, default=None
    Rows that the rate is taken over; all training rows by default. A dict such as
    ``{"sex": "F"}`` selects by columns of the sensitive features or of X, ``{"sex": None}`` the
    rows without a value; a tuple intersects. A mask, of shape (n_samples,), is of training rows
    and has no value on an evaluation set.""",
    "weight": """weight : str or array-like of shape (n_samples,), default=None
    What each row counts for, beside its sample weight: a column of amounts of the sensitive
    features or of X, or one amount for each training row. Amounts are not negative, and none is
    missing. An array does not survive cross-validation, and has no value on an evaluation set.""",
    "cap": """cap : float, default=None
    Largest amount of a row, which certificates need. A row with a larger one is an error.""",
    "range": """range : tuple of two floats, default=None
    Smallest and largest value of any row, (low, high), such as ``(0, 25)`` for a loss.
    Certificates need it, and observed values outside are errors then.""",
    "options": """by : str or list of str, default=None
    Columns of the sensitive features, or of X when it is a DataFrame; several make
    intersections. All sensitive features by default.
missing : {"group", "raise"}, default="group"
    Whether rows without a value are a group of their own, or an error.
min_group_size : int, default=30
    Groups in which the rate is taken over fewer rows are small, and a warning names them.
    Rows of weight zero do not count.
small_groups : {"keep", "hold", "merge", "drop"}, default="keep"
    Whether small groups are kept, merged into one group, or left out. A group that is kept moves
    the model as far as its rows can tell: at 25 rows for each group beyond two, by half of what
    its rate differs from that of all rows. With "hold" every group is held at any price, however
    few its rows are.""",
}


document_rate = documented(_SHARED_PARAMETERS)


def make_rate(
    name: str,
    event: Event,
    on: Any = None,
    weight: Any = None,
    cap: float | None = None,
    *,
    rows: tuple[Selector, ...] = (),
    where: tuple[Selector, ...] = (),
) -> Rate:
    """Make the weighted mean of an event: a rate of one term with coefficient one.

    `on`, `weight` and `cap` are given by users; `rows` and `where` belong to the rate.
    """
    term = Term(name, event, rows, as_selectors(on), where, Amount.of(weight, cap))
    return Rate(((1.0, term),))


def classes_of(label: Hashable | None) -> tuple[Label | ClassPosition, Label | ClassPosition]:
    """Make the selectors of the negative and of the positive class."""
    if label is None:
        return NEGATIVE, POSITIVE
    return Label(to_python_scalar(label), excluded=True), Label(to_python_scalar(label))


def make_class_rate(
    name: str,
    label: Hashable | None,
    predicted: Literal["negative", "positive"] | None,
    among: Literal["negative", "positive"] | None,
    *taken: Any,
) -> Rate:
    """Make the share of predictions of one of two classes, or of errors without `predicted`.

    It is over the rows of the class `among`, or over all rows; `taken` are ``on``, ``weight`` and
    ``cap``.
    """
    classes = dict(zip(("negative", "positive"), classes_of(label), strict=True))
    event = Misclassified() if predicted is None else Predicted(classes[predicted])
    rows = () if among is None else (classes[among],)
    return make_rate(name_with_label(name, label), event, *taken, rows=rows)


def joint_rates(label: Hashable | None, *taken: Any) -> tuple[Rate, Rate, Rate]:
    """Make the fractions of all rows that are true positive, false positive, false negative."""
    negative, positive = classes_of(label)
    return (
        make_rate("true_positives", Predicted(positive), *taken, where=(positive,)),
        make_rate("false_positives", Predicted(positive), *taken, where=(negative,)),
        make_rate("false_negatives", Misclassified(), *taken, where=(positive,)),
    )


def name_with_rows(name: str, *taken: Any) -> str:
    """Write the name of a quotient with its rows."""
    return str(make_rate(name, Misclassified(), *taken))


def read_reference(reference: Any) -> Any:
    """Read ``reference=`` as the name of a group, `overall` or None."""
    if isinstance(reference, (list, tuple)):
        found: Any = tuple(map(as_level, reference))
    else:
        found = None if reference is None else as_level(reference)
    check_hashable(found, "reference= must be a group's value, or a tuple of values")
    return found


def read_columns(by: Any) -> Columns | None:
    """Read ``by=`` as names of columns."""
    if by is None:
        return None
    if isinstance(by, (list, tuple)):
        if not by:
            raise ValueError("by= is empty: name at least one column, or leave it out.")
        columns = tuple(map(to_python_scalar, by))
    else:
        columns = (to_python_scalar(by),)
    check_hashable(columns, "by= must be the name of a column, or a list of names")
    return columns


@dataclass(frozen=True)
class DecisionCost(Event):
    """What the decision of a row costs, as its label says."""

    needs_labels: ClassVar[bool] = True
    kind: ClassVar[EventKind] = "cost"

    matrix: tuple[tuple[float, ...], ...] = ()

    @property
    def range(self) -> tuple[float, float]:
        """Smallest and largest cost of a row that counts as one."""
        return float(np.min(self.matrix)), float(np.max(self.matrix))

    def cost(self, levels: Levels) -> Float:
        """Look up the cost of each decision in each cell; rows without a label cost nothing.

        Raises
        ------
        ValueError
            If the matrix is one of another number of classes.
        """
        classes = levels.classes
        if len(self.matrix) != classes.size:
            raise ValueError(
                f"cost(matrix) has {len(self.matrix)} rows and y has {classes.size} classes, "
                f"{classes.tolist()}: give one row and one column for each class."
            )
        table = np.vstack([self.matrix, np.zeros(classes.size)])
        return np.asarray(table[np.minimum(levels.of_cells["label"], classes.size)])

    def arguments(self) -> tuple[list[str], dict[str, str | None]]:
        """Write the costs of decisions."""
        return [write_list([write_list(list(map(write_number, row))) for row in self.matrix])], {}

    def __str__(self) -> str:
        rows = [f"[{', '.join(f'{entry:g}' for entry in row)}]" for row in self.matrix]
        return f"cost([{', '.join(rows)}])"


@document_rate
def cost(
    matrix: ArrayLike, *, on: Any = None, weight: Any = None, cap: float | None = None
) -> Rate:
    r"""Make the expected cost of a row, :math:`\sum_i w_i a_i M_{y_i \hat y_i} / \sum_i w_i`.

    Without ``weight=``, this is :math:`\sum_{ij} M_{ij} C_{ij}` with the joint confusion matrix C.
    With it, the cost of a row is its amount times the entry of the matrix.

    Parameters
    ----------
    matrix : array-like of shape (n_classes, n_classes)
        Cost of predicting class j for rows of class i, by the sorted labels; of either sign.

    Raises
    ------
    ValueError
        If the matrix is not square, not finite, or zero.

    Examples
    --------
    >>> from gbm_constrained import cost
    >>> cost([[0, 0], [1, 0]], weight="Amount") + cost([[0, 3], [0, 3]]) <= 2.5
    cost([[0, 0], [1, 0]], weight='Amount') + cost([[0, 3], [0, 3]]) <= 2.5
    """
    table = np.asarray(matrix, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] != table.shape[1]:
        raise ValueError(f"cost(matrix) must be a square matrix, got the shape {table.shape}.")
    if not np.isfinite(table).all() or not table.any():
        raise ValueError(
            f"cost(matrix) must have finite entries that are not all zero, got {table.tolist()}."
        )
    # Zero has no sign: that of -0.0 would be shown.
    event = DecisionCost(tuple(map(tuple, (table + 0.0).tolist())))
    return make_rate(str(event), event, on, weight, cap)


@document_rate
def auc(
    label: Hashable | None = None, *, on: Any = None, positives: Any = None, negatives: Any = None
) -> Rate:
    """Make the area under the ROC curve, ``P(score of a positive > score of a negative)``.

    The intra-group AUC of [1]_, Example 3, is ``gap(auc(), by=...)``. With `positives` or
    `negatives` restricted to a group, the other side is all rows: the background-subgroup AUC of
    Example 5 with the whole data set as background.

    Parameters
    ----------
    positives, negatives : default=None
        Further restriction of the positives or of the negatives, as ``on=`` reads it; `on`
        restricts both.

    References
    ----------
    .. [1] Yao, Lin and Yang, "Stochastic Methods for AUC Optimization subject to AUC-based
       Fairness Constraints", 2023.
    """
    negative, positive = classes_of(label)
    event = RankedAbove(
        target=positive,
        first=as_selectors(positives),
        others=(negative,),
        second=as_selectors(negatives),
    )
    return make_rate(name_with_label("auc", label), event, on, rows=(positive,))


@document_rate
def cross_auc(
    label: Hashable | None = None,
    *,
    on: Any = None,
    group: Literal["positives", "negatives"] = "positives",
    background: Literal["others", "all"] = "others",
) -> Rate:
    """Make the AUC of a group's positives against the negatives of others, for use in groups.

    ``gap(cross_auc(), by=...)`` is the inter-group AUC of [1]_, Example 2, or xAUC; the difference
    between a group's two sides against the complement are the background-subgroup AUCs of Borkan
    et al. [2]_.

    Parameters
    ----------
    group : {"positives", "negatives"}, default="positives"
        Side that is of the group.
    background : {"others", "all"}, default="others"
        The other side: rows outside the group, or all rows.

    References
    ----------
    .. [1] Yao, Lin and Yang, "Stochastic Methods for AUC Optimization subject to AUC-based
       Fairness Constraints", 2023.
    .. [2] Borkan, Dixon, Sorensen, Thain and Vasserman, "Nuanced Metrics for Measuring Unintended
       Bias with Real Data for Text Classification", 2019.
    """
    check_choice("group", group, ("positives", "negatives"))
    check_choice("background", background, ("others", "all"))
    negative, positive = classes_of(label)
    event = RankedAbove(
        target=positive,
        others=(negative,),
        group="first" if group == "positives" else "second",
        background=background,
    )
    return make_rate(name_with_label("cross_auc", label), event, on, rows=(positive,))


@document_rate
def mean_rank(label: Hashable | None = None, *, on: Any = None) -> Rate:
    """Make the mean percentile of a group's scores among all rows, for use in groups.

    It is ``P(score of the group > score of all rows)``, ties counted by half. Of two groups,
    ``gap(mean_rank(), by=...)`` equals ``|AUC(g, h) - 1/2|``: the group AUC of [1]_, Example 1.
    With ``reference=overall`` among the rows of one label it is the average equality gap of
    Example 4, as the mean rank of all rows is one half.

    References
    ----------
    .. [1] Yao, Lin and Yang, "Stochastic Methods for AUC Optimization subject to AUC-based
       Fairness Constraints", 2023.
    """
    event = RankedAbove(target=classes_of(label)[1], group="first")
    return make_rate(name_with_label("mean_rank", label), event, on)


LossName: TypeAlias = Literal["squared", "absolute", "huber", "pinball", "poisson"]
LOSSES: tuple[LossName, ...] = get_args(LossName)
# Parameter of a loss, its default, and the end that it stays below; all are above zero.
LOSS_PARAMETERS: dict[str, tuple[str, float, float]] = {
    "huber": ("delta", 1.0, math.inf),
    "pinball": ("alpha", 0.5, 1.0),
}
Limits: TypeAlias = tuple[float, float]


class RowFunction(Event):
    """A function of the target and the prediction of a row, whose mean a constraint bounds.

    Attributes
    ----------
    is_linear : Whether the function is linear in the prediction.
    is_step : Whether the function is 1 on one side of a threshold of the prediction, and 0 else;
        other functions are convex in the prediction.
    limits : Smallest and largest value of a row, as the user states them; None if not stated.
    """

    kind: ClassVar[EventKind] = "number"
    is_linear: ClassVar[bool] = False
    is_step: ClassVar[bool] = False
    limits: Limits | None = None
    range = (-math.inf, math.inf)

    @property
    def stated_range(self) -> tuple[float, float]:
        """Smallest and largest value of a row: those that the user states, if any."""
        return self.range if self.limits is None else self.limits

    @property
    def key(self) -> str:
        """Text that tells the function from all others."""
        return repr(self)

    def cost(self, levels: Levels) -> Bool:
        """Find the column of the function among those of the problem, the same in each cell."""
        n_cells = levels.of_cells["label"].size
        return np.broadcast_to(levels.classes == self.key, (n_cells, levels.classes.size))

    def arguments(self) -> tuple[list[str], dict[str, str | None]]:
        """Write the stated range of a row."""
        limits = self.limits
        return [], {"range": limits and write_list(list(map(write_number, limits)))}


@dataclass(frozen=True)
class RowLoss(RowFunction):
    """Loss of a prediction.

    Parameters
    ----------
    loss : Name of the loss.
    parameter : The threshold of Huber's loss, or the level of a pinball loss; None for others.
    """

    needs_labels: ClassVar[bool] = True
    range = (0.0, math.inf)

    loss: LossName = field()
    parameter: float | None = None
    limits: Limits | None = None

    def arguments(self) -> tuple[list[str], dict[str, str | None]]:
        """Write the loss, its parameter, and the stated range of a row."""
        given = {}
        if self.parameter is not None:
            given[LOSS_PARAMETERS[self.loss][0]] = write_number(self.parameter)
        return [write_value(self.loss)], {**given, **super().arguments()[1]}


@dataclass(frozen=True)
class Prediction(RowFunction):
    """The prediction itself."""

    is_linear: ClassVar[bool] = True

    limits: Limits | None = None


@dataclass(frozen=True)
class Residual(RowFunction):
    """Target minus prediction."""

    needs_labels: ClassVar[bool] = True
    is_linear: ClassVar[bool] = True

    limits: Limits | None = None


@dataclass(frozen=True)
class Above(RowFunction):
    """Whether the prediction is above a threshold."""

    is_step: ClassVar[bool] = True
    range = (0.0, 1.0)

    threshold: float = field()

    def arguments(self) -> tuple[list[str], dict[str, str | None]]:
        """Write the threshold."""
        return [write_number(self.threshold)], {}


@dataclass(frozen=True)
class Covered(RowFunction):
    """Whether the target is at most the prediction, which is that of an upper quantile."""

    needs_labels: ClassVar[bool] = True
    is_step: ClassVar[bool] = True
    range = (0.0, 1.0)


@document_rate
def mean_loss(
    loss: LossName = "squared",
    *,
    delta: float | None = None,
    alpha: float | None = None,
    range: Limits | None = None,
    on: Any = None,
    weight: Any = None,
    cap: float | None = None,
) -> Rate:
    """Make the mean loss of predictions, ``mean(loss(y, prediction))``.

    Parameters
    ----------
    loss : {"squared", "absolute", "huber", "pinball", "poisson"}, default="squared"
        ``(y - f)^2``; ``|y - f|``; Huber's loss, ``(y - f)^2 / 2`` up to a distance of `delta`
        and ``delta (|y - f| - delta / 2)`` beyond; the pinball loss of the quantile `alpha`,
        ``max(alpha (y - f), (alpha - 1) (y - f))``; the Poisson deviance,
        ``2 (y log(y / f) - y + f)``.
    delta : float, default=None
        Threshold of Huber's loss, in the unit of the target; 1 by default.
    alpha : float, default=None
        Level of the pinball loss, between 0 and 1; 0.5 by default.
    """
    if loss not in LOSSES:
        raise ValueError(f"mean_loss takes one of the losses {list(LOSSES)}, got {loss!r}.")
    parameter = _read_parameter(loss, delta=delta, alpha=alpha)
    limits = read_limits(range)
    if limits is not None and limits[0] < 0.0:
        raise ValueError(
            f"range={range!r} must hold losses, which are not negative: use (0, high)."
        )
    given = [str(loss)]
    if parameter is not None:
        given.append(f"{LOSS_PARAMETERS[loss][0]}={parameter:g}")
    name = _name_mean("mean_loss", given, limits)
    return make_rate(name, RowLoss(loss, parameter, limits), on, weight, cap)


def read_limits(given: Any) -> Limits | None:
    """Read the smallest and largest value of a row."""
    if given is None:
        return None
    is_pair = isinstance(given, (tuple, list)) and len(given) == 2
    if not (is_pair and all(is_number(end) and is_finite(end) for end in given)):
        raise ValueError(
            f"range must hold the smallest and the largest value of a row, two finite numbers "
            f"such as (0, 25), got {given!r}."
        )
    low, high = map(float, given)
    if low >= high:
        raise ValueError(f"range must rise, got {given!r}: give the smaller number first.")
    return low, high


def _name_mean(name: str, arguments: Sequence[str], limits: Limits | None) -> str:
    """Write the name of a mean with its arguments, the stated range of a row among them."""
    stated = [] if limits is None else [f"range=[{limits[0]:g}, {limits[1]:g}]"]
    given = ", ".join([*arguments, *stated])
    return f"{name}({given})" if given else name


def _read_parameter(loss: str, **given: Any) -> float | None:
    """Read the parameter of a loss, and refuse those of others."""
    own, default, end = LOSS_PARAMETERS.get(loss, ("", math.nan, math.nan))
    for of_loss, (name, *_) in LOSS_PARAMETERS.items():
        if given[name] is not None and name != own:
            raise ValueError(
                f"mean_loss({loss!r}, {name}={given[name]!r}): {name} is a parameter of "
                f"{of_loss!r}: leave it out."
            )
    if not own:
        return None
    found = default if given[own] is None else given[own]
    if not (is_number(found) and is_finite(found) and 0.0 < found < end):
        raise ValueError(
            f"{own} must lie strictly between 0 and {end:g}, got {found!r}: the default is "
            f"{default:g}."
        )
    return float(found)


@document_rate
def mean_prediction(
    *, range: Limits | None = None, on: Any = None, weight: Any = None, cap: float | None = None
) -> Rate:
    """Make the mean prediction, ``mean(prediction)``, in the unit of the target.

    Rows need no target: the mean can be taken over a data set without any.
    """
    limits = read_limits(range)
    name = _name_mean("mean_prediction", [], limits)
    return make_rate(name, Prediction(limits), on, weight, cap)


@document_rate
def mean_residual(
    *, range: Limits | None = None, on: Any = None, weight: Any = None, cap: float | None = None
) -> Rate:
    """Make the mean residual, ``mean(y - prediction)``: how much predictions are too low."""
    limits = read_limits(range)
    name = _name_mean("mean_residual", [], limits)
    return make_rate(name, Residual(limits), on, weight, cap)


@document_rate
def share_above(
    threshold: float, *, on: Any = None, weight: Any = None, cap: float | None = None
) -> Rate:
    """Make the share of rows whose prediction is above a threshold, ``P(prediction > c)``.

    Parameters
    ----------
    threshold : float
        The threshold c, in the unit of the target.
    """
    if not (is_number(threshold) and is_finite(threshold)):
        raise ValueError(f"share_above takes a finite threshold, got {threshold!r}.")
    found = float(threshold)
    return make_rate(f"share_above({found:g})", Above(found), on, weight, cap)


@document_rate
def coverage(*, on: Any = None, weight: Any = None, cap: float | None = None) -> Rate:
    """Make the coverage, ``P(y <= prediction)``, of a model that predicts an upper quantile."""
    return make_rate("coverage", Covered(), on, weight, cap)


def row_functions_of(constraints: Iterable[Constraint]) -> tuple[RowFunction, ...]:
    """List the row functions that constraints take means of, each once."""
    events = (term.event for constraint in constraints for term in constraint.terms)
    found = {event.key: event for event in events if isinstance(event, RowFunction)}
    return tuple(found[key] for key in sorted(found))


@document_rate
def calibration_error(bins: int = 10, *, on: Any = None) -> CalibrationError:
    r"""Make the expected calibration error of probabilities, :math:`\sum_b |r_b|`.

    Probabilities of the positive class are put into bins of equal width, and :math:`r_b` is the
    share of a bin's rows times the difference between their share of positives and their mean
    probability ([1]_, eq. (3), for the predicted class). The bins are those of
    ``sklearn.calibration.calibration_curve`` with ``strategy="uniform"``: a probability on an edge
    is in the lower bin. There is an error of two classes only, which is the same for both.

    The error of a sample is larger than that of the population by chance. With n rows and well
    calibrated probabilities it is about :math:`0.8 \sum_b \sqrt{s_b v_b / n}`, where a bin has the
    share :math:`s_b` of the rows, and its labels the variance :math:`v_b`. Intervals allow for
    that (:mod:`gbm_constrained.statistics.intervals`).

    A bound moves the probabilities of the model, and is refused with ``probabilities="shifted"``.

    Parameters
    ----------
    bins : int, default=10
        Number of bins, from 1 to 100.

    Raises
    ------
    ValueError
        If `bins` is something else.

    References
    ----------
    .. [1] Guo, Pleiss, Sun and Weinberger, "On Calibration of Modern Neural Networks", 2017.
    """
    return CalibrationError(bins, as_selectors(on))


@document_rate
def error_rate(*, on: Any = None, weight: Any = None, cap: float | None = None) -> Rate:
    """Make the error rate, the weighted fraction of misclassified rows, ``P(prediction != y)``."""
    return make_rate("error_rate", Misclassified(), on, weight, cap)


@document_rate
def accuracy(*, on: Any = None, weight: Any = None, cap: float | None = None) -> Rate:
    """Make the accuracy, ``P(prediction = y)``."""
    return make_rate("accuracy", Correct(), on, weight, cap)


@document_rate
def selection_rate(
    label: Hashable | None = None, *, on: Any = None, weight: Any = None, cap: float | None = None
) -> Rate:
    """Make the selection rate (coverage), ``P(prediction = 1)``.

    Rows need no label: the rate can be taken over an unlabelled data set.
    """
    return make_class_rate("selection_rate", label, "positive", None, on, weight, cap)


@document_rate
def tpr(
    label: Hashable | None = None, *, on: Any = None, weight: Any = None, cap: float | None = None
) -> Rate:
    """Make the true positive rate, ``P(prediction = 1 | y = 1)``."""
    return make_class_rate("tpr", label, "positive", "positive", on, weight, cap)


@document_rate
def recall(
    label: Hashable | None = None, *, on: Any = None, weight: Any = None, cap: float | None = None
) -> Rate:
    """Make the recall, which is the true positive rate, ``P(prediction = 1 | y = 1)``."""
    return make_class_rate("recall", label, "positive", "positive", on, weight, cap)


@document_rate
def fnr(
    label: Hashable | None = None, *, on: Any = None, weight: Any = None, cap: float | None = None
) -> Rate:
    """Make the miss rate (false negative rate), ``P(prediction != 1 | y = 1)``."""
    return make_class_rate("fnr", label, None, "positive", on, weight, cap)


@document_rate
def fpr(
    label: Hashable | None = None, *, on: Any = None, weight: Any = None, cap: float | None = None
) -> Rate:
    """Make the false positive rate, ``P(prediction = 1 | y != 1)``."""
    return make_class_rate("fpr", label, "positive", "negative", on, weight, cap)


@document_rate
def tnr(
    label: Hashable | None = None, *, on: Any = None, weight: Any = None, cap: float | None = None
) -> Rate:
    """Make the true negative rate, ``P(prediction != 1 | y != 1) = 1 - fpr``."""
    return make_class_rate("tnr", label, "negative", "negative", on, weight, cap)


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
    rows = (Label(to_python_scalar(k)),)
    name = name_with_label("class_error", k)
    return make_rate(name, Misclassified(), on, weight, cap, rows=rows)


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
        return make_rate(name, Predicted(Label(j)), on, weight, cap, rows=(Label(i),))
    if normalize not in ("pred", "all"):
        raise ValueError(f"normalize must be 'true', 'pred' or 'all', got {normalize!r}.")
    joint = make_rate(f"{name}/all", Predicted(Label(j)), on, weight, cap, where=(Label(i),))
    if normalize == "all":
        return joint
    others = make_rate(
        f"{name}/all", Predicted(Label(j)), on, weight, cap, where=(Label(i, excluded=True),)
    )
    return Quotient(name_with_rows(f"{name}/pred", on, weight, cap), joint, joint + others)


@document_rate
def precision(
    label: Hashable | None = None, *, on: Any = None, weight: Any = None, cap: float | None = None
) -> Quotient:
    """Make the precision, ``P(y = 1 | prediction = 1)``."""
    true_positives, false_positives, _ = joint_rates(label, on, weight, cap)
    name = name_with_rows(name_with_label("precision", label), on, weight, cap)
    return Quotient(name, true_positives, true_positives + false_positives)


@document_rate
def f1(
    label: Hashable | None = None, *, on: Any = None, weight: Any = None, cap: float | None = None
) -> Quotient:
    """Make the F1 score, ``2 TP / (2 TP + FP + FN)``."""
    true_positives, false_positives, false_negatives = joint_rates(label, on, weight, cap)
    doubled = 2.0 * true_positives
    name = name_with_rows(name_with_label("f1", label), on, weight, cap)
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
    return make_rate("log_loss", CrossEntropy(), on, weight, cap)


@document_rate
def churn(*, to: Any, on: Any = None, weight: Any = None, cap: float | None = None) -> Rate:
    """Make the churn, the fraction of decisions that differ from those of a deployed model.

    Rows need no label.
    """
    return make_rate("churn", Differs(ReferenceModel.of("to", to)), on, weight, cap)


@document_rate
def wins(*, over: Any, on: Any = None, weight: Any = None, cap: float | None = None) -> Rate:
    """Make the wins, the fraction of correct decisions that another model gets wrong.

    ``wins(over=m) / losses(to=m) >= 2`` bounds the win/loss ratio, and
    ``wins(over=m) / (wins(over=m) + losses(to=m))`` is the win/change ratio of two classes.
    """
    return make_rate(
        "wins",
        Correct(),
        on,
        weight,
        cap,
        where=(ClassifiedBy(ReferenceModel.of("over", over), is_correct=False),),
    )


@document_rate
def losses(*, to: Any, on: Any = None, weight: Any = None, cap: float | None = None) -> Rate:
    """Make the losses, the fraction of wrong decisions that another model gets right."""
    return make_rate(
        "losses",
        Misclassified(),
        on,
        weight,
        cap,
        where=(ClassifiedBy(ReferenceModel.of("to", to), is_correct=True),),
    )


@document_rate
def each(
    rate: Rate | CalibrationError, *, by: str | Sequence[str] | None = None, **options: Any
) -> Each:
    """Bound a rate in every group: ``each(recall(), by="region") >= 0.8``.

    Parameters
    ----------
    rate : Rate or CalibrationError
        The rate of each group.
    """
    return Each(rate=rate, by=read_columns(by), **options)


@document_rate
def gap(
    rate: Rate | Quotient | CalibrationError,
    *,
    by: str | Sequence[str] | None = None,
    reference: Any = None,
    **options: Any,
) -> Gap | GapNorm:
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
