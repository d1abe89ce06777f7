"""Workers of Dask that train together, and what the user is told when one of them fails."""

import pickle
import re
import threading
import time
from collections import Counter

import dask.dataframe as dd
import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
from clusters import dask_cluster
from distributed import futures_of, wait
from engine_ranks import boost, describe, table

from gbm_constrained.distributed.dask import DaskRows, train
from gbm_constrained.distributed.ranks import Plan, RankResult
from gbm_constrained.exceptions import MachineError

ROWS = table()
XGBOOST = Plan("xgboost", {"n_jobs": None})


def rows_of(frame, name=""):
    return DaskRows(frame[["a", "b"]], frame["y"], frame["weight"], frame[["group"]], name)


def described(client, frame, *sets, plan=XGBOOST):
    found = train(client, rows_of(frame), [rows_of(one) for one in sets], plan, describe)
    return pickle.loads(found.model)


def in_order(shards):
    """Join the rows that ranks have described, sorted by their numbers."""
    parts = [pd.DataFrame({**shard, "X": list(map(tuple, shard["X"]))}) for shard in shards]
    return pd.concat(parts).sort_values("numbers", ignore_index=True)


def assert_all_rows(shards, expected):
    found = in_order(shards)
    assert found["numbers"].tolist() == list(range(len(expected)))
    assert found["X"].tolist() == list(map(tuple, expected[["a", "b"]].to_numpy()))
    for name in ("y", "weight", "group"):
        assert found[name].tolist() == expected[name].tolist()


@pytest.mark.parametrize("n_partitions", [1, 3, 8])
def test_each_row_is_on_one_worker_with_its_own_number(client, n_partitions):
    ranks, sets, _ = described(client, dd.from_pandas(ROWS, npartitions=n_partitions))
    assert len(ranks) == 2
    assert sets == [[], []]
    assert_all_rows(ranks, ROWS)


def test_evaluation_sets_have_partitions_of_their_own(client):
    further = [table(30, seed=1), table(70, seed=2)]
    frames = [dd.from_pandas(one, npartitions=i + 1) for i, one in enumerate(further)]
    ranks, sets, _ = described(client, dd.from_pandas(ROWS, npartitions=4), *frames)
    assert_all_rows(ranks, ROWS)
    for expected, shards in zip(further, zip(*sets, strict=True), strict=True):
        assert_all_rows(shards, expected)


def test_partitions_may_be_empty(client):
    frame = dd.from_pandas(ROWS, npartitions=6)
    some = frame.map_partitions(lambda part: part[(part.index < 150) | (part.index > 450)])
    kept = ROWS[(ROWS.index < 150) | (ROWS.index > 450)]
    assert_all_rows(described(client, some)[0], kept)


def test_the_model_does_not_depend_on_the_placing_of_partitions(client):
    models = set()
    for n_partitions in (1, 2, 7):
        frame = dd.from_pandas(ROWS, npartitions=n_partitions)
        for _ in range(2):
            models.add(train(client, rows_of(frame), [], XGBOOST, boost).model)
    assert len(models) == 1


def test_threads_are_those_of_the_worker_unless_given(client):
    frame = dd.from_pandas(ROWS, npartitions=2)
    _, _, plans = described(client, frame)
    assert plans == [({"n_jobs": 1}, {})] * 2
    _, _, plans = described(client, frame, plan=Plan("xgboost", {"n_jobs": 3, "max_depth": 2}))
    assert plans == [({"n_jobs": 3, "max_depth": 2}, {})] * 2


def on_workers(client, parts):
    """Make a table of Dask whose partitions are on the workers in turn."""
    workers = sorted(client.nthreads())
    futures = [
        client.submit(pd.DataFrame, part, workers=[workers[i % len(workers)]], pure=False)
        for i, part in enumerate(parts)
    ]
    wait(futures)
    return client.persist(dd.from_delayed(futures, meta=ROWS.iloc[:0]))


def test_lightgbm_is_given_its_network(client):
    # The scheduler may move a single partition to the other worker, but not all of eight.
    ranks, _, plans = described(
        client, dd.from_pandas(ROWS, npartitions=8), plan=Plan("lightgbm", {"n_jobs": None})
    )
    assert len(ranks) == 2
    assert_all_rows(ranks, ROWS)
    networks = [network for _, network in plans]
    addresses = [f"127.0.0.1:{network['local_listen_port']}" for network in networks]
    assert len(set(addresses)) == 2
    assert {network["machines"] for network in networks} == {",".join(addresses)}
    assert {network["num_machines"] for network in networks} == {2}


