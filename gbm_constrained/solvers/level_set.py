r"""The feasible level-set method under constraints on pair rates.

A pair rate is AUC(U, V) = Pr(score of a row of U > score of a row of V), half of the ties added,
for two sets of rows U and V. A set is a column of a matrix `members`: the weight of each row in
the set, zero outside. Its first two columns are the positives and the negatives, whose AUC is the
objective. A row may be in several sets, and a set may be compared with itself.

Yao, Lin and Yang, "Stochastic Methods for AUC Optimization subject to AUC-based Fairness
Constraints" (2023). Each indicator of a pair is replaced by :math:`\ell(u) = c_1 (u - c_2)^2`, as
in (3) to (6), and :math:`L_{U,V} = E[\ell(h - h') \mid z \in U, z' \in V]` depends on the means m
and the variances V of the scores in the two sets alone,

.. math:: L_{U,V} = c_1 \big[ V_U + V_V + (m_U - m_V - c_2)^2 \big].

**Rules.** A term :math:`s \, AUC(U, V)` is replaced by :math:`s L_{V,U}` where s > 0, and by
:math:`|s| (L_{U,V} - 1)` where s < 0. A rule :math:`\sum_j s_j AUC_j \le b` becomes

.. math:: f_o = \sum_j |s_j| L_j \;\le\; b + \sum_{s_j < 0} |s_j|,

which is (6) for a difference of two pair rates: :math:`f_o \le 1 + \kappa`. The objective is
:math:`f_0 = L_{D+,D-}`.

**Saddle form (Lemma 1).** With :math:`c_k = |s_k| c_1` and :math:`e_U = 1_U / \Pr(U)`,

.. math::

   |s_k| L_k &= \min_{a,b} \max_{\alpha} E[F_k + \alpha G_k] - \alpha^2, \qquad
   G_k = 2 \sqrt{c_k} \, h (e_U - e_V), \\
   F_k &= c_k \big[ c_2^2 - 2 c_2 h (e_U - e_V) + (h - a)^2 e_U + (h - b)^2 e_V \big],

with the optimum :math:`a = m_U`, :math:`b = m_V`, :math:`\alpha = \sqrt{c_k} (m_U - m_V)`. The
paper prints :math:`2 c_1` in the place of :math:`2 \sqrt{c_1}`, which is right for
:math:`c_1 = 1` alone: the maximum over :math:`\alpha` must give :math:`c_k (m_U - m_V)^2`, and
would give :math:`c_k^2 (m_U - m_V)^2`. Expectations of F and G are means over single rows, so that
one row is an unbiased sample of each.

**Feasibility.** The surrogate values of a rule and of its opposite add up to
:math:`\sum_j |s_j| (L_{U,V} + L_{V,U}) \ge 2 c_1 c_2^2 \sum_j |s_j|`, with equality at constant
scores. Two bounds :math:`\pm\kappa` on a difference of two pair rates can therefore be met by some
scores if and only if :math:`2 c_1 c_2^2 \le 1 + \kappa`.

For :math:`h = X w` every function of the surrogate
(:mod:`gbm_constrained.solvers.level_set`) is a convex quadratic, with the means
:math:`\mu` and the covariances C of the features in the sets,

.. math::

   f_o(w) = w' Q_o w - 2 q_o' w + k_o, \qquad
   Q_o = \sum_k c_k \big[ C_U + C_V + (\mu_U - \mu_V)(\mu_U - \mu_V)' \big], \quad
   q_o = \sum_k c_k c_2 (\mu_U - \mu_V),

so that problem (10) of Yao, Lin and Yang (2023) has a dual in one multiplier for each rule,

.. math::

   g(\lambda) = \min_w f_0(w) + \sum_i \lambda_i (f_i(w) - b_i), \qquad
   w(\lambda) = \Big( Q_0 + \sum_i \lambda_i Q_i \Big)^{-1} \Big( q_0 + \sum_i \lambda_i q_i \Big).

The gradient of g is :math:`f_i(w(\lambda)) - b_i`, and its Hessian :math:`-\frac12 J M^{-1} J'`
with J the gradients of the rules and M the matrix above. Each step maximises the quadratic model
of g over :math:`\lambda \ge 0`, a non-negative least squares problem, and is halved until g grows.

Algorithm 2 of Yao, Lin and Yang (2023), with the saddle form of
:mod:`~gbm_constrained.solvers.level_set`. At the level r it solves

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

Algorithm 1 of Yao, Lin and Yang (2023) finds the root f* of

.. math:: H(r) = \min_x \max \{ f_0(x) - r, \; f_1(x) - b_1, \dots, f_m(x) - b_m \},

which is convex and does not increase. From a level above f*, the oracle
(:class:`~gbm_constrained.solvers.level_set.MirrorDescent`) gives an upper bound U
of H(r) and a point x, and the next level is :math:`r + U / (2 \theta)`. The slope of H lies in
[-1, 0], so that no level falls below f* while U bounds H(r) from above; and a level with U < 0 has
a point that is strictly feasible. Each level starts from the averages of the one before, the dual
ones too: from equal shares, as the paper has it, the last levels would be spent on finding the
shares again. The search ends at :math:`U \ge -\epsilon`, or relative to its first level as in
Proposition 1, at :math:`U \ge \epsilon H(r_0) / \theta`. Constant scores have
the objective :math:`c_1 c_2^2`, which is the first level by default.

Algorithm 3 is for scores that are not linear in their parameters: the level-set method with a
proximal term about a point, which then moves to the point that was found. Its first level is the
objective at the centre. The distance that a point moves is what Definition 5 bounds for a point
that is nearly stationary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from scipy import sparse
from scipy.optimize import nnls
from scipy.special import softmax

from gbm_constrained._typing import Array, Codes, Float

POSITIVES, NEGATIVES = 0, 1  # Columns of `members` whose AUC is the objective.


class PairTerm(NamedTuple):
    """Multiple of the pair rate AUC(U, V).

    Parameters
    ----------
    coefficient : The factor, not zero.
    upper : Column of U in `members`.
    lower : Column of V in `members`.
    """

    coefficient: float
    upper: int
    lower: int


@dataclass(frozen=True)
class PairRule:
    """One-sided constraint ``sum of terms <= bound``.

    Parameters
    ----------
    terms : Multiples of pair rates.
    bound : Largest value of their sum.
    name : How the rule is called in reports.
    """

    terms: tuple[PairTerm, ...]
    bound: float
    name: str = ""

    def negated_terms(self) -> frozenset[PairTerm]:
        """Negate the terms: those of a rule that bounds the same sum from below."""
        return frozenset(PairTerm(-c, upper, lower) for c, upper, lower in self.terms)


def bound_difference(
    first: tuple[int, int], second: tuple[int, int], bound: float, name: str = ""
) -> list[PairRule]:
    """Write ``|AUC(first) - AUC(second)| <= bound`` as two rules; (2) of the paper.

    Parameters
    ----------
    first, second : (U, V). Columns of `members`.
    bound : Largest absolute difference.
    name : How the difference is called in reports.
    """
    return [
        PairRule((PairTerm(sign, *first), PairTerm(-sign, *second)), bound, name)
        for sign in (1.0, -1.0)
    ]


def density_ratios(members: Float) -> Float:
    """Divide the weights of rows in sets by their mean, so that each column has the mean one.

    Parameters
    ----------
    members : ndarray of shape (n_samples, n_sets), float64
        Weight of each row in each set.

    Returns
    -------
    ndarray of shape (n_samples, n_sets), float64
        ``1_U(i) / Pr(U)`` of the paper, for each set U.

    Raises
    ------
    ValueError
        If a set has no row of positive weight.
    """
    mean = members.mean(axis=0)
    empty = np.flatnonzero(mean <= 0)
    if empty.size:
        raise ValueError(
            f"set {empty[0]} of the pair rules has no row of positive weight, so that its pair "
            f"rates are undefined: leave out the rule, or give rows of that set."
        )
    return np.asarray(members / mean)


OBJECTIVE = PairRule((PairTerm(-1.0, POSITIVES, NEGATIVES),), 0.0)


class Moments(NamedTuple):
    """Moments of scores in each set, means over rows of ``e_U h^j``; (n_sets,) each.

    Over all rows `mass` is one. Over a batch it is not.
    """

    mass: Float
    first: Float
    second: Float

    @property
    def variance(self) -> Float:
        """Variance of the scores in each set, given all rows."""
        return self.second - self.first**2


Scalars: TypeAlias = tuple[Float, Float, Float]  # a, b and alpha of each pair of sets.


@dataclass(frozen=True, eq=False)
class SquareSurrogate:
    """Square surrogates of an objective and of rules, by pairs of sets.

    Pair k belongs to the function `owner[k]`: 0 is the objective, o > 0 is rule o - 1. A pair loss
    is that of ``(upper[k], lower[k])``, multiplied by the coefficient of its term.

    Parameters
    ----------
    upper, lower : (n_pairs,). Columns of U and V in the matrix of members.
    owner : (n_pairs,). Function that the pair belongs to, in ascending order.
    curvature : (n_pairs,). ``c_k = |s_k| c1``.
    c2 : Margin of the surrogate.
    limits : (n_functions,). Right-hand sides of the functions; zero for the objective.
    n_sets : Number of columns of the matrix of members.
    """

    upper: Codes
    lower: Codes
    owner: Codes
    curvature: Float
    c2: float
    limits: Float
    n_sets: int

    @classmethod
    def of(
        cls, rules: Sequence[PairRule], n_sets: int, c1: float = 0.5, c2: float = 1.0
    ) -> SquareSurrogate:
        """Write the surrogate of maximum AUC under rules.

        Parameters
        ----------
        rules : The rules, each bounded from above.
        n_sets : Number of columns of the matrix of members.
        c1, c2 : Parameters of the surrogate ``c1 (u - c2)^2``.
        """
        functions = [OBJECTIVE, *rules]
        pairs = [(o, *term) for o, rule in enumerate(functions) for term in rule.terms]
        owner, coefficient, upper, lower = (
            np.array(column) for column in zip(*pairs, strict=True)
        )
        is_positive = coefficient > 0
        size = np.abs(coefficient)
        refund = np.bincount(owner, np.where(is_positive, 0.0, size), len(functions))
        bounds = [rule.bound for rule in functions]
        limits = np.asarray(bounds + refund, dtype=np.float64)
        limits[0] = 0.0  # The level takes the place of a limit.
        return cls(
            np.where(is_positive, lower, upper).astype(np.intp),
            np.where(is_positive, upper, lower).astype(np.intp),
            owner.astype(np.intp),
            size * c1,
            c2,
            limits,
            n_sets,
        )

    @property
    def n_functions(self) -> int:
        """Number of functions, the objective and the rules."""
        return self.limits.size

    @property
    def n_pairs(self) -> int:
        """Number of pairs of sets."""
        return self.owner.size

    def sum_by_function(self, values: Float) -> Float:
        """Add up values of pairs for each function; (n_pairs,) to (n_functions,)."""
        return np.bincount(self.owner, values, self.n_functions).astype(np.float64)

    def moments(self, scores: Float, ratios: Float) -> Moments:
        """Compute the moments of scores in each set.

        Parameters
        ----------
        scores : (n,). Score of each row.
        ratios : (n, n_sets). Density ratios ``e_U`` of the rows.
        """
        powers = np.stack([np.ones_like(scores), scores, scores**2])
        return Moments(*(powers @ ratios / scores.size))

    def values(self, moments: Moments) -> Float:
        """Compute the functions at the best scalars, given moments of all rows; (n_functions,)."""
        mean, variance = moments.first, moments.variance
        shift = mean[self.upper] - mean[self.lower] - self.c2
        spread = variance[self.upper] + variance[self.lower]
        return self.sum_by_function(self.curvature * (spread + shift**2))

    def best_scalars(self, moments: Moments) -> Scalars:
        """Compute the optimal scalars of Lemma 1, given moments of all rows."""
        a, b = moments.first[self.upper], moments.first[self.lower]
        return a, b, np.sqrt(self.curvature) * (a - b)

    def saddle_terms(self, moments: Moments, a: Float, b: Float) -> tuple[Float, Float]:
        """Compute F of each function, and G of each pair, as means over rows; (26).

        Returns
        -------
        tuple of (n_functions,) and (n_pairs,)
            F minus the limits of the functions, and G.
        """
        mass, first, second = moments
        U, V, c2 = self.upper, self.lower, self.c2
        difference = first[U] - first[V]
        squares = second[U] - 2 * a * first[U] + a**2 * mass[U]
        squares += second[V] - 2 * b * first[V] + b**2 * mass[V]
        F = self.curvature * (c2**2 - 2 * c2 * difference + squares)
        G = 2 * np.sqrt(self.curvature) * difference
        return self.sum_by_function(F) - self.limits, G

    def row_gradient(self, scores: Float, ratios: Float, share: Float, scalars: Scalars) -> Float:
        """Compute the derivative of the saddle function by each score, times the rows; (n,).

        At :meth:`best_scalars` the result is the gradient of ``share @ values``.

        Parameters
        ----------
        scores : (n,). Score of each row.
        ratios : (n, n_sets). Density ratios of the rows.
        share : (n_functions,). Weight of each function.
        scalars : Scalars of the saddle form.
        """
        a, b, alpha = scalars
        weight = share[self.owner]
        slope = 2 * weight * self.curvature
        dual = 2 * weight * np.sqrt(self.curvature) * alpha
        n = self.n_sets
        curvature = np.bincount(self.upper, slope, n) + np.bincount(self.lower, slope, n)
        constant = np.bincount(self.upper, dual - slope * (a + self.c2), n)
        constant -= np.bincount(self.lower, dual + slope * (b - self.c2), n)
        return scores * (ratios @ curvature) + ratios @ constant

    def scalar_gradient(self, moments: Moments, share: Float, scalars: Scalars) -> Float:
        """Compute the derivatives by a and b, one after the other; (2 * n_pairs,)."""
        slope = -2 * share[self.owner] * self.curvature
        by_a = slope * (moments.first[self.upper] - scalars[0] * moments.mass[self.upper])
        by_b = slope * (moments.first[self.lower] - scalars[1] * moments.mass[self.lower])
        return np.concatenate([by_a, by_b])


class Optimum(NamedTuple):
    """Solution of the surrogate problem.

    Parameters
    ----------
    weights : (n_features,). The weights w.
    multipliers : (n_rules,). Multipliers of the rules.
    values : (n_functions,). The functions at w.
    """

    weights: Float
    multipliers: Float
    values: Float


@dataclass(frozen=True, eq=False)
class Quadratics:
    """Functions ``w' Q_o w - 2 q_o' w + k_o`` of weights w.

    Parameters
    ----------
    Q : (n_functions, n, n).
    q : (n_functions, n).
    k : (n_functions,).
    """

    Q: Float
    q: Float
    k: Float

    @classmethod
    def of(cls, surrogate: SquareSurrogate, X: Any, ratios: Float) -> Quadratics:
        """Compute the functions of a linear score from the moments of features in the sets.

        Parameters
        ----------
        surrogate : SquareSurrogate
            Functions of the scores.
        X : ndarray or sparse array of shape (n_samples, n_features)
            Features. Those that are not sparse are centred.
        ratios : ndarray of shape (n_samples, n_sets)
            Density ratios.
        """
        X = X if sparse.issparse(X) else X - X.mean(axis=0)
        n, d = X.shape
        mean = (X.T @ ratios).T / n
        Q = np.zeros((surrogate.n_functions, d, d))
        q = np.zeros((surrogate.n_functions, d))
        table: Any = X
        multiply = table.multiply if sparse.issparse(X) else table.__mul__
        covariance = []
        for column, m in zip(ratios.T, mean, strict=True):
            moment: Any = multiply(column[:, None]).T @ X
            dense = moment.toarray() if sparse.issparse(X) else moment
            covariance.append(dense / n - np.outer(m, m))
        pairs = (surrogate.owner, surrogate.upper, surrogate.lower, surrogate.curvature)
        for o, upper, lower, c in zip(*pairs, strict=True):
            difference = mean[upper] - mean[lower]
            outer = np.outer(difference, difference)
            Q[o] += c * (covariance[upper] + covariance[lower] + outer)
            q[o] += c * surrogate.c2 * difference
        return cls(Q, q, surrogate.sum_by_function(surrogate.curvature) * surrogate.c2**2)

    def values(self, w: Float) -> Float:
        """Compute the functions at weights w; (n_functions,)."""
        return np.asarray(self.Q @ w @ w - 2 * self.q @ w + self.k)


def find_optimum(surrogate: SquareSurrogate, X: Any, ratios: Float) -> Optimum:
    """Solve the surrogate problem of a linear score.

    Parameters
    ----------
    surrogate : SquareSurrogate
        Functions of the scores, and their limits.
    X : ndarray or sparse array of shape (n_samples, n_features)
        Features. Columns that others determine change nothing.
    ratios : ndarray of shape (n_samples, n_sets)
        Density ratios of the rows.

    Returns
    -------
    Optimum

    Raises
    ------
    ValueError
        If no weights meet the surrogate rules.
    """
    quadratics = Quadratics.of(surrogate, X, ratios)
    # In these coordinates Q_0 is the identity. It has the range of all Q_o, for every row is in
    # one of the sets of the objective.
    values, vectors = np.linalg.eigh(quadratics.Q[0])
    is_kept = values > values.size * np.finfo(float).eps * values[-1]
    T = vectors[:, is_kept] / np.sqrt(values[is_kept])
    in_z = Quadratics(T.T @ quadratics.Q @ T, quadratics.q @ T, quadratics.k)
    multipliers = np.zeros(surrogate.n_functions - 1)
    if multipliers.size:
        multipliers = _maximise_dual(in_z, surrogate.limits)
    w = T @ _differentiate_dual(in_z, surrogate.limits, multipliers)[0]
    return Optimum(w, multipliers, quadratics.values(w))


def _differentiate_dual(
    quadratics: Quadratics, limits: Float, multipliers: Float
) -> tuple[Float, float, Float, Float]:
    """Minimise the Lagrangian; return the minimiser, its value, the gradient and the curvature."""
    weight = np.append(1.0, multipliers)
    M = np.tensordot(weight, quadratics.Q, axes=1)
    z = np.asarray(np.linalg.solve(M, weight @ quadratics.q), dtype=np.float64)
    violation = quadratics.values(z) - limits
    J = 2 * (quadratics.Q[1:] @ z - quadratics.q[1:])
    curvature = np.asarray(J @ np.linalg.solve(M, J.T) / 2, dtype=np.float64)
    return z, float(weight @ violation), violation[1:], curvature


def _maximise_dual(quadratics: Quadratics, limits: Float) -> Float:
    """Maximise the dual function over non-negative multipliers."""
    multipliers = np.zeros(limits.size - 1)
    _, value, gradient, S = _differentiate_dual(quadratics, limits, multipliers)
    # Newton steps; a few dozen reach the precision of doubles.
    for _ in range(200):
        # Maximise the quadratic model of the dual function over non-negative multipliers.
        n = limits.size - 1
        ridge = np.finfo(float).eps * max(np.trace(S), np.finfo(float).tiny)
        root = np.linalg.cholesky(S + 10 * n * ridge * np.eye(n)).T
        aim = root @ multipliers + np.linalg.solve(root.T, gradient)
        target = np.asarray(nnls(root, aim)[0])
        for halvings in range(40):
            tried = multipliers + 0.5**halvings * (target - multipliers)
            found = _differentiate_dual(quadratics, limits, tried)
            if found[1] > value:
                break
        else:  # No step grows the dual function beyond rounding.
            break
        multipliers, (_, value, gradient, S) = tried, found
    # Rules that the dual optimum violates by more cannot be met.
    if gradient.max() > 1e-6:
        raise ValueError(
            f"no linear score meets the surrogate rules, whose limits are {limits[1:].tolist()}: "
            f"relax the bounds of the rules."
        )
    return multipliers


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
        # A share of zero would never grow again.
        share = np.maximum(share, 1e-12)
        return Dual(share / share.sum(), alpha)

    def largest_value(self, u: Float, v: Float) -> float:
        """Compute the maximum over Y of ``<(u, v), y> - d_y(y)``; Lemma 4."""
        alpha = np.clip(v / 2, -self.interval, self.interval)
        gain = np.bincount(self.owner, alpha * v - alpha**2, self.n_functions)
        return float((u + gain).max())


@dataclass(frozen=True, eq=False)
class SaddleProblem:
    """The functions, the score, the geometry and the step sizes of a saddle problem.

    Step sizes fall with the root of the number of steps; (31). Steps are counted in rows, so that
    batches of any size can be mixed: a step of b rows after n others is ``b / batch_size / sqrt(n
    / batch_size + 1)`` times the first step of a full batch. The sum of all steps, and the
    variance that they add, then depend on the rows alone.

    Parameters
    ----------
    surrogate : Functions of the scores.
    score : Scores as a function of parameters.
    geometry : Geometry of the dual.
    primal_step : Step size of the first full batch in a, b and normalised parameters.
    dual_step : Dual step size of the first full batch, in units of the entropy's coefficient.
    scale : Divisor of the primal step in the parameters of the score: the mean squared norm of the
        score's gradient. A common factor of all features then changes nothing.
    batch_size : Rows of a full batch.
    proximal_weight : Weight rho of ``||x - centre||^2 / 2``, zero where the problem is convex.
    """

    surrogate: SquareSurrogate
    score: ScoreFunction
    geometry: DualGeometry
    primal_step: float
    dual_step: float
    scale: float
    batch_size: int
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
        surrogate = problem.surrogate
        a, b = x.scalars.reshape(2, -1)
        scores = problem.score.scores(x.parameters, X)
        moments = surrogate.moments(scores, ratios)
        u, v = surrogate.saddle_terms(moments, a, b)
        u[0] -= self.level
        scalars: Scalars = a, b, y.alpha
        rows = surrogate.row_gradient(scores, ratios, y.share, scalars)
        by_parameters = problem.score.pull_back(x.parameters, X, rows) / scores.size
        by_scalars = surrogate.scalar_gradient(moments, y.share, scalars)

        size = problem.batch_size
        decay = scores.size / size / float(np.sqrt(self.n_rows / size + 1))
        # Averages weigh all points by their step sizes, (30).
        self._total += decay
        self._u += decay * u
        self._v += decay * v
        for total, part in zip((*self._sum, *self._y), (*x, *y), strict=True):
            total += decay * part
        if problem.proximal_weight:
            parts = zip(x, self.centre, strict=True)
            self._distance += decay * sum(((own - c) ** 2).sum() for own, c in parts)
        primal = problem.primal_step * decay
        parameters = self._descend(0, by_parameters, primal / problem.scale)
        a_and_b = self._descend(1, by_scalars, primal)
        interval = problem.geometry.interval
        self.x = Primal(parameters, np.clip(a_and_b, -interval, interval))
        dual = problem.dual_step * problem.geometry.entropy_weight * decay
        self.y = problem.geometry.ascend(y, u, v, dual)
        self.n_rows += scores.size

    def _descend(self, part: int, gradient: Float, step: float) -> Float:
        """Take the proximal step of one part of x; (29)."""
        weight = self.problem.proximal_weight * step
        return (self.x[part] - step * gradient + weight * self.centre[part]) / (1 + weight)

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


@dataclass(frozen=True)
class LevelSchedule:
    """When levels end, and where the next one lies.

    Parameters
    ----------
    rows_per_level : Rows, with repetition, of one call of the oracle.
    batch_size : Rows of one step.
    theta : Divisor of the move from one level to the next.
    tol : Distance of the upper bound from zero at which the search ends.
    max_levels : Most levels.
    relative_tol : Share of the first upper bound, over theta, at which the search ends instead.
    """

    rows_per_level: int
    batch_size: int
    theta: float
    tol: float
    max_levels: int
    relative_tol: float | None = None


@dataclass(frozen=True, eq=False)
class Level:
    """What the oracle returned at one level.

    Parameters
    ----------
    number : Position of the level, from 0.
    level : The level r.
    upper_bound : Stochastic upper bound U of H(r).
    point : Average of the iterates.
    share : (n_functions,). Average shares of the objective and the rules.
    n_rows : Rows that were read so far, with repetition.
    distance : Distance of the point from the centre of the proximal term.
    proximal_point : Number of the proximal problem that the level is of; see
        :func:`follow_proximal_points`.
    """

    number: int
    level: float
    upper_bound: float
    point: Primal
    share: Float
    n_rows: int
    distance: float
    proximal_point: int = 0

    @property
    def multipliers(self) -> Float:
        """Multipliers of the rules, their shares over that of the objective."""
        return np.asarray(self.share[1:] / self.share[0])


class LevelSetSearch:
    """The feasible level-set method, which reads rows in any order.

    Parameters
    ----------
    problem : SaddleProblem
        Functions, score and step sizes.
    schedule : LevelSchedule
        Lengths of the levels, and the stopping rule.
    start : Primal
        First iterate, and centre of the proximal term.
    level : float
        First level, above the optimum.
    """

    def __init__(
        self, problem: SaddleProblem, schedule: LevelSchedule, start: Primal, level: float
    ) -> None:
        self.problem, self.schedule, self.centre = problem, schedule, start
        self.levels: list[Level] = []
        self.n_rows = 0
        self.oracle = MirrorDescent(problem, level, start, start)
        self._left = schedule.rows_per_level

    @property
    def is_over(self) -> bool:
        """Whether the upper bound has come close to zero, or all levels are done."""
        if len(self.levels) >= self.schedule.max_levels:
            return True
        bounds = [level.upper_bound for level in self.levels]
        if not bounds:
            return False
        schedule = self.schedule
        if schedule.relative_tol is None:
            return bounds[-1] >= -schedule.tol
        return bounds[-1] >= schedule.relative_tol * bounds[0] / schedule.theta

    def update(self, X: Array, ratios: Float) -> Level | None:
        """Take one step on some rows; return the level that it ends, if it ends one.

        Parameters
        ----------
        X : array of shape (n, n_features)
            Features.
        ratios : ndarray of shape (n, n_sets)
            Density ratios of the rows.

        Raises
        ------
        FloatingPointError
            If the iterates have left the range of numbers.
        """
        oracle = self.oracle
        oracle.step(X, ratios)
        self.n_rows += X.shape[0]
        self._left -= X.shape[0]
        if self._left > 0:
            return None
        bound = oracle.upper_bound
        if not np.isfinite(bound):
            raise FloatingPointError(
                f"stochastic mirror descent diverged with learning_rate="
                f"{self.problem.primal_step!r}: give a smaller learning_rate."
            )
        point, dual = oracle.average, oracle.average_dual
        distance = float(np.linalg.norm(np.concatenate(point) - np.concatenate(self.centre)))
        done = Level(
            len(self.levels), oracle.level, bound, point, dual.share, self.n_rows, distance
        )
        self.levels.append(done)
        # Move to the next level; Algorithm 1.
        level = oracle.level + bound / (2 * self.schedule.theta)
        self.oracle = MirrorDescent(self.problem, level, done.point, self.centre, dual)
        self._left = self.schedule.rows_per_level
        return done


def shuffled_batches(
    n_samples: int, batch_size: int, random_state: np.random.RandomState
) -> Iterator[Array]:
    """Yield the positions of rows in batches, without end, in a new order for each pass."""
    while True:
        order = random_state.permutation(n_samples)
        for start in range(0, n_samples, batch_size):
            yield order[start : start + batch_size]


def follow_levels(
    search: LevelSetSearch, X: Array, ratios: Float, batches: Iterator[Array]
) -> Iterator[Level]:
    """Run the level-set method on rows in memory, and yield each level.

    Parameters
    ----------
    search : LevelSetSearch
        The method.
    X : array of shape (n_samples, n_features)
        Features.
    ratios : ndarray of shape (n_samples, n_sets)
        Density ratios.
    batches : iterator of ndarray
        Positions of the rows of each step.
    """
    while not search.is_over:
        rows = next(batches)
        level = search.update(X[rows], ratios[rows])
        if level is not None:
            yield level


def follow_proximal_points(
    problem: SaddleProblem,
    schedule: LevelSchedule,
    start: Primal,
    n_points: int,
    rows: tuple[Array, Float],
    batches: Iterator[Array],
    first_level: float | None = None,
) -> Iterator[Level]:
    """Run the proximal point method about the level-set method, and yield each level; Algorithm 3.

    The returned point of the paper is drawn from the solutions of all proximal problems. Here all
    levels are candidates.

    Parameters
    ----------
    problem : SaddleProblem
        Functions, score and step sizes, with the weight of the proximal term.
    schedule : LevelSchedule
        Levels of each proximal problem.
    start : Primal
        First centre, a point that is feasible.
    n_points : int
        Number of proximal problems.
    rows : tuple of arrays
        Features and density ratios of the rows.
    batches : iterator of ndarray
        Positions of the rows of each step.
    first_level : float, default=None
        First level of the first proximal problem.
    """
    centre, number, n_rows, level = start, 0, 0, first_level
    for s in range(n_points):
        if level is None:  # The objective at the centre, the best scalars given.
            X, ratios = rows
            moments = problem.surrogate.moments(problem.score.scores(centre.parameters, X), ratios)
            level = float(problem.surrogate.values(moments)[0])
        search, level = LevelSetSearch(problem, schedule, centre, level), None
        for done in follow_levels(search, *rows, batches):
            yield replace(done, number=number, n_rows=n_rows + done.n_rows, proximal_point=s)
            number += 1
        n_rows += search.n_rows
        centre = done.point
