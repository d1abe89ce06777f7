"""LightGBM's own fit, driven by a solver: folds and the trained model."""

from __future__ import annotations

import functools
import inspect
import os
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import lightgbm as lgb
import numpy as np
import pandas as pd
from lightgbm.callback import CallbackEnv
from narwhals.dependencies import is_polars_dataframe
from sklearn.preprocessing import LabelEncoder
from sklearn.utils.multiclass import check_classification_targets

from gbm_constrained._dataframes import as_numbers, categories_of, take_rows, with_rows
from gbm_constrained._typing import Array, Codes
from gbm_constrained.data.exact_sums import sum_over_machines
from gbm_constrained.data.splits import Fold
from gbm_constrained.data.validation import check_integer, preserve_random_state
from gbm_constrained.decision.evaluation_set import EvaluationSet
from gbm_constrained.fit import model_note
from gbm_constrained.fit.callbacks import Progress
from gbm_constrained.fit.checkpoint import State
from gbm_constrained.fit.cross_fit import FoldBoosterFactory
from gbm_constrained.fit.native_models import IsOver, PartRows, clone_plain
from gbm_constrained.problem.losses import MAX_DELTA_STEP, ObjectiveName
from gbm_constrained.problem.rows import count_threads
from gbm_constrained.scorers.base import (
    BINS_OF_LIBRARIES,
    BoosterAdapter,
    LibraryFoldBooster,
    TrainedPart,
    compute_probabilities,
)
from gbm_constrained.scorers.lightgbm import models, parameters
from gbm_constrained.solvers.base import Solver


def read_scores(evaluate: Callable[..., Any]) -> list[Array]:
    """Read the scores that a booster has of data sets, given its method that evaluates them.

    LightGBM adds each new tree once to the scores of every data set. Metrics are the way to these
    scores, and a metric that returns no values is not recorded. The next call writes them anew.
    """
    found: list[Array] = []

    def read(scores: Array, _: Any) -> list[Any]:
        found.append(scores)
        return []

    evaluate(feval=read)
    return found


class LGBMFoldBooster(LibraryFoldBooster):
    """A booster of LightGBM on some of the rows, grown as the parent's own ``fit`` would.

    Parameters
    ----------
    adapter : LightGBMAdapter
        Knows the fit, the scores that training starts from, and the callbacks.
    whole : Dataset
        All rows, binned once; the folds are parts of it.
    params : dict
        Parameters of the native learner.
    X : array-like
        Features of all rows, for scores of prefixes.
    fold, solver
        As of :class:`LibraryFoldBooster`.
    """

    def __init__(
        self,
        adapter: LightGBMAdapter,
        whole: lgb.Dataset,
        params: dict[str, Any],
        X: Any,
        fold: Fold,
        solver: Solver | None,
    ) -> None:
        super().__init__(fold, solver)
        fit, start = adapter.fit, adapter.arguments["init_score"]
        if not adapter.has_offset:  # One row stands for all.
            start = _repeat(adapter.intercept, 1)
        start = np.asarray(start, dtype=np.float64)
        # Under an objective of its own, LightGBM would hand out probabilities and no scores.
        self.gradient: Any = fit.problem.own_gradient(fold.training) if solver is None else solver
        self.params, self.n_rounds, self.X = dict(params), fit.library.n_rounds, X
        self.start = start[fold.training] if fit.has_offset else start
        self.predicted = 0.0 if fit.has_offset else start
        # All other callbacks are about the model that is returned.
        self.schedules = [c for c in adapter.callbacks if getattr(c, "before_iteration", False)]
        self.trees_after = [0]
        training, held = (_take(whole, rows) for rows in self.rows.values())
        self.booster = lgb.Booster(self.params, training)
        self.booster.add_valid(held, "held")
        self.booster._Booster__set_objective_to_none = True  # as in LightGBMAdapter

    def grow(self, rounds: int) -> None:
        for schedule in self.schedules:
            schedule(CallbackEnv(self.booster, self.params, rounds, 0, self.n_rounds, None))
        self.booster.update(fobj=lambda margin, _: self.gradient(margin + self.start))
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

    def _margin(self, name: str, rounds: int | None) -> Array:
        """Score rows that the booster has, which LightGBM hands out after all rounds only."""
        if rounds is not None and self.trees_after[rounds] != self.trees_after[-1]:
            X, n_trees = take_rows(self.X, self.rows[name]), self.trees_after[rounds]
            scores = self.booster.predict(X, raw_score=True, num_iteration=n_trees)
            return np.asarray(scores) + self.predicted
        if name in self._final:  # A booster that is restored or released has no rows.
            return self._final[name]
        evaluate = self.booster.eval_valid if name == "held" else self.booster.eval_train
        (margin,) = read_scores(evaluate)
        return margin + self.predicted


