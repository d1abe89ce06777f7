"""Selections of rows, the amounts that rows count for, and the events that rates count."""

from __future__ import annotations

import hashlib
import math
import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Self, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from gbm_constrained._dataframes import as_array, as_column, index_of
from gbm_constrained._messages import is_finite, join_truncated
from gbm_constrained._typing import Bool, Codes, Float
from gbm_constrained.constraints.writing import NotTextError, write_call, write_number, write_value

__all__ = ["dataset", "label"]


@dataclass(frozen=True, eq=False)
class ReferenceModel:
    """Decisions of another model: a fitted classifier, a column, or one decision for each row.

    Two reference models are equal if their contents are. Classifiers are compared by their
    pickles, so that a constraint equals its copy in another process. Copies share the classifier,
    which only predicts. A classifier that is fitted anew needs a constraint of its own.
    """

    model: Any = None  # Fitted classifier that predicts when the rows are known.
    column: Hashable = None  # Name of a column of decisions.
    decisions: tuple[Hashable, ...] | None = None  # A decision for each training row.
    # Class of a classifier that a model file does not hold: the constraint prints, without a fit.
    forgotten: str | None = None
    index: Any = None  # Row labels of the Series that the decisions were given as.

    @classmethod
    def of(cls, parameter: str, model: Any) -> ReferenceModel:
        """Make a reference model from a classifier, the name of a column, or decisions of rows."""
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
        values = pd.Series(decisions).tolist()  # A list of pandas keeps dates as dates.
        return cls(decisions=tuple(values), index=index_of(model))

    @property
    def _all_but_model(self) -> tuple[Any, ...]:
        return type(self.model), self.column, self.decisions, self.forgotten

    @cached_property
    def _contents(self) -> bytes | None:
        """Digest of the classifier, or None where it has no pickle."""
        try:
            # A pickle shows which equal strings are one object, and that of a copy does not.
            copied = pickle.loads(pickle.dumps(self.model))
            return hashlib.sha256(pickle.dumps(copied)).digest()
        except Exception:  # The classifier may be of any library.
            return None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ReferenceModel):
            return NotImplemented
        if self._all_but_model != other._all_but_model:
            return False
        if self.model is other.model:
            return True
        return self._contents is not None and self._contents == other._contents

    def __hash__(self) -> int:
        return hash(self._all_but_model)

    def __deepcopy__(self, memo: dict[int, Any]) -> ReferenceModel:
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
        return f"ReferenceModel({self})"

    def to_python(self) -> str:
        """Write the name of the column of decisions."""
        if isinstance(self.column, str):
            return write_value(self.column)
        held = "decisions of single rows" if self.decisions is not None else str(self)
        raise NotTextError(
            f"it compares with {held}: put the other model's decisions into a column, and name "
            f"that"
        )


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
    key = "label"

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

    key = "source"

    name: str

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise TypeError(
                f"dataset takes the name that a data set has in fit(..., datasets={{name: ...}}), "
                f"a string; got {self.name!r}."
            )

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


def write_level(level: Any) -> str:
    """Write a level of groups, None if it is that of rows without a value."""
    return "None" if level == MISSING else write_value(level)


def write_selectors(selectors: Sequence[Selector]) -> str | None:
    """Write selectors; adjacent columns share one ``{...}``, which names a column once."""
    parts: list[str] = []
    columns: dict[Hashable, str] = {}
    for selector in selectors:
        if isinstance(selector, Column):
            if columns and selector.name not in columns:
                parts.pop()
            else:
                columns = {}
            columns[selector.name] = f"{write_value(selector.name)}: {write_level(selector.value)}"
            parts.append(f"{{{', '.join(columns.values())}}}")
            continue
        columns = {}
        if isinstance(selector, Label) and not selector.excluded:
            parts.append(f"label({write_level(selector.value)})")
        elif isinstance(selector, DataSet):
            parts.append(f"dataset({write_value(selector.name)})")
        else:
            raise NotTextError(
                f"it is about a {selector}: put it into a column, and write on={{column: true}}"
            )
    return f"({', '.join(parts)})" if len(parts) > 1 else "".join(parts) or None


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


