"""A rule: what it is called, when it is asked, how long it must hold."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import Any, NamedTuple

from dba_console.core.thresholds import Limits
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.connections import derive_connections
from dba_console.watch.frames.disks import derive_disks
from dba_console.watch.frames.io import derive_io
from dba_console.watch.frames.memory import derive_memory
from dba_console.watch.frames.model import (
    Connections,
    Disks,
    Io,
    Locks,
    Memory,
    Progress,
    Replication,
    Safety,
    SelfFrame,
    TargetFrame,
)
from dba_console.watch.frames.picture import Picture, PictureFacts
from dba_console.watch.frames.progress import derive_progress
from dba_console.watch.frames.replication import derive_replication
from dba_console.watch.frames.safety import derive_safety
from dba_console.watch.frames.sessions import derive_locks
from dba_console.watch.frames.target import derive_own, derive_target
from dba_console.watch.probes.postgres.connect_errors import HINTS, KINDS
from dba_console.watch.samples.console import AgentHealth
from dba_console.watch.samples.findings import Severity

# What a rule sees in one tick, in the operator's words.

Value = float | int | str | bool | None | list[str]

SEVERITY_RANKS: dict[Severity, int] = {"info": 0, "warning": 1, "critical": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """Something that is wrong now, as one rule sees it.

    `text` is the whole sentence with its numbers. In a chain the words of the head are `effect`, those of what is
    behind it `cause`; both are the text where they are not given. `since_us` is the host's wall time at which it
    began, where a reading tells (the start of a transaction), else None: then it is since it was first seen.
    """

    severity: Severity
    text: str
    subject: str = ""
    """Which one, where there may be several: a slot, a mount, a process id."""
    effect: str | None = None
    cause: str | None = None
    evidence: Mapping[str, Value] = field(default_factory=dict)
    """The numbers that prove it, under the names of `show --json`, with their unit in the name."""
    series: tuple[str, ...] = ()
    """Chart values (frames/chart_points.py) that show it."""
    since_us: int | None = None
    lasted_s: float = 0.0
    """For how long it is known to have been so, where the server itself says: it need not be watched for that time."""
    runbook: str | None = None
    advice: str | None = None
    """One sentence: what to do first, or where to look."""

    @property
    def as_effect(self) -> str:
        return self.effect or self.text

    @property
    def as_cause(self) -> str:
        return self.cause or self.text


# One tick as the rules see it: what was read, the ten minutes before, and the panels, each derived when first asked.
#
# Deriving a panel of hundreds of sessions costs more than all rules together may: a rule looks at `point` first, and
# asks for a panel when the numbers there give it reason to.


class RuleContext:
    """What is known after one tick."""

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
        """Chart values read in this tick, by name; what is missing is unknown or was not read anew."""
        self.read = read
        """Names of the parts read anew in this tick."""
        self.limits = limits
        self._memos = {} if memos is None else memos
        self._open = open_ids

    @property
    def now_us(self) -> int:
        """Host wall time of the tick, microseconds."""
        return self.picture.wall_us

    @property
    def mono_us(self) -> int:
        """Monotonic time of the tick, microseconds: for durations, since no one sets this clock."""
        return self.picture.mono_us

    def memo(self, name: str) -> dict[str, Any]:
        """What a rule keeps between ticks, under a name of its own; begins empty with the agent."""
        return self._memos.setdefault(name, {})

    def is_open(self, rule: str, subject: str = "") -> bool:
        """Whether this is raised already: then the figure for clearing applies, not the one for raising."""
        return (rule, subject) in self._open

    def over(self, value: float | None, raise_at: float, clear_at: float, rule: str, subject: str = "") -> bool:
        """Whether the value is too high, with hysteresis; an unknown value is not."""
        if value is None:
            return False
        return value >= (clear_at if self.is_open(rule, subject) else raise_at)

    def host_us(self, server_us: int | None) -> int | None:
        """A time by the server's clock as one by the host's; None where either is unknown."""
        now = self.facts.server_now_us
        return None if server_us is None or now is None else self.now_us - (now - server_us)

    @cached_property
    def facts(self) -> PictureFacts:
        """Settings, sessions by pid, who waits behind whom."""
        return PictureFacts(self.picture, self.history)

    @cached_property
    def connections(self) -> Connections:
        return derive_connections(self.facts)

    @cached_property
    def io(self) -> Io:
        return derive_io(self.facts)

    @cached_property
    def memory(self) -> Memory:
        return derive_memory(self.facts)

    @cached_property
    def safety(self) -> Safety:
        return derive_safety(self.facts)

    @cached_property
    def progress(self) -> Progress:
        return derive_progress(self.facts)

    @cached_property
    def locks(self) -> Locks:
        return derive_locks(self.facts)

    @cached_property
    def replication(self) -> Replication:
        return derive_replication(self.facts)

    @cached_property
    def disks(self) -> Disks:
        return derive_disks(self.facts)

    @cached_property
    def console(self) -> SelfFrame:
        return derive_own(self.facts)

    @cached_property
    def target(self) -> TargetFrame:
        return derive_target(self.facts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One way in which something can be wrong.

    `check` is asked in ticks in which one of `parts` was read anew, and in no other: what it saw last holds meanwhile.
    It yields nothing where all is well, and where it is not known.
    """

    name: str
    title: str
    """What it tells, in one line of the documentation."""
    parts: tuple[str, ...]
    check: Callable[[RuleContext], Iterable[Signal]]
    raise_after_s: float = 0.0
    """It must have been seen for so long, without a gap, before it is raised; `Signal.lasted_s` counts."""
    clear_after_s: float = 10.0
    """It must not have been seen for so long before it is cleared."""
    warm_up_s: float = 0.0
    """What it compares with, or must see last, takes so long to watch: before, that it says nothing says nothing."""
    settings: tuple[str, ...] = ()
    """Its figures, as `family.name` of `dba_console.core.thresholds`."""
    source: str = ""
    """Where its figures come from, in one line of the documentation."""
    runbook: str | None = None
    """The runbook its signals name, for the documentation."""


