"""Scores of largest AUC under constraints on pair rates, by the level-set method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Literal

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
from gbm_constrained.linear_model.base import set_parameters
from gbm_constrained.linear_model.pair_sets import (
    HeldRows,
    PairSample,
    PairSets,
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
LEAST_SLOPE = 1e-3  # Least slope of log-odds in standardised scores, so that they keep the order.


def is_sparse(X: Any) -> bool:
    """Whether features are a sparse matrix or array."""
    return bool(sparse.issparse(X))


@dataclass(frozen=True, eq=False)
class LinearScore:
    """The score ``(x - centre) / scale . w`` of features that are standardised by some rows.

    Steps then do not depend on the units of any feature. An order of rows does not depend on the
    centre; steps of w and of a constant do not mix there. Sparse features stay sparse.

    Parameters
    ----------
    centre : (n_features,). A typical row.
    scale : (n_features,). Divisors of the features.
    """

    centre: Float
    scale: Float

    @classmethod
    def of(cls, X: Any, weight: Float | None = None) -> LinearScore:
        """Find mean and standard deviation of each feature; the divisor of a constant is one."""
        found = StandardScaler(with_mean=not is_sparse(X)).fit(X, sample_weight=weight)
        return cls(np.asarray(found.mean_), np.asarray(found.scale_))

    def start(self, random_state: np.random.RandomState) -> Float:
        """Make the parameters of a score of zero."""
        return np.zeros(self.centre.size)

    def divide(self, X: Any) -> Any:
        """Divide the features by their scales, and centre those that are not sparse."""
        if is_sparse(X):
            return X.multiply(1 / self.scale).tocsr()
        return (X - self.centre) / self.scale

    def scores(self, parameters: Float, X: Any) -> Float:
        """Compute the score of each row by weights of shape (n_features,) or (n_features, k)."""
        weights = (parameters.T / self.scale).T
        if is_sparse(X):
            return np.asarray(X @ weights - self.centre @ weights)
        return np.asarray((X - self.centre) @ weights)

    def pull_back(self, parameters: Float, X: Any, rows: Float) -> Float:
        """Compute the sum over rows of ``rows[i]`` times the gradient of score i."""
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

    def mean_squared_gradient(self, parameters: Float, X: Any) -> float:
        """Compute the mean over rows of the squared norm of the score's gradient."""
        return float(self.squared_norms(X).mean())


@dataclass(frozen=True, eq=False)
class SigmoidNetwork:
    """The score ``sum_j v_j sigmoid((x - centre) / scale . w_j + b_j)`` of sigmoid units.

    Parameters
    ----------
    inputs : Linear functions of the features, with their centre and scale.
    hidden : Number of units.
    """

    inputs: LinearScore
    hidden: int

    @classmethod
    def of(cls, X: Any, hidden: int, weight: Float | None = None) -> SigmoidNetwork:
        """Standardise the features by some rows."""
        inputs = LinearScore.of(X, weight)
        norm = float(np.sqrt(inputs.squared_norms(X).mean()))
        factor = norm / INPUT_NORM if norm > 0 else 1.0
        return cls(LinearScore(inputs.centre, inputs.scale * factor), hidden)

    def start(self, random_state: np.random.RandomState) -> Float:
        """Draw units at random, with output weights of zero: a score of zero, which is feasible.

        Equal units would stay equal for ever.
        """
        d = self.inputs.centre.size
        first = random_state.normal(size=d * self.hidden) / INPUT_NORM
        return np.concatenate([first, np.zeros(2 * self.hidden)])

    def scores(self, parameters: Float, X: Any) -> Float:
        """Compute the score of each row; (n,)."""
        units, _, last = self._units(parameters, X)
        return np.asarray(units @ last)

    def pull_back(self, parameters: Float, X: Any, rows: Float) -> Float:
        """Compute the sum over rows of ``rows[i]`` times the gradient of score i."""
        units, first, last = self._units(parameters, X)
        inner = rows[:, None] * units * (1 - units) * last
        by_first = self.inputs.pull_back(first, X, inner)
        return np.concatenate([by_first.ravel(), inner.sum(axis=0), rows @ units])

    def mean_squared_gradient(self, parameters: Float, X: Any) -> float:
        """Compute the mean over rows of the squared norm of the score's gradient."""
        units, _, last = self._units(parameters, X)
        inner = (units * (1 - units) * last) ** 2
        squares = self.inputs.squared_norms(X)[:, None] + 1
        return float(((units**2).sum(axis=1) + (inner * squares).sum(axis=1)).mean())

    def _units(self, parameters: Float, X: Any) -> tuple[Float, Float, Float]:
        """Compute the units (n, hidden), and split off w (n_features, hidden) and v (hidden,)."""
        first, bias, last = np.split(parameters, [-2 * self.hidden, -self.hidden])
        first = first.reshape(-1, self.hidden)
        return np.asarray(expit(self.inputs.scores(first, X) + bias)), first, last


