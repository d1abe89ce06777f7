"""Metrics that are only a function to call."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from numbers import Real
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from gbm_constrained._messages import is_finite
from gbm_constrained._typing import Array, Float
from gbm_constrained.constraints.rate_parts import read_columns
from gbm_constrained.constraints.selectors import Columns
from gbm_constrained.data.rows import Rows
from gbm_constrained.data.validation import check_integer, is_finite_number
from gbm_constrained.metrics.called_function import CalledFunction, Predict, read_function
from gbm_constrained.metrics.surrogates import (
    Surrogate,
    SurrogateLosses,
    check_surrogates,
    default_surrogates,
    warn_of_few_rows,
)


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
        _check_bounds(self.bounds)
        called = read_function(self.function, self.predict, self.maximize)
        object.__setattr__(self, "called", called)
        object.__setattr__(self, "columns", read_columns(self.by))

    def bind_surrogates(self, rows: Rows, n_validation: int) -> SurrogateLosses:
        """Bind the surrogates to training rows.

        Parameters
        ----------
        rows : Rows
            Training rows.
        n_validation : int
            Number of validation rows.

        Returns
        -------
        SurrogateLosses

        Raises
        ------
        ValueError
            If y has not two classes, or a surrogate has no rows.
        """
        surrogates = self._surrogates_of(rows)
        warn_of_few_rows(len(surrogates), n_validation)
        return SurrogateLosses(surrogates, rows)

    def bind_validation(self, rows: Rows, training: Rows) -> SurrogateLosses:
        """Bind the surrogates of training rows to validation rows.

        A function that looks at sensitive features needs validation rows of each surrogate, and
        estimators that shift scores need surrogates on these rows.

        Parameters
        ----------
        rows : Rows
            Validation rows.
        training : Rows
            Training rows, whose groups make the surrogates by default.

        Returns
        -------
        SurrogateLosses

        Raises
        ------
        ValueError
            If a surrogate has no validation rows.
        """
        return SurrogateLosses(self._surrogates_of(training), rows, "validation")

    def _surrogates_of(self, rows: Rows) -> tuple[Surrogate, ...]:
        given = check_surrogates(self.surrogates)
        return default_surrogates(rows, self.columns) if given is None else given

    def bind(self, rows: Rows, y_true: NDArray[Any]) -> MeasuredBlackBox:
        """Bind the function to validation rows.

        Parameters
        ----------
        rows : Rows
            Validation rows, with their sensitive features and weights.
        y_true : ndarray of shape (n_samples,)
            Their labels, as they were given.

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
                f"{self} takes sensitive features, and the validation rows have none: give "
                f"validation=(X, y, sensitive_features)."
            )
        return MeasuredBlackBox(self, rows, y_true)

    def __repr__(self) -> str:
        return f"BlackBox({self.called.name})"


def _check_bounds(bounds: Any) -> None:
    is_pair = isinstance(bounds, (tuple, list)) and len(bounds) == 2
    if not is_pair or not all(map(is_finite_number, bounds)) or not bounds[0] < bounds[1]:
        raise ValueError(
            f"bounds must be the smallest and the largest value of the function, as in (0, 1), "
            f"got {bounds!r}."
        )


def _lock(values: Array) -> Array:
    """Copy an array so that it cannot be written, by its views neither."""
    locked = np.array(values)
    locked.flags.writeable = False
    return locked.view()


class MeasuredBlackBox:
    """A black-box metric on validation rows, as a loss between zero and one.

    Parameters
    ----------
    metric : BlackBox
        The metric.
    rows : Rows
        Validation rows.
    y_true : ndarray of shape (n_samples,)
        Labels of the validation rows.

    Attributes
    ----------
    calls : int
        Number of calls of the function so far.
    """

    def __init__(self, metric: BlackBox, rows: Rows, y_true: NDArray[Any]) -> None:
        self.metric = metric
        self.calls = 0
        self._iteration = 0
        self._classes = rows.classes
        called = metric.called
        self._labels = _lock(y_true)
        self._features = (_lock_columns(rows.columns),) if called.takes_sensitive else ()
        weight = np.ones(len(rows)) if rows.weight is None else rows.weight
        self._weight = {"sample_weight": _lock(weight)} if called.takes_weight else {}

    @property
    def calls_left(self) -> int:
        """Number of calls that are left of ``max_calls``."""
        return self.metric.max_calls - self.calls

    def begin_iteration(self, iteration: int) -> None:
        """Note the iteration, which errors of the function name."""
        self._iteration = iteration

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
        value = self.measure(scores)
        low, high = self.metric.bounds
        worst, best = (low, high) if self.metric.called.is_maximized else (high, low)
        return (value - best) / (worst - best)

    def measure(self, scores: Float) -> float:
        """Call the function, and return its value; see :meth:`__call__`."""
        if self.calls_left <= 0:
            raise RuntimeError(
                f"{self.metric} was called max_calls={self.metric.max_calls} times, and no call "
                f"is left: raise max_calls."
            )
        self.calls += 1
        predictions = _lock(self._predict(scores))
        try:
            value = self.metric.called.function(
                self._labels, predictions, *self._features, **self._weight
            )
        except Exception as error:
            error.add_note(f"{self.metric} raised this error in {self._place}.")
            raise
        return self._check(value)

    @property
    def _place(self) -> str:
        return f"iteration {self._iteration}, at call {self.calls}"

    def _predict(self, scores: Float) -> Array:
        predict = self.metric.called.predict
        if predict == "labels":
            return self._classes[(scores > 0.0).astype(np.intp)]
        return scores if predict == "scores" else np.asarray(expit(scores))

    def _check(self, value: Any) -> float:
        if not isinstance(value, Real):
            raise TypeError(
                f"function={self.metric.called.name} must return one number, got {value!r} in "
                f"{self._place}: return a float for all rows together."
            )
        if not is_finite(value):
            raise ValueError(
                f"function={self.metric.called.name} returned {value} in {self._place}: return a "
                f"finite number where the metric has no value, such as the worst one."
            )
        low, high = self.metric.bounds
        if not low <= float(value) <= high:
            raise ValueError(
                f"function={self.metric.called.name} returned {value} in {self._place}, outside "
                f"of bounds={self.metric.bounds}: give the smallest and the largest value as "
                f"bounds=."
            )
        return float(value)


def _lock_columns(columns: Mapping[Hashable, Array]) -> Any:
    """Make the sensitive features read-only: one array, or a mapping of several."""
    locked = {name: _lock(values) for name, values in columns.items()}
    return next(iter(locked.values())) if len(locked) == 1 else MappingProxyType(locked)
