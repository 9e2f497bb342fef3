"""What a server must prove before it gets a password: as much as the last time this process was connected to it.

The program that holds the port or the socket of a server that has ended gets every automatic reconnect. Unless the
connection string chooses (require_auth, requirepeer, sslmode), the strongest authentication is tried first, a cleartext
password is sent only over TLS that was asked for or over a socket whose owner was checked, and a reconnect requires
what the last connection had: method, TLS, owner of the socket.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from dba_console.core.sanitize import clean
from dba_console.core.users import user_name
from dba_console.watch.probes.postgres.connect_errors import ConnectFailed

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn

_METHODS = {"gss": "gss,sspi", "scram": "scram-sha-256", "md5": "md5,scram-sha-256", "password": ""}
"""Method of the last connection -> what `require_auth` accepts now: it, and what is stronger. Strongest first."""
_FIRST = (("scram", "none,gss,sspi,scram-sha-256"), ("md5", "none,gss,sspi,scram-sha-256,md5"))
"""Method and `require_auth`, tried in this order as long as nothing is known: `none` is peer, trust, a certificate."""
_TLS = ("require", "verify-ca", "verify-full")
_USUAL_OWNER = "postgres"
"""Owner of a server's socket in a directory that every user can write, like /tmp."""


@dataclass(frozen=True, slots=True)
class ServerProof:
    """What the server proved at the last connection."""

    method: str | None = None
    tls: bool = False
    socket_owner: int | None = None


_proofs: dict[tuple[str, ...], ServerProof] = {}
_lock = threading.Lock()


def last_proof(given: Mapping[str, str]) -> ServerProof:
    """Return what the server at an address proved to this process."""
    with _lock:
        return _proofs.get(_key(given), ServerProof())


def forget(given: Mapping[str, str]) -> None:
    """Require nothing of the last connection: for one that stands for clients, who would not either."""
    with _lock:
        _proofs.pop(_key(given), None)


def requirements(given: Mapping[str, str], defaults: Mapping[str, str]) -> Iterator[tuple[str | None, dict[str, str]]]:
    """Yield the method that is assumed if a password is used, and the options to connect with; the strongest first.

    `defaults` are libpq's, from environment and service.
    """
    proof, options = last_proof(given), {**defaults, **given}
    tls = {"sslmode": "require"} if proof.tls and options.get("sslmode") not in _TLS else {}
    if {"require_auth", "oauth_issuer"} & options.keys() or not _knows_require_auth():
        yield None, tls
    elif proof.method is not None and proof.method != "password":
        yield proof.method, {**tls, "require_auth": _METHODS[proof.method]}
    else:
        yield from ((method, {**tls, "require_auth": accepted}) for method, accepted in _FIRST)
        if options.get("sslmode") in _TLS or proof.tls or options.get("host", "/").startswith(("/", "@")):
            yield "password", tls


def required_variables(given: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which libpq in another program requires the same proof."""
    proof, found = last_proof(given), dict[str, str]()
    if proof.method in ("gss", "scram", "md5") and "require_auth" not in given and "PGREQUIREAUTH" not in environ:
        found["PGREQUIREAUTH"] = _METHODS[proof.method]
    if proof.tls and given.get("sslmode", environ.get("PGSSLMODE")) not in _TLS:
        found["PGSSLMODE"] = "require"
    if proof.socket_owner is not None and "requirepeer" not in given and "PGREQUIREPEER" not in environ:
        name = user_name(proof.socket_owner)
        found |= {} if name.startswith("uid ") else {"PGREQUIREPEER": name}
    return found


@cache
def _knows_require_auth() -> bool:
    """libpq 16 and later."""
    from psycopg import pq

    return any(option.keyword == b"require_auth" for option in pq.Conninfo.get_defaults())


def remember(given: Mapping[str, str], connection: PGconn, method: str | None) -> None:
    """Remember what the server proved; what it proved before stays required."""
    before = last_proof(given)
    used = "gss" if connection.used_gssapi else method if connection.used_password else None
    order = [None, *reversed(_METHODS)]
    with _lock:
        _proofs[_key(given)] = ServerProof(
            max(before.method, used, key=order.index), before.tls or connection.ssl_in_use, _peer_uid(connection.socket)
        )


def check_peer(given: Mapping[str, str], descriptor: int) -> None:
    """Check who listens at a unix socket, before anything secret is sent. Raises ConnectFailed.

    libpq's requirepeer needs the name; here it is the owner of the last connection, else root, this user, or a user who
    alone can write the directory.
    """
    peer, expected = _peer_uid(descriptor), last_proof(given).socket_owner
    if peer is None:
        return
    who = user_name(peer)
    hint = f"requirepeer={clean(who)} in the connection string if that is the server's user"
    if expected is not None and peer != expected:
        message = f"the server's socket belongs to {who}, at the last connection to {user_name(expected)}"
        raise ConnectFailed("auth", message, advice=hint)
    if expected is None and peer not in (0, os.geteuid()) and who != _USUAL_OWNER:
        with socket.socket(fileno=os.dup(descriptor)) as connected:
            path = os.fsdecode(connected.getpeername())
        if not _is_private_to(peer, path):
            message = f"the server's socket belongs to {who}, and every user can create one in its place"
            raise ConnectFailed("auth", f"{message}: {clean(path)}", advice=hint)


def _is_private_to(owner: int, path: str) -> bool:
    """Return whether only a user, root and we can create a socket at a path."""
    try:
        found = os.stat(os.path.dirname(path))
    except (OSError, ValueError):  # an abstract socket has no directory
        return False
    return found.st_uid in (0, owner, os.geteuid()) and not found.st_mode & stat.S_IWOTH


def _peer_uid(descriptor: int) -> int | None:
    """Return the user of the process that listens; None if it is not a Unix socket."""
    with socket.socket(fileno=os.dup(descriptor)) as connected:
        if connected.family != socket.AF_UNIX:
            return None
        credentials = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", credentials)[1])


def _key(given: Mapping[str, str]) -> tuple[str, ...]:
    """Return what identifies a target; a name is listed once for each of its addresses, which may change."""
    hosts = dict.fromkeys((given.get("host") or given.get("hostaddr", "")).split(","))
    return ",".join(hosts), *(given.get(name, "") for name in ("service", "port", "user", "dbname"))
