"""Rates, costs and means in amounts, against counting."""

import device_arrays
import numpy as np
import pytest
from amount_rows import compile_rows, draw, lagrangian, rules
from hypothesis import given, settings
from hypothesis import strategies as st
from lagrangians import build
from machines import run_on_machines

import gbm_constrained as gc
from gbm_constrained.data.cells import to_host
from gbm_constrained.data.exact_sums import Machine
from gbm_constrained.decision.search import ShiftSearch
from gbm_constrained.evaluation.audit import measure_rows
from gbm_constrained.statistics.counts import CellCounts, functionals_of
from gbm_constrained.statistics.sampled_intervals import ScoredDecisions

CLASS_COUNTS = [2, 3]
PROXIES = ["auto", "logistic", "sigmoid"]
EXACT = {"rtol": 1e-12, "atol": 1e-12}


def repeat(amount, *arrays):
    return [np.repeat(x, amount, axis=0) for x in arrays]


def value_and_gradient(lag, margin, multipliers):
    """Values of the constraints, and what they add to the gradient and the Hessian of rows."""
    point = lag.at(margin)
    values = lag.constraints.rates(point.statistics())
    gradient, hessian = (np.array(x, copy=True) for x in point.gradient(multipliers))
    return values, gradient, hessian


@pytest.mark.parametrize("proxy", PROXIES)
@pytest.mark.parametrize("n_classes", CLASS_COUNTS)
def test_whole_amounts_are_repeated_rows(n_classes, proxy):
    """The gradient of the constraints at a row is that at all of its copies together."""
    y, margin, amount, group = draw(n_classes)
    columns = {"amount": amount, "group": group}
    lag = lagrangian(rules(n_classes, "amount"), y, columns, n_classes=n_classes, proxy=proxy)
    y_all, margin_all, group_all = repeat(amount, y, margin, group)
    copies = lagrangian(
        rules(n_classes, None), y_all, {"group": group_all}, n_classes=n_classes, proxy=proxy
    )
    m = len(lag.constraints)
    multipliers = np.random.default_rng(1).gamma(1.0, size=m)
    # The objectives differ: that of the copies counts a row as often as it is there.
    nothing = np.zeros(m)
    found = value_and_gradient(lag, margin, multipliers)
    bare = value_and_gradient(lag, margin, nothing)
    expected = value_and_gradient(copies, margin_all, multipliers)
    bare_copies = value_and_gradient(copies, margin_all, nothing)
    np.testing.assert_allclose(found[0], expected[0], **EXACT)
    of_row = np.repeat(np.arange(y.size), amount)
    for k in (1, 2):
        added = (found[k] - bare[k]).reshape(y.size, -1) / lag.total_weight
        of_copies = (expected[k] - bare_copies[k]).reshape(y_all.size, -1) / copies.total_weight
        total = np.zeros_like(added)
        np.add.at(total, of_row, of_copies)
        np.testing.assert_allclose(added, total, **EXACT)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_classes", CLASS_COUNTS)
def test_amounts_of_one_change_nothing(n_classes, weighted):
    y, margin, _, group = draw(n_classes)
    weight = np.random.default_rng(2).gamma(2.0, size=y.size) if weighted else None
    columns = {"amount": np.ones(y.size), "group": group}
    both = [
        lagrangian(rules(n_classes, name), y, columns, weight, n_classes)
        for name in ("amount", None)
    ]
    multipliers = np.random.default_rng(3).gamma(1.0, size=len(both[0].constraints))
    for found, expected in zip(
        *(value_and_gradient(lag, margin, multipliers) for lag in both), strict=True
    ):
        np.testing.assert_allclose(found, expected, **EXACT)
    ones, plain = (lag.constants for lag in both)
    np.testing.assert_allclose(ones.lipschitz()[0], plain.lipschitz()[0], **EXACT)


