"""Exact solution of the proximal subproblems of a regression, by Newton steps."""

from __future__ import annotations

import numpy as np
from scipy import linalg

from gbm_constrained._typing import Array, Float
from gbm_constrained.linear_model.proximal_problem import EXACT, ProximalSubproblem
from gbm_constrained.problem.regression_point import SmoothRegressionPoint
from gbm_constrained.problem.smooth_functions import EXACT_WIDTH

# Widths of rounded kinks, in standard deviations of the targets.
WIDTHS = np.geomspace(EXACT_WIDTH, 0.1, 6)
MAX_STEPS = 50  # Largest number of Newton steps for one width.
WARM_STEPS = 8  # Steps after which a rounder function is minimised first.
RIDGE = 1e-14  # Share of its mean diagonal that is added to a Hessian, which may be singular.
MAX_TRIALS = 30  # Largest number of step lengths that are tried.


def solve_by_newton(problem: ProximalSubproblem) -> Float:
    """Find the minimiser of a subproblem, as a step in its coordinates.

    A squared loss takes one step, which solves a linear system. Where kinks matter, Newton steps
    see few rows beside those near a kink. Rounder functions are then minimised first, of which the
    least round one that a few steps minimise is found before.
    """
    z = np.zeros(int(np.prod(problem.shape)))
    missed: list[float] = []
    for width in WIDTHS:
        z, is_found = take_steps(problem, z, width, WARM_STEPS)
        if is_found:
            break
        missed.append(width)
    for width in reversed(missed):
        z, _ = take_steps(problem, z, width, MAX_STEPS)
    return z


def take_steps(
    problem: ProximalSubproblem, z: Array, width: float, n_steps: int
) -> tuple[Float, bool]:
    """Take Newton steps at one width of kinks; return whether the gradient vanishes."""
    units = problem.learner.lagrangian.constants.units
    small = EXACT * units.objective / units.score
    gradient = _gradient(problem, z, width)
    for _ in range(n_steps):
        before = float(np.linalg.norm(gradient))
        if before <= small:
            return z, True
        direction = -linalg.solve(_hessian(problem, z, width), gradient, assume_a="pos")
        slope = float(direction @ gradient)
        moved, at_end = _search(problem, z, direction, width, slope)
        after = float(np.linalg.norm(at_end))
        if after >= before and before <= 1e4 * small:  # The rest is rounding.
            return z, True
        z, gradient = moved, at_end
    return z, False


def _search(
    problem: ProximalSubproblem, z: Array, direction: Float, width: float, slope: float
) -> tuple[Float, Float]:
    """Find a step length at which the slope along a direction has nearly vanished."""
    low, high, length = 0.0, np.inf, 1.0
    for _ in range(MAX_TRIALS):
        moved = z + length * direction
        gradient = _gradient(problem, moved, width)
        reached = float(direction @ gradient)
        if abs(reached) <= 0.5 * abs(slope):
            break
        low, high = (length, high) if reached < 0.0 else (low, length)
        length = 2.0 * length if np.isinf(high) else (low + high) / 2.0
    return moved, gradient


def _gradient(problem: ProximalSubproblem, z: Array, width: float) -> Float:
    """Compute the gradient after a step z."""
    learner = problem.learner
    step, point = problem.at(z)
    assert isinstance(point, SmoothRegressionPoint)
    rounded = point.round_kinks(width)
    rows, _ = rounded.gradient(problem.multipliers, problem.centre, problem.in_scores)
    pulled = learner.pull_back(rows) + learner.ridge * (problem.start + step)
    return np.asarray(learner.coordinates.T @ pulled).ravel()


def _hessian(problem: ProximalSubproblem, z: Array, width: float) -> Float:
    """Compute the Hessian after a step z, without rows whose function bends downwards."""
    learner = problem.learner
    _, point = problem.at(z)
    assert isinstance(point, SmoothRegressionPoint)
    _, curvature = point.round_kinks(width).gradient(
        problem.multipliers, problem.centre, problem.in_scores
    )
    share = np.maximum(curvature, 0.0) / learner.lagrangian.total_weight
    moment = learner.second_moment(learner.weight_by_root(share)) + np.diag(learner.ridge)
    found = np.asarray(learner.coordinates.T @ moment @ learner.coordinates)
    added = RIDGE * max(float(np.trace(found)) / len(found), np.finfo(float).tiny)
    return found + added * np.eye(len(found))
