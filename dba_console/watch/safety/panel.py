"""What is shown of safety: data checksums, ages of transaction ids and distance to wraparound, the xmin horizon."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import asdict

from dba_console.core.clock import age_s, rfc3339
from dba_console.watch.frames.panel_status import fill_status
from dba_console.watch.frames.picture import PictureFacts
from dba_console.watch.frames.rates import mean_rate, pair, rate, share_pct
from dba_console.watch.panel import Panel, PanelFrame, Points
from dba_console.watch.safety.readings import DatabaseStats, Horizon, HorizonHolder, Xids
from dba_console.watch.samples.host import ControlFile


class ChecksumRow(Struct, kw_only=True):
    database: str | None
    failures: int | None
    last_failure: str | None = None
    """RFC 3339."""


class XidRow(Struct, kw_only=True):
    database: str
    xid_age: int
    xid_pct: float | None = None
    mxid_age: int = 0
    mxid_pct: float | None = None


class XidTable(Struct, kw_only=True):
    table: str
    xid_age: int
    mxid_age: int
    bytes: int | None = None
    last_vacuum: str | None = None
    last_autovacuum: str | None = None


class HorizonRow(Struct, kw_only=True):
    kind: str
    who: str
    pid: int | None = None
    database: str | None = None
    state: str | None = None
    xid_age: int | None = None
    since: str | None = None
    since_age_s: float | None = None


class SafetyPanel(PanelFrame, kw_only=True):
    data_checksums: str | None = None
    """on, off, or the in-progress states of 19."""
    checksum_failures: int | None = None
    checksum_last_failure: str | None = None
    checksum_databases: list[ChecksumRow] = []
    xid_age: int | None = None
    xid_database: str | None = None
    xid_warn_age: int | None = None
    xid_stop_age: int | None = None
    xid_pct: float | None = None
    """xid_age as a share of xid_stop_age."""
    xids_per_s: float | None = None
    autovacuum_freeze_in_s: float | None = None
    """Seconds until autovacuum is forced; 0 if it already is; None if the rate is unknown or zero."""
    warn_in_s: float | None = None
    stop_in_s: float | None = None
    mxid_age: int | None = None
    mxid_pct: float | None = None
    mxids_per_s: float | None = None
    freeze_max_age: int | None = None
    failsafe_age: int | None = None
    databases: list[XidRow] = []
    tables: list[XidTable] = []
    horizon: list[HorizonRow] = []
    horizon_unknown: bool = False
    """Not read yet, or not readable: an empty list then does not mean that nothing holds it back."""


# How they follow from what was read.

WRAP_AGE = 2_147_483_647
"""Age at which a transaction id would appear to be in the future (2^31 - 1)."""
MIN_RATE_SPAN_S = 25.0
"""Minimum span for an xid rate: ids are read every 30 s, so one interval."""


class Thresholds(NamedTuple):
    """Ages at which the server warns and stops assigning ids."""

    xid_warn: int
    xid_stop: int
    mxid_warn: int
    mxid_stop: int


def thresholds(major: int) -> Thresholds:
    """Return the thresholds of a major version: SetTransactionIdLimit in varsup.c, SetMultiXactIdLimit in multixact.c.

    13 warns 11 M (multixact 10 M) before the wrap and stops at 1 M (100); 14 made it 40 M and 3 M; 19 warns at 100 M.

    >>> thresholds(15).xid_warn, thresholds(15).xid_stop, thresholds(19).xid_warn
    (2107483647, 2144483647, 2047483647)
    """
    if major <= 13:
        return Thresholds(WRAP_AGE - 11_000_000, WRAP_AGE - 1_000_000, WRAP_AGE - 10_000_000, WRAP_AGE - 100)
    warn = WRAP_AGE - (100_000_000 if major >= 19 else 40_000_000)
    stop = WRAP_AGE - 3_000_000
    return Thresholds(warn, stop, warn, stop)


def derive_safety(facts: PictureFacts) -> SafetyPanel:
    """Return the safety panel; its status is that of the ages, what else is missing is in the note."""
    panel = fill_status(SafetyPanel(), facts.picture, "pg.xids", "pg.databases", "pg.horizon")
    _checksums(panel, facts)
    _settings(panel, facts)
    xids = facts.picture.now("pg.xids", Xids)
    if xids is not None:
        _ages(panel, xids, facts)
        _rates(panel, facts)
        _dates(panel)
    _horizon(panel, facts)
    panel.horizon_unknown = facts.picture.now("pg.horizon", Horizon) is None
    return panel


def _checksums(panel: SafetyPanel, facts: PictureFacts) -> None:
    panel.data_checksums = facts.setting("data_checksums")
    control = facts.picture.now("host.control", ControlFile)
    if panel.data_checksums is None and control is not None and control.data_checksums is not None:
        panel.data_checksums = "on" if control.data_checksums else "off"
    stats = facts.picture.now("pg.databases", DatabaseStats)
    counted = [row for row in stats.rows if row.checksum_failures is not None] if stats is not None else []
    if not counted:
        return
    panel.checksum_failures = sum(row.checksum_failures or 0 for row in counted)
    panel.checksum_last_failure = rfc3339(max((row.checksum_last_failure or 0 for row in counted), default=0) or None)
    counted.sort(key=lambda row: (-(row.checksum_failures or 0), row.name or ""))
    panel.checksum_databases = [
        ChecksumRow(database=row.name, failures=row.checksum_failures, last_failure=rfc3339(row.checksum_last_failure))
        for row in counted
    ]


def _settings(panel: SafetyPanel, facts: PictureFacts) -> None:
    panel.freeze_max_age = facts.number("autovacuum_freeze_max_age")
    failsafe = facts.number("vacuum_failsafe_age")
    if failsafe is not None:
        # Never effective below 105 % of autovacuum_freeze_max_age (vacuum_xid_failsafe_check in vacuum.c).
        panel.failsafe_age = max(failsafe, int(1.05 * (panel.freeze_max_age or 0)))
    if facts.major is not None:
        limits = thresholds(facts.major)
        panel.xid_warn_age, panel.xid_stop_age = limits.xid_warn, limits.xid_stop


def _ages(panel: SafetyPanel, xids: Xids, facts: PictureFacts) -> None:
    limits = None if facts.major is None else thresholds(facts.major)
    stop = None if limits is None else limits.xid_stop
    mxid_stop = None if limits is None else limits.mxid_stop
    # Every database counts, including template0 and those that allow no connections: the oldest decides for the
    # cluster.
    for row in sorted(xids.databases, key=lambda row: -row.xid_age):
        panel.databases.append(
            XidRow(
                database=row.name,
                xid_age=row.xid_age,
                xid_pct=share_pct(row.xid_age, stop),
                mxid_age=row.mxid_age,
                mxid_pct=share_pct(row.mxid_age, mxid_stop),
            )
        )
    if panel.databases:
        oldest = panel.databases[0]
        panel.xid_age, panel.xid_database, panel.xid_pct = oldest.xid_age, oldest.database, oldest.xid_pct
        panel.mxid_age = max(row.mxid_age for row in panel.databases)
        panel.mxid_pct = share_pct(panel.mxid_age, mxid_stop)
    block = facts.number("block_size") or 8192
    panel.tables = [
        XidTable(
            table=row.name,
            xid_age=row.xid_age,
            mxid_age=row.mxid_age,
            bytes=row.pages * block,
            last_vacuum=rfc3339(row.last_vacuum),
            last_autovacuum=rfc3339(row.last_autovacuum),
        )
        for row in sorted(xids.tables, key=lambda row: -row.xid_age)
    ]


def series_name(facts: PictureFacts, counter: str) -> str:
    """Return the series of an id counter: one per cluster, so that a failover does not look like consumption."""
    return f"safety:{(facts.server and facts.server.system_identifier) or ''}.{counter}"


def _rates(panel: SafetyPanel, facts: PictureFacts) -> None:
    """Ids used per second over the longest available window: the history, else the last two readings."""
    both = pair(facts.picture, "pg.xids", Xids)
    panel.xids_per_s = mean_rate(facts.history.series(series_name(facts, "next_xid")), min_span_s=MIN_RATE_SPAN_S)
    panel.mxids_per_s = mean_rate(facts.history.series(series_name(facts, "next_mxid")), min_span_s=MIN_RATE_SPAN_S)
    if both is not None:
        new, old, seconds = both
        if panel.xids_per_s is None:
            panel.xids_per_s = rate(new.next_xid, old.next_xid, seconds)
        if panel.mxids_per_s is None:
            panel.mxids_per_s = rate(new.next_mxid, old.next_mxid, seconds)


def _dates(panel: SafetyPanel) -> None:
    panel.autovacuum_freeze_in_s = _seconds_until(panel.xid_age, panel.freeze_max_age, panel.xids_per_s)
    panel.warn_in_s = _seconds_until(panel.xid_age, panel.xid_warn_age, panel.xids_per_s)
    panel.stop_in_s = _seconds_until(panel.xid_age, panel.xid_stop_age, panel.xids_per_s)


def _seconds_until(age: int | None, limit: int | None, per_s: float | None) -> float | None:
    if age is None or limit is None:
        return None
    if age >= limit:
        return 0.0
    return (limit - age) / per_s if per_s else None


def _horizon(panel: SafetyPanel, facts: PictureFacts) -> None:
    horizon = facts.picture.now("pg.horizon", Horizon)
    if horizon is None:
        return
    panel.horizon = [
        HorizonRow(**asdict(row) | {"since": rfc3339(row.since)}, since_age_s=age_s(facts.server_now_us, row.since))
        for row in sorted(horizon.rows, key=_holder_order)
    ]


def _holder_order(row: HorizonHolder) -> tuple[int, float]:
    """Oldest horizon first; among equals the one that began first, since the later ones only inherited it."""
    return -(row.xid_age or 0), float("inf") if row.since is None else row.since


def points(facts: PictureFacts) -> Points:
    """Return the counters of ids, whose advance shows how fast they are used."""
    xids = facts.picture.now("pg.xids", Xids)
    if xids is None or not facts.was_read_now("pg.xids"):
        return {}
    return {series_name(facts, "next_xid"): xids.next_xid, series_name(facts, "next_mxid"): xids.next_mxid}


PANEL = Panel(name="safety", fields=SafetyPanel, derive=derive_safety, points=points)
