"""Steps that make a diverged old primary a copy of the new one again: pg_rewind, or a new base backup."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from dba_console.actions.action import ActionResult, Control
from dba_console.actions.action_preview import ActionPreview
from dba_console.clusters.crash_recovery import recover_alone
from dba_console.clusters.server_control import CLEAN_STATES
from dba_console.clusters.steps.standby import make_standby, not_promoted, primary_conninfo
from dba_console.clusters.steps.step import Cutover, CutoverStep, StepSettings, printed_line
from dba_console.core.errors import ConsoleError
from dba_console.core.redact import redact
from dba_console.core.sanitize import clean

REWIND_S = 3600.0
CLONE_S = 24 * 3600.0
CHECKPOINT_S = 600.0
TABLESPACES = """
SELECT oid::int8 AS oid, pg_catalog.pg_tablespace_location(oid) AS location FROM pg_catalog.pg_tablespace
 WHERE pg_catalog.starts_with(pg_catalog.pg_tablespace_location(oid), '/')
"""


RUNS, CRASHED, DOWN = "runs", "crashed", "down"
_STEPS_BEFORE = {
    RUNS: ["stop it", "CHECKPOINT on the new primary"],
    CRASHED: ["complete its crash recovery", "CHECKPOINT on the new primary"],
    DOWN: ["CHECKPOINT on the new primary"],
}
_BEFORE_DRY_RUN = {
    RUNS: "It is running, and is stopped for this; pg_rewind then writes nothing.",
    CRASHED: "It crashed, so pg_rewind cannot be tried yet: nothing is written now.",
    DOWN: "No data file is changed; WAL that it needs may be fetched into pg_wal.",
}


def _state(at: Cutover) -> str:
    server = at.control(at.plan.old)
    if server.running():
        return RUNS
    clean_state = server.control_file().state in CLEAN_STATES or server.was_rebuilt()
    return DOWN if clean_state else CRASHED


class RewindSettings(StepSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    dry_run: bool = False
    """Only check whether it would work; nothing is written."""


class RewindOldPrimary(CutoverStep):
    name: ClassVar[str] = "cutover-rewind"
    summary: ClassVar[str] = (
        "Stops the old primary if it runs, completes its crash recovery if it crashed (without clients, and without "
        "WAL of the new primary), and runs pg_rewind on it against the new one: changes that only the old one has are "
        "removed. Its result `works` is false if pg_rewind reports that it cannot: then the node must be cloned. The "
        "dry run writes nothing on a server that is down; it does not try a crash recovery."
    )
    Settings: ClassVar[type[Struct]] = RewindSettings

    def show(self, at: Cutover, settings: RewindSettings) -> ActionPreview:
        refusal, hint = _manual_refusal(at)
        directory = at.plan.nodes[at.plan.old].data_directory
        exact = [f"pg_rewind -D {directory} --source-server …" + (" --dry-run" if settings.dry_run else "")]
        before = ""
        try:
            state = _state(at) if refusal is None else None
        except ConsoleError as error:
            state, before = None, f"It cannot be reached: {error.message}."
        if state is not None:
            exact = [*_STEPS_BEFORE[state], *exact] if state != CRASHED or not settings.dry_run else ["pg_control"]
            before = _BEFORE_DRY_RUN[state] if settings.dry_run else ""
        if settings.dry_run:
            text = f"Check whether pg_rewind can make {at.plan.old} a copy of {at.plan.to} again. {before}"
        else:
            text = (
                f"pg_rewind makes {at.plan.old} a copy of {at.plan.to} again, and removes what only {at.plan.old} has."
            )
        copy = f"cp -a --reflink=auto {directory} {directory}.before-rewind"
        return ActionPreview(
            text=f"{text.strip()} If its last commits may be needed, copy its data directory first: `{copy}`.",
            exact="; ".join(exact),
            destructive=not settings.dry_run,
            name=at.plan.old,
            refusal=refusal,
            hint=hint,
        )

    def do(self, at: Cutover, settings: RewindSettings, control: Control) -> ActionResult:
        try:
            _state(at)
        except ConsoleError as error:
            text = f"{at.plan.old} cannot be reached, nothing was done: {error.message}"
            return ActionResult(state="ok", text=clean(redact(text)), values={"works": False})
        server, old = at.control(at.plan.old), at.plan.old
        if server.running():
            server.stop(REWIND_S)
        if server.was_rebuilt():
            make_standby(at)
            return ActionResult(state="ok", text=f"{old} was rebuilt before", values={"works": True})
        if server.control_file().state not in CLEAN_STATES:
            if settings.dry_run:
                text = f"{old} crashed: pg_rewind can be tried after its crash recovery, which the next step completes"
                return ActionResult(state="ok", text=f"{text}; nothing was written", values={"works": True})
            control.report_progress(f"{old} recovers from its crash, without clients")
            recover_alone(server, at.plan.timeline, REWIND_S)
        with at.connect(at.plan.to) as (connection, _):
            # Without it pg_rewind reads the old timeline from pg_control and finds nothing to do.
            connection.execute_change("CHECKPOINT", timeout_s=CHECKPOINT_S, transaction=False)
        dsn = at.node(at.plan.to).dsn
        ended = server.rewind(dsn, dry_run=True, timeout_s=REWIND_S)  # of what fails now, nothing was written
        if ended.code == 0 and not settings.dry_run:
            ended = server.rewind(dsn, dry_run=False, timeout_s=REWIND_S)
        said = f"pg_rewind of {old}: {''.join(printed_line(ended)) or 'no output'}"
        if ended.code is None:
            return ActionResult(state="failed", text=f"{said}; it is still running: retry waits for it")
        if ended.code != 0:
            return ActionResult(state="ok", text=f"{said}; it must be cloned", values={"works": False})
        if not settings.dry_run:
            make_standby(at)  # pg_rewind copies the configuration of its source
        return ActionResult(state="ok", text=said, values={"works": True})

    def find_outcome(self, at: Cutover, settings: RewindSettings) -> ActionResult:
        if settings.dry_run:
            return self.retry_result("a dry run can be repeated")
        return ActionResult(
            state="unknown", text="pg_rewind may have ended halfway: if it fails now, clone the node again"
        )


class CloneOldPrimary(CutoverStep):
    name: ClassVar[str] = "cutover-clone"
    summary: ClassVar[str] = (
        "Stops the old primary and replaces its data directory by a pg_basebackup of the new one; the old directory is "
        "renamed and kept, and so are its tablespaces. Its disks need space for both. Configuration files and "
        "certificates are kept. Its result `works` is false if its host cannot be reached: then nothing was done."
    )
    safe_to_repeat: ClassVar[str] = "repeating it is safe: it waits for a running copy, and keeps a complete one"

    def show(self, at: Cutover, settings: StepSettings) -> ActionPreview:
        refusal, hint = _manual_refusal(at)
        directory = at.plan.nodes[at.plan.old].data_directory
        return ActionPreview(
            text=f"pg_basebackup makes {at.plan.old} a copy of {at.plan.to}; the current {directory} is renamed",
            exact=f"pg_basebackup -D {directory} -X stream -c fast",
            destructive=True,
            name=at.plan.old,
            refusal=refusal,
            hint=hint,
        )

    def do(self, at: Cutover, settings: StepSettings, control: Control) -> ActionResult:
        server = at.control(at.plan.old)
        try:
            server.host.account()
        except ConsoleError as error:
            text = f"the host of {at.plan.old} cannot be reached, nothing was done: {error.message}"
            return ActionResult(state="ok", text=clean(redact(text)), values={"works": False})
        if server.running():
            server.stop(REWIND_S)
        control.report_progress(f"pg_basebackup from {at.plan.to}")
        with at.connect(at.plan.to) as (connection, _):
            tablespaces = {row["oid"]: row["location"] for row in connection.rows(TABLESPACES)}
        ended = server.clone(primary_conninfo(at, at.plan.old), CLONE_S, tablespaces)
        printed = "".join(printed_line(ended)) or "no output"
        if ended.code != 0:
            return ActionResult(state="failed", text=f"pg_basebackup for {at.plan.old}: {printed}")
        make_standby(at)
        text = f"{at.plan.old} is a copy of {at.plan.to}: {printed}"
        return ActionResult(state="ok", text=text, values={"works": True})


def _manual_refusal(at: Cutover) -> tuple[str | None, str | None]:
    """Return why the console may not rebuild the old primary, and the hint; None: it may."""
    if at.plan.manager is not None:
        return f"{at.plan.manager.kind} does this itself", at.plan.manager.status
    return not_promoted(at), None
