"""Who holds the other end of a pipe: looked for among the relatives of a process first, then among all.

The kernel tells of a pipe only who has it open, so the others' descriptors are read until it is found: those of its
relatives at once, all of the host from the second look on. What was found is kept, and what was not is looked for again
more and more seldom.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from dba_console.probes.host.files import read_once
from dba_console.probes.host.procstat import stat_of
from dba_console.probes.jobs.descriptors import Link, links_of, may_be_pipe, pipe_key, writes_to

AGAIN = 8
"""Looks after which an end that was not found is looked for again, doubled each time up to its eightfold."""
FAMILY = 200
"""Relatives that are looked at: a pipeline has a handful."""
_GENERATIONS = 3


class Ends:
    """The other ends of pipes. Used by one thread."""

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._found: dict[tuple[str, bool], tuple[int, ...]] = {}
        self._missed: dict[tuple[str, bool], tuple[int, int]] = {}
        """Look in which it is searched for among all, and how many pass before the search after that."""
        self._look = 0

    def begin(self) -> None:
        """A new look."""
        self._look += 1

    def holders(self, key: str, *, writing: bool, near: int) -> tuple[int, ...] | None:
        """Processes that have the pipe open for writing, or for reading; none where none can be seen, None where it
        was not looked for among all of them yet. `near`: the process whose pipe it is.

        In the first look only relatives are asked: scripts run a small `echo … | psql` each second.
        """
        name = (key, writing)
        known = tuple(pid for pid in self._found.get(name, ()) if self._holds(pid, key, writing))
        if not known:
            known = tuple(pid for pid in family(self._proc, near) if self._holds(pid, key, writing))
        if known:
            self._found[name] = known
            self._missed.pop(name, None)
            return known
        self._found.pop(name, None)
        due, wait = self._missed.setdefault(name, (self._look + 1, 0))
        if self._look >= due:
            known = self._search(key, writing, near)
            wait = min(max(wait * 2, AGAIN), AGAIN * 8)
            self._missed[name] = self._look + wait, wait
            if known:
                self._found[name] = known
        return known if known or wait else None

    def forget(self, keys: set[str]) -> None:
        """Keep only what is known of these pipes."""
        for known in (self._found, self._missed):
            for name in [name for name in known if name[0] not in keys]:
                del known[name]

    def _search(self, key: str, writing: bool, near: int) -> tuple[int, ...]:
        pids = (int(name) for name in os.listdir(self._proc) if name.isdigit())
        return tuple(pid for pid in pids if pid != near and self._holds(pid, key, writing))

    def _holds(self, pid: int, key: str, writing: bool) -> bool:
        return any(
            pipe_key(self._proc, pid, link) == key and writes_to(self._proc, pid, link.fd) is writing
            for link in self._like(pid, key)
        )

    def _like(self, pid: int, key: str) -> Iterator[Link]:
        """Descriptors that may be that pipe by their link alone: a stat of what others have open may hang with a dead
        mount that this job has nothing to do with."""
        try:
            links = links_of(self._proc, pid)
        except OSError:
            return
        yield from (link for link in links if may_be_pipe(link, key))


def family(proc: str, pid: int) -> list[int]:
    """Parent, siblings and all that came of them and of the process itself, some generations deep."""
    stat = stat_of(proc, pid)
    found = dict.fromkeys(_children(proc, pid))
    if stat is not None and stat.parent > 1:
        found |= dict.fromkeys((stat.parent, *_children(proc, stat.parent)))
    newest = list(found)
    for _ in range(_GENERATIONS):
        newest = [child for one in newest[:FAMILY] for child in _children(proc, one) if child not in found]
        found |= dict.fromkeys(newest[:FAMILY])
    return [one for one in found if one != pid][: 2 * FAMILY]


def _children(proc: str, pid: int) -> list[int]:
    """Of all its threads but the first too few are told; who starts a pipeline has but one. None without the file
    (kernels without CONFIG_PROC_CHILDREN): then the search among all finds them."""
    try:
        return [int(word) for word in read_once(f"{proc}/{pid}/task/{pid}/children", 8192).split()]
    except (OSError, ValueError):
        return []


def name_of(proc: str, pid: int) -> str:
    """A process as sentences call it: `gzip (process 812)`."""
    stat = stat_of(proc, pid)
    return f"process {pid}" if stat is None else f"{stat.command} (process {pid})"