def _take(whole: lgb.Dataset, rows: Codes) -> lgb.Dataset:
    """Take some of the rows, in ascending order."""
    part = whole.subset([])
    part.used_indices = rows  # LightGBM would sort a list of Python's integers.
    return part.construct()


class LightGBMAdapter(BoosterAdapter):
    """Drives LightGBM through one ``fit`` of a classifier.

    Attributes
    ----------
    begin : int
        Rounds of the model that was continued.
    grown_in : list of int
        Rounds of the fit that have found a split, from zero on.
    intercept : ndarray
        Scores that training starts from where there are none of the user, as the parent's would.
    metrics : list of callable
        Metrics, as functions of labels, scores and weights.
    measured : dict from int to EvaluationSet
        The evaluation sets that are not the training rows, by position.
    """

    continuation = "init_model"
    starting = "init_score"
    of_sets = ("eval_sample_weight", "eval_init_score")
    of_bins = ("max_bin", "max_bin_by_feature")
    records = "_evals_result"
    order_of_scores = "F"
    compares_names = False
    predict_takes_start = False
    patience = "callbacks=[lightgbm.early_stopping(...)] or early_stopping_round"
    editing: ClassVar = models
    reading: ClassVar = parameters

    def __init__(self, *given: Any, is_observed: bool) -> None:
        super().__init__(*given, is_observed=is_observed)
        self.begin, self.grown_in = 0, list[int]()
        self.intercept: Array = np.zeros(1)
        self.metrics: list[Callable[..., Any]] = []
        self.measured: dict[int, EvaluationSet] = {}

    def grown_after(self, rounds: int) -> int:
        return self.begin + int(np.searchsorted(self.grown_in, rounds))

    def _observe(self, stopping: Sequence[Callable[[Any], None]]) -> list[Callable[[Any], None]]:
        """Make the callbacks that measure evaluation sets, before and after a round, and at last.

        `stopping` are those of early stopping, which names the best round where training ends
        before it is met.
        """
        fit = self.fit
        # LightGBM recognises training rows in eval_set only, and reads those of eval_X again.
        by_pair, combined = self.arguments["eval_set"] is not None, fit.data.combined
        scored = [
            i
            for i, (X, y) in enumerate(self.pairs)
            if not (by_pair and X is combined.X and y is combined.y)
        ]

        def measure(booster: lgb.Booster, rounds: int) -> None:
            for i, margin in zip(scored, read_scores(booster.eval_valid), strict=True):
                start = self.starts[i]  # ``predict`` does not add it.
                if start is not None:
                    margin = margin - np.asarray(start, dtype=np.float64)
                if i in self.measured:  # All others are training rows.
                    self.measure_round(self.measured[i], rounds, margin)

        def before(env: Any) -> None:
            self.begin = env.begin_iteration
            # Private: states that there is no objective to drop, so that update() does not reset
            # the parameters once more and with them the stream of column samples. Without this
            # line the model is as good, but not equal to the native one.
            env.model._Booster__set_objective_to_none = True
            if env.iteration > env.begin_iteration:
                return
            if any(map(self.moves_multipliers, fit.evaluation_sets[-1:])):
                measure(env.model, 0)

        def after(env: Any) -> None:
            rounds = fit.solver.rounds
            if env.model.current_iteration() > self.begin + len(self.grown_in):
                self.grown_in.append(rounds - 1)
            if fit.evaluation_sets and fit.is_measured_after(rounds):
                measure(env.model, rounds)
            if env.iteration + 1 == env.end_iteration:
                (margin,) = read_scores(env.model.eval_train)
                self.train_margin = margin.copy()

        before.before_iteration = True  # type: ignore[attr-defined]
        after.order = 5  # type: ignore[attr-defined]  # before early stopping ends the round
        return [before, after, parameters.end_rounds(fit.notifier.is_training_over, stopping)]

    def list_pairs(self) -> Any:
        names = ("eval_set", "eval_X", "eval_y")
        eval_set, eval_X, eval_y = (self.arguments.get(name) for name in names)
        if eval_X is None and eval_y is None:
            alone = isinstance(eval_set, tuple) and not all(isinstance(e, tuple) for e in eval_set)
            return [eval_set] if alone else eval_set
        if eval_set is not None:
            raise ValueError("Specify either 'eval_set' or 'eval_X' and 'eval_y', but not both.")
        if eval_X is None or eval_y is None:
            raise ValueError("You must specify eval_X and eval_y, not just one of them.")
        several = isinstance(eval_X, tuple)
        if several != isinstance(eval_y, tuple) or (several and len(eval_X) != len(eval_y)):
            raise ValueError(
                "eval_X and eval_y must be tuples of the same length, or neither of them a tuple."
            )
        return zip(eval_X, eval_y, strict=True) if several else [(eval_X, eval_y)]

    def list_for_each(self, name: str) -> Sequence[Any]:
        values, n_sets = self.arguments.get(name), len(self.pairs)
        if values is None:
            return [None] * n_sets
        if isinstance(values, dict):
            return [values.get(i) for i in range(n_sets)]
        if not isinstance(values, list):
            raise TypeError(
                f"{name} must be a list or dict with an entry for each evaluation set, got a "
                f"{type(values).__name__}: put it into a list."
            )
        return [*values, *[None] * n_sets][:n_sets]

    def prepare_part(self, plain: Any, part: PartRows) -> dict[str, Any]:
        given = dict(self.arguments)
        given["callbacks"] = parameters.split_callbacks(given["callbacks"])[0] or None
        if part.is_joint:
            plain.set_params(objective=None, class_weight=None)
            given = {name: given[name] for name in ("feature_name", "categorical_feature")}
        if part.rounds is not None:  # by whichever of its names the number was given
            names = {"num_iterations", *parameters.ALIASES["num_iterations"]} & {
                *plain.get_params(deep=False)
            }
            plain.set_params(**dict.fromkeys(names, part.rounds))
        return given

    @contextmanager
    def limited_rounds(
        self, model: Any, given: dict[str, Any], is_over: IsOver | None
    ) -> Iterator[None]:
        if is_over is None:
            yield
            return
        stopping, others = parameters.split_callbacks(given.get("callbacks"))
        stopping += parameters.make_early_stopping(model)
        given["callbacks"] = [*others, parameters.end_rounds(is_over, stopping), *stopping]
        model._fit_params = {"early_stopping_round": 0}
        try:
            yield
        finally:
            del model._fit_params

    def restore(self, state: State, part: PartRows) -> TrainedPart:
        plain, labels = clone_plain(self.model), part.take_labels(self.y)
        booster = lgb.Booster(model_str=state["model"])
        objective = state["objective"] or parameters.find_objective(plain)
        plain._adopt(booster, objective, LabelEncoder().fit(labels).classes_, None)
        booster.params = dict(state["params"])
        if callable(objective):
            booster.params["objective"] = objective
        plain._evals_result = state["records"]
        return TrainedPart(plain)

    def can_fold(self) -> bool:
        is_sum = self.parameter("boosting", "gbdt") not in ("rf", "random_forest")
        return is_sum and not callable(parameters.find_objective(self.model))

    def check_adjustable(self, space: str) -> None:
        super().check_adjustable(space)
        if self.arguments["init_score"] is not None:
            raise ValueError(
                "init_score= starts training from scores that predict does not add, and a "
                "black-box metric is called with scores of the model alone: leave it out."
            )
        if self.model.constraints and (booster := self.without_gradients()):
            raise ValueError(
                f"{booster} takes no gradients but its own, and constraints= beside a black-box "
                f"metric moves multipliers in them: use boosting_type='gbdt'."
            )
        if self.can_fold():
            return
        objective = parameters.find_objective(self.model)
        kind = self.parameter("boosting", "gbdt")
        asked = f"objective={objective!r}" if callable(objective) else f"boosting_type={kind!r}"
        raise ValueError(
            f"space={space!r} changes a sum of trees whose scores are log odds, which {asked} "
            f"does not make: use objective='binary' and boosting_type='gbdt' or 'dart'."
        )

    def check_parameters(self) -> None:
        parameters.check_parameters(self.model, self.arguments["callbacks"])
        self.check_objective()
        # In Python, LightGBM takes no text for the number of rounds.
        check_integer("n_estimators", self.parameter("num_iterations", None), 1)
        continued, note = self.arguments["init_model"], None
        if isinstance(continued, (str, os.PathLike)):
            text = Path(continued).read_text(encoding="utf-8")
            _, note = models.take_note(text, model_note.NAME)
        model_note.refuse_threshold(continued, note, "init_model")

    def check_objective(self) -> None:
        """Refuse objectives that constraints cannot be added to."""
        objective = parameters.find_objective(self.model)
        if parameters.read_as("objective", objective, "") not in parameters.NATIVE_OBJECTIVES:
            raise ValueError(
                f"objective={objective!r} cannot be trained under constraints: leave it at None, "
                f"which is 'binary' or 'multiclass' as y says."
            )
        for name in ("sigmoid", "pos_bagging_fraction", "neg_bagging_fraction"):
            if (value := self.parameter(name, 1.0)) != 1.0:
                raise ValueError(
                    f"{name}={value!r} belongs to LightGBM's own objective and has no effect "
                    f"under constraints: leave it at 1."
                )

    def settings_of_task(self) -> dict[str, Any]:
        """Give the settings about classes."""
        model, objective = self.model, parameters.find_objective(self.model)

        def factors_of(classes: Array, y: Array) -> Array:
            factor = np.ones(classes.size)
            if classes.size == 2:
                if self.parameter("is_unbalance", False):
                    counted = np.bincount(y, minlength=classes.size).astype(np.float64)
                    count = self.communicator.sum(counted)
                    factor[count.argmin()] = count.max() / count.min()
                factor[1] *= self.parameter("scale_pos_weight", 1.0)
            return factor

        return {
            "library_factor": lambda classes, y: parameters.find_class_weights(
                model.class_weight, classes, y, self.communicator
            ),
            "objective_factor": factors_of,
            "softmax_hessian": lambda k: k / (k - 1),
            # A function of two arguments sees no weights.
            "takes_weights": not callable(objective)
            or len(inspect.signature(objective).parameters) > 2,
            "without_stages": self.find_without_stages(),
            "kernel": {
                "dtype": np.float64,
                "gradient_dtype": np.float32,
                "order": "F",
                "n_threads": count_threads(self.parameter("num_threads", model.n_jobs)),
            },
        }

    def progress(self) -> Progress | None:
        if self.parameter("verbosity", 1) <= 0 or self.communicator.rank:
            return None
        printing = type(lgb.log_evaluation())
        return Progress("round", lines=any(isinstance(c, printing) for c in self.callbacks))

    def check_labels(self) -> None:
        data = self.fit.data
        n_classes = data.classes.size
        asked = parameters.find_objective(self.model)
        objective = parameters.read_as("objective", asked, "")
        if n_classes > 2 and objective == "binary":
            raise lgb.basic.LightGBMError(
                f"objective='binary' is for two classes, and y has {n_classes}: leave it at None, "
                f"which is then 'multiclass'."
            )
        num_class = self.parameter("num_class", 1)
        if n_classes == 2 and num_class != 1:
            raise ValueError(
                f"num_class={num_class!r} cannot be trained under constraints where y has two "
                f"classes, which have one score: leave it out, and objective at None."
            )
        if n_classes == 2 and objective not in (None, "binary"):
            raise lgb.basic.LightGBMError(
                f"objective={asked!r} is for more than two classes, and y has two: leave it at "
                f"None, which is then 'binary'."
            )
        factor = self.parameter("scale_pos_weight", 1.0)
        if n_classes == 2 and factor != 1.0 and self.parameter("is_unbalance", False):
            raise ValueError(
                f"is_unbalance=True and scale_pos_weight={factor!r} cannot be set at the same "
                f"time, as in LightGBM: both weigh the positive class. Leave one of them out."
            )
        with warnings.catch_warnings():  # The parent gives the same warnings.
            warnings.simplefilter("ignore")
            check_classification_targets(data.combined.y)

    def check_tables(self, pairs: Sequence[tuple[Any, Any]]) -> None:
        """Refuse tables that LightGBM does not take as an evaluation set."""
        for i, (X_i, y_i) in enumerate(pairs):
            is_training = X_i is self.X and y_i is self.y  # LightGBM does not read these again.
            if isinstance(X_i, list) and not is_training:
                raise TypeError(
                    f"X of eval_set[{i}] is a list, which LightGBM takes of training rows only: "
                    f"give an array."
                )
            if len(y_i) == 0:
                raise ValueError(
                    f"eval_set[{i}] has no rows: leave it out, or where rows are on several "
                    f"machines, give each of them some."
                )
            parameters.check_categories(X_i, f"X of eval_set[{i}]")

    def check_sets(self, weights: Sequence[Any]) -> bool:
        self.check_class_weights()
        self.check_tables(self.pairs)
        self.metrics = self.make_metrics()
        for metric in self.metrics if self.pairs else ():
            n = len(inspect.signature(metric).parameters)
            if not 2 <= n <= 4:
                raise TypeError(
                    f"Self-defined eval function should have 2, 3 or 4 arguments, got {n}: "
                    f"eval_metric {getattr(metric, '__name__', metric)!r} is called with y_true, "
                    f"y_pred, weight and group."
                )
        is_evaluated = bool(self.pairs and self.metrics)
        if not self.communicator.holds_all_rows:
            if self.has_patience() and self.fit.options.early_stopping_on == "metric":
                raise ValueError(
                    "early_stopping_on='metric' compares values that LightGBM computes from the "
                    "rows of one machine, so that machines would stop at different rounds: give "
                    "early_stopping_on='constraints', whose values are of the rows of all "
                    "machines."
                )
            self.metrics = []  # They would be of the rows of one machine.
        return is_evaluated

    def check_class_weights(self) -> None:
        """Refuse class weights of evaluation sets that LightGBM cannot read."""
        labels = self.fit.data.classes.tolist()
        for i, weights in enumerate(self.list_for_each("eval_class_weight")):
            if isinstance(weights, dict):
                if unknown := [label for label in weights if label not in labels]:
                    raise ValueError(
                        f"eval_class_weight[{i}] holds label {unknown[0]!r}, which is not among "
                        f"the classes of y: {labels}."
                    )
            elif weights is not None and not (isinstance(weights, str) and weights == "balanced"):
                raise ValueError(
                    f"eval_class_weight[{i}] must be a dict from label to weight, 'balanced' or "
                    f"None, got {weights!r}."
                )

    def make_metrics(self) -> list[Callable[..., Any]]:
        """Make functions of labels, scores and weights of the metrics that were asked for."""
        n_classes = self.fit.data.classes.size
        default, learner = "binary_logloss", dict[str, Any]({"objective": "binary"})
        if n_classes > 2:
            default, learner = "multi_logloss", {"objective": "multiclass", "num_class": n_classes}
        return parameters.make_metrics(
            self.model, self.arguments["eval_metric"], default, learner, np.arange(n_classes),
            compute_probabilities,
        )  # fmt: skip

    def find_intercept(self) -> Array:
        """Compute ``boost_from_average``: log-odds, or the log share of each class."""
        fit = self.fit
        y, n_classes = fit.data.y, fit.data.classes.size

        weight, communicator = fit.problem.weights.library, fit.problem.cells.communicator
        (share,) = sum_over_machines(
            lambda values: np.bincount(y, values, n_classes), [weight], communicator
        )
        share = share / share.sum()
        if share.size == 2:
            p = min(max(share[1], parameters.EPSILON), 1.0 - parameters.EPSILON)
            return np.array([np.log(p / (1.0 - p))])
        return np.asarray(np.log(np.maximum(share, parameters.EPSILON)))

    def prepare(self, held_out: list[int]) -> None:
        fit, is_continued = self.fit, not self.is_divisible
        self.measured = dict(zip(held_out, fit.evaluation_sets, strict=True))
        self.arguments["init_score"] = fit.data.take(self.start)
        if is_continued:  # LightGBM puts scores of the model in the place of these.
            self.starts = [None] * len(self.starts)
        self.has_offset = self.start is not None and not is_continued
        self.intercept = np.zeros(fit.data.columns)
        # Training starts from the average of the labels, unless it starts from other scores.
        is_new = self.start is None and self.is_divisible
        self.is_from_average = is_new and bool(self.parameter("boost_from_average", True))
        if self.is_from_average:
            self.intercept = self.find_intercept()

    def make_factory(self) -> FoldBoosterFactory:
        model, given, combined = self.model, self.arguments, self.fit.data.combined
        # LightGBM derives num_class from this attribute, which is of an earlier fit until the end.
        before, model._n_classes = model._n_classes, max(self.fit.data.columns, 2)
        try:
            # The fit of the returned model gives the same messages.
            with (
                self._driven({"metric": ["None"]}),
                preserve_random_state(model),
                warnings.catch_warnings(),
            ):
                warnings.simplefilter("ignore")
                params = {**model._process_params(stage="fit"), "objective": "none"}
                params["verbosity"] = -1
        finally:
            model._n_classes = before
        # LightGBM 4.6 takes no parts of the tables of polars, which it reads as arrays.
        X = combined.X.to_numpy() if is_polars_dataframe(combined.X) else with_rows(combined.X)
        if (bins := self.fold_bins()) is not None and given["categorical_feature"] == "auto":
            params["max_bin"] = bins
            wide = {j: n for j, c in categories_of(X).items() if (n := len(c)) > bins}
            if wide:  # LightGBM has a bin for each category, and drops those beyond the bins.
                most = [min(wide.get(j, bins), BINS_OF_LIBRARIES) for j in range(X.shape[1])]
                params["max_bin_by_feature"] = most
        whole = lgb.Dataset(
            X,
            combined.classes_of_rows,
            feature_name=given["feature_name"],
            categorical_feature=given["categorical_feature"],
            params=params,
        ).construct()
        features = as_numbers(X) if isinstance(X, pd.DataFrame) else X
        return functools.partial(LGBMFoldBooster, self, whole, params, features)

    def train(self) -> None:
        model, fit, given, combined = self.model, self.fit, self.arguments, self.fit.data.combined
        if self.is_from_average:
            given["init_score"] = _repeat(self.intercept, combined.codes.size)
            given["eval_init_score"] = [
                _repeat(self.intercept, len(y_i)) + np.asarray(0.0 if start is None else start)
                for (_, y_i), start in zip(self.pairs, self.starts, strict=True)
            ] or None
        given["eval_metric"], params = self.metrics, dict[str, Any](metric=["None"])
        stopping, others = parameters.split_callbacks(given["callbacks"])
        by_constraints = fit.options.early_stopping_on != "metric"
        if by_constraints or self.is_observed:
            stopping += parameters.make_early_stopping(model)
            params["early_stopping_round"] = 0
        if by_constraints:
            stopping = [parameters.LGBMConstraintStopping(fit, one) for one in stopping]
        given["callbacks"] = [*others, *self._observe(stopping), *stopping]
        with self._driven(params):
            self.native(
                combined.X, combined.y, **{**given, "sample_weight": combined.sample_weight}
            )
        del given["init_score"]  # The library has a copy, and nothing else asks for the scores.
        # The booster is now made the one that LightGBM would have written under its objective.
        trained, objective = model._Booster, self.objective_text()
        text = models.add_intercept(trained.model_to_string(num_iteration=-1), [*self.intercept])
        model._Booster = models.with_text(trained, models.restore_objective(text, objective))
        name = objective.partition(" ")[0]
        model._Booster.params["objective"] = name
        model._objective = parameters.find_objective(model) or name
        best, self.rounds = model._Booster.best_iteration, fit.solver.rounds
        if best > 0:
            self.rounds = best - self.begin
            model._Booster.best_iteration = self.grown_after(self.rounds)
            model._best_iteration = model._Booster.best_iteration
        if self.rounds != fit.solver.rounds:
            self.train_margin = None
        self.held = {rows: self.pairs[i][0] for i, rows in self.measured.items()}

    @contextmanager
    def _driven(self, params: dict[str, Any]) -> Iterator[None]:
        """Let the solver be the parent's objective, and leave no trace of it afterwards."""
        model, fit = self.model, self.fit

        # LightGBM deep-copies its parameters, and would copy a solver that is no function.
        def objective(y_true: Array, margin: Array) -> Any:
            return fit.solver(margin)

        # LightGBM asks for the signature in every round, and finding it takes longer than reading.
        objective.__signature__ = inspect.signature(objective)  # type: ignore[attr-defined]
        own, found, others = model.objective, model._objective, model._other_params
        model._fit_params = params
        model._logged_objective = self.objective_text().partition(" ")[0]
        model.objective = model._objective = objective
        # LightGBM takes an objective under another name before this one, and warns of it.
        model._other_params = {
            name: objective if name in parameters.ALIASES["objective"] else value
            for name, value in others.items()
        }
        try:
            yield
        finally:
            fit.hide_progress()
            model.objective, model._objective, model._other_params = own, found, others
            del model._fit_params, model._logged_objective

    def objective_text(self) -> str:
        """Give the objective as LightGBM writes it into its models."""
        n_classes = self.fit.data.classes.size
        return "binary sigmoid:1" if n_classes == 2 else f"multiclass num_class:{n_classes}"

    def margin(self, rounds: int) -> Array:
        return self.score_rows(self.fit.data.combined.X, rounds)

    def read_rows(self, X: Any, _: Any) -> Any:
        return X

    def score_rows(self, X: Any, rounds: int) -> Array:
        """Score rows under a prefix as ``predict`` does: without scores of the user."""
        n_trees = self.grown_after(rounds)
        with warnings.catch_warnings():  # Training has said what there is to say.
            warnings.simplefilter("ignore")
            raw = lgb.LGBMModel.predict(self.model, X, raw_score=True, num_iteration=n_trees)
        return np.asarray(raw)

    def truncate(self, rounds: int) -> None:
        """Keep the first rounds, and make all attributes of LightGBM describe these."""
        model, n_trees = self.model, self.grown_after(rounds)
        whole = model._Booster
        kept = models.with_text(whole, whole.model_to_string(num_iteration=n_trees))
        kept.best_iteration = n_trees if whole.best_iteration > 0 else whole.best_iteration
        kept.best_score = defaultdict(OrderedDict)
        for data, metrics in model._evals_result.items():
            for metric, values in metrics.items():
                kept.best_score[data][metric] = values[rounds - 1]
        model._Booster = kept
        model._best_iteration, model._best_score = kept.best_iteration, kept.best_score


