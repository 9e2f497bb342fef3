"""Findings: what is wrong, in sentences with their evidence. The most urgent unacknowledged ones first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from math import isfinite
from typing import Any

from dba_console.core.units import UNKNOWN, human_bytes, human_count, human_duration, human_pct
from dba_console.watch.drawing import charts
from dba_console.watch.drawing.charts import Chart, draw_chart
from dba_console.watch.drawing.event_symbols import (
    axis_marks,
    finding_line,
    finding_sign,
    severity_sign,
    severity_style,
)
from dba_console.watch.drawing.phrases import milliseconds, name_of, text_line
from dba_console.watch.drawing.text_elements import (
    Cell,
    Detail,
    Line,
    Span,
    Table,
    TableColumn,
    TableRow,
    clean,
    cut,
    fit,
    fit_line,
    text_width,
    wrap_lines,
    wrap_words,
)
from dba_console.watch.drawing.time_formats import (
    date_and_time,
    local_date_and_time,
    local_time_of_day,
    parse_rfc3339,
    time_of_day,
)
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.model import Finding, Frame, chart_titles

# Format of numbers in findings and charts: the ending of a field name determines the unit.

_MAX_NAME_WIDTH = 14
"""Cells of a name beside a chart."""
NumberFormat = Callable[[float | None], str]


def _per_minute_text(value: float | None) -> str:
    return human_count(value) + ("" if value is None else "/min")


_UNITS: tuple[tuple[str, NumberFormat], ...] = (
    ("_bytes_per_s", partial(human_bytes, per_s=True)),
    ("_bytes", human_bytes),
    ("_pct", human_pct),
    ("avg10", human_pct),
    ("avg60", human_pct),
    ("_per_s", partial(human_count, per_s=True)),
    ("_per_min", _per_minute_text),
    ("_ms", milliseconds),
    ("_s", human_duration),
)
"""Name endings and their number formats, the longest ending first."""


def unit_format(name: str) -> tuple[str, NumberFormat]:
    """Return the ending of a name that determines its unit (empty: a plain number), and its number format.

    >>> unit_format("memory.cached_bytes")[0], unit_format("io.psi_full_pct")[1](61.0), unit_format("used")[1](244)
    ('_bytes', '61%', '244')
    """
    return next(((end, write) for end, write in _UNITS if name.endswith(end)), ("", human_count))


def value_text(name: str, value: Any) -> str:
    """Return a value of evidence with its unit; text unchanged but sanitized; `?` if unknown.

    >>> value_text("cached_fell_bytes", 4_402_341_478), value_text("pid", 81231), value_text("state", None)
    ('4.1 GB', '81231', '?')
    """
    if value is None or (isinstance(value, float) and not isfinite(value)):
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        ending, write = unit_format(name)
        if ending or isinstance(value, float):
            return write(value)
        return f"{value:,}".replace(",", " ") if value >= 100_000 and not name.endswith("pid") else str(value)
    if isinstance(value, list):
        return ", ".join(clean(str(one))[:80] for one in value[:20])
    moment_us = parse_rfc3339(value) if isinstance(value, str) else None
    return clean(str(value))[:200] if moment_us is None else date_and_time(moment_us)


def series_title(name: str) -> str:
    """Return the title of a charted series.

    >>> series_title("memory.cached_bytes"), series_title("mount:/pg.used_bytes"), series_title("ids:7710351.next_xid")
    ('cached', '/pg used', 'next xid')
    """
    if (title := chart_titles().get(name)) is not None:
        return title
    kind, colon, rest = name.partition(":")
    if not colon:
        return field_label(name.rpartition(".")[2])
    subject, _, field = rest.rpartition(".")
    # A number is a system identifier: only one server is on the screen.
    return field_label(field) if subject.isdigit() else f"{_shorten_name(clean(subject or kind))} {field_label(field)}"


def _shorten_name(name: str) -> str:
    """Shorten a name to fit beside a chart: of a path the end is kept.

    >>> _shorten_name("/srv/postgresql/archive/disk"), _shorten_name("vda")
    ('…/archive/disk', 'vda')
    """
    if text_width(name) <= _MAX_NAME_WIDTH:
        return name
    while text_width(name) > _MAX_NAME_WIDTH - 1:
        name = name[1:]
    return "…" + name


_LABELS = {
    "behind": "sessions behind it", "blocks": "sessions that wait for it", "blocks_s": "others wait for",
    "others": "others like it", "usual_s": "typical", "over_s": "over typical by", "xmin_age_xids": "xids held back",
    "thp": "transparent huge pages", "thp_defrag": "their defrag",
}  # fmt: skip
"""Labels of evidence whose field name alone is misread."""


def field_label(name: str) -> str:
    """Return the label of a number: its field's name without the unit, as words.

    >>> field_label("cached_fell_bytes"), field_label("full_in_s"), field_label("used"), field_label("blocks_s")
    ('cached fell', 'full in', 'used', 'others wait for')
    """
    if name in _LABELS:
        return _LABELS[name]
    ending, _ = unit_format(name)
    kept = name.removesuffix(ending) if ending.startswith("_") else name
    return clean((kept or name).replace("_", " "))[:80]


_RANKS = {"critical": 0, "warning": 1}
_STATES = {"open": 0, "acknowledged": 1, "silenced": 3}
_REMARK_RANK = 2
NO_FINDING_TEXT = "no findings"
NOT_EVALUATED_TEXT = "rules not evaluated yet"
_INDENT = 12
"""Cells before the sentence: symbol and time."""
MAX_SENTENCE_LINES = 5
"""Most lines of a sentence on the overview."""

_WIDE_TABLE = 110
"""Width from which a table has space for state and runbook beside a readable sentence."""

_COLUMNS = (
    TableColumn("sign", "", 1),
    TableColumn("since", "since", 8, help="Local start time"),
    TableColumn("age", "for", 6, right=True),
    TableColumn("severity", "severity", 8),
    TableColumn("text", "finding", 60, grow=True),
)
_WIDE_COLUMNS = (TableColumn("state", "state", 12, spare=1), TableColumn("runbook", "runbook", 20, spare=2))
"""On a narrow screen the symbol gives the state, and the pane the rest: the sentence needs the cells."""


def compact(frame: Frame, width: int, height: int, history: ChartHistory) -> list[Line]:
    """Return the findings that are not silenced, the most urgent first."""
    shown = not_silenced(frame.findings)
    return list_lines(shown, width, height) if shown else [text_line(_empty_text(frame), "dim")][: max(0, height)]


def list_lines(shown: Sequence[Finding], width: int, height: int) -> list[Line]:
    """Return findings in at most `height` lines: one line each, the most urgent first; spare lines are used to wrap."""
    kept = sort_by_urgency(shown)[: max(0, height)]
    spare = height - len(kept)
    wrapped: list[Line] = []
    for one in kept:
        lines = _wrapped(one, width, min(MAX_SENTENCE_LINES, 1 + spare))
        spare -= len(lines) - 1
        wrapped += lines
    return wrapped


def not_silenced(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings that are not silenced."""
    return [one for one in findings if one.state != "silenced"]