@dataclass(frozen=True)
class Amount:
    """What each row counts for in a rate: a column, or one number for each training row."""

    column: Hashable = None
    packed: bytes = b""  # Numbers of an array, in double precision.
    cap: float | None = None  # Largest amount that a row may have.
    index: Any = field(default=None, compare=False, repr=False)  # Row labels of a given Series.

    @classmethod
    def of(cls, weight: Any, cap: Any = None) -> Self | None:
        """Read ``weight=`` and ``cap=`` of a rate; None where every row counts as one.

        Raises
        ------
        TypeError
            If `weight` is neither the name of a column nor an array of numbers, or `cap` no
            number.
        ValueError
            If there is a cap without amounts, or it is not positive.
        """
        if cap is not None and not isinstance(cap, (int, float, np.integer, np.floating)):
            raise TypeError(f"cap= is the largest amount of a row, a number; got {cap!r}.")
        if cap is not None and not (is_finite(cap) and cap > 0):
            raise ValueError(f"cap= is the largest amount of a row, above 0; got {cap!r}.")
        if weight is None:
            if cap is not None:
                raise ValueError(f"cap={cap!r} bounds amounts: give weight=, the column of them.")
            return None
        limit = None if cap is None else float(cap)
        if np.ndim(weight) == 0:
            return cls(to_python_scalar(weight), cap=limit)
        numbers = as_array(weight)
        if numbers.ndim != 1 or numbers.dtype.kind not in "iuf":
            raise TypeError(
                f"weight= is the name of a column of amounts, or one number for each training "
                f"row; got an array of dtype {numbers.dtype} and shape {numbers.shape}."
            )
        packed = numbers.astype(np.float64).tobytes()
        return cls(None, packed, limit, index_of(weight))

    @property
    def largest(self) -> float:
        """Largest amount that a row may have, infinite without a cap."""
        return math.inf if self.cap is None else self.cap

    @cached_property
    def n_samples(self) -> int:
        """Number of rows that amounts were given for."""
        return len(self.packed) // np.dtype(np.float64).itemsize

    def to_array(self) -> Float:
        """Unpack the amounts of an array, (n_samples,)."""
        return np.frombuffer(self.packed, dtype=np.float64)

    def arguments(self) -> dict[str, str | None]:
        """Write the arguments that say what rows count for."""
        if self.packed:
            raise NotTextError(
                "it holds an amount for each row: put them into a column, and name that"
            )
        cap = None if self.cap is None else write_number(self.cap)
        return {"weight": write_value(self.column), "cap": cap}

    def __str__(self) -> str:
        amounts = f"{self.n_samples} amounts" if self.packed else str(self.column)
        return amounts if self.cap is None else f"{amounts}, cap={self.cap:g}"


TargetClass: TypeAlias = Label | ClassPosition
# What a rate is a mean of: decisions, their costs in the unit of the amounts, cross-entropies,
# comparisons of the scores of two rows, residuals of probabilities, or functions of numbers.
EventKind: TypeAlias = Literal["decision", "cost", "loss", "pair", "residual", "number"]


class Event:
    """Event that a rate counts, such as an error; or the cross-entropy of a row."""

    needs_labels: ClassVar[bool] = False
    kind: ClassVar[EventKind] = "decision"
    target: TargetClass | None = None  # Class that predictions are compared with.
    reference_model: ReferenceModel | None = None  # Model that predictions are compared with.
    first: tuple[Selector, ...] = ()  # Further restriction of the rows that are counted.
    others: tuple[Selector, ...] = ()  # Class of the rows that these are compared with.
    second: tuple[Selector, ...] = ()  # Further restriction of the latter.
    group: str = "both"  # Side of a pair that a group restricts.
    background: str = "all"  # Rows that a group is compared with: "all" or "others".
    sides: tuple[str, ...] = ()  # What tells the rate apart beside its name and `on`, as printed.

    @property
    def range(self) -> tuple[float, float]:
        """Smallest and largest value of a row."""
        return 0.0, 1.0

    def cost(self, levels: Levels) -> Bool | Float:
        """Find the decisions at which the event happens, or what each of them costs.

        The shape is (n_cells, n_classes). What depends on scores happens at no decision.
        """
        return np.zeros((levels.of_cells["label"].size, levels.classes.size), dtype=bool)

    def arguments(self) -> tuple[list[str], dict[str, str | None]]:
        """Write the arguments, without names and with names, that tell the event from others."""
        return [], {}


@dataclass(frozen=True)
class Misclassified(Event):
    """Prediction of another class than the label."""

    needs_labels: ClassVar[bool] = True

    def cost(self, levels: Levels) -> Bool:
        """Find the decisions that are wrong."""
        return ~Correct().cost(levels)


