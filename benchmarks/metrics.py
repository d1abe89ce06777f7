"""Metrics of the confusion matrix on the sets of Narasimhan et al., beside the paper's figures.

"Consistent Multiclass Algorithms for Complex Metrics and Constraints", Tables 6 and 7: test losses
in random 70/30 splits with ``random_state`` 0 to 9. Abalone has 12 classes: rings <= 4 or >= 16
are one class. Features are standardised on the training part.

    python benchmarks/metrics.py [paper oracles cost scale] [--output FOLDER]

Each fit is a row of a CSV of its part, and is not repeated while its row is there.

- paper: ConstrainedLogisticRegression, whose C is that of LogisticRegressionCV (newton-cg, cv=2)
  as in the paper. Beside the means stands the paper's best column with two standard errors.
- oracles: ConstrainedLGBMClassifier (100 trees, 15 leaves, learning rate .05) by each oracle.
- cost: CPU time of fits with h_mean() over that of plain fits, and the share of all oracle calls.
- scale: 400,000 rows of 7 classes on one core: seconds of an oracle call, and of the reduction to
  h_mean() under coverage within .01.
"""

from __future__ import annotations

import argparse
import cProfile
import itertools
import os
import pstats
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from result_file import Measurements, Part, add_parts, column
from scipy.special import softmax
from sklearn.base import clone
from sklearn.linear_model import LogisticRegressionCV
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from gbm_constrained import ConstrainedLGBMClassifier, selection_rate
from gbm_constrained.data.fit_data import FitArguments
from gbm_constrained.linear_model import ConstrainedLogisticRegression
from gbm_constrained.metrics import f1_micro, g_mean, h_mean, min_recall, q_mean
from gbm_constrained.training.metric_oracles import search_decisions
from gbm_constrained.training.metric_problem import MetricProblem
from gbm_constrained.training.metric_search import MetricSearch
from gbm_constrained.training.options import SolverOptions
from gbm_constrained.training.problem import LibrarySettings

RESULTS = Path(__file__).parent / "results" / "metrics"
METRICS: dict[str, Callable[[], Any]] = {
    "h_mean": h_mean,
    "g_mean": g_mean,
    "q_mean": q_mean,
    "f1_micro": f1_micro,
    "min_recall": min_recall,
}
SEEDS = range(10)
SETS = ("abalone", "page_blocks", "satimage")
# Means of the paper's best column, with two standard errors: Tables 6 and 7.
PAPER = {
    ("h_mean", "abalone"): (0.816, 0.020),
    ("h_mean", "page_blocks"): (0.110, 0.025),
    ("h_mean", "satimage"): (0.170, 0.006),
    ("f1_micro", "abalone"): (0.693, 0.006),
    ("f1_micro", "page_blocks"): (0.211, 0.016),
    ("f1_micro", "satimage"): (0.180, 0.005),
}
# The paper's algorithms run anew on its rows and splits, with standardised features.
RERUN = {
    ("h_mean", "abalone"): 0.793,
    ("h_mean", "page_blocks"): 0.090,
    ("h_mean", "satimage"): 0.170,
    ("f1_micro", "abalone"): 0.693,
    ("f1_micro", "page_blocks"): 0.192,
    ("f1_micro", "satimage"): 0.180,
}
BOOSTERS: dict[str, Any] = {
    "n_estimators": 100, "num_leaves": 15, "learning_rate": 0.05, "n_jobs": 1, "verbose": -1,
}  # fmt: skip
ORACLES = ("plug_in", "refit", "in_training", "auto")
SPLITS_OF_ORACLES = range(3)