def urgent_findings(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings that need attention: not silenced, and warning or critical."""
    return [one for one in not_silenced(findings) if one.severity in _RANKS]


def sort_by_urgency(findings: Sequence[Finding]) -> list[Finding]:
    """Sort: open, acknowledged, info, silenced; critical first; then by start."""
    return sorted(findings, key=lambda one: (_state_rank(one), _RANKS.get(one.severity, 2), one.since or ""))


def _state_rank(one: Finding) -> int:
    """An unacknowledged info must not hide a finding that an operator works on."""
    state = _STATES.get(one.state, 0)
    return state if one.severity in _RANKS or one.state == "silenced" else _REMARK_RANK


def _wrapped(one: Finding, width: int, max_lines: int) -> list[Line]:
    """Return the sentence in as many lines as it needs, at most `max_lines`; cut at the end of the last one."""
    arrow = 5 if one.runbook else 0
    space = width - _INDENT
    text = clean(one.text[:500])
    pieces = wrap_words(text, space) if space >= 20 else []
    if pieces and text_width(pieces[-1]) > space - arrow:
        pieces = wrap_words(text, space - arrow)
    if min(len(pieces), max_lines) <= 1:
        return [finding_line(one, width)]
    if len(pieces) > max_lines:
        pieces = [*pieces[: max_lines - 1], cut(" ".join(pieces[max_lines - 1 :]), space - arrow)]
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
    """Return every finding with its sentence; the selected one in full below."""
    found = sort_by_urgency(frame.findings)
    columns = _COLUMNS + _WIDE_COLUMNS if width >= _WIDE_TABLE else _COLUMNS
    rows = tuple(_finding_row(one, frame.at_us, len(columns)) for one in found)
    head = [] if found else [text_line(_empty_text(frame), "dim")]
    if frame.findings_note:
        head = [text_line(text, "warn") for text in wrap_words(frame.findings_note, width)] + head
    tables = (Table("findings", columns, rows, None, "Findings", NO_FINDING_TEXT),) if rows else ()
    return Detail("Findings", tuple(head), tables)


def _empty_text(frame: Frame) -> str:
    """Return the text shown if there is no finding in the list."""
    if frame.findings:
        return f"no findings besides {len(frame.findings)} silenced"
    return NO_FINDING_TEXT if frame.judged else NOT_EVALUATED_TEXT


def _finding_row(one: Finding, now_us: int, count: int) -> TableRow:
    """Return the finding in the first `count` columns, and in full below them."""
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
    return TableRow(one.id, cells[:count], lambda: finding_detail(one, now_us))


def duration_text(one: Finding, now_us: int) -> str:
    """Return how long it has lasted, `?` if unknown."""
    since_us = parse_rfc3339(one.since)
    return UNKNOWN if since_us is None else human_duration(max(0, now_us - since_us) / 1e6)


def finding_detail(one: Finding, now_us: int) -> list[Line]:
    """Return everything known of a finding, as lines to be wrapped: sentence, times, causes, hint, evidence."""
    return [*summary_lines(one, now_us), *evidence_lines(one)]


def summary_lines(one: Finding, now_us: int) -> list[Line]:
    """Return what is shown of a finding before its numbers."""
    lines = [text_line(clean(one.text), severity_style(one.severity)), heading_line(one, now_us)]
    if one.state != "open":
        lines.append(text_line(state_text(one), "changed"))
    if len(one.chain) > 1:
        lines.append(text_line(_chain_text(one), "dim"))
    if one.also:
        lines.append(text_line("also: " + ", ".join(name_of(part) for part in one.also), "dim"))
    if one.advice:
        lines.append((Span("hint: ", "key"), Span(clean(one.advice))))
    if one.runbook:
        lines.append((Span("runbook: ", "key"), Span(name_of(one.runbook))))
    return lines


def _chain_text(one: Finding) -> str:
    """Return the joined rules, from the effect to the root cause, then those that only follow from it."""
    last = one.chain.index(one.id) + 1 if one.id in one.chain else len(one.chain)
    also = ", ".join(name_of(part) for part in one.chain[last:])
    return "because: " + " ← ".join(name_of(part) for part in one.chain[:last]) + (f"; also {also}" if also else "")


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
    """Return the state with operator, note and end of a silence."""
    note = f": {clean(one.note)}" if one.note else ""
    until = f" until {local_time_of_day(one.until)}" if one.state == "silenced" else ""
    return f"{name_of(one.state)}{until} by {name_of(one.who)}{note}"


def evidence_lines(one: Finding) -> list[Line]:
    """Return the numbers with units (`used 244 · usable 247 · psi full 61%`); below them the unknown ones."""
    known = [(name, value) for name, value in one.evidence.items() if value is not None]
    spans: list[Span] = []
    for name, value in known:
        spans += [Span(" · ", "dim")] if spans else []
        spans += [Span(field_label(name) + " ", "dim"), Span(value_text(name, value))]
    lines: list[Line] = [(Span("evidence: ", "key"), *spans)] if spans else []
    missing = ", ".join(field_label(name) for name, value in one.evidence.items() if value is None)
    return [*lines, (Span("unknown: ", "key"), Span(missing, "dim"))] if missing else lines


# The evidence of one finding: its sentence, its numbers, and charts around its start.

BEFORE_US, AFTER_US = 180_000_000, 420_000_000
"""Longest period charted: three minutes before the start, and seven after."""
MIN_PERIOD_US = 60_000_000
_MIN_COLUMN_US = 1_100_000
"""Minimum time per column: shorter ones would leave blank columns between two ticks."""
_TALLEST, _TALL_SCREEN = 5, 36
"""Most rows of a chart; half as many again on screens of at least that height."""
_AXIS_LINES = 2
"""Lines of the time axis: symbols, clock."""
_FEW_CHARTS = 3
"""Up to this many charts get two lines each, even in little space; more of them get one."""
_FIRST_SERIES = ("connections.used", "io.psi_full_pct", "memory.cached_bytes", "memory.free_bytes")
CONTEXT_SERIES = ("connections.used", "io.psi_full_pct", "memory.cached_bytes")
"""Charts shown if no series shows the finding itself: other activity at its start."""
_CURRENT_US = 10_000_000
"""Charts that end longer ago are not current."""


def all_evidence_lines(
    frame: Frame, one: Finding, history: ChartHistory, width: int, height: int, ended_us: int | None = None
) -> list[Line]:
    """Return all lines: sentences, charts as high as `height` lines allow, and all numbers.

    Charts are above the numbers because they show it at a glance; the sentence has the decisive numbers.
    `ended_us`: when the finding was last seen, if it has cleared.
    """
    lines = _wrapped_lines(summary_lines(one, frame.at_us if ended_us is None else ended_us), width)
    numbers = _wrapped_lines(evidence_lines(one), width)
    series = order_series(one.series) or (CONTEXT_SERIES if urgent_findings([one]) else ())
    gutter = 30 if width >= 100 else 24
    cells = width - gutter
    if series and cells > 0:
        axis = charts.Axis(*chart_period(parse_rfc3339(one.since) or frame.at_us, frame.at_us, history, cells), cells)
        tallest = _TALLEST if height < _TALL_SCREEN else _TALLEST * 3 // 2
        space = height - len(lines) - len(numbers) - 1 - _AXIS_LINES
        min_chart_rows = len(series) * (2 if len(series) <= _FEW_CHARTS else 1)
        rows = max(min_chart_rows, min(tallest * len(series), space))
        lines += [_period_rule(one, axis, width), *_charts(series, frame.at_us, history, axis, gutter, rows)]
        lines += _axis([*axis_marks(frame), *_start_mark(one)], axis, gutter)
    return [fit_line(line, width) for line in (*lines, *numbers)]


def order_series(series: Sequence[str]) -> tuple[str, ...]:
    """Sort the series of joined rules, those that show who waits and for what first: small screens do not fit all.

    >>> of_many = ["locks.waiting", "io.iowait_pct", "io.psi_full_pct", "connections.used", "memory.cached_bytes"]
    >>> order_series(of_many)[:3]
    ('connections.used', 'io.psi_full_pct', 'memory.cached_bytes')
    """
    if len(series) <= _FEW_CHARTS:
        return tuple(series)
    first = [name for name in _FIRST_SERIES if name in series]
    return (*first, *(name for name in series if name not in first))


def _wrapped_lines(lines: Sequence[Line], width: int) -> list[Line]:
    return [(Span(" "), *line) for line in wrap_lines(lines, max(1, width - 1))]


def chart_period(since_us: int, now_us: int, history: ChartHistory, cells: int = 0) -> tuple[int, int]:
    """Return start and end of the charts in `cells` columns: around the finding's start, as far as data exist.

    If it started before the first data: from the first data until now.
    """
    oldest = _oldest_us(history)
    least_us = max(MIN_PERIOD_US, cells * _MIN_COLUMN_US)
    if oldest is not None and since_us < oldest - BEFORE_US:
        return min(oldest, now_us - least_us), now_us
    start = since_us - BEFORE_US if oldest is None else max(since_us - BEFORE_US, min(oldest, since_us))
    end = min(now_us, since_us + AFTER_US)
    return min(start, end - least_us), end


def _oldest_us(history: ChartHistory) -> int | None:
    times = [points[0][0] for name in ("connections.used", "io.iowait_pct") if (points := history.series(name))]
    return min(times, default=None)


def _period_rule(one: Finding, axis: charts.Axis, width: int) -> Line:
    since_us = parse_rfc3339(one.since)
    span = f"{time_of_day(axis.start_us)} to {time_of_day(axis.end_us)}"
    around = since_us is not None and axis.start_us <= since_us <= axis.end_us
    what = "" if one.series else "other activity "
    text = f"─ {what}around its start, {span} " if around else f"─ {what}{span}; it began earlier "
    return (Span(text + "─" * max(0, width - len(text)), "dim"),)


def _charts(
    series: Sequence[str], now_us: int, history: ChartHistory, axis: charts.Axis, gutter: int, rows: int
) -> list[Line]:
    """Return the charts in `height` lines, divided evenly."""
    each, extra = divmod(rows, len(series))
    past = now_us - axis.end_us > _CURRENT_US
    drawn = [
        draw_chart(_chart(name, history, axis, past), axis, gutter, each + (index < extra))
        for index, name in enumerate(series)
    ]
    return [line for chart in drawn for line in chart]


def _axis(signs: Sequence[tuple[int, str]], axis: charts.Axis, gutter: int) -> list[Line]:
    return [
        (Span(fit(" events", gutter - 1) + "│", "dim"), Span(charts.symbol_line(signs, axis), "changed")),
        (Span(fit("", gutter - 1) + "└", "dim"), Span(charts.clock_line(axis), "dim")),
    ]


def fill_between_readings(points: list[charts.Point], step_us: int, *, forward: bool) -> list[charts.Point]:
    """Fill in points for every step between two readings of a series that is not read every tick.

    A level holds until the next reading; a rate applies to the time before its reading. A distance longer than the
    reading's typical interval is a gap, and stays one.
    """
    spans = sorted(later[0] - earlier[0] for earlier, later in pairwise(points))
    typical_us = spans[len(spans) // 2] * 3 // 2 if spans else 0
    if typical_us <= step_us or step_us < 1:
        return points
    filled = points[:1]
    for (earlier_us, before), (later_us, after) in pairwise(points):
        if later_us - earlier_us <= typical_us:
            value = before if forward else after
            filled += [(at_us, value) for at_us in range(earlier_us + step_us, later_us, step_us)]
        filled.append((later_us, after))
    return filled


def _start_mark(one: Finding) -> list[tuple[int, str]]:
    since_us = parse_rfc3339(one.since)
    return [] if since_us is None else [(since_us, severity_sign(one.severity))]


def _chart(name: str, history: ChartHistory, axis: charts.Axis, past: bool) -> Chart:
    ending, write = unit_format(name)
    points = [point for point in history.series(name) if point[0] <= axis.end_us]
    level = ending == "_bytes" or name.endswith(("next_xid", "next_mxid"))
    span = 0.02 * max((value for _, value in points), default=0.0) if level else 0.0
    top = {"_pct": 10.0, "avg10": 10.0, "_bytes_per_s": float(1 << 20)}.get(ending, 0.0)
    shown_value = (time_of_day(points[-1][0]), points[-1][1]) if past and points else None
    shown = fill_between_readings(points, (axis.end_us - axis.start_us) // axis.cells, forward=level)
    return Chart(
        series_title(name),
        shown,
        write,
        starts_at_zero=not level,
        min_top=top,
        min_span=max(span, 1.0 if level else 0.0),
        shown_value=shown_value,
    )
