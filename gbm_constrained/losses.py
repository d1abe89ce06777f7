r"""Per-row kernels of a Lagrangian: value, gradient, Hessian.

Whatever the constraints, a row of cell c contributes one kernel with two tables of coefficients,

.. math:: k_c(F) = \sum_k T_{ck} (-\log p_k(F)) + \sum_k Q_{ck} \frac{p_k(F) + q_k(F)}{2},

a cross-entropy with soft targets ``T >= 0`` (convex) and an expected cost ``Q`` (bounded, not
convex). ``p = softmax(F)`` and ``q = softmax(F / 2)``; a binary margin m stands for F = (0, m).
The parts are

- the objective: T = one-hot of the label;
- a mean-loss constraint: the same, times its coefficient;
- a 0-1 rate with cost ``a_k`` of predicting class k, through a smooth proxy:

  - ``"sigmoid"``: Q = a. It replaces "k is predicted" by a probability, the mean of p_k and of
    q_k at half the scores; bounded, so a hopeless row pulls little. With p alone rules are met by
    flipping the few nearest rows, for which multipliers wind up; q alone reaches far and costs
    accuracy (Adult, gap <= 0.01, three splits and both libraries: the gap of error rates is met
    on the training rows in 4, 6 and 6 of 6 with p, the mean and q; selection rate, test accuracy
    0.853, 0.853, 0.851).
  - ``"logistic"``: T = (max a - a) / log 2. With 1[prediction != k] <= -log(p_k) / log 2 it is a
    convex upper bound of the cost, up to a constant.
    Of three or more classes, a cost of predicting one of them makes equal targets of all others,
    and pulls their probabilities to each other: such rules have the sigmoid proxy by default.
    Handwritten digits (see :mod:`gbm_constrained.solvers.abpp`; precision of ones and recall of
    eights, false alarms for threes and recall of fives), accuracy out of fold: 0.593 and 0.668
    with logistic proxies, 0.939 and 0.932 with this (XGBoost); 0.874 and 0.914, 0.955 and 0.941
    (LightGBM).

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
the full step; a step shrunk by a learning rate eta is as safe with eta times that. So where a rule
is at work on a binary margin, and the kernel is convex (no expected cost, nothing clipped),
``S p (1 - p)`` becomes ``S max(p (1 - p), eta c(z))``: at slow rates the library's own Hessian for
all rows but the surest. For softmax scores a bound for all of them at once is several times too
steep; that of each alone cost Dry Bean one to three points of accuracy.

Measured on Credit (284,807 rows, the source paper's first six sets, both libraries), false alarms
out of fold where 12 % of frauds are missed: .007 to .017 at rates of .64 to .90, which had .06 to
.80, and .005 to .012 at rates of .02 to .07, which had .005 to .014.

A kernel works on blocks of rows in two steps, so that values and gradients at the same scores
share the exponentials: ``link`` turns scores into probabilities, everything else takes those.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, partial, reduce
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

Array: TypeAlias = NDArray[Any]
Proxy: TypeAlias = Literal["auto", "logistic", "sigmoid"]
PROXIES: tuple[Proxy, ...] = ("auto", "logistic", "sigmoid")
# Largest negative curvature of a unit cost's sigmoid proxy, in a binary margin and in softmax
# scores: of p, 1 / (6 sqrt 3), and the range 1 times the largest variance 1/2; of q a quarter.
SIGMOID_CONCAVITY = (0.625 / (6.0 * 3.0**0.5), 0.3125)
LOG2 = float(np.log(2.0))
FLAT = 1e-3  # Margins below which the curvature of a parabola above is 1/4, to seven digits.
TINY = 1e-30  # Keeps quotients of zeros away, and changes no number that is not as small.


def logistic_targets(cost: Array) -> Array:
    """Soft targets of the logistic proxy of predicting with costs (n_cells, n_classes)."""
    return np.asarray((over_classes(np.maximum, cost)[:, None] - cost) / LOG2)


def over_classes(function: np.ufunc, table: Array) -> Array:
    """Reduce a table of few columns along its rows, which numpy is slow at for long tables."""
    return np.asarray(reduce(function, table.T))


def loss_lipschitz(n_classes: int) -> float:
    """Lipschitz constant of the cross-entropy in the score: 1 for a binary margin, else sqrt 2."""
    return 1.0 if n_classes == 2 else float(np.sqrt(2.0))


def rate_lipschitz(n_classes: int) -> float:
    """Lipschitz constant that step sizes assume of a unit-cost 0-1 rate.

    The rate itself is a step function. Replaced by the probability p_k it has gradient
    p_k (e_k - p), of norm at most 1/4 for a binary margin and sqrt(2)/4 for softmax scores. The
    sigmoid proxy is three quarters as steep.
    """
    return loss_lipschitz(n_classes) / 4.0


def clip_cap(outlier_clip: float | None) -> float:
    """Cross-entropy of a binary row whose margin is `outlier_clip` on the wrong side."""
    return np.inf if outlier_clip is None else float(np.logaddexp(0.0, outlier_clip))


@dataclass(frozen=True)
class KernelTables:
    """Coefficients of the row kernel of every cell, ready to be looked up.

    Parameters
    ----------
    target : ndarray of shape (n_cells, n_classes)
        Soft targets T, non-negative.
    cost : ndarray of shape (n_cells, n_classes)
        Expected-cost coefficients Q.
    clipped : ndarray of shape (n_cells,)
        Coefficients of the clipped cross-entropy min(-log p_label, cap), whose gradient is zero
        beyond the cap.
    cell_labels : ndarray of shape (n_cells,), intp
        The class index of each cell.
    dtype : dtype
        Precision of what :meth:`rows` returns.
    """

    target: Array
    cost: Array
    clipped: Array
    cell_labels: Array
    dtype: np.dtype[Any]
    _looked_up: dict[tuple[bytes, int, int], Array] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _by_sign: dict[bytes, tuple[float, float] | None] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @cached_property
    def label_target(self) -> Array:
        """T at the cell's own label, (n_cells,)."""
        return np.asarray(self.target[np.arange(self.cell_labels.size), self.cell_labels])

    @cached_property
    def other_target(self) -> Array:
        """T with zeros at the cell's own label, (n_cells, n_classes)."""
        other = self.target.copy()
        other[np.arange(self.cell_labels.size), self.cell_labels] = 0.0
        return other

    @cached_property
    def margin_cost(self) -> Array:
        """Binary: cost of predicting 1 over predicting 0, (n_cells,)."""
        return np.asarray(self.cost[:, 1] - self.cost[:, 0])

    @cached_property
    def signed_target(self) -> Array:
        """Binary: minus T at the cell's own label, times that label's sign, (n_cells,)."""
        return np.asarray(np.where(self.cell_labels > 0, -self.label_target, self.label_target))

    @cached_property
    def signed_other(self) -> Array:
        """Binary: T at the other label, times the sign of the cell's own, (n_cells,)."""
        return np.asarray(np.where(self.cell_labels > 0, self.other_total, -self.other_total))

    @cached_property
    def curvature(self) -> Array:
        """Factor of ``p (1 - p)`` in the Hessian majoriser, (n_cells,)."""
        return over_classes(np.add, np.abs(self.target))

    @cached_property
    def parts(self) -> tuple[bool, bool, bool]:
        """Whether there is a target of another label, an expected cost, a clipped loss."""
        return bool(self.other_target.any()), bool(self.cost.any()), bool(self.clipped.any())

    @cached_property
    def total_target(self) -> Array:
        """Sum of T over classes, (n_cells,)."""
        return over_classes(np.add, self.target)

    @cached_property
    def other_total(self) -> Array:
        """Sum of T over the classes other than the cell's own, (n_cells,)."""
        return over_classes(np.add, self.other_target)

    @cached_property
    def cost_range(self) -> Array:
        """Range of Q over classes, (n_cells,)."""
        return np.asarray(np.ptp(self.cost, axis=1))

    def rows(self, table: Array, codes: Any) -> Array:
        """Look up a table of cells for each row; one entry stands for all when cells agree.

        The result broadcasts against (n,) or (n, n_classes) blocks, as the table is one- or
        two-dimensional; a one-dimensional table becomes shape (n,) or ().
        """
        if table.ndim == 1 and (table == table[0]).all():
            return np.asarray(table[0], dtype=self.dtype)
        return np.asarray(np.take(table.astype(self.dtype), codes, axis=0))

    def kept_rows(self, table: Array, codes: Any) -> Array:
        """Look up a one-dimensional table once for all rounds with the same multipliers.

        `codes` must be a view of the same memory each time; the result must not be written to.
        """
        key = (table.tobytes(), codes.__array_interface__["data"][0], codes.size)
        if key not in self._looked_up:
            self._looked_up[key] = self.rows(table, codes)
        return self._looked_up[key]

    def by_sign(self, table: Array) -> tuple[float, float] | None:
        """Find (u, v) with ``table = u + v s``, s the labels' signs; None where it needs more."""
        key = table.tobytes()
        if key not in self._by_sign:
            of_label = [table[self.cell_labels == k] for k in (0, 1)]
            low, high = (float(entries[0]) for entries in of_label)
            found = (of_label[0] == low).all() and (of_label[1] == high).all()
            self._by_sign[key] = ((high + low) / 2, (high - low) / 2) if found else None
        return self._by_sign[key]


