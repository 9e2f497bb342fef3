"""What a cutover does with a PgBouncer: hold its clients within a time limit, let them go, lead them to another server.

PAUSE of PgBouncer has no time-out: it waits until each server connection was given back, in transaction mode at the end
of the transaction, in session mode when the client disconnects. Clients that ask meanwhile wait. Facts: its manual,
"Process controlling commands", and src/admin.c, src/janitor.c of versions 1.18 to 1.24.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from dba_console.clock import Clock
from dba_console.clusters.admin_console import ADMIN, ANSWER_S, AdminConsole, quoted
from dba_console.config import PoolerConfig
from dba_console.errors import ConsoleError, ExitCode, PermissionDenied
from dba_console.harmless import clean

ASK_S = 0.1
"""How often a wait asks whether to stop, and whether the pause is still on. The end of the wait is not late by it."""
NAMED = 3
"""Blockers a message names; `blockers` has all."""


@dataclass(frozen=True, slots=True)
class Blocker:
    """A server connection that was not given back yet. Text is cleaned; times are the pooler's own, with zone."""

    database: str
    user: str
    client: str
    """Address and port of the client; empty: no client holds it."""
    application: str
    pid: int | None
    """Of the server process, for pg_terminate_backend on the primary."""
    state: str
    """PgBouncer's word for the server connection: active, tested, new, …"""
    connected: str
    """Since when the client is connected."""
    since: str
    """When the client sent its last request."""

    def __str__(self) -> str:
        process = f"server process {self.pid}" if self.pid else "no server process yet"
        if not self.client:
            return f"a connection to {self.database} in state {self.state} ({process})"
        application = f'application "{self.application}", ' if self.application else ""
        return (
            f'user "{self.user}" from {self.client} in {self.database} ({application}{process}), '
            f"last request at {self.since}, connected since {self.connected}"
        )


