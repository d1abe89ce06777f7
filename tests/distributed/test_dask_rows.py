"""Dask collections as partitions of rows, each of which is numbered by its place."""

from dataclasses import replace

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from engine_ranks import table

from gbm_constrained.distributed.dask import DaskRows, PlacedRows
from gbm_constrained.distributed.ranks import join_shards, make_shard


def joined(client, rows):
    """Bring all rows together, in their order."""
    placed = PlacedRows.from_rows(client, rows)
    (held,) = placed.assign([placed.workers[0]])
    shards = [(future.result(), offset) for future, offset in held]
    return join_shards([replace(s, numbers=s.numbers + offset) for s, offset in shards])


ROWS = table(50)
FRAME = dd.from_pandas(ROWS, npartitions=3)
SENSITIVE = {
    "frame": (FRAME[["group"]], {"group": ROWS["group"]}),
    "series": (FRAME["group"], {"group": ROWS["group"]}),
    "dict": ({"g": FRAME["group"], "b": FRAME["b"]}, {"g": ROWS["group"], "b": ROWS["b"]}),
    "array": (FRAME["b"].to_dask_array(), {"sensitive_feature_0": ROWS["b"]}),
    "none": (None, None),
}


@pytest.mark.parametrize("kind", SENSITIVE)
def test_partitions_hold_all_columns_of_their_rows(client, kind):
    given, expected = SENSITIVE[kind]
    shard = joined(client, DaskRows(FRAME[["a", "b"]], FRAME["y"], FRAME["weight"], given))
    assert shard.numbers.tolist() == list(range(50))
    pd.testing.assert_frame_equal(shard.X.reset_index(drop=True), ROWS[["a", "b"]])
    assert (shard.y == ROWS["y"]).all()
    assert (shard.sample_weight == ROWS["weight"]).all()
    found = shard.sensitive_features
    assert (found and found.keys()) == (expected and expected.keys())
    assert all((found[name] == expected[name]).all() for name in expected or ())


def test_columns_of_arrays_come_together(client):
    X = np.arange(60.0).reshape(20, 3)
    y = np.arange(20) % 2
    rows = DaskRows(da.from_array(X, chunks=(7, 2)), da.from_array(y, chunks=7))
    shard = joined(client, rows)
    assert np.array_equal(shard.X, X)
    assert np.array_equal(shard.y, y)
    assert shard.sample_weight is None


def test_empty_partitions_take_no_numbers(client):
    some = FRAME[FRAME["a"] >= 20]
    few = FRAME.map_partitions(lambda part: part[part.index < 20])
    assert joined(client, DaskRows(few[["a"]], few["y"])).numbers.tolist() == list(range(20))
    kept = ROWS["a"] >= 20
    assert joined(client, DaskRows(some[["a"]], some["y"])).numbers.size == kept.sum()


def test_workers_are_given_what_they_hold_and_the_rest_goes_to_the_first(client):
    placed = PlacedRows.from_rows(client, DaskRows(FRAME[["a"]], FRAME["y"]))
    starts = [0, *np.cumsum(placed.lengths)[:-1]]
    workers = list(dict.fromkeys(placed.workers))
    for worker, held in zip(workers, placed.assign(workers), strict=True):
        held_there = zip(starts, placed.workers, strict=True)
        assert [start for _, start in held] == [s for s, w in held_there if w == worker]
    everything, nothing = placed.assign(["tcp://first", "tcp://second"])
    assert [start for _, start in everything] == starts
    ((empty, _),) = nothing
    assert list(empty.result().X.columns) == ["a"]
    assert empty.result().numbers.size == 0


def test_a_shard_without_rows_keeps_types():
    X = pd.DataFrame({"a": [1.5, 2.0], "c": pd.Categorical(["p", "q"])})
    shard = make_shard(X, [0, 1], [1.0, 2.0], {"g": ["x", "z"]}, where="partition 0")
    empty = shard.take(np.arange(0))
    assert (empty.X.dtypes == X.dtypes).all()
    assert (empty.y.dtype, empty.sample_weight.dtype) == (shard.y.dtype, np.float64)
    again = join_shards([empty, shard, empty])
    pd.testing.assert_frame_equal(again.X, X)
    assert again.sensitive_features["g"].tolist() == ["x", "z"]


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        (DaskRows(ROWS, FRAME["y"]), TypeError, "X is a DataFrame, and no Dask array"),
        (DaskRows(FRAME[["a"]], ROWS["y"]), TypeError, "y is a Series, and no Dask array"),
        (DaskRows(FRAME[["a"]], None), TypeError, "y is a NoneType"),
        (
            DaskRows(FRAME[["a"]], FRAME["y"].repartition(npartitions=2), name="eval_set[1]"),
            ValueError,
            "y has 2 partitions and X has 3",
        ),
        (
            DaskRows(FRAME[["a"]], FRAME["y"], None, {"g": ROWS["group"]}),
            TypeError,
            r"sensitive_features\['g'\] is a Series",
        ),
        (
            DaskRows(FRAME["group"].astype("category").to_frame(), FRAME["y"], name="eval_set[1]"),
            ValueError,
            r"X of eval_set\[1\]: the categories of column 'group' are unknown.*categorize\(\)",
        ),
    ],
)
def test_other_collections_are_refused_before_anything_is_computed(rows, error, message):
    with pytest.raises(error, match=message):
        rows.partitions()


def test_partitions_of_different_lengths_are_refused(client):
    y = FRAME["y"].map_partitions(lambda part: part.iloc[1:])
    with pytest.raises(ValueError, match=r"y has 1\d rows in partition \d of the training rows"):
        PlacedRows.from_rows(client, DaskRows(FRAME[["a"]], y))
