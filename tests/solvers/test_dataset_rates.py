"""Rates of data sets as ramps: values by hand, compiled constraints, shifts and solutions."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from itertools import pairwise

import numpy as np
import pytest
from dataset_rate_problems import RateProblemDraw, ramp_values
from hypothesis import given
from hypothesis import strategies as st
from references import Problem, random, seeds
from scipy import sparse

import gbm_constrained as gc
import gbm_constrained.linear_model
import gbm_constrained.solvers
from gbm_constrained.exceptions import InfeasibleConstraintsError
from gbm_constrained.linear_model import WeightedSVM
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.solvers.cutting_plane import CuttingPlane
from gbm_constrained.solvers.dataset_rates import (
    ConvexProblem,
    MajorizationMinimization,
    RateProblem,
    find_factor,
    find_intercept_shift,
    find_start,
    ramp,
    ramp_bound,
    rate_problem_of,
)

SCORES = st.one_of(st.sampled_from([-0.5, 0.0, 0.5]), st.floats(-3, 3))


@given(SCORES, SCORES)
@random(100)
def test_bounds_are_above_the_ramp_and_equal_it_at_the_reference(z, reference):
    z, reference = np.array([z]), np.array([reference])
    for sign in (1, -1):
        assert ramp_bound(sign * z, sign * reference) >= ramp(sign * z) - 1e-15
        at_reference = ramp_bound(sign * reference, sign * reference)
        assert at_reference == pytest.approx(ramp(sign * reference), abs=1e-15)
    assert ramp(z) + ramp(-z) == pytest.approx(1.0, abs=1e-15)


def test_the_hinge_is_taken_at_ties():
    ties = np.array([-0.5, 0.5])
    np.testing.assert_array_equal(ramp_bound(np.full(2, 2.0), ties), [2.5, 2.5])
    np.testing.assert_array_equal(ramp_bound(np.full(2, -2.0), ties), [0.0, 0.0])
    assert ramp_bound(np.array([-2.0]), np.array([0.5 + 1e-12])) == 1.0


def count(draw, positive_share):
    """Add up costs row by row, given each row's probability of a positive decision."""
    total = draw.members.sum(axis=1)
    values = np.zeros(draw.costs.shape[0])
    for cell in range(draw.members.shape[0]):
        for row in np.flatnonzero(draw.members[cell]):
            p = positive_share[row]
            weight = draw.members[cell, row] / total[cell]
            values += weight * (draw.costs[:, cell, 1] * p + draw.costs[:, cell, 0] * (1 - p))
    return values


@random(30)
@given(seeds)
def test_values_against_counting(seed):
    draw = RateProblemDraw(seed, m=3, n=40)
    z = draw.rng.normal(size=40) * draw.rng.choice([0.3, 3.0])
    z[::5] = np.round(z[::5])
    problem = draw.problem
    np.testing.assert_allclose(problem.hard_values(z), count(draw, z > 0), atol=1e-12)
    np.testing.assert_allclose(ramp_values(problem, z), count(draw, ramp(z)), atol=1e-12)
    np.testing.assert_allclose(problem.bound_values(z, z), ramp_values(problem, z), atol=1e-12)
    reference = draw.rng.normal(size=40)
    assert (problem.bound_values(z, reference) >= ramp_values(problem, z) - 1e-12).all()
    assert (problem.positive >= 0).all()
    assert (problem.negative >= 0).all()
    assert (np.minimum(problem.positive, problem.negative) == 0).all()
    ramps = ramp_values(problem.without_objective(), z)
    np.testing.assert_allclose(ramps, ramp_values(problem, z) * [0, 1, 1, 1], atol=1e-15)


def test_costs_of_rows():
    draw = RateProblemDraw(3, m=2, n=50)
    weights, z = np.array([1.0, 0.3, 2.0]), draw.rng.normal(size=50)
    positive, negative = draw.problem.row_costs(weights)
    value = positive @ ramp(z) + negative @ ramp(-z) + weights @ draw.problem.constant
    assert value == pytest.approx(weights @ ramp_values(draw.problem, z), abs=1e-12)


