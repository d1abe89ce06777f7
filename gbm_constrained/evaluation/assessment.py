"""From a returned model and its held-out rows to verdicts, feasibility and messages.

Each constraint has a verdict on the rows that are reported
(:mod:`gbm_constrained.evaluation.verdicts`), and the gravest of them is the status of the fit. A
constraint cannot be met if each decision *of this model* violates some constraint beyond doubt
(:mod:`gbm_constrained.evaluation.assessment`), which does not prove that no model meets all. Where
that is not proved of the decisions of several classes, none was found that meets the constraints.
Constraints that are met may still be **fragile**: the decisions are hardly better than a constant
one, while the model without constraints gains much more (:mod:`.assessment`). Verdicts on
constraints that are measured on training rows are optimistic.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import astuple, dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import norm

from gbm_constrained._findings import FINDINGS, Finding, issue_warning
from gbm_constrained._messages import MOST_NAMED
from gbm_constrained._typing import Bool, Codes, Float
from gbm_constrained.constraints.base import ROUNDING, Constraint
from gbm_constrained.constraints.rates import row_functions_of
from gbm_constrained.constraints.selectors import to_python_scalar
from gbm_constrained.data.splits import LATER_PERIODS
from gbm_constrained.decision.choose import SIGNIFICANCE, Prefixes
from gbm_constrained.decision.evaluation_set import (
    Estimate,
    EvaluationSet,
    Outcome,
    PlainModel,
    ScoredRows,
)
from gbm_constrained.decision.groups import N_CANDIDATES
from gbm_constrained.decision.guarantees import violation_p_values
from gbm_constrained.decision.rules import Choice, shift_scores
from gbm_constrained.decision.search import ShiftSearch, spread_thresholds
from gbm_constrained.decision.violations import MIN_ROWS, ViolationBound, standard_errors
from gbm_constrained.evaluation import verdicts
from gbm_constrained.exceptions import (
    CostlyConstraintsWarning,
    FragileConstraintsWarning,
    InfeasibleConstraintsError,
    InfeasibleConstraintsWarning,
    MissedConstraintsWarning,
)
from gbm_constrained.problem.linear_constraints import (
    LinearConstraints,
    compares_groups,
    find_first,
    find_first_constraints,
)
from gbm_constrained.statistics.counts import CellCounts, functionals_of
from gbm_constrained.statistics.p_values import find_violated_rows

__all__ = ["Feasibility"]


class Message(NamedTuple):
    """The words of one finding; fields in braces are facts of the finding."""

    lead: str  # Finding; ``{rows}`` names the rows.
    line: str = ""  # Line for each constraint that the finding is about.
    remedy: str = ""
    lead_missed: str = ""  # Own lead of constraints whose value is beyond the bound.


_BY_FOLDS = (
    "on {rows}, by boosters of parts of the rows. The model returned, trained on all of them, "
    "breaks them by its own training rows:"
)
_DIFFER = (
    "what each does on its fold differs by more than chance, and the model returned is one more "
    "of them:"
)
_COSTLY = (
    "The constraints cost more than they should, on {rows}: the model returned has an {objective} "
    "of {error:.4f}, {unconstrained_error:.4f} without constraints, and {decisions} on the same "
    "scores would meet the constraints with {needed_error:.4f}."
)
_MISSED = Message(
    "The model returned misses constraints beyond sampling error, on {rows}:",
    "{constraint}: {result}, {verdict}",
    "Relax the bounds, or give more boosting rounds.",
)
MESSAGES = {
    "met": Message("All constraints are met, on {rows}."),
    "missed": _MISSED,
    "missed by numbers": _MISSED._replace(
        remedy="Relax the bounds, merge small groups (min_group_size= with small_groups='merge'), "
        "or let predictions use the group (group_shifts=True)."
    ),
    "missed within sampling error": Message(
        "The model returned misses constraints within sampling error, on {rows}:",
        "{constraint}: {result}, {verdict}",
        "More rows would decide, and a tighter bound leaves room.",
    ),
    "violations left": Message(
        "Violations are left that cost more errors to mend than they are worth, on {rows}:",
        "{constraint}: {result}",
        "Other decisions of this model bring all constraints to within sampling error, and none "
        "was found that meets them all. Relax the bounds, or give more boosting rounds.",
    ),
    "broken by the shift": Message(
        "The shift of the scores, by which other constraints are met, breaks these constraints on "
        "mean losses, on {rows}:",
        "{constraint}: {result}, and {unshifted:.4f} without the shift",
        "Keep the shift beside the model, and its probabilities as trained, by "
        "probabilities='calibrated', or relax the bounds.",
    ),
    "undefined": Message(
        "The values of constraints are undefined, on {rows}:",
        "{constraint}",
        "A rate has no value over no rows, as the precision of a class that is never predicted. "
        "Give rows that the rate is taken over, or bound from below how often the class is "
        "predicted.",
    ),
    "refuted": Message(
        f"These constraints hold {_BY_FOLDS}",
        "{constraint}: {result}, and {trained:.4f} by training rows",
        "Boosters of fewer rows are other models here. Give more rows, let leaves be smaller, or "
        "have the model itself measured: by guarantee= or an eval_set.",
        f"These constraints are missed {_BY_FOLDS}",
    ),
    "unsteady": Message(
        f"The boosters of the folds meet these constraints together, but {_DIFFER}",
        "{constraint}: {result}",
        "More boosting rounds, a smaller learning_rate, or more rows and columns for each tree "
        "may bring them together.",
        f"The boosters of the folds miss these constraints together, and {_DIFFER}",
    ),
    "unsteady over time": Message(
        f"The boosters of the windows meet these constraints together, but {_DIFFER}",
        "{constraint}: {result}",
        "The period that a booster is measured on differs as well: period_report_ shows whether "
        "the values move with time. A smaller n_folds makes longer windows.",
        f"The boosters of the windows miss these constraints together, and {_DIFFER}",
    ),
    "drifting": Message(
        "The last period is outside of the interval that earlier ones leave (period_report_) for:",
        "{constraint}",
        "Train on recent rows again, and audit the model by time.",
    ),
    "fragile": Message(
        "Fragile: the constraints {hold} only by decisions that are hardly better than always "
        "class {constant_class!r}: {objective} {error:.4f}, against {constant_error:.4f} of that, "
        "and {free_error:.4f} of this model without constraints, on {rows}.",
        "{constraint}: {result}",
        "Relax the bounds{more_rows}.",
    ),
    "fragile numbers": Message(
        "Fragile: under the constraints, predictions are hardly better than the mean target. They "
        "explain {share:.3f} of the deviance, and {free:.3f} without constraints, on {rows}.",
        "{constraint}: {result}",
        "Relax the bounds, or merge small groups (min_group_size= with small_groups='merge').",
    ),
    "costly numbers": Message(
        "The constraints cost much of what the model explains, on {rows}: it explains {share:.3f} "
        "of the deviance, and {free:.3f} without constraints (cost_report_).",
        remedy="Relax the bounds, merge small groups (min_group_size= with small_groups='merge'), "
        "or let the predictions of boosters use the group (group_shifts=True).",
    ),
    "not certified": Message(
        "Not certified: {named}. Of the {choices} none passes on {rows}: "
        "the smallest p-value is {p_value:.2g}, and guarantee='high_probability' needs "
        "{level:.2g}.",
        remedy="Relax {bound} or delta, or give more rows to certify on",
    ),
    "cannot be met": Message(
        "Cannot be met: no decision that this model can make meets {named}, not even within "
        "sampling error, on {rows}.",
        remedy="Relax {bound}, or drop {dropped}",
    ),
    "none was found": Message(
        "Not met: no decision of this model was found that meets {named}, not even within "
        "sampling error, on {rows}. There may be one.",
        remedy="Relax {bound}, or drop {dropped}",
    ),
    "costly": Message(
        _COSTLY,
        "The constraint that costs most is {costliest}: without it a threshold has an error of "
        "{error_without_costliest:.4f}.",
        "Give more boosting rounds or a larger learning_rate, or relax {relaxed}.",
    ),
    "costly together": Message(
        _COSTLY, remedy="Give more boosting rounds or a larger learning_rate, or relax {relaxed}."
    ),
    "too few rows": Message(
        "Too few rows to assess whether the constraints hold:",
        remedy="Give more rows, {merge}or relax the bounds.",
    ),
    "training rows": Message(
        "Training rows are optimistic: new rows may miss constraints that are met there."
    ),
    "margin": Message(
        "Training and choices aimed inside of each bound, by up to {margin:g} standard error(s)."
    ),
    "fewer rounds": Message("Training ended after {trained} of {asked} rounds."),
}


def describe(
    name: str, results: Sequence[verdicts.ConstraintResult] | None = None, **facts: object
) -> str:
    """Describe a finding, by its key in :data:`MESSAGES`; empty if it is on no constraints."""
    message, lines = MESSAGES[name], list[str]()
    if results is None:
        texts = message.lead, message.line, message.remedy
        return "\n".join(text.format(**facts) for text in texts if text)
    parts = [(message.lead, results)]
    if message.lead_missed:
        parts = [
            (message.lead, [result for result in results if result.is_met]),
            (message.lead_missed, [result for result in results if not result.is_met]),
        ]
    for lead, found in parts:
        if found:
            lines.append(lead.format(**facts))
            lines += [
                f"  {message.line.format(result=result, **vars(result))}" for result in found
            ]
    return "\n".join([*lines, message.remedy.format(**facts)]) if lines else ""


def describe_missing_guarantee(asked: str) -> str:
    """Say that a guarantee, "expected" or "high_probability", is not given."""
    return f"guarantee={asked!r} was asked for and is not given"


def describe_cost(cost: verdicts.Cost) -> str:
    """Describe the errors that constraints cost; empty unless they cost more than they should."""
    if not cost.is_costly:
        return ""
    if cost.is_of_numbers:
        share, free = 1.0 - cost.error, 1.0 - cost.unconstrained_error
        return describe("costly numbers", rows=cost.rows, share=share, free=free)
    is_known = bool(cost.costliest)
    return describe(
        "costly" if is_known else "costly together",
        relaxed=f"the bound of {cost.costliest}" if is_known else "a bound",
        **vars(cost),
    )


def is_measured(compiled: LinearConstraints, counts: CellCounts) -> Bool:
    """Find the constraints that decisions put enough rows into, if they are quotients."""
    measured = np.ones((*counts.count.shape[:-2], len(compiled.constraints)), dtype=bool)
    for j, constraint in enumerate(compiled.constraints):
        if constraint.expression.is_quotient:
            measured[..., j] = verdicts.rows_of_quotient(compiled, j, counts) >= MIN_ROWS
    return measured


class DecisionPool:
    """Decisions that a model can make, and the constraints that each meets up to sampling error.

    `choice` is the least violating decision, which is the first of the pool.

    Attributes
    ----------
    is_proved : bool
        Whether no decision meets the constraints in conflict. Otherwise none was found.
    """

    def __init__(self, scored: ScoredRows, candidates: Sequence[int], choice: Choice) -> None:
        self.rows, self.margins = scored.rows, scored.margins
        cells, compiled = self.rows.cells, self.rows.compiled
        n_classes = cells.classes.size
        self.n_constraints = len(compiled.constraints)
        # A constraint of many rows, as a gap, is refuted by any of them.
        self.levels = SIGNIFICANCE / np.bincount(compiled.owner)[compiled.owner]
        self.functionals = np.zeros((0, compiled.constant.size))
        self.measured = np.zeros((0, self.n_constraints), dtype=bool)
        self.reached = np.zeros((0, self.n_constraints), dtype=bool)
        self.is_proved = n_classes == 2
        if self.is_proved:
            # Some seconds take about 30 million times the rows of a threshold search.
            self.left = int(np.clip(30_000_000 // cells.n_rows, 36, 600))
            self.searched = candidates
        else:  # Longer searches, half a second each, of the longest prefix and the one chosen.
            self.left = 4
            self.searched = sorted({choice.rounds, candidates[-1]})
            rng = np.random.default_rng(0)
            drawn = rng.normal(size=(N_CANDIDATES, n_classes))
            drawn *= rng.exponential(2.0, (N_CANDIDATES, 1))
        self.of_choice = self._add_shifted(choice.rounds, [choice.shift])
        for prefix in candidates:
            if self.reached.all(axis=1).any():
                return  # All can be met together, whatever other decisions do.
            if self.is_proved:  # Thresholds are dense where either class has its scores.
                margin = self.margins(prefix)
                thresholds = spread_thresholds(margin, cells, N_CANDIDATES)
                self._add(CellCounts.at_thresholds(cells, margin, thresholds))
            else:  # Each class always, none, and random shifts.
                alone = 1e6 * np.eye(n_classes)
                self._add_shifted(prefix, [*alone, np.zeros(n_classes), *drawn])

    def _add_shifted(self, prefix: int, shifts: Sequence[Float]) -> CellCounts:
        """Add the decisions of shifted scores, and return the counts of the first ones."""
        margin = self.margins(prefix)
        found = [self.rows.counts(self.rows.decisions(shift_scores(margin, x))) for x in shifts]
        self._add(CellCounts(*map(np.stack, zip(*map(astuple, found), strict=True))))
        return found[0]

    def _add(self, counts: CellCounts) -> None:
        compiled = self.rows.compiled
        measured = is_measured(compiled, counts)
        reached = measured.copy()
        beyond = find_violated_rows(compiled, counts, self.levels, one_test_each=True)
        for j in range(self.n_constraints):
            reached[:, j] &= ~beyond[:, compiled.owner == j].any(axis=1)
        found = functionals_of(compiled, counts)
        self.functionals = np.concatenate([self.functionals, found])
        self.measured = np.concatenate([self.measured, measured])
        self.reached = np.concatenate([self.reached, reached])

    def conflict(self) -> tuple[int, ...]:
        """Find constraints that no decision meets together: the fewest, as far as is proved."""
        every = tuple(range(self.n_constraints))
        if not self.is_proved and (refuted := self._find_refuted()):
            self.is_proved = True
            return refuted
        if self._can_meet(every):
            return ()
        # Either no decision meets the fewest constraints that no known one does, or a further
        # decision is found that does. Each turn therefore has another answer, or is the last.
        while True:
            missed = np.unique(~self.reached, axis=0)
            if not missed.any(axis=1).all():
                return ()
            fewest = _smallest_cover(missed)
            if self.left <= 0:
                self.is_proved = False
                return fewest
            if not self._can_meet(fewest):
                return fewest

    def _find_refuted(self) -> tuple[int, ...]:
        """Find constraints that a bound refutes on each prefix; none can be left out."""
        rows = self.rows
        compiled, refuted = rows.compiled, np.zeros(self.n_constraints, dtype=bool)
        found = [
            ViolationBound.of(self.margins(prefix), rows.cells, compiled)
            for prefix in self.searched
        ]
        limits = [limit for limit in found if limit is not None]
        if len(limits) < len(found):
            return ()
        bounds = compiled.b + norm.isf(self.levels) * standard_errors(compiled, self.of_choice)

        def refute(kept: Bool) -> Bool | None:
            """Find the constraints with multipliers; None where a decision may meet them."""
            named = np.zeros(self.n_constraints, dtype=bool)
            if self.reached[:, kept].all(axis=1).any():
                return None
            for limit in limits:
                priced = limit.find_refuted(np.where(kept[compiled.owner], bounds, np.inf))
                if priced is None:
                    return None
                named[compiled.owner[priced]] = True
            return None if self.reached[:, named].all(axis=1).any() else named

        fewer = refute(~refuted)
        if fewer is None:
            return ()
        refuted = fewer
        for j in reversed(range(self.n_constraints)):
            if refuted[j]:
                fewer = refute(refuted & (np.arange(self.n_constraints) != j))
                refuted = refuted if fewer is None else fewer
        return tuple(np.flatnonzero(refuted).tolist())

    def find_opponents(self, j: int, above: Sequence[int]) -> tuple[int, ...] | None:
        """Find the fewest of some constraints that one cannot be met together with.

        The result is None if it can be met together with all of them, or if that is not ruled out.
        """
        if self._can_meet((j, *above)):
            return None
        while True:
            missed = np.unique(~self.reached[self.reached[:, j]][:, above], axis=0)
            if not missed.any(axis=1).all():
                return None  # A further search has found a decision that meets them all.
            fewest = tuple(above[i] for i in _smallest_cover(missed))
            if self.left == 0:
                return tuple(above)
            if not self._can_meet((j, *fewest)):
                return fewest

    def _can_meet(self, subset: tuple[int, ...]) -> bool:
        """Whether a decision meets some constraints together, if others need not be."""
        if self.reached[:, subset].all(axis=1).any():
            return True
        compiled = self.rows.compiled
        bounds = np.where(np.isin(compiled.owner, subset), compiled.b, np.inf)
        for prefix in self.searched:
            if self.left == 0:
                return True  # No conflict is claimed that is not proved.
            self.left -= 1
            search = ShiftSearch(self.margins(prefix), self.rows.cells, compiled)
            found = search.find(bounds=bounds)
            self._add_shifted(prefix, [found.value])
            if self.reached[-1, subset].all():
                return True
        return False

    def best(self, j: int, conflict: Sequence[int]) -> tuple[float, float]:
        """Find the best value of a constraint in conflict, alone and while the others are met."""
        compiled = self.rows.compiled
        others = [i for i in conflict if i != j]
        met = self.reached[:, others].all(axis=1) & self.measured[:, j]
        values = np.full(len(self.measured), np.nan)
        for i in np.flatnonzero(self.measured[:, j]):
            values[i] = compiled.constraints[j].value(self.functionals[i, compiled.spans[j]])
        sign = compiled.constraints[j].sign

        def best(of: Float) -> float:
            known = of[np.isfinite(of)]
            return sign * float((sign * known).min()) if known.size else np.nan

        return best(values), best(values[met]) if others else np.nan


def _smallest_cover(missed: Bool, most_steps: int = 5000) -> tuple[int, ...]:
    """Find the fewest columns such that each row has one of them, by branch and bound.

    After too many steps the result is a set from which no column can be left out. No row of
    `missed` may be False throughout.
    """
    steps = 0

    def cover(rows: Bool, size: int) -> tuple[int, ...] | None:
        nonlocal steps
        steps += 1
        if len(rows) == 0:
            return ()
        if steps > most_steps or size * rows.sum(axis=0).max() < len(rows):
            return None
        for j in np.flatnonzero(rows[rows.sum(axis=1).argmin()]).tolist():
            others = cover(rows[~rows[:, j]], size - 1)
            if others is not None:
                return (j, *others)
        return None

    size = 0
    while steps <= most_steps:
        found = cover(missed, size)
        if found is not None:
            return tuple(sorted(found))
        size += 1
    kept = list(range(missed.shape[1]))
    for j in range(missed.shape[1]):
        fewer = [i for i in kept if i != j]
        if missed[:, fewer].any(axis=1).all():
            kept = fewer
    return tuple(kept)


@dataclass(frozen=True)
class Feasibility:
    """Whether the constraints of a fit can be met, and the values that were reached.

    Parameters
    ----------
    conflict : tuple of Constraint
        Smallest set of constraints that cannot be met together; empty if all can. With
        ``guarantee="high_probability"`` the constraints that are not certified. With priorities
        those that are given up, and those that they are given up for. Without `is_proved` the
        smallest set that no decision was found to meet.
    rules : tuple of ConstraintResult
        Value and verdict of each constraint; for those in conflict also their best values.
    too_few_rows : tuple of TooFewRows
        Rates over too few rows to assess their constraints.
    unsteady : tuple of ConstraintResult
        Constraints on which the boosters of the folds differ, and that part of the interval
        violates.
    error : float
        0-1 error of the model returned, on the rows of `source`. In all errors, classes have the
        weights of ``class_weight`` and ``scale_pos_weight``, as in the objective.
    constant_class : object
        Class of the best constant decision that meets the constraints; None if none does.
    constant_error : float
        Error of that decision; NaN if there is none.
    free_error : float
        Error of the best decision of the model without constraints; NaN if it was not needed.
    source : str
        Name of the rows that the model was assessed by: held-out ones such as "out of fold", or
        "training rows".
    n_rows : int
        Number of these rows.
    p_value, level : float, default=NaN
        With ``guarantee="high_probability"``: the p-value of the constraints, and the largest one
        that earns the certificate.
    refuted : tuple of ConstraintResult, default=()
        Constraints that the model returned violates on its own training rows, whether the boosters
        of the folds meet them or not.
    left : tuple of ConstraintResult, default=()
        Constraints that the model returned violates beyond doubt, although it can make decisions
        that bring all constraints to within sampling error, at more errors than that is worth.
    is_fragile : bool, default=False
        Whether the constraints leave a model that is hardly better than a constant decision.
    cost : Cost, default=Cost()
        Errors that the constraints cost, and should cost. Of a regressor, shares of the deviance
        that are left unexplained.
    plain : PlainModel, default=None
        Objective and values of the constraints of the library's own model on the rows of `source`;
        None where no such model was measured.
    drifting : tuple of ConstraintResult, default=()
        Constraints whose value in the last period is outside of what earlier periods leave.
    rounds_trained, rounds_asked : int, default=0
        Boosting rounds (iterations of a linear model) that were trained, and that were asked for.
        Fewer were trained where a callback or early stopping ended the fit.
    is_proved : bool, default=True
        Whether no decision of the model meets the constraints of `conflict`. Otherwise none was
        found, and their verdicts are those of their values.
    margin : float, default=0
        Standard errors inside of each bound that the fit aimed at (``guarantee=Margin(...)``).
        Verdicts are against the bounds themselves.
    """

    conflict: tuple[Constraint, ...]
    rules: tuple[verdicts.ConstraintResult, ...]
    too_few_rows: tuple[verdicts.TooFewRows, ...]
    unsteady: tuple[verdicts.ConstraintResult, ...]
    error: float
    constant_class: Any
    constant_error: float
    free_error: float
    source: str
    n_rows: int
    p_value: float = np.nan
    level: float = np.nan
    refuted: tuple[verdicts.ConstraintResult, ...] = ()
    left: tuple[verdicts.ConstraintResult, ...] = ()
    is_fragile: bool = False
    cost: verdicts.Cost = field(default_factory=verdicts.Cost)
    plain: PlainModel | None = None
    drifting: tuple[verdicts.ConstraintResult, ...] = ()
    rounds_trained: int = 0
    rounds_asked: int = 0
    is_proved: bool = True
    margin: float = 0.0

    @property
    def status(self) -> verdicts.Kind:
        """The gravest verdict: "met" exactly if each constraint is met on unseen rows."""
        kinds = (result.verdict.kind for result in self.rules)
        return max(kinds, key=verdicts.KINDS.index, default="met")

    @property
    def given_up(self) -> tuple[verdicts.ConstraintResult, ...]:
        """Constraints that are given up for others of priorities that come first."""
        return tuple(result for result in self.rules if result.given_up_for)

    def conflict_of(self, constraint: Constraint) -> tuple[Constraint, ...]:
        """List the constraints that one cannot be met together with, itself among them.

        Parameters
        ----------
        constraint : Constraint
            The constraint.

        Returns
        -------
        tuple of Constraint
            Empty for one that others are given up for, and where the conflict is not proved.
        """
        if not self.given_up:
            return self.conflict if self.is_proved else ()
        return next(
            ((constraint, *r.given_up_for) for r in self.given_up if r.constraint == constraint),
            (),
        )

    @property
    def undefined(self) -> tuple[verdicts.ConstraintResult, ...]:
        """Constraints whose values are undefined, beside conflicts and rates over too few rows."""
        named = {rate.constraint for rate in self.too_few_rows}.union(self.conflict)
        return tuple(
            result
            for result in self._with_verdict("cannot be told")
            if np.isnan(result.value) and result.constraint not in named
        )

    @property
    def broken_by_shift(self) -> tuple[verdicts.ConstraintResult, ...]:
        """Constraints on mean losses that are missed, or missed by more, due to the shift."""
        missed = self._with_verdict("missed")
        return tuple(result for result in missed if np.isfinite(result.unshifted))

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings, by the codes that ``docs/warnings.md`` explains."""
        kinds = {result.verdict.kind for result in self.rules}
        explained = {result.constraint for result in (*self.left, *self.broken_by_shift)}
        missed = (result.constraint for result in self._with_verdict("missed"))
        found = {
            "GC101": bool(self.conflict) and not self.p_value > self.level,
            "GC102": bool(self.conflict) and self.p_value > self.level,
            "GC103": not self.conflict and any(c not in explained for c in missed),
            "GC104": bool(self.left),
            "GC105": bool(self.broken_by_shift),
            "GC111": not self.conflict and "missed within sampling error" in kinds,
            "GC112": bool(self.too_few_rows),
            "GC113": bool(self.undefined),
            "GC114": bool(self.unsteady),
            "GC115": bool(self.refuted),
            "GC116": self.is_fragile,
            "GC117": self.cost.is_costly,
            "GC118": any(result.verdict.source == verdicts.TRAINING_ROWS for result in self.rules),
            "GC119": self.rounds_trained < self.rounds_asked,
            "GC121": bool(self.drifting),
        }
        return tuple(FINDINGS[code] for code, is_found in found.items() if is_found)

    @property
    def message(self) -> str:
        """The findings in plain words, one line for each constraint that is not met."""
        within = () if self.conflict else self._with_verdict("missed within sampling error")
        reported = self._reported_rows
        found = [
            self._conflict_message or self._fragile_message,
            describe_cost(self.cost),
            *self._doubts,
            *self._misses,
            describe("missed within sampling error", within, rows=reported),
        ]
        lines = [*filter(None, found)] or [describe("met", rows=reported)]
        if any(result.verdict.source == verdicts.TRAINING_ROWS for result in self.rules):
            lines.append(describe("training rows"))
        if self.margin:
            lines.append(describe("margin", margin=self.margin))
        if self.rounds_trained < self.rounds_asked:
            trained, asked = self.rounds_trained, self.rounds_asked
            lines.append(describe("fewer rounds", trained=trained, asked=asked))
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.message

    def add_training_evidence(self, values: Float, is_violated: Bool) -> Feasibility:
        """Add what the training rows of the model returned say against constraints.

        Parameters
        ----------
        values : ndarray of shape (n_constraints,)
            Value of each constraint by the training rows.
        is_violated : ndarray of shape (n_constraints,), bool
            Whether the training rows refute each constraint.
        """
        refuted, rules = [], list(self.rules)
        for j in np.flatnonzero(is_violated):
            refuted.append(replace(rules[j], trained=float(values[j])))
            reason = f"the model breaks the constraint on its training rows, {values[j]:.4f}"
            rules[j] = replace(rules[j], verdict=rules[j].verdict.with_doubt(reason))
        return replace(self, rules=tuple(rules), refuted=tuple(refuted))

    def warn(self, raises: bool) -> None:
        """Warn of the findings, or raise if constraints cannot be met.

        Parameters
        ----------
        raises : bool
            Whether constraints that cannot be met are an error.

        Raises
        ------
        InfeasibleConstraintsError
            If constraints cannot be met and `raises` is set.
        """
        conflict = self._conflict_message
        found: list[tuple[str, type[Warning]]] = [
            ("\n".join(filter(None, [self._fragile_message, *self._doubts])),
             FragileConstraintsWarning),
            ("\n".join(filter(None, self._misses)), MissedConstraintsWarning),
            (describe_cost(self.cost), CostlyConstraintsWarning),
            ("" if raises else conflict, InfeasibleConstraintsWarning),
        ]  # fmt: skip
        for text, category in found:
            if text:
                issue_warning(text, *(f.code for f in self.findings if f.category is category))
        if conflict and raises:
            raise InfeasibleConstraintsError(conflict, self)

    @property
    def _rows(self) -> str:
        return verdicts.describe_rows(self.n_rows, self.source)

    @property
    def _reported_rows(self) -> str:
        """The rows that the verdicts are about, which may be those of an evaluation set."""
        sources = list(dict.fromkeys(result.verdict.source for result in self.rules))
        if sources == [self.source]:
            return self._rows
        return " and ".join(
            s if s == verdicts.TRAINING_ROWS else f"unseen rows ({s})" for s in sources
        )

    def _with_verdict(self, kind: verdicts.Kind) -> list[verdicts.ConstraintResult]:
        return [result for result in self.rules if result.verdict.kind == kind]

    @property
    def _conflict_message(self) -> str:
        """Constraints that cannot be met, or certified, together; empty if there are none."""
        conflict = self.conflict
        if not conflict:
            return ""
        is_uncertified = self.p_value > self.level
        name = "cannot be met" if self.is_proved else "none was found"
        message = MESSAGES["not certified" if is_uncertified else name]
        named, bound, dropped = " and ".join(map(str, conflict)), "this bound", "the constraint"
        together = len(conflict) > 1
        if together:
            named, bound = f"{named} together", "one of these bounds"
            dropped = "one of these constraints"
        of_numbers = bool(row_functions_of(conflict))
        choices = "decisions that this model can make, other than one decision for all rows,"
        facts = {
            "named": named,
            "rows": self._rows,
            "choices": "maps of the scores" if of_numbers else choices,
            "p_value": self.p_value,
            "level": self.level,
        }
        lines = [message.lead.format(**facts)]
        others = "the other holds" if len(conflict) == 2 else "the others hold"
        reached = {result.constraint: result for result in self.rules}
        for constraint in conflict:
            result, best = reached[constraint], ""
            if np.isfinite(result.alone):
                best += f"at best {result.alone:.4f}{' alone' if together else ''}, "
            if np.isfinite(result.with_others):
                best += f"{result.with_others:.4f} while {others}, "
            lines.append(f"  {constraint}: {best}{result} in the model returned")
        lines += [
            f"  {result.constraint}: {result} in the model returned, {result.verdict}"
            for result in self.rules
            if result.constraint not in conflict
        ]
        least = "violates the constraints least"
        if is_uncertified:
            least = "is the one without the guarantee"
        # A quotient of few rows, such as precision on none selected, is met in name only.
        if any(c.expression.is_quotient and reached[c].rows < MIN_ROWS for c in conflict):
            few = f"fewer than {MIN_ROWS} rows in a quotient"
            least = f"has {few}, and meets a constraint in name only"
        if self.given_up:
            given_up = (
                f"{result.constraint} for {' and '.join(map(str, result.given_up_for))}"
                for result in self.given_up
            )
            least = f"gives up {', and '.join(given_up)}"
        its_error = "" if of_numbers else f"; its error is {self.error:.4f}"
        lines.append(
            f"The model returned {least}{its_error}. "
            f"{message.remedy.format(bound=bound, dropped=dropped)}. If a violation still falls "
            f"at the end of history_, more boosting rounds may help."
        )
        return "\n".join(lines)

    @property
    def _fragile_message(self) -> str:
        if not self.is_fragile:
            return ""
        if self.cost.is_of_numbers:
            share, free = 1.0 - self.cost.error, 1.0 - self.cost.unconstrained_error
            return describe("fragile numbers", self.rules, share=share, free=free, rows=self._rows)
        more = ", or give more rows to certify on, if it is these that leave no room"
        is_met = all(result.is_met for result in self.rules)
        return describe(
            "fragile",
            self.rules,
            hold="hold" if is_met else "are met to within sampling error",
            constant_class=self.constant_class,
            objective=self.cost.objective,
            error=self.error if self.cost.objective == "error" else self.cost.error,
            constant_error=self.constant_error,
            free_error=self.free_error,
            rows=self._rows,
            more_rows=more if np.isfinite(self.p_value) else "",
        )

    @property
    def _doubts(self) -> list[str]:
        is_over_time, too_few = self.source == LATER_PERIODS, ""
        if self.too_few_rows:
            shown, more = self.too_few_rows[:MOST_NAMED], len(self.too_few_rows) - MOST_NAMED
            lines = [MESSAGES["too few rows"].lead, *(f"  {rate}" for rate in shown)]
            lines += [f"  and {more} more"] * (more > 0)
            has_groups = any(rate.group for rate in self.too_few_rows)
            merge = "merge small groups (small_groups='merge'), " if has_groups else ""
            too_few = "\n".join([*lines, MESSAGES["too few rows"].remedy.format(merge=merge)])
        return [
            too_few,
            describe("undefined", self.undefined, rows=self._reported_rows),
            describe("unsteady over time" if is_over_time else "unsteady", self.unsteady),
            describe("refuted", self.refuted, rows=self._rows),
            describe("drifting", self.drifting),
        ]

    @property
    def _misses(self) -> list[str]:
        named = {result.constraint for result in (*self.left, *self.broken_by_shift)}
        others = [r for r in self._with_verdict("missed") if r.constraint not in named]
        of_numbers = row_functions_of([result.constraint for result in self.rules])
        missed = "missed by numbers" if of_numbers else "missed"
        return [
            describe("broken by the shift", self.broken_by_shift, rows=self._rows),
            describe("violations left", self.left, rows=self._rows),
            # A conflict names all constraints.
            describe(missed, () if self.conflict else others, rows=self._reported_rows),
        ]


