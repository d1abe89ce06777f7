"""Expressions that constraints bound: sums and quotients of rates, and bounds on them."""

from __future__ import annotations

import inspect
import itertools
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, update_wrapper
from numbers import Integral
from typing import Any, ClassVar, Literal, NoReturn, Self, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from gbm_constrained._docstrings import Function, document_parameters
from gbm_constrained._messages import is_finite, is_number
from gbm_constrained._typing import Float
from gbm_constrained.constraints.selectors import (
    Amount,
    BinResidual,
    ClassPosition,
    Column,
    Columns,
    EventKind,
    Mask,
    ReferenceModel,
    Selector,
    Term,
    as_selectors,
    name_with_label,
    to_python_scalar,
    write_selectors,
)
from gbm_constrained.constraints.writing import NotTextError, write_call, write_number, write_sum

__all__ = ["Constraint", "Rate"]


class WithoutArithmetic(ABC):
    """Abstract base of values whose sums, differences, multiples and quotients are refused."""

    def to_python(self) -> str:
        """Write the Python that makes the value.

        Raises
        ------
        NotTextError
            If there is no such text.
        """
        raise NotTextError(f"a {type(self).__name__} has no text")

    def __repr__(self) -> str:
        """Write the Python that makes the value, if there is such a text."""
        try:
            return self.to_python()
        except NotTextError:
            return str(self)

    __array_ufunc__ = None  # Numbers of numpy on the left leave the operation to this class.

    @property
    @abstractmethod
    def reason_and_remedy(self) -> str:
        """Why the value has no arithmetic, and what is written instead."""

    def _refuse(self, other: Any) -> NoReturn:
        raise TypeError(f"{self} and {other} cannot be combined: {self.reason_and_remedy}")

    __add__ = __radd__ = __sub__ = __rsub__ = cast(Any, _refuse)
    __mul__ = __rmul__ = __truediv__ = __rtruediv__ = cast(Any, _refuse)


def refuse_priorities(constraints: Iterable[Constraint], reason: str) -> None:
    """Refuse constraints with priorities or weights where nothing serves these.

    Parameters
    ----------
    constraints : iterable of Constraint
        The constraints.
    reason : str
        What stands in the way, as a sentence without its end, and what else can be done.

    Raises
    ------
    ValueError
        If one of them has another priority or weight than 1.
    """
    for constraint in constraints:
        if constraint.priority != 1 or constraint.violation_weight != 1.0:
            raise ValueError(f"constraints: {constraint!r} has a priority, and {reason}.")


def name_positive_class(constraint: Constraint, label: Hashable) -> Constraint:
    """Write ``fnr(label) <= 0.05`` for ``fnr() <= 0.05``, and other rates alike."""
    if not constraint.is_binary:
        return constraint
    named = constraint.expression.with_positive_class(to_python_scalar(label))
    return replace(constraint, expression=named)


Part: TypeAlias = tuple[float, Any]  # Weight and value: a rate, a quotient, a calibration error.


@dataclass(frozen=True)
class LinearRow:
    """``sum_k coefficients[k] * functionals[k] <= bound``."""

    name: str  # Printed name.
    coefficients: Mapping[int, float]  # Coefficients by the positions of their functionals.
    bound: float


