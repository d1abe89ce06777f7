"""What a constrained fit costs over plain XGBoost on a graphics card.

Every fit runs in a process of its own, after a small one that loads the libraries, and includes
the making of its matrix. A bare logistic objective, in numpy or in CuPy, is what any fit with an
objective in Python costs. Without a card the script says so and ends.

    python benchmarks/gpu.py [FIT ...] [--rows 5000000] [--rounds 200] [--repeats 2]
        [--output FOLDER]
    python benchmarks/gpu.py --profile train

The fits are ``plain``, ``logistic``, ``logistic-numpy``, ``train``, ``train-numpy``, ``holdout``,
``holdout-numpy``; on the processor alone ``cpu-plain``, ``cpu-train`` and ``cpu-train-one``, whose
kernels have one thread.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from result_file import HERE, Figures, Measurements, at_least, make_parser

FITS = (
    "plain", "logistic", "logistic-numpy", "train", "train-numpy", "holdout", "holdout-numpy",
)  # fmt: skip
ON_PROCESSOR = ("cpu-plain", "cpu-train", "cpu-train-one")
COLUMNS = 50


def draw_rows(rows: int, folder: Path) -> None:
    """Draw features, labels with a fifth of positives, and two groups, to files."""
    rng = np.random.default_rng(0)
    X = np.empty((rows, COLUMNS), dtype=np.float32)
    for start in range(0, rows, 1 << 18):
        part = X[start : start + (1 << 18)]
        part[...] = rng.standard_normal(part.shape, dtype=np.float32)
    group = (X[:, 4] + rng.standard_normal(rows, dtype=np.float32) > 0.5).astype(np.int8)
    score = X[:, 0] + X[:, 1] * X[:, 2] + 0.5 * X[:, 3] ** 2 + 0.5 * group
    score += rng.standard_normal(rows, dtype=np.float32)
    y = (score > np.quantile(score[:1_000_000], 0.8)).astype(np.int8)
    for name, values in {"X": X, "y": y, "group": group}.items():
        np.save(folder / f"{name}.npy", values)


@contextmanager
def watching(cupy: Any | None) -> Iterator[list[int]]:
    """Read the memory that is taken on the card, in bytes, fifty times a second."""
    taken, is_over = [0], threading.Event()

    def watch() -> None:
        while cupy is not None and not is_over.wait(0.02):
            free, total = cupy.cuda.runtime.memGetInfo()
            taken.append(total - free)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    yield taken
    is_over.set()
    thread.join()


def logistic(xp: Any) -> Callable[[Any, Any], tuple[Any, Any]]:
    """Make the bare logistic objective of a module of arrays."""
    labels: list[Any] = []

    def objective(y_true: Any, margin: Any) -> tuple[Any, Any]:
        if not labels or labels[0].size != y_true.size:
            labels[:] = [xp.asarray(y_true, dtype=xp.float32)]
        p = 1.0 / (1.0 + xp.exp(-xp.asarray(margin)))
        return p - labels[0], xp.maximum(p * (1.0 - p), 1e-16)

    return objective


def prepare(fit: str, rounds: int, cupy: Any) -> tuple[Any, bool]:
    """Make the model of a fit, and tell whether it takes groups."""
    from xgboost import XGBClassifier

    from gbm_constrained import ConstrainedXGBClassifier, fpr, gap

    on_processor = fit.startswith("cpu")
    given: dict[str, Any] = {"n_estimators": rounds, "verbosity": 1}
    given |= {"n_jobs": os.cpu_count()} if on_processor else {"device": "cuda"}
    kind = fit.removeprefix("cpu-")
    if kind == "plain":
        return XGBClassifier(**given), False
    if kind.startswith("logistic"):
        xp = np if kind.endswith("numpy") else cupy
        return XGBClassifier(objective=logistic(xp), base_score=0.5, **given), False
    rules = [fpr() <= 0.03, gap(fpr(), by="group") <= 0.002]
    measured = kind.split("-")[0]
    return ConstrainedXGBClassifier(constraints=rules, measure_on=measured, **given), True


def fit_once(fit: str, rounds: int, folder: Path, profile: bool) -> Figures:
    """Fit; measure seconds of all and of the rounds, and the peak of the card's memory."""
    cupy = None if fit.startswith("cpu") else import_module("cupy")
    if fit.endswith("numpy"):
        sys.modules["cupy"] = None  # type: ignore[assignment]
    if fit.endswith("-one"):
        import gbm_constrained.problem.rows as problem_rows

        problem_rows.MIN_ROWS = sys.maxsize
    X, y, group = (np.load(folder / f"{name}.npy") for name in ("X", "y", "group"))
    for n, some in ((2000, 2), (y.size, rounds)):
        model, has_groups = prepare(fit, some, cupy)
        further = {"sensitive_features": {"group": group[:n]}} if has_groups else {}
        profiler = cProfile.Profile()
        with watching(cupy) as taken:
            start = time.perf_counter()
            if profile:
                profiler.enable()
            model.fit(X[:n], y[:n], **further)
            profiler.disable()
            seconds = time.perf_counter() - start
    if profile:
        pstats.Stats(profiler).sort_stats("tottime").print_stats(35)
        pstats.Stats(profiler).sort_stats("cumtime").print_stats(60)
    inside, active = np.nan, 0
    if hasattr(model, "history_"):
        history = model.history_
        multipliers = history.filter(like="multiplier[").to_numpy()
        active = int((multipliers > 0).any(axis=1).sum())
        inside = float(history["seconds"].iloc[-1])
        print(model.constraint_report_.to_string())
    return {
        "seconds": seconds,
        "rounds_seconds": inside,
        "card_mib": max(taken) / 2**20,
        "active": active,
    }


