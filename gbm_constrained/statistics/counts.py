"""Counts of decisions by cell and predicted class, and sums of fractions of rows.

Intervals, p-values and certificates depend on these counts alone (:class:`CellCounts`).

A functional of constraints adds up *parts*, fractions of the rows of a base set
(:class:`gbm_constrained.problem.functionals.WeightedFraction`). Parts over the same base set are
one *block*, a :class:`MeanScore`: the mean of a score, a function of a row's cell and predicted
class. Given which rows are in the base set, these scores are independent with one distribution. A
row of constraints over one block, ``sum_k c_k part_k <= b``, is then a statement about a binomial
or a bounded mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from gbm_constrained._typing import Bool, Codes, Float
from gbm_constrained.data.cells import Cells
from gbm_constrained.data.exact_sums import Values, sum_over_machines
from gbm_constrained.problem.functionals import WeightedFraction
from gbm_constrained.problem.linear_constraints import LinearConstraints, LinearMap


def effective_rows(weight: Float, square: Float) -> Float:
    """Compute Kish's effective number of rows, ``(sum w)^2 / sum w^2``; 0 without weight.

    `weight` and `square` are sums of weights and of their squares.
    """
    return np.divide(weight**2, square, out=np.zeros(np.shape(weight)), where=weight > 0)


def are_equal(weight: Float, square: Float, count: Float) -> Bool:
    """Whether rows all weigh the same, by their sums (Cauchy-Schwarz)."""
    # The tolerance is that of the squared coefficient of variation.
    return np.asarray(square * count <= weight**2 * (1.0 + 1e-9))


@dataclass(frozen=True, eq=False)
class CellCounts:
    """Numbers of rows by cell and predicted class, with leading axes for grids of thresholds."""

    weight: Float  # Sums of weights, (..., n_cells, n_classes).
    square: Float  # Sums of squared weights.
    count: Float  # Numbers of rows with positive weight.

    @property
    def shares(self) -> Float:
        """Share of each cell that is decided as each class; 0 for cells without weight."""
        total = self.weight.sum(axis=-1, keepdims=True)
        shares = np.zeros_like(self.weight)
        np.divide(self.weight, total, out=shares, where=total > 0)
        return shares

    @classmethod
    def of(cls, cells: Cells, decisions: ArrayLike) -> CellCounts:
        """Count decisions, given as class indices."""
        return cls(*_tables(cells, np.asarray(decisions, dtype=np.intp), cells.classes.size))

    @classmethod
    def of_shares(cls, cells: Cells, shares: Float) -> CellCounts:
        """Count decisions, given the share of each cell that is predicted as a class."""
        return cls.undecided(cells).decide(shares)

    @classmethod
    def undecided(cls, cells: Cells) -> CellCounts:
        """Count the rows of each cell before they are decided, (n_cells, 1)."""
        weight, squares = cells.rows.weight, cells.count
        if weight is not None:
            (squares,) = sum_over_machines(cells.total, [weight**2], cells.communicator)
        if cells.has_amounts:
            squares = cells.total(None if weight is None else weight**2, power=2)
        totals = cells.weight, squares, cells.weighted_count
        return cls(*(total[:, None] for total in totals))

    def decide(self, shares: Float) -> CellCounts:
        """Divide the rows of each cell by the share that is predicted as each class."""
        tables = self.weight, self.square, self.count
        return CellCounts(*(shares * table.sum(axis=-1, keepdims=True) for table in tables))

    @classmethod
    def of_probabilities(cls, cells: Cells, shares: Float) -> CellCounts:
        """Count randomised decisions, given the probability of each decision on each row."""
        w = np.ones(len(shares)) if cells.rows.weight is None else cells.rows.weight

        def add(x: Float, power: int) -> Float:
            total = partial(cells.total, power=power)
            of_classes = (
                sum_over_machines(total, [x * share], cells.communicator)[0] for share in shares.T
            )
            return np.stack([*of_classes], axis=-1)

        return cls(add(w, 1), add(w * w, 2), add((w > 0).astype(np.float64), 0))

    @classmethod
    def at_thresholds(cls, cells: Cells, scores: ArrayLike, thresholds: ArrayLike) -> CellCounts:
        """Count the decisions ``score > threshold`` of two classes, (n_thresholds, n_cells, 2)."""
        order = np.argsort(thresholds)
        exceeded = np.searchsorted(np.asarray(thresholds)[order], np.asarray(scores), side="left")
        tables = []
        for table in _tables(cells, exceeded, order.size + 1):
            below = table.cumsum(axis=1)  # Scores that exceed so many thresholds or fewer.
            two = np.stack([below, below[:, -1:] - below], axis=-1)[:, :-1]
            sorted_back = np.empty((order.size, len(cells), 2))
            sorted_back[order] = two.swapaxes(0, 1)
            tables.append(sorted_back)
        return cls(*tables)


def _tables(cells: Cells, column: Codes, width: int) -> Float:
    """Add up weights, squares and numbers of rows by cell and column; (3, n_cells, width)."""
    w = cells.rows.weight
    of_rows = [None] if w is None else [w, w * w, w > 0]
    places = [view.codes * width + column for view in cells.views]

    def add(x: Values) -> Float:
        table = np.zeros(len(cells) * width)
        for place in places:
            table += np.bincount(place, x, table.size)
        return table.reshape(-1, width)

    tables = sum_over_machines(add, of_rows, cells.communicator)
    tables = np.broadcast_to(tables, (3, len(cells), width))
    if not cells.has_amounts:
        return tables
    tables = tables.copy()
    for view in cells.views:
        if view.amount is not None:
            weighed = view.weigh(w)
            at = view.small_codes.astype(np.intp) * width + column
            for table, x in zip(tables, (weighed, weighed**2, weighed > 0), strict=True):
                table[view.cells] = np.bincount(at, x, len(view) * width).reshape(-1, width)
    return tables


@dataclass(frozen=True, eq=False)
class MeanScore:
    """The mean of a score over a base set."""

    cells: Codes
    score: Float  # (len(cells), n_classes)
    largest_amount: float | None = None  # Bound of what rows count for; None where that is one.
    is_counted: bool = True  # Whether each row has one of the values, and not shares of several.

    @cached_property
    def values(self) -> Float:
        """Values that the score can have."""
        return np.unique(np.round(self.score, 12))

    @property
    def low(self) -> float:
        """Smallest value."""
        return float(self.values[0])

    @property
    def high(self) -> float:
        """Largest value."""
        return float(self.values[-1])

    @property
    def width(self) -> float:
        """Difference of the largest and the smallest value."""
        return self.high - self.low

    @property
    def is_binomial(self) -> bool:
        """Whether the score of each row is one of two values."""
        return self.is_counted and self.values.size == 2

    def reaches(self, value: float) -> Bool:
        """Find the cells and classes where the score has a value."""
        return np.asarray(np.round(self.score, 12) == value)

    def sum(self, table: Float, where: Float | Bool | None = None) -> Float:
        """Sum a table over the base set, or its product with another table."""
        inside = table[..., self.cells, :]
        return np.asarray((inside if where is None else inside * where).sum(axis=(-2, -1)))

    def mean(self, table: Float) -> Float:
        """Compute the mean of the score, weighted by a table; NaN without weight."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(self.sum(table, self.score) / self.sum(table))

    def effective_rows(self, counts: CellCounts) -> Float:
        """Compute Kish's effective number of rows; 0 without weight."""
        return effective_rows(self.sum(counts.weight), self.sum(counts.square))

    def has_equal_weights(self, counts: CellCounts) -> bool:
        """Whether all rows of the base set weigh the same."""
        known: dict[MeanScore, bool] = vars(counts).setdefault("_equal_weights", {})
        if self not in known:  # Pairs of groups ask for each group again and again.
            sums = map(self.sum, (counts.weight, counts.square, counts.count))
            known[self] = bool(are_equal(*sums).all())
        return known[self]

    def count_events(self, counts: CellCounts) -> tuple[Float, Float]:
        """Count the rows whose score is the largest value, and all rows."""
        known: dict[MeanScore, Any] = vars(counts).setdefault("_events", {})
        if self not in known:
            events = self.sum(counts.count, self.reaches(self.high))
            known[self] = events, self.sum(counts.count)
        events, n = known[self]
        return events, n

    @cached_property
    def members(self) -> frozenset[int]:
        """Cells of the base set."""
        return frozenset(self.cells.tolist())


