"""Models that a library trains by its own means, and the rows that each is trained on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from gbm_constrained._dataframes import take_rows
from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.data.combined_rows import CombinedRows
from gbm_constrained.training.checkpoint import State

IsOver: TypeAlias = Callable[[int], bool]
"""Whether training ends after so many boosting rounds."""


class NativeModel(Protocol):
    """A model that the library has trained by its own means."""

    @property
    def model(self) -> Any:
        """The library's classifier."""

    def margin(self, X: Any, rows: Codes) -> Array:
        """Score rows of X; `rows` are their positions among all rows."""

    def to_bytes(self) -> bytes:
        """Write the model as the library does."""


class SavedModel(NativeModel, Protocol):
    """A model that a checkpoint can hold."""

    def state(self) -> State:
        """Give what :meth:`Merger.restore` needs."""


@dataclass(frozen=True, eq=False)
class PartRows:
    """Rows that a model is trained on, and what it is to learn.

    Parameters
    ----------
    combined : CombinedRows
        All rows; those of further data sets are learned as joint labels only.
    rows : ndarray of int
        Positions of the rows.
    target : ndarray of shape (n_rows,), intp or None
        Joint labels of all rows; None for the labels that the user gave.
    factor : ndarray of shape (n_rows,), default=None
        Factor of the weight of each of all rows.
    is_over : callable, default=None
        Whether training ends after so many boosting rounds; None if all are trained.
    start : NativeModel, default=None
        Model of the same rows that training goes on with.
    n_before : int, default=0
        Rounds of that model.
    rounds : int, default=None
        Rounds to grow; by default all that the classifier asks for.
    """

    combined: CombinedRows
    rows: Codes
    target: Codes | None
    factor: Float | None = None
    is_over: IsOver | None = None
    start: NativeModel | None = None
    n_before: int = 0
    rounds: int | None = None

    @property
    def is_joint(self) -> bool:
        """Whether the model learns joint labels, which no parameter about classes is for."""
        return self.target is not None

    @property
    def work(self) -> float:
        """Number of values that a boosting round has gradients for: rows times scores."""
        labels = self.combined.codes if self.target is None else self.target
        n_labels = np.unique(labels[self.rows]).size
        return float(self.rows.size * (1 if n_labels <= 2 else n_labels))

    def take_features(self) -> Any:
        """Take the features of these rows."""
        return take_rows(self.combined.X, self.rows)

    def take_labels(self, y: Any) -> Any:
        """Take the labels of these rows."""
        return take_rows(y, self.rows) if self.target is None else self.target[self.rows]

    def take_weight(self, weight: Any) -> Any:
        """Take the weights of these rows, given those of the training rows, times the factors."""
        weight = multiply_weight(self.combined.with_ones(weight), self.factor)
        return None if weight is None else take_rows(weight, self.rows)


def multiply_weight(weight: Any, factor: Float | None) -> Any:
    """Multiply the weights of rows, ones where weight is None, by factors if there are any."""
    if factor is None:
        return weight
    return factor if weight is None else np.asarray(weight, dtype=np.float64) * factor


FitPart: TypeAlias = Callable[[PartRows], NativeModel]
"""Trains the library's own model on some of the rows."""
Merge: TypeAlias = Callable[[Sequence[Any]], NativeModel]
"""Merges models into one whose raw score is the mean of theirs."""


class Merger(Protocol):
    """Merges models that the library has trained by its own means."""

    def merge(self, models: Sequence[Any]) -> NativeModel:
        """Merge models of ``fit_part`` into one whose raw score is the mean of theirs."""

    def restore(self, state: State, part: PartRows) -> NativeModel:
        """Make the model that ``fit_part`` has trained on some rows from its state."""

    def take(self, model: Any) -> None:
        """Make a model of ``fit_part`` that of the classifier, as ``fit`` would."""
