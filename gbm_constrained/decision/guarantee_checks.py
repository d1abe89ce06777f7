"""Guarantees that no decision can earn, refused before training."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import compress
from math import ceil, log
from typing import Any

import numpy as np

from gbm_constrained._typing import Float
from gbm_constrained.constraints.base import ROUNDING
from gbm_constrained.constraints.checking import check_straight
from gbm_constrained.data.cells import Cells
from gbm_constrained.decision.evaluation_set import EvaluationSet
from gbm_constrained.decision.guarantees import conformal_bounds, count_sequences
from gbm_constrained.decision.prefix_choice import Prefixes
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.problem.row_owners import find_first, find_first_constraints
from gbm_constrained.statistics.counts import Block, CellCounts, blocks_of_rows
from gbm_constrained.statistics.order_statistics import minimum_rows
from gbm_constrained.statistics.p_values import p_value_of_blocks
from gbm_constrained.statistics.pair_p_values import rows_to_certify


@dataclass(frozen=True)
class GuaranteeRequest:
    """Guarantee that was asked for, and the prefixes to choose from."""

    kind: str  # "expected" or "high_probability".
    calibration_fraction: float  # Share of the rows that is set aside for certification.
    delta: float  # Largest probability of a false certificate.
    prefixes: Prefixes

    def refuse(self, constraint: Any, reason: str) -> ValueError:
        """Make the error that the guarantee cannot be given for a constraint."""
        return ValueError(f"guarantee={self.kind!r} cannot be given for {constraint}: {reason}")

    @property
    def set_aside(self) -> str:
        """The share of the rows that is set aside, in the words of messages."""
        return f"calibration_fraction={self.calibration_fraction:g} sets aside"


def check_guarantee(
    rows: EvaluationSet, training: LinearConstraints, asked: GuaranteeRequest
) -> None:
    """Refuse a guarantee that the certification rows can never give.

    Only constraints of the priority that comes first have it. `training` are the constraints on
    the rows that are trained on.
    """
    guarantee = f"guarantee={asked.kind!r}"
    check_straight(rows.compiled.constraints, guarantee, "leave the guarantee out")
    _check_losses(rows.compiled, asked)
    check_amounts(rows, asked)
    check_rows_set_aside(rows, training, asked)
    if asked.kind == "expected":
        _check_conformal_bounds(rows, asked)
    else:
        check_equalities(rows.compiled, asked)
        _check_p_values(rows, asked)
        _check_pair_rates(rows, asked)


def _check_losses(compiled: LinearConstraints, asked: GuaranteeRequest) -> None:
    for constraint in compiled.constraints:
        if constraint.has_loss:
            raise asked.refuse(
                constraint,
                "a mean loss may be as large as it likes. Bound an error rate, or leave the "
                "guarantee out.",
            )
        if constraint.is_pair and asked.kind == "expected":
            raise asked.refuse(
                constraint,
                "it compares scores, whose order no threshold changes, and a threshold is all "
                "that this guarantee chooses. Use guarantee='high_probability', which certifies "
                "the scores as they are, or leave the guarantee out.",
            )


def check_amounts(rows: EvaluationSet, asked: GuaranteeRequest) -> None:
    """Refuse certificates of amounts without a bound, and those that no test is known for."""
    cells = rows.cells
    is_first = find_first_constraints(rows.compiled)
    for j, constraint in enumerate(rows.compiled.constraints):
        if not constraint.amounts or constraint.is_always_met or not is_first[j]:
            continue
        if constraint.has_costs_of_amounts:
            raise asked.refuse(
                constraint,
                "a mean of amounts is no rate, and its certificate is not known here. Bound the "
                "rates of amounts that the costs are made of, such as fnr(weight=..., cap=...), "
                "or leave the guarantee out.",
            )
        amounts = cells.views[cells.view_of[j]].weigh(None)
        if constraint.amounts[0].cap is None:
            raise asked.refuse(
                constraint,
                f"amounts without a bound may be as large as they like, however few rows have "
                f"large ones. Those seen lie between {amounts.min():g} and {amounts.max():g}: "
                f"give a cap that no row exceeds, as in fnr(weight=..., cap={amounts.max():g}).",
            )
        if asked.kind == "expected":
            raise asked.refuse(
                constraint,
                "rows count for unequal amounts, and this guarantee counts rows. Use "
                "guarantee='high_probability', or leave the guarantee out.",
            )
        if cells.rows.weight is not None:
            raise asked.refuse(
                constraint,
                "amounts have no certificate beside sample weights: leave sample_weight out, or "
                "multiply the amounts by it.",
            )
        if constraint.expression.compares_pairs:
            raise asked.refuse(
                constraint,
                "it compares the amounts of groups, for which no certificate is known. Bound the "
                "rate of each group, or leave the guarantee out.",
            )


def check_rows_set_aside(
    rows: EvaluationSet, training: LinearConstraints, asked: GuaranteeRequest
) -> None:
    """Refuse constraints that lack rows, among those set aside or those left for training."""
    _check_groups(rows.compiled, training, asked)
    _check_base_sets(rows, training, asked)


def _check_groups(
    compiled: LinearConstraints, training: LinearConstraints, asked: GuaranteeRequest
) -> None:
    for group in compiled.further_groups(training)[:1]:
        raise ValueError(
            f"guarantee={asked.kind!r} sets aside all rows of {group}: the model would "
            f"be trained on none. Give more rows of this group, drop them, or leave the "
            f"guarantee out."
        )


def _check_base_sets(
    rows: EvaluationSet, training: LinearConstraints, asked: GuaranteeRequest
) -> None:
    compiled = rows.compiled
    is_first = find_first_constraints(compiled)
    for j, constraint in enumerate(compiled.constraints):
        is_undefined = np.isnan(compiled.constant[compiled.spans[j]])
        # A constraint that no decision violates has no rows.
        if j not in training.owner or not is_undefined.any() or not is_first[j]:
            continue
        where = merge = ""
        if compiled.groups[j]:
            by_group = np.reshape(is_undefined, (-1, len(constraint.rates)))
            of_groups = np.any(by_group, axis=1).tolist()
            where = f" in {next(compress(compiled.groups[j], list(of_groups)))}"
            merge = ", or put small groups together with small_groups='merge'"
        raise asked.refuse(
            constraint,
            f"of the {rows.cells.n_rows} rows that {asked.set_aside} it is taken over "
            f"none{where}. Give more rows or a larger calibration_fraction{merge}.",
        )


def _check_conformal_bounds(rows: EvaluationSet, asked: GuaranteeRequest) -> None:
    compiled = rows.compiled
    bounds = conformal_bounds(compiled, rows.cells) + ROUNDING
    for j in np.flatnonzero(bounds < smallest_values(compiled))[:1]:
        raise asked.refuse(
            compiled.rows[j],
            f"the {rows.cells.n_rows} rows that {asked.set_aside} are too few for it, even "
            f"without a single error. {_remedy(compiled, j)}",
        )


def check_equalities(compiled: LinearConstraints, asked: GuaranteeRequest) -> None:
    """Refuse constraints that two values are equal."""
    first = find_first(compiled)
    for i, j in zip(*compiled.opposites, strict=True):
        if compiled.b[i] + compiled.b[j] <= ROUNDING and first[i] and first[j]:
            raise asked.refuse(
                compiled.constraints[compiled.owner[i]],
                "that two values are equal no number of rows certifies. Relax the bound.",
            )


def _check_p_values(rows: EvaluationSet, asked: GuaranteeRequest) -> None:
    compiled = rows.compiled
    level = asked.delta / count_sequences(rows, asked.prefixes)
    found = smallest_p_values(compiled, rows.cells, level)
    for j in np.flatnonzero(find_first_constraints(compiled)):
        p_value, why = found[j]
        if p_value > level:
            raise asked.refuse(
                compiled.constraints[j],
                f"{why}. With not a single error the {rows.cells.n_rows} rows that "
                f"{asked.set_aside} leave a p-value of {p_value:.2g}, above {level:.2g}, which "
                f"delta={asked.delta:g} leaves to it. "
                f"{_remedy(compiled, compiled.owner == j, ' or delta')}",
            )


def _check_pair_rates(rows: EvaluationSet, asked: GuaranteeRequest) -> None:
    """Refuse constraints on pair rates that even perfect scores could not certify."""
    compiled, cells = rows.compiled, rows.cells
    level, n = asked.delta / count_sequences(rows, asked.prefixes), cells.n_rows
    for j, needed in enumerate(rows_to_certify(compiled, cells, level)):
        if needed > n:
            side, name = min(
                (int(cells.weighted_count[base].sum()), compiled.functional_names[k])
                for k in range(*compiled.spans[j].indices(compiled.constant.size))
                for term in compiled.terms[k] or ()
                for base in term.bases
            )
            remedy = "No number of rows is enough for it: relax the bound."
            if np.isfinite(needed):
                remedy = (
                    f"It takes {needed:,.0f} rows of this kind. Give more rows or a larger "
                    f"calibration_fraction, or relax the bound or delta."
                )
            raise asked.refuse(
                compiled.constraints[j],
                f"not even perfect scores earn it on the {n:,} rows that {asked.set_aside}, with "
                f"{side} on the smaller side of {name}. {remedy}",
            )


def _remedy(compiled: LinearConstraints, at: Any, others: str = "") -> str:
    """Describe a remedy for some rows of constraints."""
    if (compiled.b <= smallest_values(compiled) + ROUNDING)[at].any():
        return "No number of rows is enough for it: relax the bound."
    return f"Give more rows or a larger calibration_fraction, or relax the bound{others}."


def smallest_values(compiled: LinearConstraints) -> Float:
    """Compute the smallest value that any decisions could give each row of constraints."""
    return np.array(
        [
            -np.inf if blocks is None else sum(block.low for block in blocks)
            for blocks in blocks_of_rows(compiled)
        ]
    )


def smallest_p_values(
    compiled: LinearConstraints, cells: Cells, level: float
) -> list[tuple[float, str]]:
    """Compute the smallest p-value that any decisions could give each constraint, and say why.

    It is zero for constraints on scores.

    The reason for the bound of one rate names the number of rows that would reach the level; rows
    of unequal weights count as their effective number.
    """
    smallest = [(0.0, "")] * len(compiled.constraints)
    shape = (len(cells), cells.classes.size)
    for j, blocks in enumerate(blocks_of_rows(compiled)):
        if compiled.has_scores[j]:
            continue
        cost = compiled.A[[j]].toarray().reshape(shape)
        counts = CellCounts.of_shares(cells, np.eye(shape[1])[cost.argmin(axis=1)])
        p = float(p_value_of_blocks(blocks, float(compiled.b[j]), counts))
        owner = int(compiled.owner[j])
        if p > smallest[owner][0]:
            n = int(cells.weighted_count[np.ptp(cost, axis=1) > 0].sum())
            needed, is_of_rows = "", not blocks or blocks[0].largest_amount is None
            if blocks is not None and len(blocks) == 1 and is_of_rows and blocks[0].is_binomial:
                needed = _describe_rows_needed(blocks[0], float(compiled.b[j]), counts, level)
            smallest[owner] = p, f"{compiled.rows[j]} is taken over {n} of these rows{needed}"
    return smallest


def _describe_rows_needed(block: Block, bound: float, counts: CellCounts, level: float) -> str:
    """Describe how many rows without an event would certify a bound; empty where none would."""
    room = (bound - block.low) / block.width
    if not 0.0 < room < 1.0:
        return ""
    if block.has_equal_weights(counts):
        return f" and needs {minimum_rows(room, level)}"
    n, needed = block.effective_rows(counts), ceil(-log(level) / (2.0 * room**2))  # Hoeffding
    return f", which count as {n:.0f} for their weights, and needs {needed}"
