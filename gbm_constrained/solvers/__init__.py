"""Outer loops: primal-dual methods that drive any learner through gradients and Hessians.

The rates of several data sets, in the objective and in the constraints, are a
:class:`RateProblem`, which :class:`MajorizationMinimization` solves.
"""

from gbm_constrained.solvers.abpp import ABPP, ABPPSolver
from gbm_constrained.solvers.base import Reduction
from gbm_constrained.solvers.black_box import AdaptiveSurrogates
from gbm_constrained.solvers.cbpr import CBPR, AutoSolver, CBPRSolver
from gbm_constrained.solvers.cutting_plane import CuttingPlane
from gbm_constrained.solvers.dataset_rates import MajorizationMinimization, RateProblem

__all__ = [
    "ABPP",
    "CBPR",
    "ABPPSolver",
    "AdaptiveSurrogates",
    "AutoSolver",
    "CBPRSolver",
    "CuttingPlane",
    "MajorizationMinimization",
    "RateProblem",
    "Reduction",
]
