"""Reads CPU time, state, memory, storage I/O and titles of the postmaster and its children.

Reading a thousand idle backends each second would cost more than the rest of the console. So each second those are read
that the server reports as active, that used CPU when last read, or that are new; the others in turn, all of them within
`TURN_TICKS` ticks. A process not read in a tick has no row in it. (psutil needs three files for what `stat` has in one
read, and gives start times as floating-point seconds of a clock that may be set, not in ticks.)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from dba_console.core.clock import Clock
from dba_console.watch.probes.deadline_lane import Lane, LaneTimeout
from dba_console.watch.probes.host.kernel_files import (
    STAT_SIZE,
    KernelFile,
    ProcStat,
    parse_io,
    parse_stat,
    read_once,
    read_stat,
)
from dba_console.watch.probes.host.postmasters import PostmasterChildren
from dba_console.watch.samples.host import Process, Processes, ProcessTitle, ProcessTitles

TURN_TICKS = 20
"""Ticks within which every idle process is read once."""

MAX_OPEN_PROCESSES = 64
"""Processes whose files are kept open: two descriptors each, well below the usual limit of 1024."""

IO_DENIED = "bytes read and written by backends are unknown: reading /proc/PID/io needs root or the owner of the server"


@dataclass(slots=True)
class _ProcessState:
    """What is kept of a process between ticks."""

    pid: int
    ticks: int = -1
    stat: KernelFile | None = None
    io: KernelFile | None = None

    def close(self) -> None:
        for file in (self.stat, self.io):
            if file is not None:
                file.close()
        self.stat = self.io = None


class ProcessReader:
    """Reads the processes of one postmaster, tick by tick. Not thread-safe."""

    def __init__(self, proc: str, postmaster: int, page_size: int) -> None:
        self.postmaster = postmaster
        self.children = PostmasterChildren(proc, postmaster)
        self._proc = proc
        self._page_size = page_size
        self._known: dict[int, _ProcessState] = {}
        self._busy: set[int] = set()
        self._open: set[int] = set()
        self._last: set[int] = set()
        self._read_twice: set[int] = set()
        self._turn = 0
        self._in_order: tuple[frozenset[int], list[int]] = frozenset(), []
        self._io_denied = False

    def read(self, active: Collection[int], delayacct: int | None) -> tuple[Processes, str | None]:
        """Return the reading, and a note on what is missing. Raises ProcessLookupError if the postmaster has ended.

        `delayacct` is kernel.task_delayacct: with 0 the kernel does not account I/O waits and writes 0 instead.
        """
        children = self.children.read()
        if children is not self._in_order[0]:
            self._forget(children)
            self._in_order = children, sorted(children)
        due = self._due(children, active)
        rows = [row for pid in sorted(due) if (row := self._process(pid, delayacct)) is not None]
        letters = [row.state for row in rows]
        states = {state: letters.count(state) for state in dict.fromkeys(letters)}
        reading = Processes(self.postmaster, rows, states, len(children))
        return reading, IO_DENIED if self._io_denied else None

    def _forget(self, children: frozenset[int]) -> None:
        for pid in self._known.keys() - children - {self.postmaster}:
            self._drop(pid)

    def _due(self, children: frozenset[int], active: Collection[int]) -> set[int]:
        """Return the pids to read now. Files stay open for those read in two consecutive ticks."""
        self._turn = (self._turn + 1) % TURN_TICKS
        # All children and the postmaster are known on most ticks: nothing to compare then.
        new = children - self._known.keys() if len(self._known) <= len(children) else frozenset[int]()
        in_turn = self._in_order[1][self._turn :: TURN_TICKS]
        due = {self.postmaster, *new, *self._busy, *in_turn, *children.intersection(active)}
        for pid in self._open - due:
            self._release(self._known[pid])
        self._read_twice = due & self._last
        self._last = due
        return due

    def _process(self, pid: int, delayacct: int | None) -> Process | None:
        known = self._known.get(pid)
        if known is None:
            known = self._known[pid] = _ProcessState(pid)
        try:
            stat = parse_stat(self._stat(known))
        except (OSError, ValueError, IndexError):
            self._drop(pid)
            return None
        read_bytes, write_bytes = self._io(known)
        self._update_busy(known, stat)
        return Process(
            pid, stat.state, stat.start_ticks, stat.user_ticks, stat.system_ticks, stat.rss_pages * self._page_size,
            read_bytes, write_bytes, _blkio(stat, delayacct),
        )  # fmt: skip

    def _update_busy(self, known: _ProcessState, stat: ProcStat) -> None:
        """Update whether it is busy: used CPU since its last reading, runs, or waits for a disk."""
        ticks = stat.user_ticks + stat.system_ticks
        if ticks != known.ticks or stat.state in "RD":
            self._busy.add(known.pid)
        else:
            self._busy.discard(known.pid)
        known.ticks = ticks

    def _stat(self, known: _ProcessState) -> bytes:
        if known.stat is None:
            path = f"{self._proc}/{known.pid}/stat"
            if known.pid not in self._read_twice or len(self._open) >= MAX_OPEN_PROCESSES:
                return read_once(path, STAT_SIZE)
            known.stat = KernelFile(path)
            known.io = KernelFile(f"{self._proc}/{known.pid}/io")
            self._open.add(known.pid)
        return known.stat.read_once(STAT_SIZE)

    def _io(self, known: _ProcessState) -> tuple[int | None, int | None]:
        if self._io_denied:
            return None, None
        try:
            if known.io is not None:
                return parse_io(known.io.read_once(STAT_SIZE))
            return parse_io(read_once(f"{self._proc}/{known.pid}/io", STAT_SIZE))
        except PermissionError:
            self._io_denied = True
        except (OSError, ValueError):
            pass  # ended meanwhile, or a kernel without the file
        return None, None

    def _drop(self, pid: int) -> None:
        self._release(self._known.pop(pid))
        self._busy.discard(pid)

    def _release(self, known: _ProcessState) -> None:
        self._open.discard(known.pid)
        known.close()

    def close(self) -> None:
        """Close all descriptors."""
        for known in self._known.values():
            self._release(known)
        self._known.clear()
        self._busy.clear()
        self.children.close()


def _blkio(stat: ProcStat, delayacct: int | None) -> int | None:
    """Return the ticks waited for I/O. Without the sysctl (before 5.14) accounting may be off: then 0 means unknown."""
    if delayacct == 0 or (delayacct is None and stat.blkio_ticks == 0):
        return None
    return stat.blkio_ticks


# Parser of process titles. A title is `postgres: CLUSTER: USER DATABASE CLIENT STATE` for a client, `postgres: CLUSTER:
# KIND ...` for the server's own processes (src/backend/utils/misc/ps_status.c, backend_startup.c, postmaster's children
# of 13 to 18). Names may contain blanks and colons: where a title is ambiguous the field is None.

CLIENT_BACKEND = "client backend"
STARTING = "starting"
"""Forked, but its title is still that of the postmaster: a connection that has not authenticated yet."""

_PREFIX = "postgres: "
_CLIENT = re.compile(r" (\[local\]|\S+\(\d+\))(?: (.*))?$", re.S)
"""The client's address and what follows. The last match counts: a name may look like an address, a state never does."""

