"""What XGBoost's parameters and arguments must be under constraints."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import xgboost as xgb

from gbm_constrained._dataframes import categories_beyond_ascii
from gbm_constrained._findings import issue_warning
from gbm_constrained._typing import Array
from gbm_constrained.boosters import ubjson
from gbm_constrained.boosters.xgboost.model import has_dropped_trees
from gbm_constrained.training.callbacks import check_booster_callbacks
from gbm_constrained.training.options import SolverOptions

KEEPS_NAMES = (3, 4)  # The first version that does not cut names of categories.
NATIVE_OBJECTIVES = (None, "binary:logistic", "multi:softprob", "multi:softmax")


def check_supported(model: Any, options: SolverOptions) -> None:
    """Refuse parameters that have no meaning under constraints."""
    if model.objective not in NATIVE_OBJECTIVES:
        raise ValueError(
            f"objective={model.objective!r} cannot be trained under constraints: leave it at "
            f"'binary:logistic' (softmax is chosen for several classes)."
        )
    check_booster_callbacks(
        model.callbacks,
        lambda c: isinstance(c, xgb.callback.TrainingCallback),
        "xgboost.callback.TrainingCallback",
    )
    for name, rounds in [
        ("early_stopping_rounds", model.early_stopping_rounds),
        *(("rounds of EarlyStopping", callback.rounds) for callback in stoppers_of(model)),
    ]:
        if rounds is not None and not isinstance(rounds, Real):
            raise TypeError(f"{name} must be a number, got {rounds!r}: give an integer.")
    if (
        sum(map(callable, metrics_of(model))) > 1
    ):  # which the parent, too, says only while it trains
        raise NotImplementedError(
            "eval_metric holds several functions. Using multiple custom metrics is not yet "
            "supported by XGBoost: leave one, beside names of its own metrics."
        )
    if model.booster == "gblinear":
        raise ValueError(
            "booster='gblinear' cannot be trained under constraints: use 'gbtree', or "
            "ConstrainedLogisticRegression for a linear model."
        )
    _refuse_dart(model)
    if options.iterate == "ergodic":
        raise ValueError(
            "iterate='ergodic' averages the iterates of an exact learner, and boosters have none: "
            "use iterate='last' or 'best', or ConstrainedLogisticRegression."
        )


def _refuse_dart(model: Any) -> None:
    """Refuse the booster DART, which XGBoost 3.4 also makes of ``gbtree`` with `rate_drop`."""
    more = getattr(model, "kwargs", None) or {}
    asked = {name: more[name] for name in ("rate_drop", "one_drop") if more.get(name)}
    if model.booster == "dart":
        asked = {"booster": "dart"}
    for name, value in asked.items():
        raise ValueError(
            f"{name}={value!r} cannot be trained under constraints: DART rescales its old trees "
            f"as it grows, so that multipliers found on part of the rows do not carry over. Use "
            f"booster='gbtree', and leave rate_drop and one_drop out."
        )


def refuse_dart_model(booster: xgb.Booster) -> None:
    """Refuse to continue a model of DART, whose booster XGBoost would take over."""
    if has_dropped_trees(booster):
        raise ValueError(
            "xgb_model is a model of DART, which cannot be continued under constraints: training "
            "would rescale its trees. Continue a model of booster='gbtree'."
        )


def check_classes(model: Any, classes: Array) -> None:
    """Refuse labels that the parent does not take, and softmax scores of two classes."""
    expected = np.arange(classes.size)
    if not np.array_equal(classes, expected):
        raise ValueError(
            f"Invalid classes inferred from unique values of `y`.  Expected: {expected}, got "
            f"{classes}. Encode y first, as scikit-learn's LabelEncoder does."
        )
    # Not from get_params, which draws from a random_state that can be drawn from.
    num_class = (getattr(model, "kwargs", None) or {}).get("num_class")
    if classes.size == 2 and num_class not in (None, 0, 1):
        raise ValueError(
            f"num_class={num_class!r} cannot be trained under constraints where y has two "
            f"classes, which have one score: leave it out, and objective at 'binary:logistic'."
        )


def check_metric(model: Any, n_classes: int, evaluates: bool, weighted: bool) -> None:
    """Refuse metrics that XGBoost does not know, or does not take of so many classes.

    XGBoost itself is asked, with one row of each class. Where evaluation sets are `weighted`
    it gives functions the weights.
    """
    given, metrics = model.eval_metric, metrics_of(model)
    if isinstance(given, (list, tuple)) and given and all(map(callable, given)):
        raise ValueError(
            f"eval_metric={given!r} holds a function and no name of a metric, which XGBoost "
            f"does not read: give the function itself."
        )
    for metric in metrics:
        if callable(metric):
            if evaluates and not hasattr(metric, "__name__"):
                raise TypeError(
                    f"eval_metric holds {metric!r}, which has no __name__ that XGBoost could "
                    f"record its values under: give a function."
                )
            if evaluates:
                _check_arguments(metric, weighted)
            continue
        if not isinstance(metric, str):
            raise TypeError(
                f"eval_metric must be a name, a function, or a list of them, got {given!r}."
            )
        try:
            _evaluated(model, n_classes, [metric], evaluates)
        except xgb.core.XGBoostError as error:
            told = str(error).partition("\nStack trace:")[0]
            told = re.sub(r"^\[[\d:]+\] \S+: ", "", told).rstrip(": ")  # a line of its source
            raise ValueError(
                f"eval_metric {metric!r} cannot be evaluated with {n_classes} classes: "
                f"XGBoost says {told!r}. Give another of its metrics, or a function."
            ) from None


def _evaluated(
    model: Any, n_classes: int, metrics: list[str], evaluates: bool = True
) -> list[str]:
    """Names that XGBoost records its own metrics by: those asked for, or its default."""
    rows = xgb.DMatrix(np.zeros((n_classes, 1)), label=np.arange(n_classes))
    params = {**(getattr(model, "kwargs", None) or {}), **native_objective(n_classes)}
    if metrics:
        params["eval_metric"] = metrics
    with xgb.config_context(verbosity=0):
        booster = xgb.Booster({**params, "nthread": 1}, [rows])
        if not evaluates:
            booster.save_config()  # which reads the metrics
            return []
        told = booster.eval(rows, name="").split()[1:]
    return [one.removeprefix("-").rpartition(":")[0] for one in told]


def check_stoppers(model: Any, n_classes: int, n_sets: int) -> None:
    """Refuse to stop early by an evaluation set or a metric that is not there."""
    given = metrics_of(model)
    sets = [f"validation_{i}" for i in range(n_sets)]
    for callback in stoppers_of(model):
        if callback.data and callback.data not in sets:
            raise ValueError(
                f"EarlyStopping has data_name={callback.data!r}, and the evaluation sets are "
                f"called {sets}: give one of these, or None for the last."
            )
        if not callback.metric_name:
            continue
        known = _evaluated(model, n_classes, [m for m in given if isinstance(m, str)])
        known += [m.__name__ for m in given if callable(m)]
        if callback.metric_name not in known:
            raise ValueError(
                f"EarlyStopping has metric_name={callback.metric_name!r}, which is not "
                f"evaluated: the metrics are {known}. Give one of these, or ask for it by "
                f"eval_metric."
            )


def metrics_of(model: Any) -> list[Any]:
    """List the metrics that were asked for."""
    given = model.eval_metric
    if isinstance(given, (list, tuple)):
        return list(given)
    return [] if given is None else [given]


def stoppers_of(model: Any) -> list[Any]:
    """List the callbacks that stop early."""
    stopping = xgb.callback.EarlyStopping
    return [callback for callback in model.callbacks or () if isinstance(callback, stopping)]


def stops_early(model: Any) -> bool:
    """Whether a parameter or a callback stops early."""
    return model.early_stopping_rounds is not None or bool(stoppers_of(model))


def native_objective(n_classes: int) -> dict[str, Any]:
    """Give the library's own objective for so many classes."""
    if n_classes == 2:
        return {"objective": "binary:logistic"}
    return {"objective": "multi:softprob", "num_class": n_classes}


