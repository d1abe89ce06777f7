"""Proximal subproblems of a solver, as functions of the weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse.linalg import LinearOperator, cg

from gbm_constrained._typing import Array, Float
from gbm_constrained.linear_model.linear_scores import LinearScores
from gbm_constrained.solvers.base import Solver

EXACT = 1e-12  # Norm of the gradient, in the subproblem's own coordinates, that is left.


class ProximalSubproblem:
    """The function ``f + <y, g> + D(., x) / tau`` of steps z from weights x."""

    def __init__(self, learner: LinearScores, solver: Solver, weights: Float) -> None:
        self.learner, self.start, self.multipliers = learner, weights, solver.multipliers
        self.centre = solver.subproblem.centre
        self.in_scores = float(np.max(solver.subproblem.proximal_weight))
        self.in_weights = 0.0
        if learner.metric == "weights":
            self.in_scores, self.in_weights = self.in_weights, self.in_scores
        self.shape = (learner.coordinates.shape[1], *learner.shape[1:])
        self._seen: tuple[bytes, Any] | None = None

    def at(self, z: Array) -> tuple[Float, Any]:
        """Take the step in weights, and the Lagrangian at its end."""
        step = self.learner.coordinates @ z.reshape(self.shape)
        key = z.tobytes()
        if self._seen is None or self._seen[0] != key:
            margin = self.learner.margin(self.start + step)
            self._seen = key, self.learner.lagrangian.at(margin)
        return step, self._seen[1]

    def value_and_gradient(self, z: Array) -> tuple[float, Float]:
        """Compute value and gradient after a step z."""
        learner, w = self.learner, self.in_weights
        step, point = self.at(z)
        x = self.start + step
        value = point.value(self.multipliers, self.centre, self.in_scores)
        value += float((learner.ridge * x**2 + w * step**2).sum()) / 2
        rows, _ = point.gradient(self.multipliers, self.centre, self.in_scores)
        gradient = learner.pull_back(rows) + learner.ridge * x + w * step
        return value, (learner.coordinates.T @ gradient).ravel()

    def hessian_product(self, z: Array, u: Array) -> Float:
        """Compute the Hessian after a step z times u."""
        learner = self.learner
        _, point = self.at(z)
        du = learner.coordinates @ u.reshape(self.shape)
        rows = (learner.scores @ du).reshape(learner.margin_shape)
        pulled = learner.pull_back(point.hessian_product(self.multipliers, rows, self.in_scores))
        product = pulled + (learner.ridge + self.in_weights) * du
        return np.asarray(learner.coordinates.T @ product).ravel()

    def take_newton_steps(self, z: Array, gradient: Float) -> tuple[Array, Float]:
        """Take Newton steps until the gradient is exact or falls no more."""
        for _ in range(8):
            hessian = LinearOperator((z.size, z.size), lambda u: self.hessian_product(z, u))  # noqa: B023
            if np.linalg.norm(gradient) <= EXACT:
                break
            step, _ = cg(hessian, -gradient, rtol=1e-3, atol=EXACT / 10, maxiter=200)
            _, at_step = self.value_and_gradient(z + step)
            if not np.linalg.norm(at_step) < np.linalg.norm(gradient):
                break
            z, gradient = z + step, at_step
        return z, gradient
