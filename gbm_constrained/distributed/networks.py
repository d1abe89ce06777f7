"""Networks of processes: how each of them adds its tables to those of the others.

A rank that fails breaks the sums of all others. An engine would report any of these errors, and
run the work again. So a rank returns its failure as a value, and the driver raises the one that
was first.
"""

from __future__ import annotations

import os
import pickle
import random
import secrets
import socket
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from time import monotonic, perf_counter, sleep
from typing import Any, NamedTuple, Protocol

import numpy as np
from xgboost import collective

from gbm_constrained._typing import Float
from gbm_constrained.data.exact_sums import Communicator
from gbm_constrained.distributed.ranks import Plan, RankResult, Shard, describe_failure
from gbm_constrained.exceptions import MachineError


class CollectiveCommunicator:
    """A communicator over ``xgboost.collective``, inside its ``CommunicatorContext``.

    The context belongs to the thread that has entered it, and so does this object.

    Attributes
    ----------
    rank : int
        Number of this machine, from zero on.
    size : int
        Number of machines.
    holds_all_rows : bool
        False, also where one machine takes part.
    """

    holds_all_rows = False

    def __init__(self) -> None:
        self.rank: int = collective.get_rank()
        self.size: int = collective.get_world_size()

    def sum(self, table: Float) -> Float:
        """Add the tables of all machines; each machine is given the same bits.

        Parameters
        ----------
        table : ndarray of float
            Table of this machine, of the same shape on all.
        """
        return np.asarray(self._reduce(np.asarray(table)).reshape(table.shape))

    def gather(self, value: Any) -> list[Any]:
        """Collect a small value of each machine, by rank, in two reductions of any size.

        Parameters
        ----------
        value : any
            Value of this machine, which is pickled.
        """
        content = np.frombuffer(pickle.dumps(value), dtype=np.uint8)
        lengths = np.zeros(self.size, dtype=np.int64)
        lengths[self.rank] = content.size
        ends = np.cumsum(self._reduce(lengths))
        starts = np.concatenate(([0], ends[:-1]))
        packed = np.zeros(ends[-1], dtype=np.uint8)  # Each machine fills its own part.
        packed[starts[self.rank] : ends[self.rank]] = content
        packed = self._reduce(packed)
        return [
            pickle.loads(packed[start:end].tobytes())
            for start, end in zip(starts, ends, strict=True)
        ]

    @staticmethod
    def _reduce(table: Any) -> Any:
        return collective.allreduce(table, collective.Op.SUM)


class MeasuredCommunicator:
    """A communicator that counts what this machine sends through another one.

    Parameters
    ----------
    communicator : Communicator
        Does the work.
    barrier : bool, default=False
        Whether machines wait for each other before the clock starts, so that ``seconds`` leaves
        out the time in which this machine waits for a slower one. The barriers are not counted.

    Attributes
    ----------
    n_calls : int
        Number of sums and of collected values.
    n_bytes : int
        Bytes of the tables and of the pickled values that this machine has handed over.
    seconds : float
        Time in these calls.
    """

    def __init__(self, communicator: Communicator, *, barrier: bool = False) -> None:
        self.rank = communicator.rank
        self.size = communicator.size
        self.holds_all_rows = communicator.holds_all_rows
        self.n_calls, self.n_bytes, self.seconds = 0, 0, 0.0
        self._communicator, self._barrier = communicator, barrier

    def sum(self, table: Float) -> Float:
        """Add the tables of all machines."""
        start = self._begin(table.nbytes)
        total = self._communicator.sum(table)
        self.seconds += perf_counter() - start
        return total

    def gather(self, value: Any) -> list[Any]:
        """Collect a small value of each machine, by rank."""
        start = self._begin(len(pickle.dumps(value)))
        values = self._communicator.gather(value)
        self.seconds += perf_counter() - start
        return values

    def _begin(self, n_bytes: int) -> float:
        """Count a call, and start the clock."""
        self.n_calls += 1
        self.n_bytes += n_bytes
        if self._barrier:
            self._communicator.sum(np.zeros(1))
        return perf_counter()


HANDSHAKE_LIMIT = (
    3.0  # Seconds that rank 0 gives a caller, who may be a stranger, to say its name.
)
RETRY_AFTER = 0.05  # Seconds between two attempts to reach a rank 0 that does not listen yet.


class Peer(NamedTuple):
    """Another rank: its connection, and the name of its host."""

    connection: Connection
    host: str


