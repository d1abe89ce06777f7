"""Calibration errors as rules: both libraries on COMPAS, the linear model, and what is refused."""

from __future__ import annotations

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from helpers import EITHER
from sklearn.calibration import calibration_curve
from sklearn.model_selection import train_test_split
from sklearn.svm import LinearSVC

import gbm_constrained as gc
from gbm_constrained import calibration_error, each, gap
from gbm_constrained.datasets import load_compas

OPTIONS = {"n_estimators": 40, "random_state": 0, "n_jobs": 1, "probabilities": "calibrated"}
CLASSIFIERS = {
    "xgboost": lambda **given: gc.ConstrainedXGBClassifier(**{**OPTIONS, **given}),
    "lightgbm": lambda **given: gc.ConstrainedLGBMClassifier(verbose=-1, **{**OPTIONS, **given}),
}
LIBRARY = pytest.mark.parametrize("library", CLASSIFIERS)
SMALL = {"n_estimators": 5, "scale_pos_weight": 2.0}


@pytest.fixture(scope="module")
def compas():
    data = load_compas()
    X = pd.get_dummies(data.data, dtype=float)
    X.columns = [f"x{i}" for i in range(X.shape[1])]
    y = (data.target == np.unique(data.target)[1]).astype(int).to_numpy()
    groups = data.sensitive_features["race"].eq("African-American").to_frame("black")
    return train_test_split(X, y, groups, test_size=0.5, stratify=y, random_state=0)


def error_of(p, y):
    """The expected calibration error by scikit-learn's curve."""
    positive, mean = calibration_curve(y, p, n_bins=10, strategy="uniform")
    bins = np.searchsorted(np.linspace(0, 1, 11)[1:-1], p)
    return np.unique(bins, return_counts=True)[1] @ np.abs(positive - mean) / y.size


def native(model, X):
    """Probabilities of the library's own booster."""
    if isinstance(model, lgb.LGBMClassifier):
        return model.booster_.predict(X)
    return model.get_booster().predict(xgb.DMatrix(X))


@EITHER
def test_probabilities_of_weighted_classes_are_calibrated_beside_a_bound_of_false_alarms(
    library, compas, tmp_path
):
    X, X_test, y, y_test, groups, groups_test = compas
    rules = [each(calibration_error(), by="black") <= 0.05, gc.fpr() <= 0.25]
    given = {"scale_pos_weight": 3.0}
    plain = CLASSIFIERS[library](**given).fit(X, y)
    model = CLASSIFIERS[library](constraints=rules, **given)
    model.fit(X, y, sensitive_features=groups)
    audited = gc.audit(
        model, X_test, y_test, rules, sensitive_features=groups_test, others={"plain": plain}
    )
    black = groups_test["black"].to_numpy()
    p = model.predict_proba(X_test)[:, 1].astype(float)
    worst = max(error_of(p[at], y_test[at]) for at in (black, ~black))
    assert audited.frame.loc[0, "value"] == pytest.approx(worst, abs=1e-12)
    assert audited.models.filter(like="each").iloc[1, 0] > 0.15  # The plain model.
    # A standard error of the larger of two errors on 1500 rows each is 0.01.
    assert (audited.frame["value"] <= [0.07, 0.28]).all()
    assert (model.constraint_report_["held_out"] <= [0.05, 0.25]).all()
    # The library's own booster has the same probabilities, and the file decides alike.
    np.testing.assert_array_equal(native(model, X_test), model.predict_proba(X_test)[:, 1])
    path = str(tmp_path / "model.ubj")
    model.save_model(path)
    loaded = CLASSIFIERS[library]()
    loaded.load_model(path)
    np.testing.assert_array_equal(loaded.predict(X_test), model.predict(X_test))
    assert loaded.constraints == rules


