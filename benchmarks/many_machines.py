"""Fits whose rows are on several machines, beside the same fits on one.

Machines are processes of this computer, workers of Dask or tasks of Spark, on the loopback
address. The figures of each part are written as they come, and a stopped run goes on. The file is
not called ``distributed``, which is the name of a package of Dask.

    python benchmarks/many_machines.py [PART ...] [--seeds 5] [--results FOLDER]
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import lru_cache
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
DEALT_SEEDS = 2  # Seeds of which all ways to deal are measured, not only runs of rows.


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
    table = bin_adult()
    for seed in range(given.seeds):
        train, _ = table.split(seed)
        for measured in MEASURED_ON:
            for name, n, way, dealt in DEALS if seed < DEALT_SEEDS else DEALS[:2]:

                def once(
                    n: int = n, way: str = way, dealt: int = dealt, measured: str = measured
                ) -> dict[str, float]:
                    params = parameters(measured, random_state=seed)
                    parts = deal(train, way, n, dealt)
                    model, traces = fit_on_processes(train, parts, "xgboost", params)
                    reference = fit_reference("binned", "xgboost", measured, seed)
                    return compare(model, reference, table.X) | agree(traces)

                print_row(file.once(once, name, measured, seed), name, measured, seed)


def agree(traces: Sequence[RankTrace]) -> dict[str, float]:
    """Tell whether all ranks had the same multipliers in all iterations."""
    first, *others = [trace.multipliers() for trace in traces]
    return {"same_on_ranks": float(all(np.array_equal(first, other) for other in others))}


def measure_engines(file: Measurements, given: Any) -> None:
    """Compare models of Dask's workers and Spark's tasks with that of one process."""
    table = bin_adult()
    with ExitStack() as stack:
        engines: list[tuple[str, Callable[..., Any]]] = []
        for n in (1, 2, 4):
            client = stack.enter_context(dask_cluster(n))
            engines.append((f"{n} workers of Dask", lambda t, p, c=client: fit_on_dask(t, c, p)))
        session = stack.enter_context(spark_session(2))
        engines.append(("2 tasks of Spark", lambda t, p: fit_on_spark(t, session, 2, p)))
        for seed in range(given.seeds):
            train, _ = table.split(seed)
            for measured in MEASURED_ON:
                for name, fit in engines:

                    def once(
                        fit: Callable[..., Any] = fit, measured: str = measured
                    ) -> dict[str, float]:
                        model = fit(train, parameters(measured, random_state=seed))
                        reference = fit_reference("binned", "xgboost", measured, seed)
                        return compare(model, reference, table.X)

                    print_row(file.once(once, name, measured, seed), name, measured, seed)


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
    cases = [("xgboost", "adult", 4), ("xgboost", "continuous", 4), ("lightgbm", "binned", 2)]
    for library, name, n in cases:
        for measured in ("plain", *MEASURED_ON):
            found = []
            for seed in range(given.seeds):

                def once(
                    case: tuple[str, str, int] = (library, name, n),
                    measured: str = measured,
                    seed: int = seed,
                ) -> dict[str, float]:
                    return measure_cut(*case, measured, seed)

                found.append(file.once(once, library, name, n, measured, seed))
            rates = {rule: column(found, f"{rule}_change") for rule in ("fpr", "gap", "accuracy")}
            errors = {rule: column(found, f"{rule}_error") for rule in ("fpr", "gap")}
            parts = [f"{library}, {name}, 1 against {n}, {measured}: decisions the same on"]
            parts.append(f"{column(found, 'same_decisions').mean():.4f}; accuracy")
            parts.append(f"{rates['accuracy'].mean():+.4f}, at most")
            parts.append(f"{np.abs(rates['accuracy']).max():.4f}")
            for rule, error in errors.items():
                apart = np.abs(rates[rule]) / error
                parts.append(f"; {rule} {rates[rule].mean():+.4f} (error {error.mean():.4f}),")
                parts.append(f"at most {apart.max():.2f} errors")
            parts.append(f"; ranks agree {column(found, 'same_on_ranks').min():.0f}")
            print(" ".join(parts), flush=True)


def measure_cut(library: str, name: str, n: int, measured: str, seed: int) -> dict[str, float]:
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
    for library in LIBRARIES:
        for measured in MEASURED_ON:
            for n in (5_000, 50_000):

                def once(
                    library: str = library, measured: str = measured, n: int = n
                ) -> dict[str, float]:
                    table = draw_continuous(n, 10, GROUPS)
                    params = parameters(measured, constraints=list(RULES_OF_CELLS))
                    parts = deal(table, "runs", 2)
                    trace = fit_on_processes(table, parts, library, params)[1][1]
                    return {
                        "bytes_a_round": trace.bytes_of_round(),
                        "bytes_beside": float(trace.bytes_beside_rounds()),
                        "calls": float(trace.n_calls),
                    }

                print_row(file.once(once, library, measured, n), library, measured, n)


def measure_time(file: Measurements, given: Any) -> None:
    """Measure the time in sums after a barrier, of 300,000 rows on two processes."""
    table = draw_continuous(300_000, 30)
    for library in LIBRARIES:
        for measured in MEASURED_ON:

            def once(library: str = library, measured: str = measured) -> dict[str, float]:
                parts = deal(table, "runs", 2)
                params = parameters(measured)
                traces = fit_on_processes(table, parts, library, params, barrier=True)[1]
                return {
                    "reduction_seconds": max(trace.reduction_seconds for trace in traces),
                    "fit_seconds": max(trace.seconds for trace in traces),
                }

            found = file.once(once, library, measured)
            share = found["reduction_seconds"] / found["fit_seconds"]
            print(f"{library}, {measured}: {share:.2%} of {found['fit_seconds']:.1f} s in sums")


def measure_files(file: Measurements, given: Any) -> None:
    """Load saved models in the plain libraries and in ours, and compare decisions and reports."""
    table = bin_adult()
    train, test = table.split(0)
    for library in LIBRARIES:

        def once(library: str = library) -> dict[str, float]:
            parts = deal(train, "runs", 2)
            model = fit_on_processes(train, parts, library, parameters("crossfit"))[0]
            with tempfile.TemporaryDirectory() as folder:
                path = f"{folder}/model.{'json' if library == 'xgboost' else 'txt'}"
                model.save_model(path)
                plain, loaded = load_plain(library, path), type(model)().load_model(path)
            same = (plain.predict(test.X) > 0.5) == (model.predict(test.X) == 1)
            report = model.constraint_report_.equals(loaded.constraint_report_)
            return {"same_decisions": float(same.mean()), "same_report": float(report)}

        print_row(file.once(once, library), library)


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
    table = bin_adult()
    train, _ = table.split(0)
    parts = deal(train, "runs", 2)
    for library in LIBRARIES:
        for after in (0.5, 0.95):

            def once(library: str = library, after: float = after) -> dict[str, float]:
                params, named = parameters("crossfit", random_state=0), False
                undisturbed, whole = fit_on_processes(train, parts, library, params)
                with tempfile.TemporaryDirectory() as folder:
                    fit = {"checkpoint": f"{folder}/fit.checkpoint"}
                    try:
                        fit_on_processes(train, parts, library, params, fit=fit, lost_after=after)
                    except MachineError as error:
                        named = str(error).startswith("rank 1 of 2")
                    model, rest = fit_on_processes(train, parts, library, params, fit=fit)
                done = 1 - len(rest[0].steps) / len(whole[0].steps)
                return {"named": float(named), "restored": done} | compare(
                    model, undisturbed, table.X
                )

            print_row(file.once(once, library, after), library, after)


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
        measure_time, ("library", "measured_on"), ("reduction_seconds", "fit_seconds")
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
