"""What is shown of the server as a whole: identity, restarts, settings not in effect, I/O, checkpoints, autovacuum."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import Struct

from dba_console.core.clock import age_s, rfc3339
from dba_console.watch.frames.panel_status import fill_status
from dba_console.watch.frames.picture import PictureFacts
from dba_console.watch.frames.rates import Pair, pair, rate, share_pct
from dba_console.watch.io.readings import IoStat, IoStats
from dba_console.watch.panel import Panel, PanelFrame, Points
from dba_console.watch.progress.readings import Operations
from dba_console.watch.replication.readings import Wal
from dba_console.watch.server.readings import ConfigState, DueTable, DueTables, SessionCounts, Slru, Slrus

CRASH_AFTER_S = 10.0
"""A checkpointer that started this long after the postmaster replaces one that ended in a crash: it starts at once
otherwise."""


class SettingRow(Struct, kw_only=True):
    """A setting, or a line of a configuration file, that is not in effect."""

    name: str | None = None
    value: str | None = None
    """In effect now."""
    file_value: str | None = None
    place: str | None = None
    """File and line; null without the right to read pg_file_settings."""
    problem: str
    """needs a restart, or the error that the server reports."""


class BackendIoRow(Struct, kw_only=True):
    """pg_stat_io (16+) by type of backend."""

    backend_type: str
    reads_per_s: float | None = None
    read_bytes_per_s: float | None = None
    writes_per_s: float | None = None
    write_bytes_per_s: float | None = None
    extends_per_s: float | None = None
    fsyncs_per_s: float | None = None
    hit_pct: float | None = None
    """Share of its reads found in shared_buffers."""


class SlruRow(Struct, kw_only=True):
    name: str
    hit_pct: float | None = None
    reads_per_s: float | None = None
    writes_per_s: float | None = None
    zeroed_per_s: float | None = None


class AutovacuumRow(Struct, kw_only=True):
    """A table that an autovacuum worker processes, or that is due."""

    table: str
    database: str | None = None
    state: str
    """running, due, or off: due, but autovacuum is off for the whole server."""
    why: str
    """What a worker does, or what is due: vacuum, insert, analyze, wraparound."""
    pid: int | None = None
    elapsed_s: float | None = None
    pct: float | None = None
    """Of the phase now running."""
    times: float | None = None
    """How many times the threshold that triggers it."""
    bytes: int | None = None


class ServerPanel(PanelFrame, kw_only=True):
    version: str | None = None
    system_identifier: str | None = None
    data_directory: str | None = None
    port: int | None = None
    started: str | None = None
    """RFC 3339: start of the postmaster."""
    uptime_s: float | None = None
    restarted: str | None = None
    """RFC 3339: last restart of all processes after a crash of one; null if none, or if not visible to this role."""
    restarted_age_s: float | None = None
    config_loaded: str | None = None
    """RFC 3339: when the configuration files were last loaded."""
    settings: list[SettingRow] = []
    config_errors_known: bool = False
    """The role may read pg_file_settings."""
    io: list[BackendIoRow] = []
    io_method: str | None = None
    io_workers: int | None = None
    """I/O workers now running (18+, io_method = worker)."""
    checkpoints_timed: int | None = None
    """Since the reset of the statistics, as checkpoints_requested."""
    checkpoints_requested: int | None = None
    checkpoint_write_pct: float | None = None
    """Share of the last interval in which a checkpoint wrote."""
    checkpoint_buffers_per_s: float | None = None
    slrus: list[SlruRow] = []
    sessions_per_s: float | None = None
    """Sessions established per second (14+); as their numbers, all databases together."""
    sessions_total: int | None = None
    sessions_abandoned: int | None = None
    sessions_fatal: int | None = None
    sessions_killed: int | None = None
    active_sessions: float | None = None
    """Mean number of sessions executing a statement in the last interval; counted when a statement ends."""
    autovacuum_workers: int | None = None
    autovacuum_max_workers: int | None = None
    autovacuum: list[AutovacuumRow] = []
    """Running workers of all databases, then the tables due in the connected one, the most overdue first."""


# How they follow from what was read.


def derive_server(facts: PictureFacts) -> ServerPanel:
    """Return the panel; its status is that of the identity, what else is missing is in the note."""
    others = ["pg.config", "pg.slru", "pg.autovacuum_due"]
    others += ["pg.session_counts"] if (facts.major or 0) >= 14 else []
    others += ["pg.io"] if (facts.major or 0) >= 16 else []
    panel = fill_status(ServerPanel(), facts.picture, "pg.server", *others)
    _identity(panel, facts)
    _config(panel, facts)
    _backend_io(panel, facts)
    _checkpoints(panel, facts)
    _slrus(panel, pair(facts.picture, "pg.slru", Slrus), facts.picture.now("pg.slru", Slrus))
    _session_counts(panel, facts)
    panel.autovacuum_max_workers = facts.number("autovacuum_max_workers")
    panel.autovacuum = [*_running(panel, facts), *_due(facts)]
    return panel


def _identity(panel: ServerPanel, facts: PictureFacts) -> None:
    server = facts.server
    if server is None:
        return
    panel.version, panel.system_identifier = server.version, server.system_identifier
    panel.data_directory, panel.port = server.data_directory, facts.number("port")
    panel.started, panel.uptime_s = rfc3339(server.start_us), age_s(facts.server_now_us, server.start_us)
    rows = () if facts.sessions is None else facts.sessions.rows
    started = next((row.backend_start for row in rows if row.backend_type == "checkpointer"), None)
    if started is not None and started - server.start_us >= CRASH_AFTER_S * 1e6:
        panel.restarted, panel.restarted_age_s = rfc3339(started), age_s(facts.server_now_us, started)
    panel.io_method = facts.setting("io_method")
    if panel.io_method is not None and facts.sessions is not None:
        panel.io_workers = sum(row.backend_type == "io worker" for row in rows)


def _config(panel: ServerPanel, facts: PictureFacts) -> None:
    state = facts.picture.now("pg.config", ConfigState)
    if state is None:
        return
    panel.config_loaded, panel.config_errors_known = rfc3339(state.loaded_at), state.files is not None
    pending = {row.name: row for row in state.pending}
    for entry in state.files or ():
        setting = pending.pop(entry.name or "", None)
        panel.settings.append(
            SettingRow(
                name=entry.name,
                value=None if setting is None else _with_unit(setting.value, setting.unit),
                file_value=entry.value,
                place=f"{entry.file}:{entry.line}",
                problem="needs a restart" if setting is not None else entry.error or "",
            )
        )
    for setting in pending.values():
        panel.settings.append(
            SettingRow(name=setting.name, value=_with_unit(setting.value, setting.unit), problem="needs a restart")
        )


def _with_unit(value: str | None, unit: str | None) -> str | None:
    return value if value is None or unit is None else f"{value} {unit}" if unit[0].isalpha() else f"{value} x {unit}"


def _backend_io(panel: ServerPanel, facts: PictureFacts) -> None:
    both = pair(facts.picture, "pg.io", IoStats)
    if both is None:
        return
    new, old = _by_backend(both.new.rows), _by_backend(both.old.rows)
    for kind, rows in sorted(new.items()):
        before = old.get(kind, [])

        def per_s(field: str, rows: list[IoStat] = rows, before: list[IoStat] = before) -> float | None:
            return rate(_total(rows, field), _total(before, field), both.seconds)

        hits, reads = per_s("hits"), per_s("reads")
        row = BackendIoRow(
            backend_type=kind,
            reads_per_s=reads,
            read_bytes_per_s=per_s("read_bytes"),
            writes_per_s=per_s("writes"),
            write_bytes_per_s=per_s("write_bytes"),
            extends_per_s=per_s("extends"),
            fsyncs_per_s=per_s("fsyncs"),
            hit_pct=None if hits is None or reads is None else share_pct(hits, hits + reads),
        )
        panel.io.append(row)


def _by_backend(rows: Iterable[IoStat]) -> dict[str, list[IoStat]]:
    found: dict[str, list[IoStat]] = {}
    for row in rows:
        found.setdefault(row.backend_type, []).append(row)
    return found


def _total(rows: Iterable[IoStat], field: str) -> int:
    return sum(getattr(row, field) or 0 for row in rows)


def _checkpoints(panel: ServerPanel, facts: PictureFacts) -> None:
    now = facts.picture.now("pg.wal", Wal)
    if now is None:
        return
    panel.checkpoints_timed, panel.checkpoints_requested = now.checkpoints_timed, now.checkpoints_requested
    both = pair(facts.picture, "pg.wal", Wal)
    if both is not None:
        written_ms = rate(both.new.checkpoint_write_ms, both.old.checkpoint_write_ms, both.seconds)
        panel.checkpoint_write_pct = share_pct(written_ms, 1000.0)
        panel.checkpoint_buffers_per_s = rate(both.new.buffers_checkpoint, both.old.buffers_checkpoint, both.seconds)


def _slrus(panel: ServerPanel, both: Pair[Slrus] | None, now: Slrus | None) -> None:
    before = {} if both is None else {row.name: row for row in both.old.rows}
    seconds = 0.0 if both is None else both.seconds
    panel.slrus = [_slru(row, before.get(row.name), seconds) for row in (() if now is None else now.rows)]


def _slru(new: Slru, old: Slru | None, seconds: float) -> SlruRow:
    row = SlruRow(name=new.name)
    if old is not None:
        hits = rate(new.blks_hit, old.blks_hit, seconds)
        row.reads_per_s = rate(new.blks_read, old.blks_read, seconds)
        row.writes_per_s = rate(new.blks_written, old.blks_written, seconds)
        row.zeroed_per_s = rate(new.blks_zeroed, old.blks_zeroed, seconds)
        if hits is not None and row.reads_per_s is not None:
            row.hit_pct = share_pct(hits, hits + row.reads_per_s)
    return row


def _session_counts(panel: ServerPanel, facts: PictureFacts) -> None:
    now = facts.picture.now("pg.session_counts", SessionCounts)
    if now is None:
        return
    panel.sessions_total = now.sessions
    panel.sessions_abandoned, panel.sessions_fatal = now.abandoned, now.fatal
    panel.sessions_killed = now.killed
    both = pair(facts.picture, "pg.session_counts", SessionCounts)
    if both is not None:
        panel.sessions_per_s = rate(both.new.sessions, both.old.sessions, both.seconds)
        panel.active_sessions = rate(both.new.active_ms, both.old.active_ms, both.seconds, 1e-3)


def _running(panel: ServerPanel, facts: PictureFacts) -> list[AutovacuumRow]:
    """Return what autovacuum workers do; their command is hidden from a role without pg_read_all_stats."""
    if facts.sessions is None:
        return []
    workers = [row for row in facts.sessions.rows if row.backend_type == "autovacuum worker"]
    panel.autovacuum_workers = len(workers)
    operations = facts.picture.now("pg.progress", Operations)
    progress = {} if operations is None else {row.pid: row for row in operations.rows}
    found = []
    for row in workers:
        command = row.query.removeprefix("autovacuum: ")
        what, _, table = command.partition(" ")
        step = progress.get(row.pid)
        prevents = command.endswith("(to prevent wraparound)")
        found.append(
            AutovacuumRow(
                table=(step and step.object) or table.removesuffix(" (to prevent wraparound)") or "?",
                database=row.database,
                state="running",
                why="wraparound" if prevents else what.lower() or "?",
                pid=row.pid,
                elapsed_s=age_s(facts.sessions.now_us, row.xact_start or row.backend_start),
                pct=None if step is None else step.pct,
            )
        )
    return found


_REASONS: tuple[tuple[str, Callable[[DueTable], float]], ...] = (
    ("vacuum", lambda row: row.dead),
    ("insert", lambda row: row.inserted),
    ("analyze", lambda row: row.changed),
)


def _due(facts: PictureFacts) -> list[AutovacuumRow]:
    due = facts.picture.now("pg.autovacuum_due", DueTables)
    if due is None or facts.in_recovery:
        return []
    is_off = "off" in (facts.setting("autovacuum"), facts.setting("track_counts"))
    block = facts.number("block_size") or 8192
    return [_due_row(row, due.database, is_off=is_off, block=block) for row in due.rows]


def _due_row(row: DueTable, database: str, *, is_off: bool, block: int) -> AutovacuumRow:
    forced = row.age >= 1
    reasons = ["wraparound"] if forced else []
    reasons += [name for name, share in _REASONS if share(row) > 1]
    return AutovacuumRow(
        table=row.name,
        database=database,
        state="off" if is_off and not forced else "due",
        why=", ".join(reasons),
        times=row.age if forced else max(share(row) for _, share in _REASONS),
        bytes=row.pages * block,
    )


def points(facts: PictureFacts) -> Points:
    """Return nothing: what is worth a chart is charted by the panels of I/O, connections and WAL."""
    return {}


PANEL = Panel(name="server", fields=ServerPanel, derive=derive_server, points=points)