def test_an_empty_data_set_costs_nothing():
    shares = sparse.csr_array(np.array([[0.5, 0.5], [0.0, 0.0]]))
    costs = np.array([[[1.0, 2.0], [3.0, 4.0]]])
    problem = RateProblem.of(shares, costs, np.zeros(0), ())
    np.testing.assert_allclose(problem.hard_values(np.array([-1.0, 1.0])), [1.5])


@random(40)
@given(seeds, st.integers(1, 5))
def test_constants_against_a_grid(seed, m):
    draw = RateProblemDraw(seed, m, n=80, slack=0.0)
    draw.problem.bounds[:] += draw.rng.normal(size=m) * 0.3
    grid = np.linspace(0, 1, 401)
    violations = np.array(
        [draw.problem.violations(ramp_values(draw.problem, np.full(80, p - 0.5))) for p in grid]
    )
    meets = grid[violations.max(axis=1) <= 1e-12]
    interval = draw.problem.feasible_shares()
    if meets.size:
        np.testing.assert_allclose(interval, [meets[0], meets[-1]], atol=1 / 400)
    elif interval is not None:
        assert interval[1] - interval[0] < 1 / 400
    best = draw.problem.least_violating_share()
    at_best = draw.problem.violations(ramp_values(draw.problem, np.full(80, best - 0.5)))
    assert at_best.max() <= violations.max(axis=1).min() + 1e-12


def test_bad_input():
    shares = sparse.csr_array(np.ones((1, 1)))
    negative = -np.ones((1, 1))
    with pytest.raises(ValueError, match=r"positive must hold finite .* got -1.0: write costs"):
        RateProblem(shares, negative, -negative, np.zeros(1), np.zeros(0), ())
    with pytest.raises(ValueError, match=r"bounds must be finite, got \[nan\]"):
        RateProblem(shares, np.ones((2, 1)), np.ones((2, 1)), np.zeros(2), np.array([np.nan]), "r")


def test_least_shift_that_meets_all_rules():
    """Every shift between two scores is tried here."""
    shifted, impossible = 0, 0
    for seed in range(100):
        draw = RateProblemDraw(seed, 1 + seed % 3, n=80)
        problem = draw.problem
        z = draw.rng.normal(size=80) * 0.6
        ramps = problem.violations(ramp_values(problem, z))
        problem.bounds[:] += np.maximum(ramps, 0.0) + 0.06 * draw.rng.random()
        ends = np.unique(-z)
        tried = [0.0, *(ends[1:] + ends[:-1]) / 2]
        meets = [
            s
            for s in tried
            if problem.violations(problem.hard_values(z + s)).max() <= 1e-12
            and problem.violations(ramp_values(problem, z + s)).max() <= 1e-9
        ]
        found = find_intercept_shift(problem, z)
        if not meets:
            assert found is None
            impossible += 1
            continue
        assert found == min(meets, key=abs)
        shifted += found != 0.0
    assert shifted >= 4
    assert impossible >= 4


def test_a_shift_may_pass_many_scores():
    """Thousands of rows change sides before the decisions meet the bound that ramps meet."""
    rng = np.random.default_rng(0)
    z = np.concatenate([rng.uniform(0.0, 0.05, 3000), np.full(7000, -0.5)])
    shares, costs = np.full((1, 10_000), 1e-4), np.array([[[0.0, 0.0]], [[0.0, 1.0]]])
    problem = RateProblem.of(sparse.csr_array(shares), costs, np.array([0.2]), ("selected",))
    assert problem.violations(ramp_values(problem, z))[0] < 0 < problem.hard_values(z)[1] - 0.2
    shift = find_intercept_shift(problem, z)
    assert problem.hard_values(z + shift)[1] == pytest.approx(0.2, abs=1e-12)
    assert shift == pytest.approx(-np.sort(z[:3000])[999:1001].mean(), abs=1e-12)


N_DECISIONS = 100


