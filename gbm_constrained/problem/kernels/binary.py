"""The kernel of two classes: one margin for each row."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from scipy.special import expit

from gbm_constrained._typing import Array
from gbm_constrained.problem.kernels.base import Block
from gbm_constrained.problem.kernels.tables import BinaryTables

FLAT = 1e-3  # Margin below which the curvature of the parabola above is 1/4, to seven digits.
TINY = 1e-30  # Added to distances, so that no quotient is 0 / 0; it changes no larger number.


class BinaryKernel:
    """The row kernel on a binary margin of shape (n,).

    Probabilities are ``a = sigmoid(-s m)``, of the *wrong* class, with s = +1 for a positive and
    -1 for a negative row: exact to the last digit where the model is right. Labels are the s.
    """

    @staticmethod
    def encode(y: Array, dtype: np.dtype[Any]) -> Array:
        """Encode class indices as signs, -1 and 1."""
        return (2 * y - 1).astype(dtype)

    @staticmethod
    def link(margin: Array, labels: Array, out: Array) -> None:
        """Write the probability of the wrong class of each row."""
        np.multiply(margin, labels, out=out)
        with np.errstate(over="ignore"):  # The quotient 1 / infinity is the right limit.
            np.exp(out, out=out)
        out += 1.0
        np.divide(1.0, out, out=out)

    @staticmethod
    def predict(margin: Array) -> Array:
        """Predict class 1 where the margin is positive."""
        is_positive: Array = margin > 0
        return is_positive

    @staticmethod
    def loss(a: Array, margin: Array, labels: Array) -> Array:
        """Compute the cross-entropy: ``-log(1 - a)``, or ``-s m - log a`` where a is above 1/2."""
        log_larger = np.subtract(1.0, a)
        np.maximum(log_larger, a, out=log_larger)
        np.log(log_larger, out=log_larger)
        signed = labels * margin
        # |x| - x = -2 min(x, 0), and numpy's minimum takes several times as long.
        loss: Array = np.abs(signed)
        loss -= signed
        loss *= 0.5
        loss -= log_larger
        return loss

    @classmethod
    def value(cls, block: Block) -> Array:
        """Compute the kernel value of each row."""
        a, margin, labels, codes, t, cap = block
        loss = cls.loss(a, margin, labels)
        chosen = cls.decision(margin)
        return np.asarray(
            t.rows(t.label_target, codes) * loss
            + t.rows(t.other_total, codes) * (loss + labels * margin)
            + t.rows(t.cost[:, 0], codes) * (1.0 - chosen)
            + t.rows(t.cost[:, 1], codes) * chosen
            + t.rows(t.clipped, codes) * np.minimum(loss, cap)
        )

    @staticmethod
    def decision(margin: Array) -> Array:
        """Compute what stands for the prediction of class 1: the mean of two probabilities."""
        return np.asarray((expit(margin) + expit(margin / 2.0)) / 2.0)

    @staticmethod
    def look_up(block: Block, table: Array) -> Array:
        """Look up a one-dimensional table for each row; the result is read-only."""
        t: BinaryTables = block.tables
        parts = t.by_sign(table)
        if parts is None:
            return t.kept_rows(table, block.codes)
        centre, half = parts  # In cache, a product and a sum are faster than a look-up.
        if half == 0:
            constant: Array = t.dtype.type(centre)
            return constant
        entries: Array = block.labels * half
        if centre != 0:
            entries += centre
        return entries

    @classmethod
    def gradient(cls, block: Block, grad: Array, hess: Array, learning_rate: float = 0.0) -> None:
        """Write the gradient and the Hessian majoriser of each row.

        The majoriser of a convex kernel keeps a step shrunk by `learning_rate` from overshooting.
        """
        a, margin, labels, _, t, cap = block
        look_up = partial(cls.look_up, block)
        has_other, has_cost, has_clipped = t.parts
        np.multiply(a, a, out=hess)
        np.subtract(a, hess, out=hess)
        if learning_rate > 0 and not has_cost and not has_clipped:
            np.maximum(hess, cls._safe_curvature(a, margin, learning_rate), out=hess)
        target = look_up(t.signed_target)
        np.multiply(a, target, out=grad)
        total = look_up(t.curvature) if has_other else np.abs(target)
        if has_other:
            grad += look_up(t.signed_other) * (1.0 - a)
        if has_clipped:
            unclipped = look_up(t.clipped) * (cls.loss(a, margin, labels) < cap)
            grad -= unclipped * labels * a
            total = total + np.abs(unclipped)
        of_cost = cls.add_cost(block, hess, grad) if has_cost else []
        if total.ndim or total != 1.0:
            hess *= total
        for bound in of_cost:
            hess += bound

    @classmethod
    def add_cost(cls, block: Block, variance: Array, grad: Array) -> list[Array]:
        """Add the slope of the expected cost; return the terms of a bound of its curvature.

        The `variance` is ``p (1 - p)``.
        """
        cost = 0.5 * cls.look_up(block, block.tables.margin_cost)
        near, far = cost * variance, cls._slope(variance)
        far *= cost
        grad += near
        grad += far
        far *= 0.5
        return [np.abs(near, out=near), np.abs(far, out=far)]

    @classmethod
    def cost_curvature(cls, variance: Array, margin: Array) -> Array:
        """Compute the second derivative of what stands for the prediction of class 1."""
        # 1 - 2 p = -tanh(m / 2), and 1 - 2 q = -tanh(m / 4).
        bend = -variance * np.tanh(margin / 2.0) - cls._slope(variance) * np.tanh(margin / 4.0) / 2
        return np.asarray(bend / 2.0)

    @staticmethod
    def _safe_curvature(a: Array, margin: Array, learning_rate: float) -> Array:
        """Compute the curvature of the parabola above the loss, times the learning rate."""
        distance = np.abs(margin)
        distance += TINY
        curvature: Array = np.subtract(0.5, a)
        np.abs(curvature, out=curvature)
        curvature /= distance
        if learning_rate > 0.5:  # At lower rates the Hessian itself is larger there.
            curvature[distance < FLAT] = 0.25
        curvature *= learning_rate
        return curvature

    @staticmethod
    def _slope(variance: Array) -> Array:
        """Compute the slope ``q (1 - q) / 2`` of q in the margin from ``p (1 - p)``."""
        root = np.sqrt(variance)
        slope: Array = root * 4.0
        slope += 2.0
        np.divide(root, slope, out=slope)
        return slope

    @classmethod
    def hessian_product(cls, block: Block, u: Array) -> Array:
        """Compute the exact Hessian of each row's kernel times `u`."""
        a, margin, labels, codes, t, cap = block
        curvature = t.rows(t.total_target, codes) + t.rows(t.clipped, codes) * (
            cls.loss(a, margin, labels) < cap
        )
        variance = a * (1.0 - a)
        of_cost = t.rows(t.margin_cost, codes) * cls.cost_curvature(variance, margin)
        curvature = curvature * variance + of_cost
        return np.asarray(curvature * u)
