"""Peers add up: the same total to all, whoever is lost is noticed, strangers are sent away."""

import socket
import threading

import numpy as np
import pytest

from pairity._utils.allreduce import Peers, current_peers, sum_over_peers, training_with
from pairity.exceptions import TrainingError


def together(size, work, key=b"k" * 32):
    """What each of several peers returns, on threads."""
    door = socket.create_server(("127.0.0.1", 0))
    found = [None] * size

    def run(rank):
        if rank:
            peers = Peers.join(door.getsockname(), key, rank, size, 10.0)
        else:
            peers = Peers.gather(door, key, size, 10.0)
        try:
            with training_with(peers):
                found[rank] = work(rank)
        except TrainingError as error:
            found[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20.0)
    door.close()
    return found


def test_everybody_gets_the_same_total():
    rng = np.random.default_rng(0)
    tables = rng.normal(size=(3, 2, 5))

    def sums(rank):
        return sum_over_peers(tables[rank]), sum_over_peers(float(rank)), current_peers().size

    found = together(3, sums)
    for total, ranks, size in found:
        np.testing.assert_array_equal(total, tables[0] + tables[1] + tables[2])
        assert ranks == 3.0
        assert size == 3


def test_alone_a_sum_is_what_was_given():
    assert sum_over_peers([1.0, 2.0]).tolist() == [1.0, 2.0]
    assert current_peers().size == 1


def test_who_is_lost_is_noticed():
    found = together(3, lambda rank: None if rank == 2 else sum_over_peers(1.0))
    assert all(isinstance(each, TrainingError) for each in found[:2])
    assert "lost" in str(found[0])


def test_other_shapes_are_no_sum():
    found = together(2, lambda rank: sum_over_peers(np.zeros(2 + rank)))
    assert all(isinstance(each, TrainingError) for each in found)


def test_strangers_are_sent_away():
    door = socket.create_server(("127.0.0.1", 0))
    found = []

    def gather():
        try:
            found.append(Peers.gather(door, b"right", 2, 1.0))
        except TrainingError as error:
            found.append(error)

    thread = threading.Thread(target=gather)
    thread.start()
    with socket.create_connection(door.getsockname()) as stranger:
        stranger.recv(32)
        stranger.sendall(bytes(40))
        assert stranger.recv(1) == b""
    thread.join(10.0)
    door.close()
    with pytest.raises(TrainingError, match="1 of 2 workers connected within 1 s"):
        raise found[0]


def test_nobody_there():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = taken.getsockname()
    with pytest.raises(TrainingError, match="cannot be reached"):
        Peers.join(address, b"k", 1, 2, 1.0)
