"""What fits under pair rates report, certify, save and resume."""

from __future__ import annotations

import itertools
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from helpers import BOTH, fit_linear, interrupt, margins_of, quiet
from saved_models import assert_same_attributes, assert_same_model, save_and_load
from sklearn.base import clone
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV
from small_fits import make

import gbm_constrained as gc

GAP = gc.gap(gc.auc(), by="g") <= 0.02


@pytest.fixture(scope="module")
def rows():
    """Rows whose second feature tells of the label in one group only, with weights."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(1600, 3)), columns=list("abc"))
    X["g"] = rng.integers(0, 2, 1600)
    y = (X["a"] + 0.8 * X["g"] * X["b"] + 0.6 * rng.normal(size=1600) > 0).to_numpy().astype(int)
    return X[:1000], y[:1000], X[1000:], y[1000:]


class Scores:
    """Audits the margins of a booster, whose probabilities would be rounded."""

    classes_ = np.array([0, 1])

    def __init__(self, model):
        self.model = model

    def predict(self, X):
        return self.model.predict(X)

    def decision_function(self, X):
        return margins_of(self.model, X)


@BOTH
def test_values_and_intervals_of_an_evaluation_set_are_those_of_an_audit(library, rows):
    X, y, X_held, y_held = rows
    rules = [GAP, gc.gap(gc.cross_auc(), by="g") <= 0.1, gc.auc() >= 0.6, gc.fpr() <= 0.2]
    model = make(library, rules, measure_on=gc.CrossFit(2))
    model.fit(X, y, eval_set=[(X_held, y_held)], **quiet(library))
    report, of = model.constraint_report_, gc.audit(Scores(model), X_held, y_held, rules)
    np.testing.assert_allclose(report["held_out"], of.frame["value"], rtol=0, atol=1e-9)
    np.testing.assert_allclose(report[["low", "high"]], of.frame[["low", "high"]], atol=1e-9)
    assert report["verdict"].tolist() == of.frame["verdict"].tolist()
    groups = model.group_report_
    np.testing.assert_allclose(groups["held_out"], of.groups["rate"], rtol=0, atol=1e-9)
    np.testing.assert_allclose(
        groups[["low", "high"]], of.groups[["low", "high"]], rtol=0, atol=1e-9
    )
    scores = margins_of(model, X)
    in_training = [roc_auc_score(y[X["g"] == g], scores[X["g"] == g]) for g in (0, 1)]
    np.testing.assert_allclose(groups["train"][:2], in_training, rtol=0, atol=1e-12)


@BOTH
def test_values_out_of_fold_have_intervals_and_verdicts_count_their_rows(library, rows):
    X, y, *_ = rows
    model = make(library, [GAP, gc.auc() >= 0.99], measure_on=gc.CrossFit(2))
    with pytest.warns(gc.MissedConstraintsWarning, match=r"auc >= 0.99: 0\.\d+ \(0\.\d+ to 0\."):
        model.fit(X, y)
    report = model.constraint_report_
    assert (report["low"] <= report["held_out"]).all()
    assert (report["held_out"] <= report["high"]).all()
    assert "of 1,000 rows (out of fold)" in str(model.feasibility_.rules[1].verdict)
    assert model.feasibility_.rules[0].rows == min(
        np.sum((X["g"] == g) & (y == k)) for g in (0, 1) for k in (0, 1)
    )


def test_training_rows_have_intervals_in_verdicts(rows):
    X, y, *_ = rows
    model = fit_linear(X.drop(columns="g"), y, GAP, sensitive_features=X[["g"]])
    (result,) = model.feasibility_.rules
    scores = model.decision_function(X.drop(columns="g"))
    of_groups = [roc_auc_score(y[X["g"] == g], scores[X["g"] == g]) for g in (0, 1)]
    assert result.value == pytest.approx(np.ptp(of_groups), abs=1e-9)
    assert 0.0 <= result.low <= result.value < result.high


def test_few_rows_of_one_side_are_named(rows):
    X, y, *_ = rows
    rare = np.r_[np.flatnonzero(y == 1)[:14], np.flatnonzero(y == 0)]
    rule = gc.auc() >= 0.8
    with pytest.warns(gc.FragileConstraintsWarning, match=r"auc >= 0.8: 14 rows"):
        model = make("xgboost", [rule], measure_on=gc.CrossFit(2), n_estimators=3).fit(
            X.iloc[rare], y[rare]
        )
    assert model.constraint_report_["verdict"].tolist() == ["cannot be told"]


@BOTH
def test_a_certificate_of_pair_rates_leaves_the_scores_as_they_are(library, rows):
    X, y, *_ = rows
    asked = {"guarantee": gc.HighProbability(fraction=0.4), "measure_on": gc.CrossFit(2)}
    alone = make(library, [gc.auc() >= 0.7], **asked).fit(X, y)
    assert alone.shift_.tolist() == [0.0]
    assert alone.feasibility_.p_value <= alone.feasibility_.level == 0.05
    assert alone.constraint_report_["rows"].tolist() == ["certification"]
    # Hoeffding's inequality at the value that is reported.
    side = alone.feasibility_.rules[0].rows
    room = alone.constraint_report_["held_out"][0] - 0.7
    assert alone.feasibility_.p_value == pytest.approx(np.exp(-2 * side * room**2), rel=1e-9)


@BOTH
def test_beside_pair_rates_the_threshold_is_moved_for_other_rates(library, rows):
    X, y, *_ = rows
    asked = {"guarantee": gc.HighProbability(fraction=0.5), "measure_on": gc.CrossFit(2)}
    rules = [gc.auc() >= 0.7, gc.fpr() <= 0.08]
    model = make(library, rules, **asked).fit(X, y)
    assert model.shift_[0] != 0.0
    assert model.feasibility_.status == "met"
    assert model.feasibility_.p_value <= 0.05


def test_what_the_rows_do_not_certify_is_said(rows):
    X, y, *_ = rows
    asked = {"guarantee": gc.HighProbability(fraction=0.5), "measure_on": gc.CrossFit(2)}
    with pytest.warns(gc.InfeasibleConstraintsWarning, match="Not certified: auc >= 0.85"):
        model = make("xgboost", [gc.auc() >= 0.85], **asked).fit(X, y)
    assert model.shift_.tolist() == [0.0]
    reason = "cannot be told: guarantee='high_probability' was asked for and is not given"
    assert str(model.feasibility_.rules[0].verdict) == reason


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (GAP, r"not even perfect scores earn it on the 200 rows .* auc\[g=.\]\. It takes [\d,]+"),
        (gc.auc() >= 0.9, r"auc >= 0.9: .* smaller side of auc\. It takes \d+ rows"),
        (gc.auc() >= 1.0, "No number of rows is enough for it: relax the bound"),
        (gc.gap(gc.auc(), by="g") <= 0.0, "that two values are equal no number of rows certifies"),
    ],
)
def test_certificates_beyond_perfect_scores_are_refused_before_training(rule, message, rows):
    X, y, *_ = rows
    with pytest.raises(ValueError, match=message):
        make("xgboost", [rule], guarantee="high_probability").fit(
            X, y, constraint_callbacks=[lambda state: pytest.fail("training started")]
        )


def test_the_guarantee_in_the_mean_is_refused_for_pair_rates(rows):
    X, y, *_ = rows
    message = r"guarantee='expected' cannot be given for gap\(auc, by='g'\) <= 0.02: it compares"
    with pytest.raises(ValueError, match=message):
        make("xgboost", [gc.fpr() <= 0.2, GAP], guarantee="expected").fit(X, y)


@BOTH
def test_saved_models_report_and_rank_as_before(library, rows, tmp_path):
    X, y, X_held, y_held = rows
    rules = [
        GAP,
        gc.gap(gc.cross_auc(group="negatives", background="all"), by="g") <= 0.1,
        gc.auc(negatives={"g": 1}) - gc.auc(positives={"g": 1}) <= 0.1,
        gc.gap(gc.mean_rank(on=gc.label(1)), by="g", reference=gc.overall) <= 0.1,
    ]
    model = make(library, rules, measure_on=gc.CrossFit(2)).fit(X, y)
    loaded = save_and_load(model, tmp_path)
    assert_same_model(loaded, model, X_held)
    assert list(loaded.constraints) == rules
    audits = [gc.audit(Scores(m), X_held, y_held, rules).frame for m in (model, loaded)]
    pd.testing.assert_frame_equal(*audits, check_exact=True)
    again = pickle.loads(pickle.dumps(model))
    assert_same_attributes(library, vars(again), vars(model))
    assert clone(model).constraints == rules


def test_saved_linear_models_rank_as_before(rows):
    X, y, *_ = rows
    given = {"sensitive_features": X[["g"]]}
    model = fit_linear(X.drop(columns="g"), y, GAP, **given)
    again = pickle.loads(pickle.dumps(model))
    pd.testing.assert_frame_equal(
        again.constraint_report_, model.constraint_report_, check_exact=True
    )
    np.testing.assert_array_equal(
        *(m.decision_function(X.drop(columns="g")) for m in (model, again))
    )


@BOTH
def test_pair_rates_are_searched_over(library, rows):
    X, y, *_ = rows
    search = GridSearchCV(
        make(library, None, measure_on=gc.CrossFit(2), n_estimators=3),
        {"constraints": [[GAP], [gc.auc() >= 0.5]]},
        scoring="roc_auc",
        cv=2,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search.fit(X, y)
    assert search.best_estimator_.constraint_report_["low"].notna().all()


@BOTH
def test_fits_that_are_interrupted_at_random_rounds_are_resumed(library, rows, tmp_path):
    X, y, *_ = rows
    path = tmp_path / "run.checkpoint"
    binding = gc.auc(on={"g": 1}) - gc.auc(on={"g": 0}) <= -0.05

    def fit(**more):
        return make(library, [binding], measure_on=gc.CrossFit(2), n_estimators=8).fit(
            X, y, **more
        )

    seen, saved = [], 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole = fit(constraint_callbacks=[lambda state: seen.append(state.phase)])
        rng, phases = np.random.default_rng(0), np.array(seen)
        rounds = [
            at
            for phase, n in (("measuring", 8), ("training", 2))
            for at in rng.choice(np.flatnonzero(phases == phase), n, replace=False)
        ]
        for at in rounds:
            calls = itertools.count()
            interrupt(
                lambda **more: fit(checkpoint=path, **more),
                lambda state, at=at, calls=calls: next(calls) == at,
            )
            saved += path.exists()
            resumed = fit(checkpoint=path)
            assert not path.exists()
            np.testing.assert_array_equal(margins_of(resumed, X), margins_of(whole, X))
            pd.testing.assert_frame_equal(
                resumed.constraint_report_, whole.constraint_report_, check_exact=True
            )
    assert saved
    assert whole.multipliers_.any()
