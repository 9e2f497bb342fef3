"""Read, merge and write the files of job histories: 0600 in the state directory, replaced atomically, validated.

There is one file per target, written only by its agent. The files of other targets of the same server are merged when
read. All functions wait for the disk: they are called in a lane.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from dba_console.core import paths
from dba_console.core.clock import Clock
from dba_console.core.decoding import from_json
from dba_console.core.errors import ConsoleError
from dba_console.core.target import Address, default_user
from dba_console.jobs.history.job_history import KeptHistory, KeptJob, KeptServer, merge_runs
from dba_console.jobs.history.past_runs import typical_s
from dba_console.watch.probes.deadline_lane import Lane, LaneTimeout, PendingCall
from dba_console.watch.samples.jobs import JobKey

SIZE_LIMIT = 16 << 20
"""Sixty runs of two hundred jobs, with all fields, take half of this."""
MAX_TARGETS = 100
"""Maximum number of files, because temporary servers (as in a demo) leave theirs behind."""


class DamagedHistory(Exception):
    """The file is not a valid history; the text is the reason, and the new name of the file."""


def history_path(target_key: str) -> Path:
    """Return the path of a target's history."""
    return paths.state_dir() / "jobs" / f"{target_key}.json"


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


def save_history(path: Path, history: KeptHistory) -> None:
    """Replace the file. Raises OSError or ConsoleError, then the file is unchanged."""
    paths.private_dir(paths.private_dir(path.parent.parent) / path.parent.name)
    if not path.exists():
        _remove_oldest(path.parent)
    from dba_console.core.atomic_files import write_atomically  # only needed for writing

    write_atomically(str(path.parent), path.name, msgspec.json.encode(history))


def _remove_oldest(directory: Path) -> None:
    """Remove the oldest files if there are too many; a running agent rewrites its own regularly."""
    files = sorted(directory.glob("*.json"), key=lambda file: file.stat().st_mtime_ns)
    for file in files[: max(0, len(files) - MAX_TARGETS + 1)]:
        file.unlink()


FAILURES = (OSError, ConsoleError, DamagedHistory)
"""Exceptions of reading and writing."""


# Merge the job histories of one server.
#
# A target is one database of a server and one user, but its agent observes the jobs of the whole server. Each file
# contains what was observed while that agent ran, and what it read from the other files at its start. Two files belong
# to the same server if they have the same address, or on this host the same data directory, unless their system
# identifiers differ: one address of a pooler may lead to several servers.

_DEFAULT_NAMES = ("postgres", "template1")
"""Databases and users of targets whose names may not occur among the jobs."""


@dataclass(frozen=True, slots=True)
class OtherHistories:
    """The histories of other targets of a server."""

    histories: tuple[KeptHistory, ...] = ()
    unread: tuple[str, ...] = ()
    """Why files that may belong to it could not be read."""


def read_other_histories(path: Path, server: KeptServer | None, address: Address | None) -> OtherHistories:
    """Read the other files of this server in the directory. Changes nothing. `address` identifies old files that do not
    contain their server. Raises OSError if the directory cannot be read.
    """
    if server is None and address is None:
        return OtherHistories()
    found: list[tuple[str, KeptHistory]] = []
    unread: list[str] = []
    for other in sorted(one for one in _files(path.parent) if one != path):
        try:
            kept = read_history(other)
        except FAILURES as error:
            unread.append(str(error))
        else:
            found += [] if kept is None else [(other.stem, kept)]
    return OtherHistories(tuple(select_server_histories(found, server, address)), tuple(unread))


def load_server_history(
    path: Path, server: KeptServer | None, address: Address | None, *, keep: bool = True
) -> KeptHistory | None:
    """Load an agent's initial history: its own file merged with the others of the server, None without any. With `keep`
    a damaged own file is renamed. Raises DamagedHistory, OSError.
    """
    own = load_or_set_aside(path) if keep else read_history(path)
    others = read_other_histories(path, server if own is None else server or own.server, address).histories
    return merge_histories([*([] if own is None else [own]), *others])


def _files(directory: Path) -> list[Path]:
    try:
        return [one for one in directory.iterdir() if one.suffix == ".json"]
    except FileNotFoundError:
        return []


def select_server_histories(
    found: Iterable[tuple[str, KeptHistory]], server: KeptServer | None, address: Address | None
) -> list[KeptHistory]:
    """Select the histories of this server from those of all targets, given with the targets' keys."""
    known = list(found)
    if server is None:
        if address is None:
            return []
        server = _last_server_at(address, [kept for _, kept in known])
    return [
        kept
        for key, kept in known
        if (
            _is_same_server(server, kept.server)
            if kept.server is not None
            else address and _key_matches_server(key, kept, address)
        )
    ]


def _last_server_at(address: Address, histories: Sequence[KeptHistory]) -> KeptServer:
    """Return the server last observed at that address, for a target that was never observed itself."""
    there = [kept for kept in histories if kept.server is not None and kept.server.address == address.server]
    last = max(there, key=lambda kept: kept.until_us, default=None)
    return KeptServer(address.server) if last is None or last.server is None else last.server


def _is_same_server(server: KeptServer, other: KeptServer) -> bool:
    known = server.system_identifier is not None and other.system_identifier is not None
    if known and server.system_identifier != other.system_identifier:
        return False
    here = server.directory is not None and server.directory == other.directory
    return server.address == other.address or (known and here)


