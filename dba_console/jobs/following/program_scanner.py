"""Find the dump, restore and other long-running programs on this host, by process name.

A host has thousands of processes and rarely a dump: a scan lists them, reads the names of new ones, and those of the
others in turn, because a shell may become a dump (exec) at any time. The command line of a program is read once.
"""

from __future__ import annotations

import os
import posixpath
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from dba_console.core.users import user_name
from dba_console.jobs.following.program_arguments import ProgramArguments, command_text, parse_arguments
from dba_console.watch.probes.host.kernel_files import ProcStat, list_pids, read_once, read_stat

KINDS = frozenset(
    ("pg_dump", "pg_dumpall", "pg_restore", "pg_basebackup", "pgcopydb", "psql", "vacuumdb", "reindexdb", "clusterdb")
)
"""The programs to find, by the kernel's name of their executable."""
SCAN_TURNS = 20
"""Number of scans in which every process is read again."""
NEW_PROCESS_SCANS = 3
"""Number of scans in which a new process is read: between fork and exec it has its parent's name."""
ARGUMENTS_SIZE = 131_072
"""Maximum bytes read of a command line."""
_OWN_DESCRIPTOR = re.compile(r"/(?:dev|proc/self)/fd/(\d+)")
_NAMES = frozenset(f"{kind}\n".encode() for kind in KINDS)
"""As in /proc/PID/comm."""
_VERSION = re.compile(r"/(?:postgresql|pgsql|postgres|pg|edb|as)[-_/]?(\d+(?:\.\d+)*)(?:/[^/]+)*/[^/]+$")


@dataclass(frozen=True, slots=True)
class RunningProgram:
    """A running program. pid and start_ticks together are its identity."""

    pid: int
    start_ticks: int
    """Start time after boot, in ticks of USER_HZ."""
    ppid: int
    kind: str
    """One of KINDS."""
    started_us: int
    """Host wall time, resolution 10 ms."""
    uid: int | None
    user: str | None
    """Its user on this host, which may differ from its role on the server."""
    state: str
    """As in /proc/PID/stat: R, S, D, T (stopped), Z (ended, not yet reaped)."""
    command: str | None
    """Redacted, sanitized; None if not readable."""
    arguments: ProgramArguments
    version: str | None
    """From its directory (`/usr/lib/postgresql/15/bin`), else None: the program is never run to find out."""
    directory: str | None
    """Its working directory, the base of relative paths in its arguments."""
    root: str
    """Prefix for its paths as seen from here: "" in the same mount namespace and root."""
    workers: tuple[int, ...] = ()
    """Processes of a parallel pg_dump or pg_restore, in the order of their pids."""
    under: int | None = None
    """pid of the pg_dumpall that started it."""
    unknown: tuple[str, ...] = ()
    """What cannot be read and why, in sentences."""

    @property
    def pids(self) -> tuple[int, ...]:
        """Itself and its workers."""
        return (self.pid, *self.workers)

    def absolute_path(self, written: str) -> str | None:
        """Return a path from its arguments as an absolute one; None if its directory is unknown."""
        if (own := _OWN_DESCRIPTOR.fullmatch(written)) is not None:  # a descriptor of that process, not ours
            return f"/proc/{self.pid}/fd/{own[1]}"
        if posixpath.isabs(written):
            return posixpath.normpath(written)
        return None if self.directory is None else posixpath.normpath(posixpath.join(self.directory, written))


class ProgramScanner:
    """Finds the programs of a host, scan by scan. Not thread-safe."""

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._name_reads: dict[int, int] = {}
        """Every process of the host -> how often its name was read so far."""
        self._known: dict[int, RunningProgram] = {}
        self._turn = 0
        self._self = os.getpid()

    def scan(self) -> list[RunningProgram]:
        """Return the running programs by pid, with workers grouped under their leaders. Raises OSError only without
        /proc; processes that end meanwhile are left out."""
        pids = list_pids(self._proc)
        for pid in self._name_reads.keys() - pids:
            del self._name_reads[pid]
        self._turn = (self._turn + 1) % SCAN_TURNS
        found = {pid: program for pid in pids if self._is_due(pid) and (program := self._read_process(pid)) is not None}
        self._known = found
        return _group_workers(found, self._parent)

    def _is_due(self, pid: int) -> bool:
        return self._name_reads.get(pid, 0) < NEW_PROCESS_SCANS or pid % SCAN_TURNS == self._turn or pid in self._known

    def _read_process(self, pid: int) -> RunningProgram | None:
        """Return the program a process runs now; reads its name first, which is cheapest."""
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