_KINDS = (
    "archiver", "autovacuum launcher", "autovacuum worker", "background writer", "checkpointer", "io worker", "logger",
    "logical replication apply worker", "logical replication launcher", "logical replication parallel apply worker",
    "logical replication tablesync worker", "logical replication worker", "parallel worker", "slotsync worker",
    "startup", "stats collector", "walreceiver", "walsummarizer", "walwriter",
)  # fmt: skip
_ALWAYS = (": checkpointer", ": background writer")
"""Processes that every server has in normal operation, with nothing after their name in the title."""


class ParsedTitle(NamedTuple):
    kind: str
    user: str | None = None
    database: str | None = None
    client: str | None = None
    state: str | None = None


def cluster_name(titles: Iterable[str]) -> str | None:
    """Return the cluster_name in these titles of one server, None if there is none.

    Taken from the checkpointer or background writer, whose title ends with their name, and only if every other title
    starts with it too.

    >>> cluster_name(["postgres: my: clu: checkpointer", "postgres: my: clu: app shop [local] idle"])
    'my: clu'
    """
    titled = [title for title in titles if title.startswith(_PREFIX)]
    for ending in _ALWAYS:
        for title in titled:
            if title.endswith(ending) and len(title) > len(_PREFIX) + len(ending) - 2:
                name = title[len(_PREFIX) : -len(ending)]
                if all(other.startswith(f"{_PREFIX}{name}: ") for other in titled):
                    return name
    return None


def parse_title(title: str, cluster: str | None = None) -> ParsedTitle:
    """Parse one title.

    >>> parse_title("postgres: app shop 10.0.0.7(52114) idle in transaction")
    ParsedTitle(kind='client backend', user='app', database='shop', client='10.0.0.7', state='idle in transaction')
    >>> parse_title("postgres: walsender rep [local] streaming 0/3000148").kind
    'walsender'
    """
    if not title.startswith(_PREFIX):
        return ParsedTitle(STARTING)
    text = title[len(_PREFIX) :]
    if cluster is not None:
        text = text.removeprefix(f"{cluster}: ")
    split = _split_client(text)
    if split is None:
        return _parse_server_process(text)
    names_text, client, state = split
    if names_text == "walsender" or names_text.startswith("walsender "):
        return _parse_walsender(names_text, client, state)
    user, database = _user_and_database(names_text)
    return ParsedTitle(CLIENT_BACKEND, user, database, client, state)


