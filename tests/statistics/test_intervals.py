"""Intervals of rates, means and calibration errors, by hand and by simulation."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from counted_data import Data, binary_rules, by
from predicted_rows import hold_out
from scipy import optimize, stats
from scipy.special import expit, logit

import gbm_constrained as gc
from gbm_constrained import calibration_error, each, gap
from gbm_constrained.data.rows import Rows
from gbm_constrained.evaluation.audit import measure_rows
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.rows import find_bins
from gbm_constrained.statistics.binomial import clopper_pearson, newcombe_difference
from gbm_constrained.statistics.counts import CellCounts, functionals_of
from gbm_constrained.statistics.intervals import (
    MeanIntervals,
    constraint_intervals,
    estimate_error,
    functional_intervals,
    level_of_all,
)
from gbm_constrained.statistics.p_values import row_p_values
from gbm_constrained.statistics.sampled_intervals import ScoredDecisions


def test_intervals_of_constraints():
    """Each by its method, contains the value, and follows signs, scales and constants."""
    data = Data(5, n=500)
    y, decided, women = data.y, data.decided, data.sex == "F"
    e, n = (decided[y == 0] == 1).sum(), (y == 0).sum()
    low, high = clopper_pearson(e, n)
    a, b = women & (y == 1), ~women & (y == 1)
    d_low, d_high = newcombe_difference(decided[a].sum(), a.sum(), decided[b].sum(), b.sum())
    both, either = ((y == 1) & (decided == 1)).sum(), ((y == 1) | (decided == 1)).sum()
    shares = clopper_pearson(both, (decided == 1).sum())
    jaccard = np.array(clopper_pearson(both, either))
    right, old = decided == y, data.other == y
    won = np.array(clopper_pearson((right & ~old).sum(), (right != old).sum()))
    wins_here, losses_here = gc.wins(over="old"), gc.losses(to="old")
    folded = (
        (0.0, max(-d_low, d_high)) if d_low < 0 < d_high else sorted((abs(d_low), abs(d_high)))
    )
    difference = gc.tpr(on={"sex": "F"}) - gc.tpr(on={"sex": "M"})
    expected = {
        gc.fpr() <= 0.5: (low, high),
        gc.tnr() >= 0.5: (1 - high, 1 - low),
        0.2 - 3 * gc.fpr() <= 0.1: (0.2 - 3 * high, 0.2 - 3 * low),
        difference <= 0.1: (d_low, d_high),
        2 * difference + 0.1 <= 0.5: (2 * d_low + 0.1, 2 * d_high + 0.1),
        gc.tpr(on={"sex": "F"}) + gc.fnr(on={"sex": "M"}) <= 1.0: (d_low + 1.0, d_high + 1.0),
        by(gc.tpr()) <= 0.1: folded,
        by(gc.fnr()) <= 0.1: folded,
        by(gc.fnr(), reference="F") <= 0.1: folded,
        gc.each(gc.fpr(on={"sex": "F"}), by="old", min_group_size=1) <= 0.5: None,
        gc.precision() >= 0.5: shares,
        gc.confusion(0, 1, normalize="pred") <= 0.5: (1 - shares[1], 1 - shares[0]),
        gc.f1() >= 0.5: 2 * jaccard / (1 + jaccard),
        wins_here / losses_here >= 0.5: won / (1 - won),
        (3 * wins_here) / (2 * losses_here) <= 2.0: 1.5 * won / (1 - won),
        (wins_here - losses_here) / (wins_here + losses_here) >= 0.0: 2 * won - 1,
    }
    compiled, counts = data.measured(*expected)
    found = constraint_intervals(compiled, counts)
    for rule, ends, wanted in zip(expected, found, expected.values(), strict=True):
        if wanted is not None:
            np.testing.assert_allclose(ends, wanted, atol=1e-12, err_msg=str(rule))
    compiled, counts = data.measured(*(r for r in binary_rules() if "mask" not in str(r)))
    found = constraint_intervals(compiled, counts)
    values = compiled.values(functionals_of(compiled, counts))
    assert ((found[:, 0] <= values) & (values <= found[:, 1])).all()
    found, values = functional_intervals(compiled, counts), functionals_of(compiled, counts)
    assert ((found[:, 0] <= values) & (values <= found[:, 1])).all()


def test_sums_over_the_same_rows_by_hand():
    """Wilson's intervals of both groups by squares, and chance in how many rows are of each."""
    data = Data(5, n=500)
    negative, women = data.y == 0, data.sex == "F"
    groups = [negative & women, negative & ~women]
    n = np.array([g.sum() for g in groups])
    events = np.array([data.decided[g].sum() for g in groups])
    p, pi, z = events / n, n[0] / n.sum(), stats.norm.ppf(0.975)
    wilson = np.array(
        [
            stats.binomtest(k, m).proportion_ci(method="wilson")
            for k, m in zip(events, n, strict=True)
        ]
    )
    down, up = p - wilson[:, 0], wilson[:, 1] - p
    own, other = 1.0 - 0.5 * pi, 0.5 * (1.0 - pi)
    of_shares = (z * 0.5 * (p[0] - p[1])) ** 2 * pi * (1.0 - pi) / n.sum()
    value = p[0] - 0.5 * (pi * p[0] + (1.0 - pi) * p[1])
    low = value - np.sqrt((own * down[0]) ** 2 + (other * up[1]) ** 2 + of_shares)
    high = value + np.sqrt((own * up[0]) ** 2 + (other * down[1]) ** 2 + of_shares)
    of_women = gc.fpr(on={"sex": "F"})
    rules = [
        of_women - 0.5 * gc.fpr() <= 0.1,
        0.3 - 2.0 * (of_women - 0.5 * gc.fpr()) <= 0.1,
        of_women + 0.5 * gc.tnr() <= 1.0,
        of_women - gc.fpr(on={"sex": "F"}) + gc.fpr() <= 0.5,  # what cancels is no part of it
    ]
    found = constraint_intervals(*data.measured(*rules))
    expected = [(low, high), (0.3 - 2 * high, 0.3 - 2 * low), (low + 0.5, high + 0.5)]
    np.testing.assert_allclose(found[:3], expected, atol=1e-9)
    np.testing.assert_allclose(found[3], clopper_pearson(events.sum(), n.sum()), atol=1e-9)


