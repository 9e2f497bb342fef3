"""How well a panel is known, in words: the suffix of its title, and the sentence that stands where numbers are missing.

A panel is never just empty: it says whether nothing is there or nothing could be read, and what would help.
"""

from __future__ import annotations

from collections.abc import Sequence

from dba_console.frames.model import PanelFrame
from dba_console.panels.phrases import reflow, wrap_words
from dba_console.panels.text_elements import Line, Span, Style, clean
from dba_console.units import human_duration

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
    """What to add to the title: nothing when all is well, else `12s old`, `denied`, `timeout, 12s old`.

    A lone `!` says that the panel is known and has a note, which its full screen shows.
    """
    if panel.status == "ok":
        return "!" if panel.note else ""
    if panel.status == "stale" and panel.age_s is None:
        return ""
    # Even a status is cleaned: a recording may come from anywhere.
    words = [] if panel.status == "stale" else [clean(panel.status[:40])]
    if panel.status == "error" and panel.age_s is not None and has_readings(panel):
        words = []  # what is shown was well when it was read; how long ago is what counts
    elif panel.status in ("denied", "unsupported", "error") and has_readings(panel):
        words = [f"partly {panel.status}"]
    if panel.age_s is not None and panel.status not in ("denied", "unsupported"):
        words.append(f"{human_duration(panel.age_s)} old")
    return ", ".join(words)


def title_spans(title: str, panel: PanelFrame | None) -> Line:
    """The title and, where there is something to say, how well the panel is known."""
    words = "" if panel is None else title_suffix(panel)
    if panel is None or not words:
        return (Span(title, "title"),)
    return (Span(title, "title"), Span(f" {words}", status_style(panel.status)))


def has_readings(panel: PanelFrame) -> bool:
    """Whether anything of the panel is known besides how well it is known."""
    return any(
        getattr(panel, name) not in (None, [], {}) for name in panel.__struct_fields__ if name not in _STATUS_FIELDS
    )


def note_text(panel: PanelFrame) -> str:
    """The panel's note, or a plain one for its status."""
    return panel.note or _DEFAULT_NOTES.get(panel.status, panel.status)


def note_lines(panel: PanelFrame, cells: int) -> list[Line]:
    """The panel's sentence, wrapped."""
    return [(Span(text, status_style(panel.status)),) for text in wrap_words(note_text(panel), cells)]


def body(panel: PanelFrame, known: bool, lines: Sequence[Line], cells: int, rows: int) -> list[Line]:
    """The lines where the panel is known, its sentence where it is not, and both where there is room for both."""
    if rows <= 0:
        return []
    if not known:
        return note_lines(panel, cells)[:rows]
    kept = list(lines[:rows])
    if panel.note and len(kept) < rows:
        kept += note_lines(panel, cells)[: rows - len(kept)]
    return kept


def head_lines(panel: PanelFrame, lines: Sequence[Line], cells: int) -> tuple[Line, ...]:
    """The lines of fact of a full panel, none wider than `cells` where it can be helped, its sentence first."""
    notes = [] if panel.status == "ok" and not panel.note else note_lines(panel, cells)
    return (*notes, *(part for one in lines for part in reflow(one, cells)))
