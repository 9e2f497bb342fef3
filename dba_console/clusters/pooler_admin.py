"""Administration of a PgBouncer in a cutover: pause its clients with a timeout, resume them, reload another server.

PAUSE of PgBouncer has no timeout: it waits until each server connection is released, in transaction mode at the end of
the transaction, in session mode when the client disconnects. New queries wait meanwhile. Source: its manual,
"Process controlling commands", and admin.c, janitor.c, objects.c and client.c of versions 1.18 to 1.24.

A pool whose last login to the server failed rejects clients and waits server_login_retry (15 s) before the next login.
PAUSE of one database causes that: logins in progress are cut (pgbouncer #420), min_pool_size keeps starting some, and
so does a new client after a RELOAD with another host (#498). PAUSE without a database starts none. So it is used if
the databases are all that the pooler has, and the retry interval is short while clients are resumed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from dba_console.clusters.pooler_state import ADMIN, AdminConsole, is_set, quote_name
from dba_console.core.clock import Clock
from dba_console.core.config import PoolerConfig
from dba_console.core.errors import ConsoleError, ExitCode, PermissionDenied
from dba_console.core.sanitize import clean

# Blockers of a PAUSE: the server connections in use, from SHOW SERVERS.

MAX_NAMED = 3
"""Maximum number of blockers named in a message."""
_CLOSED = frozenset(("idle", "used", "new", "login"))
"""States of server connections that PAUSE closes itself (janitor.c, per_loop_pause)."""


@dataclass(frozen=True, slots=True)
class Blocker:
    """A server connection in use. Text is cleaned; times are those of the pooler, with zone."""

    database: str
    user: str
    client: str
    """Address and port of the client; empty: PgBouncer itself is testing the connection."""
    application: str
    pid: int | None
    """Pid of the server process, for pg_terminate_backend on the primary."""
    state: str
    """State of the server connection in PgBouncer: active, tested, …"""
    connected: str
    """When the client connected."""
    since: str
    """When the client sent its last request."""

    def __str__(self) -> str:
        process = f"server process {self.pid}" if self.pid else "server process unknown"
        if not self.client:
            return f'a connection to "{self.database}" in state {self.state} ({process})'
        application = f'application "{self.application}", ' if self.application else ""
        return (
            f'user "{self.user}" from {self.client} in "{self.database}" ({application}{process}), '
            f"last request at {self.since}, connected since {self.connected}"
        )


class PauseExpired(ConsoleError):
    """The pooler could not be paused in time, or the wait was stopped; its clients are resumed."""

    code = ExitCode.RUNBOOK_FAILED

    def __init__(self, message: str, blockers: Sequence[Blocker], *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.blockers = tuple(blockers)


def pause_expired(
    pooler: str, names: Sequence[str], timeout_s: float, blockers: Sequence[Blocker], *, stopped: bool
) -> PauseExpired:
    """Return the error of a failed pause, which names the blockers."""
    reason = "was stopped during its pause" if stopped else f"could not be paused within {timeout_s:g} s"
    text = f'pooler "{pooler}": {quoted_list(names)} {reason}; its clients are resumed'
    if not blockers:
        return PauseExpired(text, blockers)
    more = f", and {len(blockers) - MAX_NAMED} more" if len(blockers) > MAX_NAMED else ""
    pids = ", ".join(str(one.pid) for one in blockers if one.pid)
    return PauseExpired(
        f"{text}; in use: {'; '.join(str(one) for one in blockers[:MAX_NAMED])}{more}",
        blockers,
        hint="wait longer" + (f", or terminate on the primary: {pids} (pg_terminate_backend)" if pids else ""),
    )


def find_blockers(control: AdminConsole, names: Collection[str]) -> list[Blocker]:
    """Return the server connections of these databases that PAUSE waits for."""
    servers = [row for row in control.execute("SHOW SERVERS") if row.get("database") in names]
    # Not by the state of clients: an idle one looks active too (pgbouncer #1071).
    clients = {row.get("ptr"): row for row in control.execute("SHOW CLIENTS")}
    in_use = [row for row in servers if row.get("state") not in _CLOSED]
    return [_blocker(row, clients.get(row.get("link") or "-", {})) for row in in_use]


def quoted_list(names: Sequence[str]) -> str:
    """Return names of databases for a sentence."""
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


STOP_CHECK_S = 0.1
"""Interval of checks for a stop request; does not delay the end of the pause itself."""
RECHECK_S = 1.0
"""Interval of checks that the pause is still on; each leaves a line in PgBouncer's log."""
FIRST_CONNECTION_S = 2.0
"""How long RESUME waits for the first server connection of each pool before it restores server_login_retry."""
POLL_S = 0.02
"""Poll interval for conditions that take milliseconds."""
SENT_POLL_S = 0.002
"""The same while clients wait for nothing else."""
SHORT_RETRY = "0.1"
"""Seconds: server_login_retry while clients are resumed. With 0 it would retry without pause if the server is down."""
WAIT_LIMIT = "query_wait_timeout"
"""Seconds after which PgBouncer disconnects a client that waits, also in a pause."""
SERVED_S = 10.0
"""How long clients that waited are given to get a server connection, before that limit applies again."""
PAUSE_SENT_S = 1.0
"""Time for PAUSE of a database to arrive before PAUSE without a database is sent."""
LOGIN_S = 1.0
"""How long PAUSE waits for logins in progress, which it would cut."""


