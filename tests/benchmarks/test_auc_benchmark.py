"""The benchmark of rankings measures pairs by counting, and its peers are what they say."""

import itertools

import auc as benchmark
import numpy as np
import pandas as pd
import pytest
from pair_references import count_pairs
from scipy.optimize import check_grad

GAPS = ("mean_rank", "cross_auc", "subgroup")


@pytest.fixture
def rows():
    """Scores with ties, labels, and two groups, of which "a" is the first."""
    rng = np.random.default_rng(0)
    n = 240
    y, group = rng.integers(0, 2, n), rng.choice(["a", "b"], n)
    return np.round(y + 0.6 * (group == "a") + rng.normal(size=n), 1), y, group


def count(score, y, group):
    """All gaps of the benchmark, by pairs."""
    p, a, everyone = y == 1, group == "a", np.ones(y.size, dtype=bool)
    n, b = ~p, ~a
    ranks = [count_pairs(score, p & g, p) - 0.5 for g in (a, b)]
    pairs = {
        "mean_rank": ((a, everyone), (b, everyone)),
        "cross_auc": ((p & a, n & b), (p & b, n & a)),
        "subgroup": ((p, n & a), (p & a, n)),
        "auc": ((p & a, n & a), (p & b, n & b)),
    }
    found = {
        name: count_pairs(score, *first) - count_pairs(score, *second)
        for name, (first, second) in pairs.items()
    }
    return found | {"test_auc": count_pairs(score, p, n), "positives": max(ranks, key=abs)}


def test_pairs_are_counted(rows):
    score, y, group = rows
    assert benchmark.measure_pairs(y, score, group) == pytest.approx(count(*rows), abs=1e-12)


@pytest.mark.parametrize("rule", GAPS)
def test_an_affine_change_is_the_best_of_its_grid(rows, rule):
    score, y, group = (part[:40] for part in rows)
    tried = []
    for slope, shift in itertools.product(benchmark.SLOPES, benchmark.SHIFTS[::10]):
        found = count(np.where(group == "a", slope * score + shift, score), y, group)
        tried.append((found["test_auc"], found[rule]))
    best = max(value for value, gap in tried if abs(gap) <= 0.05)
    slope, shift, gap = benchmark.choose(score, y, group == "a", rule, 0.05)
    chosen = count(np.where(group == "a", slope * score + shift, score), y, group)
    assert chosen[rule] == pytest.approx(gap, abs=1e-12)
    assert abs(gap) <= 0.05
    assert chosen["test_auc"] >= best
    with pytest.raises(ValueError, match="widen the grid"):
        benchmark.choose(score + 99.0 * (group == "a"), y, group == "a", rule, 1e-6)


def test_a_penalised_score_is_a_minimum_without_correlation():
    rng = np.random.default_rng(1)
    group = rng.choice(["a", "b"], 400)
    X = rng.normal(size=(400, 3)) + (group == "a")[:, None]
    y = (X.sum(axis=1) + rng.normal(size=400) > 1.5).astype(int)
    part = benchmark.Part(X, y, group)
    scores = [X @ benchmark.fit_correlation(part, penalty) for penalty in (0.0, 0.1, 3.0)]
    sizes = [abs(np.corrcoef(s, group == "a")[0, 1]) for s in scores]
    assert sizes[0] > sizes[1] > sizes[2]
    assert sizes[2] < 1e-3
    objective = benchmark.correlation_objective(part, 0.3)
    w = rng.normal(size=4)
    slope = lambda v: objective(v)[1]  # noqa: E731
    assert check_grad(lambda v: objective(v)[0], slope, w) < 1e-5


def test_fronts_hold_the_best_fit_that_validation_rows_allow():
    records = pd.DataFrame(
        {
            "metric": "auc",
            "learner": "linear",
            "seed": [0, 0, 0, 1],
            "validation_gap": [0.2, 0.04, 0.03, 0.008],
            "validation_auc": [0.9, 0.8, 0.85, 0.7],
            "test_auc": [0.1, 0.2, 0.3, 0.4],
            "test_gap": [0.0, 0.0, 0.06, 0.02],
        }
    )
    fronts = {line["bound"]: line for line in benchmark.find_fronts(records)}
    assert fronts[0.05]["test_auc"] == pytest.approx(0.35)
    assert fronts[0.05]["test_gap"] == pytest.approx(0.04)
    assert fronts[0.05]["test_auc_error"] == pytest.approx(0.05)
    assert fronts[0.01]["seeds"] == 1
