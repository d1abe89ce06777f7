"""The saved file is a plain model: same probabilities and decisions without this package."""

import json
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from helpers import BOTH, CLASSIFIERS

import gbm_constrained as gc
from gbm_constrained.solvers import AutoSolver

# The script runs where any import of gbm_constrained is an error. One process reads all models,
# for a start takes longer than a model.
READER = """
import json, sys
sys.modules["gbm_constrained"] = None
import lightgbm, xgboost
import numpy as np
for line in sys.stdin:
    kind, model, data, out = json.loads(line)
    X = np.load(data)
    if kind == "xgboost_classifier":
        clf = xgboost.XGBClassifier()
        clf.load_model(model)
        p, decisions = clf.predict_proba(X), clf.predict(X)
    else:
        if kind == "xgboost_booster":
            p = xgboost.Booster(model_file=model).predict(xgboost.DMatrix(X))
        else:
            p = lightgbm.Booster(model_file=model).predict(X)
        decisions = p > 0.5 if p.ndim == 1 else p.argmax(axis=1)
    np.savez(out, p=p, decisions=decisions)
    print("read", flush=True)
"""


@pytest.fixture(scope="module")
def read_in_another_process(tmp_path_factory):
    """Probabilities and decisions of a saved model, of a kind, on rows."""
    folder = tmp_path_factory.mktemp("reader")
    reader = subprocess.Popen(
        [sys.executable, "-c", READER],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder,
    )  # fmt: skip

    def read(kind, model, X):
        np.save(folder / "X.npy", X)
        out = folder / "out.npz"
        out.unlink(missing_ok=True)
        asked = [kind, str(model), str(folder / "X.npy"), str(out)]
        reader.stdin.write(json.dumps(asked) + "\n")
        reader.stdin.flush()
        assert reader.stdout.readline() == "read\n"  # ends empty if the process has
        loaded = np.load(out)
        p = loaded["p"]
        return (np.column_stack([1 - p, p]) if p.ndim == 1 else p), loaded["decisions"].astype(int)

    with reader:
        yield read


WHERE = pytest.mark.parametrize("measure_on", ["train", "auto"])


def rules(kind):
    if kind == "binary":
        return [gc.fnr() <= 0.1]
    return [gc.class_error(2) <= 0.05, gc.class_error(3) <= 0.1]


@pytest.mark.parametrize(("iterate", "measure_on"), [("last", "train"), ("last", "auto")])
@pytest.mark.parametrize("extension", ["json", "ubj"])
@pytest.mark.parametrize("kind", ["binary", "several"])
def test_xgboost_file(
    kind, extension, iterate, measure_on, request, tmp_path, read_in_another_process
):
    """Measured on unseen rows, the decisions are shifted, and the file with them."""
    X, y = request.getfixturevalue(kind)
    clf = gc.ConstrainedXGBClassifier(
        constraints=rules(kind), n_estimators=30, iterate=iterate, measure_on=measure_on, n_jobs=1,
        solver="abpp",
    )  # fmt: skip
    clf.fit(X, y)
    assert clf.shift_.any() == (measure_on == "auto")
    assert clf.history_.filter(like="multiplier").to_numpy().max() > 0
    path = tmp_path / f"model.{extension}"
    clf.save_model(path)
    for reader in ("xgboost_classifier", "xgboost_booster"):
        p, decisions = read_in_another_process(reader, path, X)
        np.testing.assert_allclose(p, clf.predict_proba(X), atol=1e-6)
        np.testing.assert_array_equal(decisions, clf.predict(X))


@pytest.mark.parametrize(("iterate", "measure_on"), [("last", "train"), ("last", "auto")])
@pytest.mark.parametrize("options", [{}, {"linear_tree": True}])
@pytest.mark.parametrize("kind", ["binary", "several"])
def test_lightgbm_file(
    kind, options, iterate, measure_on, request, tmp_path, read_in_another_process
):
    X, y = request.getfixturevalue(kind)
    clf = gc.ConstrainedLGBMClassifier(
        constraints=rules(kind),
        n_estimators=30,
        verbose=-1,
        n_jobs=1,
        iterate=iterate,
        measure_on=measure_on,
        solver="abpp",
        **options,
    )
    clf.fit(X, y)
    assert clf.shift_.any() == (measure_on == "auto")
    assert clf.history_.filter(like="multiplier").to_numpy().max() > 0
    path = tmp_path / "model.txt"
    clf.booster_.save_model(path)
    p, decisions = read_in_another_process("lightgbm", path, X)
    np.testing.assert_allclose(p, clf.predict_proba(X), atol=1e-6)
    np.testing.assert_array_equal(decisions, clf.predict(X))


