"""Phrases of the panels: facts as spans (a dim label, a value with unit), joined into lines that fit.

Every value has its unit, an unknown one is `?`, and a line that does not fit is replaced by a shorter wording before
anything is cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dba_console.core.units import UNKNOWN, human_bytes, human_count, human_duration
from dba_console.watch.drawing.text_elements import Line, Span, Style, clean, cut, line_width, wrap_words
from dba_console.watch.panel import PanelFrame
from dba_console.watch.samples.postgres import MAX_QUERY_BYTES

SEPARATOR = Span(" · ", "dim")


def fact(label: str, value: str, style: Style = "") -> Line:
    """`label value`, the label dim."""
    return (Span(label + " ", "dim"), Span(value, "stale" if value == UNKNOWN else style))


def text_line(text: str, style: Style = "") -> Line:
    """Return our own text as a line."""
    return (Span(text, style),) if text else ()


def name_of(text: str | None, cells: int = 60) -> str:
    """Return a name from the server, sanitized and at most `cells` wide; `?` if unknown."""
    return UNKNOWN if text is None else cut(clean(text[:400]), cells)


def statement(query: str | None, signs: int = 300) -> str:
    """Return the beginning of a query on one line: blanks and line ends merged, the rest sanitized.

    >>> statement("select *\\n    from t\\x1b")
    'select * from t␛'
    """
    if not query:
        return ""
    beginning = query[:signs]
    if beginning.isascii() and beginning.isprintable():
        return beginning
    return clean(" ".join(beginning.split()))


_SHORT_STATES = {
    "idle in transaction": "idle in txn",
    "idle in transaction (aborted)": "aborted txn",
    "fastpath function call": "fastpath",
}


def short_state(state: str | None) -> str:
    """Return the state of a session in few words: `idle in txn`."""
    return "" if state is None else _SHORT_STATES.get(state) or clean(state[:40])


def query_lines(query: str | None, whole_bytes: int | None) -> list[Line]:
    """Return a query as lines of 200 characters and, if it was cut, how much of it this is."""
    lines: list[Line] = [(Span(text),) for text in wrap_words(query or "", 200)]
    if whole_bytes is not None:
        lines.append(
            text_line(
                f"the first {human_bytes(MAX_QUERY_BYTES)} of {human_bytes(whole_bytes)}; the rest was not read", "dim"
            )
        )
    return lines


def join(facts: Iterable[Line], between: Span | str = SEPARATOR) -> Line:
    """Return the non-empty facts as one line."""
    separator = between if isinstance(between, Span) else Span(between)
    spans: list[Span] = []
    for one in facts:
        if one:
            if spans:
                spans.append(separator)
            spans.extend(one)
    return tuple(spans)


def first_fitting(cells: int, *wordings: Line) -> Line:
    """Return the first wording that fits in `cells`, else the last, which the caller's box cuts."""
    for wording in wordings:
        if line_width(wording) <= cells:
            return wording
    return wordings[-1]


def join_fitting(cells: int, facts: Sequence[Line]) -> Line:
    """Return as many of the facts, most important first, as fit in `cells`; at least the first."""
    kept: list[Line] = []
    for one in facts:
        if kept and line_width(join([*kept, one])) > cells:
            break
        kept.append(one)
    return join(kept)


def reflow(line: Line, cells: int) -> list[Line]:
    """Break the line between its facts into lines of at most `cells` cells, as far as its facts allow."""
    if line_width(line) <= cells:
        return [line]
    facts: list[list[Span]] = [[]]
    for span in line:
        if span == SEPARATOR:
            facts.append([])
        else:
            facts[-1].append(span)
    lines: list[Line] = []
    for one in facts:
        joined = join([lines[-1], tuple(one)]) if lines else tuple(one)
        if lines and line_width(joined) <= cells:
            lines[-1] = joined
        else:
            lines.append(tuple(one))
    return lines


def bar(pct: float | None, cells: int) -> str:
    """Return a share as `▇▇▇▁▁`: filled only at 100 %, empty only at 0. Blank if unknown."""
    if pct is None or cells < 1:
        return " " * max(0, cells)
    filled = round(pct / 100 * cells)
    if 0 < pct < 100:
        filled = min(max(filled, 1), cells - 1) if cells > 1 else filled
    filled = min(max(filled, 0), cells)
    return "▇" * filled + "▁" * (cells - filled)


def level_style(value: float | None, warn: float, crit: float) -> Style:
    """Return the style from these warn and crit values on. Emphasis only, not a finding."""
    if value is None:
        return "stale"
    return "crit" if value >= crit else "warn" if value >= warn else ""


def rate_change(bytes_per_s: float | None) -> str:
    """Return a change as `▲ 305 MB/s`, `▼ 310 MB/s`, `= 0 B/s`, `?`."""
    if bytes_per_s is None:
        return UNKNOWN
    sign = "▲" if bytes_per_s > 0 else "▼" if bytes_per_s < 0 else "="
    return f"{sign} {human_bytes(abs(bytes_per_s), per_s=True)}"


