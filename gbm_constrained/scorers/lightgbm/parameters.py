"""Parameters, metrics and callbacks of LightGBM, and their checks under constraints.

Without an objective LightGBM hands its metrics raw scores. Ranking metrics give the same values as
by probabilities. All others are computed here on probabilities, as LightGBM computes them.
"""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import lightgbm as lgb
import numpy as np
from lightgbm.callback import CallbackEnv, EarlyStopException
from scipy.special import huber
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.utils.class_weight import compute_class_weight

from gbm_constrained._dataframes import foreign_categories
from gbm_constrained._typing import Array
from gbm_constrained.data.exact_sums import Communicator
from gbm_constrained.fit.callbacks import check_booster_callbacks
from gbm_constrained.fit.fit import ConstrainedFit
from gbm_constrained.fit.options import check_number
from gbm_constrained.scorers.base import ConstraintStopping, compute_probabilities, map_scores

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


EPSILON = 1e-15  # LightGBM's kEpsilon, the floor of probabilities


def _logloss(y: Array, p: Array, sample_weight: Any) -> float:
    right = np.where(y > 0, p, 1.0 - p) if p.ndim == 1 else p[np.arange(y.size), y.astype(int)]
    return float(np.average(-np.log(np.maximum(right, EPSILON)), weights=sample_weight))


def _error(y: Array, p: Array, sample_weight: Any, top_k: int = 1) -> float:
    if p.ndim == 1:
        return float(np.average((p > 0.5) != (y > 0), weights=sample_weight))
    # In LightGBM a row is right only if fewer than k other classes score as high.
    right = p[np.arange(y.size), y.astype(int)]
    return float(np.average((p >= right[:, None]).sum(axis=1) > top_k, weights=sample_weight))


def _rank(y: Array, score: Array, sample_weight: Any, measure: Callable[..., float]) -> float:
    if np.ptp(y) == 0:  # LightGBM gives 1 for one class.
        return 1.0
    return float(measure(y, score, sample_weight=sample_weight))


def _auc_mu(y: Array, score: Array, sample_weight: Any, costs: Any = None) -> float:
    """Compute the mean over pairs of classes of their AUC; Kleiman and Page, 2019."""
    k = score.shape[1]
    cost = 1.0 - np.eye(k)
    if costs is not None:
        costs = costs.split(",") if isinstance(costs, str) else costs
        cost = np.asarray(costs, dtype=np.float64).reshape(k, k)
        np.fill_diagonal(cost, 0.0)
    total = 0.0
    for i, j in itertools.combinations(range(k), 2):
        both = np.isin(y, (i, j))
        if np.unique(y[both]).size == 2:
            side = cost[i] - cost[j]
            along = (side[i] - side[j]) * (score[both] @ side)
            part = None if sample_weight is None else sample_weight[both]
            total += float(roc_auc_score(y[both] == i, along, sample_weight=part))
    return float(total / (k * (k - 1) / 2))


def _tweedie(y: Array, f: Array, given: Mapping[str, float]) -> Array:
    f, power = np.maximum(f, 1e-10), given["tweedie_variance_power"]
    return np.asarray(f ** (2.0 - power) / (2.0 - power) - y * f ** (1.0 - power) / (1.0 - power))


def _fair(y: Array, f: Array, given: Mapping[str, float]) -> Array:
    far, c = np.abs(y - f), given["fair_c"]
    return np.asarray(c * far - c**2 * np.log1p(far / c))


# Losses of targets and predictions, whose means are metrics, and their parameters.
LOSSES: dict[str, Callable[[Array, Array, Mapping[str, float]], Array]] = {
    "l1": lambda y, f, _: np.abs(y - f),
    "l2": lambda y, f, _: np.square(y - f),
    "rmse": lambda y, f, _: np.square(y - f),  # The root is taken of the mean.
    "quantile": lambda y, f, given: (given["alpha"] - (y < f)) * (y - f),
    "huber": lambda y, f, given: huber(given["alpha"], y - f),
    "fair": _fair,
    "mape": lambda y, f, _: np.abs(y - f) / np.maximum(np.abs(y), 1.0),
    "poisson": lambda y, f, _: np.maximum(f, 1e-10) - y * np.log(np.maximum(f, 1e-10)),
    "tweedie": _tweedie,
    "gamma": lambda y, f, _: y / f + np.log(f),
}
# Parameters of losses, which objectives have as well, and LightGBM's defaults.
LOSS_PARAMETERS = {"alpha": 0.9, "fair_c": 1.0, "tweedie_variance_power": 1.5}


def _mean_loss(
    y: Array, f: Array, sample_weight: Any, *, name: str, given: Mapping[str, float]
) -> float:
    y, f = np.asarray(y, dtype=np.float64), np.asarray(f, dtype=np.float64)
    mean = float(np.average(LOSSES[name](y, f, given), weights=sample_weight))
    return mean**0.5 if name == "rmse" else mean


