"""What clients saw of the cutover: a heartbeat from before they are held until they write again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from msgspec import Struct

from dba_console.actions.action import Control, Done, Sight, World
from dba_console.clusters.heartbeat import outage, start_heartbeat, stop_heartbeat
from dba_console.clusters.plan import conninfo
from dba_console.clusters.steps.step import Cutover, Step, StepSettings, cutover
from dba_console.target import parse_conninfo
from dba_console.units import human_duration

DIRECTORY = "heartbeat"


class HeartbeatSettings(StepSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    stop: bool = False
    """End it and give the outage."""


class Heartbeat(Step):
    """Implements `Action`."""

    name: ClassVar[str] = "cutover-heartbeat"
    summary: ClassVar[str] = (
        "Starts a process that writes and reads through the pooler as clients do, or with `stop` ends it. Its results "
        "are `write_outage_s` and `read_outage_s`: the longest time between two acknowledged writes, and reads."
    )
    Settings: ClassVar[type[Struct]] = HeartbeatSettings
    undoable: ClassVar[bool] = True

    def look(self, settings: HeartbeatSettings, world: World) -> Sight:
        cutover(settings, world)
        if settings.stop:
            return Sight(text="The heartbeat ends, and says how long clients could not write.", exact="")
        return Sight(text="A heartbeat writes through the pooler as clients do, and measures the outage.",
                     exact="table dba_console.heartbeat")  # fmt: skip

    def do(self, settings: HeartbeatSettings, world: World, control: Control) -> Done:
        at = cutover(settings, world)
        directory = Path(world.run_directory) / DIRECTORY
        if not settings.stop:
            directory.mkdir(mode=0o700, exist_ok=True)
            start_heartbeat(directory, _clients(at), world.clock)
            return Done(state="ok", text="the heartbeat runs", undo={})
        return _ended(directory)

    def settle(self, settings: HeartbeatSettings, sight: Sight, world: World) -> Done:
        return self.again("starting or ending it again is safe")

    def undo(self, settings: HeartbeatSettings, data: Mapping[str, Any], world: World, control: Control) -> Done:
        return _ended(Path(world.run_directory) / DIRECTORY)


def _ended(directory: Path) -> Done:
    stop_heartbeat(directory)
    found = outage(directory)
    text = (
        f"clients could not write for {human_duration(found.write_s)}, and not read for {human_duration(found.read_s)}"
    )
    return Done(
        state="ok", text=f"{text} ({found.writes} writes, {found.reads} reads)",
        values={"write_outage_s": found.write_s, "read_outage_s": found.read_s},
    )  # fmt: skip


def _clients(at: Cutover) -> str:
    """How clients connect: as configured, else through the first pooler, else to the primary."""
    if at.config.clients is not None:
        return at.config.clients
    own = parse_conninfo(at.node(at.plan.old).dsn)
    for name, databases in at.plan.databases.items():
        if databases:
            pooler = parse_conninfo(at.config.poolers[name].dsn)
            return conninfo({**own, **pooler, "dbname": databases[0]})
    return conninfo(own)
