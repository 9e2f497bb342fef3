"""Copy lines for `stamp`: read, prefix with the time of arrival, write at once.

All lines of one read share one time, which keeps it fast.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Sequence

from dba_console.core.errors import ExitCode

READ_BYTES = 1 << 16
"""Default size of a pipe."""
PIPE_BYTES = 1 << 20
"""Enlarged size of a pipe; the default of /proc/sys/fs/pipe-max-size allows this for every user."""
FLOOD_INTERVAL_US = 2000
FLOOD_PAUSE_S = 0.001
"""A read less than FLOOD_INTERVAL_US after the one before is followed by this pause; the pipe buffers meanwhile."""
MAX_LINE_BYTES = 1 << 20
"""Bytes; a longer line is split."""
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class AllOutputsClosed(Exception):
    """No destination accepts lines any more."""


class LineDestination:
    """A destination of lines."""

    exit_code: int = ExitCode.OK
    """Exit code of the command, known after close()."""

    def write(self, lines: bytes, wall_us: int) -> None:
        """Write lines without the last line end. Raises AllOutputsClosed."""

    def close(self) -> list[str]:
        """Finish at the end of the input; return the messages for stderr."""
        return []


def copy_lines(descriptor: int, destinations: Sequence[LineDestination]) -> None:
    """Copy every line as it arrives, until the end of the input or until no destination accepts them."""
    parts: list[bytes] = []
    held, widened, before_us = 0, _widen_pipe(descriptor), 0
    while True:
        text = os.read(descriptor, READ_BYTES)
        wall_us = time.time_ns() // 1000
        flooded, before_us = widened and len(text) < READ_BYTES and wall_us - before_us < FLOOD_INTERVAL_US, wall_us
        cut = text.rfind(b"\n")
        if cut < 0 and text and held < MAX_LINE_BYTES:
            parts.append(text)
            held += len(text)
            continue
        if not text:
            lines, parts = b"".join(parts), []
            if not lines:
                return
        else:
            lines = b"".join(parts) + (text if cut < 0 else text[:cut])
            parts = [] if cut < 0 or cut + 1 == len(text) else [text[cut + 1 :]]
        held = sum(map(len, parts))
        try:
            for destination in destinations:
                destination.write(lines, wall_us)
        except AllOutputsClosed:
            return
        if flooded:
            # Small pieces: waking up for each would cost us, and the writer, more than the lines themselves.
            time.sleep(FLOOD_PAUSE_S)


def _widen_pipe(descriptor: int) -> bool:
    """Enlarge the pipe; return whether this is a pipe and it succeeded."""
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    except OSError:
        return False
    return True


class LinePrefix:
    """The prefix of each line."""

    def __init__(self, host: str, tag: str, *, iso: bool, utc: bool) -> None:
        self._host_and_tag = f" {host} {tag}: ".encode("utf-8", "surrogateescape")
        self._iso, self._utc = iso, utc
        self._second = -1
        self._text = b""

    def at_time(self, wall_us: int) -> bytes:
        """Return time, host and tag."""
        second, rest_us = divmod(wall_us, 1_000_000)
        if second != self._second:
            self._second, self._text = second, self._prefix_of_second(second)
        if not self._iso:
            return self._text
        return self._text % rest_us

    def _prefix_of_second(self, second: int) -> bytes:
        at = time.gmtime(second) if self._utc else time.localtime(second)
        clock = b"%02d:%02d:%02d" % (at.tm_hour, at.tm_min, at.tm_sec)
        if not self._iso:
            return b"%b %2d %b" % (_MONTHS[at.tm_mon - 1].encode(), at.tm_mday, clock) + self._host_and_tag
        zone = b"Z" if self._utc else _zone(at.tm_gmtoff)
        date = b"%d-%02d-%02dT" % (at.tm_year, at.tm_mon, at.tm_mday)
        return date + clock + b".%06d" + zone + self._host_and_tag.replace(b"%", b"%%")


def _zone(offset_s: int) -> bytes:
    """
    >>> _zone(19800), _zone(-3600)
    (b'+05:30', b'-01:00')
    """
    minutes = abs(offset_s) // 60
    return b"%b%02d:%02d" % (b"-" if offset_s < 0 else b"+", *divmod(minutes, 60))


class StandardOutput(LineDestination):
    """Standard output.

    If it cannot be written (disk full, terminal closed) the input is still read, because the command before us must not
    end for want of a place for its messages. Only if its reader closed it, and it is the only destination, do we end,
    as every program in a pipe does.
    """

    def __init__(self, descriptor: int, stamps: LinePrefix, *, only_destination: bool) -> None:
        self._descriptor, self._stamps, self._only_destination = descriptor, stamps, only_destination
        self._lost_lines = 0
        self._last_error = ""
        self._is_closed = False

    def write(self, lines: bytes, wall_us: int) -> None:
        if self._is_closed:
            return
        stamp = self._stamps.at_time(wall_us)
        stamped = stamp + lines.replace(b"\n", b"\n" + stamp) + b"\n"
        view = memoryview(stamped)
        try:
            while view:
                view = view[os.write(self._descriptor, view) :]
        except BrokenPipeError:
            self._is_closed = True
            if self._only_destination:
                raise AllOutputsClosed from None
        except OSError as error:
            self._is_closed = error.errno == errno.EIO
            self._lost_lines += bytes(view).count(b"\n")
            self._last_error = error.strerror or str(error)

    def close(self) -> list[str]:
        if not self._lost_lines or self._is_closed:
            return []
        self.exit_code = ExitCode.USAGE
        lines = f"{self._lost_lines:,} line{'s' if self._lost_lines != 1 else ''}"
        return [f"error: {lines} could not be written to standard output: {self._last_error}"]
