"""An exported model decides in onnxruntime as ``predict`` does, on every row."""

import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from helpers import BOTH, CLASSIFIERS, alternate
from regressor_fits import REGRESSORS

import gbm_constrained as gc
from gbm_constrained.datasets import (
    load_adult,
    load_communities_crime,
    load_compas,
    load_credit,
)
from gbm_constrained.metrics import g_mean

EXTRA = "is in the extra 'onnx'"
pytest.importorskip("onnxmltools", reason=f"onnxmltools {EXTRA}")
runtime = pytest.importorskip("onnxruntime", reason=f"onnxruntime {EXTRA}")
SMALL = {
    "xgboost": {"n_estimators": 12, "n_jobs": 1, "max_depth": 4, "enable_categorical": True},
    "lightgbm": {"n_estimators": 12, "n_jobs": 1, "verbose": -1},
}


def run(model, X):
    """Run an exported model on rows, whose categories are given by their codes."""
    if isinstance(X, pd.DataFrame):
        codes = {c: X[c].cat.codes.replace(-1, np.nan) for c in X if X[c].dtype == "category"}
        X = X.assign(**codes)
    exported = gc.to_onnx(model)
    session = runtime.InferenceSession(
        exported.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, {"X": np.asarray(X, dtype=np.float32)})


def make(library, constraints, **options):
    return CLASSIFIERS[library](constraints=constraints, **SMALL[library], **options)


def assert_same(model, X):
    label, probabilities = run(model, X)
    np.testing.assert_array_equal(label, model.predict(X))
    np.testing.assert_allclose(probabilities, model.predict_proba(X), rtol=0, atol=1e-5)


def read(name, target):
    """Read a table that is not committed, with its texts as categories."""
    path = Path(os.environ.get("GBM_CONSTRAINED_DATA", "")) / f"{name}.parquet"
    if not path.is_file():
        pytest.skip(f"{name} is not committed, and not in the folder of GBM_CONSTRAINED_DATA")
    table = pd.read_parquet(path)
    texts = table.select_dtypes(exclude="number").columns.difference([target])
    X = table.astype(dict.fromkeys(texts, "category")).drop(columns=target)
    return SimpleNamespace(data=X, target=pd.Series(pd.factorize(table[target])[0]))


DATA = {
    "bank": (lambda **_: read("bank", "y"), [gc.fpr() <= 0.05]),
    "german": (lambda **_: read("german", "credit_risk"), [gc.fpr() <= 0.2]),
    "adult": (load_adult, [gc.fpr() <= 0.05]),
    "compas": (load_compas, [gc.fnr() <= 0.2]),
    "credit": (load_credit, [gc.fnr() <= 0.1]),
    "crime": (load_communities_crime, [gc.fpr() <= 0.1]),
}


@pytest.mark.parametrize("probabilities", ["shifted", "calibrated"])
@alternate("name", DATA)
def test_two_classes_of_data_sets(library, name, probabilities):
    load, constraints = DATA[name]
    try:
        data = load(download=False)
    except OSError as missing:
        pytest.skip(str(missing)[:200])
    X, target = data.data[:3000], data.target[:3000]
    numbers = X.select_dtypes("number").columns
    X = X.astype(dict.fromkeys(numbers, np.float32))  # What the graph is given.
    y = (target > target.median()).astype(int) if target.nunique() > 2 else pd.factorize(target)[0]
    assert_same(make(library, constraints, probabilities=probabilities).fit(X, y), X)


@alternate("probabilities", ["shifted", "calibrated"])
def test_seven_classes(library, probabilities, dry_bean):
    X, y = dry_bean[0].astype(np.float32)[:4000], dry_bean[1][:4000]
    y = np.unique(y, return_inverse=True)[1]
    assert_same(
        make(library, [gc.class_error(0) <= 0.05], probabilities=probabilities).fit(X, y), X
    )


@BOTH
@pytest.mark.filterwarnings("ignore:group_thresholds=True")
def test_thresholds_of_groups_are_in_the_trees(library):
    data = load_adult(download=False)
    X = data.data[:6000].astype(dict.fromkeys(data.data.select_dtypes("number"), np.float32))
    model = make(library, [gc.gap(gc.fpr(), by="sex") <= 0.02], group_thresholds=True)
    assert_same(model.fit(X, data.target[:6000]), X)


