"""All arguments of ``fit``, and all parameters, work for regressors as they do for classifiers."""

from __future__ import annotations

from importlib.util import find_spec

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import sklearn
from helpers import EITHER
from regressor_fits import (
    HAVE_LOG_LINK,
    OBJECTIVES,
    PARENTS,
    REGRESSORS,
    fit,
    make,
    make_problem,
    options_of,
)
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, cross_val_score

import gbm_constrained as gc
from gbm_constrained.solvers import ABPP

GAP = [gc.gap(gc.mean_prediction(), by="g") <= 0.8]
NEVER_BINDS = [gc.mean_loss() <= 1e6]
ALL = [(library, name) for library, names in OBJECTIVES.items() for name in names]
SMALL = {"n_estimators": 20, "measure_on": gc.CrossFit(2)}


@pytest.fixture(scope="module")
def train():
    return make_problem(800)


@pytest.fixture(scope="module")
def held():
    return make_problem(600, seed=4)


class KilledError(Exception):
    """Raised by a callback in the middle of a fit."""


def stopping(library, train, held, **more):
    """Parameters and arguments of early stopping after five rounds without a better metric."""
    given = {
        "sensitive_features": {"g": train.group},
        "eval_set": [(held.X, held.y)],
        "sensitive_features_eval_set": [{"g": held.group}],
    }
    if library == "xgboost":
        return {"early_stopping_rounds": 5, **more}, {**given, "verbose": False}
    return more, {**given, "callbacks": [lgb.early_stopping(5, verbose=False)]}


def best_of(model):
    if hasattr(model, "best_iteration_"):  # LightGBM counts from one.
        return model.best_iteration_
    return model.best_iteration + 1


def recorded(model):
    """Values of the only metric of the first evaluation set, by round."""
    results = model.evals_result_
    (values,) = next(iter(results.values())).values()
    return np.asarray(values)


@pytest.mark.parametrize(("library", "objective"), ALL)
def test_early_stopping_is_by_the_metric_that_the_parent_has_by_default(library, objective):
    """Also where XGBoost trains absolute and quantile losses under the name of another one."""
    is_positive = objective in HAVE_LOG_LINK
    train, held = (
        make_problem(500, is_positive=is_positive),
        make_problem(300, 4, is_positive=is_positive),
    )
    options, given = stopping(library, train, held, n_estimators=30, learning_rate=0.5)
    own = fit(library, NEVER_BINDS, train, objective, given=dict(given), **options)
    del given["sensitive_features"], given["sensitive_features_eval_set"]
    plain = PARENTS[library](**options_of(library, objective, **options))
    plain.fit(train.X, train.y, **given)
    assert [*own.evals_result_] == [*plain.evals_result_]
    names = [[*values] for values in own.evals_result_.values()]
    assert names == [[*values] for values in plain.evals_result_.values()]
    if objective not in ("absolute", "quantile"):  # The parents move leaves of these.
        assert best_of(own) == best_of(plain)
        np.testing.assert_allclose(recorded(own), recorded(plain), rtol=2e-5)
    assert recorded(own).argmin() + 1 == best_of(own) < 30


@pytest.mark.parametrize(
    ("library", "given", "metric"),
    [
        ("xgboost", {"objective": "reg:gamma"}, None),
        ("lightgbm", {"objective": "gamma"}, ["mape", "gamma"]),
        ("lightgbm", {"objective": "fair", "fair_c": 0.3}, None),
        ("lightgbm", {"objective": "rmse"}, None),
        ("lightgbm", {"objective": "l2_root"}, "l1"),
        ("lightgbm", {"objective": "Root_Mean_Squared_Error"}, None),
        ("lightgbm", {"metric": ""}, None),
        (
            "lightgbm",
            {"objective": "poisson", "alpha": 0.3},
            ["huber", "fair", "quantile", "mape", "gamma", "tweedie", "RMSE"],
        ),
    ],
    ids=str,
)
def test_names_of_objectives_and_metrics_are_the_parents(library, given, metric, train, held):
    """Names, order and values of the metrics, and predictions, as a rule never binds."""
    small = {"n_estimators": 4, "n_jobs": 1, **given}
    more = {"eval_set": [(held.X, np.exp(held.y / 4))], "eval_metric": metric, "verbose": False}
    del more["verbose" if library == "lightgbm" else "eval_metric"]
    if library == "lightgbm":
        small["verbose"] = -1
    plain, own = (
        PARENTS[library](),
        REGRESSORS[library](constraints=NEVER_BINDS, measure_on=gc.CrossFit(2)),
    )
    for model in (plain, own):
        model.set_params(**small).fit(train.X, np.exp(train.y / 4), **more)
    expected, found = (next(iter(model.evals_result_.values())) for model in (plain, own))
    assert [*found] == [*expected]
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=2e-6, err_msg=name)
    np.testing.assert_allclose(own.predict(held.X), plain.predict(held.X), rtol=2e-6)