FRAGILE_ERROR = 0.8  # Share of a constant decision's error above which decisions are fragile.
FRAGILE_GAIN = 0.5  # Share of the unconstrained gain over it below which decisions are fragile.


@dataclass(frozen=True)
class ReturnedModel:
    """The model that a fit returns, and its decisions and values on the rows that are reported."""

    choice: Choice
    rows: EvaluationSet  # The rows that are reported: those that chose, or certification rows.
    decisions: Codes  # Decisions of the model on these rows.
    outcome: Outcome  # Values of the constraints there.
    bounds: Float | None = None  # Tighter right-hand sides of ``guarantee="expected"``.
    is_unconstrained: bool = False  # Whether the model is the one without constraints.

    @property
    def has_guarantee(self) -> bool:
        """Whether a guarantee was asked for and is given."""
        is_expected = self.bounds is not None and not self.misses_conformal_bounds
        return self.choice.is_certified or is_expected

    @property
    def misses_conformal_bounds(self) -> bool:
        """Whether ``guarantee="expected"`` was asked for and is not given."""
        return self.bounds is not None and self.choice.violation > 0.0

    @property
    def keeps(self) -> Bool:
        """Whether each constraint is guaranteed, or met on the rows that are reported."""
        compiled, values = self.rows.compiled, np.nan_to_num(self.outcome.functionals)
        missed = compiled.rows_of(values) > compiled.b + ROUNDING
        found = find_first_constraints(compiled) & self.has_guarantee
        found[np.setdiff1d(np.arange(found.size), compiled.owner[missed])] = True
        return found


