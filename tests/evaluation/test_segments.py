"""Tests of segments: brute force, exact p-values, planted ones, refusals and audits."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.metrics import roc_auc_score

from gbm_constrained import (
    Audit,
    auc,
    audit,
    calibration_error,
    error_rate,
    find_segments,
    fnr,
    fpr,
    gap,
    log_loss,
    mean_loss,
    mean_residual,
    precision,
)
from gbm_constrained.constraints.conditions import Condition
from gbm_constrained.evaluation.segments import (
    RowSums,
    Search,
    SearchColumn,
    Segment,
    short_number,
)
from gbm_constrained.statistics.binomial import GAMMA

UP, DOWN = Segment((), 1.0), Segment((), -1.0)


class Given:
    """A classifier whose probabilities are a column."""

    classes_ = np.array([0, 1])

    def predict_proba(self, X):
        return np.column_stack([1.0 - X["score"], X["score"]])

    def predict(self, X):
        return (X["score"].to_numpy() > 0.5).astype(int)


class GivenNumbers:
    def predict(self, X):
        return X["score"].to_numpy()


def draw(seed=0, n=6000, raised=0.5):
    """Draw rows whose errors are `raised` in one segment with a text and a missing value."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"age": rng.integers(18, 80, n), "x": rng.normal(size=n)})
    X["job"] = pd.Categorical(rng.choice(["a", "b", "c"], n))
    X["x"] = X["x"].mask(rng.random(n) < 0.2)
    inside = ((X["job"] == "b") & X["x"].isna()).to_numpy()
    X["score"] = np.where(rng.random(n) < 0.5, 0.9, 0.1)
    wrong = rng.random(n) < np.where(inside, raised, 0.1)
    y = (X["score"] > 0.5).to_numpy() ^ wrong
    return X, y.astype(int), inside


def test_planted_segment_of_a_text_and_a_missing_value_is_found():
    X, y, inside = draw()
    found = find_segments(Given(), X, y, error_rate(), columns=["age", "x", "job"])
    assert set(found.segments[0].conditions) == {
        Condition("job", "==", "b"), Condition("x", "is missing"),
    }  # fmt: skip
    np.testing.assert_array_equal(found.masks[found.expressions[0]], inside)
    row = found.frame.iloc[0]
    assert row["low"] < 0.5 < row["high"]
    assert row["p_value"] < 0.001
    assert "job is b" in row["segment"]
    assert "x is missing" in row["segment"]
    again = audit(  # The text is known on new rows.
        Given(), *draw(1)[:2], gap(error_rate(), by=found.expressions[0]) <= 0.1, segments=found
    )
    assert again.frame["value"][0] == pytest.approx(0.4, abs=0.1)
    assert again.segments["value"][0] == pytest.approx(0.5, abs=0.1)
    assert again.segments["p_value"][0] < 0.001
    pd.testing.assert_frame_equal(Audit.from_json(again.to_json()).segments, again.segments)


def test_the_page_and_the_text_of_an_audit_show_segments():
    X, y, _ = draw()
    found = find_segments(Given(), X, y, error_rate(), columns=["age", "x", "job"])
    report = audit(Given(), X, y, error_rate() <= 0.2, segments=found)
    assert found.frame["segment"][0] in str(report)
    page = report.to_html()
    assert "<h2>Segments</h2>" in page
    assert "rest of the rows" in page
    with pytest.raises(TypeError, match="segments must be what find_segments returned"):
        audit(Given(), X, y, error_rate() <= 0.2, segments=["`age` <= 3"])


