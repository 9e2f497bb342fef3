"""Steps that make the old primary and the other standbys follow the new primary."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from dba_console.actions.acting_connection import ActingConnection
from dba_console.actions.action import ActionResult, Control
from dba_console.actions.action_preview import ActionPreview
from dba_console.actions.statement_results import StatementFailed
from dba_console.clusters.cutover_plan import LOCK_SLOT
from dba_console.clusters.steps.finish_cutover import leave_nothing
from dba_console.clusters.steps.manager_switchover import wait_for_command
from dba_console.clusters.steps.standby import (
    WAIT_S,
    follow_new_primary,
    not_promoted,
    rebuild_reason,
    start_standby,
    streaming_problem,
    wait_for_stream,
)
from dba_console.clusters.steps.step import Cutover, CutoverStep, TimedSettings, remaining_seconds
from dba_console.core.declarations import Duration
from dba_console.core.errors import ConsoleError
from dba_console.core.sanitize import clean

_STALE = "SELECT slot_name::text AS name FROM pg_replication_slots WHERE slot_type = 'physical' AND NOT active"
FAILOVER_SLOTS_SINCE = 170000
SLOTS_S, MOST_SLOTS_S = 0.5, 30.0
"""How often, and how long, the sync of logical slots is waited for: clients work already."""
WORKER_S = 11.0
"""A slot sync worker that ended may start again after 10 s, when the postmaster wakes up (slotsync.c, postmaster.c): a
reload wakes it."""
_FAILOVER_SLOTS = """
SELECT slot_name::text AS name FROM pg_replication_slots WHERE slot_type = 'logical' AND failover AND NOT temporary
"""
_UNSYNCED = """
SELECT slot_name::text AS name FROM pg_replication_slots
 WHERE slot_type = 'logical' AND failover AND NOT synced AND NOT active AND slot_name = ANY (%(names)s::name[])
"""
_SYNCED = """
SELECT count(*)::int4 AS ready, current_setting('sync_replication_slots') AS sync FROM pg_replication_slots
 WHERE slot_name = ANY (%(names)s::name[]) AND synced AND NOT temporary AND invalidation_reason IS NULL
