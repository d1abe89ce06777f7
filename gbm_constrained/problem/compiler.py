"""Constraints to linear maps of cell statistics.

Every rate is a *functional* of cell statistics, ``U . predicted + V . clipped_loss + constant``.
A constraint is one functional (a rate), two (a quotient), or one for each group, and compiles to
linear rows over them, ``R functionals <= b``: a gap of G groups to G (G - 1) of these, a quotient
bounded by k to ``numerator - k denominator`` (multiplying through). The solver sees the rows,
``g = A . predicted + B . clipped_loss - b``; reports show the value that the user bounded.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from scipy import sparse

from gbm_constrained._typing import Bool, Codes, Float
from gbm_constrained.constraints.events import Differs
from gbm_constrained.constraints.expressions import Constraint, Quotient, Rate
from gbm_constrained.constraints.grouped import Each, Gap, Grouped, Overall, Ratio
from gbm_constrained.constraints.selectors import Column, DataSet
from gbm_constrained.data.cells import MOST_CELLS, Cells, View
from gbm_constrained.data.communicator import ReduceSum, local_sum
from gbm_constrained.data.rows import Key, Rows, key_of
from gbm_constrained.exceptions import UnavailableError
from gbm_constrained.problem.functionals import FunctionalCompiler
from gbm_constrained.problem.grouping import (
    check_number_of_groups,
    columns_by,
    find_groups,
    warn_of_small_groups,
)
from gbm_constrained.problem.groups import Group
from gbm_constrained.problem.kernels.base import over_classes
from gbm_constrained.problem.linear_constraints import CompiledConstraints, unique_names


def needs_of(constraint: Constraint, rows: Rows) -> list[Key]:
    """Attributes that a constraint looks at."""
    keys: list[Key] = []
    for term in constraint.terms:
        keys += [key_of(s) for s in term.selectors]
        if isinstance(term.event, Differs):
            keys.append(term.event.deployed)
    if isinstance(constraint.expression, Grouped):
        keys.append(columns_by(constraint.expression, rows))
    for key in keys:
        try:
            rows.attribute(key)
        except UnavailableError as error:
            raise UnavailableError(f"{constraint}: {error}") from None
    if isinstance(constraint.expression, Grouped):
        # Labels divide each group into cells.
        by = columns_by(constraint.expression, rows)
        check_number_of_groups(constraint, by, len(rows.attribute(by).levels), MOST_CELLS // 4)
    _check_columns_of_data_sets(constraint, rows)
    return list(dict.fromkeys(keys))


def _check_columns_of_data_sets(constraint: Constraint, rows: Rows) -> None:
    """Refuse groups of rows that none of them could be in."""
    expression = constraint.expression
    by = columns_by(expression, rows) if isinstance(expression, Grouped) else ()
    for term in constraint.terms:
        columns = [*by, *(s.name for s in term.on if isinstance(s, Column))]
        for source in (s.name for s in term.on if isinstance(s, DataSet)):
            for name in columns:
                if source in rows.sources and not rows.has_column(source, name):
                    raise ValueError(
                        f"{constraint}: column {name!r} is not known of the rows of data set "
                        f"{source!r}. Rows of data sets have groups only from columns of X, as "
                        f"sensitive_features are of the training rows: make it a column of X."
                    )


def _group_rows(
    compiler: FunctionalCompiler,
    constraint: Constraint,
    groups: Sequence[Group],
    at: Sequence[int],
) -> None:
    """Rows of a comparison between groups."""
    e, b = constraint.expression, constraint.bound
    assert isinstance(e, Grouped)
    rate = [str(e.rate.restricted(*group.selectors)) for group in groups]
    if isinstance(e, Each):
        sign = constraint.sign
        for name, k in zip(rate, at, strict=True):
            compiler.add_row(f"{name} {constraint.sense} {b:g}", {k: sign}, sign * b)
        return
    assert isinstance(e, Gap)
    pairs = [(i, j) for i in range(len(groups)) for j in range(len(groups)) if i != j]
    if e.reference is not None:
        if isinstance(e.reference, Overall):
            rate.append(str(e.rate))
        last = len(at) - 1
        pairs = [pair for i in range(last) for pair in ((i, last), (last, i))]
    for i, j in pairs:
        if isinstance(e, Ratio):
            slack = f" - {e.slack:g}" if e.slack else ""
            name = f"{rate[i]} >= {b:g} * ({rate[j]}){slack}"
            compiler.add_row(name, {at[i]: -1.0, at[j]: b}, e.slack)
        else:
            name = f"{rate[i]} - {rate[j]} <= {b:g}"
            if len(e.rate.terms) > 1 or e.rate.constant:
                name = f"{rate[i]} - ({rate[j]}) <= {b:g}"
            compiler.add_row(name, {at[i]: 1.0, at[j]: -1.0}, b)


def compile_constraints(
    constraints: Sequence[Constraint],
    rows: Rows,
    reduce_sum: ReduceSum = local_sum,
    like: CompiledConstraints | None = None,
    idle: Collection[int] = (),
    where: str = "",
    listed_in: str = "",
) -> tuple[Cells, CompiledConstraints]:
    """Partition rows into cells and compile constraints against them.

    Parameters
    ----------
    constraints : sequence of Constraint
        The constraints.
    rows : Rows
        The rows.
    reduce_sum : callable, default=identity
        Sums a table over machines.
    like : CompiledConstraints, default=None
        The same constraints on training rows. Their groups are kept, and groups that these rows
        have besides follow them. What these rows do not have (a mask, a data set, a column, a
        group) then has the value NaN; without `like`, that is an error.
    idle : collection of int, default=()
        Positions of constraints that are only reported, as they are met whatever is decided: they
        have no rows, and the others are compiled as without them.
    where : str, default=""
        What the rows are called in a warning of small groups.
    listed_in : str, default=""
        What lists all small groups, for the warning.

    Raises
    ------
    ValueError
        If a constraint names an unknown class, value or data set, is binary on multiclass data,
        or is taken over no row or over rows of zero total weight.
    """
    needs: list[list[Key] | None] = []
    for constraint in constraints:
        try:
            needs.append(needs_of(constraint, rows))
        except UnavailableError:
            if like is None:
                raise
            needs.append(None)
    cells = Cells(rows, [keys or [] for keys in needs], reduce_sum, idle)
    compiler = FunctionalCompiler(cells)
    spans, owner, all_groups = [], [], []
    try:
        for j, constraint in enumerate(constraints):
            start, first_row = len(compiler.constants), len(compiler.names)
            view = cells.views[cells.view_of[j]]
            groups: Sequence[Group] = like.groups[j] if like is not None else ()
            if like is not None and needs[j] is None:
                for _ in like.constant[like.spans[j]]:
                    compiler.functional(Rate((), np.nan), view, None, lambda what: np.nan)
            else:
                try:
                    groups = _compile_one(constraint, compiler, view, groups, like is not None)
                except ValueError as error:
                    message = str(error)
                    if str(constraint) not in message:
                        message = f"{constraint}: {message}"
                    raise type(error)(message) from None
            spans.append(slice(start, len(compiler.constants)))
            owner += [j] * (len(compiler.names) - first_row)
            all_groups.append(tuple(groups))
    finally:  # an error may be about what small groups leave
        warn_of_small_groups(compiler.small, where, listed_in)
    compiled = _assemble(constraints, compiler, spans, owner, all_groups)
    return cells, compiled.without_rows_of(idle)


def _compile_one(
    constraint: Constraint,
    compiler: FunctionalCompiler,
    view: View,
    groups: Sequence[Group],
    lenient: bool,
) -> Sequence[Group]:
    expression, bound = constraint.expression, constraint.bound

    def undefined(what: str) -> float:
        if lenient:
            return np.nan
        remedy = "it rows with positive weight" if what == "at all" else (
            "those rows positive sample_weight"
        )  # fmt: skip
        taken = "no rows at all" if what == "at all" else f"rows {what} (a class without weight?)"
        raise ValueError(
            f"{constraint} is taken over {taken}: drop the constraint, or give {remedy}."
        )

    if isinstance(expression, Grouped):
        groups = find_groups(constraint, view, compiler, groups if lenient else None)
        at = [compiler.functional(expression.rate, view, g, undefined) for g in groups]
        if isinstance(expression, Gap) and isinstance(expression.reference, Overall):
            at.append(compiler.functional(expression.rate, view, None, undefined))
        _group_rows(compiler, constraint, groups, at)
        return groups
    at = [compiler.functional(rate, view, None, undefined) for rate in constraint.rates]
    sign = constraint.sign
    if isinstance(expression, Quotient):
        compiler.add_row(str(constraint), {at[0]: sign, at[1]: -sign * bound}, 0.0)
    else:
        compiler.add_row(str(constraint), {at[0]: sign}, sign * bound)
    return ()


def _assemble(
    constraints: Sequence[Constraint],
    compiler: FunctionalCompiler,
    spans: Sequence[slice],
    owner: Sequence[int],
    groups: Sequence[tuple[Group, ...]],
) -> CompiledConstraints:
    cells = compiler.cells
    n_cells, n_classes = len(cells), cells.classes.size
    n, m = len(compiler.constants), len(compiler.names)
    starts = [view.cells.start for view in compiler.views]
    U = _stacked(compiler.hard, [start * n_classes for start in starts], n_cells * n_classes)
    V = _stacked(compiler.soft, starts, n_cells)
    counts = [len(entries) for entries in compiler.entries]
    columns = [k for entries in compiler.entries for k in entries]
    values = [a for entries in compiler.entries for a in entries.values()]
    R = sparse.csr_array(
        (np.array(values), np.array(columns, dtype=np.intp), np.cumsum([0, *counts])),
        shape=(m, n),
    )
    spread, rewards, rewards_all, splits, touched = [], [], [], [], []
    nothing = np.zeros(0, dtype=np.intp)
    reached = [
        _cells_reached(view, hard, imitation)
        for view, hard, imitation in zip(
            compiler.views, compiler.hard, compiler.imitation, strict=True
        )
    ]
    for entries in compiler.entries:
        view = compiler.views[next(iter(entries), 0)]  # all of a row's functionals are of one
        # Of many groups, a row is about few; all labels of a group come together.
        parts = [reached[k] for k in entries] or [nothing]
        at = parts[0] if len(parts) == 1 else np.unique(np.concatenate(parts))
        combined = np.zeros((at.size, n_classes))
        imitation = np.zeros_like(combined)
        for k, a in entries.items():
            combined += a * compiler.hard[k][at]
            imitation += a * compiler.imitation[k][at]
        own = combined - imitation if (imitation >= 0).all() else combined
        labels = cells.labels[view.cells][at]
        rewarded = _rewarded(own, labels)
        rewards.append(rewarded.any())
        least = over_classes(np.minimum, own)
        suits: Any = (own <= least[:, None]) | ~rewarded[:, None]
        by_label = suits.reshape(_n_labels(view), at.size // _n_labels(view), n_classes)
        rewards_all.append(not by_label.all(axis=0).any(axis=1).all())
        largest = over_classes(np.maximum, combined)
        splits.append(((combined < largest[:, None]).sum(axis=1) > 1).any())
        width = largest - over_classes(np.minimum, combined)
        differs = np.flatnonzero(width)
        spread.append(width[differs])
        touched.append(at[differs] + view.cells.start)
    names = tuple(unique_names(compiler.names))
    return CompiledConstraints(
        tuple(constraints),
        U,
        V,
        np.array(compiler.constants),
        R,
        np.array(compiler.right),
        names,
        names,
        np.array(owner, dtype=np.intp),
        tuple(spans),
        tuple(groups),
        _sparse_rows(spread, touched, n_cells),
        np.array(rewards, dtype=bool),
        np.array(rewards_all, dtype=bool),
        np.array(splits, dtype=bool),
        tuple(compiler.terms),
        tuple(compiler.small),
    )


def _n_labels(view: View) -> int:
    """Levels of the label, the first attribute of every view."""
    return int(view.levels["label"][-1]) + 1


def _cells_reached(view: View, *tables: Float) -> Codes:
    """Cells of a view that tables have entries in, with those that differ by the label alone."""
    others = len(view) // _n_labels(view)
    has_entry = np.any([table.any(axis=1) for table in tables], axis=0)
    columns = np.flatnonzero(has_entry.reshape(-1, others).any(axis=0))
    return np.ravel(np.arange(_n_labels(view))[:, None] * others + columns)


def _stacked(tables: Sequence[Float], starts: Sequence[int], width: int) -> Any:
    """Sparse matrix with the entries of a table in each row, from a column on."""
    flat = [np.ravel(table) for table in tables]
    columns = [np.flatnonzero(row) for row in flat]
    values = [row[at] for row, at in zip(flat, columns, strict=True)]
    return _sparse_rows(
        values, [at + start for at, start in zip(columns, starts, strict=True)], width
    )


def _sparse_rows(values: Sequence[Float], columns: Sequence[Codes], width: int) -> Any:
    """Sparse matrix of the values of each row, given their columns."""
    ends = np.cumsum([0, *(at.size for at in columns)])
    empty: list[Any] = [np.zeros(0)]
    return sparse.csr_array(
        (np.concatenate(values or empty), np.concatenate(columns or empty).astype(np.intp), ends),
        shape=(len(columns), width),
    )


def _rewarded(cost: Float, labels: Any) -> Bool:
    """Cells whose errors a row of constraints asks for, or of which no error is known."""
    own = cost[np.arange(labels.size), np.maximum(labels, 0)]
    largest, least = over_classes(np.maximum, cost), over_classes(np.minimum, cost)
    return np.asarray((largest > least) & ((labels < 0) | (own >= largest)))