@pytest.mark.parametrize("n_classes", CLASS_COUNTS)
def test_constraints_on_amounts_are_lipschitz_in_the_bregman_distance(n_classes):
    """|g(F) - g(F')| <= L_g sqrt(2 D), and for all losses with the norm of their matrix."""
    y, _, amount, group = draw(n_classes, n=300)
    amount = amount * np.random.default_rng(4).gamma(0.5, size=y.size)
    losses = [gc.log_loss(on=gc.label(k), weight="amount") <= 1 for k in range(n_classes)]
    losses += [gc.log_loss(on={"group": 1}, weight="amount") <= 1]
    lag = lagrangian(losses, y, {"amount": amount, "group": group}, n_classes=n_classes)
    own, together = lag.constants.lipschitz()
    rng = np.random.default_rng(5)
    shape = (300,) if n_classes == 2 else (300, n_classes)
    for scale in np.geomspace(0.01, 100, 50):
        start, step = 3 * rng.normal(size=shape), scale * rng.normal(size=shape)
        before = lag.constraints.rates(lag.at(start).statistics())
        after = lag.constraints.rates(lag.at(start + step).statistics())
        length = np.sqrt(2 * lag.bregman(start + step, start))
        assert (np.abs(after - before) <= own * length * (1 + 1e-12)).all()
        assert np.linalg.norm((after - before) / own) <= together * length * (1 + 1e-12)


def test_the_lipschitz_constant_of_a_loss_of_amounts_is_sharp():
    """Hopeless rows of one class, moved along their gradients, change the loss by L_g sqrt(2 D).

    The slope of a row with score s is 1 - p(s), nearly one, and the direction its amount.
    """
    y, _, amount, _ = draw(2, n=100)
    loss = gc.log_loss(on=gc.label(1), weight="amount") <= 1
    lag = lagrangian([loss], y, {"amount": amount})
    start = np.full(y.size, -60.0)
    step = np.where(y == 1, 0.1 * amount, 0.0)
    change = np.diff(
        [lag.constraints.rates(lag.at(at).statistics())[0] for at in (start, start + step)]
    )
    length = np.sqrt(2 * lag.bregman(start + step, start))
    assert abs(change[0]) == pytest.approx(lag.constants.lipschitz()[0][0] * length, rel=1e-9)


@given(seed=st.integers(0, 2**16), n_classes=st.sampled_from(CLASS_COUNTS))
@settings(derandomize=True, deadline=None, max_examples=8)
def test_values_are_weighted_means_by_weight_times_amount(seed, n_classes):
    """A brute-force sum over rows, of decisions and of counts of decisions."""
    y, margin, amount, group = draw(n_classes, seed=seed)
    rng = np.random.default_rng(seed)
    weight, amount = rng.gamma(2.0, size=y.size), amount * rng.gamma(1.0, size=y.size)
    constraints = [
        gc.error_rate(weight="amount") <= 0.2,
        gc.class_error(1, on={"group": 1}, weight="amount") <= 0.1,
        gc.class_error(0) <= 0.1,
    ]
    columns = {"amount": amount, "group": group}
    lag = lagrangian(constraints, y, columns, weight, n_classes)
    decided = (margin > 0).astype(int) if n_classes == 2 else margin.argmax(axis=1)
    wrong, w = decided != y, weight * amount
    inside = (y == 1) & (group == 1)
    expected = [
        (w @ wrong) / w.sum(),
        (w * inside) @ wrong / (w * inside).sum(),
        (weight * (y == 0)) @ wrong / (weight * (y == 0)).sum(),
    ]
    np.testing.assert_allclose(
        lag.constraints.rates(lag.at(margin).statistics()), expected, **EXACT
    )
    counts = CellCounts.of(lag.cells, decided)
    np.testing.assert_allclose(functionals_of(lag.constraints, counts), expected, **EXACT)
    view = lag.cells.views[lag.cells.view_of[0]].cells
    totals = [float(x[view].sum()) for x in (counts.weight, counts.square, counts.count)]
    np.testing.assert_allclose(totals, [w.sum(), (w**2).sum(), (w > 0).sum()], **EXACT)


