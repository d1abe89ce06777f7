"""Tightened bounds, and decisions by shifts that other folds chose."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from helpers import EITHER
from references import best_shift
from small_fits import clopper_pearson, make

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.decision.choose import (
    MAX_ERROR_INCREASE,
    VIOLATION_PRICE,
    Prefixes,
    choose_for_groups,
    choose_prefix,
    choose_with_room,
    cross_fitted_decisions,
    tightened_bounds,
)
from gbm_constrained.decision.evaluation_set import EvaluationSet, ScoredRows
from gbm_constrained.decision.groups import GroupOffsets
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.linear_constraints import is_priced
from gbm_constrained.statistics.counts import CellCounts, functionals_of
from gbm_constrained.statistics.influence import (
    estimate_between_fold_deviation,
    prediction_intervals,
)
from gbm_constrained.statistics.intervals import constraint_intervals, functional_intervals


def compiled_gap(bound, selected, sizes=(300, 100)):
    """Rules on the selection rates of two groups, with counts of decisions."""
    sex = np.repeat([0, 1], sizes)
    rows = Rows(np.arange(400) % 2, np.arange(2), columns={"sex": sex})
    rules = [gc.fnr() <= 0.1, gc.gap(gc.selection_rate(), by="sex") <= bound]
    cells, compiled = compile_constraints(rules, rows)
    decisions = np.concatenate(
        [np.arange(n) < round(p * n) for n, p in zip(sizes, selected, strict=True)]
    ).astype(np.intp)
    return compiled, CellCounts.of(cells, decisions)


@pytest.mark.parametrize("selected", [(0.3, 0.5), (0.5, 0.3), (0.2, 0.2)])
def test_a_gap_is_aimed_at_one_standard_error_inside(selected):
    """By hand: that of the difference of two rates. Other rules are aimed at as they are."""
    compiled, counts = compiled_gap(0.2, selected)
    error = np.sqrt(sum(p * (1 - p) / n for p, n in zip(selected, (300, 100), strict=True)))
    expected = [0.1, 0.2 - error, 0.2 - error]
    np.testing.assert_allclose(tightened_bounds(compiled, counts), expected, atol=1e-12)
    # But no further than half of the way to equality.
    compiled, counts = compiled_gap(0.02, selected)
    np.testing.assert_allclose(tightened_bounds(compiled, counts), [0.1, 0.01, 0.01], atol=1e-12)


def at_a_price(margin, cells, compiled):
    """Shift to the bounds, or beyond if they cost more errors than a violation of a gap.

    A standard error of the errors is not too much for meeting them. A gap that is held has no
    price.
    """
    priced = is_priced(compiled)
    found = best_shift(margin, cells, compiled, penalty=VIOLATION_PRICE, is_penalised=priced)
    firm = best_shift(margin, cells, compiled)
    chance = np.sqrt(found.error * (1 - found.error) / margin.size)
    return firm if firm.is_feasible and firm.error <= found.error + chance else found


def gaps_of_selection(small_groups):
    """Yield margins that select one group more often, and a gap between the groups' rates."""
    for seed in range(0, 90, 3):
        rng = np.random.default_rng(seed)
        sex, y = rng.integers(0, 2, 300), rng.integers(0, 2, 300)
        margin = rng.normal(size=300) + 2.0 * y + (0.4 + 0.01 * seed) * sex
        rows = Rows(y, np.arange(2), columns={"sex": sex})
        rule = gc.gap(gc.selection_rate(), by="sex", small_groups=small_groups) <= 0.1
        yield margin, *compile_constraints([rule], rows)


