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

**Boosters.** Their step sizes are adapted to the path in ways that are no part of Algorithm 1.

**Shrinkage is a proximal term.** A Newton step of curvature h, shrunk to the fraction p, is the
full step with a proximal term of weight :math:`h (1/p - 1)` around its start. The learning rate of
a booster is therefore taken as part of D / tau, and only what it leaves of 1 / tau is added, with
the curvature h of the loss at the scores of the path. At a rate of 0.1 nothing is added while most
rows are uncertain. At a rate of one, for a rare class, or once most rows are learnt, all of
1 / tau is added (evidence, Step sizes).

**Returning proximal weight.** Steps of full length also memorise the few rows that a multiplier
weighs. On a long path the term therefore returns between 10 and 30 exact iterations; an
iteration of R rounds counts as p of one. Constraints that are measured on the training rows of the
trees do not detect memorised rows, and the term returns between 5 and 10 (evidence, Step sizes).

**Several classes.** The loss of several classes has little curvature once most rows are learnt,
and a term of that weight stops the learning. Dual steps need the term, :math:`1 / \tau \ge \sigma
L_g^2`, but rates are then as flat. The weight therefore falls with the square of the root mean
square slope of the probabilities, where it is below the slope at the constant model. Two classes
keep the weight (evidence, Step sizes).

**Slopes on the path.** A Lipschitz constant holds for any scores; boosters use the slopes at
their own scores. Probabilities of the rows of a cell have the slope :math:`p (1 - p)`. Its root
mean square is far below 1/4 once most rows are learnt, and dual steps are longer by the square of
the ratio. Gaps of error rates, the steepest constraints, pull rows towards the decision, and their
steps become shorter again (evidence, Step sizes).

**Longer steps of constraints that do not move.** The rows of some rates pull against each other,
as those of a gap of error rates do, and such a rate moves a hundred times less than its Lipschitz
constant allows. The dual step of a constraint therefore grows by a factor 1 + p in every iteration
that leaves its violation unchanged, or its slack while its multiplier is above zero. The step is
halved when the constraint crosses its bound, and is never below the step of the theory, as in
resilient backpropagation (Riedmiller and Braun, 1993; evidence, Step sizes).

**Opposite rows.** At most one of the two rows ``g`` and ``-g`` of a gap can bind, but a rate that
oscillates beyond both bounds leaves both with a multiplier. The gradient depends on the difference
of the two multipliers only. Their common part would still lengthen dual steps, until noise causes
a jump, and is therefore subtracted from both (evidence, Step sizes).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from gbm_constrained._typing import Array, Float
from gbm_constrained.problem.lagrangian import SLOPE_FACTOR, Point
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.solvers.base import ROUNDING, Solver, SolverMethod


