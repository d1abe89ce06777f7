"""Fits whose decisions use the group: what they need, and the model of all rows."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from gbm_constrained._dataframes import categories_of, foreign_categories, names_of
from gbm_constrained._findings import issue_warning
from gbm_constrained._typing import Array, Bool, Float
from gbm_constrained.constraints.checking import check_straight
from gbm_constrained.constraints.selectors import MISSING, Columns
from gbm_constrained.data.cells import Cells
from gbm_constrained.data.fit_data import FitData
from gbm_constrained.decision.group_shifts import GroupOffsets
from gbm_constrained.decision.refit_transfer import FoldScores, match_positive_rate
from gbm_constrained.training.problem import FitProblem

ASKED = "group_thresholds=True"


def begin_groups(problem: FitProblem) -> GroupOffsets:
    """Find the groups that decide, with offsets of zero.

    Raises
    ------
    ValueError
        If groups cannot decide: by the constraints, the classes, the machines or the columns.
    """
    data, compiled = problem.data, problem.compiled
    if not problem.cells.communicator.holds_all_rows:
        raise ValueError(
            f"{ASKED} searches thresholds on one machine, and the rows are on several: train on "
            f"one, or use group_thresholds=False."
        )
    if data.classes.size > 2:
        raise ValueError(
            f"{ASKED} moves a threshold of two classes, and y has {data.classes.size}: use "
            f"group_thresholds=False, or label one class against the others."
        )
    if data.rows.sources:
        raise ValueError(
            f"{ASKED} decides by groups of the training rows, and constraints are about the "
            f"data sets {list(data.rows.sources)}: leave these constraints out, or use "
            f"group_thresholds=False."
        )
    for j, constraint in enumerate(compiled.constraints):
        if compiled.has_scores[compiled.owner == j].any():
            raise ValueError(
                f"{ASKED} moves decisions, and {constraint} is about scores: bound a rate of "
                f"decisions instead, or use group_thresholds=False."
            )
    check_straight(compiled.constraints, ASKED, "use group_thresholds=False")
    columns = _columns_of(problem.cells)
    _check_columns(data, columns)
    groups = GroupOffsets.none(columns, data.whole_rows)
    _check_values(data.arguments.X, groups)
    warn_of_groups()
    return groups


def _columns_of(cells: Cells) -> Columns:
    """List the columns that constraints group by, in their order."""
    keys = [key for need in cells.needs for key in need if isinstance(key, tuple)]
    columns = tuple(dict.fromkeys(column for key in keys for column in key))
    if not columns:
        raise ValueError(
            f"{ASKED} decides by the columns that constraints group by, and no constraint names "
            f"one: give one, as in gap(fpr(), by='sex') <= 0.05, or use group_thresholds=False."
        )
    return columns


def _check_columns(data: FitData, columns: Columns) -> None:
    """Refuse columns that trees cannot split by."""
    X = data.arguments.X
    for column in columns:
        if column in data.whole_rows.columns or column not in names_of(X):
            where = "of sensitive_features" if column in data.whole_rows.columns else "not of X"
            raise ValueError(
                f"{ASKED} decides by the column {column!r}, which is {where}, and the model sees "
                f"X alone: give the column in X, a table with names, and not in "
                f"sensitive_features; or use group_thresholds=False."
            )
        if column in foreign_categories(X):
            raise ValueError(
                f"{ASKED} splits by the categories of {column!r} as pandas numbers them: give X "
                f"as a table of pandas."
            )


def _check_values(X: Any, groups: GroupOffsets) -> None:
    """Refuse numbers that are equal in single precision, in which trees split."""
    names, categories = names_of(X), categories_of(X)
    for k, column in enumerate(groups.columns):
        if names.index(column) in categories:
            continue
        values: set[Any] = {level[k] for level in groups.levels} - {MISSING}
        if np.unique(np.array([*values], dtype=np.float32)).size < len(values):
            raise ValueError(
                f"{ASKED} splits by the column {column!r}, some of whose {len(values)} values are "
                f"equal in single precision: number its groups from 0 on."
            )


@functools.cache
def warn_of_groups() -> None:
    """Warn once in a process that decisions use the group."""
    issue_warning(
        f"{ASKED} lets the group of a person decide, by a threshold for each group. That is "
        f"unlawful in places and for some purposes: make sure that it is allowed where the model "
        f"is used. group_thresholds=False decides all groups by one threshold.",
        "GC122",
    )


def transfer_offsets(
    scores: FoldScores, shift: Float, offsets: GroupOffsets, margin: Array, inside: Bool,
    cells: Cells,
) -> tuple[Float, GroupOffsets]:  # fmt: skip
    """Find the shifts under which the model of all rows has the positive rates of the folds.

    Each group with an offset is matched by itself, and all other rows together; see
    :func:`~gbm_constrained.decision.refit_transfer.match_positive_rate`.
    """
    groups, values = offsets.groups_of(cells.rows), offsets.values
    own = np.flatnonzero(values)
    others = inside & ~np.isin(groups, own)
    common = match_positive_rate(scores, shift, margin, others, cells) if shift.any() else shift
    moved = np.zeros_like(values)
    for g in own:
        of_group = inside & (groups == g)
        found = match_positive_rate(scores, shift + values[g], margin, of_group, cells)
        moved[g] = found[0] - common[0]
    return common, replace(offsets, values=moved)


def tabulate_shifts(shift: Float, offsets: GroupOffsets, groups: Array) -> pd.DataFrame:
    """Make the table of the shift of each group, in the order of the groups."""
    table = {
        column: [None if level[k] is MISSING else level[k] for level in offsets.levels]
        for k, column in enumerate(offsets.columns)
    }
    count = np.bincount(groups, minlength=len(offsets.levels))[: len(offsets.levels)]
    return pd.DataFrame({**table, "shift": shift[0] + offsets.values, "rows": count})
