"""Read the messages (standard error) of running programs from a log file, or from the log of one of our keepers.

The file behind a program's standard error is read incrementally. A shared log (`>> backup.log` of a whole script) is
read from the first message of a verbose run; without one it is read from its end at the time the program was found,
because earlier lines may belong to another run. A terminal, a pipe into another program or the systemd journal cannot
be read; the reason is reported.
"""

from __future__ import annotations

import os
import posixpath
import stat
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dba_console.core.clock import SYSTEM, Clock
from dba_console.core.redact import redact
from dba_console.core.sanitize import clean
from dba_console.jobs.following.open_files import (
    DescriptorLink,
    OpenFile,
    PipeEnds,
    pipe_key,
    read_links,
    read_open_file,
)
from dba_console.jobs.following.program_scanner import RunningProgram, writes_files
from dba_console.keeper.output_log_reader import LogReader, StampedLine
from dba_console.watch.probes.host.kernel_files import process_text, read_once, read_stat

# A log file written by another program, read incrementally.

CHUNK_BYTES = 1 << 20
"""Bytes read per log and scan."""
_BACK = 16 * CHUNK_BYTES
"""Bytes before its end that are searched for the start of a run."""


@dataclass(frozen=True, slots=True)
class NewLines:
    """The lines since the previous read."""

    lines: tuple[bytes, ...]
    dropped: int
    """Bytes truncated from the file before they were read."""


class LogFile:
    """A regular file that a program writes its messages to. Not thread-safe."""

    def __init__(self, file: OpenFile, root: str, offset: int, from_start: bool) -> None:
        """`root`: prefix for paths of its process. `from_start`: a run starts at `offset`."""
        self.path = file.path
        self.from_start = from_start
        self.reads = 0
        self._local_path = root + file.path
        self._identity = file.device, file.inode
        self._offset = offset
        self._rest = b""

    def read(self, *, ended: bool = False) -> NewLines | None:
        """Return the new complete lines, if `ended` also an incomplete last one; None if the path is now another file.
        Raises OSError."""
        descriptor = _open_same_file(self._local_path, self._identity)
        if descriptor is None:
            return None
        dropped = 0
        try:
            size = os.fstat(descriptor).st_size
            if size < self._offset:
                dropped, self._offset, self._rest = self._offset - size, 0, b""
            raw = os.pread(descriptor, CHUNK_BYTES, self._offset)
        finally:
            os.close(descriptor)
        self._offset += len(raw)
        self.reads += 1
        *whole, self._rest = (self._rest + raw).split(b"\n")
        if ended and self._rest:
            whole, self._rest = [*whole, self._rest], b""
        self._rest = self._rest[-CHUNK_BYTES:]
        return NewLines(tuple(whole), dropped)


def _open_same_file(path: str, identity: tuple[int, int]) -> int | None:
    """Open this regular file; None if the path is now another file. Raises OSError.

    Checked before it is opened: opening a pipe would wait, or take data from it.
    """
    at = os.stat(path)
    if (at.st_dev, at.st_ino) != identity or not stat.S_ISREG(at.st_mode):
        return None
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    opened = os.fstat(descriptor)
    if (opened.st_dev, opened.st_ino) == identity:
        return descriptor
    os.close(descriptor)
    return None


def find_run_start(path: str, file: OpenFile, words: bytes | None) -> int | None:
    """Return the offset of the last run in a log, None if not found. Raises OSError."""
    descriptor = None if words is None else _open_same_file(path, (file.device, file.inode))
    if words is None or descriptor is None:
        return None
    try:
        end = file.size
        while end > max(0, file.size - _BACK):
            begin = max(0, end - CHUNK_BYTES)
            # The text may be split between two chunks.
            found = os.pread(descriptor, end - begin + len(words), begin).rfind(words)
            if found >= 0:
                return begin + found
            end = begin
        return None
    finally:
        os.close(descriptor)


MAX_LINE = 4000
"""Maximum characters per line."""
MAX_ABSENT_SCANS = 30
"""Scans for which the log of an ended program is kept for `read_last`."""
_FIRST_MESSAGE = {
    "pg_dump": b"pg_dump: last built-in OID is ",
    "pg_restore": b"pg_restore: connecting to database for restore",
}
"""An early message with -v, in versions 13 to 18, once per run and before any object is named."""
_KEEPER = b"dba_console.keeper"
_ANCESTORS = 4
_COPYING = frozenset(("tee",))
"""Programs that copy their input to files unchanged."""


@dataclass(frozen=True, slots=True)
class NewMessages:
    """The messages since the previous scan."""

    lines: tuple[StampedLine, ...] = ()
    """Redacted."""
    source: str | None = None
    """Where they were read: `stderr in /var/log/r.log`, `keeper in /…`; None if not readable."""
    run: str | None = None
    """Id of the runbook run that started it."""
    from_start: bool = False
    """The first line is the program's first message."""
    old: bool = False
    """The lines existed when the program was found: their times are unknown."""
    dropped: int = 0
    """Lines, or bytes of a truncated log, that are lost."""
    unknown: str | None = None
    """Why they cannot be read, a sentence."""


