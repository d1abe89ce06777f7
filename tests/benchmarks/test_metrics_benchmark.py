"""The benchmark of metrics compares with exact searches, and shares boosters that are the same."""

import itertools

import metrics as benchmark
import numpy as np
import pytest
from sklearn.datasets import make_classification

import gbm_constrained as gc


@pytest.fixture
def scored():
    """Scores with ties, labels and two groups."""
    rng = np.random.default_rng(0)
    n = 300
    y, group = rng.integers(0, 2, n), rng.choice(["a", "b"], n)
    return np.round(rng.normal(0.4 + 0.2 * y, 0.15), 2).clip(0.0, 1.0), y, group


@pytest.mark.parametrize("bounds", ["fpr and ratio", "precision", "alerts"])
def test_one_threshold_is_the_best_of_all(scored, bounds):
    score, y, _ = scored

    def is_met(chosen):
        if bounds == "precision":
            return y[chosen].mean() >= benchmark.LEAST_PRECISION["adult_age"]
        if bounds == "alerts":
            return chosen.mean() <= benchmark.MOST_ALERTS
        return chosen[y == 0].mean() <= benchmark.MOST_FPR

    tried = [score >= t for t in np.unique(score)]
    best = max((np.sum(c & (y == 1)) for c in tried if is_met(c)), default=0)
    chosen = score >= benchmark._find_threshold(score, y, bounds, "adult_age")
    assert np.sum(chosen & (y == 1)) == best


def test_thresholds_of_groups_meet_both_bounds_and_are_near_the_best(scored):
    score, y, group = scored

    def decide(thresholds):
        return score >= np.array([thresholds[g] for g in group])

    def value(thresholds):
        chosen = decide(thresholds)
        of_groups = [chosen[(group == g) & (y == 0)].mean() for g in ("a", "b")]
        low, high = min(of_groups), max(of_groups)
        is_met = (
            chosen[y == 0].mean() <= benchmark.MOST_FPR and low >= benchmark.LEAST_RATIO * high
        )
        return np.sum(chosen & (y == 1)) if is_met else 0

    levels = np.append(np.unique(score), 2.0)
    best = max(value({"a": a, "b": b}) for a, b in itertools.product(levels, levels))
    chosen = decide(benchmark._find_thresholds(score, y, group))
    assert chosen[y == 0].mean() <= benchmark.MOST_FPR
    # A grid of rates is searched, and equal scores of several negatives share a threshold.
    assert 0.8 * best <= np.sum(chosen & (y == 1)) <= 1.1 * best


@pytest.mark.parametrize("metric", ["g_mean", "f1_macro"])
def test_shared_boosters_decide_as_own_ones(metric):
    X, y = make_classification(
        400, 6, n_informative=4, n_classes=3, weights=[0.7, 0.2], random_state=0
    )
    benchmark.make(maximize="h_mean").fit(X, y)  # Its boosters are kept.
    shared = benchmark.make(maximize=metric).fit(X, y)
    own = gc.ConstrainedLGBMClassifier(
        **benchmark.TREES["lightgbm"], measure_on=gc.CrossFit(benchmark.N_FOLDS), maximize=metric
    )
    own.fit(X, y)
    np.testing.assert_array_equal(shared.decision_probabilities(X), own.decision_probabilities(X))
    assert shared.booster_.model_to_string() == own.booster_.model_to_string()
    loss = benchmark.measure_loss(metric, y, own.decision_probabilities(X))
    assert loss == pytest.approx(1.0 - own.score(X, y))
    benchmark.forget_fits()
