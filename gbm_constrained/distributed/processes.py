"""Fits of the classifiers of one machine on several processes of a computer."""

from __future__ import annotations

import functools
import math
import multiprocessing
import os
import signal
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from time import monotonic
from typing import Any

from gbm_constrained._dataframes import number_of_rows
from gbm_constrained.data import validation
from gbm_constrained.distributed import networks, ranks
from gbm_constrained.exceptions import MachineError

EXIT_LIMIT = 2.0  # Seconds that a process has to end after its last word.
PATIENCE = 6.0  # Seconds in which the cause of an error is heard of that may be an echo.


def run_processes(function: Callable[..., Any], shards: Sequence[Any], plan: Any) -> list[Any]:
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
        "lightgbm"; its field ``network``, a dict, is replaced by the parameters by which
        LightGBM finds the other ranks.

    Returns
    -------
    list
        Results by rank.

    Raises
    ------
    MachineError
        If a rank has raised or was lost. The error names it, and the traceback is a note.
    """
    size = len(shards)
    of_ranks: list[dict[str, Any]] = [{}] * size
    if plan.library == "lightgbm":
        ports = networks.find_free_ports(networks.LOOPBACK, size)
        of_ranks = networks.lightgbm_networks([(networks.LOOPBACK, port) for port in ports])
    context = multiprocessing.get_context("spawn")
    started: list[tuple[SpawnProcess, Connection]] = []
    with networks.xgboost_network(size) as tracker:
        try:
            for rank, (shard, network) in enumerate(zip(shards, of_ranks, strict=True)):
                own = replace(plan, network=network)
                task = networks.RankTask(rank, size, tracker, own, function)
                ours, theirs = context.Pipe()
                process = context.Process(target=_serve, args=(theirs, task, shard), daemon=True)
                with theirs:  # The connection ends when the process does.
                    process.start()
                started.append((process, ours))
            return networks.collect(functools.partial(_read_outcomes, started), size, PATIENCE)
        finally:
            end = monotonic() + EXIT_LIMIT
            for process, connection in started:
                process.join(max(end - monotonic(), 0))
                process.kill()  # It hangs.
                process.join()
                connection.close()


def _serve(connection: Connection, task: networks.RankTask, shard: Any) -> None:
    """Be a rank: the whole life of its process."""

    def end_with_parent() -> None:
        """End this process if its parent ends without a word, wherever this process is then."""
        parent = multiprocessing.parent_process()
        assert parent is not None
        parent.join()
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
    outcome = task.run(lambda: shard)
    try:
        connection.send(outcome)
    except Exception as error:  # The result cannot be pickled.
        connection.send(task.fail(error))


def _read_outcomes(
    started: Sequence[tuple[SpawnProcess, Connection]], waiting: set[int], limit: float
) -> dict[int, Any]:
    """Wait until one of some ranks has sent its outcome, or has ended without one."""
    found: dict[int, Any] = {}
    asked = [started[rank][1] for rank in waiting]
    ready = wait(asked, None if limit == math.inf else limit)
    for rank, (process, connection) in enumerate(started):
        if connection not in ready:
            continue
        try:
            found[rank] = connection.recv()
        except (EOFError, OSError):  # It has sent neither a result nor a failure.
            process.join(EXIT_LIMIT)
            code = process.exitcode
            cause = f" ({signal.Signals(-code).name})" if code is not None and code < 0 else ""
            reason = f"process {process.pid} ended with exit code {code}{cause}"
            found[rank] = MachineError(rank, len(started), socket.gethostname(), reason)
    return found


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
    validation.check_integer("n_processes", n_processes, 1)
    n = number_of_rows(X)
    if n_processes > n:
        raise ValueError(f"n_processes={n_processes} is more than the {n} rows: give fewer.")
    ranks.check_fit_arguments(type(classifier), fit)
    # The names of classes tell the library without loading the other one.
    kinds = {base.__name__ for base in type(classifier).__mro__}
    library: ranks.Library = "xgboost" if "ConstrainedXGBClassifier" in kinds else "lightgbm"
    if not kinds & {"ConstrainedXGBClassifier", "ConstrainedLGBMClassifier"}:
        raise TypeError(
            f"classifier is a {type(classifier).__name__}: give a ConstrainedXGBClassifier or a "
            f"ConstrainedLGBMClassifier."
        )
    with validation.preserve_random_state(classifier):
        plan = ranks.Plan(library, classifier.get_params(deep=False), fit)
    sets = list(eval_set or ())
    validation.check_sensitive_sets(sensitive_features_eval_set, len(sets))
    columns = sensitive_features_eval_set or [None] * len(sets)
    weights = fit.pop(ranks.SET_WEIGHTS[library], None) or [None] * len(sets)
    whole = ranks.make_shard(X, y, sample_weight, sensitive_features, where="fit")
    held = [
        ranks.make_shard(X_i, y_i, weight, of_set, where=f"eval_set[{i}]").divide(n_processes)
        for i, ((X_i, y_i), weight, of_set) in enumerate(zip(sets, weights, columns, strict=True))
    ]
    shards = [
        replace(shard, evaluation=[parts[rank] for parts in held])
        for rank, shard in enumerate(whole.divide(n_processes))
    ]
    run_processes(ranks.train_rank, shards, plan)[0].hand_over_to(classifier)
    return classifier
