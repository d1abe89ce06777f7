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
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeAlias, cast, get_args

import numpy as np
from scipy import sparse
from scipy.linalg import solve_triangular
from scipy.optimize import minimize

from gbm_constrained._findings import issue_warning
from gbm_constrained._messages import join_truncated
from gbm_constrained._typing import Bool, Codes, Float
from gbm_constrained.data.validation import check_choice, check_integer, is_finite_number
from gbm_constrained.metrics.surrogates import SurrogateLosses


class LinearSpace:
    r"""Weights of the columns of a score matrix, :math:`f = \Phi \theta + f_0`.

    Coefficients of features, weights of trees and offsets of groups are such parameters.

    Steps of parameters have units of what they change the scores by. With the mean products
    :math:`G = \Phi^T \Phi / n = L L^T` of the columns of scores, a step z moves the parameters by
    :math:`\sigma L^{-T} z` and the scores by a root mean square of :math:`\sigma \|z\|`, where
    :math:`\sigma` is the standard deviation of the scores. Of many parameters the roots of the
    diagonal of G take the place of L.

    Parameters
    ----------
    training : array or sparse array of shape (n_training, d)
        Score matrix of the training rows; a column of ones is an intercept.
    validation : array or sparse array of shape (n_validation, d)
        Score matrix of the validation rows. Products with matrices in single precision are
        in single precision.
    base : ndarray or float, default=0
        Scores that no parameter changes.
    weight : ndarray of shape (n_training,), default=None
        Weights of the training rows in the unit of perturbations; ones by default.
    """

    def __init__(
        self,
        training: Any,
        validation: Any,
        base: Float | float = 0.0,
        weight: Float | None = None,
    ) -> None:
        self._training, self._validation = training, validation
        self._base, self._weight = base, weight
        n = training.shape[0]
        self._shares = np.full(n, 1.0 / n) if weight is None else weight / weight.sum()

    def training_scores(self, parameters: Float) -> Float:
        """Compute the scores of the training rows."""
        return _multiply(self._training, parameters) + self._base

    def validation_scores(self, parameters: Float) -> Float:
        """Compute the scores of the validation rows."""
        return _multiply(self._validation, parameters) + self._base

    def pull_back(self, gradient: Float) -> Float:
        """Multiply a gradient in the training scores by the transposed score matrix."""
        return _multiply(self._training.T, gradient)

    def perturbation_scale(self, parameters: Float) -> float:
        """Divide the standard deviation of the scores by that of unit perturbations of them.

        Scores without a spread count as those of a standard deviation of one.
        """
        return self.find_spread(parameters) / float(np.sqrt(self._mean_squares.sum()))

    def find_spread(self, parameters: Float) -> float:
        """Compute the standard deviation of the scores; one for scores without a spread."""
        scores = self.training_scores(parameters)
        mean = np.average(scores, weights=self._weight)
        spread = float(np.sqrt(np.average(np.square(scores - mean), weights=self._weight)))
        return spread if spread > 0.0 else 1.0

    def divide_by_root(self, vector: Float, spread: float, *, transposed: bool) -> Float:
        """Multiply by a spread of scores and the inverse of L, or of its transpose."""
        if self._root.ndim == 1:
            return spread * vector / self._root
        found = solve_triangular(self._root, vector, trans="T" if transposed else "N", lower=True)
        return np.asarray(spread * found)

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
        if squares.size > 2_000:  # Their products would take too much memory.
            return np.asarray(np.sqrt(squares))
        dense = np.zeros((squares.size, squares.size))
        for start in range(0, matrix.shape[0], 250):  # No copy of the whole matrix.
            part: Any = matrix[start : start + 250]
            products = part.T @ (part * self._shares[start : start + 250, None])
            dense += cast(Any, products).toarray() if sparse.issparse(products) else products
        # A share of each square keeps columns apart that move together.
        np.fill_diagonal(dense, squares * (1.0 + 1e-3))
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
    surrogates : SurrogateLosses
        Surrogates on the training rows, K of them.
    metric : callable
        Loss of the validation rows, given their scores, that is only a function to call. Its
        ``budget`` has the number of calls that are ``left``, and the ``place`` that errors name.
    validation_surrogates : SurrogateLosses, default=None
        The same surrogates on the validation rows, for estimators that shift scores.
    """

    space: LinearSpace
    surrogates: SurrogateLosses
    metric: Any
    validation_surrogates: SurrogateLosses | None = None

    def profile(self, parameters: Float) -> Float:
        """Compute the surrogates, (K,)."""
        return self.surrogates.values(self.space.training_scores(parameters))

    def loss(self, parameters: Float) -> float:
        """Call the metric."""
        return float(self.metric(self.space.validation_scores(parameters)))


EstimatorName: TypeAlias = Literal["interpolation", "finite_differences", "two_step"]


class GradientEstimate(NamedTuple):
    """An estimate of the metric's gradient in the surrogates.

    Parameters
    ----------
    gradient : ndarray of shape (K,)
        The estimate.
    moves_together : ndarray of bool of shape (K,)
        Surrogates that the perturbations did not move independently.
    is_flat : bool
        Whether no perturbation changed the metric.
    redrawn : int
        Number of targets that were out of range and drawn again.
    """

    gradient: Float
    moves_together: Bool
    is_flat: bool
    redrawn: int


def estimate_gradient(
    estimator: EstimatorName,
    problem: BlackBoxProblem,
    parameters: Float,
    sigma: float,
    second_sigma: float,
    count: int,
    random: np.random.RandomState,
) -> GradientEstimate:
    r"""Fit the metric's differences under perturbations by those of the surrogates.

    "interpolation" (Algorithm 3) takes the differences between two independent perturbations of
    the parameters. The others shift the scores of the validation rows so that the surrogates on
    these rows change by normal perturbations: "finite_differences" (Algorithm 2) from the scores
    themselves, and "two_step" (Algorithm 4) from perturbed scores. The estimate of the latter is
    of the gradient of :math:`\psi_{\sigma_1}(u) = E[\psi(u + \sigma_1 Z)]`, which is smooth where
    the metric is not. With surrogates that move together, the estimate is the solution of least
    norm.

    Parameters
    ----------
    estimator : {"interpolation", "finite_differences", "two_step"}
        The estimator.
    problem : BlackBoxProblem
        Parameters, surrogates and metric.
    parameters : ndarray of shape (d,)
        Where the gradient is estimated.
    sigma : float
        Standard deviation of the perturbations: of parameters in Algorithm 3, of the surrogates
        in Algorithms 2 and 4.
    second_sigma : float
        Standard deviation of the second step of Algorithm 4.
    count : int
        Number m of perturbations.
    random : RandomState
        Source of the perturbations.
    """
    differences, losses = np.empty((count, len(problem.surrogates))), np.empty(count)
    redrawn = 0
    if estimator == "interpolation":
        for j in range(count):
            first, second = parameters + sigma * random.standard_normal((2, parameters.size))
            differences[j] = problem.profile(first) - problem.profile(second)
            losses[j] = problem.loss(first) - problem.loss(second)
    else:
        surrogates = problem.validation_surrogates
        assert surrogates is not None
        surrogates.check_disjoint()
        scores = problem.space.validation_scores(parameters)
        profile, metric = surrogates.values(scores), problem.metric
        if estimator == "finite_differences":
            base = metric(scores)
            for j in range(count):
                shifted, step, n = _shift_scores(surrogates, scores, profile, sigma, random)
                redrawn += n
                differences[j], losses[j] = sigma * step, metric(shifted) - base
        else:
            for j in range(count):
                near, step, n = _shift_scores(surrogates, scores, profile, sigma, random)
                centre = profile + sigma * step
                far, step, m = _shift_scores(surrogates, scores, centre, second_sigma, random)
                redrawn += n + m
                differences[j], losses[j] = second_sigma * step, metric(far) - metric(near)
    return GradientEstimate(
        *solve_least_norm(differences, losses), is_flat=not losses.any(), redrawn=redrawn
    )


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
    return solution, lost > 1e-6**2  # Surrogates that are in a combination that does not vary.


def _shift_scores(
    surrogates: SurrogateLosses,
    scores: Float,
    centre: Float,
    sigma: float,
    random: np.random.RandomState,
) -> tuple[Float, Float, int]:
    """Draw a perturbation of surrogates around a centre, and shift scores by it.

    A target that no shift reaches is drawn again: the draws are those of a cut distribution. The
    last result is the number of targets that were drawn again.
    """
    step, redrawn, n_draws = random.standard_normal(centre.size), 0, 100
    for _ in range(n_draws):  # Sigma is far too large if all of them are out of range.
        shifted, is_out = surrogates.move(scores, centre + sigma * step)
        if not is_out.any():
            return shifted, step, redrawn
        redrawn += int(is_out.sum())
        step[is_out] = random.standard_normal(int(is_out.sum()))
    name = surrogates.names[int(is_out.argmax())]
    raise ValueError(
        f"sigma={sigma:g} asks for values of {name} that no scores have, in {n_draws} draws: give "
        f"a smaller sigma."
    )


ACCURACY = 0.05  # Largest share of the decrease of Q that may be left.


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
) -> tuple[Float, float]:
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
    parameters : ndarray of shape (d,)
        Parameters near the target.
    accuracy : float
        Largest possible difference of Q from its minimum, for convex surrogates.
    """
    space, spread = problem.space, problem.space.find_spread(centre)
    at_centre, _ = excess(problem, centre, target)
    step, value, gradient = np.zeros(centre.size), np.inf, np.zeros(centre.size)

    def parameters_at(at: Float) -> Float:
        return np.asarray(centre + space.divide_by_root(at, spread, transposed=True))

    def objective(at: Float, weight: float) -> tuple[float, Float]:
        nonlocal value, gradient
        value, by_parameter = excess(problem, parameters_at(at), target)
        gradient = space.divide_by_root(by_parameter, spread, transposed=False)
        return value + 0.5 * weight * float(at @ at), gradient + weight * at

    def bound(at: Float) -> float:
        radius = max(1.0, 2.0 * float(np.linalg.norm(at)))
        return float(gradient @ at) + radius * float(np.linalg.norm(gradient))

    def is_accurate(at: Float) -> bool:
        decrease = max(at_centre - value, 0.0)
        return bound(at) <= ACCURACY * decrease + 1e-10 * at_centre  # That is rounding.

    def end_if_accurate(at: Float) -> None:  # The last point that was tried is the new iterate.
        if is_accurate(at):
            raise StopIteration

    # L-BFGS needs many steps with fewer than twenty pairs, where surrogates compete.
    options: Any = {"gtol": 0.0, "ftol": 1e-11, "maxiter": 200, "maxcor": 20}
    # The proximal weight falls to a tenth four times.
    for weight in proximal_weight * 0.1 ** np.arange(4 + 1):
        # The types of SciPy know no objective that returns its gradient as well.
        step = minimize(
            cast(Any, objective), step, args=(weight,), jac=True, method="L-BFGS-B",
            options=options, callback=cast(Any, end_if_accurate),
        ).x  # fmt: skip
        objective(step, weight)
        if is_accurate(step):
            break
    return parameters_at(step), bound(step)


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
    known = np.unique(scores[shifted])
    between = (known[:-1] + known[1:]) / 2.0
    shifts = -np.concatenate([[known[0] - 1.0], between, [known[-1] + 1.0]])
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
        check_choice("estimator", self.estimator, get_args(EstimatorName))
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
        m = self.n_perturbations
        return m + 2 if self.estimator == "finite_differences" else 2 * m + 1


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
    ended : {"iterations", "calls", "plateau"}
        Why the search ended: all iterations were done, too few calls of the metric were left, or
        no perturbation changed the metric.
    """

    parameters: Float
    loss: float
    iterates: tuple[Iterate, ...]
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
    metric, has_warned = problem.metric, False
    options.check_effort(len(problem.surrogates), metric.budget.left, len(candidates))
    metric.budget.place = "iteration 0"
    tried = [(parameters, problem.loss(parameters)) for parameters in candidates]
    profile = problem.profile(start)
    iterates = [Iterate(start, problem.loss(start), profile, profile, np.zeros_like(profile))]
    ended: Ended = "iterations"
    for t in range(1, options.n_iterations + 1):
        if metric.budget.left < options.calls_per_iteration:
            ended = "calls"
            break
        metric.budget.place = f"iteration {t}"
        estimate = _estimate_off_plateaus(problem, options, iterates[-1].parameters, random)
        if estimate is None:
            ended = "plateau"
            break
        if estimate.moves_together.any() and not has_warned:
            has_warned = True
            known = problem.surrogates.names
            names = [known[k] for k in np.flatnonzero(estimate.moves_together).tolist()]
            issue_warning(
                f"No perturbation tells the surrogates {join_truncated(names)} apart, so that "
                f"their weights are the smallest ones that explain the metric. Leave out one of "
                f"them, or raise sigma.",
                "GC305",
            )
        iterates.append(_follow(problem, options, iterates[-1], estimate))
    tried = [*((i.parameters, i.loss) for i in iterates), *tried]
    parameters, loss = min(tried, key=lambda one: one[1])
    return AdaptiveResult(parameters, loss, tuple(iterates), ended)


def _follow(
    problem: BlackBoxProblem,
    options: AdaptiveSurrogates,
    current: Iterate,
    estimate: GradientEstimate,
) -> Iterate:
    """Move the target against an estimated gradient, and project it."""
    gradient = estimate.gradient
    if options.lipschitz is not None:
        largest = 2.0 * np.sqrt(gradient.size) * options.lipschitz
        gradient = gradient * (np.linalg.norm(gradient) <= largest)
    if options.is_clipped:
        gradient = np.maximum(gradient, 0.0)
    target = current.profile - options.step_size * gradient
    parameters, accuracy = project(problem, current.parameters, target, options.proximal_weight)
    return Iterate(
        parameters,
        problem.loss(parameters),
        problem.profile(parameters),
        target,
        gradient,
        estimate.redrawn,
        float(np.sqrt(accuracy)),
    )


def _estimate_off_plateaus(
    problem: BlackBoxProblem,
    options: AdaptiveSurrogates,
    parameters: Float,
    random: np.random.RandomState,
) -> GradientEstimate | None:
    """Estimate the gradient, with larger perturbations on a plateau; None without one."""
    sigma = options.sigma
    second = sigma / 2.0 if options.second_sigma is None else options.second_sigma
    if options.estimator == "interpolation":
        sigma = problem.space.perturbation_scale(parameters) * sigma
    n_doublings = 3
    for _ in range(n_doublings + 1):
        if problem.metric.budget.left < options.calls_per_iteration:
            break
        estimate = estimate_gradient(
            options.estimator,
            problem,
            parameters,
            sigma,
            second,
            options.n_perturbations,
            random,
        )
        if not estimate.is_flat:
            return estimate
        sigma, second = 2.0 * sigma, 2.0 * second
    issue_warning(
        f"No perturbation of the parameters changes the black-box metric, with "
        f"sigma={options.sigma:g} doubled up to {n_doublings} times: the search ends here. Start "
        f"from a model on which the metric is not at its worst, or raise sigma.",
        "GC306",
    )
    return None
