"""The old primary is stopped, its last position is known to the new one, and nothing can start it as a primary."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, ClassVar

from msgspec import Struct
from msgspec.structs import replace

from dba_console.actions.action import Control, Done, Sight, World
from dba_console.clusters.checks import position
from dba_console.clusters.plan import conninfo_to, save_plan
from dba_console.clusters.steps.step import (
    POLL_S,
    Cutover,
    Step,
    StepSettings,
    Timed,
    again,
    bounded,
    cutover,
)
from dba_console.errors import ConnectError, ConsoleError
from dba_console.harmless import clean

SHUT_DOWN = "shut down"
"""DBState of a clean shutdown, as pg_controldata writes it."""
CHECKPOINT_S = 600.0
_POSITIONS = """
SELECT pg_is_in_recovery() AS standby, pg_last_wal_receive_lsn()::text AS received,
       pg_last_wal_replay_lsn()::text AS replayed, pg_is_wal_replay_paused() AS paused
"""
_CONNINFO = "SELECT pg_catalog.current_setting('primary_conninfo') AS conninfo"


class StopSettings(Timed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    timeout: str = "5m"
    """How long the server may take to stop, as a duration."""


class Stop(Step):
    """Implements `Action`."""

    name: ClassVar[str] = "cutover-stop"
    summary: ClassVar[str] = (
        "CHECKPOINT on the old primary, then a fast stop, never an immediate one. The server waits for its archiver "
        "and for its standbys."
    )
    Settings: ClassVar[type[Struct]] = StopSettings
    undoable: ClassVar[bool] = True

    def look(self, settings: StopSettings, world: World) -> Sight:
        at = cutover(settings, world)
        control = at.control(at.plan.old)
        exact = shlex.join(control.stop_command(settings.timeout_s))
        return Sight(text=f"{at.plan.old} is stopped.", exact=exact, done=_is_down(at))

    def act(self, settings: StopSettings, sight: Sight, world: World, control: Control) -> Done:
        at = cutover(settings, world)
        try:
            with at.link(at.plan.old) as (link, _):
                control.tell(f"CHECKPOINT on {at.plan.old}")
                link.execute("CHECKPOINT", timeout_s=CHECKPOINT_S, transaction=False)
        except ConnectError:
            pass  # a stop before this one is under way: what becomes of it is seen below
        control.tell(f"stopping {at.plan.old}")
        ended = at.control(at.plan.old).stop(settings.timeout_s)
        if _is_down(at):
            return Done(state="ok", text=f"{at.plan.old} is shut down", undo={})
        state = at.control(at.plan.old).control_file().state
        said = (
            clean((ended.errors.strip() or ended.output.strip()).splitlines()[-1])
            if ended.errors + ended.output
            else ""
        )
        text = f"{at.plan.old} is not shut down after {settings.timeout}: pg_control says {state}"
        return Done(state="failed", text=f"{text}; {said}" if said else text, undo={})

    def settle(self, settings: StopSettings, sight: Sight, world: World) -> Done:
        at = cutover(settings, world)
        if _is_down(at):
            return Done(state="ok", text=f"{at.plan.old} is shut down", undo={})
        return again(f"{at.plan.old} is not shut down: pg_control says {at.control(at.plan.old).control_file().state}")

    def undo(self, settings: StopSettings, data: Mapping[str, Any], world: World, control: Control) -> Done:
        at = cutover(settings, world)
        server = at.control(at.plan.old)
        if not server.running():
            server.start(settings.timeout_s)
        last = ""
        for _left in bounded(world, settings.timeout_s):
            try:
                with at.link(at.plan.old) as (_, now):
                    if now.role == "primary" and now.timeline == at.plan.timeline:
                        return Done(state="ok", text=f"{at.plan.old} is primary again on timeline {now.timeline}")
                    return Done(state="failed", text=f"{at.plan.old} is a {now.role} on timeline {now.timeline}")
            except ConsoleError as error:
                last = error.message
            if control.wait(POLL_S * 5):
                break
        return Done(state="failed", text=clean(f"{at.plan.old} does not answer: {last}"))


def _is_down(at: Cutover) -> bool:
    server = at.control(at.plan.old)
    return not server.running() and server.control_file().state == SHUT_DOWN


class Gate(Step):
    """Implements `Action`."""

    name: ClassVar[str] = "cutover-gate"
    summary: ClassVar[str] = (
        "Compares positions: pg_control of the old primary says `shut down`, and the new one has received and replayed "
        "the WAL up to and with that checkpoint. Nothing may be promoted before."
    )
    Settings: ClassVar[type[Struct]] = Timed

    def look(self, settings: Timed, world: World) -> Sight:
        plan = cutover(settings, world).plan
        exact = "pg_control; pg_last_wal_replay_lsn()"
        return Sight(text=f"Has {plan.to} everything that {plan.old} wrote?", exact=exact)

    def act(self, settings: Timed, sight: Sight, world: World, control: Control) -> Done:
        at = cutover(settings, world)
        found = at.control(at.plan.old).control_file()
        if found.state != SHUT_DOWN or found.checkpoint_lsn is None:
            text = f"pg_control of {at.plan.old} says {found.state or 'nothing'}, not {SHUT_DOWN}"
            return Done(state="failed", text=f"{text}: do not promote, abort starts {at.plan.old} again")
        wanted = found.checkpoint_lsn
        row: dict[str, Any] = {}
        with at.link(at.plan.to) as (link, now):
            if now.role != "standby":
                return Done(state="failed", text=f"{at.plan.to} is a {now.role} already")
            for _left in bounded(world, settings.timeout_s):
                [row] = link.rows(_POSITIONS)
                if _past(row["received"], wanted) and _past(row["replayed"], wanted):
                    save_plan(world, replace(at.plan, shutdown_lsn=wanted))
                    return Done(
                        state="ok",
                        text=f"{at.plan.old} was shut down at {wanted}; {at.plan.to} has received {row['received']} "
                        f"and replayed {row['replayed']}",
                        values={"shutdown_lsn": wanted, **row},
                    )
                if control.wait(POLL_S):
                    break
        return Done(state="failed", text=_short(at, wanted, row))

    def settle(self, settings: Timed, sight: Sight, world: World) -> Done:
        return again("it only reads: it is done again")

    def undo(self, settings: Timed, data: Mapping[str, Any], world: World, control: Control) -> Done:
        return Done(state="ok", text="it only reads")


def _past(lsn: str | None, wanted: str) -> bool:
    """The position is behind the checkpoint's record, so the record itself is there."""
    return lsn is not None and position(lsn) > position(wanted)


