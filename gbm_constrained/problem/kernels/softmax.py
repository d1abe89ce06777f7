"""The kernel of three and more classes: a score for each class."""

from __future__ import annotations

from typing import Any

import numpy as np

from gbm_constrained._typing import Array
from gbm_constrained.data.devices import array_module
from gbm_constrained.problem.kernels.base import Block


def _as_column(x: Array) -> Array:
    """Reshape factors of rows to multiply (n, n_classes) blocks."""
    return x[:, None] if x.ndim else x


class SoftmaxKernel:
    """The row kernel on scores of shape (n, K), in C or Fortran order.

    Probabilities are the softmax; labels are class indices.

    Parameters
    ----------
    majoriser_factor : Multiplies the Hessian: 2 in XGBoost, which makes the diagonal an upper
        bound of the full Hessian; K / (K - 1) in LightGBM, enough for that where p is uniform.
    """

    def __init__(self, majoriser_factor: float = 1.0) -> None:
        self.majoriser_factor = majoriser_factor

    @staticmethod
    def encode(y: Array, dtype: np.dtype[Any]) -> Array:
        """Keep class indices, which the other methods take as labels."""
        return y

    @staticmethod
    def link(margin: Array, labels: Array, out: Array) -> None:
        """Write the softmax of each row."""
        np.subtract(margin, margin.max(axis=1, keepdims=True), out=out)
        # In double precision for float32 as well: numpy's float32 exp is off by up to 3 ulp,
        # which XGBoost's is not.
        out[...] = np.exp(out, dtype=np.float64)
        out /= out.sum(axis=1, keepdims=True, dtype=np.float64).astype(out.dtype)

    @staticmethod
    def predict(margin: Array) -> Array:
        """Predict the class of the first largest score."""
        found: Array = margin.argmax(axis=1)
        return found

    @staticmethod
    def look_up(block: Block, table: Array) -> Array:
        """Look up a one-dimensional table for each row; the result is read-only."""
        found: Array = block.tables.kept_rows(table, block.codes)
        return found

    @staticmethod
    def _losses(margin: Array) -> Array:
        shifted = margin - margin.max(axis=1, keepdims=True)
        losses: Array = np.log(np.exp(shifted).sum(axis=1, keepdims=True)) - shifted
        return losses

    @staticmethod
    def loss(p: Array, margin: Array, labels: Array) -> Array:
        """Compute the cross-entropy, which the scores give where a probability underflows."""
        rows = array_module(labels).arange(labels.size)
        top = margin.argmax(axis=1)
        losses: Array = margin[rows, top] - margin[rows, labels] - np.log(p[rows, top])
        return losses

    def value(self, block: Block) -> Array:
        """Compute the kernel value of each row."""
        p, margin, labels, codes, t, cap = block
        values: Array = (
            (t.rows(t.target, codes) * self._losses(margin)).sum(axis=1)
            + (t.rows(t.cost, codes) * (p + self._soften(p)) / 2.0).sum(axis=1)
            + t.rows(t.clipped, codes) * np.minimum(self.loss(p, margin, labels), cap)
        )
        return values

    @staticmethod
    def _soften(p: Array) -> Array:
        """Compute the softmax of half the scores."""
        q: Array = np.sqrt(p)
        q /= q.sum(axis=1, keepdims=True)
        return q

    def gradient(self, block: Block, grad: Array, hess: Array, learning_rate: float = 0.0) -> None:
        """Write the gradient and the Hessian majoriser of each row, at any learning rate."""
        p, margin, labels, codes, t, cap = block
        rows = array_module(labels).arange(labels.size)
        np.subtract(1.0, p, out=hess)
        hess *= p
        has_other, has_cost, has_clipped = t.parts
        same = t.kept_rows(t.label_target, codes)
        curvature = t.kept_rows(t.curvature, codes)
        if has_clipped:
            unclipped = t.kept_rows(t.clipped, codes) * (self.loss(p, margin, labels) < cap)
            same, curvature = same + unclipped, curvature + np.abs(unclipped)
        total = same + t.kept_rows(t.other_total, codes) if has_other else same
        np.multiply(p, _as_column(total), out=grad)
        grad[rows, labels] -= same
        if has_other:
            grad -= t.rows(t.other_target, codes)
        hess *= _as_column(curvature * self.majoriser_factor)
        if has_cost:
            cost, width = t.rows(t.cost, codes), t.kept_rows(t.cost_range, codes)
            for q, scale in ((p, 0.5), (self._soften(p), 0.25)):
                grad += scale * q * (cost - np.einsum("ik,ik->i", cost, q)[:, None])
                bound = width * (self.majoriser_factor * 2.0 * scale**2)
                hess += _as_column(bound) * q * (1.0 - q)

    def hessian_product(self, block: Block, u: Array) -> Array:
        """Compute the exact Hessian of each row's kernel times `u` of shape (n, K)."""
        p, margin, labels, codes, t, cap = block
        pu = p * u
        dp = pu - p * pu.sum(axis=1, keepdims=True)
        total = t.rows(t.total_target, codes)
        total = total + t.rows(t.clipped, codes) * (self.loss(p, margin, labels) < cap)
        product: Array = _as_column(total) * dp
        cost = t.rows(t.cost, codes)
        for q, scale in ((p, 0.5), (self._soften(p), 0.125)):
            qu = q * u
            dq = qu - q * qu.sum(axis=1, keepdims=True)
            product += scale * dq * (cost - (cost * q).sum(axis=1, keepdims=True))
            product -= scale * q * (cost * dq).sum(axis=1, keepdims=True)
        return product
