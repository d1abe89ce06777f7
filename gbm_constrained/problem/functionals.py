"""Rates as sums of means of cells, and the groups that constraints compare.

A rate in a group is a *functional*, ``U . predicted + V . loss + Q . pairs + S . residuals +
constant``. Constraints are functions of functionals, and so are metrics. The parts of a rate say
what it adds up; :mod:`gbm_constrained.problem.blocks` makes the tables U, V, Q and S of them.
"""

from __future__ import annotations

import math
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias, cast

import numpy as np

from gbm_constrained._findings import issue_warning
from gbm_constrained._messages import join_truncated
from gbm_constrained._typing import Bool, Codes, Float
from gbm_constrained.constraints.base import Constraint, Rate
from gbm_constrained.constraints.comparisons import Grouped, Paired
from gbm_constrained.constraints.selectors import (
    MISSING,
    Amount,
    BinResidual,
    Column,
    Columns,
    RankedAbove,
    Selector,
    Term,
)
from gbm_constrained.data.cells import Cells, View
from gbm_constrained.data.rows import Rows, normalize_text


@dataclass(frozen=True)
class Group:
    """Rows whose level of a grouping attribute is one of several.

    Parameters
    ----------
    by : Key of the attribute.
    levels : Positions of the levels.
    name : One value for each column.
    size : Number of rows that the rate is taken over, without those of weight zero. Among the
        terms of a sum of rates, the smallest number.
    quote : Function that prints texts of the name where another group prints alike: ``repr``, or
        ``ascii`` where the quoted forms look alike as well.
    """

    by: Columns
    levels: frozenset[int]
    name: tuple[Any, ...]
    size: int = 0
    quote: Callable[[object], str] | None = None

    @property
    def selectors(self) -> tuple[Column, ...]:
        """Values of columns that print the group in a rate."""
        return tuple(
            Column(c, self.quote(v) if self.quote is not None and isinstance(v, str) else v)
            for c, v in zip(self.by, self.name, strict=True)
        )

    def holds(self, view: View) -> Bool:
        """Find the cells of a view whose rows are in the group; shape (n_cells,)."""
        return np.isin(view.levels[self.by], list(self.levels))

    def __str__(self) -> str:
        return ", ".join(map(str, self.selectors))


@dataclass(frozen=True)
class SmallGroup:
    """A group in which a rate is taken over fewer rows than `min_group_size`.

    Parameters
    ----------
    rows : Number of rows that the rate is taken over in the group.
    treatment : {"kept", "merged", "left out"}.
    """

    constraint: Constraint
    group: Group
    rows: int
    treatment: str


def quote_lookalikes(groups: Sequence[Group]) -> list[Group]:
    """Quote the texts of groups that look alike, such as the number 0 and the text "0"."""
    # Two forms of one letter look alike in quotes, too.
    normalize_form = partial(unicodedata.normalize, "NFC")
    for quote, normalize in ((repr, normalize_text), (ascii, normalize_form)):
        looks = [normalize(str(group)) for group in groups]
        times = Counter(looks)
        groups = [
            replace(group, quote=quote) if times[look] > 1 else group
            for group, look in zip(groups, looks, strict=True)
        ]
    return list(groups)


def unique_names(things: Iterable[Any]) -> list[str]:
    """Name things as they print, and number those that print alike, as equally large masks do."""
    names, times = [], Counter[str]()
    for name in map(str, things):
        times[name] += 1
        names.append(name if times[name] == 1 else f"{name} #{times[name]}")
    return names


@dataclass(frozen=True, eq=False)
class MeanOfRows:
    """One mean in a rate.

    Parameters
    ----------
    coefficient : Factor of the mean.
    cells : Cells that the mean is taken over, counted over all views.
    """

    coefficient: float
    cells: Codes

    @property
    def bases(self) -> tuple[Codes, ...]:
        """Sets of cells that the mean is taken over."""
        return (self.cells,)

    def shares(self, weight: Float) -> Float:
        """Divide the coefficient among the cells by their weights; (len(cells),).

        `weight` has the weight of each cell of all views.
        """
        own = weight[self.cells]
        return np.asarray(own * (self.coefficient / own.sum()))


@dataclass(frozen=True, eq=False)
class WeightedFraction(MeanOfRows):
    """One fraction in a rate: ``coefficient * weight with event / weight inside``.

    Given the rows inside, the event is a Bernoulli variable of each row: the base of exact
    intervals and tests.

    Parameters
    ----------
    event : (len(cells), n_classes). Whether the event happens to rows of a cell that are predicted
        as a class; of a cost, its share of the largest one.
    largest_amount : Cap of the amounts that rows count for, infinite without a cap; None where
        rows count as one.
    mean_amount : Mean amount of the rows of a cost, which is a factor of the coefficient; None of
        what is no cost in amounts.
    imitates : Whether the event depends on the decisions of another model.
    """

    event: Bool | Float
    largest_amount: float | None = None
    mean_amount: float | None = None
    imitates: bool = False


