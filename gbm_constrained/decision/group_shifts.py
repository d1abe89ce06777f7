"""Choice of a shift for each group on held-out rows, beside the common shift.

Bounds of comparisons are tightened, cross-fitted decisions are reported and room is left as for
the common shift (:mod:`gbm_constrained.decision.prefix_choice`). The common shift stays where it
meets the constraints at no more errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.constraints.base import ROUNDING
from gbm_constrained.constraints.selectors import MISSING, Columns
from gbm_constrained.data.rows import Rows
from gbm_constrained.decision.choose import VIOLATION_PRICE
from gbm_constrained.decision.evaluation_set import EvaluationSet, ScoredRows
from gbm_constrained.decision.group_search import GroupSearch
from gbm_constrained.decision.group_thresholds import are_large
from gbm_constrained.decision.prefix_choice import (
    MAX_ERROR_INCREASE,
    Prefixes,
    choose_prefix,
    leave_room,
    tightened_bounds,
)
from gbm_constrained.decision.rule import Choice
from gbm_constrained.decision.separable_search import GroupShifts
from gbm_constrained.decision.standard_errors import standard_error_of

MAX_GROUPS = 32  # Groups that have shifts of their own: all pairs of them are searched.


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
        is_own = np.append(are_large(count, MAX_GROUPS), False)
        return np.where(is_own[np.minimum(groups, n)], groups, -1)


def choose_prefix_for_groups(
    scored: ScoredRows, prefixes: Prefixes, groups: GroupOffsets
) -> tuple[Choice, GroupOffsets, Codes]:
    """Choose prefix, shift and offsets of groups, and decide the held-out rows."""
    choice, offsets = choose_for_groups(scored, prefixes, groups)
    margin = scored.margins(choice.rounds)
    if not offsets.values.any():
        return choice, offsets, scored.rows.decisions(margin + choice.shift[0])
    return _leave_room(scored.rows, margin, choice, offsets)


def choose_for_groups(
    scored: ScoredRows, prefixes: Prefixes, groups: GroupOffsets
) -> tuple[Choice, GroupOffsets]:
    """Choose prefix, shift and offsets of groups.

    Of the prefixes that may be chosen, the one is taken whose errors and penalised violations are
    smallest under offsets of groups.
    """
    candidates = prefixes.candidates if prefixes.has_free_choice else [prefixes.rounds]
    found = []
    for rounds in candidates:
        common = choose_prefix(scored, Prefixes(rounds, rounds), found=scored.rows.choices)
        found.append(choose_offsets(scored.rows, scored.margins(rounds), common, groups))
    return min(found, key=lambda pair: (pair[0].loss, -pair[0].rounds))


def choose_offsets(
    rows: EvaluationSet, margin: Array, common: Choice, groups: GroupOffsets
) -> tuple[Choice, GroupOffsets]:
    """Choose offsets of groups for the scores of one prefix.

    Parameters
    ----------
    rows : EvaluationSet
        Held-out rows.
    margin : ndarray of shape (n_samples,)
        Their scores.
    common : Choice
        The best common shift.
    groups : GroupOffsets
        The groups.

    Returns
    -------
    Choice, GroupOffsets
        The choice with the errors under these offsets, whose common shift is zero where it does
        not meet the constraints. Offsets are zero where no thresholds of groups meet the
        constraints, or the common one does at no more errors.
    """
    compiled = rows.compiled
    decisions = rows.decisions(margin + common.shift[0])
    error = rows.error(decisions)
    violation = float(rows.violations(margin, rows.counts(decisions)).max(initial=0.0))
    loss = error + VIOLATION_PRICE * max(violation, 0.0)
    common, none = replace(common, loss=loss), replace(groups, values=0.0 * groups.values)
    # Rows of no group keep the model's own threshold, where no common one does what is asked.
    kept = common if violation <= ROUNDING else replace(common, shift=np.zeros(1))
    search = _search(rows, margin, kept, groups, np.arange(margin.size))
    found, bounds = search.find(compiled.b), compiled.b
    tightened = tightened_bounds(compiled, rows.counts(rows.decisions(margin)))
    if (tightened < compiled.b).any():
        inside = search.find(tightened)
        if inside is not None and (
            found is None or inside.error <= found.error + MAX_ERROR_INCREASE
        ):
            found, bounds = inside, tightened
    if found is None or found.violation > 0.0 or found.error >= loss:
        return common, none
    return _moved(kept, groups, found, bounds)


def _moved(
    choice: Choice, groups: GroupOffsets, found: GroupShifts, bounds: Float
) -> tuple[Choice, GroupOffsets]:
    """Describe found shifts as offsets beyond the common one."""
    moved = replace(
        choice, error=found.error, loss=found.error, violation=0.0, bounds=bounds,
        has_rate_violation=False,
    )  # fmt: skip
    return moved, replace(groups, values=found.values - choice.shift[0])


def _search(
    rows: EvaluationSet, margin: Array, choice: Choice, groups: GroupOffsets, index: Codes
) -> GroupSearch:
    """Search on some of the rows."""
    cells = rows.cells.take(index)
    own = groups.searchable(rows.cells.rows)[index]
    common = np.full(len(groups.levels), choice.shift[0])
    return GroupSearch(margin[index], cells, rows.compiled.on(cells), own, common)


def _leave_room(
    rows: EvaluationSet, margin: Array, choice: Choice, offsets: GroupOffsets
) -> tuple[Choice, GroupOffsets, Codes]:
    """Move offsets until cross-fitted decisions satisfy the constraints, too, at little cost."""
    everyone = np.arange(margin.size)
    others = [
        _search(rows, margin, choice, offsets, np.setdiff1d(everyone, fold, assume_unique=True))
        for fold in (rows.folds if len(rows.folds) > 1 else ())
    ]
    decisions = _cross_fit(rows, margin, choice, offsets, others)
    violations = _violations(rows, margin, decisions)
    if not others or violations.max(initial=0.0) <= ROUNDING:
        return choice, offsets, decisions
    bounds = rows.compiled.b if choice.bounds is None else choice.bounds
    affordable = choice.error + standard_error_of(choice.error, rows.cells.n_rows)
    search = _search(rows, margin, choice, offsets, everyone)

    def move(tighter: Float) -> tuple[tuple[Choice, GroupOffsets, Codes], Float] | None:
        found = search.find(tighter)
        if found is None or found.error > affordable:
            return None
        moved, further = _moved(choice, offsets, found, tighter)
        decided = _cross_fit(rows, margin, moved, further, others)
        return (moved, further, decided), _violations(rows, margin, decided)

    return leave_room((choice, offsets, decisions), bounds, violations, move)


def _violations(rows: EvaluationSet, margin: Array, decisions: Codes) -> Float:
    return np.maximum(rows.violations(margin, rows.counts(decisions)), 0.0)


def _cross_fit(
    rows: EvaluationSet,
    margin: Array,
    choice: Choice,
    offsets: GroupOffsets,
    others: Sequence[GroupSearch],
) -> Codes:
    """Decide each fold by the offsets that the other folds would have chosen."""
    attributes = rows.cells.rows
    decisions = rows.decisions(margin + choice.shift[0] + offsets.of(attributes))
    bounds = rows.compiled.b if choice.bounds is None else choice.bounds
    for search, fold in zip(others, rows.folds if others else (), strict=True):
        found = search.find(bounds)
        if found is not None:
            own = replace(offsets, values=found.values - choice.shift[0]).of(attributes)[fold]
            decisions[fold] = rows.decisions(margin[fold] + choice.shift[0] + own)
    return decisions
