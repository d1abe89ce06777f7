"""Fairness notions and other common constraints by name."""

from gbm_constrained.constraints.fairlearn import from_fairlearn
from gbm_constrained.constraints.presets import (
    BoundedGroupLoss,
    Churn,
    DemographicParity,
    EqualizedOdds,
    EqualOpportunity,
    ErrorRateParity,
    FalsePositiveRateParity,
    FourFifths,
    NeymanPearson,
    TruePositiveRateParity,
    UtilityParity,
)

__all__ = [
    "BoundedGroupLoss",
    "Churn",
    "DemographicParity",
    "EqualOpportunity",
    "EqualizedOdds",
    "ErrorRateParity",
    "FalsePositiveRateParity",
    "FourFifths",
    "NeymanPearson",
    "TruePositiveRateParity",
    "UtilityParity",
    "from_fairlearn",
]
