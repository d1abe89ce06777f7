"""Constraints that some decision meets are not said to be beyond the model."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from helpers import BOTH, CLASSIFIERS, quiet
from sklearn.datasets import make_classification

import gbm_constrained as gc


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
        deterministic=deterministic,
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
    assert report.loc["optimised", "held_out"] > report["held_out"].max() / 2
