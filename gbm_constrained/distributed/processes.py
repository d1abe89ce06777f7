"""Fits of the classifiers of one machine on several processes of a computer."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from time import monotonic
from typing import Any

import numpy as np

from gbm_constrained._dataframes import number_of_rows
from gbm_constrained.data.fit_data import take_values
from gbm_constrained.data.validation import (
    check_integer,
    check_sensitive_sets,
    preserve_random_state,
)
from gbm_constrained.distributed.networks import NETWORKS, Seat
from gbm_constrained.distributed.ranks import (
    SET_WEIGHTS,
    FailureLine,
    Library,
    Plan,
    Shard,
    check_fit_arguments,
    collect_outcomes,
    make_shard,
    train_rank,
)
from gbm_constrained.exceptions import MachineError

EXIT_LIMIT = 2.0  # Seconds that a process has to end after its last word.


def run_processes(
    function: Callable[..., Any],
    shards: Sequence[Any],
    plan: Any,
    *,
    time_limit: float = 600.0,
) -> list[Any]:
    """Run ``function(shard, plan, communicator)`` in one new process for each shard.

    The processes are spawned, so that a script calls this under ``if __name__ == "__main__"``.
    They listen on the loopback address, and end with the calling process whatever ends it.

    Parameters
    ----------
    function : callable
        Function of a module, which a new process can import.
    shards : sequence of any
        What each rank works on; it is pickled once, on its way to its process.
    plan : dataclass instance
        What all ranks are told. Its field ``library`` names the network, "xgboost" or
        "lightgbm"; its field ``network``, a dict, is replaced by the native parameters that a
        rank needs to join it.
    time_limit : float, default=600.0
        Seconds that a rank waits for the others before it fails, at least 1. LightGBM's own
        waits end after whole minutes, at least one.

    Returns
    -------
    list
        Results by rank.

    Raises
    ------
    ValueError
        If there are no shards, the library is not known, or the time limit is too short.
    MachineError
        If a rank has raised or was lost. The error names it, and the traceback is a note.
    """
    if not shards:
        raise ValueError("shards is empty: pass one shard for each process")
    if plan.library not in NETWORKS:
        raise ValueError(f"plan.library is {plan.library!r}: choose one of {sorted(NETWORKS)}")
    if not time_limit >= 1:
        raise ValueError(f"time_limit is {time_limit!r}: pass at least 1 second")
    with NETWORKS[plan.library](len(shards), time_limit) as seats:
        ranks: list[tuple[SpawnProcess, Connection]] = []
        try:
            for seat, shard in zip(seats, shards, strict=True):
                ranks.append(_start(function, shard, plan, seat))
            processes, lines = zip(*ranks, strict=True)
            outcomes = collect_outcomes(
                list(lines), lambda rank: _describe_loss(processes[rank], rank, len(shards))
            )
        finally:
            _end(ranks)
    if outcomes.failure is not None:
        raise outcomes.failure
    return outcomes.by_rank


def _start(
    function: Callable[..., Any], shard: Any, plan: Any, seat: Seat
) -> tuple[SpawnProcess, Connection]:
    """Start the process of a rank; the connection ends when the process does."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(
        target=_serve, args=(theirs, function, shard, plan, seat), daemon=True
    )
    with theirs:
        process.start()
    return process, ours


def _serve(
    connection: Connection, function: Callable[..., Any], shard: Any, plan: Any, seat: Seat
) -> None:
    """Be a rank: the whole life of its process."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    echoes = seat.echoes()
    line = FailureLine(connection, seat.rank, seat.size, echoes)
    # What goes wrong on the way out of the network follows from a failure that is reported.
    with suppress(MachineError, *echoes), ExitStack() as network, line.guard():
        communicator, parameters = network.enter_context(seat.join())
        line.report(function(shard, replace(plan, network=parameters), communicator))


def _end_with_parent() -> None:
    """End this process if its parent ends without a word, wherever this process is then."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _describe_loss(process: SpawnProcess, rank: int, size: int) -> MachineError:
    """Say how a process has ended that has sent neither a result nor a failure."""
    process.join(EXIT_LIMIT)
    code = process.exitcode
    cause = f" ({signal.Signals(-code).name})" if code is not None and code < 0 else ""
    reason = f"process {process.pid} ended with exit code {code}{cause}"
    return MachineError(rank, size, socket.gethostname(), reason)


