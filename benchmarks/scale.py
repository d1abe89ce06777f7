"""What a constrained fit costs over the plain library: seconds per round, and peak memory.

Same library, parameters and rounds. Each fit runs in a process of its own, plain and constrained
fits alternate, and what is printed are medians of ratios over pairs. Rules either never bind, so
that both fits grow the very same trees and the ratio is what the machinery costs, or they do, so
that the trees differ, and with them the time that the library takes to grow them.

    python benchmarks/scale.py [overhead rows constraints classes inputs groups] [--only xgboost]
        [--pairs 5] [--jobs 2] [--largest ROWS] [--output FOLDER] [--quick]

Every fit is written to the CSV as it ends; the same command goes on where it was stopped. On a
busy machine take ``--jobs 1`` and read the ratios of user CPU seconds: with more threads the
libraries spin while they wait for each other, which costs them far more than us.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from result_file import HERE, Figures, Measurements, add_parts, at_least, make_parser
from scipy import sparse, stats

LIBRARIES = ("xgboost", "lightgbm")
SWEEPS = ("overhead", "rows", "constraints", "classes", "inputs", "groups")
BYTES_PER_VALUE = 14  # of features, at the peak of a fit: drawn, binned, and per-row vectors
CHUNK = 65_536


@dataclass(frozen=True)
class Case:
    """What is fitted, plain or under rules.

    Parameters
    ----------
    rules : str
        "overall" for rates of all rows, "subsets" for rates of random subsets of them, "groups"
        for one gap between random groups, measured out of fold.
    constraints : int
        How many; two of the overall ones; of groups.
    binding : bool
        Whether bounds are below what the plain library reaches.
    """

    library: str
    rows: int = 300_000
    columns: int = 30
    classes: int = 2
    inputs: str = "dense"
    rules: str = "overall"
    constraints: int = 2
    binding: bool = True
    rounds: int = 100
    jobs: int = 2

    def __str__(self) -> str:
        kind = "binding" if self.binding else "idle"
        several = "" if self.classes == 2 else f", {self.classes} classes"
        return (
            f"{self.library} {self.rows:,} x {self.columns} {self.inputs}{several}, "
            f"{self.constraints} {kind} on {'all rows' if self.rules == 'overall' else self.rules}"
        )


# --- one fit ----------------------------------------------------------------------------------


def drawn_rows(rows: int, columns: int, classes: int = 2) -> tuple[Any, Any, Any]:
    """Features, labels and the generator that drew them; 0.3 of two classes are positive."""
    rng = np.random.default_rng(0)
    X = np.empty((rows, columns), dtype=np.float32)
    for start in range(0, rows, CHUNK):  # in double precision all at once it would be the peak
        part = X[start : start + CHUNK]
        part[...] = rng.normal(size=part.shape)
    score = X[:, 0] + X[:, 1] * X[:, 2] + 0.5 * X[:, 3] ** 2 + rng.normal(size=rows)
    shares = [0.7] if classes == 2 else np.arange(1, classes) / classes
    return X, np.searchsorted(np.quantile(score, shares), score, side="left"), rng


def as_inputs(X: Any, inputs: str) -> Any:
    """Dense features as they are; or with nine in ten zeros; or a third of them categories."""
    if inputs == "dense":
        return X
    if inputs == "sparse":
        parts = [X[start : start + CHUNK] for start in range(0, len(X), CHUNK)]
        return sparse.vstack([sparse.csr_matrix(p * (np.abs(p) > 1.645)) for p in parts], "csr")
    table = pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])])
    for name in table.columns[::3]:
        codes = np.clip(np.round(2.0 * table[name]) + 8, 0, 15).astype(np.int8)
        table[name] = pd.Categorical.from_codes(codes, categories=list("abcdefghijklmnop"))
    return table


def rules_of(case: Case, rows: int, rng: Any) -> list[Any]:
    """Rules of a case, most of which the plain library breaks where they are to bind."""
    from gbm_constrained import class_error, error_rate, fnr, fpr, gap, selection_rate

    def bound(below: float) -> float:
        return below if case.binding else 1.0

    if case.rules == "overall" and case.classes == 2:
        return [fpr() <= bound(0.05), fnr() <= bound(0.6)][: case.constraints]
    if case.rules == "overall":
        return [class_error(k) <= bound(0.05) for k in range(case.constraints)]
    if case.rules == "groups":
        return [gap(fpr(), by="group") <= bound(0.05)]
    # Plain rates of two classes after 100 rounds: 0.076 (XGBoost) or 0.086, and 0.26.
    kinds = [(fpr, 0.07), (selection_rate, 0.26)]
    if case.classes > 2:
        kinds = [(error_rate, 0.2)]
    rules = []
    for i in range(case.constraints):
        subset = rng.random(rows) < rng.uniform(0.1, 0.9)
        rate, below = kinds[i % len(kinds)]
        rules.append(rate(on=subset) <= bound(below))
    return rules


def prepared(case: Case, constrained: bool) -> tuple[Any, Any, Any, dict[str, Any]]:
    """Model, features, labels and further arguments of a fit."""
    from gbm_constrained import ConstrainedLGBMClassifier, ConstrainedXGBClassifier

    X, y, rng = drawn_rows(case.rows, case.columns, case.classes)
    X = as_inputs(X, case.inputs)
    given = {"n_estimators": case.rounds, "n_jobs": case.jobs, "measure_on": "train"}
    given["constraints"] = rules_of(case, case.rows, rng) if constrained else []
    fit: dict[str, Any] = {}
    if constrained and case.rules == "groups":
        given["measure_on"] = "crossfit"
        fit["sensitive_features"] = {"group": rng.integers(0, case.constraints, case.rows)}
    if case.library == "lightgbm":
        return ConstrainedLGBMClassifier(verbose=-1, **given), X, y, fit
    given["enable_categorical"] = case.inputs == "categorical"
    return ConstrainedXGBClassifier(verbosity=0, **given), X, y, fit


def fit_once(case: Case, constrained: bool) -> Figures:
    """Fit; tell seconds, user CPU seconds, peak MiB and iterations with a multiplier at work."""
    model, X, y, further = prepared(case, constrained)
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
    model.fit(X, y, **further)
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF)
    active = 0
    if constrained:
        multipliers = model.history_.filter(like="multiplier[").to_numpy()
        active = int((multipliers > 0).any(axis=1).sum())
    return {
        "seconds": seconds,
        "cpu": after.ru_utime - before.ru_utime,
        "peak_mib": after.ru_maxrss / 1024,
        "active": active,
    }


# --- all fits ---------------------------------------------------------------------------------


def cases_of(sweep: str, library: str, quick: bool) -> Iterator[Case]:
    """List the cases of a sweep."""
    case = Case(library)
    if quick:
        case = replace(case, rows=30_000, rounds=20)
    few, many = replace(case, rules="overall"), replace(case, rules="subsets")
    if sweep == "overhead":
        rounds = 20 if quick else 200
        for constraints in (2, 100):
            for binding in (False, True):
                kind = few if constraints == 2 else many
                yield replace(kind, constraints=constraints, binding=binding, rounds=rounds)
    elif sweep == "rows":
        sizes = (10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)
        for rows in sizes[:3] if quick else sizes:
            yield replace(few, rows=rows)
    elif sweep == "constraints":
        numbers = (1, 10, 100) if quick else (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
        for constraints in numbers:
            yield replace(many, constraints=constraints)
    elif sweep == "classes":
        for classes in (5,) if quick else (2, 3, 5, 10, 20):
            yield replace(few, classes=classes, rows=min(case.rows, 100_000))
    elif sweep == "groups":
        for groups in (5, 20) if quick else (5, 20, 50, 100, 200):
            size = replace(case, rows=min(case.rows, 60_000), rounds=min(case.rounds, 50))
            yield replace(size, rules="groups", constraints=groups)
    else:
        for inputs in ("sparse", "categorical") if quick else ("dense", "sparse", "categorical"):
            yield replace(few, inputs=inputs)


def available_mib() -> float:
    """Memory that a new process could have; no limit where the system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return float("inf")
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("MemAvailable"))


