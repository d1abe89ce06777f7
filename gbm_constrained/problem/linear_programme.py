"""Linear programmes by HiGHS, to the tolerance that reductions and solvers share."""

from __future__ import annotations

from typing import Any

from scipy.optimize import linprog

# By default programmes are solved to 1e-7, and smaller violations are traded for the objective.
OPTIONS: Any = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
# The dual simplex may end so at these tolerances; the interior-point method does not.
NUMERICAL_DIFFICULTIES = 4


def solve_linear_programme(cost: Any, rows: Any, right: Any, bounds: Any, **equations: Any) -> Any:
    """Minimise ``cost @ x`` with ``rows @ x <= right``; ``x`` is None if nothing is feasible."""
    given: Any = {"A_ub": rows, "b_ub": right, "bounds": bounds, **equations}
    found = linprog(cost, method="highs-ds", options=OPTIONS, **given)
    if found.status == NUMERICAL_DIFFICULTIES:
        found = linprog(cost, method="highs-ipm", options=OPTIONS, **given)
    return found
