"""Networks of processes: how each of them joins those of its library."""

from __future__ import annotations

import random
import secrets
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol

from gbm_constrained.data.communicator import Communicator
from gbm_constrained.distributed.sockets import TCPStar, accept_peers, connect_to_peer

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

        from gbm_constrained.distributed.collective import CollectiveCommunicator

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
