"""Tables of `benchmarks/metrics.py` on linear probabilities, on oracles, and on what they cost.

Published figures are those of Narasimhan et al., "Consistent Multiclass Algorithms for Complex
Metrics and Constraints", Tables 6 and 7: test losses in random 70/30 splits. Abalone has 12
classes: rings <= 4 or >= 16 are one class. Features are standardised on the training part.
"""

from __future__ import annotations

import cProfile
import itertools
import pstats
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from metric_data import FOLDER, LIGHTGBM, find_metric, measure_loss
from result_file import Measurements, column
from scipy.special import softmax
from sklearn.base import clone
from sklearn.linear_model import LogisticRegressionCV
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from gbm_constrained import ConstrainedLGBMClassifier, selection_rate
from gbm_constrained.data.fit_data import FitArguments
from gbm_constrained.fit.metric_problem import MetricProblem
from gbm_constrained.fit.metric_search import MetricSearch, search_decisions
from gbm_constrained.fit.options import SolverOptions
from gbm_constrained.fit.problem import LibrarySettings
from gbm_constrained.linear_model import ConstrainedLogisticRegression
from gbm_constrained.solvers import Reduction

METRICS = ("h_mean", "g_mean", "q_mean", "f1_micro", "min_recall")
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
ORACLES = ("plug_in", "refit", "in_training", "auto")
PAPER_FIGURES = ("loss", "promised", "argmax", "prior", "promised_optimum")
ORACLE_FIGURES = ("loss", "promised", "is_plug_in", "cpu_seconds")
SCALE_FIGURES = ("call_seconds", "seconds", "gap", "violation")


def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Read a set of the paper, with the sexes of Abalone as numbers."""
    table = pd.read_parquet(FOLDER / "multiclass" / f"{name}.parquet")
    X, y = table.iloc[:, :-1], table.iloc[:, -1]
    if name == "abalone":
        X = X.assign(**{"0": X["0"].map({"I": 0, "F": 1, "M": 2})})
        y = y.where((y > 4) & (y < 16), 4)
    return X.to_numpy(np.float64), np.unique(y, return_inverse=True)[1]


def split_rows(name: str, split: int) -> Any:
    """Split a set as the paper does."""
    return train_test_split(*load(name), test_size=0.3, random_state=split)


def fit_linear(metric: str, name: str, split: int) -> dict[str, float]:
    """Fit a linear model whose C is that of a plain model, as in the paper."""
    X, X_test, y, y_test = split_rows(name, split)
    scaler = StandardScaler().fit(X)
    X, X_test = scaler.transform(X), scaler.transform(X_test)
    objective = find_metric(metric, np.append(y, y_test))
    search = LogisticRegressionCV(solver="newton-cg", cv=2, tol=1e-3, max_iter=1000)
    C = float(np.ravel(search.fit(X, y).C_)[0])
    model = ConstrainedLogisticRegression(
        C=C, solver="newton-cg", max_iter=1000, maximize=objective
    ).fit(X, y)
    report = model.metric_report_.set_index("decisions")["held_out"]
    returned = model.metric_report_.query("is_returned").iloc[0]
    plain = search.predict_proba(X_test)
    measure = partial(measure_loss, objective, y_test)
    return {
        "loss": measure(model.decision_probabilities(X_test)),
        "promised": 1 - returned["held_out"],
        "argmax": measure(plain.argmax(axis=1)),
        "prior": measure((plain / np.bincount(y)).argmax(axis=1)),
        "promised_optimum": 1 - report["optimised"],
    }


def print_paper(path: Path, n: int) -> None:
    """Print losses of linear models beside the paper's."""
    results = Measurements(path, ("metric", "set", "split"), PAPER_FIGURES)
    for metric, name in PAPER:
        found = [
            results.once(partial(fit_linear, metric, name, split), metric, name, split)
            for split in range(n)
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


def fit_oracle(name: str, oracle: str, split: int) -> dict[str, float]:
    """Fit boosters by one oracle."""
    X, X_test, y, y_test = split_rows(name, split)
    start = time.process_time()
    model = ConstrainedLGBMClassifier(
        **LIGHTGBM, maximize="h_mean", solver=Reduction(oracle=oracle)
    ).fit(X, y)
    seconds = time.process_time() - start
    returned = model.metric_report_.query("is_returned").iloc[0]
    return {
        "loss": measure_loss("h_mean", y_test, model.decision_probabilities(X_test)),
        "promised": 1 - returned["held_out"],
        "is_plug_in": float(returned["oracle"] == "plug_in"),
        "cpu_seconds": seconds,
    }


def print_oracles(path: Path, n: int) -> None:
    """Print losses by each oracle."""
    results = Measurements(path, ("set", "oracle", "split"), ORACLE_FIGURES)
    for name, oracle in itertools.product(("page_blocks", "abalone"), ORACLES):
        found = [
            results.once(partial(fit_oracle, name, oracle, split), name, oracle, split)
            for split in range(n)
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
    X, _, y, _ = split_rows(name, 0)
    plain, fit = ConstrainedLGBMClassifier(**LIGHTGBM), ConstrainedLGBMClassifier(**LIGHTGBM)
    fit.set_params(maximize=find_metric(metric, load(name)[1]), solver=Reduction(oracle=oracle))
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


def print_costs(path: Path) -> None:
    """Print the price of fits with a metric."""
    results = Measurements(path, ("set", "metric", "oracle"), ("ratio", "oracle_share"))
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
    options = SolverOptions.of(ConstrainedLGBMClassifier(maximize="h_mean", constraints=rules))
    assert options.metric is not None
    problem = MetricProblem.of(options, FitArguments(X, y), LibrarySettings(1, 1))
    held = problem.on(np.arange(n))
    search = MetricSearch(held, held.oracle(P))
    start = time.process_time()
    search.oracle.minimise(np.linspace(-1.0, 1.0, problem.loss.n_functionals))
    called = time.process_time()
    found = search_decisions("plug_in", search)
    search.single_rule(found.chosen, is_forced=False)
    return {
        "call_seconds": called - start,
        "seconds": time.process_time() - called,
        "gap": found.exact.value - found.exact.bound,
        "violation": found.solution.violation,
    }


def print_scale(path: Path) -> None:
    """Print seconds of the search on 400,000 rows."""
    found = Measurements(path, ("rows",), SCALE_FIGURES).once(solve_large, 400_000)
    print(
        f"400,000 rows of 7 classes: an oracle call {found['call_seconds']:.3f} s, rules of "
        f"H-mean under coverage {found['seconds']:.1f} s, gap {found['gap']:.1e}, violation "
        f"{found['violation']:.1e}",
        flush=True,
    )