class TCPStar:
    """A communicator over TCP connections between rank 0 and every other rank.

    Tables travel as their bytes with their type and shape. They are added in the order of ranks.

    Parameters
    ----------
    rank : int
        Number of this machine, from zero on.
    size : int
        Number of machines.
    peers : dict of int to Peer
        All other ranks on rank 0 (`accept_peers`), and rank 0 on all others (`connect_to_peer`).
        A wait for a peer ends with the time limit of its connection.

    Attributes
    ----------
    holds_all_rows : bool
        False, also where one machine takes part.
    """

    holds_all_rows = False

    def __init__(self, rank: int, size: int, peers: dict[int, Peer]) -> None:
        self.rank, self.size = rank, size
        self._peers = peers

    def __enter__(self) -> TCPStar:
        return self

    def __exit__(self, *reason: object) -> None:
        for peer in self._peers.values():
            peer.connection.close()

    def sum(self, table: Float) -> Float:
        """Add the tables of all machines; each machine is given the same bits.

        Raises
        ------
        MachineError
            If another rank has closed its connection, is too slow, or does something else.
        """
        return np.asarray(self._exchange(np.asarray(table), self._add))

    def gather(self, value: Any) -> list[Any]:
        """Collect a small value of each machine, by rank; raises as `sum` does."""
        return list(self._exchange([value], self._list))

    def _exchange(self, value: Any, unite: Callable[[list[Any]], Any]) -> Any:
        """Unite the values of all ranks on rank 0, and send the result to each of them."""
        if self.rank:
            self._send(0, value)
            result = self._receive(0)
            if isinstance(result, MachineError):
                raise result
            return result
        others = sorted(self._peers)
        try:
            result = unite([value, *(self._receive(rank) for rank in others)])
        except MachineError as error:  # The others learn which rank was lost.
            for rank in others:
                with suppress(MachineError):
                    self._send(rank, error)
            raise
        for rank in others:
            self._send(rank, result)
        return result

    def _add(self, tables: list[Any]) -> Any:
        for rank, table in enumerate(tables):
            if np.shape(table) != np.shape(tables[0]) or not isinstance(table, np.ndarray):
                raise self._out_of_step(rank)
        return sum(tables[1:], start=tables[0].copy())

    def _list(self, values: list[Any]) -> Any:
        for rank, value in enumerate(values):
            if not isinstance(value, list):
                raise self._out_of_step(rank)
        return [value for (value,) in values]

    def _out_of_step(self, rank: int) -> MachineError:
        reason = (
            "is out of step with rank 0: all ranks add tables of the same shape, and collect "
            "values, in the same order"
        )
        return MachineError(rank, self.size, self._peers[rank].host, reason)

    def _send(self, rank: int, value: Any) -> None:
        try:
            self._peers[rank].connection.send(value)
        except OSError as error:
            raise self._lost(rank, error) from error

    def _receive(self, rank: int) -> Any:
        try:
            return self._peers[rank].connection.recv()
        except (EOFError, OSError) as error:
            raise self._lost(rank, error) from error

    def _lost(self, rank: int, error: Exception) -> MachineError:
        late = isinstance(error, BlockingIOError | TimeoutError)
        reason = "did not answer within the time limit" if late else "closed its connection"
        return MachineError(rank, self.size, self._peers[rank].host, reason)


def accept_peers(
    server: socket.socket, size: int, key: bytes, time_limit: float
) -> dict[int, Peer]:
    """Accept a connection of every other rank, on rank 0.

    Callers that do not know the key, or that do not speak in time, are turned away.

    Parameters
    ----------
    server : socket
        Listens on an address that the other ranks can reach, and on no other. It is closed here.
    size : int
        Number of ranks, this one among them.
    key : bytes
        Secret of all ranks, by which each proves that it is one (HMAC).
    time_limit : float
        Seconds until all must have called, and that each later wait may take.

    Returns
    -------
    dict of int to Peer
        Connections by rank.

    Raises
    ------
    TimeoutError
        If a rank does not call in time; names those that are missing.
    """
    peers: dict[int, Peer] = {}
    end = monotonic() + time_limit
    with server:
        while len(peers) < size - 1:
            server.settimeout(max(end - monotonic(), 1e-3))
            try:
                caller, _ = server.accept()
            except TimeoutError:
                missing = ", ".join(str(rank) for rank in range(1, size) if rank not in peers)
                raise TimeoutError(
                    f"Rank 0 was not called by rank {missing} within {time_limit:g} s: check that "
                    "these machines have started and can reach its address"
                ) from None
            with suppress(AuthenticationError, EOFError, OSError):
                rank, peer = _welcome(caller, key, time_limit)
                peers[rank] = peer
    return peers


def _welcome(caller: socket.socket, key: bytes, time_limit: float) -> tuple[int, Peer]:
    """Let a caller prove that it is a rank, and exchange names with it."""
    _limit_waits(caller, min(HANDSHAKE_LIMIT, time_limit))
    with caller.dup() as options:
        connection = Connection(caller.detach())
        try:
            deliver_challenge(connection, key)
            answer_challenge(connection, key)
            rank, host = connection.recv()
            connection.send(socket.gethostname())
        except (AuthenticationError, EOFError, OSError):
            connection.close()
            raise
        _limit_waits(options, time_limit)
    return rank, Peer(connection, host)


