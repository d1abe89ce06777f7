"""Weights of the classes that optimise a metric: against every threshold, and end to end."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from helpers import BOTH, CLASSIFIERS

import gbm_constrained as gc
from gbm_constrained.data.fit_data import FitArguments
from gbm_constrained.fit.metric_fit import MetricFit
from gbm_constrained.fit.metric_search import MetricSearch
from gbm_constrained.fit.options import SolverOptions
from gbm_constrained.fit.problem import LibrarySettings
from gbm_constrained.metrics import balanced_accuracy, g_mean, min_recall

FAST = {"xgboost": {"max_depth": 3}, "lightgbm": {"num_leaves": 8, "verbose": -1}}


@pytest.mark.parametrize("metric", [g_mean, balanced_accuracy, min_recall])
@pytest.mark.parametrize("bound", [0.02, 0.3, 1.0])
def test_the_threshold_of_two_classes_is_the_best_of_all(metric, bound):
    rng = np.random.default_rng(0)
    positive = rng.random(60)
    y, weight = (rng.random(60) < positive).astype(int), rng.integers(1, 4, 60).astype(float)
    options = SolverOptions((gc.selection_rate() <= bound,), maximize=metric())
    arguments = FitArguments(positive[:, None], y, weight)
    fit = MetricFit(options, arguments, LibrarySettings(0.1, 1))
    held = fit.problem.on(np.arange(60))
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


@BOTH
def test_small_groups_leave_no_constant_decision(library):
    """Recalls of groups of ten rows are brought together by deciding all rows alike alone."""
    X, y, group = draw_groups(1600)
    X_new, y_new, _ = draw_groups(8000)
    model = CLASSIFIERS[library](
        n_jobs=1, random_state=0, n_estimators=20, maximize=balanced_accuracy(),
        constraints=[gc.gap(gc.tpr(), by="group") <= 0.07], **FAST[library],
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y, sensitive_features={"group": group})
    report = model.metric_report_
    best = report[report["decisions"] == "thresholds"]["held_out"].max()
    assert report[report["is_returned"]]["held_out"].iloc[0] >= best - 0.05
    assert model.score(X_new, y_new) > 0.7
    assert not hasattr(model, "_rules")  # One shift of the scores, and no booster of groups.
