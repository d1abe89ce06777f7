"""Compiled pair rates, gradients and step sizes against sums over all pairs, by proxy."""

from __future__ import annotations

import numpy as np
import pytest
from counted_data import random
from hypothesis import given
from hypothesis import strategies as st
from machines import run_on_machines
from pair_references import PairData, smooth
from scipy.special import expit, log_softmax, logit, softmax
from sklearn.metrics import roc_auc_score

import gbm_constrained as gc
from gbm_constrained import auc, cross_auc, each, gap, mean_rank, ratio
from gbm_constrained.data.exact_sums import Machine
from gbm_constrained.problem.compiler import compile_constraints

SMALL = {"min_group_size": 1}


@pytest.mark.parametrize("weighted", [False, True])
def test_auc_is_that_of_scikit_learn(weighted):
    data = PairData(weighted=weighted)
    expected = roc_auc_score(data.y, data.margin, sample_weight=data.weight)
    assert data.value(auc() >= 0.5) == pytest.approx(expected, abs=1e-12)
    assert data.value(auc(0) >= 0.5) == pytest.approx(expected, abs=1e-12)
    # A class is ranked by its own score: that of class 0 falls with the margin.
    assert data.value(auc(0, on={"sex": "F"}) >= 0.5) == pytest.approx(
        data.count((data.y == 1) & (data.sex == "F"), (data.y == 0) & (data.sex == "F")), abs=1e-12
    )


def sides(data, rate, inside):
    """The masks of both sides of a rate in one group, by hand."""
    positive, everyone = data.y == 1, np.ones(data.y.size, dtype=bool)
    return {
        "auc": (positive & inside, ~positive & inside),
        "cross": (positive & inside, ~positive & ~inside),
        "cross negatives": (positive & ~inside, ~positive & inside),
        "cross all": (positive & inside, ~positive),
        "rank": (inside, everyone),
        "rank of positives": (positive & inside, positive),
    }[rate]


RATES = {
    "auc": auc(),
    "cross": cross_auc(),
    "cross negatives": cross_auc(group="negatives"),
    "cross all": cross_auc(background="all"),
    "rank": mean_rank(),
    "rank of positives": mean_rank(on=gc.label(1)),
}


@random(30)
@given(st.integers(0, 10_000), st.sampled_from([*RATES]), st.sampled_from(["sex", "region"]))
def test_functionals_of_groups(seed, name, by):
    data = PairData(seed)
    column = getattr(data, by)
    expected = [data.count(*sides(data, name, column == g)) for g in np.unique(column)]
    rule = gap(RATES[name], by=by, **SMALL) <= 0.1
    np.testing.assert_allclose(data.functionals(rule), expected, rtol=0, atol=1e-12)
    assert data.value(rule) == pytest.approx(np.ptp(expected), abs=1e-12)
    worst = each(RATES[name], by=by, **SMALL) >= 0.1
    assert data.value(worst) == pytest.approx(min(expected), abs=1e-12)
    quotient = ratio(RATES[name], by=by, **SMALL) >= 0.1
    assert data.value(quotient) == pytest.approx(min(expected) / max(expected), abs=1e-12)


def test_identities_of_the_metrics():
    """Examples 1, 2, 4 and 5 of the source paper, with two groups."""
    data = PairData(3)
    F, positive = data.sex == "F", data.y == 1
    group_auc = data.count(F, ~F)
    rule = gap(mean_rank(), by="sex", **SMALL) <= 0.1
    assert data.value(rule) == pytest.approx(abs(group_auc - 0.5), abs=1e-12)
    equality = gap(mean_rank(on=gc.label(1)), by="sex", reference=gc.overall, **SMALL) <= 0.1
    *of_groups, of_all = data.functionals(equality)
    assert of_all == pytest.approx(0.5, abs=1e-12)
    assert of_groups[0] == pytest.approx(data.count(positive & F, positive), abs=1e-12)
    background = auc(negatives={"sex": "F"}) - auc(positives={"sex": "F"}) <= 0.1
    expected = data.count(positive, ~positive & F) - data.count(positive & F, ~positive)
    assert data.value(background) == pytest.approx(expected, abs=1e-12)
    # With the complement as background, the two sides of one group are the inter-group pairs.
    crossed = data.functionals(gap(cross_auc(), by="sex", **SMALL) <= 0.1)
    assert crossed[0] == pytest.approx(data.count(positive & F, ~positive & ~F), abs=1e-12)
    assert crossed[1] == pytest.approx(data.count(positive & ~F, ~positive & F), abs=1e-12)


