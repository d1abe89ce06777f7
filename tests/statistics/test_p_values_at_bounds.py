"""p-values by simulation of populations at their bounds."""

from __future__ import annotations

import numpy as np
import pytest
from counted_data import DELTAS, Data, by
from scipy import stats

import gbm_constrained as gc
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.statistics.counts import CellCounts, functionals_of
from gbm_constrained.statistics.p_values import constraint_p_values, row_p_values


def super_uniform(p):
    """Whether P(p <= delta) exceeds delta nowhere, but for three standard errors."""
    rejected = (p <= DELTAS[:, None]).mean(axis=1)
    return (rejected <= DELTAS + 3 * np.sqrt(DELTAS / p.size)).all()


def simulated(rule, share, sizes, repetitions, seed=0):
    """P-values of a rule where cells' rows are decided by known probabilities.

    `share` gives, for a label and a sex, the probability of decision 1; `sizes` the rows of each.
    """
    data = Data()
    cells, compiled = compile_constraints([rule], data.rows)
    rng = np.random.default_rng(seed)
    view = cells.views[0]
    table = np.zeros((repetitions, len(cells), 2))
    sexes = view.levels.get(("sex",), np.zeros(len(cells), dtype=int))
    for c, (label, sex) in enumerate(zip(cells.labels, sexes, strict=True)):
        n = sizes[label][sex]
        table[:, c, 1] = rng.binomial(n, share[label][sex], repetitions)
        table[:, c, 0] = n - table[:, c, 1]
    return constraint_p_values(compiled, CellCounts(table, table, table))[:, 0]


@pytest.mark.parametrize("bound", [0.05, 0.5, 0.9])
def test_a_single_rate_at_its_bound(bound):
    """Valid, and exact: the attained levels are those of the binomial distribution."""
    p = simulated(gc.fpr() <= bound, [[bound], [0.5]], [[80], [20]], 20000)
    assert super_uniform(p)
    tails = stats.binom.cdf(range(81), 80, bound)
    for delta in DELTAS:
        attained = max(tails[tails <= delta], default=0.0)
        assert (p <= delta).mean() == pytest.approx(attained, abs=4 * np.sqrt(delta / 20000))


@pytest.mark.parametrize("low", [0.02, 0.4])
def test_a_gap_at_its_bound(low):
    p = simulated(by(gc.fpr()) <= 0.2, [[low, low + 0.2], [0.5, 0.5]], [[40, 60], [1, 1]], 2000)
    assert super_uniform(p)
    p = simulated(by(gc.fpr()) <= 0.2, [[low, low], [0.5, 0.5]], [[800, 900], [1, 1]], 200)
    assert (p <= 0.05).mean() > 0.95


def test_a_gap_to_everyone_at_its_bound():
    """The base sets overlap: 0.1 + 0.5 * (0.4 - 0.1) is 0.15 from either."""
    rule = by(gc.selection_rate(), reference=gc.overall) <= 0.15
    p = simulated(rule, [[0.1, 0.4]] * 2, [[30, 30]] * 2, 2000)
    assert super_uniform(p)


@pytest.mark.parametrize(
    ("rule", "table"),
    [
        (gc.precision() >= 0.6, [[0.5, 0.16], [0.1, 0.24]]),
        (gc.f1() >= 0.6, [[0.51, 0.15], [0.13, 0.21]]),
        (gc.tpr() - 0.5 * gc.fpr() >= 0.5, [[0.3, 0.3], [0.1, 0.3]]),
    ],
    ids=str,
)
def test_rows_at_their_bound(rule, table):
    """Quotients and sums of several fractions: cells drawn, too."""
    cells, compiled = compile_constraints([rule], Data().rows)
    share = np.array(table)[cells.labels]
    rng = np.random.default_rng(0)
    drawn = rng.multinomial(150, share.ravel(), 4000).reshape(4000, *share.shape).astype(float)
    truth = functionals_of(compiled, CellCounts(share, share, share))
    assert compiled.rows_of(truth) == pytest.approx(compiled.b, abs=1e-9)
    p = row_p_values(compiled, CellCounts(drawn, drawn, drawn))[:, 0]
    assert super_uniform(p)


def test_a_bounded_mean_at_its_bound():
    """Losses minus wins, by Hoeffding and Bentkus."""
    rule = gc.losses(to="old") - gc.wins(over="old") <= 0.1
    cells, compiled = compile_constraints([rule], Data().rows)
    (blocked,) = compiled.parts
    share = np.full((len(cells), 2), 0.0)
    share[blocked[0].cells] += 0.2 * blocked[0].event / blocked[0].event.sum()
    share[blocked[1].cells] += 0.1 * blocked[1].event / blocked[1].event.sum()
    neither = share == 0.0
    share[neither] = 0.7 / neither.sum()
    drawn = np.random.default_rng(0).multinomial(200, share.ravel(), 20000)
    table = drawn.reshape(-1, *share.shape).astype(float)
    assert super_uniform(row_p_values(compiled, CellCounts(table, table, table))[:, 0])


def weighted_tables(cells, codes, decided, weight):
    """Tables of (repetitions, n) decisions on the same rows and weights."""
    shape = (len(decided), len(cells), 2)
    at = (np.arange(len(decided))[:, None] * len(cells) + codes) * 2 + decided
    tables = [
        np.bincount(at.ravel(), np.broadcast_to(x, at.shape).ravel(), np.prod(shape))
        for x in (weight, weight**2, np.ones(weight.size))
    ]
    return CellCounts(*(table.reshape(shape) for table in tables))


@pytest.mark.parametrize(
    ("rule", "rate"),
    [
        (gc.fpr() <= 0.3, 0.3),
        (gc.fpr() >= 0.7, 0.7),
        (gc.fpr(on={"sex": "F"}) - gc.fpr(on={"sex": "M"}) <= 0.0, 0.5),
        (gc.fpr(on={"sex": "F"}) - gc.fpr() <= 0.0, 0.8),
    ],
    ids=str,
)
def test_weighted_rates_at_their_bound(rule, rate):
    data = Data(0, n=120, weighted=True)
    data.weight[:3] = 10.0
    cells, compiled = compile_constraints([rule], data.rows)
    decided = (np.random.default_rng(1).random((5000, 120)) < rate).astype(int)
    counts = weighted_tables(cells, cells.codes, decided, data.weight)
    p = row_p_values(compiled, counts)[:, 0]
    assert super_uniform(p)
    assert np.ptp(p) > 0.1
