"""Groups of a comparison: found among the rows, small ones merged or left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gbm_constrained._findings import issue_warning
from gbm_constrained._messages import some_of
from gbm_constrained.constraints.expressions import Constraint
from gbm_constrained.constraints.grouped import Gap, Grouped, Overall
from gbm_constrained.constraints.selectors import MISSING
from gbm_constrained.data.cells import View
from gbm_constrained.data.rows import Columns, Rows
from gbm_constrained.problem.functionals import FunctionalCompiler
from gbm_constrained.problem.groups import Group, SmallGroup, told_apart

SMALL = "small groups"
FEW_NAMED = 5  # Small groups, and constraints that compare them, that a warning names.
MOST_GROUPS = 500  # Each is compared with every other one.


def columns_by(expression: Grouped, rows: Rows) -> Columns:
    """Columns that make the groups of an expression: all sensitive features by default."""
    if expression.by is not None:
        return expression.by
    return tuple((rows.like or rows).columns)


def check_number_of_groups(constraint: Constraint, by: Columns, n_groups: int, most: int) -> None:
    """Refuse to compare next to every row with every other."""
    if n_groups > most:
        raise ValueError(
            f"{constraint} compares {n_groups} groups by {', '.join(map(str, by))}, more than "
            f"{most}: cut numbers into bands, as pandas.cut does, or put groups of few "
            f"rows together with small_groups='merge'."
        )


def find_groups(
    constraint: Constraint,
    view: View,
    compiler: FunctionalCompiler,
    known: Sequence[Group] | None = None,
) -> list[Group]:
    """Find the groups of a comparison, and treat small groups as the constraint asks.

    Parameters
    ----------
    constraint : Constraint
        A comparison of groups.
    view : View
        The partition that the constraint lives in.
    compiler : _Compiler
        The rows, and the small groups found so far.
    known : sequence of Group, default=None
        Groups of the training rows, where these are other rows. The known groups are kept as
        they are, and groups that the training rows do not have follow with a size of zero.

    Returns
    -------
    list of Group
        The groups; the reference is the last one where it is a group.

    Raises
    ------
    ValueError
        If values are missing and `missing` is ``"raise"``, if the reference is no group, or if
        there are too few or too many groups.
    """
    cells, e = compiler.cells, constraint.expression
    assert isinstance(e, Grouped)
    by = columns_by(e, cells.rows)
    levels = cells.rows.attribute(by).levels
    count, weighted = cells.count[view.cells], cells.weighted_count[view.cells]
    covered = frozenset[int]().union(*(group.levels for group in known or ()))
    if known is not None and e.small_groups == "drop" and cells.rows.like is not None:
        covered |= frozenset(range(len(cells.rows.like.attribute(by).levels)))

    def rows_in_rate(group: Group) -> int:
        taken_over = [compiler.inside(t, view, group) for _, t in e.rate.terms]
        return int(min((weighted[inside].sum() for inside in taken_over), default=0))

    groups, sizes = [], []
    for i, level in enumerate(levels):
        if i in covered:
            continue
        group = Group(by, frozenset([i]), level)
        in_rate = rows_in_rate(group)
        in_group = view.levels[by] == i
        if not (count[in_group & cells.in_objective[view.cells]].any() or in_rate):
            continue  # a value of rows of other data sets
        if e.missing == "raise" and MISSING in level:
            raise ValueError(
                f"{constraint}: {', '.join(map(str, by))} has missing values: fill them in, drop "
                f"these rows, or make them a group with missing='group'."
            )
        sizes.append(in_rate)
        groups.append(replace(group, size=sizes[-1]))
    together = told_apart([*(known or ()), *groups])
    taken_over, groups = together[: len(known or ())], together[len(known or ()) :]
    small = [i for i, size in enumerate(sizes) if size < e.min_group_size]
    if small:
        nothing = [i for i in small if sizes[i] == 0]
        merged: list[Group] = []
        if e.small_groups == "merge":
            levels_of_all = frozenset[int]().union(*(groups[i].levels for i in small))
            name = (SMALL,) * len(by)
            before = [group for group in taken_over if group.name == name and group.size]
            if before:
                at = taken_over.index(before[0])
                taken_over[at] = replace(before[0], levels=before[0].levels | levels_of_all)
            else:
                joined = Group(by, levels_of_all, name)
                if size := rows_in_rate(joined):
                    merged = [replace(joined, size=size)]
        done = {"keep": "kept", "merge": "merged", "drop": "left out"}[e.small_groups]
        compiler.small += [
            SmallGroup(constraint, groups[i], sizes[i], done if sizes[i] or merged else "left out")
            for i in small
        ]
        if e.small_groups == "keep":
            small = nothing
        groups = [g for i, g in enumerate(groups) if i not in small] + merged
    if known is not None:
        further = [replace(group, size=0) for group in groups]
        has_reference = isinstance(e, Gap) and not isinstance(e.reference, Overall | None)
        at = len(taken_over) - has_reference
        groups = [*taken_over[:at], *further, *taken_over[at:]]
        check_number_of_groups(constraint, by, len(groups), MOST_GROUPS)
        return groups
    if isinstance(e, Gap) and e.reference is not None and not isinstance(e.reference, Overall):
        wanted = e.reference if isinstance(e.reference, tuple) else (e.reference,)
        reference = [g for g in groups if g.name == wanted]
        if not reference:
            missing = " reference=numpy.nan is the group of the rows without a value."
            raise ValueError(
                f"{constraint}: reference={e.reference!r} is not among the groups "
                f"{[g.name if len(by) > 1 else g.name[0] for g in groups]}."
                f"{missing * any(g.name == (MISSING,) for g in groups)}"
            )
        groups = [g for g in groups if g is not reference[0]] + reference
    check_number_of_groups(constraint, by, len(groups), MOST_GROUPS)
    fewest = 2 if isinstance(e, Gap) and not isinstance(e.reference, Overall) else 1
    if len(groups) < fewest:
        raise ValueError(
            f"{constraint} compares groups by {', '.join(map(str, by))}, of which "
            f"{len(groups)} {'is' if len(groups) == 1 else 'are'} left "
            f"({', '.join(map(str, groups)) or 'none'}): at least {fewest} are needed."
        )
    return groups


def warn_of_small_groups(small: Sequence[SmallGroup], where: str, listed_in: str) -> None:
    """Warn once of all groups of few rows, and name the first of them."""
    alike: dict[tuple[Columns, int, str], list[SmallGroup]] = {}
    for found in small:
        e = found.constraint.expression
        assert isinstance(e, Grouped)
        alike.setdefault((found.group.by, e.min_group_size, e.small_groups), []).append(found)
    lines = []
    for (_, size, treatment), members in alike.items():
        fewest: dict[str, int] = {}
        for found in members:
            name = str(found.group)
            fewest[name] = min(found.rows, fewest.get(name, found.rows))
        named = [f"{name} ({rows})" for name, rows in fewest.items()]
        rules = list(dict.fromkeys(str(found.constraint) for found in members))
        done = {"keep": "kept", "merge": "merged into one group", "drop": "left out"}[treatment]
        has_empty = any(f.rows == 0 and f.treatment == "left out" for f in members)
        empty = " Groups without any such row are left out." if has_empty else ""
        several = f", {len(named)} groups in all" if len(named) > FEW_NAMED else ""
        lines.append(
            f"{where}{some_of(rules, FEW_NAMED)}: some groups have fewer than "
            f"min_group_size={size} rows that the rate is taken over: "
            f"{some_of(named, FEW_NAMED)}{several}. They are {done} "
            f"(small_groups={treatment!r}).{empty}"
        )
    if lines:
        has_more = any("groups in all" in line for line in lines)
        listed = f" {listed_in} lists all of them." if has_more and listed_in else ""
        issue_warning("\n".join(lines) + listed, "GC204")
