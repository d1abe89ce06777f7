"""Rules that cannot be met, that cannot be judged, or that are met by knowing nothing.

After training, each rule has a verdict on the rows that are reported (:mod:`.verdicts`). The
gravest of them is the status of the fit. Three findings enter the verdicts:

- **cannot be met**: each decision that the model can make (its prefixes, each with all its
  thresholds, or with the class biases that a search finds) violates some rule *beyond doubt*: that
  it holds is rejected at 95% on the unseen rows (:func:`~.p_values.rows_beyond`). Named are the
  fewest rules that no decision brings to within sampling error together, so that each of them can
  be met if one of the others is dropped.
- **too few rows**: a rate is taken over too few rows to judge its rule
  (:func:`~.verdicts.find_too_few_rows`).
- **other evidence**: the boosters of the folds disagree on a rule (:mod:`.disagreement`), what one
  of them does is then less certain by far than the sample is. Or the model returned breaks a rule
  beyond chance on its own training rows: a rate of errors is at its lowest there, and a share of
  predictions asks for no label. Or a guarantee was asked for and is not given.

Rules that are met may still be **fragile**: the decisions are hardly better than a constant one.
Their error is above 0.8 times that of the best "always class k" that meets the rules, while
without rules the model would gain twice as much over that constant, and more. This is a statement
about the cost of the rules and no verdict.

A miss beyond sampling error is explained where a reason is known: the shift by which other rules
are met breaks one on a mean loss, or the violation costs more errors to mend than it is worth
(:func:`~.decision.price`).

Where constraints are measured on training rows, the verdicts speak of these, which are optimistic.
That no decision *of this model* meets the rules does not prove that no model does.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.stats import norm

from gbm_constrained.calibration import best_shift
from gbm_constrained.checks import MOST_NAMED, level_of_the_user
from gbm_constrained.compiler import CompiledConstraints, value_of
from gbm_constrained.costs import Cost, CostlyConstraintsWarning, measure_cost
from gbm_constrained.counts import CellCounts, functionals_of
from gbm_constrained.decision import (
    Choice,
    Margins,
    Outcome,
    UnseenRows,
    prefixes,
    shifted,
    standard_errors,
)
from gbm_constrained.losses import Array
from gbm_constrained.p_values import constraint_p_values, rows_beyond
from gbm_constrained.rates import Constraint, Quotient
from gbm_constrained.rows import Bool, Codes, Float
from gbm_constrained.selection import MET
from gbm_constrained.verdicts import (
    DOUBT,
    FEWEST,
    TRAINING_ROWS,
    Kind,
    TooFewRows,
    Verdict,
    find_too_few_rows,
    gravest,
    reaches_beyond,
    rows_of_constraint,
    rows_of_quotient,
    rows_of_smallest_group,
)

__all__ = [
    "Feasibility",
    "FragileConstraintsWarning",
    "InfeasibleConstraintsError",
    "InfeasibleConstraintsWarning",
    "MissedConstraintsWarning",
]

HARDLY = 0.8  # Of the error of a constant decision.
GAIN_KEPT = 0.5  # Of what the model knows.
QUANTILES = 120  # Thresholds looked at of each prefix, for each class of labels.
BIASES = 150  # Of several classes, for each prefix.
COVER_STEPS = 5000  # Of the search for the smallest conflict.
SEARCHED_ROWS = 30_000_000  # Rows times searches, about, with which thresholds are looked for.
SEARCHES = 16  # For the biases of several classes, which take longer.


class InfeasibleConstraintsWarning(UserWarning):
    """No decision that the model can make meets the rules, or none was found."""


class MissedConstraintsWarning(UserWarning):
    """The model returned misses a rule beyond sampling error, on the rows that are reported."""


class FragileConstraintsWarning(UserWarning):
    """The rules hold at the price of knowing nothing, or on too few rows to tell."""


class InfeasibleConstraintsError(ValueError):
    """No decision that the model can make meets the rules; with ``on_infeasible="raise"``.

    It is raised after training: the estimator is fitted, and has all its reports.

    Parameters
    ----------
    message : str
        What conflicts.
    feasibility : Feasibility, default=None
        The same as an object.
    """

    def __init__(self, message: str, feasibility: Feasibility | None = None) -> None:
        super().__init__(message)
        self.feasibility = feasibility


@dataclass(frozen=True)
class RuleReached:
    """What became of a rule.

    Parameters
    ----------
    constraint : Constraint
        The rule.
    value, low, high : float
        Its value under the model returned, on the rows that are reported, and the 95% interval.
    rows : int
        Rows that it is taken over, those of the smallest group; of precision and other quotients,
        the rows that the model's decisions put into numerator or denominator.
    verdict : Verdict
        The verdict on these figures; its text is ``str(verdict)``.
    alone : float, default=NaN
        The best value that any decision of the model has; of rules in conflict.
    with_others : float, default=NaN
        The best value of decisions that meet the other rules in conflict.
    trained : float, default=NaN
        Its value on training rows, where these refute it.
    unshifted : float, default=NaN
        Its value without the shift, of mean losses that the shift breaks.
    """

    constraint: Constraint
    value: float
    low: float
    high: float
    rows: int
    verdict: Verdict
    alone: float = np.nan
    with_others: float = np.nan
    trained: float = np.nan
    unshifted: float = np.nan

    @property
    def is_met(self) -> bool:
        """Whether its value is within the bound."""
        sign, bound = self.constraint.sign, self.constraint.bound
        return bool(sign * self.value <= sign * bound + MET)

    @property
    def is_vacuous(self) -> bool:
        """Whether it is a quotient of next to no rows, such as the precision on none selected."""
        return isinstance(self.constraint.expression, Quotient) and self.rows < FEWEST

    def __str__(self) -> str:
        known = f"{self.value:.4f}" if np.isfinite(self.value) else "undefined"
        interval = f" ({self.low:.4f} to {self.high:.4f})" if np.isfinite(self.low) else ""
        few = f", of {self.rows} row{'s' * (self.rows != 1)}" if self.rows < FEWEST else ""
        return f"{known}{interval}{few}"


def _met_and_missed(
    rules: Sequence[RuleReached],
    leads: tuple[str, str],
    described: Callable[[RuleReached], str],
    remedy: str,
) -> str:
    """List rules that are met, and rules that are missed, each under its lead; then the remedy."""
    lines: list[str] = []
    for lead, is_met in zip(leads, (True, False), strict=True):
        found = [rule for rule in rules if rule.is_met == is_met]
        if found:
            lines += [lead, *(f"  {rule.constraint}: {described(rule)}" for rule in found)]
    return "\n".join([*lines, remedy]) if lines else ""


@dataclass(frozen=True)
class Feasibility:
    """Whether the rules of a fit can be met, and what was reached.

    Parameters
    ----------
    conflict : tuple of Constraint
        The fewest rules that cannot be met together; one if it cannot be met by itself; empty if
        all can. With ``guarantee="high_probability"`` the rules that are not certified.
    rules : tuple of RuleReached
        What the model returned does for each rule, with its verdict; those in conflict with their
        best values.
    too_few_rows : tuple of TooFewRows
        Rates that cannot be judged.
    unsteady : tuple of RuleReached
        Rules that the boosters of the folds disagree on, whether they meet them together or not,
        and that part of the interval breaks.
    error : float
        0-1 error of the model returned, on the rows of `source`; as in all errors here, classes
        count by ``class_weight`` and ``scale_pos_weight``, as they do in the objective.
    constant_class : object
        Class of the best constant decision that meets the rules; None if none does.
    constant_error : float
        Its error; NaN if there is none.
    free_error : float
        Error of the best decision of the model without rules; NaN if it was not needed.
    source : str
        Name, in reports, of the rows that the model was judged by: unseen ones such as "out of
        fold", or "training rows".
    n_rows : int
        Number of these rows.
    p_value, level : float, default=NaN
        With ``guarantee="high_probability"``: the p-value of the rules, and what it had to be at
        most.
    refuted : tuple of RuleReached, default=()
        Rules that the model returned breaks on its own training rows, whether the boosters of the
        folds meet them or not.
    left : tuple of RuleReached, default=()
        Rules that the model returned breaks beyond doubt, although it can make decisions that
        bring all rules to within sampling error, at more errors than that is worth.
    is_fragile : bool, default=False
        Whether the rules leave a model that is hardly better than a constant decision. This is a
        statement about their cost, and no verdict.
    cost : Cost, default=Cost()
        Errors that the rules cost, and should cost.
    rounds_trained, rounds_asked : int, default=0
        Boosting rounds that were trained (iterations of a linear model), and that were asked for.
        Fewer were trained where a callback or early stopping ended the fit.
    """

    conflict: tuple[Constraint, ...]
    rules: tuple[RuleReached, ...]
    too_few_rows: tuple[TooFewRows, ...]
    unsteady: tuple[RuleReached, ...]
    error: float
    constant_class: Any
    constant_error: float
    free_error: float
    source: str
    n_rows: int
    p_value: float = np.nan
    level: float = np.nan
    refuted: tuple[RuleReached, ...] = ()
    left: tuple[RuleReached, ...] = ()
    is_fragile: bool = False
    cost: Cost = field(default_factory=Cost)
    rounds_trained: int = 0
    rounds_asked: int = 0

    @property
    def status(self) -> Kind:
        """The gravest verdict among the rules: "met" exactly if every rule is met."""
        return gravest(rule.verdict.kind for rule in self.rules)

    @property
    def message(self) -> str:
        """What was found, in plain words; one line for each rule that is not met."""
        found = [
            self._conflict_message() or self._fragile_message(),
            self.cost.message(),
            *self._doubts(),
            *self._misses(),
            self._within_message(),
        ]
        text = "\n".join(filter(None, found)) or f"All rules are met, on {self._reported_rows}."
        optimism = ""
        if any(rule.verdict.source == TRAINING_ROWS for rule in self.rules):
            optimism = "Training rows are optimistic: new rows may miss rules that are met there."
        return "\n".join(filter(None, [text, optimism, self._rounds_message()]))

    def __str__(self) -> str:
        return self.message

    @property
    def _rows(self) -> str:
        if self.source == TRAINING_ROWS:
            return f"{self.n_rows:,} {TRAINING_ROWS}"
        return f"{self.n_rows:,} unseen rows ({self.source})"

    @property
    def _reported_rows(self) -> str:
        """The rows that the verdicts are about, which may be those of an evaluation set."""
        sources = list(dict.fromkeys(rule.verdict.source for rule in self.rules))
        if sources == [self.source]:
            return self._rows
        return " and ".join(s if s == TRAINING_ROWS else f"unseen rows ({s})" for s in sources)

    def _missed(self, kind: Kind) -> list[RuleReached]:
        return [rule for rule in self.rules if rule.verdict.kind == kind]

    def _missed_message(self) -> str:
        told = {rule.constraint for rule in (*self.left, *self.broken_by_shift)}
        missed = [rule for rule in self._missed("missed") if rule.constraint not in told]
        if not missed or self.conflict:  # which names all rules
            return ""
        return "\n".join(
            [
                f"The model returned misses rules beyond sampling error, on "
                f"{self._reported_rows}:",
                *(f"  {rule.constraint}: {rule}, {rule.verdict}" for rule in missed),
                "Relax the bounds, or give more boosting rounds.",
            ]
        )

    def _within_message(self) -> str:
        missed = self._missed("missed within sampling error")
        if not missed or self.conflict:
            return ""
        return "\n".join(
            [
                f"The model returned misses rules within sampling error, on "
                f"{self._reported_rows}:",
                *(f"  {rule.constraint}: {rule}, {rule.verdict}" for rule in missed),
                "More rows would tell, and a tighter bound leaves room.",
            ]
        )

    def _rounds_message(self) -> str:
        if self.rounds_trained >= self.rounds_asked:
            return ""
        return f"Training ended after {self.rounds_trained} of {self.rounds_asked} rounds."

    def _conflict_message(self) -> str:
        if not self.conflict:
            return ""
        named = " and ".join(map(str, self.conflict))
        together, bound, dropped = "", "this bound", "the rule"
        if len(self.conflict) > 1:
            together, bound, dropped = " together", "one of these bounds", "one of these rules"
        reached = {rule.constraint: rule for rule in self.rules}
        lines = []
        if self.p_value > self.level:
            lines.append(
                f"Not certified: {named}{together}. Of the decisions that this model can make "
                f"none passes on {self._rows}: the smallest p-value is {self.p_value:.2g}, and "
                f"guarantee='high_probability' needs {self.level:.2g}."
            )
            remedy = f"Relax {bound} or delta, or give more rows to certify on"
        else:
            lines.append(
                f"Cannot be met: no decision that this model can make meets {named}{together}, "
                f"not even within sampling error, on {self._rows}."
            )
            remedy = f"Relax {bound}, or drop {dropped}"
        others, s = ("the other", "s") if len(self.conflict) == 2 else ("the others", "")
        for constraint in self.conflict:
            rule, best = reached[constraint], ""
            if np.isfinite(rule.alone):
                best += f"at best {rule.alone:.4f}{' alone' if together else ''}, "
            if np.isfinite(rule.with_others):
                best += f"{rule.with_others:.4f} while {others} hold{s}, "
            lines.append(f"  {constraint}: {best}{rule} in the model returned")
        bystanders = [rule for rule in self.rules if rule.constraint not in self.conflict]
        lines += [
            f"  {rule.constraint}: {rule} in the model returned, {rule.verdict}"
            for rule in bystanders
        ]
        least = "violates the rules least"
        if any(reached[c].is_vacuous for c in self.conflict):
            least = f"has fewer than {FEWEST} rows in a quotient, and meets a rule in name only"
        lines.append(
            f"The model returned {least}; its error is {self.error:.4f}. "
            f"{remedy}. If a violation still falls at the end of history_, more boosting rounds "
            f"may help."
        )
        return "\n".join(lines)

    def _fragile_message(self) -> str:
        if not self.is_fragile:
            return ""
        met = all(rule.is_met for rule in self.rules)
        hold = "hold" if met else "are met to within sampling error"
        lines = [
            f"Fragile: the rules {hold} only by decisions that are hardly better than always "
            f"class {self.constant_class!r}: error {self.error:.4f}, against "
            f"{self.constant_error:.4f} of that, and {self.free_error:.4f} of this model without "
            f"rules, on {self._rows}."
        ]
        lines += [f"  {rule.constraint}: {rule}" for rule in self.rules]
        remedy = "Relax the bounds"
        if np.isfinite(self.p_value):
            remedy += ", or give more rows to certify on, if it is these that leave no room"
        return "\n".join([*lines, f"{remedy}."])

    def refuted_by(self, values: Float, broken: Bool) -> Feasibility:
        """Add what the training rows of the model returned say against rules.

        Parameters
        ----------
        values : ndarray of shape (n_constraints,)
            Value of each rule by the training rows.
        broken : ndarray of shape (n_constraints,), bool
            Rules that are broken there.
        """
        refuted = tuple(
            replace(self.rules[j], trained=float(values[j])) for j in np.flatnonzero(broken)
        )
        doubts = {
            rule.constraint: f"the model breaks the rule on its training rows, {rule.trained:.4f}"
            for rule in refuted
        }
        rules = tuple(
            replace(
                rule,
                verdict=Verdict.of(
                    rule.constraint,
                    rule.value,
                    (rule.low, rule.high),
                    rule.verdict.rows,
                    rule.verdict.source,
                    doubt=rule.verdict.reason or doubts.get(rule.constraint, ""),
                    conflict=self.conflict,
                ),
            )
            for rule in self.rules
        )
        return replace(self, rules=rules, refuted=refuted)

    @property
    def broken_by_shift(self) -> tuple[RuleReached, ...]:
        """Rules on mean losses that the scores miss, or miss more, once they are shifted."""
        return tuple(
            rule
            for rule in self.rules
            if np.isfinite(rule.unshifted) and rule.verdict.kind == "missed"
        )

    def _doubts(self) -> list[str]:
        return [self._few_message(), self._unsteady_message(), self._refuted_message()]

    def _misses(self) -> list[str]:
        return [self._shift_message(), self._left_message(), self._missed_message()]

    def _left_message(self) -> str:
        if not self.left:
            return ""
        return "\n".join(
            [
                f"Violations are left that cost more errors to mend than they are worth, on "
                f"{self._rows}:",
                *(f"  {rule.constraint}: {rule}" for rule in self.left),
                "Other decisions of this model bring all rules to within sampling error, and none "
                "was found that meets them all. Relax the bounds, or give more boosting rounds.",
            ]
        )

    def _shift_message(self) -> str:
        if not self.broken_by_shift:
            return ""
        return "\n".join(
            [
                f"The shift of the scores, by which other rules are met, breaks these rules on "
                f"mean losses, on {self._rows}:",
                *(
                    f"  {rule.constraint}: {rule}, and {rule.unshifted:.4f} without the shift"
                    for rule in self.broken_by_shift
                ),
                "Keep the shift beside the model, and its probabilities as trained, by "
                "probabilities='calibrated', or relax the bounds.",
            ]
        )

    def _refuted_message(self) -> str:
        lead = (
            f"on {self._rows}, by boosters of parts of the rows. The model returned, trained on "
            f"all of them, breaks them by its own training rows:"
        )
        return _met_and_missed(
            self.refuted,
            (f"These rules hold {lead}", f"These rules are missed {lead}"),
            lambda rule: f"{rule}, and {rule.trained:.4f} by training rows",
            "Boosters of fewer rows are other models here. Give more rows, let leaves be "
            "smaller, or have the model itself measured: by guarantee= or an eval_set.",
        )

    def _unsteady_message(self) -> str:
        lead = (
            "what each does on its fold differs by more than chance, and the model returned is "
            "one more of them:"
        )
        return _met_and_missed(
            self.unsteady,
            (
                f"The boosters of the folds meet these rules together, but {lead}",
                f"The boosters of the folds miss these rules together, and {lead}",
            ),
            str,
            "More boosting rounds, a smaller learning_rate, or more rows and columns for each "
            "tree may bring them together.",
        )

    def _few_message(self) -> str:
        if not self.too_few_rows:
            return ""
        lines = ["Too few rows to tell whether the rules hold:"]
        lines += [f"  {few}" for few in self.too_few_rows[:MOST_NAMED]]
        if len(self.too_few_rows) > MOST_NAMED:
            lines.append(f"  and {len(self.too_few_rows) - MOST_NAMED} more")
        merge = ""
        if any(few.group for few in self.too_few_rows):
            merge = "merge small groups (small_groups='merge'), "
        return "\n".join([*lines, f"Give more rows, {merge}or relax the bounds."])

    def complain(self, raises: bool) -> None:
        """Warn of what was found, or raise if rules cannot be met.

        Parameters
        ----------
        raises : bool
            Whether rules that cannot be met are an error.

        Raises
        ------
        InfeasibleConstraintsError
            If they are.
        """
        fragile = "\n".join(filter(None, [self._fragile_message(), *self._doubts()]))
        if fragile:
            warnings.warn(fragile, FragileConstraintsWarning, stacklevel=level_of_the_user())
        missed = "\n".join(filter(None, self._misses()))
        if missed:
            warnings.warn(missed, MissedConstraintsWarning, stacklevel=level_of_the_user())
        if costly := self.cost.message():
            warnings.warn(costly, CostlyConstraintsWarning, stacklevel=level_of_the_user())
        if message := self._conflict_message():
            if raises:
                raise InfeasibleConstraintsError(message, self)
            warnings.warn(message, InfeasibleConstraintsWarning, stacklevel=level_of_the_user())


# --- the judgement ----------------------------------------------------------------------------


def judge(
    rows: UnseenRows,
    margins: Margins,
    rounds: int,
    rounds_per_iteration: int,
    choice: Choice,
    reported: UnseenRows,
    decisions: Codes,
    outcome: Outcome,
    bounds: Float | None = None,
    untouched: bool = False,
    plain_error: float = np.nan,
) -> Feasibility:
    """Judge rules by what a model can do on rows that it has not seen.

    Parameters
    ----------
    rows : UnseenRows
        The rows that the model was chosen by.
    margins : callable
        Their scores after some rounds.
    rounds, rounds_per_iteration : int
        Length of the whole ensemble, and of an outer iteration.
    choice : Choice
        The model returned: it violates the rules least.
    reported : UnseenRows
        The rows that report on it: the same, or those of a certificate.
    decisions : ndarray of int
        Its decisions on them.
    outcome : Outcome
        What the rules are worth on them.
    bounds : ndarray of shape (m,), default=None
        Tighter right-hand sides that the choice had to meet.
    untouched : bool, default=False
        Whether the model and its decisions are those without rules, which then cost nothing.
    plain_error : float, default=NaN
        Error of boosters without multipliers on `rows`, if there are any.
    """
    compiled = rows.compiled
    reached: list[tuple[float, float]] = [(np.nan, np.nan)] * len(compiled.constraints)
    conflict: tuple[int, ...] = ()
    unmet: tuple[int, ...] = ()
    broken = np.zeros(len(compiled.constraints), dtype=bool)
    certified = choice.p_value <= choice.level
    counts = CellCounts.of(reported.cells, decisions)
    told = _told(reported.compiled, counts).all()
    if not certified and (choice.excess > 0.0 or choice.uncertified or not told):
        pool = _Pool(rows, margins, prefixes(rounds, rounds_per_iteration), choice)
        conflict = unmet = pool.conflict()
        for j in conflict:
            reached[j] = pool.best(j, conflict)
        if not conflict:
            broken = pool.told[0] & ~pool.reached[0]
        if not conflict and choice.uncertified:
            p_values = constraint_p_values(reported.compiled, counts)
            conflict = tuple(np.flatnonzero(p_values > choice.level).tolist())
            broken[:] = False  # what is not certified is told of as that
    named = {compiled.constraints[j] for j in conflict}
    error = reported.error(decisions)
    constant, constant_error, free_error = None, np.nan, np.nan
    is_fragile = False
    few: list[TooFewRows] = []
    if not conflict:
        constant, constant_error = _best_constant(reported)
        if error > HARDLY * constant_error and not untouched:
            free_error = _free_error(rows, margins, prefixes(rounds, rounds_per_iteration))
            is_fragile = _is_fragile(error, constant_error, free_error, len(decisions))
    if not np.isfinite(choice.p_value):
        few = find_too_few_rows(
            reported.cells,
            reported.compiled,
            counts,
            outcome.functionals,
            outcome.sampled.rules,
            outcome.sampled.rates,
        )
        # A rule in conflict is told of already.
        few = [rate for rate in few if rate.constraint not in named]
        if bounds is not None and choice.excess > 0.0 and not conflict:
            few += _out_of_reach(reported, counts, outcome, bounds, few)
    values = compiled.values(outcome.functionals)
    unshifted = _broken_by_shift(rows, margins, choice, values)
    doubts = {rate.constraint: rate.reason for rate in reversed(few)}
    unsteady: list[int] = []
    if not conflict:  # what gives way to other rules is no promise
        for j in np.flatnonzero(outcome.unsteady).tolist():
            constraint = compiled.constraints[j]
            if reaches_beyond(constraint, outcome.intervals[j]):
                unsteady.append(j)
                doubts.setdefault(constraint, "the boosters of the folds differ beyond chance")
    if choice.uncertified or (bounds is not None and choice.excess > 0.0):
        asked = "expected" if bounds is not None else "high_probability"
        not_given = f"guarantee={asked!r} was asked for and is not given"
        doubts = dict.fromkeys(compiled.constraints, not_given)
    rules = tuple(
        RuleReached(
            constraint,
            float(values[j]),
            float(outcome.intervals[j, 0]),
            float(outcome.intervals[j, 1]),
            rows_of_smallest_group(reported.cells, compiled, j, counts),
            Verdict.of(
                constraint,
                values[j],
                outcome.intervals[j],
                rows_of_constraint(reported.cells, reported.compiled, j),
                reported.source,
                doubt=doubts.get(constraint, ""),
                conflict=[compiled.constraints[k] for k in unmet],
            ),
            *reached[j],
            unshifted=float(unshifted[j]),
        )
        for j, constraint in enumerate(compiled.constraints)
    )
    left = [rules[j] for j in np.flatnonzero(broken) if rules[j].verdict.kind == "missed"]
    cost = Cost(error, error, error)
    if not untouched:
        chosen = margins(choice.rounds)
        # By the shift that is returned: those of the folds may be far from it, and cost more.
        own = rows.decisions(shifted(chosen, choice.shift))
        right = compiled.b if bounds is None else bounds
        if np.isfinite(choice.level):
            right = compiled.b - norm.isf(choice.level) * standard_errors(
                reported.compiled, reported.cells, outcome.functionals
            )
        cost = measure_cost(rows, chosen, choice.shift, right, rows.error(own), plain_error)
    return Feasibility(
        tuple(compiled.constraints[j] for j in conflict),
        rules,
        tuple(few),
        tuple(rules[j] for j in unsteady),
        error,
        constant,
        constant_error,
        free_error,
        reported.source,
        len(decisions),
        choice.p_value,
        choice.level,
        left=tuple(left),
        is_fragile=is_fragile,
        cost=cost,
    )


def _broken_by_shift(rows: UnseenRows, margins: Margins, choice: Choice, values: Float) -> Float:
    """Value of each constraint without the shift, if it is a mean loss that the shift breaks.

    The shift is chosen by what decisions do, and mean losses are of probabilities. NaN for all
    other constraints.
    """
    compiled = rows.compiled
    is_loss = np.array([constraint.is_loss for constraint in compiled.constraints], dtype=bool)
    if not (choice.shift.any() and is_loss.any()):
        return np.full(is_loss.size, np.nan)
    margin = margins(choice.rounds)
    before = compiled.values(rows.functionals(margin, rows.counts(rows.decisions(margin))))
    sign = np.array([constraint.sign for constraint in compiled.constraints])
    broken = is_loss & ~compiled.satisfied(values) & (sign * (values - before) > 0.0)
    return np.where(broken, before, np.nan)


def _told(compiled: CompiledConstraints, counts: CellCounts) -> Bool:
    """Whether decisions put enough rows into a quotient to speak of it, for each constraint."""
    told = np.ones((*counts.count.shape[:-2], len(compiled.constraints)), dtype=bool)
    for j, constraint in enumerate(compiled.constraints):
        if isinstance(constraint.expression, Quotient):
            told[..., j] = rows_of_quotient(compiled, j, counts) >= FEWEST
    return told


# --- conflicts --------------------------------------------------------------------------------


class _Pool:
    """Decisions that a model can make, and the rules that each brings to within sampling error.

    Parameters
    ----------
    rows : UnseenRows
        The rows.
    margins : callable
        Their scores after some rounds.
    candidates : sequence of int
        Rounds of the prefixes that are looked at.
    choice : Choice
        The least violating decision; one of those looked at.
    """

    def __init__(
        self, rows: UnseenRows, margins: Margins, candidates: Sequence[int], choice: Choice
    ) -> None:
        self.rows, self.margins = rows, margins
        compiled = rows.compiled
        self.n_rules = len(compiled.constraints)
        self.several = rows.cells.classes.size > 2
        self.functionals = np.zeros((0, compiled.constant.size))
        self.told = np.zeros((0, self.n_rules), dtype=bool)
        self.reached = np.zeros((0, self.n_rules), dtype=bool)
        # Of several classes, whose search takes longer: the longest prefix, and the one chosen.
        self.searched = sorted({choice.rounds, candidates[-1]}) if self.several else candidates
        self.left = SEARCHES
        if not self.several:
            self.left = int(np.clip(SEARCHED_ROWS // len(rows.cells.rows), 36, 600))
        self._add_shifted(choice.rounds, [choice.shift])  # the first is the one chosen
        for prefix in candidates:
            if self.several:
                self._add_shifted(prefix, self._biases())
            else:
                self._add_thresholds(prefix)

    def _biases(self) -> list[Float]:
        """Shifts of several classes, all ways round: nothing, always one class, random ones."""
        k = self.rows.cells.classes.size
        rng = np.random.default_rng(0)
        always = [*(1e6 * np.eye(k)), np.zeros(k)]
        return [*always, *rng.normal(size=(BIASES, k)) * rng.exponential(2.0, (BIASES, 1))]

    def _add_shifted(self, prefix: int, shifts: Sequence[Float]) -> None:
        margin, cells = self.margins(prefix), self.rows.cells
        counts = [
            CellCounts.of(cells, self.rows.decisions(shifted(margin, shift))) for shift in shifts
        ]
        self._add(
            CellCounts(
                np.stack([c.weight for c in counts]),
                np.stack([c.square for c in counts]),
                np.stack([c.count for c in counts]),
            )
        )

    def _add_thresholds(self, prefix: int) -> None:
        """Look at thresholds that are dense where either class has its scores."""
        margin, cells = self.margins(prefix), self.rows.cells
        grid = np.linspace(0.0, 1.0, QUANTILES)
        labels = cells.labels[cells.codes]
        parts = [margin[labels == k] for k in np.unique(labels)]
        at = [np.quantile(part, grid, method="lower") for part in parts]
        thresholds = np.unique(np.concatenate([*at, [margin.min() - 1.0]]))
        self._add(CellCounts.at_thresholds(cells, margin, thresholds))

    def _add(self, counts: CellCounts) -> None:
        compiled = self.rows.compiled
        told = _told(compiled, counts)
        reached = told.copy()
        # A rule of many rows, as a gap of many groups, is refuted by any of them.
        levels = DOUBT / np.bincount(compiled.owner, minlength=self.n_rules)[compiled.owner]
        beyond = rows_beyond(compiled, counts, levels, one_test_each=True)
        for j in range(self.n_rules):
            reached[:, j] &= ~beyond[:, compiled.owner == j].any(axis=1)
        found = functionals_of(compiled, counts)
        self.functionals = np.concatenate([self.functionals, found])
        self.told = np.concatenate([self.told, told])
        self.reached = np.concatenate([self.reached, reached])

    def conflict(self) -> tuple[int, ...]:
        """Give the fewest rules that no decision meets together, as far as is proved; or none."""
        if self._can_meet(tuple(range(self.n_rules))):
            return ()
        # Either no decision meets the fewest that none is known to, or one that does is found,
        # which rules them out: each turn has another answer, or is the last.
        while (fewest := self._fewest_unreached()) and self.left > 0:
            if not self._can_meet(fewest):
                return fewest
        return fewest and tuple(np.flatnonzero(~self.reached.all(axis=0)).tolist())

    def _fewest_unreached(self) -> tuple[int, ...]:
        """Give the fewest rules of which each decision looked at misses one; or none."""
        missed = np.unique(~self.reached, axis=0)  # decisions that miss the same rules are one
        return _smallest_cover(missed) if missed.any(axis=1).all() else ()

    def _can_meet(self, subset: tuple[int, ...]) -> bool:
        """Whether a decision meets some rules together, if others need not be."""
        if self.reached[:, subset].all(axis=1).any():
            return True
        compiled = self.rows.compiled
        bounds = np.where(np.isin(compiled.owner, subset), compiled.b, np.inf)
        for prefix in self.searched:
            if self.left == 0:
                return True  # not proved, and so not claimed
            self.left -= 1
            found = best_shift(self.margins(prefix), self.rows.cells, compiled, bounds=bounds)
            self._add_shifted(prefix, [found.value])
            if self.reached[-1, subset].all():
                return True
        return False

    def best(self, j: int, conflict: Sequence[int]) -> tuple[float, float]:
        """Best value of a rule in conflict, and the best while the others in it are met."""
        compiled = self.rows.compiled
        others = [i for i in conflict if i != j]
        met = self.reached[:, others].all(axis=1) & self.told[:, j]
        values = np.full(len(self.told), np.nan)
        for i in np.flatnonzero(self.told[:, j]):
            values[i] = value_of(compiled.constraints[j], self.functionals[i, compiled.spans[j]])
        sign = compiled.constraints[j].sign

        def best(of: Float) -> float:
            known = of[np.isfinite(of)]
            return sign * float((sign * known).min()) if known.size else np.nan

        return best(values), best(values[met]) if others else np.nan


def _smallest_cover(missed: Bool, most_steps: int = COVER_STEPS) -> tuple[int, ...]:
    """Columns of which each row has one: the fewest, by branch and bound.

    After too many steps, columns of which none can be spared, which may not be the fewest.

    Parameters
    ----------
    missed : ndarray of bool of shape (n_rows, n_columns)
        Without a row that is False throughout.
    most_steps : int
        Parts of the search that are looked at.
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


