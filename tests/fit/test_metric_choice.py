"""What a fit for a metric returns and says: one criterion, and no promise that the rows refute.

Constraints that some decision meets are not said to be beyond the model, and weights of classes
are compared with every threshold.
"""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from helpers import CLASSIFIERS, EITHER, quiet
from sklearn.datasets import make_classification

import gbm_constrained as gc
from gbm_constrained.data.fit_data import FitArguments
from gbm_constrained.data.rows import Rows
from gbm_constrained.datasets import load_dry_bean
from gbm_constrained.decision.evaluation_set import Outcome
from gbm_constrained.fit.metric_fit import _find_conflict
from gbm_constrained.fit.metric_problem import MetricProblem
from gbm_constrained.fit.metric_search import MetricSearch
from gbm_constrained.fit.options import SolverOptions
from gbm_constrained.fit.problem import LibrarySettings
from gbm_constrained.metrics import balanced_accuracy, g_mean, min_recall
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.solvers import Reduction
from gbm_constrained.statistics.counts import CellCounts

SILENT = {"xgboost": {}, "lightgbm": {"verbose": -1}}
FAST = {"xgboost": {"max_depth": 3}, "lightgbm": {"num_leaves": 8, "verbose": -1}}


def make(library, **options):
    return CLASSIFIERS[library](n_jobs=1, random_state=0, **FAST[library], **options)


def test_class_errors_are_not_met_to_the_last_row_at_the_price_of_other_classes():
    """Plain boosters are right on .92 of these rows, and biases meet the bounds with .87."""
    try:
        data = load_dry_bean(download=False)
    except FileNotFoundError as error:
        pytest.skip(str(error))
    bounds = {1: 0.01, 2: 0.03, 3: 0.02, 4: 0.02}
    train = np.random.default_rng(0).permutation(len(data.target))[:3000]
    X, y = data.data.iloc[train], np.unique(data.target, return_inverse=True)[1][train]
    constraints = [gc.class_error(k) <= bound for k, bound in bounds.items()]
    model = make("lightgbm", n_estimators=10, maximize=gc.accuracy(), constraints=constraints)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)
    report = model.metric_report_.set_index("decisions")
    returned = report[report["is_returned"]].iloc[0]
    assert returned["held_out"] > 0.75
    assert np.unique(model.predict(X)).size == 7


@pytest.mark.parametrize(
    ("library", "n", "is_refuted"), [("xgboost", 80, False), ("lightgbm", 1500, True)]
)
def test_constraints_cannot_be_met_where_rows_refute_them(library, n, is_refuted):
    """Labels are noise, and the errors of both classes add up to one."""
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(n, 3)), np.arange(n) % 2
    constraints = [gc.class_error(k) <= 0.4 for k in (0, 1)]
    model = make(library, n_estimators=10, maximize=gc.accuracy(), constraints=constraints)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)
    report = model.constraint_report_
    assert (report["verdict"] == "cannot be met").tolist() == [is_refuted] * 2
    if is_refuted:
        assert (report["low"] > report["bound"]).all()
        assert model.feasibility_.conflict == tuple(constraints)


@pytest.mark.parametrize("n_draws", [2, pytest.param(6, marks=pytest.mark.slow)])
def test_the_worst_of_many_recalls_is_promised_without_the_optimism_of_its_choice(n_draws):
    """The recalls of twelve classes are balanced to the last row, on the rows that are told of."""
    promised, reached = [], []
    for seed in range(n_draws):
        rng = np.random.default_rng(seed)
        centres = rng.normal(size=(12, 4)) * 1.2

        def draw(n, rng=rng, centres=centres):
            y = rng.integers(0, len(centres), n)
            return centres[y] + rng.normal(size=(n, centres.shape[1])), y

        (X, y), (X_new, y_new) = draw(900), draw(40_000)
        model = gc.ConstrainedLogisticRegression(maximize=min_recall()).fit(X, y)
        report = model.metric_report_
        assert (report["low"] <= report["held_out"]).all()
        assert (report["held_out"] <= report["high"]).all()
        optimised = report.set_index("decisions").loc["optimised"]
        promised.append(optimised["held_out"])
        reached.append(model.score(X_new, y_new))
    # A standard error of the worst recall is about 0.05, and of the mean of six 0.02.
    assert np.mean(promised) - np.mean(reached) < 0.03


@EITHER
def test_a_model_of_all_rows_that_decides_otherwise_keeps_no_promise(library):
    """Six atoms have six scores, which the boosters of the folds put in another order."""
    rng = np.random.default_rng(14)
    joint = rng.dirichlet(np.full(3, 0.7), 6) * rng.dirichlet(np.full(6, 3.0))[:, None]
    drawn = rng.choice(18, 600, p=joint.ravel() / joint.sum())
    atom, y = drawn // 3, drawn % 3
    model = make(library, n_estimators=20, measure_on=gc.CrossFit(5), maximize=min_recall())
    model.fit(np.eye(6)[atom], y, **quiet(library))
    report = model.metric_report_
    returned = report[report["is_returned"]].iloc[0]
    shares = model.decision_probabilities(np.eye(6))
    recalls = (joint * shares).sum(axis=0) / joint.sum(axis=0)
    assert returned["train"] >= returned["low"]
    assert returned["held_out"] - recalls.min() < 0.08


