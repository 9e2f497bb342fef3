"""The errors a program told: counted, the first of them kept, each with its object."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from dba_console.archives.dump_plan import DumpEntry

MAX_TEXT = 500
"""Characters kept of an error."""
_MAX_KEPT = 1000
WORKER_DIED = "a worker process died unexpectedly"
"""The last words of a leader whose worker is gone, killed or after an error of its own (parallel.c)."""


class ReportedError(Struct, frozen=True, kw_only=True, gc=False):
    """An error a program told, with its object where that is known. Names and texts are those of the server."""

    at_us: int
    text: str
    dump_id: int | None = None
    desc: str | None = None
    schema: str | None = None
    tag: str = ""


def final_error(errors: Sequence[ReportedError]) -> ReportedError | None:
    """The one that says most of how it ended: what a worker said last, rather than that it is gone."""
    candidates = (one for one in reversed(errors) if not one.text.startswith(WORKER_DIED))
    return next(candidates, errors[-1] if errors else None)


class ReportedErrors:
    """The first thousand, and how many there were."""

    def __init__(self) -> None:
        self.count = 0
        self.kept: list[ReportedError] = []

    def add(self, at_us: int, text: str, entry: DumpEntry | None) -> None:
        """An error, and its object where that is known."""
        self.count += 1
        if len(self.kept) >= _MAX_KEPT:
            return
        reported = ReportedError(at_us=at_us, text=text[:MAX_TEXT])
        if entry is not None:
            reported = replace(reported, dump_id=entry.dump_id, desc=entry.desc, schema=entry.schema, tag=entry.tag)
        self.kept.append(reported)

    def add_line(self, text: str) -> None:
        """A further line of the last one: its detail, its statement."""
        if self.kept and self.count == len(self.kept):
            last = self.kept[-1]
            self.kept[-1] = replace(last, text=f"{last.text} {text.strip()}"[:MAX_TEXT])
