"""Temporary settings that must be reverted: their files, their state on the server, and the action put-back.

A pending revert is saved before its setting is changed, and removed after the old value was read back.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from dba_console.actions.acting_connection import ActingConnection
from dba_console.actions.action import Action, ActionContext, ActionResult, Control
from dba_console.actions.action_preview import ActionPreview
from dba_console.actions.identity import ServerIdentity, host_identity
from dba_console.actions.parameter_check import (
    ParameterChange,
    Refusal,
    apply_changes,
    describe_setting,
    disables_durability,
    needs_reload,
    reload,
    start_safe_order,
)
from dba_console.actions.parameter_sql import (
    ParameterLocation,
    Scope,
    find_missing_object,
    read_setting,
    read_stored_value,
    restart_pending,
    same_value,
    set_statement,
)
from dba_console.actions.query_connection import QueryConnection
from dba_console.actions.statement_results import StatementFailed, StatementLost
from dba_console.core import paths
from dba_console.core.atomic_files import read_small, sync_directory, write_atomically
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
    scope: Scope = "system"
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

    @property
    def location(self) -> ParameterLocation:
        return ParameterLocation(parameter=self.parameter, scope=self.scope, database=self.database, role=self.role)

    @property
    def risky(self) -> bool:
        """Durability of the cluster is off until it is reverted."""
        return disables_durability(self.parameter, self.new)

    def describe(self) -> str:
        was = "it was not set" if self.old is None else f"it was {self.old!r}"
        return f"{describe_setting(self.location, self.new)}; {was}"

    def run_is_active(self) -> bool:
        """Whether its run is active: an agent has its journal open."""
        return bool(self.directory) and is_open(Path(self.directory))


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
    return paths.state_dir() / "reverts"


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


def save(directory: Path, reverts: Iterable[PendingRevert], context: ActionContext) -> None:
    """Write and sync them, each atomically. Raises RevertNotSaved: then nothing may be set."""
    wanted = list(reverts)
    lane = Lane("reverts", context.clock)
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


def _save(directory: Path, reverts: list[PendingRevert]) -> None:
    paths.private_dir(paths.private_dir(directory.parent) / directory.name)
    sync_directory(directory.parent)
    for revert in reverts:
        write_atomically(str(directory), f"{revert.id}.json", msgspec.json.format(msgspec.json.encode(revert)) + b"\n")


def _read(path: Path) -> PendingRevert:
    return from_json(read_small(path, SIZE_LIMIT + 1), PendingRevert)


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


def read_statistics_reset(connection: QueryConnection) -> StatisticsReset:
    """Read the statistics reset time from the server."""
    [row] = connection.rows(_STATISTICS_RESET)
    since_us = row["one_us"] if row["one_us"] == row["other_us"] else None
    return StatisticsReset(since_us, row["now_us"])


def data_trust(revert: PendingRevert, now: ServerIdentity, reset: StatisticsReset) -> str:
    """Return sound, untrusted or unknown: whether the data written without durability since then can be trusted.

    >>> a, b = ServerIdentity(server_start_us=1), ServerIdentity(server_start_us=50)
    >>> revert = PendingRevert(id="1", parameter="fsync", server=a, stats_reset_us=5, server_us=10)
    >>> servers = ((a, 5), (b, 5), (b, 51), (b, None))
    >>> [data_trust(revert, now, StatisticsReset(since, 90)) for now, since in servers]
    ['sound', 'sound', 'untrusted', 'unknown']
    """
    restarted = revert.server.server_start_us != now.server_start_us
    if reset.since_us is not None and reset.since_us == revert.stats_reset_us:
        return "sound"
    if reset.since_us is not None and reset.since_us > revert.server_us and restarted:
        return "untrusted"
    return "unknown" if restarted else "sound"


def worst_data_trust(reverts: Sequence[PendingRevert], connection: QueryConnection) -> str:
    """Return sound, untrusted or unknown: whether the data loaded while durability was off can be trusted."""
    risks = [revert for revert in reverts if revert.risky]
    if not risks:
        return "sound"
    now, reset = connection.read_identity(), read_statistics_reset(connection)
    found = {data_trust(revert, now, reset) for revert in risks}
    return next(word for word in ("untrusted", "unknown", "sound") if word in found)


# The state of pending reverts on the server.


class RevertState(NamedTuple):
    """A pending revert with its state on the server, and the value found there."""

    revert: PendingRevert
    state: str
    """changed, altered (by others), back, unread (needs a reload), pending (needs a restart), gone."""
    found: str | None


def reverts_of_server(context: ActionContext, now: ServerIdentity) -> list[PendingRevert]:
    """Return the pending reverts of this server, oldest first. Raises OSError."""
    return filter_by_server(read_all(reverts_directory(context)).reverts, now, context.target_key)


def refuse_changed_by_other_run(
    context: ActionContext, connection: QueryConnection, locations: Sequence[ParameterLocation]
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
    context: ActionContext, connection: QueryConnection, changes: Sequence[tuple[ParameterChange, str | None]]
) -> None:
    """Save the pending reverts: each change with its old value. Raises RevertNotSaved.

    If this run has changed the setting before, the value before its first change is kept.
    """
    server = connection.read_identity()
    boot_id = host_identity(context.proc).boot_id if context.server_is_local else ""
    try:
        known = reverts_of_server(context, server)
    except OSError:
        known = []  # saving below reports the reason
    counts = read_statistics_reset(connection)
    reverts = []
    for change, old in changes:
        revert = _find_by_location(known, change.location) or PendingRevert(
            id=_revert_id(context.run, server, change.location), **asdict(change.location), old=old,
            run=context.run, runbook=context.runbook, directory=context.run_directory, who=context.confirmed_by,
            at_us=context.clock.wall_us(), target=context.target, target_key=context.target_key, server=server,
            boot_id=boot_id, stats_reset_us=counts.since_us, server_us=counts.now_us,
        )  # fmt: skip
        if change.value not in revert.new_values:
            revert = replace(revert, new_values=(*revert.new_values, change.value))
        reverts.append(revert)
    save(reverts_directory(context), reverts, context)


def read_revert_state(connection: QueryConnection, revert: PendingRevert) -> RevertState:
    """Read the state from the server. Raises ConnectError, StatementFailed."""
    location = revert.location
    now = read_setting(connection, location.parameter)
    if now is None or find_missing_object(connection, location):
        return RevertState(revert, "gone", None)
    found, kind = read_stored_value(connection, location), (now["vartype"], now["unit"])
    if same_value(location.parameter, found, revert.old, *kind):
        if location.scope == "system" and restart_pending(connection, now):
            return RevertState(revert, "pending", found)
        return RevertState(revert, "unread" if needs_reload(location, revert.old, now) else "back", found)
    ours = any(same_value(location.parameter, found, value, *kind) for value in revert.new_values)
    return RevertState(revert, "changed" if ours else "altered", found)


def remove_reverted(
    context: ActionContext, connection: QueryConnection, locations: Sequence[ParameterLocation]
) -> None:
    """Remove this run's pending reverts that already have the old value: after an undo, or if the change failed."""
    try:
        reverts = [one for one in reverts_of_server(context, connection.read_identity()) if one.run == context.run]
    except OSError:
        return  # checked again at the next reading
    for revert in reverts:
        if revert.location in locations and read_revert_state(connection, revert).state in ("back", "gone"):
            remove(reverts_directory(context), revert)


