"""Rules that cannot be met, or cannot be judged, are named; those that can are left alone."""

from __future__ import annotations

import pickle
import warnings
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from helpers import BOTH
from references import best_shift

from gbm_constrained import (
    ConstrainedLGBMClassifier,
    ConstrainedXGBClassifier,
    FragileConstraintsWarning,
    InfeasibleConstraintsError,
    InfeasibleConstraintsWarning,
    MissedConstraintsWarning,
    accuracy,
    churn,
    class_error,
    each,
    error_rate,
    f1,
    fnr,
    fpr,
    gap,
    losses,
    precision,
    recall,
    selection_rate,
    tnr,
    tpr,
    wins,
)
from gbm_constrained.data.cells import Cells
from gbm_constrained.data.rows import Rows
from gbm_constrained.datasets import load_adult, load_credit
from gbm_constrained.decision.evaluation_set import EvaluationSet, ScoredRows
from gbm_constrained.decision.outcome import Outcome
from gbm_constrained.decision.prefix_choice import Prefixes, choose_prefix
from gbm_constrained.decision.refit_transfer import SIGNIFICANCE
from gbm_constrained.decision.rule import Scores
from gbm_constrained.evaluation.assessment import (
    FRAGILE_ERROR,
    ReturnedModel,
    _is_fragile,
    assess,
)
from gbm_constrained.evaluation.conflicts import DecisionPool, _smallest_cover
from gbm_constrained.evaluation.verdicts import gravest
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.statistics import p_values
from gbm_constrained.statistics.binomial import clopper_pearson
from gbm_constrained.statistics.counts import CellCounts
from gbm_constrained.statistics.p_values import row_p_values, rows_beyond
from gbm_constrained.training.note_json import dumps

# --- data ---------------------------------------------------------------------------------------


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


def by_group(n=3000):
    """The group is all that tells of the label, and a feature."""
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


# --- the cases ----------------------------------------------------------------------------------


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
HIGH = {"guarantee": "high_probability", "calibration_fraction": 0.5}
PARITY = gap(selection_rate(), by="g") <= 0.02
UPPER, LOWER = selection_rate() <= 0.1, selection_rate() >= 0.3
MASK = np.arange(2500) < 1250
HALVES = selection_rate(on=MASK) - selection_rate(on=~MASK) >= 0.4
CLASSES = tuple(class_error(k) <= 0.3 for k in range(3))

