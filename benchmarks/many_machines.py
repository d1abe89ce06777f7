"""Fits whose rows are on several machines, beside the same fits on one.

Machines are processes of this computer, workers of Dask or tasks of Spark, on the loopback
address. The figures of each table are written as they come, and a stopped run goes on. The file is
not called ``distributed``, which is the name of a package of Dask.

    python benchmarks/many_machines.py [TABLE ...] [--seeds 5] [--output FOLDER]

- equal: models of 2 and 4 processes, and of other deals of the rows, beside that of one.
- engines: models of Dask's workers and Spark's tasks beside that of one process.
- cuts: one machine against several where the libraries themselves find other trees.
- traffic: bytes that a machine sends, with twelve cells, of some rows and of ten times.
- time: seconds in sums after a barrier, of 300,000 rows on two processes.
- files: decisions and reports of saved models, loaded in the plain libraries and in ours.
- killed: the model of a fit that goes on after a process was killed, and the calls that it saves.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from typing import Any

import lightgbm as lgb
import numpy as np
import pandas as pd
import xgboost as xgb
from numpy.typing import NDArray
from result_file import Figures, at_least, make_parser, run_tables
from result_file import Table as ResultTable
from sklearn.model_selection import train_test_split

from gbm_constrained import fpr, gap, tpr
from gbm_constrained.data.exact_sums import Communicator
from gbm_constrained.datasets import load_adult
from gbm_constrained.distributed.processes import run_processes
from gbm_constrained.distributed.ranks import Library, Plan, RankResult, Shard, train_rank
from gbm_constrained.exceptions import MachineError
from gbm_constrained.fit.callbacks import ConstraintState

MEASURED_ON = ("train", "crossfit")
LIBRARIES = ("xgboost", "lightgbm")
MAX_BIN = 256  # Of XGBoost by default.
LOOPBACK = "127.0.0.1"
Positions = NDArray[np.intp]

# ----------------------------------------------------------------- rows, and ways to deal them


@dataclass(frozen=True, eq=False)
class Table:
    """Features, labels and a grouping column of some rows."""

    X: pd.DataFrame
    y: NDArray[np.int64]
    group: NDArray[Any]

    def take(self, at: Positions) -> Table:
        """Take rows by their positions."""
        return Table(self.X.iloc[at], self.y[at], self.group[at])

    def shard(self, at: Positions) -> Shard:
        """Make the shard of a machine that holds the rows at some positions, which number them."""
        part = self.take(at)
        return Shard(part.X, part.y, at, sensitive_features={"group": part.group})

    def split(self, seed: int) -> tuple[Table, Table]:
        """Split in training rows and 30 % of test rows."""
        fitted, test = train_test_split(np.arange(self.y.size), test_size=0.3, random_state=seed)
        return self.take(fitted), self.take(test)


@cache
def read_adult() -> Table:
    """Read Adult, with categories as numbers and sex as the group."""
    data = load_adult()
    X = data.data.copy()
    for name in X.select_dtypes("category"):
        X[name] = X[name].cat.codes
    sex = data.sensitive_features["sex"].astype(str).to_numpy()
    return Table(X.astype(np.float32), data.target.to_numpy(), sex)


@cache
def bin_adult() -> Table:
    """Read Adult with at most `MAX_BIN` values of each feature, by quantiles of all rows."""
    table = read_adult()
    inner = np.linspace(0, 1, MAX_BIN)[1:-1]
    X = table.X.apply(lambda x: np.searchsorted(np.unique(np.quantile(x, inner)), x))
    return Table(X.astype(np.float32), table.y, table.group)


@cache
def draw_continuous(n: int = 20_000, columns: int = 10, groups: int = 2, seed: int = 0) -> Table:
    """Draw continuous features, a third of positives, and groups that differ in it."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, columns)).astype(np.float32)
    group = rng.integers(0, groups, n)
    score = X[:, 0] + X[:, 1] * X[:, 2] + 0.5 * X[:, 3] ** 2 + group / groups + rng.normal(size=n)
    X[:, 4] += group
    y = (score > np.quantile(score, 0.67)).astype(np.int64)
    return Table(pd.DataFrame(X).add_prefix("x"), y, group.astype(str))


TABLES = {"adult": read_adult, "binned": bin_adult}