def _repeat(intercept: Array, n_samples: int) -> Array:
    if intercept.size == 1:
        return np.full(n_samples, intercept[0])
    return np.tile(intercept, (n_samples, 1))


OBJECTIVES: dict[str, ObjectiveName] = {
    "regression": "squared",
    "regression_l1": "absolute",
    "huber": "huber",
    "quantile": "quantile",
    "poisson": "poisson",
    "tweedie": "tweedie",
    "gamma": "gamma",
    "fair": "fair",
}
OBJECTIVE_ALIASES = {
    **dict.fromkeys(
        ("regression_l2", "l2", "mean_squared_error", "mse", "l2_root", "root_mean_squared_error",
         "rmse"), "regression",
    ),
    **dict.fromkeys(("l1", "mean_absolute_error", "mae"), "regression_l1"),
}  # fmt: skip
# Names of the parameters of objectives.
OBJECTIVE_PARAMETERS = {
    "huber": "alpha",
    "quantile": "alpha",
    "tweedie": "tweedie_variance_power",
    "fair": "fair_c",
}


class LightGBMRegressionAdapter(LightGBMAdapter):
    """Drives LightGBM through one ``fit`` of a regressor."""

    def check_objective(self) -> None:
        model, given = self.model, parameters.find_objective(self.model)
        asked = "regression" if given is None else parameters.read_as("objective", given, "")
        name = OBJECTIVE_ALIASES.get(asked, asked) if isinstance(asked, str) else asked
        parameter = {}
        if isinstance(name, str) and name in OBJECTIVE_PARAMETERS:
            key = OBJECTIVE_PARAMETERS[name]
            parameter[key] = self.parameter(key, parameters.LOSS_PARAMETERS[key])
        step = self.parameter("poisson_max_delta_step", MAX_DELTA_STEP)
        self.read_objective(given, name, OBJECTIVES, parameter, step)
        if name == "poisson":
            self.own_objective["poisson_max_delta_step"] = step
        if self.parameter("reg_sqrt", False):
            raise ValueError(
                "reg_sqrt=True fits square roots of targets, of which rules know nothing: leave "
                "it out, and give transformed targets."
            )
        if model.class_weight is not None:
            raise ValueError(
                f"class_weight={model.class_weight!r} weighs classes, and targets of a "
                f"regressor are numbers: leave it out, and give sample_weight."
            )

    def settings_of_task(self) -> dict[str, Any]:
        return {"kernel": {"dtype": np.float32, "objective": self.objective}}

    def make_metrics(self) -> list[Callable[..., Any]]:
        """Make functions of targets, scores and weights of the metrics that were asked for."""
        # The name as it was given: "rmse" is the squared error, and its metric the root of it.
        default = parameters.find_objective(self.model) or self.own_objective["objective"]
        return parameters.make_metrics(
            self.model, self.arguments["eval_metric"], default, self.own_objective,
            np.array([1.0, 2.0]), self.objective.predict,
        )  # fmt: skip

    def find_intercept(self) -> Array:
        data = self.fit.data
        assert data.targets is not None
        y = data.targets[: data.combined.sizes[0]]
        constant = lgb.Dataset(np.zeros((y.size, 1)), y, weight=data.sample_weight)
        learner = {**self.own_objective, "verbosity": -1, "num_threads": 1}
        booster = lgb.Booster(learner, constant)
        booster.update()
        return np.asarray(booster.predict(np.zeros((1, 1)), raw_score=True), dtype=np.float64)

    def objective_text(self) -> str:
        """Give the objective as LightGBM writes it into its models."""
        pair = lgb.Dataset(np.zeros((2, 1)), np.array([1.0, 2.0]))
        like = lgb.Booster({**self.own_objective, "verbosity": -1}, pair)
        return models.field_of(like.model_to_string(), "objective")
