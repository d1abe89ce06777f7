"""Boosters that take no gradients but their own: constraints are met by decisions on scores."""

import functools

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
from helpers import CLASSIFIERS, PARENTS, quiet
from scipy.special import expit
from sklearn.model_selection import GridSearchCV

from gbm_constrained import (
    CrossFit,
    InfeasibleConstraintsError,
    auc,
    class_error,
    error_rate,
    fnr,
    gap,
    log_loss,
    selection_rate,
    tpr,
)
from gbm_constrained.metrics import g_mean
from gbm_constrained.solvers import Reduction


def own_log_loss(y_true, score):
    p = expit(score)
    return p - y_true, p * (1.0 - p)


SMALL = {"n_estimators": 25, "n_jobs": 1, "random_state": 0}
LIGHT = {**SMALL, "num_leaves": 7, "verbose": -1}
KINDS = {
    "xgboost-dart": ("xgboost", {**SMALL, "max_depth": 3, "booster": "dart", "rate_drop": 0.2}),
    "xgboost-gblinear": ("xgboost", {**SMALL, "booster": "gblinear"}),
    "xgboost-callable": ("xgboost", {**SMALL, "max_depth": 3, "objective": own_log_loss}),
    "lightgbm-rf": (
        "lightgbm", {**LIGHT, "boosting_type": "rf", "subsample": 0.6, "subsample_freq": 1}
    ),
    "lightgbm-dart": ("lightgbm", {**LIGHT, "boosting_type": "dart", "drop_rate": 0.3}),
    "lightgbm-callable": ("lightgbm", {**LIGHT, "objective": own_log_loss}),
}  # fmt: skip
EACH = pytest.mark.parametrize("kind", list(KINDS))
ONE_OF_EACH_LIBRARY = pytest.mark.parametrize("kind", ["xgboost-gblinear", "lightgbm-rf"])
RANDOM = np.random.default_rng(3)
N = 1200
TABLE = pd.DataFrame(RANDOM.normal(size=(N, 4)), columns=list("abcd"))
GROUP = np.where(RANDOM.random(N) < 0.4, "f", "m")
SCORE = TABLE.a + 0.8 * TABLE.b + 0.6 * (GROUP == "m") + 0.6 * RANDOM.normal(size=N)
Y = (SCORE > 1.0).to_numpy().astype(int)
RARE = (SCORE > 2.0).to_numpy().astype(int)
SEVERAL = np.digitize(SCORE, [-0.5, 1.0])
HELD = np.arange(N) % 3 == 0


def make(kind, constraints=None, **options):
    library, own = KINDS[kind]
    return CLASSIFIERS[library](
        constraints=constraints, measure_on=CrossFit(3), **{**own, **options}
    )


def make_parent(kind):
    library, own = KINDS[kind]
    return PARENTS[library](**own)


def scores(model, kind, X):
    name = "output_margin" if kind.startswith("xgboost") else "raw_score"
    return model.predict(X, **{name: True})


def decisions_of_parent(parent, kind, X):
    if kind == "lightgbm-callable":  # whose parent predicts raw scores
        return (parent.predict(X, raw_score=True) > 0).astype(int)
    return parent.predict(X)


@pytest.fixture(scope="module")
def fitted():
    """Fit under a bound on errors of one class, once for each kind."""
    return functools.cache(lambda kind: make(kind, [fnr() <= 0.1]).fit(TABLE[~HELD], Y[~HELD]))


@EACH
def test_a_constraint_that_always_holds_gives_the_model_of_the_parent(kind):
    is_grouped = kind in ("xgboost-gblinear", "lightgbm-dart")
    constraints = [gap(tpr(), by="g") <= 1.0] if is_grouped else [error_rate() <= 0.99]
    model = make(kind, constraints).fit(TABLE, Y, sensitive_features={"g": GROUP})
    parent = make_parent(kind).fit(TABLE, Y)
    np.testing.assert_array_equal(scores(model, kind, TABLE), scores(parent, kind, TABLE))
    np.testing.assert_array_equal(model.predict(TABLE), decisions_of_parent(parent, kind, TABLE))
    assert not model.shift_.any()
    assert model.feasibility_.status == "met"