def test_the_first_view_has_no_amounts_and_each_column_a_view_of_its_own():
    y, _, amount, group = draw()
    constraints = [
        gc.fnr(weight="amount") <= 0.1,
        gc.fpr() <= 0.1,
        gc.fpr(weight="other") <= 0.1,
        gc.fpr(weight="amount") <= 0.1,
    ]
    columns = {"amount": amount, "other": 2 * amount, "group": group}
    cells, _ = compile_rows(constraints, y, columns)
    assert cells.view_of == (1, 0, 2, 1)
    assert cells.views[0].amount is None
    np.testing.assert_array_equal(cells.views[2].amount, 2 * amount)
    part = cells.take(np.arange(0, y.size, 2))
    np.testing.assert_array_equal(part.views[1].amount, amount[::2])
    assert part.weight[part.views[1].cells].sum() == amount[::2].sum()


@pytest.mark.parametrize(
    ("amounts", "options", "message"),
    [
        ([1.0, np.nan, np.nan], {}, "2 of 3 rows are missing or no numbers, the first in row 1"),
        ([1.0, -2.0, 3.0], {}, "1 of 3 rows are negative, the first in row 1"),
        ([1.0, np.inf, 3.0], {}, "1 of 3 rows are infinite"),
        ([1.0, 20.0, 30.0], {"cap": 10}, "2 of 3 rows are above cap=10, the first in row 1"),
        (["1", "many", "3"], {}, "1 of 3 rows are missing or no numbers"),
    ],
)
def test_amounts_that_no_rate_can_count_are_refused(amounts, options, message):
    with pytest.raises(ValueError, match=message):
        compile_rows(
            [gc.fnr(weight="amount", **options) <= 0.1],
            np.array([0, 1, 1]),
            {"amount": np.array(amounts)},
        )


def test_an_unknown_column_and_an_array_of_another_length_are_refused():
    y = np.array([0, 1, 1])
    with pytest.raises(ValueError, match="column 'value' is neither in sensitive_features"):
        compile_rows([gc.fnr(weight="value") <= 0.1], y, {})
    with pytest.raises(ValueError, match="given 2 amounts, but the training data have 3 rows"):
        compile_rows([gc.fnr(weight=[1.0, 2.0]) <= 0.1], y, {})


def test_rows_that_count_for_nothing_leave_a_rate_undefined():
    with pytest.raises(ValueError, match="whose total weight is zero"):
        compile_rows([gc.fnr(weight=[1.0, 0.0, 0.0]) <= 0.1], np.array([0, 1, 1]), {})


def test_rows_on_several_machines_are_refused_before_training():
    y, _, amount, _ = draw()

    def work(communicator):
        machine = Machine(communicator, np.arange(y.size))
        with pytest.raises(ValueError, match="rows are on several machines"):
            lagrangian_on(machine)

    def lagrangian_on(machine):
        build(y, [gc.fnr(weight="amount") <= 0.1], columns={"amount": amount}, machine=machine)

    run_on_machines(work, 2)


@pytest.mark.parametrize("n_classes", CLASS_COUNTS)
def test_a_card_counts_the_same_amounts(n_classes):
    """Arrays that only the module of the card may touch stand for its memory."""
    y, margin, amount, group = draw(n_classes)
    columns = {"amount": amount, "group": group}
    multipliers = np.random.default_rng(6).gamma(1.0, size=20)
    found = []
    for xp in (np, device_arrays):
        lag = lagrangian(
            rules(n_classes, "amount"), y, columns, n_classes=n_classes, array_module=xp
        )
        point = lag.at(xp.asarray(margin))
        gradient = point.gradient(multipliers[: len(lag.constraints)])
        values = lag.constraints.rates(point.statistics())
        found.append([values, *map(to_host, gradient), lag.constants.slopes()])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, **EXACT)


