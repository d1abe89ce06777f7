"""The model that was measured is the model that is returned, saved and exported.

Whatever ends a fit before its last round (early stopping, a prefix, both), plain XGBoost and plain
LightGBM must decide every row alike from the booster and from its file, and all attributes of the
parent speak of the rounds that were kept.
"""

import pickle

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from helpers import BOTH, CLASSIFIERS, KINDS, PARENTS, RULES, alternate, quiet
from sklearn.metrics import log_loss

import gbm_constrained as gc

PATIENCE = 4
RNG = np.random.default_rng(11)
X = RNG.normal(size=(1200, 6))
SCORE = X[:, 0] + X[:, 1] * X[:, 2] + 0.7 * RNG.normal(size=1200)
LABELS = {"binary": (SCORE > 0.8).astype(int), "several": np.digitize(SCORE, [-0.5, 0.8])}
HELD, TRAIN = slice(0, 400), slice(400, 1200)
OPTIONS = {
    "xgboost": {"n_jobs": 1, "max_depth": 3, "verbosity": 0},
    "lightgbm": {"n_jobs": 1, "max_depth": 3, "verbose": -1},
}
STOPPING = {"xgboost": "early_stopping_rounds", "lightgbm": "early_stopping_round"}


def fit(library, kind, options, rules=None, **given):
    options = {"n_estimators": 40, "learning_rate": 0.5, **OPTIONS[library], **options}
    model = CLASSIFIERS[library](constraints=rules or RULES[kind], **options)
    y = LABELS[kind]
    given = {"eval_set": [(X[HELD], y[HELD])], **quiet(library), **given}
    return model.fit(X[TRAIN], y[TRAIN], **given)


def booster_of(model):
    return model.get_booster() if isinstance(model, xgb.XGBClassifier) else model.booster_


def rounds_of(booster):
    if isinstance(booster, xgb.Booster):
        return booster.num_boosted_rounds()
    return booster.num_trees() // booster.num_model_per_iteration()


def decided(p):
    """Decisions of the probabilities that a plain booster gives."""
    return (p > 0.5).astype(int) if p.ndim == 1 else p.argmax(axis=1)


def plain_decisions(library, model, folder):
    """Decisions of the plain library: of the booster in memory, of its copies and of files."""
    booster = booster_of(model)
    if library == "xgboost":
        rows = xgb.DMatrix(X)
        found = {"in memory": booster.predict(rows), "copied": booster.copy().predict(rows)}
        for extension in ("json", "ubj"):
            for name, writer in (("estimator", model), ("booster", booster)):
                path = folder / f"{name}.{extension}"
                writer.save_model(path)
                found[path.name] = xgb.Booster(model_file=path).predict(rows)
                parent = PARENTS[library]()
                parent.load_model(path)
                found[f"{path.name}, classifier"] = parent.predict_proba(X)
        found["pickled"] = pickle.loads(pickle.dumps(booster)).predict(rows)
    else:
        found = {
            "in memory": booster.predict(X),
            "all trees": booster.predict(X, num_iteration=-1),
        }
        for name, save in (("estimator", model.save_model), ("booster", booster.save_model)):
            save(folder / f"{name}.txt")
            found[name] = lgb.Booster(model_file=folder / f"{name}.txt").predict(X)
        found["pickled"] = pickle.loads(pickle.dumps(booster)).predict(X)
    return {name: decided(p if p.ndim == 1 else _positive(p)) for name, p in found.items()}


def _positive(p):
    return p[:, 1] if p.shape[1] == 2 else p


def assert_equal_decisions(library, model, folder):
    expected = model.predict(X)
    assert np.unique(expected).size > 1
    for name, found in plain_decisions(library, model, folder).items():
        np.testing.assert_array_equal(found, expected, err_msg=name)
    for other in (
        pickle.loads(pickle.dumps(model)),
        CLASSIFIERS[library]().load_model(
            folder / ("estimator." + ("json" if library == "xgboost" else "txt"))
        ),
    ):
        np.testing.assert_array_equal(other.predict(X), expected)


