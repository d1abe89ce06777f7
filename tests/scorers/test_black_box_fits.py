"""Fits for a metric that is only a function to call: what is returned, and what is said of it."""

import pickle
import tracemalloc

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from black_box_fits import LIBRARIES, ROUNDS, draw, g_mean_loss, make, mean_g_mean_loss, with_group
from helpers import CLASSIFIERS, EITHER
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import gbm_constrained as gc
from gbm_constrained.metrics import BlackBox
from gbm_constrained.solvers import AdaptiveSurrogates

TRAINING, VALIDATION, TEST = draw(2, 1500, flipped=0.8), draw(102, 450), draw(3, 4000)
GROUPS = {"sensitive_features": TRAINING[2], "validation": VALIDATION}
MODELS = ["plain", "threshold", "threshold per group", "this model"]


@pytest.fixture(scope="module", params=LIBRARIES)
def fitted(request):
    """A classifier of either library, whose groups are no feature."""
    X, y, _ = TRAINING
    return request.param, make(request.param).fit(X, y, **GROUPS)


def plain_scores(library, X, y, V):
    """Scores of rows V by the library's own classifier."""
    model = make(library).set_params(minimize=None).fit(X, y)
    return native_scores(model, V)


def native_scores(model, X):
    raw = "output_margin" if isinstance(model, xgb.XGBClassifier) else "raw_score"
    kind = xgb.XGBClassifier if isinstance(model, xgb.XGBClassifier) else lgb.LGBMClassifier
    return kind.predict(model, X, **{raw: True})


def test_the_report_names_what_was_compared(fitted):
    _, model = fitted
    report = model.blackbox_report_
    assert report.model.tolist() == MODELS
    assert (report.n_validation == 300).all()
    assert (report.n_evaluation == 150).all()
    assert (report.calls <= 900).all()
    assert (report.low <= report.evaluation).all()
    assert (report.evaluation <= report.high).all()
    gains = report.evaluation - report.evaluation.iloc[-1]
    np.testing.assert_allclose(report.gain[:-1], gains[:-1], atol=1e-12)
    assert report.verdict.iloc[-1] == "returned"
    assert set(report.verdict[:-1]) <= {"better", "worse", "cannot be told"}


def test_no_other_model_is_better_on_the_rows_that_chose(fitted):
    _, model = fitted
    validation = model.blackbox_report_.validation
    assert validation.iloc[-1] == validation.min()
    assert validation.iloc[1] <= validation.iloc[0]
    assert model.history_.metric.iloc[0] == validation.iloc[1]
    assert model.history_.metric.min() >= validation.iloc[-1]


@EITHER
def test_the_report_is_of_the_model_that_predicts(library):
    X, y, _ = TRAINING
    evaluation = TEST
    model = make(library).fit(X, y, **GROUPS, evaluation=evaluation)
    report = model.blackbox_report_.set_index("model")
    V, v, g = evaluation
    scores = model.decision_scores(V, g)
    assert report.evaluation["this model"] == mean_g_mean_loss(v, scores, g.to_numpy())
    assert model.score(V, v, sensitive_features=g) == -report.evaluation["this model"]
    np.testing.assert_array_equal(model.predict(V, sensitive_features=g), (scores > 0).astype(int))
    plain = mean_g_mean_loss(v, plain_scores(library, X, y, V), g.to_numpy())
    assert report.evaluation["plain"] == pytest.approx(plain, abs=1e-9)
    # All validation rows choose if others are evidence.
    assert (report.n_validation == 450).all()


@EITHER
def test_clean_rows_mend_the_labels_of_one_group(library):
    """Of three draws, the mean loss is far below that of the plain model."""
    losses = []
    for seed in range(3):
        (X, y, g), V, T = draw(seed, 2000, 0.8), draw(10 + seed, 400), draw(20 + seed, 4000)
        model = make(library).fit(X, y, sensitive_features=g, validation=V, evaluation=T)
        losses.append(model.blackbox_report_.set_index("model").evaluation)
    mean = pd.concat(losses, axis=1).mean(axis=1)
    assert mean["this model"] < mean["plain"] - 0.3
    assert mean["this model"] < mean["threshold"] + 0.01


