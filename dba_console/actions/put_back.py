"""Put back what runs have changed for a time: each setting exactly as it was, looked at before it counts as done.

Killed anywhere it is begun again from what is still owed: what is back already is struck out, and nothing is set twice.
What somebody else has changed since is left for a person to decide.
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

# What was written while fsync was off, brought to the disk: the server forgets such files, the kernel does not.

FLUSH_TIMEOUT_S = 1800.0
"""For the kernel to write what it holds: a host full of dirty pages and a slow disk."""
_POLL_S = 0.5
SYNC_HINT = "run `sync` on its host: only then what was written meanwhile is on the disk for certain"


def checkpoint_and_sync(connection: ServerConnection, context: ActionContext, control: Control) -> str:
    """A checkpoint, and then everything the kernel holds (PostgreSQL documentation, fsync); what came of it.

    Never fails: what could not be done is said with what a person does instead.
    """
    now = read_setting(connection, "fsync")
    if now is None or now["shown"] != "on":
        return "fsync is still off"
    try:
        connection.execute_change("CHECKPOINT", transaction=False, timeout_s=FLUSH_TIMEOUT_S)
    except (StatementFailed, StatementLost) as error:
        return f"no checkpoint could be made ({error.message}); make one, and then {SYNC_HINT}"
    if not context.server_is_local:
        return f"a checkpoint was made; {SYNC_HINT}"
    done = threading.Event()

    def flush() -> None:
        os.sync()
        done.set()

    threading.Thread(target=flush, name="flush", daemon=True).start()
    deadline_us = context.clock.mono_us() + int(FLUSH_TIMEOUT_S * 1e6)
    while not done.wait(_POLL_S) and context.clock.mono_us() < deadline_us:
        control.report_progress("the kernel writes what it holds to the disks (sync)")
        if control.stop_requested():
            return f"stopped while the kernel wrote; {SYNC_HINT}"
    return "what was written meanwhile is on the disk (checkpoint, sync)" if done.is_set() else SYNC_HINT


WhichRuns = Literal["over", "run"]
_RETURNING_STATES = ("changed", "unread", "back")
"""As it was again after this, or already."""
UNTRUSTED_TEXT = (
    "the server was started anew while {names} was off, and it had not been shut down in order before: what is in this "
    "cluster cannot be trusted, restore it anew"
)
UNKNOWN_TEXT = (
    "the server was started anew while {names} was off, and whether it had been shut down in order cannot be told: its "
    "log says it; if it had not, what is in this cluster cannot be trusted"
)


class PutBackSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    of: WhichRuns = "over"
    """`over`: what runs that are over have left changed on this server; `run`: what this run has changed."""
    altered: Literal["leave", "keep"] = "leave"
    """What somebody has set otherwise since: `leave` it, and go on telling of it; `keep` it for good, and forget what
    was there before."""


class CheckedRevert(NamedTuple):
    """A debt, and how it stands."""

    revert: PendingRevert
    state: RevertState


class PutBack:
    """Implements `Action`."""

    name: ClassVar[str] = "put-back"
    summary: ClassVar[str] = (
        "Puts back what runs have set for a time (`temporary`) and left so: after a failure, an abort, a kill, a "
        "reboot. Shows each parameter with what was there before, restores exactly that, also that nothing was set, "
        "and strikes it out once the server says so. Leaves alone what somebody has changed since, "
        "and what a run under way has set and still needs. Says where the "
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
            why = f"what is to be put back cannot be read: {error}"
            return ActionPreview(text=f"{why}.", exact="", refusal=why)
        if in_use and not pending:
            why, runs = _in_use_text(in_use), sorted({revert.run for revert in in_use})
            hint = f"to have them back now, end it: dba-console runbook resume {runs[0]}, then /abort"
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
            exact="; ".join([*texts, *(["SELECT pg_reload_conf()"] if reload else [])]) or "nothing is set",
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
                return ActionResult(state="failed", text=f"the server was not told to read its files: {error.message}")
        if any(
            disables_durability(one.revert.parameter, one.revert.new) and one.state.state in _RETURNING_STATES
            for one in pending
        ):
            texts.append(checkpoint_and_sync(connection, context, control))
        left = _remove_reverted(settings, context, connection, [one.revert for one in pending], texts)
        state = "ok" if not left else "failed"
        return ActionResult(state=state, text="; ".join([*texts, *left, *warnings]), values={"owed": len(left)})

    def settle(self, settings: PutBackSettings, preview: ActionPreview, context: ActionContext) -> ActionResult:
        """By what is still owed: whatever was done is done, and the rest can be done again."""
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
        # What was written while fsync was off is flushed by a whole act only.
        left += [
            f"{one.parameter} is to be looked at once more"
            for one in reverts
            if disables_durability(one.parameter, one.new)
        ]
        text = "; ".join([*texts, *left]) or "everything is put back"
        return ActionResult(state="failed" if left else "ok", text=text, values={"owed": len(left)}, again=bool(left))

    def undo(
        self, settings: PutBackSettings, data: Mapping[str, Any], context: ActionContext, control: Control
    ) -> ActionResult:
        return ActionResult(
            state="failed", text="what was put back is not taken out again: set it anew where it is meant"
        )


def worst_data_trust(reverts: Sequence[PendingRevert], connection: ServerConnection) -> str:
    """sound, untrusted or unknown: of what was loaded while durability was off, as far as the server can tell."""
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
    """What is to be put back, the last first; and what cannot be read of it."""
    found = read_all(reverts_directory(context))
    reverts = filter_by_server(found.reverts, connection.read_identity(), context.target_key)
    if settings.of == "run":
        mine = [revert for revert in reverts if revert.run == context.run]
    else:
        mine = [debt for debt in reverts if debt.run == context.run or not run_is_active(debt)]
    return [CheckedRevert(debt, read_revert_state(connection, debt)) for debt in reversed(mine)], found.damaged


def _read_in_use(
    settings: PutBackSettings, context: ActionContext, connection: ServerConnection
) -> list[PendingRevert]:
    """What other runs that are under way have set on this server: it is left to them. Raises OSError."""
    if settings.of == "run":
        return []
    reverts = filter_by_server(
        read_all(reverts_directory(context)).reverts, connection.read_identity(), context.target_key
    )
    return [revert for revert in reverts if revert.run != context.run and run_is_active(revert)]


def _in_use_text(in_use: Sequence[PendingRevert]) -> str:
    names, runs = ", ".join(revert.parameter for revert in in_use), ", ".join(sorted({debt.run for debt in in_use}))
    return f"{names} set by run {runs}, which is under way and puts it back itself when it ends"


def _changes_to_make(pending: Sequence[CheckedRevert]) -> list[ParameterChange]:
    return [ParameterChange(location_of(one.revert), one.revert.old) for one in pending if one.state.state == "changed"]


def _is_left_alone(one: CheckedRevert, settings: PutBackSettings) -> bool:
    """Nothing is done about it."""
    return one.state.state == "pending" or (one.state.state == "altered" and settings.altered == "leave")


def _remove_reverted(
    settings: PutBackSettings,
    context: ActionContext,
    connection: ServerConnection,
    reverts: Sequence[PendingRevert],
    texts: list[str],
) -> list[str]:
    """Strike out what is as it was; what is still owed, in sentences. `texts` takes what is to be said of the rest."""
    left = []
    for revert in reverts:
        try:
            now = read_revert_state(connection, revert)
        except ConsoleError as error:
            left.append(f"{revert.parameter} could not be looked at: {error.message}")
            continue
        if now.state == "pending":
            texts.append(f"{revert.parameter} is put back in its file, and owed until a restart of the server")
            continue
        if now.state == "altered" and settings.altered == "keep":
            texts.append(f"{revert.parameter} stays {now.found!r}, as somebody has set it since")
        elif now.state == "altered":
            left.append(f"{revert.parameter} is {now.found!r}, which no run has set: a person decides")
            continue
        elif now.state == "gone":
            texts.append(
                f"{revert.parameter} has nothing left to be put back in: {location_of(revert).describe()} is gone"
            )
        elif now.state != "back":
            left.append(f"{describe_revert(revert)}: still so")
            continue
        if (trouble := remove(reverts_directory(context), revert)) is not None:
            left.append(trouble)
    return left


def _preview_sentences(
    pending: Sequence[CheckedRevert], connection: ServerConnection, settings: PutBackSettings, damaged: Sequence[str]
) -> list[str]:
    if not pending:
        return ["Nothing is to be put back on this server."]
    runs = sorted({one.revert.run or "?" for one in pending})
    sentences = [
        f"{len(pending)} settings of {', '.join(runs)}: {'; '.join(describe_revert(one.revert) for one in pending)}."
    ]
    for state, words in (
        ("altered", "somebody has set otherwise since: {0}, which stays so until a person decides"),
        ("pending", "{0} is put back already and counts from the next restart"),
        ("back", "{0} is as it was already"),
        ("gone", "{0} has nothing left to be put back in"),
    ):
        if named := [one.revert.parameter for one in pending if one.state.state == state]:
            sentences.append(f"{words.format(', '.join(named))}.")
    if settings.altered == "keep" and any(one.state.state == "altered" for one in pending):
        sentences.append("what somebody has set since is kept.")
    sentences += [f"{one}." for one in (*_data_trust_warnings(pending, connection), *damaged)]
    return [f"{one[0].upper()}{one[1:]}" for one in sentences]
