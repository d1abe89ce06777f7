"""Rows of the benchmark of many machines, and ways to deal them to machines."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split

from gbm_constrained import fpr, gap, tpr
from gbm_constrained.datasets import load_adult
from gbm_constrained.distributed.ranks import Shard

MAX_BIN = 256  # Of XGBoost by default.
GROUPS = 6

Positions = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Table:
    """Features, labels and a grouping column of some rows."""

    X: pd.DataFrame
    y: NDArray[np.int64]
    group: NDArray[Any]

    def take(self, at: Positions) -> Table:
        """Take rows by their positions."""
        return Table(self.X.iloc[at], self.y[at], self.group[at])

    def shard(self, at: Positions) -> Shard:
        """Make the shard of a machine that holds the rows at some positions, which number them."""
        part = self.take(at)
        return Shard(part.X, part.y, at, sensitive_features={"group": part.group})

    def split(self, seed: int) -> tuple[Table, Table]:
        """Split in training rows and 30 % of test rows."""
        fitted, test = train_test_split(np.arange(self.y.size), test_size=0.3, random_state=seed)
        return self.take(fitted), self.take(test)


@cache
def read_adult() -> Table:
    """Read Adult, with categories as numbers and sex as the group."""
    data = load_adult()
    X = data.data.copy()
    for name in X.select_dtypes("category"):
        X[name] = X[name].cat.codes
    sex = data.sensitive_features["sex"].astype(str).to_numpy()
    return Table(X.astype(np.float32), data.target.to_numpy(), sex)


@cache
def bin_adult() -> Table:
    """Read Adult with at most `MAX_BIN` values of each feature, by quantiles of all rows."""
    table = read_adult()
    inner = np.linspace(0, 1, MAX_BIN)[1:-1]
    X = table.X.apply(lambda x: np.searchsorted(np.unique(np.quantile(x, inner)), x))
    return Table(X.astype(np.float32), table.y, table.group)


@cache
def draw_continuous(n: int = 20_000, columns: int = 10, groups: int = 2, seed: int = 0) -> Table:
    """Draw continuous features, a third of positives, and groups that differ in it."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, columns)).astype(np.float32)
    group = rng.integers(0, groups, n)
    score = X[:, 0] + X[:, 1] * X[:, 2] + 0.5 * X[:, 3] ** 2 + group / groups + rng.normal(size=n)
    X[:, 4] += group
    y = (score > np.quantile(score, 0.67)).astype(np.int64)
    return Table(pd.DataFrame(X).add_prefix("x"), y, group.astype(str))


TABLES = {"adult": read_adult, "binned": bin_adult}
RULES = (fpr() <= 0.05, gap(fpr(), by="group") <= 0.02)
# Of six groups: twelve cells.
RULES_OF_CELLS = (gap(fpr(), by="group") <= 0.05, gap(tpr(), by="group") <= 0.1)


def deal(table: Table, way: str, n_machines: int = 4, seed: int = 0) -> list[Positions]:
    """Deal the rows to machines.

    Parameters
    ----------
    way : {"runs", "random", "empty", "group"}
        Runs of consecutive rows; random parts of random lengths, in no order; the same with a
        last machine that has none; the same with a last machine that has all rows of the first
        group.
    """
    n = table.y.size
    if way == "runs":
        return np.array_split(np.arange(n), n_machines)
    order = np.random.default_rng(seed).permutation(n)
    if way == "random":
        return _cut(order, n_machines, seed)
    last = order[:0]
    if way == "group":
        inside = table.group[order] == np.unique(table.group)[0]
        order, last = order[~inside], order[inside]
    return [*_cut(order, n_machines - 1, seed), last]


def _cut(order: Positions, n_parts: int, seed: int) -> list[Positions]:
    """Cut an order of rows at random places."""
    rng = np.random.default_rng(seed)
    return np.split(order, np.sort(rng.integers(1, order.size, n_parts - 1)))
