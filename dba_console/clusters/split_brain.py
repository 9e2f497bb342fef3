"""The actions of the runbook split-brain: stop the primary that loses, and find what only it has.

The server on this host loses; which one that is, the operator decides. Both read and compare the two servers first, see
local_standby.py. Nothing here starts a server.
"""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from dba_console.actions.acting_connection import ActingConnection
from dba_console.actions.action import Action, ActionContext, ActionResult, Control
from dba_console.actions.action_preview import ActionPreview
from dba_console.actions.identity import PRIMARY
from dba_console.clusters.cluster_check import parse_lsn
from dba_console.clusters.local_standby import LocalStandby, LocalStandbySettings, connect_primary, fork_of, read_both
from dba_console.clusters.node_host import last_line
from dba_console.clusters.server_control import CLEAN_STATES
from dba_console.clusters.timeline_fork import SUMMARY, Fork, Written, parse_summary
from dba_console.core.errors import ConsoleError, Refused
from dba_console.core.sanitize import clean

STOP_S, DUMP_S = 3600.0, 24 * 3600.0
NAMED_DATABASES, LISTED = 20, 15
SYSTEM = "system catalogs"
_DATABASES = "SELECT oid::int8 AS oid, datname::text AS name FROM pg_database"
_RELATIONS = """
SELECT f.file, pg_catalog.pg_filenode_relation(
         CASE WHEN f.space = d.dattablespace::int8 THEN 0 ELSE f.space END::oid, f.node::oid)::regclass::text AS name
  FROM unnest(%(files)s::text[], %(spaces)s::int8[], %(nodes)s::int8[]) AS f (file, space, node), pg_database d
 WHERE d.datname = current_database()
"""


class StopLosingPrimary(Action):
    name: ClassVar[str] = "losing-primary-stop"
    summary: ClassVar[str] = (
        "Stops the primary on this host cleanly (fast, never immediate), and writes standby.signal, so that it cannot "
        "start as a primary again. Its data directory is not changed otherwise. Refused unless the other server is a "
        "running primary of the same cluster."
    )
    Settings: ClassVar[type[Struct]] = LocalStandbySettings
    needs_server: ClassVar[bool] = False
    acts_on_cluster: ClassVar[bool] = True
    no_undo: ClassVar[str] = "starting it again would make two primaries"

    def preview(self, settings: LocalStandbySettings, context: ActionContext) -> ActionPreview:
        at = read_both(settings, context)
        refusal = _not_two_of_one(at)
        return ActionPreview(
            text=clean(
                f"The server in {settings.directory} loses: it is stopped. {at.position()}; the other primary is on "
                f"timeline {at.primary.timeline}"
            ),
            exact=" ".join(at.server.stop_command(STOP_S)) + "; standby.signal",
            values={"state": at.control.state, "timeline": at.control.timeline, "primary": at.primary.timeline},
            destructive=True,
            name=settings.directory,
            refusal=refusal,
            done=refusal is None and not at.running and at.server.is_fenced(),
        )

    def act(
        self, settings: LocalStandbySettings, preview: ActionPreview, context: ActionContext, control: Control
    ) -> ActionResult:
        at = read_both(settings, context)
        if refusal := _not_two_of_one(at):
            raise Refused(refusal)
        control.report_progress("stopping the server: it waits for its archiver and its standbys")
        at.server.fence(running_too=True)  # before the stop: a supervisor may start it again at once
        ended = at.server.stop(STOP_S)
        if ended.code != 0:
            return ActionResult(state="unknown", text=clean(f"it has not stopped: {last_line(ended)}"))
        return self._result(at)

    def settle(self, settings: LocalStandbySettings, preview: ActionPreview, context: ActionContext) -> ActionResult:
        at = read_both(settings, context)
        if at.running or not at.server.is_fenced():
            return ActionResult(state="failed", text="it is not stopped, or without standby.signal", again=True)
        return self._result(at)

    def _result(self, at: LocalStandby) -> ActionResult:
        read = at.server.control_file()
        clean_text = "cleanly" if read.state in CLEAN_STATES else f"not cleanly (`{read.state}`)"
        return ActionResult(
            state="ok",
            text=f"stopped {clean_text} at {read.checkpoint_lsn} of timeline {read.timeline}; it can only be a standby",
            values={"state": read.state, "timeline": read.timeline, "lsn": read.checkpoint_lsn},
        )


