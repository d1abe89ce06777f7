"""The criterion of the choice, and the choice of a prefix and its threshold by held-out rows."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import EITHER, RULES, margins_of
from hypothesis import given, settings
from hypothesis import strategies as st
from references import best_shift
from sklearn.metrics import roc_auc_score
from small_fits import make

import gbm_constrained as gc
from gbm_constrained.constraints.base import ROUNDING
from gbm_constrained.data.rows import Rows
from gbm_constrained.decision.choose import (
    PRICE_OF_SCORES,
    VIOLATION_PRICE,
    Prefixes,
    choose,
    choose_prefix,
    choose_unbeaten,
)
from gbm_constrained.decision.evaluation_set import EvaluationSet, ScoredRows
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.linear_constraints import compares_groups

CLOSE = {"xgboost": 2e-6, "lightgbm": 1e-12}


def test_prefixes_of_several_classes_are_ranked_by_price_where_no_rule_holds():
    """Half a point less of the largest violation is not worth any number of errors."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 4, 900)
    bounded = (y == 1) | (y == 2)
    noise = rng.normal(size=(900, 3))
    cells, compiled = compile_constraints(
        [gc.class_error(k) <= 0.01 for k in (1, 2)], Rows(y, np.arange(4))
    )
    rows = EvaluationSet(cells, compiled, "test")

    def margins(rounds):
        # Early prefixes distinguish class 1 from 2 better, and these two from the others hardly.
        apart = noise[:, 0] + (2.0 - 0.01 * rounds) * ((y == 1) * 1.0 - (y == 2))
        known = 0.3 * noise[:, 1] + (6.0 if rounds == 60 else 0.5) * (0.5 - bounded)
        others = noise[:, 2] + 3.0 * ((y == 0) * 1.0 - (y == 3))
        return np.column_stack([known + others, apart, -apart, known - others])

    chosen = choose_prefix(ScoredRows(rows, margins), Prefixes(60, 2, True))
    tried = {
        r: best_shift(margins(r), cells, compiled, penalty=VIOLATION_PRICE)
        for r in Prefixes(60, 2, True).candidates
    }
    assert not any(shift.is_feasible for shift in tried.values())
    least = min(
        tried, key=lambda r: tried[r].error + VIOLATION_PRICE * violation(tried[r], compiled)
    )
    assert chosen.rounds == least
    assert chosen.loss == pytest.approx(tried[least].loss)


@pytest.mark.parametrize("small_groups", ["keep", "hold"])
def test_another_prefix_is_returned_where_it_is_asked_for_or_a_held_gap_is_dear(small_groups):
    """More than two points of errors for the shift that it needs; and the later of equals."""
    rng = np.random.default_rng(0)
    group, y = rng.integers(0, 2, 900), rng.integers(0, 2, 900)
    noise = rng.normal(size=900)
    rule = gc.gap(gc.selection_rate(), by="g", small_groups=small_groups) <= 0.05
    rows = EvaluationSet(
        *compile_constraints([rule], Rows(y, np.arange(2), columns={"g": group})), "test"
    )

    def chosen(apart, is_free):
        def margins(rounds):  # One prefix in three has hardly a gap.
            return noise + 3.0 * (y - 0.5) + (0.0 if rounds == 18 else apart) * (group - 0.5)

        return choose_prefix(ScoredRows(rows, margins), Prefixes(20, 2, is_free)).rounds

    assert chosen(2.0, False) == (18 if small_groups == "hold" else 20)
    assert chosen(0.1, False) == 20
    assert chosen(2.0, True) == 18


