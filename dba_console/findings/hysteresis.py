"""What a rule keeps between ticks: what it saw while its part cannot be read, and a grade that does not flicker.

An incident is when readings come late. That the sessions were not read in a tick does not say that nobody waits any
more; so what was seen last is seen on: for a minute while a server answers late, for ten seconds where the connection
is gone, for then the sessions may be gone too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from dba_console.findings.rule_context import RuleContext
from dba_console.findings.signal import Signal

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
