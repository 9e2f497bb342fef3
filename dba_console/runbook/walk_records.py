"""The records of a run that its walk does not write itself, for it has not begun, or has been broken off."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from dba_console.plans.plan import Plan, plan_hash
from dba_console.runbook.requests import JournalRecord


def planned(
    plan: Plan,
    *,
    run: str,
    mode: Literal["run", "rehearse"],
    target: str,
    who: str,
    identity: str = "",
    inputs: Mapping[str, Any] | None = None,
    **fields: Any,
) -> JournalRecord:
    """The first record: which document, on which server, for whom. Inputs that are secret are left out here."""
    secret = {one.name for one in plan.inputs if one.secret}
    shown_inputs = {name: value for name, value in (inputs or {}).items() if name not in secret}
    return JournalRecord(
        kind="run.planned",
        text=f"runbook {plan.id}: {'rehearsal' if mode == 'rehearse' else 'run'} planned by {who} on {target or '?'}",
        who=who,
        fields={
            "run": run,
            "runbook": plan.id,
            "title": plan.title,
            "mode": mode,
            "target": target,
            "identity": identity,
            "inputs": shown_inputs,
            "sha256": plan.sha256,
            "plan_sha256": plan_hash(plan),
            **fields,
        },
    )


def interrupted(text: str, since_us: int | None = None) -> JournalRecord:
    """Written by who finds a run without end whose agent is gone."""
    return JournalRecord(kind="run.interrupted", text=text, fields={} if since_us is None else {"since_us": since_us})


def resumed(who: str) -> JournalRecord:
    """Written before an interrupted run is walked on: what was seen and confirmed for an act is asked again."""
    return JournalRecord(kind="run.resumed", text=f"resumed by {who}", who=who)


def taken_over(who: str, before: str) -> JournalRecord:
    """Another person's answers count from now on."""
    return JournalRecord(kind="person.took", text=f"{who} takes over from {before or 'nobody'}", who=who)


def adhoc(who: str, text: str, step: str = "") -> JournalRecord:
    """Something was done beside the document: a candidate for its next edition."""
    return JournalRecord(
        kind="deviation",
        text=f"{who}, beside the runbook: {text}",
        step=step,
        who=who,
        fields={"what": "adhoc", "reason": text},
    )
