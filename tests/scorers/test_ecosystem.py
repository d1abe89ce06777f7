"""What people put these classifiers into: scikit-learn's tools, explainers, other runtimes.

Exactness of native files is in test_native.py, routing of sensitive features in test_drop_in.py.
"""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import joblib
import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from helpers import CLASSIFIERS, EITHER, margins_of, quiet
from scipy.special import expit
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import BaggingClassifier, StackingClassifier, VotingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, confusion_matrix, log_loss
from sklearn.model_selection import (
    GridSearchCV,
    RandomizedSearchCV,
    StratifiedKFold,
    TunedThresholdClassifierCV,
    cross_val_predict,
)
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import gbm_constrained as gc

EXTRA = "is in the extra 'ecosystem'"
ALWAYS = {
    "xgboost": {"n_estimators": 8, "n_jobs": 1, "max_depth": 3, "measure_on": "train"},
    "lightgbm": {"n_estimators": 8, "n_jobs": 1, "verbose": -1, "measure_on": "train"},
}
RULE = [gc.fnr() <= 0.1]


def make(library, rules=RULE, **options):
    return CLASSIFIERS[library](constraints=rules, **{**ALWAYS[library], **options})


def miss_rate(y, decisions):
    return np.mean(decisions[y == 1] == 0)


def booster_of(model):
    return model.get_booster() if isinstance(model, xgb.XGBClassifier) else model.booster_


# --- scikit-learn -------------------------------------------------------------------------------


@EITHER
def test_pipeline_and_column_transformer(library, binary):
    X, y = binary
    frame = pd.DataFrame(X, columns=list("abcdef"))
    frame["kind"] = np.where(X[:, 0] > 0.5, "high", "low")
    steps = ColumnTransformer([("numbers", StandardScaler(), list("abcdef")),
                               ("kinds", OneHotEncoder(), ["kind"])])  # fmt: skip
    pipeline = Pipeline([("prepared", steps), ("model", make(library))]).fit(frame, y)
    direct = make(library).fit(steps.fit_transform(frame), y)
    np.testing.assert_array_equal(pipeline.predict(frame), direct.predict(steps.transform(frame)))
    missed = miss_rate(y, pipeline.predict(frame))
    assert missed == pytest.approx(direct.constraint_report_.train[0])


@EITHER
@pytest.mark.parametrize("search", [GridSearchCV, RandomizedSearchCV])
def test_searches_over_constraints_and_parameters(library, search, binary):
    """Every score is that of a model fitted by hand on the fold."""
    X, y = binary
    folds = StratifiedKFold(2)
    grid = {"constraints": [[gc.fnr() <= 0.05], [gc.fnr() <= 0.4]], "max_depth": [2, 4]}
    more = {"n_iter": 3, "random_state": 0} if search is RandomizedSearchCV else {}
    found = search(make(library), grid, cv=folds, scoring="accuracy", **more).fit(X, y)
    for parameters, score in zip(
        found.cv_results_["params"], found.cv_results_["split0_test_score"], strict=True
    ):
        train, test = next(folds.split(X, y))
        model = make(library).set_params(**parameters).fit(X[train], y[train])
        assert score == accuracy_score(y[test], model.predict(X[test]))
    assert found.best_estimator_.constraint_report_.bound[0] in (0.05, 0.4)


@EITHER
def test_calibration(library, binary):
    """Calibration turns probabilities under a constraint into frequencies again."""
    X, y = binary
    train, test = slice(0, 1000), slice(1000, None)
    model = make(library).fit(X[train], y[train])
    calibrated = CalibratedClassifierCV(make(library), cv=3, method="sigmoid")
    calibrated.fit(X[train], y[train])
    losses = [log_loss(y[test], m.predict_proba(X[test])) for m in (calibrated, model)]
    assert losses[0] < losses[1]


@EITHER
def test_tuned_threshold(library, binary):
    X, y = binary
    model = make(library, [gc.fnr() <= 0.05], measure_on="auto")
    tuned = TunedThresholdClassifierCV(model, scoring="accuracy", cv=3).fit(X, y)
    expected = tuned.estimator_.predict_proba(X)[:, 1] >= tuned.best_threshold_
    np.testing.assert_array_equal(tuned.predict(X), expected.astype(int))
    assert tuned.best_threshold_ > 0.5, "accuracy alone would not miss so few"


