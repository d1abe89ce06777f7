"""Rates of groups, churn and many constraints at once: what is reached, with defaults only.

Adult and COMPAS in 70/30 splits with random states 0, 1, 2; 300 rounds, learning rate 0.1, all
else the libraries' defaults. Constraints are measured on the training rows; test figures show what
is left of them on others.

    python benchmarks/rates.py [gaps growth odds compas requested churn defaults]
        [--library xgboost] [--jobs 2] [--output FOLDER]

Each fit is a row of a CSV of its part, and is not repeated while its row is there.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pandas as pd
from libraries import LIBRARIES
from libraries import make as make_model
from result_file import Figures, Table, make_parser, run_tables
from sklearn.model_selection import train_test_split

from gbm_constrained import churn, error_rate, fpr, gap, recall, selection_rate, tpr
from gbm_constrained.datasets import load_adult, load_compas

RATES = {"selection_rate": selection_rate, "fpr": fpr, "tpr": tpr, "error_rate": error_rate}
# How trees are grown: the libraries' defaults, and each as the other does by default.
GROWTH: dict[tuple[str, str], dict[str, Any]] = {
    ("xgboost", "by depth"): {},
    ("xgboost", "by leaves"): {"grow_policy": "lossguide", "max_leaves": 31, "max_depth": 0},
    ("lightgbm", "by leaves"): {},
    ("lightgbm", "to depth 6"): {"max_depth": 6, "num_leaves": 64},
}
SHARED: dict[str, Any] = {
    "n_estimators": 300, "learning_rate": 0.1, "n_jobs": 2, "measure_on": "train",
}  # fmt: skip


def make(library: str, constraints: Any, **parameters: Any) -> Any:
    """Make a classifier with the benchmark's rounds."""
    return make_model(library, constraints, **{**SHARED, **parameters})


def adult(seed: int) -> tuple[Any, ...]:
    data = load_adult(download=False)
    parts = train_test_split(
        data.data, data.target.to_numpy(), data.sensitive_features["sex"],
        test_size=0.3, random_state=seed,
    )  # fmt: skip
    return tuple(parts)


def gap_of(rate: str, y: Any, decisions: Any, groups: Any) -> float:
    """Gap of a rate between groups, counted."""
    inside = {"fpr": y == 0, "tpr": y == 1}.get(rate, np.ones(y.size, dtype=bool))
    value = decisions != y if rate == "error_rate" else decisions == 1
    by_group = pd.Series(value[inside]).groupby(np.asarray(groups)[inside]).mean()
    return float(by_group.max() - by_group.min())


