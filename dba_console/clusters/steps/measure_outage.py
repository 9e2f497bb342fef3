"""The step cutover-heartbeat: measure the outage for clients, from before they are held until they write again."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from msgspec import Struct

from dba_console.actions.action import ActionContext, ActionResult, Control
from dba_console.actions.action_preview import ActionPreview
from dba_console.clusters.heartbeat import (
    KILLED,
    HeartbeatOutage,
    outage_lines,
    read_outage,
    start_heartbeat,
    stop_heartbeat,
)
from dba_console.clusters.steps.step import Cutover, CutoverStep, StepSettings, remaining_seconds
from dba_console.core.target import conninfo, parse_conninfo

DIRECTORY = "heartbeat"
WRITE_S = 10.0
"""Time for a write of the heartbeat after clients were released: failed logins are retried."""
WAIT_S = 0.1


class HeartbeatSettings(StepSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    stop: bool = False
    """End it and report the outage."""


class MeasureOutage(CutoverStep):
    name: ClassVar[str] = "cutover-heartbeat"
    summary: ClassVar[str] = (
        "Starts a process that writes and reads through the pooler like clients, or with `stop` ends it. Its results "
        "are `write_outage_s` and `read_outage_s`: the longest time between two acknowledged writes, and reads."
    )
    Settings: ClassVar[type[Struct]] = HeartbeatSettings
    undoable: ClassVar[bool] = True
    safe_to_repeat: ClassVar[str] = "starting or ending it again is safe"

    def show(self, at: Cutover, settings: HeartbeatSettings) -> ActionPreview:
        if settings.stop:
            return ActionPreview(text="End the heartbeat, and report how long clients could not write.", exact="")
        return ActionPreview(text="A heartbeat writes through the pooler like clients, and measures the outage.",
                     exact="table dba_console.heartbeat")  # fmt: skip

    def do(self, at: Cutover, settings: HeartbeatSettings, control: Control) -> ActionResult:
        directory = Path(at.context.run_directory) / DIRECTORY
        if not settings.stop:
            directory.mkdir(mode=0o700, exist_ok=True)
            start_heartbeat(directory, _client_conninfo(at), at.context.clock)
            return ActionResult(state="ok", text=_started_text(read_outage(directory)), undo={})
        wait_for_write(directory, at.context, control)
        return _end_heartbeat(at, directory)

    def revert(self, at: Cutover, settings: HeartbeatSettings, control: Control) -> ActionResult:
        return _end_heartbeat(at, Path(at.context.run_directory) / DIRECTORY)


def _started_text(found: HeartbeatOutage) -> str:
    if not found.writes:
        why = next(iter(found.errors), "no server has answered yet")
        return f"the heartbeat is running but has not written yet: {why}"
    how = f"messages in the WAL, not rows of a table: {found.advisory}" if found.advisory else "a row of a table"
    return f"the heartbeat writes {how}"


def resume_heartbeat(at: Cutover) -> Path:
    """Start the heartbeat again if it has ended; return its directory."""
    directory = Path(at.context.run_directory) / DIRECTORY
    directory.mkdir(mode=0o700, exist_ok=True)
    start_heartbeat(directory, _client_conninfo(at), at.context.clock)
    return directory


def wait_for_write(
    directory: Path, context: ActionContext, control: Control, *, since_us: int = 0, timeline: int | None = None
) -> HeartbeatOutage:
    """Wait until a write of the heartbeat is acknowledged, on the timeline if given; return what it has measured."""
    since_us = since_us or context.clock.wall_us()
    found = read_outage(directory)
    for _left in remaining_seconds(context, WRITE_S):
        found = read_outage(directory)
        writes = [one for one in found.servers if one.kind == "write" and timeline in (None, one.timeline)]
        last = max((one.to_us for one in writes), default=0)
        if not found.running or last >= since_us or control.wait(WAIT_S):
            break
    return found


def _end_heartbeat(at: Cutover, directory: Path) -> ActionResult:
    if read_outage(directory).ended == KILLED:
        start_heartbeat(directory, _client_conninfo(at), at.context.clock)  # restarted so that it removes its table
    stop_heartbeat(directory)
    found = read_outage(directory)
    return ActionResult(
        state="ok",
        text="; ".join(outage_lines(found, {at.plan.timeline: at.plan.old, at.plan.new_timeline: at.plan.to})),
        values={"write_outage_s": found.write_s, "read_outage_s": found.read_s},
    )


def _client_conninfo(at: Cutover) -> str:
    """Return how clients connect: as configured, else through the first pooler, else to the node that is read-write."""
    if at.config.clients is not None:
        return at.config.clients
    own = parse_conninfo(at.node(at.plan.old).dsn)
    for name, databases in at.plan.databases.items():
        if databases:
            pooler = parse_conninfo(at.config.poolers[name].dsn)
            return conninfo({**own, **pooler, "dbname": databases[0]})
    nodes = [parse_conninfo(at.node(name).dsn) for name in (at.plan.old, at.plan.to)]
    hosts, addresses = ([node.get(name, "") for node in nodes] for name in ("host", "hostaddr"))
    if any("service" in node or "," in node.get("host", "") for node in nodes):
        return conninfo(own)
    several = {"host": hosts, "hostaddr": addresses, "port": [node.get("port", "5432") for node in nodes]}
    lists = {name: ",".join(values) for name, values in several.items() if any(values)}
    return conninfo({**own, **lists, "target_session_attrs": "read-write"})
