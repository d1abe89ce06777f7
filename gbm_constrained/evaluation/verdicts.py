"""Verdicts on constraints: one vocabulary for fits, audits, pages, figures and the command line.

A verdict compares the value of a constraint with its bound, on the rows that are reported:

- **met**: the value is on the right side of the bound.
- **met on training rows**: so it is on the rows that the model was trained on, which prove nothing
  about others.
- **missed within sampling error**: the value is on the wrong side, and the 95% interval of the
  value reaches the bound.
- **missed**: the value is on the wrong side, and so is the whole interval. A value without an
  interval, such as a mean loss or a pair rate of a randomised classifier, is missed as well.
- **cannot be told**: the value is undefined, its rows are too few
  (:func:`~gbm_constrained.evaluation.verdicts.find_too_few_rows`), or other evidence speaks
  against the value, such as the training rows of the model returned.
- **cannot be met**: no decision that the model can make meets the constraint, or the smallest set
  of constraints that it conflicts with. Of these, a constraint of a later priority is given up for
  those that come first, which have verdicts of their own.

The value alone decides between met and missed, as it does for ``satisfied`` in reports.

The best group-wise decisions on the same scores (:mod:`gbm_constrained.decision.groups`)
say how many errors the constraints should cost. If a model makes more errors than these, by
:data:`MAX_EXCESS_ERROR` and by two standard errors, the fit gives a
:class:`~gbm_constrained.exceptions.CostlyConstraintsWarning`. The warning names the constraint
that costs most: the one without which the threshold that meets the others has the fewest errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, get_args

import numpy as np
import pandas as pd

from gbm_constrained._findings import FINDINGS, Finding
from gbm_constrained._messages import join_truncated
from gbm_constrained._typing import Array, Float
from gbm_constrained.constraints.base import ROUNDING, Constraint
from gbm_constrained.constraints.comparisons import Ratio
from gbm_constrained.constraints.rates import Prediction, Residual, RowLoss
from gbm_constrained.data.cells import Cells
from gbm_constrained.decision.choose import SIGNIFICANCE
from gbm_constrained.decision.evaluation_set import Estimate, EvaluationSet
from gbm_constrained.decision.groups import GroupThresholds
from gbm_constrained.decision.regression import PredictedRows, find_deviance
from gbm_constrained.decision.search import ShiftSearch
from gbm_constrained.decision.violations import MIN_ROWS, standard_error_of
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.statistics.counts import CellCounts, blocks_of
from gbm_constrained.statistics.order_statistics import minimum_rows

__all__ = ["Verdict"]


Kind: TypeAlias = Literal[
    "met",
    "met on training rows",
    "missed within sampling error",
    "cannot be told",
    "missed",
    "cannot be met",
]
KINDS: tuple[Kind, ...] = get_args(Kind)  # From the least grave to the gravest.
TRAINING_ROWS = "training rows"  # Source of values on the rows that the model was trained on.


@dataclass(frozen=True)
class Verdict:
    """Verdict on one constraint.

    Parameters
    ----------
    kind : str
        The verdict, as reports show it: "met", "met on training rows", "missed within sampling
        error", "cannot be told", "missed" or "cannot be met".
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
    given_up_for : tuple of str, default=()
        Those of them that come first by their priority.
    is_open : bool, default=False
        Whether part of the interval is on the wrong side of the bound.
    is_sampled : bool, default=True
        Whether the value has an interval.
    left_out : tuple of str, default=()
        Groups that the value does not compare, which the texts of all verdicts name.
    unit : str, default=""
        Unit of the distance in texts, such as "points" or "nats"; see :func:`unit_of`.
    """

    kind: Kind
    distance: float
    rows: int
    source: str = ""
    reason: str = ""
    conflict: tuple[str, ...] = ()
    given_up_for: tuple[str, ...] = ()
    is_open: bool = False
    is_sampled: bool = True
    left_out: tuple[str, ...] = ()
    unit: str = ""

    @classmethod
    def of(
        cls,
        constraint: Constraint,
        estimate: Estimate,
        rows: int,
        source: str = "",
        *,
        doubt: str = "",
        conflict: Sequence[Constraint] = (),
        left_out: Sequence[str] = (),
    ) -> Verdict:
        """Assess a constraint by its value and the interval of the value.

        Parameters
        ----------
        constraint : Constraint
            The constraint.
        estimate : Estimate
            Value, NaN if it is undefined, and its interval, NaN if there is none.
        rows : int
            Number of rows that the constraint is taken over.
        source : str, default=""
            Name of these rows in reports.
        doubt : str, default=""
            Evidence that speaks against the value. A miss beyond sampling error stands in spite of
            it.
        conflict : sequence of Constraint, default=()
            The constraints that cannot be met together, if this one is among them.
        left_out : sequence of str, default=()
            Groups without rows, or with too few, that the value does not compare.
        """
        value, *interval = map(float, estimate)
        distance = constraint.sign * (value - constraint.bound)
        is_missed, is_open = distance > ROUNDING, reaches(constraint, interval, beyond=True)
        is_sampled = not bool(np.isnan(interval).any())
        others = [c for c in conflict if c != constraint] if constraint in conflict else []
        kind: Kind = "met on training rows" if source == TRAINING_ROWS else "met"
        if constraint in conflict:
            kind = "cannot be met"
        elif np.isnan(distance):
            kind, doubt = "cannot be told", doubt or "the value is undefined on these rows"
        elif is_missed and not (is_sampled and reaches(constraint, interval)):
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
            tuple(map(str, others)),
            tuple(str(c) for c in others if c.priority < constraint.priority),
            is_open,
            is_sampled,
            tuple(left_out),
            unit_of(constraint),
        )

    def with_doubt(self, reason: str) -> Verdict:
        """Doubt a value on the right side, or within sampling error of it, by other evidence.

        Parameters
        ----------
        reason : str
            The evidence.
        """
        is_doubtful = self.kind.startswith("met") or self.kind == "missed within sampling error"
        return replace(self, kind="cannot be told", reason=reason) if is_doubtful else self

    def __str__(self) -> str:
        without = f", without {join_truncated(self.left_out)}" if self.left_out else ""
        return self._text + without

    @property
    def _text(self) -> str:
        if self.kind.startswith("met"):
            return self.kind + ", but the interval reaches beyond the bound" * self.is_open
        if self.kind == "cannot be told":
            return f"cannot be told: {self.reason}"
        if self.given_up_for:
            return f"given up for {' and '.join(self.given_up_for)}"
        if self.kind == "cannot be met":
            others = " and ".join(self.conflict)
            return f"cannot be met together with {others}" if others else "cannot be met"
        size = self.distance * (100.0 if self.unit == "points" else 1.0)
        missed = f"missed by {float(f'{size:.2g}'):,g} {self.unit}".rstrip()
        sample = f"{self.rows:,} {TRAINING_ROWS}"
        if self.source != TRAINING_ROWS:
            sample = _count_rows(self.rows) + f" ({self.source})" * bool(self.source)
        if not self.is_sampled:
            return f"{missed} on {sample}"
        where = "within" if self.kind == "missed within sampling error" else "beyond"
        return f"{missed}, {where} sampling error of {sample}"


def unit_of(constraint: Constraint) -> str:
    """Name the unit of what a constraint bounds; empty for ratios, which have none.

    Rates differ by points, which are hundredths. Cross-entropies are in nats, costs of amounts in
    the unit of the amounts, and means of numbers in that of y or of their loss.
    """
    expression, (_, term) = constraint.expression, constraint.rates[0].terms[0]
    if term.event.kind == "loss":
        return "nats"
    if term.event.kind == "cost":
        return "units of cost" if term.amount is None else f"of {term.amount}"
    if isinstance(term.event, RowLoss):
        return f"units of the {term.event.loss} loss"
    if isinstance(term.event, Prediction | Residual):
        return "units of y"
    return "" if isinstance(expression, Ratio) or np.isinf(expression.range[1]) else "points"


def reaches(
    constraint: Constraint, interval: Float | Sequence[float], *, beyond: bool = False
) -> bool:
    """Whether part of an interval is on the right side of the bound, or `beyond` it.

    It is False if there is no interval.
    """
    low, high = interval
    end = high if (constraint.sign > 0) == beyond else low
    excess = constraint.sign * (end - constraint.bound)
    return bool(excess > ROUNDING if beyond else excess <= ROUNDING)


@dataclass(frozen=True)
class TooFewRows:
    """A rate that is taken over too few rows to assess its constraint."""

    constraint: Constraint
    group: str  # Group that the rate is of; empty where the constraint has none.
    rows: int
    value: float
    low: float  # Ends of its 95% interval by the sampling of these rows alone.
    high: float

    @property
    def reason(self) -> str:
        """The rows and the interval, as a verdict gives its reason."""
        where = f" of {self.group}" if self.group else ""
        interval = f", interval {self.low:.3f} to {self.high:.3f}" if np.isfinite(self.low) else ""
        return f"{_count_rows(self.rows)}{where}{interval}"

    def __str__(self) -> str:
        where = f" on {self.group}" if self.group else ""
        text = f"{self.constraint}{where}: {_count_rows(self.rows)}"
        if np.isfinite(self.low):
            text += f", {self.value:.3f} ({self.low:.3f} to {self.high:.3f})"
        return text


def _count_rows(n: int) -> str:
    return f"{n:,} row{'s' * (n != 1)}"


def find_too_few_rows(
    cells: Cells,
    compiled: LinearConstraints,
    counts: CellCounts,
    functionals: Float,
    intervals: Float,
    of_functionals: Float,
) -> list[TooFewRows]:
    """Find the rates that are taken over too few rows to assess their constraints.

    The bound of such a constraint lies inside the interval of its value, by the sampling of rows
    alone. Besides, the rate is taken over fewer than 20 rows, or its interval reaches further than
    0.15 to either side, or not even rows without a single event would confirm the bound
    (:func:`~gbm_constrained.statistics.order_statistics.minimum_rows`). Costs, which have units of
    their own, need 20 rows alone. Mean losses, and constraints that no decision violates, are left
    out.
    """
    values = compiled.values(functionals)
    found = []
    for j, (constraint, span) in enumerate(zip(compiled.constraints, compiled.spans, strict=True)):
        if constraint.kinds == {"loss"} or constraint.is_always_met:
            continue
        ends = intervals[j]
        if constraint.expression.is_quotient:
            n = rows_of_smallest_group(cells, compiled, j, counts)
            rate = TooFewRows(constraint, "", n, float(values[j]), *map(float, ends))
            if _is_open(rate, ends, minimum=0):
                found.append(rate)
            continue
        names = [str(group) for group in compiled.groups[j] for _ in constraint.rates]
        names += [""] * (span.stop - span.start - len(names))  # Those of all rows.
        for k, name in enumerate(names, span.start):
            n, own = rows_of_functional(cells, compiled, k), of_functionals[k]
            rate = TooFewRows(constraint, name, n, float(functionals[k]), *map(float, own))
            interval = own if constraint.expression.bounds_each_rate else ends
            if _is_open(rate, interval, minimum=_minimum_rows(constraint)):
                found.append(rate)
    return found


def _minimum_rows(constraint: Constraint) -> int:
    """Count the rows without a single event that would confirm the bound of one rate."""
    rate, bound = constraint.rates[0], constraint.bound
    room = bound if constraint.sense == "<=" else 1.0 - bound
    is_plain = [a for a, _ in rate.terms] == [1.0] and not rate.constant
    is_one = constraint.expression.bounds_each_rate and len(constraint.rates) == 1
    if not is_one or not is_plain or rate.terms[0][1].event.kind == "cost":
        return 0
    return minimum_rows(room, 2.0 * SIGNIFICANCE) if 0.0 < room < 1.0 else 0


def _is_open(rate: TooFewRows, interval: Float, minimum: int) -> bool:
    """Whether a rate leaves its constraint open, for want of rows."""
    low, high = interval  # Ends may be infinite for a quotient.
    if not np.isnan(interval).any() and not low <= rate.constraint.bound <= high:
        return False
    if rate.rows < max(MIN_ROWS, minimum):
        return True
    has_costs = "cost" in rate.constraint.kinds
    return not has_costs and bool((rate.high - rate.low) / 2.0 > 0.15)


def rows_of_constraint(cells: Cells, compiled: LinearConstraints, j: int) -> int:
    """Count the rows with weight that any term of a constraint is taken over, in any group.

    Of several amounts, the one that most rows have counts.
    """
    constraint, groups, found = compiled.constraints[j], compiled.groups[j], []
    for amount, view in cells.views_by_amount(j).items():
        inside = np.zeros(len(view), dtype=bool)
        for term in (term for term in constraint.terms if term.amount == amount):
            inside |= cells.select(view, term.base)
            if term.event.kind == "pair":
                inside |= cells.select(view, term.other_base)
        if groups and not constraint.expression.compares_with_overall:
            levels = frozenset[int]().union(*(group.levels for group in groups))
            inside &= np.isin(view.levels[groups[0].by], list(levels))
        found.append(int(cells.weighted_count[view.cells][inside].sum()))
    return max(found)


def rows_of_functional(cells: Cells, compiled: LinearConstraints, k: int) -> int:
    """Count the rows that a functional is taken over: the fewest of its parts, and of sides."""
    if compiled.V[[k]].nnz:  # The functional is a mean loss.
        return int(cells.weighted_count[compiled.V[[k]].indices].sum())
    bases = [base for part in compiled.terms[k] or () for base in part.bases]
    return int(min((cells.weighted_count[base].sum() for base in bases), default=0))


def rows_of_smallest_group(
    cells: Cells, compiled: LinearConstraints, j: int, counts: CellCounts | None
) -> int:
    """Count the rows of a constraint's smallest group, or those inside of a quotient.

    Without the counts of decisions, the rows of a quotient are those of its terms.
    """
    if compiled.constraints[j].expression.is_quotient:
        if counts is None:
            return rows_of_constraint(cells, compiled, j)
        return int(rows_of_quotient(compiled, j, counts))
    span = compiled.spans[j]
    return min(rows_of_functional(cells, compiled, k) for k in range(span.start, span.stop))


def rows_of_quotient(compiled: LinearConstraints, j: int, counts: CellCounts) -> Float:
    """Count the rows that decisions put into a quotient, such as those selected of a precision.

    The rows of the numerator count as well: few losses are the aim of wins over losses. A constant
    is a part of every row, which an error takes out of ``1 - error_rate``.
    """
    inside = np.zeros(counts.count.shape[-2:], dtype=bool)
    span = compiled.spans[j]
    for parts, constant in zip(compiled.parts[span], compiled.constant[span], strict=True):
        blocks = blocks_of(parts or ())
        for block in blocks:
            nothing = round(-float(constant) / len(blocks), 12)
            inside[block.cells] |= ~block.reaches(nothing)
    return np.asarray((counts.count * inside).sum(axis=(-2, -1)))


@dataclass(frozen=True)
class ConstraintResult:
    """Value, interval and verdict of one constraint under the model returned."""

    constraint: Constraint
    value: float  # Value on the rows that are reported.
    low: float  # Ends of its 95% interval.
    high: float
    rows: int  # Rows of the smallest group, or those that decisions put into a quotient.
    verdict: Verdict  # Its text is ``str(verdict)``.
    alone: float = np.nan  # Best value of any decision of the model, for constraints in conflict.
    with_others: float = np.nan  # Best value while the others in conflict are satisfied.
    trained: float = np.nan  # Value on training rows, where these refute the constraint.
    given_up_for: tuple[Constraint, ...] = ()  # Constraints of priorities that come first.
    unshifted: float = np.nan  # Value without the shift, for mean losses that the shift breaks.

    @property
    def is_met(self) -> bool:
        """Whether the value is within the bound."""
        sign, bound = self.constraint.sign, self.constraint.bound
        return bool(sign * self.value <= sign * bound + ROUNDING)

    def __str__(self) -> str:
        known = f"{self.value:.4f}" if np.isfinite(self.value) else "undefined"
        interval = f" ({self.low:.4f} to {self.high:.4f})" if np.isfinite(self.low) else ""
        few = f", of {_count_rows(self.rows)}" if self.rows < MIN_ROWS else ""
        return f"{known}{interval}{few}"


def assess_constraint(
    rows: tuple[Cells, LinearConstraints],
    j: int,
    estimate: Estimate,
    source: str = "",
    *,
    doubt: str = "",
    conflict: Sequence[Constraint] = (),
    counts: CellCounts | None = None,
) -> ConstraintResult:
    """Assess one constraint by an estimate of its value on rows that `source` names.

    `doubt` and `conflict` are those of :meth:`Verdict.of`. With `counts` of decisions, the rows of
    a quotient are those inside of it.
    """
    cells, compiled = rows
    constraint, n = compiled.constraints[j], rows_of_constraint(cells, compiled, j)
    verdict = Verdict.of(
        constraint,
        estimate,
        n,
        source,
        doubt=doubt,
        conflict=conflict,
        left_out=compiled.left_out(j),
    )
    n_rows = rows_of_smallest_group(cells, compiled, j, counts)
    return ConstraintResult(constraint, *estimate, n_rows, verdict)


def describe_rows(n_rows: int, source: str) -> str:
    """Describe the rows that a model is assessed by."""
    if source == TRAINING_ROWS:
        return f"{n_rows:,} {TRAINING_ROWS}"
    return f"{n_rows:,} unseen rows ({source})"


MAX_EXCESS_ERROR = 0.03  # Share of rows decided wrongly beyond what constraints should cost.


@dataclass(frozen=True)
class Cost:
    """Errors that constraints cost, on the rows that the model was chosen by."""

    error: float = np.nan  # Error of the model returned, at its own threshold.
    # Error of the best group-wise decisions on its scores that meet the constraints; NaN if none.
    needed_error: float = np.nan
    # Error of boosters without multipliers, or else of the best group-wise decisions.
    unconstrained_error: float = np.nan
    noise: float = np.nan  # Standard error of `needed_error`.
    costliest: str = ""  # Constraint that costs most, if they cost more than they should.
    error_without_costliest: float = np.nan  # Error of the best threshold without it.
    rows: str = ""  # Number and name of the rows.
    objective: str = "error"  # What all errors are; with a metric its loss.
    decisions: str = "thresholds for each group"  # Which ones need `needed_error`.
    # Whether these are no errors, but shares of the deviance that a regressor leaves unexplained.
    is_of_numbers: bool = False

    @property
    def is_costly(self) -> bool:
        """Whether the constraints cost more errors than they should."""
        excess_error = self.error - self.needed_error
        return bool(excess_error > max(MAX_EXCESS_ERROR, 2.0 * self.noise))


def measure_cost_of_numbers(rows: PredictedRows, score: Array) -> Cost:
    """Measure what constraints cost a regressor beside its own model, on the same rows.

    Shares are of the deviance, the mean loss beyond that of perfect predictions: one minus
    :math:`R^2` for the squared error.
    """
    plain, (least, deviance) = rows.plain_score, find_deviance(rows.lagrangian.rows)
    assert plain is not None
    more, noise = rows.compare_losses(score, plain)
    free = (rows.measure_scores(plain)[0] - least) / deviance
    where = describe_rows(rows.cells.n_rows, rows.source)
    return Cost(
        free + more / deviance, free, free, noise / deviance, rows=where, is_of_numbers=True
    )


def measure_cost(
    rows: EvaluationSet,
    margin: Array,
    shift: Float,
    bounds: Float,
    error: float,
    unconstrained_error: float,
) -> Cost:
    """Measure the errors that constraints cost on the rows that the model was chosen by.

    `margin` are the scores under the prefix that is returned, without the `shift`. `bounds` are
    the right-hand sides that decisions had to meet. `unconstrained_error` is that of boosters
    without multipliers, NaN if there are none.
    """
    cells, compiled = rows.cells, rows.compiled
    group_thresholds = GroupThresholds(cells, compiled, margin, shift)
    needed, _ = group_thresholds.find_error_and_prices(bounds)
    if np.isnan(unconstrained_error):
        free = np.full_like(bounds, np.inf)
        unconstrained_error, _ = group_thresholds.find_error_and_prices(free)
    noise = standard_error_of(needed, cells.n_rows)
    where = describe_rows(cells.n_rows, rows.source)
    found = Cost(error, needed, unconstrained_error, noise, rows=where)
    names, owners = compiled.names, np.unique(compiled.owner)
    if not found.is_costly or margin.ndim > 1:
        return found
    search = ShiftSearch(margin, cells, compiled)
    without = [
        search.find(bounds=np.where(compiled.owner == j, np.inf, bounds)).error for j in owners
    ]
    least = int(np.argmin(without))
    return replace(found, costliest=names[owners[least]], error_without_costliest=without[least])


# An audited model is not being trained.
AUDIT_REMEDIES = {
    "GC103": "Fit a model under the constraint, audit another model, or state a bound that this "
    "one meets.",
    "GC111": "Audit more rows, or fit a model under a tighter bound, which leaves room.",
    "GC112": "Audit more rows, or merge small groups.",
    "GC113": "Audit rows that the rate is taken over.",
}


def findings_of_audit(frame: pd.DataFrame, drifting: Sequence[str] = ()) -> tuple[Finding, ...]:
    """List the findings of an audit, by its table of constraints, ordered by code.

    `drifting` names the constraints that drift.
    """
    verdict, is_undefined = frame["verdict"], frame["value"].isna()
    found = {
        "GC103": verdict == "missed",
        "GC111": verdict == "missed within sampling error",
        "GC112": (verdict == "cannot be told") & ~is_undefined,
        "GC113": (verdict == "cannot be told") & is_undefined,
        "GC121": pd.Series([bool(drifting)]),
    }
    return tuple(
        FINDINGS[code]._replace(remedy=AUDIT_REMEDIES.get(code, FINDINGS[code].remedy))
        for code, is_found in found.items()
        if is_found.any()
    )
