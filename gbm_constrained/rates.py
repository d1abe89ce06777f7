"""What a user writes: rates, and the bounds put on them.

A rate is a statistic of the model on a set of rows: an error rate (weighted fraction of rows
that are misclassified, in ``[0, 1]``) or a mean cross-entropy (in nats). ``rate <= bound`` is a
:class:`Constraint`: an immutable, hashable description that holds no data. What the rows are is
settled when the data are known, by :func:`gbm_constrained.cells.compile_constraints`.

>>> from gbm_constrained.rates import class_error, fnr
>>> fnr() <= 0.05
fnr <= 0.05
>>> class_error("SIRA") <= 0.02
class_error('SIRA') <= 0.02
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Constraint", "Rate", "class_error", "error_rate", "fnr", "fpr", "label", "log_loss"]


@dataclass(frozen=True)
class Label:
    """The rows whose label is `value`."""

    value: Hashable

    def __str__(self) -> str:
        return f"y={self.value!r}"


@dataclass(frozen=True)
class ClassPosition:
    """The rows of the negative (0) or positive (1) class of a binary problem."""

    index: Literal[0, 1]

    def __str__(self) -> str:
        return ("negative", "positive")[self.index]


@dataclass(frozen=True)
class Mask:
    """A fixed subset of the training rows, packed into bits so that it can be hashed."""

    packed: bytes
    n_samples: int

    @classmethod
    def from_array(cls, mask: ArrayLike) -> Mask:
        rows = np.asarray(mask)
        if rows.dtype != np.bool_ or rows.ndim != 1:
            raise TypeError(
                f"on= must be a label(...) or a one-dimensional boolean mask of the training "
                f"rows; got an array of dtype {rows.dtype} and shape {rows.shape}."
            )
        return cls(np.packbits(rows).tobytes(), rows.size)

    def to_array(self) -> NDArray[np.bool_]:
        bits = np.frombuffer(self.packed, dtype=np.uint8)
        return np.unpackbits(bits, count=self.n_samples).astype(bool)

    def __str__(self) -> str:
        return f"mask of {int(self.to_array().sum())} rows"

    def __repr__(self) -> str:
        return f"Mask({self})"


Selector: TypeAlias = Label | ClassPosition | Mask


def label(value: Hashable) -> Label:
    """Select the rows of one class, for ``on=``.

    Parameters
    ----------
    value : hashable
        The class label, as it stands in ``y``.
    """
    return Label(value)


@dataclass(frozen=True)
class Rate:
    """A statistic of the model's predictions on a set of rows.

    Parameters
    ----------
    name : str
        How the rate prints.
    statistic : {"error", "log_loss"}
        Weighted fraction of misclassified rows, or weighted mean cross-entropy.
    on : tuple of selectors
        The rows: the intersection of all selectors; every row when empty.

    See Also
    --------
    fpr, fnr, class_error, error_rate, log_loss : The ways to make one.
    """

    name: str
    statistic: Literal["error", "log_loss"]
    on: tuple[Selector, ...] = ()

    def __le__(self, bound: float) -> Constraint:
        return Constraint(self, bound)

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__


@dataclass(frozen=True)
class Constraint:
    """``rate <= bound``.

    Parameters
    ----------
    rate : Rate
        What is bounded.
    bound : float
        The largest value allowed: in ``[0, 1]`` for an error rate, positive and finite for a
        mean loss.

    Raises
    ------
    TypeError
        If `bound` is not a real number.
    ValueError
        If `bound` is outside the range of the rate.
    """

    rate: Rate
    bound: float

    def __post_init__(self) -> None:
        if isinstance(self.bound, bool) or not isinstance(
            self.bound, (int, float, np.integer, np.floating)
        ):
            raise TypeError(
                f"The bound of {self.rate} must be a number, got {self.bound!r}. "
                f"Write it as `{self.rate.name.partition('(')[0].partition('[')[0]}(...) <= 0.05`."
            )
        bound = float(self.bound)
        if self.rate.statistic == "error" and not 0.0 <= bound <= 1.0:
            raise ValueError(
                f"The bound of {self.rate} must be a rate in [0, 1], got {bound}: "
                f"5 per cent is written 0.05."
            )
        if self.rate.statistic == "log_loss" and not (bound > 0.0 and math.isfinite(bound)):
            raise ValueError(
                f"The bound of {self.rate} must be a positive, finite mean cross-entropy in "
                f"nats, got {bound}."
            )
        object.__setattr__(self, "bound", bound)

    def __str__(self) -> str:
        return f"{self.rate} <= {self.bound:g}"

    __repr__ = __str__


def _selectors(on: Any) -> tuple[Selector, ...]:
    if on is None:
        return ()
    if isinstance(on, (Label, ClassPosition, Mask)):
        return (on,)
    return (Mask.from_array(on),)


def _named(name: str, on: tuple[Selector, ...]) -> str:
    return f"{name}[{', '.join(map(str, on))}]" if on else name


def error_rate(*, on: ArrayLike | Label | None = None) -> Rate:
    """Weighted fraction of misclassified rows, ``P(prediction != y)``.

    Parameters
    ----------
    on : bool array of shape (n_samples,) or label(...), default=None
        The rows it is taken over; all of them by default. A mask speaks of training rows, so
        it cannot be measured on an evaluation set.
    """
    rows = _selectors(on)
    return Rate(_named("error_rate", rows), "error", rows)


def class_error(k: Hashable, *, on: ArrayLike | None = None) -> Rate:
    """Weighted fraction of the rows of class `k` that are misclassified.

    ``P(prediction != k | y = k)``, the rate of Neyman-Pearson classification; one minus the
    recall of class `k`.

    Parameters
    ----------
    k : hashable
        The class label, as it stands in ``y``.
    on : bool array of shape (n_samples,), default=None
        Restricts the rate to these training rows.
    """
    rows = _selectors(on)
    return Rate(_named(f"class_error({k!r})", rows), "error", (Label(k), *rows))


def fpr(*, on: ArrayLike | None = None) -> Rate:
    """Make the false positive rate of a binary classifier, ``P(prediction = 1 | y = 0)``.

    The negative class is the first of the sorted labels (``classes_[0]``).

    Parameters
    ----------
    on : bool array of shape (n_samples,), default=None
        Restricts the rate to these training rows.
    """
    rows = _selectors(on)
    return Rate(_named("fpr", rows), "error", (ClassPosition(0), *rows))


def fnr(*, on: ArrayLike | None = None) -> Rate:
    """Make the miss rate (false negative rate), ``P(prediction = 0 | y = 1)``, binary.

    The positive class is the last of the sorted labels (``classes_[1]``).

    Parameters
    ----------
    on : bool array of shape (n_samples,), default=None
        Restricts the rate to these training rows.
    """
    rows = _selectors(on)
    return Rate(_named("fnr", rows), "error", (ClassPosition(1), *rows))


def log_loss(*, on: ArrayLike | Label | None = None) -> Rate:
    """Weighted mean cross-entropy, in nats: the convex constraint of the source paper.

    ``log_loss(on=label(k)) <= alpha`` is constraint ``l_k(x) <= alpha_k`` of [1]_, eq. (3.1),
    with means in the place of sums.

    Parameters
    ----------
    on : bool array of shape (n_samples,) or label(...), default=None
        The rows it is taken over; all of them by default.

    References
    ----------
    .. [1] Lin and Deng, "GBM-based Bregman Proximal Algorithms for Constrained Learning", 2023.
    """
    rows = _selectors(on)
    return Rate(_named("log_loss", rows), "log_loss", rows)
