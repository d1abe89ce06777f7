"""How XGBoost's own fit is driven by a solver."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xgboost as xgb

from gbm_constrained._dataframes import take_rows
from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.boosters.base import Trained
from gbm_constrained.boosters.xgboost.callbacks import Observer, RulesStopping
from gbm_constrained.boosters.xgboost.checks import (
    check_classes,
    check_metric,
    check_stoppers,
    check_supported,
    list_for_each,
    native_objective,
    stoppers_of,
    stops_early,
    warn_of_base_margin,
    warn_of_cut_names,
)
from gbm_constrained.boosters.xgboost.folds import held_matrix, make_fold_booster_factory
from gbm_constrained.boosters.xgboost.model import first_rounds, shift_intercept
from gbm_constrained.boosters.xgboost.native import find_intercept, on_probabilities, read_note_of
from gbm_constrained.data.validation import (
    check_features,
    check_integer,
    check_labels,
    check_scores,
    check_weight,
    untouched_random_state,
)
from gbm_constrained.decision.evaluation_set import EvaluationSet
from gbm_constrained.training import model_note
from gbm_constrained.training.evaluation_sets import EvaluationArguments, check_pairs
from gbm_constrained.training.fit import ConstrainedFit
from gbm_constrained.training.fold_boosters import FoldBoosterFactory
from gbm_constrained.training.metric_classifier import clone_plain, multiply_weight
from gbm_constrained.training.options import SolverOptions, check_number
from gbm_constrained.training.problem import LibrarySettings
from gbm_constrained.training.progress import Progress

DEFAULT_LEARNING_RATE = 0.3  # XGBoost's own, which it does not hand out.


@dataclass(eq=False)
class DrivenFit:
    """What the classifier's hooks look at while the parent's fit is driven by a solver.

    Parameters
    ----------
    params : dict
        Parameters of the native learner beside the user's.
    sets : iterator of (X_i, y_i, bool)
        Evaluation sets, and whether each is held out.
    is_continued : bool
        Whether training goes on from another model.
    matrices : list, default=empty
        Matrices that the parent's fit has made: training rows, and held-out evaluation sets.
    """

    params: dict[str, Any]
    sets: Iterator[tuple[Any, Any, bool]]
    is_continued: bool
    matrices: list[Any] = field(default_factory=list)


class XGBoostAdapter:
    """Arguments of one ``fit`` of XGBoost, and how it is driven by a solver.

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
        self.is_divisible = model.booster != "dart" and arguments["xgb_model"] is None
        self.has_offset = False
        self.fit: ConstrainedFit
        self.params: dict[str, Any] = {}
        self.base_margin: Any = None
        self.pairs: Sequence[tuple[Any, Any]] = ()
        self.has_margins = False
        self.sets: list[tuple[Any, Any, bool]] = []

    def fit_plain(self, factor: Float | None = None) -> None:
        """Call the parent's own ``fit``."""
        weight = multiply_weight(self.arguments["sample_weight"], factor)
        self.native(self.X, self.y, **{**self.arguments, "sample_weight": weight})
        self._forget_note()

    def fit_part(
        self,
        rows: Codes,
        target: Codes | None,
        is_joint: bool,
        factor: Float | None = None,
    ) -> _NativeModel:
        """Train XGBoost's own model on some of the rows."""
        if self.arguments["xgb_model"] is not None:
            raise ValueError(
                "xgb_model continues a model that has seen all rows, and a metric is optimised "
                "on rows that boosters have not seen: leave xgb_model out."
            )
        model = clone_plain(self.model)
        given = {**self.arguments, "verbose": False}
        if is_joint:
            model.set_params(
                objective="multi:softprob", scale_pos_weight=None, eval_metric=None,
                early_stopping_rounds=None, callbacks=None,
            )  # fmt: skip
            names = ("eval_set", "sample_weight_eval_set", "base_margin_eval_set", "base_margin")
            given.update(dict.fromkeys(names))
        given["sample_weight"] = multiply_weight(given["sample_weight"], factor)
        for name in ("sample_weight", "base_margin"):
            given[name] = None if given[name] is None else take_rows(given[name], rows)
        y = take_rows(self.y, rows) if target is None else target[rows]
        model.fit(take_rows(self.X, rows), y, **given)
        return _NativeModel(model, None if is_joint else self.arguments["base_margin"])

    def can_fold(self) -> bool:
        """Whether a shift of scores can be added to the trained model."""
        model = self.model
        return model.booster in (None, "gbtree", "dart") and not callable(model.objective)

    def add_to_margin(self, shift: Array) -> None:
        """Add to all scores that the trained model predicts."""
        shift_intercept(self.model.get_booster(), shift)

    def check_parameters(self, options: SolverOptions) -> None:
        """Refuse parameters that have no meaning under constraints."""
        check_supported(self.model, options)
        check_features(self.X)
        warn_of_cut_names(self.X)
        check_integer("n_estimators", self.model.get_num_boosting_rounds(), 1)
        continued = self.arguments["xgb_model"]
        model_note.refuse_threshold(continued, read_note_of(continued), "xgb_model")

    def settings(self) -> LibrarySettings:
        """Say what a fit must know of the parameters."""
        model = self.model
        with untouched_random_state(model):
            rate = model.get_xgb_params().get("eta", model.learning_rate)
        rate = DEFAULT_LEARNING_RATE if rate is None else rate
        return LibrarySettings(
            check_number("learning_rate", rate),
            model.get_num_boosting_rounds(),
            objective_factor=self._label_factor,
            softmax_hessian=lambda k: 2.0,
            random_state=model.random_state,
            kernel={"dtype": np.float32, "hessian_floor": 1e-16},
        )

    def progress(self) -> Progress | None:
        """Make what shows the progress, as ``verbose`` asks."""
        if not self.arguments["verbose"] or self.model.verbosity == 0:
            return None
        monitors = xgb.callback.EvaluationMonitor
        is_printing = any(isinstance(c, monitors) for c in self.model.callbacks or ())
        return Progress("round", lines=bool(self.arguments["eval_set"]) or is_printing)

    def bind(self, fit: ConstrainedFit) -> EvaluationArguments:
        """Check what depends on the rows, and list the evaluation sets."""
        self.fit, given, data = fit, self.arguments, fit.data
        n_classes = data.classes.size
        # The classes of the data may be the labels that these positions stand for.
        check_classes(self.model, check_labels(self.y)[0])
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
        check_metric(self.model, n_classes, bool(self.pairs), weighted=has_weights)
        starts = list_for_each(given["base_margin_eval_set"], eval_set, "base_margin_eval_set")
        for i, (_, y_i) in enumerate(self.pairs):
            check_weight(weights[i], len(y_i), f"sample_weight_eval_set[{i}]")
            check_scores(starts[i], len(y_i), data.columns, f"base_margin_eval_set[{i}]", "C")
        self.has_margins = self.base_margin is not None or any(s is not None for s in starts)
        return EvaluationArguments(
            self.pairs,
            weights,
            starts,
            has_patience=stops_early(self.model),
            parameter="early_stopping_rounds",
            is_evaluated=bool(self.pairs),
            is_dart=self.model.booster == "dart",
        )

    def given(self) -> Mapping[str, Any]:
        """List the arguments of ``fit`` that another fit may differ in."""
        names = ("verbose", "xgb_model")
        return {name: value for name, value in self.arguments.items() if name not in names}

    def prepare(self, fit: ConstrainedFit, held_out: list[int]) -> None:
        """Take over the evaluation sets that are not the training rows."""
        if self.pairs:
            check_stoppers(self.model, fit.data.classes.size, len(self.pairs))
        self.sets = [(*pair, i in held_out) for i, pair in enumerate(self.pairs)]

    def make_factory(self) -> FoldBoosterFactory:
        """Make what makes the boosters of the folds."""
        feature_weights = self.arguments["feature_weights"]
        if feature_weights is None:
            feature_weights = self.model.feature_weights
        objective = native_objective(self.fit.data.classes.size)
        return make_fold_booster_factory(
            self.model,
            self.fit,
            {**self.params, **objective},
            self.fit.data.take(self.base_margin),
            feature_weights,
        )

    def measuring(self) -> AbstractContextManager[Any]:
        """Keep the verbosity, which boosters set for the whole process."""
        context: AbstractContextManager[Any] = xgb.config_context(verbosity=0)
        return context

    def train(self) -> Trained:
        """Run the parent's ``fit`` with the solver as its objective."""
        combined = self.fit.data.combined
        given = {
            **self.arguments,
            "sample_weight": combined.sample_weight,
            "base_margin": self.fit.data.take(self.base_margin),
        }
        with self._driven() as observer:
            self.native(combined.X, combined.codes, **given)
            self._forget_note()
            return self._trained(observer)

    def finish(self) -> None:
        """Say in the report that predictions need the ``base_margin`` that was given."""
        if self.has_margins:
            report = self.model.constraint_report_
            report["rows"] = report["rows"].map("{}, with base_margin".format, "ignore")
            warn_of_base_margin()

    def _forget_note(self) -> None:
        """Forget what the file of a model that was continued knows of it."""
        self.model.get_booster().set_attr(**{model_note.NAME: None})

    def _label_factor(self, classes: Array, y: Array) -> Array:
        factor = np.ones(classes.size)
        if classes.size == 2 and self.model.scale_pos_weight is not None:
            factor[1] = self.model.scale_pos_weight
        return factor

    def _set_intercept(self) -> None:
        """Set the intercept that XGBoost would fit under its own objective."""
        model, data = self.model, self.fit.data
        if model.base_score is not None or self.arguments["xgb_model"] is not None:
            return
        native = {"nthread": model.n_jobs, **native_objective(data.classes.size)}
        if data.classes.size == 2 and model.scale_pos_weight is not None:
            native["scale_pos_weight"] = model.scale_pos_weight
        self.params["base_score"] = find_intercept(data.y, data.sample_weight, native)

    @contextmanager
    def _driven(self) -> Iterator[Observer]:
        """Let the solver be the parent's objective, and leave no trace of it afterwards.

        Without multipliers it looks on, and the objective is the parent's own.
        """
        model, fit = self.model, self.fit

        def objective(y_true: Array, margin: Array, sample_weight: Any = None) -> Any:
            return fit.solver(margin)

        names = ("objective", "eval_metric", "callbacks", "early_stopping_rounds")
        own = {name: getattr(model, name) for name in names}
        driven = DrivenFit(self.params, iter(self.sets), self.arguments["xgb_model"] is not None)
        model._driven = driven
        native = native_objective(fit.data.classes.size)["objective"]
        model.objective = native
        if fit.measured.has_multipliers:
            model.objective = objective
            model.eval_metric = on_probabilities(model.eval_metric)
        observer = Observer(fit, driven.matrices)
        callbacks, stopping = model.callbacks or [], []
        if (on := fit.options.early_stopping_on) != "metric":
            stopping = stoppers_of(model)
            callbacks = [c for c in callbacks if c not in stopping]
            if model.early_stopping_rounds is not None:
                stopping.append(xgb.callback.EarlyStopping(rounds=model.early_stopping_rounds))
            model.early_stopping_rounds = None
        rules = [RulesStopping(fit, c, on) for c in stopping]
        model.callbacks = [*callbacks, observer, *rules]
        try:
            yield observer
        finally:
            fit.run.hide_progress()
            for name, value in own.items():
                setattr(model, name, value)
            del model._driven
        if model.objective != native:  # the parent's fit names softmax, too
            model.objective = native

    def _trained(self, observer: Observer) -> Trained:
        """Look at the booster that was trained, without rounds that early stopping leaves out."""
        matrices, model = observer.matrices, self.model
        if not matrices:
            raise RuntimeError(
                f"xgboost {xgb.__version__} does not build its matrices through _create_dmatrix: "
                f"this version of gbm_constrained does not support it."
            )
        booster = model.get_booster()
        before, end = observer.grown_before, booster.num_boosted_rounds()
        best = booster.attr("best_iteration")  # which predict goes by
        if best is not None and int(best) < before:
            # Of the model that was continued, which would predict without the new trees.
            booster.set_attr(best_iteration=None, best_score=None)
            best = None
        if best is not None and int(best) + 1 < end:
            # Readers of the booster that do not know the best iteration would take all rounds.
            end = int(best) + 1
            booster = model._Booster = first_rounds(booster, end)
        margin = observer.train_margin if end == observer.grown_after else None
        score_after = _score_after(model, self.fit)
        trained = _TrainedModel(model, self.fit, matrices, before, self.base_margin, score_after)
        return Trained(trained, end - before, margin, lambda rounds: rounds + before)


