"""How the server is drawn: its state in lines; settings, autovacuum, I/O by type of backend and SLRUs in tables."""

from __future__ import annotations

from dba_console.core.units import human_count, human_duration, human_pct
from dba_console.watch.drawing import phrases
from dba_console.watch.drawing.phrases import fact, integer, join, join_fitting, name_of, text_line
from dba_console.watch.drawing.text_elements import Detail, Line, Style, Table, TableRow
from dba_console.watch.drawing.time_formats import local_date_and_time
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.model import Frame
from dba_console.watch.layout import Layout
from dba_console.watch.server.panel import AutovacuumRow, ServerPanel, SettingRow
from dba_console.watch.tables import Column, cells

_RECENT_S = 86_400.0
"""A restart after a crash is emphasized for a day."""


def _problem_style(row: SettingRow) -> Style:
    return "warn" if row.problem == "needs a restart" else "crit"


def _times_text(row: AutovacuumRow) -> str:
    return "" if row.times is None else f"{row.times:.1f}x"


def _state_style(row: AutovacuumRow) -> Style:
    return "warn" if row.state == "off" else ""


_SETTINGS = (
    Column("name", "setting", 28, optional=True, keep=True),
    Column("value", "in effect", 16, optional=True),
    Column("file_value", "in the file", 16, optional=True),
    Column("problem", "problem", 18, style=_problem_style, grow=True),
    Column("place", "file", 40, optional=True, spare=1),
)
_AUTOVACUUM = (
    Column("table", "table", 30, grow=True, keep=True),
    Column("state", "state", 7, help="running; due: next; off: due, but switched off", style=_state_style),
    Column("why", "why", 15, help="vacuum: dead rows, insert: inserted rows, analyze, wraparound: age of ids"),
    Column("times", "times", 7, right=True, help="How many times its threshold", text=_times_text, descending=True),
    Column("pct", "phase", 6, right=True, help="Share of the phase done", optional=True),
    Column("elapsed_s", "for", 7, right=True, optional=True, descending=True),
    Column("database", "database", 14, optional=True, spare=2),
    Column("bytes", "size", 8, right=True, optional=True, descending=True, spare=3),
    Column("pid", "pid", 8, right=True, optional=True, spare=4),
)
_IO = (
    Column("backend_type", "backend", 20, keep=True, grow=True),
    Column("read_bytes_per_s", "read", 9, right=True, descending=True),
    Column("write_bytes_per_s", "written", 9, right=True, descending=True),
    Column("reads_per_s", "reads", 8, right=True, descending=True, spare=3),
    Column("writes_per_s", "writes", 8, right=True, descending=True, spare=4),
    Column("extends_per_s", "extends", 8, right=True, descending=True, spare=2),
    Column("fsyncs_per_s", "fsyncs", 8, right=True, descending=True),
    Column("hit_pct", "hits", 6, right=True, help="Share of reads found in shared_buffers"),
)
_SLRUS = (
    Column("name", "SLRU", 20, keep=True, grow=True),
    Column("hit_pct", "hits", 6, right=True, help="Share of lookups found in the cache; ? without lookups"),
    Column("reads_per_s", "reads", 8, right=True, help="Blocks read from disk", descending=True),
    Column("writes_per_s", "writes", 8, right=True, descending=True),
    Column("zeroed_per_s", "new", 8, right=True, help="Blocks initialized", descending=True, spare=1),
)


def _tables(panel: ServerPanel) -> tuple[Table, ...]:
    settings = tuple(
        TableRow(f"{row.name} {row.place} {at}", cells(_SETTINGS, row)) for at, row in enumerate(panel.settings)
    )
    vacuums = tuple(TableRow(f"{row.state} {row.table} {row.pid}", cells(_AUTOVACUUM, row)) for row in panel.autovacuum)
    backends = tuple(TableRow(row.backend_type, cells(_IO, row)) for row in panel.io)
    slrus = tuple(TableRow(row.name, cells(_SLRUS, row)) for row in panel.slrus)
    none = "all in effect" if panel.config_errors_known else "none needs a restart; errors in the files are not visible"
    return (
        Table("settings", _SETTINGS, settings, "name", "Settings not in effect", none),
        Table("autovacuum", _AUTOVACUUM, vacuums, None, "Autovacuum: running, then due", "none runs, none is due"),
        Table("io", _IO, backends, "read_bytes_per_s", "I/O by type of backend", "needs PostgreSQL 16"),
        Table("slrus", _SLRUS, slrus, "reads_per_s", "SLRU caches", "not read yet"),
    )


