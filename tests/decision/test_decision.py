"""Which decisions are returned: prefix, threshold or biases, guarantees, and what is reported."""

from __future__ import annotations

import itertools
import pickle
import re
import warnings

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb
from helpers import BOTH, CLASSIFIERS, KINDS, RULES, margins_of, quiet
from references import best_shift
from scipy import special, stats
from sklearn.base import clone
from sklearn.metrics import log_loss as cross_entropy

from gbm_constrained import (
    MissedConstraintsWarning,
    class_error,
    dataset,
    each,
    error_rate,
    fnr,
    fpr,
    gap,
    log_loss,
    overall,
    ratio,
    recall,
    selection_rate,
)
from gbm_constrained.data.rows import Rows, columns_of
from gbm_constrained.decision import guarantees
from gbm_constrained.decision.evaluation_set import EvaluationSet, ScoredRows
from gbm_constrained.decision.guarantee_checks import GuaranteeRequest, check_guarantee
from gbm_constrained.decision.guarantees import control_risk, count_sequences
from gbm_constrained.decision.lines import RESOLUTION
from gbm_constrained.decision.prefix_choice import (
    MAX_ERROR_INCREASE,
    N_PREFIXES,
    N_PREFIXES_OF_SEVERAL_CLASSES,
    VIOLATION_PENALTY,
    Prefixes,
    choose_prefix,
    choose_with_room,
    compares_groups,
    cross_fitted_decisions,
    tightened_bounds,
)
from gbm_constrained.decision.rule import Choice
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.reporting.audit import audit
from gbm_constrained.solvers import AutoSolver
from gbm_constrained.statistics.between_folds import disagreement, of_one_booster
from gbm_constrained.statistics.counts import CellCounts, functionals_of
from gbm_constrained.statistics.intervals import constraint_intervals, functional_intervals
from gbm_constrained.statistics.order_statistics import (
    expected_rank,
    expected_threshold,
    umbrella_threshold,
)
from gbm_constrained.statistics.p_values import rule_p_value

ROUNDS = 13
OPTIONS = {
    "xgboost": {"max_depth": 3, "n_jobs": 1},
    "lightgbm": {"num_leaves": 7, "n_jobs": 1, "verbose": -1},
}
CLOSE = {"xgboost": 2e-6, "lightgbm": 1e-12}


RULES_OF_TWO = [fnr() <= 0.3, fpr() <= 0.3]
# Which no ensemble here meets without a shift.
DEMANDING = {"binary": [fnr() <= 0.05], "several": [class_error(2) <= 0.05]}


def make(library, rules, **options):
    options = {"n_estimators": ROUNDS, **OPTIONS[library], **options}
    return CLASSIFIERS[library](constraints=rules, **options)


def decided(scores):
    return scores.argmax(axis=1) if scores.ndim > 1 else (scores > 0).astype(int)


def plain(library, model, tmp_path):
    """Decisions and probabilities of the saved file, by the library alone."""
    if library == "xgboost":
        model.save_model(tmp_path / "model.json")
        loaded = xgb.XGBClassifier()
        loaded.load_model(tmp_path / "model.json")
        return loaded.predict, loaded.predict_proba
    model.booster_.save_model(tmp_path / "model.txt")
    booster = lgb.Booster(model_file=tmp_path / "model.txt")

    def probabilities(X):
        p = booster.predict(X)
        return np.column_stack([1 - p, p]) if p.ndim == 1 else p

    return lambda X: decided(booster.predict(X, raw_score=True)), probabilities


@pytest.fixture(scope="module")
def table():
    """Features, labels by number of classes, and a group. A third of the labels are drawn."""
    rng = np.random.default_rng(0)
    sex = rng.integers(0, 2, 700)
    X = rng.normal(size=(700, 5))
    X[:, 0] += 0.6 * sex
    score = X[:, 0] + X[:, 1] * X[:, 2] + 0.5 * rng.normal(size=700)
    y = {"binary": (score > 0.7).astype(int), "several": np.digitize(score, [-0.3, 1.0])}
    noise = rng.random(700) < 0.3
    return X, {k: np.where(noise, rng.permutation(v), v) for k, v in y.items()}, sex


# --- the prefix ---------------------------------------------------------------------------------


def test_prefixes_of_several_classes_are_ranked_by_price_where_no_rule_holds():
    """Half a point less of the largest violation is not worth any number of errors."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 4, 900)
    bounded = (y == 1) | (y == 2)
    noise = rng.normal(size=(900, 3))
    cells, compiled = compile_constraints(
        [class_error(k) <= 0.01 for k in (1, 2)], Rows(y, np.arange(4))
    )
    rows = EvaluationSet(cells, compiled, "test")

    def margins(rounds):
        # Early prefixes tell class 1 from 2 better, and these two from the others hardly.
        apart = noise[:, 0] + (2.0 - 0.005 * rounds) * ((y == 1) * 1.0 - (y == 2))
        known = 0.3 * noise[:, 1] + (6.0 if rounds == 60 else 1.0) * (0.5 - bounded)
        others = noise[:, 2] + 3.0 * ((y == 0) * 1.0 - (y == 3))
        return np.column_stack([known + others, apart, -apart, known - others])

    chosen = choose_prefix(ScoredRows(rows, margins), Prefixes(60, 2, True))
    tried = {
        r: best_shift(margins(r), cells, compiled, penalty=VIOLATION_PENALTY)
        for r in Prefixes(60, 2).candidates[-N_PREFIXES_OF_SEVERAL_CLASSES - 1 :]
    }
    assert not any(shift.is_feasible for shift in tried.values())
    assert min(tried, key=lambda r: tried[r].violation) != chosen.rounds
    least = min(
        tried, key=lambda r: tried[r].error + VIOLATION_PENALTY * violation(tried[r], compiled)
    )
    assert chosen.rounds == least
    assert chosen.loss == pytest.approx(tried[least].loss)


def test_rows_in_several_views_are_counted_once():
    """The accuracy is that of the rows, and its interval that of so many."""
    rng = np.random.default_rng(0)
    y, decided = rng.integers(0, 2, 300), rng.integers(0, 2, 300)
    rules = [selection_rate(on=rng.random(300) < 0.7) <= 0.9 for _ in range(14)]
    cells, compiled = compile_constraints(rules, Rows(y, np.arange(2)))
    assert len(cells.views) > 1
    rows = EvaluationSet(cells, compiled, "test")
    right = (decided == y).sum()
    expected = (right / 300, *clopper_pearson(right, 300))
    np.testing.assert_allclose(rows.accuracy(rows.counts(decided)), expected, rtol=1e-12)
    assert rows.error(decided) == pytest.approx(1.0 - right / 300)


def test_another_prefix_is_returned_only_where_the_whole_ensemble_pays_much():
    """More than two points of errors for the shift that it needs; and the later of equals."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 600)
    noise = rng.normal(size=600)
    rows = EvaluationSet(*compile_constraints([fnr() <= 0.02], Rows(y, np.arange(2))), "test")

    def chosen(separation, is_free):
        def margins(rounds):
            apart = separation if rounds == 20 else 8.0
            return noise + apart * (y - 0.5)

        found = choose_prefix(ScoredRows(rows, margins), Prefixes(20, 2, is_free))
        whole = best_shift(margins(20), rows.cells, rows.compiled)
        assert whole.is_feasible
        return found, whole.error - rows.error(rows.decisions(margins(20)))

    for separation, is_dear in ((1.5, True), (3.5, False)):
        found, cost = chosen(separation, False)
        assert (cost > MAX_ERROR_INCREASE) == is_dear
        assert (found.rounds < 20) == is_dear
        # Whichever prefix is the best, if that is asked for: of equals, the last.
        best, _ = chosen(separation, True)
        assert best.rounds == Prefixes(20, 2).candidates[-2] == 18
    assert chosen(8.0, True)[0].rounds == 20


