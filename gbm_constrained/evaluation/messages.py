"""Describe the findings on a fit in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gbm_constrained._messages import MOST_NAMED
from gbm_constrained.constraints.base import Constraint
from gbm_constrained.constraints.row_means import row_functions_of
from gbm_constrained.evaluation.constraint_result import ConstraintResult
from gbm_constrained.evaluation.costs import Cost
from gbm_constrained.evaluation.sample_size import MIN_ROWS, TooFewRows


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
MESSAGES = {
    "met": Message("All constraints are met, on {rows}."),
    "missed": Message(
        "The model returned misses constraints beyond sampling error, on {rows}:",
        "{constraint}: {result}, {verdict}",
        "Relax the bounds, or give more boosting rounds.",
    ),
    "missed by numbers": Message(
        "The model returned misses constraints beyond sampling error, on {rows}:",
        "{constraint}: {result}, {verdict}",
        "Relax the bounds, merge small groups (min_group_size= with small_groups='merge'), or let "
        "predictions use the group (group_shifts=True).",
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
        "The constraints cost more than they should, on {rows}: the model returned has an "
        "{objective} of {error:.4f}, {unconstrained:.4f} without constraints, and {decisions} on "
        "the same scores would meet the constraints with {needed:.4f}.",
        "The constraint that costs most is {costliest}: without it a threshold has an error of "
        "{without:.4f}.",
        "Give more boosting rounds or a larger learning_rate, or relax {relaxed}.",
    ),
    "too few rows": Message(
        "Too few rows to assess whether the constraints hold:",
        remedy="Give more rows, {merge}or relax the bounds.",
    ),
    "training rows": Message(
        "Training rows are optimistic: new rows may miss constraints that are met there."
    ),
    "fewer rounds": Message("Training ended after {trained} of {asked} rounds."),
}


def describe(name: str, results: Sequence[ConstraintResult], **facts: object) -> str:
    """Describe a finding on constraints, by its key in :data:`MESSAGES`; empty without any."""
    message, lines = MESSAGES[name], list[str]()
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


def describe_conflict(
    conflict: Sequence[Constraint],
    results: Sequence[ConstraintResult],
    error: float,
    certificate: tuple[float, float],
    rows: str,
    *,
    is_proved: bool,
) -> str:
    """Describe constraints that cannot be met, or certified, together; empty if there are none.

    `certificate` is the p-value of the constraints and the largest that earns a certificate, NaN
    if none was asked for. `rows` is the number and name of the rows. Without `is_proved` no
    decision was found that meets the constraints.
    """
    if not conflict:
        return ""
    p_value, level = certificate
    name = "cannot be met" if is_proved else "none was found"
    message = MESSAGES["not certified" if p_value > level else name]
    named, bound, dropped = " and ".join(map(str, conflict)), "this bound", "the constraint"
    together = len(conflict) > 1
    if together:
        named, bound = f"{named} together", "one of these bounds"
        dropped = "one of these constraints"
    of_numbers = bool(row_functions_of(conflict))
    choices = "decisions that this model can make, other than one decision for all rows,"
    if of_numbers:
        choices = "maps of the scores"
    lines = [
        message.lead.format(named=named, rows=rows, choices=choices, p_value=p_value, level=level)
    ]
    others = "the other holds" if len(conflict) == 2 else "the others hold"
    reached = {result.constraint: result for result in results}
    for constraint in conflict:
        result, best = reached[constraint], ""
        if np.isfinite(result.alone):
            best += f"at best {result.alone:.4f}{' alone' if together else ''}, "
        if np.isfinite(result.with_others):
            best += f"{result.with_others:.4f} while {others}, "
        lines.append(f"  {constraint}: {best}{result} in the model returned")
    lines += [
        f"  {result.constraint}: {result} in the model returned, {result.verdict}"
        for result in results
        if result.constraint not in conflict
    ]
    least = "violates the constraints least"
    if p_value > level:
        least = "is the one without the guarantee"
    if any(reached[constraint].is_vacuous for constraint in conflict):
        least = (
            f"has fewer than {MIN_ROWS} rows in a quotient, and meets a constraint in name only"
        )
    given_up = [
        f"{result.constraint} for {' and '.join(map(str, result.given_up_for))}"
        for result in results
        if result.given_up_for
    ]
    if given_up:
        least = f"gives up {', and '.join(given_up)}"
    its_error = "" if of_numbers else f"; its error is {error:.4f}"
    lines.append(
        f"The model returned {least}{its_error}. "
        f"{message.remedy.format(bound=bound, dropped=dropped)}. If a violation still falls at "
        f"the end of history_, more boosting rounds may help."
    )
    return "\n".join(lines)


def describe_too_few_rows(found: Sequence[TooFewRows]) -> str:
    """Describe rates over too few rows; empty if there are none."""
    if not found:
        return ""
    message, shown = MESSAGES["too few rows"], found[:MOST_NAMED]
    lines = [message.lead, *(f"  {rate}" for rate in shown)]
    if len(found) > len(shown):
        lines.append(f"  and {len(found) - len(shown)} more")
    has_groups = any(rate.group for rate in found)
    merge = "merge small groups (small_groups='merge'), " if has_groups else ""
    return "\n".join([*lines, message.remedy.format(merge=merge)])


def describe_cost(cost: Cost) -> str:
    """Describe the errors that constraints cost; empty unless they cost more than they should."""
    if not cost.is_costly:
        return ""
    if cost.is_of_numbers:
        message = MESSAGES["costly numbers"]
        facts = {"share": 1.0 - cost.error, "free": 1.0 - cost.unconstrained_error}
        return f"{message.lead.format(rows=cost.rows, **facts)}\n{message.remedy}"
    message, relaxed = MESSAGES["costly"], "a bound"
    lines = [
        message.lead.format(
            rows=cost.rows,
            error=cost.error,
            unconstrained=cost.unconstrained_error,
            needed=cost.needed_error,
            objective=cost.objective,
            decisions=cost.decisions,
        )
    ]
    if cost.costliest:
        relaxed = f"the bound of {cost.costliest}"
        lines.append(
            message.line.format(costliest=cost.costliest, without=cost.error_without_costliest)
        )
    return "\n".join([*lines, message.remedy.format(relaxed=relaxed)])
