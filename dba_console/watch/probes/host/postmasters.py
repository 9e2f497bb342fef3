"""Which postmasters run on this host: found by their processes, told by their own files where these can be read.

Used where no connection is to be had (blind mode). That a connected server runs here is proven by
probes/postgres/server_locality.py.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from dba_console.core.clock import SYSTEM, Clock
from dba_console.watch.probes.deadline_lane import Lane, LaneTimeout
from dba_console.watch.probes.host.data_directory import read_lock_file
from dba_console.watch.probes.host.kernel_files import KernelFile, read_file, read_once, read_stat

COMMANDS = frozenset(("postgres", "postmaster", "edb-postgres", "edb-postmaster"))
"""Names of the server's executable as /proc/PID/stat tells them."""

DEADLINE_S = 0.3
"""For what each postmaster's own file system and address space have to tell."""

_SOCKET = re.compile(rb" (/\S.*)/\.s\.PGSQL\.(\d+)$", re.M)
_LISTENING = b"00010000"
"""__SO_ACCEPTCON in the flags column of /proc/net/unix."""


@dataclass(frozen=True, slots=True)
class Postmaster:
    """A running server. What is None could not be read: another user's process, or a stalled file system."""

    pid: int
    start_ticks: int
    """Ticks after boot: with pid, its identity."""
    data_directory: str | None = None
    port: int | None = None
    socket_directory: str | None = None
    start_s: int | None = None
    """When it started, seconds since 1970, as it wrote itself into postmaster.pid."""


def find_postmasters(proc: str = "/proc", clock: Clock = SYSTEM) -> list[Postmaster]:
    """All postmasters of this host in the order of their pids. Never raises, never waits more than DEADLINE_S each."""
    found = []
    for pid, start_ticks in _candidates(proc):
        lane = Lane(f"postmaster {pid}", clock)
        try:
            # mypy infers no type for a lambda with defaults, which bind this round's values.
            described = lane.call(lambda pid=pid, start=start_ticks: _describe(proc, pid, start), DEADLINE_S)  # type: ignore[misc]
        except LaneTimeout:
            described = Postmaster(pid, start_ticks)
        lane.close()
        if described is not None:
            found.append(described)
    return _with_only_socket(found, proc)


def is_server(command: str) -> bool:
    """True for the server's executable, whatever its path."""
    return command in COMMANDS


def _candidates(proc: str) -> list[tuple[int, int]]:
    """Server processes whose parent is none: their children are backends."""
    try:
        pids = sorted(int(name) for name in os.listdir(proc) if name.isdigit())
    except OSError:
        return []
    stats = {pid: stat for pid in pids if (stat := read_stat(proc, pid)) is not None and is_server(stat.command)}
    return [(pid, stat.start_ticks) for pid, stat in stats.items() if stat.parent not in stats]


def _describe(proc: str, pid: int, start_ticks: int) -> Postmaster | None:
    """What this postmaster's files and arguments tell; None for a server process that is no postmaster."""
    arguments = _arguments(proc, pid)
    directory = data_directory_of(proc, pid)
    # Through the process's own link: in a container the same path is another directory.
    named = f"{proc}/{pid}/cwd" if directory else _option(arguments, "-D", None)
    lock = read_lock_file(named) if named else None
    if lock is not None and lock.pid < 0:
        return None  # a stand-alone backend (initdb, postgres --single), which nobody can connect to
    if lock is not None and lock.pid == pid:
        return Postmaster(
            pid, start_ticks, directory or lock.data_directory, lock.port, lock.socket_directory, lock.start_s
        )
    # No lock file to read, or one with the pid a server has inside its container: its port and socket are in there too.
    port = _option(arguments, "-p", "port") if lock is None else None
    number = int(port) if port and port.isdigit() else None
    return Postmaster(pid, start_ticks, directory or _option(arguments, "-D", None), number)


def data_directory_of(proc: str, pid: int) -> str | None:
    """The working directory of a server process, which is its data directory; None without the right to see it."""
    try:
        return os.readlink(f"{proc}/{pid}/cwd")
    except OSError:
        return None


