"""Guarantees of one rate have the exact order-statistic threshold."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import BOTH, margins_of
from scipy import stats
from small_fits import certified, clopper_pearson, make

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.decision import guarantees
from gbm_constrained.decision.evaluation_set import EvaluationSet, ScoredRows
from gbm_constrained.decision.histograms import RESOLUTION
from gbm_constrained.decision.rules import Choice
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.statistics.order_statistics import (
    expected_rank,
    expected_threshold,
    umbrella_threshold,
)


@BOTH
@pytest.mark.usefixtures("one_pass")
@pytest.mark.parametrize("rules", [1, 2])
def test_in_expectation_one_more_row_may_be_wrong(library, rules, table, conclusions):
    """Of n positive rows that are set aside, b (n + 1) - 1 are missed at most."""
    X, y = table[0], table[1]["binary"]
    for bound in (0.05, 0.1, 0.2, 0.6):
        own = [gc.fnr() <= bound, gc.fpr() <= 0.99][:rules]
        # Ten rounds without multipliers have the last positives among all the negatives.
        model = make(library, own, guarantee="expected", solver="abpp").fit(X, y)
        fit = conclusions.pop().fit
        positive = fit.data.certification[y[fit.data.certification] == 1]
        missed = (model.predict(X[positive]) == 0).sum()
        assert missed <= bound * (positive.size + 1) - 1
        assert model.constraint_report_["rows"][0] == "certification"
        assert model.constraint_report_.held_out[0] == pytest.approx(missed / positive.size)


@BOTH
@pytest.mark.parametrize("weight", [None, 0.1])
@pytest.mark.parametrize("fewest", [2, 5, 6, 9])
def test_the_fewest_rows_that_hold_in_expectation(library, fewest, weight, conclusions):
    """``1 / bound - 1`` of the class, however that is rounded, none of which may be wrong."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], [5 * fewest, 200])
    X = rng.normal(size=(y.size, 5)) + y[:, None]
    weights = None if weight is None else np.full(y.size, weight)
    model = make(library, [gc.fpr() <= 1 / (fewest + 1)], guarantee="expected")
    model.fit(X, y, sample_weight=weights)
    fit = conclusions.pop().fit
    own = fit.data.certification[y[fit.data.certification] == 0]
    assert own.size == fewest
    assert not model.predict(X[own]).any()
    tighter = make(library, [gc.fpr() <= 0.99 / (fewest + 1)], guarantee="expected")
    with pytest.raises(ValueError, match="too few for it, even without a single error"):
        tighter.fit(X, y, sample_weight=weights)


@BOTH
@pytest.mark.parametrize("rate", [gc.fnr, gc.fpr])
@pytest.mark.parametrize("weighted", [False, True])
def test_one_rate_of_one_class_has_the_umbrella_threshold(
    library, rate, weighted, table, conclusions
):
    """Weights that are equal change nothing."""
    X, y = table[0], table[1]["binary"]
    weight = {"sample_weight": np.full(y.size, 2.0)} if weighted else {}
    target, sign, bound = (1, -1.0, 0.2) if rate is gc.fnr else (0, 1.0, 0.05)
    model = certified(library, [rate() <= bound], table, probabilities="calibrated", **weight)
    fit, choice = conclusions[0].fit, conclusions[0].choice
    own = fit.data.certification[y[fit.data.certification] == target]
    wrong = sign * margins_of(model, X[own], choice.rounds).astype(float)
    threshold = umbrella_threshold(wrong, bound, 0.05)
    decisions = model.predict(X[own])
    np.testing.assert_array_equal(decisions != target, wrong > threshold)
    k = (decisions != target).sum()
    assert choice.p_value == pytest.approx(stats.binom.cdf(k, own.size, bound), rel=1e-6)
    bolder = (wrong >= threshold).sum()  # one row more, and those of the same score
    assert choice.p_value <= 0.05 < stats.binom.cdf(bolder, own.size, bound)
    report = model.constraint_report_.loc[0]
    assert report.held_out == pytest.approx(k / own.size)
    np.testing.assert_allclose([report.low, report.high], clopper_pearson(k, own.size), atol=1e-9)


@BOTH
@pytest.mark.parametrize("guarantee", ["expected", "high_probability"])
def test_a_threshold_that_is_safe_stays(library, guarantee, table, conclusions):
    """A bound that the library's own model is far inside of: nothing is moved out to it."""
    X, y = table[0], table[1]["binary"]
    model = certified(library, [gc.fpr() <= 0.6], table, guarantee=guarantee)
    fit, choice = conclusions[0].fit, conclusions[0].choice
    assert not model.shift_.any()
    assert model.constraint_report_.held_out[0] < 0.4
    assert model.feasibility_.status == "met"
    assert guarantee == "expected" or choice.p_value <= 0.05
    own = make(library, []).fit(X[fit.data.training], y[fit.data.training])
    np.testing.assert_array_equal(model.predict(X), own.predict(X))


