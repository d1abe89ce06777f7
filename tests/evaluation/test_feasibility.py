"""Constraints that cannot be met, or assessed, are named; others are left alone."""

from __future__ import annotations

import pickle
import warnings
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from helpers import BOTH

import gbm_constrained as gc
from gbm_constrained.datasets import load_adult, load_credit
from gbm_constrained.evaluation.assessment import FRAGILE_ERROR, is_hardly_better
from gbm_constrained.evaluation.verdicts import KINDS
from gbm_constrained.fit.model_note import dumps


def noisy(n=2500, flipped=0.2):
    """Two classes, one label in five wrong."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 4))
    y = (X[:, 0] + 0.5 * X[:, 1] > 0.4).astype(int)
    return X, np.where(rng.random(n) < flipped, 1 - y, y), {}


def noise(n=2000):
    """Labels that have nothing to do with the features."""
    rng = np.random.default_rng(1)
    return rng.normal(size=(n, 4)), (rng.random(n) < 0.3).astype(int), {}


def three(n=2400):
    """Three classes in a row that overlap."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(n, 4))
    return X, np.digitize(X[:, 0] + 0.8 * rng.normal(size=n), [-0.6, 0.6]), {}


def with_rare_class(n=900):
    """Two rows of a hundred are of a third class, which nothing tells of."""
    X, y, _ = noisy(n)
    rng = np.random.default_rng(5)
    return X, np.where(rng.random(n) < 0.02, 2, y), {"g": np.arange(n) % 2}


def by_group(n=3000):
    """Only the group, and a feature, depend on the label."""
    rng = np.random.default_rng(3)
    g = rng.integers(0, 2, n)
    y = (rng.random(n) < np.where(g == 1, 0.85, 0.15)).astype(int)
    return np.c_[g, rng.normal(size=(n, 2))], y, {"g": np.where(g == 1, "a", "b")}


def with_rare_group(n=2500):
    X, y, _ = noisy(n)
    rng = np.random.default_rng(4)
    return X, y, {"g": np.where(rng.random(n) < 0.015, "rare", "many")}


