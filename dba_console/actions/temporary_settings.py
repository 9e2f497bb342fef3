"""From a change for a time to its debt and back: what is owed is written before anything is set, and struck out after
the old state was seen.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dba_console.actions.action import ActionContext
from dba_console.actions.connection_api import ServerConnection
from dba_console.actions.identity import ServerIdentity, host_identity
from dba_console.actions.parameter_check import ParameterChange, Refusal, describe_setting, needs_reload
from dba_console.actions.parameter_sql import (
    ParameterLocation,
    find_missing_object,
    read_setting,
    read_stored_value,
    restart_pending,
    same_value,
)
from dba_console.core import paths
from dba_console.core.atomic_files import sync_directory, write_atomically
from dba_console.core.decoding import from_json
from dba_console.core.errors import ConsoleError, ExitCode
from dba_console.recording.run_paths import is_open
from dba_console.watch.probes.deadline_lane import Lane, LaneTimeout

# Debts: what a run changes for a time and has to put back, on the disk before it is changed.
#
# One file for each, in the state directory, so that nothing that is killed or rebooted can lose more than one, and
# that agents of other sessions and other spellings of the target find it too. A debt is struck out (its file removed)
# only after the old state was seen on the server; whoever does it twice does no harm.

WRITE_TIMEOUT_S = 15.0
"""For a small file to be written and synced. A disk that takes longer is stalled, and nothing is set then."""
SIZE_LIMIT = 1 << 20
"""Bytes of one file: a value is shorter by far."""


class PendingRevert(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One setting that has to be put back."""

    id: str
    parameter: str
    scope: str = "system"
    database: str | None = None
    role: str | None = None
    old: str | None = None
    """Exactly as it was set in that place; None: it was not set there."""
    new_values: tuple[str | None, ...] = ()
    """What the run has given it, the newest last; None: taken out."""
    run: str = ""
    runbook: str = ""
    directory: str = ""
    """Of the run."""
    who: str = ""
    at_us: int = 0
    """Host wall time before it was first set."""
    target: str = ""
    target_key: str = ""
    server: ServerIdentity
    boot_id: str = ""
    """Of the host the run was on; empty where the server was not proven to run there."""
    stats_reset_us: int | None = None
    """Since when the server counted then (see `crashes`): it begins anew after a crash, and over no orderly end."""
    server_us: int = 0
    """The server's clock at `at_us`."""
    version: int = 1

    @property
    def new(self) -> str | None:
        return self.new_values[-1] if self.new_values else None


class RevertNotSaved(ConsoleError):
    """A debt could not be written, so nothing was set."""

    code = ExitCode.SESSION


class StoredReverts(NamedTuple):
    """What lies in the directory, oldest first, and what of it cannot be read."""

    reverts: tuple[PendingRevert, ...]
    damaged: tuple[str, ...]


def reverts_directory(context: ActionContext) -> Path:
    """Where the debts of this world lie."""
    return default_directory() if context.reverts_directory is None else Path(context.reverts_directory)


def default_directory() -> Path:
    """Where debts lie: what survives a reboot, and belongs to no session that may be pruned."""
    return paths.state_dir() / "debts"


def revert_id(run: str, server: ServerIdentity, place: tuple[str, str, str | None, str | None]) -> str:
    """The same for the same setting in the same place by the same run, so that it is owed once."""
    message = msgspec.json.encode((run, server.system_identifier, server.data_directory, place))
    return hashlib.sha256(message).hexdigest()[:20]


def read_all(directory: Path) -> StoredReverts:
    """Every debt there is. Raises OSError where the directory is there and cannot be read."""
    try:
        names = sorted(name for name in os.listdir(directory) if name.endswith(".json") and not name.startswith("."))
    except FileNotFoundError:
        return StoredReverts((), ())
    reverts, damaged = [], []
    for name in names:
        try:
            reverts.append(_read(directory / name))
        except FileNotFoundError:
            continue  # struck out meanwhile
        except (OSError, msgspec.MsgspecError, ValueError) as error:
            damaged.append(f"{directory / name} cannot be read: {error}")
    return StoredReverts(tuple(sorted(reverts, key=lambda debt: (debt.at_us, debt.id))), tuple(damaged))


def filter_by_server(
    reverts: Iterable[PendingRevert], now: ServerIdentity | None, target_key: str
) -> list[PendingRevert]:
    """Those of this server; where nobody knows who it is, those of that target.

    A copy of the files has the system identifier of its original; then the data directory tells the two apart.
    """
    return [revert for revert in reverts if _same_server(revert, now, target_key)]


def run_is_active(revert: PendingRevert) -> bool:
    """Whether the run goes on: an agent has its journal open."""
    return bool(revert.directory) and is_open(Path(revert.directory))


