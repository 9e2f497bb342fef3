"""Pending reverts of temporary settings: saved before a setting is changed, removed after the old value was read back.

Also the check whether the server crashed while durability was off.
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

# Pending reverts on disk, written before the setting is changed.
#
# One file each, in the state directory, so that a kill or a reboot can damage at most one, and agents of other sessions
# and other spellings of the target find it too. The file is removed only after the old value was read back from the
# server; removing it twice is harmless.

WRITE_TIMEOUT_S = 15.0
"""Time to write and sync a small file. A disk that takes longer is stalled, and nothing is set."""
SIZE_LIMIT = 1 << 20
"""Maximum bytes of one file; values are far shorter."""


class PendingRevert(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One setting that must be reverted."""

    id: str
    parameter: str
    scope: str = "system"
    database: str | None = None
    role: str | None = None
    old: str | None = None
    """The exact old value in that location; None: it was not set there."""
    new_values: tuple[str | None, ...] = ()
    """Values set by the run, newest last; None: reset."""
    run: str = ""
    runbook: str = ""
    directory: str = ""
    """Directory of the run."""
    who: str = ""
    at_us: int = 0
    """Host wall time before it was first set."""
    target: str = ""
    target_key: str = ""
    server: ServerIdentity
    boot_id: str = ""
    """Boot of the run's host; empty if the server was not proven to run there."""
    stats_reset_us: int | None = None
    """Reset time of the server's statistics then (see `data_trust`): a crash resets them, a clean shutdown does not."""
    server_us: int = 0
    """The server's clock at `at_us`."""
    version: int = 1

    @property
    def new(self) -> str | None:
        return self.new_values[-1] if self.new_values else None


class RevertNotSaved(ConsoleError):
    """A pending revert could not be saved, so nothing was set."""

    code = ExitCode.SESSION


class StoredReverts(NamedTuple):
    """The pending reverts of the directory, oldest first, and messages about unreadable files."""

    reverts: tuple[PendingRevert, ...]
    damaged: tuple[str, ...]


def reverts_directory(context: ActionContext) -> Path:
    """Return the directory of pending reverts for this context."""
    return default_directory() if context.reverts_directory is None else Path(context.reverts_directory)


def default_directory() -> Path:
    """Return the default directory: it survives a reboot, and belongs to no session that may be pruned."""
    return paths.state_dir() / "debts"


def revert_id(run: str, server: ServerIdentity, place: tuple[str, str, str | None, str | None]) -> str:
    """Return an id that is equal for the same setting, location and run, so that it is saved once."""
    message = msgspec.json.encode((run, server.system_identifier, server.data_directory, place))
    return hashlib.sha256(message).hexdigest()[:20]


def read_all(directory: Path) -> StoredReverts:
    """Return all pending reverts. Raises OSError if the directory exists but cannot be read."""
    try:
        names = sorted(name for name in os.listdir(directory) if name.endswith(".json") and not name.startswith("."))
    except FileNotFoundError:
        return StoredReverts((), ())
    reverts, damaged = [], []
    for name in names:
        try:
            reverts.append(_read(directory / name))
        except FileNotFoundError:
            continue  # removed meanwhile
        except (OSError, msgspec.MsgspecError, ValueError) as error:
            damaged.append(f"{directory / name} cannot be read: {error}")
    return StoredReverts(tuple(sorted(reverts, key=lambda revert: (revert.at_us, revert.id))), tuple(damaged))


def filter_by_server(
    reverts: Iterable[PendingRevert], now: ServerIdentity | None, target_key: str
) -> list[PendingRevert]:
    """Return those of this server; if its identity is unknown, those of the target.

    A copy of the files has the system identifier of its original; then the data directory distinguishes the two.
    """
    return [revert for revert in reverts if _same_server(revert, now, target_key)]


def run_is_active(revert: PendingRevert) -> bool:
    """Whether the run is active: an agent has its journal open."""
    return bool(revert.directory) and is_open(Path(revert.directory))


def save(directory: Path, reverts: Iterable[PendingRevert], context: ActionContext) -> None:
    """Write and sync them, each atomically. Raises RevertNotSaved: then nothing may be set."""
    wanted = list(reverts)
    lane = Lane("debts", context.clock)
    try:
        lane.call(lambda: _save(directory, wanted), WRITE_TIMEOUT_S)
    except LaneTimeout:
        raise RevertNotSaved(
            f"the pending reverts could not be saved to {directory} within {WRITE_TIMEOUT_S:g} s: nothing was set",
            hint="the disk is stalled; temporary settings need a saved revert",
        ) from None
    except (OSError, ConsoleError) as error:
        raise RevertNotSaved(
            f"the pending reverts cannot be saved to {directory}: {error}; nothing was set",
            hint="free space there, or set $XDG_STATE_HOME to another directory",
        ) from None
    finally:
        lane.close()


