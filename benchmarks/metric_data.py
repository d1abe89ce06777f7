"""Data sets and classifiers of `benchmarks/metrics.py`."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import joblib
import lightgbm as lgb
import numpy as np
import pandas as pd

from gbm_constrained import ConstrainedLGBMClassifier, ConstrainedXGBClassifier, CrossFit
from gbm_constrained.data.rows import Rows
from gbm_constrained.evaluation.audit import measure_metric
from gbm_constrained.metrics import f1_micro
from gbm_constrained.metrics.reading import read_objective

FOLDER = Path(os.environ.get("GBM_CONSTRAINED_DATA", "../shared/data"))
LIGHTGBM = {
    "n_estimators": 100, "num_leaves": 15, "learning_rate": 0.05, "verbose": -1, "n_jobs": 1,
}  # fmt: skip
XGBOOST = {
    "n_estimators": 100, "max_depth": 0, "max_leaves": 15, "grow_policy": "lossguide",
    "learning_rate": 0.05, "n_jobs": 1, "verbosity": 0,
}  # fmt: skip
N_FOLDS = 5


class Table(NamedTuple):
    """Features without the column of the groups, class indices, and groups if there are any."""

    X: pd.DataFrame
    y: Any
    groups: pd.DataFrame | None = None


def load_classes(name: str) -> Table:
    """Read a set of several classes; Abalone's rings become the twelve classes of the paper."""
    frame = pd.read_parquet(FOLDER / "multiclass" / f"{name}.parquet")
    y = frame.iloc[:, -1]
    if name == "abalone":
        rings = y.astype(int)
        y = pd.Series(np.where((rings <= 4) | (rings >= 16), 0, rings - 4))
    return Table(_encode(frame.iloc[:, :-1]), pd.factorize(y, sort=True)[0])


def load_groups(name: str, *, is_feature: bool = False) -> Table:
    """Read a set of two classes and two groups; their column is a feature if asked for."""
    table = _load_without_group(name)
    assert table.groups is not None
    if not is_feature:
        return table
    is_last = table.groups["group"] == table.groups["group"].max()
    return table._replace(X=table.X.assign(group=is_last.astype(np.float64)))


def _load_without_group(name: str) -> Table:
    """Read a set of two classes and two groups."""
    frame = pd.read_parquet(FOLDER / f"{name.removesuffix('_age')}.parquet")
    if name == "compas":
        usual = (
            (frame["days_b_screening_arrest"].abs() <= 30) & (frame["is_recid"] != -1)
            & (frame["c_charge_degree"] != "O") & (frame["score_text"] != "N/A")
        )  # fmt: skip
        frame = frame[usual]
        kept = [*frame.columns[[1, 3, 4, 5, 6, 7, 8]]]
        return _with_groups(frame[kept], frame["two_year_recid"] == 1, frame["sex"])
    if name == "law_school":
        group = np.where(frame["race"] == "White", "White", "other")
        return _with_groups(
            frame.drop(columns=["pass_bar", "race"]), frame["pass_bar"] == 1, group
        )
    if name == "adult":
        left = frame.drop(columns=["income", "split", "fnlwgt", "sex"])
        return _with_groups(left, frame["income"].str.contains(">50K"), frame["sex"])
    if name == "adult_age":
        left = frame.drop(columns=["income", "split", "fnlwgt", "age"])
        return _with_groups(left, frame["income"].str.contains(">50K"), frame["age"] > 40)
    if name == "bank_age":
        return _with_groups(
            frame.drop(columns=["y", "age"]), frame["y"] == "yes", frame["age"] > 40
        )
    left = frame.drop(columns=["default payment", "SEX"])
    return _with_groups(left, frame["default payment"] == 1, frame["SEX"])


def _with_groups(X: pd.DataFrame, y: Any, group: Any) -> Table:
    groups = pd.DataFrame({"group": np.asarray(group).astype(str)})
    return Table(_encode(X.reset_index(drop=True)), np.asarray(y).astype(int), groups)


def _encode(X: pd.DataFrame) -> pd.DataFrame:
    """Make numbers of all columns, under names that both libraries accept."""
    encoded = pd.get_dummies(X).astype(np.float64)
    return encoded.set_axis([f"x{i}" for i in range(encoded.shape[1])], axis=1)


class _KeptFits(lgb.LGBMClassifier):
    """LightGBM, which trains once on the same rows, labels and weights."""

    kept: ClassVar[dict[str, dict[str, Any]]] = {}

    def fit(self, X: Any, y: Any, sample_weight: Any = None, **given: Any) -> Any:
        """Train, or take what the same rows gave."""
        key = joblib.hash((np.asarray(X), np.asarray(y), sample_weight, self.measured()))
        names = self.get_params()
        if key not in self.kept:
            super().fit(X, y, sample_weight, **given)
            found = {k: v for k, v in vars(self).items() if k not in names}
            self.kept[key] = copy.copy(found)
        vars(self).update(self.kept[key])
        return self

    def measured(self) -> dict[str, Any]:
        """Parameters of the boosters."""
        return {name: self.get_params()[name] for name in LIGHTGBM}


class SharedLightGBM(ConstrainedLGBMClassifier, _KeptFits):
    """The classifier, whose fits with several metrics on the same rows share their boosters."""


def make(library: str = "lightgbm", **options: Any) -> Any:
    """Make a classifier; those of LightGBM share boosters."""
    options = {"measure_on": CrossFit(N_FOLDS), **options}
    if library == "xgboost":
        return ConstrainedXGBClassifier(**XGBOOST, **options)
    return SharedLightGBM(**LIGHTGBM, **options)


def forget_fits() -> None:
    """Drop the boosters that are kept."""
    _KeptFits.kept.clear()


def find_metric(name: str, y: Any) -> Any:
    """Find a metric by name; the default class of micro F1 is the most frequent of all rows."""
    return f1_micro(int(np.bincount(y).argmax())) if name == "f1_micro" else name


def measure_loss(metric: Any, y: Any, shares: Any) -> float:
    """Compute one minus a metric of decisions, given as classes or as their probabilities."""
    shares = np.asarray(shares)
    if shares.ndim == 1:
        shares = np.eye(int(max(y.max(), shares.max())) + 1)[shares]
    found = read_objective(metric, None)
    assert found is not None
    rows = Rows(np.asarray(y, dtype=np.intp), np.arange(shares.shape[1]))
    return 1.0 - measure_metric(found, rows, shares)