@dataclass(slots=True)
class _KeeperLog:
    """The log of a keeper."""

    directory: str
    tail: LogReader
    dropped: int = 0


class StderrReader:
    """Reads the messages of programs, scan by scan. Not thread-safe."""

    def __init__(self, proc: str = "/proc", clock: Clock = SYSTEM) -> None:
        self._proc, self._clock = proc, clock
        self._ends = PipeEnds(proc)
        self._files: dict[tuple[int, int], LogFile] = {}
        self._tails: dict[tuple[int, int], _KeeperLog] = {}
        self._absent_scans: dict[tuple[int, int], int] = {}
        self._pipes: set[str] = set()
        self._single_kinds: frozenset[str] = frozenset()
        """Kinds with only one running program: its messages can be assigned without doubt."""

    def read_new(self, programs: Iterable[RunningProgram]) -> dict[int, NewMessages]:
        """Return the messages since the previous scan, by pid of the program."""
        self._ends.start_scan()
        self._pipes = set()
        found, keys = {}, set()
        programs = list(programs)
        kinds = Counter(program.kind for program in programs)
        self._single_kinds = frozenset(kind for kind, count in kinds.items() if count == 1)
        for program in programs:
            key = (program.pid, program.start_ticks)
            keys.add(key)
            try:
                found[program.pid] = self._read_program(program, key)
            except OSError as error:
                found[program.pid] = NewMessages(unknown=f"its messages cannot be read: {error.strerror or error}")
        self._ends.keep_only(self._pipes)
        self._forget_gone(keys)
        return found

    def read_last(self, program: RunningProgram) -> NewMessages:
        """Return the last messages of an ended program, and forget its log."""
        key = (program.pid, program.start_ticks)
        tail, file = self._tails.pop(key, None), self._files.pop(key, None)
        try:
            if tail is not None:
                return self._read_keeper_log(tail)
            if file is not None:
                return self._read_log_file(file, ended=True)
        except OSError as error:
            return NewMessages(unknown=f"the end of its messages cannot be read: {error.strerror or error}")
        return NewMessages()

    def has_keeper(self, program: RunningProgram) -> bool:
        """Check whether one of our keepers runs the program."""
        return (program.pid, program.start_ticks) in self._tails or any(
            self._keeper_directory(ancestor) is not None for ancestor in self._ancestors(program)
        )

    def _forget_gone(self, keys: set[tuple[int, int]]) -> None:
        """Forget ended programs for which `read_last` was not called."""
        absent = (self._files.keys() | self._tails.keys()) - keys
        self._absent_scans = {key: self._absent_scans.get(key, 0) + 1 for key in absent}
        for key in [key for key, scans in self._absent_scans.items() if scans > MAX_ABSENT_SCANS]:
            self._files.pop(key, None)
            self._tails.pop(key, None)

    def _read_program(self, program: RunningProgram, key: tuple[int, int]) -> NewMessages:
        if key in self._tails:
            return self._read_keeper_log(self._tails[key])
        if key in self._files:
            known = self._files[key]
            return self._read_log_file(known)
        try:
            links = read_links(self._proc, program.pid)
        except PermissionError:
            return NewMessages(unknown=f"the messages of process {program.pid} are readable only by its user and root")
        link = next((link for link in links if link.fd == 2), None)
        if link is None:
            return NewMessages(unknown="it has no standard error")
        file = read_open_file(self._proc, program.pid, link)
        if file is not None and _is_output(program, file, links):
            return NewMessages(unknown="its messages go to the same file as its output and are not read there")
        if file is not None:
            return self._open_log(program, key, file)
        pipe = pipe_key(self._proc, program.pid, link)
        return NewMessages(unknown=_unreadable_reason(link)) if pipe is None else self._read_pipe(program, key, pipe)

    def _open_log(self, program: RunningProgram, key: tuple[int, int], file: OpenFile) -> NewMessages:
        """Open a log found now: from its start if only this program writes to it, else from its end."""
        if file.deleted:
            return NewMessages(unknown=f"its messages go to {clean(file.path)}, which was removed")
        start = 0 if not file.appends and not self._is_shared(program, file) else None
        if start is None and program.arguments.verbose and program.kind in self._single_kinds:
            start = find_run_start(program.root + file.path, file, _FIRST_MESSAGE.get(program.kind))
        at = file.size if start is None else start
        known = LogFile(file, program.root, at, start is not None)
        self._files[key] = known
        return self._read_log_file(known)

    def _is_shared(self, program: RunningProgram, file: OpenFile) -> bool:
        """Check whether its parent process has the file open too: then it contains messages of other programs."""
        try:
            links = read_links(self._proc, program.ppid)
        except OSError:
            return True
        files = (read_open_file(self._proc, program.ppid, link) for link in links)
        return any(one is not None and (one.device, one.inode) == (file.device, file.inode) for one in files)

    def _read_pipe(self, program: RunningProgram, key: tuple[int, int], pipe: str) -> NewMessages:
        for pid in self._pipe_readers(program, pipe):
            directory = self._keeper_directory(pid)
            if directory is not None:
                self._tails[key] = _KeeperLog(directory, LogReader(directory))
                return self._read_keeper_log(self._tails[key])
            stat_ = read_stat(self._proc, pid)
            if stat_ is not None and stat_.command in _COPYING and (file := self._tee_output(pid)) is not None:
                known = LogFile(file, program.root, *_copy_start(file))
                self._files[key] = known
                return self._read_log_file(known)
            return NewMessages(
                unknown=f"its messages go to {clean(process_text(self._proc, pid))}, which cannot be read"
            )
        return NewMessages(unknown="its messages go to a pipe whose reader is unknown")

    def _pipe_readers(self, program: RunningProgram, pipe: str) -> list[int]:
        """Return the readers of its messages: a keeper among its ancestors, else the processes at the pipe's end."""
        self._pipes.add(pipe)
        for ancestor in self._ancestors(program):
            if self._keeper_directory(ancestor) is not None and self._has_pipe(ancestor, pipe):
                return [ancestor]
        return list(self._ends.find_holders(pipe, writing=False, owner=program.pid) or ())

    def _ancestors(self, program: RunningProgram) -> Iterator[int]:
        ancestor = program.ppid
        for _ in range(_ANCESTORS):
            above = read_stat(self._proc, ancestor)
            if above is None or ancestor <= 1:
                return
            yield ancestor
            ancestor = above.parent

    def _has_pipe(self, pid: int, pipe: str) -> bool:
        try:
            return any(link.pipe == pipe for link in read_links(self._proc, pid))
        except OSError:
            return False

    def _keeper_directory(self, pid: int) -> str | None:
        """Return the log directory of one of our keepers; None for any other process."""
        try:
            if _KEEPER not in read_once(f"{self._proc}/{pid}/cmdline", 4096):
                return None
            links = read_links(self._proc, pid)
        except OSError:
            return None
        logs = (link.target for link in links if link.target.endswith((".log", ".tail")))
        return next((posixpath.dirname(path) for path in logs), None)

    def _tee_output(self, pid: int) -> OpenFile | None:
        files = (read_open_file(self._proc, pid, link) for link in read_links(self._proc, pid) if link.fd > 2)
        return next((one for one in files if one is not None and one.writes), None)

    def _read_keeper_log(self, kept: _KeeperLog) -> NewMessages:
        lines = kept.tail.read(CHUNK_BYTES)
        lines_read = tuple(
            StampedLine(line.wall_us, line.stream, _clean_line(line.text))
            for line in lines
            if line.whole and line.stream != "k"
        )
        dropped, kept.dropped = kept.tail.dropped_lines - kept.dropped, kept.tail.dropped_lines
        source = f"keeper in {clean(kept.directory)}"
        return NewMessages(lines_read, source, run_id(kept.directory), from_start=True, dropped=dropped)

    def _read_log_file(self, file: LogFile, *, ended: bool = False) -> NewMessages:
        source = f"stderr in {clean(file.path)}"
        got = file.read(ended=ended)
        if got is None:
            return NewMessages(source=source, unknown=f"{clean(file.path)} was rotated: it is another file now")
        now_us = self._clock.wall_us()
        lines_read = tuple(
            StampedLine(now_us, "e", _clean_line(line.decode("utf-8", "surrogateescape"))) for line in got.lines
        )
        return NewMessages(lines_read, source, None, file.from_start, file.reads == 1, got.dropped)


