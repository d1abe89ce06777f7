"""Random rows with random decisions, for tests of what counted decisions say."""

from __future__ import annotations

import numpy as np
from hypothesis import settings

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.data.validation import columns_of
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.statistics.counts import CellCounts
from gbm_constrained.statistics.p_values import constraint_p_values

DELTAS = np.array([0.01, 0.05, 0.1, 0.3])


def random(examples):
    return settings(derandomize=True, deadline=None, max_examples=examples)


class Data:
    """Random rows with groups and another model's decisions, and random decisions."""

    def __init__(self, seed=0, n=200, n_classes=2, weighted=False):
        rng = np.random.default_rng(seed)
        self.y = rng.integers(0, n_classes, n)
        self.sex = rng.choice(["F", "M"], n)
        self.region = rng.choice(["a", "b", "c"], n)
        self.other = rng.integers(0, n_classes, n)
        self.decided = np.where(rng.random(n) < 0.6, self.y, rng.integers(0, n_classes, n))
        self.weight = rng.gamma(2.0, size=n) if weighted else None
        self.classes = np.arange(n_classes)

    @property
    def rows(self):
        table = {"sex": self.sex, "region": self.region, "old": self.other}
        return Rows(self.y, self.classes, self.weight, columns_of(table, self.y.size))

    def measured(self, *rules):
        """Compiled constraints and counts."""
        cells, compiled = compile_constraints(rules, self.rows)
        return compiled, CellCounts.of(cells, self.decided)

    def p(self, *rules):
        return constraint_p_values(*self.measured(*rules))


def by(rate, name="sex", **options):
    return gc.gap(rate, by=name, min_group_size=1, **options)


def binary_rules():
    old = "old"
    return [
        gc.fpr() <= 0.2,
        gc.tnr() >= 0.7,
        gc.recall(1) >= 0.8,
        2 * gc.fpr(on={"sex": "F"}) - 0.5 * gc.fnr(on={"sex": "M"}) + 0.1 <= 0.3,
        gc.selection_rate() - gc.error_rate() <= 0.1,
        gc.churn(to=old) <= 0.3,
        gc.wins(over=old) - gc.losses(to=old) >= 0.0,
        gc.wins(over=old) / gc.losses(to=old) >= 1.5,
        gc.precision() >= 0.7,
        gc.f1() >= 0.7,
        gc.confusion(0, 1, normalize="pred") <= 0.3,
        gc.confusion(1, 0, normalize="all") <= 0.3,
        by(gc.tpr()) <= 0.2,
        by(gc.tpr() - gc.fpr(), "region") <= 0.5,
        by(gc.accuracy(), "region", reference=gc.overall) <= 0.2,
        gc.ratio(gc.selection_rate(), by="region", min_group_size=1) >= 0.6,
        gc.each(gc.fnr(), by="region", min_group_size=1) <= 0.4,
        *(gc.error_rate(on=np.random.default_rng(i).random(200) < 0.5) <= 0.4 for i in range(14)),
    ]
