"""What a fit tells while it runs and after: its history as a table, and its progress."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from gbm_constrained.compiler import CompiledConstraints
from gbm_constrained.decision import UnseenRows
from gbm_constrained.solvers.abpp import Record


def history_frame(
    records: Sequence[Record],
    compiled: CompiledConstraints,
    held_out: UnseenRows | None = None,
    moving_bounds: bool = False,
) -> pd.DataFrame:
    """History of a solver as a table, one row per record."""
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
    held = [held_out.values(r.rounds) for r in records] if held_out is not None else []
    columns: dict[str, Any] = {}
    for j, constraint in enumerate(compiled.constraints):
        columns[f"value[{constraint}]"] = values[:, j]
        columns[f"bound[{constraint}]"] = (
            np.array([r.bounds[j] for r in records]) if moving_bounds else constraint.bound
        )
        columns[f"multiplier[{constraint}]"] = multipliers[:, j]
        if held:
            columns[f"held_out[{constraint}]"] = np.array(held)[:, j]
    return pd.concat([table, pd.DataFrame(columns, index=table.index)], axis=1)


class Progress:
    """Progress of a fit that takes longer than a few seconds, on the standard error stream.

    A tqdm bar where tqdm is installed, a line every few seconds otherwise.
    """

    DELAY = 5.0  # seconds

    def __init__(self, n_rounds: int, compiled: CompiledConstraints) -> None:
        self.n_rounds = n_rounds
        self.compiled = compiled
        self._last = time.perf_counter()
        self._bar: Any = None

    def __call__(self, record: Record) -> None:
        """Show one outer iteration."""
        due = time.perf_counter() - self._last > self.DELAY
        if self._bar is None and not due:
            return
        values = ", ".join(
            f"{c.expression} {value:.4f} ({c.sense} {c.bound:g})"
            for c, value in zip(
                self.compiled.constraints, self.compiled.values(record.functionals), strict=True
            )
        )
        if self._bar is None:
            try:
                from tqdm import tqdm  # here, for importing it takes longer than many a fit
            except ImportError:
                self._last = time.perf_counter()
                line = f"[{record.rounds}/{self.n_rounds}] {values}"
                print(line, file=sys.stderr, flush=True)
                return
            self._bar = tqdm(total=self.n_rounds, initial=record.rounds, unit="round", leave=False)
        self._bar.set_postfix_str(values, refresh=False)
        self._bar.update(record.rounds - self._bar.n)

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.close()
