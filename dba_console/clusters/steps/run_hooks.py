"""Step that runs the hooks of the cluster: they hold schedulers and other writers, and release them."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from dba_console.actions.action import ActionResult, Control
from dba_console.actions.action_preview import ActionPreview
from dba_console.clusters.cutover_plan import save_failover
from dba_console.clusters.node_host import failure_text, run_command
from dba_console.clusters.steps.step import Cutover, CutoverStep, StepSettings
from dba_console.core.errors import ConsoleError
from dba_console.core.redact import redact
from dba_console.core.sanitize import clean


class HookSettings(StepSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    release: bool = False
    """Run the undo commands of the hooks: schedulers continue."""


class RunHooks(CutoverStep):
    name: ClassVar[str] = "cutover-hooks"
    summary: ClassVar[str] = (
        "Runs the hooks of the cluster, which hold schedulers and other writers, or with `release` the commands that "
        "release them."
    )
    Settings: ClassVar[type[Struct]] = HookSettings
    undoable: ClassVar[bool] = True
    safe_to_repeat: ClassVar[str] = "it is unknown which hooks have run; hooks must be safe to run twice"

    def show(self, at: Cutover, settings: HookSettings) -> ActionPreview:
        hooks = at.config.hooks
        names = ", ".join(hooks)
        if not hooks:
            return ActionPreview(text="No hooks are configured.", exact="", done=True)
        what = "release their writers" if settings.release else "hold their writers"
        commands = "; ".join(" ".join(one.undo if settings.release else one.run) for one in hooks.values())
        return ActionPreview(text=f"The hooks {names} {what}.", exact=clean(redact(commands)))

    def do(self, at: Cutover, settings: HookSettings, control: Control) -> ActionResult:
        return _run_hooks(at, release=settings.release)

    def revert(self, at: Cutover, settings: HookSettings, control: Control) -> ActionResult:
        return _run_hooks(at, release=not settings.release)


def _run_hooks(at: Cutover, *, release: bool) -> ActionResult:
    """Run them; in a failover one that fails is a warning, because its host may be down too."""
    failed = []
    for name, hook in at.config.hooks.items():
        what = f"undo of hook {name}" if release else f"hook {name}"
        if release and not hook.undo:
            continue
        try:
            ended = run_command(
                hook, cluster=at.plan.cluster, from_=at.plan.old, to=at.plan.to, undo=release, clock=at.context.clock
            )
            why = failure_text(what, ended)
        except ConsoleError as error:
            if at.plan.kind == "cutover":
                raise
            why = f"{what}: {clean(redact(error.message))}"
        if why is not None and at.plan.kind == "cutover":
            return ActionResult(state="failed", text=why)
        failed += [why] if why is not None else []
    if failed:
        save_failover(at.context, at.plan, warnings=(*at.plan.failover.warnings, *failed))
    count = f"{len(at.config.hooks) - len(failed)} of {len(at.config.hooks)} hooks" if failed else None
    text = "; ".join([count or f"{len(at.config.hooks)} hooks", *failed])
    return ActionResult(state="ok", text=text, undo={}, values={"failed": len(failed)})
