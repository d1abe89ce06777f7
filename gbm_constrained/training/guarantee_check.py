"""Guarantees that certification rows cannot give, refused before training."""

from __future__ import annotations

from itertools import compress
from typing import Any

import numpy as np

from gbm_constrained.constraints.base import ROUNDING
from gbm_constrained.decision.evaluation_set import UnseenRows
from gbm_constrained.decision.guarantee_checks import expected, least_p_values, least_values
from gbm_constrained.decision.guarantees import sequences_of
from gbm_constrained.decision.prefix_choice import prefixes
from gbm_constrained.problem.linear_constraints import CompiledConstraints
from gbm_constrained.training.options import SolverOptions


def check_guarantee(
    rows: UnseenRows, training: CompiledConstraints, options: SolverOptions, n_rounds: int
) -> None:
    """Refuse, before training, a guarantee that the rows kept for it can never give."""
    n = len(rows.cells.rows)
    for constraint in options.constraints:
        if constraint.has_loss:
            raise ValueError(
                f"guarantee={options.guarantee!r} cannot be given for {constraint}: a mean "
                f"loss may be as large as it likes. Bound an error rate, or leave the "
                f"guarantee out."
            )
    compiled = rows.compiled
    idle = frozenset(range(len(options.constraints))) - frozenset(compiled.owner.tolist())
    for group in compiled.further_groups(training)[:1]:
        raise ValueError(
            f"guarantee={options.guarantee!r} sets aside all rows of {group}: the model would "
            f"be trained on none. Give more rows of this group, drop them, or leave the "
            f"guarantee out."
        )
    for j, constraint in enumerate(options.constraints):
        undefined = np.isnan(compiled.constant[compiled.spans[j]])
        if j in idle or not undefined.any():
            continue
        where = merge = ""
        if compiled.groups[j]:
            where = f" in {next(compress(compiled.groups[j], undefined))}"
            merge = ", or put small groups together with small_groups='merge'"
        raise ValueError(
            f"guarantee={options.guarantee!r} cannot be given for {constraint}: of the {n} "
            f"rows that calibration_fraction={options.calibration_fraction:g} sets aside it "
            f"is taken over none{where}. Give more rows or a larger calibration_fraction"
            f"{merge}."
        )
    least_value = least_values(rows)
    extreme = compiled.b <= least_value + ROUNDING

    def remedy(rows_of_rule: Any, others: str = "") -> str:
        if extreme[rows_of_rule].any():
            return "No number of rows is enough for it: relax the bound."
        return f"Give more rows or a larger calibration_fraction, or relax the bound{others}."

    if options.guarantee == "expected":
        bounds = expected(compiled, rows.cells) + ROUNDING
        short = np.flatnonzero(bounds < least_value)
        for j in short[:1]:
            raise ValueError(
                f"guarantee='expected' cannot be given for {compiled.rows[j]}: the {n} "
                f"rows that calibration_fraction={options.calibration_fraction:g} sets aside "
                f"are too few for it, even without a single error. {remedy(j)}"
            )
        return
    for i, j in zip(*compiled.opposites, strict=True):
        if compiled.b[i] + compiled.b[j] <= ROUNDING:
            raise ValueError(
                f"guarantee='high_probability' cannot be given for "
                f"{options.constraints[compiled.owner[i]]}: that two rates are equal no "
                f"number of rows certifies. Relax the bound."
            )
    among = prefixes(n_rounds, options.rounds_per_iteration)
    n_prefixes = len(among) if options.iterate == "best" else 1
    level = options.delta / sequences_of(rows, n_prefixes)
    found = least_p_values(compiled, rows.cells, level)
    for j, (constraint, (least, why)) in enumerate(zip(options.constraints, found, strict=True)):
        if least > level:
            raise ValueError(
                f"guarantee='high_probability' cannot be given for {constraint}: {why}. With "
                f"not a single error the {n} rows that "
                f"calibration_fraction={options.calibration_fraction:g} sets aside leave a "
                f"p-value of {least:.2g}, above {level:.2g}, which delta={options.delta:g} "
                f"leaves to it. {remedy(compiled.owner == j, ' or delta')}"
            )
