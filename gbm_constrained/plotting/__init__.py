"""Figures of constrained fits, with matplotlib.

The displays are those of scikit-learn in style: ``from_estimator`` (and ``from_predictions``)
compute and draw, ``plot(ax=...)`` draws again elsewhere, and ``ax_`` and ``figure_`` are what was
drawn into. Functions draw into the axes that they are given and return them. Without axes all
make a figure of their own. Nothing is shown, saved or configured: that is left to the caller.
"""

from gbm_constrained.plotting.confusion import GroupConfusionDisplay
from gbm_constrained.plotting.groups import GroupRatesDisplay
from gbm_constrained.plotting.history import ConstraintHistoryDisplay, MultipliersDisplay
from gbm_constrained.plotting.requested import plot_requested
from gbm_constrained.plotting.style import COLOURS
from gbm_constrained.plotting.thresholds import plot_np_roc, plot_threshold_curve
from gbm_constrained.plotting.tradeoff import TradeoffDisplay, plot_tradeoff

__all__ = [
    "COLOURS",
    "ConstraintHistoryDisplay",
    "GroupConfusionDisplay",
    "GroupRatesDisplay",
    "MultipliersDisplay",
    "TradeoffDisplay",
    "plot_np_roc",
    "plot_requested",
    "plot_threshold_curve",
    "plot_tradeoff",
]
