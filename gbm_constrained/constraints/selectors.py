"""Selectors of rows: by class, column, data set, mask or another model's decisions."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from gbm_constrained._dataframes import as_array, as_column, index_of

__all__ = ["dataset", "label"]

Missing: TypeAlias = Literal["group", "raise"]


def plain(value: Any) -> Any:
    """Values of numpy as Python's own: they print, compare and hash alike."""
    # Times of nanoseconds would come out of numpy as numbers; those of pandas equal Python's own.
    if isinstance(value, np.datetime64):
        return pd.Timestamp(value)
    if isinstance(value, np.timedelta64):
        return pd.Timedelta(value)
    return value.item() if isinstance(value, np.generic) else value


@dataclass(frozen=True, repr=False)
class MissingValue:
    """What stands in the place of a missing value (None, NaN, NaT, NA); no value equals it."""

    def __repr__(self) -> str:
        return "missing"


MISSING = MissingValue()


def as_level(value: Any) -> Any:
    """Give a value of a column as it is known among the levels of groups."""
    return MISSING if pd.api.types.is_scalar(value) and pd.isna(value) else plain(value)


def check_hashable(value: Any, message: str) -> None:
    try:
        hash(value)
    except TypeError:
        raise TypeError(f"{message}; got {value!r}.") from None


@dataclass(frozen=True)
class Label:
    """The rows whose label is `value`, or all others."""

    value: Hashable
    excluded: bool = False

    def __post_init__(self) -> None:
        check_hashable(self.value, "A label is one value of y: write a rate for each of several")

    def __str__(self) -> str:
        return f"y{'!=' if self.excluded else '='}{self.value!r}"


@dataclass(frozen=True)
class ClassPosition:
    """The rows of the negative (0) or positive (1) class of a binary problem."""

    index: Literal[0, 1]

    def __str__(self) -> str:
        return ("negative", "positive")[self.index]


@dataclass(frozen=True)
class Column:
    """The rows with `value` in a column of the sensitive features, or of X."""

    name: Hashable
    value: Hashable

    def __post_init__(self) -> None:
        message = f"on= takes one value of column {self.name!r}, or a mask of rows with several"
        check_hashable(self.value, message)

    def __str__(self) -> str:
        return f"{self.name}={self.value}"


