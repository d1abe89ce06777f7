"""Fits under constraints with priorities: bounds, reports, guarantees, and refusals."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from helpers import CLASSIFIERS, EITHER, margins_of
from scipy import stats
from scipy.optimize import minimize_scalar
from scipy.special import expit
from sklearn.metrics import log_loss, roc_auc_score, roc_curve
from small_fits import make

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.decision.choose import VIOLATION_PRICE
from gbm_constrained.fit.cross_fit import DualController, find_attainable_excess
from gbm_constrained.metrics import BlackBox
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.statistics.order_statistics import minimum_rows

BUDGET, RECALL = gc.selection_rate() <= 0.08, gc.recall() >= 0.7
BUDGET_FIRST = [BUDGET, RECALL.with_priority(2)]
RECALL_FIRST = [BUDGET.with_priority(2), RECALL]


def draw(n, seed=0):
    """Rows of two classes that overlap, a quarter of them of the second one."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    score = X[:, 0] + 0.7 * X[:, 1] * (X[:, 2] > 0) + 0.8 * rng.normal(size=n)
    return X, (score > 0.95).astype(int)


def fit_quietly(model, *given, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return model.fit(*given, **options)


def rates(model, X, y):
    selected = model.predict(X) == 1
    return selected.mean(), selected[y == 1].mean()


def best_recall(model, X, y, share):
    """Recall of the best threshold that selects a share of the rows."""
    order = np.argsort(-model.predict_proba(X)[:, 1], kind="stable")
    return y[order[: int(share * y.size)]].sum() / y.sum()


# Bounds of multipliers.


def test_bounds_of_rules_that_follow_are_what_the_best_threshold_reaches():
    """Of ten rows, one may be selected, and three are of the class."""
    y = np.array([0, 0, 0, 0, 0, 0, 1, 0, 1, 1])
    rules = [gc.selection_rate() <= 0.1, (gc.recall() >= 0.9).with_priority(2)]
    cells, compiled = compile_constraints(rules, Rows(y, np.array([0, 1])))
    excess = find_attainable_excess(np.arange(10.0), cells, compiled)
    np.testing.assert_allclose(excess, [0.0, 0.9 - 1 / 3], rtol=0, atol=1e-12)


def test_rules_of_the_first_priority_keep_bounds_that_they_cannot_meet():
    y = np.array([0, 1, 0, 1])
    rules = [gc.fnr() <= 0.0, gc.fpr() <= 0.0, (gc.selection_rate() <= 0.1).with_priority(2)]
    cells, compiled = compile_constraints(rules, Rows(y, np.array([0, 1])))
    excess = find_attainable_excess(np.array([2.0, 1.0, 2.5, 1.5]), cells, compiled)
    np.testing.assert_array_equal(excess[:2], 0.0)
    assert excess[2] >= 0.0


def test_shifts_are_searched_in_iterations_that_are_powers_of_two():
    y, rng = np.arange(60) % 2, np.random.default_rng(0)
    cells, compiled = compile_constraints(BUDGET_FIRST, Rows(y, np.array([0, 1])))
    solver = SimpleNamespace(
        lagrangian=SimpleNamespace(cells=cells, at=lambda margin: margin, constraints=compiled),
        multipliers=None,
        history=[None],
    )
    controller, found = DualController(solver, attainable=compiled), []
    solver.begin_iteration = lambda state: found.append(solver.bounds[1])
    for _ in range(9):
        solver.bounds = np.zeros(2)
        controller.observe(rng.normal(size=60))
    changes = [k + 1 for k in range(1, 9) if found[k] != found[k - 1]]
    assert set(changes) <= {2, 4, 8}
    assert len(changes) > 1


@EITHER
@pytest.mark.usefixtures("one_pass")
def test_multipliers_of_what_is_given_up_come_to_rest(library):
    """Without priorities both multipliers of a contradiction grow to the end."""
    X, y = draw(3000)
    last = {}
    for name, rules in {"none": [BUDGET, RECALL], "some": BUDGET_FIRST}.items():
        model = fit_quietly(make(library, rules, n_estimators=60, solver="abpp"), X, y)
        moved = model.history_.filter(like="multiplier").to_numpy()
        last[name] = moved[-1], moved[len(moved) // 2]
    assert last["none"][0].min() > 0.1
    assert (last["none"][0] > last["none"][1]).all()
    assert last["some"][0][1] < 0.1 * last["none"][0][1]
    assert last["some"][0][0] < last["none"][0][0]


# Decisions and reports.


@EITHER
def test_what_comes_first_holds_on_new_rows_and_what_follows_is_as_good_as_that_allows(library):
    X, y = draw(4000)
    others, labels = draw(40_000, 100)
    model = fit_quietly(make(library, BUDGET_FIRST, n_estimators=30), X, y)
    selected, recall = rates(model, others, labels)
    # The model is one of 4,000 rows: chance is that of the threshold they chose.
    assert selected <= 0.08 + 2 * np.sqrt(0.08 * 0.92 / 4000)
    assert recall == pytest.approx(best_recall(model, others, labels, selected), abs=1e-3)
    assert recall >= best_recall(model, others, labels, 0.08) - 0.06

    model = fit_quietly(make(library, RECALL_FIRST, n_estimators=30), X, y)
    selected, recall = rates(model, others, labels)
    assert recall >= 0.7 - 2 * np.sqrt(0.7 * 0.3 / y.sum())
    assert selected > 0.15


@EITHER
def test_a_gap_that_comes_first_is_not_closed_by_deciding_all_rows_alike(library):
    X, y = draw(3000)
    group = np.where(X[:, 0] + np.random.default_rng(3).normal(size=y.size) > 0, "a", "b")
    rules = [gc.gap(gc.selection_rate(), by="g") <= 0.01, RECALL.with_priority(2)]
    model = fit_quietly(
        make(library, rules, n_estimators=30), X, y, sensitive_features={"g": group}
    )
    assert 0.02 < rates(model, X, y)[0] < 0.9
    gap = abs(np.subtract(*[(model.predict(X[group == g]) == 1).mean() for g in "ab"]))
    assert gap < 0.1


@EITHER
def test_reports_say_what_is_given_up_for_which(library):
    X, y = draw(3000)
    model = make(library, [*BUDGET_FIRST, (gc.fpr() <= 0.9).with_priority(3)], n_estimators=30)
    with pytest.warns(
        gc.InfeasibleConstraintsWarning,
        match=r"gives up recall >= 0\.7 for selection_rate <= 0\.08",
    ):
        model.fit(X, y)
    report, found = model.constraint_report_, model.feasibility_
    assert report["constraint"].tolist() == [
        "selection_rate <= 0.08", "recall >= 0.7", "fpr <= 0.9",
    ]  # fmt: skip
    assert report["priority"].tolist() == [1, 2, 3]
    assert report["given_up_for"].tolist() == ["", "selection_rate <= 0.08", ""]
    assert report["verdict"].tolist() == ["met", "cannot be met", "met"]
    assert found.conflict == tuple(BUDGET_FIRST)
    assert [rule.constraint for rule in found.given_up] == [BUDGET_FIRST[1]]
    assert found.given_up[0].given_up_for == (BUDGET,)
    assert str(found.rules[1].verdict) == "given up for selection_rate <= 0.08"
    assert found.status == "cannot be met"
    held_out = report["held_out"]
    assert held_out[0] <= 0.08
    assert held_out[1] < 0.7


@EITHER
def test_one_priority_for_all_is_none(library):
    X, y = draw(1500)
    rules = [BUDGET, RECALL]
    plain = fit_quietly(make(library, rules, solver="abpp"), X, y)
    alike = [rule.with_priority(2) for rule in rules]
    model = fit_quietly(make(library, alike, solver="abpp"), X, y)
    np.testing.assert_array_equal(model.predict_proba(X), plain.predict_proba(X))
    np.testing.assert_array_equal(model.multipliers_, plain.multipliers_)
    assert model.constraint_report_.columns.equals(plain.constraint_report_.columns)
    assert str(model.feasibility_) == str(plain.feasibility_)


@EITHER
def test_priorities_that_can_all_be_met_change_no_decision(library):
    X, y = draw(2000)
    rules = [gc.fnr() <= 0.3, gc.selection_rate() <= 0.6]
    plain = fit_quietly(make(library, rules, solver="threshold"), X, y)
    given = [rules[0].with_priority(2), rules[1]]
    model = fit_quietly(make(library, given, solver="threshold"), X, y)
    assert (plain.constraint_report_["verdict"] == "met").all()
    np.testing.assert_array_equal(model.predict_proba(X), plain.predict_proba(X))
    assert (model.constraint_report_["given_up_for"] == "").all()


def criterion_by_hand(scores, y, largest_fpr, floor):
    """Log loss of the best shift, plus the price of the recall that is missed at some FPR."""
    fpr, recall, _ = roc_curve(y, scores, drop_intermediate=False)
    best = recall[fpr <= largest_fpr + 1e-9].max()
    told = floor - best - np.sqrt(best * (1 - best) / y.sum())
    shifted = minimize_scalar(
        lambda shift: log_loss(y, expit(scores + shift)), bounds=(-3, 3), method="bounded"
    )
    return shifted.fun + VIOLATION_PRICE * told


@EITHER
def test_early_stopping_looks_at_what_comes_first(library, conclusions):
    """Much recall is missed under the threshold that meets the bound, and is given up."""
    X, y = draw(2000)
    others, labels = draw(2000, 1)
    stopping = {"xgboost": "early_stopping_rounds", "lightgbm": "early_stopping_round"}[library]
    options = {stopping: 3, "early_stopping_on": "constraints", "n_estimators": 20}
    rules = [gc.fpr() <= 0.2, (gc.recall() >= 0.999).with_priority(2)]
    model = fit_quietly(
        make(library, rules, solver="threshold", iterate="last", **options),
        X, y, eval_set=[(others, labels)],
    )  # fmt: skip
    merits = conclusions.pop().fit.merits
    kept = model.best_iteration + 1 if library == "xgboost" else model.best_iteration_
    assert kept > 6
    for rounds in range(1, kept + 1):
        criterion, violation = merits[rounds]
        # The search for thresholds between rounds is coarse, as the first trees are.
        assert -0.04 <= violation <= 1e-9
        expected = criterion_by_hand(
            margins_of(model, others, rounds), labels, 0.2 + violation, 0.999
        )
        assert criterion == pytest.approx(expected, abs=1e-4)


@EITHER
def test_priorities_are_saved_with_a_model(library, tmp_path):
    X, y = draw(1200)
    path = tmp_path / ("model.ubj" if library == "xgboost" else "model.txt")
    model = fit_quietly(make(library, BUDGET_FIRST), X, y)
    model.save_model(path)
    loaded = CLASSIFIERS[library]()
    loaded.load_model(path)
    assert loaded.constraints == BUDGET_FIRST
    assert str(loaded.feasibility_) == str(model.feasibility_)
    assert loaded.feasibility_.given_up[0].given_up_for == (BUDGET,)
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


@EITHER
def test_several_classes_and_a_data_set_have_priorities(library):
    X, y = draw(2500)
    several = np.where((y == 0) & (X[:, 3] > 0.8), 2, y)
    rules = [gc.selection_rate(1) <= 0.05, (gc.class_error(1) <= 0.2).with_priority(2)]
    model = fit_quietly(make(library, rules, n_estimators=10), X, several)
    assert model.constraint_report_["held_out"][0] <= 0.05
    assert model.constraint_report_["given_up_for"][1] == str(rules[0])

    today = draw(1500, 7)[0] + 0.3
    rules = [gc.selection_rate(on=gc.dataset("today")) <= 0.08, RECALL.with_priority(2)]
    model = fit_quietly(make(library, rules, n_estimators=10), X, y, datasets={"today": today})
    assert model.constraint_report_["held_out"][0] <= 0.08
    assert model.constraint_report_["given_up_for"][1] == str(rules[0])


# Guarantees of what comes first, beside constraints that follow as well as they can.

GUARANTEED = [gc.selection_rate() <= 0.1, (gc.recall() >= 0.7).with_priority(2)]


def draw_with_group(n, seed=0):
    """Rows as of :func:`draw`, and a group of each."""
    rng = np.random.default_rng(seed)
    X, y = draw(n, rng)
    group = X[:, 0] + rng.normal(size=n) > 0
    return X, y, {"g": np.where(group, "a", "b")}


def fit_certified(library, rules, rows, **options):
    X, y, groups = rows
    options = {"guarantee": gc.HighProbability(delta=0.1), "n_estimators": 20, **options}
    return fit_quietly(make(library, rules, **options), X, y, sensitive_features=groups)


@EITHER
@pytest.mark.parametrize("guarantee", [gc.HighProbability(0.1), gc.Expected()], ids=repr)
def test_what_comes_first_is_guaranteed_and_what_follows_is_as_good_as_that_allows(
    library, guarantee
):
    """The threshold is that of the first constraint alone: the recall is out of reach."""
    model = fit_certified(
        library, GUARANTEED, draw_with_group(2500), guarantee=guarantee, measure_on="crossfit",
        max_bin=256 if library == "xgboost" else 255,
    )  # fmt: skip
    report, found = model.constraint_report_, model.feasibility_
    assert report["rows"].tolist() == ["certification"] * 2
    assert report["verdict"].tolist() == ["met", "cannot be met"]
    assert report["given_up_for"].tolist() == ["", str(GUARANTEED[0])]
    assert "Not certified" not in str(found)
    n, k = 500, round(500 * report["held_out"][0])
    if isinstance(guarantee, gc.HighProbability):
        assert found.p_value <= found.level == 0.1
        assert found.p_value == pytest.approx(stats.binom.cdf(k, n, 0.1))
        assert stats.binom.cdf(k + 1, n, 0.1) > 0.1  # one more row would be too many
    else:
        assert k <= int(0.1 * (n + 1)) - 1
    others, labels, _ = draw_with_group(20_000, 1)
    selected = model.predict(others).mean()
    assert 0.06 <= selected <= 0.1
    recall = model.predict(others)[labels == 1].mean()
    assert recall == pytest.approx(best_recall(model, others, labels, selected), abs=1e-3)


@EITHER
def test_a_sequence_of_thresholds_is_tested_by_what_comes_first(library):
    """Of the thresholds that pass, the one is taken that misses the recall least."""
    rules = [gc.gap(gc.fpr(), by="g") <= 0.2, gc.fpr() <= 0.2]
    later = [(gc.recall() >= 0.95).with_priority(2), (gc.accuracy() >= 0.99).with_priority(3)]
    rows = draw_with_group(3000)
    alone, model = (fit_certified(library, given, rows) for given in (rules, [*rules, *later]))
    assert model.feasibility_.p_value <= 0.1
    assert (model.constraint_report_["verdict"][:2] == "met").all()
    others, labels, _ = draw_with_group(10_000, 1)
    recalls = [fitted.predict(others)[labels == 1].mean() for fitted in (alone, model)]
    assert recalls[1] > recalls[0] + 0.05
    assert model.predict(others)[labels == 0].mean() <= 0.2


@EITHER
def test_several_classes_and_what_cannot_be_certified_at_all(library):
    """Rows that could never certify a constraint are enough if it comes second."""
    X, y, groups = draw_with_group(2000)
    several = np.where((y == 0) & (X[:, 3] > 0.8), 2, y)
    strict = gc.class_error(1) <= 0.001
    rules = [gc.selection_rate(1) <= 0.2, strict.with_priority(2)]
    model = fit_certified(library, rules, (X, several, groups), n_estimators=8)
    assert model.feasibility_.p_value <= 0.1
    assert model.constraint_report_["verdict"][0] == "met"
    assert minimum_rows(0.001, 0.1) > 2000
    with pytest.raises(ValueError, match="cannot be given for class_error"):
        fit_certified(library, [strict], (X, several, groups), n_estimators=8)


@EITHER
def test_a_guarantee_that_is_not_given_names_what_comes_first(library):
    rules = [gc.error_rate() <= 0.08, (gc.recall() >= 0.99).with_priority(2)]
    model = fit_certified(library, rules, draw_with_group(1200))
    found = model.feasibility_
    assert found.p_value > found.level
    assert rules[0] in found.conflict
    assert "Not certified" in str(found)


# Refusals.


REFUSED = {
    "training rows": ({"measure_on": "train"}, "measure_on='train'.*use measure_on='crossfit'"),
    "mixture": ({"iterate": "randomized"}, "iterate='randomized'.*use iterate='last'"),
    "mean": ({"iterate": "ergodic"}, "iterate='ergodic'.*use iterate='last'"),
    "groups": ({"group_thresholds": True}, "group_thresholds=True meets all.*leave it out"),
    "metric": ({"maximize": "balanced_accuracy"}, "decisions by maximize meet all.*leave"),
}


@EITHER
@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize(
    "rules",
    [BUDGET_FIRST, [BUDGET.with_priority(1, weight=2.0)]],
    ids=["priority", "weight"],
)
def test_options_without_a_threshold_on_unseen_rows_are_refused(library, name, rules):
    options, message = REFUSED[name]
    X, y = draw(300)
    with pytest.raises(ValueError, match=rf"\.with_priority\(.*has a priority, and .*{message}"):
        make(library, rules, **options).fit(X, y)


@EITHER
@pytest.mark.parametrize("other", [gc.log_loss() <= 0.6, gc.auc() >= 0.7])
def test_scores_beside_priorities_are_refused(library, other):
    X, y = draw(300)
    with pytest.raises(ValueError, match=r"is about scores.*bound rates of decisions"):
        make(library, [*BUDGET_FIRST, other]).fit(X, y)


@EITHER
def test_continued_training_needs_an_evaluation_set(library):
    X, y = draw(600)
    first = CLASSIFIERS[library](n_estimators=3, n_jobs=1).fit(X, y)
    given = {"xgboost": "xgb_model", "lightgbm": "init_model"}[library]
    with pytest.raises(ValueError, match=r"has a priority, and what is given up is decided on"):
        make(library, BUDGET_FIRST).fit(X, y, **{given: first})


def test_boosters_without_multipliers_refuse_priorities():
    X, y = draw(300)
    with pytest.raises(ValueError, match=r"has a priority, and decisions by booster"):
        make("xgboost", BUDGET_FIRST, booster="dart").fit(X, y)


@pytest.mark.parametrize(
    "model",
    [
        gc.ConstrainedLogisticRegression(constraints=BUDGET_FIRST),
        gc.linear_model.ConstrainedLinearSVC(constraints=BUDGET_FIRST),
        gc.ConstrainedLGBMClassifier(constraints=BUDGET_FIRST, minimize=BlackBox(roc_auc_score)),
    ],
    ids=["logistic", "svm", "black box"],
)
def test_other_models_refuse_priorities(model):
    X, y = draw(300)
    with pytest.raises((ValueError, TypeError), match=r"has a priority.*leave with_priority out"):
        model.fit(X, y)
