"""Constraints that are no linear functions of rates: met on unseen rows, and at what accuracy.

COMPAS by race and a sample of Adult by sex in five stratified halves, XGBoost and LightGBM with 60
rounds.

    python benchmarks/nonlinear_rules.py [nonlinear_rules calibration] [--dataset compas]
        [--library xgboost] [--output FOLDER]

- nonlinear_rules: one at a time of a gap of precision, average odds, a G-mean and a function of
  one's own (the Fowlkes-Mallows index). The constrained fit is compared with a moved threshold of
  the plain model (``solver="threshold"``), and with soft rates: the booster's own objective plus a
  multiplier times the rule of mean probabilities on the training rows, by which the multiplier
  moves as well, as the plain Lagrangian of TFCO does.
- calibration: a calibration error of all rows, that of each group, and its gap between groups.
  Models of weighted classes (``scale_pos_weight=3``) have probabilities that are too large, and
  others nearly calibrated ones. The constrained fit is compared with the plain model, and with
  scikit-learn's ``CalibratedClassifierCV`` (Platt's sigmoid and isotonic regression on four
  folds), which returns four boosters and curves of their scores.

Each fit is a row of a CSV, and is not repeated while its row is there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import pandas as pd
from libraries import LIBRARIES, make, make_plain
from lightgbm import LGBMClassifier
from result_file import Figures, Table, make_parser, run_tables
from scipy.special import expit
from sklearn.calibration import CalibratedClassifierCV
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from gbm_constrained import calibration_error, each, fpr, gap, precision, tpr
from gbm_constrained.datasets import load_adult, load_compas
from gbm_constrained.metrics import g_mean, metric

OPTIONS = {"n_estimators": 60, "learning_rate": 0.1, "n_jobs": 1, "random_state": 0}
AT_LEAST = ("g_mean", "own")  # Rules that are bounded from below.
BOUNDS = {
    "compas": {"gap of precision": 0.05, "average odds": 0.05, "g_mean": 0.66, "own": 0.66},
    "adult": {"gap of precision": 0.03, "average odds": 0.04, "g_mean": 0.8, "own": 0.71},
}


@cache
def load(dataset: str) -> tuple[pd.DataFrame, Any, Any]:
    """Load the features, the labels and the groups: race on COMPAS, sex on Adult."""
    data = load_compas() if dataset == "compas" else load_adult(download=False)
    y, groups = data.target.to_numpy(), data.sensitive_features
    group = groups["race"] == "African-American" if dataset == "compas" else groups["sex"]
    group = group.astype(str).to_numpy()
    labels = np.unique(y)
    X, y = pd.get_dummies(data.data, dtype=float), (y == labels[1]).astype(int)
    X.columns = [f"x{i}" for i in range(X.shape[1])]
    kept = np.random.default_rng(0).permutation(y.size)[:16_000]
    return X.iloc[kept].reset_index(drop=True), y[kept], group[kept]


def split_halves(dataset: str, seed: int) -> tuple[Any, ...]:
    """Split a table in halves: features, labels, and whether rows are in the first group."""
    X, y, group = load(dataset)
    return tuple(
        train_test_split(
            X, y, group == np.unique(group)[0], test_size=0.5, stratify=y, random_state=seed
        )
    )


def name_groups(is_first: Any) -> pd.DataFrame:
    """Name the groups of the rows."""
    return pd.DataFrame({"group": np.where(is_first, "first", "second")})


def measure_value(value: Callable[..., float], answers: Any, y: Any, is_first: Any) -> Any:
    """Compute what is bounded of the answers of a model, with the bootstrap's error."""
    rng = np.random.default_rng(0)
    drawn = [rng.integers(0, y.size, y.size) for _ in range(300)]
    replicates = [value(answers[d], y[d], is_first[d]) for d in drawn]
    return {"value": value(answers, y, is_first), "standard_error": float(np.std(replicates))}


# --------------------------------------------------------------------- functions of the rates


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


def decide(model: Any, method: str, X: Any) -> Any:
    """Decide rows; a model of soft rates gives margins or its rounded probabilities."""
    if method != "soft rates":
        return model.predict(X)
    raw = {"raw_score": True} if isinstance(model, LGBMClassifier) else {"output_margin": True}
    return (np.asarray(model.predict(X, **raw)) > 0.0).astype(int)


def fit_rule(dataset: str, library: str, rule: str, method: str, seed: int) -> Figures:
    """Train on one half, and measure on the other."""
    X, X_test, y, y_test, is_first, is_first_test = split_halves(dataset, seed)
    bound, held_out, named = BOUNDS[dataset][rule], np.nan, np.nan
    if method in ("constrained", "threshold"):
        solver = "auto" if method == "constrained" else "threshold"
        model = make(library, [rule_of(rule, bound)], solver=solver, **OPTIONS)
        model.fit(X, y, sensitive_features=name_groups(is_first))
        (report,) = model.constraint_report_.to_dict("records")
        # Whether the report of the fit names the rule as not met, beside what was measured.
        held_out, named = report["held_out"], float(not report["satisfied"])
    else:
        model = make_plain(library, **OPTIONS)
        if method == "plain":
            model.fit(X, y)
        else:
            fit_soft(model, rule, bound, X, y, is_first)
    decided = decide(model, method, X_test)
    return {
        **measure_value(partial(value_of, rule), decided, y_test, is_first_test),
        "accuracy": float((decided == y_test).mean()),
        "held_out": held_out,
        "named": named,
    }


