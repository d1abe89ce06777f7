"""What a user writes: rates, their algebra, and the bounds put on them.

A rate is a weighted mean, over a set of rows, of something that depends on a row's predicted
class: an error, a selection, a change of the deployed model's decision; or its mean cross-entropy
in nats. Rates are added, subtracted and scaled, compared between groups and divided by each
other; ``<=`` and ``>=`` make a :class:`Constraint`: an immutable, hashable description that holds
no data. What the rows are is settled when the data are known, by
:func:`gbm_constrained.compiler.compile_constraints`.

>>> from gbm_constrained.rates import fnr, fpr, gap, precision, selection_rate
>>> fnr() <= 0.05
fnr <= 0.05
>>> fpr(on={"sex": "F"}) - fpr(on={"sex": "M"}) <= 0.02
fpr[sex=F] - fpr[sex=M] <= 0.02
>>> gap(selection_rate(), by="sex") <= 0.02
gap(selection_rate, by='sex') <= 0.02
>>> precision() >= 0.9
precision >= 0.9
"""

from __future__ import annotations

import hashlib
import inspect
import math
import pickle
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from gbm_constrained.tables import as_array, as_column, index_of

__all__ = [
    "Constraint",
    "Rate",
    "accuracy",
    "churn",
    "class_error",
    "confusion",
    "dataset",
    "each",
    "error_rate",
    "f1",
    "fnr",
    "fpr",
    "gap",
    "label",
    "log_loss",
    "losses",
    "overall",
    "precision",
    "ratio",
    "recall",
    "selection_rate",
    "tnr",
    "tpr",
    "wins",
]

Sense: TypeAlias = Literal["<=", ">="]
Missing: TypeAlias = Literal["group", "raise"]
SmallGroups: TypeAlias = Literal["keep", "merge", "drop"]


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


def _level(value: Any) -> Any:
    """Give a value of a column as it is known among the levels of groups."""
    return MISSING if pd.api.types.is_scalar(value) and pd.isna(value) else plain(value)


def _check_hashable(value: Any, message: str) -> None:
    try:
        hash(value)
    except TypeError:
        raise TypeError(f"{message}; got {value!r}.") from None


# --- which rows -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Label:
    """The rows whose label is `value`, or all others."""

    value: Hashable
    excluded: bool = False

    def __post_init__(self) -> None:
        _check_hashable(self.value, "A label is one value of y: write a rate for each of several")

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
        _check_hashable(self.value, message)

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


def _selectors(on: Any) -> tuple[Selector, ...]:
    if on is None:
        return ()
    if isinstance(on, tuple) and not all(isinstance(part, (bool, np.bool_)) for part in on):
        return tuple(selector for part in on for selector in _selectors(part))
    if isinstance(on, (Label, ClassPosition, Column, DataSet, Mask, Judged)):
        return (on,)
    if isinstance(on, Mapping):
        return tuple(Column(plain(name), _level(value)) for name, value in on.items())
    return (Mask.from_array(on),)


# --- what is counted --------------------------------------------------------------------------


@dataclass(frozen=True)
class Predicted:
    """A row is predicted as a class, or as any but one: a label, or the binary position."""

    target: Label | ClassPosition


@dataclass(frozen=True)
class Differs:
    """A row is predicted otherwise than another model decides."""

    deployed: Deployed


Event: TypeAlias = Predicted | Differs | Literal["error", "correct", "log_loss"]


@dataclass(frozen=True)
class Term:
    """Weighted mean of an event over rows.

    Parameters
    ----------
    name : str
        How it prints, without `on`.
    event : event
        What is counted, or the cross-entropy.
    rows : tuple of selectors
        The rows that the rate itself is taken over, as ``y = 0`` of a false positive rate.
    on : tuple of selectors
        The user's restriction.
    where : tuple of selectors
        Among those rows, the ones on which the event counts.
    """

    name: str
    event: Event
    rows: tuple[Selector, ...] = ()
    on: tuple[Selector, ...] = ()
    where: tuple[Selector, ...] = ()

    @property
    def selectors(self) -> tuple[Selector, ...]:
        """All that says which rows count."""
        return (*self.rows, *self.on, *self.where)

    def __str__(self) -> str:
        return f"{self.name}[{', '.join(map(str, self.on))}]" if self.on else self.name


def _number(value: Any) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def is_finite(number: Any) -> bool:
    """Whether a number is finite as a float."""
    try:
        return math.isfinite(float(number))
    except OverflowError:  # of an integer of some hundred digits
        return False


def _shown(number: Any) -> str:
    """Give a number as it was written, of a long one its first digits."""
    text = repr(plain(number))
    return text if len(text) <= 40 else f"{text[:37]}..."


