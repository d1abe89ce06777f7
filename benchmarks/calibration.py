"""Calibration errors as rules: met on unseen rows, and at what log loss and accuracy.

COMPAS by race and a sample of Adult by sex in five stratified halves, XGBoost and LightGBM with 60
rounds. The rules are a calibration error of all rows, that of each group, and its gap between
groups. Models of weighted classes (``scale_pos_weight=3``) have probabilities that are too large,
and others nearly calibrated ones.
The constrained fit is compared with the plain model, and with scikit-learn's
``CalibratedClassifierCV`` (Platt's sigmoid and isotonic regression on four folds), which returns
four boosters and curves of their scores.

    python benchmarks/calibration.py [--library xgboost] [--output FOLDER]

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
import pandas as pd
from nonlinear_rules import LIBRARIES, OPTIONS, REPLICATES, SEEDS, load
from result_file import Measurements, column
from sklearn.calibration import CalibratedClassifierCV
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from gbm_constrained import calibration_error, each, gap

CASES = {  # Data, rule, bound and weight of positives.
    "error, weighted": ("compas", "error", 0.05, 3.0),
    "each, weighted": ("compas", "each", 0.06, 3.0),
    "error": ("compas", "error", 0.035, 1.0),
    "each": ("compas", "each", 0.045, 1.0),
    "gap, weighted": ("adult", "gap", 0.02, 3.0),
}
RULES = {
    "error": calibration_error,
    "each": lambda: each(calibration_error(), by="group"),
    "gap": lambda: gap(calibration_error(), by="group"),
}
METHODS = ("constrained", "plain", "sigmoid", "isotonic")
NAMES = ("library", "case", "method", "seed")
FIGURES = ("value", "standard_error", "log_loss", "accuracy", "held_out")
RESULTS = Path(__file__).parent / "results" / "calibration"
BINS = 10


def error_of(p: Any, y: Any) -> float:
    """Compute the expected calibration error."""
    found = np.searchsorted(np.linspace(0.0, 1.0, BINS + 1)[1:-1], p)
    return float(np.abs(np.bincount(found, y - p, BINS)).sum() / y.size)


def value_of(rule: str, p: Any, y: Any, is_first: Any) -> float:
    """Compute what a rule bounds."""
    errors = [error_of(p[g], y[g]) for g in (is_first, ~is_first)]
    return {"error": error_of(p, y), "each": max(errors), "gap": abs(errors[0] - errors[1])}[rule]


def fit(library: str, case: str, method: str, seed: int) -> dict[str, float]:
    """Train on one half, and measure on the other."""
    dataset, rule, bound, weight = CASES[case]
    X, y, group = load(dataset)
    rows, test = train_test_split(np.arange(y.size), test_size=0.5, stratify=y, random_state=seed)
    constrained, plain, quiet = LIBRARIES[library]
    options, held_out = {**OPTIONS, **quiet, "scale_pos_weight": weight}, np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if method == "constrained":
            rules = [RULES[rule]() <= bound]
            model = constrained(constraints=rules, probabilities="calibrated", **options)
            groups = pd.DataFrame({"group": group[rows]})
            model.fit(X.iloc[rows], y[rows], sensitive_features=groups)
            held_out = model.constraint_report_["held_out"][0]
        else:
            model = plain(**options)
            if method != "plain":
                model = CalibratedClassifierCV(model, method=method, cv=4)
            model.fit(X.iloc[rows], y[rows])
    p, of_test = model.predict_proba(X.iloc[test])[:, 1].astype(float), y[test]
    is_first = group[test] == np.unique(group)[0]
    rng = np.random.default_rng(0)
    drawn = [rng.integers(0, test.size, test.size) for _ in range(REPLICATES)]
    replicates = [value_of(rule, p[d], of_test[d], is_first[d]) for d in drawn]
    return {
        "value": value_of(rule, p, of_test, is_first),
        "standard_error": float(np.std(replicates)),
        "log_loss": float(log_loss(of_test, p)),
        "accuracy": float(((p > 0.5) == of_test).mean()),
        "held_out": held_out,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--library", choices=LIBRARIES, nargs="*", default=list(LIBRARIES))
    parser.add_argument("--output", type=Path, default=RESULTS)
    asked = parser.parse_args()
    results = Measurements(asked.output / "calibration.csv", NAMES, FIGURES)
    for library, case, method in itertools.product(asked.library, CASES, METHODS):
        found = [
            results.once(partial(fit, library, case, method, seed), library, case, method, seed)
            for seed in SEEDS
        ]
        bound, value, error = (
            CASES[case][2],
            column(found, "value"),
            column(found, "standard_error"),
        )
        print(
            f"{library:9s} {case:15s} {method:12s} value {value.mean():.4f} (bound {bound}, error "
            f"{error.mean():.4f}); met {int((value <= bound).sum())}, within an error "
            f"{int((value <= bound + error).sum())} of 5; held out "
            f"{column(found, 'held_out').mean():.4f}; log loss "
            f"{column(found, 'log_loss').mean():.4f}; accuracy "
            f"{column(found, 'accuracy').mean():.4f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
