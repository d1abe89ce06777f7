"""Rules that are no linear functions of rates: met on unseen rows, and at what accuracy.

COMPAS and a sample of Adult in five stratified halves, XGBoost and LightGBM with 60 rounds, under
one rule at a time: a gap of precision, average odds, a G-mean and a function of one's own (the
Fowlkes-Mallows index). The constrained fit is compared with a moved threshold of the plain model
(``solver="threshold"``), and with soft rates: the booster's own objective plus a multiplier times
the rule of mean probabilities on the training rows, by which the multiplier moves as well, as the
plain Lagrangian of TFCO does.

    python benchmarks/nonlinear_rules.py [--dataset compas] [--output FOLDER]

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
from lightgbm import LGBMClassifier
from result_file import Measurements, column
from scipy.special import expit
from sklearn.model_selection import train_test_split
from xgboost import XGBClassifier

from gbm_constrained import (
    ConstrainedLGBMClassifier,
    ConstrainedXGBClassifier,
    fpr,
    gap,
    precision,
    tpr,
)
from gbm_constrained.datasets import load_adult, load_compas
from gbm_constrained.metrics import g_mean, metric

SEEDS, REPLICATES, ADULT_ROWS = range(5), 300, 16_000
OPTIONS = {"n_estimators": 60, "learning_rate": 0.1, "n_jobs": 1, "random_state": 0}
LIBRARIES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "xgboost": (ConstrainedXGBClassifier, XGBClassifier, {"verbosity": 0}),
    "lightgbm": (ConstrainedLGBMClassifier, LGBMClassifier, {"verbose": -1}),
}
RULES = ("gap of precision", "average odds", "g_mean", "own")
BOUNDS = {
    "compas": {"gap of precision": 0.05, "average odds": 0.05, "g_mean": 0.66, "own": 0.66},
    "adult": {"gap of precision": 0.03, "average odds": 0.04, "g_mean": 0.8, "own": 0.71},
}
METHODS = ("constrained", "threshold", "soft rates", "plain")
NAMES = ("dataset", "library", "rule", "method", "seed")
# Whether the report of the fit names the rule as not met, beside what was measured.
FIGURES = ("value", "standard_error", "accuracy", "held_out", "named")
RESULTS = Path(__file__).parent / "results" / "nonlinear_rules"


def fowlkes_mallows(C: Any) -> float:
    """Geometric mean of precision and recall."""
    found, labelled = C[:, 1].sum(), C[1].sum()
    return float(C[1, 1] / np.sqrt(found * labelled)) if min(found, labelled) > 0 else 0.0


def rule_of(name: str, bound: float) -> Any:
    """Write a rule as a constraint."""
    return {
        "gap of precision": lambda: gap(precision(), by="group") <= bound,
        "average odds": lambda: (gap(fpr(), by="group") + gap(tpr(), by="group")) / 2 <= bound,
        "g_mean": lambda: g_mean() >= bound,
        "own": lambda: metric(fowlkes_mallows, kind="other") >= bound,
    }[name]()


def value_of(name: str, p: Any, y: Any, is_first: Any) -> float:
    """Compute a rule from decisions, or from probabilities in their place."""
    groups = is_first, ~is_first

    def rate(rows: Any) -> float:
        return float(p[rows].mean())

    if name == "gap of precision":
        found = [float((p * y)[g].sum() / max(p[g].sum(), 1e-9)) for g in groups]
        return abs(found[0] - found[1])
    if name == "average odds":
        gaps = [abs(rate(groups[0] & (y == k)) - rate(groups[1] & (y == k))) for k in (0, 1)]
        return sum(gaps) / 2
    if name == "g_mean":
        return float(np.sqrt(rate(y == 1) * (1.0 - rate(y == 0))))
    return float((p * y).sum() / np.sqrt(max(p.sum(), 1e-9) * y.sum()))


def fit_soft(model: Any, name: str, bound: float, X: Any, y: Any, is_first: Any) -> Any:
    """Train under the rule of mean probabilities; returns the decisions of the model."""
    sign = -1.0 if name in ("g_mean", "own") else 1.0
    # Rates are linear in probabilities, so that rows of one label and group share a derivative.
    kinds = 2 * y + is_first
    members = [kinds == kind for kind in range(4)]
    price = 0.0

    def objective(y_true: Any, margin: Any) -> tuple[Any, Any]:
        nonlocal price
        p = expit(margin)
        price = max(price + sign * (value_of(name, p, y, is_first) - bound), 0.0)
        slope = np.zeros(p.size)
        for rows in members:
            up, down = p + 1e-5 * rows, p - 1e-5 * rows
            moved = value_of(name, up, y, is_first) - value_of(name, down, y, is_first)
            slope[rows] = sign * moved / 2e-5 / max(rows.sum(), 1)
        own = p - y
        return own + price * p.size * slope * p * (1.0 - p), np.maximum(p * (1.0 - p), 1e-6)

    model.set_params(objective=objective).fit(X, y)
    return model


def load(dataset: str) -> tuple[pd.DataFrame, Any, Any]:
    """Load the features, the labels and the groups: race on COMPAS, sex on Adult."""
    data = load_compas() if dataset == "compas" else load_adult(download=False)
    y, groups = data.target.to_numpy(), data.sensitive_features
    group = groups["race"] == "African-American" if dataset == "compas" else groups["sex"]
    group = group.astype(str).to_numpy()
    labels = np.unique(y)
    X, y = pd.get_dummies(data.data, dtype=float), (y == labels[1]).astype(int)
    X.columns = [f"x{i}" for i in range(X.shape[1])]
    kept = np.random.default_rng(0).permutation(y.size)[:ADULT_ROWS]
    return X.iloc[kept].reset_index(drop=True), y[kept], group[kept]


def decide(model: Any, method: str, X: Any) -> Any:
    """Decide rows; a model of soft rates gives margins or its rounded probabilities."""
    if method != "soft rates":
        return model.predict(X)
    raw = {"raw_score": True} if isinstance(model, LGBMClassifier) else {"output_margin": True}
    return (np.asarray(model.predict(X, **raw)) > 0.0).astype(int)


def fit(dataset: str, library: str, rule: str, method: str, seed: int) -> dict[str, float]:
    """Train on one half, and measure on the other."""
    X, y, group = load(dataset)
    rows, test = train_test_split(np.arange(y.size), test_size=0.5, stratify=y, random_state=seed)
    first = np.unique(group)[0]
    bound, held_out, named = BOUNDS[dataset][rule], np.nan, np.nan
    constrained, plain, quiet = LIBRARIES[library]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if method in ("constrained", "threshold"):
            solver = "auto" if method == "constrained" else "threshold"
            model = constrained(
                constraints=[rule_of(rule, bound)], solver=solver, **OPTIONS, **quiet
            )
            groups = pd.DataFrame({"group": group[rows]})
            model.fit(X.iloc[rows], y[rows], sensitive_features=groups)
            (report,) = model.constraint_report_.to_dict("records")
            held_out, named = report["held_out"], float(not report["satisfied"])
        else:
            model = plain(**OPTIONS, **quiet)
            if method == "plain":
                model.fit(X.iloc[rows], y[rows])
            else:
                fit_soft(model, rule, bound, X.iloc[rows], y[rows], group[rows] == first)
        decided = decide(model, method, X.iloc[test])
    value = partial(value_of, rule)
    rng = np.random.default_rng(0)
    drawn = [rng.integers(0, test.size, test.size) for _ in range(REPLICATES)]
    replicates = [value(decided[d], y[test][d], group[test][d] == first) for d in drawn]
    return {
        "value": value(decided, y[test], group[test] == first),
        "standard_error": float(np.std(replicates)),
        "accuracy": float((decided == y[test]).mean()),
        "held_out": held_out,
        "named": named,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--dataset", choices=BOUNDS, nargs="*", default=list(BOUNDS))
    parser.add_argument("--library", choices=LIBRARIES, nargs="*", default=list(LIBRARIES))
    parser.add_argument("--output", type=Path, default=RESULTS)
    asked = parser.parse_args()
    results = Measurements(asked.output / "nonlinear_rules.csv", NAMES, FIGURES)
    cases = itertools.product(asked.dataset, asked.library, RULES, METHODS)
    for dataset, library, rule, method in cases:
        found = [
            results.once(partial(fit, dataset, library, rule, method, seed),
                         dataset, library, rule, method, seed)
            for seed in SEEDS
        ]  # fmt: skip
        bound = BOUNDS[dataset][rule]
        sign = -1.0 if rule in ("g_mean", "own") else 1.0
        value, error = column(found, "value"), column(found, "standard_error")
        beyond = sign * (value - bound)
        print(
            f"{dataset:7s} {library:9s} {rule:17s} {method:12s} value {value.mean():.4f} (bound "
            f"{bound}, error {error.mean():.4f}); met {int((beyond <= 0).sum())}, within an error "
            f"{int((beyond <= error).sum())} of 5, named as not met "
            f"{int(((beyond > error) & (column(found, 'named') == 1.0)).sum())} of the others; "
            f"accuracy {column(found, 'accuracy').mean():.4f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