"""
_ANY_SLOT = "SELECT slot_name FROM pg_replication_slots WHERE slot_type = 'physical'"
LEFT_S = 3.0
_DROP = "SELECT pg_catalog.pg_drop_replication_slot(%(name)s)"


class StandbySettings(TimedSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    timeout: Duration = "60s"
    """Maximum time until a node streams, as a duration."""


class RejoinSettings(StandbySettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    required: bool = False
    """Fail if the old primary does not follow, instead of reporting it in `streams`."""


class RejoinOldPrimary(CutoverStep):
    name: ClassVar[str] = "cutover-rejoin"
    summary: ClassVar[str] = (
        "Starts the old primary as a standby of the new one, waits until it streams on the new timeline, and drops its "
        "replication slots for nodes that now follow the new primary. It is not started if it may have WAL that the "
        "new primary lacks: then pg_rewind or a new copy comes first. If it cannot follow, its result `streams` is "
        "false and the text gives the reason."
    )
    Settings: ClassVar[type[Struct]] = RejoinSettings
    safe_to_repeat: ClassVar[str] = "starting it again is safe"

    def show(self, at: Cutover, settings: RejoinSettings) -> ActionPreview:
        server = at.control(at.plan.old)
        refusal = not_promoted(at)
        done = server.running() and _is_attached(at)
        text, exact = f"{at.plan.old} returns as a standby of {at.plan.to}", ""
        if at.plan.manager is not None:
            text += f": {at.plan.manager.kind} does this, and this step waits for it"
        else:
            exact = " ".join(server.start_command())
        return ActionPreview(
            text=f"{text}.", exact=exact,
            refusal=refusal, done=done,
        )  # fmt: skip

    def do(self, at: Cutover, settings: RejoinSettings, control: Control) -> ActionResult:
        manager = at.plan.manager
        if manager is None and (reason := _not_startable(at)) is not None:
            return _does_not_follow(settings, f"{at.plan.old} is not started: {reason}; use pg_rewind, or a new copy")
        if manager is None and (failed := start_standby(at, settings.timeout_s)) is not None:
            return ActionResult(state="failed", text=failed, values={"streams": False})
        printed = "" if manager is None else wait_for_command(at, settings.timeout_s)
        why = wait_for_stream(at, at.plan.old, settings.timeout_s, control)
        if why is not None and manager is not None:
            text = f"{at.plan.old} does not follow {at.plan.to} after {settings.timeout}: {why}"
            return ActionResult(state="failed", text=clean(f"{text}; {manager.kind} rejoins it: {manager.status}"))
        if why is not None:
            text = f"{at.plan.old} is running but does not follow {at.plan.to}: {why}"
            return _does_not_follow(settings, text)
        dropped = _drop_stale_slots(at)
        dropped_text = f"; dropped its slots {', '.join(dropped)}" if dropped else ""
        text = f"{at.plan.old} streams from {at.plan.to} on timeline {at.plan.new_timeline}{dropped_text}"
        text += f"; {manager.kind}: {printed}" if manager is not None and printed else ""
        text += _sync_failover_slots(at, settings.timeout_s, control)
        done, remains = leave_nothing(at)
        text = "; ".join([text, *done, *([remains] if remains else [])])
        return ActionResult(state="ok", text=text, values={"streams": True})


def _sync_failover_slots(at: Cutover, timeout_s: float, control: Control) -> str:
    """Replace the old primary's logical slots by those synced from the new one; return a text about it.

    A slot that it had as a primary is never synced: the slot sync worker finds the name in use, and ends (slotsync.c).
    Then no slot is, and the next cutover or failover would lose the subscribers.
    """
    if at.plan.version_num < FAILOVER_SLOTS_SINCE:
        return ""
    try:
        with at.connect(at.plan.to) as (connection, _):
            names = [row["name"] for row in connection.rows(_FAILOVER_SLOTS)]
        if not names:
            return ""
        with at.connect(at.plan.old) as (connection, _):
            for name in [row["name"] for row in connection.rows(_UNSYNCED, {"names": names})]:
                connection.execute_change(_DROP, {"name": name}, transaction=False)
            woken = False
            for left in remaining_seconds(at.context, limit_s := min(timeout_s, MOST_SLOTS_S)):
                [row] = connection.rows(_SYNCED, {"names": names})
                if not woken and limit_s - left > WORKER_S:
                    connection.execute_change("SELECT pg_catalog.pg_reload_conf()", transaction=False)
                    woken = True
                if row["ready"] == len(names) or row["sync"] != "on" or control.wait(SLOTS_S):
                    break
    except ConsoleError as error:
        return f"; its logical slots were not checked: {error.message}"
    if row["ready"] == len(names):
        return f"; {len(names)} logical slots are synced to it"
    why = "sync_replication_slots is off there"
    if row["sync"] == "on":
        why = "a slot is synced when its subscriber has advanced it; `cluster check` shows whether all are"
    return f"; warning: {row['ready']} of {len(names)} logical slots are synced to {at.plan.old}: {why}"


def _not_startable(at: Cutover) -> str | None:
    return None if at.control(at.plan.old).running() else rebuild_reason(at)


def _does_not_follow(settings: RejoinSettings, text: str) -> ActionResult:
    return ActionResult(state="failed" if settings.required else "ok", text=clean(text), values={"streams": False})


class FollowNewPrimary(CutoverStep):
    name: ClassVar[str] = "cutover-follow"
    summary: ClassVar[str] = (
        "Makes every other node follow the new primary (primary_conninfo and a reload), and waits until each streams "
        "on the new timeline. One that does not, because it replays with a delay or does not answer, is a warning: its "
        "result `follow` is false."
    )
    Settings: ClassVar[type[Struct]] = StandbySettings
    safe_to_repeat: ClassVar[str] = "repeating it is safe"

    def show(self, at: Cutover, settings: StandbySettings) -> ActionPreview:
        if not at.plan.others:
            return ActionPreview(text="The cluster has no other nodes.", exact="", done=True)
        text = f"{at.plan.to} is followed by {', '.join(at.plan.others)}"
        exact = "ALTER SYSTEM SET primary_conninfo = …; SELECT pg_reload_conf()"
        if at.plan.manager is not None:
            text, exact = f"{text}: {at.plan.manager.kind} does this, and this step waits for it", ""
        return ActionPreview(
            text=f"{text}.",
            exact=exact,
            refusal=not_promoted(at),
        )

    def do(self, at: Cutover, settings: StandbySettings, control: Control) -> ActionResult:
        failed = []
        for name in at.plan.others:
            control.report_progress(f"{name} follows {at.plan.to}")
            try:
                if at.plan.manager is None:
                    follow_new_primary(at, name)
                why = wait_for_stream(at, name, settings.timeout_s, control)
            except ConsoleError as error:
                why = error.message
            if why is not None:
                failed.append(f"{name}: {why}")
        if failed and at.plan.manager is not None:
            return ActionResult(state="failed", text=clean("; ".join(failed)))
        if failed:
            text = f"warning: after {settings.timeout} not streaming from {at.plan.to}: {'; '.join(failed)}"
            return ActionResult(state="ok", text=clean(text), values={"follow": False})
        streams = "streams" if len(at.plan.others) == 1 else "stream"
        text = f"{', '.join(at.plan.others)} {streams} from {at.plan.to}"
        if dropped := _drop_left_slots(at, control):
            text += f"; dropped the slots {', '.join(dropped)} of {at.plan.old}"
        return ActionResult(state="ok", text=text, values={"follow": True})


def _drop_left_slots(at: Cutover, control: Control) -> list[str]:
    """Drop the slots of the old primary that third nodes have left: it returned before them, and they read from it."""
    dropped: list[str] = []
    try:
        if streaming_problem(at, at.plan.old) is not None:
            return []
        for _left in remaining_seconds(at.context, LEFT_S):  # its WAL senders take a moment to end
            dropped += _drop_stale_slots(at)
            with at.connect(at.plan.old) as (connection, _):
                if not connection.rows(_ANY_SLOT) or control.wait(WAIT_S):
                    break
    except ConsoleError:
        pass  # it does not answer: the step of its return reports that
    return dropped


def _is_attached(at: Cutover) -> bool:
    """Check whether the old primary streams from the new one and has no stale slots."""
    if streaming_problem(at, at.plan.old) is not None:
        return False
    with at.connect(at.plan.old) as (connection, _):
        return not _stale_slots(at, connection)


def _stale_slots(at: Cutover, connection: ActingConnection) -> list[str]:
    """Return the slots that nodes used while it was primary: on a standby they would retain WAL without limit."""
    known = {node.slot for name, node in at.plan.nodes.items() if name != at.plan.old and node.slot} | {LOCK_SLOT}
    return [row["name"] for row in connection.rows(_STALE) if row["name"] in known]


def _drop_stale_slots(at: Cutover) -> list[str]:
    dropped = []
    with at.connect(at.plan.old) as (connection, _):
        for name in _stale_slots(at, connection):
            try:
                connection.execute_change(_DROP, {"name": name}, transaction=False)
                dropped.append(name)
            except StatementFailed:
                pass  # in use again, so not stale
    return dropped