def compact(frame: Frame, width: int, height: int, history: ChartHistory) -> list[Line]:
    """Return start and restarts, settings not in effect, checkpoints, sessions, autovacuum."""
    panel = frame.of(ServerPanel)
    lines = [_start(panel, width), _configuration(panel, width), _checkpoints(panel, width)]
    lines += [_sessions(panel, width), _autovacuum(panel, width)]
    return phrases.body(panel, panel.version is not None, lines, width, height)


def full(frame: Frame, width: int, history: ChartHistory) -> Detail:
    """Return everything known, with tables of settings, autovacuum, I/O and SLRU caches."""
    panel = frame.of(ServerPanel)
    if panel.version is None:
        return Detail("Server", tuple(phrases.note_lines(panel, width)))
    head = [
        _identity(panel),
        *(line(panel, 200) for line in (_start, _configuration, _checkpoints, _sessions, _autovacuum)),
    ]
    return Detail("Server", phrases.head_lines(panel, head, width), _tables(panel))


def _identity(panel: ServerPanel) -> Line:
    return join(
        [
            fact("PostgreSQL", name_of(panel.version)),
            fact("system identifier", name_of(panel.system_identifier)),
            fact("port", integer(panel.port)),
            fact("data directory", name_of(panel.data_directory, 120)),
        ]
    )


def _start(panel: ServerPanel, width: int) -> Line:
    facts = [fact("up", human_duration(panel.uptime_s)), fact("since", local_date_and_time(panel.started))]
    if panel.restarted is not None:
        recent = panel.restarted_age_s is not None and panel.restarted_age_s < _RECENT_S
        facts.insert(1, fact("restarted by a crash", local_date_and_time(panel.restarted), "warn" if recent else ""))
    return join_fitting(width, facts)


def _configuration(panel: ServerPanel, width: int) -> Line:
    waiting = sum(row.problem == "needs a restart" for row in panel.settings)
    wrong = len(panel.settings) - waiting
    errors = integer(wrong) if panel.config_errors_known else "?"
    facts = [
        fact("settings that need a restart", integer(waiting), "warn" if waiting else ""),
        fact("errors in files", errors, "crit" if wrong else ""),
        fact("loaded", local_date_and_time(panel.config_loaded)),
    ]
    return join_fitting(width, facts)


def _checkpoints(panel: ServerPanel, width: int) -> Line:
    facts = [
        fact("checkpoints timed", integer(panel.checkpoints_timed)),
        fact("requested", integer(panel.checkpoints_requested)),
        fact("writing", human_pct(panel.checkpoint_write_pct)),
        fact("buffers", human_count(panel.checkpoint_buffers_per_s, per_s=True)),
    ]
    if panel.io_method is not None:
        facts.append(fact("io_method", name_of(panel.io_method)))
        facts.append(fact("I/O workers", integer(panel.io_workers)))
    return join_fitting(width, facts)


def _sessions(panel: ServerPanel, width: int) -> Line:
    if panel.sessions_total is None:
        return text_line("session counts: needs PostgreSQL 14, or not read yet", "dim")
    facts = [
        fact("new sessions", human_count(panel.sessions_per_s, per_s=True)),
        fact("active", "?" if panel.active_sessions is None else f"{panel.active_sessions:.1f}"),
        fact("abandoned", human_count(panel.sessions_abandoned)),
        fact("fatal", human_count(panel.sessions_fatal)),
        fact("killed", human_count(panel.sessions_killed)),
        fact("of", human_count(panel.sessions_total)),
    ]
    return join_fitting(width, facts)


def _autovacuum(panel: ServerPanel, width: int) -> Line:
    due = sum(row.state == "due" for row in panel.autovacuum)
    off = sum(row.state == "off" for row in panel.autovacuum)
    workers = f"{integer(panel.autovacuum_workers)} of {integer(panel.autovacuum_max_workers)}"
    facts = [fact("autovacuum workers", workers), fact("tables due", integer(due))]
    if off:
        facts.append(fact("due but off", integer(off), "warn"))
    return join_fitting(width, facts)


LAYOUT = Layout(name="server", title="Server", key="j", compact=compact, full=full)
