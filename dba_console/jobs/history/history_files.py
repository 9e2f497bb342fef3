"""Read and write the files of job histories: 0600 in the state directory, replaced atomically, validated.

There is one file per server. Its name is the system identifier and a hash of the data directory, or of the address if
the server is not known to run on this host: a standby has the system identifier of its primary. Each target of the
server, and its address, has a link to the file, so that readers find it without a connection. Several agents of one
server write under a lock, and keep each other's runs. All functions wait for the disk: they are called in a lane.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import msgspec

from dba_console.core import paths
from dba_console.core.clock import Clock
from dba_console.core.decoding import from_json
from dba_console.core.errors import ConsoleError
from dba_console.core.target import Address
from dba_console.jobs.history.kept_history import KeptHistory, add_unknown_runs
from dba_console.watch.probes.deadline_lane import LaneTimeout, PolledCall

SIZE_LIMIT = 16 << 20
"""Sixty runs of two hundred jobs, with all fields, take half of this."""
_UNKNOWN = "unknown"
"""The system identifier in the name of a file, if no agent was allowed to read it."""
MAX_SERVERS = 100
"""Maximum number of files, because temporary servers (as in a demo) leave theirs behind."""


class DamagedHistory(Exception):
    """The file is not a valid history; the text is the reason, and the new name of the file."""


@dataclass(frozen=True, slots=True)
class HistoryServer:
    """A server as an agent of one of its targets knows it; None: unknown."""

    target_key: str
    address: str
    """As in `dba_console.core.target.Address.server`."""
    system_identifier: str | None = None
    directory: str | None = None
    """Its data directory, if proven to run on this host."""


def history_path(target_key: str, address: Address | None = None) -> Path | None:
    """Return the history of the target's server, or of the server last observed at that address. None: none known."""
    for name in (target_key, *([] if address is None else [address.server])):
        if (path := _linked(name)) is not None:
            return path
    return None


def server_history_path(server: HistoryServer) -> Path:
    """Return the history of this server: that of its address, unless that belongs to another system identifier."""
    linked = _linked(server.address)
    if linked is not None:
        identifier = linked.name.partition("-")[0]
        if identifier == _UNKNOWN or server.system_identifier in (None, identifier):
            return linked
    place = sha256((server.directory or server.address).encode(errors="surrogateescape")).hexdigest()[:12]
    return _directory() / f"{server.system_identifier or _UNKNOWN}-{place}.json"


def _directory() -> Path:
    return paths.state_dir() / "jobs"


def _linked(name: str) -> Path | None:
    try:
        return _directory() / os.path.basename(os.readlink(_directory() / name))
    except OSError:
        return None


def load_or_set_aside(path: Path) -> KeptHistory | None:
    """Read the history, None without a file.

    Raises DamagedHistory for an invalid file, which is renamed to `.damaged`; OSError if it cannot be read.
    """
    found = _content(path)
    if found is None:
        return None
    inode, content = found
    try:
        return _decoded(content)
    except DamagedHistory as error:
        aside = path.with_suffix(".damaged")
        if os.lstat(path).st_ino == inode:  # not a newer file, if this read took long
            os.replace(path, aside)
        raise DamagedHistory(f"{path} is not a valid job history ({error}); renamed to {aside.name}") from None


def read_history(path: Path) -> KeptHistory | None:
    """Read the history without changes: a damaged file is not renamed. Raises DamagedHistory, OSError."""
    found = _content(path)
    try:
        return None if found is None else _decoded(found[1])
    except DamagedHistory as error:
        raise DamagedHistory(f"{path} is not a valid job history: {error}") from None


