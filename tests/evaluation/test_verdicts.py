"""Verdicts agree with the figures they are about, in every mode of measurement and everywhere."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
from helpers import BOTH, CLASSIFIERS
from hypothesis import given
from hypothesis import strategies as st
from regressor_fits import REGRESSORS

import gbm_constrained as gc
from gbm_constrained.decision.evaluation_set import Estimate
from gbm_constrained.evaluation.verdicts import KINDS, Verdict

OURS = gc.FragileConstraintsWarning, gc.InfeasibleConstraintsWarning, gc.MissedConstraintsWarning
QUIET = {
    "xgboost": {"verbosity": 0, "n_jobs": 1},
    "lightgbm": {"verbose": -1, "n_jobs": 1},
    "linear": {},
}
CONTINUED = {"xgboost": "xgb_model", "lightgbm": "init_model"}
NAN = float("nan")


@pytest.fixture(scope="module")
def noisy():
    """Two classes, one label in five wrong, and two groups."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 4))
    y = (X[:, 0] + 0.5 * X[:, 1] > 0.4).astype(int)
    y = np.where(rng.random(1500) < 0.2, 1 - y, y)
    return X, y, {"g": np.where(X[:, 2] > 0.5, "a", "b")}


def make(library, rules, **options):
    if library == "linear":
        return gc.ConstrainedLogisticRegression(constraints=rules, **options)
    own = {"n_estimators": 12, "max_depth": 3, "random_state": 0, **QUIET[library], **options}
    return CLASSIFIERS[library](constraints=rules, **own)


def fitted(model, data, **given):
    """Fit, and give the model with the warnings about rules."""
    X, y, sensitive = data
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y, sensitive_features=sensitive, **given)
    return model, [w for w in caught if issubclass(w.category, (*OURS, UserWarning))]


def of_rules(caught):
    return [w.category for w in caught if issubclass(w.category, OURS)]


def check_agreement(model):
    """Compare verdicts, values, `satisfied` and status of a fit."""
    report, found = model.constraint_report_, model.feasibility_
    assert found.status == max(report["verdict"], key=KINDS.index)
    assert [rule.verdict.kind for rule in found.rules] == report["verdict"].tolist()
    assert [rule.verdict.source for rule in found.rules] == report["rows"].tolist()
    for row, rule in zip(report.itertuples(), found.rules, strict=True):
        on_training_rows = row.rows == "training rows"
        value = row.train if on_training_rows else row.held_out
        assert rule.value == pytest.approx(value, nan_ok=True)
        assert np.isnan(row.held_out) or bool(row.satisfied) == rule.is_met
        if row.verdict in ("met", "met on training rows"):
            assert rule.is_met
            assert on_training_rows == (row.verdict == "met on training rows")
        if row.verdict.startswith("missed"):
            assert not rule.is_met
            assert rule.verdict.distance > 0
        assert (found.status == "met") == (report["verdict"] == "met").all()


# --- the verdict itself -----------------------------------------------------------------------


