"""p-values of constraints, bounded means among them, and rows that are violated beyond doubt."""

from __future__ import annotations

import numpy as np
import pytest
from counted_data import DELTAS, Data, binary_rules, by, random
from hypothesis import given
from hypothesis import strategies as st
from predicted_rows import hold_out
from scipy import stats

import gbm_constrained as gc
from gbm_constrained.data.cells import Cells
from gbm_constrained.data.rows import Rows
from gbm_constrained.decision.evaluation_set import EvaluationSet
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.statistics.binomial import Binomial, clopper_pearson, sum_p_value
from gbm_constrained.statistics.counts import CellCounts, functionals_of
from gbm_constrained.statistics.intervals import constraint_intervals
from gbm_constrained.statistics.p_values import (
    BoundedMeans,
    constraint_p_values,
    find_violated_rows,
    hoeffding_bentkus_p_value,
    row_p_values,
)


@random(15)
@given(seed=st.integers(0, 2**32 - 1), bound=st.floats(0.02, 0.98))
def test_single_rates_have_the_exact_binomial_test(seed, bound):
    """From above and from below, of rates that are one minus another, and multiclass."""
    data = Data(seed)
    y, d = data.y, data.decided
    false = int((d[y == 0] == 1).sum()), int((y == 0).sum())
    missed = int((d[y == 1] == 0).sum()), int((y == 1).sum())
    both = int((d != data.other).sum()), 200
    p = data.p(
        gc.fpr() <= bound,
        gc.fpr() >= bound,
        gc.tnr() >= 1 - bound,
        3 * gc.fnr() + 1 <= 3 * bound + 1,
        gc.recall() >= bound,
        gc.churn(to="old") <= bound,
    )
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
    assert data.p(gc.class_error(2) <= bound)[0] == pytest.approx(expected, rel=1e-7, abs=1e-12)


@random(10)
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
        gc.precision() >= bound,
        gc.confusion(0, 1, normalize="pred") <= bound,
        gc.f1() >= bound,
        gc.wins(over="old") / gc.losses(to="old") >= 2 * bound,
    )
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
    assert data.p(gc.precision() >= 0.01, gc.f1() >= 0.01).tolist()[0] == 1.0


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
    found = data.p(gc.losses(to="old") - gc.wins(over="old") <= bound)[0]
    expected = hoeffding_bentkus_p_value((difference + 1) / 2, 200, (bound + 1) / 2)
    assert 1e-4 < expected < 0.5
    assert found == pytest.approx(expected, rel=1e-9)


def test_a_gap_to_everyone_is_certified_when_its_limits_meet_the_bound():
    """The p-value is the level at which upper minus lower limit is the bound exactly."""
    data = Data(11, n=2000)
    compiled, counts = data.measured(by(gc.selection_rate(), reference=gc.overall) <= 0.15)
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
    assert constraint_p_values(compiled, counts).tolist() == [p.max()]


def test_the_difference_of_two_groups_has_the_exact_test():
    """Of one rate and the other's complement, in both directions; scaled where rates are."""
    data = Data(11, n=2000)
    women = data.sex == "F"
    (a, m), (b, n) = ((data.decided[g].sum(), g.sum()) for g in (women, ~women))
    expected = [
        sum_p_value(Binomial(a, m), Binomial(n - b, n), 1.15),
        sum_p_value(Binomial(b, n), Binomial(m - a, m), 1.15),
    ]
    p = row_p_values(*data.measured(by(gc.selection_rate()) <= 0.15))
    assert p == pytest.approx(expected, rel=1e-9)
    smaller_share = gc.ratio(gc.selection_rate(), by="sex", min_group_size=1) >= 0.8
    expected = [
        sum_p_value(Binomial(a, m, 0.8), Binomial(n - b, n), 1.0),
        sum_p_value(Binomial(b, n, 0.8), Binomial(m - a, m), 1.0),
    ]
    p = row_p_values(*data.measured(smaller_share))
    assert sorted(p) == pytest.approx(sorted(expected), rel=1e-9)
    doubled = (
        2 * gc.selection_rate(on={"sex": "F"}) - 2 * gc.selection_rate(on={"sex": "M"}) <= 0.3
    )
    difference = by(gc.selection_rate()) <= 0.15
    p = [row_p_values(*data.measured(rule)) for rule in (doubled, difference)]
    assert p[0][0] == pytest.approx(p[1][0], rel=1e-9)