@pytest.mark.parametrize(
    ("library", "objective"), [("xgboost", "reg:gamma"), ("lightgbm", "gamma")]
)
def test_gamma_is_for_positive_targets(library, objective, train):
    model = REGRESSORS[library](constraints=NEVER_BINDS, objective=objective)
    with pytest.raises(ValueError, match="the gamma objective is for targets that are positive"):
        model.fit(train.X, train.y)


@EITHER
@pytest.mark.parametrize("on", ["metric", "constraints", "both"])
def test_early_stopping_by_metric_constraints_or_both(library, on, train, held):
    options, given = stopping(
        library, train, held, n_estimators=120, learning_rate=0.4, early_stopping_on=on,
        measure_on=gc.CrossFit(2),
    )  # fmt: skip
    model = fit(library, GAP, train, given=given, **options)
    rounds = best_of(model)
    assert 1 <= rounds < 120
    f = model.predict(held.X).astype(float)
    gap = abs(f[held.group == 1].mean() - f[held.group == 0].mean())
    assert model.constraint_report_["held_out"][0] == pytest.approx(gap, abs=1e-5)
    assert model.constraint_report_["rows"].tolist() == ["eval_set[0]"]
    assert model.history_["rounds"].iloc[-1] == rounds
    if on != "metric":
        assert gap <= 0.8 + 0.2


@EITHER
@pytest.mark.parametrize("columns", [None, ["g", "amount"]])
def test_what_an_evaluation_set_cannot_measure_is_measured_out_of_fold(library, columns, train):
    """It has one group, or neither groups nor amounts."""
    small = {"n_estimators": 3, "measure_on": gc.CrossFit(2)}
    rules = [
        gc.each(gc.mean_loss(), by="g") <= 0.4,
        gc.mean_loss(on={"g": 1}) <= 5.0,
        gc.mean_loss(weight="amount") <= 0.6,
        gc.mean_loss() <= 5.0,
    ]
    table = pd.DataFrame({"g": train.group, "amount": 1.0 + train.group})
    at = np.flatnonzero(train.group == 0)[:100]
    given = {"sensitive_features": table, "eval_set": [(train.X[at], train.y[at])]}
    if columns is not None:
        given["sensitive_features_eval_set"] = [table.iloc[at][columns]]
    model, without = make(library, rules, **small), make(library, rules, **small)
    model.fit(train.X, train.y, **given)
    without.fit(train.X, train.y, sensitive_features=table)
    report, expected = model.constraint_report_, without.constraint_report_
    there = report["rows"] == "eval_set[0]"
    assert there.tolist() == [False, False, columns is not None, True]
    pd.testing.assert_frame_equal(report[~there], expected[~there])
    loss = float(((model.predict(train.X[at]) - train.y[at]) ** 2).mean())
    assert report["held_out"][3] == pytest.approx(loss, rel=1e-5)
    last = [model.history_[f"held_out[{rule}]"].iloc[-1] for rule in rules]
    np.testing.assert_array_equal(model.cost_report_.loc["returned"].iloc[1:], last)
    np.testing.assert_array_equal(report["held_out"], last)


@EITHER
def test_a_function_as_metric_is_given_predictions(library, held):
    """Under a log link as well, where the libraries' own objective would apply the link."""
    train = make_problem(400, is_positive=True)
    seen = []

    def smallest(y_true, y_pred):
        seen.append(float(np.min(y_pred)))
        value = float(np.mean(np.abs(y_true - y_pred)))
        return value if library == "xgboost" else ("smallest", value, False)

    given = {"eval_set": [(train.X, train.y)]}
    options = {"n_estimators": 5, "measure_on": "train"}
    if library == "xgboost":
        options["eval_metric"], given["verbose"] = smallest, False
    else:
        given["eval_metric"], options["metric"] = smallest, "None"  # and no other
    rules = [gc.mean_prediction() <= 1.4]
    model = fit(library, rules, train, "poisson", given=given, **options)
    assert len(seen) == 5
    assert min(seen) > 0.0
    expected = np.abs(train.y - model.predict(train.X)).mean()
    found = next(iter(model.evals_result_.values()))["smallest"][-1]
    assert found == pytest.approx(expected, rel=1e-5)