def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Read a set of the paper from the folder GBM_CONSTRAINED_DATA."""
    folder = Path(os.environ["GBM_CONSTRAINED_DATA"]) / "multiclass"
    table = pd.read_parquet(folder / f"{name}.parquet")
    X, y = table.iloc[:, :-1], table.iloc[:, -1]
    if name == "abalone":
        X = X.assign(**{"0": X["0"].map({"I": 0, "F": 1, "M": 2})})
        y = y.where((y > 4) & (y < 16), 4) - 4
    return X.to_numpy(np.float64), y.to_numpy().astype(np.int64)


def split(name: str, seed: int) -> tuple[np.ndarray, ...]:
    """Split a set as the paper does."""
    return tuple(train_test_split(*load(name), test_size=0.3, random_state=seed))


def default_class(name: str) -> int:
    """Find the most frequent class of all rows, which is the default class of micro F1."""
    classes, counts = np.unique(load(name)[1], return_counts=True)
    return int(classes[counts.argmax()])


def make_metric(metric: str, name: str) -> Any:
    """Make a metric."""
    return f1_micro(default=default_class(name)) if metric == "f1_micro" else METRICS[metric]()


def loss(metric: str, y: np.ndarray, shares: np.ndarray, default: int) -> float:
    """Compute one minus a metric of decision probabilities."""
    classes = np.unique(y)
    C = np.array([shares[y == c].sum(axis=0) for c in classes]) / y.size
    recalls = C.diagonal() / C.sum(axis=1)
    if metric == "f1_micro":
        k = int(np.searchsorted(classes, default))
        right = C.diagonal().sum() - C[k, k]
        return float(1 - 2 * right / (2 - C[k].sum() - C[:, k].sum()))
    if metric == "h_mean":
        return float(1 - len(recalls) / (1 / np.maximum(recalls, 1e-9)).sum())
    if metric == "g_mean":
        return float(1 - np.exp(np.log(np.maximum(recalls, 1e-300)).mean()))
    if metric == "q_mean":
        return float(np.sqrt(((1 - recalls) ** 2).mean()))
    return float(1 - recalls.min())


def fit_linear(metric: str, name: str, seed: int, oracle: str = "plug_in") -> dict[str, float]:
    """Fit a linear model of the paper's C."""
    X, X_test, y, y_test = split(name, seed)
    scaler = StandardScaler().fit(X)
    X, X_test = scaler.transform(X), scaler.transform(X_test)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search = LogisticRegressionCV(solver="newton-cg", cv=2, tol=1e-3, max_iter=1000)
        C = float(np.ravel(search.fit(X, y).C_)[0])
        model = ConstrainedLogisticRegression(
            C=C,
            solver="newton-cg",
            max_iter=1000,
            oracle=oracle,
            maximize=make_metric(metric, name),
        ).fit(X, y)
    report = model.metric_report_.set_index("decisions")["held_out"]
    returned = model.metric_report_.query("is_returned").iloc[0]
    plain = search.predict_proba(X_test)
    shares = np.bincount(np.searchsorted(search.classes_, y)) / y.size
    one_hot = np.eye(len(shares))
    measure = partial(loss, metric, y_test, default=default_class(name))
    return {
        "loss": measure(model.decision_probabilities(X_test)),
        "promised": 1 - returned["held_out"],
        "argmax": measure(one_hot[plain.argmax(axis=1)]),
        "prior": measure(one_hot[(plain / shares).argmax(axis=1)]),
        "promised_optimum": 1 - report["optimised"],
    }


def run_paper(results: Measurements) -> None:
    for metric, name in PAPER:
        found = [
            results.once(partial(fit_linear, metric, name, seed), metric, name, seed)
            for seed in SEEDS
        ]
        value = column(found, "loss")
        error = 2 * value.std() / np.sqrt(value.size)
        paper, paper_error = PAPER[metric, name]
        print(
            f"{metric:9s} {name:12s} loss {value.mean():.3f} +- {error:.3f} (argmax "
            f"{column(found, 'argmax').mean():.3f}, 1/prior {column(found, 'prior').mean():.3f}); "
            f"paper {paper:.3f} +- {paper_error:.3f}, its algorithms run anew "
            f"{RERUN[metric, name]:.3f}; promised {column(found, 'promised').mean():.3f}",
            flush=True,
        )


def fit_oracle(name: str, oracle: str, seed: int) -> dict[str, float]:
    """Fit boosters by one oracle."""
    X, X_test, y, y_test = split(name, seed)
    start = time.process_time()
    model = ConstrainedLGBMClassifier(**BOOSTERS, maximize=h_mean(), oracle=oracle).fit(X, y)
    seconds = time.process_time() - start
    returned = model.metric_report_.query("is_returned").iloc[0]
    return {
        "loss": loss("h_mean", y_test, model.decision_probabilities(X_test), 0),
        "promised": 1 - returned["held_out"],
        "is_plug_in": float(returned["oracle"] == "plug_in"),
        "cpu_seconds": seconds,
    }


def run_oracles(results: Measurements) -> None:
    for name, oracle in itertools.product(("page_blocks", "abalone"), ORACLES):
        found = [
            results.once(partial(fit_oracle, name, oracle, seed), name, oracle, seed)
            for seed in SPLITS_OF_ORACLES
        ]
        print(
            f"{name:12s} {oracle:12s} H-mean loss {column(found, 'loss').mean():.3f} (splits "
            f"{column(found, 'loss').round(3)}), promised {column(found, 'promised').mean():.3f}, "
            f"plug-in in {column(found, 'is_plug_in').sum():.0f} of {len(found)}, "
            f"{column(found, 'cpu_seconds').mean():.1f} s",
            flush=True,
        )


