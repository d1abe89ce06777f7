"""Regressors of both libraries: the parent's own model, files, copies and reports."""

from __future__ import annotations

import pickle

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from regressor_fits import (
    EACH,
    HAVE_LOG_LINK,
    OBJECTIVES,
    PARENTS,
    REGRESSORS,
    SMOOTH,
    fit,
    make,
    make_problem,
    options_of,
)
from sklearn.base import clone, is_regressor

import gbm_constrained as gc

NEVER_BINDS = [gc.mean_loss("squared") <= 1e6, gc.mean_prediction() <= 1e6]
GAP = [gc.gap(gc.mean_prediction(), by="g") <= 0.6]
ALL = [(library, name) for library, names in OBJECTIVES.items() for name in names]


def problem_of(objective, n=600, seed=0):
    return make_problem(n, seed, is_positive=objective in HAVE_LOG_LINK)


def compare_with_parent(
    library, problem, objective, given=None, tolerance=2e-6, measure_on="train", **options
):
    """Fit both, under rules that never bind, and compare predictions and the objective."""
    given, options = given or {}, {"n_estimators": 25, **options}
    plain = PARENTS[library](**options_of(library, objective, **options))
    plain.fit(problem.X, problem.y, **given)
    own = make(library, NEVER_BINDS, objective, measure_on=measure_on, **options)
    own.fit(problem.X, problem.y, **given)
    expected = plain.predict(problem.X)
    np.testing.assert_allclose(own.predict(problem.X), expected, rtol=tolerance, atol=tolerance)
    assert not own.multipliers_.any()
    assert own.adjustment_.tolist() == [1.0, 0.0]
    assert own.objective == plain.objective


@EACH
@pytest.mark.parametrize("objective", SMOOTH)
@pytest.mark.parametrize("measure_on", ["train", gc.CrossFit(2)])
def test_a_rule_that_never_binds_leaves_the_parents_model(library, objective, measure_on):
    compare_with_parent(library, problem_of(objective), objective, measure_on=measure_on)


@EACH
@pytest.mark.parametrize("objective", SMOOTH)
def test_so_with_weights_and_sampled_rows(library, objective):
    problem = problem_of(objective)
    weight = np.random.default_rng(1).exponential(size=600).round(3)
    sampled = {"subsample": 0.7, "random_state": 3}
    if library == "lightgbm":
        sampled["subsample_freq"] = 1
    compare_with_parent(library, problem, objective, {"sample_weight": weight}, 2e-5, **sampled)


@EACH
@pytest.mark.parametrize("objective", ["squared", "poisson"])
def test_so_from_scores_of_ones_own(library, objective):
    problem = problem_of(objective)
    start = {"xgboost": "base_margin", "lightgbm": "init_score"}[library]
    given = {start: 0.2 * problem.X[:, 0]}
    compare_with_parent(library, problem, objective, given)


@pytest.mark.parametrize("step", [0, 0.2, None])
def test_so_with_the_step_of_xgboosts_poisson_objective(step):
    compare_with_parent("xgboost", problem_of("poisson"), "poisson", max_delta_step=step)


def test_so_with_the_step_of_lightgbms_poisson_objective():
    problem = problem_of("poisson")
    compare_with_parent("lightgbm", problem, "poisson", poisson_max_delta_step=0.2)


@EACH
def test_no_rules_are_the_parents_fit(library):
    problem = problem_of("quantile")
    own = make(library, [], "quantile").fit(problem.X, problem.y)
    plain = PARENTS[library](**options_of(library, "quantile")).fit(problem.X, problem.y)
    np.testing.assert_array_equal(own.predict(problem.X), plain.predict(problem.X))
    assert not hasattr(own, "constraint_report_")
    assert is_regressor(own)
    assert isinstance(own, PARENTS[library])


