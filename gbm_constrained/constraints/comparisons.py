"""Comparisons of a rate between groups: gaps, ratios, and a bound for each group."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise, permutations, product
from typing import Any, ClassVar, Literal, Self, TypeAlias, get_args

import numpy as np

from gbm_constrained._messages import check_choice, check_integer, is_finite, is_number
from gbm_constrained._typing import Float
from gbm_constrained.constraints.base import (
    ROUNDING,
    CalibrationError,
    Constraint,
    CurvedRow,
    CurveFunction,
    Expression,
    GroupT,
    LinearRow,
    Part,
    Quotient,
    Rate,
    Sense,
    refuse_uncalled,
    shorten_number,
)
from gbm_constrained.constraints.selectors import MISSING, Columns, Missing, write_level
from gbm_constrained.constraints.writing import (
    NotTextError,
    write_call,
    write_list,
    write_number,
    write_sum,
    write_value,
)

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
    min_groups: ClassVar[int] = 1  # Smallest number of groups that can be compared.

    by: Columns | None  # None stands for all sensitive features.
    missing: Missing = "group"
    min_group_size: int = 30
    small_groups: SmallGroups = "keep"

    def __post_init__(self) -> None:
        check_choice("missing", self.missing, get_args(Missing))
        check_choice("small_groups", self.small_groups, get_args(SmallGroups))
        check_integer("min_group_size", self.min_group_size, 1)

    @property
    def columns(self) -> Columns:  # type: ignore[override]
        """Names of the columns whose groups are compared, without all sensitive features."""
        return self.by or ()

    @property
    def rates(self) -> tuple[Rate, ...]:
        """The rates of all values that are compared: two of each quotient."""
        return tuple(rate for _, of in self.parts for rate in of.rates)

    @property
    def is_curved(self) -> bool:  # type: ignore[override]
        """Whether a bound has curved rows."""
        return 1.0 < self.p < math.inf or not all(of.is_linear for _, of in self.parts)

    def by_part(self, items: Any) -> list[list[Any]]:
        """Collect what each part has of each group, such as two functionals of a quotient."""
        starts = np.cumsum([0, *(len(of.rates) for _, of in self.parts)])
        groups = range(0, len(items), starts[-1])
        return [
            [items[at + first : at + last] for at in groups]
            for first, last in pairwise(starts.tolist())
        ]

    def values_by_part(self, functionals: Float, sense: Sense) -> list[Float]:
        """Compute the values of the groups for each part, shape (n_groups,)."""
        return [
            np.array([of.value(one, sense) for one in groups])
            if of.is_quotient
            else of.values(np.array(groups).T)
            for (_, of), groups in zip(self.parts, self.by_part(functionals), strict=True)
        ]

    def functionals(self, groups: Sequence[GroupT]) -> list[tuple[Rate, GroupT | None]]:
        """List the rates of each group, those of one group after those of another."""
        return [(rate, group) for group in groups for rate in self.rates]

    def arguments(self) -> dict[str, str | None]:
        """Write the options of the comparison that differ from the defaults."""
        given: dict[str, str | None] = dict.fromkeys(("by", "reference", "slack"))
        if self.by is not None:
            is_single = len(self.by) == 1 and self.by[0] is not None
            names = list(map(write_value, self.by))
            given["by"] = names[0] if is_single else write_list(names)
        for name in ("missing", "min_group_size", "small_groups"):
            value = getattr(self, name)
            given[name] = None if value == getattr(Grouped, name) else write_value(value)
        return given

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
    """Base of comparisons of one value between groups, a rate or a calibration error."""

    takes: ClassVar[tuple[type[Expression], ...]] = (Rate, CalibrationError)
    p = 1.0

    rate: Rate | CalibrationError

    def __post_init__(self) -> None:
        name = type(self).__name__.lower()
        refuse_uncalled(self.rate, name)
        if not isinstance(self.rate, Expression):
            raise TypeError(
                f"{name} compares a plain rate between groups, such as fpr(), got {self.rate!r}."
            )
        if not isinstance(self.rate, self.takes):
            raise TypeError(
                f"{name} compares a plain rate between groups, got {self.rate!r}, whose groups' "
                f"values are not linear in the predictions: bound it in each group by "
                f"on={{column: value}}."
            )
        super().__post_init__()

    @property
    def parts(self) -> tuple[Part, ...]:  # type: ignore[override]
        """The one value that is compared."""
        return ((1.0, self.rate),)

    def with_positive_class(self, label: Hashable) -> Self:
        """Name the positive class in the rate."""
        return replace(self, rate=self.rate.with_positive_class(label))

    def to_python(self) -> str:
        """Write the call that makes the comparison."""
        name = type(self).__name__.lower()
        return write_call(name, self.rate.to_python(), **self.arguments())

    def __str__(self) -> str:
        return f"{type(self).__name__.lower()}({self.rate}{self.options})"


@dataclass(frozen=True, repr=False, kw_only=True)
class Each(GroupedRate):
    """A value in every group: the largest of them under ``<=``, the smallest under ``>=``."""

    @property
    def range(self) -> tuple[float, float]:
        """Smallest and largest value of a group over all predictions."""
        return self.rate.range

    @property
    def bounded_value(self) -> Expression:
        """The rate, whose bounds are accepted."""
        return self.rate

    @property
    def bounds_each_rate(self) -> bool:  # type: ignore[override]
        """Whether each row bounds one functional."""
        return not self.is_curved

    def n_comparisons(self, n_functionals: int) -> int:
        """Count the groups."""
        return n_functionals // len(self.rates)

    def rows(self, of: Constraint, at: Sequence[int], names: Sequence[str]) -> list[LinearRow]:
        """Write the bound as a linear row for each group; none if it is curved."""
        if self.is_curved:
            return []
        return [
            LinearRow(f"{name} {of.sense} {of.bound:g}", {k: of.sign}, of.sign * of.bound)
            for name, k in zip(names, at, strict=True)
        ]

    def branches(self, of: Constraint, at: Sequence[int]) -> list[CurvedRow]:
        """Write the bound as a curved row for each group."""
        return [row for own in self.by_part(at)[0] for row in self.rate.branches(of, own)]

    def value(self, functionals: Float, sense: Sense) -> float:
        """Find the value of the worst group, NaN where none is defined."""
        (found,) = self.values_by_part(functionals, sense)
        if np.isnan(found).all():
            return np.nan
        return float(np.nanmax(found) if sense == "<=" else np.nanmin(found))


@dataclass(frozen=True, repr=False, kw_only=True)
class Paired(Grouped):
    """Base of comparisons of any two groups, or of each group with a reference."""

    senses: ClassVar[tuple[Sense, ...]] = ("<=",)
    one_sided = "a gap can only be bounded from above"
    compares_pairs: ClassVar[bool] = True
    min_groups: ClassVar[int] = 2  # One group equals its reference, whatever the decisions.
    most_rows: ClassVar[float] = math.inf
    reason_and_remedy: ClassVar[str] = (
        "gaps have sums with other gaps between the same groups, and multiples by positive "
        "numbers, and no others are convex. Bound each by itself."
    )

    reference: Hashable | None = None  # A value, a tuple of values or `overall`.

    @property
    def compares_with_overall(self) -> bool:  # type: ignore[override]
        """Whether each group is compared with all rows together."""
        return isinstance(self.reference, Overall)

    @property
    def reference_group(self) -> tuple[Hashable, ...] | None:  # type: ignore[override]
        """Name of the group that all others are compared with, if there is one."""
        if self.reference is None or self.compares_with_overall:
            return None
        return self.reference if isinstance(self.reference, tuple) else (self.reference,)

    @property
    def range(self) -> tuple[float, float]:
        """Smallest and largest value that predictions can make."""
        widths = [weight * (of.range[1] - of.range[0]) for weight, of in self.parts]
        return 0.0, _norm(widths, self.p)

    def functionals(self, groups: Sequence[GroupT]) -> list[tuple[Rate, GroupT | None]]:
        """List the rates of each group, and those of all rows where these are the reference."""
        functionals = super().functionals(groups)
        if self.compares_with_overall:
            functionals += [(rate, None) for rate in self.rates]
        return functionals

    def n_comparisons(self, n_functionals: int) -> int:
        """Count the choices of pairs of groups."""
        pairs, n = math.comb(n_functionals // len(self.rates), 2), len(self.parts)
        return int(pairs * n if self.p == math.inf else min(pairs**n, self.most_rows))

    def pairs(self, n_groups: int) -> list[tuple[int, int]]:
        """List the ordered pairs of groups that are compared."""
        if self.reference is None:
            return list(permutations(range(n_groups), 2))
        last = n_groups - 1
        return [pair for i in range(last) for pair in ((i, last), (last, i))]

    def find_gap(self, values: Float) -> float:
        """Find the largest difference of a value between groups; NaN without a known pair."""
        is_known = ~np.isnan(values)
        if self.reference is not None:
            if not (is_known[-1] and is_known[:-1].any()):
                return np.nan
            return float(np.nanmax(np.abs(values[:-1] - values[-1])))
        if np.count_nonzero(is_known) < 2:
            return np.nan
        return float(np.nanmax(values) - np.nanmin(values))

    def _rows(self, at: Sequence[int]) -> list[tuple[tuple[Part, ...], list[list[int]]]]:
        """List the parts of each row, and the functionals of two groups that each part compares.

        The largest gap has rows of each part alone, and other norms have rows of all parts, one
        for each choice of an ordered pair of groups by each part.
        """
        n_groups, n_parts = len(at) // len(self.rates), len(self.parts)
        by_part, pairs = self.by_part(at), self.pairs(n_groups)
        positions = range(n_parts)
        members = [(i,) for i in positions] if self.p == math.inf else [tuple(positions)]
        n_rows = len(pairs) ** len(members[0])
        if n_rows > self.most_rows:
            raise ValueError(
                f"it compares {n_groups} groups by {n_parts} gaps, which makes {n_rows} "
                f"rows, more than {self.most_rows}: put groups of few rows together with "
                f"small_groups='merge', or bound each gap by itself."
            )
        return [
            (
                tuple(self.parts[i] for i in row),
                [[*by_part[i][g], *by_part[i][h]] for i, (g, h) in zip(row, choice, strict=True)],
            )
            for row in members
            for choice in product(pairs, repeat=len(row))
        ]

    def rows(self, of: Constraint, at: Sequence[int], names: Sequence[str]) -> list[LinearRow]:
        """Write a bound as linear rows, one for each choice of pairs; none if it is curved."""
        found: list[LinearRow] = []
        name_of = dict(zip(at, names, strict=True))
        for parts, compared in [] if self.is_curved else self._rows(at):
            coefficients: dict[int, float] = {}
            written = []
            for (weight, rate), (first, second) in zip(parts, compared, strict=True):
                coefficients[first] = coefficients.get(first, 0.0) + weight
                coefficients[second] = coefficients.get(second, 0.0) - weight
                is_sum = len(rate.terms) > 1 or rate.constant
                subtracted = f"({name_of[second]})" if is_sum else name_of[second]
                difference = f"{name_of[first]} - {subtracted}"
                written.append((weight, difference if weight == 1.0 else f"({difference})"))
            name = f"{write_sum(written)} <= {of.bound:g}"
            found.append(LinearRow(name, coefficients, of.bound))
        return found

    def branches(self, of: Constraint, at: Sequence[int]) -> list[CurvedRow]:
        """Write a bound as rows of functions, one for each choice of pairs."""
        p = 1.0 if self.p == math.inf else self.p
        return [
            CurvedRow(tuple(chain.from_iterable(compared)), CurveFunction(parts, p), of.bound)
            for parts, compared in self._rows(at)
        ]

    def value(self, functionals: Float, sense: Sense) -> float:
        """Compute the norm of the gaps, NaN where one of them is undefined."""
        values = self.values_by_part(functionals, sense)
        weights = [weight for weight, _ in self.parts]
        gaps = [w * self.find_gap(one) for w, one in zip(weights, values, strict=True)]
        return _norm(gaps, self.p)

    def as_sum(self, other: Any) -> GapNorm:
        """Write the comparison as a sum of gaps, or refuse its sum or product with `other`.

        Ratios and gaps of calibration errors have no sums.
        """
        if isinstance(self, Gap) and not self.is_difference:
            self._refuse(other)
        given = {name: getattr(self, name) for name in OPTIONS}
        return GapNorm(parts=self.parts, p=self.p, **given)

    def __add__(self, other: Any) -> GapNorm:
        first, second = self.as_sum(other), other
        if isinstance(other, Paired):
            second = other.as_sum(first)
        if not isinstance(second, GapNorm) or first.p != 1.0 or second.p != 1.0:
            first._refuse(second)
        for name in OPTIONS:
            if getattr(first, name) != getattr(second, name):
                raise TypeError(
                    f"{first} and {second} cannot be added: {name}={getattr(first, name)!r} and "
                    f"{name}={getattr(second, name)!r} differ, and a sum compares the same groups "
                    f"in each gap. Bound each by itself."
                )
        return replace(first, parts=first.parts + second.parts)

    def __mul__(self, factor: Any) -> GapNorm:
        norm = self.as_sum(factor)
        if not is_number(factor):
            norm._refuse(factor)
        return replace(norm, parts=tuple((weight * factor, of) for weight, of in norm.parts))

    __rmul__ = __mul__

    def __truediv__(self, factor: Any) -> Any:
        norm = self.as_sum(factor)
        if not is_number(factor) or not factor:
            norm._refuse(factor)
        return norm * (1.0 / factor)

    def arguments(self) -> dict[str, str | None]:
        """Write the options of the comparison, the reference among them."""
        given, reference = super().arguments(), self.reference
        if reference == MISSING:
            raise NotTextError("None as a reference is none: name the rows without a value")
        if isinstance(reference, tuple):
            values = ", ".join(map(write_level, reference))
            given["reference"] = f"({values},)" if len(reference) == 1 else f"({values})"
        elif reference is not None:
            given["reference"] = "overall" if reference == overall else write_value(reference)
        return given

    @property
    def options(self) -> str:
        """Options that differ from the defaults, as printed."""
        reference = "" if self.reference is None else f", reference={self.reference!r}"
        return super().options + reference


OPTIONS = ("by", "missing", "min_group_size", "small_groups", "reference")
MOST_ROWS = 5000  # Rows of one constraint, each of which costs time in every iteration.


@dataclass(frozen=True, repr=False, kw_only=True)
class Gap(GroupedRate, Paired):
    """The largest difference of a value between groups, or between any group and a reference."""

    @property
    def is_difference(self) -> bool:  # type: ignore[override]
        """Whether the value is a difference of functionals."""
        return not self.is_curved

    @property
    def reason_and_remedy(self) -> str:  # type: ignore[override]
        """Why other sums and multiples are refused, and what is written instead."""
        return self.rate.reason_and_remedy if self.is_curved else Paired.reason_and_remedy


@dataclass(frozen=True, repr=False, kw_only=True)
class Ratio(Gap):
    """The smallest rate of a group divided by the largest, or to and from a reference.

    With a `slack`, ``>= k`` means ``rate >= k * other rate - slack``.
    """

    senses: ClassVar[tuple[Sense, ...]] = (">=",)
    one_sided = "a ratio of groups can only be bounded from below"
    takes: ClassVar[tuple[type[Expression], ...]] = (Rate,)
    is_difference = False
    reason_and_remedy = Expression.reason_and_remedy
    range = (0.0, 1.0)
    accepted = (0.0, "a ratio in [0, 1]: four fifths is written 0.8")

    slack: float = 0.0

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

    def arguments(self) -> dict[str, str | None]:
        """Write the options of the comparison, the slack among them."""
        return super().arguments() | {"slack": write_number(self.slack) if self.slack else None}

    @property
    def options(self) -> str:
        """Options that differ from the defaults, as printed."""
        return super().options + (f", slack={self.slack:g}" if self.slack else "")

    def rows(self, of: Constraint, at: Sequence[int], names: Sequence[str]) -> list[LinearRow]:
        """Write the bound as a linear row for each ordered pair, multiplied by the divisor."""
        slack = f" - {self.slack:g}" if self.slack else ""
        return [
            LinearRow(
                f"{names[i]} >= {of.bound:g} * ({names[j]}){slack}",
                {at[i]: -1.0, at[j]: of.bound},
                self.slack,
            )
            for i, j in self.pairs(len(at))
        ]

    def value(self, functionals: Float, sense: Sense) -> float:
        """Find the largest k with ``rate >= k * other rate - slack`` for all pairs."""
        if np.isnan(self.find_gap(functionals)):
            return np.nan
        others = functionals if self.reference is None else functionals[:-1]
        low, high = np.nanmin(others), np.nanmax(others)
        pairs = [(low, high)]
        if self.reference is not None:
            pairs = [(low, functionals[-1]), (functionals[-1], high)]
        ratios = [(one + self.slack) / other if other > ROUNDING else 1.0 for one, other in pairs]
        return float(min(1.0, *ratios))


@dataclass(frozen=True, repr=False, kw_only=True)
class GapNorm(Paired):
    r"""The p-norm of weighted gaps between the same groups, :math:`(\sum_i (w_i G_i)^p)^{1/p}`.

    A sum of gaps has p = 1, and a gap of quotients is the norm of one gap. Norms of gaps of rates
    are convex. For p of one and infinity their bounds are linear rows, one for each choice of a
    pair of groups by each gap. Other bounds are curved rows.

    Parameters
    ----------
    parts : tuple of (float, Rate or Quotient)
        Weight and value of each gap.
    p : float, default=1
        Order of the norm, one or more; infinity is the largest gap.
    """

    most_rows: ClassVar[float] = MOST_ROWS

    parts: tuple[tuple[float, Rate | Quotient], ...]
    p: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_number(self.p) or not self.p >= 1.0:
            raise ValueError(
                f"p must be a number >= 1, or numpy.inf, for no other power is a norm; got "
                f"{self.p!r}."
            )
        object.__setattr__(self, "p", float(self.p))
        if not self.parts:
            raise ValueError("rates= is empty: name at least one rate, such as [fpr(), tpr()].")
        for weight, of in self.parts:
            refuse_uncalled(of, "gap_norm")
            if not isinstance(of, (Rate, Quotient)):
                raise TypeError(f"rates= takes rates such as [fpr(), tpr()], got {of!r}.")
            if not is_number(weight) or not is_finite(weight) or weight <= 0.0:
                raise ValueError(
                    f"{shorten_number(weight)} * gap({of}): only positive finite numbers multiply "
                    f"gaps, which no other multiple bounds from above."
                )
            if any(not rate.kinds.isdisjoint({"pair", "loss"}) for rate in of.rates):
                raise TypeError(
                    f"gap({of}) is about scores, and sums and norms are of gaps of decisions: "
                    f"bound it by a constraint of its own."
                )

    def with_positive_class(self, label: Hashable) -> GapNorm:
        """Name the positive class in the rates of all gaps."""
        parts = tuple((weight, of.with_positive_class(label)) for weight, of in self.parts)
        return replace(self, parts=parts)

    def to_python(self) -> str:
        """Write the sum of gaps, or the norm of them."""
        given = self.arguments()
        rates = [(weight, of.to_python()) for weight, of in self.parts]
        if self.p == 1.0:
            gaps = [(weight, write_call("gap", rate, **given)) for weight, rate in rates]
            return write_sum(gaps, write=write_number)
        p = "float('inf')" if self.p == math.inf else write_number(self.p)
        norm = write_call("gap_norm", write_list([rate for _, rate in rates]), **given, p=p)
        return write_sum([(rates[0][0], norm)], write=write_number)  # Multiplied as a whole.

    def __str__(self) -> str:
        if self.p == 1.0:
            return write_sum((weight, f"gap({of}{self.options})") for weight, of in self.parts)
        rates = [write_sum([(weight, str(of))]) for weight, of in self.parts]
        return f"gap_norm([{', '.join(rates)}]{self.options}, p={self.p:g})"


def _norm(values: Sequence[float], p: float) -> float:
    """Compute a norm of numbers that are not negative; NaN if one of them is."""
    return float(np.linalg.norm(values, p)) if not np.isnan(values).any() else np.nan
