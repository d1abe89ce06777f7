"""Scores of largest AUC under constraints on pair rates, by the level-set method."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
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
from gbm_constrained.constraints.comparisons import Grouped
from gbm_constrained.data.cells import Cells
from gbm_constrained.data.fit_data import encode
from gbm_constrained.data.rows import Rows, codes_among
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
from gbm_constrained.problem.compiler import compile_constraints, needs_of
from gbm_constrained.problem.functionals import WeightedPairs
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.problem.pairs import pair_rate, pair_table
from gbm_constrained.solvers.base import check_positive
from gbm_constrained.solvers.level_set import (
    NEGATIVES,
    POSITIVES,
    Iterate,
    Level,
    LevelSetSearch,
    PairRule,
    PairTerm,
    SaddleProblem,
    SquareSurrogate,
    density_ratios,
    find_optimum,
    follow_levels,
    shuffled_batches,
)


@dataclass(frozen=True, eq=False)
class PairSample:
    """Rows, as pair rates need them.

    Parameters
    ----------
    X : (n, n_features). Features, dense or CSR.
    codes : (n, n_views). Cell of each row in each view of the cells, counted over all views.
    weight : (n,). Weight of each row.
    """

    X: Any
    codes: Codes
    weight: Float

    def __len__(self) -> int:
        return self.weight.size

    def take(self, index: Codes) -> PairSample:
        """Take some of the rows."""
        return PairSample(self.X[index], self.codes[index], self.weight[index])


def stack_rows(parts: Sequence[Any]) -> Any:
    """Put tables of features, dense or CSR, one under the other."""
    return sparse.vstack(parts, "csr") if sparse.issparse(parts[0]) else np.concatenate(parts)


@dataclass(frozen=True, eq=False)
class PairSets:
    """Constraints on pair rates, read as rules over sets of cells.

    Parameters
    ----------
    compiled : Linear rows of the constraints.
    cells : Cells of the rows that the constraints were compiled against.
    sets : (n_cells, n_sets), bool. Cells of each set: the positives, the negatives, then all sets
        that a pair rate compares.
    functionals : Pair rates that each functional adds up, next to its constant.
    """

    compiled: LinearConstraints
    cells: Cells
    sets: Bool
    functionals: tuple[tuple[PairTerm, ...], ...]

    @classmethod
    def of(cls, constraints: Sequence[Constraint], rows: Rows) -> PairSets:
        """Compile constraints against some rows.

        Parameters
        ----------
        constraints : sequence of Constraint
            Constraints on pair rates, whose classes are named.
        rows : Rows
            Rows of two classes, with at least one in each set that is compared.
        """
        cells, compiled = compile_constraints(constraints, rows)
        labels = cells.views[0].levels["label"]
        columns: dict[bytes, int] = {}
        for label in (1, 0):  # The order is that of POSITIVES and NEGATIVES.
            columns[np.flatnonzero(labels == label).tobytes()] = len(columns)
        functionals = []
        for terms in compiled.terms:
            pairs = [term for term in terms or () if isinstance(term, WeightedPairs)]
            for term in pairs:
                for side in term.bases:
                    columns.setdefault(side.tobytes(), len(columns))
            functionals.append(tuple(
                PairTerm(term.coefficient, *(columns[side.tobytes()] for side in term.bases))
                for term in pairs
            ))  # fmt: skip
        sets = np.zeros((len(cells), len(columns)), dtype=bool)
        for cells_of_set, j in columns.items():
            sets[np.frombuffer(cells_of_set, dtype=np.intp), j] = True
        return cls(compiled, cells, sets, tuple(functionals))

    def rules(self, slack: float = 0.0) -> list[PairRule]:
        """Write each linear row of the constraints as a rule.

        Parameters
        ----------
        slack : float, default=0
            Number that is added to all bounds.
        """
        compiled, rules = self.compiled, []
        for i in range(len(compiled)):
            row = compiled.R[[i]]
            terms = [
                PairTerm(float(factor * term.coefficient), term.upper, term.lower)
                for k, factor in zip(row.indices, row.data, strict=True)
                for term in self.functionals[k]
            ]
            rules.append(PairRule(tuple(terms), float(compiled.b[i]) + slack, compiled.rows[i]))
        return rules

    def sample(self, X: Any, rows: Rows) -> PairSample:
        """Find the cell of each row, among the cells of the rows of the compilation.

        Raises
        ------
        ValueError
            If a row has a value of a column that no row of the compilation has.
        """
        codes = np.empty((len(rows), len(self.cells.views)), dtype=np.intp)
        for j, view in enumerate(self.cells.views):
            shape = self.cells.shape_of([*view.levels])
            levels = []
            for key, size in zip(view.levels, shape, strict=True):
                attribute = rows.attribute(key)
                unknown = np.flatnonzero(attribute.codes >= size)
                if unknown.size:
                    value = attribute.levels[attribute.codes[unknown[0]]]
                    raise ValueError(
                        f"row {unknown[0]} has the value {value!r} of {key!r}, which no row of "
                        f"the first call had: give rows of all groups in the first call, or fit "
                        f"anew."
                    )
                levels.append(attribute.codes.astype(np.intp))
            codes[:, j] = np.ravel_multi_index(tuple(levels), shape) + view.cells.start
        weight = np.ones(len(rows)) if rows.weight is None else rows.weight
        return PairSample(X, codes, weight)

    def inside(self, sample: PairSample) -> Bool:
        """Find the sets that each row is in; (n, n_sets)."""
        return np.asarray(self.sets[sample.codes].any(axis=1))

    def members(self, sample: PairSample) -> Float:
        """Compute the weight of each row in each set; (n, n_sets)."""
        return np.asarray(self.inside(sample) * sample.weight[:, None])

    def auc(self, sample: PairSample, scores: Float) -> float:
        """Compute the AUC of all rows, NaN without positives or negatives."""
        is_positive = self.inside(sample)[:, POSITIVES]
        return float(pair_table(scores, is_positive.astype(int), sample.weight, 2)[1, 0])

    def values(self, sample: PairSample, scores: Float) -> tuple[Float, Bool]:
        """Compute what each constraint bounds, exactly, NaN where undefined; (n_constraints,).

        Returns
        -------
        tuple of two arrays
            The values, and whether each constraint has all of its pair rates, those of each group.
        """
        # Rows of the same sets are one cell of the table of pairs.
        packed = np.packbits(self.inside(sample), axis=1)
        patterns, codes = np.unique(packed, axis=0, return_inverse=True)
        codes = codes.ravel()
        weight = np.bincount(codes, sample.weight, len(patterns))
        table = pair_table(scores, codes, sample.weight, len(patterns))
        of_sets = np.unpackbits(patterns, axis=1)[:, : self.sets.shape[1]].T * weight
        functionals = np.array(self.compiled.constant)
        for k, terms in enumerate(self.functionals):
            for s, upper, lower in terms:
                functionals[k] += s * pair_rate(table, of_sets[upper], of_sets[lower])
        is_known = [not np.isnan(functionals[span]).any() for span in self.compiled.spans]
        return self.compiled.values(functionals), np.array(is_known, dtype=bool)


class HeldRows:
    """First rows of a stream whose classes and groups are declared.

    Parameters
    ----------
    constraints : Constraints, whose largest `min_group_size` is the number of rows to wait for.
    classes : Sorted labels.
    groups : Values of columns.
    """

    def __init__(
        self,
        constraints: Sequence[Constraint],
        classes: NDArray[np.generic],
        groups: Mapping[Hashable, Sequence[Any]],
    ) -> None:
        self.constraints, self.classes = constraints, classes
        if not isinstance(groups, Mapping) or any(len(values) == 0 for values in groups.values()):
            raise ValueError(
                f"groups must be a dict from column to values, got {groups!r}: give the groups "
                f"of each column, as in groups={{'sex': ['F', 'M']}}."
            )
        self.groups = {name: np.asarray(values, dtype=object) for name, values in groups.items()}
        sizes = [
            c.expression.min_group_size for c in constraints if isinstance(c.expression, Grouped)
        ]
        self.size = max(sizes, default=Grouped.min_group_size)
        self._counts = {name: np.zeros((len(v), 2)) for name, v in self.groups.items()}
        self._by_class: Float = np.zeros(2)
        self._X: list[Any] = []
        self._rows: list[tuple[Rows, dict[Hashable, NDArray[Any]]]] = []

    def add(self, X: Any, rows: Rows) -> None:
        """Hold rows, and count those of positive weight.

        Raises
        ------
        ValueError
            If no constraint reads a column of `groups`, or a row is of a group not among them.
        """
        names = {
            name: None
            for constraint in self.constraints
            for key in needs_of(constraint, rows)
            if isinstance(key, tuple)
            for name in key
        }
        if unread := [name for name in self.groups if name not in names]:
            raise ValueError(
                f"groups names the column {unread[0]!r}, which no constraint reads: give the "
                f"groups of {list(names)}, or leave groups out."
            )
        columns = {name: rows.column(name) for name in names}
        is_counted = np.ones(len(rows), bool) if rows.weight is None else rows.weight > 0
        for name, values in self.groups.items():
            codes, strange = codes_among(values, columns[name], f"values of column {name!r}")
            if strange:
                raise ValueError(
                    f"a row has the value {strange[0]!r} of {name!r}, which groups= does not "
                    f"name: add it to {values.tolist()}."
                )
            np.add.at(self._counts[name], (codes[is_counted], rows.y[is_counted]), 1)
        self._by_class += np.bincount(rows.y[is_counted], minlength=2)
        self._X.append(X)
        self._rows.append((rows, columns))

    def find_missing(self) -> list[str]:
        """Name the classes, and the classes in groups, that have too few rows."""
        labels = self.classes.tolist()
        of_groups = [
            f"{name}={self.groups[name][i]!r} of class {labels[j]!r}"
            for name, count in self._counts.items()
            for i, j in np.argwhere(count < self.size)
        ]
        few = np.flatnonzero(self._by_class < self.size)
        return [*of_groups, *(f"class {labels[j]!r}" for j in few)]

    def describe(self) -> str:
        """Say what the rows wait for."""
        n, missing = sum(len(rows) for rows, _ in self._rows), ", of ".join(self.find_missing())
        return (
            f"This ConstrainedAUCScorer holds {n} rows and has no score yet: it waits for "
            f"{self.size} rows of {missing}. Give more rows to partial_fit."
        )

    def take(self) -> tuple[Any, Rows]:
        """Put all rows together."""
        rows = [rows for rows, _ in self._rows]
        columns = {
            name: np.concatenate([of_part[name].astype(object) for _, of_part in self._rows])
            for name in self._rows[0][1]
        }
        weights = [np.ones(len(part)) if part.weight is None else part.weight for part in rows]
        y = np.concatenate([part.y for part in rows])
        return stack_rows(self._X), Rows(y, self.classes, np.concatenate(weights), columns)


MAX_VALIDATION_ROWS = 5_000  # A standard error of an AUC of 0.8 of 0.006 at worst, to choose by.


class Reservoir:
    """A random sample, of bounded size, of all rows that were offered; algorithm R (Vitter, 1985).

    Parameters
    ----------
    capacity : Most rows that are kept.
    random_state : Source of randomness.
    """

    def __init__(self, capacity: int, random_state: np.random.RandomState) -> None:
        self.capacity, self.random_state = capacity, random_state
        self.n_offered = 0
        self._kept: list[PairSample] = []

    def add(self, rows: PairSample) -> None:
        """Offer rows, each of which may replace one that is kept."""
        self._none = rows.take(np.arange(0))
        for i in range(len(rows)):
            at = self.n_offered
            if at >= self.capacity:
                at = self.random_state.randint(self.n_offered + 1)
            if at < self.capacity:
                self._kept[at : at + 1] = [rows.take(np.array([i]))]
            self.n_offered += 1

    @property
    def rows(self) -> PairSample:
        """The rows that are kept."""
        parts = self._kept or [self._none]
        return PairSample(
            stack_rows([part.X for part in parts]),
            np.concatenate([part.codes for part in parts]),
            np.concatenate([part.weight for part in parts]),
        )


def share_of_positives(members: Float) -> float:
    """Compute the share of positives, given the weight in each set; one half of no rows."""
    total = members[POSITIVES] + members[NEGATIVES]
    return float(members[POSITIVES] / total) if total > 0 else 0.5


class RowStream:
    """Training rows of a search that arrive in parts, some of which are kept for validation.

    Weights of rows in sets are divided by their mean over the training rows so far.

    Parameters
    ----------
    sets : Sets of the constraints.
    search : The search.
    validation_fraction : Probability of a row to be offered to the sample of validation rows; it
        is then not trained on.
    random_state : Source of randomness.
    """

    def __init__(
        self,
        sets: PairSets,
        search: LevelSetSearch,
        validation_fraction: float,
        random_state: np.random.RandomState,
    ) -> None:
        self.sets, self.search, self.validation_fraction = sets, search, validation_fraction
        self.validation = Reservoir(MAX_VALIDATION_ROWS, random_state)
        self._sum: Float = np.zeros(sets.sets.shape[1])
        self._n_rows = 0
        self.is_doubtful = False  # Whether a constraint of the present score is not met.

    @property
    def base_rate(self) -> float:
        """Share of positives among the training rows so far."""
        return share_of_positives(self._sum)

    def read(self, rows: PairSample, validation: Codes | None = None) -> bool:
        """Take steps on rows, and return whether a level has ended.

        Parameters
        ----------
        rows : The rows.
        validation : Positions of the rows that are for validation, drawn at random by default.
        """
        if validation is None:
            draws = self.validation.random_state.uniform(size=len(rows))
            validation = np.flatnonzero(draws < self.validation_fraction)
        self.validation.add(rows.take(validation))
        training = rows.take(np.setdiff1d(np.arange(len(rows)), validation))
        n_levels = len(self.search.levels)
        size = self.search.problem.batch_size
        for start in range(0, len(training), size):
            batch = training.take(np.arange(start, min(start + size, len(training))))
            members = self.sets.members(batch)
            self._sum += members.sum(axis=0)
            self._n_rows += len(batch)
            mean = self._sum / self._n_rows
            ratios = np.divide(members, mean, out=np.zeros_like(members), where=mean > 0)
            self.search.update(batch.X, ratios)
        return len(self.search.levels) > n_levels


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


def describe_faults(
    history: pd.DataFrame, report: pd.DataFrame, n_rows: int
) -> list[tuple[str, str]]:
    """List what validation rows say against the chosen level, with codes of warnings.

    It does not meet the constraints, or the rows are too few to tell.
    """
    chosen = history[history.chosen].iloc[0]
    names, faults = report["constraint"].tolist(), []
    if chosen.violation > ROUNDING:
        faults.append((
            f"None of {len(history)} levels meets all constraints on the validation rows, "
            f"where {names} have the values {report['held_out'].round(3).tolist()}: the "
            f"square surrogate has no score that meets them, or too few validation rows show "
            f"one. Give slack=0.1 or more, for the surrogate is stricter than the "
            f"constraints; relax the bounds, or use ConstrainedLogisticRegression.",
            "GC107",
        ))  # fmt: skip
    unknown = report.loc[report["satisfied"].isna(), "constraint"].tolist()
    if np.isnan(chosen.auc):
        unknown += ["the AUC, so that the last level was taken and probabilities are base rates"]
    if unknown:
        faults.append((
            f"The {n_rows} validation rows lack a class or a group, so that there is no whole "
            f"value of {' and '.join(unknown)}: give more rows, or a larger validation_fraction.",
            "GC112",
        ))  # fmt: skip
    return faults


def solve_exactly(problem: SaddleProblem, X: Array, ratios: Float) -> Level:
    """Solve the surrogate problem of a linear score, as a search of one level."""
    surrogate, score = problem.surrogate, problem.score
    weights, multipliers, values = find_optimum(surrogate, score.divide(X), ratios)
    moments = surrogate.moments(score.scores(weights, X), ratios)
    a, b, alpha = surrogate.best_scalars(moments)
    share = np.append(1.0, multipliers) / (1.0 + multipliers.sum())
    point = Iterate(weights, np.concatenate([a, b]), share, alpha)
    return Level(0, float(values[0]), 0.0, point, X.shape[0], np.nan)


def check_parameters(estimator: Any) -> tuple[Constraint, ...]:
    """Refuse parameters of a wrong type or value, and return the constraints as a tuple."""
    check_integer("hidden", estimator.hidden, 0)
    for name in ("batch_size", "n_steps", "max_levels", "n_proximal_points"):
        check_integer(name, getattr(estimator, name), 1)
    for name in ("c1", "c2", "learning_rate", "dual_learning_rate", "interval"):
        check_positive(name, getattr(estimator, name))
    for name in ("relative_tol", "first_level"):
        check_positive(name, getattr(estimator, name), is_optional=True)
    for name in ("tol", "proximal_weight", "slack"):
        value = getattr(estimator, name)
        if not (is_finite_number(value) and value >= 0):
            raise ValueError(f"{name} must be a non-negative number, got {value!r}.")
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
        negated = {PairTerm(-c, upper, lower) for c, upper, lower in first.terms}
        if negated != set(second.terms):
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
    constraints : Constraint, str or sequence of these, default=None
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
        if self.solver == "exact":
            levels = [solve_exactly(search.problem, X, ratios)]
        else:
            batches = shuffled_batches(len(training), self.batch_size, random_state)
            n_points = self.n_proximal_points if self.hidden else 1
            levels = list(follow_levels(search, X, ratios, batches, n_points))
        base_rate = share_of_positives(sets.members(training).sum(axis=0))
        faults = self._report(levels, sets, validation, base_rate, training)
        surrogate = search.problem.surrogate
        scores = [self._score.scores(level.point.parameters, X) for level in levels]
        values = np.array([surrogate.values(surrogate.moments(z, ratios)) for z in scores])
        excess = (values - surrogate.limits) * self._unit
        self.history_["surrogate_objective"] = excess[:, 0]
        self.history_["surrogate_violation"] = excess[:, 1:].max(axis=1, initial=-np.inf)
        for fault in faults:
            issue_warning(*fault)
        is_stuck = self.solver == "level_set" and len(levels) == 1 < self.max_levels
        # Where the one level misses constraints, these are named already.
        if is_stuck and not self.hidden and not (excess[0, 1:] > 0).any():
            reached, least = values[0, 0], solve_exactly(search.problem, X, ratios).level
            # Gap to the optimum, a tenth of the objective of equal scores, that is named.
            if reached - least > 0.05:
                issue_warning(
                    f"The level-set search made no progress: its one level has a surrogate "
                    f"objective of {reached * self._unit:.3g}, and the optimum is "
                    f"{least * self._unit:.3g}. Use solver='exact', more n_steps or a smaller "
                    f"tol.",
                    "GC304",
                )
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
            faults = self._report(search.levels, stream.sets, kept, stream.base_rate)
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
        hidden, X, weight = self.hidden, rows.X, rows.weight
        surrogate = SquareSurrogate.of(sets.rules(self.slack), sets.sets.shape[1])
        surrogate = replace(surrogate, limits=surrogate.limits / self._unit)
        score: Any = SigmoidNetwork.of(X, hidden, weight) if hidden else LinearScore.of(X, weight)
        self._score = score
        parameters = score.start(random_state)
        scale = score.mean_squared_gradient(parameters, X)
        problem = SaddleProblem(
            surrogate,
            score,
            self.interval,
            self.learning_rate,
            self.dual_learning_rate,
            scale if scale > 0 else 1.0,
            self.batch_size,
            self.proximal_weight if hidden else 0.0,
        )
        level = 0.5 if self.first_level is None else self.first_level / self._unit
        ends = self.theta, self.tol, self.max_levels, self.relative_tol
        n_rows = self.n_steps * self.batch_size
        return LevelSetSearch(problem, problem.start(parameters), level, n_rows, *ends)

    def _report(
        self,
        levels: Sequence[Level],
        sets: PairSets,
        validation: PairSample,
        base_rate: float,
        training: PairSample | None = None,
    ) -> list[tuple[str, str]]:
        """Choose a level by validation rows, set its attributes, and list its faults.

        It is the level of largest AUC among those that meet all constraints there, or else of
        least violation. Constraints without a value count as not met. Where the AUC has none, the
        last level is chosen. Faults have the codes of warnings.
        """
        compiled = sets.compiled
        scores = [self._score.scores(level.point.parameters, validation.X) for level in levels]
        auc = np.array([sets.auc(validation, of_level) for of_level in scores])
        measured = [sets.values(validation, of_level) for of_level in scores]
        values = np.array([of_level for of_level, _ in measured])
        is_known = np.array([known for _, known in measured], dtype=bool)
        signs = np.array([constraint.sign for constraint in compiled.constraints])
        excess = np.nan_to_num(signs * (values - compiled.bounds))
        violation = excess.max(axis=1, initial=0.0)
        missed = np.where(violation > ROUNDING, violation, 0.0)
        ranks = np.arange(len(levels))[::-1], -np.nan_to_num(auc), missed
        chosen = int(np.lexsort((*ranks, (~is_known).sum(axis=1)))[0])

        level = levels[chosen]
        self._parameters, self.level_ = level.point.parameters, level.number
        is_positive = sets.inside(validation)[:, POSITIVES]
        self._log_odds = fit_log_odds(scores[chosen], is_positive, validation.weight, base_rate)
        self._fold_log_odds()
        columns: dict[str, Any] = {
            "level": [level.number for level in levels],
            "proximal_point": [level.proximal_point for level in levels],
            "r": [level.level * self._unit for level in levels],
            "upper_bound": [level.upper_bound * self._unit for level in levels],
            "rows": [level.n_rows for level in levels],
            "distance": [level.distance for level in levels],
            "auc": auc,
            "violation": violation,
            "chosen": np.arange(len(levels)) == chosen,
        }
        columns |= {f"value[{name}]": values[:, j] for j, name in enumerate(compiled.names)}
        self.history_ = pd.DataFrame(columns)
        on_training = np.full(len(compiled.constraints), np.nan)
        if training is not None:
            of_training = self._score.scores(self._parameters, training.X)
            on_training, _ = sets.values(training, of_training)
        satisfied = pd.array(compiled.is_satisfied(values[chosen]), dtype="boolean")
        satisfied[~is_known[chosen]] = pd.NA
        self.constraint_report_ = pd.DataFrame(
            {
                "constraint": compiled.names,
                "bound": compiled.bounds,
                "train": on_training,
                "held_out": values[chosen],
                "multiplier": compiled.totals(level.multipliers),
                "satisfied": satisfied,
            }
        )
        return describe_faults(self.history_, self.constraint_report_, len(validation))

    def _fold_log_odds(self) -> None:
        """Write the log-odds of a linear score as one linear function of features."""
        if isinstance(self._score, LinearScore):
            slope, intercept = self._log_odds
            self.coef_ = slope * (self._parameters / self._score.scale)[None, :]
            self.intercept_ = np.array([intercept]) - self.coef_ @ self._score.centre
