"""Which dumps, restores and other long programs run on this host, found by the names of processes.

A host has thousands of processes and seldom a dump: a look lists them, reads those that are new, and the others in
turn, for a shell may become a dump (exec) at any time. Command lines are read of the programs alone, once each.
"""

from __future__ import annotations

import os
import posixpath
import pwd
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from dba_console.jobs.following.program_arguments import ProgramArguments, command_text, parse_arguments
from dba_console.watch.probes.host.kernel_files import ProcStat, read_once, read_stat

KINDS = frozenset(
    ("pg_dump", "pg_dumpall", "pg_restore", "pg_basebackup", "pgcopydb", "psql", "vacuumdb", "reindexdb", "clusterdb")
)
"""Programs that are looked for, by the name the kernel keeps of their executable."""
SCAN_TURNS = 20
"""Looks in which every process has been read once more."""
NEW_PROCESS_SCANS = 3
"""A process is read in so many looks after its first one: between fork and exec it has its parent's name."""
ARGUMENTS_SIZE = 131_072
"""Bytes of a command line that are read."""
_OWN_DESCRIPTOR = re.compile(r"/(?:dev|proc/self)/fd/(\d+)")
_NAMES = frozenset(f"{kind}\n".encode() for kind in KINDS)
"""As /proc/PID/comm has them."""
_VERSION = re.compile(r"/(?:postgresql|pgsql|postgres|pg|edb|as)[-_/]?(\d+(?:\.\d+)*)(?:/[^/]+)*/[^/]+$")


@dataclass(frozen=True, slots=True)
class RunningProgram:
    """One running program. pid and start_ticks together are its identity."""

    pid: int
    start_ticks: int
    """After boot, in ticks of USER_HZ."""
    ppid: int
    kind: str
    """One of KINDS."""
    started_us: int
    """Host wall time, on the hundredth of a second."""
    uid: int | None
    user: str | None
    """Of its user id on this host, which need not be its role on the server."""
    state: str
    """As in /proc/PID/stat: R, S, D, T (stopped), Z (ended, not yet reaped)."""
    command: str | None
    """Redacted, harmless; None where it could not be read."""
    arguments: ProgramArguments
    version: str | None
    """As told by the directory it lies in (`/usr/lib/postgresql/15/bin`), else None: it is never run to be asked."""
    directory: str | None
    """Its working directory: what relative paths among its arguments are relative to."""
    root: str
    """Prefix under which its paths are found from here: "" where it sees the file systems we see."""
    workers: tuple[int, ...] = ()
    """Processes of a parallel pg_dump or pg_restore, in the order of their pids."""
    under: int | None = None
    """pid of the pg_dumpall that started it."""
    unknown: tuple[str, ...] = ()
    """What may not be read and why, in sentences."""

    @property
    def pids(self) -> tuple[int, ...]:
        """Itself and its workers."""
        return (self.pid, *self.workers)

    def absolute_path(self, written: str) -> str | None:
        """A path among its arguments made absolute, None where its directory is not known."""
        if (own := _OWN_DESCRIPTOR.fullmatch(written)) is not None:  # its own descriptor, not that of who asks
            return f"/proc/{self.pid}/fd/{own[1]}"
        if posixpath.isabs(written):
            return posixpath.normpath(written)
        return None if self.directory is None else posixpath.normpath(posixpath.join(self.directory, written))


class ProgramScanner:
    """The programs of a host, look by look. Used by one thread."""

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._name_reads: dict[int, int] = {}
        """Every process of the host -> how often its name was read."""
        self._known: dict[int, RunningProgram] = {}
        self._turn = 0
        self._self = os.getpid()

    def scan(self) -> list[RunningProgram]:
        """The programs that run now, in the order of their pids, without their workers. Raises OSError only where
        there is no /proc at all; processes that end meanwhile are left out."""
        pids = [int(name) for name in os.listdir(self._proc) if name.isdigit()]
        for pid in self._name_reads.keys() - pids:
            del self._name_reads[pid]
        self._turn = (self._turn + 1) % SCAN_TURNS
        found = {pid: program for pid in pids if self._is_due(pid) and (program := self._read_process(pid)) is not None}
        self._known = found
        return _group_workers(found, self._parent)

    def _is_due(self, pid: int) -> bool:
        return self._name_reads.get(pid, 0) < NEW_PROCESS_SCANS or pid % SCAN_TURNS == self._turn or pid in self._known

    def _read_process(self, pid: int) -> RunningProgram | None:
        """What the process is now. Its name is the cheapest thing to read of it."""
        self._name_reads[pid] = self._name_reads.get(pid, 0) + 1
        try:
            name = read_once(f"{self._proc}/{pid}/comm", 64)
        except OSError:
            return None
        if name not in _NAMES or pid == self._self or (stat := read_stat(self._proc, pid)) is None:
            return None
        if stat.command not in KINDS or stat.state in "ZX":
            return None
        known = self._known.get(pid)
        if known is not None and known.start_ticks == stat.start_ticks and known.kind == stat.command:
            return replace(known, state=stat.state, ppid=stat.parent, workers=(), under=None)
        return _read_program(self._proc, pid, stat)

    def _parent(self, pid: int) -> int:
        stat = read_stat(self._proc, pid)
        return 0 if stat is None else stat.parent


def find_programs(proc: str = "/proc") -> list[RunningProgram]:
    """The programs that run now; who looks again and again keeps a `ProgramScanner`."""
    return ProgramScanner(proc).scan()