def save(directory: Path, reverts: Iterable[PendingRevert], context: ActionContext) -> None:
    """Have them on the disk, synced, each whole or not at all. Raises Unwritten: then nothing may be set."""
    wanted = list(reverts)
    lane = Lane("debts", context.clock)
    try:
        lane.call(lambda: _save(directory, wanted), WRITE_TIMEOUT_S)
    except LaneTimeout:
        raise RevertNotSaved(
            f"what has to be put back could not be written to {directory} within {WRITE_TIMEOUT_S:g} s: nothing "
            f"was set",
            hint="the disk is stalled; nothing is set for a time that nobody would know of afterwards",
        ) from None
    except (OSError, ConsoleError) as error:
        raise RevertNotSaved(
            f"what has to be put back cannot be written to {directory}: {error}; nothing was set",
            hint="make room there, or name another place with $XDG_STATE_HOME",
        ) from None
    finally:
        lane.close()


def remove(directory: Path, revert: PendingRevert) -> str | None:
    """It is put back: nothing is owed any more. None, or why its file is still there, in a sentence.

    A file that stays costs a second look: whoever finds it sees that nothing is left to do.
    """
    try:
        os.unlink(directory / f"{revert.id}.json")
        sync_directory(directory)
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"{directory / revert.id}.json cannot be removed: {error.strerror}"
    return None


def add_new_value(revert: PendingRevert, value: str | None) -> PendingRevert:
    """The same debt after another value by the same run."""
    return revert if value in revert.new_values else replace(revert, new_values=(*revert.new_values, value))


def server_boot_id(context: ActionContext) -> str:
    """Of the server's host; empty where it is another one than this."""
    return host_identity(context.proc).boot_id if context.server_is_local else ""


def _save(directory: Path, reverts: list[PendingRevert]) -> None:
    paths.private_dir(paths.private_dir(directory.parent) / directory.name)
    sync_directory(directory.parent)
    for revert in reverts:
        write_atomically(str(directory), f"{revert.id}.json", msgspec.json.format(msgspec.json.encode(revert)) + b"\n")


def _read(path: Path) -> PendingRevert:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        data = file.read(SIZE_LIMIT + 1)
    return from_json(data, PendingRevert)


def _same_server(revert: PendingRevert, now: ServerIdentity | None, target_key: str) -> bool:
    was = revert.server
    if now is None or now.system_identifier is None or was.system_identifier is None:
        return revert.target_key == target_key
    if was.system_identifier != now.system_identifier:
        return False
    both = was.timeline is not None and was.timeline == now.timeline and was.role != now.role
    if both and revert.target_key != target_key:
        return False  # its standby, or its primary: they share even the data directory's name
    places = (was.data_directory, now.data_directory)
    return None in places or places[0] == places[1]


# Whether a server was shut down in order since some moment, or crashed: asked of the server itself, afterwards.
#
# A server that comes up after a crash throws its cumulative statistics away and counts anew, everything from the same
# microsecond (pgstat_reset_after_failure in pgstat.c from 15 on; the statistics collector's lost file before).
# Statistics that somebody resets have times of their own, one by one.

_STATISTICS_RESET = """
SELECT (extract(epoch FROM b.stats_reset) * 1000000)::int8 AS one_us,
       (extract(epoch FROM a.stats_reset) * 1000000)::int8 AS other_us,
       (extract(epoch FROM pg_catalog.clock_timestamp()) * 1000000)::int8 AS now_us
  FROM pg_catalog.pg_stat_bgwriter b, pg_catalog.pg_stat_archiver a
"""


class StatisticsReset(NamedTuple):
    """Since when the server counts, by its own clock, and that clock now; None: not since one moment."""

    since_us: int | None
    now_us: int


def read_statistics_reset(connection: ServerConnection) -> StatisticsReset:
    """Asked now."""
    [row] = connection.rows(_STATISTICS_RESET)
    since_us = row["one_us"] if row["one_us"] == row["other_us"] else None
    return StatisticsReset(since_us, row["now_us"])


def data_trust(
    was_us: int | None, at_us: int, began: ServerIdentity, now: ServerIdentity, reset: StatisticsReset
) -> str:
    """sound, untrusted or unknown: whether what was written without care for durability since then can be relied on.

    `was_us` and `at_us`: since when it counted, and its clock, at the beginning; `began` and `now`: who it was, and is.

    >>> a, b = ServerIdentity(server_start_us=1), ServerIdentity(server_start_us=50)
    >>> [data_trust(5, 10, a, who, StatisticsReset(since, 90)) for who, since in ((a, 5), (b, 5), (b, 51), (b, None))]
    ['sound', 'sound', 'untrusted', 'unknown']
    """
    if reset.since_us is not None and reset.since_us == was_us:
        return "sound"
    if reset.since_us is not None and reset.since_us > at_us and began.server_start_us != now.server_start_us:
        return "untrusted"
    return "sound" if began.server_start_us == now.server_start_us else "unknown"


