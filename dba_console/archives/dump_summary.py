"""What a dump or restore took, phase by phase and object by object: to be shown, kept and written as JSON."""

from __future__ import annotations

from msgspec import Struct

from dba_console.archives.critical_path import critical_objects
from dba_console.archives.errors import ReportedError
from dba_console.archives.object_progress import ObjectProgress
from dba_console.archives.objects import DumpObject
from dba_console.archives.phases import PhaseSum
from dba_console.sanitize import clean
from dba_console.units import human_bytes, human_duration

_MAX_ERRORS = 50
_NONE = "-"


class PhaseLine(Struct, frozen=True, kw_only=True):
    """One phase."""

    name: str
    objects: int
    failed: int
    wall_s: float | None
    """From its first object's start to its last one's end."""
    busy_s: float
    """Of all its objects together."""
    bytes: float | None
    """What its objects weigh."""
    rate_per_s: float | None
    """Bytes by wall time."""


class ObjectLine(Struct, frozen=True, kw_only=True):
    """One object. Its name is harmless."""

    what: str
    name: str
    phase: str
    seconds: float | None
    bytes: float | None
    exact: bool
    state: str


class ErrorLine(Struct, frozen=True, kw_only=True):
    """One error, harmless; `name` None where its object is not known."""

    at_us: int
    what: str | None
    name: str | None
    text: str


class DumpSummary(Struct, frozen=True, kw_only=True):
    """All of it."""

    program: str
    started_us: int | None
    ended_us: int | None
    wall_s: float | None
    exit: int | None
    objects: int
    done: int
    failed: int
    untouched: int
    """That nothing was heard of: left out, or never come to."""
    phases: tuple[PhaseLine, ...]
    longest: tuple[ObjectLine, ...]
    critical: tuple[ObjectLine, ...]
    errors: tuple[ErrorLine, ...]
    """The first fifty."""
    error_count: int
    ignored: int | None
    """Errors ignored, as the program told."""

    def table(self) -> tuple[tuple[str, ...], ...]:
        """Phases as rows of text, a heading first and the whole last."""
        rows: list[tuple[str, ...]] = [("phase", "objects", "wall", "together", "size", "rate")]
        rows.extend(_phase_row(one) for one in self.phases if one.objects or one.wall_s is not None)
        together = _duration_text(sum(one.busy_s for one in self.phases))
        rows.append(("all", str(self.objects), _duration_text(self.wall_s), together, "", ""))
        return tuple(rows)

    def longest_table(self) -> tuple[tuple[str, ...], ...]:
        """The longest objects as rows of text, a heading first; `~`: not told by a message of its own."""
        rows = [("took", "size", "what", "name")]
        rows.extend(
            (_duration_text(one.seconds) + ("" if one.exact else " ~"), _size_text(one.bytes), one.what, one.name)
            for one in self.longest
        )
        return tuple(rows)

    def errors_table(self) -> tuple[tuple[str, ...], ...]:
        """The errors as rows of text, a heading first."""
        rows = [("what", "name", "error")]
        rows.extend((one.what or _NONE, one.name or _NONE, one.text) for one in self.errors)
        return tuple(rows)


def summarize(progress: ObjectProgress, now_us: int | None = None) -> DumpSummary:
    """What became of a job; of one under way as far as it is, at `now_us`."""
    now = progress.ended_us or now_us or progress.began_us or 0
    running, done, waiting, failed = progress.counts()
    began = progress.began_us
    return DumpSummary(
        program=progress.program,
        started_us=began,
        ended_us=progress.ended_us,
        wall_s=None if began is None else max(0, now - began) / 1e6,
        exit=progress.exit,
        objects=running + done + waiting + failed,
        done=done,
        failed=failed,
        untouched=waiting,
        phases=tuple(_phase_line(one) for one in progress.phases(now)),
        longest=tuple(_object_line(item) for item in progress.longest),
        critical=tuple(
            _object_line(progress.objects()[link.entry.dump_id])
            for link in critical_objects(progress, now)
            if link.measured
        ),
        errors=tuple(_error_line(one) for one in progress.errors[:_MAX_ERRORS]),
        error_count=progress.error_count,
        ignored=progress.ignored,
    )


def qualified_name(schema: str | None, tag: str) -> str:
    """`schema.tag` as one harmless line."""
    return clean(f"{schema}.{tag}" if schema else tag)


def _phase_line(one: PhaseSum) -> PhaseLine:
    weight = one.weight
    rate = one.weight_done / one.wall_s if weight and one.wall_s else None
    return PhaseLine(
        name=one.name,
        objects=one.objects,
        failed=one.failed,
        wall_s=one.wall_s,
        busy_s=one.busy_s,
        bytes=weight,
        rate_per_s=rate if one.name == "data" else None,
    )


def _object_line(item: DumpObject) -> ObjectLine:
    entry = item.entry
    return ObjectLine(
        what=entry.desc,
        name=qualified_name(entry.schema, entry.tag),
        phase=entry.phase,
        seconds=item.seconds,
        bytes=entry.weight,
        exact=item.exact,
        state=item.state,
    )


def _error_line(one: ReportedError) -> ErrorLine:
    name = qualified_name(one.schema, one.tag) if one.tag else None
    return ErrorLine(at_us=one.at_us, what=one.desc, name=name, text=clean(one.text))


def _phase_row(one: PhaseLine) -> tuple[str, ...]:
    objects = f"{one.objects}, {one.failed} failed" if one.failed else str(one.objects)
    rate = human_bytes(one.rate_per_s, per_s=True) if one.rate_per_s else ""
    size = _size_text(one.bytes) if one.name == "data" else ""
    return (one.name, objects, _duration_text(one.wall_s), _duration_text(one.busy_s), size, rate)


def _duration_text(seconds: float | None) -> str:
    return _NONE if seconds is None else human_duration(seconds)


def _size_text(size: float | None) -> str:
    return _NONE if size is None else human_bytes(size)