class Counts:
    """Weights of rows by decision, of one set of random rows."""

    def __init__(self, problem, decided):
        self.w, self.y, self.old = problem.w, problem.y == 1, problem.classes[problem.other] == 1
        self.sex, self.region, self.decided = problem.sex, problem.region, decided

    def share(self, event, rows):
        return (self.w * (event & rows)).sum() / (self.w * rows).sum()

    def sum(self, rows):
        return (self.w * rows).sum()

    def selected(self, rows):
        return self.share(self.decided, rows)


def by_sex(c, rows):
    return [c.selected(rows & (c.sex == s)) for s in ("F", "M")]


def values_of(c):
    """Each rule with its value by counting, and the value that it bounds from above."""
    y, d, old, every = c.y, c.decided, c.old, np.ones(c.y.size, dtype=bool)
    wrong, changed = y != d, d != old
    tp, fp = c.sum(y & d), c.sum(~y & d)
    by_region = [c.share(wrong, c.region == r) for r in ("a", "b", "c")]
    by_sex_of_positives = by_sex(c, y)
    churn, wins = c.share(changed, every), c.share(changed & (d == y), every)
    losses = c.share(changed & (old == y), every)
    return [
        (gc.fpr() <= 0.3, c.selected(~y) - 0.3),
        (gc.recall() >= 0.6, 0.6 - c.selected(y)),
        (gc.selection_rate() <= 0.4, c.selected(every) - 0.4),
        (gc.selection_rate() >= 0.2, 0.2 - c.selected(every)),
        (gc.precision() >= 0.7, 0.7 * (tp + fp) - tp),
        (gc.churn(to="old") <= 0.2, churn - 0.2),
        (gc.wins(over="old") >= 0.1, 0.1 - wins),
        (gc.each(gc.error_rate(), by="region") <= 0.3, max(by_region) - 0.3),
        (gc.gap(gc.tpr(), by="sex") <= 0.1, np.ptp(by_sex_of_positives) - 0.1),
        (
            gc.ratio(gc.selection_rate(), by="sex") >= 0.8,
            0.8 * max(by_sex(c, every)) - min(by_sex(c, every)),
        ),
        (gc.wins(over="old") / gc.losses(to="old") >= 1.2, 1.2 * losses - wins),
        (gc.tpr(on={"sex": "F"}) >= 0.9, 0.9 - by_sex_of_positives[0]),
    ]


def rules_of(problem):
    return [rule for rule, _ in values_of(Counts(problem, problem.rng.random(problem.n) > 0.5))]


@pytest.mark.parametrize("position", range(12))
def test_rules_against_counting(position):
    """The largest violation of a rule's rows is its own, up to a positive factor of quotients."""
    problem = Problem(5, n=200)
    rule = rules_of(problem)[position]
    cells, compiled = compile_constraints([rule], problem.rows)
    rates = rate_problem_of(cells, compiled)
    found, expected = np.empty((2, N_DECISIONS))
    for i in range(N_DECISIONS):
        z = problem.rng.normal(size=problem.n) + problem.rng.normal()
        found[i] = rates.violations(rates.hard_values(z)).max()
        expected[i] = values_of(Counts(problem, z >= 0))[position][1]
    factor = 1.0
    if isinstance(rule.expression, type(gc.precision())):
        factor = expected[0] / found[0]
        assert factor > 0
    np.testing.assert_allclose(factor * found, expected, atol=1e-12 * max(1.0, factor))


def test_objective_is_the_weighted_error_rate():
    problem = Problem(6, n=200)
    cells, compiled = compile_constraints(rules_of(problem), problem.rows)
    assert len(cells.views) >= 1
    factor = np.array([2.0, 0.5])
    rates = rate_problem_of(cells, compiled, factor)
    for _ in range(20):
        z = problem.rng.normal(size=problem.n)
        weight = problem.w * factor[problem.codes]
        error = weight @ ((z >= 0) != problem.codes) / weight.sum()
        assert rates.hard_values(z)[0] == pytest.approx(error, abs=1e-12)


def test_coefficients_are_not_negative_and_rows_keep_their_names():
    problem = Problem(7, n=200)
    cells, compiled = compile_constraints(rules_of(problem), problem.rows)
    rates = rate_problem_of(cells, compiled)
    assert (rates.positive >= 0).all()
    assert (rates.negative >= 0).all()
    assert rates.names == compiled.rows
    np.testing.assert_array_equal(rates.bounds, compiled.b)


