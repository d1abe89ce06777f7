"""Adapter that drives LightGBM's own fit by a solver."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
from sklearn.utils.multiclass import check_classification_targets

from gbm_constrained._typing import Array, Float
from gbm_constrained.boosters.base import Trained
from gbm_constrained.boosters.lightgbm.black_box import LightGBMBlackBoxAdapter
from gbm_constrained.boosters.lightgbm.callbacks import (
    ConstraintStopping,
    Observer,
    is_early_stopping,
)
from gbm_constrained.boosters.lightgbm.checks import (
    check_class_weights,
    check_classes,
    check_evaluation_sets,
    check_supported,
    find_without_gradients,
    find_without_stages,
    has_early_stopping,
    list_evaluation_pairs,
    list_for_each,
)
from gbm_constrained.boosters.lightgbm.class_shares import (
    find_class_weights,
    find_intercept,
    find_label_factors,
)
from gbm_constrained.boosters.lightgbm.folds import make_fold_booster_factory
from gbm_constrained.boosters.lightgbm.metrics import check_arguments, split_metrics
from gbm_constrained.boosters.lightgbm.model_text import shift_intercept, take_note
from gbm_constrained.boosters.lightgbm.native_fits import (
    NativeLGBMModel,
    can_fold,
    fit_part,
    limited_rounds,
    merge,
    restore,
    takes_weights,
)
from gbm_constrained.boosters.lightgbm.parameters import (
    ALIASES,
    find_parameter,
    make_early_stopping,
)
from gbm_constrained.boosters.lightgbm.trained_model import TrainedLGBMModel, make_native
from gbm_constrained.data.combined_rows import CombinedRows
from gbm_constrained.data.communicator import Communicator, SingleMachine
from gbm_constrained.data.validation import check_integer, check_scores
from gbm_constrained.decision.evaluation_set import EvaluationSet
from gbm_constrained.problem.row_threads import count_threads
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


class LightGBMAdapter:
    """``BoosterAdapter`` of one ``fit`` of LightGBM.

    Parameters
    ----------
    model : LGBMClassifier
        The classifier.
    native : callable
        The parent's own ``fit``.
    rows : tuple of (X, y, sample_weight)
        The training rows.
    arguments : mapping
        All other arguments of the parent's ``fit``, by name.
    is_observed : bool
        Whether callbacks or a time limit may end training, which early stopping then must see.
    """

    def __init__(
        self,
        model: Any,
        native: Callable[..., Any],
        rows: tuple[Any, Any, Any],
        arguments: Mapping[str, Any],
        *,
        is_observed: bool,
    ) -> None:
        self.model, self.native, self.is_observed = model, native, is_observed
        self.X, self.y, self.sample_weight = rows
        self.arguments = dict(arguments)
        self.communicator: Communicator = SingleMachine()
        self.is_divisible = arguments["init_model"] is None
        self.has_offset = False
        self.fit: ConstrainedFit
        self.pairs: Sequence[tuple[Any, Any]] = ()
        self.starts: list[Any] = []
        self.init_score: Any = None
        self.intercept: Array = np.zeros(1)
        self.metrics: tuple[list[str], list[Any]] = [], []
        self.measured: dict[int, EvaluationSet] = {}

    def _parameter(self, name: str, default: Any) -> Any:
        return find_parameter(self.model, name, default)

    def fit_plain(self, factor: Float | None = None, is_over: IsOver | None = None) -> None:
        weight = multiply_weight(self.sample_weight, factor)
        with limited_rounds(self.model, self.arguments["callbacks"], is_over) as callbacks:
            given = {**self.arguments, "callbacks": callbacks}
            self.native(self.X, self.y, weight, **given)

    def leave_out_rounds(self) -> None:
        """Leave none out: LightGBM removes the rounds after the best one itself."""

    def evaluation_rows(self) -> list[EvaluationRows]:
        given, eval_set = self.arguments, self.arguments["eval_set"]
        listed = list_evaluation_pairs(eval_set, given.get("eval_X"), given.get("eval_y"))
        pairs = check_pairs(listed, self.X, by_name=False)
        if eval_set is not None:
            given["eval_set"] = pairs  # An iterator is exhausted by now.
        weights = list_for_each(given["eval_sample_weight"], len(pairs), "eval_sample_weight")
        return [
            EvaluationRows(f"eval_set[{i}]", *pair, weight)
            for i, (pair, weight) in enumerate(zip(pairs, weights, strict=True))
        ]

    def starting_scores(self) -> None:
        return None

    def check_rows(self, combined: CombinedRows) -> None:
        combined.refuse_with(init_score=self.arguments["init_score"])

    def without_gradients(self) -> str | None:
        return find_without_gradients(self.model)

    def fit_part(self, part: PartRows) -> NativeLGBMModel:
        given = {**self.arguments, "sample_weight": self.sample_weight}
        return fit_part(self.model, self.y, given, part)

    def merge(self, models: Sequence[Any]) -> NativeLGBMModel:
        return merge(models)

    def restore(self, state: State, part: PartRows) -> NativeLGBMModel:
        return restore(self.model, state, part.take_labels(self.y))

    def take(self, model: Any) -> None:
        take_fit(self.model, model.model)

    def can_fold(self) -> bool:
        return can_fold(self.model)

    def add_to_margin(self, shift: Array) -> None:
        self.model._Booster = shift_intercept(self.model._Booster, shift)

    def for_black_box(self) -> LightGBMBlackBoxAdapter:
        return LightGBMBlackBoxAdapter(self)

    def check_parameters(self) -> None:
        check_supported(self.model, self.arguments["callbacks"])
        # In Python, LightGBM takes no text for the number of rounds.
        check_integer("n_estimators", self._parameter("num_iterations", None), 1)
        continued = self.arguments["init_model"]
        model_note.refuse_threshold(continued, _read_note_of(continued), "init_model")

    def settings(self) -> LibrarySettings:
        return LibrarySettings(
            check_number("learning_rate", self._parameter("learning_rate", 0.1)),
            self._parameter("num_iterations", None),
            library_factor=self._class_weight_factor,
            objective_factor=self._label_factor,
            softmax_hessian=lambda k: k / (k - 1),
            random_state=self.model.random_state,
            takes_weights=takes_weights(self.model),
            without_stages=find_without_stages(self.model, self.arguments),
            kernel={
                "dtype": np.float64,
                "gradient_dtype": np.float32,
                "order": "F",
                "n_threads": count_threads(self._parameter("num_threads", self.model.n_jobs)),
            },
            tree_limits=self.tree_limits,
        )

    def tree_limits(self, names: Sequence[Hashable]) -> TreeLimits:
        asked = (
            self._parameter(f"{name}_constraints", None) for name in ("monotone", "interaction")
        )
        return TreeLimits.read(names, *asked)

    def progress(self) -> Progress | None:
        if self._parameter("verbosity", 1) <= 0 or self.communicator.rank:
            return None
        printing = type(lgb.log_evaluation())
        callbacks = self.arguments["callbacks"] or ()
        return Progress("round", lines=any(isinstance(c, printing) for c in callbacks))

    def bind(self, fit: ConstrainedFit) -> EvaluationArguments:
        self.fit, given, data = fit, self.arguments, fit.data
        data.combined.refuse_with(init_score=given["init_score"])
        data.alignment.check({"X": self.X, "y": self.y, "init_score": given["init_score"]})
        self.init_score = check_scores(
            given["init_score"], data.whole.sizes[0], data.columns, "init_score", "F"
        )
        eval_set = given["eval_set"]
        self.pairs = check_pairs(
            list_evaluation_pairs(eval_set, given.get("eval_X"), given.get("eval_y")),
            self.X,
            by_name=False,
        )
        if eval_set is not None:
            given["eval_set"] = self.pairs  # An iterator is exhausted now.
        self.check_labels()
        check_evaluation_sets(self.pairs, self.X, self.y)
        n_sets = len(self.pairs)
        weights = list_for_each(given["eval_sample_weight"], n_sets, "eval_sample_weight")
        starts = list_for_each(given["eval_init_score"], n_sets, "eval_init_score")
        self.starts = [
            check_scores(start, len(y_i), data.columns, f"eval_init_score[{i}]", "F")
            for i, ((_, y_i), start) in enumerate(zip(self.pairs, starts, strict=True))
        ]
        self.metrics = self.split_metrics()
        if self.pairs:
            check_arguments(self.metrics[1])
        return EvaluationArguments(
            self.pairs,
            weights,
            self.starts,
            has_patience=has_early_stopping(self.model, given["callbacks"]),
            parameter="callbacks=[lightgbm.early_stopping(...)] or early_stopping_round",
            is_evaluated=bool(self.pairs) and any(self.metrics),
        )

    def check_labels(self) -> None:
        """Refuse labels, and weights of their classes, that the parent does not take."""
        data = self.fit.data
        check_classes(self.model, data.classes.size)
        with warnings.catch_warnings():  # The parent gives the same warnings.
            warnings.simplefilter("ignore")
            check_classification_targets(data.combined.y)
        check_class_weights(self.arguments["eval_class_weight"], len(self.pairs), data.classes)

    def split_metrics(self) -> tuple[list[str], list[Any]]:
        """Split metrics into names that need no objective, and functions of labels and scores."""
        n_classes = self.fit.data.classes.size
        return split_metrics(self.model, self.arguments["eval_metric"], n_classes)

    def find_intercept(self) -> Array:
        """Find the scores that the parent would start from."""
        return find_intercept(self.fit)

    def make_native(self) -> None:
        """Replace the booster by the one that the parent would have trained."""
        make_native(self.model, self.fit.data.classes.size, self.intercept)

    def given(self) -> Mapping[str, Any]:
        return self.arguments

    def prepare(self, fit: ConstrainedFit, held_out: list[int]) -> None:
        self.measured = dict(zip(held_out, fit.evaluation_sets, strict=True))
        is_continued = self.arguments["init_model"] is not None
        self.arguments["init_score"] = fit.data.take(self.init_score)
        if is_continued:  # LightGBM puts scores of the model in the place of these.
            self.starts = [None] * len(self.starts)
        self.has_offset = self.init_score is not None and not is_continued
        self.intercept = np.zeros(fit.data.columns)
        if self._is_from_average:
            self.intercept = self.find_intercept()

    @property
    def _is_from_average(self) -> bool:
        """Whether training starts from the average of the labels, as by default."""
        is_new = self.init_score is None and self.arguments["init_model"] is None
        return is_new and bool(self._parameter("boost_from_average", True))

    def make_factory(self) -> FoldBoosterFactory:
        given = self.arguments
        start = given["init_score"] if self.has_offset else _repeat(self.intercept, 1)
        with self._driven({"metric": ["None"]}):
            return make_fold_booster_factory(
                self.model,
                self.fit,
                start,
                given["feature_name"],
                given["categorical_feature"],
                given["callbacks"],
            )

    def measuring(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def train(self) -> Trained:
        model, fit, given, combined = self.model, self.fit, self.arguments, self.fit.data.combined
        if self._is_from_average:
            given["init_score"] = _repeat(self.intercept, combined.codes.size)
            given["eval_init_score"] = [
                _add(_repeat(self.intercept, len(y_i)), start)
                for (_, y_i), start in zip(self.pairs, self.starts, strict=True)
            ] or None
        native, given["eval_metric"] = self.metrics
        params: dict[str, Any] = {"metric": native or ["None"]}
        stopping, others = self._split_callbacks(params)
        observer = Observer(fit, self._list_sets(), stopping)
        given["callbacks"] = [*others, *observer.callbacks(), *stopping]
        with self._driven(params):
            self.native(combined.X, combined.y, combined.sample_weight, **given)
        del given["init_score"]  # The library has a copy, and nothing else asks for the scores.
        self.make_native()
        best, rounds = model._Booster.best_iteration, fit.solver.rounds
        if best > 0:
            rounds = best - observer.begin
            model._Booster.best_iteration = model._best_iteration = observer.grown_after(rounds)
        margin = observer.train_margin if rounds == fit.solver.rounds else None
        held = {rows: self.pairs[i][0] for i, rows in self.measured.items()}
        trained = TrainedLGBMModel(model, fit, observer, held)
        return Trained(trained, rounds, margin, observer.grown_after)

    def finish(self) -> None:
        """Add no conditions: constraints are measured on the decisions of ``predict``."""

    def _list_sets(self) -> list[tuple[EvaluationSet, Any] | None]:
        """List the evaluation sets as LightGBM scores them; None for training rows."""
        # LightGBM recognises training rows in eval_set only, and reads those of eval_X again.
        combined, by_pair = self.fit.data.combined, self.arguments["eval_set"] is not None
        is_own = [by_pair and X is combined.X and y is combined.y for X, y in self.pairs]
        return [
            (self.measured[i], self.starts[i]) if i in self.measured else None
            for i in range(len(self.pairs))
            if not is_own[i]
        ]

    def _split_callbacks(self, params: dict[str, Any]) -> tuple[list[Any], list[Any]]:
        """Split callbacks into early stopping, which comes last, and all others."""
        given, on = self.arguments["callbacks"] or (), self.fit.options.early_stopping_on
        stopping = [c for c in given if is_early_stopping(c)]
        others = [c for c in given if not is_early_stopping(c)]
        if on != "metric" or self.is_observed:
            stopping += make_early_stopping(self.model)
            params["early_stopping_round"] = 0
        if on != "metric":
            stopping = [ConstraintStopping(self.fit, by_metric, on) for by_metric in stopping]
        return stopping, others

    @contextmanager
    def _driven(self, params: dict[str, Any]) -> Iterator[None]:
        """Let the solver be the parent's objective, and leave no trace of it afterwards."""
        model, fit = self.model, self.fit

        # LightGBM deep-copies its parameters, and would copy a solver that is no function.
        def objective(y_true: Array, margin: Array) -> Any:
            return fit.solver(margin)

        own, found, others = model.objective, model._objective, model._other_params
        model._fit_params = params
        model.objective = model._objective = objective
        # LightGBM takes an objective under another name before this one, and warns of it.
        model._other_params = {
            name: objective if name in ALIASES["objective"] else value
            for name, value in others.items()
        }
        try:
            yield
        finally:
            fit.run.hide_progress()
            model.objective, model._objective, model._other_params = own, found, others
            del model._fit_params

    def _class_weight_factor(self, classes: Array, y: Array) -> Array:
        return find_class_weights(self.model.class_weight, classes, y, self.communicator)

    def _label_factor(self, classes: Array, y: Array) -> Array:
        return find_label_factors(self.model, classes, y, self.communicator)


def _read_note_of(model: Any) -> str | None:
    """Read the note of a file that training continues from."""
    if not isinstance(model, (str, os.PathLike)):
        return None
    return take_note(Path(model).read_text(encoding="utf-8"), model_note.NAME)[1]


def _repeat(intercept: Array, n_samples: int) -> Array:
    if intercept.size == 1:
        return np.full(n_samples, intercept[0])
    return np.tile(intercept, (n_samples, 1))


def _add(score: Array, more: Any) -> Array:
    """Add the user's starting scores, if there are any."""
    return score if more is None else np.asarray(score + np.asarray(more, dtype=np.float64))
