"""LightGBM's own fit, driven by a solver: folds and the trained model."""

from __future__ import annotations

import copy
import functools
import inspect
import os
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import lightgbm as lgb
import numpy as np
import pandas as pd
from lightgbm.callback import CallbackEnv
from narwhals.dependencies import is_polars_dataframe
from sklearn.preprocessing import LabelEncoder
from sklearn.utils.multiclass import check_classification_targets

from gbm_constrained._dataframes import as_numbers, take_rows, with_rows
from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.data.exact_sums import Communicator, SingleMachine
from gbm_constrained.data.fit_data import CombinedRows, TargetData, check_targets
from gbm_constrained.data.splits import Fold
from gbm_constrained.data.validation import check_integer, check_scores, preserve_random_state
from gbm_constrained.decision.evaluation_set import EvaluationSet
from gbm_constrained.decision.groups import GroupOffsets
from gbm_constrained.decision.regression import Affine
from gbm_constrained.fit import model_note
from gbm_constrained.fit.callbacks import Progress
from gbm_constrained.fit.checkpoint import State
from gbm_constrained.fit.cross_fit import FoldBoosterFactory
from gbm_constrained.fit.fit import ConstrainedFit, EvaluationArguments, check_pairs
from gbm_constrained.fit.metric_report import EvaluationRows, clone_plain, take_fit
from gbm_constrained.fit.native_models import IsOver, PartRows, multiply_weight
from gbm_constrained.fit.options import check_number
from gbm_constrained.fit.problem import LibrarySettings, TreeLimits
from gbm_constrained.problem.losses import (
    MAX_DELTA_STEP,
    ObjectiveName,
    RegressionObjective,
    check_parameter,
)
from gbm_constrained.problem.rows import count_threads
from gbm_constrained.scorers.base import Trained, join_records, map_scores
from gbm_constrained.scorers.lightgbm.models import (
    LGBMLeafValues,
    LGBMTreeWeights,
    add_intercept,
    add_note,
    append_group_tree,
    count_trees,
    merge_boosters,
    objective_line,
    rescale,
    restore_objective,
    shift_intercept,
    take_note,
    with_text,
)
from gbm_constrained.scorers.lightgbm.parameters import (
    ALIASES,
    LOSSES,
    ConstraintStopping,
    Observer,
    check_arguments,
    check_class_weights,
    check_classes,
    check_evaluation_sets,
    check_parameters,
    check_supported,
    end_rounds,
    find_class_weights,
    find_intercept,
    find_label_factors,
    find_objective,
    find_own_boosting,
    find_parameter,
    find_without_gradients,
    find_without_stages,
    has_early_stopping,
    is_early_stopping,
    list_evaluation_pairs,
    list_for_each,
    list_metrics,
    make_early_stopping,
    make_metric,
    read_as,
    refuse_unknown,
    set_rounds,
    split_metrics,
)
from gbm_constrained.scorers.trained_models import BoosterBlackBoxAdapter, GroupTree
from gbm_constrained.solvers.base import Solver


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
        self.params, self.n_rounds = dict(shared.params), fit.library.n_rounds
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


@dataclass(frozen=True, eq=False)
class NativeLGBMModel:
    """A trained classifier."""

    model: Any

    def margin(self, X: Any, rows: Codes) -> Array:
        """Score rows of X."""
        with warnings.catch_warnings():  # Training has said what there is to say.
            warnings.simplefilter("ignore")
            return np.asarray(self.model._raw_margin(X))

    def to_bytes(self) -> bytes:
        """Write the booster as LightGBM's text."""
        text: str = self.model.booster_.model_to_string()
        return text.encode()

    def state(self) -> State:
        """Give all that merged boosters, and those that go on with this one, keep of it."""
        params = self.model.booster_.params.items()
        return {
            "model": self.to_bytes().decode(),
            "objective": None if callable(self.model._objective) else self.model._objective,
            "params": {name: value for name, value in params if not callable(value)},
            "records": self.model._evals_result,
        }


