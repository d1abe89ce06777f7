"""p-values of the violation of constraints on pair rates, and the rows that certificates take.

Both follow from the deviations of :mod:`gbm_constrained.statistics.pair_certificates`. They depend
on scores through the values of the constraints alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
from scipy import optimize, sparse

from gbm_constrained._typing import Codes, Float
from gbm_constrained.data.cells import Cells
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.problem.pair_statistics import PairRates
from gbm_constrained.statistics.pair_certificates import (
    pair_deviation,
    pair_p_value,
    rows_needed,
)
from gbm_constrained.statistics.pair_parts import PairParts, sizes_of


def pair_p_values(compiled: LinearConstraints, cells: Cells, functionals: Float) -> Float:
    """Compute the p-value of the violation of each constraint on pair rates.

    The largest p-value of a constraint's rows needs no correction for their number, nor does that
    of several constraints (:func:`gbm_constrained.statistics.p_values.constraint_p_values`).

    Parameters
    ----------
    compiled : LinearConstraints
        The constraints.
    cells : Cells
        Partition of rows that were used for nothing else.
    functionals : ndarray of shape (n_functionals,)
        Values of the functionals on these rows.

    Returns
    -------
    ndarray of shape (n_constraints,)
        One where a functional is undefined; zero for other constraints, and for those that no
        scores violate.
    """
    p = np.zeros(len(compiled.constraints))
    rows = _PairRows.of(compiled, cells)
    room = compiled.b - compiled.rows_of(np.nan_to_num(functionals))
    for j, (constraint, span) in enumerate(zip(compiled.constraints, compiled.spans, strict=True)):
        if constraint.is_pair and not constraint.is_always_met:
            of_rows = [
                pair_p_value(rows.cells, *rows.sum_of(i), float(room[i])) for i in rows.of_owner(j)
            ]
            p[j] = 1.0 if np.isnan(functionals[span]).any() else max(of_rows, default=0.0)
    return p


def rows_to_certify(compiled: LinearConstraints, cells: Cells, delta: float) -> Float:
    """Compute the number of rows that would certify each constraint on pair rates at best.

    The best scores are those whose pair rates leave most room on all rows of the constraint: a
    linear programme over pair rates between zero and one. With as many rows in all, in the shares
    of these, the deviations at `delta` fit that room.

    Parameters
    ----------
    compiled, cells
        As in :func:`pair_p_values`.
    delta : float
        Largest probability of a false certificate.

    Returns
    -------
    ndarray of shape (n_constraints,)
        Whole numbers; infinite where no number of rows is enough, and zero for other constraints,
        for those that no scores violate, and for those whose groups have no rows.
    """
    needed = np.zeros(len(compiled.constraints))
    rows = _PairRows.of(compiled, cells)
    for j, constraint in enumerate(compiled.constraints):
        own = rows.of_owner(j)
        if constraint.is_pair and not constraint.is_always_met and own.size:
            deviations = [pair_deviation(rows.cells, *rows.sum_of(i), delta) for i in own]
            share = _find_room(rows.coefficients[own], compiled.b[own], np.array(deviations))
            needed[j] = rows_needed(len(cells.rows), 1.0, share)
    return needed


@dataclass(frozen=True, eq=False)
class _PairRows:
    """Rows of constraints as sums of distinct pair rates."""

    compiled: LinearConstraints
    parts: PairParts
    cells: Any  # Sizes of the cells.
    coefficients: Any  # Coefficients of the rates in each row, csr_array (m, n_rates).

    @classmethod
    def of(cls, compiled: LinearConstraints, cells: Cells) -> _PairRows:
        """List the pair rates of each row of constraints."""
        parts = PairParts.of(compiled)
        coefficients = sparse.csr_array(compiled.R @ parts.coefficients)
        return cls(compiled, parts, sizes_of(cells), coefficients)

    def of_owner(self, j: int) -> Codes:
        """Find the rows of a constraint that are known."""
        return np.flatnonzero((self.compiled.owner == j) & self.compiled.is_known)

    def sum_of(self, i: int) -> tuple[PairRates, Float]:
        """Find the pair rates of a row, and their coefficients."""
        row = self.coefficients[[i]]
        return self.parts.rates_at(row.indices), row.data


def _find_room(coefficients: Any, bounds: Float, deviations: Float) -> float:
    """Find the largest factor of deviations that the best pair rates leave room for.

    It is the largest k with ``coefficients @ rates + k * deviations <= bounds`` for some rates
    between zero and one.
    """
    if not np.isfinite(deviations).all():
        return 0.0
    of_factor: Any = sparse.csr_array(deviations[:, None])
    left = sparse.hstack([coefficients, of_factor]).tocsr()
    cost = np.append(np.zeros(coefficients.shape[1]), -1.0)
    limits = [(0.0, 1.0)] * coefficients.shape[1] + [(0.0, inf)]
    found = optimize.linprog(cost, A_ub=left, b_ub=bounds, bounds=limits)
    return 0.0 if found.x is None else float(found.x[-1])
