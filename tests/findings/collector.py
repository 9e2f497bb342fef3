"""The agent's collector and a judge in this process, a second of their time in as long as it takes to read.

Everything is read from the real server and the real host; only the time between two ticks is not waited for.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from dba_console.agent.collector import Collector, monitor_options
from dba_console.core.clock import SYSTEM
from dba_console.core.config import Config
from dba_console.core.target import make_target
from dba_console.watch.findings.finding_events import FindingChange
from dba_console.watch.findings.rule_engine import RULES, RuleEngine
from dba_console.watch.findings.thresholds import Limits
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.chart_points import point_of
from dba_console.watch.frames.picture import Picture
from dba_console.watch.samples.console import AgentHealth
from dba_console.watch.samples.findings import FindingNow

CONNECT_GRACE_US = 1_000_000
"""For an attempt to connect; one to a server that hangs takes it whole."""
LIMIT_S = 400
"""Ticks after which nothing more is waited for."""


class FastClock:
    """The host's clocks, ahead by what was skipped."""

    def __init__(self) -> None:
        self.ahead_us = 0

    def wall_us(self) -> int:
        return SYSTEM.wall_us() + self.ahead_us

    def mono_us(self) -> int:
        return SYSTEM.mono_us() + self.ahead_us


class LocalAgent:
    """The collector and the rule engine of an agent for `dsn`, in this process."""

    def __init__(
        self, dsn: str, *, only: tuple[str, ...] = (), limits: Limits | None = None, config: Config | None = None
    ) -> None:
        self.clock = FastClock()
        # A query that was slow once is asked more rarely: here seconds go by in which nothing was slow.
        options = replace(monitor_options(Config().agent, None), expensive_s=3600.0)
        self.collector = Collector(make_target(dsn), config or Config(), clock=self.clock, options=options)
        rules = [rule for rule in RULES if not only or rule.name in only]
        self.engine = RuleEngine(limits or Limits(), rules)
        self.picture = Picture()
        self.history = ChartHistory()
        self.changes: list[FindingChange] = []
        self.health: AgentHealth | None = None

    def tick(self, count: int = 1, *, every_s: int = 1) -> None:
        """Tick the collector `count` times, each `every_s` seconds after the previous tick."""
        for _ in range(count):
            # No time is skipped under an attempt to connect: its deadline would pass in a moment.
            self.collector.server.attempted(self.clock.mono_us() + CONNECT_GRACE_US)
            if self.collector.cluster is not None:
                self.collector.cluster.all_idle(self.clock.mono_us() + CONNECT_GRACE_US)
            self.clock.ahead_us += every_s * 1_000_000
            self.picture = self.picture.with_sample(self.collector.tick())
            point = point_of(self.picture)
            self.history.add(self.picture.wall_us, point)
            self.changes += self.engine.evaluate(self.picture, self.history, point)

    def until(self, rule: str, *, severity: str | None = None, within_s: int = LIMIT_S) -> FindingNow:
        """The finding of that rule, of that severity, as soon as it is open. Raises AssertionError after `within_s`."""
        for _ in range(within_s):
            self.tick()
            for row in self.open(rule):
                if severity in (None, row.severity):
                    return row
        raise AssertionError(f"{rule} was not raised in {within_s} s: {[row.text for row in self.rows]}")

    def until_gone(self, rule: str, *, within_s: int = LIMIT_S, every_s: int = 1) -> None:
        """Tick until no finding of that rule is open. More than 4 s between two ticks would be a gap."""
        for _ in range(0, within_s, every_s):
            self.tick(every_s=every_s)
            if not self.open(rule):
                return
        raise AssertionError(f"{rule} is still open after {within_s} s: {[row.text for row in self.open(rule)]}")

    def ids(self, severity: str) -> set[str]:
        """Ids of the findings that had this severity at any time."""
        return {change.finding.id for change in self.changes if change.finding.severity == severity}

    @property
    def rows(self) -> list[FindingNow]:
        assert self.engine.conclusions.failed == []
        return self.engine.conclusions.rows

    def open(self, rule: str) -> list[FindingNow]:
        """Findings of that rule, also where another's chain holds them."""
        return [row for row in self.rows if any(part.partition(":")[0] == rule for part in row.chain)]


@contextmanager
def local_agent(
    dsn: str, *only: str, limits: Limits | None = None, calm_s: int = 3, session: Path | None = None,
    config: Config | None = None,
) -> Iterator[LocalAgent]:  # fmt: skip
    """A local agent that has ticked for `calm_s` seconds; `only` names the rules evaluated, none means all."""
    made = LocalAgent(dsn, only=only, limits=limits, config=config)
    made.collector.host.session = None if session is None else str(session)
    try:
        made.tick(calm_s)
        yield made
    finally:
        made.collector.close()
