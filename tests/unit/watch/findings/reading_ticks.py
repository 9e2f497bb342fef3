"""Readings by hand, second after second: what was read, what was not and why, and the findings of real rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import structs

from dba_console.watch.findings.rule import Rule
from dba_console.watch.findings.thresholds import Limits
from dba_console.watch.replication.readings import Standby
from dba_console.watch.safety.readings import DatabaseStat, DatabaseStats
from dba_console.watch.samples import host, postgres
from dba_console.watch.samples.findings import FindingNow
from dba_console.watch.samples.sample import Status
from tests.build import GB, MB, NOW_US, part
from tests.readings import mount, of, server
from tests.unit.watch.findings.rule_ticks import RuleTicks

SECOND = 1_000_000
HOUR = 3600.0
Missing = Mapping[str, tuple[Status, str | None]]
"""Parts that were not read, with status and note."""


class PartTicks(RuleTicks):
    """Ticks of any parts."""

    def __init__(self, *rules: Rule | str, limits: Limits | None = None, read: Mapping[str, Any] | None = None) -> None:
        """With `read`, those readings are a first tick."""
        super().__init__(*rules, limits=limits)
        if read is not None:
            self.tick(read)

    def tick(self, read: Mapping[str, Any], after_s: float = 1.0, missing: Missing | None = None) -> list[FindingNow]:
        """What is open after a tick with these readings, and with parts that were not read."""
        self.at_s += after_s
        parts = [part(name, value, at_s=self.at_s) for name, value in read.items()]
        for name, (status, note) in (missing or {}).items():
            parts.append(part(name, None, at_s=self.at_s, status=status, note=note))
        self.evaluate(*parts)
        return self.open


class ReadingTicks(RuleTicks):
    """Ticks with given readings, whose time of the server is that of the tick."""

    @property
    def server_us(self) -> int:
        """The server's clock at the last tick."""
        return NOW_US + int(self.at_s * SECOND)

    def memo(self, name: str) -> dict[str, Any]:
        """What a rule keeps between ticks."""
        return self.engine._memos[name]

    def ago(self, seconds: float) -> int:
        """A moment by the server's clock, so long before the next tick, a second from now."""
        return self.server_us + SECOND - int(seconds * SECOND)

    def tick(self, readings: dict[str, Any], after_s: float = 1.0, note: str | None = None) -> dict[str, FindingNow]:
        """The findings open after a tick in which these parts were read, by id."""
        self.at_s += after_s
        self.evaluate(*(part(name, self._timed(value), at_s=self.at_s, note=note) for name, value in readings.items()))
        return {row.id: row for row in self.open}

    def tick_without(self, name: str, after_s: float = 1.0) -> dict[str, FindingNow]:
        """The findings open after a tick in which the part could not be read."""
        self.at_s += after_s
        self.evaluate(part(name, None, at_s=self.at_s, status="error", note="no connection"))
        return {row.id: row for row in self.open}

    def _timed(self, value: Any) -> Any:
        return structs.replace(value, now_us=self.server_us) if hasattr(value, "now_us") else value


def primary(major: int = 16, **fields: Any) -> postgres.Server:
    """A server of that version; `databases` are names, those in `closed` allow no connections."""
    closed = fields.pop("closed", ())
    databases = [
        postgres.Database(oid, name, "UTF8", -1, name not in closed, name.startswith("template"))
        for oid, name in enumerate(("postgres", "template0", "appdb"), 1)
    ]
    settings = {"data_checksums": "on", "autovacuum_multixact_freeze_max_age": "400000000", **fields.pop("set", {})}
    return server(version_num=major * 10000, databases=databases, with_settings=settings, **fields)


def only(findings: dict[str, FindingNow]) -> FindingNow:
    """The one finding there is."""
    (row,) = findings.values()
    return row


def database(name: str | None = "appdb", oid: int = 5, **fields: Any) -> DatabaseStats:
    return DatabaseStats([of(DatabaseStat, oid=oid, name=name, **fields)])


# -- readings for the rules about WAL

SEGMENT = 16 * MB


def disk(available: int = 1000 * GB, **fields: Any) -> host.Mounts:
    made = {"size": 2000 * GB, "used": 1000 * GB, "available": available, "holds": ["data", "wal"]}
    return host.Mounts([mount("/pg", **{**made, **fields})], {})


def standby(name: str = "db3", **fields: Any) -> Standby:
    made = {"application": name, "pid": 7, "state": "streaming", "client": "10.0.0.3:40112", "replay_lsn": 0}
    return of(Standby, **{**made, **fields})
