"""Rows of one machine, made of the partitions that it holds."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbm_constrained._dataframes import number_of_rows, take_rows
from gbm_constrained.data.combined_rows import concatenate_rows
from gbm_constrained.data.sensitive_features import columns_of
from gbm_constrained.distributed.rank import Shard


def make_shard(
    X: Any,
    y: Any,
    sample_weight: Any = None,
    sensitive_features: Any = None,
    *,
    where: str,
) -> Shard:
    """Make a shard of one partition, whose rows are numbered from zero.

    Parameters
    ----------
    X, y, sample_weight, sensitive_features : tables and arrays
        Partition of each argument of ``fit``.
    where : str
        Arguments and partition in messages, such as ``"partition 3"``.

    Raises
    ------
    ValueError
        If the partitions of two arguments have different numbers of rows.
    """
    n = number_of_rows(X)
    for name, values in (("y", y), ("sample_weight", sample_weight)):
        if values is not None and number_of_rows(values) != n:
            raise ValueError(
                f"{name} has {number_of_rows(values)} rows in {where}, where X has {n}: divide "
                f"both collections at the same rows."
            )
    columns = columns_of(sensitive_features, n, f"sensitive_features in {where}")
    return Shard(
        X,
        np.asarray(y),
        np.arange(n),
        None if sample_weight is None else np.asarray(sample_weight),
        columns or None,
    )


def count_rows(shard: Shard) -> int:
    """Count the rows of a shard."""
    return number_of_rows(shard.X)


def without_rows(shard: Shard) -> Shard:
    """Keep the columns of a shard and none of its rows."""
    none = np.arange(0)
    columns = shard.sensitive_features
    return Shard(
        take_rows(shard.X, none),
        shard.y[none],
        shard.numbers[none],
        None if shard.sample_weight is None else shard.sample_weight[none],
        None if columns is None else {name: values[none] for name, values in columns.items()},
    )


def renumber(shard: Shard, offset: int) -> Shard:
    """Add an offset to the numbers of the rows."""
    return replace(shard, numbers=shard.numbers + offset)


def join_shards(shards: Sequence[Shard]) -> Shard:
    """Join shards with the same columns to one, in their order."""
    if len(shards) == 1:
        return shards[0]
    first = shards[0]

    def joined(read: Callable[[Shard], NDArray[Any]]) -> NDArray[Any]:
        return np.concatenate([read(shard) for shard in shards])

    def column(name: Hashable) -> NDArray[Any]:
        return joined(lambda shard: shard.sensitive_features[name])

    columns = first.sensitive_features
    return Shard(
        concatenate_rows([shard.X for shard in shards]),
        joined(lambda shard: shard.y),
        joined(lambda shard: shard.numbers),
        None if first.sample_weight is None else joined(lambda shard: shard.sample_weight),
        None if columns is None else {name: column(name) for name in columns},
    )
