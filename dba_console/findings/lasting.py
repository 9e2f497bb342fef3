"""What a rule keeps between ticks: what it saw while its part cannot be read, and a grade that does not flicker.

An incident is when readings come late. That the sessions were not read in a tick does not say that nobody waits any
more; so what was seen last is seen on: for a minute while a server answers late, for ten seconds where the connection
is gone, for then the sessions may be gone too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from dba_console.findings.signal import Signal
from dba_console.findings.situation import Situation

Look = Callable[[Situation], Iterable[Signal]]

LATE_US = 60_000_000
"""Longer than the console waits for a silent server and then tries to connect anew."""
LOST_US = 10_000_000


def while_unread(known: str | Callable[[Situation], bool], look: Look) -> Look:
    """`look` where it is known how things are, else what it saw last.

    `known` is the name of a part, whose newest attempt must have given a reading, or says so itself.
    """
    is_known = _reads(known) if isinstance(known, str) else known
    key = f"last:{look.__module__}.{look.__qualname__}"

    def asked(s: Situation) -> Iterable[Signal]:
        memo = s.memo(key)
        if not is_known(s):
            age_us = s.mono_us - memo.get("at_us", -LATE_US)
            return list(memo["seen"]) if age_us < (LATE_US if _is_late(s) else LOST_US) else []
        memo["seen"], memo["at_us"] = list(look(s)), s.mono_us
        return list(memo["seen"])

    return asked


def _reads(part: str) -> Callable[[Situation], bool]:
    def reads(s: Situation) -> bool:
        latest = s.picture.latest.get(part)
        return latest is not None and latest.part.reading is not None

    return reads


def _is_late(s: Situation) -> bool:
    """Whether the connection is there, and it is the answer that is not."""
    latest = s.picture.latest.get("pg.activity")
    return latest is not None and latest.part.status in ("timeout", "ok")


def latched(memo: dict[str, Any], name: str, *, at: bool, until: bool) -> bool:
    """True from when `at` is, for as long as `until` is: one number either side of a limit is not two grades.

    >>> memo = {}
    >>> [latched(memo, "critical", at=n >= 10, until=n >= 5) for n in (9, 10, 7, 4, 7)]
    [False, True, True, False, False]
    """
    now = at or (until and memo.get(name, False))
    memo[name] = now
    return now
