"""Tests of many hypotheses: learn then test."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["learn_then_test"]


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
