"""Peers: processes that train one model together, each with its own share of the queries.

Outside of such a training there are none, and a sum is what was given. Inside, `sum_over_peers`
returns the same total to all of them. All must call it the same number of times, in the same order.
"""

from __future__ import annotations

import hmac
import secrets
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from pairity._utils.typing import Array
from pairity.exceptions import TrainingError

_LENGTH = struct.Struct("<q")


@dataclass(eq=False)
class Peers:
    """A star of connections: the first adds up what all of them have, and tells the others.

    Parameters
    ----------
    rank : int, which of the peers this is
    size : int, how many there are
    links : list of sockets
        Of the first, one to each other in the order of their ranks; of any other, one to the first.
    n_threads : int, for the engine of this peer where its model does not say; 0 leaves it open
    network : dict, parameters with which the engine itself connects the peers
    """

    rank: int = 0
    size: int = 1
    links: list[socket.socket] = field(default_factory=list)
    n_threads: int = 0
    network: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def gather(cls, listening: socket.socket, key: bytes, size: int, timeout: float) -> Self:
        """The first peer, when all others have come; strangers without the key are sent away."""
        found: dict[int, socket.socket] = {}
        listening.settimeout(timeout)
        try:
            while len(found) < size - 1:
                link = listening.accept()[0]
                link.settimeout(timeout)
                challenge = secrets.token_bytes(32)
                link.sendall(challenge)
                rank, proof = _LENGTH.unpack(_read(link, 8))[0], _read(link, 32)
                if hmac.compare_digest(proof, hmac.digest(key, challenge, "sha256")):
                    found[rank] = link
                else:
                    link.close()
        except OSError as error:
            raise TrainingError(
                f"Only {len(found) + 1} of {size} workers met within {timeout:g} s ({error}). "
                "Check that workers can reach each other by TCP on any port."
            ) from error
        return cls(0, size, [_ready(found[rank]) for rank in sorted(found)])

    @classmethod
    def join(
        cls, address: tuple[str, int], key: bytes, rank: int, size: int, timeout: float
    ) -> Self:
        """Any other peer, connected to the first."""
        try:
            link = socket.create_connection(address, timeout=timeout)
            proof = hmac.digest(key, _read(link, 32), "sha256")
            link.sendall(_LENGTH.pack(rank) + proof)
        except OSError as error:
            raise TrainingError(
                f"The worker at {address[0]} cannot be reached on port {address[1]} ({error}). "
                "Check that workers can reach each other by TCP on any port."
            ) from error
        return cls(rank, size, [_ready(link)])

    def sum(self, values: ArrayLike) -> Array:
        """The sum of all peers' values, added in the order of their ranks."""
        own = np.array(values, dtype=np.float64)
        try:
            if self.rank:
                _send(self.links[0], own)
                return _receive(self.links[0], own.shape)
            for link in self.links:
                own += _receive(link, own.shape)
            for link in self.links:
                _send(link, own)
        except OSError as error:
            raise TrainingError(f"A worker was lost while its peers trained ({error}).") from error
        return own

    def close(self) -> None:
        """Leave; peers that still wait for this one are told by their systems."""
        for link in self.links:
            link.close()


_current: ContextVar[Peers | None] = ContextVar("pairity_peers", default=None)


@contextmanager
def training_with(peers: Peers) -> Iterator[None]:
    """Sums inside the block are those of all peers."""
    token = _current.set(peers)
    try:
        yield
    finally:
        _current.reset(token)
        peers.close()


def sum_over_peers(values: ArrayLike) -> Array:
    """These numbers, added up over all peers where there are any."""
    peers = _current.get()
    return np.asarray(values, dtype=np.float64) if peers is None else peers.sum(values)


def current_peers() -> Peers:
    """The peers of the training that is going on; one alone outside of any."""
    return _current.get() or Peers()


def _ready(link: socket.socket) -> socket.socket:
    """A link to wait on for as long as a tree may take elsewhere; a lost peer ends the wait."""
    link.settimeout(None)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return link


def _send(link: socket.socket, values: Array) -> None:
    link.sendall(_LENGTH.pack(values.nbytes) + values.tobytes())


def _receive(link: socket.socket, shape: tuple[int, ...]) -> Array:
    length = _LENGTH.unpack(_read(link, 8))[0]
    if length != 8 * int(np.prod(shape)):
        raise OSError(f"{length} bytes came where {8 * int(np.prod(shape))} were due")
    return np.frombuffer(bytearray(_read(link, length)), dtype=np.float64).reshape(shape)


def _read(link: socket.socket, length: int) -> bytes:
    parts = bytearray()
    while len(parts) < length:
        part = link.recv(length - len(parts))
        if not part:
            raise OSError("the connection was closed")
        parts += part
    return bytes(parts)
