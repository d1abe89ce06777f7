"""Classifiers that LightGBM trains by its own means, for decisions that optimise a metric."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import lightgbm as lgb
import numpy as np
from sklearn.preprocessing import LabelEncoder

from gbm_constrained._dataframes import take_rows
from gbm_constrained._typing import Array, Codes
from gbm_constrained.boosters.base import join_records
from gbm_constrained.boosters.lightgbm.callbacks import end_rounds, is_early_stopping
from gbm_constrained.boosters.lightgbm.merging import merge_boosters
from gbm_constrained.boosters.lightgbm.parameters import (
    find_objective,
    find_parameter,
    make_early_stopping,
    set_rounds,
)
from gbm_constrained.boosters.lightgbm.trained_model import adopt_file
from gbm_constrained.training.checkpoint import State
from gbm_constrained.training.metric_classifier import clone_plain
from gbm_constrained.training.native_models import IsOver, PartRows


@dataclass(frozen=True, eq=False)
class NativeLGBMModel:
    """A trained classifier."""

    model: Any

    def margin(self, X: Any, rows: Codes) -> Array:
        """Score rows of X."""
        with warnings.catch_warnings():  # Training has said what there is to say.
            warnings.simplefilter("ignore")
            return np.asarray(self.model._raw_margin(X))

    def to_bytes(self) -> bytes:
        """Write the booster as LightGBM's text."""
        text: str = self.model.booster_.model_to_string()
        return text.encode()

    def state(self) -> State:
        """Give all that merged boosters, and those that go on with this one, keep of it."""
        params = self.model.booster_.params.items()
        return {
            "model": self.to_bytes().decode(),
            "objective": None if callable(self.model._objective) else self.model._objective,
            "params": {name: value for name, value in params if not callable(value)},
            "records": self.model._evals_result,
        }


def fit_part(model: Any, y: Any, arguments: Mapping[str, Any], part: PartRows) -> NativeLGBMModel:
    """Train a clone of a classifier on some of the rows; `arguments` hold the sample weights."""
    if arguments["init_model"] is not None:
        raise ValueError(
            "init_model continues a model that has seen all rows, and a metric is optimised on "
            "rows that boosters have not seen: leave init_model out."
        )
    plain = clone_plain(model)
    given = {name: value for name, value in arguments.items() if name != "init_model"}
    given["callbacks"] = [c for c in given["callbacks"] or () if is_early_stopping(c)] or None
    if part.is_joint:
        plain.set_params(objective=None, class_weight=None)
        given = {name: given[name] for name in ("feature_name", "categorical_feature")}
    given["sample_weight"] = part.take_weight(arguments["sample_weight"])
    if given.get("init_score") is not None:
        given["init_score"] = take_rows(given["init_score"], part.rows)
    if part.rounds is not None:
        set_rounds(plain, part.rounds)
    before = None if part.start is None else part.start.model
    with limited_rounds(plain, given.get("callbacks"), part.is_over) as callbacks:
        given["callbacks"] = callbacks
        plain.fit(part.take_features(), part.take_labels(y), init_model=before, **given)
    if before is not None:
        plain._evals_result = join_records(before._evals_result, plain._evals_result)
    return NativeLGBMModel(plain)


@contextmanager
def limited_rounds(
    model: Any, callbacks: Any, is_over: IsOver | None
) -> Iterator[list[Any] | None]:
    """Give callbacks with which training ends where `is_over` says so; those given without it."""
    if is_over is None:
        yield callbacks
        return
    given = callbacks or ()
    stopping = [c for c in given if is_early_stopping(c)] + make_early_stopping(model)
    others = [c for c in given if not is_early_stopping(c)]
    model._fit_params = {"early_stopping_round": 0}
    try:
        yield [*others, end_rounds(is_over, stopping), *stopping]
    finally:
        del model._fit_params


def restore(model: Any, state: State, labels: Any) -> NativeLGBMModel:
    """Make the classifier that :func:`fit_part` has trained on rows with some labels."""
    plain = clone_plain(model)
    booster = lgb.Booster(model_str=state["model"])
    objective = state["objective"] or find_objective(plain)
    adopt_file(plain, booster, objective, None, np.unique(labels).size)
    booster.params = dict(state["params"])
    if callable(objective):
        booster.params["objective"] = objective
    plain._le = LabelEncoder().fit(labels)
    plain._classes = plain._le.classes_
    plain._evals_result = state["records"]
    codes = plain._le.transform(plain._classes)
    plain._class_map = dict(zip(plain._classes, codes, strict=True))
    return NativeLGBMModel(plain)


def merge(models: Sequence[NativeLGBMModel]) -> NativeLGBMModel:
    """Merge models into one whose raw score is the mean of theirs."""
    model = copy.copy(models[0].model)
    model._Booster = merge_boosters([one.model.booster_ for one in models])
    # All that one of them knows of its evaluation sets is its own.
    model._best_iteration, model._evals_result = model._Booster.best_iteration, {}
    model._best_score = model._Booster.best_score = defaultdict(OrderedDict)
    return NativeLGBMModel(model)


def can_fold(model: Any) -> bool:
    """Whether a shift of scores can be added to the trained model."""
    kind = find_parameter(model, "boosting", "gbdt")
    is_sum = kind not in ("rf", "random_forest")
    return is_sum and not callable(find_objective(model))


def takes_weights(model: Any) -> bool:
    """Whether the objective takes weights of rows; one of two arguments sees none."""
    objective = find_objective(model)
    return not callable(objective) or len(inspect.signature(objective).parameters) > 2


def average_scores(model: Any, booster: Any, scores: Array, rounds: int | None = None) -> Array:
    """Average the scores of a random forest, which LightGBM adds up; others stay as they are.

    Parameters
    ----------
    model : LGBMClassifier
        The classifier.
    booster : Booster
        The booster that scored the rows.
    scores : ndarray
        Raw scores of its first rounds.
    rounds : int, default=None
        The number of these; those up to the best iteration by default.
    """
    if find_parameter(model, "boosting", "gbdt") not in ("rf", "random_forest"):
        return scores
    best = booster.best_iteration if booster.best_iteration > 0 else booster.current_iteration()
    asked = rounds if rounds is not None and rounds > 0 else best
    return np.asarray(scores / min(asked, booster.current_iteration()))
