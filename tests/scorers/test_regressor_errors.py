"""What a regressor refuses, before it trains, and what each message names."""

from __future__ import annotations

import re

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb
from helpers import EITHER
from regressor_fits import REGRESSORS, fit, make, make_problem

import gbm_constrained as gc

RULE = [gc.mean_loss() <= 1.0]
GAP = [gc.gap(gc.mean_prediction(), by="g") <= 1.0]
PROBLEM = make_problem(200)
COUNTS = make_problem(200, is_positive=True)
KILL = {"constraint_callbacks": [lambda state: pytest.fail("training has begun")]}


def changed(y, value):
    y = y.copy()
    y[3] = value
    return y


def refuse(library, rules, match, *, objective="squared", problem=PROBLEM, given=None, **options):
    """Ask for a fit that must end before its first outer iteration."""
    with pytest.raises((ValueError, TypeError), match=match):
        fit(library, rules, problem, objective, given={**KILL, **(given or {})}, **options)


def refuse_targets(library, y, match, objective="squared"):
    with pytest.raises(ValueError, match=match):
        make(library, RULE, objective).fit(PROBLEM.X, y, **KILL)


@EITHER
@pytest.mark.parametrize(
    ("y", "match"),
    [
        (changed(PROBLEM.y, np.nan), "y has 1 missing .* row 3"),
        (changed(PROBLEM.y, -np.inf), "y is -inf in row 3"),
        (np.column_stack([PROBLEM.y, PROBLEM.y]), r"one-dimensional.* shape \(200, 2\)"),
        (np.array(["low"] * 200), "y holds 'low', which is no number"),
    ],
    ids=["nan", "inf", "two", "text"],
)
def test_targets_that_are_no_numbers(library, y, match):
    refuse_targets(library, y, match)


@EITHER
@pytest.mark.parametrize(
    ("y", "held", "match"),
    [
        (None, None, "estimator requires y to be passed.* one value for each row"),
        (PROBLEM.y, PROBLEM.y[:5], r"eval_set\[0\] has 200 rows of X and 5 values of y: give"),
        (PROBLEM.y, changed(PROBLEM.y, np.nan), r"y of eval_set\[0\] has 1 missing value.* row 3"),
        (changed(PROBLEM.y, np.nan), None, "y has 1 missing values"),
        (np.column_stack([PROBLEM.y, PROBLEM.y]), None, "one-dimensional, one value for each row"),
    ],
    ids=["none", "short", "missing", "nan", "two"],
)
def test_messages_about_targets_speak_of_no_labels_or_classes(library, y, held, match):
    sets = None if held is None else [(PROBLEM.X, held)]
    with pytest.raises(ValueError, match=match) as raised:
        make(library, RULE).fit(PROBLEM.X, y, eval_set=sets, **KILL)
    assert not re.search("label|class", str(raised.value))


@EITHER
def test_an_evaluation_set_without_rows(library):
    empty = {"eval_set": [(PROBLEM.X[:0], PROBLEM.y[:0])]}
    refuse(library, RULE, r"eval_set\[0\] has no rows: leave it out", given=empty)


@EITHER
@pytest.mark.parametrize("objective", ["poisson", "tweedie"])
def test_negative_and_zero_targets_of_a_log_link(library, objective):
    refuse_targets(
        library, changed(COUNTS.y, -2.0), "y holds -2 in row 3.*not negative", objective
    )
    refuse_targets(library, np.zeros(200), "y is zero in every row", objective)
    held = {"eval_set": [(COUNTS.X, changed(COUNTS.y, -2.0))]}
    refuse(
        library, RULE, r"y of eval_set\[0\] holds -2 in row 3", objective=objective,
        problem=COUNTS, given=held,
    )  # fmt: skip


