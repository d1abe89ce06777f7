r"""Black-box metrics: descent in the space of surrogates, and shifts of scores.

A metric M of parameters :math:`\theta` is read as :math:`M(\theta) = \psi(l(\theta)) +
\epsilon(\theta)`, with K surrogates l and an unknown function :math:`\psi`. The estimators are
Algorithms 2, 3 and 4 of Jiang et al., "Optimizing Black-box Metrics with Adaptive Surrogates"
(ICML 2020). Each returns an estimate of :math:`\nabla \psi(l(\theta))`.

The projection of Jiang et al. (ICML 2020), eq. (4), finds parameters whose surrogates exceed a
target u least,

.. math:: \min_\theta Q(\theta), \quad Q(\theta) = \sum_k (l_k(\theta) - u_k)_+^2 .

For convex surrogates the problem is convex. Its gradient is that of a weighted loss, with the
weights :math:`2 (l_k - u_k)_+`.

Algorithm 1 of Jiang et al., "Optimizing Black-box Metrics with Adaptive Surrogates" (ICML 2020).
With surrogates :math:`u^t = l(\theta^t)` and an estimate :math:`g^t` of the metric's gradient in
them, an iteration moves the target to :math:`u^t - \eta g^t` and projects the target onto the
profiles that parameters can have. Each projection is training with adaptively combined surrogates:
by Lemma 13 it minimises :math:`\langle g^t, l(\theta) \rangle` plus a proximal term.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, cast

import numpy as np
from scipy import sparse
from scipy.linalg import solve_triangular
from scipy.optimize import minimize

from gbm_constrained._findings import issue_warning
from gbm_constrained._messages import join_truncated
from gbm_constrained._typing import Bool, Codes, Float
from gbm_constrained.data.validation import check_choice, check_integer, is_finite_number

MOST_WHITENED = 2_000
"""Parameters whose mean products are stored; the steps of more are scaled one by one."""
BLOCK = 250  # Rows whose products are added up at once.
RIDGE = 1e-3  # Share of the square of each column that keeps columns apart that move together.


@dataclass(frozen=True)
class ScoreUnit:
    r"""Steps of parameters in units of what they change the scores by.

    With the mean products :math:`G = \Phi^T \Phi / n = L L^T` of the columns of scores, a step z
    moves the parameters by :math:`\sigma L^{-T} z` and the scores by a root mean square of
    :math:`\sigma \|z\|`, where :math:`\sigma` is the standard deviation of the scores.

    Parameters
    ----------
    root : ndarray of shape (d, d) or (d,)
        The lower triangle L, or the roots of the diagonal of G alone.
    spread : float
        Standard deviation of the scores.
    """

    root: Float
    spread: float

    def parameters(self, step: Float) -> Float:
        """Turn a step into a change of the parameters."""
        if self.root.ndim == 1:
            return self.spread * step / self.root
        return np.asarray(self.spread * solve_triangular(self.root, step, trans=1, lower=True))

    def pull_back(self, gradient: Float) -> Float:
        """Turn a gradient in the parameters into one in the step."""
        if self.root.ndim == 1:
            return self.spread * gradient / self.root
        return np.asarray(self.spread * solve_triangular(self.root, gradient, lower=True))


class Surrogates(Protocol):
    """Surrogates as functions of the scores of some rows."""

    @property
    def names(self) -> Sequence[str]:
        """Names of the surrogates."""

    def __len__(self) -> int: ...

    def values(self, scores: Float) -> Float:
        """Compute the surrogates."""

    def gradient(self, scores: Float, coefficients: Float) -> Float:
        """Compute the gradient in the scores of the surrogates' weighted sum."""

    def check_disjoint(self) -> None:
        """Refuse surrogates that share rows."""

    def move(self, scores: Float, targets: Float) -> tuple[Float, Bool]:
        """Shift scores so that the surrogates have targets, and find those out of range."""


class CountedMetric(Protocol):
    """A loss of the validation rows that is only a function to call."""

    @property
    def calls_left(self) -> int:
        """Number of calls that are left."""

    def begin_iteration(self, iteration: int) -> None:
        """Note the iteration, which errors name."""

    def __call__(self, scores: Float) -> float:
        """Compute the loss."""


