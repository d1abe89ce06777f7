"""How LightGBM's own fit is driven by a solver."""

from __future__ import annotations

import os
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets

from gbm_constrained._dataframes import take_rows
from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.boosters.base import Trained
from gbm_constrained.boosters.lightgbm.callbacks import Observer, RulesStopping, is_early_stopping
from gbm_constrained.boosters.lightgbm.checks import (
    check_class_weights,
    check_classes,
    check_evaluation_sets,
    check_supported,
    list_evaluation_pairs,
    list_for_each,
    stops_early,
)
from gbm_constrained.boosters.lightgbm.folds import make_fold_booster_factory
from gbm_constrained.boosters.lightgbm.metrics import EPSILON, check_arguments, split_metrics
from gbm_constrained.boosters.lightgbm.model_text import (
    add_intercept,
    restore_objective,
    shift_intercept,
    take_note,
)
from gbm_constrained.boosters.lightgbm.parameters import (
    ALIASES,
    find_objective,
    find_parameter,
    make_early_stopping,
)
from gbm_constrained.data.validation import check_integer, check_scores
from gbm_constrained.decision.evaluation_set import EvaluationSet
from gbm_constrained.training import model_note
from gbm_constrained.training.evaluation_sets import EvaluationArguments, check_pairs
from gbm_constrained.training.fit import ConstrainedFit
from gbm_constrained.training.fold_boosters import FoldBoosterFactory
from gbm_constrained.training.metric_classifier import clone_plain, multiply_weight
from gbm_constrained.training.options import SolverOptions, check_number
from gbm_constrained.training.problem import LibrarySettings
from gbm_constrained.training.progress import Progress


