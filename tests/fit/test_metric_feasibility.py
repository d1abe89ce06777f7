"""Constraints that some decision meets are not said to be beyond the model."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from helpers import BOTH, CLASSIFIERS, quiet
from sklearn.datasets import make_classification

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.decision.evaluation_set import Outcome
from gbm_constrained.fit.metric_report import _find_conflict
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.solvers import Reduction
from gbm_constrained.statistics.counts import CellCounts


@BOTH
@pytest.mark.parametrize("deterministic", [None, True])
def test_constraints_that_a_constant_decision_meets_can_be_met(library, deterministic):
    """No rule of finite costs meets a gap to the last row, counted by labels; mixtures do."""
    X, y = make_classification(2000, 10, n_informative=5, weights=[0.9], random_state=0)
    group = np.random.default_rng(0).integers(0, 2, y.size)
    constraints = [gc.each(gc.fpr(), by="group") <= 0.1, gc.gap(gc.tpr(), by="group") <= 0.03]
    model = CLASSIFIERS[library](
        maximize="g_mean",
        constraints=constraints,
        solver=Reduction(deterministic=deterministic),
        n_estimators=20,
        n_jobs=1,
        **({"verbose": -1} if library == "lightgbm" else {}),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gc.MissedConstraintsWarning)
        model.fit(X, y, sensitive_features={"group": group}, **quiet(library))
    assert "cannot be met" not in model.constraint_report_["verdict"].tolist()
    report = model.metric_report_.set_index("decisions")
    # A constant decision has a G-mean of zero, and half of the best one's is far from it.
    assert report.loc["optimised", "held_out"].max() > report["held_out"].max() / 2


@BOTH
@pytest.mark.parametrize("n_calls", [None, 1, 4, 8])
def test_a_rule_that_never_predicts_a_class_has_no_precision(library, n_calls):
    """The best precision without constraints is that of no prediction, which has none."""
    X, y = make_classification(800, 6, n_informative=4, weights=[0.8], random_state=0)
    seen = []

    def end(state):
        seen.append(state)
        return len(seen) == n_calls

    model = CLASSIFIERS[library](
        maximize=gc.precision(1),
        constraints=[gc.recall(1) >= 0.5],
        n_estimators=15,
        n_jobs=1,
        **({"verbose": -1} if library == "lightgbm" else {}),
    )
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
    ("bound", "least", "returned", "is_refuted"),
    [
        (0.3, (50, 50), (50, 50), True),
        # Intervals of 100 rows reach 0.48 from a half.
        (0.48, (50, 50), (50, 50), False),
        # The decisions of least violation may meet it on other rows, or those returned do.
        (0.3, (35, 50), (50, 50), False),
        (0.3, (50, 50), (35, 50), False),
        (0.3, (50, 50), (10, 50), False),
        # Some decisions were found that meet all constraints.
        (0.3, (20, 50), (50, 50), False),
        (0.3, None, (50, 50), False),
    ],
)
def test_a_metric_says_cannot_be_met_beyond_sampling_error_alone(
    bound, least, returned, is_refuted
):
    """Both by the decisions of least violation and by those that are returned."""
    y = np.repeat([0, 1], 100)
    rules = [gc.class_error(0) <= bound, gc.class_error(1) <= 0.6]
    cells, compiled = compile_constraints(rules, Rows(y, np.arange(2)))
    counts = CellCounts.of_probabilities(cells, decide(*returned))
    outcome = Outcome.of_counts(compiled, counts, "test")
    result = SimpleNamespace(least=None if least is None else decide(*least), held=HELD)
    found = _find_conflict(cells, compiled, result, outcome)
    assert found == ((rules[0],) if is_refuted else ())


@pytest.mark.parametrize("second", [0.3, 0.45])
def test_constraints_conflict_where_each_that_is_violated_is_refuted(second):
    """One that is missed within sampling error leaves open whether all could be met."""
    y = np.repeat([0, 1], 100)
    rules = [gc.class_error(0) <= 0.3, gc.class_error(1) <= second]
    cells, compiled = compile_constraints(rules, Rows(y, np.arange(2)))
    shares = decide(50, 50)
    outcome = Outcome.of_counts(compiled, CellCounts.of_probabilities(cells, shares), "test")
    result = SimpleNamespace(least=shares, held=HELD)
    found = _find_conflict(cells, compiled, result, outcome)
    assert found == (tuple(rules) if second == 0.3 else ())
