"""Rates of groups, churn and many rules at once: what is reached, with defaults only.

Adult and COMPAS in 70/30 splits with random states 0, 1, 2; 300 rounds, learning rate 0.1, all
else the libraries' defaults. Constraints are measured on the training rows; test figures show what
is left of them on others.

    python benchmarks/rates.py [gaps odds compas requested churn defaults] [--library xgboost]
        [--jobs 2]
"""

from __future__ import annotations

import argparse
import itertools
import time
import warnings
from typing import Any

import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

from gbm_constrained import (
    ConstrainedLGBMClassifier,
    ConstrainedXGBClassifier,
    churn,
    error_rate,
    fpr,
    gap,
    recall,
    selection_rate,
    tpr,
)
from gbm_constrained.datasets import load_adult, load_compas

RATES = {"selection_rate": selection_rate, "fpr": fpr, "tpr": tpr, "error_rate": error_rate}
LIBRARIES = ("xgboost", "lightgbm")
SEEDS = (0, 1, 2)
THREADS = 2  # of each fit


def make(library: str, rules: Any, **parameters: Any) -> Any:
    defaults = {
        "n_estimators": 300,
        "learning_rate": 0.1,
        "n_jobs": THREADS,
        "measure_on": "train",
    }
    parameters = {**defaults, **parameters}
    if library == "xgboost":
        return ConstrainedXGBClassifier(
            constraints=rules, enable_categorical=True, verbosity=0, **parameters
        )
    return ConstrainedLGBMClassifier(constraints=rules, verbose=-1, **parameters)


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


def gaps(libraries: tuple[str, ...]) -> None:
    for library, rate in itertools.product(libraries, RATES):
        rows = []
        for seed in SEEDS:
            X, X_test, y, y_test, sex, sex_test = adult(seed)
            clf = make(library, [gap(RATES[rate](), by="sex") <= 0.01])
            clf.fit(X, y, sensitive_features=sex)
            test = clf.predict(X_test)
            rows.append(
                [
                    gap_of(rate, y, clf.predict(X), sex),
                    np.mean(test == y_test),
                    gap_of(rate, y_test, test, sex_test),
                    last_quarter(clf),
                ]
            )
        table = np.array(rows)
        print(
            f"{library:9s} {rate:15s} training gaps {table[:, 0].round(4)}; test accuracy "
            f"{table[:, 1].mean():.4f}, gap {table[:, 2].mean():.4f}; relative range of the "
            f"multipliers {table[:, 3].max():.2f}",
            flush=True,
        )


def odds(libraries: tuple[str, ...]) -> None:
    for library, seed in itertools.product(libraries, SEEDS):
        X, X_test, y, y_test, sex, sex_test = adult(seed)
        rules = [gap(tpr(), by="sex") <= 0.02, gap(fpr(), by="sex") <= 0.02]
        clf = make(library, rules).fit(X, y, sensitive_features=sex)
        train, test = clf.predict(X), clf.predict(X_test)
        values = [
            gap_of(rate, *rows)
            for rows in ((y, train, sex), (y_test, test, sex_test))
            for rate in ("tpr", "fpr")
        ]
        print(
            f"{library:9s} split {seed}: training tpr {values[0]:.4f} fpr {values[1]:.4f}; test "
            f"tpr {values[2]:.4f} fpr {values[3]:.4f}, accuracy {np.mean(test == y_test):.4f}",
            flush=True,
        )


def compas(libraries: tuple[str, ...]) -> None:
    data = load_compas(download=False)
    for library, seed in itertools.product(libraries, SEEDS):
        X, X_test, y, y_test, race, race_test = train_test_split(
            data.data, np.asarray(data.target), data.sensitive_features["race"],
            test_size=0.3, random_state=seed,
        )  # fmt: skip
        rule = gap(error_rate(), by="race", min_group_size=300, small_groups="drop") <= 0.05
        clf = make(library, [rule]).fit(X, y, sensitive_features=race)
        report = clf.constraint_report_.iloc[0]
        kept = [name.partition("=")[2] for name in clf.group_report_["group"]]
        inside = np.isin(np.asarray(race_test), kept)
        test = clf.predict(X_test)
        test_gap = gap_of("error_rate", y_test[inside], test[inside], race_test[inside])
        print(
            f"{library:9s} split {seed}: {len(kept)} groups, training gap {report['train']:.4f}; "
            f"test gap {test_gap:.4f}, accuracy {np.mean(test == y_test):.4f}",
            flush=True,
        )