def test_the_half_that_measures_does_not_change_what_is_proposed():
    X, y, _ = draw(raised=0.6)
    measured = np.random.RandomState(0).permutation(len(y))[len(y) // 2 :]
    other = y.copy()
    other[measured] = np.random.default_rng(1).permutation(other[measured])
    before = find_segments(Given(), X, y, error_rate(), columns=["x", "job"], level=0.001)
    after = find_segments(Given(), X, other, error_rate(), columns=["x", "job"], level=0.001)
    assert before.n_tested == after.n_tested
    assert set(after.expressions) <= set(before.expressions)


def brute_force(values, residual, square, search):
    """Compare all intervals of one column whose cuts are at distinct values."""
    distinct = np.unique(values)
    ends = [-math.inf, *distinct[:-1], math.inf]
    best = -math.inf
    for low, high in itertools.combinations(ends, 2):
        inside = (values > low) & (values <= high)
        cost = search.cost(int(low > -math.inf) + int(high < math.inf))
        sums = residual[inside].sum(), square[inside].sum(), inside.sum()
        best = max(best, float(search.score(map(np.asarray, sums), cost)))
    return best


@pytest.mark.parametrize("side", [None, 1.0])
def test_the_best_interval_is_that_of_brute_force(side):
    for seed in range(10):
        rng = np.random.default_rng(seed)
        values = rng.permutation(60).astype(float)
        residual = rng.normal(size=60) + 2.0 * (values > 20) * (values <= 33)
        residual -= residual.mean()
        column = SearchColumn.from_values("x", values)
        search = Search(residual, np.ones(60), [column], side, 3, 1)
        score, conditions = search._best_interval((), column)
        assert score == pytest.approx(brute_force(values, residual, np.ones(60), search))
        assert search._score_of(conditions) == pytest.approx(score)


def test_the_best_pair_is_that_of_brute_force():
    rng = np.random.default_rng(3)
    a, b = rng.integers(0, 6, 400).astype(float), rng.choice(["u", "v", "w"], 400).astype(object)
    residual = rng.normal(size=400)
    residual -= residual.mean()
    columns = [SearchColumn.from_values("a", a), SearchColumn.from_values("b", b)]
    search = Search(residual, np.ones(400), columns, None, 5, 2)
    best = -math.inf
    for low, high in itertools.combinations([-math.inf, 0, 1, 2, 3, 4, math.inf], 2):
        for level in ("u", "v", "w", None):
            inside = (a > low) & (a <= high) & ((b == level) | (level is None))
            cost = search.cost(int(low > -math.inf) + int(high < math.inf)) + search.cost(
                level is not None
            )
            sums = residual[inside].sum(), inside.sum(), inside.sum()
            best = max(best, float(search.score(map(np.asarray, sums), cost)))
    assert search._best_pair(*columns)[0] == pytest.approx(best)


def test_p_value_against_a_bound_is_the_binomial_tail():
    a, inside = np.array([1.0] * 7 + [0.0] * 23 + [1.0] * 5), np.arange(35) < 30
    sums = RowSums(a, np.ones(35))
    tail = sum(
        Fraction(1, 10) ** k * Fraction(9, 10) ** (30 - k) * math.comb(30, k) for k in range(7, 31)
    )
    assert sums.p_value(inside, UP, 0.1) == pytest.approx(float(tail), rel=1e-12)
    below = sum(Fraction(1, 2) ** 30 * math.comb(30, k) for k in range(8))
    assert sums.p_value(inside, DOWN, 0.5) == pytest.approx(float(below), rel=1e-12)


@pytest.mark.parametrize("p", [0.05, 0.3, 0.5])
def test_p_value_of_two_shares_is_valid_for_every_table(p):
    """The probability of a p-value of 0.05 at most is added up over all tables."""
    m, n, total = 12, 25, 0.0
    inside = np.arange(m + n) < m
    for x, z in itertools.product(range(m + 1), range(n + 1)):
        a = np.r_[np.arange(m) < x, np.arange(n) < z].astype(float)
        if RowSums(a, np.ones(m + n)).p_value(inside, UP, None) <= 0.05:
            total += stats.binom.pmf(x, m, p) * stats.binom.pmf(z, n, p)
    assert 0.01 < total <= 0.05 + GAMMA if p > 0.1 else total <= 0.05 + GAMMA


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_p_value_of_means_is_that_of_welch(sign):
    rng = np.random.default_rng(0)
    a, inside = rng.gamma(2.0, size=90), np.arange(90) < 30
    a[inside] += 0.4
    exact = stats.ttest_ind(
        a[inside], a[~inside], equal_var=False, alternative="greater" if sign > 0 else "less"
    ).pvalue
    found = RowSums(a, np.ones(90)).p_value(inside, Segment((), sign), None)
    assert found == pytest.approx(exact, rel=1e-9)
    one = stats.ttest_1samp(a[inside], 2.0, alternative="greater" if sign > 0 else "less").pvalue
    bounded = RowSums(a, np.ones(90)).p_value(inside, Segment((), sign), 2.0)
    assert bounded == pytest.approx(one, rel=1e-9)


def test_auc_and_its_variance_are_those_of_delong():
    rng = np.random.default_rng(0)
    score, y = np.round(rng.normal(size=80), 1), rng.random(80) < 0.4
    w = np.ones(80)
    value, variance, _ = RowSums(w, w, score=score, is_first=y).mean()
    assert value == pytest.approx(roc_auc_score(y, score))
    u, v = score[y][:, None], score[~y]
    psi = (u > v) + 0.5 * (u == v)
    exact = psi.mean(1).var(ddof=1) / y.sum() + psi.mean(0).var(ddof=1) / (~y).sum()
    assert variance == pytest.approx(exact)


@pytest.mark.parametrize(
    "rate", [error_rate(), fpr(), fnr(), precision(), auc(), log_loss(), calibration_error(bins=5)]
)
def test_values_are_those_of_an_audit(rate):
    X, y, _ = draw(n=3000)
    X["score"] = np.clip(X["score"] + np.random.default_rng(0).normal(0, 0.1, len(X)), 0.01, 0.99)
    found = find_segments(Given(), X, y, rate, columns=["age", "x", "job"], level=0.001)
    again = audit(Given(), X, y, rate <= 0.5, segments=found)
    for expression, row in zip(found.expressions, again.segments.itertuples(), strict=True):
        inside = found.masks[expression].to_numpy()
        own = audit(Given(), X[inside], y[inside], rate <= 0.5).frame["value"][0]
        assert row.value == pytest.approx(own)
    assert len(found)


@pytest.mark.parametrize("rate", [mean_loss("squared"), mean_residual()])
def test_segments_of_regressors_are_found(rate):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=4000), "b": rng.normal(size=4000)})
    X["score"] = rng.normal(size=4000)
    inside = (X["a"] > 1.0) & (X["b"] <= 0.0)
    y = X["score"] + rng.normal(size=4000) + 2.0 * inside
    found = find_segments(GivenNumbers(), X, y, rate, columns=["a", "b"])
    mask = found.masks[found.expressions[0]]
    assert (mask & inside).sum() / (mask | inside).sum() > 0.9
    weight = np.full(4000, 2.0)
    same = find_segments(GivenNumbers(), X, y, rate, columns=["a", "b"], sample_weight=weight)
    pd.testing.assert_frame_equal(found.frame, same.frame)


