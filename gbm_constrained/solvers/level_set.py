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
from typing import Any, NamedTuple, TypeAlias

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

    def sum_by_function(self, values: Float) -> Float:
        """Add up values of pairs for each function; (n_pairs,) to (n_functions,)."""
        return np.bincount(self.owner, values, self.n_functions).astype(np.float64)

    def moments(self, scores: Float, ratios: Float) -> Float:
        """Compute the means over rows of ``e_U``, ``e_U h`` and ``e_U h^2``; (3, n_sets).

        The first ones are one over all rows, and not over a batch.

        Parameters
        ----------
        scores : (n,). Score of each row.
        ratios : (n, n_sets). Density ratios ``e_U`` of the rows.
        """
        powers = np.stack([np.ones_like(scores), scores, scores**2])
        return np.asarray(powers @ ratios / scores.size)

    def values(self, moments: Float) -> Float:
        """Compute the functions at the best scalars, given moments of all rows; (n_functions,)."""
        _, mean, square = moments
        variance = square - mean**2
        shift = mean[self.upper] - mean[self.lower] - self.c2
        spread = variance[self.upper] + variance[self.lower]
        return self.sum_by_function(self.curvature * (spread + shift**2))

    def best_scalars(self, moments: Float) -> Scalars:
        """Compute the optimal scalars of Lemma 1, given moments of all rows."""
        a, b = moments[1, self.upper], moments[1, self.lower]
        return a, b, np.sqrt(self.curvature) * (a - b)

    def saddle_terms(self, moments: Float, a: Float, b: Float) -> tuple[Float, Float]:
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

    def scalar_gradient(self, moments: Float, share: Float, scalars: Scalars) -> Float:
        """Compute the derivatives by a and b, one after the other; (2 * n_pairs,)."""
        slope = -2 * share[self.owner] * self.curvature
        mass, first, _ = moments
        by_a = slope * (first[self.upper] - scalars[0] * mass[self.upper])
        by_b = slope * (first[self.lower] - scalars[1] * mass[self.lower])
        return np.concatenate([by_a, by_b])


Quadratics: TypeAlias = tuple[Float, Float, Float]  # Q_o, q_o and k_o of all functions.


def quadratics_of(surrogate: SquareSurrogate, X: Any, ratios: Float) -> Quadratics:
    """Write the functions of a linear score w as ``w' Q_o w - 2 q_o' w + k_o``.

    Parameters
    ----------
    surrogate : SquareSurrogate
        Functions of the scores.
    X : ndarray or sparse array of shape (n_samples, n_features)
        Features. Those that are not sparse are centred.
    ratios : ndarray of shape (n_samples, n_sets)
        Density ratios.

    Returns
    -------
    Q, q, k : ndarray of shape (n_functions, n, n), (n_functions, n) and (n_functions,)
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
    return Q, q, surrogate.sum_by_function(surrogate.curvature) * surrogate.c2**2


def evaluate_quadratics(quadratics: Quadratics, w: Float) -> Float:
    """Compute the functions at weights w; (n_functions,)."""
    Q, q, k = quadratics
    return np.asarray(Q @ w @ w - 2 * q @ w + k)


def find_optimum(surrogate: SquareSurrogate, X: Any, ratios: Float) -> tuple[Float, Float, Float]:
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
    weights : ndarray of shape (n_features,)
        The weights w.
    multipliers : ndarray of shape (n_rules,)
        Multipliers of the rules.
    values : ndarray of shape (n_functions,)
        The functions at w.

    Raises
    ------
    ValueError
        If no weights meet the surrogate rules.
    """
    Q, q, k = quadratics = quadratics_of(surrogate, X, ratios)
    # In these coordinates Q_0 is the identity. It has the range of all Q_o, for every row is in
    # one of the sets of the objective.
    values, vectors = np.linalg.eigh(Q[0])
    is_kept = values > values.size * np.finfo(float).eps * values[-1]
    T = vectors[:, is_kept] / np.sqrt(values[is_kept])
    in_z = T.T @ Q @ T, q @ T, k
    multipliers = np.zeros(surrogate.n_functions - 1)
    if multipliers.size:
        multipliers = _maximise_dual(in_z, surrogate.limits)
    w = T @ _differentiate_dual(in_z, surrogate.limits, multipliers)[0]
    return w, multipliers, evaluate_quadratics(quadratics, w)