WITHOUT_OFFSETS = {
    "xgboost": {"output_margin": True, "iteration_range": (0, ROUNDS)},
    "lightgbm": {"raw_score": True, "num_iteration": ROUNDS},
}


@pytest.mark.parametrize("kind", [float, "category"])
@pytest.mark.parametrize("library", LIBRARIES)
def test_offsets_of_a_feature_are_a_tree_of_the_model(library, kind, tmp_path):
    (X, y, g), (V, v, h) = TRAINING, VALIDATION
    X, V = with_group(X, g, kind), with_group(V, h, kind)
    model = make(library, lambda y, s: g_mean_loss(y, s))
    if library == "xgboost":
        model.set_params(enable_categorical=True)
    model.fit(X, y, validation=(V, v))
    offsets = model.blackbox_parameters_.after.filter(like="offset")
    assert len(offsets) == 2
    assert not hasattr(model, "_group_offsets")
    scores = model.decision_scores(V)
    np.testing.assert_array_equal(model.predict(V), (scores > 0).astype(int))
    path = str(tmp_path / ("model.json" if library == "xgboost" else "model.txt"))
    with pytest.warns(UserWarning, match="does not keep minimize"):
        model.save_model(path)
    if library == "xgboost":
        read = xgb.Booster(model_file=path)
        rows = xgb.DMatrix(V, enable_categorical=True)
        np.testing.assert_allclose(read.predict(rows, output_margin=True), scores, atol=1e-6)
        assert read.num_boosted_rounds() == ROUNDS + bool(offsets.any())
    else:
        read = lgb.Booster(model_file=path)
        np.testing.assert_array_equal(read.predict(V, raw_score=True), scores)
        assert read.num_trees() == ROUNDS + bool(offsets.any())
    assert offsets.all()
    if kind is float:
        V["group"] = 7.0  # No training row has this value, and no group gives it an offset.
        without = model.predict(V, **WITHOUT_OFFSETS[library])
        np.testing.assert_allclose(model.decision_scores(V), without, atol=1e-6)


@EITHER
@pytest.mark.parametrize("is_same", [True, False])
def test_a_named_column_of_the_values_of_a_feature_is_that_feature(library, is_same):
    (X, y, g), (V, v, h) = TRAINING, VALIDATION
    named, held = (g, h) if is_same else (1 - g, 1 - h)
    model = make(library, lambda y, s: g_mean_loss(y, s))
    model.fit(
        with_group(X, g), y, sensitive_features=named, validation=(with_group(V, h), v, held)
    )
    assert model.blackbox_parameters_.after.filter(like="offset").any()
    assert hasattr(model, "_group_offsets") != is_same


@EITHER
def test_a_random_metric_is_named(library):
    rng, (X, y, _) = np.random.default_rng(0), TRAINING
    model = make(library, lambda y, s: rng.random(), by=None, max_calls=400)
    with pytest.warns(UserWarning, match=r"is random: it has the values .*GC310"):
        model.set_params(n_estimators=2).fit(X, y)


def test_a_group_that_is_no_feature_has_its_offset_beside_the_model(fitted, tmp_path):
    library, model = fitted
    X, _, g = TEST
    if "_group_offsets" not in vars(model):
        pytest.fail("the fixture has no offsets")
    with pytest.raises(ValueError, match=r"give sensitive_features with these columns"):
        model.predict(X)
    decided = model.predict(X, sensitive_features=g)
    offsets = model.blackbox_parameters_.after.filter(like="offset").to_numpy()
    expected = native_scores(model, X) + offsets[g]
    np.testing.assert_allclose(model.decision_scores(X, g), expected, atol=1e-6)
    audited = gc.audit(model, X, TEST[1], gc.error_rate() <= 0.5, sensitive_features=g)
    assert audited.frame["value"].iloc[0] == pytest.approx((decided != TEST[1]).mean())
    others = pd.Series(np.full(len(X), 5), name="group")  # of no training row
    with pytest.warns(
        UserWarning, match=r"4000 of 4000 rows have groups of .*lacks, \(5,\).*GC208"
    ):
        found = model.decision_scores(X, others)
    np.testing.assert_array_equal(found, native_scores(model, X))
    unknown = g.astype(float).mask(np.arange(len(X)) == 0)
    with pytest.warns(UserWarning, match=r"1 of 4000 rows .*missing.*GC208"):
        model.predict(X, sensitive_features=unknown)
    path = str(tmp_path / ("model.json" if library == "xgboost" else "model.txt"))
    with pytest.warns(UserWarning, match="does not keep minimize"):
        model.save_model(path)
    for same in (CLASSIFIERS[library](), pickle.loads(pickle.dumps(model))):
        if same.minimize is None:
            same.load_model(path)
        np.testing.assert_array_equal(same.predict(X, sensitive_features=g), decided)
        pd.testing.assert_frame_equal(same.blackbox_report_, model.blackbox_report_)
    # The library's own trees are weighed, and nothing else is in its file.
    np.testing.assert_array_equal(native_scores(same, X), native_scores(model, X))


