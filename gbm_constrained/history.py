"""The history of a fit, as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from gbm_constrained.compiler import CompiledConstraints
from gbm_constrained.rows import Float
from gbm_constrained.solvers.abpp import Record


def history_frame(
    records: Sequence[Record],
    compiled: CompiledConstraints,
    held_out: Float | None = None,
    moving_bounds: bool = False,
) -> pd.DataFrame:
    """History of a solver as a table, one row per record.

    Parameters
    ----------
    records : sequence of Record
    compiled : CompiledConstraints
    held_out : ndarray of shape (n_records, n_constraints), default=None
        Values of the constraints on unseen rows.
    moving_bounds : bool, default=False
        Whether bounds are those of each record, and not those that were asked for.

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
    columns: dict[str, Any] = {}
    for j, (name, bound) in enumerate(zip(compiled.names, compiled.bounds, strict=True)):
        columns[f"value[{name}]"] = values[:, j]
        columns[f"bound[{name}]"] = (
            np.array([r.bounds[j] for r in records]) if moving_bounds else bound
        )
        columns[f"multiplier[{name}]"] = multipliers[:, j]
        if held_out is not None:
            columns[f"held_out[{name}]"] = held_out[:, j]
    return pd.concat([table, pd.DataFrame(columns, index=table.index)], axis=1)
