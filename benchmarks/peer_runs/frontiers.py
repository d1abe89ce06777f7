"""Frontiers of accuracy against what a rule bounds, and what is read from them.

A frontier is drawn through the points that no other point beats in both, with straight lines
between them (whoever draws one of two decisions at random is on the line), level to the right of
the last one and nothing to the left of the first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import stats


def envelope(values: Any, accuracies: Any) -> tuple[Any, Any]:
    """Points of smallest value for their accuracy, in order of both; NaN is no point."""
    values, accuracies = np.asarray(values, dtype=float), np.asarray(accuracies, dtype=float)
    order = np.lexsort((-accuracies, values))
    order = order[np.isfinite(values[order]) & np.isfinite(accuracies[order])]
    best = np.maximum.accumulate(accuracies[order])
    better = np.diff(best, prepend=-np.inf) > 0
    return values[order][better], accuracies[order][better]


def accuracy_at(values: Any, accuracies: Any, at: Any) -> Any:
    """Accuracy of the envelope where the value is `at`; NaN to the left of all points."""
    x, y = envelope(values, accuracies)
    if x.size == 0:
        return np.full(np.shape(at), np.nan)
    return np.interp(at, x, y, left=np.nan)


def hypervolume(
    values: Any, accuracies: Any, reference_value: float, reference_accuracy: float
) -> float:
    """Area between the envelope and the reference point, divided by the reference value.

    That is, the mean over bounds in [0, `reference_value`] of the accuracy above
    `reference_accuracy`, which is 0 where no point is or where it is below.
    """
    x, y = envelope(values, accuracies)
    inside = x < reference_value
    if not inside.any():
        return 0.0
    end = np.interp(reference_value, x, y)
    x = np.append(x[inside], reference_value)
    y = np.append(y[inside], end) - reference_accuracy
    # Where it crosses the reference accuracy, the area starts.
    if y[0] < 0 < y[-1]:
        start = np.interp(0.0, y, x)
        x, y = np.append(start, x[y > 0]), np.append(0.0, y[y > 0])
    return float(np.trapezoid(np.maximum(y, 0.0), x) / reference_value)


def jackknife_interval(
    statistic: Callable[[list[int]], float], n: int, level: float = 0.95
) -> tuple[float, float, float]:
    """Estimate of a statistic of `n` splits, and its interval from leaving out one after another.

    Parameters
    ----------
    statistic : callable
        Its value from the splits of the given positions.
    n : int
        Number of splits; of fewer than two, the interval is the whole line.
    """
    whole = list(range(n))
    estimate = statistic(whole)
    if n < 2:
        return estimate, -np.inf, np.inf
    without = np.array([statistic([j for j in whole if j != i]) for i in whole])
    pseudo = n * estimate - (n - 1) * without
    half = stats.t.ppf(0.5 + level / 2, n - 1) * pseudo.std(ddof=1) / np.sqrt(n)
    return estimate, estimate - half, estimate + half