@pytest.mark.parametrize("library", LIBRARIES)
def test_without_offsets_the_file_is_the_model(library):
    X, y, _ = TRAINING
    model = make(library, solver=AdaptiveSurrogates(offsets=False)).fit(X, y, **GROUPS)
    assert not model.blackbox_parameters_.index.str.startswith("offset").any()
    np.testing.assert_array_equal(
        model.predict(TEST[0]), (native_scores(model, TEST[0]) > 0).astype(int)
    )
    assert model.blackbox_report_.model.tolist() == MODELS


@EITHER
def test_a_share_of_the_rows_is_held_out_without_validation_rows(library):
    X, y, _ = draw(0, 1200)
    model = make(library, g_mean_loss, by=None).set_params(measure_on=gc.Holdout(0.5))
    model.fit(X, y, sample_weight=np.ones(1200))
    report = model.blackbox_report_
    assert report.model.tolist() == ["plain", "threshold", "this model"]
    assert (report.n_validation == 400).all()
    assert (report.n_evaluation == 200).all()
    same = clone(model).fit(X, y, sample_weight=np.ones(1200))
    np.testing.assert_array_equal(same.blackbox_parameters_, model.blackbox_parameters_)
    pd.testing.assert_frame_equal(same.history_, model.history_)


@EITHER
def test_thresholds_are_no_worse_than_none(library):
    """Few thresholds are tried, and only scores that keep the plain decisions lose nothing."""
    X, y, g = TRAINING
    V, v, h = VALIDATION
    plain = plain_scores(library, X, y, V)
    rows = np.arange(300)

    def changes(y_true, scores, sensitive):
        return float(((scores > 0) != (plain[sensitive["row"]] > 0)).mean())

    columns = pd.DataFrame({"group": g, "row": np.arange(len(g))})
    given, further = (
        (V.iloc[part], v[part], pd.DataFrame({"group": h.iloc[part], "row": part}))
        for part in (rows, np.arange(300, 450))
    )
    model = make(library, changes, max_calls=400)
    model.fit(X, y, sensitive_features=columns, validation=given, evaluation=further)
    report = model.blackbox_report_.set_index("model")
    assert (report.validation == 0.0).all()
    assert report.calls.iloc[0] <= 400


@EITHER
def test_one_row_of_a_label_is_no_evidence(library):
    X, y, _ = TRAINING
    V, v, _ = VALIDATION
    few = np.r_[np.flatnonzero(v == 1)[:1], np.flatnonzero(v == 0)[:20]]
    model = make(library, g_mean_loss, by=None)
    model.fit(X, y, validation=(V, v), evaluation=(V.iloc[few], v[few]))
    report = model.blackbox_report_
    assert report[["low", "high", "gain_low", "gain_high"]].isna().all(axis=None)
    assert set(report.verdict) == {"cannot be told", "returned"}


@EITHER
def test_a_grid_search_compares_the_metric(library):
    X, y, _ = draw(0, 1300)
    model = make(library, g_mean_loss, by=None, max_calls=400)
    model.set_params(solver=AdaptiveSurrogates(n_perturbations=20), solver__n_iterations=3)
    assert model.solver == AdaptiveSurrogates(n_perturbations=20, n_iterations=3)
    search = GridSearchCV(model, {"solver__sigma": [0.1, 0.5]}, cv=2).fit(X, y)
    assert search.best_estimator_.solver.sigma in (0.1, 0.5)
    assert search.score(X, y) == -g_mean_loss(y, search.best_estimator_.decision_scores(X))


