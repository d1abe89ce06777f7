"""Draw fitted models, groups and trade-offs with matplotlib."""

from gbm_constrained.reporting.plotting.achievable import AchievableRatesDisplay
from gbm_constrained.reporting.plotting.black_box import (
    BlackBoxHistoryDisplay,
    ModelParametersDisplay,
    SurrogateTargetsDisplay,
)
from gbm_constrained.reporting.plotting.certificate import CertificateDisplay
from gbm_constrained.reporting.plotting.confusion import GroupConfusionDisplay
from gbm_constrained.reporting.plotting.groups import GroupRatesDisplay
from gbm_constrained.reporting.plotting.history import ConstraintHistoryDisplay, MultipliersDisplay
from gbm_constrained.reporting.plotting.intervals import ConstraintIntervalsDisplay
from gbm_constrained.reporting.plotting.metric_history import MetricHistoryDisplay
from gbm_constrained.reporting.plotting.periods import plot_periods
from gbm_constrained.reporting.plotting.recalls import ClassRecallsDisplay
from gbm_constrained.reporting.plotting.roc import GroupROCDisplay
from gbm_constrained.reporting.plotting.style import COLOURS
from gbm_constrained.reporting.plotting.thresholds import plot_np_roc, plot_threshold_curve
from gbm_constrained.reporting.plotting.tradeoff import TradeoffDisplay, plot_tradeoff

__all__ = [
    "COLOURS",
    "AchievableRatesDisplay",
    "BlackBoxHistoryDisplay",
    "CertificateDisplay",
    "ClassRecallsDisplay",
    "ConstraintHistoryDisplay",
    "ConstraintIntervalsDisplay",
    "GroupConfusionDisplay",
    "GroupROCDisplay",
    "GroupRatesDisplay",
    "MetricHistoryDisplay",
    "ModelParametersDisplay",
    "MultipliersDisplay",
    "SurrogateTargetsDisplay",
    "TradeoffDisplay",
    "plot_np_roc",
    "plot_periods",
    "plot_threshold_curve",
    "plot_tradeoff",
]
