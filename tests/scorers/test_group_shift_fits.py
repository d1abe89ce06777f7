"""Regressors whose predictions use the group, in both libraries."""

from __future__ import annotations

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from helpers import EITHER, quiet
from regressor_fits import HAVE_LOG_LINK, REGRESSORS, make, make_problem, score_of

import gbm_constrained as gc
from gbm_constrained.fit.fit import warn_of_groups

pytestmark = pytest.mark.filterwarnings("ignore:group_shifts=True lets the group")
RULE = gc.gap(gc.mean_prediction(), by="g") <= 0.5
SMALL = {"n_estimators": 15, "measure_on": gc.CrossFit(3), "group_shifts": True}
OBJECTIVES = pytest.mark.parametrize("objective", ["squared", "quantile", "poisson"])


def rows_of(objective="squared", n=900):
    """Features with the group as a column, and targets that differ by group."""
    problem = make_problem(n, is_positive=objective in HAVE_LOG_LINK)
    return problem.frame.assign(g=problem.group.astype(float)), problem.y


def plain_prediction(model, X, **more):
    """Predictions of the plain library, which knows the file alone."""
    if isinstance(model, xgb.XGBRegressor):
        native = xgb.Booster(model_file=model.get_booster().save_raw())
        return native.predict(xgb.DMatrix(X), **more)
    return lgb.Booster(model_str=model.booster_.model_to_string()).predict(X, **more)


@EITHER
@OBJECTIVES
def test_the_plain_library_predicts_alike(library, objective):
    X, y = rows_of(objective)
    rule = gc.gap(gc.mean_prediction(), by="g") <= 0.3
    model = make(library, rule, objective, **SMALL).fit(X, y)
    assert model.group_shifts_["g"].tolist() == [0.0, 1.0]
    assert model.group_shifts_["rows"].tolist() == X["g"].value_counts().sort_index().tolist()
    assert model.group_shifts_["shift"].nunique() == 2
    np.testing.assert_array_equal(plain_prediction(model, X), model.predict(X))
    value = gc.audit(model, X, y, constraints=[rule]).frame["value"].item()
    assert model.constraint_report_["train"].item() == pytest.approx(value, abs=1e-5)
    assert model.constraint_report_["held_out"].item() <= 0.3 + 1e-6


@EITHER
def test_explanations_add_up_and_show_the_shift_at_the_column_of_the_group(library):
    X, y = rows_of()
    model = make(library, RULE, **SMALL).fit(X, y)
    asked = {"pred_contribs" if library == "xgboost" else "pred_contrib": True}
    before = {"xgboost": {"iteration_range": (0, 15)}, "lightgbm": {"num_iteration": 15}}[library]
    explained = plain_prediction(model, X, **asked)
    np.testing.assert_allclose(explained.sum(axis=1), score_of(model, X), atol=1e-4)
    moved = explained - plain_prediction(model, X, **asked, **before)
    np.testing.assert_allclose(moved[:, :4], 0.0, atol=1e-5)
    shift = model.group_shifts_.set_index("g")["shift"] - model.adjustment_["shift"]
    added = score_of(model, X) - score_of(model, X, **before)
    np.testing.assert_allclose(added, shift[X["g"]], atol=1e-5)


@EITHER
def test_less_loss_than_with_one_map_for_all(library):
    """Held-out rows of both fits are the same, and the group is of help here."""
    X, y = rows_of()
    rule = gc.gap(gc.mean_prediction(), by="g") <= 1.5
    common, by_group = (
        make(library, rule, **{**SMALL, "group_shifts": own}).fit(X, y) for own in (False, True)
    )
    assert by_group.constraint_report_["verdict"].item() == "met"
    assert float(by_group.unseen_r2_) > float(common.unseen_r2_)


