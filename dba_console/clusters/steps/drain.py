"""Step that waits until there are no writes on the primary, and the new primary has received them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from msgspec import Struct

from dba_console.actions.action import ActionResult, Control
from dba_console.actions.action_preview import ActionPreview
from dba_console.clusters.steps.hold_clients import CLIENT, END_SESSIONS
from dba_console.clusters.steps.manager_switchover import spared_sessions
from dba_console.clusters.steps.step import Cutover, CutoverStep, TimedSettings, remaining_seconds
from dba_console.core.errors import Refused
from dba_console.core.sanitize import clean

EQUAL_READINGS = 3
"""Consecutive equal WAL positions that prove that there are no writes."""
READING_S = 0.005
"""Time between two readings."""
_WRITE_ACTIVITY = f"""
SELECT pg_current_wal_insert_lsn()::text AS lsn,
       count(*) FILTER (WHERE {CLIENT})::int4 AS clients,
       count(*) FILTER (WHERE backend_type = 'autovacuum worker')::int4 AS autovacuum,
       min(usename::text) FILTER (WHERE {CLIENT}) AS example,
       (SELECT count(*)::int4 FROM pg_prepared_xacts) AS prepared
  FROM pg_stat_activity
"""
_STANDBY_STATE = """
SELECT (SELECT status FROM pg_stat_wal_receiver) AS receiver, pg_is_wal_replay_paused() AS paused,
       current_setting('recovery_min_apply_delay') AS delay
"""


class WaitUntilNoWrites(CutoverStep):
    name: ClassVar[str] = "cutover-drain"
    summary: ClassVar[str] = (
        "Proves that there are no writes on the primary: no client sessions (those that reconnect are terminated "
        "again), no prepared transactions, and the same WAL insert position in three readings. Then it checks that the "
        "new primary streams and replays: otherwise the old one would be stopped in vain."
    )
    Settings: ClassVar[type[Struct]] = TimedSettings
    safe_to_repeat: ClassVar[str] = "it only reads: repeating it is safe"

    def show(self, at: Cutover, settings: TimedSettings) -> ActionPreview:
        plan = at.plan
        return ActionPreview(
            text=f"Wait until there are no writes on {plan.old}.", exact="SELECT pg_current_wal_insert_lsn()"
        )

    def do(self, at: Cutover, settings: TimedSettings, control: Control) -> ActionResult:
        readings: list[str] = []
        row: dict[str, Any] = {}
        came_back, example = 0, ""
        with at.connect(at.plan.old) as (connection, _):
            for _left in remaining_seconds(at.context, settings.timeout_s):
                [row] = connection.rows(_WRITE_ACTIVITY, spared_sessions(at.plan))
                if row["clients"]:
                    came_back, example = came_back + row["clients"], row["example"]
                    # A session that was logging in when the limits were set appears now; superusers have no limit.
                    connection.execute_change(END_SESSIONS, spared_sessions(at.plan), transaction=False)
                no_clients = row["clients"] == 0 and row["prepared"] == 0
                has_moved = row["lsn"] not in readings
                readings = [*readings[1 - EQUAL_READINGS :], row["lsn"]] if no_clients else []
                if no_clients and has_moved:
                    _check_target_streams(at)
                if len(readings) == EQUAL_READINGS and len(set(readings)) == 1:
                    return ActionResult(
                        state="ok", text=f"no writes: WAL ends at {row['lsn']}", values={"lsn": row["lsn"]}
                    )
                if no_clients and row["autovacuum"] and len(readings) == EQUAL_READINGS:
                    text = (
                        f"no client is connected; only autovacuum writes, and it ends with the server (at {row['lsn']})"
                    )
                    return ActionResult(state="ok", text=text, values={"lsn": row["lsn"]})
                # The check of the new primary takes as long as the wait.
                if control.wait(0 if no_clients and has_moved else READING_S):
                    return ActionResult(state="stopped", text="stopped before the writes on the primary had ended")
        if came_back:
            text = f"clients of {at.plan.old} reconnect: {came_back} sessions were terminated in {settings.timeout}"
            hint = f"the last user was {example}; superusers have no connection limit: stop that program"
            return ActionResult(state="failed", text=clean(f"{text}, {hint}"))
        return ActionResult(state="failed", text=_still_writing_text(at.plan.old, row, settings.timeout))


def _check_target_streams(at: Cutover) -> None:
    """Raise ConsoleError if the new primary could not be promoted after the old one is stopped."""
    old, to = at.plan.old, at.plan.to
    with at.connect(to) as (connection, now):
        if now.role != "standby":
            raise Refused(
                f"{to} is already a {now.role}, on timeline {now.timeline}; {old} is primary on timeline "
                f"{at.plan.timeline}: two nodes accept writes, and nothing was stopped",
                hint="let clients write to one of them only: find out which one has their last writes",
            )
        [row] = connection.rows(_STANDBY_STATE)
    if row["receiver"] != "streaming":
        why = f"its WAL receiver is {row['receiver'] or 'not running'}"
    elif row["paused"]:
        why = "replay is paused there"
    elif row["delay"] != "0":
        why = f"recovery_min_apply_delay is {row['delay']} there"
    else:
        return
    raise Refused(f"{to} cannot be promoted, so {old} was not stopped: {why}")


def _still_writing_text(node: str, row: Mapping[str, Any], timeout: str) -> str:
    if row.get("prepared"):
        return f"{node} has {row['prepared']} prepared transactions: commit or roll them back"
    return f"the WAL of {node} still grows after {timeout} without clients: a background process writes"