@pytest.mark.parametrize("k", [2, 3])
def test_no_shift_is_searched_for_twice(k):
    """Biases of several classes take long to find: a choice that was made is used again."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, k, 300)
    noise = rng.normal(size=(300, k)) if k > 2 else rng.normal(size=300)
    cells, compiled = compile_constraints([class_error(0) <= 0.3], Rows(y, np.arange(k)))
    signal = np.eye(k)[y] if k > 2 else y - 0.5
    scored = ScoredRows(
        EvaluationSet(cells, compiled, "test"), lambda rounds: noise + 0.1 * rounds * signal
    )
    found = {}
    first = choose_prefix(scored, Prefixes(20, 2, True), found=found)
    known = dict(found)
    again = choose_prefix(scored, Prefixes(20, 2, True), found=found)
    assert again.rounds == first.rounds
    assert again.shift is first.shift
    assert set(found) == set(known)
    assert all(found[rounds] is known[rounds] for rounds in known)
    assert len(known) == (len(Prefixes(20, 2).candidates) if k == 2 else 4)


@pytest.mark.parametrize("n", [1000, 200_000])
@pytest.mark.parametrize("bound", [0.025, 0.01])
def test_a_gap_is_not_bought_at_any_price(n, bound):
    """Errors of 15 % and 12 %: a threshold closes the gap by half a point for six of errors.

    It is left, however many rows there are: a violation is worth ten times as many errors.
    """
    group = np.repeat([0, 1], n)
    wrong = np.concatenate([np.arange(n) < 0.15 * n, np.arange(n) < 0.12 * n])
    y = np.arange(2 * n) % 2
    size = np.empty(2 * n)  # evenly spread in each cell, so that no threshold is lucky
    for cell in range(8):
        mine = np.flatnonzero(4 * group + 2 * wrong + y == cell)
        size[mine] = (np.arange(mine.size) + 0.5 + 0.01 * cell) / mine.size
    margin = size * np.where((y == 1) ^ wrong, 1.0, -1.0)
    cells, compiled = compile_constraints(
        [gap(error_rate(), by="g") <= bound], Rows(y, np.arange(2), columns={"g": group})
    )
    rows = EvaluationSet(cells, compiled, "test")
    found = choose_prefix(ScoredRows(rows, lambda rounds: margin), Prefixes(20, 2, False))
    assert best_shift(margin, cells, compiled).error > 0.135 + 0.05  # at any price
    assert found.rounds == 20
    assert not found.has_rate_violation
    assert found.loss == pytest.approx(found.error + 10 * found.violation)
    assert found.loss <= 0.135 + 10 * (0.03 - bound) + 1e-9  # what no shift is worth
    assert found.error <= 0.138 + 1e-9
    assert found.violation == pytest.approx(0.03 - bound, abs=0.003)


def test_a_gap_is_closed_at_less_than_its_price():
    """A third of a group is just above the threshold: with it go the gap and some errors."""
    group, y = np.repeat([0, 1], 300), np.tile([0, 1, 1], 200)
    margin = np.where(y == 1, 2.0, -2.0) + 0.001 * np.arange(600) / 600
    near = (group == 1) & (np.arange(600) % 3 == 1)
    margin[near] = 0.01 + 0.0001 * np.arange(near.sum())  # right, and selected
    margin[group == 0] = np.where(np.arange(300) % 3 == 2, 2.0, -2.0)  # a third is selected
    for bound, is_closed in ((0.0, True), (0.5, False)):
        cells, compiled = compile_constraints(
            [gap(selection_rate(), by="g") <= bound], Rows(y, np.arange(2), columns={"g": group})
        )
        rows = EvaluationSet(cells, compiled, "test")
        found = choose_prefix(ScoredRows(rows, lambda rounds: margin), Prefixes(20, 2, False))
        assert found.violation == 0.0
        assert found.shift.any() == is_closed
        assert found.error == pytest.approx((100 + 100 * is_closed) / 600)


def test_the_last_of_a_violation_is_not_bought_with_errors():
    """A gap of exactly zero is met by no prefix; which one comes nearest to it is chance."""
    rng = np.random.default_rng(0)
    group = np.repeat([0, 1], [1000, 1109])
    y = (rng.random(2109) < np.where(group, 0.7, 0.3)).astype(int)
    noise = rng.normal(size=2109)
    rows = EvaluationSet(
        *compile_constraints(
            [gap(error_rate(), by="g") <= 0], Rows(y, np.arange(2), columns={"g": group})
        ),
        "test",
    )

    def margins(rounds):
        return noise + 0.7 + 0.2 * rounds * (y - 0.5)  # ever better; a threshold closes the gap

    def at(prefix):
        return best_shift(margins(prefix), rows.cells, rows.compiled)

    tried = {r: at(r) for r in Prefixes(20, 2).candidates}
    assert all(0.0 < shift.violation < 0.002 for shift in tried.values())
    assert min(tried, key=lambda r: tried[r].violation) < 20
    for is_free in (False, True):
        found = choose_prefix(ScoredRows(rows, margins), Prefixes(20, 2, is_free))
        assert found.rounds == 20
        assert found.error < tried[18].error
        assert found.violation <= tried[20].violation + 0.1 * (tried[20].error - found.error)


@pytest.mark.parametrize(
    ("straying", "expected"),
    [
        ({}, 20),
        ({20: 0.003}, 20),  # less than what it costs to go back
        ({18: 0.12, 20: 0.12}, 16),
        ({6: 0.12, 20: 0.12}, 18),
        ({rounds: 0.02 * rounds for rounds in Prefixes(20, 2).candidates}, 6),
    ],
)
def test_a_prefix_at_which_the_model_strays_pays_for_it(straying, expected):
    """The model returned may break rules that those that scored the rows keep, at any prefix."""
    rng = np.random.default_rng(0)
    group, y = rng.integers(0, 2, 4000), rng.integers(0, 2, 4000)
    noise, asked = rng.normal(size=4000), []
    rows = EvaluationSet(
        *compile_constraints(
            [gap(error_rate(), by="g") <= 0.05], Rows(y, np.arange(2), columns={"g": group})
        ),
        "test",
    )

    def margins(rounds):
        return noise + 0.2 * rounds * (y - 0.5)

    def stray(rounds, shift):
        asked.append(rounds)
        return straying.get(rounds, 0.0)

    def cost(rounds):
        error = best_shift(margins(rounds), rows.cells, rows.compiled).error
        return error + VIOLATION_PENALTY * straying.get(rounds, 0.0)

    found = choose_prefix(ScoredRows(rows, margins), Prefixes(20, 2, True), refit_violation=stray)
    assert found.rounds == min(Prefixes(20, 2).candidates, key=cost) == expected
    assert found.refit_violation == straying.get(expected, 0.0)
    # Only those that may be better are asked.
    assert asked == [20] if expected == 20 else set(asked) >= {expected, 20}
    # The last is kept all the same where it was asked for and meets the rules.
    assert (
        choose_prefix(
            ScoredRows(rows, margins), Prefixes(20, 2, False), refit_violation=stray
        ).rounds
        == 20
    )


def violation(shift, compiled):
    return np.maximum(compiled.rows_of(shift.functionals) - compiled.b, 0.0).sum()


# --- the shift ----------------------------------------------------------------------------------


@BOTH
@KINDS
@pytest.mark.parametrize("measure_on", ["crossfit", "holdout"])
def test_the_saved_file_decides_as_the_model_does(library, kind, measure_on, table, tmp_path):
    """Shifted in the model itself, or beside it: the decisions are the same."""
    X, y = table[0], table[1][kind]
    model = make(library, DEMANDING[kind], measure_on=measure_on).fit(X, y)
    beside = make(library, DEMANDING[kind], measure_on=measure_on, probabilities="calibrated")
    beside.fit(X, y)
    assert model.shift_.any()
    np.testing.assert_array_equal(model.shift_, beside.shift_)
    predict, probabilities = plain(library, model, tmp_path)
    np.testing.assert_array_equal(predict(X), model.predict(X))
    np.testing.assert_allclose(probabilities(X), model.predict_proba(X), atol=1e-7)
    margin, unmoved = margins_of(model, X), margins_of(beside, X)
    shift = model.shift_ if kind == "several" else model.shift_[0]
    np.testing.assert_allclose(margin, unmoved + shift, atol=CLOSE[library])
    np.testing.assert_array_equal(model.predict(X), decided(margin))
    np.testing.assert_array_equal(model.predict(X), beside.predict(X))
    if measure_on == "crossfit":
        assert (decided(unmoved) != beside.predict(X)).any()
    # What is beside the model leaves its probabilities alone.
    if kind == "binary":
        p = special.expit(unmoved)
        np.testing.assert_allclose(beside.predict_proba(X)[:, 1], p, atol=1e-6)
    else:
        p = special.softmax(unmoved, axis=1)
        np.testing.assert_allclose(beside.predict_proba(X), p, atol=1e-6)


@BOTH
@KINDS
def test_a_threshold_beside_the_model_travels_with_it(library, kind, table):
    X, y = table[0], table[1][kind]
    labels = y if library == "xgboost" else np.array(["a", "b", "c"])[y]
    rule = RULES["binary"] if kind == "binary" else [class_error(labels[y == 2][0]) <= 0.2]
    model = make(library, rule, probabilities="calibrated").fit(X, labels)
    expected = model.predict(X)
    assert set(expected) <= set(labels)
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copy.predict(X), expected)
    again = clone(copy)
    assert again.probabilities == "calibrated"
    assert not hasattr(again, "_threshold")
    np.testing.assert_array_equal(again.fit(X, labels).predict(X), expected)
    some = {"iteration_range": (0, 5)} if library == "xgboost" else {"num_iteration": 5}
    scores = margins_of(model, X, 5) + (model.shift_ if kind == "several" else model.shift_[0])
    np.testing.assert_array_equal(model.predict(X, **some), model.classes_[decided(scores)])
    again.set_params(constraints=[]).fit(X, labels)
    assert not hasattr(again, "_threshold")
    assert not hasattr(again, "shift_")


@BOTH
def test_the_threshold_is_the_best_on_pooled_scores(library, table, conclusions):
    """By trying all: the least error of those that miss no more than allowed."""
    X, y = table[0], table[1]["binary"]
    make(library, RULES["binary"]).fit(X, y)
    choice = conclusions[0].choice
    pooled = conclusions[0].fit.measured.boosters.held_margin(choice.rounds).astype(float)
    values = np.unique(pooled)
    cuts = np.concatenate([[values[0] - 1], (values[1:] + values[:-1]) / 2, [values[-1] + 1]])
    table_of = pooled[None] > cuts[:, None]
    missed = (~table_of[:, y == 1]).mean(axis=1)
    error = (table_of != (y == 1)).mean(axis=1)
    assert choice.bounds[0] <= 0.1  # lower if it leaves room
    best = error[missed <= choice.bounds[0]].min()
    at_bound = error[missed <= 0.1].min()
    assert best <= at_bound + np.sqrt(at_bound * (1 - at_bound) / y.size) + 2 / y.size
    chosen = (pooled + choice.shift[0] > 0) == (y == 1)
    assert np.mean(~chosen[y == 1]) <= 0.1
    # Scores nearer to each other than a booster's rounding are one candidate.
    assert np.mean(~chosen) == pytest.approx(best, abs=2 / y.size)
    assert choice.error == pytest.approx(np.mean(~chosen))


@BOTH
@KINDS
def test_early_stopping_and_the_shift(library, kind, table):
    """The best iteration is the parent's; it is shifted as a whole, and reported as such."""
    X, y = table[0], table[1][kind]
    stopping = {"early_stopping_rounds": 4} if library == "xgboost" else {}
    given = {"eval_set": [(X[:200], y[:200])], **quiet(library)}
    if library == "lightgbm":
        given["callbacks"] = [lgb.early_stopping(4, verbose=False)]
    options = {"n_estimators": 60, "learning_rate": 0.6, **stopping}
    model = make(library, DEMANDING[kind], **options).fit(X[200:], y[200:], **given)
    best = model.best_iteration + 1 if library == "xgboost" else model.best_iteration_
    assert best < 55
    assert model.shift_.any()
    assert model.history_["rounds"].iloc[-1] == best
    margin = margins_of(model, X)
    np.testing.assert_allclose(margin, margins_of(model, X, best), atol=1e-12)
    np.testing.assert_array_equal(model.predict(X), decided(margin))
    target = 1 if kind == "binary" else 2
    report = model.constraint_report_
    for name, part in (("train", slice(200, None)), ("held_out", slice(200))):
        wrong = decided(margin[part]) != y[part]
        rate = wrong[y[part] == target].mean()
        assert report[name][0] == pytest.approx(rate, abs=1e-9)
    assert report["rows"][0] == "eval_set[0]"


