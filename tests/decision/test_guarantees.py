"""Certified and conformal decisions."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from helpers import BOTH, KINDS, margins_of, quiet
from scipy import stats
from small_fits import certified, make

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.data.validation import columns_of
from gbm_constrained.decision import guarantees
from gbm_constrained.decision.choose import Prefixes, choose_prefix
from gbm_constrained.decision.evaluation_set import EvaluationSet, ScoredRows
from gbm_constrained.decision.guarantees import control_risk, count_sequences
from gbm_constrained.decision.rules import Choice
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.statistics.p_values import constraint_p_values

RULES_OF_TWO = [gc.fnr() <= 0.3, gc.fpr() <= 0.3]


def test_what_just_holds_in_expectation_stays():
    """One of 8 errors is 2 / 9 with one more row; biases that spare others take no place of it."""
    y = np.repeat([0, 1, 2], [8, 4, 3])
    scores = np.eye(3)[y]
    scores[0] = [0.0, 5.0, 0.0]
    scores[8:10] = [1.0, 0.9, 0.0]  # wrong by little
    found = compile_constraints([gc.class_error(0) <= 2 / 9], Rows(y, np.arange(3)))
    rows = EvaluationSet(*found, "rows")
    start = Choice(2, np.zeros(3), np.nan, 0.0)
    given = ScoredRows(rows, lambda rounds: scores)
    choice = control_risk(given, given, start)
    assert choice.violation == 0.0
    assert not choice.shift.any()


@BOTH
@KINDS
def test_certification_rows_are_in_no_booster(library, kind, table, conclusions):
    """Other features in those rows change the shift, and no tree."""
    X, y = table[0], table[1][kind]
    rule = [gc.fnr() <= 0.2] if kind == "binary" else [gc.class_error(1) <= 0.4]
    model = certified(library, rule, table, kind, probabilities="calibrated")
    fit = conclusions[0].fit
    rows, kept = fit.data.certification, fit.data.training
    np.testing.assert_array_equal(np.sort(np.concatenate([rows, kept])), np.arange(y.size))
    assert abs(rows.size - 0.35 * y.size) <= 1
    for label in np.unique(y):
        assert abs((y[rows] == label).sum() - 0.35 * (y == label).sum()) <= 1
    assert fit.measured.controller.rows.max() < kept.size  # folds are parts of the rest
    other = X.copy()
    other[rows] = np.random.default_rng(9).normal(size=(rows.size, 5))
    moved = certified(library, rule, (other, table[1]), kind, probabilities="calibrated")
    np.testing.assert_array_equal(conclusions[1].fit.data.certification, rows)
    if library == "xgboost":
        assert moved.get_booster().get_dump() == model.get_booster().get_dump()
    else:
        np.testing.assert_array_equal(margins_of(moved, X), margins_of(model, X))
    assert abs(moved.shift_ - model.shift_).max() > 1e-3
    assert model.constraint_report_["rows"][0] == "certification"


@BOTH
@pytest.mark.parametrize(
    ("kind", "rules"),
    [
        ("binary", [gc.error_rate() <= 1.0]),
        ("binary", [gc.fpr() <= 0.6, gc.error_rate() <= 0.9]),
        ("several", [gc.class_error(0) <= 1.0]),
        ("several", [gc.class_error(0) <= 0.95]),
        ("several", [gc.class_error(0) <= 0.95, gc.error_rate() <= 0.9]),
    ],
)
def test_decisions_that_are_certified_as_they_are_stay(library, kind, rules, table, conclusions):
    """Nothing was in the way of the library's own model: no other decision takes its place."""
    X, y = table[0], table[1][kind]
    model = certified(library, rules, table, kind)
    fit, choice = conclusions[0].fit, conclusions[0].choice
    assert not model.multipliers_.any()
    assert not model.shift_.any()
    assert choice.p_value <= 0.05
    own = make(library, []).fit(X[fit.data.training], y[fit.data.training])
    np.testing.assert_array_equal(model.predict(X), own.predict(X))


