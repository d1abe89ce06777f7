"""Shifts under which a share of the weight is decided as class 1."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbm_constrained.decision.histograms import ThresholdCandidates
from gbm_constrained.decision.search import match_selection_rate


@given(
    scores=st.lists(st.integers(-5, 5), min_size=1, max_size=12),
    seed=st.integers(0, 99),
    share=st.floats(0, 1),
)
def test_the_share_is_as_near_as_scores_allow(scores, seed, share):
    margin = np.array(scores, dtype=float)
    weight = np.random.default_rng(seed).random(margin.size) + 0.1
    (shift,) = match_selection_rate(margin, share, weight)
    possible = [weight[margin > cut].sum() / weight.sum() for cut in [-99.0, *(np.unique(margin))]]
    reached = weight[margin + shift > 0].sum() / weight.sum()
    assert abs(reached - share) <= np.abs(np.array(possible) - share).min() + 1e-9


def by_sorting(margin, share, weight):
    """Search all thresholds."""
    line = ThresholdCandidates(margin.astype(float), None).thresholds
    reached = np.concatenate([[0.0], np.cumsum(weight[line.order])]) / weight.sum()
    return line.shift[np.abs(reached[line.flipped] - share).argmin()]


@pytest.mark.parametrize("kind", ["spread", "tied", "outliers", "zeros", "infinite"])
@pytest.mark.parametrize("share", [0.0, 0.0004, 0.2, 0.5, 0.93, 1.0])
def test_many_rows_give_the_threshold_of_a_sort(share, kind):
    """With scores in single precision, ties, outliers, and rows of weight zero."""
    rng = np.random.default_rng(3)
    n = 105_000
    margin = rng.normal(size=n)
    weight = rng.integers(0, 3, n).astype(float)
    if kind == "tied":
        margin = np.round(2 * margin)
    elif kind == "outliers":
        margin[:3] = 1e6, -1e6, 1e5
    elif kind == "zeros":
        margin = np.where(rng.random(n) < 0.9, 0.0, margin)
    elif kind == "infinite":
        margin[:2] = np.inf, -np.inf
    margin = margin.astype(np.float32)
    with np.errstate(invalid="ignore"):  # Infinite scores have no midpoint.
        (found,) = match_selection_rate(margin, share, weight)
        expected = by_sorting(margin, share, weight)
        decided = [margin + shift > 0 for shift in (found, expected)]
    np.testing.assert_array_equal(*decided)
