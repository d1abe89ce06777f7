"""Matrices of folds: binned batch by batch, as for a graphics card, or all at once."""

import numpy as np
import pytest
import xgboost as xgb

from gbm_constrained.scorers.xgboost import fits
from gbm_constrained.scorers.xgboost.fits import CardFeatures, HostFeatures, read_features


@pytest.fixture
def rows():
    """Features with missing values and a column of category codes, labels, weights, scores."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 4)).astype(np.float32)
    X[:, 3] = rng.integers(0, 5, 600)
    X[rng.random(X.shape) < 0.1] = -99.0
    y = (X[:, 0] + rng.normal(size=600) > 0).astype(np.float32)
    return X, y, rng.gamma(2.0, size=600).astype(np.float32), rng.normal(size=600)


def scores_of(features, y, weight):
    """Grow a booster on half of the rows, and score the others."""
    training, held = np.arange(0, 600, 2), np.arange(1, 600, 2)
    given = {"label": y[training], "weight": weight[training]}
    matrix = features.training(training, None, feature_weights=np.array([1, 2, 0, 1.0]), **given)
    booster = xgb.Booster({"colsample_bynode": 0.5, "seed": 1, "max_bin": 32}, [matrix])
    for i in range(5):
        booster.update(matrix, i)
    return booster.predict(features.held(held, matrix), output_margin=True)


def test_batches_are_binned_as_all_rows(rows):
    """One batch, with missing values, categories, weights and starting scores."""
    X, y, weight, start = rows
    parent = xgb.XGBClassifier(
        missing=-99.0, feature_types=["q", "q", "q", "c"], enable_categorical=True, max_bin=32
    )
    host, card = HostFeatures(parent, X, start), CardFeatures(parent, X, start, np)
    np.testing.assert_allclose(
        scores_of(host, y, weight), scores_of(card, y, weight), rtol=1e-6, atol=1e-6
    )


def test_several_batches_hold_all_rows_in_order(rows):
    X, y, *_ = rows
    index = np.arange(599, 0, -3)
    features, batches = X[index], []
    iterator = fits._Batches(X, index, {"label": y[index]}, np)
    iterator.reset()
    while iterator.next(lambda **given: batches.append(given)):
        pass
    np.testing.assert_array_equal(np.concatenate([b["data"] for b in batches]), features)
    np.testing.assert_array_equal(np.concatenate([b["label"] for b in batches]), y[index])


def test_only_arrays_are_taken_to_a_card(rows):
    X, *_ = rows
    card = object()
    assert isinstance(read_features(xgb.XGBClassifier(), X, None, card), CardFeatures)
    for parent in (xgb.XGBClassifier(tree_method="exact"), xgb.XGBClassifier(booster="gblinear")):
        assert isinstance(read_features(parent, X, None, card), HostFeatures)
    assert isinstance(read_features(xgb.XGBClassifier(), X, None, np), HostFeatures)
    assert isinstance(read_features(xgb.XGBClassifier(), X.tolist(), None, card), HostFeatures)
