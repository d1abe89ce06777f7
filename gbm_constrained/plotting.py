"""Draw fitted models, groups and trade-offs with matplotlib."""

from gbm_constrained.reporting.plotting.groups import (
    ClassRecallsDisplay,
    GroupConfusionDisplay,
    GroupRatesDisplay,
    GroupROCDisplay,
    plot_np_roc,
    plot_threshold_curve,
)
from gbm_constrained.reporting.plotting.history import (
    AchievableRatesDisplay,
    BlackBoxHistoryDisplay,
    CertificateDisplay,
    ConstraintHistoryDisplay,
    MetricHistoryDisplay,
    ModelParametersDisplay,
    MultipliersDisplay,
    SurrogateTargetsDisplay,
)
from gbm_constrained.reporting.plotting.parts import GapPartsDisplay
from gbm_constrained.reporting.plotting.style import COLOURS
from gbm_constrained.reporting.plotting.tradeoff import (
    ConstraintIntervalsDisplay,
    TradeoffDisplay,
    plot_periods,
    plot_segments,
    plot_tradeoff,
)

__all__ = [
    "COLOURS",
    "AchievableRatesDisplay",
    "BlackBoxHistoryDisplay",
    "CertificateDisplay",
    "ClassRecallsDisplay",
    "ConstraintHistoryDisplay",
    "ConstraintIntervalsDisplay",
    "GapPartsDisplay",
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
    "plot_segments",
    "plot_threshold_curve",
    "plot_tradeoff",
]
