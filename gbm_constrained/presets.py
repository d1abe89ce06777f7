"""Fairness notions and other common constraints by name."""

from gbm_constrained.constraints.auc_presets import (
    AverageEqualityGap,
    BackgroundSubgroupAUC,
    CrossAUC,
    GroupAUC,
    SubgroupAUC,
)
from gbm_constrained.constraints.fairlearn import from_fairlearn
from gbm_constrained.constraints.presets import (
    BoundedGroupLoss,
    Churn,
    Coverage,
    DemographicParity,
    EqualizedOdds,
    EqualOpportunity,
    ErrorRateParity,
    FalsePositiveRateParity,
    FourFifths,
    NeymanPearson,
    Quantification,
    TruePositiveRateParity,
    UtilityParity,
)

__all__ = [
    "AverageEqualityGap",
    "BackgroundSubgroupAUC",
    "BoundedGroupLoss",
    "Churn",
    "Coverage",
    "CrossAUC",
    "DemographicParity",
    "EqualOpportunity",
    "EqualizedOdds",
    "ErrorRateParity",
    "FalsePositiveRateParity",
    "FourFifths",
    "GroupAUC",
    "NeymanPearson",
    "Quantification",
    "SubgroupAUC",
    "TruePositiveRateParity",
    "UtilityParity",
    "from_fairlearn",
]
