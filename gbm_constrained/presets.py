"""Fairness notions and other common constraints by name."""

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
    "BoundedGroupLoss",
    "Churn",
    "Coverage",
    "DemographicParity",
    "EqualOpportunity",
    "EqualizedOdds",
    "ErrorRateParity",
    "FalsePositiveRateParity",
    "FourFifths",
    "NeymanPearson",
    "Quantification",
    "TruePositiveRateParity",
    "UtilityParity",
    "from_fairlearn",
]