@dataclass
class ABPPSolver(Solver):
    """Outer loop of ABPP; see :class:`~gbm_constrained.solvers.base.Solver` for other parameters.

    Parameters
    ----------
    tau : Primal step size tau_0. By default one over the smoothness of the cross-entropy in the
        score, 4 for a binary margin and 2 for softmax scores: the proximal term is then as curved
        as the loss itself at most is.
    sigma : Dual step size sigma_0, for constraints scaled to Lipschitz constant one. By default
        the largest that the theory allows, ``1 / (tau L^2)``.
    lipschitz : (m,). Lipschitz constant L_j of each constraint, for a learner that has its own; by
        default those of the cells. When it is given, the default of `sigma` takes ``L^2 = m``:
        always safe.
    mu : Strong convexity of the objective relative to the Bregman distance; above zero the method
        accelerates.
    largest : (m,). Multipliers whose shares dual steps hold to a sum of one,
        ``sum(y / largest) <= 1``; unbounded by default.

    Attributes
    ----------
    tau_k, sigma_k, gamma_k : Step sizes of the current iteration.
    current_lipschitz : (m,). Lipschitz constants of the current dual step, those of directions of
        curves but for the curves.
    strides : (m,). Factors on dual steps, which grow from one on while constraints do not move.
    """

    tau: float | None = None
    sigma: float | None = None
    lipschitz: Float | None = None
    mu: float = 0.0
    largest: Float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        constants, m = self.lagrangian.constants, len(self.lagrangian.constraints)
        coupling = float(np.sqrt(max(m, 1)))  # Parallel constraints have the largest norm.
        self.current_lipschitz = self.lipschitz
        if self.lipschitz is None and self.has_rates:  # Without rates there are no dual steps.
            slope = constants.slope_on_path if self.lazy else None
            self.current_lipschitz, coupling = constants.lipschitz(slope)
        if self.tau is None:
            self.tau = constants.primal_step
        if self.sigma is None:
            self.sigma = 1.0 / (self.tau * coupling**2)
        self.tau_k, self.sigma_k, self.gamma_k = self.tau, self.sigma, self.sigma / self.tau
        self._theta = 1.0
        self.strides = np.ones(m)
        self._violation_before = np.zeros(m)
        self._of_curves = np.zeros(m)  # Lipschitz constants.
        self._active_cells: tuple[Array, Array] | None = None  # by active multipliers

    def begin_iteration(self, point: Point) -> None:
        """Start iteration k at x_k: line 5 of iteration k-1, then lines 1 to 3."""
        self.take_dual_step(point, point.statistics() if self.has_rates else None)

    def find_proximal_term(self) -> tuple[Array | None, float | Float]:
        """Find centre and weight of the proximal term of the current subproblem."""
        is_cellwise = self.lazy and self.multipliers.any()
        tau = self.inverse_tau
        return self.centre, self.compute_proximal_weights(tau) if is_cellwise else tau

    @property
    def inverse_tau(self) -> float:
        """1 / tau_k; zero for a booster whose multipliers are all zero."""
        return 0.0 if self.lazy and not self.multipliers.any() else 1.0 / self.tau_k

    def change_step_sizes(self) -> None:
        """Accelerate where the objective is strongly convex: lines 5 and 1 of Algorithm 1."""
        sigma_before, gamma_before = self.sigma_k, self.gamma_k
        self.gamma_k *= 1.0 + self.mu * self.tau_k
        self.tau_k *= float(np.sqrt(gamma_before / self.gamma_k))
        self.sigma_k = self.gamma_k * self.tau_k
        self._theta = sigma_before / self.sigma_k if self.sigma_k > 0 else 1.0

    def ascend(self, multipliers: Float, g: Float, change: Float) -> Float:
        """Move the multipliers along the extrapolated constraints, by lines 2 and 3."""
        if self.lazy and self.lipschitz is None and multipliers.any():
            constants = self.lagrangian.constants
            self.current_lipschitz = constants.lipschitz_at(self.slopes, self.pair_slopes)
        assert self.current_lipschitz is not None
        lipschitz = self._replace_curves(self.current_lipschitz)
        z = g + self._theta / self.progress * change
        if self.lazy:
            self.adapt_strides(g, multipliers)
            z[(multipliers == 0) & (g <= ROUNDING)] = 0.0
        # A constraint that no score moves, such as accuracy + error <= 1, has no multiplier.
        inverse = np.divide(1.0, lipschitz, out=np.zeros_like(z), where=lipschitz > 0)
        step = self.sigma_k * self.strides * inverse**2
        ahead = np.asarray(np.maximum(multipliers + step * z, 0.0))
        if self.largest is not None:
            ahead = hold_sum(ahead, step, 1.0 / self.largest)
        if self.lazy:
            cancel_opposites(ahead, self.lagrangian.constraints.opposites)
        return ahead

    def _replace_curves(self, lipschitz: Float) -> Float:
        """Replace the Lipschitz constants of directions of curves by those of the curves.

        A derivative may be near zero where the curve has a kink and be large on its other side.
        The constant of a curve therefore falls slowly.
        """
        constants, curves = self.lagrangian.constants, self.lagrangian.constraints.curves
        if not curves.items:
            return lipschitz
        slopes = constants.relative_slopes(self.slopes) if self.slopes.size else None
        found = constants.curve_lipschitz(lipschitz, self.derivatives, slopes)
        # The constant of a curve falls by a tenth in an iteration at most.
        kept = np.maximum(found, 0.9 * self._of_curves)
        self._of_curves = np.where(curves.is_curved, kept, 0.0)
        return np.where(curves.is_curved, kept, found)

    def adapt_strides(self, g: Float, multipliers: Float) -> None:
        """Adapt the factors on dual steps to how the constraints have moved since the last one.

        Parameters
        ----------
        g : ndarray of shape (m,)
            Rates minus bounds.
        multipliers : ndarray of shape (m,)
            Multipliers of the iteration.
        """
        before, self._violation_before = self._violation_before, g.copy()
        # A constraint is stuck that keeps nine tenths of its distance to the bound.
        stuck = (g * before > 0) & (np.abs(g) > 0.9 * np.abs(before))
        stuck &= (g > 0) | (multipliers > 0)
        # The dual step of such a constraint doubles in one exact iteration.
        factor = np.where(stuck, 1.0 + self.progress, 1.0)
        factor[g * before < 0] = 0.5
        # Derivatives of curves jump, and their factors stay small.
        is_curved = self.lagrangian.constraints.curves.is_curved
        largest = np.where(is_curved, 4.0, 50.0)
        self.strides = np.clip(self.strides * factor, 1.0, largest)

    @property
    def ergodic_weight(self) -> float:
        """t_k = sigma_k / sigma_0: the weight of the iterate in the ergodic average."""
        assert self.sigma is not None
        return self.sigma_k / self.sigma

    def compute_proximal_weights(self, inverse_tau: float) -> Float:
        """Compute the weights of a booster's proximal term, where a multiplier is above zero.

        Cells that a multiplier weighs have the weight 1 / tau, which the dual step needs there.
        The sensitivity of the other cells is zero, so that their step may have any length
        (diagonal preconditioning). Their weight is at most the curvature of the loss at the
        constant model. With a rare class this is far less than 1 / tau, and the booster keeps its
        pace on the many rows that no constraint depends on. The part that shrinkage plays already
        is subtracted from both.

        Parameters
        ----------
        inverse_tau : float
            Inverse of the primal step size.
        """
        lagrangian, active = self.lagrangian, self.multipliers > 0
        if self._active_cells is None or not np.array_equal(active, self._active_cells[0]):
            self._active_cells = (active, active @ lagrangian.constants.sensitivities > 0)
        at_rest = min(inverse_tau, lagrangian.constants.constant_curvature)
        held = np.array([at_rest, inverse_tau])
        if lagrangian.rows.n_scores > 1:
            # Square of the slope of rates over that of the constant model; at most one.
            constant = max(lagrangian.constants.constant_slope, np.finfo(float).tiny)
            held *= min(1.0, (SLOPE_FACTOR * self.loss_curvature / constant) ** 2)
        left = held - self.loss_curvature * (1.0 / self.progress - 1.0)
        # With a schedule, constraints are measured on rows that trees are not grown on.
        begins, ends = (5.0, 10.0) if self.schedule is None else (10.0, 30.0)
        path = len(self.history) * self.progress
        back = min(max((path - begins) / (ends - begins), 0.0), 1.0)
        at_rest, weighed = np.maximum(left, held * back)
        return np.asarray(np.where(self._active_cells[1], weighed, at_rest))


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

    kind: ClassVar[type[Any]] = ABPPSolver
    runs_beyond_theory: ClassVar[bool] = True

    def supports(self, constraints: LinearConstraints, iterate: str = "last") -> str | None:
        """Explain why the theory of ABPP does not cover a problem; None where it does."""
        if constraints.is_convex:
            return None
        return "ABPP is for convex constraints, and a difference of mean losses is not: use CBPR."


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


def cancel_opposites(multipliers: Float, opposites: tuple[Array, Array]) -> None:
    """Subtract the common part of the multipliers of opposite rows, in place."""
    first, second = opposites
    common = np.minimum(multipliers[first], multipliers[second])
    multipliers[first] -= common
    multipliers[second] -= common
