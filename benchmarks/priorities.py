"""A budget that contradicts a recall: what priorities leave of each, on test rows.

Adult, COMPAS and the bundled sample of Credit, in five stratified splits, XGBoost and LightGBM
with 100 rounds. Each budget is too small for the recall that is asked for beside it. "budget
first" has ``[budget, recall.with_priority(2)]``, and "one priority" both without. The best
threshold is that of the plain booster's test scores, which no method may look at: it selects as
many rows as the budget allows, or as many as the model does.

    python benchmarks/priorities.py [--data adult] [--library xgboost] [--seeds 5]
        [--output FOLDER]

Each fit is a row of a CSV, and is not repeated while its row is there.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
from libraries import LIBRARIES, make, make_plain
from result_file import Figures, Table, at_least, make_parser, run_tables
from sklearn.model_selection import train_test_split

from gbm_constrained import recall, selection_rate
from gbm_constrained.datasets import load_adult, load_compas, load_credit

LOADERS = {"adult": load_adult, "compas": load_compas, "credit": load_credit}
BUDGETS = {"adult": (0.05, 0.3), "compas": (0.05, 0.3), "credit": (0.008, 0.85)}
METHODS = ("budget first", "one priority")


def best_recall(score: Any, y: Any, n_selected: int) -> float:
    """Compute the recall of so many rows with the highest scores."""
    highest = np.argsort(-score, kind="stable")[:n_selected]
    return float(y[highest].sum() / y.sum())


def fit(data: str, library: str, method: str, seed: int) -> Figures:
    """Train on seven tenths of the rows, and measure on the others."""
    table = LOADERS[data](download=False)
    y = np.asarray(table.target).astype(int)
    X, X_test, y, y_test = train_test_split(
        table.data, y, test_size=0.3, stratify=y, random_state=seed
    )
    budget, least = BUDGETS[data]
    priority = 2 if method == "budget first" else 1
    rules = [selection_rate() <= budget, (recall() >= least).with_priority(priority)]
    size = {"max_depth": 4} if library == "xgboost" else {"num_leaves": 15}
    options = {"n_estimators": 100, "learning_rate": 0.1, "n_jobs": 1, "random_state": 0, **size}
    model = make(library, rules, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model.fit(X, y)
    selected = model.predict(X_test) == 1
    score = make_plain(library, **options).fit(X, y).predict_proba(X_test)[:, 1]
    return {
        "selected": selected.mean(),
        "error_of_selected": float(np.sqrt(budget * (1.0 - budget) / y_test.size)),
        "recall": selected[y_test == 1].mean(),
        "held_out": model.constraint_report_["held_out"][0],
        "best_of_budget": best_recall(score, y_test, int(budget * y_test.size)),
        "best_of_same": best_recall(score, y_test, int(selected.sum())),
    }


def compare_budget(found: pd.DataFrame, data: str, *_: Any) -> dict[str, Any]:
    """Compute by how many standard errors the selected rows are beyond the budget."""
    budget, _ = BUDGETS[data]
    beyond = (found["selected"] - budget) / found["error_of_selected"]
    return {"budget": budget, "beyond": beyond.round(1).tolist()}


TABLES = {
    "priorities": Table(
        fit,
        {"data": LOADERS, "library": LIBRARIES, "method": METHODS, "seed": range(5)},
        "{data:6s} {library:8s} {method:12s} selected {selected:.4f} of {budget:g} (beyond by "
        "{beyond} standard errors); recall {recall:.3f}, best of the budget {best_of_budget:.3f}, "
        "of as many rows {best_of_same:.3f}",
        compare_budget,
    )
}


if __name__ == "__main__":
    run_tables(
        TABLES,
        "priorities",
        make_parser(__doc__),
        data=LOADERS,
        library=LIBRARIES,
        seed=at_least(1),
    )