def connect_to_peer(
    address: tuple[str, int], rank: int, key: bytes, time_limit: float
) -> dict[int, Peer]:
    """Connect to rank 0, from another rank.

    Parameters
    ----------
    address : tuple of str and int
        Host and port on which rank 0 listens, now or soon.
    rank : int
        Number of this machine.
    key : bytes
        Secret of all ranks.
    time_limit : float
        Seconds until rank 0 must have answered, and that each later wait may take.

    Returns
    -------
    dict of int to Peer
        The connection of rank 0.

    Raises
    ------
    ConnectionError, TimeoutError
        If rank 0 is not there in time.
    AuthenticationError
        If the keys differ.
    """
    end = monotonic() + time_limit
    while True:
        try:
            link = socket.create_connection(address, timeout=max(end - monotonic(), 1e-3))
            break
        except ConnectionRefusedError:
            if monotonic() > end:
                raise
            sleep(RETRY_AFTER)
    link.settimeout(None)
    _limit_waits(link, time_limit)
    connection = Connection(link.detach())
    answer_challenge(connection, key)
    deliver_challenge(connection, key)
    connection.send((rank, socket.gethostname()))
    return {0: Peer(connection, connection.recv())}


def _limit_waits(link: socket.socket, seconds: float) -> None:
    """Let the operating system end each wait for this connection."""
    if os.name == "nt":
        limit = struct.pack("L", int(seconds * 1000))
    else:
        limit = struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


LOOPBACK = "127.0.0.1"
PORTS = range(12_400, 32_000)  # From LightGBM's own default on, below those of connections.


class Seat(Protocol):
    """The place of one process in a network, which is handed to it when it starts.

    Attributes
    ----------
    rank : int
        Number of the process, from zero on.
    size : int
        Number of processes.
    """

    rank: int
    size: int

    def echoes(self) -> tuple[type[Exception], ...]:
        """List the errors of the library that the end of another process may cause."""

    @contextmanager
    def join(self) -> Iterator[tuple[Communicator, dict[str, Any]]]:
        """Connect; gives the communicator, and native parameters that training needs."""


@dataclass(frozen=True)
class XGBoostSeat:
    """A place in the network of XGBoost, over which tables of the package travel too."""

    rank: int
    size: int
    tracker: dict[str, Any]
    time_limit: float

    def echoes(self) -> tuple[type[Exception], ...]:
        """List the error of XGBoost."""
        from xgboost.core import XGBoostError

        return (XGBoostError,)

    @contextmanager
    def join(self) -> Iterator[tuple[Communicator, dict[str, Any]]]:
        """Enter the communicator of XGBoost, which needs no native parameters."""
        from xgboost.collective import CommunicatorContext

        with CommunicatorContext(
            **self.tracker, dmlc_task_id=f"{self.rank:09d}", dmlc_timeout=round(self.time_limit)
        ):
            yield CollectiveCommunicator(), {}


@dataclass(frozen=True)
class LightGBMSeat:
    """A place in the network of LightGBM, and one in a star: its network adds no tables for us."""

    rank: int
    size: int
    ports: tuple[int, ...]
    star: socket.socket | tuple[str, int]
    key: bytes
    time_limit: float

    def echoes(self) -> tuple[type[Exception], ...]:
        """List the error of LightGBM."""
        from lightgbm.basic import LightGBMError

        return (LightGBMError,)

    @contextmanager
    def join(self) -> Iterator[tuple[Communicator, dict[str, Any]]]:
        """Connect the star; LightGBM connects its own network when training starts."""
        if isinstance(self.star, tuple):
            peers = connect_to_peer(self.star, self.rank, self.key, self.time_limit)
        else:
            peers = accept_peers(self.star, self.size, self.key, self.time_limit)
        addresses = [(LOOPBACK, port) for port in self.ports]
        with TCPStar(self.rank, self.size, peers) as star:
            yield star, lightgbm_networks(addresses, self.time_limit)[self.rank]


def find_free_ports(host: str, n: int) -> tuple[int, ...]:
    """Find ports on which LightGBM can listen a moment later.

    LightGBM ends its process if a port is taken. Ports that systems give to outgoing connections
    are left out, since one of them may be taken at any time.
    """
    found: list[int] = []
    with ExitStack() as held:
        for port in random.SystemRandom().sample(PORTS, len(PORTS)):
            if len(found) == n:
                break
            with suppress(OSError):  # It is taken.
                held.enter_context(socket.create_server((host, port)))
                found.append(port)
    return tuple(found)


