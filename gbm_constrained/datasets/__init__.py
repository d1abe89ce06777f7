"""Example data sets."""

from gbm_constrained.datasets.loaders import *  # noqa: F403
from gbm_constrained.datasets.loaders import __all__ as __all__