@BOTH
def test_best_is_a_prefix_by_unseen_rows(library, table, conclusions):
    """Of a few prefixes, each with its best threshold, that of least error; cut and shifted."""
    X, y = table[0], table[1]["binary"]
    options = {"n_estimators": 60, "learning_rate": 0.8}
    model = make(library, RULES["binary"], iterate="best", **options).fit(X, y)
    (conclusion,) = conclusions
    fit, choice = conclusion.fit, conclusion.choice
    looked_at = Prefixes(60, 2).candidates
    assert looked_at[-1] == 60
    assert len(looked_at) <= N_PREFIXES
    found = {}
    for rounds in looked_at:
        scores = fit.measured.boosters.held_margin(rounds)
        found[rounds] = best_shift(scores, fit.measured.rows.cells, fit.measured.rows.compiled)
    errors = {r: (shift.violation > 0, shift.error, -r) for r, shift in found.items()}
    best = min(errors, key=errors.get)
    assert best < 60, "not a prefix, so that nothing is proved"
    scores = fit.measured.boosters.held_margin(best)
    roomy = best_shift(
        scores, fit.measured.rows.cells, fit.measured.rows.compiled, bounds=choice.bounds
    )
    np.testing.assert_array_equal(choice.shift, roomy.value)
    assert choice.bounds[0] <= 0.1
    booster = model.get_booster() if library == "xgboost" else model.booster_
    grown = booster.num_boosted_rounds() if library == "xgboost" else booster.current_iteration()
    assert grown == best == model.history_["rounds"].iloc[-1]
    last = make(library, RULES["binary"], probabilities="calibrated", **options).fit(X, y)
    np.testing.assert_allclose(
        margins_of(model, X), margins_of(last, X, best) + model.shift_[0], atol=CLOSE[library]
    )
    assert model.constraint_report_.train[0] == pytest.approx(
        np.mean(model.predict(X)[y == 1] == 0)
    )


@BOTH
def test_mixtures_are_not_shifted(library, table):
    X, y = table[0], table[1]["binary"]
    model = make(library, RULES["binary"], iterate="randomized").fit(X, y)
    assert not model.shift_.any()
    for guarantee in ("expected", "high_probability"):
        with pytest.raises(ValueError, match=rf"guarantee='{guarantee}'.*'randomized'"):
            make(library, RULES["binary"], iterate="randomized", guarantee=guarantee).fit(X, y)


# --- comparisons of groups ----------------------------------------------------------------------


def compiled_gap(bound, selected, sizes=(300, 100)):
    """A rule on the selection rates of two groups, and functionals in its order."""
    sex = np.repeat([0, 1], sizes)
    rows = Rows(np.arange(400) % 2, np.arange(2), columns={"sex": sex})
    rules = [fnr() <= 0.1, gap(selection_rate(), by="sex") <= bound]
    cells, compiled = compile_constraints(rules, rows)
    decisions = np.concatenate(
        [np.arange(n) < round(p * n) for n, p in zip(sizes, selected, strict=True)]
    ).astype(np.intp)
    return compiled, cells, functionals_of(compiled, CellCounts.of(cells, decisions))


@pytest.mark.parametrize("selected", [(0.3, 0.5), (0.5, 0.3), (0.2, 0.2)])
def test_a_gap_is_aimed_at_one_standard_error_inside(selected):
    """By hand: that of the difference of two rates. Other rules are aimed at as they are."""
    compiled, cells, functionals = compiled_gap(0.2, selected)
    error = np.sqrt(sum(p * (1 - p) / n for p, n in zip(selected, (300, 100), strict=True)))
    expected = [0.1, 0.2 - error, 0.2 - error]
    np.testing.assert_allclose(
        tightened_bounds(compiled, cells, functionals), expected, atol=1e-12
    )
    # But no further than half of the way to equality.
    compiled, cells, functionals = compiled_gap(0.02, selected)
    np.testing.assert_allclose(
        tightened_bounds(compiled, cells, functionals), [0.1, 0.01, 0.01], atol=1e-12
    )


def at_a_price(margin, cells, compiled):
    """Shift to the bounds, or beyond if they cost more errors than ten violations of a gap.

    A standard error of the errors is not too much for meeting them.
    """
    priced = compares_groups(compiled)
    found = best_shift(margin, cells, compiled, penalty=10.0, is_penalised=priced)
    firm = best_shift(margin, cells, compiled)
    chance = np.sqrt(found.error * (1 - found.error) / margin.size)
    return firm if firm.is_feasible and firm.error <= found.error + chance else found


def gaps_of_selection():
    """Yield margins that select one group more often, and a gap between the groups' rates."""
    for seed in range(30):
        rng = np.random.default_rng(seed)
        sex, y = rng.integers(0, 2, 300), rng.integers(0, 2, 300)
        margin = rng.normal(size=300) + 2.0 * y + sex
        rows = Rows(y, np.arange(2), columns={"sex": sex})
        yield margin, *compile_constraints([gap(selection_rate(), by="sex") <= 0.1], rows)


def test_the_threshold_aims_inside_where_that_costs_little():
    """Up to two points of errors more; else at the bound itself."""
    ways = set()
    for margin, cells, compiled in gaps_of_selection():
        start = functionals_of(compiled, CellCounts.of(cells, (margin > 0).astype(np.intp)))
        inside = best_shift(
            margin, cells, compiled, bounds=tightened_bounds(compiled, cells, start)
        )
        asked = at_a_price(margin, cells, compiled)
        cost = inside.error - asked.error
        assert inside.is_feasible
        unseen = EvaluationSet(cells, compiled, "test")
        chosen = choose_prefix(
            ScoredRows(unseen, lambda rounds, m=margin: m), Prefixes(1, 1, False)
        )
        expected = inside if cost <= 0.02 else asked
        np.testing.assert_array_equal(chosen.shift, expected.value)
        if (inside.value != asked.value).any():
            ways.add("free" if cost <= 0 else "cheap" if cost <= 0.02 else "dear")
    assert ways >= {"cheap", "dear"}


