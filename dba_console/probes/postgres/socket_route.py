"""The way our bytes go: a unix socket, this host's own address, or another host. The kernel knows."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SocketRoute:
    """`peer` is the address at the other end, None for a unix socket."""

    peer: str | None
    stays_here: bool
    """The other end is a unix socket, loopback, or an address of this host. A tunnel or a container's published port
    looks the same."""
    own_port: int | None = None
    peer_port: int | None = None


def read_route(descriptor: int) -> SocketRoute:
    """The route of a connected socket; the descriptor stays open."""
    with socket.socket(fileno=os.dup(descriptor)) as connected:
        if connected.family == socket.AF_UNIX:
            return SocketRoute(None, True)
        (peer, peer_port, *_), (own, own_port, *_) = connected.getpeername(), connected.getsockname()
        # The kernel takes the destination as source only when the destination is an address of its own.
        return SocketRoute(peer, peer == own or _loopback(peer), own_port, peer_port)


def _loopback(address: str) -> bool:
    return address.startswith("127.") or address in ("::1", "::ffff:127.0.0.1")
