"""p-values of constraints on pair rates, and the rows that certificates take."""

from __future__ import annotations

from math import exp, inf, log, sqrt

import numpy as np
import pytest
from scipy.stats import norm

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.pairs import PairRates, PairRows
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
        functionals = self.compiled.Q @ tables + self.compiled.constant
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
