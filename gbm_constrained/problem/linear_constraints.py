"""Linear rows of constraints, and the values that users bounded."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress
from typing import Any

import numpy as np
from scipy import sparse

from gbm_constrained._typing import Bool, Codes, Float
from gbm_constrained.constraints.base import ROUNDING, Constraint
from gbm_constrained.constraints.row_means import RowFunction, row_functions_of
from gbm_constrained.data.cells import Cells, CellStatistics
from gbm_constrained.problem.credibility import mix_groups
from gbm_constrained.problem.curved_rows import NO_CURVES, Curves
from gbm_constrained.problem.functionals import (
    MeanResidual,
    RatePart,
    WeightedFraction,
    WeightedPairs,
    fractions_of,
)
from gbm_constrained.problem.groups import Group, SmallGroup
from gbm_constrained.problem.names import name_functionals, unique_names
from gbm_constrained.problem.pair_blocks import PairBlock, pair_matrix
from gbm_constrained.problem.residual_blocks import ResidualBlock, residual_matrix
from gbm_constrained.problem.row_functions import has_concave_means, has_steps
from gbm_constrained.problem.sparse_products import find_opposites, keep_rows, product_with


@dataclass(frozen=True)
class LinearConstraints:
    """Linear rows ``R f <= b`` over functionals f, and the values that users bounded.

    Parameters
    ----------
    U : (n_functionals, n_cells * n_classes). Coefficients of the predicted fractions in each
        functional.
    V : (n_functionals, n_cells). Coefficients of the mean losses.
    Q : (n_functionals, n_pairs). Coefficients of the entries of the tables of pairs.
    pair_blocks : Blocks of cells that the tables of pairs are of.
    S : (n_functionals, n_entries). Coefficients of the entries of the tables of mean residuals.
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
    U: Any
    V: Any
    Q: Any
    pair_blocks: tuple[PairBlock, ...]
    S: Any
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
    terms: tuple[tuple[RatePart, ...] | None, ...]
    small: tuple[SmallGroup, ...] = ()
    curves: Curves = NO_CURVES
    mixing: Any = None
    half: Float | None = None
    stated: LinearConstraints | None = None

    def __len__(self) -> int:
        return self.b.size

    @cached_property
    def parts(self) -> tuple[tuple[WeightedFraction, ...] | None, ...]:
        """Terms of the functionals that are sums of fractions; None for other functionals."""
        return tuple(map(fractions_of, self.terms))

    @cached_property
    def names(self) -> list[str]:
        """Names of the constraints, no two alike."""
        return unique_names(self.constraints)

    @cached_property
    def functional_names(self) -> list[str]:
        """Names of the functionals, which are rates of all rows or of groups; no two alike."""
        return name_functionals(self.constraints, self.spans, self.groups)

    def left_out(self, j: int) -> tuple[str, ...]:
        """Name the groups that constraint j does not compare, for want of rows."""
        of = self.constraints[j]
        found = [one for one in self.small if one.constraint == of]
        return tuple(str(one.group) for one in found if one.treatment == "left out")

    @cached_property
    def A(self) -> Any:  # noqa: N802 - mathematics
        """Coefficients of the predicted fractions in each row, (m, n_cells * n_classes)."""
        return self.R @ self.U

    @cached_property
    def B(self) -> Any:  # noqa: N802
        """Coefficients of the mean losses in each row, (m, n_cells)."""
        return self.R @ self.V

    @cached_property
    def C(self) -> Any:  # noqa: N802
        """Coefficients of the tables of pairs in each row, (m, n_pairs)."""
        return self.R @ self.Q

    @cached_property
    def D(self) -> Any:  # noqa: N802
        """Coefficients of the tables of mean residuals in each row, (m, n_entries)."""
        return self.R @ self.S

    def find_stated(self, statistics: CellStatistics, functionals: Float) -> Float:
        """Compute the functionals as stated, given those of this object."""
        return functionals if self.stated is None else self.stated.functionals(statistics)

    @property
    def statistics(self) -> frozenset[str]:
        """Names of the cell statistics that rows of constraints depend on."""
        matrices = {"predicted": self.A, "loss": self.B, "pairs": self.C, "residuals": self.D}
        return frozenset(name for name, matrix in matrices.items() if matrix.nnz)

    @cached_property
    def opposites(self) -> tuple[Codes, Codes]:
        """Positions of pairs of rows with opposite coefficients, as a gap of two groups has."""
        pairs = [*self.curves.opposites, *find_opposites(self.R, ~self.curves.is_curved)]
        first, second = np.array(pairs, dtype=np.intp).reshape(-1, 2).T
        return first, second

    def costs(self, multipliers: Float) -> Float:
        """Add up rows of A, weighted by multipliers; shape (n_cells * n_classes,)."""
        return self._products["A.T"](multipliers)

    def loss_costs(self, multipliers: Float) -> Float:
        """Add up rows of B, weighted by multipliers; shape (n_cells,)."""
        return self._products["B.T"](multipliers)

    def pair_costs(self, multipliers: Float) -> Float:
        """Add up rows of C, weighted by multipliers; shape (n_pairs,)."""
        return self._products["C.T"](multipliers)

    def residual_costs(self, multipliers: Float) -> Float:
        """Add up rows of D, weighted by multipliers; shape (n_entries,)."""
        return self._products["D.T"](multipliers)

    def functionals(self, statistics: CellStatistics) -> Float:
        """Compute the value of each functional."""
        hard = self._products["U"](statistics.predicted.ravel())
        found = hard + self._products["V"](statistics.clipped_loss) + self.constant
        for name, table in (("Q", statistics.pairs), ("S", statistics.residuals)):
            if table is not None:
                found = found + self._products[name](table)
        return found

    def rows_of(self, functionals: Float) -> Float:
        """Compute the left-hand side of each row from the functionals; shape (m,)."""
        found = self._products["R"](functionals - self._finite_constant)
        for curve in self.curves.items:
            found[curve.rows] = curve.value(functionals)
        return found

    def tangent(self, functionals: Float) -> LinearConstraints:
        """Replace curved rows by their tangents at some functionals."""
        if not self.curves.items:
            return self
        R, b = self.curves.find_tangents(self.R, self.b, functionals, self._finite_constant)
        return replace(self, R=R, b=b, curves=Curves(len(self)))

    @cached_property
    def _products(self) -> dict[str, Callable[[Float], Float]]:
        """Functions that multiply vectors by the matrices, several times in each round."""
        return {
            "U": product_with(self.U),
            "V": product_with(self.V),
            "Q": product_with(self.Q),
            "S": product_with(self.S),
            "R": product_with(self.R),
            "A.T": product_with(self.A, transposed=True),
            "B.T": product_with(self.B, transposed=True),
            "C.T": product_with(self.C, transposed=True),
            "D.T": product_with(self.D, transposed=True),
        }

    @cached_property
    def _finite_constant(self) -> Float:
        return np.nan_to_num(self.constant)

    def rates(self, statistics: CellStatistics) -> Float:
        """Compute the left-hand side of each row from cell statistics; shape (m,)."""
        return self.rows_of(self.functionals(statistics))

    def violations(self, statistics: CellStatistics) -> Float:
        """Compute ``g``, left-hand side minus right-hand side of each row; shape (m,)."""
        return self.rates(statistics) - self.b

    def values(self, functionals: Float) -> Float:
        """Compute what each constraint bounds, NaN where undefined; shape (n_constraints,)."""
        single, start = self._single_rates
        values = np.empty(len(self.constraints))
        values[single] = functionals[start]
        for j in np.flatnonzero(~single):
            values[j] = self.constraints[j].value(functionals[self.spans[j]])
        return values

    @cached_property
    def _single_rates(self) -> tuple[Bool, Codes]:
        """Constraints on one rate, and the position of the rate among the functionals."""
        single = np.array([c.expression.is_linear for c in self.constraints], dtype=bool)
        start = [span.start for span in compress(self.spans, single)]
        return single, np.array(start, dtype=np.intp)

    @property
    def bounds(self) -> Float:
        """Bound of each constraint, shape (n_constraints,)."""
        return np.array([c.bound for c in self.constraints], dtype=np.float64)

    @property
    def ranges(self) -> Float:
        """Smallest and largest value of what each constraint bounds, (n_constraints, 2)."""
        return np.array([c.range for c in self.constraints], dtype=np.float64).reshape(-1, 2)

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

    def with_groups_of(self, other: LinearConstraints) -> LinearConstraints:
        """Take the functionals and groups of an evaluation set, which may have further groups."""
        return replace(self, spans=other.spans, groups=other.groups)

    def positions_in(self, other: LinearConstraints) -> Codes:
        """Find the positions of the functionals among those of an evaluation set."""
        found = [np.zeros(0, dtype=np.intp)]
        for constraint, own, theirs in zip(self.constraints, self.spans, other.spans, strict=True):
            at = theirs.start + np.arange(own.stop - own.start)
            if constraint.expression.has_reference:
                n = len(constraint.rates)
                at[-n:] = theirs.stop - n + np.arange(n)  # The reference comes last.
            found.append(at)
        return np.concatenate(found)

    def totals(self, of_rows: Float) -> Float:
        """Sum a quantity of rows, such as multipliers, by constraint."""
        return np.bincount(self.owner, of_rows, len(self.constraints)).astype(np.float64)

    def without_rows_of(self, idle: Collection[int]) -> LinearConstraints:
        """Leave out the rows of idle constraints, which are reported and bind nothing."""
        kept = ~np.isin(self.owner, list(idle))
        if kept.all():
            return self
        return replace(
            self,
            R=self.R[kept],
            b=self.b[kept],
            unit=self.unit[kept],
            rows=tuple(compress(self.rows, kept)),
            owner=self.owner[kept],
            cost_range=self.cost_range[kept],
            may_reward_errors=self.may_reward_errors[kept],
            must_reward_errors=self.must_reward_errors[kept],
            splits_targets=self.splits_targets[kept],
            curves=self.curves.keep(kept),
        )

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
        constant, terms = self.constant.copy(), list(self.terms)
        rows_of_U, rows_of_V = [], []
        for k, of_rate in enumerate(self.terms):
            hard, soft = self.U[[k]], self.V[[k]]
            bases = [base for term in of_rate or () for base in term.bases]
            if any(left[base].sum() == 0 for base in bases):
                constant[k], terms[k] = np.nan, None
            elif of_rate and any((left[base] < whole[base]).any() for base in bases):
                hard, soft = self._coefficients(of_rate, left)
            rows_of_U.append(hard)
            rows_of_V.append(soft)
        is_known = abs(self.R) @ np.isnan(constant) == 0
        for curve in self.curves.items:
            is_known[curve.rows] = not np.isnan(constant[curve.at]).any()
        return replace(
            self,
            U=sparse.csr_array(sparse.vstack(rows_of_U)),
            V=sparse.csr_array(sparse.vstack(rows_of_V)),
            Q=pair_matrix(self.pair_blocks, terms, left),
            S=residual_matrix(self.residual_blocks, terms, left),
            constant=constant,
            R=keep_rows(self.R, is_known),
            b=np.where(is_known, self.b, 0.0),
            cost_range=keep_rows(self.cost_range, is_known),
            terms=tuple(terms),
            curves=self.curves.without(~is_known),
        )

    def weigh_losses(self, weight: Float) -> Any:
        """Compute the coefficients of the mean losses for other weights of the cells."""
        V = sparse.csr_array(
            sparse.vstack([self._coefficients(of_rate or (), weight)[1] for of_rate in self.terms])
        )
        return V if self.mixing is None else self.mixing @ V

    def make_credible(self, cells: Cells, half: Float | None = None) -> LinearConstraints:
        """Let groups act as far as their rows can tell (:mod:`~.problem.credibility`).

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
        n_rows, mass = (
            [
                np.array([self._smallest_base(of, k) for k in range(span.start, span.stop)])
                for span in self.spans
            ]
            for of in (cells.weighted_count, cells.weight)
        )
        mixing = mix_groups(self.constraints, n_rows, mass, half)
        if mixing is None:
            return self
        is_known = ~np.isnan(self.constant)
        return replace(
            self,
            U=mixing @ self.U,
            V=mixing @ self.V,
            Q=mixing @ self.Q,
            S=mixing @ self.S,
            constant=np.where(is_known, mixing @ np.nan_to_num(self.constant), np.nan),
            mixing=mixing,
            half=half,
            stated=self,
        )

    def _smallest_base(self, of_cells: Float, k: int) -> float:
        """Sum over the cells that a functional is taken over, the smaller side of pairs."""
        sizes = [
            float(of_cells[base].sum()) for term in self.terms[k] or () for base in term.bases
        ]
        return min(sizes, default=0.0)

    def _coefficients(self, terms: Sequence[RatePart], weight: Float) -> tuple[Any, Any]:
        """Compute the rows of U and V of a rate, given weights of cells."""
        hard = np.zeros((weight.size, self.U.shape[1] // weight.size))
        soft = np.zeros((1, weight.size))
        for term in terms:
            if isinstance(term, (WeightedPairs, MeanResidual)):
                continue
            share = term.coefficient * weight[term.cells] / weight[term.cells].sum()
            if isinstance(term, WeightedFraction):
                hard[term.cells] += share[:, None] * term.event
            else:
                soft[0, term.cells] += share
        return sparse.csr_array(hard.reshape(1, -1)), sparse.csr_array(soft)

    @cached_property
    def is_of_scores(self) -> Bool:
        """Whether each functional holds something else than rates; shape (n_functionals,)."""
        matrices = (self.V, self.Q, self.S)
        return np.asarray(np.any([np.diff(m.indptr) > 0 for m in matrices], axis=0))

    @cached_property
    def has_scores(self) -> Bool:
        """Whether each row of constraints holds something else than rates; shape (m,)."""
        return np.asarray((np.diff(self.B.indptr) > 0) | self.has_tables)

    @cached_property
    def has_tables(self) -> Bool:
        """Whether each row holds pair rates or residuals, which no threshold changes; (m,)."""
        return np.asarray((np.diff(self.C.indptr) > 0) | (np.diff(self.D.indptr) > 0))

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
            return has_steps(self.A, functions)
        return np.asarray(np.diff(self.cost_range.indptr) > 0)

    @property
    def is_convex(self) -> bool:
        """Whether no row has a mean loss with a negative coefficient, which is concave."""
        if functions := self.row_functions:
            return not has_concave_means(self.A, functions)
        return self.B.nnz == 0 or bool(self.B.data.min() >= 0.0)