def _find_by_location(reverts: Sequence[PendingRevert], location: ParameterLocation) -> PendingRevert | None:
    return next((revert for revert in reverts if _location_key(revert.location) == _location_key(location)), None)


def _revert_id(run: str, server: ServerIdentity, location: ParameterLocation) -> str:
    """Return an id that is equal for the same setting, location and run, so that it is saved once."""
    message = msgspec.json.encode((run, server.system_identifier, server.data_directory, _location_key(location)))
    return hashlib.sha256(message).hexdigest()[:20]


def _location_key(location: ParameterLocation) -> tuple[str, str, str | None, str | None]:
    return location.parameter.lower(), location.scope, location.database, location.role


# After fsync was off: write dirty pages to disk. The server does not sync files it wrote meanwhile; the kernel does.

FLUSH_TIMEOUT_S = 1800.0
"""Time for the kernel to write its dirty pages: a host full of them and a slow disk."""
_POLL_S = 0.5
SYNC_HINT = "run `sync` on its host: only then the data written meanwhile is safely on disk"


def checkpoint_and_sync(connection: ActingConnection, context: ActionContext, control: Control) -> str:
    """Run a checkpoint, then sync the host (PostgreSQL documentation, fsync); return the outcome as text.

    Never raises: a failure is reported together with what the operator must do instead.
    """
    now = read_setting(connection, "fsync")
    if now is None or now["shown"] != "on":
        return "fsync is still off"
    try:
        connection.execute_change("CHECKPOINT", transaction=False, timeout_s=FLUSH_TIMEOUT_S)
    except (StatementFailed, StatementLost) as error:
        return f"the checkpoint failed ({error.message}); run CHECKPOINT, and then {SYNC_HINT}"
    if not context.server_is_local:
        return f"checkpoint done; {SYNC_HINT}"
    done = threading.Event()

    def flush() -> None:
        os.sync()
        done.set()

    threading.Thread(target=flush, name="flush", daemon=True).start()
    deadline_us = context.clock.mono_us() + int(FLUSH_TIMEOUT_S * 1e6)
    while not done.wait(_POLL_S) and context.clock.mono_us() < deadline_us:
        control.report_progress("the kernel writes dirty pages to disk (sync)")
        if control.stop_requested():
            return f"stopped during sync; {SYNC_HINT}"
    return "data written meanwhile is on disk (checkpoint, sync)" if done.is_set() else SYNC_HINT