CASES = [
    (gc.fnr() <= 0.1, 0.05, (0.03, 0.08), {}, "met", "met"),
    (gc.fnr() <= 0.1, 0.1, (0.08, 0.12), {}, "met",
     "met, but the interval reaches beyond the bound"),
    (gc.recall() >= 0.9, 0.95, (0.92, 0.97), {}, "met", "met"),
    (
        gc.recall() >= 0.9, 0.95, (0.89, 0.97), {"source": "training rows"},
        "met on training rows",
        "met on training rows, but the interval reaches beyond the bound",
    ),
    (
        gc.fnr() <= 0.1, 0.1031, (0.08, 0.12), {}, "missed within sampling error",
        "missed by 0.31 points, within sampling error of 1,203 rows",
    ),
    (
        gc.fnr() <= 0.1, 0.121, (0.11, 0.13), {}, "missed",
        "missed by 2.1 points, beyond sampling error of 1,203 rows",
    ),
    (
        gc.recall() >= 0.9, 0.879, (0.86, 0.9), {"source": "training rows"},
        "missed within sampling error",
        "missed by 2.1 points, within sampling error of 1,203 training rows",
    ),
    (
        gc.recall() >= 0.9, 0.5, (0.4, 0.6), {"source": "out of fold"}, "missed",
        "missed by 40 points, beyond sampling error of 1,203 rows (out of fold)",
    ),
    (gc.fnr() <= 0.1, 0.2, (NAN, NAN), {}, "missed", "missed by 10 points on 1,203 rows"),
    (gc.fnr() <= 0.1, 0.0, (NAN, NAN), {}, "met", "met"),
    (
        gc.precision() >= 0.5, NAN, (NAN, NAN), {}, "cannot be told",
        "cannot be told: the value is undefined on these rows",
    ),
    (
        gc.fnr() <= 0.1, 0.05, (0.0, 0.3), {"doubt": "12 rows of g=a"}, "cannot be told",
        "cannot be told: 12 rows of g=a",
    ),
    (
        gc.fnr() <= 0.1, 0.2, (0.0, 0.3), {"doubt": "12 rows of g=a"}, "cannot be told",
        "cannot be told: 12 rows of g=a",
    ),
    (
        gc.fnr() <= 0.1, 0.2, (0.15, 0.3), {"doubt": "12 rows of g=a"}, "missed",
        "missed by 10 points, beyond sampling error of 1,203 rows",
    ),
    (
        gc.fpr() <= 0.1, 0.2, (0.1, 0.3), {"conflict": [gc.fpr() <= 0.1, gc.fnr() <= 0.1]},
        "cannot be met", "cannot be met together with fnr <= 0.1",
    ),
    (
        gc.fpr() <= 0.1, 0.2, (0.1, 0.3), {"conflict": [gc.fpr() <= 0.1]}, "cannot be met",
        "cannot be met",
    ),
    (gc.fpr() <= 0.1, 0.0, (0.0, 0.1), {"conflict": [gc.fnr() <= 0.1]}, "met", "met"),
    (gc.fpr() <= 0.1, 0.0, (0.0, 0.1), {"left_out": ["g=a"]}, "met", "met, without g=a"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "value", "interval", "given", "kind", "text"), CASES)
def test_the_verdict_of_a_value(rule, value, interval, given, kind, text):
    verdict = gc.Verdict.of(rule, Estimate(value, *interval), 1203, **given)
    assert (verdict.kind, str(verdict)) == (kind, text)


@pytest.mark.parametrize(
    ("rule", "distance", "text"),
    [
        (gc.gap(gc.fpr(), by="g") <= 0.1, 0.0123, "1.2 points"),
        (gc.precision() >= 0.5, 0.25, "25 points"),
        (gc.gap(gc.auc(), by="g") <= 0.1, 0.0022, "0.22 points"),
        (gc.calibration_error() <= 0.1, 0.05, "5 points"),
        (gc.share_above(3.0) <= 0.0, 1.0, "100 points"),
        (gc.fnr(weight="loan") <= 0.1, 0.05, "5 points"),
        (gc.ratio(gc.fpr(), by="g") >= 0.8, 0.125, "0.12"),
        (gc.wins(over="m") / gc.losses(to="m") >= 2.0, 0.5, "0.5"),
        (gc.log_loss() <= 0.3, 0.077, "0.077 nats"),
        (gc.mean_loss("squared") <= 10.0, 1234.0, "1,200 units of the squared loss"),
        (gc.mean_loss("absolute", range=(0, 1)) <= 0.5, 0.25, "0.25 units of the absolute loss"),
        (gc.gap(gc.mean_prediction(), by="g") <= 2.0, 3.78, "3.8 units of y"),
        (gc.cost([[0, 1], [5, 0]]) <= 1.0, 0.2, "0.2 units of cost"),
        (gc.cost([[0, 1], [5, 0]], weight="loan") <= 1.0, 250.0, "250 of loan"),
    ],
)
def test_a_miss_is_in_the_unit_of_the_constraint(rule, distance, text):
    verdict = gc.Verdict.of(rule, Estimate(rule.bound + rule.sign * distance, NAN, NAN), 7)
    assert str(verdict) == f"missed by {text} on 7 rows"


