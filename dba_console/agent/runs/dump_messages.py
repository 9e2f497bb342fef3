"""A dump or restore that a run started: its progress while it runs, and its outcome from its messages.

A run's `reads=` names the program. Its progress is what the tracker of jobs observes (`jobs/following`), which the
panels show too. At the end its messages are read once from the keeper's log, object by object, each line with its time;
the list of objects is read from the archive. Both are read in a lane, because a disk may hang.

Messages are text of other programs, in any version and language: an error in reading them only costs what they report.
The outcome then depends on the exit code alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from dba_console.agent.runs.run_context import internal_error_text
from dba_console.core.clock import Clock
from dba_console.core.errors import ConsoleError
from dba_console.core.sanitize import clean
from dba_console.core.units import human_bytes, human_duration
from dba_console.jobs.archives.archive_file import open_archive
from dba_console.jobs.archives.critical_path import critical_objects
from dba_console.jobs.archives.dump_plan import DumpPlan
from dba_console.jobs.archives.object_progress import ObjectProgress
from dba_console.jobs.archives.objects import DumpObject, PhaseSum
from dba_console.jobs.archives.program_messages import ReportedError, final_error
from dba_console.jobs.archives.toc import PHASES
from dba_console.keeper.output_log_reader import LogReader
from dba_console.recording.plan import Block
from dba_console.runbooks.run_view import RunTable
from dba_console.runbooks.values import fill_references
from dba_console.runbooks.walk_requests import Outcome
from dba_console.watch.probes.deadline_lane import Lane, LaneTimeout
from dba_console.watch.progress.panel import ProgressPanel
from dba_console.watch.progress.rows import ObjectRow

if TYPE_CHECKING:
    from dba_console.watch.frames.model import Frame

OPEN_S = 20.0
"""Timeout for reading an archive: 50,000 objects take about a second. Without it phases have no sizes; nothing else is
lost."""
READ_S = 120.0
"""Timeout for reading the messages: 50,000 objects take some seconds."""
PROGRESS_INTERVAL_US = 1_000_000
"""Minimum interval between two progress texts."""
MAX_TEXT_LENGTH = 400
MAX_RUNNING_SHOWN = 3
MAX_ERRORS = 50
"""Maximum errors in the table."""
MAX_ERRORS_SHOWN = 2
"""Maximum errors in a sentence; the table has more."""
MAX_ERROR_LENGTH = 300
"""Maximum length of an internal error's text, which may repeat the message that caused it."""
EXIT_ZERO_MEANS_NO_ERRORS = frozenset({"pg_dump", "pg_restore"})
"""Programs whose exit 0 means no errors (pg_dump.c, pg_restore.c: ignored errors are exit 1); psql exits with 0 after
errors too."""


class DumpMessages:
    """The messages of one execution of a dump or restore command. Never raises. Used only by the run's thread."""

    def __init__(
        self,
        directory: Path,
        program: str,
        archive: str | None,
        jobs: int | None,
        clock: Clock,
        observed: Callable[[], str] = str,
    ) -> None:
        """`directory`: the keeper's; `observed` returns the progress, empty if unknown."""
        self.archive, self.jobs = archive, jobs
        self._directory, self._program, self._clock, self._observed = directory, program, clock, observed
        self._lane = Lane("messages", clock)
        self._text, self._next_us = "", 0

    def progress(self) -> str:
        """Return the progress as a sentence; empty while nothing is known."""
        now_us = self._clock.mono_us()
        if now_us >= self._next_us:
            self._next_us = now_us + PROGRESS_INTERVAL_US
            try:
                self._text = self._observed()[:MAX_TEXT_LENGTH]
            except Exception as error:
                self._text = f"its progress is unknown: internal error: {_short(internal_error_text(error))}"
        return self._text

    def outcome(self, outcome: Outcome, ended_us: int) -> Outcome:
        """Return the outcome of the command with what its messages report. `ended_us`: wall time of its end."""
        if outcome.state == "unknown":
            return outcome
        try:
            plan, code = self._read_archive(outcome), outcome.values.get("exit")
            progress, lost = self._lane.call(lambda: self._read_messages(plan), READ_S)
            progress.program_ended(ended_us, code if isinstance(code, int) else None)
            return apply_messages(outcome, progress, lost_lines=lost)
        except LaneTimeout:
            why = "its messages were not read: the disk of the session does not answer"
        except OSError as error:
            why = f"its messages were not read: {error.strerror or error}"
        except Exception as error:
            why = f"its messages were not read to the end: internal error: {_short(internal_error_text(error))}"
        return outcome_without_messages(outcome, self._program, why)

    def close(self) -> None:
        self._lane.close()

    def _read_archive(self, outcome: Outcome) -> DumpPlan | None:
        """Return the content of the archive; None if unknown, as of a dump that failed."""
        path = self.archive
        if path is None or (self._program == "pg_dump" and outcome.state != "ok"):
            return None
        try:
            return self._lane.call(lambda: open_archive(path), OPEN_S)
        except (LaneTimeout, ConsoleError, OSError):
            return None

    def _read_messages(self, plan: DumpPlan | None) -> tuple[ObjectProgress, int]:
        """In the lane: return the progress after all messages, and the number of lines that are not in the log."""
        progress, log = ObjectProgress(plan, self._program, self.jobs), LogReader(self._directory)
        while lines := log.read():
            for line in lines:
                if line.whole and line.stream != "k":
                    progress.add_line(line.wall_us, line.text)
        return progress, log.dropped_lines


