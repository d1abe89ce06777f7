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
from gbm_constrained.decision.group_shifts import GroupOffsets, number_of
from gbm_constrained.decision.refit_transfer import FoldScores, match_positive_rate
from gbm_constrained.training.group_options import GROUP_PARAMETERS
from gbm_constrained.training.problem import FitProblem, LibrarySettings
from gbm_constrained.training.tree_limits import TreeLimits


def begin_groups(problem: FitProblem, parameter: str, library: LibrarySettings) -> GroupOffsets:
    """Find the groups that decide, with offsets of zero.

    Parameters
    ----------
    problem : FitProblem
        Constraints bound to the rows.
    parameter : str
        One of :data:`~gbm_constrained.training.group_options.GROUP_PARAMETERS`.
    library : LibrarySettings
        Settings of the library, which limit what trees may split by.

    Raises
    ------
    ValueError
        If groups cannot decide: by the constraints, the classes, the machines, the columns, or
        the library's parameters.
    """
    data, of_group = problem.data, GROUP_PARAMETERS[parameter]
    if not problem.cells.communicator.holds_all_rows:
        raise ValueError(
            f"{parameter}=True searches {of_group}s on one machine, and the rows are on several: "
            f"train on one, or use {parameter}=False."
        )
    if data.rows.sources:
        raise ValueError(
            f"{parameter}=True decides by groups of the training rows, and constraints are about "
            f"the data sets {list(data.rows.sources)}: leave these constraints out, or use "
            f"{parameter}=False."
        )
    if parameter == "group_thresholds":
        _check_thresholds(problem)
    columns = _columns_of(problem.cells, parameter)
    _check_columns(data, columns, parameter)
    X, groups = data.arguments.X, GroupOffsets.none(columns, data.whole_rows)
    limits = TreeLimits() if library.tree_limits is None else library.tree_limits(names_of(X))
    _check_limits(columns, limits, parameter)
    _check_values(X, groups, limits.missing, parameter)
    warn_of_groups(parameter)
    return groups


def _check_thresholds(problem: FitProblem) -> None:
    """Refuse what no threshold of two classes serves."""
    asked, otherwise = "group_thresholds=True", "use group_thresholds=False"
    compiled, n_classes = problem.compiled, problem.data.classes.size
    if n_classes > 2:
        raise ValueError(
            f"{asked} moves a threshold of two classes, and y has {n_classes}: {otherwise}, or "
            f"label one class against the others."
        )
    for j, constraint in enumerate(compiled.constraints):
        if compiled.has_scores[compiled.owner == j].any():
            raise ValueError(
                f"{asked} moves decisions, and {constraint} is about scores: bound a rate of "
                f"decisions instead, or {otherwise}."
            )
    check_straight(compiled.constraints, asked, otherwise)


def _columns_of(cells: Cells, parameter: str) -> Columns:
    """List the columns that constraints group by, in their order."""
    keys = [key for need in cells.needs for key in need if isinstance(key, tuple)]
    columns = tuple(dict.fromkeys(column for key in keys for column in key))
    if not columns:
        raise ValueError(
            f"{parameter}=True decides by the columns that constraints group by, and no "
            f"constraint names one: give one, such as a gap with by='sex', or use "
            f"{parameter}=False."
        )
    return columns


def _check_columns(data: FitData, columns: Columns, parameter: str) -> None:
    """Refuse columns that trees cannot split by."""
    X = data.arguments.X
    for column in columns:
        if column in data.whole_rows.columns or column not in names_of(X):
            where = "of sensitive_features" if column in data.whole_rows.columns else "not of X"
            raise ValueError(
                f"{parameter}=True decides by the column {column!r}, which is {where}, and the "
                f"model sees X alone: give the column in X, a table with names, and not in "
                f"sensitive_features; or use {parameter}=False."
            )
        if column in foreign_categories(X):
            raise ValueError(
                f"{parameter}=True splits by the categories of {column!r} as pandas numbers them: "
                f"give X as a table of pandas."
            )


def _check_limits(columns: Columns, limits: TreeLimits, parameter: str) -> None:
    """Refuse columns that the library's parameters let no tree split by so."""
    if bound := [column for column in columns if column in limits.monotone]:
        raise ValueError(
            f"{parameter}=True adds a {GROUP_PARAMETERS[parameter]} for each value of "
            f"{bound[0]!r}, which need not be monotone in it, as monotone_constraints asks: take "
            f"the column out of them, or use {parameter}=False."
        )
    together = limits.together
    if together and len(columns) > 1 and not any(each.issuperset(columns) for each in together):
        raise ValueError(
            f"{parameter}=True splits by {list(columns)} in one tree, and no set of "
            f"interaction_constraints holds all of these: add one that does, or use "
            f"{parameter}=False."
        )


def _check_values(X: Any, groups: GroupOffsets, missing: float, parameter: str) -> None:
    """Refuse numbers that trees, which split in single precision, do not tell apart."""
    names, all_categories = names_of(X), categories_of(X)
    for k, column in enumerate(groups.columns):
        categories = all_categories.get(names.index(column))
        values = [*{level[k] for level in groups.levels} - {MISSING}]
        with np.errstate(over="ignore"):
            numbers = np.array([number_of(value, categories) for value in values], np.float32)
        lost = ~np.isfinite(numbers) | (numbers == np.float32(missing))
        if lost.any():
            value = values[int(np.argmax(lost))]
            why = f"missing={missing!r}" if np.isfinite(numbers[lost]).any() else "infinite"
            raise ValueError(
                f"{parameter}=True splits by the column {column!r}, whose value {value!r} is "
                f"{why} to the trees: number its groups from 1 on."
            )
        if np.unique(numbers).size < len(values):
            raise ValueError(
                f"{parameter}=True splits by the column {column!r}, some of whose {len(values)} "
                f"values are equal in single precision: number its groups from 1 on."
            )


@functools.cache
def warn_of_groups(parameter: str) -> None:
    """Warn once in a process that decisions, or predictions, use the group."""
    issue_warning(
        f"{parameter}=True lets the group of a person decide, by a {GROUP_PARAMETERS[parameter]} "
        f"for each group. That is unlawful in places and for some purposes: make sure that it is "
        f"allowed where the model is used. {parameter}=False decides for all groups alike.",
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
