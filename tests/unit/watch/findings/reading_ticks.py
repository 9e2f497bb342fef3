"""Readings by hand, second after second, and the findings of real rules, through the rule engine as in the agent."""

from __future__ import annotations

from typing import Any

from dba_console.core.thresholds import Limits
from dba_console.watch.findings.rule import Rule
from dba_console.watch.findings.rule_engine import RuleEngine
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.chart_points import point_of
from dba_console.watch.frames.picture import Picture
from dba_console.watch.samples import postgres
from dba_console.watch.samples.findings import FindingNow
from tests.build import NOW_US, part, sample
from tests.readings import of, server

SECOND = 1_000_000


class ReadingTicks:
    """Ticks with given readings; the server's clock differs from the host's by `clock_off_s`."""

    def __init__(self, *rules: Rule, limits: Limits | None = None, clock_off_s: float = 0.0) -> None:
        self._engine = RuleEngine(limits or Limits(), rules)
        self._picture = Picture()
        self._history = ChartHistory()
        self._off_us = int(clock_off_s * SECOND)
        self.at_s = 0.0

    @property
    def server_us(self) -> int:
        """The server's clock at the last tick."""
        return NOW_US + int(self.at_s * SECOND) + self._off_us

    def memo(self, name: str) -> dict[str, Any]:
        """What a rule keeps between ticks."""
        return self._engine._memos[name]

    def ago(self, seconds: float) -> int:
        """A moment by the server's clock, so long before the next tick, a second from now."""
        return self.server_us + SECOND - int(seconds * SECOND)

    def tick(self, readings: dict[str, Any], after_s: float = 1.0, note: str | None = None) -> dict[str, FindingNow]:
        """The findings open after a tick in which these parts were read, by id."""
        self.at_s += after_s
        parts = [part(name, self._timed(value), at_s=self.at_s, note=note) for name, value in readings.items()]
        self._picture = self._picture.with_sample(sample(*parts, at_s=self.at_s))
        point = point_of(self._picture)
        self._history.add(self._picture.wall_us, point)
        self._engine.evaluate(self._picture, self._history, point)
        assert self._engine.conclusions.failed == []
        return {row.id: row for row in self._engine.conclusions.rows}

    def tick_without(self, name: str, after_s: float = 1.0) -> dict[str, FindingNow]:
        """The findings open after a tick in which the part could not be read."""
        self.at_s += after_s
        lost = part(name, None, at_s=self.at_s, status="error", note="no connection")
        self._picture = self._picture.with_sample(sample(lost, at_s=self.at_s))
        self._engine.evaluate(self._picture, self._history, {})
        return {row.id: row for row in self._engine.conclusions.rows}

    def _timed(self, value: Any) -> Any:
        fields = getattr(value, "__struct_fields__", ())
        return type(value)(**{**_fields(value), "now_us": self.server_us}) if "now_us" in fields else value


def _fields(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__struct_fields__}


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


def database(name: str | None = "appdb", oid: int = 5, **fields: Any) -> postgres.DatabaseStats:
    return postgres.DatabaseStats([of(postgres.DatabaseStat, oid=oid, name=name, **fields)])