def remove(directory: Path, revert: PendingRevert) -> str | None:
    """Remove a reverted one. Return None, or why its file is still there.

    A remaining file is harmless: the next check finds nothing left to revert.
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
    """Return the pending revert after another change by the same run."""
    return revert if value in revert.new_values else replace(revert, new_values=(*revert.new_values, value))


def server_boot_id(context: ActionContext) -> str:
    """Return the boot id of the server's host; empty if the server is not local."""
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
        return False  # its standby or primary, which may have the same data directory path
    directories = (was.data_directory, now.data_directory)
    return None in directories or directories[0] == directories[1]


# Crash detection: whether the server was shut down cleanly since some time, or crashed.
#
# After a crash the server resets all cumulative statistics at the same microsecond (pgstat_reset_after_failure in
# pgstat.c from 15 on; the statistics collector's lost file before). Statistics reset by a user have different times.

_STATISTICS_RESET = """
SELECT (extract(epoch FROM b.stats_reset) * 1000000)::int8 AS one_us,
       (extract(epoch FROM a.stats_reset) * 1000000)::int8 AS other_us,
       (extract(epoch FROM pg_catalog.clock_timestamp()) * 1000000)::int8 AS now_us
  FROM pg_catalog.pg_stat_bgwriter b, pg_catalog.pg_stat_archiver a
"""


class StatisticsReset(NamedTuple):
    """Reset time of all statistics (None: not one common time) and current time, both by the server's clock."""

    since_us: int | None
    now_us: int


def read_statistics_reset(connection: ServerConnection) -> StatisticsReset:
    """Read the statistics reset time from the server."""
    [row] = connection.rows(_STATISTICS_RESET)
    since_us = row["one_us"] if row["one_us"] == row["other_us"] else None
    return StatisticsReset(since_us, row["now_us"])


def data_trust(
    was_us: int | None, at_us: int, began: ServerIdentity, now: ServerIdentity, reset: StatisticsReset
) -> str:
    """Return sound, untrusted or unknown: whether the data written without durability since then can be trusted.

    `was_us`, `at_us`, `began`: statistics reset time, server clock and identity then; `now`: the identity now.

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
    """State of a pending revert on the server, and the value found there."""

    state: str
    """changed, altered (by others), back, unread (needs a reload), pending (needs a restart), gone."""
    found: str | None


def location_of(revert: PendingRevert) -> ParameterLocation:
    """Return the parameter location."""
    return ParameterLocation(parameter=revert.parameter, scope=revert.scope, database=revert.database, role=revert.role)  # type: ignore[arg-type]  # as it was written


def reverts_of_server(context: ActionContext, now: ServerIdentity) -> list[PendingRevert]:
    """Return the pending reverts of this server, oldest first. Raises OSError."""
    return filter_by_server(read_all(reverts_directory(context)).reverts, now, context.target_key)


def refuse_changed_by_other_run(
    context: ActionContext, connection: ServerConnection, locations: Sequence[ParameterLocation]
) -> Refusal:
    """Refuse settings temporarily changed by another run: the original value would no longer be known."""
    try:
        reverts = reverts_of_server(context, connection.read_identity())
    except OSError as error:
        return f"the pending reverts cannot be read: {error}", "temporary settings need them"
    for location in locations:
        revert = _find_by_location(reverts, location)
        if revert is not None and revert.run != context.run:
            return f"{revert.parameter} is still changed by run {revert.run}", "revert it first with runbook put-back"
    return None, None


def save_reverts(
    context: ActionContext, connection: ServerConnection, changes: Sequence[tuple[ParameterChange, str | None]]
) -> None:
    """Save the pending reverts: each change with its old value. Raises RevertNotSaved.

    If this run has changed the setting before, the value before its first change is kept.
    """
    server = connection.read_identity()
    try:
        known = reverts_of_server(context, server)
    except OSError:
        known = []  # saving below reports the reason
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
    """Read the state from the server. Raises ConnectError, StatementFailed."""
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
    """Remove this run's pending reverts that already have the old value: after an undo, or if the change failed."""
    try:
        reverts = [one for one in reverts_of_server(context, connection.read_identity()) if one.run == context.run]
    except OSError:
        return  # checked again at the next reading
    for revert in reverts:
        if location_of(revert) in locations and read_revert_state(connection, revert).state in ("back", "gone"):
            remove(reverts_directory(context), revert)


def describe_revert(revert: PendingRevert) -> str:
    """Return the pending revert as text."""
    was = "it was not set" if revert.old is None else f"it was {revert.old!r}"
    return f"{describe_setting(location_of(revert), revert.new)}; {was}"


def revert_row(revert: PendingRevert, state: RevertState) -> dict[str, Any]:
    """Return the pending revert as a row for the operator."""
    return {
        "parameter": revert.parameter, "where": location_of(revert).describe(), "found": state.found,
        "before": revert.old,
        "state": state.state, "run": revert.run, "id": revert.id,
    }  # fmt: skip


def _find_by_location(reverts: Sequence[PendingRevert], location: ParameterLocation) -> PendingRevert | None:
    return next((revert for revert in reverts if _location_key(location_of(revert)) == _location_key(location)), None)


def _location_key(location: ParameterLocation) -> tuple[str, str, str | None, str | None]:
    return location.parameter.lower(), location.scope, location.database, location.role
