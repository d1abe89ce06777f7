"""The benchmark of folds in time: its known rates, and that forward folds foresee drift."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
if not BENCHMARKS.is_dir():
    pytest.skip("benchmarks are not beside the tests", allow_module_level=True)
sys.path.insert(0, str(BENCHMARKS))

from forward import draw, rate_of, simulate, summarise  # noqa: E402


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
    found = [row for i in range(4) for row in simulate(i, "lightgbm", "fnr", drifts=True)]
    error = {
        way: np.mean([abs(r["reported"] - r["later"]) for r in found if r["measure_on"] == way])
        for way in ("crossfit", "forward")
    }
    assert error["forward"] <= error["crossfit"] / 2
    rows = [{name: str(v) for name, v in row.items()} | {"stream": "drift"} for row in found]
    assert [line.partition(", later")[0] for line in summarise(rows)] == [
        "drift lightgbm fnr crossfit, 4 fits",
        "drift lightgbm fnr forward, 4 fits",
    ]