def fit_part(model: Any, y: Any, arguments: Mapping[str, Any], part: PartRows) -> NativeLGBMModel:
    """Train a clone of a classifier on some of the rows; `arguments` hold the sample weights."""
    if arguments["init_model"] is not None:
        raise ValueError(
            "init_model continues a model that has seen all rows, and a metric is optimised on "
            "rows that boosters have not seen: leave init_model out."
        )
    plain = clone_plain(model)
    given = {name: value for name, value in arguments.items() if name != "init_model"}
    given["callbacks"] = [c for c in given["callbacks"] or () if is_early_stopping(c)] or None
    if part.is_joint:
        plain.set_params(objective=None, class_weight=None)
        given = {name: given[name] for name in ("feature_name", "categorical_feature")}
    given["sample_weight"] = part.take_weight(arguments["sample_weight"])
    if given.get("init_score") is not None:
        given["init_score"] = take_rows(given["init_score"], part.rows)
    if part.rounds is not None:
        set_rounds(plain, part.rounds)
    before = None if part.start is None else part.start.model
    with limited_rounds(plain, given.get("callbacks"), part.is_over) as callbacks:
        given["callbacks"] = callbacks
        plain.fit(part.take_features(), part.take_labels(y), init_model=before, **given)
    if before is not None:
        plain._evals_result = join_records(before._evals_result, plain._evals_result)
    return NativeLGBMModel(plain)


@contextmanager
def limited_rounds(
    model: Any, callbacks: Any, is_over: IsOver | None
) -> Iterator[list[Any] | None]:
    """Give callbacks with which training ends where `is_over` says so; those given without it."""
    if is_over is None:
        yield callbacks
        return
    given = callbacks or ()
    stopping = [c for c in given if is_early_stopping(c)] + make_early_stopping(model)
    others = [c for c in given if not is_early_stopping(c)]
    model._fit_params = {"early_stopping_round": 0}
    try:
        yield [*others, end_rounds(is_over, stopping), *stopping]
    finally:
        del model._fit_params


def restore(model: Any, state: State, labels: Any) -> NativeLGBMModel:
    """Make the classifier that :func:`fit_part` has trained on rows with some labels."""
    plain = clone_plain(model)
    booster = lgb.Booster(model_str=state["model"])
    objective = state["objective"] or find_objective(plain)
    adopt_file(plain, booster, objective, None, np.unique(labels).size)
    booster.params = dict(state["params"])
    if callable(objective):
        booster.params["objective"] = objective
    plain._le = LabelEncoder().fit(labels)
    plain._classes = plain._le.classes_
    plain._evals_result = state["records"]
    codes = plain._le.transform(plain._classes)
    plain._class_map = dict(zip(plain._classes, codes, strict=True))
    return NativeLGBMModel(plain)


def merge(models: Sequence[NativeLGBMModel]) -> NativeLGBMModel:
    """Merge models into one whose raw score is the mean of theirs."""
    model = copy.copy(models[0].model)
    model._Booster = merge_boosters([one.model.booster_ for one in models])
    # All that one of them knows of its evaluation sets is its own.
    model._best_iteration, model._evals_result = model._Booster.best_iteration, {}
    model._best_score = model._Booster.best_score = defaultdict(OrderedDict)
    return NativeLGBMModel(model)


def can_fold(model: Any) -> bool:
    """Whether a shift of scores can be added to the trained model."""
    kind = find_parameter(model, "boosting", "gbdt")
    is_sum = kind not in ("rf", "random_forest")
    return is_sum and not callable(find_objective(model))


def takes_weights(model: Any) -> bool:
    """Whether the objective takes weights of rows; one of two arguments sees none."""
    objective = find_objective(model)
    return not callable(objective) or len(inspect.signature(objective).parameters) > 2


