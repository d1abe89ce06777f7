"""Options, programme and observers of one fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gbm_constrained.decision.evaluation_set import EvaluationSet
from gbm_constrained.decision.group_shifts import GroupOffsets
from gbm_constrained.decision.prefix_choice import tightened_bounds
from gbm_constrained.problem.lagrangian import Lagrangian
from gbm_constrained.problem.row_owners import find_levels
from gbm_constrained.solvers.base import Solver
from gbm_constrained.statistics.counts import CellCounts
from gbm_constrained.training.attainable_bounds import AttainableBounds
from gbm_constrained.training.callbacks import CallbackNotifier, Phase
from gbm_constrained.training.checkpoint import CheckpointFile
from gbm_constrained.training.dual_controller import BoundsAt
from gbm_constrained.training.options import SolverOptions
from gbm_constrained.training.problem import FitProblem, LibrarySettings
from gbm_constrained.training.progress import Progress


@dataclass(frozen=True, eq=False)
class FitRun:
    """Options, programme and observers of one fit, as its stages share them.

    Attributes
    ----------
    options : SolverOptions
        Constructor parameters.
    problem : FitProblem
        Constraints bound to the rows.
    library : LibrarySettings
        Settings of the library's own fit.
    notifier : CallbackNotifier
        Notifies callbacks, and ends training when one of them or the time limit asks for it.
    certification : EvaluationSet or None
        Rows that are set aside for a guarantee.
    groups : GroupOffsets or None
        Groups that have thresholds of their own, if the user asked for these.
    checkpoint : CheckpointFile or None
        File that finished stages are saved to.
    progress : Progress or None
        Display of the progress.
    """

    options: SolverOptions
    problem: FitProblem
    library: LibrarySettings
    notifier: CallbackNotifier
    certification: EvaluationSet | None = None
    groups: GroupOffsets | None = None
    checkpoint: CheckpointFile | None = None
    progress: Progress | None = None

    def make_solver(self, lagrangian: Lagrangian, **others: Any) -> Solver:
        """Make a solver by the options and the library's settings; `others` override them."""
        rounds = self.options.rounds_per_iteration
        rate = min(self.library.learning_rate, 1.0)
        given: dict[str, Any] = {
            "progress": max(1.0 - (1.0 - rate) ** rounds, 1e-3),
            "lazy": self.library.is_lazy,
            "initial_multipliers": self.problem.initial_multipliers(self.options.method.start),
        }
        return self.options.method.begin(lagrangian, **{**given, **others})

    def notify_of(self, solver: Solver, phase: Phase, rows: str) -> None:
        """Notify the callbacks of a solver's iterations."""
        constraints = solver.lagrangian.constraints
        solver.callback = self.notifier.make_callback(phase, rows, constraints)

    def bounds_at(self, lagrangian: Lagrangian) -> BoundsAt:
        """Make the bounds that multipliers move towards, as a function of the last record."""
        compiled, rows = lagrangian.constraints, CellCounts.undecided(lagrangian.cells)
        return lambda record: tightened_bounds(compiled, rows.decide(record.predicted))

    def attainable_bounds(self, lagrangian: Lagrangian) -> AttainableBounds | None:
        """Make what relaxes the bounds of later priorities; None where there are none."""
        compiled, cells = lagrangian.constraints, lagrangian.cells
        if len(find_levels(compiled)) < 2:
            return None
        return AttainableBounds(cells, compiled.on(cells))

    def without_multipliers(self) -> dict[str, Any]:
        """Arguments of a solver whose multipliers stay zero."""
        path = [np.zeros(len(self.problem.compiled))]
        return {"schedule": path, "initial_multipliers": None}

    def hide_progress(self) -> None:
        """Hide a progress bar until the next iteration."""
        if self.progress is not None:
            self.progress.close()
