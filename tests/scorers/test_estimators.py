"""The drop-in classifiers as scikit-learn estimators."""

import copy
import json
import pickle

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from estimator_fits import ALL, EITHER, EVERY, WHERE, make_lgb, make_xgb
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import gbm_constrained as gc
from gbm_constrained.datasets import load_credit
from gbm_constrained.scorers.xgboost.parameters import find_intercept
from gbm_constrained.solvers import Reduction


@EITHER
@WHERE
def test_is_a_real_subclass_and_keeps_its_parameters(make, measure_on, binary):
    X, y = binary
    rule = [gc.fnr() <= 0.1]
    clf = make(rule, max_depth=3, measure_on=measure_on)
    assert isinstance(clf, (xgb.XGBClassifier, lgb.LGBMClassifier))
    before = clf.get_params()
    clf.fit(X, y)
    after = clf.get_params()
    assert after.keys() == before.keys()
    for name, value in before.items():
        assert after[name] is value or after[name] == value or pd.isna(value), name
    assert clf.constraints is rule
    copy = clone(clf)
    assert gc.ConstrainedXGBClassifier().solver == "auto"
    assert copy.get_params()["constraints"] == rule
    assert not hasattr(copy, "constraint_report_")
    assert copy.set_params(constraints=[], max_depth=2).max_depth == 2


@EITHER
def test_fitted_attributes(make, binary):
    X, y = binary
    frame = pd.DataFrame(X, columns=list("abcdef"))
    clf = make([gc.fnr() <= 0.2, gc.fpr() <= 0.5]).fit(frame, y)
    assert clf.classes_.tolist() == [0, 1]
    assert clf.n_features_in_ == 6
    assert clf.feature_importances_.shape == (6,)
    assert list(clf.feature_names_in_) == list("abcdef")
    p = clf.predict_proba(frame)
    assert p.shape == (y.size, 2)
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-6)
    np.testing.assert_array_equal(clf.predict(frame), (p[:, 1] > 0.5).astype(int))
    report = clf.constraint_report_
    assert report.columns.tolist() == [
        "constraint", "bound", "train", "held_out", "low", "high", "rows", "multiplier",
        "train_satisfied", "satisfied", "verdict",
    ]  # fmt: skip
    assert report.constraint.tolist() == ["fnr <= 0.2", "fpr <= 0.5"]
    for name in ("satisfied", "held_out", "low", "high"):
        assert report[name].isna().all(), name
    assert report["rows"].tolist() == ["training rows"] * 2
    assert (report["verdict"] == "met on training rows").tolist() == report[
        "train_satisfied"
    ].tolist()
    assert clf.group_report_.empty
    assert clf.group_report_.columns.tolist() == [
        "constraint", "group", "rows", "train", "held_out", "low", "high",
    ]  # fmt: skip
    assert clf.history_["rounds"].tolist() == list(range(16))
    assert clf.history_["error"].iloc[-1] == pytest.approx(np.mean(clf.predict(frame) != y))
    assert clf.history_["objective"].is_monotonic_decreasing
    assert (clf.history_.seconds.diff().dropna() >= 0).all()
    assert clf.multipliers_.index.tolist() == ["fnr <= 0.2", "fpr <= 0.5"]


@EITHER
def test_a_constraint_is_obeyed_on_the_training_rows(make, binary):
    X, y = binary
    plain = make([], n_estimators=60, max_depth=2).fit(X, y)
    clf = make([gc.fnr() <= 0.05], n_estimators=60, max_depth=2).fit(X, y)
    assert np.mean(plain.predict(X)[y == 1] == 0) > 0.2
    assert np.mean(clf.predict(X)[y == 1] == 0) <= 0.05 + 0.01
    assert clf.constraint_report_.train_satisfied[0] == (clf.constraint_report_.train[0] <= 0.05)


@EITHER
def test_long_steps_do_not_throw_frauds_about(make):
    """At learning rates near one, Newton steps of heavily weighed leaves go much too far."""
    frauds = load_credit(download=False)
    model = make([gc.fnr() <= 0.1], n_estimators=60, learning_rate=0.9, measure_on="holdout")
    model.fit(frauds.data, frauds.target)
    assert model.constraint_report_["held_out"][0] <= 0.115
    # .896 (XGBoost) and .045 (LightGBM) by the library's own Hessians.
    assert model.unseen_accuracy_.value >= 0.94


