"""Reads the process titles of a postmaster's children without ever waiting for one of them.

Reading /proc/PID/cmdline takes the process's mmap lock: a backend that faults on a stalled disk holds it, and who
reads waits with it. So titles are read in a lane; the process at which it stops is set aside and the rest goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dba_console.clock import Clock
from dba_console.probes.deadline_lane import Lane, LaneTimeout
from dba_console.probes.host.kernel_files import read_once
from dba_console.probes.host.process_titles import ParsedTitle, cluster_name, parse_title, titles_are_updated
from dba_console.probes.host.procstat import read_stat
from dba_console.samples.host import ProcessTitle, ProcessTitles

DEADLINE_US = 200_000
"""For all titles of one tick; a thousand take some 20 ms."""

SKIP_US = 30_000_000
"""A process whose title could not be read is tried again after this long."""

TITLE_SIZE = 4096


class TitleReader:
    """The titles of one postmaster's children. Used by one thread, reads in a lane of its own."""

    def __init__(
        self, proc: str, clock: Clock, *, read: Callable[[str, int], bytes] = read_once, deadline_us: int = DEADLINE_US
    ) -> None:
        self._proc = proc
        self._clock = clock
        self._read = read
        self._deadline_us = deadline_us
        self._lane = Lane("process titles", clock)
        self._skipped_until: dict[int, int] = {}
        self._started: dict[int, int] = {}
        self._known: dict[str, ParsedTitle] = {}
        self._cluster: str | None = None

    @property
    def stuck(self) -> bool:
        """True while a process holds up the lane."""
        return self._lane.stuck > 0

    def read(self, postmaster: int, children: Iterable[int]) -> ProcessTitles:
        """Titles of all children whose title could be read before the deadline; the others are counted."""
        pids = sorted(children)
        found = self._titles(pids)
        self._remember_starts(found)
        cluster = cluster_name(found.values())
        parsed = self._parse(found, cluster)
        rows = [ProcessTitle(pid, *parsed[pid], self._started[pid]) for pid in sorted(parsed) if pid in self._started]
        unreadable = sum(1 for pid in pids if pid not in found and read_stat(self._proc, pid) is not None)
        return ProcessTitles(postmaster, rows, unreadable, titles_are_updated(parsed.values()))

    def _parse(self, found: dict[int, str], cluster: str | None) -> dict[int, ParsedTitle]:
        """What each title says; most are those of the tick before and are not parsed again."""
        known = self._known if cluster == self._cluster else {}
        self._cluster = cluster
        self._known = {title: known.get(title) or parse_title(title, cluster) for title in found.values()}
        return {pid: self._known[title] for pid, title in found.items()}

    def _titles(self, pids: list[int]) -> dict[int, str]:
        now_us = self._clock.mono_us()
        self._skipped_until = {
            pid: until for pid, until in self._skipped_until.items() if until > now_us and pid in pids
        }
        left = [pid for pid in pids if pid not in self._skipped_until]
        until_us = now_us + self._deadline_us
        found: dict[int, str] = {}
        while left:
            # A part of the time for each go, so that one that hangs leaves some for those after it.
            go_us = min(until_us, self._clock.mono_us() + self._deadline_us // 3)
            attempt = _TitlePass(self._proc, left, self._read)
            try:
                self._lane.start(attempt.run).result(go_us)
            except LaneTimeout:
                pass
            found.update(attempt.titles())
            if attempt.current_pid is None or self._clock.mono_us() >= until_us or self._lane.stuck == 0:
                break
            self._skipped_until[attempt.current_pid] = now_us + SKIP_US
            left = [pid for pid in left if pid > attempt.current_pid]
        return found

    def _remember_starts(self, found: dict[int, str]) -> None:
        """When each process started, read once per process: with the pid it is the identity."""
        self._started = {pid: start for pid, start in self._started.items() if pid in found}
        for pid in found:
            if pid not in self._started and (stat := read_stat(self._proc, pid)) is not None:
                self._started[pid] = stat.start_ticks

    def close(self) -> None:
        self._lane.close()


class _TitlePass:
    """One go through the titles. The lane's thread fills it, the reader's may look at it meanwhile."""

    def __init__(self, proc: str, pids: list[int], read: Callable[[str, int], bytes]) -> None:
        self._proc = proc
        self._pids = pids
        self._read = read
        self._found: dict[int, str] = {}
        self.current_pid: int | None = None
        """The process being read now, None before the first and after the last."""

    def run(self) -> None:
        for pid in self._pids:
            self.current_pid = pid
            try:
                raw = self._read(f"{self._proc}/{pid}/cmdline", TITLE_SIZE)
            except OSError:
                continue
            # The title overwrites the arguments: what is left of them is zeroed, or follows a zero.
            title = raw.rstrip(b"\0").replace(b"\0", b" ").decode("utf-8", "backslashreplace").rstrip()
            if title:  # a zombie has none
                self._found[pid] = title
        self.current_pid = None

    def titles(self) -> dict[int, str]:
        """What was read so far."""
        return dict(self._found)