def milliseconds(value: float | None) -> str:
    """`0.8 ms`, `12 ms`, `1.2 s`, `?`."""
    if value is None:
        return UNKNOWN
    if value >= 999.5:
        return f"{value / 1000:.1f} s"
    return f"{value:.1f} ms" if value < 9.95 else f"{value:.0f} ms"


def integer(count: float | None) -> str:
    """Return a whole number with all digits, `?` if unknown."""
    return UNKNOWN if count is None else f"{count:.0f}"


def xids_text(count: int | None) -> str:
    """Return a number of transaction IDs: `2107M`, because warning and stop limits differ only in later digits."""
    return f"{count / 1e6:.0f}M" if count is not None and count >= 10_000_000 else human_count(count)


def time_ahead(seconds: float | None) -> str:
    """Return a time ahead, coarse if it is far: `3m50s`, `41d`, `3y`; a forecast is not more precise."""
    if seconds is None:
        return UNKNOWN
    if seconds >= 2 * 365 * 86400:
        return f"{seconds / (365 * 86400):.0f}y" if seconds < 1000 * 365 * 86400 else ">1000y"
    return f"{seconds / 86400:.0f}d" if seconds >= 3 * 86400 else human_duration(seconds)


# The status of a panel's data: the suffix of its title, and the sentence shown in place of missing numbers.
#
# A panel is never just empty: it says whether there is nothing or nothing could be read, and what helps.

_DEFAULT_NOTES = {
    "ok": "not read yet",
    "stale": "not read for a while",
    "denied": "this role may not see it",
    "unsupported": "not available on this server or host",
    "timeout": "did not answer in time",
    "error": "could not be read",
}
_STATUS_FIELDS = frozenset(PanelFrame.__struct_fields__) | {"source", "settings", "hidden", "horizon_unknown"}
_STYLES: dict[str, Style] = {"ok": "", "stale": "stale", "denied": "warn", "unsupported": "stale"}


def status_style(status: str) -> Style:
    return _STYLES.get(status, "warn")


def title_suffix(panel: PanelFrame) -> str:
    """Return the suffix of the title: nothing if all is well, else `12s old`, `denied`, `timeout, 12s old`.

    A lone `!` means that the panel has a note, which its full screen shows.
    """
    if panel.status == "ok":
        return "!" if panel.note else ""
    if panel.status == "stale" and panel.age_s is None:
        return ""
    # Sanitize even the status: a recording may come from anywhere.
    words = [] if panel.status == "stale" else [clean(panel.status[:40])]
    if panel.status == "error" and panel.age_s is not None and has_readings(panel):
        words = []  # the data were good when read; only their age matters
    elif panel.status in ("denied", "unsupported", "error") and has_readings(panel):
        words = [f"partly {panel.status}"]
    if panel.age_s is not None and panel.status not in ("denied", "unsupported"):
        words.append(f"{human_duration(panel.age_s)} old")
    return ", ".join(words)


def title_spans(title: str, panel: PanelFrame | None) -> Line:
    """Return the title and, if needed, the status of the panel's data."""
    words = "" if panel is None else title_suffix(panel)
    if panel is None or not words:
        return (Span(title, "title"),)
    return (Span(title, "title"), Span(f" {words}", status_style(panel.status)))


def has_readings(panel: PanelFrame) -> bool:
    """Check whether any data of the panel are known."""
    return any(
        getattr(panel, name) not in (None, [], {}) for name in panel.__struct_fields__ if name not in _STATUS_FIELDS
    )


def note_text(panel: PanelFrame) -> str:
    """Return the panel's note, or the standard one for its status."""
    return panel.note or _DEFAULT_NOTES.get(panel.status, panel.status)


def note_lines(panel: PanelFrame, cells: int) -> list[Line]:
    """Return the panel's note, wrapped."""
    return [(Span(text, status_style(panel.status)),) for text in wrap_words(note_text(panel), cells)]


def body(panel: PanelFrame, known: bool, lines: Sequence[Line], cells: int, rows: int) -> list[Line]:
    """Return the lines if data are known, the note if not, and both if both fit."""
    if rows <= 0:
        return []
    if not known:
        return note_lines(panel, cells)[:rows]
    kept = list(lines[:rows])
    if panel.note and len(kept) < rows:
        kept += note_lines(panel, cells)[: rows - len(kept)]
    return kept


def head_lines(panel: PanelFrame, lines: Sequence[Line], cells: int) -> tuple[Line, ...]:
    """Return the facts of a full panel, its note first, none wider than `cells` if possible."""
    notes = [] if panel.status == "ok" and not panel.note else note_lines(panel, cells)
    return (*notes, *(part for one in lines for part in reflow(one, cells)))