def test_masks_and_views_beside_other_rates():
    """Rates in one fit share views; cells that no pair rate tells apart are one part."""
    data = PairData(4)
    mask = np.random.default_rng(0).random(data.y.size) < 0.6
    rules = [
        gap(auc(), by="sex", **SMALL) <= 0.1,
        gap(gc.fpr(), by="region", **SMALL) <= 0.1,
        auc(on=mask) >= 0.5,
        gc.log_loss() <= 0.5,
    ]
    lagrangian = data.lagrangian(*rules)
    compiled = lagrangian.constraints
    statistics = lagrangian.at(data.margin).statistics()
    found = compiled.values(compiled.functionals(statistics))
    positive = data.y == 1
    groups = data.sex == "F", data.sex == "M"
    of_sex = [data.count(positive & own, ~positive & own) for own in groups]
    assert found[0] == pytest.approx(abs(of_sex[0] - of_sex[1]), abs=1e-12)
    assert found[2] == pytest.approx(data.count(positive & mask, ~positive & mask), abs=1e-12)
    alone = data.lagrangian(rules[1], rules[3])
    others = alone.constraints.values(
        alone.constraints.functionals(alone.at(data.margin).statistics())
    )
    np.testing.assert_allclose(found[[1, 3]], others, rtol=0, atol=1e-12)
    assert sum(block.n_parts for block in compiled.pair_blocks) <= 8


@pytest.mark.parametrize("change", ["order", "groups", "constant", "weights", "repetition"])
def test_invariances(change):
    data, rng = PairData(5), np.random.default_rng(0)
    rules = [gap(rate, by="sex", **SMALL) <= 0.1 for rate in RATES.values()]
    before = data.functionals(*rules)
    if change == "order":
        order = rng.permutation(data.y.size)
        for name in ("y", "sex", "region", "weight", "margin"):
            setattr(data, name, getattr(data, name)[order])
    elif change == "groups":
        data.sex = np.where(data.sex == "F", "a", "b")
    elif change == "constant":
        data.margin = data.margin + 0.5
    elif change == "weights":
        data.weight = 2 * data.weight
    else:
        data.weight = rng.integers(0, 3, data.y.size).astype(float)
        before = data.functionals(*rules)
        times = data.weight.astype(int)
        for name in ("y", "sex", "region", "margin"):
            setattr(data, name, np.repeat(getattr(data, name), times))
        data.weight = None
    np.testing.assert_allclose(data.functionals(*rules), before, rtol=0, atol=1e-12)


def test_tables_of_many_rows_are_from_bins_in_training():
    data = PairData(6, n=60_000)
    data.margin = np.random.default_rng(0).normal(size=data.y.size)
    lagrangian = data.lagrangian(gap(auc(), by="region", **SMALL) <= 0.1)
    exact = lagrangian.rows.pairs.tables(data.margin)
    binned = lagrangian.at(data.margin).statistics().pairs
    np.testing.assert_allclose(binned, exact, rtol=0, atol=1e-5)
    assert not np.array_equal(binned, exact)


def smooth_value(data, margin, multipliers, rules):
    """The smoothed rules, weighted by their multipliers, by all pairs."""
    total, at = 0.0, iter(multipliers)
    for name, by in rules:
        column = getattr(data, by)
        rates = [
            data.count(*sides(data, name, column == g), margin, smooth) for g in np.unique(column)
        ]
        for i in range(len(rates)):
            for j in range(len(rates)):
                if i != j:
                    total += next(at) * (rates[i] - rates[j])
    return total