def _refuse_uncalled(rate: Any, where: str) -> None:
    """Refuse a function that makes a rate, or its name, in the place of the rate."""
    is_function = inspect.isfunction(rate)
    name = rate.__name__ if is_function else rate
    if isinstance(name, str) and name in __all__:
        given = "a function that makes one" if is_function else "a text"
        raise TypeError(f"{where} takes a rate, and {name!r} is {given}: write {name}().")


class Expression:
    """What can be bounded. Operations that do not compile to linear rows are refused."""

    __array_ufunc__ = None  # numbers of numpy on the left leave the operation to this class

    def __le__(self, bound: Any) -> Constraint:
        return Constraint(self, "<=", bound)

    def __ge__(self, bound: Any) -> Constraint:
        return Constraint(self, ">=", bound)

    def __lt__(self, other: Any) -> Any:
        raise TypeError(
            f"{self} and {other} cannot be compared by < or >: a bound is never strict, write <= "
            f"or >=. The larger or the smaller of two rates is bounded by a rule for each."
        )

    __gt__ = __lt__

    def __abs__(self) -> Any:
        raise TypeError(
            f"abs({self}) is not linear in the predictions: bound it from both sides, by two "
            f"rules [rate <= bound, rate >= -bound]."
        )

    def _refused(self, other: Any) -> Any:
        raise TypeError(
            f"{self} and {other} cannot be combined: a {type(self).__name__.lower()} is not "
            f"linear in the predictions, and only plain rates have sums and multiples. Bound "
            f"each by itself."
        )

    __add__: Any = _refused
    __radd__: Any = _refused
    __sub__: Any = _refused
    __rsub__: Any = _refused
    __mul__: Any = _refused
    __rmul__: Any = _refused
    __truediv__: Any = _refused
    __rtruediv__: Any = _refused

    def __repr__(self) -> str:
        return str(self)


@dataclass(frozen=True, repr=False)
class Rate(Expression):
    """A linear combination of weighted means over rows.

    Parameters
    ----------
    terms : tuple of (coefficient, Term)
        Its parts.
    constant : float, default=0
        Added to them.

    See Also
    --------
    fpr, fnr, class_error, error_rate, selection_rate, log_loss : The ways to make one.
    """

    terms: tuple[tuple[float, Term], ...]
    constant: float = 0.0

    @property
    def coefficients(self) -> tuple[float, ...]:
        """What its terms are multiplied by."""
        return tuple(a for a, _ in self.terms)

    @property
    def range(self) -> tuple[float, float]:
        """Smallest and largest value that predictions can give it."""
        ends = [
            (0.0, math.copysign(math.inf, a) if term.event == "log_loss" else a)
            for a, term in self.terms
        ]
        return (
            self.constant + sum(min(end) for end in ends),
            self.constant + sum(max(end) for end in ends),
        )

    def restricted(self, *selectors: Any) -> Rate:
        """Return the same rate on fewer rows.

        Parameters
        ----------
        *selectors : label(...), dataset(...), dict, bool array, ...
            What the rows must be besides; as ``on=`` reads it.

        Returns
        -------
        Rate
        """
        more = [selector for part in selectors for selector in _selectors(part)]
        return replace(
            self, terms=tuple((a, replace(t, on=(*t.on, *more))) for a, t in self.terms)
        )

    def _plus(self, other: Any, factor: float) -> Any:
        if _number(other):
            if not is_finite(other):
                sign = "-" if factor < 0 else "+"
                raise ValueError(
                    f"({self}) {sign} {_shown(other)}: only finite numbers are added to rates."
                )
            return replace(self, constant=self.constant + factor * float(other))
        _refuse_uncalled(other, f"A sum with {self}")
        if not isinstance(other, Rate):
            return other._refused(self) if isinstance(other, Expression) else NotImplemented
        coefficients: dict[Term, float] = {}
        for scale, rate in ((1.0, self), (factor, other)):
            for a, term in rate.terms:
                coefficients[term] = coefficients.get(term, 0.0) + scale * a
        terms = tuple((a, term) for term, a in coefficients.items() if a != 0.0)
        return Rate(terms, self.constant + factor * other.constant)

    def __add__(self, other: Any) -> Any:
        return self._plus(other, 1.0)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self._plus(other, -1.0)

    def __rsub__(self, other: Any) -> Any:
        return (-self)._plus(other, 1.0)

    def __neg__(self) -> Rate:
        negative: Rate = self * -1.0
        return negative

    def __mul__(self, factor: Any) -> Any:
        if isinstance(factor, Expression):
            raise TypeError(
                f"{self} times {factor} is not linear in the predictions: only numbers multiply "
                f"rates."
            )
        if not _number(factor):
            return NotImplemented
        if not is_finite(factor):
            raise ValueError(f"({self}) * {_shown(factor)}: only finite numbers multiply rates.")
        terms = tuple((a * float(factor), term) for a, term in self.terms)
        terms = tuple((a, term) for a, term in terms if a != 0.0)
        return Rate(terms, self.constant * float(factor))

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        _refuse_uncalled(other, f"A quotient of {self}")
        if isinstance(other, Rate):
            return Quotient(f"({self}) / ({other})", self, other)
        if not _number(other):
            return NotImplemented
        if not other or not is_finite(other):
            raise ValueError(
                f"({self}) / {_shown(other)}: rates are divided by finite numbers, not by 0."
            )
        return self * (1.0 / other)

    def __rtruediv__(self, other: Any) -> Any:
        if not _number(other):
            return NotImplemented
        raise TypeError(
            f"{_shown(other)} / ({self}) is not linear in the predictions: rates divide rates, "
            f"and no numbers. Bound the rate itself."
        )

    def __le__(self, bound: Any) -> Constraint:
        return (self - bound) <= 0.0 if isinstance(bound, Rate) else super().__le__(bound)

    def __ge__(self, bound: Any) -> Constraint:
        return (self - bound) >= 0.0 if isinstance(bound, Rate) else super().__ge__(bound)

    def __str__(self) -> str:
        text = ""
        for a, term in self.terms:
            size = "" if abs(a) == 1.0 else f"{abs(a):g} * "
            sign = ("-" if a < 0 else "") if not text else (" - " if a < 0 else " + ")
            text += f"{sign}{size}{term}"
        if self.constant or not text:
            sign = " - " if self.constant < 0 else " + "
            text = text + f"{sign}{abs(self.constant):g}" if text else f"{self.constant:g}"
        return text


