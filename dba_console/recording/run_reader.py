"""Read a stored run from its directory: description, records, damage; list and find runs.

A truncated last line is left by a crash; it is noted and counts as not written. Any other line that does not match the
hash chain is damage: the records before it are returned, and the run cannot continue.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Struct

from dba_console.core.atomic_files import read_small
from dba_console.core.decoding import convert, from_json
from dba_console.core.errors import SessionError
from dba_console.recording.hash_chain import ChainError, ChainHead
from dba_console.recording.layout import require_one, require_readable, session_directories
from dba_console.recording.plan import JournalRecord, Plan
from dba_console.recording.run_paths import (
    DOCUMENT,
    JOURNAL,
    PLAN,
    RUNS,
    is_open,
    memory_directory,
    parse_run_id,
    run_directories,
)
from dba_console.recording.run_records import (
    BEGAN,
    ENDED,
    FALLBACK,
    REOPENED,
    RETURNED_TO_DISK,
    STARTED,
    JournalLine,
    RunAbout,
    check,
)

_ACT_ENDS = ("block.seen", "block.result", "block.settled")
LIMIT = 256 << 20
"""Maximum bytes read of a journal: more than a run can write in a week."""


class ParsedJournal(NamedTuple):
    """The lines of a journal that match the hash chain."""

    lines: list[JournalLine]
    head: str
    torn: int
    """Bytes of an unfinished line at the end."""
    notes: list[str]
    problem: str | None
    """Problem of the first line that does not match."""


class StoredRun(Struct, frozen=True, kw_only=True):
    """A run as stored in its directory."""

    directory: Path
    about: RunAbout
    records: tuple[JournalRecord, ...]
    """Records of the walk and of the journal, in order; only those that were, or may have been, acknowledged."""
    lines: tuple[bytes, ...]
    """The raw lines, each with its line end."""
    head: str
    """Hash of the newest record."""
    text: str = ""
    """The document it was started with."""
    plan: Plan | None = None
    torn: int = 0
    notes: tuple[str, ...] = ()
    """Notes: a truncated line, a journal in memory."""
    damage: str | None = None
    """Why later records cannot be trusted; None if no damage is known."""
    in_memory: bool = False
    """The newest records are only in memory-backed storage."""
    live: bool = False
    """An agent has it open."""

    @property
    def ended(self) -> JournalRecord | None:
        """Return the record of its end, None if it is unfinished."""
        return next((record for record in reversed(self.records) if record.kind == ENDED), None)

    def require_resumable(self) -> None:
        """Raise SessionError if it has ended or is damaged."""
        if self.ended is not None:
            raise SessionError(f"the run {self.directory.name} has ended: {self.ended.text}")
        if self.damage is not None:
            raise SessionError(
                f"cannot continue the run {self.directory.name}: {self.damage}",
                hint="check what was done (`dba-console session show` lists the events), then start a new run",
            )


def parse(data: bytes, run: str) -> ParsedJournal:
    """Parse the lines of a journal as far as they match the hash chain."""
    lines: list[JournalLine] = []
    notes: list[str] = []
    head = ChainHead.of(run)
    raws = data.split(b"\n")
    index = 0
    while index < len(raws):
        raw, last = raws[index], index == len(raws) - 1
        index += 1
        if last and not raw:
            break
        try:
            line = check(raw, head)
        except ChainError as misfit:
            if last:
                notes.append(f"the last line is truncated ({len(raw)} bytes): it was not acknowledged")
                return ParsedJournal(lines, head.hash, len(raw), notes, None)
            if index < len(raws) and _explains_torn_line(raws[index], raw, head):
                notes.append(f"truncated line before record {len(lines) + 1}: an agent was killed while writing it")
                continue
            return ParsedJournal(lines, head.hash, 0, notes, str(misfit))
        lines.append(line)
        head = line.head
    return ParsedJournal(lines, head.hash, 0, notes, None)


def _explains_torn_line(raw: bytes, torn: bytes, head: ChainHead) -> bool:
    """Return whether that line is a reopening that reports the truncated one before it."""
    try:
        line = check(raw, head)
    except ChainError:
        return False
    return line.record.kind == REOPENED and line.record.fields.get("torn") == len(torn)


def read_run(directory: Path) -> StoredRun:
    """Return the run in that directory. Raises SessionError if there is none, or nothing can be read."""
    if parse_run_id(directory.name) is None:
        raise SessionError(f"not the name of a run: {directory}")
    parsed, in_memory, problem = _newest(directory)
    if not parsed.lines or parsed.lines[0].record.kind != BEGAN:
        why = problem or parsed.problem or "its journal is empty"
        raise SessionError(f"cannot read the run {directory.name}: {why}")
    about = _about(parsed.lines[0].record, directory.name)
    text, text_problem = _snapshot(directory / DOCUMENT, about.runbook_sha256)
    plan, plan_problem = _plan(directory / PLAN, about.plan_sha256)
    notes = [*parsed.notes, *(["its newest records are only in memory, lost with a reboot"] if in_memory else [])]
    return StoredRun(
        directory=directory,
        about=about,
        records=tuple(line.record for line in parsed.lines),
        lines=tuple(line.raw + b"\n" for line in parsed.lines),
        head=parsed.head,
        text=text,
        plan=plan,
        torn=parsed.torn,
        notes=tuple(notes),
        damage=parsed.problem or text_problem or plan_problem,
        in_memory=in_memory,
        live=is_open(directory),
    )


def last_act_refused(directory: Path) -> bool:
    """Return whether the last execution of a run was refused, by the permission gate or by an action's check.

    False if its records cannot be read.
    """
    try:
        records = read_run(directory).records
    except SessionError:
        return False
    ends = [one for one in records if one.kind in _ACT_ENDS and one.state in ("ok", "failed", "refused")]
    return bool(ends) and (ends[-1].state == "refused" or str(ends[-1].fields.get("note", "")).startswith("refused:"))


def is_finished(directory: Path) -> bool:
    """Return whether the run has ended according to its journal; a damaged one has not."""
    try:
        parsed, _, _ = _newest(directory)
    except SessionError:
        return False
    return any(line.record.kind == ENDED for line in reversed(parsed.lines))


def _newest(directory: Path) -> tuple[ParsedJournal, bool, str | None]:
    """Return the journal on disk, or its continuation in memory if that has more records of the same run."""
    run = directory.name
    data, problem = _read(directory / JOURNAL)
    on_disk = parse(data, run)
    try:
        owner = os.lstat(directory).st_uid
    except OSError as error:
        raise SessionError(f"no run {run} in {directory.parent}: {error.strerror}") from error
    journal_directory = memory_directory(run, owner)
    if not _belongs_to(journal_directory, owner):
        return on_disk, False, problem
    data, _ = _read(journal_directory / JOURNAL)
    in_memory = parse(data, run)
    # As many lines in both: the return to disk had started and failed, and later records were written in memory.
    more = len(in_memory.lines) - len(on_disk.lines)
    if more > 0 or (_is_in_memory(in_memory) and (more == 0 or not _returned_to_disk(on_disk))):
        return in_memory, True, None
    return on_disk, False, problem


def _is_in_memory(parsed: ParsedJournal) -> bool:
    """Return whether the newest record about the journal's storage says that it is in memory."""
    kinds = [line.record.kind for line in parsed.lines if line.record.kind in (FALLBACK, RETURNED_TO_DISK)]
    return kinds[-1:] == [FALLBACK]


