"""Rules of pair rates: test AUC and test gaps under each, on both libraries.

    python benchmarks/auc.py NAME [--libraries xgboost lightgbm]
    python benchmarks/auc.py pareto [--sets compas bank a9a] [--seeds 5]

Each NAME is one table:

- adult: one rule by sex on Adult's own split, depth 4 or 15 leaves, 150 rounds at 0.1.
- hidden: the same without the column of the sexes among the features.
- splits: the rules of 0.01 on three random splits of 70/30.
- affine: an affine change of women's scores, which needs the sex at prediction, in the place of a
  rule. It is chosen out of fold.
- both: `cross_auc` and `auc` by sex at 0.02 together.
- threshold: an AUC rule beside `fpr() <= 0.05`.
- groups: COMPAS by race, races of 300 rows or more.
- cost: CPU time over that of plain fits, 300,000 rows of 30 columns.
- growth: CPU time of a round at 100,000 and 1,000,000 rows.
- pareto: AUC against gaps on three sets, beside linear scores; see `auc_pareto.py`.

Gaps are of women less men. "held out" is the largest value of the rules out of fold, which a fit
reports. Nothing is chosen on test rows. Rows of the CSV are measured once.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from arguments import at_least
from auc_affine import AFFINE_FIGURES, measure_affine
from auc_cost import print_costs, print_growth
from auc_data import (
    GAPS,
    HIDDEN,
    LIBRARIES,
    OWN,
    RULES,
    load_compas,
    load_split,
    make,
    measure_pairs,
)
from auc_pareto import N_SEEDS, SETS, print_pareto
from result_file import Measurements, column
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split

from gbm_constrained import auc, cross_auc, each, fpr, gap

FIGURES = ("test_auc", *GAPS, "held_out", "cpu_seconds")
BOUNDS = (0.05, 0.02, 0.01)
CELLS = [
    ("plain", 0.0),
    *((rule, bound) for rule in ("mean_rank", "cross_auc", "subgroup") for bound in BOUNDS),
    ("auc", 0.02),
    ("positives", 0.01),
]
# Test AUC that a prototype of the density kernel reached, rounded down.
EARLIER = {
    ("mean_rank", 0.05): 0.919, ("mean_rank", 0.02): 0.915, ("mean_rank", 0.01): 0.914,
    ("cross_auc", 0.05): 0.922, ("cross_auc", 0.02): 0.919, ("cross_auc", 0.01): 0.918,
    ("subgroup", 0.05): 0.922, ("subgroup", 0.02): 0.920, ("subgroup", 0.01): 0.918,
    ("auc", 0.02): 0.915, ("positives", 0.01): 0.925,
}  # fmt: skip
AFFINE_CELLS = [
    ("cross_auc", 0.05), ("cross_auc", 0.01), ("mean_rank", 0.05), ("mean_rank", 0.01),
    ("subgroup", 0.01),
]  # fmt: skip
SEEDS = ("0", "1", "2")
SMALLEST_RACE = 300


def measure_cell(library: str, rule: str, bound: float, split: str) -> dict[str, float]:
    """Fit under a rule by sex, and measure it on test rows."""
    rows = load_split(split)
    model = make(library, RULES[rule](bound))
    start = time.process_time()
    model.fit(rows.X, rows.y, **rows.fit_options)
    seconds = time.process_time() - start
    score = model.predict_proba(rows.X_test)[:, 1]
    found = measure_pairs(rows.y_test, score, rows.group_test)
    return found | {"held_out": find_held_out(model), "cpu_seconds": seconds}


def find_held_out(model: Any) -> float:
    """Find the largest value of the rules of a fit out of fold, of those above a bound."""
    if not model.constraints:
        return np.nan
    report = model.constraint_report_
    return float(np.abs(report["held_out"].to_numpy(np.float64)).max())


def print_cells(
    path: Path, libraries: Sequence[str], cells: Sequence[tuple[str, float]], splits: Sequence[str]
) -> None:
    """Print the test AUC and gap under each rule, means over the splits."""
    results = Measurements(path, ("library", "rule", "bound", "split"), FIGURES)
    print("library   rule       bound  out of fold  test gap  test AUC  prototype   cpu seconds")
    for library in libraries:
        for rule, bound in cells:
            rows = [
                results.once(
                    partial(measure_cell, library, rule, bound, split), library, rule, bound, split
                )
                for split in splits
            ]
            print_cell(library, rule, bound, rows)


def print_cell(library: str, rule: str, bound: float, rows: Sequence[Mapping[str, float]]) -> None:
    """Print a line of the table of rules."""
    means = {figure: column(rows, figure).mean() for figure in FIGURES}
    gaps = [rule] if rule in GAPS else [g for g in GAPS if rule == "plain" or g.endswith("auc")]
    shown = ", ".join(f"{means[g]:+.4f}" for g in gaps)
    earlier = EARLIER.get((rule, bound), np.nan)
    print(f"{library:9} {rule:10} {bound:5}  {means['held_out']:11.4f}  {shown:8}  "
          f"{means['test_auc']:8.4f}  {earlier:9}   {means['cpu_seconds']:11.1f}",
          flush=True)  # fmt: skip


def print_affine(path: Path, libraries: Sequence[str]) -> None:
    """Print the test AUC and gap of affine changes of women's scores."""
    results = Measurements(path, ("library", "rule", "bound"), AFFINE_FIGURES)
    print("library   rule       bound  out of fold  test gap  test AUC   slope  shift")
    for library in libraries:
        for rule, bound in AFFINE_CELLS:
            named = (library, rule, bound)
            found = results.once(partial(measure_affine, *named), *named)
            print(f"{library:9} {rule:10} {bound:5}  {found['held_out']:+11.4f}  "
                  f"{found['test_gap']:+8.4f}  {found['test_auc']:8.4f}   {found['slope']:5.2f}"
                  f"  {found['shift']:+5.2f}", flush=True)  # fmt: skip


