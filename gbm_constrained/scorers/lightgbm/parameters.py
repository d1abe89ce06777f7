"""Parameters, metrics and callbacks of LightGBM, and their checks under constraints.

Without an objective LightGBM hands its metrics raw scores. Those asked for by name are therefore
evaluated by a booster without trees, which has the objective and starts from these scores.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import lightgbm as lgb
import numpy as np
from lightgbm.callback import CallbackEnv, EarlyStopException
from sklearn.utils.class_weight import compute_class_weight

from gbm_constrained._dataframes import foreign_categories
from gbm_constrained._typing import Array
from gbm_constrained.data.exact_sums import Communicator
from gbm_constrained.fit.callbacks import check_booster_callbacks
from gbm_constrained.fit.fit import ConstrainedFit
from gbm_constrained.fit.options import check_number
from gbm_constrained.scorers.base import ConstraintStopping, map_scores

# Other names of the parameters that this package reads, in LightGBM's order of precedence.
ALIASES = {
    "objective": ("application", "app", "loss", "objective_type"),
    "boosting": ("boost", "boosting_type"),
    "num_class": ("num_classes",),
    "learning_rate": ("eta", "shrinkage_rate"),
    "num_iterations": (
        "num_iteration", "num_boost_round", "num_round", "num_rounds", "nrounds", "num_tree",
        "num_trees", "n_iter", "max_iter", "n_estimators",
    ),
    "verbosity": ("verbose",),
    "max_bin": ("max_bins",),
    "metric": ("metrics", "metric_types"),
    "is_unbalance": ("unbalance", "unbalanced_sets"),
    "pos_bagging_fraction": ("pos_bagging", "pos_sub_row", "pos_subsample"),
    "neg_bagging_fraction": ("neg_bagging", "neg_sub_row", "neg_subsample"),
    "early_stopping_round": ("early_stopping_rounds", "early_stopping", "n_iter_no_change"),
    "monotone_constraints": ("mc", "monotone_constraint", "monotonic_cst"),
    "num_machines": ("num_machine",),
    "machines": ("workers", "nodes"),
}  # fmt: skip


def find_parameter(model: Any, name: str, default: Any) -> Any:
    """Find a parameter by any of its names; a text is read by the type of `default`."""
    given = {**vars(model), **model._other_params}  # get_params takes much longer.
    names = (name, *ALIASES.get(name, ()))
    found = [given[name] for name in names if given.get(name) is not None]
    return read_as(name, found[0], default) if found else default


def find_objective(model: Any) -> Any:
    """Find the objective as it was given; LightGBM takes other names first."""
    given = model.get_params()
    names = (*ALIASES["objective"], "objective")
    return next((given[name] for name in names if given.get(name) is not None), None)


def read_as(name: str, value: Any, default: Any) -> Any:
    """Read the value of a parameter as LightGBM does, also from a text such as ``"false"``."""
    if not isinstance(value, str):
        return value
    if isinstance(default, bool):
        return value.lower() in ("true", "+")
    if isinstance(default, (int, float)):
        return type(default)(check_number(name, value))
    return value.lower() if isinstance(default, str) else value


def make_early_stopping(model: Any) -> list[Any]:
    """List the early stopping that a constructor parameter asks for, as LightGBM makes it."""
    patience = find_parameter(model, "early_stopping_round", None)
    if patience is None or (isinstance(patience, int) and patience <= 0):
        return []
    first_only = find_parameter(model, "first_metric_only", False)
    is_verbose = find_parameter(model, "verbosity", 1) > 0
    min_delta = find_parameter(model, "early_stopping_min_delta", 0.0)
    # LightGBM refuses numbers that are no int.
    return [lgb.early_stopping(patience, first_only, is_verbose, min_delta)]


class LoggedObjective:
    """An objective for ``lightgbm.train`` that prints as the user's own where runs are logged."""

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self.function, self.name = function, name

    def __call__(self, *args: Any) -> Any:
        """Call the objective."""
        return self.function(*args)

    def __repr__(self) -> str:
        return self.name


class LoggedMetric(str):
    """A metric for ``lightgbm.train`` that prints as the user's own ones where runs are logged."""

    asked: Any = ()

    def __repr__(self) -> str:
        return ", ".join(map(repr, [self.asked] if isinstance(self.asked, str) else self.asked))


EPSILON = 1e-15  # LightGBM's kEpsilon, the floor of probabilities


METRIC_PARAMETERS = (
    "alpha", "fair_c", "tweedie_variance_power", "multi_error_top_k", "auc_mu_weights"
)  # fmt: skip
# Parameters of losses, which objectives have as well, and LightGBM's defaults.
LOSS_PARAMETERS = {"alpha": 0.9, "fair_c": 1.0, "tweedie_variance_power": 1.5}
NO_METRIC = ("none", "null", "custom", "na")


def find_reported_name(name: str, n_classes: int) -> str:
    """Find the name by which the parent asks for a metric of so many classes."""
    kind = name.lower().removeprefix("binary_").removeprefix("multi_")
    if kind not in ("logloss", "error"):
        return name
    return f"binary_{kind}" if n_classes == 2 else f"multi_{kind}"