@dataclass(frozen=True, eq=False)
class WeightedLoss(MeanOfRows):
    """One mean loss in a rate: ``coefficient * weighted mean of the cross-entropy inside``."""


@dataclass(frozen=True, eq=False)
class MeanResidual(MeanOfRows):
    """One mean residual of a bin in a rate: ``coefficient * mean of 1[p in bin] (y - p) inside``.

    Parameters
    ----------
    bins : Number of bins of the probability of the positive class.
    position : Position of the bin.
    """

    bins: int
    position: int


@dataclass(frozen=True, eq=False)
class WeightedPairs:
    """One pair rate: ``coefficient * weighted fraction of pairs whose first row scores higher``.

    Parameters
    ----------
    coefficient : Factor of the pair rate.
    first, second : Cells of either side, counted over all views.
    target : Index of the class whose scores are compared.
    """

    coefficient: float
    first: Codes
    second: Codes
    target: int

    @property
    def bases(self) -> tuple[Codes, ...]:
        """Sets of cells that the two sides are taken over."""
        return self.first, self.second


RatePart: TypeAlias = WeightedFraction | WeightedLoss | WeightedPairs | MeanResidual
# What a functional adds up beside its constant; None where it is undefined.
RateParts: TypeAlias = tuple[RatePart, ...] | None


class NoRowsError(ValueError):
    """Error of a rate that is taken over no rows."""


def compile_rate(
    cells: Cells,
    rate: Rate,
    views: Mapping[Amount | None, View],
    group: Group | None,
    constraint: Constraint | None,
) -> RateParts:
    """Find what a rate adds up, in a group if one is given; None where it is undefined.

    `views` are those of the amounts that rows count for. Where a constraint is given, a rate
    over no rows is refused in its name; it is undefined otherwise.
    """
    parts: list[RatePart] = []
    for a, term in rate.terms:
        view = views[term.amount]
        bases = base_sets(cells, term, view, group)
        empty = [base for base in bases if not cells.weight[view.cells][base].sum() > 0]
        if empty and constraint is not None:
            what, remedy = "no rows at all", "it rows with positive weight"
            if cells.count[view.cells][empty[0]].any():
                what = "rows whose total weight is zero (a class without weight?)"
                remedy = "those rows positive sample_weight"
            raise NoRowsError(
                f"{constraint} is taken over {what}: drop the constraint, or give {remedy}."
            )
        if empty:
            return None
        parts.append(_describe(cells, view, a, term, bases))
    return tuple(parts)


def _describe(
    cells: Cells, view: View, coefficient: float, term: Term, bases: Sequence[Bool]
) -> RatePart:
    """Describe a multiple of what a term is over some cells of a view, the sides of pairs."""
    classes, event = cells.classes, term.event
    at = [np.flatnonzero(base) + view.cells.start for base in bases]
    if isinstance(event, RankedAbove):
        target = int(event.target.is_class(classes).argmax())
        if classes.size == 2 and target == 0:  # Scores of the first are those of the second.
            at, target = at[::-1], 1
        return WeightedPairs(coefficient, at[0], at[1], target)
    if isinstance(event, BinResidual):
        if classes.size != 2:
            raise ValueError(
                f"a calibration error is that of the positive class of two, and y has "
                f"{classes.size} classes: bound log_loss(), or train a classifier of two classes "
                f"for each."
            )
        return MeanResidual(coefficient, at[0], event.bins, event.position)
    if event.kind == "loss":
        return WeightedLoss(coefficient, at[0])
    inside, happens = bases[0], event.cost(cells.levels_of(view))
    largest = None if term.amount is None else term.amount.largest
    mean = None
    if event.kind == "cost":
        unit = max(map(abs, event.range))
        happens, coefficient = happens / unit, coefficient * unit
        if term.amount is not None:  # Costs are divided by rows. Their mean has no exact test.
            plain = np.bincount(view.small_codes, cells.rows.weight, len(view))
            mean = float(cells.weight[view.cells][inside].sum() / plain[inside].sum())
            coefficient, largest = coefficient * mean, math.inf
    happens = (happens * cells.select(view, term.where)[:, None])[inside]
    imitates = event.reference_model is not None
    return WeightedFraction(coefficient, at[0], happens, largest, mean, imitates)