@BOTH
def test_several_rates_are_tested_together(library, table, conclusions):
    """The p-value is the largest of the binomial tails, by hand, and below delta."""
    X, y = table[0], table[1]["binary"]
    model = certified(
        library, [gc.fnr() <= 0.4, gc.fpr() <= 0.6], table, guarantee=gc.HighProbability(0.1, 0.35)
    )
    fit, choice = conclusions[0].fit, conclusions[0].choice
    decisions, labels = model.predict(X[fit.data.certification]), y[fit.data.certification]
    tails = [
        stats.binom.cdf((decisions != c)[labels == c].sum(), (labels == c).sum(), bound)
        for c, bound in ((1, 0.4), (0, 0.6))
    ]
    assert choice.p_value == pytest.approx(max(tails), rel=1e-6)
    assert choice.p_value <= 0.1
    report = model.constraint_report_
    rates = [(decisions != c)[labels == c].mean() for c in (1, 0)]
    np.testing.assert_allclose(report.held_out, rates, atol=1e-12)
    assert (report.held_out < report.bound).all()


@BOTH
def test_certificates_with_unequal_weights_are_valid(library, table, conclusions):
    """Hoeffding's inequality for a weighted mean of misses, by hand."""
    X, y = table[0], table[1]["binary"]
    weight = np.random.default_rng(2).uniform(0.5, 1.5, y.size)
    model = certified(library, [gc.fnr() <= 0.4], table, sample_weight=weight)
    fit, choice = conclusions[0].fit, conclusions[0].choice
    own = fit.data.certification[y[fit.data.certification] == 1]
    w = weight[own]
    missed = np.average(model.predict(X[own]) == 0, weights=w)
    effective = w.sum() ** 2 / (w**2).sum()
    p = np.exp(-2 * effective * (0.4 - missed) ** 2)
    assert missed < 0.4
    assert choice.p_value <= 0.05
    assert choice.p_value == pytest.approx(p, rel=1e-6)


@BOTH
@pytest.mark.parametrize("bounds", [(0.5, 0.6), (0.6, 0.7)])
def test_certificates_of_several_classes(library, bounds, table, conclusions):
    """The p-value is the largest of the tails; the tighter bounds may not be certified."""
    X, y = table[0], table[1]["several"]
    rules = [gc.class_error(k) <= bound for k, bound in zip((2, 0), bounds, strict=True)]
    model = certified(library, rules, table, "several")
    fit, choice = conclusions[0].fit, conclusions[0].choice
    decisions, labels = model.predict(X[fit.data.certification]), y[fit.data.certification]
    tails = [
        stats.binom.cdf((decisions != c)[labels == c].sum(), (labels == c).sum(), bound)
        for c, bound in zip((2, 0), bounds, strict=True)
    ]
    assert choice.p_value == pytest.approx(max(tails), rel=1e-6)
    assert model.constraint_report_.satisfied.all() == (max(tails) <= 0.05)
    assert max(tails) <= 0.05 or bounds == (0.5, 0.6)


def test_decisions_are_put_in_order_by_rules_that_their_rows_tell_of(table):
    """A group without a row on the holdout is as safe at any threshold."""
    margin, y = table[0][:, 0], table[1]["binary"].astype(np.intp)
    group = np.where(np.arange(y.size) < 200, "few", "many")
    rows = Rows(y, np.arange(2), columns={"g": group})
    kept = np.flatnonzero((group == "many") | (y == 0))
    rules = [gc.fpr() <= 0.6, gc.selection_rate() >= 0.1, gc.recall(on={"g": "few"}) >= 0.1]
    cells, compiled = compile_constraints(rules, rows)
    part = cells.take(kept)
    found = []
    for stated in (compiled, compiled.without_rows_of([2])):
        chosen = EvaluationSet(part, stated.on(part), "holdout")
        fresh = EvaluationSet(cells, stated, "certification")
        scored = ScoredRows(chosen, lambda rounds: margin[kept])
        order = guarantees._order_decisions(scored, fresh, 3, 0.05, keeps_own=False)
        found.append([choice.shift[0] for choice in order])
    assert len(found[0]) > 10
    assert found[0] == found[1]


@BOTH
def test_a_guarantee_on_a_watched_evaluation_set(library, table, conclusions):
    """Certification rows are still apart from both."""
    X, y = table[0], table[1]["binary"]
    model = make(
        library,
        [gc.fnr() <= 0.3],
        measure_on="holdout",
        guarantee=gc.HighProbability(fraction=0.35),
    )
    model.fit(X[200:], y[200:], eval_set=[(X[:200], y[:200])], **quiet(library))
    fit = conclusions[0].fit
    assert fit.measured.boosters is None
    assert fit.solver.lagrangian.n_samples == fit.data.training.size
    assert model.constraint_report_["rows"][0] == "certification"
    own = 200 + fit.data.certification[y[200:][fit.data.certification] == 1]
    missed = np.mean(model.predict(X[own]) == 0)
    assert model.constraint_report_.held_out[0] == pytest.approx(missed)