def results_in(folder: Path) -> Measurements:
    """Fits done so far. Plain fits on the same data are alike, but each has its pair."""
    return Measurements(folder / "scale.csv", [*(f.name for f in fields(Case)), "fit", "pair"])


def run(*named: Any) -> Figures:
    """Fit a case in a process of its own, given its values and the fit."""
    *values, fit, _ = named
    case = Case(*values)
    command = [sys.executable, __file__, "--fit", fit, json.dumps(asdict(case))]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{case}, {fit}: ended with {done.returncode}\n{done.stderr}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


class Pairs(NamedTuple):
    """Plain and constrained fits of a case, in the order of their pairs."""

    case: Case
    plain: pd.DataFrame
    constrained: pd.DataFrame

    @property
    def ratios(self) -> pd.DataFrame:
        """Constrained over plain of each pair."""
        return self.constrained / self.plain

    def per_round(self, name: str) -> tuple[float, float]:
        """Medians of the constrained fits and of what they add, in each round."""
        whole, added = self.constrained[name], self.constrained[name] - self.plain[name]
        return whole.median() / self.case.rounds, added.median() / self.case.rounds

    def __str__(self) -> str:
        seconds, medians = self.ratios["seconds"], self.ratios.median()
        plain, constrained = (
            1e3 * fits["seconds"].median() / self.case.rounds
            for fits in (self.plain, self.constrained)
        )
        return (
            f"{self.case}: {plain:.2f} -> {constrained:.2f} ms per round, ratio "
            f"{medians['seconds']:.3f} ({seconds.min():.3f} to {seconds.max():.3f}), of CPU "
            f"{medians['cpu']:.3f}; memory {medians['peak_mib']:.3f}; iterations with a "
            f"multiplier {self.constrained['active'][0]:.0f}"
        )