@pytest.mark.parametrize("k", [2, 3])
def test_no_shift_is_searched_for_twice(k):
    """Biases of several classes take long to find: a choice that was made is used again."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, k, 300)
    noise = rng.normal(size=(300, k)) if k > 2 else rng.normal(size=300)
    cells, compiled = compile_constraints([gc.class_error(0) <= 0.3], Rows(y, np.arange(k)))
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
    assert list(known) == [20, *Prefixes(20, 2, True).candidates[:-1]]


@pytest.mark.parametrize("n", [1000, 200_000])
@pytest.mark.parametrize("bound", [0.025, 0.01])
def test_a_gap_is_not_bought_at_any_price(n, bound):
    """Errors of 15 % and 12 %: a threshold closes the gap by half a point for six of errors.

    It is left, however many rows there are: a point of violation is worth one of errors.
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
        [gc.gap(gc.error_rate(), by="g") <= bound], Rows(y, np.arange(2), columns={"g": group})
    )
    rows = EvaluationSet(cells, compiled, "test")
    found = choose_prefix(ScoredRows(rows, lambda rounds: margin), Prefixes(20, 2, False))
    assert best_shift(margin, cells, compiled).error > 0.135 + 0.05  # at any price
    assert found.rounds == 20
    assert not found.has_rate_violation
    assert found.loss == pytest.approx(found.error + found.violation)
    assert found.loss <= 0.135 + (0.03 - bound) + 1e-9  # what no shift is worth
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
            [gc.gap(gc.selection_rate(), by="g") <= bound],
            Rows(y, np.arange(2), columns={"g": group}),
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
            [gc.gap(gc.error_rate(), by="g") <= 0], Rows(y, np.arange(2), columns={"g": group})
        ),
        "test",
    )

    def margins(rounds):
        return noise + 0.7 + 0.2 * rounds * (y - 0.5)  # ever better; a threshold closes the gap

    def at(prefix):
        return best_shift(margins(prefix), rows.cells, rows.compiled)

    tried = {r: at(r) for r in Prefixes(20, 2, True).candidates}
    assert all(0.0 < shift.violation < 0.002 for shift in tried.values())
    assert min(tried, key=lambda r: tried[r].violation) < 20
    for is_free in (False, True):
        found = choose_prefix(ScoredRows(rows, margins), Prefixes(20, 2, is_free))
        assert found.rounds == 20
        assert found.error < tried[18].error
        assert found.violation <= tried[20].violation + (tried[20].error - found.error)


@pytest.mark.parametrize(
    ("violations_by_rounds", "expected"),
    [
        ({}, 20),
        ({20: 0.003}, 20),  # less than what it costs to go back
        ({18: 0.12, 20: 0.12}, 16),
        ({6: 0.12, 20: 0.12}, 18),
        ({rounds: 0.06 * rounds for rounds in Prefixes(20, 2, True).candidates}, 6),
    ],
)
def test_a_prefix_at_which_the_model_strays_pays_for_it(violations_by_rounds, expected):
    """The model returned may break rules that those that scored the rows keep, at any prefix."""
    rng = np.random.default_rng(0)
    group, y = rng.integers(0, 2, 4000), rng.integers(0, 2, 4000)
    noise, asked = rng.normal(size=4000), []
    rows = EvaluationSet(
        *compile_constraints(
            [gc.gap(gc.error_rate(), by="g") <= 0.05], Rows(y, np.arange(2), columns={"g": group})
        ),
        "test",
    )

    def margins(rounds):
        return noise + 0.2 * rounds * (y - 0.5)

    def refit_violation(rounds, shift):
        asked.append(rounds)
        return violations_by_rounds.get(rounds, 0.0)

    def cost(rounds):
        error = best_shift(margins(rounds), rows.cells, rows.compiled).error
        return error + VIOLATION_PRICE * violations_by_rounds.get(rounds, 0.0)

    found = choose_prefix(
        ScoredRows(rows, margins), Prefixes(20, 2, True), refit_violation=refit_violation
    )
    assert found.rounds == min(Prefixes(20, 2, True).candidates, key=cost) == expected
    assert found.refit_violation == violations_by_rounds.get(expected, 0.0)
    # Only those that may be better are asked.
    assert asked == [20] if expected == 20 else set(asked) >= {expected, 20}
    # The last is kept all the same where it was asked for and meets the rules.
    assert (
        choose_prefix(
            ScoredRows(rows, margins), Prefixes(20, 2, False), refit_violation=refit_violation
        ).rounds
        == 20
    )


