"""XGBoost's classifier under constraints on the rows of one of several machines.

The calls run inside a communicator of XGBoost, which joins sketches and histograms of the
machines, so that each of them grows the same trees.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import xgboost as xgb

from gbm_constrained.boosters.shards import ShardMixin
from gbm_constrained.boosters.xgboost.adapter import XGBoostAdapter
from gbm_constrained.boosters.xgboost.classifier import ConstrainedXGBClassifier
from gbm_constrained.boosters.xgboost.native import find_intercept
from gbm_constrained.data.communicator import Communicator, Machine
from gbm_constrained.data.validation import check_labels


class _ShardAdapter(XGBoostAdapter):
    """``BoosterAdapter`` of a machine that may lack rows, classes and groups."""

    def __init__(self, model: Any, *given: Any) -> None:
        super().__init__(model, *given)
        self.communicator = model.machine.communicator

    def find_intercept(self, native: dict[str, Any]) -> Any:
        """Find the intercept of the rows of all machines, which the first machine stands for."""
        cells = self.fit.problem.cells
        first = cells.views[0].cells
        k = cells.classes.size
        of_class = np.bincount(cells.labels[first], cells.weight[first], k)
        n = k if self.communicator.rank == 0 else 0
        return find_intercept(np.arange(k)[:n], of_class[:n], native)


def _share_metric(metric: Any, communicator: Communicator) -> Any:
    """Make XGBoost's mean over machines of a function the mean over their rows.

    A machine without rows calls it on nothing otherwise, and one of few rows counts as any other.
    Names stay as they are.
    """
    if isinstance(metric, (list, tuple)):
        return [_share_metric(one, communicator) for one in metric]
    if not callable(metric):
        return metric
    function: Callable[..., Any] = metric

    @functools.wraps(function)
    def shared(y_true: Any, y_score: Any, **weighted: Any) -> float:
        own = float(weighted["sample_weight"].sum()) if weighted else float(len(y_true))
        (total,) = communicator.sum(np.array([own]))
        if own == 0.0:
            return 0.0
        value = float(function(y_true, y_score, **weighted))
        return value * own * communicator.size / float(total)

    return shared


class _ShardParent(xgb.XGBClassifier):
    """XGBoost's classifier, whose labels on a machine need not be of all classes."""

    machine: Machine
    n_all_classes: int
    eval_metric: Any

    def fit(self, X: Any, y: Any, **given: Any) -> Any:
        """Train with the other machines on the rows of all of them."""
        self._labels = y
        if not hasattr(self, "n_all_classes"):
            self.n_all_classes = check_labels(y, communicator=self.machine.communicator)[0].size
        own: Any = self.eval_metric
        self.eval_metric = _share_metric(own, self.machine.communicator)
        try:
            return super().fit(X, np.arange(self.n_all_classes), **given)
        finally:
            self.eval_metric = own

    def _create_dmatrix(self, ref: Any, **given: Any) -> Any:
        if ref is None:
            given["label"] = self._labels
        return super()._create_dmatrix(ref, **given)


class ShardXGBClassifier(ShardMixin, ConstrainedXGBClassifier, _ShardParent):  # type: ignore[misc]
    """A classifier of XGBoost whose training rows are on several machines."""

    _adapter_class = _ShardAdapter
    _local_class = ConstrainedXGBClassifier
    _of_shard = ("machine", "n_all_classes", "_labels")
