"""Rules and signals: what a rule is, what it can read in one tick, and how its signals persist between ticks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import Any, NamedTuple, TypeVar

from dba_console.watch import subjects
from dba_console.watch.findings.thresholds import Limits, RuleThresholds
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.picture import Picture, PictureFacts
from dba_console.watch.panel import PanelFrame
from dba_console.watch.probes.postgres.connect_errors import HINTS, KINDS
from dba_console.watch.samples.console import AgentHealth
from dba_console.watch.samples.findings import Severity

P = TypeVar("P", bound=PanelFrame)
T = TypeVar("T")

# A signal: what one rule reports in one tick.

Value = float | int | str | bool | None | list[str]

SEVERITY_RANKS: dict[Severity, int] = {"info": 0, "warning": 1, "critical": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """A problem present now, as one rule reports it.

    `text` is the whole sentence with its numbers. In a chain the first signal contributes `effect`, those after it
    `cause`; both default to the text. `since_us` is the host's wall time at which it began, if a reading shows it (the
    start of a transaction), else None: then it is the time it was first seen.
    """

    severity: Severity
    text: str
    subject: str = ""
    """Which one, if there may be several: a slot, a mount, a process id."""
    effect: str | None = None
    cause: str | None = None
    evidence: Mapping[str, Value] = field(default_factory=dict)
    """The numbers that prove it, under the names of `show --json`, with their unit in the name."""
    series: tuple[str, ...] = ()
    """Chart values (frames/chart_points.py) that show it."""
    since_us: int | None = None
    lasted_s: float = 0.0
    """How long it has lasted according to the server itself; counts as observed time."""
    runbook: str | None = None
    advice: str | None = None
    """One sentence: what to do first, or what to check."""

    @property
    def as_effect(self) -> str:
        return self.effect or self.text

    @property
    def as_cause(self) -> str:
        return self.cause or self.text


# One tick as the rules see it: what was read, the ten minutes before, and the panels, each derived when first used.
#
# Deriving a panel of hundreds of sessions costs more than all rules together may: a rule checks `point` first, and uses
# a panel only if those numbers require it.


class RuleContext:
    """Everything a rule can read in one tick."""

    def __init__(
        self,
        picture: Picture,
        history: ChartHistory,
        point: Mapping[str, float],
        read: Collection[str],
        limits: Limits,
        memos: dict[str, dict[str, Any]] | None = None,
        open_ids: Collection[tuple[str, str]] = (),
    ) -> None:
        self.picture = picture
        self.history = history
        """The last ten minutes of chart values, this tick included."""
        self.point = point
        """Chart values read in this tick, by name; missing ones are unknown or were not read again."""
        self.read = read
        """Names of the parts read in this tick."""
        self.limits = limits
        self._memos = {} if memos is None else memos
        self._open = open_ids
        self._panels: dict[type[PanelFrame], PanelFrame] = {}

    @property
    def now_us(self) -> int:
        """Host wall time of the tick, microseconds."""
        return self.picture.wall_us

    @property
    def mono_us(self) -> int:
        """Monotonic time of the tick, microseconds: for durations, since it is never set."""
        return self.picture.mono_us

    def memo(self, name: str) -> dict[str, Any]:
        """Return what a rule keeps between ticks, under its own name; empty when the agent starts."""
        return self._memos.setdefault(name, {})

    def shared(self, kind: type[T]) -> T:
        """Return the one object of this kind that rules keep between ticks; made on first use."""
        memo = self.memo(kind.__qualname__)
        if "state" not in memo:
            memo["state"] = kind()
        state: T = memo["state"]
        return state

    def is_open(self, rule: str, subject: str = "") -> bool:
        """Whether this is already raised: then the threshold for clearing applies, not the one for raising."""
        return (rule, subject) in self._open

    def over(self, value: float | None, raise_at: float, clear_at: float, rule: str, subject: str = "") -> bool:
        """Whether the value is too high, with hysteresis; an unknown value is not."""
        if value is None:
            return False
        return value >= (clear_at if self.is_open(rule, subject) else raise_at)

    def host_us(self, server_us: int | None) -> int | None:
        """Convert a time of the server's clock to the host's; None if either is unknown."""
        now = self.facts.server_now_us
        return None if server_us is None or now is None else self.now_us - (now - server_us)

    @cached_property
    def facts(self) -> PictureFacts:
        """Settings, sessions by pid, lock waits."""
        return PictureFacts(self.picture, self.history)

    def panel(self, kind: type[P]) -> P:
        """Return the panel with these fields."""
        found = self._panels.get(kind)
        if found is None:
            declared = next(panel for panel in subjects.panels().values() if panel.fields is kind)
            found = self._panels[kind] = declared.derive(self.facts)
        assert isinstance(found, kind)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A check for one kind of problem.

    `check` runs in ticks in which one of `parts` was read, and in no others: its last signals hold meanwhile. It
    yields nothing if there is no problem, or if that is not known.
    """

    name: str
    title: str
    """What it reports, in one line of the documentation."""
    parts: tuple[str, ...]
    check: Callable[[RuleContext], Iterable[Signal]]
    raise_after_s: float = 0.0
    """How long it must be present, without a gap, before it is raised; `Signal.lasted_s` counts."""
    clear_after_s: float = 10.0
    """How long it must be absent before it is cleared."""
    warm_up_s: float = 0.0
    """Observation needed before the absence of a signal means anything."""
    settings: tuple[Any, ...] = ()
    """Its thresholds: fields of the structs beside the rules, as `SlotLimits.slot_grace_s`."""
    source: str = ""
    """Where its thresholds come from, in one line of the documentation."""
    runbook: str | None = None
    """The runbook its signals name, for the documentation."""


