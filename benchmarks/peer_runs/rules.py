"""The rules of the benchmark and the rates that they are about. Needs numpy only.

Each peer's process chooses by these figures on its own rows, and the benchmark scores test
decisions by the same ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

# Rows that a rate is taken over, and the event that it counts.
RATES = {
    "selection_rate": lambda y, d: (np.ones(y.size, dtype=bool), d == 1),
    "fpr": lambda y, d: (y == 0, d == 1),
    "fnr": lambda y, d: (y == 1, d == 0),
    "tpr": lambda y, d: (y == 1, d == 1),
    "error_rate": lambda y, d: (np.ones(y.size, dtype=bool), d != y),
}


@dataclass(frozen=True)
class Rule:
    """A task: the rates that are bounded, and whether it is their gap between groups that is."""

    task: str
    rates: tuple[str, ...]
    is_gap: bool


GAP_RULES = {
    rule.task: rule
    for rule in (
        Rule("selection_rate_gap", ("selection_rate",), True),
        Rule("fpr_gap", ("fpr",), True),
        Rule("tpr_gap", ("tpr",), True),
        Rule("error_rate_gap", ("error_rate",), True),
        Rule("equalized_odds", ("fpr", "tpr"), True),
    )
}
NEYMAN_PEARSON = "neyman_pearson"
TASKS = (NEYMAN_PEARSON, *GAP_RULES)


def rule_of(task: str, rate: str) -> Rule:
    """Rule of a task; `rate` is the one that Neyman-Pearson bounds on the data set at hand."""
    return Rule(task, (rate,), False) if task == NEYMAN_PEARSON else GAP_RULES[task]


def counts(rate: str, y: Any, decisions: Any, groups: Any = None) -> tuple[Any, Any]:
    """Events and rows of a rate, one number for each group, or in all rows."""
    inside, event = RATES[rate](y, decisions)
    codes = np.zeros(y.size, dtype=int) if groups is None else groups
    events = np.bincount(codes[inside & event], minlength=codes.max() + 1)
    return events, np.bincount(codes[inside], minlength=codes.max() + 1)


def value(rule: Rule, y: Any, decisions: Any, groups: Any) -> float:
    """Return what the rule bounds: a rate, or the largest gap of one of its rates.

    Groups without rows of the rate's base do not count.
    """
    found = []
    for rate in rule.rates:
        events, rows = counts(rate, y, decisions, groups if rule.is_gap else None)
        by_group = events[rows > 0] / rows[rows > 0]
        found.append(np.ptp(by_group) if rule.is_gap else by_group[0])
    return float(max(found))


def merit(
    rule: Rule, asked: float, y: Any, decisions: Any, groups: Any
) -> tuple[float, float, float]:
    """Rank decisions of one setting among others, smallest first.

    Returns
    -------
    tuple of float
        By how much the bound is missed, the share of errors, and what the rule bounds.
    """
    at = value(rule, y, decisions, groups)
    return max(at - asked, 0.0), float(np.mean(decisions != y)), at
