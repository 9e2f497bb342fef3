"""Measure the outage of a cutover for clients: a heartbeat process that writes and reads every 20 ms, and its record.

The process (`clusters/heartbeat_process.py`) runs in its own process session and outlives agent and console. It appends
each acknowledged beat to `heartbeat.jsonl` of the given directory; the outage is computed from that file alone, also
after the process was killed. The outage is the longest time between the ends of two acknowledged beats, minus the
interval: a beat held by a paused pooler is one long beat, not an error.
"""

from __future__ import annotations

import json
import os
import select
import signal
from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dba_console.core.atomic_files import read_small
from dba_console.core.clock import Clock
from dba_console.core.decoding import json_decoder
from dba_console.core.errors import ConnectError, SessionError
from dba_console.core.safe_environment import python_command
from dba_console.core.target import parse_conninfo
from dba_console.keeper.proc import boot_id, is_alive

FILE = "heartbeat.jsonl"
INTERVAL_S = 0.02
"""Interval of beats: a tenth of the shortest possible outage of a cutover, and fifty small commits a second."""
LIFE_S = 2 * 3600.0
"""Maximum lifetime, if the run never stops it."""
START_S = 10.0
"""Time until the process answers: after its first write, acknowledged or not, or after 3 s."""
FIRST_WRITE_S = 3.0
"""Time for the first write before the caller continues: later steps may block a write that was never acknowledged."""
STOP_S = 10.0
"""Time to remove its row and table; after that it is killed."""
MAX_ERRORS_SHOWN = 3
"""Number of error texts named in a report, the most frequent ones."""
KILLED = "it was killed"
_INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "TZ")
_LARGEST = 64 << 20
"""Maximum bytes read of a record; a heartbeat of two hours writes about 20 MB."""
_KINDS = {"w": ("write", True), "r": ("read", True), "W": ("write", False), "R": ("read", False)}


class AnsweringServer(Struct, frozen=True, kw_only=True):
    """A server that acknowledged beats, from the first to the last of them. Wall time in microseconds since 1970."""

    kind: str
    """write or read"""
    address: str | None = None
    """None: a Unix socket."""
    port: str | None = None
    in_recovery: bool = False
    timeline: int | None = None
    """None on a standby."""
    from_us: int = 0
    to_us: int = 0
    beats: int = 0

    @property
    def server(self) -> str:
        where = f"{self.address or 'local socket'}:{self.port}"
        return f"{where}, standby" if self.in_recovery else f"{where}, timeline {self.timeline}"


class HeartbeatOutage(Struct, frozen=True, kw_only=True):
    """The outage measured by a heartbeat. Seconds; times are wall time in microseconds since 1970."""

    write_s: float | None = None
    """Longest time without an acknowledged write, also if it has not ended. None: none was ever acknowledged, or the
    outage began before the heartbeat."""
    read_s: float | None = None
    write_before_s: float = 0.0
    """From the start to the first acknowledged write, if the outage began before the start."""
    read_before_s: float = 0.0
    began_us: int = 0
    """The last acknowledged write before it."""
    ended_us: int = 0
    """The first one after it, or the end of the record."""
    read_began_us: int = 0
    read_ended_us: int = 0
    writes: int = 0
    reads: int = 0
    errors: dict[str, int] = {}
    """Error text -> number of occurrences, most frequent first."""
    running: bool = False
    since_us: int = 0
    until_us: int = 0
    """End of the recorded beats."""
    unmeasured_s: float = 0.0
    """Time without a running heartbeat, between two starts."""
    ended: str = ""
    """Why it ended; empty while it runs."""
    advisory: str = ""
    """Why it does not write a table."""
    left: str = ""
    """Objects that it could not remove."""
    servers: tuple[AnsweringServer, ...] = ()
    """In the order of their first beats."""