@EITHER
@pytest.mark.parametrize(
    ("rules", "match"),
    [
        ([gc.fpr() <= 0.1], "fpr <= 0.1 bounds a rate of predicted classes.*mean_prediction"),
        ([gc.auc() >= 0.8], "auc >= 0.8 bounds a rate"),
        ([gc.log_loss() <= 0.8], "log_loss <= 0.8 bounds a rate"),
        ([gc.mean_loss(on=gc.label(1)) <= 1], "rows of a class.*column"),
        ([gc.gap(gc.mean_prediction(), by="h") <= 1], "column 'h' is neither in"),
        ([gc.mean_loss(weight="w") <= 1], "column 'w' is neither in"),
        (["mean_loss(squared) < 1"], "constraints: unexpected '<': .*write <="),
        ([gc.mean_loss(on=gc.dataset("d")) <= 1], "data set 'd' was not given"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_rules_that_a_regressor_cannot_have(library, rules, match):
    refuse(library, rules, match)


@pytest.mark.parametrize("name", ["xgboost", "lightgbm"])
def test_a_classifier_refuses_rules_of_regression(name):
    kinds = {"xgboost": gc.ConstrainedXGBClassifier, "lightgbm": gc.ConstrainedLGBMClassifier}
    with pytest.raises(ValueError, match=r"predicted numbers.*ConstrainedXGBRegressor"):
        kinds[name](constraints=RULE).fit(PROBLEM.X, PROBLEM.group)


@EITHER
def test_groups_and_data_sets_that_do_not_fit(library):
    refuse(library, GAP, r"shape \(10,\).*200 rows", given={"sensitive_features": {"g": [0] * 10}})
    refuse(library, GAP, "1 is left", given={"sensitive_features": {"g": [0] * 200}})
    amounts = {"sensitive_features": {"w": -np.ones(200)}}
    refuse(library, [gc.mean_loss(weight="w") <= 1], "200 of 200 rows are negative", given=amounts)
    rule = [gc.mean_loss(on=gc.dataset("d")) <= 1]
    sets = {"datasets": {"d": (PROBLEM.X, PROBLEM.y[:5])}}
    refuse(library, rule, r"datasets\['d'\] has 200 rows of features and 5 targets", given=sets)
    sets = {"datasets": {"d": PROBLEM.X}}
    refuse(library, rule, "needs labels.*mean_prediction", given=sets)
    sets = {"datasets": {"d": (PROBLEM.X, changed(PROBLEM.y, np.nan))}}
    refuse(library, rule, r"y of datasets\['d'\] has 1 missing", given=sets)


def own_objective(y, f):
    return f - y, np.ones_like(f)


@pytest.mark.parametrize(
    "objective",
    ["reg:squaredlogerror", "reg:logistic", "binary:logistic", "survival:cox",
     "rank:ndcg", "nonsense", 5, ["reg:squarederror"], own_objective],
    ids=lambda value: getattr(value, "__name__", str(value)),
)  # fmt: skip
def test_objectives_of_xgboost_that_rules_cannot_be_added_to(objective):
    model = REGRESSORS["xgboost"](constraints=RULE, objective=objective)
    with pytest.raises(ValueError, match=r"objective=.* cannot be trained.*'reg:tweedie'"):
        model.fit(PROBLEM.X, PROBLEM.y, **KILL)


@pytest.mark.parametrize(
    "objective",
    ["mape", "cross_entropy", "binary", "nonsense", 5,
     own_objective],
    ids=lambda value: getattr(value, "__name__", str(value)),
)  # fmt: skip
def test_objectives_of_lightgbm_that_rules_cannot_be_added_to(objective):
    model = REGRESSORS["lightgbm"](constraints=RULE, objective=objective, verbose=-1)
    with pytest.raises(ValueError, match=r"objective=.* cannot be trained.*'tweedie'"):
        model.fit(PROBLEM.X, PROBLEM.y, **KILL)


@pytest.mark.parametrize(
    ("library", "objective", "options", "match"),
    [
        ("xgboost", "quantile", {"quantile_alpha": [0.1, 0.9]}, "quantile_alpha= with one number"),
        ("xgboost", "quantile", {"quantile_alpha": None}, "quantile_alpha= with one number"),
        ("xgboost", "quantile", {"quantile_alpha": 1.5}, "quantile_alpha must lie .* got 1.5"),
        ("xgboost", "quantile", {"quantile_alpha": "high"}, "quantile_alpha must be a number"),
        ("xgboost", "huber", {"huber_slope": -1.0}, "huber_slope must lie .* got -1"),
        ("xgboost", "tweedie", {"tweedie_variance_power": 1.0}, "power must lie .* got 1"),
        ("xgboost", "squared", {"num_target": 2}, "num_target=2 asks for several predictions"),
        ("lightgbm", "quantile", {"alpha": 1.0}, "alpha must lie .* got 1"),
        ("lightgbm", "huber", {"alpha": 0.0}, "alpha must lie .* got 0"),
        ("lightgbm", "tweedie", {"tweedie_variance_power": 2.0}, "power must lie .* got 2"),
        ("lightgbm", "squared", {"reg_sqrt": True}, "reg_sqrt=True.*transformed targets"),
        ("lightgbm", "squared", {"class_weight": "balanced"}, "class_weight='balanced'.*weight"),
    ],
    ids=str,
)
def test_parameters_of_objectives(library, objective, options, match):
    refuse(library, RULE, match, objective=objective, problem=COUNTS, **options)


@EITHER
@pytest.mark.parametrize("objective", ["squared", "huber"])
def test_boosters_that_take_no_gradients_of_others(library, objective):
    kinds = [{"booster": "dart"}, {"booster": "gblinear"}, {"rate_drop": 0.1}]
    if library == "lightgbm":
        kinds = [{"boosting_type": "dart"}, {"boosting_type": "rf"}, {"boosting": "dart"}]
    for options in kinds:
        refuse(
            library, RULE, "cannot be trained under constraints", objective=objective, **options
        )


def test_a_model_of_dart_is_not_continued():
    dart = xgb.XGBRegressor(booster="dart", rate_drop=0.5, n_estimators=5)
    dart.fit(PROBLEM.X, PROBLEM.y)
    refuse("xgboost", RULE, "model of DART", given={"xgb_model": dart})


@EITHER
@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"measure_on": "test"}, "measure_on must be one of"),
        ({"measure_on": "forward"}, "give fit time="),
        ({"measure_on": gc.CrossFit(1)}, "n_folds of CrossFit must be an integer >= 2"),
        ({"measure_on": 3.5}, "measure_on must be"),
        ({"measure_on": gc.Holdout(2)}, "fraction of Holdout must lie strictly between"),
        ({"early_stopping_on": "loss"}, "early_stopping_on must be one of"),
        ({"early_stopping_on": "both"}, "early_stopping_on='both'"),
        ({"solver": "newton"}, "solver must be one of"),
        ({"solver": "threshold"}, "solver='threshold' moves a threshold between classes"),
        ({"n_estimators": 0}, "n_estimators must be an integer >= 1"),
        ({"learning_rate": "fast"}, "learning_rate must be a number"),
        ({"constraint": RULE}, "did you mean constraints="),
        ({"tau": 1.0}, r"solver=ABPP\(tau=\.\.\.\)"),
        ({"maximize": "f1"}, "no parameter 'maximize', which is one of classifiers"),
        ({"guarantee": "high_probability"}, "values of a row may be as large as they like"),
        (
            {"guarantee": gc.HighProbability(1.5)},
            "delta of HighProbability must lie strictly between 0 and 1",
        ),
        ({"group_thresholds": True}, "no parameter 'group_thresholds', which is one of"),
    ],
    ids=str,
)
def test_parameters_of_regressors(library, options, match):
    refuse(library, RULE, match, **options)