def last_quarter(clf: Any) -> float:
    """Largest relative range of a multiplier over the last quarter of the iterations."""
    history = clf.history_.filter(like="multiplier[")
    tail = history.iloc[-len(history) // 4 :]
    spread = (tail.max() - tail.min()) / tail.mean().where(tail.mean() > 0, np.inf)
    return float(spread.max())


def fit_gap(library: str, rate: str, seed: int, **parameters: Any) -> Figures:
    """Fit a gap between the sexes on Adult, measured on the training rows."""
    X, X_test, y, y_test, sex, sex_test = adult(seed)
    clf = make(library, [gap(RATES[rate](), by="sex") <= 0.01], **parameters)
    clf.fit(X, y, sensitive_features=sex)
    test = clf.predict(X_test)
    return {
        "training_gap": gap_of(rate, y, clf.predict(X), sex),
        "test_accuracy": np.mean(test == y_test),
        "test_gap": gap_of(rate, y_test, test, sex_test),
        "multiplier_range": last_quarter(clf),
    }


def fit_grown(library: str, growth: str, seed: int) -> Figures:
    """Fit a gap of false positive rates with trees grown in one way."""
    return fit_gap(library, "fpr", seed, **GROWTH[library, growth])


def fit_odds(library: str, seed: int) -> Figures:
    """Fit equalized odds on Adult."""
    X, X_test, y, y_test, sex, sex_test = adult(seed)
    rules = [gap(tpr(), by="sex") <= 0.02, gap(fpr(), by="sex") <= 0.02]
    clf = make(library, rules).fit(X, y, sensitive_features=sex)
    train, test = clf.predict(X), clf.predict(X_test)
    return {
        "training_tpr": gap_of("tpr", y, train, sex),
        "training_fpr": gap_of("fpr", y, train, sex),
        "test_tpr": gap_of("tpr", y_test, test, sex_test),
        "test_fpr": gap_of("fpr", y_test, test, sex_test),
        "test_accuracy": np.mean(test == y_test),
    }


def fit_compas(library: str, seed: int) -> Figures:
    """Fit a gap of error rates over the races of COMPAS with 300 rows or more."""
    data = load_compas(download=False)
    X, X_test, y, y_test, race, race_test = train_test_split(
        data.data, np.asarray(data.target), data.sensitive_features["race"],
        test_size=0.3, random_state=seed,
    )  # fmt: skip
    rule = gap(error_rate(), by="race", min_group_size=300, small_groups="drop") <= 0.05
    clf = make(library, [rule]).fit(X, y, sensitive_features=race)
    kept = [name.partition("=")[2] for name in clf.group_report_["group"]]
    inside = np.isin(np.asarray(race_test), kept)
    test = clf.predict(X_test)
    return {
        "groups": len(kept),
        "training_gap": clf.constraint_report_["train"].iloc[0],
        "test_gap": gap_of("error_rate", y_test[inside], test[inside], race_test[inside]),
        "test_accuracy": np.mean(test == y_test),
    }


def fit_requested(library: str, bound: float) -> Figures:
    """Fit a gap of false positive rates on Adult."""
    X, X_test, y, y_test, sex, sex_test = adult(0)
    clf = make(library, [gap(fpr(), by="sex") <= bound]).fit(X, y, sensitive_features=sex)
    train, test = clf.predict(X), clf.predict(X_test)
    return {
        "training_gap": gap_of("fpr", y, train, sex),
        "training_accuracy": np.mean(train == y),
        "test_gap": gap_of("fpr", y_test, test, sex_test),
        "test_accuracy": np.mean(test == y_test),
    }


def fit_churn(library: str) -> Figures:
    """Train a model on half of Adult, and a candidate with recall no worse and little churn."""
    X, X_test, y, y_test, _, _ = adult(0)
    half = np.arange(y.size) < y.size // 2
    deployed = make(library, [], n_estimators=100).fit(X[half], y[half])
    before, before_test = deployed.predict(X), deployed.predict(X_test)
    level = float(np.mean(before[y == 1] == 1))
    clf = make(library, [churn(to=deployed) <= 0.02, recall() >= level]).fit(X, y)
    now, test = clf.predict(X), clf.predict(X_test)
    return {
        "training_churn": np.mean(now != before),
        "training_recall": np.mean(now[y == 1] == 1),
        "deployed_recall": level,
        "training_accuracy": np.mean(now == y),
        "deployed_training_accuracy": np.mean(before == y),
        "test_churn": np.mean(test != before_test),
        "test_accuracy": np.mean(test == y_test),
        "deployed_test_accuracy": np.mean(before_test == y_test),
    }


DEFAULTS = {
    "selection_rate": gap(selection_rate(), by="sex", min_group_size=1) <= 0.02,
    "fpr": gap(fpr(), by="sex", min_group_size=1) <= 0.02,
    "error_rate": gap(error_rate(), by="sex", min_group_size=1) <= 0.02,
    "recall": recall() >= 0.8,
}


def fit_defaults(
    library: str, n: int, share: float | None, learning_rate: float, rule: str
) -> Figures:
    """Fit a rule on `n` rows drawn from Adult, with a share of positives if one is given."""
    data = load_adult(download=False)
    X, y = data.data, data.target.to_numpy()
    rng = np.random.default_rng(0)
    if share is None:
        rows = rng.choice(y.size, n, replace=n > y.size)
    else:
        positive = round(n * share)
        rows = np.concatenate(
            [
                rng.choice(np.flatnonzero(y == k), m, replace=m > (y == k).sum())
                for k, m in ((0, n - positive), (1, positive))
            ]
        )
    start = time.perf_counter()
    clf = make(library, [DEFAULTS[rule]], learning_rate=learning_rate)
    sex = data.sensitive_features["sex"].iloc[rows]
    clf.fit(X.iloc[rows], y[rows], sensitive_features=sex)
    seconds = time.perf_counter() - start
    report = clf.constraint_report_.iloc[0]
    return {
        "training_rate": report["train"],
        "excess": (report["train"] - report["bound"]) * (-1 if rule == "recall" else 1),
        "multiplier": report["multiplier"],
        "multiplier_range": last_quarter(clf),
        "seconds": seconds,
    }


SPLITS = (0, 1, 2)
TABLES = {
    "gaps": Table(
        fit_gap,
        {"library": LIBRARIES, "rate": RATES, "split": SPLITS},
        "{library:9s} {rate:15s} training gaps {training_gap each}; test accuracy "
        "{test_accuracy:.4f}, gap {test_gap:.4f}; relative range of the multipliers "
        "{multiplier_range max:.2f}",
    ),
    "growth": Table(
        fit_grown,
        {"library growth": GROWTH, "split": SPLITS},
        "{library:9s} trees grown {growth:10s} false positive rates: training gap "
        "{training_gap:.4f}, test gap {test_gap:.4f}, test accuracy {test_accuracy:.4f}",
    ),
    "odds": Table(
        fit_odds,
        {"library": LIBRARIES, "split": SPLITS},
        "{library:9s} training tpr {training_tpr each} fpr {training_fpr each}; test tpr "
        "{test_tpr each} fpr {test_fpr each}, accuracy {test_accuracy each}",
    ),
    "compas": Table(
        fit_compas,
        {"library": LIBRARIES, "split": SPLITS},
        "{library:9s} {groups:.0f} groups, training gap {training_gap each}; test gap "
        "{test_gap each}, accuracy {test_accuracy each}",
    ),
    "requested": Table(
        fit_requested,
        {"library": LIBRARIES, "bound": (np.arange(16) / 100).tolist()},
        "{library:9s} asked for {bound:.2f}: training gap {training_gap:.4f}, accuracy "
        "{training_accuracy:.4f}; test {test_gap:.4f}, {test_accuracy:.4f}",
    ),
    "churn": Table(
        fit_churn,
        {"library": LIBRARIES},
        "{library:9s} training churn {training_churn:.4f}, recall {training_recall:.4f} (deployed "
        "{deployed_recall:.4f}), accuracy {training_accuracy:.4f} (deployed "
        "{deployed_training_accuracy:.4f}); test churn {test_churn:.4f}, accuracy "
        "{test_accuracy:.4f} (deployed {deployed_test_accuracy:.4f})",
    ),
    # No step size for the user: sizes, balances and learning rates.
    "defaults": Table(
        fit_defaults,
        {
            "library": LIBRARIES,
            "rows": (1_000, 30_000, 300_000),
            "positive_share": (None, 0.01),
            "learning_rate": (0.02, 0.1, 0.3),
            "rule": DEFAULTS,
        },
        "{library:9s} n {rows:6d} positive {positive_share}, learning rate {learning_rate:4.2f}, "
        "{rule:14s} {training_rate:.4f}, beyond its bound by {excess:+.4f}; multiplier "
        "{multiplier:.3g}, range {multiplier_range:.2f} ({seconds:.1f} s)",
    ),
}


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--jobs", type=int, default=2, help="threads of each fit")
    run_tables(
        TABLES, "rates", parser, lambda args: SHARED.update(n_jobs=args.jobs), library=LIBRARIES
    )


if __name__ == "__main__":
    main()
