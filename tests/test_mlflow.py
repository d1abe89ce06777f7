"""Models in skops and MLflow, the runs that autolog writes, and the constraints of a run."""

import pickle

import lightgbm
import numpy as np
import pandas as pd
import pytest
import xgboost
from helpers import BOTH, CLASSIFIERS
from regressor_fits import REGRESSORS

import gbm_constrained as gc
from gbm_constrained.linear_model import ConstrainedRidge
from gbm_constrained.metrics import g_mean

skops = pytest.importorskip("skops.io", reason="skops is in the extra 'mlflow'")
mlflow = pytest.importorskip("mlflow", reason="mlflow-skinny is in the extra 'mlflow'")
MLFLOW = pytest.mark.filterwarnings("ignore")  # It warns of its own type hints and dependencies.
SMALL = {
    "xgboost": {"n_estimators": 6, "n_jobs": 1, "max_depth": 3},
    "lightgbm": {"n_estimators": 6, "n_jobs": 1, "verbose": -1, "num_leaves": 7},
}
PARENTS = {
    "xgboost": (xgboost.XGBClassifier, xgboost.XGBRegressor),
    "lightgbm": (lightgbm.LGBMClassifier, lightgbm.LGBMRegressor),
}
RNG = np.random.default_rng(0)
X = pd.DataFrame(RNG.normal(size=(900, 4)), columns=list("abcd"))
X["g"] = (X["c"] > 0).astype(int)
Y = (X["a"] + X["b"] + RNG.normal(size=900) > 0).astype(int)
GAP = gc.gap(gc.fpr(), by="g") <= 0.05
KINDS = {
    "classifier": (CLASSIFIERS, {"constraints": [GAP]}),
    "regressor": (REGRESSORS, {"constraints": [gc.gap(gc.mean_prediction(), by="g") <= 0.2]}),
    "metric": (CLASSIFIERS, {"maximize": g_mean(), "constraints": [gc.fnr() <= 0.4]}),
    "group thresholds": (CLASSIFIERS, {"constraints": [GAP], "group_thresholds": True}),
    "calibrated": (CLASSIFIERS, {"constraints": [gc.fpr() <= 0.1], "probabilities": "calibrated"}),
}