def _content(path: Path) -> tuple[int, bytes] | None:
    """Return inode and content; None without a file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with open(descriptor, "rb") as file:
        return os.fstat(descriptor).st_ino, file.read(SIZE_LIMIT + 1)


def _decoded(content: bytes) -> KeptHistory:
    if len(content) > SIZE_LIMIT:
        raise DamagedHistory(f"it is larger than {SIZE_LIMIT >> 20} MB")
    try:
        return from_json(content, KeptHistory)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise DamagedHistory(str(error)) from None


def save_history(path: Path, history: KeptHistory, *links: str) -> None:
    """Write the history and the runs that other agents of the server added to the file, and the links to it. Raises
    OSError or ConsoleError, then the file is unchanged; DamagedHistory, then the file is renamed.
    """
    from dba_console.core.atomic_files import write_atomically  # only needed for writing

    directory = paths.private_dir(paths.private_dir(path.parent.parent) / path.parent.name)
    with _locked(directory):
        kept = load_or_set_aside(path)
        if kept is None:
            _remove_oldest(directory)
        else:
            history = add_unknown_runs(history, kept)
        write_atomically(str(directory), path.name, msgspec.json.encode(history))
        for name in links:
            _link(directory / name, path.name)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Lock all histories; the kernel releases the lock however the process ends."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(directory / ".lock", flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _link(link: Path, name: str) -> None:
    if _linked(link.name) != link.with_name(name):
        part = link.with_name(f".{link.name}.part")
        part.unlink(missing_ok=True)
        part.symlink_to(name)
        part.replace(link)


def _remove_oldest(directory: Path) -> None:
    """Remove the oldest files if there are too many; a running agent rewrites its own regularly."""
    files = sorted(directory.glob("*.json"), key=lambda file: file.lstat().st_mtime_ns)
    for file in files[: max(0, len(files) - MAX_SERVERS + 1)]:
        file.unlink()
    for link in directory.iterdir():
        if link.is_symlink() and not link.exists():
            link.unlink()


FAILURES = (OSError, ConsoleError, DamagedHistory, LaneTimeout)
"""Exceptions of reading and writing."""


# Read and write the history file in a lane: the tick polls and never waits.
#
# Nothing is written before the file was read, so a stalled disk at the start loses no history. A failed read or write
# is reported once, and retried.

IO_TIMEOUT_US = 30_000_000
"""Timeout of a read or write."""
RETRY_US = 60_000_000
"""Pause after a failure."""
WRITE_INTERVAL_US = 600_000_000
"""Interval of writes without changes: the longest gap that a killed agent leaves."""
CLOSE_S = 1.0
"""Timeout for the last write at the end."""


class HistoryFile:
    """The history file of an agent, used only by the tick. Without `keep` it is read-only."""

    def __init__(self, server: HistoryServer, clock: Clock, *, keep: bool = True) -> None:
        self._server, self._clock, self._keep = server, clock, keep
        self._io: PolledCall[KeptHistory | None] = PolledCall("jobs", clock, IO_TIMEOUT_US)
        self._retry_us = 0
        self._next_us = 0
        self.loaded = False
        """The file was read, or does not exist: it may be written."""
        self.error: str | None = None
        """Why the last read or write failed."""

    def read(self) -> KeptHistory | None:
        """Return the history once, in the tick in which it was read; otherwise None."""
        if not self._io.pending:
            self._start(self._load)
            return None
        if not self._io.ended():
            return None
        history: KeptHistory | None = None
        try:
            history = self._io.take()
        except DamagedHistory as error:
            self.error = str(error)  # reported once: the next write creates a new file
        except FAILURES as error:
            self._failed("read", error)
            return None
        else:
            self.error = None
        self.loaded, self._next_us = True, self._clock.mono_us() + WRITE_INTERVAL_US
        return history

    def write(self, made: Callable[[], KeptHistory], *, now: bool) -> bool:
        """Check a running write, and start one if due, or `now` because of a change; return True if started."""
        if not self._keep:
            return False
        if self._io.ended():
            try:
                self._io.take()
            except FAILURES as error:
                self._failed("written", error)
            else:
                self.error = None
        mono_us = self._clock.mono_us()
        if self._io.pending or mono_us < self._retry_us or not (now or mono_us >= self._next_us):
            return False
        history = made()
        self._next_us = mono_us + WRITE_INTERVAL_US
        return self._start(lambda: self._save(history))

    def close(self, history: KeptHistory | None) -> None:
        """Write the history, if any, and wait up to CLOSE_S; a disk that does not answer is ignored."""
        end_us = self._clock.mono_us() + int(CLOSE_S * 1e6)
        if self._keep and history is not None and self.loaded and self._io.idle(end_us):
            self._retry_us = 0
            if self._start(lambda: self._save(history)):
                self._io.idle(end_us)
        self._io.close()

    def _load(self) -> KeptHistory | None:
        path = server_history_path(self._server)
        return load_or_set_aside(path) if self._keep else read_history(path)

    def _save(self, history: KeptHistory) -> None:
        server = self._server
        save_history(server_history_path(server), history, server.target_key, server.address)

    def _start(self, call: Callable[[], KeptHistory | None]) -> bool:
        return self._clock.mono_us() >= self._retry_us and self._io.start(call)

    def _failed(self, done: str, error: Exception) -> None:
        self._retry_us = self._next_us = self._clock.mono_us() + RETRY_US
        if isinstance(error, LaneTimeout):
            self.error = "the job history cannot be accessed: its disk does not answer"
        else:
            self.error = f"the job history cannot be {done}: {error}"