def list_for_each(values: Sequence[Any] | None, eval_set: Any, name: str) -> Sequence[Any]:
    """List what is given for each evaluation set, which must be one entry each."""
    n_sets = 0 if eval_set is None else len(eval_set)
    if values is None:
        return [None] * n_sets
    if eval_set is None or len(values) != n_sets:
        raise ValueError(
            f"{name} must hold one entry for each of the {n_sets} evaluation sets, got "
            f"{len(values)}: give eval_set as well, and None for sets that have none."
        )
    return values


def _check_arguments(metric: Callable[..., Any], weighted: bool) -> None:
    """Refuse a metric that does not take what XGBoost calls it with."""
    weights = {"sample_weight": None} if weighted else {}
    try:
        takes = inspect.signature(metric, follow_wrapped=False)
    except ValueError:  # of functions that are not written in Python it is not known
        return
    try:
        takes.bind(None, None, **weights)
    except TypeError as error:
        called = f"(y_true, y_score{', sample_weight=...' * weighted})"
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
        data = path.read_bytes() if path.is_file() else b""  # XGBoost tells of a missing one
    if data.startswith(b"tree\n"):
        raise ValueError(
            "it is a model of LightGBM, which ConstrainedLGBMClassifier().load_model reads"
        )
    if ubjson.is_ubjson(data):
        ubjson.read(data)


def warn_of_base_margin() -> None:
    """Say which decisions a report is about: XGBoost's ``predict`` knows no margins of its own."""
    issue_warning(
        "The report holds for predict(X, base_margin=...): the rules were measured with the "
        "base_margin that was given to fit. Decisions of predict(X) without it, which audit() and "
        "the tools of scikit-learn ask for, are others.",
        "GC207",
    )


def warn_of_cut_names(X: Any) -> None:
    """Warn of names of categories that this version of XGBoost cuts."""
    names = categories_beyond_ascii(X)
    if names and tuple(map(int, xgb.__version__.split(".")[:2])) < KEEPS_NAMES:
        issue_warning(
            f"xgboost {xgb.__version__} cuts the names of categories that are not in ASCII, as "
            f"columns {names} have: its models may take one for another, in a table with other "
            f"lists of categories and even in this one, so that rules are not what is reported. "
            f"Use XGBoost 3.4 or newer, or rename the categories.",
            "GC206",
        )
