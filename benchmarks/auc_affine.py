"""An affine change of one group's scores, which needs the group at prediction.

The margins of women become ``slope * margin + shift``. Of a grid of both, that of the largest AUC
is taken among those that meet the rule on margins out of fold. It cannot change the gap of `auc`.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from auc_data import OWN, Score, load_split, make, measure_pairs
from numpy.typing import NDArray
from scipy.special import logit
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from gbm_constrained.problem.pairs import pair_rate, pair_table

AFFINE_FIGURES = ("held_out", "test_gap", "test_auc", "slope", "shift")
SLOPES = np.linspace(0.6, 1.4, 9)
SHIFTS = np.linspace(-3.0, 3.0, 121)
N_FOLDS = 4
WOMEN = "Female"


def measure_affine(library: str, rule: str, bound: float) -> dict[str, float]:
    """Choose an affine change out of fold, and measure it on test rows."""
    rows = load_split(OWN)
    folds = StratifiedKFold(N_FOLDS, shuffle=True, random_state=0)
    plain = make(library, [])
    p = cross_val_predict(plain, rows.X, rows.y, cv=folds, method="predict_proba")[:, 1]
    slope, shift, held_out = choose(logit(p), rows.y, rows.group == WOMEN, rule, bound)
    margin = logit(plain.fit(rows.X, rows.y).predict_proba(rows.X_test)[:, 1])
    changed = np.where(rows.group_test == WOMEN, slope * margin + shift, margin)
    found = measure_pairs(rows.y_test, changed, rows.group_test)
    return {
        "held_out": held_out,
        "test_gap": found[rule],
        "test_auc": found["test_auc"],
        "slope": slope,
        "shift": shift,
    }


def choose(
    margin: Score, y: Any, is_woman: NDArray[np.bool_], rule: str, bound: float
) -> tuple[float, float, float]:
    """Find slope and shift of the largest AUC under the rule, and the gap that they leave."""
    # Cells are men's negatives and positives, then women's.
    cells = y + 2 * is_woman
    weight = np.bincount(cells, minlength=4).astype(np.float64)
    best: tuple[float, Any] = (-1.0, None)
    for slope, shift in itertools.product(SLOPES, SHIFTS):
        changed = np.where(is_woman, slope * margin + shift, margin)
        table = pair_table(changed, cells, None, 4)
        found = gap_of(table, weight, rule)
        value = pair_rate(table, weight * [0, 1, 0, 1], weight * [1, 0, 1, 0])
        if abs(found) <= bound and value > best[0]:
            best = (value, (float(slope), float(shift), found))
    if best[1] is None:
        raise ValueError(f"No affine change meets {rule} <= {bound} out of fold: widen the grid.")
    return best[1]


def gap_of(table: Any, weight: Any, rule: str) -> float:
    """Compute a gap of women less men from the table of pairs."""

    def rate(first: Any, second: Any) -> float:
        return pair_rate(table, weight * first, weight * second)

    every = np.ones(4)
    if rule == "mean_rank":
        return rate([0, 0, 1, 1], every) - rate([1, 1, 0, 0], every)
    if rule == "cross_auc":
        return rate([0, 0, 0, 1], [1, 0, 0, 0]) - rate([0, 1, 0, 0], [0, 0, 1, 0])
    return rate([0, 1, 0, 1], [0, 0, 1, 0]) - rate([0, 0, 0, 1], [1, 0, 1, 0])
