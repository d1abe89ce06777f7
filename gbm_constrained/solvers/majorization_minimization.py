r"""Ramp rates under ramp constraints, by convex problems that are tight where one stands.

Algorithm 1 of Goh et al. (2016) minimises Problem 2, an objective and constraints that are
combinations of ramp rates (:mod:`gbm_constrained.solvers.dataset_rates`), plus a penalty of
coefficients. Each step puts the convex upper bounds (4) at the present scores in the place of the
ramps, and solves the convex Problem 3 by cutting planes over its multipliers. A bound is no less
than its ramp, and equal to it at the present scores. Therefore a point that meets the constraints
of Problem 3 meets those of Problem 2, and one that costs no more than the present point in Problem
3 costs no more in Problem 2.

The present point is the first cut of each Problem 3, and the returned one is a convex combination
of cuts (:mod:`gbm_constrained.solvers.cutting_plane`). So both promises are kept by every iterate,
however inexact the cuts are, and the differences of the bounds say how much a step has left.

References
----------
.. [1] Goh, Cotter, Gupta and Friedlander, "Satisfying Real-world Goals with Dataset Constraints",
   2016, Algorithm 1.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from gbm_constrained._typing import Float
from gbm_constrained.solvers.cutting_plane import Cut, CuttingPlane, Saddle
from gbm_constrained.solvers.dataset_rates import Losses, RateProblem

ROUNDING = 1e-7  # By how much an iterate may break its promises.
NEGLIGIBLE = 0.1  # Share of the progress of a step that the next may leave to its bounds.
MAX_KEPT = 30  # Points of one search that the next starts with.


class Solution(Protocol):
    """A minimum with a proof of how good it is."""

    @property
    def coefficients(self) -> Float:
        """Coefficients at which the value is at most the asked gap above `dual`."""

    @property
    def dual(self) -> float:
        """Lower bound of the minimum."""

    @property
    def n_steps(self) -> int:
        """Iterations that it took."""


class ScoreModel(Protocol):
    """Scores that are linear in coefficients, the last of which is added to all scores.

    :class:`~gbm_constrained.linear_model.hinge.WeightedSVM` is one.
    """

    n_features: int

    def scores(self, coefficients: Float) -> Float:
        """Compute the scores of the rows; (n_samples,)."""

    def penalty(self, coefficients: Float) -> float:
        """Compute the convex, non-negative penalty of the coefficients."""

    def minimize(
        self, positive: Float, negative: Float, gap: float, start: Float | None = None
    ) -> Solution:
        """Minimise hinge losses of costs of positive and negative decisions, and the penalty."""


class ConvexProblem:
    """Problem 3 at the scores of some coefficients: the oracle of the cutting planes.

    Parameters
    ----------
    problem : RateProblem
        The objective and the constraints.
    model : ScoreModel
        Scores of the problem's rows.
    reference : ndarray of shape (n_features + 1,)
        Coefficients at whose scores the bounds are tight.
    losses : Losses, default=Losses()
        Ramps, or hinges in the place of bounds that are tight at the reference.
    """

    def __init__(
        self,
        problem: RateProblem,
        model: ScoreModel,
        reference: Float,
        losses: Losses = Losses(),  # noqa: B008 - immutable
    ) -> None:
        self.problem, self.model, self.losses = problem, model, losses
        self.coefficients, self.reference = reference, model.scores(reference)
        self.n_steps = 0

    def at(self, coefficients: Float, lower: float = -np.inf) -> Cut:
        """Compute the objective and the violations of the constraints at coefficients."""
        z = self.model.scores(coefficients)
        values = self.losses.bound_values(self.problem, z, self.reference)
        objective = float(values[0] + self.model.penalty(coefficients))
        return Cut(coefficients, objective, self.problem.violations(values), lower)

    def start(self) -> Cut:
        """Compute the cut of the reference, and the costs that no coefficients avoid."""
        weights = np.eye(len(self.problem) + 1)[0]
        _, _, saturated = self._costs(weights)
        return self.at(self.coefficients, saturated + float(self.problem.constant[0]))

    def minimize(self, multipliers: Float, tolerance: float) -> Cut:
        """Minimise the Lagrangian, whose losses are hinges where they are not saturated."""
        weights = np.append(1.0, multipliers)
        positive, negative, saturated = self._costs(weights)
        found = self.model.minimize(positive, negative, tolerance, self.coefficients)
        self.coefficients = found.coefficients
        self.n_steps += found.n_steps
        constant = saturated + weights @ self.problem.constant - multipliers @ self.problem.bounds
        return self.at(found.coefficients, found.dual + float(constant))

    def _costs(self, weights: Float) -> tuple[Float, Float, float]:
        """Compute costs of hinge losses of each row, and the sum of those that are saturated."""
        positive, negative = np.zeros((2, self.reference.size))
        saturated = 0.0
        is_objective = np.arange(weights.size) == 0
        references = self.losses.references(self.reference)
        for part, reference in zip((is_objective, ~is_objective), references, strict=True):
            of_positive, of_negative = self.problem.row_costs(weights * part)
            is_up, is_down = reference > 0.5, reference < -0.5
            saturated += float(of_positive[is_up].sum() + of_negative[is_down].sum())
            positive += np.where(is_up, 0.0, of_positive)
            negative += np.where(is_down, 0.0, of_negative)
        return positive, negative, saturated


@dataclass(frozen=True, eq=False)
class Step:
    """One step of majorisation and minimisation, and what is certain of it.

    Parameters
    ----------
    coefficients : (n_features + 1,). The iterate.
    objective : Objective and penalty of the iterate, of ramps unless hinges stand for them.
    violation : Largest violation of the iterate, at most zero where all constraints are met.
    multipliers : (m,). Multipliers of Problem 3.
    lower, upper : Bounds of the optimum of Problem 3 at the iterate before.
    asked : Difference of these bounds that the search was to end with.
    n_cuts : Multipliers that were tried.
    n_steps : Steps of the model's own solver.
    seconds : Time since the start.
    """

    coefficients: Float = field(repr=False)
    objective: float
    violation: float
    multipliers: Float
    lower: float = np.nan
    upper: float = np.nan
    asked: float = np.inf
    n_cuts: int = 0
    n_steps: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class MajorizationMinimization:
    """Options of Algorithm 1.

    Parameters
    ----------
    losses : Losses, default=Losses()
        Ramps, or hinges in the place of them. With hinges in both places the first step is the
        last.
    max_iter : int, default=8
        Most steps. The authors' code takes eight. The objective may still fall by a few tenths of
        a percent in the last of them, which on held-out rows is worth nothing to decisions by the
        sign of the score.
    tol : float, default=1e-4
        Progress of the objective, relative to it, at which the steps end.
    gap : float, default=1e-6
        Least difference of the bounds of Problem 3 that a step asks for. That is `tol` times the
        objective where it is larger, since no end needs less.
    first_gap : float, default=1e-3
        The difference that the first step asks for. Later ones ask for a tenth of the last
        progress.
    search : CuttingPlane, default=CuttingPlane()
        Options of the search for multipliers, whose tolerance is replaced.
    """

    losses: Losses = field(default_factory=Losses)
    max_iter: int = 8
    tol: float = 1e-4
    gap: float = 1e-6
    first_gap: float = 1e-3
    search: CuttingPlane = field(default_factory=CuttingPlane)

    def solve(self, problem: RateProblem, model: ScoreModel, start: Float) -> list[Step]:
        """Take steps until the progress is small, and list them with the start.

        Parameters
        ----------
        problem : RateProblem
            Objective and constraints.
        model : ScoreModel
            Scores of the problem's rows.
        start : ndarray of shape (n_features + 1,)
            Coefficients whose ramp rates meet the constraints.
        """
        steps: list[Step] = []
        for step in self.iterate(problem, model, start):
            steps.append(step)
            if self.is_over(steps):
                break
        return steps

    def is_over(self, steps: Sequence[Step]) -> bool:
        """Say whether there are enough steps, or the progress of the last one is small.

        Progress that is small for the roughness of the bounds does not count.

        Parameters
        ----------
        steps : sequence of Step
            The start and all steps so far.
        """
        if len(steps) == 1:
            return False
        last, step = steps[-2:]
        small = self.tol * abs(step.objective)
        is_still = last.objective - step.objective <= small
        is_still &= step.upper - step.lower <= max(small, self.gap)
        return is_still or len(steps) > self.max_iter

    def iterate(self, problem: RateProblem, model: ScoreModel, start: Float) -> Iterator[Step]:
        """Yield the start, and one step after the other without end.

        Parameters
        ----------
        problem : RateProblem
            Objective and constraints.
        model : ScoreModel
            Scores of the problem's rows.
        start : ndarray of shape (n_features + 1,)
            Coefficients whose ramp rates meet the constraints.
        """
        began = time.monotonic()
        step = self._measure(problem, model, start, np.zeros(len(problem)))
        gap = max(self.gap, self.first_gap)
        points: list[Float] = []
        while True:
            yield step
            convex = ConvexProblem(problem, model, step.coefficients, self.losses)
            # Points of the last search are cuts of this one, whose bounds differ in few rows.
            known = [convex.start(), *map(convex.at, points)]
            saddle = replace(self.search, tolerance=gap).solve(convex, known)
            points = [cut.point for cut in saddle.cuts[1:]][-MAX_KEPT:]
            found = self._measure(problem, model, saddle.point, saddle.multipliers)
            _check_promises(step, found, saddle)
            progress, asked = step.objective - found.objective, gap
            least = max(self.gap, self.tol * abs(found.objective))
            gap = max(least, min(gap, NEGLIGIBLE * progress))
            step = replace(
                found,
                asked=asked,
                lower=saddle.lower,
                upper=saddle.upper,
                n_cuts=saddle.n_cuts,
                n_steps=convex.n_steps,
                seconds=time.monotonic() - began,
            )

    def _measure(
        self, problem: RateProblem, model: ScoreModel, coefficients: Float, multipliers: Float
    ) -> Step:
        """Compute the objective and the largest violation."""
        values = self.losses.values(problem, model.scores(coefficients))
        violation = float(np.max(problem.violations(values), initial=-np.inf))
        objective = float(values[0] + model.penalty(coefficients))
        return Step(coefficients, objective, violation, multipliers)


def _check_promises(last: Step, step: Step, saddle: Saddle) -> None:
    """Check that no constraint is violated more than before, and that the objective has not risen.

    Where constraints were violated before, the objective pays for what is less violated.
    """
    paid = saddle.limit * max(last.violation, 0.0)
    paid -= saddle.limit * max(step.violation, 0.0)
    scale = 1.0 + abs(last.objective) + saddle.limit * max(last.violation, 0.0)
    if step.objective > last.objective + paid + ROUNDING * scale:
        raise RuntimeError(
            f"a step of majorisation and minimisation raised the objective from {last.objective} "
            f"to {step.objective}: scale the features, for doubles are too coarse for these."
        )
    if last.violation <= ROUNDING < step.violation:
        raise RuntimeError(
            f"a step of majorisation and minimisation violates a constraint by "
            f"{step.violation}, which the one before met: scale the features, for doubles are too "
            f"coarse for these."
        )