def average_scores(model: Any, booster: Any, scores: Array, rounds: int | None = None) -> Array:
    """Average the scores of a random forest, which LightGBM adds up; others stay as they are.

    Parameters
    ----------
    model : LGBMClassifier
        The classifier.
    booster : Booster
        The booster that scored the rows.
    scores : ndarray
        Raw scores of its first rounds.
    rounds : int, default=None
        The number of these; those up to the best iteration by default.
    """
    if find_parameter(model, "boosting", "gbdt") not in ("rf", "random_forest"):
        return scores
    best = booster.best_iteration if booster.best_iteration > 0 else booster.current_iteration()
    asked = rounds if rounds is not None and rounds > 0 else best
    return np.asarray(scores / min(asked, booster.current_iteration()))


class LightGBMBlackBoxAdapter(BoosterBlackBoxAdapter):
    """``AdjustableAdapter`` of one ``fit`` of LightGBM.

    See :class:`~gbm_constrained.scorers.trained_models.BoosterBlackBoxAdapter`.
    """

    models: ClassVar = {"trees": LGBMTreeWeights, "leaves": LGBMLeafValues}

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments of the parent's ``fit``, with the weights, which the adapter keeps apart."""
        return {**super().arguments, "sample_weight": self.adapter.sample_weight}

    def check_adjustable(self, space: str) -> None:
        """Refuse boosters that are no sum of trees, and scores that training starts from."""
        super().check_adjustable(space)
        if self.adapter.arguments["init_score"] is not None:
            raise ValueError(
                "init_score= starts training from scores that predict does not add, and a "
                "black-box metric is called with scores of the model alone: leave it out."
            )
        if self.model.constraints and (booster := find_without_gradients(self.model)):
            raise ValueError(
                f"{booster} takes no gradients but its own, and constraints= beside a black-box "
                f"metric moves multipliers in them: use boosting_type='gbdt'."
            )
        if can_fold(self.model):
            return
        objective = find_objective(self.model)
        kind = find_parameter(self.model, "boosting", "gbdt")
        asked = f"objective={objective!r}" if callable(objective) else f"boosting_type={kind!r}"
        raise ValueError(
            f"space={space!r} changes a sum of trees whose scores are log odds, which {asked} "
            f"does not make: use objective='binary' and boosting_type='gbdt' or 'dart'."
        )

    def restrict(self, rows: Codes) -> None:
        """Leave out all training rows but some."""
        adapter = self.adapter
        adapter.X, adapter.y = take_rows(adapter.X, rows), take_rows(adapter.y, rows)
        if adapter.sample_weight is not None:
            adapter.sample_weight = take_rows(adapter.sample_weight, rows)


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
            fit.hide_progress()
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


NAMES: dict[str, ObjectiveName] = {
    "regression": "squared",
    "regression_l1": "absolute",
    "huber": "huber",
    "quantile": "quantile",
    "poisson": "poisson",
    "tweedie": "tweedie",
    "gamma": "gamma",
    "fair": "fair",
}
NAME_ALIASES = {
    **dict.fromkeys(
        ("regression_l2", "l2", "mean_squared_error", "mse", "l2_root", "root_mean_squared_error",
         "rmse"), "regression",
    ),
    **dict.fromkeys(("l1", "mean_absolute_error", "mae"), "regression_l1"),
}  # fmt: skip
# Parameters of objectives: name and LightGBM's default.
PARAMETERS = {
    "huber": ("alpha", 0.9),
    "quantile": ("alpha", 0.9),
    "tweedie": ("tweedie_variance_power", 1.5),
    "fair": ("fair_c", 1.0),
}