def test_sums_over_the_same_rows_cover_about():
    """Groups far apart, so that their shares matter, and errors too few for resampling."""
    data = Data(1)
    women = {"sex": "F"}
    rules = [
        gc.fpr(on=women) - 0.5 * gc.fpr() <= 0.1,
        gc.error_rate() + 0.5 * gc.selection_rate() <= 0.5,
        0.7 * gc.fpr(on=women) + 0.3 * gc.fnr(on={"sex": "M"}) <= 0.5,
    ]
    cells, compiled = compile_constraints(rules, data.rows)
    at = np.array([np.flatnonzero(cells.codes == c)[0] for c in range(len(cells))])
    rng = np.random.default_rng(0)
    for chance in ({"F": 0.9, "M": 0.1}, {"F": 0.01, "M": 0.03}):
        selected = np.array([chance[sex] for sex in data.sex[at]])
        share = np.stack([1.0 - selected, selected], axis=1) / len(cells)
        truth = compiled.values(functionals_of(compiled, CellCounts(share, share, share)))
        missed = np.zeros((2, len(rules)))
        for _ in range(400):
            table = rng.multinomial(300, share.ravel()).reshape(share.shape).astype(float)
            low, high = constraint_intervals(compiled, CellCounts(table, table, table)).T
            missed += [low > truth, high < truth]
        assert (missed.sum(axis=0) < 0.08 * 400).all()
        assert (missed.sum(axis=0) > 0.015 * 400).all()