@EITHER
def test_tighter_bounds_cost_false_alarms(make, binary):
    """Monotone effect of the bound."""
    X, y = binary
    rates = []
    for bound in (0.02, 0.1, 0.3):
        clf = make([gc.fnr() <= bound], n_estimators=60, max_depth=2).fit(X, y)
        decisions = clf.predict(X)
        rates.append((np.mean(decisions[y == 1] == 0), np.mean(decisions[y == 0] == 1)))
    misses, alarms = np.array(rates).T
    assert (np.diff(misses) > 0).all()
    assert (np.diff(alarms) < 0).all()


def test_integer_weights_equal_repeated_rows(binary):
    """With exact splits: histograms would be cut at other values, in the parent as well."""
    X, y = binary
    weight = np.random.default_rng(0).integers(0, 4, size=y.size)
    rows = np.repeat(np.arange(y.size), weight)
    options = {"tree_method": "exact", "n_estimators": 8, "max_depth": 2}
    weighted = make_xgb([gc.fnr() <= 0.1], **options).fit(X, y, sample_weight=weight)
    repeated = make_xgb([gc.fnr() <= 0.1], **options).fit(X[rows], y[rows])
    for column in ("value[fnr <= 0.1]", "multiplier[fnr <= 0.1]", "objective"):
        np.testing.assert_allclose(
            weighted.history_[column], repeated.history_[column], rtol=1e-4, err_msg=column
        )
    seen = X[weight > 0]
    np.testing.assert_allclose(
        weighted.predict_proba(seen), repeated.predict_proba(seen), atol=1e-5
    )


@EITHER
def test_masks_and_losses(make, binary):
    X, y = binary
    mask = X[:, 5] > 0.5
    rules = [gc.error_rate(on=mask) <= 0.05, gc.log_loss(on=gc.label(1)) <= 0.4]
    clf = make(rules, n_estimators=200, max_depth=2)
    clf.fit(X, y, eval_set=[(X[:400], y[:400])])
    wrong = clf.predict(X) != y
    report = clf.constraint_report_
    assert report.train[0] == pytest.approx(wrong[mask].mean())
    assert report.train[1] == pytest.approx(
        -np.log(clf.predict_proba(X)[y == 1, 1]).mean(), rel=1e-4
    )
    assert report.train[1] <= 0.41
    assert pd.isna(report.held_out[0]), "a mask of training rows has no value elsewhere"
    assert pd.isna(report.satisfied[0])
    assert not pd.isna(report.held_out[1])


@pytest.mark.parametrize("measure_on", ["train", gc.CrossFit(2)])
def test_what_lightgbm_warns_of_is_said_once(measure_on, binary):
    """Its own fit takes an objective under another name first, and says so."""
    clf = make_lgb([gc.fnr() <= 0.1], measure_on=measure_on, n_estimators=2)
    with pytest.warns(UserWarning, match="Found 'application' in params") as said:
        clf.set_params(application="binary").fit(*binary)
    assert sum("application" in str(one.message) for one in said) == 1
    assert clf.get_params()["application"] == clf.objective_ == "binary"


@EITHER
@pytest.mark.parametrize(
    "options",
    [
        {"maximize": "h_mean"},
        {"maximize": "h_mean", "solver": Reduction(ensemble="folds")},
        {"constraints": gc.class_error(1) <= 0.9},
        {"constraints": []},
    ],
    ids=str,
)
def test_a_refit_to_fewer_classes_is_a_fit_to_them(make, options):
    """XGBoost's own fit leaves the softmax of three classes as the objective."""
    X = np.random.default_rng(0).normal(size=(150, 3))
    of_two, of_three = (X[:, 0] > 0).astype(int), np.digitize(X[:, 0], [-0.5, 0.5])
    small = {"constraints": None, "n_estimators": 2, "measure_on": gc.CrossFit(2)}
    small |= {"solver": "auto", **options}
    model = make(**small).fit(X, of_three).fit(X, of_two)
    fresh = make(**small).fit(X, of_two)
    np.testing.assert_array_equal(model.predict_proba(X), fresh.predict_proba(X))
    assert model.objective == fresh.objective