def test_maximised_metrics_have_their_own_sign():
    X, y, _ = draw(0, 800)
    function = BlackBox(lambda y, s: 3.0 - g_mean_loss(y, s), maximize=True, bounds=(2, 3))
    given = {"n_estimators": 5, "n_jobs": 1, "verbose": -1}
    model = CLASSIFIERS["lightgbm"](maximize=function, **given).fit(X, y)
    report = model.blackbox_report_
    assert report.validation.iloc[-1] == report.validation.max()
    assert 2 <= report.evaluation.iloc[-1] <= 3
    assert model.score(X, y) == 3.0 - g_mean_loss(y, model.decision_scores(X))


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_parents_fit_is_what_is_changed(library):
    """Early stopping, weights and evaluation sets are as in the parent's own fit."""
    (X, y, g), (V, v, _) = draw(0, 800), VALIDATION
    weight = np.where(g == 1, 2.0, 1.0)
    own = {"early_stopping_rounds": 2} if library == "xgboost" else {"early_stopping_round": 2}
    given = {"eval_set": [(V, v)], "sample_weight": weight}
    if library == "xgboost":
        given["verbose"] = False
    plain = make(library).set_params(minimize=None, learning_rate=1.0, **own).fit(X, y, **given)
    model = make(library, g_mean_loss, by=None).set_params(learning_rate=1.0, **own)
    model.fit(X, y, **given, validation=VALIDATION[:2], evaluation=TEST[:2])
    rounds = model.blackbox_parameters_.after.filter(like="tree").size
    best = plain.best_iteration + 1 if library == "xgboost" else plain.best_iteration_
    assert rounds == best < ROUNDS
    if library == "xgboost":
        assert (model.best_iteration, model.best_score) == (plain.best_iteration, plain.best_score)
    else:
        assert model.best_iteration_ == plain.best_iteration_
        assert model.booster_.best_score == plain.booster_.best_score
    expected = g_mean_loss(TEST[1], native_scores(plain, TEST[0]))
    assert model.blackbox_report_.evaluation.iloc[0] == pytest.approx(expected, abs=1e-9)


def test_memory_is_one_number_in_single_precision_for_each_row_and_tree():
    X, y, _ = draw(0, 6000)
    given = {"validation": draw(1, 300)[:2], "evaluation": draw(2, 200)[:2]}
    n_trees = 100
    model = make("lightgbm", g_mean_loss, by=None, max_calls=200).set_params(n_estimators=n_trees)
    plain = clone(model).set_params(minimize=None)
    peaks = []
    for one, rows in ((plain, {}), (model, given)):
        tracemalloc.start()
        one.fit(X, y, **rows)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] - peaks[0] < 1.25 * 4 * (6000 + 500) * n_trees


@pytest.mark.parametrize("library", ["xgboost"])
def test_refits_share_the_calls_and_are_reported_beside_the_first_model(library):
    X, y, _ = TRAINING
    V, v, g = TEST
    reports = []
    for refits in (0, 2):
        solver = AdaptiveSurrogates(refits=refits, n_perturbations=10)
        model = make(library, solver=solver).fit(X, y, **GROUPS, evaluation=TEST)
        report = model.blackbox_report_.set_index("model")
        assert report.calls.iloc[0] <= 900
        scores = model.decision_scores(V, g)
        expected = mean_g_mean_loss(v, scores, g.to_numpy())
        assert report.evaluation["this model"] == expected
        assert report.validation["this model"] == report.validation.min()
        reports.append(report)
    assert reports[0].evaluation["plain"] == reports[1].evaluation["plain"]


@EITHER
def test_a_refit_that_is_not_better_is_not_taken(library):
    X, y, _ = TRAINING
    model = make(library, lambda y, s: 0.5, by=None, solver=AdaptiveSurrogates(refits=1))
    with pytest.warns(UserWarning, match="No perturbation of the parameters"):
        model.fit(X, y, validation=VALIDATION[:2])
    # Of equal losses, that of a threshold next to the plain one counts, and no tree has moved.
    moved = native_scores(model, TEST[0]) - plain_scores(library, X, y, TEST[0])
    assert np.ptp(moved) < 1e-6
    assert "No perturbation" not in model.stopping_message_
    assert model.stopping_message_.startswith("The search ended after 0 of 30 iterations")