@pytest.mark.parametrize("small_groups", ["hold", "keep"])
def test_the_threshold_aims_inside_where_that_costs_little(small_groups):
    """Up to two points of errors more; else at the bound, or beyond a bound that has a price."""
    ways = set()
    for margin, cells, compiled in gaps_of_selection(small_groups):
        start = CellCounts.of(cells, (margin > 0).astype(np.intp))
        inside = best_shift(margin, cells, compiled, bounds=tightened_bounds(compiled, start))
        asked = at_a_price(margin, cells, compiled)
        assert inside.is_feasible
        is_cheap = inside.error <= asked.error + MAX_ERROR_INCREASE
        unseen = EvaluationSet(cells, compiled, "test")
        chosen = choose_prefix(
            ScoredRows(unseen, lambda rounds, m=margin: m), Prefixes(1, 1, False)
        )
        expected = inside if is_cheap else asked
        np.testing.assert_array_equal(chosen.shift, expected.value)
        if (inside.value != asked.value).any():
            ways.add("cheap" if is_cheap else "dear" if asked.is_feasible else "beyond")
    assert ways == ({"cheap", "dear"} | ({"beyond"} if small_groups == "keep" else set()))


@EITHER
def test_multipliers_and_threshold_aim_alike(library, table, conclusions):
    X, y, sex = table[0], table[1]["binary"], table[2]
    rules = [gc.gap(gc.selection_rate(), by="sex", small_groups="hold") <= 0.1]
    asked = {"measure_on": "crossfit", "max_bin": 255}
    model = make(library, rules, solver="abpp", **asked)
    model.fit(X, y, sensitive_features={"sex": sex})
    fit, choice = conclusions[0].fit, conclusions[0].choice
    compiled, cells = fit.measured.rows.compiled, fit.measured.rows.cells
    records = fit.measured.controller.solver.history
    np.testing.assert_array_equal(records[0].bounds, 0.1)
    for before, record in itertools.pairwise(records):
        np.testing.assert_allclose(
            record.bounds,
            tightened_bounds(compiled, CellCounts.of_shares(cells, before.predicted)),
        )
    assert (records[-1].bounds < 0.1).all()
    chosen = fit.measured.rows.choices[choice.rounds]  # before it is given room
    pooled = fit.measured.boosters.held_margin(choice.rounds)
    selected = [(pooled[sex == s] + choice.shift[0] > 0).mean() for s in (0, 1)]
    assert abs(selected[0] - selected[1]) <= choice.bounds[0] + choice.violation
    assert choice.bounds[0] <= 0.1
    # The threshold aims inside unless that costs two points of errors more.
    start = fit.measured.rows.decisions(pooled)
    at = CellCounts.of(cells, start)
    inside = best_shift(pooled, cells, compiled, bounds=tightened_bounds(compiled, at))
    asked = at_a_price(pooled, cells, compiled)
    is_cheap = inside.is_feasible and inside.error <= asked.error + MAX_ERROR_INCREASE
    np.testing.assert_array_equal(chosen.shift, (inside if is_cheap else asked).value)
    assert (chosen.bounds[0] < 0.1) == is_cheap
    assert (choice.bounds <= chosen.bounds).all()
    assert model.constraint_report_.bound[0] == 0.1


def to_the_aim(margin, cells, compiled, bounds):
    """Shift to inside the bounds unless that costs two points of errors more, and which it is."""
    asked = at_a_price(margin, cells, compiled)
    inside = best_shift(margin, cells, compiled, bounds=bounds)
    is_inside = (bounds < compiled.b).any()
    if is_inside and inside.is_feasible and inside.error <= asked.error + MAX_ERROR_INCREASE:
        return inside, "cheap"
    return asked, "dear"


