"""The level-set method on a9a, by sex: the data and the metrics of its paper.

Each method solves or approaches the same surrogate problem, of maximum AUC with the two pair rates
of a metric at most kappa apart, on 90% of the training rows.

- "exact": its optimum for a linear score.
- "levels", "network": the level-set method, for a linear score and for ten sigmoid units.
- "batches", "single rows": levels of 40,000 rows, read 100 at a time and one at a time.
- "objective" and "violation" are the surrogate's on the training rows: the objective of the last
  level, and the largest violation of a surrogate bound at any level.
- "auc" and "gap" are the AUC and the signed difference of the two pair rates on test rows.

    GBM_CONSTRAINED_DATA=FOLDER python benchmarks/level_set.py [--csv FILE]

Each line is a row of the CSV, and is not repeated while that is there.
"""

from __future__ import annotations

import argparse
import io
import lzma
import os
import time
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from result_file import Measurements
from sklearn.datasets import load_svmlight_file

from gbm_constrained.linear_model.auc_scorer import LinearScore, SigmoidNetwork
from gbm_constrained.problem.pairs import pair_table
from gbm_constrained.solvers.level_set import (
    DualGeometry,
    LevelSchedule,
    LevelSetSearch,
    Primal,
    SaddleProblem,
    SquareSurrogate,
    bound_difference,
    density_ratios,
    find_optimum,
    follow_levels,
    follow_proximal_points,
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
NAMES = ("method", "metric", "kappa")
FIGURES = ("objective", "violation", "levels", "auc", "gap", "seconds")


class Table(NamedTuple):
    """Rows of a file: features, and the sets that each row is in."""

    X: NDArray[np.float64]
    members: NDArray[np.float64]


def load(name: str) -> Table:
    """Read a file of LIBSVM."""
    path = Path(os.environ.get("GBM_CONSTRAINED_DATA", ".")) / f"{name}.xz"
    sparse, y = load_svmlight_file(io.BytesIO(lzma.decompress(path.read_bytes())), n_features=123)
    X = sparse.toarray()
    p, f = y > 0, X[:, FEMALE] == 1
    masks = [p, ~p, f, ~f, np.ones_like(p), p & f, p & ~f, ~p & f, ~p & ~f]
    return Table(X, np.stack(masks, axis=1).astype(np.float64))


@cache
def tables() -> tuple[Table, Table]:
    """Read the training rows without a tenth, and the test rows."""
    whole = load("a9a")
    rows = np.random.RandomState(0).permutation(len(whole.X))[: int(0.9 * len(whole.X))]
    return Table(whole.X[rows], whole.members[rows]), load("a9a.t")


def auc(
    scores: NDArray[np.float64], members: NDArray[np.float64], upper: int, lower: int
) -> float:
    """Compute the AUC of two sets, which may overlap: rows in both are there twice."""
    parts = [np.flatnonzero(members[:, j]) for j in (upper, lower)]
    cells = np.repeat([1, 0], [part.size for part in parts])
    return float(pair_table(scores[np.concatenate(parts)], cells, None, 2)[1, 0])


def measure(method: str, metric: str, kappa: float) -> dict[str, float]:
    """Train a score, and measure it on the test rows."""
    training, test = tables()
    ratios = density_ratios(training.members)
    surrogate = SquareSurrogate.of(bound_difference(*METRICS[metric], kappa), 9)
    start = time.perf_counter()
    if method == "exact":
        found = find_optimum(surrogate, training.X, ratios)
        values, scores = [found.values], test.X @ found.weights
    else:
        values, scores = run_levels(method, surrogate, training.X, ratios, test.X)
    seconds = time.perf_counter() - start
    first, second = METRICS[metric]
    figures = (
        values[-1][0],
        max((found - surrogate.limits)[1:].max() for found in values),
        len(values),
        auc(scores, test.members, P, N),
        auc(scores, test.members, *first) - auc(scores, test.members, *second),
        seconds,
    )
    return dict(zip(FIGURES, map(float, figures), strict=True))


def run_levels(
    method: str, surrogate: SquareSurrogate, X: Any, ratios: Any, X_test: Any
) -> tuple[list[NDArray[np.float64]], NDArray[np.float64]]:
    """Run the level-set method; return the functions at each level, and the last test scores."""
    random_state = np.random.RandomState(0)
    score = SigmoidNetwork.of(X, 10) if method == "network" else LinearScore.of(X)
    start = Primal(score.start(random_state), np.zeros(2 * surrogate.n_pairs))
    steps = 0.5, 2.0, score.mean_squared_gradient(start.parameters, X), 100
    geometry = DualGeometry(surrogate.owner, surrogate.n_functions, 3.0)
    problem = SaddleProblem(
        surrogate, score, geometry, *steps, 1e-5 if method == "network" else 0.0
    )
    is_short = method in ("batches", "single rows")
    schedule = LevelSchedule(
        40_000 if is_short else 200_000, 100, 1.0 if is_short else 2.0, 5e-3,
        10 if is_short else 40,
    )  # fmt: skip
    batches = shuffled_batches(len(X), 1 if method == "single rows" else 100, random_state)
    levels = (
        follow_proximal_points(problem, schedule, start, 2, (X, ratios), batches)
        if method == "network"
        else follow_levels(LevelSetSearch(problem, schedule, start, 0.5), X, ratios, batches)
    )
    values = []
    for level in levels:
        scores = score.scores(level.point.parameters, X)
        values.append(surrogate.values(surrogate.moments(scores, ratios)))
    return values, score.scores(level.point.parameters, X_test)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--csv", type=Path, help="results/level_set.csv beside this script")
    arguments = parser.parse_args()
    path = arguments.csv or Path(__file__).parent / "results" / "level_set.csv"
    results = Measurements(path, NAMES, FIGURES)
    form = "{:12} {:13} {:>6} {:>9} {:>9} {:>6} {:>7} {:>7} {:>7}"
    print(form.format(*NAMES, *FIGURES))
    for named in RUNS:
        found = results.once(partial(measure, *named), *named)
        print(form.format(*named, *(f"{found[f]:.4f}" for f in FIGURES)), flush=True)


if __name__ == "__main__":
    main()