def frauds(n=20_000):
    """One row in a hundred is positive, and one of seven of these looks like all others."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 4))
    y = (rng.random(n) < 0.01).astype(int)
    X[(y == 1) & (rng.random(n) > 0.15), 0] += 4
    return X, y, {}


def credit():
    """80% of Credit; with half of them kept for the certificate, 197 frauds decide."""
    try:
        data = load_credit(download=False)
    except OSError as missing:
        pytest.skip(f"Credit was not found; set GBM_CONSTRAINED_DATA: {missing}"[:200])
    keep = np.random.default_rng(0).random(len(data.target)) < 0.8
    return data.data[keep], data.target.to_numpy()[keep], {}


def adult_sample():
    data = load_adult(download=False)
    take = np.random.default_rng(0).permutation(len(data.target))[:6000]
    return data.data.iloc[take], data.target.to_numpy()[take], {
        "sex": data.data["sex"].astype(str).to_numpy()[take]
    }  # fmt: skip


@dataclass
class Case:
    """Rules on some data, and what must be said of them."""

    data: Any
    rules: Any
    status: str
    conflict: tuple[Any, ...] = ()
    says: tuple[str, ...] = ()
    library: str = "lightgbm"
    options: dict[str, Any] = field(default_factory=dict)
    is_fragile: bool = False


RANDOM = np.random.default_rng(7).integers(0, 2, 2500)
HIGH = {"guarantee": gc.HighProbability(fraction=0.5)}
PARITY = gc.gap(gc.selection_rate(), by="g") <= 0.02
UPPER, LOWER = gc.selection_rate() <= 0.1, gc.selection_rate() >= 0.3
MASK = np.arange(2500) < 1250
HALVES = gc.selection_rate(on=MASK) - gc.selection_rate(on=~MASK) >= 0.4
CLASSES = tuple(gc.class_error(k) <= 0.3 for k in range(3))
CASES = {
    "two contradict on noisy labels": Case(
        noisy, [gc.fpr() <= 0.01, gc.fnr() <= 0.01], "cannot be met",
        (gc.fpr() <= 0.01, gc.fnr() <= 0.01),
        ("fpr <= 0.01 and fnr <= 0.01 together",), "xgboost",
    ),
    "two contradict, two stand by": Case(
        noisy,
        [gc.selection_rate() <= 0.95, gc.fpr() <= 0.02, gc.error_rate() <= 0.9,
         gc.recall() >= 0.97],
        "cannot be met", (gc.fpr() <= 0.02, gc.recall() >= 0.97), ("while the other holds",),
    ),
    "three contradict, one stands by": Case(
        by_group, [gc.selection_rate() <= 0.99, PARITY, gc.recall() >= 0.75, gc.fpr() <= 0.3],
        "cannot be met", (PARITY, gc.recall() >= 0.75, gc.fpr() <= 0.3),
    ),
    "three classes on noisy labels": Case(
        three, [gc.error_rate() <= 0.9, *(gc.class_error(k) <= 0.2 for k in range(3))],
        "cannot be met", (gc.class_error(1) <= 0.2, gc.class_error(2) <= 0.2), (), "xgboost",
    ),
    "three classes, of which any two can hold": Case(
        three, [*CLASSES, gc.error_rate() <= 0.9], "cannot be met", CLASSES,
    ),
    "selection rates contradict": Case(
        noisy, [UPPER, LOWER, gc.fpr() <= 0.9], "cannot be met", (UPPER, LOWER),
    ),
    "parity and opportunity and a floor of accuracy": Case(
        by_group, [gc.gap(gc.tpr(), by="g") <= 0.02, gc.recall() >= 0.05, gc.accuracy() >= 0.8],
        "cannot be met", (gc.gap(gc.tpr(), by="g") <= 0.02, gc.accuracy() >= 0.8), (), "xgboost",
    ),
    "precision on noise": Case(
        noise, [gc.precision() >= 0.99], "cannot be met", (gc.precision() >= 0.99,),
        ("in name only", "at best"),
    ),
    "accuracy beyond the noise": Case(
        noisy, [gc.accuracy() >= 0.95], "cannot be met", (gc.accuracy() >= 0.95,),
        ("at best 0.7",),
        "xgboost",
    ),
    "halves at random that must differ": Case(
        noisy, [HALVES, gc.fpr() <= 0.9], "cannot be met", (HALVES,), ("Relax this bound",),
    ),
    "no churn against a deployed model that guesses": Case(
        noisy, [gc.churn(to=RANDOM) <= 0, gc.recall() >= 0.3], "cannot be met",
        (gc.churn(to=RANDOM) <= 0,),
    ),
    "a group of few rows": Case(
        with_rare_group, [gc.each(gc.fnr(), by="g") <= 0.4], "cannot be told", (),
        ("g=rare", "rows"),
    ),
    "a bound that so few rows cannot confirm": Case(
        lambda: noisy(250, 0.0), [gc.fnr() <= 0.01], "cannot be told", (), ("fnr <= 0.01: ",),
        options={"max_depth": 2},
    ),
    "certified at a ruinous price": Case(
        frauds, [gc.fnr() <= 0.05], "met", (), ("always class 1", "more rows to certify on"),
        options=HIGH, is_fragile=True,
    ),
    "certified at a ruinous price, Credit": Case(
        credit, [gc.fnr() <= 0.05], "met", (), ("always class 1",),
        options={**HIGH, "n_estimators": 15, "max_depth": -1}, is_fragile=True,
    ),
    "not certified": Case(
        frauds, [gc.fnr() <= 0.05, gc.fpr() <= 0.05], "cannot be met",
        (gc.fnr() <= 0.05, gc.fpr() <= 0.05),
        ("Not certified", "p-value"), "xgboost", HIGH,
    ),
    "not certified, one rule": Case(
        by_group, [gc.gap(gc.fpr(), by="g") <= 0.01], "cannot be told",
        (gc.gap(gc.fpr(), by="g") <= 0.01,),
        ("Not certified", "other than one decision for all rows", "Relax this bound or delta"),
        options=HIGH,
    ),
    "parity that leaves nothing": Case(
        by_group, [PARITY], "cannot be told", (), ("hardly better than always class",),
        is_fragile=True,
    ),
    "recall beyond the budget": Case(
        noisy, [gc.fpr() <= 0.9, UPPER, gc.recall() >= 0.6], "cannot be met",
        (UPPER, gc.recall() >= 0.6),
        ("recall >= 0.6: at best 1.0000 alone",), "xgboost",
    ),
    "f1 on noise": Case(
        noisy, [gc.f1() >= 0.95], "cannot be met", (gc.f1() >= 0.95,), ("at best 0.",),
    ),
    "both rates of being right": Case(
        noisy, [gc.tpr() + gc.tnr() >= 1.9, gc.selection_rate() <= 0.9], "cannot be met",
        (gc.tpr() + gc.tnr() >= 1.9,), ("Relax this bound",),
    ),
    "precision of a class that is never predicted": Case(
        with_rare_class, [gc.gap(gc.precision(2), by="g") <= 0.1, gc.error_rate() <= 0.9],
        "cannot be told", (), ("undefined", "a class that is never predicted"),
        options={"n_estimators": 3},
    ),
    # Controls.
    "at the bound": Case(noisy, [gc.fnr() <= 0.25, gc.fpr() <= 0.3], "met"),
    "never binding": Case(three, [gc.error_rate() <= 0.9], "met", library="xgboost"),
    "never at work while the model still says no to all": Case(
        adult_sample, [gc.fpr() <= 0.5], "met", options={"n_estimators": 4},
    ),
    "tight and reachable on Adult": Case(
        adult_sample, [gc.gap(gc.selection_rate(), by="sex") <= 0.02], "met",
        options={"n_estimators": 60},
    ),
    "certified": Case(
        noisy, [gc.fpr() <= 0.3], "met", options={"guarantee": gc.HighProbability(fraction=0.3)},
    ),
    "precision that can be reached": Case(
        noisy, [gc.precision() >= 0.7], "met", library="xgboost",
    ),
}  # fmt: skip


def fitted(case, **options):
    """Fit one case, by four folds and all bins; the classifier and the warnings of this module."""
    own = {"n_estimators": 20, "max_depth": 3, "n_jobs": 1, "random_state": 0}
    own |= {"measure_on": "crossfit", "max_bin": 256 if case.library == "xgboost" else 255}
    own |= case.options | options
    if case.library == "lightgbm":
        classifier = gc.ConstrainedLGBMClassifier(constraints=case.rules, verbose=-1, **own)
    else:
        classifier = gc.ConstrainedXGBClassifier(constraints=case.rules, verbosity=0, **own)
    X, y, sensitive = case.data()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        classifier.fit(X, y, sensitive_features=sensitive or None)
    ours = (
        gc.InfeasibleConstraintsWarning,
        gc.FragileConstraintsWarning,
        gc.MissedConstraintsWarning,
    )
    return classifier, [w for w in caught if issubclass(w.category, ours)]


@BOTH
@pytest.mark.parametrize("flipped", [0, 3])
def test_few_losses_are_what_is_asked_for(library, flipped):
    """Of wins over losses few losses, or none, are no lack of rows."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 6, (1500, 3)).astype(float)
    y = (X[:, 0] + X[:, 1] > 4).astype(int)
    deployed = np.where(rng.random(y.size) < 0.1, 1 - y, y)
    y[:flipped] = 1 - y[:flipped]
    deployed[:flipped] = y[:flipped]
    rules = [gc.wins(over=deployed) / gc.losses(to=deployed) >= 2]
    case = Case(lambda: (X, y, {}), rules, "met", library=library)
    model, caught = fitted(case, n_estimators=40, on_infeasible="raise")
    report = model.constraint_report_.iloc[0]
    assert report.satisfied
    assert np.isinf(report.held_out) == (not flipped)
    assert model.feasibility_.status == "met"
    assert not caught


