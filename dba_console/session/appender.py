"""From a command's output to the session: whole lines with their tag, but never a flood.

The first HEAD lines of an execution go into the session as they come. Of what follows the session gets the number and,
at the end, the last TAIL lines; all of it is in the output file of the execution.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from dba_console.session.loglines import LogLine

HEAD = 2000
TAIL = 200


class Stamped(Protocol):
    """A line as a keeper gives it."""

    @property
    def wall_us(self) -> int: ...
    @property
    def stream(self) -> str: ...
    @property
    def text(self) -> str: ...


class Appender:
    """One execution of one block. Used by one thread."""

    def __init__(
        self,
        put: Callable[[Sequence[LogLine]], None],
        tag: str,
        *,
        run: str = "",
        block: str = "",
        execution: int = 0,
        where: str = "its output file",
        mask: Callable[[str], str] | None = None,
        head: int = HEAD,
        tail: int = TAIL,
    ) -> None:
        """`put` takes lines and returns at once (Recorder.put_lines). `where`: what the rest is found in."""
        self._put, self._tag, self._where = put, tag, where
        self._of = (run, block, execution)
        self._mask = mask or str
        self._room = head
        self._late: deque[LogLine] = deque(maxlen=tail)
        self._lost = 0
        self.lines = 0
        """Lines fed so far."""

    def feed(self, lines: Iterable[Stamped]) -> None:
        """Take lines in the order in which they arrived."""
        made = [self._line(line.wall_us, self._mask(line.text), line.stream) for line in lines]
        if not made:
            return
        self.lines += len(made)
        now, later = made[: self._room], made[self._room :]
        if later and self._room >= 0 and not self._late and not self._lost:
            notice = f"{self.lines - len(later)} lines are enough here; all of them are in {self._where}"
            now = [*now, self._line(later[0].wall_us, notice, "e")]
        self._room -= min(self._room, len(made) - len(later))
        if now:
            self._put(now)
        for line in later:
            if len(self._late) == self._late.maxlen:
                self._lost += 1
            self._late.append(line)

    def close(self) -> None:
        """The output has ended: the number of lines left out, and the last ones."""
        if not self._late:
            return
        notices = [self._line(self._late[0].wall_us, f"… {self._lost} lines left out", "e")] if self._lost else []
        self._put([*notices, *self._late])
        self._late.clear()

    def _line(self, wall_us: int, text: str, stream: str) -> LogLine:
        run, block, execution = self._of
        return LogLine(wall_us, self._tag, text, stream, run, block, execution)
