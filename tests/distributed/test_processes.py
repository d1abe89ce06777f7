"""Processes that train together, what is left when one of them fails, and fits on them."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import rank_functions
from helpers import EITHER
from rank_functions import N_ROUNDS, Plan
from shard_fits import QUIET, N, Problem

import gbm_constrained as gc
from gbm_constrained.distributed import fit_on_processes
from gbm_constrained.distributed.networks import find_free_ports
from gbm_constrained.distributed.processes import run_processes
from gbm_constrained.exceptions import MachineError

HOST = socket.gethostname()


def shards(n):
    X = np.random.default_rng(0).integers(0, 50, (2000, 3)).astype(float)
    y = (X[:, 0] + X[:, 1] > 50).astype(float)
    return [(X[part], y[part]) for part in np.array_split(np.arange(len(X)), n)]


def is_alive(process):
    """Whether a process runs: those that have ended and are not yet waited for do not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def started(folder):
    """List the processes that have written down which they are."""
    return [int(text) for file in folder.glob("rank*") if (text := file.read_text())]


def eventually(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_lightgbm_grows_one_model_on_both_processes():
    results = run_processes(rank_functions.train, shards(2), Plan("lightgbm"))
    first, second = (re.sub(r"\[local_listen_port: \d+\]", "", text) for text, _, _ in results)
    assert first == second
    assert results[0][1] == results[1][1]
    assert len(results[0][1]) == N_ROUNDS
    assert results[0][1][0][0] == 2000  # Rows of both.
    for _, _, process in results:
        assert process != os.getpid()
        assert not is_alive(process)


def test_an_error_of_one_rank_is_the_error_of_the_fit():
    start = time.monotonic()
    with pytest.raises(MachineError) as info:
        run_processes(rank_functions.train, shards(2), Plan("lightgbm", failure="raise"))
    assert str(info.value) == f"rank 1 of 2 ({HOST}): ValueError: the costs are negative"
    assert "in objective" in info.value.__notes__[0]
    assert time.monotonic() - start < 25


@pytest.mark.parametrize("times", [1, pytest.param(10, marks=pytest.mark.slow)])
@EITHER
def test_a_killed_process_is_named_and_leaves_no_orphan(library, times):
    for _ in range(times):
        start = time.monotonic()
        with pytest.raises(MachineError) as info:
            run_processes(rank_functions.train, shards(2), Plan(library, failure="kill"))
        assert time.monotonic() - start < 30
        found = re.fullmatch(
            rf"rank 1 of 2 \({HOST}\): process (\d+) ended with exit code -9 \(SIGKILL\)",
            str(info.value),
        )
        assert found is not None
        assert not is_alive(int(found[1]))
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        commands = [Path(f"/proc/{child}/cmdline").read_text() for child in children]
        assert not [command for command in commands if "spawn_main" in command]


def test_a_process_that_ends_before_it_joins_the_others_is_named():
    ends = [0, rank_functions.EndsWhoReadsIt()]
    with pytest.raises(MachineError, match=r"rank 1 of 2 .* ended with exit code 7\b"):
        run_processes(rank_functions.train, ends, Plan("xgboost"))


def test_a_result_that_cannot_be_sent_is_an_error():
    with pytest.raises(MachineError, match=r"rank 0 of 1 \(.*\): .*[Pp]ickle"):
        run_processes(rank_functions.give_what_cannot_be_sent, [0], Plan("lightgbm"))


def test_processes_end_with_the_one_that_started_them(tmp_path):
    code = f"""
import sys
sys.path[:] = {sys.path!r}
import rank_functions
from helpers import EITHER
from gbm_constrained.distributed.processes import run_processes
if __name__ == "__main__":
    plan = rank_functions.Plan("lightgbm", path={str(tmp_path)!r})
    run_processes(rank_functions.note_process_and_wait, [0, 1], plan)
"""
    script = tmp_path / "script.py"
    script.write_text(code)
    with subprocess.Popen([sys.executable, str(script)]) as launcher:
        eventually(lambda: len(started(tmp_path)) == 2)
        processes = started(tmp_path)
        assert all(map(is_alive, processes))
        launcher.send_signal(signal.SIGKILL)
    eventually(lambda: not any(map(is_alive, processes)))


def test_a_launcher_that_is_interrupted_leaves_no_process(tmp_path):
    def interrupt(*_):
        raise KeyboardInterrupt

    def interrupt_when_all_run():
        eventually(lambda: len(started(tmp_path)) == 2)
        os.kill(os.getpid(), signal.SIGUSR1)

    previous = signal.signal(signal.SIGUSR1, interrupt)
    thread = threading.Thread(target=interrupt_when_all_run)
    thread.start()
    plan = Plan("xgboost", path=str(tmp_path))
    try:
        with pytest.raises(KeyboardInterrupt):
            run_processes(rank_functions.note_process_and_wait, [0, 1], plan)
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, previous)
    assert not any(map(is_alive, started(tmp_path)))