class LevelTable:
    """Levels of a search, measured on the rows that choose one of them.

    Parameters
    ----------
    levels : The levels.
    score : The score, as a function of parameters.
    sets : Constraints, as rules over sets of rows.
    rows : Validation rows.

    Attributes
    ----------
    auc : (n_levels,). AUC of all rows.
    values : (n_levels, n_constraints). What each constraint bounds.
    is_known : (n_levels, n_constraints). Whether all pair rates of a constraint have a value on
        the rows.
    violation : (n_levels,). Largest violation of a constraint that has a value on the rows.
    chosen : Position of the chosen level: the one of largest AUC among those that meet all
        constraints there, or else of least violation. Constraints without a value count as not
        met. Where the AUC has none, the last level is chosen.
    """

    def __init__(
        self, levels: Sequence[Level], score: ScoreFunction, sets: PairSets, rows: PairSample
    ) -> None:
        self.levels, self.sets, self.n_rows = levels, sets, len(rows)
        scores = [score.scores(level.point.parameters, rows.X) for level in levels]
        self.auc = np.array([sets.auc(rows, of_level) for of_level in scores])
        measured = [sets.values(rows, of_level) for of_level in scores]
        self.values = np.array([values for values, _ in measured])
        self.is_known = np.array([is_known for _, is_known in measured], dtype=bool)
        compiled = sets.compiled
        signs = np.array([constraint.sign for constraint in compiled.constraints])
        excess = np.nan_to_num(signs * (self.values - compiled.bounds))
        self.violation: Float = excess.max(axis=1, initial=0.0)
        missed = np.where(self.violation > ROUNDING, self.violation, 0.0)
        ranks = np.arange(len(levels))[::-1], -np.nan_to_num(self.auc), missed
        self.chosen = int(np.lexsort((*ranks, (~self.is_known).sum(axis=1)))[0])

    def history(self, unit: float) -> pd.DataFrame:
        """Tabulate the levels; `unit` is what their objective and limits are divided by."""
        levels = self.levels
        columns: dict[str, Any] = {
            "level": [level.number for level in levels],
            "proximal_point": [level.proximal_point for level in levels],
            "r": [level.level * unit for level in levels],
            "upper_bound": [level.upper_bound * unit for level in levels],
            "rows": [level.n_rows for level in levels],
            "distance": [level.distance for level in levels],
            "auc": self.auc,
            "violation": self.violation,
            "chosen": np.arange(len(levels)) == self.chosen,
        }
        for name, values in zip(self.sets.compiled.names, self.values.T, strict=True):
            columns[f"value[{name}]"] = values
        return pd.DataFrame(columns)

    def find_faults(self) -> list[tuple[str, str]]:
        """List what validation rows say against the chosen level, with codes of warnings.

        It does not meet the constraints, or the rows are too few to tell.
        """
        names, values = self.sets.compiled.names, self.values[self.chosen]
        faults = []
        if self.violation[self.chosen] > ROUNDING:
            faults.append((
                f"None of {len(self.levels)} levels meets all constraints on the validation rows, "
                f"where {names} have the values {values.round(3).tolist()}: the "
                f"square surrogate has no score that meets them, or too few validation rows show "
                f"one. Give slack=0.1 or more, for the surrogate is stricter than the "
                f"constraints; relax the bounds, or use ConstrainedLogisticRegression.",
                "GC107",
            ))  # fmt: skip
        unknown = [names[j] for j in np.flatnonzero(~self.is_known[self.chosen])]
        if np.isnan(self.auc[self.chosen]):
            unknown += [
                "the AUC, so that the last level was taken and probabilities are base rates"
            ]
        if unknown:
            faults.append((
                f"The {self.n_rows} validation rows lack a class or a group, so that there is no "
                f"whole value of {' and '.join(unknown)}: give more rows, or a larger "
                f"validation_fraction.",
                "GC112",
            ))  # fmt: skip
        return faults


