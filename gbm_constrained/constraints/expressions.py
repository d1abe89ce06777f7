"""What can be bounded: rates, quotients of rates, and the constraints that bound them."""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np

from gbm_constrained._messages import is_finite
from gbm_constrained.constraints.events import Differs, Predicted, Term
from gbm_constrained.constraints.selectors import (
    ABOUT_LABELS,
    ClassPosition,
    Label,
    as_selectors,
    plain,
)

__all__ = ["Constraint", "Rate"]

Sense: TypeAlias = Literal["<=", ">="]
RATE_NAMES: set[str] = set()  # Names of the functions that make rates and comparisons of them.


def is_number(value: Any) -> bool:
    """Whether a value is a real number, and no truth value."""
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def shorten_number(number: Any) -> str:
    """Give a number as it was written, of a long one its first digits."""
    text = repr(plain(number))
    return text if len(text) <= 40 else f"{text[:37]}..."


def refuse_uncalled(rate: Any, where: str) -> None:
    """Refuse a function that makes a rate, or its name, in the place of the rate."""
    is_function = inspect.isfunction(rate)
    name = rate.__name__ if is_function else rate
    if isinstance(name, str) and name in RATE_NAMES:
        given = "a function that makes one" if is_function else "a text"
        raise TypeError(f"{where} takes a rate, and {name!r} is {given}: write {name}().")


class Expression:
    """What can be bounded. Operations that do not compile to linear rows are refused."""

    __array_ufunc__ = None  # numbers of numpy on the left leave the operation to this class
    compares_groups: ClassVar[bool] = False
    senses: ClassVar[tuple[Sense, ...]] = ("<=", ">=")  # The sides on which it may be bounded.

    @property
    def rates(self) -> tuple[Rate, ...]:
        """The rates that the expression is made of."""
        raise NotImplementedError

    @property
    def range(self) -> tuple[float, float]:
        """Smallest and largest value that predictions can give the expression."""
        raise NotImplementedError

    @property
    def least_bound(self) -> float:
        """Smallest bound that is accepted."""
        return self.range[0]

    @property
    def bounds_accepted(self) -> str:
        """Bounds that are accepted, in words."""
        low, high = self.range
        if (low, high) == (0.0, 1.0):
            return "a rate in [0, 1]: 5 per cent is written 0.05"
        finite = "finite and " if math.isinf(high - low) else ""
        return f"{finite}in [{low:g}, {high:g}], the values it can have"

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
    def rates(self) -> tuple[Rate, ...]:
        """The rate itself."""
        return (self,)

    @property
    def is_loss(self) -> bool:
        """Whether the rate is made of nothing but mean cross-entropies."""
        return bool(self.terms) and all(term.event == "log_loss" for _, term in self.terms)

    @property
    def least_bound(self) -> float:
        """Smallest bound that is accepted: a mean cross-entropy is positive."""
        low = self.range[0]
        return math.ulp(0.0) if self.is_loss and low == 0.0 else low

    @property
    def bounds_accepted(self) -> str:
        """Bounds that are accepted, in words."""
        if self.is_loss and self.range[0] == 0.0:
            return "a positive, finite mean cross-entropy in nats"
        return super().bounds_accepted

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
        more = [selector for part in selectors for selector in as_selectors(part)]
        return replace(
            self, terms=tuple((a, replace(t, on=(*t.on, *more))) for a, t in self.terms)
        )

    def _plus(self, other: Any, factor: float) -> Any:
        if is_number(other):
            if not is_finite(other):
                sign = "-" if factor < 0 else "+"
                raise ValueError(
                    f"({self}) {sign} {shorten_number(other)}: only finite numbers are added "
                    "to rates."
                )
            return replace(self, constant=self.constant + factor * float(other))
        refuse_uncalled(other, f"A sum with {self}")
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
        if not is_number(factor):
            return NotImplemented
        if not is_finite(factor):
            raise ValueError(
                f"({self}) * {shorten_number(factor)}: only finite numbers multiply rates."
            )
        terms = tuple((a * float(factor), term) for a, term in self.terms)
        terms = tuple((a, term) for a, term in terms if a != 0.0)
        return Rate(terms, self.constant * float(factor))

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        refuse_uncalled(other, f"A quotient of {self}")
        if isinstance(other, Rate):
            return Quotient(f"({self}) / ({other})", self, other)
        if not is_number(other):
            return NotImplemented
        if not other or not is_finite(other):
            raise ValueError(
                f"({self}) / {shorten_number(other)}: rates are divided by finite numbers, "
                "not by 0."
            )
        return self * (1.0 / other)

    def __rtruediv__(self, other: Any) -> Any:
        if not is_number(other):
            return NotImplemented
        raise TypeError(
            f"{shorten_number(other)} / ({self}) is not linear in the predictions: rates divide "
            f"rates, and no numbers. Bound the rate itself."
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

    @property
    def rates(self) -> tuple[Rate, ...]:
        """The numerator and the denominator."""
        return (self.numerator, self.denominator)

    @property
    def range(self) -> tuple[float, float]:
        """Smallest and largest value that predictions can give the quotient."""
        if self.numerator.range[0] < 0.0:
            return -math.inf, math.inf
        is_fraction = (self.denominator - self.numerator).range[0] >= 0.0
        return 0.0, 1.0 if is_fraction else math.inf

    @property
    def bounds_accepted(self) -> str:
        """Bounds that are accepted, in words."""
        low, high = self.range
        if high == 1.0:
            return "a fraction in [0, 1]: 90 per cent is written 0.9"
        return "finite" if low < 0.0 else "not negative"

    def __str__(self) -> str:
        return self.name


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
        refuse_uncalled(self.expression, "A constraint")
        if not isinstance(self.expression, Expression):
            raise TypeError(f"A constraint bounds a rate, such as fnr(); got {self.expression!r}.")
        if not is_number(self.bound):
            refuse_uncalled(self.bound, f"A bound of {self.expression}")
            name = str(self.expression).partition("(")[0].partition("[")[0]
            raise TypeError(
                f"The bound of {self.expression} must be a number, got {self.bound!r}. Write it "
                f"as `{name}(...) {self.sense} 0.05`."
            )
        senses = list(self.expression.senses)
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
        low, high = self.expression.least_bound, self.expression.range[1]
        if not low <= bound <= high or not is_finite(bound):
            raise ValueError(
                f"The bound of {self.expression} must be {self.expression.bounds_accepted}; got "
                f"{shorten_number(bound)}."
            )
        object.__setattr__(self, "bound", bound)

    @property
    def rates(self) -> tuple[Rate, ...]:
        """The rates that it speaks of."""
        return self.expression.rates

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
        return not self.expression.compares_groups and all(
            term.event != "log_loss"
            and not isinstance(term.event, Differs)
            and all(isinstance(s, (Label, ClassPosition)) for s in term.selectors)
            for term in self.terms
        )

    @property
    def range(self) -> tuple[float, float]:
        """Smallest and largest value that predictions can give what it bounds."""
        return self.expression.range

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
