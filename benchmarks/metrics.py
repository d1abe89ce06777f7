"""Metrics of the confusion matrix: losses on test rows, beside published and earlier figures.

    python benchmarks/metrics.py NAME [--splits 10] [--sets page_blocks abalone satimage]

Each NAME is one table:

- means: losses of G-, H-, Q-mean and micro F1 of the class of largest probability ("argmax"), of
  probabilities divided by class shares ("prior") and of the fit ("fitted").
- worst: the same of the worst recall.
- macro: the same of macro F1.
- promised: the H-mean that a fit promises, out of fold and on its training rows, against test.
- coverage: the H-mean where predicted shares lie within 0.01 of class shares.
- gaps: the G-mean under a gap between each group and all rows of at most 0.05.
- recall: recall under bounds on false positives, on precision and on alerts, both libraries.
- paper: losses of logistic regression, whose C is cross-validated, beside the paper's best column
  with two standard errors.
- oracles: the H-mean by each oracle.
- cost: CPU time of fits with a metric over that of plain fits, and the share of all oracle calls.
- scale: 400,000 rows of 7 classes on one core: seconds of an oracle call, and of the reduction to
  the H-mean under coverage within 0.01.

Splits are 70/30 with ``random_state`` 0, 1, .... Losses are one minus the metric, "±" is the
standard error of a mean, and that of a difference is paired. Rows of the CSV are measured once.
"""

from __future__ import annotations

import argparse
import itertools
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from arguments import at_least
from metric_data import find_metric, forget_fits, load_classes, load_groups, make, measure_loss
from metric_oracles import print_costs, print_oracles, print_paper, print_scale
from metric_rates import BOUNDS, RECALL_FIGURES, RECALL_SETS, measure_recall, print_recall
from result_file import Measurements, column
from sklearn.model_selection import train_test_split

from gbm_constrained import gap, overall, selection_rate, tpr
from gbm_constrained.presets import Coverage

SETS = ("page_blocks", "abalone", "satimage")
MEANS = ("h_mean", "g_mean", "q_mean", "f1_micro")
# Losses of argmax, of 1/prior weights and of a prototype, on the same splits.
EARLIER = {
    "page_blocks": {
        "h_mean": (0.245, 0.091, 0.091), "g_mean": (0.224, 0.088, 0.090),
        "q_mean": (0.262, 0.106, 0.118), "f1_micro": (0.157, 0.191, 0.157),
        "min_recall": (0.445, 0.184, 0.225),
    },
    "abalone": {
        "h_mean": (0.968, 0.823, 0.803), "g_mean": (0.926, 0.791, 0.787),
        "q_mean": (0.788, 0.770, 0.770), "f1_micro": (0.735, 0.765, 0.712),
        "min_recall": (0.990, 0.924, 0.884),
    },
    "satimage": {
        "h_mean": (0.139, 0.115, 0.115), "g_mean": (0.127, 0.111, 0.110),
        "q_mean": (0.171, 0.136, 0.130), "f1_micro": (0.112, 0.120, 0.112),
        "min_recall": (0.384, 0.263, 0.208),
    },
}  # fmt: skip
# Plain LightGBM and xCOLUMNs, on three splits of the authors' arrays.
MACRO = {"page_blocks": (0.165, 0.161), "abalone": (0.766, 0.763), "satimage": (0.112, 0.109)}
# Promised and test H-mean loss of a prototype: on training rows, and out of fold.
PROMISED = {
    "page_blocks": (0.006, 0.219, 0.091, 0.091),
    "abalone": (0.241, 0.875, 0.790, 0.803),
    "satimage": (0.010, 0.120, 0.112, 0.115),
}
# Test loss, and how far shares are beyond 0.01, on five splits of the authors' arrays.
COVERAGE = {
    "page_blocks": (0.130, -0.001), "abalone": (0.827, 0.013), "satimage": (0.117, 0.015),
}  # fmt: skip
# Loss @ gap of a prototype with and without the group, and of oxonfair, which needs the group.
GAPS = {
    ("compas", "tpr"): ((0.335, 0.062), None, (0.333, 0.050)),
    ("law_school", "tpr"): ((0.227, 0.044), None, (0.230, 0.034)),
    ("adult", "tpr"): ((0.163, 0.045), (0.161, 0.036), (0.164, 0.026)),
    ("compas", "selection_rate"): ((0.337, 0.048), None, (0.339, 0.037)),
    ("law_school", "selection_rate"): ((0.238, 0.050), None, (0.238, 0.042)),
    ("adult", "selection_rate"): ((0.186, 0.051), (0.186, 0.047), (0.192, 0.032)),
}


def mean_of(values: Any) -> str:
    """Write a mean and its standard error."""
    return f"{np.mean(values):.3f} ± {error_of(values):.3f}"


def error_of(values: Any) -> float:
    """Compute the standard error of a mean."""
    values = np.asarray(values)
    return float(values.std(ddof=1) / np.sqrt(values.size)) if values.size > 1 else np.nan


