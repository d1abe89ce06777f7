"""Order statistics of values that several machines hold."""

from __future__ import annotations

import numpy as np
import pytest
from counted_data import random
from dealt_rows import measure_deals
from hypothesis import given
from hypothesis import strategies as st

from gbm_constrained.statistics.order_statistics import (
    expected_threshold,
    kth_smallest,
    umbrella_threshold,
)


def draw(seed, n=80):
    """Scores of all magnitudes and signs, with ties, zeros of both signs, and infinities."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n) * 10.0 ** rng.integers(-8, 8, n)
    x[::3] = np.round(rng.normal(size=x[::3].size), 1)
    x[:5] = [0.0, -0.0, np.inf, -np.inf, 5e-324]
    return x


@random(20)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_kth_smallest_is_that_of_a_sort(seed):
    x = draw(seed)
    ranks = [1, 2, 40, 79, 80]

    def measure(at, communicator):
        return [kth_smallest(x[at], k, communicator) for k in ranks]

    expected = np.sort(x)[np.array(ranks) - 1]
    np.testing.assert_array_equal(measure_deals(measure, x.size, seed), expected)


def test_no_score_travels():
    """Each search adds eight tables of counts, however many scores there are."""
    x = draw(0)

    def measure(at, communicator):
        kth_smallest(x[at], 7, communicator)
        return [np.array(communicator.shapes)]

    assert measure_deals(measure, x.size)[0].tolist() == [[256]] * 8


@pytest.mark.parametrize("n", [20, 300])
def test_thresholds_of_all_machines_are_those_of_all_scores(n):
    x = np.random.default_rng(n).normal(size=n).round(2)
    thresholds = [
        lambda scores, **machine: expected_threshold(scores, 0.1, **machine),
        lambda scores, **machine: umbrella_threshold(scores, 0.2, 0.05, **machine),
    ]
    for threshold in thresholds:

        def measure(at, communicator, threshold=threshold):
            return [threshold(x[at], communicator=communicator)]

        assert measure_deals(measure, n)[0] == threshold(x)


def test_too_few_scores_of_all_machines_are_refused():
    x = np.random.default_rng(0).normal(size=8)
    with pytest.raises(ValueError, match="by 8 rows: it needs 9 at least"):
        measure_deals(lambda at, machine: [expected_threshold(x[at], 0.1, machine)], 8)
