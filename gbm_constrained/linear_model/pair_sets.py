"""Rows in the sets that constraints on pair rates compare, and streams of them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from gbm_constrained._typing import Bool, Codes, Float
from gbm_constrained.constraints.base import Constraint
from gbm_constrained.constraints.comparisons import Grouped
from gbm_constrained.data.cells import Cells
from gbm_constrained.data.rows import Rows, codes_among
from gbm_constrained.problem.compiler import compile_constraints, needs_of
from gbm_constrained.problem.functionals import WeightedPairs
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.problem.pairs import pair_rate, pair_table
from gbm_constrained.solvers.level_set import (
    NEGATIVES,
    POSITIVES,
    LevelSetSearch,
    PairRule,
    PairTerm,
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
        size = self.search.schedule.batch_size
        for start in range(0, len(training), size):
            batch = training.take(np.arange(start, min(start + size, len(training))))
            members = self.sets.members(batch)
            self._sum += members.sum(axis=0)
            self._n_rows += len(batch)
            mean = self._sum / self._n_rows
            ratios = np.divide(members, mean, out=np.zeros_like(members), where=mean > 0)
            self.search.update(batch.X, ratios)
        return len(self.search.levels) > n_levels