def split_rows(name: str, split: int) -> Any:
    """Split a set of several classes."""
    table = load_classes(name)
    return train_test_split(table.X, table.y, test_size=0.3, random_state=split)


def measure_metric_fit(name: str, metric: str, split: int) -> dict[str, float]:
    """Fit with a metric, and measure it and the two rules without a search."""
    X, X_test, y, y_test = split_rows(name, split)
    objective = find_metric(metric, np.append(y, y_test))
    start = time.process_time()
    fitted = make(maximize=objective).fit(X, y)
    seconds = time.process_time() - start
    probabilities = make().fit(X, y).predict_proba(X_test)
    report = fitted.metric_report_
    returned = report[report["is_returned"]].iloc[0]
    weighted = probabilities / np.bincount(y)
    return {
        "argmax": measure_loss(objective, y_test, probabilities.argmax(axis=1)),
        "prior": measure_loss(objective, y_test, weighted.argmax(axis=1)),
        "fitted": measure_loss(objective, y_test, fitted.decision_probabilities(X_test)),
        "promised": 1.0 - returned["held_out"],
        "decisions": float(report["is_returned"].to_numpy().argmax()),
        "rules": float(returned["n_rules"]),
        "seconds": seconds,
    }


def collect(
    results: Measurements, measure: Callable[..., dict[str, float]], named: Sequence[Any], n: int
) -> list[Any]:
    """Measure all splits of a set."""
    return [results.once(partial(measure, *named, split), *named, split) for split in range(n)]


def print_metrics(path: Path, sets: Sequence[str], n: int, metrics: Sequence[str]) -> None:
    """Print the losses of metrics; every set's boosters serve all metrics of a split."""
    results = Measurements(path, ("set", "metric", "split"), METRIC_FIGURES)
    print("set          metric       argmax          prior           fitted          - better of "
          "both   earlier: argmax, prior, prototype")  # fmt: skip
    for name in sets:
        for split in range(n):
            for metric in metrics:
                results.once(partial(measure_metric_fit, name, metric, split), name, metric, split)
            forget_fits()
        for metric in metrics:
            rows = collect(results, measure_metric_fit, (name, metric), n)
            argmax, prior, fitted = (column(rows, c) for c in ("argmax", "prior", "fitted"))
            base = argmax if argmax.mean() < prior.mean() else prior
            earlier = MACRO[name] if metric == "f1_macro" else EARLIER[name][metric]
            print(f"{name:12} {metric:10}", *map(mean_of, (argmax, prior, fitted)),
                  f" {mean_of(fitted - base)}   {', '.join(f'{e:.3f}' for e in earlier)}",
                  flush=True, sep="   ")  # fmt: skip


def measure_promise(name: str, how: str, split: int) -> dict[str, float]:
    """Fit with the H-mean, out of fold or on training rows."""
    X, X_test, y, y_test = split_rows(name, split)
    options = {"measure_on": "train"} if how == "train" else {}
    fitted = make(maximize="h_mean", **options).fit(X, y)
    report = fitted.metric_report_
    promised = (
        1.0 - report.loc[report["is_returned"], ["held_out", "train"]].bfill(axis=1).iloc[0, 0]
    )
    found = measure_loss("h_mean", y_test, fitted.decision_probabilities(X_test))
    forget_fits()
    return {"promised": promised, "test": found}


def print_promises(path: Path, sets: Sequence[str], n: int) -> None:
    """Print what fits promise, and what they reach."""
    results = Measurements(path, ("set", "measured_on", "split"), ("promised", "test"))
    print("set          measured on   promised         test             test - promised  earlier")
    for name in sets:
        for i, how in enumerate(("train", "crossfit")):
            rows = collect(results, measure_promise, (name, how), n)
            promised, test = column(rows, "promised"), column(rows, "test")
            earlier = ", ".join(f"{e:.3f}" for e in PROMISED[name][2 * i : 2 * i + 2])
            print(f"{name:12} {how:10}", *map(mean_of, (promised, test, test - promised)),
                  earlier, flush=True, sep="   ")  # fmt: skip


def measure_coverage(name: str, split: int) -> dict[str, float]:
    """Fit with the H-mean where each predicted share is within 0.01 of the class share."""
    X, X_test, y, y_test = split_rows(name, split)
    fitted = make(maximize="h_mean", constraints=[Coverage(within=0.01)]).fit(X, y)
    shares = fitted.decision_probabilities(X_test)
    beyond = np.abs(shares.mean(axis=0) - np.bincount(y_test) / len(y_test)) - 0.01
    worst = int(beyond.argmax())
    p = np.bincount(y_test)[worst] / len(y_test)
    forget_fits()
    return {
        "test": measure_loss("h_mean", y_test, shares),
        "excess": float(beyond.max()),
        "error": float(np.sqrt(p * (1 - p) / len(y_test))),
        "rules": float(len(fitted.mixture_)),
    }


