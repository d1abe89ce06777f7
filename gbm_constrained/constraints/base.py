"""Base class of bounded expressions, and constraints on them."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any, ClassVar, Literal, NoReturn, TypeAlias, TypeVar

from numpy.typing import NDArray

from gbm_constrained._messages import is_finite, is_number
from gbm_constrained._typing import Float
from gbm_constrained.constraints.amounts import Amount
from gbm_constrained.constraints.curves import CurvedRow, LinearRow
from gbm_constrained.constraints.events import LinearCombination, Term
from gbm_constrained.constraints.factories import refuse_uncalled
from gbm_constrained.constraints.priorities import Prioritised, write_priority
from gbm_constrained.constraints.reference_models import ReferenceModel
from gbm_constrained.constraints.selectors import ClassPosition, Columns, to_python_scalar
from gbm_constrained.constraints.without_arithmetic import WithoutArithmetic

__all__ = ["Constraint"]

Sense: TypeAlias = Literal["<=", ">="]
GroupT = TypeVar("GroupT")
ROUNDING = 1e-12  # Rates closer to each other are equal, and smaller ones zero.


def shorten_number(number: Any) -> str:
    """Write a number as it was given, or the first digits of a long one."""
    text = repr(to_python_scalar(number))
    return text if len(text) <= 40 else f"{text[:37]}..."


class NotTextError(ValueError):
    """Error of a constraint that cannot be written as text."""


def write_number(value: float) -> str:
    """Write a number with all its digits."""
    return repr(float(value)).removesuffix(".0")


@singledispatch
def write_expression(expression: Any) -> str:
    """Write an expression as the Python that makes it; each kind registers a function."""
    raise NotTextError(f"a {type(expression).__name__} has no text")


@singledispatch
def write_bound(expression: Any, sense: Sense, bound: float) -> str:
    """Write a bound of an expression as Python; those that presets alone make register."""
    return f"{write_expression(expression)} {sense} {write_number(bound)}"


class Expression(WithoutArithmetic):
    """Abstract base of expressions that constraints bound.

    An expression is a function of *functionals*: its rates, or its rate in each group. A bound of
    it compiles to rows that are linear in the functionals; other operations are refused.
    """

    senses: ClassVar[tuple[Sense, ...]] = ("<=", ">=")  # Senses of the bounds it may have.
    compares_groups: ClassVar[bool] = False
    compares_pairs: ClassVar[bool] = False  # Whether a row compares two groups.
    is_difference: ClassVar[bool] = False  # Whether the value is a difference of functionals.
    is_linear: ClassVar[bool] = False  # Whether the value is that of one functional.
    is_quotient: ClassVar[bool] = False  # Whether its rows depend on decisions.
    bounds_each_rate: ClassVar[bool] = False  # Whether each row bounds one functional.
    has_linear_rows: ClassVar[bool] = True  # Whether rows state a bound of it.
    is_curved: bool = False  # Whether these rows are curved.
    compares_with_overall: bool = False  # Whether groups are compared with all rows together.
    has_reference: bool = False  # Whether the last functional is the reference of the others.

    @property
    @abstractmethod
    def rates(self) -> tuple[LinearCombination, ...]:
        """Rates that the expression is made of."""

    @property
    @abstractmethod
    def range(self) -> tuple[float, float]:
        """Smallest and largest value of the expression over all predictions."""

    @abstractmethod
    def rows(
        self, sense: Sense, bound: float, at: Sequence[int], names: Sequence[str]
    ) -> list[LinearRow]:
        """Write a bound of the expression as linear rows.

        `at` holds the positions of the functionals, and `names` their printed names.
        """

    def branches(self, sense: Sense, bound: float, at: Sequence[int]) -> list[CurvedRow]:
        """Write a bound as rows of functions, the largest of which is the value; see `rows`."""
        return []

    @abstractmethod
    def value(self, functionals: Float, sense: Sense) -> float:
        """Compute the bounded value, NaN where the expression is undefined.

        Of several values the one next to the bound counts, hence `sense`.
        """

    @property
    def columns(self) -> Columns:
        """Names of the columns whose groups are compared."""
        return ()

    @property
    def needs_classes(self) -> bool:
        """Whether the rates are unknown until the classes are known."""
        return False

    def with_classes(self, classes: Sequence[Any] | NDArray[Any]) -> Expression:
        """Name the classes, where the rates are those of all classes."""
        return self

    def write_bound(self, sense: Sense, bound: float) -> str:
        """Write a bound of the expression as it prints."""
        return f"{self} {sense} {bound:g}"

    def n_comparisons(self, n_functionals: int) -> int:
        """Count the values whose worst one is bounded."""
        return 1

    @property
    def reference_group(self) -> tuple[Hashable, ...] | None:
        """Name of the group that all others are compared with, if there is one."""
        return None

    def functionals(
        self, groups: Sequence[GroupT]
    ) -> list[tuple[LinearCombination, GroupT | None]]:
        """List the rates that the expression is a function of, each with its group."""
        return [(rate, None) for rate in self.rates]

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

    def __lt__(self, other: Any) -> NoReturn:
        raise TypeError(
            f"{self} and {other} cannot be compared by < or >: a bound is never strict, write <= "
            f"or >=. The larger or the smaller of two rates is bounded by a constraint for each."
        )

    __gt__ = __lt__

    def __abs__(self) -> NoReturn:
        raise TypeError(
            f"abs({self}) is not linear in the predictions: bound it from both sides, by two "
            f"constraints [rate <= bound, rate >= -bound]."
        )

    @property
    def reason_and_remedy(self) -> str:
        """Why the expression has no arithmetic, and what is written instead."""
        return (
            f"a {type(self).__name__.lower()} is not linear in the predictions, and only plain "
            f"rates have sums and multiples. Bound each by itself."
        )

    def __repr__(self) -> str:
        """Write the Python that makes the expression, if there is such a text."""
        try:
            return write_expression(self)
        except NotTextError:
            return str(self)


def _refuse_without_groups(expression: Expression) -> None:
    """Refuse a rate of a group beside others where nothing names the group.

    The mean rank of all rows is one half, and can be the reference of groups.
    """
    for rate in expression.rates:
        for _, term in rate.terms:
            event = term.event
            has_group = expression.compares_groups and not (
                expression.compares_with_overall and event.background == "others"
            )
            if event.needs_group and not has_group:
                raise TypeError(
                    f"{expression}: {term} compares a group with other rows, and has no value "
                    f"for all rows together: write gap({term.name}(), by=...), each(...) or "
                    f"ratio(...), and name no reference=overall."
                )


@dataclass(frozen=True)
class Constraint(Prioritised):
    """``expression <= bound`` or ``expression >= bound``.

    Parameters
    ----------
    expression : Rate, Quotient, Each, Gap or Ratio
        The bounded expression.
    sense : {"<=", ">="}
        Sense of the bound.
    bound : float
        The bound: finite, and a value that the expression can have.
    priority : int, default=1
        Its priority (:meth:`with_priority`).
    violation_weight : float, default=1.0
        Factor on its violation, beside those of constraints of the same priority.

    Raises
    ------
    TypeError
        If `bound` is not a real number, or `expression` nothing that can be bounded.
    ValueError
        If `bound` is outside the range of the expression, or a priority below 1.
    """

    expression: Expression
    sense: Sense
    bound: float

    def __post_init__(self) -> None:
        super().__post_init__()
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
        if not self.terms and not self.expression.needs_classes:
            raise ValueError(
                f"{self.expression} does not depend on predictions: there is nothing to bound."
            )
        _refuse_without_groups(self.expression)
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
    def rates(self) -> tuple[LinearCombination, ...]:
        """Rates of the expression."""
        return self.expression.rates

    @property
    def terms(self) -> tuple[Term, ...]:
        """Terms of the rates."""
        return tuple(term for rate in self.rates for _, term in rate.terms)

    @property
    def amounts(self) -> tuple[Amount, ...]:
        """What rows count for in the rates, beside their weights, where that is not one."""
        found = dict.fromkeys(amount for rate in self.rates for amount in rate.amounts)
        return tuple(amount for amount in found if amount is not None)

    @property
    def has_costs_of_amounts(self) -> bool:
        """Whether rows cost amounts, whose mean is not bounded as a rate is."""
        return any(term.event.is_cost and term.amount is not None for term in self.terms)

    @property
    def reference_models(self) -> tuple[ReferenceModel, ...]:
        """Other models whose decisions the constraint uses."""
        return tuple(model for term in self.terms for model in term.reference_models)

    @property
    def columns(self) -> tuple[Hashable, ...]:
        """Names of the columns whose groups are compared, or values select rows."""
        return (*self.expression.columns, *(c.name for term in self.terms for c in term.columns))

    @property
    def data_sets(self) -> tuple[str, ...]:
        """Names of the further data sets that the constraint uses."""
        return tuple(name for term in self.terms for name in term.data_sets)

    @property
    def n_rows_held(self) -> tuple[int, ...]:
        """Lengths of the masks, decisions and amounts of single rows that the constraint holds."""
        masks = [mask.n_samples for term in self.terms for mask in term.masks]
        masks += [amount.n_samples for amount in self.amounts if amount.is_array]
        given = [m.decisions for m in self.reference_models if m.decisions is not None]
        return (*masks, *map(len, given))

    @property
    def has_loss(self) -> bool:
        """Whether the constraint bounds a mean cross-entropy, alone or beside rates."""
        return any(term.event.is_loss for term in self.terms)

    @property
    def is_loss(self) -> bool:
        """Whether the constraint bounds nothing but mean cross-entropies."""
        return bool(self.terms) and all(term.event.is_loss for term in self.terms)

    @property
    def is_pair(self) -> bool:
        """Whether the constraint bounds pair rates, of the order of scores."""
        return bool(self.terms) and all(term.event.is_pair for term in self.terms)

    @property
    def is_of_scores(self) -> bool:
        """Whether the constraint depends on scores, and not on decisions alone."""
        events = (term.event for term in self.terms)
        return any(event.is_loss or event.is_pair or event.is_residual for event in events)

    @property
    def is_calibration(self) -> bool:
        """Whether the constraint bounds calibration errors, of probabilities."""
        return any(term.event.is_residual for term in self.terms)

    @property
    def is_of_predictions(self) -> bool:
        """Whether the constraint bounds shares of predictions, of rows that no label selects."""
        return bool(self.terms) and all(
            term.event.target is not None
            and not term.event.is_pair
            and not any(s.needs_labels for s in term.selectors)
            for term in self.terms
        )

    @property
    def is_of_labels(self) -> bool:
        """Whether the constraint uses labels and decisions of all rows, and nothing else."""
        return not self.expression.compares_groups and all(
            not self.is_of_scores and set(term.keys) <= {"label"} for term in self.terms
        )

    @property
    def range(self) -> tuple[float, float]:
        """Smallest and largest value of the expression over all predictions."""
        return self.expression.range

    @property
    def is_always_met(self) -> bool:
        """Whether the bound is the last value of the range, so that no decision violates it."""
        low, high = self.range
        return self.bound >= high if self.sense == "<=" else self.bound <= low

    @property
    def sign(self) -> float:
        """Factor after which smaller values are better: 1 for ``<=``, and -1 for ``>=``."""
        return 1.0 if self.sense == "<=" else -1.0

    @property
    def is_binary(self) -> bool:
        """Whether the constraint names one of two classes by its position."""
        return any(
            isinstance(part, ClassPosition)
            for term in self.terms
            for part in (term.event.target, *term.selectors)
        )

    def value(self, functionals: Float) -> float:
        """Compute the value of the expression from its functionals.

        Parameters
        ----------
        functionals : ndarray of shape (n_functionals,)
            Values of the functionals.
        """
        return self.expression.value(functionals, self.sense)

    def rows(self, at: Sequence[int], names: Sequence[str]) -> list[LinearRow]:
        """Write the constraint as linear rows.

        Parameters
        ----------
        at : sequence of int
            Positions of the functionals.
        names : sequence of str
            Printed names of the functionals.
        """
        return self.expression.rows(self.sense, self.bound, at, names)

    def branches(self, at: Sequence[int]) -> list[CurvedRow]:
        """Write the constraint as rows of functions.

        Parameters
        ----------
        at : sequence of int
            Positions of the functionals.
        """
        return self.expression.branches(self.sense, self.bound, at)

    def __bool__(self) -> bool:
        raise TypeError(
            f"{self} is a constraint, neither true nor false. A rate between two bounds takes two "
            f"constraints: [rate >= 0.01, rate <= 0.05], not 0.01 <= rate <= 0.05."
        )

    def __str__(self) -> str:
        return self.expression.write_bound(self.sense, self.bound)

    def __repr__(self) -> str:
        """Write the Python that makes the constraint, if there is such a text."""
        try:
            bound = write_bound(self.expression, self.sense, self.bound)
        except NotTextError:
            bound = str(self)
        return write_priority(self, bound, write_number(self.violation_weight))
