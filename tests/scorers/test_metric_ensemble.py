"""``ensemble="folds"``: the boosters of the folds in one model of the library."""

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from helpers import CLASSIFIERS, EITHER, quiet

import gbm_constrained as gc
from gbm_constrained.solvers import Reduction

N = 1500
RANDOM = np.random.default_rng(0)
X = pd.DataFrame(RANDOM.normal(size=(N, 3)), columns=list("abc"))
X["k"] = pd.Categorical(RANDOM.choice(list("uvw"), N))
GROUP = RANDOM.choice(["m", "f"], N)
SCORE = X.a + 0.5 * (GROUP == "m") + (X.k == "u") + 0.7 * RANDOM.normal(size=N)
Y = {"binary": (SCORE > 2.0).to_numpy().astype(int), "several": np.digitize(SCORE, [0.5, 2.0])}
TEST = np.arange(N) % 3 == 0
KINDS = pytest.mark.parametrize("kind", list(Y))
OPTIONS = {
    "xgboost": {"max_depth": 3, "enable_categorical": True},
    "lightgbm": {"num_leaves": 7, "verbose": -1},
}


def make(library, **options):
    own = {
        "n_estimators": 10,
        "measure_on": gc.CrossFit(3),
        "maximize": "g_mean",
        "solver": Reduction(ensemble="folds"),
    }
    return CLASSIFIERS[library](n_jobs=1, **{**own, **OPTIONS[library], **options})


def count_rounds(model):
    if isinstance(model, xgb.XGBClassifier):
        return model.get_booster().num_boosted_rounds()
    return model.booster_.current_iteration()


def raw_scores(model, X):
    if isinstance(model, xgb.XGBClassifier):
        return model.predict(X, output_margin=True)
    return model.predict(X, raw_score=True)


@EITHER
@KINDS
def test_the_file_is_one_that_the_library_reads(library, kind, tmp_path):
    y = Y[kind]
    model = make(library).fit(X[~TEST], y[~TEST])
    assert count_rounds(model) == 30
    path = tmp_path / "model.json"
    model.save_model(path)
    if library == "xgboost":
        plain = xgb.XGBClassifier()
        plain.load_model(path)
        scores, found = plain.predict(X, output_margin=True), plain.predict_proba(X)
    else:
        plain = lgb.Booster(model_file=path)
        scores, found = plain.predict(X, raw_score=True), plain.predict(X)
        found = np.column_stack([1 - found, found]) if kind == "binary" else found
    np.testing.assert_array_equal(scores, raw_scores(model, X))
    np.testing.assert_allclose(found, model.predict_proba(X), rtol=1e-12)
    read = CLASSIFIERS[library]()
    read.load_model(path)
    np.testing.assert_array_equal(read.decision_probabilities(X), model.decision_probabilities(X))
    assert read.solver == Reduction(ensemble="folds")


@EITHER
@KINDS
def test_the_score_is_the_mean_of_boosters_of_parts_of_the_rows(library, kind):
    """Groups of rows that stay together are the folds, so that their boosters are known."""
    y, groups = Y[kind], np.arange(N) % 3
    options = {"probabilities": "calibrated"}
    model = make(library, **options).fit(X, y, groups=groups)
    alone = [
        make(library, maximize=None, solver="auto").fit(X[groups != k], y[groups != k])
        for k in range(3)
    ]
    expected = np.mean([raw_scores(one, X).astype(float) for one in alone], axis=0)
    np.testing.assert_allclose(raw_scores(model, X), expected, rtol=0, atol=2e-6)
    parts = np.empty((N, *expected.shape[1:]))
    for k, one in enumerate(alone):
        parts[groups == k] = raw_scores(one, X[groups == k])
    report = model.metric_report_.set_index("decisions")
    decided = (parts > 0).astype(int) if kind == "binary" else parts.argmax(axis=1)
    recalls = [np.mean(decided[y == k] == k) for k in np.unique(y)]
    value = np.prod(recalls) ** (1 / len(recalls))
    assert report.held_out["argmax"] == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize(("library", "kind"), [("xgboost", "binary"), ("lightgbm", "several")])
def test_boosters_of_labels_and_groups_are_merged_too(library, kind, tmp_path):
    y = Y[kind]
    model = make(library, constraints=[gc.gap(gc.tpr(1), by="g") <= 0.1])
    model.fit(X[~TEST], y[~TEST], sensitive_features={"g": GROUP[~TEST]})
    assert count_rounds(model) == 30
    model.save_model(tmp_path / "model.json")
    read = CLASSIFIERS[library]()
    read.load_model(tmp_path / "model.json")
    np.testing.assert_array_equal(read.decision_probabilities(X), model.decision_probabilities(X))
    row = model.metric_report_[model.metric_report_.is_returned].iloc[0]
    error = (row.high - row.low) / (2 * 1.96)
    assert abs(model.score(X[TEST], y[TEST]) - row.held_out) <= 3 * error * np.sqrt(1 + 2)


@EITHER
def test_folds_that_stop_early_differ_in_length(library):
    y = Y["binary"]
    given = {"eval_set": [(X[TEST], y[TEST])], **quiet(library)}
    options = {"n_estimators": 300, "learning_rate": 0.5}
    if library == "xgboost":
        options["early_stopping_rounds"] = 2
    else:
        given["callbacks"] = [lgb.early_stopping(2, verbose=False)]
    model = make(library, **options).fit(X[~TEST], y[~TEST], **given)
    assert 3 <= count_rounds(model) < 300
    if library == "lightgbm":
        assert model.best_iteration_ == 0
        assert model.evals_result_ == {}
    else:
        assert not hasattr(model, "evals_result_")
        assert model.get_booster().attr("best_iteration") is None
    row = model.metric_report_[model.metric_report_.rows == "eval_set[0]"].iloc[0]
    assert row.held_out == pytest.approx(model.score(X[TEST], y[TEST]))
    assert row.low <= row.held_out <= row.high


@EITHER
def test_what_has_no_folds_is_refused(library):
    y = Y["binary"]
    for name in ("train", "holdout"):
        with pytest.raises(ValueError, match=rf"Reduction\(ensemble='folds'.*measure_on='{name}'"):
            make(library, measure_on=name).fit(X, y)
    with pytest.raises(ValueError, match=r"ensemble of Reduction must be one of.*'mean'"):
        make(library, solver=Reduction(ensemble="mean")).fit(X, y)
    for constraints in (None, [gc.fnr() <= 0.1]):
        with pytest.raises(ValueError, match=r"ensemble='folds'.*give maximize="):
            make(library, maximize=None, constraints=constraints).fit(X, y)


@pytest.mark.parametrize("booster", ["dart", "gblinear"])
def test_boosters_without_leaves_to_divide_are_refused(booster):
    numbers = X[["a", "b", "c"]]
    with pytest.raises(ValueError, match=rf"ensemble='folds'.*booster='{booster}'"):
        make("xgboost", booster=booster, max_depth=None).fit(numbers, Y["binary"])


@EITHER
def test_parameters_stay_those_of_the_classifier(library):
    random = np.random.RandomState(0)
    model = make(library, random_state=random)
    before = model.get_params()
    model.fit(X, Y["several"])
    assert model.random_state is random
    after = model.get_params()
    changed = {name for name in before if repr(before[name]) != repr(after[name])}
    assert changed <= {"random_state", "objective"}
    assert list(model.classes_) == [0, 1, 2]
    assert model.n_features_in_ == 4
