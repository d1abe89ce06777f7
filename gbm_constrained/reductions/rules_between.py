"""Plug-in rules on the segments between others, which decide some rows otherwise.

Where costs are counted by labels, the rules of a mixture need not be the best ones near them.
Rules between them join the pool of a further search, or stand for the mixture.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from gbm_constrained._typing import Codes, Float
from gbm_constrained.reductions.plug_in import PlugIn

MAX_SEGMENT_RULES = 100  # Rules between several, all together.
MIN_SEGMENT_RULES = 10  # Rules between each two of them, where these are many.


class _Rule(NamedTuple):
    """A rule with the expected cost of each decision on each row, and its decisions."""

    costs: Float
    expected: Float
    decisions: Codes


def list_rules_between(oracle: PlugIn, rules: Sequence[Float]) -> tuple[list[Float], list[Float]]:
    """List rules on the segments between any two of several rules, and their functionals."""
    found: list[Float] = []
    points: list[Float] = []
    decided = [_Rule(costs, oracle.probabilities @ costs, oracle.decide(costs)) for costs in rules]
    pairs = list(combinations(decided, 2))
    n_rules = max(MAX_SEGMENT_RULES // max(len(pairs), 1), MIN_SEGMENT_RULES)
    for first, second in pairs:
        between, of_between = _list_rules_on_segment(oracle, first, second, n_rules)
        found += between
        points += of_between
    return found, points


def _list_rules_on_segment(
    oracle: PlugIn, first: _Rule, second: _Rule, n_rules: int
) -> tuple[list[Float], list[Float]]:
    """List rules between two rules, each with other decisions on some rows.

    Rows that both rules decide alike are decided so in between, where costs are linear.
    """
    is_disputed = first.decisions != second.decisions
    disputed, agreed = np.flatnonzero(is_disputed), np.flatnonzero(~is_disputed)
    coefficients = oracle.coefficients
    of_disputed = oracle.take(disputed, coefficients)
    counts = oracle.take(agreed, coefficients).counts(first.decisions[agreed])
    # Cost of the second decision beyond the first one, under both rules.
    low, high = (
        rule.expected[disputed, second.decisions[disputed]]
        - rule.expected[disputed, first.decisions[disputed]]
        for rule in (first, second)
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        turn = np.unique(low / (low - high))
    turn = turn[(turn > 0.0) & (turn < 1.0)]
    middle = (turn[1:] + turn[:-1]) / 2
    if middle.size > n_rules:
        middle = middle[np.linspace(0, middle.size - 1, n_rules).astype(int)]
    rules = [(1 - t) * first.costs + t * second.costs for t in middle]
    points = [
        coefficients.functionals(counts + of_disputed.counts(of_disputed.decide(costs)))
        for costs in rules
    ]
    return rules, points
