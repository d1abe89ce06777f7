"""Outer loops: primal-dual methods that drive any learner through gradients and Hessians."""

from gbm_constrained.solvers.abpp import ABPP, ABPPSolver
from gbm_constrained.solvers.adaptive_surrogates import AdaptiveSurrogates
from gbm_constrained.solvers.auto import AutoSolver
from gbm_constrained.solvers.cbpr import CBPR, CBPRSolver
from gbm_constrained.solvers.reduction import Reduction

__all__ = [
    "ABPP",
    "CBPR",
    "ABPPSolver",
    "AdaptiveSurrogates",
    "AutoSolver",
    "CBPRSolver",
    "Reduction",
]
