"""Classes, decisions, scores, losses and history that an audit reads from a classifier."""

from __future__ import annotations

import itertools
import reprlib
from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gbm_constrained._dataframes import as_column
from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.constraints.base import Constraint
from gbm_constrained.data.validation import check_no_scores

SCORES = ("decision_function", "predict_proba")  # Methods that rank rows, the first one first.


def predict_labels(
    model: Any, name: str, X: Any, n: int, sensitive_features: Any = None
) -> NDArray[Any]:
    """Predict the label of each row, and check the labels."""
    if isinstance(model, type) or not callable(getattr(model, "predict", None)):
        raise TypeError(
            f"model must be a fitted classifier with predict, got {reprlib.repr(model)}: wrap "
            f"what it is in an object whose predict(X) returns labels."
        )
    decided = as_column(repeatable_decisions(model, X, sensitive_features))
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
    probability = _columns_of_classes(model, name, "predict_proba", (X, codes.size), classes)
    given = probability[np.arange(codes.size), codes]
    floating = given.dtype if given.dtype.kind == "f" else np.dtype(np.float64)
    # As in sklearn.metrics.log_loss: a probability of zero is one that was rounded.
    return -np.log(np.clip(given.astype(np.float64), np.finfo(floating).eps, 1.0))


def check_scored(models: Mapping[str, Any], constraints: Sequence[Constraint]) -> None:
    """Refuse classifiers without scores or probabilities where constraints are about these."""
    for constraint in constraints:
        for name, model in models.items():
            if constraint.is_pair and not any(map(partial(_has_method, model), SCORES)):
                raise TypeError(
                    f"{constraint} compares scores, and {name} has neither decision_function nor "
                    f"predict_proba: give a classifier with one of them, or bound a rate of "
                    f"decisions, such as fpr()."
                )
            if constraint.is_calibration and not _has_method(model, "predict_proba"):
                raise TypeError(
                    f"{constraint} is about probabilities, and {name} has no predict_proba: wrap "
                    f"it in sklearn.calibration.CalibratedClassifierCV, or bound a rate of "
                    f"decisions, such as fpr()."
                )


def ranking_scores(model: Any, name: str, X: Any, n: int, classes: NDArray[Any]) -> Array:
    """Find the scores by which a classifier ranks rows.

    Those of two classes, (n_samples,), rise with the second one: ``decision_function``, else the
    probability. Several classes, (n_samples, n_classes), have log-probabilities, and values of
    ``decision_function`` where there are no probabilities.
    """
    has_decisions, has_probabilities = (_has_method(model, method) for method in SCORES)
    if classes.size > 2:
        method = "predict_proba" if has_probabilities else "decision_function"
        scores = _columns_of_classes(model, name, method, (X, n), classes)
        with np.errstate(divide="ignore"):
            scores = np.log(scores) if has_probabilities else scores
    elif has_decisions:
        scores = np.asarray(model.decision_function(X))
        if scores.size != n:
            raise ValueError(
                f"{name}.decision_function returned an array of shape {scores.shape}: for {n} "
                f"rows of two classes it must be {(n,)}."
            )
        is_sorted = not has_classes(model) or np.asarray(model.classes_)[1] == classes[1]
        scores = scores.ravel() if is_sorted else -scores.ravel()
    else:
        scores = _columns_of_classes(model, name, "predict_proba", (X, n), classes)[:, 1]
    return _refuse_missing(scores, name, "pairs with them have no order")


def positive_probabilities(model: Any, name: str, X: Any, n: int, classes: NDArray[Any]) -> Float:
    """Find the probabilities of the second of two sorted classes, (n_samples,)."""
    found = _columns_of_classes(model, name, "predict_proba", (X, n), classes)[:, 1]
    return _refuse_missing(found, name, "they are in no bin").astype(np.float64)


def _refuse_missing(scores: Array, name: str, why: str) -> Array:
    """Refuse scores that are NaN."""
    if np.isnan(scores).any():
        raise ValueError(
            f"{name} returned NaN as the score of {np.isnan(scores).sum()} of {scores.size} rows: "
            f"{why}. Remove these rows, or give them scores."
        )
    return scores


def _has_method(model: Any, method: str) -> bool:
    return callable(getattr(model, method, None))


def _columns_of_classes(
    model: Any, name: str, method: str, rows: tuple[Any, int], classes: NDArray[Any]
) -> Array:
    """Find the scores or probabilities of sorted classes, (n_samples, n_classes).

    `rows` are X and the number of its rows.
    """
    X, n = rows
    found = np.asarray(getattr(model, method)(X))
    if found.shape != (n, classes.size):
        raise ValueError(
            f"{name}.{method} returned an array of shape {found.shape}: for {n} rows of classes "
            f"{classes.tolist()} it must be {(n, classes.size)}."
        )
    # Columns are in the order of the model's own classes, which need not be sorted.
    own = np.asarray(model.classes_) if has_classes(model) else classes
    return np.asarray(found[:, np.argsort(own)])


def repeatable_decisions(model: Any, X: Any, sensitive_features: Any = None) -> Any:
    """Let a fitted classifier decide, the same way each time.

    A classifier that draws its decisions (``iterate="randomized"``, or a mixture of rules) gets
    ``random_state=0``, also inside a search, whose own ``predict`` does not take it, or a
    Pipeline, which may not pass it on. So does one whose offsets of groups are kept beside its
    trees with the sensitive features.
    """
    if given := _arguments_of(model, sensitive_features):
        return model.predict(X, **given)
    if not _arguments_of(_innermost(model), sensitive_features):
        return model.predict(X)
    if hasattr(model, "best_estimator_"):
        return repeatable_decisions(model.best_estimator_, X, sensitive_features)
    before = model[:-1]
    X = before.transform(X) if len(before) else X
    return repeatable_decisions(model[-1], X, sensitive_features)


def _arguments_of(model: Any, sensitive_features: Any) -> dict[str, Any]:
    """Find the arguments that ``predict`` of a classifier needs beside the rows."""
    if hasattr(model, "prefixes_") or hasattr(model, "_rules"):
        return {"random_state": 0}
    if hasattr(model, "_group_offsets"):
        return {"sensitive_features": sensitive_features}
    return {}


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