def test_unlabelled_rows_are_in_rules_and_not_in_the_objective():
    problem = Problem(8, n=60)
    problem.sizes, problem.sources = (40, 20), ("new",)
    problem.codes[40:] = -1
    rule = gc.selection_rate(on=gc.dataset("new")) <= 0.3
    cells, compiled = compile_constraints([rule], problem.rows)
    rates = rate_problem_of(cells, compiled)
    z = problem.rng.normal(size=60)
    c = Counts(problem, z >= 0)
    inside = np.arange(60) < 40
    expected = [c.share((problem.codes == 1) != c.decided, inside), c.selected(~inside)]
    np.testing.assert_allclose(rates.hard_values(z), expected, atol=1e-12)
    positive, negative = rates.row_costs(np.array([1.0, 0.0]))
    assert not positive[40:].any()
    assert not negative[40:].any()


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (gc.log_loss() <= 0.5, "log_loss.* bounds a mean loss, which no ramp"),
        (gc.auc() >= 0.8, "auc.* bounds pairs of scores, which no ramp"),
    ],
)
def test_rules_on_other_statistics_are_refused(rule, message):
    problem = Problem(9)
    cells, compiled = compile_constraints([gc.fpr() <= 0.5, rule], problem.rows)
    with pytest.raises(ValueError, match=message):
        rate_problem_of(cells, compiled)


def test_several_classes_are_refused():
    problem = Problem(10, classes=(0, 1, 2))
    cells, compiled = compile_constraints([gc.error_rate() <= 0.5], problem.rows)
    with pytest.raises(ValueError, match="y has 3 classes: fit one class against all others"):
        rate_problem_of(cells, compiled)


GAP, L2 = 1e-8, 0.1
METHOD = MajorizationMinimization(tol=0.0, gap=GAP, first_gap=GAP, max_iter=2)
# By strong convexity a step is known to sqrt(2 GAP / L2), which is 4.5e-4. It is nearer than that.
NEAR = 2e-5
SEEDS = range(2)


def solve(members, X, costs, bounds, l2=L2):
    shares = sparse.csr_array(members / members.sum(axis=1, keepdims=True))
    names = tuple(f"rule {j}" for j in range(len(bounds)))
    problem = RateProblem.of(shares, costs, bounds, names)
    return METHOD.solve(problem, WeightedSVM(X, l2), np.zeros(X.shape[1] + 1))


@lru_cache
def solve_draw(seed):
    """Draw a problem, and solve it."""
    drawn = RateProblemDraw(seed, 2, n=60, d=2, l2=L2)
    return drawn, solve(drawn.members, drawn.X, drawn.costs, drawn.bounds)


def assert_equal_steps(first, second):
    assert len(first) == len(second)
    for one, other in zip(first, second, strict=True):
        np.testing.assert_allclose(one.coefficients, other.coefficients, atol=NEAR)
        assert one.objective == pytest.approx(other.objective, abs=10 * GAP)


@pytest.mark.parametrize("seed", SEEDS)
def test_order_of_rows(seed):
    (d, given), order = solve_draw(seed), np.random.default_rng(0).permutation(60)
    assert_equal_steps(given, solve(d.members[:, order], d.X[order], d.costs, d.bounds))


@pytest.mark.parametrize("seed", SEEDS)
def test_weights_are_repetitions(seed):
    (d, _), times = solve_draw(seed), np.random.default_rng(1).integers(0, 4, 60)
    weighted = solve(d.members * times, d.X, d.costs, d.bounds)
    repeated = d.members.repeat(times, axis=1), d.X.repeat(times, axis=0)
    assert_equal_steps(weighted, solve(*repeated, d.costs, d.bounds))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_rule_that_holds_anyway(seed):
    d, given = solve_draw(seed)
    costs = np.concatenate([d.costs, d.costs[1:2]])
    loose = np.append(d.bounds, d.bounds[0] + 1.0)
    added = solve(d.members, d.X, costs, loose)
    assert_equal_steps(given, added)
    assert added[-1].multipliers[-1] == 0.0