def measure_threshold(library: str) -> dict[str, float]:
    """Fit an AUC rule with and without a bound on false positives."""
    rows = load_split(OWN)
    ranked = gap(cross_auc(), by="sex") <= 0.02
    model = make(library, [ranked, fpr() <= 0.05]).fit(rows.X, rows.y)
    report = model.constraint_report_
    score = model.predict_proba(rows.X_test)[:, 1]
    decided = np.asarray(model.predict(rows.X_test))
    found = measure_pairs(rows.y_test, score, rows.group_test)
    return {
        "held_out_gap": float(report["held_out"].iloc[0]),
        "held_out_fpr": float(report["held_out"].iloc[1]),
        "test_gap": found["cross_auc"],
        "test_fpr": float(decided[rows.y_test == 0].mean()),
        "test_auc": found["test_auc"],
        "shift": float(np.ravel(model.shift_)[0]),
    }


def print_threshold(path: Path, libraries: Sequence[str]) -> None:
    """Print a pair rule beside a bound on false positives."""
    figures = ("held_out_gap", "held_out_fpr", "test_gap", "test_fpr", "test_auc", "shift")
    results = Measurements(path, ("library",), figures)
    for library in libraries:
        found = results.once(partial(measure_threshold, library), library)
        print(f"{library:9}", *(f"{f} {found[f]:+.4f}" for f in figures), sep="  ", flush=True)


def measure_groups(library: str, rule: str, bound: float, split: int) -> dict[str, float]:
    """Fit a rule of the races of COMPAS, and measure the AUC of each race on test rows."""
    X, y, race = load_compas()
    names, sizes = np.unique(race, return_counts=True)
    kept = np.isin(race, names[sizes >= SMALLEST_RACE])
    X, y, race = X[kept], y[kept], race[kept]
    X = X.assign(race=X["race"].cat.remove_unused_categories())
    parts = train_test_split(X, y, race, test_size=0.3, random_state=split, stratify=race)
    X, X_test, y, y_test, _, race_test = parts
    rules = {"gap": [gap(auc(), by="race") <= bound], "each": [each(auc(), by="race") >= bound]}
    model = make(library, rules.get(rule, []), n_estimators=100, learning_rate=0.05).fit(X, y)
    score = model.predict_proba(X_test)[:, 1]
    of_race = [
        float(roc_auc_score(y_test[race_test == name], score[race_test == name]))
        for name in np.unique(race_test)
    ]
    held_out = model.constraint_report_["held_out"].iloc[0] if rule in rules else np.nan
    return {
        "held_out": float(held_out),
        "test_gap": float(np.ptp(of_race)),
        "test_worst": float(min(of_race)),
        "test_auc": float(roc_auc_score(y_test, score)),
    }


def print_groups(path: Path, libraries: Sequence[str]) -> None:
    """Print rules of several groups."""
    figures = ("held_out", "test_gap", "test_worst", "test_auc")
    results = Measurements(path, ("library", "rule", "bound", "split"), figures)
    print("library   rule   bound  out of fold  test gap  test worst  test AUC")
    for library in libraries:
        for rule, bound in (("plain", 0.0), ("gap", 0.05), ("each", 0.7), ("each", 0.72)):
            rows = [
                results.once(
                    partial(measure_groups, library, rule, bound, split),
                    library, rule, bound, split,
                )
                for split in range(3)
            ]  # fmt: skip
            means = [column(rows, figure).mean() for figure in figures]
            print(f"{library:9} {rule:6} {bound:5}", *(f"{m:10.4f}" for m in means), flush=True)


TABLES: dict[str, Callable[[Path, Sequence[str]], None]] = {
    "adult": partial(print_cells, cells=CELLS, splits=(OWN,)),
    "hidden": partial(print_cells, cells=CELLS, splits=(HIDDEN,)),
    "splits": partial(
        print_cells, cells=[cell for cell in CELLS if cell[1] in (0.0, 0.01)], splits=SEEDS
    ),
    "affine": print_affine,
    "both": partial(print_cells, cells=[("both", 0.02)], splits=(OWN,)),
    "threshold": print_threshold,
    "groups": print_groups,
    "cost": print_costs,
    "growth": print_growth,
}
SHARED = {"hidden": "adult", "splits": "adult", "both": "adult"}  # Tables in the same file.


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", choices=[*TABLES, "pareto"])
    parser.add_argument("--libraries", nargs="+", choices=LIBRARIES, default=list(LIBRARIES))
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS), help="of pareto")
    parser.add_argument("--seeds", type=at_least(1), default=N_SEEDS, help="of pareto")
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # Constraints that are missed are counted.
    file = SHARED.get(given.table, given.table)
    path = Path(__file__).parent / "results" / "auc" / f"{file}.csv"
    if given.table == "pareto":
        print_pareto(path, given.sets, given.seeds)
    else:
        TABLES[given.table](path, given.libraries)


if __name__ == "__main__":
    main()
