"""Names of constraints and of their functionals, no two alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from gbm_constrained.constraints.base import Constraint
from gbm_constrained.constraints.grouped import Grouped
from gbm_constrained.problem.groups import Group


def unique_names(things: Iterable[Any]) -> list[str]:
    """Name things as they print, and number those that print alike, as equally large masks do."""
    names, times = [], Counter[str]()
    for name in map(str, things):
        times[name] += 1
        names.append(name if times[name] == 1 else f"{name} #{times[name]}")
    return names


def name_functionals(
    constraints: Sequence[Constraint],
    spans: Sequence[slice],
    groups: Sequence[Sequence[Group]],
) -> list[str]:
    """Name the functionals of constraints, which are rates of all rows or of groups."""
    names: list[str] = []
    for c, span, of_constraint in zip(constraints, spans, groups, strict=True):
        found = [str(rate) for rate in c.rates]
        if isinstance(c.expression, Grouped):
            of_groups = [
                str(rate.restrict(*g.selectors)) for g in of_constraint for rate in c.rates
            ]
            found = of_groups + found
        names += found[: span.stop - span.start]  # The last rates are those of all rows.
    return unique_names(names)