class RevertState(NamedTuple):
    """What is to be found of a debt on the server."""

    state: str
    """As `DebtNow.state`."""
    found: str | None


def location_of(revert: PendingRevert) -> ParameterLocation:
    """Where it is set."""
    return ParameterLocation(parameter=revert.parameter, scope=revert.scope, database=revert.database, role=revert.role)  # type: ignore[arg-type]  # as it was written


def reverts_of_server(context: ActionContext, now: ServerIdentity) -> list[PendingRevert]:
    """Every debt of this server, oldest first. Raises OSError."""
    return filter_by_server(read_all(reverts_directory(context)).reverts, now, context.target_key)


def refuse_changed_by_other_run(
    context: ActionContext, connection: ServerConnection, locations: Sequence[ParameterLocation]
) -> Refusal:
    """What another run has changed for a time is put back first: else nobody could tell what was there before both."""
    try:
        reverts = reverts_of_server(context, connection.read_identity())
    except OSError as error:
        return f"what is still to be put back cannot be read: {error}", "nothing is set for a time without it"
    for location in locations:
        revert = _find_by_location(reverts, location)
        if revert is not None and revert.run != context.run:
            return f"{revert.parameter} is still changed by run {revert.run}", "runbook put-back puts that back first"
    return None, None


def save_reverts(
    context: ActionContext, connection: ServerConnection, changes: Sequence[tuple[ParameterChange, str | None]]
) -> None:
    """Write down what has to be put back: each change with what is set there now. Raises Unwritten.

    What this run has changed before keeps what was there before the first time.
    """
    server = connection.read_identity()
    try:
        known = reverts_of_server(context, server)
    except OSError:
        known = []  # the write that follows says why
    counts = read_statistics_reset(connection)
    reverts = []
    for change, old in changes:
        before = _find_by_location(known, change.location)
        revert = before or PendingRevert(
            id=revert_id(context.run, server, _location_key(change.location)), parameter=change.location.parameter,
            scope=change.location.scope, database=change.location.database, role=change.location.role, old=old,
            run=context.run, runbook=context.runbook, directory=context.run_directory, who=context.confirmed_by,
            at_us=context.clock.wall_us(), target=context.target, target_key=context.target_key, server=server,
            boot_id=server_boot_id(context), stats_reset_us=counts.since_us, server_us=counts.now_us,
        )  # fmt: skip
        reverts.append(add_new_value(revert, change.value))
    save(reverts_directory(context), reverts, context)


def read_revert_state(connection: ServerConnection, revert: PendingRevert) -> RevertState:
    """How it stands on the server. Raises ConnectError, StatementFailed."""
    location = location_of(revert)
    now = read_setting(connection, location.parameter)
    if now is None or find_missing_object(connection, location):
        return RevertState("gone", None)
    found = read_stored_value(connection, location)
    kind = (now["vartype"], now["unit"])
    if same_value(location.parameter, found, revert.old, *kind):
        if location.scope == "system" and restart_pending(connection, now):
            return RevertState("pending", found)
        return RevertState("unread" if needs_reload(location, revert.old, now) else "back", found)
    ours = any(same_value(location.parameter, found, value, *kind) for value in revert.new_values)
    return RevertState("changed" if ours else "altered", found)


def remove_reverted(
    context: ActionContext, connection: ServerConnection, locations: Sequence[ParameterLocation]
) -> None:
    """Strike out what this run owes and is as it was again: after an undo, or where nothing came of the change."""
    try:
        reverts = [debt for debt in reverts_of_server(context, connection.read_identity()) if debt.run == context.run]
    except OSError:
        return  # it is looked at again with the next reading
    for revert in reverts:
        if location_of(revert) in locations and read_revert_state(connection, revert).state in ("back", "gone"):
            remove(reverts_directory(context), revert)


def describe_revert(revert: PendingRevert) -> str:
    """A debt in words."""
    was = "nothing was set" if revert.old is None else f"it was {revert.old!r}"
    return f"{describe_setting(location_of(revert), revert.new)}; {was}"


def revert_row(revert: PendingRevert, state: RevertState) -> dict[str, Any]:
    """A debt as the operator is shown it."""
    return {
        "parameter": revert.parameter, "where": location_of(revert).describe(), "found": state.found,
        "before": revert.old,
        "state": state.state, "run": revert.run, "id": revert.id,
    }  # fmt: skip


def _find_by_location(reverts: Sequence[PendingRevert], location: ParameterLocation) -> PendingRevert | None:
    return next((revert for revert in reverts if _location_key(location_of(revert)) == _location_key(location)), None)


def _location_key(location: ParameterLocation) -> tuple[str, str, str | None, str | None]:
    return location.parameter.lower(), location.scope, location.database, location.role
