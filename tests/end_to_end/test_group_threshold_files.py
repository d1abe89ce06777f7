"""Files of fits whose decisions use the group, on Adult and COMPAS, in the hands of others."""

from __future__ import annotations

import functools

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from helpers import BOTH, CLASSIFIERS, margins_of
from sklearn.model_selection import train_test_split

import gbm_constrained as gc
from gbm_constrained.datasets import load_adult, load_compas

pytestmark = pytest.mark.filterwarnings(
    "ignore:group_thresholds=True lets the group", "ignore:.*fewer than min_group_size"
)
ROUNDS = 20
OPTIONS = {
    "xgboost": {"max_depth": 4, "enable_categorical": True, "verbosity": 0},
    "lightgbm": {"num_leaves": 15, "verbose": -1},
}
SUFFIXES = {"xgboost": "ubj", "lightgbm": "txt"}
# A column of the features that makes the groups, and a rule of it that plain boosters break.
DATA = {
    "adult": (load_adult, "sex", gc.gap(gc.tpr(), by="sex") <= 0.01),
    "compas": (
        load_compas,
        "race",
        gc.gap(gc.fpr(), by="race", min_group_size=300, small_groups="drop") <= 0.02,
    ),
}
ALL = pytest.mark.parametrize("name", list(DATA))


@functools.cache
def rows_of(name, is_coded):
    """Training and test rows, whose categories are numbers if asked for."""
    load, _, _ = DATA[name]
    data = load(download=False)
    X = data.data
    if is_coded:
        X = X.apply(lambda c: c.cat.codes.where(c.notna()) if c.dtype == "category" else c)
        X = X.astype(float)
    return train_test_split(X, data.target, train_size=0.5, test_size=2000, random_state=0)


@pytest.fixture(scope="module")
def fit(tmp_path_factory):
    """Fit each library to each data set once: the classifier, its file, and test rows."""

    @functools.cache
    def fitted(library, name, is_coded=False):
        X, X_test, y, _ = rows_of(name, is_coded)
        _, _, rule = DATA[name]
        options = {
            "n_estimators": ROUNDS,
            "n_jobs": 1,
            "measure_on": gc.CrossFit(3),
            **OPTIONS[library],
        }
        model = CLASSIFIERS[library](constraints=rule, group_thresholds=True, **options)
        file = tmp_path_factory.mktemp(name) / f"model.{SUFFIXES[library]}"
        model.fit(X, y).save_model(file)
        assert model.group_shifts_["shift"].nunique() > 1
        return model, file, X_test

    return fitted


def plain_of(library, file):
    """The booster as the library alone reads it, and its prediction."""
    if library == "lightgbm":
        booster = lgb.Booster(model_file=str(file))
        return booster.predict
    booster = xgb.Booster(model_file=file)

    def predict(X, raw_score=False, pred_contrib=False, num_iteration=0):
        return booster.predict(
            xgb.DMatrix(X, enable_categorical=True),
            output_margin=raw_score,
            pred_contribs=pred_contrib,
            iteration_range=(0, num_iteration),
        )

    return predict


@BOTH
@ALL
def test_the_plain_library_decides_alike(library, name, fit):
    model, file, X = fit(library, name)
    predict = plain_of(library, file)
    np.testing.assert_array_equal(predict(X) > 0.5, model.predict(X) == model.classes_[1])
    shifted = model.group_shifts_.set_index(DATA[name][1])["shift"]
    of_rounds = predict(X, raw_score=True) - predict(X, raw_score=True, num_iteration=ROUNDS)
    by_group = pd.Series(of_rounds, X.index).groupby(X[DATA[name][1]], observed=True).mean()
    expected = shifted - model.shift_[0]
    np.testing.assert_allclose(by_group, expected[by_group.index.astype(str)], atol=1e-5)


@BOTH
@ALL
def test_explanations_add_up_and_show_the_shift_at_the_column_of_the_group(library, name, fit):
    model, file, X = fit(library, name)
    predict = plain_of(library, file)
    explained = predict(X, pred_contrib=True)
    np.testing.assert_allclose(explained.sum(axis=1), margins_of(model, X), atol=1e-4)
    moved = explained - predict(X, pred_contrib=True, num_iteration=ROUNDS)
    others = [j for j, column in enumerate(X.columns) if column != DATA[name][1]]
    np.testing.assert_allclose(moved[:, others], 0.0, atol=1e-5)
    assert np.ptp(moved[:, X.columns.get_loc(DATA[name][1])]) > 1e-3


@BOTH
@ALL
def test_treelite_decides_alike(library, name, fit):
    treelite = pytest.importorskip("treelite", reason="treelite is in the extra 'ecosystem'")
    # Treelite reads no categories of data frames from XGBoost's files.
    model, file, X = fit(library, name, is_coded=library == "xgboost")
    load = getattr(treelite.frontend, f"load_{library}_model")
    read = np.float32 if library == "xgboost" else np.float64
    rows = rows_of(name, True)[1].to_numpy(read)
    margin = np.ravel(treelite.gtil.predict(load(file), rows, pred_margin=True))
    np.testing.assert_allclose(margin, margins_of(model, X), atol=1e-5)
    np.testing.assert_array_equal(margin > 0.0, model.predict(X) == model.classes_[1])