@EITHER
def test_saved_models_predict_and_report_alike(library, tmp_path):
    X, y = rows_of()
    model = make(library, RULE, **SMALL).fit(X, y)
    path = tmp_path / ("model.ubj" if library == "xgboost" else "model.txt")
    model.save_model(path)
    loaded = REGRESSORS[library]()
    loaded.load_model(path)
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    pd.testing.assert_frame_equal(loaded.group_shifts_, model.group_shifts_)
    assert loaded.group_shifts


@EITHER
def test_evaluation_sets_and_early_stopping_see_the_shifts(library):
    """Early stopping leaves so few rounds that multipliers alone do not reach the bound."""
    X, y = rows_of()
    rule = gc.gap(gc.mean_prediction(), by="g") <= 0.2
    given = dict(quiet(library), eval_set=[(X[600:], y[600:])])
    options = {**SMALL, "n_estimators": 200, "learning_rate": 0.5}
    if library == "xgboost":
        options["early_stopping_rounds"] = 3
    else:
        given["callbacks"] = [lgb.early_stopping(3, verbose=False)]
    model = make(library, rule, **options).fit(X[:600], y[:600], **given)
    booster = model.get_booster() if library == "xgboost" else model.booster_
    n_trees = booster.num_boosted_rounds() if library == "xgboost" else booster.num_trees()
    assert n_trees < 200
    assert model.group_shifts_["shift"].nunique() == 2
    value = gc.audit(model, X[600:], y[600:], constraints=[rule]).frame["value"].item()
    assert model.constraint_report_["held_out"].item() == pytest.approx(value, abs=1e-5)


@EITHER
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"group_shifts": "yes"}, "group_shifts must be True or False, got 'yes'"),
        ({"constraints": gc.mean_prediction() <= 1.0}, "no constraint names one"),
        ({"constraints": gc.gap(gc.coverage(), by="race") <= 0.1}, "'race', which is of sens"),
        ({"measure_on": "train"}, "chooses a shift for each group on rows that the trees have no"),
        ({"guarantee": "high_probability"}, "certifies one scale and shift of all rows"),
    ],
)
def test_bad_input(library, options, message):
    X, y = rows_of()
    race = pd.Series(np.resize(["a", "b"], len(y)), X.index, name="race")
    model = make(library, RULE, **SMALL).set_params(**options)
    with pytest.raises(ValueError, match=message):
        model.fit(X, y, sensitive_features=race)


@EITHER
def test_columns_under_monotone_constraints_are_refused(library):
    X, y = rows_of(n=300)
    position = X.columns.get_loc("g")
    signs = tuple(int(j == position) for j in range(X.shape[1]))
    with pytest.raises(ValueError, match="adds a shift for each value of 'g', which need not be"):
        make(library, RULE, monotone_constraints=signs, **SMALL).fit(X, y)


@EITHER
def test_continued_training_needs_rows_that_choose_the_shifts(library):
    X, y = rows_of()
    first = make(library, RULE, **SMALL).fit(X, y)
    name, before = ("xgb_model", "get_booster") if library == "xgboost" else ("init_model", None)
    booster = getattr(first, before)() if before else first.booster_
    with pytest.raises(ValueError, match=r"group_shifts=True .* an evaluation set"):
        make(library, RULE, **{**SMALL, "measure_on": "auto"}).fit(X, y, **{name: booster})


def test_classifiers_have_thresholds_and_no_shifts_of_groups():
    X, y = rows_of()
    rule = gc.gap(gc.selection_rate(), by="g") <= 0.1
    for library in (gc.ConstrainedXGBClassifier, gc.ConstrainedLGBMClassifier):
        with pytest.raises(TypeError, match="no parameter 'group_shifts', which is one of regres"):
            library(constraints=rule, group_shifts=True).fit(X, y > 0)


def test_a_warning_says_once_that_groups_decide():
    X, y = rows_of(n=300)
    warn_of_groups.cache_clear()
    with pytest.warns(UserWarning, match=r"by a shift for each group.*\[GC122\]"):
        make("lightgbm", RULE, **{**SMALL, "n_estimators": 2}).fit(X, y)
