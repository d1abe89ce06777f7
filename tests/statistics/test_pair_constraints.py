"""Intervals of constraints on pair rates, from compiled constraints and scores of rows."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.pairs import PairRates
from gbm_constrained.statistics.pairs import (
    PairIntervals,
    PairMoments,
    estimate_pair_rates,
    log_odds_of_class,
    pair_constraint_interval,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*min_group_size=30")
EACH = np.eye(4, dtype=bool)
# Cells are (group, label) in the order of (0, 0), (0, 1), (1, 0), (1, 1).
POSITIVE, NEGATIVE = EACH[1] | EACH[3], EACH[0] | EACH[2]
GAPS = {
    gc.auc: PairRates(EACH[[1, 3]], EACH[[0, 2]]),
    gc.cross_auc: PairRates(EACH[[1, 3]], EACH[[2, 0]]),
    gc.mean_rank: PairRates(
        np.array([EACH[0] | EACH[1], EACH[2] | EACH[3]]), np.ones((2, 4), bool)
    ),
}


def draw(seed=0, n=300, n_groups=2, n_classes=2):
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
    moments = PairMoments.of(margin, 2 * g + y, weight, 4)
    return estimate_pair_rates(moments, rates).sums(coefficients, np.zeros(len(coefficients)))


@pytest.mark.parametrize("rate", list(GAPS))
@pytest.mark.parametrize("compare", [gc.gap, gc.each, gc.ratio])
def test_groups_have_the_intervals_of_their_cells(rate, compare):
    case = draw()
    expression = compare(rate(), by="g")
    constraint = expression <= 0.1 if compare is gc.gap else expression >= 0.1
    sums = sums_of(case, GAPS[rate], np.eye(2))
    found, of_groups = intervals_of(case, constraint)
    np.testing.assert_allclose(of_groups, sums.intervals(), rtol=1e-12)
    expected = pair_constraint_interval(constraint, sums)
    np.testing.assert_allclose(found[0], expected, rtol=1e-12)


def test_differences_on_all_rows_have_the_interval_of_one_sum():
    case = draw(1)
    difference = gc.auc(negatives={"g": 1}) - 0.5 * gc.auc(positives={"g": 1})
    found, _ = intervals_of(case, difference <= 0.3)
    rates = PairRates(np.array([POSITIVE, EACH[3]]), np.array([EACH[2], NEGATIVE]))
    sums = sums_of(case, rates, np.array([[1.0, -0.5]]))
    np.testing.assert_allclose(found, sums.intervals(), rtol=1e-12)


def test_other_constraints_keep_their_intervals():
    case = draw(2)
    found, of_functionals = intervals_of(case, gc.fpr() <= 0.1, gc.auc() >= 0.5, gc.fnr() <= 0.1)
    assert np.isnan(found).all(axis=1).tolist() == [True, False, True]
    assert np.isnan(of_functionals).all(axis=1).tolist() == [True, False, True]


def test_the_score_of_one_of_several_classes_is_its_log_odds():
    margin, *_ = draw(n_classes=3)
    p = softmax(margin, axis=1)[:, 2]
    np.testing.assert_allclose(log_odds_of_class(margin, 2), np.log(p / (1 - p)), rtol=1e-12)
    np.testing.assert_array_equal(log_odds_of_class(margin[:, 0], 1), margin[:, 0])


def test_one_of_several_classes_is_ranked_against_the_rest():
    margin, y, g, weight = draw(3, n_classes=3)
    found, _ = intervals_of((margin, y, g, weight), gc.auc(label=2) >= 0.5)
    binary = log_odds_of_class(margin, 2), (y == 2).astype(int), g, weight
    expected, _ = intervals_of(binary, gc.auc() >= 0.5)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_deviations_of_rates_for_several_classes_add_up():
    case = draw(4, n_classes=3)
    classes = [gc.auc(label=k) for k in range(3)]
    each, _ = intervals_of(case, *(one >= 0.1 for one in classes))
    found, _ = intervals_of(case, classes[0] + 2.0 * classes[1] - classes[2] + 0.25 >= 0.5)
    expected = 0.25 + each[0] + 2.0 * each[1] - each[2][::-1]
    np.testing.assert_allclose(found[0], expected, rtol=1e-12)


def test_many_groups_have_the_intervals_of_each_and_a_wider_gap():
    n_groups = 40
    case = draw(5, n=1600, n_groups=n_groups)
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
    margin, y, g, _ = draw(6)
    case = np.zeros_like(margin), y, g, None
    found, _ = intervals_of(case, gc.auc() >= 0.5, gc.gap(gc.cross_auc(), by="g") <= 0.1)
    np.testing.assert_allclose(found, [[0.5, 0.5], [0.0, 0.0]], atol=1e-12)


def test_groups_without_one_side_have_no_interval():
    margin, y, g, _ = draw(7, n_groups=3)
    y[g == 2] = 0
    found, of_groups = intervals_of((margin, y, g, None), gc.gap(gc.auc(), by="g") <= 0.1)
    assert len(of_groups) == 2
    kept = g < 2
    expected, _ = intervals_of(
        (margin[kept], y[kept], g[kept], None), gc.gap(gc.auc(), by="g") <= 0.1
    )
    np.testing.assert_allclose(found, expected, rtol=1e-12)
