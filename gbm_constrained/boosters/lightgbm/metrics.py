"""LightGBM's metrics as functions of labels and scores.

Without an objective LightGBM hands its metrics raw scores. Ranking metrics give the same values as
by probabilities. All others are computed here on probabilities, as LightGBM computes them.
"""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.metrics import average_precision_score, roc_auc_score

from gbm_constrained._typing import Array
from gbm_constrained.boosters.lightgbm.parameters import ALIASES, find_parameter
from gbm_constrained.boosters.metrics import compute_probabilities, map_scores

EPSILON = 1e-15  # LightGBM's kEpsilon, the floor of probabilities in its metrics
LEAST = 1e-10  # the floor of predictions in its metrics of counts


def check_arguments(metrics: Iterable[Callable[..., Any]]) -> None:
    """Refuse functions that take fewer arguments than two, or more than four."""
    for metric in metrics:
        n = len(inspect.signature(metric).parameters)
        if not 2 <= n <= 4:
            raise TypeError(
                f"Self-defined eval function should have 2, 3 or 4 arguments, got {n}: "
                f"eval_metric {getattr(metric, '__name__', metric)!r} is called with y_true, "
                f"y_pred, weight and group."
            )


def _logloss(y: Array, p: Array, sample_weight: Any) -> float:
    right = np.where(y > 0, p, 1.0 - p) if p.ndim == 1 else p[np.arange(y.size), y.astype(int)]
    return float(np.average(-np.log(np.maximum(right, EPSILON)), weights=sample_weight))


def _error(y: Array, p: Array, sample_weight: Any, top_k: int = 1) -> float:
    if p.ndim == 1:
        return float(np.average((p > 0.5) != (y > 0), weights=sample_weight))
    # In LightGBM a row is right only if fewer than k other classes score as high.
    right = p[np.arange(y.size), y.astype(int)]
    return float(np.average((p >= right[:, None]).sum(axis=1) > top_k, weights=sample_weight))


def _auc(y: Array, score: Array, sample_weight: Any) -> float:
    if np.ptp(y) == 0:  # LightGBM gives 1 for one class.
        return 1.0
    return float(roc_auc_score(y, score, sample_weight=sample_weight))


def _average_precision(y: Array, score: Array, sample_weight: Any) -> float:
    if not y.any():  # LightGBM gives 1 without positive rows.
        return 1.0
    return float(average_precision_score(y, score, sample_weight=sample_weight))


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


def _poisson(y: Array, f: Array, given: Mapping[str, float]) -> Array:
    f = np.maximum(f, LEAST)
    return np.asarray(f - y * np.log(f))


def _tweedie(y: Array, f: Array, given: Mapping[str, float]) -> Array:
    f, power = np.maximum(f, LEAST), given["tweedie_variance_power"]
    return np.asarray(f ** (2.0 - power) / (2.0 - power) - y * f ** (1.0 - power) / (1.0 - power))


def _huber(y: Array, f: Array, given: Mapping[str, float]) -> Array:
    far, alpha = np.abs(y - f), given["alpha"]
    return np.asarray(np.where(far <= alpha, far**2 / 2.0, alpha * (far - alpha / 2.0)))


def _fair(y: Array, f: Array, given: Mapping[str, float]) -> Array:
    far, c = np.abs(y - f), given["fair_c"]
    return np.asarray(c * far - c**2 * np.log1p(far / c))


# Losses of targets and predictions, whose means are metrics, and their parameters.
LOSSES: dict[str, Callable[[Array, Array, Mapping[str, float]], Array]] = {
    "l1": lambda y, f, _: np.abs(y - f),
    "l2": lambda y, f, _: np.square(y - f),
    "rmse": lambda y, f, _: np.square(y - f),  # The root is taken of the mean.
    "quantile": lambda y, f, given: (given["alpha"] - (y < f)) * (y - f),
    "huber": _huber,
    "fair": _fair,
    "mape": lambda y, f, _: np.abs(y - f) / np.maximum(np.abs(y), 1.0),
    "poisson": _poisson,
    "tweedie": _tweedie,
    "gamma": lambda y, f, _: y / f + np.log(f),
}
PARAMETERS = {"alpha": 0.9, "fair_c": 1.0, "tweedie_variance_power": 1.5}


def _mean_loss(
    y: Array, f: Array, sample_weight: Any, *, name: str, given: Mapping[str, float]
) -> float:
    y, f = np.asarray(y, dtype=np.float64), np.asarray(f, dtype=np.float64)
    mean = float(np.average(LOSSES[name](y, f, given), weights=sample_weight))
    return mean**0.5 if name == "rmse" else mean


METRICS: dict[str, tuple[Callable[..., float], bool]] = {
    "binary_logloss": (_logloss, False),
    "multi_logloss": (_logloss, False),
    "cross_entropy": (_logloss, False),
    "binary_error": (_error, False),
    "multi_error": (_error, False),
    **{name: (functools.partial(_mean_loss, name=name), False) for name in LOSSES},
    "auc": (_auc, True),
    "average_precision": (_average_precision, True),
    "auc_mu": (_auc_mu, True),
}
RANK_METRICS = ("auc", "average_precision", "auc_mu", "multi_error")
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
    function, higher_is_better = METRICS[name]
    reported, top_k = name, find_parameter(model, "multi_error_top_k", 1)
    if name == "multi_error" and top_k > 1:
        function, reported = functools.partial(_error, top_k=top_k), f"{name}@{top_k}"
    if name == "auc_mu":
        costs = find_parameter(model, "auc_mu_weights", None)
        function = functools.partial(_auc_mu, costs=costs)
    if name in LOSSES:
        given = {key: find_parameter(model, key, value) for key, value in PARAMETERS.items()}
        function = functools.partial(function, given=given)

    def metric(y_true: Array, margin: Array, weight: Any) -> tuple[str, float, bool]:
        weight = None if weight is None else np.asarray(weight, dtype=np.float64)
        # Ranking metrics would differ where probabilities tie and scores do not.
        score = margin if name in RANK_METRICS else predict(margin)
        return reported, float(function(y_true, score, sample_weight=weight)), higher_is_better

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
