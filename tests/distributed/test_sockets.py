"""A star of connections when a rank is missing, slow, lost, a stranger or out of step."""

import socket
import time
from multiprocessing import AuthenticationError

import numpy as np
import pytest
from networks import KEY, in_threads, listen, outcomes_on_star

from gbm_constrained.distributed.networks import TCPStar, accept_peers, connect_to_peer
from gbm_constrained.exceptions import MachineError

HOST = socket.gethostname()


def test_a_lost_rank_is_named_on_all_others():
    def work(star):
        if star.rank != 2:  # Rank 2 leaves at once.
            star.sum(np.ones(2))

    outcomes = outcomes_on_star(work, 4)
    assert outcomes[2] is None
    for rank in (0, 1, 3):
        assert isinstance(outcomes[rank], MachineError)
        assert str(outcomes[rank]) == f"rank 2 of 4 ({HOST}): closed its connection"


def test_the_loss_of_rank_0_is_seen_by_all():
    def work(star):
        if star.rank:
            star.sum(np.ones(2))

    for outcome in outcomes_on_star(work, 3)[1:]:
        assert str(outcome) == f"rank 0 of 3 ({HOST}): closed its connection"


def test_a_slow_rank_is_waited_for_until_the_time_limit():
    def work(star):
        if star.rank == 1:
            time.sleep(1.5)
        return star.sum(np.ones(2))

    start = time.monotonic()
    first, _ = outcomes_on_star(work, 2, limit=0.5)
    assert time.monotonic() - start < 5
    assert str(first) == f"rank 1 of 2 ({HOST}): did not answer within the time limit"
    first, second = outcomes_on_star(work, 2, limit=10)
    np.testing.assert_array_equal(first, [2, 2])
    np.testing.assert_array_equal(second, [2, 2])


@pytest.mark.parametrize(
    "act", [lambda star: star.sum(np.ones(3)), lambda star: star.gather(1)], ids=["shape", "call"]
)
@pytest.mark.parametrize("odd", [0, 1, 2])
def test_ranks_that_do_different_things_are_told_so(odd, act):
    def work(star):
        return act(star) if star.rank == odd else star.sum(np.ones(2))

    named = odd or 1  # All are compared with rank 0.
    for outcome in outcomes_on_star(work, 3):
        assert isinstance(outcome, MachineError)
        assert str(outcome).startswith(f"rank {named} of 3 ({HOST}): is out of step with rank 0")


def test_missing_ranks_are_named():
    server = listen()
    address = server.getsockname()

    def work(rank):
        if rank == 0:
            return accept_peers(server, 4, KEY, 1.0)
        return connect_to_peer(address, 2, KEY, 10)

    first, second = in_threads(work, 2)
    assert isinstance(first, TimeoutError)
    assert "was not called by rank 1, 3 within 1 s" in str(first)
    second[0].connection.close()


def test_a_rank_may_call_before_rank_0_listens():
    server = listen()
    address = server.getsockname()
    server.close()

    def work(rank):
        if rank:
            return connect_to_peer(address, 1, KEY, 10)
        time.sleep(0.3)
        return accept_peers(socket.create_server(address), 2, KEY, 10)

    first, second = in_threads(work, 2)
    with TCPStar(0, 2, first), TCPStar(1, 2, second):
        assert first[1].host == second[0].host == HOST


def test_rank_0_that_never_listens_is_an_error():
    server = listen()
    address = server.getsockname()
    server.close()
    with pytest.raises(ConnectionRefusedError):
        connect_to_peer(address, 1, KEY, 0.2)


def test_strangers_are_turned_away_and_ranks_are_not():
    server = listen()
    address = server.getsockname()

    def work(rank):
        if rank == 0:
            return accept_peers(server, 2, KEY, 10)
        with (
            socket.create_connection(address) as silent,
            socket.create_connection(address) as rude,
        ):
            rude.sendall(b"GET / HTTP/1.1\r\n\r\n" * 20)
            with pytest.raises(AuthenticationError):
                connect_to_peer(address, 1, b"another key", 10)
            assert silent.recv(100)  # It was asked who it is.
            return connect_to_peer(address, 1, KEY, 10)

    first, second = in_threads(work, 2)
    with TCPStar(0, 2, first) as zero, TCPStar(1, 2, second) as one:
        found = in_threads(lambda rank: (zero, one)[rank].gather(rank), 2)
    assert found == [[0, 1], [0, 1]]


def test_the_star_listens_on_the_given_address_alone():
    with listen() as server:
        port = server.getsockname()[1]
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", port), timeout=5)
