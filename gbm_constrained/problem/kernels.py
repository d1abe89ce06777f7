r"""Proxies of 0-1 rates as functions of the scores of a row, and their derivatives.

Whatever the constraints, a row of cell c contributes one kernel with two tables of coefficients,

.. math:: k_c(F) = \sum_k T_{ck} (-\log p_k(F)) + \sum_k Q_{ck} \frac{p_k(F) + q_k(F)}{2},

a cross-entropy with soft targets ``T >= 0`` (convex) and an expected cost ``Q`` (bounded, not
convex). ``p = softmax(F)`` and ``q = softmax(F / 2)``; a binary margin m stands for F = (0, m).
The parts are

- the objective: T = one-hot of the label;
- a mean-loss constraint: the same, times its coefficient;
- a 0-1 rate with cost ``a_k`` of predicting class k, through a smooth proxy (see Proxies).

Of two classes, a ramp may stand for ``(p + q) / 2`` (see The ramp).

With S = sum_k T_k, Q_p = sum_k Q_k p_k and Q_q = sum_k Q_k q_k,

- gradient: ``S p - T + p (Q - Q_p) / 2 + q (Q - Q_q) / 4``;
- Hessian, diagonal majoriser: ``S p (1 - p) + range(Q) (p (1 - p) / 2 + q (1 - q) / 8)``. The
  curvature of the expected cost changes sign, but is at most that; taking the bound keeps
  ``|gradient| / Hessian`` of the proxy at most 2, where its positive part would let leaves blow
  up.

No further exponentials are needed: q is sqrt(p), scaled to sum to one.

**Steps that do not overshoot.** A Newton step of the cross-entropy goes ``1 / p`` far where the
model gives a row's label the probability p, and a leaf of few rows takes such steps: negatives
that share it with a heavily weighed positive are thrown far below all others, and with them
positives that the tree has not seen. The curvature of the parabola that touches ``log(1 +
exp(z))`` in a margin z and is nowhere below it,

.. math:: c(z) = \frac{\tanh(z / 2)}{2 z} = \frac{p - 1/2}{z}

(Jaakkola and Jordan, "Bayesian parameter estimation via variational methods", 2000, eq. 7), bounds
the full step; a step shrunk by a learning rate eta is as safe with eta times that. Where a
multiplier is above zero on a binary margin, and the kernel is convex (no expected cost, nothing
clipped), ``S p (1 - p)`` therefore becomes ``S max(p (1 - p), eta c(z))``. At slow rates this is
the library's own Hessian for all rows but the surest. For softmax scores a joint bound is several
times too steep, and a bound for each score alone costs accuracy (evidence, Proxies).

A kernel works on blocks of rows in two steps, so that values and gradients at the same scores
share the exponentials: ``link`` turns scores into probabilities, everything else takes those.

**The ramp.** "Class 1 is predicted" becomes :math:`r(m) = \max(0, \min(1, 1/2 + m / 4))`, which is
as steep at a margin of zero as the probability of class 1 (Goh, Cotter, Gupta and Friedlander,
section 2, with a ramp four times as wide). A row with the expected cost Q of class 1 over class 0
contributes ``Q r(m)``. Rows beyond the ends of the ramp have no gradient: a row far on the wrong
side does not pull at all, where the sigmoid lets it pull a little.

**Hessian of the ramp.** The second derivative is zero, or does not exist, and leaves need a
number above zero.
Let s be the sign of Q. The convex bound of the ramp that is tight where one stands (the paper's
equation 4) is constant where ``s m >= 2``, and up to a constant the hinge
``|Q| max(0, 1/2 + s m / 4)`` elsewhere. The hinge is nowhere above the parabola that touches it
and has the curvature

.. math:: \frac{|Q|}{8 |s m + 2|}

(Groenen, Nalbantov and Bioch, "SVM-Maj: a majorization approach to linear support vector machines
with different hinge errors", 2008). A full step from inside the ramp mirrors the margin at the
ramp's lower end, and is at most 8 long.

Near that end the curvature has no limit, and a row there would hold its whole leaf. The distance
is therefore taken as ``KINK`` at least, which is the sharpest for a ramp whose ends are rounded
over that distance. Where the bound is constant, the Hessian is zero: such a row is left to the
objective. Gradient and Hessian are thus those of the paper's Algorithm 1 with bounds that are
renewed in every round.

**Proxies.** A 0-1 rate with cost ``a_k`` of predicting class k is replaced by coefficients T and Q
of the row kernel. Multipliers always move on exact rates.

``"logistic"``
    :math:`T_k = (\max_l a_l - a_k) / \log 2`. With :math:`1[\text{prediction} \ne k] \le
    -\log(p_k) / \log 2` the proxy is a convex upper bound of the cost, up to a constant. Of three
    or more classes, a cost of predicting one of them makes all others equal targets, and pulls
    their probabilities together. Such constraints have the sigmoid proxy by default
    (evidence, Proxies).
``"sigmoid"``
    :math:`Q = a`. "k is predicted" becomes a probability, the mean of p_k and of q_k at half the
    scores. The proxy is bounded, so that a row far on the wrong side pulls little. With p alone
    constraints are met by flipping the few nearest rows, for which multipliers grow large; q alone
    reaches far and costs accuracy (evidence, Proxies).
``"ramp"``
    :math:`Q = a`. "Class 1 is predicted" becomes a ramp of the margin of two classes. A row beyond
    the ramp's ends does not pull.
"""