@contextmanager
def xgboost_network(
    size: int, time_limit: float, host: str = LOOPBACK
) -> Iterator[list[XGBoostSeat]]:
    """Run XGBoost's tracker, by which processes find each other, at an address of this host."""
    from xgboost.core import XGBoostError
    from xgboost.tracker import RabitTracker

    tracker = RabitTracker(size, host, sortby="task", timeout=round(time_limit))
    tracker.start()
    address = tracker.worker_args()
    try:
        yield [XGBoostSeat(rank, size, address, time_limit) for rank in range(size)]
    finally:
        with suppress(XGBoostError):  # The tracker complains of processes that were killed.
            tracker.free()


def lightgbm_networks(
    addresses: Sequence[tuple[str, int]], time_limit: float
) -> list[dict[str, Any]]:
    """List the parameters of each rank by which LightGBM finds the others; none for one rank.

    Parameters
    ----------
    addresses : sequence of (str, int)
        Host and free port of each rank.
    time_limit : float
        Seconds that a rank waits for the others.
    """
    if len(addresses) == 1:
        return [{}]
    shared = {
        "machines": ",".join(f"{host}:{port}" for host, port in addresses),
        "num_machines": len(addresses),
        "time_out": max(1, round(time_limit / 60)),  # In minutes.
    }
    return [{**shared, "local_listen_port": port} for _, port in addresses]


@contextmanager
def lightgbm_network(size: int, time_limit: float) -> Iterator[list[LightGBMSeat]]:
    """Choose free ports for LightGBM, and listen for the star of rank 0."""
    ports = find_free_ports(LOOPBACK, size)
    key = secrets.token_bytes(32)
    with socket.create_server((LOOPBACK, 0), backlog=size) as server:
        places: list[Any] = [server] + [server.getsockname()] * (size - 1)
        yield [
            LightGBMSeat(rank, size, ports, place, key, time_limit)
            for rank, place in enumerate(places)
        ]


NETWORKS: dict[str, Callable[[int, float], Any]] = {
    "xgboost": xgboost_network,
    "lightgbm": lightgbm_network,
}


RankFunction = Callable[[Shard, Plan, Communicator], RankResult]
"""Trains on the rows of one machine."""

TIME_LIMIT = 600.0  # Seconds that a rank waits for the others before it fails.


@dataclass(frozen=True)
class Outcome:
    """What a rank brings back: its result, or why it has none.

    Parameters
    ----------
    result : RankResult, default=None
        Result of a rank that did not fail.
    failure : MachineError, default=None
        What went wrong on the rank.
    is_echo : bool, default=False
        Whether the failure may only be that of another rank, which broke a sum.
    """

    result: RankResult | None = None
    failure: MachineError | None = None
    is_echo: bool = False

    @property
    def has_failed_first(self) -> bool:
        """Whether the rank has failed by itself."""
        return self.failure is not None and not self.is_echo


@dataclass(frozen=True)
class RankTask:
    """Task of an engine that trains on the rows of one machine.

    Parameters
    ----------
    seat : XGBoostSeat
        Place in the network over which tables are added, also those of LightGBM's machines.
    plan : Plan
        The same for all ranks.
    function : callable
        Trains on the rows.
    network : mapping
        Parameters by which LightGBM finds the other machines; empty for XGBoost.
    """

    seat: XGBoostSeat
    plan: Plan
    function: RankFunction
    network: Mapping[str, Any]

    def run(self, read: Callable[[], Shard], n_jobs: int) -> Outcome:
        """Train on the rows that a function reads.

        `n_jobs` are the threads that the engine has for the task, used where the plan names none.
        """
        params = {**self.plan.params, "n_jobs": self.plan.params.get("n_jobs") or n_jobs}
        plan = replace(self.plan, params=params, network=self.network)
        try:
            with self.seat.join() as (communicator, _):
                return Outcome(self.function(read(), plan, communicator))
        except Exception as error:
            failure = describe_failure(error, self.seat.rank, self.seat.size)
            return Outcome(failure=failure, is_echo=isinstance(error, self._echoes()))

    def _echoes(self) -> tuple[type[Exception], ...]:
        """List the errors that the end of another rank may cause."""
        if not self.network:
            return self.seat.echoes()
        from lightgbm.basic import LightGBMError

        return (*self.seat.echoes(), LightGBMError)


def result_of(outcomes: Sequence[Outcome]) -> RankResult:
    """Return the result of the first rank.

    Raises
    ------
    MachineError
        The failure of a rank, of one that failed by itself if there is one.
    """
    for outcome in sorted(outcomes, key=lambda outcome: outcome.is_echo):
        if outcome.failure is not None:
            raise outcome.failure
    result = outcomes[0].result
    assert result is not None
    return result