def fit_log_odds(
    scores: Float, is_positive: Bool, weight: Float, base_rate: float
) -> tuple[float, float]:
    """Fit the log-odds of the positive class as an increasing linear function of scores.

    The targets of Platt (1999) are fitted by a logistic regression. Weights have a mean of one
    there, so that their unit changes nothing. Rows of one class alone say nothing of the slope:
    all rows then get about the base rate.

    Parameters
    ----------
    scores, is_positive, weight : (n,). Score, class and weight of each row.
    base_rate : Share of positives among the training rows.

    Returns
    -------
    slope, intercept : Log-odds are ``slope * score + intercept``.
    """
    mean, spread = (scores.mean(), scores.std()) if scores.size else (0.0, 1.0)
    spread = spread if spread > 0 else 1.0
    mass = np.bincount(is_positive, weight, 2)
    if mass.min() == 0:
        slope = float(LEAST_SLOPE / spread)
        return slope, float(logit(base_rate) - slope * mean)
    weight, mass = weight / weight.mean(), mass / weight.mean()
    target = np.where(is_positive, (mass[1] + 1) / (mass[1] + 2), 1 / (mass[0] + 2))
    standard = np.tile((scores - mean) / spread, 2)[:, None]
    shares = np.concatenate([weight * target, weight * (1 - target)])
    answers = np.repeat([1, 0], scores.size)
    found = LogisticRegression(C=np.inf).fit(standard, answers, shares)
    slope = float(max(found.coef_[0, 0], LEAST_SLOPE) / spread)
    return slope, float(found.intercept_[0] - slope * mean)