def _end(ranks: list[tuple[SpawnProcess, Connection]]) -> None:
    """Wait until all processes are gone; those that hang are killed."""
    end = monotonic() + EXIT_LIMIT
    for process, connection in ranks:
        process.join(max(end - monotonic(), 0))
        process.kill()
        process.join()
        connection.close()


LIBRARIES: dict[str, Library] = {
    "ConstrainedXGBClassifier": "xgboost",
    "ConstrainedLGBMClassifier": "lightgbm",
}


def fit_on_processes(
    classifier: Any,
    X: Any,
    y: Any,
    *,
    n_processes: int,
    sample_weight: Any = None,
    sensitive_features: Any = None,
    eval_set: Sequence[tuple[Any, Any]] | None = None,
    sensitive_features_eval_set: Sequence[Any] | None = None,
    **fit: Any,
) -> Any:
    """Fit a classifier whose rows are divided among processes of this computer.

    Each process trains on a run of consecutive rows, and only tables of cells travel between
    them. A script calls this function under ``if __name__ == "__main__"``, since the processes
    import it.

    Parameters
    ----------
    classifier : ConstrainedXGBClassifier or ConstrainedLGBMClassifier
        Classifier to fit; its ``n_jobs`` are the threads of each process.
    X : array or table of shape (n_samples, n_features)
        Features.
    y : array of shape (n_samples,)
        Labels.
    n_processes : int
        Number of processes.
    sample_weight : array of shape (n_samples,), default=None
        Weights.
    sensitive_features : table, or mapping from name to array, default=None
        Columns that constraints may group by.
    eval_set : list of (X, y), default=None
        Evaluation sets, which are divided as well.
    sensitive_features_eval_set : list, default=None
        Columns of each evaluation set.
    **fit
        Further arguments of the classifier's ``fit`` that are not about rows, such as
        ``checkpoint``.

    Returns
    -------
    ConstrainedXGBClassifier or ConstrainedLGBMClassifier
        The classifier, fitted as by its own ``fit``.

    Raises
    ------
    MachineError
        If a process fails or is lost; the error names it.
    TypeError
        If `classifier` is none, or its ``fit`` has no argument of a name in `fit`.
    ValueError
        If an argument is about the rows of one machine or has another number of rows than X, or
        if there are more processes than rows.
    """
    check_integer("n_processes", n_processes, 1)
    n = number_of_rows(X)
    if n_processes > n:
        raise ValueError(f"n_processes={n_processes} is more than the {n} rows: give fewer.")
    check_fit_arguments(type(classifier), fit)
    plan = _plan_of(classifier, fit)
    sets = list(eval_set or ())
    check_sensitive_sets(sensitive_features_eval_set, len(sets))
    columns = sensitive_features_eval_set or [None] * len(sets)
    weights = fit.pop(SET_WEIGHTS[plan.library], None) or [None] * len(sets)
    whole = _divide(X, y, sample_weight, sensitive_features, n_processes, "fit")
    held = [
        _divide(X_i, y_i, weight, of_set, n_processes, f"eval_set[{i}]")
        for i, ((X_i, y_i), weight, of_set) in enumerate(zip(sets, weights, columns, strict=True))
    ]
    shards = [
        replace(shard, evaluation=[parts[rank] for parts in held])
        for rank, shard in enumerate(whole)
    ]
    results = run_processes(train_rank, shards, plan)
    results[0].hand_over_to(classifier)
    return classifier


def _plan_of(classifier: Any, fit: dict[str, Any]) -> Plan:
    """Make the plan of a classifier, without loading the other library."""
    kinds = {base.__name__ for base in type(classifier).__mro__}
    for name, library in LIBRARIES.items():
        if name in kinds:
            with preserve_random_state(classifier):
                return Plan(library, classifier.get_params(deep=False), fit)
    raise TypeError(
        f"classifier is a {type(classifier).__name__}: give a ConstrainedXGBClassifier or a "
        f"ConstrainedLGBMClassifier."
    )


def _divide(
    X: Any, y: Any, sample_weight: Any, columns: Any, n_parts: int, where: str
) -> list[Shard]:
    """Divide rows into runs of nearly equal length, numbered by their positions."""
    make_shard(X, y, sample_weight, columns, where=where)  # It compares the numbers of rows.
    given = (X, y, sample_weight, columns)
    shards = []
    for part in np.array_split(np.arange(number_of_rows(X)), n_parts):
        taken = [None if values is None else take_values(values, part) for values in given]
        shards.append(replace(make_shard(*taken, where=where), numbers=part))
    return shards
