"""The Bayesian bootstrap of counted decisions."""

from __future__ import annotations

import numpy as np
import pytest

from gbm_constrained.statistics.influence import RowGroups


def test_groups_hold_all_rows_and_weights():
    rng = np.random.default_rng(0)
    cells, decisions = rng.integers(3, size=200), rng.integers(2, size=(2, 200))
    weight = rng.integers(1, 4, size=200).astype(float)
    groups = RowGroups.of(cells, decisions, weight)
    assert groups.weight.sum() == weight.sum()
    assert groups.square.sum() == (weight**2).sum()
    tables = groups.tables(groups.weight[None], np.eye(2)[groups.decisions[0]], 3)
    expected = np.zeros((3, 2))
    np.add.at(expected, (cells, decisions[0]), weight)
    assert tables[0] == pytest.approx(expected)


@pytest.mark.parametrize("is_weighted", [False, True])
def test_a_rate_varies_as_on_new_rows(is_weighted):
    """Bayesian bootstrap of a mean: variance sum w^2 (x - mean)^2 / (sum w)^2, nearly."""
    rng = np.random.default_rng(1)
    x = (rng.random(1000) < 0.3).astype(int)
    weight = rng.uniform(0.5, 2.0, size=1000) if is_weighted else None
    groups = RowGroups.of(np.zeros(1000, dtype=int), x[None], weight)
    drawn = groups.resample(4000)
    tables = groups.tables(drawn, np.eye(2)[groups.decisions[0]], 1)[:, 0]
    rates = tables[:, 1] / tables.sum(axis=1)
    w = np.ones(1000) if weight is None else weight
    mean = np.average(x, weights=w)
    variance = (w**2 * (x - mean) ** 2).sum() / w.sum() ** 2
    assert rates.mean() == pytest.approx(mean, abs=4 * np.sqrt(variance / 4000))
    assert rates.var() == pytest.approx(variance, rel=0.1)


def test_rows_without_weight_are_never_drawn():
    groups = RowGroups.of(
        np.zeros(4, dtype=int), np.array([[0, 0, 1, 1]]), np.array([1.0, 1, 0, 0])
    )
    assert (groups.resample(10)[:, groups.decisions[0] == 1] == 0).all()


def test_the_mean_of_amounts_varies_as_on_new_rows():
    """Sums of amounts and of rows vary together: sum (a x - mean)^2 / n^2."""
    rng = np.random.default_rng(3)
    n, x = 1000, (rng.random(1000) < 0.3).astype(int)
    amount = np.where(rng.random(n) < 0.1, 0.0, np.exp(1.5 * rng.normal(size=n)))
    groups = RowGroups.of(np.zeros(n, dtype=int), x[None], None, [amount])
    assert groups.weight.size < n / 4
    weights = np.vstack([groups.weight, groups.resample(4000)])
    ones, amounts = groups.tables(weights, np.eye(2)[groups.decisions[0]], 1).swapaxes(0, 1)
    means = amounts[:, 1] / ones.sum(axis=1)
    assert means[0] == pytest.approx((amount * x).mean(), abs=1e-12)
    variance = ((amount * x - means[0]) ** 2).sum() / n**2
    assert means[1:].mean() == pytest.approx(means[0], abs=4 * np.sqrt(variance / 4000))
    assert means[1:].var() == pytest.approx(variance, rel=0.1)
