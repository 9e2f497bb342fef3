"""An agent that PostgreSQL has never let in makes way for one with the credentials of a later caller.

An agent keeps the environment of the console that started it. Where that had no password, or a wrong one, whoever comes
later with the right one must not be held up by it. Credentials are compared here, in the caller; none of them goes over
the socket.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from dba_console.agent.client import AgentClient, AgentConnectionLost
from dba_console.agent.protocol import EndIfRefused, Hello, Notice
from dba_console.agent.target_lock import TargetLock
from dba_console.errors import ConsoleError
from dba_console.target import holds_secret

END_S = 15.0
"""An agent that is asked to end writes its recording first, which takes a while on a busy disk."""
POLL_S = 0.05
_CREDENTIAL_PREFIXES = ("PG", "KRB5", "SSL_CERT")
"""Beginnings of the variables by which libpq and the libraries under it find credentials (libpq-envars)."""
_HOME = "HOME"
"""In it lie .pgpass, .pg_service.conf and .postgresql."""


def end_if_refused(path: Path, key: str, conninfo: str) -> bool:
    """Have the agent that listens at `path` end where it was never let in and this caller has other credentials.

    True once it has ended. False where it stays, and where it does not answer.
    """
    try:
        client = AgentClient.connect(path, role="show")
    except ConsoleError:
        return False
    try:
        if not should_replace(client.hello, conninfo):
            return False
        client.send(EndIfRefused())
        return _has_ended(client, TargetLock(key))
    except AgentConnectionLost:
        return False
    finally:
        client.close()


def should_replace(hello: Hello, conninfo: str) -> bool:
    """Whether PostgreSQL never let that agent in, and might let in this caller."""
    return bool(hello.refused) and (
        holds_secret(conninfo) or _credential_environment(hello.pid) != _credential_variables(os.environb)
    )


def _has_ended(client: AgentClient, lock: TargetLock) -> bool:
    until = time.monotonic() + END_S
    pause = threading.Event()
    try:
        while (left := until - time.monotonic()) > 0:
            message = client.receive(left)
            if isinstance(message, Notice) and message.kind == "refused":
                return False
    except AgentConnectionLost:
        # It has said goodbye; its process ends after that.
        while lock.holder() == client.hello.pid and time.monotonic() < until:
            pause.wait(POLL_S)
    return lock.holder() != client.hello.pid


def _credential_environment(pid: int) -> dict[bytes, bytes] | None:
    """Those variables of the environment a process was started with; None where it cannot be read (proc(5))."""
    try:
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    return _credential_variables(dict(entry.partition(b"=")[::2] for entry in entries if b"=" in entry))


def _credential_variables(environment: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    names = tuple(name.encode() for name in _CREDENTIAL_PREFIXES)
    return {name: one for name, one in environment.items() if name.startswith(names) or name == _HOME.encode()}