def base_sets(cells: Cells, term: Term, view: View, group: Group | None) -> tuple[Bool, ...]:
    """Find the cells of a view that a term is taken over: both sides of a pair rate."""
    everything = np.ones(len(view), dtype=bool)
    inside = everything if group is None else group.holds(view)
    event = term.event
    if not isinstance(event, RankedAbove):
        return (_base_set(cells, term, term.base, view, inside),)
    outside = everything if event.background == "all" else ~inside
    sides = {
        "both": (inside, inside),
        "first": (inside, outside),
        "second": (outside, inside),
    }[event.group]
    return (
        _base_set(cells, term, term.base, view, sides[0]),
        _base_set(cells, term, term.other_base, view, sides[1]),
    )


def _base_set(
    cells: Cells, term: Term, selectors: Sequence[Selector], view: View, inside: Bool
) -> Bool:
    """Find the selected cells among some cells of a view."""
    count, labels = cells.count[view.cells], cells.labels[view.cells]
    about_labels = [s for s in selectors if s.needs_labels]
    inside = inside & cells.select(view, [s for s in selectors if not s.needs_labels])
    if cells.rows.sources and not term.data_sets:
        inside &= cells.in_objective[view.cells]
    needs_labels = about_labels or term.where or term.event.needs_labels
    if needs_labels and count[inside & (labels < 0)].any():
        is_mean = term.event.kind == "number"
        other = "mean_prediction or share_above" if is_mean else "selection_rate or churn"
        raise ValueError(
            f"{term} needs labels, which rows of a data set do not have: give it as "
            f"(X, y), or bound {other} on it."
        )
    for model in term.reference_models if cells.rows.like is None else ():
        unknown = view.levels[model] == cells.classes.size
        if count[inside & unknown].any():
            raise ValueError(
                f"{term} needs the other model's decisions, each a class of y, which rows of "
                f"a data set do not have: give the model itself, or a column of them."
            )
    return inside & cells.select(view, about_labels)


SMALL = "small groups"
FEW_NAMED = 5  # Largest number of groups, and of constraints, that a warning names.
TREATMENTS = {"keep": "kept", "hold": "held", "merge": "merged", "drop": "left out"}


def columns_by(expression: Grouped, rows: Rows) -> Columns:
    """Find the columns that define the groups of an expression: by default, sensitive features."""
    if expression.by is not None:
        return expression.by
    return tuple((rows.like or rows).columns)


def check_number_of_groups(
    constraint: Constraint, by: Columns, n_groups: int, most: int = 500
) -> None:
    """Refuse a comparison of almost every row with every other.

    Each of at most 500 groups is compared with every other one.
    """
    if n_groups > most:
        raise ValueError(
            f"{constraint} compares {n_groups} groups by {', '.join(map(str, by))}, more than "
            f"{most}: cut numbers into bands, as pandas.cut does, or put groups of few "
            f"rows together with small_groups='merge'."
        )


