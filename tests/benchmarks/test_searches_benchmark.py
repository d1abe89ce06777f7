"""The benchmark of searches: what each score picks, and how a pick is measured on test rows."""

from functools import partial

import numpy as np
import pandas as pd
import searches as benchmark
from data_sets import Rows

from gbm_constrained import ConstrainedLGBMClassifier


def test_accuracy_picks_the_loosest_bound_and_the_scorer_one_that_holds(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 3))
    y = (X[:, 0] + rng.normal(size=3000) > 0).astype(int)
    table = Rows(X, y, pd.DataFrame({"all": np.zeros(3000)}), None)
    monkeypatch.setattr(benchmark, "load", lambda name: table)
    monkeypatch.setattr(benchmark, "ASKED", {"drawn": ("fpr <= {}", (0.02, 0.05, 0.1, 0.5))})
    make = partial(ConstrainedLGBMClassifier, measure_on="train")
    monkeypatch.setattr(benchmark, "ConstrainedLGBMClassifier", make)
    monkeypatch.setattr(benchmark, "DEPTHS", (2,))
    monkeypatch.setattr(benchmark, "N_TRAINING", 600)
    found = benchmark.search("drawn", 0)
    assert found["accuracy_bound"] == 0.5
    assert found["accuracy_value"] > 0.15
    assert found["accuracy_holds"] == 0.0
    assert found["as_asked_bound"] == 0.1
    assert found["scorer_bound"] <= 0.1
    assert found["scorer_holds"] == 1.0
    assert found["scorer_accuracy"] < found["accuracy_accuracy"]
