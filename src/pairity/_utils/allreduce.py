"""Sums over peers: processes that train one model, each with a part of the queries.

In distributed training, `sum_over_peers` returns the same total to all peers. All must call it the
same number of times, in the same order. Otherwise it returns its argument.
"""

import hmac
import secrets
import socket
import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from pairity._utils.context import value_in_block
from pairity._utils.typing import Array
from pairity.exceptions import TrainingError

_LENGTH = struct.Struct("<q")
_REMEDY = "Let workers reach each other by TCP on any port."


@dataclass(eq=False)
class Peers:
    """Connected peers: the first adds up the values of all, and sends the total to the others.

    Parameters
    ----------
    rank : int, the number of this peer
    size : int, the number of peers
    links : list of sockets
        The first peer has one to each other peer in the order of their ranks; any other peer has
        one to the first.
    n_threads : int
        Threads of this peer's engine if the model does not set them; 0 leaves it to the engine.
    network : dict, parameters with which the engine itself connects the peers
    """

    rank: int = 0
    size: int = 1
    links: list[socket.socket] = field(default_factory=list)
    n_threads: int = 0
    network: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def listen(cls, listening: socket.socket, key: bytes, size: int, timeout: float) -> Self:
        """Accept the connections of all other peers, and refuse any without the key."""
        links: dict[int, socket.socket] = {}
        listening.settimeout(timeout)
        try:
            while len(links) < size - 1:
                link = listening.accept()[0]
                link.settimeout(timeout)
                challenge = secrets.token_bytes(32)
                link.sendall(challenge)
                rank, proof = _LENGTH.unpack(_read(link, 8))[0], _read(link, 32)
                if hmac.compare_digest(proof, hmac.digest(key, challenge, "sha256")):
                    links[rank] = link
                else:
                    link.close()
        except OSError as error:
            raise TrainingError(
                f"{len(links) + 1} of {size} workers connected within {timeout:g} s ({error}). "
                f"{_REMEDY}"
            ) from error
        return cls(0, size, [_configure(links[rank]) for rank in sorted(links)])

    @classmethod
    def join(
        cls, address: tuple[str, int], key: bytes, rank: int, size: int, timeout: float
    ) -> Self:
        """Connect to the first peer."""
        try:
            link = socket.create_connection(address, timeout=timeout)
            proof = hmac.digest(key, _read(link, 32), "sha256")
            link.sendall(_LENGTH.pack(rank) + proof)
        except OSError as error:
            raise TrainingError(
                f"The worker at {address[0]} cannot be reached on port {address[1]} ({error}). "
                f"{_REMEDY}"
            ) from error
        return cls(rank, size, [_configure(link)])

    def sum(self, values: ArrayLike) -> Array:
        """Return the sum of all peers' values, added in the order of their ranks."""
        total = np.array(values, dtype=np.float64)
        try:
            if self.rank:
                _send(self.links[0], total)
                return _receive(self.links[0], total.shape)
            for link in self.links:
                total += _receive(link, total.shape)
            for link in self.links:
                _send(link, total)
        except OSError as error:
            raise TrainingError(f"A worker was lost during training ({error}).") from error
        return total

    def close(self) -> None:
        """Close the connections, which ends the wait of peers for this one."""
        for link in self.links:
            link.close()


_current: ContextVar[Peers | None] = ContextVar("pairity_peers", default=None)


@contextmanager
def training_with(peers: Peers) -> Iterator[None]:
    """Let sums inside the block be those of all peers."""
    with closing(peers), value_in_block(_current, peers):
        yield


def sum_over_peers(values: ArrayLike) -> Array:
    """Return the sum of these numbers over all peers, in the shape of the argument."""
    peers = _current.get()
    return np.asarray(values, dtype=np.float64) if peers is None else peers.sum(values)


def current_peers() -> Peers:
    """Return the peers of the current training; a single one outside of distributed training."""
    return _current.get() or Peers()


def _configure(link: socket.socket) -> socket.socket:
    """Let a link wait without limit, because a tree may take long, unless the peer is lost."""
    link.settimeout(None)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return link


def _send(link: socket.socket, values: Array) -> None:
    link.sendall(_LENGTH.pack(values.nbytes) + values.tobytes())


def _receive(link: socket.socket, shape: tuple[int, ...]) -> Array:
    length = _LENGTH.unpack(_read(link, 8))[0]
    expected = 8 * int(np.prod(shape))
    if length != expected:
        raise OSError(f"received {length} bytes instead of {expected}")
    return np.frombuffer(bytearray(_read(link, length)), dtype=np.float64).reshape(shape)


def _read(link: socket.socket, length: int) -> bytes:
    parts = bytearray()
    while len(parts) < length:
        part = link.recv(length - len(parts))
        if not part:
            raise OSError("the connection was closed")
        parts += part
    return bytes(parts)
