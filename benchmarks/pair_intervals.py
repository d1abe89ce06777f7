"""Pair rates: how often their 95% intervals cover the truth, and how often certificates are false.

Scores are Gaussian in each class and group, so that all pair rates of the population are known.
The smaller of two groups has 30% of the rows and a base rate of .12, the larger one of .30: with
300, 700 and 1,500 rows the smallest cell has about 11, 25 and 54.

- auc, gap(auc), gap(cross_auc), gap(mean_rank), and two rules of overlapping sets: the
  background-subgroup AUCs with all rows as background (subgroup), and the average equality gap of
  positives (equality).
- "covered" is the fraction of draws whose interval of
  `gbm_constrained.statistics.pairs` holds the truth, and "width" is its mean length.
  "folded" is the fraction for the interval of the absolute value, which reports give of gaps.
  "normal" is the fraction for the plain interval of the same variance.
- "false" is the fraction of draws in which `gbm_constrained.statistics.pairs`
  certifies, at delta = .1, a bound just below the truth.
- In the population "separated" nearly all pairs are in the right order.

    python benchmarks/pair_intervals.py [--draws 2000] [--output FOLDER]

Each line is a row of the CSV, and is not repeated while that is there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from result_file import Figures, Table, at_least, make_parser, run_tables
from scipy.stats import norm

from gbm_constrained.problem.pairs import PairRates
from gbm_constrained.statistics.pairs import PairMoments, estimate_pair_rates, pair_deviation

# Cells are (group, label) in the order of (0, 0), (0, 1), (1, 0), (1, 1).
SHARES = np.array([0.49, 0.21, 0.264, 0.036])
LOCATIONS = {
    "usual": np.array([0.0, 1.5, -0.4, 0.8]),
    "separated": np.array([0.0, 3.5, -0.4, 2.4]),
}
ALL, POSITIVES, NEGATIVES = (0, 1, 2, 3), (1, 3), (0, 2)
RULES = {
    "auc": [(POSITIVES, NEGATIVES)],
    "gap(auc)": [((1,), (0,)), ((3,), (2,))],
    "gap(cross_auc)": [((1,), (2,)), ((3,), (0,))],
    "gap(mean_rank)": [((0, 1), ALL), ((2, 3), ALL)],
    "subgroup": [(POSITIVES, (2,)), ((3,), NEGATIVES)],
    "equality": [((3,), POSITIVES)],
}
FIGURES = ("truth", "covered", "folded", "width", "normal", "false")


def pair_rates(rule: str) -> tuple[PairRates, NDArray[np.float64]]:
    """Read the pair rates of a rule, and their coefficients: the first less the second."""
    cells, pairs = np.arange(4), RULES[rule]
    first, second = (np.array([np.isin(cells, pair[side]) for pair in pairs]) for side in (0, 1))
    return PairRates(first, second), np.array([1.0, -1.0])[: len(pairs)]


def measure(population: str, n: int, rule: str, draws: int) -> Figures:
    """Count the intervals that hold the truth, and the false certificates."""
    rng = np.random.default_rng(n)
    location = LOCATIONS[population]
    rates, a = pair_rates(rule)
    table = norm.cdf((location[:, None] - location) / np.sqrt(2.0))
    truth = float(a @ rates.values(table, SHARES))
    found = np.empty((draws, len(FIGURES) - 1))
    for i in range(draws):
        cells = rng.choice(4, n, p=SHARES)
        moments = PairMoments(location[cells] + rng.normal(size=n), cells, None, 4)
        estimates = estimate_pair_rates(moments, rates)
        sums = estimates.sums(a[None], np.zeros(1))
        low, high = sums.intervals()[0]
        value, spread = sums.values[0], np.sqrt(max(a @ estimates.covariance @ a, 0.0))
        deviation = pair_deviation(moments.sizes, rates, a, 0.1)
        found[i] = (
            low <= truth <= high,
            max(low, -high) <= abs(truth) <= max(high, -low),
            high - low,
            abs(value - truth) <= norm.isf(0.025) * spread,
            value + deviation < truth,
        )
    return dict(zip(FIGURES, (truth, *found.mean(axis=0).tolist()), strict=True))


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--draws", type=at_least(1), default=2000)
    names: dict[str, Any] = {"population": LOCATIONS, "rows": (300, 700, 1500), "rule": RULES}
    table = Table(
        measure,
        names,
        "{population:10} {rows:>5} {rule:15} {truth:>6.3f} {covered:>8.3f} {folded:>7.3f} "
        "{width:>6.3f} {normal:>7.3f} {false:>6.3f}",
        heading="population     n rule             truth  covered  folded  width  normal  false",
    )
    run_tables(
        {"pair_intervals": table}, "", parser, lambda args: names.update(draws=(args.draws,))
    )


if __name__ == "__main__":
    main()
