"""What a cutover does with a PgBouncer: hold its clients within a time limit, let them go, lead them to another server.

PAUSE of PgBouncer has no time-out: it waits until each server connection was given back, in transaction mode at the end
of the transaction, in session mode when the client disconnects. Clients that ask meanwhile wait. Facts: its manual,
"Process controlling commands", and admin.c, janitor.c, objects.c and client.c of versions 1.18 to 1.24.

A pool whose last login to the server failed refuses clients and waits server_login_retry (15 s) before the next login.
PAUSE of one database makes that happen: logins under way are cut (pgbouncer #420), min_pool_size keeps starting some,
and so does a new client after a RELOAD with another host (#498). PAUSE of everything starts none. So everything is
paused where the databases are all that the pooler has, and the retry is short while clients are let go.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from dba_console.clusters.pooler_state import ADMIN, AdminConsole, quote_name
from dba_console.core.clock import Clock
from dba_console.core.config import PoolerConfig
from dba_console.core.errors import ConsoleError, ExitCode, PermissionDenied
from dba_console.core.sanitize import clean

# What keeps PgBouncer from pausing: the server connections that are in use, as SHOW SERVERS has them.

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


STOP_CHECK_S = 0.1
"""How often a wait asks whether to stop. The end of the pause itself is not late by it."""
RECHECK_S = 1.0
"""How often a wait asks whether the pause is still on: the question leaves a line in PgBouncer's log."""
FIRST_CONNECTION_S = 2.0
"""How long RESUME waits for the first server connection of each pool before it sets server_login_retry back."""
POLL_S = 0.02
"""How often a wait for what takes milliseconds asks."""
SHORT_RETRY = "0.1"
"""Seconds: server_login_retry while clients are let go. 0 would try without a break where the server is down."""
PAUSE_SENT_S = 1.0
"""How long PAUSE of a database may take to arrive before PAUSE of everything is sent."""
LOGIN_S = 1.0
"""How long PAUSE waits for logins under way, which it would cut."""


