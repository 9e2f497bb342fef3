"""Decides whether the server runs on this host; host metrics are shown only if that is proven.

This host's numbers beside another host's database would mislead, and a loopback address proves nothing: a tunnel, a
pooler or a container's published port has one too. The proof is our backend: a process with its pid exists here, and it
and its postmaster started when the server reports they did.

With hidepid on /proc that process is not visible. Then the proof is the other end of our TCP connection: it is a socket
of this host, the server sees our own port as its peer, so nothing is in between, and the socket belongs to the owner of
the data directory.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass

import psutil

from dba_console.watch.probes.host.file_systems import hidepid_option
from dba_console.watch.probes.host.kernel_files import tcp_connections

# The route of the connection: a unix socket, an address of this host, or another host, as the kernel reports it.


@dataclass(frozen=True, slots=True)
class SocketRoute:
    """`peer` is the address of the other end, None for a unix socket."""

    peer: str | None
    stays_here: bool
    """Unix socket, loopback, or an address of this host; also true for a tunnel or a container's published port."""
    own_port: int | None = None
    peer_port: int | None = None


def read_route(descriptor: int) -> SocketRoute:
    """Return the route of a connected socket; the descriptor stays open."""
    with socket.socket(fileno=os.dup(descriptor)) as connected:
        if connected.family == socket.AF_UNIX:
            return SocketRoute(None, True)
        (peer, peer_port, *_), (own, own_port, *_) = connected.getpeername(), connected.getsockname()
        # The kernel uses the destination as source only if the destination is an address of this host.
        return SocketRoute(peer, peer == own or _loopback(peer), own_port, peer_port)


def _loopback(address: str) -> bool:
    return address.startswith("127.") or address in ("::1", "::ffff:127.0.0.1")


_TOLERANCE_US = 2_500_000
"""/proc/stat has the boot time in whole seconds, and it shifts when the clock is set; process starts are in 1/100 s."""


@dataclass(frozen=True, slots=True)
class ServerEvidence:
    """What the server reports about itself. Times in microseconds since 1970 by its clock."""

    backend_pid: int
    backend_start_us: int | None
    postmaster_start_us: int | None
    data_directory: str | None
    client_port: int | None = None
    """Our port of the connection as the server sees it; None or -1 for a unix socket."""


@dataclass(frozen=True, slots=True)
class Locality:
    """`local`: True proven here, False proven elsewhere, None undecided. `note` says how it is known or what would
    help. `postmaster_pid` is set if it is proven."""

    local: bool | None
    note: str
    postmaster_pid: int | None = None


@dataclass(frozen=True, slots=True)
class _Process:
    pid: int
    parent: int
    start_us: int
    namespaces: int
    """Pid namespaces of the process, from ours down: 1 for a process outside any container."""


def prove_local(
    evidence: ServerEvidence,
    route: SocketRoute,
    *,
    through: str | None = None,
    configured: bool | None = None,
    proc: str = "/proc",
) -> Locality:
    """Decide from the server's evidence, the route, and this host's processes. Never raises."""
    if configured is False:
        return Locality(False, "host_panels = false in the configuration: host metrics are off")
    if not route.stays_here and configured is None:
        if through is not None:
            return Locality(None, f"connected through {through} on {route.peer}; where its server runs is not known")
        return Locality(False, f"the server is at {route.peer}, not on this host: run the console there to see it")
    found = _prove(evidence, route, proc)
    if found.local or configured is None:
        return found
    return Locality(True, "host_panels = true in the configuration; " + found.note)


def _prove(evidence: ServerEvidence, route: SocketRoute, proc: str) -> Locality:
    backend = _process(evidence.backend_pid, proc)
    hidden = hidepid_option(proc) if backend is None else None
    if hidden is not None:
        if _is_peer_socket_local(evidence, route, proc):
            return Locality(True, f"the server's end of the connection is a socket of this host ({proc}: {hidden})")
        return Locality(
            None,
            f"not proven to be this host: {proc} is mounted with {hidden}, so process {evidence.backend_pid} cannot be "
            "seen; set host_panels = true if it is, or run as root or as the server's user; a connection over "
            "127.0.0.1 by a member of pg_monitor also proves it",
        )
    if backend is None:
        return Locality(
            None,
            f"not proven to be this host: no process {evidence.backend_pid} is visible here, so the port may lead into "
            "a container or a tunnel; set host_panels = true if it is this host; root sees all processes",
        )
    postmaster = _process(backend.parent, proc)
    if postmaster is None or backend.namespaces > 1 or not _is_same_time(backend.start_us, evidence.backend_start_us):
        return Locality(
            None,
            f"not proven to be this host: process {evidence.backend_pid} here is not the server's, so the port leads "
            "into a container or a tunnel; set host_panels = true if it is this host",
        )
    if _is_same_time(postmaster.start_us, evidence.postmaster_start_us) or _runs_in_data_directory(
        postmaster.pid, evidence, proc
    ):
        return Locality(
            True, f"its backend {backend.pid} is a child of postmaster {postmaster.pid} here", postmaster.pid
        )
    return Locality(
        None,
        f"not proven to be this host: the parent of process {backend.pid} started at another time than the server; "
        "set host_panels = true if it is this host",
    )


def _is_same_time(ours_us: int, theirs_us: int | None) -> bool:
    return theirs_us is not None and abs(ours_us - theirs_us) <= _TOLERANCE_US


def _is_peer_socket_local(evidence: ServerEvidence, route: SocketRoute, proc: str) -> bool:
    """Check whether the server's end of our TCP connection is a socket of this host, owned by the server's user."""
    if route.own_port is None or route.own_port != evidence.client_port or evidence.data_directory is None:
        return False
    ports = (b"%04X" % (route.peer_port or 0), b"%04X" % route.own_port)
    try:
        owner = _owner(evidence.data_directory)
    except OSError:
        return False
    return any(one.uid == owner and (one.local[1], one.remote[1]) == ports for one in tcp_connections(proc))


def _owner(path: str) -> int:
    """Return the owner of a directory, or of its nearest ancestor that is accessible. Raises OSError."""
    try:
        return os.stat(path).st_uid
    except PermissionError:
        if path in ("", "/"):
            raise
        return _owner(os.path.dirname(path.rstrip("/")))


def _runs_in_data_directory(pid: int, evidence: ServerEvidence, proc: str) -> bool:
    """Check whether the postmaster's working directory is the data directory; holds also after a change of the
    clock."""
    try:
        return evidence.data_directory is not None and os.readlink(f"{proc}/{pid}/cwd") == os.path.realpath(
            evidence.data_directory
        )
    except OSError:
        return False


def _process(pid: int, proc: str) -> _Process | None:
    """Return a process of this host, None if it does not exist or is not visible."""
    try:
        process = psutil.Process(pid)
        with open(f"{proc}/{pid}/status", "rb") as file:
            names = next((line for line in file if line.startswith(b"NSpid:")), b"NSpid: 0")
        parent, start_us = process.ppid(), int(process.create_time() * 1e6)
    except (psutil.Error, OSError):
        return None
    return _Process(pid, parent, start_us, len(names.split()) - 1)
