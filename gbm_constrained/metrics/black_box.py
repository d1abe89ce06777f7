"""Metrics that are only a function to call."""

from __future__ import annotations

import copy
import inspect
import reprlib
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import partial
from numbers import Real
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.metrics import accuracy_score, make_scorer

from gbm_constrained._messages import is_finite
from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.constraints.base import Expression, Factory
from gbm_constrained.constraints.rates import read_columns
from gbm_constrained.constraints.selectors import Columns
from gbm_constrained.data.rows import Rows
from gbm_constrained.data.validation import check_choice, check_integer, is_finite_number
from gbm_constrained.metrics.base import Metric
from gbm_constrained.metrics.surrogates import (
    SurrogateLosses,
    check_surrogates,
    default_surrogates,
)
from gbm_constrained.metrics.text import NAMES

Predict: TypeAlias = Literal["scores", "labels", "probabilities"]
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
    check_choice("predict", predict, get_args(Predict))
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
        names = [p.name for p in required] + [f"{name}= by keyword" for name in other]
        taken = f"the arguments {', '.join(names)}" if names else "no arguments"
        raise TypeError(
            f"function={name} takes {taken}: write it as {_SIGNATURE}, with "
            f"sample_weight=None where weights matter."
        )
    is_named = len(positional) > 2 and positional[2].name == "sensitive"
    return len(required) == 3 or is_named or has_rest, takes_weight


def _lock(values: Array) -> Array:
    """Copy an array so that it cannot be written, by its views neither."""
    locked = np.array(values)
    locked.flags.writeable = False
    return locked.view()


class CallBudget:
    """Calls of a function that are left, in a fit that calls it on several sets of rows.

    Parameters
    ----------
    limit : int
        Most calls, ``max_calls``.

    Attributes
    ----------
    calls : int
        Number of calls so far.
    place : str
        Part of the fit that calls, which errors of the function name.
    """

    def __init__(self, limit: int) -> None:
        self.calls, self.place = 0, "the first call"
        self.limit, self._reserved = limit, 0

    @property
    def left(self) -> int:
        """Number of calls that are left."""
        return self.limit - self._reserved - self.calls

    def reserve(self, calls: int) -> None:
        """Keep so many calls back, and allow all others."""
        self._reserved = calls


