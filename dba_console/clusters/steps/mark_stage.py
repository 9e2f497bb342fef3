"""The mark of a cutover in progress, at each stage of its steps: written with their changes, and removed at the end."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from dba_console.actions.acting_connection import ActingConnection
from dba_console.clusters.cutover_mark import FILE as MARK_FILE
from dba_console.clusters.cutover_mark import mark_statement, removal_statement, remove_mark, remove_mark_file
from dba_console.clusters.cutover_plan import load_plan, save_plan
from dba_console.clusters.steps.step import Cutover
from dba_console.core.errors import ConsoleError
from dba_console.core.redact import redact
from dba_console.core.sanitize import clean


def stage_statements(at: Cutover, stage: str, **changes: Any) -> list[str]:
    """Save the mark at another stage; return the statement that writes it, for a transaction; empty: not marked."""
    plan = load_plan(at.context, at.plan.cluster, at.plan.to)  # a step may have saved it meanwhile
    if plan.mark is None:
        return []
    plan = structs.replace(plan, mark=structs.replace(plan.mark, stage=stage, **changes))
    save_plan(at.context, plan)
    assert plan.mark is not None
    return [mark_statement(plan.mark)]


def show_stage(at: Cutover, connection: ActingConnection, stage: str, **changes: Any) -> None:
    """Write the mark at another stage. Raises ConsoleError."""
    if statements := stage_statements(at, stage, **changes):
        connection.set_parameter("synchronous_commit", "local")  # its standbys may not be attached
        connection.execute_change(statements[0])


def remove_marks(at: Cutover) -> str | None:
    """Remove the mark of this run from the primary and from the data directory; return what could not be removed."""
    if (mark := at.plan.mark) is None:
        return None
    failed = []
    first = at.plan.to if at.plan.new_timeline else at.plan.old
    for name in dict.fromkeys((first, *at.plan.nodes)):
        try:
            with at.connect(name) as (connection, now):
                if now.role == "primary":
                    remove_mark(connection, mark.run)
                    break
        except ConsoleError as error:
            failed.append(f"{name}: {error.message}")
    else:
        text = f"the mark of this {mark.kind} remains: on the primary execute {removal_statement(mark)}"
        return clean(redact(f"{text} ({'; '.join(failed) or 'no node answers as primary'})"))
    if at.plan.kind == "failover":
        return None  # its old primary has no copy
    try:
        remove_mark_file(at.control(at.plan.old), mark.run)
    except ConsoleError as error:
        return clean(redact(f"{at.plan.nodes[at.plan.old].data_directory}/{MARK_FILE} remains: {error.message}"))
    return None
