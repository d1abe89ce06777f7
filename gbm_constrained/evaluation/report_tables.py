"""Tables of a finished fit: constraints, groups and history."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from gbm_constrained._typing import Float
from gbm_constrained.decision.evaluation_set import PlainModel
from gbm_constrained.decision.outcome import Outcome
from gbm_constrained.evaluation.verdicts import TRAINING_ROWS, Verdict
from gbm_constrained.problem.groups import Group
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.solvers.base import Record


def constraints_frame(
    compiled: LinearConstraints,
    functionals: Float,
    multipliers: Float,
    outcome: Outcome | None,
    verdicts: Sequence[Verdict],
) -> pd.DataFrame:
    """Tabulate each constraint: values on training and held-out rows, multiplier and verdict.

    Where constraints have priorities, these and what each is given up for are columns as well.
    """
    train = compiled.values(functionals)
    held_out = np.full(len(train), np.nan)
    interval = np.full((len(train), 2), np.nan)
    if outcome is not None:
        held_out, interval = compiled.values(outcome.functionals), outcome.intervals
    report = pd.DataFrame(
        {
            "constraint": compiled.names,
            "bound": compiled.bounds,
            "train": train,
            "held_out": held_out,
            "low": interval[:, 0],
            "high": interval[:, 1],
            "rows": [verdict.source for verdict in verdicts],
            "multiplier": compiled.totals(multipliers),
            "train_satisfied": compiled.is_satisfied(train),
            "satisfied": tabulate_satisfied(compiled, held_out),
            "verdict": [verdict.kind for verdict in verdicts],
        }
    )
    priorities = [constraint.priority for constraint in compiled.constraints]
    if len(set(priorities)) > 1:
        report.insert(1, "priority", priorities)
        report["given_up_for"] = [" and ".join(verdict.given_up_for) for verdict in verdicts]
    return report


def costs_frame(
    names: Sequence[str],
    objective: str,
    returned: PlainModel,
    plain: PlainModel | None,
    source: str,
) -> pd.DataFrame:
    """Tabulate the objective and each constraint of the plain model and of the one returned.

    Values on training rows are named so; others are of unseen rows.
    """
    rows = {"plain": plain, "returned": returned}
    missing = PlainModel(np.nan, np.full(len(names), np.nan))
    measured = [missing if row is None else row for row in rows.values()]
    values = [[row.objective, *row.values] for row in measured]
    index = pd.Index(list(rows), name=TRAINING_ROWS if source == TRAINING_ROWS else None)
    return pd.DataFrame(values, index=index, columns=[objective, *names])


def tabulate_satisfied(compiled: LinearConstraints, values: Float) -> Any:
    """Tabulate whether each constraint is satisfied, missing where there is no value."""
    satisfied = pd.array(compiled.is_satisfied(values), dtype="boolean")
    satisfied[np.isnan(values)] = pd.NA
    return satisfied


def list_groups(compiled: LinearConstraints) -> Iterator[tuple[str, Group, int]]:
    """List the name of the constraint, the group and the position of each group's functionals.

    Constraints on several rates are named with the rate.
    """
    of_constraints = zip(
        compiled.names, compiled.constraints, compiled.spans, compiled.groups, strict=True
    )
    for name, constraint, span, groups in of_constraints:
        rates = constraint.rates
        names = [name] if len(rates) == 1 else [f"{rate} in {name}" for rate in rates]
        for k, (group, own) in enumerate(product(groups, names), span.start):
            yield own, group, k


def groups_frame(
    compiled: LinearConstraints, functionals: Float, outcome: Outcome | None
) -> pd.DataFrame:
    """Tabulate the size and the rate of each group of each constraint."""
    held_out = np.full((functionals.size, 3), np.nan)
    if outcome is not None:
        held_out = np.column_stack([outcome.functionals, outcome.of_functionals])
    records = [
        (name, str(group), group.size, functionals[k], *held_out[k])
        for name, group, k in list_groups(compiled)
    ]
    columns = ["constraint", "group", "rows", "train", "held_out", "low", "high"]
    return pd.DataFrame(records, columns=columns)


def small_groups_frame(compiled: LinearConstraints) -> pd.DataFrame:
    """Tabulate the groups of few training rows: constraint, size and treatment."""
    columns = ["constraint", "group", "rows", "treatment"]
    names = dict(zip(compiled.constraints, compiled.names, strict=True))
    records = [
        (names[found.constraint], str(found.group), found.rows, found.treatment)
        for found in compiled.small
    ]
    return pd.DataFrame(records, columns=columns)


def history_frame(
    records: Sequence[Record],
    compiled: LinearConstraints,
    held_out: Float | None = None,
) -> pd.DataFrame:
    """Tabulate the history of a solver, one row per record, with held-out values if any."""
    names = ("iteration", "rounds", "objective", "error", "bregman", "fritz_john", "seconds")
    columns: dict[str, Any] = {name: [getattr(r, name) for r in records] for name in names}
    values = np.array([compiled.values(r.functionals) for r in records])
    multipliers = np.array([compiled.totals(r.multipliers) for r in records])
    for j, name in enumerate(compiled.names):
        columns[f"value[{name}]"] = values[:, j]
        columns[f"bound[{name}]"] = np.full(len(records), compiled.bounds[j])
        columns[f"multiplier[{name}]"] = multipliers[:, j]
        if held_out is not None:
            columns[f"held_out[{name}]"] = held_out[:, j]
    return pd.DataFrame(columns)
