"""Recorded sessions of several hosts, shown one at a time at the same moment: the clock of the first is the time axis.

`RecordedHosts` reads them, in the thread of the recording reader; `hosts_line` is the line below the header.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dba_console.core.errors import ConsoleError
from dba_console.core.redact import redact
from dba_console.tui.feed import OtherHost, SameMoment, Session
from dba_console.watch.drawing.findings import sort_by_urgency
from dba_console.watch.drawing.text_elements import Line, Span, Style, clean, cut, fit_line, line_width
from dba_console.watch.drawing.time_formats import date_and_time, time_of_day
from dba_console.watch.frames.derive import finding_of
from dba_console.watch.frames.model import Finding
from dba_console.watch.samples.findings import FindingsNow

if TYPE_CHECKING:
    from dba_console.recording.recording import Recording
    from dba_console.reports.clock_offsets import ClockOffset

REMEASURE_US = 3_600_000_000
"""An offset is measured again this far from the last measurement: an unsynchronized clock drifts up to 0.2 s an hour.
"""
_GAP_TICKS = 2.5
"""Ticks without a sample after which a host's findings are not known."""
_STYLES: dict[str, Style] = {"critical": "crit", "warning": "warn"}


class RecordedHosts:
    """Recordings of several hosts. Opened and measured on first use; not thread-safe."""

    def __init__(self, sessions: Sequence[Session]) -> None:
        self._sessions = sessions
        self._opened: dict[int, Recording] = {}
        self._offsets: dict[int, tuple[int, ClockOffset]] = {}
        self._just_measured: list[int] = []

    def recording(self, host: int) -> Recording:
        """Return the open recording of a host. Raises SessionError."""
        if host not in self._opened:
            from dba_console.recording.recording import Recording  # imports SQLite, only when the past is first shown

            directory = self._sessions[host].directory
            assert directory is not None, "a recorded session has a directory"
            self._opened[host] = Recording.open(directory)
        return self._opened[host]

    def close(self) -> None:
        for recording in self._opened.values():
            recording.close()

    def same_moment(self, query: SameMoment, host: int) -> int | str:
        """Return the time of the moment by the clock of `host`, or why it has none. Raises SessionError."""
        recording = self.recording(host)
        axis_us = query.wall_us + self._added_us(query.host, query.wall_us)
        at_us = axis_us - self._added_us(host, axis_us)
        if recording.first_us <= at_us <= recording.last_us:
            return at_us
        first, last = date_and_time(recording.first_us), date_and_time(recording.last_us)
        return f"{self._sessions[host].name} was not recorded at this moment: it was from {first} to {last}"

    def notice(self, host: int | None) -> str:
        """Return the offsets measured since the last call, and that of `host`, each with how it is known."""
        hosts = [*([] if host is None else [host]), *self._just_measured]
        self._just_measured = []
        return "; ".join(dict.fromkeys(self._offset_text(one) for one in hosts))

    def _offset_text(self, host: int) -> str:
        from dba_console.reports.clock_offsets import offset_text

        name = self._sessions[host].name
        if host not in self._offsets:
            return f"{name}: its clock is the time axis"
        return f"clock offset of {name}: {offset_text(self._offsets[host][1])}"

    def others(self, host: int, at_us: int) -> tuple[OtherHost, ...]:
        """Return the other hosts at the moment that `host` has at `at_us`, the next one first."""
        count = len(self._sessions)
        return tuple(self._other(other % count, SameMoment(at_us, host)) for other in range(host + 1, host + count))

    def _other(self, host: int, moment: SameMoment) -> OtherHost:
        name = self._sessions[host].name
        try:
            at_us = self.same_moment(moment, host)
            if isinstance(at_us, str):
                return OtherHost(host, name, problem="not recorded at this moment")
            picture = self.recording(host).picture_at(at_us)
        except ConsoleError as error:
            return OtherHost(host, name, problem=redact(error.message))
        if picture is None:
            return OtherHost(host, name, problem="not readable at this moment")
        if at_us - picture.wall_us > _GAP_TICKS * (picture.tick_us or 1_000_000):
            return OtherHost(host, name, gap=f"no sample since {time_of_day(picture.wall_us)}")
        found = picture.now("findings", FindingsNow)
        if found is None:
            return OtherHost(host, name, gap="its findings are not known")
        return OtherHost(host, name, sort_by_urgency([finding_of(row) for row in found.rows]))

    def _added_us(self, host: int, near_us: int) -> int:
        """Return what to add to the times of a host to get those of the first; 0 if it is not known."""
        if host == 0:
            return 0
        measured_us, found = self._offsets.get(host, (None, None))
        if found is None or measured_us is None or abs(near_us - measured_us) > REMEASURE_US:
            from dba_console.reports.clock_offsets import measure_offset

            found = measure_offset(self.recording(0), self.recording(host), near_us, near_us)
            self._offsets[host] = near_us, found
            self._just_measured.append(host)
        return found.offset_us or 0


def hosts_line(shown: str, host: int, count: int, others: Sequence[OtherHost], width: int) -> Line:
    """Return which of the hosts is shown, and the most urgent finding of each other one at the same moment."""
    spans: list[Span] = [Span(f" {clean(shown)}", "title"), Span(f" host {host + 1} of {count}  "), Span("&", "key")]
    left = width - line_width(tuple(spans))
    for number, other in enumerate(others):
        room = left // (len(others) - number)
        text, style = _finding_text(other)
        piece = cut(f" {clean(other.name)}: ", room)
        text = cut(text, max(0, room - line_width((Span(piece),)) - 2))
        spans += [Span(piece, "title"), Span(text, style), Span("  ")]
        left = width - line_width(tuple(spans))
    return fit_line(tuple(spans), width)


def _finding_text(other: OtherHost) -> tuple[str, Style]:
    if other.problem or other.gap:
        return other.problem or other.gap, "stale"
    urgent: Sequence[Finding] = [one for one in other.findings if one.severity in _STYLES and one.state == "open"]
    if not urgent:
        return ("no open finding", "ok")
    more = f" (+{len(urgent) - 1})" if len(urgent) > 1 else ""
    return f"{clean(urgent[0].id)}{more}: {clean(urgent[0].text)}", _STYLES[urgent[0].severity]
