"""One door to all reductions, which refuses what a reduction cannot minimise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gbm_constrained.reductions.base import (
    TOLERANCE,
    Kind,
    Observe,
    Oracle,
    Programme,
    Solution,
)
from gbm_constrained.reductions.bisection import solve_by_bisection
from gbm_constrained.reductions.columns import solve_by_columns
from gbm_constrained.reductions.ellipsoid import solve_by_ellipsoid
from gbm_constrained.reductions.frank_wolfe import solve_by_frank_wolfe
from gbm_constrained.reductions.gradient_descent_ascent import solve_by_gradient_descent_ascent
from gbm_constrained.solvers.reduction import ReductionName

# The solver of each kind of objective that "auto" takes.
BEST: dict[Kind, ReductionName] = {
    "linear": "columns",
    "smooth": "columns",
    "convex": "columns",
    "ratio": "bisection",
    "other": "frank_wolfe",
}
# Kinds of objectives that each solver can minimise, and why no others.
CAPABLE: dict[ReductionName, tuple[frozenset[Kind], str]] = {
    "columns": (frozenset({"linear", "smooth", "convex"}), "needs a convex objective"),
    "gda": (frozenset({"linear", "smooth", "convex"}), "needs a convex objective"),
    "ellipsoid": (frozenset({"linear", "smooth", "convex"}), "needs a convex objective"),
    "frank_wolfe": (frozenset({"linear", "smooth", "other"}), "needs a differentiable objective"),
    "bisection": (frozenset({"ratio"}), "needs a ratio of linear functions"),
}
SOLVERS: dict[ReductionName, Callable[..., Solution]] = {
    "columns": solve_by_columns,
    "frank_wolfe": solve_by_frank_wolfe,
    "gda": solve_by_gradient_descent_ascent,
    "ellipsoid": solve_by_ellipsoid,
    "bisection": solve_by_bisection,
}


def check_reduction(kind: Kind, solver: str) -> ReductionName:
    """Check that a solver can minimise a kind of objective, and choose one for ``"auto"``.

    Parameters
    ----------
    kind : {"linear", "smooth", "convex", "ratio", "other"}
        Kind of the objective.
    solver : {"auto", "columns", "frank_wolfe", "gda", "ellipsoid", "bisection"}
        Name of the solver.

    Returns
    -------
    str
        Name of the solver to take.

    Raises
    ------
    ValueError
        If the name is unknown, or the solver cannot minimise the objective.
    """
    if kind not in BEST:
        raise ValueError(f"kind={kind!r} is no kind of objective; take one of {', '.join(BEST)}")
    if solver == "auto":
        return BEST[kind]
    for name, (kinds, need) in CAPABLE.items():
        if solver == name:
            if kind in kinds:
                return name
            raise ValueError(
                f"solver={solver!r} {need}, and the objective is of kind {kind!r}; "
                f"take solver={BEST[kind]!r}, or solver='auto'"
            )
    raise ValueError(f"solver={solver!r} is no reduction; take one of auto, {', '.join(CAPABLE)}")


def solve(
    programme: Programme,
    oracle: Oracle,
    solver: str = "auto",
    max_calls: int | None = None,
    observe: Observe | None = None,
    tolerance: float = TOLERANCE,
    **settings: Any,
) -> Solution:
    """Minimise a function of the confusion matrix over randomised decision rules.

    Parameters
    ----------
    programme : Programme
        Objective and constraints.
    oracle : Oracle
        Finds the rule of smallest linear cost.
    solver : {"auto", "columns", "frank_wolfe", "gda", "ellipsoid", "bisection"}, default="auto"
        ``"auto"`` takes columns for convex objectives, bisection for ratios, and Frank-Wolfe from
        several starts for others.
    max_calls : int, default=None
        Calls of the oracle; None takes what the solver needs on small problems.
    observe : callable, default=None
        Sees the current mixture before each call, and may end the search.
    tolerance : float, default=1e-7
        Value minus bound at which the search ends.
    **settings
        Options of the solver by name, such as ``steps`` of ``"gda"``.

    Returns
    -------
    Solution
        A mixture of rules, with a bound where the solver has one.
    """
    name = check_reduction(programme.objective.kind, solver)
    if max_calls is None:
        return SOLVERS[name](programme, oracle, tolerance=tolerance, observe=observe, **settings)
    if max_calls < 2:
        raise ValueError(f"max_calls={max_calls} finds no mixture; take at least 2")
    return SOLVERS[name](programme, oracle, max_calls, tolerance, observe=observe, **settings)
