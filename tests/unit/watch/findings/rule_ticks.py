"""Ticks made by hand, and what rules conclude of them, through the rule engine as in the agent."""

from __future__ import annotations

from collections.abc import Iterable

from dba_console.watch.findings.finding_events import FindingChange
from dba_console.watch.findings.rule import Rule, RuleContext, Signal
from dba_console.watch.findings.rule_engine import RULES, RuleEngine
from dba_console.watch.findings.thresholds import Limits
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.chart_points import point_of
from dba_console.watch.frames.picture import Picture
from dba_console.watch.samples import host
from dba_console.watch.samples.findings import FindingNow
from dba_console.watch.samples.sample import Part
from tests.build import part, sample

STALL = host.PressureStall(0.0, 0.0, 0.0, 0)
PRESSURE = host.Pressure(STALL, STALL, STALL, STALL, STALL)
_NAMED = {rule.name: rule for rule in RULES}


class RuleTicks:
    """A rule engine with these rules, given themselves or by name, and its ticks."""

    def __init__(self, *rules: Rule | str, limits: Limits | None = None) -> None:
        found = [_NAMED[rule] if isinstance(rule, str) else rule for rule in rules]
        self.engine = RuleEngine(limits or Limits(), found)
        self.changes: list[FindingChange] = []
        self.at_s = 0.0
        self.boot = "b1"
        self._picture = Picture()
        self._history = ChartHistory()

    def evaluate(self, *parts: Part) -> list[FindingChange]:
        """What changes with a sample of these parts, at `at_s`."""
        self._picture = self._picture.with_sample(sample(*parts, at_s=self.at_s, boot=self.boot))
        point = point_of(self._picture)
        self._history.add(self._picture.wall_us, point)
        changes = self.engine.evaluate(self._picture, self._history, point)
        self.changes += changes
        return changes

    @property
    def wall_us(self) -> int:
        return self._picture.wall_us

    @property
    def open(self) -> list[FindingNow]:
        assert self.engine.conclusions.failed == [], "a rule raised an error"
        return self.engine.conclusions.rows

    @property
    def ids(self) -> list[str]:
        return [row.id for row in self.open]

    @property
    def states(self) -> list[str]:
        return [row.state for row in self.open]

    @property
    def severities(self) -> dict[str, str]:
        return {row.id: row.severity for row in self.open}

    @property
    def raised(self) -> list[str]:
        """Ids of everything that was ever raised, in order."""
        return [change.finding.id for change in self.changes if change.kind == "raised"]

    def one(self, finding_id: str) -> FindingNow:
        """The open finding of that id."""
        found = {row.id: row for row in self.open}
        assert finding_id in found, f"{finding_id} is not among {sorted(found)}"
        return found[finding_id]

    def only_one(self, finding_id: str) -> FindingNow:
        """The one finding that is open, which has to be this one."""
        assert self.ids == [finding_id]
        return self.open[0]


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


class EngineTicks(RuleTicks):
    """Ticks with scripted rules, one second after another."""

    def __init__(self, *scripted: ScriptedRule, rules: Iterable[Rule] = (), limits: Limits | None = None) -> None:
        super().__init__(*(one.rule for one in scripted), *rules, limits=limits)
        self.scripted = scripted

    def signal(self, *signals: Signal) -> None:
        """Let the first of the rules return these from now on."""
        self.scripted[0].signals = [*signals]

    def tick(self, after_s: float = 1.0, *, read: bool = True) -> list[FindingChange]:
        """What changed in a tick that comes `after_s` seconds after the last; with `read` the rules' part is new."""
        self.at_s += after_s
        return self.evaluate(*([part("host.pressure", PRESSURE, at_s=self.at_s)] if read else []))

    def ticks(self, count: int) -> list[FindingChange]:
        """All changes in `count` seconds."""
        return [change for _ in range(count) for change in self.tick()]


def ticks_of(
    name: str, *signals: Signal, limits: Limits | None = None, raise_after_s: float = 0.0, clear_after_s: float = 10.0
) -> EngineTicks:
    """Ticks with one scripted rule, which returns these signals."""
    made = EngineTicks(ScriptedRule(name, raise_after_s=raise_after_s, clear_after_s=clear_after_s), limits=limits)
    made.signal(*signals)
    return made


def kinds(changes: Iterable[FindingChange]) -> list[tuple[str, str]]:
    """(kind, id) of each change."""
    return [(change.kind, change.finding.id) for change in changes]


def warning(text: str = "something is wrong", **more: object) -> Signal:
    return Signal(severity="warning", text=text, **more)  # type: ignore[arg-type]  # passed through as it is


def critical(text: str = "something is very wrong", **more: object) -> Signal:
    return Signal(severity="critical", text=text, **more)  # type: ignore[arg-type]  # passed through as it is
