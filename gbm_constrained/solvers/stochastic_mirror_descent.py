r"""Stochastic mirror descent for one level of the level-set method.

Algorithm 2 of Yao, Lin and Yang (2023), with the saddle form of
:mod:`~gbm_constrained.solvers.square_surrogate`. At the level r it solves

.. math::

   H(r) = \min_x \max_{y \in Y} \; \sum_o \tilde y_o \big( E[F_o] - b_o \big)
   + \sum_k \tilde \alpha_k E[G_k] - \sum_k \frac{\tilde \alpha_k^2}{\tilde y_{o(k)}}
   + \frac{\hat \rho}{2} \|x - \tilde x\|^2,

where x has the parameters of the score and all a, b, the shares :math:`\tilde y` of the functions
lie in the simplex, :math:`\tilde \alpha_k = \tilde y_{o(k)} \alpha_k` with :math:`|\alpha_k| \le
I`, and the limit of the objective is r. A step takes one row, or the mean of a few.

**The distance of the dual, (28).** With p scalars :math:`\alpha` of one function at most,

.. math::

   V_y(y, y') = C \sum_o \tilde y_o \ln \frac{\tilde y_o}{\tilde y_o'}
   + \sum_k \tilde y_{o(k)} (\alpha_k - \alpha_k')^2, \qquad C = 2 (1 + \sqrt p I)^2 .

The paper has p = 2. By :math:`d\tilde\alpha = \tilde y \, d\alpha + \alpha \, d\tilde y` and
:math:`\tilde y \le 1`, strong convexity in :math:`\|\tilde y\|_1` and :math:`\|\tilde\alpha\|_2`
needs :math:`C \ge 1 + 2 p I^2`, which holds for any p. State is kept in :math:`(\tilde y,
\alpha)`, in which both the distance and the steps are closed forms.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
from scipy.special import rel_entr, softmax

from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.solvers.square_surrogate import Scalars, SquareSurrogate

MIN_SHARE = 1e-12  # A share of zero would never grow again.


class ScoreFunction(Protocol):
    """Scores of rows as a differentiable function of parameters."""

    def scores(self, parameters: Float, X: Array) -> Float:
        """Compute the score of each row; (n,)."""

    def pull_back(self, parameters: Float, X: Array, rows: Float) -> Float:
        """Compute the sum over rows of ``rows[i]`` times the gradient of score i."""


class Dual(NamedTuple):
    """Dual variable y: shares of the functions, and scalars alpha of the pairs."""

    share: Float
    alpha: Float


@dataclass(frozen=True, eq=False)
class DualGeometry:
    """The set Y with its distance, in which dual steps have a closed form.

    Parameters
    ----------
    owner : (n_pairs,). Function of each pair, in ascending order.
    n_functions : Number of functions, the objective included.
    interval : Largest absolute value I of the scalars alpha.
    """

    owner: Codes
    n_functions: int
    interval: float

    @cached_property
    def entropy_weight(self) -> float:
        """Coefficient C of the entropy."""
        p = np.bincount(self.owner).max()
        return float(2 * (1 + np.sqrt(p) * self.interval) ** 2)

    def start(self) -> Dual:
        """Make the centre of Y: equal shares, and scalars of zero."""
        share = np.full(self.n_functions, 1 / self.n_functions)
        return Dual(share, np.zeros(self.owner.size))

    def distance(self, y: Dual, other: Dual) -> float:
        """Compute the Bregman divergence V_y(y, other); (28)."""
        squares = y.share[self.owner] * (y.alpha - other.alpha) ** 2
        entropy = rel_entr(y.share, other.share).sum()
        return float(self.entropy_weight * entropy + squares.sum())

    def ascend(self, y: Dual, u: Float, v: Float, step: float) -> Dual:
        """Maximise ``<(u, v), y> - d_y(y) - V_y(y, y_t) / step``; (29), Lemma 3.

        Parameters
        ----------
        y : Current point y_t.
        u : (n_functions,). Coefficients of the shares.
        v : (n_pairs,). Coefficients of ``share * alpha``.
        step : Step size tau.
        """
        best = (step * v / 2 + y.alpha) / (1 + step)
        alpha = np.clip(best, -self.interval, self.interval)
        gain = alpha * v - alpha**2 - (alpha - y.alpha) ** 2 / step
        total = np.bincount(self.owner, gain, self.n_functions) + u
        share = softmax(np.log(y.share) + total * step / self.entropy_weight)
        share = np.maximum(share, MIN_SHARE)
        return Dual(share / share.sum(), alpha)

    def largest_value(self, u: Float, v: Float) -> float:
        """Compute the maximum over Y of ``<(u, v), y> - d_y(y)``; Lemma 4."""
        alpha = np.clip(v / 2, -self.interval, self.interval)
        gain = np.bincount(self.owner, alpha * v - alpha**2, self.n_functions)
        return float((u + gain).max())


@dataclass(frozen=True)
class StepSizes:
    """Step sizes, which fall with the root of the number of steps; (31).

    Steps are counted in rows, so that batches of any size can be mixed: a step of b rows after n
    others is ``b / batch_size / sqrt(n / batch_size + 1)`` times the first step of a full batch.
    The sum of all steps, and the variance that they add, then depend on the rows alone.

    Parameters
    ----------
    primal : Step size of the first full batch in a, b and normalised parameters.
    dual : Dual step size of the first full batch, in units of the entropy's coefficient.
    scale : Divisor of the primal step in the parameters of the score: the mean squared norm of the
        score's gradient. A common factor of all features then changes nothing.
    batch_size : Rows of a full batch.
    """

    primal: float
    dual: float
    scale: float
    batch_size: int

    def decay(self, n_rows: int, n_before: int) -> float:
        """Compute the factor of the step sizes for a step of `n_rows` after `n_before` rows."""
        return n_rows / self.batch_size / float(np.sqrt(n_before / self.batch_size + 1))


@dataclass(frozen=True, eq=False)
class SaddleProblem:
    """The functions, the score and the geometry of a saddle problem.

    Parameters
    ----------
    surrogate : Functions of the scores.
    score : Scores as a function of parameters.
    geometry : Geometry of the dual.
    steps : Step sizes.
    proximal_weight : Weight rho of ``||x - centre||^2 / 2``, zero where the problem is convex.
    """

    surrogate: SquareSurrogate
    score: ScoreFunction
    geometry: DualGeometry
    steps: StepSizes
    proximal_weight: float = 0.0


class Primal(NamedTuple):
    """Primal variable x: parameters of the score, and all a and b one after the other."""

    parameters: Float
    scalars: Float


class MirrorDescent:
    """Oracle of the level-set method: steps at one level, averages, and an upper bound.

    Parameters
    ----------
    problem : SaddleProblem
        Functions, score and step sizes.
    level : float
        The level r.
    start : Primal
        First iterate.
    centre : Primal
        Centre of the proximal term.
    dual : Dual, default=None
        First dual iterate, such as the average of the level before; the centre of Y by default.
    """

    def __init__(
        self,
        problem: SaddleProblem,
        level: float,
        start: Primal,
        centre: Primal,
        dual: Dual | None = None,
    ) -> None:
        self.problem, self.level, self.centre = problem, level, centre
        self.x, self.y = start, problem.geometry.start() if dual is None else dual
        self.n_rows = 0
        self._total = self._distance = 0.0
        self._sum = Primal(np.zeros_like(start.parameters), np.zeros_like(start.scalars))
        self._u = np.zeros(problem.surrogate.n_functions)
        self._v = np.zeros(problem.surrogate.n_pairs)
        self._y = Dual(np.zeros_like(self._u), np.zeros_like(self._v))

    def step(self, X: Array, ratios: Float) -> None:
        """Take one step on some rows.

        Parameters
        ----------
        X : array of shape (n, n_features)
            Features of the rows.
        ratios : ndarray of shape (n, n_sets)
            Their density ratios.
        """
        problem, x, y = self.problem, self.x, self.y
        surrogate, steps = problem.surrogate, problem.steps
        a, b = x.scalars.reshape(2, -1)
        scores = problem.score.scores(x.parameters, X)
        moments = surrogate.moments(scores, ratios)
        u, v = surrogate.saddle_terms(moments, a, b)
        u[0] -= self.level
        rows = surrogate.row_gradient(scores, ratios, y.share, Scalars(a, b, y.alpha))
        by_parameters = problem.score.pull_back(x.parameters, X, rows) / scores.size
        by_scalars = surrogate.scalar_gradient(moments, y.share, Scalars(a, b, y.alpha))

        decay = steps.decay(scores.size, self.n_rows)
        self._add_to_averages(u, v, decay)
        primal = steps.primal * decay
        parameters = self._descend(0, by_parameters, primal / steps.scale)
        scalars = self._descend(1, by_scalars, primal)
        interval = problem.geometry.interval
        self.x = Primal(parameters, np.clip(scalars, -interval, interval))
        dual = steps.dual * problem.geometry.entropy_weight * decay
        self.y = problem.geometry.ascend(y, u, v, dual)
        self.n_rows += scores.size

    def _descend(self, part: int, gradient: Float, step: float) -> Float:
        """Take the proximal step of one part of x; (29)."""
        weight = self.problem.proximal_weight * step
        return (self.x[part] - step * gradient + weight * self.centre[part]) / (1 + weight)

    def _add_to_averages(self, u: Float, v: Float, weight: float) -> None:
        """Add the present point to the averages, which weight all by their step sizes; (30)."""
        self._total += weight
        self._u += weight * u
        self._v += weight * v
        for total, part in zip((*self._sum, *self._y), (*self.x, *self.y), strict=True):
            total += weight * part
        if self.problem.proximal_weight:
            parts = zip(self.x, self.centre, strict=True)
            self._distance += weight * sum(((x - c) ** 2).sum() for x, c in parts)

    @property
    def average(self) -> Primal:
        """Average of the iterates, the point that the oracle returns."""
        return Primal(*(part / self._total for part in self._sum))

    @property
    def average_dual(self) -> Dual:
        """Average of the dual iterates, of the shares and of the scalars."""
        return Dual(*(part / self._total for part in self._y))

    @property
    def upper_bound(self) -> float:
        """Stochastic upper bound U of H(r); (30), Lemma 4."""
        value = self.problem.geometry.largest_value(self._u / self._total, self._v / self._total)
        return value + self.problem.proximal_weight / 2 * self._distance / self._total
