"""Intervals of the worst of many groups, by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from counted_data import Data
from scipy import optimize, stats

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.statistics.binomial import clopper_pearson
from gbm_constrained.statistics.intervals import MeanIntervals, constraint_intervals, level_of_all


def test_intervals_of_the_worst_group_by_hand():
    """One end by the intervals of groups, the other by those that all hold at once.

    Three groups have three pairs. The reference is one of the three, and the two others are
    compared with it alone.
    """
    data = Data(8, n=900)
    few = {"by": "region", "min_group_size": 1}
    groups = [data.region == r for r in "abc"]
    likely = np.select(groups, [0.3, 0.45, 0.65])
    data.decided = (np.random.default_rng(0).random(900) < likely).astype(int)
    selected = [(data.decided[g].sum(), g.sum()) for g in groups]
    f = np.array([events / n for events, n in selected])
    at, strict = (
        np.array([clopper_pearson(*each_one, level) for each_one in selected])
        for level in (0.95, 1 - 0.05 / 3)
    )

    def difference(i, j, ends, factor=1.0):
        """Ends of f_i - factor * f_j."""
        low = np.hypot(f[i] - ends[i][0], factor * (ends[j][1] - f[j]))
        high = np.hypot(ends[i][1] - f[i], factor * (f[j] - ends[j][0]))
        return f[i] - factor * f[j] + np.array([-low, high])

    pairs = list(itertools.permutations(range(3), 2))

    def gap_of(pairs):
        return [
            max(0.0, *(difference(*pair, strict)[0] for pair in pairs)),
            max(difference(*pair, at)[1] for pair in pairs),
        ]

    def ratio_of(ends, side):
        """The factor at which the first pair's end reaches zero."""

        def least(factor):
            return min(difference(*pair, ends, factor)[side] for pair in pairs)

        return 1.0 if least(1.0) >= 0 else optimize.brentq(least, 0.0, 1.0, xtol=1e-14)

    rate = gc.selection_rate()
    expected = {
        gc.each(rate, **few) <= 0.5: [strict[:, 0].max(), at[:, 1].max()],
        gc.each(rate, **few) >= 0.5: [at[:, 0].min(), strict[:, 1].min()],
        gc.gap(rate, **few) <= 0.5: gap_of(pairs),
        gc.gap(rate, **few, reference="b") <= 0.5: gap_of([p for p in pairs if 1 in p]),
        gc.ratio(rate, **few) >= 0.5: [ratio_of(at, 0), ratio_of(strict, 1)],
    }
    found = constraint_intervals(*data.measured(*expected))
    for rule, ends, wanted in zip(expected, found, expected.values(), strict=True):
        np.testing.assert_allclose(ends, wanted, rtol=0, atol=1e-9, err_msg=str(rule))
        assert 0.0 < ends[0] < ends[1] < 1.0, "both ends are known"


def test_the_level_at_which_all_groups_hold():
    """Four groups, which have six pairs."""
    of_each, of_pairs = gc.each(gc.fpr(), by="g") <= 0.1, gc.gap(gc.fpr(), by="g") <= 0.1
    assert level_of_all(of_each, 4, 0.95) == pytest.approx(1 - 0.05 / 4, abs=1e-12)
    assert level_of_all(of_pairs, 4, 0.95) == pytest.approx(1 - 0.05 / 6, abs=1e-12)
    assert level_of_all(of_each, 1, 0.95) == pytest.approx(0.95, abs=1e-12)


def test_mean_losses_of_groups_and_of_all_rows_share_rows():
    """The upper end is that of the group whose loss is furthest from the mean of all rows."""
    rng, n = np.random.default_rng(0), 600
    group = np.repeat(["a", "b"], [400, 200])
    loss = rng.exponential(1.0 + (group == "b"))
    rule = gc.gap(gc.log_loss(), by="g", reference=gc.overall) <= 0.1
    cells, compiled = compile_constraints(
        [rule], Rows(np.arange(n) % 2, np.arange(2), columns={"g": group})
    )
    means = np.array([loss[group == "a"].mean(), loss[group == "b"].mean(), loss.mean()])
    found = MeanIntervals(cells, compiled, np.zeros(n, dtype=np.intp), loss)
    ((_, high),), _ = found.complete(means)
    of_b = (group == "b") / 200 * (loss - means[1]) - (loss - means[2]) / n
    expected = means[1] - means[2] + stats.norm.isf(0.025) * np.sqrt((of_b**2).sum())
    assert high == pytest.approx(expected)