# The action put-back. After a kill it continues with the reverts still pending; nothing is set twice.

WhichRuns = Literal["over", "run"]
_RETURNING_STATES = ("changed", "unread", "back")
"""States in which the old value is in effect afterwards, or already."""
UNTRUSTED_TEXT = (
    "the server was restarted while {names} was off, without a clean shutdown before: the data in this cluster cannot "
    "be trusted, restore it from a backup"
)
UNKNOWN_TEXT = (
    "the server was restarted while {names} was off, and it is unknown whether it was shut down cleanly before: check "
    "its log; if it was not, the data in this cluster cannot be trusted"
)


class PutBackSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    of: WhichRuns = "over"
    """`over`: settings that ended runs left changed on this server; `run`: settings that this run changed."""
    altered: Literal["leave", "keep"] = "leave"
    """Settings changed by others since: `leave` keeps the pending revert and the finding; `keep` keeps the new value
    and removes the pending revert."""


class PutBack(Action):
    name: ClassVar[str] = "put-back"
    summary: ClassVar[str] = (
        "Reverts temporary settings (`temporary`) that runs left behind: after a failure, an abort, a kill, a "
        "reboot. Shows each parameter with its old value, restores exactly that, also `not set`, "
        "and removes the pending revert once the server shows the old value. Does not touch settings changed by others "
        "since, nor those of an active run. Reports if the "
        "server went down while fsync or full_page_writes was off."
    )
    Settings: ClassVar[type[Struct]] = PutBackSettings
    no_undo: ClassVar[str] = "reverted settings are not set again: set them with a new action if needed"
    may_shrink: ClassVar[bool] = True
    row_key: ClassVar[tuple[str, ...]] = ("id",)

    def preview(self, settings: PutBackSettings, context: ActionContext) -> ActionPreview:
        connection = context.require_connection()
        try:
            states, in_use, damaged = _read_pending(settings, context, connection)
        except OSError as error:
            why = f"the pending reverts cannot be read: {error}"
            return ActionPreview(text=f"{why}.", exact="", refusal=why)
        if in_use and not states:
            why, runs = _in_use_text(in_use), sorted({revert.run for revert in in_use})
            hint = f"to revert them now, end the run: dba-console runbook resume {runs[0]}, then /abort"
            return ActionPreview(text=f"{why}.", exact="", refusal=why, hint=hint)
        if damaged and not states:
            return ActionPreview(text="; ".join(damaged), exact="", refusal="; ".join(damaged), hint="read those files")
        changes = _changes_to_make(states)
        texts = [set_statement(change.location, change.value).strip() for change in start_safe_order(changes)]
        if any(one.revert.scope == "system" and one.state in ("changed", "unread") for one in states):
            texts.append("SELECT pg_reload_conf()")
        sentences = _preview_sentences(states, connection, settings, damaged)
        return ActionPreview(
            text=" ".join([*sentences, *([f"{_in_use_text(in_use)}."] if in_use else [])]),
            exact="; ".join(texts) or "no change",
            values={"pending": len(states), "to_set": len(changes)},
            count=len(states),
            rows=tuple(_row(one) for one in states),
            done=all(_is_left_alone(one, settings) for one in states),
        )

    def act(
        self, settings: PutBackSettings, preview: ActionPreview, context: ActionContext, control: Control
    ) -> ActionResult:
        connection = context.require_connection()
        states = _shown_states(settings, preview, context, connection)
        warnings = _data_trust_warnings(states, connection)
        texts: list[str] = []
        changes = _changes_to_make(states)
        if changes:
            texts += [one.text for one in apply_changes(connection, changes, context, control)]
        elif any(one.state == "unread" for one in states):
            try:
                reload(connection, context, control)
            except (StatementFailed, StatementLost) as error:
                return ActionResult(state="failed", text=f"the server did not reload its files: {error.message}")
        if any(one.revert.risky and one.state in _RETURNING_STATES for one in states):
            texts.append(checkpoint_and_sync(connection, context, control))
        left = _remove_done(settings, context, connection, [one.revert for one in states], texts)
        state = "ok" if not left else "failed"
        return ActionResult(state=state, text="; ".join([*texts, *left, *warnings]), values={"pending": len(left)})

    def settle(self, settings: PutBackSettings, preview: ActionPreview, context: ActionContext) -> ActionResult:
        """Uses the reverts still pending: the action can be repeated for them."""
        connection = context.require_connection()
        reverts = [one.revert for one in _shown_states(settings, preview, context, connection)]
        texts: list[str] = []
        left = _remove_done(settings, context, connection, [one for one in reverts if not one.risky], texts)
        # Only a complete `act` flushes what was written while fsync was off.
        left += [f"{one.parameter} must be checked again" for one in reverts if one.risky]
        text = "; ".join([*texts, *left]) or "everything is reverted"
        return ActionResult(
            state="failed" if left else "ok", text=text, values={"pending": len(left)}, again=bool(left)
        )


