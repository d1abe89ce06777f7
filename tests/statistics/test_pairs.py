"""Intervals and p-values of pair rates, against DeLong, by hand and by repetition."""

from __future__ import annotations

from itertools import permutations
from math import exp, inf, log, sqrt

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, logit, softmax
from scipy.stats import norm

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.pairs import PairRates, PairRows, pair_table
from gbm_constrained.statistics.intervals import level_of_all
from gbm_constrained.statistics.pairs import (
    PairIntervals,
    PairMoments,
    cell_sizes,
    estimate_pair_rates,
    log_odds_of_class,
    pair_constraint_interval,
    pair_deviation,
    pair_p_value,
    pair_p_values,
    rows_to_certify,
)

EACH = np.eye(4, dtype=bool)
# Cells are (group, label) in the order of (0, 0), (0, 1), (1, 0), (1, 1).
POSITIVE, NEGATIVE = EACH[1] | EACH[3], EACH[0] | EACH[2]
WITHIN = PairRates(EACH[[1, 3]], EACH[[0, 2]])
CROSS = PairRates(EACH[[1, 3]], EACH[[2, 0]])
SUBGROUP = PairRates(np.array([POSITIVE, EACH[3]]), np.array([EACH[2], NEGATIVE]))
MEAN_RANK = PairRates(np.array([EACH[0] | EACH[1], EACH[2] | EACH[3]]), np.ones((2, 4), bool))
GAP = np.array([[1.0, -1.0]])
AT_MOST = gc.gap(gc.selection_rate(), by="group") <= 0.1


def draw(seed, n=80, weighted=False):
    """Draw scores with ties, cells and weights."""
    rng = np.random.default_rng(seed)
    cells = np.concatenate([np.repeat(np.arange(4), 2), rng.integers(0, 4, n - 8)])
    scores = (rng.normal(size=n) + np.array([0.0, 1.0, 0.3, 0.8])[cells]).round(1)
    return scores, cells, rng.gamma(2.0, size=n) if weighted else None


def estimate(case, rates):
    return estimate_pair_rates(PairMoments(*case, 4), rates)


def all_pairs(scores):
    return (scores[:, None] > scores) + 0.5 * (scores[:, None] == scores)


def delong(scores, positive, *negatives):
    """Covariance of the AUCs of the same positives against disjoint sets of negatives."""
    wins = [all_pairs(scores)[np.ix_(positive, of_one)] for of_one in negatives]
    found = np.atleast_2d(np.cov([w.mean(axis=1) for w in wins])) / positive.size
    return found + np.diag([w.mean(axis=0).var(ddof=1) / w.shape[1] for w in wins])


def influences(case, first, second):
    """Part of each row in the error of a pair rate, with the factors n / (n - 1) of both sides."""
    scores, cells, weight = case
    weight = np.ones(scores.size) if weight is None else weight
    u, v = weight * first[cells], weight * second[cells]
    theta = u @ all_pairs(scores) @ v / u.sum() / v.sum()
    parts = (all_pairs(scores) @ v / v.sum() - theta, u @ all_pairs(scores) / u.sum() - theta)
    result = np.zeros(scores.size)
    for side, part in zip((u, v), parts, strict=True):
        n = side.sum() ** 2 / (side**2).sum()
        result += side / side.sum() * part * np.sqrt(n / (n - 1))
    return result


