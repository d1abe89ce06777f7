r"""Exact optimum of a linear score under the square surrogate.

For :math:`h = X w` every function of the surrogate
(:mod:`gbm_constrained.solvers.square_surrogate`) is a convex quadratic, with the means
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
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.optimize import nnls

from gbm_constrained._typing import Float
from gbm_constrained.solvers.square_surrogate import SquareSurrogate

MAX_STEPS = 200  # Newton steps; a few dozen reach the precision of doubles.
MAX_HALVINGS = 40
MAX_VIOLATION = 1e-6  # Rules that the dual optimum violates by more cannot be met.


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
        covariance = [
            _second_moment(X, column) / n - np.outer(m, m)
            for column, m in zip(ratios.T, mean, strict=True)
        ]
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

    def change_coordinates(self, T: Float) -> Quadratics:
        """Write the functions in coordinates z of ``w = T z``."""
        return Quadratics(T.T @ self.Q @ T, self.q @ T, self.k)


def _second_moment(X: Any, weight: Float) -> Float:
    """Add up the outer products of weighted rows."""
    is_sparse = bool(sparse.issparse(X))
    weighted = X.multiply(weight[:, None]) if is_sparse else X * weight[:, None]
    moment = weighted.T @ X
    return np.asarray(moment.todense() if is_sparse else moment)


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
    in_z = quadratics.change_coordinates(T)
    multipliers = np.zeros(surrogate.n_functions - 1)
    if multipliers.size:
        multipliers = _maximise_dual(in_z, surrogate.limits)
    w = T @ _Dual.at(in_z, surrogate.limits, multipliers).z
    return Optimum(w, multipliers, quadratics.values(w))


class _Dual(NamedTuple):
    """The dual function at some multipliers, with its derivatives."""

    z: Float
    value: float
    gradient: Float
    curvature: Float

    @classmethod
    def at(cls, quadratics: Quadratics, limits: Float, multipliers: Float) -> _Dual:
        """Minimise the Lagrangian, and differentiate its minimum."""
        weight = np.append(1.0, multipliers)
        M = np.tensordot(weight, quadratics.Q, axes=1)
        z = np.asarray(np.linalg.solve(M, weight @ quadratics.q), dtype=np.float64)
        violation = quadratics.values(z) - limits
        J = 2 * (quadratics.Q[1:] @ z - quadratics.q[1:])
        curvature = np.asarray(J @ np.linalg.solve(M, J.T) / 2, dtype=np.float64)
        return cls(z, float(weight @ violation), violation[1:], curvature)


def _maximise_dual(quadratics: Quadratics, limits: Float) -> Float:
    """Maximise the dual function over non-negative multipliers."""
    multipliers = np.zeros(limits.size - 1)
    current = _Dual.at(quadratics, limits, multipliers)
    for _ in range(MAX_STEPS):
        target = _maximise_model(multipliers, current)
        step, best = 1.0, None
        for _ in range(MAX_HALVINGS):
            tried = multipliers + step * (target - multipliers)
            found = _Dual.at(quadratics, limits, tried)
            if found.value > current.value:
                best = tried, found
                break
            step /= 2
        if best is None:  # No step grows the dual function beyond rounding.
            break
        multipliers, current = best
    if current.gradient.max() > MAX_VIOLATION:
        raise ValueError(
            f"no linear score meets the surrogate rules, whose limits are {limits[1:].tolist()}: "
            f"relax the bounds of the rules."
        )
    return multipliers


def _maximise_model(multipliers: Float, dual: _Dual) -> Float:
    """Maximise the quadratic model of the dual function over non-negative multipliers."""
    S = dual.curvature
    ridge = np.finfo(float).eps * max(np.trace(S), np.finfo(float).tiny)
    root = np.linalg.cholesky(S + 10 * S.shape[0] * ridge * np.eye(S.shape[0])).T
    aim = root @ multipliers + np.linalg.solve(root.T, dual.gradient)
    return np.asarray(nnls(root, aim)[0])