@BOTH
def test_multipliers_and_threshold_aim_alike(library, table, conclusions):
    X, y, sex = table[0], table[1]["binary"], table[2]
    rules = [gap(selection_rate(), by="sex") <= 0.1]
    model = make(library, rules).fit(X, y, sensitive_features={"sex": sex})
    fit, choice = conclusions[0].fit, conclusions[0].choice
    compiled, cells = fit.measured.rows.compiled, fit.measured.rows.cells
    records = fit.measured.controller.solver.history
    np.testing.assert_array_equal(records[0].bounds, 0.1)
    for before, record in itertools.pairwise(records):
        np.testing.assert_allclose(
            record.bounds, tightened_bounds(compiled, cells, before.functionals)
        )
    assert (records[-1].bounds < 0.1).all()
    chosen = fit.measured.rows.choices[choice.rounds]  # before it is given room
    pooled = fit.measured.boosters.held_margin(choice.rounds)
    selected = [(pooled[sex == s] + choice.shift[0] > 0).mean() for s in (0, 1)]
    assert abs(selected[0] - selected[1]) <= choice.bounds[0] + choice.violation
    assert choice.bounds[0] <= 0.1
    # The threshold aims inside unless that costs two points of errors more.
    start = fit.measured.rows.decisions(pooled)
    at = functionals_of(compiled, CellCounts.of(cells, start))
    inside = best_shift(pooled, cells, compiled, bounds=tightened_bounds(compiled, cells, at))
    asked = at_a_price(pooled, cells, compiled)
    is_cheap = inside.is_feasible and inside.error <= asked.error + MAX_ERROR_INCREASE
    np.testing.assert_array_equal(chosen.shift, (inside if is_cheap else asked).value)
    assert (chosen.bounds[0] < 0.1) == is_cheap
    assert (choice.bounds <= chosen.bounds).all()
    assert model.constraint_report_.bound[0] == 0.1


# --- what is reported ---------------------------------------------------------------------------


def clopper_pearson(k, n, level=0.95):
    tail = (1 - level) / 2
    low = stats.beta.ppf(tail, k, n - k + 1) if k else 0.0
    return low, stats.beta.ppf(1 - tail, k + 1, n - k) if k < n else 1.0


@BOTH
def test_training_rows_are_not_unseen(library, table):
    X, y = table[0], table[1]["binary"]
    report = make(library, RULES["binary"], measure_on="train").fit(X, y).constraint_report_
    assert report.columns.tolist() == [
        "constraint", "bound", "train", "held_out", "low", "high", "rows", "multiplier",
        "train_satisfied", "satisfied", "verdict",
    ]  # fmt: skip
    assert report[["held_out", "low", "high", "satisfied"]].isna().all(axis=None)
    assert (report["rows"] == "training rows").all()
    model = make(library, RULES["binary"], measure_on="train")
    model.fit(X[300:], y[300:], eval_set=[(X[:300], y[:300])], **quiet(library))
    report = model.constraint_report_.loc[0]
    assert report["rows"] == "eval_set[0]"
    missed = model.predict(X[:300])[y[:300] == 1] == 0
    assert report.held_out == pytest.approx(missed.mean())
    expected = clopper_pearson(missed.sum(), missed.size)
    np.testing.assert_allclose([report.low, report.high], expected, atol=1e-9)


def to_the_aim(margin, cells, compiled, bounds):
    """Shift to inside the bounds unless that costs two points of errors more, and which it is."""
    asked = at_a_price(margin, cells, compiled)
    inside = best_shift(margin, cells, compiled, bounds=bounds)
    is_inside = (bounds < compiled.b).any()
    if is_inside and inside.is_feasible and inside.error <= asked.error + MAX_ERROR_INCREASE:
        return inside, "cheap"
    return asked, "dear"


@BOTH
@pytest.mark.parametrize("weighted", [False, True])
def test_an_honest_rate_is_decided_by_the_other_folds(library, weighted, table, conclusions):
    """Each fold by the threshold that the others choose; intervals are of these decisions.

    And of one more booster than those of the folds.
    """
    X, y, sex = table[0], table[1]["binary"], table[2]
    weight = np.random.default_rng(1).exponential(size=y.size) if weighted else None
    rules = [fnr() <= 0.1, gap(selection_rate(), by="sex") <= 0.3]
    model = make(library, rules)
    model.fit(X, y, sample_weight=weight, sensitive_features={"sex": sex})
    fit, choice = conclusions[0].fit, conclusions[0].choice
    rounds = choice.rounds
    pooled = fit.measured.boosters.held_margin(rounds)
    decisions = np.zeros(y.size, dtype=np.intp)
    shifts = []
    for fold in fit.measured.boosters.folds:
        cells = fit.measured.rows.cells.take(fold.training)
        found, _ = to_the_aim(
            pooled[fold.training], cells, fit.measured.rows.compiled, choice.bounds
        )
        decisions[fold.held] = pooled[fold.held] + found.value[0] > 0
        shifts.append(found.value[0])
    assert np.ptp(shifts) > 0
    own = np.ones(y.size) if weight is None else weight
    selected = [np.average(decisions[sex == s], weights=own[sex == s]) for s in (0, 1)]
    expected = [
        np.average(decisions[y == 1] == 0, weights=own[y == 1]),
        abs(selected[0] - selected[1]),
    ]
    report = model.constraint_report_
    np.testing.assert_allclose(report.held_out, expected, atol=1e-9)
    assert (report["rows"] == "out of fold").all()
    rows = Rows(y.astype(np.intp), np.arange(2), weight, {"sex": sex})
    cells, compiled = compile_constraints(rules, rows)
    counts = CellCounts.of(cells, decisions)
    intervals = constraint_intervals(compiled, counts)
    np.testing.assert_allclose(
        conclusions[0].model.outcome.sampled.constraints, intervals, atol=1e-9
    )
    folds = [fold.held for fold in fit.measured.boosters.folds]
    alike = (pooled + choice.shift > 0).astype(np.intp)
    differ = disagreement(compiled, cells, folds, alike, decisions)
    n, values = len(folds), np.array(expected)
    wider = of_one_booster(intervals, values, differ.rules, n, compiled.ranges)
    np.testing.assert_allclose(report[["low", "high"]], wider, atol=1e-9)
    of_rates, rates = functional_intervals(compiled, counts), functionals_of(compiled, counts)
    of_rates = of_one_booster(of_rates, rates, differ.rates, n, compiled.ranges_of_rates)
    np.testing.assert_allclose(model.group_report_[["low", "high"]], of_rates[1:], atol=1e-9)
    if not weighted:
        missed = decisions[y == 1] == 0
        np.testing.assert_allclose(
            intervals[0], clopper_pearson(missed.sum(), missed.size), atol=1e-9
        )
    np.testing.assert_allclose(model.group_report_.held_out, selected, atol=1e-9)
    last = model.history_.iloc[-1]
    np.testing.assert_allclose(
        [last[f"held_out[{rule}]"] for rule in rules], report.held_out, atol=1e-12
    )
    assert report.satisfied.tolist() == (report.held_out <= report.bound).tolist()


def test_an_honest_fold_goes_inside_the_bound_at_the_price_of_the_choice():
    """Folds whose others reach the aim at more than two points of errors keep to the bound."""
    ways = set()
    for margin, cells, compiled in gaps_of_selection():
        folds = np.array_split(np.arange(300), 3)
        unseen = EvaluationSet(cells, compiled, "test", folds)
        choice = choose_prefix(
            ScoredRows(unseen, lambda rounds, m=margin: m), Prefixes(1, 1, False)
        )
        if (
            not choice.shift.any() or choice.violation > 0.0
        ):  # a gap that is not worth its threshold
            common = margin + choice.shift[0] > 0
            np.testing.assert_array_equal(cross_fitted_decisions(unseen, margin, choice), common)
            continue
        expected = np.empty(300, dtype=np.intp)
        for fold in folds:
            others = np.setdiff1d(np.arange(300), fold)
            part = cells.take(others)
            found, way = to_the_aim(margin[others], part, compiled.on(part), choice.bounds)
            expected[fold] = margin[fold] + found.value[0] > 0
            if (choice.bounds < compiled.b).any():
                ways.add(way)
        np.testing.assert_array_equal(cross_fitted_decisions(unseen, margin, choice), expected)
    assert ways == {"dear", "cheap"}


def rules_missed_by_a_hair():
    """Yield unseen rows of three folds, their scores, and a rule that a threshold meets."""
    for seed in range(30):
        rng = np.random.default_rng(seed)
        y = rng.integers(0, 2, 300)
        margin = rng.normal(size=300) + 2.0 * y - 1.0
        rules = [fnr() <= 0.1] if seed % 2 else [fpr() <= 0.05, fnr() <= 0.6]
        cells, compiled = compile_constraints(rules, Rows(y, np.arange(2)))
        yield EvaluationSet(cells, compiled, "test", np.array_split(np.arange(300), 3)), margin