class MeasuredBlackBox:
    """A black-box metric on validation rows, as a loss between zero and one.

    Parameters
    ----------
    called : CalledFunction
        The function.
    bounds : tuple of two floats
        Smallest and largest value of the function.
    rows : Rows
        Validation rows.
    y_true : ndarray of shape (n_samples,)
        Labels of the validation rows.
    budget : CallBudget
        Calls of the function that are left.

    Attributes
    ----------
    violation : callable or None
        By how much the decisions of scores violate constraints, where there are some.
    price : float
        What a violation adds to the loss. Without end, no call is needed to know that scores are
        worse than any that keep all constraints.
    """

    violation: Callable[[Float], float] | None = None
    price: float = np.inf

    def __init__(
        self,
        called: CalledFunction,
        bounds: tuple[float, float],
        rows: Rows,
        y_true: NDArray[Any],
        budget: CallBudget,
    ) -> None:
        self.called, self.bounds, self.budget = called, bounds, budget
        self._classes = rows.classes
        weight = np.ones(len(rows)) if rows.weight is None else rows.weight
        self._hold(y_true, rows.columns, weight)

    def _hold(self, labels: Array, columns: Mapping[Hashable, Array], weight: Array) -> None:
        """Keep rows, and make what the function gets of them read-only."""
        self._labels, self._weight = _lock(labels), _lock(weight)
        self._columns = columns if self.called.takes_sensitive else {}
        self._named = {"sample_weight": self._weight} if self.called.takes_weight else {}
        locked = {name: _lock(values) for name, values in self._columns.items()}
        # One array, or a mapping of several.
        features = next(iter(locked.values())) if len(locked) == 1 else MappingProxyType(locked)
        self._features = (features,) if self.called.takes_sensitive else ()

    def take(self, index: Codes) -> MeasuredBlackBox:
        """Take some of the rows, possibly several times, with the same budget of calls."""
        part = copy.copy(self)
        columns = {name: values[index] for name, values in self._columns.items()}
        part._hold(self._labels[index], columns, self._weight[index])
        return part

    def under(self, violation: Callable[[Float], float], price: float) -> MeasuredBlackBox:
        """Make the loss of scores that must keep constraints, with the same budget of calls."""
        constrained = copy.copy(self)
        constrained.violation, constrained.price = violation, price
        return constrained

    def __call__(self, scores: Float) -> float:
        """Call the function, and scale its value to a loss between zero and one.

        Parameters
        ----------
        scores : ndarray of shape (n_samples,)
            Scores of the validation rows.

        Returns
        -------
        float

        Raises
        ------
        RuntimeError
            If no call is left.
        TypeError, ValueError
            If the value is no finite number within the bounds. Errors of the function itself are
            raised with a note of the iteration.
        """
        violation = 0.0 if self.violation is None else self.violation(scores)
        if violation and self.price == np.inf:
            return 1.0 + violation
        worst, best = self._ends
        loss = (self.measure(scores) - best) / (worst - best)
        return loss + self.price * violation if violation else loss

    def from_loss(self, loss: float) -> float:
        """Find the value of the function that has a loss."""
        worst, best = self._ends
        return best + loss * (worst - best)

    @property
    def _ends(self) -> tuple[float, float]:
        """Worst and best value of the function."""
        low, high = self.bounds
        return (low, high) if self.called.is_maximized else (high, low)

    def measure(self, scores: Float) -> float:
        """Call the function, and return its value; see :meth:`__call__`."""
        if self.budget.left <= 0:
            raise RuntimeError(
                f"BlackBox({self.called.name}) was called max_calls={self.budget.limit} times, "
                f"and no call is left: raise max_calls."
            )
        self.budget.calls += 1
        where = f"{self.budget.place}, at call {self.budget.calls}"
        found: Array = scores
        if self.called.predict == "labels":
            found = self._classes[(scores > 0.0).astype(np.intp)]
        elif self.called.predict == "probabilities":
            found = expit(scores)
        predictions = _lock(found)
        try:
            value = self.called.function(self._labels, predictions, *self._features, **self._named)
        except Exception as error:
            error.add_note(f"BlackBox({self.called.name}) raised this error in {where}.")
            raise
        if not isinstance(value, Real):
            raise TypeError(
                f"function={self.called.name} must return one number, got {reprlib.repr(value)} "
                f"in {where}: return a float for all rows together."
            )
        if not is_finite(value):
            raise ValueError(
                f"function={self.called.name} returned {value} in {where}: return a finite "
                f"number where the metric has no value, such as the worst one."
            )
        low, high = self.bounds
        if not low <= float(value) <= high:
            raise ValueError(
                f"function={self.called.name} returned {value} in {where}, outside of "
                f"bounds={self.bounds}: give the smallest and the largest value as bounds=."
            )
        return float(value)