def count_met(found: pd.DataFrame, dataset: str, library: str, rule: str, *_: Any) -> Any:
    """Count the splits that meet a rule, or within an error, and others that the report names."""
    bound = BOUNDS[dataset][rule]
    beyond = (found["value"] - bound) * (-1.0 if rule in AT_LEAST else 1.0)
    within = beyond <= found["standard_error"]
    named = (~within & (found["named"] == 1.0)).sum()
    return {"bound": bound, "met": (beyond <= 0).sum(), "within": within.sum(), "named": named}


# --------------------------------------------------------------------------- calibration errors
CASES = {  # Data, rule, bound and weight of positives.
    "error, weighted": ("compas", "error", 0.05, 3.0),
    "each, weighted": ("compas", "each", 0.06, 3.0),
    "error": ("compas", "error", 0.035, 1.0),
    "each": ("compas", "each", 0.045, 1.0),
    "gap, weighted": ("adult", "gap", 0.02, 3.0),
}
CALIBRATION_RULES = {
    "error": calibration_error,
    "each": lambda: each(calibration_error(), by="group"),
    "gap": lambda: gap(calibration_error(), by="group"),
}


def error_of(p: Any, y: Any) -> float:
    """Compute the expected calibration error in ten bins."""
    found = np.searchsorted(np.linspace(0.0, 1.0, 11)[1:-1], p)
    return float(np.abs(np.bincount(found, y - p, 10)).sum() / y.size)


def calibration_value(rule: str, p: Any, y: Any, is_first: Any) -> float:
    """Compute what a rule bounds."""
    errors = [error_of(p[g], y[g]) for g in (is_first, ~is_first)]
    return {"error": error_of(p, y), "each": max(errors), "gap": abs(errors[0] - errors[1])}[rule]


def fit_calibration(library: str, case: str, method: str, seed: int) -> Figures:
    """Train on one half, and measure on the other."""
    dataset, rule, bound, weight = CASES[case]
    X, X_test, y, y_test, is_first, is_first_test = split_halves(dataset, seed)
    options, held_out = {**OPTIONS, "scale_pos_weight": weight}, np.nan
    if method == "constrained":
        rules = [CALIBRATION_RULES[rule]() <= bound]
        model = make(library, rules, probabilities="calibrated", **options)
        model.fit(X, y, sensitive_features=name_groups(is_first))
        held_out = model.constraint_report_["held_out"][0]
    else:
        model = make_plain(library, **options)
        if method != "plain":
            model = CalibratedClassifierCV(model, method=method, cv=4)
        model.fit(X, y)
    p = model.predict_proba(X_test)[:, 1].astype(float)
    return {
        **measure_value(partial(calibration_value, rule), p, y_test, is_first_test),
        "log_loss": float(log_loss(y_test, p)),
        "accuracy": float(((p > 0.5) == y_test).mean()),
        "held_out": held_out,
    }


def count_calibrated(found: pd.DataFrame, library: str, case: str, *_: Any) -> Figures:
    """Count the splits that meet a bound, or within an error."""
    beyond = found["value"] - CASES[case][2]
    within = (beyond <= found["standard_error"]).sum()
    return {"bound": CASES[case][2], "met": (beyond <= 0).sum(), "within": within}


TABLES = {
    "nonlinear_rules": Table(
        fit_rule,
        {
            "dataset": BOUNDS,
            "library": LIBRARIES,
            "rule": BOUNDS["compas"],
            "method": ("constrained", "threshold", "soft rates", "plain"),
            "seed": range(5),
        },
        "{dataset:7s} {library:9s} {rule:17s} {method:12s} value {value:.4f} (bound {bound}, "
        "error {standard_error:.4f}); met {met}, within an error {within} of 5, named as not met "
        "{named} of the others; accuracy {accuracy:.4f}",
        count_met,
    ),
    "calibration": Table(
        fit_calibration,
        {
            "library": LIBRARIES,
            "case": CASES,
            "method": ("constrained", "plain", "sigmoid", "isotonic"),
            "seed": range(5),
        },
        "{library:9s} {case:15s} {method:12s} value {value:.4f} (bound {bound}, error "
        "{standard_error:.4f}); met {met}, within an error {within} of 5; held out "
        "{held_out:.4f}; log loss {log_loss:.4f}; accuracy {accuracy:.4f}",
        count_calibrated,
    ),
}


if __name__ == "__main__":
    run_tables(TABLES, "nonlinear_rules", make_parser(__doc__), dataset=BOUNDS, library=LIBRARIES)