class LightGBMAdapter:
    """Arguments of one ``fit`` of LightGBM, and how it is driven by a solver.

    Parameters
    ----------
    model : LGBMClassifier
        The classifier.
    native : callable
        The parent's own ``fit``.
    X, y, sample_weight
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
        is_observed: bool,
    ) -> None:
        self.model, self.native, self.is_observed = model, native, is_observed
        self.X, self.y, self.sample_weight = rows
        self.arguments = dict(arguments)
        self.is_dart = self._parameter("boosting", "gbdt") == "dart"
        self.is_divisible = not self.is_dart and arguments["init_model"] is None
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

    def fit_plain(self, factor: Float | None = None) -> None:
        """Call the parent's own ``fit``."""
        weight = multiply_weight(self.sample_weight, factor)
        self.native(self.X, self.y, weight, **self.arguments)

    def fit_part(
        self,
        rows: Codes,
        target: Codes | None,
        is_joint: bool,
        factor: Float | None = None,
    ) -> _NativeModel:
        """Train LightGBM's own model on some of the rows."""
        if self.arguments["init_model"] is not None:
            raise ValueError(
                "init_model continues a model that has seen all rows, and a metric is optimised "
                "on rows that boosters have not seen: leave init_model out."
            )
        model = clone_plain(self.model)
        given = dict(self.arguments)
        callbacks = [c for c in given["callbacks"] or () if is_early_stopping(c)]
        given["callbacks"] = callbacks or None
        if is_joint:
            model.set_params(objective=None, class_weight=None)
            kept = ("feature_name", "categorical_feature")
            given = {name: given[name] for name in kept}
        elif given["init_score"] is not None:
            given["init_score"] = take_rows(given["init_score"], rows)
        weight = multiply_weight(self.sample_weight, factor)
        weight = None if weight is None else take_rows(weight, rows)
        y = take_rows(self.y, rows) if target is None else target[rows]
        model.fit(take_rows(self.X, rows), y, weight, **given)
        return _NativeModel(model)

    def can_fold(self) -> bool:
        """Whether a shift of scores can be added to the trained model."""
        kind = self._parameter("boosting", "gbdt")
        return kind in ("gbdt", "gbrt", "goss") and not callable(self.model.objective)

    def add_to_margin(self, shift: Array) -> None:
        """Add to all scores that the trained model predicts."""
        self.model._Booster = shift_intercept(self.model._Booster, shift)

    def check_parameters(self, options: SolverOptions) -> None:
        """Refuse parameters that have no meaning under constraints."""
        check_supported(self.model, options, self.arguments["callbacks"])
        # In Python, LightGBM takes no text for the number of rounds.
        check_integer("n_estimators", self._parameter("num_iterations", None), 1)
        continued = self.arguments["init_model"]
        model_note.refuse_threshold(continued, _read_note_of(continued), "init_model")

    def settings(self) -> LibrarySettings:
        """Say what a fit must know of the parameters."""
        return LibrarySettings(
            check_number("learning_rate", self._parameter("learning_rate", 0.1)),
            self._parameter("num_iterations", None),
            library_factor=self._class_weight_factor,
            objective_factor=self._label_factor,
            softmax_hessian=lambda k: k / (k - 1),
            random_state=self.model.random_state,
            kernel={"dtype": np.float64, "gradient_dtype": np.float32, "order": "F"},
        )

    def progress(self) -> Progress | None:
        """Make what shows the progress, as ``verbosity`` asks."""
        if self._parameter("verbosity", 1) <= 0:
            return None
        printing = type(lgb.log_evaluation())
        callbacks = self.arguments["callbacks"] or ()
        return Progress("round", lines=any(isinstance(c, printing) for c in callbacks))

    def bind(self, fit: ConstrainedFit) -> EvaluationArguments:
        """Check what depends on the rows, and list the evaluation sets."""
        self.fit, given, data = fit, self.arguments, fit.data
        check_classes(self.model, data.classes.size)
        with warnings.catch_warnings():  # the parent gives them
            warnings.simplefilter("ignore")
            check_classification_targets(data.combined.y)
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
            given["eval_set"] = self.pairs  # what can be gone through once has been
        check_evaluation_sets(self.pairs, self.X, self.y)
        n_sets = len(self.pairs)
        weights = list_for_each(given["eval_sample_weight"], n_sets, "eval_sample_weight")
        starts = list_for_each(given["eval_init_score"], n_sets, "eval_init_score")
        self.starts = [
            check_scores(start, len(y_i), data.columns, f"eval_init_score[{i}]", "F")
            for i, ((_, y_i), start) in enumerate(zip(self.pairs, starts, strict=True))
        ]
        check_class_weights(given["eval_class_weight"], n_sets, data.classes)
        self.metrics = split_metrics(self.model, given["eval_metric"], data.classes.size)
        if self.pairs:
            check_arguments(self.metrics[1])
        return EvaluationArguments(
            self.pairs,
            weights,
            self.starts,
            has_patience=stops_early(self.model, given["callbacks"]),
            parameter="callbacks=[lightgbm.early_stopping(...)] or early_stopping_round",
            is_evaluated=bool(self.pairs) and any(self.metrics),
            is_dart=self.is_dart,
        )

    def given(self) -> Mapping[str, Any]:
        """List the arguments of ``fit`` that another fit may differ in."""
        return self.arguments

    def prepare(self, fit: ConstrainedFit, held_out: list[int]) -> None:
        """Take over the evaluation sets that are not the training rows, and find the intercept."""
        self.measured = dict(zip(held_out, fit.evaluation_sets, strict=True))
        is_continued = self.arguments["init_model"] is not None
        self.arguments["init_score"] = fit.data.take(self.init_score)
        if is_continued:  # whose scores LightGBM puts in the place of these
            self.starts = [None] * len(self.starts)
        self.has_offset = self.init_score is not None and not is_continued
        self.intercept = np.zeros(fit.data.columns)
        if self._is_from_average:
            self.intercept = _find_intercept(fit)

    @property
    def _is_from_average(self) -> bool:
        """Whether training starts from the average of the labels, as by default."""
        is_new = self.init_score is None and self.arguments["init_model"] is None
        return is_new and bool(self._parameter("boost_from_average", True))

    def make_factory(self) -> FoldBoosterFactory:
        """Make what makes the boosters of the folds."""
        given = self.arguments
        start = _repeat(self.intercept, self.fit.data.combined.codes.size)
        if self.has_offset:
            start = given["init_score"]
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
        """Need nothing: a booster's verbosity is its own."""
        return nullcontext()

    def train(self) -> Trained:
        """Run the parent's ``fit`` with the solver as its objective."""
        model, fit, given, combined = self.model, self.fit, self.arguments, self.fit.data.combined
        if self._is_from_average:
            given["init_score"] = _repeat(self.intercept, combined.codes.size)
            given["eval_init_score"] = [
                _added(_repeat(self.intercept, len(y_i)), start)
                for (_, y_i), start in zip(self.pairs, self.starts, strict=True)
            ] or None
        native, given["eval_metric"] = self.metrics
        # DART may drop the first tree and with it the intercept that LightGBM has put there, so
        # that it must be there from the first round on; all others get it after training, linear
        # trees too: LightGBM sets the values of their leaves, and not the constants.
        is_early = self.is_dart and not self._parameter("linear_tree", False)
        early = self.intercept if is_early else 0.0 * self.intercept
        params: dict[str, Any] = {"metric": native or ["None"]}
        stopping, others = self._split_callbacks(params)
        observer = Observer(fit, early if self.is_dart else None, self._list_sets(), stopping)
        given["callbacks"] = [*others, *observer.callbacks(), *stopping]
        with self._driven(params):
            self.native(combined.X, combined.y, combined.sample_weight, **given)
        _make_native(model, fit, np.zeros(0) if is_early else self.intercept)
        best, rounds = model._Booster.best_iteration, fit.solver.rounds
        if best > 0:
            rounds = best - observer.begin
            model._Booster.best_iteration = model._best_iteration = observer.grown_after(rounds)
        margin = observer.train_margin if rounds == fit.solver.rounds else None
        held = {rows: self.pairs[i][0] for i, rows in self.measured.items()}
        trained = _TrainedModel(model, fit, observer, held)
        return Trained(trained, rounds, margin, observer.grown_after)

    def finish(self) -> None:
        """Nothing to add: constraints are measured on what ``predict`` decides."""

    def _list_sets(self) -> list[tuple[EvaluationSet, Any] | None]:
        """List the evaluation sets as LightGBM scores them; None for training rows."""
        # LightGBM knows its training rows in eval_set, and reads those of eval_X once more.
        combined, by_pair = self.fit.data.combined, self.arguments["eval_set"] is not None
        is_own = [by_pair and X is combined.X and y is combined.y for X, y in self.pairs]
        if self.is_dart and any(is_own):
            raise ValueError(
                "eval_set holds the training rows, which boosting_type='dart' does not stand "
                "under constraints: LightGBM drops trees whenever a metric reads the training "
                "scores. Leave them out; history_ and constraint_report_ have their values."
            )
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
            stopping = [RulesStopping(self.fit, by_metric, on) for by_metric in stopping]
        return stopping, others

    @contextmanager
    def _driven(self, params: dict[str, Any]) -> Iterator[None]:
        """Let the solver be the parent's objective, and leave no trace of it afterwards."""
        model, fit = self.model, self.fit

        # A plain function: LightGBM deep-copies its parameters, and would copy a solver.
        def objective(y_true: Array, margin: Array) -> Any:
            return fit.solver(margin)

        own, found, others = model.objective, model._objective, model._other_params
        model._fit_params = params
        model.objective = model._objective = objective
        # Under another name it would be taken before the solver.
        model._other_params = {
            name: value for name, value in others.items() if name not in ALIASES["objective"]
        }
        try:
            yield
        finally:
            fit.run.hide_progress()
            model.objective, model._objective, model._other_params = own, found, others
            del model._fit_params

    def _class_weight_factor(self, classes: Array, y: Array) -> Array:
        return np.asarray(
            compute_class_weight(self.model.class_weight, classes=classes, y=classes[y])
        )

    def _label_factor(self, classes: Array, y: Array) -> Array:
        """``is_unbalance`` and ``scale_pos_weight`` of LightGBM's binary objective."""
        factor = np.ones(classes.size)
        if classes.size == 2:
            if find_parameter(self.model, "is_unbalance", False):
                count = np.bincount(y)
                factor[count.argmin()] = count.max() / count.min()
            factor[1] *= find_parameter(self.model, "scale_pos_weight", 1.0)
        return factor


