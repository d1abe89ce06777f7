"""Parameters of XGBoost, and their checks under constraints."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import xgboost as xgb

from gbm_constrained._dataframes import categories_beyond_ascii
from gbm_constrained._findings import issue_warning
from gbm_constrained._typing import Array
from gbm_constrained.data.cells import find_cupy
from gbm_constrained.fit.callbacks import check_booster_callbacks
from gbm_constrained.scorers import ubjson

KEEPS_NAMES = (3, 4)  # first version of XGBoost that does not cut names of categories
NATIVE_OBJECTIVES = (None, "binary:logistic", "multi:softprob", "multi:softmax")


# Names of parameters that the libraries share, and XGBoost's own defaults of them.
ALIASES = {
    "learning_rate": ("eta", "learning_rate"),
    "num_iterations": ("n_estimators",),
    "num_threads": ("nthread", "n_jobs"),
}
DEFAULTS = {"learning_rate": 0.3, "num_iterations": 100}


def find_parameter(model: Any, name: str, default: Any = None) -> Any:
    """Find a parameter of the constructor or among its further ones, without drawing numbers."""
    given = {**vars(model), **(getattr(model, "kwargs", None) or {})}
    found = [given[one] for one in ALIASES.get(name, (name,)) if given.get(one) is not None]
    return found[0] if found else DEFAULTS.get(name, default)


def check_parameters(model: Any) -> None:
    """Refuse parameters beside the objective that have no meaning under constraints."""
    if (process_type := find_parameter(model, "process_type", "default")) != "default":
        raise ValueError(
            f"process_type={process_type!r} changes the trees of another model and grows "
            f"none, so that no gradient is asked for: leave it out, and give xgb_model= to fit to "
            f"grow further trees."
        )
    if (split_mode := find_parameter(model, "data_split_mode", "row")) not in ("row", 0):
        raise ValueError(
            f"data_split_mode={split_mode!r} divides features among machines, and "
            f"constraints are sums over rows: leave it out."
        )
    check_booster_callbacks(
        model.callbacks,
        lambda c: isinstance(c, xgb.callback.TrainingCallback),
        "xgboost.callback.TrainingCallback",
    )
    for name, rounds in [
        ("early_stopping_rounds", model.early_stopping_rounds),
        *(("rounds of EarlyStopping", callback.rounds) for callback in list_stoppers(model)),
    ]:
        if rounds is not None and not isinstance(rounds, Real):
            raise TypeError(f"{name} must be a number, got {rounds!r}: give an integer.")
    if sum(map(callable, list_metrics(model))) > 1:  # The parent fails while it trains.
        raise NotImplementedError(
            "eval_metric holds several functions. Using multiple custom metrics is not yet "
            "supported by XGBoost: leave one, beside names of its own metrics."
        )


def find_without_gradients(model: Any) -> str | None:
    """Find the parameter of a classifier by which its booster takes no gradients but its own."""
    if callable(model.objective):
        return f"objective={model.objective!r}"
    return find_own_booster(model) if model.objective in NATIVE_OBJECTIVES else None


def find_own_booster(model: Any) -> str | None:
    """Find the parameter of a booster that takes no gradients but its own.

    DART rescales its old trees as it grows, so that multipliers found on part of the rows do not
    carry over; XGBoost 3.4 also makes DART of ``gbtree`` with `rate_drop`.
    """
    if model.booster in ("gblinear", "dart"):
        return f"booster={model.booster!r}"
    for name in ("rate_drop", "one_drop"):
        if asked := find_parameter(model, name):
            return f"{name}={asked!r}"
    return None


def check_metric(
    model: Any, native: Mapping[str, Any], *, is_evaluated: bool, is_weighted: bool
) -> None:
    """Refuse metrics that XGBoost does not know, or does not evaluate under its objective.

    XGBoost evaluates one row of each class, or two rows of a regression. Functions are called
    with weights where evaluation sets have weights.
    """
    given, metrics = model.eval_metric, list_metrics(model)
    if isinstance(given, (list, tuple)) and given and all(map(callable, given)):
        raise ValueError(
            f"eval_metric={given!r} holds a function and no name of a metric, which XGBoost "
            f"does not read: give the function itself."
        )
    for metric in metrics:
        if callable(metric):
            if is_evaluated and not hasattr(metric, "__name__"):
                raise TypeError(
                    f"eval_metric holds {metric!r}, which has no __name__ that XGBoost could "
                    f"record its values under: give a function."
                )
            if is_evaluated:
                _check_arguments(metric, is_weighted=is_weighted)
            continue
        if not isinstance(metric, str):
            raise TypeError(
                f"Invalid type for the `eval_metric`: {type(metric)}. eval_metric must be a name, "
                f"a function, or a list of them, got {given!r}."
            )
        try:
            _find_recorded_names(model, native, [metric], is_evaluated=is_evaluated)
        except xgb.core.XGBoostError as error:
            message = str(error).partition("\nStack trace:")[0]
            # XGBoost begins with the time and the place in its source.
            message = re.sub(r"^\[[\d:]+\] \S+: ", "", message).rstrip(": ")
            where = f"under objective={native['objective']!r}"
            if native["objective"].startswith(("binary", "multi")):
                where = f"with {native.get('num_class', 2)} classes"
            raise xgb.core.XGBoostError(
                f"eval_metric {metric!r} cannot be evaluated {where}: "
                f"XGBoost says {message!r}. Give another of its metrics, or a function."
            ) from None


def _find_recorded_names(
    model: Any, native: Mapping[str, Any], metrics: list[str], *, is_evaluated: bool = True
) -> list[str]:
    """Find the names by which XGBoost records its metrics: those asked for, or its default."""
    n_labels = native.get("num_class", 2)
    rows = xgb.DMatrix(np.zeros((n_labels, 1)), label=np.arange(n_labels))
    params = {**(getattr(model, "kwargs", None) or {}), **native}
    if metrics:
        params["eval_metric"] = metrics
    with xgb.config_context(verbosity=0):
        booster = xgb.Booster({**params, "nthread": 1}, [rows])
        if not is_evaluated:
            booster.save_config()  # This call reads the metrics.
            return []
        results = booster.eval(rows, name="").split()[1:]
    return [result.removeprefix("-").rpartition(":")[0] for result in results]


def check_stoppers(model: Any, native: Mapping[str, Any], n_sets: int) -> None:
    """Refuse to stop early by an evaluation set or a metric that is not there."""
    given = list_metrics(model)
    sets = [f"validation_{i}" for i in range(n_sets)]
    for callback in list_stoppers(model):
        if callback.data and callback.data not in sets:
            raise ValueError(
                f"EarlyStopping has data_name={callback.data!r}, and the evaluation sets are "
                f"called {sets}: give one of these, or None for the last."
            )
        if not callback.metric_name:
            continue
        known = _find_recorded_names(model, native, [m for m in given if isinstance(m, str)])
        known += [m.__name__ for m in given if callable(m)]
        if callback.metric_name not in known:
            raise ValueError(
                f"EarlyStopping has metric_name={callback.metric_name!r}, which is not "
                f"evaluated: the metrics are {known}. Give one of these, or ask for it by "
                f"eval_metric."
            )


def list_metrics(model: Any) -> list[Any]:
    """List the metrics that were asked for; the parent takes any sequence but a text."""
    given = model.eval_metric
    if isinstance(given, Sequence) and not isinstance(given, str):
        return list(given)
    return [] if given is None else [given]


def list_stoppers(model: Any) -> list[Any]:
    """List the callbacks that stop early."""
    stopping = xgb.callback.EarlyStopping
    return [callback for callback in model.callbacks or () if isinstance(callback, stopping)]


def has_early_stopping(model: Any, _: Any) -> bool:
    """Whether a parameter or a callback stops early."""
    return model.early_stopping_rounds is not None or bool(list_stoppers(model))


def _check_arguments(metric: Callable[..., Any], *, is_weighted: bool) -> None:
    """Refuse a function that XGBoost cannot call with its arguments."""
    weights = {"sample_weight": None} if is_weighted else {}
    try:
        takes = inspect.signature(metric, follow_wrapped=False)
    except ValueError:  # Functions that are not written in Python may have no signature.
        return
    try:
        takes.bind(None, None, **weights)
    except TypeError as error:
        called = f"(y_true, y_score{', sample_weight=...' * is_weighted})"
        raise TypeError(
            f"eval_metric {metric.__name__!r} cannot be called with {called}, as XGBoost does: "
            f"{error}. Give a function of these."
        ) from None


def check_complete(fname: Any) -> None:
    """Refuse a binary model that was cut, on which XGBoost would crash, and one of LightGBM."""
    if isinstance(fname, bytearray):
        data = bytes(fname)
    else:
        path = Path(fname).expanduser()
        data = path.read_bytes() if path.is_file() else b""  # XGBoost reports a missing file.
    if data.startswith(b"tree\n"):
        raise ValueError(
            "it is a model of LightGBM, which ConstrainedLGBMClassifier().load_model reads"
        )
    if ubjson.is_ubjson(data):
        ubjson.read(data)


def warn_of_cut_names(X: Any) -> None:
    """Warn of names of categories that this version of XGBoost cuts."""
    names = categories_beyond_ascii(X)
    if names and tuple(map(int, xgb.__version__.split(".")[:2])) < KEEPS_NAMES:
        issue_warning(
            f"xgboost {xgb.__version__} cuts the names of categories that are not in ASCII, as "
            f"columns {names} have: its models may take one for another, in a table with other "
            f"lists of categories and even in this one, so that constraints have other values "
            f"than the report. Use XGBoost 3.4 or newer, or rename the categories.",
            "GC206",
        )


def choose_array_module(device: Any, verbosity: int | None) -> Any:
    """Choose the module of the arrays of rows for XGBoost's `device`: numpy or CuPy.

    XGBoost hands scores over in main memory. They are taken to the card once a round, and
    gradients stay there. Without CuPy, gradients are computed by numpy, with a warning unless
    `verbosity` is zero.
    """
    name, _, ordinal = str(device or "cpu").lower().partition(":")
    if name not in ("cuda", "gpu"):
        return np
    cupy = find_cupy()
    if cupy is None:
        advice = "install CuPy for your version of CUDA, such as cupy-cuda13x, which finds a card"
    elif ordinal and int(ordinal) != cupy.cuda.runtime.getDevice():
        advice = f"make card {ordinal} the current one by cupy.cuda.Device({ordinal}).use()"
    else:
        return cupy
    if verbosity != 0:
        issue_warning(
            f"device={device!r} grows the trees on a graphics card, and gradients under "
            f"constraints are computed on the CPU. To compute them on the card as well, {advice}.",
            "GC308",
        )
    return np


def find_intercept(y: Array, weight: Array | None, params: dict[str, Any]) -> Any:
    """Find ``base_score`` as XGBoost fits it under its own objective, to the last digit.

    ``base_score`` depends on labels and weights only, so one stump on a constant feature has it.
    """
    # Up to so many rows, counts in single precision are exact.
    if weight is None and y.dtype.kind in "iu" and y.size < 2**24:
        count = np.bincount(y)
        y = np.flatnonzero(count)
        weight = count[y]
    rows = xgb.DMatrix(np.zeros((y.size, 1), dtype=np.float32), label=y, weight=weight)
    with xgb.config_context(verbosity=0):
        # Tools that log runs watch ``xgb.train``, and would take this for the user's.
        booster = xgb.Booster({**params, "max_depth": 1}, [rows])
        booster.update(rows, 0)
    config = json.loads(booster.save_config())
    base_score = json.loads(config["learner"]["learner_model_param"]["base_score"])
    return base_score if isinstance(base_score, float) or len(base_score) > 1 else base_score[0]


def map_metrics(metrics: Any, change: Callable[[Callable[..., Any]], Any]) -> Any:
    """Change functions among metrics, one or several; leave names as they are."""
    if isinstance(metrics, (list, tuple)):
        return [map_metrics(metric, change) for metric in metrics]
    return change(metrics) if callable(metrics) else metrics


def find_classes(scores: Array) -> Array:
    """Find the class of the largest score, as ``multi:softmax`` hands it to metrics."""
    return np.asarray(scores.argmax(axis=1), dtype=np.float32)