@dataclass(frozen=True)
class CurveFunction:
    r"""The p-norm of weighted values or differences, :math:`(\sum_i (w_i d_i)_+^p)^{1/p}`.

    The functionals are those of one value after the other; of a difference, those of one group
    and after them those of another. For p of one the parts are added with their signs. A
    difference is zero where a value is undefined at known functionals, as a quotient of zeros is,
    so that such a row holds.

    Parameters
    ----------
    parts : tuple of (float, Expression)
        Weight and value of each part.
    p : float, default=1
        Order of the norm, finite.
    is_difference : bool, default=True
        Whether two groups are compared.
    """

    parts: tuple[tuple[float, Expression], ...] = field(hash=False)
    p: float = 1.0
    is_difference: bool = True

    @cached_property
    def _groups(self) -> list[tuple[Expression, slice]]:
        """Value of each group of each part, and the positions of its functionals."""
        values = [of for _, of in self.parts for _ in range(2 if self.is_difference else 1)]
        ends = itertools.accumulate((len(of.signs) for of in values), initial=0)
        return [
            (of, slice(*own)) for of, own in zip(values, itertools.pairwise(ends), strict=True)
        ]

    @cached_property
    def signs(self) -> tuple[int, ...]:
        """Sign of the derivative in each functional; zero where it may have either."""
        factors = itertools.cycle((1, -1) if self.is_difference else (1,))
        groups = zip(factors, self._groups, strict=False)
        return tuple(factor * sign for factor, (of, _) in groups for sign in of.signs)

    @cached_property
    def denominators(self) -> tuple[int, ...]:
        """Positions of functionals by which others are divided."""
        return tuple(own.start + k for of, own in self._groups for k in of.denominators)

    def _values(self, functionals: Float) -> Float:
        """Compute the weighted value or difference of each part."""
        found = np.array([of.values(functionals[own]) for of, own in self._groups])
        if self.is_difference:
            is_unknown = [np.isnan(functionals[own]).any(axis=0) for _, own in self._groups]
            is_known = ~np.logical_or(is_unknown[::2], is_unknown[1::2])
            found = found[::2] - found[1::2]
            found = np.where(np.isnan(found) & is_known, 0.0, found)
        return np.array([w * value for (w, _), value in zip(self.parts, found, strict=True)])

    def values(self, functionals: Float) -> Float:
        """Compute the norms of functionals of shape (n_functionals, n), shape (n,).

        A norm is NaN where a functional is.
        """
        found = self._values(functionals)
        if self.p == 1.0:
            return np.asarray(found.sum(axis=0))
        return np.asarray((np.maximum(found, 0.0) ** self.p).sum(axis=0) ** (1.0 / self.p))

    def gradient(self, functionals: Float) -> Float:
        """Compute the gradients at functionals of shape (n_functionals,) or (n_functionals, n).

        They have the same shape. For p above one a gradient is zero where no difference exceeds
        rounding.
        """
        factors = np.ones((len(self.parts), *functionals.shape[1:]))
        if self.p != 1.0:
            positive = np.maximum(self._values(functionals), 0.0)
            total = np.asarray((positive**self.p).sum(axis=0) ** (1.0 / self.p))
            is_apart = total > ROUNDING  # All groups alike: rounding has no direction.
            share = np.divide(positive, total, out=np.zeros_like(positive), where=is_apart)
            factors = share ** (self.p - 1.0)
        slopes = [of.gradient(functionals[own]) for of, own in self._groups]
        if self.is_difference:
            pairs = zip(slopes[::2], slopes[1::2], strict=True)
            both = [np.concatenate([first, -second]) for first, second in pairs]
            slopes = [np.where(np.isnan(one).any(axis=0), 0.0, one) for one in both]
        weighed = zip(factors, self.parts, slopes, strict=True)
        return np.concatenate([factor * (w * slope) for factor, (w, _), slope in weighed])

    def opposite(self, at: tuple[int, ...]) -> tuple[int, ...] | None:
        """Exchange the groups that are compared; None where none are."""
        if not self.is_difference:
            return None
        own = [at[positions] for _, positions in self._groups]
        pairs = zip(own[1::2], own[::2], strict=True)
        return tuple(itertools.chain.from_iterable(itertools.chain.from_iterable(pairs)))


@dataclass(frozen=True)
class CurvedRow:
    """``function(functionals at some positions) <= bound``."""

    at: tuple[int, ...]  # Positions of the functionals.
    function: CurveFunction
    bound: float


FACTORIES: dict[str, Factory] = {}  # By name.


def _refused(symbol: str, *, is_left: bool = True) -> Callable[[Factory, Any], NoReturn]:
    """Make an operator that names the brackets which are missing."""

    def operate(factory: Factory, other: Any) -> NoReturn:
        name, is_factory = factory.__name__, isinstance(other, Factory)
        other_name = other.__name__ if is_factory else repr(to_python_scalar(other))
        other_call = other.call if is_factory else other_name
        given = (name, other_name) if is_left else (other_name, name)
        meant = (factory.call, other_call) if is_left else (other_call, factory.call)
        never_strict = f"{symbol}=" if symbol in "<>" else symbol
        raise TypeError(
            f"{f' {symbol} '.join(given)}: {name} is a function, and what it makes has bounds and "
            f"sums: write {f' {never_strict} '.join(meant)}."
        )

    return operate