class RowTables(KernelTables):
    """The same with every row its own cell; blocks are found by a slice of rows.

    For constraints of several classes in several views, whose coefficients are added up for each
    row.
    """

    def rows(self, table: Array, codes: Any) -> Array:
        """Take the block of rows."""
        return np.asarray(table[codes])

    kept_rows = rows

    def by_sign(self, table: Array) -> tuple[float, float] | None:
        """Entries differ from row to row."""
        return None


class BinaryRowTables:
    """What a binary kernel reads of such tables, every row its own cell, in n entries each.

    Filled block by block, so that all that leads there stays in cache; with a hundred constraints
    it is most of what a dual step costs.

    Parameters
    ----------
    labels : ndarray of shape (n_samples,)
        As :meth:`BinaryKernel.encode` gives them; their dtype is that of the entries.

    Attributes
    ----------
    signed_target, signed_other, curvature, margin_cost, clipped : ndarray of shape (n_samples,)
        As in :class:`KernelTables`; the curvature only where there is a target of another label.
    parts : tuple of bool
        Whether there is a target of another label, an expected cost, a clipped loss.
    """

    def __init__(self, labels: Array) -> None:
        self.labels = labels
        self.signed_target = np.empty_like(labels)
        self.curvature = np.empty_like(labels)
        # Pages of zeros take no memory until they are written to.
        self.signed_other, self.margin_cost, self.clipped = (
            np.zeros(labels.shape, dtype=labels.dtype) for _ in range(3)
        )
        self.parts = (False, False, False)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Precision of the entries."""
        return np.dtype(self.labels.dtype)

    def begin(self, parts: tuple[bool, bool, bool]) -> None:
        """Say which parts are to be filled; the others become zero."""
        filled = (self.signed_other, self.margin_cost, self.clipped)
        for table, was, is_ in zip(filled, self.parts, parts, strict=True):
            if was and not is_:
                table.fill(0.0)
        self.parts = parts

    def fill(
        self, rows: slice, own: Array | float, rate: Array | None, cost: Array | None, clipped: Any
    ) -> None:
        """Fill a block of rows.

        Parameters
        ----------
        rows : slice
            The block.
        own : ndarray or float
            Target of the rows' own label, apart from that of rates.
        rate, cost : ndarray or None
            Cost of predicting 1 over predicting 0, of the logistic and of the sigmoid proxy.
        clipped : ndarray or None
            Coefficient of the clipped loss.
        """
        labels, target = self.labels[rows], self.signed_target[rows]
        signed_own = labels if isinstance(own, float) and own == 1.0 else labels * own
        if rate is None:
            np.negative(signed_own, out=target)
        elif not self.parts[0]:
            np.multiply(rate, 1.0 / LOG2, out=target)
            target -= signed_own
        else:
            # Predicting the own label costs c = rate times label. Of that (c + |c|) / 2 goes to
            # the other label, and (c - |c|) / 2 from the own one; here times the label, +-1.
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
    def label_target(self) -> Array:
        """T at the row's own label."""
        return -self.labels * self.signed_target

    @property
    def other_total(self) -> Array:
        """T at the other label."""
        return self.labels * self.signed_other

    @property
    def total_target(self) -> Array:
        """Sum of T over classes."""
        return self.label_target + self.other_total

    @property
    def cost(self) -> Array:
        """Expected-cost coefficients, counted from those of the first class; (n_samples, 2)."""
        return np.stack([np.zeros_like(self.margin_cost), self.margin_cost], axis=1)

    def rows(self, table: Array, codes: slice) -> Array:
        """Take the block of rows."""
        return np.asarray(table[codes])

    kept_rows = rows

    def by_sign(self, table: Array) -> tuple[float, float] | None:
        """Entries differ from row to row."""
        return None