def test_a_weighted_rate_has_hoeffdings_p_value():
    data = Data(6, n=1000, weighted=True)
    w = data.weight[data.y == 0]
    rate = (w * data.decided[data.y == 0]).sum() / w.sum()
    n = w.sum() ** 2 / (w**2).sum()
    p = data.p(
        gc.fpr() <= 0.3,
        2 * gc.fpr() <= 0.6,
        gc.fpr(on={"sex": "F"}) - gc.fpr(on={"sex": "M"}) <= 0.2,
    )
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
    assert data.p(gc.fpr() <= rate - 0.01)[0] == 1.0


def test_a_weighted_precision_has_hoeffdings_p_value():
    """What a row adds ranges from -0.6 to 0.4, selected wrongly or rightly: over one in all."""
    data = Data(6, n=300, weighted=True)
    w = data.weight
    estimate = np.average(data.decided * (0.6 - data.y), weights=w)
    expected = np.exp(-2 * estimate**2 * w.sum() ** 2 / (w**2).sum())
    assert estimate < 0
    assert 1e-4 < expected < 0.5
    assert data.p(gc.precision() >= 0.6)[0] == pytest.approx(expected, rel=1e-9)


@random(15)
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
            gc.fpr() <= b,
            gc.tpr() >= 1 - b,
            gc.precision() >= 1 - b,
            by(gc.selection_rate()) <= b,
            gc.losses(to="old") - gc.wins(over="old") <= b,
            by(gc.fpr(), "region", reference="a") <= b,
            gc.ratio(gc.tpr(), by="sex", min_group_size=1) >= 1 - b,
        ]

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


N = 200
RNG = np.random.default_rng(0)
TARGETS = RNG.uniform(0.0, 1.0, N)
SCORES = np.clip(TARGETS + RNG.normal(0.0, 0.1, N), 0.0, 1.0)
GROUPS = RNG.integers(0, 2, N)
SQUARED, ABSOLUTE = (TARGETS - SCORES) ** 2, np.abs(TARGETS - SCORES)
ABOVE = SCORES > 0.5
MEMBERS = [np.flatnonzero(GROUPS - 1), np.flatnonzero(GROUPS)]


def p_value_of(rule, targets=TARGETS, scores=SCORES, groups=GROUPS, weight=None):
    rows = hold_out(targets, [rule], groups, weight)
    (p,) = BoundedMeans(rows.cells, rows.compiled).p_values(rows.row_values(scores))
    return p


