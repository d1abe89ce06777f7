"""The benchmark of folds in time: its known rates, and that forward folds foresee drift."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from forward import WAYS, draw, measure, rate_of, summarise


def test_rates_are_shares_of_one_class():
    y, decided = np.array([0, 0, 0, 1, 1]), np.array([1, 0, 0, 0, 1])
    assert rate_of("fpr", y, decided) == pytest.approx(1 / 3)
    assert rate_of("fnr", y, decided) == pytest.approx(1 / 2)


def test_the_base_rate_rises_only_where_the_stream_drifts():
    rng, n = np.random.default_rng(0), 40_000
    rates = [
        draw(rng, np.full(n, time), drifts=drifts)[1].mean()
        for drifts in (True, False)
        for time in (0, 4)
    ]
    assert rates[1] - rates[0] > 0.1
    assert abs(rates[3] - rates[2]) < 0.02


def test_reports_of_forward_folds_are_nearer_to_the_next_period_under_drift():
    found = pd.DataFrame(
        {"stream": "drift", "library": "lightgbm", "rule": "fnr", "measure_on": way}
        | measure("drift", "lightgbm", "fnr", i, way)
        for i in range(4)
        for way in WAYS
    )
    error = (found["reported"] - found["later"]).abs().groupby(found["measure_on"]).mean()
    assert error["forward"] <= error["crossfit"] / 2
    assert [line.partition(", later")[0] for line in summarise(found).splitlines()] == [
        "drift lightgbm fnr crossfit, 4 fits",
        "drift lightgbm fnr forward, 4 fits",
    ]
