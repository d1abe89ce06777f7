"""LightGBM's metrics as functions of labels and margins.

Without an objective LightGBM gives its metrics raw scores. Ranking metrics do not mind; all others
are computed here as LightGBM computes them, on probabilities.
"""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from scipy.special import expit, softmax
from sklearn.metrics import average_precision_score, roc_auc_score

from gbm_constrained._typing import Array
from gbm_constrained.boosters.lightgbm.parameters import ALIASES, find_parameter

EPSILON = 1e-15  # LightGBM's kEpsilon, the floor of probabilities in its metrics


def _link(margin: Array) -> Array:
    return np.asarray(expit(margin) if margin.ndim == 1 else softmax(margin, axis=1))


def on_probabilities(metric: Callable[..., Any]) -> Callable[..., Any]:
    """Make a metric of probabilities of one that is given margins."""

    @functools.wraps(metric)
    def on_margins(y_true: Array, margin: Array, *args: Any, **kwargs: Any) -> Any:
        return metric(y_true, _link(margin), *args, **kwargs)

    return on_margins


def check_arguments(metrics: Iterable[Callable[..., Any]]) -> None:
    """Refuse metrics of a number of arguments that LightGBM does not call one with.

    Raises
    ------
    TypeError
        If one takes fewer than two or more than four.
    """
    for metric in metrics:
        n = len(inspect.signature(metric).parameters)
        if not 2 <= n <= 4:
            raise TypeError(
                f"eval_metric {getattr(metric, '__name__', metric)!r} has {n} arguments, and "
                f"LightGBM gives a function 2, 3 or 4: y_true, y_pred, weight and group."
            )


def _logloss(y: Array, p: Array, weight: Any) -> float:
    right = np.where(y > 0, p, 1.0 - p) if p.ndim == 1 else p[np.arange(y.size), y.astype(int)]
    return float(np.average(-np.log(np.maximum(right, EPSILON)), weights=weight))


def _error(y: Array, p: Array, weight: Any, top_k: int = 1) -> float:
    if p.ndim == 1:
        return float(np.average((p > 0.5) != (y > 0), weights=weight))
    # LightGBM counts a row as right only if fewer than k other classes score as high.
    right = p[np.arange(y.size), y.astype(int)]
    return float(np.average((p >= right[:, None]).sum(axis=1) > top_k, weights=weight))


def _squared(y: Array, p: Array, weight: Any) -> float:
    return float(np.average((y - p) ** 2, weights=weight))


def _auc(y: Array, score: Array, weight: Any) -> float:
    one_class = np.ptp(y) == 0  # of which LightGBM says so
    return 1.0 if one_class else float(roc_auc_score(y, score, sample_weight=weight))


def _average_precision(y: Array, score: Array, weight: Any) -> float:
    none = not y.any()  # of which LightGBM says so
    return 1.0 if none else float(average_precision_score(y, score, sample_weight=weight))


def _auc_mu(y: Array, score: Array, weight: Any, costs: Any = None) -> float:
    """Mean over pairs of classes of how well their scores part the two; Kleiman and Page, 2019."""
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
            part = None if weight is None else weight[both]
            total += float(roc_auc_score(y[both] == i, along, sample_weight=part))
    return float(total / (k * (k - 1) / 2))


METRICS: dict[str, tuple[Callable[[Array, Array, Any], float], bool]] = {
    "binary_logloss": (_logloss, False),
    "multi_logloss": (_logloss, False),
    "cross_entropy": (_logloss, False),
    "binary_error": (_error, False),
    "multi_error": (_error, False),
    "l1": (lambda y, p, w: float(np.average(np.abs(y - p), weights=w)), False),
    "l2": (_squared, False),
    "rmse": (lambda y, p, w: float(np.sqrt(_squared(y, p, w))), False),
    "auc": (_auc, True),
    "average_precision": (_average_precision, True),
    "auc_mu": (_auc_mu, True),
}
RANK_METRICS = ("auc", "average_precision", "auc_mu", "multi_error")
OF_SEVERAL_CLASSES = ("multi_logloss", "multi_error", "auc_mu")  # LightGBM takes no others
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
}


def canonical(name: str, n_classes: int) -> str:
    """Name under which LightGBM reports a metric."""
    name = METRIC_ALIASES.get(name.lower(), name.lower())
    binary = {"logloss", "multi_logloss"}, {"error", "multi_error"}
    several = {"logloss", "binary_logloss"}, {"error", "binary_error"}
    prefix, (losses, errors) = ("binary", binary) if n_classes == 2 else ("multi", several)
    if name in losses:
        return f"{prefix}_logloss"
    return f"{prefix}_error" if name in errors else name


def builtin_metric(name: str, top_k: int, costs: Any) -> Callable[..., Any]:
    """Make one of LightGBM's metrics as a function of labels, margins and weights."""
    function, higher_is_better = METRICS[name]
    reported = name
    if name == "multi_error" and top_k > 1:
        function, reported = functools.partial(_error, top_k=top_k), f"{name}@{top_k}"
    if name == "auc_mu":
        function = functools.partial(_auc_mu, costs=costs)

    def metric(y_true: Array, margin: Array, weight: Any) -> tuple[str, float, bool]:
        weight = None if weight is None else np.asarray(weight, dtype=np.float64)
        # Probabilities may tie where margins do not, which ranking metrics would notice.
        score = margin if name in RANK_METRICS else _link(margin)
        return reported, function(y_true, score, weight), higher_is_better

    return metric


def split_metrics(model: Any, eval_metric: Any, n_classes: int) -> tuple[list[str], list[Any]]:
    """Split metrics into those LightGBM gets right without an objective, and callables.

    Ranking metrics do not mind raw scores. All others are given as functions that see
    probabilities. LightGBM evaluates functions last: a ranking metric asked for after one of
    the others joins them, so that the order, which early stopping may depend on, stays.
    """
    asked = eval_metric if isinstance(eval_metric, (list, tuple)) else [eval_metric]
    own = [m for m in asked if callable(m)]
    default = "binary_logloss" if n_classes == 2 else "multi_logloss"
    is_given = not model.get_params().keys().isdisjoint({"metric", *ALIASES["metric"]})
    fixed = find_parameter(model, "metric", []) if is_given else default
    fixed = [fixed] if isinstance(fixed, str) else [m for m in fixed if m is not None]
    # As in the parent, a name that `metric` has as well stands where it stands there.
    first = [m for m in asked if isinstance(m, str) and not (is_given and m in fixed)]
    names = [*first, *fixed]
    names = [m.strip() for name in names for m in name.split(",") if m.strip()]
    names = names or [default]  # as LightGBM takes a metric without a name
    names = list(dict.fromkeys(canonical(m, n_classes) for m in names))
    names = [m for m in names if m not in NO_METRIC]
    known = sorted(m for m in METRICS if (m in OF_SEVERAL_CLASSES) == (n_classes > 2))
    unknown = [m for m in names if m not in known]
    if unknown:
        raise ValueError(
            f"metric {unknown[0]!r} cannot be evaluated on {n_classes} classes under "
            f"constraints, where LightGBM gives metrics raw scores: use one of {known}, or a "
            f"callable eval_metric, which is given probabilities."
        )
    n_own = next((i for i, m in enumerate(names) if m not in RANK_METRICS), len(names))
    top_k = find_parameter(model, "multi_error_top_k", 1)
    costs = find_parameter(model, "auc_mu_weights", None)
    builtin = [builtin_metric(m, top_k, costs) for m in names[n_own:]]
    return names[:n_own], [*builtin, *map(on_probabilities, own)]
