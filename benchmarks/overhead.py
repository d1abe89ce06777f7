"""Seconds per round and peak memory of a constrained fit over the unconstrained one.

Same library, parameters and rounds. Each fit runs in a process of its own, pairs alternate, and
the ratio reported is the median over pairs. With 2 constraints and with 100 on random subsets of
the rows; each with bounds that never bind, where both fits grow the very same trees and the ratio
is what the machinery costs, and with bounds that do, where the trees differ and so does the time
that the library takes to grow them.

    python benchmarks/overhead.py [--rows 300000] [--rounds 200] [--pairs 5]
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from typing import Any

LIBRARIES = ("xgboost", "lightgbm")


KINDS = ("2 idle", "2 binding", "100 idle", "100 binding")


def drawn_rows(rows: int, columns: int) -> tuple[Any, Any, Any]:
    """Features, labels and the generator that drew them; 0.3 of the labels are positive."""
    import numpy as np

    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, columns)).astype(np.float32)
    score = X[:, 0] + X[:, 1] * X[:, 2] + 0.5 * X[:, 3] ** 2 + rng.normal(size=rows)
    return X, (score > np.quantile(score, 0.7)).astype(int), rng


def fit_once(library: str, constrained: str, rows: int, columns: int, rounds: int) -> None:
    """Fit one model; print seconds, peak MiB and iterations with a multiplier above zero."""
    from gbm_constrained import (
        ConstrainedLGBMClassifier,
        ConstrainedXGBClassifier,
        fnr,
        fpr,
        selection_rate,
    )

    X, y, rng = drawn_rows(rows, columns)
    classes = {"xgboost": ConstrainedXGBClassifier, "lightgbm": ConstrainedLGBMClassifier}
    rules = []
    if constrained.startswith("2 "):
        bounds = (1.0, 1.0) if constrained == "2 idle" else (0.05, 0.6)
        rules = [fpr() <= bounds[0], fnr() <= bounds[1]]
    elif constrained.startswith("100 "):
        # Unconstrained rates after 100 rounds: 0.076 or 0.086, and 0.26.
        bounds = (1.0, 1.0) if constrained == "100 idle" else (0.07, 0.26)
        for i in range(100):
            subset = rng.random(rows) < rng.uniform(0.1, 0.9)
            rate = (fpr, selection_rate)[i % 2]
            rules.append(rate(on=subset) <= bounds[i % 2])
    extra = {"verbosity": 0} if library == "xgboost" else {"verbose": -1}
    model = classes[library](
        constraints=rules,
        n_estimators=rounds,
        n_jobs=2,
        measure_on="train",
        **extra,
    )
    start = time.perf_counter()
    model.fit(X, y)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    active = 0
    if rules:
        multipliers = model.history_.filter(like="multiplier[").to_numpy()
        active = int((multipliers > 0).any(axis=1).sum())
    print(json.dumps({"seconds": seconds, "peak_mib": peak, "active_iterations": active}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--columns", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--only", choices=LIBRARIES)
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=list(KINDS))
    parser.add_argument("--fit", nargs=2, metavar=("LIBRARY", "CONSTRAINED"))
    args = parser.parse_args()
    size = (args.rows, args.columns, args.rounds)
    if args.fit:
        fit_once(*args.fit, *size)
        return

    def run(library: str, constrained: str) -> dict[str, float]:
        command = [sys.executable, __file__, "--fit", library, constrained]
        for name in ("rows", "columns", "rounds"):
            command += [f"--{name}", str(getattr(args, name))]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return dict(json.loads(done.stdout.splitlines()[-1]))

    print(f"{args.rows} rows x {args.columns}, {args.rounds} rounds, {args.pairs} pairs")
    for library in (args.only,) if args.only else LIBRARIES:
        for kind in args.kinds:
            plain, constrained = [], []
            for pair in range(args.pairs):
                for which in ("no", kind) if pair % 2 == 0 else (kind, "no"):
                    (plain if which == "no" else constrained).append(run(library, which))
            pairs = list(zip(constrained, plain, strict=True))
            times = [c["seconds"] / p["seconds"] for c, p in pairs]
            memory = statistics.median(c["peak_mib"] / p["peak_mib"] for c, p in pairs)
            before, after = (
                1e3 * statistics.median(fit["seconds"] for fit in fits) / args.rounds
                for fits in (plain, constrained)
            )
            print(
                f"{library:9s} {kind:12s}"
                f"{before:.2f} -> {after:.2f} ms per round, ratio {statistics.median(times):.3f} "
                f"(pairs {min(times):.3f} to {max(times):.3f}); peak memory {memory:.3f}; "
                f"iterations with a multiplier {constrained[0]['active_iterations']}",
                flush=True,
            )


if __name__ == "__main__":
    main()