class PoolerAdmin:
    """One PgBouncer's admin console. Each call opens connections of its own and closes them; databases are named as
    clients name them, none named: those of the configuration, else all it has. Not thread-safe."""

    def __init__(self, name: str, config: PoolerConfig, clock: Clock) -> None:
        self._name = name
        self._config = config
        self._clock = clock

    def pause(self, databases: Sequence[str], timeout_s: float, stop: Callable[[], bool]) -> None:
        """Hold the clients of `databases`; return when every server connection was given back.

        After `timeout_s` seconds, when `stop` says so, or on any error they are let through again: all of `databases`,
        also one that was paused before the call (ask `paused` first). Raises PauseExpired, ConsoleError.
        """
        with ExitStack() as opened:
            control = opened.enter_context(self._console())
            names = self._names(control, databases)
            try:
                self._pause(control, names, timeout_s, stop, opened)
            except BaseException as error:
                opened.close()  # PAUSE that is resumed never answers (pgbouncer #715): its connection is closed first
                self._resume_after_failure(names, error)
                raise

    def resume(self, databases: Sequence[str]) -> None:
        """Let the clients of `databases` through, also where the whole pooler is paused. Nothing happens to one that is
        not paused. Raises ConsoleError."""
        with self._console() as control:
            self._resume(control, self._names(control, databases))

    def paused(self, databases: Sequence[str]) -> dict[str, bool | None]:
        """Which of `databases` hold their clients, or begin to; None: the pooler does not know the database."""
        with self._console() as control:
            names, flags = self._names(control, databases), self._paused_flags(control)
            every = self._all_paused(control)
            return {name: True if every else flags.get(name) for name in names}

    def blockers(self, databases: Sequence[str]) -> list[Blocker]:
        """The server connections of `databases` that are in use: what PAUSE waits for."""
        with self._console() as control:
            return find_blockers(control, self._names(control, databases))

    def pause_warnings(self, databases: Sequence[str]) -> list[str]:
        """What an operator should know before the pause, in sentences; empty: nothing."""
        with self._console() as control:
            names, settings = self._names(control, databases), self._settings(control)
            found = self._session_mode_warnings(control, names)
            if not self._covers_all_databases(control, names):
                found += self._pool_size_warnings(control, names)
            if (limit := settings.get("query_wait_timeout", "0")) != "0":
                found.append(
                    f'pooler "{self._name}" disconnects clients that waited {clean(limit)} s (query_wait_timeout): the '
                    "cutover must be shorter than that"
                )
            return found

    def reload(self, leading: Mapping[str, tuple[str, str]] | None = None) -> None:
        """Have the pooler read its file again, and check that each database of `leading` leads to its host and port.

        Raises ConsoleError. 1.18 answers RELOAD with success also where the file cannot be read: hence the check.
        """
        with self._console() as control:
            try:
                control.execute("RELOAD")
            except PermissionDenied:
                raise
            except ConsoleError as error:
                raise ConsoleError(f"{error.message}: {self._file_names_text(control)}", hint=error.hint) from None
            self._register_databases(control, leading or {})
            addresses = self._read_server_addresses(control)
            for name, expected in (leading or {}).items():
                if (found := addresses.get(name)) != expected:
                    raise ConsoleError(
                        f'pooler "{self._name}" leads "{clean(name)}" to {_address_text(found)} after RELOAD, not to '
                        f"{_address_text(expected)}: {self._file_names_text(control)}",
                        hint="is that the file that was changed, and which error does its log show?",
                    )

    def server_addresses(self) -> dict[str, tuple[str, str]]:
        """Database -> host and port as SHOW DATABASES has them; a socket directory is a host, the default one is ""."""
        with self._console() as control:
            return self._read_server_addresses(control)

    def _console(self) -> AdminConsole:
        return AdminConsole(self._name, self._config, self._clock)

    def _pause(
        self, control: AdminConsole, names: Sequence[str], timeout_s: float, stop: Callable[[], bool], opened: ExitStack
    ) -> None:
        """Send each PAUSE over a connection of its own, which answers when the clients are held."""
        until_us = self._clock.mono_us() + int(timeout_s * 1e6)
        self._register_databases(control, names)
        self._wait_for_logins(control, names, min(timeout_s, LOGIN_S))
        waiting: list[tuple[str, AdminConsole]] = []
        if not (paused := self._all_paused(control)):
            waiting = [self._send(f"PAUSE {quote_name(name)}", opened) for name in names]
            if self._covers_all_databases(control, names):
                # Both, because SHOW DATABASES shows only that of a database, which is refused after the other.
                self._wait_until(lambda: set(names) <= self._paused_names(control), PAUSE_SENT_S)
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
            if self._clock.mono_us() - checked_us > RECHECK_S * 1e6:  # what was sent before that has arrived
                checked_us = self._clock.mono_us()
                self._check_still_paused(control, names)
        self._check_still_paused(control, names)

    def _send(self, command: str, opened: ExitStack) -> tuple[str, AdminConsole]:
        console = opened.enter_context(self._console())
        console.send(command)
        return command, console

    def _covers_all_databases(self, control: AdminConsole, names: Collection[str]) -> bool:
        """Whether `names` are all it has: then PAUSE without a database too."""
        return set(self._paused_flags(control)) <= set(names)

    def _paused_names(self, control: AdminConsole) -> set[str]:
        return {name for name, paused in self._paused_flags(control).items() if paused}

    def _wait_for_logins(self, control: AdminConsole, names: Collection[str], timeout_s: float) -> None:
        """Wait until no login to the server is under way, at most `timeout_s` seconds."""
        self._wait_until(lambda: not any(_count(pool, "sv_login") for pool in self._pools(control, names)), timeout_s)

    def _check_still_paused(self, control: AdminConsole, names: Sequence[str]) -> None:
        """Raise where the clients are not held any more."""
        paused_names = self._paused_names(control)
        off = [name for name in names if name not in paused_names]
        if off and not self._all_paused(control):
            raise ConsoleError(
                f'pooler "{self._name}": {quoted_list(off)} was resumed by another session while it was being paused; '
                "its clients are let through",
                hint="find out which session did it before the next attempt",
            )

    def _resume_after_failure(self, names: Sequence[str], error: BaseException) -> None:
        """RESUME what a failed pause may have paused; where that fails too, the error says so."""
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
            if "not paused" not in error.message:  # another session was faster: then nothing is wrong
                raise

    def _register_databases(self, control: AdminConsole, names: Collection[str]) -> None:
        """Make databases known that the entry "*" covers. Raises ConsoleError where it does not."""
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

    def _read_server_addresses(self, control: AdminConsole) -> dict[str, tuple[str, str]]:
        rows = control.execute("SHOW DATABASES")
        return {row["name"]: (row.get("host", ""), row.get("port", "")) for row in rows if row.get("name") != ADMIN}

    def _names(self, control: AdminConsole, databases: Sequence[str]) -> list[str]:
        return list(dict.fromkeys(databases or self._config.databases)) or list(self._paused_flags(control))

    def _paused_flags(self, control: AdminConsole) -> dict[str, bool | None]:
        rows = control.execute("SHOW DATABASES")
        return {row["name"]: _flag(row.get("paused")) for row in rows if row.get("name", ADMIN) != ADMIN}

    def _all_paused(self, control: AdminConsole) -> bool:
        """Whether a PAUSE without a database is on. SHOW STATE is newer than 1.18; the admin database is never paused,
        and the refusal differs (admin.c, admin_cmd_pause)."""
        try:
            control.execute(f"PAUSE {ADMIN}")
        except PermissionDenied:
            return False  # not known: stats_users may not ask
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
                    "does not end before; wait for them, or end their server processes on the primary"
                )
        return found

    def _pool_size_warnings(self, control: AdminConsole, names: Collection[str]) -> list[str]:
        rows = [row for row in control.execute("SHOW DATABASES") if row.get("name") in names]
        with_min_size = [row["name"] for row in rows if _count(row, "min_pool_size")]
        if not with_min_size:
            return []
        return [
            f'pooler "{self._name}" has other databases too, and min_pool_size for {quoted_list(with_min_size)}: it '
            "logs in to the server while they are paused, and may refuse clients for a moment after RESUME (server "
            "login has been failing); set min_pool_size = 0 before"
        ]

    def _wait_until(self, reached: Callable[[], bool], timeout_s: float) -> None:
        until_us = self._clock.mono_us() + int(timeout_s * 1e6)
        while not reached() and self._clock.mono_us() < until_us:
            threading.Event().wait(POLL_S)


def _has_server_connection(pool: Mapping[str, str]) -> bool:
    """Whether a pool has a server connection, or does not need one."""
    return not _count(pool, "cl_waiting") or bool(_count(pool, "sv_active") + _count(pool, "sv_idle"))


def _count(row: Mapping[str, str], column: str) -> int:
    return int(row.get(column) or 0)


def _flag(text: str | None) -> bool | None:
    return None if text is None else text not in ("0", "f", "no")


def _address_text(address: tuple[str, str] | None) -> str:
    return "nowhere" if address is None else clean(":".join(address))