@pytest.mark.parametrize("seed", range(5))
def test_variance_of_one_auc_is_that_of_delong(seed):
    scores, cells, _ = case = draw(seed)
    rows = [np.flatnonzero(cells == c) for c in range(4)]
    found = estimate(case, WITHIN)
    expected = [delong(scores, rows[1], rows[0])[0, 0], delong(scores, rows[3], rows[2])[0, 0]]
    np.testing.assert_allclose(np.diag(found.covariance), expected, rtol=1e-12)
    assert abs(found.covariance[0, 1]) < 1e-15
    shared = estimate(case, PairRates(EACH[[1, 1]], EACH[[0, 2]]))
    np.testing.assert_allclose(
        shared.covariance, delong(scores, rows[1], rows[0], rows[2]), rtol=1e-11
    )
    # Doubled weights are a matter of units.
    doubled = estimate((scores, cells, np.full(cells.size, 2.0)), WITHIN)
    np.testing.assert_allclose(np.diag(doubled.covariance), expected, rtol=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("rates", [WITHIN, CROSS, SUBGROUP, MEAN_RANK])
def test_covariance_is_that_of_the_influences_of_rows(weighted, rates):
    case = draw(6, weighted=weighted)
    parts = np.array([influences(case, *sides) for sides in zip(*rates, strict=True)])
    found = estimate(case, rates)
    np.testing.assert_allclose(found.covariance, parts @ parts.T, rtol=1e-10, atol=1e-16)


def test_one_rate_has_the_logit_interval_with_degrees_of_satterthwaite():
    scores, cells, _ = case = draw(7)
    found = estimate(case, WITHIN)
    rows = [np.flatnonzero(cells == c) for c in range(4)]
    for k, (u, v) in enumerate(((rows[1], rows[0]), (rows[3], rows[2]))):
        wins = all_pairs(scores)[np.ix_(u, v)]
        parts = [wins.mean(axis=1).var(ddof=1) / u.size, wins.mean(axis=0).var(ddof=1) / v.size]
        degrees = sum(parts) ** 2 / (parts[0] ** 2 / (u.size - 1) + parts[1] ** 2 / (v.size - 1))
        auc = wins.mean()
        half = stats.t.isf(0.05, degrees) * np.sqrt(sum(parts)) / (auc * (1 - auc))
        expected = expit(logit(auc) + half * np.array([-1, 1]))
        np.testing.assert_allclose(found.intervals(0.9)[k], expected, rtol=1e-10)


@pytest.mark.parametrize("rates", [WITHIN, SUBGROUP])
def test_differences_are_combined_by_squares_with_their_correlation(rates):
    found = estimate(draw(8), rates)
    low, high = found.intervals().T
    f, deviation = found.rates, np.sqrt(np.diag(found.covariance))
    rho = found.covariance[0, 1] / deviation.prod()
    assert (abs(rho) > 0.2) == (rates is SUBGROUP)

    def size(x, y):
        return np.sqrt(x**2 + y**2 - 2 * rho * x * y)

    difference = f[0] - f[1]
    down, up = size(f[0] - low[0], high[1] - f[1]), size(high[0] - f[0], f[1] - low[1])
    sums = found.sums(np.array([[1.0, -1.0], [-2.0, 0.0]]), np.array([0.25, 1.0]))
    expected = [
        [0.25 + difference - down, 0.25 + difference + up],
        [1 - 2 * high[0], 1 - 2 * low[0]],
    ]
    np.testing.assert_allclose(sums.intervals(), expected, rtol=1e-10)
    np.testing.assert_allclose(sums.values, [0.25 + difference, 1 - 2 * f[0]], rtol=1e-12)


def test_pairs_in_one_order_leave_an_interval():
    scores = np.arange(40.0)
    cells = np.repeat([0, 1], [29, 11])
    found = estimate((scores, cells, None), PairRates(EACH[[1, 0]], EACH[[0, 1]]))
    np.testing.assert_array_equal(found.rates, [1.0, 0.0])
    lowest = 0.025 ** (1 / 11)  # Eleven pairs without a common row would all be in order.
    np.testing.assert_allclose(found.intervals(), [[lowest, 1.0], [0.0, 1 - lowest]], rtol=1e-12)


def test_one_row_on_a_side_says_nothing_and_none_has_no_interval():
    scores, cells = np.array([0.0, 1.0, 2.0, 0.5]), np.array([0, 0, 0, 1])
    found = estimate((scores, cells, None), PairRates(EACH[[1, 3]], EACH[[0, 0]]))
    np.testing.assert_array_equal(found.intervals(), [[0.0, 1.0], [np.nan, np.nan]])
    assert np.isnan(found.sums(GAP, np.zeros(1)).intervals()).all()


def test_sets_that_are_one_have_a_rate_of_one_half():
    everyone = np.ones((1, 4), bool)
    found = estimate(draw(9), PairRates(everyone, everyone))
    np.testing.assert_allclose(found.intervals(), [[0.5, 0.5]], atol=1e-7)


def test_empty_cells_and_rows_without_weight_change_nothing():
    scores, cells, weight = draw(10, weighted=True)
    found = estimate((scores, cells, weight), SUBGROUP)
    more = np.concatenate([scores, [9.0, -9.0]]), np.concatenate([cells, [3, 1]])
    other = estimate((*more, np.concatenate([weight, [0.0, 0.0]])), SUBGROUP)
    np.testing.assert_allclose(other.covariance, found.covariance, rtol=1e-12)
    np.testing.assert_allclose(other.intervals(), found.intervals(), rtol=1e-12)
    wider = PairMoments(scores, cells, weight, 6)
    first, second = (np.pad(inside, ((0, 0), (0, 2))) for inside in SUBGROUP)
    first[:, 5] = True
    padded = estimate_pair_rates(wider, PairRates(first, second))
    np.testing.assert_allclose(padded.covariance, found.covariance, rtol=1e-12)


def test_gap_of_two_groups_is_the_folded_difference():
    sums = estimate(draw(11), SUBGROUP).sums(np.eye(2), np.zeros(2))
    low, high = estimate(draw(11), SUBGROUP).sums(GAP, np.zeros(1)).intervals()[0]
    expected = [max(low, -high, 0.0), max(high, -low)]
    np.testing.assert_allclose(pair_constraint_interval(AT_MOST, sums), expected, rtol=1e-10)


def test_largest_gap_of_groups_takes_all_pairs_with_their_correlations():
    case = draw(12, n=200)
    rates = PairRates(EACH, np.ones((4, 4), bool))
    found = estimate(case, rates)
    interval = pair_constraint_interval(AT_MOST, found.sums(np.eye(4), np.zeros(4)))
    pairs = np.array([np.eye(4)[i] - np.eye(4)[j] for i, j in permutations(range(4), 2)])
    strict = level_of_all(AT_MOST, 4, 0.95)
    at = found.sums(pairs, np.zeros(12))
    expected = [max(at.intervals(strict)[:, 0].max(), 0.0), at.intervals()[:, 1].max()]
    np.testing.assert_allclose(interval, expected, rtol=1e-10)
    each = gc.each(gc.recall(), by="group") >= 0.8
    interval = pair_constraint_interval(each, found.sums(np.eye(4), np.zeros(4)))
    ends = found.intervals()[:, 0].min(), found.intervals(level_of_all(each, 4, 0.95))[:, 1].min()
    np.testing.assert_allclose(interval, ends, rtol=1e-10)


LOCATION, SHARE = np.array([0.0, 1.5, -0.4, 0.8]), np.array([0.49, 0.21, 0.264, 0.036])
TRUTH = stats.norm.cdf((LOCATION[:, None] - LOCATION) / np.sqrt(2.0))


@pytest.mark.parametrize("rates", [WITHIN, SUBGROUP], ids=["auc", "subgroup"])
def test_gaps_are_covered_as_often_as_the_level_says(rates):
    """About 11 rows are in the smallest cell; 500 draws have a standard error of 0.01."""
    rng = np.random.default_rng(13)
    truth = GAP @ rates.values(TRUTH, SHARE)
    inside = 0
    for _ in range(500):
        cells = rng.choice(4, 300, p=SHARE)
        case = LOCATION[cells] + rng.normal(size=300), cells, None
        low, high = estimate(case, rates).sums(GAP, np.zeros(1)).intervals()[0]
        inside += low <= truth <= high
    assert 0.92 <= inside / 500 <= 0.985


def test_weighted_rows_are_covered_as_often_as_the_level_says():
    """Positives are sampled at one third of their frequency in half of all cases, and weighted."""
    rng = np.random.default_rng(14)
    truth = WITHIN.values(TRUTH, SHARE)[0]
    inside = 0
    for _ in range(500):
        cells = rng.choice(4, 400, p=SHARE)
        scores = LOCATION[cells] + rng.normal(size=400)
        keep = (scores < LOCATION[cells]) | (rng.random(400) < 1 / 3)
        weight = np.where(scores < LOCATION[cells], 1.0, 3.0)
        low, high = estimate((scores[keep], cells[keep], weight[keep]), WITHIN).intervals()[0]
        inside += low <= truth <= high
    assert 0.92 <= inside / 500 <= 0.985


pytestmark = pytest.mark.filterwarnings("ignore:.*min_group_size=30")
# Cells are (group, label) in the order of (0, 0), (0, 1), (1, 0), (1, 1).
POSITIVE, NEGATIVE = EACH[1] | EACH[3], EACH[0] | EACH[2]
GAPS = {
    gc.auc: PairRates(EACH[[1, 3]], EACH[[0, 2]]),
    gc.cross_auc: PairRates(EACH[[1, 3]], EACH[[2, 0]]),
    gc.mean_rank: PairRates(
        np.array([EACH[0] | EACH[1], EACH[2] | EACH[3]]), np.ones((2, 4), bool)
    ),
}


def draw_rows(seed=0, n=300, n_groups=2, n_classes=2):
    """Draw scores with ties, labels, groups and weights."""
    rng = np.random.default_rng(seed)
    y, g = rng.integers(0, n_classes, n), rng.integers(0, n_groups, n)
    shape = n if n_classes == 2 else (n, n_classes)
    margin = rng.normal(size=shape).round(1)
    margin += y + 0.2 * g if n_classes == 2 else np.eye(n_classes)[y]
    return margin, y, g, rng.gamma(2.0, size=n)


def intervals_of(case, *constraints):
    """Return those of constraints and of functionals."""
    margin, y, g, weight = case
    rows = Rows(y, np.unique(y), weight, {"g": g}, [np.zeros((y.size, 1))])
    cells, compiled = compile_constraints(constraints, rows)
    return PairIntervals(cells, compiled, margin).complete(np.zeros(compiled.constant.size))


def sums_of(case, rates, coefficients):
    margin, y, g, weight = case
    moments = PairMoments(margin, 2 * g + y, weight, 4)
    return estimate_pair_rates(moments, rates).sums(coefficients, np.zeros(len(coefficients)))


@pytest.mark.parametrize("rate", list(GAPS))
@pytest.mark.parametrize("compare", [gc.gap, gc.each, gc.ratio])
def test_groups_have_the_intervals_of_their_cells(rate, compare):
    case = draw_rows()
    expression = compare(rate(), by="g")
    constraint = expression <= 0.1 if compare is gc.gap else expression >= 0.1
    sums = sums_of(case, GAPS[rate], np.eye(2))
    found, of_groups = intervals_of(case, constraint)
    np.testing.assert_allclose(of_groups, sums.intervals(), rtol=1e-12)
    expected = pair_constraint_interval(constraint, sums)
    np.testing.assert_allclose(found[0], expected, rtol=1e-12)


def test_differences_on_all_rows_have_the_interval_of_one_sum():
    case = draw_rows(1)
    difference = gc.auc(negatives={"g": 1}) - 0.5 * gc.auc(positives={"g": 1})
    found, _ = intervals_of(case, difference <= 0.3)
    rates = PairRates(np.array([POSITIVE, EACH[3]]), np.array([EACH[2], NEGATIVE]))
    sums = sums_of(case, rates, np.array([[1.0, -0.5]]))
    np.testing.assert_allclose(found, sums.intervals(), rtol=1e-12)


def test_other_constraints_keep_their_intervals():
    case = draw_rows(2)
    found, of_functionals = intervals_of(case, gc.fpr() <= 0.1, gc.auc() >= 0.5, gc.fnr() <= 0.1)
    assert np.isnan(found).all(axis=1).tolist() == [True, False, True]
    assert np.isnan(of_functionals).all(axis=1).tolist() == [True, False, True]


def test_the_score_of_one_of_several_classes_is_its_log_odds():
    margin, *_ = draw_rows(n_classes=3)
    p = softmax(margin, axis=1)[:, 2]
    np.testing.assert_allclose(log_odds_of_class(margin, 2), np.log(p / (1 - p)), rtol=1e-12)
    np.testing.assert_array_equal(log_odds_of_class(margin[:, 0], 1), margin[:, 0])


def test_one_of_several_classes_is_ranked_against_the_rest():
    margin, y, g, weight = draw_rows(3, n_classes=3)
    found, _ = intervals_of((margin, y, g, weight), gc.auc(label=2) >= 0.5)
    binary = log_odds_of_class(margin, 2), (y == 2).astype(int), g, weight
    expected, _ = intervals_of(binary, gc.auc() >= 0.5)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_deviations_of_rates_for_several_classes_add_up():
    case = draw_rows(4, n_classes=3)
    classes = [gc.auc(label=k) for k in range(3)]
    each, _ = intervals_of(case, *(one >= 0.1 for one in classes))
    found, _ = intervals_of(case, classes[0] + 2.0 * classes[1] - classes[2] + 0.25 >= 0.5)
    expected = 0.25 + each[0] + 2.0 * each[1] - each[2][::-1]
    np.testing.assert_allclose(found[0], expected, rtol=1e-12)


def test_many_groups_have_the_intervals_of_each_and_a_wider_gap():
    n_groups = 40
    case = draw_rows(5, n=1600, n_groups=n_groups)
    gap, each = gc.gap(gc.auc(), by="g") <= 0.1, gc.each(gc.auc(), by="g") >= 0.5
    (of_gap, of_each), of_groups = intervals_of(case, gap, each)
    own = of_groups[:n_groups]
    for k in range(0, n_groups, 13):
        margin, y, g, weight = (x[case[2] == k] for x in case)
        alone, _ = intervals_of((margin, y, np.zeros_like(g), weight), gc.auc() >= 0.5)
        np.testing.assert_allclose(own[k], alone[0], rtol=1e-12)
    assert of_each[0] == pytest.approx(own[:, 0].min())
    values = [auc_of(*(x[case[2] == k] for x in case)) for k in range(n_groups)]
    assert of_gap[0] <= np.ptp(values) <= of_gap[1] <= 1.0
    # Deviations of the two groups furthest apart add up, and are not combined by squares.
    low, high = np.argmin(values), np.argmax(values)
    widest = (own[high, 1] - values[high]) + (values[low] - own[low, 0])
    assert of_gap[1] >= np.ptp(values) + widest - 1e-12


def auc_of(margin, y, g, weight):
    above = (margin[:, None] > margin) + 0.5 * (margin[:, None] == margin)
    pairs = np.outer(weight * (y == 1), weight * (y == 0))
    return (above * pairs).sum() / pairs.sum()


def test_scores_that_all_tie_have_an_auc_of_one_half():
    margin, y, g, _ = draw_rows(6)
    case = np.zeros_like(margin), y, g, None
    found, _ = intervals_of(case, gc.auc() >= 0.5, gc.gap(gc.cross_auc(), by="g") <= 0.1)
    np.testing.assert_allclose(found, [[0.5, 0.5], [0.0, 0.0]], atol=1e-12)


def test_groups_without_one_side_have_no_interval():
    margin, y, g, _ = draw_rows(7, n_groups=3)
    y[g == 2] = 0
    found, of_groups = intervals_of((margin, y, g, None), gc.gap(gc.auc(), by="g") <= 0.1)
    assert len(of_groups) == 2
    kept = g < 2
    expected, _ = intervals_of(
        (margin[kept], y[kept], g[kept], None), gc.gap(gc.auc(), by="g") <= 0.1
    )
    np.testing.assert_allclose(found, expected, rtol=1e-12)


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
    false = sum(sample.p(means + rng.normal(size=means.size)).max() <= DELTA for _ in range(400))
    assert false <= 400 * DELTA


# Cells are (group, label) in the order of (0, 0), (0, 1), (1, 0), (1, 1).
OF_SUBGROUP = PairRates(
    np.array([EACH[1] | EACH[3], EACH[3]]), np.array([EACH[2], EACH[0] | EACH[2]])
)
DIFFERENCE = np.array([1.0, -1.0])


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
    assert pair_deviation(few, WITHIN, DIFFERENCE, DELTA) == pytest.approx(changes, rel=1e-12)
    strict = 1e-6
    split = 2 * sqrt(log(2 / strict) / (2 * 20))
    changes = sqrt(log(1 / strict) / 2 * 4 / 20)
    assert pair_deviation(alike, WITHIN, DIFFERENCE, strict) == pytest.approx(min(split, changes))
    one_small = np.array([1.0, -1e-3])
    split = (1 + 1e-3) * sqrt(log(2 / DELTA) / 40)
    assert pair_deviation(alike, WITHIN, one_small, DELTA) == pytest.approx(split, rel=1e-12)


def test_weights_and_overlaps_have_bounded_differences():
    counts = [40, 20, 30, 10]
    rng = np.random.default_rng(0)
    cells, weight = np.repeat(np.arange(4), counts), rng.uniform(0.5, 2.0, 100)
    for rates in (WITHIN, OF_SUBGROUP, MEAN_RANK):
        change = np.zeros(100)
        for inside in (*rates.first, *rates.second):
            change += weight * inside[cells] / weight[inside[cells]].sum()
        expected = sqrt(log(1 / DELTA) / 2 * (change**2).sum())
        found = pair_deviation(sizes_of(counts, weight), rates, DIFFERENCE, DELTA)
        assert found == pytest.approx(expected, rel=1e-12)


def test_no_row_changes_a_sum_by_more_than_its_bound():
    counts = np.array([8, 5, 6, 4])
    cells, n = np.repeat(np.arange(4), counts), counts.sum()
    rng = np.random.default_rng(1)
    weight = rng.uniform(0.5, 2.0, n)
    scores = rng.normal(size=n)
    of_cells = np.bincount(cells, weight)
    for rates in (WITHIN, OF_SUBGROUP, MEAN_RANK):
        change = np.zeros(n)
        for inside in (*rates.first, *rates.second):
            change += weight * inside[cells] / weight[inside[cells]].sum()
        start = DIFFERENCE @ rates.values(pair_table(scores, cells, weight, 4), of_cells)
        for i in range(n):
            for moved in (-9.0, 9.0):
                other = scores.copy()
                other[i] = moved
                value = DIFFERENCE @ rates.values(pair_table(other, cells, weight, 4), of_cells)
                assert abs(value - start) <= change[i] + 1e-12


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
    assert pair_deviation(sizes, WITHIN, DIFFERENCE, DELTA) == inf
    assert pair_deviation(sizes, WITHIN, np.array([1.0, 0.0]), DELTA) < 1.0
    assert pair_deviation(sizes, WITHIN, np.zeros(2), DELTA) == 0.0
