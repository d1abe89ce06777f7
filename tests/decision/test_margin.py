"""Bounds that fits aim at from inside, by standard errors of out-of-fold decisions."""

from __future__ import annotations

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from helpers import BOTH, CLASSIFIERS
from regressor_fits import DEFAULTS, EACH, REGRESSORS

import gbm_constrained as gc
from gbm_constrained import lightgbm as native_lightgbm
from gbm_constrained import xgboost as native_xgboost
from gbm_constrained.cli.arguments import make_parser, read_parameters
from gbm_constrained.data.rows import Rows
from gbm_constrained.decision.evaluation_set import EvaluationSet
from gbm_constrained.decision.guarantees import find_room
from gbm_constrained.metrics import BlackBox
from gbm_constrained.problem.compiler import compile_constraints


def rows_under(constraint, y, **columns):
    found = compile_constraints([constraint], Rows(y, np.arange(2), None, columns), warning=None)
    return EvaluationSet(*found, "rows")


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 3))
    X[:, 2] = g = rng.random(900) < 0.4
    chance = X[:, 0] + 0.6 * g + rng.normal(size=900)
    return X, (chance > 0.6).astype(int), chance, {"g": g.astype(int)}


def fit(library, table, constraints, guarantee=None, **options):
    X, y, _, columns = table
    quiet = {"lightgbm": {"verbose": -1}, "xgboost": {}}[library]
    size = {"n_estimators": 8, "n_jobs": 1, "random_state": 0, **quiet}
    model = CLASSIFIERS[library](constraints=constraints, guarantee=guarantee, **size, **options)
    return model.fit(X, y, sensitive_features=columns)


# Positives and four times as many negatives have the same scores: recall costs errors.
LABELS = np.repeat([1, 0], [100, 400])
SCORES = np.concatenate([np.arange(100.0), np.arange(400) / 4.0 + 0.1])


@pytest.mark.parametrize("z", [0.5, 1.0, 2.0])
def test_the_room_of_a_rate_is_that_of_a_binomial_share(z):
    """The best threshold misses 20 of 100 positives, as the bound allows."""
    room = find_room(rows_under(gc.fnr() <= 0.2, LABELS), SCORES, z)
    np.testing.assert_allclose(room, z * np.sqrt(0.2 * 0.8 / 100))


def test_no_bound_moves_by_more_than_half_of_the_way():
    """Of few rows it would be beyond a rate of zero, or groups that are equal."""
    room = find_room(rows_under(gc.fnr() <= 0.2, LABELS), SCORES, 9.0)
    np.testing.assert_allclose(room, 0.1)
    gap = gc.gap(gc.tpr(), by="g", min_group_size=1) <= 0.06
    rows = rows_under(gap, np.repeat([1, 0], 100), g=np.arange(200) % 2)
    room = find_room(rows, np.concatenate([np.arange(100.0), np.arange(-30.0, 70.0)]), 9.0)
    np.testing.assert_allclose(room, 0.03)


def test_a_margin_that_no_threshold_keeps_is_cut_in_quarters():
    """The best decisions have a precision of .9, and two standard errors would ask for more."""
    y = np.concatenate([np.repeat([1, 0], [90, 10]), np.zeros(300, dtype=int)])
    scores = np.repeat([1.0, -1.0], [100, 300])
    of_rows = np.where(scores > 0, 0.88 - y, 0.0)  # Its mean is to be zero at most.
    whole = 2.0 * of_rows.std() / np.sqrt(y.size)
    assert 0.25 * whole <= -of_rows.mean() < 0.5 * whole
    room = find_room(rows_under(gc.precision() >= 0.88, y), scores, 2.0)
    np.testing.assert_allclose(room, 0.25 * whole)


def test_the_room_of_a_mean_loss_is_a_standard_error_of_the_mean():
    rng = np.random.default_rng(1)
    y, scores = rng.integers(0, 2, 400), rng.normal(size=400)
    losses = np.logaddexp(0.0, np.where(y == 1, -scores, scores))
    room = find_room(rows_under(gc.log_loss() <= 5.0, y), scores, 2.0)
    np.testing.assert_allclose(room, 2.0 * losses.std() / np.sqrt(400), rtol=0.01)


@BOTH
@pytest.mark.parametrize("options", [{}, {"solver": "abpp"}, {"solver": "threshold"}], ids=str)
def test_the_value_is_a_margin_inside_of_its_bound(library, options, table):
    """The verdict and the bound are those that the user stated."""
    n = table[1].sum()
    model = fit(library, table, [gc.fnr() <= 0.3], gc.Margin(2.0), **options)
    value = model.constraint_report_["held_out"][0]
    assert value + 1.9 * np.sqrt(value * (1.0 - value) / n) <= 0.3
    assert model.constraint_report_["bound"][0] == 0.3
    assert model.feasibility_.status == "met"
    assert "by up to 2 standard error(s)" in model.feasibility_.message


@pytest.mark.filterwarnings("ignore:group_thresholds")
@pytest.mark.parametrize(
    ("constraint", "options"),
    [
        (gc.each(gc.fnr(), by="g") <= 0.3, {"group_thresholds": True}),
        (gc.gap(gc.tpr(), by="g") <= 0.08, {}),
        (gc.fpr() <= 0.12, {"maximize": "g_mean"}),
    ],
    ids=str,
)
def test_other_decisions_leave_a_margin(constraint, options, table):
    X, y, _, columns = table
    found = []
    for guarantee in (None, "margin"):
        model = gc.ConstrainedLGBMClassifier(
            constraints=[constraint], guarantee=guarantee, n_estimators=8, verbose=-1, n_jobs=1,
            random_state=0, measure_on="crossfit", **options,
        )  # fmt: skip
        frame = pd.DataFrame(X[:, :2], columns=["a", "b"]).assign(**columns)
        found.append(model.fit(frame, y).constraint_report_["held_out"][0])
    assert found[1] < found[0] - 0.01
    assert found[1] < constraint.bound
    assert model.feasibility_.margin == 1.0