@pytest.fixture
def tracking(tmp_path, monkeypatch):
    """A tracking store in a folder, whose experiment is set."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri(tmp_path.as_uri())
    mlflow.set_experiment("test")
    yield mlflow.MlflowClient()
    mlflow.end_run()


def fit(library, kind):
    classes, options = KINDS[kind]
    return classes[library](**SMALL[library], **options).fit(X, Y)


def assert_same(loaded, model):
    assert type(loaded) is type(model)
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    reports = [name for name in vars(model) if name.endswith("_report_") or name == "history_"]
    assert "constraint_report_" in reports
    for name in [*reports, *(n for n in ("group_shifts_", "mixture_") if n in vars(model))]:
        tables = (getattr(one, name) for one in (loaded, model))  # No file has the seconds.
        found, expected = (table.drop(columns="seconds", errors="ignore") for table in tables)
        pd.testing.assert_frame_equal(found, expected)
    assert repr(loaded.constraints) == repr(model.constraints)
    assert str(loaded.feasibility_) == str(model.feasibility_)


@BOTH
@pytest.mark.filterwarnings("ignore:group_thresholds=True")
@pytest.mark.parametrize("kind", KINDS)
def test_skops_dumps_and_loads_with_one_name_of_this_package(library, kind):
    model = fit(library, kind)
    content = skops.dumps(model)
    names = skops.get_untrusted_types(data=content)
    ours = [name for name in names if name.startswith("gbm_constrained.")]
    assert len(ours) == 1
    plain = PARENTS[library][kind == "regressor"](**SMALL[library]).fit(X, Y)
    others = skops.get_untrusted_types(data=skops.dumps(plain))
    assert {*names} - {*ours} <= {*others}
    assert_same(skops.loads(content, trusted=names), model)


def test_skops_takes_linear_models():
    model = ConstrainedRidge(constraints=[gc.gap(gc.mean_prediction(), by="g") <= 0.2]).fit(X, Y)
    content = skops.dumps(model)
    loaded = skops.loads(content, trusted=skops.get_untrusted_types(data=content))
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    pd.testing.assert_frame_equal(loaded.constraint_report_, model.constraint_report_)


def test_pickles_keep_what_a_text_would_forget():
    """Masks know the labels of their rows, and another model stays in a constraint."""
    deployed = lightgbm.LGBMClassifier(**SMALL["lightgbm"]).fit(X, Y)
    rules = [gc.fpr(on=X["a"] > 0) <= 0.2, gc.churn(to=deployed) <= 0.1]
    model = CLASSIFIERS["lightgbm"](constraints=rules, **SMALL["lightgbm"]).fit(X, Y)
    loaded = pickle.loads(pickle.dumps(model))
    again = loaded.fit(X, Y)
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    unfitted = pickle.loads(pickle.dumps(CLASSIFIERS["xgboost"](constraints=rules)))
    assert repr(unfitted.constraints) == repr(rules)


@MLFLOW
@BOTH
@pytest.mark.parametrize("kind", ["classifier", "regressor", "calibrated"])
def test_mlflow_saves_in_its_default_format(library, kind, tmp_path):
    from gbm_constrained.mlflow import TRUSTED_TYPES

    flavour = pytest.importorskip(f"mlflow.{library}")
    model = fit(library, kind)
    options = {"skops_trusted_types": TRUSTED_TYPES} if library == "lightgbm" else {}
    options["pip_requirements"] = [library]  # MLflow would start a process to find them.
    flavour.save_model(model, str(tmp_path / "model"), **options)
    loaded = flavour.load_model(str(tmp_path / "model"))
    assert_same(loaded, model)


@MLFLOW
@BOTH
@pytest.mark.parametrize("task", ["classifier", "regressor"])
def test_autolog_logs_the_run_of_the_user(library, task, tracking):
    """Parameters and names of metrics are those of the parent's run."""
    flavour = pytest.importorskip(f"mlflow.{library}")
    flavour.autolog(log_models=False, silent=True)
    evaluation = {"eval_set": [(X[:200], Y[:200])]}
    evaluation |= {"verbose": False} if library == "xgboost" else {}
    classes, options = KINDS[task]
    found = []
    try:
        for kind, given in (
            (PARENTS[library][task == "regressor"], {}),
            (classes[library], options),
        ):
            with mlflow.start_run() as run:
                kind(**SMALL[library], **given).fit(X, Y, **evaluation)
            found.append(tracking.get_run(run.info.run_id).data)
            for name in found[-1].metrics:
                assert len(tracking.get_metric_history(run.info.run_id, name)) == 6
    finally:
        flavour.autolog(disable=True)
    plain, ours = found
    differ = {k for k, v in plain.params.items() if ours.params.get(k) != v}
    assert differ <= {"base_score"}  # The intercept, which constrained fits of XGBoost set.
    assert ours.params.keys() == plain.params.keys()
    assert ours.metrics.keys() == plain.metrics.keys()


@MLFLOW
def test_constraints_of_a_run(tracking):
    from gbm_constrained.mlflow import log_constraints

    model = fit("lightgbm", "classifier")
    report = gc.audit(model, X, Y, model.constraints)
    with mlflow.start_run() as run:
        log_constraints(model, report)
    data = tracking.get_run(run.info.run_id).data
    assert data.params == {"constraint_0": str(GAP)}
    assert data.metrics["value_0"] == model.feasibility_.rules[0].value
    assert data.tags["verdict_0"] == str(model.feasibility_.rules[0].verdict)
    path = tracking.get_metric_history(run.info.run_id, "multiplier_0")
    expected = model.history_[f"multiplier[{GAP}]"]
    assert [point.value for point in path] == expected.tolist()
    assert [point.step for point in path] == model.history_["rounds"].tolist()
    files = {file.path for file in tracking.list_artifacts(run.info.run_id, "constraints")}
    assert {"constraints/audit.html", "constraints/constraint_report.json"} <= files
    with pytest.raises(ValueError, match="without constraints"):
        log_constraints(CLASSIFIERS["lightgbm"](**SMALL["lightgbm"]).fit(X, Y))
