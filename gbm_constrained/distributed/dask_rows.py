"""Rows of a fit as Dask collections, and the workers that hold their partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import dask.array as da
import dask.dataframe as dd
import numpy as np
from dask.base import unpack_collections
from dask.delayed import Delayed
from distributed import Client, Future, wait

from gbm_constrained.distributed.rank import Shard
from gbm_constrained.distributed.shards import count_rows, make_shard, without_rows


def is_collection(values: Any) -> bool:
    """Whether values are an array or a table of Dask."""
    return isinstance(values, da.Array | dd.DataFrame | dd.Series)


def partitions_of(values: Any, name: str) -> list[Delayed]:
    """List the partitions of a Dask collection; each holds all columns of its rows.

    Raises
    ------
    TypeError
        If the values are no Dask collection.
    ValueError
        If categories are unknown, so that partitions may number them differently.
    """
    if isinstance(values, da.Array):
        if values.ndim == 2 and values.numblocks[1] > 1:
            values = values.rechunk({1: -1})
        return list(values.to_delayed().ravel())
    if not is_collection(values):
        raise TypeError(
            f"{name} is a {type(values).__name__}, and no Dask array or Dask DataFrame: make one "
            f"with dask.array.from_array or dask.dataframe.from_pandas, or fit the classifier of "
            f"one machine, gbm_constrained.ConstrainedXGBClassifier or ConstrainedLGBMClassifier."
        )
    _refuse_unknown_categories(values, name)
    return list(values.to_delayed())


def _refuse_unknown_categories(table: dd.DataFrame | dd.Series, name: str) -> None:
    columns = [table] if isinstance(table, dd.Series) else [table[c] for c in table.columns]
    for column in columns:
        if str(column.dtype) == "category" and not column.cat.known:
            raise ValueError(
                f"{name}: the categories of column {column.name!r} are unknown, and may differ "
                f"between partitions: call .categorize() first."
            )


Partition: TypeAlias = tuple[Any, Any, Any, Any]
"""X, y, weights and sensitive features of some rows, each None or what stands for its values."""


@dataclass(frozen=True, eq=False)
class DaskRows:
    """Arguments of ``fit`` about rows, as Dask collections with the same partitions.

    Parameters
    ----------
    X, y, sample_weight : Dask DataFrame, Series or Array
        Features, labels and weights; None for no weights.
    sensitive_features : Dask DataFrame, Series or Array, or dict of these, default=None
        Columns that constraints group by.
    name : str, default=""
        Evaluation set in messages, such as ``"eval_set[0]"``; empty for the training rows.
    """

    X: Any
    y: Any
    sample_weight: Any = None
    sensitive_features: Any = None
    name: str = ""

    def partitions(self) -> list[Partition]:
        """Divide all arguments at the same rows; nothing is computed.

        Raises
        ------
        TypeError
            If an argument is no Dask collection.
        ValueError
            If an argument has another number of partitions than X, or unknown categories.
        """
        X = self._partitions("X", self.X)
        n = len(X)
        y, weight = (self._aligned(part, n) for part in ("y", "sample_weight"))
        return list(zip(X, y, weight, self._columns(n), strict=True))

    def _partitions(self, argument: str, values: Any) -> list[Delayed]:
        return partitions_of(values, f"{argument} of {self.name}" if self.name else argument)

    def _aligned(self, argument: str, n: int, values: Any = None) -> Sequence[Delayed | None]:
        """List the partitions of an argument, None for each without values."""
        values = getattr(self, argument) if values is None else values
        if values is None and argument != "y":
            return [None] * n
        found = self._partitions(argument, values)
        if len(found) != n:
            raise ValueError(
                f"{argument} has {len(found)} partitions and X has {n}: divide both collections "
                f"at the same rows, with repartition or rechunk."
            )
        return found

    def _columns(self, n: int) -> Sequence[Any]:
        """List the sensitive features of each partition."""
        if not isinstance(self.sensitive_features, Mapping):
            return self._aligned("sensitive_features", n)
        found = {
            name: self._aligned(f"sensitive_features[{name!r}]", n, values)
            for name, values in self.sensitive_features.items()
        }
        return [{name: parts[i] for name, parts in found.items()} for i in range(n)]


HeldRows: TypeAlias = list[tuple[Future[Shard], int]]
"""Shards that a worker holds, each with the number of its first row among all rows."""


@dataclass(frozen=True, eq=False)
class PlacedRows:
    """Partitions in the memory of workers.

    Parameters
    ----------
    shards : list of Future
        Shard of each partition.
    lengths : list of int
        Number of rows of each partition.
    workers : list of str
        Address of the worker that holds each partition.
    empty : Future
        Shard with all columns and no row, for workers that hold no partition.
    """

    shards: list[Future[Shard]]
    lengths: list[int]
    workers: list[str]
    empty: Future[Shard]

    @classmethod
    def of(cls, client: Client, rows: DaskRows) -> PlacedRows:
        """Compute the partitions where the scheduler places them, and make shards there."""
        parts, repack = unpack_collections(rows.partitions())
        computed = client.compute(parts)
        wait(computed)
        (partitions,) = repack(computed)
        held = client.who_has([X for X, *_ in partitions])
        workers = [min(held[X.key]) for X, *_ in partitions]
        where = f"partition {{}} of {rows.name or 'the training rows'}"
        shards = [
            client.submit(make_shard, *part, where=where.format(i), workers=[worker], pure=False)
            for i, (part, worker) in enumerate(zip(partitions, workers, strict=True))
        ]
        lengths = client.gather(client.map(count_rows, shards, pure=False))
        empty = client.submit(without_rows, shards[0], pure=False)
        return cls(shards, lengths, workers, empty)

    def holders(self) -> list[str]:
        """List the workers that hold rows, in the order of their first rows."""
        given = zip(self.workers, self.lengths, strict=True)
        return list(dict.fromkeys(worker for worker, length in given if length))

    def assign(self, workers: Sequence[str]) -> list[HeldRows]:
        """Give each worker the partitions that it holds; the first takes those of no worker."""
        offsets = [0, *np.cumsum(self.lengths)[:-1].tolist()]
        given: dict[str, HeldRows] = {worker: [] for worker in workers}
        for shard, offset, worker in zip(self.shards, offsets, self.workers, strict=True):
            given[worker if worker in given else workers[0]].append((shard, offset))
        return [given[worker] or [(self.empty, 0)] for worker in workers]
