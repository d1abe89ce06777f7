"""Searches in one call, and brute-force references that several test modules share."""

from __future__ import annotations

import numpy as np

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.decision.threshold_search import ShiftSearch
from gbm_constrained.problem.compiler import compile_constraints

N_DRAWN = 8000  # Rows of drawn decisions.


def best_shift(margin, cells, compiled, weight=None, **options):
    """Find the best shift of some scores, by one search."""
    return ShiftSearch(margin, cells, compiled, weight).find(**options)


def draw_decisions_of_folds(rng, rates, weight=None, rules=None, n=N_DRAWN):
    """Decide rows of two classes and two groups, positively with a probability for each fold.

    `rates` are of shape (folds,), or (folds, 2) for the groups.
    """
    y, group = rng.integers(0, 2, n), rng.integers(0, 2, n)
    folds = np.array_split(rng.permutation(n), len(rates))
    fold = np.empty(n, dtype=int)
    for i, rows in enumerate(folds):
        fold[rows] = i
    rates = np.broadcast_to(np.reshape(rates, (len(rates), -1)), (len(rates), 2))
    decided = (rng.random(n) < rates[fold, group]).astype(int)
    weight = None if weight is None else weight(rng, n)
    rows = Rows(y, np.array([0, 1]), weight, {"g": group})
    cells, compiled = compile_constraints(rules or [gc.fpr() <= 0.5], rows)
    return compiled, cells, folds, decided
