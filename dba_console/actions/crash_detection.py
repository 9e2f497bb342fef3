"""Whether a server was shut down in order since some moment, or crashed: asked of the server itself, afterwards.

A server that comes up after a crash throws its cumulative statistics away and counts anew, everything from the same
microsecond (pgstat_reset_after_failure in pgstat.c from 15 on; the statistics collector's lost file before). Statistics
that somebody resets have times of their own, one by one.
"""

from __future__ import annotations

from typing import NamedTuple

from dba_console.actions.connection_api import ServerConnection
from dba_console.actions.identity import ServerIdentity

_STATISTICS_RESET = """
SELECT (extract(epoch FROM b.stats_reset) * 1000000)::int8 AS one_us,
       (extract(epoch FROM a.stats_reset) * 1000000)::int8 AS other_us,
       (extract(epoch FROM pg_catalog.clock_timestamp()) * 1000000)::int8 AS now_us
  FROM pg_catalog.pg_stat_bgwriter b, pg_catalog.pg_stat_archiver a
"""


class StatisticsReset(NamedTuple):
    """Since when the server counts, by its own clock, and that clock now; None: not since one moment."""

    since_us: int | None
    now_us: int


def read_statistics_reset(connection: ServerConnection) -> StatisticsReset:
    """Asked now."""
    [row] = connection.rows(_STATISTICS_RESET)
    since_us = row["one_us"] if row["one_us"] == row["other_us"] else None
    return StatisticsReset(since_us, row["now_us"])


def data_trust(
    was_us: int | None, at_us: int, began: ServerIdentity, now: ServerIdentity, reset: StatisticsReset
) -> str:
    """sound, untrusted or unknown: whether what was written without care for durability since then can be relied on.

    `was_us` and `at_us`: since when it counted, and its clock, at the beginning; `began` and `now`: who it was, and is.

    >>> a, b = ServerIdentity(server_start_us=1), ServerIdentity(server_start_us=50)
    >>> [data_trust(5, 10, a, who, StatisticsReset(since, 90)) for who, since in ((a, 5), (b, 5), (b, 51), (b, None))]
    ['sound', 'sound', 'untrusted', 'unknown']
    """
    if reset.since_us is not None and reset.since_us == was_us:
        return "sound"
    if reset.since_us is not None and reset.since_us > at_us and began.server_start_us != now.server_start_us:
        return "untrusted"
    return "sound" if began.server_start_us == now.server_start_us else "unknown"
