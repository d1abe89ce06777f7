"""Certificates: thresholds and choices that hold for the population, with a stated confidence.

A threshold of one rate is an order statistic: one that holds with confidence ``1 - delta``
(:func:`umbrella_threshold`), or in expectation (:func:`expected_threshold`), where rules in
general meet the tighter bounds of conformal risk control (:func:`expected_bounds`). Among many
decisions those are certified whose p-values (:mod:`gbm_constrained.statistics.p_values`) pass a
procedure that certifies none of them wrongly, with confidence ``1 - delta``. Each function names
its source.

The rows must have been used for nothing else, neither to train nor to choose among models or
thresholds, unless the choice itself is a procedure of this module.
"""

from __future__ import annotations

from math import ceil, log, log1p
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from gbm_constrained.data.validation import check_share
from gbm_constrained.problem.linear_constraints import CompiledConstraints
from gbm_constrained.statistics.counts import CellCounts, blocks_of_rows
from gbm_constrained.statistics.multiple_testing import learn_then_test

__all__ = [
    "expected_bounds",
    "expected_rank",
    "expected_slack",
    "expected_threshold",
    "fixed_sequence",
    "holm",
    "minimum_rows",
    "umbrella_rank",
    "umbrella_threshold",
]


def minimum_rows(bound: float, delta: float) -> int:
    """Smallest number of rows that can certify a rate at most `bound`: all without an event.

    ``(1 - bound)^n <= delta`` gives ``n >= log(delta) / log(1 - bound)``.

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
    r"""Rank of the score that is a certified threshold of a rate.

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
        If there are fewer scores than :func:`minimum_rows`, or `bound` or `delta` are not in
        (0, 1).

    References
    ----------
    Tong, Feng and Li, "Neyman-Pearson classification algorithms and NP receiver operating
    characteristics", Science Advances 4, 2018, Proposition 1.
    """
    needed = minimum_rows(bound, delta)
    if n < needed:
        raise ValueError(
            f"A bound of {bound:g} cannot be certified with probability {1.0 - delta:g} on {n} "
            f"rows: it needs {needed} at least. Give more rows, or raise the bound or delta."
        )
    # sf(k - 1) is the sum from k on, and isf the smallest argument at which sf is delta at most.
    return min(int(stats.binom.isf(delta, n, 1.0 - bound)) + 1, n)


def umbrella_threshold(scores: ArrayLike, bound: float, delta: float) -> float:
    """Smallest certified threshold of a rate of scores above it.

    For rows of one class that were used for nothing else, with scores that speak for the other
    class, ``P(score > threshold) <= bound`` in the population with probability ``1 - delta`` at
    least. For the miss rate of the positive class these are the margins of its rows times -1.

    Parameters
    ----------
    scores : array-like of shape (n,)
        A score of each row; ties are on the safe side.
    bound : float
        Largest allowed rate.
    delta : float
        Probability that the rate is larger in spite of it.

    References
    ----------
    Tong, Feng and Li, 2018, Proposition 1: see :func:`umbrella_rank`.
    """
    values = _checked(scores)
    return _smallest(values, umbrella_rank(values.size, bound, delta))


def _checked(scores: ArrayLike) -> NDArray[np.float64]:
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 1 or np.isnan(values).any():
        raise ValueError("scores must be one-dimensional and not NaN: give one for each row.")
    return values


def _smallest(values: NDArray[np.float64], k: int) -> float:
    """Give the k-th smallest value, counted from 1."""
    return float(np.partition(values, k - 1)[k - 1])


def expected_rank(n: int, bound: float) -> int:
    r"""Rank of the score that is a threshold of a rate which holds in expectation.

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
        If there are fewer than ``1 / bound - 1`` scores, or `bound` is not in (0, 1).

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


def expected_threshold(scores: ArrayLike, bound: float) -> float:
    """Threshold of a rate of scores above it that holds in expectation.

    Parameters
    ----------
    scores : array-like of shape (n,)
        A score of each row, as for :func:`umbrella_threshold`.
    bound : float
        Largest allowed rate, in the mean over samples.

    References
    ----------
    Angelopoulos et al., 2024, Theorem 1: see :func:`expected_rank`.
    """
    values = _checked(scores)
    return _smallest(values, expected_rank(values.size, bound))


def expected_slack(n: ArrayLike) -> Any:
    """Bound what one more row can add to the rate of `n` rows: ``1 / (n + 1)``.

    Parameters
    ----------
    n : array-like
        Numbers of rows.
    """
    return (1.0 / (np.asarray(n, dtype=np.float64) + 1.0))[()]


def expected_bounds(compiled: CompiledConstraints, counts: CellCounts) -> NDArray[np.float64]:
    r"""Right-hand sides that rows of constraints must meet to hold in expectation.

    A bounded loss with empirical mean r on n rows is controlled in expectation by the most
    permissive of nested decisions with

    .. math:: \frac{n}{n + 1} r + \frac{\text{high}}{n + 1} \le b
        \iff r \le b - \frac{\text{high} - b}{n} ,

    where `high` is the largest value of the loss: 1 for a rate. That is a theorem for one base
    set, a loss that is monotone along the decisions chosen from, and rows exchangeable with those
    to come. Rows with several base sets (gaps) are tightened by the sum of ``(high - low) / (n +
    1)`` over these, and unequal weights count as their effective number: sensible, not proved.

    Parameters
    ----------
    compiled : CompiledConstraints
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
    Angelopoulos, Bates, Fisch, Lei and Schuster, "Conformal risk control", ICLR 2024, Theorem 1.
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
            own = alone if len(blocks) == 1 else block.width * expected_slack(n)
            slack = slack + np.where(n > 0, own, np.inf)
        bounds[..., j] = b - slack
    return bounds


def fixed_sequence(p_values: ArrayLike, delta: float) -> NDArray[np.intp]:
    """Certify hypotheses in a given order, until the first that fails.

    The order must not depend on the rows tested on. The first true null hypothesis in it is
    rejected with probability `delta` at most, and none before it is an error: no correction for
    their number.

    Parameters
    ----------
    p_values : array-like of shape (length,)
        Valid p-values, in order.
    delta : float
        Probability of any error.

    Returns
    -------
    ndarray of int
        Positions of the certified ones: the first so many.

    References
    ----------
    Angelopoulos, Bates, Candes, Jordan and Lei, "Learn then test", 2021, on fixed sequence
    testing.
    """
    return np.flatnonzero(learn_then_test(np.asarray(p_values)[None], delta)[0])


def holm(p_values: ArrayLike, delta: float) -> NDArray[np.bool_]:
    """Certify hypotheses by the step-down procedure, valid however their p-values depend.

    Parameters
    ----------
    p_values : array-like of shape (n,)
        Valid p-values.
    delta : float
        Probability of any error.

    Returns
    -------
    ndarray of shape (n,), bool
        Which are certified.

    References
    ----------
    Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of
    Statistics 6, 1979.
    """
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p)
    certified = np.zeros(p.size, dtype=bool)
    met = p[order] <= delta / np.arange(p.size, 0, -1)
    certified[order] = np.logical_and.accumulate(met)
    return certified
