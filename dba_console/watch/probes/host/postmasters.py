"""Finds the postmasters of this host by their processes, and reads their own files where permitted.

Used without a connection (blind mode). That a connected server runs here is proven by
probes/postgres/server_locality.py.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from dba_console.watch.probes.deadline_lane import Lane, LaneTimeout
from dba_console.watch.probes.host.data_directory import read_lock_file
from dba_console.watch.probes.host.kernel_files import KernelFile, list_pids, read_file, read_once, read_stat

COMMANDS = frozenset(("postgres", "postmaster", "edb-postgres", "edb-postmaster"))
"""Names of the server's executable in /proc/PID/stat."""

DEADLINE_S = 0.3
"""Time limit for the files and arguments of each postmaster."""

_SOCKET = re.compile(rb" (/\S.*)/\.s\.PGSQL\.(\d+)$", re.M)
_LISTENING = b"00010000"
"""__SO_ACCEPTCON in the flags column of /proc/net/unix."""


@dataclass(frozen=True, slots=True)
class Postmaster:
    """A running server. None: not readable (another user's process, or a stalled file system)."""

    pid: int
    start_ticks: int
    """Start in ticks after boot: with pid, its identity."""
    data_directory: str | None = None
    port: int | None = None
    socket_directory: str | None = None
    start_s: int | None = None
    """When it started, seconds since 1970, from its postmaster.pid."""


def find_postmasters(proc: str = "/proc") -> list[Postmaster]:
    """Return all postmasters of this host by pid. Never raises, never waits more than DEADLINE_S for each."""
    found = []
    for pid, start_ticks in _candidates(proc):
        lane = Lane(f"postmaster {pid}")
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
    """Check whether the command is the server's executable, whatever its path."""
    return command in COMMANDS


def _candidates(proc: str) -> list[tuple[int, int]]:
    """Return server processes whose parent is not one: their children are backends."""
    try:
        pids = sorted(list_pids(proc))
    except OSError:
        return []
    stats = {pid: stat for pid in pids if (stat := read_stat(proc, pid)) is not None and is_server(stat.command)}
    return [(pid, stat.start_ticks) for pid, stat in stats.items() if stat.parent not in stats]


def _describe(proc: str, pid: int, start_ticks: int) -> Postmaster | None:
    """Describe the postmaster from its files and arguments; None for a server process that is not a postmaster."""
    arguments = _arguments(proc, pid)
    directory = data_directory_of(proc, pid)
    # Through the process's own link: in a container the same path is another directory.
    named = f"{proc}/{pid}/cwd" if directory else _option(arguments, "-D", None)
    lock = read_lock_file(named) if named else None
    if lock is not None and lock.pid < 0:
        return None  # a stand-alone backend (initdb, postgres --single), which accepts no connections
    if lock is not None and lock.pid == pid:
        return Postmaster(
            pid, start_ticks, directory or lock.data_directory, lock.port, lock.socket_directory, lock.start_s
        )
    # No readable lock file, or one with the pid inside a container: then its port and socket are inside too.
    port = _option(arguments, "-p", "port") if lock is None else None
    number = int(port) if port and port.isdigit() else None
    return Postmaster(pid, start_ticks, directory or _option(arguments, "-D", None), number)


def data_directory_of(proc: str, pid: int) -> str | None:
    """Return the working directory of a server process, which is its data directory; None if not permitted."""
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
    """Return the last value of `-X value`, `-Xvalue`, `-c name=value` or `--name=value`: the last one applies."""
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
    """Return directory and port of each listening PostgreSQL unix socket; readable by every user."""
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
    """Assign the only listening socket to the only server whose files are not readable."""
    if len(found) != 1 or found[0].socket_directory is not None:
        return found
    sockets = listening_sockets(proc)
    only = found[0]
    if len(sockets) != 1 or only.port not in (None, sockets[0][1]):
        return found
    directory, port = sockets[0]
    return [Postmaster(only.pid, only.start_ticks, only.data_directory, port, directory, only.start_s)]


# The processes of a postmaster: its children, found without reading every process of the host.
# /proc/PID/task/PID/children is one short read (kernels with CONFIG_PROC_CHILDREN), but may omit a process while
# another one ends, so a missing one is checked before it counts as ended. Without that file the process list is
# scanned, each process once.


class PostmasterChildren:
    """The children of one postmaster. Not thread-safe."""

    def __init__(self, proc: str, postmaster: int) -> None:
        self._proc = proc
        self._postmaster = postmaster
        self._file: KernelFile | None = KernelFile(f"{proc}/{postmaster}/task/{postmaster}/children")
        self._known: frozenset[int] = frozenset()
        self._last: bytes | None = None
        self._not_children: set[int] = set()

    def read(self) -> frozenset[int]:
        """Return the pids of all children. Raises ProcessLookupError if the postmaster has ended."""
        listed = self._listed()
        if listed is None:
            self._known = frozenset(self._scanned())
        elif listed != self._last or not listed:
            found = {int(word) for word in listed.split()}
            missed = {pid for pid in self._known - found if self._is_child(pid)}
            self._known = frozenset(found | missed)
            # Compare again next time, even if the list does not change.
            self._last = None if missed else listed
        return self._known

    def _listed(self) -> bytes | None:
        """Return the list as the kernel writes it, None without that file."""
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
        alive = set(list_pids(self._proc))
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
