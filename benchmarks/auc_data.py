"""Data sets, rules, classifiers and pair rates of `benchmarks/auc.py`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split

from gbm_constrained import (
    ConstrainedLGBMClassifier,
    ConstrainedXGBClassifier,
    auc,
    cross_auc,
    gap,
    label,
    mean_rank,
    overall,
)
from gbm_constrained.datasets import load_adult

FOLDER = Path(os.environ.get("GBM_CONSTRAINED_DATA", "../shared/data"))
ROUNDS = {"n_estimators": 150, "learning_rate": 0.1, "n_jobs": 1}
XGBOOST = {**ROUNDS, "max_depth": 4, "enable_categorical": True}
LIGHTGBM = {**ROUNDS, "num_leaves": 15, "verbose": -1}
LIBRARIES = ("xgboost", "lightgbm")
OWN = "own"  # The split that Adult comes with.
HIDDEN = "own, sex hidden"  # The same, without the column of the groups among the features.
Score = NDArray[np.float64]


class Split(NamedTuple):
    """Features, labels of 0 and 1, and the group of each row, of training and test rows."""

    X: pd.DataFrame
    y: NDArray[np.int64]
    group: NDArray[np.str_]
    X_test: pd.DataFrame
    y_test: NDArray[np.int64]
    group_test: NDArray[np.str_]

    @property
    def fit_options(self) -> dict[str, Any]:
        """Give the groups to a fit whose features lack them."""
        if "sex" in self.X:
            return {}
        return {"sensitive_features": pd.DataFrame({"sex": self.group}, index=self.X.index)}


def load_split(split: str) -> Split:
    """Read Adult by sex: its own split, or a random one of 70/30 whose seed is given."""
    adult = load_adult()
    X, y, group = adult.data, adult.target.to_numpy(), adult.data["sex"].astype(str).to_numpy()
    rows = np.arange(y.size)
    if split == HIDDEN:
        X = X.drop(columns="sex")
    if split in (OWN, HIDDEN):
        is_train = (adult.split == "train").to_numpy()
        train, test = rows[is_train], rows[~is_train]
    else:
        train, test = train_test_split(rows, test_size=0.3, random_state=int(split), stratify=y)
    return Split(X.iloc[train], y[train], group[train], X.iloc[test], y[test], group[test])


def load_compas() -> tuple[pd.DataFrame, NDArray[np.int64], NDArray[np.str_]]:
    """Read the 7,214 rows of the two-year file by race, without the scores of COMPAS."""
    frame = pd.read_parquet(FOLDER / "compas.parquet")
    kept = [
        "sex", "age", "race", "juv_fel_count", "juv_misd_count", "juv_other_count",
        "priors_count", "c_charge_degree",
    ]  # fmt: skip
    X = frame[kept].apply(lambda c: c.astype("category") if c.dtype.kind not in "if" else c)
    return X, frame["two_year_recid"].to_numpy(np.int64), frame["race"].astype(str).to_numpy()


def background_subgroup(bound: float) -> list[Any]:
    """Bound the difference of Example 5 for women, with all rows as background, both ways."""
    women = {"sex": "Female"}
    difference = auc(negatives=women) - auc(positives=women)
    return [difference <= bound, difference >= -bound]


RULES: dict[str, Callable[[float], list[Any]]] = {
    "plain": lambda bound: [],
    "mean_rank": lambda bound: [gap(mean_rank(), by="sex") <= bound],
    "cross_auc": lambda bound: [gap(cross_auc(), by="sex") <= bound],
    "subgroup": background_subgroup,
    "auc": lambda bound: [gap(auc(), by="sex") <= bound],
    "positives": lambda bound: [
        gap(mean_rank(on=label(1)), by="sex", reference=overall) <= bound
    ],
    "both": lambda bound: [
        gap(cross_auc(), by="sex") <= bound, gap(auc(), by="sex") <= bound,
    ],
}  # fmt: skip
GAPS = ("mean_rank", "cross_auc", "subgroup", "auc", "positives")


def make(library: str, constraints: list[Any], **options: Any) -> Any:
    """Make a classifier under constraints."""
    kind = ConstrainedXGBClassifier if library == "xgboost" else ConstrainedLGBMClassifier
    fixed = XGBOOST if library == "xgboost" else LIGHTGBM
    return kind(constraints=constraints, **{**fixed, **options})


def rank_pairs(score: Score, first: NDArray[np.bool_], second: NDArray[np.bool_]) -> float:
    """Compute the fraction of pairs whose first row scores higher, ties by half."""
    is_first = np.repeat([1, 0], [first.sum(), second.sum()])
    return float(roc_auc_score(is_first, np.append(score[first], score[second])))


def measure_pairs(y: Any, score: Score, group: Any) -> dict[str, float]:
    """Measure the AUC and the signed gaps of two groups: the first by name less the second."""
    a, b = (group == name for name in np.unique(group))
    p, n = y == 1, y == 0
    everyone = np.full(y.size, True)
    ranked = {name: rank_pairs(score, of, everyone) for name, of in (("a", a), ("b", b))}
    return {
        "test_auc": rank_pairs(score, p, n),
        "mean_rank": ranked["a"] - ranked["b"],
        "cross_auc": rank_pairs(score, p & a, n & b) - rank_pairs(score, p & b, n & a),
        "subgroup": rank_pairs(score, p, n & a) - rank_pairs(score, p & a, n),
        "auc": rank_pairs(score, p & a, n & a) - rank_pairs(score, p & b, n & b),
        "positives": max(
            (rank_pairs(score, p & of, p) - 0.5 for of in (a, b)), key=abs
        ),
    }  # fmt: skip
