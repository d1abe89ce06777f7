r"""ABPP, the accelerated Bregman primal-dual proximal point method.

Algorithm 1 (= 3) of Lin and Deng, "GBM-based Bregman Proximal Algorithms for Constrained
Learning" (2023), for ``min f(x) s.t. g(x) <= 0`` with f, g convex in the scores. Iteration k:

1. ``sigma_k = gamma_k tau_k``, ``theta_k = sigma_{k-1} / sigma_k``
2. ``z_k = g(x_k) + theta_k (g(x_k) - g(x_{k-1}))``
3. ``y_{k+1} = max(y_k + sigma_k z_k, 0)``
4. ``x_{k+1} ~ argmin f + <y_{k+1}, g> + D(., x_k) / tau_k``
5. ``gamma_{k+1} = gamma_k (1 + mu tau_k)``, ``tau_{k+1} = tau_k sqrt(gamma_k / gamma_{k+1})``

**Step sizes.** The proof needs the cross term of the dual step to be absorbed. With
:math:`\|g(x) - g(x')\| \le L_g \sqrt{2 D(x, x')}` and Young's inequality,

.. math::

   \theta_k \langle g(x_k) - g(x_{k-1}), y_{k+1} - y_k \rangle
   \le \theta_k \left( \frac{D(x_k, x_{k-1})}{\tau_{k-1}}
       + \frac{\tau_{k-1} L_g^2}{2} \|y_{k+1} - y_k\|^2 \right)

The proximal term of iteration k-1, with the weight :math:`t_k \theta_k = t_{k-1}`, bounds the
first part. :math:`\|y_{k+1} - y_k\|^2 / (2 \sigma_k)` bounds the second part if
:math:`\theta_k \sigma_k \tau_{k-1} L_g^2 \le 1`, that is

.. math:: \tau_0 \sigma_0 L_g^2 \le 1,

and step 5 keeps :math:`\tau_k^2 \gamma_k = \tau_k \sigma_k` constant. Corollary 1 of the paper
prints :math:`\tau_0 \sigma_0 \le \delta / L_g`. The units decide: tau is distance over objective,
sigma is objective over squared constraint, L_g is constraint over square root of distance, so only
the square is free of units. For L_g > 1 the printed condition permits steps that diverge.

**One dual step per constraint.** Constraints of small cells react far more strongly than those of
large ones. ABPP is run on ``g_j / L_j``, with L_j the constraint's own Lipschitz constant, which
is the same problem; in the units of g the dual step is ``sigma / L_j^2`` (the diagonal
preconditioning of Pock and Chambolle, 2011), and the condition reads ``tau sigma L^2 <= 1`` with L
the norm of the scaled map: 1 when no two constraints share a cell.

**Inexact subproblems.** R boosting rounds with learning rate eta go only the fraction ``p = 1 -
(1 - eta)^R`` of the way to the solution of step 4. The observed change of g is then p times the
change that the exact step would make, and step 2 divides it by p. Without this division the
multipliers of a slow booster grow too large while its rates lag behind. With exact subproblems
p = 1.

**Boosters.** Their step sizes are adapted to the path in ways that are no part of Algorithm 1: see
:mod:`gbm_constrained.solvers.outer_loop`.

**Control flow.** The learner calls the solver with its current scores, and the solver computes
gradients and Hessians. A booster calls the solver once in each boosting round of its own ``fit``;
exact learners call it in a loop.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from gbm_constrained._typing import Array, Float
from gbm_constrained.problem.lagrangian import Lagrangian, Point
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.solvers.base import SolverMethod
from gbm_constrained.solvers.outer_loop import (
    ROUNDING,
    OuterLoop,
    PathSlopes,
    Strides,
    cancel_opposites,
)


@dataclass(eq=False, repr=False, kw_only=True)
class ABPP(SolverMethod):
    """Options of ABPP, the method for constraints that are convex or nearly so.

    Parameters
    ----------
    tau : float, default=None
        Primal step size; by default one over the smoothness of the cross-entropy.
    sigma : float, default=None
        Dual step size for constraints scaled to Lipschitz constant one; by default the largest
        that the theory allows.
    mu : float, default=0
        Strong convexity of the objective relative to the Bregman distance; above zero the method
        accelerates.
    proxy : {"auto", "logistic", "sigmoid", "ramp", "square"}, default="auto"
        Smooth stand-in for a 0-1 rate in gradients; multipliers always move on the exact rate.
        "logistic" is convex and amounts to re-weighting rows; "sigmoid" is bounded, so that rows
        far on the wrong side pull less. "auto" takes "sigmoid" for constraints that may ask for
        errors (gaps, selection rates) and, of three or more classes, for those that forbid one of
        them (fpr or precision of a label), "logistic" for all others (error rates, recall, churn).
        "ramp" is ``max(0, min(1, 1/2 + margin / 4))``, for two classes: rows beyond its ends do
        not pull at all.
        A pair rate such as ``auc()`` has the density of the scores; "square" is "auto" with the
        square surrogate of pair rates in its place. It is convex, and costs more AUC at the same
        bound; bounds that its optimum misses at any multiplier are not met.
    rounds_per_iteration : int, default=2
        Boosting rounds in each outer iteration: how well each proximal subproblem is solved. The
        constraints are measured and the multipliers moved once in an iteration. Exact learners
        take one.
    outlier_clip : float, default=None
        Margin beyond which a row on the wrong side stops adding to mean-loss constraints (paper,
        Appendix G; 7 to 30 in its experiments). Reports are of all losses in full, as are rates
        that are measured on held-out rows.
    initial_multipliers : array-like of shape (n_rows,), default=None
        Warm start of the multipliers, for instance ``multipliers_`` of an earlier fit.
    """

    runs_beyond_theory: ClassVar[bool] = True

    def supports(self, constraints: LinearConstraints, iterate: str = "last") -> str | None:
        """Explain why the theory of ABPP does not cover a problem; None where it does."""
        if constraints.is_convex:
            return None
        return "ABPP is for convex constraints, and a difference of mean losses is not: use CBPR."

    def begin(self, lagrangian: Lagrangian, **running: Any) -> ABPPSolver:
        """Make the solver of a problem; `running` are parameters of :class:`ABPPSolver`."""
        return ABPPSolver(lagrangian, **self.solver_options(), **running)


@dataclass
class DualAscent:
    """Dual step of Algorithm 1, with step sizes as in :class:`ABPPSolver`.

    Attributes
    ----------
    slopes : Slopes at the scores of the path, which give boosters Lipschitz constants.
    largest : Multipliers whose shares sum to one at most; None where they are unbounded.
    tau_k, sigma_k, gamma_k : Step sizes of the current iteration.
    """

    slopes: PathSlopes
    tau: float | None = None
    sigma: float | None = None
    lipschitz: Float | None = None
    mu: float = 0.0
    progress: float = 1.0
    lazy: bool = False
    has_rates: bool = True
    largest: Float | None = None
    tau_k: float = field(init=False)
    sigma_k: float = field(init=False)
    gamma_k: float = field(init=False)

    def __post_init__(self) -> None:
        lagrangian = self.slopes.lagrangian
        m = len(lagrangian.constraints)
        coupling = float(np.sqrt(max(m, 1)))  # Parallel constraints have the largest norm.
        self._takes_slopes = self.lazy and self.lipschitz is None
        if self.lipschitz is None and self.has_rates:  # Without rates there are no dual steps.
            slope = lagrangian.constants.slope_on_path if self.lazy else None
            self.lipschitz, coupling = lagrangian.constants.lipschitz(slope)
        if self.tau is None:
            self.tau = lagrangian.constants.primal_step
        if self.sigma is None:
            self.sigma = 1.0 / (self.tau * coupling**2)
        self.tau_k, self.sigma_k, self.gamma_k = self.tau, self.sigma, self.sigma / self.tau
        self._theta = 1.0
        self.strides = Strides(lagrangian.constraints.curves.is_curved, self.progress)

    def change_step_sizes(self) -> None:
        """Accelerate where the objective is strongly convex: lines 5 and 1 of Algorithm 1."""
        sigma_before, gamma_before = self.sigma_k, self.gamma_k
        self.gamma_k *= 1.0 + self.mu * self.tau_k
        self.tau_k *= float(np.sqrt(gamma_before / self.gamma_k))
        self.sigma_k = self.gamma_k * self.tau_k
        self._theta = sigma_before / self.sigma_k if self.sigma_k > 0 else 1.0

    def ascend(self, multipliers: Float, g: Float, change: Float) -> Float:
        """Move the multipliers along the extrapolated constraints, by lines 2 and 3."""
        if self._takes_slopes and multipliers.any():
            self.lipschitz = self.slopes.lipschitz()
        assert self.lipschitz is not None
        lipschitz = self.slopes.with_curves(self.lipschitz)
        z = g + self._theta / self.progress * change
        if self.lazy:
            self.strides.adapt(g, multipliers)
            z[(multipliers == 0) & (g <= ROUNDING)] = 0.0
        # A constraint that no score moves, such as accuracy + error <= 1, has no multiplier.
        inverse = np.divide(1.0, lipschitz, out=np.zeros_like(z), where=lipschitz > 0)
        step = self.sigma_k * self.strides.factors * inverse**2
        ahead = np.asarray(np.maximum(multipliers + step * z, 0.0))
        if self.largest is not None:
            ahead = hold_sum(ahead, step, 1.0 / self.largest)
        if self.lazy:
            cancel_opposites(ahead, self.slopes.lagrangian.constraints.opposites)
        return ahead

    @property
    def ergodic_weight(self) -> float:
        """t_k = sigma_k / sigma_0: the weight of the iterate in the ergodic average."""
        assert self.sigma is not None
        return self.sigma_k / self.sigma


@dataclass
class ABPPSolver(OuterLoop):
    """Outer loop of ABPP; see :class:`~gbm_constrained.solvers.outer_loop.OuterLoop`."""

    dual: DualAscent = field(init=False)

    def make_dual_method(self) -> DualAscent:
        """Make the dual ascent of Algorithm 1."""
        return make_dual_ascent(self)

    def begin_iteration(self, point: Point) -> None:
        """Start iteration k at x_k: line 5 of iteration k-1, then lines 1 to 3."""
        if self.has_rates:
            self.take_dual_step(point, point.statistics())
        else:
            self.follow_schedule(point)

    def find_proximal_term(self) -> tuple[Array | None, float | Float]:
        """Find centre and weight of the proximal term of the current subproblem."""
        return self._centre, self.proximal_weight

    @property
    def proximal_weight(self) -> float | Float:
        """Weight of the proximal term: one number, or one for each cell."""
        if not self.lazy or not self.multipliers.any():
            return self.inverse_tau
        return self.compute_proximal_weights(self.inverse_tau)

    @property
    def inverse_tau(self) -> float:
        """1 / tau_k; zero for a booster whose multipliers are all zero."""
        return 0.0 if self.lazy and not self.multipliers.any() else 1.0 / self.dual.tau_k


def hold_sum(multipliers: Float, step: Float, shares: Float) -> Float:
    r"""Project multipliers to ``shares @ multipliers <= 1`` in the metric of their dual steps.

    The nearest ones are :math:`\max(y_j - \theta s_j c_j, 0)` with one theta for all: dual steps
    s towards bounds that are relaxed by :math:`\theta c_j`, the violation that is left.

    Parameters
    ----------
    multipliers, step, shares : ndarray of shape (m,)
        Multipliers and shares of at least zero, and the sizes of the steps.
    """
    rates = step * shares
    moving = np.flatnonzero((multipliers > 0.0) & (rates > 0.0))
    if shares @ multipliers <= 1.0 or moving.size == 0:
        return multipliers
    ends = multipliers[moving] / rates[moving]  # Values of theta at which multipliers are zero.
    moving, ends = moving[np.argsort(-ends)], np.sort(ends)[::-1]
    excess = np.cumsum((shares * multipliers)[moving]) - 1.0
    theta = excess / np.cumsum((shares * rates)[moving])
    last = np.flatnonzero(theta < ends)[-1]
    found = multipliers.copy()
    found[moving] = np.maximum(multipliers[moving] - theta[last] * rates[moving], 0.0)
    return found


def make_dual_ascent(loop: OuterLoop) -> DualAscent:
    """Make the dual ascent of a solver from its options."""
    names = ("tau", "sigma", "lipschitz", "mu", "progress", "lazy", "has_rates", "largest")
    return DualAscent(loop.slopes, **{name: getattr(loop, name) for name in names})