def test_a_row_that_may_add_one_of_three_by_hand():
    """Wins minus losses: Newcombe's difference of paired rates, from those of both."""
    data = Data(5, n=500)
    right, old = data.decided == data.y, data.other == data.y
    events = np.array([(right & ~old).sum(), (~right & old).sum()])
    won, lost = events / 500
    ends = [stats.binomtest(k, 500).proportion_ci(method="wilson") for k in events]
    down, up = (events / 500 - [e[0] for e in ends]), ([e[1] for e in ends] - events / 500)
    both = 2.0 * np.sqrt(won / (1.0 - won) * lost / (1.0 - lost))  # times their correlation
    low = won - lost - np.sqrt(down[0] ** 2 + up[1] ** 2 + both * down[0] * up[1])
    high = won - lost + np.sqrt(up[0] ** 2 + down[1] ** 2 + both * up[0] * down[1])
    net = gc.wins(over="old") - gc.losses(to="old")
    compiled, counts = data.measured(net >= 0.0, 1.0 - 2.0 * net <= 2.0)
    expected = [(low, high), (1.0 - 2.0 * high, 1.0 - 2.0 * low)]
    np.testing.assert_allclose(constraint_intervals(compiled, counts), expected, atol=1e-9)
    np.testing.assert_allclose(functional_intervals(compiled, counts), expected, atol=1e-9)


def test_a_quotient_of_other_rows_by_hand():
    """Of two independent rates it is that of Donner and Zou (2012), in closed form."""
    data = Data(5, n=500)
    women, men = ((data.y == 0) & (data.sex == sex) for sex in ("F", "M"))
    a, b = data.decided[women].mean(), data.decided[men].mean()
    (a_low, a_high), (b_low, b_high) = (
        stats.binomtest(int(data.decided[g].sum()), int(g.sum())).proportion_ci(method="wilson")
        for g in (women, men)
    )

    def end(a_end, b_end, sign):
        root = (a * b) ** 2 - a_end * b_end * (2 * a - a_end) * (2 * b - b_end)
        return (a * b + sign * np.sqrt(root)) / (b_end * (2 * b - b_end))

    wanted = np.array([end(a_low, b_high, -1.0), end(a_high, b_low, 1.0)])
    first, second = gc.fpr(on={"sex": "F"}), gc.fpr(on={"sex": "M"})
    rules = [
        first / second <= 1.2,
        (3.0 * first) / (2.0 * second) >= 0.5,
        (first - second) / second <= 0.2,
        second / first <= 1.2,
    ]
    found = constraint_intervals(*data.measured(*rules))
    expected = [wanted, 1.5 * wanted, wanted - 1.0, 1.0 / wanted[::-1]]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("weighted", [pytest.param(False, marks=pytest.mark.slow), True])
def test_what_hardly_ever_happens_is_covered_about(weighted):
    """Of 100 rows with two errors in a hundred many samples have none of a kind."""
    data = Data(0, n=20_000)
    rng = np.random.default_rng(0)
    data.y, data.sex = rng.binomial(1, 0.4, 20_000), rng.choice(["F", "M"], 20_000)

    def decide():
        chance = np.where(data.sex == "F", 0.014, 0.026)
        data.decided, data.other = (data.y ^ (rng.random(data.y.size) < chance) for _ in range(2))

    decide()
    of_women, of_men = {"sex": "F"}, {"sex": "M"}
    rules = [
        gc.fnr() / (1 - gc.fpr()) <= 0.5,
        gc.tpr() / gc.fpr() >= 2.0,
        gc.fpr(on=of_women) / gc.fpr(on=of_men) <= 1.2,
        gc.selection_rate(on=of_women) / gc.selection_rate() >= 0.8,
        gc.wins(over="old") - gc.losses(to="old") >= 0.0,
    ]
    compiled, counts = data.measured(*rules)
    truth = compiled.values(functionals_of(compiled, counts))
    labels, sexes, data.region = data.y, data.sex, data.region[:100]
    covered, known = np.zeros(len(rules)), np.zeros(len(rules))
    for _ in range(60):
        at = rng.integers(0, labels.size, 100)
        data.y, data.sex = labels[at], sexes[at]
        data.weight = rng.gamma(4.0, size=100) if weighted else None
        decide()
        low, high = constraint_intervals(*data.measured(*rules)).T
        known += ~np.isnan(low)
        covered += (low <= truth) & (truth <= high)
        assert (np.isnan(low) | (low < high)).all(), "a sample is not certain"
    assert (covered / known >= 0.9).all()


