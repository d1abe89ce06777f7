"""Comparisons of a rate between groups of rows."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import ClassVar, Literal, TypeAlias

import numpy as np

from gbm_constrained._typing import Float
from gbm_constrained.constraints.base import (
    Expression,
    GroupT,
    Sense,
)
from gbm_constrained.constraints.curves import LinearRow
from gbm_constrained.constraints.events import LinearCombination
from gbm_constrained.constraints.expressions import Rate
from gbm_constrained.constraints.factories import refuse_uncalled
from gbm_constrained.constraints.selectors import Columns, Missing

__all__ = ["overall"]

SmallGroups: TypeAlias = Literal["keep", "hold", "merge", "drop"]


@dataclass(frozen=True, repr=False)
class Overall:
    """The rate of all groups together, as a reference of groups."""

    def __repr__(self) -> str:
        return "overall"


overall = Overall()


@dataclass(frozen=True, repr=False, kw_only=True)
class Grouped(Expression):
    """Base of comparisons of rates between groups of rows; :func:`gap` describes the options."""

    compares_groups: ClassVar[bool] = True

    by: Columns | None  # None stands for all sensitive features.
    missing: Missing = "group"
    min_group_size: int = 30
    small_groups: SmallGroups = "keep"

    def __post_init__(self) -> None:
        for name, value, choices in (
            ("missing", self.missing, ("group", "raise")),
            ("small_groups", self.small_groups, ("keep", "hold", "merge", "drop")),
        ):
            if value not in choices:
                raise ValueError(f"{name} must be one of {list(choices)}, got {value!r}.")
        size = self.min_group_size
        if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 1:
            raise ValueError(f"min_group_size must be an integer >= 1, got {size!r}.")

    @property
    def columns(self) -> Columns:
        """Names of the columns whose groups are compared, without all sensitive features."""
        return self.by or ()

    @property
    def min_groups(self) -> int:
        """Smallest number of groups that can be compared."""
        return 1

    def functionals(
        self, groups: Sequence[GroupT]
    ) -> list[tuple[LinearCombination, GroupT | None]]:
        """List the rates of each group, those of one group after those of another."""
        return [(rate, group) for group in groups for rate in self.rates]

    @property
    def options(self) -> str:
        """Options that differ from the defaults, as printed."""
        by = self.by[0] if self.by is not None and len(self.by) == 1 else self.by
        text = "" if by is None else f", by={list(by) if isinstance(by, tuple) else by!r}"
        if self.missing != Grouped.missing:
            text += f", missing={self.missing!r}"
        if self.small_groups == "hold":
            text += ", small_groups='hold'"
        elif self.small_groups != Grouped.small_groups:
            text += f", {self.small_groups} below {self.min_group_size}"
        elif self.min_group_size != Grouped.min_group_size:
            text += f", min_group_size={self.min_group_size}"
        return text


@dataclass(frozen=True, repr=False, kw_only=True)
class GroupedRate(Grouped):
    """Base of comparisons of one rate between groups."""

    rate: Rate

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
        super().__post_init__()

    @property
    def rates(self) -> tuple[Rate, ...]:
        """The rate that is compared."""
        return (self.rate,)

    @property
    def range(self) -> tuple[float, float]:
        """Smallest and largest value of the comparison over all predictions."""
        return self.rate.range

    def __str__(self) -> str:
        return f"{type(self).__name__.lower()}({self.rate}{self.options})"


@dataclass(frozen=True, repr=False, kw_only=True)
class Each(GroupedRate):
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
class Paired(Grouped):
    """Base of comparisons of any two groups, or of each group with a reference."""

    senses: ClassVar[tuple[Sense, ...]] = ("<=",)
    compares_pairs: ClassVar[bool] = True

    reference: Hashable | tuple[Hashable, ...] | Overall | None = None

    @property
    def has_reference(self) -> bool:  # type: ignore[override]
        """Whether the last group is the reference of the others."""
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
        return 2  # The one group that there is equals its reference, whatever the decisions.

    def functionals(
        self, groups: Sequence[GroupT]
    ) -> list[tuple[LinearCombination, GroupT | None]]:
        """List the rates of each group, and those of all rows where these are the reference."""
        functionals = super().functionals(groups)
        if self.compares_with_overall:
            functionals += [(rate, None) for rate in self.rates]
        return functionals

    def n_comparisons(self, n_functionals: int) -> int:
        """Count the pairs of groups."""
        n_groups = n_functionals // len(self.rates)
        return n_groups * (n_groups - 1) // 2

    def pairs(self, n_groups: int) -> list[tuple[int, int]]:
        """List the ordered pairs of groups that are compared."""
        if not self.has_reference:
            return list(permutations(range(n_groups), 2))
        last = n_groups - 1
        return [pair for i in range(last) for pair in ((i, last), (last, i))]

    def find_gap(self, values: Float) -> float:
        """Find the largest difference of a value between groups; NaN without a known pair."""
        is_known = ~np.isnan(values)
        if self.has_reference:
            if not (is_known[-1] and is_known[:-1].any()):
                return np.nan
            return float(np.nanmax(np.abs(values[:-1] - values[-1])))
        if np.count_nonzero(is_known) < 2:
            return np.nan
        return float(np.nanmax(values) - np.nanmin(values))

    @property
    def options(self) -> str:
        """Options that differ from the defaults, as printed."""
        reference = "" if self.reference is None else f", reference={self.reference!r}"
        return super().options + reference
