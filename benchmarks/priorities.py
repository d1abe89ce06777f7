"""A budget that contradicts a recall: what priorities leave of each, on test rows.

Adult, COMPAS and the bundled sample of Credit, in five stratified splits, XGBoost and LightGBM
with 100 rounds. Each budget is too small for the recall that is asked for beside it. "budget
first" has ``[budget, recall.with_priority(2)]``, and "one priority" both without. The best
threshold is that of the plain booster's test scores, which no method may look at: it selects as
many rows as the budget allows, or as many as the model does.

    python benchmarks/priorities.py [--library xgboost] [--splits 5] [--output FOLDER]

Each fit is a row of a CSV, and is not repeated while its row is there.
"""

from __future__ import annotations

import argparse
import itertools
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from arguments import at_least
from lightgbm import LGBMClassifier
from result_file import Measurements, column
from sklearn.model_selection import train_test_split
from xgboost import XGBClassifier

from gbm_constrained import (
    ConstrainedLGBMClassifier,
    ConstrainedXGBClassifier,
    recall,
    selection_rate,
)
from gbm_constrained.datasets import load_adult, load_compas, load_credit

LOADERS = {"adult": load_adult, "compas": load_compas, "credit": load_credit}
BUDGETS = {"adult": (0.05, 0.3), "compas": (0.05, 0.3), "credit": (0.008, 0.85)}
OPTIONS = {"n_estimators": 100, "learning_rate": 0.1, "n_jobs": 1, "random_state": 0}
LIBRARIES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "xgboost": (
        ConstrainedXGBClassifier,
        XGBClassifier,
        {"verbosity": 0, "max_depth": 4, "enable_categorical": True},
    ),
    "lightgbm": (ConstrainedLGBMClassifier, LGBMClassifier, {"verbose": -1, "num_leaves": 15}),
}
METHODS = ("budget first", "one priority")
NAMES = ("data", "library", "method", "seed")
FIGURES = ("selected", "error_of_selected", "recall", "held_out", "best_of_budget", "best_of_same")
RESULTS = Path(__file__).parent / "results" / "priorities"


def best_recall(score: Any, y: Any, n_selected: int) -> float:
    """Compute the recall of so many rows with the highest scores."""
    highest = np.argsort(-score, kind="stable")[:n_selected]
    return float(y[highest].sum() / y.sum())


def fit(data: str, library: str, method: str, seed: int) -> dict[str, float]:
    """Train on seven tenths of the rows, and measure on the others."""
    table = LOADERS[data](download=False)
    y = np.asarray(table.target).astype(int)
    X, X_test, y, y_test = train_test_split(
        table.data, y, test_size=0.3, stratify=y, random_state=seed
    )
    budget, least = BUDGETS[data]
    priority = 2 if method == "budget first" else 1
    rules = [selection_rate() <= budget, (recall() >= least).with_priority(priority)]
    constrained, plain, others = LIBRARIES[library]
    model = constrained(constraints=rules, **OPTIONS, **others)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model.fit(X, y)
    selected = model.predict(X_test) == 1
    score = plain(**OPTIONS, **others).fit(X, y).predict_proba(X_test)[:, 1]
    return {
        "selected": selected.mean(),
        "error_of_selected": float(np.sqrt(budget * (1.0 - budget) / y_test.size)),
        "recall": selected[y_test == 1].mean(),
        "held_out": model.constraint_report_["held_out"][0],
        "best_of_budget": best_recall(score, y_test, int(budget * y_test.size)),
        "best_of_same": best_recall(score, y_test, int(selected.sum())),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", choices=LOADERS, nargs="*", default=list(LOADERS))
    parser.add_argument("--library", choices=LIBRARIES, nargs="*", default=list(LIBRARIES))
    parser.add_argument("--splits", type=at_least(1), default=5)
    parser.add_argument("--output", type=Path, default=RESULTS)
    asked = parser.parse_args()
    results = Measurements(asked.output / "priorities.csv", NAMES, FIGURES)
    for data, library, method in itertools.product(asked.data, asked.library, METHODS):
        found = [
            results.once(partial(fit, data, library, method, seed), data, library, method, seed)
            for seed in range(asked.splits)
        ]
        budget, _ = BUDGETS[data]
        beyond = (column(found, "selected") - budget) / column(found, "error_of_selected")
        print(
            f"{data:6s} {library:8s} {method:12s} selected {column(found, 'selected').mean():.4f} "
            f"of {budget:g} (beyond by {beyond.round(1)} standard errors); recall "
            f"{column(found, 'recall').mean():.3f}, best of the budget "
            f"{column(found, 'best_of_budget').mean():.3f}, of as many rows "
            f"{column(found, 'best_of_same').mean():.3f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
