"""The step failover-fence: prevent the dead primary from accepting writes again, if its host can be reached."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from dba_console.actions.action import ActionPreview, ActionResult, Control
from dba_console.clusters.steps.step import Cutover, CutoverStep, TimedSettings
from dba_console.core.errors import ConsoleError
from dba_console.core.sanitize import clean


class FenceDeadPrimary(CutoverStep):
    name: ClassVar[str] = "failover-fence"
    summary: ClassVar[str] = (
        "Prevents the dead primary from returning as a primary: stops its server if it still runs, and writes "
        "standby.signal into its data directory. If its host cannot be reached, its result `fenced` is false: then the "
        "operator must disconnect it from its clients."
    )
    Settings: ClassVar[type[Struct]] = TimedSettings
    undoable: ClassVar[bool] = True
    safe_to_repeat: ClassVar[str] = "repeating it is safe"

    def show(self, at: Cutover, settings: TimedSettings) -> ActionPreview:
        directory = at.plan.nodes[at.plan.old].data_directory
        where = (
            f"{directory}/standby.signal"
            if directory
            else f"its data directory is unknown: {at.plan.old} cannot be fenced"
        )
        return ActionPreview(text=f"{at.plan.old} can only start as a standby.", exact=where)

    def do(self, at: Cutover, settings: TimedSettings, control: Control) -> ActionResult:
        if not at.plan.nodes[at.plan.old].data_directory:
            hint = f"set data_directory of [clusters.{at.plan.cluster}.nodes.{at.plan.old}]"
            return _not_fenced(f"the data directory of {at.plan.old} is unknown; {hint}")
        try:
            server = at.control(at.plan.old)
            if server.running():
                control.report_progress(f"stopping {at.plan.old}")
                server.stop(settings.timeout_s)
            if server.running():
                return _not_fenced(f"{at.plan.old} is still running {settings.timeout} after the stop request")
            server.fence()
        except ConsoleError as error:
            return _not_fenced(f"{at.plan.old} cannot be reached: {error.message}")
        text = f"{at.plan.old} is down and can only start as a standby"
        return ActionResult(state="ok", text=text, values={"fenced": True}, undo={})

    def revert(self, at: Cutover, settings: TimedSettings, control: Control) -> ActionResult:
        at.control(at.plan.old).undo_standby()
        return ActionResult(state="ok", text=f"{at.plan.old} can start as a primary again")


def _not_fenced(text: str) -> ActionResult:
    return ActionResult(state="ok", text=clean(text), values={"fenced": False})