@WHERE
def test_report_describes_the_returned_model(measure_on, binary):
    """Training and held-out values equal brute-force counts of the model's own predictions."""
    X, y = binary
    X_test, y_test, X, y = X[:500], y[:500], X[500:], y[500:]
    for cls, options in (
        (gc.ConstrainedXGBClassifier, {"verbosity": 1}),
        (gc.ConstrainedXGBClassifier, {"early_stopping_rounds": 3, "learning_rate": 1.0}),
        (gc.ConstrainedLGBMClassifier, {"verbose": -1}),
        (gc.ConstrainedLGBMClassifier, {"verbose": -1, "early_stopping_round": 3}),
        (
            gc.ConstrainedLGBMClassifier,
            {"verbose": -1, "solver": AutoSolver(rounds_per_iteration=7)},
        ),
    ):
        options = {"n_estimators": 40, "n_jobs": 1, "measure_on": measure_on, **options}
        clf = cls(constraints=[gc.fnr() <= 0.1], **options)
        quiet = {"verbose": False} if cls is gc.ConstrainedXGBClassifier else {}
        clf.fit(X, y, eval_set=[(X_test, y_test)], **quiet)
        report = clf.constraint_report_.loc[0]
        assert report.train == pytest.approx(np.mean(clf.predict(X)[y == 1] == 0)), options
        held_out = np.mean(clf.predict(X_test)[y_test == 1] == 0)
        assert report.held_out == pytest.approx(held_out), options
        assert report.satisfied == (held_out <= 0.1)
        last = clf.history_.iloc[-1]
        assert last["value[fnr <= 0.1]"] == pytest.approx(report.train)
        assert last["multiplier[fnr <= 0.1]"] == report.multiplier == clf.multipliers_.iloc[0]


def test_margins_of_held_out_rows_are_updated_incrementally(binary):
    """History of held-out values equals full predictions at each iteration."""
    X, y = binary
    X_test, y_test, X, y = X[:500], y[:500], X[500:], y[500:]
    positive = y_test == 1
    rounds = 25
    options = {
        "n_estimators": rounds,
        "solver": AutoSolver(rounds_per_iteration=1),
        "n_jobs": 1,
        "measure_on": "train",
    }
    xgb_clf = gc.ConstrainedXGBClassifier(constraints=[gc.fnr() <= 0.1], **options)
    xgb_clf.fit(X, y, eval_set=[(X_test, y_test)], verbose=False)
    lgb_clf = gc.ConstrainedLGBMClassifier(constraints=[gc.fnr() <= 0.1], verbose=-1, **options)
    lgb_clf.fit(X, y, eval_set=[(X_test, y_test)])
    for k in range(1, rounds + 1):
        for clf, margin in (
            (xgb_clf, xgb_clf.predict(X_test, output_margin=True, iteration_range=(0, k))),
            (lgb_clf, lgb_clf.predict(X_test, raw_score=True, num_iteration=k)),
        ):
            history = clf.history_.set_index("rounds")
            value = history.loc[k, "held_out[fnr <= 0.1]"]
            assert value == pytest.approx(np.mean(margin[positive] <= 0), abs=1e-9)
            value = history.loc[k, "value[fnr <= 0.1]"]
            full = (
                clf.predict(X, output_margin=True, iteration_range=(0, k))
                if clf is xgb_clf
                else clf.predict(X, raw_score=True, num_iteration=k)
            )
            assert value == pytest.approx(np.mean(full[y == 1] <= 0), abs=1e-9)


def test_shap_values_of_the_native_model_sum_to_the_margin(binary):
    X, y = binary
    lgb_clf = gc.ConstrainedLGBMClassifier(
        constraints=[gc.fnr() <= 0.1], n_estimators=30, n_jobs=1, verbose=-1
    ).fit(X, y)
    assert lgb_clf.shift_.any()
    np.testing.assert_allclose(
        lgb_clf.predict(X, pred_contrib=True).sum(axis=1), lgb_clf.predict(X, raw_score=True)
    )


