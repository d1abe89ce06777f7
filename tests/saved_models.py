"""Small problems and models that the tests of model files save and load."""

from __future__ import annotations

import lightgbm as lgb
import numpy as np
import pandas as pd
import xgboost as xgb
from helpers import CLASSIFIERS

import gbm_constrained as gc
from gbm_constrained.fit.fitted_report import FITTED_ATTRIBUTES

FILES = {"xgboost": "model.ubj", "lightgbm": "model.txt"}
# Attributes of LightGBM's fit; XGBoost's own file has all but the last.
OF_LIBRARY = {
    "xgboost": ("n_classes_", "evals_result_"),
    "lightgbm": ("_classes", "_n_classes", "_objective", "_evals_result", "_best_iteration",
                 "_best_score", "_n_features", "_n_features_in", "_fitted_with_feature_names",
                 "_class_map"),
}  # fmt: skip


def make(library, constraints, **options):
    options = {"n_estimators": 12, "max_depth": 3, "n_jobs": 1, "random_state": 0, **options}
    if library == "lightgbm":
        options.setdefault("verbose", -1)
    return CLASSIFIERS[library](constraints=constraints, **options)


def table_of(kind, rng):
    """Draw the features (n, 4) and the labels of a small problem."""
    X = pd.DataFrame(rng.normal(size=(700, 4)), columns=list("abcd"))
    noisy = X.a + X.b * X.c + 0.7 * rng.normal(size=700)
    y = (noisy > 0.8).astype(int).to_numpy()
    if kind == "several":
        y = np.digitize(noisy, np.quantile(noisy, [0.4, 0.7, 0.9]))
    if kind == "categories":
        X["c"] = pd.Categorical(np.where(X.c > 0.5, "x", np.where(X.c < -0.5, "é=y", "z")))
    if kind == "missing":
        X = X.mask(rng.random(X.shape) < 0.2)
    return X, y


def fit_small(library, problem, **options):
    return make(library, [gc.fnr() <= 0.1], measure_on="train", **options).fit(*problem)


def library_of(model):
    return "xgboost" if isinstance(model, xgb.XGBClassifier) else "lightgbm"


def save_and_load(model, folder, name=None, **given):
    """Save a model, and load it into an estimator of its class that is made with `given`."""
    path = folder / (name or FILES[library_of(model)])
    model.save_model(path)
    return type(model)(**given).load_model(path)


def text_of(model):
    if isinstance(model, xgb.XGBClassifier):
        return model.get_booster().save_raw("json")
    return model.booster_.model_to_string()


def has_note(model):
    return b"gbm_constrained" in bytes(str(text_of(model)), "utf-8")


def train_plain(library, X, y, path):
    """Train a model of the library itself, and save it."""
    if library == "xgboost":
        plain = xgb.XGBClassifier(n_estimators=3, n_jobs=1).fit(X, y)
        plain.save_model(path)
    else:
        plain = lgb.LGBMClassifier(n_estimators=3, n_jobs=1, verbose=-1).fit(X, y)
        plain.booster_.save_model(path)
    return plain


def assert_same_attribute(value, other):
    if isinstance(value, pd.DataFrame):
        pd.testing.assert_frame_equal(other, value, check_exact=True)
    elif isinstance(value, pd.Series):
        pd.testing.assert_series_equal(other, value, check_exact=True)
    elif isinstance(value, np.ndarray):
        assert other.dtype == value.dtype
        np.testing.assert_array_equal(other, value)
    else:  # The repr of Estimate and Feasibility is equal where NaN is not.
        assert repr(other) == repr(value) or other == value


def assert_same_attributes(library, known, expected):
    """Fitted attributes are there, all of them and no others, and equal."""
    for name in (*FITTED_ATTRIBUTES, *OF_LIBRARY[library]):
        assert (name in known) == (name in expected), name
        if name in known:
            pair = expected[name], known[name]
            if name == "history_":  # Files have no seconds: equal fits write equal files.
                pair = (table.drop(columns="seconds", errors="ignore") for table in pair)
            assert_same_attribute(*pair)


def assert_same_model(loaded, model, X):
    """Fitted attributes and probabilities of two models are equal."""
    assert_same_attributes(library_of(model), vars(loaded), vars(model))
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
