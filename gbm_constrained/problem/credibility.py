r"""Credibility: how far the rate of a group moves multipliers and decisions.

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
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from gbm_constrained._typing import Float
from gbm_constrained.constraints.base import Constraint
from gbm_constrained.constraints.grouped import Grouped
from gbm_constrained.data.cells import Cells

if TYPE_CHECKING:
    from gbm_constrained.problem.linear_constraints import LinearConstraints

CREDIBLE_ROWS = 25.0
"""Rows, for each group beyond two, at which the rate of a group by itself counts one half."""


def make_credible(
    compiled: LinearConstraints, cells: Cells, half: Float | None = None
) -> LinearConstraints:
    """Replace the functionals of groups by their credible values.

    Parameters
    ----------
    compiled : LinearConstraints
        Constraints as they are stated.
    cells : Cells
        Partition of the rows that are measured.
    half : ndarray of shape (n_functionals,), default=None
        Rows at which the value of a group counts one half; by default :data:`CREDIBLE_ROWS` for
        each other group. At zero every group acts in full.

    Returns
    -------
    LinearConstraints
        The same object where no constraint compares groups, or where all groups are held.
    """
    if compiled.mixing is not None:
        return compiled
    mixing = _mix(compiled, cells, half)
    if mixing is None:
        return compiled
    return replace(
        compiled,
        U=mixing @ compiled.U,
        V=mixing @ compiled.V,
        Q=mixing @ compiled.Q,
        S=mixing @ compiled.S,
        constant=np.where(
            np.isnan(compiled.constant), np.nan, mixing @ np.nan_to_num(compiled.constant)
        ),
        mixing=mixing,
        half=half,
        stated=compiled,
    )


def _mix(compiled: LinearConstraints, cells: Cells, half: Float | None) -> Any:
    """Find the coefficients of stated functionals in credible ones; None for the identity."""
    blocks: list[Any] = []
    is_identity = True
    for constraint, span in zip(compiled.constraints, compiled.spans, strict=True):
        n_rates = max(len(constraint.rates), 1)
        n_groups = (span.stop - span.start) // n_rates
        rows = np.full(span.stop - span.start, CREDIBLE_ROWS * (n_groups - 2))
        if half is not None:
            rows = half[span]
        if n_groups < 2 or not acts_by_credibility(constraint) or not rows.any():
            blocks.append(sparse.eye_array(span.stop - span.start))
            continue
        is_identity = False
        block = np.zeros((span.stop - span.start,) * 2)
        for position in range(n_rates):
            at = np.arange(position, n_groups * n_rates, n_rates)
            n_rows = np.array([_count_rows(compiled, cells, span.start + k) for k in at])
            block[np.ix_(at, at)] = _credible_means(
                n_rows, rows[at], has_reference=constraint.expression.has_reference
            )
        blocks.append(sparse.csr_array(block))
    return None if is_identity else sparse.csr_array(sparse.block_diag(blocks))


def acts_by_credibility(constraint: Constraint) -> bool:
    """Whether a constraint compares groups that are not held at any price."""
    expression = constraint.expression
    return isinstance(expression, Grouped) and expression.small_groups != "hold"


def _credible_means(n_rows: Sequence[float] | Float, half: Float, *, has_reference: bool) -> Float:
    """Find the coefficients of the rates of groups in their credible rates, (n, n)."""
    n = np.asarray(n_rows, dtype=np.float64)
    own = 1.0 / (1.0 + half / np.maximum(n, 1.0))
    if has_reference:
        own[-1] = 1.0
        towards = np.zeros(n.size)
        towards[-1] = 1.0
    else:
        towards = n / max(n.sum(), 1.0)
    return np.diag(own) + (1.0 - own)[:, None] * towards


def _count_rows(compiled: LinearConstraints, cells: Cells, k: int) -> float:
    """Count the rows that a functional is taken over, the smaller side of pairs."""
    sizes = [
        float(cells.weighted_count[base].sum())
        for term in compiled.terms[k] or ()
        for base in term.bases
    ]
    return min(sizes, default=0.0)