@pytest.mark.parametrize(("library", "objective"), ALL)
def test_the_plain_library_reads_the_file_and_predicts_the_same(library, objective, tmp_path):
    """Scale and shift are in the file, and so are reports, which the plain library ignores."""
    problem, fresh = problem_of(objective), problem_of(objective, 300, 7)
    model = fit(library, GAP, problem, objective, n_estimators=20, measure_on=gc.CrossFit(2))
    expected = model.predict(fresh.X)
    model.save_model(tmp_path / "model.json")
    if library == "xgboost":
        plain = xgb.XGBRegressor()
        plain.load_model(tmp_path / "model.json")
        native = plain.get_booster()
        assert plain.objective == OBJECTIVES[library][objective]["objective"]
        found = native.predict(xgb.DMatrix(fresh.X))
        np.testing.assert_array_equal(plain.predict(fresh.X), expected)
    else:
        native = lgb.Booster(model_file=tmp_path / "model.json")
        found = native.predict(fresh.X)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    loaded = REGRESSORS[library]()
    loaded.load_model(tmp_path / "model.json")
    np.testing.assert_array_equal(loaded.predict(fresh.X), expected)
    assert loaded.constraints == GAP
    pd.testing.assert_frame_equal(loaded.constraint_report_, model.constraint_report_)
    pd.testing.assert_frame_equal(loaded.group_report_, model.group_report_)
    pd.testing.assert_series_equal(loaded.adjustment_, model.adjustment_)


@EACH
def test_a_file_of_the_plain_library_is_loaded_without_reports(library, tmp_path):
    problem = problem_of("squared")
    plain = PARENTS[library](**options_of(library, n_estimators=5)).fit(problem.X, problem.y)
    (plain if library == "xgboost" else plain.booster_).save_model(tmp_path / "m.json")
    loaded = fit(library, GAP, problem, n_estimators=5, measure_on=gc.CrossFit(2))
    loaded.load_model(tmp_path / "m.json")
    np.testing.assert_allclose(
        loaded.predict(problem.X), plain.predict(problem.X), rtol=1e-6, atol=1e-6
    )
    assert not hasattr(loaded, "constraint_report_")


@EACH
def test_classifiers_and_regressors_do_not_load_each_others_files(library, tmp_path):
    problem = problem_of("squared")
    names = {"xgboost": gc.ConstrainedXGBClassifier, "lightgbm": gc.ConstrainedLGBMClassifier}
    classifier = names[library](n_estimators=2).fit(problem.X, problem.group)
    classifier.save_model(tmp_path / "classifier.json")
    with pytest.raises((ValueError, TypeError)):
        REGRESSORS[library]().load_model(tmp_path / "classifier.json")


@EACH
def test_pickles_and_clones(library):
    problem = problem_of("squared")
    model = fit(library, GAP, problem, n_estimators=10, measure_on=gc.CrossFit(2))
    copied = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copied.predict(problem.X), model.predict(problem.X))
    pd.testing.assert_frame_equal(copied.constraint_report_, model.constraint_report_)
    again = clone(model)
    assert not hasattr(again, "constraint_report_")
    assert again.get_params()["constraints"] == GAP
    again.fit(problem.X, problem.y, sensitive_features={"g": problem.group})
    np.testing.assert_array_equal(again.predict(problem.X), model.predict(problem.X))


@EACH
def test_the_reports_say_what_the_model_predicts(library):
    problem = make_problem(1200)
    rules = [*GAP, gc.mean_loss("squared") <= 5.0]
    model = fit(library, rules, problem, measure_on=gc.CrossFit(2))
    predicted = model.predict(problem.X).astype(float)
    means = [predicted[problem.group == g].mean() for g in (0, 1)]
    train = model.constraint_report_["train"].to_numpy()
    assert train[0] == pytest.approx(means[1] - means[0], abs=1e-5)
    assert train[1] == pytest.approx(np.square(problem.y - predicted).mean(), abs=1e-5)
    groups = model.group_report_.set_index("group")["train"].to_numpy()
    np.testing.assert_allclose(groups[:2], means, atol=1e-5)
    assert model.constraint_report_["low"].lt(model.constraint_report_["held_out"]).all()
    assert model.constraint_report_["high"].gt(model.constraint_report_["held_out"]).all()
    last = model.history_.iloc[-1]
    assert last["rounds"] == 60
    assert last["objective"] == pytest.approx(
        np.square(problem.y - predicted).mean() / 2, abs=1e-5
    )
    assert model.stopping_message_ is None
    assert model.feasibility_.rules[0].verdict.kind == model.constraint_report_["verdict"][0]