def test_lightgbm_leaves_out_workers_without_rows(client):
    further = on_workers(client, [table(40, seed=1)[:10], table(40, seed=1)[10:]])
    frame = on_workers(client, [ROWS, ROWS[:0]])
    ranks, sets, plans = described(client, frame, further, plan=Plan("lightgbm", {"n_jobs": 1}))
    assert_all_rows(ranks, ROWS)
    assert_all_rows(sets[0], table(40, seed=1))
    assert plans == [({"n_jobs": 1}, {})]


def test_an_error_of_one_worker_is_what_the_user_sees(client):
    frame = dd.from_pandas(ROWS, npartitions=2)
    start = time.monotonic()
    plan = Plan("xgboost", {}, {"failure": "raise"})
    with pytest.raises(MachineError, match=r"^rank 1 of 2 \(.+\): ValueError: the costs are neg"):
        train(client, rows_of(frame), [], plan, boost)
    assert time.monotonic() - start < 10
    ranks, *_ = described(client, frame)  # The workers are there for the next fit.
    assert_all_rows(ranks, ROWS)


RELEASED = threading.Event()


def fail_or_wait(shard, plan, communicator):
    """Fail in LightGBM on the first rank; on the other one, wait for it as LightGBM may."""
    if communicator.rank == 0:
        raise lgb.basic.LightGBMError("Check failed: something of this machine")
    RELEASED.wait(30)
    return RankResult(None, ())


def test_workers_that_wait_for_a_failed_one_do_not_hide_the_failure(client, monkeypatch):
    monkeypatch.setattr("gbm_constrained.distributed.dask.CAUSE_LIMIT", 0.2)
    frame, start = dd.from_pandas(ROWS, npartitions=8), time.monotonic()
    try:
        with pytest.raises(MachineError, match=r"rank 0 of 2 .*something of this machine"):
            train(client, rows_of(frame), [], Plan("lightgbm", {"n_jobs": None}), fail_or_wait)
        assert time.monotonic() - start < 10
    finally:
        RELEASED.set()


def test_two_fits_at_once_wait_for_each_other(client):
    frame = dd.from_pandas(ROWS, npartitions=2)
    models = {}

    def fit(i):
        models[i] = train(client, rows_of(frame), [], XGBOOST, boost).model

    threads = [threading.Thread(target=fit, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(models) == 2
    assert len(set(models.values())) == 1


@pytest.fixture(scope="module")
def processes():
    with dask_cluster(2, processes=True) as client:
        yield client


def received(client):
    """List the keys of what each worker has received from other workers."""
    logs = client.run(lambda dask_worker: list(dask_worker.transfer_incoming_log))
    return [key for log in logs.values() for entry in log for key in entry["keys"]]


def test_no_partition_moves(processes):
    sizes = [100, 200, 300]
    frame = on_workers(processes, [ROWS[:100], ROWS[100:300], ROWS[300:]])
    wait(frame)
    parts = futures_of(frame)
    holders = processes.who_has(parts)
    expected = Counter()
    for part, size in zip(parts, sizes, strict=True):
        expected[holders[part.key]] += size
    before = len(received(processes))
    ranks, *_ = described(processes, frame)
    later = received(processes)[before:]
    assert sorted(len(rank["y"]) for rank in ranks if rank["y"]) == sorted(expected.values())
    # A worker that holds no partition is given a shard without rows.
    assert [key for key in later if not key.startswith("without_rows")] == []


def test_a_killed_worker_is_named_and_the_next_fit_works(processes):
    frame = dd.from_pandas(ROWS, npartitions=4)
    workers = {*processes.nthreads()}
    start = time.monotonic()
    plan = Plan("xgboost", {}, {"failure": "kill"})
    with pytest.raises(
        MachineError, match=r"^rank 1 of 2 \(tcp://.*\): this worker of Dask was l"
    ) as raised:
        train(processes, rows_of(frame), [], plan, boost)
    assert time.monotonic() - start < 30
    assert re.search(r"tcp://[\d.:]+", str(raised.value))[0] in workers
    processes.wait_for_workers(2, timeout=30)
    ranks, *_ = described(processes, frame)
    assert_all_rows(ranks, ROWS)
    assert np.isin([*processes.nthreads()], [*workers]).sum() == 1
