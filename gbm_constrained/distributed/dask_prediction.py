"""Predictions of Dask collections, partition by partition."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from uuid import uuid4

import dask.array as da
import numpy as np
from dask.base import compute
from dask.delayed import delayed
from sklearn.utils import check_random_state

from gbm_constrained._dataframes import number_of_rows
from gbm_constrained._typing import Array
from gbm_constrained.distributed.dask_rows import DaskRows, is_collection, partitions_of
from gbm_constrained.distributed.shards import count_rows, make_shard

Method = TypeVar("Method", bound=Callable[..., Any])


def by_partition(method: Method) -> Method:
    """Make a prediction of a classifier take Dask collections as well as tables in memory."""

    @functools.wraps(method)
    def predict(self: Any, X: Any, *args: Any, **options: Any) -> Any:
        if is_collection(X):
            return predict_partitions(self.to_local(), method.__name__, X, args, options)
        return method(self, X, *args, **options)

    return predict  # type: ignore[return-value]


def predict_partitions(
    local: Any, method: str, X: Any, args: tuple[Any, ...], options: Mapping[str, Any]
) -> da.Array:
    """Predict each partition where it is, when the result is computed.

    Parameters
    ----------
    local : classifier
        Fitted classifier of one machine.
    method : str
        Name of its method.
    X : Dask DataFrame or Array of shape (n_samples, n_features)
        Features.
    args, options : tuple, mapping
        Further arguments of the method.

    Returns
    -------
    Dask Array of shape (n_samples,) or (n_samples, n_outputs)
        Its chunks are the partitions of X, of unknown length where X is a table.

    Raises
    ------
    TypeError
        If another argument is a Dask collection, too.
    """
    for name, value in options.items():
        if is_collection(value):
            raise TypeError(
                f"{name} is a Dask collection, and {method} takes no collection but X: predict "
                f"each partition with to_local()."
            )
    parts = partitions_of(X, "X")
    like = np.asarray(getattr(local, method)(_sample(X), *args, **options))[:0]
    model = delayed(local, name=f"classifier-{uuid4()}", traverse=False)
    source = check_random_state(options.get("random_state"))
    chunks = []
    for i, part in enumerate(parts):
        own = dict(options)
        if own.get("random_state") is not None:  # Partitions draw for different rows.
            own["random_state"] = int(source.randint(2**31 - 1))
        rows = X.chunks[0][i] if isinstance(X, da.Array) else np.nan
        found = delayed(_predict, pure=False)(model, method, part, args, own, like)
        chunks.append(da.from_delayed(found, (rows, *like.shape[1:]), meta=like))
    predicted: da.Array = da.concatenate(chunks, allow_unknown_chunksizes=True)
    return predicted


def _sample(X: Any) -> Any:
    """Make a row or two with the columns of a collection, by which the result is typed."""
    return np.zeros((1, X.shape[1])) if isinstance(X, da.Array) else X._meta_nonempty


def _predict(
    model: Any, method: str, X: Any, args: tuple[Any, ...], options: dict[str, Any], like: Array
) -> Array:
    """Predict a partition, which may have no rows."""
    if number_of_rows(X) == 0:
        return like
    return np.asarray(getattr(model, method)(X, *args, **options))


def score_partitions(local: Any, rows: DaskRows) -> float:
    """Compute the accuracy of a classifier on the rows of Dask collections, where these are."""
    model = delayed(local, name=f"classifier-{uuid4()}", traverse=False)
    count = delayed(_count_right, pure=False)
    counts = compute(*(count(model, X, y, weight) for X, y, weight, _ in rows.partitions()))
    right, total = np.sum(counts, axis=0)
    return float(right / total)


def _count_right(model: Any, X: Any, y: Any, sample_weight: Any) -> tuple[float, float]:
    """Sum the weights of the rows that are decided right, and of all rows."""
    shard = make_shard(X, y, sample_weight, where="a partition")
    if count_rows(shard) == 0:
        return 0.0, 0.0
    weight = np.ones(shard.y.size) if shard.sample_weight is None else shard.sample_weight
    return float(weight[model.predict(X) == shard.y].sum()), float(weight.sum())
