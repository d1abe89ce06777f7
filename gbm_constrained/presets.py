"""Fairness notions and other common constraints by name."""

from gbm_constrained.constraints.presets import *  # noqa: F403
from gbm_constrained.constraints.presets import __all__ as __all__