from __future__ import annotations

from functools import partial, reduce
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from scipy.special import expit

from gbm_constrained._typing import Array
from gbm_constrained.data.cells import address_of, array_module, look_up

LOG2 = float(np.log(2.0))


class KernelBlock(NamedTuple):
    """Arguments of the kernels for a block of rows.

    Parameters
    ----------
    probability : Probabilities as ``link`` writes them.
    labels : (n,). Labels as ``encode`` returns them.
    codes : (n,) or slice. Keys by which the tables look up rows.
    cap : Cross-entropy at which the clipped loss ends.
    """

    probability: Array
    margin: Array
    labels: Array
    codes: Any
    tables: Any
    cap: float


def over_classes(function: np.ufunc, table: Array) -> Any:
    """Reduce the few columns of a long table to one, which numpy's own reduction is slow at."""
    return reduce(function, [table[:, k] for k in range(table.shape[1])])


def loss_lipschitz(n_classes: int) -> float:
    """Bound the slope of the cross-entropy in the scores: 1 for a binary margin, else sqrt 2."""
    return 1.0 if n_classes == 2 else float(np.sqrt(2.0))


def rate_lipschitz(n_classes: int) -> float:
    """Bound the slope of a unit-cost 0-1 rate, as step sizes assume it.

    With the probability p_k in place of the step function the gradient is p_k (e_k - p), of norm
    at most 1/4 for a binary margin and sqrt(2)/4 for softmax scores. The sigmoid proxy is three
    quarters as steep, and the ramp of a binary margin as steep.
    """
    return loss_lipschitz(n_classes) / 4.0


def clip_cap(outlier_clip: float | None) -> float:
    """Compute the cross-entropy of a margin of `outlier_clip` on the wrong side."""
    return np.inf if outlier_clip is None else float(np.logaddexp(0.0, outlier_clip))


