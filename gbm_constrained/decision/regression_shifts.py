r"""Shift of each group of a regressor's scores, chosen on held-out rows.

Scores F of the rows of group g become

.. math:: F + d_g \quad \text{or} \quad s F + d_g ,

with the common scale s that is best for all rows (:mod:`gbm_constrained.decision.affine`). A shift
moves the predictions of the group, or multiplies them by :math:`e^{d_g}` under a log link.
The shifts have the least mean loss of those that meet the constraints; where none do, those that
violate them least, in standard errors. Losses and means are sums over groups, so that
:mod:`gbm_constrained.decision.separable_search` finds the best shifts of a grid, which is refined
around them.

Scale and shift of all rows stay alone where they are better.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import nnls

from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.decision.affine import Affine, AffineChoice, Criterion, PredictedRows
from gbm_constrained.decision.group_shifts import GroupOffsets
from gbm_constrained.decision.separable_search import Candidates, SeparableSearch
from gbm_constrained.problem.regression_rows import RegressionRows
from gbm_constrained.problem.row_functions import row_derivatives, row_values

N_SHIFTS = 97  # of each group on a grid, of which the middle one is the best so far
N_REFINEMENTS, NARROWER = 6, 6.0  # Number of finer grids, and the factor between their widths.
N_HALVINGS = 8  # of the interval of the least violation, where the constraints cannot be met
CURVATURE = 1e-2  # of the largest violation beside its price in a least distance problem
SMALLEST_LEFT = 1e-6  # Square of the distance from the constraints, below which none meets them.
ENTRIES = 1 << 20  # Numbers in a table of values of rows at several shifts.


def list_group_shifts(
    rows: PredictedRows,
    score: Array,
    common: AffineChoice,
    groups: GroupOffsets,
    criterion: Criterion,
) -> list[AffineChoice]:
    """List the best shifts of groups by held-out rows, beside and in the place of a common map.

    Parameters
    ----------
    rows : PredictedRows
        Held-out rows.
    score : ndarray of shape (n_samples,)
        Their scores.
    common : AffineChoice
        The best scale and shift of all rows.
    groups : GroupOffsets
        The groups.
    criterion : Criterion
        Standard errors of the constraints.

    Returns
    -------
    list of AffineChoice
        The common map without offsets first. Groups of few held-out rows have offsets of zero.
    """
    none = replace(groups, values=np.zeros(len(groups.levels)))
    found = [common._replace(offsets=none)]
    if (common.violations <= 0.0).all() and common.affine.is_identity:
        return found
    largest = np.zeros(len(rows.compiled.constraints))
    owner = rows.compiled.owner
    np.maximum.at(largest, owner, criterion.errors)  # The worst group stays the worst.
    for affine in dict.fromkeys((Affine(), common.affine)):
        mapped = np.asarray(affine(score), dtype=np.float64)
        offsets = replace(groups, values=_GridSearch(rows, mapped, groups, largest[owner]).find())
        moved = mapped + offsets.of(rows.cells.rows)
        found.append(AffineChoice(affine, *rows.measure_scores(moved), offsets))
    return found


def find_prices(rows: PredictedRows, score: Array, criterion: Criterion) -> Float:
    r"""Find the multipliers under which shifts of the cells of rows would have the least merit.

    With curvatures h of the loss and slopes A of the constraints, shifts d whose loss and largest
    violation t are least, in the units of the criterion, solve

    .. math:: \min_{d, t \ge 0} \; \sum_c h_c d_c^2 / 2 + t + \epsilon t^2 / 2
              \quad \text{s.t.} \quad v + A d \le t ,

    where t is zero for strict rows. That is a least distance problem, whose multipliers
    non-negative least squares give (Lawson and Hanson, "Solving least squares problems", 1974,
    chapter 23). Predictions that know no group need larger ones. They are zero where no shifts
    meet the strict rows.

    Parameters
    ----------
    rows : PredictedRows
        Held-out rows.
    score : ndarray of shape (n_samples,)
        Their scores.
    criterion : Criterion
        Units of the loss and of the constraints, and which rows are strict.

    Returns
    -------
    ndarray of shape (m,)
    """
    problem, compiled = rows.lagrangian.rows, rows.compiled
    cells, n_functions = rows.cells, len(problem.functions)
    score = np.asarray(score, dtype=np.float64)
    f = problem.objective.predict(score)
    inner = f if problem.objective.has_log_link else 1.0
    A = np.zeros((len(compiled), len(cells)))
    for k, function in enumerate(problem.functions):
        slope = row_derivatives(function, problem.targets, f, problem.scale).slope * inner
        mean = cells.total(problem.row_weight * slope) / problem.cell_weight
        A += compiled.A[:, k::n_functions].toarray() * mean
    curvature = problem.objective.derivatives(problem.targets, score, problem.scale)[1]
    h = cells.total(problem.objective_weight * curvature) / problem.total_weight
    has_rows, weights = h > 0.0, criterion.weights
    G = -A[:, has_rows] * weights[:, None] / np.sqrt(h[has_rows] / criterion.range)
    # Of s = sqrt(epsilon) t + 1 / sqrt(epsilon), whose square is linear in t up to epsilon.
    of_s = np.append(np.where(criterion.is_strict, 0.0, 1.0 / np.sqrt(CURVATURE)), 1.0)
    least = np.append(weights * rows.measure_scores(score)[1], 0.0) + of_s / np.sqrt(CURVATURE)
    G = np.vstack([G, np.zeros(G.shape[1])])
    E = np.vstack([G.T, of_s, least])
    unit = np.maximum(np.linalg.norm(E, axis=0), np.finfo(np.float64).tiny)
    found, _ = nnls(E / unit, np.eye(len(E))[-1])
    left = 1.0 - least @ (found / unit)
    if left <= SMALLEST_LEFT:
        return np.zeros(len(compiled))
    return np.asarray((found / unit / left)[:-1] * weights * criterion.range)


@dataclass(frozen=True, eq=False)
class _Part:
    """Rows that are shifted together.

    Parameters
    ----------
    rows : RegressionRows
        All held-out rows.
    score : ndarray of shape (n_samples,)
        Scores of all rows.
    index : ndarray of int of shape (n_part,)
        Positions of the rows.
    kept : ndarray of int of shape (m,)
        Rows of constraints that have a value.
    """

    rows: RegressionRows
    score: Float
    index: Codes
    kept: Codes

    @cached_property
    def shares(self) -> list[Any]:
        """Coefficients of the rows' values in the constraints, (m, n_part), by row function."""
        problem, index = self.rows, self.index
        shape = index.size, len(problem.cells)
        share = sparse.csr_array(shape)
        for view in problem.cells.take(index).views:
            at = np.arange(index.size), view.codes
            weight = view.weigh(problem.row_weight[index]) / problem.cell_weight[view.codes]
            share = share + sparse.csr_array((weight, at), shape)
        A = problem.constraints.A[self.kept]
        n_functions = len(problem.functions)
        return [A[:, k::n_functions] @ share.T for k in range(n_functions)]

    def at(self, shifts: Float) -> Candidates:
        """Compute what the rows add to the mean loss and to the constraints at some shifts."""
        values = [*map(self._sum, self._blocks(shifts))]
        losses, rates = zip(*values, strict=True)
        return Candidates(shifts, np.concatenate(losses), np.concatenate(rates, axis=1))

    def _blocks(self, shifts: Float) -> Iterator[Float]:
        """Divide shifts into blocks whose tables of values are not too large."""
        n_blocks = -(-shifts.size * self.index.size // ENTRIES)
        return iter(np.array_split(shifts, max(min(n_blocks, shifts.size), 1)))

    def _sum(self, shifts: Float) -> tuple[Float, Float]:
        problem, index = self.rows, self.index
        y = problem.targets[index, None]
        score = self.score[index, None] + shifts
        f = problem.objective.predict(score)
        weight = problem.objective_weight[index] / problem.total_weight
        rates = np.zeros((self.kept.size, shifts.size))
        for share, function in zip(self.shares, problem.functions, strict=True):
            rates += share @ row_values(function, y, f)
        return weight @ problem.objective.values(y, score), rates


class _GridSearch:
    """Search for the shifts of groups on one grid after another."""

    def __init__(
        self, rows: PredictedRows, score: Float, groups: GroupOffsets, errors: Float
    ) -> None:
        compiled, problem = rows.compiled, rows.lagrangian.rows
        self.score, self.bounds, self.errors = score, compiled.b, errors
        self.kept = np.flatnonzero(compiled.is_known)
        own = groups.searchable(rows.cells.rows)
        self.n_groups = len(groups.levels)
        self.present = np.unique(own[own >= 0]).tolist()
        indices = (np.flatnonzero(own == g) for g in (-1, *self.present))
        others, *self.parts = (_Part(problem, score, index, self.kept) for index in indices)
        none = others.at(np.zeros(1))
        self.fixed = np.append(none.error, none.rates)

    def find(self) -> Float:
        """Find the shift of each group, (n_groups,)."""
        shifts, width = np.zeros(self.n_groups), float(np.ptp(self.score)) or 1.0
        for _ in range(1 + N_REFINEMENTS):
            shifts = self._find_around(shifts, width)
            width /= NARROWER
        return shifts

    def _find_around(self, centre: Float, width: float) -> Float:
        """Find the best shifts of a grid of some width on either side of the best so far."""
        steps = np.linspace(-width, width, N_SHIFTS)
        tables = [
            part.at(centre[g] + steps) for g, part in zip(self.present, self.parts, strict=True)
        ]
        search = SeparableSearch(
            tables, self.present, centre, self.fixed, self.kept, starts=(N_SHIFTS // 2,)
        )
        if (found := search.find(self.bounds)) is not None:
            return found.values
        best, low = centre, 0.0
        high = self._violation(tables)
        for _ in range(N_HALVINGS):
            middle = (low + high) / 2.0
            if (found := search.find(self.bounds + middle * self.errors)) is None:
                low = middle
            else:
                best, high = found.values, middle
        return best

    def _violation(self, tables: list[Candidates]) -> float:
        """Compute the largest violation at the middle of the grid, in standard errors."""
        rates = sum((table.rates[:, N_SHIFTS // 2] for table in tables), self.fixed[1:])
        excess = (rates - self.bounds[self.kept]) / self.errors[self.kept]
        return float(excess.max(initial=0.0))
