"""Metrics of the confusion matrix on the sets of Narasimhan et al., beside the paper's figures.

"Consistent Multiclass Algorithms for Complex Metrics and Constraints", Tables 6 and 7: test losses
in random 70/30 splits with ``random_state`` 0 to 9. Abalone has 12 classes: rings <= 4 or >= 16
are one class. Features are standardised on the training part.

    python benchmarks/metrics.py [paper oracles cost scale] [--jobs 2] [--output FOLDER]

Each fit is a row of a CSV of its part, and is not repeated while its row is there.

- paper: ConstrainedLogisticRegression, whose C is that of LogisticRegressionCV (newton-cg, cv=2)
  as in the paper. Beside the means stands the paper's best column with two standard errors.
- oracles: ConstrainedLGBMClassifier (100 trees, 15 leaves, learning rate .05) by each oracle.
- cost: CPU time of fits with h_mean() over that of plain fits, and the share of all oracle calls.
- scale: 400,000 rows of 7 classes on one core: seconds of an oracle call, and of the reduction to
  h_mean() under coverage within .01.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from result_file import Measurements, Part, add_parts, column
from sklearn.linear_model import LogisticRegressionCV
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from gbm_constrained.linear_model import ConstrainedLogisticRegression
from gbm_constrained.metrics import f1_micro, g_mean, h_mean, min_recall, q_mean

RESULTS = Path(__file__).parent / "results" / "metrics"
METRICS: dict[str, Callable[[], Any]] = {
    "h_mean": h_mean,
    "g_mean": g_mean,
    "q_mean": q_mean,
    "f1_micro": f1_micro,
    "min_recall": min_recall,
}
SEEDS = range(10)
SETS = ("abalone", "page_blocks", "satimage")
# Means of the paper's best column, with two standard errors: Tables 6 and 7.
PAPER = {
    ("h_mean", "abalone"): (0.816, 0.020),
    ("h_mean", "page_blocks"): (0.110, 0.025),
    ("h_mean", "satimage"): (0.170, 0.006),
    ("f1_micro", "abalone"): (0.693, 0.006),
    ("f1_micro", "page_blocks"): (0.211, 0.016),
    ("f1_micro", "satimage"): (0.180, 0.005),
}
# The paper's algorithms run anew on its rows and splits, with standardised features.
RERUN = {
    ("h_mean", "abalone"): 0.793,
    ("h_mean", "page_blocks"): 0.090,
    ("h_mean", "satimage"): 0.170,
    ("f1_micro", "abalone"): 0.693,
    ("f1_micro", "page_blocks"): 0.192,
    ("f1_micro", "satimage"): 0.180,
}
FOREST = {"n_estimators": 100, "num_leaves": 15, "learning_rate": 0.05, "n_jobs": 1, "verbose": -1}


def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Read a set of the paper from the folder GBM_CONSTRAINED_DATA."""
    folder = Path(os.environ["GBM_CONSTRAINED_DATA"]) / "multiclass"
    table = pd.read_parquet(folder / f"{name}.parquet")
    X, y = table.iloc[:, :-1], table.iloc[:, -1]
    if name == "abalone":
        X = X.assign(**{"0": X["0"].map({"I": 0, "F": 1, "M": 2})})
        y = y.where((y > 4) & (y < 16), 4) - 4
    return X.to_numpy(np.float64), y.to_numpy().astype(np.int64)


def split(name: str, seed: int) -> tuple[np.ndarray, ...]:
    """Split a set as the paper does."""
    return tuple(train_test_split(*load(name), test_size=0.3, random_state=seed))


def default_class(name: str) -> int:
    """Find the most frequent class of all rows, which is the default class of micro F1."""
    classes, counts = np.unique(load(name)[1], return_counts=True)
    return int(classes[counts.argmax()])


def make_metric(metric: str, name: str) -> Any:
    """Make a metric."""
    return f1_micro(default=default_class(name)) if metric == "f1_micro" else METRICS[metric]()


def loss(metric: str, y: np.ndarray, shares: np.ndarray, default: int) -> float:
    """Compute one minus a metric of decision probabilities."""
    classes = np.unique(y)
    C = np.array([shares[y == c].sum(axis=0) for c in classes]) / y.size
    recalls = C.diagonal() / C.sum(axis=1)
    if metric == "f1_micro":
        k = int(np.searchsorted(classes, default))
        right = C.diagonal().sum() - C[k, k]
        return float(1 - 2 * right / (2 - C[k].sum() - C[:, k].sum()))
    if metric == "h_mean":
        return float(1 - len(recalls) / (1 / np.maximum(recalls, 1e-9)).sum())
    if metric == "g_mean":
        return float(1 - np.exp(np.log(np.maximum(recalls, 1e-300)).mean()))
    if metric == "q_mean":
        return float(np.sqrt(((1 - recalls) ** 2).mean()))
    return float(1 - recalls.min())


def fit_linear(metric: str, name: str, seed: int, oracle: str = "plug_in") -> dict[str, float]:
    """Fit a linear model of the paper's C."""
    X, X_test, y, y_test = split(name, seed)
    scaler = StandardScaler().fit(X)
    X, X_test = scaler.transform(X), scaler.transform(X_test)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search = LogisticRegressionCV(solver="newton-cg", cv=2, tol=1e-3, max_iter=1000)
        C = float(np.ravel(search.fit(X, y).C_)[0])
        model = ConstrainedLogisticRegression(
            C=C,
            solver="newton-cg",
            max_iter=1000,
            oracle=oracle,
            maximize=make_metric(metric, name),
        ).fit(X, y)
    report = model.metric_report_.set_index("decisions")["held_out"]
    returned = model.metric_report_.query("is_returned").iloc[0]
    plain = search.predict_proba(X_test)
    shares = np.bincount(np.searchsorted(search.classes_, y)) / y.size
    one_hot = np.eye(len(shares))
    measure = partial(loss, metric, y_test, default=default_class(name))
    return {
        "loss": measure(model.decision_probabilities(X_test)),
        "promised": 1 - returned["held_out"],
        "argmax": measure(one_hot[plain.argmax(axis=1)]),
        "prior": measure(one_hot[(plain / shares).argmax(axis=1)]),
        "promised_optimum": 1 - report["optimised"],
    }


def run_paper(results: Measurements) -> None:
    for metric, name in PAPER:
        found = [
            results.once(partial(fit_linear, metric, name, seed), metric, name, seed)
            for seed in SEEDS
        ]
        value = column(found, "loss")
        error = 2 * value.std() / np.sqrt(value.size)
        paper, paper_error = PAPER[metric, name]
        print(
            f"{metric:9s} {name:12s} loss {value.mean():.3f} +- {error:.3f} (argmax "
            f"{column(found, 'argmax').mean():.3f}, 1/prior {column(found, 'prior').mean():.3f}); "
            f"paper {paper:.3f} +- {paper_error:.3f}, its algorithms run anew "
            f"{RERUN[metric, name]:.3f}; promised {column(found, 'promised').mean():.3f}",
            flush=True,
        )


PARTS = {
    "paper": Part(
        run_paper,
        ("metric", "set", "seed"),
        ("loss", "promised", "argmax", "prior", "promised_optimum"),
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add_parts(parser, "parts", PARTS)
    parser.add_argument("--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    for name in arguments.parts or PARTS:
        part = PARTS[name]
        part.run(Measurements(arguments.output / f"{name}.csv", part.names, part.figures))


if __name__ == "__main__":
    main()