OF_SEVERAL = {"auc": auc(1), "cross": cross_auc(1), "rank": mean_rank(1)}


@pytest.mark.parametrize(
    ("n_classes", "name"), [*((2, name) for name in RATES), *((3, name) for name in OF_SEVERAL)]
)
def test_gradients_are_those_of_smoothed_pairs(n_classes, name):
    data = PairData(7, n=60, n_classes=n_classes)
    rate = (RATES if n_classes == 2 else OF_SEVERAL)[name]
    rules = [gap(rate, by="sex", **SMALL) <= 0.1, gap(rate, by="region", **SMALL) <= 0.1]
    lagrangian = data.lagrangian(*rules)
    multipliers = np.random.default_rng(1).gamma(1.0, size=len(lagrangian.constraints))
    bare = lagrangian.at(data.margin).gradient(np.zeros(multipliers.size))[0].copy()
    gradient, hessian = (x.copy() for x in lagrangian.at(data.margin).gradient(multipliers))
    found = (gradient - bare) / lagrangian.total_weight

    def value(margin):
        p = softmax(margin, axis=1)[:, 1] if n_classes > 2 else None
        score = margin if p is None else logit(p)
        return smooth_value(data, score, multipliers, [(name, "sex"), (name, "region")])

    h = 1e-5
    for i in (0, 7, 21, 40):
        for k in range(1 if n_classes == 2 else 3):
            at = (i,) if n_classes == 2 else (i, k)
            step = np.zeros_like(data.margin)
            step[at] = h
            numeric = (value(data.margin + step) - value(data.margin - step)) / (2 * h)
            assert found[at] == pytest.approx(numeric, rel=1e-3, abs=2e-7)
    assert (hessian >= np.abs(gradient - bare) - 1e-9).all()


def test_the_value_has_the_gradient():
    """Up to the constant of ties, the Lagrangian's value is the smoothed one."""
    data = PairData(8, n=80)
    rules = [gap(auc(), by="sex", **SMALL) <= 0.1]
    lagrangian = data.lagrangian(*rules)
    multipliers = np.array([0.7, 0.2])
    at = lagrangian.at(data.margin)
    pairs = at.value(multipliers) - at.value(np.zeros(2))
    expected = smooth_value(data, data.margin, multipliers, [("auc", "sex")])
    assert pairs == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("name", [*RATES])
def test_lipschitz_constants_bound_changes(name):
    data = PairData(9)
    lagrangian = data.lagrangian(gap(RATES[name], by="region", **SMALL) <= 0.1)
    own, coupled = lagrangian.constants.lipschitz()
    rng = np.random.default_rng(2)
    largest = np.zeros(own.size)
    for size in (0.01, 0.1, 1.0):
        for _ in range(20):
            start = size * rng.normal(size=data.margin.size)
            end = start + size * rng.normal(size=data.margin.size)
            moved = [
                abs(
                    lagrangian.rows.pairs.value(row, end) - lagrangian.rows.pairs.value(row, start)
                )
                for row in np.eye(own.size)
            ]
            largest = np.maximum(largest, moved / np.sqrt(2 * lagrangian.bregman(end, start)))
    assert (largest <= own * (1 + 1e-9)).all()
    assert (own > 0).all()
    assert coupled >= 1.0


def test_constant_scores_and_empty_parts():
    data = PairData(10)
    data.margin = np.zeros(data.y.size)
    rules = [auc() >= 0.5, gap(mean_rank(), by="sex", **SMALL) <= 0.1]
    np.testing.assert_allclose(data.functionals(*rules), 0.5, rtol=0, atol=1e-12)
    lagrangian = data.lagrangian(*rules)
    gradient, _ = lagrangian.at(data.margin).gradient(np.ones(3))
    assert np.isfinite(gradient).all()
    part = lagrangian.cells.take(np.flatnonzero(data.sex == "F"))
    left = lagrangian.constraints.on(part)
    assert left.is_known.tolist() == [True, False, False]


def test_several_machines_are_refused():
    def compile_part(communicator):
        rows = PairData().rows
        rows.machine = Machine(communicator)
        compile_constraints([auc() >= 0.5], rows)

    with pytest.raises(ValueError, match="train on one machine"):
        run_on_machines(compile_part, 2)


