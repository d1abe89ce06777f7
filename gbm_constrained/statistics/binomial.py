"""Intervals of binomial proportions and of sums of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from gbm_constrained._typing import Float

__all__ = ["clopper_pearson", "newcombe_difference", "upper_limit"]


def upper_limit(events: Any, n: Any, delta: Any) -> Float:
    """Compute the Clopper-Pearson upper limit of a binomial probability.

    The true probability exceeds the limit with probability `delta` at most.

    Parameters
    ----------
    events, n : array-like
        Numbers of events and of rows; effective numbers need not be integers.
    delta : array-like
        Probability, in (0, 1].
    """
    events, n = np.asarray(events, dtype=np.float64), np.asarray(n, dtype=np.float64)
    inside = events < n
    limit = special.betainccinv(events + 1.0, np.where(inside, n - events, 1.0), delta)
    return np.where(inside, limit, 1.0)


def _lower(events: Any, n: Any, delta: Any) -> Float:
    """Clopper-Pearson lower limit."""
    events, n = np.asarray(events, dtype=np.float64), np.asarray(n, dtype=np.float64)
    some = events > 0
    limit = special.betaincinv(np.where(some, events, 1.0), n - events + 1.0, delta)
    return np.where(some, limit, 0.0)


def clopper_pearson(
    events: ArrayLike, n: ArrayLike, level: float = 0.95
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Compute the exact two-sided interval of a binomial probability.

    Parameters
    ----------
    events, n : array-like
        Numbers of events and of rows; effective numbers need not be integers.
    level : float, default=0.95
        Smallest probability that the interval covers the truth.

    Returns
    -------
    low, high : ndarray
        Ends of the interval; NaN without rows.

    References
    ----------
    Clopper and Pearson, "The use of confidence or fiducial limits illustrated in the case of the
    binomial", Biometrika 26, 1934.
    """
    e, n = np.asarray(events, dtype=np.float64), np.asarray(n, dtype=np.float64)
    tail = (1.0 - level) / 2.0
    ends = _lower(e, n, tail), upper_limit(e, n, tail)
    low, high = (np.where(n > 0, end, np.nan) for end in ends)
    return low, high


def _wilson(events: Float, n: Float, level: float) -> tuple[Float, Float]:
    """Compute the score interval of a binomial probability (Wilson, 1927)."""
    z = float(special.ndtri(0.5 + level / 2.0))
    with np.errstate(invalid="ignore", divide="ignore"):
        rate = events / n
        middle = 2.0 * n * rate + z * z
        spread = z * np.sqrt(z * z + 4.0 * n * rate * (1.0 - rate))
        low, high = ((middle + sign * spread) / (2.0 * (n + z * z)) for sign in (-1.0, 1.0))
        # Rounding must not leave the estimate outside.
        return np.minimum(low, rate), np.maximum(high, rate)


def newcombe_difference(
    events_1: ArrayLike, n_1: ArrayLike, events_2: ArrayLike, n_2: ArrayLike, level: float = 0.95
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Compute an interval of the difference of two independent binomial probabilities.

    Wilson's intervals of both are combined by squares. The probability of covering the truth is
    close to the level and not bounded by it.

    Parameters
    ----------
    events_1, n_1, events_2, n_2 : array-like
        Numbers of events and of rows; effective numbers need not be integers.
    level : float, default=0.95
        Approximate probability that the interval covers ``p_1 - p_2``.

    Returns
    -------
    low, high : ndarray
        Ends of the interval; NaN where either probability has no rows.

    References
    ----------
    Newcombe, "Interval estimation for the difference between independent proportions: comparison
    of eleven methods", Statistics in Medicine 17, 1998, method 10.
    """
    e1, n1, e2, n2 = np.broadcast_arrays(
        *(np.asarray(x, dtype=np.float64) for x in (events_1, n_1, events_2, n_2))
    )
    # One less than the sum of the first probability and that of the other event.
    low, high = interval_of_binomials(
        np.ones(2), np.stack([e1, n2 - e2], -1), np.stack([n1, n2], -1), level
    )
    return np.maximum(low - 1.0, -1.0), np.minimum(high - 1.0, 1.0)


def interval_of_binomials(
    scale: Float,
    events: Float,
    n: Float,
    level: float,
    variance: float = 0.0,
    correlation: Float | None = None,
) -> tuple[Float, Float]:
    """Compute an interval of a sum of binomial probabilities, each times a positive number.

    Wilson's intervals are combined by squares (Zou, Huang and Zhang, "A note on confidence
    interval estimation for a linear function of binomial proportions", 2009), and by products
    where two are correlated (Zou, "Toward using confidence intervals to compare correlations",
    2007). The last axis is that of the probabilities; `variance` is that of whatever else moves
    the sum.
    """
    low, high = _wilson(events, n, level)
    with np.errstate(invalid="ignore", divide="ignore"):
        rate = events / n
    middle, other = rate @ scale, special.ndtri(0.5 + level / 2.0) ** 2 * variance
    correlation = np.eye(scale.size) if correlation is None else correlation

    def size(deviation: Float) -> Float:
        scaled = deviation * scale
        return np.asarray(np.sqrt((scaled @ correlation * scaled).sum(axis=-1) + other))

    return middle - size(rate - low), middle + size(high - rate)
