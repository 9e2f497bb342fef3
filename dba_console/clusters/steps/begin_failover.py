"""The step failover-begin: the evidence that the old primary does not run, and the plan of the failover."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from msgspec import Struct
from msgspec.structs import replace

from dba_console.actions.action import ActionContext, ActionResult, Control
from dba_console.actions.action_preview import ActionPreview
from dba_console.clusters.cluster_check import ClusterCheck
from dba_console.clusters.cutover_mark import take_over
from dba_console.clusters.cutover_plan import CutoverPlan, FailoverPlan, cluster_config
from dba_console.clusters.failover_conditions import fence_directory
from dba_console.clusters.failover_readiness import estimate_loss, failover_readiness
from dba_console.clusters.primary_evidence import last_messages, silent_primary
from dba_console.clusters.steps.make_plan import (
    check_pooler_files,
    drop_made_slots,
    make_plan,
    make_slots,
    refusal_text,
    settle_begin,
)
from dba_console.clusters.steps.step import CutoverStep, StepSettings
from dba_console.clusters.survey import Survey, survey
from dba_console.core.config import ClusterConfig
from dba_console.core.errors import ConsoleError, Refused
from dba_console.core.redact import redact
from dba_console.core.sanitize import clean

_ALWAYS_SHOWN = ("loss",)
"""Checks that are shown even if ok. The loss becomes a warning by age alone, and a row that the operator has not seen
would refuse the step."""


class BeginFailoverSettings(StepSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    accept_unknown: bool = False
    """Begin although something is unknown; its confirmation names the old primary."""


class BeginFailover(CutoverStep):
    name: ClassVar[str] = "failover-begin"
    summary: ClassVar[str] = (
        "Checks that the primary does not answer, that no standby is connected to it, and that the node can be "
        "promoted, as `dba-console cluster check --failover` does. Then it saves the plan of the failover, and creates "
        "replication slots for the nodes that answer and for the old primary. Refuses if a check failed, or if "
        "something is unknown, unless `accept_unknown` is set."
    )
    Settings: ClassVar[type[Struct]] = BeginFailoverSettings
    undoable: ClassVar[bool] = True
    row_key: ClassVar[tuple[str, ...]] = ("id",)
    may_shrink: ClassVar[bool] = True
    """A check that has become ok meanwhile needs no new confirmation."""

    def preview(self, settings: BeginFailoverSettings, context: ActionContext) -> ActionPreview:
        config = cluster_config(context, settings.cluster)
        found = survey(settings.cluster, config, context.clock, to=settings.to)
        checks = failover_readiness(found, settings.to, config)
        rows = tuple(
            {"id": one.id, "state": one.state, "what": clean(one.text), "fix": clean(one.fix)}
            for one in checks if one.state != "ok" or one.id in _ALWAYS_SHOWN
        )  # fmt: skip
        if (refusal := _refusal(settings, checks)) is not None:
            return replace(refusal, rows=rows)
        plan = _plan(settings, config, found, context)
        unknown = sum(one.state == "unknown" for one in checks)
        evidence = next(one.text for one in checks if one.id == "primary")
        missing = f" Unknown: {unknown}. Begin only if you know that {plan.old} does not accept writes." * bool(unknown)
        text = f"{clean(evidence)}. {settings.to} can be promoted in a later step.{missing}"
        return ActionPreview(
            text=text, exact=f"later: keep {plan.old} down; on {settings.to}: SELECT pg_promote()", name=plan.old,
            values={"unknown": unknown}, rows=rows,
        )  # fmt: skip

    def run(self, settings: BeginFailoverSettings, context: ActionContext, control: Control) -> ActionResult:
        config = cluster_config(context, settings.cluster)
        found = survey(settings.cluster, config, context.clock, to=settings.to)
        if (refusal := _refusal(settings, failover_readiness(found, settings.to, config))) is not None:
            raise Refused(refusal.refusal or "", hint=refusal.hint)
        plan = _plan(settings, config, found, context)
        make_slots(plan, config, context)
        return ActionResult(
            state="ok", text=f"from {plan.old} to {plan.to}, system identifier {plan.system_identifier}", undo={}
        )

    def settle(self, settings: BeginFailoverSettings, preview: ActionPreview, context: ActionContext) -> ActionResult:
        return settle_begin(self, settings, context)

    def undo(
        self, settings: BeginFailoverSettings, data: Mapping[str, Any], context: ActionContext, control: Control
    ) -> ActionResult:
        return drop_made_slots(settings, context)


def _refusal(settings: BeginFailoverSettings, checks: list[ClusterCheck]) -> ActionPreview | None:
    blocking = [one for one in checks if one.state == "failed"]
    if not settings.accept_unknown:
        blocking += [one for one in checks if one.state == "unknown"]
    if not blocking:
        return None
    return ActionPreview(
        text=f"{settings.cluster} is not ready for a failover to {settings.to}.", exact="",
        refusal=refusal_text(blocking), hint=clean(blocking[0].fix) or None,
    )  # fmt: skip


def _plan(settings: BeginFailoverSettings, config: ClusterConfig, found: Survey, context: ActionContext) -> CutoverPlan:
    """Return the plan. What cannot be read of other nodes and poolers is left to the operator: nothing else waits."""
    old, target = silent_primary(found), found.node(settings.to)
    if old is None or target is None:
        raise Refused("which node was the primary is unknown", hint="it must be kept down before a promotion")
    warnings: list[str] = []
    plan = make_plan(settings, config, found, context, old, warnings)
    by_hand = [f"pooler {one.name} ({clean(one.error)})" for one in found.poolers if not one.reached]
    for name in tuple(plan.databases):
        try:
            check_pooler_files(config, replace(plan, databases={name: plan.databases[name]}), context)
        except (ConsoleError, OSError) as error:
            by_hand.append(f"pooler {name} ({clean(redact(str(error)))})")
    nodes = dict(plan.nodes)
    directory = fence_directory(found, config, old.name) or ""
    nodes[old.name] = replace(nodes[old.name], data_directory=directory)
    nodes |= {name: replace(node, slot="") for name, node in nodes.items() if not node.reached and name != old.name}
    mark = found.cutover if found.cutover is not None and found.cutover.run != context.run else None
    plan = take_over(plan, mark)
    lost = estimate_loss(found, target)
    return replace(
        plan,
        kind="failover",
        nodes=nodes,
        failover=FailoverPlan(
            messages=last_messages(found),
            overridden=settings.accept_unknown,
            seen_us=lost.seen_us or 0,
            least_lost=lost.bytes,
            last_archived=(found.seen.last_archived or "") if found.seen is not None else "",
            by_hand=tuple(by_hand),
            taken_over=mark,
            warnings=tuple(warnings),
        ),
    )
