"""Certificates: against exact references, published examples and simulated populations."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from gbm_constrained.constraints.grouped import overall
from gbm_constrained.constraints.rates import (
    accuracy,
    churn,
    class_error,
    confusion,
    each,
    error_rate,
    f1,
    fnr,
    fpr,
    gap,
    log_loss,
    losses,
    precision,
    ratio,
    recall,
    selection_rate,
    tnr,
    tpr,
    wins,
)
from gbm_constrained.data.cells import CellStatistics
from gbm_constrained.data.rows import Rows
from gbm_constrained.data.sensitive_features import columns_of
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.log_loss_form import as_losses
from gbm_constrained.statistics.binomial import clopper_pearson, newcombe_difference
from gbm_constrained.statistics.counts import CellCounts, functionals_of
from gbm_constrained.statistics.intervals import (
    constraint_intervals,
    functional_intervals,
    level_of_all,
)
from gbm_constrained.statistics.multiple_testing import learn_then_test
from gbm_constrained.statistics.order_statistics import (
    expected_bounds,
    expected_rank,
    fixed_sequence,
    holm,
    minimum_rows,
    umbrella_rank,
    umbrella_threshold,
)
from gbm_constrained.statistics.p_values import (
    constraint_p_values,
    hoeffding_bentkus_p_value,
    row_p_values,
    rows_beyond,
    rule_p_value,
)
from gbm_constrained.statistics.two_proportions import sum_p_value

DELTAS = np.array([0.01, 0.05, 0.1, 0.3])


def random(examples):
    return settings(derandomize=True, deadline=None, max_examples=examples)


class Data:
    """Random rows with groups and another model's decisions, and random decisions."""

    def __init__(self, seed=0, n=200, n_classes=2, weighted=False):
        rng = np.random.default_rng(seed)
        self.y = rng.integers(0, n_classes, n)
        self.sex = rng.choice(["F", "M"], n)
        self.region = rng.choice(["a", "b", "c"], n)
        self.other = rng.integers(0, n_classes, n)
        self.decided = np.where(rng.random(n) < 0.6, self.y, rng.integers(0, n_classes, n))
        self.weight = rng.gamma(2.0, size=n) if weighted else None
        self.classes = np.arange(n_classes)

    @property
    def rows(self):
        table = {"sex": self.sex, "region": self.region, "old": self.other}
        return Rows(self.y, self.classes, self.weight, columns_of(table, self.y.size))

    def measured(self, *rules):
        """Compiled constraints and counts."""
        cells, compiled = compile_constraints(rules, self.rows)
        return compiled, CellCounts.of(cells, self.decided)

    def p(self, *rules):
        return constraint_p_values(*self.measured(*rules))


def by(rate, name="sex", **options):
    return gap(rate, by=name, min_group_size=1, **options)


def binary_rules():
    old = "old"
    return [
        fpr() <= 0.2,
        tnr() >= 0.7,
        recall(1) >= 0.8,
        2 * fpr(on={"sex": "F"}) - 0.5 * fnr(on={"sex": "M"}) + 0.1 <= 0.3,
        selection_rate() - error_rate() <= 0.1,
        churn(to=old) <= 0.3,
        wins(over=old) - losses(to=old) >= 0.0,
        wins(over=old) / losses(to=old) >= 1.5,
        precision() >= 0.7,
        f1() >= 0.7,
        confusion(0, 1, normalize="pred") <= 0.3,
        confusion(1, 0, normalize="all") <= 0.3,
        by(tpr()) <= 0.2,
        by(tpr() - fpr(), "region") <= 0.5,
        by(accuracy(), "region", reference=overall) <= 0.2,
        ratio(selection_rate(), by="region", min_group_size=1) >= 0.6,
        each(fnr(), by="region", min_group_size=1) <= 0.4,
        *(error_rate(on=np.random.default_rng(i).random(200) < 0.5) <= 0.4 for i in range(14)),
    ]


# --- counts and parts ------------------------------------------------------------------------


