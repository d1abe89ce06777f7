"""Thresholds of least error, against trying all."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import xgboost as xgb
from hypothesis import given
from hypothesis import strategies as st
from references import best_shift
from scipy.optimize import minimize
from scipy.special import softmax
from shift_problems import EXACT, Problem, measured, random, seeds, state_ratios

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.decision.search import BiasSearch, ShiftSearch, threshold_curve
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.scorers.xgboost.models import shift_intercept

pytestmark = pytest.mark.filterwarnings("ignore:.*some groups have fewer than min_group_size")


def every_threshold(problem, cells, compiled, bounds=None, penalty=None):
    """The best (excess, error, shift) over all thresholds, one after the other.

    With a penalty, that of smallest error plus penalty of the excess, where all have one.
    """
    scores = np.unique(problem.margin)
    shifts = [0.0, -scores[0] + 1.0, -scores[-1] - 1.0, *(-(scores[1:] + scores[:-1]) / 2)]
    table = []
    for shift in shifts:
        error, excess, _ = measured(problem, cells, compiled, shift, bounds)
        table.append((round(excess, 11), round(error, 11), abs(shift), shift))
    best = min(table)
    if penalty is None or best[0] == 0.0:
        return best
    return min(table, key=lambda row: (round(row[1] + penalty * row[0], 10), row[2]))


@random(30)
@given(
    seed=seeds, weighted=st.booleans(), many=st.booleans(), monitor=st.booleans(),
    class_weight=st.sampled_from([1.0, 0.2, 30.0]), penalty=st.sampled_from([None, 0.5, 10.0]),
)  # fmt: skip
def test_threshold_by_trying_all(seed, weighted, many, monitor, class_weight, penalty):
    """Any rules, in several views, with rows of another data set that have no labels.

    Errors on the classes may count differently, as they do in the objective. Violations may have
    a penalty.
    """
    problem = Problem(seed, weighted=weighted, n_monitor=20 * monitor)
    cells, compiled = problem.compiled(problem.rules(many))
    cells.class_weight[1] = class_weight
    assert len(cells.views) > many
    found = best_shift(problem.margin, cells, compiled, penalty=penalty)
    error, excess, functionals = measured(problem, cells, compiled, found.value)
    np.testing.assert_allclose(found.error, error, **EXACT)
    np.testing.assert_allclose(found.violation, excess, **EXACT)
    np.testing.assert_allclose(found.functionals, functionals, **EXACT)
    assert found.is_feasible == (excess == 0.0)
    total = found.violation if penalty is None else found.error + penalty * found.violation
    assert found.loss == total
    assert found.ignored == ()
    best_excess, best_error, size, _ = every_threshold(problem, cells, compiled, penalty=penalty)
    assert found.violation == pytest.approx(best_excess, abs=1e-10)
    assert found.error == pytest.approx(best_error, abs=1e-10)
    decides_as_none = np.array_equal(problem.margin + found.value > 0, problem.margin > 0)
    assert found.value[0] == 0.0 if decides_as_none else abs(found.value[0]) <= size + 1e-9


@random(12)
@given(seed=seeds)
def test_bounds_replace_those_of_the_constraints(seed):
    problem = Problem(seed)
    cells, compiled = problem.compiled(problem.rules())
    bounds = compiled.b - problem.rng.uniform(0, 0.1, len(compiled))
    found = best_shift(problem.margin, cells, compiled, bounds=bounds)
    best_excess, best_error, *_ = every_threshold(problem, cells, compiled, bounds)
    assert found.violation == pytest.approx(best_excess, abs=1e-10)
    assert found.error == pytest.approx(best_error, abs=1e-10)
    same = best_shift(problem.margin, cells, compiled, bounds=compiled.b)
    assert same.value == best_shift(problem.margin, cells, compiled).value


@random(12)
@given(seed=seeds, k=st.sampled_from([2, 3]))
def test_a_weight_is_a_repetition(seed, k):
    """Decisions are the same; of several classes, shifts that decide alike may differ."""
    problem = Problem(seed, k=k)
    rules = [gc.fnr() <= 0.2, gc.gap(gc.selection_rate(), by="group") <= 0.2]
    if k == 3:
        rules = [gc.class_error(0) <= 0.2, gc.gap(gc.selection_rate(1), by="group") <= 0.2]
    found = best_shift(problem.margin, *problem.compiled(rules))
    again = problem.weight.astype(int)
    for name in ("margin", "y", "group"):
        setattr(problem, name, np.repeat(getattr(problem, name), again, axis=0))
    problem.n, problem.weight = problem.y.size, None
    repeated = best_shift(problem.margin, *problem.compiled(rules))
    if k == 2:
        np.testing.assert_allclose(repeated.value, found.value, **EXACT)
    else:
        decided = [(problem.margin + shift.value).argmax(axis=1) for shift in (repeated, found)]
        np.testing.assert_array_equal(*decided)
    np.testing.assert_allclose(repeated.functionals, found.functionals, **EXACT)
    assert repeated.error == pytest.approx(found.error, abs=1e-12)


def test_scores_that_cannot_be_told_apart_in_single_precision_are_equal():
    """No threshold between them; but those that already fall to either side of zero stay there."""
    problem = Problem(0, weighted=False)
    problem.margin = np.where(problem.y == 1, 3.0 + 1e-6, 3.0)
    cells, compiled = problem.compiled([gc.fpr() <= 0.1])
    found = best_shift(problem.margin, cells, compiled)
    assert found.value < -3.5  # all or nothing
    assert found.functionals == 0.0
    problem.margin -= 3.0
    found = best_shift(problem.margin, cells, compiled)
    assert found.value == 0.0
    assert found.error == 0.0


def test_one_score_for_all():
    problem = Problem(0, weighted=False)
    problem.margin[:] = 0.7
    found = best_shift(problem.margin, *problem.compiled([gc.selection_rate() <= 0.3]))
    assert found.value < -0.7
    assert found.is_feasible


def test_large_data_in_no_time_and_without_drift():
    """Running sums over many rows of one coefficient meet a bound that is met with equality."""
    rng = np.random.default_rng(0)
    n = 300_000
    margin, y = rng.normal(size=n), rng.integers(0, 2, n)
    rows = Rows(y, np.arange(2))
    rate = np.count_nonzero(margin[y == 1] > 1.0) / np.count_nonzero(y == 1)
    cells, compiled = compile_constraints([gc.tpr() <= rate, gc.tpr() >= rate], rows)
    found = best_shift(margin, cells, compiled)
    assert found.is_feasible
    assert found.value == pytest.approx(-1.0, abs=1e-3)


@random(12)
@given(seed=seeds, many=st.booleans(), monitor=st.booleans())
def test_curve(seed, many, monitor):
    """Every point is what the decisions give."""
    problem = Problem(seed, n=40, n_monitor=15 * monitor)
    cells, compiled = problem.compiled(problem.rules(many))
    curve = threshold_curve(problem.margin, cells, compiled)
    assert (np.diff(curve.shift) > 0).all()
    assert curve.shift.size >= np.unique(problem.margin).size
    for i, shift in enumerate(curve.shift):
        error, excess, functionals = measured(problem, cells, compiled, shift)
        assert curve.n_positive[i] == np.count_nonzero(problem.margin + shift > 0)
        np.testing.assert_allclose(curve.error[i], error, **EXACT)
        np.testing.assert_allclose(curve.functionals[i], functionals, **EXACT)
        violations = state_ratios(compiled, curve.violations[i], functionals, 40)
        assert max(0.0, violations.max()) == pytest.approx(excess, abs=1e-11)


@pytest.mark.parametrize("most", [3, 4, 10, 57, 10_000])
def test_thinned_curve(most):
    """Evenly in rows, with both ends and no shift."""
    problem = Problem(1, n=3000)
    cells, compiled = problem.compiled([gc.fnr() <= 0.1])
    whole = threshold_curve(problem.margin, cells, compiled)
    curve = threshold_curve(problem.margin, cells, compiled, most=most)
    assert curve.shift.size <= most
    assert curve.shift.size >= 0.8 * min(most, whole.shift.size)
    assert 0.0 in curve.shift
    assert (curve.n_positive[0], curve.n_positive[-1]) == (0, problem.n)
    at = np.searchsorted(whole.shift, curve.shift)
    np.testing.assert_array_equal(whole.shift[at], curve.shift)
    np.testing.assert_allclose(whole.functionals[at], curve.functionals, **EXACT)
    if most < 100:
        largest_tie = np.diff(whole.n_positive).max()
        assert np.diff(curve.n_positive).max() <= problem.n / (most - 2) + largest_tie


@pytest.mark.parametrize("k", [2, 3])
def test_rows_with_losses_are_left_out_and_told(k):
    problem = Problem(0, k=k)
    rate = gc.class_error(0) <= 0.2 if k == 3 else gc.fpr() <= 0.2
    loss = gc.log_loss(on=gc.label(1)) <= 0.3
    alone = best_shift(problem.margin, *problem.compiled([rate]))
    both = best_shift(problem.margin, *problem.compiled([loss, rate]))
    np.testing.assert_array_equal(both.value, alone.value)
    assert both.ignored == (0,)
    assert np.isnan(both.functionals[0])
    assert both.functionals[1] == pytest.approx(alone.functionals[0], abs=1e-12)
    only = best_shift(problem.margin, *problem.compiled([loss]))
    assert not only.value.any()
    assert only.ignored == (0,)


@pytest.mark.parametrize("k", [2, 3])
def test_rows_that_these_rows_do_not_tell_of_are_left_out(k):
    """No shift would meet a rate over no rows that has to be large."""
    problem = Problem(5, n=200, k=k)
    rules = [gc.recall(1, on={"group": "a"}) >= 0.5, gc.class_error(0) <= 0.2]
    cells, compiled = problem.compiled(rules)
    kept = np.flatnonzero((problem.y != 1) | (problem.group != "a"))
    cells = cells.take(kept)
    found = best_shift(problem.margin[kept], cells, compiled.on(cells), penalty=10.0)
    alone = compile_constraints(rules[1:], cells.rows)
    np.testing.assert_array_equal(
        found.value, best_shift(problem.margin[kept], *alone, penalty=10.0).value
    )
    assert found.is_feasible
    assert found.ignored == (0,)
    only = problem.compiled(rules[:1])[1].on(problem.compiled(rules[:1])[0].take(kept))
    untold = best_shift(problem.margin[kept], problem.compiled(rules[:1])[0].take(kept), only)
    assert not untold.value.any()


@pytest.mark.parametrize("k", [2, 3])
def test_folded_into_a_booster_the_rules_hold_to_the_row(k):
    """Plain decisions of a model of hundreds of trees are those that the shift was chosen for."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6000, 4))
    score = X[:, 0] + X[:, 1] * X[:, 2] + rng.normal(size=6000)
    y = np.digitize(score, [0.8] if k == 2 else [0.0, 1.0])
    clf = xgb.XGBClassifier(n_estimators=300, max_depth=4, n_jobs=1).fit(X[:2000], y[:2000])
    X, y = X[2000:], y[2000:]
    rules = [gc.fnr() <= 0.1] if k == 2 else [gc.class_error(1) <= 0.5, gc.class_error(2) <= 0.35]
    cells, compiled = compile_constraints(rules, Rows(y, np.arange(k)))
    found = best_shift(clf.predict(X, output_margin=True), cells, compiled)
    assert found.is_feasible
    assert found.value.any()
    shift_intercept(clf.get_booster(), found.value)
    decided = clf.predict(X)
    assert np.mean(decided != y) == pytest.approx(found.error, abs=1e-12)
    bounded = [1] if k == 2 else [1, 2]
    for j, rate in zip(bounded, found.functionals, strict=True):
        assert np.mean(decided[y == j] != j) == pytest.approx(rate, abs=1e-12)


