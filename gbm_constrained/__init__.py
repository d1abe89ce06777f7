"""Gradient-boosted classifiers trained under constraints on their error rates."""

from gbm_constrained._version import __version__ as __version__
from gbm_constrained.boosters.lightgbm.classifier import ConstrainedLGBMClassifier
from gbm_constrained.boosters.xgboost.classifier import ConstrainedXGBClassifier
from gbm_constrained.constraints.base import Constraint
from gbm_constrained.constraints.expressions import Rate
from gbm_constrained.constraints.grouped import overall
from gbm_constrained.constraints.log_loss_form import as_log_loss
from gbm_constrained.constraints.rates import (
    accuracy,
    churn,
    class_error,
    confusion,
    each,
    error_rate,
    f1,
    fnr,
    fpr,
    gap,
    log_loss,
    losses,
    precision,
    ratio,
    recall,
    selection_rate,
    tnr,
    tpr,
    wins,
)
from gbm_constrained.constraints.selectors import dataset, label
from gbm_constrained.constraints.text import format_constraint, parse_constraint, parse_constraints
from gbm_constrained.evaluation.feasibility import Feasibility
from gbm_constrained.evaluation.np_roc import np_roc_band
from gbm_constrained.evaluation.verdicts import Verdict
from gbm_constrained.exceptions import (
    CheckpointWarning,
    CostlyConstraintsWarning,
    FragileConstraintsWarning,
    InfeasibleConstraintsError,
    InfeasibleConstraintsWarning,
    MissedConstraintsWarning,
    TimeLimitWarning,
)
from gbm_constrained.linear_model.logistic_regression import ConstrainedLogisticRegression
from gbm_constrained.reporting.audit import Audit, audit
from gbm_constrained.tradeoff import tradeoff_curve
from gbm_constrained.training.callbacks import ConstraintState

__all__ = [
    "Audit",
    "CheckpointWarning",
    "ConstrainedLGBMClassifier",
    "ConstrainedLogisticRegression",
    "ConstrainedXGBClassifier",
    "Constraint",
    "ConstraintState",
    "CostlyConstraintsWarning",
    "Feasibility",
    "FragileConstraintsWarning",
    "InfeasibleConstraintsError",
    "InfeasibleConstraintsWarning",
    "MissedConstraintsWarning",
    "Rate",
    "TimeLimitWarning",
    "Verdict",
    "accuracy",
    "as_log_loss",
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
    "np_roc_band",
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
