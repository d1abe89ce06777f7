"""Scores of largest AUC under constraints on pair rates, by the level-set method."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from scipy import sparse
from scipy.special import expit, logit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import (
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from gbm_constrained._findings import issue_warning
from gbm_constrained._typing import Array, Bool, Codes, Float
from gbm_constrained.constraints.base import ROUNDING, Constraint, refuse_priorities
from gbm_constrained.constraints.checking import (
    check_constraints,
    check_linear,
    resolve_positive_class,
)
from gbm_constrained.data.fit_data import encode
from gbm_constrained.data.rows import Rows
from gbm_constrained.data.splits import parts_by_cell
from gbm_constrained.data.validation import (
    check_choice,
    check_integer,
    check_labels,
    check_share,
    check_weight,
    columns_of,
    copy_random_state,
    is_finite_number,
)
from gbm_constrained.fit.fit import weight_of_rows
from gbm_constrained.fit.options import with_known_parameters
from gbm_constrained.linear_model.pair_sets import (
    MAX_VALIDATION_ROWS,
    HeldRows,
    PairSample,
    PairSets,
    Reservoir,
    RowStream,
    share_of_positives,
)
from gbm_constrained.solvers.base import check_positive
from gbm_constrained.solvers.level_set import (
    POSITIVES,
    DualGeometry,
    Level,
    LevelSchedule,
    LevelSetSearch,
    PairRule,
    Primal,
    SaddleProblem,
    ScoreFunction,
    SquareSurrogate,
    density_ratios,
    find_optimum,
    follow_levels,
    follow_proximal_points,
    shuffled_batches,
)

# Norm that features of the hidden units have on average. With a norm of one the units would hardly
# move while their output weights do; twice the norm changes little.
INPUT_NORM = 8.0


def is_sparse(X: Any) -> bool:
    """Whether features are a sparse matrix or array."""
    return bool(sparse.issparse(X))


@dataclass(frozen=True, eq=False)
class Standardiser:
    """Features minus a typical row, each divided by a scale of its own.

    Steps then do not depend on the units of any feature. Sparse features stay sparse.

    Parameters
    ----------
    centre : (n_features,). A typical row.
    scale : (n_features,). Divisors of the features.
    """

    centre: Float
    scale: Float

    @classmethod
    def of(cls, X: Any, weight: Float | None = None) -> Standardiser:
        """Find mean and standard deviation of each feature; the divisor of a constant is one."""
        found = StandardScaler(with_mean=not is_sparse(X)).fit(X, sample_weight=weight)
        return cls(np.asarray(found.mean_), np.asarray(found.scale_))

    def divide(self, X: Any) -> Any:
        """Divide the features by their scales, and centre those that are not sparse."""
        if is_sparse(X):
            return X.multiply(1 / self.scale).tocsr()
        return (X - self.centre) / self.scale

    def multiply(self, X: Any, weights: Float) -> Float:
        """Multiply the standardised rows by weights of shape (n_features,) or (n_features, k)."""
        weights = (weights.T / self.scale).T
        if is_sparse(X):
            return np.asarray(X @ weights - self.centre @ weights)
        return np.asarray((X - self.centre) @ weights)

    def pull_back(self, X: Any, rows: Float) -> Float:
        """Multiply the transposed standardised rows by numbers of shape (n,) or (n, k)."""
        if is_sparse(X):
            found = X.T @ rows - np.multiply.outer(self.centre, rows.sum(axis=0))
        else:
            found = (X - self.centre).T @ rows
        return np.asarray((found.T / self.scale).T)

    def squared_norms(self, X: Any) -> Float:
        """Compute the squared norm of each standardised row; (n,)."""
        if is_sparse(X):
            slope, squares = self.centre / self.scale**2, 1 / self.scale**2
            return np.asarray(X.multiply(X) @ squares - 2 * (X @ slope) + slope @ self.centre)
        return np.asarray((self.divide(X) ** 2).sum(axis=1))


@dataclass(frozen=True, eq=False)
class LinearScore:
    """The score ``(x - centre) / scale . w``.

    An order of rows does not depend on the centre; steps of w and of a constant do not mix there.

    Parameters
    ----------
    features : Centre and scale.
    """

    features: Standardiser

    @classmethod
    def of(cls, X: Any, weight: Float | None = None) -> LinearScore:
        """Standardise the features by some rows."""
        return cls(Standardiser.of(X, weight))

    def start(self, random_state: np.random.RandomState) -> Float:
        """Make the parameters of a score of zero."""
        return np.zeros(self.features.centre.size)

    def scores(self, parameters: Float, X: Any) -> Float:
        """Compute the score of each row; (n,)."""
        return self.features.multiply(X, parameters)

    def pull_back(self, parameters: Float, X: Any, rows: Float) -> Float:
        """Compute the sum over rows of ``rows[i]`` times the gradient of score i."""
        return self.features.pull_back(X, rows)

    def mean_squared_gradient(self, parameters: Float, X: Any) -> float:
        """Compute the mean over rows of the squared norm of the score's gradient."""
        return float(self.features.squared_norms(X).mean())


