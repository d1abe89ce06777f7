"""Tables of a finished fit: constraints, groups and history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from gbm_constrained._typing import Float
from gbm_constrained.decision.outcome import Outcome
from gbm_constrained.evaluation.verdicts import Verdict
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

    Parameters
    ----------
    compiled : LinearConstraints
        The constraints.
    functionals : ndarray of shape (n_functionals,)
        Functionals of the model returned, on the training rows.
    multipliers : ndarray of shape (m,)
        Multipliers of the last outer iteration.
    outcome : Outcome or None
        Values on held-out rows.
    verdicts : sequence of Verdict
        Verdict on each constraint, which names its rows.
    """
    train = compiled.values(functionals)
    held_out = np.full(len(train), np.nan)
    interval = np.full((len(train), 2), np.nan)
    if outcome is not None:
        held_out, interval = compiled.values(outcome.functionals), outcome.intervals
    satisfied = pd.array(compiled.is_satisfied(held_out), dtype="boolean")
    satisfied[np.isnan(held_out)] = pd.NA
    return pd.DataFrame(
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
            "satisfied": satisfied,
            "verdict": [verdict.kind for verdict in verdicts],
        }
    )


def groups_frame(
    compiled: LinearConstraints, functionals: Float, outcome: Outcome | None
) -> pd.DataFrame:
    """Tabulate the size and the rate of each group of each constraint."""
    records = []
    for name, span, groups in zip(compiled.names, compiled.spans, compiled.groups, strict=True):
        for k, group in zip(range(span.start, span.stop), groups, strict=False):
            low, high = (np.nan, np.nan) if outcome is None else outcome.of_functionals[k]
            records.append(
                {
                    "constraint": name,
                    "group": str(group),
                    "rows": group.size,
                    "train": functionals[k],
                    "held_out": np.nan if outcome is None else outcome.functionals[k],
                    "low": low,
                    "high": high,
                }
            )
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
    """Tabulate the history of a solver, one row per record.

    Parameters
    ----------
    records : sequence of Record
        Records of the outer iterations.
    compiled : LinearConstraints
        The constraints.
    held_out : ndarray of shape (n_records, n_constraints), default=None
        Values of the constraints on held-out rows.

    Returns
    -------
    DataFrame
    """
    table = pd.DataFrame(
        {
            "iteration": [r.iteration for r in records],
            "rounds": [r.rounds for r in records],
            "objective": [r.objective for r in records],
            "error": [r.error for r in records],
            "bregman": [r.bregman for r in records],
            "fritz_john": [r.fritz_john for r in records],
            "seconds": [r.seconds for r in records],
        }
    )
    values = np.array([compiled.values(r.functionals) for r in records])
    multipliers = np.array([compiled.totals(r.multipliers) for r in records])
    bounds = np.tile(compiled.bounds, (len(records), 1))
    columns: dict[str, Any] = {}
    for j, name in enumerate(compiled.names):
        columns[f"value[{name}]"] = values[:, j]
        columns[f"bound[{name}]"] = bounds[:, j]
        columns[f"multiplier[{name}]"] = multipliers[:, j]
        if held_out is not None:
            columns[f"held_out[{name}]"] = held_out[:, j]
    return pd.concat([table, pd.DataFrame(columns, index=table.index)], axis=1)