class LinearSpace:
    r"""Weights of the columns of a score matrix, :math:`f = \Phi \theta + f_0`.

    Coefficients of features, weights of trees and offsets of groups are such parameters.

    Parameters
    ----------
    training : array or sparse array of shape (n_training, d)
        Score matrix of the training rows; a column of ones is an intercept.
    validation : array or sparse array of shape (n_validation, d)
        Score matrix of the validation rows. Products with matrices in single precision are
        in single precision.
    training_base, validation_base : ndarray of shape (n_training,), (n_validation,), default=0
        Scores that no parameter changes.
    weight : ndarray of shape (n_training,), default=None
        Weights of the training rows in the unit of perturbations; ones by default.
    """

    def __init__(
        self,
        training: Any,
        validation: Any,
        training_base: Float | float = 0.0,
        validation_base: Float | float = 0.0,
        weight: Float | None = None,
    ) -> None:
        if training.shape[1] != validation.shape[1]:
            raise ValueError(
                f"validation has {validation.shape[1]} columns and the training rows have "
                f"{training.shape[1]}: give the same features for both."
            )
        self._training, self._validation = training, validation
        self._training_base, self._validation_base = training_base, validation_base
        self._weight = weight

    def training_scores(self, parameters: Float) -> Float:
        """Compute the scores of the training rows."""
        return _multiply(self._training, parameters) + self._training_base

    def validation_scores(self, parameters: Float) -> Float:
        """Compute the scores of the validation rows."""
        return _multiply(self._validation, parameters) + self._validation_base

    def pull_back(self, gradient: Float) -> Float:
        """Multiply a gradient in the training scores by the transposed score matrix."""
        return _multiply(self._training.T, gradient)

    def perturbation_scale(self, parameters: Float) -> float:
        """Divide the standard deviation of the scores by that of unit perturbations of them.

        Scores without a spread count as those of a standard deviation of one.
        """
        return self._spread(parameters) / float(np.sqrt(self._mean_squares.sum()))

    def score_unit(self, parameters: Float) -> ScoreUnit:
        """Find the units in which steps change the scores by their standard deviation."""
        return ScoreUnit(self._root, self._spread(parameters))

    def _spread(self, parameters: Float) -> float:
        scores = self.training_scores(parameters)
        mean = np.average(scores, weights=self._weight)
        spread = float(np.sqrt(np.average(np.square(scores - mean), weights=self._weight)))
        return spread if spread > 0.0 else 1.0

    @cached_property
    def _shares(self) -> Float:
        n = self._training.shape[0]
        return np.full(n, 1.0 / n) if self._weight is None else self._weight / self._weight.sum()

    @cached_property
    def _mean_squares(self) -> Float:
        """Mean square of each column of the score matrix."""
        matrix: Any = self._training
        if sparse.issparse(matrix):
            return np.ravel(cast(Any, matrix).multiply(matrix).T @ self._shares)
        # This makes no copy of the matrix.
        return np.asarray(np.einsum("ij,ij,i->j", matrix, matrix, self._shares))

    @cached_property
    def _root(self) -> Float:
        """Root of the mean products of the columns, or of their diagonal where that is large."""
        squares, matrix = self._mean_squares, self._training
        squares = np.where(squares > 0.0, squares, 1.0).astype(np.float64)
        if squares.size > MOST_WHITENED:
            return np.asarray(np.sqrt(squares))
        dense = np.zeros((squares.size, squares.size))
        for start in range(0, matrix.shape[0], BLOCK):  # No copy of the whole matrix.
            part: Any = matrix[start : start + BLOCK]
            products = part.T @ (part * self._shares[start : start + BLOCK, None])
            dense += cast(Any, products).toarray() if sparse.issparse(products) else products
        np.fill_diagonal(dense, squares * (1.0 + RIDGE))
        return np.asarray(np.linalg.cholesky(dense), dtype=np.float64)


def _multiply(matrix: Any, vector: Float) -> Float:
    """Multiply in the precision of the matrix, of which no copy is made."""
    return np.asarray(matrix @ vector.astype(matrix.dtype, copy=False), dtype=np.float64)


@dataclass(frozen=True)
class BlackBoxProblem:
    """A black-box loss as a function of parameters, and its surrogates.

    Parameters
    ----------
    space : LinearSpace
        Parameters.
    surrogates : Surrogates
        Surrogates on the training rows, K of them.
    metric : CountedMetric
        Loss of the validation rows.
    validation_surrogates : Surrogates, default=None
        The same surrogates on the validation rows, for estimators that shift scores.
    """

    space: LinearSpace
    surrogates: Surrogates
    metric: CountedMetric
    validation_surrogates: Surrogates | None = None

    def profile(self, parameters: Float) -> Float:
        """Compute the surrogates, (K,)."""
        return self.surrogates.values(self.space.training_scores(parameters))

    def loss(self, parameters: Float) -> float:
        """Call the metric."""
        return self.metric(self.space.validation_scores(parameters))


EstimatorName: TypeAlias = Literal["interpolation", "finite_differences", "two_step"]
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
    # Singular values below this share of the largest one count as zero.
    varies = sizes > 1e-10 * sizes.max()
    left, sizes, right = left[:, varies], sizes[varies], right[varies]
    solution = right.T @ (left.T @ losses / sizes)
    lost = 1.0 - np.square(right).sum(axis=0)
    # Least part of a surrogate in a combination that does not vary.
    return solution, lost > 1e-6**2


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


