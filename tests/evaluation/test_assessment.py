"""From held-out rows to verdicts."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import gbm_constrained as gc
from gbm_constrained.evaluation.assessment import FRAGILE_ERROR, is_hardly_better


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