def deal(table: Table, way: str, n_machines: int = 4, seed: int = 0) -> list[Positions]:
    """Deal the rows to machines.

    Parameters
    ----------
    way : {"runs", "random", "empty", "group"}
        Runs of consecutive rows; random parts of random lengths, in no order; the same with a
        last machine that has none; the same with a last machine that has all rows of the first
        group.
    """
    n = table.y.size
    if way == "runs":
        return np.array_split(np.arange(n), n_machines)
    order = np.random.default_rng(seed).permutation(n)
    if way == "random":
        return _cut(order, n_machines, seed)
    last = order[:0]
    if way == "group":
        inside = table.group[order] == np.unique(table.group)[0]
        order, last = order[~inside], order[inside]
    return [*_cut(order, n_machines - 1, seed), last]


def _cut(order: Positions, n_parts: int, seed: int) -> list[Positions]:
    """Cut an order of rows at random places."""
    rng = np.random.default_rng(seed)
    return np.split(order, np.sort(rng.integers(1, order.size, n_parts - 1)))


# ---------------------------------------------------------------------------- traces of a rank


class MeasuredCommunicator:
    """A communicator that counts what this machine sends through another one.

    Parameters
    ----------
    communicator : Communicator
        Does the work.
    barrier : bool, default=False
        Whether machines wait for each other before the clock starts, so that ``seconds`` leaves
        out the time in which this machine waits for a slower one. The barriers are not counted.

    Attributes
    ----------
    n_calls : int
        Number of sums and of collected values.
    n_bytes : int
        Bytes of the tables and of the pickled values that this machine has handed over.
    seconds : float
        Time in these calls.
    """

    def __init__(self, communicator: Communicator, *, barrier: bool = False) -> None:
        self.rank = communicator.rank
        self.size = communicator.size
        self.holds_all_rows = communicator.holds_all_rows
        self.n_calls, self.n_bytes, self.seconds = 0, 0, 0.0
        self._communicator, self._barrier = communicator, barrier

    def sum(self, table: NDArray[np.float64]) -> NDArray[np.float64]:
        """Add the tables of all machines."""
        start = self._begin(table.nbytes)
        total = self._communicator.sum(table)
        self.seconds += time.perf_counter() - start
        return total

    def gather(self, value: Any) -> list[Any]:
        """Collect a small value of each machine, by rank."""
        start = self._begin(len(pickle.dumps(value)))
        values = self._communicator.gather(value)
        self.seconds += time.perf_counter() - start
        return values

    def _begin(self, n_bytes: int) -> float:
        """Count a call, and start the clock."""
        self.n_calls += 1
        self.n_bytes += n_bytes
        if self._barrier:
            self._communicator.sum(np.zeros(1))
        return time.perf_counter()


@dataclass(frozen=True)
class Step:
    """Beginning of an outer iteration: where it is, its multipliers, and bytes sent until then."""

    phase: tuple[str, str]
    rounds: int
    multipliers: NDArray[np.float64]
    n_bytes: int


@dataclass(frozen=True)
class RankTrace:
    """What a rank brings back: its result, each iteration, and what it has sent."""

    result: RankResult
    steps: list[Step]
    n_bytes: int
    n_calls: int
    reduction_seconds: float
    seconds: float

    def multipliers(self) -> NDArray[np.float64]:
        """Multipliers of all iterations."""
        return np.array([step.multipliers for step in self.steps])

    def bytes_of_round(self) -> float:
        """Largest number of bytes that were sent in a round."""
        pairs = zip(self.steps, self.steps[1:], strict=False)
        return max(
            (b.n_bytes - a.n_bytes) / (b.rounds - a.rounds)
            for a, b in pairs
            if a.phase == b.phase and b.rounds > a.rounds
        )

    def bytes_beside_rounds(self) -> int:
        """Bytes before, between and after the rounds: checks, calibration and report."""
        pairs = zip(self.steps, self.steps[1:], strict=False)
        return self.n_bytes - sum(b.n_bytes - a.n_bytes for a, b in pairs if a.phase == b.phase)


