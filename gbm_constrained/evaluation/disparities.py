r"""Base rates of groups, and the two measures by which lenders compare selections of groups.

The **adverse impact ratio** of a group is its selection rate over that of a reference,

.. math:: \mathrm{AIR} = P(\hat y = c \mid g) / P(\hat y = c \mid r) .

The *four-fifths* convention of the Uniform Guidelines on Employee Selection Procedures [1]_ looks
closer at ratios below 0.8. It is a convention of screening, and no limit that a law sets. The
**standardised mean difference** of scores s is Cohen's d [2]_,

.. math:: \mathrm{SMD} = \frac{\bar s_g - \bar s_r}{S}, \qquad
    S^2 = \frac{\sum_{i \in g} (s_i - \bar s_g)^2 + \sum_{i \in r} (s_i - \bar s_r)^2}
               {n_g + n_r - 2} .

Both are measures of the same rows as the audit. Neither says whether a difference has a reason.

References
----------
.. [1] 29 CFR 1607.4(D), United States, 1978.
.. [2] Cohen, "Statistical Power Analysis for the Behavioral Sciences", 2nd edition, 1988,
   section 2.5.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gbm_constrained._typing import Codes, Float
from gbm_constrained.constraints.base import Constraint
from gbm_constrained.constraints.comparisons import Grouped
from gbm_constrained.constraints.rates import selection_rate
from gbm_constrained.constraints.selectors import Columns
from gbm_constrained.data.rows import Rows
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.functionals import Group
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.statistics.counts import CellCounts, functionals_of
from gbm_constrained.statistics.intervals import constraint_intervals

DISPARITY_COLUMNS = (
    "group", "reference", "rows", "selection_rate", "low", "high", "gap", "air", "air_low",
    "air_high", "smd",
)  # fmt: skip


def find_groupings(compiled: LinearConstraints) -> list[tuple[Grouped, tuple[Group, ...]]]:
    """List the first comparison of groups by each of the columns, and its groups."""
    found: dict[Columns, tuple[Grouped, tuple[Group, ...]]] = {}
    for constraint, groups in zip(compiled.constraints, compiled.groups, strict=True):
        if isinstance(constraint.expression, Grouped):
            found.setdefault(groups[0].by, (constraint.expression, groups))
    return list(found.values())


def members_of(rows: Rows, groups: Sequence[Group]) -> list[Codes]:
    """Find the positions of the rows of each group."""
    codes = rows.attribute(groups[0].by).codes
    return [np.flatnonzero(np.isin(codes, list(group.levels))) for group in groups]


def list_base_rates(
    rows: Rows, compiled: LinearConstraints, targets: Float | None = None
) -> list[dict[str, Any]]:
    """List the shares of the classes, or means of targets, among all rows and in groups.

    Parameters
    ----------
    rows : Rows
        The rows.
    compiled : LinearConstraints
        Constraints, whose groups are taken.
    targets : ndarray of shape (n_samples,), default=None
        Targets of a regressor.

    Returns
    -------
    list of dict
        ``group``, ``rows``, and ``share[...]`` of each class, or ``mean`` and ``std`` of targets.
    """
    weight = np.ones(len(rows)) if rows.weight is None else rows.weight
    parts = [("all rows", np.arange(len(rows)))]
    for _, groups in find_groupings(compiled):
        parts += zip(map(str, groups), members_of(rows, groups), strict=True)
    records = []
    for name, own in parts:
        total, found = weight[own].sum(), dict[str, float]()
        if targets is None:
            shares = np.bincount(rows.y[own], weight[own], rows.classes.size) / total
            found = dict(zip((f"share[{c}]" for c in rows.classes.tolist()), shares, strict=True))
        else:
            mean = weight[own] @ targets[own] / total
            variance = weight[own] @ (targets[own] - mean) ** 2 / total
            found = {"mean": float(mean), "std": float(np.sqrt(variance))}
        records.append({"group": name, "rows": int((weight[own] > 0).sum()), **found})
    return records


def list_disparities(
    rows: Rows,
    compiled: LinearConstraints,
    decided: Codes,
    positive: Any,
    score: Float | None,
    level: float = 0.95,
) -> list[tuple[Any, ...]]:
    """List selection rates, adverse impact ratios and standardised differences of groups.

    The reference is that of the constraint, if it is a group, and otherwise the group that is
    selected most among those with ``min_group_size`` rows.

    Parameters
    ----------
    rows : Rows
        The rows.
    compiled : LinearConstraints
        Constraints, whose groups are taken.
    decided : ndarray of shape (n_samples,)
        Class index that each row is decided for.
    positive : hashable
        Label of the class that is selected.
    score : ndarray of shape (n_samples,) or None
        Scores of the positive class; None of a model without scores.
    level : float, default=0.95
        Level of each interval.

    Returns
    -------
    list of tuple
        One entry for each group, with DISPARITY_COLUMNS. Of the reference, the gap and ``smd`` are
        zero and ``air`` is one, without an interval.
    """
    weight = np.ones(len(rows)) if rows.weight is None else rows.weight
    records = []
    for comparison, groups in find_groupings(compiled):
        members = members_of(rows, groups)
        group = np.full(len(rows), -1)
        for k, own in enumerate(members):
            group[own] = k
        of_groups = Rows(rows.y, rows.classes, rows.weight, {"group": group})
        rates = [selection_rate(positive, on={"group": k}) for k in range(len(groups))]
        value, interval = _measure([rate >= 0.0 for rate in rates], of_groups, decided, level)
        sizes = np.array([(weight[own] > 0).sum() for own in members])
        reference = len(groups) - 1  # Groups end with the reference of their constraint.
        if comparison.reference_group is None:
            is_large = sizes >= comparison.min_group_size
            reference = int(np.argmax(np.where(is_large | ~is_large.any(), value, -1.0)))
        air, of_air = np.full(len(groups), np.nan), np.full((len(groups), 2), np.nan)
        if value[reference] > 0.0:
            others = [k for k in range(len(groups)) if k != reference]
            ratios = [rates[k] / rates[reference] >= 0.0 for k in others]
            air[others], of_air[others] = _measure(ratios, of_groups, decided, level)
            air[reference] = 1.0
        smd = np.full(len(groups), np.nan)
        if score is not None:
            smd = np.array([
                standardised_difference(score, weight, own, members[reference]) for own in members
            ])  # fmt: skip
        gap, name = value - value[reference], str(groups[reference])
        records += [
            (str(one), name, int(n), *of_rate, *of_ratio)
            for one, n, of_rate, of_ratio in zip(
                groups, sizes, np.column_stack([value, interval, gap]),
                np.column_stack([air, of_air, smd]), strict=True,
            )
        ]  # fmt: skip
    return records


def _measure(
    constraints: Sequence[Constraint], rows: Rows, decided: Codes, level: float
) -> tuple[Float, Float]:
    """Measure what constraints bound, and the intervals."""
    cells, compiled = compile_constraints(constraints, rows, warning=None)
    counts = CellCounts.of(cells, decided)
    value = compiled.values(functionals_of(compiled, counts))
    return value, constraint_intervals(compiled, counts, level)


def standardised_difference(score: Float, weight: Float, group: Codes, reference: Codes) -> float:
    """Compute the difference of mean scores of two groups over their pooled standard deviation.

    Parameters
    ----------
    score, weight : ndarray of shape (n_samples,)
        Scores and weights of the rows. Equal weights change nothing.
    group, reference : ndarray of int
        Positions of the rows of either group.

    Returns
    -------
    float
        NaN where neither group varies.
    """
    means, squares, total, n = [], 0.0, 0.0, 0
    for own in (group, reference):
        w = weight[own]
        means.append(w @ score[own] / w.sum())
        squares += w @ (score[own] - means[-1]) ** 2
        total, n = total + w.sum(), n + int((w > 0).sum())
    variance = squares / total * n / (n - 2) if n > 2 else 0.0
    return float((means[0] - means[1]) / np.sqrt(variance)) if variance > 0.0 else np.nan
