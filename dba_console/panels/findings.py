"""Findings: what is wrong, in sentences, with what they are told from. The most urgent that nobody has seen first."""

from __future__ import annotations

from collections.abc import Sequence

from dba_console.frames.chart_history import ChartHistory
from dba_console.frames.model import Finding, Frame
from dba_console.panels.cells import Cell, Column, Detail, Line, Row, Span, Table, clean, cut
from dba_console.panels.cells import width as width_of
from dba_console.panels.happenings import finding_line, finding_sign, style_of
from dba_console.panels.phrases import name_of, said, wrap
from dba_console.panels.quantities import quantity, words_of
from dba_console.panels.times import clock_of, from_rfc3339, moment, moment_of
from dba_console.units import UNKNOWN, human_duration

_RANKS = {"critical": 0, "warning": 1}
_STATES = {"open": 0, "acknowledged": 1, "silenced": 3}
_REMARK = 2
NOTHING = "the rules found nothing wrong"
UNJUDGED = "nothing has been judged yet"
_INDENT = 12
"""Cells before the sentence: sign and time."""
MOST_LINES = 5
"""A sentence on the overview is wrapped to at most so many lines."""

_ROOMY = 110
"""Cells from which on a table has room for state and runbook beside a sentence one can read."""

_COLUMNS = (
    Column("sign", "", 1),
    Column("since", "since", 8, help="Local time it began", sort_key="T"),
    Column("age", "for", 6, right=True),
    Column("severity", "severity", 8, sort_key="S"),
    Column("text", "finding", 60, grow=True),
)
_MORE = (
    Column("state", "state", 12, sort_key="A", spare=1),
    Column("runbook", "runbook", 20, spare=2),
)
"""On a narrow screen the sign tells the state, and the row in full the rest: the sentence needs the cells."""


def compact(frame: Frame, width: int, height: int, history: ChartHistory) -> list[Line]:
    """What is not silenced, the most urgent first."""
    shown = speaking(frame.findings)
    return lines_of(shown, width, height) if shown else [said(_nothing(frame), "dim")][: max(0, height)]


def lines_of(shown: Sequence[Finding], width: int, height: int) -> list[Line]:
    """Findings in at most `height` lines: a line each, the most urgent first; room left goes to them as well."""
    kept = ordered(shown)[: max(0, height)]
    spare = height - len(kept)
    wrapped: list[Line] = []
    for one in kept:
        lines = _wrapped(one, width, min(MOST_LINES, 1 + spare))
        spare -= len(lines) - 1
        wrapped += lines
    return wrapped


def speaking(findings: Sequence[Finding]) -> list[Finding]:
    """The findings that are not silenced."""
    return [one for one in findings if one.state != "silenced"]


def calls(findings: Sequence[Finding]) -> list[Finding]:
    """The findings that call somebody: not silenced, and more than a remark."""
    return [one for one in speaking(findings) if one.severity in _RANKS]


def ordered(findings: Sequence[Finding]) -> list[Finding]:
    """Open before acknowledged before remarks before silenced, critical first, then in the order they began."""
    return sorted(findings, key=lambda one: (_place(one), _RANKS.get(one.severity, 2), one.since or ""))


def _place(one: Finding) -> int:
    """A remark that nobody looked at is no reason to hide what somebody takes care of."""
    state = _STATES.get(one.state, 0)
    return state if one.severity in _RANKS or one.state == "silenced" else _REMARK


def _wrapped(one: Finding, width: int, most: int) -> list[Line]:
    """The sentence over as many lines as it needs and may have; cut at the end of the last one."""
    arrow = 5 if one.runbook else 0
    room = width - _INDENT
    text = clean(one.text[:500])
    pieces = wrap(text, room) if room >= 20 else []
    if pieces and width_of(pieces[-1]) > room - arrow:
        pieces = wrap(text, room - arrow)
    if min(len(pieces), most) <= 1:
        return [finding_line(one, width)]
    if len(pieces) > most:
        pieces = [*pieces[: most - 1], cut(" ".join(pieces[most - 1 :]), room - arrow)]
    style = style_of(one.severity)
    first = (Span(finding_sign(one) + " ", style), Span(clock_of(one.since) + "  ", "dim"), Span(pieces[0], style))
    rest: list[Line] = [(Span(" " * _INDENT), Span(piece, style)) for piece in pieces[1:]]
    if arrow:
        rest[-1] = (*rest[-1], Span("  → r", "key"))
    return [first, *rest]