@dataclass(frozen=True, slots=True)
class CausalLink:
    """`effect` happens because of `cause`, if both are present and `applies` agrees; `conjunction` joins the two
    sentences.

    Signals once joined stay joined while both last. The finding is named after the cause, unless `keeps_name`: then
    the runbook treats the effect.
    """

    effect: str
    cause: str
    conjunction: str = " because "
    applies: Callable[[Signal, Signal], bool] = lambda effect, cause: True
    keeps_name: bool = False


def effect_is(name: str, *values: Value) -> Callable[[Signal, Signal], bool]:
    """Return a check that the effect has one of these values in its evidence."""
    return lambda effect, cause: effect.evidence.get(name) in values


def same_evidence(effect_name: str, cause_name: str) -> Callable[[Signal, Signal], bool]:
    """Return a check that both signals have the same value in their evidence: a pid, a mount."""

    def applies(effect: Signal, cause: Signal) -> bool:
        value = effect.evidence.get(effect_name)
        return value is not None and value == cause.evidence.get(cause_name)

    return applies


class Family(NamedTuple):
    """The rules of a subject, their title in the documentation, and their thresholds, `[findings.NAME]`."""

    title: str
    name: str
    rules: Sequence[Rule]
    thresholds: Sequence[type[RuleThresholds]]
    """In the order of the documentation."""
    links: tuple[CausalLink, ...] = ()
    """Which of them explains which, most likely cause first."""


# What a rule keeps between ticks: its signals while its part cannot be read, and hysteresis of a severity.
#
# Readings are late in an incident, and a missing reading does not mean that the problem is over. So the last signals
# are kept: for a minute while the server answers late, for ten seconds without a connection, since the sessions may
# then be gone too.

RuleCheck = Callable[[RuleContext], Iterable[Signal]]

LATE_US = 60_000_000
"""Longer than the console waits for a silent server before it reconnects."""
LOST_US = 10_000_000


def keep_signals_briefly(known: str | Callable[[RuleContext], bool], rule_check: RuleCheck) -> RuleCheck:
    """Run the check while the state is known, else keep its last signals briefly.

    `known` is the name of a part, whose newest attempt must have given a reading, or a function that decides.
    """
    is_known = (lambda s: _has_reading(s, known, unread=False)) if isinstance(known, str) else known
    return _keep_signals(rule_check, is_known, lambda s: LATE_US if _is_late(s) else LOST_US)


def _keep_signals(
    rule_check: RuleCheck, is_known: Callable[[RuleContext], bool], kept_us: Callable[[RuleContext], int]
) -> RuleCheck:
    """Run the check while the state is known; else its last signals hold for `kept_us`."""
    key = f"last:{rule_check.__module__}.{rule_check.__qualname__}"

    @wraps(rule_check)
    def check(s: RuleContext) -> Iterable[Signal]:
        memo = s.memo(key)
        if is_known(s):
            memo["seen"], memo["at_us"] = list(rule_check(s)), s.mono_us
        elif "seen" not in memo or s.mono_us - memo["at_us"] >= kept_us(s):
            return []
        return list(memo["seen"])

    return check


