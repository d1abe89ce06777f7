"""Fits on the executors of a Spark cluster.

The tasks of a barrier stage start together, one for each partition, and train on the rows of their
partitions.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
from py4j.protocol import Py4JError
from pyspark import BarrierTaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from gbm_constrained.distributed.networks import xgboost_network
from gbm_constrained.distributed.outcomes import TIME_LIMIT, RankFunction, RankTask, result_of
from gbm_constrained.distributed.rank import Plan, RankResult, Shard, train_rank
from gbm_constrained.distributed.shards import join_shards
from gbm_constrained.distributed.spark_rows import SparkRows
from gbm_constrained.exceptions import MachineError


def train(
    dataset: DataFrame,
    rows: SparkRows,
    plan: Plan,
    n_tasks: int | None = None,
    function: RankFunction = train_rank,
) -> RankResult:
    """Train on the rows of a DataFrame, each row in the task of its partition.

    Parameters
    ----------
    dataset : DataFrame
        Training rows.
    rows : SparkRows
        Their columns.
    plan : Plan
        The same for all tasks.
    n_tasks : int, default=None
        Number of tasks, each of which needs a free slot of the cluster. By default there is one
        for each partition, and no row moves. Spark deals the rows to another number of partitions.
    function : callable, default=train_rank
        Trains on the rows of one task.

    Returns
    -------
    RankResult
        Result of the first task.

    Raises
    ------
    MachineError
        If the function raises in a task, or a task is lost; names the task.
    """
    selected = rows.select(dataset)
    n_partitions = selected.rdd.getNumPartitions()
    n_tasks = n_partitions if n_tasks is None else n_tasks
    if n_tasks != n_partitions:
        selected = selected.repartition(n_tasks)
    none = rows.read(selected.limit(0).toPandas())
    host = dataset.sparkSession.conf.get("spark.driver.host")
    assert host is not None
    with xgboost_network(n_tasks, TIME_LIMIT, host) as seats:
        tasks = [RankTask(seat, plan, function, {}) for seat in seats]
        work = _make_work(tasks, rows, none)
        found = selected.mapInPandas(work, "rank long, outcome binary", barrier=True)
        outcomes = {row["rank"]: pickle.loads(row["outcome"]) for row in _collect(found, n_tasks)}
    return result_of([outcomes[rank] for rank in range(n_tasks)])


def _make_work(
    tasks: list[RankTask], rows: SparkRows, none: Shard
) -> Callable[[Iterator[pd.DataFrame]], Iterator[pd.DataFrame]]:
    """Make the function that Spark calls with the rows of each partition."""

    def work(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        context = BarrierTaskContext.get()
        rank = context.partitionId()

        def read() -> Shard:
            return join_shards([rows.read(frame) for frame in frames] or [none])

        outcome = tasks[rank].run(read, context.cpus())
        yield pd.DataFrame({"rank": [rank], "outcome": [pickle.dumps(outcome)]})

    return work


def _collect(found: DataFrame, n_tasks: int) -> list[Any]:
    """Collect what the tasks return; a task that is lost, or cannot start, ends the stage."""
    try:
        return found.collect()
    except (Py4JError, PySparkException) as error:
        lost = re.search(r"barrier task \w+\(\d+, (\d+)\) finished unsuccessfully", str(error))
        if lost is None:
            raise
        raise MachineError(
            int(lost[1]), n_tasks, "an executor of Spark", _find_reason(str(error))
        ) from error


def _find_reason(message: str) -> str:
    """Find why a task has ended: the error of its Python process, unless that was killed."""
    raised = re.search(r"Traceback \(most recent call last\):\n(?: .*\n)+(\w.*)", message)
    if raised is None or raised[1].startswith("EOFError"):
        return "this task of Spark was lost: its process was killed, or ran out of memory"
    return f"{raised[1]} (before training, in the Python of the executor)"