CASES = {
    "two contradict on noisy labels": Case(
        noisy, [fpr() <= 0.01, fnr() <= 0.01], "cannot be met", (fpr() <= 0.01, fnr() <= 0.01),
        ("fpr <= 0.01 and fnr <= 0.01 together",), "xgboost",
    ),
    "two contradict, two stand by": Case(
        noisy,
        [selection_rate() <= 0.95, fpr() <= 0.02, error_rate() <= 0.9, recall() >= 0.97],
        "cannot be met", (fpr() <= 0.02, recall() >= 0.97), ("while the other holds",),
    ),
    "three contradict, one stands by": Case(
        by_group, [selection_rate() <= 0.95, PARITY, recall() >= 0.75, fpr() <= 0.3],
        "cannot be met", (PARITY, recall() >= 0.75, fpr() <= 0.3),
    ),
    "three classes on noisy labels": Case(
        three, [error_rate() <= 0.9, *(class_error(k) <= 0.2 for k in range(3))],
        "cannot be met", (class_error(0) <= 0.2, class_error(1) <= 0.2), (), "xgboost",
    ),
    "three classes, of which any two can hold": Case(
        three, [*CLASSES, error_rate() <= 0.9], "cannot be met", CLASSES,
    ),
    "selection rates contradict": Case(
        noisy, [UPPER, LOWER, fpr() <= 0.9], "cannot be met", (UPPER, LOWER),
    ),
    "parity and opportunity and a floor of accuracy": Case(
        by_group, [gap(tpr(), by="g") <= 0.02, recall() >= 0.05, accuracy() >= 0.8],
        "cannot be met", (gap(tpr(), by="g") <= 0.02, accuracy() >= 0.8), (), "xgboost",
    ),
    "precision on noise": Case(
        noise, [precision() >= 0.99], "cannot be met", (precision() >= 0.99,),
        ("in name only", "at best"),
    ),
    "accuracy beyond the noise": Case(
        noisy, [accuracy() >= 0.95], "cannot be met", (accuracy() >= 0.95,), ("at best 0.7",),
        "xgboost",
    ),
    "halves at random that must differ": Case(
        noisy, [HALVES, fpr() <= 0.9], "cannot be met", (HALVES,), ("Relax this bound",),
    ),
    "no churn against a deployed model that guesses": Case(
        noisy, [churn(to=RANDOM) <= 0, recall() >= 0.3], "cannot be met",
        (churn(to=RANDOM) <= 0,),
    ),
    "a group of few rows": Case(
        with_rare_group, [each(fnr(), by="g") <= 0.4], "cannot be told", (), ("g=rare", "rows"),
    ),
    "a bound that so few rows cannot confirm": Case(
        lambda: noisy(250, 0.0), [fnr() <= 0.01], "cannot be told", (), ("fnr <= 0.01: ",),
        options={"max_depth": 2},
    ),
    "certified at a ruinous price": Case(
        frauds, [fnr() <= 0.05], "met", (), ("always class 1", "more rows to certify on"),
        options=HIGH, is_fragile=True,
    ),
    "certified at a ruinous price, Credit": Case(
        credit, [fnr() <= 0.05], "met", (), ("always class 1",),
        options={**HIGH, "n_estimators": 15, "max_depth": -1}, is_fragile=True,
    ),
    "not certified": Case(
        frauds, [fnr() <= 0.05, fpr() <= 0.05], "cannot be met", (fnr() <= 0.05, fpr() <= 0.05),
        ("Not certified", "p-value"), "xgboost", HIGH,
    ),
    "not certified, one rule": Case(
        by_group, [gap(fpr(), by="g") <= 0.01], "cannot be told", (gap(fpr(), by="g") <= 0.01,),
        ("Not certified", "Relax this bound or delta"), options=HIGH,
    ),
    "parity that leaves nothing": Case(
        by_group, [PARITY], "cannot be told", (), ("hardly better than always class",),
        is_fragile=True,
    ),
    "recall beyond the budget": Case(
        noisy, [fpr() <= 0.9, UPPER, recall() >= 0.6], "cannot be met", (UPPER, recall() >= 0.6),
        ("recall >= 0.6: at best 1.0000 alone",), "xgboost",
    ),
    "f1 on noise": Case(
        noisy, [f1() >= 0.95], "cannot be met", (f1() >= 0.95,), ("at best 0.",),
    ),
    "both rates of being right": Case(
        noisy, [tpr() + tnr() >= 1.9, selection_rate() <= 0.9], "cannot be met",
        (tpr() + tnr() >= 1.9,), ("Relax this bound",),
    ),
    # Controls.
    "at the bound": Case(noisy, [fnr() <= 0.25, fpr() <= 0.3], "met"),
    "never binding": Case(three, [error_rate() <= 0.9], "met", library="xgboost"),
    "never at work while the model still says no to all": Case(
        adult_sample, [fpr() <= 0.5], "met", options={"n_estimators": 4},
    ),
    "tight and reachable on Adult": Case(
        adult_sample, [gap(selection_rate(), by="sex") <= 0.02], "met",
        options={"n_estimators": 60},
    ),
    "certified": Case(
        noisy, [fpr() <= 0.3], "met", options={**HIGH, "calibration_fraction": 0.3},
    ),
    "precision that can be reached": Case(
        noisy, [precision() >= 0.7], "met", library="xgboost",
    ),
}  # fmt: skip


def fitted(case, **options):
    """Fit one case; the classifier and the warnings of this module."""
    own = {"n_estimators": 20, "max_depth": 3, "n_jobs": 1, "random_state": 0}
    own |= case.options | options
    if case.library == "lightgbm":
        classifier = ConstrainedLGBMClassifier(constraints=case.rules, verbose=-1, **own)
    else:
        classifier = ConstrainedXGBClassifier(constraints=case.rules, verbosity=0, **own)
    X, y, sensitive = case.data()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        classifier.fit(X, y, sensitive_features=sensitive or None)
    ours = InfeasibleConstraintsWarning, FragileConstraintsWarning, MissedConstraintsWarning
    return classifier, [w for w in told if issubclass(w.category, ours)]