@BOTH
def test_missing_values_and_thresholds_that_rows_equal(library):
    """LightGBM's thresholds lie between values, and rounding must not move one past a value."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 9, size=(2000, 4)).astype(np.float32) / np.float32(3.0)
    y = (X.sum(axis=1) + rng.normal(size=2000) > 6).astype(int)
    X[rng.random(X.shape) < 0.1] = np.nan
    assert_same(make(library, [gc.fpr() <= 0.1]).fit(X, y), X)


def test_labels_of_texts():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 3)).astype(np.float32)
    y = np.array(["no", "yes"])[(X[:, 0] > 0).astype(int)]
    label, _ = run(make("lightgbm", [gc.fpr() <= 0.1]).fit(X, y), X)
    assert set(label) == {"no", "yes"}


@BOTH
@pytest.mark.parametrize("objective", ["squared", "poisson"])
def test_regressors(library, objective):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 4)).astype(np.float32)
    y = rng.poisson(np.exp(X[:, 0] / 2 + 1))
    names = {"xgboost": ("reg:squarederror", "count:poisson"), "lightgbm": ("l2", "poisson")}
    given = {**SMALL[library], "objective": names[library][objective == "poisson"]}
    model = REGRESSORS[library](constraints=[gc.mean_prediction() <= 2.8], **given).fit(X, y)
    np.testing.assert_allclose(run(model, X)[0], model.predict(X), rtol=1e-5)


def test_what_has_no_form_is_refused():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 3))
    y = (X[:, 0] + rng.normal(size=900) > 0).astype(int)
    drawn = make("lightgbm", [gc.fpr() <= 0.1], iterate="randomized").fit(X, y)
    with pytest.raises(ValueError, match="iterate='last' or 'best'"):
        gc.to_onnx(drawn)
    mixed = CLASSIFIERS["lightgbm"](
        maximize=g_mean(), constraints=[gc.gap(gc.tpr(), by="g") <= 0.01], **SMALL["lightgbm"]
    ).fit(X, y, sensitive_features={"g": X[:, 1] > 0})
    with pytest.raises(ValueError, match="deterministic=True"):
        gc.to_onnx(mixed)
    with pytest.raises(TypeError, match="got a ConstrainedRidge"):
        gc.to_onnx(gc.ConstrainedRidge())


def test_the_file_is_the_model(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 3)).astype(np.float32)
    model = make("xgboost", [gc.fpr() <= 0.1]).fit(X, (X[:, 0] > 0).astype(int))
    exported = gc.to_onnx(model, tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx").read_bytes() == exported.SerializeToString()


@BOTH
def test_rounds_after_the_best_one_are_left_out(library):
    """XGBoost's own early stopping, without constraints, keeps later rounds in the booster."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1200, 3)).astype(np.float32)
    y = (X[:, 0] + 2.0 * rng.normal(size=1200) > 0).astype(int)
    given = {**SMALL[library], "n_estimators": 60, "learning_rate": 0.5}
    model = CLASSIFIERS[library](early_stopping_rounds=3, **given)
    quiet = {"verbose": False} if library == "xgboost" else {}
    assert_same(model.fit(X[:600], y[:600], eval_set=[(X[600:], y[600:])], **quiet), X)


def test_a_parameter_of_another_objective_is_no_link():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 3)).astype(np.float32)
    given = {**SMALL["lightgbm"], "tweedie_variance_power": 1.2}
    model = REGRESSORS["lightgbm"](constraints=[gc.mean_prediction() <= 0.1], **given)
    model.fit(X, X[:, 0])
    np.testing.assert_allclose(run(model, X)[0], model.predict(X), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("library", "options", "words"),
    [
        ("lightgbm", {"objective": "cross_entropy"}, "does not know the link"),
        ("lightgbm", {"reg_sqrt": True}, "does not know the link"),
        ("lightgbm", {"linear_tree": True}, "constant leaves"),
        ("xgboost", {"objective": "reg:logistic"}, "does not know the link"),
    ],
)
def test_other_links_and_leaves_are_refused(library, options, words):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 3)).astype(np.float32)
    model = REGRESSORS[library](**SMALL[library], **options).fit(X, (X[:, 0] > 0) * 1.0)
    with pytest.raises(ValueError, match=words):
        gc.to_onnx(model)
