"""Calibration errors in the language: printing, text, and what is refused."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from pasted import paste

import gbm_constrained as gc
from gbm_constrained import calibration_error, each, gap
from gbm_constrained.constraints.base import CurveFunction
from gbm_constrained.constraints.checking import name_positive_class

RULES = [
    (calibration_error() <= 0.05, "calibration_error <= 0.05", "calibration_error <= 0.05"),
    (
        calibration_error(bins=5, on={"sex": "F"}) <= 0.05,
        "calibration_error(bins=5)[sex=F] <= 0.05",
        "calibration_error(bins=5, on={sex: F}) <= 0.05",
    ),
    (
        each(calibration_error(), by="sex", small_groups="merge") <= 0.05,
        "each(calibration_error, by='sex', merge below 30) <= 0.05",
        "each(calibration_error, by=sex, small_groups=merge) <= 0.05",
    ),
    (
        gap(calibration_error(bins=15), by=["sex", "race"], reference=gc.overall) <= 0.03,
        "gap(calibration_error(bins=15), by=['sex', 'race'], reference=overall) <= 0.03",
        "gap(calibration_error(bins=15), by=[sex, race], reference=overall) <= 0.03",
    ),
]


@pytest.mark.parametrize(("rule", "printed", "text"), RULES)
def test_printing_text_and_pickles(rule, printed, text):
    assert str(rule) == printed
    assert paste(rule) == gc.parse_constraint(gc.format_constraint(rule)) == rule
    assert gc.parse_constraint(text) == rule
    assert hash(pickle.loads(pickle.dumps(rule))) == hash(rule)
    assert name_positive_class(rule, "yes") is rule  # The error of both classes is the same.
    assert "residual" in rule.kinds
    assert rule.is_of_scores


def test_names_of_bins_say_which_end_is_inside():
    names = [str(rate) for rate in calibration_error(bins=4).rates]
    assert names[:2] == ["residual in [0, 0.25]", "residual in (0.25, 0.5]"]
    ranges = [rate.range for rate in calibration_error(bins=2).rates]
    assert ranges == [(-0.5, 1.0), (-1.0, 0.5)]


@pytest.mark.parametrize("is_difference", [False, True])
def test_the_gradient_is_that_of_the_sum(is_difference):
    function = CurveFunction(((1.0, calibration_error(bins=3)),), is_difference=is_difference)
    f = np.random.default_rng(0).normal(size=len(function.signs))
    steps = 1e-6 * np.eye(f.size)
    moved = function.values(f[:, None] + steps) - function.values(f[:, None] - steps)
    np.testing.assert_allclose(function.gradient(f), moved / 2e-6, atol=1e-6)
    assert (function.gradient(np.zeros(f.size)) == 0.0).all()


def test_values_of_groups():
    f = np.array([0.1, -0.2, 0.05, 0.05])
    assert (each(calibration_error(bins=2), by="g") <= 0.1).value(f) == pytest.approx(0.3)
    assert (gap(calibration_error(bins=2), by="g") <= 0.1).value(f) == pytest.approx(0.2)
    unknown = np.append(f, [np.nan, np.nan])
    assert (each(calibration_error(bins=2), by="g") <= 0.1).value(unknown) == pytest.approx(0.3)
    assert np.isnan((calibration_error(bins=2) <= 0.1).value(unknown[4:]))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: calibration_error(bins=0), ValueError, "from 1 to 100, got 0"),
        (lambda: calibration_error(bins=2.5), ValueError, "got 2.5"),
        (lambda: calibration_error(bins=True), ValueError, "got True"),
        (lambda: calibration_error() <= 5, ValueError, "5 per cent is written 0.05"),
        (lambda: calibration_error() >= 0.05, TypeError, "only be bounded from above"),
        (lambda: calibration_error() + gc.fpr(), TypeError, "Bound each by itself"),
        (lambda: 2 * calibration_error(), TypeError, "Bound each by itself"),
        (lambda: gc.ratio(calibration_error(), by="g"), TypeError, "compares a plain rate"),
        (lambda: gc.gap_norm([calibration_error()], by="g"), TypeError, "takes rates"),
        (lambda: gc.parse_constraint("ece <= 0.1"), ValueError, "did you mean calibration_error"),
    ],
)
def test_what_is_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()
