"""Where matrices of folds are binned, and gradients computed: on a graphics card or not."""

import warnings

import numpy as np
import pytest
import xgboost as xgb

from gbm_constrained.data.cells import find_cupy
from gbm_constrained.scorers.xgboost import fits
from gbm_constrained.scorers.xgboost.fits import CardFeatures, HostFeatures, read_features
from gbm_constrained.scorers.xgboost.parameters import choose_array_module, find_parameter

without_card = pytest.mark.skipif(find_cupy() is not None, reason="there is a graphics card")


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
    matrix = features.training(training, feature_weights=np.array([1, 2, 0, 1.0]), **given)
    booster = xgb.Booster({"colsample_bynode": 0.5, "seed": 1, "max_bin": 32}, [matrix])
    for i in range(5):
        booster.update(matrix, i)
    return booster.predict(features.held(held), output_margin=True)


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


@pytest.mark.parametrize("device", [None, "cpu", "sycl"])
def test_the_processor_computes_by_numpy(device):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert choose_array_module(device, 1) is np


@without_card
@pytest.mark.parametrize("device", ["cuda", "cuda:1", "gpu"])
def test_without_cupy_a_warning_names_what_to_install(device):
    with pytest.warns(UserWarning, match="install CuPy.*GC308"):
        assert choose_array_module(device, None) is np


@without_card
def test_a_silent_booster_gives_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert choose_array_module("cuda", 0) is np


def test_threads_are_those_of_the_native_parameters():
    """``nthread`` of keyword arguments comes before ``n_jobs``."""
    assert find_parameter(xgb.XGBClassifier(n_jobs=1), "num_threads") == 1
    assert find_parameter(xgb.XGBClassifier(n_jobs=2, nthread=1), "num_threads") == 1


@pytest.mark.skipif(find_cupy() is None, reason="there is no graphics card, or no CuPy")
def test_a_card_that_cupy_does_not_use_is_left_to_xgboost():
    assert choose_array_module("cuda", 1) is find_cupy()
    with pytest.warns(UserWarning, match="make card 7 the current one"):
        assert choose_array_module("cuda:7", 1) is np
