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

from gbm_constrained.cells import Cells
from gbm_constrained.certificates import minimum_rows
from gbm_constrained.compiler import ROUNDING, CompiledConstraints
from gbm_constrained.counts import CellCounts, blocks_of
from gbm_constrained.rates import Constraint, Each, Overall, Quotient, Rate, Term
from gbm_constrained.rows import Bool, Float

__all__ = ["Verdict"]

Kind: TypeAlias = Literal[
    "met", "missed within sampling error", "cannot be told", "missed", "cannot be met"
]
KINDS: tuple[Kind, ...] = get_args(Kind)  # From the least grave to the gravest.

TRAINING_ROWS = "training rows"  # Source of values on the rows that the model was trained on.
DOUBT = 0.025  # Error probability of each side of a 95% interval.
FEWEST = 20  # Rows below which a rate cannot be judged: it moves by 0.05 with each of them.
WIDE = 0.15  # Half-width from which an interval is too wide to judge a rate.


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


# --- rows of a constraint ---------------------------------------------------------------------


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
        inside |= is_in_base_set(cells, j, term)
    groups = compiled.groups[j]
    everyone = isinstance(getattr(constraint.expression, "reference", None), Overall)
    if groups and not everyone:
        levels = frozenset[int]().union(*(group.levels for group in groups))
        inside &= np.isin(view.levels[groups[0].by], list(levels))
    return int(cells.weighted_count[view.cells][inside].sum())


def is_in_base_set(cells: Cells, j: int, term: Term) -> Bool:
    """Whether the cells of a constraint's view are in the base set of one of its terms."""
    return cells.select(cells.views[cells.view_of[j]], (*term.rows, *term.on))


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
    if isinstance(compiled.constraints[j].expression, Quotient):
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


# --- too few rows -----------------------------------------------------------------------------


@dataclass(frozen=True)
class TooFewRows:
    """A rate that is taken over too few rows to judge its constraint.

    Parameters
    ----------
    constraint : Constraint
        The constraint.
    group : str
        The group whose rate it is; empty where the constraint has none.
    rows : int
        Number of rows that the rate is taken over.
    value, low, high : float
        The rate, and its 95% interval by the sampling of these rows alone.
    """

    constraint: Constraint
    group: str
    rows: int
    value: float
    low: float
    high: float

    @property
    def reason(self) -> str:
        """The rows and the interval, as a verdict gives its reason."""
        n = f"{self.rows:,} row{'s' * (self.rows != 1)}"
        where = f" of {self.group}" if self.group else ""
        interval = f", interval {self.low:.3f} to {self.high:.3f}" if np.isfinite(self.low) else ""
        return f"{n}{where}{interval}"

    def __str__(self) -> str:
        where = f" on {self.group}" if self.group else ""
        text = f"{self.constraint}{where}: {self.rows:,} row{'s' * (self.rows != 1)}"
        if np.isfinite(self.low):
            text += f", {self.value:.3f} ({self.low:.3f} to {self.high:.3f})"
        return text


def find_too_few_rows(
    cells: Cells,
    compiled: CompiledConstraints,
    counts: CellCounts,
    functionals: Float,
    intervals: Float,
    of_functionals: Float,
) -> list[TooFewRows]:
    """Find the rates that are taken over too few rows to judge their constraints.

    The bound of such a constraint lies inside the interval of its value. Besides, the rate is
    taken over fewer than 20 rows, or its interval reaches further than 0.15 to either side, or not
    even rows without a single event would confirm the bound
    (:func:`~gbm_constrained.certificates.minimum_rows`).

    Parameters
    ----------
    cells : Cells
        The partition of the rows.
    compiled : CompiledConstraints
        The constraints.
    counts : CellCounts
        Decisions on the rows.
    functionals : ndarray of shape (n_functionals,)
        Values of the rates.
    intervals : ndarray of shape (n_constraints, 2)
        Intervals of the constraints' values, by the sampling of rows alone.
    of_functionals : ndarray of shape (n_functionals, 2)
        Intervals of the rates, likewise.

    Returns
    -------
    list of TooFewRows
        Nothing of mean losses, and of constraints that no decision violates.
    """
    values = compiled.values(functionals)
    found = []
    for j, (constraint, span) in enumerate(zip(compiled.constraints, compiled.spans, strict=True)):
        if constraint.is_loss or constraint.is_always_met:
            continue
        expression, ends = constraint.expression, intervals[j]
        if isinstance(expression, Quotient):
            n = rows_of_smallest_group(cells, compiled, j, counts)
            rate = TooFewRows(constraint, "", n, float(values[j]), *map(float, ends))
            if _cannot_judge(rate, ends, minimum=0):
                found.append(rate)
            continue
        names = [str(group) for group in compiled.groups[j]]
        for k in range(span.start, span.stop):
            name = names[k - span.start] if k - span.start < len(names) else ""
            n = rows_of_functional(cells, compiled, k)
            own = of_functionals[k]
            value = float(functionals[k])
            rate = TooFewRows(constraint, name, n, value, *map(float, own))
            each = isinstance(expression, (Rate, Each))
            if _cannot_judge(rate, own if each else ends, minimum=_minimum(constraint)):
                found.append(rate)
    return found


def _minimum(constraint: Constraint) -> int:
    """Rows that could confirm the bound of one rate, none of them with an event."""
    rates = constraint.rates
    plain = len(rates) == 1 and len(rates[0].terms) == 1 and not rates[0].constant
    if not isinstance(constraint.expression, (Rate, Each)) or not plain:
        return 0
    room = constraint.bound if constraint.sense == "<=" else 1.0 - constraint.bound
    if rates[0].terms[0][0] != 1.0 or not 0.0 < room < 1.0:
        return 0
    return minimum_rows(room, 2.0 * DOUBT)


def _cannot_judge(rate: TooFewRows, of_rule: Float, minimum: int) -> bool:
    """Whether a rate leaves its constraint open, for want of rows."""
    if not np.isnan(of_rule).any():
        low, high = of_rule  # which may be infinite, of a quotient
        if not low <= rate.constraint.bound <= high:
            return False
    if rate.rows < FEWEST or rate.rows < minimum:
        return True
    return bool((rate.high - rate.low) / 2.0 > WIDE)