@dataclass(frozen=True, repr=False)
class Quotient(Expression):
    """A rate divided by another, such as precision.

    ``numerator / denominator >= k`` compiles to the linear row ``k denominator - numerator <= 0``
    (Goh et al., "Satisfying Real-world Goals with Dataset Constraints", 2016, Appendix B). It is
    met when both are zero, as where no row is selected and precision is undefined.
    """

    name: str
    numerator: Rate
    denominator: Rate

    def __post_init__(self) -> None:
        if self.denominator.range[0] < 0.0:
            raise ValueError(
                f"{self.name} divides by a rate that can be negative: to multiply a bound through "
                f"by the denominator, that must be a sum of rates with positive coefficients."
            )
        if self.denominator.range[1] <= 0.0:
            raise ValueError(f"{self.name} divides by zero: its denominator is no rate.")

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, repr=False)
class Overall:
    """The rate of all groups together, as a reference of groups."""

    def __repr__(self) -> str:
        return "overall"


overall = Overall()


@dataclass(frozen=True, repr=False, kw_only=True)
class Grouped(Expression):
    """A rate compared between groups of rows; what all comparisons share.

    Parameters
    ----------
    rate : Rate
        The rate of each group.
    by : tuple of column names, or None
        Columns whose values together make the groups; all sensitive features when None.
    missing : {"group", "raise"}
        Whether rows without a value are a group of their own, or an error.
    min_group_size : int
        Groups in which the rate is taken over fewer rows are small.
    small_groups : {"keep", "merge", "drop"}
        Small groups are kept (and warned about), merged into one group, or left out.
    """

    rate: Rate
    by: tuple[Hashable, ...] | None
    missing: Missing = "group"
    min_group_size: int = 30
    small_groups: SmallGroups = "keep"

    def __post_init__(self) -> None:
        _refuse_uncalled(self.rate, type(self).__name__.lower())
        if not isinstance(self.rate, Expression):
            raise TypeError(
                f"{type(self).__name__.lower()} compares a plain rate between groups, such as "
                f"fpr(), got {self.rate!r}."
            )
        if not isinstance(self.rate, Rate):
            raise TypeError(
                f"{type(self).__name__.lower()} compares a plain rate between groups, got "
                f"{self.rate!r}, whose groups' values are not linear in the predictions: bound "
                f"it in each group by on={{column: value}}."
            )
        for name, value, choices in (
            ("missing", self.missing, ("group", "raise")),
            ("small_groups", self.small_groups, ("keep", "merge", "drop")),
        ):
            if value not in choices:
                raise ValueError(f"{name} must be one of {list(choices)}, got {value!r}.")
        size = self.min_group_size
        if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 1:
            raise ValueError(f"min_group_size must be an integer >= 1, got {size!r}.")

    @property
    def options(self) -> str:
        """What differs from the defaults, as it prints."""
        by = self.by[0] if self.by is not None and len(self.by) == 1 else self.by
        text = "" if by is None else f", by={list(by) if isinstance(by, tuple) else by!r}"
        if self.missing != Grouped.missing:
            text += f", missing={self.missing!r}"
        if self.small_groups != Grouped.small_groups:
            text += f", {self.small_groups} below {self.min_group_size}"
        elif self.min_group_size != Grouped.min_group_size:
            text += f", min_group_size={self.min_group_size}"
        return text

    def __str__(self) -> str:
        return f"{type(self).__name__.lower()}({self.rate}{self.options})"


@dataclass(frozen=True, repr=False, kw_only=True)
class Each(Grouped):
    """A rate in every group: the largest of them under ``<=``, the smallest under ``>=``."""