def test_metrics_give_a_margin_up_that_no_decision_keeps(table):
    """The share of class 1 is bounded from both sides, with two errors between the bounds."""
    X, y, *_ = table
    share = gc.selection_rate()
    model = gc.ConstrainedLGBMClassifier(
        constraints=[share <= 0.2, share >= 0.18, gc.fnr() <= 0.9], maximize="g_mean",
        guarantee=gc.Margin(3.0), n_estimators=8, verbose=-1, n_jobs=1, random_state=0,
    ).fit(X, y)  # fmt: skip
    assert set(model.constraint_report_["verdict"]) <= {"met", "missed within sampling error"}


@EACH
@pytest.mark.parametrize("bounded", ["mean", "gap"])
def test_regressors_leave_a_margin(library, bounded, table):
    X, _, target, columns = table
    constraint = {
        "mean": gc.mean_prediction() <= 0.1,
        "gap": gc.gap(gc.mean_prediction(), by="g") <= 0.2,
    }[bounded]
    found = []
    for guarantee in (None, "margin"):
        options = DEFAULTS[library] | {"n_estimators": 8, "measure_on": "crossfit"}
        model = REGRESSORS[library](constraints=[constraint], guarantee=guarantee, **options)
        model.fit(X, target, sensitive_features=columns)
        found.append(model.constraint_report_["held_out"][0])
    assert found[1] < found[0] - 0.01
    assert "by up to 1 standard error(s)" in model.feasibility_.message


def test_matrices_leave_a_margin(table):
    """A matrix is sliced into folds, and no rows of it are set aside."""
    X, y, *_ = table
    asked = {"constraints": [gc.fnr() <= 0.3], "guarantee": gc.Margin(2.0)}
    of_matrix = native_xgboost.train({"seed": 0}, xgb.DMatrix(X, label=y), 8, **asked)
    rows = lgb.Dataset(X, y, free_raw_data=False)
    of_rows = native_lightgbm.train({"verbose": -1}, rows, 8, **asked)
    for booster in (of_matrix, of_rows):
        assert booster.constraint_report_["held_out"][0] < 0.27


@BOTH
def test_a_margin_is_saved_with_the_model(library, table, tmp_path):
    model = fit(library, table, [gc.fnr() <= 0.3], gc.Margin(2.0))
    model.save_model(tmp_path / "model.json")
    loaded = CLASSIFIERS[library]()
    loaded.load_model(tmp_path / "model.json")
    assert repr(loaded.guarantee) == "Margin(standard_errors=2.0)"
    assert loaded.feasibility_.margin == 2.0


def test_the_command_line_and_set_params_take_a_margin():
    asked = ["--guarantee=margin", "--param=guarantee__standard_errors=2.5"]
    options = make_parser().parse_args(["fit", "t.csv", "--target=y", "--out=m.ubj", *asked])
    found = read_parameters(options, gc.ConstrainedXGBClassifier)["guarantee"]
    assert repr(found) == "Margin(standard_errors=2.5)"
    model = gc.ConstrainedXGBClassifier(guarantee=found).set_params(guarantee__standard_errors=3.0)
    assert repr(model.guarantee) == "Margin(standard_errors=3.0)"
    with pytest.raises(TypeError, match=r"guarantee=Margin\(standard_errors="):
        model.set_params(guarantee="margin", guarantee__standard_errors=2.0)


@pytest.mark.parametrize("value", [-1.0, np.inf, np.nan, "1"])
def test_a_margin_is_a_number_from_zero_on(value, table):
    with pytest.raises(ValueError, match="standard_errors of Margin must be a number from 0 on"):
        fit("lightgbm", table, [gc.fnr() <= 0.3], gc.Margin(value))


def test_a_margin_of_zero_is_none(table):
    X = table[0]
    models = [fit("lightgbm", table, [gc.fnr() <= 0.3], asked) for asked in (None, gc.Margin(0.0))]
    np.testing.assert_array_equal(*[model.predict_proba(X) for model in models])


@pytest.mark.parametrize(
    ("options", "given", "message"),
    [
        ({"measure_on": "train"}, {}, "needs rows that the trees have not seen"),
        ({"measure_on": "train", "maximize": "g_mean"}, {}, "measure_on='train' has none"),
        ({"iterate": "randomized"}, {}, "is given for one prefix and threshold"),
        ({"measure_on": "holdout"}, {"eval_set": True}, r"grows none: use Holdout\(0.25\)"),
        ({"minimize": BlackBox(lambda y, p: 0.0)}, {}, "guarantee=Margin.* has no meaning for"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_margin_without_out_of_fold_decisions_is_refused(options, given, message, table):
    X, y, *_ = table
    if given:
        given = {"eval_set": [(X[::2] + 0.01, y[::2])]}
    model = gc.ConstrainedLGBMClassifier(
        constraints=[gc.fnr() <= 0.3], guarantee=gc.Margin(), verbose=-1, n_jobs=1, **options
    )
    with pytest.raises(ValueError, match=message):
        model.fit(X, y, **given)