def _group_workers(found: dict[int, RunningProgram], parent_of: Callable[[int], int]) -> list[RunningProgram]:
    """Workers given to their leaders, dumps to their pg_dumpall."""
    workers: dict[int, list[int]] = {}
    for program in found.values():
        leader = found.get(program.ppid)
        if leader is not None and _is_worker(program, leader):
            workers.setdefault(leader.pid, []).append(program.pid)
    of_others = {pid for pids in workers.values() for pid in pids}
    joined = []
    for pid in sorted(found.keys() - of_others):
        program = found[pid]
        under = _find_pg_dumpall(program, found, parent_of) if program.kind == "pg_dump" else None
        joined.append(replace(program, workers=tuple(sorted(workers.get(pid, ()))), under=under))
    return joined


def _is_worker(program: RunningProgram, leader: RunningProgram) -> bool:
    """A fork of its leader: the same program with the same arguments. One that was executed anew has its own."""
    return program.kind == leader.kind and program.command == leader.command and program.kind != "psql"


def _find_pg_dumpall(
    program: RunningProgram, found: dict[int, RunningProgram], parent_of: Callable[[int], int]
) -> int | None:
    """The pg_dumpall above, perhaps with a shell between."""
    ancestor = program.ppid
    for _ in range(2):
        if ancestor in found and found[ancestor].kind == "pg_dumpall":
            return ancestor
        ancestor = parent_of(ancestor) if any(one.kind == "pg_dumpall" for one in found.values()) else 0
    return None


def _read_program(proc: str, pid: int, stat: ProcStat) -> RunningProgram | None:
    """All there is to know of one program; None where it has not become that program yet, or is gone."""
    words = _read_arguments(proc, pid)
    if words == []:
        return None
    unknown = []
    executable = _read_link(proc, pid, "exe")
    if executable is not None and posixpath.basename(executable).startswith(("perl", "python", "sh", "bash", "dash")):
        return None  # the wrapper of that name, which is about to become the program
    uid, user = _user(proc, pid)
    if words is None:
        unknown.append(f"the arguments of process {pid} ({stat.command}) cannot be read")
    directory = _read_link(proc, pid, "cwd")
    if executable is None:
        owner = "its user" if user is None else user
        unknown.append(
            f"process {pid} ({stat.command}) belongs to {owner}: which files it reads and writes, and which session is "
            "its own, can be seen by that user and by root only"
        )
    return RunningProgram(
        pid=pid, start_ticks=stat.start_ticks, ppid=stat.parent, kind=stat.command,
        started_us=wall_time_us(stat.start_ticks), uid=uid, user=user, state=stat.state,
        command=None if words is None else command_text(stat.command, words),
        arguments=ProgramArguments() if words is None else parse_arguments(stat.command, words),
        version=_version(executable or (words[0] if words else "")),
        directory=directory, root=_root(proc, pid), unknown=tuple(unknown),
    )  # fmt: skip


def _read_arguments(proc: str, pid: int) -> list[str] | None:
    """The arguments, of a long line its beginning; empty while there are none, None where they may not be read."""
    try:
        raw = read_once(f"{proc}/{pid}/cmdline", ARGUMENTS_SIZE)
    except (FileNotFoundError, ProcessLookupError):
        return []
    except OSError:
        return None
    words = raw.removesuffix(b"\0").split(b"\0") if raw else []
    if len(raw) >= ARGUMENTS_SIZE:
        words = words[:-1]
    return [word.decode("utf-8", "surrogateescape") for word in words]


def _read_link(proc: str, pid: int, name: str) -> str | None:
    """Where a link of the process leads, None without the right to see it."""
    try:
        return os.readlink(f"{proc}/{pid}/{name}").removesuffix(" (deleted)")
    except OSError:
        return None


def _user(proc: str, pid: int) -> tuple[int | None, str | None]:
    try:
        uid = os.stat(f"{proc}/{pid}").st_uid
    except OSError:
        return None, None
    try:
        return uid, pwd.getpwuid(uid).pw_name
    except KeyError:
        return uid, f"user {uid}"


def _root(proc: str, pid: int) -> str:
    """A process in a container, or in a chroot, has other files under the same names."""
    try:
        same = os.readlink(f"{proc}/{pid}/ns/mnt") == os.readlink(f"{proc}/self/ns/mnt")
        if same and os.readlink(f"{proc}/{pid}/root") == os.readlink(f"{proc}/self/root"):
            return ""
    except OSError:
        return ""
    return f"{proc}/{pid}/root"


def _version(path: str) -> str | None:
    """The version a program's directory is named after.

    >>> _version("/usr/lib/postgresql/15/bin/pg_dump"), _version("/usr/pgsql-16/bin/pg_dump"), _version("/usr/bin/psql")
    ('15', '16', None)
    """
    found = _VERSION.search(path)
    return None if found is None else found[1]


def wall_time_us(start_ticks: int) -> int:
    """Host wall time of a moment so many ticks after boot, microseconds: right as the clock is set now."""
    since_boot_us = start_ticks * 1_000_000 // os.sysconf("SC_CLK_TCK")
    return time.time_ns() // 1000 - (time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000 - since_boot_us)


def all_pids(programs: Iterable[RunningProgram]) -> frozenset[int]:
    """Every process of these programs."""
    return frozenset(pid for program in programs for pid in program.pids)


def writes_files(program: RunningProgram) -> bool:
    """What writes files itself. A pg_restore without a database writes a script; psql writes what it is asked for."""
    if program.kind == "pg_restore":
        return not program.arguments.to_database and not program.arguments.lists
    return program.kind in ("pg_dump", "pg_dumpall", "pg_basebackup")
