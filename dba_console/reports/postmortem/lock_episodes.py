"""Who blocked whom in an incident, computed from the recorded readings of locks: also of recordings without the part
`locks.episodes`, and for any span."""

from __future__ import annotations

from dba_console.recording.layout import SessionMeta
from dba_console.recording.points import Point
from dba_console.reports.postmortem.facts import BlockingFacts, ReportedBlocker, ReportedWaiter
from dba_console.reports.postmortem.timeline import text_of
from dba_console.watch.drawing.time_formats import parse_rfc3339
from dba_console.watch.frames.picture import PartReading, Picture
from dba_console.watch.locks.episodes import LockEpisodeTracker
from dba_console.watch.locks.panel import BlockedRow, EpisodeRow, episode_row
from dba_console.watch.samples import postgres


class LockEpisodeReader:
    """Follows the pictures of a recording, as the numbers of the impact do."""

    def __init__(self, meta: SessionMeta | None) -> None:
        """`meta` None: damaged."""
        self._tracker = LockEpisodeTracker(0 if meta is None else meta.interval_us, span_us=None)
        self._last: PartReading | None = None
        self._boot = ""
        self._offset_us = 0
        """Of the wall clock to the monotonic clock at the first picture of an agent run: a clock that is set during the
        run changes no duration."""

    def add(self, picture: Picture, point: Point, held_s: float) -> None:
        """Add the picture's reading of locks, if it is a new one."""
        reading, activity = picture.current.get("pg.locks"), picture.current.get("pg.activity")
        locks = None if reading is self._last else picture.now("pg.locks", postgres.Locks)
        if reading is None or locks is None:
            return
        self._last = reading
        if picture.boot != self._boot:
            self._boot, self._offset_us = picture.boot, picture.wall_us - picture.mono_us
        sessions = picture.now("pg.activity", postgres.Sessions) if locks.waiters else None
        server_us = None
        if sessions is not None and activity is not None:
            server_us = sessions.now_us + reading.part.at_us - activity.part.at_us
        self._tracker.add(locks, sessions, reading.part.at_us + self._offset_us, server_us, self._boot)

    def facts(self, session: int, shift_us: int) -> BlockingFacts | None:
        """Return who blocked whom, times on the axis of the report; None if nobody waited."""
        found = self._tracker.reading()
        if not found.rows:
            return None
        return BlockingFacts(
            session=session,
            blockers=tuple(_blocker(episode_row(row, -1, shift_us)) for row in found.rows),
            omitted=found.omitted,
            omitted_s=found.omitted_us / 1e6,
            unread_s=sum(end - begin for begin, end in found.gaps) / 1e6,
        )


def _blocker(row: EpisodeRow) -> ReportedBlocker:
    return ReportedBlocker(
        who=_who(row),
        state=text_of(row.state or "state not known"),
        statement=text_of(row.query or ""),
        waited_s=row.waited_s,
        from_us=parse_rfc3339(row.since) or 0,
        to_us=parse_rfc3339(row.until) or 0,
        waiters=tuple(
            ReportedWaiter(
                who=_who(one),
                lock=text_of(f"{one.mode} on {one.relation}"),
                waited_s=one.waited_s,
                from_us=parse_rfc3339(one.since) or 0,
                to_us=parse_rfc3339(one.until) or 0,
            )
            for one in row.waiters
        ),
        omitted=row.other_waiters,
        omitted_s=row.other_waited_s,
    )


def _who(row: EpisodeRow | BlockedRow) -> str:
    """Return `pid 812, orders-api, user app`."""
    if not row.pid:
        return "a prepared transaction"
    user = f"user {row.user}" if row.user else ""
    return text_of(", ".join(filter(None, (f"pid {row.pid}", row.application, user))))
