"""p-values of constraints on pair rates, and the rows that certificates take."""

from __future__ import annotations

from math import exp, inf, log, sqrt

import numpy as np
import pytest
from scipy.stats import norm

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.pairs import PairRates, PairRows, pair_table
from gbm_constrained.statistics.pairs import (
    cell_sizes,
    pair_deviation,
    pair_p_value,
    pair_p_values,
    rows_to_certify,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*min_group_size=30")
DELTA = 0.1


class Sample:
    """Rows of two classes in groups of given sizes, and constraints on them."""

    def __init__(self, counts, *constraints, weight=None):
        counts = np.asarray(counts)  # Of shape (n_groups, 2).
        self.g, self.y = (
            np.repeat(of_cell, counts.ravel())
            for of_cell in np.indices(counts.shape).reshape(2, -1)
        )
        n = self.y.size
        rows = Rows(self.y, np.arange(2), weight, {"g": self.g}, [np.zeros((n, 1))])
        self.cells, self.compiled = compile_constraints(constraints, rows)
        self.rows = PairRows(self.compiled, self.cells, weight, 1.0)

    def p(self, scores):
        tables = self.rows.tables(scores)
        functionals = self.compiled.tables["pairs"] @ tables + self.compiled.constant
        return self.at(functionals)

    def at(self, functionals):
        return pair_p_values(self.compiled, self.cells, np.asarray(functionals))

    def needed(self, delta=DELTA):
        return rows_to_certify(self.compiled, self.cells, delta)


def test_one_rate_has_the_p_value_of_hoeffding():
    sample = Sample([[50, 20]], gc.auc() >= 0.5, gc.auc() <= 0.9)
    at_least, at_most = sample.at([0.8, 0.8])
    assert at_least == pytest.approx(exp(-2 * 20 * 0.3**2), rel=1e-9)
    assert at_most == pytest.approx(exp(-2 * 20 * 0.1**2), rel=1e-9)
    assert sample.at([0.4, 0.95]).tolist() == [1.0, 1.0]


def test_the_p_value_is_the_delta_at_which_the_deviation_fits():
    rng = np.random.default_rng(0)
    each = np.eye(4, dtype=bool)
    rates = PairRates(each[[1, 3]], each[[0, 2]])
    for _ in range(200):
        sizes = cell_sizes(np.repeat(np.arange(4), rng.integers(2, 60, 4)), None, 4)
        a, room = rng.choice([-1.5, -0.5, 1.0, 2.0], size=2), rng.uniform(0.05, 0.8)
        p = pair_p_value(sizes, rates, a, room)
        assert 0.0 < p < 1.0
        assert pair_deviation(sizes, rates, a, p) == pytest.approx(room, rel=1e-9)
    assert pair_p_value(sizes, rates, np.zeros(2), 0.1) == 0.0
    assert pair_p_value(sizes, rates, np.ones(2), 0.0) == 1.0


def test_a_gap_has_the_p_value_of_the_pair_that_is_furthest_apart():
    sample = Sample([[30, 40], [50, 20], [80, 90]], gc.gap(gc.auc(), by="g") <= 0.4)
    values = np.array([0.9, 0.7, 0.75])
    changes = [1 / 30 + 1 / 40, 1 / 50 + 1 / 20, 1 / 80 + 1 / 90]
    smaller = [30, 20, 80]
    worst = 0.0
    for i in range(3):
        for j in range(3):
            if i != j:
                room = 0.4 - (values[i] - values[j])
                together = exp(-2 * room**2 / (changes[i] + changes[j]))
                both = sqrt(0.5 / smaller[i]) + sqrt(0.5 / smaller[j])
                worst = max(worst, min(together, 2 * exp(-((room / both) ** 2)), 1.0))
    assert sample.at(values)[0] == pytest.approx(worst, rel=1e-9)


def test_constraints_that_tell_nothing_of_pairs_have_no_p_value_here():
    sample = Sample([[30, 40]], gc.fpr() <= 0.1, gc.auc() >= 0.0, gc.auc() >= 0.5)
    assert sample.at([0.3, 0.1, np.nan]).tolist() == [0.0, 0.0, 1.0]
    assert sample.needed().tolist()[:2] == [0.0, 0.0]


@pytest.mark.parametrize("weighted", [False, True])
def test_doubled_weights_change_nothing(weighted):
    rng = np.random.default_rng(1)
    weight = rng.uniform(0.5, 2.0, 140) if weighted else np.ones(140)
    constraint = gc.gap(gc.mean_rank(), by="g") <= 0.9
    scores = rng.normal(size=140)
    once, twice = (
        Sample([[30, 40], [50, 20]], constraint, weight=k * weight).p(scores) for k in (1.0, 2.0)
    )
    np.testing.assert_allclose(once, twice, rtol=1e-9)
    assert 0.0 < once[0] < 1.0


@pytest.mark.parametrize(
    ("constraint", "best"),
    [
        (gc.auc() >= 0.8, 1.0),
        (gc.auc() <= 0.2, 0.0),
        (gc.each(gc.auc(), by="g") >= 0.8, [1.0, 1.0]),
        (gc.gap(gc.auc(), by="g") <= 0.3, [0.5, 0.5]),
        (gc.auc(on={"g": 0}) + gc.auc(on={"g": 1}) >= 1.6, 2.0),
    ],
    ids=str,
)
def test_as_many_rows_as_needed_certify_the_best_scores_and_fewer_do_not(constraint, best):
    counts = np.array([[15, 6], [25, 10]])
    needed = Sample(counts, constraint).needed()[0]
    assert counts.sum() < needed < inf
    for share, is_enough in ((1.1, True), (0.9, False)):  # Whole rows change the shares a little.
        times = share * needed / counts.sum()
        grown = Sample(np.round(times * counts).astype(int), constraint)
        p = grown.at(np.ravel(best))[0]
        assert (p <= DELTA) == is_enough
        assert (grown.needed()[0] <= grown.y.size) == is_enough


def test_no_number_of_rows_certifies_what_leaves_no_room():
    sample = Sample([[30, 12], [50, 20]], gc.auc() >= 1.0, gc.gap(gc.auc(), by="g") <= 0.0)
    assert sample.needed().tolist() == [inf, inf]


def test_rows_needed_follow_the_deviation_of_one_rate():
    needed = Sample([[200, 25]], gc.auc() >= 0.9).needed()[0]
    smaller = log(1 / DELTA) / (2 * 0.1**2)
    assert needed == pytest.approx(225 / 25 * smaller, abs=1)


@pytest.mark.parametrize(
    "rules",
    [
        [lambda truth: gc.auc() >= truth["all"]],
        [lambda truth: gc.gap(gc.auc(), by="g") <= truth["gap"]],
        [lambda truth: gc.each(gc.auc(), by="g") >= truth["least"], lambda _: gc.auc() >= 0.4],
    ],
    ids=["one rate", "gap", "each beside another"],
)
def test_false_certificates_are_rare(rules):
    """The bound is just out of reach of the truth, so that every certificate is false."""
    counts, location = np.array([[150, 90], [90, 50]]), np.array([[0.0, 1.4], [0.2, 0.7]])
    of_groups = norm.cdf(np.diff(location, axis=1)[:, 0] / sqrt(2.0))
    above = norm.cdf((location[:, 1][:, None] - location[:, 0]) / sqrt(2.0))
    share = counts / counts.sum(axis=0)
    truth = {
        "all": share[:, 1] @ above @ share[:, 0] + 1e-9,
        "gap": np.ptp(of_groups) - 1e-9,
        "least": of_groups.min() + 1e-9,
    }
    sample = Sample(counts, *(rule(truth) for rule in rules))
    rng, means = np.random.default_rng(2), location[sample.g, sample.y]
    false = sum(sample.p(means + rng.normal(size=means.size)).max() <= DELTA for _ in range(1000))
    assert false <= 1000 * DELTA


EACH = np.eye(4, dtype=bool)
# Cells are (group, label) in the order of (0, 0), (0, 1), (1, 0), (1, 1).
WITHIN = PairRates(EACH[[1, 3]], EACH[[0, 2]])
SUBGROUP = PairRates(
    np.array([EACH[1] | EACH[3], EACH[3]]), np.array([EACH[2], EACH[0] | EACH[2]])
)
MEAN_RANK = PairRates(np.array([EACH[0] | EACH[1], EACH[2] | EACH[3]]), np.ones((2, 4), bool))
GAP = np.array([1.0, -1.0])


def sizes_of(counts, weight=None):
    cells = np.repeat(np.arange(4), counts)
    return cell_sizes(cells, weight, 4)


def test_one_rate_has_the_deviation_of_hoeffding():
    sizes = sizes_of([50, 20, 30, 11])
    deviation = pair_deviation(sizes, WITHIN, np.array([1.0, 0.0]), DELTA)
    assert deviation == pytest.approx(sqrt(log(1 / DELTA) / (2 * 20)), rel=1e-12)
    scaled = pair_deviation(sizes, WITHIN, np.array([-3.0, 0.0]), DELTA)
    assert scaled == pytest.approx(3 * deviation, rel=1e-12)
    doubled = sizes_of([50, 20, 30, 11], np.full(111, 2.0))
    assert pair_deviation(doubled, WITHIN, np.array([1.0, 0.0]), DELTA) == pytest.approx(deviation)


def test_differences_take_the_smaller_of_both_deviations():
    few, alike = sizes_of([500, 20, 300, 11]), sizes_of([20, 20, 20, 20])
    changes = sqrt(log(1 / DELTA) / 2 * (1 / 500 + 1 / 20 + 1 / 300 + 1 / 11))
    assert pair_deviation(few, WITHIN, GAP, DELTA) == pytest.approx(changes, rel=1e-12)
    strict = 1e-6
    split = 2 * sqrt(log(2 / strict) / (2 * 20))
    changes = sqrt(log(1 / strict) / 2 * 4 / 20)
    assert pair_deviation(alike, WITHIN, GAP, strict) == pytest.approx(min(split, changes))
    one_small = np.array([1.0, -1e-3])
    split = (1 + 1e-3) * sqrt(log(2 / DELTA) / 40)
    assert pair_deviation(alike, WITHIN, one_small, DELTA) == pytest.approx(split, rel=1e-12)


def test_weights_and_overlaps_have_bounded_differences():
    counts = [40, 20, 30, 10]
    rng = np.random.default_rng(0)
    cells, weight = np.repeat(np.arange(4), counts), rng.uniform(0.5, 2.0, 100)
    for rates in (WITHIN, SUBGROUP, MEAN_RANK):
        change = np.zeros(100)
        for inside in (*rates.first, *rates.second):
            change += weight * inside[cells] / weight[inside[cells]].sum()
        expected = sqrt(log(1 / DELTA) / 2 * (change**2).sum())
        found = pair_deviation(sizes_of(counts, weight), rates, GAP, DELTA)
        assert found == pytest.approx(expected, rel=1e-12)


def test_no_row_changes_a_sum_by_more_than_its_bound():
    counts = np.array([8, 5, 6, 4])
    cells, n = np.repeat(np.arange(4), counts), counts.sum()
    rng = np.random.default_rng(1)
    weight = rng.uniform(0.5, 2.0, n)
    scores = rng.normal(size=n)
    of_cells = np.bincount(cells, weight)
    for rates in (WITHIN, SUBGROUP, MEAN_RANK):
        change = np.zeros(n)
        for inside in (*rates.first, *rates.second):
            change += weight * inside[cells] / weight[inside[cells]].sum()
        start = GAP @ rates.values(pair_table(scores, cells, weight, 4), of_cells)
        for i in range(n):
            for moved in (-9.0, 9.0):
                other = scores.copy()
                other[i] = moved
                value = GAP @ rates.values(pair_table(other, cells, weight, 4), of_cells)
                assert abs(value - start) <= change[i] + 1e-12


@pytest.mark.parametrize(
    "rates", [WITHIN, SUBGROUP, MEAN_RANK], ids=["within", "subgroup", "mean rank"]
)
def test_false_certificates_of_differences_are_rare(rates):
    """The bound lies just below the truth, so that every certificate is false."""
    rng = np.random.default_rng(2)
    location, share = np.array([0.0, 1.2, -0.3, 0.5]), np.array([0.45, 0.25, 0.2, 0.1])
    truth = norm.cdf((location[:, None] - location) / sqrt(2.0))
    gap = abs(GAP @ rates.values(truth, share))
    false = 0
    for _ in range(1000):
        cells = rng.choice(4, 400, p=share)
        scores = location[cells] + rng.normal(size=400)
        sizes = cell_sizes(cells, None, 4)
        value = GAP @ rates.values(pair_table(scores, cells, None, 4), sizes.weight[:, 0])
        deviation = pair_deviation(sizes, rates, GAP, DELTA)
        false += max(value, -value) + deviation <= gap * (1 - 1e-9)
    assert false <= 1000 * DELTA


def test_hoeffding_is_nearly_reached_by_pairs_that_agree():
    """Few positives that are all above or all below: a pair rate is then a mean of coin throws."""
    rng = np.random.default_rng(3)
    m, false = 30, 0
    sizes = cell_sizes(np.repeat([0, 1], [m, 3000]), None, 2)
    one = PairRates(np.array([[True, False]]), np.array([[False, True]]))
    deviation = pair_deviation(sizes, one, np.ones(1), DELTA)
    for _ in range(1000):
        scores = np.concatenate([rng.choice([-1.0, 1.0], m), np.zeros(3000)])
        cells = np.repeat([0, 1], [m, 3000])
        value = one.values(pair_table(scores, cells, None, 2), sizes.weight[:, 0])[0]
        false += value + deviation < 0.5
    assert 20 <= false <= 1000 * DELTA


def test_empty_sets_are_never_certified():
    sizes = sizes_of([50, 20, 30, 0])
    assert pair_deviation(sizes, WITHIN, GAP, DELTA) == inf
    assert pair_deviation(sizes, WITHIN, np.array([1.0, 0.0]), DELTA) < 1.0
    assert pair_deviation(sizes, WITHIN, np.zeros(2), DELTA) == 0.0
