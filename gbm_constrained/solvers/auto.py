"""The choice between methods by the constraints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gbm_constrained.problem.lagrangian import Lagrangian
from gbm_constrained.solvers.abpp import ABPP
from gbm_constrained.solvers.base import Solver, SolverMethod
from gbm_constrained.solvers.cbpr import CBPR


@dataclass(eq=False, repr=False, kw_only=True)
class AutoSolver(SolverMethod):
    """Options of the method that ``solver="auto"`` chooses by the constraints.

    CBPR is taken for differences of mean losses, and ABPP for all other constraints. The sigmoid
    proxy of a rate is not convex either. Its curvature, 0.06 per unit of a multiplier, is less
    than that of ABPP's own proximal term, which makes the subproblems convex.

    Parameters
    ----------
    tau, sigma, mu, proxy, rounds_per_iteration, outlier_clip, initial_multipliers : default=...
        As in :class:`ABPP`.
    """

    def begin(self, lagrangian: Lagrangian, **running: Any) -> Solver:
        """Make the solver of a problem.

        Parameters
        ----------
        lagrangian : Lagrangian
            The problem on the training rows.
        **running
            Parameters of the solver that are no options of the method.
        """
        return self.choose(lagrangian).begin(lagrangian, **running)

    def choose(self, lagrangian: Lagrangian) -> SolverMethod:
        """Choose the method for the constraints of a problem.

        Parameters
        ----------
        lagrangian : Lagrangian
            The problem on the training rows.
        """
        return self.abpp if lagrangian.constraints.is_convex else CBPR(**self.get_params())

    @property
    def abpp(self) -> ABPP:
        """ABPP with these options."""
        return ABPP(**self.get_params())