def check_kernels(folder: Path) -> None:
    """Compare rates and gradients of the card with those of the processor at the same scores."""
    cupy = import_module("cupy")
    from gbm_constrained import fpr, gap
    from gbm_constrained.data.rows import Rows
    from gbm_constrained.problem.compiler import compile_constraints
    from gbm_constrained.problem.lagrangian import Lagrangian

    y, group = (np.load(folder / f"{name}.npy") for name in ("y", "group"))
    y = y.astype(np.intp)
    rules = [fpr() <= 0.03, gap(fpr(), by="group") <= 0.002]
    rows = Rows(y, np.arange(2), None, {"group": group})
    cells, compiled = compile_constraints(rules, rows)
    margin = np.random.default_rng(1).standard_normal(y.size, dtype=np.float32) * 3
    multipliers = np.linspace(0.5, 2.0, len(compiled))
    rates, gradients = [], []
    for module in (np, cupy):
        lagrangian = Lagrangian(y, cells, compiled, dtype=np.float32, array_module=module)
        point = lagrangian.at(margin)
        rates.append(compiled.rates(point.statistics()))
        gradients.append([module.asarray(a) for a in point.gradient(multipliers, None, 0.1)])
    on_host = [array.get() for array in gradients[1]]
    apart = [float(np.abs(a - b).max()) for a, b in zip(gradients[0], on_host, strict=True)]
    print(f"rates apart by {np.abs(rates[0] - rates[1]).max():.1e}; gradients by {apart}")


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("fits", nargs="*", choices=[*FITS, *ON_PROCESSOR, []])
    parser.add_argument("--rows", type=at_least(10_000), default=5_000_000)
    parser.add_argument("--rounds", type=at_least(2), default=200)
    parser.add_argument("--repeats", type=at_least(1), default=2)
    parser.add_argument("--output", type=Path, default=HERE / "results")
    parser.add_argument("--profile", choices=[*FITS, *ON_PROCESSOR])
    parser.add_argument("--once", nargs=2, metavar=("FIT", "FOLDER"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.once:
        fit, folder = given.once
        if fit == "check":
            check_kernels(Path(folder))
        else:
            profile = given.profile is not None
            print(json.dumps(fit_once(fit, given.rounds, Path(folder), profile)))
        return
    name = find_card()
    fits = given.fits or FITS
    if name is None and not all(fit in ON_PROCESSOR for fit in fits):
        print("There is no graphics card, or no CuPy: nothing is measured.")
        return
    with tempfile.TemporaryDirectory() as drawn:
        folder = Path(drawn)
        draw_rows(given.rows, folder)
        if given.profile:
            print(run(given.profile, folder, given, ["--profile", given.profile]))
            return
        if name is not None:
            print(run("check", folder, given))
        measure(fits, folder, given, name or "processor")


def find_card() -> str | None:
    """Find the name of the card; None without one or without CuPy."""
    try:
        cupy = import_module("cupy")
        return str(cupy.cuda.runtime.getDeviceProperties(0)["name"].decode())
    except Exception:
        return None


def run(fit: str, folder: Path, given: Any, further: list[str] | None = None) -> str:
    """Run a fit in a process of its own, and give what it prints."""
    command = [sys.executable, __file__, "--once", fit, str(folder), "--rounds", str(given.rounds)]
    done = subprocess.run([*command, *(further or [])], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{fit}: ended with {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout + done.stderr


def measure(fits: Any, folder: Path, given: Any, name: str) -> None:
    """Fit, and print each fit over the plain one."""
    names = ["card", "rows", "rounds", "fit", "repeat"]
    file = Measurements(given.output / "gpu.csv", names)
    best: Figures = {}

    def once(card: str, rows: int, rounds: int, fit: str, repeat: int) -> Figures:
        out = run(fit, folder, given)
        print(out)
        line = next(x for x in out.splitlines()[::-1] if x.startswith("{"))
        return dict(json.loads(line))

    for fit in fits:
        for repeat in range(given.repeats):
            found = file.once(once, name, given.rows, given.rounds, fit, repeat)
            best[fit] = min(best.get(fit, np.inf), found["seconds"])
            plain = best.get("cpu-plain" if fit in ON_PROCESSOR else "plain", np.nan)
            print(
                f"{name}, {given.rows:,} rows, {fit}: {found['seconds']:.2f} s, "
                f"{found['seconds'] / plain:.2f} times plain; rounds "
                f"{found['rounds_seconds']:.2f} s; card {found['card_mib']:.0f} MiB; iterations "
                f"with a multiplier {found['active']:.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
