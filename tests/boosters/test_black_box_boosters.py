"""Tree weights and offsets for a black-box metric on clean rows, and the native models of them."""

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb

from gbm_constrained.boosters.lightgbm import tree_weights as of_lightgbm
from gbm_constrained.boosters.tree_weights import TreeWeights, make_space
from gbm_constrained.boosters.xgboost import tree_weights as of_xgboost
from gbm_constrained.data.rows import Rows
from gbm_constrained.metrics import BlackBox
from gbm_constrained.solvers.adaptive_surrogates import AdaptiveSurrogates, minimize_black_box
from gbm_constrained.solvers.parameter_spaces import BlackBoxProblem
from gbm_constrained.solvers.post_shift import find_shift

CLASSES = np.array([0, 1])
ROUNDS = 10


class LightGBM:
    def __init__(self, X, y):
        model = lgb.LGBMClassifier(n_estimators=ROUNDS, num_leaves=5, verbose=-1, n_jobs=1)
        self.booster = model.fit(X, y).booster_

    def parts(self, X):
        return of_lightgbm.score_rounds(self.booster, X, groups_of(X))

    def native(self, weights, table):
        weighted = of_lightgbm.weight_rounds(self.booster, weights.rounds, weights.intercept)
        return of_lightgbm.append_offsets(weighted, table, weights.offsets)

    @staticmethod
    def score(booster, X):
        return booster.predict(X, raw_score=True)


class XGBoost:
    def __init__(self, X, y):
        self.model = xgb.XGBClassifier(n_estimators=ROUNDS, max_depth=2, n_jobs=1).fit(X, y)

    def parts(self, X):
        return of_xgboost.score_rounds(self.model, X, groups_of(X))

    def native(self, weights, table):
        booster = self.model.get_booster()
        weighted = of_xgboost.weight_rounds(booster, weights.rounds, weights.intercept)
        return of_xgboost.append_offsets(weighted, xgb.DMatrix(table), weights.offsets)

    @staticmethod
    def score(booster, X):
        return booster.predict(xgb.DMatrix(X), output_margin=True)


def draw(rng, n):
    """Rows of two groups, and labels that are clean."""
    X = pd.DataFrame(rng.normal(size=(n, 3)), columns=["a", "b", "group"])
    X["group"] = (X["group"] > 0).astype(float)
    return X, (X.a + X.b**2 / 2 + rng.normal(size=n) / 2 > 1.0).to_numpy().astype(int)


def groups_of(X):
    return X["group"].to_numpy().astype(int)


def mean_g_mean_loss(y_true, scores, sensitive):
    """One minus the mean of the groups' G-means."""
    found = []
    for group in (0, 1):
        decided, y = scores[sensitive == group] > 0, y_true[sensitive == group]
        found.append(np.sqrt(decided[y == 1].mean() * (~decided[y == 0]).mean()))
    return float(1 - np.mean(found))


def rows_of(X, y, like=None):
    return Rows(y, CLASSES, None, {"group": groups_of(X)}, like=like)


def optimise(library, training, validation):
    """Minimise the loss of clean validation rows, from the best threshold of a noisy model."""
    (X, y), (V, v) = training, validation
    rows = rows_of(X, y)
    box = BlackBox(mean_g_mean_loss, by="group", max_calls=1000)
    metric = box.bind(rows_of(V, v, like=rows), v)
    space = make_space(library.parts(X), library.parts(V), 2)
    problem = BlackBoxProblem(space, box.bind_surrogates(rows, v.size), metric)
    start = TreeWeights.identity(ROUNDS, 2).parameters
    start[-1], _ = find_shift(metric, space.validation_scores(start), 150)
    options = AdaptiveSurrogates(n_iterations=10, n_perturbations=30)
    return start, minimize_black_box(problem, start, [], options, np.random.RandomState(0))


@pytest.mark.parametrize("library", [LightGBM, XGBoost])
def test_native_models_are_what_was_optimised_and_beat_the_best_threshold(library):
    """Most positive training rows of one group have a wrong label."""
    shifted, ours = [], []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        (X, y), (V, v), (T, t) = draw(rng, 2000), draw(rng, 400), draw(rng, 4000)
        y = np.where((X.group == 1) & (rng.random(2000) < 0.8), 0, y)
        model = library(X, y)
        start, found = optimise(model, (X, y), (V, v))
        weights = TreeWeights.from_parameters(found.parameters, ROUNDS)
        booster = model.native(weights, X.iloc[[0, 0]].assign(group=[0.0, 1.0]))
        value = mean_g_mean_loss(v, library.score(booster, V), groups_of(V))
        assert value == pytest.approx(found.loss, abs=1e-9)
        parts = model.parts(T)
        at_start = make_space(parts, parts, 2).training_scores(start)
        shifted.append(mean_g_mean_loss(t, at_start, groups_of(T)))
        ours.append(mean_g_mean_loss(t, library.score(booster, T), groups_of(T)))
    assert np.mean(ours) < np.mean(shifted) - 0.005
