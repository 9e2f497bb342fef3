"""Ticks by hand for the tests of the rule engine: scripted rules, one second after another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dba_console.core.thresholds import Limits
from dba_console.watch.findings.finding_events import FindingChange
from dba_console.watch.findings.rule import Rule, RuleContext, Signal
from dba_console.watch.findings.rule_engine import RuleEngine
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.picture import Picture
from dba_console.watch.samples import host
from tests.build import part, sample

STALL = host.PressureStall(0.0, 0.0, 0.0, 0)
PRESSURE = host.Pressure(STALL, STALL, STALL, STALL, STALL)


class ScriptedRule:
    """A rule that returns `signals`, whatever the picture."""

    def __init__(self, name: str, *, raise_after_s: float = 0.0, clear_after_s: float = 10.0) -> None:
        self.signals: list[Signal] = []
        self.asked = 0
        self.rule = Rule(
            name=name,
            title=name,
            parts=("host.pressure",),
            check=self._check,
            raise_after_s=raise_after_s,
            clear_after_s=clear_after_s,
        )

    def _check(self, context: RuleContext) -> Iterable[Signal]:
        self.asked += 1
        return list(self.signals)


class EngineTicks:
    """A rule engine and its ticks."""

    def __init__(self, *scripted: ScriptedRule, limits: Limits | None = None, rules: Sequence[Rule] = ()) -> None:
        self.engine = RuleEngine(limits or Limits(), [*(one.rule for one in scripted), *rules])
        self._picture = Picture()
        self._history = ChartHistory()
        self.at_s = 0.0

    def tick(self, after_s: float = 1.0, *, read: bool = True) -> list[FindingChange]:
        """What changed in a tick that comes `after_s` seconds after the last; with `read` the rules' part is new."""
        self.at_s += after_s
        parts = [part("host.pressure", PRESSURE, at_s=self.at_s)] if read else []
        self._picture = self._picture.with_sample(sample(*parts, at_s=self.at_s))
        return self.engine.evaluate(self._picture, self._history, {})

    def ticks(self, count: int) -> list[FindingChange]:
        """All changes in `count` seconds."""
        return [change for _ in range(count) for change in self.tick()]

    @property
    def wall_us(self) -> int:
        return self._picture.wall_us

    @property
    def states(self) -> list[str]:
        return [row.state for row in self.engine.conclusions.rows]

    @property
    def ids(self) -> list[str]:
        return [row.id for row in self.engine.conclusions.rows]


def kinds(changes: Iterable[FindingChange]) -> list[tuple[str, str]]:
    """(kind, id) of each change."""
    return [(change.kind, change.finding.id) for change in changes]


def warning(text: str = "something is wrong", **more: object) -> Signal:
    return Signal(severity="warning", text=text, **more)  # type: ignore[arg-type]  # passed through as it is


def critical(text: str = "something is very wrong", **more: object) -> Signal:
    return Signal(severity="critical", text=text, **more)  # type: ignore[arg-type]  # passed through as it is