@EACH
def test_a_bound_on_errors_is_met_on_rows_that_were_not_seen(kind, fitted):
    model = fitted(kind)
    report = model.constraint_report_.iloc[0]
    error = np.sqrt(0.1 * 0.9 / np.sum(Y[~HELD] == 1))
    assert report.rows == "out of fold"
    assert report.held_out <= 0.1 + error  # A smaller violation has its price in errors.
    missed = np.mean(model.predict(TABLE[HELD])[Y[HELD] == 1] == 0)
    n = [np.sum(Y[of] == 1) for of in (HELD, ~HELD)]
    assert abs(missed - report.held_out) <= 3 * np.sqrt(0.1 * 0.9 * (1 / n[0] + 1 / n[1]))
    row = model.metric_report_[model.metric_report_.is_returned].iloc[0]
    assert row.metric == "error_rate"
    error = np.mean(model.predict(TABLE[HELD]) != Y[HELD])
    assert abs(row.held_out - error) <= 3 * np.sqrt(error * (1 - error) * (1 / 400 + 1 / 800))
    plain = make_parent(kind).fit(TABLE[~HELD], Y[~HELD])
    missed = decisions_of_parent(plain, kind, TABLE[HELD])[Y[HELD] == 1] == 0
    assert missed.mean() > 0.1  # so that the constraint asked for something
    assert model.score(TABLE[HELD], Y[HELD]) == pytest.approx(1.0 - error)


@pytest.mark.parametrize("kind", ["xgboost-dart", "xgboost-gblinear", "lightgbm-rf"])
def test_a_metric_is_maximised(kind):
    model = make(kind, maximize=g_mean()).fit(TABLE[~HELD], RARE[~HELD])
    plain = make_parent(kind).fit(TABLE[~HELD], RARE[~HELD])
    y = RARE[HELD]
    found, of_plain = model.predict(TABLE[HELD]), decisions_of_parent(plain, kind, TABLE[HELD])
    of_model, of_parent = (
        np.sqrt(np.prod([np.mean(decided[y == k] == k) for k in (0, 1)]))
        for decided in (found, of_plain)
    )
    assert model.score(TABLE[HELD], y) == pytest.approx(of_model)
    assert of_model > of_parent + 0.03


@pytest.mark.parametrize("kind", ["xgboost-callable", "lightgbm-callable"])
def test_a_function_without_weights_is_grown_at_none(kind):
    model = make(kind, maximize=g_mean()).fit(TABLE, RARE)
    assert set(model.metric_report_.oracle) == {"plug_in"}
    refit = make(kind, maximize=g_mean(), solver=Reduction(oracle="refit"))
    with pytest.raises(
        ValueError, match=r"oracle='refit'\) grows boosters with weights .* takes n"
    ):
        refit.fit(TABLE, RARE)

    def weighted(y_true, margin, sample_weight=None):
        gradient, hessian = own_log_loss(y_true, margin)
        w = 1.0 if sample_weight is None else sample_weight
        return w * gradient, w * hessian

    refit.set_params(objective=weighted).fit(TABLE, RARE)
    assert "refit" in set(refit.metric_report_.oracle)


@EACH
def test_decisions_are_read_from_a_file_as_the_parent_allows(kind, fitted, tmp_path):
    model = fitted(kind)
    path = tmp_path / "model.json"
    if kind == "lightgbm-callable":
        with pytest.raises(ValueError, match="cannot be saved"):
            model.save_model(path)
        return
    if kind == "xgboost-callable":
        with pytest.warns(UserWarning, match="objective"):
            model.save_model(path)
    else:
        model.save_model(path)
    read = type(model)()
    read.load_model(path)
    np.testing.assert_array_equal(read.predict(TABLE), model.predict(TABLE))
    assert read.constraint_report_.equals(model.constraint_report_)


@ONE_OF_EACH_LIBRARY
def test_bounds_are_searched_by_cross_validation(kind):
    search = GridSearchCV(
        make(kind, [fnr() <= 0.1], n_estimators=8),
        {"constraints": [[fnr() <= 0.1], [fnr() <= 0.3]]}, cv=2,
    )  # fmt: skip
    search.fit(TABLE, Y)
    assert str(search.best_params_["constraints"][0]) == "fnr <= 0.3"


