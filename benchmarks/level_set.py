"""The level-set method on a9a, by sex: the data and the metrics of its paper.

Each method solves or approaches the same surrogate problem, of maximum AUC with the two pair rates
of a metric at most kappa apart, on 90% of the training rows.

- "exact": its optimum for a linear score.
- "levels", "network": the level-set method, for a linear score and for ten sigmoid units.
- "batches", "single rows": levels of 40,000 rows, read 100 at a time and one at a time.
- "objective" and "violation" are the surrogate's on the training rows: the objective of the last
  level, and the largest violation of a surrogate bound at any level.
- "auc" and "gap" are the AUC and the signed difference of the two pair rates on test rows.

    GBM_CONSTRAINED_DATA=FOLDER python benchmarks/level_set.py [--output FOLDER]

Each line is a row of the CSV, and is not repeated while that is there.
"""

from __future__ import annotations

import time
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from data_sets import read_a9a
from numpy.typing import NDArray
from result_file import Figures, Table, make_parser, run_tables
from sweep_rules import area

from gbm_constrained.linear_model.auc_scorer import LinearScore, SigmoidNetwork
from gbm_constrained.solvers.level_set import (
    LevelSetSearch,
    PairRule,
    PairTerm,
    SaddleProblem,
    SquareSurrogate,
    density_ratios,
    find_optimum,
    follow_levels,
    shuffled_batches,
)

FEMALE = 71  # Column of X.
# Columns of the members: labels, groups, all rows, then the labels in the groups.
P, N, F, M, ALL, PF, PM, NF, NM = range(9)
METRICS = {
    "group": ((F, M), (ALL, ALL)),
    "inter-group": ((PF, NM), (PM, NF)),
    "intra-group": ((PF, NF), (PM, NM)),
    "positive AEG": ((PF, P), (ALL, ALL)),
    "negative AEG": ((NF, N), (ALL, ALL)),
    "BPSN-BNSP": ((P, NF), (PF, N)),
}
KAPPAS = (3.0, 0.6, 0.3, 0.1, 0.03, 0.01, 0.003)
RUNS = [
    *(("exact", metric, kappa) for metric in METRICS for kappa in KAPPAS),
    *(("levels", metric, kappa) for metric in METRICS for kappa in (0.3, 0.1)),
    *(("network", metric, 0.3) for metric in ("group", "inter-group", "intra-group")),
    *((method, "group", kappa) for method in ("batches", "single rows") for kappa in (0.3, 0.1)),
]


class Rows(NamedTuple):
    """Features, and the sets that each row is in."""

    X: NDArray[np.float64]
    members: NDArray[np.float64]


def load(name: str) -> Rows:
    """Read a9a or its test rows."""
    sparse, p = read_a9a(name)
    X = sparse.toarray()
    f = X[:, FEMALE] == 1
    masks = [p, ~p, f, ~f, np.ones_like(p), p & f, p & ~f, ~p & f, ~p & ~f]
    return Rows(X, np.stack(masks, axis=1).astype(np.float64))


@cache
def tables() -> tuple[Rows, Rows]:
    """Read the training rows without a tenth, and the test rows."""
    whole = load("a9a")
    rows = np.random.RandomState(0).permutation(len(whole.X))[: int(0.9 * len(whole.X))]
    return Rows(whole.X[rows], whole.members[rows]), load("a9a.t")


def auc(
    scores: NDArray[np.float64], members: NDArray[np.float64], upper: int, lower: int
) -> float:
    """Compute the AUC of two sets, which may overlap."""
    return area(scores[members[:, upper] > 0], scores[members[:, lower] > 0])


def measure(method: str, metric: str, kappa: float) -> Figures:
    """Train a score, and measure it on the test rows."""
    training, test = tables()
    ratios = density_ratios(training.members)
    first, second = METRICS[metric]
    rules = [
        PairRule((PairTerm(sign, *first), PairTerm(-sign, *second)), kappa) for sign in (1.0, -1.0)
    ]
    surrogate = SquareSurrogate.of(rules, 9)
    start = time.perf_counter()
    if method == "exact":
        weights, _, found = find_optimum(surrogate, training.X, ratios)
        values, scores = [found], test.X @ weights
    else:
        values, scores = run_levels(method, surrogate, training.X, ratios, test.X)
    seconds = time.perf_counter() - start
    return {
        "objective": float(values[-1][0]),
        "violation": float(max((found - surrogate.limits)[1:].max() for found in values)),
        "levels": len(values),
        "auc": auc(scores, test.members, P, N),
        "gap": auc(scores, test.members, *first) - auc(scores, test.members, *second),
        "seconds": seconds,
    }


def run_levels(
    method: str, surrogate: SquareSurrogate, X: Any, ratios: Any, X_test: Any
) -> tuple[list[NDArray[np.float64]], NDArray[np.float64]]:
    """Run the level-set method; return the functions at each level, and the last test scores."""
    random_state = np.random.RandomState(0)
    score = SigmoidNetwork.of(X, 10) if method == "network" else LinearScore.of(X)
    parameters, is_network = score.start(random_state), method == "network"
    steps = 3.0, 0.5, 2.0, score.mean_squared_gradient(parameters, X), 100
    problem = SaddleProblem(surrogate, score, *steps, 1e-5 if is_network else 0.0)
    ends = (
        (40_000, 1.0, 5e-3, 10)
        if method in ("batches", "single rows")
        else (200_000, 2.0, 5e-3, 40)
    )
    search = LevelSetSearch(problem, problem.start(parameters), 0.5, *ends)
    batches = shuffled_batches(len(X), 1 if method == "single rows" else 100, random_state)
    values = []
    for level in follow_levels(search, X, ratios, batches, 2 if is_network else 1):
        scores = score.scores(level.point.parameters, X)
        values.append(surrogate.values(surrogate.moments(scores, ratios)))
    return values, score.scores(level.point.parameters, X_test)


TABLES = {
    "level_set": Table(
        measure,
        {"method metric kappa": RUNS},
        "{method:12} {metric:13} {kappa:>6} {objective:>9.4f} {violation:>9.4f} {levels:>6.0f} "
        "{auc:>7.4f} {gap:>7.4f} {seconds:>7.1f}",
        heading="method       metric         kappa objective violation levels     auc     gap "
        "seconds",
    )
}


if __name__ == "__main__":
    run_tables(TABLES, "", make_parser(__doc__))
