r"""Shifts of scores for each group, and the smallest error that thresholds of groups allow.

A constraint costs errors even at best. With :math:`\lambda_{gt}` the share of the rows of group g
that is decided as the candidate t decides, errors :math:`e_{gt}` and rates :math:`a_{gt}`:

.. math:: \min_{\lambda \ge 0} \sum_{gt} \lambda_{gt} e_{gt} \quad \text{s.t.} \quad
    \sum_{gt} \lambda_{gt} a_{gt} \le b, \; \sum_t \lambda_{gt} = 1 .

The candidates are thresholds for two classes (Hardt, Price and Srebro, "Equality of opportunity in
supervised learning", 2016, section 4), and biases of scores for several. A group is a set of rows
with the same values of all attributes that the constraints look at, except for the label. A model
that does not see the groups cannot decide like that, but boosters under multipliers come close.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from gbm_constrained._typing import Array, Bool, Codes, Float
from gbm_constrained.constraints.selectors import MISSING, Columns
from gbm_constrained.data.cells import Cells
from gbm_constrained.data.rows import Rows
from gbm_constrained.decision.histograms import JointRows, list_thresholds
from gbm_constrained.decision.rules import MarginShift
from gbm_constrained.decision.search import spread_thresholds
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.statistics.counts import CellCounts, functionals_of

N_CANDIDATES = 120  # Thresholds, at quantiles of each class, or biases of several classes drawn.


class GroupThresholds:
    """Find decisions of groups on some scores, under one right-hand side after another.

    Constraints on mean losses are left out, since decisions do not move them. Biases of several
    classes are drawn around `shift`, the best common shift that is known. Curved rows are replaced
    by their tangents there.
    """

    def __init__(
        self, cells: Cells, compiled: LinearConstraints, margin: Array, shift: Float
    ) -> None:
        self.compiled = compiled
        if compiled.curves.items:
            decisions = CellCounts.of(cells, MarginShift(shift).decide(lambda rounds: margin))
            self.compiled = compiled.tangent(functionals_of(compiled, decisions))
        self.moved = self.compiled.b - compiled.b  # By tangents.
        self.of_decisions = compiled.is_known & ~compiled.has_scores
        self.used = np.unique(compiled.R[self.of_decisions].indices)
        cells, by_group = _count_by_group(cells, margin, shift)
        n_classes = cells.classes.size
        cost = np.where(cells.labelled, cells.class_weight[cells.labels], 0.0)
        total = cells.total(cells.rows.weight)
        share = np.divide(1.0, total, out=np.zeros_like(total), where=total > 0)
        wrong = cost[:, None] * (np.arange(n_classes) != cells.labels[:, None]) / (cost @ total)
        # Each group has a table of the functionals and a list of the errors of its candidates.
        self.rates: list[Any] = []
        self.errors: list[Float] = []
        for weight in by_group:
            fractions = (weight * share[:, None]).reshape(len(weight), -1)
            self.rates.append(sparse.csr_array(compiled.U[self.used] @ fractions.T))
            self.errors.append((weight * wrong).sum(axis=(1, 2)))

    def find_error_and_prices(self, bounds: Float | None = None) -> tuple[float, Float]:
        """Find the smallest weighted error that satisfies the constraints; NaN if none does.

        The errors that a unit of each row of constraints costs, (m,), are returned as well.
        """
        compiled = self.compiled
        right = compiled.b if bounds is None else bounds + self.moved
        kept = np.flatnonzero(self.of_decisions & np.isfinite(right))
        if not kept.size:  # Each group has its own best candidate.
            return float(sum(each.min() for each in self.errors)), np.zeros(right.size)
        # Rates are variables of their own, so that comparisons of many groups stay sparse.
        combine = compiled.R[kept]
        used = np.unique(combine.indices)
        rates = sparse.hstack(self.rates, format="csr")[np.searchsorted(self.used, used)]
        errors = np.concatenate(self.errors)
        one_each: Any = sparse.block_diag([np.ones((1, each.size)) for each in self.errors])
        equal: Any = sparse.block_array(
            [[rates, -sparse.eye_array(used.size)], [one_each, None]], format="csc"
        )
        none: Any = sparse.csc_array((kept.size, errors.size))
        free: Any = np.repeat([[0.0, np.inf], [-np.inf, np.inf]], [errors.size, used.size], axis=0)
        found = linprog(
            np.concatenate([errors, np.zeros(used.size)]),
            A_ub=sparse.hstack([none, combine[:, used]], format="csc"),
            b_ub=right[kept],
            A_eq=equal,
            b_eq=np.repeat([0.0, 1.0], [used.size, len(self.errors)]),
            bounds=free,
            method="highs",
        )
        prices = np.zeros(right.size)
        if found.status:
            return np.nan, prices
        prices[kept] = np.maximum(-found.ineqlin.marginals, 0.0)
        return float(found.fun or 0.0), prices


def _count_by_group(cells: Cells, margin: Array, shift: Float) -> tuple[Cells, Iterator[Float]]:
    """Count the candidates of each group by cell and class, (n_candidates, n_cells, n_classes).

    Returned are the cells of the rows that were counted, which stand for those of all machines.
    """
    biases = np.zeros(0)
    if margin.ndim > 1:  # None, the shift, one class only, and random ones near the shift.
        rng, k = np.random.default_rng(0), shift.size
        drawn = rng.normal(size=(N_CANDIDATES, k)) * rng.exponential(1.0, (N_CANDIDATES, 1))
        biases = np.concatenate([[np.zeros(k), shift], 1e6 * np.eye(k), shift + drawn])
    if margin.ndim > 1 and not cells.communicator.holds_all_rows:
        rows = JointRows(cells)
        joint, n, k = rows.joint, len(rows.joint), rows.joint.n_classes
        n_joint = rows.communicator.sum(np.bincount(joint.codes, minlength=n).astype(np.float64))
        decided = ((margin + bias).argmax(axis=1) for bias in biases)
        local = [np.bincount(joint.codes * k + one, rows.weight, n * k) for one in decided]
        counts = rows.communicator.sum(np.array(local, dtype=np.float64)).reshape(-1, n, k)
        cells = rows.stand_in(np.arange(n), counts[0].sum(axis=1))
        groups = encode_groups(cells, n_joint)
        return cells, (
            joint.spread(counts * (groups == group)[:, None], len(cells))
            for group in np.unique(groups)
        )
    n_rows = None
    if margin.ndim == 1:
        table = list_thresholds(margin, cells)
        cells, margin, n_rows = table.cells, table.scores, table.count
    groups = encode_groups(cells, n_rows)

    def count(group: int) -> Float:
        inside = np.flatnonzero(groups == group)
        own, scores = cells.take(inside), margin[inside]
        if scores.ndim > 1:
            decided = [(scores + bias).argmax(axis=1) for bias in biases]
            return np.stack([CellCounts.of(own, one).weight for one in decided])
        at = spread_thresholds(scores, own, N_CANDIDATES)
        return CellCounts.at_thresholds(own, scores, np.unique(np.append(at, 0.0))).weight

    return cells, map(count, np.unique(groups))


def encode_groups(cells: Cells, n_rows: Array | None = None) -> Codes:
    """Encode the group of each row, which may stand for several; small groups are one.

    What constraints that are only reported look at tells no groups apart.
    """
    group, count = np.zeros(len(cells.rows), dtype=np.intp), np.array([len(cells.rows)])
    for view in cells.views[: cells.n_binding]:
        of_cell = np.zeros(len(view), dtype=np.intp)
        for key in view.levels:
            if key != "label":
                of_cell = of_cell * (view.levels[key].max() + 1) + view.levels[key]
        group = group * (of_cell.max() + 1) + of_cell[view.small_codes]
        _, group = np.unique(group, return_inverse=True)
        count = np.bincount(group, n_rows)
    return np.where(are_large(count, 64), np.arange(count.size), -1)[group]


def are_large(count: Array, most: int) -> Bool:
    """Find about `most` groups to have decisions of their own, by the number of rows of each.

    These have 30 rows at least; smaller ones share their decisions.
    """
    least = max(30, int(np.sort(count)[::-1][:most][-1]))
    return np.asarray(count >= least)


def number_of(value: Any, categories: Any) -> float:
    """Give the number that a value of a column is to the libraries: categories have positions."""
    return float(value) if categories is None else float(categories.get_loc(value))


def take_offsets(offsets: Float, groups: Codes) -> Float:
    """Take the offset of each row's group; zero for groups without one.

    Parameters
    ----------
    offsets : ndarray of shape (n_groups,)
        Offset of each group.
    groups : ndarray of int of shape (n_samples,)
        Group of each row; rows of no group have numbers from ``n_groups`` on.

    Returns
    -------
    ndarray of shape (n_samples,)
    """
    return np.append(offsets, 0.0)[np.minimum(groups, offsets.size)]


@dataclass(frozen=True, eq=False)
class GroupOffsets:
    """What is added to the scores of each group, beyond the shift of all rows.

    Parameters
    ----------
    columns : tuple of column names
        Columns that make the groups.
    levels : tuple of tuple
        Values of the columns in each group.
    values : ndarray of shape (n_groups,)
        Offset of each group; zero where a value is missing or rows are few.
    """

    columns: Columns
    levels: tuple[tuple[object, ...], ...]
    values: Float

    @classmethod
    def none(cls, columns: Columns, rows: Rows) -> GroupOffsets:
        """Make offsets of zero for the groups of the training rows."""
        levels = rows.attribute(columns).levels
        return cls(columns, tuple(levels), np.zeros(len(levels)))

    def as_attribute(self) -> dict[str, object]:
        """Give the offsets as classifiers keep them beside their model."""
        return {"columns": self.columns, "levels": list(self.levels), "offsets": self.values}

    def groups_of(self, rows: Rows) -> Codes:
        """Find the group of each row; ``n_groups`` or more for a group that training lacks."""
        return rows.attribute(self.columns).codes.astype(np.intp)

    def of(self, rows: Rows) -> Float:
        """Find the offset of each row."""
        return take_offsets(self.values, self.groups_of(rows))

    def searchable(self, rows: Rows) -> Codes:
        """Find the group of each row; -1 for rows of no known, whole and large enough group."""
        groups, n = self.groups_of(rows), len(self.levels)
        count = np.bincount(groups, minlength=n + 1)
        is_whole = [not any(value is MISSING for value in level) for level in self.levels]
        count = np.where(is_whole, count[:n], 0)
        is_own = np.append(are_large(count, 32), False)  # All pairs of groups are searched.
        return np.where(is_own[np.minimum(groups, n)], groups, -1)
