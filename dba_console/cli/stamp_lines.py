"""The way of a line through `stamp`: read as it arrives, stamped, handed on at once.

All lines of one read arrived together and carry one time; that is what makes it quick.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Sequence

from dba_console.core.errors import ExitCode

READ_BYTES = 1 << 16
"""What a pipe holds."""
PIPE_BYTES = 1 << 20
"""What it holds once widened; /proc/sys/fs/pipe-max-size allows everybody so much."""
FLOOD_INTERVAL_US = 2000
FLOOD_PAUSE_S = 0.001
"""What comes quicker than SOON_US after what came before is let come for so long; the pipe has room for it."""
MAX_LINE_BYTES = 1 << 20
"""Bytes; a line that has not ended by then is cut into several."""
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class AllOutputsClosed(Exception):
    """Nobody takes the lines any more."""


class LineDestination:
    """Somewhere the lines go."""

    exit_code: int = ExitCode.OK
    """What the command ends with, known once it is closed."""

    def write(self, lines: bytes, wall_us: int) -> None:
        """Lines without the last line end, as they came. Raises ReadersGone."""

    def close(self) -> list[str]:
        """The input has ended; what there is to say on stderr."""
        return []


def copy_lines(descriptor: int, destinations: Sequence[LineDestination]) -> None:
    """Hand every line on as it arrives, until the end of the input or until nobody takes them."""
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
            for outlet in destinations:
                outlet.write(lines, wall_us)
        except AllOutputsClosed:
            return
        if flooded:
            # In small pieces: to be woken for each would cost us, and who writes them, more than the lines do.
            time.sleep(FLOOD_PAUSE_S)


def _widen_pipe(descriptor: int) -> bool:
    """Whether this is a pipe, and now one that holds more."""
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    except OSError:
        return False
    return True


class LinePrefix:
    """What stands before each line."""

    def __init__(self, host: str, tag: str, *, iso: bool, utc: bool) -> None:
        self._host_and_tag = f" {host} {tag}: ".encode("utf-8", "surrogateescape")
        self._iso, self._utc = iso, utc
        self._second = -1
        self._text = b""

    def at_time(self, wall_us: int) -> bytes:
        """Time, host and tag."""
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

    Where it cannot be written (a full disk, a terminal that has gone) the input is read on: the command before us must
    not end for want of a place for its messages. Only where its reader left on purpose, and there is no other place,
    do we end, as every program in a pipe does.
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
