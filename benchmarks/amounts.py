"""Rules that count money: the value of missed fraud on Credit, and what it costs in false alarms.

The bundled sample of Credit in five stratified halves, XGBoost and LightGBM with 100 rounds, under
``fnr(weight="Amount") <= 0.1``. The peers are the plain booster with a threshold on its score that
misses a tenth of the value at most: on the same held-out rows as the constrained fit
(``solver="threshold"``), and on folds of its own, written without this package.

    python benchmarks/amounts.py [--library xgboost] [--output FOLDER]

Each fit is a row of a CSV, and is not repeated while its row is there.
"""

from __future__ import annotations

import argparse
import itertools
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from lightgbm import LGBMClassifier
from result_file import Measurements, column
from sklearn.model_selection import StratifiedKFold, cross_val_predict, train_test_split
from xgboost import XGBClassifier

from gbm_constrained import ConstrainedLGBMClassifier, ConstrainedXGBClassifier, fnr
from gbm_constrained.datasets import load_credit

BOUND, SEEDS, REPLICATES = 0.1, range(5), 2000
OPTIONS = {"n_estimators": 100, "learning_rate": 0.1, "n_jobs": 2, "random_state": 0}
LIBRARIES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "xgboost": (ConstrainedXGBClassifier, XGBClassifier, {"verbosity": 0}),
    "lightgbm": (ConstrainedLGBMClassifier, LGBMClassifier, {"verbose": -1}),
}
METHODS = ("constrained", "threshold", "own folds")
NAMES = ("library", "method", "seed")
FIGURES = ("missed_value", "standard_error", "missed_rows", "false_alarms", "held_out")
RESULTS = Path(__file__).parent / "results" / "amounts"


def threshold_for_value(score: Any, y: Any, amount: Any) -> float:
    """Find the highest threshold under which at most a tenth of the value scores below it."""
    order = np.argsort(score[y == 1])
    value = amount[y == 1][order]
    missed = np.cumsum(value) / value.sum()
    return float(score[y == 1][order][np.searchsorted(missed, BOUND, side="right")])


def measure(decided: Any, y: Any, amount: Any, held_out: float) -> dict[str, float]:
    """Count the value and the rows that are missed, with the bootstrap's error, and alarms."""
    missed, value = decided[y == 1] == 0, amount[y == 1]
    drawn = np.random.default_rng(0).integers(0, value.size, (REPLICATES, value.size))
    shares = (value * missed)[drawn].sum(axis=1) / value[drawn].sum(axis=1)
    return {
        "missed_value": value @ missed / value.sum(),
        "standard_error": shares.std(),
        "missed_rows": missed.mean(),
        "false_alarms": decided[y == 0].mean(),
        "held_out": held_out,
    }


def fit(library: str, method: str, seed: int) -> dict[str, float]:
    """Train on one half, and measure on the other."""
    data = load_credit(download=False)
    X, X_test, y, y_test = train_test_split(
        data.data, data.target.to_numpy(), test_size=0.5, stratify=data.target, random_state=seed
    )
    amount, amount_test = (table["Amount"].to_numpy(np.float64) for table in (X, X_test))
    constrained, plain, quiet = LIBRARIES[library]
    if method != "own folds":
        solver = "auto" if method == "constrained" else "threshold"
        rules = [fnr(weight="Amount") <= BOUND]
        model = constrained(constraints=rules, solver=solver, **OPTIONS, **quiet)
        model.fit(X, y)
        decided, held_out = model.predict(X_test), model.constraint_report_["held_out"][0]
    else:
        model = plain(**OPTIONS, **quiet)
        folds = StratifiedKFold(5, shuffle=True, random_state=0)
        score = cross_val_predict(model, X, y, cv=folds, method="predict_proba")[:, 1]
        threshold = threshold_for_value(score, y, amount)
        held_out = amount[(y == 1) & (score < threshold)].sum() / amount[y == 1].sum()
        decided = (model.fit(X, y).predict_proba(X_test)[:, 1] >= threshold).astype(int)
    return measure(decided, y_test, amount_test, held_out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--library", choices=LIBRARIES, nargs="*", default=list(LIBRARIES))
    parser.add_argument("--output", type=Path, default=RESULTS)
    asked = parser.parse_args()
    results = Measurements(asked.output / "amounts.csv", NAMES, FIGURES)
    for library, method in itertools.product(asked.library, METHODS):
        found = [
            results.once(partial(fit, library, method, seed), library, method, seed)
            for seed in SEEDS
        ]
        missed, error = column(found, "missed_value"), column(found, "standard_error")
        print(
            f"{library:9s} {method:12s} missed value {missed.mean():.4f} "
            f"(splits {missed.round(3)}, bootstrap {error.mean():.4f}); false alarms "
            f"{column(found, 'false_alarms').mean():.5f}; missed rows "
            f"{column(found, 'missed_rows').mean():.4f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
