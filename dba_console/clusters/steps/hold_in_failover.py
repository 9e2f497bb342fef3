"""The step failover-hold: make clients of the poolers wait, although their server may never answer again."""

from __future__ import annotations

from typing import ClassVar

from dba_console.actions.action import ActionResult, Control
from dba_console.actions.action_preview import ActionPreview
from dba_console.clusters.cutover_plan import save_failover
from dba_console.clusters.steps.step import Cutover, CutoverStep, StepSettings
from dba_console.core.errors import ConsoleError
from dba_console.core.redact import redact
from dba_console.core.sanitize import clean

PAUSE_S = 2.0
"""Time for transactions to end: on a server that does not answer they never do."""


class HoldInFailover(CutoverStep):
    name: ClassVar[str] = "failover-hold"
    summary: ClassVar[str] = (
        "Makes the clients of every pooler wait: PAUSE, and after 2 s KILL of each database, which disconnects clients "
        "in a transaction and holds new ones until RESUME. A pooler that does not answer is left to the operator: "
        "nothing waits for it. Its result `by_hand` is the number of poolers that could not be held."
    )
    undoable: ClassVar[bool] = True
    safe_to_repeat: ClassVar[str] = "repeating it is safe"

    def show(self, at: Cutover, settings: StepSettings) -> ActionPreview:
        if not at.config.poolers:
            return ActionPreview(text="No pooler is configured: no client is held.", exact="", done=True)
        unreached = "".join(f" Not held: {one}." for one in at.plan.failover.by_hand)
        named = [f"{database} of {name}" for name, each in at.plan.databases.items() for database in each]
        text = (
            f"Clients of {', '.join(named)} wait from now on; those in a transaction are disconnected." if named else ""
        )
        exact = "; ".join(f"PAUSE {database}, else KILL" for each in at.plan.databases.values() for database in each)
        return ActionPreview(text=f"{text}{unreached}".strip(), exact=exact, done=not named)

    def do(self, at: Cutover, settings: StepSettings, control: Control) -> ActionResult:
        held, failed = [], {}
        for name, admin, databases in at.poolers():
            control.report_progress(f"PAUSE on {name}, and KILL after {PAUSE_S:g} s")
            try:
                if admin.hold(databases, PAUSE_S, control.stop_requested):
                    held.append(f"{name}: its clients were disconnected, new ones wait")
                else:
                    held.append(f"{name}: its clients wait")
            except ConsoleError as error:
                failed[name] = clean(redact(error.message))
        known = at.plan.failover.by_hand
        new = tuple(text for name, why in failed.items() if (text := f"pooler {name} ({why})") not in known)
        save_failover(at.context, at.plan, by_hand=(*known, *new))
        texts = [*held, *(f"not held: {one}" for one in (*known, *new))]
        return ActionResult(state="ok", text="; ".join(texts), undo={}, values={"by_hand": len(known) + len(new)})

    def revert(self, at: Cutover, settings: StepSettings, control: Control) -> ActionResult:
        failed = []
        for name, admin, databases in at.poolers():
            try:
                admin.resume(databases)
            except ConsoleError as error:
                failed.append(f"pooler {name}: {error.message}: RESUME it by hand if it is paused")
        state = "failed" if failed else "ok"
        return ActionResult(state=state, text=clean(redact("; ".join(failed) or "clients of the poolers are released")))
