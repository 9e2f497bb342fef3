"""What keeps PgBouncer from pausing: the server connections that are in use, as SHOW SERVERS has them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from dba_console.clusters.admin_console import AdminConsole
from dba_console.errors import ConsoleError, ExitCode
from dba_console.sanitize import clean

MAX_NAMED = 3
"""Blockers a message names."""
_CLOSED = frozenset(("idle", "used", "new", "login"))
"""States of server connections that PAUSE closes itself (janitor.c, per_loop_pause)."""


@dataclass(frozen=True, slots=True)
class Blocker:
    """A server connection in use. Text is cleaned; times are the pooler's own, with zone."""

    database: str
    user: str
    client: str
    """Address and port of the client; empty: PgBouncer itself uses it, to test it."""
    application: str
    pid: int | None
    """Of the server process, for pg_terminate_backend on the primary."""
    state: str
    """PgBouncer's word for the server connection: active, tested, …"""
    connected: str
    """Since when the client is connected."""
    since: str
    """When the client sent its last request."""

    def __str__(self) -> str:
        process = f"server process {self.pid}" if self.pid else "server process not known"
        if not self.client:
            return f'a connection to "{self.database}" in state {self.state} ({process})'
        application = f'application "{self.application}", ' if self.application else ""
        return (
            f'user "{self.user}" from {self.client} in "{self.database}" ({application}{process}), '
            f"last request at {self.since}, connected since {self.connected}"
        )


class PauseExpired(ConsoleError):
    """The pooler could not be paused in time, or the wait was stopped; its clients are let through again."""

    code = ExitCode.RUNBOOK_FAILED

    def __init__(self, message: str, blockers: Sequence[Blocker], *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.blockers = tuple(blockers)


def pause_expired(
    pooler: str, names: Sequence[str], timeout_s: float, blockers: Sequence[Blocker], *, stopped: bool
) -> PauseExpired:
    """The error of a pause that did not come about, which names who keeps it."""
    reason = "was stopped while it was being paused" if stopped else f"could not be paused within {timeout_s:g} s"
    text = f'pooler "{pooler}": {quoted_list(names)} {reason}; its clients are let through again'
    if not blockers:
        return PauseExpired(text, blockers)
    more = f", and {len(blockers) - MAX_NAMED} more" if len(blockers) > MAX_NAMED else ""
    pids = ", ".join(str(one.pid) for one in blockers if one.pid)
    return PauseExpired(
        f"{text}; in use: {'; '.join(str(one) for one in blockers[:MAX_NAMED])}{more}",
        blockers,
        hint="wait longer" + (f", or end on the primary: {pids} (pg_terminate_backend)" if pids else ""),
    )


def find_blockers(control: AdminConsole, names: Collection[str]) -> list[Blocker]:
    """Ask for the server connections of these databases that PAUSE waits for."""
    servers = [row for row in control.execute("SHOW SERVERS") if row.get("database") in names]
    # Not by the state of clients: an idle one looks active too (pgbouncer #1071).
    clients = {row.get("ptr"): row for row in control.execute("SHOW CLIENTS")}
    in_use = [row for row in servers if row.get("state") not in _CLOSED]
    return [_blocker(row, clients.get(row.get("link") or "-", {})) for row in in_use]


def quoted_list(names: Sequence[str]) -> str:
    """Names of databases in a sentence."""
    return ", ".join(f'"{clean(name)}"' for name in names)


def _blocker(server: Mapping[str, str], client: Mapping[str, str]) -> Blocker:
    pid = server.get("remote_pid", "")
    return Blocker(
        database=clean(server.get("database", "?")),
        user=clean(client.get("user") or server.get("user", "?")),
        client=clean(f"{client['addr']}:{client.get('port', '?')}") if client.get("addr") else "",
        application=clean(client.get("application_name") or server.get("application_name", "")),
        pid=int(pid) if pid.isdigit() and int(pid) else None,
        state=clean(server.get("state", "?")),
        connected=clean(client.get("connect_time", "")),
        since=clean(client.get("request_time", "")),
    )