def test_a_rule_is_not_left_missed_by_a_hair():
    """Decisions by the other folds meet the rules, at a standard error of the errors at most."""
    ways = set()
    for rows, margin in rules_missed_by_a_hair():
        compiled, y = rows.compiled, rows.cells.rows.y
        choice = choose_prefix(ScoredRows(rows, lambda rounds, m=margin: m), Prefixes(1, 1, False))
        assert choice.violation == 0.0
        before = cross_fitted_decisions(rows, margin, choice)
        found, decisions = choose_with_room(rows, margin, choice)

        def missed(decided, rows=rows, compiled=compiled):
            values = functionals_of(compiled, rows.counts(decided))
            return (compiled.rows_of(values) - compiled.b).max() > 1e-9

        np.testing.assert_array_equal(decisions, cross_fitted_decisions(rows, margin, found))
        chance = np.sqrt(choice.error * (1 - choice.error) / 300)
        assert choice.error - 1e-12 <= found.error <= choice.error + chance
        assert found.error == pytest.approx(np.mean((margin + found.shift[0] > 0) != y))
        assert not missed((margin + found.shift[0] > 0).astype(np.intp))  # on the rows together
        if not missed(before):
            assert found == choice
            ways.add("met")
        else:
            ways.add("dear" if missed(decisions) else "given room")
            assert missed(decisions) or (found.bounds < compiled.b).any()
    assert ways >= {"met", "given room"}


@pytest.mark.parametrize("why", ["several classes", "left missed"])
def test_no_room_is_given_where_there_is_no_threshold_to_move(why):
    rng = np.random.default_rng(0)
    k = 3 if why == "several classes" else 2
    y = rng.integers(0, k, 300)
    margin = rng.normal(size=(300, k)) if k == 3 else rng.normal(size=300)
    rules = [class_error(0) <= 0.2] if k == 3 else [fnr() <= 0.2, fpr() <= 0.2]
    cells, compiled = compile_constraints(rules, Rows(y, np.arange(k)))
    rows = EvaluationSet(cells, compiled, "test", np.array_split(np.arange(300), 3))
    choice = choose_prefix(ScoredRows(rows, lambda rounds: margin), Prefixes(1, 1, False))
    assert (choice.violation > 0.0) == (k == 2)
    found, decisions = choose_with_room(rows, margin, choice)
    assert found is choice
    np.testing.assert_array_equal(decisions, cross_fitted_decisions(rows, margin, choice))


def test_comparisons_of_groups_are_told_apart_from_rates():
    sex = np.arange(400) // 2 % 2
    rows = Rows(np.arange(400) % 2, np.arange(2), columns={"sex": sex})
    rules = [
        gap(fpr(), by="sex") <= 0.1,
        ratio(selection_rate(), by="sex") >= 0.5,
        each(fnr(), by="sex") <= 0.9,
        fnr() <= 0.9,
        fpr(on={"sex": 0}) - fpr() <= 0.9,
    ]
    compiled = compile_constraints(rules, rows)[1]
    found = compares_groups(compiled)
    np.testing.assert_array_equal(found, np.isin(compiled.owner, [0, 1]))


@BOTH
@pytest.mark.parametrize("probabilities", ["shifted", "calibrated"])
def test_a_mean_loss_has_the_interval_of_a_mean(library, probabilities, table):
    X, y = table[0], table[1]["binary"]
    model = make(library, [fnr() <= 0.1, log_loss() <= 0.9], probabilities=probabilities)
    model.fit(X[300:], y[300:], eval_set=[(X[:300], y[:300])], **quiet(library))
    report = model.constraint_report_.loc[1]
    assert report["rows"] == "eval_set[0]"
    loss = -np.log(model.predict_proba(X[:300])[np.arange(300), y[:300]])
    half = stats.norm.ppf(0.975) * loss.std() / np.sqrt(300)
    expected = [loss.mean(), loss.mean() - half, loss.mean() + half]
    np.testing.assert_allclose(list(report[["held_out", "low", "high"]]), expected, rtol=1e-5)
    out_of_fold = make(library, [fnr() <= 0.1, log_loss() <= 0.9]).fit(X, y).constraint_report_
    assert out_of_fold[["low", "high"]].notna().all(axis=None)


@BOTH
@KINDS
@pytest.mark.parametrize("probabilities", ["shifted", "calibrated"])
@pytest.mark.filterwarnings("ignore::gbm_constrained.FragileConstraintsWarning")
def test_mean_losses_are_those_of_the_probabilities(
    library, kind, probabilities, table, conclusions
):
    """On all rows alike: training rows, evaluation sets that report or moved something, folds."""
    X, y = table[0], table[1][kind]
    rules = [*DEMANDING[kind], log_loss() <= 0.8]
    new = slice(0, 200), slice(200, None)
    for measure_on in ("crossfit", "holdout"):
        model = make(library, rules, measure_on=measure_on, probabilities=probabilities)
        sets = [tuple(part[at] for part in (X, y)) for at in new]
        model.fit(*sets[1], eval_set=[sets[0]], **quiet(library))
        assert model.shift_.any()
        report, last = model.constraint_report_.loc[1], model.history_.iloc[-1]
        of_new, of_train = (cross_entropy(rows[1], model.predict_proba(rows[0])) for rows in sets)
        assert report.train == pytest.approx(of_train, abs=1e-6)
        assert report.held_out == pytest.approx(of_new, abs=1e-6)
        assert report.satisfied == (of_new <= 0.8)
        assert report.train_satisfied == (of_train <= 0.8)
        found = audit(model, *sets[0], rules).frame
        np.testing.assert_allclose(found["value"], model.constraint_report_.held_out, atol=1e-6)
        assert last[f"value[{rules[1]}]"] == report.train
        assert last[f"held_out[{rules[1]}]"] == report.held_out
        assert last["objective"] == pytest.approx(of_train, abs=1e-6)
    model = make(library, rules, probabilities=probabilities).fit(X, y)
    margin = conclusions[-1].fit.measured.boosters.held_margin(conclusions[-1].choice.rounds)
    if probabilities == "shifted":
        margin = margin + (model.shift_ if kind == "several" else model.shift_[0])
    scores = margin if kind == "several" else np.column_stack([np.zeros(y.size), margin])
    out_of_fold = cross_entropy(y, special.softmax(scores, axis=1))
    assert model.constraint_report_.held_out[1] == pytest.approx(out_of_fold, abs=1e-6)


@BOTH
def test_a_mean_loss_that_the_shift_breaks_is_not_met(library, table):
    X, y = table[0], table[1]["binary"]
    rules = [*DEMANDING["binary"], log_loss() <= 0.7]
    model = make(library, rules)
    with pytest.warns(MissedConstraintsWarning, match=r"shift.*breaks(.|\n)*log_loss <= 0.7: "):
        model.fit(X, y)
    rule = model.feasibility_.rules[1]
    assert model.feasibility_.status == "missed"
    assert model.feasibility_.broken_by_shift == (rule,)
    assert rule.value == model.constraint_report_.held_out[1] > 0.7 > rule.unshifted
    assert not model.constraint_report_.satisfied[1]
    beside = make(library, rules, probabilities="calibrated").fit(X, y)
    assert beside.constraint_report_.held_out[1] == rule.unshifted
    assert beside.constraint_report_.satisfied[1]
    assert beside.feasibility_.broken_by_shift == ()


def test_rates_and_mean_losses_of_one_rule_are_of_decisions_and_probabilities(table):
    X, y = table[0], table[1]["binary"]
    rules = [fnr() <= 0.05, fpr() + log_loss() <= 2.0]
    model = make("lightgbm", rules, probabilities="calibrated")
    model.fit(X[200:], y[200:], eval_set=[(X[:200], y[:200])])
    assert model.shift_.any()
    for column, rows in (("train", slice(200, None)), ("held_out", slice(0, 200))):
        alarms = (model.predict(X[rows]) == 1)[y[rows] == 0].mean()
        loss = cross_entropy(y[rows], model.predict_proba(X[rows]))
        found = model.constraint_report_[column][1]
        assert found == pytest.approx(alarms + loss, abs=1e-6)


@BOTH
def test_a_rule_that_cannot_bind_leaves_other_rules_alone(library, table):
    """Rates over other rows of the same partition: neither folds nor steps nor shift change."""
    X, y = table[0], table[1]["binary"]
    one = make(library, [fnr() <= 0.1]).fit(X, y)
    two = make(library, [fnr() <= 0.1, fpr() <= 1.0]).fit(X, y)
    np.testing.assert_allclose(two.shift_, one.shift_, atol=1e-6)
    np.testing.assert_allclose(margins_of(two, X), margins_of(one, X), atol=1e-5)
    assert two.constraint_report_.held_out[0] == pytest.approx(one.constraint_report_.held_out[0])


