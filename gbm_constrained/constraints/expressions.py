"""Expressions without groups: rates, sums of rates, and quotients of rates."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from gbm_constrained._messages import is_finite, is_number
from gbm_constrained._typing import Float
from gbm_constrained.constraints.base import (
    ROUNDING,
    Constraint,
    Expression,
    Sense,
    shorten_number,
)
from gbm_constrained.constraints.curves import LinearRow
from gbm_constrained.constraints.events import LinearCombination, Term
from gbm_constrained.constraints.factories import refuse_uncalled

__all__ = ["Rate"]


def refuse_other_amounts(rate: LinearCombination, other: LinearCombination, what: str) -> None:
    """Refuse two rates in which rows count for different amounts, unless they are costs."""
    found = [
        term.amount for one in (rate, other) for _, term in one.terms if not term.event.is_cost
    ]
    for first, second in itertools.pairwise(found):
        if first != second:
            raise TypeError(
                f"{what}: a row counts for {first or 'one'} in one rate and for {second or 'one'} "
                f"in the other. Give both the same weight=, or bound each by a constraint of its "
                f"own."
            )


@dataclass(frozen=True, repr=False)
class Rate(LinearCombination, Expression):
    """A linear combination of weighted means over rows, with the operations of rates.

    Parameters
    ----------
    terms : tuple of (coefficient, Term)
        Weighted means and their coefficients.
    constant : float, default=0
        Number that is added to the terms.

    See Also
    --------
    fpr, fnr, class_error, error_rate, selection_rate, log_loss : Functions that make rates.
    """

    is_linear: ClassVar[bool] = True
    bounds_each_rate: ClassVar[bool] = True

    @property
    def rates(self) -> tuple[Rate, ...]:
        """The rate itself."""
        return (self,)

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
        if self.is_pair and self.range == (0.0, 1.0):
            return "a probability in [0, 1]: an AUC of 80 per cent is written 0.8"
        return super().bounds_accepted

    def rows(
        self, sense: Sense, bound: float, at: Sequence[int], names: Sequence[str]
    ) -> list[LinearRow]:
        """Write a bound of the rate as a linear row."""
        sign = 1.0 if sense == "<=" else -1.0
        return [LinearRow(f"{self} {sense} {bound:g}", {at[0]: sign}, sign * bound)]

    def value(self, functionals: Float, sense: Sense) -> float:
        """Return the rate, which is the functional."""
        return float(functionals[0])

    @property
    def is_term(self) -> bool:
        """Whether the rate is one mean, and no sum or multiple."""
        return len(self.terms) == 1 and self.terms[0][0] == 1.0 and not self.constant

    def _plus(self, other: Any, factor: float) -> Rate:
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
            return NotImplemented  # type: ignore[no-any-return]  # Python tries the other operand
        refuse_other_amounts(self, other, f"{self} and {other} cannot be added")
        coefficients: dict[Term, float] = {}
        for scale, rate in ((1.0, self), (factor, other)):
            for a, term in rate.terms:
                coefficients[term] = coefficients.get(term, 0.0) + scale * a
        if len({term.event.is_pair for term in coefficients}) > 1:
            raise TypeError(
                f"{self} and {other} cannot be added: one is a pair rate, of the order of scores, "
                f"and the other is not. Bound each by a constraint of its own."
            )
        terms = tuple((a, term) for term, a in coefficients.items() if a != 0.0)
        return Rate(terms, self.constant + factor * other.constant)

    def __add__(self, other: Any) -> Rate:
        return self._plus(other, 1.0)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Rate:
        return self._plus(other, -1.0)

    def __rsub__(self, other: Any) -> Rate:
        return (-self)._plus(other, 1.0)

    def __neg__(self) -> Rate:
        return self * -1.0

    def __mul__(self, factor: Any) -> Rate:
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
        if isinstance(other, Rate) and (self.is_pair or other.is_pair):
            raise TypeError(
                f"({self}) / ({other}) is a quotient of pair rates, whose bound is none on the "
                f"order of scores: compare groups by ratio(rate, by=...), or bound differences."
            )
        if isinstance(other, Rate):
            return Quotient(_write_quotient(self, other), self, other)
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


def _write_quotient(*parts: Rate) -> str:
    """Write a quotient of rates, sums and multiples in brackets."""
    return " / ".join(str(rate) if rate.is_term else f"({rate})" for rate in parts)


@dataclass(frozen=True, repr=False)
class Quotient(Expression):
    """A rate divided by another, such as precision.

    ``numerator / denominator >= k`` compiles to the linear row ``k denominator - numerator <= 0``
    (Goh et al., "Satisfying Real-world Goals with Dataset Constraints", 2016, Appendix B). The
    bound is met when both rates are zero, as where no row is selected and precision is undefined.
    """

    is_quotient: ClassVar[bool] = True

    name: str
    numerator: Rate
    denominator: Rate

    def __post_init__(self) -> None:
        refuse_other_amounts(self.numerator, self.denominator, f"{self.name} is no quotient")
        if self.denominator.range[0] < 0.0:
            raise ValueError(
                f"{self.name} divides by a rate that can be negative: to multiply a bound through "
                f"by the denominator, that must be a sum of rates with positive coefficients."
            )
        if self.denominator.range[1] <= 0.0:
            raise ValueError(f"{self.name} divides by zero: its denominator is no rate.")

    @property
    def is_written_out(self) -> bool:
        """Whether one rate is divided by another, and no function made the quotient."""
        return self.name == _write_quotient(self.numerator, self.denominator)

    @property
    def rates(self) -> tuple[Rate, ...]:
        """The numerator and the denominator."""
        return (self.numerator, self.denominator)

    @property
    def range(self) -> tuple[float, float]:
        """Smallest and largest value of the quotient over all predictions."""
        if self.numerator.range[0] < 0.0:
            return -math.inf, math.inf
        is_fraction = (self.denominator - self.numerator).range[0] >= 0.0
        return 0.0, 1.0 if is_fraction else math.inf

    def rows(
        self, sense: Sense, bound: float, at: Sequence[int], names: Sequence[str]
    ) -> list[LinearRow]:
        """Write a bound of the quotient as a linear row, multiplied by the denominator."""
        sign = 1.0 if sense == "<=" else -1.0
        return [LinearRow(f"{self} {sense} {bound:g}", {at[0]: sign, at[1]: -sign * bound}, 0.0)]

    def value(self, functionals: Float, sense: Sense) -> float:
        """Compute the quotient, NaN where both of its parts are zero."""
        numerator, denominator = functionals
        if np.isnan(functionals).any():
            return np.nan
        if denominator > ROUNDING:
            return float(numerator / denominator)
        return float(np.copysign(np.inf, numerator)) if abs(numerator) > ROUNDING else np.nan

    @property
    def bounds_accepted(self) -> str:
        """Bounds that are accepted, in words."""
        low, high = self.range
        if high == 1.0:
            return "a fraction in [0, 1]: 90 per cent is written 0.9"
        return "finite" if low < 0.0 else "not negative"

    def __str__(self) -> str:
        return self.name