@dataclass(frozen=True)
class DataSet:
    """The rows of a data set that was given to ``fit`` by name."""

    name: str

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise TypeError(
                f"dataset takes the name that a data set has in fit(..., datasets={{name: ...}}), "
                f"a string; got {self.name!r}."
            )

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Mask:
    """A fixed subset of the training rows, packed into bits so that it can be hashed.

    Parameters
    ----------
    packed : bytes
        One bit for each row.
    n_samples : int
        Number of rows.
    index : Index, default=None
        Row labels of the Series that the mask was given as.
    """

    packed: bytes
    n_samples: int
    index: Any = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.n_samples < 0 or len(self.packed) != -(-self.n_samples // 8):
            raise ValueError(
                f"A mask of {self.n_samples} rows takes one bit for each, got "
                f"{len(self.packed)} bytes."
            )

    @classmethod
    def from_array(cls, mask: ArrayLike) -> Mask:
        rows = as_array(mask)
        if rows.dtype != np.bool_ or rows.ndim != 1:
            given = f"an array of dtype {rows.dtype} and shape {rows.shape}"
            raise TypeError(
                f"on= must be a label(...), a dataset(...), column values such as {{'sex': 'F'}}, "
                f"a one-dimensional boolean mask of the training rows, or a tuple of these; got "
                f"{given if rows.ndim else repr(mask)}."
            )
        return cls(np.packbits(rows).tobytes(), rows.size, index_of(mask))

    def to_array(self) -> NDArray[np.bool_]:
        bits = np.frombuffer(self.packed, dtype=np.uint8)
        return np.unpackbits(bits, count=self.n_samples).view(np.bool_)

    @cached_property
    def size(self) -> int:
        """Rows of the subset."""
        bits = int.from_bytes(self.packed, "big")
        return (bits >> -self.n_samples % 8).bit_count()

    def __str__(self) -> str:
        return f"mask of {self.size} rows"

    def __repr__(self) -> str:
        return f"Mask({self})"


@dataclass(frozen=True, eq=False)
class Deployed:
    """Decisions of another model: a fitted classifier, a column, or one decision per row.

    Equal if these are: of two models, if their pickles are, so that a rule that was sent to
    another process equals the rule that stayed. Copies share the model, which is only ever asked;
    fit it anew as another object, with a rule of its own.

    Parameters
    ----------
    model : classifier, default=None
        Asked for its decisions when the data are known.
    column : hashable, default=None
        Name of a column of the sensitive features, or of X, that holds decisions.
    decisions : tuple, default=None
        A decision for each training row.
    forgotten : str, default=None
        What a classifier was called that the file of this constraint does not hold. The
        constraint still prints, and cannot be fitted.
    index : Index, default=None
        Row labels of the Series that the decisions were given as.
    """

    model: Any = None
    column: Hashable = None
    decisions: tuple[Hashable, ...] | None = None
    forgotten: str | None = None
    index: Any = None

    @classmethod
    def of(cls, parameter: str, model: Any) -> Deployed:
        if isinstance(model, type):
            raise TypeError(
                f"{parameter}= must be a fitted classifier, and {model.__name__} is a class: make "
                f"one of it, and fit it."
            )
        if hasattr(model, "predict"):
            return cls(model=model)
        if isinstance(model, str):
            return cls(column=model)
        decisions = as_column(model)
        if decisions.ndim != 1:
            raise TypeError(
                f"{parameter}= must be a fitted classifier, the name of a column of decisions, or "
                f"one decision for each training row; got {model!r}."
            )
        missing = np.flatnonzero(pd.isna(decisions))
        if missing.size:
            raise ValueError(
                f"{parameter}= has {missing.size} missing decisions (NaN or None), the first in "
                f"row {missing[0]}: the other model must decide on every training row. Drop these "
                f"rows, or fill the decisions in."
            )
        values = pd.Series(decisions).tolist()  # dates stay dates
        return cls(decisions=tuple(values), index=index_of(model))

    @property
    def _but_the_model(self) -> tuple[Any, ...]:
        return type(self.model), self.column, self.decisions, self.forgotten

    @cached_property
    def _contents(self) -> bytes | None:
        """Digest of the model, or None where it has no pickle."""
        try:
            # Which equal strings are one object shows in a pickle, and no more in that of a copy.
            copied = pickle.loads(pickle.dumps(self.model))
            return hashlib.sha256(pickle.dumps(copied)).digest()
        except Exception:  # of whichever library the model is
            return None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Deployed):
            return NotImplemented
        if self._but_the_model != other._but_the_model:
            return False
        if self.model is other.model:
            return True
        return self._contents is not None and self._contents == other._contents

    def __hash__(self) -> int:
        return hash(self._but_the_model)

    def __deepcopy__(self, memo: dict[int, Any]) -> Deployed:
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {one.name: getattr(self, one.name) for one in fields(self)}

    def __str__(self) -> str:
        if self.column is not None:
            return repr(self.column)
        if self.forgotten is not None:
            return self.forgotten
        return type(self.model).__name__ if self.decisions is None else "decisions"

    def __repr__(self) -> str:
        return f"Deployed({self})"


@dataclass(frozen=True)
class Judged:
    """The rows that another model gets right, or wrong."""

    deployed: Deployed
    right: bool

    def __str__(self) -> str:
        return f"{'right' if self.right else 'wrong'} by {self.deployed}"


Selector: TypeAlias = Label | ClassPosition | Column | DataSet | Mask | Judged
ABOUT_LABELS = (Label, ClassPosition, Judged)  # Selectors that ask for the labels of rows.


def label(value: Hashable) -> Label:
    """Select the rows of one class, for ``on=``.

    Parameters
    ----------
    value : hashable
        The class label, as it stands in ``y``.
    """
    return Label(plain(value))


def dataset(name: str) -> DataSet:
    """Select the rows of a data set given as ``fit(..., datasets={name: ...})``, for ``on=``.

    Parameters
    ----------
    name : str
        Its name.
    """
    return DataSet(name)


def as_selectors(on: Any) -> tuple[Selector, ...]:
    if on is None:
        return ()
    if isinstance(on, tuple) and not all(isinstance(part, (bool, np.bool_)) for part in on):
        return tuple(selector for part in on for selector in as_selectors(part))
    if isinstance(on, (Label, ClassPosition, Column, DataSet, Mask, Judged)):
        return (on,)
    if isinstance(on, Mapping):
        return tuple(Column(plain(name), as_level(value)) for name, value in on.items())
    return (Mask.from_array(on),)