@EITHER
def test_starting_scores_are_part_of_a_fit(library, train):
    """XGBoost's report is of predictions with them, and LightGBM's of those without."""
    start = 0.3 * train.X[:, 0]
    name = {"xgboost": "base_margin", "lightgbm": "init_score"}[library]
    model = fit(library, GAP, train, given={name: start}, **SMALL)
    more = {"base_margin": start} if library == "xgboost" else {}
    f = model.predict(train.X, **more).astype(float)
    gap = abs(f[train.group == 1].mean() - f[train.group == 0].mean())
    assert model.constraint_report_["train"][0] == pytest.approx(gap, abs=1e-4)


@EITHER
def test_training_is_continued(library, train):
    first = fit(library, GAP, train, **SMALL)
    name = {"xgboost": "xgb_model", "lightgbm": "init_model"}[library]
    model = fit(library, GAP, train, given={name: first}, **{**SMALL, "measure_on": "train"})
    booster = model.get_booster() if library == "xgboost" else model.booster_
    rounds = booster.num_boosted_rounds() if library == "xgboost" else booster.num_trees()
    assert rounds == 40
    f = model.predict(train.X).astype(float)
    gap = abs(f[train.group == 1].mean() - f[train.group == 0].mean())
    assert model.constraint_report_["train"][0] == pytest.approx(gap, abs=1e-4)
    assert gap <= 0.95


@EITHER
def test_a_fit_that_was_killed_goes_on_from_its_checkpoint(library, train, tmp_path):
    file = tmp_path / "fit.checkpoint"
    whole = fit(library, GAP, train, **SMALL)

    def kill(state):
        if state.phase == "training":
            raise KilledError

    given = {"checkpoint": file, "constraint_callbacks": [kill]}
    with pytest.raises(KilledError):
        fit(library, GAP, train, given=given, **SMALL)
    assert file.exists()
    with pytest.raises(ValueError, match="is of another fit"):
        fit(library, NEVER_BINDS, train, given={"checkpoint": file}, **SMALL)
    model = fit(library, GAP, train, given={"checkpoint": file}, **SMALL)
    assert not file.exists()
    np.testing.assert_array_equal(model.predict(train.X), whole.predict(train.X))
    pd.testing.assert_frame_equal(
        model.constraint_report_, whole.constraint_report_, check_exact=False
    )


@EITHER
def test_a_time_limit_ends_a_fit(library, train):
    with pytest.warns(gc.TimeLimitWarning, match="time_limit=3"):
        model = fit(library, GAP, train, given={"time_limit": 3}, n_estimators=50_000)
    assert "time_limit=3" in model.stopping_message_
    assert len(model.constraint_report_) == 1


@EITHER
def test_callbacks_see_the_constraints_and_end_training(library, train):
    seen = []

    def stop(state):
        seen.append(state)
        return state.phase == "training" and state.rounds >= 8

    model = fit(library, GAP, train, given={"constraint_callbacks": [stop]}, **SMALL)
    assert {state.phase for state in seen} == {"measuring", "training"}
    assert "constraint callback ended training" in model.stopping_message_
    assert model.history_["rounds"].iloc[-1] < 20


