"""Shifts of scores that minimise a black-box loss: one threshold, or one for each group."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gbm_constrained._typing import Codes, Float

N_PASSES = 2  # Over the groups; the best threshold of one depends on those of the others.


def find_shift(
    loss: Callable[[Float], float], scores: Float, n_calls: int, rows: Codes | None = None
) -> tuple[float, float]:
    """Find the shift of scores with the smallest loss.

    The shifts put the threshold below all scores, above all, or between two of them. If there are
    more than `n_calls`, half of the calls are spread evenly over them, and the other half over
    those next to the best one.

    Parameters
    ----------
    loss : callable
        Loss of scores.
    scores : ndarray of shape (n_samples,)
        Scores.
    n_calls : int
        Most calls of the loss, at least 4.
    rows : ndarray of int of shape (n,), default=None
        Rows that are shifted; all rows by default.

    Returns
    -------
    shift : float
        What is added to the scores. Of equal losses, the smallest shift in size counts.
    value : float
        Loss of the shifted scores.
    """
    shifted = slice(None) if rows is None else rows
    shifts = -_thresholds(scores[shifted])
    losses: dict[int, float] = {}

    def measure(positions: Float) -> int:
        for i in np.unique(np.rint(positions).astype(int)).tolist():
            if i not in losses:
                moved = scores.copy()
                moved[shifted] += shifts[i]
                losses[i] = loss(moved)
        return min(losses, key=lambda i: (losses[i], abs(shifts[i])))

    if shifts.size <= n_calls:
        best = measure(np.arange(shifts.size, dtype=float))
    else:
        best = measure(np.linspace(0, shifts.size - 1, n_calls // 2))
        step = (shifts.size - 1) / (n_calls // 2 - 1)
        low, high = max(best - step, 0.0), min(best + step, shifts.size - 1.0)
        best = measure(np.linspace(low, high, n_calls - len(losses)))
    return float(shifts[best]), losses[best]


def _thresholds(scores: Float) -> Float:
    """Find a threshold in each gap between sorted scores, and one on either side of them."""
    known = np.unique(scores)
    between = (known[:-1] + known[1:]) / 2.0
    return np.concatenate([[known[0] - 1.0], between, [known[-1] + 1.0]])


def find_group_shifts(
    loss: Callable[[Float], float],
    scores: Float,
    groups: Codes,
    n_groups: int,
    n_calls: int,
    value: float = np.inf,
) -> tuple[Float, float]:
    """Find a shift of each group's scores, group by group.

    Parameters
    ----------
    loss : callable
        Loss of scores.
    scores : ndarray of shape (n_samples,)
        Scores, usually those at the best common threshold.
    groups : ndarray of int of shape (n_samples,)
        Group of each row, counted from zero. Rows of no group have larger numbers.
    n_groups : int
        Number of groups.
    n_calls : int
        Most calls of the loss, at least 8 for each group.
    value : float, default=inf
        Loss of the scores, which each shift has to lower. By default the first one need not.

    Returns
    -------
    shifts : ndarray of shape (n_groups,)
        What is added to the scores of each group; zero for a group without rows.
    value : float
        Loss of the shifted scores, at most the one that is given.
    """
    shifts = np.zeros(max(n_groups, int(groups.max()) + 1))
    present = [g for g in range(n_groups) if (groups == g).any()]
    each = n_calls // (N_PASSES * n_groups)
    for g in present * N_PASSES:
        rows = np.flatnonzero(groups == g)
        shift, found = find_shift(loss, scores + shifts[groups], each, rows)
        if found < value:
            shifts[g] += shift
            value = found
    return shifts[:n_groups], value