def _short(at: Cutover, wanted: str, row: Mapping[str, Any]) -> str:
    what = "replay is paused there" if row.get("paused") else "its WAL receiver may have lost the connection"
    missing = position(wanted) - position(row["received"]) if row.get("received") else None
    bytes_ = "an unknown number of bytes" if missing is None else f"{max(0, missing)} bytes"
    return (
        f"{at.plan.old} was shut down at {wanted}; {at.plan.to} has received {row.get('received')} and replayed "
        f"{row.get('replayed')}: {bytes_} are missing, {what}; abort starts {at.plan.old} again"
    )


class Fence(Step):
    """Implements `Action`."""

    name: ClassVar[str] = "cutover-fence"
    summary: ClassVar[str] = (
        "Writes standby.signal and primary_conninfo into the data directory of the stopped old primary: whatever "
        "starts it, a supervisor or a reboot, it comes up as a standby of the new one."
    )
    undoable: ClassVar[bool] = True

    def look(self, settings: StepSettings, world: World) -> Sight:
        at = cutover(settings, world)
        directory = at.plan.nodes[at.plan.old].data_directory
        return Sight(
            text=f"{at.plan.old} can only start as a standby of {at.plan.to}.",
            exact=f"{directory}/standby.signal, primary_conninfo and primary_slot_name in postgresql.auto.conf",
        )

    def act(self, settings: StepSettings, sight: Sight, world: World, control: Control) -> Done:
        at = cutover(settings, world)
        server = at.control(at.plan.old)
        if server.running():
            return Done(state="failed", text=f"{at.plan.old} runs: something has started it again")
        with at.link(at.plan.to) as (link, _):
            [row] = link.rows(_CONNINFO)
        server.make_standby(
            conninfo_to(row["conninfo"], at.node(at.plan.to), at.plan.old), at.plan.nodes[at.plan.old].slot or None
        )
        return Done(state="ok", text=f"{at.plan.old} starts as a standby only", undo={})

    def settle(self, settings: StepSettings, sight: Sight, world: World) -> Done:
        return again("writing it again is safe")

    def undo(self, settings: StepSettings, data: Mapping[str, Any], world: World, control: Control) -> Done:
        at = cutover(settings, world)
        at.control(at.plan.old).forget_standby()
        return Done(state="ok", text=f"{at.plan.old} can start as a primary again")