def detail(frame: Frame, width: int, history: ChartHistory) -> Detail:
    """Every finding with its words; the selected one in full below."""
    found = ordered(frame.findings)
    columns = _COLUMNS + _MORE if width >= _ROOMY else _COLUMNS
    rows = tuple(_row(one, frame.at_us, len(columns)) for one in found)
    head = [] if found else [said(_nothing(frame), "dim")]
    if frame.findings_note:
        head = [said(text, "warn") for text in wrap(frame.findings_note, width)] + head
    tables = (Table("findings", columns, rows, None, "Findings", NOTHING),) if rows else ()
    return Detail("Findings", tuple(head), tables)


def _nothing(frame: Frame) -> str:
    """What stands where no finding speaks."""
    if frame.findings:
        return f"nothing else than the {len(frame.findings)} silenced"
    return NOTHING if frame.judged else UNJUDGED


def _row(one: Finding, now_us: int, count: int) -> Row:
    """The finding in the first `count` columns, and in full below them."""
    style = "dim" if one.state == "silenced" else style_of(one.severity)
    cells = (
        Cell(finding_sign(one), one.severity, style),
        Cell(clock_of(one.since), one.since),
        Cell(lasting(one, now_us), one.since),
        Cell(name_of(one.severity), one.severity, style),
        Cell(clean(one.text[:400]), one.text[:400], style),
        Cell(name_of(one.state), one.state),
        Cell(name_of(one.runbook) if one.runbook else "", one.runbook or ""),
    )
    return Row(one.id, cells[:count], tuple(full(one, now_us)))


def lasting(one: Finding, now_us: int) -> str:
    """How long it has lasted, `?` where that is not known."""
    since_us = from_rfc3339(one.since)
    return UNKNOWN if since_us is None else human_duration(max(0, now_us - since_us) / 1e6)


def full(one: Finding, now_us: int) -> list[Line]:
    """Everything known of a finding, as lines to be wrapped: sentence, times, causes, advice, evidence."""
    return [*told(one, now_us), *evidence_lines(one)]


def told(one: Finding, now_us: int) -> list[Line]:
    """What is said of a finding before its numbers."""
    lines = [said(clean(one.text), style_of(one.severity)), heading(one, now_us)]
    if one.state != "open":
        lines.append(said(state_words(one), "changed"))
    if len(one.chain) > 1:
        lines.append(said(_joined(one), "dim"))
    if one.also:
        lines.append(said("also: " + ", ".join(name_of(part) for part in one.also), "dim"))
    if one.advice:
        lines.append((Span("first: ", "key"), Span(clean(one.advice))))
    if one.runbook:
        lines.append((Span("runbook: ", "key"), Span(name_of(one.runbook))))
    return lines


def _joined(one: Finding) -> str:
    """The rules joined in it, from the effect to the root cause; those that only follow from it after them."""
    last = one.chain.index(one.id) + 1 if one.id in one.chain else len(one.chain)
    also = ", ".join(name_of(part) for part in one.chain[last:])
    return "because: " + " ← ".join(name_of(part) for part in one.chain[:last]) + (f"; with it {also}" if also else "")


def heading(one: Finding, now_us: int) -> Line:
    """`critical · since 14:55:02 (2m10s) · numbers of 14:57:12`."""
    said_at = f" · numbers of {clock_of(one.at)}" if one.at else ""
    since_us = from_rfc3339(one.since)
    same_day = since_us is not None and moment(since_us).split()[0] == moment(now_us).split()[0]
    since = clock_of(one.since) if same_day else moment_of(one.since)
    return (
        Span(clean(one.severity), style_of(one.severity)),
        Span(f" · {name_of(one.id)} · since {since} ({lasting(one, now_us)}){said_at}", "dim"),
    )


def state_words(one: Finding) -> str:
    """Who said what of it."""
    note = f": {clean(one.note)}" if one.note else ""
    until = f" until {clock_of(one.until)}" if one.state == "silenced" else ""
    return f"{name_of(one.state)}{until} by {name_of(one.who)}{note}"


def evidence_lines(one: Finding) -> list[Line]:
    """The numbers, each with its unit: `used 244 · usable 247 · psi full 61%`; below them what is not known."""
    known = [(name, value) for name, value in one.evidence.items() if value is not None]
    spans: list[Span] = []
    for name, value in known:
        spans += [Span(" · ", "dim")] if spans else []
        spans += [Span(words_of(name) + " ", "dim"), Span(quantity(name, value))]
    lines: list[Line] = [(Span("evidence: ", "key"), *spans)] if spans else []
    missing = ", ".join(clean(name.replace("_", " "))[:80] for name, value in one.evidence.items() if value is None)
    return [*lines, (Span("not known: ", "key"), Span(missing, "dim"))] if missing else lines
