"""The sentence for an event in the short timeline: what happened to the server, or what was done about it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from dba_console.core.units import human_duration
from dba_console.recording.plan import JournalRecord
from dba_console.recording.run_reader import StoredRun
from dba_console.watch.samples.event import Event

_LISTED = frozenset(
    ("note", "mark", "gap", "clock.jump", "session.start", "session.end", "job.ended", "session.pruned")
)
_OF_RUN = frozenset(
    ("run.started", "run.paused", "run.resumed", "run.interrupted", "run.ended", "deviation", "person.took",
     "block.settled")
)  # fmt: skip
_CONFIRMATIONS = frozenset(("start", "ack", "yes", "type"))
"""Questions whose answer the start of the act shows too."""
_PREPARATION = re.compile(r"\s*(#|set -|umask |export |[A-Za-z_]+=|$)")
"""Lines of a script that do nothing yet."""
_LONG_S = 1.0
"""A command that was not confirmed is listed if it took longer."""
MAX_LINE = 160
MAX_NOTE = 300


class BriefLine(NamedTuple):
    text: str = ""
    """Empty: the event is not listed."""
    rank: int = 3
    """0 for what the report is about; of too many lines those with the highest are left out."""


def brief_line(
    event: Event, text: str, run: StoredRun | None, *, related: bool, exact: Sequence[str] = ()
) -> BriefLine:
    """Return the line of an event. `text`: that of the long timeline. `related`: it is about the main finding, or of a
    run that is; of other runs only start and end are listed."""
    kind = event.kind
    if kind.startswith("finding."):
        listed = event.who is not None or event.details.get("severity") in ("critical", "warning")
        return BriefLine(text, 0 if related or event.severity == "critical" else 2) if listed else BriefLine()
    if kind in _LISTED or kind.startswith("server."):
        return BriefLine(text, 1 if event.who is not None else 2)
    if not isinstance(event.details.get("run"), str):
        return BriefLine() if event.severity == "info" else BriefLine(text)
    runbook = "run" if run is None else run.about.runbook
    if kind == "run.started" and not related:
        return BriefLine(_whole_run(run, text))
    if kind in ("run.interrupted", "run.resumed") or (related and kind in _OF_RUN):
        return BriefLine(f"{runbook}: {text}", 0 if related else 3)
    if related and kind == "block.answered" and event.details.get("question") not in _CONFIRMATIONS:
        return BriefLine(f"{runbook}: {text}", 0)
    return _act(event, run, exact) if related and kind == "block.intent" and run is not None else BriefLine()


def _whole_run(run: StoredRun | None, text: str) -> str:
    if run is None:
        return text
    last = run.records[-1]
    lasted = human_duration((last.wall_us - run.records[0].wall_us) / 1e6)
    ending = last.text if run.ended is not None else "not ended"
    return f"runbook {run.about.runbook}: {text}; {ending} after {lasted}"


def _act(event: Event, run: StoredRun, exact: Sequence[str]) -> BriefLine:
    """Return what was executed and how it ended; nothing for commands that only find values, and for reverts, which the
    end of the run names."""
    records, seq = run.records, event.details.get("seq")
    if not isinstance(seq, int) or not 0 < seq <= len(records):
        return BriefLine()
    intent = records[seq - 1]
    rows, index = intent.fields.get("row_count"), intent.fields.get("row_index")
    if isinstance(index, int) and index > 0:
        return BriefLine()
    end = next((one for one in records[seq:] if _ends(one, intent)), None)
    took_s = None if end is None else (end.wall_us - intent.wall_us) / 1e6
    found = None if run.plan is None else next((one for one in run.plan.blocks() if one[1].id == intent.block), None)
    step, block = found or (None, None)
    confirmed = any(one.kind == "block.answered" and one.block == intent.block for one in records[: seq - 1])
    if block is not None and block.kind == "run" and not confirmed and (took_s or 0.0) < _LONG_S and _is_ok(end):
        return BriefLine()
    undone = next((one.kind for one in reversed(records[:seq]) if one.kind.startswith("undo.")), "")
    if undone == "undo.began" and _is_ok(end):
        return BriefLine()
    title = "" if block is None else block.title
    what = title or next((one for one in exact if not _PREPARATION.match(one)), "") or intent.block
    what = what if len(what) <= MAX_LINE else what[: MAX_LINE - 1] + "…"
    several = f", {rows} rows" if isinstance(rows, int) and rows > 1 else ""
    text = f"{run.about.runbook}, {intent.step}: {what}{several}: {_outcome(end)}"
    final = step is not None and step.point_of_no_return
    return BriefLine(
        text + ("" if took_s is None else f" ({human_duration(took_s)})"), 0 if final or not _is_ok(end) else 2
    )


def _ends(record: JournalRecord, intent: JournalRecord) -> bool:
    same = (record.block, record.execution) == (intent.block, intent.execution)
    return same and record.kind in ("block.result", "block.settled")


def _is_ok(end: JournalRecord | None) -> bool:
    return end is not None and end.state == "ok"


def _outcome(end: JournalRecord | None) -> str:
    if end is None:
        return "no result recorded"
    note = str(end.fields.get("note") or "")
    note = note if len(note) <= MAX_NOTE else note[: MAX_NOTE - 1] + "…"
    return end.state + (f", {note}" if note and note != "exit 0" else "")