@pytest.mark.parametrize("verbosity", [None, 0, 2])
def test_the_verbosity_of_xgboost_is_left_alone(verbosity, binary):
    """It is one for the whole process."""
    before = xgb.get_config()["verbosity"]
    clf = make_xgb([gc.fnr() <= 0.1], measure_on=gc.CrossFit(2), n_estimators=2)
    clf.set_params(verbosity=verbosity, eval_metric="auc").fit(*binary)
    clf.predict(binary[0])
    assert xgb.get_config()["verbosity"] == before


@pytest.mark.parametrize("verbosity", [None, 1])
def test_what_xgboost_warns_of_is_said_once(verbosity, binary):
    """And not by each booster that measures the constraint."""
    clf = make_xgb([gc.fnr() <= 0.1], measure_on=gc.CrossFit(3), n_estimators=2, unheard_of=1)
    clf.set_params(verbosity=verbosity)
    with pytest.warns(UserWarning, match=r'"unheard_of" \} are not used') as said:
        clf.fit(*binary)
    assert len(said) == 1


@EITHER
def test_a_learning_rate_may_be_a_text(make, binary):
    """As in the parents, which hand their parameters on as texts."""
    X, y = binary
    text, number = (make([gc.fnr() <= 0.1], learning_rate=rate).fit(X, y) for rate in ("0.2", 0.2))
    np.testing.assert_array_equal(text.predict_proba(X), number.predict_proba(X))


def test_dart_without_constraints_is_the_parents(binary):
    X, y = binary
    for parent, make, options in (
        (xgb.XGBClassifier, make_xgb, {"booster": "dart", "rate_drop": 0.5}),
        (lgb.LGBMClassifier, make_lgb, {"boosting_type": "dart", "verbose": -1}),
    ):
        expected = parent(n_estimators=15, n_jobs=1, **options).fit(X, y).predict_proba(X)
        np.testing.assert_array_equal(make([], **options).fit(X, y).predict_proba(X), expected)


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_the_intercept_is_that_of_all_rows_to_the_last_bit(n_classes):
    """One row of each class stands for all; XGBoost is asked with each row by itself."""
    rng = np.random.default_rng(n_classes)
    for n in (n_classes, 50, 3_001, 200_000):
        y = rng.choice(n_classes, n, p=rng.dirichlet(np.full(n_classes, 0.5)))
        y[:n_classes] = np.arange(n_classes)
        params = {"objective": "multi:softprob", "num_class": n_classes, "nthread": 1}
        if n_classes == 2:
            params = {"objective": "binary:logistic", "scale_pos_weight": 7.3, "nthread": 1}
        booster = xgb.train(params, xgb.DMatrix(np.zeros((n, 1)), label=y), 1)
        config = json.loads(booster.save_config())
        expected = json.loads(config["learner"]["learner_model_param"]["base_score"])
        np.testing.assert_array_equal(
            np.ravel(find_intercept(y, None, params)), np.ravel(expected)
        )


REPORTS = (
    "constraint_report_", "group_report_", "history_", "multipliers_", "unseen_accuracy_",
    "feasibility_", "shift_", "stopping_message_", "prefixes_",
)  # fmt: skip


@EVERY
def test_reports_are_read_after_fit(kind, binary):
    """As scikit-learn says it of its own attributes; also of a fit without constraints."""

    def check_absent(clf):
        for name in REPORTS:
            with pytest.raises(NotFittedError, match=f"no {name} yet: call fit with constraints"):
                getattr(clf, name)

    clf = ALL[kind]([gc.fnr() <= 0.1])
    for other in (clf, clone(clf), copy.deepcopy(clf), pickle.loads(pickle.dumps(clf))):
        check_absent(other)
    clf.fit(*binary)
    absent = {"prefixes_", "shift_"} if kind == "logistic" else {"prefixes_"}
    assert set(REPORTS) & set(vars(clf)) == set(REPORTS) - absent
    for name in absent:
        with pytest.raises(AttributeError, match=f"no {name}: its last fit") as refused:
            getattr(clf, name)
        assert not isinstance(refused.value, NotFittedError)
    check_absent(clf.set_params(constraints=[]).fit(*binary))
