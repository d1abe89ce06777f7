"""Adapter that drives XGBoost's own fit by a solver."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import xgboost as xgb

from gbm_constrained._typing import Array, Float
from gbm_constrained.boosters.base import Trained
from gbm_constrained.boosters.metrics import compute_probabilities
from gbm_constrained.boosters.xgboost.black_box import XGBoostBlackBoxAdapter
from gbm_constrained.boosters.xgboost.callbacks import (
    ConstraintStopping,
    Observer,
    score_after_rounds,
)
from gbm_constrained.boosters.xgboost.checks import (
    check_classes,
    check_metric,
    check_stoppers,
    check_supported,
    find_without_gradients,
    find_without_stages,
    has_early_stopping,
    list_for_each,
    list_stoppers,
    native_objective,
    refuse_dart_model,
    warn_of_base_margin,
    warn_of_cut_names,
)
from gbm_constrained.boosters.xgboost.driven import DrivenFit
from gbm_constrained.boosters.xgboost.fold_features import FoldFeatures, read_features
from gbm_constrained.boosters.xgboost.folds import make_fold_booster_factory
from gbm_constrained.boosters.xgboost.kernel_options import kernel_options
from gbm_constrained.boosters.xgboost.merging import best_rounds
from gbm_constrained.boosters.xgboost.model import (
    as_scores,
    keep_first_rounds,
    shift_intercept,
)
from gbm_constrained.boosters.xgboost.native import (
    factors_of_labels,
    find_classes,
    find_intercept,
    map_metrics,
    open_booster,
)
from gbm_constrained.boosters.xgboost.native_fits import (
    NativeXGBModel,
    can_fold,
    fit_part,
    limited_rounds,
    merge,
    restore,
    takes_weights,
)
from gbm_constrained.boosters.xgboost.trained_model import TrainedXGBModel
from gbm_constrained.data.combined_rows import CombinedRows
from gbm_constrained.data.communicator import Communicator, SingleMachine
from gbm_constrained.data.validation import (
    check_features,
    check_integer,
    check_labels,
    check_scores,
    check_weight,
    preserve_random_state,
)
from gbm_constrained.training import model_note
from gbm_constrained.training.checkpoint import State
from gbm_constrained.training.evaluation_sets import EvaluationArguments, check_pairs
from gbm_constrained.training.fit import ConstrainedFit
from gbm_constrained.training.fold_boosters import FoldBoosterFactory
from gbm_constrained.training.metric_classifier import take_fit
from gbm_constrained.training.metric_sets import EvaluationRows
from gbm_constrained.training.native_models import IsOver, PartRows, multiply_weight
from gbm_constrained.training.options import check_number
from gbm_constrained.training.problem import LibrarySettings
from gbm_constrained.training.progress import Progress
from gbm_constrained.training.tree_limits import TreeLimits

DEFAULT_LEARNING_RATE = 0.3  # XGBoost's own default, which no call of XGBoost returns


class XGBoostAdapter:
    """``BoosterAdapter`` of one ``fit`` of XGBoost.

    Parameters
    ----------
    model : XGBClassifier
        The classifier.
    native : callable
        The parent's own ``fit``.
    X, y
        The training rows.
    arguments : mapping
        All other arguments of the parent's ``fit``, by name.
    """

    def __init__(
        self, model: Any, native: Callable[..., Any], X: Any, y: Any, arguments: Mapping[str, Any]
    ) -> None:
        self.model, self.native, self.X, self.y = model, native, X, y
        self.arguments = dict(arguments)
        self.communicator: Communicator = SingleMachine()
        self.is_divisible = arguments["xgb_model"] is None
        self.has_offset = False
        self.fit: ConstrainedFit
        self.params: dict[str, Any] = {}
        self.base_margin: Any = None
        self.pairs: Sequence[tuple[Any, Any]] = ()
        self.has_margins = False
        self.sets: list[tuple[Any, Any, bool]] = []

    def fit_plain(self, factor: Float | None = None, is_over: IsOver | None = None) -> None:
        weight = multiply_weight(self.arguments["sample_weight"], factor)
        with limited_rounds(self.model, is_over):
            self.native(self.X, self.y, **{**self.arguments, "sample_weight": weight})
        self._forget_note()

    def leave_out_rounds(self) -> None:
        if can_fold(self.model):
            # Readers of the booster that do not know the best iteration would take all rounds.
            self.model._Booster = best_rounds(self.model.get_booster())

    def evaluation_rows(self) -> list[EvaluationRows]:
        given, eval_set = self.arguments, self.arguments["eval_set"]
        pairs = check_pairs(eval_set, self.X, by_name=True)
        if eval_set is not None:
            given["eval_set"] = pairs  # An iterator is exhausted by now.
        weights, starts = (
            list_for_each(given[name], given["eval_set"], name)
            for name in ("sample_weight_eval_set", "base_margin_eval_set")
        )
        self.has_margins = self.starting_scores() is not None
        return [
            EvaluationRows(f"eval_set[{i}]", *pair, weight, start)
            for i, (pair, weight, start) in enumerate(zip(pairs, weights, starts, strict=True))
        ]

    def starting_scores(self) -> Any:
        return self.arguments["base_margin"]

    def check_rows(self, combined: CombinedRows) -> None:
        combined.refuse_with(base_margin=self.arguments["base_margin"])

    def without_gradients(self) -> str | None:
        return find_without_gradients(self.model)

    def fit_part(self, part: PartRows) -> NativeXGBModel:
        return fit_part(self.model, self.y, self.arguments, part)

    def merge(self, models: Sequence[Any]) -> NativeXGBModel:
        return merge(models)

    def restore(self, state: State, part: PartRows) -> NativeXGBModel:
        return restore(self.model, state, self.arguments["base_margin"])

    def take(self, model: Any) -> None:
        take_fit(self.model, model.model)
        if not callable(self.model.objective):
            self.model.objective = model.model.objective  # which fit sets by the number of classes

    def can_fold(self) -> bool:
        return can_fold(self.model)

    def add_to_margin(self, shift: Array) -> None:
        shift_intercept(self.model.get_booster(), shift)

    def for_black_box(self) -> XGBoostBlackBoxAdapter:
        return XGBoostBlackBoxAdapter(self)

    def check_parameters(self) -> None:
        check_supported(self.model)
        check_features(self.X)
        warn_of_cut_names(self.X)
        check_integer("n_estimators", self.model.get_num_boosting_rounds(), 1)
        continued = self.arguments["xgb_model"]
        if (booster := open_booster(continued)) is not None:
            refuse_dart_model(booster)
            model_note.refuse_threshold(continued, booster.attr(model_note.NAME), "xgb_model")

    def settings(self) -> LibrarySettings:
        model = self.model
        with preserve_random_state(model):
            native = model.get_xgb_params()
        rate = native.get("eta", model.learning_rate)
        return LibrarySettings(
            check_number("learning_rate", DEFAULT_LEARNING_RATE if rate is None else rate),
            model.get_num_boosting_rounds(),
            objective_factor=lambda classes, _: factors_of_labels(model, classes),
            softmax_hessian=lambda k: 2.0,
            random_state=model.random_state,
            takes_weights=takes_weights(model),
            without_stages=find_without_stages(model),
            kernel=kernel_options(native, model.verbosity),
            tree_limits=self.tree_limits,
        )

    def tree_limits(self, names: Sequence[Hashable]) -> TreeLimits:
        model = self.model
        asked = model.monotone_constraints, model.interaction_constraints
        return TreeLimits.read(names, *asked, missing=model.missing)

    def progress(self) -> Progress | None:
        if not self.arguments["verbose"] or self.model.verbosity == 0 or self.communicator.rank:
            return None
        monitors = xgb.callback.EvaluationMonitor
        is_printing = any(isinstance(c, monitors) for c in self.model.callbacks or ())
        return Progress("round", lines=bool(self.arguments["eval_set"]) or is_printing)

    def bind(self, fit: ConstrainedFit) -> EvaluationArguments:
        self.fit, given, data = fit, self.arguments, fit.data
        self.check_labels()
        data.combined.refuse_with(base_margin=given["base_margin"])
        aligned = {"X": self.X, "y": self.y, "base_margin": given["base_margin"]}
        data.alignment.check(aligned)
        self.base_margin = check_scores(
            given["base_margin"], data.whole.sizes[0], data.columns, "base_margin", "C"
        )
        self._set_intercept()
        eval_set = given["eval_set"]
        self.pairs = check_pairs(eval_set, self.X, by_name=True)
        weights = list_for_each(
            given["sample_weight_eval_set"], eval_set, "sample_weight_eval_set"
        )
        has_weights = any(weight is not None for weight in weights)
        native = self.native_objective()
        check_metric(self.model, native, is_evaluated=bool(self.pairs), is_weighted=has_weights)
        starts = list_for_each(given["base_margin_eval_set"], eval_set, "base_margin_eval_set")
        for i, (_, y_i) in enumerate(self.pairs):
            name = f"sample_weight_eval_set[{i}]"
            check_weight(weights[i], len(y_i), name, self.communicator)
            check_scores(starts[i], len(y_i), data.columns, f"base_margin_eval_set[{i}]", "C")
        self.has_margins = self.base_margin is not None or any(s is not None for s in starts)
        return EvaluationArguments(
            self.pairs,
            weights,
            starts,
            has_patience=has_early_stopping(self.model),
            parameter="early_stopping_rounds",
            is_evaluated=bool(self.pairs),
        )

    def check_labels(self) -> None:
        """Refuse labels that the parent does not take."""
        # The classes of the data may be the labels that these positions stand for.
        check_classes(self.model, check_labels(self.y, communicator=self.communicator)[0])

    def labels_of_rows(self) -> Array:
        """List the label of each row, as the parent takes it.

        Rows of further data sets without a label are in no objective: any class will do.
        """
        return self.fit.data.combined.classes_of_rows

    def native_objective(self) -> dict[str, Any]:
        """Give the library's own objective, with its parameters."""
        return native_objective(self.fit.data.classes.size)

    def driven_objective(self) -> dict[str, Any]:
        """Give the library's objective that stands beside gradients of a solver."""
        return self.native_objective()

    def given(self) -> Mapping[str, Any]:
        names = ("verbose", "xgb_model")
        return {name: value for name, value in self.arguments.items() if name not in names}

    def prepare(self, fit: ConstrainedFit, held_out: list[int]) -> None:
        if self.pairs:
            check_stoppers(self.model, self.native_objective(), len(self.pairs))
        self.sets = [(*pair, i in held_out) for i, pair in enumerate(self.pairs)]

    def make_factory(self) -> FoldBoosterFactory:
        weights = self.arguments["feature_weights"]
        if weights is None:
            weights = self.model.feature_weights
        native = {**self.params, **self.driven_objective()}
        return make_fold_booster_factory(
            self.model, self.fit, native, self.read_features(), weights
        )

    def read_features(self) -> FoldFeatures:
        """Read the features that the matrices of the folds are made from."""
        data, array_module = self.fit.data, self.fit.problem.kernel.get("array_module", np)
        margin = data.take(self.base_margin)
        return read_features(self.model, data.combined.X, margin, array_module)

    def measuring(self) -> AbstractContextManager[Any]:
        # Boosters set their verbosity for the whole process.
        context: AbstractContextManager[Any] = xgb.config_context(verbosity=0)
        return context

    def train(self) -> Trained:
        combined, labels = self.fit.data.combined, self.labels_of_rows()
        given = {
            **self.arguments,
            "sample_weight": combined.sample_weight,
            "base_margin": self.fit.data.take(self.base_margin),
        }
        self._share_training_rows(given, combined.X, labels)
        with self._driven() as observer:
            self.native(combined.X, labels, **given)
            self._forget_note()
            return self._trained(observer)

    def _share_training_rows(self, given: dict[str, Any], X: Any, labels: Any) -> None:
        """Let XGBoost recognise evaluation sets that are the training rows: by the very objects.

        It then makes one matrix of both, and predicts it once.
        """
        names = {"sample_weight_eval_set": "sample_weight", "base_margin_eval_set": "base_margin"}
        own = self.X, self.y, *(self.arguments[name] for name in names.values())
        for i, pair in enumerate(self.pairs):
            further = [None if given[each] is None else given[each][i] for each in names]
            if X is self.X and all(map(operator.is_, (*pair, *further), own)):
                given["eval_set"] = [*given["eval_set"]]
                given["eval_set"][i] = X, labels
                for each, name in names.items():
                    if given[each] is not None:
                        given[each] = [*given[each]]
                        given[each][i] = given[name]

    def finish(self) -> None:
        if self.has_margins:
            report, name = self.model.constraint_report_, "{}, with base_margin"
            report["rows"] = report["rows"].map(name.format, "ignore")
            warn_of_base_margin()

    def _forget_note(self) -> None:
        """Remove the note that a continued model has brought from its file."""
        self.model.get_booster().set_attr(**{model_note.NAME: None})

    def _set_intercept(self) -> None:
        """Set the intercept that XGBoost would fit under its own objective."""
        model, data = self.model, self.fit.data
        if model.base_score is not None or self.arguments["xgb_model"] is not None:
            return
        native = {"nthread": model.n_jobs, **self.native_objective()}
        if data.classes.size == 2 and model.scale_pos_weight is not None:
            native["scale_pos_weight"] = model.scale_pos_weight
        self.params["base_score"] = self.find_intercept(native)

    def find_intercept(self, native: dict[str, Any]) -> Any:
        """Find the intercept that XGBoost would fit to the training rows."""
        return find_intercept(self.fit.data.y, self.fit.data.sample_weight, native)

    @contextmanager
    def _driven(self) -> Iterator[Observer]:
        """Let the solver be the parent's objective, and leave no trace of it afterwards.

        Without multipliers the objective is the parent's own, and the solver keeps its history.
        """
        model, fit = self.model, self.fit

        def objective(y_true: Array, margin: Array, sample_weight: Any = None) -> Any:
            return fit.solver(as_scores(margin, fit.data.columns))

        names = ("objective", "eval_metric", "callbacks", "early_stopping_rounds")
        own = {name: getattr(model, name) for name in names}
        driven = DrivenFit(self.params, iter(self.sets), self.arguments["xgb_model"] is not None)
        model._driven = driven
        native = self.driven_objective()["objective"]
        link = self.metric_link()
        model.objective = native
        if fit.measured.has_multipliers:
            model.objective = objective
            model.eval_metric = map_metrics(model.eval_metric, link or compute_probabilities)
        elif link is not None:
            model.eval_metric = map_metrics(model.eval_metric, link)
        observer = Observer(fit, driven.matrices)
        callbacks, stopping, on = model.callbacks or [], [], fit.options.early_stopping_on
        if on != "metric":
            stopping = list_stoppers(model)
            callbacks = [c for c in callbacks if c not in stopping]
            if model.early_stopping_rounds is not None:
                stopping.append(xgb.callback.EarlyStopping(rounds=model.early_stopping_rounds))
            model.early_stopping_rounds = None
        by_constraints = [ConstraintStopping(fit, c, on) for c in stopping]
        model.callbacks = [*callbacks, observer, *by_constraints]
        try:
            yield observer
        finally:
            fit.run.hide_progress()
            for name, value in own.items():
                setattr(model, name, value)
            del model._driven
        self.restore_objective(native)

    def metric_link(self) -> Callable[[Array], Array] | None:
        """Find what the parent hands to functions as metrics, where that is no probability."""
        is_softmax = self.model.objective == "multi:softmax" and self.fit.data.classes.size > 2
        return find_classes if is_softmax else None

    def restore_objective(self, native: str) -> None:
        """Set the objective that the parent's fit sets: softmax for several classes."""
        if self.model.objective != native:
            self.model.objective = native

    def _trained(self, observer: Observer) -> Trained:
        """Describe the trained booster, without the rounds that early stopping leaves out."""
        matrices, model = observer.matrices, self.model
        if not matrices:
            raise RuntimeError(
                f"xgboost {xgb.__version__} does not build its matrices through _create_dmatrix: "
                f"this version of gbm_constrained does not support it."
            )
        booster = model.get_booster()
        before, end = observer.grown_before, booster.num_boosted_rounds()
        best = booster.attr("best_iteration")  # ``predict`` uses the rounds up to this one.
        if best is not None and int(best) < before:
            # The attribute is of the continued model, and would leave the new trees out.
            booster.set_attr(best_iteration=None, best_score=None)
            best = None
        if best is not None and int(best) + 1 < end:
            # Readers of the booster that do not know the best iteration would take all rounds.
            end = int(best) + 1
            booster = model._Booster = keep_first_rounds(booster, end)
        margin = observer.train_margin if end == observer.grown_after else None
        score_after = score_after_rounds(model, self.fit)
        trained = TrainedXGBModel(model, self.fit, matrices, before, self.base_margin, score_after)
        return Trained(trained, end - before, margin, lambda rounds: rounds + before)
