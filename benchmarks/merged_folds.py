"""The model of all rows against the boosters of the folds merged: loss on test rows.

Splits of 70/30, LightGBM with 100 trees of 15 leaves and a learning rate of .05, five folds::

    python benchmarks/merged_folds.py page_blocks
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

import gbm_constrained as gc
from gbm_constrained.solvers import Reduction

METRICS = ("h_mean", "g_mean", "q_mean", "min_recall", "f1_micro", "f1_macro")
N_SPLITS = 6
N_FOLDS = 5
TREES = {"n_estimators": 100, "num_leaves": 15, "learning_rate": 0.05, "verbose": -1, "n_jobs": 1}


def read(name: str) -> tuple[pd.DataFrame, np.ndarray]:
    """Read a table whose last column is the class."""
    folder = Path(os.environ["GBM_CONSTRAINED_DATA"]) / "multiclass"
    table = pd.read_parquet(folder / f"{name}.parquet")
    X = pd.get_dummies(table.iloc[:, :-1]).astype(float)
    return X, pd.factorize(table.iloc[:, -1], sort=True)[0]


def measure(X: pd.DataFrame, y: np.ndarray, metric: str) -> pd.DataFrame:
    """Fit both models on each split, and measure promised losses and those on test rows."""
    records = []
    for split in range(N_SPLITS):
        train, test, y_train, y_test = train_test_split(X, y, test_size=0.3, random_state=split)
        for ensemble in (None, "folds"):
            model = gc.ConstrainedLGBMClassifier(
                maximize=metric,
                solver=Reduction(ensemble=ensemble),
                measure_on=gc.CrossFit(N_FOLDS),
                **TREES,
            ).fit(train, y_train)
            report = model.metric_report_
            records.append(
                {
                    "split": split,
                    "model": ensemble or "all rows",
                    "promised": 1.0 - report[report.is_returned].held_out.iloc[0],
                    "test": 1.0 - model.score(test, y_test),
                }
            )
    return pd.DataFrame(records)


def main(name: str) -> None:
    """Print the losses, and the difference with its standard error over the splits."""
    warnings.simplefilter("ignore")
    X, y = read(name)
    for metric in METRICS:
        losses = measure(X, y, metric).pivot(index="split", columns="model")
        test = losses["test"]
        change = test["folds"] - test["all rows"]
        print(
            f"{name} {metric}: all rows {test['all rows'].mean():.4f}, merged "
            f"{test['folds'].mean():.4f} (promised {losses['promised']['folds'].mean():.4f}), "
            f"change {change.mean():+.4f} +- {change.std() / np.sqrt(N_SPLITS):.4f}",
            flush=True,
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
