"""Fits whose rows are on several machines, each of which runs the same program on its own rows."""

from gbm_constrained.distributed.processes import fit_on_processes

__all__ = ["fit_on_processes"]
