"""Estimator whose rows are a DataFrame of Spark, on the machines of a Spark cluster."""

from gbm_constrained._optional import explain_missing

with explain_missing("Estimators of Spark", "spark"):
    from gbm_constrained.distributed.spark import (
        ConstrainedXGBClassificationModel,
        ConstrainedXGBClassifier,
    )

__all__ = ["ConstrainedXGBClassificationModel", "ConstrainedXGBClassifier"]