@EITHER
def test_the_map_of_probabilities_is_in_the_leaves_and_changes_no_decision(library, compas):
    """Five rounds under weighted classes leave no time for multipliers alone."""
    X, X_test, y, *_ = compas
    model = CLASSIFIERS[library](constraints=[calibration_error() <= 0.02], **SMALL).fit(X, y)
    scale, shift = model.adjustment_
    assert (scale, shift) != (1.0, 0.0)
    p = model.predict_proba(X_test)[:, 1].astype(float)
    np.testing.assert_allclose(native(model, X_test), p, atol=1e-6)
    margin = np.log(p / (1.0 - p))
    np.testing.assert_array_equal(model.predict(X_test), margin + model.shift_[0] > 0.0)
    # Without the map the decision is at the score of zero, where nothing bounds decisions.
    assert model.shift_[0] == pytest.approx(-shift)


@EITHER
def test_a_bound_that_always_holds_changes_nothing(library, compas):
    X, X_test, y, *_ = compas
    few = {"n_estimators": 5}
    model = CLASSIFIERS[library](constraints=[calibration_error() <= 1.0], **few).fit(X, y)
    free = CLASSIFIERS[library](constraints=[], **few).fit(X, y)
    found, expected = (one.predict_proba(X_test) for one in (model, free))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)  # Gradients are rounded.


def test_the_logistic_regression_meets_a_bound_on_its_training_rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    y = (X[:, 0] + rng.normal(size=400) > 0).astype(int)
    weighted = {"class_weight": {0: 1.0, 1: 3.0}}
    plain = gc.ConstrainedLogisticRegression(**weighted).fit(X, y)
    assert error_of(plain.predict_proba(X)[:, 1], y) > 0.1
    rules = [calibration_error() <= 0.06]
    model = gc.ConstrainedLogisticRegression(constraints=rules, n_iterations=150, **weighted)
    found = error_of(model.fit(X, y).predict_proba(X)[:, 1], y)
    assert found <= 0.06
    assert model.constraint_report_.loc[0, "train"] == pytest.approx(found, abs=1e-9)


RULE = calibration_error() <= 0.05
REFUSED = [
    ({"probabilities": "shifted"}, "use probabilities='calibrated'"),
    ({"guarantee": "high_probability"}, "leave the guarantee out"),
    ({"iterate": "randomized"}, "use iterate='last'"),
    ({"solver": "threshold"}, "which no threshold changes"),
    ({"solver": "cbpr"}, "use solver='abpp'"),
    ({"maximize": "balanced_accuracy"}, "leave maximize out"),
    ({"group_thresholds": True}, "use group_thresholds=False"),
    ({"constraints": [RULE, (gc.fpr() <= 0.1).with_priority(2)]}, "leave with_priority out"),
]


@EITHER
@pytest.mark.parametrize(("given", "message"), REFUSED)
def test_what_does_not_go_together_is_refused_before_training(library, given, message):
    X, y = np.random.default_rng(0).normal(size=(200, 2)), np.arange(200) % 2
    model = CLASSIFIERS[library](**{"constraints": [RULE], **given})
    with pytest.raises(ValueError, match=message):
        model.fit(X, y, sensitive_features={"g": y})
    assert not hasattr(model, "constraint_report_")


def test_other_models_refuse_the_rule():
    X, y = np.random.default_rng(0).normal(size=(200, 2)), np.arange(200) % 2
    with pytest.raises(ValueError, match="use ConstrainedLogisticRegression"):
        gc.ConstrainedLinearSVC(constraints=[RULE]).fit(X, y)
    with pytest.raises(ValueError, match="a regressor predicts numbers"):
        gc.ConstrainedRidge(constraints=[RULE]).fit(X, X[:, 0])
    with pytest.raises(ValueError, match="y has 3 classes"):
        CLASSIFIERS["lightgbm"](constraints=[RULE]).fit(X, np.arange(200) % 3)
    with pytest.raises(TypeError, match="has no predict_proba"):
        gc.audit(LinearSVC().fit(X, y), X, y, [gap(calibration_error(), by="g") <= 0.1])