def start_heartbeat(directory: Path, conninfo: str, clock: Clock, *, life_s: float = LIFE_S) -> None:
    """Start the process unless it runs; return after its first write, acknowledged or not, or after 3 s.

    Raises ConsoleError if it does not start. A server that does not answer is not an error: that is measured.
    """
    parse_conninfo(conninfo)
    directory = directory.resolve()
    if read_outage(directory).running:
        return
    connect = {name: value for name, value in os.environ.items() if name.startswith("PG")}
    order = {"conninfo": conninfo, "environment": connect, "life_s": life_s}
    # Other users can read arguments, and root the environment; a memory file is private.
    request, answer, nothing = os.memfd_create("heartbeat"), os.pipe(), os.open(os.devnull, os.O_WRONLY)
    try:
        os.write(request, json.dumps(order).encode(errors="surrogateescape"))
        os.lseek(request, 0, os.SEEK_SET)
        command = [*python_command("dba_console.clusters.heartbeat_process"), str(directory)]
        pid = os.posix_spawn(
            command[0], command, _environment(), setsid=True,
            file_actions=[(os.POSIX_SPAWN_DUP2, one, to) for to, one in enumerate((request, answer[1], nothing))],
        )  # fmt: skip
    finally:
        for descriptor in (request, answer[1], nothing):
            os.close(descriptor)
    try:
        ready = select.select([answer[0]], [], [], START_S)[0]
        text = os.read(answer[0], 65536) if ready else b""
    finally:
        os.close(answer[0])
        os.waitpid(pid, 0 if ready else os.WNOHANG)
    if not text:
        reason = f"did not answer within {START_S:g} s" if not ready else "ended before its first write"
        raise ConnectError(f"the heartbeat {reason}", hint=f"{directory / FILE} shows its progress")
    if failure := json.loads(text)["error"]:
        raise SessionError(failure)


def stop_heartbeat(directory: Path) -> None:
    """End the process; it removes its row and table first. Does nothing if none runs."""
    for header in [line[1] for line in _lines(directory.resolve()) if line[0] == "start"][-1:]:
        try:
            descriptor = os.pidfd_open(header["pid"])
        except OSError:
            return
        try:
            if not _is_running(header):
                return
            poller = select.poll()
            poller.register(descriptor, select.POLLIN)
            for number, wait_s in ((signal.SIGTERM, STOP_S), (signal.SIGKILL, 1.0)):
                signal.pidfd_send_signal(descriptor, number)
                if poller.poll(wait_s * 1000):
                    return
        except ProcessLookupError:
            return
        finally:
            os.close(descriptor)


def read_outage(directory: Path) -> HeartbeatOutage:
    """Return the outage from the record in `directory`; empty without a record."""
    record = _RecordReader()
    for line in _lines(directory):
        record.add_line(line)
    return record.compute_outage()


def outage_lines(found: HeartbeatOutage, names: Mapping[int, str] | None = None) -> list[str]:
    """Return the measurement as sentences for a report; `names` are the node names by the timeline they write."""
    lines = []
    for what, seconds, before_s, span in (
        ("write", found.write_s, found.write_before_s, (found.began_us, found.ended_us)),
        ("read", found.read_s, found.read_before_s, (found.read_began_us, found.read_ended_us)),
    ):
        if seconds is None and before_s:
            since = _moment(found.since_us)
            lines.append(
                f"how long clients could not {what} is unknown: the heartbeat started at {since}, and its first {what} "
                f"was acknowledged {before_s:.2f} s later"
            )
        elif seconds is None:
            lines.append(f"whether clients could {what} is unknown: no {what} was acknowledged")
        else:
            end = f"to {_moment(span[1])}" if span[1] < found.until_us else f"and still not at {_moment(span[1])}"
            lines.append(f"clients could not {what} for {seconds:.2f} s, from {_moment(span[0])} {end}")
    writers = [one for one in found.servers if one.kind == "write"]
    for one in writers:
        name = (names or {}).get(one.timeline or 0, "")
        where = f"{name} ({one.server})" if name else one.server
        lines.append(f"writes on {where} from {_moment(one.from_us)} to {_moment(one.to_us)}")
    lines += [
        f"two servers acknowledged writes at the same time: {one.server} and {other.server}"
        for one, other in pairwise(writers)
        if other.from_us < one.to_us
    ]
    lines += [f"{count} × {text}" for text, count in list(found.errors.items())[:MAX_ERRORS_SHOWN]]
    if (more := len(found.errors) - MAX_ERRORS_SHOWN) > 0:
        lines.append(f"{more} other errors")
    if found.advisory:
        lines.append(f"writes were messages in the WAL, not rows of a table: {found.advisory}")
    if found.unmeasured_s:
        lines.append(f"not measured for {found.unmeasured_s:.1f} s: the heartbeat was not running")
    return [*lines, found.left] if found.left else lines