@dataclass(frozen=True, repr=False, kw_only=True)
class Gap(Grouped):
    """The largest difference of a rate between groups, or between any group and a reference."""

    reference: Hashable | tuple[Hashable, ...] | Overall | None = None

    def __ge__(self, bound: Any) -> Constraint:
        raise TypeError(f"{self} >= {bound}: a gap can only be bounded from above.")

    @property
    def options(self) -> str:
        """What differs from the defaults, as it prints."""
        reference = "" if self.reference is None else f", reference={self.reference!r}"
        return super().options + reference


@dataclass(frozen=True, repr=False, kw_only=True)
class Ratio(Gap):
    """The smallest rate of a group divided by the largest, or to and from a reference.

    With a `slack`, ``>= k`` means ``rate >= k * other rate - slack``.
    """

    slack: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rate.range[0] < 0.0:
            raise ValueError(
                f"ratio({self.rate}) divides by a rate that can be negative: bound its gap."
            )
        if not _number(self.slack) or not is_finite(self.slack) or self.slack < 0.0:
            raise ValueError(f"slack must be a non-negative number, got {_shown(self.slack)}.")

    @property
    def options(self) -> str:
        """What differs from the defaults, as it prints."""
        return super().options + (f", slack={self.slack:g}" if self.slack else "")

    def __le__(self, bound: Any) -> Constraint:
        raise TypeError(f"{self} <= {bound}: a ratio of groups can only be bounded from below.")

    def __ge__(self, bound: Any) -> Constraint:
        return Constraint(self, ">=", bound)


def _range(expression: Expression) -> tuple[float, float, str]:
    """Values that a bound of an expression may have, and what to say otherwise."""
    if isinstance(expression, Ratio):
        return 0.0, 1.0, "a ratio in [0, 1]: four fifths is written 0.8"
    if isinstance(expression, Quotient):
        if expression.numerator.range[0] < 0.0:
            return -math.inf, math.inf, "finite"
        if (expression.denominator - expression.numerator).range[0] >= 0.0:
            return 0.0, 1.0, "a fraction in [0, 1]: 90 per cent is written 0.9"
        return 0.0, math.inf, "not negative"
    assert isinstance(expression, (Rate, Grouped))
    low, high = (expression if isinstance(expression, Rate) else expression.rate).range
    if isinstance(expression, Gap):
        low, high = 0.0, high - low
    if (low, high) == (0.0, 1.0):
        return low, high, "a rate in [0, 1]: 5 per cent is written 0.05"
    finite = "finite and " if math.isinf(high - low) else ""
    return low, high, f"{finite}in [{low:g}, {high:g}], the values it can have"