def hoeffding_bentkus(mean, n, bound):
    """The definition, term by term: Bates et al. (2021), section 3.1."""
    a = min(mean, bound)
    h = a * np.log(a / bound) + (1 - a) * np.log((1 - a) / (1 - bound))
    return min(np.exp(-n * h), np.e * stats.binom.cdf(np.ceil(n * mean), n, bound))


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (
            gc.mean_loss("squared", range=(0, 2)) <= 0.03,
            hoeffding_bentkus(SQUARED.mean() / 2.0, N, 0.015),
        ),
        (
            gc.mean_residual(range=(-1, 1)) >= -0.1,
            hoeffding_bentkus((1.0 + (SCORES - TARGETS).mean()) / 2.0, N, 0.55),
        ),
        (
            gc.each(gc.mean_loss("absolute", range=(0, 1)), by="g") <= 0.13,
            max(hoeffding_bentkus(ABSOLUTE[at].mean(), at.size, 0.13) for at in MEMBERS),
        ),
        (
            gc.mean_loss("squared", range=(0, 1)) + 2 * gc.mean_loss("absolute", range=(0, 1))
            <= 0.5,
            hoeffding_bentkus((SQUARED + 2 * ABSOLUTE).mean() / 3.0, N, 0.5 / 3.0),
        ),
        (gc.share_above(0.5) <= 0.6, stats.binom.cdf(ABOVE.sum(), N, 0.6)),
        (gc.coverage() >= 0.4, stats.binom.cdf(np.sum(TARGETS > SCORES), N, 0.6)),
        (
            gc.gap(gc.share_above(0.5), by="g") <= 0.3,
            max(
                sum_p_value(
                    Binomial(ABOVE[at].sum(), at.size, 1.0),
                    Binomial((~ABOVE)[other].sum(), other.size, 1.0),
                    1.3,
                )
                for at, other in (MEMBERS, MEMBERS[::-1])
            ),
        ),
        (gc.mean_loss("squared", range=(0, 1)) <= 1.0, 0.0),
    ],
)
def test_p_values_are_those_of_the_definition(rule, expected):
    assert p_value_of(rule) == pytest.approx(expected, rel=1e-9, abs=1e-15)


def test_two_base_sets_share_delta():
    """Limits at p / 2 of both groups, by Hoeffding, add up to the bound."""
    p = p_value_of(gc.gap(gc.mean_prediction(range=(0, 1)), by="g") <= 0.3)
    means = [SCORES[at].mean() for at in MEMBERS]
    limit = sum(np.sqrt(-np.log(p / 2) / (2 * at.size)) for at in MEMBERS)
    assert abs(means[1] - means[0]) + limit == pytest.approx(0.3, abs=1e-9)


def test_unequal_weights_have_hoeffdings_bound():
    weight = np.where(GROUPS == 1, 3.0, 1.0)
    p = p_value_of(gc.mean_loss("absolute", range=(0, 1)) <= 0.15, weight=weight)
    share = weight / weight.sum()
    assert p == pytest.approx(np.exp(-2 * (0.15 - share @ ABSOLUTE) ** 2 / (share @ share)))
    assert p_value_of(
        gc.mean_loss("absolute", range=(0, 1)) <= 0.15, weight=np.full(N, 3.0)
    ) == pytest.approx(p_value_of(gc.mean_loss("absolute", range=(0, 1)) <= 0.15))


def test_amounts_are_tested_by_their_excess_over_the_bound():
    """E[a (loss - b)] <= 0, where a (loss - b) + C b lies between 0 and C."""
    amounts = np.where(GROUPS == 1, 4.0, 1.0)
    rule = gc.mean_loss("absolute", range=(0, 1), weight="g", cap=5.0) <= 0.2
    mean = 0.2 + (amounts * (ABSOLUTE - 0.2)).mean() / 5.0
    assert p_value_of(rule, groups=amounts) == pytest.approx(hoeffding_bentkus(mean, N, 0.2))


def test_values_outside_of_their_range_are_counted_where_they_are():
    """Rows of weight zero and of another group do not count."""
    rule = gc.mean_loss("absolute", range=(0, 1), on={"g": 1}) <= 0.5
    scores, groups = np.array([0.5, 2.5, 4.0, 9.0, 9.0]), np.array([1, 1, 1, 1, 0])
    rows = hold_out(np.zeros(5), [rule], groups, np.array([1.0, 1.0, 1.0, 0.0, 1.0]))
    tests, values = BoundedMeans(rows.cells, rows.compiled), rows.row_values(scores)
    ((position, limits, outside),) = tests.find_outside(values)
    assert (position, limits, outside.tolist()) == (0, (0.0, 1.0), [2.5, 4.0])
    assert tests.p_values(values).tolist() == [1.0]
    assert tests.find_outside(rows.row_values(np.full(5, 0.5))) == []