@random(12)
@given(seed=seeds, weighted=st.booleans())
def test_biases_are_never_worse_than_a_constant_decision(seed, weighted):
    """Scores far apart, so that no line leads to deciding all rows alike at once."""
    problem = Problem(seed, n=40, k=3, weighted=weighted)
    problem.margin = problem.margin * 20.0
    cells, compiled = problem.compiled(problem.rules())
    found = best_shift(problem.margin, cells, compiled)
    for always in 1e4 * np.eye(3):
        error, excess, _ = measured(problem, cells, compiled, always)
        assert found.violation <= excess + 1e-10
        if abs(found.violation - excess) <= 1e-10:
            assert found.error <= error + 1e-10


def every_bias(problem, cells, compiled):
    """Errors and violations of all decisions that biases of three classes can make.

    A row changes its decision where two classes tie. With one bias kept at zero, the others lie in
    a plane that these ties cut along lines of three directions, and all points of a face decide
    alike: the sectors around each crossing are tried, and far lines give the outer faces crossings
    as well. Classes that no constraint distinguishes have the same bias, which leaves a line.
    """
    scores, n = problem.margin, problem.n
    costs = compiled.A.toarray().reshape(-1, len(cells), 3)
    alike = [
        [i, j]
        for i, j in itertools.combinations(range(3), 2)
        if np.array_equal(costs[..., i], costs[..., j])
    ]
    assert len(alike) < 2
    if alike:
        (other,) = {0, 1, 2} - set(alike[0])
        ties = np.unique(scores[:, alike[0]].max(axis=1) - scores[:, other])
        values = np.zeros((ties.size + 1, 3))
        values[:, other] = [ties[0] - 1, *(ties[1:] + ties[:-1]) / 2, ties[-1] + 1]
    else:
        far = 2 * np.ptp(scores) + 1
        first, second, between = (
            np.unique([*(scores[:, i] - scores[:, j]), -far, far])
            for i, j in ((2, 0), (2, 1), (1, 0))
        )
        crossings = [
            np.stack(np.broadcast_arrays(x, y), axis=-1).reshape(-1, 2)
            for x, y in (
                (first[:, None], second),
                (first[:, None], first[:, None] - between),
                (second[:, None] + between, second[:, None]),
            )
        ]
        angles = np.radians([22.5, 67.5, 135.0, 202.5, 247.5, 315.0])
        sectors = 1e-4 * np.column_stack([np.cos(angles), np.sin(angles)])
        around = np.concatenate(crossings)[:, None] + sectors
        values = np.pad(around.reshape(-1, 2), ((0, 0), (0, 1)))
    decided = (scores + values[:, None]).argmax(axis=2).astype(np.int8)
    decided = np.unique(decided, axis=0)
    w = np.ones(n) if problem.weight is None else problem.weight
    wrong = w[:, None] * (np.arange(3) != problem.y[:, None]) / w.sum()
    share = w / cells.total(w)[cells.codes]
    # Of each row and decision: what it adds to the left-hand sides, and to the error.
    table = np.concatenate([costs[:, cells.codes] * share[:, None], wrong[None]])
    found = sum((decided == k) @ table[..., k].T for k in range(3))
    return found[:, -1], np.maximum(found[:, :-1] - compiled.b, 0.0)