@ONE_OF_EACH_LIBRARY
def test_several_classes(kind):
    model = make(kind, [class_error(1) <= 0.25]).fit(TABLE[~HELD], SEVERAL[~HELD])
    n = [np.sum(SEVERAL[of] == 1) for of in (HELD, ~HELD)]
    missed = np.mean(model.predict(TABLE[HELD])[SEVERAL[HELD] == 1] != 1)
    assert missed <= 0.25 + 3 * np.sqrt(0.25 * 0.75 * (1 / n[0] + 1 / n[1]))
    assert model.constraint_report_.held_out[0] <= 0.25 + 3 * np.sqrt(0.25 * 0.75 / n[1])
    plain = make_parent(kind).fit(TABLE[~HELD], SEVERAL[~HELD])
    assert np.mean(plain.predict(TABLE[HELD])[SEVERAL[HELD] == 1] != 1) > 0.25


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "dart" not in kind])
def test_training_stops_early_as_that_of_the_parent(kind):
    library, _ = KINDS[kind]
    given = {"eval_set": [(TABLE[HELD], Y[HELD])], **quiet(library)}
    options = {"n_estimators": 200, "learning_rate": 0.5}
    if library == "xgboost":
        options["early_stopping_rounds"] = 3
        if kind.endswith("callable"):
            options["eval_metric"] = "logloss"
    else:
        given["callbacks"] = [lgb.early_stopping(3, verbose=False)]
        if kind.endswith("callable"):
            given["eval_metric"] = lambda y, s: ("mine", np.mean((y == 1) != (s > 0)), False)
    model = make(kind, [fnr() <= 0.1], **options).fit(TABLE[~HELD], Y[~HELD], **given)
    parent = make_parent(kind).set_params(**options).fit(TABLE[~HELD], Y[~HELD], **given)
    name = "best_iteration" if library == "xgboost" else "best_iteration_"
    assert getattr(model, name) == getattr(parent, name) < 199
    np.testing.assert_array_equal(scores(model, kind, TABLE), scores(parent, kind, TABLE))
    row = model.metric_report_[model.metric_report_.rows == "eval_set[0]"].iloc[0]
    assert row.held_out == pytest.approx(np.mean(model.predict(TABLE[HELD]) != Y[HELD]))
    assert row.low <= row.held_out <= row.high


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        ("xgboost-gblinear", pytest.warns(UserWarning, match=r"fnr <= 0.02")),
        ("lightgbm-rf", pytest.raises(InfeasibleConstraintsError, match=r"fnr <= 0.02")),
    ],
)
def test_what_no_decision_meets_is_said_by_name(kind, found):
    constraints = [gap(tpr(), by="g") <= 0.0, fnr() <= 0.02, selection_rate() <= 0.05]
    answer = "raise" if kind == "lightgbm-rf" else "warn"
    with found:
        make(kind, constraints, on_infeasible=answer).fit(
            TABLE, Y, sensitive_features={"g": GROUP}
        )


@EACH
def test_a_solver_with_multipliers_is_refused(kind, fitted):
    named = "booster='|boosting_type='|objective="
    with pytest.raises(ValueError, match=rf"solver='abpp'.*({named}).*use solver='auto'"):
        make(kind, [fnr() <= 0.1], solver="abpp").fit(TABLE, Y)
    with pytest.raises(ValueError, match=rf"iterate='best'.*({named}).*leave it out"):
        make(kind, [fnr() <= 0.1], iterate="best").fit(TABLE, Y)
    if kind == "lightgbm-rf":  # A threshold is what all such fits move.
        threshold = make(kind, [fnr() <= 0.1], solver="threshold").fit(TABLE[~HELD], Y[~HELD])
        np.testing.assert_array_equal(threshold.predict(TABLE), fitted(kind).predict(TABLE))


@pytest.mark.parametrize("library", list(CLASSIFIERS))
def test_weights_of_classes_count_in_the_error_that_is_minimised(library):
    own = (
        {"boosting_type": "dart", "class_weight": {0: 1.0, 1: 5.0}, **LIGHT}
        if library == "lightgbm"
        else {"booster": "dart", "scale_pos_weight": 5.0, "max_depth": 3, **SMALL}
    )
    model = CLASSIFIERS[library](constraints=[error_rate() <= 0.99], **own).fit(TABLE, Y)
    parent = PARENTS[library](**own).fit(TABLE, Y)
    np.testing.assert_array_equal(model.predict(TABLE), parent.predict(TABLE))
    assert not model.shift_.any()
    assert "cost(" in model.metric_report_.metric[0]


@EACH
@pytest.mark.parametrize("constraint", [gap(auc(), by="g") <= 0.1, log_loss() <= 0.5])
def test_constraints_on_scores_are_refused(kind, constraint):
    own = next(name for name in ("boosting_type", "booster", "rate_drop", "objective")
               if name in KINDS[kind][1])  # fmt: skip
    with pytest.raises(ValueError, match=rf"{own}=.* takes no gradients .*: leave {own} out, or"):
        make(kind, [constraint]).fit(TABLE, Y, sensitive_features={"g": GROUP})
