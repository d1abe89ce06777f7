"""Classes, decisions, losses and history that an audit reads from a fitted classifier."""

from __future__ import annotations

import itertools
import reprlib
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gbm_constrained._dataframes import as_column
from gbm_constrained._typing import Codes, Float
from gbm_constrained.data.validation import check_no_scores


def predict_labels(model: Any, name: str, X: Any, n: int) -> NDArray[Any]:
    """Predict the label of each row, and check the labels."""
    if isinstance(model, type) or not callable(getattr(model, "predict", None)):
        raise TypeError(
            f"model must be a fitted classifier with predict, got {reprlib.repr(model)}: wrap "
            f"what it is in an object whose predict(X) returns labels."
        )
    decided = as_column(repeatable_decisions(model, X))
    if decided.ndim == 2 and decided.shape[1] == 1:
        decided = decided[:, 0]
    if decided.shape != (n,):
        raise ValueError(
            f"{name}.predict returned an array of shape {decided.shape} for {n} rows: it must "
            f"return one label for each, not probabilities."
        )
    if pd.isna(decided).any():
        raise ValueError(f"{name}.predict returned missing labels: a row without one is no row.")
    return decided


def has_classes(model: Any) -> bool:
    """Whether a classifier lists its classes."""
    return getattr(model, "classes_", None) is not None


def find_classes(
    model: Any, labels: NDArray[Any], answers: Mapping[str, NDArray[Any]]
) -> NDArray[np.generic]:
    """Find the sorted classes: the model's, or those that occur."""
    if has_classes(model):
        classes = np.asarray(model.classes_)
        if classes.ndim != 1:
            raise ValueError(
                f"model has classes_ of shape {classes.shape}: classifiers of several outputs "
                f"are not supported, audit each output by itself."
            )
        return np.unique(classes)
    for name, decided in answers.items():
        remedy = "wrap the model in an object whose predict(X) returns labels"
        check_no_scores(decided, f"{name}.predict returned", remedy)
    try:
        found = [np.unique(values) for values in (labels, *answers.values())]
        # Numbers beside texts are refused here; put together, numpy makes texts of them.
        sorted(itertools.chain.from_iterable(values.tolist() for values in found))
        classes = np.unique(np.concatenate(found))
    except TypeError:
        raise ValueError(
            "y and the decisions are of types that cannot be compared: give y as the model "
            "predicts it."
        ) from None
    if classes.size < 2:
        raise ValueError(
            f"y and the decisions hold one class only ({classes.tolist()}), and the model has no "
            f"classes_: give rows of at least two."
        )
    return classes


def encode_labels(labels: NDArray[Any], classes: NDArray[Any], what: str, remedy: str) -> Codes:
    """Encode labels as class indices."""
    known = {value: i for i, value in enumerate(classes.tolist())}
    positions, found = pd.factorize(labels)
    values: list[Hashable] = [v.item() if isinstance(v, np.generic) else v for v in found]
    strange = [value for value in values if value not in known]
    if strange:
        raise ValueError(f"{what} {strange[0]!r}, which is not among {list(known)}, {remedy}.")
    return np.array([known[value] for value in values], dtype=np.intp)[positions]


def cross_entropies(
    model: Any, name: str, X: Any, codes: Codes, classes: NDArray[Any], constraint: str
) -> Float:
    """Compute the cross-entropy of each row, in nats."""
    if not callable(getattr(model, "predict_proba", None)):
        raise TypeError(
            f"{constraint} needs probabilities, and {name} has no predict_proba: wrap it in "
            f"sklearn.calibration.CalibratedClassifierCV, or bound error_rate() instead."
        )
    probability = np.asarray(model.predict_proba(X))
    if probability.shape != (codes.size, classes.size):
        raise ValueError(
            f"{name}.predict_proba returned an array of shape {probability.shape}: for "
            f"{codes.size} rows of classes {classes.tolist()} it must be "
            f"{(codes.size, classes.size)}."
        )
    # Columns are in the order of the model's own classes, which need not be sorted.
    own = np.asarray(model.classes_) if has_classes(model) else classes
    order = np.argsort(own)
    given = probability[np.arange(codes.size), order[codes]]
    floating = given.dtype if given.dtype.kind == "f" else np.dtype(np.float64)
    # As in sklearn.metrics.log_loss: a probability of zero is one that was rounded.
    return -np.log(np.clip(given.astype(np.float64), np.finfo(floating).eps, 1.0))


def repeatable_decisions(model: Any, X: Any) -> Any:
    """Let a fitted classifier decide, the same way each time.

    A classifier that draws its decisions (``iterate="randomized"``, or a mixture of rules) gets
    ``random_state=0``, also inside a search, whose own ``predict`` does not take it, or a
    Pipeline, which may not pass it on.
    """
    if _is_randomised(model):
        return model.predict(X, random_state=0)
    if not _is_randomised(_innermost(model)):
        return model.predict(X)
    if hasattr(model, "best_estimator_"):
        return repeatable_decisions(model.best_estimator_, X)
    before = model[:-1]
    return repeatable_decisions(model[-1], before.transform(X) if len(before) else X)


def _is_randomised(model: Any) -> bool:
    """Whether a classifier may draw its decisions."""
    return hasattr(model, "prefixes_") or hasattr(model, "_rules")


def positive_of(model: Any) -> Any:
    """Find the positive class that a constrained classifier was given, if any."""
    inner = _innermost(model)
    return getattr(inner, "positive", None) if hasattr(inner, "constraints") else None


def _innermost(model: Any) -> Any:
    """Find the classifier inside searches and Pipelines."""
    for _ in range(4):
        if hasattr(model, "best_estimator_"):
            model = model.best_estimator_
        elif isinstance(getattr(model, "steps", None), list) and model.steps:
            model = model.steps[-1][1]
    return model


def find_history(model: Any) -> pd.DataFrame | None:
    """Find the history of a constrained fit."""
    history = getattr(_innermost(model), "history_", None)
    if not isinstance(history, pd.DataFrame) or "rounds" not in history:
        return None  # Other libraries have a history of their own.
    has_multipliers = any(str(name).startswith("multiplier[") for name in history)
    return history.copy() if has_multipliers else None
