"""LightGBM's own training call, under constraints."""

from gbm_constrained.scorers.lightgbm.dataset_training import train

__all__ = ["train"]