def test_what_never_happened_is_not_taken_for_impossible():
    """Small groups without an event, and quotients without a loss, have intervals with a width.

    Five rows without an error prove no F1 of 0.9.
    """
    data = Data(3, n=120)
    data.decided = data.y.copy()  # no error in any group
    data.decided[(data.region == "a") & (data.y == 1)] = 0
    data.other = np.where(np.arange(120) < 6, 1 - data.y, data.decided)  # wins, and no loss
    few = {"by": "region", "min_group_size": 1}
    rules = [
        gc.each(gc.fpr(), **few) <= 0.5,
        gc.gap(gc.fpr(), **few) <= 0.1,
        gc.ratio(gc.fpr(), **few, slack=0.01) >= 0.8,
        gc.ratio(gc.tpr(), **few) >= 0.8,
        gc.wins(over="old") / gc.losses(to="old") >= 1.0,
        gc.fpr(on={"region": "a"}) - 0.5 * gc.fpr() <= 0.1,
        gc.fpr(on={"region": "a"}) + gc.fpr(on={"region": "b"}) <= 0.1,
    ]
    compiled, counts = data.measured(*rules)
    ends = constraint_intervals(compiled, counts)
    values = compiled.values(functionals_of(compiled, counts))
    assert ((ends[:, 0] <= values) & (values <= ends[:, 1])).all()
    assert (ends[:, 1] > ends[:, 0]).all()
    # The limit of the smallest group, and of wins in all contests.
    n = min(((data.region == r) & (data.y == 0)).sum() for r in "abc")
    highest = float(clopper_pearson(0, n)[1])
    assert ends[0] == pytest.approx([0.0, highest])
    contests = (data.other != data.decided).sum()
    low = clopper_pearson(contests, contests)[0]
    assert ends[4] == pytest.approx([low / (1 - low), np.inf])
    data = Data(3, n=5)
    data.decided = data.y = np.array([0, 0, 1, 1, 1])
    low = clopper_pearson(3, 3)[0]
    assert constraint_intervals(*data.measured(gc.f1() >= 0.9))[0] == pytest.approx(
        [2 * low / (1 + low), 1.0]
    )
    data.decided = np.zeros(5, dtype=int)
    high = clopper_pearson(0, 3)[1]
    assert constraint_intervals(*data.measured(gc.f1() >= 0.9))[0] == pytest.approx(
        [0.0, 2 * high / (1 + high)]
    )


def test_a_signed_difference_that_is_far_from_zero_folds_to_its_size():
    """Both signs give the same interval, above zero."""
    data = Data(0, n=500)
    ends = []
    for chosen in ("F", "M"):
        data.decided = ((data.sex == chosen) ^ (np.arange(500) % 7 == 0)).astype(int)
        ends.append(constraint_intervals(*data.measured(by(gc.selection_rate()) <= 0.1))[0])
    np.testing.assert_allclose(ends[0], ends[1], atol=1e-12)
    assert 0.5 < ends[0][0] < ends[0][1] < 1.0


def test_weights_scale_out_and_unequal_ones_widen_intervals():
    data = Data(2)
    rules = [gc.fpr() <= 0.3, by(gc.tpr()) <= 0.3, gc.precision() >= 0.5, gc.f1() >= 0.5]
    compiled, counts = data.measured(*rules)
    plain = constraint_intervals(compiled, counts)
    for factor in (0.01, 3.0):
        data.weight = np.full(200, factor)
        same, scaled = data.measured(*rules)
        np.testing.assert_allclose(constraint_intervals(same, scaled), plain, rtol=1e-9)
        np.testing.assert_allclose(
            row_p_values(same, scaled), row_p_values(compiled, counts), rtol=1e-9
        )
    data.weight = np.where(np.arange(200) % 2, 1.0, 9.0)
    compiled, counts = data.measured(*rules)
    negatives = data.weight[data.y == 0]
    n = negatives.sum() ** 2 / (negatives**2).sum()
    expected = clopper_pearson(functionals_of(compiled, counts)[0] * n, n)
    np.testing.assert_allclose(constraint_intervals(compiled, counts)[0], expected, rtol=1e-9)


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


SINGLE = gc.mean_residual() <= 1.0
DRAWS = 500


def intervals(rules, targets, score, groups=None, weight=None, level=0.95):
    return hold_out(targets, rules, groups, weight).intervals(score, level)


