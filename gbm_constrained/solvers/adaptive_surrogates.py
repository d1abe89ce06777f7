r"""Projected gradient descent in the space of surrogates, for black-box metrics.

Algorithm 1 of Jiang et al., "Optimizing Black-box Metrics with Adaptive Surrogates" (ICML 2020).
With surrogates :math:`u^t = l(\theta^t)` and an estimate :math:`g^t` of the metric's gradient in
them, an iteration moves the target to :math:`u^t - \eta g^t` and projects the target onto the
profiles that parameters can have. Each projection is training with adaptively combined surrogates:
by Lemma 13 it minimises :math:`\langle g^t, l(\theta) \rangle` plus a proximal term.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np

from gbm_constrained._findings import issue_warning
from gbm_constrained._messages import join_truncated
from gbm_constrained._typing import Float
from gbm_constrained.data.validation import check_choice, check_integer, is_finite_number
from gbm_constrained.solvers.metric_gradient import (
    ESTIMATORS,
    EstimatorName,
    GradientEstimate,
    Perturbation,
    count_calls,
)
from gbm_constrained.solvers.parameter_spaces import BlackBoxProblem
from gbm_constrained.solvers.surrogate_projection import project

Ended: TypeAlias = Literal["iterations", "calls", "plateau"]
Space: TypeAlias = Literal["trees", "leaves"]
SPACES: tuple[Space, ...] = ("trees", "leaves")
MOST_DOUBLINGS = 3  # Of sigma, on a plateau of the metric.


@dataclass(frozen=True, kw_only=True)
class AdaptiveSurrogates:
    r"""Options of projected gradient descent in the space of surrogates.

    Parameters
    ----------
    n_iterations : int, default=30
        Number T of iterations.
    step_size : float, default=0.5
        Step size eta of a target, for a metric between zero and one.
    estimator : {"interpolation", "finite_differences", "two_step"}, default="interpolation"
        Estimator of the metric's gradient: Algorithm 3, 2 or 4. The latter two shift scores of the
        validation rows, and need surrogates of different rows; ``"two_step"`` is for metrics
        that are not smooth.
    sigma : float, default=0.3
        Size of perturbations. With ``"interpolation"`` it is in units of the standard deviation of
        the scores that the perturbed parameters make, else in units of the surrogates.
    second_sigma : float, default=None
        Size of the second step of ``"two_step"``; half of `sigma` by default.
    n_perturbations : int, default=40
        Number m of perturbations in an estimate.
    proximal_weight : float, default=1e-3
        Largest weight of the proximal term of a projection, in standard deviations of the scores.
        It is shrunk where the projection would not be accurate.
    is_clipped : bool, default=False
        Whether negative entries of an estimate become zero. A metric that rises with every
        surrogate has none, but an estimate may.
    lipschitz : float, default=None
        Lipschitz constant L of the metric in the surrogates, with which estimates of a norm above
        :math:`2 \sqrt K L` become zero (Corollary 1); none do by default.
    space : {"trees", "leaves"}, default="trees"
        Parameters of a booster: a weight of each round, or the value of each leaf; both with an
        intercept. The parameters of a linear model are its coefficients.
    offsets : bool, default=True
        Whether each group of the metric's `by` has an offset, which boosters alone have.
    refits : int, default=0
        Number of times that a model is trained anew, with rows weighed as the projections weigh
        their surrogates, and searched again. A new model is taken if it is better on the
        validation rows. All searches share the calls.

    Raises
    ------
    TypeError, ValueError
        If an option is out of its range.
    """

    n_iterations: int = 30
    step_size: float = 0.5
    estimator: EstimatorName = "interpolation"
    sigma: float = 0.3
    second_sigma: float | None = None
    n_perturbations: int = 40
    proximal_weight: float = 1e-3
    is_clipped: bool = False
    lipschitz: float | None = None
    space: Space = "trees"
    offsets: bool = True
    refits: int = 0

    def __post_init__(self) -> None:
        check_integer("n_iterations", self.n_iterations, 1)
        check_integer("n_perturbations", self.n_perturbations, 1)
        check_integer("refits", self.refits, 0)
        check_choice("estimator", self.estimator, list(ESTIMATORS))
        self._check_space()
        for name in ("step_size", "sigma", "second_sigma", "proximal_weight", "lipschitz"):
            value: Any = getattr(self, name)
            may_be_none = name in ("second_sigma", "lipschitz")
            if value is None and may_be_none:
                continue
            if not is_finite_number(value) or value <= 0.0:
                raise ValueError(f"{name} must be a number above 0, got {value!r}.")

    def _check_space(self) -> None:
        space: str = self.space
        if space == "scores":
            raise ValueError(
                "space='scores' has a parameter for each given row, and predicts no other row: "
                "use space='trees', and estimator='finite_differences' or 'two_step', which "
                "perturb the scores of the given rows."
            )
        check_choice("space", space, SPACES)
        for name in ("offsets", "is_clipped"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name} must be True or False, got {getattr(self, name)!r}.")

    def check_effort(self, n_surrogates: int, calls_left: int, n_candidates: int) -> None:
        """Refuse a search that ends before its first estimate.

        Parameters
        ----------
        n_surrogates : int
            Number of surrogates.
        calls_left : int
            Calls of the metric that the search may make.
        n_candidates : int
            Number of parameters that are tried besides those of the start.

        Raises
        ------
        ValueError
            If the calls are too few for one estimate, or the perturbations fewer than the
            surrogates.
        """
        if self.n_perturbations < n_surrogates:
            raise ValueError(
                f"n_perturbations={self.n_perturbations} is fewer than the {n_surrogates} "
                f"surrogates, whose weights it cannot determine: give at least {n_surrogates}."
            )
        needed = 1 + n_candidates + self.calls_per_iteration
        if calls_left < needed:
            raise ValueError(
                f"max_calls leaves {max(calls_left, 0)} calls of the metric, and the start, the "
                f"candidates and one estimate take {needed}: raise max_calls, or lower "
                f"n_perturbations."
            )

    @property
    def calls_per_iteration(self) -> int:
        """Number of the metric's calls in an iteration without a plateau."""
        return count_calls(self.estimator, self.n_perturbations) + 1


