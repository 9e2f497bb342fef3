"""Findings: what is wrong, in sentences, with what they are told from. The most urgent that nobody has seen first."""

from __future__ import annotations

from collections.abc import Sequence

from dba_console.frames.chart_history import ChartHistory
from dba_console.frames.model import Finding, Frame
from dba_console.panels.event_lines import finding_line, finding_sign, severity_style
from dba_console.panels.field_formats import field_label, value_text
from dba_console.panels.phrases import name_of, text_line, wrap_words
from dba_console.panels.text_elements import Cell, Detail, Line, Span, Table, TableColumn, TableRow, clean, cut
from dba_console.panels.text_elements import width as width_of
from dba_console.panels.time_formats import date_and_time, local_date_and_time, local_time_of_day, parse_rfc3339
from dba_console.units import UNKNOWN, human_duration

_RANKS = {"critical": 0, "warning": 1}
_STATES = {"open": 0, "acknowledged": 1, "silenced": 3}
_REMARK_RANK = 2
NO_FINDING_TEXT = "the rules found nothing wrong"
NOT_JUDGED_TEXT = "nothing has been judged yet"
_INDENT = 12
"""Cells before the sentence: sign and time."""
MAX_SENTENCE_LINES = 5
"""A sentence on the overview is wrapped to at most so many lines."""

_WIDE_TABLE = 110
"""Cells from which on a table has room for state and runbook beside a sentence one can read."""

_COLUMNS = (
    TableColumn("sign", "", 1),
    TableColumn("since", "since", 8, help="Local time it began", sort_key="T"),
    TableColumn("age", "for", 6, right=True),
    TableColumn("severity", "severity", 8, sort_key="S"),
    TableColumn("text", "finding", 60, grow=True),
)
_WIDE_COLUMNS = (
    TableColumn("state", "state", 12, sort_key="A", spare=1),
    TableColumn("runbook", "runbook", 20, spare=2),
)
"""On a narrow screen the sign tells the state, and the row in full the rest: the sentence needs the cells."""


def compact(frame: Frame, width: int, height: int, history: ChartHistory) -> list[Line]:
    """What is not silenced, the most urgent first."""
    shown = not_silenced(frame.findings)
    return list_lines(shown, width, height) if shown else [text_line(_empty_text(frame), "dim")][: max(0, height)]


def list_lines(shown: Sequence[Finding], width: int, height: int) -> list[Line]:
    """Findings in at most `height` lines: a line each, the most urgent first; room left goes to them as well."""
    kept = sort_by_urgency(shown)[: max(0, height)]
    spare = height - len(kept)
    wrapped: list[Line] = []
    for one in kept:
        lines = _wrapped(one, width, min(MAX_SENTENCE_LINES, 1 + spare))
        spare -= len(lines) - 1
        wrapped += lines
    return wrapped


def not_silenced(findings: Sequence[Finding]) -> list[Finding]:
    """The findings that are not silenced."""
    return [one for one in findings if one.state != "silenced"]


def urgent_findings(findings: Sequence[Finding]) -> list[Finding]:
    """The findings that call somebody: not silenced, and more than a remark."""
    return [one for one in not_silenced(findings) if one.severity in _RANKS]


def sort_by_urgency(findings: Sequence[Finding]) -> list[Finding]:
    """Open before acknowledged before remarks before silenced, critical first, then in the order they began."""
    return sorted(findings, key=lambda one: (_state_rank(one), _RANKS.get(one.severity, 2), one.since or ""))


def _state_rank(one: Finding) -> int:
    """A remark that nobody looked at is no reason to hide what somebody takes care of."""
    state = _STATES.get(one.state, 0)
    return state if one.severity in _RANKS or one.state == "silenced" else _REMARK_RANK


def _wrapped(one: Finding, width: int, max_lines: int) -> list[Line]:
    """The sentence over as many lines as it needs and may have; cut at the end of the last one."""
    arrow = 5 if one.runbook else 0
    room = width - _INDENT
    text = clean(one.text[:500])
    pieces = wrap_words(text, room) if room >= 20 else []
    if pieces and width_of(pieces[-1]) > room - arrow:
        pieces = wrap_words(text, room - arrow)
    if min(len(pieces), max_lines) <= 1:
        return [finding_line(one, width)]
    if len(pieces) > max_lines:
        pieces = [*pieces[: max_lines - 1], cut(" ".join(pieces[max_lines - 1 :]), room - arrow)]
    style = severity_style(one.severity)
    first = (
        Span(finding_sign(one) + " ", style),
        Span(local_time_of_day(one.since) + "  ", "dim"),
        Span(pieces[0], style),
    )
    rest: list[Line] = [(Span(" " * _INDENT), Span(piece, style)) for piece in pieces[1:]]
    if arrow:
        rest[-1] = (*rest[-1], Span("  → r", "key"))
    return [first, *rest]


