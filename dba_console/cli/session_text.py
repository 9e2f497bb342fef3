"""Sessions as lines of text. Pure. Times are local, as in session.log, with the zone where a line stands alone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from dba_console.panels.text_elements import clean
from dba_console.panels.time_formats import date_and_time
from dba_console.samples.event import Event
from dba_console.session.backlog import Gap
from dba_console.session.listing import ListedSession
from dba_console.session.run_listing import RunRow
from dba_console.session.verify import Verification
from dba_console.units import UNKNOWN, human_bytes, human_duration

LIST_HEAD = ("id", "start", "duration", "target", "host", "samples", "size", "state")
LIST_RIGHT = (2, 5, 6)


def list_row(row: ListedSession) -> list[str]:
    """One line of `session list`."""
    state = f"{row.state}, pinned" if row.pinned else row.state
    return [
        row.id, local_time(row.start_us), human_duration(row.duration_s), row.target or UNKNOWN, row.host,
        UNKNOWN if row.samples is None else str(row.samples), human_bytes(row.bytes), state,
    ]  # fmt: skip


def show_lines(
    row: ListedSession, gaps: Sequence[Gap], events: Sequence[Event], runs: Sequence[RunRow] = ()
) -> list[str]:
    """`session show`: the facts, the gaps, the runs, the last events."""
    end = "" if row.end_us is None else f" to {local_time(row.end_us)}"
    lines = [
        f"{row.target or UNKNOWN} on {row.host}, {row.state}{', pinned' if row.pinned else ''}",
        f"{local_time(row.start_us)}{end} ({utc_offset(row.start_us)}), {human_duration(row.duration_s)}",
        f"{UNKNOWN if row.samples is None else row.samples} samples, {human_bytes(row.bytes)} on disk",
        row.path,
    ]
    if row.continues:
        lines.append(f"continues {row.continues}, which ended without being closed")
    if row.note:
        lines.append(f"! {row.note}")
    lines += ["", "gaps" if gaps else "no gaps"]
    lines += [
        f"  {local_time(gap.from_us)} {human_duration((gap.to_us - gap.from_us) / 1e6)}: {gap.reason}" for gap in gaps
    ]
    if runs:
        lines += ["", "runs", *(f"  {run_line(run)}" for run in runs)]
    lines += ["", "last events"]
    lines += [f"  {local_time(event.wall_us)} {event.tag}: {' '.join(event.text.split())}" for event in events]
    return [clean(one) for one in lines]


def verify_lines(name: str, found: Verification) -> list[str]:
    """`session verify`: the verdict, what it stands on, what could not be told."""
    verdict = "unchanged" if found.ok else f"NOT what was written: {found.first_bad}"
    lines = [f"{name}: {verdict}", f"checked: {', '.join(found.checked)}", f"not checked: {', '.join(found.unchecked)}"]
    if found.head:
        lines.append(f"newest event's hash {found.head}")
    lines += [f"note: {note}" for note in found.notes]
    for run in found.runs:
        run_verdict = "unchanged" if run.ok else f"NOT what was written: {run.first_bad}"
        lines += [f"run {run.run}: {run_verdict}, {run.records} records", *(f"note: {note}" for note in run.notes)]
    return [clean(one) for one in lines]


def run_line(row: RunRow) -> str:
    """One run in a few words: what, how it ended, when, how long."""
    if row.began_us is None:
        return f"{row.run}: {row.state}: {row.note}"
    lasted = None if row.ended_us is None else (row.ended_us - row.began_us) / 1e6
    took = "" if lasted is None else f", {human_duration(lasted)}"
    note = f"; {row.note}" if row.note else ""
    return f"{local_time(row.began_us)} {row.run}: {row.state}{took}{': ' + row.ending if row.ending else ''}{note}"


def local_time(wall_us: int) -> str:
    """`2026-11-20 14:53:07`, local."""
    return date_and_time(wall_us)


def utc_offset(wall_us: int) -> str:
    """The local zone at that time, as `UTC+01:00`."""
    try:
        offset = datetime.fromtimestamp(wall_us / 1e6).astimezone().strftime("%z")
    except (ValueError, OverflowError, OSError):
        return UNKNOWN  # of a recording that was changed: no calendar has this moment
    return f"UTC{offset[:3]}:{offset[3:5]}"