def _differentiate_dual(
    quadratics: Quadratics, limits: Float, multipliers: Float
) -> tuple[Float, float, Float, Float]:
    """Minimise the Lagrangian; return the minimiser, its value, the gradient and the curvature."""
    weight, (Q, q, _) = np.append(1.0, multipliers), quadratics
    M = np.tensordot(weight, Q, axes=1)
    z = np.asarray(np.linalg.solve(M, weight @ q), dtype=np.float64)
    violation = evaluate_quadratics(quadratics, z) - limits
    J = 2 * (Q[1:] @ z - q[1:])
    curvature = np.asarray(J @ np.linalg.solve(M, J.T) / 2, dtype=np.float64)
    return z, float(weight @ violation), violation[1:], curvature


def _maximise_dual(quadratics: Quadratics, limits: Float) -> Float:
    """Maximise the dual function over non-negative multipliers."""
    n = limits.size - 1
    multipliers = np.zeros(n)
    _, value, gradient, S = _differentiate_dual(quadratics, limits, multipliers)
    # Newton steps; a few dozen reach the precision of doubles.
    for _ in range(200):
        # Maximise the quadratic model of the dual function over non-negative multipliers.
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


class Iterate(NamedTuple):
    """A point of the saddle problem: the primal variable x, and the dual variable y.

    Parameters
    ----------
    parameters : Parameters of the score.
    scalars : (2 * n_pairs,). All a and b, one after the other.
    share : (n_functions,). Dual shares of the functions.
    alpha : (n_pairs,). Dual scalars of the pairs.
    """

    parameters: Float
    scalars: Float
    share: Float
    alpha: Float


@dataclass(frozen=True, eq=False)
class SaddleProblem:
    """The functions, the score, the dual set Y and the step sizes of a saddle problem.

    Step sizes fall with the root of the number of steps; (31). Steps are counted in rows, so that
    batches of any size can be mixed: a step of b rows after n others is ``b / batch_size / sqrt(n
    / batch_size + 1)`` times the first step of a full batch. The sum of all steps, and the
    variance that they add, then depend on the rows alone.

    Parameters
    ----------
    surrogate : Functions of the scores.
    score : Scores of rows as a differentiable function of parameters. It has
        ``scores(parameters, X)``, (n,), and ``pull_back(parameters, X, rows)``, the sum over rows
        of ``rows[i]`` times the gradient of score i.
    interval : Largest absolute value I of the scalars alpha.
    primal_step : Step size of the first full batch in a, b and normalised parameters.
    dual_step : Dual step size of the first full batch, in units of the entropy's coefficient.
    scale : Divisor of the primal step in the parameters of the score: the mean squared norm of the
        score's gradient. A common factor of all features then changes nothing.
    batch_size : Rows of a full batch.
    proximal_weight : Weight rho of ``||x - centre||^2 / 2``, zero where the problem is convex.
    """

    surrogate: SquareSurrogate
    score: Any
    interval: float
    primal_step: float
    dual_step: float
    scale: float
    batch_size: int
    proximal_weight: float = 0.0

    @cached_property
    def entropy_weight(self) -> float:
        """Coefficient C of the entropy."""
        p = np.bincount(self.surrogate.owner).max()
        return float(2 * (1 + np.sqrt(p) * self.interval) ** 2)

    def start(self, parameters: Float, scalars: Float | None = None) -> Iterate:
        """Make an iterate whose dual variable is the centre of Y: equal shares, and zeros."""
        n, n_pairs = self.surrogate.n_functions, self.surrogate.owner.size
        scalars = np.zeros(2 * n_pairs) if scalars is None else scalars
        return Iterate(parameters, scalars, np.full(n, 1 / n), np.zeros(n_pairs))

    def ascend(self, y: Iterate, u: Float, v: Float, step: float) -> tuple[Float, Float]:
        """Maximise ``<(u, v), y> - d_y(y) - V_y(y, y_t) / step``; (29), Lemma 3.

        Parameters
        ----------
        y : Current point y_t.
        u : (n_functions,). Coefficients of the shares.
        v : (n_pairs,). Coefficients of ``share * alpha``.
        step : Step size tau.

        Returns
        -------
        share, alpha : The dual variable of the next iterate.
        """
        best = (step * v / 2 + y.alpha) / (1 + step)
        alpha = np.clip(best, -self.interval, self.interval)
        gain = alpha * v - alpha**2 - (alpha - y.alpha) ** 2 / step
        total = np.bincount(self.surrogate.owner, gain, y.share.size) + u
        share = softmax(np.log(y.share) + total * step / self.entropy_weight)
        # A share of zero would never grow again.
        share = np.maximum(share, 1e-12)
        return share / share.sum(), alpha

    def largest_value(self, u: Float, v: Float) -> float:
        """Compute the maximum over Y of ``<(u, v), y> - d_y(y)``; Lemma 4."""
        alpha = np.clip(v / 2, -self.interval, self.interval)
        gain = self.surrogate.sum_by_function(alpha * v - alpha**2)
        return float((u + gain).max())


