r"""ABPP, the accelerated Bregman primal-dual proximal point method.

Algorithm 1 (= 3) of Lin and Deng, "GBM-based Bregman Proximal Algorithms for Constrained
Learning" (2023), for ``min f(x) s.t. g(x) <= 0`` with f, g convex in the scores. Iteration k:

1. ``sigma_k = gamma_k tau_k``, ``theta_k = sigma_{k-1} / sigma_k``
2. ``z_k = (1 + theta_k) g(x_k) - theta_k g(x_{k-1})``
3. ``y_{k+1} = max(y_k + sigma_k z_k, 0)``
4. ``x_{k+1} ~ argmin f + <y_{k+1}, g> + D(., x_k) / tau_k``
5. ``gamma_{k+1} = gamma_k (1 + mu tau_k)``, ``tau_{k+1} = tau_k sqrt(gamma_k / gamma_{k+1})``

**Step sizes.** The proof needs the cross term of the dual step to be absorbed. With
:math:`\|g(x) - g(x')\| \le L_g \sqrt{2 D(x, x')}` and Young's inequality,

.. math::

   \theta_k \langle g(x_k) - g(x_{k-1}), y_{k+1} - y_k \rangle
   \le \theta_k \left( \frac{D(x_k, x_{k-1})}{\tau_{k-1}}
       + \frac{\tau_{k-1} L_g^2}{2} \|y_{k+1} - y_k\|^2 \right)

The first part is paid by the proximal term left over from iteration k-1 (its weight is
:math:`t_k \theta_k = t_{k-1}`), the second by :math:`\|y_{k+1} - y_k\|^2 / (2 \sigma_k)`, which needs
:math:`\theta_k \sigma_k \tau_{k-1} L_g^2 \le 1`, that is

.. math:: \tau_0 \sigma_0 L_g^2 \le 1,

and step 5 keeps :math:`\tau_k \sigma_k` constant. Corollary 1 of the paper prints
:math:`\tau_0 \sigma_0 \le \delta / L_g`. The units decide: tau is distance over objective, sigma is
objective over squared constraint, L_g is constraint over square root of distance, so only the
square is free of units. For L_g > 1 the printed rule permits steps that diverge (tested).

**Inside out.** The solver is called with the current scores and answers with gradients and
Hessians. A booster calls it once per boosting round through its own ``fit``; the exact learners
call it in a plain loop.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from gbm_constrained.cells import Float
from gbm_constrained.lagrangian import Lagrangian, Point
from gbm_constrained.losses import Array


@dataclass(frozen=True)
class Record:
    """One outer iteration, as it stood before its dual step.

    Parameters
    ----------
    iteration : int
        k, from 0.
    rounds : int
        Calls answered so far: boosting rounds, for a booster.
    objective : float
        f(x_k), weighted mean cross-entropy in nats.
    rates : ndarray of shape (m,)
        Value of each bounded rate at x_k, exact.
    bounds : ndarray of shape (m,)
        The bounds in force.
    multipliers : ndarray of shape (m,)
        y_{k+1}, the multipliers of the next subproblem.
    bregman : float
        D(x_k, x_{k-1}).
    seconds : float
        Since the first call.
    """

    iteration: int
    rounds: int
    objective: float
    rates: Float
    bounds: Float
    multipliers: Float
    bregman: float
    seconds: float


@dataclass
class ABPP:
    """The outer loop, called with scores, answering with gradients.

    Parameters
    ----------
    lagrangian : Lagrangian
        The problem on the training rows.
    tau, sigma : float, default=None
        Primal and dual step sizes tau_0, sigma_0. By default ``tau = tau_scale / L_g`` and
        ``sigma = 1 / (tau L_g^2)``: the largest product that the theory allows.
    mu : float, default=0
        Relative strong convexity of the objective; above zero the method accelerates.
    rounds_per_iteration : int, default=1
        Calls answered in each outer iteration, R: the inexact solution of a subproblem is R
        boosting rounds.
    initial_multipliers : ndarray of shape (m,), default=None
        Warm start; zeros by default.
    callback : callable, default=None
        Called with the :class:`Record` of each outer iteration.

    Attributes
    ----------
    multipliers : ndarray of shape (m,)
        y, those of the current subproblem.
    history : list of Record
    ergodic_weights : list of float
        t_k = sigma_k / sigma_0 of every iteration so far.
    """

    lagrangian: Lagrangian
    tau: float | None = None
    sigma: float | None = None
    mu: float = 0.0
    rounds_per_iteration: int = 1
    initial_multipliers: Float | None = None
    level_update: int | None = None
    callback: Callable[[Record], object] | None = None
    history: list[Record] = field(default_factory=list, init=False)
    ergodic_weights: list[float] = field(default_factory=list, init=False)
    multipliers: Float = field(init=False)
    bounds: Float = field(init=False)

    def __post_init__(self) -> None:
        m = len(self.lagrangian.constraints)
        lipschitz = self.lagrangian.lipschitz
        if self.tau is None:
            self.tau = 1.0 / lipschitz if self.sigma is None else 1.0 / (self.sigma * lipschitz**2)
        if self.sigma is None:
            self.sigma = 1.0 / (self.tau * lipschitz**2)
        start = self.initial_multipliers
        self.multipliers = np.zeros(m) if start is None else np.array(start, dtype=np.float64)
        self.bounds = self.lagrangian.constraints.b.copy()
        self._tau, self._sigma, self._gamma = self.tau, self.sigma, self.sigma / self.tau
        self._rounds = 0
        self._previous: Float | None = None
        self._anchor: Array | None = None
        self._started = time.perf_counter()

    def __call__(self, margin: Array) -> tuple[Array, Array]:
        """Answer one boosting round: gradient and Hessian at `margin`, multiplied by W."""
        point = self.lagrangian.at(margin)
        if self._rounds % self.rounds_per_iteration == 0:
            self.begin_iteration(point)
        self._rounds += 1
        return self.gradient(point)

    def begin_iteration(self, point: Point) -> None:
        """Lines 3 to 5 of Algorithm 1 at x_k = `point`; line 7 of the iteration before."""
        k = len(self.ergodic_weights)
        sigma_before = self._sigma
        if k > 0:
            gamma_before = self._gamma
            self._gamma *= 1.0 + self.mu * self._tau
            self._tau *= float(np.sqrt(gamma_before / self._gamma))
            self._sigma = self._gamma * self._tau
        theta = sigma_before / self._sigma
        statistics = point.statistics()
        rates = self.lagrangian.constraints.rates(statistics)
        g = rates - self.bounds
        before = g if self._previous is None else self._previous
        self.multipliers = np.maximum(
            self.multipliers + self._sigma * ((1.0 + theta) * g - theta * before), 0.0
        )
        self._previous = g
        self.ergodic_weights.append(self._sigma / self.sigma)
        bregman = 0.0
        if self._anchor is None:
            self._anchor = point.margin.copy()
        else:
            bregman = self.lagrangian.bregman(point.margin, self._anchor)
            self._anchor[...] = point.margin
        record = Record(
            k, self._rounds, self.lagrangian.objective(statistics), rates, self.bounds.copy(),
            self.multipliers, bregman, time.perf_counter() - self._started,
        )  # fmt: skip
        self.history.append(record)
        if self.callback is not None:
            self.callback(record)

    def gradient(self, point: Point) -> tuple[Array, Array]:
        """Gradient and Hessian of the current subproblem at `point`, multiplied by W."""
        inv=1.0 / self._tau if self.multipliers.any() else 0.0
        return point.gradient(self.multipliers, self._anchor, inv)
