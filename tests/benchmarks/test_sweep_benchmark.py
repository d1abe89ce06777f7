"""The sweep over random rules: its references, its draws, and small fits of each kind."""

import cvxpy as cp
import data_sets
import numpy as np
import pytest
import sweep
import sweep_rules
from sweep_rules import Case, Rule

RULES = {
    "gap": (Rule("fpr", "gap", 0.1),),
    "each": (Rule("tpr", "each", 0.7), Rule("error_rate", "each", 0.45)),
    "ratio": (Rule("selection_rate", "ratio", 0.9),),
    "several": (Rule("error_rate", "gap", 0.05), Rule("fpr", "all", 0.3), Rule("fnr", "gap", 0.2)),
    "amounts": (Rule("tpr", "gap", 0.05, amounts=True), Rule("fnr", "all", 0.3, amounts=True)),
}


def sample(seed, n=90, n_groups=3):
    rng = np.random.default_rng(seed)
    groups, scores = rng.integers(n_groups, size=n), rng.normal(size=n)
    y = (scores + 0.4 * groups + rng.normal(size=n) > 0.6).astype(int)
    return scores, Case(y, None, groups, rng.uniform(1.0, 3.0, size=n))


def best_mixture(rules, scores, case):
    """Accuracy by a programme of its own: the chance of each row to be decided for 1."""
    y, limits, chance = case.y, [], {}
    for g in np.unique(case.groups):
        own = np.flatnonzero(case.groups == g)
        at = np.append(np.sort(scores[own]), np.inf)
        share = cp.Variable(at.size, nonneg=True)
        limits.append(cp.sum(share) == 1)
        for i, row in zip(own, scores[own][:, None] >= at, strict=True):
            chance[i] = row.astype(float) @ share
    chance = cp.hstack([chance[i] for i in range(y.size)])
    wrong = cp.multiply(chance, 1 - y) + cp.multiply(1 - chance, y)
    events = {"fpr": chance, "tpr": chance, "selection_rate": chance, "fnr": 1 - chance}

    def rate(rule, rows):
        w = np.where(rows, case.amounts if rule.amounts else 1.0, 0.0)
        w *= {"fpr": y == 0, "tpr": y == 1, "fnr": y == 1}.get(rule.rate, y >= 0)
        return (w @ events.get(rule.rate, wrong)) / w.sum()

    for rule in rules:
        if rule.how == "all":
            limits.append(rate(rule, y >= 0) <= rule.bound)
            continue
        rates = [rate(rule, case.groups == g) for g in np.unique(case.groups)]
        for a in rates:
            if rule.how == "each":
                limits.append(rule.sign * a <= rule.sign * rule.bound)
            for b in rates if rule.how == "gap" else ():
                limits.append(a - b <= rule.bound)
            for b in rates if rule.how == "ratio" else ():
                limits.append(rule.bound * a <= b)
    problem = cp.Problem(cp.Minimize(cp.sum(wrong) / y.size), limits)
    problem.solve()
    return 1 - problem.value


@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
def test_the_reference_is_the_best_mixture_of_group_thresholds(rules, monkeypatch):
    monkeypatch.setattr(sweep_rules, "KNOWN", 1)
    scores, case = sample(0)
    found = sweep_rules.group_thresholds(rules, scores, case)
    assert found == pytest.approx(best_mixture(rules, scores, case), abs=1e-6)


def test_the_reference_asks_the_rules_of_large_groups_alone():
    scores, case = sample(1, n=600, n_groups=2)
    tiny = case._replace(groups=np.where(np.arange(600) < 20, 2, case.groups))
    rules = (Rule("selection_rate", "each", 0.0),)
    assert sweep_rules.group_thresholds(rules, scores, tiny) > np.mean(tiny.y == 0)
    assert sweep_rules.group_thresholds(rules, scores, case) == pytest.approx(np.mean(case.y == 0))


def test_rules_that_no_thresholds_meet_have_no_reference():
    scores, case = sample(0)
    rules = (Rule("fpr", "all", 0.0), Rule("fnr", "all", 0.0))
    assert np.isnan(sweep_rules.group_thresholds(rules, scores, case))
    assert np.isnan(sweep_rules.group_blind(rules, scores, case))


def test_group_shifts_are_those_of_least_error_within_the_gap():
    rng = np.random.default_rng(0)
    groups = np.repeat([0, 1, 2], [200, 300, 150])
    y = groups + rng.normal(size=650)
    case = Case(y, 0.5 * y + rng.normal(size=650), groups)
    for bound in (0.5, 5.0):
        shift = cp.Variable(3)
        moved = case.d + np.eye(3)[groups] @ shift
        means = [cp.sum(moved[groups == g]) / np.sum(groups == g) for g in range(3)]
        limits = [a - b <= bound for a in means for b in means]
        problem = cp.Problem(cp.Minimize(cp.sum_squares(y - moved)), limits)
        problem.solve()
        best = 1 - problem.value / np.sum((y - y.mean()) ** 2)
        found = sweep_rules.group_shifts((Rule("mean_prediction", "gap", bound),), case)
        assert found == pytest.approx(best, abs=1e-5)
    assert np.isnan(sweep_rules.group_shifts((Rule("squared", "each", 1.0),), case))