def blocks_of(parts: Sequence[WeightedFraction]) -> tuple[MeanScore, ...]:
    """Add up the parts over each base set."""
    found: dict[bytes, tuple[Codes, Any, float | None]] = {}
    for part in parts:
        score: Any = part.coefficient * part.event
        key = part.cells.tobytes()
        if key in found:
            score = score + found[key][1]
        found[key] = part.cells, score, part.largest_amount
    return tuple(MeanScore(*block) for block in found.values())


def scaled_parts(
    parts: Sequence[Sequence[WeightedFraction] | None], factors: Sequence[float]
) -> list[WeightedFraction] | None:
    """List the fractions of a sum of functionals, each times a factor; None without fractions."""
    if None in parts:
        return None
    return [
        replace(part, coefficient=factor * part.coefficient)
        for of_one, factor in zip(parts, factors, strict=True)
        for part in of_one or ()
    ]


def blocks_of_rows(
    compiled: LinearConstraints, where: Bool | None = None
) -> list[tuple[MeanScore, ...] | None]:
    """List the blocks of each row of constraints; None where it has a mean loss, or is curved.

    Rows share the blocks that they have in common, as those of a gap do. Outside of `where`, (m,),
    the list is None as well.
    """
    known = dict[tuple[bytes, bytes], MeanScore]()

    def read(j: int) -> tuple[MeanScore, ...] | None:
        at = slice(compiled.R.indptr[j], compiled.R.indptr[j + 1])
        parts = [compiled.parts[k] for k in compiled.R.indices[at]]
        scaled = scaled_parts(parts, compiled.R.data[at].tolist())
        if compiled.curves.is_curved[j] or scaled is None:
            return None
        blocks = blocks_of(scaled)
        keys = [(block.cells.tobytes(), block.score.tobytes()) for block in blocks]
        return tuple(map(known.setdefault, keys, blocks))

    if where is not None:
        return [read(j) if asked else None for j, asked in enumerate(where.tolist())]
    made: dict[str, Any] = vars(compiled)
    if "_blocks_of_rows" not in made:  # Certificates ask for them at each threshold.
        made["_blocks_of_rows"] = [read(j) for j in range(len(compiled))]
    return list(made["_blocks_of_rows"])