class MirrorDescent:
    """Oracle of the level-set method: steps at one level, averages, and an upper bound.

    Parameters
    ----------
    problem : SaddleProblem
        Functions, score and step sizes.
    level : float
        The level r.
    start : Iterate
        First iterate, whose dual variable may be the average of the level before.
    centre : Iterate
        Centre of the proximal term, in its primal variable.
    """

    def __init__(
        self, problem: SaddleProblem, level: float, start: Iterate, centre: Iterate
    ) -> None:
        self.problem, self.level, self.centre = problem, level, centre
        self.x = start
        self.n_rows = 0
        self._total = self._distance = 0.0
        self._sum = Iterate(*map(np.zeros_like, start))
        self._u, self._v = np.zeros_like(start.share), np.zeros_like(start.alpha)

    def step(self, X: Array, ratios: Float) -> None:
        """Take one step on some rows.

        Parameters
        ----------
        X : array of shape (n, n_features)
            Features of the rows.
        ratios : ndarray of shape (n, n_sets)
            Their density ratios.
        """
        problem, x = self.problem, self.x
        surrogate, score = problem.surrogate, problem.score
        a, b = x.scalars.reshape(2, -1)
        scores = score.scores(x.parameters, X)
        moments = surrogate.moments(scores, ratios)
        u, v = surrogate.saddle_terms(moments, a, b)
        u[0] -= self.level
        scalars: Scalars = a, b, x.alpha
        rows = surrogate.row_gradient(scores, ratios, x.share, scalars)
        by_parameters = score.pull_back(x.parameters, X, rows) / scores.size
        by_scalars = surrogate.scalar_gradient(moments, x.share, scalars)

        size = problem.batch_size
        decay = scores.size / size / float(np.sqrt(self.n_rows / size + 1))
        # Averages weigh all points by their step sizes, (30).
        self._total += decay
        self._u += decay * u
        self._v += decay * v
        for total, part in zip(self._sum, x, strict=True):
            total += decay * part
        if problem.proximal_weight:
            parts = zip(x[:2], self.centre[:2], strict=True)
            self._distance += decay * sum(((own - c) ** 2).sum() for own, c in parts)
        primal = problem.primal_step * decay
        parameters = self._descend(0, by_parameters, primal / problem.scale)
        a_and_b = self._descend(1, by_scalars, primal)
        dual = problem.dual_step * problem.entropy_weight * decay
        self.x = Iterate(
            parameters,
            np.clip(a_and_b, -problem.interval, problem.interval),
            *problem.ascend(x, u, v, dual),
        )
        self.n_rows += scores.size

    def _descend(self, part: int, gradient: Float, step: float) -> Float:
        """Take the proximal step of one part of x; (29)."""
        weight = self.problem.proximal_weight * step
        return (self.x[part] - step * gradient + weight * self.centre[part]) / (1 + weight)

    @property
    def average(self) -> Iterate:
        """Average of the iterates, the point that the oracle returns."""
        return Iterate(*(part / self._total for part in self._sum))

    @property
    def upper_bound(self) -> float:
        """Stochastic upper bound U of H(r); (30), Lemma 4."""
        value = self.problem.largest_value(self._u / self._total, self._v / self._total)
        return value + self.problem.proximal_weight / 2 * self._distance / self._total


