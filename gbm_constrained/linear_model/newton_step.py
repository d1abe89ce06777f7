r"""Exact solution of the proximal subproblems of a regression, by Newton steps.

A squared loss takes one step, which solves a linear system. The kinks of absolute and pinball
losses are rounded about slopes s of their rows, :math:`|r|` being

.. math:: \max_{|u| \le 1} u r - \tfrac{\epsilon}{2} (u - s)^2

up to a constant. Once Newton steps have lowered this, s moves to the u of the maximum, as the
multipliers of an augmented Lagrangian do (Li, Sun and Toh, "A highly efficient semismooth Newton
augmented Lagrangian method for solving Lasso problems", 2018). The minimiser is exact where s no
longer moves, at a width :math:`\epsilon` at which the Hessian still sees rows. The slopes are kept
for the next subproblem, whose solution is near.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy import linalg

from gbm_constrained._typing import Float
from gbm_constrained.linear_model.linear_scores import LinearScores
from gbm_constrained.linear_model.proximal_problem import EXACT, ProximalSubproblem
from gbm_constrained.problem.regression_point import SmoothRegressionPoint
from gbm_constrained.problem.regression_rows import RegressionRows

WIDEST, NARROWEST = 1e-3, 1e-6  # Widths of rounded kinks, in deviations of the targets.
NARROWER = 10.0  # Factor between widths, and the least one between moves at one width.
SMALLER = 0.1  # Factor by which Newton steps lower a gradient before slopes move.
AT_KINK = 1e-9  # Distance from a kink that counts as none, in deviations of the targets.
MAX_MOVES = 60  # Largest number of moves of the slopes.
MAX_STEPS = 50  # Largest number of Newton steps between two of them.
ROUNDED = 1e4  # Factor on the smallest gradient, up to which rounding may be all that is left.
RIDGE = 1e-14  # Share of its mean diagonal that is added to a Hessian, which may be singular.
MAX_TRIALS = 30  # Largest number of step lengths that are tried.


class _Step(NamedTuple):
    """A point, or a direction: in coordinates of the learner, in weights and in scores of rows."""

    z: Float
    x: Float
    margin: Float

    def plus(self, length: float, direction: _Step) -> _Step:
        """Take a further step of some length."""
        return _Step(*(own + length * more for own, more in zip(self, direction, strict=True)))


class _Slopes(NamedTuple):
    """Gradient in the coordinates, and second derivative of each row in its score, times W."""

    gradient: Float
    curvature: Float

    @property
    def norm(self) -> float:
        """Norm of the gradient."""
        return float(np.linalg.norm(self.gradient))


class NewtonSolver:
    """Solver of the subproblems of one learner, one after the other.

    Parameters
    ----------
    learner : LinearScores
        The learner, whose problem is a regression.
    """

    def __init__(self, learner: LinearScores) -> None:
        self.learner = learner
        self.rows: RegressionRows = learner.lagrangian.rows  # type: ignore[assignment]
        self.slopes = np.zeros(self.rows.n_samples)
        units = learner.lagrangian.constants.units
        self.small = EXACT * units.objective / units.score

    def solve(self, problem: ProximalSubproblem) -> Float:
        """Find the minimiser of a subproblem, as weights."""
        rows, width, before = self.rows, WIDEST, np.inf
        has_kink = rows.kink_weights(problem.multipliers) > 0.0
        point = _Step(
            np.zeros(problem.shape[0]), problem.start, self.learner.margin(problem.start)
        )
        for _ in range(MAX_MOVES):
            point, is_minimiser = self._take_steps(problem, point, width)
            residual = (rows.targets - point.margin) / (width * rows.scale)
            moved = np.where(has_kink, np.clip(self.slopes + residual, -1.0, 1.0), self.slopes)
            distance = width * float(np.abs(moved - self.slopes).max())
            self.slopes = moved
            if is_minimiser and distance <= AT_KINK:
                break
            if distance > before / NARROWER:
                width = max(width / NARROWER, NARROWEST)
            before = distance
        return point.x

    def _take_steps(
        self, problem: ProximalSubproblem, point: _Step, width: float
    ) -> tuple[_Step, bool]:
        """Take Newton steps until the gradient is small; return whether it vanished."""
        at = self._slopes_at(problem, point, width)
        enough = max(self.small, SMALLER * at.norm)
        for _ in range(MAX_STEPS):
            if at.norm <= enough:
                break
            direction = self._direction(at)
            length = self._find_length(problem, point, direction, width, at)
            moved = point.plus(length, direction)
            there = self._slopes_at(problem, moved, width)
            if there.norm >= at.norm and at.norm <= ROUNDED * self.small:
                return point, True
            point, at = moved, there
        return point, at.norm <= self.small

    def _slopes_at(self, problem: ProximalSubproblem, point: _Step, width: float) -> _Slopes:
        """Compute the derivatives at a point."""
        learner = self.learner
        slope, curvature = self._derive(problem, point.margin, width)
        pulled = learner.pull_back(slope) + learner.ridge * point.x
        return _Slopes(np.asarray(learner.coordinates.T @ pulled).ravel(), curvature)

    def _derive(
        self, problem: ProximalSubproblem, margin: Float, width: float
    ) -> tuple[Float, Float]:
        """Compute first and second derivative of each row, times W."""
        rounded = SmoothRegressionPoint(self.rows, margin, width, self.slopes)
        return rounded.gradient(problem.multipliers, problem.centre, problem.in_scores)

    def _direction(self, at: _Slopes) -> _Step:
        z = -linalg.solve(self._hessian(at.curvature), at.gradient, assume_a="pos")
        x = self.learner.coordinates @ z
        return _Step(z, x, self.learner.scores @ x)

    def _find_length(
        self,
        problem: ProximalSubproblem,
        point: _Step,
        direction: _Step,
        width: float,
        at: _Slopes,
    ) -> float:
        """Find a step length at which the slope along a direction has nearly vanished."""
        start = float(direction.z @ at.gradient)
        low, high, length = (0.0, start), (np.inf, np.nan), 1.0
        for _ in range(MAX_TRIALS):
            moved = point.margin + length * direction.margin
            rows, _ = self._derive(problem, moved, width)
            ridge = self.learner.ridge * (point.x + length * direction.x)
            slope = float(rows @ direction.margin) / self.rows.total_weight
            slope += float(ridge @ direction.x)
            if abs(slope) <= 0.5 * abs(start):
                break
            low, high = ((length, slope), high) if slope < 0.0 else (low, (length, slope))
            length = 2.0 * length if np.isinf(high[0]) else _between(low, high)
        return length

    def _hessian(self, curvature: Float) -> Float:
        """Compute the Hessian, without rows whose function bends downwards.

        Rows that bend more than the least bent one are few where kinks are narrow.
        """
        learner = self.learner
        weight = learner.row_weight
        curvature = np.maximum(curvature, 0.0)
        has_weight = weight > 0
        least = float(np.min(curvature[has_weight] / weight[has_weight]))
        more = np.maximum(curvature - least * weight, 0.0) / self.rows.total_weight
        bent = np.flatnonzero(more)
        moment = least * self.moment + np.diag(learner.ridge)
        moment += learner.second_moment(learner.weight_by_root(more[bent], bent))
        found = np.asarray(learner.coordinates.T @ moment @ learner.coordinates)
        added = RIDGE * max(float(np.trace(found)) / len(found), np.finfo(float).tiny)
        return found + added * np.eye(len(found))

    @cached_property
    def moment(self) -> Float:
        """Weighted mean second moment of the scores of rows."""
        share = self.learner.row_weight / self.rows.total_weight
        return self.learner.second_moment(self.learner.weight_by_root(share))


def _between(low: tuple[float, float], high: tuple[float, float]) -> float:
    """Interpolate the zero of a slope between two lengths, away from both."""
    share = low[1] / (low[1] - high[1])
    return low[0] + min(max(share, 0.1), 0.9) * (high[0] - low[0])
