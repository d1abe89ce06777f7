"""Compiled constraints as Problem 1, against counting decisions row by row."""

from __future__ import annotations

import numpy as np
import pytest
from references import Problem

import gbm_constrained as gc
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.solvers.dataset_rates import rate_problem_of

N_DECISIONS = 1000


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
    tp, fp, fn = c.sum(y & d), c.sum(~y & d), c.sum(y & ~d)
    by_region = [c.share(wrong, c.region == r) for r in ("a", "b", "c")]
    by_sex_of_positives = by_sex(c, y)
    churn, wins = c.share(changed, every), c.share(changed & (d == y), every)
    losses = c.share(changed & (old == y), every)
    return [
        (gc.fpr() <= 0.3, c.selected(~y) - 0.3),
        (gc.recall() >= 0.6, 0.6 - c.selected(y)),
        (gc.selection_rate() <= 0.4, c.selected(every) - 0.4),
        (gc.selection_rate() >= 0.2, 0.2 - c.selected(every)),
        (gc.error_rate() <= 0.3, c.share(wrong, every) - 0.3),
        (gc.precision() >= 0.7, 0.7 * (tp + fp) - tp),
        (gc.f1() >= 0.7, 0.7 * (2 * tp + fp + fn) - 2 * tp),
        (gc.churn(to="old") <= 0.2, churn - 0.2),
        (gc.wins(over="old") >= 0.1, 0.1 - wins),
        (gc.losses(to="old") <= 0.1, losses - 0.1),
        (gc.each(gc.error_rate(), by="region") <= 0.3, max(by_region) - 0.3),
        (gc.gap(gc.tpr(), by="sex") <= 0.1, np.ptp(by_sex_of_positives) - 0.1),
        (
            gc.ratio(gc.selection_rate(), by="sex") >= 0.8,
            0.8 * max(by_sex(c, every)) - min(by_sex(c, every)),
        ),
        (
            gc.ratio(gc.tpr(), by="sex") >= 0.9,
            0.9 * max(by_sex_of_positives) - min(by_sex_of_positives),
        ),
        (gc.wins(over="old") / gc.losses(to="old") >= 1.2, 1.2 * losses - wins),
        (gc.wins(over="old") / gc.churn(to="old") >= 0.6, 0.6 * churn - wins),
        (gc.tpr(on={"sex": "F"}) >= 0.9, 0.9 - by_sex_of_positives[0]),
    ]


def rules_of(problem):
    return [rule for rule, _ in values_of(Counts(problem, problem.rng.random(problem.n) > 0.5))]


@pytest.mark.parametrize("position", range(17))
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
    assert len(rates) == len(compiled)


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
