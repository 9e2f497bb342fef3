"""The progress of one dump or restore from its messages, and the durations of its phases and objects."""

from __future__ import annotations

from typing import Any

from dba_console.core.sanitize import clean
from dba_console.core.units import human_bytes, human_duration
from dba_console.jobs.archives.critical_path import critical_objects
from dba_console.jobs.archives.dump_plan import DumpPlan
from dba_console.jobs.archives.object_progress import ObjectProgress
from dba_console.jobs.archives.objects import DumpObject, PhaseSum
from dba_console.jobs.archives.program_messages import ReportedError, final_error
from dba_console.jobs.archives.progress_forecast import ForecastState, forecast
from dba_console.runbooks.run_view import RunTable

MAX_ERRORS = 50
"""Maximum errors in the table."""
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
        texts = [_error_text(one) for one in self._ledger.errors[:MAX_ERRORS_SHOWN]]
        more = self.errors - len(texts)
        return "; ".join([*texts, *([f"and {more} more"] if more > 0 and texts else [])])

    def values(self) -> dict[str, Any]:
        """Return results by name for expressions and commands of later blocks, in seconds. A phase without objects took
        0; one whose times are unknown is None."""
        began, end_us = self._ledger.began_us, self._end_us
        _, done, _, _ = self._ledger.counts()
        found: dict[str, Any] = {
            "objects": done, "wall_s": None if began is None else round(max(0, end_us - began) / 1e6, 3)
        }  # fmt: skip
        for one in self._ledger.phases(end_us):
            wall_s = 0.0 if not one.objects and one.wall_s is None else one.wall_s
            found[f"{one.name}_s"] = None if wall_s is None else round(wall_s, 3)
            found[f"{one.name}_busy_s"] = round(one.busy_s, 3)
        return found

    def table(self) -> RunTable | None:
        """Return phases, critical path, longest objects and errors; None if nothing is known."""
        ledger, end_us = self._ledger, self._end_us
        decided = [one.entry.dump_id for one in critical_objects(ledger, end_us) if one.measured]
        rows = [_phase(one) for one in ledger.phases(end_us) if one.objects or one.wall_s]
        rows += [_object("decided", ledger.objects()[dump_id]) for dump_id in decided]
        rows += [_object("longest", item) for item in ledger.longest]
        rows += [("error", _error_text(one), "", "", "", "", "") for one in ledger.errors[:MAX_ERRORS]]
        return RunTable(columns=COLUMNS, rows=tuple(rows), total=len(rows), title=TITLE) if rows else None

    @property
    def _end_us(self) -> int:
        """When the program ended, or the last line of a running one."""
        return self._ledger.ended_us or self._now_us or self._ledger.began_us or 0


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


def _name(schema: str | None, tag: str) -> str:
    """Return `schema.tag` as one sanitized line."""
    return clean(f"{schema}.{tag}" if schema else tag)


def _running(item: DumpObject, now_us: int) -> str:
    since = "" if item.started_us is None else f" ({human_duration(max(0, now_us - item.started_us) / 1e6)})"
    return f"{item.entry.desc} {_name(item.entry.schema, item.entry.tag)}{since}"


def _error_text(one: ReportedError) -> str:
    named = " ".join(filter(None, (one.desc, _name(one.schema, one.tag) if one.tag else None)))
    return f"{named}: {clean(one.text)}" if named else clean(one.text)


def _phase(one: PhaseSum) -> tuple[str, ...]:
    size = one.weight if one.name == "data" else None
    rate = one.weight_done / one.wall_s if size and one.wall_s else None
    failed = f", {one.failed} failed" if one.failed else ""
    return (
        "phase", one.name, _time(one.wall_s), _time(one.busy_s), f"{one.objects}{failed}", _size(size),
        _size(rate, "/s"),
    )  # fmt: skip


def _object(of: str, item: DumpObject) -> tuple[str, ...]:
    entry = item.entry
    size = entry.weight if entry.phase == "data" else None
    rate = size / item.seconds if size and item.seconds else None
    took = _time(item.seconds) + ("" if item.exact else " (estimated)")
    return of, f"{entry.desc} {_name(entry.schema, entry.tag)}", took, "", "", _size(size), _size(rate, "/s")


def _time(value: float | None) -> str:
    return "?" if value is None else human_duration(value)


def _size(value: float | None, behind: str = "") -> str:
    return "" if value is None else human_bytes(value) + behind
