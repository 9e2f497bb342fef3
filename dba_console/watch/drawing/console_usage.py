"""The console's own load, and whether it keeps up: visible, so that its numbers can be trusted."""

from __future__ import annotations

from dba_console.core.units import human_bytes, human_count, human_duration, human_pct
from dba_console.watch.drawing.phrases import fact, integer, join, level_style, name_of, reflow, text_line
from dba_console.watch.drawing.text_elements import Cell, Detail, Line, Style, Table, TableColumn, TableRow, wrap_words
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.model import Frame, SelfFrame
from dba_console.watch.subjects import PANEL_NAMES


def compact(frame: Frame, width: int, height: int, history: ChartHistory) -> list[Line]:
    own = frame.own
    return [_cost_line(own), _recording_line(own), _lanes_line(own)][: max(0, height)]


def detail(frame: Frame, width: int, history: ChartHistory) -> Detail:
    own = frame.own
    head = [
        _cost_line(own),
        _server_line(own),
        _recording_line(own),
        _lanes_line(own),
        _readers_line(own),
        _clock_line(frame),
    ]
    if own.recording_note:
        head += [text_line(text, "warn") for text in wrap_words(own.recording_note, width)]
    if frame.target.through:
        head.append(text_line(f"connected through {name_of(frame.target.through)}", "warn"))
    fitted = tuple(part for one in head for part in reflow(one, width))
    return Detail("This console", fitted, (_panels_table(frame),))


def _cost_line(own: SelfFrame) -> Line:
    return join(
        [
            fact("agent cpu", human_pct(own.cpu_pct), level_style(own.cpu_pct, 5, 20)),
            fact("rules cpu", human_pct(own.rules_cpu_pct)),
            fact("its backend", human_pct(own.backend_cpu_pct), level_style(own.backend_cpu_pct, 5, 20)),
            fact("memory", human_bytes(own.rss_bytes)),
        ]
    )


def _server_line(own: SelfFrame) -> Line:
    waited = "?" if own.query_ms is None else f"{own.query_ms:.1f} ms"
    return join([fact("queries sent", human_count(own.queries)), fact("query time in the last tick", waited)])


def _recording_line(own: SelfFrame) -> Line:
    style: Style = "" if own.recording == "ok" else "warn"
    return join(
        [
            fact("recording", name_of(own.recording), style),
            fact("behind", human_duration(own.recorder_lag_s), level_style(own.recorder_lag_s, 2, 30)),
            fact("samples dropped", integer(own.dropped), level_style(own.dropped, 1, 60)),
        ]
    )


def _lanes_line(own: SelfFrame) -> Line:
    if not own.stuck_lanes:
        return fact("hanging reads", "0")
    return fact("hanging reads", f"{own.stuck_lanes}: {name_of(', '.join(own.lanes), 60)}", "warn")


def _readers_line(own: SelfFrame) -> Line:
    return join(
        [
            fact("consoles", integer(own.consoles)),
            fact("slow readers dropped", integer(own.readers_dropped), level_style(own.readers_dropped, 1, 10)),
            fact("last tick delay", human_duration(own.late_s), level_style(own.late_s, 0.5, 2)),
        ]
    )


def _clock_line(frame: Frame) -> Line:
    offset = frame.target.clock_offset_s
    text = "?" if offset is None else f"{offset:+.3f} s"
    return fact("server clock relative to this host", text, level_style(None if offset is None else abs(offset), 1, 60))


def _panels_table(frame: Frame) -> Table:
    """Return the table of panels with the status and age of their data."""
    columns = (
        TableColumn("panel", "panel", 14),
        TableColumn("status", "status", 12),
        TableColumn("age", "age", 7, right=True, help="Of the oldest reading shown"),
        TableColumn("note", "note", 60, grow=True),
    )
    rows = []
    for name in PANEL_NAMES:
        panel = getattr(frame, name)
        if name == "cluster" and panel.status == "unsupported":
            continue  # no cluster is configured
        rows.append(
            TableRow(
                name,
                (
                    Cell(name),
                    Cell(name_of(panel.status), panel.status, "" if panel.status == "ok" else "warn"),
                    Cell(human_duration(panel.age_s), panel.age_s),
                    Cell(name_of(panel.note, 300) if panel.note else ""),
                ),
            )
        )
    return Table("panels", columns, tuple(rows), None, "Status of the panels")
