"""Mean residuals of bins, and their gradients, against loops over rows and finite differences."""

from __future__ import annotations

import numpy as np
import pytest
from counted_data import random
from hypothesis import given
from hypothesis import strategies as st
from lagrangians import build
from scipy.special import expit, logit
from sklearn.calibration import calibration_curve

import gbm_constrained as gc
from gbm_constrained import calibration_error, each, gap
from gbm_constrained.data.rows import Rows
from gbm_constrained.problem.compiler import compile_constraints

SMALL = {"min_group_size": 1}


def draw(seed, n=60, *, weighted=True):
    rng = np.random.default_rng(seed)
    y, margin = rng.integers(0, 2, n), rng.normal(size=n) * 2.0
    y[:2] = 0, 1
    columns = {"sex": np.concatenate([["F", "F"], rng.choice(["F", "M"], n - 2)])}
    return y, margin, rng.gamma(2.0, size=n) if weighted else None, columns


def error_by_rows(y, p, weight, bins):
    """Add up the residuals of each bin, one row after the other."""
    sums = np.zeros(bins)
    for label, probability, w in zip(y, p, weight, strict=True):
        above = [k for k in range(bins) if probability > np.linspace(0.0, 1.0, bins + 1)[k]]
        sums[max(above, default=0)] += w * (label - probability)
    return np.abs(sums).sum() / weight.sum()


@random(30)
@given(st.integers(0, 10_000), st.integers(1, 20))
def test_errors_are_those_of_sums_over_rows(seed, bins):
    y, margin, weight, columns = draw(seed)
    error = calibration_error(bins=bins)
    rules = [
        error <= 0.1,
        calibration_error(bins=bins, on={"sex": "F"}) <= 0.1,
        each(error, by="sex", **SMALL) <= 0.1,
        gap(error, by="sex", **SMALL) <= 0.1,
        gap(error, by="sex", reference=gc.overall, **SMALL) <= 0.1,
        gc.fpr() <= 0.1,
    ]
    lagrangian = build(y, rules, weight=weight, columns=columns)
    functionals = lagrangian.constraints.functionals(lagrangian.at(margin).statistics())
    found = lagrangian.constraints.values(functionals)
    p = expit(margin)
    whole = error_by_rows(y, p, weight, bins)
    groups = [
        error_by_rows(y[at], p[at], weight[at], bins)
        for at in (columns["sex"] == g for g in np.unique(columns["sex"]))
    ]
    expected = [
        whole,
        groups[0],
        max(groups),
        np.ptp(groups),
        np.abs(np.array(groups) - whole).max(),
    ]
    np.testing.assert_allclose(found[:-1], expected, rtol=0, atol=1e-12)


def test_bins_are_those_of_scikit_learn():
    """Probabilities on the edges are in the lower bin."""
    y, margin, *_ = draw(3, 400, weighted=False)
    p = np.r_[np.linspace(0.1, 0.9, 9), np.round(expit(margin), 2)[9:]]
    positive, mean = calibration_curve(y, p, n_bins=10, strategy="uniform")
    bins = np.searchsorted(np.linspace(0, 1, 11)[1:-1], p)
    expected = (np.unique(bins, return_counts=True)[1] * np.abs(positive - mean)).sum() / y.size
    lagrangian = build(y, [calibration_error() <= 0.1])
    tables = lagrangian.rows.residuals.tables(p)
    found = np.abs(lagrangian.constraints.tables["residuals"] @ tables).sum()
    assert found == pytest.approx(expected, abs=1e-12)


def far_from_edges(margin, bins):
    """Move scores away from the edges of bins, over which residuals jump."""
    edges = np.linspace(0.0, 1.0, bins + 1)[1:-1]
    near = np.abs(margin[:, None] - logit(edges)).min(axis=1) < 1e-3
    return np.where(near, margin + 3e-3, margin)


