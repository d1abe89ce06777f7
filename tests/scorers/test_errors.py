"""Errors of wrong arguments, and estimators after a fit that failed."""

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from estimator_fits import ALL, EITHER, EVERY, WHERE, make_lgb, make_xgb
from sklearn.base import clone

import gbm_constrained as gc
from gbm_constrained.solvers import ABPP, AutoSolver


@EITHER
def test_loss_form_of_error_bounds(make, binary):
    """The paper's form: the mean loss of the rows of an error rate e is at most e log 2."""
    X, y = binary
    rules = gc.as_log_loss([gc.fnr() <= 0.2], n_classes=2)
    clf = make(rules, solver=ABPP(outlier_clip=7.0), n_estimators=20).fit(X, y)
    report = clf.constraint_report_
    assert report.bound[0] == pytest.approx(0.2 * np.log(2))
    losses = -np.log(clf.predict_proba(X)[y == 1, 1])
    assert report.train[0] == pytest.approx(losses.mean(), rel=1e-4)
    assert np.mean(clf.predict(X)[y == 1] == 0) <= 0.2


@EITHER
@WHERE
def test_a_failed_fit_leaves_the_estimator_as_it_was(make, measure_on, binary):
    X, y = binary
    clf = make([gc.fnr() <= 0.1], measure_on=measure_on)
    objective = clf.objective
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        clf.fit(X[:10], y, eval_set=[(X, y)])
    assert clf.objective == objective
    assert set(vars(clf)) >= set(vars(clone(clf)))
    assert not any(name.startswith(("_fit_params", "_matrices")) for name in vars(clf))
    clf.fit(X, y)


@EITHER
@pytest.mark.parametrize("phase", ["measuring", "training"])
def test_a_failed_refit_leaves_the_earlier_fit(make, phase, binary, several, tmp_path):
    """With other classes and columns: its attributes, its predictions and its file stay."""
    X, y = binary
    clf = make([gc.fnr(1) <= 0.1], measure_on=gc.CrossFit(2)).fit(X, y)
    before, probabilities = dict(vars(clf)), clf.predict_proba(X)

    def interrupt(state):
        if state.phase == phase and state.iteration == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        clf.fit(several[0][:, :4], several[1], constraint_callbacks=[interrupt])
    assert vars(clf).keys() == before.keys()
    assert [name for name, value in vars(clf).items() if value is not before[name]] == []
    np.testing.assert_array_equal(clf.predict_proba(X), probabilities)
    clf.save_model(tmp_path / "model.json")
    loaded = make([]).load_model(tmp_path / "model.json")
    np.testing.assert_array_equal(loaded.predict_proba(X), probabilities)


NAN_LABELS = np.where(np.arange(1500) % 7 == 0, np.nan, np.arange(1500) % 2)


@EITHER
@pytest.mark.parametrize(
    ("rules", "y", "arguments", "error", "message"),
    [
        ([gc.class_error(5) <= 0.1], None, {}, ValueError, r"class_error\(5\).*\[0, 1\]"),
        ([gc.error_rate(on=np.zeros(1500, bool)) <= 0.1], None, {}, ValueError, "no rows"),
        ([gc.error_rate(on=np.ones(3, bool)) <= 0.1], None, {}, ValueError, "3 rows.*1500"),
        ([gc.fnr() <= 0.1], NAN_LABELS, {}, ValueError, "missing values.*row 0"),
        ([gc.fnr() <= 0.1], np.zeros((1500, 2)), {}, ValueError, "one-dimensional"),
        ([gc.fnr() <= 0.1], None, {"sample_weight": np.ones(7)}, ValueError, "1500 rows"),
        ([gc.fnr() <= 0.1], None, {"sample_weight": -np.ones(1500)}, ValueError, "non-negative"),
        ([gc.fnr() <= 0.1], None, {"sample_weight": np.full(1500, np.nan)}, ValueError, "finite"),
        ([gc.fnr() <= 0.1], None, {"sample_weight": np.full(1500, np.inf)}, ValueError, "finite"),
        ([gc.fnr() <= 0.1], None, {"sample_weight": np.zeros(1500)}, ValueError, "zero on every"),
        (
            [gc.fnr() <= 0.1],
            None,
            {"sample_weight": "negatives"},
            ValueError,
            "fnr.*weight is zero",
        ),
        ([0.1], None, {}, TypeError, "not a constraint"),
        (["fnr < 0.1"], None, {}, ValueError, "constraints: unexpected '<': .*write <="),
        ([gc.fnr() == 0.1], None, {}, TypeError, "holds False.*made by <= and >="),
    ],
)
def test_errors_before_training(make, rules, y, arguments, error, message, binary, monkeypatch):
    X, labels = binary
    if isinstance(arguments.get("sample_weight"), str):
        arguments = {"sample_weight": (labels == 0).astype(float)}
    for library in (xgb, lgb):
        monkeypatch.setattr(library, "train", lambda *a, **k: pytest.fail("training started"))
    with pytest.raises(error, match=message):
        make(rules).fit(X, labels if y is None else y, **arguments)