@BOTH
def test_the_error_of_a_vacuous_certificate_is_the_plain_one(library, table):
    """A rule that any decision meets leaves the threshold where the error is least, about."""
    X, y = table[0], table[1]["binary"]
    model = certified(library, [gc.error_rate() <= 1.0], table)
    assert np.mean(model.predict(X) != y) < 0.3


def test_nothing_is_certified_behind_a_failure():
    """A sequence whose first decision fails has no certificate, however small a later p-value.

    Prefixes share delta: the p-value of the first decision is below delta, and above its share.
    """
    rng = np.random.default_rng(0)

    def sample(n, separation):
        y = rng.integers(0, 2, n)
        cells, compiled = compile_constraints(RULES_OF_TWO, Rows(y, np.arange(2)))
        margin = rng.normal(size=n) + separation * (y - 0.5)
        return ScoredRows(EvaluationSet(cells, compiled, "test"), lambda rounds: margin)

    shared = set()
    for _ in range(30):
        selection, certification = sample(400, 3.0), sample(120, 2.2)
        start = choose_prefix(selection, Prefixes(20, 2))
        for is_free in (True, False):
            prefixes = Prefixes(20, 2, is_free)
            found = guarantees.certify(selection, certification, start, prefixes, 0.1)
            n = count_sequences(certification.rows, prefixes)
            assert n == (3 if is_free else 1)
            assert found.level == pytest.approx(0.1 / n)
            order = guarantees._order_decisions(
                selection, certification.rows, 20, 0.1, keeps_own=False
            )
            rows, margin = certification.rows, certification.margins(20)
            tails = [
                constraint_p_values(
                    rows.compiled, rows.counts(rows.decisions(margin + c.shift))
                ).max()
                for c in order
            ]
            is_given = tails[0] <= 0.1 / n
            assert found.is_certified == is_given
            if is_given:
                assert found.p_value <= found.level
            else:
                assert found.p_value == pytest.approx(tails[0]), "nor is a later one looked at"
                shared.add((is_free, min(tails) <= 0.1 / n))
    assert (True, True) in shared


@pytest.mark.parametrize("rule", [gc.each, lambda rate, **options: rate])
def test_neither_class_comes_first_where_decisions_are_certified(rule):
    """Labels and scores turned round give thresholds turned round, and as many certificates.

    Where no row misses at many thresholds, the boldest of these is not the first to be tested.
    """
    rng = np.random.default_rng(0)

    def sample(n):
        y = (rng.random(n) < 0.3).astype(int)
        return y, rng.choice(["a", "b"], n), rng.normal(size=n) + 2.0 * y

    def certificate(first, fresh, label):
        rules = [rule(gc.fnr(label), by="g", min_group_size=1) <= 0.2]
        rows = [
            Rows(y, np.arange(2), None, columns_of({"g": g}, y.size)) for y, g, _ in (first, fresh)
        ]
        chosen, kept = (EvaluationSet(*compile_constraints(rules, part), "test") for part in rows)
        selection = ScoredRows(chosen, lambda rounds: first[2])
        certification = ScoredRows(kept, lambda rounds: fresh[2])
        start = choose_prefix(selection, Prefixes(20, 2))
        return guarantees.certify(selection, certification, start, Prefixes(20, 2), 0.1)

    def turned(part):
        return 1 - part[0], part[1], -part[2]

    for _ in range(20):
        first, fresh = sample(200), sample(150)
        found = certificate(first, fresh, 1)
        other = certificate(turned(first), turned(fresh), 0)
        assert not found.is_uncertified
        assert not other.is_uncertified
        np.testing.assert_allclose(other.shift, -found.shift, atol=1e-4)