def test_the_report_has_the_mixture_that_was_found_where_its_promise_is_not_kept():
    """The threshold that the search found meets the gap; the model returned decides otherwise."""
    rng = np.random.default_rng(0)
    X, sex = rng.normal(size=(1500, 4)), rng.integers(0, 2, 1500)
    y = (X[:, 0] + 0.7 * sex + rng.normal(size=1500) > 0.8).astype(int)
    constraints = [gc.gap(gc.tpr(), by="sex") <= 0.05]
    model = gc.ConstrainedLGBMClassifier(
        constraints=constraints, maximize="g_mean", n_estimators=20, n_jobs=1, verbose=-1,
        measure_on="crossfit", max_bin=255,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y, sensitive_features={"sex": sex})
    report = model.metric_report_.set_index("decisions")
    found, returned = report["violation"].idxmin(), report["is_returned"].idxmax()
    assert (found, returned) == ("thresholds", "argmax")
    assert report.loc[returned, "mixture"] == report.loc[found, "held_out"]


@pytest.mark.parametrize("library", ["lightgbm"])
def test_costs_and_fragility_are_told_of_a_metric(library):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 4))
    y = (X[:, 0] + X[:, 1] + 0.5 * rng.normal(size=3000) > 0.0).astype(int)
    constraints = [gc.selection_rate() <= 0.1, gc.fnr() <= 0.2]
    model = make(library, n_estimators=20, maximize=gc.accuracy(), constraints=constraints)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)
    feasibility, report = model.feasibility_, model.metric_report_
    returned = report[report["is_returned"]].iloc[0]
    plain = report.set_index("decisions").loc["argmax"]
    assert feasibility.cost.error == pytest.approx(1.0 - returned["held_out"])
    assert feasibility.cost.unconstrained_error <= 1.0 - plain["held_out"] + 1e-9
    assert np.isnan(feasibility.cost.needed_error)  # No decisions should meet both, either.
    assert feasibility.constant_class is None  # No constant decision meets both.
    constraints = [gc.selection_rate() <= 0.05]
    model = make(library, n_estimators=20, maximize=gc.accuracy(), constraints=constraints)
    with pytest.warns(gc.FragileConstraintsWarning, match=r"objective \(1 - accuracy\)"):
        model.fit(X, y)
    assert model.feasibility_.is_fragile
    assert model.feasibility_.constant_class == 0
    cost = model.feasibility_.cost
    assert cost.unconstrained_error + 0.2 < cost.needed_error <= cost.error + 0.03


# --- constraints that some decision meets --------------------------------------------------------


@pytest.mark.parametrize(("library", "deterministic"), [("xgboost", None), ("lightgbm", True)])
def test_constraints_that_a_constant_decision_meets_can_be_met(library, deterministic):
    """No rule of finite costs meets a gap to the last row, counted by labels; mixtures do."""
    X, y = make_classification(2000, 10, n_informative=5, weights=[0.9], random_state=0)
    group = np.random.default_rng(0).integers(0, 2, y.size)
    constraints = [gc.each(gc.fpr(), by="group") <= 0.1, gc.gap(gc.tpr(), by="group") <= 0.03]
    model = CLASSIFIERS[library](
        maximize="g_mean", constraints=constraints, n_estimators=20, n_jobs=1,
        solver=Reduction(deterministic=deterministic), **SILENT[library],
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gc.MissedConstraintsWarning)
        model.fit(X, y, sensitive_features={"group": group}, **quiet(library))
    assert "cannot be met" not in model.constraint_report_["verdict"].tolist()
    report = model.metric_report_.set_index("decisions")
    # A constant decision has a G-mean of zero, and half of the best one's is far from it.
    assert report.loc["optimised", "held_out"].max() > report["held_out"].max() / 2


@pytest.mark.parametrize(
    ("library", "n_calls"),
    [("xgboost", None), ("lightgbm", None), ("lightgbm", 1), ("xgboost", 4)],
)
def test_a_rule_that_never_predicts_a_class_has_no_precision(library, n_calls):
    """The best precision without constraints is that of no prediction, which has none."""
    X, y = make_classification(800, 6, n_informative=4, weights=[0.8], random_state=0)
    seen = []

    def end(state):
        seen.append(state)
        return len(seen) == n_calls

    model = CLASSIFIERS[library](
        maximize=gc.precision(1), constraints=[gc.recall(1) >= 0.5], n_estimators=15, n_jobs=1,
        **SILENT[library],
    )  # fmt: skip
    model.fit(X, y, constraint_callbacks=[end], **quiet(library))
    report = model.metric_report_
    returned = report[report["is_returned"]].iloc[0]
    assert returned["violation"] <= 0.02
    if n_calls is None:
        assert report.set_index("decisions").loc["optimised", "held_out"] > 0.75
        assert model.predict(X).mean() > 0.05


