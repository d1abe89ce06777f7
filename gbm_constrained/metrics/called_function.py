"""The function of a black-box metric, and what its signature asks for."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias

from sklearn.metrics import accuracy_score, make_scorer

from gbm_constrained.constraints.base import Expression
from gbm_constrained.constraints.factories import Factory
from gbm_constrained.data.validation import check_choice
from gbm_constrained.metrics.base import Metric
from gbm_constrained.metrics.text import NAMES

Predict: TypeAlias = Literal["scores", "labels", "probabilities"]
PREDICTIONS: tuple[Predict, ...] = ("scores", "labels", "probabilities")
RESPONSES: dict[str, Predict] = {
    "decision_function": "scores",
    "predict": "labels",
    "predict_proba": "probabilities",
}
# scikit-learn has no public class of scorers, and no public access to their functions.
_SCORER = type(make_scorer(accuracy_score))
_SIGNATURE = "function(y_true, scores) or function(y_true, scores, sensitive)"


@dataclass(frozen=True)
class CalledFunction:
    """A function of labels and predictions.

    Parameters
    ----------
    function : callable
        The function; of a scorer, its score function with the scorer's options.
    name : str
        Name in messages.
    predict : {"scores", "labels", "probabilities"}
        Predictions that the function takes.
    is_maximized : bool
        Whether larger values are better.
    takes_sensitive : bool
        Whether the third argument is the sensitive features.
    takes_weight : bool
        Whether there is a parameter ``sample_weight``.
    """

    function: Callable[..., Any]
    name: str
    predict: Predict
    is_maximized: bool
    takes_sensitive: bool
    takes_weight: bool


def read_function(function: Any, predict: Any, maximize: Any) -> CalledFunction:
    """Read the function of a black-box metric, or a scorer of scikit-learn.

    Raises
    ------
    TypeError, ValueError
        If the function is a metric of the confusion matrix, cannot be called, or takes other
        arguments, or a scorer contradicts `predict` or `maximize`.
    """
    check_choice("predict", predict, PREDICTIONS)
    if not isinstance(maximize, bool):
        raise TypeError(f"maximize must be True or False, got {maximize!r}.")
    if isinstance(function, (Metric, Expression)) or any(
        function is known for known in NAMES.values()
    ):
        name = function.call if isinstance(function, Factory) else str(function)
        raise TypeError(
            f"function={name} is a metric of the confusion matrix, and no black box: give it to "
            f"the classifier as maximize= or minimize=."
        )
    if isinstance(function, _SCORER):
        predict, maximize = _read_scorer(function, predict, asks_for_more=maximize)
        called = partial(function._score_func, **function._kwargs)
    elif callable(function):
        called = function
    else:
        raise TypeError(
            f"function must be callable as {_SIGNATURE}, or a scorer of make_scorer; got "
            f"{function!r}."
        )
    own = called.func if isinstance(called, partial) else called
    name = getattr(own, "__name__", type(own).__name__)
    takes_sensitive, takes_weight = _read_signature(called, name)
    return CalledFunction(called, name, predict, maximize, takes_sensitive, takes_weight)


def _read_scorer(scorer: Any, predict: Predict, *, asks_for_more: bool) -> tuple[Predict, bool]:
    """Find the predictions that a scorer takes, and its direction."""
    response = scorer._response_method
    first = response if isinstance(response, str) else response[0]
    found, is_maximized = RESPONSES[first], scorer._sign > 0
    if predict not in ("scores", found):
        raise ValueError(f"predict={predict!r}, but {scorer} takes {found}: leave predict= out.")
    if asks_for_more and not is_maximized:
        raise ValueError(
            f"maximize=True, but smaller values of {scorer} are better: leave maximize= out."
        )
    return found, is_maximized


def _read_signature(function: Callable[..., Any], name: str) -> tuple[bool, bool]:
    """Find whether a function takes sensitive features, and whether it takes weights."""
    try:
        parameters = dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        raise TypeError(
            f"the signature of function={name} cannot be read: wrap it in a function of Python, "
            f"{_SIGNATURE}."
        ) from None
    takes_weight = parameters.pop("sample_weight", None) is not None
    positional = [
        p for p in parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    has_rest = any(p.kind == p.VAR_POSITIONAL for p in parameters.values())
    required = [p for p in positional if p.default is p.empty]
    other = [
        p.name for p in parameters.values() if p.kind == p.KEYWORD_ONLY and p.default is p.empty
    ]
    if len(required) > 3 or other or not (has_rest or len(positional) >= 2):
        raise TypeError(
            f"function={name} takes {_describe(required, other)}: write it as {_SIGNATURE}, with "
            f"sample_weight=None where weights matter."
        )
    is_named = len(positional) > 2 and positional[2].name == "sensitive"
    return len(required) == 3 or is_named or has_rest, takes_weight


def _describe(required: list[inspect.Parameter], other: list[str]) -> str:
    names = [p.name for p in required] + [f"{name}= by keyword" for name in other]
    return f"the arguments {', '.join(names)}" if names else "no arguments"