@dataclass(frozen=True)
class _Conflict:
    """Positions of constraints in conflict, or not certified, and of violations that are left."""

    named: tuple[int, ...] = ()  # In conflict, or not certified.
    unmet: tuple[int, ...] = ()  # In conflict, as is proved.
    best: dict[int, tuple[float, float]] = field(default_factory=dict)  # Alone, and with others.
    left: tuple[int, ...] = ()  # Violated, although all constraints can be met.
    given_up: dict[int, tuple[int, ...]] = field(default_factory=dict)  # For which ones.
    is_proved: bool = True  # Whether no decision resolves the conflict, or none was found.


def assess(
    scored: ScoredRows,
    prefixes: Prefixes,
    returned: ReturnedModel,
    plain: PlainModel | None = None,
) -> Feasibility:
    """Assess the constraints by the decisions that a model can make on rows that it has not seen.

    The rows of `scored` chose the model; `plain` is what boosters without multipliers do there,
    None if there are none. No decision of the model returned violates the
    constraints less.
    """
    compiled, choice = scored.rows.compiled, returned.choice
    n_rows = returned.rows.cells.n_rows
    conflict = _find_conflict(scored, prefixes, returned)
    error = returned.rows.error(returned.decisions)
    constant_class, constant_error = None, np.nan
    free_error, is_fragile = np.nan, False
    if not conflict.named:
        best, constant_error = returned.rows.find_best_constant(~compiled.has_scores)
        if best is not None:
            constant_class = to_python_scalar(returned.rows.cells.classes[best])
        if error > FRAGILE_ERROR * constant_error and not returned.is_unconstrained:
            free_error = _measure_free_error(scored, prefixes.candidates)
            is_fragile = is_hardly_better(error, constant_error, free_error, n_rows)
    few = _find_too_few_rows(returned, conflict)
    outcome, unsteady = returned.outcome, []
    if not conflict.named:  # The folds differ, and part of the interval violates the constraint.
        unsteady = [
            j
            for j in np.flatnonzero(outcome.is_unsteady).tolist()
            if verdicts.reaches(compiled.constraints[j], outcome.intervals[j], beyond=True)
        ]
    # Evidence that speaks against the values of constraints.
    if choice.is_uncertified or returned.misses_conformal_bounds:
        asked = "high_probability" if returned.bounds is None else "expected"
        first = itertools.compress(compiled.constraints, find_first_constraints(compiled))
        doubts = dict.fromkeys(first, describe_missing_guarantee(asked))
    else:
        differ = (compiled.constraints[j] for j in unsteady)
        doubts = dict.fromkeys(differ, "the boosters of the folds differ beyond chance")
        doubts |= {rate.constraint: rate.reason for rate in reversed(few)}
    results = _list_results(scored, returned, conflict, doubts)
    return Feasibility(
        conflict=tuple(compiled.constraints[j] for j in conflict.named),
        rules=results,
        too_few_rows=tuple(few),
        unsteady=tuple(results[j] for j in unsteady),
        error=error,
        constant_class=constant_class,
        constant_error=constant_error,
        free_error=free_error,
        source=returned.rows.source,
        n_rows=n_rows,
        p_value=choice.p_value,
        level=choice.level,
        left=tuple(results[j] for j in conflict.left if results[j].verdict.kind == "missed"),
        is_fragile=is_fragile,
        cost=_measure_cost(scored, returned, error, np.nan if plain is None else plain.objective),
        plain=plain,
        is_proved=conflict.is_proved,
    )


