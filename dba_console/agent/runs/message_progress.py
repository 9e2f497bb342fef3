"""The progress of a dump or restore that a run executes, from the messages of pg_dump, pg_restore or psql; and the
summary of its durations.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from dba_console.core.sanitize import clean
from dba_console.core.units import human_bytes, human_duration
from dba_console.jobs.archives.critical_path import critical_objects
from dba_console.jobs.archives.dump_plan import DumpPlan
from dba_console.jobs.archives.object_progress import ObjectProgress
from dba_console.jobs.archives.objects import DumpObject, PhaseSum
from dba_console.jobs.archives.program_messages import ReportedError, final_error
from dba_console.jobs.archives.progress_forecast import ForecastState, forecast
from dba_console.runbooks.run_view import RunTable

# Durations of a dump or restore by phase and object, as text and JSON.

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
    """Sum over all its objects."""
    bytes: float | None
    """Size of its objects."""
    rate_per_s: float | None
    """Bytes per second of wall time."""


class ObjectLine(Struct, frozen=True, kw_only=True):
    """One object. Its name is sanitized."""

    what: str
    name: str
    phase: str
    seconds: float | None
    bytes: float | None
    exact: bool
    state: str


class ErrorLine(Struct, frozen=True, kw_only=True):
    """One error, sanitized; `name` is None if its object is unknown."""

    at_us: int
    what: str | None
    name: str | None
    text: str


class DumpSummary(Struct, frozen=True, kw_only=True):
    """The whole job."""

    program: str
    started_us: int | None
    ended_us: int | None
    wall_s: float | None
    exit: int | None
    objects: int
    done: int
    failed: int
    untouched: int
    """Objects without a message: left out, or never reached."""
    phases: tuple[PhaseLine, ...]
    longest: tuple[ObjectLine, ...]
    critical: tuple[ObjectLine, ...]
    errors: tuple[ErrorLine, ...]
    """The first fifty."""
    error_count: int
    ignored: int | None
    """Errors ignored, as reported by the program."""

    def table(self) -> tuple[tuple[str, ...], ...]:
        """Return the phases as rows of text, with a heading first and the total last."""
        rows: list[tuple[str, ...]] = [("phase", "objects", "wall", "together", "size", "rate")]
        rows.extend(_phase_row(one) for one in self.phases if one.objects or one.wall_s is not None)
        together = _duration_text(sum(one.busy_s for one in self.phases))
        rows.append(("all", str(self.objects), _duration_text(self.wall_s), together, "", ""))
        return tuple(rows)

    def longest_table(self) -> tuple[tuple[str, ...], ...]:
        """Return the longest objects as rows of text, with a heading first; `~`: without a message of its own."""
        rows = [("took", "size", "what", "name")]
        rows.extend(
            (_duration_text(one.seconds) + ("" if one.exact else " ~"), _size_text(one.bytes), one.what, one.name)
            for one in self.longest
        )
        return tuple(rows)

    def errors_table(self) -> tuple[tuple[str, ...], ...]:
        """Return the errors as rows of text, with a heading first."""
        rows = [("what", "name", "error")]
        rows.extend((one.what or _NONE, one.name or _NONE, one.text) for one in self.errors)
        return tuple(rows)


def summarize(progress: ObjectProgress, now_us: int | None = None) -> DumpSummary:
    """Return the summary of a job; of a running one as of `now_us`."""
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
            _object_line(progress.objects()[critical_object.entry.dump_id])
            for critical_object in critical_objects(progress, now)
            if critical_object.measured
        ),
        errors=tuple(_error_line(one) for one in progress.errors[:_MAX_ERRORS]),
        error_count=progress.error_count,
        ignored=progress.ignored,
    )


def qualified_name(schema: str | None, tag: str) -> str:
    """Return `schema.tag` as one sanitized line."""
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


MAX_TEXT_LENGTH = 400
MAX_RUNNING_SHOWN = 3
MAX_ERRORS_SHOWN = 2
"""Maximum errors in a sentence; the table has more."""
COLUMNS = ("of", "what", "took", "together", "objects", "size", "rate")
"""together: the sum over its objects, more than what it took if several ran in parallel."""
TITLE = "durations: by phase, critical path, longest objects; errors"


class MessageProgress:
    """Progress of one execution. `plan` is the content of the archive, None if unknown."""

    def __init__(self, plan: DumpPlan | None, program: str, jobs: int | None) -> None:
        self._ledger = ObjectProgress(plan, program, jobs)
        self._memory = ForecastState()
        self._now_us = 0

    def see(self, wall_us: int, text: str, stream: str) -> None:
        """Add a line with its time."""
        self._now_us = wall_us
        self._ledger.add_line(wall_us, text, "stderr" if stream == "e" else "stdout")

    def ended(self, wall_us: int, code: Any) -> None:
        """Record the end of the program."""
        self._now_us = max(self._now_us, wall_us)
        self._ledger.program_ended(wall_us, code if isinstance(code, int) else None)

    @property
    def errors(self) -> int:
        """Number of reported errors; else the number the program says it ignored, which with -j counts each twice."""
        return self._ledger.error_count or self._ledger.ignored or 0

    @property
    def ignored(self) -> int | None:
        """Errors ignored, as reported by the program; None if it did not report them."""
        return self._ledger.ignored

    @property
    def last_error(self) -> str:
        last = final_error(self._ledger.errors)
        return "" if last is None else last.text

    def told(self, now_us: int, share: str | None = None) -> str:
        """Return the progress as a sentence; `share` is that of the panels, None to compute it from the messages."""
        if share is None:
            estimate = forecast(self._ledger, now_us, state=self._memory)
            share = progress_text(estimate.pct, estimate.grade, estimate.eta_s, estimate.eta_grade)
        phases = [
            f"{one.name} {one.done + one.failed} of {one.objects}"
            for one in self._ledger.phases(now_us)
            if one.state == "running" and one.objects
        ]
        items = self._ledger.running_objects
        running = [_running(item, now_us) for item in items[:MAX_RUNNING_SHOWN]]
        more = [f"{len(items) - len(running)} more"] if len(items) > len(running) else []
        texts = [
            share,
            *phases,
            *([f"running: {', '.join([*running, *more])}"] if running else []),
        ]
        return "; ".join(filter(None, [*texts, f"errors: {self.errors}" if self.errors else ""]))

    def first_errors_text(self) -> str:
        """Return the first errors with their objects, for a sentence."""
        texts = [_error_text(one) for one in summarize(self._ledger).errors[:MAX_ERRORS_SHOWN]]
        more = self.errors - len(texts)
        return "; ".join([*texts, *([f"and {more} more"] if more > 0 and texts else [])])

    def values(self) -> dict[str, Any]:
        """Return results by name for expressions and commands of later blocks, in seconds. A phase without objects took
        0; one whose times are unknown is None."""
        all_of_it = summarize(self._ledger, self._now_us)
        found: dict[str, Any] = {"objects": all_of_it.done, "wall_s": _rounded(all_of_it.wall_s)}
        for one in all_of_it.phases:
            found[f"{one.name}_s"] = 0.0 if not one.objects and one.wall_s is None else _rounded(one.wall_s)
            found[f"{one.name}_busy_s"] = round(one.busy_s, 3)
        return found

    def table(self) -> RunTable | None:
        """Return phases, critical path, longest objects and errors; None if nothing is known."""
        summary = summarize(self._ledger, self._now_us)
        rows = [_phase(one) for one in summary.phases if one.objects or one.wall_s]
        rows += [_object("decided", one) for one in summary.critical]
        rows += [_object("longest", one) for one in summary.longest]
        rows += [("error", _error_text(one), "", "", "", "", "") for one in summary.errors]
        return RunTable(columns=COLUMNS, rows=tuple(rows), total=len(rows), title=TITLE) if rows else None


def progress_text(pct: float | None, grade: str, eta_s: float | None, eta_grade: str | None, part: str = "") -> str:
    """Return percentage and time left; `part` names what they apply to, if not to all of it.

    >>> progress_text(42.4, "measured", 90.0, "estimated"), progress_text(None, "unknown", None, None)
    ('42 % (measured), about 1m30s left (estimated)', '')
    >>> progress_text(42.4, "measured", 90.0, "estimated", "data")
    '42 % of data (measured), about 1m30s left of it (estimated)'
    """
    share = "" if pct is None else f"{pct:.0f} %{part and f' of {part}'} ({grade})"
    left = "" if eta_s is None else f"about {human_duration(eta_s)} left{part and ' of it'} ({eta_grade or 'unknown'})"
    return ", ".join(filter(None, (share, left)))


def _running(item: DumpObject, now_us: int) -> str:
    since = "" if item.started_us is None else f" ({human_duration(max(0, now_us - item.started_us) / 1e6)})"
    return f"{item.entry.desc} {qualified_name(item.entry.schema, item.entry.tag)}{since}"


def _error_text(one: ErrorLine) -> str:
    named = " ".join(filter(None, (one.what, one.name)))
    return f"{named}: {one.text}" if named else one.text


def _phase(one: PhaseLine) -> tuple[str, ...]:
    size = one.bytes if one.name == "data" else None
    failed = f", {one.failed} failed" if one.failed else ""
    return (
        "phase", one.name, _time(one.wall_s), _time(one.busy_s), f"{one.objects}{failed}", _size(size),
        _size(one.rate_per_s, "/s"),
    )  # fmt: skip


def _object(of: str, one: ObjectLine) -> tuple[str, ...]:
    size = one.bytes if one.phase == "data" else None
    rate = size / one.seconds if size and one.seconds else None
    took = _time(one.seconds) + ("" if one.exact else " (estimated)")
    return of, f"{one.what} {one.name}", took, "", "", _size(size), _size(rate, "/s")


def _time(value: float | None) -> str:
    return "?" if value is None else human_duration(value)


def _size(value: float | None, behind: str = "") -> str:
    return "" if value is None else human_bytes(value) + behind


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