@pytest.mark.parametrize("bound", [-0.1, 1.5, 5, float("nan"), float("inf")])
def test_bound_outside_the_unit_interval(bound):
    with pytest.raises(ValueError, match=r"rate in \[0, 1\]"):
        gc.fnr() <= bound  # noqa: B015


@EITHER
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"solver": AutoSolver(proxy="hinge")}, "proxy.*hinge"),
        ({"iterate": "first"}, "iterate.*first"),
        ({"solver": "admm"}, "solver.*admm"),
        ({"iterate": "ergodic"}, "iterate='ergodic' averages.*ConstrainedLogisticRegression"),
        ({"solver": AutoSolver(rounds_per_iteration=0)}, "rounds_per_iteration.*0"),
        ({"solver": AutoSolver(rounds_per_iteration=1.5)}, "rounds_per_iteration.*1.5"),
        ({"solver": AutoSolver(tau=-1.0)}, "tau.*-1"),
        ({"solver": AutoSolver(sigma=0.0)}, "sigma.*0"),
        ({"solver": AutoSolver(mu=-0.1)}, "mu.*-0.1"),
        ({"solver": AutoSolver(outlier_clip=-3.0)}, "outlier_clip"),
        (
            {"solver": AutoSolver(outlier_clip=7.0), "iterate": "randomized"},
            "'randomized'.*leave outlier_clip out",
        ),
        ({"probabilities": "true"}, "probabilities.*'calibrated'.*'true'"),
        ({"on_infeasible": "ignore"}, "on_infeasible.*'raise'.*'ignore'"),
        ({"on_infeasible": "raise", "iterate": "randomized"}, "on_infeasible.*'randomized'"),
        ({"on_infeasible": "raise", "measure_on": "train"}, "on_infeasible.*'train'"),
        (
            {"solver": AutoSolver(initial_multipliers=[1.0, 2.0])},
            "initial_multipliers.*1 rows.*fnr <= 0.1",
        ),
        ({"solver": AutoSolver(initial_multipliers=[-1.0])}, "initial_multipliers.*non-negative"),
        ({"n_estimators": 0}, "n_estimators must be an integer >= 1, got 0"),
        ({"n_estimators": -1}, "n_estimators must be an integer >= 1, got -1"),
        ({"n_estimators": "abc"}, "n_estimators must be an integer >= 1, got 'abc'"),
        ({"learning_rate": "a"}, "learning_rate must be a number, got 'a'"),
        ({"solver": AutoSolver(sigma="a")}, "sigma must be a positive number or None, got 'a'"),
        (
            {"solver": AutoSolver(outlier_clip="a")},
            "outlier_clip must be a positive number or None, got 'a'",
        ),
        ({"solver": AutoSolver(mu=None)}, "mu must be a non-negative number, got None"),
        (
            {"guarantee": gc.HighProbability("a")},
            "delta of HighProbability must lie strictly between 0 and 1, got 'a'",
        ),
        (
            {"guarantee": gc.HighProbability(10**400)},
            "delta of HighProbability must lie strictly between 0 and 1, got 1000",
        ),
        (
            {"measure_on": gc.Holdout("a")},
            "fraction of Holdout must lie strictly between 0 and 1, got 'a'",
        ),
    ],
)
def test_bad_options(make, options, message, binary):
    with pytest.raises(ValueError, match=message):
        make([gc.fnr() <= 0.1], **options).fit(*binary)


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (make_xgb, {"objective": "binary:hinge"}, "binary:hinge"),
        (make_xgb, {"objective": "binary:hinge", "booster": "dart"}, "binary:hinge"),
        (make_xgb, {"booster": "gblinear", "solver": "abpp"}, r"^solver='abpp'.*gblinear.*'auto'"),
        (make_xgb, {"booster": "dart", "solver": "abpp"}, r"^solver='abpp'.*dart.*'auto'"),
        (make_xgb, {"rate_drop": 0.3, "solver": "abpp"}, r"^solver='abpp'.*rate_drop=0\.3"),
        (make_xgb, {"one_drop": True, "solver": "cbpr"}, r"^solver='cbpr'.*one_drop=True"),
        (make_lgb, {"objective": "cross_entropy"}, "cross_entropy"),
        (make_lgb, {"objective": "cross_entropy", "boosting_type": "dart"}, "cross_entropy"),
        (make_lgb, {"boosting_type": "rf", "solver": "abpp"}, r"^solver='abpp'.*'rf'.*'auto'"),
        (make_lgb, {"boosting_type": "dart", "solver": "abpp"}, r"^solver='abpp'.*'dart'.*'auto'"),
        (make_lgb, {"boosting": "DART", "solver": "abpp"}, r"^solver='abpp'.*'dart'.*'auto'"),
        (make_lgb, {"sigmoid": 2.0}, "sigmoid"),
        (make_lgb, {"metric": "ndcg"}, "ndcg"),
        (make_lgb, {"unbalance": True, "scale_pos_weight": 2.0}, "is_unbalance.*scale_pos_weight"),
        (make_lgb, {"class_weight": {0: 0.0, 1: 1.0}}, "class_weight"),
    ],
)
def test_what_cannot_be_trained_under_constraints(make, options, message, binary):
    with pytest.raises(ValueError, match=message):
        make([gc.fnr() <= 0.1], **options).fit(*binary)