@dataclass(frozen=True, eq=False)
class SigmoidNetwork:
    """The score ``sum_j v_j sigmoid((x - centre) / scale . w_j + b_j)`` of sigmoid units.

    Parameters
    ----------
    features : Centre and scale.
    hidden : Number of units.
    """

    features: Standardiser
    hidden: int

    @classmethod
    def of(cls, X: Any, hidden: int, weight: Float | None = None) -> SigmoidNetwork:
        """Standardise the features by some rows."""
        features = Standardiser.of(X, weight)
        norm = float(np.sqrt(features.squared_norms(X).mean()))
        factor = norm / INPUT_NORM if norm > 0 else 1.0
        return cls(Standardiser(features.centre, features.scale * factor), hidden)

    def unpack(self, parameters: Float) -> tuple[Float, Float, Float]:
        """Split the parameters into w (n_features, hidden), b (hidden,) and v (hidden,)."""
        first = parameters[: -2 * self.hidden].reshape(-1, self.hidden)
        return first, parameters[-2 * self.hidden : -self.hidden], parameters[-self.hidden :]

    def start(self, random_state: np.random.RandomState) -> Float:
        """Draw units at random, with output weights of zero: a score of zero, which is feasible.

        Equal units would stay equal for ever.
        """
        d = self.features.centre.size
        first = random_state.normal(size=d * self.hidden) / INPUT_NORM
        return np.concatenate([first, np.zeros(2 * self.hidden)])

    def scores(self, parameters: Float, X: Any) -> Float:
        """Compute the score of each row; (n,)."""
        return np.asarray(self._units(parameters, X) @ self.unpack(parameters)[2])

    def pull_back(self, parameters: Float, X: Any, rows: Float) -> Float:
        """Compute the sum over rows of ``rows[i]`` times the gradient of score i."""
        units = self._units(parameters, X)
        inner = rows[:, None] * units * (1 - units) * self.unpack(parameters)[2]
        by_first = self.features.pull_back(X, inner)
        return np.concatenate([by_first.ravel(), inner.sum(axis=0), rows @ units])

    def mean_squared_gradient(self, parameters: Float, X: Any) -> float:
        """Compute the mean over rows of the squared norm of the score's gradient."""
        units = self._units(parameters, X)
        inner = (units * (1 - units) * self.unpack(parameters)[2]) ** 2
        squares = self.features.squared_norms(X)[:, None] + 1
        return float(((units**2).sum(axis=1) + (inner * squares).sum(axis=1)).mean())

    def _units(self, parameters: Float, X: Any) -> Float:
        """Compute the output of each unit; (n, hidden)."""
        first, bias, _ = self.unpack(parameters)
        return np.asarray(expit(self.features.multiply(X, first) + bias))


LEAST_SLOPE = 1e-3  # Least slope of log-odds in standardised scores, so that they keep the order.


class Measured(NamedTuple):
    """AUC and constraints on some rows.

    Parameters
    ----------
    auc : AUC of all rows.
    values : (n_constraints,). What each constraint bounds.
    is_known : (n_constraints,). Whether all pair rates of a constraint have a value on the rows.
    violation : Largest violation of a constraint that has a value on the rows.
    """

    auc: float
    values: Float
    is_known: Bool
    violation: float


@dataclass(frozen=True, eq=False)
class LevelTable:
    """Levels of a search, measured on the rows that choose one of them.

    Parameters
    ----------
    levels : The levels.
    on_validation : What each level is worth on validation rows.
    unit : What the objective and the limits of the levels are divided by.
    chosen : Position of the chosen level: the one of largest AUC among those that meet all
        constraints there, or else of least violation. Constraints without a value count as not
        met. Where the AUC has none, the last level is chosen.
    """

    levels: Sequence[Level]
    on_validation: Sequence[Measured]
    unit: float
    chosen: int

    @classmethod
    def of(
        cls,
        levels: Sequence[Level],
        score: ScoreFunction,
        sets: PairSets,
        rows: PairSample,
        unit: float,
    ) -> LevelTable:
        """Measure all levels on validation rows, and choose one."""
        found = []
        for level in levels:
            found.append(measure(sets, rows, score.scores(level.point.parameters, rows.X)))
        chosen = min(range(len(found)), key=lambda i: (*_rank(found[i]), -i))
        return cls(levels, found, unit, chosen)

    @property
    def is_met(self) -> bool:
        """Whether the chosen level meets all constraints on the validation rows."""
        return self.on_validation[self.chosen].violation <= ROUNDING

    @property
    def is_doubtful(self) -> bool:
        """Whether the chosen level misses a constraint, or something has no value."""
        found = self.on_validation[self.chosen]
        return not self.is_met or bool(np.isnan(found.auc)) or not found.is_known.all()

    def history(self, names: Sequence[str]) -> pd.DataFrame:
        """Tabulate the levels; `names` are those of the constraints."""
        levels = self.levels
        columns: dict[str, Any] = {
            "level": [level.number for level in levels],
            "proximal_point": [level.proximal_point for level in levels],
            "r": [level.level * self.unit for level in levels],
            "upper_bound": [level.upper_bound * self.unit for level in levels],
            "rows": [level.n_rows for level in levels],
            "distance": [level.distance for level in levels],
            "auc": [found.auc for found in self.on_validation],
            "violation": [found.violation for found in self.on_validation],
            "chosen": [i == self.chosen for i in range(len(levels))],
        }
        for j, name in enumerate(names):
            columns[f"value[{name}]"] = [found.values[j] for found in self.on_validation]
        return pd.DataFrame(columns)