def _moment(wall_us: int) -> str:
    """Return the local time in milliseconds."""
    return f"{datetime.fromtimestamp(wall_us / 1e6):%H:%M:%S.%f}"[:-3]


def _environment() -> dict[str, str]:
    # One malloc arena, to save memory: otherwise each thread gets its own heap.
    return {"MALLOC_ARENA_MAX": "1", **{name: os.environ[name] for name in _INHERITED if name in os.environ}}


def _lines(directory: Path) -> Iterator[list[Any]]:
    """Yield the lines of the record, without lines truncated by a kill."""
    try:
        data = read_small(directory / FILE, _LARGEST)
    except FileNotFoundError:
        return
    decode = json_decoder(list[Any]).decode
    for line in data.splitlines():
        try:
            yield decode(line)
        except (msgspec.DecodeError, RecursionError):
            continue


def _is_running(header: dict[str, Any]) -> bool:
    return bool(header["boot"] == boot_id()) and is_alive(header["pid"], header["ticks"])


class _LongestGap:
    """The longest time between two acknowledged beats of one kind. Monotonic microseconds."""

    def __init__(self) -> None:
        self.count, self.last = 0, None
        self.longest_us, self.began, self.ended = -1, 0, 0
        self.start: int | None = None
        self.before_us = 0
        self.failed = False

    last: int | None

    def extend_to(self, at: int) -> None:
        if self.last is not None and at - self.last > self.longest_us:
            self.longest_us, self.began, self.ended = at - self.last, self.last, at

    def note_failure(self) -> None:
        self.failed = self.failed or not self.count

    def note_beat(self, at: int) -> None:
        if not self.count and self.start is not None and (self.failed or at - self.start > FIRST_WRITE_S * 1e6):
            self.before_us = at - self.start
        self.extend_to(at)
        self.count, self.last = self.count + 1, at

    def seconds(self) -> float | None:
        is_measured = self.count and self.before_us <= self.longest_us
        return max(0.0, self.longest_us / 1e6 - INTERVAL_S) if is_measured else None


class _ServerBeats:
    """Beats of one server since the last start. Monotonic microseconds."""

    __slots__ = ("count", "first", "last")

    def __init__(self, first: int) -> None:
        self.first = self.last = first
        self.count = 0


