"""The course of one dump or restore as its messages tell it: how far it is while it runs, and what it took."""

from __future__ import annotations

from typing import Any

from dba_console.archives.dump_plan import DumpPlan
from dba_console.archives.dump_summary import ErrorLine, ObjectLine, PhaseLine, qualified_name, summarize
from dba_console.archives.errors import final_error
from dba_console.archives.object_progress import ObjectProgress
from dba_console.archives.objects import DumpObject
from dba_console.archives.progress_forecast import ForecastState, forecast
from dba_console.plans.run_view import RunTable
from dba_console.units import human_bytes, human_duration

MAX_TEXT_LENGTH = 400
MAX_RUNNING_SHOWN = 3
MAX_ERRORS_SHOWN = 2
"""In a sentence; the table has more."""
COLUMNS = ("of", "what", "took", "together", "objects", "size", "rate")
"""together: of all its objects, which is more than what it took where several went on beside each other."""
TITLE = "what it took: by phase, the chain that decided when it ended, the longest objects, errors"


class MessageProgress:
    """Of one execution. `plan` is what the archive holds, None where that is not known."""

    def __init__(self, plan: DumpPlan | None, program: str, jobs: int | None) -> None:
        self._ledger = ObjectProgress(plan, program, jobs)
        self._memory = ForecastState()
        self._now_us = 0

    def see(self, wall_us: int, text: str, stream: str) -> None:
        """A line, when it came."""
        self._now_us = wall_us
        self._ledger.add_line(wall_us, text, "stderr" if stream == "e" else "stdout")

    def ended(self, wall_us: int, code: Any) -> None:
        """The program has gone."""
        self._now_us = max(self._now_us, wall_us)
        self._ledger.program_ended(wall_us, code if isinstance(code, int) else None)

    @property
    def errors(self) -> int:
        """How many were told; else how many the program says it ignored, which with -j counts each of them twice."""
        return self._ledger.error_count or self._ledger.ignored or 0

    @property
    def ignored(self) -> int | None:
        """Errors it went on over, as it said itself; None where it did not say so."""
        return self._ledger.ignored

    @property
    def last_error(self) -> str:
        last = final_error(self._ledger.errors)
        return "" if last is None else last.text

    def told(self, now_us: int, share: str | None = None) -> str:
        """How far it is, in a sentence; `share` is that of the panels, None where messages alone tell one."""
        if share is None:
            seen = forecast(self._ledger, now_us, state=self._memory)
            share = progress_text(seen.pct, seen.grade, seen.eta_s, seen.eta_grade)
        under_way = [
            f"{one.name} {one.done + one.failed} of {one.objects}"
            for one in self._ledger.phases(now_us)
            if one.state == "running" and one.objects
        ]
        items = self._ledger.running_objects
        running = [_running(item, now_us) for item in items[:MAX_RUNNING_SHOWN]]
        more = [f"{len(items) - len(running)} more"] if len(items) > len(running) else []
        said = [
            share,
            *under_way,
            *([f"at work: {', '.join([*running, *more])}"] if running else []),
        ]
        return "; ".join(filter(None, [*said, f"errors: {self.errors}" if self.errors else ""]))

    def first_errors_text(self) -> str:
        """The first errors with their objects, for a sentence."""
        told = [_error_text(one) for one in summarize(self._ledger).errors[:MAX_ERRORS_SHOWN]]
        more = self.errors - len(told)
        return "; ".join([*told, *([f"and {more} more"] if more > 0 and told else [])])

    def values(self) -> dict[str, Any]:
        """Results by name, as expressions and commands of later blocks see them; seconds. A phase without objects took
        none; one whose times nobody saw is unknown."""
        all_of_it = summarize(self._ledger, self._now_us)
        found: dict[str, Any] = {"objects": all_of_it.done, "wall_s": _rounded(all_of_it.wall_s)}
        for one in all_of_it.phases:
            found[f"{one.name}_s"] = 0.0 if not one.objects and one.wall_s is None else _rounded(one.wall_s)
            found[f"{one.name}_busy_s"] = round(one.busy_s, 3)
        return found

    def table(self) -> RunTable | None:
        """Phases, the chain that decided, the longest objects, the errors; None where nothing is known."""
        seen = summarize(self._ledger, self._now_us)
        rows = [_phase(one) for one in seen.phases if one.objects or one.wall_s]
        rows += [_object("decided", one) for one in seen.critical]
        rows += [_object("longest", one) for one in seen.longest]
        rows += [("error", _error_text(one), "", "", "", "", "") for one in seen.errors]
        return RunTable(columns=COLUMNS, rows=tuple(rows), total=len(rows), title=TITLE) if rows else None


def progress_text(pct: float | None, grade: str, eta_s: float | None, eta_grade: str | None, part: str = "") -> str:
    """`part`: what it is the share and the time left of, where that is not all of it.

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