class _PendingReverts(NamedTuple):
    states: list[RevertState]
    """Those to revert, newest first."""
    in_use: list[PendingRevert]
    """Those of other active runs, which revert them."""
    damaged: tuple[str, ...]
    """Messages about unreadable ones."""


def _read_pending(settings: PutBackSettings, context: ActionContext, connection: QueryConnection) -> _PendingReverts:
    """Return the pending reverts of this server. Raises OSError."""
    found = read_all(reverts_directory(context))
    reverts = filter_by_server(found.reverts, connection.read_identity(), context.target_key)
    if settings.of == "run":
        reverts = [revert for revert in reverts if revert.run == context.run]
    in_use = [revert for revert in reverts if revert.run != context.run and revert.run_is_active()]
    states = [read_revert_state(connection, revert) for revert in reversed(reverts) if revert not in in_use]
    return _PendingReverts(states, in_use, found.damaged)


def _shown_states(
    settings: PutBackSettings, preview: ActionPreview, context: ActionContext, connection: QueryConnection
) -> list[RevertState]:
    """Return the current states of those in the preview."""
    shown = {row["id"] for row in preview.rows}
    return [one for one in _read_pending(settings, context, connection).states if one.revert.id in shown]


def _data_trust_warnings(states: Sequence[RevertState], connection: QueryConnection) -> list[str]:
    names = " and ".join(one.revert.parameter for one in states if one.revert.risky)
    word = worst_data_trust([one.revert for one in states], connection)
    return [{"untrusted": UNTRUSTED_TEXT, "unknown": UNKNOWN_TEXT}[word].format(names=names)] if word != "sound" else []