def make_dump_messages(
    directory: Path, block: Block, values: Mapping[str, Any], clock: Clock, observed: Callable[[], str] = str
) -> DumpMessages:
    """Return the reader of a block with `reads`."""
    archive = _setting_value(block.settings.get("archive"), values)
    jobs = _setting_value(block.settings.get("jobs"), values)
    workers = int(jobs) if jobs and jobs.isdigit() else None
    return DumpMessages(directory, str(block.settings["reads"]), archive, workers, clock, observed)


def _setting_value(setting: Any, values: Mapping[str, Any]) -> str | None:
    """Return the value of a setting; of a command's result its first line."""
    try:
        value = fill_references(setting, values)
    except KeyError:
        return None
    if isinstance(value, Mapping):
        value = value.get("first_line")
    return None if value is None else str(value)


# The progress while it runs, from the row of the progress panel.


def observed_progress(frame: Frame | None, run: str) -> str:
    """Return the observed progress of this run's command as a sentence; empty if it is not observed."""
    rows = frame.of(ProgressPanel).operations if frame is not None else []
    row = next((row for row in rows if row.run == run), None)
    if row is None:
        return ""
    part = {"file": "the file", "phase": row.phase or "this phase"}.get(row.scope, "")
    phases = [
        f"{one.name} {one.items_done} of {one.items}" for one in row.phases if one.state == "running" and one.items
    ]
    found = [one for one in row.objects if one.state == "running"]
    running = [_running_text(one) for one in found[:MAX_RUNNING_SHOWN]]
    count = len(found) if row.counts is None else row.counts.running
    more = [f"{count - len(running)} more"] if count > len(running) else []
    texts = [
        progress_text(row.pct, row.grade, row.eta_s, row.eta_grade, part),
        *phases,
        f"running: {', '.join([*running, *more])}" if running else "",
        f"errors: {row.errors}" if row.errors else "",
    ]
    return "; ".join(filter(None, texts))


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


def _running_text(one: ObjectRow) -> str:
    since = "" if one.elapsed_s is None else f" ({human_duration(one.elapsed_s)})"
    return f"{one.what} {clean(one.name)}{since}"


# The outcome.