BinaryTables: TypeAlias = KernelTables | BinaryRowTables


def _column(x: Array) -> Array:
    """Per-row factors as a column against (n, n_classes) blocks."""
    return x[:, None] if x.ndim else x


class BinaryKernel:
    """The row kernel on a binary margin of shape (n,).

    Probabilities are ``a = sigmoid(-s m)``, of the *wrong* class, with s = +1 for a positive and
    -1 for a negative row: exact to the last digit where the model is right. Labels are the s.
    """

    @staticmethod
    def encode(y: Array, dtype: np.dtype[Any]) -> Array:
        """Labels as all other methods take them, from class indices."""
        return (2 * y - 1).astype(dtype)

    @staticmethod
    def link(margin: Array, labels: Array, out: Array) -> None:
        """Write the probability of the wrong class of each row."""
        np.multiply(margin, labels, out=out)
        with np.errstate(over="ignore"):  # one over infinity is right
            np.exp(out, out=out)
        out += 1.0
        np.divide(1.0, out, out=out)

    @staticmethod
    def predicted(margin: Array) -> Array:
        """Class index predicted for each row: 1 where the margin is positive."""
        return np.asarray(margin > 0)

    @staticmethod
    def loss(a: Array, margin: Array, labels: Array) -> Array:
        """Cross-entropy of each row: ``-log(1 - a)``, or ``-s m - log a`` where that is exact."""
        log_larger = np.subtract(1.0, a)
        np.maximum(log_larger, a, out=log_larger)
        np.log(log_larger, out=log_larger)
        signed = labels * margin
        # |x| - x = -2 min(x, 0), which numpy takes several times as long for.
        loss = np.abs(signed)
        loss -= signed
        loss *= 0.5
        loss -= log_larger
        return np.asarray(loss)

    @classmethod
    def value(
        cls, a: Array, margin: Array, labels: Array, codes: Any, t: BinaryTables, cap: float
    ) -> Array:
        """Kernel value of each row."""
        loss = cls.loss(a, margin, labels)
        chosen = (expit(margin) + expit(margin / 2.0)) / 2.0
        return np.asarray(
            t.rows(t.label_target, codes) * loss
            + t.rows(t.other_total, codes) * (loss + labels * margin)
            + t.rows(t.cost[:, 0], codes) * (1.0 - chosen)
            + t.rows(t.cost[:, 1], codes) * chosen
            + t.rows(t.clipped, codes) * np.minimum(loss, cap)
        )

    @staticmethod
    def look_up(t: BinaryTables, table: Array, codes: Any, labels: Array) -> Array:
        """Entry of a one-dimensional table for each row; not to be written to."""
        parts = t.by_sign(table)
        if parts is None:
            return t.kept_rows(table, codes)
        centre, half = parts  # in cache, a product and a sum beat a look-up
        if half == 0:
            return np.asarray(centre, dtype=t.dtype)
        entries = labels * half
        if centre != 0:
            entries += centre
        return entries

    @classmethod
    def gradient(
        cls,
        a: Array,
        margin: Array,
        labels: Array,
        codes: Any,
        t: BinaryTables,
        cap: float,
        grad: Array,
        hess: Array,
        learning_rate: float = 0.0,
    ) -> None:
        """Write the gradient and the Hessian majoriser of each row.

        Of a convex kernel that is large enough for a step shrunk by `learning_rate` not to
        overshoot.
        """
        look_up = partial(cls.look_up, t, codes=codes, labels=labels)
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
        near = far = None
        if has_cost:
            cost = 0.5 * look_up(t.margin_cost)
            near, far = cost * hess, cls._slope(hess)
            far *= cost
        if has_clipped:
            unclipped = look_up(t.clipped) * (cls.loss(a, margin, labels) < cap)
            grad -= unclipped * labels * a
            total = total + np.abs(unclipped)
        if total.ndim or total != 1.0:
            hess *= total
        if near is not None and far is not None:
            grad += near
            grad += far
            hess += np.abs(near, out=near)
            hess += np.abs(np.multiply(far, 0.5, out=far), out=far)

    @staticmethod
    def _safe_curvature(a: Array, margin: Array, learning_rate: float) -> Array:
        """Curvature of the parabola above the cross-entropy, times the learning rate."""
        distance = np.abs(margin)
        distance += TINY
        curvature = np.subtract(0.5, a)
        np.abs(curvature, out=curvature)
        curvature /= distance
        if learning_rate > 0.5:  # else the Hessian itself is larger there
            curvature[distance < FLAT] = 0.25
        curvature *= learning_rate
        return np.asarray(curvature)

    @staticmethod
    def _slope(variance: Array) -> Array:
        """Slope ``q (1 - q) / 2`` of q in the margin, from ``p (1 - p)``."""
        root = np.sqrt(variance)
        slope = root * 4.0
        slope += 2.0
        return np.asarray(np.divide(root, slope, out=slope))

    @classmethod
    def hessian_product(
        cls,
        a: Array,
        margin: Array,
        labels: Array,
        codes: Any,
        t: BinaryTables,
        cap: float,
        u: Array,
    ) -> Array:
        """Exact Hessian of each row's kernel times `u`."""
        curvature = t.rows(t.total_target, codes) + t.rows(t.clipped, codes) * (
            cls.loss(a, margin, labels) < cap
        )
        variance = a * (1.0 - a)
        # 1 - 2 p = -tanh(m / 2), and 1 - 2 q = -tanh(m / 4).
        bend = -variance * np.tanh(margin / 2.0) - cls._slope(variance) * np.tanh(margin / 4.0) / 2
        curvature = curvature * variance + t.rows(t.margin_cost, codes) * bend / 2.0
        return np.asarray(curvature * u)