def test_categories_survive_the_native_file(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"a": rng.normal(size=800), "c": pd.Categorical(rng.choice(list("xyz"), size=800))}
    )
    y = ((frame.c == "y") ^ (frame.a > 0.5)).to_numpy().astype(int)
    clf = gc.ConstrainedLGBMClassifier(constraints=[gc.fnr() <= 0.01], verbose=-1, n_estimators=20)
    clf.fit(frame, y)
    assert clf.booster_.pandas_categorical == [["x", "y", "z"]]
    xgb_clf = gc.ConstrainedXGBClassifier(
        constraints=[gc.fnr() <= 0.01], n_estimators=20, enable_categorical=True
    ).fit(frame, y)
    config = json.loads(xgb_clf.get_booster().save_config())
    assert config["learner"]["objective"]["name"] == "binary:logistic"
    for model in (clf, xgb_clf):
        assert np.mean(model.predict(frame) == y) > 0.9


def test_names_of_categories_that_xgboost_cuts_are_warned_of():
    """Before 3.4 it takes these three for one, even in the rows that it was trained on."""
    kind = np.arange(300) % 3
    y = (kind == 2).astype(int)

    def fit(names):
        X = pd.DataFrame({"c": pd.Categorical.from_codes(kind, names)})
        options = {"n_estimators": 10, "enable_categorical": True, "measure_on": "train"}
        clf = gc.ConstrainedXGBClassifier(constraints=[gc.fnr() <= 0.1], **options).fit(X, y)
        return np.mean(clf.predict(X) == y)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fit(["e", "f", "g"]) == 1.0
    if tuple(map(int, xgb.__version__.split(".")[:2])) >= (3, 4):
        assert fit(["é", "ê", "ë"]) == 1.0
        return
    with pytest.warns(UserWarning, match=r"cuts the names .* columns \['c'\] have"):
        assert fit(["é", "ê", "ë"]) < 1.0


@BOTH
@pytest.mark.parametrize("cut", [{"iterate": "best"}, {"early_stopping_rounds": 2}])
def test_categories_survive_a_cut(library, cut, tmp_path):
    """Rows are predicted alike in tables whose categories have other codes."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"a": rng.normal(size=600), "c": pd.Categorical(rng.choice(list("xyz"), size=600))}
    )
    y = ((frame.c == "y") ^ (frame.a > 0.5) ^ (rng.random(600) < 0.2)).to_numpy().astype(int)
    more = {"enable_categorical": True} if library == "xgboost" else {"verbose": -1}
    clf = CLASSIFIERS[library](
        constraints=[gc.fnr() <= 0.3],
        n_estimators=30,
        learning_rate=1.0,
        n_jobs=1,
        solver="abpp",
        **cut,
        **more,
    ).fit(frame[:400], y[:400], eval_set=[(frame[400:], y[400:])])
    booster = clf.get_booster() if library == "xgboost" else clf.booster_
    rounds = booster.num_boosted_rounds if library == "xgboost" else booster.current_iteration
    assert rounds() < 30
    rows = frame[frame.c == "y"]
    other = rows.assign(c=rows.c.cat.remove_unused_categories())
    assert other.c.cat.codes.iloc[0] != rows.c.cat.codes.iloc[0]
    clf.save_model(tmp_path / "model.json")
    for model in (clf, CLASSIFIERS[library]().load_model(tmp_path / "model.json")):
        np.testing.assert_array_equal(model.predict_proba(other), model.predict_proba(rows))


@BOTH
@pytest.mark.parametrize("iterate", ["last", "best"])
def test_names_outside_ascii_survive(library, iterate, tmp_path):
    """Names of features, and categories, are those that were given."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(600, 2)), columns=["größe", "年齢"])
    frame["ort"] = pd.Categorical(rng.choice(["Zürich", "Genève"], size=600))
    y = (frame["größe"] + frame["年齢"] + rng.normal(size=600) > 0).to_numpy().astype(int)
    more = {"enable_categorical": True} if library == "xgboost" else {"verbose": -1}
    clf = CLASSIFIERS[library](
        constraints=[gc.fnr() <= 0.1], n_estimators=6, n_jobs=1, iterate=iterate, **more
    ).fit(frame, y)
    clf.save_model(tmp_path / "model.json")
    for model in (clf, CLASSIFIERS[library]().load_model(tmp_path / "model.json")):
        booster = model.get_booster() if library == "xgboost" else model.booster_
        names = booster.feature_names if library == "xgboost" else booster.feature_name()
        assert names == ["größe", "年齢", "ort"]
        np.testing.assert_array_equal(model.predict(frame), clf.predict(frame))
