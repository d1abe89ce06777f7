"""Small fits whose models, reports and histories are the same, to the last bit, as recorded.

The fits say nothing about what is right; other tests do. They notice a change that was meant to
move code and moved a model. Where a change is meant, record the table anew and say why:

    python tests/end_to_end/test_golden_models.py
"""

from __future__ import annotations

import hashlib
import json
import platform
import sys
import warnings
from pathlib import Path

import lightgbm
import numpy as np
import pandas as pd
import pytest
import xgboost

import gbm_constrained as gc
from gbm_constrained.solvers import ABPP, CBPR

TABLE = Path(__file__).parent / "golden_models.json"
CLASSIFIERS = {
    "xgboost": gc.ConstrainedXGBClassifier,
    "lightgbm": gc.ConstrainedLGBMClassifier,
}


def versions():
    """What a model's bits depend on beside the code of the package."""
    return {
        "xgboost": xgboost.__version__,
        "lightgbm": lightgbm.__version__,
        "numpy": np.__version__,
        "machine": f"{platform.system()} {platform.machine()}",
    }


def rows(n_classes, n=700):
    """Rows with numbers, a category with a group's names, and labels that depend on both."""
    rng = np.random.default_rng(n_classes)
    X = pd.DataFrame(rng.normal(size=(n, 4)), columns=list("abcd"))
    X["group"] = pd.Categorical(rng.choice(["u", "v", "w"], size=n, p=[0.5, 0.3, 0.2]))
    shift = X["group"].map({"u": 0.0, "v": 0.5, "w": -0.5}).astype(float)
    score = X["a"] + 0.7 * X["b"] * X["c"] + shift + rng.normal(scale=0.7, size=n)
    edges = np.quantile(score, np.arange(1, n_classes) / n_classes)
    return X, np.searchsorted(edges, score), rng.uniform(0.5, 2.0, size=n)


class Threshold:
    """A model that other decisions are compared with."""

    def predict(self, X):
        return (X["a"] > 0).astype(int).to_numpy()


GAP = (gc.gap(gc.error_rate(), by="group") <= 0.03,)
TWO = {
    "fnr": {"constraints": [gc.fnr() <= 0.1]},
    "gap": {"constraints": list(GAP)},
    "gap and rate": {"constraints": [gc.gap(gc.fpr(), by="group") <= 0.05, gc.fnr() <= 0.25]},
    "ratio": {"constraints": [gc.ratio(gc.selection_rate(), by="group") >= 0.8]},
    "each": {"constraints": [gc.each(gc.tpr(), by="group") >= 0.7]},
    "precision": {"constraints": [gc.precision() >= 0.85]},
    "churn": {"constraints": [gc.churn(to=Threshold()) <= 0.3]},
    "mean loss": {"constraints": [gc.gap(gc.log_loss(), by="group") <= 0.05]},
    "loss form": {"constraints": gc.as_log_loss([gc.fnr() <= 0.2], n_classes=2)},
    "data set": {"constraints": [gc.error_rate(on=gc.dataset("clean")) <= 0.2]},
    "training rows": {"constraints": list(GAP), "measure_on": "train"},
    "held-out rows": {"constraints": list(GAP), "measure_on": "holdout"},
    "evaluation rows": {"constraints": list(GAP), "measure_on": "holdout", "eval": True},
    "guarantee": {"constraints": [gc.fnr() <= 0.2], "guarantee": "high_probability"},
    "expected": {"constraints": [gc.fnr() <= 0.2], "guarantee": "expected"},
    "mixture": {"constraints": list(GAP), "iterate": "randomized"},
    "best": {"constraints": list(GAP), "iterate": "best"},
    "calibrated": {"constraints": [gc.fnr() <= 0.1], "probabilities": "calibrated"},
    "weights": {"constraints": list(GAP), "weights": True},
    "cbpr": {"constraints": list(GAP), "solver": CBPR(proxy="logistic")},
    "abpp": {"constraints": [gc.fnr() <= 0.1], "solver": ABPP(proxy="sigmoid")},
    "threshold": {"constraints": [gc.fnr() <= 0.1], "solver": "threshold"},
}
FOUR = {
    "class error": {"constraints": [gc.class_error(3) <= 0.1]},
    "coverage": {"constraints": [gc.selection_rate(0) <= 0.2, gc.selection_rate(2) <= 0.3]},
    "each": {"constraints": [gc.each(gc.class_error(1), by="group") <= 0.5]},
    "gap": {"constraints": list(GAP)},
    "weights": {"constraints": [gc.class_error(0) <= 0.2], "weights": True},
    "training rows": {"constraints": list(GAP), "measure_on": "train"},
    "held-out rows": {"constraints": [gc.class_error(3) <= 0.1], "measure_on": "holdout"},
}
CASES = [
    f"{library}, {k} classes, {name}"
    for library in CLASSIFIERS
    for k, table in ((2, TWO), (4, FOUR))
    for name in table
]


def fit(case):
    """Fit one case of the table."""
    library, classes, name = case.split(", ")
    k = int(classes[0])
    X, y, weights = rows(k)
    options = dict((TWO if k == 2 else FOUR)[name])
    arguments = {"verbose": False} if library == "xgboost" else {}
    if options.pop("weights", False):
        arguments["sample_weight"] = weights
    if options.pop("eval", False):
        arguments["eval_set"] = [(X.iloc[:200], y[:200])]
        X, y = X.iloc[200:], y[200:]
    if name == "data set":
        clean, labels, _ = rows(2, 300)
        arguments["datasets"] = {"clean": (clean, labels)}
    quiet = {"enable_categorical": True} if library == "xgboost" else {"verbose": -1}
    model = CLASSIFIERS[library](
        n_estimators=10,
        learning_rate=0.3,
        max_depth=3,
        random_state=0,
        n_jobs=1,
        **quiet,
        **options,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(X, y, **arguments)


def digest(text):
    """First half of a SHA-256, in hexadecimal."""
    raw = text if isinstance(text, (bytes, bytearray)) else text.encode()
    return hashlib.sha256(raw).hexdigest()[:32]


def fingerprint(model):
    """Digests of the trees, of the report and of the history."""
    if isinstance(model, gc.ConstrainedXGBClassifier):
        booster = model.get_booster().copy()
        booster.set_attr(**dict.fromkeys(booster.attributes()))
        trees = booster.save_raw("json")
    else:
        trees = model.booster_.model_to_string().split("\nparameters:")[0]
    history = model.history_.drop(columns="seconds")
    return {
        "model": digest(trees),
        "report": digest(model.constraint_report_.to_csv()),
        "history": digest(history.to_csv()),
    }


@pytest.mark.parametrize("case", CASES)
def test_fit_is_the_recorded_one(case):
    table = json.loads(TABLE.read_text())
    if table["versions"] != versions():
        pytest.skip(f"recorded with {table['versions']}, this is {versions()}")
    assert fingerprint(fit(case)) == table["fits"][case]


if __name__ == "__main__":
    fits = {case: fingerprint(fit(case)) for case in CASES}
    TABLE.write_text(json.dumps({"versions": versions(), "fits": fits}, indent=1) + "\n")
    sys.stdout.write(f"{len(fits)} fits recorded\n")