@dataclass(frozen=True)
class Constraint:
    """``expression <= bound`` or ``expression >= bound``.

    Parameters
    ----------
    expression : Rate, Quotient, Each, Gap or Ratio
        What is bounded.
    sense : {"<=", ">="}
        On which side.
    bound : float
        The bound: finite, and a value that the expression can have.

    Raises
    ------
    TypeError
        If `bound` is not a real number, or `expression` nothing that can be bounded.
    ValueError
        If `bound` is outside the range of the expression.
    """

    expression: Expression
    sense: Sense
    bound: float

    def __post_init__(self) -> None:
        _refuse_uncalled(self.expression, "A constraint")
        if not isinstance(self.expression, Expression):
            raise TypeError(f"A constraint bounds a rate, such as fnr(); got {self.expression!r}.")
        if not _number(self.bound):
            _refuse_uncalled(self.bound, f"A bound of {self.expression}")
            name = str(self.expression).partition("(")[0].partition("[")[0]
            raise TypeError(
                f"The bound of {self.expression} must be a number, got {self.bound!r}. Write it "
                f"as `{name}(...) {self.sense} 0.05`."
            )
        grouped = isinstance(self.expression, Gap)
        senses = ["<=", ">="]
        if grouped:
            senses = [">="] if isinstance(self.expression, Ratio) else ["<="]
        if self.sense not in senses:
            raise ValueError(
                f"The sense of a bound of {self.expression} must be one of {senses}, got "
                f"{self.sense!r}."
            )
        if not self.terms:
            raise ValueError(
                f"{self.expression} does not depend on predictions: there is nothing to bound."
            )
        if not all(
            math.isfinite(a) for rate in self.rates for a in (rate.constant, *rate.coefficients)
        ):
            raise ValueError(f"{self.expression} has a coefficient that is not finite.")
        # Zero has no sign: that of -0.0 would be shown.
        bound = float(self.bound) + 0.0 if is_finite(self.bound) else self.bound
        low, high, what = _range(self.expression)
        if self.is_loss and isinstance(self.expression, (Rate, Each)) and low == 0.0:
            low, what = math.ulp(0.0), "a positive, finite mean cross-entropy in nats"
        if not low <= bound <= high or not is_finite(bound):
            raise ValueError(
                f"The bound of {self.expression} must be {what}; got {_shown(bound)}."
            )
        object.__setattr__(self, "bound", bound)

    @property
    def rates(self) -> tuple[Rate, ...]:
        """The rates that it speaks of."""
        if isinstance(self.expression, Quotient):
            return (self.expression.numerator, self.expression.denominator)
        if isinstance(self.expression, Grouped):
            return (self.expression.rate,)
        assert isinstance(self.expression, Rate)
        return (self.expression,)

    @property
    def terms(self) -> tuple[Term, ...]:
        """The terms of its rates."""
        return tuple(term for rate in self.rates for _, term in rate.terms)

    @property
    def is_loss(self) -> bool:
        """Whether it bounds nothing but mean cross-entropies."""
        return bool(self.terms) and all(term.event == "log_loss" for term in self.terms)

    @property
    def is_of_predictions(self) -> bool:
        """Whether it bounds shares of predictions, of rows that no label selects."""
        return bool(self.terms) and all(
            isinstance(term.event, Predicted)
            and not any(isinstance(s, ABOUT_LABELS) for s in term.selectors)
            for term in self.terms
        )

    @property
    def is_of_labels(self) -> bool:
        """Whether it looks at labels and decisions of all rows, and at nothing else of them."""
        return not isinstance(self.expression, Grouped) and all(
            term.event != "log_loss"
            and not isinstance(term.event, Differs)
            and all(isinstance(s, (Label, ClassPosition)) for s in term.selectors)
            for term in self.terms
        )

    @property
    def range(self) -> tuple[float, float]:
        """Smallest and largest value that predictions can give what it bounds."""
        return _range(self.expression)[:2]

    @property
    def is_always_met(self) -> bool:
        """Whether the bound is the last value of the range, so that no decision is beyond it."""
        low, high = self.range
        return self.bound >= high if self.sense == "<=" else self.bound <= low

    @property
    def sign(self) -> float:
        """One for ``<=`` and minus one for ``>=``: what turns values so that less is better."""
        return 1.0 if self.sense == "<=" else -1.0

    @property
    def is_binary(self) -> bool:
        """Whether it takes one of two classes by its position, and needs there to be two."""
        return any(
            isinstance(part, ClassPosition)
            for term in self.terms
            for part in (getattr(term.event, "target", None), *term.selectors)
        )

    def __bool__(self) -> bool:
        raise TypeError(
            f"{self} is a constraint, neither true nor false. A rate between two bounds takes two "
            f"constraints: [rate >= 0.01, rate <= 0.05], not 0.01 <= rate <= 0.05."
        )

    def __str__(self) -> str:
        return f"{self.expression} {self.sense} {self.bound:g}"

    __repr__ = __str__


# --- the positive class -----------------------------------------------------------------------

# Rates whose name tells the class that they are about; the parts of quotients do not print.
_RATES_OF_A_CLASS = ("fnr", "fpr", "recall", "selection_rate", "tnr", "tpr")
_QUOTIENTS_OF_A_CLASS = ("f1", "precision")


def find_positive_class(
    classes: Sequence[Any] | NDArray[Any], positive: Hashable | None = None
) -> Hashable | None:
    """Find the label that rates without a label are to name as their positive class.

    Parameters
    ----------
    classes : sequence
        The sorted labels.
    positive : hashable, default=None
        The label that the user calls positive; by default the last one of two.

    Returns
    -------
    hashable or None
        The label; None where 1 is positive among 0 and 1, or True among False and True, and where
        more than two classes have no positive one.

    Raises
    ------
    TypeError
        If `positive` cannot be a label.
    ValueError
        If it is not among the classes.
    """
    known = [plain(label) for label in classes]
    if positive is not None:
        _check_hashable(positive, "positive= takes one label of y")
        if plain(positive) not in known:
            raise ValueError(
                f"positive={plain(positive)!r} is not among the classes of y: give one of {known}."
            )
        positive = known[known.index(plain(positive))]
    elif len(known) == 2:
        positive = known[1]
    return None if known == [0, 1] and positive == 1 else positive


def name_positive_class(constraint: Constraint, label: Hashable) -> Constraint:
    """Name the positive class of the rates of a constraint that name none.

    Parameters
    ----------
    constraint : Constraint
        The constraint, such as ``fnr() <= 0.05``.
    label : hashable
        The label of the positive class.

    Returns
    -------
    Constraint
        What the rates would be with the label, such as ``fnr(label) <= 0.05``.
    """
    if not constraint.is_binary:
        return constraint
    return replace(constraint, expression=_with_label(constraint.expression, plain(label)))


