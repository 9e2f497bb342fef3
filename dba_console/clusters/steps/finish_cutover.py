"""The step cutover-finish: nothing of the cutover remains, except what a node that has not returned yet needs."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from dba_console.actions.action import ActionResult, Control
from dba_console.actions.action_preview import ActionPreview
from dba_console.actions.statement_results import StatementFailed
from dba_console.clusters.heartbeat import stop_heartbeat
from dba_console.clusters.steps.mark_stage import remove_marks
from dba_console.clusters.steps.measure_outage import DIRECTORY
from dba_console.clusters.steps.standby import streaming_problem
from dba_console.clusters.steps.step import Cutover, CutoverStep, StepSettings
from dba_console.core.errors import ConsoleError
from dba_console.core.redact import redact
from dba_console.core.sanitize import clean

_SLOTS = """
SELECT slot_name::text AS name, active FROM pg_replication_slots
 WHERE slot_type = 'physical' AND slot_name = ANY (%(names)s::name[])
"""
_DROP = "SELECT pg_catalog.pg_drop_replication_slot(%(name)s)"


class FinishCutover(CutoverStep):
    name: ClassVar[str] = "cutover-finish"
    summary: ClassVar[str] = (
        "Drops the replication slots that the cutover created on the new primary and that no node reads, and removes "
        "the mark that shows the cutover in progress. The slot of a third node that does not stream yet stays, and is "
        "reported."
    )
    safe_to_repeat: ClassVar[str] = "repeating it is safe"

    def show(self, at: Cutover, settings: StepSettings) -> ActionPreview:
        refusal = None if at.plan.new_timeline else f"{at.plan.to} is not promoted"
        return ActionPreview(
            text="Remove what this cutover leaves behind: slots that no node reads, and its mark.",
            exact="pg_drop_replication_slot(…); ALTER ROLE … RESET dba_console.cutover",
            refusal=refusal,
        )

    def do(self, at: Cutover, settings: StepSettings, control: Control) -> ActionResult:
        texts, remains = leave_nothing(at)
        if remains:
            return ActionResult(state="failed", text="; ".join([*texts, remains]))
        return ActionResult(state="ok", text="; ".join(texts) or "nothing of this cutover remains")


def leave_nothing(at: Cutover) -> tuple[list[str], str]:
    """Drop unused slots and remove the mark; return what was done, and what could not be done."""
    stop_heartbeat(Path(at.context.run_directory) / DIRECTORY)  # of a step that was skipped; it removes its table
    try:
        texts = [clean(one) for one in _drop_unread_slots(at)]
    except ConsoleError as error:
        return [], clean(redact(f"slots of {at.plan.to} were not checked: {error.message}"))
    return texts, remove_marks(at) or ""


def _drop_unread_slots(at: Cutover) -> list[str]:
    """Drop the slots made by this run that no node reads or will read; return what was done, and what stays."""
    plan, dropped, kept = at.plan, [], []
    owners = {node.slot: name for name, node in plan.nodes.items() if node.slot}
    with at.connect(plan.to) as (connection, _):
        rows = connection.rows(_SLOTS, {"names": list(plan.slots_made)})
        for name in [row["name"] for row in rows if not row["active"]]:
            owner = owners.get(name, "")
            if owner in plan.others and plan.nodes[owner].reached and streaming_problem(at, owner) is not None:
                kept.append(f"slot {name} retains WAL of {plan.to} until {owner} streams from it")
                continue
            try:
                connection.execute_change(_DROP, {"name": name}, transaction=False)
                dropped.append(name)
            except StatementFailed:
                pass  # a node reads it now
    return [*([f"dropped the unused slots {', '.join(dropped)} on {plan.to}"] if dropped else []), *kept]
