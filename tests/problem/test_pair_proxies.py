"""Both proxies of pair rates in the Lagrangian, against sums over all pairs of rows."""

from __future__ import annotations

import numpy as np
import pytest
from pair_references import PairData
from scipy.special import expit, log_softmax

import gbm_constrained as gc
from gbm_constrained import auc, cross_auc, gap, mean_rank

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