class FindForkChanges(Action):
    name: ClassVar[str] = "fork-changes"
    summary: ClassVar[str] = (
        "Finds where the stopped server on this host and the running primary separated, and what only the stopped one "
        "has committed since: transactions with the first and the last time, changed rows by relation (pg_waldump). It "
        "only reads."
    )
    Settings: ClassVar[type[Struct]] = LocalStandbySettings
    needs_server: ClassVar[bool] = False
    acts_on_cluster: ClassVar[bool] = True
    no_undo: ClassVar[str] = "it only reads"

    def preview(self, settings: LocalStandbySettings, context: ActionContext) -> ActionPreview:
        at = read_both(settings, context)
        refusal = _not_two_of_one(at)
        if refusal is None and at.running:
            refusal = f"the server in {settings.directory} is running: it may still write"
        return ActionPreview(
            text=clean(f"Reads the WAL of {settings.directory} since the fork. {at.position()}"),
            exact=f"pg_waldump -p {settings.directory}/pg_wal -t {at.control.timeline}",
            name=settings.directory,
            refusal=refusal,
        )

    def act(
        self, settings: LocalStandbySettings, preview: ActionPreview, context: ActionContext, control: Control
    ) -> ActionResult:
        at = read_both(settings, context)
        with connect_primary(settings, context) as connection:
            fork = fork_of(at, connection)
            if fork is None:
                text = "the timelines do not show where the two servers separated: compare their tables"
                return ActionResult(state="ok", text=text, values={"known": False})
            control.report_progress(f"pg_waldump from {fork}")
            wal = f"{settings.directory}/pg_wal"
            lsn = f"{fork.lsn >> 32:X}/{fork.lsn & 0xFFFFFFFF:X}"
            ended = at.server.host.run(
                ["sh", "-c", SUMMARY, "sh", at.server.program("pg_waldump"), wal, str(at.control.timeline), lsn],
                user=at.server.owner(), timeout_s=DUMP_S, repeatable=True,
            )  # fmt: skip
            found = parse_summary(ended.output)
            if isinstance(found, str):
                text = f"the fork is at {fork}; its WAL cannot be read: {found}"
                return ActionResult(state="ok", text=clean(text), values={"known": False, "fork": lsn})
            if parse_lsn(found.end) < parse_lsn(at.control.checkpoint_lsn or "0/0"):
                text = (
                    f"the fork is at {fork}; WAL is missing after {found.end}, its end is {at.control.checkpoint_lsn}"
                )
                return ActionResult(state="ok", text=clean(text), values={"known": False, "fork": lsn})
            named = _named(found, connection)
        return ActionResult(
            state="ok",
            text=clean(_text(fork, found, named)),
            values={"known": True, "fork": lsn, "commits": found.commits, "prepared": found.prepared, "end": found.end},
        )

    def settle(self, settings: LocalStandbySettings, preview: ActionPreview, context: ActionContext) -> ActionResult:
        return ActionResult(state="failed", text="it only reads: repeat it", again=True)


def _not_two_of_one(at: LocalStandby) -> str | None:
    """Return why these are not two primaries of one cluster, of which one may lose; None: they are."""
    if at.primary.system_identifier != at.control.system_identifier:
        return (
            f"{at.server.data_directory} belongs to another cluster: system identifier {at.control.system_identifier}, "
            f"not {at.primary.system_identifier}"
        )
    if at.primary.role != PRIMARY:
        return "the other server is not a primary: if this one stops, no primary is left"
    if at.is_same_server():
        return "the connection string leads to the server in this directory itself: name the other one"
    return None


def _named(found: Written, connection: ActingConnection) -> dict[str, int]:
    """Return the changed rows by name; relations that the primary does not have keep their file."""
    databases = {row["oid"]: row["name"] for row in connection.rows(_DATABASES)}
    by_database: dict[int, list[str]] = {}
    for file in found.rows:
        by_database.setdefault(int(file.split("/")[1]), []).append(file)
    names: dict[str, str] = {}
    for oid, files in list(by_database.items())[:NAMED_DATABASES]:
        if oid not in databases:
            continue
        parts = [[int(part) for part in file.split("/")] for file in files]
        params = {"files": files, "spaces": [part[0] for part in parts], "nodes": [part[2] for part in parts]}
        try:
            rows = connection.for_database(databases[oid]).rows(_RELATIONS, params)
        except ConsoleError:
            continue
        # A name without a schema is one of pg_catalog, which is first in search_path.
        named = {row["file"]: row["name"] for row in rows if row["name"]}
        system = {file for file, name in named.items() if "." not in name or name.startswith("pg_toast.")}
        names |= {file: SYSTEM if file in system else f"{databases[oid]}: {name}" for file, name in named.items()}
    totals: dict[str, int] = {}
    for file, changed in found.rows.items():
        name = names.get(file, f"file {file}")
        totals[name] = totals.get(name, 0) + changed
    return totals


def _text(fork: Fork, found: Written, named: dict[str, int]) -> str:
    text = f"the servers separated at {fork}; committed transactions that only this server has, until {found.end}: "
    text += str(found.commits)
    text += f", from {found.first} to {found.last}" if found.commits else ""
    text += f"; prepared: {found.prepared}" if found.prepared else ""
    listed = [f"{name} {changed}" for name, changed in list(named.items())[:LISTED]]
    more = f"; and {len(named) - LISTED} more relations" if len(named) > LISTED else ""
    return text + (f"; changed rows: {', '.join(listed)}{more}" if listed else "")
