"""Certified and conformal decisions."""

from __future__ import annotations

import re
import warnings

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb
from helpers import EITHER, margins_of, quiet
from scipy import stats
from small_fits import ROUNDS, certified, clopper_pearson, make

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.data.validation import columns_of
from gbm_constrained.decision import guarantees
from gbm_constrained.decision.choose import Prefixes, choose_prefix
from gbm_constrained.decision.evaluation_set import EvaluationSet, ScoredRows
from gbm_constrained.decision.guarantees import (
    GuaranteeRequest,
    check_guarantee,
    control_risk,
    count_sequences,
)
from gbm_constrained.decision.histograms import RESOLUTION
from gbm_constrained.decision.rules import Choice
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.statistics.order_statistics import (
    expected_rank,
    expected_threshold,
    umbrella_threshold,
)
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


@pytest.mark.parametrize(("library", "kind"), [("xgboost", "binary"), ("lightgbm", "several")])
def test_certification_rows_are_in_no_booster(library, kind, table, conclusions):
    """Other features in those rows change the shift, and no tree."""
    X, y = table[0], table[1][kind]
    rule = [gc.fnr() <= 0.2] if kind == "binary" else [gc.class_error(0) <= 0.3]
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


@pytest.mark.parametrize(
    ("library", "kind", "rules"),
    [
        ("xgboost", "binary", [gc.error_rate() <= 1.0]),
        ("lightgbm", "binary", [gc.fpr() <= 0.6, gc.error_rate() <= 0.9]),
        ("lightgbm", "several", [gc.class_error(0) <= 1.0]),
        ("xgboost", "several", [gc.class_error(0) <= 0.95, gc.error_rate() <= 0.9]),
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


@EITHER
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


@EITHER
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


@EITHER
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
    assert (model.constraint_report_.verdict == "met").all() == (max(tails) <= 0.05)
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


@EITHER
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
    for _ in range(12):
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

    for _ in range(6):
        first, fresh = sample(200), sample(150)
        found = certificate(first, fresh, 1)
        other = certificate(turned(first), turned(fresh), 0)
        assert not found.is_uncertified
        assert not other.is_uncertified
        np.testing.assert_allclose(other.shift, -found.shift, atol=1e-4)


@EITHER
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


@pytest.mark.parametrize(
    ("library", "n_classes", "guarantee", "bound"),
    [
        ("xgboost", 2, "expected", 0.05),
        ("xgboost", 3, "high_probability", 0.2),
        ("lightgbm", 2, "high_probability", 0.05),
        ("lightgbm", 3, "expected", 0.2),
    ],
)
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
    n_false, n_given, n_repeats, delta = 0, 0, 15, 0.2

    def sample(n):
        y = (rng.random(n) < 0.4).astype(int)
        group = rng.integers(0, 2, n)
        margin = rng.normal(size=n) + 2.0 * y - 1.0 + 0.6 * group
        rules = [gc.gap(gc.selection_rate(), by="g") <= 0.15]
        columns = columns_of({"g": group}, n)
        bound = compile_constraints(rules, Rows(y, np.arange(2), None, columns))
        return ScoredRows(EvaluationSet(*bound, "test"), lambda rounds: margin)

    population = sample(20_000)
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


@EITHER
@pytest.mark.parametrize("guarantee", ["expected", "high_probability"])
def test_rows_that_depend_on_each_other_certify_nothing(library, guarantee, table):
    with pytest.raises(ValueError, match=rf"guarantee='{guarantee}'.*independent.*groups"):
        certified(
            library, [gc.fnr() <= 0.3], table, guarantee=guarantee, groups=np.arange(700) // 4
        )


@EITHER
def test_rules_on_rows_that_are_all_set_aside(library, table):
    """One row of a rule is either trained on or kept for the certificate."""
    alone = np.arange(len(table[0])) == 0
    message = (
        r"guarantee='high_probability' sets aside fraction=0\.95 of the rows, and "
        r"without these error_rate\[mask of 1 rows\] <= 0\.5 is taken over no rows at all.*"
        r"a smaller fraction"
    )
    guarantee = gc.HighProbability(fraction=0.95)
    with pytest.raises(ValueError, match=message):
        certified(library, [gc.error_rate(on=alone) <= 0.5], table, guarantee=guarantee)
    with pytest.raises(
        ValueError, match=r"^error_rate\[mask of 0 rows\] <= 0\.5 is taken over no"
    ):
        certified(library, [gc.error_rate(on=alone & ~alone) <= 0.5], table)


@EITHER
@pytest.mark.parametrize("weighted", [False, True])
def test_too_few_rows_are_refused_before_training(library, weighted, table, monkeypatch):
    """0.99 to the power of the positive rows that are set aside is more than delta."""
    for owner, name in (
        (xgb, "train"), (lgb, "train"), (xgb.Booster, "__init__"), (lgb.Booster, "__init__"),
    ):  # fmt: skip
        monkeypatch.setattr(owner, name, lambda *a, **k: pytest.fail("training started"))
    y = table[1]["binary"]
    weight = {"sample_weight": np.full(y.size, 3.0)} if weighted else {}
    n = int(0.35 * (y == 1).sum())
    message = (
        rf"high_probability.*fnr <= 0\.01.*over ({n}|{n + 1}) of these rows and needs 299\."
        rf".*245 rows.*"
        rf"fraction=0\.35.*{0.99**n:.2g}.*delta=0\.05"
    )
    with pytest.raises(ValueError, match=message):
        certified(library, [gc.fnr() <= 0.01], table, **weight)
    for guarantee in ("high_probability", "expected"):
        for rule in (gc.log_loss() <= 0.5, gc.fpr() + gc.log_loss() <= 0.5):
            with pytest.raises(ValueError, match=rf"{guarantee}.*log_loss <= 0\.5: a mean loss"):
                certified(library, [gc.fnr() <= 0.3, rule], table, guarantee=guarantee)


@EITHER
def test_prefixes_share_delta_as_far_as_there_are_any(library, table):
    """245 rows without an error leave 0.03: enough for delta, and too much for a third of it."""
    rule = gc.error_rate() <= 0.0142
    with pytest.raises(ValueError, match=r"p-value of 0\.03, above 0\.017"):
        certified(library, [rule], table, iterate="best")
    with pytest.warns(UserWarning, match="certif"):
        certified(library, [rule], table, iterate="best", n_estimators=2)


@EITHER
@pytest.mark.parametrize("guarantee", ["expected", "high_probability"])
@pytest.mark.parametrize(
    "rule",
    [
        gc.fnr() <= 0.0,
        gc.recall() >= 1.0,
        gc.fnr(on={"g": "a"}) <= 0.0,
        gc.fnr() + gc.fpr() <= 0.0,
    ],
)
def test_bounds_for_which_no_number_of_rows_is_enough(library, guarantee, rule, table):
    """Rows are never said to help where a rate would have to be at its smallest value."""
    group = np.where(np.arange(len(table[0])) % 2, "a", "b")
    message = rf"guarantee='{guarantee}'.*No number of rows is enough for it: relax the bound\.$"
    with pytest.raises(ValueError, match=message):
        certified(library, [rule], table, guarantee=guarantee, sensitive_features={"g": group})


@EITHER
@pytest.mark.parametrize(
    "rule",
    [
        gc.gap(gc.fpr(), by="g") <= 0.0,
        gc.gap(gc.recall(), by="g", reference=gc.overall) <= 0.0,
        gc.ratio(gc.selection_rate(), by="g") >= 1.0,
    ],
)
def test_equal_rates_are_refused_before_training(library, rule, table):
    """Of a row and its opposite one must be violated in the population, or both be at the edge."""
    group = {"g": np.where(np.arange(len(table[0])) % 2, "a", "b")}
    message = re.escape(
        f"guarantee='high_probability' cannot be given for {rule}: that two values"
    )
    with pytest.raises(ValueError, match=message):
        certified(library, [rule], table, guarantee="high_probability", sensitive_features=group)
    # In the mean over samples they may be equal: nothing is refused.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        certified(library, [rule], table, guarantee="expected", sensitive_features=group)


@EITHER
def test_rows_of_unequal_weights_that_are_too_few(library, table):
    """29 rows certify a bound of 0.1 if they weigh alike; Hoeffding's inequality takes 150."""
    y = table[1]["binary"]
    weight = np.where(np.arange(y.size) % 2, 1.0, 9.0)
    with pytest.raises(ValueError, match=r"fnr <= 0\.1 is taken over") as caught:
        certified(library, [gc.fnr() <= 0.1], table, sample_weight=weight)
    found = re.search(
        r"(\d+) of these rows, which count as (\d+) for .*needs 150\.", str(caught.value)
    )
    assert found is not None
    assert 29 < int(found[2]) < min(int(found[1]), 150)


@EITHER
@pytest.mark.parametrize("guarantee", ["expected", "high_probability"])
def test_training_rows_guarantee_nothing(library, guarantee, table):
    X, y = table[0], table[1]["binary"]
    with pytest.raises(ValueError, match=rf"guarantee='{guarantee}'.*'train'"):
        make(library, [gc.fnr() <= 0.3], guarantee=guarantee, measure_on="train").fit(X, y)
    name = {"xgboost": "xgb_model", "lightgbm": "init_model"}[library]
    begin = {name: make(library, [], n_estimators=3).fit(X, y)}
    with pytest.raises(ValueError, match=rf"guarantee='{guarantee}'.*continued training"):
        make(library, [gc.fnr() <= 0.3], guarantee=guarantee).fit(X, y, **begin)


@EITHER
def test_rows_of_no_weight_refuse_no_certificate(library, table):
    """They are no rows of the rate: it can be certified where it could without them."""
    X, y = table[0], table[1]["binary"]
    weight = np.where(np.arange(y.size) % 3, 1.0, 0.0)
    rule, options = (
        [gc.fpr() <= 0.03],
        {"guarantee": gc.HighProbability(fraction=0.4)},
    )
    model = make(library, rule, **options).fit(X, y, sample_weight=weight)
    assert model.constraint_report_["rows"][0] == "certification"


@EITHER
def test_a_class_that_certification_takes_whole(library, table):
    """A class of one row is set aside as a whole, or not at all."""
    X, y = table[0], np.where(np.arange(700) == 5, 3, table[1]["several"])
    refused = []
    for seed in range(4):
        model = make(
            library, [gc.class_error(0) <= 0.9], guarantee=gc.Expected(0.8), n_estimators=1
        )
        model.set_params(random_state=seed)
        try:
            model.fit(X, y)
        except ValueError as error:
            refused.append(str(error))
    assert 0 < len(refused) < 4
    assert all("sets aside all rows of class 3, which has too few" in text for text in refused)


@pytest.mark.parametrize("kind", ["expected", "high_probability"])
def test_rules_on_rows_none_of_which_is_set_aside(kind, table):
    """Nothing is promised of a group or a mask that no certification row is of."""
    y = table[1]["binary"].astype(np.intp)
    rare = np.arange(y.size) < 5
    aside = np.flatnonzero(~rare)[::3]
    rows = Rows(y, np.arange(2), columns={"g": np.where(rare, "rare", "common")})
    asked = GuaranteeRequest(kind, 0.2, 0.05, Prefixes(ROUNDS, 1))
    by_g = {"by": "g", "min_group_size": 1}
    for rule, missing in (
        (gc.gap(gc.selection_rate(), **by_g) <= 0.9, "none in g=rare"),
        (gc.gap(gc.selection_rate(), reference=gc.overall, **by_g) <= 0.9, "none in g=rare"),
        (gc.each(gc.fpr(), **by_g) <= 0.9, "none in g=rare"),
        (gc.selection_rate(on=rare) <= 0.9, "none"),
    ):
        message = re.escape(
            f"guarantee='{kind}' cannot be given for {rule}: of the {aside.size} rows that "
            f"fraction=0.2 sets aside it is taken over {missing}. Give more rows or"
        )
        training = compile_constraints([gc.fpr() <= 0.9, rule], rows)[1]
        part = compile_constraints([gc.fpr() <= 0.9, rule], rows.take(aside), like=training)
        with pytest.raises(ValueError, match=message):
            check_guarantee(EvaluationSet(*part, "certification"), training, asked)


@EITHER
def test_a_rule_that_is_always_met_takes_no_certificate(library, table, conclusions):
    """Nor does one of a group that no certification row is of."""
    X, y = table[0], table[1]["binary"]
    rare = np.arange(y.size) == np.flatnonzero(y == 0)[0]
    rules = [gc.fpr() <= 0.2, gc.each(gc.fpr(), by="g", min_group_size=1) <= 1.0]
    alone, model = (
        make(library, some, guarantee="high_probability").fit(
            X, y, sensitive_features={"g": np.where(rare, "rare", "common")}
        )
        for some in (rules[:1], rules)
    )
    assert not rare[conclusions[0].fit.data.certification].any()
    np.testing.assert_array_equal(model.predict_proba(X), alone.predict_proba(X))
    assert model.constraint_report_.satisfied.all()


@EITHER
@pytest.mark.usefixtures("one_pass")
@pytest.mark.parametrize("rules", [1, 2])
def test_in_expectation_one_more_row_may_be_wrong(library, rules, table, conclusions):
    """Of n positive rows that are set aside, b (n + 1) - 1 are missed at most."""
    X, y = table[0], table[1]["binary"]
    for bound in (0.05, 0.2):
        own = [gc.fnr() <= bound, gc.fpr() <= 0.99][:rules]
        # Ten rounds without multipliers have the last positives among all the negatives.
        model = make(library, own, guarantee="expected", solver="abpp").fit(X, y)
        fit = conclusions.pop().fit
        positive = fit.data.certification[y[fit.data.certification] == 1]
        missed = (model.predict(X[positive]) == 0).sum()
        assert missed <= bound * (positive.size + 1) - 1
        assert model.constraint_report_["rows"][0] == "certification"
        assert model.constraint_report_.held_out[0] == pytest.approx(missed / positive.size)


@EITHER
@pytest.mark.parametrize(("fewest", "weight"), [(2, None), (5, 0.1), (6, None), (9, 0.1)])
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


@EITHER
@pytest.mark.parametrize("rate", [gc.fnr, gc.fpr])
@pytest.mark.parametrize("weighted", [False, True])
def test_one_rate_of_one_class_has_the_umbrella_threshold(
    library, rate, weighted, table, conclusions
):
    """Weights that are equal change nothing."""
    X, y = table[0], table[1]["binary"]
    weight = {"sample_weight": np.full(y.size, 2.0)} if weighted else {}
    target, sign, bound = (1, -1.0, 0.2) if rate is gc.fnr else (0, 1.0, 0.05)
    options = {"probabilities": "calibrated", "measure_on": "crossfit", "max_bin": 255}
    model = certified(library, [rate() <= bound], table, **options, **weight)
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


@EITHER
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
        shift, nearer = guarantees._find_limit(rows, sign * scores, expected_threshold)
        assert nearer is (np.minimum, np.maximum)[towards]
        return -sign * shift[0]

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


@EITHER
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


@EITHER
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
        limit = start.shift, (np.minimum, np.maximum)[towards]
        return guarantees._choose_within(limit, ScoredRows(chosen, lambda rounds: margin), start)

    for _ in range(40):
        y = rng.integers(0, 2, 20)
        margin = rng.normal(size=20) + 2.0 * y - 0.5
        found, other = within(y, margin, -3.0, 1), within(1 - y, -margin, 3.0, 0)
        np.testing.assert_allclose(other.shift, -found.shift, atol=1e-4)
