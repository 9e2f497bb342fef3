"""Who holds the other end of a pipe: looked for among the relatives of a process first, then among all.

The kernel tells of a pipe only who has it open, so the others' descriptors are read until it is found; what was found
is kept, and what was not is looked for again more and more seldom.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from dba_console.probes.host.files import read_once
from dba_console.probes.host.procstat import STAT_SIZE, stat_of
from dba_console.probes.jobs.descriptors import Link, links_of, pipe_key, writes_to

AGAIN = 8
"""Looks after which an end that was not found is looked for again, doubled each time up to its eightfold."""

_Kin = tuple[int, int, int]
"""Process group, session, parent."""


class Ends:
    """The other ends of pipes. Used by one thread."""

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._found: dict[tuple[str, bool], tuple[int, ...]] = {}
        self._missed: dict[tuple[str, bool], tuple[int, int]] = {}
        self._look = 0

    def begin(self) -> None:
        """A new look."""
        self._look += 1

    def holders(self, key: str, *, writing: bool, near: int) -> tuple[int, ...]:
        """Processes that have the pipe open for writing, or for reading; none where none can be seen. `near`: the
        process whose pipe it is."""
        name = (key, writing)
        known = tuple(pid for pid in self._found.get(name, ()) if self._holds(pid, key, writing))
        if known:
            return known
        due, wait = self._missed.get(name, (0, AGAIN))
        if self._look < due:
            return ()
        found = self._search(key, writing, near)
        if found:
            self._found[name] = found
            self._missed.pop(name, None)
        else:
            self._found.pop(name, None)
            self._missed[name] = self._look + wait, min(wait * 2, AGAIN * 8)
        return found

    def forget(self, keys: set[str]) -> None:
        """Keep only what is known of these pipes."""
        for known in (self._found, self._missed):
            for name in [name for name in known if name[0] not in keys]:
                del known[name]

    def _search(self, key: str, writing: bool, near: int) -> tuple[int, ...]:
        own = _kin(self._proc, near)
        others = [int(name) for name in os.listdir(self._proc) if name.isdigit() and int(name) != near]
        strangers = []
        found = []
        for pid in others:
            kin = _kin(self._proc, pid)
            if own is not None and kin is not None and _related(pid, kin, near, own):
                if self._holds(pid, key, writing):
                    found.append(pid)
            else:
                strangers.append(pid)
        return tuple(found) or tuple(pid for pid in strangers if self._holds(pid, key, writing))

    def _holds(self, pid: int, key: str, writing: bool) -> bool:
        return any(
            pipe_key(self._proc, pid, link) == key and writes_to(self._proc, pid, link.fd) is writing
            for link in self._pipes(pid)
        )

    def _pipes(self, pid: int) -> Iterator[Link]:
        try:
            links = links_of(self._proc, pid)
        except OSError:
            return
        yield from (link for link in links if link.pipe is not None or link.target.startswith("/"))


def _related(pid: int, kin: _Kin, near: int, own: _Kin) -> bool:
    return kin[0] == own[0] or kin[1] == own[1] or kin[2] in (near, own[2]) or pid == own[2]


def _kin(proc: str, pid: int) -> _Kin | None:
    try:
        words = read_once(f"{proc}/{pid}/stat", STAT_SIZE).rpartition(b")")[2].split(None, 5)
        return int(words[2]), int(words[3]), int(words[1])
    except (OSError, ValueError, IndexError):
        return None


def name_of(proc: str, pid: int) -> str:
    """A process as sentences call it: `gzip (process 812)`."""
    stat = stat_of(proc, pid)
    return f"process {pid}" if stat is None else f"{stat.command} (process {pid})"