@pytest.mark.parametrize("towards", [0, 1])
def test_a_certified_threshold_is_where_the_saved_model_tells_scores_apart(towards):
    """Just beyond the score, and those that differ by less than single precision keeps."""
    scores = np.sort(np.random.default_rng(0).normal(size=100))
    sign = 1 if towards == 0 else -1
    rule = gc.fpr() <= 0.2 if towards == 0 else gc.fnr() <= 0.2
    cells, compiled = compile_constraints([rule], Rows(np.full(100, towards), np.arange(2)))
    rows = EvaluationSet(cells, compiled, "certification")

    def cut(scores):
        found = guarantees._find_limit(rows, sign * scores, expected_threshold)
        assert found.towards == towards
        return -sign * found.shift[0]

    k = expected_rank(100, 0.2) - 1
    least, most = scores[k] + 0.2 * RESOLUTION, scores[k] + RESOLUTION
    assert least < cut(scores) < most < scores[k + 1]
    near = scores.copy()
    near[k + 1 : k + 3] = near[k] + np.array([1e-7, 2e-7])
    assert near[k + 2] < cut(near) < near[k + 2] + RESOLUTION
    assert least < cut(np.minimum(scores, scores[k])) < most
    for given, beyond in ((scores, 99 - k), (near, 97 - k), (100.0 * near, 97 - k)):
        # As the saved model adds them up, in single precision.
        margin = (sign * given).astype(np.float32) + np.float32(-sign * cut(given))
        assert ((margin > 0) != bool(towards)).sum() == beyond


@BOTH
@pytest.mark.parametrize("bound", [0.25, 0.35, 0.6])
def test_behind_an_exact_threshold_errors_are_fewest(library, bound, table, conclusions):
    """A rule that moved the multipliers, and is certified with room: errors choose the rest."""
    X, y = table[0], table[1]["binary"]
    options = {"guarantee": gc.HighProbability(0.5, 0.35), "probabilities": "calibrated"}
    model = certified(library, [gc.fnr() <= bound], table, **options)
    fit, choice = conclusions[0].fit, conclusions[0].choice
    scores = fit.measured.boosters.held_margin(choice.rounds)
    labels = y[fit.data.training]
    own = fit.data.certification[y[fit.data.certification] == 1]
    wrong = -margins_of(model, X[own], choice.rounds).astype(float)
    smallest = umbrella_threshold(wrong, bound, 0.5)
    limit = -smallest  # there are no scores between it and the threshold just beyond
    found = ((scores > -model.shift_[0]) != labels).mean()
    if not model.shift_.any():  # the library's own threshold, which is safe
        assert limit >= 0
        return
    safer = [t for t in np.sort(scores) if t <= limit]
    fewest = min(((scores > t) != labels).mean() for t in safer)
    at_limit = ((scores > limit) != labels).mean()
    gain = at_limit - fewest > np.sqrt(at_limit * (1 - at_limit) / labels.size)
    assert found == pytest.approx(fewest if gain else at_limit)


@BOTH
def test_a_rate_that_must_be_large_has_the_umbrella_threshold(library, table, conclusions):
    """It is the rate of the other decisions that must be small: 0.6 at most of the negatives."""
    X, y = table[0], table[1]["binary"]
    model = certified(library, [gc.fpr() >= 0.4], table, probabilities="calibrated")
    fit, choice = conclusions[0].fit, conclusions[0].choice
    own = fit.data.certification[y[fit.data.certification] == 0]
    spared = -margins_of(model, X[own], choice.rounds).astype(float)
    decisions = model.predict(X[own])
    threshold = umbrella_threshold(spared, 0.6, 0.05)
    np.testing.assert_array_equal(decisions == 0, spared > threshold)
    p = stats.binom.cdf((decisions == 0).sum(), own.size, 0.6)
    assert choice.p_value == pytest.approx(p, rel=1e-6)
    assert p <= 0.05 < stats.binom.cdf((spared >= threshold).sum(), own.size, 0.6)


def test_neither_class_comes_first_within_a_limit():
    """Of thresholds with as few errors the nearest to the model's own, whatever is asked for."""
    rng = np.random.default_rng(0)

    def within(y, margin, limit, towards):
        rows = Rows(y, np.arange(2))
        chosen = EvaluationSet(*compile_constraints([gc.error_rate() <= 0.5], rows), "test")
        start = Choice(20, np.array([limit]), 0.5, 0.0)
        limit = guarantees._Limit(start.shift, towards)
        return guarantees._choose_within(limit, ScoredRows(chosen, lambda rounds: margin), start)

    for _ in range(40):
        y = rng.integers(0, 2, 20)
        margin = rng.normal(size=20) + 2.0 * y - 0.5
        found, other = within(y, margin, -3.0, 1), within(1 - y, -margin, 3.0, 0)
        np.testing.assert_allclose(other.shift, -found.shift, atol=1e-4)