def test_the_smallest_p_value_is_that_of_the_best_predictions():
    rules = [
        gc.mean_loss("squared", range=(0, 4)) <= 0.1,
        gc.gap(gc.mean_prediction(range=(0, 1)), by="g") <= 0.3,
        gc.mean_residual(range=(-1, 1)) <= 0.1,
        gc.mean_residual(range=(-1, 1)) >= -0.1,
    ]
    rows = hold_out(TARGETS, rules, GROUPS)
    smallest = BoundedMeans(rows.cells, rows.compiled).smallest_p_values()
    assert smallest[0] == pytest.approx(hoeffding_bentkus_p_value(0.0, N, 0.025))
    alike = p_value_of(rules[1], scores=np.full(N, 0.5))
    assert smallest[1] == pytest.approx(alike)
    # Both sides of the residual are certified at once, and no better than in their middle.
    assert smallest[2] == smallest[3] == pytest.approx(hoeffding_bentkus_p_value(0.5, N, 0.55))


@pytest.mark.parametrize("is_extreme", [True, False])
def test_a_mean_at_its_bound_is_certified_as_rarely_as_delta_says(is_extreme):
    """A thousand samples at the bound; values at both ends of the range vary most."""
    rng, delta, repetitions, n = np.random.default_rng(1), 0.1, 1000, 100
    rows = hold_out(np.zeros(n), [gc.mean_prediction(range=(0, 2)) <= 0.6])
    tests = BoundedMeans(rows.cells, rows.compiled)
    draws = rng.random((repetitions, n))
    scores = 2.0 * (draws < 0.3) if is_extreme else 1.2 * draws
    wrong = sum(tests.p_values(rows.row_values(score))[0] <= delta for score in scores)
    assert wrong <= stats.binom.isf(1e-4, repetitions, delta)


def unseen(rules, y, sensitive=None, classes=None, weight=None):
    columns = {name: np.asarray(v) for name, v in (sensitive or {}).items()}
    classes = np.unique(y) if classes is None else classes
    rows = Rows(y, classes, weight, columns)
    return EvaluationSet(*compile_constraints(rules, rows), "test")


def count_calls(function):
    """Calls of a function that remembers its results, since it last forgot them."""
    found = function.cache_info()
    return found.hits + found.misses


def test_rows_beyond_doubt_are_the_opposite_of_certificates():
    rng = np.random.default_rng(6)
    n = 600
    y, g = rng.integers(0, 2, n), rng.integers(0, 2, n).astype(str)
    decided = np.where(rng.random(n) < 0.7, y, 1 - y)
    skewed = (rng.random(n) < np.where(g == "1", 0.8, 0.2)).astype(int)
    sensitive = {"g": g}
    undecided = open_to_limits = 0
    for bound in np.linspace(0.02, 0.98, 97):
        high = unseen([gc.fnr() <= bound, gc.precision() <= bound], y, sensitive)
        low = unseen([gc.fnr() >= bound, gc.precision() >= bound], y, sensitive)
        counts = CellCounts.of(high.cells, decided)
        opposite = row_p_values(low.compiled, CellCounts.of(low.cells, decided))
        np.testing.assert_array_equal(
            find_violated_rows(high.compiled, counts, 0.025), opposite <= 0.025
        )
        undecided += ((opposite > 0.025) & (opposite <= 0.05)).sum()
        # Two groups: the exact test that one of them is higher by as much, either way round.
        apart = unseen([gc.gap(gc.selection_rate(), by="g") <= bound], y, sensitive)
        counts = CellCounts.of(apart.cells, skewed)
        first, second = (gc.selection_rate(on={"g": k}) for k in "01")
        signed = unseen([first - second >= bound, second - first >= bound], y, sensitive)
        opposite = row_p_values(signed.compiled, CellCounts.of(signed.cells, skewed))
        found = find_violated_rows(apart.compiled, counts, 0.025)
        assert sorted(found) == sorted(opposite <= 0.025)
        ends = [clopper_pearson(skewed[g == k].sum(), (g == k).sum(), 0.975) for k in "01"]
        open_to_limits += found.any() and ends[1][0] - ends[0][1] <= bound
    assert undecided, "no p-value is near the level, so that nothing is proved"
    assert open_to_limits, "limits of each group refute as much, so that nothing is proved"