def measure(case: Case, pairs: int, results: Measurements) -> Pairs | None:
    """Run what is missing of a case's fits; None where memory is too small for them."""
    needed = case.rows * case.columns * BYTES_PER_VALUE / 2**20
    if needed > available_mib():
        print(f"{case}: left out, takes about {needed:,.0f} MiB", flush=True)
        return None
    fits: dict[str, list[Mapping[str, float]]] = {"plain": [], "constrained": []}
    for pair in range(pairs):
        for fit in ("plain", "constrained")[:: 1 if pair % 2 == 0 else -1]:
            fits[fit].append(results.once(run, *asdict(case).values(), fit, pair))
    return Pairs(case, *map(pd.DataFrame, fits.values()))


# --- slopes -----------------------------------------------------------------------------------


class Slope(NamedTuple):
    """Exponent of a power law, with its 95 % interval and how many points it goes through."""

    value: float
    low: float
    high: float
    points: int

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f}, {self.points} points)"


def slope(x: Sequence[float], y: Sequence[float]) -> Slope:
    """Least squares on logarithms, with a t interval; points that are not positive are left out.

    The interval is of the scatter about the line, also where that is a bend in what was measured.
    """
    points = [(np.log(a), np.log(b)) for a, b in zip(x, y, strict=True) if a > 0 and b > 0]
    if len(points) < 3:
        return Slope(np.nan, np.nan, np.nan, len(points))
    found = stats.linregress(*zip(*points, strict=True))
    half = float(stats.t.ppf(0.975, len(points) - 2) * found.stderr)
    return Slope(found.slope, found.slope - half, found.slope + half, len(points))


def print_slopes(sweep: str, measured: Sequence[Pairs]) -> None:
    """Print how seconds per round grow with rows, or with the number of constraints."""
    spans: list[float] = [100, np.inf] if sweep == "constraints" else [np.inf]
    for most in spans:
        inside = [p for p in measured if getattr(p.case, sweep) <= most]
        x = [getattr(p.case, sweep) for p in inside]
        upto = "" if most == np.inf else f" up to {most:.0f}"
        for name in ("seconds", "cpu"):
            per_round = [p.per_round(name) for p in inside]
            whole, added = (slope(x, y) for y in zip(*per_round, strict=True))
            print(
                f"{inside[0].case.library}: slope of {name} per round in {sweep}{upto}: whole "
                f"{whole}; added {added}",
                flush=True,
            )


def main() -> None:
    parser = make_parser(__doc__)
    add_parts(parser, "sweeps", SWEEPS)
    parser.add_argument("--only", choices=LIBRARIES)
    parser.add_argument("--pairs", type=at_least(1), help="5; 1 with --quick")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--largest", type=int, default=10_000_000, help="rows of the largest case")
    parser.add_argument("--output", type=Path, help="results beside this script")
    parser.add_argument("--quick", action="store_true", help="small tables, in a few minutes")
    parser.add_argument("--fit", nargs=2, metavar=("FIT", "CASE"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.fit:
        print(json.dumps(fit_once(Case(**json.loads(args.fit[1])), args.fit[0] == "constrained")))
        return
    pairs = args.pairs or (1 if args.quick else 5)
    libraries = (args.only,) if args.only else LIBRARIES
    results = results_in(args.output or (Path("build") if args.quick else HERE / "results"))
    for sweep in args.sweeps:
        for library in libraries:
            cases = [replace(c, jobs=args.jobs) for c in cases_of(sweep, library, args.quick)]
            cases = [c for c in cases if c.rows <= args.largest]
            measured = []
            for i, case in enumerate(cases, start=1):
                found = measure(case, pairs, results)
                if found is not None:
                    measured.append(found)
                    print(f"[{sweep} {i}/{len(cases)}] {found}", flush=True)
            if sweep in ("rows", "constraints") and measured:
                print_slopes(sweep, measured)


if __name__ == "__main__":
    main()
