"""XGBoost's own training call, under constraints."""

from gbm_constrained.boosters.xgboost.matrix_training import train

__all__ = ["train"]