def read_objective(model: Any) -> tuple[RegressionObjective, dict[str, Any]]:
    """Read the objective of a regressor, and its name and parameters as LightGBM takes them.

    Raises
    ------
    ValueError
        If constraints cannot be added to the objective.
    """
    given = find_objective(model)
    asked = "regression" if given is None else read_as("objective", given, "")
    name = NAME_ALIASES.get(asked, asked) if isinstance(asked, str) else asked
    if name not in NAMES:
        raise ValueError(
            f"objective={given!r} cannot be trained under constraints: use one of {[*NAMES]}."
        )
    if find_parameter(model, "reg_sqrt", False):
        raise ValueError(
            "reg_sqrt=True fits square roots of targets, of which rules know nothing: leave it "
            "out, and give transformed targets."
        )
    native: dict[str, Any] = {"objective": name}
    parameter = np.nan
    if name in PARAMETERS:
        key, default = PARAMETERS[name]
        parameter = native[key] = check_number(key, find_parameter(model, key, default))
        check_parameter(NAMES[name], key, parameter)
    step = find_parameter(model, "poisson_max_delta_step", MAX_DELTA_STEP)
    if name == "poisson":
        native["poisson_max_delta_step"] = step
    return RegressionObjective(NAMES[name], parameter, float(step)), native


class LightGBMRegressionAdapter(LightGBMAdapter):
    """``RegressionAdapter`` of one ``fit`` of LightGBM.

    Attributes
    ----------
    objective : RegressionObjective
        The objective.
    own_objective : dict
        Its name and parameters, as LightGBM takes them.
    """

    objective: RegressionObjective
    own_objective: dict[str, Any]

    def check_parameters(self) -> None:
        self.objective, self.own_objective = read_objective(self.model)
        check_parameters(self.model, self.arguments["callbacks"])
        check_targets(self.y)
        if (booster := find_own_boosting(self.model)) is not None:
            raise ValueError(
                f"{booster} takes no gradients but its own, and cannot be trained under "
                f"constraints: leave it out."
            )
        if self.model.class_weight is not None:
            raise ValueError(
                f"class_weight={self.model.class_weight!r} weighs classes, and targets of a "
                f"regressor are numbers: leave it out, and give sample_weight."
            )
        check_integer("n_estimators", self._parameter("num_iterations", None), 1)

    def settings(self) -> LibrarySettings:
        return LibrarySettings(
            check_number("learning_rate", self._parameter("learning_rate", 0.1)),
            self._parameter("num_iterations", None),
            random_state=self.model.random_state,
            kernel={"dtype": np.float32, "objective": self.objective},
            tree_limits=self.tree_limits,
        )

    def check_labels(self) -> None:
        """Accept all targets, which are numbers."""

    def split_metrics(self) -> tuple[list[str], list[Any]]:
        model, given = self.model, find_objective(self.model)
        # The name as it was given: "rmse" is the squared error, and its metric the root of it.
        default = self.own_objective["objective"] if given is None else given
        names, own = list_metrics(model, self.arguments["eval_metric"], default)
        if not self.objective.has_log_link:
            return names, own
        link = f"with objective={self.own_objective['objective']!r}"
        refuse_unknown(names, [*LOSSES], link, "predictions")
        predict = self.objective.predict
        made = [make_metric(name, model, predict) for name in names]
        return [], [*made, *(map_scores(metric, predict) for metric in own)]

    def find_intercept(self) -> Array:
        data = self.fit.data
        assert isinstance(data, TargetData)
        y = data.targets[: data.combined.sizes[0]]
        constant = lgb.Dataset(np.zeros((y.size, 1)), y, weight=data.sample_weight)
        parameters = {**self.own_objective, "verbosity": -1, "num_threads": 1}
        booster = lgb.train(parameters, constant, num_boost_round=1)
        return np.asarray(booster.predict(np.zeros((1, 1)), raw_score=True), dtype=np.float64)

    def make_native(self) -> None:
        model = self.model
        pair = lgb.Dataset(np.zeros((2, 1)), np.array([1.0, 2.0]))
        like = lgb.train({**self.own_objective, "verbosity": -1}, pair, num_boost_round=1)
        line = objective_line(like.model_to_string())
        text = model._Booster.model_to_string(num_iteration=-1)
        restore_booster(model, add_intercept(text, [*self.intercept]), line)

    def rescale(self, affine: Affine) -> None:
        self.model._Booster = rescale(self.model._Booster, affine.scale, affine.shift)
