"""Comparisons of a rate between groups of rows."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np

from gbm_constrained._messages import is_finite, is_number
from gbm_constrained._typing import Float
from gbm_constrained.constraints.base import (
    ROUNDING,
    Constraint,
    Expression,
    GroupT,
    LinearRow,
    Sense,
    refuse_uncalled,
    shorten_number,
)
from gbm_constrained.constraints.events import LinearCombination
from gbm_constrained.constraints.expressions import Rate
from gbm_constrained.constraints.selectors import Columns, Missing

__all__ = ["overall"]

SmallGroups: TypeAlias = Literal["keep", "merge", "drop"]


@dataclass(frozen=True, repr=False)
class Overall:
    """The rate of all groups together, as a reference of groups."""

    def __repr__(self) -> str:
        return "overall"


overall = Overall()


@dataclass(frozen=True, repr=False, kw_only=True)
class Grouped(Expression):
    """Base of comparisons of a rate between groups of rows; :func:`gap` describes the options."""

    compares_groups: ClassVar[bool] = True

    rate: Rate
    by: Columns | None  # None stands for all sensitive features.
    missing: Missing = "group"
    min_group_size: int = 30
    small_groups: SmallGroups = "keep"

    def __post_init__(self) -> None:
        refuse_uncalled(self.rate, type(self).__name__.lower())
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
    def rates(self) -> tuple[Rate, ...]:
        """The rate that is compared."""
        return (self.rate,)

    @property
    def columns(self) -> Columns:
        """Names of the columns whose groups are compared, without all sensitive features."""
        return self.by or ()

    @property
    def range(self) -> tuple[float, float]:
        """Smallest and largest value of the comparison over all predictions."""
        return self.rate.range

    @property
    def min_groups(self) -> int:
        """Smallest number of groups that can be compared."""
        return 1

    def functionals(
        self, groups: Sequence[GroupT]
    ) -> list[tuple[LinearCombination, GroupT | None]]:
        """List the rate of each group."""
        return [(self.rate, group) for group in groups]

    @property
    def options(self) -> str:
        """Options that differ from the defaults, as printed."""
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

    bounds_each_rate: ClassVar[bool] = True

    @property
    def least_bound(self) -> float:
        """Smallest bound that is accepted, as for the rate itself."""
        return self.rate.least_bound

    @property
    def bounds_accepted(self) -> str:
        """Bounds that are accepted, in words."""
        return self.rate.bounds_accepted

    def n_comparisons(self, n_functionals: int) -> int:
        """Count the groups."""
        return n_functionals

    def rows(
        self, sense: Sense, bound: float, at: Sequence[int], names: Sequence[str]
    ) -> list[LinearRow]:
        """Write the bound as a linear row for each group."""
        sign = 1.0 if sense == "<=" else -1.0
        return [
            LinearRow(f"{name} {sense} {bound:g}", {k: sign}, sign * bound)
            for name, k in zip(names, at, strict=True)
        ]

    def value(self, functionals: Float, sense: Sense) -> float:
        """Find the rate of the worst group."""
        if np.isnan(functionals).all():
            return np.nan
        return float(np.nanmax(functionals) if sense == "<=" else np.nanmin(functionals))


@dataclass(frozen=True, repr=False, kw_only=True)
class Gap(Grouped):
    """The largest difference of a rate between groups, or between any group and a reference."""

    senses: ClassVar[tuple[Sense, ...]] = ("<=",)
    compares_pairs: ClassVar[bool] = True
    is_difference: ClassVar[bool] = True

    reference: Hashable | tuple[Hashable, ...] | Overall | None = None

    @property
    def range(self) -> tuple[float, float]:
        """Smallest and largest difference that predictions can make."""
        low, high = self.rate.range
        return 0.0, high - low

    @property
    def has_reference(self) -> bool:  # type: ignore[override]
        """Whether the last functional is the reference of the others."""
        return self.reference is not None

    @property
    def compares_with_overall(self) -> bool:  # type: ignore[override]
        """Whether each group is compared with all rows together."""
        return isinstance(self.reference, Overall)

    @property
    def reference_group(self) -> tuple[Hashable, ...] | None:
        """Name of the group that all others are compared with, if there is one."""
        if self.reference is None or self.compares_with_overall:
            return None
        return self.reference if isinstance(self.reference, tuple) else (self.reference,)

    @property
    def min_groups(self) -> int:
        """Smallest number of groups that can be compared."""
        return 1 if self.compares_with_overall else 2

    def functionals(
        self, groups: Sequence[GroupT]
    ) -> list[tuple[LinearCombination, GroupT | None]]:
        """List the rate of each group, and that of all rows where it is the reference."""
        functionals = super().functionals(groups)
        return [*functionals, (self.rate, None)] if self.compares_with_overall else functionals

    def n_comparisons(self, n_functionals: int) -> int:
        """Count the pairs of groups."""
        return n_functionals * (n_functionals - 1) // 2

    def pairs(self, n_functionals: int) -> list[tuple[int, int]]:
        """List the ordered pairs of functionals that are compared."""
        if not self.has_reference:
            return list(permutations(range(n_functionals), 2))
        last = n_functionals - 1
        return [pair for i in range(last) for pair in ((i, last), (last, i))]

    def rows(
        self, sense: Sense, bound: float, at: Sequence[int], names: Sequence[str]
    ) -> list[LinearRow]:
        """Write the bound as a linear row for each ordered pair."""
        is_sum = len(self.rate.terms) > 1 or self.rate.constant
        subtracted = [f"({name})" if is_sum else name for name in names]
        return [
            LinearRow(
                f"{names[i]} - {subtracted[j]} <= {bound:g}", {at[i]: 1.0, at[j]: -1.0}, bound
            )
            for i, j in self.pairs(len(at))
        ]

    def is_defined(self, functionals: Float) -> bool:
        """Whether at least one compared pair of functionals is known."""
        is_known = ~np.isnan(functionals)
        if self.has_reference:
            return bool(is_known[-1] and is_known[:-1].any())
        return bool(np.count_nonzero(is_known) >= 2)

    def value(self, functionals: Float, sense: Sense) -> float:
        """Find the largest difference."""
        if not self.is_defined(functionals):
            return np.nan
        if self.has_reference:
            return float(np.nanmax(np.abs(functionals[:-1] - functionals[-1])))
        return float(np.nanmax(functionals) - np.nanmin(functionals))

    def __ge__(self, bound: Any) -> Constraint:
        raise TypeError(f"{self} >= {bound}: a gap can only be bounded from above.")

    @property
    def options(self) -> str:
        """Options that differ from the defaults, as printed."""
        reference = "" if self.reference is None else f", reference={self.reference!r}"
        return super().options + reference


@dataclass(frozen=True, repr=False, kw_only=True)
class Ratio(Gap):
    """The smallest rate of a group divided by the largest, or to and from a reference.

    With a `slack`, ``>= k`` means ``rate >= k * other rate - slack``.
    """

    senses: ClassVar[tuple[Sense, ...]] = (">=",)
    is_difference: ClassVar[bool] = False

    slack: float = 0.0

    @property
    def range(self) -> tuple[float, float]:
        """Smallest and largest ratio that predictions can make."""
        return 0.0, 1.0

    @property
    def bounds_accepted(self) -> str:
        """Bounds that are accepted, in words."""
        return "a ratio in [0, 1]: four fifths is written 0.8"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rate.range[0] < 0.0:
            raise ValueError(
                f"ratio({self.rate}) divides by a rate that can be negative: bound its gap."
            )
        if not is_number(self.slack) or not is_finite(self.slack) or self.slack < 0.0:
            raise ValueError(
                f"slack must be a non-negative number, got {shorten_number(self.slack)}."
            )

    @property
    def options(self) -> str:
        """Options that differ from the defaults, as printed."""
        return super().options + (f", slack={self.slack:g}" if self.slack else "")

    def rows(
        self, sense: Sense, bound: float, at: Sequence[int], names: Sequence[str]
    ) -> list[LinearRow]:
        """Write the bound as a linear row for each ordered pair, multiplied by the divisor."""
        slack = f" - {self.slack:g}" if self.slack else ""
        return [
            LinearRow(
                f"{names[i]} >= {bound:g} * ({names[j]}){slack}",
                {at[i]: -1.0, at[j]: bound},
                self.slack,
            )
            for i, j in self.pairs(len(at))
        ]

    def value(self, functionals: Float, sense: Sense) -> float:
        """Find the largest k with ``rate >= k * other rate - slack`` for all pairs."""
        if not self.is_defined(functionals):
            return np.nan
        others = functionals[:-1] if self.has_reference else functionals
        low, high = np.nanmin(others), np.nanmax(others)
        pairs = [(low, high)]
        if self.has_reference:
            pairs = [(low, functionals[-1]), (functionals[-1], high)]
        ratios = [(one + self.slack) / other if other > ROUNDING else 1.0 for one, other in pairs]
        return float(min(1.0, *ratios))

    def __le__(self, bound: Any) -> Constraint:
        raise TypeError(f"{self} <= {bound}: a ratio of groups can only be bounded from below.")

    def __ge__(self, bound: Any) -> Constraint:
        return Constraint(self, ">=", bound)