def _score_after(model: Any, fit: ConstrainedFit) -> Callable[[int], float | None]:
    """Make what early stopping judged the model by after some rounds, while it is driven."""
    rules = [c for c in model.callbacks if isinstance(c, RulesStopping)]
    if rules and rules[-1].decides:
        return fit.violation
    data = metric = None
    if model.early_stopping_rounds is None:  # which XGBoost lets look last
        stopping = [c.by_metric for c in rules] or stoppers_of(model)
        if not stopping:  # a callback of the user's own
            return lambda rounds: None
        data, metric = stopping[-1].data, stopping[-1].metric_name

    def score(rounds: int) -> float | None:
        results = model.evals_result_[data or list(model.evals_result_)[-1]]
        return float(results[metric or list(results)[-1]][rounds - 1])

    return score


@dataclass(frozen=True, eq=False)
class _NativeModel:
    """A classifier of XGBoost that was trained by its own means."""

    model: Any
    base_margin: Any

    def margin(self, X: Any, rows: Codes) -> Array:
        start = None if self.base_margin is None else take_rows(self.base_margin, rows)
        return np.asarray(self.model.predict(X, output_margin=True, base_margin=start))

    def to_bytes(self) -> bytes:
        return bytes(self.model.get_booster().save_raw("ubj"))