def half_of(values, share):
    """Half the width of an interval, by the effective number of equal deviations (Kish).

    There is at least one degree of freedom.
    """
    deviation = share * (values - share @ values)
    square = deviation @ deviation
    effective = square**2 / np.sum(deviation**4)
    return stats.t.isf(0.025, max(effective - 1, 1)) * np.sqrt(square)


@pytest.mark.parametrize("n", [10, 60, 400])
@pytest.mark.parametrize("level", [0.8, 0.95])
def test_a_mean_of_a_sample_of_equal_deviations_has_students_interval(n, level):
    """Deviations of one size leave all n rows to the effective number."""
    residual = np.where(np.arange(n) % 2 == 0, 1.0, -1.0) + 0.3
    _, found, _ = intervals([SINGLE], residual, np.zeros(n), level=level)
    factor = stats.t.isf((1 - level) / 2, n - 1)
    half = factor * residual.std() / np.sqrt(n)
    np.testing.assert_allclose(found[0], [0.3 - half, 0.3 + half], rtol=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_a_normal_sample_has_nearly_the_interval_of_a_t_test(seed):
    """The effective number is below n, and the empirical variance has n in its denominator."""
    residual = np.random.default_rng(seed).normal(0.4, 2.0, 300)
    _, found, _ = intervals([SINGLE], residual, np.zeros(300))
    expected = stats.ttest_1samp(residual, 0.0).confidence_interval(0.95)
    np.testing.assert_allclose(found[0].mean(), residual.mean(), rtol=1e-12)
    assert np.diff(found[0])[0] == pytest.approx(expected.high - expected.low, rel=0.02)


def test_large_samples_have_the_normal_interval():
    residual = np.random.default_rng(0).normal(size=20_000)
    _, found, _ = intervals([SINGLE], residual, np.zeros(20_000))
    half = stats.norm.isf(0.025) * residual.std() / np.sqrt(20_000)
    np.testing.assert_allclose(np.diff(found[0]), 2 * half, rtol=1e-3)


def test_intervals_are_of_the_function_that_a_rule_names():
    rng = np.random.default_rng(0)
    y, f = rng.normal(size=(2, 500))
    rules = [
        gc.mean_loss("squared") <= 9,
        gc.mean_prediction() <= 9,
        gc.share_above(0.5) <= 0.9,
        gc.coverage() <= 0.9,
    ]
    values = [(y - f) ** 2, f, f > 0.5, y <= f]
    functionals, found, of_functionals = intervals(rules, y, f)
    for value, functional, interval in zip(values, functionals, found, strict=True):
        assert functional == pytest.approx(np.mean(value), rel=1e-12)
        assert interval.mean() == pytest.approx(np.mean(value), rel=1e-9)
        half = half_of(value, np.full(500, 1 / 500))
        assert np.diff(interval)[0] == pytest.approx(2 * half, rel=1e-9)
    np.testing.assert_allclose(found[:2], of_functionals[:2])


def test_a_repeated_row_counts_once_where_it_has_a_weight():
    """Weight is no number of rows: ten rows of weight 100 leave a mean of ten rows."""
    residual = np.random.default_rng(1).normal(size=10)
    _, light, _ = intervals([SINGLE], residual, np.zeros(10))
    _, heavy, _ = intervals([SINGLE], residual, np.zeros(10), weight=np.full(10, 100.0))
    np.testing.assert_allclose(heavy, light, rtol=1e-12)
    uneven = np.where(np.arange(10) < 2, 100.0, 1.0)
    _, few, _ = intervals([SINGLE], residual, np.zeros(10), weight=uneven)
    half = half_of(residual, uneven / uneven.sum())
    assert np.diff(few[0])[0] == pytest.approx(2 * half, rel=1e-9)


def test_one_row_has_an_interval_of_no_width():
    """A deviation of one row from its own mean says nothing, as for counted losses."""
    _, found, _ = intervals([SINGLE], [2.0], np.zeros(1))
    np.testing.assert_allclose(found[0], [2.0, 2.0])


SIZES = {"few": 8, "some": 30, "unequal": 90}
GROUPS = {name: (np.arange(n) < n // 4).astype(int) for name, n in SIZES.items()}


def uniform(rng, group):
    return rng.uniform(size=group.size)


def normal(rng, group):
    return rng.normal(1.0 + group, 1.0 + group)


APART = gc.gap(gc.mean_prediction(), by="g", min_group_size=1) <= 1.0
DIFFERENCE = gc.mean_prediction(on={"g": 1}) - gc.mean_prediction(on={"g": 0}) <= 2.0
COVERED = {
    "mean of 8": (gc.mean_prediction(on={"g": 0}) <= 9.0, normal, "few", 1.0),
    "mean of 30": (gc.mean_prediction(on={"g": 0}) <= 9.0, normal, "some", 1.0),
    "loss": (gc.mean_loss("absolute") <= 9.0, uniform, "some", 0.5),
    "square": (gc.mean_loss("squared") <= 9.0, uniform, "some", 1 / 3),
    "share": (gc.share_above(0.3) <= 1.0, uniform, "unequal", 0.7),
    "gap": (APART, normal, "unequal", 1.0),
    "difference": (DIFFERENCE, normal, "unequal", 1.0),
}


@pytest.mark.parametrize("is_weighted", [False, True])
@pytest.mark.parametrize("name", COVERED)
def test_intervals_cover_the_true_value(name, is_weighted):
    """As often as they say, within three standard errors of the simulation; targets are zero."""
    rule, sample, size, truth = COVERED[name]
    rng = np.random.default_rng(0)
    group = GROUPS[size]
    weight = rng.uniform(0.5, 1.5, group.size) if is_weighted else None
    rows = hold_out(np.zeros(group.size), [rule], group, weight)
    hits = 0
    for _ in range(DRAWS):
        low, high = rows.intervals(sample(rng, group))[1][0]
        hits += low <= truth <= high
    nominal = 0.95
    assert hits / DRAWS >= nominal - 3 * np.sqrt(nominal * (1 - nominal) / DRAWS)


def test_a_sum_of_gaps_has_the_interval_of_its_normal_groups():
    """With two groups and one sign, the sum of two gaps of a mean is twice a normal difference."""
    rng = np.random.default_rng(0)
    groups = np.repeat(["a", "b"], 400)
    score = rng.normal(size=800) + np.where(groups == "a", 1.0, 0.0)
    gap = gc.gap(gc.mean_prediction(), by="g")
    _, found, _ = intervals([gap + gap <= 1.0], np.zeros(800), score, groups)
    first, second = score[groups == "a"], score[groups == "b"]
    error = np.sqrt(first.var() / 400 + second.var() / 400)
    middle = 2.0 * (first.mean() - second.mean())
    expected = middle + 2.0 * error * np.array([-1.96, 1.96])
    np.testing.assert_allclose(found[0], expected, atol=0.02)


# Probability of the positive class, given the probability of the model.
POPULATIONS = {
    "calibrated": lambda p: p,
    "too small": lambda p: expit(logit(p) + 0.6),
    "too extreme": lambda p: expit(0.5 * logit(p)),
    "half": lambda p: np.where(p > 0.5, p, 0.7 * p),
}
SHARE = np.linspace(0.0005, 0.9995, 20_000)


def truth_of(share, bins=10):
    """Find the error of a population of uniform probabilities."""
    residuals = np.bincount(find_bins(SHARE, bins), share(SHARE) - SHARE, bins)
    return np.abs(residuals / SHARE.size).sum()


def measure(rules, y, p, columns=None, weight=None):
    rows = Rows(y, np.arange(2), weight, columns or {})
    cells, compiled = compile_constraints(rules, rows)
    scored = ScoredDecisions((p > 0.5).astype(np.intp), probability=p)
    return measure_rows(cells, compiled, scored)


@pytest.mark.parametrize("name", POPULATIONS)
@pytest.mark.parametrize("n", [200, 1500])
def test_intervals_cover_the_population(name, n):
    """Of 200 samples at level 0.95 the binomial 99.9% range of misses is 2 to 22."""
    share, rng, found = POPULATIONS[name], np.random.default_rng(0), []
    truth = truth_of(share)
    for _ in range(200):
        p = rng.random(n)
        y, at = (rng.random(n) < share(p)).astype(int), find_bins(p, 10)
        means, squares = (np.bincount(at, (y - p) ** k, 10) / n for k in (1, 2))
        found.append(estimate_error(means, np.sqrt((squares - means**2) / n), 0.95))
    corrected, low, high = np.array(found).T
    assert ((low > truth) | (truth > high)).sum() <= 22
    # Half of the width is less than four times that of a sum of known signs.
    assert (high - low).mean() < 4.0 * 2.0 * 1.96 * np.sqrt(np.mean(SHARE * (1 - SHARE)) / n)
    assert np.abs(corrected.mean() - truth) < 0.6 * np.sqrt(10 * 0.25 / n)


@pytest.mark.parametrize("compare", [each, gap])
def test_intervals_of_groups_cover_the_population(compare):
    rng, missed = np.random.default_rng(1), 0
    shares = {"a": POPULATIONS["calibrated"], "b": POPULATIONS["too small"]}
    errors = [truth_of(share) for share in shares.values()]
    truth = max(errors) if compare is each else np.ptp(errors)
    for _ in range(60):
        p, group = rng.random(800), rng.choice(["a", "b"], 800)
        share = np.where(group == "a", shares["a"](p), shares["b"](p))
        y = (rng.random(800) < share).astype(int)
        rules = [compare(calibration_error(), by="g") <= 0.1]
        low, high = measure(rules, y, p, {"g": group}).sampled.constraints[0]
        missed += not low <= truth <= high
    assert missed <= 9  # The binomial 99.9% range ends there.


def test_the_error_of_a_mean_residual_is_that_of_a_weighted_mean():
    rng = np.random.default_rng(2)
    p, weight, group = rng.random(300), rng.gamma(2.0, size=300), rng.choice(["a", "b"], 300)
    y = (rng.random(300) < p).astype(int)
    rules = [each(calibration_error(bins=3), by="g") <= 0.1]
    measured = measure(rules, y, p, {"g": group}, weight)
    for k, (g, b) in enumerate((g, b) for g in "ab" for b in range(3)):
        at = group == g
        values, w = ((y - p) * (find_bins(p, 3) == b))[at], weight[at]
        mean = w @ values / w.sum()
        error = np.sqrt((w**2 * (values - mean) ** 2).sum()) / w.sum()
        half = stats.norm.isf(0.025) * error
        assert measured.functionals[k] == pytest.approx(mean, abs=1e-12)
        np.testing.assert_allclose(
            measured.sampled.functionals[k], [mean - half, mean + half], rtol=0, atol=1e-12
        )


def test_the_interval_of_a_bin_far_from_zero_is_that_of_a_mean():
    corrected, low, high = estimate_error(np.array([0.3]), np.array([0.01]), 0.95)
    assert high == pytest.approx(0.3 + 1.96 * 0.01, abs=1e-4)
    assert low == pytest.approx(0.3 - 1.96 * 0.01, abs=1e-3)  # Its noise is drawn.
    assert corrected == pytest.approx(0.3, abs=1e-3)


def test_the_lower_end_leaves_out_what_is_noise():
    errors = np.full(10, 0.01)
    _, low, high = estimate_error(errors, errors, 0.95)  # Noise alone would give 0.08 in the mean.
    assert low == 0.0
    assert high == pytest.approx(0.1 + 1.96 * 0.01 * np.sqrt(10), abs=1e-4)
    assert np.isnan(estimate_error(np.full(2, np.nan), errors[:2], 0.95)).all()


def test_empty_groups_have_no_interval():
    y, p = np.arange(40) % 2, np.linspace(0.05, 0.95, 40)
    rows = Rows(y, np.arange(2), columns={"g": np.repeat(["a", "b"], 20)})
    rules = [gap(calibration_error(), by="g", min_group_size=1) <= 0.1]
    _, like = compile_constraints(rules, rows)
    some = rows.take(np.arange(20))
    cells, compiled = compile_constraints(rules, some, like)
    scored = ScoredDecisions(np.zeros(20, dtype=np.intp), probability=p[:20])
    measured = measure_rows(cells, compiled, scored)
    assert np.isnan(measured.values).all()
    assert np.isnan(measured.sampled.constraints).all()
    assert gc.calibration_error().range == (0.0, 1.0)