def _find_conflict(scored: ScoredRows, prefixes: Prefixes, returned: ReturnedModel) -> _Conflict:
    """Find the constraints in conflict, and those that are violated although all can be met."""
    choice, counts = returned.choice, returned.rows.counts(returned.decisions)
    has_rows = is_measured(returned.rows.compiled, counts).all()
    is_met = choice.violation == 0.0 and not choice.is_uncertified and has_rows
    misses_later = returned.has_guarantee and not returned.keeps.all()
    if (choice.is_certified or is_met) and not misses_later:
        return _Conflict()
    rows = returned.rows
    # Gaps of rates are met by one class for all rows.
    is_met_by_constant = (
        rows.cells.classes.size == 2
        and bool((compares_groups(rows.compiled) & ~rows.compiled.has_scores).all())
        and not rows.compiled.curves.items
        and not np.any(rows.compiled.b < 0.0)
    )
    pool = DecisionPool(scored, () if is_met_by_constant else prefixes.candidates, choice)
    if not is_met_by_constant and (found := pool.conflict()):
        reached = returned.keeps if returned.has_guarantee else pool.reached[0]
        given_up = _find_given_up(pool, scored.rows.compiled.constraints, reached)
        if given_up:
            found = tuple(sorted({*given_up, *itertools.chain(*given_up.values())}))
        best = {j: pool.best(j, found) for j in found}
        unmet = found if pool.is_proved else ()
        return _Conflict(found, unmet, best, given_up=given_up, is_proved=pool.is_proved)
    if choice.is_uncertified:
        values = returned.outcome.functionals
        p_values = violation_p_values(rows.compiled, rows.cells, counts, values)
        first = find_first_constraints(rows.compiled)
        is_named = (p_values > choice.level) & first
        if not is_named.any():  # The model passes by itself, behind safer decisions that failed.
            is_named = first
        return _Conflict(tuple(np.flatnonzero(is_named).tolist()))
    if returned.has_guarantee:
        return _Conflict()
    left = np.flatnonzero(pool.measured[0] & ~pool.reached[0])
    return _Conflict(left=tuple(left.tolist()))


