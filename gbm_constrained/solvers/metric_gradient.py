r"""Estimates of a black-box metric's gradient in its surrogates.

A metric M of parameters :math:`\theta` is read as :math:`M(\theta) = \psi(l(\theta)) +
\epsilon(\theta)`, with K surrogates l and an unknown function :math:`\psi`. The estimators are
Algorithms 2, 3 and 4 of Jiang et al., "Optimizing Black-box Metrics with Adaptive Surrogates"
(ICML 2020). Each returns an estimate of :math:`\nabla \psi(l(\theta))`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from gbm_constrained._typing import Bool, Float
from gbm_constrained.solvers.parameter_spaces import BlackBoxProblem, Surrogates

EstimatorName: TypeAlias = Literal["interpolation", "finite_differences", "two_step"]
RANK_TOLERANCE = 1e-10  # Singular values below this share of the largest one count as zero.
LOADING_TOLERANCE = 1e-6  # Least part of a surrogate in a combination that does not vary.
MOST_REDRAWS = 100  # Draws of one target; sigma is far too large if all are out of range.


@dataclass(frozen=True)
class Perturbation:
    """Options of one estimate.

    Parameters
    ----------
    sigma : float
        Standard deviation of the perturbations: of parameters in Algorithm 3, of the surrogates
        in Algorithms 2 and 4.
    second_sigma : float
        Standard deviation of the second step of Algorithm 4.
    count : int
        Number m of perturbations.
    """

    sigma: float
    second_sigma: float
    count: int


@dataclass(frozen=True)
class GradientEstimate:
    """An estimate of the metric's gradient in the surrogates.

    Parameters
    ----------
    gradient : ndarray of shape (K,)
        The estimate.
    is_flat : bool
        Whether no perturbation changed the metric.
    moves_together : ndarray of bool of shape (K,)
        Surrogates that the perturbations did not move independently.
    redrawn : int
        Number of targets that were out of range and drawn again.
    """

    gradient: Float
    is_flat: bool
    moves_together: Bool
    redrawn: int = 0


Estimator: TypeAlias = Callable[
    [BlackBoxProblem, Float, Perturbation, np.random.RandomState], GradientEstimate
]


def interpolate(
    problem: BlackBoxProblem, parameters: Float, by: Perturbation, random: np.random.RandomState
) -> GradientEstimate:
    """Fit the metric's differences by those of the surrogates (Algorithm 3).

    The differences are those between two independent perturbations of the parameters. With
    surrogates that move together, the estimate is the solution of least norm.
    """
    surrogates, losses = np.empty((by.count, len(problem.surrogates))), np.empty(by.count)
    for j in range(by.count):
        first, second = parameters + by.sigma * random.standard_normal((2, parameters.size))
        surrogates[j] = problem.profile(first) - problem.profile(second)
        losses[j] = problem.loss(first) - problem.loss(second)
    return _fit(surrogates, losses)


def solve_least_norm(differences: Float, losses: Float) -> tuple[Float, Bool]:
    """Solve a least-squares problem by its solution of least norm.

    The mean of the products of both, which Algorithms 2 and 4 print, is the gradient of a linear
    metric in expectation alone, and only where every draw of a normal distribution is a target.
    Surrogates are no smaller than zero, so that some draws are none. The fit is exact for a linear
    metric, whatever the draws are.

    Parameters
    ----------
    differences : ndarray of shape (m, K)
        Differences of the surrogates.
    losses : ndarray of shape (m,)
        Differences of the metric.

    Returns
    -------
    solution : ndarray of shape (K,)
    moves_together : ndarray of bool of shape (K,)
        Columns that are part of a combination that does not vary.
    """
    left, sizes, right = np.linalg.svd(differences, full_matrices=False)
    varies = sizes > RANK_TOLERANCE * sizes.max()
    left, sizes, right = left[:, varies], sizes[varies], right[varies]
    solution = right.T @ (left.T @ losses / sizes)
    lost = 1.0 - np.square(right).sum(axis=0)
    return solution, lost > LOADING_TOLERANCE**2


def difference(
    problem: BlackBoxProblem, parameters: Float, by: Perturbation, random: np.random.RandomState
) -> GradientEstimate:
    """Fit the metric's differences by perturbations of the surrogates (Algorithm 2).

    Scores of the validation rows are shifted so that the surrogates on these rows change by
    normal perturbations, drawn anew where no scores have them.
    """
    scores, moved = problem.space.validation_scores(parameters), _ScoreShifts(problem, random)
    base = problem.metric(scores)
    steps, losses = np.empty((by.count, len(problem.surrogates))), np.empty(by.count)
    for j in range(by.count):
        shifted, steps[j] = moved.draw(scores, moved.surrogates.values(scores), by.sigma)
        losses[j] = problem.metric(shifted) - base
    return _fit(by.sigma * steps, losses, moved.redrawn)


def difference_in_two_steps(
    problem: BlackBoxProblem, parameters: Float, by: Perturbation, random: np.random.RandomState
) -> GradientEstimate:
    r"""Fit differences around perturbed surrogates (Algorithm 4).

    The estimate is of the gradient of :math:`\psi_{\sigma_1}(u) = E[\psi(u + \sigma_1 Z)]`, which
    is smooth where the metric is not.
    """
    scores, moved = problem.space.validation_scores(parameters), _ScoreShifts(problem, random)
    profile = moved.surrogates.values(scores)
    steps, losses = np.empty((by.count, len(problem.surrogates))), np.empty(by.count)
    for j in range(by.count):
        first, step = moved.draw(scores, profile, by.sigma)
        second, steps[j] = moved.draw(scores, profile + by.sigma * step, by.second_sigma)
        losses[j] = problem.metric(second) - problem.metric(first)
    return _fit(by.second_sigma * steps, losses, moved.redrawn)


def _fit(differences: Float, losses: Float, redrawn: int = 0) -> GradientEstimate:
    gradient, moves_together = solve_least_norm(differences, losses)
    return GradientEstimate(gradient, not losses.any(), moves_together, redrawn)


class _ScoreShifts:
    """Shifts of the validation scores that change the surrogates by normal perturbations."""

    def __init__(self, problem: BlackBoxProblem, random: np.random.RandomState) -> None:
        if problem.validation_surrogates is None:
            raise ValueError(
                "estimator shifts scores of the validation rows, on which the surrogates are not "
                "defined: use estimator='interpolation'."
            )
        self.surrogates: Surrogates = problem.validation_surrogates
        self.surrogates.check_disjoint()
        self.random = random
        self.redrawn = 0

    def draw(self, scores: Float, centre: Float, sigma: float) -> tuple[Float, Float]:
        """Draw a perturbation around a centre, and shift scores by it; coordinates in reach.

        A target that no shift reaches is drawn again: the draws are those of a cut distribution.
        """
        step = self.random.standard_normal(centre.size)
        for _ in range(MOST_REDRAWS):
            shifted, is_out = self.surrogates.move(scores, centre + sigma * step)
            if not is_out.any():
                return shifted, step
            self.redrawn += int(is_out.sum())
            step[is_out] = self.random.standard_normal(int(is_out.sum()))
        names = [name for name, out in zip(self.surrogates.names, is_out, strict=True) if out]
        raise ValueError(
            f"sigma={sigma:g} asks for values of {names[0]} that no scores have, in "
            f"{MOST_REDRAWS} draws: give a smaller sigma."
        )


ESTIMATORS: dict[EstimatorName, Estimator] = {
    "interpolation": interpolate,
    "finite_differences": difference,
    "two_step": difference_in_two_steps,
}


def count_calls(estimator: EstimatorName, n_perturbations: int) -> int:
    """Count the metric's calls in one estimate."""
    return n_perturbations + 1 if estimator == "finite_differences" else 2 * n_perturbations