def violation(shift, compiled):
    return np.maximum(compiled.rows_of(shift.functionals) - compiled.b, 0.0).sum()


@EITHER
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


@EITHER
def test_best_is_a_prefix_by_unseen_rows(library, table, conclusions):
    """Of a few prefixes, each with its best threshold, that of least error; cut and shifted."""
    X, y = table[0], table[1]["binary"]
    options = {"n_estimators": 60, "learning_rate": 0.8}
    model = make(library, RULES["binary"], iterate="best", **options).fit(X, y)
    (conclusion,) = conclusions
    fit, choice = conclusion.fit, conclusion.choice
    looked_at = Prefixes(60, 2, True).candidates
    assert looked_at[-1] == 60
    assert len(looked_at) <= 12
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


def test_comparisons_of_groups_are_told_apart_from_rates():
    sex = np.arange(400) // 2 % 2
    rows = Rows(np.arange(400) % 2, np.arange(2), columns={"sex": sex})
    rules = [
        gc.gap(gc.fpr(), by="sex") <= 0.1,
        gc.ratio(gc.selection_rate(), by="sex") >= 0.5,
        gc.each(gc.fnr(), by="sex") <= 0.9,
        gc.fnr() <= 0.9,
        gc.fpr(on={"sex": 0}) - gc.fpr() <= 0.9,
    ]
    compiled = compile_constraints(rules, rows)[1]
    found = compares_groups(compiled)
    np.testing.assert_array_equal(found, np.isin(compiled.owner, [0, 1]))


def test_the_prefix_of_largest_auc_among_those_that_meet_a_pair_rate():
    """By AUC another prefix is best than by errors, and one that breaks the rule is neither."""
    rng = np.random.default_rng(0)
    y, noise = rng.integers(0, 2, 400), rng.normal(size=400)
    rule = gc.auc() <= 0.9
    rows = EvaluationSet(*compile_constraints([rule], Rows(y, np.arange(2))), "test")

    def margins(rounds):
        # The separation grows. From half of the rounds on most rows are decided as class 1.
        return noise + 0.03 * rounds * (y - 0.5) + (2.0 if rounds > 30 else 0.0)

    scored = ScoredRows(rows, margins)
    candidates = Prefixes(80, 2, True).candidates
    ranks = {r: roc_auc_score(y, margins(r)) for r in candidates}
    errors = {r: np.mean((margins(r) > 0) != y) for r in candidates}
    meets = [r for r in candidates if ranks[r] <= 0.9]
    assert len(meets) < len(candidates)
    best = {"auc": max(meets, key=ranks.get), "error": min(meets, key=errors.get)}
    assert best["auc"] != best["error"]
    for criterion, expected in best.items():
        found = choose_prefix(scored, Prefixes(80, 2, True, criterion))
        assert found.rounds == expected
        assert not found.has_rate_violation


def brute_force(objectives, violations, errors, price, weights, is_strict):
    """Candidate by candidate and row by row, as the formula is written."""
    n, m = violations.shape
    errors = np.broadcast_to(errors, (n, m))
    merits, reaching = [], []
    for c in range(n):
        worst = max([weights[j] * max(violations[c, j], 0.0) for j in range(m)], default=0.0)
        merits.append(objectives[c] + price * worst)
        meets = [violations[c, j] <= errors[c, j] for j in range(m) if is_strict[j]]
        reaching.append(all(meets) and not np.isnan(objectives[c]))
    kept = [c for c in range(n) if reaching[c]] or [c for c in range(n) if merits[c] == merits[c]]
    return min(kept, key=lambda c: merits[c])


