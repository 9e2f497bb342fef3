"""The step failover-close: drop unused replication slots, and list what is left to the operator."""

from __future__ import annotations

from typing import ClassVar

from dba_console.actions.action import ActionResult, Control
from dba_console.actions.action_preview import ActionPreview
from dba_console.clusters.cutover_mark import remove_mark, remove_mark_file
from dba_console.clusters.steps.finish_cutover import leave_nothing
from dba_console.clusters.steps.make_plan import drop_slots
from dba_console.clusters.steps.standby import streaming_problem
from dba_console.clusters.steps.step import Cutover, CutoverStep, StepSettings
from dba_console.core.errors import ConsoleError
from dba_console.core.redact import redact
from dba_console.core.sanitize import clean

BACKUP = "take a base backup of the new primary: it is the first on the new timeline"


class CloseFailover(CutoverStep):
    name: ClassVar[str] = "failover-close"
    summary: ClassVar[str] = (
        "Drops the replication slots of this failover that no node uses, on the only primary they would retain WAL "
        "until its disk is full; and lists what did not work and what is left to do."
    )
    safe_to_repeat: ClassVar[str] = "repeating it is safe"

    def show(self, at: Cutover, settings: StepSettings) -> ActionPreview:
        refusal = None if at.plan.new_timeline else f"{at.plan.to} is not promoted"
        names = ", ".join(f"'{name}'" for name in at.plan.slots_made)
        exact = (
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
            f"WHERE slot_name IN ({names}) AND NOT active"
            if names
            else ""
        )
        text = f"Drop slots on {at.plan.to} that no node uses, and list what is left to do."
        return ActionPreview(text=text, exact=exact, refusal=refusal)

    def do(self, at: Cutover, settings: StepSettings, control: Control) -> ActionResult:
        plan = at.plan
        done, remains = leave_nothing(at)
        left = [*plan.failover.warnings, *(f"repoint by hand: {one}" for one in plan.failover.by_hand)]
        left += [remains] if remains else []
        left += _end_other_cutover(at)
        for name in (plan.old, *plan.others):
            if (why := streaming_problem(at, name)) is not None:
                left.append(
                    f"{name} does not follow {plan.to} ({why}): rebuild it as a standby, never start it as it is"
                )
        left.append(BACKUP)
        numbered = (f"{number}. {one}" for number, one in enumerate(left, 1))
        text = clean(redact("; ".join([*done, f"left to do: {'; '.join(numbered)}"])))
        return ActionResult(state="ok", text=text, values={"left": len(left)})


def _end_other_cutover(at: Cutover) -> list[str]:
    """Remove the mark and the slots of the interrupted cutover that this failover took over; return what remains."""
    if (mark := at.plan.failover.taken_over) is None:
        return []
    failed = []
    slots = tuple({node.slot for node in at.plan.nodes.values() if node.slot})
    for name in (one for one in at.plan.others if at.plan.nodes[one].reached):
        try:
            drop_slots(at, name, slots)  # those it made there, for nodes that were to follow
        except ConsoleError as error:
            failed.append(f"{name} may have unused slots of the cutover {mark.run}: {error.message}")
    try:
        with at.connect(at.plan.to) as (connection, _):
            remove_mark(connection, mark.run)
        if at.plan.nodes[at.plan.old].data_directory:
            remove_mark_file(at.control(at.plan.old), mark.run)
    except ConsoleError as error:
        failed.append(f"the mark of the interrupted cutover {mark.run} remains: {error.message}")
    return failed