HELD = SimpleNamespace(source="test")


def decide(*wrong):
    """Probabilities of two decisions about 100 rows of each class, of which so many are wrong."""
    second = np.concatenate([np.arange(100) < wrong[0], np.arange(100) >= wrong[1]])
    return np.column_stack([~second, second]).astype(np.float64)


@pytest.mark.parametrize(
    ("bounds", "least", "returned", "refuted"),
    [
        ((0.3, 0.6), (50, 50), (50, 50), [0]),
        # Intervals of 100 rows reach 0.48 from a half.
        ((0.48, 0.6), (50, 50), (50, 50), []),
        # The decisions of least violation may meet it on other rows, or those returned do.
        ((0.3, 0.6), (35, 50), (50, 50), []),
        ((0.3, 0.6), (50, 50), (35, 50), []),
        ((0.3, 0.6), (50, 50), (10, 50), []),
        # Some decisions were found that meet all constraints.
        ((0.3, 0.6), (20, 50), (50, 50), []),
        ((0.3, 0.6), None, (50, 50), []),
        # One that is missed within sampling error leaves open whether all could be met.
        ((0.3, 0.3), (50, 50), (50, 50), [0, 1]),
        ((0.3, 0.45), (50, 50), (50, 50), []),
    ],
)
def test_a_metric_says_cannot_be_met_beyond_sampling_error_alone(bounds, least, returned, refuted):
    """Both by the decisions of least violation and by those that are returned."""
    rules = [gc.class_error(k) <= bound for k, bound in enumerate(bounds)]
    cells, compiled = compile_constraints(rules, Rows(np.repeat([0, 1], 100), np.arange(2)))
    counts = CellCounts.of_probabilities(cells, decide(*returned))
    outcome = Outcome.of_counts(compiled, counts, "test")
    result = SimpleNamespace(least=None if least is None else decide(*least), held=HELD)
    found = _find_conflict(cells, compiled, result, outcome)
    assert found == tuple(rules[k] for k in refuted)


# --- weights of the classes ----------------------------------------------------------------------


@pytest.mark.parametrize("metric", [g_mean, balanced_accuracy, min_recall])
@pytest.mark.parametrize("bound", [0.02, 0.3, 1.0])
def test_the_threshold_of_two_classes_is_the_best_of_all(metric, bound):
    rng = np.random.default_rng(0)
    positive = rng.random(60)
    y, weight = (rng.random(60) < positive).astype(int), rng.integers(1, 4, 60).astype(float)
    options = SolverOptions((gc.selection_rate() <= bound,), maximize=metric())
    arguments = FitArguments(positive[:, None], y, weight)
    held = MetricProblem.of(options, arguments, LibrarySettings(0.1, 1)).on(np.arange(60))
    oracle = held.oracle(np.column_stack([1.0 - positive, positive]))
    search = MetricSearch(held, oracle)
    found = search.find_weights(np.ones(2), np.zeros(search.criterion["weights"].size))[0]
    decided = found[1] * positive > found[0] * (1.0 - positive)

    def value(d):
        recalls = [np.average(d[y == k] == k, weights=weight[y == k]) for k in (0, 1)]
        means = {g_mean: np.sqrt(np.prod(recalls)), balanced_accuracy: np.mean(recalls)}
        return means.get(metric, min(recalls))

    assert np.average(decided, weights=weight) <= bound + 1e-12
    all_of_them = [positive >= t for t in np.append(positive, 2.0)]
    allowed = [d for d in all_of_them if np.average(d, weights=weight) <= bound + 1e-12]
    assert value(decided) == pytest.approx(max(map(value, allowed)))


def draw_groups(n):
    """Two classes, and nine groups of which most have few rows."""
    rng = np.random.default_rng(2)
    group = rng.choice(9, n, p=[0.6, 0.25, 0.09, *[0.01] * 6])
    X = np.column_stack([rng.normal(size=(n, 3)), group == 1])
    score = X[:, 0] + X[:, 1] + 0.8 * (group == 1) + rng.normal(size=n)
    return X, (score > 0.5).astype(int), group


@pytest.mark.parametrize("library", ["xgboost"])
def test_small_groups_leave_no_constant_decision(library):
    """Recalls of groups of ten rows are brought together by deciding all rows alike alone."""
    X, y, group = draw_groups(1600)
    X_new, y_new, _ = draw_groups(8000)
    constraints = [gc.gap(gc.tpr(), by="group") <= 0.07]
    model = make(library, n_estimators=20, maximize=balanced_accuracy(), constraints=constraints)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y, sensitive_features={"group": group})
    report = model.metric_report_
    best = report[report["decisions"] == "thresholds"]["held_out"].max()
    assert report[report["is_returned"]]["held_out"].iloc[0] >= best - 0.05
    assert model.score(X_new, y_new) > 0.7
    assert not hasattr(model, "_rules")  # One shift of the scores, and no booster of groups.
