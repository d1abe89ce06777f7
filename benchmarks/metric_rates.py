"""Recall under bounds on false positives, precision and alerts, against searches of thresholds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from lightgbm import LGBMClassifier
from metric_data import LIGHTGBM, N_FOLDS, XGBOOST, load_groups, make
from sklearn.model_selection import StratifiedKFold, cross_val_predict, train_test_split
from xgboost import XGBClassifier

from gbm_constrained import fpr, precision, ratio, recall, selection_rate

RECALL_SETS = ("adult_age", "bank_age", "default_credit")
RECALL_FIGURES = ("fitted", "one", "two", "bound", "error", "ratio", "ratio_two", "rules")
MOST_FPR, LEAST_RATIO, MOST_ALERTS = 0.05, 0.8, 0.01
LEAST_PRECISION = {"adult_age": 0.8, "bank_age": 0.6, "default_credit": 0.6}
FEATURE = ", group a feature"
BOUNDS = ("fpr and ratio", f"fpr and ratio{FEATURE}", "precision", "alerts")
# Of the thresholds of groups, as many false positive rates as are tried for each.
N_TRIED = 400


def measure_recall(name: str, library: str, bounds: str, split: int) -> dict[str, float]:
    """Measure recall on test rows: of the fit, of one threshold, and of one for each group."""
    table = load_groups(name, is_feature=bounds.endswith("feature"))
    assert table.groups is not None
    parts = train_test_split(*table, test_size=0.3, random_state=split)
    X, X_test, y, y_test, groups, groups_test = parts
    group, group_test = groups["group"].to_numpy(), groups_test["group"].to_numpy()
    constraints: list[Any] = {
        "fpr and ratio": [fpr() <= MOST_FPR, ratio(fpr(), by="group") >= LEAST_RATIO],
        "precision": [precision() >= LEAST_PRECISION[name]],
        "alerts": [selection_rate() <= MOST_ALERTS],
    }[bounds.removesuffix(FEATURE)]
    fitted = make(library, maximize=recall(), constraints=constraints)
    fitted.fit(X, y, sensitive_features=groups)
    plain = XGBClassifier(**XGBOOST) if library == "xgboost" else LGBMClassifier(**LIGHTGBM)
    folds = StratifiedKFold(N_FOLDS, shuffle=True, random_state=0)
    held_out = cross_val_predict(plain, X, y, cv=folds, method="predict_proba")[:, 1]
    score = plain.fit(X, y).predict_proba(X_test)[:, 1]
    one = score >= _find_threshold(held_out, y, bounds, name)
    two = one
    if bounds.startswith("fpr"):
        two = np.zeros(len(score), dtype=bool)
        for g, threshold in _find_thresholds(held_out, y, group).items():
            two[group_test == g] = score[group_test == g] >= threshold
    p = fitted.decision_probabilities(X_test)[:, 1]
    bounded, error = _bounded_rate(bounds, y_test, p)
    return {
        "fitted": float(p[y_test == 1].mean()),
        "one": float(one[y_test == 1].mean()),
        "two": float(two[y_test == 1].mean()),
        "bound": bounded,
        "error": error,
        "ratio": _ratio_of_fpr(p, y_test, group_test),
        "ratio_two": _ratio_of_fpr(two, y_test, group_test),
        "rules": float(len(fitted.mixture_)),
    }


def _find_threshold(score: Any, y: Any, bounds: str, name: str) -> float:
    """Find the threshold of largest recall that meets the bound on a rate of all rows."""
    order = np.argsort(-score, kind="stable")
    positives = np.cumsum(y[order])
    selected = np.arange(1, len(y) + 1)
    if bounds == "precision":
        is_met = positives >= LEAST_PRECISION[name] * selected
    elif bounds == "alerts":
        is_met = selected <= MOST_ALERTS * len(y)
    else:
        is_met = selected - positives <= MOST_FPR * (y == 0).sum()
    is_met &= np.append(np.diff(score[order]) < 0, True)  # Equal scores are decided alike.
    return float(score[order][np.flatnonzero(is_met)[-1]]) if is_met.any() else np.inf


def _find_thresholds(score: Any, y: Any, group: Any) -> dict[Any, float]:
    """Find the thresholds of two groups with the largest recall under both bounds."""
    names = np.unique(group)
    negatives = [np.sort(score[(group == g) & (y == 0)])[::-1] for g in names]
    positives = [np.sort(score[(group == g) & (y == 1)]) for g in names]
    rates = np.linspace(0.0, 4.0 * MOST_FPR, N_TRIED + 1)[1:]
    # Each threshold lies at the last negative that its rate allows.
    at = [np.minimum((rates * n.size).astype(int), n.size - 1) for n in negatives]
    thresholds = [np.nextafter(n[i], 2.0) for n, i in zip(negatives, at, strict=True)]
    hits = [p.size - np.searchsorted(p, t) for p, t in zip(positives, thresholds, strict=True)]
    a, b = rates[:, None], rates[None, :]
    share = negatives[0].size / (negatives[0].size + negatives[1].size)
    is_met = (share * a + (1.0 - share) * b <= MOST_FPR) & (
        np.minimum(a, b) >= LEAST_RATIO * np.maximum(a, b)
    )
    total = np.where(is_met, hits[0][:, None] + hits[1][None, :], -1)
    i, j = np.unravel_index(total.argmax(), total.shape)
    return {names[0]: float(thresholds[0][i]), names[1]: float(thresholds[1][j])}


def _bounded_rate(bounds: str, y: Any, p: Any) -> tuple[float, float]:
    """Measure the bounded rate of all rows, and its standard error."""
    if bounds == "precision":
        found = float(p[y == 1].sum() / p.sum()) if p.sum() else 1.0
        return found, float(np.sqrt(found * (1 - found) / max(p.sum(), 1.0)))
    counted = p[y == 0] if bounds.startswith("fpr") else p
    return float(counted.mean()), float(counted.std() / np.sqrt(counted.size))


def _ratio_of_fpr(p: Any, y: Any, group: Any) -> float:
    """Measure the smallest false positive rate of a group over the largest one."""
    rates = [p[(group == g) & (y == 0)].mean() for g in np.unique(group)]
    return float(min(rates) / max(rates)) if max(rates) else np.nan


def print_recall(name: str, library: str, bounds: str, rows: Sequence[Any]) -> None:
    """Print a line of the table."""
    of = {figure: np.array([row[figure] for row in rows]) for figure in RECALL_FIGURES}
    n = np.sqrt(len(rows))
    means = {figure: values.mean() for figure, values in of.items()}
    for figure in ("one", "two"):
        lost = of["fitted"] - of[figure]
        means[f"to {figure}"] = lost.mean()
        means[f"± {figure}"] = lost.std(ddof=1) / n if len(rows) > 1 else np.nan
    print(f"{name:15} {library:9} {bounds:32} recall {means['fitted']:.3f}, one threshold "
          f"{means['one']:.3f} ({means['to one']:+.4f} ± {means['± one']:.4f}), of groups "
          f"{means['two']:.3f} ({means['to two']:+.4f} ± {means['± two']:.4f}), rate "
          f"{means['bound']:.4f} ± {means['error']:.4f}, ratio {means['ratio']:.3f} (of groups "
          f"{means['ratio_two']:.3f})", flush=True)  # fmt: skip