def _split_client(text: str) -> tuple[str, str, str | None] | None:
    """Split into the text before the client's address, the address without its port, and the state after it.

    Of the server's own processes only a walsender has an address, so a role called `archiver` is still a client.
    """
    found = None
    position = 0
    while (match := _CLIENT.search(text, position)) is not None:
        found = match
        position = match.start() + 1
    if found is None:
        return None
    client = re.sub(r"\(\d+\)$", "", found[1])
    return text[: found.start()], client, (found[2] or "").strip() or None


def _user_and_database(names_text: str) -> tuple[str | None, str | None]:
    """Return both names if exactly one blank separates them. With more blanks the split is ambiguous: both are None."""
    names = names_text.split(" ")
    return (names[0], names[1]) if len(names) == 2 else (None, None)


def _parse_walsender(names_text: str, client: str, state: str | None) -> ParsedTitle:
    """`walsender USER` streams, `walsender USER DATABASE` decodes. A role named walsender cannot be distinguished."""
    names = names_text.split(" ")[1:]
    user = names[0] if len(names) in (1, 2) else None
    return ParsedTitle("walsender", user, names[1] if len(names) == 2 else None, client, state)


def _parse_server_process(text: str) -> ParsedTitle:
    """Parse the title of a server process or of an extension's; its kind is its own name then."""
    stripped = text.strip()
    for kind in sorted(_KINDS, key=len, reverse=True):
        if _is_kind(stripped, kind):
            rest = stripped[len(kind) :].strip() or None
            if kind == "autovacuum worker":
                return ParsedTitle(kind, database=rest)
            return ParsedTitle(kind, state=rest)
    return ParsedTitle(stripped or STARTING)


def _is_kind(text: str, kind: str) -> bool:
    return text == kind or text.startswith(kind + " ")


def titles_are_updated(parsed: Iterable[ParsedTitle]) -> bool:
    """Return False if update_process_title is off: there are clients, and none of their titles has a state.

    With it on, every client's title has a state from the start (`initializing`, `authentication`).
    """
    clients = [title for title in parsed if title.kind == CLIENT_BACKEND]
    return not clients or any(title.state is not None for title in clients)


# Reader of process titles. Reading /proc/PID/cmdline takes the process's mmap lock: a backend that faults on a stalled
# disk holds it and blocks the reader. So titles are read in a lane; the process at which it hangs is skipped and the
# rest continues.

DEADLINE_US = 200_000
"""Time limit for all titles of one tick; a thousand take about 20 ms."""

SKIP_US = 30_000_000
"""A process whose title could not be read is retried after this."""

TITLE_SIZE = 4096


class TitleReader:
    """Reads the titles of one postmaster's children in a lane of its own. Not thread-safe."""

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
        """Whether a process blocks the lane."""
        return self._lane.stuck > 0

    def read(self, postmaster: int, children: Iterable[int]) -> ProcessTitles:
        """Return the titles that could be read before the deadline; the others are counted."""
        pids = sorted(children)
        found = self._titles(pids)
        self._remember_starts(found)
        cluster = cluster_name(found.values())
        parsed = self._parse(found, cluster)
        rows = [ProcessTitle(pid, *parsed[pid], self._started[pid]) for pid in sorted(parsed) if pid in self._started]
        unreadable = sum(1 for pid in pids if pid not in found and read_stat(self._proc, pid) is not None)
        return ProcessTitles(postmaster, rows, unreadable, titles_are_updated(parsed.values()))

    def _parse(self, found: dict[int, str], cluster: str | None) -> dict[int, ParsedTitle]:
        """Parse each title; most are unchanged since the previous tick and are not parsed again."""
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
            # A part of the time for each attempt, so that one that hangs leaves some for the rest.
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
        """Read the start of each process once: with the pid it is its identity."""
        self._started = {pid: start for pid, start in self._started.items() if pid in found}
        for pid in found:
            if pid not in self._started and (stat := read_stat(self._proc, pid)) is not None:
                self._started[pid] = stat.start_ticks

    def close(self) -> None:
        self._lane.close()


class _TitlePass:
    """One pass over the titles. Filled by the lane's thread; may be read by another meanwhile."""

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
            # The title overwrites the arguments: what remains of them is zeroed, or follows a zero.
            title = raw.rstrip(b"\0").replace(b"\0", b" ").decode("utf-8", "backslashreplace").rstrip()
            if title:  # empty for a zombie
                self._found[pid] = title
        self.current_pid = None

    def titles(self) -> dict[int, str]:
        """Return what was read so far."""
        return dict(self._found)