class KernelTables:
    """Coefficients of the row kernel of every cell, with what kernels derive from them.

    Parameters
    ----------
    target : (n_cells, n_classes). Soft targets T, non-negative.
    cost : (n_cells, n_classes). Expected-cost coefficients Q.
    clipped : (n_cells,). Coefficients of the clipped cross-entropy min(-log p_label, cap), whose
        gradient is zero beyond the cap.
    cell_labels : (n_cells,). The class index of each cell.
    dtype : Precision of what :meth:`rows` returns.
    is_by_row : Whether every row is its own cell, as for several classes in several views.

    Attributes
    ----------
    label_target : (n_cells,). T at the cell's own label.
    other_target : (n_cells, n_classes). T with zeros at the cell's own label.
    other_total : (n_cells,). Sum of T over the classes other than the cell's own.
    curvature : (n_cells,). Factor of ``p (1 - p)`` in the Hessian majoriser.
    cost_range : (n_cells,). Range of Q over classes.
    parts : Whether there is a target of another label, an expected cost, a clipped loss.
    margin_cost, signed_target, signed_other : (n_cells,). Of two classes: cost of predicting 1
        over predicting 0; minus T at the cell's own label, and T at the other label, times the
        sign of the cell's own.
    """

    def __init__(
        self,
        target: Array,
        cost: Array,
        clipped: Array,
        cell_labels: Array,
        dtype: np.dtype[Any],
        *,
        is_by_row: bool = False,
    ) -> None:
        self.target, self.cost, self.clipped = target, cost, clipped
        self.cell_labels, self.dtype, self.is_by_row = cell_labels, dtype, is_by_row
        self._looked_up: dict[tuple[bytes, int, int], Array] = {}
        self._by_sign: dict[bytes, tuple[float, float] | None] = {}
        own = array_module(target).arange(cell_labels.size), cell_labels
        self.label_target = target[own]
        self.other_target = target.copy()
        self.other_target[own] = 0.0
        self.other_total = over_classes(np.add, self.other_target)
        self.curvature = over_classes(np.add, np.abs(target))
        self.cost_range = over_classes(np.maximum, cost) - over_classes(np.minimum, cost)
        self.parts = bool(self.other_target.any()), bool(cost.any()), bool(clipped.any())
        if target.shape[1] == 2:
            sign = np.where(cell_labels > 0, 1.0, -1.0)
            self.margin_cost = cost[:, 1] - cost[:, 0]
            self.signed_target, self.signed_other = (
                -sign * self.label_target,
                sign * self.other_total,
            )

    def rows(self, table: Array, codes: Any) -> Array:
        """Look up a table of cells for each row; a one-dimensional constant becomes shape ()."""
        if self.is_by_row:
            found: Array = table[codes]
            return found
        if table.ndim == 1 and (table == table[0]).all():
            return np.asarray(table[0], dtype=self.dtype)[()]
        found = look_up(table.astype(self.dtype), codes)
        return found

    def kept_rows(self, table: Array, codes: Any) -> Array:
        """Look up a one-dimensional table once for all rounds with the same multipliers.

        The codes of a block must be in the same memory each time, and the result is read-only.
        """
        if self.is_by_row:
            return self.rows(table, codes)
        key = (table.tobytes(), address_of(codes), codes.size)
        if key not in self._looked_up:
            self._looked_up[key] = self.rows(table, codes)
        return self._looked_up[key]

    def by_sign(self, table: Array) -> tuple[float, float] | None:
        """Find (u, v) with ``table = u + v s``, s the signs of labels; None if there are none."""
        if self.is_by_row:
            return None
        key = table.tobytes()  # Each block of rows asks for the same few tables.
        if key not in self._by_sign:
            of_label = [table[self.cell_labels == k] for k in (0, 1)]
            low, high = (float(entries[0]) for entries in of_label)
            found = (of_label[0] == low).all() and (of_label[1] == high).all()
            self._by_sign[key] = ((high + low) / 2, (high - low) / 2) if found else None
        return self._by_sign[key]


class BinaryRowTables(KernelTables):
    """Tables that a binary kernel reads, in which every row is its own cell.

    Entries are written block by block, so that they stay in cache: with a hundred constraints they
    are most of the cost of a dual step. Labels are signs, in the dtype of the entries. The
    curvature is written only where there is a target of another label.
    """

    is_by_row = True

    def __init__(self, labels: Array) -> None:
        self.labels = labels
        self.signed_target = np.empty_like(labels)
        self.curvature = np.empty_like(labels)
        # The pages of these zeros take no memory until something is written to them.
        self.signed_other, self.margin_cost, self.clipped = (
            array_module(labels).zeros(labels.shape, dtype=labels.dtype) for _ in range(3)
        )
        self.dtype = np.dtype(labels.dtype)  # Precision of the entries.
        self.parts = (False, False, False)

    def begin(self, parts: tuple[bool, bool, bool]) -> None:
        """Set the parts that are written next; the others become zero."""
        filled = (self.signed_other, self.margin_cost, self.clipped)
        for table, was, is_ in zip(filled, self.parts, parts, strict=True):
            if was and not is_:
                table.fill(0.0)
        self.parts = parts

    def fill(
        self, rows: slice, own: Array | float, rate: Array | None, cost: Array | None, clipped: Any
    ) -> None:
        """Write a block of rows.

        `own` is the target of the rows' own label but for rates; `rate` and `cost` are costs of
        predicting 1 over predicting 0, under the logistic and a bounded proxy.
        """
        labels, target = self.labels[rows], self.signed_target[rows]
        signed_own = labels if isinstance(own, float) and own == 1.0 else labels * own
        if rate is None:
            np.negative(signed_own, out=target)
        elif not self.parts[0]:
            np.multiply(rate, 1.0 / LOG2, out=target)
            target -= signed_own
        else:
            # Predicting the row's label costs c = rate times label. The part (c + |c|) / 2 is a
            # target of the other label, and (c - |c|) / 2 one of its own; here times the label.
            half = rate * (0.5 / LOG2)
            size = np.abs(half)
            size *= labels
            other = np.add(half, size, out=self.signed_other[rows])
            np.subtract(half, size, out=target)
            target -= signed_own
            np.add(np.abs(target, out=half), np.abs(other, out=size), out=self.curvature[rows])
        if cost is not None:
            self.margin_cost[rows] = cost
        if clipped is not None:
            self.clipped[rows] = clipped

    @property
    def cost(self) -> Array:  # type: ignore[override]
        """Expected-cost coefficients, counted from those of the first class; (n_samples, 2)."""
        return np.stack([np.zeros_like(self.margin_cost), self.margin_cost], axis=1)


