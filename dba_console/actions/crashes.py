"""Whether a server was shut down in order since some moment, or crashed: asked of the server itself, afterwards.

A server that comes up after a crash throws its cumulative statistics away and counts anew, everything from the same
microsecond (pgstat_reset_after_failure in pgstat.c from 15 on; the statistics collector's lost file before). Statistics
that somebody resets have times of their own, one by one.
"""

from __future__ import annotations

from typing import NamedTuple

from dba_console.actions.identity import Identity
from dba_console.actions.link import ServerLink

_COUNTED = """
SELECT (extract(epoch FROM b.stats_reset) * 1000000)::int8 AS one_us,
       (extract(epoch FROM a.stats_reset) * 1000000)::int8 AS other_us,
       (extract(epoch FROM pg_catalog.clock_timestamp()) * 1000000)::int8 AS now_us
  FROM pg_catalog.pg_stat_bgwriter b, pg_catalog.pg_stat_archiver a
"""


class Counted(NamedTuple):
    """Since when the server counts, by its own clock, and that clock now; None: not since one moment."""

    since_us: int | None
    now_us: int


def counted(link: ServerLink) -> Counted:
    """Asked now."""
    [row] = link.rows(_COUNTED)
    since_us = row["one_us"] if row["one_us"] == row["other_us"] else None
    return Counted(since_us, row["now_us"])


def trust(was_us: int | None, at_us: int, began: Identity, now: Identity, counts: Counted) -> str:
    """sound, untrusted or unknown: whether what was written without care for durability since then can be relied on.

    `was_us` and `at_us`: since when it counted, and its clock, at the beginning; `began` and `now`: who it was, and is.

    >>> a, b = Identity(server_start_us=1), Identity(server_start_us=50)
    >>> [trust(5, 10, a, who, Counted(since, 90)) for who, since in ((a, 5), (b, 5), (b, 51), (b, None))]
    ['sound', 'sound', 'untrusted', 'unknown']
    """
    if counts.since_us is not None and counts.since_us == was_us:
        return "sound"
    if counts.since_us is not None and counts.since_us > at_us and began.server_start_us != now.server_start_us:
        return "untrusted"
    return "sound" if began.server_start_us == now.server_start_us else "unknown"