class PauseExpired(ConsoleError):
    """The pooler could not be paused in time, or the wait was stopped; its clients are let through again."""

    code = ExitCode.RUNBOOK_FAILED

    def __init__(self, message: str, blockers: Sequence[Blocker], *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.blockers = tuple(blockers)


class PoolerAdmin:
    """One PgBouncer's admin console. Each call opens connections of its own and closes them; databases are named as
    clients name them, none named: those of the configuration, else all it knows."""

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
                self._let_go(names, error)
                raise

    def resume(self, databases: Sequence[str]) -> None:
        """Let the clients of `databases` through; nothing happens to one that is not paused. Raises ConsoleError."""
        with self._console() as control:
            names = self._names(control, databases)
            paused = self._flags(control)
            for name in names:
                if paused.get(name):
                    self._resume_one(control, name)
            if self._all_paused(control):
                raise ConsoleError(
                    f'pooler "{self._name}" holds all clients by a PAUSE without a database, which RESUME of one '
                    "database does not revert",
                    hint="run RESUME on its admin console when the session that paused it agrees",
                )

    def paused(self, databases: Sequence[str]) -> dict[str, bool | None]:
        """Which of `databases` hold their clients, or begin to; None: the pooler does not know the database."""
        with self._console() as control:
            names, flags = self._names(control, databases), self._flags(control)
            every = self._all_paused(control)
            return {name: True if every and name in flags else flags.get(name) for name in names}

    def blockers(self, databases: Sequence[str]) -> list[Blocker]:
        """The server connections of `databases` that a client, or a login, holds now."""
        with self._console() as control:
            return self._blockers(control, self._names(control, databases))

    def cautions(self, databases: Sequence[str]) -> list[str]:
        """What an operator should know before the pause, in sentences; empty: nothing."""
        with self._console() as control:
            names = self._names(control, databases)
            return [*self._sessions(control, names), *self._query_wait(control)]

    def reload(self, leading: Mapping[str, tuple[str, str]] | None = None) -> None:
        """Have the pooler read its file again, and check that each database of `leading` leads to its host and port.

        Raises ConsoleError: versions before 1.19 answer RELOAD with success also where the file could not be read.
        """
        with self._console() as control:
            try:
                control.ask("RELOAD")
            except PermissionDenied:
                raise
            except ConsoleError as error:
                raise ConsoleError(f"{error.message}: {self._files(control)}", hint=error.hint) from None
            for name, wanted in (leading or {}).items():
                found = self._leads_to(control, register=name).get(name)
                if found != wanted:
                    to = "nowhere" if found is None else _place(found)
                    raise ConsoleError(
                        f'pooler "{self._name}" leads "{clean(name)}" to {to} after RELOAD, not to {_place(wanted)}: '
                        f"{self._files(control)}",
                        hint="is that the file that was changed, and which error does its log show?",
                    )

    def leads_to(self) -> dict[str, tuple[str, str]]:
        """Database -> host and port as SHOW DATABASES has them; a socket directory is a host, the default one is ""."""
        with self._console() as control:
            return self._leads_to(control)

    def _console(self) -> AdminConsole:
        return AdminConsole(self._name, self._config, self._clock)

    def _names(self, control: AdminConsole, databases: Sequence[str]) -> list[str]:
        return list(dict.fromkeys(databases or self._config.databases)) or list(self._flags(control))

    def _pause(
        self, control: AdminConsole, names: Sequence[str], timeout_s: float, stop: Callable[[], bool], opened: ExitStack
    ) -> None:
        """Send each PAUSE over a connection of its own, which answers when the clients are held."""
        until_us = self._clock.mono_us() + int(timeout_s * 1e6)
        waiting: dict[str, AdminConsole] = {}
        for name in names:
            waiting[name] = opened.enter_context(self._console())
            waiting[name].send(f"PAUSE {quoted(name)}")
        sent_us = self._clock.mono_us()
        begun = self._still_on(control, ())
        while waiting:
            name, console = next(iter(waiting.items()))
            left_s = (until_us - self._clock.mono_us()) / 1e6
            answer = console.answer(max(0.0, min(ASK_S, left_s)))
            if answer is not None:
                console.rows_of(f"PAUSE {quoted(name)}", answer)
                del waiting[name]
                continue
            if (stopped := stop()) or left_s <= 0:
                raise self._expired(self._blockers(control, names), names, timeout_s, stopped=stopped)
            # What was sent that long ago has arrived, also where the pause was too short to be seen.
            arrived = self._clock.mono_us() - sent_us > ANSWER_S * 1e6
            begun |= self._still_on(control, names if arrived else begun)
        self._still_on(control, names)

    def _still_on(self, control: AdminConsole, names: Collection[str]) -> set[str]:
        """Return what is paused. Raises where one of `names`, whose pause had begun, is not any more."""
        flags = self._flags(control)
        off = [name for name in names if not flags.get(name)]
        if off:
            raise ConsoleError(
                f'pooler "{self._name}": {_listed(off)} was resumed by another session while it was being paused; its '
                "clients are let through",
                hint="find out which session did it before the next attempt",
            )
        return {name for name, paused in flags.items() if paused}

    def _let_go(self, names: Sequence[str], error: BaseException) -> None:
        """RESUME what a failed pause may have paused; where that fails too, the error says so."""
        try:
            self.resume(names)
        except ConsoleError as failed:
            if isinstance(error, ConsoleError):
                error.message += f"; and it could not be resumed: {failed.message}"
                error.hint = "clients may be waiting: run " + " ".join(f"RESUME {quoted(one)};" for one in names)

    def _resume_one(self, control: AdminConsole, name: str) -> None:
        try:
            control.ask(f"RESUME {quoted(name)}")
        except PermissionDenied:
            raise
        except ConsoleError:
            if self._flags(control).get(name):  # another session may have been faster: then nothing is wrong
                raise

    def _flags(self, control: AdminConsole) -> dict[str, bool | None]:
        rows = control.ask("SHOW DATABASES")
        return {row["name"]: _flag(row.get("paused")) for row in rows if row.get("name", ADMIN) != ADMIN}

    def _all_paused(self, control: AdminConsole) -> bool:
        """Whether a PAUSE without a database is on. SHOW STATE is newer than 1.18; the admin database is never paused,
        and the refusal differs (src/admin.c, admin_cmd_pause)."""
        try:
            control.ask(f"PAUSE {ADMIN}")
        except PermissionDenied:
            return False  # not known: stats_users may not ask
        except ConsoleError as error:
            return "already suspended/paused" in error.message
        return False

    def _blockers(self, control: AdminConsole, names: Sequence[str]) -> list[Blocker]:
        servers = [row for row in control.ask("SHOW SERVERS") if row.get("database") in names]
        clients = {row.get("ptr"): row for row in control.ask("SHOW CLIENTS")}
        held = [row for row in servers if row.get("state") not in ("idle", "used")]  # those PAUSE closes itself
        return [_blocker(row, clients.get(row.get("link") or "-", {})) for row in held]

    def _expired(
        self, blockers: Sequence[Blocker], names: Sequence[str], timeout_s: float, *, stopped: bool
    ) -> PauseExpired:
        why = "was stopped while it was being paused" if stopped else f"could not be paused within {timeout_s:g} s"
        text = f'pooler "{self._name}": {_listed(names)} {why}; its clients are let through again'
        hint = None
        if blockers:
            more = f", and {len(blockers) - NAMED} more" if len(blockers) > NAMED else ""
            text += f"; not given back: {'; '.join(str(one) for one in blockers[:NAMED])}{more}"
            pids = [str(one.pid) for one in blockers if one.pid]
            end = f", or end on the primary: {', '.join(pids)} (pg_terminate_backend)" if pids else ""
            hint = f"wait longer{end}"
        return PauseExpired(text, blockers, hint=hint)

    def _sessions(self, control: AdminConsole, names: Sequence[str]) -> Iterator[str]:
        modes = {row.get("name"): row.get("pool_mode") for row in control.ask("SHOW DATABASES")}
        for pool in control.ask("SHOW POOLS"):
            name = pool.get("database")
            held = int(pool.get("sv_active") or 0)
            clients = "client holds a server connection" if held == 1 else "clients hold a server connection"
            if name in names and (pool.get("pool_mode") or modes.get(name)) == "session" and held:
                yield (
                    f'pooler "{self._name}": "{clean(name or "?")}" is in session mode for user '
                    f'"{clean(pool.get("user", "?"))}", and {held} {clients} until they '
                    "disconnect: PAUSE does not end before; wait for them, or end their server processes on the primary"
                )

    def _query_wait(self, control: AdminConsole) -> Iterator[str]:
        limit = self._settings(control).get("query_wait_timeout", "0")
        if limit != "0":
            yield (
                f'pooler "{self._name}" disconnects clients that waited {clean(limit)} s (query_wait_timeout): the '
                "cutover must be shorter than that"
            )

    def _settings(self, control: AdminConsole) -> dict[str, str]:
        return {row.get("key", ""): row.get("value", "") for row in control.ask("SHOW CONFIG")}

    def _files(self, control: AdminConsole) -> str:
        settings = self._settings(control)
        return f'it reads "{clean(settings.get("conffile", "?"))}", its log is "{clean(settings.get("logfile", ""))}"'

    def _leads_to(self, control: AdminConsole, register: str | None = None) -> dict[str, tuple[str, str]]:
        rows = control.ask("SHOW DATABASES")
        if register is not None and register not in {row.get("name") for row in rows}:
            with _unknown_is_fine():
                control.ask(f"RECONNECT {quoted(register)}")  # makes it known where the entry "*" covers it
                rows = control.ask("SHOW DATABASES")
        return {
            row["name"]: (row.get("host", ""), row.get("port", "")) for row in rows if row.get("name", ADMIN) != ADMIN
        }


@contextmanager
def _unknown_is_fine() -> Iterator[None]:
    try:
        yield
    except ConsoleError as error:
        if "no such database" not in error.message:
            raise


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


def _flag(text: str | None) -> bool | None:
    return None if text is None else text not in ("0", "f", "no")


def _place(place: tuple[str, str]) -> str:
    return clean(":".join(place))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f'"{clean(name)}"' for name in names)