def requested(libraries: tuple[str, ...]) -> None:
    X, X_test, y, y_test, sex, sex_test = adult(0)
    for library in libraries:
        for bound in np.arange(16) / 100:
            clf = make(library, [gap(fpr(), by="sex") <= bound]).fit(X, y, sensitive_features=sex)
            train, test = clf.predict(X), clf.predict(X_test)
            print(
                f"{library:9s} asked for {bound:.2f}: training gap "
                f"{gap_of('fpr', y, train, sex):.4f}, accuracy {np.mean(train == y):.4f}; test "
                f"{gap_of('fpr', y_test, test, sex_test):.4f}, {np.mean(test == y_test):.4f}",
                flush=True,
            )


def churning(libraries: tuple[str, ...]) -> None:
    X, X_test, y, y_test, _, _ = adult(0)
    half = np.arange(y.size) < y.size // 2
    for library in libraries:
        deployed = make(library, [], n_estimators=100).fit(X[half], y[half])
        before, before_test = deployed.predict(X), deployed.predict(X_test)
        level = float(np.mean(before[y == 1] == 1))
        rules = [churn(to=deployed) <= 0.02, recall() >= level]
        clf = make(library, rules).fit(X, y)
        now, test = clf.predict(X), clf.predict(X_test)
        print(
            f"{library:9s} training churn {np.mean(now != before):.4f}, recall "
            f"{np.mean(now[y == 1] == 1):.4f} (deployed {level:.4f}), accuracy "
            f"{np.mean(now == y):.4f} (deployed {np.mean(before == y):.4f}); test churn "
            f"{np.mean(test != before_test):.4f}, accuracy {np.mean(test == y_test):.4f} "
            f"(deployed {np.mean(before_test == y_test):.4f})",
            flush=True,
        )


def defaults(libraries: tuple[str, ...]) -> None:
    """No step size for the user: sizes, balances and learning rates."""
    data = load_adult(download=False)
    X, y = data.data, data.target.to_numpy()
    sex = data.sensitive_features["sex"]
    rules = {
        "selection_rate": gap(selection_rate(), by="sex", min_group_size=1) <= 0.02,
        "fpr": gap(fpr(), by="sex", min_group_size=1) <= 0.02,
        "error_rate": gap(error_rate(), by="sex", min_group_size=1) <= 0.02,
        "recall": recall() >= 0.8,
    }
    sizes, balances, learning_rates = (1_000, 30_000, 300_000), (None, 0.01), (0.02, 0.1, 0.3)
    for n, share, library in itertools.product(sizes, balances, libraries):
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
        for rate, name in itertools.product(learning_rates, rules):
            start = time.perf_counter()
            clf = make(library, [rules[name]], learning_rate=rate)
            clf.fit(X.iloc[rows], y[rows], sensitive_features=sex.iloc[rows])
            report = clf.constraint_report_.iloc[0]
            excess = (report["train"] - report["bound"]) * (-1 if name == "recall" else 1)
            print(
                f"{library:9s} n {n:6d} {'1%' if share else '24%':>3s} positive, learning rate "
                f"{rate:4.2f}, {name:14s} {report['train']:.4f}, beyond its bound by "
                f"{excess:+.4f}{' !' if excess > 0.005 else ''}; multiplier "
                f"{report['multiplier']:.3g}, range {last_quarter(clf):.2f} "
                f"({time.perf_counter() - start:.1f} s)",
                flush=True,
            )


PARTS = {
    "gaps": gaps,
    "odds": odds,
    "compas": compas,
    "requested": requested,
    "churn": churning,
    "defaults": defaults,
}


def main() -> None:
    global THREADS
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=[], choices=[*PARTS, []])
    parser.add_argument("--library", choices=LIBRARIES)
    parser.add_argument("--jobs", type=int, default=THREADS, help="threads of each fit")
    args = parser.parse_args()
    THREADS = args.jobs
    warnings.simplefilter("ignore", UserWarning)  # small groups of COMPAS
    for part in args.parts or PARTS:
        print(f"-- {part}", flush=True)
        PARTS[part]((args.library,) if args.library else LIBRARIES)


if __name__ == "__main__":
    main()
