r"""Per-row kernels of a Lagrangian: value, gradient, Hessian.

Whatever the constraints, a row of cell c contributes one kernel with two tables of coefficients,

.. math:: k_c(F) = \sum_k T_{ck} (-\log p_k(F)) + \sum_k Q_{ck} \frac{p_k(F) + q_k(F)}{2},

a cross-entropy with soft targets ``T >= 0`` (convex) and an expected cost ``Q`` (bounded, not
convex). ``p = softmax(F)`` and ``q = softmax(F / 2)``; a binary margin m stands for F = (0, m).
The parts are

- the objective: T = one-hot of the label;
- a mean-loss constraint: the same, times its coefficient;
- a 0-1 rate with cost ``a_k`` of predicting class k, through a smooth proxy: see
  :mod:`gbm_constrained.problem.kernels.proxies`.

Of two classes, a ramp may stand for ``(p + q) / 2``: see
:mod:`gbm_constrained.problem.kernels.ramp`.

With S = sum_k T_k, Q_p = sum_k Q_k p_k and Q_q = sum_k Q_k q_k,

- gradient: ``S p - T + p (Q - Q_p) / 2 + q (Q - Q_q) / 4``;
- Hessian, diagonal majoriser: ``S p (1 - p) + range(Q) (p (1 - p) / 2 + q (1 - q) / 8)``. The
  curvature of the expected cost changes sign, but is at most that; taking the bound keeps
  ``|gradient| / Hessian`` of the proxy at most 2, where its positive part would let leaves blow
  up.

No further exponentials are needed: q is sqrt(p), scaled to sum to one.

**Steps that do not overshoot.** A Newton step of the cross-entropy goes ``1 / p`` far where the
model gives a row's label the probability p, and a leaf of few rows takes such steps: negatives
that share it with a heavily weighed positive are thrown far below all others, and with them
positives that the tree has not seen. The curvature of the parabola that touches ``log(1 +
exp(z))`` in a margin z and is nowhere below it,

.. math:: c(z) = \frac{\tanh(z / 2)}{2 z} = \frac{p - 1/2}{z}

(Jaakkola and Jordan, "Bayesian parameter estimation via variational methods", 2000, eq. 7), bounds
the full step; a step shrunk by a learning rate eta is as safe with eta times that. Where a
multiplier is above zero on a binary margin, and the kernel is convex (no expected cost, nothing
clipped), ``S p (1 - p)`` therefore becomes ``S max(p (1 - p), eta c(z))``. At slow rates this is
the library's own Hessian for all rows but the surest. For softmax scores a joint bound is several
times too steep, and a bound for each score alone costs accuracy (evidence, Proxies).

A kernel works on blocks of rows in two steps, so that values and gradients at the same scores
share the exponentials: ``link`` turns scores into probabilities, everything else takes those.
"""

from __future__ import annotations

from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from gbm_constrained._typing import Array

LOG2 = float(np.log(2.0))


class Block(NamedTuple):
    """Arguments of the kernels for a block of rows.

    Parameters
    ----------
    probability : Probabilities as ``link`` writes them.
    labels : (n,). Labels as ``encode`` returns them.
    codes : (n,) or slice. Keys by which the tables look up rows.
    cap : Cross-entropy at which the clipped loss ends.
    """

    probability: Array
    margin: Array
    labels: Array
    codes: Any
    tables: Any
    cap: float


def over_classes(function: np.ufunc, table: Array) -> Array:
    """Reduce the few columns of a long table to one, which numpy's own reduction is slow at."""
    found: Array = reduce(function, [table[:, k] for k in range(table.shape[1])])
    return found


def loss_lipschitz(n_classes: int) -> float:
    """Bound the slope of the cross-entropy in the scores: 1 for a binary margin, else sqrt 2."""
    return 1.0 if n_classes == 2 else float(np.sqrt(2.0))


def rate_lipschitz(n_classes: int) -> float:
    """Bound the slope of a unit-cost 0-1 rate, as step sizes assume it.

    With the probability p_k in place of the step function the gradient is p_k (e_k - p), of norm
    at most 1/4 for a binary margin and sqrt(2)/4 for softmax scores. The sigmoid proxy is three
    quarters as steep, and the ramp of a binary margin as steep.
    """
    return loss_lipschitz(n_classes) / 4.0


def clip_cap(outlier_clip: float | None) -> float:
    """Compute the cross-entropy of a margin of `outlier_clip` on the wrong side."""
    return np.inf if outlier_clip is None else float(np.logaddexp(0.0, outlier_clip))
