"""Plans of one step for what is done from a screen: the same walk, questions, gate and record as a runbook's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from dba_console.core.errors import UsageError
from dba_console.recording.plan import Block, Confirmation, Plan, Step

Verb = Literal["cancel", "terminate"]
WORDS = {"cancel": "Cancel what runs in", "terminate": "Terminate"}
COSTS = {
    "cancel": "The statement that runs ends with an error; the session stays.",
    "terminate": "The connection is closed and its transaction rolled back. Whoever holds it sees an error.",
}
SOURCE = "screen"
PROGRESS = ("query_start", "xact_start", "state_change")
"""Columns that may be given besides: the session is signalled only if they are what they were."""


def signal_plan(verb: Verb, rows: Sequence[Mapping[str, Any]]) -> Plan:
    """Cancel or terminate the backends of these rows, each named by `pid` and `backend_start`, and no others: whoever
    has the pid by then is left alone. Several are confirmed by their count, one to be terminated by the target's name.

    Raises UsageError for no rows, or a row that does not say when its backend started.
    """
    if verb not in WORDS:
        raise UsageError(f"{verb!r} is no signal", hint="cancel or terminate")
    if not rows:
        raise UsageError("no session is chosen", hint="put the cursor on a row, or mark several")
    chosen = [_session_key(row) for row in rows]
    unknown = [str(row["pid"]) for row in chosen if row["backend_start"] in (None, "")]
    if unknown:
        raise UsageError(
            f"it is not known when {', '.join(unknown)} started, so it cannot be told from whoever has that pid next",
            hint="in blind mode there is nobody to ask; connect first",
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
    title = f"{WORDS[verb]} {what}"
    step = Step(id=verb, title=title, line=1, prose=COSTS[verb], blocks=(block,), panels=("sessions", "locks"))
    return Plan(
        id=f"{verb}-backend",
        title=title,
        prose=COSTS[verb],
        needs=("server",),
        tag=verb.upper(),
        steps=(step,),
        source=SOURCE,
    )


def _session_key(row: Mapping[str, Any]) -> dict[str, Any]:
    """What names a session, and what says how far it was: one that has gone on since is left alone."""
    progress = {name: row[name] for name in PROGRESS if row.get(name) not in (None, "")}
    return {"pid": int(row["pid"]), "backend_start": row.get("backend_start"), **progress}


def confirms_itself(plan: Plan) -> bool:
    """Whether the plan is one act from a screen: its own question, which shows the exact set, is the start."""
    blocks = [block for _, block in plan.blocks()]
    return plan.source == SOURCE and not plan.sha256 and len(blocks) == 1 and blocks[0].confirm is not None


def _confirmation(verb: Verb, count: int) -> Confirmation:
    if count > 1:
        return Confirmation(level="type", text="count")
    return Confirmation(level="yes") if verb == "cancel" else Confirmation(level="type", text="target")
