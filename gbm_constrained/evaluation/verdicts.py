"""Verdicts on constraints: one vocabulary for fits, audits, pages, figures and the command line.

A verdict compares the value of a constraint with its bound, on the rows that are reported:

- **met**: the value is on the right side of the bound.
- **missed within sampling error**: the value is on the wrong side, and the 95% interval of the
  value reaches the bound.
- **missed**: the value is on the wrong side, and so is the whole interval. A value without an
  interval, such as a mean loss of a randomised classifier, is missed as well.
- **cannot be told**: the value is undefined, its rows are too few (:func:`find_too_few_rows`), or
  other evidence speaks against the value, such as the training rows of the model returned.
- **cannot be met**: no decision that the model can make meets the constraint, or the smallest set
  of constraints that it conflicts with.

The value alone decides between met and missed, as it does for ``satisfied`` in reports. A missed
constraint is therefore never satisfied, and a satisfied one never missed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np

from gbm_constrained._typing import Float
from gbm_constrained.constraints.base import ROUNDING, Constraint
from gbm_constrained.data.cells import Cells
from gbm_constrained.problem.linear_constraints import CompiledConstraints
from gbm_constrained.statistics.counts import CellCounts, blocks_of

__all__ = ["Verdict"]

Kind: TypeAlias = Literal[
    "met", "missed within sampling error", "cannot be told", "missed", "cannot be met"
]
KINDS: tuple[Kind, ...] = get_args(Kind)  # From the least grave to the gravest.
TRAINING_ROWS = "training rows"  # Source of values on the rows that the model was trained on.
DOUBT = 0.025  # Error probability of each side of a 95% interval.


@dataclass(frozen=True)
class Verdict:
    """Verdict on one constraint.

    Parameters
    ----------
    kind : {"met", "missed within sampling error", "cannot be told", "missed", "cannot be met"}
        The verdict, as reports show it.
    distance : float
        Distance by which the value is beyond the bound; zero or negative where the value is on the
        right side, NaN where it is undefined.
    rows : int
        Number of rows that the constraint is taken over.
    source : str, default=""
        Name of these rows in reports, such as "out of fold" or "training rows"; empty in audits.
    reason : str, default=""
        Reason why a verdict cannot be told.
    conflict : tuple of str, default=()
        The other constraints that this one cannot be met together with.
    is_open : bool, default=False
        Whether part of the interval is on the wrong side of the bound.
    is_sampled : bool, default=True
        Whether the value has an interval.
    """

    kind: Kind
    distance: float
    rows: int
    source: str = ""
    reason: str = ""
    conflict: tuple[str, ...] = ()
    is_open: bool = False
    is_sampled: bool = True

    @classmethod
    def of(
        cls,
        constraint: Constraint,
        value: float,
        interval: Float | Sequence[float],
        rows: int,
        source: str = "",
        *,
        doubt: str = "",
        conflict: Sequence[Constraint] = (),
    ) -> Verdict:
        """Judge a constraint by its value and the interval of the value.

        Parameters
        ----------
        constraint : Constraint
            The constraint.
        value : float
            Its value; NaN if it is undefined.
        interval : array-like of shape (2,)
            Interval of the value; NaN if there is none.
        rows : int
            Number of rows that the constraint is taken over.
        source : str, default=""
            Name of these rows in reports.
        doubt : str, default=""
            Evidence that speaks against the value. A miss beyond sampling error stands in spite of
            it.
        conflict : sequence of Constraint, default=()
            The constraints that cannot be met together, if this one is among them.

        Returns
        -------
        Verdict
        """
        distance = constraint.sign * (float(value) - constraint.bound)
        is_missed, is_open = distance > ROUNDING, reaches_beyond(constraint, interval)
        is_sampled = not bool(np.isnan(interval).any())
        kind: Kind = "met"
        if constraint in conflict:
            kind = "cannot be met"
        elif np.isnan(distance):
            kind, doubt = "cannot be told", doubt or "the value is undefined on these rows"
        elif is_missed and not (is_sampled and reaches_within(constraint, interval)):
            kind = "missed"
        elif doubt:
            kind = "cannot be told"
        elif is_missed:
            kind = "missed within sampling error"
        return cls(
            kind,
            distance,
            rows,
            source,
            doubt if kind == "cannot be told" else "",
            tuple(str(other) for other in conflict if other != constraint)
            if kind == "cannot be met"
            else (),
            is_open,
            is_sampled,
        )

    @property
    def _sample(self) -> str:
        n = f"{self.rows:,}"
        if self.source == TRAINING_ROWS:
            return f"{n} {TRAINING_ROWS}"
        return f"{n} row{'s' * (self.rows != 1)}" + (f" ({self.source})" if self.source else "")

    def __str__(self) -> str:
        if self.kind == "met":
            return "met, but the interval reaches beyond the bound" if self.is_open else "met"
        if self.kind == "cannot be told":
            return f"cannot be told: {self.reason}"
        if self.kind == "cannot be met":
            others = " and ".join(self.conflict)
            return f"cannot be met together with {others}" if others else "cannot be met"
        missed = f"missed by {self.distance:.2g}"
        if not self.is_sampled:
            return f"{missed} on {self._sample}"
        where = "within" if self.kind == "missed within sampling error" else "beyond"
        return f"{missed}, {where} sampling error of {self._sample}"


def gravest(kinds: Iterable[Kind]) -> Kind:
    """Return the gravest of several verdicts, and "met" of none.

    Parameters
    ----------
    kinds : iterable of str
        Kinds of verdicts.
    """
    return max(kinds, key=KINDS.index, default="met")


def reaches_beyond(constraint: Constraint, interval: Float | Sequence[float]) -> bool:
    """Whether part of an interval is on the wrong side of the bound; False if there is none."""
    low, high = interval
    return bool(constraint.sign * ((high if constraint.sign > 0 else low) - constraint.bound)
                > ROUNDING)  # fmt: skip


def reaches_within(constraint: Constraint, interval: Float | Sequence[float]) -> bool:
    """Whether part of an interval is on the right side of the bound; False if there is none."""
    low, high = interval
    return bool(constraint.sign * ((low if constraint.sign > 0 else high) - constraint.bound)
                <= ROUNDING)  # fmt: skip


def rows_of_constraint(cells: Cells, compiled: CompiledConstraints, j: int) -> int:
    """Count the rows with weight that any term of a constraint is taken over, in any group.

    Parameters
    ----------
    cells : Cells
        The partition of the rows.
    compiled : CompiledConstraints
        The constraints.
    j : int
        Position of the constraint.
    """
    constraint, view = compiled.constraints[j], cells.views[cells.view_of[j]]
    inside = np.zeros(len(view), dtype=bool)
    for term in constraint.terms:
        inside |= cells.select(cells.views[cells.view_of[j]], term.base)
    groups = compiled.groups[j]
    everyone = constraint.expression.compares_with_overall
    if groups and not everyone:
        levels = frozenset[int]().union(*(group.levels for group in groups))
        inside &= np.isin(view.levels[groups[0].by], list(levels))
    return int(cells.weighted_count[view.cells][inside].sum())


def rows_of_functional(cells: Cells, compiled: CompiledConstraints, k: int) -> int:
    """Count the rows that a functional is taken over: the fewest of its parts."""
    parts = compiled.parts[k]
    if parts is None:  # a mean loss
        return int(cells.weighted_count[compiled.V[[k]].indices].sum())
    return int(min((cells.weighted_count[part.cells].sum() for part in parts), default=0))


def rows_of_smallest_group(
    cells: Cells, compiled: CompiledConstraints, j: int, counts: CellCounts | None
) -> int:
    """Count the rows of a constraint's smallest group; of a quotient those inside of it.

    Without the counts of decisions, the rows of a quotient are those of its terms.
    """
    if compiled.constraints[j].expression.is_quotient:
        if counts is None:
            return rows_of_constraint(cells, compiled, j)
        return int(rows_of_quotient(compiled, j, counts))
    span = compiled.spans[j]
    return min(rows_of_functional(cells, compiled, k) for k in range(span.start, span.stop))


def rows_of_quotient(compiled: CompiledConstraints, j: int, counts: CellCounts) -> Float:
    """Count the rows that decisions put into a quotient, such as those selected of a precision.

    The rows of the numerator count as well: of wins over losses, few losses are what is asked for.
    A constant is a part of every row, which an error takes out of ``1 - error_rate``.
    """
    inside = np.zeros(counts.count.shape[-2:], dtype=bool)
    span = compiled.spans[j]
    for parts, constant in zip(compiled.parts[span], compiled.constant[span], strict=True):
        blocks = blocks_of(parts or ())
        for block in blocks:
            nothing = round(-float(constant) / len(blocks), 12)
            inside[block.cells] |= ~block.reaches(nothing)
    return np.asarray((counts.count * inside).sum(axis=(-2, -1)))