@dataclass(frozen=True, eq=False)
class Level:
    """What the oracle returned at one level.

    Parameters
    ----------
    number : Position of the level, from 0.
    level : The level r.
    upper_bound : Stochastic upper bound U of H(r).
    point : Average of the iterates.
    n_rows : Rows that were read so far, with repetition.
    distance : Distance of the point from the centre of the proximal term.
    proximal_point : Number of the proximal problem that the level is of; see
        :func:`follow_levels`.
    """

    number: int
    level: float
    upper_bound: float
    point: Iterate
    n_rows: int
    distance: float
    proximal_point: int = 0

    @property
    def multipliers(self) -> Float:
        """Multipliers of the rules, their average shares over that of the objective."""
        return np.asarray(self.point.share[1:] / self.point.share[0])


@dataclass(eq=False)
class LevelSetSearch:
    """The feasible level-set method, which reads rows in any order.

    Parameters
    ----------
    problem : SaddleProblem
        Functions, score and step sizes.
    start : Iterate
        First iterate, and centre of the proximal term.
    level : float
        First level, above the optimum.
    rows_per_level : int
        Rows, with repetition, of one call of the oracle.
    theta : float
        Divisor of the move from one level to the next.
    tol : float
        Distance of the upper bound from zero at which the search ends.
    max_levels : int
        Most levels.
    relative_tol : float, default=None
        Share of the first upper bound, over theta, at which the search ends instead.
    """

    problem: SaddleProblem
    start: Iterate
    level: float
    rows_per_level: int
    theta: float
    tol: float
    max_levels: int
    relative_tol: float | None = None

    def __post_init__(self) -> None:
        self.levels: list[Level] = []
        self.n_rows = 0
        self.oracle = MirrorDescent(self.problem, self.level, self.start, self.start)

    @property
    def is_over(self) -> bool:
        """Whether the upper bound has come close to zero, or all levels are done."""
        if not self.levels:
            return False
        first, last = self.levels[0].upper_bound, self.levels[-1].upper_bound
        is_close = last >= -self.tol
        if self.relative_tol is not None:
            is_close = last >= self.relative_tol * first / self.theta
        return is_close or len(self.levels) >= self.max_levels

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
        if oracle.n_rows < self.rows_per_level:
            return None
        bound, point = oracle.upper_bound, oracle.average
        if not np.isfinite(bound):
            raise FloatingPointError(
                f"stochastic mirror descent diverged with learning_rate="
                f"{self.problem.primal_step!r}: give a smaller learning_rate."
            )
        moved = np.concatenate(point[:2]) - np.concatenate(self.start[:2])
        distance = float(np.linalg.norm(moved))
        done = Level(len(self.levels), oracle.level, bound, point, self.n_rows, distance)
        self.levels.append(done)
        # Move to the next level; Algorithm 1.
        level = oracle.level + bound / (2 * self.theta)
        self.oracle = MirrorDescent(self.problem, level, point, self.start)
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
    search: LevelSetSearch, X: Array, ratios: Float, batches: Iterator[Array], n_points: int = 1
) -> Iterator[Level]:
    """Run the level-set method on rows in memory, and yield each level; Algorithm 3.

    With more than one proximal problem, the centre moves to the last point of each. The returned
    point of the paper is drawn from the solutions of all proximal problems. Here all levels are
    candidates.

    Parameters
    ----------
    search : LevelSetSearch
        The method, from a first centre that is feasible.
    X : array of shape (n_samples, n_features)
        Features.
    ratios : ndarray of shape (n_samples, n_sets)
        Density ratios.
    batches : iterator of ndarray
        Positions of the rows of each step.
    n_points : int, default=1
        Number of proximal problems.
    """
    problem, number, n_rows = search.problem, 0, 0
    for s in range(n_points):
        while not search.is_over:
            rows = next(batches)
            level = search.update(X[rows], ratios[rows])
            if level is not None:
                yield replace(level, number=number, n_rows=n_rows + level.n_rows, proximal_point=s)
                number += 1
        n_rows += search.n_rows
        # The next problem begins at the objective of its centre, the best scalars given.
        centre = problem.start(*search.levels[-1].point[:2])
        moments = problem.surrogate.moments(problem.score.scores(centre.parameters, X), ratios)
        first = float(problem.surrogate.values(moments)[0])
        search = replace(search, start=centre, level=first)