class Factory(partial[Any]):
    """A function that refuses bounds and sums of itself, as of ``fpr <= 0.02``.

    Its signature, name and docstring are those of the function that it calls.
    """

    __name__: str
    __array_ufunc__ = None  # Numbers of numpy on the left leave the operation to this class.
    __le__, __ge__, __lt__, __gt__ = map(_refused, ("<=", ">=", "<", ">"))
    __add__, __sub__, __mul__, __truediv__ = map(_refused, "+-*/")
    __radd__, __rsub__, __rmul__, __rtruediv__ = (
        _refused(symbol, is_left=False) for symbol in "+-*/"
    )

    def __init__(self, function: Callable[..., Any], /) -> None:
        update_wrapper(self, function)
        FACTORIES[self.__name__] = self

    @property
    def call(self) -> str:
        """The call that makes a rate or constraint, with the parameters that it needs."""
        required = [
            f"{p.name}=..."
            for p in inspect.signature(self.func).parameters.values()
            if p.default is p.empty and p.kind is not p.VAR_KEYWORD
        ]
        return f"{self.__name__}({', '.join(required)})"

    def __neg__(self) -> NoReturn:
        raise TypeError(f"-{self.__name__}: {self.__name__} is a function: write -{self.call}.")

    def __getitem__(self, rows: Any) -> NoReturn:
        raise TypeError(
            f"{self.__name__}[{rows!r}]: reports name the rows of a rate so. In Python write "
            f"{self.__name__}(on={{'column': value}})."
        )

    def __reduce__(self) -> str:
        return self.__name__

    def __repr__(self) -> str:
        return f"<function {self.__name__}>"


def make_factory(function: Function) -> Function:
    """Let a function refuse bounds and sums of itself."""
    return cast(Function, Factory(function))


def documented(shared: Mapping[str, str], *sections: str) -> Callable[[Function], Function]:
    """Make such functions, and add to their docstrings what they share."""
    return lambda function: make_factory(document_parameters(function, shared, *sections))


def refuse_uncalled(rate: Any, where: str) -> None:
    """Refuse a function that makes a rate, or its name, in the place of the rate."""
    is_function = isinstance(rate, Factory)
    name = rate.__name__ if is_function else rate
    if isinstance(name, str) and name in FACTORIES:
        given = "a function that makes one" if is_function else "a text"
        raise TypeError(
            f"{where} takes a rate, and {name!r} is {given}: write {FACTORIES[name].call}."
        )


Sense: TypeAlias = Literal["<=", ">="]
GroupT = TypeVar("GroupT")
ROUNDING = 1e-12  # Rates closer to each other are equal, and smaller ones zero.


def shorten_number(number: Any) -> str:
    """Write a number as it was given, or the first digits of a long one."""
    text = repr(to_python_scalar(number))
    return text if len(text) <= 40 else f"{text[:37]}..."


