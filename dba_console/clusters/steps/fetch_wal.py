"""The step failover-fetch: copy WAL that only the old primary has to the new one, which replays it."""

from __future__ import annotations

from typing import Any, ClassVar

from msgspec import Struct
from msgspec.structs import replace

from dba_console.actions.action import ActionResult, Control
from dba_console.actions.action_preview import ActionPreview
from dba_console.clusters.cluster_check import lsn_text, parse_lsn
from dba_console.clusters.cutover_plan import save_failover
from dba_console.clusters.host_facts import read_free_space
from dba_console.clusters.steps.fence_dead_primary import standby_position
from dba_console.clusters.steps.step import Cutover, CutoverStep, TimedSettings, remaining_seconds
from dba_console.clusters.wal_files import SEGMENT, segment_end, segment_names
from dba_console.clusters.wal_transfer import copy_files, existing_files, read_wal_end
from dba_console.core.declarations import Duration
from dba_console.core.errors import ConsoleError
from dba_console.core.redact import redact
from dba_console.core.sanitize import clean
from dba_console.core.units import human_bytes

WAIT_S = 0.2
_REPLAY = """
SELECT pg_last_wal_replay_lsn()::text AS lsn, pg_is_wal_replay_paused() AS paused,
       current_setting('recovery_min_apply_delay') <> '0' AS delayed
"""
SPARE_BYTES = 1 << 30
"""Space that stays free for the new primary: the default max_wal_size."""


class FetchSettings(TimedSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    timeout: Duration = "10m"
    """Maximum time to replay what was copied, as a duration."""


class FetchWal(CutoverStep):
    name: ClassVar[str] = "failover-fetch"
    summary: ClassVar[str] = (
        "Copies the WAL that the new primary lacks from pg_wal of the stopped old primary into its pg_wal, and waits "
        "until it is replayed: commits that no standby had received are saved. Files that the old primary had not "
        "archived are copied too, if the new primary no longer has them. Its result `lost_bytes` is what is still "
        "missing. The new primary is not restarted."
    )
    Settings: ClassVar[type[Struct]] = FetchSettings
    safe_to_repeat: ClassVar[str] = "repeating it is safe: complete files are replaced by the same files"

    def show(self, at: Cutover, settings: FetchSettings) -> ActionPreview:
        plan = at.plan
        if not plan.failover.fenced:
            return ActionPreview(text=f"{plan.old} cannot be read.", exact="", refusal=f"{plan.old} is not kept down")
        names, lost = _missing(at)
        if not names:
            return ActionPreview(text=_nothing_text(at), exact="", values={"lost_bytes": plan.lost_bytes}, done=True)
        what = f"{plan.to} lacks {lost} bytes of WAL that {plan.old} has" if lost else "files that are not archived"
        source, target = (plan.nodes[name].data_directory for name in (plan.old, plan.to))
        return ActionPreview(
            text=f"{what}: {len(names)} files are copied from {plan.old}, and {plan.to} replays them.",
            exact=f"{names[0]} to {names[-1]}: {plan.old} {source}/pg_wal → {plan.to} {target}/pg_wal",
            values={"lost_bytes": lost, "files": len(names)},
        )

    def do(self, at: Cutover, settings: FetchSettings, control: Control) -> ActionResult:
        plan = at.plan
        names, before = _missing(at)
        failure = ""
        if names:
            try:
                self._copy(at, names, control)
            except ConsoleError as error:
                failure = error.message
        if not plan.failover.end_lsn:
            return _result(at, None, before, failure)
        lost = _lost(at)
        if not lost and not failure:
            self._wait_replayed(at, settings, control)
        return _result(at, lost, before, failure)

    def _wait_replayed(self, at: Cutover, settings: FetchSettings, control: Control) -> None:
        """Wait until it is replayed, unless only the promotion does that: replay is paused or delayed."""
        end = parse_lsn(at.plan.failover.end_lsn)
        for _left in remaining_seconds(at.context, settings.timeout_s):
            with at.connect(at.plan.to) as (connection, _):
                [row] = connection.rows(_REPLAY)
            left = max(0, end - parse_lsn(row["lsn"] or "0/0"))
            if not left or row["paused"] or row["delayed"]:
                break
            control.report_progress(f"{at.plan.to} replays: {human_bytes(left)} left")
            if control.wait(WAIT_S):
                break

    def _copy(self, at: Cutover, names: list[str], control: Control) -> None:
        source, target = at.control(at.plan.old), at.control(at.plan.to)
        needed = len(names) * SEGMENT
        free = min(mount.free for mount in read_free_space(target))
        if free < needed + SPARE_BYTES:
            raise ConsoleError(f"{at.plan.to} has {human_bytes(free)} free, and the files need {human_bytes(needed)} "
                               f"besides {human_bytes(SPARE_BYTES)}")  # fmt: skip

        def report(name: str, number: int) -> None:
            control.report_progress(f"copying {name}", number, len(names), "files")

        copy_files(source, target, names, report)


def _missing(at: Cutover) -> tuple[list[str], int]:
    """Return the files to copy, and how many bytes the new primary lacks. Raises ConsoleError."""
    known, position = at.plan.failover, standby_position(at)
    names: set[str] = set()
    lost = 0
    if known.end_lsn and (lost := max(0, parse_lsn(known.end_lsn) - position)):
        names |= {*segment_names(at.plan.timeline, position, parse_lsn(known.end_lsn))}
    complete = [
        name for name in known.not_archived if (segment_end(name, at.plan.timeline) or position + 1) <= position
    ]
    if complete:
        names |= {*complete} - existing_files(at.control(at.plan.to), complete)
    return sorted(names & existing_files(at.control(at.plan.old), sorted(names))), lost


def _lost(at: Cutover) -> int:
    """Return the bytes that the new primary still lacks, by the WAL files it has: its promotion replays them all."""
    end, position = parse_lsn(at.plan.failover.end_lsn), standby_position(at)
    if position < end:
        position = max(position, read_wal_end(at.control(at.plan.to), at.plan.timeline, position))
    return max(0, end - position)


def _nothing_text(at: Cutover) -> str:
    known = at.plan.failover
    if not known.end_lsn:
        return f"The end of WAL of {at.plan.old} is unknown: nothing can be fetched."
    return f"{at.plan.to} has all WAL of {at.plan.old}, up to {known.end_lsn}."


def _result(at: Cutover, lost: int | None, before: int, failure: str) -> ActionResult:
    """Save the loss that remains. It is confirmed at the promotion: so what could not be fetched does not stop here."""
    plan = replace(at.plan, lost_bytes=lost)
    warnings = (*plan.failover.warnings, failure) if failure else plan.failover.warnings
    save_failover(at.context, plan, warnings=warnings)
    values: dict[str, Any] = {"lost_bytes": lost, "fetched_bytes": None if lost is None else before - lost}
    if lost is None:
        text = "the end of WAL is unknown"
    elif lost:
        text = f"{plan.to} still lacks {lost} bytes: they are lost with the promotion"
    else:
        end = lsn_text(parse_lsn(plan.failover.end_lsn))
        text = f"{plan.to} has all WAL of {plan.old}, up to {end}: {before} bytes were saved"
    return ActionResult(state="ok", text=clean(redact("; ".join([text, *([failure] if failure else [])]))),
                        values=values)  # fmt: skip
