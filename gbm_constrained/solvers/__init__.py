"""Outer loops: primal-dual methods that drive any learner through gradients and Hessians."""

from gbm_constrained.solvers.abpp import ABPP
from gbm_constrained.solvers.cbpr import CBPR

__all__ = ["ABPP", "CBPR"]
