"""What programs say while they run, where it can be read from outside: a log file, or the log of one of our keepers.

The file behind a program's standard error is read on from a place that is kept. A log that others write to as well
(`>> backup.log` of a whole script) is read from the words every verbose run begins with; where there are none it is
read from where it was when the program was first seen, for what stands before may be another run's. A terminal, a pipe
into somebody's program or the journal cannot be read, and that is said.
"""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from dba_console.clock import SYSTEM, Clock
from dba_console.harmless import clean
from dba_console.keeping.tail import Tail
from dba_console.probes.host.files import read_once
from dba_console.probes.host.procstat import stat_of
from dba_console.probes.jobs.descriptors import Link, OpenFile, file_of, links_of, pipe_key
from dba_console.probes.jobs.ends import Ends, name_of
from dba_console.probes.jobs.logfile import CHUNK, LogFile, beginning
from dba_console.probes.jobs.programs import Program, writes_files
from dba_console.redact import redact

LONGEST = 4000
"""Characters of a line that are kept."""
PATIENCE = 30
"""Looks for which the log of a program that is gone is kept for `last`."""
_FIRST_WORDS = {
    "pg_dump": b"pg_dump: last built-in OID is ",
    "pg_restore": b"pg_restore: connecting to database for restore",
}
"""What a program says early with -v, in every version from 13 to 18 and once in a run; before it no object is named."""
_KEEPER = b"dba_console.keeper"
_ANCESTORS = 4
_COPYING = frozenset(("tee",))
"""Programs that write what they read into files as it is."""


@dataclass(frozen=True, slots=True)
class Said:
    """One line of a program's messages, redacted."""

    wall_us: int
    text: str
    stream: str
    """o or e where a keeper kept them apart; e else."""
    stamped: bool
    """A keeper took the time when the line came; else it is that of the look that found it."""


@dataclass(frozen=True, slots=True)
class Words:
    """What was said since the look before."""

    lines: tuple[Said, ...] = ()
    source: str | None = None
    """Where it was read: `stderr in /var/log/r.log`, `keeper in /…`; None where it cannot be."""
    run: str | None = None
    """Id of the run of a runbook that started it."""
    from_start: bool = False
    """Nothing was said before the first line of the first look."""
    old: bool = False
    """These lines were there when the program was first seen: when they came is not known."""
    dropped: int = 0
    """Lines, or bytes of a log that was cut, that cannot be read any more."""
    unknown: str | None = None
    """Why it cannot be read, a sentence."""


@dataclass(slots=True)
class _Kept:
    """The log of a keeper."""

    directory: str
    tail: Tail
    dropped: int = 0