@BOTH
@pytest.mark.parametrize("flipped", [0, 3])
def test_few_losses_are_what_is_asked_for(library, flipped):
    """Of wins over losses few losses, or none, are no lack of rows to tell by."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 6, (1500, 3)).astype(float)
    y = (X[:, 0] + X[:, 1] > 4).astype(int)
    deployed = np.where(rng.random(y.size) < 0.1, 1 - y, y)
    y[:flipped] = 1 - y[:flipped]
    deployed[:flipped] = y[:flipped]
    rules = [wins(over=deployed) / losses(to=deployed) >= 2]
    case = Case(lambda: (X, y, {}), rules, "met", library=library)
    model, told = fitted(case, n_estimators=40, on_infeasible="raise")
    report = model.constraint_report_.iloc[0]
    assert report.satisfied
    assert np.isinf(report.held_out) == (not flipped)
    assert model.feasibility_.status == "met"
    assert not told


@BOTH
def test_rows_of_a_constant_in_a_quotient_count(library):
    """Odds of errors are taken over all rows, however few errors there are."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 3))
    y = (X[:, 0] > 0).astype(int)
    y[:3] = 1 - y[:3]
    rules = [
        error_rate() / (1 - error_rate()) <= 0.01,
        error_rate() / (0.5 + error_rate()) <= 0.02,
        (1 - accuracy()) / (2 - error_rate()) <= 0.005,
        error_rate() / accuracy() <= 0.01,
    ]
    case = Case(lambda: (X, y, {}), rules, "met", library=library)
    model, told = fitted(case, n_estimators=20, on_infeasible="raise")
    assert model.constraint_report_["satisfied"].all()
    assert [rule.rows for rule in model.feasibility_.rules] == [900] * 4
    assert not told


def test_few_rows_are_told_in_few_lines():
    """Of many small groups some are named, and merging is for groups only."""
    found = fitted(CASES["a group of few rows"])[0].feasibility_
    few = found.too_few_rows[0]

    def lines(*told):
        return str(replace(found, too_few_rows=told)).splitlines()

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


@pytest.mark.parametrize("name", CASES)
def test_scripted_cases_are_named(name):
    case = CASES[name]
    classifier, told = fitted(case)
    found = classifier.feasibility_
    assert found.status == case.status, str(found)
    assert found.conflict == case.conflict, str(found)
    for words in case.says:
        assert words in str(found)
    assert found.is_fragile == case.is_fragile
    category = []
    if case.is_fragile or (case.status == "cannot be told" and not case.conflict):
        category = [FragileConstraintsWarning]
    elif case.conflict:
        category = [InfeasibleConstraintsWarning]
    assert [w.category for w in told] == category
    assert found.status == gravest(classifier.constraint_report_["verdict"])
    assert all(w.filename == __file__ for w in told)  # not some line of this package
    for rule in found.rules:
        assert str(rule.constraint) in str(found) or rule.verdict.kind == "met"


# --- what is said and left behind ---------------------------------------------------------------


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_raising_loses_nothing(library):
    case = Case(*[getattr(CASES["two contradict on noisy labels"], k) for k in ("data", "rules")],
                "cannot be met", library=library)  # fmt: skip
    warned, _ = fitted(case)
    X, y, _ = case.data()
    raising = type(warned)(**{**warned.get_params(), "on_infeasible": "raise"})
    with pytest.raises(InfeasibleConstraintsError, match=r"fpr <= 0.01 and fnr <= 0.01") as raised:
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
    # The two violations are about equal: to lower the larger one is to raise the other.
    assert abs(found.rules[0].value - found.rules[1].value) < 0.05
    for rule in found.rules:
        assert rule.alone <= rule.constraint.bound  # each can be met
        assert rule.with_others > rule.constraint.bound


