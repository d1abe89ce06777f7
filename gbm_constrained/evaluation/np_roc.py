"""The Neyman-Pearson ROC band."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from gbm_constrained._messages import join_truncated
from gbm_constrained.constraints.checking import find_positive_class
from gbm_constrained.data.validation import as_labels, check_alignment, check_share
from gbm_constrained.statistics.binomial import lower_limit, upper_limit

__all__ = ["np_roc_band"]


def np_roc_band(
    scores: ArrayLike,
    y: ArrayLike,
    delta: float = 0.05,
    *,
    alpha: ArrayLike | None = None,
    positive: Hashable | None = None,
) -> pd.DataFrame:
    r"""Compute the Neyman-Pearson ROC band of a score.

    The empirical ROC curve promises nothing: a threshold that lets 5% of some negatives through
    lets more than 5% through in about half of all cases. The band holds thresholds that keep a
    type I error with probability :math:`1 - \delta`, and bounds the type II error of each.

    A row is called positive when its score is above the threshold. With the scores of n negatives
    in order, :math:`t_{(1)} \le \dots \le t_{(n)}`, the type I error of :math:`t_{(k)}` exceeds
    :math:`\alpha` with probability at most

    .. math:: v(k) = \sum_{j=k}^n \binom{n}{j} (1 - \alpha)^j \alpha^{n-j}
        = P(\mathrm{Beta}(k, n - k + 1) \le 1 - \alpha),

    whatever the distribution of the score, with equality when it is continuous. The *umbrella*
    threshold is the smallest with :math:`v(k) \le \delta` [1]_; solved for the bound,
    :math:`t_{(k)}` serves every :math:`\alpha` from one minus the :math:`\delta`-quantile of that
    Beta distribution on.

    Given the threshold, which depends on negatives only, the number of m positives at or below it
    is binomial with the type II error. Inverting its tails at :math:`\delta / 2` each bounds that
    error from both sides with probability :math:`1 - \delta`.

    Parameters
    ----------
    scores : array-like of shape (n_samples,)
        Scores of rows that the model was not trained on; larger means positive.
    y : array-like of shape (n_samples,)
        Labels of two classes.
    delta : float, default=0.05
        Probability with which each statement may fail.
    alpha : array-like, default=None
        Type I error bounds. By default, for every threshold among the negatives' scores the
        smallest that it serves, and 0, for which only an infinite threshold does.
    positive : label, default=None
        The positive class; by default the last of the sorted labels.

    Returns
    -------
    DataFrame
        One row for each bound, by increasing `alpha`: ``alpha``, ``threshold``, the empirical
        ``fpr`` and ``fnr`` of the threshold on these rows, and ``fnr_lower`` and ``fnr_upper``.
        Between two rows, the first one's threshold is the best that is known.

    Raises
    ------
    TypeError, ValueError
        If scores or labels are not of equal length and finite, if there are not two classes, if
        `positive` is none of these, or if `delta` or `alpha` are not probabilities.

    Notes
    -----
    Each row's statements hold with their probability by themselves, not all rows at once: choose
    `alpha` before looking, or correct for the choice. A bound smaller than
    :math:`1 - \delta^{1/n}` is beyond n negatives: the threshold is then infinite, and every
    positive is missed.

    References
    ----------
    .. [1] Tong, Feng and Li, "Neyman-Pearson classification algorithms and NP receiver operating
       characteristics", Science Advances, 2018, Proposition 1 and the section on NP-ROC bands.
    """
    check_share("delta", delta)
    score, labels = np.asarray(scores, dtype=np.float64), np.asarray(y)
    if score.ndim != 1 or labels.ndim != 1 or score.size != labels.size:
        raise ValueError(
            f"scores and y must be one-dimensional and equally long, got shapes {score.shape} and "
            f"{labels.shape}: give one score, that of the positive class, for each label."
        )
    if not np.isfinite(score).all():
        raise ValueError(
            f"scores must be finite, got {score[~np.isfinite(score)][0]} in row "
            f"{np.flatnonzero(~np.isfinite(score))[0]}: drop those rows."
        )
    classes = np.unique(as_labels(labels))
    if classes.size != 2:
        raise ValueError(
            f"y must hold two classes, negatives and positives, got "
            f"[{join_truncated(list(map(repr, classes.tolist())))}]: with "
            f"several classes, give y == k and the score of class k."
        )
    check_alignment({"scores": scores, "y": y})
    label = find_positive_class(classes, positive)
    is_positive = labels == (classes[1] if label is None else label)
    negatives, positives = np.sort(score[~is_positive]), np.sort(score[is_positive])
    n, m = negatives.size, positives.size
    k = np.arange(n, 0, -1)  # Thresholds fall from the largest.
    serves = np.concatenate([[0.0], 1.0 - lower_limit(k, n, delta)])
    threshold = np.concatenate([[np.inf], negatives[::-1]])
    if alpha is not None:
        wanted = np.sort(np.atleast_1d(np.asarray(alpha, dtype=np.float64)))
        if wanted.ndim != 1 or not ((wanted >= 0.0) & (wanted <= 1.0)).all():
            raise ValueError(f"alpha must hold type I errors in [0, 1], got {alpha!r}.")
        threshold = threshold[np.searchsorted(serves, wanted, side="right") - 1]
        threshold[wanted == 1.0] = -np.inf
        serves = wanted
    missed = np.searchsorted(positives, threshold, side="right")
    lower, upper = lower_limit(missed, m, delta / 2), upper_limit(missed, m, delta / 2)
    lower[np.isposinf(threshold)] = 1.0  # No row is above, of these or any others.
    upper[np.isneginf(threshold)] = 0.0
    return pd.DataFrame(
        {
            "alpha": serves,
            "threshold": threshold,
            "fpr": 1.0 - np.searchsorted(negatives, threshold, side="right") / n,
            "fnr": missed / m,
            "fnr_lower": lower,
            "fnr_upper": upper,
        }
    )