ENDS = st.floats(-0.2, 1.2) | st.just(NAN) | st.sampled_from([-np.inf, np.inf])


@given(
    bound=st.floats(0.0, 1.0), value=ENDS, low=ENDS, high=ENDS, upper=st.booleans(),
    doubt=st.sampled_from(["", "few rows"]), in_conflict=st.booleans(),
)  # fmt: skip
def test_no_verdict_contradicts_its_value(bound, value, low, high, upper, doubt, in_conflict):
    rule = gc.fnr() <= bound if upper else gc.fnr() >= bound
    verdict = gc.Verdict.of(
        rule, Estimate(value, low, high), 10, doubt=doubt, conflict=[rule] if in_conflict else []
    )
    is_met = value <= bound + 1e-12 if upper else value >= bound - 1e-12
    if verdict.kind == "met":
        assert is_met
        assert not doubt
    if verdict.kind.startswith("missed"):
        assert not is_met
        assert verdict.distance > 0
    if verdict.kind == "missed" and not np.isnan([low, high]).any():
        assert low > bound if upper else high < bound
    if verdict.kind == "cannot be told":
        assert verdict.reason
    assert (verdict.kind == "cannot be met") == in_conflict
    assert str(verdict).startswith(verdict.kind.split(" within")[0])


def test_the_gravest_of_verdicts():
    assert KINDS[:3] == ("met", "met on training rows", "missed within sampling error")
    assert KINDS[3:] == ("cannot be told", "missed", "cannot be met")


# --- fits: the value decides, whatever the rows -----------------------------------------------

RULES = {
    "met": [gc.fpr() <= 0.9],
    "one of two is missed": [gc.fpr() <= 0.12, gc.fnr() <= 0.95],
    "gap": [gc.gap(gc.fpr(), by="g") <= 0.01],
    "three": [gc.fpr() <= 0.1, gc.gap(gc.selection_rate(), by="g") <= 0.01, gc.fnr() <= 0.3],
    "loss": [gc.log_loss() <= 0.5, gc.each(gc.fnr(), by="g") <= 0.3],
}


MODES = ("crossfit", "holdout", "train", "eval_set", "watch")


@BOTH
@pytest.mark.parametrize("turn", range(5))
def test_status_report_and_values_agree(library, turn, noisy):
    """Each library has each mode of measurement and each kind of constraints once."""
    mode = MODES[turn]
    rules = [*RULES.values()][turn - 2 if library == "xgboost" else turn]
    X, y, sensitive = noisy
    train, held = slice(400, None), slice(0, 400)
    given = {}
    if mode in ("eval_set", "watch"):
        given = {
            "eval_set": [(X[held], y[held])],
            "sensitive_features_eval_set": [{"g": sensitive["g"][held]}],
        }
        if library == "xgboost":
            given["verbose"] = False
    measure_on = {"eval_set": "crossfit", "watch": "holdout"}.get(mode, mode)
    data = X[train], y[train], {"g": sensitive["g"][train]}
    model, caught = fitted(make(library, rules, measure_on=measure_on), data, **given)
    check_agreement(model)
    kinds = set(model.constraint_report_["verdict"])
    if kinds <= {"met", "missed within sampling error"} and not model.feasibility_.is_fragile:
        assert set(of_rules(caught)) <= {gc.FragileConstraintsWarning}
    if "missed" in kinds and not model.feasibility_.conflict:
        assert gc.MissedConstraintsWarning in of_rules(caught)
    assert "No doubt arises" not in str(model.feasibility_)