def _group_workers(found: dict[int, RunningProgram], parent_of: Callable[[int], int]) -> list[RunningProgram]:
    """Group workers under their leaders, and dumps under their pg_dumpall."""
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
    """Check whether it is a fork of the leader: the same program with the same arguments."""
    return program.kind == leader.kind and program.command == leader.command and program.kind != "psql"


def _find_pg_dumpall(
    program: RunningProgram, found: dict[int, RunningProgram], parent_of: Callable[[int], int]
) -> int | None:
    """Return the pg_dumpall that started it, possibly through a shell."""
    ancestor = program.ppid
    for _ in range(2):
        if ancestor in found and found[ancestor].kind == "pg_dumpall":
            return ancestor
        ancestor = parent_of(ancestor) if any(one.kind == "pg_dumpall" for one in found.values()) else 0
    return None


def _read_program(proc: str, pid: int, stat: ProcStat) -> RunningProgram | None:
    """Read all facts of one program; None if it is still a wrapper script or has ended."""
    words = _read_arguments(proc, pid)
    if words == []:
        return None
    unknown = []
    executable = _read_link(proc, pid, "exe")
    if executable is not None and posixpath.basename(executable).startswith(("perl", "python", "sh", "bash", "dash")):
        return None  # a wrapper script that will exec the program
    uid, user = _user(proc, pid)
    if words is None:
        unknown.append(f"the arguments of process {pid} ({stat.command}) cannot be read")
    directory = _read_link(proc, pid, "cwd")
    if executable is None:
        owner = "its user" if user is None else user
        unknown.append(
            f"process {pid} ({stat.command}) belongs to {owner}: its files and its sessions are visible only to that "
            "user and root"
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
    """Return the arguments, truncated if very long; empty if there are none yet, None if not readable."""
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
    """Return the target of a /proc link of the process, None without permission."""
    try:
        return os.readlink(f"{proc}/{pid}/{name}").removesuffix(" (deleted)")
    except OSError:
        return None


def _user(proc: str, pid: int) -> tuple[int | None, str | None]:
    try:
        uid = os.stat(f"{proc}/{pid}").st_uid
    except OSError:
        return None, None
    return uid, user_name(uid)


def _root(proc: str, pid: int) -> str:
    """Return the path prefix of a process in a container or chroot, where the same paths are other files."""
    try:
        same = os.readlink(f"{proc}/{pid}/ns/mnt") == os.readlink(f"{proc}/self/ns/mnt")
        if same and os.readlink(f"{proc}/{pid}/root") == os.readlink(f"{proc}/self/root"):
            return ""
    except OSError:
        return ""
    return f"{proc}/{pid}/root"


def _version(path: str) -> str | None:
    """Return the version in a program's directory.

    >>> _version("/usr/lib/postgresql/15/bin/pg_dump"), _version("/usr/pgsql-16/bin/pg_dump"), _version("/usr/bin/psql")
    ('15', '16', None)
    """
    found = _VERSION.search(path)
    return None if found is None else found[1]


def wall_time_us(start_ticks: int) -> int:
    """Return the host wall time of `start_ticks` after boot in microseconds, by the current clock setting."""
    since_boot_us = start_ticks * 1_000_000 // os.sysconf("SC_CLK_TCK")
    return time.time_ns() // 1000 - (time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000 - since_boot_us)


def writes_files(program: RunningProgram) -> bool:
    """Check whether a program writes files itself; pg_restore without a database writes a script."""
    if program.kind == "pg_restore":
        return not program.arguments.to_database and not program.arguments.lists
    return program.kind in ("pg_dump", "pg_dumpall", "pg_basebackup")