@BOTH
def test_rows_of_a_constant_in_a_quotient_count(library):
    """Odds of errors are taken over all rows, however few errors there are."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 3))
    y = (X[:, 0] > 0).astype(int)
    y[:3] = 1 - y[:3]
    rules = [
        gc.error_rate() / (1 - gc.error_rate()) <= 0.01,
        gc.error_rate() / (0.5 + gc.error_rate()) <= 0.02,
        (1 - gc.accuracy()) / (2 - gc.error_rate()) <= 0.005,
        gc.error_rate() / gc.accuracy() <= 0.01,
    ]
    case = Case(lambda: (X, y, {}), rules, "met", library=library)
    model, caught = fitted(case, n_estimators=20, on_infeasible="raise")
    assert model.constraint_report_["satisfied"].all()
    assert [rule.rows for rule in model.feasibility_.rules] == [900] * 4
    assert not caught


def test_few_rows_are_told_in_few_lines():
    """Of many small groups some are named, and merging is for groups only."""
    found = fitted(CASES["a group of few rows"])[0].feasibility_
    few = found.too_few_rows[0]

    def lines(*caught):
        return str(replace(found, too_few_rows=caught)).splitlines()

    many = lines(*(replace(few, group=f"g={i}", rows=i) for i in range(50)))
    assert len(many) <= 25
    assert "g=0: 0 rows, " in many[1]
    assert "g=1: 1 row, " in many[2]
    assert many[-2] == f"  and {50 - (len(many) - 3)} more"
    assert many[-1] == (
        "Give more rows, merge small groups (small_groups='merge'), or relax the bounds."
    )
    assert lines(replace(few, group=""))[-1] == "Give more rows, or relax the bounds."
    assert str(replace(found.rules[0], rows=1)).endswith(", of 1 row")
    assert str(replace(found.rules[0], rows=2)).endswith(", of 2 rows")


SLOW = "certified at a ruinous price, Credit"


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n == SLOW else n for n in CASES]
)
def test_scripted_cases_are_named(name):
    case = CASES[name]
    classifier, caught = fitted(case)
    found = classifier.feasibility_
    assert found.status == case.status, str(found)
    assert found.conflict == case.conflict, str(found)
    for words in case.says:
        assert words in str(found)
    assert found.is_fragile == case.is_fragile
    category = []
    if case.is_fragile or (case.status == "cannot be told" and not case.conflict):
        category = [gc.FragileConstraintsWarning]
    elif case.conflict:
        category = [gc.InfeasibleConstraintsWarning]
    assert [w.category for w in caught] == category
    assert found.status == max(classifier.constraint_report_["verdict"], key=KINDS.index)
    assert all(w.filename == __file__ for w in caught)  # not some line of this package
    for rule in found.rules:
        assert str(rule.constraint) in str(found) or rule.verdict.kind == "met"


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_raising_loses_nothing(library):
    case = Case(*[getattr(CASES["two contradict on noisy labels"], k) for k in ("data", "rules")],
                "cannot be met", library=library)  # fmt: skip
    warned, _ = fitted(case)
    X, y, _ = case.data()
    raising = type(warned)(**{**warned.get_params(), "on_infeasible": "raise"})
    with pytest.raises(
        gc.InfeasibleConstraintsError, match=r"fpr <= 0.01 and fnr <= 0.01"
    ) as raised:
        raising.fit(X, y)
    assert str(raised.value) == str(warned.feasibility_)
    assert raised.value.feasibility is raising.feasibility_
    assert dumps(raising.feasibility_) == dumps(warned.feasibility_)  # NaN included
    np.testing.assert_array_equal(raising.predict(X), warned.predict(X))
    assert raising.constraint_report_.equals(warned.constraint_report_)
    again = pickle.loads(pickle.dumps(raised.value))
    assert str(again) == str(raised.value)
    assert str(again.feasibility) == str(raising.feasibility_)


def test_the_returned_model_violates_least_and_is_reported():
    classifier, _ = fitted(CASES["two contradict on noisy labels"])
    found, report = classifier.feasibility_, classifier.constraint_report_
    assert [r.value for r in found.rules] == report["held_out"].tolist()
    assert [(r.low, r.high) for r in found.rules] == list(
        zip(report["low"], report["high"], strict=True)
    )
    # Errors and the largest violation count alike: less of one is not worth more of the other.
    merits = classifier.cost_report_["error"] + classifier.cost_report_.iloc[:, 1:].max(axis=1)
    assert merits["returned"] == pytest.approx(
        found.error + max(r.value for r in found.rules), abs=1e-12
    )
    assert merits["returned"] < merits["plain"]
    assert max(r.value for r in found.rules) < classifier.cost_report_.loc["plain"].iloc[1:].max()
    for rule in found.rules:
        assert rule.alone <= rule.constraint.bound  # each can be met
        assert rule.with_others > rule.constraint.bound


def test_what_is_not_certified_is_not_called_satisfied():
    """Rules that hold on the rows that refuse the certificate: these are too few."""
    classifier, _ = fitted(CASES["not certified"])
    report = classifier.constraint_report_
    assert set(report["verdict"]) <= {"cannot be told", "cannot be met", "missed"}
    loose = [gc.fnr() <= 0.9, gc.fpr() <= 0.9]
    classifier, caught = fitted(Case(frauds, loose, "met", (), (), "xgboost", HIGH))
    assert caught == []
    assert (classifier.constraint_report_["verdict"] == "met").all()


def test_doubts_do_not_raise():
    for name in ("a group of few rows", "parity that leaves nothing"):
        _, caught = fitted(CASES[name], on_infeasible="raise")
        assert [w.category for w in caught] == [gc.FragileConstraintsWarning]


def test_a_new_fit_forgets():
    classifier, _ = fitted(CASES["selection rates contradict"])
    X, y, _ = noisy()
    classifier.set_params(constraints=[]).fit(X, y)
    assert not hasattr(classifier, "feasibility_")


def test_fragile_rules_are_not_said_to_hold_where_one_is_missed():
    classifier, _ = fitted(CASES["parity that leaves nothing"])
    found = classifier.feasibility_
    (rule,) = found.rules
    assert rule.constraint.bound >= rule.value
    assert rule.low < rule.constraint.bound < rule.high
    assert found.message.startswith("Fragile: the constraints hold only by decisions")
    missed = replace(found, rules=(replace(rule, value=rule.constraint.bound + 0.001),))
    expected = "Fragile: the constraints are met to within sampling error only by decisions"
    assert missed.message.startswith(expected)


def test_fragile_is_relative():
    assert is_hardly_better(0.9, 0.998, 0.001, 10_000)
    assert not is_hardly_better(0.4, 0.998, 0.001, 10_000)
    assert not is_hardly_better(0.37, 0.45, 0.33, 10_000)  # most of a little is kept
    assert not is_hardly_better(0.24, 0.24, 0.23, 10_000)  # there was nothing to know
    assert not is_hardly_better(0.5, 0.5, 0.5 * FRAGILE_ERROR - 0.01, 20)  # 20 rows prove nothing


@pytest.mark.parametrize("library", [gc.ConstrainedLGBMClassifier, gc.ConstrainedXGBClassifier])
def test_constraints_at_the_end_of_their_range_are_assessed_like_others(library):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    options = {"n_estimators": 15, "n_jobs": 1, "learning_rate": 0.3}
    options |= {"verbose": -1} if "LGBM" in library.__name__ else {}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clf = library(constraints=[gc.fnr() <= 0.0], **options).fit(np.sign(X), X[:, 0] > 0.0)
    assert clf.constraint_report_[["train_satisfied", "satisfied"]].all(axis=None)
    y = X[:, 0] + rng.normal(size=400) > 0.0
    with pytest.warns(gc.InfeasibleConstraintsWarning, match="at best 0.0000 alone"):
        clf = library(constraints=[gc.fnr() <= 0.0, gc.fpr() <= 0.05], **options).fit(X, y)
    assert clf.feasibility_.conflict == tuple(clf.constraints)
