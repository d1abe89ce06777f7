"""The benchmark of many machines deals every row once, and tells equal models from others."""

import time

import many_machines as benchmark
import numpy as np
import pytest
from networks import run_on_collective

from gbm_constrained import ConstrainedXGBClassifier

TABLE = benchmark.draw_continuous(400, 6)


@pytest.mark.parametrize("way", ["runs", "random", "empty", "group"])
@pytest.mark.parametrize("seed", range(3))
def test_each_row_is_dealt_to_one_machine(way, seed):
    parts = benchmark.deal(TABLE, way, 4, seed)
    assert len(parts) == 4
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(400))
    if way == "empty":
        assert parts[-1].size == 0
    if way == "group":
        assert np.unique(TABLE.group[parts[-1]]).size == 1


def test_binned_features_have_as_many_values_as_xgboost_has_bins():
    binned = benchmark.bin_adult().X
    assert binned.nunique().max() <= benchmark.MAX_BIN
    order = np.argsort(benchmark.read_adult().X["fnlwgt"].to_numpy(), kind="stable")
    assert (np.diff(binned["fnlwgt"].to_numpy()[order]) >= 0).all()


def step(phase, rounds, n_bytes):
    return benchmark.Step((phase, "rows"), rounds, np.zeros(1), n_bytes)


def test_bytes_of_rounds_and_beside_them_add_up():
    steps = [
        step("measuring", 0, 1000), step("measuring", 2, 1100), step("measuring", 4, 1500),
        step("training", 0, 9500), step("training", 2, 9600),
    ]  # fmt: skip
    trace = benchmark.RankTrace(None, steps, 20_000, 7, 0.0, 0.0)
    assert trace.bytes_of_round() == 200
    assert trace.bytes_beside_rounds() == 20_000 - 500 - 100


def test_rates_of_a_model_by_hand():
    """Of the negatives of two groups 1/2 and 0 are predicted positive."""

    class Model:
        def predict(self, X):
            return np.array([1, 0, 0, 0, 1, 1])

    table = benchmark.Table(None, np.array([0, 0, 0, 0, 1, 0]), np.array(list("aabbba")))
    found = benchmark.measure_rates(Model(), table)
    assert found["accuracy"] == pytest.approx(4 / 6)
    assert found["fpr"] == pytest.approx(2 / 5)
    assert found["fpr_error"] == pytest.approx(np.sqrt(0.4 * 0.6 / 5))
    assert found["gap"] == pytest.approx(2 / 3)
    assert found["gap_error"] == pytest.approx(np.sqrt(2 / 9 / 3))


@pytest.mark.slow
def test_two_processes_agree_with_one_on_few_values():
    X = (TABLE.X * 2).round()
    table = benchmark.Table(X, TABLE.y, TABLE.group)
    params = benchmark.parameters("train", n_estimators=6)
    (one, _), (two, traces) = [
        benchmark.fit_on_processes(table, benchmark.deal(table, "random", n, 1), "xgboost", params)
        for n in (1, 2)
    ]
    assert benchmark.compare(two, one, X) == {
        "same_multipliers": 1.0,
        "scores_apart": 0.0,
        "same_decisions": 1.0,
    }
    assert benchmark.agree(traces) == {"same_on_ranks": 1.0}
    assert traces[1].bytes_of_round() > 0
    other = ConstrainedXGBClassifier(**benchmark.parameters("train", n_estimators=4))
    other.fit(X, TABLE.y, sensitive_features={"group": TABLE.group})
    assert benchmark.compare(other, one, X)["same_multipliers"] == 0.0


@pytest.mark.parametrize("barrier", [False, True])
def test_calls_bytes_and_seconds_are_counted(barrier):
    def work(communicator):
        measured = benchmark.MeasuredCommunicator(communicator, barrier=barrier)
        total = measured.sum(np.ones((12, 2)))
        measured.gather("abc")
        assert (measured.rank, measured.size) == (communicator.rank, 2)
        assert measured.holds_all_rows is False
        np.testing.assert_array_equal(total, 2 * np.ones((12, 2)))
        return measured.n_calls, measured.n_bytes, measured.seconds

    for n_calls, n_bytes, seconds in run_on_collective(work, 2):
        assert n_calls == 2
        assert 12 * 2 * 8 + 3 < n_bytes < 12 * 2 * 8 + 50
        assert 0 < seconds < 5


def test_a_barrier_leaves_out_the_wait_for_a_slow_machine():
    def work(communicator, barrier):
        measured = benchmark.MeasuredCommunicator(communicator, barrier=barrier)
        time.sleep(0.4 * communicator.rank)
        measured.sum(np.ones(3))
        return measured.seconds

    waiting = run_on_collective(lambda c: work(c, barrier=False), 2)
    free = run_on_collective(lambda c: work(c, barrier=True), 2)
    assert waiting[0] > 0.3
    assert free[0] < 0.2
