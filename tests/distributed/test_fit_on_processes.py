"""Classifiers of one machine, fitted on processes of this computer."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from shard_fits import QUIET, N, Problem

import gbm_constrained as gc
from gbm_constrained.distributed import fit_on_processes

RULES = [gc.fpr() <= 0.08, gc.gap(gc.fpr(), by="sex") <= 0.02]


def test_two_processes_fit_what_one_does():
    """Also with tables, weights, and an evaluation set that moves the multipliers."""
    problem = Problem(is_weighted=True)
    X = pd.DataFrame(problem.X, columns=list("abcde"))
    held = np.arange(N) % 5 == 0
    fitted = []
    for n_processes in (1, 2):
        clf = gc.ConstrainedXGBClassifier(constraints=RULES, measure_on="holdout", **QUIET)
        columns = pd.DataFrame({"sex": problem.sex})
        found = fit_on_processes(
            clf,
            X[~held],
            problem.y[~held],
            n_processes=n_processes,
            sample_weight=problem.weight[~held],
            sensitive_features=columns[~held],
            eval_set=[(X[held], problem.y[held])],
            sample_weight_eval_set=[problem.weight[held]],
            sensitive_features_eval_set=[columns[held]],
            verbose=False,
        )
        assert found is clf
        fitted.append(clf)
    one, two = fitted
    assert one.multipliers_.max() > 0.01
    np.testing.assert_array_equal(one.multipliers_, two.multipliers_)
    np.testing.assert_array_equal(one.predict(X), two.predict(X))
    held_out = [model.constraint_report_["held_out"] for model in fitted]
    np.testing.assert_array_equal(*held_out)


REFUSED = {
    "unknown": ({"depth": 3}, TypeError, "no argument 'depth'"),
    "of one machine": ({"base_margin": np.zeros(N)}, ValueError, "base_margin= is not supported"),
    "processes": ({"n_processes": N + 1}, ValueError, "more than the 2400 rows"),
    "none": ({"n_processes": 0}, ValueError, "n_processes must be an integer"),
    "sets": ({"sensitive_features_eval_set": [None]}, ValueError, "eval_set"),
    "weights": ({"sample_weight": np.ones(3)}, ValueError, "sample_weight has 3 rows"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_arguments_are_refused_before_a_process_starts(name):
    given, error, message = REFUSED[name]
    problem = Problem()
    clf = gc.ConstrainedXGBClassifier(constraints=RULES, **QUIET)
    with pytest.raises(error, match=message):
        fit_on_processes(clf, problem.X, problem.y, **{"n_processes": 2, **given})


def test_other_classifiers_are_refused():
    clf = gc.ConstrainedLogisticRegression(constraints=RULES)
    with pytest.raises(TypeError, match="ConstrainedLogisticRegression"):
        fit_on_processes(clf, np.zeros((4, 1)), np.arange(4) % 2, n_processes=2)