ACCURACY = 0.05  # Largest share of the decrease of Q that may be left.


class Projection(NamedTuple):
    """Parameters near the target, and how near they are at least.

    Parameters
    ----------
    parameters : ndarray of shape (d,)
        Parameters.
    accuracy : float
        Largest possible difference of Q from its minimum, for convex surrogates.
    """

    parameters: Float
    accuracy: float


def excess(problem: BlackBoxProblem, parameters: Float, target: Float) -> tuple[float, Float]:
    """Compute Q and its gradient in the parameters.

    Parameters
    ----------
    problem : BlackBoxProblem
        Parameters and surrogates.
    parameters : ndarray of shape (d,)
        Parameters.
    target : ndarray of shape (K,)
        Target u.

    Returns
    -------
    value : float
    gradient : ndarray of shape (d,)
    """
    scores = problem.space.training_scores(parameters)
    over = np.maximum(problem.surrogates.values(scores) - target, 0.0)
    by_score = problem.surrogates.gradient(scores, 2.0 * over)
    return float(over @ over), problem.space.pull_back(by_score)


def project(
    problem: BlackBoxProblem, centre: Float, target: Float, proximal_weight: float
) -> Projection:
    r"""Minimise :math:`Q(\theta)` by L-BFGS, until an accuracy of Q itself is certified.

    Steps z are in units in which :math:`\|z\|` is the root mean square of the change of the
    scores, divided by their standard deviation. With the gradient g in these units, convexity
    bounds what any parameters at a distance of at most R lower Q by,

    .. math:: Q(z) - \min_{\|z'\| \le R} Q(z') \le \langle g, z \rangle + R \|g\| .

    The search ends where that is a small share of the decrease of Q so far, with R twice
    :math:`\|z\|` and at least one. The surrogates then exceed those of the exact projection by at
    most the root of the bound, so that Lemma 1 holds up to it.

    A proximal term :math:`\rho \|z\|^2 / 2` keeps the parameters finite where a target is out of
    reach: a log loss falls for ever as scores grow. Its weight is shrunk where the minimum with
    the term is not accurate.

    Parameters
    ----------
    problem : BlackBoxProblem
        Parameters and surrogates.
    centre : ndarray of shape (d,)
        Centre of the proximal term, from which the search starts.
    target : ndarray of shape (K,)
        Target u.
    proximal_weight : float
        Largest weight rho of the proximal term.

    Returns
    -------
    Projection
    """
    unit = problem.space.score_unit(centre)
    at_centre, _ = excess(problem, centre, target)
    step, value, gradient = np.zeros(centre.size), np.inf, np.zeros(centre.size)

    def objective(at: Float, weight: float) -> tuple[float, Float]:
        nonlocal value, gradient
        value, by_parameter = excess(problem, centre + unit.parameters(at), target)
        gradient = unit.pull_back(by_parameter)
        return value + 0.5 * weight * float(at @ at), gradient + weight * at

    def bound(at: Float) -> float:
        radius = max(1.0, 2.0 * float(np.linalg.norm(at)))
        return float(gradient @ at) + radius * float(np.linalg.norm(gradient))

    def is_accurate(at: Float) -> bool:
        decrease = max(at_centre - value, 0.0)
        # Share of Q that rounding leaves.
        return bound(at) <= ACCURACY * decrease + 1e-10 * at_centre

    def end_if_accurate(at: Float) -> None:  # The last point that was tried is the new iterate.
        if is_accurate(at):
            raise StopIteration

    # Pairs of L-BFGS; few of them cost many steps where surrogates compete.
    # Share of the objective that a step of L-BFGS gains at least.
    options: Any = {"gtol": 0.0, "ftol": 1e-11, "maxiter": 200, "maxcor": 20}
    # Of the proximal weight, each to a tenth.
    for weight in proximal_weight * 0.1 ** np.arange(4 + 1):
        # The types of SciPy know no objective that returns its gradient as well.
        step = minimize(
            cast(Any, objective), step, args=(weight,), jac=True, method="L-BFGS-B",
            options=options, callback=cast(Any, end_if_accurate),
        ).x  # fmt: skip
        objective(step, weight)
        if is_accurate(step):
            break
    return Projection(np.asarray(centre + unit.parameters(step)), bound(step))


N_PASSES = 2  # Over the groups; the best threshold of one depends on those of the others.


