"""The archive across a failover: WAL that only the old primary could archive, and the proof that the new one archives.

A standby does not archive what it receives (archive_mode = on): its files count as archived. If the old primary had not
archived them, the archive would have a hole, and no backup from before could be restored beyond it.
"""

from __future__ import annotations

from typing import Any, ClassVar

from msgspec import Struct

from dba_console.actions.acting_connection import ActingConnection
from dba_console.actions.action import ActionResult, Control
from dba_console.actions.action_preview import ActionPreview
from dba_console.clusters.cutover_plan import CutoverPlan, save_failover
from dba_console.clusters.steps.step import Cutover, CutoverStep, TimedSettings, remaining_seconds
from dba_console.clusters.wal_files import NAME, SEGMENT, segment_end, segment_names
from dba_console.clusters.wal_transfer import mark_for_archive
from dba_console.core.declarations import Duration
from dba_console.core.errors import ConsoleError
from dba_console.core.redact import redact
from dba_console.core.sanitize import clean

WAIT_S = 0.5
_MODE = """
SELECT current_setting('archive_mode') AS mode,
       (SELECT setting::int8 FROM pg_settings WHERE name = 'wal_segment_size') AS segment
"""
_SWITCH = """
SELECT pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()) AS file,
       pg_catalog.pg_switch_wal()::text AS lsn
  FROM (SELECT pg_catalog.pg_logical_emit_message(false, 'dba-console', '')) written
"""
"""The message makes sure that the segment is not empty: an empty one is not switched."""
_ARCHIVED = """
SELECT last_archived_wal AS archived, last_failed_wal AS failed,
       coalesce(last_failed_time > last_archived_time, last_failed_time IS NOT NULL) AS failing,
       (SELECT count(*)::int4 FROM pg_ls_archive_statusdir() WHERE name LIKE '%.ready') AS ready
  FROM pg_stat_archiver
"""
_WITHOUT_HOLE = "take a new base backup now: backups from before the failover cannot be restored beyond the hole"


def keep_unarchived(at: Cutover, position: int) -> CutoverPlan:
    """Mark the files that the old primary had not archived, right before the promotion; return the plan.

    A failure does not stop the promotion: it is a warning.
    """
    plan = at.plan
    with at.connect(plan.to) as (connection, _):
        [row] = connection.rows(_MODE)
    if row["mode"] != "on":  # `always`: the standby has archived them itself
        return plan
    if row["segment"] != SEGMENT:
        return _warn(at, f"WAL segments of {row['segment']} bytes are not supported: check the archive for a hole")
    names = _unarchived(plan, position)
    if names is None:
        return _warn(at, f"which WAL {plan.old} had archived is unknown: check the archive for a hole")
    if not names:
        return plan
    try:
        missing = mark_for_archive(at.control(plan.to), names)
    except ConsoleError as error:
        first, last = names[0], names[-1]
        return _warn(at, f"the archive may lack {first} to {last}, and {plan.to} was not asked to archive them: "
                     f"{error.message}; "
                     f"{_WITHOUT_HOLE}")  # fmt: skip
    if missing:
        return _warn(at, f"the archive has a hole, {missing[0]} to {missing[-1]}: {plan.to} no longer has these files; "
                     f"{_WITHOUT_HOLE}")  # fmt: skip
    return plan


def _unarchived(plan: CutoverPlan, position: int) -> tuple[str, ...] | None:
    """Return the complete files that the new primary has to archive; None: unknown.

    As read from the old primary, else all that are newer than the last file it was seen to archive.
    """
    known = plan.failover
    if known.fenced:
        return tuple(
            name for name in known.not_archived if (segment_end(name, plan.timeline) or position + 1) <= position
        )
    if not NAME.fullmatch(known.last_archived):
        return None
    begin = segment_end(known.last_archived, plan.timeline)
    complete = position // SEGMENT * SEGMENT
    return () if begin is None or begin >= complete else tuple(segment_names(plan.timeline, begin, complete))


def _warn(at: Cutover, text: str) -> CutoverPlan:
    return save_failover(at.context, at.plan, warnings=(*at.plan.failover.warnings, clean(redact(text))))


class ArchiveSettings(TimedSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    timeout: Duration = "60s"
    """Maximum time until a file is archived, as a duration."""


class ProveArchiving(CutoverStep):
    name: ClassVar[str] = "failover-archive"
    summary: ClassVar[str] = (
        "Proves that the new primary archives: switches to a new WAL file and waits until the one before, and all that "
        "were waiting, are archived. Its result `archived` is false if not: then the text says which file fails."
    )
    Settings: ClassVar[type[Struct]] = ArchiveSettings
    safe_to_repeat: ClassVar[str] = "repeating it is safe"

    def show(self, at: Cutover, settings: ArchiveSettings) -> ActionPreview:
        refusal = None if at.plan.new_timeline else f"{at.plan.to} is not promoted"
        return ActionPreview(
            text=f"Check that {at.plan.to} archives its WAL.", exact="SELECT pg_switch_wal()", refusal=refusal
        )

    def do(self, at: Cutover, settings: ArchiveSettings, control: Control) -> ActionResult:
        plan = at.plan
        try:
            with at.connect(plan.to) as (connection, _):
                if connection.rows(_MODE)[0]["mode"] == "off":
                    text = f"{plan.to} does not archive: archive_mode is off"
                    return ActionResult(state="ok", text=text, values={"archived": False})
                return self._wait_archived(at, connection, settings, control)
        except ConsoleError as error:
            return _not_archived(at, f"whether {plan.to} archives is unknown: {error.message}")

    def _wait_archived(
        self, at: Cutover, connection: ActingConnection, settings: ArchiveSettings, control: Control
    ) -> ActionResult:
        file = connection.execute_change(_SWITCH, transaction=False).rows[0]["file"]
        row: dict[str, Any] = {}
        for _left in remaining_seconds(at.context, settings.timeout_s):
            [row] = connection.rows(_ARCHIVED)
            if row["ready"] == 0 and (row["archived"] or "") >= file:
                text = f"{at.plan.to} archives: {file} and all before it are in the archive"
                return ActionResult(state="ok", text=text, values={"archived": True})
            control.report_progress(f"{row['ready']} WAL files wait for the archiver")
            if control.wait(WAIT_S):
                break
        if row.get("failing"):
            why = (f"archive_command fails for {row['failed']}. If the archive already has this file with the same "
                   "content, archive_command must return 0 for it")  # fmt: skip
        else:
            why = f"{row.get('ready')} WAL files still wait after {settings.timeout}"
        return _not_archived(at, f"{at.plan.to} does not archive: {why}; runbook archive-failing")


def _not_archived(at: Cutover, text: str) -> ActionResult:
    _warn(at, text)
    return ActionResult(state="ok", text=clean(redact(text)), values={"archived": False})
