"""XGBoost boosters of the folds, grown in step."""

from __future__ import annotations

from typing import Any

import numpy as np
import xgboost as xgb

from gbm_constrained._dataframes import take_rows
from gbm_constrained._typing import Array
from gbm_constrained.boosters.xgboost.resuming import (
    check_margins,
    forest_of,
    renew_samples,
    state_of,
)
from gbm_constrained.data.splits import Fold
from gbm_constrained.data.validation import untouched_random_state
from gbm_constrained.solvers.abpp import ABPP
from gbm_constrained.training.checkpoint import State
from gbm_constrained.training.fit import ConstrainedFit
from gbm_constrained.training.measurement import MakeScout


def _rows_for_matrix(
    parent: xgb.XGBClassifier, X: Any, rows: Any, base_margin: Any
) -> dict[str, Any]:
    """Arguments of a matrix of some rows, as the parent's own ``fit`` gives them."""
    return {
        "data": take_rows(X, rows),
        "base_margin": None if base_margin is None else take_rows(base_margin, rows),
        "missing": parent.missing,
        "enable_categorical": parent.enable_categorical,
        "feature_types": parent.feature_types,
    }


def held_matrix(parent: xgb.XGBClassifier, X: Any, rows: Any, base_margin: Any) -> Any:
    """Matrix of some rows that no tree is grown on: values, which are scored faster than bins."""
    given = _rows_for_matrix(parent, X, rows, base_margin)
    return xgb.DMatrix(**given, nthread=parent.n_jobs)


def scout_maker(
    parent: xgb.XGBClassifier,
    fit: ConstrainedFit,
    params: dict[str, Any],
    base_margin: Any,
    feature_weights: Any,
) -> MakeScout:
    """Make scouts for a fit; all of them have the bins of the first, which no label has seen."""
    stack = fit.stack
    label, weight = stack.codes.clip(0), stack.sample_weight
    if weight is not None:
        weight = np.asarray(weight)
    with untouched_random_state(parent):
        native = {**parent.get_xgb_params(), **params}
    native.pop("n_estimators", None)
    native.pop("eval_metric", None)  # which may be a function, and is about the returned model
    native["verbosity"] = 0  # the returned model warns of all that these would
    bins = None

    def make(fold: Fold, solver: ABPP | None) -> _Scout:
        nonlocal bins
        rows = fold.training
        training = xgb.XGBClassifier._create_dmatrix(
            parent,
            bins,
            **_rows_for_matrix(parent, stack.X, rows, base_margin),
            label=label[rows],
            weight=None if weight is None else weight[rows],
            feature_weights=feature_weights,
        )
        bins = training if bins is None else bins
        held = held_matrix(parent, stack.X, fold.held, base_margin)
        return _Scout(parent, native, training, held, solver)

    return make


class _Scout:
    """A booster on some of the rows, grown as the parent's own ``fit`` would."""

    def __init__(
        self,
        parent: xgb.XGBClassifier,
        native: dict[str, Any],
        training: Any,
        held: Any,
        solver: ABPP | None,
    ) -> None:
        self.solver, self.matrix, self.held = solver, training, held
        self.native = native
        self.booster = xgb.Booster(native, [self.matrix, self.held])
        # All other callbacks are about the model that is returned.
        schedulers = xgb.callback.LearningRateScheduler
        self.schedulers = [c for c in parent.callbacks or () if isinstance(c, schedulers)]
        self.renews = "seed_per_iteration" in native

    def grow(self, rounds: int) -> None:
        if self.renews:
            renew_samples(self.booster, rounds)
        if self.solver is None:
            self.booster.update(self.matrix, rounds)
        else:
            # As ``update`` with an objective, which compares the names of features three times.
            grad, hess = self.solver(self._predict(self.matrix, training=True))
            self.booster.boost(self.matrix, rounds, grad=grad, hess=hess)
        self._schedule(rounds)

    def _schedule(self, rounds: int) -> None:
        for scheduler in self.schedulers:
            scheduler.after_iteration(self.booster, rounds, {})

    def held_margin(self, rounds: int | None = None) -> Array:
        return self._predict(self.held, rounds or 0)

    def own_margin(self, rounds: int) -> Array:
        return self._predict(self.matrix, rounds)

    def _predict(self, matrix: Any, rounds: int = 0, *, training: bool = False) -> Array:
        return np.asarray(
            self.booster.predict(
                matrix,
                output_margin=True,
                iteration_range=(0, rounds),
                validate_features=False,
                training=training,
            )
        )

    def _margins(self) -> list[Array]:
        return [self._predict(matrix) for matrix in (self.matrix, self.held)]

    def state(self) -> State:
        return state_of(self.booster, self._margins())

    def restore(self, state: State, rounds: int) -> None:
        matrices = [self.matrix, self.held]
        self.booster = xgb.Booster(self.native, matrices, model_file=forest_of(state))
        for earlier in range(rounds):
            self._schedule(earlier)
        check_margins(state, self._margins())