@BOTH
def test_rows_of_further_data_sets_are_certified_as_well(library, table, conclusions):
    X, y = table[0], table[1]["binary"]
    rules = [gc.fpr() <= 0.5, gc.selection_rate(on=gc.dataset("more")) <= 0.7]
    options = {"guarantee": gc.HighProbability(fraction=0.35)}
    model = make(library, rules, **options).fit(X, y, datasets={"more": X[:200] + 0.1})
    fit = conclusions[0].fit
    own = fit.data.certification[fit.data.certification >= y.size] - y.size
    assert abs(own.size - 70) <= 1
    rate = np.mean(model.predict(X[own] + 0.1))
    assert model.constraint_report_.held_out[1] == pytest.approx(rate)
    assert model.constraint_report_["rows"][1] == "certification"


# --- one decision for all rows ------------------------------------------------------------------


def draw_groups(seed, n, share=0.2):
    """Two groups, of which one has more rows of the positive class."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n, 4))
    group = (rng.random(n) < 0.4).astype(int)
    score = features[:, 0] + 0.6 * features[:, 1] + 0.8 * group + 0.9 * rng.normal(size=n)
    y = (score > np.quantile(score, 1 - share)).astype(int)
    return np.column_stack([features, group]), y, {"g": group}


@BOTH
@pytest.mark.parametrize("guarantee", ["expected", "high_probability"])
@pytest.mark.parametrize("bound", [0.05, 0.2])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_one_decision_for_all_rows_earns_no_guarantee(library, guarantee, bound, n_classes):
    """It closes the gap, and says nothing; it is named where nothing else passes."""
    features, y, groups = draw_groups(0, 2400)
    if n_classes == 3:
        y = y + (features[:, 0] > 0)
    rules = [gc.gap(gc.tpr(1), by="g") <= bound]
    model = make(library, rules, guarantee=guarantee, n_estimators=30)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(features, y, sensitive_features=groups)
    decided = model.predict(features)
    assert np.unique(decided).size > 1
    common = np.bincount(y).max() / y.size
    assert np.mean(decided == y) > common
    is_given = model.constraint_report_.verdict[0] == "met"
    told = [str(w.message) for w in caught if "[GC102]" in str(w.message)]
    if guarantee == "high_probability":
        assert bool(told) != is_given
    if told:
        assert "other than one decision for all rows, none passes" in told[0]
        assert "gap(tpr" in told[0]


def test_one_decision_for_all_rows_is_certified_where_it_is_best():
    """Of scores that say nothing and one row in fifty."""
    rng = np.random.default_rng(0)

    def sample(n):
        y = (rng.random(n) < 0.02).astype(int)
        columns = columns_of({"g": rng.choice(["a", "b"], n)}, n)
        rules = [gc.gap(gc.selection_rate(), by="g") <= 0.2]
        bound = compile_constraints(rules, Rows(y, np.arange(2), None, columns))
        margin = rng.normal(size=n) - 0.5
        return ScoredRows(EvaluationSet(*bound, "test"), lambda rounds: margin)

    selection, certification = sample(1000), sample(1000)
    start = choose_prefix(selection, Prefixes(20, 2))
    found = guarantees.certify(selection, certification, start, Prefixes(20, 2), 0.1)
    assert found.is_certified
    assert not certification.rows.decisions(certification.margins(20) + found.shift[0]).any()


def test_false_certificates_are_as_rare_without_constant_decisions():
    """Scores whose gap is at the bound: certified thresholds violate it in few samples."""
    rng = np.random.default_rng(1)
    n_false, n_given, n_repeats, delta = 0, 0, 40, 0.2

    def sample(n):
        y = (rng.random(n) < 0.4).astype(int)
        group = rng.integers(0, 2, n)
        margin = rng.normal(size=n) + 2.0 * y - 1.0 + 0.6 * group
        rules = [gc.gap(gc.selection_rate(), by="g") <= 0.15]
        columns = columns_of({"g": group}, n)
        bound = compile_constraints(rules, Rows(y, np.arange(2), None, columns))
        return ScoredRows(EvaluationSet(*bound, "test"), lambda rounds: margin)

    population = sample(50_000)
    for _ in range(n_repeats):
        selection, certification = sample(600), sample(600)
        start = choose_prefix(selection, Prefixes(20, 2))
        found = guarantees.certify(selection, certification, start, Prefixes(20, 2), delta)
        rows, scores = population.rows, population.margins(20) + found.shift[0]
        assert 0 < rows.decisions(scores).mean() < 1
        n_given += found.is_certified
        n_false += found.is_certified and rows.violations(scores).max() > 0.0
    assert n_false <= n_repeats * delta + 2 * np.sqrt(n_repeats * delta * (1 - delta))
    assert n_given > 0
