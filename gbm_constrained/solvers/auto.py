"""The choice between methods by the constraints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gbm_constrained.problem.lagrangian import Lagrangian
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.solvers.abpp import ABPP
from gbm_constrained.solvers.base import Solver, SolverMethod
from gbm_constrained.solvers.cbpr import CBPR

CANDIDATES: tuple[type[SolverMethod], ...] = (ABPP, CBPR)


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
        """Make the solver of a problem; `running` are parameters of the solver that is chosen."""
        return self.choose(lagrangian.constraints).begin(lagrangian, **running)

    def supports(self, constraints: LinearConstraints, iterate: str = "last") -> str | None:
        """Explain why no method covers a problem; None where one does."""
        return self.choose(constraints, iterate).supports(constraints, iterate)

    def choose(self, constraints: LinearConstraints, iterate: str = "last") -> SolverMethod:
        """Choose the first method whose theory covers a problem, or the last one."""
        methods = [candidate(**self.get_params()) for candidate in CANDIDATES]
        covering = (one for one in methods if one.supports(constraints, iterate) is None)
        return next(covering, methods[-1])

    @property
    def abpp(self) -> ABPP:
        """ABPP with these options."""
        return ABPP(**self.get_params())
