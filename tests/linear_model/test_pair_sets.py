"""Constraints on pair rates as rules over sets of rows, their values, and streams of rows."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import chi2
from sklearn.metrics import roc_auc_score

import gbm_constrained as gc
from gbm_constrained.constraints.checking import resolve_positive_class
from gbm_constrained.data.rows import Rows
from gbm_constrained.linear_model.auc_scorer import (
    PairSample,
    PairSets,
    Reservoir,
    fit_log_odds,
)
from gbm_constrained.solvers.level_set import NEGATIVES, POSITIVES

CLASSES = np.array([0, 1])


class Sample:
    """Random rows of two classes, three regions and two sexes."""

    def __init__(self, seed=0, n=400):
        rng = np.random.default_rng(seed)
        self.y, self.weight = rng.integers(0, 2, n), rng.uniform(0.2, 2.0, n)
        self.sex, self.region = rng.choice(["F", "M"], n), rng.choice(list("abc"), n)
        self.scores = (rng.normal(size=n) + 0.5 * self.y + 0.3 * (self.sex == "F")).round(1)
        columns = {"sex": self.sex, "region": self.region}
        self.rows = Rows(self.y.astype(np.intp), CLASSES, self.weight, columns)

    def auc(self, upper, lower):
        """Compute a pair rate of two masks, which may overlap, by counting pairs."""
        h = self.scores
        wins = (h[:, None] > h) + 0.5 * (h[:, None] == h)
        mass = np.outer(self.weight * upper, self.weight * lower)
        return (mass * wins).sum() / mass.sum()


def read(constraints, rows):
    return PairSets.of(resolve_positive_class(constraints, CLASSES, None), rows)


@pytest.fixture
def sample():
    return Sample()


def cases(s):
    """List constraints, with the two pair rates whose difference they bound."""
    P, F = s.y == 1, s.sex == "F"
    everything = np.ones_like(P)
    female, male = {"sex": "F"}, {"sex": "M"}
    return [
        (gc.gap(gc.mean_rank(), by="sex") <= 0.1, (F, everything), (~F, everything)),
        (gc.gap(gc.cross_auc(), by="sex") <= 0.1, (P & F, ~P & ~F), (P & ~F, ~P & F)),
        (gc.gap(gc.auc(), by="sex") <= 0.1, (P & F, ~P & F), (P & ~F, ~P & ~F)),
        (gc.auc(negatives=female) - gc.auc(positives=male) <= 0.1, (P, ~P & F), (P & ~F, ~P)),
    ]


@pytest.mark.parametrize("case", range(4))
def test_values_are_those_of_all_pairs(sample, case):
    constraint, first, second = cases(sample)[case]
    sets = read([constraint], sample.rows)
    rows = sets.sample(np.zeros((sample.y.size, 1)), sample.rows)
    difference = sample.auc(*first) - sample.auc(*second)
    expected = abs(difference) if "gap" in str(constraint) else difference
    assert sets.values(rows, sample.scores)[0][0] == pytest.approx(expected, rel=1e-10)
    expected = roc_auc_score(sample.y, sample.scores, sample_weight=sample.weight)
    assert sets.auc(rows, sample.scores) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("case", range(4))
def test_rules_compare_the_rows_that_the_constraint_compares(sample, case):
    """The signed sum of each rule is that of the constraint's pair rates."""
    constraint, first, second = cases(sample)[case]
    sets = read([constraint], sample.rows)
    rows = sets.sample(np.zeros((sample.y.size, 1)), sample.rows)
    inside, members = sets.inside(rows), sets.members(rows)
    np.testing.assert_array_equal(inside[:, POSITIVES], sample.y == 1)
    np.testing.assert_array_equal(inside[:, NEGATIVES], sample.y == 0)
    np.testing.assert_array_equal(members, inside * sample.weight[:, None])
    difference = sample.auc(*first) - sample.auc(*second)
    sums = [
        sum(s * sample.auc(inside[:, u], inside[:, v]) for s, u, v in rule.terms)
        for rule in sets.rules(slack=0.2)
    ]
    is_gap = "gap" in str(constraint)
    expected = [difference, -difference] if is_gap else [difference]
    np.testing.assert_allclose(sorted(sums), sorted(expected), atol=1e-12)
    assert [rule.bound for rule in sets.rules(slack=0.2)] == pytest.approx([0.3] * len(sums))


def test_later_rows_are_in_the_sets_of_the_first_ones():
    sample = Sample(n=1200)
    by_both = gc.gap(gc.auc(), by=["sex", "region"]) <= 0.1
    sets = read([by_both, gc.gap(gc.mean_rank(), by="sex") <= 0.1], sample.rows)
    whole = sets.sample(np.zeros((1200, 1)), sample.rows)
    for i in (0, 17, 1199):
        columns = {"sex": sample.sex[[i]], "region": sample.region[[i]]}
        row = Rows(
            sample.y[[i]].astype(np.intp), CLASSES, sample.weight[[i]], columns, like=sample.rows
        )
        found = sets.sample(np.zeros((1, 1)), row)
        np.testing.assert_array_equal(sets.members(found)[0], sets.members(whole)[i])


def test_rates_without_rows_are_undefined(sample):
    sets = read([gc.gap(gc.mean_rank(), by="sex") <= 0.1], sample.rows)
    whole = sets.sample(np.zeros((400, 1)), sample.rows)
    part = whole.take(np.flatnonzero(sample.sex == "M"))
    values, is_known = sets.values(part, sample.scores[sample.sex == "M"])
    assert np.isnan(values).all()
    assert not is_known.any()


def rows(first, last):
    numbers = np.arange(first, last)
    return PairSample(numbers[:, None] * 1.0, numbers[:, None], numbers * 1.0)


def test_all_rows_are_kept_while_there_is_room():
    reservoir = Reservoir(10, np.random.RandomState(0))
    for first, last in ((0, 3), (3, 3), (3, 9)):
        reservoir.add(rows(first, last))
    np.testing.assert_array_equal(reservoir.rows.weight, np.arange(9))


def test_every_row_is_kept_with_the_same_probability():
    times = np.zeros(40)
    for seed in range(500):
        reservoir = Reservoir(8, np.random.RandomState(seed))
        for first in range(0, 40, 5):
            reservoir.add(rows(first, first + 5))
        kept = reservoir.rows
        assert np.unique(kept.weight).size == len(kept) == 8
        np.testing.assert_array_equal(kept.X[:, 0], kept.weight)
        times[kept.weight.astype(int)] += 1
    expected = 500 * 8 / 40
    statistic = ((times - expected) ** 2 / (expected * (1 - 8 / 40))).sum()
    assert statistic < chi2.isf(1e-3, 39)


def test_log_odds_are_those_of_the_rows_and_never_fall():
    rng = np.random.default_rng(0)
    scores = 3.0 + 0.2 * rng.normal(size=20_000)
    is_positive = rng.random(20_000) < 1 / (1 + np.exp(-5 * (scores - 3.1)))
    slope, intercept = fit_log_odds(scores, is_positive, np.ones(20_000), 0.3)
    np.testing.assert_allclose(slope, 5.0, rtol=0.1)
    np.testing.assert_allclose(-intercept / slope, 3.1, atol=0.02)
    assert fit_log_odds(-scores, is_positive, np.ones(20_000), 0.3)[0] > 0
    slope, intercept = fit_log_odds(scores, np.ones(20_000, dtype=bool), np.ones(20_000), 0.01)
    assert slope > 0
    np.testing.assert_allclose(expit(slope * scores + intercept).mean(), 0.01, rtol=0.01)