def _is_output(program: RunningProgram, file: OpenFile, links: list[DescriptorLink]) -> bool:
    """Check whether a dump's data go to the same file: `pg_dump > all 2>&1`, or started without standard error."""
    if not writes_files(program):
        return False
    output = program.arguments.output
    if output is None:
        return any(link.fd == 1 and link.target == f"{file.path}" for link in links)
    path = program.absolute_path(output)
    return path is None or file.path == path or file.path.startswith(f"{path}/")


def run_id(directory: str) -> str | None:
    """Return the run id from a keeper's directory, None if it does not belong to a run.

    >>> run_id("/s/db1/runs/20261122T091500Z-dump-1a2b/steps/take.1"), run_id("/tmp/x")
    ('20261122T091500Z-dump-1a2b', None)
    """
    before, found, after = directory.rpartition("/runs/")
    return after.split("/")[0] if found and before else None


def _copy_start(file: OpenFile) -> tuple[int, bool]:
    """Return where to start reading a tee output: one opened for append may contain messages of other programs."""
    return (file.size, False) if file.appends else (0, True)


def _clean_line(line: str) -> str:
    """Return the line redacted; invalid UTF-8 is replaced, as in a table of contents."""
    if not line.isascii():
        line = line.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return redact(line[:MAX_LINE].rstrip("\r"))


def _unreadable_reason(link: DescriptorLink) -> str:
    if link.socket is not None:
        return "its messages go to a socket (as of a service to the journal) and cannot be read"
    if link.target.startswith(("/dev/pts", "/dev/tty", "/dev/console")):
        return f"its messages go to a terminal ({link.target}) and cannot be read"
    if link.target.startswith("/dev/null"):
        return "its messages are discarded (/dev/null)"
    return f"its messages go to {clean(link.target)}, which cannot be read"