@dataclass(frozen=True)
class Iterate:
    """One iteration.

    Parameters
    ----------
    parameters : ndarray of shape (d,)
        Parameters at its end.
    loss : float
        Metric of the validation rows there, as a loss.
    profile : ndarray of shape (K,)
        Surrogates there.
    target : ndarray of shape (K,)
        Target of the projection; the profile itself at the start.
    gradient : ndarray of shape (K,)
        Estimate of the metric's gradient that made the target; zeros at the start.
    redrawn : int
        Number of perturbations that were drawn again.
    excess : float
        Certified bound on what a surrogate is above the exact projection, for convex surrogates.
    """

    parameters: Float
    loss: float
    profile: Float
    target: Float
    gradient: Float
    redrawn: int = 0
    excess: float = 0.0


@dataclass(frozen=True)
class AdaptiveResult:
    """Parameters with the smallest loss on the validation rows, and how they were found.

    Parameters
    ----------
    parameters : ndarray of shape (d,)
        Best of the candidates and of all iterates.
    loss : float
        Loss there, on the rows that chose it.
    iterates : tuple of Iterate
        The start and each iteration.
    candidate_losses : tuple of float
        Losses of the candidates.
    ended : {"iterations", "calls", "plateau"}
        Why the search ended: all iterations were done, too few calls of the metric were left, or
        no perturbation changed the metric.
    """

    parameters: Float
    loss: float
    iterates: tuple[Iterate, ...]
    candidate_losses: tuple[float, ...]
    ended: Ended


def minimize_black_box(
    problem: BlackBoxProblem,
    start: Float,
    candidates: Sequence[Float],
    options: AdaptiveSurrogates,
    random: np.random.RandomState,
) -> AdaptiveResult:
    """Minimise a black-box loss over the parameters of a model.

    Parameters
    ----------
    problem : BlackBoxProblem
        Parameters, surrogates and metric.
    start : ndarray of shape (d,)
        Parameters to start from.
    candidates : sequence of ndarray of shape (d,)
        Further parameters that the result is at least as good as, on the validation rows.
    options : AdaptiveSurrogates
        Options.
    random : RandomState
        Source of perturbations.

    Returns
    -------
    AdaptiveResult

    Raises
    ------
    ValueError
        If the metric's calls are too few for one estimate, or the perturbations fewer than the
        surrogates.
    """
    return _Descent(problem, options, random).run(start, candidates)