def _has_reading(s: RuleContext, part: str, *, unread: bool) -> bool:
    """Whether the newest attempt at the part gave a reading; `unread` if there was no attempt yet."""
    latest = s.picture.latest.get(part)
    return unread if latest is None else latest.part.reading is not None


def _is_late(s: RuleContext) -> bool:
    """Whether the connection exists and only the answer is missing."""
    latest = s.picture.latest.get("pg.activity")
    return latest is not None and latest.part.status in ("timeout", "ok")


def latch(memo: dict[str, Any], name: str, *, at: bool, until: bool) -> bool:
    """Return True from when `at` is, as long as `until` is, so that values near a limit do not flicker.

    >>> memo = {}
    >>> [latch(memo, "critical", at=n >= 10, until=n >= 5) for n in (9, 10, 7, 4, 7)]
    [False, True, True, False, False]
    """
    now = at or (until and memo.get(name, False))
    memo[name] = now
    return now


# Unobserved time: a lost connection, missed ticks.
#
# A problem seen last is neither over nor worse because it could not be read since; and unobserved seconds do not count
# as seconds in which something was missing.

KEPT_US = 600_000_000
"""How long the last signals are kept while their part cannot be read: the longest restart an operator waits for at the
screen. After that the state is unknown."""
MAX_STEP_US = 8_000_000
"""Readings further apart than four intervals of the part (two seconds each) have unobserved time between them."""


def keep_signals_while_stale(part: str, rule_check: RuleCheck) -> RuleCheck:
    """Run the check if the newest attempt at the part gave a reading, else keep its last signals."""
    return _keep_signals(rule_check, lambda s: _has_reading(s, part, unread=True), lambda s: KEPT_US)


def unobserved_us(memo: dict[str, Any], mono_us: int) -> int:
    """Return the unobserved microseconds since the last call; 0 with regular calls, and the first time."""
    last_us: int = memo.get("read_us", mono_us)
    memo["read_us"] = mono_us
    return mono_us - last_us if mono_us - last_us > MAX_STEP_US else 0


# Why the server is not reachable, as the agent reports it: never by the server's text, which may be in any language.
#
# The kinds are those of the probe's failures; `silent` is a server that keeps the connection and does not answer. If a
# recording does not have the kind yet, it is derived from the hint at the end of the agent's sentence.

_NOT_YET = "not connected yet"
"""The first tick of an agent: no attempt yet."""


class Outage(NamedTuple):
    """`kind` as in probes/postgres/connect_errors.py, lost or silent; `text` without the hint, which is in `help`."""

    kind: str
    text: str
    help: str | None
    refused_by: str | None = None
    """With no_slots, whose slots are used up: server, role, database or pooler; None if not recorded."""

    @property
    def reason(self) -> str:
        """The text without the address: libpq writes `connection to server ... failed: REASON`.

        >>> Outage("refused", 'connection to server at "db2", port 5432 failed: Connection refused', None).reason
        'Connection refused'
        """
        return self.text.rpartition(" failed: ")[2]

    @property
    def refuses_console(self) -> bool:
        """The server is up and refuses the console; other clients need not be affected."""
        return self.kind in ("auth", "ssl", "unknown_host", "no_slots")


def find_outage(picture: Picture) -> Outage | None:
    """Return why the server does not answer in this tick; None if it answers, or nothing was tried yet."""
    sessions, server = picture.latest.get("pg.activity"), picture.latest.get("pg.server")
    if sessions is None or sessions.part.status not in ("timeout", "error"):
        return None
    if sessions.part.status == "timeout":
        return Outage("silent", sessions.part.note or "it does not answer", None)
    if server is None or server.part.status not in ("error", "timeout"):
        return None
    note = server.part.note or ""
    if note == _NOT_YET or server.part.at_us < sessions.part.at_us - 1_000_000:
        return None  # an answer that could not be read is not an outage
    hint = next((hint for hint in KINDS if note.endswith(hint)), None)
    text = note.removeprefix("lost: ") if hint is None else note.removesuffix(hint).removesuffix(": ")
    own = picture.now("self", AgentHealth)
    if own is not None and own.outage in HINTS:
        return Outage(own.outage, text, hint, own.refused_by)
    return Outage("lost" if note.startswith("lost: ") else KINDS.get(hint or "", "other"), text, hint)
