"""The short form of a postmortem: the long form cut to four pages."""

from __future__ import annotations

import re
from collections import Counter

from msgspec.structs import replace

from dba_console.reports.postmortem.facts import (
    BlockingFacts,
    IncidentFacts,
    Measured,
    ReportedBlocker,
    ReportedRun,
    TimelineRow,
)
from dba_console.reports.postmortem.timeline import limit_rows
from dba_console.runbooks.run_view import RunTable

MAX_ROWS = 36
MAX_TEXT = 240
MAX_AROUND = 6
"""Rows before, and after the incident."""
MAX_DECISIONS = 12
MAX_CHARTS = 4
MAX_RANGES = 6
MAX_OTHERS = 10
MAX_CAUSES = 5
MAX_GAPS = 5
MAX_BLOCKERS = 5
MAX_WAITERS = 5
LEAST_SHARE = 0.01
"""Of the time waited for the worst blocker: others with less are not listed."""
_KEYS = re.compile(
    r" On [^ ]{1,80}: (press y|type `[^`]*`( \([^)]*\))?) to confirm, no? to decline$|"
    r" \d+ steps?, \d+ changes?\. Default: no$"
)
_ASKED = 160
_UNREACHED = ("skipped", "pending")


def shorten(incident: IncidentFacts) -> IncidentFacts:
    """Return the short form: the main events, decisions without screens, runs about the incident without what was
    skipped."""
    rows = _short_timeline(incident)
    return replace(
        incident,
        timeline=tuple(rows),
        omitted=tuple(_omitted(incident, rows)),
        impact=tuple(one for one in incident.impact if one.value is not None and not one.is_zero),
        blocking=tuple(map(_short_blocking, incident.blocking)),
        ranges=incident.ranges[:MAX_RANGES],
        decisions=tuple(
            replace(one, screen=(), missing="", repeated=False, asked=_question(one.asked))
            for one in incident.decisions
            if one.related and not one.routine
        )[:MAX_DECISIONS],
        runs=tuple(_short_run(run) if run.related else run for run in incident.runs),
        charts=incident.charts[:MAX_CHARTS],
        causes=incident.causes[:MAX_CAUSES],
        others=incident.others[:MAX_OTHERS],
        gaps=incident.gaps[:MAX_GAPS],
    )


def _short_blocking(facts: BlockingFacts) -> BlockingFacts:
    """Return the worst blockers with the longest waits; the others, as of ordinary contention, are counted."""
    least_s = LEAST_SHARE * facts.blockers[0].waited_s
    shown = [one for one in facts.blockers[:MAX_BLOCKERS] if one.waited_s >= least_s]
    rest = facts.blockers[len(shown) :]
    return replace(
        facts,
        blockers=tuple(map(_short_blocker, shown)),
        omitted=facts.omitted + len(rest),
        omitted_s=facts.omitted_s + sum(one.waited_s for one in rest),
    )


def _short_blocker(one: ReportedBlocker) -> ReportedBlocker:
    rest = one.waiters[MAX_WAITERS:]
    return replace(
        one,
        statement=_cut(one.statement, MAX_TEXT),
        waiters=one.waiters[:MAX_WAITERS],
        omitted=one.omitted + len(rest),
        omitted_s=one.omitted_s + sum(each.waited_s for each in rest),
    )


def _short_timeline(incident: IncidentFacts) -> list[TimelineRow]:
    """Return the rows of the incident, and a few before and after it."""
    first_us, last_us = _core(incident)
    listed = [replace(row, text=_cut(row.brief, MAX_TEXT), exact=()) for row in incident.timeline if row.brief]
    before = [row for row in listed if row.at_us < first_us]
    after = [row for row in listed if row.at_us > last_us]
    within = [row for row in listed if first_us <= row.at_us <= last_us]
    context = [limit_rows(part, MAX_AROUND, lambda row: row.rank)[0] for part in (before[::-1], after)]
    most = MAX_ROWS - sum(len(part) for part in context)
    return [*context[0][::-1], *limit_rows(within, most, lambda row: row.rank)[0], *context[1]]


def _core(incident: IncidentFacts) -> tuple[int, int]:
    known = {} if incident.spanned else {one.name: one.at_us for one in incident.moments}
    first_us, last_us = known.get("began"), known.get("ended")
    return incident.from_us if first_us is None else first_us, incident.to_us if last_us is None else last_us


def _omitted(incident: IncidentFacts, rows: list[TimelineRow]) -> list[tuple[str, int]]:
    left = Counter(dict(incident.omitted))
    for row in incident.timeline:
        left[row.kind] += row.count
    for row in rows:
        left[row.kind] -= row.count
    return [(kind, count) for kind, count in left.most_common() if count > 0]


def nothing_seen(incident: IncidentFacts) -> list[str]:
    """Return the names of the numbers of the impact that were zero."""
    return list(dict.fromkeys(one.name[:1].lower() + one.name[1:] for one in incident.impact if one.is_zero))


def not_known(incident: IncidentFacts) -> list[Measured]:
    """Return the numbers of the impact that are not known."""
    return [one for one in incident.impact if one.value is None]


def _question(asked: str) -> str:
    """Return a question without the server and the keys that answer it."""
    text = _KEYS.sub("", asked.replace("␊", " "))
    return _cut(text, _ASKED)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _short_run(run: ReportedRun) -> ReportedRun:
    steps, notes = run.steps, run.notes
    if steps is not None and "state" in steps.columns:
        at = steps.columns.index("state")
        # The verdict of a run that did not end well names the steps that were not reached.
        left = [row[0] for row in steps.rows if row[at] == "skipped"]
        steps = replace(steps, rows=tuple(row for row in steps.rows if row[at] not in _UNREACHED))
        notes = (*notes, f"steps skipped: {', '.join(left)}") if left else notes
    steps, measures = _filled_columns(steps), _filled_columns(run.measures)
    sentences = []
    if steps is not None and steps.columns == ("step", "state", "actual"):
        lasted = (f"{step} {actual}" + ("" if state == "ok" else f" ({state})") for step, state, actual in steps.rows)
        sentences.append(f"Steps: {', '.join(lasted)}.")
        steps = None
    if measures is not None and len(measures.columns) == 2:
        sentences.append(f"Measured: {', '.join(f'{name} {value}' for name, value in measures.rows)}.")
        measures = None
    return replace(run, steps=steps, measures=measures, notes=notes, sentences=tuple(sentences))


def _filled_columns(table: RunTable | None) -> RunTable | None:
    """Return a table without the columns that say nothing: every cell is empty, or 0 s of the operator, or the same as
    in `actual`. None if it has no rows."""
    if table is None or not table.rows:
        return None
    cells_of = list(zip(*table.rows, strict=True))
    actual = cells_of[table.columns.index("actual")] if "actual" in table.columns else None
    kept = [
        at
        for at, cells in enumerate(cells_of)
        if any(cells)
        and not (table.columns[at] == "operator wait" and {*cells} <= {"", "0.0s"})
        and not (table.columns[at] == "execution" and cells == actual)
    ]
    columns = tuple(table.columns[at] for at in kept)
    return replace(table, columns=columns, rows=tuple(tuple(row[at] for at in kept) for row in table.rows))