def make_metrics(
    model: Any,
    eval_metric: Any,
    default: str,
    learner: Mapping[str, Any],
    labels: Array,
    predict: Callable[[Array], Array],
) -> list[Callable[..., Any]]:
    """Make functions of labels, scores and weights of the metrics that were asked for.

    LightGBM computes all metrics that have a name, in the order of the parent.

    Parameters
    ----------
    model : estimator
        The estimator, one of whose parameters may be a metric.
    eval_metric : str, callable, list or None
        The argument of ``fit``.
    default : str
        The metric where none has a name.
    learner : mapping
        Parameters of the objective by which LightGBM makes predictions of scores.
    labels : ndarray
        Labels that the objective takes: one of each class.
    predict : callable
        Makes predictions of scores, which metrics of the user are given.

    Raises
    ------
    ValueError
        If LightGBM does not compute a metric under the objective.
    """
    _check_types(model, eval_metric)
    asked = eval_metric if isinstance(eval_metric, (list, tuple)) else [eval_metric]
    is_given = not model.get_params().keys().isdisjoint({"metric", *ALIASES["metric"]})
    fixed = find_parameter(model, "metric", []) if is_given else default
    fixed = [fixed] if isinstance(fixed, str) else [str(m) for m in fixed if m is not None]
    # As in the parent, the position of a name in `metric` has precedence.
    first = [m for m in asked if isinstance(m, str) and not (is_given and m in fixed)]
    names = [m.strip() for name in (*first, *fixed) for m in name.split(",") if m.strip()]
    names = names or [default]  # LightGBM reads an empty name so.
    if learner["objective"] in ("binary", "multiclass"):
        names = [find_reported_name(name, labels.size) for name in names]
    names = [name for name in names if name.lower() not in NO_METRIC]
    given = {name: find_parameter(model, name, None) for name in METRIC_PARAMETERS}
    params = {name: value for name, value in given.items() if value is not None}
    params |= {**learner, "verbosity": -1, "num_threads": 1}

    def evaluate(
        metrics: Sequence[str], y_true: Array, margin: Array, weight: Any
    ) -> list[tuple[str, float, bool]]:
        # A booster without trees has the scores that its rows start from.
        few = lgb.Dataset(np.zeros((labels.size, 1)), labels, params=params)
        rows = few.create_valid(
            np.zeros((len(y_true), 1)), y_true, weight, init_score=np.ravel(margin, order="F")
        )
        booster = lgb.Booster({**params, "metric": metrics}, few).add_valid(rows, "rows")
        return [tuple(result)[1:4] for result in booster.eval_valid()]

    score = np.zeros((labels.size, params.get("num_class", 1)))
    for name in names:
        try:
            reason = "" if evaluate([name], labels, score, None) else "it has no such metric"
        except lgb.basic.LightGBMError as error:
            reason = f"LightGBM says {str(error).strip()!r}"
        if reason:
            raise ValueError(
                f"metric {name!r} cannot be evaluated under constraints with "
                f"objective={learner['objective']!r}: {reason}. Use another metric of LightGBM, "
                f"or a callable eval_metric, which is given predictions."
            )
    functions = [map_scores(metric, predict) for metric in asked if callable(metric)]
    return [functools.partial(evaluate, names), *functions] if names else functions


def _check_types(model: Any, eval_metric: Any) -> None:
    """Refuse metrics of a wrong type in the parent's words, and name the right types."""
    fixed = find_parameter(model, "metric", [])
    if not isinstance(fixed, (str, list)):
        raise TypeError(
            f'can only concatenate list (not "{type(fixed).__name__}") to list: metric must be a '
            f"name or a list of names, got {fixed!r}."
        )
    for metric in eval_metric if isinstance(eval_metric, list) else ():
        try:
            hash(metric)
        except TypeError as error:
            raise TypeError(
                f"{error}: eval_metric must hold names and functions, got {metric!r}."
            ) from None


def find_class_weights(
    class_weight: Any, classes: Array, y: Array, communicator: Communicator
) -> Array:
    """Find the factor of each class that ``class_weight`` asks for.

    Parameters
    ----------
    class_weight : dict, "balanced" or None
        The parameter, by label.
    classes : ndarray of shape (n_classes,)
        Sorted labels.
    y : ndarray of shape (n_samples,), intp
        Class index of each row of this machine.
    communicator : Communicator
        Connects the machines.
    """
    if isinstance(class_weight, str) and class_weight == "balanced":
        count = communicator.sum(np.bincount(y, minlength=classes.size).astype(np.float64))
        return np.asarray(count.sum() / (classes.size * count))
    return np.asarray(compute_class_weight(class_weight, classes=classes, y=classes))


def end_rounds(
    is_over: Callable[[int], bool], stopping: Sequence[Callable[[Any], None]]
) -> Callable[[Any], None]:
    """Make a callback that ends training after the number of rounds for which it is over.

    Callbacks of early stopping then go back to their best round.
    """

    def end(env: Any) -> None:
        if is_over(env.iteration + 1 - env.begin_iteration):
            for stop in stopping:
                stop(replace(env, end_iteration=env.iteration + 1))
            raise EarlyStopException(env.iteration, env.evaluation_result_list)

    end.order = 1000  # type: ignore[attr-defined]  # after all others have seen the round
    return end


