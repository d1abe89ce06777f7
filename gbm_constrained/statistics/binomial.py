r"""Binomial proportions: intervals, tests of sums of two, and tests of many hypotheses.

With :math:`X_k \sim \mathrm{Bin}(n_k, q_k)` independent and weights :math:`w_k > 0` the null
hypothesis is :math:`w_1 q_1 + w_2 q_2 \ge c`. A difference of rates is such a sum: of one rate,
and of the probability that the other event does not happen.

Data are ordered by Agresti and Caffo's upper limit of the sum [1]_,

.. math:: U(x) = \sum_k w_k \tilde q_k + 2 \sqrt{\sum_k w_k^2 \tilde q_k (1 - \tilde q_k) / N_k},
    \qquad \tilde q_k = \frac{x_k + 1}{N_k}, \quad N_k = n_k + 2,

which increases in each count: its derivative by :math:`\tilde q_k` is at least :math:`w_k` times
one minus :math:`|1 - 2 \tilde q_k| / \sqrt{N_k \tilde q_k (1 - \tilde q_k)}`, and that ratio is
below 1. So :math:`S = \{x: U(x) \le U(x_{obs})\}` holds all smaller counts with any, and its
probability falls in :math:`q_1` and in :math:`q_2`: under the null hypothesis it is largest where
:math:`w_1 q_1 + w_2 q_2 = c`. Which point of that line is true is unknown. With an exact interval
for :math:`q_2` that fails with probability :math:`\gamma` [2]_,

.. math:: p = \sup_{q_2 \in C_\gamma} P\bigl(S; (c - w_2 q_2) / w_1, q_2\bigr) + \gamma

is valid. Here the supremum is bounded from above: on :math:`[a, b]` the probability is at most
that of :math:`q_2 = a` with :math:`q_1 = (c - w_2 b) / w_1`, and the interval is cut into many
such cells. This is the unconditional test of Chan [3]_ with an order that does not depend on the
bound, so that the p-value falls where the bound is raised.

References
----------
.. [1] Agresti and Caffo, "Simple and effective confidence intervals for proportions and
   differences of proportions result from adding two successes and two failures", The American
   Statistician 54, 2000.
.. [2] Berger and Boos, "P values maximized over a confidence set for the nuisance parameter",
   JASA 89, 1994, Lemma 1.
.. [3] Chan, "Exact tests of equivalence and efficacy with a non-zero lower bound for comparative
   studies", Statistics in Medicine 17, 1998.
"""

from __future__ import annotations

from functools import lru_cache
from math import exp, sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from gbm_constrained._typing import Bool, Codes, Float
from gbm_constrained.constraints.base import ROUNDING

__all__ = ["clopper_pearson", "learn_then_test", "newcombe_difference", "upper_limit"]


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