def test_prices_of_classes_are_chosen_on_training_rows_and_allow_no_larger_violation():
    rng = np.random.default_rng(6)

    def rows(n):
        y = rng.choice(3, n, p=[0.8, 0.15, 0.05])
        P = 1.2 * np.eye(3)[y] + rng.normal(size=(n, 3)) + np.log([0.8, 0.15, 0.05])
        P = np.exp(P) / np.exp(P).sum(axis=1, keepdims=True)
        return P, Case(y, np.argmax(P, axis=1), np.zeros(n, dtype=int))

    def recall(P, case, prices):
        d = np.argmax(P * prices, axis=1)
        return np.mean([np.mean(d[case.y == k] == k) for k in range(3)])

    train, test, prices = rows(3000), rows(3000), np.geomspace(1, 90, 40)
    grid = [np.array([1.0, a, b]) for a in prices for b in prices]
    on_train = max(recall(*train, prices) for prices in grid)
    found = sweep_rules.class_prices("balanced_accuracy", (), train, train, 0.0)
    assert found >= on_train - 0.01
    of_test = sweep_rules.class_prices("balanced_accuracy", (), train, test, 0.0)
    assert recall(*test, np.ones(3)) < of_test <= max(recall(*test, p) for p in grid) + 0.01
    # Plain decisions alone violate no more than they do, and nothing meets what none can.
    rule = (Rule("class_error:0", "all", 0.0),)
    plain = np.mean(test[1].d == test[1].y)
    over = sweep_rules.missed(rule, test[1]).known
    assert sweep_rules.class_prices("accuracy", rule, train, test, over) >= plain
    assert np.isnan(sweep_rules.class_prices("accuracy", rule, train, test, 0.0))


def test_violations_of_rules():
    y, groups = np.array([0, 0, 1, 1] * 2), np.repeat([0, 1], 4)
    case = Case(y, np.array([1, 0, 1, 1, 0, 0, 0, 1]), groups, np.arange(1.0, 9.0))
    expected = {
        Rule("fpr", "gap", 0.1): 0.4,
        Rule("fnr", "all", 0.2): 0.05,
        Rule("tpr", "each", 0.8): 0.3,
        Rule("selection_rate", "ratio", 0.8): 0.8 - 1 / 3,
        Rule("fnr", "each", 0.1, amounts=True): 7 / 15 - 0.1,
        Rule("class_error:1", "all", 0.1): 0.15,
    }
    for rule, value in expected.items():
        assert sweep_rules.missed([rule], case).all == pytest.approx(value), rule
    known = sweep_rules.missed([Rule("fpr", "gap", 0.1)], case).known
    assert np.isnan(known)
    scores = case._replace(d=np.array([0.1, 0.5, 0.4, 0.9, 0.3, 0.2, 0.2, 0.7]))
    assert sweep_rules.missed([Rule("auc", "each", 0.8)], scores).all == pytest.approx(0.175)


def test_plans_cover_the_language_and_halves_share_no_table():
    plans = [sweep.plan(number) for number in range(600)]
    assert plans == [sweep.plan(number) for number in range(600)]
    for name, values in (
        ("kind", sweep.KINDS),
        ("table", data_sets.TABLES),
        ("grouping", ("", *sweep.GROUPINGS)),
        ("library", (*sweep.BOOSTERS, sweep.LINEAR)),
        ("rounds", sweep.ROUNDS),
        ("rows", sweep.ROWS),
    ):
        assert {getattr(p, name) for p in plans} == set(values)
    halves = {p.half for p in plans if p.kind == "groups"}
    assert halves == {data_sets.TUNE, data_sets.REPORT}


def small(kind, tables):
    """Give the number of the first small draw of a kind on bundled tables."""
    for number in range(5000):
        p = sweep.plan(number)
        if p.kind == kind and p.table in tables and (p.rows, p.rounds) == (1500, 20):
            return number
    raise AssertionError(kind)


@pytest.mark.parametrize("kind", ["groups", "auc", "metrics", "regression", "amounts", "forward"])
def test_a_small_draw_of_each_kind_has_its_row(kind, monkeypatch):
    monkeypatch.setattr(sweep, "TEST_ROWS", 2000)
    number = small(kind, {"adult", "compas", "adult_hours", "credit"})
    case, again = sweep.draw(number), sweep.draw(number)
    assert case.rules == again.rules
    np.testing.assert_array_equal(case.train.X, again.train.X)
    row = sweep.described(case) | sweep.fit(case)
    assert set(row) <= {"draw", *sweep.FIGURES}
    assert not row["status"].startswith("refused")
    assert np.isfinite(row["returned"])
    assert row["cpu"] > 0.0
