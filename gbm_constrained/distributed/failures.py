"""Failures of ranks: what one rank runs into is what every rank, and the user, is told."""

from __future__ import annotations

import socket
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from time import monotonic
from typing import Any, NamedTuple

from gbm_constrained.exceptions import MachineError

PATIENCE = 3.0  # Seconds in which a failed rank is heard of before its echo counts as a failure.


@dataclass(frozen=True, eq=False)
class FailureLine:
    """The line of a rank to whoever passes failures on: `collect_outcomes`.

    A rank that fails leaves the others in the middle of a sum, which then fails on them too. What
    they see is an echo that does not say why. So a rank waits a little before it reports an
    error that may be one.

    Parameters
    ----------
    connection : Connection
        Leads to `collect_outcomes`.
    rank : int
        Number of this rank, from zero on.
    size : int
        Number of ranks.
    echoes : tuple of type, default=()
        Errors of the library whose communicator a failed rank breaks. `MachineError` is one too.
    """

    connection: Connection
    rank: int
    size: int
    echoes: tuple[type[Exception], ...] = ()

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Turn what goes wrong into the error that all ranks raise.

        The block must lie inside those that close the communicators, so that the failure is
        reported before the other ranks see an echo of it.

        Raises
        ------
        MachineError
            In place of any other exception.
        """
        try:
            yield
        except Exception as error:
            may_echo = isinstance(error, (MachineError, *self.echoes))
            failure = self._hear() if may_echo else None
            if failure is None:
                failure = describe_failure(error, self.rank, self.size)
            self.report(failure)
            if failure is error:
                raise
            raise failure from error

    def report(self, outcome: Any) -> None:
        """Send the result of this rank, or its failure."""
        self.connection.send(outcome)

    def _hear(self) -> MachineError | None:
        """Wait for the failure of another rank."""
        with suppress(EOFError, OSError):
            if self.connection.poll(PATIENCE):
                failure: MachineError = self.connection.recv()
                return failure
        return None


def describe_failure(error: Exception, rank: int, size: int) -> MachineError:
    """Say on which rank an error was raised; the traceback is a note of the result."""
    if isinstance(error, MachineError):
        return error
    failure = MachineError(rank, size, socket.gethostname(), f"{type(error).__name__}: {error}")
    failure.add_note("".join(traceback.format_exception(error)))
    return failure


class Outcomes(NamedTuple):
    """What became of the ranks.

    Attributes
    ----------
    by_rank : list
        The result of each rank, or the `MachineError` that it has raised.
    failure : MachineError or None
        The first failure.
    """

    by_rank: list[Any]
    failure: MachineError | None


def collect_outcomes(
    connections: list[Connection], describe_loss: Callable[[int], MachineError]
) -> Outcomes:
    """Wait for the result or the failure of each rank, and tell all ranks of the first failure.

    Parameters
    ----------
    connections : list of Connection
        Other ends of the lines of all ranks, by rank.
    describe_loss : callable
        Called with the number of a rank that has gone without a word.

    Returns
    -------
    Outcomes
        Results and failures. A rank from which nothing is heard within twice the patience after
        the first failure has this failure, and is named in a note of it.
    """
    outcomes: dict[int, Any] = {}
    failure: MachineError | None = None
    end = None
    silent = dict(zip(connections, range(len(connections)), strict=True))
    while silent and (end is None or monotonic() < end):
        ready: list[Any] = wait(list(silent), None if end is None else end - monotonic())
        for connection in ready:
            rank = silent.pop(connection)
            try:
                outcomes[rank] = connection.recv()
            except (EOFError, OSError):
                outcomes[rank] = describe_loss(rank)
            if failure is None and isinstance(outcomes[rank], MachineError):
                failure, end = outcomes[rank], monotonic() + 2 * PATIENCE
                for other in silent:
                    with suppress(OSError):
                        other.send(failure)
    if failure is not None and silent:
        missing = ", ".join(str(rank) for rank in silent.values())
        failure.add_note(f"No answer from rank {missing}: it hangs, or its library waits.")
    return Outcomes([outcomes.get(rank, failure) for rank in range(len(connections))], failure)