def measure(sets: PairSets, rows: PairSample, scores: Float) -> Measured:
    """Measure AUC and constraints on some rows."""
    values, is_known = sets.values(rows, scores)
    signs = np.array([constraint.sign for constraint in sets.compiled.constraints])
    violation = np.nan_to_num(signs * (values - sets.compiled.bounds)).max(initial=0.0)
    return Measured(sets.auc(rows, scores), values, is_known, max(float(violation), 0.0))


def surrogate_columns(
    levels: Sequence[Level], problem: SaddleProblem, rows: tuple[Float, Float], unit: float
) -> dict[str, list[float]]:
    """Compute the surrogate objective of each level, and the largest violation of its rules.

    Parameters
    ----------
    levels : The levels.
    problem : Functions and score.
    rows : Features and density ratios of the training rows.
    unit : What objective and limits are divided by.
    """
    X, ratios = rows
    surrogate = problem.surrogate
    objective, violation = [], []
    for level in levels:
        scores = problem.score.scores(level.point.parameters, X)
        values = surrogate.values(surrogate.moments(scores, ratios)) - surrogate.limits
        values *= unit
        objective.append(float(values[0]))
        violation.append(float(values[1:].max(initial=-np.inf)))
    return {"surrogate_objective": objective, "surrogate_violation": violation}


def report_frame(
    sets: PairSets, multipliers: Float, training: Measured | None, validation: Measured
) -> pd.DataFrame:
    """Tabulate each constraint: bound, values, multiplier, and whether it is met."""
    compiled = sets.compiled
    satisfied = pd.array(compiled.is_satisfied(validation.values), dtype="boolean")
    satisfied[~validation.is_known] = pd.NA
    nothing = np.full(len(compiled.constraints), np.nan)
    return pd.DataFrame(
        {
            "constraint": compiled.names,
            "bound": compiled.bounds,
            "train": nothing if training is None else training.values,
            "held_out": validation.values,
            "multiplier": compiled.totals(multipliers),
            "satisfied": satisfied,
        }
    )


def warn_of_choice(sets: PairSets, table: LevelTable, validation: PairSample) -> None:
    """Warn that no level meets the constraints on validation rows, or that these are too few."""
    found = table.on_validation[table.chosen]
    if not table.is_met:
        issue_warning(
            f"None of {len(table.levels)} levels meets all constraints on the validation rows, "
            f"where {sets.compiled.names} have the values {found.values.round(3).tolist()}: the "
            f"square surrogate has no score that meets them, or too few validation rows show "
            f"one. Give slack=0.1 or more, for the surrogate is stricter than the constraints; "
            f"relax the bounds, or use ConstrainedLogisticRegression.",
            "GC107",
        )
    unknown = [sets.compiled.names[j] for j in np.flatnonzero(~found.is_known)]
    if np.isnan(found.auc):
        unknown += ["the AUC, so that the last level was taken and probabilities are base rates"]
    if unknown:
        issue_warning(
            f"The {len(validation)} validation rows lack a class or a group, so that there is no "
            f"whole value of {' and '.join(unknown)}: give more rows, or a larger "
            f"validation_fraction.",
            "GC112",
        )


class LogOdds(NamedTuple):
    """Log-odds of the positive class as an increasing function of scores.

    Parameters
    ----------
    slope, intercept : Log-odds are ``slope * score + intercept``.
    """

    slope: float = 1.0
    intercept: float = 0.0

    @classmethod
    def fit(cls, scores: Float, is_positive: Bool, weight: Float, base_rate: float) -> LogOdds:
        """Fit the targets of Platt (1999) by a logistic regression, with a positive slope.

        Weights have a mean of one there, so that their unit changes nothing. Rows of one class
        alone say nothing of the slope: all rows then get about the base rate.

        Parameters
        ----------
        scores, is_positive, weight : (n,). Score, class and weight of each row.
        base_rate : Share of positives among the training rows.
        """
        mean, spread = (scores.mean(), scores.std()) if scores.size else (0.0, 1.0)
        spread = spread if spread > 0 else 1.0
        mass = np.bincount(is_positive, weight, 2)
        if mass.min() == 0:
            slope = float(LEAST_SLOPE / spread)
            return cls(slope, float(logit(base_rate) - slope * mean))
        weight, mass = weight / weight.mean(), mass / weight.mean()
        target = np.where(is_positive, (mass[1] + 1) / (mass[1] + 2), 1 / (mass[0] + 2))
        standard = np.tile((scores - mean) / spread, 2)[:, None]
        shares = np.concatenate([weight * target, weight * (1 - target)])
        answers = np.repeat([1, 0], scores.size)
        found = LogisticRegression(C=np.inf).fit(standard, answers, shares)
        slope = float(max(found.coef_[0, 0], LEAST_SLOPE) / spread)
        return cls(slope, float(found.intercept_[0] - slope * mean))

    def probability(self, scores: Float) -> Float:
        """Compute the probability of the positive class."""
        return np.asarray(expit(self.slope * scores + self.intercept))


