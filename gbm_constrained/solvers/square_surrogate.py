r"""The square surrogate of pair rates, and its saddle form.

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
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gbm_constrained._typing import Codes, Float
from gbm_constrained.solvers.pair_rules import NEGATIVES, POSITIVES, PairRule, PairTerm

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


class Scalars(NamedTuple):
    """Auxiliary scalars of the saddle form, (n_pairs,) each."""

    a: Float
    b: Float
    alpha: Float


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
        return Scalars(a, b, np.sqrt(self.curvature) * (a - b))

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
        by_a = slope * (moments.first[self.upper] - scalars.a * moments.mass[self.upper])
        by_b = slope * (moments.first[self.lower] - scalars.b * moments.mass[self.lower])
        return np.concatenate([by_a, by_b])