def resolve_positive_class(
    constraints: Sequence[Constraint],
    classes: Sequence[Any] | NDArray[Any],
    positive: Hashable | None = None,
) -> tuple[Constraint, ...]:
    """Name the positive class of rates that name none, where its name says more than ``1``.

    Parameters
    ----------
    constraints : sequence of Constraint
        The constraints.
    classes, positive
        As in :func:`find_positive_class`.

    Raises
    ------
    TypeError, ValueError
        As in :func:`find_positive_class`.
    """
    label = find_positive_class(classes, positive)
    if label is None:
        return tuple(constraints)
    return tuple(name_positive_class(constraint, label) for constraint in constraints)


def _with_label(expression: Expression, label: Hashable) -> Expression:
    """Name the positive class in an expression."""
    if isinstance(expression, Quotient):
        numerator = _rate_with_label(expression.numerator, label)
        denominator = _rate_with_label(expression.denominator, label)
        name, bracket, rows = expression.name.partition("[")
        if name not in _QUOTIENTS_OF_A_CLASS:
            quotient: Expression = numerator / denominator
            return quotient
        return Quotient(f"{_name(name, label)}{bracket}{rows}", numerator, denominator)
    if isinstance(expression, Grouped):
        return replace(expression, rate=_rate_with_label(expression.rate, label))
    assert isinstance(expression, Rate)
    return _rate_with_label(expression, label)


def _rate_with_label(rate: Rate, label: Hashable) -> Rate:
    """Name the positive class in the terms of a rate, and add up those that become equal."""
    found = Rate((), rate.constant)
    for a, term in rate.terms:
        found = found + Rate(((a, _term_with_label(term, label)),))
    return found


def _term_with_label(term: Term, label: Hashable) -> Term:
    def named(part: Any) -> Any:
        return Label(label, excluded=part.index == 0) if isinstance(part, ClassPosition) else part

    event = term.event
    event = Predicted(named(event.target)) if isinstance(event, Predicted) else event
    rows, where = tuple(map(named, term.rows)), tuple(map(named, term.where))
    is_named = (event, rows) != (term.event, term.rows) and term.name in _RATES_OF_A_CLASS
    name = _name(term.name, label) if is_named else term.name
    return Term(name, event, rows, term.on, where)


# --- the rates --------------------------------------------------------------------------------

_POSITIVE, _NEGATIVE = ClassPosition(1), ClassPosition(0)

# Parts of several docstrings, in the place of their names in braces.
_SHARED_DOCS = {
    "on": """on : label(...), dataset(...), dict, bool array or tuple, default=None
    The rows it is taken over; all training rows by default. A dict such as ``{"sex": "F"}``
    selects by columns of the sensitive features or of X, ``{"sex": None}`` the rows without a
    value; a tuple intersects. A mask, of shape (n_samples,), speaks of training rows: it has no
    value on an evaluation set.""",
    "label": """label : hashable, default=None
    The class taken as positive, against all others. By default that of the classifier's
    parameter ``positive``, else the last of two sorted labels (``classes_[1]``).""",
    "deployed": """classifier, str or array-like of shape (n_samples,)
    The other model: fitted, with a ``predict`` for the features given to ``fit``; or the name
    of a column of its decisions, in the sensitive features or X; or its decisions on the
    training rows, which do not survive cross-validation.""",
    "groups": """by : str or list of str, default=None
    Columns of the sensitive features, or of X when it is a DataFrame; several make
    intersections. All sensitive features by default.
missing : {"group", "raise"}, default="group"
    Whether rows without a value are a group of their own, or an error.
min_group_size : int, default=30
    Groups in which the rate is taken over fewer rows are small: they are named in a warning.
    Rows of weight zero do not count.
small_groups : {"keep", "merge", "drop"}, default="keep"
    Whether small groups are kept all the same, merged into one group, or left out.""",
}


def _documented(function: Callable[..., Any]) -> Callable[..., Any]:
    # From Python 3.13 on docstrings come without the indentation of the code.
    doc = inspect.cleandoc(function.__doc__ or "")
    for name, shared in _SHARED_DOCS.items():
        doc = doc.replace(f"{{{name}}}", shared)
    function.__doc__ = doc
    return function


def _rate(
    name: str,
    event: Event,
    on: Any,
    rows: tuple[Selector, ...] = (),
    where: tuple[Selector, ...] = (),
) -> Rate:
    return Rate(((1.0, Term(name, event, rows, _selectors(on), where)),))


def _classes(label: Hashable | None) -> tuple[Label | ClassPosition, Label | ClassPosition]:
    """Negative and positive rows."""
    if label is None:
        return _NEGATIVE, _POSITIVE
    return Label(plain(label), excluded=True), Label(plain(label))


def _name(name: str, label: Hashable | None) -> str:
    return name if label is None else f"{name}({plain(label)!r})"


@_documented
def error_rate(*, on: Any = None) -> Rate:
    """Weighted fraction of misclassified rows, ``P(prediction != y)``.

    Parameters
    ----------
    {on}
    """
    return _rate("error_rate", "error", on)