def _rank(found: Measured) -> tuple[int, float, float]:
    """Rank levels: constraints without a value, violations beyond rounding, then AUC."""
    violation = found.violation if found.violation > ROUNDING else 0.0
    return int((~found.is_known).sum()), violation, -np.nan_to_num(found.auc)


def unit_of(parameters: Any) -> float:
    """Find what the objective and the limits are divided by, ``2 c1 c2^2``.

    Scores divided by c2 turn the surrogate into the one of ``c1 = 1/2`` and ``c2 = 1``, times this
    number. Step sizes and the interval of the scalars are for that one.
    """
    return float(2 * parameters.c1 * parameters.c2**2)


def make_problem(
    parameters: Any,
    sets: PairSets,
    rows: PairSample,
    random_state: np.random.RandomState,
) -> tuple[SaddleProblem, Primal]:
    """Make the saddle problem of some parameters, and its starting point: equal scores.

    Parameters
    ----------
    parameters : ConstrainedAUCScorer
        Parameters of the scorer.
    sets : PairSets
        Constraints, as rules over sets of rows.
    rows : PairSample
        Rows that features are standardised by.
    random_state : RandomState
        Source of a network's first weights.
    """
    rules, n_sets = sets.rules(parameters.slack), sets.sets.shape[1]
    surrogate = SquareSurrogate.of(rules, n_sets)
    surrogate = replace(surrogate, limits=surrogate.limits / unit_of(parameters))
    hidden, X, weight = parameters.hidden, rows.X, rows.weight
    score = SigmoidNetwork.of(X, hidden, weight) if hidden else LinearScore.of(X, weight)
    start = Primal(score.start(random_state), np.zeros(2 * surrogate.n_pairs))
    scale = score.mean_squared_gradient(start.parameters, X)
    problem = SaddleProblem(
        surrogate,
        score,
        DualGeometry(surrogate.owner, surrogate.n_functions, parameters.interval),
        parameters.learning_rate,
        parameters.dual_learning_rate,
        scale if scale > 0 else 1.0,
        parameters.batch_size,
        parameters.proximal_weight if hidden else 0.0,
    )
    return problem, start


def make_search(parameters: Any, problem: SaddleProblem, start: Primal) -> LevelSetSearch:
    """Make a search from the first level, by default that of equal scores, ``c1 * c2**2``."""
    level = _first_level(parameters)
    schedule = _make_schedule(parameters)
    return LevelSetSearch(problem, schedule, start, 0.5 if level is None else level)


def follow_path(
    parameters: Any,
    problem: SaddleProblem,
    start: Primal,
    rows: tuple[Array, Float],
    random_state: np.random.RandomState,
) -> Iterator[Level]:
    """Yield the levels of a fit to rows in memory, given by their features and density ratios."""
    X, ratios = rows
    if parameters.solver == "exact":
        yield _solve_exactly(problem, X, ratios)
        return
    batches = shuffled_batches(X.shape[0], parameters.batch_size, random_state)
    if parameters.hidden:
        schedule, n_points = _make_schedule(parameters), parameters.n_proximal_points
        level = _first_level(parameters)
        yield from follow_proximal_points(problem, schedule, start, n_points, rows, batches, level)
    else:
        yield from follow_levels(make_search(parameters, problem, start), X, ratios, batches)


def _make_schedule(parameters: Any) -> LevelSchedule:
    return LevelSchedule(
        parameters.n_steps * parameters.batch_size,
        parameters.batch_size,
        parameters.theta,
        parameters.tol,
        parameters.max_levels,
        parameters.relative_tol,
    )


def _first_level(parameters: Any) -> float | None:
    level = parameters.first_level
    return None if level is None else level / unit_of(parameters)


def _solve_exactly(problem: SaddleProblem, X: Array, ratios: Float) -> Level:
    """Solve the surrogate problem of a linear score, as a search of one level."""
    surrogate, score = problem.surrogate, problem.score
    assert isinstance(score, LinearScore)
    found = find_optimum(surrogate, score.features.divide(X), ratios)
    share = np.append(1.0, found.multipliers) / (1.0 + found.multipliers.sum())
    moments = surrogate.moments(score.scores(found.weights, X), ratios)
    a, b, _ = surrogate.best_scalars(moments)
    point = Primal(found.weights, np.concatenate([a, b]))
    return Level(0, float(found.values[0]), 0.0, point, share, X.shape[0], np.nan)