class BinaryKernel:
    """The row kernel on a binary margin of shape (n,).

    Probabilities are ``a = sigmoid(-s m)``, of the *wrong* class, with s = +1 for a positive and
    -1 for a negative row: exact to the last digit where the model is right. Labels are the s.
    """

    def encode(self, y: Array, dtype: np.dtype[Any]) -> Array:
        """Encode class indices as signs, -1 and 1."""
        return (2 * y - 1).astype(dtype)

    def link(self, margin: Array, labels: Array, out: Array) -> None:
        """Write the probability of the wrong class of each row."""
        np.multiply(margin, labels, out=out)
        with np.errstate(over="ignore"):  # The quotient 1 / infinity is the right limit.
            np.exp(out, out=out)
        out += 1.0
        np.divide(1.0, out, out=out)

    def predict(self, margin: Array) -> Any:
        """Predict class 1 where the margin is positive."""
        return margin > 0

    def loss(self, a: Array, margin: Array, labels: Array) -> Array:
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

    def value(self, block: KernelBlock) -> Array:
        """Compute the kernel value of each row."""
        a, margin, labels, codes, t, cap = block
        loss = self.loss(a, margin, labels)
        chosen = self.decision(margin)
        return np.asarray(
            -labels * t.rows(t.signed_target, codes) * loss
            + labels * t.rows(t.signed_other, codes) * (loss + labels * margin)
            + t.rows(t.cost[:, 0], codes) * (1.0 - chosen)
            + t.rows(t.cost[:, 1], codes) * chosen
            + t.rows(t.clipped, codes) * np.minimum(loss, cap)
        )

    def decision(self, margin: Array) -> Array:
        """Compute what stands for the prediction of class 1: the mean of two probabilities."""
        return np.asarray((expit(margin) + expit(margin / 2.0)) / 2.0)

    def look_up(self, block: KernelBlock, table: Array) -> Array:
        """Look up a one-dimensional table for each row; the result is read-only."""
        t: KernelTables = block.tables
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

    def gradient(
        self, block: KernelBlock, grad: Array, hess: Array, learning_rate: float = 0.0
    ) -> None:
        """Write the gradient and the Hessian majoriser of each row.

        The majoriser of a convex kernel keeps a step shrunk by `learning_rate` from overshooting.
        """
        a, margin, labels, _, t, cap = block
        look_up = partial(self.look_up, block)
        has_other, has_cost, has_clipped = t.parts
        np.multiply(a, a, out=hess)
        np.subtract(a, hess, out=hess)
        if learning_rate > 0 and not has_cost and not has_clipped:
            np.maximum(hess, self._safe_curvature(a, margin, learning_rate), out=hess)
        target = look_up(t.signed_target)
        np.multiply(a, target, out=grad)
        total = look_up(t.curvature) if has_other else np.abs(target)
        if has_other:
            grad += look_up(t.signed_other) * (1.0 - a)
        if has_clipped:
            unclipped = look_up(t.clipped) * (self.loss(a, margin, labels) < cap)
            grad -= unclipped * labels * a
            total = total + np.abs(unclipped)
        of_cost = self.add_cost(block, hess, grad) if has_cost else []
        if total.ndim or total != 1.0:
            hess *= total
        for bound in of_cost:
            hess += bound

    def add_cost(self, block: KernelBlock, variance: Array, grad: Array) -> list[Array]:
        """Add the slope of the expected cost; return the terms of a bound of its curvature.

        The `variance` is ``p (1 - p)``.
        """
        cost = 0.5 * self.look_up(block, block.tables.margin_cost)
        near, far = cost * variance, self._slope(variance)
        far *= cost
        grad += near
        grad += far
        far *= 0.5
        return [np.abs(near, out=near), np.abs(far, out=far)]

    def cost_curvature(self, variance: Array, margin: Array) -> Array:
        """Compute the second derivative of what stands for the prediction of class 1."""
        # 1 - 2 p = -tanh(m / 2), and 1 - 2 q = -tanh(m / 4).
        bend = (
            -variance * np.tanh(margin / 2.0) - self._slope(variance) * np.tanh(margin / 4.0) / 2
        )
        return np.asarray(bend / 2.0)

    def _safe_curvature(self, a: Array, margin: Array, learning_rate: float) -> Array:
        """Compute the curvature of the parabola above the loss, times the learning rate."""
        distance = np.abs(margin)
        distance += 1e-30  # No quotient is 0 / 0, and no larger number changes.
        curvature: Array = np.subtract(0.5, a)
        np.abs(curvature, out=curvature)
        curvature /= distance
        if learning_rate > 0.5:  # At lower rates the Hessian itself is larger there.
            curvature[distance < 1e-3] = 0.25  # To seven digits.
        curvature *= learning_rate
        return curvature

    def _slope(self, variance: Array) -> Array:
        """Compute the slope ``q (1 - q) / 2`` of q in the margin from ``p (1 - p)``."""
        root = np.sqrt(variance)
        slope: Array = root * 4.0
        slope += 2.0
        np.divide(root, slope, out=slope)
        return slope

    def hessian_product(self, block: KernelBlock, u: Array) -> Array:
        """Compute the exact Hessian of each row's kernel times `u`."""
        a, margin, labels, codes, t, cap = block
        total = labels * (t.rows(t.signed_other, codes) - t.rows(t.signed_target, codes))
        is_unclipped = self.loss(a, margin, labels) < cap
        curvature = total + t.rows(t.clipped, codes) * is_unclipped
        variance = a * (1.0 - a)
        of_cost = t.rows(t.margin_cost, codes) * self.cost_curvature(variance, margin)
        curvature = curvature * variance + of_cost
        return np.asarray(curvature * u)