@random(15)
@given(seed=st.integers(0, 2**32 - 1), weighted=st.booleans())
def test_parts_add_up_to_the_functionals(seed, weighted):
    """On rules of every form, in several views: sum of coefficient times fraction, + constant."""
    data = Data(seed, weighted=weighted)
    cells, compiled = compile_constraints(binary_rules(), data.rows)
    assert len(cells.views) > 1
    counts = CellCounts.of(cells, data.decided)
    np.testing.assert_allclose(counts.weight.sum(axis=1), cells.weight)
    np.testing.assert_allclose(counts.count.sum(axis=1), cells.count)
    predicted = counts.weight / np.maximum(cells.weight, 1e-300)[:, None]
    nothing = np.zeros(len(cells))
    expected = compiled.functionals(CellStatistics(predicted, nothing, nothing))
    found = [
        compiled.constant[k]
        + sum(
            part.coefficient
            * (counts.weight[part.cells] * part.event).sum()
            / counts.weight[part.cells].sum()
            for part in parts
        )
        for k, parts in enumerate(compiled.parts)
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(functionals_of(compiled, counts), expected, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("weighted", [False, True])
def test_counts_are_those_of_the_rows(weighted):
    data = Data(3, n_classes=4, weighted=weighted)
    cells, _ = compile_constraints([class_error(1) <= 0.2, selection_rate(2) <= 0.3], data.rows)
    w = data.weight if weighted else np.ones(200)
    if weighted:
        w[::5] = 0.0
    counts = CellCounts.of(cells, data.decided, w)
    for c in range(len(cells)):
        for k in range(4):
            own = (cells.codes == c) & (data.decided == k)
            assert counts.weight[c, k] == pytest.approx(w[own].sum())
            assert counts.square[c, k] == pytest.approx((w[own] ** 2).sum())
            assert counts.count[c, k] == (w[own] > 0).sum()


@pytest.mark.parametrize("weighted", [False, True])
def test_thresholds_are_counted_together_as_one_by_one(weighted):
    """In any order, with ties between scores and thresholds, and so are their p-values."""
    data = Data(1, weighted=weighted)
    rng = np.random.default_rng(0)
    scores, thresholds = np.round(rng.normal(size=200), 1), rng.permutation(11) / 5 - 1.0
    rules = [fpr() <= 0.2, precision() >= 0.4, f1() >= 0.3, by(selection_rate()) <= 0.3]
    cells, compiled = compile_constraints(rules, data.rows)
    together = CellCounts.at_thresholds(cells, scores, thresholds)
    p, f = row_p_values(compiled, together), functionals_of(compiled, together)
    for i, threshold in enumerate(thresholds):
        counts = CellCounts.of(cells, scores > threshold)
        for name in ("weight", "square", "count"):
            found = getattr(together, name)[i]
            np.testing.assert_allclose(found, getattr(counts, name), rtol=1e-12, atol=1e-9)
        np.testing.assert_allclose(p[i], row_p_values(compiled, counts), rtol=1e-9)
        np.testing.assert_allclose(f[i], functionals_of(compiled, counts), rtol=1e-9, atol=1e-12)
    assert rule_p_value(compiled, together).shape == (11,)
    assert expected_bounds(compiled, together).shape == (11, len(compiled))


def test_mean_losses_have_no_parts():
    """No interval, p-value 1: also of error rates that were turned into mean losses."""
    data = Data()
    rules = [log_loss() <= 0.5, fpr() <= 0.99, fpr() + log_loss() <= 2.0, by(log_loss()) <= 1.0]
    compiled, counts = data.measured(*rules)
    assert [p is None for p in compiled.parts] == [True, False, True, True, True]
    assert constraint_p_values(compiled, counts).tolist()[0::2] == [1.0, 1.0]
    assert constraint_p_values(compiled, counts)[1] < 1e-10
    assert rule_p_value(compiled, counts) == 1.0
    for ends in (constraint_intervals(compiled, counts), functional_intervals(compiled, counts)):
        assert np.isnan(ends[[0, 2, 3]]).all()
        assert np.isfinite(ends[1]).all()
    assert np.isnan(expected_bounds(compiled, counts)).tolist() == [True, False] + [True] * 3
    turned, _ = as_losses(data.measured(fnr() <= 0.9)[0], 2)
    assert turned.parts == (None,)
    assert row_p_values(turned, counts).tolist() == [1.0]


def test_what_these_rows_do_not_have_is_not_certified():
    """A group without rows, here or in its base set: p = 1 and no interval.

    Unless no decisions violate the rule.
    """
    data = Data(n=400)
    data.decided = data.y
    in_groups = each(fnr(), by="sex", min_group_size=1)
    rules = [in_groups <= 0.5, fnr() <= 0.5, in_groups <= 1.0]
    _, compiled = compile_constraints(rules, data.rows)
    men = data.sex == "M"
    rows = Rows(
        data.y[men], data.classes, None, {"sex": data.sex[men]}, like=data.rows
    )  # fmt: skip
    data.rows.attribute(("sex",))
    cells, here = compile_constraints(rules, rows, like=compiled)
    counts = CellCounts.of(cells, data.decided[men])
    assert constraint_p_values(here, counts)[0] == 1.0
    assert constraint_p_values(here, counts)[1] < 1e-9
    assert constraint_p_values(here, counts)[2] == 0.0
    assert np.isnan(functional_intervals(here, counts)[0]).all()
    compiled, counts = Data().measured(fpr() <= 1.0, by(fpr()) <= 0.5, precision() >= 0.1)
    nothing = CellCounts(*(np.zeros_like(t) for t in (counts.weight,) * 3))
    assert row_p_values(compiled, nothing).tolist() == [1.0] * len(compiled)
    assert expected_bounds(compiled, nothing).tolist() == [-np.inf] * len(compiled)


# --- intervals -------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [0.8, 0.95, 0.999])
def test_clopper_pearson_is_scipys(level):
    for n in (1, 7, 100, 20000):
        for events in {0, 1, n // 3, n - 1, n}:
            expected = stats.binomtest(events, n).proportion_ci(level, "exact")
            np.testing.assert_allclose(
                clopper_pearson(events, n, level), (expected.low, expected.high), atol=1e-11
            )
    assert np.isnan(clopper_pearson(0, 0)).all()


def test_clopper_pearson_covers():
    """By enumeration, at every probability of a grid."""
    n, p = 40, np.linspace(0.0, 1.0, 401)
    low, high = clopper_pearson(np.arange(n + 1), np.full(n + 1, n), 0.9)
    covered = (low <= p[:, None] + 1e-12) & (p[:, None] <= high + 1e-12)
    chance = (covered * stats.binom.pmf(np.arange(n + 1), n, p[:, None])).sum(axis=1)
    assert chance.min() >= 0.9 - 1e-12


@pytest.mark.parametrize(
    ("counts", "low", "high"),
    [
        ((56, 70, 48, 80), 0.0524, 0.3339),
        ((9, 10, 3, 10), 0.1705, 0.8090),
        ((6, 7, 2, 7), 0.0582, 0.8062),
        ((5, 56, 0, 29), -0.0381, 0.1926),
        ((0, 10, 0, 20), -0.1611, 0.2775),
        ((0, 10, 0, 10), -0.2775, 0.2775),
        ((10, 10, 0, 20), 0.6791, 1.0),
        ((10, 10, 0, 10), 0.6075, 1.0),
    ],
)
def test_newcombe_published_examples(counts, low, high):
    """Table II of the paper, method 10."""
    assert np.round(newcombe_difference(*counts), 4).tolist() == [low, high]
    assert np.isnan(newcombe_difference(*counts[:2], 0, 0)).all()


def test_newcombe_covers_about():
    """By enumeration: 0.95 on average and 0.92 at worst for moderate probabilities."""
    m, n = 40, 60
    i, j = np.mgrid[: m + 1, : n + 1]
    low, high = newcombe_difference(i, m, j, n)
    chances = []
    for p in np.linspace(0.05, 0.95, 19):
        for q in np.linspace(0.05, 0.95, 19):
            weight = np.outer(stats.binom.pmf(range(m + 1), m, p), stats.binom.pmf(j[0], n, q))
            chances.append(weight[(low <= p - q) & (p - q <= high)].sum())
    assert min(chances) > 0.92
    assert np.mean(chances) == pytest.approx(0.95, abs=0.01)


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
    wins_here, losses_here = wins(over="old"), losses(to="old")
    folded = (0.0, max(-d_low, d_high)) if d_low < 0 < d_high else sorted(
        (abs(d_low), abs(d_high))
    )  # fmt: skip
    difference = tpr(on={"sex": "F"}) - tpr(on={"sex": "M"})
    expected = {
        fpr() <= 0.5: (low, high),
        tnr() >= 0.5: (1 - high, 1 - low),
        0.2 - 3 * fpr() <= 0.1: (0.2 - 3 * high, 0.2 - 3 * low),
        difference <= 0.1: (d_low, d_high),
        2 * difference + 0.1 <= 0.5: (2 * d_low + 0.1, 2 * d_high + 0.1),
        tpr(on={"sex": "F"}) + fnr(on={"sex": "M"}) <= 1.0: (d_low + 1.0, d_high + 1.0),
        by(tpr()) <= 0.1: folded,
        by(fnr()) <= 0.1: folded,
        by(fnr(), reference="F") <= 0.1: folded,
        each(fpr(on={"sex": "F"}), by="old", min_group_size=1) <= 0.5: None,
        precision() >= 0.5: shares,
        confusion(0, 1, normalize="pred") <= 0.5: (1 - shares[1], 1 - shares[0]),
        f1() >= 0.5: 2 * jaccard / (1 + jaccard),
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

    rate = selection_rate()
    expected = {
        each(rate, **few) <= 0.5: [strict[:, 0].max(), at[:, 1].max()],
        each(rate, **few) >= 0.5: [at[:, 0].min(), strict[:, 1].min()],
        gap(rate, **few) <= 0.5: gap_of(pairs),
        gap(rate, **few, reference="b") <= 0.5: gap_of([p for p in pairs if 1 in p]),
        ratio(rate, **few) >= 0.5: [ratio_of(at, 0), ratio_of(strict, 1)],
    }
    found = constraint_intervals(*data.measured(*expected))
    for rule, ends, wanted in zip(expected, found, expected.values(), strict=True):
        np.testing.assert_allclose(ends, wanted, rtol=0, atol=1e-9, err_msg=str(rule))
        assert 0.0 < ends[0] < ends[1] < 1.0, "both ends are told"


def test_the_level_at_which_all_groups_hold():
    """Four groups, which have six pairs."""
    of_each, of_pairs = each(fpr(), by="g") <= 0.1, gap(fpr(), by="g") <= 0.1
    assert level_of_all(of_each, 4, 0.95) == pytest.approx(1 - 0.05 / 4, abs=1e-12)
    assert level_of_all(of_pairs, 4, 0.95) == pytest.approx(1 - 0.05 / 6, abs=1e-12)
    assert level_of_all(of_each, 1, 0.95) == pytest.approx(0.95, abs=1e-12)


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
    of_women = fpr(on={"sex": "F"})
    rules = [
        of_women - 0.5 * fpr() <= 0.1,
        0.3 - 2.0 * (of_women - 0.5 * fpr()) <= 0.1,
        of_women + 0.5 * tnr() <= 1.0,
        of_women - fpr(on={"sex": "F"}) + fpr() <= 0.5,  # what cancels is no part of it
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
        fpr(on=women) - 0.5 * fpr() <= 0.1, error_rate() + 0.5 * selection_rate() <= 0.5,
        0.7 * fpr(on=women) + 0.3 * fnr(on={"sex": "M"}) <= 0.5,
    ]  # fmt: skip
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
    net = wins(over="old") - losses(to="old")
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
    first, second = fpr(on={"sex": "F"}), fpr(on={"sex": "M"})
    rules = [
        first / second <= 1.2,
        (3.0 * first) / (2.0 * second) >= 0.5,
        (first - second) / second <= 0.2,
        second / first <= 1.2,
    ]
    found = constraint_intervals(*data.measured(*rules))
    expected = [wanted, 1.5 * wanted, wanted - 1.0, 1.0 / wanted[::-1]]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("weighted", [False, True])
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
        fnr() / (1 - fpr()) <= 0.5,
        tpr() / fpr() >= 2.0,
        fpr(on=of_women) / fpr(on=of_men) <= 1.2,
        selection_rate(on=of_women) / selection_rate() >= 0.8,
        wins(over="old") - losses(to="old") >= 0.0,
    ]
    compiled, counts = data.measured(*rules)
    truth = compiled.values(functionals_of(compiled, counts))
    labels, sexes, data.region = data.y, data.sex, data.region[:100]
    covered, told = np.zeros(len(rules)), np.zeros(len(rules))
    for _ in range(60):
        at = rng.integers(0, labels.size, 100)
        data.y, data.sex = labels[at], sexes[at]
        data.weight = rng.gamma(4.0, size=100) if weighted else None
        decide()
        low, high = constraint_intervals(*data.measured(*rules)).T
        told += ~np.isnan(low)
        covered += (low <= truth) & (truth <= high)
        assert (np.isnan(low) | (low < high)).all(), "a sample is not certain"
    assert (covered / told >= 0.9).all()


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
        each(fpr(), **few) <= 0.5,
        gap(fpr(), **few) <= 0.1,
        ratio(fpr(), **few, slack=0.01) >= 0.8,
        ratio(tpr(), **few) >= 0.8,
        wins(over="old") / losses(to="old") >= 1.0,
        fpr(on={"region": "a"}) - 0.5 * fpr() <= 0.1,
        fpr(on={"region": "a"}) + fpr(on={"region": "b"}) <= 0.1,
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
    assert constraint_intervals(*data.measured(f1() >= 0.9))[0] == pytest.approx(
        [2 * low / (1 + low), 1.0]
    )
    data.decided = np.zeros(5, dtype=int)
    high = clopper_pearson(0, 3)[1]
    assert constraint_intervals(*data.measured(f1() >= 0.9))[0] == pytest.approx(
        [0.0, 2 * high / (1 + high)]
    )


def test_a_signed_difference_that_is_far_from_zero_folds_to_its_size():
    """Both signs give the same interval, above zero."""
    data = Data(0, n=500)
    ends = []
    for chosen in ("F", "M"):
        data.decided = ((data.sex == chosen) ^ (np.arange(500) % 7 == 0)).astype(int)
        ends.append(constraint_intervals(*data.measured(by(selection_rate()) <= 0.1))[0])
    np.testing.assert_allclose(ends[0], ends[1], atol=1e-12)
    assert 0.5 < ends[0][0] < ends[0][1] < 1.0


def test_weights_scale_out_and_unequal_ones_widen_intervals():
    data = Data(2)
    rules = [fpr() <= 0.3, by(tpr()) <= 0.3, precision() >= 0.5, f1() >= 0.5]
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


# --- p-values against references -------------------------------------------------------------


@random(30)
@given(seed=st.integers(0, 2**32 - 1), bound=st.floats(0.02, 0.98))
def test_single_rates_have_the_exact_binomial_test(seed, bound):
    """From above and from below, of rates that are one minus another, and multiclass."""
    data = Data(seed)
    y, d = data.y, data.decided
    false = int((d[y == 0] == 1).sum()), int((y == 0).sum())
    missed = int((d[y == 1] == 0).sum()), int((y == 1).sum())
    both = int((d != data.other).sum()), 200
    p = data.p(
        fpr() <= bound, fpr() >= bound, tnr() >= 1 - bound, 3 * fnr() + 1 <= 3 * bound + 1,
        recall() >= bound, churn(to="old") <= bound,
    )  # fmt: skip
    expected = [
        stats.binomtest(*false, bound, "less").pvalue,
        stats.binomtest(*false, bound, "greater").pvalue,
        stats.binomtest(*false, bound, "less").pvalue,
        stats.binomtest(*missed, bound, "less").pvalue,
        stats.binomtest(missed[1] - missed[0], missed[1], bound, "greater").pvalue,
        stats.binomtest(*both, bound, "less").pvalue,
    ]
    np.testing.assert_allclose(p, expected, rtol=1e-7, atol=1e-12)
    data = Data(seed, n_classes=4)
    wrong = int((data.decided[data.y == 2] != 2).sum()), int((data.y == 2).sum())
    expected = stats.binomtest(*wrong, bound, "less").pvalue
    assert data.p(class_error(2) <= bound)[0] == pytest.approx(expected, rel=1e-7, abs=1e-12)


@random(20)
@given(seed=st.integers(0, 2**32 - 1), bound=st.floats(0.1, 0.9))
def test_quotients_of_two_kinds_of_rows_are_binomial_among_these(seed, bound):
    """Precision among the selected, F1 by Jaccard's index, wins among changes of two classes."""
    data = Data(seed)
    y, d, old = data.y, data.decided, data.other
    tp, fp, fn = (
        int((a & b).sum()) for a, b in [(y == 1, d == 1), (y == 0, d == 1), (y == 1, d == 0)]
    )
    won, lost = int(((y == d) & (y != old)).sum()), int(((y != d) & (y == old)).sum())
    p = data.p(
        precision() >= bound, confusion(0, 1, normalize="pred") <= bound, f1() >= bound,
        wins(over="old") / losses(to="old") >= 2 * bound,
    )  # fmt: skip
    expected = [
        stats.binomtest(tp, tp + fp, bound, "greater").pvalue,
        stats.binomtest(fp, tp + fp, bound, "less").pvalue,
        stats.binomtest(tp, tp + fp + fn, bound / (2 - bound), "greater").pvalue,
        stats.binomtest(won, won + lost, 2 * bound / (1 + 2 * bound), "greater").pvalue,
    ]
    np.testing.assert_allclose(p, expected, rtol=1e-7, atol=1e-12)


def test_nothing_selected_certifies_no_precision():
    data = Data()
    data.decided[:] = 0
    assert data.p(precision() >= 0.01, f1() >= 0.01).tolist()[0] == 1.0


def test_hoeffding_bentkus_by_hand():
    """Both terms, at values where each is the smaller; a part of an event counts as one."""
    n, bound = 100, 0.3
    smaller = set()
    for mean, events in ((0.0, 0), (0.07, 7), (0.073, 8), (0.0701, 8), (0.171, 18), (0.25, 25)):
        h = stats.entropy([mean, 1 - mean], [bound, 1 - bound])
        bentkus, hoeffding = np.e * stats.binom.cdf(events, n, bound), np.exp(-n * h)
        smaller.add(bool(bentkus < hoeffding))
        expected = min(1.0, hoeffding, bentkus)
        assert hoeffding_bentkus_p_value(mean, n, bound) == pytest.approx(expected, rel=1e-9)
    assert smaller == {True, False}
    assert hoeffding_bentkus_p_value([0.3, 0.5, 1.0], n, bound).tolist() == [1.0] * 3
    assert hoeffding_bentkus_p_value(0.0, 0, bound) == 1.0
    data = Data(4)
    difference = ((data.y != data.decided) & (data.y == data.other)).mean() - (
        (data.y == data.decided) & (data.y != data.other)
    ).mean()
    bound = round(difference + 0.15, 2)
    found = data.p(losses(to="old") - wins(over="old") <= bound)[0]
    expected = hoeffding_bentkus_p_value((difference + 1) / 2, 200, (bound + 1) / 2)
    assert 1e-4 < expected < 0.5
    assert found == pytest.approx(expected, rel=1e-9)


def test_means_of_two_groups_are_certified_when_hoeffdings_limits_meet_the_bound():
    """Scores of -1, 0 and 1 are no binomials: their limits are Hoeffding's at p / 2 each."""
    data = Data(11, n=2000)
    right, before = data.y == data.decided, data.y == data.other
    score = (before & ~right).astype(float) - (right & ~before)
    own = [score[data.sex == sex] for sex in "FM"]
    each_limit = sum(2.0 / np.sqrt(2.0 * x.size) for x in own)  # for one unit of log(2 / p)
    rule = by(losses(to="old") - wins(over="old")) <= 0.25
    compiled, counts = data.measured(rule)
    p = row_p_values(compiled, counts)
    apart = own[0].mean() - own[1].mean()
    expected = [2.0 * np.exp(-(((0.25 - d) / each_limit) ** 2)) for d in (apart, -apart)]
    assert max(expected) < 0.5
    assert sorted(p) == pytest.approx(sorted(expected), rel=1e-6)
    # Beyond doubt is a bound that the opposite limit is above.
    limit = abs(apart) - each_limit * np.sqrt(np.log(2.0 / 0.9))
    for bound, is_beyond in ((limit - 1e-6, True), (limit + 1e-6, False)):
        signed = losses(to="old", on={"sex": "F"}) - wins(over="old", on={"sex": "F"})
        signed -= losses(to="old", on={"sex": "M"}) - wins(over="old", on={"sex": "M"})
        rule = (signed if apart > 0 else -1 * signed) <= bound
        assert rows_beyond(*data.measured(rule), 0.9).tolist() == [is_beyond]


def test_unequal_weights_count_as_their_effective_number_beyond_doubt():
    data = Data(3, n=400, weighted=True)
    ends = []
    for sex, tail in (("F", 0), ("M", 1)):
        v = data.weight[data.sex == sex]
        n, rate = v.sum() ** 2 / (v**2).sum(), np.average(data.decided[data.sex == sex], weights=v)
        ends.append(clopper_pearson(rate * n, n, 0.5)[tail])
    limit = ends[0] - ends[1]  # at 0.25 on each side
    signed = selection_rate(on={"sex": "F"}) - selection_rate(on={"sex": "M"})
    for bound, is_beyond in ((limit - 1e-6, True), (limit + 1e-6, False)):
        assert rows_beyond(*data.measured(signed <= bound), 0.5).tolist() == [is_beyond]


def test_a_gap_to_everyone_is_certified_when_its_limits_meet_the_bound():
    """The p-value is the level at which upper minus lower limit is the bound exactly."""
    data = Data(11, n=2000)
    compiled, counts = data.measured(by(selection_rate(), reference=overall) <= 0.15)
    p = row_p_values(compiled, counts)
    women = data.sex == "F"
    of = [(data.decided[g].sum(), g.sum()) for g in (women, ~women, women | ~women)]
    pairs = [(of[i], of[j]) for i, j in ((0, 2), (2, 0), (1, 2), (2, 1))]
    assert ((p > 1e-12) & (p < 0.5)).all()
    for found in p:  # the limits of one of the pairs are apart by the bound at this level
        level = 1 - found  # two tails of p / 2 each are one of p / 2 on either side
        apart = [
            clopper_pearson(*first, level)[1] - clopper_pearson(*second, level)[0]
            for first, second in pairs
        ]
        assert min(abs(np.array(apart) - 0.15)) < 1e-9
    assert constraint_p_values(compiled, counts)[0] == p.max() == rule_p_value(compiled, counts)


def test_the_difference_of_two_groups_has_the_exact_test():
    """Of one rate and the other's complement, in both directions; scaled where rates are."""
    data = Data(11, n=2000)
    women = data.sex == "F"
    (a, m), (b, n) = ((data.decided[g].sum(), g.sum()) for g in (women, ~women))
    expected = [sum_p_value(a, m, n - b, n, 1.15), sum_p_value(b, n, m - a, m, 1.15)]
    p = row_p_values(*data.measured(by(selection_rate()) <= 0.15))
    assert p == pytest.approx(expected, rel=1e-9)
    smaller_share = ratio(selection_rate(), by="sex", min_group_size=1) >= 0.8
    expected = [
        sum_p_value(a, m, n - b, n, 1.0, 0.8, 1.0), sum_p_value(b, n, m - a, m, 1.0, 0.8, 1.0)
    ]  # fmt: skip
    p = row_p_values(*data.measured(smaller_share))
    assert sorted(p) == pytest.approx(sorted(expected), rel=1e-9)
    doubled = 2 * selection_rate(on={"sex": "F"}) - 2 * selection_rate(on={"sex": "M"}) <= 0.3
    difference = by(selection_rate()) <= 0.15
    p = [row_p_values(*data.measured(rule)) for rule in (doubled, difference)]
    assert p[0][0] == pytest.approx(p[1][0], rel=1e-9)


def test_a_weighted_rate_has_hoeffdings_p_value():
    data = Data(6, n=1000, weighted=True)
    w = data.weight[data.y == 0]
    rate = (w * data.decided[data.y == 0]).sum() / w.sum()
    n = w.sum() ** 2 / (w**2).sum()
    p = data.p(fpr() <= 0.3, 2 * fpr() <= 0.6, fpr(on={"sex": "F"}) - fpr(on={"sex": "M"}) <= 0.2)
    assert p[:2] == pytest.approx(np.exp(-2 * n * (0.3 - rate) ** 2), rel=1e-9)
    sizes, rates = [], []
    for sex in "FM":
        own = (data.y == 0) & (data.sex == sex)
        v = data.weight[own]
        sizes.append(v.sum() ** 2 / (v**2).sum())
        rates.append((v * data.decided[own]).sum() / v.sum())
    distance = 0.2 - (rates[0] - rates[1])
    expected = np.exp(-2 * distance**2 / (1 / sizes[0] + 1 / sizes[1]))
    assert p[2] == pytest.approx(expected, rel=1e-9)
    assert data.p(fpr() <= rate - 0.01)[0] == 1.0


def test_a_weighted_precision_has_hoeffdings_p_value():
    """What a row adds ranges from -0.6 to 0.4, selected wrongly or rightly: over one in all."""
    data = Data(6, n=300, weighted=True)
    w = data.weight
    estimate = np.average(data.decided * (0.6 - data.y), weights=w)
    expected = np.exp(-2 * estimate**2 * w.sum() ** 2 / (w**2).sum())
    assert estimate < 0
    assert 1e-4 < expected < 0.5
    assert data.p(precision() >= 0.6)[0] == pytest.approx(expected, rel=1e-9)


# --- p-values by simulation ------------------------------------------------------------------


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
    p = simulated(fpr() <= bound, [[bound], [0.5]], [[80], [20]], 20000)
    assert super_uniform(p)
    tails = stats.binom.cdf(range(81), 80, bound)
    for delta in DELTAS:
        attained = max(tails[tails <= delta], default=0.0)
        assert (p <= delta).mean() == pytest.approx(attained, abs=4 * np.sqrt(delta / 20000))


@pytest.mark.parametrize("low", [0.02, 0.4])
def test_a_gap_at_its_bound(low):
    p = simulated(by(fpr()) <= 0.2, [[low, low + 0.2], [0.5, 0.5]], [[40, 60], [1, 1]], 2000)
    assert super_uniform(p)
    p = simulated(by(fpr()) <= 0.2, [[low, low], [0.5, 0.5]], [[800, 900], [1, 1]], 200)
    assert (p <= 0.05).mean() > 0.95


def test_a_gap_to_everyone_at_its_bound():
    """The base sets overlap: 0.1 + 0.5 * (0.4 - 0.1) is 0.15 from either."""
    rule = by(selection_rate(), reference=overall) <= 0.15
    p = simulated(rule, [[0.1, 0.4]] * 2, [[30, 30]] * 2, 2000)
    assert super_uniform(p)


@pytest.mark.parametrize(
    ("rule", "table"),
    [
        (precision() >= 0.6, [[0.5, 0.16], [0.1, 0.24]]),
        (f1() >= 0.6, [[0.51, 0.15], [0.13, 0.21]]),
        (tpr() - 0.5 * fpr() >= 0.5, [[0.3, 0.3], [0.1, 0.3]]),
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
    rule = losses(to="old") - wins(over="old") <= 0.1
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
        (fpr() <= 0.3, 0.3),
        (fpr() >= 0.7, 0.7),
        (fpr(on={"sex": "F"}) - fpr(on={"sex": "M"}) <= 0.0, 0.5),
        (fpr(on={"sex": "F"}) - fpr() <= 0.0, 0.8),
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


@random(30)
@given(
    seed=st.integers(0, 2**32 - 1),
    weighted=st.booleans(),
    bound=st.floats(0.05, 0.6),
    step=st.floats(0.0, 0.3),
)
def test_p_values_fall_with_the_bound(seed, weighted, bound, step):
    """A looser rule is certified at least as surely, and more errors make none surer."""
    data = Data(seed, weighted=weighted)

    def rules(b):
        return [
            fpr() <= b, tpr() >= 1 - b, precision() >= 1 - b, by(selection_rate()) <= b,
            losses(to="old") - wins(over="old") <= b, by(fpr(), "region", reference="a") <= b,
            ratio(tpr(), by="sex", min_group_size=1) >= 1 - b,
        ]  # fmt: skip

    strict, loose = data.p(*rules(bound)), data.p(*rules(bound + step))
    assert (loose <= strict + 1e-9).all()
    assert ((strict >= 0) & (strict <= 1)).all()
    right = np.flatnonzero((data.y == 0) & (data.decided == 0))
    data.decided[right[:3]] = 1
    assert (data.p(*rules(bound))[[0, 2]] >= strict[[0, 2]] - 1e-12).all()


@pytest.mark.parametrize("weighted", [False, True])
def test_p_values_and_intervals_do_not_depend_on_the_order_of_rows(weighted):
    data = Data(9, weighted=weighted)
    rules = [rule for rule in binary_rules() if "mask" not in str(rule)]
    compiled, counts = data.measured(*rules)
    p, ends = row_p_values(compiled, counts), constraint_intervals(compiled, counts)
    order = np.random.default_rng(0).permutation(200)
    for name in ("y", "sex", "region", "other", "decided"):
        setattr(data, name, getattr(data, name)[order])
    data.weight = data.weight[order] if weighted else None
    compiled, counts = data.measured(*rules)
    np.testing.assert_allclose(row_p_values(compiled, counts), p, rtol=1e-7)
    np.testing.assert_allclose(constraint_intervals(compiled, counts), ends, rtol=0.05, atol=0.02)


# --- thresholds ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bound", "delta", "rows"), [(0.05, 0.05, 59), (0.1, 0.05, 29), (0.01, 0.05, 299)]
)
def test_the_fewest_rows(bound, delta, rows):
    """The numbers that are quoted; and they are the fewest."""
    assert minimum_rows(bound, delta) == rows == umbrella_rank(rows, bound, delta)
    message = rf"bound of {bound:g} cannot be certified .* on {rows - 1} rows: it needs {rows} at"
    with pytest.raises(ValueError, match=message):
        umbrella_rank(rows - 1, bound, delta)
    with pytest.raises(ValueError, match="bound must lie strictly between 0 and 1, got 1"):
        minimum_rows(1, delta)


@pytest.mark.parametrize("bound", [0.01, 0.05, 0.3, 0.8])
@pytest.mark.parametrize("delta", [0.01, 0.1, 0.5])
def test_the_rank_by_brute_force(bound, delta):
    fewest = minimum_rows(bound, delta)
    for n in (fewest, fewest + 1, fewest + 17, 1000):
        tails = stats.binom.sf(np.arange(n), n, 1 - bound)  # from k = 1 on
        expected = 1 + int(np.flatnonzero(tails <= delta)[0])
        assert umbrella_rank(n, bound, delta) == expected


@pytest.mark.parametrize("bound", [0.0, 1.0, -0.1, 1.1, np.nan, None, "x"])
def test_a_bound_in_expectation_is_a_probability(bound):
    message = f"bound must lie strictly between 0 and 1, got {bound!r}"
    with pytest.raises(ValueError, match=message):
        expected_rank(100, bound)


@pytest.mark.parametrize("n", [1, 9, 100])
def test_the_rank_in_expectation_by_exact_fractions(n):
    """``k >= (n + 1)(1 - bound)``, from the smallest score, where all bounds lie in (0, 1)."""
    for m in range(1, n + 1):
        assert expected_rank(n, m / (n + 1)) == n + 1 - m
    assert expected_rank(n, 1.0 - 1e-12) == 1
    with pytest.raises(ValueError, match=f"by {n} rows: it needs {n + 1} at least"):
        expected_rank(n, 1 / (n + 2))


def test_the_umbrella_threshold_is_the_lowest_certified_one():
    """By the exact p-values of the thresholds at each score; ties do no harm."""
    rng = np.random.default_rng(0)
    scores = rng.normal(size=300)
    threshold = umbrella_threshold(scores, 0.1, 0.05)
    above = (scores > scores[:, None]).sum(axis=1)
    p = np.array([stats.binomtest(int(e), 300, 0.1, "less").pvalue for e in above])
    assert threshold == scores[p <= 0.05].min()
    draws = np.floor(10 * rng.random((2000, 80)))  # the rate above t is 1 - (t + 1) / 10
    thresholds = [umbrella_threshold(d, 0.2, 0.1) for d in draws]
    assert np.mean(np.array(thresholds) < 7.0) <= 0.1 + 3 * np.sqrt(0.1 / 2000)
    with pytest.raises(ValueError, match="scores must be one-dimensional and not NaN"):
        umbrella_threshold([np.nan] * 100, 0.1, 0.05)


def test_expected_bounds_are_those_of_the_empirical_rate_plus_one():
    """``(n r + 1) / (n + 1) <= bound``, from above and below; gaps by both groups' slack."""
    data = Data(8)
    n = (data.y == 0).sum()
    rules = [fpr() <= 0.1, tnr() >= 0.9, by(fpr()) <= 0.1, by(2 * fpr()) <= 0.3]
    compiled, counts = data.measured(*rules)
    bounds = expected_bounds(compiled, counts)
    assert bounds[0] == pytest.approx((0.1 * (n + 1) - 1) / n)
    assert bounds[1] == pytest.approx(bounds[0] - 1.0)  # of minus the rate of true negatives
    sizes = [((data.y == 0) & (data.sex == sex)).sum() for sex in "FM"]
    slack = sum(1 / (n + 1) for n in sizes)
    assert bounds[2:4] == pytest.approx(0.1 - slack)
    assert bounds[4:] == pytest.approx(0.3 - 2 * slack)


def test_the_expected_threshold_holds_in_expectation():
    """Lowest threshold that meets the tightened bound: the mean of true rates is at most it."""
    rng = np.random.default_rng(0)
    n, bound = 50, 0.1
    compiled, counts = Data().measured(fpr() <= bound)
    table = np.zeros_like(counts.weight)
    table[0, 0] = n
    allowed = int(expected_bounds(compiled, CellCounts(table, table, table))[0] * n + 1e-9)
    scores = np.sort(rng.random((20000, n)), axis=1)
    rates = 1.0 - scores[:, n - 1 - allowed]
    assert rates.mean() <= bound + 3 * rates.std() / np.sqrt(20000)
    assert rates.mean() > 0.07
    plain = 1.0 - scores[:, n - 1 - int(bound * n)]
    assert plain.mean() > bound + 0.01


# --- several tests ---------------------------------------------------------------------------


def test_sequences_stop_at_the_first_failure():
    p = np.array([0.001, 0.02, 0.06, 0.001])
    assert fixed_sequence(p, 0.05).tolist() == [0, 1]
    assert fixed_sequence(p[::-1], 0.05).tolist() == [0]
    assert fixed_sequence(p, 0.0001).tolist() == []
    two = learn_then_test([p, p[::-1]], 0.05)
    assert two.tolist() == [[True, True, False, False], [True, False, False, False]]
    assert not learn_then_test([p, p], 0.03)[:, 1].any()
    assert fixed_sequence([0.01, np.nan, 0.01], 0.05).tolist() == [0]


def test_holm_by_hand():
    """Smallest of four against delta / 4, next against delta / 3, and so on."""
    assert holm([0.02, 0.012, 0.04, 0.3], 0.05).tolist() == [False, True, False, False]
    assert holm([0.016, 0.012, 0.024, 0.05], 0.05).tolist() == [True] * 4
    assert holm([0.013, 0.013, 0.001], 0.02).tolist() == [False, False, True]
    assert holm([0.013, 0.5], 0.02).tolist() == [False, False]  # not the second's share
    assert holm([], 0.05).tolist() == []


@pytest.mark.parametrize("procedure", ["sequence", "sequences", "holm"])
def test_the_chance_of_any_error_is_held(procedure):
    """Correlated p-values, of which the last six of ten are of true null hypotheses."""
    rng = np.random.default_rng(0)
    common = rng.normal(size=(20000, 1))
    z = 0.6 * common + 0.8 * rng.normal(size=(20000, 10)) - np.repeat([3.0, 0.0], [4, 6])
    p = stats.norm.cdf(z)
    if procedure == "sequence":
        certified = np.array([np.isin(np.arange(10), fixed_sequence(q, 0.1)) for q in p[:5000]])
    elif procedure == "sequences":
        certified = np.array([learn_then_test(q.reshape(2, 5), 0.1).ravel() for q in p[:5000]])
    else:
        certified = np.array([holm(q, 0.1) for q in p[:5000]])
    assert certified[:, 4:].any(axis=1).mean() <= 0.1 + 3 * np.sqrt(0.1 / 5000)
    assert certified[:, 0].mean() > 0.7


def test_a_gap_over_thresholds_is_certified_rightly():
    """Fixed sequence on thresholds from above: the lowest certified one holds, 0.9 of the time."""
    rng = np.random.default_rng(0)
    grid = np.linspace(3.0, 0.0, 16)
    truth = stats.norm.sf(grid - 0.5) - stats.norm.sf(grid)
    sex = np.repeat(["F", "M"], 200)
    rows = Rows(np.arange(400) % 2, np.arange(2), None, {"sex": sex})
    cells, compiled = compile_constraints([by(selection_rate()) <= 0.1], rows)
    violated = certified = 0
    for _ in range(200):
        scores = rng.normal(size=400) + 0.5 * (sex == "M")
        p = rule_p_value(compiled, CellCounts.at_thresholds(cells, scores, grid))
        found = fixed_sequence(p, 0.1)
        certified += found.size > 0
        violated += found.size > 0 and truth[found[-1]] > 0.1
    assert certified == 200
    assert violated <= 200 * 0.1 + 3 * np.sqrt(200 * 0.1)