def test_what_is_not_certified_is_not_called_satisfied():
    """Rules that hold on the rows that refuse the certificate: these are too few to tell."""
    classifier, _ = fitted(CASES["not certified"])
    report = classifier.constraint_report_
    assert set(report["verdict"]) <= {"cannot be told", "cannot be met", "missed"}
    loose = [fnr() <= 0.9, fpr() <= 0.9]
    classifier, told = fitted(Case(frauds, loose, "met", (), (), "xgboost", HIGH))
    assert told == []
    assert (classifier.constraint_report_["verdict"] == "met").all()


def test_doubts_do_not_raise():
    for name in ("a group of few rows", "parity that leaves nothing"):
        _, told = fitted(CASES[name], on_infeasible="raise")
        assert [w.category for w in told] == [FragileConstraintsWarning]


def test_training_rows_have_a_verdict_and_find_no_conflict():
    classifier, told = fitted(CASES["selection rates contradict"], measure_on="train")
    found = classifier.feasibility_
    assert (found.status, found.source, found.conflict) == ("missed", "training rows", ())
    assert "Training rows are optimistic" in found.message
    assert [w.category for w in told] == [MissedConstraintsWarning]


def test_a_new_fit_forgets():
    classifier, _ = fitted(CASES["selection rates contradict"])
    X, y, _ = noisy()
    classifier.set_params(constraints=[]).fit(X, y)
    assert not hasattr(classifier, "feasibility_")


# --- the parts ----------------------------------------------------------------------------------


def unseen(rules, y, sensitive=None, classes=None, weight=None):
    columns = {name: np.asarray(v) for name, v in (sensitive or {}).items()}
    classes = np.unique(y) if classes is None else classes
    rows = Rows(y, classes, weight, columns)
    return EvaluationSet(*compile_constraints(rules, rows), "test")


def test_conflicts_are_minimal_among_all_decisions():
    """Against trying out every threshold and every subset of the rules."""
    rng = np.random.default_rng(5)
    seen = set()
    for trial in range(25):
        y = rng.integers(0, 2, 800)
        margin = y + rng.normal(size=800) * rng.uniform(0.5, 3.0)
        bounds = rng.uniform(0.02, 0.5, 4)
        rules = [fpr() <= bounds[0], fnr() <= bounds[1], selection_rate() >= bounds[2],
                 error_rate() <= bounds[3]]  # fmt: skip
        rows = unseen(rules, y)

        scored = ScoredRows(rows, lambda rounds, margin=margin: margin)
        found = choose_prefix(scored, Prefixes(1, 1))
        conflict = DecisionPool(scored, [1], found).conflict()
        seen.add(len(conflict))
        everywhere = CellCounts.at_thresholds(rows.cells, margin, np.unique([*margin, -99.0]))
        reached = ~rows_beyond(rows.compiled, everywhere, 0.025)

        def can_meet(subset, reached=reached):
            return bool(reached[:, list(subset)].all(axis=1).any())

        assert can_meet(range(4)) == (conflict == ()), trial
        if conflict:
            assert not can_meet(conflict)
            assert all(can_meet(set(conflict) - {j}) for j in conflict)
    assert seen >= {0, 1, 2}


class _Listed(DecisionPool):
    """A pool that knows the first of some decisions, and whose search looks through them all."""

    def __init__(self, decisions, known):
        self.decisions, self.n_constraints, self.left = decisions, decisions.shape[1], 1000
        self.reached = decisions[:known]

    def _can_meet(self, subset):
        met = self.decisions[:, list(subset)].all(axis=1)
        self.reached = np.concatenate([self.reached, self.decisions[met][:1]])
        return bool(met.any())


def smallest_unmet(decisions):
    """Size of the smallest set of rules that no decision meets, by trying all; 0 without one."""
    columns = range(decisions.shape[1])
    for size in columns:
        for subset in combinations(columns, size + 1):
            if not decisions[:, list(subset)].all(axis=1).any():
                return size + 1
    return 0