def solve_exactly(problem: SaddleProblem, X: Array, ratios: Float) -> Level:
    """Solve the surrogate problem of a linear score, as a search of one level."""
    surrogate, score = problem.surrogate, problem.score
    assert isinstance(score, LinearScore)
    found = find_optimum(surrogate, score.divide(X), ratios)
    share = np.append(1.0, found.multipliers) / (1.0 + found.multipliers.sum())
    moments = surrogate.moments(score.scores(found.weights, X), ratios)
    a, b, _ = surrogate.best_scalars(moments)
    point = Primal(found.weights, np.concatenate([a, b]))
    return Level(0, float(found.values[0]), 0.0, point, share, X.shape[0], np.nan)


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
    check_choice("solver", estimator.solver, ("level_set", "exact"))
    if estimator.solver == "exact" and estimator.hidden:
        raise ValueError(
            f"solver='exact' is for linear scores, and hidden={estimator.hidden!r}: use "
            f"solver='level_set', or hidden=0."
        )
    constraints = check_constraints(estimator.constraints)
    check_linear(constraints)
    refuse_priorities(constraints, "pair rates all keep their bounds: leave with_priority out")
    for constraint in constraints:
        if "pair" not in constraint.kinds:
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
        set_parameters(self, locals())

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
        begun = self._begin((X, y, sample_weight, sensitive_features), None)
        assert begun is not None  # No rows are held.
        sets, rows = begun
        random_state = copy_random_state(self.random_state)
        training, validation = (
            rows.take(part) for part in self._split(sets, len(rows), random_state)
        )
        if not (len(training) and len(validation)):
            raise ValueError(
                f"validation_fraction={self.validation_fraction!r} splits the rows into "
                f"{len(training)} for training and {len(validation)} for validation, and neither "
                f"can be empty: give more rows, or another fraction."
            )
        X, ratios = training.X, density_ratios(sets.members(training))
        search = self._make_search(sets, training, random_state)
        levels = self._find_levels(search, X, ratios, random_state)
        found = LevelTable(levels, self._score, sets, validation)
        base_rate = share_of_positives(sets.members(training).sum(axis=0))
        self._report(found, validation, training, base_rate)
        surrogate = search.problem.surrogate
        scores = [self._score.scores(level.point.parameters, X) for level in levels]
        values = np.array([surrogate.values(surrogate.moments(z, ratios)) for z in scores])
        excess = (values - surrogate.limits) * self._unit
        self.history_["surrogate_objective"] = excess[:, 0]
        self.history_["surrogate_violation"] = excess[:, 1:].max(axis=1, initial=-np.inf)
        for fault in found.find_faults():
            issue_warning(*fault)
        if self.solver == "level_set" and len(levels) == 1 < self.max_levels:
            self._warn_of_no_progress(search.problem, values[0], X, ratios)
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
        validation = None
        if hasattr(self, "_stream"):
            values = validate_data(self, X, reset=False, **ACCEPTED)
            table = self._read_rows(X, y, sample_weight, sensitive_features)
            rows = self._stream.sets.sample(values, table)
        else:
            given = X, y, sample_weight, sensitive_features
            begun = self._begin(given, getattr(self, "_held", None), classes, groups)
            if begun is None:
                return self
            sets, rows = begun
            self._first_rows: Rows | None = sets.cells.rows
            random_state = copy_random_state(self.random_state)
            search = self._make_search(sets, rows, random_state)
            self._stream: RowStream = RowStream(
                sets, search, self.validation_fraction, random_state
            )
            validation = self._split(sets, len(rows), random_state)[1]
        stream, search = self._stream, self._stream.search
        if stream.read(rows, validation):
            kept = stream.validation.rows
            found = LevelTable(search.levels, self._score, stream.sets, kept)
            self._report(found, kept, None, stream.base_rate)
            faults = found.find_faults()
            for fault in () if stream.is_doubtful else faults:  # Each level would repeat them.
                issue_warning(*fault)
            stream.is_doubtful = bool(faults)
        elif search.n_rows and not search.levels:
            self._parameters = search.oracle.average.parameters
            self._log_odds = 1.0, float(logit(stream.base_rate))
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
        slope, intercept = self._log_odds
        return np.asarray(slope * self._score.scores(self._parameters, X) + intercept)

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
        positive = expit(self.decision_function(X))
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

    def _begin(
        self,
        given: tuple[Any, Any, Any, Any],
        held: HeldRows | None,
        classes: Any = None,
        groups: Any = None,
    ) -> tuple[PairSets, PairSample] | None:
        """Compile the constraints against the rows that a search begins with.

        None is returned where rows are held until there are some of each class and group.
        """
        constraints = check_parameters(self)
        X, y, sample_weight, sensitive_features = given
        values = validate_data(self, X, reset=held is None, **ACCEPTED)
        y = y if y is None else column_or_1d(y, warn=True)
        if held is None:
            self.classes_, _ = check_labels(y if classes is None else classes)
            self._first_rows = None
        rows = self._read_rows(X, y, sample_weight, sensitive_features)
        if held is None and (classes is not None or groups is not None):
            held = HeldRows(constraints, self.classes_, groups or {})
        if held is not None:
            held.add(values, rows)
            self._held = held
            if held.find_missing():
                return None
            values, rows = held.take()
        if self.classes_.size > 2:
            raise ValueError(
                f"Only binary classification is supported, and y holds {self.classes_.size} "
                f"classes: give y == label, one class against the others."
            )
        left = np.bincount(rows.y, rows.weight, 2) > 0
        if not left.all():
            absent = self.classes_[~left].tolist()[0]
            raise ValueError(
                f"sample_weight is zero on all rows of class {absent!r}: give rows of both "
                f"classes a positive weight."
            )
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

    @property
    def _unit(self) -> float:
        """What the objective and the limits are divided by, ``2 c1 c2^2``.

        Scores divided by c2 turn the surrogate into the one of ``c1 = 1/2`` and ``c2 = 1``, times
        this number. Step sizes and the interval of the scalars are for that one.
        """
        return float(2 * self.c1 * self.c2**2)

    def _make_search(
        self, sets: PairSets, rows: PairSample, random_state: np.random.RandomState
    ) -> LevelSetSearch:
        """Make a search that standardises features by some rows, and set the score.

        It begins at equal scores, and by default at their level, ``c1 * c2**2``.
        """
        hidden, X = self.hidden, rows.X
        surrogate = SquareSurrogate.of(sets.rules(self.slack), sets.sets.shape[1])
        surrogate = replace(surrogate, limits=surrogate.limits / self._unit)
        weight = rows.weight
        score: Any = SigmoidNetwork.of(X, hidden, weight) if hidden else LinearScore.of(X, weight)
        self._score: ScoreFunction = score
        start = Primal(score.start(random_state), np.zeros(2 * surrogate.n_pairs))
        scale = score.mean_squared_gradient(start.parameters, X)
        problem = SaddleProblem(
            surrogate,
            score,
            DualGeometry(surrogate.owner, surrogate.n_functions, self.interval),
            self.learning_rate,
            self.dual_learning_rate,
            scale if scale > 0 else 1.0,
            self.batch_size,
            self.proximal_weight if hidden else 0.0,
        )
        ends = self.theta, self.tol, self.max_levels, self.relative_tol
        schedule = LevelSchedule(self.n_steps * self.batch_size, self.batch_size, *ends)
        level = 0.5 if self.first_level is None else self.first_level / self._unit
        return LevelSetSearch(problem, schedule, start, level)

    def _find_levels(
        self, search: LevelSetSearch, X: Array, ratios: Float, random_state: np.random.RandomState
    ) -> list[Level]:
        """Find the levels of a fit to rows in memory, given by features and density ratios."""
        problem = search.problem
        if self.solver == "exact":
            return [solve_exactly(problem, X, ratios)]
        batches = shuffled_batches(X.shape[0], self.batch_size, random_state)
        if not self.hidden:
            return list(follow_levels(search, X, ratios, batches))
        level = None if self.first_level is None else self.first_level / self._unit
        return list(follow_proximal_points(
            problem, search.schedule, search.centre, self.n_proximal_points, (X, ratios), batches,
            level,
        ))  # fmt: skip

    def _warn_of_no_progress(
        self, problem: SaddleProblem, values: Float, X: Array, ratios: Float
    ) -> None:
        """Warn of a search whose one level is far from the optimum of a linear score.

        Where it misses constraints, these are named already.
        """
        if self.hidden or (values > problem.surrogate.limits)[1:].any():
            return
        reached, least = values[0], solve_exactly(problem, X, ratios).level
        # Gap to the optimum, a tenth of the objective of equal scores, that is named.
        if reached - least > 0.05:
            issue_warning(
                f"The level-set search made no progress: its one level has a surrogate objective "
                f"of {reached * self._unit:.3g}, and the optimum is {least * self._unit:.3g}. Use "
                f"solver='exact', more n_steps or a smaller tol.",
                "GC304",
            )

    def _report(
        self,
        table: LevelTable,
        validation: PairSample,
        training: PairSample | None,
        base_rate: float,
    ) -> None:
        """Set the fitted attributes of the chosen level."""
        level, sets, chosen = table.levels[table.chosen], table.sets, table.chosen
        self._parameters, self.level_ = level.point.parameters, level.number
        scores = self._score.scores(self._parameters, validation.X)
        is_positive = sets.inside(validation)[:, POSITIVES]
        self._log_odds = fit_log_odds(scores, is_positive, validation.weight, base_rate)
        self._fold_log_odds()
        self.history_ = table.history(self._unit)
        compiled = sets.compiled
        on_training = np.full(len(compiled.constraints), np.nan)
        if training is not None:
            scores = self._score.scores(self._parameters, training.X)
            on_training, _ = sets.values(training, scores)
        satisfied = pd.array(compiled.is_satisfied(table.values[chosen]), dtype="boolean")
        satisfied[~table.is_known[chosen]] = pd.NA
        self.constraint_report_ = pd.DataFrame(
            {
                "constraint": compiled.names,
                "bound": compiled.bounds,
                "train": on_training,
                "held_out": table.values[chosen],
                "multiplier": compiled.totals(level.multipliers),
                "satisfied": satisfied,
            }
        )

    def _fold_log_odds(self) -> None:
        """Write the log-odds of a linear score as one linear function of features."""
        if isinstance(self._score, LinearScore):
            slope, intercept = self._log_odds
            self.coef_ = slope * (self._parameters / self._score.scale)[None, :]
            self.intercept_ = np.array([intercept]) - self.coef_ @ self._score.centre
