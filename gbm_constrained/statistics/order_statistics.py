"""Thresholds of a rate, and tightened bounds, that hold for the population.

A threshold is an order statistic of scores. It holds with confidence ``1 - delta``
(:func:`umbrella_threshold`), or in expectation (:func:`expected_threshold`). Constraints in
general hold in expectation at the bounds of conformal risk control (:func:`expected_bounds`).
The rows were used for nothing else, neither to train nor to choose among models or thresholds.
"""

from __future__ import annotations

from math import ceil, log, log1p

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from gbm_constrained.data.exact_sums import Communicator
from gbm_constrained.data.validation import check_share
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.statistics.counts import CellCounts, blocks_of_rows

__all__ = [
    "expected_bounds",
    "expected_rank",
    "expected_threshold",
    "minimum_rows",
    "umbrella_rank",
    "umbrella_threshold",
]


def kth_smallest(values: NDArray[np.float64], k: int, communicator: Communicator) -> float:
    """Find the k-th smallest of the values of all machines, counted from 1.

    On many machines the bits of the value are found from the highest on, by counts of the values
    that agree so far: a radix selection, which moves no value.
    """
    if communicator.holds_all_rows:
        return float(np.partition(values, k - 1)[k - 1])
    # Integers in the same order as the numbers; there is one zero.
    sign, bits = np.uint64(1 << 63), (values + 0.0).view(np.uint64)
    keys, key = np.where(bits < sign, bits | sign, ~bits), np.uint64(0)
    for shift in range(56, -1, -8):  # A table of counts decides eight bits at once.
        digits = keys >> np.uint64(shift) & np.uint64(255)
        counts = np.bincount(digits.astype(np.intp), None, 256).astype(np.float64)
        counts = communicator.sum(counts)
        below = counts.cumsum()
        digit = int(np.searchsorted(below, k))
        k -= int(below[digit] - counts[digit])
        keys = keys[digits == digit]
        key |= np.uint64(digit << shift)
    found = key ^ sign if key >= sign else ~key
    return float(np.array([found], dtype=np.uint64).view(np.float64)[0])


def minimum_rows(bound: float, delta: float) -> int:
    """Compute the smallest number of rows that can certify a rate at most `bound`.

    Rows without an event certify it where ``(1 - bound)^n <= delta``, which gives
    ``n >= log(delta) / log(1 - bound)``.

    Parameters
    ----------
    bound : float
        Bound of the rate, in (0, 1).
    delta : float
        Probability that the rate may exceed the bound, in (0, 1).

    References
    ----------
    Tong, Feng and Li, "Neyman-Pearson classification algorithms and NP receiver operating
    characteristics", Science Advances 4, 2018.
    """
    check_share("bound", bound)
    check_share("delta", delta)
    return ceil(log(delta) / log1p(-bound))


def umbrella_rank(n: int, bound: float, delta: float) -> int:
    r"""Compute the rank of the score that is a certified threshold of a rate.

    The smallest k with

    .. math:: \sum_{j=k}^{n} \binom{n}{j} (1 - \alpha)^j \alpha^{n-j} \le \delta .

    Parameters
    ----------
    n : int
        Number of scores.
    bound : float
        :math:`\alpha`, bound of the rate of scores above the threshold, in (0, 1).
    delta : float
        :math:`\delta`, probability that the rate may exceed the bound, in (0, 1).

    Returns
    -------
    int
        k: the threshold is the k-th smallest score, counted from 1.

    Raises
    ------
    ValueError
        If there are fewer scores than :func:`minimum_rows`, or a probability is out of range.

    References
    ----------
    Tong, Feng and Li, 2018, Proposition 1: see :func:`minimum_rows`.
    """
    needed = minimum_rows(bound, delta)
    if n < needed:
        raise ValueError(
            f"A bound of {bound:g} cannot be certified with probability {1.0 - delta:g} on {n} "
            f"rows: it needs {needed} at least. Give more rows, or raise the bound or delta."
        )
    # sf(k - 1) is the sum from k on, and isf the smallest argument at which sf is delta at most.
    return min(int(stats.binom.isf(delta, n, 1.0 - bound)) + 1, n)


def umbrella_threshold(
    scores: ArrayLike,
    bound: float,
    delta: float,
    communicator: Communicator = Communicator(),  # noqa: B008 - has no state
) -> float:
    """Compute the smallest certified threshold of a rate of scores above it.

    For rows of one class that were used for nothing else, with scores that rise with the evidence
    for the other class, ``P(score > threshold) <= bound`` in the population with probability
    ``1 - delta`` at least. For the miss rate of the positive class the scores are the margins of
    its rows times -1. See :func:`umbrella_rank`.

    Parameters
    ----------
    scores : array-like of shape (n,)
        A score of each row; ties are on the safe side.
    bound : float
        Largest allowed rate.
    delta : float
        Probability that the rate is larger.
    communicator : Communicator, default=Communicator()
        Machines that hold the scores together.
    """
    values, n = _check_scores(scores, communicator)
    return kth_smallest(values, umbrella_rank(n, bound, delta), communicator)