def trace_rank(
    shard: Shard,
    plan: Plan,
    communicator: Communicator,
    *,
    barrier: bool = False,
    lost_after: float | None = None,
) -> RankTrace:
    """Train on the rows of a machine, and write down what it does.

    Parameters
    ----------
    barrier : bool
        Whether ranks wait for each other before the clock of a reduction starts.
    lost_after : float or None
        Share of the rounds of all boosters after which rank 1 is killed.
    """
    measured = MeasuredCommunicator(communicator, barrier=barrier)
    steps: list[Step] = []

    def note(state: ConstraintState) -> None:
        is_lost = lost_after is not None and state.done >= lost_after * state.total
        if is_lost and communicator.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        multipliers = state.record.multipliers.copy()
        steps.append(Step((state.phase, state.rows), state.rounds, multipliers, measured.n_bytes))

    if plan.params["constraints"]:
        plan = replace(plan, fit={**plan.fit, "constraint_callbacks": [note]})
    start = time.perf_counter()
    result = train_rank(shard, plan, measured)
    return RankTrace(
        result,
        steps,
        measured.n_bytes,
        measured.n_calls,
        measured.seconds,
        time.perf_counter() - start,
    )


# ------------------------------------------------------------------------------------------ fits


def parameters(measured: str, **given: Any) -> dict[str, Any]:
    """Give the parameters of both libraries' classifiers; `measured` is "plain" without rules."""
    rules = [fpr() <= 0.05, gap(fpr(), by="group") <= 0.02] if measured != "plain" else []
    where = {} if measured == "plain" else {"measure_on": measured}
    return {"constraints": rules, "n_estimators": 100, "n_jobs": 1, **where, **given}


def fit_on_processes(
    table: Table,
    parts: Sequence[Positions],
    library: Library,
    params: Mapping[str, Any],
    *,
    fit: Mapping[str, Any] | None = None,
    **traced: Any,
) -> tuple[Any, list[RankTrace]]:
    """Fit on one process for each part of the rows; the classifier of one machine, and traces."""
    quiet = {"verbosity": 0} if library == "xgboost" else {"verbose": -1}
    plan = Plan(library, {**quiet, **params}, fit or {})
    shards = [table.shard(at) for at in parts]
    traces = run_processes(partial(trace_rank, **traced), shards, plan)
    return traces[0].result.load(), traces


@contextmanager
def dask_cluster(n_workers: int) -> Iterator[Any]:
    """Run worker processes of Dask with one thread each."""
    from distributed import Client, LocalCluster

    cluster = LocalCluster(
        n_workers=n_workers,
        threads_per_worker=1,
        host=LOOPBACK,
        dashboard_address=f"{LOOPBACK}:0",
        silence_logs="CRITICAL",
    )
    with cluster, Client(cluster) as client:
        yield client


def fit_on_dask(client: Any, n_workers: int, table: Table, params: Mapping[str, Any]) -> Any:
    """Fit on the workers of Dask, with two partitions for each; the classifier of one machine."""
    import dask.dataframe as dd

    from gbm_constrained.dask import ConstrainedXGBClassifier

    rows = table.X.assign(label=table.y, group=table.group).reset_index(drop=True)
    frame = dd.from_pandas(rows, npartitions=2 * n_workers)
    model = ConstrainedXGBClassifier(**params, verbosity=0)
    model.fit(
        frame[list(table.X)], frame["label"], sensitive_features=frame[["group"]], client=client
    )
    return model.to_local()