# --- fragile rules ----------------------------------------------------------------------------


def _best_constant(rows: UnseenRows) -> tuple[Any, float]:
    """Class and error of the best constant decision that meets the rules; None without one."""
    best, best_error = None, np.nan
    for k, label in enumerate(rows.cells.classes):
        decided = np.full(len(rows.cells.rows), k, dtype=np.intp)
        functionals = functionals_of(rows.compiled, CellCounts.of(rows.cells, decided))
        losses = np.diff(rows.compiled.V.indptr) > 0
        left = rows.compiled.rows_of(np.where(losses, -np.inf, np.nan_to_num(functionals)))
        error = rows.error(decided)
        if (left <= rows.compiled.b + MET).all() and not error >= best_error:
            best, best_error = getattr(label, "item", lambda label=label: label)(), error
    return best, best_error


def _free_error(rows: UnseenRows, margins: Margins, candidates: Sequence[int]) -> float:
    """Error of the best decision of a model if there were no rules."""
    several = rows.cells.classes.size > 2
    free = np.full(len(rows.compiled), np.inf)

    def at(margin: Array) -> float:
        if several:  # whose biases take longer to find, and matter less
            return rows.error(rows.decisions(margin))
        return best_shift(margin, rows.cells, rows.compiled, bounds=free).error

    return min(at(margins(prefix)) for prefix in candidates)