@EITHER
@pytest.mark.parametrize("weighted", [False, True])
def test_an_honest_rate_is_decided_by_the_other_folds(library, weighted, table, conclusions):
    """Each fold by the threshold that the others choose; intervals are of these decisions.

    And of one more booster than those of the folds.
    """
    X, y, sex = table[0], table[1]["binary"], table[2]
    weight = np.random.default_rng(1).exponential(size=y.size) if weighted else None
    rules = [gc.fnr() <= 0.1, gc.gap(gc.selection_rate(), by="sex", small_groups="hold") <= 0.3]
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
    differ = estimate_between_fold_deviation(compiled, cells, folds, alike, decisions)
    n, values = len(folds), np.array(expected)
    wider = prediction_intervals(intervals, values, differ.constraints, n, compiled.ranges)
    np.testing.assert_allclose(report[["low", "high"]], wider, atol=1e-9)
    of_rates, rates = functional_intervals(compiled, counts), functionals_of(compiled, counts)
    of_rates = prediction_intervals(of_rates, rates, differ.rates, n, compiled.ranges_of_rates)
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


@pytest.mark.parametrize("small_groups", ["hold", "keep"])
def test_an_honest_fold_goes_inside_the_bound_at_the_price_of_the_choice(small_groups):
    """Folds whose others reach the aim at more than two points of errors keep to the bound."""
    ways = set()
    for margin, cells, compiled in gaps_of_selection(small_groups):
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
        rules = [gc.fnr() <= 0.1] if seed % 2 else [gc.fpr() <= 0.05, gc.fnr() <= 0.6]
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


@pytest.mark.parametrize("missed", [gc.auc() >= 0.999, gc.calibration_error() <= 1e-4], ids=str)
def test_thresholds_of_groups_get_room_beside_a_violated_constraint_on_scores(missed):
    """No threshold moves a constraint on scores, so that room is that of the rates alone."""
    asked = [gc.fnr() <= 0.1, gc.gap(gc.selection_rate(), by="sex", small_groups="hold") <= 0.1]
    for seed in (1, 3):
        rng = np.random.default_rng(seed)
        y, sex = rng.integers(0, 2, 300), rng.integers(0, 2, 300)
        margin = rng.normal(size=300) + 2.0 * y + sex - 1.5
        rows, folds = Rows(y, np.arange(2), columns={"sex": sex}), np.split(np.arange(300), 3)
        alone, both = (
            EvaluationSet(*compile_constraints(constraints, rows), "test", folds)
            for constraints in (asked, [*asked, missed])
        )
        assert both.violations(margin)[both.compiled.has_scores].max() > 0.01
        groups, scored = GroupOffsets.none(("sex",), rows), ScoredRows(both, lambda _, m=margin: m)
        choice = choose_for_groups(scored, Prefixes(1, 1, False), groups)
        found, decided = choose_with_room(both, margin, choice)
        n = len(alone.compiled)
        assert (found.bounds[:n] < choice.bounds[:n]).any()
        choice = replace(choice, bounds=choice.bounds[:n])
        expected, decided_alone = choose_with_room(alone, margin, choice)
        np.testing.assert_array_equal(found.bounds[:n], expected.bounds)
        np.testing.assert_array_equal(found.offsets.values, expected.offsets.values)
        np.testing.assert_array_equal(decided, decided_alone)


@pytest.mark.parametrize("why", ["several classes", "left missed"])
def test_no_room_is_given_where_there_is_no_threshold_to_move(why):
    rng = np.random.default_rng(0)
    k = 3 if why == "several classes" else 2
    y = rng.integers(0, k, 300)
    margin = rng.normal(size=(300, k)) if k == 3 else rng.normal(size=300)
    rules = [gc.class_error(0) <= 0.2] if k == 3 else [gc.fnr() <= 0.2, gc.fpr() <= 0.2]
    cells, compiled = compile_constraints(rules, Rows(y, np.arange(k)))
    rows = EvaluationSet(cells, compiled, "test", np.array_split(np.arange(300), 3))
    choice = choose_prefix(ScoredRows(rows, lambda rounds: margin), Prefixes(1, 1, False))
    assert (choice.violation > 0.0) == (k == 2)
    found, decisions = choose_with_room(rows, margin, choice)
    assert found is choice
    np.testing.assert_array_equal(decisions, cross_fitted_decisions(rows, margin, choice))
