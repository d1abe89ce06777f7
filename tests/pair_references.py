"""Pair rates by counting all pairs, and random rows with groups and scores that tie."""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from gbm_constrained.data.rows import Rows
from gbm_constrained.data.validation import columns_of
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.lagrangian import Lagrangian


def count_pairs(scores, first, second, weight=None, wins=None):
    """Weighted fraction of the pairs of rows of two masks whose first row scores higher.

    It is NaN without any weight. The masks may overlap, and `wins` may give a value to each
    difference of scores.
    """
    weight = np.ones(scores.size) if weight is None else weight
    above, below = scores[first][:, None], scores[second]
    won = (above > below) + 0.5 * (above == below) if wins is None else wins(above - below)
    mass = np.outer(weight[first], weight[second])
    return (mass * won).sum() / mass.sum() if mass.sum() > 0 else np.nan


def smooth(apart):
    return expit(apart)


class PairData:
    """Random rows in two grouping columns, with random scores of which many tie."""

    def __init__(self, seed=0, n=160, n_classes=2, weighted=True):
        rng = np.random.default_rng(seed)
        self.y = np.concatenate([np.arange(n_classes), rng.integers(0, n_classes, n - n_classes)])
        self.sex = rng.choice(["F", "M"], n)
        self.region = rng.choice(["a", "b", "c"], n)
        self.weight = rng.gamma(2.0, size=n) if weighted else None
        self.classes = np.arange(n_classes)
        self.margin = 2 * rng.normal(size=n if n_classes == 2 else (n, n_classes))
        self.margin[::3] = np.round(self.margin[::3])

    @property
    def rows(self):
        table = {"sex": self.sex, "region": self.region}
        return Rows(self.y, self.classes, self.weight, columns_of(table, self.y.size))

    def lagrangian(self, *rules, **options):
        cells, compiled = compile_constraints(rules, self.rows)
        return Lagrangian(self.y, cells, compiled, weight=self.weight, **options)

    def functionals(self, *rules, margin=None):
        """Each functional of the rules."""
        lagrangian = self.lagrangian(*rules)
        margin = self.margin if margin is None else margin
        tables = lagrangian.rows.pairs.tables(margin)
        return lagrangian.constraints.tables["pairs"] @ tables + lagrangian.constraints.constant

    def value(self, rule, margin=None):
        """What one rule bounds."""
        return rule.value(self.functionals(rule, margin=margin))

    def count(self, first, second, margin=None, wins=None):
        scores = self.margin if margin is None else margin
        return count_pairs(scores, first, second, self.weight, wins)