def _is_fragile(error: float, constant_error: float, free_error: float, n: int) -> bool:
    """Whether rules cost most of what a model knows more than a constant decision."""
    gain = constant_error - free_error
    noise = 2.0 * np.sqrt(constant_error * (1.0 - constant_error) / n)
    knows = free_error < HARDLY * constant_error and gain > noise
    return bool(knows and constant_error - error < GAIN_KEPT * gain)


# --- too few rows -----------------------------------------------------------------------------


def _out_of_reach(
    rows: UnseenRows,
    counts: CellCounts,
    outcome: Outcome,
    bounds: Float,
    known: Sequence[TooFewRows],
) -> list[TooFewRows]:
    """Rules that hold on these rows, but not as tightly as a guarantee asks for."""
    compiled = rows.compiled
    left = compiled.rows_of(np.nan_to_num(outcome.functionals))
    short = np.unique(compiled.owner[left > bounds + MET])
    named = {few.constraint for few in known}
    values = compiled.values(outcome.functionals)
    return [
        TooFewRows(
            compiled.constraints[j],
            "",
            rows_of_smallest_group(rows.cells, compiled, j, counts),
            float(values[j]),
            *map(float, outcome.intervals[j]),
        )
        for j in short
        if compiled.constraints[j] not in named
    ]
