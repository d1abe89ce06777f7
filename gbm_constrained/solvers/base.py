"""What every outer loop shares: the record of an iteration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np

from gbm_constrained._typing import Array, Float


@dataclass(frozen=True)
class Record:
    """One outer iteration: the state x_k it started from, and its dual step.

    Parameters
    ----------
    iteration : int
        k, from 0.
    rounds : int
        Calls answered before this iteration: boosting rounds, for a booster.
    objective : float
        f(x_k), weighted mean cross-entropy in nats.
    error : float
        0-1 error of the training rows at x_k.
    rates : ndarray of shape (m,)
        Left-hand side of each row of constraints at x_k, exact.
    functionals : ndarray of shape (n_functionals,)
        Value of each rate (of each group) at x_k.
    bounds : ndarray of shape (m,)
        The right-hand sides in force.
    multipliers : ndarray of shape (m,)
        y_{k+1}, the multipliers of the subproblem that follows.
    bregman : float
        D(x_k, x_{k-1}).
    seconds : float
        Since the solver was made.
    fritz_john : float
        Residual of the outer problem of CBPR that ended at x_k; NaN otherwise.
    """

    iteration: int
    rounds: int
    objective: float
    error: float
    rates: Float
    functionals: Float
    bounds: Float
    multipliers: Float
    bregman: float
    seconds: float
    fritz_john: float = np.nan


def columns_of_records(records: Sequence[Record]) -> dict[str, Array]:
    """Make a table of records, one array for each field."""
    names = [f.name for f in fields(Record)]
    return {name: np.array([getattr(r, name) for r in records]) for name in names}


def records_of_columns(columns: Mapping[str, Array]) -> list[Record]:
    """Make records of such a table."""
    rows = zip(*(columns[f.name] for f in fields(Record)), strict=True)
    return [Record(*(v.copy() if v.ndim else v.item() for v in row)) for row in rows]