PER_AMOUNT = {2: [[0, 0.5], [2, -1]], 3: [[0, 1, 2], [3, -1, 0.5], [0, 4, 0]]}
PER_ROW = {2: [[0, 3], [1, 3]], 3: [[0, 1, 1], [0, 1, 1], [0, 1, 1]]}


def costs_of_rows(n_classes, y, amount, decided):
    by_amount, by_row = np.array(PER_AMOUNT[n_classes]), np.array(PER_ROW[n_classes])
    return amount * by_amount[y, decided] + by_row[y, decided]


def rule_of(n_classes, on=None, bound=1e3):
    per_amount = gc.cost(PER_AMOUNT[n_classes], weight="amount", on=on)
    return per_amount + gc.cost(PER_ROW[n_classes], on=on) <= bound


def decide(margin):
    return (margin > 0).astype(int) if margin.ndim == 1 else margin.argmax(axis=1)


@given(seed=st.integers(0, 2**16), n_classes=st.sampled_from([2, 3]))
@settings(derandomize=True, deadline=None, max_examples=8)
def test_values_are_means_of_the_costs_of_rows(seed, n_classes):
    y, margin, amount, group = draw(n_classes, seed=seed)
    rng = np.random.default_rng(seed)
    weight, amount = rng.gamma(2.0, size=y.size), amount * rng.gamma(1.0, size=y.size)
    rules = [
        rule_of(n_classes),
        rule_of(n_classes, on={"group": 1}),
        gc.each(rule_of(n_classes).expression, by="group", min_group_size=1) <= 1e3,
        gc.cost(PER_ROW[n_classes]) <= 1,
        gc.class_error(1) <= 0.1,
    ]
    columns = {"amount": amount, "group": group}
    lag = lagrangian(rules, y, columns, weight, n_classes)
    decided = decide(margin)
    cost = costs_of_rows(n_classes, y, amount, decided)
    of_group = [np.average(cost[group == g], weights=weight[group == g]) for g in (0, 1)]
    plain = costs_of_rows(n_classes, y, 0.0, decided)
    wrong = (decided != y)[y == 1]
    expected = [
        np.average(cost, weights=weight), of_group[1], *of_group,
        np.average(plain, weights=weight), np.average(wrong, weights=weight[y == 1]),
    ]  # fmt: skip
    statistics = lag.at(margin).statistics()
    np.testing.assert_allclose(lag.constraints.functionals(statistics), expected, **EXACT)
    counts = CellCounts.of(lag.cells, decided)
    np.testing.assert_allclose(functionals_of(lag.constraints, counts), expected, **EXACT)


@pytest.mark.parametrize("proxy", ["logistic", "sigmoid"])
def test_whole_amounts_of_costs_are_repeated_rows(proxy):
    """A cost per amount is the sum over the copies of a row, divided by the rows themselves."""
    y, margin, amount, _ = draw(2)
    amount = np.maximum(amount, 1)
    lag = lagrangian([gc.cost(PER_AMOUNT[2], weight="amount") <= 2], y, {"amount": amount},
                     proxy=proxy)  # fmt: skip
    copies = np.repeat(np.arange(y.size), amount)
    repeated = lagrangian([gc.cost(PER_AMOUNT[2]) <= 2], y[copies], {}, proxy=proxy)
    values, added = [], []
    for one, at in ((lag, margin), (repeated, margin[copies])):
        point = one.at(at)
        values.append(one.constraints.functionals(point.statistics())[0])
        gradients = [np.array(point.gradient(np.array([m]))[0], copy=True) for m in (0.0, 2.0)]
        # Of the cost itself: multipliers are of rows that are scaled by their units.
        added.append((gradients[1] - gradients[0]) * one.constraints.unit / one.total_weight)
    per_row = amount.mean()
    assert values[0] == pytest.approx(values[1] * per_row, rel=1e-12)
    of_copies = np.bincount(copies, added[1])
    np.testing.assert_allclose(added[0], of_copies * per_row, **EXACT)