class GroupFinder:
    """Groups of one comparison among the rows.

    Attributes
    ----------
    small : Groups of few rows that were found.
    """

    def __init__(
        self, constraint: Constraint, views: Mapping[Amount | None, View], cells: Cells
    ) -> None:
        self.constraint, self.views, self.cells = constraint, views, cells
        self.view = next(iter(views.values()))
        self.expression = cast(Grouped, constraint.expression)
        self.by = columns_by(self.expression, self.cells.rows)
        self.small: list[SmallGroup] = []

    def find(self) -> list[Group]:
        """Find the groups, the reference last, and treat small groups as the constraint says."""
        groups = self._treat_small(quote_lookalikes(self._list_groups(frozenset())), [])
        wanted = self.expression.reference_group
        reference = [g for g in groups if g.name == wanted]
        if wanted is not None and not reference:
            missing = " reference=numpy.nan is the group of the rows without a value."
            raise ValueError(
                f"{self.constraint}: reference={cast(Paired, self.expression).reference!r} is not "
                f"among the groups "
                f"{[g.name if len(self.by) > 1 else g.name[0] for g in groups]}."
                f"{missing * any(g.name == (MISSING,) for g in groups)}"
            )
        groups = [g for g in groups if g not in reference] + reference
        check_number_of_groups(self.constraint, self.by, len(groups))
        fewest = self.expression.min_groups
        if len(groups) < fewest:
            raise ValueError(
                f"{self.constraint} compares groups by {', '.join(map(str, self.by))}, of which "
                f"{len(groups)} {'is' if len(groups) == 1 else 'are'} left "
                f"({', '.join(map(str, groups)) or 'none'}): at least {fewest} are needed."
            )
        return groups

    def find_further(self, known: Sequence[Group]) -> list[Group]:
        """Add groups that the training rows do not have, of size zero, before the reference."""
        covered = frozenset[int]().union(*(group.levels for group in known))
        like = self.cells.rows.like
        if self.expression.small_groups == "drop" and like is not None:
            covered |= frozenset(range(len(like.attribute(self.by).levels)))
        together = quote_lookalikes([*known, *self._list_groups(covered)])
        kept, groups = together[: len(known)], together[len(known) :]
        further = [replace(group, size=0) for group in self._treat_small(groups, kept)]
        at = len(kept) - (self.expression.reference_group is not None)
        groups = [*kept[:at], *further, *kept[at:]]
        check_number_of_groups(self.constraint, self.by, len(groups))
        return groups

    def _list_groups(self, covered: frozenset[int]) -> list[Group]:
        """List the groups of rows that are not covered, with their sizes."""
        count = self.cells.count[self.view.cells]
        in_objective = self.cells.in_objective[self.view.cells]
        groups = []
        for i, level in enumerate(self.cells.rows.attribute(self.by).levels):
            if i in covered:
                continue
            group = Group(self.by, frozenset([i]), level)
            size = self._size_of(group)
            if not (count[group.holds(self.view) & in_objective].any() or size):
                continue  # Only rows of other data sets have the value.
            if self.expression.missing == "raise" and MISSING in level:
                raise ValueError(
                    f"{self.constraint}: {', '.join(map(str, self.by))} has missing values: fill "
                    f"them in, drop these rows, or make them a group with missing='group'."
                )
            groups.append(replace(group, size=size))
        return groups

    def _size_of(self, group: Group) -> int:
        """Count the rows that the rate is taken over in a group: the smaller side of pairs."""
        weighted = self.cells.weighted_count
        sizes = [
            weighted[view.cells][base].sum()
            for rate in self.expression.rates
            for _, term in rate.terms
            for view in [self.views[term.amount]]
            for base in base_sets(self.cells, term, view, group)
        ]
        return int(min(sizes, default=0))

    def _is_small(self, group: Group) -> bool:
        """Whether a group has few rows, here or in the fit of an audited model."""
        has_few = group.size < self.expression.min_group_size
        known = self.cells.rows.small_groups.get((str(self.constraint), str(group)), has_few)
        return known or group.size == 0

    def _treat_small(self, groups: list[Group], known: list[Group]) -> list[Group]:
        """Keep, merge or leave out small groups; `known` may take them in."""
        small = [g for g in groups if self._is_small(g)]
        if not small:
            return groups
        treatment, merged = self.expression.small_groups, list[Group]()
        if treatment == "merge":  # Into the small groups of training rows, or one of their own.
            levels = frozenset[int]().union(*(group.levels for group in small))
            name = (SMALL,) * len(self.by)
            taken = [i for i, group in enumerate(known) if group.name == name and group.size]
            for i in taken[:1]:
                known[i] = replace(known[i], levels=known[i].levels | levels)
            joined = Group(self.by, levels, name)
            if not taken and (size := self._size_of(joined)):
                merged = [replace(joined, size=size)]
        self.small += [
            SmallGroup(
                self.constraint,
                group,
                group.size,
                TREATMENTS[treatment] if group.size or merged else "left out",
            )
            for group in small
        ]
        dropped = {id(g) for g in small if treatment in ("merge", "drop") or g.size == 0}
        return [g for g in groups if id(g) not in dropped] + merged


def warn_of_small_groups(small: Sequence[SmallGroup], where: str, listed_in: str) -> None:
    """Warn once of all groups of few rows, and name the first of them.

    Parameters
    ----------
    where : Name of the rows, and a comma.
    listed_in : Name of the attribute that lists all groups, if there is one.
    """
    alike: dict[tuple[Columns, int, str], list[SmallGroup]] = {}
    for found in small:
        e = cast(Grouped, found.constraint.expression)
        alike.setdefault((found.group.by, e.min_group_size, e.small_groups), []).append(found)
    lines = []
    for (_, fewest, treatment), members in alike.items():
        rows: dict[str, int] = {}
        for found in members:
            name = str(found.group)
            rows[name] = min(found.rows, rows.get(name, found.rows))
        named = [f"{name} ({n})" for name, n in rows.items()]
        constraints = list(dict.fromkeys(str(found.constraint) for found in members))
        done = {**TREATMENTS, "merge": "merged into one group"}[treatment]
        has_empty = any(f.rows == 0 and f.treatment == "left out" for f in members)
        empty = " Groups without any such row are left out." if has_empty else ""
        several = f", {len(named)} groups in all" if len(named) > FEW_NAMED else ""
        lines.append(
            f"{where}{join_truncated(constraints, FEW_NAMED)}: some groups have fewer "
            f"than min_group_size={fewest} rows that the rate is taken over: "
            f"{join_truncated(named, FEW_NAMED)}{several}. They are {done} "
            f"(small_groups={treatment!r}).{empty}"
        )
    if lines:
        has_more = any("groups in all" in line for line in lines)
        listed = f" {listed_in} lists all of them." if has_more and listed_in else ""
        issue_warning("\n".join(lines) + listed, "GC204")
