"""Fold boosters of XGBoost, grown in step."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import xgboost as xgb

from gbm_constrained._typing import Array
from gbm_constrained.boosters.xgboost.fold_features import FoldFeatures, RowReader
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
        bins = features.keep_bins(training) if bins is None else bins
        matrices = {"training": training, "held": features.held(fold.held, bins)}
        return _FoldBooster(parent, native, matrices, solver, _again(features.reader, fold))

    return make


def _again(reader: RowReader | None, fold: Fold) -> dict[str, Callable[[], Iterator[Any]]]:
    """List functions that make the matrices of a fold again; none without a reader."""
    if reader is None:
        return {}
    rows = {"training": fold.training, "held": fold.held}
    return {name: functools.partial(reader.matrices, part) for name, part in rows.items()}


class _FoldBooster:
    """A booster on some of the rows, grown as the parent's own ``fit`` would.

    `again` makes the training matrix and that of held-out rows once more, in parts, after they
    have been freed. They are kept if it is empty.
    """

    def __init__(
        self,
        parent: xgb.XGBClassifier,
        native: dict[str, Any],
        matrices: dict[str, Any],
        solver: Solver | None,
        again: Mapping[str, Callable[[], Iterator[Any]]],
    ) -> None:
        self.solver, self.matrices, self.again = solver, matrices, again
        self.native, self.names = native, matrices["training"].feature_names
        self.columns = native.get("num_class", 1)
        self.booster = self._make_booster()
        self._final: dict[str, Array] = {}
        # All other callbacks are about the model that is returned.
        schedulers = xgb.callback.LearningRateScheduler
        self.schedulers = [c for c in parent.callbacks or () if isinstance(c, schedulers)]

    def _make_booster(self, forest: xgb.Booster | None = None) -> xgb.Booster:
        """Make the booster, or one that goes on from saved trees.

        Parameters may refer to names of features. The names are removed afterwards, for XGBoost
        would compare them in every round.
        """
        matrices = [*self.matrices.values()]
        for nameless in matrices if forest is None else (*matrices, forest):
            nameless.feature_names = self.names
        booster = xgb.Booster(self.native, matrices, model_file=forest)
        for named in (*matrices, booster):
            named.feature_names = None
        return booster

    def grow(self, rounds: int) -> None:
        matrix = self.matrices["training"]
        if self.solver is None:
            self.booster.update(matrix, rounds)
        else:
            # ``update`` with an objective does the same, and checks features and labels besides.
            grad, hess = self.solver(self._predict(matrix, training=True))
            self.booster.boost(matrix, rounds, grad=grad, hess=hess)
        for scheduler in self.schedulers:
            scheduler.after_iteration(self.booster, rounds, {})

    def held_margin(self, rounds: int | None = None) -> Array:
        return self._margin("held", rounds or 0)

    def own_margin(self, rounds: int) -> Array:
        return self._margin("training", rounds)

    def _margin(self, name: str, rounds: int) -> Array:
        """Score the rows of a matrix, which is read again once it has been freed."""
        if name in self.matrices:
            return self._predict(self.matrices[name], rounds)
        if rounds in (0, self.booster.num_boosted_rounds()):
            return self._final[name]
        return np.concatenate([self._predict(part, rounds) for part in self.again[name]()])

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

    def release(self) -> None:
        self.solver = None
        if self.again:
            self._final = {name: self._predict(one) for name, one in self.matrices.items()}
            self.matrices = {}
            self.booster.reset()
