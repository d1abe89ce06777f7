"""Parameters that the estimators add: types and checks.

The libraries stop when a metric no longer improves. Under constraints that may be long before the
constraints are met. ``early_stopping_on`` says how rounds are compared, on the last evaluation set
that is not the training rows:

- ``"metric"``: by the metric, as in the parent.
- ``"constraints"``: by the objective plus the price of the violation that is left
  (:func:`find_merit`). Of equal rounds the last one is best.
- ``"both"``: by the metric among the rounds that leave no violation. Only these rounds are
  counted: training stops when the constraints are met and the metric has not improved in so many
  such rounds, and goes on where they are not met. Where no round meets the constraints, the one of
  the least criterion is kept.

Where the decision of the model is chosen when training is over, rounds are compared under the best
decision on their scores. Scores of few rounds decide hardly any row as a rare class, and so meet
constraints that they no longer meet under that decision.

Of constraints with priorities, those that come first count as a violation, which are given up for
none.

The patience is the parent's own ``early_stopping_rounds``.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar, cast, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, softmax
from sklearn.base import BaseEstimator, clone, is_regressor

from gbm_constrained._messages import join_truncated
from gbm_constrained._typing import Array
from gbm_constrained.constraints import checking
from gbm_constrained.constraints.base import ROUNDING, Constraint, refuse_priorities
from gbm_constrained.constraints.checking import resolve_positive_class
from gbm_constrained.data.cells import Cells
from gbm_constrained.data.fit_data import FitArguments, FitData
from gbm_constrained.data.splits import GivenFolds, check_splitter
from gbm_constrained.data.validation import (
    check_choice,
    check_integer,
    check_share,
    is_finite_number,
)
from gbm_constrained.decision.choose import (
    CRITERIA,
    VIOLATION_PRICE,
    Criterion,
    Prefixes,
    find_at_a_price,
)
from gbm_constrained.decision.evaluation_set import EvaluationSet
from gbm_constrained.decision.guarantees import Guarantee
from gbm_constrained.decision.rules import shift_scores
from gbm_constrained.decision.search import ShiftSearch
from gbm_constrained.decision.violations import PriorityLevels, restate_ratios, standard_errors
from gbm_constrained.metrics.base import Metric
from gbm_constrained.metrics.reading import read_objective
from gbm_constrained.problem.linear_constraints import LinearConstraints, find_first
from gbm_constrained.solvers.abpp import ABPP
from gbm_constrained.solvers.base import (
    SEARCH_OPTIONS,
    Ensemble,
    OracleName,
    Reduction,
    ReductionName,
    SolverMethod,
)
from gbm_constrained.solvers.black_box import AdaptiveSurrogates
from gbm_constrained.solvers.cbpr import CBPR, AutoSolver

EarlyStoppingOn: TypeAlias = Literal["metric", "constraints", "both"]


class RoundMerit(NamedTuple):
    """What an evaluation set says of the model after a round.

    Parameters
    ----------
    criterion : float
        The objective plus the price of the violation that is left.
    violation : float
        Largest violation of the constraints that come first; not positive where they hold.
    """

    criterion: float
    violation: float


def find_merit(rows: EvaluationSet, margin: Array, *, is_shifted: bool) -> RoundMerit:
    """Compare rounds of a classifier by their log loss, and by the violations of their decisions.

    With `is_shifted`, decisions are those of the best shift of the scores, which the returned
    model gets when training is over, and the log loss does not depend on a shift either.
    Multipliers weigh the classes, which would count as a loss otherwise.
    """
    cells, compiled, shifted = rows.cells, rows.compiled, margin
    if is_shifted:
        search = ShiftSearch(margin, cells, compiled, most_splits=1)
        shifted = shift_scores(margin, find_at_a_price(search).value)
    counts = rows.counts(rows.decisions(shifted))
    functionals = np.nan_to_num(rows.functionals(margin, counts))
    violations = compiled.rows_of(functionals) - compiled.b
    told = violations - standard_errors(compiled, counts)
    told = restate_ratios(compiled, cells, told, functionals)
    levels = PriorityLevels.from_constraints(compiled, cells)
    paid = VIOLATION_PRICE * levels.price_rows(np.maximum(told, 0.0))
    largest = violations[find_first(compiled)].max(initial=-np.inf)
    loss = _log_loss(cells, margin, is_shifted=is_shifted)
    return RoundMerit(loss + float(paid), float(largest))


def _log_loss(cells: Cells, margin: Array, *, is_shifted: bool) -> float:
    """Compute the log loss of the labelled rows, of scores or of their best shift.

    The best shift predicts each class as often as it is there, and is approached by the odds
    between the two.
    """
    inside, add = cells.labelled[cells.codes], cells.communicator.sum
    labels = cells.labels[cells.codes[inside]]
    scores = np.asarray(margin[inside], dtype=np.float64)
    if scores.ndim == 1:
        scores = np.column_stack([np.zeros(scores.size), scores])
    own = cells.rows.weight
    weight = cells.class_weight[labels] * (1.0 if own is None else own[inside])
    share = add(np.bincount(labels, weight, cells.classes.size).astype(np.float64))
    seen = share > 0
    for _ in range(10 if is_shifted else 0):
        step = np.log(share[seen] / add(weight @ softmax(scores, axis=1))[seen])
        scores[:, seen] += step
        if np.ptp(step) < 0.01:  # In log-odds.
            break
    loss = logsumexp(scores, axis=1) - scores[np.arange(labels.size), labels]
    return float(add(np.array([weight @ loss]))[0] / share.sum())


@dataclass
class StoppingByConstraints:
    """The best round so far by the criterion.

    Attributes
    ----------
    best : int
        The last round of the least criterion; -1 before the first.
    criterion : float
        The criterion of that round.
    has_met : bool
        Whether any round has met all constraints.
    """

    best: int = field(default=-1, init=False)
    criterion: float = field(default=math.inf, init=False)
    has_met: bool = field(default=False, init=False)

    def update(self, round_: int, merit: RoundMerit) -> bool:
        """Take the merit of a round, and return whether the round met all constraints."""
        if merit.criterion <= self.criterion + ROUNDING:
            self.best, self.criterion = round_, merit.criterion
        is_met = merit.violation <= ROUNDING
        self.has_met |= is_met
        return is_met


@dataclass(eq=False, repr=False)
class CrossFit(BaseEstimator):  # type: ignore[misc]
    """Measure the constraints out of fold, as ``measure_on="crossfit"`` does.

    Boosters are grown in step, each on all but one of the folds, and the model is then trained on
    all rows with the multipliers found.

    Parameters
    ----------
    n_folds : int, default=4
        Number of folds, which are stratified by cell.
    """

    n_folds: int = 4


@dataclass(eq=False, repr=False)
class Holdout(BaseEstimator):  # type: ignore[misc]
    """Measure the constraints on rows that are held out, as ``measure_on="holdout"`` does.

    Parameters
    ----------
    fraction : float, default=None
        Share of the training rows that is held out. By default the last evaluation set given to
        ``fit`` takes their place, which then costs nothing and is no longer unseen; a quarter of
        the rows without one.
    """

    fraction: float | None = None


@dataclass(eq=False, repr=False)
class Forward(BaseEstimator):  # type: ignore[misc]
    """Measure the constraints on later rows, as ``measure_on="forward"`` does.

    Each booster is grown on all periods of time before the one that it is measured on.

    Parameters
    ----------
    n_folds : int, default=4
        Number of periods that are measured; the first one of ``n_folds + 1`` is not.
    """

    n_folds: int = 4


@dataclass(eq=False, repr=False)
class Expected(BaseEstimator):  # type: ignore[misc]
    """Guarantee that the constraints hold in expectation, as ``guarantee="expected"`` does.

    Parameters
    ----------
    fraction : float, default=0.2
        Share of the rows that is set aside for the guarantee.
    """

    fraction: float = 0.2


@dataclass(eq=False, repr=False)
class HighProbability(BaseEstimator):  # type: ignore[misc]
    """Guarantee that the constraints hold with a stated probability, as "high_probability" does.

    Parameters
    ----------
    delta : float, default=0.05
        Probability that the constraints are violated in spite of the guarantee.
    fraction : float, default=0.2
        Share of the rows that is set aside for the guarantee.
    """

    delta: float = 0.05
    fraction: float = 0.2


@dataclass(eq=False, repr=False)
class Margin(BaseEstimator):  # type: ignore[misc]
    """Aim at constraints from inside of their bounds, as ``guarantee="margin"`` does.

    No rows are set aside, and nothing is certified.

    Parameters
    ----------
    standard_errors : float, default=1.0
        Distance from each bound, in standard errors of the value on the rows that measure it.
    """

    standard_errors: float = 1.0


MeasurementName: TypeAlias = Literal["auto", "train", "holdout", "crossfit", "forward"]
MeasureOn: TypeAlias = MeasurementName | CrossFit | Holdout | Forward | Any
MEASUREMENTS: dict[str, Any] = {"holdout": Holdout, "crossfit": CrossFit, "forward": Forward}
GuaranteeOption: TypeAlias = Guarantee | Literal["margin"] | Expected | HighProbability | Margin
GUARANTEES: dict[str, Any] = {
    "expected": Expected,
    "high_probability": HighProbability,
    "margin": Margin,
}
# Places of parameters that classifiers once had themselves.
MOVED = {
    "n_folds": ("measure_on", "CrossFit(n_folds=...)"),
    "cv": ("measure_on", "KFold(...) or another splitter"),
    "holdout_fraction": ("measure_on", "Holdout(fraction=...)"),
    "delta": ("guarantee", "HighProbability(delta=...)"),
    "calibration_fraction": (
        "guarantee",
        "HighProbability(fraction=...) or Expected(fraction=...)",
    ),
    "deterministic": ("solver", "Reduction(deterministic=...) of gbm_constrained.solvers"),
    "ensemble": ("solver", "Reduction(ensemble=...) of gbm_constrained.solvers"),
    "oracle": ("solver", "Reduction(oracle=...) of gbm_constrained.solvers"),
}


def read_measurement(value: Any) -> dict[str, Any]:
    """Read ``measure_on``: a name, an object with options, or the folds of a splitter.

    Raises
    ------
    TypeError, ValueError
        If it is none of these, or an option is out of its range.
    """
    if isinstance(value, Holdout):
        if value.fraction is not None:
            check_share("fraction of Holdout", value.fraction)
        return {"measure_on": "holdout", "holdout_fraction": value.fraction}
    if isinstance(value, (CrossFit, Forward)):
        name = "crossfit" if isinstance(value, CrossFit) else "forward"
        check_integer(f"n_folds of {type(value).__name__}", value.n_folds, 2)
        return {"measure_on": name, "n_folds": value.n_folds}
    if isinstance(value, str):
        check_choice("measure_on", value, get_args(MeasurementName))
        return {"measure_on": value}
    check_splitter(value)
    return {"measure_on": "crossfit", "cv": value}


def read_guarantee(value: Any) -> dict[str, Any]:
    """Read ``guarantee``: None, a name, or an object with options.

    Raises
    ------
    ValueError
        If it is none of these, or an option is out of its range.
    """
    if isinstance(value, str) and value in GUARANTEES:
        value = GUARANTEES[value]()
    if isinstance(value, Margin):
        margin = value.standard_errors
        if not (is_finite_number(margin) and margin >= 0.0):
            raise ValueError(
                f"standard_errors of Margin must be a number from 0 on, got {margin!r}."
            )
        return {"guarantee": None, "standard_errors": float(margin)}
    for name, kind in GUARANTEES.items():
        if isinstance(value, kind):
            options = value.get_params()
            for option, share in options.items():
                check_share(f"{option} of {kind.__name__}", share)
            fraction = options.pop("fraction")
            return {"guarantee": name, "calibration_fraction": fraction, **options}
    check_choice("guarantee", value, (None, *GUARANTEES))
    return {"guarantee": None}


def check_rows(options: Any, arguments: FitArguments) -> None:
    """Refuse rows that do not go with folds of a user.

    Parameters
    ----------
    options : SolverOptions
        The constructor's parameters.
    arguments : FitArguments
        Arguments of ``fit`` about rows.

    Raises
    ------
    ValueError
        If ``time`` or ``measure_on="forward"`` is there without the other, or folds are to be
        made of rows that they cannot be made of.
    """
    is_forward = options.measure_on == "forward"
    if is_forward and arguments.time is None:
        raise ValueError(
            "measure_on='forward' trains on earlier and measures on later rows: give fit time=, a "
            "column of X or of sensitive_features or one value per row, or use "
            "measure_on='crossfit'."
        )
    if arguments.time is not None and not is_forward:
        raise ValueError(
            f"time= orders the rows of measure_on='forward', and measure_on="
            f"{options.measure_on!r} takes them in any order: use measure_on='forward', or leave "
            f"time out and give it to audit."
        )
    if options.cv is None and not is_forward:
        return
    name = "measure_on='forward'" if is_forward else f"measure_on={options.cv!r}"
    if not arguments.machine.communicator.holds_all_rows:
        raise ValueError(
            f"{name} divides the rows by what one machine knows of all of them, and they are on "
            f"several: train on one machine, or use measure_on='crossfit'."
        )
    if arguments.datasets:
        raise ValueError(
            f"{name} divides the training rows, and datasets= {list(arguments.datasets)} has "
            f"others: use measure_on='crossfit', or append their rows with a column that "
            f"says which data set a row is of, and give on= that column."
        )
    if is_forward and arguments.groups is not None:
        raise ValueError(
            "measure_on='forward' divides the rows by time alone, and groups= keeps rows of one "
            "group together, which may have several times: leave groups out, or give measure_on= "
            "a splitter of groups."
        )


def divide_as_given(data: FitData, options: Any) -> FitData:
    """Divide the rows into the folds of a user's splitter or of times, if there are any.

    Parameters
    ----------
    data : FitData
        The rows, without those that are set aside.
    options : SolverOptions
        The constructor's parameters.

    Returns
    -------
    FitData
        The rows with the folds, which have rows of all classes.
    """
    if options.measure_on == "forward":
        assert data.times is not None
        given = GivenFolds.of_times(data.times, options.n_folds)
    elif options.cv is not None:
        user = data.arguments
        given = GivenFolds.of_splitter(options.cv, user.X, user.y, user.groups, data.training)
    else:
        return data
    given.check_classes(data.y, data.classes if data.targets is None else data.classes[:1])
    return replace(data, given_folds=given)


def check_measurable(data: FitData, cells: Cells, compiled: LinearConstraints) -> None:
    """Refuse given folds that hold out no row of a group that a constraint is about."""
    given = data.given_folds
    if given is None:
        return
    is_lost = np.isnan(compiled.on(cells.take(given.held)).constant) & ~np.isnan(compiled.constant)
    lost = [
        str(constraint)
        for constraint, span in zip(compiled.constraints, compiled.spans, strict=True)
        if is_lost[span].any()
    ]
    if lost:
        raise ValueError(
            f"{given.name} holds out no row that a rate of {join_truncated(lost, 3)} is taken "
            f"over: hold out other rows, or leave out or merge groups that have none."
        )


# Parameters of classifiers and of regressors, and what each group gets by them.
GROUP_PARAMETERS = {"group_thresholds": "threshold", "group_shifts": "shift"}


def _check_groups(constraints: Sequence[Constraint], own: Mapping[str, Any]) -> None:
    """Refuse decisions by groups where there are none, or that would need another guarantee."""
    for parameter in GROUP_PARAMETERS.keys() & own.keys():
        if not isinstance(own[parameter], bool):
            raise ValueError(f"{parameter} must be True or False, got {own[parameter]!r}.")
        if own[parameter] and not constraints:
            raise ValueError(
                f"{parameter}=True decides by the columns that constraints group by, and there "
                f"are no constraints: give some, or use {parameter}=False."
            )
    if own.get("group_shifts") and own.get("guarantee") is not None:
        raise ValueError(
            f"group_shifts=True chooses a shift of each group, and "
            f"guarantee={own['guarantee']!r} certifies one scale and shift of all rows: "
            f"leave one of them out."
        )


def _check_priorities(constraints: Sequence[Constraint], own: Mapping[str, Any]) -> None:
    """Refuse priorities where no threshold on unseen rows decides what is given up.

    `own` are the constructor parameters of the estimator; linear models lack most.
    """
    if "measure_on" not in own:
        none = "a linear model has no held-out rows that decide what is given up"
        refuse_priorities(constraints, f"{none}: leave with_priority out, or use a booster")
    if own.get("measure_on") == "train":
        refuse_priorities(constraints, no_held_out_rows("measure_on='train'"))
    if own.get("group_thresholds", False):
        all_or_none = "group_thresholds=True meets all constraints or none"
        remedy = "leave it out, or leave with_priority out"
        refuse_priorities(constraints, f"{all_or_none}: {remedy}")
    if len({constraint.priority for constraint in constraints}) < 2:
        return
    for constraint in constraints:
        if constraint.is_of_scores:
            raise ValueError(
                f"constraints: {constraint} is about scores, and constraints with priorities "
                f"are met or given up by a threshold, which changes no score: leave "
                f"with_priority out, or bound rates of decisions alone."
            )


def no_held_out_rows(where: str) -> str:
    """Say why priorities need held-out rows, and what else can be done."""
    return (
        f"what is given up is decided on rows that the trees have not seen, which {where} does "
        f"not have: use measure_on='crossfit' or 'holdout', or leave with_priority out"
    )


Method = TypeVar("Method", bound=Callable[..., Any])
Iterate: TypeAlias = Literal["last", "best", "ergodic", "randomized"]
SolverName: TypeAlias = Literal[ReductionName, "abpp", "cbpr", "threshold"]
METHODS: dict[str, type[SolverMethod]] = {"auto": AutoSolver, "abpp": ABPP, "cbpr": CBPR}
Probabilities: TypeAlias = Literal["shifted", "calibrated"]
OnInfeasible: TypeAlias = Literal["warn", "raise"]
CHOICES: dict[str, Any] = {
    "iterate": Iterate,
    "probabilities": Probabilities,
    "on_infeasible": OnInfeasible,
    "early_stopping_on": EarlyStoppingOn,
}
LINEAR_SOLVER = "constraint_solver"  # The linear model's parent has a `solver` of its own.


@dataclass(frozen=True)
class SolverOptions:
    """The constructor parameters that the drop-in estimators add, read and checked.

    Names of measurements and guarantees stand beside the options of their objects. Estimators take
    the descriptions of their parameters from here.

    Parameters
    ----------
    constraints : Constraint, str or sequence of these, default=None
        Such as ``[fnr() <= 0.05, "fpr <= 0.1"]`` (:mod:`gbm_constrained.constraints.rates`). With
        none, the parent's own ``fit`` is called and nothing else happens.
    positive : label, default=None
        The positive class of all rates that name none: with ``positive="fraud"`` the constraint
        ``fnr() <= 0.05`` is ``fnr("fraud") <= 0.05``. By default the last of two sorted labels.
        Of more classes, it is one against all others. ``classes_`` and ``predict_proba`` keep the
        parent's order.
    iterate : {"last", "best", "randomized"}, default="last"
        Which iterate is returned: the last one (where constraints are measured on training rows
        and it violates them, the last of the later half that meets them, or violates them
        least); the one of smallest error among those that meet all constraints, on the rows that
        these are measured on; or a
        distribution over prefixes of the ensemble that meets the constraints in the mean, or
        nearest to that with a warning (``prefixes_``), from which ``predict(...,
        random_state=)`` draws one for each row.
    solver : {"auto", "abpp", "cbpr", "threshold"} or object, default="auto"
        The outer loop: a name, or an object with its own options such as
        ``ABPP(rounds_per_iteration=1)`` of :mod:`gbm_constrained.solvers`, which ``set_params``
        reaches as ``solver__rounds_per_iteration``. "auto" takes CBPR for
        differences of mean losses, such as ``gap(log_loss(), by=...)``, which are not convex, and
        ABPP for everything else.
        "threshold" takes none: the library's own boosters, whose threshold (or class biases) is
        moved on held-out rows until the constraints are met. Constraints on labels and decisions
        alone, such as ``fnr() <= 0.05``, may do better without multipliers; "auto" compares both
        for those, where boosters are grown on part of the rows; see
        :mod:`gbm_constrained.fit.cross_fit`. With a black box as the objective, "auto" or
        :class:`~gbm_constrained.solvers.AdaptiveSurrogates` with other options.
    measure_on : {"auto", "train", "holdout", "crossfit", "forward"}, object or splitter, \
            default="auto"
        The rows whose rates move the multipliers; see :mod:`gbm_constrained.fit.fit`.
        "crossfit" grows four boosters in step, each without one fold, "holdout" one, and the model
        is then trained on all rows with the multipliers found. "auto" takes a holdout of half of
        the rows if every rate is taken over 25,000 rows, and two folds if not, or four for
        constraints on another model's decisions; "train" in continued training, where neither is
        possible. "forward" needs `time` in ``fit``: it grows each booster on all periods before
        the one that it is measured on. Rows of a guarantee are then the latest.
        ``CrossFit(n_folds=3)``, ``Holdout(0.25)`` and ``Forward(n_folds=3)`` have options. A
        splitter of scikit-learn, which gets `X`, `y` and `groups` of ``fit``, or a list of pairs
        (train, test) of positions of rows, makes the folds of "crossfit". Each row is held out
        once at most; rows that are never held out do not measure the constraints.
    guarantee : {None, "expected", "high_probability", "margin"} or object, default=None
        Guarantee for new rows, by a fifth of the rows that is set aside for it; see
        :mod:`gbm_constrained.decision.guarantees`. ``HighProbability(delta=0.05, fraction=0.2)``
        and ``Expected(fraction=0.2)`` have options. ``"margin"`` sets no rows aside: constraints
        are aimed at from a standard error inside of their bounds, and ``Margin(2.0)`` from two.
    probabilities : {"shifted", "calibrated"}, default="shifted"
        Whether the shift of the decisions is folded into the model, or kept beside it
        (``shift_``), where ``predict`` applies it and probabilities stay as trained. Bounds of
        ``calibration_error()`` need "calibrated".
    on_infeasible : {"warn", "raise"}, default="warn"
        Whether constraints that cannot be met raise a warning or an error, once the model is
        trained. "raise" is refused where no conflict is looked for: on training rows, and for
        averages of models.
    early_stopping_on : {"metric", "constraints", "both"}, default="metric"
        Criterion of early stopping, after the parent's ``early_stopping_rounds``: the parent's
        metric; the log loss plus the price of the constraints on the last evaluation set; or the
        metric among the rounds that meet the constraints. The last two look at each round under
        the best threshold on its scores, where the model gets a threshold in the end. See
        :mod:`gbm_constrained.fit.options`.
    select : {"error", "auc"}, default="error"
        What is best among the prefixes that meet the constraints, with ``iterate="best"``: the
        smallest error on held-out rows, or the largest AUC there. "auc" is for scores of two
        classes that are used without a threshold, and needs held-out rows.
    group_thresholds : bool, default=False
        Whether the final decision uses the group, by a threshold for each group of the columns
        that constraints group by. These must be columns of X. The thresholds are one more tree of
        the model (``group_shifts_``), and chosen on held-out rows. A warning says once that
        decisions by group are unlawful in places; see
        :mod:`gbm_constrained.decision.groups`.
    maximize, minimize : Metric, Rate, Quotient or str, default=None
        The objective of the decisions, such as ``maximize=g_mean()``, ``maximize=recall()`` or
        ``minimize=error_rate()`` (see :mod:`gbm_constrained.metrics`); at most one of them. The
        boosters are the library's own, and decision rules on their probabilities are optimised
        under the constraints on rows that the boosters have not seen. A
        :class:`~gbm_constrained.metrics.BlackBox` is a function to call: the weights of the
        booster's trees are optimised for it, on rows that ``fit`` is given or holds out.
        ``solver=Reduction(...)`` has options of the search, such as whether boosters take part in
        it (`oracle`), whether the boosters of the folds are merged (`ensemble`), and whether one
        rule is returned (`deterministic`).
    """

    constraints: tuple[Constraint, ...]
    positive: Hashable | None = None
    iterate: Iterate = "last"
    measure_on: MeasurementName = "train"
    n_folds: int = 4
    cv: Any = None
    holdout_fraction: float | None = None
    guarantee: Guarantee = None
    delta: float = 0.05
    calibration_fraction: float = 0.2
    standard_errors: float = 0.0
    probabilities: Probabilities = "shifted"
    on_infeasible: OnInfeasible = "warn"
    early_stopping_on: EarlyStoppingOn = "metric"
    select: Criterion = "error"
    group_thresholds: bool = False
    group_shifts: bool = False
    maximize: Any = None
    minimize: Any = None
    deterministic: bool | None = None
    ensemble: Ensemble = None
    oracle: OracleName = "plug_in"
    solver: SolverName = "auto"
    method: SolverMethod = field(default_factory=AutoSolver)
    reduction: Reduction = field(default_factory=Reduction)

    @classmethod
    def of(cls, estimator: Any) -> SolverOptions:
        """Read and check the options of an estimator."""
        constraints = checking.check_constraints(estimator.constraints)
        # The linear classifier is measured on training rows, as its few parameters do not
        # memorise them, and its parent has a parameter called solver.
        # A regressor has no positive class, and scikit-learn's Ridge positive coefficients.
        predicts_numbers = is_regressor(estimator)
        checking.check_task(constraints, predicts_numbers=predicts_numbers)
        names = set(SOLVER_PARAMETERS) - {"constraints", "solver"}
        asked = names - {"positive"} if predicts_numbers else names
        own = {name: getattr(estimator, name) for name in asked if hasattr(estimator, name)}
        if "measure_on" in own:
            own |= read_measurement(own["measure_on"])
        if "guarantee" in own:
            own |= read_guarantee(own["guarantee"])
        name = solver_parameter(estimator)
        metric = read_objective(own.get("maximize"), own.get("minimize"))
        if metric is not None:
            solver, reduction = getattr(estimator, name), Reduction()
            if isinstance(solver, Reduction):
                reduction = solver
                reduction.check()
                solver = reduction.name
                own |= {key: getattr(reduction, key) for key in SEARCH_OPTIONS}
            check_choice(name, solver, get_args(ReductionName))
            parameter = "minimize" if own["maximize"] is None else "maximize"
            reason = f"{parameter}={metric} chooses decisions, which do not change scores"
            checking.check_decisions(constraints, parameter, reason)
            options = cls(constraints, solver=solver, reduction=reduction, **own)
            return options._check_of_metric(str(metric))
        checking.check_linear(constraints)
        chosen, method = _find_method(name, getattr(estimator, name))
        options = cls(constraints, solver=chosen, method=method, **own)
        for parameter, choices in CHOICES.items():
            check_choice(parameter, getattr(options, parameter), get_args(choices))
        options._check_select()
        _check_groups(constraints, own)
        _check_priorities(constraints, own)
        for constraint in constraints:
            # A linear model has no shift, and no such option.
            if "residual" in constraint.kinds and own.get("probabilities") == "shifted":
                raise ValueError(
                    f"{constraint} bounds probabilities, and probabilities='shifted' moves them "
                    f"by the shift of the threshold: use probabilities='calibrated', which keeps "
                    f"the shift beside the model, or leave the constraint out."
                )
        options._check_iterate(name)
        return options

    @property
    def group_parameter(self) -> str | None:
        """Name of the parameter by which groups may decide; None if they may not."""
        return next((name for name in GROUP_PARAMETERS if getattr(self, name)), None)

    @property
    def divides_in_halves(self) -> bool:
        """Whether fold boosters are grown on half of the rows, as ``"auto"`` grows them.

        Four folds cost twice as much as two, and choose no better (docs/evidence/cost.md).
        Boosters of half of the rows are too far from the decisions of another model to say how
        near to them the model of all rows comes. Nor do they make a model when they are merged.
        """
        terms = (term for constraint in self.constraints for term in constraint.terms)
        is_relative = any(term.reference_models for term in terms)
        return self.measure_on == "auto" and self.ensemble is None and not is_relative

    @property
    def guarantee_asked(self) -> Any:
        """The guarantee or margin that was asked for, as messages name it; None without any."""
        return Margin(self.standard_errors) if self.standard_errors else self.guarantee

    def _check_select(self) -> None:
        """Refuse a criterion of prefixes where no held-out rows choose among them."""
        check_choice("select", self.select, CRITERIA)
        if self.select == "error":
            return
        if self.iterate != "best" or self.measure_on == "train" or self.guarantee is not None:
            raise ValueError(
                f"select={self.select!r} chooses among the prefixes that meet the constraints on "
                f"held-out rows, and needs iterate='best', no guarantee, and another measure_on "
                f"than 'train': got iterate={self.iterate!r}, measure_on={self.measure_on!r}, "
                f"guarantee={self.guarantee!r}."
            )

    def _check_iterate(self, solver_parameter: str) -> None:
        """Refuse what does not go with a moved threshold, or with the mean of several models."""
        iterate, parameter = self.iterate, self.group_parameter
        is_one = iterate in ("last", "best")
        for other, fits, choices in (
            ("measure_on", self.measure_on != "train", "'auto', 'holdout' or 'crossfit'"),
            ("iterate", is_one, "'last' or 'best'"),
        ):
            if self.solver == "threshold" and not fits:
                raise ValueError(
                    f"{solver_parameter}='threshold' moves the threshold of a model that was "
                    f"trained without multipliers, on rows that its trees have not seen, and "
                    f"{other}={getattr(self, other)!r} has no place there: use {choices}, or "
                    f"another solver."
                )
        if is_one:
            return
        if iterate == "randomized" and self.method.outlier_clip is not None:
            raise ValueError(
                "iterate='randomized' weighs prefixes by losses in full, and outlier_clip clips "
                "them: leave outlier_clip out, or use another iterate."
            )
        mean, last = f"iterate={iterate!r} is a mean of several", "use iterate='last' or 'best'"
        common = f"{mean} models, which have no common threshold: {last}"
        refuse_priorities(self.constraints, common)
        if parameter is not None:
            gets = GROUP_PARAMETERS[parameter]
            raise ValueError(
                f"{parameter}=True gives one model a {gets} for each group, and {mean}: {last}."
            )
        if self.guarantee_asked is not None:
            given = f"guarantee={self.guarantee_asked!r} is given"
            raise ValueError(f"{given} for one prefix and threshold, and {mean}: {last}.")
        if self.on_infeasible == "raise":
            raise ValueError(
                f"on_infeasible='raise' assesses one prefix and threshold, and {mean}: {last}, or "
                f"on_infeasible='warn'."
            )

    def prefixes(self, n_rounds: int) -> Prefixes:
        """List the prefixes of an ensemble of so many rounds that a choice may return."""
        is_free = self.iterate == "best"
        return Prefixes(n_rounds, self.rounds_per_iteration, is_free, self.select)

    @property
    def metric(self) -> Metric | None:
        """The objective, if it is a metric of the confusion matrix."""
        return read_objective(self.maximize, self.minimize)

    @property
    def metric_parameter(self) -> str:
        """Name of the parameter that takes the metric."""
        return "minimize" if self.maximize is None else "maximize"

    def without_metric(self) -> SolverOptions:
        """Give the options of a fit under the same constraints that has no metric."""
        return replace(
            self, maximize=None, minimize=None, deterministic=None, oracle="plug_in",
            solver="auto", method=AutoSolver(), reduction=Reduction(),
        )  # fmt: skip

    def without_multipliers(self, booster: str) -> SolverOptions:
        """Check what constraints allow where a booster takes no gradients.

        Parameters
        ----------
        booster : str
            The parameter that names the booster, with its value.
        """
        if self.solver not in ("auto", "threshold"):
            raise ValueError(
                f"solver={self.solver!r} moves multipliers in the gradients of a booster, and "
                f"{booster} takes no gradients but its own: use solver='auto'."
            )
        reason = f"{booster} takes no gradients but its own, so that decisions alone are chosen"
        checking.check_decisions(self.constraints, booster.partition("=")[0], reason)
        return replace(self, solver="auto")._check_of_metric(f"the error rate of {booster}")

    def _check_of_metric(self, metric: str) -> SolverOptions:
        """Check what a metric as the objective allows."""
        for name in ("on_infeasible", "probabilities"):
            check_choice(name, getattr(self, name), get_args(CHOICES[name]))
        if self.ensemble is not None and self.measure_on not in ("auto", "crossfit"):
            raise ValueError(
                f"Reduction(ensemble={self.ensemble!r}) returns the boosters of the folds, and "
                f"measure_on={self.measure_on!r} grows none: use measure_on='crossfit'."
            )
        if self.standard_errors and self.measure_on == "train":
            raise ValueError(
                f"guarantee={self.guarantee_asked!r} needs rows that the trees have not seen, and "
                f"measure_on='train' has none: use measure_on='crossfit' or 'holdout'."
            )
        for name, default in (
            ("iterate", "last"), ("guarantee", None), ("early_stopping_on", "metric"),
            ("select", "error"), ("group_thresholds", False),
        ):  # fmt: skip
            if (value := getattr(self, name)) != default:
                raise ValueError(
                    f"{name}={value!r} has no meaning for decisions that optimise {metric}: leave "
                    f"it out."
                )
        return self

    def with_classes(self, classes: NDArray[np.generic]) -> SolverOptions:
        """Name the classes that constraints leave open, given the sorted labels."""
        if self.select == "auc" and classes.size > 2:
            raise ValueError(
                f"select='auc' ranks the scores of two classes, and y has {classes.size}: use "
                f"select='error'."
            )
        self.method.check_classes(classes.size)
        named = resolve_positive_class(self.constraints, classes, self.positive)
        return replace(self, constraints=named)

    @property
    def rounds_per_iteration(self) -> int:
        """Boosting rounds in each outer iteration."""
        return self.method.rounds_per_iteration

    def with_abpp(self) -> SolverOptions:
        """Replace the method that "auto" would choose by ABPP."""
        assert isinstance(self.method, AutoSolver)
        return replace(self, solver="abpp", method=self.method.abpp)


# Parameters of the constructors, in their order.
SOLVER_PARAMETERS = (
    "constraints", "positive", "iterate", "measure_on", "guarantee", "probabilities",
    "on_infeasible", "early_stopping_on", "select", "group_thresholds", "group_shifts",
    "maximize", "minimize", "solver",
)  # fmt: skip
# Options of solvers, which are no parameters of the classifiers.
SOLVER_OPTIONS = tuple(AutoSolver.__dataclass_fields__)


def drop_solver_parameters(params: dict[str, Any]) -> None:
    """Remove the parameters that the library does not know, in place."""
    for name in [*params]:
        if name.partition("__")[0] in SOLVER_PARAMETERS:
            del params[name]


def solver_parameter(estimator: Any) -> str:
    """Name the parameter that takes the solver."""
    is_linear = LINEAR_SOLVER in type(estimator)._get_param_names()
    return LINEAR_SOLVER if is_linear else "solver"


def _find_method(name: str, solver: Any) -> tuple[SolverName, SolverMethod]:
    """Find the method of a name or an object, and check its options."""
    is_exact = name == LINEAR_SOLVER
    if isinstance(solver, SolverMethod):
        found = clone(solver)
        found.check()
        chosen: Any = next(key for key, kind in METHODS.items() if isinstance(solver, kind))
    else:
        choices = [*METHODS] if is_exact else [*METHODS, "threshold"]
        if isinstance(solver, Reduction) or solver in get_args(ReductionName)[1:]:
            raise ValueError(
                f"{name}={solver!r} optimises a metric of the confusion matrix, and the objective "
                f"is the classifier's own: give maximize= or minimize=, or one of {choices}."
            )
        if not isinstance(solver, str) or solver not in choices:
            raise ValueError(
                f"{name} must be one of {choices}, or an object such as ABPP(tau=2.0), got "
                f"{solver!r}."
            )
        chosen, found = solver, METHODS.get(solver, AutoSolver)()
    if is_exact:  # An exact learner solves each subproblem in one step.
        found.rounds_per_iteration = 1
    return chosen, found


def refuse_moved_parameters(estimator: Any, names: Iterable[str]) -> None:
    """Refuse parameters that have another place, and name it."""
    kind, solver = type(estimator).__name__, solver_parameter(estimator)
    own = type(estimator)._get_param_names()
    known = (*own, *getattr(estimator, "_names_of_library", ()))
    for name in names:
        place, given = MOVED.get(name, ("", ""))
        place = solver if place == "solver" else place
        if name.partition("__")[0] == LINEAR_SOLVER != solver:
            there = name.replace(LINEAR_SOLVER, solver)
            where = f", which ConstrainedLogisticRegression has: give {there}="
        elif name in SEARCH_OPTIONS and name not in known and "maximize" not in own:
            where = (
                ", which is about metrics of the confusion matrix, as classifiers have them: "
                "leave it out"
            )
        elif place in own and name not in known:
            where = f", which has another place: give {place}={given}"
        elif name in SOLVER_OPTIONS:
            example = f"{solver}=ABPP({name}=...), of gbm_constrained.solvers"
            where = f", which is an option of the solver: give {example}"
        elif name == "error_form":
            as_losses = "constraints=as_log_loss(constraints, n_classes)"
            where = f": bounds on errors become bounds on losses by {as_losses}"
        else:
            continue
        raise TypeError(f"{kind} has no parameter {name!r}{where}.")


def with_known_parameters(method: Method) -> Method:
    """Let a constructor, or ``fit``, name what an unknown argument may have meant."""
    names = list(inspect.signature(method).parameters)[1:]

    @functools.wraps(method)
    def checked(self: Any, *args: Any, **kwargs: Any) -> Any:
        unknown = [name for name in kwargs if name not in names]
        refuse_moved_parameters(self, unknown)
        for name in unknown:
            kind, near = type(self).__name__, get_close_matches(name, names, 1, cutoff=0.7)
            remedy = f"did you mean {near[0]}=?" if near else f"it takes {', '.join(names)}."
            if method.__name__ == "fit":
                if name in self._get_param_names():
                    remedy = f"give it to the constructor, as in {kind}({name}=...)."
                kind = f"{kind}.fit"
            raise TypeError(f"{kind} has no parameter {name!r}: {remedy}")
        return method(self, *args, **kwargs)

    return cast(Method, checked)


def set_solver_options(estimator: Any, params: dict[str, Any]) -> dict[str, Any]:
    """Set options of an estimator's objects, such as ``solver__tau``, and return the others.

    `params` are those that were given to ``set_params``. A name in the place of an object, such as
    ``measure_on="crossfit"``, has no options.
    """
    refuse_moved_parameters(estimator, params)
    for name, kinds in (
        (solver_parameter(estimator), (ABPP, CBPR, Reduction)),
        ("measure_on", (CrossFit, Holdout)),
        ("guarantee", (HighProbability, Margin)),
    ):
        nested = {key: value for key, value in params.items() if key.startswith(f"{name}__")}
        if not nested or name not in estimator._get_param_names():
            continue  # The parent refuses a parameter that it does not have.
        holder = params.get(name, getattr(estimator, name))
        options = {key.removeprefix(f"{name}__"): value for key, value in nested.items()}
        if isinstance(holder, (AdaptiveSurrogates, Reduction)):
            params = {**params, name: replace(holder, **options)}
        elif not hasattr(holder, "set_params"):
            option = next(iter(options))
            kind = next((k for k in kinds if option in k.__dataclass_fields__), kinds[0])
            raise TypeError(
                f"{name}={holder!r} has no options that could be set: give an object, "
                f"{name}={kind.__name__}({option}=...)."
            )
        else:
            holder.set_params(**options)
        params = {key: value for key, value in params.items() if key not in nested}
    return params


def start_from(estimator: Any, multipliers: Any) -> None:
    """Let a classifier start from the multipliers of another fit."""
    name = solver_parameter(estimator)
    _, method = _find_method(name, getattr(estimator, name))
    estimator.set_params(**{name: method.set_params(initial_multipliers=multipliers)})


def check_spelling(estimator: Any, others: Iterable[str], known: Collection[str] = ()) -> None:
    """Refuse a misspelt parameter of ours, which the library would ignore.

    `others` are names that the constructor hands on to the library, and `known` those of the
    library that are spelt like one of ours. Names inside a parameter, such as
    ``constraints__bound``, are refused as well: constraints are set whole.
    """
    own, names = type(estimator)._get_param_names(), (*SOLVER_PARAMETERS, *SOLVER_OPTIONS)
    for name in others:
        unknown = f"{type(estimator).__name__} has no parameter {name!r}"
        if name in SOLVER_PARAMETERS and name not in (*own, *known):
            kind = "regressors" if name == "group_shifts" else "classifiers"
            raise TypeError(f"{unknown}, which is one of {kind}: leave it out.")
        near = get_close_matches(name.partition("__")[0], names, 1, cutoff=0.8)
        if near and name not in (*near, *known):  # LightGBM's set_params hands on all names
            meant = f"solver=ABPP({near[0]}=...)" if near[0] in SOLVER_OPTIONS else f"{near[0]}="
            raise TypeError(f"{unknown}: did you mean {meant}?")


def check_number(name: str, value: Any) -> float:
    """Read a number that a library takes as text, too."""
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a number, got {value!r}.") from None