@dataclass(frozen=True)
class Correct(Event):
    """Prediction of the label."""

    needs_labels: ClassVar[bool] = True

    def cost(self, levels: Levels) -> Bool:
        """Find the decisions that are correct."""
        return np.asarray(levels.of_cells["label"][:, None] == np.arange(levels.classes.size))


@dataclass(frozen=True)
class CrossEntropy(Event):
    """The cross-entropy of a row, in nats, whose mean is the rate."""

    needs_labels: ClassVar[bool] = True
    kind: ClassVar[EventKind] = "loss"
    range = (0.0, math.inf)


@dataclass(frozen=True)
class Predicted(Event):
    """Prediction of a class, or of any class but one."""

    target: TargetClass = field()

    def cost(self, levels: Levels) -> Bool:
        """Find the decisions for the class, the same in each cell."""
        is_class = self.target.is_class(levels.classes)
        return np.broadcast_to(is_class, (levels.of_cells["label"].size, is_class.size))


@dataclass(frozen=True)
class Differs(Event):
    """Prediction that differs from the decision of another model."""

    reference_model: ReferenceModel = field()

    def cost(self, levels: Levels) -> Bool:
        """Find the decisions that differ from those of the other model."""
        decisions = levels.of_cells[self.reference_model]
        return np.asarray(decisions[:, None] != np.arange(levels.classes.size))


@dataclass(frozen=True)
class RankedAbove(Event):
    """Score above that of a random other row, half of a tie; its mean is a pair rate.

    The mean over rows U of the probability that a random row of V has the lower score is
    ``Pr(score of U > score of V) + Pr(tie) / 2``: with U the positives and V the negatives, the
    AUC.

    Parameters
    ----------
    target : Class whose score, or probability, is compared.
    first : Further restriction of U.
    others : Class of V.
    second : Further restriction of V.
    group : {"both", "first", "second"}. Side that a group restricts.
    background : {"others", "all"}. What the other side is where a group restricts one side: the
        rows outside the group, or all rows.
    """

    kind: ClassVar[EventKind] = "pair"

    target: TargetClass = field()
    first: tuple[Selector, ...] = ()
    others: tuple[Selector, ...] = ()
    second: tuple[Selector, ...] = ()
    group: Literal["both", "first", "second"] = "both"
    background: Literal["others", "all"] = "all"

    @property
    def sides(self) -> tuple[str, ...]:  # type: ignore[override]
        """Restrictions of one side, and the sides of ``cross_auc`` that are not the usual ones."""
        return (
            *(f"positives {part}" for part in self.first),
            *(f"negatives {part}" for part in self.second),
            *(["group negatives"] if self.group == "second" else []),
            *(["background all"] if self._is_of_all else []),
        )

    @property
    def _is_of_all(self) -> bool:
        """Whether one side is of a group, and the other one of all rows of a class."""
        return self.background == "all" and self.group != "both" and bool(self.others)

    def arguments(self) -> tuple[list[str], dict[str, str | None]]:
        """Write the arguments that choose the sides of a pair rate."""
        return [], {
            "positives": write_selectors(self.first),
            "negatives": write_selectors(self.second),
            "group": write_value("negatives") if self.group == "second" else None,
            "background": write_value("all") if self._is_of_all else None,
        }


def find_edges(bins: int) -> Float:
    """Find the ends of bins of equal width, shape (bins + 1,)."""
    return np.linspace(0.0, 1.0, bins + 1)


@dataclass(frozen=True)
class BinResidual(Event):
    """Label minus probability of the positive class, where the probability is in one bin.

    Parameters
    ----------
    bins : Number of bins.
    position : Position of the bin, from zero.
    """

    needs_labels: ClassVar[bool] = True
    kind: ClassVar[EventKind] = "residual"

    bins: int
    position: int

    @property
    def ends(self) -> tuple[float, float]:
        """Ends of the bin, of which the upper one is inside."""
        low, high = find_edges(self.bins)[self.position : self.position + 2].tolist()
        return low, high

    @property
    def range(self) -> tuple[float, float]:
        """Smallest and largest value of a row."""
        low, high = self.ends
        return -high, 1.0 - low

    def __str__(self) -> str:
        low, high = self.ends
        return f"{'(' if self.position else '['}{low:g}, {high:g}]"