def detail(frame: Frame, width: int, history: ChartHistory) -> Detail:
    """Every finding with its words; the selected one in full below."""
    found = sort_by_urgency(frame.findings)
    columns = _COLUMNS + _WIDE_COLUMNS if width >= _WIDE_TABLE else _COLUMNS
    rows = tuple(_finding_row(one, frame.at_us, len(columns)) for one in found)
    head = [] if found else [text_line(_empty_text(frame), "dim")]
    if frame.findings_note:
        head = [text_line(text, "warn") for text in wrap_words(frame.findings_note, width)] + head
    tables = (Table("findings", columns, rows, None, "Findings", NO_FINDING_TEXT),) if rows else ()
    return Detail("Findings", tuple(head), tables)


def _empty_text(frame: Frame) -> str:
    """What stands where no finding speaks."""
    if frame.findings:
        return f"nothing else than the {len(frame.findings)} silenced"
    return NO_FINDING_TEXT if frame.judged else NOT_JUDGED_TEXT


def _finding_row(one: Finding, now_us: int, count: int) -> TableRow:
    """The finding in the first `count` columns, and in full below them."""
    style = "dim" if one.state == "silenced" else severity_style(one.severity)
    cells = (
        Cell(finding_sign(one), one.severity, style),
        Cell(local_time_of_day(one.since), one.since),
        Cell(duration_text(one, now_us), one.since),
        Cell(name_of(one.severity), one.severity, style),
        Cell(clean(one.text[:400]), one.text[:400], style),
        Cell(name_of(one.state), one.state),
        Cell(name_of(one.runbook) if one.runbook else "", one.runbook or ""),
    )
    return TableRow(one.id, cells[:count], tuple(finding_detail(one, now_us)))


def duration_text(one: Finding, now_us: int) -> str:
    """How long it has lasted, `?` where that is not known."""
    since_us = parse_rfc3339(one.since)
    return UNKNOWN if since_us is None else human_duration(max(0, now_us - since_us) / 1e6)


def finding_detail(one: Finding, now_us: int) -> list[Line]:
    """Everything known of a finding, as lines to be wrapped: sentence, times, causes, advice, evidence."""
    return [*summary_lines(one, now_us), *evidence_lines(one)]


def summary_lines(one: Finding, now_us: int) -> list[Line]:
    """What is said of a finding before its numbers."""
    lines = [text_line(clean(one.text), severity_style(one.severity)), heading_line(one, now_us)]
    if one.state != "open":
        lines.append(text_line(state_text(one), "changed"))
    if len(one.chain) > 1:
        lines.append(text_line(_chain_text(one), "dim"))
    if one.also:
        lines.append(text_line("also: " + ", ".join(name_of(part) for part in one.also), "dim"))
    if one.advice:
        lines.append((Span("first: ", "key"), Span(clean(one.advice))))
    if one.runbook:
        lines.append((Span("runbook: ", "key"), Span(name_of(one.runbook))))
    return lines


def _chain_text(one: Finding) -> str:
    """The rules joined in it, from the effect to the root cause; those that only follow from it after them."""
    last = one.chain.index(one.id) + 1 if one.id in one.chain else len(one.chain)
    also = ", ".join(name_of(part) for part in one.chain[last:])
    return "because: " + " ← ".join(name_of(part) for part in one.chain[:last]) + (f"; with it {also}" if also else "")


def heading_line(one: Finding, now_us: int) -> Line:
    """`critical · since 14:55:02 (2m10s) · numbers of 14:57:12`."""
    numbers_text = f" · numbers of {local_time_of_day(one.at)}" if one.at else ""
    since_us = parse_rfc3339(one.since)
    same_day = since_us is not None and date_and_time(since_us).split()[0] == date_and_time(now_us).split()[0]
    since = local_time_of_day(one.since) if same_day else local_date_and_time(one.since)
    return (
        Span(clean(one.severity), severity_style(one.severity)),
        Span(f" · {name_of(one.id)} · since {since} ({duration_text(one, now_us)}){numbers_text}", "dim"),
    )


def state_text(one: Finding) -> str:
    """Who said what of it."""
    note = f": {clean(one.note)}" if one.note else ""
    until = f" until {local_time_of_day(one.until)}" if one.state == "silenced" else ""
    return f"{name_of(one.state)}{until} by {name_of(one.who)}{note}"


def evidence_lines(one: Finding) -> list[Line]:
    """The numbers, each with its unit: `used 244 · usable 247 · psi full 61%`; below them what is not known."""
    known = [(name, value) for name, value in one.evidence.items() if value is not None]
    spans: list[Span] = []
    for name, value in known:
        spans += [Span(" · ", "dim")] if spans else []
        spans += [Span(field_label(name) + " ", "dim"), Span(value_text(name, value))]
    lines: list[Line] = [(Span("evidence: ", "key"), *spans)] if spans else []
    missing = ", ".join(clean(name.replace("_", " "))[:80] for name, value in one.evidence.items() if value is None)
    return [*lines, (Span("not known: ", "key"), Span(missing, "dim"))] if missing else lines
