"""Multipliers moved by the rates of rows that the trees have not seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.solvers.base import Record, Solver
from gbm_constrained.training.attainable_bounds import AttainableBounds

BoundsAt: TypeAlias = Callable[[Record], Float]


@dataclass
class DualController:
    """Solver that moves multipliers by held-out rates, and the path that they take.

    Boosters follow the path; the solver is never asked for gradients (Cotter et al., "Training
    well-generalizing classifiers for fairness metrics and other data-dependent constraints", 2019,
    let the two players of a Lagrangian game look at two data sets in the same way).

    Attributes
    ----------
    solver : Solver
        Solver whose Lagrangian is that of the held-out rows.
    rows : ndarray of int or None
        Positions of the held-out rows among all rows of the fit; None if they are other rows.
    bounds_at : callable or None
        Given the record of an iteration, the bounds that the multipliers move towards; None stands
        for the bounds of the constraints.
    attainable : AttainableBounds or None
        What the best threshold exceeds the bounds by, where constraints have priorities.
    path : list of ndarray of shape (m,)
        Multipliers of each outer iteration.
    """

    solver: Solver
    rows: Codes | None = None
    bounds_at: BoundsAt | None = None
    attainable: AttainableBounds | None = None
    path: list[Float] = field(default_factory=list)

    def observe(self, margin: Array) -> None:
        """Begin an outer iteration with a dual step at the scores of the held-out rows."""
        solver = self.solver
        if self.attainable is not None:
            solver.bounds = solver.bounds + self.attainable.find_excess(margin)
        solver.begin_iteration(solver.lagrangian.at(margin))
        self.path.append(solver.multipliers)
        solver.bounds = self.bounds_after(solver.history[-1])

    def bounds_after(self, record: Record) -> Float:
        """Bounds that the multipliers move towards in the iteration after a record."""
        if self.bounds_at is None:
            return self.solver.lagrangian.constraints.b
        return self.bounds_at(record)

    def restore(self, state: Any) -> None:
        """Take over the state of the solver, and with it the path."""
        self.solver.restore(state)
        self.path[:] = [record.multipliers for record in self.solver.history]