@EITHER
def test_stacking(library, binary):
    X, y = binary
    stack = StackingClassifier(
        [("ours", make(library)), ("line", LogisticRegression())], cv=StratifiedKFold(2)
    ).fit(X, y)
    ours = cross_val_predict(make(library), X, y, cv=StratifiedKFold(2), method="predict_proba")
    line = cross_val_predict(
        LogisticRegression(), X, y, cv=StratifiedKFold(2), method="predict_proba"
    )
    scores = np.column_stack([ours[:, 1], line[:, 1]])
    final = LogisticRegression().fit(scores, y)
    np.testing.assert_allclose(stack.final_estimator_.coef_, final.coef_, rtol=1e-6)


@pytest.mark.parametrize(
    "ensemble",
    [
        lambda model: VotingClassifier([("ours", model)]),
        lambda model: StackingClassifier([("ours", model)], cv=2),
        lambda model: BaggingClassifier(model, 1, bootstrap=False),
    ],
    ids=["vote", "stack", "bag"],
)
def test_ensembles_that_encode_the_labels(ensemble, binary):
    """A label in a constraint is then a code, as the page says; others are as before."""
    X, y = binary
    for rule, labels in ((gc.class_error(1) <= 0.02, y), (gc.fnr() <= 0.02, y + 1)):
        model = make("lightgbm", [rule])
        part = ensemble(model).fit(X, y + 1).estimators_[0]
        expected = model.fit(X, labels).predict_proba(X)
        np.testing.assert_allclose(part.predict_proba(X), expected, rtol=0, atol=1e-12)
    other = make("lightgbm", [gc.class_error(1) <= 0.02]).fit(X, y + 1).predict_proba(X)
    assert np.abs(other - expected).max() > 0.1


# --- processes ----------------------------------------------------------------------------------


@EITHER
def test_joblib(library, binary):
    """Fits in other processes are the fits of this one."""
    X, y = binary
    models = [make(library, [gc.fnr() <= bound]) for bound in (0.05, 0.2)]
    fits = joblib.Parallel(n_jobs=2)(joblib.delayed(clone(m).fit)(X, y) for m in models)
    for model, fitted in zip(models, fits, strict=True):
        np.testing.assert_array_equal(
            fitted.predict_proba(X), clone(model).fit(X, y).predict_proba(X)
        )


@EITHER
def test_threads(library, binary):
    """Fits side by side are the fits one after another; nothing of theirs is the process's."""
    X, y = binary
    models = [make(library, [gc.fnr() <= bound]) for bound in (0.05, 0.1, 0.2, 0.3)]
    fit_in_thread = joblib.Parallel(n_jobs=2, backend="threading")
    fits = fit_in_thread(joblib.delayed(clone(m).fit)(X, y) for m in models)
    for model, fitted in zip(models, fits, strict=True):
        np.testing.assert_array_equal(
            fitted.predict_proba(X), clone(model).fit(X, y).predict_proba(X)
        )


@pytest.mark.parametrize("library", ["xgboost"])
def test_cloudpickle_in_a_fresh_process(library, binary, tmp_path):
    cloudpickle = pytest.importorskip("cloudpickle", reason=f"cloudpickle {EXTRA}")
    X, y = binary
    model = make(library).fit(X, y)
    (tmp_path / "model").write_bytes(cloudpickle.dumps((model, X)))
    code = (
        "import pickle, sys; model, X = pickle.load(open(sys.argv[1], 'rb'));"
        "pickle.dump((model.predict(X), model.constraint_report_), open(sys.argv[2], 'wb'))"
    )
    root = str(Path(__file__).resolve().parents[2])
    environment = {**os.environ, "PYTHONPATH": root, "OMP_NUM_THREADS": "1"}
    subprocess.run(
        [sys.executable, "-c", code, tmp_path / "model", tmp_path / "answer"],
        env=environment,
        check=True,
    )
    decisions, report = pickle.loads((tmp_path / "answer").read_bytes())
    np.testing.assert_array_equal(decisions, model.predict(X))
    pd.testing.assert_frame_equal(report, model.constraint_report_)


