"""CPU time of fits under pair rates over that of plain fits, and how it grows with the rows.

Plain and constrained fits alternate within one process, so that other work on the machine slows
both. Ratios are medians over the pairs.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from auc_data import make
from result_file import Measurements

from gbm_constrained import auc, cross_auc, gap

COLUMNS, ROUNDS, PAIRS, GROUPS = 30, 40, 3, 8
ROWS, GROWTH_ROWS = 300_000, (100_000, 1_000_000)
# What is subtracted is what a fit costs once, whatever the number of rounds.
SHORT, LONG = 5, 25


def draw_rows(n: int, n_groups: int) -> tuple[pd.DataFrame, Any]:
    """Draw features, of which one is the group, and labels; 0.3 of them are positive."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, COLUMNS - 1)).astype(np.float32)
    group = rng.integers(0, n_groups, n)
    noise = rng.normal(size=n) * (1.0 + 0.1 * group)
    score = X[:, 0] + X[:, 1] * X[:, 2] + 0.5 * X[:, 3] ** 2 + 0.1 * group + noise
    table = pd.DataFrame(X, columns=[f"x{j}" for j in range(COLUMNS - 1)])
    return table.assign(group=group), (score > np.quantile(score, 0.7)).astype(int)


def two_rules() -> list[Any]:
    """Bound two gaps of pair rates between two groups."""
    return [gap(auc(), by="group") <= 0.01, gap(cross_auc(), by="group") <= 0.01]


def hundred_rules() -> list[Any]:
    """Bound differences of the AUCs of eight groups, and of cross AUCs between them."""
    pairs = list(itertools.permutations(({"group": g} for g in range(GROUPS)), 2))
    within = [auc(on=a) - auc(on=b) <= 0.01 for a, b in pairs]
    across = [
        auc(positives=a, negatives=b) - auc(positives=b, negatives=a) <= 0.01 for a, b in pairs
    ]
    return [*within, *across][:100]


CASES = {"two": (two_rules, 2), "hundred": (hundred_rules, GROUPS)}


def time_fit(library: str, rules: list[Any], X: Any, y: Any, rounds: int) -> float:
    """Measure the CPU seconds of a fit."""
    model = make(library, rules, measure_on="train", n_estimators=rounds, max_bin=255)
    start = time.process_time()
    model.fit(X, y)
    return time.process_time() - start


def measure_cost(library: str, case: str) -> dict[str, float]:
    """Fit with and without rules in turn."""
    rules, n_groups = CASES[case]
    X, y = draw_rows(ROWS, n_groups)
    seconds = np.array(
        [[time_fit(library, made, X, y, ROUNDS) for made in ([], rules())] for _ in range(PAIRS)]
    )
    plain, constrained = np.median(seconds, axis=0)
    ratio = float(np.median(seconds[:, 1] / seconds[:, 0]))
    return {"ratio": ratio, "plain": float(plain), "constrained": float(constrained)}


def print_costs(path: Path, libraries: Sequence[str]) -> None:
    """Print the CPU time of rules in plain fits."""
    results = Measurements(path, ("library", "rules"), ("ratio", "plain", "constrained"))
    for library, case in itertools.product(libraries, CASES):
        found = results.once(partial(measure_cost, library, case), library, case)
        print(f"{library:9} {case:8} {found['ratio']:.2f} plain fits ({found['constrained']:.1f} "
              f"over {found['plain']:.1f} seconds)", flush=True)  # fmt: skip


def measure_round(library: str, rows: int) -> dict[str, float]:
    """Measure the CPU seconds of a round under two rules."""
    X, y = draw_rows(rows, 2)
    short, long = (time_fit(library, two_rules(), X, y, n) for n in (SHORT, LONG))
    return {"seconds": (long - short) / (LONG - SHORT)}


def print_growth(path: Path, libraries: Sequence[str]) -> None:
    """Print how a round grows with the rows."""
    results = Measurements(path, ("library", "rows"), ("seconds",))
    for library in libraries:
        few, many = (
            results.once(partial(measure_round, library, n), library, n)["seconds"]
            for n in GROWTH_ROWS
        )
        print(f"{library:9} {few:.4f} to {many:.4f} seconds: {many / few:.1f} x", flush=True)