def _returned_to_disk(parsed: ParsedJournal) -> bool:
    return any(line.record.kind == RETURNED_TO_DISK for line in parsed.lines)


def _belongs_to(path: Path, owner: int) -> bool:
    """Return whether the directory belongs to this user and only this user can write it."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return status.st_uid == owner and status.st_mode & 0o170022 == 0o040000


def _read(path: Path) -> tuple[bytes, str | None]:
    try:
        return read_small(path, LIMIT), None
    except OSError as error:
        return b"", f"{path.name}: {error.strerror}"


def _about(record: JournalRecord, run: str) -> RunAbout:
    try:
        return convert({**record.fields, "run": run}, RunAbout)
    except msgspec.ValidationError as error:
        raise SessionError(f"cannot read the run {run}: invalid first record: {error}") from None


def _snapshot(path: Path, sha256: str) -> tuple[str, str | None]:
    data, problem = _read(path)
    if problem is not None:
        return "", f"cannot read {path.name}: {problem}"
    if hashlib.sha256(data).hexdigest() != sha256:
        return data.decode("utf-8", "replace"), f"{path.name} is not the document of this run: its hash differs"
    return data.decode("utf-8", "replace"), None


def _plan(path: Path, sha256: str) -> tuple[Plan | None, str | None]:
    data, problem = _read(path)
    if problem is not None:
        return None, f"cannot read {path.name}: {problem}"
    if hashlib.sha256(data).hexdigest() != sha256:
        return None, f"{path.name} is not the plan of this run: its hash differs"
    try:
        return from_json(data, Plan), None
    except msgspec.MsgspecError as error:
        return None, f"cannot parse {path.name}: {error}"


# List the runs of all sessions, and find a run by name.

_HINT = "`dba-console runbook runs` lists the runs"


class RunRow(Struct, frozen=True, kw_only=True):
    """A line of `runbook runs`. Times in microseconds since 1970; None is unknown."""

    run: str
    path: str
    about: RunAbout | None
    state: str
    """running (an agent has it open), interrupted (unfinished, and none has), done, failed, aborted, unreadable."""
    began_us: int | None = None
    """When its start was confirmed; before that, when it was prepared."""
    ended_us: int | None = None
    ending: str = ""
    records: int = 0
    note: str | None = None
    """Why it is damaged, if it is."""


def list_runs(sessions: Path) -> list[RunRow]:
    """Return every run of every session, oldest first."""
    return [row_of(directory) for directory in all_run_directories(sessions)]


def all_run_directories(sessions: Path) -> list[Path]:
    """Return the directories of all runs, oldest first."""
    found = [run for session in session_directories(sessions) for run in run_directories(session)]
    return sorted(found, key=_began)


def _began(directory: Path) -> tuple[str, int, str]:
    """Return a sort key: the second in its name, then the time of the file that is written first and never changed."""
    name = parse_run_id(directory.name)
    try:
        written_ns = os.lstat(directory / DOCUMENT).st_mtime_ns
    except OSError:
        written_ns = 0
    return ("" if name is None else name.start, written_ns, directory.name)


def unfinished_runs(sessions: Path, target_key: str | None = None) -> list[StoredRun]:
    """Return the unfinished runs that no agent has open, oldest first; only of `target`, if given.

    Damaged runs are included, although they cannot continue.
    """
    found = []
    for directory in all_run_directories(sessions):
        try:
            papers = read_run(directory)
        except SessionError:
            continue  # unreadable, even its target is unknown; `runbook runs` lists it
        if papers.ended is None and not papers.live and target_key in (None, papers.about.target_key):
            found.append(papers)
    return found


def row_of(directory: Path) -> RunRow:
    """Return the line of one run."""
    try:
        return row_of_run(read_run(directory))
    except SessionError as error:
        return RunRow(run=directory.name, path=str(directory), about=None, state="unreadable", note=error.message)


def row_of_run(run: StoredRun) -> RunRow:
    """Return the line of a stored run."""
    ended = run.ended
    if ended is not None:
        state = ended.state or "done"
    else:
        state = "running" if run.live else "interrupted"
    return RunRow(
        run=run.directory.name,
        path=str(run.directory),
        about=run.about,
        state=state,
        began_us=_began_us(run),
        ended_us=None if ended is None else ended.wall_us,
        ending="" if ended is None else ended.text,
        records=len(run.records),
        note=run.damage or next(iter(run.notes), None),
    )


def _began_us(run: StoredRun) -> int:
    """Return when it was started, or, if it was not, prepared."""
    return next((record.wall_us for record in run.records if record.kind == STARTED), run.records[0].wall_us)


def resolve_run(name: str, sessions: Path) -> Path:
    """Return the directory of a run, given its path, its id, a prefix or the last four characters of its id, or `last`.

    Raises SessionError if none or several match, PermissionDenied if `sessions` cannot be read.
    """
    if not name:
        raise SessionError("no run named", hint=_HINT)
    named_path = Path(name).expanduser()
    if "/" in name:
        if parse_run_id(named_path.name) is not None and named_path.is_dir() and named_path.parent.name == RUNS:
            return named_path
        raise SessionError(f"no run in {named_path}", hint=_HINT)
    require_readable(sessions)
    every = all_run_directories(sessions)
    if name == "last":
        if not every:
            raise SessionError(f"no run in {sessions}", hint="`dba-console runbook run NAME` starts one")
        return every[-1]
    found = [path for path in every if path.name.startswith(name) or path.name.rpartition("-")[2] == name]
    exact = [path for path in found if path.name == name]
    if not found:
        raise SessionError(f"unknown run {name!r} in {sessions}", hint=_HINT)
    return require_one(exact or found, name, "runs")