def functionals_of(compiled: LinearConstraints, counts: CellCounts) -> Float:
    """Compute the value of each functional on counted decisions, shape (..., n_functionals).

    Base sets have the weights of the counts, which may be of other rows than those compiled
    against. Mean losses, and rates over a base set without weight, are NaN.
    """
    return functionals_of_weights(compiled, counts.weight)


def functionals_of_weights(
    compiled: LinearConstraints, weight: Float, as_ones: Float | None = None
) -> Float:
    """Compute the value of each functional from weights of shape (..., n_cells, n_classes).

    Costs in amounts are divided by the rows of the base set, whose weights, without amounts, are
    those `as_ones`. By default the mean amount is that of the rows compiled against.
    """
    table = weight.reshape(*weight.shape[:-2], -1)
    rows = None if as_ones is None else as_ones.reshape(table.shape)
    return Fractions.of_constraints(compiled, weight.shape[-2:]).of(table, rows)


class Fractions:
    """Functionals of flat tables of weights, as sparse products."""

    @classmethod
    def of_constraints(cls, compiled: LinearConstraints, shape: tuple[int, ...]) -> Fractions:
        """Make the products of constraints once, since outer iterations ask for them again."""
        made: dict[tuple[int, ...], Fractions] = vars(compiled).setdefault("_fractions", {})
        if shape not in made:
            made[shape] = cls(compiled, shape)
        return made[shape]

    def __init__(self, compiled: LinearConstraints, shape: tuple[int, ...]) -> None:
        n_cells, n_classes = shape
        constant = compiled.constant if compiled.stated is None else compiled.stated.constant
        self.constant = np.where([p is None for p in compiled.parts], np.nan, constant)
        bases, events, of, coefficient, mean_amount = [], [], [], [], []
        for k, parts in enumerate(compiled.parts):
            for part in parts or ():
                at = part.cells[:, None] * n_classes + np.arange(n_classes)
                bases.append(at.ravel())
                events.append(part.event.ravel())
                of.append(k)
                coefficient.append(part.coefficient)
                mean_amount.append(np.nan if part.mean_amount is None else part.mean_amount)
        ends = np.cumsum([0, *(at.size for at in bases)])
        columns = np.concatenate([np.zeros(0, dtype=np.intp), *bases])
        size = len(bases), n_cells * n_classes
        self.bases = sparse.csr_array((np.ones(columns.size), columns, ends), shape=size)
        self.events = self.bases.copy()
        self.events.data = np.concatenate([np.zeros(0), *events])
        self.count_rows = LinearMap.from_csr(self.bases)
        self.count_events = LinearMap.from_csr(self.events)
        n = len(compiled.parts)
        self.each = sparse.eye_array(n, format="csr")  # Coefficients of functionals in themselves.
        self.stated_sum = sparse.csr_array((coefficient, (of, range(len(of)))), shape=(n, len(of)))
        self.mixing = compiled.mixing
        self.sum = self.stated_sum if self.mixing is None else self.mixing @ self.stated_sum
        self.mean_amount = np.array(mean_amount, dtype=np.float64)
        self._combined: tuple[Any, LinearMap, LinearMap] | None = None

    @cached_property
    def _summed(self) -> tuple[LinearMap, LinearMap]:
        return LinearMap.from_csr(self.sum).times(self.count_events)

    def combine(self, coefficients: Any, entries: Float) -> LinearMap:
        """Add up values of the cells and classes of fractions, in sums of functionals.

        Parameters
        ----------
        coefficients : csr_array of shape (n, n_functionals)
            Coefficients of the functionals in each sum.
        entries : ndarray
            A value for each entry of `events`.
        """
        of_functionals, functionals = self._summed
        if self._combined is None or self._combined[0] is not coefficients:
            maps = LinearMap.from_csr(coefficients).times(functionals)
            self._combined = coefficients, *maps
        _, of_sums, sums = self._combined
        return replace(sums, data=of_sums(of_functionals(entries)))

    def of(self, table: Float, as_ones: Float | None = None) -> Float:
        """Compute the functionals of tables of shape (..., n_cells * n_classes).

        `as_ones` are tables of the same rows without amounts, by whose number costs are divided.
        """
        flat = table.reshape(-1, table.shape[-1]).T
        whole = self.bases @ flat
        is_cost = ~np.isnan(self.mean_amount)
        if as_ones is not None and is_cost.any():
            rows = self.bases[is_cost] @ as_ones.reshape(flat.T.shape).T
            whole[is_cost] = rows * self.mean_amount[is_cost, None]
        with np.errstate(invalid="ignore", divide="ignore"):
            rates = (self.events @ flat) / whole
        values = (self.stated_sum @ rates).T + self.constant
        if self.mixing is not None:  # Undefined functionals count for nothing.
            share = (self.mixing @ (~np.isnan(values)).T.astype(np.float64)).T
            with np.errstate(invalid="ignore", divide="ignore"):
                values = (self.mixing @ np.nan_to_num(values).T).T / share
        return np.asarray(values).reshape(*table.shape[:-1], self.constant.size)
