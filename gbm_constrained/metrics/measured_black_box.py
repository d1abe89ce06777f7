"""A metric that is only a function to call, on the rows that it is called with."""

from __future__ import annotations

import copy
import reprlib
from collections.abc import Hashable, Mapping
from numbers import Real
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from gbm_constrained._messages import is_finite
from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.data.rows import Rows
from gbm_constrained.metrics.called_function import CalledFunction


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
    reserved : int, default=0
        Calls that are kept back.

    Attributes
    ----------
    calls : int
        Number of calls so far.
    """

    def __init__(self, limit: int, reserved: int = 0) -> None:
        self.calls = 0
        self.limit, self._reserved = limit, reserved

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
    """

    def __init__(
        self,
        called: CalledFunction,
        bounds: tuple[float, float],
        rows: Rows,
        y_true: NDArray[Any],
        budget: CallBudget,
    ) -> None:
        self.called, self.bounds, self.budget = called, bounds, budget
        self._place = "the first call"
        self._classes = rows.classes
        self._labels = _lock(y_true)
        self._columns = rows.columns if called.takes_sensitive else {}
        weight = np.ones(len(rows)) if rows.weight is None else rows.weight
        self._weight = {"sample_weight": _lock(weight)} if called.takes_weight else {}
        self._features = self._lock_features()

    def _lock_features(self) -> tuple[Any, ...]:
        return (_lock_columns(self._columns),) if self.called.takes_sensitive else ()

    def take(self, index: Codes) -> MeasuredBlackBox:
        """Take some of the rows, possibly several times, with the same budget of calls."""
        part = copy.copy(self)
        part._labels = _lock(self._labels[index])
        part._columns = {name: values[index] for name, values in self._columns.items()}
        part._weight = {name: _lock(values[index]) for name, values in self._weight.items()}
        part._features = part._lock_features()
        return part

    @property
    def calls(self) -> int:
        """Number of calls so far, on other rows of the same budget too."""
        return self.budget.calls

    @property
    def calls_left(self) -> int:
        """Number of calls that are left."""
        return self.budget.left

    def begin_iteration(self, iteration: int) -> None:
        """Note the iteration, which errors of the function name."""
        self._place = f"iteration {iteration}"

    def begin_report(self) -> None:
        """Note that the report is made, which errors of the function name."""
        self._place = "the report"

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
        worst, best = self._ends
        return (self.measure(scores) - best) / (worst - best)

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
        if self.calls_left <= 0:
            raise RuntimeError(
                f"BlackBox({self.called.name}) was called max_calls={self.budget.limit} times, "
                f"and no call is left: raise max_calls."
            )
        self.budget.calls += 1
        predictions = _lock(self._predict(scores))
        try:
            value = self.called.function(
                self._labels, predictions, *self._features, **self._weight
            )
        except Exception as error:
            error.add_note(f"BlackBox({self.called.name}) raised this error in {self._where}.")
            raise
        return self._check(value)

    @property
    def _where(self) -> str:
        return f"{self._place}, at call {self.calls}"

    def _predict(self, scores: Float) -> Array:
        predict = self.called.predict
        if predict == "labels":
            return self._classes[(scores > 0.0).astype(np.intp)]
        return scores if predict == "scores" else np.asarray(expit(scores))

    def _check(self, value: Any) -> float:
        if not isinstance(value, Real):
            raise TypeError(
                f"function={self.called.name} must return one number, got "
                f"{reprlib.repr(value)} in "
                f"{self._where}: return a float for all rows together."
            )
        if not is_finite(value):
            raise ValueError(
                f"function={self.called.name} returned {value} in {self._where}: return a "
                f"finite number where the metric has no value, such as the worst one."
            )
        low, high = self.bounds
        if not low <= float(value) <= high:
            raise ValueError(
                f"function={self.called.name} returned {value} in {self._where}, outside "
                f"of bounds={self.bounds}: give the smallest and the largest value as "
                f"bounds=."
            )
        return float(value)


def _lock_columns(columns: Mapping[Hashable, Array]) -> Any:
    """Make the sensitive features read-only: one array, or a mapping of several."""
    locked = {name: _lock(values) for name, values in columns.items()}
    return next(iter(locked.values())) if len(locked) == 1 else MappingProxyType(locked)
