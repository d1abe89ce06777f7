"""Scale and shift are folded into the trees of both libraries: all scores are mapped exactly."""

from __future__ import annotations

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb
from regressor_fits import (
    EACH,
    HAVE_LOG_LINK,
    OBJECTIVES,
    PARENTS,
    fit,
    make_problem,
    options_of,
    score_of,
)

import gbm_constrained as gc
from gbm_constrained.decision.regression import Affine
from gbm_constrained.scorers.lightgbm.models import rescale as rescale_lightgbm
from gbm_constrained.scorers.xgboost.models import rescale as rescale_xgboost

ALL = [(library, name) for library, names in OBJECTIVES.items() for name in names]
SHRUNK = Affine(0.7, -0.35)


def rescaled(model, affine):
    """Rescale a fitted model of the parent, in place."""
    if isinstance(model, xgb.XGBModel):
        rescale_xgboost(model.get_booster(), affine)
    else:
        model._Booster = rescale_lightgbm(model.booster_, affine)
    return model


def fit_parent(library, objective="squared", **more):
    problem = make_problem(500, is_positive=objective in HAVE_LOG_LINK)
    options = options_of(library, objective, n_estimators=15, **more)
    return problem, PARENTS[library](**options).fit(problem.X, problem.y)


@pytest.mark.parametrize(("library", "objective"), ALL)
@pytest.mark.parametrize("affine", [SHRUNK, Affine(1.2, 0.0), Affine(1.0, 2.0), Affine(0.0, 0.4)])
def test_scores_are_mapped(library, objective, affine):
    problem, model = fit_parent(library, objective)
    before = score_of(model, problem.X).astype(float)
    after = score_of(rescaled(model, affine), problem.X)
    np.testing.assert_allclose(after, affine(before), rtol=0, atol=4e-6)
    link = np.exp if objective in HAVE_LOG_LINK else np.asarray
    expected = link(affine(before))
    np.testing.assert_allclose(model.predict(problem.X), expected, rtol=1e-5, atol=4e-6)


@pytest.mark.parametrize("objective", ["squared", "poisson"])
def test_linear_leaves_are_scaled_with_their_coefficients(objective):
    problem, model = fit_parent("lightgbm", objective, linear_tree=True)
    problem.X[::7, 1] = np.nan  # Rows with missing values fall back to the leaf's constant.
    before = score_of(model, problem.X)
    after = score_of(rescaled(model, SHRUNK), problem.X)
    np.testing.assert_allclose(after, SHRUNK(before), rtol=0, atol=1e-9)


def test_trees_of_one_leaf_are_mapped():
    """LightGBM writes a tree without a split where no split gains anything."""
    problem = make_problem(100)
    options = options_of("lightgbm", n_estimators=3, min_child_samples=80)
    model = lgb.LGBMRegressor(**options).fit(problem.X, problem.y)
    before = score_of(model, problem.X)
    assert np.ptp(before) == 0.0
    np.testing.assert_allclose(score_of(rescaled(model, SHRUNK), problem.X), SHRUNK(before))


@pytest.mark.parametrize(
    "options",
    [
        {"num_parallel_tree": 3, "subsample": 0.7},
        {"base_score": 3.5},
        {"tree_method": "exact"},
        {"grow_policy": "lossguide", "max_leaves": 7},
    ],
    ids=str,
)
def test_boosters_of_xgboost_of_every_kind(options):
    problem, model = fit_parent("xgboost", **options)
    before = score_of(model, problem.X).astype(float)
    config = model.get_booster().save_config()
    after = score_of(rescaled(model, SHRUNK), problem.X)
    np.testing.assert_allclose(after, SHRUNK(before), rtol=0, atol=4e-6)
    assert model.get_booster().save_config() == config


def test_early_stopping_of_lightgbm_stays():
    problem, model = fit_parent("lightgbm")
    model.booster_.best_iteration = 4
    expected = SHRUNK(model.booster_.predict(problem.X, raw_score=True))
    booster = rescale_lightgbm(model.booster_, SHRUNK)
    assert booster.best_iteration == 4
    found = booster.predict(problem.X, raw_score=True)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)


@EACH
def test_an_adjustment_keeps_its_value_on_held_out_rows(library):
    """The report of a model with a scale and a shift is that of its predictions."""
    train, held = make_problem(300), make_problem(400, seed=5)
    rule = [gc.gap(gc.mean_prediction(), by="g") <= 0.3, gc.mean_residual() >= 0.2]
    given = {
        "eval_set": [(held.X, held.y)],
        "sensitive_features_eval_set": [{"g": held.group}],
        "sensitive_features": {"g": train.group},
    }
    if library == "xgboost":
        given["verbose"] = False
    model = fit(library, rule, train, given=given, n_estimators=6, measure_on="holdout")
    assert model.adjustment_.tolist() != [1.0, 0.0]
    f = model.predict(held.X).astype(float)
    means = [f[held.group == g].mean() for g in (0, 1)]
    expected = [abs(means[1] - means[0]), (held.y - f).mean()]
    np.testing.assert_allclose(model.constraint_report_["held_out"], expected, atol=1e-5)


def test_scores_that_hold_a_base_margin_are_shifted_alone():
    """Leaves cannot scale the margin of a row, which the file does not hold."""
    problem = make_problem(400)
    start = 0.8 * problem.X[:, 0]
    rules = [gc.gap(gc.mean_prediction(), by="g") <= 0.3, gc.mean_residual() >= 0.4]
    given, options = {"base_margin": start}, {"n_estimators": 6, "measure_on": gc.CrossFit(2)}
    model = fit("xgboost", rules, problem, given=given, **options)
    assert fit("xgboost", rules, problem, **options).adjustment_["scale"] < 1.0
    assert model.adjustment_["scale"] == 1.0
    assert model.adjustment_["shift"] != 0.0
    f = model.predict(problem.X, base_margin=start).astype(float)
    train = model.constraint_report_["train"]
    assert train[1] == pytest.approx((problem.y - f).mean(), abs=1e-5)