@pytest.mark.parametrize("seed", range(8))
def test_biases_by_trying_all(seed):
    """The search looks along lines only, and yet nothing is better on these rows."""
    problem = Problem(seed, n=32, k=3, weighted=seed % 2 == 0)
    cells, compiled = problem.compiled(problem.rules())
    assert len(cells.views) == 1
    found = best_shift(problem.margin, cells, compiled)
    error, excess, functionals = measured(problem, cells, compiled, found.value)
    np.testing.assert_allclose(found.error, error, **EXACT)
    np.testing.assert_allclose(found.violation, excess, **EXACT)
    np.testing.assert_allclose(found.functionals, functionals, **EXACT)
    assert found.value.sum() == pytest.approx(0.0, abs=1e-12)
    errors, violations = every_bias(problem, cells, compiled)
    worst = violations.max(axis=1)
    assert found.violation == pytest.approx(worst.min(), abs=1e-11)
    least = errors[worst <= worst.min() + 1e-11].min()
    assert found.error == pytest.approx(least, abs=1e-12)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("penalty", [0.3, 1.0])
def test_priced_comparisons_of_classes_by_trying_all(seed, penalty):
    """Strict rows are met where they can be; the largest priced violation counts as errors."""
    problem = Problem(seed, n=32, k=3, weighted=seed % 2 == 0)
    strict = [gc.class_error(0) <= 0.3] if seed % 3 else [gc.class_error(0) <= 0.0]
    gaps = [gc.gap(gc.selection_rate(k), by="group") <= 0.01 * seed for k in (1, 2)]
    cells, compiled = problem.compiled([*strict, *gaps])
    priced = compiled.owner > 0
    found = best_shift(problem.margin, cells, compiled, penalty=penalty, is_penalised=priced)
    errors, violations = every_bias(problem, cells, compiled)
    merits = errors + penalty * violations.max(axis=1)
    met = violations[:, ~priced].max(axis=1) <= 0.0
    least = merits[met].min() if met.any() else merits.min()
    assert found.loss == pytest.approx(least, abs=1e-11)
    assert found.violation > 0.0 or found.loss == pytest.approx(found.error)