def _key_matches_server(key: str, kept: KeptHistory, address: Address) -> bool:
    """Check whether an old file without its server belongs to another target of this server: compare its key with the
    keys for all databases and users of its jobs.
    """
    databases = {*_DEFAULT_NAMES, address.database, address.user, *(job.database for job in kept.jobs if job.database)}
    users = {*_DEFAULT_NAMES[:1], address.user, default_user(), *(job.user for job in kept.jobs if job.user)}
    return any(
        key == address._replace(database=database, user=user).key
        for user in users
        for database in {*databases, user, address.database}
    )


def merge_histories(histories: Sequence[KeptHistory]) -> KeptHistory | None:
    """Merge several histories, each run once. None without any."""
    whole: KeptHistory | None = None
    for later in sorted(histories, key=lambda one: one.until_us):
        whole = later if whole is None else _merge_two(whole, later)
    return whole


def _merge_two(earlier: KeptHistory, later: KeptHistory) -> KeptHistory:
    jobs = {_key(job): job for job in earlier.jobs}
    for job in later.jobs:
        before = jobs.get(_key(job))
        runs = job.runs if before is None else merge_runs(before.runs, job.runs)
        jobs[_key(job)] = KeptJob(job.kind, job.database, job.user, job.watched_since_us, runs)
    only = jobs.keys() - {_key(job) for job in later.jobs}
    for key in only:
        jobs[key] = _limit_watched_since(jobs[key], earlier, later.until_us)
    return KeptHistory(
        later.until_us,
        sorted(jobs.values(), key=lambda job: job.runs[-1].ended_us if job.runs else 0),
        later.running,
        shares=[*earlier.shares, *later.shares],
        server=later.server or earlier.server,
    )


def _limit_watched_since(job: KeptJob, kept: KeptHistory, until_us: int) -> KeptJob:
    """Treat the time between two files as a gap for a job that only the earlier one has: the later agent may not have
    observed then."""
    usual = typical_s(job.runs)
    short = usual is not None and usual * 1e6 > until_us - kept.until_us
    if short and _key(job) not in kept.running:
        return job
    return KeptJob(job.kind, job.database, job.user, until_us, job.runs)


def _key(job: KeptJob) -> JobKey:
    return job.kind, job.database, job.user


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

    def __init__(self, path: Path, clock: Clock, address: Address | None = None, *, keep: bool = True) -> None:
        self._path, self._clock, self._address, self._keep = path, clock, address, keep
        self._lane = Lane("jobs", clock)
        self._job: PendingCall[KeptHistory | None] | None = None
        self._begun_us = 0
        self._retry_us = 0
        self._next_us = 0
        self.loaded = False
        """The file was read, or does not exist: it may be written."""
        self.error: str | None = None
        """Why the last read or write failed."""

    def read(self, server: KeptServer | None = None) -> KeptHistory | None:
        """Return the history, merged with those of other targets of `server`, once, in the tick in which it was read;
        otherwise None.
        """
        if self._job is None:
            self._start(lambda: load_server_history(self._path, server, self._address, keep=self._keep))
            return None
        if not self._ready():
            return None
        history: KeptHistory | None = None
        try:
            history = self._take()
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
        if self._job is not None and self._ready():
            try:
                self._take()
            except FAILURES as error:
                self._failed("written", error)
            else:
                self.error = None
        mono_us = self._clock.mono_us()
        if self._job is not None or mono_us < self._retry_us or not (now or mono_us >= self._next_us):
            return False
        history = made()
        self._next_us = mono_us + WRITE_INTERVAL_US
        return self._start(lambda: self._save(history))

    def close(self, history: KeptHistory | None) -> None:
        """Write the history, if any, and wait up to CLOSE_S; a disk that does not answer is ignored."""
        end_us = self._clock.mono_us() + int(CLOSE_S * 1e6)
        if self._keep and history is not None and self.loaded and self._wait_for_io(end_us):
            self._retry_us = 0
            if self._start(lambda: self._save(history)):
                self._wait_for_io(end_us)
        self._lane.close()

    def _wait_for_io(self, until_us: int) -> bool:
        return self._job is None or self._job.ready(until_us)

    def _save(self, history: KeptHistory) -> None:
        save_history(self._path, history)

    def _start(self, call: Callable[[], KeptHistory | None]) -> bool:
        mono_us = self._clock.mono_us()
        if mono_us < self._retry_us:
            return False
        try:
            self._job, self._begun_us = self._lane.start(call), mono_us
        except LaneTimeout:
            return False
        return True

    def _ready(self) -> bool:
        assert self._job is not None
        if self._job.ready(0):
            return True
        if self._clock.mono_us() - self._begun_us > IO_TIMEOUT_US:
            self._lane.abandon()
            self._failed("accessed", "its disk does not answer")
        return False

    def _take(self) -> KeptHistory | None:
        assert self._job is not None
        job, self._job = self._job, None
        return job.result(0)

    def _failed(self, done: str, error: Exception | str) -> None:
        self._job = None
        self._retry_us = self._next_us = self._clock.mono_us() + RETRY_US
        self.error = f"the job history cannot be {done}: {error}"
