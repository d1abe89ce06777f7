"""Classifiers that XGBoost trains by its own means, for decisions that optimise a metric."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import xgboost as xgb

from gbm_constrained._dataframes import take_rows
from gbm_constrained._typing import Array, Codes
from gbm_constrained.boosters.base import join_records
from gbm_constrained.boosters.xgboost.callbacks import RoundLimit
from gbm_constrained.boosters.xgboost.merging import merge_boosters
from gbm_constrained.boosters.xgboost.model import has_dropped_trees
from gbm_constrained.training.checkpoint import State
from gbm_constrained.training.metric_classifier import clone_plain
from gbm_constrained.training.native_models import IsOver, PartRows

OF_EVALUATION = ("eval_set", "sample_weight_eval_set", "base_margin_eval_set")


@dataclass(frozen=True, eq=False)
class NativeXGBModel:
    """A trained classifier, and the scores that its training started from, if any were given."""

    model: Any
    base_margin: Any

    def margin(self, X: Any, rows: Codes) -> Array:
        """Score rows of X, whose positions among the training rows are `rows`."""
        start = None if self.base_margin is None else take_rows(self.base_margin, rows)
        return np.asarray(self.model.predict(X, output_margin=True, base_margin=start))

    def to_bytes(self) -> bytes:
        """Write the booster as UBJSON."""
        return bytes(self.model.get_booster().save_raw("ubj"))

    def state(self) -> State:
        """Give all that merged boosters, and those that go on with this one, keep of it."""
        return {
            "model": np.frombuffer(self.to_bytes(), np.uint8),
            "config": self.model.get_booster().save_config(),
            "records": getattr(self.model, "evals_result_", None),
        }


def fit_part(model: Any, y: Any, arguments: Mapping[str, Any], part: PartRows) -> NativeXGBModel:
    """Train a clone of a classifier on some of the rows."""
    if arguments["xgb_model"] is not None:
        raise ValueError(
            "xgb_model continues a model that has seen all rows, and a metric is optimised on "
            "rows that boosters have not seen: leave xgb_model out."
        )
    plain = clone_plain(model)
    given = {**arguments, "verbose": False}
    if part.is_joint:
        plain.set_params(
            objective="multi:softprob", scale_pos_weight=None, eval_metric=None,
            early_stopping_rounds=None, callbacks=None,
        )  # fmt: skip
        given.update(dict.fromkeys((*OF_EVALUATION, "base_margin")))
    given["sample_weight"] = part.take_weight(given["sample_weight"])
    if given["base_margin"] is not None:
        given["base_margin"] = take_rows(given["base_margin"], part.rows)
    if part.rounds is not None:
        # XGBoost seeds no training that goes on: rows that it draws would depend on the trainings
        # before this one.
        plain.set_params(n_estimators=part.rounds, seed_per_iteration=True)
    before = given["xgb_model"] = None if part.start is None else part.start.model
    with limited_rounds(plain, part.is_over):
        plain.fit(part.take_features(), part.take_labels(y), **given)
    if before is not None and hasattr(before, "evals_result_"):
        plain.evals_result_ = join_records(before.evals_result_, plain.evals_result_)
    return NativeXGBModel(plain, None if part.is_joint else arguments["base_margin"])


@contextmanager
def limited_rounds(model: Any, is_over: IsOver | None) -> Iterator[None]:
    """Let the training of a classifier end where `is_over` says so."""
    if is_over is None:
        yield
        return
    own = model.callbacks
    model.callbacks = [*(own or ()), RoundLimit(is_over)]
    try:
        yield
    finally:
        model.callbacks = own


def restore(model: Any, state: State, base_margin: Any) -> NativeXGBModel:
    """Make the classifier that :func:`fit_part` has trained."""
    plain = clone_plain(model)
    xgb.XGBClassifier.load_model(plain, bytearray(state["model"]))
    plain.get_booster().load_config(state["config"])
    if state["records"] is not None:
        plain.evals_result_ = state["records"]
    return NativeXGBModel(plain, base_margin)


def merge(models: Sequence[NativeXGBModel]) -> NativeXGBModel:
    """Merge models into one whose raw score is the mean of theirs."""
    model = copy.copy(models[0].model)
    model._Booster = merge_boosters([one.model.get_booster() for one in models])
    model.__dict__.pop("evals_result_", None)  # of one of them alone
    return NativeXGBModel(model, models[0].base_margin)


def takes_weights(model: Any) -> bool:
    """Whether the objective takes weights of rows, which XGBoost gives by this name."""
    objective = model.objective
    return not callable(objective) or "sample_weight" in inspect.signature(objective).parameters


def can_fold(model: Any) -> bool:
    """Whether a shift of scores can be added to the trained model."""
    is_forest = model.booster in (None, "gbtree") and not has_dropped_trees(model.get_booster())
    return is_forest and not callable(model.objective)
