"""XGBoost's own training call, under constraints."""

from gbm_constrained.scorers.xgboost.matrix_training import train

__all__ = ["train"]
