"""The booster of a finished fit of LightGBM, and a classifier that is read from a file."""

from __future__ import annotations

import warnings
from collections import OrderedDict, defaultdict
from typing import Any

import lightgbm as lgb
import numpy as np
from sklearn.preprocessing import LabelEncoder

from gbm_constrained._dataframes import take_rows
from gbm_constrained._typing import Array
from gbm_constrained.boosters.group_tree import GroupTree
from gbm_constrained.boosters.lightgbm.callbacks import Observer
from gbm_constrained.boosters.lightgbm.group_tree import append_group_tree
from gbm_constrained.boosters.lightgbm.model_text import (
    add_intercept,
    add_note,
    count_trees,
    rescale,
    restore_objective,
    shift_intercept,
    with_text,
)
from gbm_constrained.boosters.lightgbm.parameters import find_objective
from gbm_constrained.decision.affine import Affine
from gbm_constrained.decision.evaluation_set import EvaluationSet
from gbm_constrained.decision.group_shifts import GroupOffsets
from gbm_constrained.training import model_note
from gbm_constrained.training.fit import ConstrainedFit

# Attributes of a fit that the library's own file leaves out.
LIBRARY_ATTRIBUTES = {
    "_objective": str,
    "_fitted_with_feature_names": bool,
    "_evals_result": dict,
    "_best_iteration": int,
    "_best_score": dict,
}
# Attributes that hold for any part of a model as well.
OF_ANY_PART = ("_objective", "_fitted_with_feature_names")


class TrainedLGBMModel:
    """The booster of a finished fit, as a ``TrainedModel`` of the training.

    Parameters
    ----------
    parent : ConstrainedLGBMClassifier
        The classifier that has the booster.
    fit : ConstrainedFit
        The fit.
    observer : Observer
        The observer of the fit, which knows the rounds that grew a tree.
    held : dict from EvaluationSet to X
        The evaluation sets.
    """

    def __init__(
        self, parent: Any, fit: ConstrainedFit, observer: Observer, held: dict[EvaluationSet, Any]
    ) -> None:
        self.parent, self.fit, self.observer, self.held = parent, fit, observer, held

    def margin(self, rounds: int) -> Array:
        return self._margin(self.fit.data.combined.X, rounds)

    def held_margin(self, rows: EvaluationSet, rounds: int) -> Array:
        if rows not in self.held:  # Certification rows are no evaluation set of the user.
            self.held[rows] = take_rows(self.fit.data.whole.X, self.fit.data.certification)
        return self._margin(self.held[rows], rounds)

    def _margin(self, X: Any, rounds: int) -> Array:
        """Score rows under a prefix as ``predict`` does: without scores of the user."""
        grown = self.observer.grown_after(rounds)
        with warnings.catch_warnings():  # Training has said what there is to say.
            warnings.simplefilter("ignore")
            raw = lgb.LGBMModel.predict(self.parent, X, raw_score=True, num_iteration=grown)
        return np.asarray(raw)

    def truncate(self, rounds: int) -> None:
        """Keep the first rounds, and make all attributes of LightGBM describe these."""
        model, n_trees = self.parent, self.observer.grown_after(rounds)
        whole = model._Booster
        kept = with_text(whole, whole.model_to_string(num_iteration=n_trees))
        kept.best_iteration = n_trees if whole.best_iteration > 0 else whole.best_iteration
        kept.best_score = defaultdict(OrderedDict)
        for data, metrics in model._evals_result.items():
            for metric, values in metrics.items():
                kept.best_score[data][metric] = values[rounds - 1]
        model._Booster = kept
        model._best_iteration, model._best_score = kept.best_iteration, kept.best_score

    def add_to_margin(self, shift: Array) -> None:
        self.parent._Booster = shift_intercept(self.parent._Booster, shift)

    def rescale(self, affine: Affine) -> None:
        self.parent._Booster = rescale(self.parent._Booster, affine.scale, affine.shift)

    def add_to_groups(self, offsets: GroupOffsets) -> None:
        data, model = self.fit.data, self.parent
        tree = GroupTree.of(data.combined.X, offsets, offsets.groups_of(data.rows))
        model._Booster = append_group_tree(model._Booster, tree)
        model._best_iteration = model._Booster.best_iteration


def make_native(model: Any, n_classes: int, intercept: Array) -> None:
    """Replace the booster by the one that LightGBM would have written under its own objective."""
    trained = model._Booster
    text = add_intercept(trained.model_to_string(num_iteration=-1), list(intercept))
    objective = "binary sigmoid:1" if n_classes == 2 else f"multiclass num_class:{n_classes}"
    restore_booster(model, text, objective)


def restore_booster(model: Any, text: str, objective: str) -> None:
    """Give an estimator the booster of a text, under an objective as LightGBM writes it."""
    trained = model._Booster
    native = with_text(trained, restore_objective(text, objective))
    name = objective.partition(" ")[0]
    native.params = {**trained.params, "objective": name}
    model._Booster, model._objective = native, find_objective(model) or name


def write_text(
    model: Any, num_iteration: int | None, start_iteration: int, importance_type: str
) -> str:
    """Write the file of a classifier, with the note on its constraints and reports."""
    booster = model.booster_
    if callable(model._objective):
        raise ValueError(
            f"objective={model._objective!r} cannot be saved: what a file of LightGBM predicts "
            f"under an objective of one's own are raw scores. Pickle the estimator."
        )
    text = booster.model_to_string(num_iteration, start_iteration, importance_type)
    end = booster.best_iteration if booster.best_iteration > 0 else booster.current_iteration()
    stop = num_iteration if num_iteration is not None and num_iteration > 0 else end
    whole = start_iteration <= 0 and stop >= end
    kept = LIBRARY_ATTRIBUTES if whole else OF_ANY_PART
    library = {name: vars(model)[name] for name in kept if name in vars(model)}
    rounds = count_trees(text) // booster.num_model_per_iteration()
    note = model_note.write_note(model, rounds, library, is_whole=whole, model=text)
    return add_note(text, model_note.NAME, note)


def adopt_file(
    model: Any, booster: lgb.Booster, objective: str, note: Any, n_classes: int
) -> None:
    """Give a classifier the attributes of a fitted one, from a file and its note, if any."""
    encoder = LabelEncoder()
    encoder.classes_ = np.arange(n_classes) if note is None else note.classes
    adopt_booster(model, booster, objective, note)
    model._le, model._class_weight = encoder, None
    model._classes, model._n_classes = encoder.classes_, n_classes
    codes = encoder.transform(encoder.classes_)
    model._class_map = dict(zip(encoder.classes_, codes, strict=True))


def adopt_booster(model: Any, booster: lgb.Booster, objective: str, note: Any) -> None:
    """Give an estimator the booster of a file, and what the note of the file says, if any."""
    generic_names = [f"Column_{j}" for j in range(booster.num_feature())]
    own = {
        "_objective": objective,
        "_fitted_with_feature_names": booster.feature_name() != generic_names,
        "_evals_result": {},
        "_best_iteration": booster.best_iteration,
        "_best_score": booster.best_score,
    }
    if note is not None:
        note.restore(model)
        own.update({name: note.library[name] for name in own if name in note.library})
    # LightGBM 4.6 does not know all of these attributes.
    model.__dict__.update({name: own[name] for name in own if name in vars(model)})
    booster.best_iteration, booster.best_score = model._best_iteration, model._best_score
    model._Booster, model.fitted_ = booster, True
    model._n_features = model._n_features_in = booster.num_feature()