def print_coverage(path: Path, sets: Sequence[str], n: int) -> None:
    """Print losses, and how far predicted shares are beyond their bounds."""
    results = Measurements(path, ("set", "split"), ("test", "excess", "error", "rules"))
    print("set          test             excess           error of a share   earlier")
    for name in sets:
        rows = collect(results, measure_coverage, (name,), n)
        test, excess, error = (column(rows, c) for c in ("test", "excess", "error"))
        print(f"{name:12} {mean_of(test)}   {mean_of(excess)}   {error.mean():.4f}   "
              f"{COVERAGE[name][0]:.3f} / {COVERAGE[name][1]:.3f}", flush=True)  # fmt: skip


def measure_gap(name: str, rate: str, library: str, group: str, split: int) -> dict[str, float]:
    """Fit with the G-mean under a gap between groups, whose column is hidden or a feature."""
    table = load_groups(name, is_feature=group == "feature")
    assert table.groups is not None
    parts = train_test_split(*table, test_size=0.3, random_state=split)
    X, X_test, y, y_test, groups, groups_test = parts
    of_rate = {"tpr": tpr, "selection_rate": selection_rate}[rate]
    constraint = gap(of_rate(), by="group", reference=overall) <= 0.05
    fitted = make(library, maximize="g_mean", constraints=[constraint])
    fitted.fit(X, y, sensitive_features=groups)
    shares = fitted.decision_probabilities(X_test)
    counted = y_test == 1 if rate == "tpr" else np.full(len(y_test), True)
    of_row, p = groups_test["group"].to_numpy()[counted], shares[counted, 1]
    names = np.unique(of_row)
    gaps = np.array([abs(p[of_row == g].mean() - p.mean()) for g in names])
    sizes = np.array([(of_row == g).sum() for g in names])
    worst = int(gaps.argmax())
    forget_fits()
    return {
        "test": measure_loss("g_mean", y_test, shares),
        "gap": float(gaps[worst]),
        "error": float(p[of_row == names[worst]].std() / np.sqrt(sizes[worst])),
        "rules": float(len(fitted.mixture_)),
    }


def print_gaps(path: Path, n: int) -> None:
    """Print losses @ gaps."""
    names = ("set", "rate", "library", "group", "split")
    results = Measurements(path, names, ("test", "gap", "error", "rules"))
    print("set          rate             library   group    test            gap, error of a rate"
          "   earlier: with the group, without, oxonfair with")  # fmt: skip
    cases = itertools.product(GAPS.items(), ("lightgbm", "xgboost"), ("hidden", "feature"))
    for ((name, rate), earlier), library, group in cases:
        rows = collect(results, measure_gap, (name, rate, library, group), n)
        test, found, error = (column(rows, c) for c in ("test", "gap", "error"))
        others = ", ".join("-" if e is None else f"{e[0]:.3f} @ {e[1]:.3f}" for e in earlier)
        print(f"{name:12} {rate:16} {library:9} {group:8} {mean_of(test)}   {found.mean():.3f} ± "
              f"{error.mean():.3f}   {others}", flush=True)  # fmt: skip


def print_recalls(path: Path, n: int) -> None:
    """Print recalls under what teams that look for fraud ask for."""
    results = Measurements(path, ("set", "library", "bounds", "split"), RECALL_FIGURES)
    for name in RECALL_SETS:
        for library in ("lightgbm", "xgboost"):
            for bounds in BOUNDS:
                rows = collect(results, measure_recall, (name, library, bounds), n)
                print_recall(name, library, bounds, rows)
            forget_fits()


METRIC_FIGURES = ("argmax", "prior", "fitted", "promised", "decisions", "rules", "seconds")
TABLES: dict[str, Callable[[Path, argparse.Namespace], None]] = {
    "means": lambda path, given: print_metrics(path, given.sets, given.splits, MEANS),
    "worst": lambda path, given: print_metrics(path, given.sets, given.splits, ("min_recall",)),
    "macro": lambda path, given: print_metrics(path, given.sets, given.splits, ("f1_macro",)),
    "promised": lambda path, given: print_promises(path, given.sets, given.splits),
    "coverage": lambda path, given: print_coverage(path, given.sets, given.splits),
    "gaps": lambda path, given: print_gaps(path, given.splits),
    "recall": lambda path, given: print_recalls(path, given.splits),
    "paper": lambda path, given: print_paper(path, given.splits),
    "oracles": lambda path, given: print_oracles(path, given.splits),
    "cost": lambda path, given: print_costs(path),
    "scale": lambda path, given: print_scale(path),
}
SHARED = {"worst": "means", "macro": "means"}  # Tables in the same file.


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("--splits", type=at_least(1), default=5)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # Constraints that are missed are counted.
    file = SHARED.get(given.table, given.table)
    TABLES[given.table](Path(__file__).parent / "results" / "metrics" / f"{file}.csv", given)


if __name__ == "__main__":
    main()