def _arguments(proc: str, pid: int) -> list[str]:
    try:
        raw = read_once(f"{proc}/{pid}/cmdline", 16384)
    except OSError:
        return []
    return [os.fsdecode(word) for word in raw.split(b"\0")]


def _option(arguments: list[str], letter: str, setting: str | None) -> str | None:
    """The last value given to `-X value`, `-Xvalue`, `-c name=value` or `--name=value`, as the server counts it."""
    found = None
    for index, word in enumerate(arguments[1:], 1):
        following = arguments[index + 1] if index + 1 < len(arguments) else ""
        if word == letter:
            found = following
        elif word.startswith(letter) and not word.startswith("--"):
            found = word[len(letter) :]
        elif setting and word.startswith(f"--{setting}="):
            found = word.partition("=")[2]
        elif setting and word == "-c" and following.startswith(f"{setting}="):
            found = following.partition("=")[2]
    return found or None


def listening_sockets(proc: str = "/proc") -> list[tuple[str, int]]:
    """Directory and port of each PostgreSQL unix socket somebody listens on; anybody may read them."""
    try:
        lines = read_file(f"{proc}/net/unix").splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        words = line.split(None, 4)
        if len(words) == 5 and words[3] == _LISTENING and (match := _SOCKET.search(line)):
            found.append((os.fsdecode(match[1]), int(match[2])))
    return sorted(set(found))


def _with_only_socket(found: list[Postmaster], proc: str) -> list[Postmaster]:
    """Where one server runs, whose files are not readable, and one socket is listened on, they belong together."""
    if len(found) != 1 or found[0].socket_directory is not None:
        return found
    sockets = listening_sockets(proc)
    only = found[0]
    if len(sockets) != 1 or only.port not in (None, sockets[0][1]):
        return found
    directory, port = sockets[0]
    return [Postmaster(only.pid, only.start_ticks, only.data_directory, port, directory, only.start_s)]


# The processes of a postmaster: its children, found without reading every process of the host.
#
# /proc/PID/task/PID/children is one short read (kernels with CONFIG_PROC_CHILDREN), but may leave out a process while
# another one ends; so who vanishes from it is looked at before it is believed gone. Without that file the process list
# is scanned, each process once.


class PostmasterChildren:
    """The children of one postmaster. Used by one thread."""

    def __init__(self, proc: str, postmaster: int) -> None:
        self._proc = proc
        self._postmaster = postmaster
        self._file: KernelFile | None = KernelFile(f"{proc}/{postmaster}/task/{postmaster}/children")
        self._known: frozenset[int] = frozenset()
        self._last: bytes | None = None
        self._not_children: set[int] = set()

    def read(self) -> frozenset[int]:
        """Pids of all children now. Raises ProcessLookupError when the postmaster has ended."""
        listed = self._listed()
        if listed is None:
            self._known = frozenset(self._scanned())
        elif listed != self._last or not listed:
            found = {int(word) for word in listed.split()}
            missed = {pid for pid in self._known - found if self._is_child(pid)}
            self._known = frozenset(found | missed)
            # Who was missed is looked for again, even if the list stays as it is.
            self._last = None if missed else listed
        return self._known

    def _listed(self) -> bytes | None:
        """The list as the kernel writes it, None where it does not."""
        if self._file is None:
            return None
        listed: bytes | None
        try:
            listed = self._file.read().strip()
        except FileNotFoundError:
            self._file = listed = None  # this kernel has no such file, or the process is gone
        if not listed and not os.path.exists(f"{self._proc}/{self._postmaster}/stat"):
            raise ProcessLookupError(self._postmaster)
        return listed

    def _scanned(self) -> set[int]:
        alive = {int(name) for name in os.listdir(self._proc) if name.isdigit()}
        if self._postmaster not in alive:
            raise ProcessLookupError(self._postmaster)
        self._not_children &= alive
        found = self._known & alive
        for pid in alive - found - self._not_children:
            if self._is_child(pid):
                found |= {pid}
            else:
                self._not_children.add(pid)
        return set(found)

    def _is_child(self, pid: int) -> bool:
        stat = read_stat(self._proc, pid)
        return stat is not None and stat.parent == self._postmaster

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
