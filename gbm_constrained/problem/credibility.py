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
from typing import Any

import numpy as np
from scipy import sparse

from gbm_constrained._typing import Float
from gbm_constrained.constraints.base import Constraint
from gbm_constrained.constraints.grouped import Grouped

CREDIBLE_ROWS = 25.0
"""Rows, for each group beyond two, at which the rate of a group by itself counts one half."""


def mix_groups(
    constraints: Sequence[Constraint],
    rows_of: Sequence[Float],
    masses: Sequence[Float],
    half: Float | None = None,
) -> Any:
    """Find the coefficients of stated functionals in credible ones.

    Parameters
    ----------
    constraints : sequence of Constraint
        The constraints.
    rows_of : sequence of ndarray
        Rows that each functional of a constraint is taken over.
    masses : sequence of ndarray
        Weight of these rows.
    half : ndarray of shape (n_functionals,), default=None
        Rows at which the value of a group and the mean of all groups count alike;
        :data:`CREDIBLE_ROWS` for each group beyond two by default. At zero, groups are held at any
        price.

    Returns
    -------
    sparse array of shape (n_functionals, n_functionals), or None
        None where all functionals stay as they are.
    """
    blocks: list[Any] = []
    is_identity, start = True, 0
    for constraint, n_rows, mass in zip(constraints, rows_of, masses, strict=True):
        size, n_rates = n_rows.size, max(len(constraint.rates), 1)
        n_groups = size // n_rates
        rows = find_half(constraint, size) if half is None else half[start : start + size]
        start += size
        if n_groups < 2 or not acts_by_credibility(constraint) or not rows.any():
            blocks.append(sparse.eye_array(size))
            continue
        is_identity = False
        block = np.zeros((size, size))
        for position in range(n_rates):
            at = np.arange(position, n_groups * n_rates, n_rates)
            block[np.ix_(at, at)] = _credible_means(
                n_rows[at], mass[at], rows[at], has_reference=constraint.expression.has_reference
            )
        blocks.append(sparse.csr_array(block))
    return None if is_identity else sparse.csr_array(sparse.block_diag(blocks))


def find_half(constraint: Constraint, size: int) -> Float:
    """Find the rows at which a group and the mean of all count alike, by functional."""
    n_groups = size // max(len(constraint.rates), 1)
    return np.full(size, CREDIBLE_ROWS * (n_groups - 2))


def acts_by_credibility(constraint: Constraint) -> bool:
    """Whether a constraint compares groups that are not held at any price."""
    expression = constraint.expression
    return isinstance(expression, Grouped) and expression.small_groups != "hold"


def _credible_means(n_rows: Float, mass: Float, half: Float, *, has_reference: bool) -> Float:
    """Find the coefficients of the rates of groups in their credible rates, (n, n)."""
    own = 1.0 / (1.0 + half / np.maximum(n_rows, 1.0))
    if has_reference:
        own[-1] = 1.0
        towards = np.zeros(own.size)
        towards[-1] = 1.0
    else:
        towards = mass / mass.sum() if mass.any() else mass
    return np.diag(own) + (1.0 - own)[:, None] * towards