@pytest.mark.parametrize("seed", SEEDS)
def test_scale_of_a_column_next_to_no_penalty(seed):
    (d, _), scale = solve_draw(seed), np.array([8.0, 1.0])
    given = solve(d.members, d.X, d.costs, d.bounds, l2=1e-6)
    scaled = solve(d.members, d.X * scale, d.costs, d.bounds, l2=1e-6)
    one, other = given[1].coefficients, scaled[1].coefficients
    assert given[1].objective == pytest.approx(scaled[1].objective, abs=1e-6)
    np.testing.assert_allclose(one, other * np.append(scale, 1.0), rtol=1e-3, atol=1e-3)


EXACT = MajorizationMinimization(tol=-1.0, gap=1e-9, first_gap=1e-9, max_iter=4)


def neyman_pearson(fpr=0.1, fnr=None):
    """The example of 25 positives and 35 negatives; both features are independent normals."""
    r = np.random.default_rng(3)
    P = r.normal(size=(25, 2)) * 0.9 + [1.2, 0.4]
    N = r.normal(size=(35, 2)) * 0.9 - [0.3, 0.2]
    members = np.vstack([np.repeat([1 / 25, 0], [25, 35]), np.repeat([0, 1 / 35], [25, 35])])
    costs = np.zeros((2 if fnr is None else 3, 2, 2))
    costs[0, 0, 0] = costs[1, 1, 1] = 1.0
    bounds, names = [fpr], ["fpr"]
    if fnr is not None:
        costs[2, 0, 0] = 1.0
        bounds, names = [fpr, fnr], ["fpr", "fnr"]
    problem = RateProblem.of(sparse.csr_array(members), costs, np.array(bounds), tuple(names))
    return problem, WeightedSVM(np.vstack([P, N]), 0.01)


def test_the_objective_may_be_a_sum_of_rates_of_several_data_sets():
    """Problem 1: errors of one data set and selections of another, under a recall."""
    rng = np.random.default_rng(0)
    X, unlabelled = rng.normal(size=(80, 2)), rng.normal(size=(40, 2)) + 0.5
    y = X[:, 0] + rng.normal(size=80) > 0
    members = np.zeros((3, 120))
    members[0, :80], members[1, :80], members[2, 80:] = y / y.sum(), ~y / (~y).sum(), 1 / 40
    positive, negative = np.zeros((2, 2, 3))
    negative[0, 0] = positive[0, 1] = 0.5
    positive[0, 2] = 0.3  # The further selections are in the objective.
    negative[1, 0] = 1.0
    problem = gc.solvers.RateProblem(
        sparse.csr_array(members), positive, negative, np.zeros(2), np.array([0.1]), ("fnr",)
    )
    model = gc.linear_model.WeightedSVM(np.vstack([X, unlabelled]), 0.01)
    steps = gc.solvers.MajorizationMinimization().solve(problem, model, np.array([0, 0, 0.45]))
    z = model.scores(steps[-1].coefficients)
    of_y, others = 0.5 + np.clip(z[:80], -0.5, 0.5), 0.5 + np.clip(z[80:], -0.5, 0.5)
    errors = (1 - of_y[y]).mean() / 2 + of_y[~y].mean() / 2
    penalty = model.penalty(steps[-1].coefficients)
    assert steps[-1].objective == pytest.approx(errors + 0.3 * others.mean() + penalty)
    assert steps[-1].objective < steps[0].objective - 0.1
    assert (1 - of_y[y]).mean() <= 0.1 + 1e-9


