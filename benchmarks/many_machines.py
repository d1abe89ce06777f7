"""Fits whose rows are on several machines, beside the same fits on one.

Machines are processes of this computer, workers of Dask or tasks of Spark, on the loopback
address. The figures of each part are written as they come, and a stopped run goes on. The file is
not called ``distributed``, which is the name of a package of Dask.

    python benchmarks/many_machines.py [PART ...] [--seeds 5] [--results FOLDER]
"""

from __future__ import annotations

import argparse
import os
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from arguments import at_least
from many_machines_data import (
    GROUPS,
    RULES_OF_CELLS,
    TABLES,
    Table,
    bin_adult,
    deal,
    draw_continuous,
)
from many_machines_fits import (
    RankTrace,
    dask_cluster,
    fit_on_dask,
    fit_on_processes,
    fit_on_spark,
    parameters,
    spark_session,
)
from result_file import Measurements, Part, add_parts, column

from gbm_constrained.exceptions import MachineError

MEASURED_ON = ("train", "crossfit")
LIBRARIES = ("xgboost", "lightgbm")
# Name of a way, number of machines, how rows are dealt, and the seed of it.
DEALS = (
    ("2 processes", 2, "runs", 0), ("4 processes", 4, "runs", 0), ("dealt 1", 4, "random", 1),
    ("dealt 2", 4, "random", 2), ("dealt 3", 4, "random", 3), ("one without rows", 4, "empty", 4),
    ("one of a group", 4, "group", 5),
)  # fmt: skip
# Libraries, tables and numbers of machines where trees depend on the machines.
CASES_OF_CUTS = (("xgboost", "adult", 4), ("lightgbm", "binned", 2))
DEALT_SEEDS = 1  # Seeds of which all ways to deal are measured, not only runs of rows.


def scores_of(model: Any, X: Any) -> Any:
    """Compute raw scores with a classifier of either library."""
    if hasattr(model, "get_booster"):
        return model.predict(X, output_margin=True)
    return model.predict(X, raw_score=True)


def multipliers_of(model: Any) -> Any:
    """Read the multipliers of all iterations."""
    return model.history_.filter(like="multiplier[").to_numpy()


def compare(model: Any, reference: Any, X: Any) -> dict[str, float]:
    """Compare multipliers of all iterations, and scores and decisions of some rows."""
    multipliers, expected = multipliers_of(model), multipliers_of(reference)
    apart = np.abs(scores_of(model, X) - scores_of(reference, X)).max()
    return {
        "same_multipliers": float(np.array_equal(multipliers, expected)),
        "scores_apart": float(apart),
        "same_decisions": float(np.mean(model.predict(X) == reference.predict(X))),
    }


@lru_cache(maxsize=2)
def fit_reference(table: str, library: str, measured: str, seed: int) -> Any:
    """Fit on one machine, by the way of many."""
    train, _ = TABLES[table]().split(seed)
    given = parameters(measured, random_state=seed)
    return fit_on_processes(train, deal(train, "runs", 1), library, given)[0]


def measure_equal(file: Measurements, given: Any) -> None:
    """Compare models of 2 and 4 processes, and of other deals of the rows, with that of one."""
    for seed, measured in product(range(given.seeds), MEASURED_ON):
        for name, *way in DEALS if seed < DEALT_SEEDS else DEALS[:2]:
            once = partial(compare_deal, seed, measured, *way)
            print_row(file.once(once, name, measured, seed), name, measured, seed)


def compare_deal(seed: int, measured: str, n: int, way: str, dealt: int) -> dict[str, float]:
    """Compare the model of a deal of the rows to n processes with that of one."""
    table = bin_adult()
    train, _ = table.split(seed)
    params = parameters(measured, random_state=seed)
    model, traces = fit_on_processes(train, deal(train, way, n, dealt), "xgboost", params)
    reference = fit_reference("binned", "xgboost", measured, seed)
    return compare(model, reference, table.X) | agree(traces)


def agree(traces: Sequence[RankTrace]) -> dict[str, float]:
    """Tell whether all ranks had the same multipliers in all iterations."""
    first, *others = [trace.multipliers() for trace in traces]
    return {"same_on_ranks": float(all(np.array_equal(first, other) for other in others))}