def _in_use_text(in_use: Sequence[PendingRevert]) -> str:
    names, runs = ", ".join(revert.parameter for revert in in_use), ", ".join(sorted({one.run for one in in_use}))
    return f"{names} set by run {runs}, which is active and reverts it when it ends"


def _changes_to_make(states: Sequence[RevertState]) -> list[ParameterChange]:
    return [ParameterChange(one.revert.location, one.revert.old) for one in states if one.state == "changed"]


def _is_left_alone(one: RevertState, settings: PutBackSettings) -> bool:
    """Whether nothing is done about it."""
    return one.state == "pending" or (one.state == "altered" and settings.altered == "leave")


def _row(one: RevertState) -> dict[str, Any]:
    """Return the pending revert as a row for the operator."""
    revert = one.revert
    return {
        "parameter": revert.parameter, "where": revert.location.describe(), "found": one.found, "before": revert.old,
        "state": one.state, "run": revert.run, "id": revert.id,
    }  # fmt: skip


def _remove_done(
    settings: PutBackSettings,
    context: ActionContext,
    connection: QueryConnection,
    reverts: Sequence[PendingRevert],
    texts: list[str],
) -> list[str]:
    """Remove the reverts that are done; return the remaining ones as text. Adds notes on the others to `texts`."""
    left = []
    for revert in reverts:
        try:
            now = read_revert_state(connection, revert)
        except ConsoleError as error:
            left.append(f"{revert.parameter} could not be checked: {error.message}")
            continue
        if now.state == "pending":
            texts.append(f"{revert.parameter} is reverted in its file, and pending until a restart of the server")
            continue
        if now.state == "altered" and settings.altered == "keep":
            texts.append(f"{revert.parameter} stays {now.found!r}, as set by others since")
        elif now.state == "altered":
            left.append(f"{revert.parameter} is {now.found!r}, which no run has set: the operator must decide")
            continue
        elif now.state == "gone":
            texts.append(f"{revert.parameter} {revert.location.describe()}: no longer exists, nothing to revert")
        elif now.state != "back":
            left.append(f"{revert.describe()}: not reverted yet")
            continue
        if (trouble := remove(reverts_directory(context), revert)) is not None:
            left.append(trouble)
    return left


def _preview_sentences(
    states: Sequence[RevertState], connection: QueryConnection, settings: PutBackSettings, damaged: Sequence[str]
) -> list[str]:
    if not states:
        return ["This server has no pending reverts."]
    runs = sorted({one.revert.run or "?" for one in states})
    sentences = [f"{len(states)} settings of {', '.join(runs)}: {'; '.join(one.revert.describe() for one in states)}."]
    for state, words in (
        ("altered", "changed by others since: {0}, not touched until the operator decides"),
        ("pending", "{0} is reverted already and takes effect at the next restart"),
        ("back", "{0} already has its old value"),
        ("gone", "{0} cannot be reverted: its database, role or parameter no longer exists"),
    ):
        if named := [one.revert.parameter for one in states if one.state == state]:
            sentences.append(f"{words.format(', '.join(named))}.")
    if settings.altered == "keep" and any(one.state == "altered" for one in states):
        sentences.append("values set by others since are kept.")
    sentences += [f"{one}." for one in (*_data_trust_warnings(states, connection), *damaged)]
    return [f"{one[0].upper()}{one[1:]}" for one in sentences]
