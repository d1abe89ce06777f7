"""A star of TCP connections: rank 0 adds the tables of the other ranks, in their order."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from time import monotonic, sleep
from typing import Any, NamedTuple

import numpy as np

from gbm_constrained._typing import Float
from gbm_constrained.exceptions import MachineError

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