def test_rows_of_costs_do_not_depend_on_the_unit():
    y, margin, amount, _ = draw(2)
    found = []
    for unit in (1.0, 100.0):
        rule = unit * rule_of(2).expression <= 1.5 * unit
        lag = lagrangian([rule], y, {"amount": amount})
        point = lag.at(margin)
        gradient = np.array(point.gradient(np.ones(1))[0], copy=True)
        violations = lag.constraints.violations(point.statistics())
        found.append([violations, gradient, lag.constraints.unit / unit])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, **EXACT)


@given(seed=st.integers(0, 2**16), bound=st.sampled_from([0.8, 1.5, 3.0]))
@settings(derandomize=True, deadline=None, max_examples=10)
def test_the_threshold_has_the_fewest_errors_of_all_that_cost_so_little(seed, bound):
    y, margin, amount, _ = draw(seed=seed)
    cells, compiled = compile_rows([rule_of(2, bound=bound)], y, {"amount": amount})
    found = ShiftSearch(margin, cells, compiled).find()
    tried = []
    for threshold in [-np.inf, *np.sort(margin)]:
        decided = (margin > threshold).astype(int)
        cost = costs_of_rows(2, y, amount, decided).mean()
        tried.append((max(cost - bound, 0.0), np.mean(decided != y)))
    least, errors = min(tried)
    assert found.violation == pytest.approx(least / compiled.unit[0], abs=1e-12)
    assert found.error == pytest.approx(errors, abs=1e-12)


def test_intervals_have_the_empirical_variance_of_costs():
    y, margin, amount, _ = draw(2, n=400)
    weight = np.random.default_rng(1).gamma(2.0, size=y.size)
    cells, compiled = compile_rows([rule_of(2)], y, {"amount": amount}, weight)
    decided = decide(margin)
    measured = measure_rows(cells, compiled, ScoredDecisions(decided))
    cost = costs_of_rows(2, y, amount, decided)
    mean = np.average(cost, weights=weight)
    error = np.sqrt((weight**2) @ (cost - mean) ** 2) / weight.sum()
    assert measured.values[0] == pytest.approx(mean, rel=1e-12)
    expected = mean + 1.959963984540054 * error * np.array([-1.0, 1.0])
    np.testing.assert_allclose(measured.sampled.constraints[0], expected, rtol=1e-9)
    np.testing.assert_allclose(measured.sampled.functionals[0], expected, rtol=1e-9)


@pytest.mark.slow
def test_intervals_cover_the_expected_cost_of_the_population():
    """Amounts are log-normal, and every fifth positive is missed."""
    rng, n, covered = np.random.default_rng(2), 400, 0
    truth = 0.5 * 0.2 * 2.0 * np.exp(0.5) + 0.5 * 0.8 * (3.0 - np.exp(0.5)) + 0.5 * 1.0 * 0.2
    for _ in range(200):
        y, amount = rng.integers(0, 2, n), rng.lognormal(size=n)
        decided = np.where(rng.random(n) < 0.2, 0, y)
        cells, compiled = compile_rows([rule_of(2)], y, {"amount": amount})
        measured = measure_rows(cells, compiled, ScoredDecisions(decided))
        low, high = measured.sampled.constraints[0]
        covered += low <= truth <= high
    assert covered >= 0.95 * 200 - 3 * np.sqrt(200 * 0.95 * 0.05)


def test_a_matrix_of_other_classes_is_refused():
    y, _, amount, _ = draw(3)
    with pytest.raises(ValueError, match=r"has 2 rows and y has 3 classes, \[0, 1, 2\]"):
        compile_rows([rule_of(2)], y, {"amount": amount}, n_classes=3)
