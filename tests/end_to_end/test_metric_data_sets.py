"""Metrics with named data sets, and what a metric on rows that trees have seen promises."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from helpers import CLASSIFIERS, EITHER
from sklearn.model_selection import train_test_split

import gbm_constrained as gc
from gbm_constrained import dataset
from gbm_constrained.datasets import load_compas
from gbm_constrained.metrics import g_mean, h_mean
from gbm_constrained.solvers import Reduction

N, M = 1200, 600
RNG = np.random.default_rng(0)
NAMES = list("abcd")


def draw(n, shift=0.0):
    X = pd.DataFrame(RNG.normal(size=(n, 4)), columns=NAMES)
    X["a"] += shift
    score = X["a"] + 0.5 * X["b"] + 0.7 * RNG.normal(size=n)
    return X, (score > 0.8).to_numpy().astype(int)


X, Y = draw(N)
OTHER, OTHER_Y = draw(M, 1.0)
NEW, NEW_Y = draw(4000)
NEW_OTHER, NEW_OTHER_Y = draw(4000, 1.0)
LIMITED = gc.selection_rate(on=dataset("later")) <= 0.4
OPTIONS = {
    "xgboost": {"max_depth": 3, "n_jobs": 1, "n_estimators": 20, "measure_on": gc.CrossFit(3)},
    "lightgbm": {
        "num_leaves": 7,
        "verbose": -1,
        "n_jobs": 1,
        "n_estimators": 20,
        "measure_on": gc.CrossFit(3),
    },
    "linear": {},
}
MAKE = {**CLASSIFIERS, "linear": gc.ConstrainedLogisticRegression}
ALL = pytest.mark.parametrize("library", MAKE)


def make(library, **options):
    return MAKE[library](**{**OPTIONS[library], **options})


def share_of(model, X):
    return model.decision_probabilities(X)[:, 1].mean()


@ALL
def test_a_rate_of_rows_without_labels_is_bounded(library):
    free = make(library, maximize=g_mean()).fit(X, Y)
    assert share_of(free, NEW_OTHER) > 0.55
    model = make(library, maximize=g_mean(), constraints=[LIMITED])
    model.fit(X, Y, datasets={"later": OTHER})
    report = model.constraint_report_.iloc[0]
    assert report["held_out"] <= 0.4 + 2 * np.sqrt(0.24 / M)  # Others chose the rules.
    assert report["train"] == pytest.approx(share_of(model, OTHER), abs=1e-12)
    # Standard errors of 600 rows that chose the rules, and of 4000 that did not.
    assert share_of(model, NEW_OTHER) <= 0.4 + 3 * np.sqrt(0.24 * (1 / M + 1 / 4000)) + 0.02
    assert model.score(NEW, NEW_Y) <= free.score(NEW, NEW_Y)
    threshold = np.quantile(free.predict_proba(OTHER)[:, 1], 0.6)
    by_threshold = free.predict_proba(NEW)[:, 1] > threshold
    recalls = [np.mean(by_threshold[k == NEW_Y] == k) for k in (0, 1)]
    # Rules that know where the rows come from are no worse than one threshold of scores.
    assert model.score(NEW, NEW_Y) >= np.sqrt(np.prod(recalls)) - 0.02


@ALL
def test_a_metric_of_a_labelled_data_set(library):
    """Balanced on the shifted rows, whose larger class is the other one."""
    metric = g_mean(on=dataset("later"))
    model = make(library, maximize=metric).fit(X, Y, datasets={"later": (OTHER, OTHER_Y)})
    shares = model.decision_probabilities(NEW_OTHER)
    reached = np.sqrt(np.prod([shares[k == NEW_OTHER_Y, k].mean() for k in (0, 1)]))
    held_out = model.metric_report_[model.metric_report_["is_returned"]].iloc[0]
    assert held_out["low"] - 0.03 <= reached <= held_out["high"] + 0.03
    assert reached > 0.75
    with pytest.raises(ValueError, match=r"speaks of the data set 'later', which was given to a"):
        model.score(NEW, NEW_Y)


@ALL
def test_a_mean_over_data_sets_and_training_rows_is_maximised(library):
    """A linear objective over both distributions is not below that of either alone."""
    both = 0.5 * gc.accuracy() + 0.5 * gc.accuracy(on=dataset("later"))
    model = make(library, maximize=both).fit(X, Y, datasets={"later": (OTHER, OTHER_Y)})
    table = model.metric_report_
    assert table["held_out"].max() >= table["held_out"].iloc[0] - 1e-12
    shares = [model.decision_probabilities(part) for part in (X, OTHER)]
    value = np.mean([s[np.arange(len(s)), y].mean() for s, y in zip(shares, (Y, OTHER_Y),
                                                                  strict=True)])  # fmt: skip
    assert table["train"].dropna().iloc[0] == pytest.approx(value, abs=1e-12)


@ALL
def test_data_sets_that_nothing_is_about_change_nothing(library):
    plain = make(library, maximize=h_mean()).fit(X, Y)
    model = make(library, maximize=h_mean()).fit(X, Y, datasets={"later": OTHER})
    np.testing.assert_array_equal(model.predict_proba(NEW), plain.predict_proba(NEW))
    np.testing.assert_array_equal(
        model.decision_probabilities(NEW), plain.decision_probabilities(NEW)
    )
    pd.testing.assert_frame_equal(model.metric_report_, plain.metric_report_)


@EITHER
def test_probabilities_are_those_of_the_training_rows(library):
    """The objective of the labels leaves data sets out."""
    plain = make(library).fit(X, Y)
    model = make(library, maximize=g_mean(), constraints=[LIMITED])
    model.fit(X, Y, datasets={"later": OTHER})
    np.testing.assert_allclose(model.predict_proba(NEW), plain.predict_proba(NEW), rtol=1e-6)


@EITHER
def test_files_merged_boosters_and_weights(library, tmp_path):
    weight = RNG.uniform(0.5, 2.0, size=N)
    model = make(
        library, maximize=g_mean(), constraints=[LIMITED], solver=Reduction(ensemble="folds")
    )
    model.fit(X, Y, sample_weight=weight, datasets={"later": OTHER})
    assert model.metric_report_["held_out"].notna().all()
    path = tmp_path / {"xgboost": "model.json", "lightgbm": "model.txt"}[library]
    model.save_model(path)
    loaded = MAKE[library]().load_model(path)
    np.testing.assert_array_equal(
        loaded.decision_probabilities(NEW), model.decision_probabilities(NEW)
    )
    assert str(loaded.constraints[0]) == str(LIMITED)


@EITHER
def test_an_evaluation_set_is_measured_without_the_constraints_on_data_sets(library):
    given = {"verbose": False} if library == "xgboost" else {}
    model = make(library, maximize=g_mean(), constraints=[LIMITED, gc.error_rate() <= 0.9])
    model.fit(X, Y, datasets={"later": OTHER}, eval_set=[(NEW, NEW_Y)], **given)
    last = model.metric_report_.iloc[-1]
    assert last["rows"] == "eval_set[0]"
    assert last["violation"] == 0.0
    assert last["held_out"] == pytest.approx(model.score(NEW, NEW_Y), abs=1e-12)


@EITHER
def test_boosters_without_gradients_meet_constraints_on_data_sets(library):
    kind = {"xgboost": {"booster": "dart"}, "lightgbm": {"boosting_type": "dart"}}[library]
    model = make(library, constraints=[LIMITED], **kind)
    model.fit(X, Y, datasets={"later": OTHER})
    assert share_of(model, NEW_OTHER) <= 0.47
    assert model.constraint_report_["held_out"].iloc[0] <= 0.42


@EITHER
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "data set 'later' was not given"),
        ({"datasets": {"later": OTHER[:0]}}, "has no rows"),
        ({"datasets": {"later": OTHER["a"]}}, "give both as the same kind of table"),
    ],
)
def test_bad_data_sets_are_refused(library, given, words):
    with pytest.raises((TypeError, ValueError), match=words):
        make(library, maximize=g_mean(), constraints=[LIMITED]).fit(X, Y, **given)


@EITHER
def test_starting_scores_have_no_values_for_data_sets(library):
    option = {"xgboost": "base_margin", "lightgbm": "init_score"}[library]
    with pytest.raises(ValueError, match=f"{option} cannot be given together with datasets"):
        make(library, maximize=g_mean(), constraints=[LIMITED]).fit(
            X, Y, datasets={"later": OTHER}, **{option: np.zeros(N)}
        )


def promise_and_test(measure_on, seed):
    """H-mean that a fit reports on the rows that it was measured on, and that of test rows."""
    data = load_compas(target="score_text")
    rest, test, y, y_test = train_test_split(
        data.data, data.target, test_size=0.3, random_state=seed
    )
    model = gc.ConstrainedLGBMClassifier(
        maximize=h_mean(), measure_on=measure_on, n_estimators=60, n_jobs=1, verbose=-1
    )
    model.fit(rest, y)
    report = model.metric_report_
    measured = "train" if measure_on == "train" else "held_out"
    return report.loc[report["is_returned"], measured].item(), model.score(test, y_test)


@pytest.mark.filterwarnings("ignore:measure_on='train' optimises:UserWarning")
def test_training_rows_promise_too_much_and_rows_out_of_fold_do_not():
    """Paper's section 8 counts confusion on training rows, which is not safe for boosted trees."""
    promised, reached = np.mean([promise_and_test("train", seed) for seed in range(3)], axis=0)
    assert promised - reached > 0.1
    promised, reached = np.mean([promise_and_test("crossfit", seed) for seed in range(3)], axis=0)
    assert abs(promised - reached) < 0.02  # twice the standard error of a mean over 3 x 2,165 rows
