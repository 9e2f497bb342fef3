"""One-step plans for actions started from a screen, with the same walk, questions, permission gate and records as a
runbook."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from dba_console.core.errors import UsageError
from dba_console.recording.plan import Block, Confirmation, Plan, Prose, Step

Verb = Literal["cancel", "terminate"]
WORDS = {"cancel": "Cancel the query of", "terminate": "Terminate"}
COSTS = {
    "cancel": "The running statement ends with an error; the session stays.",
    "terminate": "The connection is closed and its transaction rolled back. The client gets an error.",
}
SOURCE = "screen"
PROGRESS = ("query_start", "xact_start", "state_change")
"""Optional columns: the session is signalled only if their values are unchanged."""


def signal_plan(verb: Verb, rows: Sequence[Mapping[str, Any]]) -> Plan:
    """Return a plan that cancels or terminates exactly the backends of these rows, identified by `pid` and
    `backend_start`; a new backend with the same pid is not signalled. Several are confirmed by their count, the
    termination of one by the target name.

    Raises UsageError for no rows, or a row without `backend_start`.
    """
    if verb not in WORDS:
        raise UsageError(f"unknown signal {verb!r}", hint="use cancel or terminate")
    if not rows:
        raise UsageError("no session is chosen", hint="put the cursor on a row, or mark several")
    chosen = [_session_key(row) for row in rows]
    unknown = [str(row["pid"]) for row in chosen if row["backend_start"] in (None, "")]
    if unknown:
        raise UsageError(
            f"start time of backend {', '.join(unknown)} unknown: a reused pid could not be detected",
            hint="the console is not connected to the server; connect first",
        )
    what = f"backend {chosen[0]['pid']}" if len(chosen) == 1 else f"{len(chosen)} backends"
    block = Block(
        id=f"{verb}/action",
        kind="action",
        line=1,
        language="toml",
        body="",
        action="signal-backend",
        settings={"verb": verb, "rows": chosen},
        title=f"{WORDS[verb]} {what}",
        confirm=_confirmation(verb, len(chosen)),
        undo="none",
    )
    title, prose = f"{WORDS[verb]} {what}", (Prose(COSTS[verb]),)
    step = Step(id=verb, title=title, line=1, prose=prose, blocks=(block,), panels=("sessions", "locks"))
    return Plan(
        id=f"{verb}-backend",
        title=title,
        prose=prose,
        needs=("server",),
        tag=verb.upper(),
        steps=(step,),
        source=SOURCE,
    )


def _session_key(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what identifies a session and its progress: a session that has progressed is not signalled."""
    progress = {name: row[name] for name in PROGRESS if row.get(name) not in (None, "")}
    return {"pid": int(row["pid"]), "backend_start": row.get("backend_start"), **progress}


def confirms_itself(plan: Plan) -> bool:
    """Return whether the plan is a single action from a screen: its confirmation replaces the start question."""
    blocks = [block for _, block in plan.blocks()]
    return plan.source == SOURCE and not plan.sha256 and len(blocks) == 1 and blocks[0].confirm is not None


def _confirmation(verb: Verb, count: int) -> Confirmation:
    if count > 1:
        return Confirmation(level="type", text="count")
    return Confirmation(level="yes") if verb == "cancel" else Confirmation(level="type", text="target")
