"""The tree of the offsets of groups, in both libraries."""

from __future__ import annotations

from dataclasses import replace

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from hypothesis import assume, example, given
from hypothesis import strategies as st
from shift_problems import random

from gbm_constrained.data.rows import Rows
from gbm_constrained.decision.groups import GroupOffsets
from gbm_constrained.scorers.lightgbm.models import append_group_tree as append_to_lightgbm
from gbm_constrained.scorers.trained_models import edges, make_group_tree
from gbm_constrained.scorers.xgboost.models import append_group_tree as append_to_xgboost

COLUMNS = pytest.mark.parametrize("columns", [("g",), ("k",), ("g", "k"), ("k", "g")])
N = 600


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "a": rng.normal(size=N),
            "g": pd.Categorical(rng.choice(["x", "y", "z", "w"], N)),
            "k": rng.choice([0.0, 1.0, 0.1, -3.0], N),
        }
    )
    X.loc[::50, "k"], X.loc[3::50, "g"] = np.nan, None
    y = (X["a"] + (X["g"] == "x") + rng.normal(size=N) > 0).astype(int).to_numpy()
    return X, y


def offsets_of(columns, X, y):
    """Offsets of groups, zero where a value is missing and for one group."""
    rows = Rows(y, np.array([0, 1]), features=[X])
    none = GroupOffsets.none(columns, rows)
    own = np.unique(none.searchable(rows))
    values = np.random.default_rng(1).normal(size=len(none.levels))
    values[~np.isin(np.arange(values.size), own)] = 0.0
    values[own[-1]] = 0.0
    found = replace(none, values=values)
    return found, found.of(rows), make_group_tree(X, found, found.groups_of(rows))


def lightgbm_of(X, y):
    booster = lgb.LGBMClassifier(n_estimators=3, verbose=-1, n_jobs=1).fit(X, y).booster_
    return booster, lambda model, X: model.predict(X, raw_score=True)


def xgboost_of(X, y):
    model = xgb.XGBClassifier(n_estimators=3, enable_categorical=True, n_jobs=1).fit(X, y)

    def predict(booster, X, **options):
        rows = xgb.DMatrix(X, enable_categorical=True)
        return booster.predict(rows, output_margin=not options, **options)

    return model.get_booster(), predict


@COLUMNS
def test_lightgbm_adds_the_offsets(columns, table, tmp_path):
    X, y = table
    _, expected, tree = offsets_of(columns, X, y)
    booster, predict = lightgbm_of(X, y)
    appended = append_to_lightgbm(booster, tree)
    added = predict(appended, X) - predict(booster, X)
    np.testing.assert_allclose(added, expected, atol=1e-12)
    appended.save_model(tmp_path / "model.txt")
    read = lgb.Booster(model_file=str(tmp_path / "model.txt"))
    np.testing.assert_allclose(predict(read, X), predict(appended, X), atol=1e-12)
    explained = appended.predict(X, pred_contrib=True).sum(axis=1)
    np.testing.assert_allclose(explained, predict(appended, X), atol=1e-9)


@COLUMNS
@pytest.mark.parametrize("suffix", ["json", "ubj"])
def test_xgboost_adds_the_offsets(columns, suffix, table, tmp_path):
    X, y = table
    _, expected, tree = offsets_of(columns, X, y)
    booster, predict = xgboost_of(X, y)
    appended = append_to_xgboost(booster, tree)
    added = predict(appended, X) - predict(booster, X)
    np.testing.assert_allclose(added, expected, atol=1e-6)
    appended.save_model(tmp_path / f"model.{suffix}")
    read = xgb.Booster(model_file=tmp_path / f"model.{suffix}")
    np.testing.assert_array_equal(predict(read, X), predict(appended, X))
    explained = predict(appended, X, pred_contribs=True).sum(axis=1)
    np.testing.assert_allclose(explained, predict(appended, X), atol=1e-5)


@pytest.mark.parametrize("value", [2.0, 0.5, -7.0, 0.100001])
def test_numbers_of_no_group_have_no_offset(value, table):
    X, y = table
    _, _, tree = offsets_of(("k",), X, y)
    others = X.assign(k=value)
    booster, predict = lightgbm_of(X, y)
    appended = append_to_lightgbm(booster, tree)
    np.testing.assert_allclose(predict(appended, others), predict(booster, others), atol=1e-12)
    booster, predict = xgboost_of(X, y)
    appended = append_to_xgboost(booster, tree)
    np.testing.assert_allclose(predict(appended, others), predict(booster, others), atol=1e-6)


def test_categories_of_no_group_have_no_offset(table):
    """LightGBM takes categories that it does not know for missing; XGBoost refuses them."""
    X, y = table
    _, _, tree = offsets_of(("g",), X, y)
    others = X.assign(g=pd.Categorical(["v"] * N))
    booster, predict = lightgbm_of(X, y)
    appended = append_to_lightgbm(booster, tree)
    np.testing.assert_allclose(predict(appended, others), predict(booster, others), atol=1e-12)


def test_more_categories_than_bits_of_a_word(table):
    X, y = table
    names = [f"c{i:02}" for i in range(70)]
    X = X.assign(g=pd.Categorical(np.resize([*names[:2], *names[-2:]], N), categories=names))
    _, expected, tree = offsets_of(("g",), X, y)
    booster, predict = lightgbm_of(X, y)
    added = predict(append_to_lightgbm(booster, tree), X) - predict(booster, X)
    np.testing.assert_allclose(added, expected, atol=1e-12)
    booster, predict = xgboost_of(X, y)
    added = predict(append_to_xgboost(booster, tree), X) - predict(booster, X)
    np.testing.assert_allclose(added, expected, atol=1e-6)


@random(50)
@given(value=st.floats(width=32, allow_nan=False, allow_infinity=False, allow_subnormal=False))
@example(value=float(np.finfo(np.float32).max))
def test_edges_separate_a_number(value):
    # The neighbours of smaller numbers are not normal.
    assume(value == 0.0 or abs(value) >= 4.0 * np.finfo(np.float32).tiny)
    below, above = edges(value)
    single = np.float32(value)
    assert below < value < above
    for end in (-np.inf, np.inf):
        with np.errstate(over="ignore"):
            neighbour = float(np.nextafter(single, np.float32(end)))
        if abs(neighbour) >= np.finfo(np.float32).tiny and np.isfinite(neighbour):
            assert not below < neighbour < above