def test_the_smallest_conflict_is_found_among_many_rules():
    """Against trying out all subsets, up to conflicts of five rules."""
    rng = np.random.default_rng(3)
    sizes = set()
    for share in np.repeat([0.05, 0.3, 0.5, 0.7, 0.85, 0.95], 25):
        decisions = rng.random((60, 8)) < share
        if rng.random() < 0.2:
            decisions[-1] = True
        smallest = smallest_unmet(decisions)
        conflict = _Listed(decisions, known=5).conflict()
        assert len(conflict) == smallest
        assert smallest == 0 or not decisions[:, list(conflict)].all(axis=1).any()
        # The cover alone: the fewest rules of which each of these decisions misses one.
        if smallest:
            assert len(_smallest_cover(~decisions)) == smallest
        sizes.add(smallest)
    assert sizes >= {0, 1, 2, 3, 4, 5}


def test_a_conflict_that_takes_too_long_to_shrink_is_still_one():
    """Out of steps, rules are dropped one by one; out of searches, none is spared."""
    decisions = np.random.default_rng(4).random((300, 20)) < 0.8
    decisions = decisions[~decisions.all(axis=1)]
    cover = _smallest_cover(~decisions, most_steps=3)
    assert not decisions[:, list(cover)].all(axis=1).any()
    for j in cover:
        assert decisions[:, [i for i in cover if i != j]].all(axis=1).any()
    pool = _Listed(decisions, known=5)
    pool.left = 0
    missed = np.flatnonzero(~decisions[:5].all(axis=0))
    assert pool.conflict() == tuple(missed)


def test_what_decisions_reach_at_a_price_is_no_conflict():
    """Biases that meet both rules to within sampling error exist, and cost too many errors.

    Random biases hardly ever find them, and a search finds them at once.
    """
    rng = np.random.default_rng(1)
    y = rng.choice(3, 4000, p=[0.3, 0.6, 0.1])
    margin = rng.normal(size=(4000, 3)) * 0.5 + np.eye(3)[y] * 0.8 + [0.0, 2.0, 0.0]
    rows = unseen([class_error(0) <= 0.137, class_error(2) <= 0.092], y)

    scored = ScoredRows(rows, lambda rounds: margin)
    choice = choose_prefix(scored, Prefixes(1, 1))
    at_a_price = best_shift(margin, rows.cells, rows.compiled)
    decisions = [(margin + shift).argmax(axis=1) for shift in (choice.shift, at_a_price.value)]
    beyond = [rows_beyond(rows.compiled, rows.counts(d), SIGNIFICANCE) for d in decisions]
    assert beyond[0].any()
    assert not beyond[1].any()
    assert at_a_price.violation > 0.0, "no price was to be paid"
    assert DecisionPool(scored, [1], choice).conflict() == ()
    outcome = Outcome.of(rows, Scores.of(margin, choice.shift, beside=False))
    found = assess(scored, Prefixes(1, 1), ReturnedModel(choice, rows, decisions[0], outcome))
    assert found.status == "missed"
    assert [rule.constraint for rule in found.left] == [
        rows.compiled.constraints[j] for j in np.flatnonzero(beyond[0])
    ]
    assert "Violations are left that cost more errors to mend than they are worth" in found.message


def test_rows_beyond_doubt_are_the_opposite_of_certificates():
    rng = np.random.default_rng(6)
    n = 600
    y, g = rng.integers(0, 2, n), rng.integers(0, 2, n).astype(str)
    decided = np.where(rng.random(n) < 0.7, y, 1 - y)
    skewed = (rng.random(n) < np.where(g == "1", 0.8, 0.2)).astype(int)
    sensitive = {"g": g}
    undecided = open_to_limits = 0
    for bound in np.linspace(0.02, 0.98, 97):
        high = unseen([fnr() <= bound, precision() <= bound], y, sensitive)
        low = unseen([fnr() >= bound, precision() >= bound], y, sensitive)
        counts = CellCounts.of(high.cells, decided)
        opposite = row_p_values(low.compiled, CellCounts.of(low.cells, decided))
        np.testing.assert_array_equal(rows_beyond(high.compiled, counts, 0.025), opposite <= 0.025)
        undecided += ((opposite > 0.025) & (opposite <= 0.05)).sum()
        # Two groups: the exact test that one of them is higher by as much, either way round.
        apart = unseen([gap(selection_rate(), by="g") <= bound], y, sensitive)
        counts = CellCounts.of(apart.cells, skewed)
        first, second = (selection_rate(on={"g": k}) for k in "01")
        signed = unseen([first - second >= bound, second - first >= bound], y, sensitive)
        opposite = row_p_values(signed.compiled, CellCounts.of(signed.cells, skewed))
        found = rows_beyond(apart.compiled, counts, 0.025)
        assert sorted(found) == sorted(opposite <= 0.025)
        ends = [clopper_pearson(skewed[g == k].sum(), (g == k).sum(), 0.975) for k in "01"]
        open_to_limits += found.any() and ends[1][0] - ends[0][1] <= bound
    assert undecided, "no p-value is near the level, so that nothing is proved"
    assert open_to_limits, "limits of each group tell as much, so that nothing is proved"