class Logs:
    """The messages of programs, look by look. Used by one thread."""

    def __init__(self, proc: str = "/proc", clock: Clock = SYSTEM) -> None:
        self._proc, self._clock = proc, clock
        self._ends = Ends(proc)
        self._files: dict[tuple[int, int], LogFile] = {}
        self._tails: dict[tuple[int, int], _Kept] = {}
        self._gone: dict[tuple[int, int], int] = {}
        self._pipes: set[str] = set()
        self._alone: frozenset[str] = frozenset()
        """Kinds of which but one program runs: what such a program says is that one's."""

    def look(self, programs: Iterable[Program]) -> dict[int, Words]:
        """pid of each program -> what it said since the look before."""
        self._ends.begin()
        self._pipes = set()
        found, keys = {}, set()
        programs = list(programs)
        kinds = Counter(program.kind for program in programs)
        self._alone = frozenset(kind for kind, count in kinds.items() if count == 1)
        for program in programs:
            key = (program.pid, program.start_ticks)
            keys.add(key)
            try:
                found[program.pid] = self._of(program, key)
            except OSError as error:
                found[program.pid] = Words(unknown=f"its messages cannot be read: {error.strerror or error}")
        self._ends.forget(self._pipes)
        self._forget(keys)
        return found

    def last(self, program: Program) -> Words:
        """What was said up to the end of a program that is gone; its log is forgotten then."""
        key = (program.pid, program.start_ticks)
        tail, file = self._tails.pop(key, None), self._files.pop(key, None)
        try:
            if tail is not None:
                return self._kept(tail)
            if file is not None:
                return self._read(file, ended=True)
        except OSError as error:
            return Words(unknown=f"the end of its messages cannot be read: {error.strerror or error}")
        return Words()

    def _forget(self, keys: set[tuple[int, int]]) -> None:
        """Let go of programs whose end nobody asked for."""
        absent = (self._files.keys() | self._tails.keys()) - keys
        self._gone = {key: self._gone.get(key, 0) + 1 for key in absent}
        for key in [key for key, looks in self._gone.items() if looks > PATIENCE]:
            self._files.pop(key, None)
            self._tails.pop(key, None)

    def _of(self, program: Program, key: tuple[int, int]) -> Words:
        if key in self._tails:
            return self._kept(self._tails[key])
        if key in self._files:
            known = self._files[key]
            return self._read(known)
        try:
            links = links_of(self._proc, program.pid)
        except PermissionError:
            return Words(unknown=f"the messages of process {program.pid} can be read by its user and root only")
        link = next((link for link in links if link.fd == 2), None)
        if link is None:
            return Words(unknown="it has no standard error")
        file = file_of(self._proc, program.pid, link)
        if file is not None and _is_output(program, file, links):
            return Words(unknown="its messages go into the very file it writes its output to, and are not read there")
        if file is not None:
            return self._begin(program, key, file)
        pipe = pipe_key(self._proc, program.pid, link)
        return Words(unknown=_unreadable(link)) if pipe is None else self._piped(program, key, pipe)

    def _begin(self, program: Program, key: tuple[int, int], file: OpenFile) -> Words:
        """A log found now: of this program alone it is read from its beginning, else from its end."""
        if file.deleted:
            return Words(unknown=f"its messages go to {clean(file.path)}, which was removed")
        start = 0 if not file.appends and not self._shared(program, file) else None
        if start is None and program.arguments.verbose and program.kind in self._alone:
            start = beginning(program.root + file.path, file, _FIRST_WORDS.get(program.kind))
        at = file.size if start is None else start
        known = LogFile(file, program.root, at, start is not None)
        self._files[key] = known
        return self._read(known)

    def _shared(self, program: Program, file: OpenFile) -> bool:
        """Whether who started it has the file open too: then others' messages are in it."""
        try:
            links = links_of(self._proc, program.ppid)
        except OSError:
            return True
        files = (file_of(self._proc, program.ppid, link) for link in links)
        return any(one is not None and (one.device, one.inode) == (file.device, file.inode) for one in files)

    def _piped(self, program: Program, key: tuple[int, int], pipe: str) -> Words:
        for pid in self._readers(program, pipe):
            directory = self._keeper_directory(pid)
            if directory is not None:
                self._tails[key] = _Kept(directory, Tail(directory))
                return self._kept(self._tails[key])
            stat_ = stat_of(self._proc, pid)
            if stat_ is not None and stat_.command in _COPYING and (file := self._copy_of(pid)) is not None:
                known = LogFile(file, program.root, *_from(file))
                self._files[key] = known
                return self._read(known)
            return Words(unknown=f"its messages go to {clean(name_of(self._proc, pid))}, which cannot be read")
        return Words(unknown="who reads its messages is not known")

    def _readers(self, program: Program, pipe: str) -> list[int]:
        """Who reads its messages: its keeper first, which is above it, then whoever holds the pipe."""
        self._pipes.add(pipe)
        ancestor, found = program.ppid, []
        for _ in range(_ANCESTORS):
            above = stat_of(self._proc, ancestor)
            if above is None or ancestor <= 1:
                break
            if self._keeper_directory(ancestor) is not None and self._reads(ancestor, pipe):
                found.append(ancestor)
                break
            ancestor = above.parent
        return found or list(self._ends.holders(pipe, writing=False, near=program.pid) or ())

    def _reads(self, pid: int, pipe: str) -> bool:
        try:
            return any(link.pipe == pipe for link in links_of(self._proc, pid))
        except OSError:
            return False

    def _keeper_directory(self, pid: int) -> str | None:
        """Where a keeper of ours writes its log; None for any other process."""
        try:
            if _KEEPER not in read_once(f"{self._proc}/{pid}/cmdline", 4096):
                return None
            links = links_of(self._proc, pid)
        except OSError:
            return None
        logs = (link.target for link in links if link.target.endswith((".log", ".tail")))
        return next((posixpath.dirname(path) for path in logs), None)

    def _copy_of(self, pid: int) -> OpenFile | None:
        files = (file_of(self._proc, pid, link) for link in links_of(self._proc, pid) if link.fd > 2)
        return next((one for one in files if one is not None and one.writes), None)

    def _kept(self, kept: _Kept) -> Words:
        lines = kept.tail.read(CHUNK)
        said = tuple(
            Said(line.wall_us, _text(line.text), line.stream, True)
            for line in lines
            if line.whole and line.stream != "k"
        )
        dropped, kept.dropped = kept.tail.dropped_lines - kept.dropped, kept.tail.dropped_lines
        source = f"keeper in {clean(kept.directory)}"
        return Words(said, source, run_of(kept.directory), from_start=True, dropped=dropped)

    def _read(self, file: LogFile, *, ended: bool = False) -> Words:
        source = f"stderr in {clean(file.path)}"
        got = file.read(ended=ended)
        if got is None:
            return Words(source=source, unknown=f"{clean(file.path)} is another file now: it was rotated")
        now_us = self._clock.wall_us()
        said = tuple(Said(now_us, _text(line.decode("utf-8", "surrogateescape")), "e", False) for line in got.lines)
        return Words(said, source, None, file.from_start, file.looks == 1, got.dropped)


def _is_output(program: Program, file: OpenFile, links: list[Link]) -> bool:
    """Whether a dump's data lie where its messages go: `pg_dump > all 2>&1`, or started without a standard error."""
    if not writes_files(program):
        return False
    output = program.arguments.output
    if output is None:
        return any(link.fd == 1 and link.target == f"{file.path}" for link in links)
    place = program.path(output)
    return place is None or file.path == place or file.path.startswith(f"{place}/")


def run_of(directory: str) -> str | None:
    """The id of the run in whose directory a keeper writes, None where it is of none.

    >>> run_of("/s/db1/runs/20261122T091500Z-dump-1a2b/steps/take.1"), run_of("/tmp/x")
    ('20261122T091500Z-dump-1a2b', None)
    """
    before, found, after = directory.rpartition("/runs/")
    return after.split("/")[0] if found and before else None


def _from(file: OpenFile) -> tuple[int, bool]:
    """Where a copy is read from: one that is appended to may hold others' messages."""
    return (file.size, False) if file.appends else (0, True)


def _text(line: str) -> str:
    """Redacted; what is no UTF-8 is replaced, as names in a table of contents are."""
    if not line.isascii():
        line = line.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return redact(line[:LONGEST].rstrip("\r"))


def _unreadable(link: Link) -> str:
    if link.socket is not None:
        return "its messages go to a socket, as of a service into the journal, and cannot be read"
    if link.target.startswith(("/dev/pts", "/dev/tty", "/dev/console")):
        return f"its messages go to a terminal ({link.target}) and cannot be read"
    if link.target.startswith("/dev/null"):
        return "its messages are thrown away"
    return f"its messages go to {clean(link.target)}, which cannot be read"