@dataclass(frozen=True, eq=False)
class BlackBox:
    r"""A metric of labels and predictions that is only a function to call.

    The function is never differentiated. Its sensitivity to few surrogates, which are mean losses
    of the training rows, is estimated from calls on validation rows (Jiang et al., "Optimizing
    Black-box Metrics with Adaptive Surrogates", ICML 2020, sections 3 to 5). The relaxation behind
    the method is exact where the metric rises with every surrogate. Convergence is to a
    stationary point, and is shown for smooth bounded surrogates. For a function of the confusion
    matrix use ``maximize=`` with a metric of this module, whose optimum is found exactly.

    Parameters
    ----------
    function : callable or scorer
        ``function(y_true, scores)`` or ``function(y_true, scores, sensitive)``, which returns one
        finite number within `bounds`. Its arguments are read-only arrays of the validation rows;
        several sensitive features are a mapping from names to arrays. A parameter
        ``sample_weight`` gets the weights of the rows. A third parameter gets the sensitive
        features if it has no default, or is called ``sensitive``. A scorer of
        :func:`sklearn.metrics.make_scorer` is taken by its score function, its sign and its
        response method.
    surrogates : sequence of Surrogate, default=None
        Mean losses of training rows, from :func:`surrogate`, at most 32. By default the log loss
        of each label, in each level of `by`.
    by : str or list of str, default=None
        Columns of the sensitive features, or of X when it is a DataFrame, that make groups.
    predict : {"scores", "labels", "probabilities"}, default="scores"
        Predictions that the function takes: scores of the positive class, which are log odds;
        labels, which are positive where scores are above zero; or probabilities of the positive
        class. A scorer has its own.
    maximize : bool, default=False
        Whether larger values are better. A scorer has its own direction.
    bounds : tuple of two floats, default=(0, 1)
        Smallest and largest value of the function.
    max_calls : int, default=3000
        Most calls of the function in a fit.

    Raises
    ------
    TypeError, ValueError
        If the function takes other arguments or is a metric of the confusion matrix, or another
        parameter is out of its range.

    Examples
    --------
    >>> from gbm_constrained.metrics import BlackBox
    >>> def loss(y_true, scores):
    ...     return float(((scores > 0) != y_true).mean())
    >>> BlackBox(loss)
    BlackBox(loss)
    """

    function: Any
    surrogates: Any = None
    by: Any = None
    predict: Predict = "scores"
    maximize: bool = False
    bounds: tuple[float, float] = (0.0, 1.0)
    max_calls: int = 3000
    called: CalledFunction = field(init=False, repr=False)
    columns: Columns | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_surrogates(self.surrogates)
        check_integer("max_calls", self.max_calls, 1)
        bounds: Any = self.bounds
        is_pair = isinstance(bounds, (tuple, list)) and len(bounds) == 2
        if not is_pair or not all(map(is_finite_number, bounds)) or not bounds[0] < bounds[1]:
            raise ValueError(
                f"bounds must be the smallest and the largest value of the function, as in "
                f"(0, 1), got {bounds!r}."
            )
        called = read_function(self.function, self.predict, self.maximize)
        object.__setattr__(self, "called", called)
        object.__setattr__(self, "columns", read_columns(self.by))

    def bind_surrogates(
        self, rows: Rows, training: Rows | None = None, what: str = "training"
    ) -> SurrogateLosses:
        """Bind the surrogates to rows.

        A function that looks at sensitive features needs validation rows of each surrogate, and
        estimators that shift scores need surrogates on these rows.

        Parameters
        ----------
        rows : Rows
            The rows.
        training : Rows, default=None
            Training rows, whose groups make the surrogates by default; the rows themselves by
            default.
        what : str, default="training"
            Name of the rows in messages.

        Returns
        -------
        SurrogateLosses

        Raises
        ------
        ValueError
            If y has not two classes, or a surrogate has no rows.
        """
        given = check_surrogates(self.surrogates)
        if given is None:
            given = default_surrogates(rows if training is None else training, self.columns)
        return SurrogateLosses(given, rows, what)

    def bind(
        self, rows: Rows, y_true: NDArray[Any], budget: CallBudget | None = None
    ) -> MeasuredBlackBox:
        """Bind the function to validation rows.

        Parameters
        ----------
        rows : Rows
            Validation rows, with their sensitive features and weights.
        y_true : ndarray of shape (n_samples,)
            Their labels, as they were given.
        budget : CallBudget, default=None
            Calls that are left; `max_calls` of them by default.

        Returns
        -------
        MeasuredBlackBox

        Raises
        ------
        ValueError
            If the function takes sensitive features, and there are none.
        """
        if self.called.takes_sensitive and not rows.columns:
            raise ValueError(
                f"There are no sensitive features, which {self} takes: give them {rows.remedy}, "
                f"one value for each row."
            )
        budget = CallBudget(self.max_calls) if budget is None else budget
        return MeasuredBlackBox(self.called, self.bounds, rows, y_true, budget)

    def __repr__(self) -> str:
        return f"BlackBox({self.called.name})"