@BOTH
def test_a_rule_missed_within_sampling_error_is_told_of_without_a_warning(library, noisy):
    """Such as by a hair, on an evaluation set with more false alarms than the training rows."""
    X, y, _ = noisy
    wrong = (
        make(library, [gc.fpr() <= 0.9], measure_on="train").fit(X[700:], y[700:]).predict(X) > y
    )
    kept = np.flatnonzero((np.arange(y.size) < 700) & (wrong | (np.arange(y.size) % 2 == 0)))
    rate = wrong[kept][y[kept] == 0].mean()
    assert wrong[700:][y[700:] == 0].mean() < rate - 0.01
    quiet = {"verbose": False} if library == "xgboost" else {}
    model, caught = fitted(
        make(library, [gc.fpr() <= rate - 0.002], measure_on="train"),
        (X[700:], y[700:], None), eval_set=[(X[kept], y[kept])], **quiet,
    )  # fmt: skip
    found = model.feasibility_
    check_agreement(model)
    assert found.status == "missed within sampling error"
    assert of_rules(caught) == []
    assert "misses constraints within sampling error, on unseen rows (eval_set[0])" in str(found)
    n = np.sum(y[kept] == 0)
    expected = f"missed by 0.2 points, within sampling error of {n} rows (eval_set[0])"
    assert str(found.rules[0].verdict) == expected
    assert expected in str(found)


# --- modes without unseen rows ----------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("mode", ["train", "continued"])
def test_training_rows_have_a_verdict_and_a_warning(library, mode, noisy):
    options, given = {"measure_on": "train"}, {}
    if mode == "continued":
        start = make(library, [], n_estimators=3).fit(noisy[0], noisy[1])
        given = {CONTINUED[library]: start}
    model, caught = fitted(
        make(library, [gc.fnr() <= 0.01, gc.fpr() <= 0.02], **options), noisy, **given
    )
    report, found = model.constraint_report_, model.feasibility_
    check_agreement(model)
    assert (found.source, found.conflict) == ("training rows", ())
    assert (report["rows"] == "training rows").all()
    assert report["satisfied"].isna().all()
    assert found.status == "missed"
    assert of_rules(caught) == [gc.MissedConstraintsWarning]
    assert "Training rows are optimistic" in str(found)
    missed = model.predict(noisy[0])[noisy[1] == 1] == 0
    assert found.rules[0].value == pytest.approx(missed.mean())
    text = str(found.rules[0].verdict)
    assert text.endswith(f"beyond sampling error of {missed.size} training rows")


@BOTH
def test_a_fit_that_falls_back_to_training_rows_says_so_once(library, noisy):
    given = {CONTINUED[library]: make(library, [], n_estimators=3).fit(noisy[0], noisy[1])}
    _, caught = fitted(make(library, [gc.fpr() <= 0.9]), noisy, **given)
    found = [str(w.message) for w in caught if "measure_on='auto'" in str(w.message)]
    assert len(found) == 1
    assert "give an evaluation set with measure_on='holdout'" in found[0]
    _, caught = fitted(make(library, [gc.fpr() <= 0.9], measure_on="train"), noisy, **given)
    assert not any("measure_on" in str(w.message) for w in caught)


@BOTH
@pytest.mark.parametrize("kind", ["rates", "metric", "numbers"])
def test_nothing_on_training_rows_passes_for_unseen(library, kind, noisy):
    """No verdict, no value, no accuracy; the costs say which rows they are of."""
    X, y, _ = noisy
    own = {"n_estimators": 2, "max_depth": 2, "measure_on": "train", **QUIET[library]}
    if kind == "numbers":
        own["constraints"] = [gc.mean_prediction() <= 0.9]
        model = REGRESSORS[library](**own).fit(X, y)
    else:
        own["maximize"] = "g_mean" if kind == "metric" else None
        model, _ = fitted(make(library, [gc.fpr() <= 0.9], **own), noisy)
    check_agreement(model)
    report = model.constraint_report_.iloc[0]
    assert model.feasibility_.status == report["verdict"] == "met on training rows"
    assert np.isnan(report[["held_out", "low", "high"]].astype(float)).all()
    unseen = model.unseen_r2_ if kind == "numbers" else model.unseen_accuracy_
    assert np.isnan(unseen.value)
    costs = model.cost_report_
    assert costs.index.name == "training rows"
    assert costs.loc["returned"].iloc[1] == report["train"]
    if kind == "metric":
        assert model.metric_report_["held_out"].isna().all()
        assert model.metric_report_["train"].notna().all()