PROXIES = ("auto", "square")
STEPS = {"auto": expit, "square": lambda u: 0.5 * (u + 1.0) ** 2}


def rules(label):
    return [
        gap(auc(label), by="sex", min_group_size=1) <= 0.1,
        gap(cross_auc(label), by="sex", min_group_size=1) <= 0.1,
        gap(mean_rank(label), by="region", min_group_size=1) <= 0.1,
    ]


def pair_mass(data, label):
    """What each ordered pair of rows adds to each row of the rules, (m, n, n), opposites net."""
    weight = np.ones(data.y.size) if data.weight is None else data.weight
    positive = data.y == label

    def mass(first, second):
        table = np.outer(weight * first, weight * second)
        return table / table.sum()

    groups = [data.sex == "F", data.sex == "M"]
    sides = [
        [mass(positive & own, ~positive & own) for own in groups],
        [mass(positive & own, ~positive & ~own) for own in groups],
        [mass(data.region == name, np.ones(data.y.size)) for name in "abc"],
    ]
    tables = [a - b for rates in sides for a in rates for b in rates if a is not b]
    return np.array([np.maximum(table - table.T, 0.0) for table in tables])


def scores_of(margin, label):
    if margin.ndim == 1:
        return margin
    of_label = log_softmax(margin, axis=1)[:, label]
    return of_label - np.log1p(-np.exp(of_label))


@pytest.fixture(params=[2, 3], ids=["two classes", "three classes"])
def case(request):
    """Rows, the label that is ranked, and multipliers of which opposite ones are not alike."""
    data = PairData(11, n=70, n_classes=request.param)
    multipliers = np.random.default_rng(1).gamma(1.0, size=10)
    return data, 1, multipliers


@pytest.mark.parametrize("proxy", PROXIES)
def test_the_value_is_the_sum_over_all_pairs(case, proxy):
    data, label, multipliers = case
    lagrangian = data.lagrangian(*rules(label), proxy=proxy)
    moved = data.margin + np.random.default_rng(2).normal(size=data.margin.shape)
    mass = np.tensordot(multipliers, pair_mass(data, label), 1)
    found, expected = [], []
    for margin in (data.margin, moved):
        at = lagrangian.at(margin)
        found.append(at.value(multipliers) - at.value(np.zeros(10)))
        score = scores_of(margin, label)
        expected.append((mass * STEPS[proxy](score[:, None] - score)).sum())
    # Values are known up to a constant: opposite entries of the table of pairs add up to one.
    assert found[1] - found[0] == pytest.approx(
        expected[1] - expected[0], abs=1e-5 if proxy == "auto" else 1e-10
    )


@pytest.mark.parametrize("proxy", PROXIES)
def test_derivatives_are_differences(case, proxy):
    """Gradients of the sum over all pairs, and Hessian products of the gradient."""
    data, label, multipliers = case
    lagrangian = data.lagrangian(*rules(label), proxy=proxy)
    mass = np.tensordot(multipliers, pair_mass(data, label), 1)
    zeros, rng = np.zeros(10), np.random.default_rng(3)

    def slow(margin):
        score = scores_of(margin, label)
        at = lagrangian.at(margin)
        return at.value(zeros) + (mass * STEPS[proxy](score[:, None] - score)).sum()

    gradient, curvature = (x.copy() for x in lagrangian.at(data.margin).gradient(multipliers))
    assert (curvature >= 0).all()
    h, tolerance = 1e-5, 1e-4 if proxy == "auto" else 1e-7
    for _ in range(5):
        u = rng.normal(size=data.margin.shape)
        expected = (slow(data.margin + h * u) - slow(data.margin - h * u)) / (2 * h)
        found = (gradient * u).sum() / lagrangian.total_weight
        assert found == pytest.approx(expected, abs=tolerance)

    # Differences of interpolated densities are those of a table: a wider step averages over it.
    h, tolerance = (3e-2, 3e-3) if proxy == "auto" else (1e-5, 1e-6)
    u = rng.normal(size=data.margin.shape)
    up, down = (
        lagrangian.at(data.margin + d * u).gradient(multipliers)[0].copy() for d in (h, -h)
    )
    expected = (up - down) / (2 * h)
    product = lagrangian.at(data.margin).hessian_product(multipliers, u)
    np.testing.assert_allclose(product, expected, rtol=0, atol=tolerance * np.abs(expected).max())