@_documented
def accuracy(*, on: Any = None) -> Rate:
    """Weighted fraction of rows that are classified correctly, ``P(prediction = y)``.

    Parameters
    ----------
    {on}
    """
    return _rate("accuracy", "correct", on)


@_documented
def selection_rate(label: Hashable | None = None, *, on: Any = None) -> Rate:
    """Weighted fraction of rows predicted positive (coverage), ``P(prediction = 1)``.

    Rows need no label: it can be taken over an unlabelled data set.

    Parameters
    ----------
    {label}
    {on}
    """
    return _rate(_name("selection_rate", label), Predicted(_classes(label)[1]), on)


@_documented
def tpr(label: Hashable | None = None, *, on: Any = None) -> Rate:
    """Make the true positive rate, ``P(prediction = 1 | y = 1)``.

    Parameters
    ----------
    {label}
    {on}
    """
    _, positive = _classes(label)
    return _rate(_name("tpr", label), Predicted(positive), on, (positive,))


@_documented
def recall(label: Hashable | None = None, *, on: Any = None) -> Rate:
    """Make the recall, which is the true positive rate, ``P(prediction = 1 | y = 1)``.

    Parameters
    ----------
    {label}
    {on}
    """
    _, positive = _classes(label)
    return _rate(_name("recall", label), Predicted(positive), on, (positive,))


@_documented
def fnr(label: Hashable | None = None, *, on: Any = None) -> Rate:
    """Make the miss rate (false negative rate), ``P(prediction != 1 | y = 1)``.

    Parameters
    ----------
    {label}
    {on}
    """
    return _rate(_name("fnr", label), "error", on, (_classes(label)[1],))


@_documented
def fpr(label: Hashable | None = None, *, on: Any = None) -> Rate:
    """Make the false positive rate, ``P(prediction = 1 | y != 1)``.

    Parameters
    ----------
    {label}
    {on}
    """
    negative, positive = _classes(label)
    return _rate(_name("fpr", label), Predicted(positive), on, (negative,))


@_documented
def tnr(label: Hashable | None = None, *, on: Any = None) -> Rate:
    """Make the true negative rate, ``P(prediction != 1 | y != 1) = 1 - fpr``.

    Parameters
    ----------
    {label}
    {on}
    """
    negative, _ = _classes(label)
    return _rate(_name("tnr", label), Predicted(negative), on, (negative,))


@_documented
def class_error(k: Hashable, *, on: Any = None) -> Rate:
    """Weighted fraction of the rows of class `k` that are misclassified.

    ``P(prediction != k | y = k)``, the rate of Neyman-Pearson classification; one minus the
    recall of class `k`.

    Parameters
    ----------
    k : hashable
        The class label, as it stands in ``y``.
    {on}
    """
    return _rate(_name("class_error", k), "error", on, (Label(plain(k)),))


@_documented
def confusion(
    i: Hashable, j: Hashable, *, normalize: Literal["true", "pred", "all"] = "true", on: Any = None
) -> Any:
    """Make an entry of the confusion matrix, normalised as scikit-learn's ``confusion_matrix``.

    Parameters
    ----------
    i, j : hashable
        True class and predicted class.
    normalize : {"true", "pred", "all"}, default="true"
        ``P(prediction = j | y = i)``, ``P(y = i | prediction = j)`` (a quotient), or
        ``P(y = i, prediction = j)``.
    {on}
    """
    i, j = plain(i), plain(j)
    name = f"confusion({i!r}, {j!r})"
    if normalize == "true":
        return _rate(name, Predicted(Label(j)), on, (Label(i),))
    if normalize not in ("pred", "all"):
        raise ValueError(f"normalize must be 'true', 'pred' or 'all', got {normalize!r}.")
    joint = _rate(f"{name}/all", Predicted(Label(j)), on, where=(Label(i),))
    if normalize == "all":
        return joint
    others = _rate(f"{name}/all", Predicted(Label(j)), on, where=(Label(i, excluded=True),))
    return Quotient(_printed(f"{name}/pred", on), joint, joint + others)


def _printed(name: str, on: Any) -> str:
    return str(Term(name, "error", on=_selectors(on)))


def _joint(label: Hashable | None, on: Any) -> tuple[Rate, Rate, Rate]:
    """Fractions of all rows that are true positive, false positive, false negative."""
    negative, positive = _classes(label)
    return (
        _rate("true_positives", Predicted(positive), on, where=(positive,)),
        _rate("false_positives", Predicted(positive), on, where=(negative,)),
        _rate("false_negatives", "error", on, where=(positive,)),
    )


@_documented
def precision(label: Hashable | None = None, *, on: Any = None) -> Quotient:
    """Make the precision, ``P(y = 1 | prediction = 1)``.

    Parameters
    ----------
    {label}
    {on}
    """
    true_positives, false_positives, _ = _joint(label, on)
    name = _printed(_name("precision", label), on)
    return Quotient(name, true_positives, true_positives + false_positives)