@EITHER
@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"sample_weight": -np.ones(200)}, "sample_weight must be finite and non-negative"),
        ({"sample_weight": np.zeros(200)}, "sample_weight is zero on every row"),
        ({"groups": np.arange(3)}, "groups must hold one value"),
        ({"time": "t"}, "time= orders the rows of measure_on='forward'"),
        ({"time_limit": -1}, "time_limit is -1"),
        ({"checkpoint": "/nonexistent/file"}, "is in a folder that is not there"),
        ({"constraint_callbacks": [3]}, "constraint_callbacks holds 3"),
        ({"sensitive_features_eval_set": [1]}, "sensitive_features_eval_set must be a list"),
        ({"datasets": [PROBLEM.X]}, "datasets must be a dict"),
        ({"eval_set": [(PROBLEM.X, changed(PROBLEM.y, np.nan))]}, r"y of eval_set\[0\] has 1"),
    ],
    ids=lambda value: str(next(iter(value))) if isinstance(value, dict) else "",
)
def test_arguments_of_fit(library, given, match):
    refuse(library, RULE, match, given=given)


@EITHER
def test_starting_scores_of_the_wrong_shape(library):
    name = {"xgboost": "base_margin", "lightgbm": "init_score"}[library]
    refuse(library, RULE, f"{name} must hold one score", given={name: np.zeros(3)})


@EITHER
def test_what_needs_rules_is_refused_without_any(library):
    for name, value in {"checkpoint": "file", "time_limit": 1.0}.items():
        with pytest.raises(ValueError, match=name):
            make(library, []).fit(PROBLEM.X, PROBLEM.y, **{name: value})


def test_metrics_that_lightgbm_does_not_compute():
    given = {"eval_set": [(COUNTS.X, COUNTS.y)], "eval_metric": "ndcg"}
    refuse(
        "lightgbm", RULE, "metric 'ndcg' cannot be evaluated.*callable", objective="poisson",
        problem=COUNTS, given=given,
    )  # fmt: skip


def test_metrics_that_xgboost_does_not_know():
    with pytest.raises(xgb.core.XGBoostError, match="'fantasy' cannot be evaluated under obj"):
        fit(
            "xgboost", RULE, PROBLEM, eval_metric="fantasy",
            given={**KILL, "eval_set": [(PROBLEM.X, PROBLEM.y)]},
        )  # fmt: skip


@EITHER
def test_files_that_hold_no_regressor(library, tmp_path):
    """The estimator stays as it was."""
    other = {"xgboost": lgb.LGBMRegressor, "lightgbm": xgb.XGBRegressor}[library]
    model = other(n_estimators=2).fit(PROBLEM.X, PROBLEM.y)
    file = tmp_path / "model.json"
    (model.booster_ if library == "xgboost" else model).save_model(file)
    fitted = fit(library, GAP, PROBLEM, n_estimators=4, measure_on=gc.CrossFit(2))
    before = fitted.predict(PROBLEM.X)
    with pytest.raises(ValueError, match="cannot be loaded"):
        fitted.load_model(file)
    np.testing.assert_array_equal(fitted.predict(PROBLEM.X), before)
    assert len(fitted.constraint_report_) == 1


@pytest.mark.parametrize("kind", [gc.ConstrainedLGBMRegressor, gc.ConstrainedXGBRegressor])
def test_priorities_are_refused(kind):
    later = (gc.mean_loss() <= 0.5).with_priority(2)
    model = kind(constraints=[later, gc.mean_prediction() <= 0.0])
    with pytest.raises(ValueError, match="has a priority, and regressors serve all alike"):
        model.fit(np.zeros((40, 1)), np.arange(40.0))