def _find_given_up(
    pool: DecisionPool, constraints: Sequence[Constraint], reached: Bool
) -> dict[int, tuple[int, ...]]:
    """Find the constraints that are given up for others of priorities that come first."""
    given_up: dict[int, tuple[int, ...]] = {}
    for j in np.flatnonzero(pool.measured[0] & ~reached).tolist():
        first = [constraint.priority < constraints[j].priority for constraint in constraints]
        above = np.flatnonzero(np.array(first) & reached).tolist()
        if above and (opponents := pool.find_opponents(j, above)):
            given_up[j] = opponents
    return given_up


def _find_too_few_rows(returned: ReturnedModel, conflict: _Conflict) -> list[verdicts.TooFewRows]:
    """Find the rates over too few rows, apart from those of constraints in conflict.

    Constraints that hold on these rows, but not as tightly as a guarantee needs, are among them.
    """
    if np.isfinite(returned.choice.p_value):
        return []
    rows, outcome = returned.rows, returned.outcome
    counts = rows.counts(returned.decisions)
    cells, compiled, functionals = rows.cells, rows.compiled, outcome.functionals
    found = verdicts.find_too_few_rows(cells, compiled, counts, functionals, *outcome.sampled)
    named = {compiled.constraints[j] for j in conflict.named}
    found = [rate for rate in found if rate.constraint not in named]
    if not returned.misses_conformal_bounds or named:
        return found
    assert returned.bounds is not None
    left, values = compiled.rows_of(np.nan_to_num(functionals)), compiled.values(functionals)
    known = {rate.constraint for rate in found}
    for j in np.unique(compiled.owner[left > returned.bounds + ROUNDING]):
        constraint, n = (
            compiled.constraints[j],
            verdicts.rows_of_smallest_group(cells, compiled, j, counts),
        )
        if constraint not in known:
            ends = map(float, outcome.intervals[j])
            found.append(verdicts.TooFewRows(constraint, "", n, float(values[j]), *ends))
    return found


