"""Intervals of calibration errors: coverage of a known population, and what they are made of."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, logit

import gbm_constrained as gc
from gbm_constrained import calibration_error, each, gap
from gbm_constrained.data.rows import Rows
from gbm_constrained.evaluation.audit import measure_rows
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.rows import find_bins
from gbm_constrained.statistics.intervals import estimate_error
from gbm_constrained.statistics.sampled_intervals import ScoredDecisions

# Probability of the positive class, given the probability of the model.
POPULATIONS = {
    "calibrated": lambda p: p,
    "too small": lambda p: expit(logit(p) + 0.6),
    "too extreme": lambda p: expit(0.5 * logit(p)),
    "half": lambda p: np.where(p > 0.5, p, 0.7 * p),
}
SHARE = np.linspace(0.0005, 0.9995, 20_000)


def truth_of(share, bins=10):
    """Find the error of a population of uniform probabilities."""
    residuals = np.bincount(find_bins(SHARE, bins), share(SHARE) - SHARE, bins)
    return np.abs(residuals / SHARE.size).sum()


def measure(rules, y, p, columns=None, weight=None):
    rows = Rows(y, np.arange(2), weight, columns or {})
    cells, compiled = compile_constraints(rules, rows)
    scored = ScoredDecisions((p > 0.5).astype(np.intp), probability=p)
    return measure_rows(cells, compiled, scored)


@pytest.mark.parametrize("name", POPULATIONS)
@pytest.mark.parametrize("n", [200, 1500])
def test_intervals_cover_the_population(name, n):
    """Of 200 samples at level 0.95 the binomial 99.9% range of misses is 2 to 22."""
    share, rng, found = POPULATIONS[name], np.random.default_rng(0), []
    truth = truth_of(share)
    for _ in range(200):
        p = rng.random(n)
        y, at = (rng.random(n) < share(p)).astype(int), find_bins(p, 10)
        means, squares = (np.bincount(at, (y - p) ** k, 10) / n for k in (1, 2))
        found.append(estimate_error(means, np.sqrt((squares - means**2) / n), 0.95))
    corrected, low, high = np.array(found).T
    assert ((low > truth) | (truth > high)).sum() <= 22
    # Half of the width is less than four times that of a sum of known signs.
    assert (high - low).mean() < 4.0 * 2.0 * 1.96 * np.sqrt(np.mean(SHARE * (1 - SHARE)) / n)
    assert np.abs(corrected.mean() - truth) < 0.6 * np.sqrt(10 * 0.25 / n)


@pytest.mark.parametrize("compare", [each, gap])
def test_intervals_of_groups_cover_the_population(compare):
    rng, missed = np.random.default_rng(1), 0
    shares = {"a": POPULATIONS["calibrated"], "b": POPULATIONS["too small"]}
    errors = [truth_of(share) for share in shares.values()]
    truth = max(errors) if compare is each else np.ptp(errors)
    for _ in range(60):
        p, group = rng.random(800), rng.choice(["a", "b"], 800)
        share = np.where(group == "a", shares["a"](p), shares["b"](p))
        y = (rng.random(800) < share).astype(int)
        rules = [compare(calibration_error(), by="g") <= 0.1]
        low, high = measure(rules, y, p, {"g": group}).sampled.constraints[0]
        missed += not low <= truth <= high
    assert missed <= 9  # The binomial 99.9% range ends there.


def test_the_error_of_a_mean_residual_is_that_of_a_weighted_mean():
    rng = np.random.default_rng(2)
    p, weight, group = rng.random(300), rng.gamma(2.0, size=300), rng.choice(["a", "b"], 300)
    y = (rng.random(300) < p).astype(int)
    rules = [each(calibration_error(bins=3), by="g") <= 0.1]
    measured = measure(rules, y, p, {"g": group}, weight)
    for k, (g, b) in enumerate((g, b) for g in "ab" for b in range(3)):
        at = group == g
        values, w = ((y - p) * (find_bins(p, 3) == b))[at], weight[at]
        mean = w @ values / w.sum()
        error = np.sqrt((w**2 * (values - mean) ** 2).sum()) / w.sum()
        half = stats.norm.isf(0.025) * error
        assert measured.functionals[k] == pytest.approx(mean, abs=1e-12)
        np.testing.assert_allclose(
            measured.sampled.functionals[k], [mean - half, mean + half], rtol=0, atol=1e-12
        )


def test_the_interval_of_a_bin_far_from_zero_is_that_of_a_mean():
    corrected, low, high = estimate_error(np.array([0.3]), np.array([0.01]), 0.95)
    assert high == pytest.approx(0.3 + 1.96 * 0.01, abs=1e-4)
    assert low == pytest.approx(0.3 - 1.96 * 0.01, abs=1e-3)  # Its noise is drawn.
    assert corrected == pytest.approx(0.3, abs=1e-3)


def test_the_lower_end_leaves_out_what_is_noise():
    errors = np.full(10, 0.01)
    _, low, high = estimate_error(errors, errors, 0.95)  # Noise alone would give 0.08 in the mean.
    assert low == 0.0
    assert high == pytest.approx(0.1 + 1.96 * 0.01 * np.sqrt(10), abs=1e-4)
    assert np.isnan(estimate_error(np.full(2, np.nan), errors[:2], 0.95)).all()


def test_empty_groups_have_no_interval():
    y, p = np.arange(40) % 2, np.linspace(0.05, 0.95, 40)
    rows = Rows(y, np.arange(2), columns={"g": np.repeat(["a", "b"], 20)})
    rules = [gap(calibration_error(), by="g", min_group_size=1) <= 0.1]
    _, like = compile_constraints(rules, rows)
    some = rows.take(np.arange(20))
    cells, compiled = compile_constraints(rules, some, like)
    scored = ScoredDecisions(np.zeros(20, dtype=np.intp), probability=p[:20])
    measured = measure_rows(cells, compiled, scored)
    assert np.isnan(measured.values).all()
    assert np.isnan(measured.sampled.constraints).all()
    assert gc.calibration_error().range == (0.0, 1.0)