def test_the_linear_model_has_verdicts_by_its_training_rows(noisy):
    for rules, status, categories in (
        ([gc.fpr() <= 0.9, gc.log_loss() <= 0.9], "met on training rows", []),
        ([gc.log_loss() <= 0.3], "missed", [gc.MissedConstraintsWarning]),
        # A rate that no iterate met is reported by the solver, and not twice.
        ([gc.fpr() <= 0.01, gc.fnr() <= 0.01], "missed", [gc.InfeasibleConstraintsWarning]),
    ):
        model, caught = fitted(make("linear", rules, n_iterations=5), noisy)
        check_agreement(model)
        assert (model.feasibility_.status, of_rules(caught)) == (status, categories)


@BOTH
def test_mixtures_have_verdicts(library, noisy):
    for measure_on in ("crossfit", "train"):
        options = {"measure_on": measure_on, "iterate": "randomized"}
        model, _ = fitted(make(library, [gc.fpr() <= 0.15], **options), noisy)
        check_agreement(model)
        (rule,) = model.feasibility_.rules
        assert rule.low <= rule.value <= rule.high


@BOTH
def test_few_training_rows_of_a_group_tell_nothing(library, noisy):
    X, y, _ = noisy
    group = {"g": np.where(np.arange(y.size) < 14, "few", "many")}
    rule = gc.each(gc.fnr(), by="g", min_group_size=1) <= 0.5
    model, caught = fitted(make(library, [rule], measure_on="train"), (X, y, group))
    check_agreement(model)
    found = model.feasibility_.rules[0].verdict
    assert found.kind == "cannot be told"
    assert "of g=few" in found.reason
    assert of_rules(caught) == [gc.FragileConstraintsWarning]


# --- continuing from a model whose threshold is kept beside it --------------------------------


@BOTH
def test_a_threshold_beside_the_model_is_not_lost(library, noisy, tmp_path):
    X, y, _ = noisy
    start, _ = fitted(make(library, [gc.fnr() <= 0.1], probabilities="calibrated"), noisy)
    assert start.shift_.any()
    path = tmp_path / ("model.json" if library == "xgboost" else "model.txt")
    start.save_model(path)
    parameter = CONTINUED[library]
    for source in (start, path, str(path)):
        with pytest.raises(ValueError, match=f"{parameter} is a model of probabilities='calib"):
            make(library, [gc.fnr() <= 0.1], measure_on="train").fit(X, y, **{parameter: source})
    shifted, _ = fitted(make(library, [gc.fnr() <= 0.1]), noisy)
    shifted.save_model(path)
    for source in (shifted, str(path)):
        model = make(library, [gc.fnr() <= 0.1], measure_on="train")
        fitted(model, noisy, **{parameter: source})
        check_agreement(model)


# --- rounds that were not trained -------------------------------------------------------------


@pytest.mark.parametrize("library", ["xgboost", "lightgbm", "linear"])
def test_a_callback_that_ends_a_fit_is_told_of(library, noisy):
    def after_two(state):
        return state.iteration >= 1

    options = {"n_iterations": 4} if library == "linear" else {}
    model, _ = fitted(
        make(library, [gc.fnr() <= 0.1], **options), noisy, constraint_callbacks=[after_two]
    )
    found = model.feasibility_
    assert 0 < found.rounds_trained < found.rounds_asked
    words = f"Training ended after {found.rounds_trained} of {found.rounds_asked} rounds."
    assert words in str(found)
    assert words in model._repr_html_()
    model, _ = fitted(make(library, [gc.fnr() <= 0.1], **options), noisy)
    assert model.feasibility_.rounds_trained == model.feasibility_.rounds_asked
    assert "Training ended" not in str(model.feasibility_)


