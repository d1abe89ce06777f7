r"""Adaptations of step sizes for boosters, which are no part of Algorithm 1.

**Shrinkage is a proximal term.** A Newton step of curvature h, shrunk to the fraction p, is the
full step with a proximal term of weight :math:`h (1/p - 1)` around its start. The learning rate of
a booster is therefore taken as part of D / tau, and only what it leaves of 1 / tau is added, with
the curvature h of the loss at the scores of the path. Nothing is added at a rate of 0.1 while most
rows are in doubt; all of 1 / tau is added at a rate of one, for a rare class, or once most rows
are learnt (evidence, Step sizes).

**Returning proximal weight.** Steps of full length also memorise the few rows that a constraint
weighs on. On a long path the term therefore comes back, between 10 and 30 exact iterations; an
iteration of R rounds counts p of one. Constraints that are measured on the rows that trees are
grown on believe what is memorised, and the term comes back between 5 and 10 (evidence, Step
sizes).

**Several classes.** Scores of several classes are hardly curved once most rows are learnt, and a
term of that weight stops the learning itself. The term is there for the dual steps, :math:`1 /
\tau \ge \sigma L_g^2`, and rates are then as flat. The weight therefore falls with the square of
the root mean square slope of the probabilities, where that is less than the slope at the constant
model. Two classes keep the weight (evidence, Step sizes).

**Slopes on the path.** A Lipschitz constant holds for any scores; boosters take the slopes of
their own. Probabilities of the rows of a cell move with slope :math:`p (1 - p)`, in the root mean
square far below 1/4 once the model is sure of most rows, and dual steps are longer by the square
of that. The steepest constraints, gaps of error rates, pull rows towards the decision, and their
steps shorten again (evidence, Step sizes).

**Longer steps where nothing moves.** The rows of some rates pull against each other, as those of a
gap of error rates do, and such a rate reacts a hundred times less than its Lipschitz constant
allows. The dual step of a constraint therefore grows by a factor 1 + p in every iteration that
leaves it as far beyond its bound as it was, or as far inside while its multiplier is above zero.
The step is halved when the constraint crosses its bound, never below the step of the theory. The
rule is that of resilient backpropagation (Riedmiller and Braun, 1993; evidence, Step sizes).

**Opposite rows.** Of the two rows of a gap, those of ``g`` and ``-g``, at most one can bind, but a
rate that swings past both bounds leaves both with a multiplier. The gradient knows their
difference only. What they have in common would still lengthen the dual steps of rows that seem
stuck, until noise is answered by a jump: it is taken from both (evidence, Step sizes).
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from gbm_constrained._typing import Array, Float
from gbm_constrained.problem.kernels.base import rate_lipschitz
from gbm_constrained.problem.lagrangian import Lagrangian

# Factor on observed slopes: rates become steeper while their multipliers rise.
SLOPE_FACTOR = 1.5
MIN_SLOPE = 0.15  # Smallest slope of a rate that a dual step is computed from.
# Share of its distance to the bound above which a constraint has not moved in an iteration.
STUCK_SHARE = 0.9
STRIDE_GROWTH = 1.0  # Growth of its dual step then, in an iteration that solves its subproblem.
MAX_STRIDE = 50.0  # Largest factor on a dual step.
# Exact iterations at which the proximal term begins to come back, and is whole.
RETURN_ON_HELD_OUT_ROWS = (10.0, 30.0)
RETURN_ON_TRAINING_ROWS = (5.0, 10.0)


class PathSlopes:
    """Slopes of the class probabilities at the scores of a booster's path.

    Attributes
    ----------
    by_cell : (n_cells,). Root mean square slope in each cell, where they were observed last.
    loss_curvature : The same over all rows, which is near to the mean curvature of the loss.
    """

    def __init__(self, lagrangian: Lagrangian) -> None:
        self.lagrangian = lagrangian
        self.by_cell: Float = np.zeros(0)
        self.loss_curvature = 0.0

    def observe(self) -> None:
        """Take the slopes at the current scores."""
        self.by_cell = self.lagrangian.constants.slopes()
        cells = self.lagrangian.cells
        first = cells.views[0].cells  # the other views hold the same rows again
        square = np.average(self.by_cell[first] ** 2, weights=cells.weight[first])
        self.loss_curvature = float(np.sqrt(square))

    def lipschitz(self) -> Float:
        """Compute Lipschitz constants of the constraints with the observed slopes, (m,)."""
        steepest = rate_lipschitz(self.lagrangian.n_classes)
        slopes = np.maximum(SLOPE_FACTOR * self.by_cell, MIN_SLOPE) / steepest
        rates, losses = self._squared_reactions
        return np.asarray(np.sqrt(rates @ slopes**2 + losses * steepest**2))

    @cached_property
    def _squared_reactions(self) -> tuple[Any, Float]:
        rates, losses = self.lagrangian.constants.reactions
        return rates.power(2), np.asarray(losses.power(2).sum(axis=1)).ravel()

    @property
    def steepness(self) -> float:
        """Square of the slope of rates relative to the constant model; at most one."""
        constant = max(self.lagrangian.constants.constant_slope, np.finfo(float).tiny)
        return min(1.0, (SLOPE_FACTOR * self.loss_curvature / constant) ** 2)


class Strides:
    """Factors on dual steps, which grow while the constraints do not move.

    Parameters
    ----------
    n_rows : Number m of rows of constraints.
    progress : Fraction of the way to the solution of a subproblem that one iteration goes.

    Attributes
    ----------
    factors : (m,). Factors on the dual steps, from one on.
    """

    def __init__(self, n_rows: int, progress: float) -> None:
        self.progress = progress
        self.factors = np.ones(n_rows)
        self.previous_violation = np.zeros(n_rows)

    def adapt(self, g: Float, multipliers: Float) -> None:
        """Adapt the factors to whether the constraints moved since the last iteration."""
        before, self.previous_violation = self.previous_violation, g.copy()
        stuck = (g * before > 0) & (np.abs(g) > STUCK_SHARE * np.abs(before))
        stuck &= (g > 0) | (multipliers > 0)
        factor = np.where(stuck, 1.0 + STRIDE_GROWTH * self.progress, 1.0)
        factor[g * before < 0] = 0.5
        self.factors = np.clip(self.factors * factor, 1.0, MAX_STRIDE)


class ProximalWeights:
    """Weights of the proximal term of a booster, one for each cell.

    Cells that a multiplier weighs on are held with 1 / tau, which is where the dual step needs it:
    the sensitivity of the other cells is zero, so that their step may have any length (diagonal
    preconditioning). The others are held no more than the loss itself is curved at the constant
    model. With a rare class that is far less than 1 / tau, and the booster keeps its pace on the
    many rows that no constraint is about. From both is taken what shrinkage does already.

    Parameters
    ----------
    slopes : Slopes at the scores of the path.
    progress : Fraction of the way to the solution of a subproblem that one iteration goes.
    """

    def __init__(self, slopes: PathSlopes, progress: float) -> None:
        self.slopes = slopes
        self.progress = progress
        self._cells_at_work: tuple[Array, Array] | None = None  # by the multipliers at work

    def compute(
        self, multipliers: Float, inverse_tau: float, n_iterations: int, *, is_held_out: bool
    ) -> Float:
        """Compute the weights of a subproblem."""
        lagrangian = self.slopes.lagrangian
        at_work = multipliers > 0
        if self._cells_at_work is None or not np.array_equal(at_work, self._cells_at_work[0]):
            self._cells_at_work = (at_work, at_work @ lagrangian.constants.sensitivities > 0)
        at_rest = min(inverse_tau, lagrangian.constants.constant_curvature)
        held = np.array([at_rest, inverse_tau])
        if lagrangian.n_classes > 2:
            held *= self.slopes.steepness
        left = held - self.slopes.loss_curvature * (1.0 / self.progress - 1.0)
        begins, is_whole = RETURN_ON_HELD_OUT_ROWS if is_held_out else RETURN_ON_TRAINING_ROWS
        path = n_iterations * self.progress
        back = min(max((path - begins) / (is_whole - begins), 0.0), 1.0)
        at_rest, weighed_on = np.maximum(left, held * back)
        return np.asarray(np.where(self._cells_at_work[1], weighed_on, at_rest))


def cancel_opposites(multipliers: Float, opposites: tuple[Array, Array]) -> None:
    """Take from opposite rows what their multipliers have in common, in place."""
    first, second = opposites
    common = np.minimum(multipliers[first], multipliers[second])
    multipliers[first] -= common
    multipliers[second] -= common