def measure_engines(file: Measurements, given: Any) -> None:
    """Compare models of Dask's workers and Spark's tasks with that of one process."""
    with ExitStack() as stack:
        engines: dict[str, Callable[..., Any]] = {}
        for n in (1, 2, 4):
            client = stack.enter_context(dask_cluster(n))
            engines[f"{n} workers of Dask"] = partial(fit_on_dask, client)
        session = stack.enter_context(spark_session(2))
        engines["2 tasks of Spark"] = partial(fit_on_spark, session, 2)
        for seed, measured in product(range(given.seeds), MEASURED_ON):
            for name, fit in engines.items():
                once = partial(compare_engine, fit, seed, measured)
                print_row(file.once(once, name, measured, seed), name, measured, seed)


def compare_engine(fit: Callable[..., Any], seed: int, measured: str) -> dict[str, float]:
    """Compare the model of an engine with that of one process."""
    table = bin_adult()
    train, _ = table.split(seed)
    model = fit(train, parameters(measured, random_state=seed))
    return compare(model, fit_reference("binned", "xgboost", measured, seed), table.X)


def measure_rates(model: Any, test: Table) -> dict[str, float]:
    """Measure accuracy, and both rates that the rules bound with their standard errors."""
    decided, negative = model.predict(test.X) == 1, test.y == 0
    of_groups = [decided[negative & (test.group == g)] for g in np.unique(test.group)]
    means = [rows.mean() for rows in of_groups]
    variances = [rows.var() / rows.size for rows in of_groups]
    rows = decided[negative]
    return {
        "accuracy": float(np.mean(decided == (test.y == 1))),
        "fpr": float(rows.mean()),
        "fpr_error": float(np.sqrt(rows.var() / rows.size)),
        "gap": float(np.ptp(means)),
        "gap_error": float(np.sqrt(np.sum(variances))),
    }


def measure_cuts(file: Measurements, given: Any) -> None:
    """Compare one machine with several where the libraries themselves find other trees."""
    for case, measured in product(CASES_OF_CUTS, ("plain", "crossfit")):
        found = [
            file.once(partial(compare_cuts, *case, measured, seed), *case, measured, seed)
            for seed in range(given.seeds)
        ]
        library, name, n = case
        print(f"{library}, {name}, 1 against {n}, {measured}:")
        print(f"    decisions the same on {column(found, 'same_decisions').mean():.4f}")
        for rate in ("accuracy", "fpr", "gap"):
            change = column(found, f"{rate}_change")
            print(f"    {rate} {change.mean():+.4f}, at most {np.abs(change).max():.4f}", end="")
            if rate != "accuracy":
                errors = np.abs(change) / column(found, f"{rate}_error")
                print(f", {errors.max():.2f} standard errors", end="")
            print(flush=True)
        print(f"    ranks agree: {column(found, 'same_on_ranks').all()}", flush=True)


def compare_cuts(library: str, name: str, n: int, measured: str, seed: int) -> dict[str, float]:
    """Compare one machine with n on test rows."""
    train, test = TABLES[name]().split(seed)
    params = parameters(measured, random_state=seed)
    one = fit_reference(name, library, measured, seed)
    many, traces = fit_on_processes(train, deal(train, "runs", n), library, params)
    first, second = measure_rates(one, test), measure_rates(many, test)
    return {
        "same_decisions": float(np.mean(one.predict(test.X) == many.predict(test.X))),
        **agree(traces),
        **{f"{rule}_change": second[rule] - first[rule] for rule in ("accuracy", "fpr", "gap")},
        **{f"{rule}_error": first[f"{rule}_error"] for rule in ("fpr", "gap")},
    }


def measure_traffic(file: Measurements, given: Any) -> None:
    """Count the bytes that a machine sends, with twelve cells, of some rows and of ten times."""
    for named in product(LIBRARIES, MEASURED_ON, (5_000, 50_000)):
        print_row(file.once(partial(count_bytes, *named), *named), *named)


def count_bytes(library: str, measured: str, n: int) -> dict[str, float]:
    """Count the bytes that the second of two machines sends."""
    table = draw_continuous(n, 10, GROUPS)
    params = parameters(measured, constraints=list(RULES_OF_CELLS))
    trace = fit_on_processes(table, deal(table, "runs", 2), library, params)[1][1]
    return {
        "bytes_a_round": trace.bytes_of_round(),
        "bytes_beside": float(trace.bytes_beside_rounds()),
        "calls": float(trace.n_calls),
    }


def measure_time(file: Measurements, given: Any) -> None:
    """Measure the time in sums after a barrier, of 300,000 rows on two processes."""
    for named in product(LIBRARIES, MEASURED_ON):
        found = file.once(partial(time_sums, *named), *named)
        share = found["reduction_seconds"] / found["fit_seconds"]
        print_row({"share": share, **found}, *named)