class Expression(WithoutArithmetic):
    """Abstract base of expressions that constraints bound.

    An expression is a function of *functionals*: its rates, or its rate in each group. A bound of
    it compiles to rows that are linear in the functionals; other operations are refused.
    """

    senses: ClassVar[tuple[Sense, ...]] = ("<=", ">=")  # Senses of the bounds it may have.
    one_sided: str = ""  # Why it has no others, as a sentence without its end.
    parts: tuple[Part, ...]  # Weights and values that are compared between groups.
    p: float  # Order of the norm of these.
    compares_groups: ClassVar[bool] = False
    compares_pairs: ClassVar[bool] = False  # Whether a row compares two groups.
    is_difference: bool = False  # Whether the value is a difference of functionals.
    is_linear: ClassVar[bool] = False  # Whether the value is that of one functional.
    is_quotient: ClassVar[bool] = False  # Whether its rows depend on decisions.
    bounds_each_rate: bool = False  # Whether each row bounds one functional.
    is_curved: bool = False  # Whether these rows are curved.
    compares_with_overall: bool = False  # Whether groups are compared with all rows together.
    reference: Hashable | None = None  # What others are compared with, the last functional.
    reference_group: tuple[Hashable, ...] | None = None  # Group that all others are compared with.
    columns: Columns = ()  # Names of the columns whose groups are compared.
    needs_classes: bool = False  # Whether the rates are unknown until the classes are known.
    denominators: tuple[int, ...] = ()  # Positions of functionals that others are divided by.

    @property
    @abstractmethod
    def rates(self) -> tuple[Rate, ...]:
        """Rates that the expression is made of."""

    @property
    @abstractmethod
    def range(self) -> tuple[float, float]:
        """Smallest and largest value of the expression over all predictions."""

    def rows(self, of: Constraint, at: Sequence[int], names: Sequence[str]) -> list[LinearRow]:
        """Write a constraint on the expression as linear rows; none if it has no such rows.

        `at` holds the positions of the functionals, and `names` their printed names.
        """
        return []

    def branches(self, of: Constraint, at: Sequence[int]) -> list[CurvedRow]:
        """Write a bound as rows of functions, the largest of which is the value; see `rows`."""
        return []

    def value(self, functionals: Float, sense: Sense) -> float:
        """Compute the bounded value, NaN where the expression is undefined.

        Of several values the one next to the bound counts, hence `sense`.
        """
        return float(self.values(functionals))

    @property
    def signs(self) -> tuple[int, ...]:
        """Sign of the derivative in each functional; zero where it may have either."""
        return (0,) * len(self.rates)

    def values(self, functionals: Float) -> Float:
        """Compute the values of functionals of shape (n_functionals, n), shape (n,).

        They are NaN where the expression is undefined. Only values that curved rows are made of
        have them, and a gradient.
        """
        raise NotImplementedError

    def gradient(self, functionals: Float) -> Float:
        """Compute the gradients at functionals of shape (n_functionals,) or (n_functionals, n).

        They have the same shape, and are NaN where the expression is undefined.
        """
        raise NotImplementedError

    def with_classes(self, classes: Sequence[Any] | NDArray[Any]) -> Expression:
        """Name the classes, where the rates are those of all classes."""
        return self

    def with_positive_class(self, label: Hashable) -> Self:
        """Name the positive class in rates that name none."""
        return self

    def write_bound(self, sense: Sense, bound: float, *, exact: bool) -> str:
        """Write a bound of the expression as it prints, or the Python that makes it."""
        return (
            f"{self.to_python()} {sense} {write_number(bound)}"
            if exact
            else f"{self} {sense} {bound:g}"
        )

    def n_comparisons(self, n_functionals: int) -> int:
        """Count the values whose worst one is bounded."""
        return 1

    def functionals(self, groups: Sequence[GroupT]) -> list[tuple[Rate, GroupT | None]]:
        """List the rates that the expression is a function of, each with its group."""
        return [(rate, None) for rate in self.rates]

    @property
    def bounded_value(self) -> Expression:
        """The expression whose bounds are accepted: itself, or the rate of each group."""
        return self

    @property
    def accepted(self) -> tuple[float, str]:
        """Smallest bound that is accepted, and all of them in words."""
        low, high = self.range
        if (low, high) == (0.0, 1.0):
            return low, "a rate in [0, 1]: 5 per cent is written 0.05"
        finite = "finite and " if math.isinf(high - low) else ""
        return low, f"{finite}in [{low:g}, {high:g}], the values it can have"

    def _bounded(self, sense: Sense, bound: Any) -> Constraint:
        """Make a constraint, unless the expression has bounds of the other side alone."""
        if isinstance(self, Rate) and isinstance(bound, Rate):
            return Constraint(self - bound, sense, 0.0)
        value = self.bounded_value
        if value.one_sided and sense not in value.senses:
            raise TypeError(f"{self} {sense} {bound}: {value.one_sided}.")
        return Constraint(self, sense, bound)

    def __le__(self, bound: Any) -> Constraint:
        return self._bounded("<=", bound)

    def __ge__(self, bound: Any) -> Constraint:
        return self._bounded(">=", bound)

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


