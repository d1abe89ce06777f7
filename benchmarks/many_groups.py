"""Equal true positive rates of many groups, beside M2FGB and FairGBM.

Adult by race and sex (six groups), Law school by race (two), and by race and sex (four), on five
splits; the largest gap of true positive rates is bounded by 0, 0.025, 0.05, 0.1 and 0.2. Splits,
booster and processes are those of ``peers.py``. M2FGB is reimplemented from its paper
(``peer_runs/others.py``). It has no bound, and FairGBM's step needs tuning: both keep a
quarter of the training rows to choose a setting on, and train it again on all of them. M2FGB also
runs in each of its settings, so that the best of them on test rows is in its frontier.

Half of the rows of Adult test, as the smallest group has 95 positives.

    python benchmarks/many_groups.py [--data ...] [--peers ...] [--splits 5] [--environments DIR]
        [--results FILE]

Each run is a row of one CSV file, and runs that are there already are skipped.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from peer_runs.catalogue import PEERS, Peer
from peer_runs.methods import GAP_RULES, Rule, Split
from peer_runs.others import SETTINGS
from peer_runs.report import COLUMNS, OURS, Cell, cells_of, jackknife_interval, read, score
from peers import Job, Runs, key_of, known
from result_file import HERE, ResultFile, at_least, make_parser

RULE = GAP_RULES["tpr_gap"]
BOUNDS, ASKED, TREES = (0.05, 0.1, 0.2), (0.0, 0.025, 0.05, 0.1, 0.2), 100
DATA = ("adult_by_race_and_sex", "law_school", "law_school_by_race_and_sex")
THEIRS = ("fairgbm", "m2fgb", "m2fgb_settings")
METHODS = {
    **{name: PEERS[name] for name in ("plain", *OURS)},
    "fairgbm": replace(PEERS["fairgbm"], method="others.FairGBMOfManyGroups"),
    "m2fgb": Peer("m2fgb", "others.M2FGB"),
    "m2fgb_settings": Peer(
        "m2fgb_settings", "others.EachSetting", asks=tuple(map(float, range(len(SETTINGS))))
    ),
}
BALANCED = "test_balanced_error"
RESULTS = HERE / "results" / "many_groups.csv"


def score_with_balance(
    rule: Rule, asked: float, split: Split, y_test: Any, answer: dict[str, Any], peer: Peer
) -> dict[str, Any]:
    """Figures of a run, and the mean of the error rates of both classes."""
    with np.load(answer["file"]) as decisions:
        errors = [np.mean(decisions["test"][y_test == label] != label) for label in (0, 1)]
    return score(rule, asked, split, y_test, answer, peer) | {BALANCED: f"{np.mean(errors):.6g}"}


def jobs_of(args: argparse.Namespace, done: set[tuple[str, ...]]) -> Iterator[Job]:
    """List what is still to be run, split by split."""
    for seed in range(args.splits):
        for data in args.data:
            for peer in (METHODS[name] for name in args.peers):
                wishes = tuple(
                    (RULE, asked)
                    for asked in peer.asks or ASKED
                    if key_of(data, seed, peer, RULE.task, asked, TREES) not in done
                )
                if wishes:
                    yield Job(data, seed, peer, wishes, TREES)


def table_at_bounds(table: pd.DataFrame) -> pd.DataFrame:
    """Means and standard errors over splits of what each method gives for what is asked."""
    asked = table[table["test_violation"].notna() | (table["peer"] == "plain")]
    asked = asked.assign(beyond_sampling=asked["is_beyond_sampling"].astype(str) == "True")
    figures = {
        f"{name}_{how}": (column, how)
        for name, column in (("accuracy", "test_accuracy"), ("balanced_error", BALANCED),
                             ("gap", "test_value"))
        for how in ("mean", "sem")
    }  # fmt: skip
    grouped = asked.groupby(["data", "asked", "peer"], sort=False)
    found = grouped.agg(**figures, beyond=("beyond_sampling", "mean"), splits=("split", "size"))
    return found.reset_index().sort_values(["data", "asked"], kind="stable")


def accuracy_of(cell: Cell, method: str, gap: float, splits: list[int] | None = None) -> float:
    """Find the largest accuracy at a mean test gap, by lots between two models of a method.

    The constant decision for the larger class, whose gap is zero, is a model of each method.
    """
    values, accuracies = (np.append(*pair) for pair in zip(
        cell.averaged(method, splits), (0.0, cell.floor), strict=True))  # fmt: skip
    is_below = values <= gap
    share = (gap - values[is_below, None]) / (values[~is_below] - values[is_below, None])
    lots = (1.0 - share) * accuracies[is_below, None] + share * accuracies[~is_below]
    return float(max(accuracies[is_below].max(), lots.max(initial=0.0)))


def table_at_equal_gaps(table: pd.DataFrame) -> pd.DataFrame:
    """Accuracy at equal test gaps, and our advantage over each peer with its 95 % interval."""
    rows: list[dict[str, Any]] = []
    for cell, gap in ((cell, gap) for cell in cells_of(table) for gap in BOUNDS):
        for method in cell.frontiers:
            row = {"data": cell.data, "gap": gap, "method": method}
            row["accuracy"] = round(accuracy_of(cell, method, gap), 4)
            peers = [peer for peer in THEIRS if peer in cell.frontiers and method in OURS]
            for peer in peers:
                found = advantage(cell, method, peer, gap)
                row[peer] = "{:.4f} [{:.4f}, {:.4f}]".format(*found)
            rows.append(row)
    return pd.DataFrame(rows)


def advantage(cell: Cell, ours: str, peer: str, gap: float) -> tuple[float, float, float]:
    """Our accuracy less the peer's at a test gap, and its 95 % interval over splits."""
    return jackknife_interval(
        lambda splits: accuracy_of(cell, ours, gap, splits) - accuracy_of(cell, peer, gap, splits),
        cell.frontiers[ours].shape[1],
    )


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA))
    parser.add_argument("--peers", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--splits", type=at_least(1), default=5)
    parser.add_argument("--environments", type=Path, default=Path("build/peers"))
    parser.add_argument("--results", type=Path, default=RESULTS)
    args = parser.parse_args()
    results = ResultFile(args.results, [*COLUMNS, BALANCED])
    jobs = list(jobs_of(args, known(results)))
    Runs(results, args.environments.resolve(), 1, score_with_balance).all(jobs)
    table = read(args.results, TREES)
    with pd.option_context("display.width", 250, "display.max_columns", None):
        print(table_at_bounds(table).round(4).to_string(index=False))
        print(table_at_equal_gaps(table).fillna("").to_string(index=False))


if __name__ == "__main__":
    main()
