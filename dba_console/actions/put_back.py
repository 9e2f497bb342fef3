"""The action put-back: revert temporary settings of runs exactly, and verify each before it counts as reverted.

After a kill it continues with the reverts still pending; nothing is set twice. A setting changed by others since is
left for the operator to decide.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

from msgspec import Struct

from dba_console.actions import temporary_settings
from dba_console.actions.action import ActionContext, ActionPreview, ActionResult, Control
from dba_console.actions.connection_api import ServerConnection, StatementFailed, StatementLost, require_connection
from dba_console.actions.parameter_check import (
    ParameterChange,
    apply_changes,
    disables_durability,
    reload,
    start_safe_order,
)
from dba_console.actions.parameter_sql import read_setting, set_statement
from dba_console.actions.temporary_settings import (
    PendingRevert,
    RevertState,
    describe_revert,
    filter_by_server,
    location_of,
    read_all,
    read_revert_state,
    remove,
    revert_row,
    reverts_directory,
    run_is_active,
)
from dba_console.core.errors import ConsoleError

# After fsync was off: write dirty pages to disk. The server does not sync files it wrote meanwhile; the kernel does.

FLUSH_TIMEOUT_S = 1800.0
"""Time for the kernel to write its dirty pages: a host full of them and a slow disk."""
_POLL_S = 0.5
SYNC_HINT = "run `sync` on its host: only then the data written meanwhile is safely on disk"


def checkpoint_and_sync(connection: ServerConnection, context: ActionContext, control: Control) -> str:
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


class CheckedRevert(NamedTuple):
    """A pending revert with its state."""

    revert: PendingRevert
    state: RevertState


class PutBack:
    """Implements `Action`."""

    name: ClassVar[str] = "put-back"
    summary: ClassVar[str] = (
        "Reverts temporary settings (`temporary`) that runs left behind: after a failure, an abort, a kill, a "
        "reboot. Shows each parameter with its old value, restores exactly that, also `not set`, "
        "and removes the pending revert once the server shows the old value. Does not touch settings changed by others "
        "since, nor those of an active run. Reports if the "
        "server went down while fsync or full_page_writes was off."
    )
    Settings: ClassVar[type[Struct]] = PutBackSettings
    needs_server: ClassVar[bool] = True
    needs_root: ClassVar[bool] = False
    undoable: ClassVar[bool] = False
    may_shrink: ClassVar[bool] = True
    row_key: ClassVar[tuple[str, ...]] = ("id",)

    def preview(self, settings: PutBackSettings, context: ActionContext) -> ActionPreview:
        connection = require_connection(context)
        try:
            pending, damaged = _read_pending(settings, context, connection)
            in_use = _read_in_use(settings, context, connection)
        except OSError as error:
            why = f"the pending reverts cannot be read: {error}"
            return ActionPreview(text=f"{why}.", exact="", refusal=why)
        if in_use and not pending:
            why, runs = _in_use_text(in_use), sorted({revert.run for revert in in_use})
            hint = f"to revert them now, end the run: dba-console runbook resume {runs[0]}, then /abort"
            return ActionPreview(text=f"{why}.", exact="", refusal=why, hint=hint)
        if damaged and not pending:
            return ActionPreview(text="; ".join(damaged), exact="", refusal="; ".join(damaged), hint="read those files")
        changes = _changes_to_make(pending)
        texts = [set_statement(change.location, change.value).strip() for change in start_safe_order(changes)]
        reload = any(one.revert.scope == "system" and one.state.state in ("changed", "unread") for one in pending)
        return ActionPreview(
            text=" ".join(
                [
                    *_preview_sentences(pending, connection, settings, damaged),
                    *([f"{_in_use_text(in_use)}."] if in_use else []),
                ]
            ),
            exact="; ".join([*texts, *(["SELECT pg_reload_conf()"] if reload else [])]) or "no change",
            values={"owed": len(pending), "to_set": len(changes)},
            count=len(pending),
            rows=tuple(revert_row(*one) for one in pending),
            done=all(_is_left_alone(one, settings) for one in pending),
        )

    def act(
        self, settings: PutBackSettings, preview: ActionPreview, context: ActionContext, control: Control
    ) -> ActionResult:
        connection = require_connection(context)
        shown = {row["id"] for row in preview.rows}
        pending, _ = _read_pending(settings, context, connection)
        pending = [one for one in pending if one.revert.id in shown]
        warnings = _data_trust_warnings(pending, connection)
        texts: list[str] = []
        changes = _changes_to_make(pending)
        if changes:
            outcomes = apply_changes(connection, changes, context, control)
            texts += [one.text for one in outcomes]
        elif any(one.state.state == "unread" for one in pending):
            try:
                reload(connection, context, control)
            except (StatementFailed, StatementLost) as error:
                return ActionResult(state="failed", text=f"the server did not reload its files: {error.message}")
        if any(
            disables_durability(one.revert.parameter, one.revert.new) and one.state.state in _RETURNING_STATES
            for one in pending
        ):
            texts.append(checkpoint_and_sync(connection, context, control))
        left = _remove_reverted(settings, context, connection, [one.revert for one in pending], texts)
        state = "ok" if not left else "failed"
        return ActionResult(state=state, text="; ".join([*texts, *left, *warnings]), values={"owed": len(left)})

    def settle(self, settings: PutBackSettings, preview: ActionPreview, context: ActionContext) -> ActionResult:
        """Uses the reverts still pending: the action can be repeated for them."""
        connection = require_connection(context)
        shown = {row["id"] for row in preview.rows}
        reverts = [one.revert for one in _read_pending(settings, context, connection)[0] if one.revert.id in shown]
        texts: list[str] = []
        left = _remove_reverted(
            settings,
            context,
            connection,
            [one for one in reverts if not disables_durability(one.parameter, one.new)],
            texts,
        )
        # Only a complete `act` flushes what was written while fsync was off.
        left += [
            f"{one.parameter} must be checked again" for one in reverts if disables_durability(one.parameter, one.new)
        ]
        text = "; ".join([*texts, *left]) or "everything is reverted"
        return ActionResult(state="failed" if left else "ok", text=text, values={"owed": len(left)}, again=bool(left))

    def undo(
        self, settings: PutBackSettings, data: Mapping[str, Any], context: ActionContext, control: Control
    ) -> ActionResult:
        return ActionResult(
            state="failed", text="reverted settings are not set again: set them with a new action if needed"
        )


def worst_data_trust(reverts: Sequence[PendingRevert], connection: ServerConnection) -> str:
    """Return sound, untrusted or unknown: whether the data loaded while durability was off can be trusted."""
    risks = [revert for revert in reverts if disables_durability(revert.parameter, revert.new)]
    if not risks:
        return "sound"
    now, counts = connection.read_identity(), temporary_settings.read_statistics_reset(connection)
    found = {temporary_settings.data_trust(one.stats_reset_us, one.server_us, one.server, now, counts) for one in risks}
    return next(word for word in ("untrusted", "unknown", "sound") if word in found)


def _data_trust_warnings(pending: Sequence[CheckedRevert], connection: ServerConnection) -> list[str]:
    names = " and ".join(
        one.revert.parameter for one in pending if disables_durability(one.revert.parameter, one.revert.new)
    )
    word = worst_data_trust([one.revert for one in pending], connection)
    return [{"untrusted": UNTRUSTED_TEXT, "unknown": UNKNOWN_TEXT}[word].format(names=names)] if word != "sound" else []


def _read_pending(
    settings: PutBackSettings, context: ActionContext, connection: ServerConnection
) -> tuple[list[CheckedRevert], tuple[str, ...]]:
    """Return the pending reverts, newest first, and messages about unreadable ones."""
    found = read_all(reverts_directory(context))
    reverts = filter_by_server(found.reverts, connection.read_identity(), context.target_key)
    if settings.of == "run":
        mine = [revert for revert in reverts if revert.run == context.run]
    else:
        mine = [revert for revert in reverts if revert.run == context.run or not run_is_active(revert)]
    return [CheckedRevert(revert, read_revert_state(connection, revert)) for revert in reversed(mine)], found.damaged


def _read_in_use(
    settings: PutBackSettings, context: ActionContext, connection: ServerConnection
) -> list[PendingRevert]:
    """Return the settings of other active runs on this server, which revert them. Raises OSError."""
    if settings.of == "run":
        return []
    reverts = filter_by_server(
        read_all(reverts_directory(context)).reverts, connection.read_identity(), context.target_key
    )
    return [revert for revert in reverts if revert.run != context.run and run_is_active(revert)]


def _in_use_text(in_use: Sequence[PendingRevert]) -> str:
    names, runs = ", ".join(revert.parameter for revert in in_use), ", ".join(sorted({one.run for one in in_use}))
    return f"{names} set by run {runs}, which is active and reverts it when it ends"


def _changes_to_make(pending: Sequence[CheckedRevert]) -> list[ParameterChange]:
    return [ParameterChange(location_of(one.revert), one.revert.old) for one in pending if one.state.state == "changed"]


def _is_left_alone(one: CheckedRevert, settings: PutBackSettings) -> bool:
    """Whether nothing is done about it."""
    return one.state.state == "pending" or (one.state.state == "altered" and settings.altered == "leave")


def _remove_reverted(
    settings: PutBackSettings,
    context: ActionContext,
    connection: ServerConnection,
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
            texts.append(f"{revert.parameter} {location_of(revert).describe()}: no longer exists, nothing to revert")
        elif now.state != "back":
            left.append(f"{describe_revert(revert)}: not reverted yet")
            continue
        if (trouble := remove(reverts_directory(context), revert)) is not None:
            left.append(trouble)
    return left


def _preview_sentences(
    pending: Sequence[CheckedRevert], connection: ServerConnection, settings: PutBackSettings, damaged: Sequence[str]
) -> list[str]:
    if not pending:
        return ["This server has no pending reverts."]
    runs = sorted({one.revert.run or "?" for one in pending})
    sentences = [
        f"{len(pending)} settings of {', '.join(runs)}: {'; '.join(describe_revert(one.revert) for one in pending)}."
    ]
    for state, words in (
        ("altered", "changed by others since: {0}, not touched until the operator decides"),
        ("pending", "{0} is reverted already and takes effect at the next restart"),
        ("back", "{0} already has its old value"),
        ("gone", "{0} cannot be reverted: its database, role or parameter no longer exists"),
    ):
        if named := [one.revert.parameter for one in pending if one.state.state == state]:
            sentences.append(f"{words.format(', '.join(named))}.")
    if settings.altered == "keep" and any(one.state.state == "altered" for one in pending):
        sentences.append("values set by others since are kept.")
    sentences += [f"{one}." for one in (*_data_trust_warnings(pending, connection), *damaged)]
    return [f"{one[0].upper()}{one[1:]}" for one in sentences]