SLOPE = 0.25  # In a margin; that of the probability at zero.
END = 0.5 / SLOPE  # Margin at which the ramp reaches one.
KINK = 0.5  # Distance from the lower end within which the Hessian grows no more.


class RampKernel(BinaryKernel):
    """The row kernel on a binary margin of shape (n,), with ramps for expected costs."""

    def decision(self, margin: Array) -> Array:
        """Compute what stands for the prediction of class 1: the ramp."""
        return np.clip(0.5 + SLOPE * margin, 0.0, 1.0)

    def add_cost(self, block: KernelBlock, variance: Array, grad: Array) -> list[Array]:
        """Add the slope of the expected cost; return the curvature of a parabola above it."""
        margin, cost = block.margin, self.look_up(block, block.tables.margin_cost)
        grad += (SLOPE * cost) * (np.abs(margin) < END)
        ahead = np.sign(cost) * margin
        curvature = np.abs(cost) * (ahead < END)
        ahead += END  # In place: new arrays of a block take longer than what is done to them.
        distance = np.abs(ahead, out=ahead)
        np.maximum(distance, KINK, out=distance)
        distance *= 2.0 * END**2
        curvature /= distance
        return [curvature]

    def cost_curvature(self, variance: Array, margin: Array) -> Array:
        """Return the second derivative of the ramp, zero but at its ends."""
        return np.zeros_like(margin)


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

    def encode(self, y: Array, dtype: np.dtype[Any]) -> Array:
        """Keep class indices, which the other methods take as labels."""
        return y

    def link(self, margin: Array, labels: Array, out: Array) -> None:
        """Write the softmax of each row."""
        np.subtract(margin, margin.max(axis=1, keepdims=True), out=out)
        # In double precision for float32 as well: numpy's float32 exp is off by up to 3 ulp,
        # which XGBoost's is not.
        out[...] = np.exp(out, dtype=np.float64)
        out /= out.sum(axis=1, keepdims=True, dtype=np.float64).astype(out.dtype)

    def predict(self, margin: Array) -> Any:
        """Predict the class of the first largest score."""
        return margin.argmax(axis=1)

    def look_up(self, block: KernelBlock, table: Array) -> Any:
        """Look up a one-dimensional table for each row; the result is read-only."""
        return block.tables.kept_rows(table, block.codes)

    def loss(self, p: Array, margin: Array, labels: Array) -> Array:
        """Compute the cross-entropy, which the scores give where a probability underflows."""
        rows = array_module(labels).arange(labels.size)
        top = margin.argmax(axis=1)
        losses: Array = margin[rows, top] - margin[rows, labels] - np.log(p[rows, top])
        return losses

    def value(self, block: KernelBlock) -> Array:
        """Compute the kernel value of each row."""
        p, margin, labels, codes, t, cap = block
        shifted = margin - margin.max(axis=1, keepdims=True)
        losses = np.log(np.exp(shifted).sum(axis=1, keepdims=True)) - shifted
        values: Array = (
            (t.rows(t.target, codes) * losses).sum(axis=1)
            + (t.rows(t.cost, codes) * (p + self._soften(p)) / 2.0).sum(axis=1)
            + t.rows(t.clipped, codes) * np.minimum(self.loss(p, margin, labels), cap)
        )
        return values

    def _soften(self, p: Array) -> Array:
        """Compute the softmax of half the scores."""
        q: Array = np.sqrt(p)
        q /= q.sum(axis=1, keepdims=True)
        return q

    def gradient(
        self, block: KernelBlock, grad: Array, hess: Array, learning_rate: float = 0.0
    ) -> None:
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

    def hessian_product(self, block: KernelBlock, u: Array) -> Array:
        """Compute the exact Hessian of each row's kernel times `u` of shape (n, K)."""
        p, margin, labels, codes, t, cap = block
        pu = p * u
        dp = pu - p * pu.sum(axis=1, keepdims=True)
        total = t.rows(over_classes(np.add, t.target), codes)
        total = total + t.rows(t.clipped, codes) * (self.loss(p, margin, labels) < cap)
        product: Array = _as_column(total) * dp
        cost = t.rows(t.cost, codes)
        for q, scale in ((p, 0.5), (self._soften(p), 0.125)):
            qu = q * u
            dq = qu - q * qu.sum(axis=1, keepdims=True)
            product += scale * dq * (cost - (cost * q).sum(axis=1, keepdims=True))
            product -= scale * q * (cost * dq).sum(axis=1, keepdims=True)
        return product


