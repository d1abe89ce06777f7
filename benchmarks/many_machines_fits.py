"""Fits of the benchmark of many machines: on processes, on Dask and on Spark."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from many_machines_data import RULES, Positions, Table
from numpy.typing import NDArray

from gbm_constrained.data.exact_sums import Communicator
from gbm_constrained.distributed.processes import run_processes
from gbm_constrained.distributed.ranks import Library, Plan, RankResult, Shard, train_rank
from gbm_constrained.fit.callbacks import ConstraintState

LOOPBACK = "127.0.0.1"


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


def parameters(measured: str, **given: Any) -> dict[str, Any]:
    """Give the parameters of both libraries' classifiers; `measured` is "plain" without rules."""
    rules = [] if measured == "plain" else list(RULES)
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


def fit_on_dask(client: Any, table: Table, params: Mapping[str, Any]) -> Any:
    """Fit on the workers of Dask, with two partitions for each; the classifier of one machine."""
    import dask.dataframe as dd

    from gbm_constrained.dask import ConstrainedXGBClassifier

    rows = table.X.assign(label=table.y, group=table.group).reset_index(drop=True)
    frame = dd.from_pandas(rows, npartitions=2 * len(client.nthreads()))
    model = ConstrainedXGBClassifier(**params, verbosity=0)
    model.fit(
        frame[list(table.X)],
        frame["label"],
        sensitive_features=frame[["group"]],
        client=client,
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