def test_two_rates_are_beyond_doubt_as_their_exact_test_says():
    """Whatever is counted: what limits settle before it, one way or the other, it agrees with."""
    wrong = np.arange(31)
    weight = np.zeros((31 * 31, 2, 2))
    weight[:, 0, 1], weight[:, 1, 0] = np.repeat(wrong, 31), np.tile(wrong, 31)
    weight[:, 0, 0], weight[:, 1, 1] = 30 - weight[:, 0, 1], 30 - weight[:, 1, 0]
    counts = CellCounts(weight, weight, weight)
    for bound in (0.3, 0.9):
        rows, opposite = (
            unseen([rule], np.repeat([0, 1], 30))
            for rule in (gc.fpr() + gc.fnr() <= bound, gc.fpr() + gc.fnr() >= bound)
        )
        p = row_p_values(opposite.compiled, counts)
        for level in (0.025, 1e-4):
            np.testing.assert_array_equal(
                find_violated_rows(rows.compiled, counts, level), p <= level
            )


def test_of_the_pairs_of_groups_the_furthest_is_tested():
    """One exact test for each decision at most, and none where limits refute the gap."""
    rng = np.random.default_rng(4)
    y, g = rng.integers(0, 2, 1200), rng.integers(0, 4, 1200).astype(str)
    rows = unseen([gc.gap(gc.selection_rate(), by="g") <= 0.02, gc.fnr() <= 0.4], y, {"g": g})
    margin = rng.normal(size=1200) + 0.35 * (g == "0") + 0.3 * (g == "1")
    counts = CellCounts.at_thresholds(rows.cells, margin, np.linspace(-2.0, 2.0, 81))
    of_gap = rows.compiled.owner == 0
    sum_p_value.cache_clear()
    every = find_violated_rows(rows.compiled, counts, 0.002)
    n_every = count_calls(sum_p_value)
    sum_p_value.cache_clear()
    levels = np.full(len(rows.compiled), 0.002)
    one = find_violated_rows(rows.compiled, counts, levels, one_test_each=True)
    n_one = count_calls(sum_p_value)
    np.testing.assert_array_equal(one[:, of_gap].any(axis=1), every[:, of_gap].any(axis=1))
    np.testing.assert_array_equal(one[:, ~of_gap], every[:, ~of_gap])
    selected = margin > np.linspace(-2.0, 2.0, 81)[:, None]
    ends = np.array(
        [clopper_pearson(selected[:, g == k].sum(axis=1), (g == k).sum(), 0.998) for k in "0123"]
    )  # by group, end and decision
    by_limits = ends[:, 0].max(axis=0) - ends[:, 1].min(axis=0) > 0.02
    assert 0 < n_one <= (~by_limits).sum()
    assert n_one < n_every
    assert by_limits.any()
    assert (one[:, of_gap].any(axis=1) & ~by_limits).any()


@pytest.mark.parametrize("weighted", [pytest.param(False, marks=pytest.mark.slow), True])
def test_constraints_that_hold_are_seldom_doubted(weighted):
    """At their bound in the population, rows are beyond doubt at the level at most."""
    rng = np.random.default_rng(8)
    n, repeats, doubted = 400, 200, np.zeros(4)
    for _ in range(repeats):
        y, g = rng.integers(0, 2, n), rng.integers(0, 2, n)
        wrong = rng.random(n) < np.where(g == 1, 0.3, 0.2)
        decided = np.where(wrong, 1 - y, y)
        rules = [gc.error_rate(on={"g": "1"}) <= 0.3, gc.gap(gc.error_rate(), by="g") <= 0.1,
                 gc.precision(on={"g": "0"}) >= 0.8]  # fmt: skip
        weight = rng.uniform(0.5, 1.5, n) if weighted else None
        rows = unseen(rules, y, {"g": g.astype(str)}, weight=weight)
        beyond = find_violated_rows(rows.compiled, CellCounts.of(rows.cells, decided), 0.025)
        doubted += beyond
    assert (doubted / repeats <= 0.025 + 2.5 * np.sqrt(0.025 / repeats)).all()


