"""Records of prefixes of a model, as its solver measured them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gbm_constrained._typing import Float
from gbm_constrained.data.cells import CellStatistics
from gbm_constrained.solvers.base import Record, Solver


def make_record(solver: Solver, statistics: CellStatistics, rounds: int) -> Record:
    """Make the record of a model that no outer iteration begins with."""
    lagrangian = solver.lagrangian
    trained_in = [r for r in solver.history if r.rounds < rounds]
    last = trained_in[-1] if trained_in else solver.history[-1]
    functionals = lagrangian.constraints.functionals(statistics)
    reached = [r.fritz_john for r in solver.history if r.rounds == rounds]
    return replace(
        last,
        iteration=last.iteration + 1,
        rounds=rounds,
        objective=lagrangian.objective(statistics),
        error=lagrangian.error(statistics),
        rates=lagrangian.constraints.rows_of(functionals),
        functionals=lagrangian.constraints.find_stated(statistics, functionals),
        bregman=np.nan,
        seconds=solver.elapsed,
        fritz_john=reached[0] if reached else np.nan,
        predicted=statistics.predicted,
    )


def find_record(solver: Solver, rounds: int) -> Record | None:
    """Find the record of a model that an outer iteration began with, before its dual step."""
    for trained_in, found in itertools.pairwise(solver.history):
        if found.rounds == rounds:
            return replace(
                found,
                bounds=trained_in.bounds,
                multipliers=trained_in.multipliers,
                bregman=np.nan,
                seconds=solver.elapsed,
            )
    return None


def list_prefixes(solver: Solver, statistics: CellStatistics, rounds: int) -> list[Record]:
    """List the records of all prefixes; `statistics` are those of the longest, of `rounds`."""
    before = [r for r in solver.history if 0 < r.rounds < rounds]
    return [*before, make_record(solver, statistics, rounds)]


def errors_and_violations(records: Sequence[Record]) -> tuple[Float, Float]:
    """List the errors of prefixes, and their violations of each row of constraints."""
    errors = np.array([r.error for r in records])
    return errors, np.array([r.rates - r.bounds for r in records])