def apply_messages(outcome: Outcome, progress: ObjectProgress, *, lost_lines: int = 0) -> Outcome:
    """Return the outcome, a success only if the messages confirm it: exit 1 of pg_restore after errors that it counted
    and ignored is an end with errors, for the operator to decide; any other is a failure.
    """
    text, state, code = outcome.text, outcome.state, outcome.values.get("exit")
    # With -j the program counts each ignored error twice.
    errors: int | None = progress.error_count or progress.ignored or 0
    last = final_error(progress.errors)
    if progress.program == "pg_restore" and state == "ok" and code == 1 and progress.ignored is None:
        reason = last.text if last is not None and last.text else "no reason was given"
        state, text = "failed", f"{text}: it did not finish; {reason}"
    elif errors:
        count = "1 error" if errors == 1 else f"{errors} errors"
        text = f"{text.partition(': ')[0]}: {count}: {_first_errors(progress, errors)}"
    elif lost_lines and not (code == 0 and progress.program in EXIT_ZERO_MEANS_NO_ERRORS):
        errors, text = None, f"{text}; {lost_lines} lines of its messages are lost, which may have had errors"
    values = {**outcome.values, **progress_values(progress), "errors": errors}
    if "seconds" in outcome.values:
        values["wall_s"] = outcome.values["seconds"]
    return msgspec.structs.replace(outcome, state=state, text=text, values=values, table=progress_table(progress))


def outcome_without_messages(outcome: Outcome, program: str, why: str) -> Outcome:
    """Return the outcome by the exit code alone. An exit code other than 0 does not count as success: the program may
    have ignored errors, or may not have finished.
    """
    state, text, code = outcome.state, outcome.text, outcome.values.get("exit")
    if state == "ok" and code != 0:
        state, text = "failed", f"{text}: unknown whether it finished"
    unknown = dict.fromkeys(name for phase in PHASES for name in (f"{phase}_s", f"{phase}_busy_s"))
    values: dict[str, Any] = {**outcome.values, **unknown, "objects": None}
    values["errors"] = 0 if code == 0 and program in EXIT_ZERO_MEANS_NO_ERRORS else None
    values["wall_s"] = outcome.values.get("seconds")
    return msgspec.structs.replace(outcome, state=state, text=f"{text}; {why}", values=values)


def progress_values(progress: ObjectProgress) -> dict[str, Any]:
    """Return results by name for expressions and commands of later blocks, in seconds. A phase without objects took 0;
    one whose times are unknown is None."""
    began, end_us = progress.began_us, progress.ended_us or 0
    _, done, _, _ = progress.counts()
    found: dict[str, Any] = {
        "objects": done, "wall_s": None if began is None else round(max(0, end_us - began) / 1e6, 3)
    }  # fmt: skip
    for one in progress.phases(end_us):
        wall_s = 0.0 if not one.objects and one.wall_s is None else one.wall_s
        found[f"{one.name}_s"] = None if wall_s is None else round(wall_s, 3)
        found[f"{one.name}_busy_s"] = round(one.busy_s, 3)
    return found


# The table of an ended command.

COLUMNS = ("of", "what", "took", "sum", "objects", "size", "rate")
"""sum: of the times of its objects, more than it took if several jobs ran in parallel."""
TITLE = "durations: by phase, critical path, longest objects; errors"


def progress_table(progress: ObjectProgress) -> RunTable | None:
    """Return phases, critical path, longest objects and errors; None if nothing is known."""
    end_us = progress.ended_us or 0
    decided = [one.entry.dump_id for one in critical_objects(progress, end_us) if one.measured]
    rows = [_phase(one) for one in progress.phases(end_us) if one.objects or one.wall_s]
    rows += [_object("decided", progress.objects()[dump_id]) for dump_id in decided]
    rows += [_object("longest", item) for item in progress.longest]
    rows += [("error", _error_text(one), "", "", "", "", "") for one in progress.errors[:MAX_ERRORS]]
    return RunTable(columns=COLUMNS, rows=tuple(rows), total=len(rows), title=TITLE) if rows else None


def _first_errors(progress: ObjectProgress, count: int) -> str:
    """Return the first errors with their objects, for a sentence."""
    texts = [_error_text(one) for one in progress.errors[:MAX_ERRORS_SHOWN]]
    more = [f"and {count - len(texts)} more"] if texts and count > len(texts) else []
    return "; ".join([*texts, *more])


def _name(schema: str | None, tag: str) -> str:
    """Return `schema.tag` as one sanitized line."""
    return clean(f"{schema}.{tag}" if schema else tag)


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


def _short(text: str) -> str:
    cleaned, half = clean(text), MAX_ERROR_LENGTH // 2
    return cleaned if len(cleaned) <= MAX_ERROR_LENGTH else f"{cleaned[:half]} … {cleaned[-half:]}"