@_documented
def f1(label: Hashable | None = None, *, on: Any = None) -> Quotient:
    """Make the F1 score, ``2 TP / (2 TP + FP + FN)``.

    Parameters
    ----------
    {label}
    {on}
    """
    true_positives, false_positives, false_negatives = _joint(label, on)
    doubled = 2.0 * true_positives
    name = _printed(_name("f1", label), on)
    return Quotient(name, doubled, doubled + false_positives + false_negatives)


@_documented
def log_loss(*, on: Any = None) -> Rate:
    """Weighted mean cross-entropy, in nats: the constraint of the source paper.

    ``log_loss(on=label(k)) <= alpha`` is constraint ``l_k(x) <= alpha_k`` of [1]_, eq. (3.1), and
    ``gap(log_loss(), by=...) <= alpha`` the fairness constraint of eq. (4.1), with means in the
    place of sums.

    Parameters
    ----------
    {on}

    References
    ----------
    .. [1] Lin and Deng, "GBM-based Bregman Proximal Algorithms for Constrained Learning", 2023.
    """
    return _rate("log_loss", "log_loss", on)


@_documented
def churn(*, to: Any, on: Any = None) -> Rate:
    """Weighted fraction of rows whose decision differs from that of a deployed model.

    Rows need no label.

    Parameters
    ----------
    to : {deployed}
    {on}
    """
    return _rate("churn", Differs(Deployed.of("to", to)), on)


@_documented
def wins(*, over: Any, on: Any = None) -> Rate:
    """Weighted fraction of rows that are right here and wrong by another model.

    ``wins(over=m) / losses(to=m) >= 2`` bounds the win/loss ratio, and
    ``wins(over=m) / (wins(over=m) + losses(to=m))`` is the win/change ratio of two classes.

    Parameters
    ----------
    over : {deployed}
    {on}
    """
    return _rate("wins", "correct", on, where=(Judged(Deployed.of("over", over), right=False),))


@_documented
def losses(*, to: Any, on: Any = None) -> Rate:
    """Weighted fraction of rows that are wrong here and right by another model.

    Parameters
    ----------
    to : {deployed}
    {on}
    """
    return _rate("losses", "error", on, where=(Judged(Deployed.of("to", to), right=True),))


# --- comparisons of groups --------------------------------------------------------------------


def _reference(reference: Any) -> Any:
    if isinstance(reference, (list, tuple)):
        found: Any = tuple(map(_level, reference))
    else:
        found = None if reference is None else _level(reference)
    _check_hashable(found, "reference= must be a group's value, or a tuple of values")
    return found


def _columns(by: Any) -> tuple[Hashable, ...] | None:
    if by is None:
        return None
    if isinstance(by, (list, tuple)):
        if not by:
            raise ValueError("by= is empty: name at least one column, or leave it out.")
        columns = tuple(map(plain, by))
    else:
        columns = (plain(by),)
    _check_hashable(columns, "by= must be the name of a column, or a list of names")
    return columns


@_documented
def each(rate: Rate, *, by: str | Sequence[str] | None = None, **options: Any) -> Each:
    """Bound a rate in every group: ``each(recall(), by="region") >= 0.8``.

    Parameters
    ----------
    rate : Rate
        The rate of each group.
    {groups}
    """
    return Each(rate=rate, by=_columns(by), **options)


@_documented
def gap(
    rate: Rate,
    *,
    by: str | Sequence[str] | None = None,
    reference: Any = None,
    **options: Any,
) -> Gap:
    """Largest difference of a rate between groups, ``max - min``.

    ``gap(...) <= b`` compiles to the rows ``rate[g] - rate[h] <= b`` of every ordered pair of
    groups, or of every group and the reference.

    Parameters
    ----------
    rate : Rate
        The rate of each group.
    reference : value, tuple of values or ``overall``, default=None
        Compare every other group with this one only (a tuple names an intersection, NaN the rows
        without a value), or every group with the rate of all rows, as fairlearn does; the gap is
        then the largest absolute difference.
    {groups}
    """
    return Gap(rate=rate, by=_columns(by), reference=_reference(reference), **options)


@_documented
def ratio(
    rate: Rate,
    *,
    by: str | Sequence[str] | None = None,
    reference: Any = None,
    slack: float = 0.0,
    **options: Any,
) -> Ratio:
    """Smallest rate of a group over the largest; ``ratio(...) >= 0.8`` is the four-fifths rule.

    ``>= k`` compiles to ``k rate[h] - rate[g] <= slack`` for every ordered pair of groups, or for
    every group and the reference both ways.

    Parameters
    ----------
    rate : Rate
        The rate of each group.
    reference : value, tuple of values or ``overall``, default=None
        As in :func:`gap`.
    slack : float, default=0
        Added to the right-hand side.
    {groups}
    """
    reference = _reference(reference)
    return Ratio(rate=rate, by=_columns(by), reference=reference, slack=slack, **options)
