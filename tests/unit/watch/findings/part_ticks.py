"""Ticks of any parts made by hand: what was read, what was not and why, and what the rules conclude."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dba_console.core.thresholds import Limits
from dba_console.watch.findings.finding_events import FindingChange
from dba_console.watch.findings.rule import Rule
from dba_console.watch.findings.rule_engine import RuleEngine
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.chart_points import point_of
from dba_console.watch.frames.picture import Picture
from dba_console.watch.samples.findings import FindingNow
from dba_console.watch.samples.sample import Status
from tests.build import part, sample


class PartTicks:
    """A rule engine with these rules, and its ticks."""

    def __init__(self, rules: Sequence[Rule], limits: Limits | None = None) -> None:
        self.engine = RuleEngine(limits or Limits(), rules)
        self.changes: list[FindingChange] = []
        self.at_s = 0.0
        self._picture = Picture()
        self._history = ChartHistory()

    def tick(
        self,
        read: Mapping[str, Any],
        after_s: float = 1.0,
        missing: Mapping[str, tuple[Status, str | None]] | None = None,
    ) -> list[FindingNow]:
        """Readings by part, and parts that have none, with status and note; what is open then."""
        self.at_s += after_s
        parts = [part(name, value, at_s=self.at_s) for name, value in read.items()]
        for name, (status, note) in (missing or {}).items():
            parts.append(part(name, None, at_s=self.at_s, status=status, note=note))
        self._picture = self._picture.with_sample(sample(*parts, at_s=self.at_s))
        point = point_of(self._picture)
        self._history.add(self._picture.wall_us, point)
        self.changes += self.engine.evaluate(self._picture, self._history, point)
        return self.open

    @property
    def open(self) -> list[FindingNow]:
        conclusions = self.engine.conclusions
        assert conclusions.failed == [], "a rule raised an error"
        return conclusions.rows

    @property
    def severities(self) -> dict[str, str]:
        return {row.id: row.severity for row in self.open}