def test_two_rates_are_beyond_doubt_as_their_exact_test_says():
    """Whatever is counted: what limits settle before it, one way or the other, it agrees with."""
    wrong = np.arange(31)
    weight = np.zeros((31 * 31, 2, 2))
    weight[:, 0, 1], weight[:, 1, 0] = np.repeat(wrong, 31), np.tile(wrong, 31)
    weight[:, 0, 0], weight[:, 1, 1] = 30 - weight[:, 0, 1], 30 - weight[:, 1, 0]
    counts = CellCounts(weight, weight, weight)
    for bound in (0.3, 0.9):
        rows, opposite = (
            unseen([rule], np.repeat([0, 1], 30))
            for rule in (fpr() + fnr() <= bound, fpr() + fnr() >= bound)
        )
        p = row_p_values(opposite.compiled, counts)
        for level in (0.025, 1e-4):
            np.testing.assert_array_equal(rows_beyond(rows.compiled, counts, level), p <= level)


def test_of_the_pairs_of_groups_the_furthest_is_tested(monkeypatch):
    """No more than one of each decision, and none where limits refute the gap."""
    rng = np.random.default_rng(4)
    y, g = rng.integers(0, 2, 1200), rng.integers(0, 4, 1200).astype(str)
    rows = unseen([gap(selection_rate(), by="g") <= 0.02, fnr() <= 0.4], y, {"g": g})
    margin = rng.normal(size=1200) + 0.35 * (g == "0") + 0.3 * (g == "1")
    counts = CellCounts.at_thresholds(rows.cells, margin, np.linspace(-2.0, 2.0, 81))
    of_gap = rows.compiled.owner == 0
    asked = []
    exact = p_values.sum_p_value
    monkeypatch.setattr(p_values, "sum_p_value", lambda *of: asked.append(of) or exact(*of))
    every = rows_beyond(rows.compiled, counts, 0.002)
    n_every = len(asked)
    asked.clear()
    levels = np.full(len(rows.compiled), 0.002)
    one = rows_beyond(rows.compiled, counts, levels, one_test_each=True)
    np.testing.assert_array_equal(one[:, of_gap].any(axis=1), every[:, of_gap].any(axis=1))
    np.testing.assert_array_equal(one[:, ~of_gap], every[:, ~of_gap])
    monkeypatch.setattr(p_values, "_are_two_binomials", lambda *of: False)
    by_limits = rows_beyond(rows.compiled, counts, 0.002)[:, of_gap].any(axis=1)
    assert 0 < len(asked) <= (~by_limits).sum()
    assert len(asked) < n_every
    assert by_limits.any()
    assert (one[:, of_gap].any(axis=1) & ~by_limits).any()


def test_a_gap_of_many_groups_is_refuted_at_a_share_of_the_level():
    """Any of its 30 rows refutes it: each is doubted at a thirtieth of the level."""
    rng = np.random.default_rng(2)
    y, g = rng.integers(0, 2, 900), rng.integers(0, 6, 900).astype(str)
    rows = unseen([gap(selection_rate(), by="g") <= 0.02, fnr() <= 0.4], y, {"g": g})
    margin = rng.normal(size=900) + 0.5 * (g == "0")
    scored = ScoredRows(rows, lambda rounds: margin)
    pool = DecisionPool(scored, [1], choose_prefix(scored, Prefixes(1, 1)))
    counts = CellCounts.at_thresholds(rows.cells, margin, np.linspace(-2.0, 2.0, 81))
    pool._add(counts)
    of_gap = rows.compiled.owner == 0
    assert of_gap.sum() == 30
    expected, too_easily = (
        ~rows_beyond(rows.compiled, counts, level)[:, of_gap].any(axis=1)
        for level in (0.025 / 30, 0.025)
    )
    assert (expected != too_easily).any()
    np.testing.assert_array_equal(pool.reached[-81:, 0], expected)
    of_rate = ~rows_beyond(rows.compiled, counts, 0.025)[:, ~of_gap][:, 0]
    np.testing.assert_array_equal(pool.reached[-81:, 1], of_rate)


