"""The step failover-evidence: wait until the evidence about the old primary is complete, as far as waiting helps."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from dba_console.actions.action import ActionContext, ActionResult, Control
from dba_console.actions.action_preview import ActionPreview
from dba_console.actions.identity import STANDBY
from dba_console.clusters.cluster_check import ClusterCheck
from dba_console.clusters.cutover_plan import cluster_config
from dba_console.clusters.failover_readiness import failover_readiness
from dba_console.clusters.node_state import NodeState
from dba_console.clusters.primary_evidence import (
    check_primary,
    check_receivers,
    closes_in_s,
    last_messages,
    message_reason,
)
from dba_console.clusters.steps.step import CutoverStep, TimedSettings, remaining_seconds
from dba_console.clusters.survey import Survey, survey
from dba_console.core.declarations import Duration
from dba_console.core.sanitize import clean
from dba_console.core.units import human_duration

WAIT_S = 1.0
_CLOSING_S = 10.0
"""Time a standby may take to close a connection that has timed out."""


class EvidenceSettings(TimedSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    timeout: Duration = "3m"
    """Maximum wait for the standbys to close their connections to the old primary, as a duration."""


class AwaitEvidence(CutoverStep):
    name: ClassVar[str] = "failover-evidence"
    summary: ClassVar[str] = (
        "Waits until every standby has closed its connection to the old primary, which it does after "
        "wal_receiver_timeout without a message, and reports what is known of the old primary: `unknown` is the number "
        "of checks without an answer. It changes nothing. It ends at once if the old primary answers, or is "
        "recovering from a crash: then it shows the progress of the recovery. It fails as soon as a standby receives a "
        "message: then the primary runs, and only this host cannot reach it."
    )
    Settings: ClassVar[type[Struct]] = EvidenceSettings
    safe_to_repeat: ClassVar[str] = "it only reads: repeating it is safe"

    def preview(self, settings: EvidenceSettings, context: ActionContext) -> ActionPreview:
        cluster_config(context, settings.cluster)
        return ActionPreview(text=f"Read the evidence about the primary of {settings.cluster}.", exact="")

    def run(self, settings: EvidenceSettings, context: ActionContext, control: Control) -> ActionResult:
        config = cluster_config(context, settings.cluster)
        before: dict[str, float] | None = None
        for left_s in remaining_seconds(context, settings.timeout_s):
            found = survey(settings.cluster, config, context.clock)
            if any(one.state == "failed" or _is_starting(one) for one in check_primary(found, settings.to)):
                break
            before = last_messages(found) if before is None else before
            if (message := message_reason(found, before)) is not None:
                return ActionResult(state="failed", text=clean(f"{message}; this host cannot reach it"))
            open_connections = _open_connections(found)
            waits = [closes_in_s(node) for node in open_connections]
            if not open_connections or None in waits:
                break
            longest_s = max(one for one in waits if one is not None)
            if longest_s + _CLOSING_S > left_s and longest_s > 0:
                break  # waiting would not help
            names = ", ".join(node.name for node in open_connections)
            control.report_progress(
                f"{names}: still connected to the primary, which may be running; closes the silent connection in "
                f"{human_duration(longest_s)}"
            )
            if control.wait(WAIT_S):
                return ActionResult(state="stopped", text="stopped before the standbys had closed their connections")
        checks = failover_readiness(
            survey(settings.cluster, config, context.clock, to=settings.to), settings.to, config
        )
        counts = {state: sum(one.state == state for one in checks) for state in ("unknown", "failed")}
        shown = [one.text for one in checks if one.id == "primary" or one.state in ("unknown", "failed")]
        return ActionResult(state="ok", text=clean("; ".join(dict.fromkeys(shown))), values=counts)


def _is_starting(one: ClusterCheck) -> bool:
    return one.id == "primary" and one.state == "unknown"


def _open_connections(found: Survey) -> list[NodeState]:
    """Return the standbys that are connected to the old primary."""
    names = {one.id.removeprefix("view.") for one in check_receivers(found) if one.state != "ok"}
    return [node for node in found.nodes if node.name in names and node.role == STANDBY and node.receiver]