def fit_cost(name: str, metric: str, oracle: str) -> dict[str, float]:
    """Measure the CPU time of a fit, of a plain one, and of the oracle calls."""
    X, _, y, _ = split(name, 0)
    plain, fit = ConstrainedLGBMClassifier(**BOOSTERS), ConstrainedLGBMClassifier(**BOOSTERS)
    fit.set_params(maximize=make_metric(metric, name), oracle=oracle)
    plain.fit(X, y)  # whatever is done once for a process
    seconds = []
    for model in (plain, fit):
        start = time.process_time()
        model.fit(X, y)
        seconds.append(time.process_time() - start)
    profile = cProfile.Profile()
    profile.runcall(clone(fit).fit, X, y)
    calls, total = 0.0, 0.0
    for (file, _, function), (*_, cumulative, _) in pstats.Stats(profile).stats.items():
        if function == "minimise" and file.endswith("plug_in.py"):
            calls = max(calls, cumulative)
        if function == "fit" and file.endswith("lightgbm/classifier.py"):
            total = max(total, cumulative)
    return {"ratio": seconds[1] / seconds[0], "oracle_share": calls / total}


def run_cost(results: Measurements) -> None:
    for name, metric, oracle in itertools.product(SETS, METRICS, ("plug_in", "auto")):
        found = results.once(partial(fit_cost, name, metric, oracle), name, metric, oracle)
        print(
            f"{name:12s} {metric:10s} {oracle:8s} {found['ratio']:.1f} plain fits, oracle calls "
            f"{found['oracle_share']:.1%} of it",
            flush=True,
        )


def solve_large() -> dict[str, float]:
    """Find the rules of the H-mean under coverage, given probabilities of 400,000 rows."""
    random, n, k = np.random.default_rng(0), 400_000, 7
    prior = np.array([0.49, 0.36, 0.06, 0.035, 0.03, 0.015, 0.01])
    y = random.choice(k, n, p=prior)
    centres = 1.2 * random.normal(size=(k, 4))
    X = centres[y] + random.normal(size=(n, 4))
    P = softmax(np.log(prior) - ((X[:, None] - centres) ** 2).sum(axis=2) / 2, axis=1)
    share = np.bincount(y) / n
    rates = [selection_rate(j) for j in range(k)]
    rules = [rate <= s + 0.01 for rate, s in zip(rates, share, strict=True)]
    rules += [rate >= max(s - 0.01, 0.0) for rate, s in zip(rates, share, strict=True)]
    options = SolverOptions.of(ConstrainedLGBMClassifier(maximize=h_mean(), constraints=rules))
    assert options.metric is not None
    problem = MetricProblem.of(options, options.metric, FitArguments(X, y), LibrarySettings(1, 1))
    held = problem.on(np.arange(n))
    search = MetricSearch(held, held.oracle(P))
    start = time.process_time()
    search.oracle.minimise(np.linspace(-1.0, 1.0, problem.loss.n_functionals))
    called = time.process_time()
    found = search_decisions("plug_in", search, np.ones(k))
    search.single_rule(found.chosen, is_forced=False)
    return {
        "call_seconds": called - start,
        "seconds": time.process_time() - called,
        "gap": found.exact.value - found.exact.bound,
        "violation": found.solution.violation,
    }


def run_scale(results: Measurements) -> None:
    found = results.once(solve_large, 400_000)
    print(
        f"400,000 rows of 7 classes: an oracle call {found['call_seconds']:.3f} s, rules of "
        f"H-mean under coverage {found['seconds']:.1f} s, gap {found['gap']:.1e}, violation "
        f"{found['violation']:.1e}",
        flush=True,
    )


PARTS = {
    "paper": Part(
        run_paper,
        ("metric", "set", "seed"),
        ("loss", "promised", "argmax", "prior", "promised_optimum"),
    ),
    "oracles": Part(
        run_oracles,
        ("set", "oracle", "seed"),
        ("loss", "promised", "is_plug_in", "cpu_seconds"),
    ),
    "cost": Part(run_cost, ("set", "metric", "oracle"), ("ratio", "oracle_share")),
    "scale": Part(run_scale, ("rows",), ("call_seconds", "seconds", "gap", "violation")),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add_parts(parser, "parts", PARTS)
    parser.add_argument("--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    for name in arguments.parts or PARTS:
        part = PARTS[name]
        part.run(Measurements(arguments.output / f"{name}.csv", part.names, part.figures))


if __name__ == "__main__":
    main()