def lower_limit(events: Any, n: Any, delta: Any) -> Float:
    """Compute the Clopper-Pearson lower limit of a binomial probability; see `upper_limit`."""
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
    ends = lower_limit(e, n, tail), upper_limit(e, n, tail)
    low, high = (np.where(n > 0, end, np.nan) for end in ends)
    return low, high


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

    Wilson's score intervals (1927) are combined by squares (Zou, Huang and Zhang, "A note on
    confidence interval estimation for a linear function of binomial proportions", 2009), and by
    products where two are correlated (Zou, "Toward using confidence intervals to compare
    correlations", 2007). The last axis is that of the probabilities; `variance` is that of
    whatever else moves the sum.
    """
    z = float(special.ndtri(0.5 + level / 2.0))
    correlation = np.eye(scale.size) if correlation is None else correlation
    with np.errstate(invalid="ignore", divide="ignore"):
        rate = events / n
        middle = 2.0 * n * rate + z * z
        spread = z * np.sqrt(z * z + 4.0 * n * rate * (1.0 - rate))
        low, high = ((middle + sign * spread) / (2.0 * (n + z * z)) for sign in (-1.0, 1.0))
        # Rounding must not leave the estimate outside.
        deviations = rate - np.minimum(low, rate), np.maximum(high, rate) - rate
    down, up = (
        np.sqrt((scaled @ correlation * scaled).sum(axis=-1) + z**2 * variance)
        for scaled in (deviation * scale for deviation in deviations)
    )
    return rate @ scale - down, rate @ scale + up


GAMMA = 1e-5  # Level of Berger and Boos' interval: no p-value is smaller.
LOG_TAIL = 13.0  # Counts beyond a probability of exp(-13) are left out, and exp(-13) is added.


class Binomial(NamedTuple):
    """Counts of a binomial variable, and the positive weight of its probability in a sum."""

    events: float  # An integer, as `n` is.
    n: float
    weight: float = 1.0


# From one threshold to the next the counts of few pairs of groups change.
@lru_cache(maxsize=1 << 16)
def sum_p_value(first: Binomial, second: Binomial, bound: float) -> float:
    """Compute the p-value of "a weighted sum of two binomial probabilities exceeds a bound".

    The p-value is valid for all probabilities. It is 1 without rows or where the estimate is no
    better than the bound, 0 where the sum cannot exceed the bound, and 1e-5 at least otherwise. It
    falls with the bound, and never with more events of the variable with the larger
    ``weight^2 / n``. With more events of the other, whose interval moves along, it may fall by
    little.
    """
    if first.weight**2 * second.n < second.weight**2 * first.n:
        first, second = second, first  # The better known one is the nuisance parameter.
    (x_1, n_1, w_1), (x_2, n_2, w_2) = first, second
    if not (n_1 > 0 and n_2 > 0):
        return 1.0
    if w_1 + w_2 <= bound + ROUNDING:
        return 0.0
    if w_1 * x_1 / n_1 + w_2 * x_2 / n_2 >= bound:
        return 1.0
    low, high = lower_limit(x_2, n_2, GAMMA / 2.0), upper_limit(x_2, n_2, GAMMA / 2.0)
    # 200 cells of the nuisance parameter's interval, equally wide in standard errors.
    angle = np.linspace(np.arcsin(sqrt(low)), np.arcsin(sqrt(high)), 201)
    edges = np.clip(np.sin(angle) ** 2, low, high)
    edges[0], edges[-1] = low, high
    q_2, q_1 = edges[:-1], np.maximum((bound - w_2 * edges[1:]) / w_1, 0.0)
    possible = q_1 <= 1.0
    if not possible.any():
        return GAMMA
    q_1, q_2 = q_1[possible], q_2[possible]
    seen_1, seen_2 = _window(n_1, q_1.min(), q_1.max()), _window(n_2, q_2[0], q_2[-1])
    below = _largest(seen_2, first, second)
    cumulative = np.zeros((q_1.size, seen_1.size + 1))
    np.cumsum(_probabilities(seen_1, n_1, q_1), axis=1, out=cumulative[:, 1:])
    cumulative[:, -1] = 1.0  # All counts, also those beyond the window.
    at = np.clip(below - (int(seen_1[0]) - 1), 0, seen_1.size)
    inside = np.einsum("gx,gx->g", _probabilities(seen_2, n_2, q_2), cumulative[:, at])
    return float(min(inside.max() + 3.0 * exp(-LOG_TAIL) + GAMMA, 1.0))


def _window(n: float, low: float, high: float) -> Codes:
    """List the counts that a binomial with a probability from `low` to `high` hardly leaves.

    Each side has a probability of ``exp(-LOG_TAIL)`` at most, by Bernstein's inequality.
    """

    def distance(q: float) -> float:
        return LOG_TAIL / 3.0 + sqrt(LOG_TAIL**2 / 9.0 + 2.0 * LOG_TAIL * n * q * (1.0 - q))

    first = max(int(np.floor(n * low - distance(low))), 0)
    last = min(int(np.ceil(n * high + distance(high))), int(n))
    return np.arange(first, last + 1)


def _probabilities(counts: Codes, n: float, q: Float) -> Float:
    """Compute ``P(Bin(n, q) = x)``, of shape (len(q), len(counts))."""
    x = counts.astype(np.float64)
    choose = special.gammaln(n + 1.0) - special.gammaln(x + 1.0) - special.gammaln(n - x + 1.0)
    inside = np.clip(q, 1e-300, 1.0 - 1e-16)
    odds = np.log(inside) - np.log1p(-inside)
    exponent = np.multiply.outer(odds, x)
    exponent += choose
    exponent += n * np.log1p(-inside)[:, None]
    return np.asarray(np.exp(exponent, out=exponent))


def _largest(counts: Codes, first: Binomial, second: Binomial) -> Codes:
    """Find the largest first count that is no worse than the observed counts; -1 for none.

    The result has an entry for each of the second counts. With the second count given,
    ``U(x) <= U(x_obs)`` is a quadratic inequality in the first.
    """
    (x_1, n_1, w_1), (x_2, n_2, w_2) = first, second
    N_1, N_2 = n_1 + 2.0, n_2 + 2.0

    def parts(x: Codes | float, N: float, w: float) -> tuple[Float, Float]:
        q = (np.asarray(x, dtype=np.float64) + 1.0) / N
        return w * q, w * w * q * (1.0 - q) / N

    (sum_1, square_1), (sum_2, square_2) = parts(x_1, N_1, w_1), parts(x_2, N_2, w_2)
    limit = sum_1 + sum_2 + 2.0 * np.sqrt(square_1 + square_2)
    rest, square = parts(counts, N_2, w_2)

    def meets(x: float) -> Bool:
        own, own_square = parts(x, N_1, w_1)
        return np.asarray(own + rest + 2.0 * np.sqrt(own_square + square) <= limit)

    left, h = limit - rest, 4.0 / N_1
    middle = left + h * w_1 / 2.0
    root = middle - np.sqrt(np.maximum(middle**2 - (1.0 + h) * (left**2 - 4.0 * square), 0.0))
    largest = np.floor(root / (1.0 + h) * N_1 / w_1 - 1.0 + 1e-9)
    largest = np.where(meets(n_1), n_1, np.where(meets(0.0), np.clip(largest, 0.0, n_1), -1.0))
    return np.where(counts == x_2, np.maximum(largest, x_1), largest).astype(np.intp)


def learn_then_test(p_values: ArrayLike, delta: float) -> NDArray[np.bool_]:
    """Certify hypotheses along several sequences, each until its first that fails.

    Each sequence is tested in its order, with an equal share of `delta`, until the first p-value
    above the share. The first true null hypothesis of a sequence is rejected with the probability
    of that share at most, and no hypothesis before it is an error.

    Parameters
    ----------
    p_values : array-like of shape (n_sequences, length)
        Valid p-values, in orders that do not depend on the rows tested on.
    delta : float
        Probability of any error.

    Returns
    -------
    ndarray of shape (n_sequences, length), bool
        Whether a hypothesis is certified. Any certified one may be chosen, by any criterion and on
        the same rows.

    References
    ----------
    Angelopoulos, Bates, Candes, Jordan and Lei, "Learn then test: calibrating predictive
    algorithms to achieve risk control", 2021, Theorem 1 and fixed sequence testing with several
    starting points.
    """
    p = np.asarray(p_values, dtype=np.float64)
    return np.logical_and.accumulate(p <= delta / len(p), axis=1)