class SoftmaxKernel:
    """The row kernel on scores of shape (n, K), in C or Fortran order.

    Probabilities are the softmax; labels are class indices.

    Parameters
    ----------
    majoriser_factor : float
        Multiplies the Hessian: 2 in XGBoost, which makes the diagonal an upper bound of the full
        Hessian; K / (K - 1) in LightGBM, enough for that where p is uniform.
    """

    def __init__(self, majoriser_factor: float = 1.0) -> None:
        self.majoriser_factor = majoriser_factor

    @staticmethod
    def encode(y: Array, dtype: np.dtype[Any]) -> Array:
        """Labels as all other methods take them, from class indices."""
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
    def predicted(margin: Array) -> Array:
        """Class index predicted for each row: the first largest score."""
        return np.asarray(margin.argmax(axis=1))

    @staticmethod
    def look_up(t: KernelTables, table: Array, codes: Any, labels: Array) -> Array:
        """Entry of a one-dimensional table for each row; not to be written to."""
        return t.kept_rows(table, codes)

    @staticmethod
    def _losses(margin: Array) -> Array:
        shifted = margin - margin.max(axis=1, keepdims=True)
        return np.asarray(np.log(np.exp(shifted).sum(axis=1, keepdims=True)) - shifted)

    @staticmethod
    def loss(p: Array, margin: Array, labels: Array) -> Array:
        """Cross-entropy of each row; through the scores where the probability underflows."""
        rows = np.arange(labels.size)
        top = margin.argmax(axis=1)
        return np.asarray(margin[rows, top] - margin[rows, labels] - np.log(p[rows, top]))

    def value(
        self, p: Array, margin: Array, labels: Array, codes: Any, t: KernelTables, cap: float
    ) -> Array:
        """Kernel value of each row."""
        return np.asarray(
            (t.rows(t.target, codes) * self._losses(margin)).sum(axis=1)
            + (t.rows(t.cost, codes) * (p + self._softened(p)) / 2.0).sum(axis=1)
            + t.rows(t.clipped, codes) * np.minimum(self.loss(p, margin, labels), cap)
        )

    @staticmethod
    def _softened(p: Array) -> Array:
        """Softmax of half the scores."""
        q = np.sqrt(p)
        q /= q.sum(axis=1, keepdims=True)
        return q

    def gradient(
        self,
        p: Array,
        margin: Array,
        labels: Array,
        codes: Any,
        t: KernelTables,
        cap: float,
        grad: Array,
        hess: Array,
    ) -> None:
        """Write the gradient and the Hessian majoriser of each row."""
        rows = np.arange(labels.size)
        np.subtract(1.0, p, out=hess)
        hess *= p
        has_other, has_cost, has_clipped = t.parts
        same = t.kept_rows(t.label_target, codes)
        curvature = t.kept_rows(t.curvature, codes)
        if has_clipped:
            unclipped = t.kept_rows(t.clipped, codes) * (self.loss(p, margin, labels) < cap)
            same, curvature = same + unclipped, curvature + np.abs(unclipped)
        total = same + t.kept_rows(t.other_total, codes) if has_other else same
        np.multiply(p, _column(total), out=grad)
        grad[rows, labels] -= same
        if has_other:
            grad -= t.rows(t.other_target, codes)
        hess *= _column(curvature * self.majoriser_factor)
        if has_cost:
            cost, spread = t.rows(t.cost, codes), t.kept_rows(t.cost_range, codes)
            for q, scale in ((p, 0.5), (self._softened(p), 0.25)):
                grad += scale * q * (cost - np.einsum("ik,ik->i", cost, q)[:, None])
                bound = spread * (self.majoriser_factor * 2.0 * scale**2)
                hess += _column(bound) * q * (1.0 - q)

    def hessian_product(
        self,
        p: Array,
        margin: Array,
        labels: Array,
        codes: Any,
        t: KernelTables,
        cap: float,
        u: Array,
    ) -> Array:
        """Exact Hessian of each row's kernel times `u` of shape (n, K)."""
        pu = p * u
        dp = pu - p * pu.sum(axis=1, keepdims=True)
        total = t.rows(t.total_target, codes)
        total = total + t.rows(t.clipped, codes) * (self.loss(p, margin, labels) < cap)
        product = _column(total) * dp
        cost = t.rows(t.cost, codes)
        for q, scale in ((p, 0.5), (self._softened(p), 0.125)):
            qu = q * u
            dq = qu - q * qu.sum(axis=1, keepdims=True)
            product += scale * dq * (cost - (cost * q).sum(axis=1, keepdims=True))
            product -= scale * q * (cost * dq).sum(axis=1, keepdims=True)
        return np.asarray(product)