# What a rule keeps between ticks: what it saw while its part cannot be read, and a grade that does not flicker.
#
# An incident is when readings come late. That the sessions were not read in a tick does not say that nobody waits any
# more; so what was seen last is seen on: for a minute while a server answers late, for ten seconds where the
# connection is gone, for then the sessions may be gone too.

RuleCheck = Callable[[RuleContext], Iterable[Signal]]

LATE_US = 60_000_000
"""Longer than the console waits for a silent server and then tries to connect anew."""
LOST_US = 10_000_000


def keep_signals_briefly(known: str | Callable[[RuleContext], bool], look: RuleCheck) -> RuleCheck:
    """`look` where it is known how things are, else what it saw last.

    `known` is the name of a part, whose newest attempt must have given a reading, or says so itself.
    """
    is_known = _is_part_read(known) if isinstance(known, str) else known
    key = f"last:{look.__module__}.{look.__qualname__}"

    def check(s: RuleContext) -> Iterable[Signal]:
        memo = s.memo(key)
        if not is_known(s):
            age_us = s.mono_us - memo.get("at_us", -LATE_US)
            return list(memo["seen"]) if age_us < (LATE_US if _is_late(s) else LOST_US) else []
        memo["seen"], memo["at_us"] = list(look(s)), s.mono_us
        return list(memo["seen"])

    return check


def _is_part_read(part: str) -> Callable[[RuleContext], bool]:
    def is_read(s: RuleContext) -> bool:
        latest = s.picture.latest.get(part)
        return latest is not None and latest.part.reading is not None

    return is_read


def _is_late(s: RuleContext) -> bool:
    """Whether the connection is there, and it is the answer that is not."""
    latest = s.picture.latest.get("pg.activity")
    return latest is not None and latest.part.status in ("timeout", "ok")


