"""The history of a server, from the files of all its targets.

A target is a database of a server, as one user; its agent sees the jobs of all of them. So each file holds what was
seen of the whole server while that agent ran, and what it had read of the others when it began. Files are of one server
where they were kept at one address, or on this host of one data directory, unless two system identifiers say that they
are not: behind one address of a pooler may be several servers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dba_console.agent.jobs.history_files import FAILURES, load_or_set_aside, read_history
from dba_console.agent.jobs.job_history import KeptHistory, KeptJob, KeptServer
from dba_console.agent.jobs.merge_runs import merge_runs
from dba_console.agent.jobs.past_runs import typical_s
from dba_console.samples.jobs import JobKey
from dba_console.target import Address, default_user

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