def _check_scores(
    scores: ArrayLike, communicator: Communicator
) -> tuple[NDArray[np.float64], int]:
    """Check scores, and count those of all machines."""
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 1 or np.isnan(values).any():
        raise ValueError("scores must be one-dimensional and not NaN: give one for each row.")
    return values, int(communicator.sum(np.array([values.size], dtype=np.float64))[0])


def expected_rank(n: int, bound: float) -> int:
    """Compute the rank of the score that is a threshold of a rate which holds in expectation.

    ``k = ceil((n + 1)(1 - bound))``: a further score, exchangeable with these, is above the k-th
    smallest with probability `bound` at most, over the draw of all of them.

    Parameters
    ----------
    n : int
        Number of scores.
    bound : float
        Bound of the rate of scores above the threshold, in (0, 1).

    Returns
    -------
    int
        k: the threshold is the k-th smallest score, counted from 1.

    Raises
    ------
    ValueError
        If there are fewer than ``1 / bound - 1`` scores, or `bound` is out of range.

    References
    ----------
    Angelopoulos, Bates, Fisch, Lei and Schuster, "Conformal risk control", ICLR 2024, Theorem 1,
    for the loss that counts scores above a threshold: split conformal prediction.
    """
    check_share("bound", bound)
    k = max(ceil((n + 1) * (1.0 - bound) - 1e-9), 1)
    if k > n:
        raise ValueError(
            f"A bound of {bound:g} cannot hold in expectation by {n} rows: it needs "
            f"{ceil(1.0 / bound - 1.0 - 1e-9)} at least. Give more rows, or raise the bound."
        )
    return k


def expected_threshold(
    scores: ArrayLike,
    bound: float,
    communicator: Communicator = Communicator(),  # noqa: B008 - has no state
) -> float:
    """Compute the threshold of a rate of scores above it that holds in expectation.

    Parameters
    ----------
    scores : array-like of shape (n,)
        A score of each row, as for :func:`umbrella_threshold`.
    bound : float
        Largest allowed rate, in the mean over samples: see :func:`expected_rank`.
    communicator : Communicator, default=Communicator()
        Machines that hold the scores together.
    """
    values, n = _check_scores(scores, communicator)
    return kth_smallest(values, expected_rank(n, bound), communicator)


def expected_bounds(compiled: LinearConstraints, counts: CellCounts) -> NDArray[np.float64]:
    r"""Compute the right-hand sides that rows of constraints must meet to hold in expectation.

    A bounded loss with empirical mean r on n rows is controlled in expectation by the most
    permissive of nested decisions with

    .. math:: \frac{n}{n + 1} r + \frac{\text{high}}{n + 1} \le b
        \iff r \le b - \frac{\text{high} - b}{n} ,

    where `high` is the largest value of the loss: 1 for a rate. The theorem [1]_ is for one base
    set, a loss that is monotone along the decisions chosen from, and exchangeable rows. Rows with
    several base sets (gaps) are tightened by the sum of ``(high - low) / (n + 1)`` over these, and
    unequal weights count as their effective number: sensible, not proved.

    Parameters
    ----------
    compiled : LinearConstraints
        The constraints.
    counts : CellCounts
        Any decisions: only the sizes of base sets matter.

    Returns
    -------
    ndarray of shape (..., m)
        In the place of `compiled.b`; ``-inf`` where a base set has no rows, NaN for mean losses,
        which no decision can then meet.

    References
    ----------
    .. [1] Angelopoulos et al., "Conformal risk control", Theorem 1: see :func:`expected_rank`.
    """
    bounds = np.full((*counts.weight.shape[:-2], len(compiled)), np.nan)
    for j, blocks in enumerate(blocks_of_rows(compiled)):
        if not blocks:
            continue
        b, slack = float(compiled.b[j]), np.zeros(bounds.shape[:-1])
        for block in blocks:
            n = block.effective_rows(counts)
            with np.errstate(invalid="ignore", divide="ignore"):
                alone = max(block.high - b, 0.0) / n
            own = alone if len(blocks) == 1 else block.width / (n + 1.0)
            slack = slack + np.where(n > 0, own, np.inf)
        bounds[..., j] = b - slack
    return bounds
