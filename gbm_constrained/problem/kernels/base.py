r"""Per-row kernels of a Lagrangian: value, gradient, Hessian.

Whatever the constraints, a row of cell c contributes one kernel with two tables of coefficients,

.. math:: k_c(F) = \sum_k T_{ck} (-\log p_k(F)) + \sum_k Q_{ck} \frac{p_k(F) + q_k(F)}{2},

a cross-entropy with soft targets ``T >= 0`` (convex) and an expected cost ``Q`` (bounded, not
convex). ``p = softmax(F)`` and ``q = softmax(F / 2)``; a binary margin m stands for F = (0, m).
The parts are

- the objective: T = one-hot of the label;
- a mean-loss constraint: the same, times its coefficient;
- a 0-1 rate with cost ``a_k`` of predicting class k, through a smooth proxy:

  - ``"sigmoid"``: Q = a. It replaces "k is predicted" by a probability, the mean of p_k and of
    q_k at half the scores; bounded, so a hopeless row pulls little. With p alone rules are met by
    flipping the few nearest rows, for which multipliers wind up; q alone reaches far and costs
    accuracy (Adult, gap <= 0.01, three splits and both libraries: the gap of error rates is met
    on the training rows in 4, 6 and 6 of 6 with p, the mean and q; selection rate, test accuracy
    0.853, 0.853, 0.851).
  - ``"logistic"``: T = (max a - a) / log 2. With 1[prediction != k] <= -log(p_k) / log 2 it is a
    convex upper bound of the cost, up to a constant.
    Of three or more classes, a cost of predicting one of them makes equal targets of all others,
    and pulls their probabilities to each other: such rules have the sigmoid proxy by default.
    Handwritten digits (see :mod:`gbm_constrained.solvers.abpp`; precision of ones and recall of
    eights, false alarms for threes and recall of fives), accuracy out of fold: 0.593 and 0.668
    with logistic proxies, 0.939 and 0.932 with this (XGBoost); 0.874 and 0.914, 0.955 and 0.941
    (LightGBM).

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
the full step; a step shrunk by a learning rate eta is as safe with eta times that. So where a rule
is at work on a binary margin, and the kernel is convex (no expected cost, nothing clipped),
``S p (1 - p)`` becomes ``S max(p (1 - p), eta c(z))``: at slow rates the library's own Hessian for
all rows but the surest. For softmax scores a bound for all of them at once is several times too
steep; that of each alone cost Dry Bean one to three points of accuracy.

Measured on Credit (284,807 rows, the source paper's first six sets, both libraries), false alarms
out of fold where 12 % of frauds are missed: .007 to .017 at rates of .64 to .90, which had .06 to
.80, and .005 to .012 at rates of .02 to .07, which had .005 to .014.

A kernel works on blocks of rows in two steps, so that values and gradients at the same scores
share the exponentials: ``link`` turns scores into probabilities, everything else takes those.
"""

from __future__ import annotations

from functools import reduce
from typing import Literal, TypeAlias

import numpy as np

from gbm_constrained._typing import Array

ProxyName: TypeAlias = Literal["auto", "logistic", "sigmoid"]
PROXIES: tuple[ProxyName, ...] = ("auto", "logistic", "sigmoid")
# Largest negative curvature of a unit cost's sigmoid proxy, in a binary margin and in softmax
# scores: of p, 1 / (6 sqrt 3), and the range 1 times the largest variance 1/2; of q a quarter.
SIGMOID_CONCAVITY = (0.625 / (6.0 * 3.0**0.5), 0.3125)
LOG2 = float(np.log(2.0))


def logistic_targets(cost: Array) -> Array:
    """Soft targets of the logistic proxy of predicting with costs (n_cells, n_classes)."""
    return np.asarray((over_classes(np.maximum, cost)[:, None] - cost) / LOG2)


def over_classes(function: np.ufunc, table: Array) -> Array:
    """Reduce a table of few columns along its rows, which numpy is slow at for long tables."""
    return np.asarray(reduce(function, table.T))


def loss_lipschitz(n_classes: int) -> float:
    """Lipschitz constant of the cross-entropy in the score: 1 for a binary margin, else sqrt 2."""
    return 1.0 if n_classes == 2 else float(np.sqrt(2.0))


def rate_lipschitz(n_classes: int) -> float:
    """Lipschitz constant that step sizes assume of a unit-cost 0-1 rate.

    The rate itself is a step function. Replaced by the probability p_k it has gradient
    p_k (e_k - p), of norm at most 1/4 for a binary margin and sqrt(2)/4 for softmax scores. The
    sigmoid proxy is three quarters as steep.
    """
    return loss_lipschitz(n_classes) / 4.0


def clip_cap(outlier_clip: float | None) -> float:
    """Cross-entropy of a binary row whose margin is `outlier_clip` on the wrong side."""
    return np.inf if outlier_clip is None else float(np.logaddexp(0.0, outlier_clip))