class _RecordReader:
    """Computes the outage from the lines of a record."""

    def __init__(self) -> None:
        self.header: dict[str, Any] = {}
        self.gaps = {"write": _LongestGap(), "read": _LongestGap()}
        self.servers: dict[int, dict[str, Any]] = {}
        self.texts: dict[int, str] = {}
        self.errors: dict[str, int] = {}
        self.server_beats: dict[tuple[str, int], _ServerBeats] = {}
        """By kind and number of the server."""
        self.before: list[AnsweringServer] = []
        """Servers of earlier starts: numbers are valid for one start only."""
        self.since_us = self.until = 0
        self.unmeasured_us = 0
        self.ended = self.advisory = self.left = ""

    def add_line(self, line: list[Any]) -> None:
        match line:
            case ["w" | "r" | "W" | "R" as sign, int(), int() as ended, int() as number]:
                self._beat(*_KINDS[sign], ended, number)
            case ["start", dict() as header]:
                self._start(header)
            case ["at", int() as until]:
                self.until = max(self.until, until)
            case ["server", int() as number, dict() as server]:
                self.servers[number] = server
            case ["error", int() as number, str() as text]:
                self.texts[number] = text
            case ["advisory", str() as why]:
                self.advisory = why
            case ["left", str() as text]:
                self.left = text
            case ["end", str() as why]:
                self.ended = why

    def compute_outage(self) -> HeartbeatOutage:
        if not self.header:
            return HeartbeatOutage()
        for gap in self.gaps.values():
            gap.extend_to(self.until)
        write, read = self.gaps["write"], self.gaps["read"]
        running = not self.ended and _is_running(self.header)
        return HeartbeatOutage(
            write_s=write.seconds(), read_s=read.seconds(),
            write_before_s=write.before_us / 1e6, read_before_s=read.before_us / 1e6,
            writes=write.count, reads=read.count,
            began_us=self._to_wall_us(write.began) if write.count else 0,
            ended_us=self._to_wall_us(write.ended) if write.count else 0,
            read_began_us=self._to_wall_us(read.began) if read.count else 0,
            read_ended_us=self._to_wall_us(read.ended) if read.count else 0,
            errors=dict(sorted(self.errors.items(), key=lambda one: -one[1])),
            running=running, ended=self.ended or ("" if running else KILLED),
            since_us=self.since_us, until_us=self._to_wall_us(self.until), unmeasured_s=self.unmeasured_us / 1e6,
            advisory=self.advisory, left=self.left, servers=tuple(self._answering_servers()),
        )  # fmt: skip

    def _start(self, header: dict[str, Any]) -> None:
        at = header["mono_us"]
        if self.header and self.header["boot"] == header["boot"]:
            self.unmeasured_us += at - self.until
        elif self.header:  # another boot: the monotonic clocks cannot be compared
            for gap in self.gaps.values():
                gap.last = None
        if not self.header:
            for gap in self.gaps.values():
                gap.start = at
        self.since_us = self.since_us or header["wall_us"]
        self.before = self._answering_servers()
        self.server_beats = {}
        self.header, self.until = header, at
        self.servers, self.texts, self.ended, self.left = {}, {}, "", ""

    def _beat(self, kind: str, acknowledged: bool, ended: int, number: int) -> None:
        self.until = max(self.until, ended)
        if not acknowledged:
            self.gaps[kind].note_failure()
            text = self.texts.get(number, "?")
            self.errors[text] = self.errors.get(text, 0) + 1
            return
        self.gaps[kind].note_beat(ended)
        beats = self.server_beats.get((kind, number))
        if beats is None:
            beats = self.server_beats[kind, number] = _ServerBeats(ended)
        beats.last, beats.count = ended, beats.count + 1

    def _answering_servers(self) -> list[AnsweringServer]:
        """Return each server once, also if the heartbeat was restarted."""
        found = {(one.kind, one.server): one for one in self.before}
        for (kind, number), server_beats in self.server_beats.items():
            server = self.servers.get(number, {})
            line = server.get("timeline")
            one = AnsweringServer(
                kind=kind,
                address=server.get("address"),
                port=server.get("port"),
                in_recovery=server.get("in_recovery") == "true",
                timeline=None if line is None else int(line, 16),
                from_us=self._to_wall_us(server_beats.first),
                to_us=self._to_wall_us(server_beats.last),
                beats=server_beats.count,
            )
            known = found.get((kind, one.server), one)
            beats = one.beats if known is one else one.beats + known.beats
            found[kind, one.server] = replace(one, from_us=known.from_us, beats=beats)
        return list(found.values())

    def _to_wall_us(self, mono_us: int) -> int:
        return int(self.header["wall_us"] + mono_us - self.header["mono_us"])