@settings(derandomize=True, deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 8),
    m=st.integers(0, 4),
    price=st.sampled_from([VIOLATION_PRICE, PRICE_OF_SCORES]),
    is_shared=st.booleans(),
)
def test_the_candidate_of_least_merit_among_those_that_meet_strict_rows(
    seed, n, m, price, is_shared
):
    rng = np.random.default_rng(seed)
    objectives = rng.random(n)
    objectives[rng.random(n) < 0.2] = np.nan
    objectives[0] = 0.5
    violations = rng.normal(scale=0.2, size=(n, m))
    errors = rng.gamma(1.0, 0.1, m if is_shared else (n, m))
    weights, is_strict = rng.gamma(2.0, size=m), rng.random(m) < 0.5
    found = choose(
        objectives, violations, errors, price=price, weights=weights, is_strict=is_strict
    )
    assert found == brute_force(objectives, violations, errors, price, weights, is_strict)
    # All rows are strict by default.
    found = choose(objectives, violations, errors)
    expected = brute_force(objectives, violations, errors, 1.0, np.ones(m), np.ones(m, bool))
    assert found == expected


def test_a_point_of_violation_is_worth_one_of_the_objective():
    errors, gaps = np.zeros(1), np.zeros(1, dtype=bool)
    violations = np.array([[0.05], [0.0]])
    for other, expected in ((0.26, 0), (0.24, 1)):
        found = choose(np.array([0.2, other]), violations, errors, is_strict=gaps)
        assert found == expected
    for other, expected in ((0.36, 0), (0.34, 1)):
        objectives = np.array([0.2, other])
        found = choose(objectives, violations, errors, is_strict=gaps, price=PRICE_OF_SCORES)
        assert found == expected


def test_strict_rows_are_met_at_any_price_where_they_can_be():
    objectives, violations = np.array([0.1, 0.9]), np.array([[0.011], [0.0]])
    assert choose(objectives, violations, np.array([0.01])) == 1
    assert choose(objectives, violations, np.array([0.012])) == 0  # within sampling error
    assert choose(objectives, violations + 0.1, np.array([0.01])) == 0  # none meets them


def test_the_first_of_equals_is_chosen():
    """Up to rounding, so that machines that add in another order agree."""
    objectives = np.array([0.3, 0.2 + ROUNDING / 2, 0.2, 0.2])
    assert choose(objectives, np.zeros((4, 1)), np.zeros(1)) == 1
    assert choose(np.full(3, np.nan), np.zeros((3, 1)), np.zeros(1)) == 0


@settings(derandomize=True, deadline=None, max_examples=60)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 8), m=st.integers(0, 4))
def test_no_candidate_beats_the_choice_without_being_worse_in_strict_rows(seed, n, m):
    rng = np.random.default_rng(seed)
    objectives, violations = rng.random(n), rng.normal(scale=0.1, size=(n, m))
    errors, is_strict = rng.gamma(1.0, 0.05, (n, m)), rng.random(m) < 0.7
    found = choose_unbeaten(objectives, violations, errors, is_strict=is_strict)
    over = np.maximum(violations, 0.0)
    merits = objectives + over.max(axis=1, initial=0.0)
    for c in range(n):
        no_worse = over[c] <= over[found] + 2.0 * errors[c]
        if no_worse[is_strict].all():
            assert merits[c] >= merits[found] - 2.0 * ROUNDING
    first = choose(objectives, violations, errors, is_strict=is_strict)
    assert merits[found] <= merits[first] + ROUNDING


def test_an_edge_of_sampling_error_leaves_out_no_candidate_that_is_as_good():
    """Dry Bean: of two sets of class weights one was within an error, and lost .06."""
    objectives, errors = np.array([0.14, 0.085]), np.full((2, 1), 0.01)
    violations = np.array([[0.009], [0.011]])
    strict = np.ones(1, dtype=bool)
    assert choose(objectives, violations, errors, is_strict=strict) == 0
    assert choose_unbeaten(objectives, violations, errors, is_strict=strict) == 1
    far = np.array([[0.009], [0.031]])
    assert choose_unbeaten(objectives, far, errors, is_strict=strict) == 0