def _list_results(
    scored: ScoredRows, returned: ReturnedModel, conflict: _Conflict, doubts: dict[Constraint, str]
) -> tuple[verdicts.ConstraintResult, ...]:
    """List the value, interval and verdict of each constraint."""
    compiled, rows, outcome = scored.rows.compiled, returned.rows, returned.outcome
    values, counts = compiled.values(outcome.functionals), rows.counts(returned.decisions)
    unshifted = _find_broken_by_shift(scored, returned.choice, values)
    results = []
    for j, constraint in enumerate(compiled.constraints):
        estimate = Estimate(float(values[j]), *map(float, outcome.intervals[j]))
        given_up_for = conflict.given_up.get(j, ())
        in_conflict = conflict.unmet
        if conflict.given_up:
            in_conflict = (j, *given_up_for) if given_up_for else ()
        result = verdicts.assess_constraint(
            (rows.cells, rows.compiled),
            j,
            estimate,
            rows.source,
            doubt=doubts.get(constraint, ""),
            conflict=[compiled.constraints[k] for k in in_conflict],
            counts=counts,
        )
        alone, with_others = conflict.best.get(j, (np.nan, np.nan))
        results.append(
            replace(
                result,
                alone=alone,
                with_others=with_others,
                given_up_for=tuple(compiled.constraints[k] for k in given_up_for),
                unshifted=float(unshifted[j]),
            )
        )
    return tuple(results)


