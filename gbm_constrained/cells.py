"""Rows to cells, cell statistics, and constraints compiled to linear maps of them.

A cell is a set of rows that share every attribute any constraint looks at: the label, and the
membership in each mask. Every constraint is a linear map of two tables of cell statistics,

- ``predicted`` (n_cells, n_classes): weighted fraction of the cell predicted as each class;
- ``clipped_loss`` (n_cells,): weighted mean cross-entropy of the cell,

so ``g = A . predicted + B . clipped_loss - b`` with ``A`` of shape (m, n_cells, n_classes) and
``B`` of shape (m, n_cells), compiled once. The gradient of a Lagrangian is then a cell's
coefficient times a row's kernel, whatever the number of constraints.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbm_constrained.rates import ClassPosition, Constraint, Label, Mask, Rate, Selector

Float = NDArray[np.float64]
MASKED_SUM_CELLS = 12
ReduceSum = Callable[[Float], Float]


def local_sum(x: Float) -> Float:
    """Sum of a table of cell sums over one machine: the table itself."""
    return x


@dataclass(frozen=True)
class CellStatistics:
    """What constraints are linear in.

    Parameters
    ----------
    predicted : ndarray of shape (n_cells, n_classes)
        Weighted fraction of each cell's rows predicted as each class; rows sum to one.
    loss : ndarray of shape (n_cells,)
        Weighted mean cross-entropy of each cell, in nats.
    clipped_loss : ndarray of shape (n_cells,)
        The same with each row's loss clipped at a cap; `loss` itself when there is none.
    """

    predicted: Float
    loss: Float
    clipped_loss: Float


@dataclass(frozen=True)
class Cells:
    """A partition of rows into cells.

    Parameters
    ----------
    codes : ndarray of shape (n_samples,), intp
        The cell of each row.
    labels : ndarray of shape (n_cells,), intp
        The class index of the rows of each cell.
    membership : dict from Mask to ndarray of shape (n_cells,), bool
        Whether a cell lies inside each mask.
    weight : ndarray of shape (n_cells,)
        Total weight of each cell, summed over machines.
    classes : ndarray of shape (n_classes,)
        The class labels, sorted.
    """

    codes: NDArray[np.intp]
    labels: NDArray[np.intp]
    membership: dict[Mask, NDArray[np.bool_]]
    weight: Float
    classes: NDArray[np.generic]

    @classmethod
    def build(
        cls,
        y: NDArray[np.intp],
        classes: NDArray[np.generic],
        weight: Float | None = None,
        masks: Sequence[Mask] = (),
        reduce_sum: ReduceSum = local_sum,
    ) -> Cells:
        """Partition rows by class index `y` and membership in each of `masks`.

        Every combination of attributes has a cell, empty or not, so that machines that hold
        different rows agree on the numbering.

        Raises
        ------
        ValueError
            If a mask does not have one entry per row.
        """
        masks = list(dict.fromkeys(masks))
        codes = y.astype(np.intp)
        for mask in masks:
            if mask.n_samples != y.size:
                raise ValueError(
                    f"on= was given a mask of {mask.n_samples} rows, but the training data have "
                    f"{y.size} rows: give one boolean per training row."
                )
            codes = 2 * codes + mask.to_array()
        attributes = np.arange(classes.size << len(masks))
        membership = {
            mask: (attributes >> (len(masks) - 1 - j) & 1).astype(bool)
            for j, mask in enumerate(masks)
        }
        total = np.bincount(codes, weight, attributes.size).astype(np.float64)
        return cls(codes, attributes >> len(masks), membership, reduce_sum(total), classes)

    def __len__(self) -> int:
        return self.labels.size

    def sum_by_cell(self, x: NDArray[Any], rows: slice) -> Float:
        """Sum per-row values (or count booleans) of a block by cell; shape (n_cells,)."""
        codes = self._small_codes[rows]
        if len(self) > MASKED_SUM_CELLS:
            return np.bincount(codes, x, len(self)).astype(np.float64)
        # A product with an indicator beats bincount, which waits on its own last addition. Its
        # sum is pairwise: a running one in float32 drifts by 1e-5 when all rows are alike. The
        # cell with most rows gets what the others leave of the total.
        total = np.count_nonzero if x.dtype == np.bool_ else np.sum
        sums = np.zeros(len(self))
        for c in range(len(self)):
            if c != self._largest:
                sums[c] = total(x & (codes == c) if x.dtype == np.bool_ else x * (codes == c))
        sums[self._largest] = total(x) - sums.sum()
        return sums

    @cached_property
    def _largest(self) -> int:
        return int(np.bincount(self.codes, minlength=len(self)).argmax())

    @cached_property
    def _small_codes(self) -> NDArray[Any]:
        return self.codes.astype(np.min_scalar_type(len(self)))

    def select(self, rate: Rate) -> NDArray[np.bool_]:
        """Cells that a rate is taken over, as a boolean array of shape (n_cells,)."""
        inside = np.ones(len(self), dtype=bool)
        for selector in rate.on:
            inside &= self._inside(rate, selector)
        return inside

    def _inside(self, rate: Rate, selector: Selector) -> NDArray[np.bool_]:
        if isinstance(selector, Mask):
            return self.membership[selector]
        if isinstance(selector, ClassPosition):
            if self.classes.size != 2:
                raise ValueError(
                    f"{rate} is a rate of binary classifiers, but y has {self.classes.size} "
                    f"classes: use class_error(k) for the error rate of class k."
                )
            return np.asarray(self.labels == selector.index)
        assert isinstance(selector, Label)
        match = [i for i, known in enumerate(self.classes.tolist()) if known == selector.value]
        if not match:
            raise ValueError(
                f"{rate} names class {selector.value!r}, which is not in y: its classes are "
                f"{self.classes.tolist()}."
            )
        return np.asarray(self.labels == match[0])


def masks_of(constraints: Sequence[Constraint]) -> list[Mask]:
    """Every mask that constraints speak of, once each."""
    found = [s for c in constraints for s in c.rate.on if isinstance(s, Mask)]
    return list(dict.fromkeys(found))


@dataclass(frozen=True)
class CompiledConstraints:
    """Constraints as linear maps of cell statistics: ``A . predicted + B . clipped_loss - b``.

    Parameters
    ----------
    constraints : tuple of Constraint
        What was compiled, in order.
    A : ndarray of shape (m, n_cells, n_classes)
        Coefficients of the predicted fractions.
    B : ndarray of shape (m, n_cells)
        Coefficients of the mean losses.
    b : ndarray of shape (m,)
        Bounds.
    """

    constraints: tuple[Constraint, ...]
    A: Float
    B: Float
    b: Float

    def __len__(self) -> int:
        return self.b.size

    def rates(self, statistics: CellStatistics) -> Float:
        """Value of each bounded rate, shape (m,)."""
        hard = np.einsum("mck,ck->m", self.A, statistics.predicted)
        return np.asarray(hard + self.B @ statistics.clipped_loss)

    def violations(self, statistics: CellStatistics) -> Float:
        """``g``: rate minus bound, shape (m,)."""
        return self.rates(statistics) - self.b

    def sensitivities(self, weight: Float, kappa_rate: float, kappa_loss: float) -> Float:
        r"""How strongly each constraint reacts to each cell, shape (m, n_cells).

        With :math:`D(F, F') = \frac{1}{2W} \sum_i w_i \|F_i - F'_i\|^2` and a row kernel that is
        :math:`\kappa`-Lipschitz, Jensen's inequality within each cell gives
        :math:`\|g(F) - g(F')\| \le L_g \sqrt{2 D}` with :math:`L_g` the spectral norm of
        :math:`|A| \mathrm{diag}(\kappa / \sqrt{\pi_c})`, :math:`\pi_c` the cell's fraction of the
        weight. This is that matrix; the norms of its rows are the constraints' own constants.

        Parameters
        ----------
        weight : ndarray of shape (n_cells,)
            Total weight of each cell.
        kappa_rate, kappa_loss : float
            Lipschitz constants of the smooth proxy of the predicted class and of the loss.
        """
        # A common shift of a cell's costs changes nothing: predicted fractions sum to one.
        spread = np.ptp(self.A, axis=2)
        pi = np.where(weight > 0, weight / weight.sum(), np.inf)
        return np.asarray((kappa_rate * spread + kappa_loss * np.abs(self.B)) / np.sqrt(pi))


def compile_constraints(constraints: Sequence[Constraint], cells: Cells) -> CompiledConstraints:
    """Compile constraints against cells.

    Raises
    ------
    ValueError
        If a constraint names an unknown class, is binary on multiclass data, or is taken over
        no row or over rows of zero total weight.
    """
    m, n_cells, n_classes = len(constraints), len(cells), cells.classes.size
    A = np.zeros((m, n_cells, n_classes))
    B = np.zeros((m, n_cells))
    occupied = np.bincount(cells.codes, minlength=n_cells) > 0
    for j, constraint in enumerate(constraints):
        inside = cells.select(constraint.rate)
        share = np.where(inside, cells.weight, 0.0)
        if not share.sum() > 0:
            what = "whose total weight is zero" if (inside & occupied).any() else "at all"
            raise ValueError(
                f"{constraint} is taken over no rows {what}: drop the constraint, or give it "
                f"rows with positive weight."
                if what == "at all"
                else f"{constraint} is taken over rows {what}: drop the constraint, or give "
                f"those rows positive sample_weight."
            )
        share = share / share.sum()
        if constraint.rate.statistic == "error":
            wrong = np.arange(n_classes) != cells.labels[:, None]
            A[j] = share[:, None] * wrong
        else:
            B[j] = share
    b = np.array([c.bound for c in constraints], dtype=np.float64)
    return CompiledConstraints(tuple(constraints), A, B, b)
