"""LightGBM boosters of the folds, grown in step."""

from __future__ import annotations

import functools
from collections.abc import Callable
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


def make_fold_booster_factory(
    parent: lgb.LGBMClassifier,
    fit: ConstrainedFit,
    start: Array,
    feature_name: Any,
    categorical_feature: Any,
    callbacks: list[Callable[..., Any]] | None,
) -> FoldBoosterFactory:
    """Prepare the data set whose parts boosters are grown on; binned once for all of them."""
    before, parent._n_classes = parent._n_classes, fit.data.classes.size  # which num_class follows
    try:
        with preserve_random_state(parent):
            params = {**parent._process_params(stage="fit"), "objective": "none"}
            params["verbosity"] = -1  # the returned model's fit says all that these would
    finally:
        parent._n_classes = before  # an earlier fit is there until this one is done
    stack = fit.data.combined
    # LightGBM 4.6 takes no parts of the tables of polars, which it reads as arrays.
    X = stack.X.to_numpy() if is_polars_dataframe(stack.X) else with_rows(stack.X)
    whole = lgb.Dataset(
        X,
        stack.codes.clip(0),
        feature_name=feature_name,
        categorical_feature=categorical_feature,
        params=params,
    ).construct()
    start = np.asarray(start, dtype=np.float64)
    predicted = np.zeros_like(start) if fit.has_offset else start  # what predict adds as well
    # Those that change parameters; all others are about the model that is returned.
    schedules = [c for c in callbacks or () if getattr(c, "before_iteration", False)]
    features = as_numbers(X) if isinstance(X, pd.DataFrame) else X
    return functools.partial(
        _FoldBooster, whole, params, features, start, predicted, schedules, fit
    )


class _FoldBooster:
    """A booster on some of the rows, grown as the parent's own ``fit`` would."""

    def __init__(
        self,
        whole: lgb.Dataset,
        params: dict[str, Any],
        X: Any,
        start: Array,
        predicted: Array,
        schedules: list[Callable[..., Any]],
        fit: ConstrainedFit,
        fold: Fold,
        solver: Solver | None,
    ) -> None:
        self.solver = solver
        # An objective of LightGBM's own would make probabilities of all scores that it hands out.
        self.gradient = fit.problem.own_gradient(fold.training) if solver is None else solver
        self.params, self.schedules, self.n_rounds = (
            dict(params),
            schedules,
            fit.run.library.n_rounds,
        )
        self.X, self.fold = X, fold
        self.start = start[fold.training]
        self.own_start, self.held_start = predicted[fold.training], predicted[fold.held]
        self.whole = whole
        self.trees_after = [0]
        self.booster = self._make_booster()
        self._final: dict[str, Array] = {}

    def _make_booster(self) -> lgb.Booster:
        training, held = (
            self.whole.subset(rows.tolist()).construct()
            for rows in (self.fold.training, self.fold.held)
        )
        booster = lgb.Booster(self.params, training)
        booster.add_valid(held, "held")
        booster._Booster__set_objective_to_none = True  # as in Observer
        return booster

    def grow(self, rounds: int) -> None:
        def objective(margin: Array, _: Any) -> Any:
            return self.gradient(margin + self.start)

        self._schedule(rounds)
        self.booster.update(fobj=objective)
        self.trees_after.append(self.booster.current_iteration())

    def _schedule(self, rounds: int) -> None:
        for schedule in self.schedules:
            schedule(CallbackEnv(self.booster, self.params, rounds, 0, self.n_rounds, None))

    def state(self) -> State:
        return {
            "trees_after": self.trees_after,
            "model": self.booster.model_to_string(num_iteration=-1),
            "margins": {"held": self.held_margin(), "training": self.own_margin(-1)},
        }

    def restore(self, state: State) -> None:
        self.trees_after, self._final = state["trees_after"], state["margins"]
        self.booster = lgb.Booster(model_str=state["model"])

    def held_margin(self, rounds: int | None = None) -> Array:
        return self._margin("held", self.fold.held, self.held_start, rounds)

    def own_margin(self, rounds: int) -> Array:
        return self._margin("training", self.fold.training, self.own_start, rounds)

    def _margin(self, name: str, rows: Codes, start: Array, rounds: int | None) -> Array:
        """Scores of rows that the booster has, which it hands out after all rounds only."""
        if rounds is not None and self.trees_after[rounds] != self.trees_after[-1]:
            of_prefix = self.booster.predict(
                take_rows(self.X, rows), raw_score=True, num_iteration=self.trees_after[rounds]
            )
            return np.asarray(of_prefix) + start
        if name in self._final:  # those of a checkpoint
            return self._final[name]
        kept: list[Array] = []

        def keep(margin: Array, _: Any) -> list[Any]:
            kept.append(margin + start)
            return []

        evaluate = self.booster.eval_valid if name == "held" else self.booster.eval_train
        evaluate(feval=keep)
        return kept[0]
