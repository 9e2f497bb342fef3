"""Who holds the other end of a pipe: looked for among the relatives of a process first, then among all.

The kernel tells of a pipe only who has it open, so the others' descriptors are read until it is found: those of its
relatives at once, all of the host from the second look on. What was found is kept, and what was not is looked for again
more and more seldom.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from dba_console.probes.host.kernel_files import read_once
from dba_console.probes.host.procstat import read_stat
from dba_console.probes.jobs.file_descriptors import DescriptorLink, is_writable, may_be_pipe, pipe_key, read_links

RETRY_SCANS = 8
"""Looks after which an end that was not found is looked for again, doubled each time up to its eightfold."""
MAX_RELATIVES = 200
"""Relatives that are looked at: a pipeline has a handful."""
_GENERATIONS = 3


class PipeEnds:
    """The other ends of pipes. Used by one thread."""

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._found: dict[tuple[str, bool], tuple[int, ...]] = {}
        self._missed: dict[tuple[str, bool], tuple[int, int]] = {}
        """Look in which it is searched for among all, and how many pass before the search after that."""
        self._scan = 0

    def start_scan(self) -> None:
        """A new look."""
        self._scan += 1

    def find_holders(self, key: str, *, writing: bool, owner: int) -> tuple[int, ...] | None:
        """Processes that have the pipe open for writing, or for reading; none where none can be seen, None where it
        was not looked for among all of them yet. `owner`: the process whose pipe it is.

        In the first look only relatives are asked: scripts run a small `echo … | psql` each second.
        """
        name = (key, writing)
        known = tuple(pid for pid in self._found.get(name, ()) if self._holds(pid, key, writing))
        if not known:
            known = tuple(pid for pid in relatives(self._proc, owner) if self._holds(pid, key, writing))
        if known:
            self._found[name] = known
            self._missed.pop(name, None)
            return known
        self._found.pop(name, None)
        due, wait = self._missed.setdefault(name, (self._scan + 1, 0))
        if self._scan >= due:
            known = self._search_all(key, writing, owner)
            wait = min(max(wait * 2, RETRY_SCANS), RETRY_SCANS * 8)
            self._missed[name] = self._scan + wait, wait
            if known:
                self._found[name] = known
        return known if known or wait else None

    def keep_only(self, keys: set[str]) -> None:
        """Keep only what is known of these pipes."""
        for known in (self._found, self._missed):
            for name in [name for name in known if name[0] not in keys]:
                del known[name]

    def _search_all(self, key: str, writing: bool, near: int) -> tuple[int, ...]:
        pids = (int(name) for name in os.listdir(self._proc) if name.isdigit())
        return tuple(pid for pid in pids if pid != near and self._holds(pid, key, writing))

    def _holds(self, pid: int, key: str, writing: bool) -> bool:
        return any(
            pipe_key(self._proc, pid, link) == key and is_writable(self._proc, pid, link.fd) is writing
            for link in self._candidate_links(pid, key)
        )

    def _candidate_links(self, pid: int, key: str) -> Iterator[DescriptorLink]:
        """Descriptors that may be that pipe by their link alone: a stat of what others have open may hang with a dead
        mount that this job has nothing to do with."""
        try:
            links = read_links(self._proc, pid)
        except OSError:
            return
        yield from (link for link in links if may_be_pipe(link, key))


def relatives(proc: str, pid: int) -> list[int]:
    """Parent, siblings and all that came of them and of the process itself, some generations deep."""
    stat = read_stat(proc, pid)
    found = dict.fromkeys(_children(proc, pid))
    if stat is not None and stat.parent > 1:
        found |= dict.fromkeys((stat.parent, *_children(proc, stat.parent)))
    newest = list(found)
    for _ in range(_GENERATIONS):
        newest = [child for one in newest[:MAX_RELATIVES] for child in _children(proc, one) if child not in found]
        found |= dict.fromkeys(newest[:MAX_RELATIVES])
    return [one for one in found if one != pid][: 2 * MAX_RELATIVES]


def _children(proc: str, pid: int) -> list[int]:
    """Of all its threads but the first too few are told; who starts a pipeline has but one. None without the file
    (kernels without CONFIG_PROC_CHILDREN): then the search among all finds them."""
    try:
        return [int(word) for word in read_once(f"{proc}/{pid}/task/{pid}/children", 8192).split()]
    except (OSError, ValueError):
        return []


def process_text(proc: str, pid: int) -> str:
    """A process as sentences call it: `gzip (process 812)`."""
    stat = read_stat(proc, pid)
    return f"process {pid}" if stat is None else f"{stat.command} (process {pid})"
