"""The files of job histories: 0600 in the state directory, replaced whole, never trusted.

There is one for each target, written by its agent alone. What those of other targets of the same server hold is joined
when it is read: `gathering`. All functions wait for the disk: they are called in a lane.
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
"""Sixty runs of two hundred jobs, each with all that can be known of it, are half of this."""
MAX_TARGETS = 100
"""Files kept: servers that come and go, as those of a demo do, leave no more than this behind."""


class DamagedHistory(Exception):
    """The file could not be read as a history; the text says why and where it was put."""


def history_path(target_key: str) -> Path:
    """Where the history of a target lies."""
    return paths.state_dir() / "jobs" / f"{target_key}.json"


def load_or_set_aside(path: Path) -> KeptHistory | None:
    """The history, None where there is none yet.

    Raises Damaged for a file that is no history, which is put aside under `.damaged`; OSError where it cannot be read.
    """
    found = _content(path)
    if found is None:
        return None
    inode, content = found
    try:
        return _decoded(content)
    except DamagedHistory as error:
        aside = path.with_suffix(".damaged")
        if os.lstat(path).st_ino == inode:  # not a newer one, where this read took long
            os.replace(path, aside)
        raise DamagedHistory(f"{path} is no history of jobs ({error}); it is kept as {aside.name}") from None


def read_history(path: Path) -> KeptHistory | None:
    """The same for who only looks: a damaged file stays where it is. Raises Damaged, OSError."""
    found = _content(path)
    try:
        return None if found is None else _decoded(found[1])
    except DamagedHistory as error:
        raise DamagedHistory(f"{path} is no history of jobs: {error}") from None


def _content(path: Path) -> tuple[int, bytes] | None:
    """Its inode and what is in it; None where there is no file."""
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
    """Replace the file. Raises OSError or ConsoleError; the file is then as it was."""
    paths.private_dir(paths.private_dir(path.parent.parent) / path.parent.name)
    if not path.exists():
        _remove_oldest(path.parent)
    from dba_console.core.atomic_files import write_atomically  # not needed where nothing is written

    write_atomically(str(path.parent), path.name, msgspec.json.encode(history))


def _remove_oldest(directory: Path) -> None:
    """Remove files written longest ago, where there are too many; an agent at work writes its own again and again."""
    files = sorted(directory.glob("*.json"), key=lambda file: file.stat().st_mtime_ns)
    for file in files[: max(0, len(files) - MAX_TARGETS + 1)]:
        file.unlink()


FAILURES = (OSError, ConsoleError, DamagedHistory)
"""What both may raise."""


# The history of a server, from the files of all its targets.
#
# A target is a database of a server, as one user; its agent sees the jobs of all of them. So each file holds what was
# seen of the whole server while that agent ran, and what it had read of the others when it began. Files are of one
# server where they were kept at one address, or on this host of one data directory, unless two system identifiers say
# that they are not: behind one address of a pooler may be several servers.

_DEFAULT_NAMES = ("postgres", "template1")
"""Databases connected to, and users connected as, whose names need not occur among the jobs."""


@dataclass(frozen=True, slots=True)
class OtherHistories:
    """What other targets of a server have kept."""

    histories: tuple[KeptHistory, ...] = ()
    unread: tuple[str, ...] = ()
    """Why what may be one of them could not be read."""


def read_other_histories(path: Path, server: KeptServer | None, address: Address | None) -> OtherHistories:
    """The other files of the directory that are of this server. Nothing is changed. `address` tells files that were
    kept before they said of which server they are. Raises OSError where the directory cannot be read.
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
    """What an agent begins with: its own file and those beside it, None where nothing is kept. A damaged one of its own
    is put aside, but not where nothing will be kept. Raises what `store.load` raises.
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
    """Those of this server among the histories of all targets, given with the targets' keys."""
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
    """The server that was last watched at that address: what is known where the target itself never was."""
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
    """Whether it is that of another target of this server, of a time when a file did not say that: a target's key tells
    it for the databases and users one can think of, which are those of its jobs.
    """
    databases = {*_DEFAULT_NAMES, address.database, address.user, *(job.database for job in kept.jobs if job.database)}
    users = {*_DEFAULT_NAMES[:1], address.user, default_user(), *(job.user for job in kept.jobs if job.user)}
    return any(
        key == address._replace(database=database, user=user).key
        for user in users
        for database in {*databases, user, address.database}
    )


def merge_histories(histories: Sequence[KeptHistory]) -> KeptHistory | None:
    """What several files know together: each run once. None where there is none."""
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
    """A job only the earlier file has: whether the later one's agent watched then is not known, so it is a hole."""
    usual = typical_s(job.runs)
    short = usual is not None and usual * 1e6 > until_us - kept.until_us
    if short and _key(job) not in kept.running:
        return job
    return KeptJob(job.kind, job.database, job.user, until_us, job.runs)


def _key(job: KeptJob) -> JobKey:
    return job.kind, job.database, job.user


# The history's file, read and written in a lane: the tick asks how it goes and never waits.
#
# Nothing is written before the file was read, so that a disk that stalls at the start costs no history. What cannot be
# read or written is said once, and tried again.

IO_TIMEOUT_US = 30_000_000
"""A read or a write that takes longer is given up."""
RETRY_US = 60_000_000
"""From one that failed to the next."""
WRITE_INTERVAL_US = 600_000_000
"""Written so often where nothing happens: how long a hole an agent that is killed leaves."""
CLOSE_S = 1.0
"""The end waits so long for the last write."""


class HistoryFile:
    """Used by the tick alone. Without `keep` it reads only."""

    def __init__(self, path: Path, clock: Clock, address: Address | None = None, *, keep: bool = True) -> None:
        self._path, self._clock, self._address, self._keep = path, clock, address, keep
        self._lane = Lane("jobs", clock)
        self._job: PendingCall[KeptHistory | None] | None = None
        self._begun_us = 0
        self._retry_us = 0
        self._next_us = 0
        self.loaded = False
        """The file was read, or there is none: from now on it is written."""
        self.error: str | None = None
        """Why the history is not read or written now."""

    def read(self, server: KeptServer | None = None) -> KeptHistory | None:
        """The history, once, in the tick in which it has been read; before and after that None. With it comes what
        other targets of `server` have kept.
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
            self.error = str(error)  # said once: the next write begins a new file
        except FAILURES as error:
            self._failed("read", error)
            return None
        else:
            self.error = None
        self.loaded, self._next_us = True, self._clock.mono_us() + WRITE_INTERVAL_US
        return history

    def write(self, made: Callable[[], KeptHistory], *, now: bool) -> bool:
        """Go on writing, and begin where nothing is under way and it is due, or `now` that something changed; True when
        it was begun.
        """
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
        """Write it, where there is one, and wait a second for that; a disk that does not answer is left alone."""
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
            self._failed("reached", "its disk does not answer")
        return False

    def _take(self) -> KeptHistory | None:
        assert self._job is not None
        job, self._job = self._job, None
        return job.result(0)

    def _failed(self, done: str, error: Exception | str) -> None:
        self._job = None
        self._retry_us = self._next_us = self._clock.mono_us() + RETRY_US
        self.error = f"the history of jobs cannot be {done}: {error}"