@pytest.mark.parametrize("weighted", [False, True])
def test_rules_that_hold_are_seldom_doubted(weighted):
    """At their bound in the population, rows are beyond doubt at the level at most."""
    rng = np.random.default_rng(8)
    n, repeats, doubted = 400, 200, np.zeros(4)
    for _ in range(repeats):
        y, g = rng.integers(0, 2, n), rng.integers(0, 2, n)
        wrong = rng.random(n) < np.where(g == 1, 0.3, 0.2)
        decided = np.where(wrong, 1 - y, y)
        rules = [error_rate(on={"g": "1"}) <= 0.3, gap(error_rate(), by="g") <= 0.1,
                 precision(on={"g": "0"}) >= 0.8]  # fmt: skip
        weight = rng.uniform(0.5, 1.5, n) if weighted else None
        rows = unseen(rules, y, {"g": g.astype(str)}, weight=weight)
        beyond = rows_beyond(rows.compiled, CellCounts.of(rows.cells, decided), 0.025)
        doubted += beyond
    assert (doubted / repeats <= 0.025 + 2.5 * np.sqrt(0.025 / repeats)).all()


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
    assert _is_fragile(0.9, 0.998, 0.001, 10_000)
    assert not _is_fragile(0.4, 0.998, 0.001, 10_000)
    assert not _is_fragile(0.37, 0.45, 0.33, 10_000)  # most of a little is kept
    assert not _is_fragile(0.24, 0.24, 0.23, 10_000)  # there was nothing to know
    assert not _is_fragile(0.5, 0.5, 0.5 * FRAGILE_ERROR - 0.01, 20)  # nor to tell


def test_cells_without_rows_are_not_beyond_doubt():
    rows = unseen([fpr(on={"g": "x"}) <= 0.1], np.array([0, 1, 0, 1]), {"g": list("xxyy")})
    nobody = rows.cells.take(np.array([2, 3]))
    assert isinstance(nobody, Cells)
    assert not rows_beyond(rows.compiled, CellCounts.of(nobody, np.ones(2, int)), 0.025).any()


@pytest.mark.parametrize(
    "rule", [fnr() <= 0.0, tpr() >= 1.0, accuracy() >= 1.0, tpr() + tnr() >= 2.0]
)
def test_rules_at_the_end_of_their_range_are_broken_by_an_error_and_not_without(rule):
    y = np.repeat([0, 1], 200)
    rows = unseen([rule], y)
    for wrong in (0, 1, 150):  # of 200 rows of class 1
        decided = np.where(np.arange(400) < 200 + wrong, 0, 1)
        found = rows_beyond(rows.compiled, CellCounts.of(rows.cells, decided), 0.025)
        assert found.tolist() == [wrong > 0]


@pytest.mark.parametrize("library", [ConstrainedLGBMClassifier, ConstrainedXGBClassifier])
def test_rules_at_the_end_of_their_range_are_judged_like_others(library):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    options = {"n_estimators": 15, "n_jobs": 1, "learning_rate": 0.3}
    options |= {"verbose": -1} if "LGBM" in library.__name__ else {}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clf = library(constraints=[fnr() <= 0.0], **options).fit(np.sign(X), X[:, 0] > 0.0)
    assert clf.constraint_report_[["train_satisfied", "satisfied"]].all(axis=None)
    y = X[:, 0] + rng.normal(size=400) > 0.0
    with pytest.warns(InfeasibleConstraintsWarning, match="at best 0.0000 alone"):
        clf = library(constraints=[fnr() <= 0.0, fpr() <= 0.05], **options).fit(X, y)
    assert clf.feasibility_.conflict == tuple(clf.constraints)