# --- the same words everywhere ----------------------------------------------------------------


@BOTH
def test_fit_audit_curve_and_file_speak_alike(library, noisy, tmp_path):
    X, y, sensitive = noisy
    rules = [gc.fpr() <= 0.2, gc.fnr() <= 0.3, gc.gap(gc.fpr(), by="g") <= 0.02]
    model, _ = fitted(make(library, rules), noisy)
    assert set(model.constraint_report_["verdict"]) <= set(KINDS)
    of = gc.audit(model, X, y, rules, sensitive_features=sensitive)
    page = of.to_html()
    for row in of.frame.itertuples():
        assert row.verdict in KINDS
        assert row.detail.startswith(row.verdict.split(" within")[0])
        assert row.verdict in page
    assert json.loads(of.to_json())["constraints"][0]["verdict"] == of.frame["verdict"][0]
    path = tmp_path / ("model.json" if library == "xgboost" else "model.txt")
    model.save_model(path)
    again = CLASSIFIERS[library]().load_model(path)
    assert again.feasibility_.rules[0].verdict == model.feasibility_.rules[0].verdict
    assert str(again.feasibility_) == str(model.feasibility_)
    assert again.constraint_report_.equals(model.constraint_report_)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        curve = gc.tradeoff_curve(make(library, [gc.fpr() <= 0.1]), X, y, [0.2, 0.1])
    assert set(curve["verdict"]) <= set(KINDS)
    assert curve["all_met"].tolist() == (curve["verdict"] == "met").tolist()


def test_the_unseen_accuracy_is_a_number(noisy):
    model, _ = fitted(make("lightgbm", [gc.fpr() <= 0.9]), noisy)
    accuracy = model.unseen_accuracy_
    assert float(accuracy) == accuracy.value
    assert f"{float(accuracy):.3f}" == f"{accuracy.value:.3f}"


def test_a_rule_of_a_later_priority_is_given_up_and_the_first_has_a_verdict_of_its_own():
    budget, recall = gc.selection_rate() <= 0.1, (gc.recall() >= 0.5).with_priority(2)
    peer = (gc.fpr() <= 0.1).with_priority(2)
    found = Verdict.of(recall, Estimate(0.3, 0.25, 0.35), 100, conflict=[recall, budget, peer])
    assert found.kind == "cannot be met"
    assert found.given_up_for == ("selection_rate <= 0.1",)
    assert found.conflict == ("selection_rate <= 0.1", "fpr <= 0.1")
    assert str(found) == "given up for selection_rate <= 0.1"
    of_first = Verdict.of(budget, Estimate(0.09, 0.08, 0.1), 100)
    assert (of_first.kind, of_first.given_up_for, str(of_first)) == ("met", (), "met")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("library", CLASSIFIERS)
@pytest.mark.parametrize("options", [{}, {"maximize": "g_mean"}], ids=["fit", "metric"])
def test_groups_that_have_no_positives_are_named_in_the_verdict(library, options):
    rng = np.random.default_rng(0)
    X, group = rng.normal(size=(300, 1)), rng.integers(0, 3, 300)
    y, groups = ((X[:, 0] > 0.2 * group) & (group < 2)) * 1, {"g": group}
    rule = gc.gap(gc.tpr(), by="g") <= 0.5
    model = CLASSIFIERS[library](n_estimators=2, constraints=[rule], measure_on="train", **options)
    model.fit(X, y, sensitive_features=groups)
    found = gc.audit(model, X, y, [rule], sensitive_features=groups)
    for verdict in (str(model.feasibility_.rules[0].verdict), found.frame["detail"][0]):
        assert verdict.endswith(", without g=2")