def test_ports_of_lightgbm_are_free_and_never_those_of_outgoing_connections():
    ports = find_free_ports("127.0.0.1", 50)
    assert len(set(ports)) == 50
    assert max(ports) < 32_768
    held = [socket.create_server(("127.0.0.1", port)) for port in ports]
    for server in held:
        server.close()


RULES = [gc.fpr() <= 0.08, gc.gap(gc.fpr(), by="sex") <= 0.02]


def test_two_processes_fit_what_one_does():
    """Also with tables, weights, and an evaluation set that moves the multipliers."""
    problem = Problem(is_weighted=True)
    X = pd.DataFrame(problem.X, columns=list("abcde"))
    held = np.arange(N) % 5 == 0
    fitted = []
    for n_processes in (1, 2):
        clf = gc.ConstrainedXGBClassifier(constraints=RULES, measure_on="holdout", **QUIET)
        columns = pd.DataFrame({"sex": problem.sex})
        found = fit_on_processes(
            clf,
            X[~held],
            problem.y[~held],
            n_processes=n_processes,
            sample_weight=problem.weight[~held],
            sensitive_features=columns[~held],
            eval_set=[(X[held], problem.y[held])],
            sample_weight_eval_set=[problem.weight[held]],
            sensitive_features_eval_set=[columns[held]],
            verbose=False,
        )
        assert found is clf
        fitted.append(clf)
    one, two = fitted
    assert one.multipliers_.max() > 0.01
    np.testing.assert_array_equal(one.multipliers_, two.multipliers_)
    np.testing.assert_array_equal(one.predict(X), two.predict(X))
    held_out = [model.constraint_report_["held_out"] for model in fitted]
    np.testing.assert_array_equal(*held_out)


REFUSED = {
    "unknown": ({"depth": 3}, TypeError, "no argument 'depth'"),
    "of one machine": ({"base_margin": np.zeros(N)}, ValueError, "base_margin= is not supported"),
    "processes": ({"n_processes": N + 1}, ValueError, "more than the 2400 rows"),
    "none": ({"n_processes": 0}, ValueError, "n_processes must be an integer"),
    "sets": ({"sensitive_features_eval_set": [None]}, ValueError, "eval_set"),
    "weights": ({"sample_weight": np.ones(3)}, ValueError, "sample_weight has 3 rows"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_arguments_are_refused_before_a_process_starts(name):
    given, error, message = REFUSED[name]
    problem = Problem()
    clf = gc.ConstrainedXGBClassifier(constraints=RULES, **QUIET)
    with pytest.raises(error, match=message):
        fit_on_processes(clf, problem.X, problem.y, **{"n_processes": 2, **given})


def test_other_classifiers_are_refused():
    clf = gc.ConstrainedLogisticRegression(constraints=RULES)
    with pytest.raises(TypeError, match="ConstrainedLogisticRegression"):
        fit_on_processes(clf, np.zeros((4, 1)), np.arange(4) % 2, n_processes=2)