def assert_attributes_of_the_model(library, model, *, stopped):
    """All attributes of a fit that early stopping ended are about the kept rounds."""
    booster = booster_of(model)
    kept = rounds_of(booster)
    assert model.history_["rounds"].iloc[-1] == kept
    if library == "xgboost":
        results = model.evals_result()
        if not stopped:
            assert booster.attr("best_iteration") is None
            return
        assert model.best_iteration == booster.best_iteration == kept - 1
        assert model.best_score == booster.best_score
        refit = {"n_estimators": model.best_iteration + 1}
    else:
        results = model.evals_result_
        assert model.n_iter_ == model.n_estimators_ == booster.current_iteration() == kept
        best = kept if stopped else 0
        assert model.best_iteration_ == booster.best_iteration == best
        assert model.best_score_ == booster.best_score
        found = model.best_score_["valid_0"]
        assert found == {name: values[kept - 1] for name, values in results["valid_0"].items()}
        refit = {"n_estimators": model.best_iteration_}
    assert len(next(iter(next(iter(results.values())).values()))) >= kept
    if stopped:
        again = PARENTS[library](**OPTIONS[library], **refit).fit(
            X[TRAIN], LABELS["binary"][TRAIN]
        )
        assert rounds_of(booster_of(again)) == kept


@alternate("kind", ["binary", "several"])
@pytest.mark.parametrize(
    ("on", "measure_on"),
    [("metric", gc.CrossFit(2)), ("constraints", "holdout"), ("both", "train")],
)
def test_early_stopping(library, kind, on, measure_on, tmp_path):
    stopping = {STOPPING[library]: PATIENCE, "early_stopping_on": on}
    model = fit(library, kind, {**stopping, "measure_on": measure_on})
    results = model.evals_result() if library == "xgboost" else model.evals_result_
    trained = len(next(iter(next(iter(results.values())).values())))
    assert rounds_of(booster_of(model)) <= trained
    assert_attributes_of_the_model(library, model, stopped=True)
    assert_equal_decisions(library, model, tmp_path)


VARIANTS = [
    {"num_parallel_tree": 2, "subsample": 0.7},
    {"multi_strategy": "multi_output_tree"},
    {"tree_method": "exact"},
]


@KINDS
@pytest.mark.parametrize("options", VARIANTS, ids=lambda options: next(iter(options)))
def test_early_stopping_of_other_trees(kind, options, tmp_path):
    """A round of XGBoost has several trees, or trees of several classes."""
    stopping = {"early_stopping_rounds": PATIENCE, "n_estimators": 60}
    stopping["measure_on"] = gc.CrossFit(2)
    model = fit("xgboost", kind, {**stopping, **options})
    trained = len(model.evals_result()["validation_0"].popitem()[1])
    assert rounds_of(model.get_booster()) == model.best_iteration + 1 < trained
    assert_equal_decisions("xgboost", model, tmp_path)


def test_categories_of_a_booster_that_is_cut(tmp_path):
    """Tables may list them in another order."""
    y, g = LABELS["binary"], np.digitize(X[:, 5], [-0.5, 0.5])
    frame = pd.DataFrame(X, columns=list("abcdef")).assign(
        g=pd.Categorical(np.array(list("yzx"))[g])
    )
    options = {"n_estimators": 40, "learning_rate": 0.5, "enable_categorical": True}
    model = CLASSIFIERS["xgboost"](
        constraints=RULES["binary"],
        early_stopping_rounds=PATIENCE,
        **OPTIONS["xgboost"],
        **options,
    )
    held = (frame[HELD], y[HELD])
    model.fit(frame[TRAIN], y[TRAIN], eval_set=[held], verbose=False)
    model.save_model(tmp_path / "model.json")
    booster = xgb.Booster(model_file=tmp_path / "model.json")
    other = frame.assign(g=frame["g"].cat.set_categories(["z", "y", "x"]))
    found = decided(booster.predict(xgb.DMatrix(other, enable_categorical=True)))
    np.testing.assert_array_equal(found, model.predict(frame))
    assert booster.num_boosted_rounds() == model.best_iteration + 1 < 40


@alternate("kind", ["binary", "several"])
@pytest.mark.parametrize("stops", [True, False])
@pytest.mark.parametrize("iterate", ["best", "randomized"])
def test_prefixes(library, kind, stops, iterate, tmp_path):
    """The rounds of a randomised classifier are all there; its decisions are drawn from them."""
    options = {"iterate": iterate, "measure_on": "holdout"}
    if stops:
        options[STOPPING[library]] = PATIENCE
    model = fit(library, kind, options)
    kept = rounds_of(booster_of(model))
    if iterate == "best":
        assert_attributes_of_the_model(library, model, stopped=stops)
        assert_equal_decisions(library, model, tmp_path)
        return
    assert model.prefixes_["rounds"].max() <= kept
    best = model.best_iteration + 1 if library == "xgboost" and stops else kept
    assert best == kept


