"""Fold boosters of XGBoost, grown in step."""

from __future__ import annotations

from typing import Any

import numpy as np
import xgboost as xgb

from gbm_constrained._typing import Array
from gbm_constrained.boosters.xgboost.fold_features import FoldFeatures
from gbm_constrained.boosters.xgboost.model import as_scores
from gbm_constrained.data.splits import Fold
from gbm_constrained.data.validation import preserve_random_state
from gbm_constrained.solvers.base import Solver
from gbm_constrained.training.checkpoint import State
from gbm_constrained.training.fit import ConstrainedFit
from gbm_constrained.training.fold_boosters import FoldBoosterFactory


def make_fold_booster_factory(
    parent: xgb.XGBClassifier,
    fit: ConstrainedFit,
    params: dict[str, Any],
    features: FoldFeatures,
    feature_weights: Any,
) -> FoldBoosterFactory:
    """Make the factory of a fit, all of whose boosters share the bins of the first."""
    combined = fit.data.combined
    label, weight = combined.classes_of_rows, combined.sample_weight
    if weight is not None:
        weight = np.asarray(weight)
    with preserve_random_state(parent):
        native = {**parent.get_xgb_params(), **params}
    native.pop("n_estimators", None)
    native.pop("eval_metric", None)  # Metrics are about the returned model.
    native["verbosity"] = 0  # The fit of the returned model gives the same warnings.
    bins = None

    def make(fold: Fold, solver: Solver | None) -> _FoldBooster:
        nonlocal bins
        rows = fold.training
        training = features.training(
            rows,
            bins,
            label=label[rows],
            weight=None if weight is None else weight[rows],
            feature_weights=feature_weights,
        )
        bins = training if bins is None else bins
        held = features.held(fold.held, bins)
        return _FoldBooster(parent, native, training, held, solver)

    return make


class _FoldBooster:
    """A booster on some of the rows, grown as the parent's own ``fit`` would."""

    def __init__(
        self,
        parent: xgb.XGBClassifier,
        native: dict[str, Any],
        training: Any,
        held: Any,
        solver: Solver | None,
    ) -> None:
        self.solver, self.matrix, self.held = solver, training, held
        self.native, self.names = native, training.feature_names
        self.columns = native.get("num_class", 1)
        self.booster = self._make_booster()
        # All other callbacks are about the model that is returned.
        schedulers = xgb.callback.LearningRateScheduler
        self.schedulers = [c for c in parent.callbacks or () if isinstance(c, schedulers)]

    def _make_booster(self, forest: xgb.Booster | None = None) -> xgb.Booster:
        """Make the booster, or one that goes on from saved trees.

        Parameters may refer to names of features. The names are removed afterwards, for XGBoost
        would compare them in every round.
        """
        matrices = [self.matrix, self.held]
        for nameless in matrices if forest is None else (*matrices, forest):
            nameless.feature_names = self.names
        booster = xgb.Booster(self.native, matrices, model_file=forest)
        for named in (*matrices, booster):
            named.feature_names = None
        return booster

    def grow(self, rounds: int) -> None:
        if self.solver is None:
            self.booster.update(self.matrix, rounds)
        else:
            # ``update`` with an objective does the same, and checks features and labels besides.
            grad, hess = self.solver(self._predict(self.matrix, training=True))
            self.booster.boost(self.matrix, rounds, grad=grad, hess=hess)
        for scheduler in self.schedulers:
            scheduler.after_iteration(self.booster, rounds, {})

    def held_margin(self, rounds: int | None = None) -> Array:
        return self._predict(self.held, rounds or 0)

    def own_margin(self, rounds: int) -> Array:
        return self._predict(self.matrix, rounds)

    def _predict(self, matrix: Any, rounds: int = 0, *, training: bool = False) -> Array:
        scores = self.booster.predict(
            matrix,
            output_margin=True,
            iteration_range=(0, rounds),
            validate_features=False,
            training=training,
        )
        return as_scores(scores, self.columns)

    def state(self) -> State:
        return {"model": np.frombuffer(self.booster.save_raw("ubj"), np.uint8)}

    def restore(self, state: State) -> None:
        self.booster = self._make_booster(xgb.Booster(model_file=bytearray(state["model"])))