def of_five_classes(seed, n, offset):
    """Log-probabilities of five normal classes, the last one's raised, and their labels."""
    rng = np.random.default_rng(seed)
    y = np.append(np.arange(5), rng.integers(0, 5, n - 5))
    centre = 0.8 * np.random.default_rng(0).normal(size=(5, 3))
    x = centre[y] + rng.normal(size=(n, 3))
    margin = -((x[:, None] - centre) ** 2).sum(axis=2) / 2
    margin[:, 4] += offset
    return margin, y


@pytest.mark.parametrize(("n", "offset"), [(400, 0.0), (4000, 0.0), (100, 0.5)])
def test_classes_that_no_rule_tells_apart_keep_their_order(n, offset):
    """Their biases are equal, and those of the others are what a search over these alone finds."""
    margin, y = of_five_classes(1, n, offset)
    rules = [gc.class_error(1) <= 0.1, gc.selection_rate(3) <= 0.1]
    cells, compiled = compile_constraints(rules, Rows(y, np.arange(5)))
    found = best_shift(margin, cells, compiled)
    assert found.is_feasible
    assert np.ptp(found.value[[0, 2, 4]]) == 0.0
    assert len(set(found.value[[0, 1, 3]])) == 3
    kept = margin[:, [0, 2, 4]].argmax(axis=1)
    shifted = (margin + found.value)[:, [0, 2, 4]].argmax(axis=1)
    np.testing.assert_array_equal(shifted, kept)
    every = [gc.error_rate() <= 0.01]  # an error of any class counts
    alone = best_shift(margin, *compile_constraints(every, Rows(y, np.arange(5))))
    assert len(set(alone.value)) == 5