def warn_of_no_progress(
    parameters: Any,
    problem: SaddleProblem,
    levels: Sequence[Level],
    rows: tuple[Any, Float],
) -> None:
    """Warn of a search that ended at its first level, far from the optimum of a linear score."""
    if parameters.solver == "exact" or len(levels) > 1 or parameters.max_levels == 1:
        return
    if not isinstance(problem.score, LinearScore):
        return
    surrogate = problem.surrogate
    scores = problem.score.scores(levels[0].point.parameters, rows[0])
    values = surrogate.values(surrogate.moments(scores, rows[1]))
    if (values > surrogate.limits)[1:].any():  # The constraints are missed, which is named.
        return
    reached, least = values[0], _solve_exactly(problem, *rows).level
    # Gap to the optimum, a tenth of the objective of equal scores, that is named.
    if reached - least > 0.05:
        unit = unit_of(parameters)
        issue_warning(
            f"The level-set search made no progress: its one level has a surrogate objective of "
            f"{reached * unit:.3g}, and the optimum is {least * unit:.3g}. Use solver='exact', "
            f"more n_steps or a smaller tol.",
            "GC304",
        )


SOLVERS = ("level_set", "exact")


def check_parameters(estimator: Any) -> tuple[Constraint, ...]:
    """Refuse parameters of a wrong type or value, and return the constraints as a tuple."""
    check_integer("hidden", estimator.hidden, 0)
    for name in ("batch_size", "n_steps", "max_levels", "n_proximal_points"):
        check_integer(name, getattr(estimator, name), 1)
    for name in ("c1", "c2", "learning_rate", "dual_learning_rate", "interval"):
        check_positive(name, getattr(estimator, name))
    for name in ("tol", "proximal_weight", "slack"):
        value = getattr(estimator, name)
        if not (is_finite_number(value) and value >= 0):
            raise ValueError(f"{name} must be a non-negative number, got {value!r}.")
    for name in ("relative_tol", "first_level"):
        if getattr(estimator, name) is not None:
            check_positive(name, getattr(estimator, name))
    if not (is_finite_number(estimator.theta) and estimator.theta >= 1):
        raise ValueError(
            f"theta must be a number >= 1, got {estimator.theta!r}: with less, a level may fall "
            f"below the optimum."
        )
    check_share("validation_fraction", estimator.validation_fraction)
    check_choice("solver", estimator.solver, SOLVERS)
    if estimator.solver == "exact" and estimator.hidden:
        raise ValueError(
            f"solver='exact' is for linear scores, and hidden={estimator.hidden!r}: use "
            f"solver='level_set', or hidden=0."
        )
    constraints = check_constraints(estimator.constraints)
    check_linear(constraints)
    refuse_priorities(constraints, "pair rates all keep their bounds: leave with_priority out")
    for constraint in constraints:
        if not constraint.is_pair:
            raise ValueError(
                f"constraints: {constraint} is no rule on pair rates, and this method knows no "
                f"others: bound auc(), cross_auc() or mean_rank(), or use "
                f"ConstrainedLogisticRegression."
            )
    return constraints


def check_feasible(rules: Sequence[PairRule], c1: float, c2: float) -> None:
    """Refuse rules that no scores meet under the square surrogate.

    A rule and its opposite have surrogates that add up to ``2 c1 c2^2`` times the sum of the
    absolute coefficients, or more. For a difference of two pair rates and both bounds kappa that
    is ``2 c1 c2^2 <= 1 + kappa``.

    Raises
    ------
    ValueError
        If the limits of a rule and its opposite add up to less.
    """
    for first, second in combinations(rules, 2):
        if first.negated_terms() != frozenset(second.terms):
            continue
        size = sum(abs(term.coefficient) for term in first.terms)
        room = (first.bound + second.bound) / size
        needed = 2 * c1 * c2**2
        if needed > 1 + room + np.finfo(float).eps:
            raise ValueError(
                f"c1={c1!r} and c2={c2!r} leave no score that meets {first.name!r} under the "
                f"square surrogate: 2 c1 c2^2 = {needed:g} must be at most 1 + kappa = "
                f"{1 + room:g}. Use c1=0.5 and c2=1.0, or a larger bound or slack."
            )


def check_two_classes(classes: Array, y: Codes, weight: Float | None) -> None:
    """Refuse more classes than two, and a class without weight.

    Parameters
    ----------
    classes : (n_classes,). Sorted labels.
    y : (n_samples,). Class index of each row.
    weight : (n_samples,). Weight of each row; ones where None.
    """
    if classes.size > 2:
        raise ValueError(
            f"Only binary classification is supported, and y holds {classes.size} classes: give "
            f"y == label, one class against the others."
        )
    left = np.bincount(y, weight, 2) > 0
    if not left.all():
        raise ValueError(
            f"sample_weight is zero on all rows of class {classes[~left].tolist()[0]!r}: give "
            f"rows of both classes a positive weight."
        )


def check_split(n_training: int, n_validation: int, validation_fraction: float) -> None:
    """Refuse a split that leaves no rows to train on, or none to choose a level by."""
    if not (n_training and n_validation):
        raise ValueError(
            f"validation_fraction={validation_fraction!r} splits the rows into {n_training} for "
            f"training and {n_validation} for validation, and neither can be empty: give more "
            f"rows, or another fraction."
        )


ACCEPTED: dict[str, Any] = {"accept_sparse": "csr", "dtype": np.float64}