def _find_broken_by_shift(scored: ScoredRows, choice: Choice, values: Float) -> Float:
    """Find the value without the shift of each mean loss that the shift breaks; NaN for others.

    The shift is chosen by what decisions do, and mean losses are of probabilities.
    """
    rows, compiled = scored.rows, scored.rows.compiled
    is_loss: Bool = np.array([c.kinds == {"loss"} for c in compiled.constraints], bool)
    if not (choice.shift.any() and is_loss.any()):
        return np.full(is_loss.size, np.nan)
    margin = scored.margins(choice.rounds)
    before = compiled.values(rows.functionals(margin))
    sign = np.array([constraint.sign for constraint in compiled.constraints])
    is_broken = is_loss & ~compiled.is_satisfied(values) & (sign * (values - before) > 0.0)
    return np.where(is_broken, before, np.nan)


def _measure_free_error(scored: ScoredRows, candidates: Sequence[int]) -> float:
    """Measure the error of the best decision of a model without constraints."""
    rows, errors = scored.rows, list[float]()
    free = np.full(len(rows.compiled), np.inf)
    for margin in map(scored.margins, candidates):
        if margin.ndim > 1:  # Biases of several classes take longer to find, and matter less.
            errors.append(rows.error(rows.decisions(margin)))
        else:
            found = ShiftSearch(margin, rows.cells, rows.compiled).find(bounds=free)
            errors.append(found.error)
    return min(errors)