class _TrainedModel:
    """The booster of a finished fit.

    Parameters
    ----------
    parent : ConstrainedXGBClassifier
        Whose booster it is.
    fit : ConstrainedFit
        The fit.
    matrices : list
        Training rows, and each of the fit's evaluation sets.
    grown_before : int
        Rounds of the model that was continued.
    base_margin : array-like or None
        Where the scores of all rows given to ``fit`` begin.
    score_after : callable
        What early stopping judged the model by after some rounds.
    """

    def __init__(
        self,
        parent: xgb.XGBClassifier,
        fit: ConstrainedFit,
        matrices: list[Any],
        grown_before: int,
        base_margin: Any,
        score_after: Callable[[int], float | None],
    ) -> None:
        self.parent, self.fit, self.grown_before = parent, fit, grown_before
        self.base_margin, self.score_after = base_margin, score_after
        self.booster = parent.get_booster()
        self.training = matrices[0]
        self.matrices = dict(zip(fit.evaluation_sets, matrices[1:], strict=True))

    def margin(self, rounds: int) -> Array:
        return self._predict(self.training, rounds)

    def held_margin(self, rows: EvaluationSet, rounds: int) -> Array:
        if rows not in self.matrices:  # those of certificates
            self.matrices[rows] = held_matrix(
                self.parent, self.fit.data.whole.X, self.fit.data.certification, self.base_margin
            )
        return self._predict(self.matrices[rows], rounds)

    def _predict(self, matrix: Any, rounds: int) -> Array:
        span = (0, self.grown_before + rounds)
        return np.asarray(self.booster.predict(matrix, output_margin=True, iteration_range=span))

    def truncate(self, rounds: int) -> None:
        end = self.grown_before + rounds
        stopped = self.booster.attr("best_iteration") is not None
        self.booster = self.parent._Booster = first_rounds(self.booster, end)
        if stopped:  # predict goes by it
            score = self.score_after(rounds)
            best_score = None if score is None else str(score)
            self.booster.set_attr(best_iteration=str(end - 1), best_score=best_score)

    def add_to_margin(self, shift: Array) -> None:
        shift_intercept(self.booster, shift)
