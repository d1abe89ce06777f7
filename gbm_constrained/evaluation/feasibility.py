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

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gbm_constrained._findings import Finding, issue_warning
from gbm_constrained._messages import MOST_NAMED
from gbm_constrained._typing import Bool, Float
from gbm_constrained.constraints.expressions import Constraint, Quotient
from gbm_constrained.decision.rule import MET
from gbm_constrained.evaluation.costs import Cost
from gbm_constrained.evaluation.findings import findings_of_fit
from gbm_constrained.evaluation.sample_size import FEWEST, TooFewRows
from gbm_constrained.evaluation.verdicts import TRAINING_ROWS, Kind, Verdict, gravest
from gbm_constrained.exceptions import (
    CostlyConstraintsWarning,
    FragileConstraintsWarning,
    InfeasibleConstraintsError,
    InfeasibleConstraintsWarning,
    MissedConstraintsWarning,
)

__all__ = ["Feasibility"]


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
    def findings(self) -> tuple[Finding, ...]:
        """What was found, by the codes that ``docs/warnings.md`` explains."""
        return findings_of_fit(self)

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
            self._warn(fragile, FragileConstraintsWarning)
        missed = "\n".join(filter(None, self._misses()))
        if missed:
            self._warn(missed, MissedConstraintsWarning)
        if costly := self.cost.message():
            self._warn(costly, CostlyConstraintsWarning)
        if message := self._conflict_message():
            if raises:
                raise InfeasibleConstraintsError(message, self)
            self._warn(message, InfeasibleConstraintsWarning)

    def _warn(self, message: str, category: type[Warning]) -> None:
        issue_warning(
            message, *(found.code for found in self.findings if found.category is category)
        )
