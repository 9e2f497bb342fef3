"""The mark of a cutover or failover in progress: every operator can see it on every node, until it has ended.

It is a setting of a role, `ALTER ROLE … SET dba_console.cutover`, on the primary. That is a row of the shared catalog
pg_db_role_setting: it is replicated, it can be read in every database without privileges, only a superuser can write
it, and no trigger, publication or owner of a database is involved. In a cutover a copy lies in the data directory of
the old primary, which can be read when no server answers. A failover has no primary to write on until the promotion: it
is marked on the new one, directly after it.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from dba_console.clusters.subject.readings import CutoverMark
from dba_console.core.decoding import from_json

if TYPE_CHECKING:
    from dba_console.actions.acting_connection import ActingConnection
    from dba_console.actions.action import ActionContext
    from dba_console.actions.query_connection import QueryConnection
    from dba_console.clusters.cutover_plan import CutoverPlan
    from dba_console.clusters.server_control import ServerControl

SETTING = "dba_console.cutover"
FILE = "dba_console_cutover.json"
"""In the data directory of the old primary."""
MARK = f"""
SELECT pg_catalog.substr(one, {len(SETTING) + 2}) AS mark
  FROM pg_catalog.pg_db_role_setting s, pg_catalog.unnest(s.setconfig) one
 WHERE pg_catalog.starts_with(one, '{SETTING}=')
"""
CHECKED, HOLDING, HELD, PROMOTED, RELEASED = (
    "checked, clients work", "clients are being held", "clients are held", "promoted, clients are not released yet",
    "clients work on the new primary",
)  # fmt: skip


def parse_mark(text: str | bytes | None) -> CutoverMark | None:
    """Return the mark; None: missing, or written by another version."""
    try:
        return None if not text else from_json(text, CutoverMark)
    except (msgspec.MsgspecError, RecursionError):
        return None


def read_mark(connection: QueryConnection) -> CutoverMark | None:
    """Return the mark that this node has. Raises ConsoleError."""
    return next((mark for row in connection.rows(MARK) if (mark := parse_mark(row["mark"])) is not None), None)


def new_mark(plan: CutoverPlan, role: str, context: ActionContext) -> CutoverMark:
    """Return the mark of a cutover that begins now, or of a failover whose promotion is done."""
    return CutoverMark(
        run=context.run,
        host=os.uname().nodename,
        operator=context.confirmed_by,
        cluster=plan.cluster,
        kind=plan.kind,
        old=plan.old,
        to=plan.to,
        system_identifier=plan.system_identifier,
        role=role,
        begun_us=context.clock.wall_us(),
        stage=CHECKED,
    )


def write_mark(connection: ActingConnection, mark: CutoverMark) -> None:
    """Write the mark on the primary. Raises ConsoleError."""
    connection.set_parameter("synchronous_commit", "local")  # its standbys may not be attached
    connection.execute_change(mark_statement(mark))


def mark_statement(mark: CutoverMark) -> str:
    """Return the statement that writes the mark, for a transaction with other changes."""
    literal = _mark_text(mark).replace("\\", "\\\\").replace("'", "''")
    return f"ALTER ROLE {_identifier(mark.role)} SET {SETTING} = E'{literal}'"


def removal_statement(mark: CutoverMark) -> str:
    """Return the statement that removes the mark, also for an operator who copies it."""
    return f"ALTER ROLE {_identifier(mark.role)} RESET {SETTING}"


def remove_mark(connection: ActingConnection, run: str) -> bool:
    """Remove the mark of this run from the primary; return whether it was there. Raises ConsoleError."""
    mark = read_mark(connection)
    if mark is None or mark.run != run:
        return False
    connection.set_parameter("synchronous_commit", "local")
    connection.execute_change(removal_statement(mark))
    return True


def take_over(plan: CutoverPlan, mark: CutoverMark | None) -> CutoverPlan:
    """Return the plan with what an interrupted cutover has not restored: limits, paused databases, pooler settings."""
    if mark is None or mark.system_identifier != plan.system_identifier:
        return plan
    databases = {name: tuple(dict.fromkeys((*plan.databases.get(name, ()), *more)))
                 for name, more in mark.poolers.items()}  # fmt: skip
    return replace(
        plan, limits=mark.limits | plan.limits, databases=plan.databases | databases,
        pooler_settings=mark.settings | plan.pooler_settings,
    )  # fmt: skip


def write_mark_file(server: ServerControl, mark: CutoverMark) -> None:
    """Write the copy beside the files of the old primary. Raises ConsoleError."""
    server.host.write(f"{server.data_directory}/{FILE}", _mark_text(mark).encode(), user=server.owner())


def read_mark_file(server: ServerControl) -> CutoverMark | None:
    """Return the copy in the data directory; None: missing. Raises ConsoleError if its host does not answer."""
    return parse_mark(server.host.read(f"{server.data_directory}/{FILE}", user=server.owner()))


def remove_mark_file(server: ServerControl, run: str) -> None:
    """Remove the copy of this run. Raises ConsoleError."""
    mark = read_mark_file(server)
    if mark is not None and mark.run == run:
        server.host.remove(f"{server.data_directory}/{FILE}", user=server.owner())


def _mark_text(mark: CutoverMark) -> str:
    return json.dumps(msgspec.to_builtins(mark))  # ASCII: a database may have any encoding


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