def time_sums(library: str, measured: str) -> dict[str, float]:
    """Fit with a barrier before each sum."""
    table = draw_continuous(300_000, 30)
    parts, params = deal(table, "runs", 2), parameters(measured)
    traces = fit_on_processes(table, parts, library, params, barrier=True)[1]
    return {
        "reduction_seconds": max(trace.reduction_seconds for trace in traces),
        "fit_seconds": max(trace.seconds for trace in traces),
        "load": os.getloadavg()[0],
    }


def measure_files(file: Measurements, given: Any) -> None:
    """Load saved models in the plain libraries and in ours, and compare decisions and reports."""
    for library in LIBRARIES:
        print_row(file.once(partial(compare_file, library), library), library)


def compare_file(library: str) -> dict[str, float]:
    """Fit on two processes, save the model, and load it."""
    train, test = bin_adult().split(0)
    model = fit_on_processes(train, deal(train, "runs", 2), library, parameters("crossfit"))[0]
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/model.{'json' if library == 'xgboost' else 'txt'}"
        model.save_model(path)
        plain, loaded = load_plain(library, path), type(model)().load_model(path)
    same = (plain.predict(test.X) > 0.5) == (model.predict(test.X) == 1)
    report = model.constraint_report_.equals(loaded.constraint_report_)
    return {"same_decisions": float(same.mean()), "same_report": float(report)}


def load_plain(library: str, path: str) -> Any:
    """Load a saved model in the library itself."""
    if library == "xgboost":
        import xgboost as xgb

        plain = xgb.XGBClassifier()
        plain.load_model(path)
        return plain
    import lightgbm as lgb

    return lgb.Booster(model_file=path)


def measure_killed(file: Measurements, given: Any) -> None:
    """Kill a process in mid-fit, fit again with its checkpoint, and compare with one fit."""
    for named in product(LIBRARIES, (0.5, 0.95)):
        print_row(file.once(partial(compare_resumed, *named), *named), *named)


def compare_resumed(library: str, after: float) -> dict[str, float]:
    """Kill a process after a share of the rounds; the next fit's model, and calls it saves."""
    table = bin_adult()
    train, _ = table.split(0)
    fit = partial(fit_on_processes, train, deal(train, "runs", 2), library)
    params, named = parameters("crossfit", random_state=0), False
    undisturbed, whole = fit(params)
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = {"checkpoint": f"{folder}/fit.checkpoint"}
        try:
            fit(params, fit=checkpoint, lost_after=after)
        except MachineError as error:
            named = str(error).startswith("rank 1 of 2")
        model, rest = fit(params, fit=checkpoint)
    restored = 1 - rest[0].n_calls / whole[0].n_calls
    compared = compare(model, undisturbed, table.X)
    return {"named": float(named), "restored": restored, **compared}


def print_row(found: Mapping[str, float], *named: object) -> None:
    """Print the figures of a row."""
    figures = ", ".join(f"{name} {value:.6g}" for name, value in found.items())
    print(f"{', '.join(map(str, named))}: {figures}", flush=True)


EQUAL = ("same_multipliers", "scores_apart", "same_decisions")
PARTS = {
    "equal": Part(measure_equal, ("way", "measured_on", "seed"), (*EQUAL, "same_on_ranks")),
    "engines": Part(measure_engines, ("way", "measured_on", "seed"), EQUAL),
    "cuts": Part(
        measure_cuts,
        ("library", "table", "machines", "measured_on", "seed"),
        (
            "same_decisions", "same_on_ranks", "accuracy_change", "fpr_change", "gap_change",
            "fpr_error", "gap_error",
        ),
    ),
    "traffic": Part(
        measure_traffic,
        ("library", "measured_on", "rows"),
        ("bytes_a_round", "bytes_beside", "calls"),
    ),
    "time": Part(
        measure_time, ("library", "measured_on"), ("reduction_seconds", "fit_seconds", "load")
    ),
    "files": Part(measure_files, ("library",), ("same_decisions", "same_report")),
    "killed": Part(measure_killed, ("library", "after"), ("named", "restored", *EQUAL)),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_parts(parser, "parts", PARTS)
    parser.add_argument("--seeds", type=at_least(1), default=5)
    folder = Path(__file__).parent / "results" / "many_machines"
    parser.add_argument("--results", type=Path, default=folder)
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # Rules that are missed are no matter here.
    for name in given.parts:
        part = PARTS[name]
        print(f"-- {name}", flush=True)
        part.run(Measurements(given.results / f"{name}.csv", part.names, part.figures), given)


if __name__ == "__main__":
    main()