@pytest.mark.parametrize("chooser", ["maximum", "centroid"])
def test_verified_example(chooser):
    """Optima and multipliers of Problem 3 by an exact quadratic programme, to printed digits."""
    problem, model = neyman_pearson()
    method = replace(EXACT, search=CuttingPlane(1.0, chooser))
    steps = method.solve(problem, model, np.array([0.0, 0.0, -0.4]))
    assert steps[0].objective == pytest.approx(0.9)
    expected = [
        (0.376303, 1.7704, 0.306915, 0.100000, 0.32, 0.0571),
        (0.278794, 0.9768, 0.278794, 0.098126, 0.28, 0.0857),
        (0.274572, 1.0841, 0.274572, 0.100000, 0.28, 0.0857),
        (0.274572, 1.0841, 0.274572, 0.100000, 0.28, 0.0857),
    ]
    for step, (optimum, multiplier, objective, fpr, hard_fnr, hard_fpr) in zip(
        steps[1:], expected, strict=True
    ):
        assert [step.lower, step.upper] == pytest.approx([optimum] * 2, abs=1e-6)
        assert step.multipliers == pytest.approx([multiplier], abs=1e-4)
        assert step.objective == pytest.approx(objective, abs=1e-6)
        z = model.scores(step.coefficients)
        assert ramp_values(problem, z)[1] == pytest.approx(fpr, abs=1e-6)
        assert problem.hard_values(z) == pytest.approx([hard_fnr, hard_fpr], abs=1e-4)


@pytest.mark.parametrize("n_draws", [24, pytest.param(200, marks=pytest.mark.slow)])
def test_promises_of_every_step(n_draws):
    """Rough bounds of Problem 3 change nothing of it."""
    for seed in range(n_draws):
        draw = RateProblemDraw(seed, 1 + seed % 3, n=40, slack=0.01)
        method = MajorizationMinimization(max_iter=3, gap=1e-4, first_gap=1e-2)
        steps = method.solve(draw.problem, draw.model, draw.zeros)
        for last, step in pairwise(steps):
            assert step.objective <= last.objective + 1e-9
            assert step.violation <= 1e-9
            assert step.lower <= step.upper
            assert step.upper - step.lower <= 1e-2
            z = draw.model.scores(step.coefficients)
            values = ramp_values(draw.problem, z)
            assert step.violation == draw.problem.violations(values).max()


def test_oracle_of_saturated_rows():
    """Costs that no coefficients avoid are part of objective, bounds and Lagrangian."""
    draw = RateProblemDraw(1, 2)
    oracle = ConvexProblem(draw.problem, draw.model, draw.rng.normal(size=4))
    assert (np.abs(oracle.reference) > 0.5).mean() > 0.3
    multipliers = np.array([0.3, 0.7])
    cut = oracle.minimize(multipliers, 1e-7)
    at_cut = cut.objective + multipliers @ cut.violations
    assert cut.lower <= at_cut <= cut.lower + 1e-7
    for _ in range(50):
        other = oracle.at(cut.point + draw.rng.normal(size=4) * 0.05)
        assert other.objective + multipliers @ other.violations >= cut.lower
    assert oracle.start().lower <= oracle.minimize(np.zeros(2), 1e-7).lower


def test_tight_convex_problem_is_a_fixed_point():
    """Groups that differ much hold the zero start at a constant; exact value of 27 / 80."""
    r = np.random.default_rng(7)
    XA = np.array([0.8, 0.3]) + r.normal(size=(40, 2))
    yA = XA @ [1, 0.5] + 0.6 * r.normal(size=40) > 0.6
    XB = r.normal(size=(40, 2)) - [0.4, 0]
    yB = XB @ [1, 0.5] + 0.6 * r.normal(size=40) > 0.6
    y, in_a = np.r_[yA, yB], np.repeat([True, False], 40)
    shares = np.vstack([y / 80, ~y / 80, in_a / 40, ~in_a / 40])
    costs = np.zeros((2, 4, 2))
    costs[0, 0, 0] = costs[0, 1, 1] = costs[1, 3, 0] = 1.0
    costs[1, 2, 1] = 0.8
    problem = RateProblem.of(sparse.csr_array(shares), costs, np.ones(1), ("ratio",))
    model = WeightedSVM(np.vstack([XA, XB]), 0.02)
    method = MajorizationMinimization(tol=1e-9, gap=1e-8)
    steps = method.solve(problem, model, np.zeros(3))
    assert steps[-1].objective == pytest.approx(27 / 80, abs=1e-6)
    np.testing.assert_allclose(steps[-1].coefficients, [0, 0, -0.5], atol=1e-3)


