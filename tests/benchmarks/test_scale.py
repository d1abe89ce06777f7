"""The benchmark of cost: its slopes, and that a run goes on where it was stopped."""

import numpy as np
import pytest
import scale
from helpers import EITHER


def test_the_slope_of_a_power_law_is_its_exponent():
    x = np.array([1, 2, 5, 10, 100])
    found = scale.slope(x, 3.0 * x**0.7)
    assert found.value == pytest.approx(0.7, abs=1e-12)
    assert found.low == pytest.approx(0.7, abs=1e-6)
    assert found.high == pytest.approx(0.7, abs=1e-6)


def test_the_interval_of_a_slope_by_hand():
    """Logs 0, 1, 2 to logs 0, 2, 1: slope 1/2, squared residuals 3/2, one degree of freedom."""
    found = scale.slope(np.exp([0.0, 1.0, 2.0]), np.exp([0.0, 2.0, 1.0]))
    half = np.tan(0.475 * np.pi) * np.sqrt(1.5 / 2.0)  # Student's t of one degree is Cauchy's
    assert (found.value, found.points) == (pytest.approx(0.5), 3)
    assert (found.low, found.high) == pytest.approx((0.5 - half, 0.5 + half))


def test_the_interval_of_a_slope_covers_as_often_as_it_says():
    rng, x = np.random.default_rng(0), np.geomspace(1, 1000, 6)
    noise = np.exp(0.1 * rng.normal(size=(2000, 6)))
    found = [scale.slope(x, x * factors) for factors in noise]
    covered = np.mean([s.low <= 1.0 <= s.high for s in found])
    assert 0.93 < covered < 0.97  # four standard errors


def test_points_without_added_time_are_left_out_and_two_are_no_line():
    assert scale.slope([1, 2, 4, 8], [1, -1, 4, 8]).points == 3
    assert np.isnan(scale.slope([1, 2, 4], [1, 0, 4]).value)


@pytest.mark.parametrize("inputs", ["dense", "sparse", "categorical"])
@EITHER
def test_a_fit_tells_what_it_took(library, inputs):
    """Each kind of input is fitted; rules on subsets of three classes are at work."""
    case = scale.Case(library, 2000, 6, 3, inputs, "subsets", 3, rounds=4, jobs=1)
    found = scale.fit_once(case, constrained=True)
    assert list(found) == ["seconds", "cpu", "peak_mib", "active"]
    assert found["seconds"] > 0
    assert found["active"] > 0


@EITHER
def test_gaps_of_groups_are_measured_out_of_fold(library):
    case = scale.Case(library, 2000, 6, rules="groups", constraints=4, rounds=4, jobs=1)
    model, X, y, further = scale.prepared(case, constrained=True)
    assert np.unique(further["sensitive_features"]["group"]).size == 4
    model.fit(X, y, **further)
    assert model.constraint_report_["rows"][0] == "out of fold"
    assert str(case) == f"{library} 2,000 x 6 dense, 4 binding on groups"