@BOTH
def test_a_comparison_is_told_by_rows_of_all_of_its_groups(library):
    """Rows of an evaluation set without the group that breaks a gap do not tell that it holds."""
    rng = np.random.default_rng(0)
    n = 1500
    group = rng.choice(["u", "v", "w"], n)
    X = np.column_stack([rng.normal(size=(n, 2)), group == "w"])
    y = (X[:, 0] + 3 * X[:, 2] + rng.normal(size=n) / 2 > 0.5).astype(int)
    training, watched = np.arange(n) < 1000, (np.arange(n) >= 1000) & (group != "w")
    rules = [gap(selection_rate(), by="g") <= 0.1, gap(error_rate(), by="h") <= 0.5]
    model = make(library, rules, n_estimators=5, measure_on="crossfit")
    given = X[training], y[training]
    columns = {"g": group, "h": rng.choice(["a", "b"], n)}
    known = {"sensitive_features": {name: of[training] for name, of in columns.items()}}
    alone = model.fit(*given, **known).constraint_report_
    report = model.fit(
        *given, **known, **quiet(library), eval_set=[(X[watched], y[watched])],
        sensitive_features_eval_set=[{name: of[watched] for name, of in columns.items()}],
    ).constraint_report_  # fmt: skip
    assert report.rows.tolist() == ["out of fold", "eval_set[0]"]
    assert report.held_out[0] == alone.held_out[0] == model.history_.iloc[-1].filter(
        like="held_out"
    ).iloc[0]  # fmt: skip
    assert report.satisfied[0] == alone.satisfied[0]
    assert report.held_out[1] != alone.held_out[1]


@BOTH
def test_a_rule_that_is_met_to_the_last_digit_moves_nothing(library):
    """0.4 - 0.3 is larger than 0.1 in double precision, and another threshold has fewer errors."""
    X, y = np.repeat([[0.0], [1.0], [2.0]], 100, axis=0), np.repeat([0, 0, 1], 100)
    y[100:200] = np.arange(100) % 3 == 0
    X_new = np.concatenate([np.repeat([2.0, 1.0, 0.0], [k, 2, 8 - k]) for k in (4, 3)])
    y_new, group = (X_new > 0).astype(int), np.repeat(["a", "b"], 10)
    rule = selection_rate(on={"g": "a"}) - selection_rate(on={"g": "b"}) <= 0.1
    model = make(library, [rule], measure_on="holdout").fit(
        X, y, sensitive_features={"g": np.tile(["a", "b"], 150)}, **quiet(library),
        eval_set=[(X_new[:, None], y_new)], sensitive_features_eval_set=[{"g": group}],
    )  # fmt: skip
    report = model.constraint_report_.iloc[0]
    assert 0.1 < report.held_out < 0.1 + 1e-15
    assert report.satisfied
    assert report.multiplier == 0.0
    assert not model.shift_.any()


