"""Thresholds that are chosen on the folds, carried over to the model of all rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from helpers import BOTH, CLASSIFIERS, margins_of

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.decision.choose import FoldScores, match_positive_rate, rows_to_match
from gbm_constrained.decision.groups import GroupOffsets
from gbm_constrained.fit.fit import transfer_offsets
from gbm_constrained.problem.compiler import compile_constraints

OPTIONS = {
    "xgboost": {"max_depth": 4, "n_jobs": 1},
    "lightgbm": {"num_leaves": 15, "n_jobs": 1, "verbose": -1},
}
TREES = {"n_estimators": 40, "learning_rate": 0.3}
REPEATS = 4


def make(library, rules, **options):
    """Make a classifier of boosters with multipliers, whose thresholds are transferred."""
    options = {"solver": "abpp", **TREES, **OPTIONS[library], **options}
    return CLASSIFIERS[library](constraints=rules, **options)


def drawn(rng, n, share=0.15):
    """Rows of a population with few positives that overlap with the negatives, and a group."""
    X = rng.normal(size=(n, 6))
    group = rng.integers(0, 2, n)
    score = X[:, 0] + X[:, 1] * X[:, 2] + 0.3 * group + 1.5 * rng.normal(size=n)
    return X, (score > np.quantile(score, 1 - share)).astype(int), group


# --- which rows ---------------------------------------------------------------------------------

ABOUT_ONES = {
    "miss rate": [gc.fnr() <= 0.1],
    "recall": [gc.recall() >= 0.9],
    "class error": [gc.class_error(1) <= 0.1],
    "of a group": [gc.tpr(on={"g": 1}) >= 0.9, gc.fnr() <= 0.2],
    "selection among positives": [gc.selection_rate(on=gc.label(1)) >= 0.9],
    "worst group": [gc.fnr(on={"g": 0}) + 0.5 * gc.fnr(on={"g": 1}) <= 0.2],
}
ABOUT_MORE = {
    "the larger class": [gc.fpr() <= 0.1],
    "both": [gc.fnr() <= 0.1, gc.fpr() <= 0.5],
    "a sum of both": [gc.fnr() + gc.fpr() <= 0.3],
    "a gap": [gc.gap(gc.tpr(), by="g") <= 0.1],
    "all rows": [gc.selection_rate() <= 0.1],
    "errors of all": [gc.accuracy() >= 0.7],
    "a quotient": [gc.precision() >= 0.7],
    "another one": [gc.f1() >= 0.7],
    "asks for the other class": [gc.tpr() <= 0.5],
}


def compiled_on(rules, y, **others):
    g = np.arange(y.size) // 4 % 2
    return compile_constraints(rules, Rows(y, np.array([0, 1]), columns={"g": g}, **others))


@pytest.mark.parametrize("rules", ABOUT_ONES.values(), ids=ABOUT_ONES)
def test_rules_about_the_smaller_class_go_by_the_larger_one(rules):
    y = (np.arange(480) % 4 == 0).astype(int)
    cells, compiled = compiled_on(rules, y)
    np.testing.assert_array_equal(rows_to_match(compiled, cells), y == 0)
    cells, compiled = compiled_on(rules, 1 - y)  # of which there now are more
    assert rows_to_match(compiled, cells).all()


@pytest.mark.parametrize("rules", ABOUT_MORE.values(), ids=ABOUT_MORE)
def test_other_rules_go_by_all_rows(rules):
    cells, compiled = compiled_on(rules, (np.arange(480) % 4 == 0).astype(int))
    found = rows_to_match(compiled, cells)
    assert found.shape == (480,)
    assert found.all()


@pytest.mark.parametrize(
    "rules", [[gc.log_loss(on=gc.label(1)) <= 0.5], []], ids=["a loss", "none"]
)
def test_losses_and_no_rules_go_by_no_rows(rules):
    cells, compiled = compiled_on(rules, (np.arange(480) % 4 == 0).astype(int))
    assert rows_to_match(compiled, cells) is None


def test_class_zero_may_be_the_smaller_one():
    y = (np.arange(480) % 4 > 0).astype(int)
    for rule in (gc.fpr() <= 0.1, gc.tnr() >= 0.9):
        cells, compiled = compiled_on([rule], y)
        np.testing.assert_array_equal(rows_to_match(compiled, cells), y == 1)
    cells, compiled = compiled_on([gc.gap(gc.fpr(), by="g") <= 0.1], y)
    assert rows_to_match(compiled, cells).all()


def test_weights_say_which_class_is_the_smaller_one():
    y = (np.arange(480) % 4 == 0).astype(int)
    cells, compiled = compiled_on([gc.fnr() <= 0.1], y, weight=np.where(y == 1, 4.0, 1.0))
    assert rows_to_match(compiled, cells).all()
    cells, compiled = compiled_on([gc.fpr() <= 0.1], y, weight=np.where(y == 1, 4.0, 1.0))
    np.testing.assert_array_equal(rows_to_match(compiled, cells), y == 1)


def test_several_classes_have_no_other_one():
    y = np.arange(480) % 3
    found = compile_constraints([gc.class_error(1) <= 0.1], Rows(y, np.arange(3)))
    assert rows_to_match(found[1], found[0]) is None


# --- whole fits ---------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize(
    "options",
    [
        {"measure_on": "crossfit"},
        {"measure_on": "holdout"},
        {"measure_on": "crossfit", "iterate": "best", "learning_rate": 0.9},
    ],
    ids=["crossfit", "holdout", "prefix"],
)
@pytest.mark.parametrize("weighted", [False, True])
def test_the_model_is_as_bold_as_its_scouts(library, options, weighted, conclusions):
    """By hand: its own false alarms, and those of the boosters on their rows and on others."""
    rng = np.random.default_rng(0)
    X, y, _ = drawn(rng, 1500)
    weight = rng.random(y.size) + 0.5 if weighted else None
    model = make(library, [gc.fnr() <= 0.1], **options).fit(X, y, sample_weight=weight)
    (conclusion,) = conclusions
    fit, choice = conclusion.fit, conclusion.choice
    boosters = fit.measured.boosters
    rounds, shift = choice.rounds, choice.shift[0]
    assert shift != 0.0
    mass = np.where(y == 0, 1.0 if weight is None else weight, 0.0)

    def alarms(scores, rows):
        return np.average(scores + shift > 0, weights=mass[rows])

    rows = boosters.controller.rows
    held = alarms(boosters.held_margin(rounds), rows)
    members = zip(boosters.members, boosters.folds, strict=True)
    own = np.mean([alarms(m.own_margin(rounds), fold.training) for m, fold in members])
    share = np.mean([fold.training.size / y.size for fold in boosters.folds])
    assert share == pytest.approx(0.75, abs=0.01)
    wanted = held + share * (own - held)
    margin = margins_of(model, X)
    possible = [np.average(margin > c, weights=mass) for c in [-99.0, *np.unique(margin)]]
    found = np.average(model.predict(X) == 1, weights=mass)
    assert abs(found - wanted) <= np.abs(np.array(possible) - wanted).min() + 1e-9
    assert abs(found - wanted) < 0.02
    before = np.average(margin - model.shift_[0] + shift > 0, weights=mass)
    assert abs(found - wanted) < abs(before - wanted)


@BOTH
@pytest.mark.parametrize("weighted", [False, True])
def test_other_rules_keep_the_share_of_positive_decisions(library, weighted, conclusions):
    """By hand: the share of the model, and of the boosters on their rows and on others."""
    rng = np.random.default_rng(1)
    X, y, group = drawn(rng, 1200)
    groups = pd.DataFrame({"g": group})
    weight = rng.random(y.size) + 0.5 if weighted else None
    mass = np.ones(y.size) if weight is None else weight
    for rules in (
        [gc.fpr() <= 0.02],
        [gc.selection_rate() <= 0.05],
        [gc.fnr() <= 0.3, gc.fpr() <= 0.2],
    ):
        model = make(library, rules, measure_on="crossfit")
        model.fit(X, y, sample_weight=weight, sensitive_features=groups)
        choice, boosters = conclusions[-1].choice, conclusions[-1].fit.measured.boosters
        assert choice.shift.any()
        rows, rounds = boosters.controller.rows, choice.rounds

        def share(scores, inside, shift=choice.shift[0]):
            return np.average(scores + shift > 0, weights=mass[inside])

        held = share(boosters.held_margin(rounds), rows)
        members = zip(boosters.members, boosters.folds, strict=True)
        own = np.mean([share(m.own_margin(rounds), fold.training) for m, fold in members])
        wanted = held + np.mean([f.training.size / y.size for f in boosters.folds]) * (own - held)
        margin = margins_of(model, X)
        possible = [np.average(margin > c, weights=mass) for c in [-99.0, *np.unique(margin)]]
        found = np.average(model.predict(X) == 1, weights=mass)
        assert abs(found - wanted) <= np.abs(np.array(possible) - wanted).min() + 1e-9
        assert abs(found - wanted) < 0.01


@BOTH
def test_a_threshold_that_selects_all_says_nothing(library, conclusions):
    """The lowest of all scores may be that of a positive."""
    X, y = np.random.default_rng(0).normal(size=(600, 2)), (np.arange(600) % 10 == 0).astype(int)
    model = make(library, [gc.fnr() <= 0.0], measure_on="crossfit", n_estimators=1).fit(X, y)
    boosters, choice = conclusions[-1].fit.measured.boosters, conclusions[-1].choice
    assert (boosters.held_margin(choice.rounds)[y == 0] + choice.shift[0] > 0).all()
    assert choice.shift.any()
    np.testing.assert_array_equal(model.shift_, choice.shift)


@BOTH
def test_certificates_are_of_the_threshold_that_was_tested(library, conclusions):
    X, y, _ = drawn(np.random.default_rng(2), 3000)
    for guarantee in ("expected", "high_probability"):
        model = make(library, [gc.fnr() <= 0.2], guarantee=guarantee).fit(X, y)
        np.testing.assert_array_equal(model.shift_, conclusions[-1].choice.shift)


@BOTH
def test_rows_of_data_sets_are_not_gone_by(library, conclusions):
    """Egregious examples are in no objective: how many of them are selected says nothing."""
    rng = np.random.default_rng(3)
    X, y, _ = drawn(rng, 1200)
    extra = np.vstack([X[y == 1][:60], X[y == 0][:20]]) + 0.1, (np.arange(80) < 60).astype(int)
    rule = gc.recall(on=gc.dataset("egregious")) >= 0.95
    model = make(library, [rule], measure_on="crossfit")
    model.fit(X, y, datasets={"egregious": extra})
    (conclusion,) = conclusions
    fit, choice = conclusion.fit, conclusion.choice
    inside = rows_to_match(fit.problem.compiled, fit.problem.cells)
    np.testing.assert_array_equal(inside, np.r_[y == 0, np.zeros(80, dtype=bool)])
    assert model.shift_[0] != choice.shift[0]


@BOTH
def test_misses_hold_in_the_population_at_fewer_false_alarms(library, conclusions):
    """On rows that no model saw: the rule with less room, and the false alarms that it cost."""
    fresh, truth, _ = drawn(np.random.default_rng(99), 40_000)
    missed, alarms, alarms_before = [], [], []
    for seed in range(REPEATS):
        X, y, _ = drawn(np.random.default_rng(seed), 3000)
        model = make(library, [gc.fnr() <= 0.1], measure_on="crossfit", solver="abpp").fit(X, y)
        margin = margins_of(model, fresh)
        missed.append(np.mean(margin[truth == 1] <= 0))
        alarms.append(np.mean(margin[truth == 0] > 0))
        before = margin - model.shift_[0] + conclusions[-1].choice.shift[0]
        alarms_before.append(np.mean(before[truth == 0] > 0))
    # 450 positives in each fit: 0.014 for each, 0.007 for their mean.
    assert 0.07 < np.mean(missed) < 0.12
    assert np.mean(alarms) < np.mean(alarms_before) - 0.01


# --- how far ------------------------------------------------------------------------------------


def scored_twice(seed):
    """Scores by two boosters, out of fold and in training, and by a model of all rows."""
    rng = np.random.default_rng(seed)
    n = 400
    y = (np.arange(n) % 4 == 0) * 1
    margin = rng.normal(size=n) * 3.0 + 4.0 * y  # It has learned its rows by heart.
    held_out = (np.arange(n), rng.normal(size=n) + y)
    training = [(part, margin[part]) for part in (np.arange(200), np.arange(200, n))]
    return y, margin, held_out, training


@pytest.mark.parametrize("shift", [-0.7, 0.7])
@pytest.mark.parametrize("seed", range(3))
def test_without_multipliers_a_model_of_more_rows_needs_no_larger_shift(seed, shift):
    y, margin, held_out, training = scored_twice(seed)
    cells, _ = compiled_on([gc.fnr() <= 0.1], y)
    found = {
        has_multipliers: match_positive_rate(
            FoldScores(held_out, training, 0.5, has_multipliers=has_multipliers),
            np.array([shift]), margin, y == 0, cells,
        )[0]
        for has_multipliers in (True, False)
    }  # fmt: skip
    assert min(shift, 0.0) <= found[False] <= max(shift, 0.0)
    assert found[False] == np.clip(found[True], min(shift, 0.0), max(shift, 0.0))
    assert abs(found[True]) > abs(shift) or np.sign(found[True]) != np.sign(shift)


def test_offsets_of_groups_have_the_same_limit():
    y, margin, held_out, training = scored_twice(0)
    cells, _ = compiled_on([gc.gap(gc.tpr(), by="g") <= 0.1], y)
    offsets = GroupOffsets(("g",), ((0,), (1,)), np.array([0.7, -0.7]))
    scores = FoldScores(held_out, training, 0.5, has_multipliers=False)
    everyone = np.ones(y.size, dtype=bool)
    common, moved = transfer_offsets(scores, np.zeros(1), offsets, margin, everyone, cells)
    assert common == 0.0
    assert 0.0 <= moved.values[0] <= 0.7
    assert -0.7 <= moved.values[1] <= 0.0
    _, beyond = transfer_offsets(
        replace(scores, has_multipliers=True), np.zeros(1), offsets, margin, everyone, cells
    )
    assert (moved.values != beyond.values).any()
