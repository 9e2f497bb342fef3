"""The errors a program told: counted, the first of them kept, each with its object."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from dba_console.archives.entries import Entry

LONGEST_TEXT = 500
"""Characters kept of an error."""
_MOST = 1000
WORKER_DIED = "a worker process died unexpectedly"
"""The last words of a leader whose worker is gone, killed or after an error of its own (parallel.c)."""


class ErrorSeen(Struct, frozen=True, kw_only=True, gc=False):
    """An error a program told, with its object where that is known. Names and texts are those of the server."""

    at_us: int
    text: str
    dump_id: int | None = None
    desc: str | None = None
    schema: str | None = None
    tag: str = ""


def last_of(errors: Sequence[ErrorSeen]) -> ErrorSeen | None:
    """The one that says most of how it ended: what a worker said last, rather than that it is gone."""
    telling = (one for one in reversed(errors) if not one.text.startswith(WORKER_DIED))
    return next(telling, errors[-1] if errors else None)


class Mistakes:
    """The first thousand, and how many there were."""

    def __init__(self) -> None:
        self.count = 0
        self.kept: list[ErrorSeen] = []

    def add(self, at_us: int, text: str, entry: Entry | None) -> None:
        """An error, and its object where that is known."""
        self.count += 1
        if len(self.kept) >= _MOST:
            return
        seen = ErrorSeen(at_us=at_us, text=text[:LONGEST_TEXT])
        if entry is not None:
            seen = replace(seen, dump_id=entry.dump_id, desc=entry.desc, schema=entry.schema, tag=entry.tag)
        self.kept.append(seen)

    def more(self, text: str) -> None:
        """A further line of the last one: its detail, its statement."""
        if self.kept and self.count == len(self.kept):
            last = self.kept[-1]
            self.kept[-1] = replace(last, text=f"{last.text} {text.strip()}"[:LONGEST_TEXT])