@contextmanager
def spark_session(n_tasks: int) -> Iterator[Any]:
    """Run Spark with a core for each task."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(f"local[{n_tasks}]")
    settings = {
        "spark.driver.bindAddress": LOOPBACK,
        "spark.driver.host": LOOPBACK,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    os.environ["PYSPARK_PYTHON"] = sys.executable  # Spark would take the first on the path.
    for name, value in settings.items():
        builder = builder.config(name, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    try:
        yield session
    finally:
        session.stop()


def fit_on_spark(session: Any, n_tasks: int, table: Table, params: Mapping[str, Any]) -> Any:
    """Fit in the tasks of a barrier stage; the classifier of one machine."""
    from gbm_constrained.spark import ConstrainedXGBClassifier

    rows = table.X.assign(label=table.y, group=table.group, id=np.arange(table.y.size))
    frame = session.createDataFrame(rows).repartition(n_tasks)
    model = ConstrainedXGBClassifier(
        featuresCol=list(table.X), sensitiveCols=["group"], idCol="id", verbosity=0, **params
    )
    return model.fit(frame).to_local()


@lru_cache(maxsize=2)
def fit_reference(table: str, library: Library, measured: str, seed: int) -> Any:
    """Fit on one machine, by the way of many."""
    train, _ = TABLES[table]().split(seed)
    given = parameters(measured, random_state=seed)
    return fit_on_processes(train, deal(train, "runs", 1), library, given)[0]


# ----------------------------------------------------------------------------------- comparisons


def scores_of(model: Any, X: Any) -> Any:
    """Compute raw scores with a classifier of either library."""
    if hasattr(model, "get_booster"):
        return model.predict(X, output_margin=True)
    return model.predict(X, raw_score=True)


def compare(model: Any, reference: Any, X: Any) -> Figures:
    """Compare multipliers of all iterations, and scores and decisions of some rows."""
    multipliers, expected = (
        fitted.history_.filter(like="multiplier[").to_numpy() for fitted in (model, reference)
    )
    apart = np.abs(scores_of(model, X) - scores_of(reference, X)).max()
    return {
        "same_multipliers": float(np.array_equal(multipliers, expected)),
        "scores_apart": float(apart),
        "same_decisions": float(np.mean(model.predict(X) == reference.predict(X))),
    }


# By the name of a way: number of machines, how rows are dealt, and the seed of it.
DEALS = {
    "2 processes": (2, "runs", 0), "4 processes": (4, "runs", 0), "dealt 1": (4, "random", 1),
    "dealt 2": (4, "random", 2), "dealt 3": (4, "random", 3), "one without rows": (4, "empty", 4),
    "one of a group": (4, "group", 5),
}  # fmt: skip


def compare_deal(name: str, measured: str, seed: int) -> Figures:
    """Compare the model of a deal of the rows to n processes with that of one."""
    table, (n, way, dealt) = bin_adult(), DEALS[name]
    train, _ = table.split(seed)
    params = parameters(measured, random_state=seed)
    model, traces = fit_on_processes(train, deal(train, way, n, dealt), "xgboost", params)
    reference = fit_reference("binned", "xgboost", measured, seed)
    return compare(model, reference, table.X) | agree(traces)


def agree(traces: Sequence[RankTrace]) -> Figures:
    """Tell whether all ranks had the same multipliers in all iterations."""
    first, *others = [trace.multipliers() for trace in traces]
    return {"same_on_ranks": float(all(np.array_equal(first, other) for other in others))}


ENGINES = ExitStack()  # Those that run, until the benchmark ends.


@cache
def start_engine(engine: str, n: int) -> Any:
    """Start a cluster of Dask or a session of Spark, once for all fits."""
    return ENGINES.enter_context(dask_cluster(n) if engine == "Dask" else spark_session(n))


def compare_engine(name: str, measured: str, seed: int) -> Figures:
    """Compare the model of an engine with that of one process."""
    table, (number, *_, engine) = bin_adult(), name.split()
    train, _ = table.split(seed)
    params = parameters(measured, random_state=seed)
    fit = fit_on_dask if engine == "Dask" else fit_on_spark
    model = fit(start_engine(engine, int(number)), int(number), train, params)
    return compare(model, fit_reference("binned", "xgboost", measured, seed), table.X)


def measure_rates(model: Any, test: Table) -> Figures:
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


def compare_cuts(library: Library, name: str, n: int, measured: str, seed: int) -> Figures:
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


def describe_cuts(found: pd.DataFrame, *_: Any) -> dict[str, str]:
    """Write the changes of rates, in standard errors as well."""
    shown = []
    for rate in ("accuracy", "fpr", "gap"):
        change = found[f"{rate}_change"]
        shown.append(f"{rate} {change.mean():+.4f}, at most {change.abs().max():.4f}")
        if rate != "accuracy":
            errors = change.abs() / found[f"{rate}_error"]
            shown[-1] += f", {errors.max():.2f} standard errors"
    return {"changes": "\n    ".join(shown)}


def count_bytes(library: Library, measured: str, n: int) -> Figures:
    """Count the bytes that the second of two machines sends, with six groups and twelve cells."""
    table = draw_continuous(n, 10, 6)
    rules = [gap(fpr(), by="group") <= 0.05, gap(tpr(), by="group") <= 0.1]
    params = parameters(measured, constraints=rules)
    trace = fit_on_processes(table, deal(table, "runs", 2), library, params)[1][1]
    return {
        "bytes_a_round": trace.bytes_of_round(),
        "bytes_beside": float(trace.bytes_beside_rounds()),
        "calls": float(trace.n_calls),
    }


def time_sums(library: Library, measured: str) -> Figures:
    """Fit with a barrier before each sum."""
    table = draw_continuous(300_000, 30)
    parts, params = deal(table, "runs", 2), parameters(measured)
    traces = fit_on_processes(table, parts, library, params, barrier=True)[1]
    return {
        "reduction_seconds": max(trace.reduction_seconds for trace in traces),
        "fit_seconds": max(trace.seconds for trace in traces),
        "load": os.getloadavg()[0],
    }


def compare_file(library: Library) -> Figures:
    """Fit on two processes, save the model, and load it in the library itself and in ours."""
    train, test = bin_adult().split(0)
    model = fit_on_processes(train, deal(train, "runs", 2), library, parameters("crossfit"))[0]
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/model.{'json' if library == 'xgboost' else 'txt'}"
        model.save_model(path)
        if library == "xgboost":
            plain = xgb.XGBClassifier()
            plain.load_model(path)
        else:
            plain = lgb.Booster(model_file=path)
        loaded = type(model)().load_model(path)
    same = (plain.predict(test.X) > 0.5) == (model.predict(test.X) == 1)
    report = model.constraint_report_.equals(loaded.constraint_report_)
    return {"same_decisions": float(same.mean()), "same_report": float(report)}


def compare_resumed(library: Library, after: float) -> Figures:
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


EQUAL = (
    "same multipliers {same_multipliers:g}, scores apart {scores_apart max:.6g}, same decisions "
    "{same_decisions:.6g}"
)
SEEDS = range(5)
RESULT_TABLES = {
    "equal": ResultTable(
        compare_deal,
        {"way": list(DEALS)[:2], "measured_on": MEASURED_ON, "seed": SEEDS},
        "{way}, {measured_on}: " + EQUAL + ", same on ranks {same_on_ranks:g}",
    ),
    "deals": ResultTable(
        compare_deal,
        {"way": list(DEALS)[2:], "measured_on": MEASURED_ON, "seed": (0,)},
        "{way}, {measured_on}: " + EQUAL + ", same on ranks {same_on_ranks:g}",
        file="equal",
    ),
    "engines": ResultTable(
        compare_engine,
        {
            "way": (*(f"{n} workers of Dask" for n in (1, 2, 4)), "2 tasks of Spark"),
            "measured_on": MEASURED_ON,
            "seed": SEEDS,
        },
        "{way}, {measured_on}: " + EQUAL,
    ),
    # Where trees depend on the machines.
    "cuts": ResultTable(
        compare_cuts,
        {
            "library table machines": (("xgboost", "adult", 4), ("lightgbm", "binned", 2)),
            "measured_on": ("plain", "crossfit"),
            "seed": SEEDS,
        },
        "{library}, {table}, 1 against {machines}, {measured_on}:\n    decisions the same on "
        "{same_decisions:.4f}\n    {changes}\n    ranks agree: {same_on_ranks:g}",
        describe_cuts,
    ),
    "traffic": ResultTable(
        count_bytes,
        {"library": LIBRARIES, "measured_on": MEASURED_ON, "rows": (5_000, 50_000)},
        "{library}, {measured_on}, {rows}: bytes a round {bytes_a_round:.6g}, bytes beside "
        "{bytes_beside:.6g}, calls {calls:.6g}",
    ),
    "time": ResultTable(
        time_sums,
        {"library": LIBRARIES, "measured_on": MEASURED_ON},
        "{library}, {measured_on}: share {share:.6g}, reduction seconds {reduction_seconds:.6g}, "
        "fit seconds {fit_seconds:.6g}, load {load:.6g}",
        lambda found, *_: {"share": (found["reduction_seconds"] / found["fit_seconds"]).mean()},
    ),
    "files": ResultTable(
        compare_file,
        {"library": LIBRARIES},
        "{library}: same decisions {same_decisions:.6g}, same report {same_report:g}",
    ),
    "killed": ResultTable(
        compare_resumed,
        {"library": LIBRARIES, "after": (0.5, 0.95)},
        "{library}, {after}: named {named:g}, restored {restored:.6g}, " + EQUAL,
    ),
}


if __name__ == "__main__":
    with ENGINES:
        run_tables(RESULT_TABLES, "many_machines", make_parser(__doc__), seed=at_least(1))