@EITHER
def test_optuna(library, binary):
    """The best of three trials is the fit by hand with its parameters."""
    optuna = pytest.importorskip("optuna", reason=f"optuna {EXTRA}")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    X, y = binary
    train, test = slice(0, 1000), slice(1000, None)

    def fitted(depth):
        return make(library, max_depth=depth).fit(X[train], y[train])

    def objective(trial):
        return fitted(trial.suggest_int("max_depth", 1, 6)).score(X[test], y[test])

    study = optuna.create_study(
        direction="maximize", sampler=optuna.samplers.RandomSampler(seed=0)
    )
    study.optimize(objective, n_trials=3)
    assert study.best_value == fitted(**{"depth": study.best_params["max_depth"]}).score(
        X[test], y[test]
    )
    assert study.best_value == max(trial.value for trial in study.trials)


# --- explainers and other runtimes --------------------------------------------------------------


@EITHER
@pytest.mark.parametrize("output", ["raw", "probability"])
def test_shap(library, output, binary):
    """Contributions sum to the margin, and to the probability, of the model with its shift."""
    shap = pytest.importorskip("shap", reason=f"shap {EXTRA}")
    X, y = binary
    model = make(library, measure_on="auto").fit(X, y)
    background = X[:50] if output == "probability" else None
    explainer = shap.TreeExplainer(model, background, model_output=output)
    values = explainer(X[:20]).values
    values = values[..., -1] if values.ndim == 3 else values
    total = values.sum(axis=1) + np.ravel(explainer.expected_value)[-1]
    expected = margins_of(model, X[:20]) if output == "raw" else model.predict_proba(X[:20])[:, 1]
    np.testing.assert_allclose(total, expected, rtol=0, atol=1e-4)


EARLY = {
    "no": {},
    "stopped": {"early_stopping_rounds": 3},
    "prefix": {"iterate": "best", "early_stopping_rounds": 3},
}


def ended(library, how, X, y):
    """Fit a model that may hold fewer rounds than were trained."""
    options = {"measure_on": "auto", "n_estimators": 40, "learning_rate": 0.5, **EARLY[how]}
    if how == "no":
        return make(library, **options).fit(X, y)
    model = make(library, **options)
    return model.fit(X[:1000], y[:1000], eval_set=[(X[1000:], y[1000:])], **quiet(library))


@EITHER
@pytest.mark.parametrize("how", list(EARLY))
def test_treelite(library, how, binary):
    treelite = pytest.importorskip("treelite", reason=f"treelite {EXTRA}")
    X, y = binary
    model = ended(library, how, X, y)
    booster = booster_of(model)
    loaded = (treelite.frontend.from_xgboost if library == "xgboost" else
              treelite.frontend.from_lightgbm)(booster)  # fmt: skip
    rows = X.astype(np.float32) if library == "xgboost" else X
    p = np.ravel(treelite.gtil.predict(loaded, rows))
    np.testing.assert_allclose(p, model.predict_proba(X)[:, 1], rtol=0, atol=1e-6)
    np.testing.assert_array_equal(p > 0.5, model.predict(X) == 1)


@EITHER
def test_the_booster_alone(library, binary):
    """Prediction needs nothing of this package: margins of the plain booster decide."""
    X, y = binary
    model = make(library, [gc.gap(gc.fpr(), by="half") <= 0.02], measure_on="auto").fit(
        X, y, sensitive_features={"half": X[:, 1] > 0}
    )
    booster = booster_of(model)
    if library == "xgboost":
        p = booster.predict(xgb.DMatrix(X))
    else:
        p = lgb.Booster(model_str=booster.model_to_string()).predict(X)
    np.testing.assert_allclose(p, expit(margins_of(model, X)), rtol=0, atol=1e-6)
    assert (confusion_matrix(p > 0.5, model.predict(X)) == np.diag(np.bincount(p > 0.5))).all()
