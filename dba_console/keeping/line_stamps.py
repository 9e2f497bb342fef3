"""A command's bytes become stamped lines: `<microseconds since 1970> <letter> <text>`.

The letter is `o` or `e` for a whole line of stdout or stderr, `O` or `E` for one that is still being written (a
progress line that overwrites itself with carriage returns, a prompt without a line end), `k` for a word of the keeper.

Bytes are kept as they came, control characters too, but for the line end. Of a line that overwrote itself, what stood
there last is kept; in between it is shown as it stands, once a second at most. All lines that came with one read carry
the time of that read.
"""

from __future__ import annotations

Block = tuple[bytes, int]
"""Stamped lines, and how many: counting them again would cost as much as stamping them."""
NO_LINES: Block = (b"", 0)

LINE_LIMIT = 1 << 16
"""Bytes; a line that has not ended by then is cut into several."""


class LineStamper:
    """One stream of a command."""

    def __init__(self, letter: bytes) -> None:
        """`letter` is b"o" or b"e"."""
        self._letter = letter
        self._open = b""
        """The line that has not ended. A carriage return at its end may be half of a line end."""
        self._shown = b""
        self.overwrites = False
        """Whether the line that has not ended wrote over itself, so that more of it may come for hours."""

    def feed(self, text: bytes, wall_us: int) -> Block:
        """The lines that `text` completes, stamped."""
        text = self._open + text
        if b"\r" in text:
            text = text.replace(b"\r\n", b"\n")
        cut = text.rfind(b"\n")
        self._open = text[cut + 1 :]
        if cut >= 0:
            self.overwrites = False
        if b"\r" in self._open:
            self.overwrites = True
            self._open = _visible_text(self._open) + (b"\r" if self._open.endswith(b"\r") else b"")
        lines = text[:cut] if cut >= 0 else None
        if len(self._open) >= LINE_LIMIT:
            lines = self._open if lines is None else lines + b"\n" + self._open
            self._open = b""
        if lines is None:
            return NO_LINES
        self._shown = b""
        if b"\r" in lines:
            lines = b"\n".join(map(_visible_text, lines.split(b"\n")))
        return _stamp_lines(lines, wall_us, self._letter)

    def partial_line(self, wall_us: int) -> Block:
        """The line that is still being written as it stands, stamped; nothing where it was shown so already."""
        text = self._open.rstrip(b"\r")
        if not text or text == self._shown:
            return NO_LINES
        self._shown = text
        return _stamp_lines(text, wall_us, self._letter.upper())

    @property
    def has_partial_line(self) -> bool:
        """Whether `partial_line` would give something."""
        return self._open.rstrip(b"\r") not in (b"", self._shown)

    def close(self, wall_us: int) -> Block:
        """The stream has ended: what stood there without a line end is a line."""
        text, self._open = self._open.rstrip(b"\r"), b""
        return _stamp_lines(text, wall_us, self._letter) if text else NO_LINES


def _visible_text(line: bytes) -> bytes:
    """What stands in a line that overwrote itself.

    >>> _visible_text(b"10%\\r20%\\r"), _visible_text(b"plain")
    (b'20%', b'plain')
    """
    line = line.rstrip(b"\r")
    return line[line.rfind(b"\r") + 1 :]


def _stamp_lines(lines: bytes, wall_us: int, letter: bytes) -> Block:
    """
    >>> _stamp_lines(b"a\\nb", 7, b"o")
    (b'7 o a\\n7 o b\\n', 2)
    """
    stamp = b"%d %b " % (wall_us, letter)
    stamped = stamp + lines.replace(b"\n", b"\n" + stamp) + b"\n"
    return stamped, (len(stamped) - len(lines) - 1) // len(stamp)