@EITHER
@pytest.mark.parametrize(
    ("options", "given", "rows"),
    [
        ({"measure_on": gc.Holdout(0.4)}, {}, "holdout"),
        ({"measure_on": KFold(2)}, {}, "out of fold of KFold"),
        (
            {"measure_on": GroupKFold(2)},
            {"groups": np.arange(800) // 8},
            "out of fold of GroupKFold",
        ),
        ({"measure_on": gc.CrossFit(2)}, {"groups": np.arange(800) // 8}, "out of fold"),
        ({"measure_on": gc.Forward(2)}, {"time": np.arange(800)}, "later periods"),
    ],
    ids=str,
)
def test_means_are_measured_where_the_options_say(library, options, given, rows, train):
    model = fit(library, GAP, train, given=given, **options)
    report = model.constraint_report_.iloc[0]
    assert report["rows"] == rows
    assert report["held_out"] <= 0.8 + 1e-3
    assert report["verdict"] == "met"


@EITHER
def test_rules_are_taken_over_data_sets_with_and_without_targets(library, train, held):
    """The objective leaves data sets out, and rules on them are met on rows like theirs."""
    moved, fresh = held.X + 0.5, make_problem(4000, seed=8)
    rules = [
        gc.mean_prediction(on=gc.dataset("moved")) <= 1.2,
        gc.mean_residual(on=gc.dataset("known")) <= 0.1,
    ]
    sets = {"moved": moved, "known": (held.X, held.y)}
    model = fit(library, rules, train, given={"datasets": sets}, measure_on=gc.CrossFit(2))
    f = model.predict(moved).astype(float)
    known = (held.y - model.predict(held.X)).mean()
    np.testing.assert_allclose(model.constraint_report_["train"], [f.mean(), known], atol=1e-5)
    assert model.constraint_report_["verdict"].tolist() == ["met", "met"]
    fresh_values = model.predict(fresh.X + 0.5)
    assert fresh_values.mean() <= 1.2 + 3.5 * fresh_values.std() / np.sqrt(600)
    # The plain model breaks the first rule by far, and little is lost to meet it.
    cost, constant = model.cost_report_, np.mean((train.y - train.y.mean()) ** 2) / 2
    assert cost[str(rules[0])]["plain"] > 1.4
    assert cost["loss"]["returned"] < cost["loss"]["plain"] + 0.05 * constant


@EITHER
def test_rules_over_data_sets_that_pull_against_each_other(library, train, held):
    """One caps what the other one asks for: both are missed by sampling error at most.

    To meet both would take a model that explains much less, or diverges under its multipliers.
    """
    rules = [
        gc.mean_prediction(on=gc.dataset("moved")) <= 0.8,
        gc.mean_residual(on=gc.dataset("known")) <= 0.1,
    ]
    sets = {"moved": held.X + 0.5, "known": (held.X, held.y)}
    with pytest.warns(UserWarning, match="The constraints cost much of what the model explains"):
        model = fit(library, rules, train, given={"datasets": sets}, measure_on=gc.CrossFit(2))
    assert set(model.constraint_report_["verdict"]) <= {"met", "missed within sampling error"}
    constant = np.mean((train.y - train.y.mean()) ** 2) / 2
    assert model.cost_report_["loss"]["returned"] < 0.6 * constant


@EITHER
def test_data_sets_without_a_multiplier_leave_the_parents_model(library, train, held):
    plain = fit(library, NEVER_BINDS, train, measure_on="train", n_estimators=20)
    rules = [gc.mean_loss(on=gc.dataset("d")) <= 1e6]
    given = {"datasets": {"d": (held.X, 100.0 + held.y)}}
    model = fit(library, rules, train, given=given, measure_on="train", n_estimators=20)
    if library == "xgboost":  # LightGBM makes bins, and counts rows of leaves, of all rows.
        np.testing.assert_allclose(model.predict(train.X), plain.predict(train.X), atol=1e-5)
    np.testing.assert_allclose(model.predict(train.X).mean(), train.y.mean(), atol=0.05)


@EITHER
def test_a_column_of_x_that_is_categorical_has_the_groups(library, train):
    frame = train.frame.assign(g=pd.Categorical(np.array(["no", "yes"])[train.group]))
    more = {"enable_categorical": True} if library == "xgboost" else {}
    model = make(library, GAP, **SMALL, **more).fit(frame, train.y)
    f = pd.Series(model.predict(frame)).groupby(train.group).mean()
    assert model.constraint_report_["train"][0] == pytest.approx(abs(f[1] - f[0]), abs=1e-5)
    assert model.constraint_report_["verdict"].tolist() == ["met"]
    assert set(model.group_report_["group"].iloc[:2]) == {"g=no", "g=yes"}


@pytest.mark.skipif(find_spec("polars") is None, reason="polars is not installed")
@EITHER
def test_tables_of_polars(library, train):
    import polars

    frame = train.frame.assign(g=train.group)
    expected = make(library, GAP, **SMALL).fit(frame, train.y).predict(frame)
    table = polars.from_pandas(frame)
    model = make(library, GAP, **SMALL).fit(table, polars.Series(train.y))
    np.testing.assert_array_equal(model.predict(table), expected)


@EITHER
@pytest.mark.parametrize("solver", ["abpp", "cbpr", ABPP(tau=2.0)], ids=str)
def test_solvers_by_name_and_as_objects(library, solver, train):
    model = fit(library, GAP, train, solver=solver, measure_on=gc.CrossFit(2))
    assert model.constraint_report_["held_out"][0] <= 0.801


@EITHER
def test_searches_set_options_of_a_solver_and_route_groups(library, train):
    model = make(library, GAP, solver=ABPP(), **SMALL)
    grid = {"n_estimators": [2, 10], "solver__tau": [2.0]}
    with sklearn.config_context(enable_metadata_routing=True):
        routed = model.set_fit_request(sensitive_features=True)
        search = GridSearchCV(routed, grid, cv=2)
        search.fit(train.X, train.y, sensitive_features=pd.DataFrame({"g": train.group}))
    assert search.best_params_ == {"n_estimators": 10, "solver__tau": 2.0}
    assert search.best_estimator_.constraint_report_["held_out"].notna().all()
    rules = [gc.mean_prediction() <= 0.3]
    scores = cross_val_score(make(library, rules, **SMALL), train.X, train.y, cv=2)
    assert (scores > 0.2).all()