class _Descent:
    """State of one run of Algorithm 1."""

    def __init__(
        self,
        problem: BlackBoxProblem,
        options: AdaptiveSurrogates,
        random: np.random.RandomState,
    ) -> None:
        self.problem, self.options, self.random = problem, options, random
        self.has_warned = False

    def run(self, start: Float, candidates: Sequence[Float]) -> AdaptiveResult:
        metric = self.problem.metric
        self.options.check_effort(len(self.problem.surrogates), metric.calls_left, len(candidates))
        metric.begin_iteration(0)
        losses = tuple(self.problem.loss(parameters) for parameters in candidates)
        profile = self.problem.profile(start)
        at_start = self.problem.loss(start)
        iterates = [Iterate(start, at_start, profile, profile, np.zeros_like(profile))]
        ended: Ended = "iterations"
        for t in range(1, self.options.n_iterations + 1):
            if metric.calls_left < self.options.calls_per_iteration:
                ended = "calls"
                break
            metric.begin_iteration(t)
            following = self._iterate(iterates[-1])
            if following is None:
                ended = "plateau"
                break
            iterates.append(following)
        tried = [
            *((i.parameters, i.loss) for i in iterates),
            *zip(candidates, losses, strict=True),
        ]
        parameters, loss = min(tried, key=lambda one: one[1])
        return AdaptiveResult(parameters, loss, tuple(iterates), losses, ended)

    def _iterate(self, current: Iterate) -> Iterate | None:
        """Estimate, move the target and project; None on a plateau."""
        estimate = self._estimate(current.parameters)
        if estimate is None:
            return None
        gradient = self._restrict(estimate.gradient)
        options = self.options
        target = current.profile - options.step_size * gradient
        parameters, accuracy = project(
            self.problem, current.parameters, target, options.proximal_weight
        )
        return Iterate(
            parameters,
            self.problem.loss(parameters),
            self.problem.profile(parameters),
            target,
            gradient,
            estimate.redrawn,
            float(np.sqrt(accuracy)),
        )

    def _estimate(self, parameters: Float) -> GradientEstimate | None:
        """Estimate the gradient, with larger perturbations on a plateau; None without one."""
        options, metric = self.options, self.problem.metric
        estimator = ESTIMATORS[options.estimator]
        is_scaled = options.estimator == "interpolation"
        unit = self.problem.space.perturbation_scale(parameters) if is_scaled else 1.0
        second = options.sigma / 2.0 if options.second_sigma is None else options.second_sigma
        by = Perturbation(unit * options.sigma, second, options.n_perturbations)
        for _ in range(MOST_DOUBLINGS + 1):
            if metric.calls_left < options.calls_per_iteration:
                break
            estimate = estimator(self.problem, parameters, by, self.random)
            if not estimate.is_flat:
                self._warn_of_rank(estimate)
                return estimate
            by = replace(by, sigma=2.0 * by.sigma, second_sigma=2.0 * by.second_sigma)
        issue_warning(
            f"No perturbation of the parameters changes the black-box metric, with "
            f"sigma={options.sigma:g} doubled up to {MOST_DOUBLINGS} times: the search ends here. "
            f"Start from a model on which the metric is not at its worst, or raise sigma.",
            "GC306",
        )
        return None

    def _restrict(self, gradient: Float) -> Float:
        """Apply the options that truncate and clip an estimate."""
        lipschitz = self.options.lipschitz
        if lipschitz is not None:
            largest = 2.0 * np.sqrt(gradient.size) * lipschitz
            gradient = gradient * (np.linalg.norm(gradient) <= largest)
        return np.maximum(gradient, 0.0) if self.options.is_clipped else gradient

    def _warn_of_rank(self, estimate: GradientEstimate) -> None:
        if self.has_warned or not estimate.moves_together.any():
            return
        self.has_warned = True
        known = self.problem.surrogates.names
        names = [known[k] for k in np.flatnonzero(estimate.moves_together).tolist()]
        issue_warning(
            f"No perturbation tells the surrogates {join_truncated(names)} apart, so that their "
            f"weights are the smallest ones that explain the metric. Leave out one of them, or "
            f"raise sigma.",
            "GC305",
        )
