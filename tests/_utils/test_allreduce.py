"""Sums over peers: all get the same total, a lost peer is noticed, strangers are refused."""

import socket
import threading

import numpy as np
import pytest

from pairity._utils.allreduce import Peers, current_peers, sum_over_peers, training_with
from pairity.exceptions import TrainingError


def run_peers(size, work, key=b"k" * 32):
    """Return what result of several peers returns, result on a thread."""
    server = socket.create_server(("127.0.0.1", 0))
    results = [None] * size

    def run(rank):
        if rank:
            peers = Peers.join(server.getsockname(), key, rank, size, 10.0)
        else:
            peers = Peers.listen(server, key, size, 10.0)
        try:
            with training_with(peers):
                results[rank] = work(rank)
        except TrainingError as error:
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20.0)
    server.close()
    return results


def test_all_peers_get_the_same_total():
    rng = np.random.default_rng(0)
    tables = rng.normal(size=(3, 2, 5))

    def sums(rank):
        return sum_over_peers(tables[rank]), sum_over_peers(float(rank)), current_peers().size

    results = run_peers(3, sums)
    for total, ranks, size in results:
        np.testing.assert_array_equal(total, tables[0] + tables[1] + tables[2])
        assert ranks == 3.0
        assert size == 3


def test_without_peers_a_sum_is_its_argument():
    assert sum_over_peers([1.0, 2.0]).tolist() == [1.0, 2.0]
    assert current_peers().size == 1


def test_a_lost_peer_is_noticed():
    results = run_peers(3, lambda rank: None if rank == 2 else sum_over_peers(1.0))
    assert all(isinstance(result, TrainingError) for result in results[:2])
    assert "lost" in str(results[0])


def test_different_shapes_are_refused():
    results = run_peers(2, lambda rank: sum_over_peers(np.zeros(2 + rank)))
    assert all(isinstance(result, TrainingError) for result in results)


def test_connections_without_the_key_are_refused():
    server = socket.create_server(("127.0.0.1", 0))
    results = []

    def gather():
        try:
            results.append(Peers.listen(server, b"right", 2, 1.0))
        except TrainingError as error:
            results.append(error)

    thread = threading.Thread(target=gather)
    thread.start()
    with socket.create_connection(server.getsockname()) as stranger:
        stranger.recv(32)
        stranger.sendall(bytes(40))
        assert stranger.recv(1) == b""
    thread.join(10.0)
    server.close()
    with pytest.raises(TrainingError, match="1 of 2 workers connected within 1 s"):
        raise results[0]


def test_an_address_without_a_peer():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = taken.getsockname()
    with pytest.raises(TrainingError, match="cannot be reached"):
        Peers.join(address, b"k", 1, 2, 1.0)