def test_an_interval_counts_as_one_condition():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=4000), "score": 0.1})
    y = (rng.random(4000) < np.where(X["a"].abs() <= 0.3, 0.5, 0.1)).astype(int)
    found = find_segments(Given(), X, y, error_rate(), columns=["a"], max_conditions=1)
    assert [one.operator for one in found.segments[0].conditions] == [">", "<="]


def test_segments_are_on_the_wrong_side_of_a_bound():
    X, y, _ = draw()
    found = find_segments(Given(), X, y, error_rate() <= 0.3, columns=["age", "x", "job"])
    assert (found.frame["value"] > 0.3).all()
    assert len(found) == 1
    none = find_segments(Given(), X, y, error_rate() <= 0.9, columns=["age", "x", "job"])
    assert len(none) == 0
    assert "0 of" in str(none)


@pytest.mark.parametrize(
    ("low", "high", "short"),
    [(30.0, 31.0, 30.0), (0.123, 0.129, 0.126), (-1.0, 1.0, 0.0), (1e9, 1e9 + 1, 1e9)],
)
def test_cuts_are_short_and_between_two_values(low, high, short):
    assert short_number(low, high) == short


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"constraint": gap(fpr(), by="job") <= 0.1}, "compares groups that are named"),
        ({"constraint": fpr() + fnr()}, "adds up means over different rows"),
        ({"constraint": [fpr() <= 0.1, fnr() <= 0.1]}, "one rate or constraint"),
        ({"max_conditions": 4}, "max_conditions must be 1, 2 or 3, got 4"),
        ({"n_segments": 0}, "n_segments must be an integer >= 1"),
        ({"columns": ["agee"]}, "column 'agee' is neither"),
        ({"columns": "age"}, "columns='age'"),
        ({"level": 1.0}, "level"),
    ],
)
def test_what_does_not_fit_is_refused(given, message):
    X, y, _ = draw(n=300)
    arguments = {"constraint": error_rate(), **given}
    with pytest.raises((ValueError, TypeError), match=message):
        find_segments(Given(), X, y, **arguments)


@pytest.mark.slow
@pytest.mark.parametrize("rate", [fpr(), auc(), calibration_error(), log_loss()])
def test_nothing_is_reported_where_nothing_differs(rate):
    """Of 300 draws at level .05, more than 28 have a probability of .001."""
    reported = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        X = pd.DataFrame(rng.normal(size=(1500, 4)), columns=list("abcd"))
        X["score"] = rng.beta(1.0, 2.0, 1500)
        y = (rng.random(1500) < X["score"]).astype(int)
        reported += len(find_segments(Given(), X, y, rate, columns=list("abcd"))) > 0
    assert reported <= stats.binom.isf(0.001, 300, 0.05)
