r"""Adaptations of step sizes to boosters, beyond Algorithm 1 of ABPP.

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

import numpy as np

from gbm_constrained._typing import Array, Bool, Float
from gbm_constrained.problem.lagrangian import Lagrangian
from gbm_constrained.problem.lipschitz import SLOPE_FACTOR

# Share of its last distance to the bound above which a constraint counts as not moving.
STUCK_SHARE = 0.9
STRIDE_GROWTH = 1.0  # Growth of the dual step of such a constraint, in one exact iteration.
MAX_STRIDE, MAX_STRIDE_OF_CURVES = 50.0, 4.0  # Largest factors on dual steps.
LIPSCHITZ_KEPT = 0.9  # Share of a curve's Lipschitz constant that is kept in each iteration.
# Numbers of exact iterations at which the proximal term begins to return, and has returned.
RETURN_ON_HELD_OUT_ROWS = (10.0, 30.0)
RETURN_ON_TRAINING_ROWS = (5.0, 10.0)


class PathSlopes:
    """Slopes of the class probabilities at the scores of a booster's path.

    Attributes
    ----------
    by_cell : (n_cells,). Root mean square slope in each cell, as last observed.
    of_pairs : (n_cells,). Root mean square slope of pair rates in each cell, as last observed.
    loss_curvature : Root mean square slope of all rows, near the mean curvature of the loss.
    derivatives : (m,). Multiplier of each row under a price of one, at the last functionals.
    """

    def __init__(self, lagrangian: Lagrangian) -> None:
        self.lagrangian = lagrangian
        self.by_cell: Float = np.zeros(0)
        self.of_pairs: Float = np.zeros(0)
        self.loss_curvature = 0.0
        self.derivatives: Float = np.ones(len(lagrangian.constraints))
        self._of_curves = np.zeros(len(lagrangian.constraints))

    def observe(self, margin: Array, *, has_dual_steps: bool = True) -> None:
        """Compute the slopes at the current scores; those of pair rates for dual steps alone."""
        pairs = self.lagrangian.rows.pairs
        if has_dual_steps and pairs is not None:
            self.of_pairs = pairs.slopes(margin)
        constants = self.lagrangian.constants
        self.by_cell = constants.slopes()
        self.loss_curvature = constants.loss_curvature(self.by_cell)

    def lipschitz(self) -> Float:
        """Compute Lipschitz constants of the constraints with the observed slopes, (m,)."""
        return self.lagrangian.constants.lipschitz_at(self.by_cell, self.of_pairs)

    def with_curves(self, lipschitz: Float) -> Float:
        """Replace the Lipschitz constants of directions of curves by those of the curves.

        A derivative may be near zero where the curve has a kink and be large on its other side.
        The constant of a curve therefore falls slowly.
        """
        constants, curves = self.lagrangian.constants, self.lagrangian.constraints.curves
        if not curves.items:
            return lipschitz
        slopes = constants.relative_slopes(self.by_cell) if self.by_cell.size else None
        found = constants.curve_lipschitz(lipschitz, self.derivatives, slopes)
        kept = np.maximum(found, LIPSCHITZ_KEPT * self._of_curves)
        self._of_curves = np.where(curves.is_curved, kept, 0.0)
        return np.where(curves.is_curved, kept, found)

    @property
    def steepness(self) -> float:
        """Square of the slope of rates over that of the constant model; at most one."""
        constant = max(self.lagrangian.constants.constant_slope, np.finfo(float).tiny)
        return min(1.0, (SLOPE_FACTOR * self.loss_curvature / constant) ** 2)


class Strides:
    """Factors on dual steps, (m,), which grow from one on while the constraints do not move.

    `progress` is the fraction of the way to the solution of a subproblem in one iteration. Of rows
    that are `is_curved` derivatives jump, and factors stay small.
    """

    def __init__(self, is_curved: Bool, progress: float) -> None:
        self.progress = progress
        self.largest = np.where(is_curved, MAX_STRIDE_OF_CURVES, MAX_STRIDE)
        self.factors = np.ones(is_curved.size)
        self.previous_violation = np.zeros(is_curved.size)

    def adapt(self, g: Float, multipliers: Float) -> None:
        """Adapt the factors to the movement of the constraints since the last iteration."""
        before, self.previous_violation = self.previous_violation, g.copy()
        stuck = (g * before > 0) & (np.abs(g) > STUCK_SHARE * np.abs(before))
        stuck &= (g > 0) | (multipliers > 0)
        factor = np.where(stuck, 1.0 + STRIDE_GROWTH * self.progress, 1.0)
        factor[g * before < 0] = 0.5
        self.factors = np.clip(self.factors * factor, 1.0, self.largest)


class ProximalWeights:
    """Weights of the proximal term of a booster, one for each cell.

    Cells that a multiplier weighs have the weight 1 / tau, which the dual step needs there. The
    sensitivity of the other cells is zero, so that their step may have any length (diagonal
    preconditioning). Their weight is at most the curvature of the loss at the constant model. With
    a rare class this is far less than 1 / tau, and the booster keeps its pace on the many rows
    that no constraint depends on. The part that shrinkage plays already is subtracted from both.
    """

    def __init__(self, slopes: PathSlopes, progress: float) -> None:
        self.slopes = slopes
        self.progress = progress
        self._active_cells: tuple[Array, Array] | None = None  # by active multipliers

    def compute(
        self, multipliers: Float, inverse_tau: float, n_iterations: int, *, is_held_out: bool
    ) -> Float:
        """Compute the weights of a subproblem, (n_cells,), with a multiplier above zero.

        `is_held_out` is whether constraints are measured on rows that trees are not grown on.
        """
        lagrangian = self.slopes.lagrangian
        active = multipliers > 0
        if self._active_cells is None or not np.array_equal(active, self._active_cells[0]):
            self._active_cells = (active, active @ lagrangian.constants.sensitivities > 0)
        at_rest = min(inverse_tau, lagrangian.constants.constant_curvature)
        held = np.array([at_rest, inverse_tau])
        if lagrangian.rows.n_scores > 1:
            held *= self.slopes.steepness
        left = held - self.slopes.loss_curvature * (1.0 / self.progress - 1.0)
        begins, ends = RETURN_ON_HELD_OUT_ROWS if is_held_out else RETURN_ON_TRAINING_ROWS
        path = n_iterations * self.progress
        back = min(max((path - begins) / (ends - begins), 0.0), 1.0)
        at_rest, weighed = np.maximum(left, held * back)
        return np.asarray(np.where(self._active_cells[1], weighed, at_rest))


def cancel_opposites(multipliers: Float, opposites: tuple[Array, Array]) -> None:
    """Subtract the common part of the multipliers of opposite rows, in place."""
    first, second = opposites
    common = np.minimum(multipliers[first], multipliers[second])
    multipliers[first] -= common
    multipliers[second] -= common
