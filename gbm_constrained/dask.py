"""Classifiers whose rows are Dask collections, on the machines of a Dask cluster."""

from gbm_constrained._optional import explain_missing

with explain_missing("Classifiers of Dask collections", "dask"):
    from gbm_constrained.distributed.dask import (
        ConstrainedLGBMClassifier,
        ConstrainedXGBClassifier,
    )

__all__ = ["ConstrainedLGBMClassifier", "ConstrainedXGBClassifier"]
