"""The benchmark of black-box metrics measures what it says, on rows that it says."""

import blackbox as data
import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import f1_score, recall_score


def test_losses_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    y, group, scores = rng.integers(0, 2, 200), rng.integers(0, 2, 200), rng.normal(size=200)
    decided = (scores > 0).astype(int)
    part = data.Part(pd.DataFrame(), y, pd.Series(group))
    recalls = recall_score(y, decided, average=None)
    assert data.loss_of("g_mean", part, scores) == pytest.approx(1 - np.sqrt(recalls.prod()))
    f1 = [f1_score(y[group == g], decided[group == g]) for g in (0, 1)]
    assert data.loss_of("f1", part, scores) == pytest.approx(1 - np.mean(f1))
    assert data.loss_of("error", part, scores) == (decided != y).mean()


def test_noise_is_in_the_features_of_one_group_alone():
    rng = np.random.default_rng(0)
    n = 20_000
    X = pd.DataFrame({"number": rng.normal(3.0, 2.0, n), "binary": rng.integers(0, 2, n)})
    group = pd.Series(rng.integers(0, 2, n), name="group")
    clean = data.Part(X, np.arange(n) % 2, group)
    noisy = data.add_noise(data.Split(clean, clean, clean), 0.4, 1)
    change = noisy.training.X - X
    women = (group == 0).to_numpy()
    assert not change[~women].to_numpy().any()
    moved = change["number"][women] != 0
    assert moved.mean() == pytest.approx(0.4, abs=0.02)
    assert change["number"][women][moved].std() == pytest.approx(2.0, abs=0.05)
    flipped = change["binary"][women][moved] != 0
    assert flipped.mean() == pytest.approx(0.9, abs=0.02)
    pd.testing.assert_frame_equal(noisy.test.X, X.astype(float))


def test_wrong_labels_are_those_of_positives_of_one_group():
    noisy, clean = (data.split_noisy_labels(0, 500, is_noisy=n) for n in (True, False))
    assert noisy.validation.y.size == 500
    np.testing.assert_array_equal(noisy.test.y, clean.test.y)
    changed = noisy.training.y != clean.training.y
    private, positive = noisy.training.group.to_numpy() == 1, clean.training.y == 1
    assert not changed[~(private & positive)].any()
    assert changed[private & positive].mean() == pytest.approx(0.5, abs=0.02)


def test_simulated_rows_are_three_clouds():
    test = data.simulate(0).test
    positive = test.X[test.y == 1]
    assert test.y.mean() == pytest.approx(0.1, abs=0.005)
    np.testing.assert_allclose(positive.var(), 0.2, atol=0.02)
    np.testing.assert_allclose(test.X[test.y == 0].abs().mean(), 1.0, atol=0.02)
