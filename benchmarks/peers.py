"""Every peer side by side: accuracy on test rows against what a rule bounds there.

Each peer runs in a process of its own, in its own pinned environment
(``peer_runs/requirements-*.txt``), on the same splits with the same booster parameters and number
of trees. It sees no label of a test row. Each run is a row of one CSV file; runs that are there
already are skipped, and ``--tables`` prints what the file says. What docs/evidence.md shows is
in ``results/peers.csv``; a row that is deleted there is run again.

    python benchmarks/peers.py --quick  # COMPAS, two splits, ...: what other options leave open
    python benchmarks/peers.py [--data adult compas ...] [--tasks fpr_gap ...]
        [--peers ours_lightgbm ...] [--splits 5] [--bounds 8] [--trees 100] [--jobs 1]
        [--environments DIR] [--results FILE]
    python benchmarks/peers.py --tables [--figure FILE]

Figures of time are processor seconds of one thread. A peer that cannot be installed is reported,
and the rest goes on.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from peer_runs.catalogue import (
    ALL_DATA,
    ALL_TASKS,
    DATA,
    PEERS,
    Data,
    Peer,
    plain_gaps,
    split_of,
)
from peer_runs.methods import NEYMAN_PEARSON, Rule, Split, parameters, rule_of
from peer_runs.report import COLUMNS, draw_frontiers, print_tables, score
from result_file import HERE, Figures, ResultFile, at_least, make_parser

PINS = HERE / "peer_runs"
# Bounds of gaps, as shares of the plain booster's.
SHARES = (0.0, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9)
# Bounds of Neyman-Pearson, as multiples of its levels, and some below the smallest of them, as
# gaps are asked to be 0: a frontier has nothing to the left of its first point, and who stays
# below what was asked would gain by that alone, who overshoots it lose.
AROUND, BELOW = (0.75, 1.0, 1.25), (0.05, 0.1, 0.25, 0.5)
INSTALLED_AT_ONCE = 2  # Environments; they mostly wait for the network.
SOURCE = "source"  # The folder of a peer's repository in its environment.
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
KEY = ("data", "split", "peer", "task", "asked", "trees")
ENDED = "ended: "  # How the error of a run begins whose process ended without a word of it.


def python_of(name: str, folder: Path, source: str = "") -> str:
    """Python of a peer's environment, which is made where it is missing or its pins changed.

    Parameters
    ----------
    name : str
        Of the environment; the running Python's own when empty.
    folder : Path
        Where the environments are.
    source : str, default=""
        Repository and commit, "address@hash", that is fetched into the environment's folder.

    Raises
    ------
    RuntimeError
        It cannot be installed.
    """
    if not name:
        return sys.executable
    pins = PINS / f"requirements-{name}.txt"
    home = folder / name
    python = home / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    mark = home / "installed.sha256"
    digest = hashlib.sha256(pins.read_bytes() + (sys.version + source).encode()).hexdigest()
    if mark.is_file() and mark.read_text() == digest:
        return str(python)
    print(f"{name}: installing {pins.name} into {home}", flush=True)
    steps = [
        [sys.executable, "-m", "venv", "--clear", str(home)],
        [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
         "-r", str(pins)],
    ]  # fmt: skip
    if source:
        address, _, commit = source.rpartition("@")
        checkout = str(home / SOURCE)
        steps += [
            ["git", "clone", "--quiet", "--no-checkout", address, checkout],
            ["git", "-C", checkout, "checkout", "--quiet", commit],
        ]
    for step in steps:
        done = subprocess.run(step, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{name} cannot be installed: {_last_error(done.stderr)}")
    mark.write_text(digest)
    return str(python)


def _last_error(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return next((line for line in reversed(lines) if "ERROR" in line), (lines or ["?"])[-1])[:300]


@dataclass(frozen=True)
class Job:
    """A peer on a split: what is still to be asked of it."""

    data: str
    seed: int
    peer: Peer
    wishes: tuple[tuple[Rule, float], ...]
    trees: int


def bounds_of(task: str, data: Data, gaps: Figures, n: int) -> tuple[float, ...]:
    """Return about `n` bounds of a task.

    Of Neyman-Pearson, 13 about the levels, or the levels alone if `n` is less than eight.
    """
    if task == NEYMAN_PEARSON:
        bounds = sorted(data.levels)
        if n >= len(SHARES):
            around = [level * factor for factor in AROUND for level in data.levels]
            bounds = sorted(around + [min(data.levels) * factor for factor in BELOW])
    else:
        chosen = np.linspace(0, len(SHARES) - 1, min(n, len(SHARES))).round().astype(int)
        bounds = [SHARES[i] * gaps[task] for i in chosen]
    return tuple(float(f"{bound:.4g}") for bound in bounds)


def jobs_of(args: argparse.Namespace, known: set[tuple[str, ...]]) -> Iterator[Job]:
    for name in args.data:
        data = DATA[name]
        tasks = [task for task in args.tasks if task in data.tasks]
        try:
            gaps = plain_gaps(name, args.trees) if set(tasks) - {NEYMAN_PEARSON} else {}
        except FileNotFoundError as error:
            print(f"{name}: {error}", flush=True)
            continue
        bounds = {task: bounds_of(task, data, gaps, args.bounds) for task in tasks}
        for seed in range(args.splits):
            for peer in (PEERS[name] for name in args.peers):
                wishes = [
                    (rule_of(task, data.rate, data.n_classes), asked)
                    for task in tasks
                    if task in peer.tasks
                    for asked in peer.asks or bounds[task][:: 3 if peer.is_slow else 1]
                ]
                missing = tuple(
                    wish
                    for wish in wishes
                    if key_of(name, seed, peer, wish[0].task, wish[1], args.trees) not in known
                )
                if missing:
                    yield Job(name, seed, peer, missing, args.trees)


def key_of(
    data: str, seed: int, peer: Peer, task: str, asked: float, trees: int
) -> tuple[str, ...]:
    return (data, str(seed), peer.name, task, repr(float(asked)), str(trees))


def known(results: ResultFile) -> set[tuple[str, ...]]:
    """Keys of the runs that are in the file; what a killed process left open is run again."""
    return {
        tuple(row[column] for column in KEY)
        for row in results.rows()
        if not row["error"].startswith(ENDED)
    }


class Runs:
    """Runs jobs, one process each, and scores what they answer.

    Parameters
    ----------
    results : ResultFile
        Gets a row for each run.
    environments : Path
        Where the environments of the peers are.
    n_jobs : int
        Processes at a time.
    figures : callable, default=score
        Makes the figures of a run; of the parameters and result of
        :func:`~peer_runs.scoring.score`.
    """

    def __init__(
        self, results: ResultFile, environments: Path, n_jobs: int, figures: Any = score
    ) -> None:
        self._results, self._environments, self._n_jobs = results, environments, n_jobs
        self._figures = figures
        self._pythons: dict[str, str | RuntimeError] = {}
        self._lock = threading.Lock()
        self._done = 0
        self._start = time.perf_counter()

    def all(self, jobs: list[Job]) -> None:
        sources = {job.peer.environment: job.peer.source for job in jobs}
        with ThreadPoolExecutor(INSTALLED_AT_ONCE) as pool:
            found = pool.map(self._python_of, sources, sources.values())
            self._pythons = dict(zip(sources, found, strict=True))
        able = [job for job in jobs if isinstance(self._pythons[job.peer.environment], str)]
        with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(self._n_jobs) as pool:
            splits: dict[tuple[str, int], tuple[Path, Any]] = {}
            for name, seed in {(job.data, job.seed): None for job in able}:
                split, y_test = split_of(name, seed)
                file = Path(folder) / f"{name}-{seed}.npz"
                split.save(file)
                splits[name, seed] = file, y_test
            waiting = [pool.submit(self._one, job, *splits[job.data, job.seed], len(able))
                       for job in able]  # fmt: skip
            for future in waiting:
                future.result()

    def _python_of(self, name: str, source: str) -> str | RuntimeError:
        try:
            return python_of(name, self._environments, source)
        except RuntimeError as error:
            print(error, flush=True)
            return error

    def _one(self, job: Job, split_file: Path, y_test: Any, total: int) -> None:
        start = time.perf_counter()
        split = Split.load(split_file)
        failed = 0
        with tempfile.TemporaryDirectory() as folder:
            for number, answer in self._answers(job, split_file, Path(folder)):
                rule, asked = job.wishes[number]
                row = {
                    "task": rule.task,
                    "rate": " ".join(rule.rates),
                    "data": job.data,
                    "split": job.seed,
                    "peer": job.peer.name,
                    "asked": repr(float(asked)),
                    "trees": job.trees,
                    "deterministic": job.peer.is_one_model,
                    "needs_group": job.peer.needs_group,
                }
                if "error" in answer:
                    failed += 1
                    row["error"] = answer["error"]
                else:
                    row |= self._figures(rule, asked, split, y_test, answer, job.peer)
                self._results.append(row)
        with self._lock:
            self._done += 1
            elapsed = time.perf_counter() - self._start
            left = elapsed / self._done * (total - self._done)
            print(
                f"[{self._done}/{total}] {job.data} split {job.seed} {job.peer.name}: "
                f"{len(job.wishes)} runs, {failed} failed, {time.perf_counter() - start:.0f} s; "
                f"{elapsed / 60:.1f} min so far, about {left / 60:.1f} to go",
                flush=True,
            )

    def _answers(
        self, job: Job, split_file: Path, folder: Path
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        """Answers of the peer's process; an error for all that it did not answer."""
        data = ALL_DATA[job.data]
        order = {
            "method": job.peer.method,
            "group_is_feature": data.hides_group and job.peer.needs_group,
            "split": str(split_file),
            "folder": str(folder),
            "seed": job.seed,
            "booster": parameters(job.trees, data.tree),
            "wishes": [
                {"task": rule.task, "rates": rule.rates, "is_gap": rule.is_gap, "asked": asked}
                for rule, asked in job.wishes
            ],
        }
        file = folder / "job.json"
        file.write_text(json.dumps(order))
        environment = os.environ | dict.fromkeys(THREADS, "1")
        # The folder of this script for the runner; the package itself for what runs beside it.
        paths = [str(HERE)] if job.peer.environment else [str(HERE), str(HERE.parent)]
        if job.peer.source:
            paths.append(str(self._environments / job.peer.environment / SOURCE))
        environment["PYTHONPATH"] = os.pathsep.join(paths)
        missing = set(range(len(job.wishes)))
        log = folder / "log.txt"
        with log.open("w") as errors:
            process = subprocess.Popen(
                [str(self._pythons[job.peer.environment]), "-m", "peer_runs.runner", str(file)],
                stdout=subprocess.PIPE, stderr=errors, text=True, env=environment, cwd=folder,
            )  # fmt: skip
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith('{"number"'):  # some peers print, too
                    answer = json.loads(line)
                    missing.discard(answer["number"])
                    yield answer["number"], answer
            process.wait()
        if missing:
            last = (log.read_text().strip().splitlines() or ["no word"])[-1][:200]
            print(f"{job.peer.name} ended with {process.returncode}: {last}", flush=True)
            for number in sorted(missing):
                yield number, {"error": f"{ENDED}{last}"}