@pytest.mark.parametrize("weighted", [False, True])
def test_classes_that_no_rule_tells_apart_are_moved_where_that_surely_pays(weighted):
    """Scores that are too high for one of them are brought back to what they were, nearly."""
    margin, y = of_five_classes(1, 4000, 1.5)
    weight = 1.0 + np.arange(4000) % 3 if weighted else np.ones(4000)
    rules = [gc.class_error(1) <= 0.1, gc.selection_rate(3) <= 0.1]
    cells, compiled = compile_constraints(rules, Rows(y, np.arange(5), weight))
    found = best_shift(margin, cells, compiled)
    right = best_shift(margin - 1.5 * (np.arange(5) == 4), cells, compiled)
    assert found.is_feasible
    assert found.error <= right.error + 0.005
    assert found.value[4] < found.value[0] - 1.0
    wrong = (margin + found.value).argmax(axis=1) != y
    np.testing.assert_allclose(found.error, np.average(wrong, weights=weight), **EXACT)
    together = []  # errors of biases that are equal for these classes
    for one, three in itertools.product(np.arange(0, 4, 0.1), np.arange(-1, 3, 0.1)):
        decided = (margin + np.array([0, one, 0, three, 0])).argmax(axis=1)
        misses = np.average(decided[y == 1] != 1, weights=weight[y == 1])
        if misses <= 0.1 and np.average(decided == 3, weights=weight) <= 0.1:
            together.append(np.average(decided != y, weights=weight))
    assert found.error < min(together) - 0.02


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("penalty", [0.5, 3.0])
def test_penalised_violations_by_trying_all(seed, penalty):
    problem = Problem(seed, n=32, k=3, weighted=seed % 2 == 0)
    rules = [gc.class_error(j) <= 0.02 * (j + 1) for j in range(3)]
    cells, compiled = problem.compiled(rules)
    found = best_shift(problem.margin, cells, compiled, penalty=penalty)
    assert not found.is_feasible
    error, _, functionals = measured(problem, cells, compiled, found.value)
    violations = np.maximum(0.0, compiled.rows_of(functionals) - compiled.b)
    assert found.loss == pytest.approx(error + penalty * violations.max(), abs=1e-12)
    errors, violations = every_bias(problem, cells, compiled)
    least = (errors + penalty * violations.max(axis=1)).min()
    assert found.loss == pytest.approx(least, abs=1e-12)
    strict = best_shift(problem.margin, cells, compiled)
    assert strict.loss == strict.violation <= found.violation