METRICS: dict[str, Callable[..., float]] = {
    **dict.fromkeys(("binary_logloss", "multi_logloss", "cross_entropy"), _logloss),
    **dict.fromkeys(("binary_error", "multi_error"), _error),
    **{name: functools.partial(_mean_loss, name=name) for name in LOSSES},
    "auc": functools.partial(_rank, measure=roc_auc_score),
    "average_precision": functools.partial(_rank, measure=average_precision_score),
    "auc_mu": _auc_mu,
}
HIGHER_IS_BETTER = ("auc", "average_precision", "auc_mu")
RANK_METRICS = (*HIGHER_IS_BETTER, "multi_error")
# LightGBM takes no other metrics of several classes.
OF_SEVERAL_CLASSES = ("multi_logloss", "multi_error", "auc_mu")
OF_POSITIVE_TARGETS = ("gamma",)
NO_METRIC = ("none", "null", "custom", "na")
METRIC_ALIASES = {
    "binary": "binary_logloss",
    "multiclass": "multi_logloss",
    "softmax": "multi_logloss",
    "xentropy": "cross_entropy",
    "mae": "l1",
    "mean_absolute_error": "l1",
    "regression_l1": "l1",
    "mse": "l2",
    "mean_squared_error": "l2",
    "regression": "l2",
    "regression_l2": "l2",
    "root_mean_squared_error": "rmse",
    "l2_root": "rmse",
    "mean_absolute_percentage_error": "mape",
}


def find_reported_name(name: str, n_classes: int) -> str:
    """Find the name by which LightGBM reports a metric; a regression has no classes."""
    name = METRIC_ALIASES.get(name.lower(), name.lower())
    prefix = "binary" if n_classes == 2 else "multi"
    for kind in ("logloss", "error") if n_classes else ():
        if name in (kind, f"binary_{kind}", f"multi_{kind}"):
            return f"{prefix}_{kind}"
    return name


def make_metric(name: str, model: Any, predict: Callable[[Array], Array]) -> Callable[..., Any]:
    """Make one of LightGBM's metrics as a function of labels, scores and weights.

    `predict` makes predictions of scores.
    """
    reported, options = name, dict[str, Any]()
    top_k = find_parameter(model, "multi_error_top_k", 1)
    if name == "multi_error" and top_k > 1:
        reported, options = f"{name}@{top_k}", {"top_k": top_k}
    if name == "auc_mu":
        options["costs"] = find_parameter(model, "auc_mu_weights", None)
    if name in LOSSES:
        given = {key: find_parameter(model, key, of) for key, of in LOSS_PARAMETERS.items()}
        options["given"] = given

    def metric(y_true: Array, margin: Array, weight: Any) -> tuple[str, float, bool]:
        weight = None if weight is None else np.asarray(weight, dtype=np.float64)
        # Ranking metrics would differ where probabilities tie and scores do not.
        score = margin if name in RANK_METRICS else predict(margin)
        value = float(METRICS[name](y_true, score, sample_weight=weight, **options))
        return reported, value, name in HIGHER_IS_BETTER

    return metric


def list_metrics(
    model: Any, eval_metric: Any, default: str, n_classes: int = 0
) -> tuple[list[str], list[Any]]:
    """List the names and the functions of the metrics that were asked for, as the parent does.

    The `default` is evaluated where no metric has a name.
    """
    _check_types(model, eval_metric)
    asked = eval_metric if isinstance(eval_metric, (list, tuple)) else [eval_metric]
    is_given = not model.get_params().keys().isdisjoint({"metric", *ALIASES["metric"]})
    fixed = find_parameter(model, "metric", []) if is_given else default
    fixed = [fixed] if isinstance(fixed, str) else [str(m) for m in fixed if m is not None]
    # As in the parent, the position of a name in `metric` has precedence.
    first = [m for m in asked if isinstance(m, str) and not (is_given and m in fixed)]
    names = [*first, *fixed]
    names = [m.strip() for name in names for m in name.split(",") if m.strip()]
    names = names or [default]  # LightGBM reads an empty name so.
    names = list(dict.fromkeys(find_reported_name(m, n_classes) for m in names))
    return [m for m in names if m not in NO_METRIC], [m for m in asked if callable(m)]


def split_metrics(model: Any, eval_metric: Any, n_classes: int) -> tuple[list[str], list[Any]]:
    """Split metrics into names that need no objective, and functions of labels and scores.

    Ranking metrics need no objective. All others become functions of probabilities. LightGBM
    evaluates functions last. A ranking metric that was asked for after another metric becomes a
    function as well, and the order stays, which early stopping may depend on.
    """
    default = "binary_logloss" if n_classes == 2 else "multi_logloss"
    names, own = list_metrics(model, eval_metric, default, n_classes)
    of_several = n_classes > 2
    known = [m for m in METRICS if (m in OF_SEVERAL_CLASSES) == of_several]
    refuse_unknown(
        names, sorted({*known} - {*OF_POSITIVE_TARGETS}), f"on {n_classes} classes",
        "probabilities",
    )  # fmt: skip
    n_own = next((i for i, m in enumerate(names) if m not in RANK_METRICS), len(names))
    return names[:n_own], [
        *(make_metric(m, model, compute_probabilities) for m in names[n_own:]),
        *(map_scores(metric, compute_probabilities) for metric in own),
    ]


def refuse_unknown(
    names: Sequence[str], known: Sequence[str], where: str, predictions: str
) -> None:
    """Refuse metrics beside the known ones, which LightGBM would evaluate on raw scores."""
    if unknown := [m for m in names if m not in known]:
        raise ValueError(
            f"metric {unknown[0]!r} cannot be evaluated {where} under constraints, where LightGBM "
            f"gives metrics raw scores: use one of {[*known]}, or a callable eval_metric, which "
            f"is given {predictions}."
        )


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


def find_own_boosting(model: Any) -> str | None:
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