class PoolerAdmin:
    """Pause, resume and reload of one PgBouncer. Each call opens and closes its own connections. Databases have their
    names for clients; an empty list means those of the configuration, else all. Not thread-safe."""

    def __init__(self, name: str, config: PoolerConfig, clock: Clock) -> None:
        self._name = name
        self._config = config
        self._clock = clock

    def pause(self, databases: Sequence[str], timeout_s: float, stop: Callable[[], bool]) -> None:
        """Pause the clients of `databases`; return when every server connection was released.

        After `timeout_s` seconds, when `stop` returns True, or on any error they are resumed: all of `databases`,
        also one that was paused before the call (check `paused` first). Raises PauseExpired, ConsoleError.
        """
        with ExitStack() as opened:
            control = opened.enter_context(self._console())
            names = self._names(control, databases)
            try:
                self._pause(control, names, timeout_s, stop, opened)
            except BaseException as error:
                opened.close()  # a resumed PAUSE never answers (pgbouncer #715): its connection is closed first
                self._resume_after_failure(names, error)
                raise

    def hold(self, databases: Sequence[str], timeout_s: float, stop: Callable[[], bool]) -> bool:
        """Pause the clients, and after `timeout_s` disconnect them: new ones wait until RESUME. For a server that does
        not answer, where transactions never end. Return whether they were disconnected. Raises ConsoleError.

        KILL drops clients and server connections at once (admin.c, admin_cmd_kill).
        """
        try:
            self.pause(databases, timeout_s, stop)
        except PauseExpired:
            pass
        else:
            return False
        with self._console() as control:
            names = self._names(control, databases)
            for name in set(names) - self._paused_names(control):
                control.execute(f"KILL {quote_name(name)}")
        return True

    def resume(self, databases: Sequence[str]) -> None:
        """Resume the clients of `databases`, also if the whole pooler is paused; no effect on one that is not paused.
        Raises ConsoleError."""
        with self._console() as control:
            self._resume(control, self._names(control, databases))

    def paused(self, databases: Sequence[str]) -> dict[str, bool | None]:
        """Return which of `databases` are paused or being paused; None: unknown to the pooler."""
        with self._console() as control:
            names, flags = self._names(control, databases), self._paused_flags(control)
            every = self._all_paused(control)
            return {name: True if every else flags.get(name) for name in names}

    def blockers(self, databases: Sequence[str]) -> list[Blocker]:
        """Return the server connections of `databases` that are in use: what PAUSE waits for."""
        with self._console() as control:
            return find_blockers(control, self._names(control, databases))

    def pause_warnings(self, databases: Sequence[str]) -> list[str]:
        """Return warnings for the operator before the pause, as sentences."""
        with self._console() as control:
            names = self._names(control, databases)
            found = self._session_mode_warnings(control, names)
            if not self._covers_all_databases(control, names):
                found += self._pool_size_warnings(control, names)
            return found

    def wait_limits(self) -> dict[str, str]:
        """Return the settings by which the pooler disconnects clients that wait, with their values."""
        with self._console() as control:
            limit = self._settings(control).get(WAIT_LIMIT, "0")
        return {} if limit in ("0", "0.0") else {WAIT_LIMIT: limit}

    def lift_wait_limits(self, limits: Collection[str]) -> None:
        """Let paused clients wait without limit. RELOAD undoes it. Raises ConsoleError."""
        with self._console() as control:
            for name in limits:
                control.execute(f"SET {name} = '0'")

    def restore_wait_limits(self, limits: Mapping[str, str], databases: Sequence[str]) -> None:
        """Restore the settings, when no resumed client has waited longer than they allow. Raises ConsoleError."""
        with self._console() as control:
            names = self._names(control, databases)
            shortest = min((float(value) for value in limits.values()), default=0.0)

            def served() -> bool:
                return all(_count(pool, "maxwait") < shortest for pool in self._pools(control, names))

            self._wait_until(served, SERVED_S)
            for name, value in limits.items():
                control.execute(f"SET {name} = '{value}'")

    def reload(self, leading: Mapping[str, tuple[str, str]] | None = None, *, unlimited: Collection[str] = ()) -> None:
        """Reload the pooler's file, and check that each database of `leading` has its host and port.

        RELOAD reads the file's value of each setting again: `unlimited` are set to 0 right after it.
        Raises ConsoleError. Version 1.18 reports success for RELOAD also if the file cannot be read: hence the check.
        """
        with self._console() as control:
            try:
                control.execute("RELOAD")
            except PermissionDenied:
                raise
            except ConsoleError as error:
                raise ConsoleError(f"{error.message}: {self._file_names_text(control)}", hint=error.hint) from None
            for name in unlimited:
                control.execute(f"SET {name} = '0'")
            self._register_databases(control, leading or {})
            rows = control.execute("SHOW DATABASES")  # a socket directory is a host
            addresses = {row.get("name"): (row.get("host", ""), row.get("port", "")) for row in rows}
            for name, expected in (leading or {}).items():
                if (found := addresses.get(name)) != expected:
                    raise ConsoleError(
                        f'pooler "{self._name}" connects "{clean(name)}" to {_address_text(found)} after RELOAD, not '
                        f"to {_address_text(expected)}: {self._file_names_text(control)}",
                        hint="check that this is the changed file, and errors in its log",
                    )

    def _console(self) -> AdminConsole:
        return AdminConsole(self._name, self._config, self._clock)

    def _pause(
        self, control: AdminConsole, names: Sequence[str], timeout_s: float, stop: Callable[[], bool], opened: ExitStack
    ) -> None:
        """Send each PAUSE over its own connection, which answers when the clients are paused."""
        until_us = self._clock.mono_us() + int(timeout_s * 1e6)
        self._register_databases(control, names)
        self._wait_for_logins(control, names, min(timeout_s, LOGIN_S))
        waiting: list[tuple[str, AdminConsole]] = []
        if not (paused := self._all_paused(control)):
            waiting = [self._send(f"PAUSE {quote_name(name)}", opened) for name in names]
            if self._covers_all_databases(control, names):
                # Both, because SHOW DATABASES shows only PAUSE of a database, which is refused after the other.
                self._wait_until(lambda: set(names) <= self._paused_names(control), PAUSE_SENT_S, SENT_POLL_S)
                waiting.append(self._send("PAUSE", opened))
        checked_us = self._clock.mono_us()
        while waiting or (paused and find_blockers(control, names)):
            left_s = (until_us - self._clock.mono_us()) / 1e6
            if (stopped := stop()) or left_s <= 0:
                raise pause_expired(self._name, names, timeout_s, find_blockers(control, names), stopped=stopped)
            if not waiting:
                threading.Event().wait(min(STOP_CHECK_S, left_s))
            elif (answer := waiting[0][1].read_answer(min(STOP_CHECK_S, left_s))) is not None:
                command, console = waiting.pop(0)
                console.result_rows(command, answer)
            if self._clock.mono_us() - checked_us > RECHECK_S * 1e6:  # commands sent before have arrived
                checked_us = self._clock.mono_us()
                self._check_still_paused(control, names)
        self._check_still_paused(control, names)

    def _send(self, command: str, opened: ExitStack) -> tuple[str, AdminConsole]:
        console = opened.enter_context(self._console())
        console.send(command)
        return command, console

    def _covers_all_databases(self, control: AdminConsole, names: Collection[str]) -> bool:
        """Whether `names` are all its databases: then PAUSE without a database is used too."""
        return set(self._paused_flags(control)) <= set(names)

    def _paused_names(self, control: AdminConsole) -> set[str]:
        return {name for name, paused in self._paused_flags(control).items() if paused}

    def _wait_for_logins(self, control: AdminConsole, names: Collection[str], timeout_s: float) -> None:
        """Wait until no login to the server is in progress, at most `timeout_s` seconds."""
        self._wait_until(lambda: not any(_count(pool, "sv_login") for pool in self._pools(control, names)), timeout_s)

    def _check_still_paused(self, control: AdminConsole, names: Sequence[str]) -> None:
        """Raise ConsoleError if the clients are no longer paused."""
        paused_names = self._paused_names(control)
        off = [name for name in names if name not in paused_names]
        if off and not self._all_paused(control):
            raise ConsoleError(
                f'pooler "{self._name}": {quoted_list(off)} was resumed by another session during its pause; '
                "its clients continue",
                hint="find out which session did it before the next attempt",
            )

    def _resume_after_failure(self, names: Sequence[str], error: BaseException) -> None:
        """Resume what a failed pause may have paused; if that fails too, add it to the error."""
        try:
            self.resume(names)
        except ConsoleError as failed:
            if isinstance(error, ConsoleError):
                error.message += f"; and it could not be resumed: {failed.message}"
                error.hint = f"clients may be waiting: run RESUME on the admin console of {self._name}"

    def _resume(self, control: AdminConsole, names: Sequence[str]) -> None:
        paused_names = self._paused_names(control)
        commands = [f"RESUME {quote_name(name)}" for name in names if name in paused_names]
        if self._all_paused(control):
            commands.append("RESUME")
        if not commands:
            return
        retry = self._settings(control).get("server_login_retry", "15")
        control.execute(f"SET server_login_retry = '{SHORT_RETRY}'")
        try:
            for command in commands:
                self._ask_resume(control, command)
            self._wait_until(lambda: all(map(_has_server_connection, self._pools(control, names))), FIRST_CONNECTION_S)
        finally:
            control.execute(f"SET server_login_retry = '{retry}'")

    def _ask_resume(self, control: AdminConsole, command: str) -> None:
        try:
            control.execute(command)
        except PermissionDenied:
            raise
        except ConsoleError as error:
            if "not paused" not in error.message:  # resumed by another session meanwhile: not an error
                raise

    def _register_databases(self, control: AdminConsole, names: Collection[str]) -> None:
        """Register databases covered by the entry "*". Raises ConsoleError if it does not cover one."""
        for name in set(names) - set(self._paused_flags(control)):
            try:
                control.execute(f"RECONNECT {quote_name(name)}")
            except PermissionDenied:
                raise
            except ConsoleError as error:
                raise ConsoleError(
                    f'pooler "{self._name}" does not have the database "{clean(name)}": {error.message}',
                    hint="check `databases` of the pooler in the configuration",
                ) from None

    def _names(self, control: AdminConsole, databases: Sequence[str]) -> list[str]:
        return list(dict.fromkeys(databases or self._config.databases)) or list(self._paused_flags(control))

    def _paused_flags(self, control: AdminConsole) -> dict[str, bool | None]:
        rows = control.execute("SHOW DATABASES")
        return {row["name"]: is_set(row.get("paused")) for row in rows if row.get("name", ADMIN) != ADMIN}

    def _all_paused(self, control: AdminConsole) -> bool:
        """Whether a PAUSE without a database is on. SHOW STATE is newer than 1.18; PAUSE of the admin database is
        always refused, and the message shows the state (admin.c, admin_cmd_pause)."""
        try:
            control.execute(f"PAUSE {ADMIN}")
        except PermissionDenied:
            return False  # unknown: stats_users may not run it
        except ConsoleError as error:
            return "already suspended/paused" in error.message
        return False

    def _pools(self, control: AdminConsole, names: Collection[str]) -> list[dict[str, str]]:
        return [pool for pool in control.execute("SHOW POOLS") if pool.get("database") in names]

    def _settings(self, control: AdminConsole) -> dict[str, str]:
        return {row.get("key", ""): row.get("value", "") for row in control.execute("SHOW CONFIG")}

    def _file_names_text(self, control: AdminConsole) -> str:
        settings = self._settings(control)
        return f'it reads "{clean(settings.get("conffile", "?"))}", its log is "{clean(settings.get("logfile", ""))}"'

    def _session_mode_warnings(self, control: AdminConsole, names: Collection[str]) -> list[str]:
        modes = {row.get("name"): row.get("pool_mode") for row in control.execute("SHOW DATABASES")}
        found = []
        for pool in self._pools(control, names):
            mode, clients_active = pool.get("pool_mode") or modes.get(pool.get("database")), _count(pool, "sv_active")
            if mode == "session" and clients_active:
                clients = (
                    "client holds a server connection" if clients_active == 1 else "clients hold a server connection"
                )
                found.append(
                    f'pooler "{self._name}": "{clean(pool.get("database", "?"))}" is in session mode for user '
                    f'"{clean(pool.get("user", "?"))}", and {clients_active} {clients} until they disconnect: PAUSE '
                    "waits for that; wait, or terminate their server processes on the primary"
                )
        return found

    def _pool_size_warnings(self, control: AdminConsole, names: Collection[str]) -> list[str]:
        rows = [row for row in control.execute("SHOW DATABASES") if row.get("name") in names]
        with_min_size = [row["name"] for row in rows if _count(row, "min_pool_size")]
        if not with_min_size:
            return []
        return [
            f'pooler "{self._name}" also has other databases, and min_pool_size for {quoted_list(with_min_size)}: it '
            "logs in to the server while they are paused, and may reject clients for a moment after RESUME (server "
            "login has been failing); set min_pool_size = 0 before"
        ]

    def _wait_until(self, reached: Callable[[], bool], timeout_s: float, poll_s: float = POLL_S) -> None:
        until_us = self._clock.mono_us() + int(timeout_s * 1e6)
        while not reached() and self._clock.mono_us() < until_us:
            threading.Event().wait(poll_s)


def _has_server_connection(pool: Mapping[str, str]) -> bool:
    """Whether a pool has a server connection, or does not need one."""
    return not _count(pool, "cl_waiting") or bool(_count(pool, "sv_active") + _count(pool, "sv_idle"))


def _count(row: Mapping[str, str], column: str) -> int:
    return int(row.get(column) or 0)


def _address_text(address: tuple[str, str] | None) -> str:
    return "nowhere" if address is None else clean(":".join(address))