ProxyName: TypeAlias = Literal["auto", "logistic", "sigmoid", "ramp", "square"]

RAMP: ProxyName = "ramp"  # It is of one margin, and has no form for several classes.
SQUARE: ProxyName = "square"  # That of pair rates, which have no proxy by the row.


# Bounds of the negative curvature of the proxies of a unit cost, in a binary margin and in softmax
# scores. The logistic one is a cross-entropy with soft targets, and convex. The others are
# expected costs of soft decisions, which are bounded and not convex.
CONCAVITIES: dict[ProxyName, tuple[float, float]] = {
    "logistic": (0.0, 0.0),
    # The mean of the bounds of p and q. That of p is 1 / (6 sqrt 3) in a binary margin, and in
    # softmax scores the range 1 times the largest variance 1/2. That of q is a quarter of it.
    "sigmoid": (0.625 / (6.0 * 3.0**0.5), 0.3125),
    # The ramp has a corner at its upper end, which no curvature bounds. With its ends rounded over
    # a distance KINK it is within KINK / 16 of it.
    RAMP: (1.0 / (2.0 * END**2 * KINK), np.nan),
}


def logistic_targets(cost: Array) -> Array:
    """Compute the soft targets T by which the logistic proxy has a cost, (n_cells, n_classes)."""
    targets: Array = (over_classes(np.maximum, cost)[:, None] - cost) / LOG2
    return targets