@random(20)
@given(st.integers(0, 10_000))
def test_gradients_and_products_against_finite_differences(seed):
    y, margin, weight, columns = draw(seed, 30)
    rules = [
        calibration_error(bins=4) <= 0.1,
        gap(calibration_error(bins=3), by="sex", **SMALL) <= 0.1,
        gc.log_loss() <= 0.1,
    ]
    factor = np.array([1.0, 3.0])  # Weights of classes are in the objective alone.
    lagrangian = build(y, rules, weight=weight, columns=columns, factor=factor)
    margin = far_from_edges(far_from_edges(margin, 4), 3)
    rng = np.random.default_rng(seed)
    multipliers = rng.random(len(lagrangian.constraints))
    total, step = lagrangian.total_weight, 1e-5
    gradient = lagrangian.at(margin).gradient(multipliers)[0].copy()
    u = rng.normal(size=margin.size)
    product = lagrangian.at(margin).hessian_product(multipliers, u).copy()
    slopes = []
    for i in range(margin.size):
        ends = [margin + sign * step * np.eye(margin.size)[i] for sign in (1, -1)]
        high, low = (lagrangian.at(end).value(multipliers) for end in ends)
        slopes.append((high - low) / (2 * step))
    np.testing.assert_allclose(gradient / total, slopes, atol=1e-6)
    ends = [margin + sign * step * u for sign in (1, -1)]
    high, low = (lagrangian.at(end).gradient(multipliers)[0].copy() for end in ends)
    np.testing.assert_allclose(product / total, (high - low) / (2 * step) / total, atol=1e-6)


def test_the_tangent_of_an_error_has_its_gradient():
    """Moving scores a little moves the error by what its directions say."""
    y, margin, weight, columns = draw(5)
    rules = [gap(calibration_error(), by="sex", **SMALL) <= 0.1]
    lagrangian = build(y, rules, weight=weight, columns=columns)
    compiled, margin = lagrangian.constraints, far_from_edges(margin, 10)
    curve = compiled.curves.items[0]

    def value(scores):
        return curve.value(compiled.functionals(lagrangian.at(scores).statistics()))

    functionals = compiled.functionals(lagrangian.at(margin).statistics())
    multipliers = np.zeros(len(compiled))
    multipliers[curve.rows] = curve.derivatives(functionals)
    plain = lagrangian.at(margin).gradient(np.zeros(len(compiled)))[0].copy()
    slope = lagrangian.at(margin).gradient(multipliers)[0] - plain
    u = np.random.default_rng(0).normal(size=margin.size)
    moved = (value(margin + 1e-6 * u) - value(margin - 1e-6 * u)) / 2e-6
    assert slope @ u / lagrangian.total_weight == pytest.approx(moved, abs=1e-6)


def test_cells_that_are_left_out_have_no_part():
    y, *_, columns = draw(6, weighted=False)
    rules = [each(calibration_error(bins=3), by="sex", **SMALL) <= 0.1]
    cells, compiled = compile_constraints(rules, Rows(y, np.arange(2), columns=columns))
    some = np.flatnonzero((columns["sex"] == "F") & (y == 1))
    left = compiled.on(cells.take(some))
    rates = left.tables["residuals"].toarray()[:3]
    np.testing.assert_allclose(rates.sum(axis=1), 1.0)
    assert np.isnan(left.constant[3:]).all()
    assert not left.curves.items[0].first
    assert len(left.curves.items) == 1


def test_more_than_two_classes_are_refused():
    with pytest.raises(ValueError, match=r"y has 3 classes: bound log_loss\(\)"):
        build(np.arange(30) % 3, [calibration_error() <= 0.1])


def test_dual_steps_take_the_constant_of_all_bins_together():
    """Probabilities are 1/4 steep, in whichever bins they are and however signs average."""
    y, _, weight, columns = draw(7)
    rules = [calibration_error(bins=3) <= 0.1, gc.fpr() <= 0.1]
    lagrangian = build(y, rules, weight=weight, columns=columns)
    before = np.full(len(lagrangian.constraints), 7.0)
    for derivatives in (np.zeros_like(before), np.ones_like(before)):
        found = lagrangian.constants.curve_lipschitz(before, derivatives)
        np.testing.assert_allclose(found, [0.25] * 6 + [7.0])


def test_prices_are_those_of_bins_that_still_have_residuals():
    """A start at constant scores has one bin, while multipliers are of all."""
    y, *_ = draw(8)
    curves = build(y, [calibration_error(bins=3) <= 0.1]).constraints.curves
    up = np.array([1.0, 0.0] * 3)
    now = np.array([0.0, 0.0, 0.8, 0.0, 0.0, 0.0])
    np.testing.assert_allclose(curves.prices(5.0 * up, up), 5.0)
    np.testing.assert_allclose(curves.prices(5.0 * up, now), 5.0 / 0.8)
    np.testing.assert_allclose(curves.prices(5.0 * up, 1.0 - up), 0.0)