def is_hardly_better(error: float, constant_error: float, free_error: float, n: int) -> bool:
    """Whether constraints cost most of what a model gains over a constant decision."""
    gain = constant_error - free_error
    noise = 2.0 * np.sqrt(max(constant_error * (1.0 - constant_error), 0.0) / n)
    is_near = error > FRAGILE_ERROR * constant_error
    has_gain = free_error < FRAGILE_ERROR * constant_error and gain > noise
    return bool(is_near and has_gain and constant_error - error < FRAGILE_GAIN * gain)


def _measure_cost(
    scored: ScoredRows, returned: ReturnedModel, error: float, unconstrained_error: float
) -> verdicts.Cost:
    """Measure the errors that the constraints cost on the rows that the model was chosen by."""
    if returned.is_unconstrained:
        return verdicts.Cost(error, error, error)
    rows, choice = scored.rows.credible, returned.choice
    if rows.compiled.has_tables_alone:
        return verdicts.Cost(
            error, unconstrained_error=unconstrained_error
        )  # Thresholds move none.
    margin = scored.margins(choice.rounds)
    # The shift is the one returned: those of the folds may be far from it, and cost more.
    own = rows.error(rows.decisions(shift_scores(margin, choice.shift)))
    bounds = rows.compiled.b
    if returned.bounds is not None:
        bounds = np.minimum(bounds, returned.bounds)
    if np.isfinite(choice.level):
        counts = returned.rows.counts(returned.decisions)
        spread = standard_errors(returned.rows.compiled, counts)
        spread[~find_first(rows.compiled)] = 0.0
        bounds = rows.compiled.b - norm.isf(choice.level) * spread
    return verdicts.measure_cost(rows, margin, choice.shift, bounds, own, unconstrained_error)