def latch(memo: dict[str, Any], name: str, *, at: bool, until: bool) -> bool:
    """True from when `at` is, for as long as `until` is: one number either side of a limit is not two grades.

    >>> memo = {}
    >>> [latch(memo, "critical", at=n >= 10, until=n >= 5) for n in (9, 10, 7, 4, 7)]
    [False, True, True, False, False]
    """
    now = at or (until and memo.get(name, False))
    memo[name] = now
    return now


# Time in which nobody looked: a connection that is lost, ticks that were missed.
#
# What was seen last is neither over nor worse because it could not be read since; and seconds nobody watched do not
# count as seconds in which something was away.

KEPT_US = 600_000_000
"""What was seen last stands for so long while its part cannot be read: the longest restart one waits for in front of
the screen. After that it is not known any more, and nothing is said."""
MAX_STEP_US = 8_000_000
"""Readings further apart than four turns of the part (two seconds each) have unwatched time between them."""


def keep_signals_while_stale(part: str, look: RuleCheck) -> RuleCheck:
    """`look` where the newest attempt at the part gave a reading, else what it saw last."""

    @wraps(look)
    def check(s: RuleContext) -> Iterable[Signal]:
        memo = s.memo(f"unread:{look.__module__}.{look.__qualname__}")
        latest = s.picture.latest.get(part)
        if latest is not None and latest.part.reading is None:
            seen: list[Signal] = memo.get("seen", [])
            return seen if s.mono_us - memo.get("at_us", 0) < KEPT_US else []
        memo["seen"], memo["at_us"] = list(look(s)), s.mono_us
        return list(memo["seen"])

    return check


def unobserved_us(memo: dict[str, Any], mono_us: int) -> int:
    """Microseconds since the last call that nobody watched; 0 where it was asked regularly, and the first time."""
    last_us: int = memo.get("read_us", mono_us)
    memo["read_us"] = mono_us
    return mono_us - last_us if mono_us - last_us > MAX_STEP_US else 0


# Why the server is not heard, as the agent tells it: never by the words of the server, which speaks any language.
#
# The kinds are those of the probe's failures; `silent` is a server that keeps the connection and does not answer.
# Where a recording does not have the kind yet, it is known by the hint the agent's sentence ends with.

_NOT_YET = "not connected yet"
"""The first tick of an agent: nothing has been tried."""


class Outage(NamedTuple):
    """`kind` as in probes/postgres/connect_errors.py, lost or silent; `text` without the hint, which is in `help`."""

    kind: str
    text: str
    help: str | None
    refused_by: str | None = None
    """With no_slots, whose slots are gone: server, role, database or pooler; None where it was not recorded."""

    @property
    def reason(self) -> str:
        """The text without where it was tried: libpq says `connection to server ... failed: REASON`.

        >>> Outage("refused", 'connection to server at "db2", port 5432 failed: Connection refused', None).reason
        'Connection refused'
        """
        return self.text.rpartition(" failed: ")[2]

    @property
    def refuses_console(self) -> bool:
        """The server is there and refuses the console: nobody else need be touched."""
        return self.kind in ("auth", "ssl", "unknown_host", "no_slots")


def find_outage(picture: Picture) -> Outage | None:
    """Why nothing is heard in this tick; None where the server answers, or nothing was tried yet."""
    sessions, server = picture.latest.get("pg.activity"), picture.latest.get("pg.server")
    if sessions is None or sessions.part.status not in ("timeout", "error"):
        return None
    if sessions.part.status == "timeout":
        return Outage("silent", sessions.part.note or "it does not answer", None)
    if server is None or server.part.status not in ("error", "timeout"):
        return None
    note = server.part.note or ""
    if note == _NOT_YET or server.part.at_us < sessions.part.at_us - 1_000_000:
        return None  # an answer that could not be read is no outage
    hint = next((hint for hint in KINDS if note.endswith(hint)), None)
    text = note.removeprefix("lost: ") if hint is None else note.removesuffix(hint).removesuffix(": ")
    own = picture.now("self", AgentHealth)
    if own is not None and own.outage in HINTS:
        return Outage(own.outage, text, hint, own.refused_by)
    return Outage("lost" if note.startswith("lost: ") else KINDS.get(hint or "", "other"), text, hint)