def test_cells_without_rows_are_not_beyond_doubt():
    rows = unseen([gc.fpr(on={"g": "x"}) <= 0.1], np.array([0, 1, 0, 1]), {"g": list("xxyy")})
    nobody = rows.cells.take(np.array([2, 3]))
    assert isinstance(nobody, Cells)
    assert not find_violated_rows(
        rows.compiled, CellCounts.of(nobody, np.ones(2, int)), 0.025
    ).any()


@pytest.mark.parametrize(
    "rule", [gc.fnr() <= 0.0, gc.tpr() >= 1.0, gc.accuracy() >= 1.0, gc.tpr() + gc.tnr() >= 2.0]
)
def test_constraints_at_the_end_of_their_range_are_broken_by_an_error_and_not_without(rule):
    y = np.repeat([0, 1], 200)
    rows = unseen([rule], y)
    for wrong in (0, 1, 150):  # of 200 rows of class 1
        decided = np.where(np.arange(400) < 200 + wrong, 0, 1)
        found = find_violated_rows(rows.compiled, CellCounts.of(rows.cells, decided), 0.025)
        assert found.tolist() == [wrong > 0]


def test_means_of_two_groups_are_certified_when_hoeffdings_limits_meet_the_bound():
    """Scores of -1, 0 and 1 are no binomials: their limits are Hoeffding's at p / 2 each."""
    data = Data(11, n=2000)
    right, before = data.y == data.decided, data.y == data.other
    score = (before & ~right).astype(float) - (right & ~before)
    own = [score[data.sex == sex] for sex in "FM"]
    each_limit = sum(2.0 / np.sqrt(2.0 * x.size) for x in own)  # for one unit of log(2 / p)
    rule = by(gc.losses(to="old") - gc.wins(over="old")) <= 0.25
    compiled, counts = data.measured(rule)
    p = row_p_values(compiled, counts)
    apart = own[0].mean() - own[1].mean()
    expected = [2.0 * np.exp(-(((0.25 - d) / each_limit) ** 2)) for d in (apart, -apart)]
    assert max(expected) < 0.5
    assert sorted(p) == pytest.approx(sorted(expected), rel=1e-6)
    # Beyond doubt is a bound that the opposite limit is above.
    limit = abs(apart) - each_limit * np.sqrt(np.log(2.0 / 0.9))
    for bound, is_beyond in ((limit - 1e-6, True), (limit + 1e-6, False)):
        signed = gc.losses(to="old", on={"sex": "F"}) - gc.wins(over="old", on={"sex": "F"})
        signed -= gc.losses(to="old", on={"sex": "M"}) - gc.wins(over="old", on={"sex": "M"})
        rule = (signed if apart > 0 else -1 * signed) <= bound
        assert find_violated_rows(*data.measured(rule), 0.9).tolist() == [is_beyond]


def test_unequal_weights_count_as_their_effective_number_beyond_doubt():
    data = Data(3, n=400, weighted=True)
    ends = []
    for sex, tail in (("F", 0), ("M", 1)):
        v = data.weight[data.sex == sex]
        n, rate = v.sum() ** 2 / (v**2).sum(), np.average(data.decided[data.sex == sex], weights=v)
        ends.append(clopper_pearson(rate * n, n, 0.5)[tail])
    limit = ends[0] - ends[1]  # at 0.25 on each side
    signed = gc.selection_rate(on={"sex": "F"}) - gc.selection_rate(on={"sex": "M"})
    for bound, is_beyond in ((limit - 1e-6, True), (limit + 1e-6, False)):
        assert find_violated_rows(*data.measured(signed <= bound), 0.5).tolist() == [is_beyond]
