"""Selectors of rows: by class, column, data set, mask or another model's decisions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from gbm_constrained._dataframes import as_array, index_of
from gbm_constrained._messages import join_truncated
from gbm_constrained._typing import Bool, Codes
from gbm_constrained.constraints.reference_models import ReferenceModel

__all__ = ["dataset", "label"]

Missing: TypeAlias = Literal["group", "raise"]
Columns: TypeAlias = tuple[Hashable, ...]


def to_python_scalar(value: Any) -> Any:
    """Convert a value of numpy to Python's own, which prints, compares and hashes alike."""
    # numpy converts times of nanoseconds to numbers; those of pandas equal Python's own.
    if isinstance(value, np.datetime64):
        return pd.Timestamp(value)
    if isinstance(value, np.timedelta64):
        return pd.Timedelta(value)
    return value.item() if isinstance(value, np.generic) else value


@dataclass(frozen=True, repr=False)
class MissingValue:
    """A missing value (None, NaN, NaT, NA) among the levels of groups; no value equals it."""

    def __repr__(self) -> str:
        return "missing"

    def __reduce__(self) -> str:
        return "MISSING"  # There is one in a process, by this name.


MISSING = MissingValue()


def as_level(value: Any) -> Any:
    """Convert a value of a column to a level of groups."""
    return MISSING if pd.api.types.is_scalar(value) and pd.isna(value) else to_python_scalar(value)


def check_hashable(value: Any, message: str) -> None:
    """Refuse a value that has no hash, with a message."""
    try:
        hash(value)
    except TypeError:
        raise TypeError(f"{message}; got {value!r}.") from None


@dataclass(frozen=True)
class Levels:
    """Levels of the attributes of rows in each cell of a partition."""

    classes: NDArray[np.generic]  # Sorted class labels, of shape (n_classes,).
    of_cells: Mapping[Key, Codes]  # Positions of the cells' levels in an attribute: (n_cells,).
    known: Callable[[Key], tuple[Any, ...]]  # Function from the key of an attribute to its levels.


class Selector(ABC):
    """Condition on one attribute of rows."""

    needs_labels: ClassVar[bool] = False
    reference_model: ReferenceModel | None = None  # Model whose decisions the selector uses.

    @property
    @abstractmethod
    def key(self) -> Key:
        """Key of the attribute that the selector uses."""

    @abstractmethod
    def holds(self, levels: Levels) -> Bool:
        """Find the cells whose rows the selector holds; shape (n_cells,).

        A class, value or data set that is not there raises a ValueError.
        """


class ClassSelector(Selector):
    """Rows of a class, or predictions of a class."""

    needs_labels: ClassVar[bool] = True

    @property
    def key(self) -> Literal["label"]:
        """Key of the labels."""
        return "label"

    @abstractmethod
    def is_class(self, classes: NDArray[np.generic]) -> Bool:
        """Find which of the classes are selected; shape (n_classes,)."""

    def holds(self, levels: Levels) -> Bool:
        """Find the cells whose label is selected."""
        # The level after the last class is that of rows without a label.
        is_class = np.append(self.is_class(levels.classes), False)
        return np.asarray(is_class[levels.of_cells["label"]])


@dataclass(frozen=True)
class Label(ClassSelector):
    """Rows whose label is `value`, or all others."""

    value: Hashable
    excluded: bool = False

    def __post_init__(self) -> None:
        check_hashable(self.value, "A label is one value of y: write a rate for each of several")

    def is_class(self, classes: NDArray[np.generic]) -> Bool:
        """Find which of the classes are selected; shape (n_classes,)."""
        named = np.array(
            [known == self.value for known in map(to_python_scalar, classes)], dtype=bool
        )
        if not named.any():
            raise ValueError(
                f"it names class {self.value!r}, which is not in y: its classes are "
                f"{classes.tolist()}."
            )
        return np.asarray(~named if self.excluded else named)

    def __str__(self) -> str:
        return f"y{'!=' if self.excluded else '='}{self.value!r}"


@dataclass(frozen=True)
class ClassPosition(ClassSelector):
    """Rows of the negative (0) or positive (1) class of a binary problem."""

    index: Literal[0, 1]

    def is_class(self, classes: NDArray[np.generic]) -> Bool:
        """Find which of the classes are selected; shape (n_classes,)."""
        if classes.size != 2:
            raise ValueError(
                f"it is a rate of binary classifiers, but y has {classes.size} classes: "
                f"name one of them as label= of the rate, as in tpr(label=k), or as "
                f"positive= of all rates, or use class_error(k). Only binary classification "
                f"is supported otherwise."
            )
        return np.asarray(np.arange(2) == self.index)

    def __str__(self) -> str:
        return ("negative", "positive")[self.index]