def _make_native(model: Any, fit: ConstrainedFit, intercept: Array) -> None:
    """Replace the booster by the one that LightGBM would have written."""
    trained = model._Booster
    text = trained.model_to_string(num_iteration=-1)
    k = fit.data.classes.size
    objective = "binary sigmoid:1" if k == 2 else f"multiclass num_class:{k}"
    native = lgb.Booster(
        model_str=restore_objective(add_intercept(text, list(intercept)), objective)
    )
    native.best_iteration = trained.best_iteration
    native.best_score = trained.best_score
    name = objective.partition(" ")[0]
    native.params = {**trained.params, "objective": name}
    model._Booster, model._objective = native, find_objective(model) or name


def _read_note_of(model: Any) -> str | None:
    """Read the note of a file that training continues from."""
    if not isinstance(model, (str, os.PathLike)):
        return None
    return take_note(Path(model).read_text(encoding="utf-8"), model_note.NAME)[1]


@dataclass(frozen=True, eq=False)
class _NativeModel:
    """A classifier of LightGBM that was trained by its own means."""

    model: Any

    def margin(self, X: Any, rows: Codes) -> Array:
        return np.asarray(self.model.predict(X, raw_score=True))

    def to_bytes(self) -> bytes:
        text: str = self.model.booster_.model_to_string()
        return text.encode()


