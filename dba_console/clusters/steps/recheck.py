"""The step cutover-recheck: the conditions of a cutover once more, directly before clients are held."""

from __future__ import annotations

from typing import ClassVar

from dba_console.actions.action import ActionResult, Control
from dba_console.actions.action_preview import ActionPreview
from dba_console.clusters.cluster_check import ClusterCheck
from dba_console.clusters.cutover_readiness import cutover_readiness
from dba_console.clusters.steps.step import Cutover, CutoverStep, NothingChanged, StepSettings
from dba_console.clusters.survey import Survey, survey
from dba_console.core.sanitize import clean

_BY_THE_CUTOVER = ("progress", "slots")
"""Checks that the first step has changed: its mark, and the slots it created."""
SHOWN = 3


class CheckAgain(CutoverStep):
    name: ClassVar[str] = "cutover-recheck"
    summary: ClassVar[str] = (
        "Checks all conditions of the cutover again, directly before clients are held: lag, archive, running dumps and "
        "backups may have changed since the first step. Fails if one is not satisfied, and nothing is held."
    )
    safe_to_repeat: ClassVar[str] = "it only reads: repeating it is safe"

    def show(self, at: Cutover, settings: StepSettings) -> ActionPreview:
        return ActionPreview(text=f"Check again that {at.plan.cluster} is ready for {at.plan.to}.", exact="")

    def do(self, at: Cutover, settings: StepSettings, control: Control) -> ActionResult:
        control.report_progress("checking all nodes and poolers")
        found = survey(at.plan.cluster, at.config, at.context.clock, to=at.plan.to)
        blocking = [one for one in cutover_readiness(found, at.plan.to) if _blocks(one)]
        if blocking:
            shown = "; ".join(one.text for one in blocking[:SHOWN])
            more = f"; and {len(blocking) - SHOWN} more" if len(blocking) > SHOWN else ""
            raise NothingChanged(clean(f"no longer ready: {shown}{more}"), hint=clean(blocking[0].fix) or None)
        return ActionResult(state="ok", text=clean(_numbers(found, at)))


def _blocks(one: ClusterCheck) -> bool:
    return one.state in ("failed", "unknown") and one.id not in _BY_THE_CUTOVER


def _numbers(found: Survey, at: Cutover) -> str:
    """Return what is about to be held."""
    primary = found.node(at.plan.old)
    sessions = "?" if primary is None or primary.work is None else str(primary.work["clients"])
    pooled = sum(one.clients_active + one.clients_waiting for pooler in found.poolers for one in pooler.databases)
    return f"still ready: {sessions} sessions on {at.plan.old}, {pooled} clients active in poolers"