@alternate("kind", ["several", "binary"])
def test_a_shift_of_the_last_iterate(library, kind, tmp_path):
    strict = [gc.fnr() <= 0.02] if kind == "binary" else [gc.class_error(2) <= 0.02]
    model = fit(library, kind, {"measure_on": gc.CrossFit(2), "n_estimators": 8}, strict)
    assert model.shift_.any()
    assert rounds_of(booster_of(model)) == 8
    assert_equal_decisions(library, model, tmp_path)


@alternate("kind", ["binary", "several"])
def test_continued_training(library, kind, tmp_path):
    first = fit(library, kind, {"n_estimators": 5, "measure_on": gc.CrossFit(2)})
    given = {"xgb_model" if library == "xgboost" else "init_model": booster_of(first)}
    options = {STOPPING[library]: PATIENCE, "measure_on": "train", "learning_rate": 0.3}
    model = fit(library, kind, options, **given)
    kept = rounds_of(booster_of(model))
    assert kept > 5
    best = model.best_iteration + 1 if library == "xgboost" else model.best_iteration_
    assert best == kept
    assert_equal_decisions(library, model, tmp_path)


def test_training_rows_of_a_model_that_a_callback_has_cut():
    """`save_best` cuts the booster after the last scores of the training rows were taken."""
    callback = xgb.callback.EarlyStopping(rounds=PATIENCE, save_best=True)
    options = {"callbacks": [callback], "early_stopping_on": "constraints", "measure_on": "train"}
    model = fit("xgboost", "binary", options)
    missed = np.mean(model.predict(X[TRAIN])[LABELS["binary"][TRAIN] == 1] == 0)
    assert len(model.evals_result()["validation_0"]["logloss"]) > model.best_iteration + 1
    assert model.constraint_report_.train[0] == pytest.approx(missed, abs=1e-9)


def test_attributes_of_the_user_stay_with_a_booster_that_is_cut():
    class Names(xgb.callback.TrainingCallback):
        def after_training(self, model):
            model.set_attr(mine="kept")
            return model

    options = {"callbacks": [Names()], "early_stopping_rounds": PATIENCE}
    model = fit("xgboost", "binary", {**options, "measure_on": gc.CrossFit(2)})
    booster = model.get_booster()
    assert booster.attr("mine") == "kept"
    assert booster.num_boosted_rounds() == model.best_iteration + 1 < 40


@BOTH
def test_the_score_is_that_of_the_kept_round(library):
    """Probabilities kept beside the threshold are those that the metric saw."""
    options = {STOPPING[library]: PATIENCE, "probabilities": "calibrated"}
    model = fit(library, "binary", {**options, "measure_on": "holdout"})
    found = log_loss(LABELS["binary"][HELD], model.predict_proba(X[HELD]))
    score = (
        model.best_score
        if library == "xgboost"
        else model.best_score_["valid_0"]["binary_logloss"]
    )
    assert score == pytest.approx(found, rel=1e-6)


class Marking(xgb.callback.TrainingCallback):
    """Callback of either library that leaves marks on the booster."""

    def after_iteration(self, model, epoch, evals_log):
        model.mark, model.calls = "kept", getattr(model, "calls", 0) + 1
        return False

    def __call__(self, env):
        self.after_iteration(env.model, env.iteration, None)


@BOTH
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"constraints": gc.gap(gc.selection_rate(), by="g") <= 0.02, "group_thresholds": True},
        {"constraints": gc.fnr() <= 0.02, "iterate": "best"},
        {"constraints": None, "maximize": "g_mean"},
        {"early_stopping": 1},
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:group_thresholds=True lets the group")
def test_what_callbacks_set_on_the_booster_stays(library, options):
    options = {
        "n_estimators": 6,
        "measure_on": gc.CrossFit(2),
        "constraints": gc.fnr() <= 0.1,
        **options,
    }
    table = pd.DataFrame(X[TRAIN], columns=list("abcdef")).assign(g=(X[TRAIN, 0] > 0) * 1.0)
    y, given, stops = LABELS["binary"][TRAIN], {}, options.pop("early_stopping", None)
    if stops:  # Labels of others let early stopping keep the first round.
        given = {"eval_set": [(table[:100], 1 - y[:100])], **quiet(library)}
        options[STOPPING[library]] = stops
    model = CLASSIFIERS[library](**OPTIONS[library], **options)
    if library == "xgboost":
        model.set_params(callbacks=[Marking()])
    else:
        given["callbacks"] = [Marking()]
    booster = booster_of(model.fit(table, y, **given))
    assert booster.mark == "kept"
    assert booster.calls == (2 if stops else 6)