class _TrainedModel:
    """The booster of a finished fit.

    Parameters
    ----------
    parent : ConstrainedLGBMClassifier
        Whose booster it is.
    fit : ConstrainedFit
        The fit.
    observer : Observer
        Which knows the rounds that grew a tree.
    held : dict from EvaluationSet to X
        The evaluation sets.
    """

    def __init__(
        self,
        parent: Any,
        fit: ConstrainedFit,
        observer: Observer,
        held: dict[EvaluationSet, Any],
    ) -> None:
        self.parent, self.fit, self.observer, self.held = parent, fit, observer, held

    def margin(self, rounds: int) -> Array:
        return self._margin(self.fit.data.combined.X, rounds)

    def held_margin(self, rows: EvaluationSet, rounds: int) -> Array:
        if rows not in self.held:  # those of certificates
            self.held[rows] = take_rows(self.fit.data.whole.X, self.fit.data.certification)
        return self._margin(self.held[rows], rounds)

    def _margin(self, X: Any, rounds: int) -> Array:
        """Scores of rows under a prefix, as ``predict`` has them: without the user's own."""
        grown = self.observer.grown_after(rounds)
        with warnings.catch_warnings():  # of kinds of tables that training took without a word
            warnings.filterwarnings("ignore", "X does not have valid feature names")
            warnings.filterwarnings("ignore", "Converting data to scipy sparse matrix")
            raw = lgb.LGBMClassifier.predict(self.parent, X, raw_score=True, num_iteration=grown)
        return np.asarray(raw)

    def truncate(self, rounds: int) -> None:
        _truncate(self.parent, self.observer.grown_after(rounds), rounds)

    def add_to_margin(self, shift: Array) -> None:
        self.parent._Booster = shift_intercept(self.parent._Booster, shift)


def _truncate(model: Any, n_trees: int, rounds: int) -> None:
    """Keep the first trees of each class, which are those of so many rounds.

    All that LightGBM tells of the best iteration is then about these rounds.
    """
    whole = model._Booster
    kept = lgb.Booster(model_str=whole.model_to_string(num_iteration=n_trees))
    kept.best_iteration = n_trees if whole.best_iteration > 0 else whole.best_iteration
    kept.best_score = defaultdict(OrderedDict)
    for data, metrics in model._evals_result.items():
        for metric, values in metrics.items():
            kept.best_score[data][metric] = values[rounds - 1]
    kept.params = whole.params
    model._Booster = kept
    model._best_iteration, model._best_score = kept.best_iteration, kept.best_score


def _find_intercept(fit: ConstrainedFit) -> Array:
    """``boost_from_average`` of LightGBM: log-odds, or the log share of each class."""
    share = np.bincount(fit.data.y, fit.problem.weights.library, fit.data.classes.size)
    share = share / share.sum()
    if share.size == 2:
        p = min(max(share[1], EPSILON), 1.0 - EPSILON)
        return np.array([np.log(p / (1.0 - p))])
    return np.asarray(np.log(np.maximum(share, EPSILON)))


def _repeat(intercept: Array, n_samples: int) -> Array:
    if intercept.size == 1:
        return np.full(n_samples, intercept[0])
    return np.tile(intercept, (n_samples, 1))


def _added(score: Array, more: Any) -> Array:
    """Add scores that the user starts from."""
    return score if more is None else np.asarray(score + np.asarray(more, dtype=np.float64))