class LGBMConstraintStopping(ConstraintStopping):
    """Early stopping on the constraints, given ``lightgbm.early_stopping(...)``."""

    before_iteration = False

    def __init__(self, fit: ConstrainedFit, by_metric: Callable[..., Any]) -> None:
        super().__init__(fit, copy.copy(by_metric))
        self.by_metric.verbose = False  # Its rounds are others.
        self.order, self.patience = self.by_metric.order, self.by_metric.stopping_rounds
        self.results: Any = []  # of the best round by the constraints
        self.met_in: list[int] = []

    def __call__(self, env: CallbackEnv) -> None:
        """Compare the round that has ended with the best one, as LightGBM asks of a callback."""
        ends = env.iteration + 1 == env.end_iteration
        rounds = env.iteration + 1 - env.begin_iteration
        holds = self.by_constraints.update(env.iteration, self.fit.merits[rounds])
        if self.by_constraints.best == env.iteration:
            self.results = env.evaluation_result_list or []
        if not self.compares_constraints:
            if holds or ends:
                self._compare_metric(env, holds=holds, ends=ends)
            return
        exhausted = env.iteration - self.by_constraints.best >= self.patience
        if ends or (self.is_alone and exhausted):
            raise EarlyStopException(self.by_constraints.best, self.results)

    def _compare_metric(self, env: CallbackEnv, *, holds: bool, ends: bool) -> None:
        """Let LightGBM see the rounds that met the constraints, as if there were no others."""
        position = env.begin_iteration + len(self.met_in)
        self.met_in.append(env.iteration)
        results = env.evaluation_result_list
        if not holds:  # Every metric then has its worst value.
            results = []
            for result in env.evaluation_result_list or ():
                values = list(result)
                values[2] = -np.inf if values[3] else np.inf
                # Results are named tuples since LightGBM 4.7, and plain tuples before.
                is_named = hasattr(result, "_fields")
                results.append(type(result)(*values) if is_named else tuple(values))
        end = position + 1 if ends else env.end_iteration
        seen = replace(env, iteration=position, end_iteration=end, evaluation_result_list=results)
        try:
            self.by_metric(seen)
        except EarlyStopException as stop:
            best = self.met_in[stop.best_iteration - env.begin_iteration]
            raise EarlyStopException(best, stop.best_score) from None


def split_callbacks(callbacks: Any) -> tuple[list[Any], list[Any]]:
    """Split callbacks into ``lightgbm.early_stopping(...)`` that is not disabled, and others."""
    stopping, others = list[Any](), list[Any]()
    for callback in callbacks or ():
        is_stopping = (getattr(callback, "stopping_rounds", None) or 0) > 0
        (stopping if is_stopping else others).append(callback)
    return stopping, others


NATIVE_OBJECTIVES = (None, "binary", "multiclass", "softmax")


def has_early_stopping(model: Any, callbacks: Any) -> bool:
    """Whether a parameter or a callback stops early."""
    return bool(make_early_stopping(model) or split_callbacks(callbacks)[0])


def check_parameters(model: Any, callbacks: Any) -> None:
    """Refuse callbacks and parameters beside the objective that constraints do not allow."""
    check_booster_callbacks(
        callbacks,
        lambda c: callable(c) and not isinstance(c, type),
        "functions of one CallbackEnv",
    )
    machines = find_parameter(model, "num_machines", 1)
    if machines != 1 or find_parameter(model, "machines", None):
        raise ValueError(
            f"num_machines={machines!r} (or machines) cannot be given by hand under constraints: "
            f"each machine would measure the constraints on its own rows, and the multipliers "
            f"would go apart. Take gbm_constrained.dask.ConstrainedLGBMClassifier, which adds up "
            f"the rows of all machines."
        )


def find_without_gradients(model: Any) -> str | None:
    """Find the parameter of a classifier by which its booster takes no gradients but its own."""
    objective = find_objective(model)
    if callable(objective):
        return f"objective={objective!r}"
    is_native = read_as("objective", objective, "") in NATIVE_OBJECTIVES
    return find_own_booster(model) if is_native else None


def find_own_booster(model: Any) -> str | None:
    """Find the parameter of a booster that takes no gradients but its own.

    DART rescales its old trees as it grows, so that multipliers found on part of the rows do not
    carry over.
    """
    boosting = find_parameter(model, "boosting", "gbdt")
    is_own = boosting in ("rf", "random_forest", "dart")
    return f"boosting_type={boosting!r}" if is_own else None


def check_categories(X: Any, name: str) -> None:
    """Refuse categories that make LightGBM end the whole process."""
    categories = foreign_categories(X)
    if categories:
        raise TypeError(
            f"{name} has categories in {categories}, a "
            f"{type(X).__module__.partition('.')[0]} table: LightGBM reads categories of pandas "
            f"and ends the process on others. Give X.to_pandas()."
        )
