"""Groups of a comparison: found among the rows, small ones merged or left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from gbm_constrained._findings import issue_warning
from gbm_constrained._messages import join_truncated
from gbm_constrained.constraints.amounts import Amount
from gbm_constrained.constraints.base import Constraint
from gbm_constrained.constraints.grouped import Grouped, Paired
from gbm_constrained.constraints.selectors import MISSING, Columns
from gbm_constrained.data.cells import View
from gbm_constrained.data.rows import Rows
from gbm_constrained.problem.functionals import FunctionalCompiler
from gbm_constrained.problem.groups import Group, SmallGroup, quote_lookalikes

SMALL = "small groups"
FEW_NAMED = 5  # Largest number of groups, and of constraints, that a warning names.
MOST_GROUPS = 500  # Largest number of groups, each of which is compared with every other one.
TREATMENTS = {"keep": "kept", "hold": "held", "merge": "merged", "drop": "left out"}


def columns_by(expression: Grouped, rows: Rows) -> Columns:
    """Find the columns that define the groups of an expression: by default, sensitive features."""
    if expression.by is not None:
        return expression.by
    return tuple((rows.like or rows).columns)


def check_number_of_groups(constraint: Constraint, by: Columns, n_groups: int, most: int) -> None:
    """Refuse a comparison of almost every row with every other."""
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
        self,
        constraint: Constraint,
        views: Mapping[Amount | None, View],
        compiler: FunctionalCompiler,
    ) -> None:
        self.constraint, self.views, self.compiler = constraint, views, compiler
        self.view = next(iter(views.values()))
        self.cells = compiler.cells
        self.expression = cast(Grouped, constraint.expression)
        self.by = columns_by(self.expression, self.cells.rows)
        self.small: list[SmallGroup] = []

    def find(self) -> list[Group]:
        """Find the groups, the reference last, and treat small groups as the constraint says."""
        groups = self._treat_small(quote_lookalikes(self._list_groups(frozenset())), [])
        groups = self._put_reference_last(groups)
        check_number_of_groups(self.constraint, self.by, len(groups), MOST_GROUPS)
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
        check_number_of_groups(self.constraint, self.by, len(groups), MOST_GROUPS)
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
            for base in self.compiler.base_sets(term, view, group)
        ]
        return int(min(sizes, default=0))

    def _treat_small(self, groups: list[Group], known: list[Group]) -> list[Group]:
        """Keep, merge or leave out small groups; `known` may take them in."""
        small = [g for g in groups if g.size < self.expression.min_group_size]
        if not small:
            return groups
        treatment = self.expression.small_groups
        merged = self._merge(small, known) if treatment == "merge" else []
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

    def _merge(self, small: Sequence[Group], known: list[Group]) -> list[Group]:
        """Merge small groups into that of the training rows, or into one of their own."""
        levels = frozenset[int]().union(*(group.levels for group in small))
        name = (SMALL,) * len(self.by)
        for i, group in enumerate(known):
            if group.name == name and group.size:
                known[i] = replace(group, levels=group.levels | levels)
                return []
        joined = Group(self.by, levels, name)
        size = self._size_of(joined)
        return [replace(joined, size=size)] if size else []

    def _put_reference_last(self, groups: list[Group]) -> list[Group]:
        """Move the group that others are compared with to the end."""
        wanted = self.expression.reference_group
        if wanted is None:
            return groups
        reference = [g for g in groups if g.name == wanted]
        if not reference:
            missing = " reference=numpy.nan is the group of the rows without a value."
            raise ValueError(
                f"{self.constraint}: reference={cast(Paired, self.expression).reference!r} is not "
                f"among the groups "
                f"{[g.name if len(self.by) > 1 else g.name[0] for g in groups]}."
                f"{missing * any(g.name == (MISSING,) for g in groups)}"
            )
        return [g for g in groups if g is not reference[0]] + reference


@dataclass(frozen=True)
class SmallGroupWarning:
    """Warning of groups of few rows, with the attribute that lists all of them."""

    where: str = ""  # name of the rows, and a comma
    listed_in: str = ""

    def warn(self, small: Sequence[SmallGroup]) -> None:
        """Warn once of all groups of few rows, and name the first of them."""
        alike: dict[tuple[Columns, int, str], list[SmallGroup]] = {}
        for found in small:
            e = cast(Grouped, found.constraint.expression)
            alike.setdefault((found.group.by, e.min_group_size, e.small_groups), []).append(found)
        lines = [
            self._line(size, treatment, members) for (_, size, treatment), members in alike.items()
        ]
        if lines:
            has_more = any("groups in all" in line for line in lines)
            listed = f" {self.listed_in} lists all of them." if has_more and self.listed_in else ""
            issue_warning("\n".join(lines) + listed, "GC204")

    def _line(self, min_group_size: int, treatment: str, members: Sequence[SmallGroup]) -> str:
        """Write the line of groups that are treated alike."""
        fewest: dict[str, int] = {}
        for found in members:
            name = str(found.group)
            fewest[name] = min(found.rows, fewest.get(name, found.rows))
        named = [f"{name} ({rows})" for name, rows in fewest.items()]
        constraints = list(dict.fromkeys(str(found.constraint) for found in members))
        done = {**TREATMENTS, "merge": "merged into one group"}[treatment]
        has_empty = any(f.rows == 0 and f.treatment == "left out" for f in members)
        empty = " Groups without any such row are left out." if has_empty else ""
        several = f", {len(named)} groups in all" if len(named) > FEW_NAMED else ""
        return (
            f"{self.where}{join_truncated(constraints, FEW_NAMED)}: some groups have fewer than "
            f"min_group_size={min_group_size} rows that the rate is taken over: "
            f"{join_truncated(named, FEW_NAMED)}{several}. They are {done} "
            f"(small_groups={treatment!r}).{empty}"
        )
