r"""Linear rows of constraints, and the values that users bounded.

The rate of a group of few rows is mostly chance. Where multipliers and decisions would follow it,
the whole model pays for noise. So a comparison of groups acts on credible rates,

.. math:: f'_g = Z_g f_g + (1 - Z_g) \bar f, \qquad Z_g = \frac{n_g}{n_g + k (G - 2)} ,

with :math:`n_g` the number of rows that the rate of group g of G is taken over, and
:math:`\bar f` the mean of all rows, or the reference that groups are compared with. This is the
credibility of Bühlmann ("Experience rating and credibility", ASTIN Bulletin, 1967), the best
linear estimate of the rate of a group. Its constant grows with the number of groups, since the
largest of many differences is more often chance. As with the estimator of James and Stein (1961),
there is nothing to gain from others where there are two. The map is linear, so that gradients,
searches and standard errors see functionals as any others. Reports, verdicts and certificates are
about the rates as they are.

A curved row bounds a function :math:`\psi(f)` of functionals. Each functional that it depends on
has rows :math:`\pm f_k` here, its *directions*. With the price :math:`\nu` of the curved row, the
gradient of the Lagrangian is that of

.. math:: \nu \sum_k \frac{\partial \psi}{\partial f_k} f_k ,

by the chain rule. The multiplier of a direction is therefore the price times the part of the
derivative that has its sign, at the current functionals. Prices move by the values of
:math:`\psi`, which are the left-hand sides of all directions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress, pairwise
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linprog

from gbm_constrained._typing import Bool, Codes, Float
from gbm_constrained.constraints.base import ROUNDING, Constraint, CurvedRow, CurveFunction
from gbm_constrained.constraints.comparisons import Grouped
from gbm_constrained.constraints.rates import RowFunction, row_functions_of
from gbm_constrained.data.cells import Cells, CellStatistics
from gbm_constrained.problem.blocks import PairBlock, ResidualBlock, tabulate
from gbm_constrained.problem.functionals import (
    Group,
    RateParts,
    SmallGroup,
    WeightedFraction,
    WeightedLoss,
    unique_names,
)
from gbm_constrained.problem.losses import curvature_range

CREDIBLE_ROWS = 25.0
"""Rows, for each group beyond two, at which the rate of a group by itself counts one half."""


def find_half(constraint: Constraint, size: int) -> Float:
    """Find the rows at which a group and the mean of all count alike, by functional."""
    n_groups = size // max(len(constraint.rates), 1)
    return np.full(size, CREDIBLE_ROWS * (n_groups - 2))


def acts_by_credibility(constraint: Constraint) -> bool:
    """Whether a constraint compares groups that are not held at any price."""
    expression = constraint.expression
    return isinstance(expression, Grouped) and expression.small_groups != "hold"


def keep_rows(table: Any, is_kept: Bool) -> Any:
    """Empty the other rows of a sparse matrix."""
    kept = sparse.csr_array(table.multiply(is_kept[:, None]))
    kept.eliminate_zeros()  # A stored zero times NaN would be NaN.
    return kept


@dataclass(frozen=True)
class LinearMap:
    """A sparse matrix whose products with vectors take a fraction of the time of scipy's operator.

    Entries are added up in the same order.

    Parameters
    ----------
    data, row, column : ndarray of shape (n_entries,)
        Entries and their places, by row.
    shape : tuple of int
        Numbers of rows and columns.
    """

    data: Float
    row: Codes
    column: Codes
    shape: tuple[int, int]

    @classmethod
    def from_csr(cls, matrix: Any) -> LinearMap:
        """Copy the entries of a csr_array in their order, which scipy may change later."""
        row = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
        return cls(matrix.data.copy(), row, matrix.indices.astype(np.intp), matrix.shape)

    def __call__(self, vector: Float) -> Float:
        """Multiply the matrix by a vector."""
        found = np.bincount(self.row, self.data * vector[self.column], self.shape[0])
        return found.astype(np.float64, copy=False)  # Without entries numpy counts.

    def transposed(self, vector: Float) -> Float:
        """Multiply the transposed matrix by a vector."""
        found = np.bincount(self.column, self.data * vector[self.row], self.shape[1])
        return found.astype(np.float64, copy=False)

    def times(self, other: LinearMap) -> tuple[LinearMap, LinearMap]:
        """Prepare products with matrices that have entries at the places of another one.

        Returns the map from these entries to those of the product, and the product.
        """
        ends = np.searchsorted(other.row, np.arange(self.shape[1] + 1))
        size = np.diff(ends)[self.column]
        own = np.repeat(np.arange(self.data.size), size)
        theirs = np.arange(own.size) + np.repeat(ends[self.column] - np.cumsum(size) + size, size)
        place = self.row[own] * other.shape[1] + other.column[theirs]
        found, at = np.unique(place, return_inverse=True)
        entries = LinearMap(self.data[own], at, theirs, (found.size, other.data.size))
        row, column = np.divmod(found, other.shape[1])
        shape = self.shape[0], other.shape[1]
        return entries, LinearMap(entries(other.data), row, column, shape)


def find_opposites(matrix: Any, is_compared: Bool) -> list[tuple[int, int]]:
    """List the pairs of rows of a sparse matrix with opposite coefficients, each row once."""
    pairs, alone = list[tuple[int, int]](), dict[tuple[bytes, bytes], int]()
    ordered = matrix.sorted_indices()
    for j, (start, end) in enumerate(pairwise(ordered.indptr)):
        if not is_compared[j]:
            continue
        at, value = ordered.indices[start:end].tobytes(), ordered.data[start:end]
        i = alone.pop((at, (-value).tobytes()), None)
        if i is None:
            alone[at, value.tobytes()] = j
        else:
            pairs.append((i, j))
    return pairs


# By default programmes are solved to 1e-7, and smaller violations are traded for the objective.
OPTIONS: Any = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}


def solve_linear_programme(cost: Any, rows: Any, right: Any, bounds: Any, **equations: Any) -> Any:
    """Minimise ``cost @ x`` with ``rows @ x <= right``; ``x`` is None if nothing is feasible."""
    given: Any = {"A_ub": rows, "b_ub": right, "bounds": bounds, **equations}
    found = linprog(cost, method="highs-ds", options=OPTIONS, **given)
    if found.status == 4:  # Numerical difficulties, which interior points do not have.
        found = linprog(cost, method="highs-ipm", options=OPTIONS, **given)
    return found


@dataclass(frozen=True)
class CurveDirections:
    """A curved row, and its directions among the linear rows.

    Parameters
    ----------
    row : CurvedRow
        The curved row.
    first : int
        Position of the first direction; the others follow.
    """

    row: CurvedRow
    first: int

    @cached_property
    def directions(self) -> list[tuple[int, float]]:
        """Functional of each direction, as a position in `row`, and its sign.

        There are both signs where a derivative may have either.
        """
        return [
            (i, sign)
            for i, known in enumerate(self.row.function.signs)
            for sign in (1.0, -1.0)
            if known in (0, sign)
        ]

    @property
    def rows(self) -> slice:
        """Positions of the directions among the linear rows."""
        return slice(self.first, self.first + len(self.directions))

    @property
    def at(self) -> Codes:
        """Positions of the functionals."""
        return np.array(self.row.at, dtype=np.intp)

    def combine(self, derivatives: Float) -> Float:
        """Add up the parts of the derivatives of the directions, by functional of the row."""
        at, sign = np.array(self.directions).T
        weight = sign * derivatives[self.rows]
        return np.bincount(at.astype(np.intp), weight, len(self.row.at)).astype(np.float64)


@dataclass(frozen=True)
class Curves:
    """The curved rows of constraints.

    Parameters
    ----------
    n_rows : int, default=0
        Number of linear rows, directions among them.
    items : tuple of CurveDirections, default=()
        The curved rows.
    """

    n_rows: int = 0
    items: tuple[CurveDirections, ...] = ()

    @cached_property
    def is_curved(self) -> Bool:
        """Whether each linear row is a direction of a curve, shape (n_rows,)."""
        found = np.zeros(self.n_rows, dtype=bool)
        for curve in self.items:
            found[curve.rows] = True
        return found

    @cached_property
    def alike(self) -> list[tuple[CurveFunction, Codes, Codes]]:
        """The functions, with the curves of each, (n,), and their functionals, (k, n)."""
        members: dict[CurveFunction, list[int]] = {}
        for i, curve in enumerate(self.items):
            members.setdefault(curve.row.function, []).append(i)
        places = [curve.row.at for curve in self.items]
        return [
            (function, np.array(own), np.array([places[i] for i in own], dtype=np.intp).T)
            for function, own in members.items()
        ]

    @cached_property
    def bounds(self) -> Float:
        """Bound of each curve."""
        return np.array([curve.row.bound for curve in self.items])

    def values(self, functionals: Float) -> Float:
        """Compute the value of each curve at functionals of shape (n_functionals, ...).

        It is NaN where a functional is unknown. A function without a value at known functionals,
        as a quotient of zeros is, holds.
        """
        found = np.zeros((len(self.items), *functionals.shape[1:]))
        for function, own, at in self.alike:
            of_each = functionals[at]
            value = function.values(of_each.reshape(len(at), -1)).reshape(of_each.shape[1:])
            is_undefined = np.isnan(value) & ~np.isnan(of_each).any(axis=0)
            bound = self.bounds[own].reshape(-1, *[1] * (value.ndim - 1))
            found[own] = np.where(is_undefined, bound, value)
        return found

    @cached_property
    def opposites(self) -> list[tuple[int, int]]:
        """Pairs of directions of two curves that differ in which group is ahead.

        At most one of the two curves binds, and the other has no price beside it.
        """
        known = {(curve.row.function, curve.row.at): curve for curve in self.items}
        found = []
        for curve in self.items:
            function, at = curve.row.function, curve.row.at
            other = known.get((function, function.opposite(at) or at))
            if other is not None and curve.first < other.first:
                n = len(curve.directions)
                found += [(curve.first + i, other.first + i) for i in range(n)]
        return found

    def keep(self, kept: Bool) -> Curves:
        """Keep the curves whose directions are kept, at their places among the rows left."""
        before: Codes = np.cumsum(kept) - kept
        items = tuple(
            replace(curve, first=int(before[curve.first]))
            for curve in self.items
            if kept[curve.first]
        )
        return Curves(int(kept.sum()), items)

    def without(self, left_out: Bool) -> Curves:
        """Leave out curves whose directions bind nothing, and keep the places of others."""
        return replace(self, items=tuple(c for c in self.items if not left_out[c.first]))

    def derivatives(self, functionals: Float) -> Float:
        """Compute the multiplier of each row under a price of one, shape (n_rows,).

        It is one for straight rows, and the part of the derivative for directions of curves.
        """
        found, slopes = np.ones(self.n_rows), self.gradients(functionals)
        for (_, own, _), slope in zip(self.alike, slopes, strict=True):
            k, sign = np.array(self.items[own[0]].directions).T
            first = np.array([self.items[i].first for i in own.tolist()])
            parts = np.maximum(sign[:, None] * slope[k.astype(np.intp)], 0.0)
            found[first + np.arange(k.size)[:, None]] = parts
        return found

    def gradients(self, functionals: Float) -> list[Float]:
        """Compute the gradients of the curves of each function, (k, n), zero where undefined."""
        found = []
        for function, _, at in self.alike:
            own = functionals[at]
            is_known, slope = ~np.isnan(function.values(own)), np.zeros(own.shape)
            if is_known.any():
                slope[:, is_known] = function.gradient(own[:, is_known])
            found.append(slope)
        return found

    def prices(self, multipliers: Float, derivatives: Float) -> Float:
        """Find the price of each row from its multiplier; directions of a curve share theirs.

        Multipliers of a curve are its price times its derivatives, by least squares: derivatives
        may have changed since, as those of bins do that were empty.
        """
        found = multipliers.copy()
        for curve in self.items:
            slopes = derivatives[curve.rows]
            square = float(slopes @ slopes)
            found[curve.rows] = multipliers[curve.rows] @ slopes / square if square > 0.0 else 0.0
        return found


@dataclass(frozen=True)
class LinearConstraints:
    """Linear rows ``R f <= b`` over functionals f, and the values that users bounded.

    Parameters
    ----------
    tables : Coefficients of each cell statistic in each functional, csr_array (n_functionals,
        size of the statistic), by name: the predicted fractions, (n_cells * n_classes), the mean
        losses, (n_cells), and the entries of the tables of pairs and of mean residuals.
    pair_blocks : Blocks of cells that the tables of pairs are of.
    residual_blocks : Blocks of cells and bins that the tables of mean residuals are of.
    constant : (n_functionals,). Constant parts.
    R : (m, n_functionals). Coefficients of the functionals in each row.
    b : (m,). Right-hand sides of the rows, with the constants moved there.
    unit : (m,). Change of the bounded value for one of a row: costs are scaled as rates are.
    rows, all_rows : Names of the rows, no two alike. `all_rows` holds those of idle constraints as
        well, which have no other entry by row.
    owner : (m,). Position of the constraint that each row belongs to.
    spans : The functionals of each constraint.
    groups : The groups of each constraint, in the order of its functionals; empty without groups.
    cost_range : (m, n_cells). Largest difference of a row's coefficients between two predicted
        classes of a cell.
    may_reward_errors : (m,). Whether a row rewards errors on some rows of data, or depends on rows
        without a label, as selection rates and gaps do. The convex proxy suits these badly: its
        gradient is largest at the rows furthest from the decision. Agreement with another model
        (churn) is no reward of errors, because the decisions of that model can be learned.
    must_reward_errors : (m,). Whether a row rewards errors on rows of several labels that it does
        not distinguish otherwise, while no one decision makes all of these errors, as a gap of
        error rates does. The booster then memorises which of these rows are wrong.
    splits_targets : (m,). Whether several classes, but not all, cost least on some rows of data,
        as where predicting one of three classes has a cost. The convex proxy moves such rows to
        all of these classes at once.
    terms : What each functional adds up, next to its constant; None where it is undefined.
    curves : Rows that are no straight lines. Each of their directions is a linear row, whose
        left-hand side is the value of the curve.
    mixing : (n_functionals, n_functionals). Coefficients of the functionals as stated in those of
        this object, whose groups act as far as their rows can tell; None where they are the same.
    half : (n_functionals,). Rows at which a group counts as much as all groups together, where
        `mixing` depends on the functional; None otherwise.
    stated : The constraints as stated, which `terms` are of as well; None where they are these.
    """

    constraints: tuple[Constraint, ...]
    tables: Mapping[str, Any]
    pair_blocks: tuple[PairBlock, ...]
    residual_blocks: tuple[ResidualBlock, ...]
    constant: Float
    R: Any
    b: Float
    unit: Float
    rows: tuple[str, ...]
    all_rows: tuple[str, ...]
    owner: Codes
    spans: tuple[slice, ...]
    groups: tuple[tuple[Group, ...], ...]
    cost_range: Any
    may_reward_errors: Bool
    must_reward_errors: Bool
    splits_targets: Bool
    terms: tuple[RateParts, ...]
    small: tuple[SmallGroup, ...] = ()
    curves: Curves = Curves()
    mixing: Any = None
    half: Float | None = None
    stated: LinearConstraints | None = None

    def __len__(self) -> int:
        return self.b.size

    @cached_property
    def parts(self) -> tuple[tuple[WeightedFraction, ...] | None, ...]:
        """Terms of the functionals that are sums of fractions; None for other functionals."""
        return tuple(
            cast("tuple[WeightedFraction, ...]", terms)
            if terms is not None and all(isinstance(one, WeightedFraction) for one in terms)
            else None
            for terms in self.terms
        )

    @cached_property
    def names(self) -> list[str]:
        """Names of the constraints, no two alike."""
        return unique_names(self.constraints)

    @cached_property
    def functional_names(self) -> list[str]:
        """Names of the functionals, which are rates of all rows or of groups; no two alike."""
        names: list[str] = []
        for c, span, groups in zip(self.constraints, self.spans, self.groups, strict=True):
            found = [str(rate) for rate in c.rates]
            if isinstance(c.expression, Grouped):
                of_groups = [str(rate.restrict(*g.selectors)) for g in groups for rate in c.rates]
                found = of_groups + found
            names += found[: span.stop - span.start]  # The last rates are those of all rows.
        return unique_names(names)

    def left_out(self, j: int) -> tuple[str, ...]:
        """Name the groups that constraint j does not compare, for want of rows."""
        of = self.constraints[j]
        found = [one for one in self.small if one.constraint == of]
        return tuple(str(one.group) for one in found if one.treatment == "left out")

    @property
    def U(self) -> Any:  # noqa: N802 - mathematics
        """Coefficients of the predicted fractions, (n_functionals, n_cells * n_classes)."""
        return self.tables["predicted"]

    @property
    def V(self) -> Any:  # noqa: N802
        """Coefficients of the mean losses, (n_functionals, n_cells)."""
        return self.tables["loss"]

    def row_table(self, statistic: str) -> Any:
        """Coefficients of a cell statistic in each row, (m, size of the statistic)."""
        made: dict[str, Any] = vars(self).setdefault("_row_tables", {})
        if statistic not in made:
            made[statistic] = self.R @ self.tables[statistic]
        return made[statistic]

    @cached_property
    def _maps_of_functionals(self) -> dict[str, LinearMap]:
        return {name: LinearMap.from_csr(table) for name, table in self.tables.items()}

    @cached_property
    def _row_map(self) -> tuple[LinearMap, Float]:
        return LinearMap.from_csr(self.R), np.nan_to_num(self.constant)

    @property
    def A(self) -> Any:  # noqa: N802
        """Coefficients of the predicted fractions in each row, (m, n_cells * n_classes)."""
        return self.row_table("predicted")

    @property
    def B(self) -> Any:  # noqa: N802
        """Coefficients of the mean losses in each row, (m, n_cells)."""
        return self.row_table("loss")

    def find_stated(self, statistics: CellStatistics, functionals: Float) -> Float:
        """Compute the functionals as stated, given those of this object."""
        return functionals if self.stated is None else self.stated.functionals(statistics)

    @property
    def statistics(self) -> frozenset[str]:
        """Names of the cell statistics that rows of constraints depend on."""
        used = np.unique(self.R.indices)
        return frozenset(
            name for name, table in self.tables.items() if np.diff(table.indptr)[used].any()
        )

    @cached_property
    def opposites(self) -> tuple[Codes, Codes]:
        """Positions of pairs of rows with opposite coefficients, as a gap of two groups has."""
        pairs = [*self.curves.opposites, *find_opposites(self.R, ~self.curves.is_curved)]
        first, second = np.array(pairs, dtype=np.intp).reshape(-1, 2).T
        return first, second

    def costs(self, multipliers: Float, statistic: str = "predicted") -> Float:
        """Add up the coefficients of a cell statistic in each row, weighted by multipliers."""
        of_functionals = self._row_map[0].transposed(multipliers)
        return self._maps_of_functionals[statistic].transposed(of_functionals)

    def functionals(self, statistics: CellStatistics) -> Float:
        """Compute the value of each functional."""
        if not self.constant.size:  # Tables of predictions of numbers have no columns.
            return self.constant
        maps = self._maps_of_functionals
        hard = maps["predicted"](statistics.predicted.ravel())
        found = hard + maps["loss"](statistics.clipped_loss) + self.constant
        for name in ("pairs", "residuals"):
            if (table := getattr(statistics, name)) is not None:
                found = found + maps[name](table)
        return found

    def rows_of(self, functionals: Float) -> Float:
        """Compute the left-hand side of each row from the functionals; shape (m,)."""
        multiply, constant = self._row_map
        found = multiply(functionals - constant)
        for curve, value in zip(self.curves.items, self.curves.values(functionals), strict=True):
            found[curve.rows] = value
        return found

    def tangent(self, functionals: Float) -> LinearConstraints:
        """Replace the directions of curved rows by their tangents at some functionals."""
        if not self.curves.items:
            return self
        b, values = self.b.copy(), self.curves.values(functionals)
        straight = keep_rows(self.R, ~self.curves.is_curved).tocoo()
        entries = [(straight.data, *straight.coords)]
        slopes = self.curves.gradients(functionals)
        # Right-hand sides have been reduced by the constants.
        given = np.nan_to_num(functionals) - np.nan_to_num(self.constant)
        for (_, own, at), slope in zip(self.curves.alike, slopes, strict=True):
            moved = (slope * given[at]).sum(axis=0)
            for n, i in enumerate(own.tolist()):
                curve, rows = self.curves.items[i], self.curves.items[i].rows
                b[rows] = curve.row.bound - values[i] + moved[n]
                row = np.repeat(np.arange(rows.start, rows.stop), at.shape[0])
                size = rows.stop - rows.start
                entries.append((np.tile(slope[:, n], size), row, np.tile(at[:, n], size)))
        data, row, column = map(np.concatenate, zip(*entries, strict=True))
        R = sparse.csr_array((data, (row, column)), shape=self.R.shape)
        R.eliminate_zeros()
        return replace(self, R=R, b=b, curves=Curves(len(self)))

    def rates(self, statistics: CellStatistics) -> Float:
        """Compute the left-hand side of each row from cell statistics; shape (m,)."""
        return self.rows_of(self.functionals(statistics))

    def violations(self, statistics: CellStatistics) -> Float:
        """Compute ``g``, left-hand side minus right-hand side of each row; shape (m,)."""
        return self.rates(statistics) - self.b

    def values(self, functionals: Float) -> Float:
        """Compute what each constraint bounds, NaN where undefined; shape (n_constraints,)."""
        pairs = zip(self.constraints, self.spans, strict=True)
        found = [constraint.value(functionals[span]) for constraint, span in pairs]
        return np.array(found, dtype=np.float64)

    @property
    def bounds(self) -> Float:
        """Bound of each constraint, shape (n_constraints,)."""
        return np.array([c.bound for c in self.constraints], dtype=np.float64)

    @property
    def ranges(self) -> Float:
        """Smallest and largest value of what each constraint bounds, (n_constraints, 2)."""
        return np.array([c.expression.range for c in self.constraints], dtype=np.float64).reshape(
            -1, 2
        )

    @property
    def ranges_of_rates(self) -> Float:
        """Smallest and largest value of each functional, (n_functionals, 2)."""
        ranges = np.empty((self.constant.size, 2))
        for constraint, span in zip(self.constraints, self.spans, strict=True):
            ranges[span] = np.resize([rate.range for rate in constraint.rates], ranges[span].shape)
        return ranges

    @property
    def is_known(self) -> Bool:
        """Whether the data determine each row of constraints, shape (m,); see :meth:`on`."""
        return np.asarray(np.diff(self.R.indptr) > 0)

    def is_satisfied(self, values: Float) -> Any:
        """Whether each value satisfies the bound of its constraint, False where undefined."""
        sign = np.array([c.sign for c in self.constraints])
        with np.errstate(invalid="ignore"):
            return sign * (values - self.bounds) <= ROUNDING

    def further_groups(self, training: LinearConstraints) -> list[Group]:
        """List the groups that the same constraints on training rows do not have."""
        return [
            group
            for own, known in zip(self.groups, training.groups, strict=True)
            for group in own
            if group.name not in {other.name for other in known}
        ]

    def positions_in(self, other: LinearConstraints) -> Codes:
        """Find the positions of the functionals among those of an evaluation set."""
        found = [np.zeros(0, dtype=np.intp)]
        for constraint, own, theirs in zip(self.constraints, self.spans, other.spans, strict=True):
            at = theirs.start + np.arange(own.stop - own.start)
            if constraint.expression.reference is not None:
                n = len(constraint.rates)
                at[-n:] = theirs.stop - n + np.arange(n)  # The reference comes last.
            found.append(at)
        return np.concatenate(found)

    def by_row(self, of_constraints: Sequence[Any], dtype: Any) -> NDArray[Any]:
        """Give each row of constraints what its constraint has, shape (m,)."""
        return np.asarray(np.array(of_constraints, dtype=dtype)[self.owner])

    def totals(self, of_rows: Float) -> Float:
        """Sum a quantity of rows, such as multipliers, by constraint."""
        return np.bincount(self.owner, of_rows, len(self.constraints)).astype(np.float64)

    def without_rows_of(self, idle: Collection[int]) -> LinearConstraints:
        """Leave out the rows of idle constraints, which are reported and bind nothing."""
        kept = ~np.isin(self.owner, list(idle))
        if kept.all():
            return self
        properties = ("cost_range", "may_reward_errors", "must_reward_errors", "splits_targets")
        by_row = ("R", "b", "unit", "owner", *properties)
        left: dict[str, Any] = {name: getattr(self, name)[kept] for name in by_row}
        rows, curves = tuple(compress(self.rows, kept)), self.curves.keep(kept)
        return replace(self, rows=rows, curves=curves, **left)

    def on(self, cells: Cells) -> LinearConstraints:
        """Leave out the cells that part of the rows leaves empty.

        The other cells of a rate replace them, in their shares of the whole. A rate with no other
        cells is undefined, and so are the rows of constraints with it, which bind nothing.
        """
        whole = cells.whole_weight
        left = np.where(cells.weight > 0, whole, 0.0)
        if (left == whole).all():
            return self
        if self.stated is not None:
            of_part = replace(self.stated, R=self.R, b=self.b, curves=self.curves).on(cells)
            return of_part.make_credible(cells, self.half)
        terms = tuple(
            parts if all(left[base].any() for part in parts or () for base in part.bases) else None
            for parts in self.terms
        )
        constant = np.where([parts is None for parts in terms], np.nan, self.constant)
        is_known = abs(self.R) @ np.isnan(constant) == 0
        for curve in self.curves.items:
            is_known[curve.rows] = not np.isnan(constant[curve.at]).any()
        return replace(
            self,
            tables=self._tabulate(terms, left),
            constant=constant,
            R=keep_rows(self.R, is_known),
            b=np.where(is_known, self.b, 0.0),
            cost_range=keep_rows(self.cost_range, is_known),
            terms=terms,
            curves=self.curves.without(~is_known),
        )

    def weigh_losses(self, weight: Float) -> Any:
        """Compute the coefficients of the mean losses for other weights of the cells."""
        losses = [
            tuple(part for part in parts or () if isinstance(part, WeightedLoss))
            for parts in self.terms
        ]
        V = self._tabulate(losses, weight)["loss"]
        return V if self.mixing is None else self.mixing @ V

    def _tabulate(self, terms: Sequence[RateParts], weight: Float) -> dict[str, Any]:
        """Compute the coefficients of functionals as stated for other weights of the cells."""
        n_classes = self.U.shape[1] // weight.size
        return tabulate(terms, weight, n_classes, self.pair_blocks, self.residual_blocks)

    def make_credible(self, cells: Cells, half: Float | None = None) -> LinearConstraints:
        """Let groups act as far as their rows can tell.

        Parameters
        ----------
        cells : Cells
            Partition of the rows that are measured.
        half : ndarray of shape (n_functionals,), default=None
            Rows at which the value of a group and the mean of all groups count alike.

        Returns
        -------
        LinearConstraints
            The same object where no group acts by less than it says.
        """
        if self.mixing is not None:
            return self
        mixing = self._mix_groups(cells, half)
        if mixing is None:
            return self
        is_known = ~np.isnan(self.constant)
        return replace(
            self,
            tables={name: mixing @ table for name, table in self.tables.items()},
            constant=np.where(is_known, mixing @ np.nan_to_num(self.constant), np.nan),
            mixing=mixing,
            half=half,
            stated=self,
        )

    def leave_room(self, room: Float | None) -> LinearConstraints:
        """Take room off each right-hand side, (m,); None returns the same object."""
        return self if room is None else replace(self, b=self.b - room)

    def _mix_groups(self, cells: Cells, half: Float | None) -> Any:
        """Find the coefficients of stated functionals in credible ones; None where none changes.

        A rate is taken over the rows of the smaller side of pairs. Groups whose `half` is zero are
        held at any price.
        """
        sizes = [
            (min(float(of[base].sum()) for term in terms for base in term.bases) if terms else 0.0)
            for of in (cells.weighted_count, cells.weight)
            for terms in self.terms
        ]
        n_rows, mass = np.split(np.array(sizes), 2)
        mixing, is_mixed = sparse.eye_array(len(self.terms), format="lil"), False
        for constraint, span in zip(self.constraints, self.spans, strict=True):
            size, n_rates = span.stop - span.start, max(len(constraint.rates), 1)
            n_groups = size // n_rates
            rows = find_half(constraint, size) if half is None else half[span]
            if n_groups < 2 or not acts_by_credibility(constraint) or not rows.any():
                continue
            is_mixed = True
            for position in range(n_rates):
                of_groups = np.arange(position, n_groups * n_rates, n_rates)
                at = span.start + of_groups
                own = 1.0 / (1.0 + rows[of_groups] / np.maximum(n_rows[at], 1.0))
                towards = mass[at] / mass[at].sum() if mass[at].any() else mass[at]
                if constraint.expression.reference is not None:
                    own[-1] = 1.0
                    towards = np.eye(at.size)[-1]
                mixing[np.ix_(at, at)] = np.diag(own) + (1.0 - own)[:, None] * towards
        return sparse.csr_array(mixing) if is_mixed else None

    @cached_property
    def is_of_scores(self) -> Bool:
        """Whether each functional holds something else than rates; shape (n_functionals,)."""
        others = (table for name, table in self.tables.items() if name != "predicted")
        return np.asarray(np.any([np.diff(table.indptr) > 0 for table in others], axis=0))

    @cached_property
    def has_scores(self) -> Bool:
        """Whether each row of constraints holds something else than rates; shape (m,)."""
        return np.asarray((np.diff(self.B.indptr) > 0) | self.has_tables)

    @cached_property
    def has_tables(self) -> Bool:
        """Whether each row holds pair rates or residuals, which no threshold changes; (m,)."""
        tables = (self.row_table(name) for name in ("pairs", "residuals"))
        return np.asarray(np.any([np.diff(table.indptr) > 0 for table in tables], axis=0))

    @property
    def has_tables_alone(self) -> bool:
        """Whether no threshold changes any row of constraints, and there is one at least."""
        return len(self) > 0 and bool(self.has_tables.all())

    @cached_property
    def row_functions(self) -> tuple[RowFunction, ...]:
        """Functions of the columns of each cell, where targets are numbers; none elsewhere."""
        return row_functions_of(self.constraints)

    @property
    def has_rates(self) -> Bool:
        """Whether each row holds 0-1 rates, or means of steps; shape (m,)."""
        if functions := self.row_functions:
            is_step = np.array([function.is_step for function in functions])
            rows = np.repeat(np.arange(len(self)), np.diff(self.A.indptr))
            found = is_step[self.A.indices % is_step.size] & (self.A.data != 0.0)
            return np.asarray(np.bincount(rows, found, len(self)) > 0)
        return np.asarray(np.diff(self.cost_range.indptr) > 0)

    @property
    def is_convex(self) -> bool:
        """Whether no row has a mean loss with a negative coefficient, which is concave.

        Of functions of numbers those of bounded curvature count.
        """
        if functions := self.row_functions:
            highest = np.array([curvature_range(function, scale=1.0)[1] for function in functions])
            is_convex = np.array([not function.is_step for function in functions])
            is_curved = is_convex & (highest > 0.0) & np.isfinite(highest)
            return not (self.A.data[is_curved[self.A.indices % len(functions)]] < 0.0).any()
        return self.B.nnz == 0 or bool(self.B.data.min() >= 0.0)


def find_levels(compiled: LinearConstraints) -> list[Bool]:
    """Find the rows of constraints of each priority, (m,) each, those that come first ahead."""
    priority = compiled.by_row([c.priority for c in compiled.constraints], int)
    return [priority == level for level in np.unique(priority)]


def find_first(compiled: LinearConstraints) -> Bool:
    """Find the rows of constraints of the priority that comes first, shape (m,)."""
    return np.asarray(find_first_constraints(compiled)[compiled.owner])


def find_first_constraints(compiled: LinearConstraints) -> Bool:
    """Find the constraints of the priority that comes first, shape (n_constraints,)."""
    priority = np.array([constraint.priority for constraint in compiled.constraints], dtype=int)
    return np.asarray(priority <= min(priority[compiled.owner].tolist(), default=1))


def violation_weights(compiled: LinearConstraints) -> Float:
    """Return the factor on the violation of each row of constraints, shape (m,)."""
    return compiled.by_row([c.violation_weight for c in compiled.constraints], float)


def compares_groups(compiled: LinearConstraints) -> Bool:
    """Find the rows of constraints that belong to a gap or a ratio of groups, shape (m,)."""
    return compiled.by_row([c.expression.compares_pairs for c in compiled.constraints], bool)


def is_priced(compiled: LinearConstraints) -> Bool:
    """Find the rows of comparisons of groups that have a price, and are not held at any."""
    kinds = [
        c.expression.compares_pairs and getattr(c.expression, "small_groups", "keep") != "hold"
        for c in compiled.constraints
    ]
    return compiled.by_row(kinds, bool)


def acts_in_full(compiled: LinearConstraints) -> Bool:
    """Find the rows of constraints that compare no groups, or hold them at any price, (m,)."""
    return compiled.by_row([not acts_by_credibility(c) for c in compiled.constraints], bool)