@dataclass(frozen=True)
class Constraint:
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

    priority: int = field(default=1, kw_only=True)
    violation_weight: float = field(default=1.0, kw_only=True)
    expression: Expression
    sense: Sense
    bound: float

    def __post_init__(self) -> None:
        """Check the fields, and store numbers of Python."""
        self._check_priority()
        self._check_expression()
        # Zero has no sign: that of -0.0 would be shown.
        bound = float(self.bound) + 0.0 if is_finite(self.bound) else self.bound
        low, accepted = self.expression.bounded_value.accepted
        if not low <= bound <= self.expression.range[1] or not is_finite(bound):
            raise ValueError(
                f"The bound of {self.expression} must be {accepted}; got {shorten_number(bound)}."
            )
        object.__setattr__(self, "priority", int(self.priority))
        object.__setattr__(self, "violation_weight", float(self.violation_weight))
        object.__setattr__(self, "bound", bound)

    def _check_priority(self) -> None:
        priority, weight = self.priority, self.violation_weight
        if isinstance(priority, bool) or not isinstance(priority, (int, np.integer)):
            raise TypeError(
                f"priority must be a whole number, got {priority!r}: 1 comes first, then 2."
            )
        if priority < 1:
            raise ValueError(f"priority must be at least 1, which comes first; got {priority}.")
        if not is_number(weight):
            raise TypeError(f"weight must be a number, got {weight!r}: 1 is the default.")
        if not (weight > 0 and is_finite(weight)):
            raise ValueError(
                f"weight must be positive and finite, got {weight!r}: a constraint without "
                f"weight is left out of the list."
            )

    def _check_expression(self) -> None:
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
        senses = list(self.expression.bounded_value.senses)
        if self.sense not in senses:
            raise ValueError(
                f"The sense of a bound of {self.expression} must be one of {senses}, got "
                f"{self.sense!r}."
            )
        if not self.terms and not self.expression.needs_classes:
            raise ValueError(
                f"{self.expression} does not depend on predictions: there is nothing to bound."
            )
        for term in self.terms:
            # The mean rank of all rows is one half, and can be the reference of groups.
            has_group = self.expression.compares_groups and not (
                self.expression.compares_with_overall and term.event.background == "others"
            )
            if term.event.group != "both" and not has_group:
                raise TypeError(
                    f"{self.expression}: {term} compares a group with other rows, and has no "
                    f"value for all rows together: write gap({term.name}(), by=...), each(...) or "
                    f"ratio(...), and name no reference=overall."
                )
        coefficients = [a for rate in self.rates for a, _ in rate.terms]
        if not np.isfinite([*coefficients, *(rate.constant for rate in self.rates)]).all():
            raise ValueError(f"{self.expression} has a coefficient that is not finite.")

    def with_priority(self, priority: int, *, weight: float = 1.0) -> Self:
        """Return the same constraint with a priority.

        Where not all constraints can be met, those of priority 2 are met as well as those of
        priority 1 allow, and so on.

        Parameters
        ----------
        priority : int
            Its priority: 1 comes first, and is that of constraints without any.
        weight : float, default=1.0
            Factor on its violation, beside those of constraints of the same priority.

        Returns
        -------
        Constraint
            The constraint; the one it is called on stays as it is.

        Raises
        ------
        TypeError
            If `priority` is not a whole number, or `weight` not a number.
        ValueError
            If `priority` is below 1, or `weight` not positive and finite.

        Examples
        --------
        >>> from gbm_constrained import recall, selection_rate
        >>> [selection_rate() <= 0.05, (recall() >= 0.3).with_priority(2)]
        [selection_rate() <= 0.05, (recall() >= 0.3).with_priority(2)]
        """
        changed: dict[str, Any] = {"priority": priority, "violation_weight": weight}
        return replace(self, **changed)

    @property
    def rates(self) -> tuple[Rate, ...]:
        """Rates of the expression."""
        return self.expression.rates

    @property
    def terms(self) -> tuple[Term, ...]:
        """Terms of the rates."""
        return tuple(term for rate in self.rates for _, term in rate.terms)

    @property
    def amounts(self) -> tuple[Amount, ...]:
        """What rows count for in the rates, beside their weights, where that is not one."""
        found = dict.fromkeys(term.amount for term in self.terms)
        return tuple(amount for amount in found if amount is not None)

    @property
    def has_costs_of_amounts(self) -> bool:
        """Whether rows cost amounts, whose mean is not bounded as a rate is."""
        return any(t.event.kind == "cost" and t.amount is not None for t in self.terms)

    @property
    def reference_models(self) -> tuple[ReferenceModel, ...]:
        """Other models whose decisions the constraint uses."""
        return tuple(model for term in self.terms for model in term.reference_models)

    @property
    def selectors(self) -> tuple[Selector, ...]:
        """Selectors of all rows that the constraint depends on."""
        return tuple(selector for term in self.terms for selector in term.selectors)

    @property
    def columns(self) -> tuple[Hashable, ...]:
        """Names of the columns whose groups are compared, or values select rows."""
        selected = [part.name for part in self.selectors if isinstance(part, Column)]
        return (*self.expression.columns, *selected)

    @property
    def data_sets(self) -> tuple[str, ...]:
        """Names of the further data sets that the constraint uses."""
        return tuple(name for term in self.terms for name in term.data_sets)

    @property
    def n_rows_held(self) -> tuple[int, ...]:
        """Lengths of the masks, decisions and amounts of single rows that the constraint holds."""
        masks = [part.n_samples for part in self.selectors if isinstance(part, Mask)]
        masks += [amount.n_samples for amount in self.amounts if amount.packed]
        given = [m.decisions for m in self.reference_models if m.decisions is not None]
        return (*masks, *map(len, given))

    @property
    def kinds(self) -> set[EventKind]:
        """What its rates are means of: pairs, which are never beside others, losses, and so on."""
        return {term.event.kind for term in self.terms}

    @property
    def is_of_scores(self) -> bool:
        """Whether the constraint depends on scores, and not on decisions alone."""
        return not self.kinds.isdisjoint({"loss", "pair", "residual"})

    @property
    def is_of_predictions(self) -> bool:
        """Whether the constraint bounds shares of predictions, of rows that no label selects."""
        return bool(self.terms) and all(
            term.event.target is not None
            and term.event.kind != "pair"
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
    def is_always_met(self) -> bool:
        """Whether the bound is the last value of the range, so that no decision violates it."""
        low, high = self.expression.range
        return self.bound >= high if self.sense == "<=" else self.bound <= low

    @property
    def sign(self) -> float:
        """Factor after which smaller values are better: 1 for ``<=``, and -1 for ``>=``."""
        return 1.0 if self.sense == "<=" else -1.0

    @property
    def is_binary(self) -> bool:
        """Whether the constraint names one of two classes by its position."""
        targets = [term.event.target for term in self.terms]
        return any(isinstance(part, ClassPosition) for part in (*targets, *self.selectors))

    def value(self, functionals: Float) -> float:
        """Compute the value of the expression from its functionals.

        Parameters
        ----------
        functionals : ndarray of shape (n_functionals,)
            Values of the functionals.
        """
        return self.expression.value(functionals, self.sense)

    def __bool__(self) -> bool:
        raise TypeError(
            f"{self} is a constraint, neither true nor false. A rate between two bounds takes two "
            f"constraints: [rate >= 0.01, rate <= 0.05], not 0.01 <= rate <= 0.05."
        )

    def __str__(self) -> str:
        return self.expression.write_bound(self.sense, self.bound, exact=False)

    def __repr__(self) -> str:
        """Write the Python that makes the constraint, if there is such a text."""
        try:
            return self.to_python()
        except NotTextError:
            return self.to_python(exact=False)

    def to_python(self, *, exact: bool = True) -> str:
        """Write the Python that makes the constraint, or its short form.

        Parameters
        ----------
        exact : bool, default=True
            Whether the text makes an equal constraint; the short form is how it prints.
        """
        bound = self.expression.write_bound(self.sense, self.bound, exact=exact)
        if self.priority == 1 and self.violation_weight == 1.0:
            return bound
        weight = f", weight={write_number(self.violation_weight)}"
        given = f"{self.priority}{weight if self.violation_weight != 1.0 else ''}"
        return f"({bound}).with_priority({given})"


def refuse_other_amounts(rate: Rate, other: Rate, what: str) -> None:
    """Refuse two rates in which rows count for different amounts, unless they are costs."""
    found = [
        term.amount for one in (rate, other) for _, term in one.terms if term.event.kind != "cost"
    ]
    for first, second in itertools.pairwise(found):
        if first != second:
            raise TypeError(
                f"{what}: a row counts for {first or 'one'} in one rate and for {second or 'one'} "
                f"in the other. Give both the same weight=, or bound each by a constraint of its "
                f"own."
            )


@dataclass(frozen=True, repr=False)
class Rate(Expression):
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
    bounds_each_rate = True
    signs = (1,)

    terms: tuple[tuple[float, Term], ...]
    constant: float = 0.0

    @property
    def kinds(self) -> set[EventKind]:
        """What the rate is made of."""
        return {term.event.kind for _, term in self.terms}

    @property
    def range(self) -> tuple[float, float]:
        """Smallest and largest value over all predictions."""
        ends = [[a * end if end else 0.0 for end in term.range] for a, term in self.terms]
        return (
            self.constant + sum(min(end) for end in ends),
            self.constant + sum(max(end) for end in ends),
        )

    def restrict(self, *selectors: Any) -> Self:
        """Return the same rate on the rows of further selectors.

        Parameters
        ----------
        *selectors : label, dict, mask or tuple of these
            Selectors, as ``on=`` of a rate takes them.
        """
        more = [selector for part in selectors for selector in as_selectors(part)]
        return replace(
            self, terms=tuple((a, replace(t, on=(*t.on, *more))) for a, t in self.terms)
        )

    def __str__(self) -> str:
        return write_sum([(a, str(term)) for a, term in self.terms], self.constant)

    @property
    def rates(self) -> tuple[Rate, ...]:
        """The rate itself."""
        return (self,)

    @property
    def accepted(self) -> tuple[float, str]:
        """Smallest bound that is accepted, and all of them in words."""
        if self.kinds == {"loss"} and self.range[0] == 0.0:
            return math.ulp(0.0), "a positive, finite mean cross-entropy in nats"
        if self.kinds == {"pair"} and self.range == (0.0, 1.0):
            return 0.0, "a probability in [0, 1]: an AUC of 80 per cent is written 0.8"
        return super().accepted

    def rows(self, of: Constraint, at: Sequence[int], names: Sequence[str]) -> list[LinearRow]:
        """Write a bound of the rate as a linear row."""
        return [LinearRow(str(of), {at[0]: of.sign}, of.sign * of.bound)]

    def values(self, functionals: Float) -> Float:
        """Return the functional."""
        return np.asarray(functionals[0])

    def gradient(self, functionals: Float) -> Float:
        """Return ones."""
        return np.ones_like(functionals)

    def with_positive_class(self, label: Hashable) -> Rate:
        """Name the positive class in the terms of the rate, and add up equal terms."""
        found = Rate((), self.constant)
        for a, term in self.terms:
            found = found + Rate(((a, term.with_positive_class(label)),))
        return found

    def to_python(self) -> str:
        """Write the sum that makes the rate."""
        parts, constant = [], self.constant
        if constant > 0 and self.terms and self.terms[0][0] < 0:  # Write 1 - fpr, not -fpr + 1.
            parts, constant = [(1.0, write_number(constant))], 0.0
        for a, term in self.terms:
            name = term.name.partition("(")[0]
            if name not in FACTORIES:
                raise NotTextError(f"{name} is a part of a quotient, which has no text by itself")
            normalize = "all" if name == "confusion" and term.where else None
            parts.append((a, term.to_python(name, normalize)))
        return write_sum(parts, constant, write_number)

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
        if len({term.event.kind == "pair" for term in coefficients}) > 1:
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
        if isinstance(other, Rate) and "pair" in self.kinds | other.kinds:
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


@dataclass(frozen=True, repr=False)
class Quotient(Expression):
    """A rate divided by another, such as precision.

    ``numerator / denominator >= k`` compiles to the linear row ``k denominator - numerator <= 0``
    (Goh et al., "Satisfying Real-world Goals with Dataset Constraints", 2016, Appendix B). The
    bound is met when both rates are zero, as where no row is selected and precision is undefined.
    """

    is_quotient: ClassVar[bool] = True
    denominators = (1,)
    signs = (1, 0)  # A denominator may move a quotient anyhow.

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

    def with_positive_class(self, label: Hashable) -> Quotient:
        """Name the positive class in both rates, and in the names of F1 and precision."""
        numerator, denominator = (rate.with_positive_class(label) for rate in self.rates)
        name, bracket, rows = self.name.partition("[")
        if name in ("f1", "precision"):
            name = f"{name_with_label(name, label)}{bracket}{rows}"
        else:
            name = _write_quotient(numerator, denominator)
        return Quotient(name, numerator, denominator)

    def to_python(self) -> str:
        """Write the division that makes the quotient, or the call of its function."""
        if self.name == _write_quotient(*self.rates):
            return _write_quotient(*self.rates, write=Rate.to_python)
        name = re.split(r"[(\[]", self.name)[0]
        normalize = "pred" if name == "confusion" else None
        return self.numerator.terms[0][1].to_python(name, normalize)

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

    def rows(self, of: Constraint, at: Sequence[int], names: Sequence[str]) -> list[LinearRow]:
        """Write a bound of the quotient as a linear row, multiplied by the denominator."""
        coefficients = {at[0]: of.sign, at[1]: -of.sign * of.bound}
        return [LinearRow(str(of), coefficients, 0.0)]

    def value(self, functionals: Float, sense: Sense) -> float:
        """Compute the quotient, NaN where both of its parts are zero."""
        numerator, denominator = functionals
        if np.isnan(functionals).any():
            return np.nan
        if denominator > ROUNDING:
            return float(numerator / denominator)
        return float(np.copysign(np.inf, numerator)) if abs(numerator) > ROUNDING else np.nan

    def values(self, functionals: Float) -> Float:
        """Compute the quotients, NaN where the denominator is zero."""
        numerator, denominator = functionals
        is_known = np.abs(denominator) > ROUNDING
        return np.where(is_known, numerator / np.where(is_known, denominator, 1.0), np.nan)

    def gradient(self, functionals: Float) -> Float:
        """Compute the gradient, at a denominator of 1e-3 where it is smaller.

        It grows without bound at zero.
        """
        inverse = 1.0 / np.maximum(functionals[1], 1e-3)
        return np.array([inverse, -self.values(functionals) * inverse])

    @property
    def accepted(self) -> tuple[float, str]:
        """Smallest bound that is accepted, and all of them in words."""
        low, high = self.range
        if high == 1.0:
            return low, "a fraction in [0, 1]: 90 per cent is written 0.9"
        return low, "finite" if low < 0.0 else "not negative"

    def __str__(self) -> str:
        return self.name


def _write_quotient(*rates: Rate, write: Callable[[Rate], str] = str) -> str:
    """Write a quotient of rates, sums and multiples in brackets."""
    is_term = [len(r.terms) == 1 and r.terms[0][0] == 1.0 and not r.constant for r in rates]
    texts = zip(map(write, rates), is_term, strict=True)
    return " / ".join(text if is_single else f"({text})" for text, is_single in texts)


@dataclass(frozen=True, repr=False)
class CalibrationError(Expression):
    """Expected calibration error of the probability of the positive class.

    Parameters
    ----------
    bins : int, default=10
        Number of bins.
    on : tuple of Selector, default=()
        Restriction of the rows.
    """

    senses: ClassVar[tuple[Sense, ...]] = ("<=",)
    one_sided = (
        "a calibration error can only be bounded from above, as no model is asked for wrong "
        "probabilities"
    )
    is_curved = True
    range = (0.0, 1.0)
    reason_and_remedy = "calibration errors have no sums and multiples. Bound each by itself."

    bins: int = 10
    on: tuple[Selector, ...] = ()

    def __post_init__(self) -> None:
        is_integer = isinstance(self.bins, Integral) and not isinstance(self.bins, bool)
        # Each bin is a functional, and has rows of its own.
        if not is_integer or not 1 <= self.bins <= 100:
            raise ValueError(
                f"bins must be an integer from 1 to 100, got {self.bins!r}: 10 is usual, "
                f"and each bin needs rows."
            )
        object.__setattr__(self, "bins", int(self.bins))

    @cached_property
    def rates(self) -> tuple[Rate, ...]:
        """Mean residuals of the bins."""
        events = [BinResidual(self.bins, k) for k in range(self.bins)]
        return tuple(Rate(((1.0, Term(f"residual in {e}", e, on=self.on)),)) for e in events)

    def branches(self, of: Constraint, at: Sequence[int]) -> list[CurvedRow]:
        """Write a bound as a curved row."""
        function = CurveFunction(((1.0, self),), is_difference=False)
        return [CurvedRow(tuple(at), function, of.bound)]

    def values(self, functionals: Float) -> Float:
        """Add up the sizes of mean residuals."""
        return np.asarray(np.abs(functionals).sum(axis=0))

    def gradient(self, functionals: Float) -> Float:
        """Compute a subgradient, which is zero in mean residuals that are zero."""
        return np.sign(functionals)

    def __str__(self) -> str:
        bins = "" if self.bins == CalibrationError.bins else f"(bins={self.bins})"
        on = f"[{', '.join(map(str, self.on))}]" if self.on else ""
        return f"calibration_error{bins}{on}"

    def to_python(self) -> str:
        """Write the call that makes the error."""
        bins = None if self.bins == CalibrationError.bins else str(self.bins)
        return write_call("calibration_error", bins=bins, on=write_selectors(self.on))
