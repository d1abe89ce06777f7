"""Fold boosters of LightGBM, grown in step."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import lightgbm as lgb
import numpy as np
import pandas as pd
from lightgbm.callback import CallbackEnv
from narwhals.dependencies import is_polars_dataframe

from gbm_constrained._dataframes import as_numbers, take_rows, with_rows
from gbm_constrained._typing import Array, Codes
from gbm_constrained.data.splits import Fold
from gbm_constrained.data.validation import preserve_random_state
from gbm_constrained.solvers.base import Solver
from gbm_constrained.training.checkpoint import State
from gbm_constrained.training.fit import ConstrainedFit
from gbm_constrained.training.fold_boosters import FoldBoosterFactory


@dataclass(frozen=True, eq=False)
class _SharedData:
    """Data and parameters that all fold boosters of a fit share.

    Attributes
    ----------
    whole : Dataset
        All rows, binned once; the folds are parts of it.
    params : dict
        Parameters of the native learner.
    X : array-like
        Features of all rows, for scores of prefixes.
    start : ndarray
        Scores that training starts from: of all rows, or of one that stands for all.
    schedules : list of callable
        Callbacks that change parameters before a round.
    """

    whole: lgb.Dataset
    params: dict[str, Any]
    X: Any
    start: Array
    schedules: list[Callable[..., Any]]


def make_fold_booster_factory(
    parent: lgb.LGBMClassifier,
    fit: ConstrainedFit,
    start: Array,
    feature_name: Any,
    categorical_feature: Any,
    callbacks: list[Callable[..., Any]] | None,
) -> FoldBoosterFactory:
    """Make the factory of a fit.

    Training begins at the scores `start`: of the user for all rows, which ``predict`` does not
    add, or at those of one row that stands for all.
    """
    # LightGBM derives num_class from this attribute, which is of an earlier fit until the end.
    before, parent._n_classes = parent._n_classes, max(fit.data.columns, 2)
    try:
        # The fit of the returned model gives the same messages.
        with preserve_random_state(parent), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            params = {**parent._process_params(stage="fit"), "objective": "none"}
            params["verbosity"] = -1
    finally:
        parent._n_classes = before
    combined = fit.data.combined
    # LightGBM 4.6 takes no parts of the tables of polars, which it reads as arrays.
    X = combined.X.to_numpy() if is_polars_dataframe(combined.X) else with_rows(combined.X)
    whole = lgb.Dataset(
        X,
        combined.classes_of_rows,
        feature_name=feature_name,
        categorical_feature=categorical_feature,
        params=params,
    ).construct()
    start = np.asarray(start, dtype=np.float64)
    # All other callbacks are about the model that is returned.
    schedules = [c for c in callbacks or () if getattr(c, "before_iteration", False)]
    features = as_numbers(X) if isinstance(X, pd.DataFrame) else X
    shared = _SharedData(whole, params, features, start, schedules)
    return functools.partial(_FoldBooster, shared, fit)


class _FoldBooster:
    """A booster on some of the rows, grown as the parent's own ``fit`` would."""

    def __init__(
        self, shared: _SharedData, fit: ConstrainedFit, fold: Fold, solver: Solver | None
    ) -> None:
        self.solver = solver
        self.rows = {"training": fold.training, "held": fold.held}
        # Under an objective of its own, LightGBM would hand out probabilities and no scores.
        self.gradient: Any = fit.problem.own_gradient(fold.training) if solver is None else solver
        self.params, self.n_rounds = dict(shared.params), fit.run.library.n_rounds
        self.start = shared.start[fold.training] if fit.has_offset else shared.start
        self.predicted = 0.0 if fit.has_offset else shared.start
        self.X, self.schedules = shared.X, shared.schedules
        self.trees_after = [0]
        self.booster = self._make_booster(shared.whole)
        self._final: dict[str, Array] = {}

    def _make_booster(self, whole: lgb.Dataset) -> lgb.Booster:
        training, held = (_take(whole, rows) for rows in self.rows.values())
        booster = lgb.Booster(self.params, training)
        booster.add_valid(held, "held")
        booster._Booster__set_objective_to_none = True  # as in Observer
        return booster

    def grow(self, rounds: int) -> None:
        def objective(margin: Array, _: Any) -> Any:
            return self.gradient(margin + self.start)

        for schedule in self.schedules:
            schedule(CallbackEnv(self.booster, self.params, rounds, 0, self.n_rounds, None))
        self.booster.update(fobj=objective)
        self.trees_after.append(self.booster.current_iteration())

    def state(self) -> State:
        return {
            "trees_after": self.trees_after,
            "model": self.booster.model_to_string(num_iteration=-1),
            "margins": {"held": self.held_margin(), "training": self.own_margin(-1)},
        }

    def restore(self, state: State) -> None:
        self.trees_after, self._final = state["trees_after"], state["margins"]
        self.booster = lgb.Booster(model_str=state["model"])

    def release(self) -> None:
        self._final = {name: self._margin(name, None) for name in self.rows}
        self.booster = lgb.Booster(model_str=self.booster.model_to_string(num_iteration=-1))
        self.solver = self.gradient = None

    def held_margin(self, rounds: int | None = None) -> Array:
        return self._margin("held", rounds)

    def own_margin(self, rounds: int) -> Array:
        return self._margin("training", rounds)

    def _margin(self, name: str, rounds: int | None) -> Array:
        """Score rows that the booster has, which LightGBM hands out after all rounds only."""
        if rounds is not None and self.trees_after[rounds] != self.trees_after[-1]:
            of_prefix = self.booster.predict(
                take_rows(self.X, self.rows[name]),
                raw_score=True,
                num_iteration=self.trees_after[rounds],
            )
            return np.asarray(of_prefix) + self.predicted
        if name in self._final:  # A booster that is restored or released has no rows.
            return self._final[name]
        kept: list[Array] = []

        def keep(margin: Array, _: Any) -> list[Any]:
            kept.append(margin + self.predicted)
            return []

        evaluate = self.booster.eval_valid if name == "held" else self.booster.eval_train
        evaluate(feval=keep)
        return kept[0]


def _take(whole: lgb.Dataset, rows: Codes) -> lgb.Dataset:
    """Take some of the rows, whose numbers LightGBM keeps as a list of Python's integers."""
    part = whole.subset(rows.tolist()).construct()
    part.used_indices = rows  # It takes a tenth of the memory of the list.
    return part