def test_seven_classes_against_the_dual():
    """At the dual solution's own violations, class weights of Lagrange multipliers do no better.

    The dual of Neyman-Pearson classification weighs the posterior of each bounded class; it is
    concave in the multipliers, and maximised over them.
    """
    rng = np.random.default_rng(0)
    n, k = 3000, 7
    centre, prior = 1.8 * rng.normal(size=(k, 3)), rng.dirichlet(np.full(k, 3.0))
    y = np.append(np.arange(k), rng.choice(k, n - k, p=prior))
    x = centre[y] + rng.normal(size=(n, 3))
    margin = np.log(prior) - ((x[:, None] - centre) ** 2).sum(axis=2) / 2
    margin += 0.3 * rng.normal(size=(n, k))
    wrong = margin.argmax(axis=1) != y
    errors = np.array([wrong[y == j].mean() for j in range(k)])
    bounded = np.argsort(errors)[-4:]
    bounds = 0.8 * errors[bounded]
    p, share = softmax(margin, axis=1), np.bincount(y) / n

    def weights(multipliers):
        weight = np.ones(k)
        weight[bounded] += np.abs(multipliers) / share[bounded]
        return weight

    def minus_dual(multipliers):
        weighed = p * weights(multipliers)
        least = (weighed.sum(axis=1) - weighed.max(axis=1)).mean()
        return np.abs(multipliers) @ bounds - least

    solved = minimize(minus_dual, np.full(4, 0.05), method="Nelder-Mead", options={"maxiter": 900})
    decided = (margin + np.log(weights(solved.x))).argmax(axis=1)
    reached = np.array([(decided != y)[y == j].mean() for j in bounded])
    rules = [gc.class_error(int(j)) <= b for j, b in zip(bounded, bounds, strict=True)]
    cells, compiled = compile_constraints(rules, Rows(y, np.arange(k)))
    found = best_shift(margin, cells, compiled)
    assert found.violation <= max(0.0, (reached - bounds).max()) + 1e-12
    relaxed = best_shift(margin, cells, compiled, bounds=np.maximum(reached, bounds))
    assert relaxed.is_feasible
    assert relaxed.error <= (decided != y).mean()


@pytest.mark.parametrize(("k", "n", "fewest"), [(3, 800, 1500), (20, 3000, 300)])
def test_the_lines_of_a_search_cost_the_same_for_few_and_many_classes(k, n, fewest):
    """A line sorts all rows, compares all classes and measures all constraints."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, k, n)
    rules = [gc.class_error(j) <= 0.1 for j in range(k)]
    cells, compiled = compile_constraints(rules, Rows(y, np.arange(k)))
    found = ShiftSearch(rng.normal(size=(n, k)), cells, compiled)
    search = BiasSearch(found.classes, found.merits, found.levels)
    assert fewest <= search.lines_left
    assert search.lines_left * n * k <= 30_000_000