def test_opposite_surrogates_do_not_cancel():
    data = PairData(12, n=60)
    rule = gap(auc(), by="sex", min_group_size=1) <= 0.1
    both = np.array([1.0, 1.0])
    for proxy, cancels in (("auto", True), ("square", False)):
        lagrangian = data.lagrangian(rule, proxy=proxy)
        bare = lagrangian.at(data.margin).gradient(np.zeros(2))[0].copy()
        gradient, _ = lagrangian.at(data.margin).gradient(both)
        assert np.allclose(gradient, bare, rtol=0, atol=1e-12) == cancels


@pytest.mark.parametrize("proxy", ["logistic", "sigmoid", "ramp"])
def test_pair_rates_have_the_density_under_the_proxies_of_other_rates(proxy):
    data = PairData(12, n=60)
    found = [
        data.lagrangian(auc() >= 0.6, proxy=name).at(data.margin).gradient(np.ones(1))
        for name in ("auto", proxy)
    ]
    np.testing.assert_array_equal(*found)


def test_other_rates_have_the_proxies_of_auto_beside_the_square():
    data = PairData(13, n=60)
    others = [gc.selection_rate() <= 0.3, gc.fnr() <= 0.3]
    found = [
        data.lagrangian(auc() >= 0.6, *others, proxy=proxy).rows.is_bounded.tolist()
        for proxy in PROXIES
    ]
    assert found[0] == found[1]
    assert found[0][1:] == [True, False]


def test_slopes_are_geometric_means_of_those_of_rate_and_proxy():
    data = PairData(14, n=60)
    margin = 2 * data.margin
    rule = gap(cross_auc(), by="sex", min_group_size=1) <= 0.1
    density, square = (data.lagrangian(rule, proxy=proxy).rows.pairs for proxy in PROXIES)
    positive, F = data.y == 1, data.sex == "F"
    cells = [positive & F, positive & ~F, ~positive & F, ~positive & ~F]
    means = [np.average(margin[c], weights=data.weight[c]) for c in cells]
    largest = [
        max(
            np.average((margin[c] - m + sign) ** 2, weights=data.weight[c])
            for m in means[:i] + means[i + 1 :]
            for sign in (-1, 1)
        )
        for i, c in enumerate(cells)
    ]
    of_rate = density.slopes(margin)
    assert (of_rate <= 0.25).all()
    at = of_rate > 0
    found = square.slopes(margin)[at] ** 2 / of_rate[at]
    np.testing.assert_allclose(np.sort(found), np.sqrt(sorted(largest)), rtol=1e-10)

    # Scores that are close together: the proxy is flat, and the rate is not.
    centred = margin - np.average(margin, weights=data.weight)
    width = np.sqrt(np.average(centred**2, weights=data.weight)) / 2
    near = density.slopes(1e-3 * margin / width)[at]
    steep = density.slopes(margin / width)[at]
    np.testing.assert_allclose(near, np.sqrt(0.25 * steep * 1e3), rtol=1e-5)
    assert density.slopes(np.zeros(margin.size))[at] == pytest.approx(0.25)


@pytest.mark.parametrize("solver", [gc.solvers.ABPP, gc.solvers.AutoSolver])
def test_the_square_is_refused_without_a_pair_rate(solver):
    data = PairData(15, n=60)
    method = solver(proxy="square")
    method.check()
    method.check_problem(data.lagrangian(auc() >= 0.5, gc.fnr() <= 0.2).constraints)
    with pytest.raises(ValueError, match="proxy='square' is a surrogate of pair rates"):
        method.check_problem(data.lagrangian(gc.fnr() <= 0.2).constraints)