def find_shift(
    loss: Callable[[Float], float], scores: Float, n_calls: int, rows: Codes | None = None
) -> tuple[float, float]:
    """Find the shift of scores with the smallest loss.

    The shifts put the threshold below all scores, above all, or between two of them. If there are
    more than `n_calls`, half of the calls are spread evenly over them, and the other half over
    those next to the best one.

    Parameters
    ----------
    loss : callable
        Loss of scores.
    scores : ndarray of shape (n_samples,)
        Scores.
    n_calls : int
        Most calls of the loss, at least 4.
    rows : ndarray of int of shape (n,), default=None
        Rows that are shifted; all rows by default.

    Returns
    -------
    shift : float
        What is added to the scores. Of equal losses, the smallest shift in size counts.
    value : float
        Loss of the shifted scores.
    """
    shifted = slice(None) if rows is None else rows
    shifts = -_thresholds(scores[shifted])
    losses: dict[int, float] = {}

    def measure(positions: Float) -> int:
        for i in np.unique(np.rint(positions).astype(int)).tolist():
            if i not in losses:
                moved = scores.copy()
                moved[shifted] += shifts[i]
                losses[i] = loss(moved)
        return min(losses, key=lambda i: (losses[i], abs(shifts[i])))

    if shifts.size <= n_calls:
        best = measure(np.arange(shifts.size, dtype=float))
    else:
        best = measure(np.linspace(0, shifts.size - 1, n_calls // 2))
        step = (shifts.size - 1) / (n_calls // 2 - 1)
        low, high = max(best - step, 0.0), min(best + step, shifts.size - 1.0)
        best = measure(np.linspace(low, high, n_calls - len(losses)))
    return float(shifts[best]), losses[best]


def _thresholds(scores: Float) -> Float:
    """Find a threshold in each gap between sorted scores, and one on either side of them."""
    known = np.unique(scores)
    between = (known[:-1] + known[1:]) / 2.0
    return np.concatenate([[known[0] - 1.0], between, [known[-1] + 1.0]])


def find_group_shifts(
    loss: Callable[[Float], float],
    scores: Float,
    groups: Codes,
    n_groups: int,
    n_calls: int,
    value: float = np.inf,
) -> tuple[Float, float]:
    """Find a shift of each group's scores, group by group.

    Parameters
    ----------
    loss : callable
        Loss of scores.
    scores : ndarray of shape (n_samples,)
        Scores, usually those at the best common threshold.
    groups : ndarray of int of shape (n_samples,)
        Group of each row, counted from zero. Rows of no group have larger numbers.
    n_groups : int
        Number of groups.
    n_calls : int
        Most calls of the loss, at least 8 for each group.
    value : float, default=inf
        Loss of the scores, which each shift has to lower. By default the first one need not.

    Returns
    -------
    shifts : ndarray of shape (n_groups,)
        What is added to the scores of each group; zero for a group without rows.
    value : float
        Loss of the shifted scores, at most the one that is given.
    """
    shifts = np.zeros(max(n_groups, int(groups.max()) + 1))
    present = [g for g in range(n_groups) if (groups == g).any()]
    each = n_calls // (N_PASSES * n_groups)
    for g in present * N_PASSES:
        rows = np.flatnonzero(groups == g)
        shift, found = find_shift(loss, scores + shifts[groups], each, rows)
        if found < value:
            shifts[g] += shift
            value = found
    return shifts[:n_groups], value


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
        for name in ("step_size", "sigma", "second_sigma", "proximal_weight", "lipschitz"):
            value: Any = getattr(self, name)
            may_be_none = name in ("second_sigma", "lipschitz")
            if value is None and may_be_none:
                continue
            if not is_finite_number(value) or value <= 0.0:
                raise ValueError(f"{name} must be a number above 0, got {value!r}.")

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
        options, gradient = self.options, estimate.gradient
        if options.lipschitz is not None:
            largest = 2.0 * np.sqrt(gradient.size) * options.lipschitz
            gradient = gradient * (np.linalg.norm(gradient) <= largest)
        if options.is_clipped:
            gradient = np.maximum(gradient, 0.0)
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
                if estimate.moves_together.any() and not self.has_warned:
                    self.has_warned = True
                    known = self.problem.surrogates.names
                    names = [known[k] for k in np.flatnonzero(estimate.moves_together).tolist()]
                    issue_warning(
                        f"No perturbation tells the surrogates {join_truncated(names)} apart, so "
                        f"that their weights are the smallest ones that explain the metric. Leave "
                        f"out one of them, or raise sigma.",
                        "GC305",
                    )
                return estimate
            by = replace(by, sigma=2.0 * by.sigma, second_sigma=2.0 * by.second_sigma)
        issue_warning(
            f"No perturbation of the parameters changes the black-box metric, with "
            f"sigma={options.sigma:g} doubled up to {MOST_DOUBLINGS} times: the search ends here. "
            f"Start from a model on which the metric is not at its worst, or raise sigma.",
            "GC306",
        )
        return None
