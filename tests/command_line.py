"""Commands as tests run them, and the tables that these commands read."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb

from gbm_constrained import CrossFit
from gbm_constrained.cli.main import main

MODEL = {"xgboost": "model.json", "lightgbm": "model.txt"}
LABELS = ["<=50K", ">50K"]
TINY = {"n_estimators": 10, "n_jobs": 1, "measure_on": CrossFit(2), "learning_rate": 0.3}
TEXTS = [
    "workclass", "education", "marital-status", "occupation", "relationship", "race", "sex",
    "native-country",
]  # fmt: skip


class CommandLine:
    """Run commands in the current folder; each gives its exit code, output and errors."""

    def __init__(self, files, capture):
        self.files, self.capture = files, capture

    def __call__(self, *arguments):
        try:
            code = main([str(a) for a in arguments])
        except SystemExit as stopped:
            code = stopped.code
        found = self.capture.readouterr()
        assert "Traceback" not in found.err
        return SimpleNamespace(code=code, out=found.out, err=found.err)

    def fit(self, library, *more, table=None, target=None):
        """Train a small model: by default on Adult, of other tables on the label y."""
        table, target = self._adult("train.csv", table, target)
        parameters = [f"--param={k}={v}" for k, v in TINY.items() if k != "measure_on"]
        if "--measure-on=train" not in more:
            parameters.append("--param=measure_on__n_folds=2")
        return self(
            "fit", table, "--target", target, "--library", library, "--out", MODEL[library],
            *parameters, *more,
        )  # fmt: skip

    def audit(self, library, *more, table=None, target=None):
        """Audit the model that was trained last, by default on other rows of Adult."""
        table, target = self._adult("new.csv", table, target)
        return self("audit", MODEL[library], table, "--target", target, *more)

    def report_of(self, command, library, *more, **given):
        """Run ``fit`` or ``audit``, and read the JSON that it writes."""
        done = getattr(self, command)(library, *more, "--json=report.json", "--quiet", **given)
        assert done.code in (0, 1), done.err
        return json.loads(Path("report.json").read_text())

    def _adult(self, name, table, target):
        if table is None:
            return self.files / name, target or "income"
        return table, target or "y"


def equal(value):
    """The same number, summed in another order."""
    return pytest.approx(value, rel=1e-12, abs=1e-15)


def decisions(library, X):
    """Decisions of the plain library as class positions; texts of X are categories."""
    if library == "xgboost":
        plain = xgb.XGBClassifier(n_jobs=1)
        plain.load_model("model.json")
        return plain.predict(X)
    return (lgb.Booster(model_file="model.txt").predict(X) > 0.5).astype(int)


def coded_rows(codes, n=400):
    """Rows whose groups have these codes in turn, and decide much of the label."""
    rng = np.random.default_rng(0)
    turn = np.arange(n) % len(codes)
    x = rng.normal(size=n)
    y = (x + (turn == 0) + 0.5 * rng.normal(size=n) > 0.5).astype(int)
    return pd.DataFrame({"x": x, "g": pd.Series(codes, dtype=object).to_numpy()[turn], "y": y})


def write_rows(name="t.csv", n=200, seed=0, **columns):
    """Write a table of a feature x, a label y that x decides, and further columns."""
    x = np.random.default_rng(seed).normal(size=n)
    table = pd.DataFrame({"x": x, "y": (x > 0.0).astype(int)}).assign(**columns)
    getattr(table, f"to_{name.rpartition('.')[2]}")(name, index=False)
    return table