class ConstrainedAUCScorer(ClassifierMixin, BaseEstimator):
    r"""Linear score, or a small network, of largest AUC under constraints on pair rates.

    The stochastic feasible level-set method of [1]_, as corrected in
    :mod:`gbm_constrained.solvers.level_set`. Every pair rate is replaced by the square
    surrogate :math:`c_1 (u - c_2)^2` of differences u of scores, and the surrogate problem is
    solved by steps on a few rows each, or on single rows as they arrive (:meth:`partial_fit`).
    Of all levels the one is returned whose AUC on validation rows is largest among those that meet
    the constraints *themselves* there. What satisfies the surrogate may violate the constraints:
    see the page "The level-set method".

    Scores say nothing of a threshold. ``predict_proba`` and ``predict`` come from a logistic
    regression on the scores of the validation rows, which keeps their order. Where these are of
    one class alone, all rows get about the base rate of the training rows, with a warning.

    Parameters
    ----------
    constraints : Constraint or sequence of Constraint, default=None
        Constraints on pair rates, such as ``gap(auc(), by="sex") <= 0.05``. Without any, the AUC
        alone is optimised.
    hidden : int, default=0
        Number of sigmoid units of a hidden layer; 0 is a linear score. A network is trained by the
        proximal method of [1]_, Algorithm 3.
    c1, c2 : float, default=0.5, 1.0
        Scale and margin of the surrogate. Some scores meet a surrogate bound kappa on the absolute
        difference of two pair rates if and only if ``2 * c1 * c2**2 <= 1 + kappa``. Only
        ``c1 * c2**2`` matters: a factor of c2 alone is one of all scores.
    theta : float, default=2.0
        A level moves by its upper bound over ``2 * theta``.
    batch_size : int, default=100
        Rows of a step.
    n_steps : int, default=2000
        Steps of a level. In :meth:`partial_fit` a level takes ``n_steps * batch_size`` rows.
    max_levels : int, default=40
        Most levels, of each proximal problem of a network.
    tol : float, default=0.005
        The search ends where the upper bound of the level's violation is above ``-tol``, in units
        of ``2 * c1 * c2**2``.
    relative_tol : float, default=None
        In the place of `tol`, the share of the first upper bound at which the search ends:
        ``relative_tol * upper_bound[0] / theta`` ([1]_, Proposition 1).
    first_level : float, default=None
        Level that the search begins at, by default the objective of equal scores, ``c1 * c2**2``.
        It must be above the optimum, which a floor such as ``auc() >= 0.8`` may raise.
    learning_rate : float, default=0.5
        First step size, for features whose standardised rows have a mean squared norm of one.
        Features are standardised by the training rows, or by the first rows of a stream.
    dual_learning_rate : float, default=2.0
        First step size of the dual variables, in units of the coefficient of their entropy.
    interval : float, default=3.0
        Largest absolute value of the auxiliary scalars, among them the mean scores of sets, in
        units of c2.
    slack : float, default=0.0
        Number that is added to the bounds in the surrogate problem. The constraints, by which a
        level is chosen, keep their own.
    solver : {"level_set", "exact"}, default="level_set"
        The method of [1]_, or the exact optimum of the same surrogate problem, for linear scores.
    proximal_weight : float, default=1e-5
        Weight of the proximal term of a network.
    n_proximal_points : int, default=2
        Number of proximal problems of a network.
    validation_fraction : float, default=0.1
        Share of the rows that choose the level, and are not trained on.
    random_state : int, RandomState or None, default=None
        Source of the split, the order of rows and a network's first weights. None is the same
        as 0.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
        Labels; scores of the second are to be larger.
    coef_, intercept_ : ndarray of shape (1, n_features) and (1,)
        Log-odds of a linear score. Not for a network.
    level_ : int or None
        Level of the returned score, by its number in ``history_``. None in :meth:`partial_fit`
        until the first level has ended, where the score is the average of the iterates so far.
    constraint_report_ : DataFrame
        One row per constraint: its bound, its value on training and on validation rows
        (`held_out`), its multiplier in the surrogate problem, and whether it is satisfied on
        validation rows, ``<NA>`` where a group has no value there.
    history_ : DataFrame
        One row per level: its level r, the upper bound, AUC and constraints on validation rows,
        and in :meth:`fit` the surrogate's objective and largest violation on training rows. The
        distance is that of the point from the centre of the proximal term. At the last level of a
        proximal problem it is the residual of a nearly stationary point ([1]_, Definition 5).

    References
    ----------
    .. [1] Yao, Lin and Yang, "Stochastic Methods for AUC Optimization subject to AUC-based
       Fairness Constraints", 2023.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from gbm_constrained import auc, gap
    >>> from gbm_constrained.linear_model import ConstrainedAUCScorer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> clf = ConstrainedAUCScorer(gap(auc(), by="site") <= 0.05, n_steps=200)
    >>> clf = clf.fit(scale(X), y, sensitive_features={"site": X[:, 0] > 14})
    """

    @with_known_parameters
    def __init__(
        self,
        constraints: Any = None,
        *,
        hidden: int = 0,
        c1: float = 0.5,
        c2: float = 1.0,
        theta: float = 2.0,
        batch_size: int = 100,
        n_steps: int = 2000,
        max_levels: int = 40,
        tol: float = 5e-3,
        relative_tol: float | None = None,
        first_level: float | None = None,
        learning_rate: float = 0.5,
        dual_learning_rate: float = 2.0,
        interval: float = 3.0,
        slack: float = 0.0,
        solver: Literal["level_set", "exact"] = "level_set",
        proximal_weight: float = 1e-5,
        n_proximal_points: int = 2,
        validation_fraction: float = 0.1,
        random_state: Any = None,
    ) -> None:
        self.constraints = constraints
        self.hidden = hidden
        self.c1 = c1
        self.c2 = c2
        self.theta = theta
        self.batch_size = batch_size
        self.n_steps = n_steps
        self.max_levels = max_levels
        self.tol = tol
        self.relative_tol = relative_tol
        self.first_level = first_level
        self.learning_rate = learning_rate
        self.dual_learning_rate = dual_learning_rate
        self.interval = interval
        self.slack = slack
        self.solver = solver
        self.proximal_weight = proximal_weight
        self.n_proximal_points = n_proximal_points
        self.validation_fraction = validation_fraction
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.sparse = True
        return tags

    @with_known_parameters
    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, sensitive_features: Any = None
    ) -> ConstrainedAUCScorer:
        """Fit the score.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Features.
        y : array-like of shape (n_samples,)
            Labels of two classes.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights, in the objective and in the pair rates.
        sensitive_features : Series, DataFrame, dict of arrays or array-like, default=None
            Columns, one value per row, that constraints may group by. Columns of X are found there
            when X is a DataFrame. Prediction never needs them.

        Raises
        ------
        TypeError, ValueError
            If a parameter or a constraint is not supported, or no score meets the surrogate
            bounds; before training starts.
        FloatingPointError
            If the steps are too long.
        """
        constraints = check_parameters(self)
        values = validate_data(self, X, **ACCEPTED)
        y = y if y is None else column_or_1d(y, warn=True)
        self.classes_, _ = check_labels(y)
        self._first_rows: Rows | None = None
        table = self._read_rows(X, y, sample_weight, sensitive_features)
        sets, rows = self._compile(constraints, values, table)
        random_state = copy_random_state(self.random_state)
        training, validation = (
            rows.take(part) for part in self._split(sets, len(rows), random_state)
        )
        check_split(len(training), len(validation), self.validation_fraction)
        ratios = density_ratios(sets.members(training))
        problem, start = make_problem(self, sets, training, random_state)
        on_training = training.X, ratios
        levels = list(follow_path(self, problem, start, on_training, random_state))
        self._score: ScoreFunction = problem.score
        found = LevelTable.of(levels, self._score, sets, validation, unit_of(self))
        base_rate = share_of_positives(sets.members(training).sum(axis=0))
        self._report(sets, found, validation, training, base_rate)
        columns = surrogate_columns(levels, problem, on_training, unit_of(self))
        for name, values in columns.items():
            self.history_[name] = values
        warn_of_choice(sets, found, validation)
        warn_of_no_progress(self, problem, levels, on_training)
        return self

    def partial_fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        classes: Any = None,
        groups: Any = None,
        sensitive_features: Any = None,
    ) -> ConstrainedAUCScorer:
        """Take steps on rows that have arrived, one row or many.

        The first call must have rows of both classes and of all groups that the constraints
        compare, or name them. Rows are then held until there are `min_group_size` rows of each
        class, and of each class in each group. Features are standardised by the rows that the
        search begins with. A share `validation_fraction` of all rows is for validation, of which a
        random sample of bounded size is kept. Each time a level has ended, the best of all levels
        by these rows becomes the score. The search has no end. After :meth:`fit` it begins anew.

        Parameters
        ----------
        X, y, sample_weight, sensitive_features : array-like
            As in :meth:`fit`.
        classes : array-like of shape (2,), default=None
            Labels, in the first call. Those of its rows by default.
        groups : dict from column to sequence of values, default=None
            Groups of the columns that constraints read, in the first call, such as
            ``{"sex": ["F", "M"]}``. Those of its rows by default.

        Raises
        ------
        TypeError, ValueError
            As in :meth:`fit`, and where a row of a later call has an unknown label or group.
        """
        rows: PairSample | None
        if hasattr(self, "_stream"):
            values = validate_data(self, X, reset=False, **ACCEPTED)
            table = self._read_rows(X, y, sample_weight, sensitive_features)
            rows, validation = self._stream.sets.sample(values, table), None
        else:
            given = X, y, sample_weight, sensitive_features
            rows, validation = self._open_stream(*given, classes, groups)
            if rows is None:
                return self
        stream, search = self._stream, self._stream.search
        if stream.read(rows, validation):
            kept = stream.validation.rows
            found = LevelTable.of(search.levels, self._score, stream.sets, kept, unit_of(self))
            self._report(stream.sets, found, kept, None, stream.base_rate)
            if not stream.is_doubtful:  # Each new level would repeat the warning.
                warn_of_choice(stream.sets, found, kept)
            stream.is_doubtful = found.is_doubtful
        elif search.n_rows and not search.levels:
            self._parameters = search.oracle.average.parameters
            self._log_odds = LogOdds(1.0, float(logit(stream.base_rate)))
            self._fold_log_odds()
            self.level_: int | None = None
        return self

    def decision_function(self, X: Any) -> Float:
        """Compute the log-odds of the second class, in the order of the scores.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        if hasattr(self, "_held"):
            raise NotFittedError(self._held.describe())
        check_is_fitted(self, "_parameters")
        X = validate_data(self, X, reset=False, **ACCEPTED)
        scores = self._score.scores(self._parameters, X)
        return np.asarray(self._log_odds.slope * scores + self._log_odds.intercept)

    def predict_proba(self, X: Any) -> Float:
        """Compute the probability of each class.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, 2)
        """
        positive = LogOdds().probability(self.decision_function(X))
        return np.stack([1 - positive, positive], axis=1)

    def predict(self, X: Any) -> Array:
        """Predict the more probable class.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        is_positive = self.decision_function(X) > 0
        return np.asarray(self.classes_[is_positive.astype(int)])

    def _compile(
        self, constraints: Sequence[Constraint], values: Any, rows: Rows
    ) -> tuple[PairSets, PairSample]:
        """Compile the constraints against the rows that a search begins with."""
        check_two_classes(self.classes_, rows.y, rows.weight)
        sets = PairSets.of(resolve_positive_class(constraints, self.classes_, None), rows)
        check_feasible(sets.rules(self.slack), self.c1, self.c2)
        of_earlier_fit = "history_", "constraint_report_", "coef_", "intercept_", "_parameters"
        for name in ("_stream", "_held", *of_earlier_fit):
            self.__dict__.pop(name, None)
        return sets, sets.sample(values, rows)

    def _read_rows(self, X: Any, y: Any, sample_weight: Any, sensitive_features: Any) -> Rows:
        """Encode rows, with the groups of the rows of the first call if there was one."""
        check_consistent_length(X, y)
        codes = encode(y, self.classes_, "y")
        weight = check_weight(weight_of_rows(sample_weight, y), codes.size)
        columns = columns_of(sensitive_features, codes.size)
        return Rows(codes, self.classes_, weight, columns, [X], like=self._first_rows)

    def _split(
        self, sets: PairSets, n_samples: int, random_state: np.random.RandomState
    ) -> list[Codes]:
        """Split the rows of a compilation into training and validation rows, cell by cell."""
        shares = [1 - self.validation_fraction, self.validation_fraction]
        return parts_by_cell(np.arange(n_samples), sets.cells, shares, random_state)

    def _open_stream(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        sensitive_features: Any,
        classes: Any,
        groups: Any,
    ) -> tuple[PairSample | None, Codes | None]:
        """Begin a search at the first rows; return them, and those for validation.

        Rows are None where they are held until there are some of each class and group.
        """
        constraints = check_parameters(self)
        held: HeldRows | None = getattr(self, "_held", None)
        values = validate_data(self, X, reset=held is None, **ACCEPTED)
        y = y if y is None else column_or_1d(y, warn=True)
        if held is None:
            self.classes_, _ = check_labels(y if classes is None else classes)
            self._first_rows = None
        table = self._read_rows(X, y, sample_weight, sensitive_features)
        if held is None and (classes is not None or groups is not None):
            held = HeldRows(constraints, self.classes_, groups or {})
        if held is not None:
            held.add(values, table)
            self._held = held
            if not held.is_complete:
                return None, None
            values, table = held.take()
        sets, rows = self._compile(constraints, values, table)
        self._first_rows = sets.cells.rows
        random_state = copy_random_state(self.random_state)
        problem, start = make_problem(self, sets, rows, random_state)
        self._score = problem.score
        validation = Reservoir(MAX_VALIDATION_ROWS, random_state)
        search = make_search(self, problem, start)
        self._stream = RowStream(sets, search, validation, self.validation_fraction)
        return rows, self._split(sets, len(rows), random_state)[1]

    def _report(
        self,
        sets: PairSets,
        table: LevelTable,
        validation: PairSample,
        training: PairSample | None,
        base_rate: float,
    ) -> None:
        """Set the fitted attributes of the chosen level."""
        level = table.levels[table.chosen]
        self._parameters, self.level_ = level.point.parameters, level.number
        scores = self._score.scores(self._parameters, validation.X)
        is_positive = sets.inside(validation)[:, POSITIVES]
        self._log_odds = LogOdds.fit(scores, is_positive, validation.weight, base_rate)
        self._fold_log_odds()
        self.history_ = table.history(sets.compiled.names)
        on_training = None
        if training is not None:
            scores = self._score.scores(self._parameters, training.X)
            on_training = measure(sets, training, scores)
        self.constraint_report_ = report_frame(
            sets, level.multipliers, on_training, table.on_validation[table.chosen]
        )

    def _fold_log_odds(self) -> None:
        """Write the log-odds of a linear score as one linear function of features."""
        if isinstance(self._score, LinearScore):
            slope, intercept = self._log_odds
            features = self._score.features
            self.coef_ = slope * (self._parameters / features.scale)[None, :]
            self.intercept_ = np.array([intercept]) - self.coef_ @ features.centre