def test_saturated_start_is_a_fixed_point_and_is_shrunk():
    problem, model = neyman_pearson()
    saturated = np.array([0.0, 0.0, -10.0])
    steps = EXACT.solve(problem, model, saturated)
    assert [step.objective for step in steps] == pytest.approx([1.0] * 5)
    start, factor = find_start(problem, model, EXACT, saturated)
    np.testing.assert_array_equal(start, factor * saturated)
    assert 0.04 <= factor <= 0.05
    moved = EXACT.solve(problem, model, start)
    assert moved[-1].objective < 0.28
    assert moved[-1].violation <= 1e-9


def test_start_that_moves_is_kept():
    problem, model = neyman_pearson()
    good = EXACT.solve(problem, model, np.array([0.0, 0.0, -0.4]))[-1].coefficients
    assert find_start(problem, model, EXACT, good)[1] == 1.0
    # Larger scores meet a rule on decisions that the ramp of these scores violates.
    tight, _ = neyman_pearson(fpr=0.09)
    factor = find_factor(tight, model.scores(good))
    assert factor > 1.0
    assert tight.violations(ramp_values(tight, factor * model.scores(good))).max() <= 1e-9


def test_constant_start_is_the_one_nearest_to_even_odds():
    problem, model = neyman_pearson()
    np.testing.assert_allclose(find_start(problem, model, EXACT)[0], [0, 0, -0.4])
    loose, _ = neyman_pearson(fpr=0.7)
    np.testing.assert_array_equal(find_start(loose, model, EXACT)[0], np.zeros(3))


@pytest.mark.parametrize("fnr", [0.35, 0.29])
def test_rules_that_no_constant_meets(fnr):
    problem, model = neyman_pearson(fnr=fnr)
    assert problem.feasible_shares() is None
    start, _ = find_start(problem, model, MajorizationMinimization(max_iter=1))
    assert problem.violations(ramp_values(problem, model.scores(start))).max() <= 0
    steps = MajorizationMinimization().solve(problem, model, start)
    assert steps[-1].objective < steps[0].objective
    assert steps[-1].violation <= 1e-9


def test_rules_in_conflict_are_named():
    problem, model = neyman_pearson(fpr=0.02, fnr=0.02)
    with pytest.raises(InfeasibleConstraintsError, match="fpr and fnr in conflict"):
        find_start(problem, model, MajorizationMinimization())


def test_without_rules_and_with_rules_that_cost_nothing():
    problem, model = neyman_pearson(fpr=1.0)
    none = RateProblem(
        problem.shares, problem.positive[:1], problem.negative[:1], np.zeros(1), np.zeros(0), ()
    )
    method = MajorizationMinimization(gap=1e-9, first_gap=1e-9)
    free = method.solve(none, model, find_start(none, model, method)[0])
    loose = method.solve(problem, model, np.zeros(3))
    assert loose[-1].multipliers.tolist() == [0.0]
    assert free[-1].objective == pytest.approx(loose[-1].objective, abs=1e-6)


def test_progress_ends_the_steps():
    problem, model = neyman_pearson()
    start = np.array([0.0, 0.0, -0.4])
    steps = MajorizationMinimization().solve(problem, model, start)
    assert len(steps) < 10
    assert steps[-2].objective - steps[-1].objective <= 1e-4
    assert len(MajorizationMinimization(max_iter=2).solve(problem, model, start)) == 3


def test_cuts_of_the_last_step_are_cuts_of_the_next():
    """A search that knows nothing needs more answers for the same convex problem."""
    continued = anew = 0
    for seed in range(6):
        draw = RateProblemDraw(seed, 2, slack=0.0)
        method = MajorizationMinimization(tol=0.0, max_iter=3)
        for last, step in pairwise(method.solve(draw.problem, draw.model, draw.zeros)[1:]):
            oracle = ConvexProblem(draw.problem, draw.model, last.coefficients)
            continued += step.n_cuts
            anew += CuttingPlane(step.asked).solve(oracle.minimize, [oracle.start()]).n_cuts
    assert 0 < 1.5 * continued <= anew