def test_names_of_classes_do_not_matter(table):
    """In the same order; folds are drawn by position in the table, so that rows must not move."""
    X, y = table[0], table[1]["several"]
    model = make("lightgbm", RULES["several"]).fit(X, y)
    names = np.array(["ash", "birch", "elm"])
    other = make("lightgbm", [class_error("elm") <= 0.2]).fit(X, names[y])
    np.testing.assert_array_equal(other.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(other.predict(X), names[model.predict(X)])


# --- guarantees ---------------------------------------------------------------------------------


@BOTH
@pytest.mark.usefixtures("one_pass")
@pytest.mark.parametrize("rules", [1, 2])
def test_in_expectation_one_more_row_may_be_wrong(library, rules, table, conclusions):
    """Of n positive rows that are set aside, b (n + 1) - 1 are missed at most."""
    X, y = table[0], table[1]["binary"]
    for bound in (0.05, 0.1, 0.2, 0.6):
        own = [fnr() <= bound, fpr() <= 0.99][:rules]
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
    model = make(library, [fpr() <= 1 / (fewest + 1)], guarantee="expected")
    model.fit(X, y, sample_weight=weights)
    fit = conclusions.pop().fit
    own = fit.data.certification[y[fit.data.certification] == 0]
    assert own.size == fewest
    assert not model.predict(X[own]).any()
    tighter = make(library, [fpr() <= 0.99 / (fewest + 1)], guarantee="expected")
    with pytest.raises(ValueError, match="too few for it, even without a single error"):
        tighter.fit(X, y, sample_weight=weights)


def test_what_just_holds_in_expectation_stays():
    """One of 8 errors is 2 / 9 with one more row; biases that spare others take no place of it."""
    y = np.repeat([0, 1, 2], [8, 4, 3])
    scores = np.eye(3)[y]
    scores[0] = [0.0, 5.0, 0.0]
    scores[8:10] = [1.0, 0.9, 0.0]  # wrong by little
    found = compile_constraints([class_error(0) <= 2 / 9], Rows(y, np.arange(3)))
    rows = EvaluationSet(*found, "rows")
    start = Choice(2, np.zeros(3), np.nan, 0.0)
    given = ScoredRows(rows, lambda rounds: scores)
    choice = control_risk(given, given, start)
    assert choice.violation == 0.0
    assert not choice.shift.any()


def certified(library, rules, table, kind="binary", **options):
    given = {k: options.pop(k) for k in ("sample_weight", "groups", "sensitive_features")
             if k in options}  # fmt: skip
    options = {"guarantee": "high_probability", "calibration_fraction": 0.35, **options}
    return make(library, rules, **options).fit(table[0], table[1][kind], **given)


@BOTH
@KINDS
def test_certification_rows_are_in_no_booster(library, kind, table, conclusions):
    """Other features in those rows change the shift, and no tree."""
    X, y = table[0], table[1][kind]
    rule = [fnr() <= 0.2] if kind == "binary" else [class_error(1) <= 0.4]
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
@pytest.mark.parametrize("rate", [fnr, fpr])
@pytest.mark.parametrize("weighted", [False, True])
def test_one_rate_of_one_class_has_the_umbrella_threshold(
    library, rate, weighted, table, conclusions
):
    """Weights that are equal change nothing."""
    X, y = table[0], table[1]["binary"]
    weight = {"sample_weight": np.full(y.size, 2.0)} if weighted else {}
    target, sign, bound = (1, -1.0, 0.2) if rate is fnr else (0, 1.0, 0.05)
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
    model = certified(library, [fpr() <= 0.6], table, guarantee=guarantee)
    fit, choice = conclusions[0].fit, conclusions[0].choice
    assert not model.shift_.any()
    assert model.constraint_report_.held_out[0] < 0.4
    assert model.feasibility_.status == "met"
    assert guarantee == "expected" or choice.p_value <= 0.05
    own = make(library, []).fit(X[fit.data.training], y[fit.data.training])
    np.testing.assert_array_equal(model.predict(X), own.predict(X))


@BOTH
@pytest.mark.parametrize(
    ("kind", "rules"),
    [
        ("binary", [error_rate() <= 1.0]),
        ("binary", [fpr() <= 0.6, error_rate() <= 0.9]),
        ("several", [class_error(0) <= 1.0]),
        ("several", [class_error(0) <= 0.95]),
        ("several", [class_error(0) <= 0.95, error_rate() <= 0.9]),
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


@pytest.mark.parametrize("towards", [0, 1])
def test_a_certified_threshold_is_where_the_saved_model_tells_scores_apart(towards):
    """Just beyond the score, and those that differ by less than single precision keeps."""
    scores = np.sort(np.random.default_rng(0).normal(size=100))
    sign = 1 if towards == 0 else -1
    rule = fpr() <= 0.2 if towards == 0 else fnr() <= 0.2
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
    model = certified(library, [fnr() <= bound], table, delta=0.5, probabilities="calibrated")
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
    model = certified(library, [fpr() >= 0.4], table, probabilities="calibrated")
    fit, choice = conclusions[0].fit, conclusions[0].choice
    own = fit.data.certification[y[fit.data.certification] == 0]
    spared = -margins_of(model, X[own], choice.rounds).astype(float)
    decisions = model.predict(X[own])
    threshold = umbrella_threshold(spared, 0.6, 0.05)
    np.testing.assert_array_equal(decisions == 0, spared > threshold)
    p = stats.binom.cdf((decisions == 0).sum(), own.size, 0.6)
    assert choice.p_value == pytest.approx(p, rel=1e-6)
    assert p <= 0.05 < stats.binom.cdf((spared >= threshold).sum(), own.size, 0.6)


@BOTH
def test_several_rates_are_tested_together(library, table, conclusions):
    """The p-value is the largest of the binomial tails, by hand, and below delta."""
    X, y = table[0], table[1]["binary"]
    model = certified(library, [fnr() <= 0.4, fpr() <= 0.6], table, delta=0.1)
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
    model = certified(library, [fnr() <= 0.4], table, sample_weight=weight)
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
    rules = [class_error(k) <= bound for k, bound in zip((2, 0), bounds, strict=True)]
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


@BOTH
@pytest.mark.parametrize("guarantee", ["expected", "high_probability"])
def test_rows_that_depend_on_each_other_certify_nothing(library, guarantee, table):
    with pytest.raises(ValueError, match=rf"guarantee='{guarantee}'.*independent.*groups"):
        certified(library, [fnr() <= 0.3], table, guarantee=guarantee, groups=np.arange(700) // 4)


@BOTH
def test_rules_on_rows_that_are_all_set_aside(library, table):
    """One row of a rule is either trained on or kept for the certificate."""
    alone = np.arange(len(table[0])) == 0
    message = (
        r"guarantee='high_probability' sets aside calibration_fraction=0\.95 of the rows, and "
        r"without these error_rate\[mask of 1 rows\] <= 0\.5 is taken over no rows at all.*"
        r"a smaller calibration_fraction"
    )
    with pytest.raises(ValueError, match=message):
        certified(library, [error_rate(on=alone) <= 0.5], table, calibration_fraction=0.95)
    with pytest.raises(
        ValueError, match=r"^error_rate\[mask of 0 rows\] <= 0\.5 is taken over no"
    ):
        certified(library, [error_rate(on=alone & ~alone) <= 0.5], table)


@BOTH
@pytest.mark.parametrize("weighted", [False, True])
def test_too_few_rows_are_refused_before_training(library, weighted, table, monkeypatch):
    """0.99 to the power of the positive rows that are set aside is more than delta."""
    for module, name in ((xgb, "train"), (lgb, "train"), (xgb, "Booster"), (lgb, "Booster")):
        monkeypatch.setattr(module, name, lambda *a, **k: pytest.fail("training started"))
    y = table[1]["binary"]
    weight = {"sample_weight": np.full(y.size, 3.0)} if weighted else {}
    n = int(0.35 * (y == 1).sum())
    message = (
        rf"high_probability.*fnr <= 0\.01.*over ({n}|{n + 1}) of these rows and needs 299\."
        rf".*245 rows.*"
        rf"calibration_fraction=0\.35.*{0.99**n:.2g}.*delta=0\.05"
    )
    with pytest.raises(ValueError, match=message):
        certified(library, [fnr() <= 0.01], table, **weight)
    for guarantee in ("high_probability", "expected"):
        for rule in (log_loss() <= 0.5, fpr() + log_loss() <= 0.5):
            with pytest.raises(ValueError, match=rf"{guarantee}.*log_loss <= 0\.5: a mean loss"):
                certified(library, [fnr() <= 0.3, rule], table, guarantee=guarantee)


@BOTH
def test_prefixes_share_delta_as_far_as_there_are_any(library, table):
    """245 rows without an error leave 0.03: enough for delta, and too much for a third of it."""
    rule = error_rate() <= 0.0142
    with pytest.raises(ValueError, match=r"p-value of 0\.03, above 0\.017"):
        certified(library, [rule], table, iterate="best")
    with pytest.warns(UserWarning, match="certif"):
        certified(library, [rule], table, iterate="best", n_estimators=2)


@BOTH
@pytest.mark.parametrize("guarantee", ["expected", "high_probability"])
@pytest.mark.parametrize(
    "rule", [fnr() <= 0.0, recall() >= 1.0, fnr(on={"g": "a"}) <= 0.0, fnr() + fpr() <= 0.0]
)
def test_bounds_for_which_no_number_of_rows_is_enough(library, guarantee, rule, table):
    """Rows are never said to help where a rate would have to be at its smallest value."""
    group = np.where(np.arange(len(table[0])) % 2, "a", "b")
    message = rf"guarantee='{guarantee}'.*No number of rows is enough for it: relax the bound\.$"
    with pytest.raises(ValueError, match=message):
        certified(library, [rule], table, guarantee=guarantee, sensitive_features={"g": group})


@BOTH
@pytest.mark.parametrize(
    "rule",
    [
        gap(fpr(), by="g") <= 0.0,
        gap(recall(), by="g", reference=overall) <= 0.0,
        ratio(selection_rate(), by="g") >= 1.0,
    ],
)
def test_equal_rates_are_refused_before_training(library, rule, table):
    """Of a row and its opposite one must be violated in the population, or both be at the edge."""
    group = {"g": np.where(np.arange(len(table[0])) % 2, "a", "b")}
    message = re.escape(f"guarantee='high_probability' cannot be given for {rule}: that two rates")
    with pytest.raises(ValueError, match=message):
        certified(library, [rule], table, guarantee="high_probability", sensitive_features=group)
    # In the mean over samples they may be equal: nothing is refused.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        certified(library, [rule], table, guarantee="expected", sensitive_features=group)


def test_decisions_are_put_in_order_by_rules_that_their_rows_tell_of(table):
    """A group without a row on the holdout is as safe at any threshold."""
    margin, y = table[0][:, 0], table[1]["binary"].astype(np.intp)
    group = np.where(np.arange(y.size) < 200, "few", "many")
    rows = Rows(y, np.arange(2), columns={"g": group})
    kept = np.flatnonzero((group == "many") | (y == 0))
    rules = [fpr() <= 0.6, selection_rate() >= 0.1, recall(on={"g": "few"}) >= 0.1]
    cells, compiled = compile_constraints(rules, rows)
    part = cells.take(kept)
    found = []
    for stated in (compiled, compiled.without_rows_of([2])):
        chosen = EvaluationSet(part, stated.on(part), "holdout")
        fresh = EvaluationSet(cells, stated, "certification")
        scored = ScoredRows(chosen, lambda rounds: margin[kept])
        order = guarantees._order_decisions(scored, fresh, 3, keeps_own=False)
        found.append([choice.shift[0] for choice in order])
    assert len(found[0]) > 10
    assert found[0] == found[1]


@BOTH
def test_rows_of_unequal_weights_that_are_too_few(library, table):
    """29 rows certify a bound of 0.1 if they weigh alike; Hoeffding's inequality takes 150."""
    y = table[1]["binary"]
    weight = np.where(np.arange(y.size) % 2, 1.0, 9.0)
    with pytest.raises(ValueError, match=r"fnr <= 0\.1 is taken over") as caught:
        certified(library, [fnr() <= 0.1], table, sample_weight=weight)
    found = re.search(
        r"(\d+) of these rows, which count as (\d+) for .*needs 150\.", str(caught.value)
    )
    assert found is not None
    assert 29 < int(found[2]) < min(int(found[1]), 150)


@BOTH
@pytest.mark.parametrize("guarantee", ["expected", "high_probability"])
def test_training_rows_guarantee_nothing(library, guarantee, table):
    X, y = table[0], table[1]["binary"]
    with pytest.raises(ValueError, match=rf"guarantee='{guarantee}'.*'train'"):
        make(library, [fnr() <= 0.3], guarantee=guarantee, measure_on="train").fit(X, y)
    dart = {"booster": "dart"} if library == "xgboost" else {"boosting_type": "dart"}
    with pytest.raises(ValueError, match=rf"guarantee='{guarantee}'.*dart"):
        make(library, [fnr() <= 0.3], guarantee=guarantee, **dart).fit(X, y)


@BOTH
def test_a_guarantee_on_a_watched_evaluation_set(library, table, conclusions):
    """Certification rows are still apart from both."""
    X, y = table[0], table[1]["binary"]
    model = make(
        library,
        [fnr() <= 0.3],
        measure_on="holdout",
        guarantee="high_probability",
        calibration_fraction=0.35,
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
    model = certified(library, [error_rate() <= 1.0], table)
    assert np.mean(model.predict(X) != y) < 0.3


# --- found in review ----------------------------------------------------------------------------


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
            order = guarantees._order_decisions(selection, certification.rows, 20, keeps_own=False)
            rows, margin = certification.rows, certification.margins(20)
            tails = [
                float(rule_p_value(rows.compiled, rows.counts(rows.decisions(margin + c.shift))))
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


@pytest.mark.parametrize("rule", [each, lambda rate, **options: rate])
def test_neither_class_comes_first_where_decisions_are_certified(rule):
    """Labels and scores turned round give thresholds turned round, and as many certificates.

    Where no row misses at many thresholds, the boldest of these is not the first to be tested.
    """
    rng = np.random.default_rng(0)

    def sample(n):
        y = (rng.random(n) < 0.3).astype(int)
        return y, rng.choice(["a", "b"], n), rng.normal(size=n) + 2.0 * y

    def certificate(first, fresh, label):
        rules = [rule(fnr(label), by="g", min_group_size=1) <= 0.2]
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


def test_neither_class_comes_first_within_a_limit():
    """Of thresholds with as few errors the nearest to the model's own, whatever is asked for."""
    rng = np.random.default_rng(0)

    def within(y, margin, limit, towards):
        rows = Rows(y, np.arange(2))
        chosen = EvaluationSet(*compile_constraints([error_rate() <= 0.5], rows), "test")
        start = Choice(20, np.array([limit]), 0.5, 0.0)
        limit = guarantees._Limit(start.shift, towards)
        return guarantees._choose_within(limit, ScoredRows(chosen, lambda rounds: margin), start)

    for _ in range(40):
        y = rng.integers(0, 2, 20)
        margin = rng.normal(size=20) + 2.0 * y - 0.5
        found, other = within(y, margin, -3.0, 1), within(1 - y, -margin, 3.0, 0)
        np.testing.assert_allclose(other.shift, -found.shift, atol=1e-4)


@BOTH
def test_rows_of_further_data_sets_are_certified_as_well(library, table, conclusions):
    X, y = table[0], table[1]["binary"]
    rules = [fpr() <= 0.5, selection_rate(on=dataset("more")) <= 0.7]
    options = {"guarantee": "high_probability", "calibration_fraction": 0.35}
    model = make(library, rules, **options).fit(X, y, datasets={"more": X[:200] + 0.1})
    fit = conclusions[0].fit
    own = fit.data.certification[fit.data.certification >= y.size] - y.size
    assert abs(own.size - 70) <= 1
    rate = np.mean(model.predict(X[own] + 0.1))
    assert model.constraint_report_.held_out[1] == pytest.approx(rate)
    assert model.constraint_report_["rows"][1] == "certification"


@BOTH
def test_rows_of_no_weight_refuse_no_certificate(library, table):
    """They are no rows of the rate: it can be certified where it could without them."""
    X, y = table[0], table[1]["binary"]
    weight = np.where(np.arange(y.size) % 3, 1.0, 0.0)
    rule, options = [fpr() <= 0.03], {"guarantee": "high_probability", "calibration_fraction": 0.4}
    model = make(library, rule, **options).fit(X, y, sample_weight=weight)
    assert model.constraint_report_["rows"][0] == "certification"


@BOTH
def test_a_class_that_certification_takes_whole(library, table):
    """A class of one row is set aside as a whole, or not at all."""
    X, y = table[0], np.where(np.arange(700) == 5, 3, table[1]["several"])
    refused = []
    for seed in range(4):
        model = make(library, [class_error(0) <= 0.9], guarantee="expected", n_estimators=1)
        model.set_params(calibration_fraction=0.8, random_state=seed)
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
        (gap(selection_rate(), **by_g) <= 0.9, "none in g=rare"),
        (gap(selection_rate(), reference=overall, **by_g) <= 0.9, "none in g=rare"),
        (each(fpr(), **by_g) <= 0.9, "none in g=rare"),
        (selection_rate(on=rare) <= 0.9, "none"),
    ):
        message = re.escape(
            f"guarantee='{kind}' cannot be given for {rule}: of the {aside.size} rows that "
            f"calibration_fraction=0.2 sets aside it is taken over {missing}. Give more rows or"
        )
        training = compile_constraints([fpr() <= 0.9, rule], rows)[1]
        part = compile_constraints([fpr() <= 0.9, rule], rows.take(aside), like=training)
        with pytest.raises(ValueError, match=message):
            check_guarantee(EvaluationSet(*part, "certification"), training, asked)


@BOTH
def test_a_rule_that_is_always_met_takes_no_certificate(library, table, conclusions):
    """Nor does one of a group that no certification row is of."""
    X, y = table[0], table[1]["binary"]
    rare = np.arange(y.size) == np.flatnonzero(y == 0)[0]
    rules = [fpr() <= 0.2, each(fpr(), by="g", min_group_size=1) <= 1.0]
    alone, model = (
        make(library, some, guarantee="high_probability").fit(
            X, y, sensitive_features={"g": np.where(rare, "rare", "common")}
        )
        for some in (rules[:1], rules)
    )
    assert not rare[conclusions[0].fit.data.certification].any()
    np.testing.assert_array_equal(model.predict_proba(X), alone.predict_proba(X))
    assert model.constraint_report_.satisfied.all()


def test_flat_initial_scores_of_several_classes(table):
    """Class by class, as LightGBM takes them: certification rows are taken from each class."""
    X, y = table[0], table[1]["several"]
    start = np.random.default_rng(1).normal(size=(y.size, 3))
    rule, options = [class_error(2) <= 0.5], {"guarantee": "high_probability"}
    square = make("lightgbm", rule, **options).fit(X, y, init_score=start)
    flat = make("lightgbm", rule, **options).fit(X, y, init_score=start.ravel(order="F"))
    np.testing.assert_array_equal(margins_of(square, X), margins_of(flat, X))


@pytest.mark.parametrize("save_best", [False, True])
def test_early_stopping_by_a_callback(save_best, table):
    """The model that is shifted and reported is the one that predicts."""
    X, y = table[0], table[1]["binary"]
    options = {"n_estimators": 60, "learning_rate": 0.6}
    start = make("xgboost", [fnr() <= 0.1], n_estimators=4).fit(X[200:], y[200:])
    for given in ({}, {"xgb_model": start, "measure_on": "train"}):
        options["callbacks"] = [xgb.callback.EarlyStopping(rounds=3, save_best=save_best)]
        measured = {"measure_on": given.pop("measure_on", "crossfit")}
        model = make("xgboost", [fnr() <= 0.1], **options, **measured)
        model.fit(X[200:], y[200:], eval_set=[(X[:200], y[:200])], verbose=False, **given)
        before = 4 if given else 0
        assert model.best_iteration < 50
        assert before + model.history_["rounds"].iloc[-1] == model.best_iteration + 1
        for name, part in (("train", slice(200, None)), ("held_out", slice(200))):
            missed = np.mean(model.predict(X[part])[y[part] == 1] == 0)
            assert model.constraint_report_[name][0] == pytest.approx(missed, abs=1e-9)
    with pytest.raises(ValueError, match=r"ergodic.*early stopping"):
        make("xgboost", [fnr() <= 0.1], iterate="ergodic", **options).fit(X, y)


def test_a_model_that_stopped_early_is_continued(table):
    """XGBoost keeps the best iteration of the first fit, which would predict without the rest."""
    X, y = table[0], table[1]["binary"]
    first = xgb.XGBClassifier(
        n_estimators=60, early_stopping_rounds=3, n_jobs=1, learning_rate=0.6
    )
    first.fit(X[200:], y[200:], eval_set=[(X[:200], y[:200])], verbose=False)
    model = make("xgboost", [fnr() <= 0.1], n_estimators=6)
    model.fit(X[200:], y[200:], xgb_model=first)
    assert model.history_["rounds"].iloc[-1] == 6
    missed = np.mean(model.predict(X[200:])[y[200:] == 1] == 0)
    assert model.constraint_report_.train[0] == pytest.approx(missed, abs=1e-9)


@BOTH
def test_a_fit_that_is_refused_leaves_the_model_as_it_was(library, table):
    X, y = table[0], table[1]["binary"]
    model = make(library, [fnr() <= 0.1], probabilities="calibrated").fit(X, y)
    decisions, shift = model.predict(X), model.shift_
    assert shift.any()
    with pytest.raises(ValueError, match="class 7"):
        model.set_params(constraints=[class_error(7) <= 0.1]).fit(X, y)
    np.testing.assert_array_equal(model.predict(X), decisions)
    np.testing.assert_array_equal(model.shift_, shift)
    model.set_params(constraints=[]).fit(X, y)
    assert not hasattr(model, "shift_")
    assert not hasattr(model, "_threshold")


@BOTH
def test_a_mixture_of_a_single_iteration_is_that_model(library, table):
    X, y = table[0], table[1]["binary"]
    model = make(
        library,
        [fnr() <= 0.1],
        iterate="randomized",
        solver=AutoSolver(rounds_per_iteration=ROUNDS + 1),
    )
    model.fit(X, y)
    assert model.prefixes_["rounds"].tolist() == [ROUNDS]
    missed = np.mean(model.predict(X, random_state=0)[y == 1] == 0)
    assert model.constraint_report_.train[0] == pytest.approx(missed)
    assert 0 < model.constraint_report_.held_out[0] < 1


def test_a_threshold_is_not_that_of_a_file_loaded_later(table, tmp_path):
    X, y = table[0], table[1]["binary"]
    plain = xgb.XGBClassifier(n_estimators=3, n_jobs=1).fit(X, y)
    plain.save_model(tmp_path / "model.json")
    model = make("xgboost", [fnr() <= 0.02], probabilities="calibrated").fit(X, y)
    model.load_model(tmp_path / "model.json")
    np.testing.assert_array_equal(model.predict(X), plain.predict(X))