# Rates whose printed names hold their class; the parts of quotients do not print.
RATES_OF_A_CLASS = (
    "auc", "cross_auc", "fnr", "fpr", "mean_rank", "recall", "selection_rate", "tnr", "tpr",
)  # fmt: skip


def name_with_label(name: str, label: Hashable | None) -> str:
    """Write the name of a rate with its class."""
    return name if label is None else f"{name}({to_python_scalar(label)!r})"


@dataclass(frozen=True)
class Term:
    """Weighted mean of an event over rows."""

    name: str  # Printed name, without `on`.
    event: Event
    rows: tuple[Selector, ...] = ()  # Rows of the rate itself: y = 0 of a false positive rate.
    on: tuple[Selector, ...] = ()  # The user's restriction.
    where: tuple[Selector, ...] = ()  # Rows among these on which the event counts.
    amount: Amount | None = None  # What each row counts for, beside its weight.

    @property
    def range(self) -> tuple[float, float]:
        """Smallest and largest value over all predictions."""
        low, high = self.event.range
        if self.amount is None or self.event.kind != "cost":
            return low, high
        largest = self.amount.largest  # It may be infinite, and an amount may be zero.
        return low * largest if low < 0.0 else 0.0, high * largest if high > 0.0 else 0.0

    @property
    def base(self) -> tuple[Selector, ...]:
        """Selectors of the rows that the mean is taken over."""
        return (*self.rows, *self.on, *self.event.first)

    @property
    def other_base(self) -> tuple[Selector, ...]:
        """Selectors of the rows that a pair rate compares them with."""
        return (*self.event.others, *self.on, *self.event.second)

    @property
    def selectors(self) -> tuple[Selector, ...]:
        """Selectors of all rows that the term depends on."""
        return (*self.base, *self.where, *self.event.others, *self.event.second)

    @property
    def reference_models(self) -> tuple[ReferenceModel, ...]:
        """Other models whose decisions the term uses."""
        models = [selector.reference_model for selector in self.selectors]
        return tuple(m for m in (*models, self.event.reference_model) if m is not None)

    @property
    def keys(self) -> tuple[Key | Amount, ...]:
        """Keys of the attributes and amounts that the term uses, beside the labels of all rows."""
        model = self.event.reference_model
        keys = (*(selector.key for selector in self.selectors), model, self.amount)
        return tuple(key for key in keys if key is not None)

    @property
    def data_sets(self) -> tuple[str, ...]:
        """Names of the further data sets that the term is taken over."""
        return tuple(part.name for part in self.on if isinstance(part, DataSet))

    def with_positive_class(self, label: Hashable) -> Term:
        """Name the positive class in the term, and in its printed name."""

        def name_class(part: Any) -> Any:
            is_position = isinstance(part, ClassPosition)
            return Label(label, excluded=part.index == 0) if is_position else part

        event = self.event
        if isinstance(event, Predicted):
            event = Predicted(name_class(event.target))
        elif isinstance(event, RankedAbove):
            others = tuple(map(name_class, event.others))
            event = replace(event, target=name_class(event.target), others=others)
        rows, on, where = (tuple(map(name_class, s)) for s in (self.rows, self.on, self.where))
        is_named = (event, rows) != (self.event, self.rows) and self.name in RATES_OF_A_CLASS
        name = name_with_label(self.name, label) if is_named else self.name
        return Term(name, event, rows, on, where, self.amount)

    def to_python(self, name: str, normalize: str | None) -> str:
        """Write the call of a function `name` that makes the term, or a quotient of such terms."""
        target = self.event.target
        labels = [target or (*(self.where or self.rows), None)[0]]
        if name == "confusion":  # The true class and the predicted one.
            labels = [*(self.where or self.rows), target]
        models = {"over" if name == "wins" else "to": m.to_python() for m in self.reference_models}
        positional, named = self.event.arguments()
        rows = {
            "normalize": write_value(normalize) if normalize else None,
            "on": write_selectors(self.on),
            **(self.amount.arguments() if self.amount is not None else {}),
        }
        return write_call(
            name,
            *(write_level(one.value) for one in labels if isinstance(one, Label)),
            *positional,
            **models,
            **({**rows, **named} if self.event.kind == "pair" else {**named, **rows}),
        )

    def __str__(self) -> str:
        restrictions = [*map(str, self.on), *self.event.sides]
        if self.amount is not None:
            restrictions.append(f"weight={self.amount}")
        return f"{self.name}[{', '.join(restrictions)}]" if restrictions else self.name
