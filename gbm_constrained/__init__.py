"""Gradient-boosted classifiers trained under constraints on their error rates."""

from gbm_constrained.audit import audit
from gbm_constrained.checkpointing import Checkpoint, CheckpointWarning
from gbm_constrained.costs import CostlyConstraintsWarning
from gbm_constrained.feasibility import (
    Feasibility,
    FragileConstraintsWarning,
    InfeasibleConstraintsError,
    InfeasibleConstraintsWarning,
    MissedConstraintsWarning,
)
from gbm_constrained.frontier import tradeoff_curve
from gbm_constrained.language import format_constraint, parse_constraint, parse_constraints
from gbm_constrained.lightgbm import ConstrainedLGBMClassifier
from gbm_constrained.logistic import ConstrainedLogisticRegression
from gbm_constrained.rates import (
    Constraint,
    accuracy,
    churn,
    class_error,
    confusion,
    dataset,
    each,
    error_rate,
    f1,
    fnr,
    fpr,
    gap,
    label,
    log_loss,
    losses,
    overall,
    precision,
    ratio,
    recall,
    selection_rate,
    tnr,
    tpr,
    wins,
)
from gbm_constrained.time_limit import TimeLimitWarning
from gbm_constrained.xgboost import ConstrainedXGBClassifier

__version__ = "0.1.0"

__all__ = [
    "Checkpoint",
    "CheckpointWarning",
    "ConstrainedLGBMClassifier",
    "ConstrainedLogisticRegression",
    "ConstrainedXGBClassifier",
    "Constraint",
    "CostlyConstraintsWarning",
    "Feasibility",
    "FragileConstraintsWarning",
    "InfeasibleConstraintsError",
    "InfeasibleConstraintsWarning",
    "MissedConstraintsWarning",
    "TimeLimitWarning",
    "accuracy",
    "audit",
    "churn",
    "class_error",
    "confusion",
    "dataset",
    "each",
    "error_rate",
    "f1",
    "fnr",
    "format_constraint",
    "fpr",
    "gap",
    "label",
    "log_loss",
    "losses",
    "overall",
    "parse_constraint",
    "parse_constraints",
    "precision",
    "ratio",
    "recall",
    "selection_rate",
    "tnr",
    "tpr",
    "tradeoff_curve",
    "wins",
]