@pytest.mark.parametrize("wrap", [lambda model: model, lambda model: model.get_booster()])
def test_a_model_of_dart_cannot_be_continued(wrap, binary):
    """XGBoost would take its booster over, whatever the parameters are."""
    start = xgb.XGBClassifier(booster="dart", rate_drop=0.5, n_estimators=5).fit(*binary)
    with pytest.raises(ValueError, match=r"xgb_model is a model of DART.*booster='gbtree'"):
        make_xgb([gc.fnr() <= 0.1]).fit(*binary, xgb_model=wrap(start))
    make_xgb([]).fit(*binary, xgb_model=wrap(start))


def test_fpr_of_several_classes(several):
    with pytest.raises(ValueError, match=r"4 classes: .* use class_error"):
        make_lgb([gc.fpr() <= 0.1]).fit(*several)


@EVERY
@pytest.mark.parametrize("library", ["pandas", "pyarrow"])
def test_columns_of_one_name_are_refused(kind, library, binary):
    X, y = binary
    frame = pd.DataFrame(X[:, :3], columns=["a", "b", "a"])
    right = frame.set_axis(["a", "b", "c"], axis=1)
    if library == "pyarrow":
        arrow = pytest.importorskip("pyarrow")
        columns = [arrow.array(X[:, j]) for j in range(3)]
        frame, right = (arrow.table(columns, names=names) for names in (list("aba"), list("abc")))
    clf = ALL[kind]([gc.fnr() <= 0.1])
    with pytest.raises(ValueError, match="X has several columns called 'a': rename them"):
        clf.fit(frame, y)
    elsewhere = ALL[kind]([gc.fnr(on=gc.dataset("more")) <= 0.1])
    with pytest.raises(ValueError, match=r"datasets\['more'\] has several columns called 'a'"):
        elsewhere.fit(right, y, datasets={"more": (frame, y)})
    if kind != "logistic":
        with pytest.raises(ValueError, match=r"X of eval_set\[0\] has several columns"):
            clf.fit(right, y, eval_set=[(frame, y)])


def test_an_audit_does_not_choose_among_columns_of_one_name(binary):
    X, y = binary
    model = make_lgb([gc.fnr() <= 0.1]).fit(X[:, :3], y)
    frame = pd.DataFrame(X[:, :3] > 0, columns=["a", "b", "a"])
    gc.audit(model, frame, y, [gc.gap(gc.fpr(), by="b") <= 0.5])
    with pytest.raises(ValueError, match="X has several columns called 'a': rename them"):
        gc.audit(model, frame, y, [gc.gap(gc.fpr(), by="a") <= 0.5])