# What is run unless options say otherwise.
WHOLE: dict[str, Any] = {
    "data": list(DATA),
    "splits": 5,
    "bounds": 8,
    "trees": 100,
    "results": HERE / "results" / "peers.csv",
}
QUICK: dict[str, Any] = {
    "data": ["compas"],
    "splits": 2,
    "bounds": 4,
    "trees": 30,
    "results": Path("build/peers.csv"),
}


def arguments() -> argparse.Namespace:
    parser = make_parser(__doc__)
    parser.add_argument("--data", nargs="+", choices=DATA, help="all; compas with --quick")
    parser.add_argument("--tasks", nargs="+", choices=ALL_TASKS, default=list(ALL_TASKS))
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--splits", type=at_least(1), help="5; 2 with --quick")
    parser.add_argument("--bounds", type=at_least(1), help="8; 4 with --quick")
    parser.add_argument("--trees", type=at_least(1), help="100; 30 with --quick")
    parser.add_argument(
        "--jobs", type=at_least(1), default=1, help="peers at work at the same time"
    )
    parser.add_argument("--environments", type=Path, default=Path("build/peers"))
    parser.add_argument(
        "--results", type=Path, help="results/peers.csv beside this script; build/ with --quick"
    )
    parser.add_argument("--quick", action="store_true", help="COMPAS, two splits, four bounds")
    parser.add_argument("--figure", type=Path, help="draw the frontiers into this file, too")
    parser.add_argument("--tables", action="store_true", help="print what the results say")
    args = parser.parse_args()
    for name, value in (QUICK if args.quick else WHOLE).items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    if "plain" not in args.peers:  # the tables compare with it
        args.peers.append("plain")
    return args


def main() -> None:
    args = arguments()
    if not args.tables:
        results = ResultFile(args.results, COLUMNS)
        jobs = list(jobs_of(args, known(results)))
        Runs(results, args.environments.resolve(), args.jobs).all(jobs)
    print_tables(args.results, args.trees)
    if args.figure is not None:
        draw_frontiers(args.results, args.trees, args.figure)


if __name__ == "__main__":
    main()