@dataclass(frozen=True)
class Column(Selector):
    """Rows with `value` in a column of the sensitive features, or of X."""

    name: Hashable
    value: Hashable

    def __post_init__(self) -> None:
        message = f"on= takes one value of column {self.name!r}, or a mask of rows with several"
        check_hashable(self.value, message)

    @property
    def key(self) -> Columns:
        """Key of the groups that the column makes."""
        return (self.name,)

    def holds(self, levels: Levels) -> Bool:
        """Find the cells whose rows have the value."""
        known = levels.known(self.key)
        if (self.value,) not in known:
            missing = f" on={{{self.name!r}: None}} selects the rows without a value."
            raise ValueError(
                f"{self} selects no row: the values of {self.name!r} are "
                f"[{join_truncated([repr(level[0]) for level in known])}]."
                f"{missing * ((MISSING,) in known)}"
            )
        return np.asarray(levels.of_cells[self.key] == known.index((self.value,)))

    def __str__(self) -> str:
        return f"{self.name}={self.value}"


@dataclass(frozen=True)
class DataSet(Selector):
    """Rows of a data set that was given to ``fit`` by name."""

    name: str

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise TypeError(
                f"dataset takes the name that a data set has in fit(..., datasets={{name: ...}}), "
                f"a string; got {self.name!r}."
            )

    @property
    def key(self) -> Literal["source"]:
        """Key of the data sets that rows are of."""
        return "source"

    def holds(self, levels: Levels) -> Bool:
        """Find the cells whose rows are of the data set."""
        known = levels.known(self.key)
        if self.name not in known[1:]:
            raise ValueError(
                f"data set {self.name!r} was not given: pass it as fit(..., datasets="
                f"{{{self.name!r}: ...}}); those given are {list(known[1:])}."
            )
        return np.asarray(levels.of_cells[self.key] == known.index(self.name))

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Mask(Selector):
    """Fixed subset of the training rows, packed into bits so that it can be hashed."""

    packed: bytes  # One bit for each row.
    n_samples: int
    index: Any = field(default=None, compare=False, repr=False)  # Row labels of a given Series.

    def __post_init__(self) -> None:
        if self.n_samples < 0 or len(self.packed) != -(-self.n_samples // 8):
            raise ValueError(
                f"A mask of {self.n_samples} rows takes one bit for each, got "
                f"{len(self.packed)} bytes."
            )

    @classmethod
    def from_array(cls, mask: ArrayLike) -> Mask:
        """Pack a boolean array of shape (n_samples,)."""
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
        """Unpack the mask to a boolean array of shape (n_samples,)."""
        bits = np.frombuffer(self.packed, dtype=np.uint8)
        return np.unpackbits(bits, count=self.n_samples).view(np.bool_)

    @property
    def key(self) -> Mask:
        """Key of the membership in the mask: the mask itself."""
        return self

    def holds(self, levels: Levels) -> Bool:
        """Find the cells whose rows are in the mask."""
        return np.asarray(levels.of_cells[self] == 1)

    @cached_property
    def size(self) -> int:
        """Number of rows in the subset."""
        bits = int.from_bytes(self.packed, "big")
        return (bits >> -self.n_samples % 8).bit_count()

    def __str__(self) -> str:
        return f"mask of {self.size} rows"

    def __repr__(self) -> str:
        return f"Mask({self})"


@dataclass(frozen=True)
class ClassifiedBy(Selector):
    """Rows that another model classifies correctly, or those that it misclassifies."""

    needs_labels: ClassVar[bool] = True

    reference_model: ReferenceModel = field()
    is_correct: bool = field()

    @property
    def key(self) -> ReferenceModel:
        """Key of the other model's decisions: the model itself."""
        return self.reference_model

    def holds(self, levels: Levels) -> Bool:
        """Find the cells of labelled rows that the other model decides correctly, or wrongly."""
        labels, decisions = levels.of_cells["label"], levels.of_cells[self.reference_model]
        is_known = (decisions < levels.classes.size) & (labels < levels.classes.size)
        return np.asarray(is_known & ((decisions == labels) == self.is_correct))

    def __str__(self) -> str:
        return f"{'right' if self.is_correct else 'wrong'} by {self.reference_model}"


# Key of an attribute of rows: "label", "source" (which data set), columns that make groups, the
# membership in a mask, or the decisions of another model.
Key: TypeAlias = Literal["label", "source"] | Columns | Mask | ReferenceModel


def label(value: Hashable) -> Label:
    """Select the rows of one class, for ``on=``.

    Parameters
    ----------
    value : hashable
        The class label, as it stands in ``y``.
    """
    return Label(to_python_scalar(value))


def dataset(name: str) -> DataSet:
    """Select the rows of a data set given as ``fit(..., datasets={name: ...})``, for ``on=``.

    Parameters
    ----------
    name : str
        Name of the data set.
    """
    return DataSet(name)


def as_selectors(on: Any) -> tuple[Selector, ...]:
    """Read what ``on=`` was given as selectors that rows must satisfy together."""
    if on is None:
        return ()
    if isinstance(on, tuple) and not all(isinstance(part, (bool, np.bool_)) for part in on):
        return tuple(selector for part in on for selector in as_selectors(part))
    if isinstance(on, Selector):
        return (on,)
    if isinstance(on, Mapping):
        return tuple(Column(to_python_scalar(name), as_level(value)) for name, value in on.items())
    return (Mask.from_array(on),)
