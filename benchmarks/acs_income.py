"""ACSIncome by sex, by race and by both, beside every peer with the same promise.

A booster that does not see the group has three in ten rows to train on (50,000), and seven to
test on. Bounds of a gap are shares of the plain booster's, measured out of fold on the training
rows of the first split. Peers that need the group have it as a feature, too. Before a test row is
looked at, the hash of code, settings and seeds is written beside the results, and rows of another
hash are not added to them.

    python benchmarks/acs_income.py [--data ...] [--tasks ...] [--peers ...] [--splits 3]
        [--environments DIR] [--results FILE] [--anew] [--figure FILE]
    python benchmarks/acs_income.py --quick   # by sex, one split, three bounds: twenty minutes
    python benchmarks/acs_income.py --tables  # print what the results say

Splits, booster and processes are those of ``peers.py``; runs that are there are skipped.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from many_groups import METHODS as OF_MANY_GROUPS
from peer_runs.acs_report import SHARES, draw, print_tables
from peer_runs.catalogue import ACS, PEERS, Peer, plain_gaps, split_of
from peer_runs.frozen import digest_of, freeze
from peer_runs.methods import GAP_RULES, Rule, Split
from peer_runs.report import COLUMNS, OURS, score, standard_error
from peers import PINS, Job, Runs, key_of, known
from result_file import HERE, ResultFile, at_least, make_parser

TREES, SEEDS = 100, (0, 1, 2)
TASKS = ("selection_rate_gap", "tpr_gap", "equalized_odds", "error_rate_gap")
M2FGB_DATA = "acs_of_eight_columns"
# What M2FGB's authors bound, at the gaps that they publish.
M2FGB_TASK, M2FGB_BOUNDS = "tpr_gap", (0.05, 0.1, 0.2)
MANY_GROUPS = ("acs_by_race", "acs_by_race_and_sex", M2FGB_DATA)
NAMES = (
    "plain", *OURS, "tuned_threshold", "linearpost", "linearpost_groups", "fairgbm", "oxonfair",
    "error_parity", "threshold_optimizer",
)  # fmt: skip
METHODS = {
    **{name: PEERS[name] for name in NAMES},
    "m2fgb": replace(OF_MANY_GROUPS["m2fgb"], tasks=(M2FGB_TASK,)),
    "plain_groups": Peer("plain_groups", "beside.Plain", needs_group=True, asks=(float("inf"),)),
}
SLOW_ON_MANY_GROUPS = ("groups_lightgbm", "linearpost")
# Peers that are not run somewhere, with the reason in docs/evidence/acs_income.md.
LEFT_OUT = {
    "acs_by_race": ("groups_xgboost", "oxonfair", "m2fgb"),
    "acs_by_race_and_sex": ("groups_xgboost",),
    M2FGB_DATA: tuple(set(METHODS) - {"plain", *OURS[:2], "fairgbm", "m2fgb"}),
}
ERROR = "test_standard_error"
RESULTS = HERE / "results" / "acs_income.csv"
QUICK: dict[str, Any] = {
    "data": ["acs_by_sex"],
    "splits": 1,
    "shares": SHARES[::2],
    "results": Path("build/acs_income.csv"),
}


def code() -> Iterator[Path]:
    """List the files that figures come from."""
    yield from (HERE.parent / "gbm_constrained").rglob("*.py")
    yield from PINS.glob("requirements-*.txt")
    yield from (HERE / f"{name}.py" for name in ("acs_income", "peers", "many_groups", "npmc",
                                                 "libraries", "data_sets"))  # fmt: skip
    yield from (PINS / f"{name}.py" for name in ("beside", "catalogue", "methods", "others",
                                                 "report", "runner"))  # fmt: skip


def score_with_error(
    rule: Rule, asked: float, split: Split, y_test: Any, answer: dict[str, Any], peer: Peer
) -> dict[str, Any]:
    """Figures of a run, and the standard error of its largest gap on test rows."""
    with np.load(answer["file"]) as decisions:
        error = standard_error(rule, y_test, decisions["test"], split.groups_test)
    return score(rule, asked, split, y_test, answer, peer) | {ERROR: f"{error:.6g}"}


def peer_of(name: str, data: str) -> Peer:
    """Return a peer as it is run on a data set.

    Of many groups FairGBM has smaller steps, and what is slow has every other bound.
    """
    peer = METHODS[name]
    if data not in MANY_GROUPS:
        return peer
    if name == "fairgbm":
        return replace(peer, method=OF_MANY_GROUPS[name].method)
    return replace(peer, is_slow=name in SLOW_ON_MANY_GROUPS)


def bounds_of(data: str, shares: tuple[float, ...]) -> dict[str, tuple[float, ...]]:
    """List the bounds of each task."""
    if data == M2FGB_DATA:
        return {M2FGB_TASK: M2FGB_BOUNDS}
    gaps = plain_gaps(data, TREES)
    return {task: tuple(float(f"{share * gaps[task]:.4g}") for share in shares) for task in TASKS}


def jobs_of(
    args: argparse.Namespace, bounds: dict[str, dict[str, tuple[float, ...]]],
    done: set[tuple[str, ...]],
) -> Iterator[Job]:  # fmt: skip
    """List what is still to be run, split by split."""
    for seed in SEEDS[: args.splits]:
        for data in args.data:
            for name in (n for n in args.peers if n not in LEFT_OUT.get(data, ())):
                peer = peer_of(name, data)
                wishes = tuple(
                    (GAP_RULES[task], asked)
                    for task in args.tasks
                    if task in peer.tasks and task in bounds[data]
                    for asked in peer.asks or bounds[data][task][:: 2 if peer.is_slow else 1]
                    if key_of(data, seed, peer, task, asked, TREES) not in done
                )
                if wishes:
                    yield Job(data, seed, peer, wishes, TREES)


def run(args: argparse.Namespace) -> None:
    """Freeze code, settings and seeds, and run what is missing."""
    bounds = {data: bounds_of(data, args.shares) for data in ACS}
    rows = {data: [split_of(data, seed)[0].y.size for seed in SEEDS] for data in ACS}
    settings = {
        "trees": TREES, "seeds": SEEDS, "bounds": bounds, "training rows": rows,
        "peers": {name: str(peer) for name, peer in METHODS.items()},
    }  # fmt: skip
    freeze(args.results, digest_of(code(), settings), settings, anew=args.anew)
    results = ResultFile(args.results, [*COLUMNS, ERROR])
    jobs = list(jobs_of(args, bounds, known(results)))
    Runs(results, args.environments.resolve(), args.jobs, score_with_error).all(jobs)


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--data", nargs="+", choices=ACS, help="all; by sex with --quick")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--peers", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--splits", type=at_least(1, len(SEEDS)), help="3; 1 with --quick")
    parser.add_argument("--jobs", type=at_least(1), default=1, help="peers at work at a time")
    parser.add_argument("--environments", type=Path, default=Path("build/peers"))
    parser.add_argument("--results", type=Path, help="results/acs_income.csv beside this script")
    parser.add_argument("--anew", action="store_true", help="delete rows of another hash")
    parser.add_argument("--quick", action="store_true", help="by sex, one split, three bounds")
    parser.add_argument("--tables", action="store_true", help="print what the results say")
    parser.add_argument("--figure", type=Path, help="draw the frontiers by sex into this file")
    args = parser.parse_args()
    whole = {"data": list(ACS), "splits": len(SEEDS), "shares": SHARES, "results": RESULTS}
    for name, value in (QUICK if args.quick else whole).items():
        if getattr(args, name, None) is None:
            setattr(args, name, value)
    if not args.tables:
        run(args)
    print_tables(args.results, TREES, METHODS)
    if args.figure is not None:
        draw(args.results, TREES, args.figure)


if __name__ == "__main__":
    main()