def test_steps_ask_for_no_more_than_their_end_needs():
    problem, model = neyman_pearson()
    for tol in (1e-2, 1e-4):
        method = MajorizationMinimization(tol=tol)
        steps = method.solve(problem, model, np.array([0.0, 0.0, -0.4]))
        for last, step in pairwise(steps[1:]):
            assert step.upper - step.lower <= step.asked
            assert step.asked >= tol * last.objective
    assert steps[1].asked == method.first_gap


def with_hinges(problem, objective="hinge", constraints="hinge"):
    return replace(problem, objective_loss=objective, constraint_loss=constraints)


def test_hinges_are_one_convex_problem():
    draw = RateProblemDraw(2, 2)
    problem = with_hinges(draw.problem)
    method = MajorizationMinimization(gap=1e-8, first_gap=1e-8)
    steps = method.solve(problem, draw.model, draw.zeros)
    for step in steps[1:]:
        assert step.lower - 1e-9 <= steps[-1].objective <= step.upper + 1e-9
    z = draw.model.scores(steps[-1].coefficients)
    hinges = problem.bound_values(z)
    assert (ramp_values(problem, z) <= hinges + 1e-12).all()
    assert problem.violations(hinges).max() <= 1e-9


@pytest.mark.parametrize("losses", [("ramp", "hinge"), ("hinge", "ramp")])
def test_a_hinge_in_one_place(losses):
    draw = RateProblemDraw(4, 3)
    problem = with_hinges(draw.problem, *losses)
    steps = MajorizationMinimization().solve(problem, draw.model, draw.zeros)
    z = draw.model.scores(steps[-1].coefficients)
    ramps, hinges = ramp_values(problem, z), with_hinges(problem).bound_values(z)
    is_hinge = np.array([losses[0] == "hinge", *[losses[1] == "hinge"] * 3])
    expected = np.where(is_hinge, hinges, ramps)
    np.testing.assert_allclose(problem.bound_values(z), expected, atol=1e-12)
    assert all(step.objective <= last.objective + 1e-9 for last, step in pairwise(steps))
    assert max(step.violation for step in steps) <= 1e-9


def with_outlier(distance):
    """Rows that one feature tells apart, and a rule on 20 of them, one of which lies far away."""
    rng = np.random.default_rng(0)
    n = 400
    y = rng.random(n) < 0.5
    X = np.column_stack([rng.normal(size=n) + np.where(y, 1.2, -1.2), rng.normal(size=n)])
    in_rule = np.arange(n) < 20
    y[:20], X[:20, 0] = False, -1.0 + 0.3 * rng.normal(size=20)
    X[0] = [distance, 0.0]
    labelled = np.arange(n) > 0
    shares = sparse.csr_array(np.vstack([labelled * y / n, labelled * ~y / n, in_rule / 20]))
    costs = np.zeros((2, 3, 2))
    costs[0, 0, 0] = costs[0, 1, 1] = costs[1, 2, 1] = 1.0
    problem = RateProblem.of(shares, costs, np.array([0.1]), ("false alarms",))
    return problem, WeightedSVM(X, 1e-3)


def test_one_outlier_breaks_a_hinge_and_costs_a_ramp_its_share():
    """The ramp pays one row in twenty for the outlier, and keeps nearly all of its accuracy."""
    method = MajorizationMinimization(max_iter=20)
    errors = {}
    for distance in (-1.0, 1e4):
        problem, model = with_outlier(distance)
        for loss in ("ramp", "hinge"):
            tried = with_hinges(problem, "ramp", loss)
            start, _ = find_start(tried, model, method)
            step = method.solve(tried, model, start)[-1]
            assert step.violation <= 1e-9
            hard = problem.hard_values(model.scores(step.coefficients))
            errors[distance, loss] = hard[0]
            assert hard[1] <= 0.1
    assert errors[1e4, "ramp"] <= errors[-1.0, "ramp"] + 0.02
    assert errors[1e4, "hinge"] >= errors[-1.0, "hinge"] + 0.2
