"""The finding service: computes the chart values and runs the rule engine in each tick, makes the findings part,
applies acknowledgements.

If the rule engine fails, this is reported once, and the agent keeps watching.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from dba_console.agent.protocol import Acknowledge, Silence
from dba_console.core.clock import Clock
from dba_console.core.decoding import json_decoder
from dba_console.core.redact import redact
from dba_console.watch.findings.finding_events import FindingMark
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.chart_points import point_of
from dba_console.watch.frames.picture import Picture
from dba_console.watch.probes.deadline_lane import LaneTimeout, PolledCall
from dba_console.watch.samples.event import Event
from dba_console.watch.samples.sample import Part, make_part

if TYPE_CHECKING:
    from dba_console.watch.findings.rule_engine import RuleEngine
    from dba_console.watch.frames.model import Frame
    from dba_console.watch.samples.findings import FindingsNow

# Acknowledgements and silences, stored beside the agent's socket for the next agent.
#
# That directory is memory-backed on most hosts and may be on a stalled disk on others ($DBA_CONSOLE_RUNTIME, /tmp), so
# it is read and written in a lane that neither the tick nor the operator waits for. It is lost at a reboot, which
# operators notice anyway.

OperatorEntries = dict[str, dict[str, FindingMark]]

_DECODER = json_decoder(OperatorEntries)
SIZE_LIMIT = 1 << 20
READ_S = 1.0
"""Maximum wait at start for the stored entries; then the agent starts without them."""
WRITE_TIMEOUT_US = 30_000_000
"""A longer write is abandoned and started again in another thread."""
CLOSE_S = 1.0
"""Maximum wait at the end for the last write."""


class AcknowledgementsFile:
    """The file of one target. `set_entries` may be called by any thread, the rest only by the tick."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path, self._clock = path, clock
        self._write: PolledCall[None] = PolledCall("said", clock, WRITE_TIMEOUT_US)
        self._written: OperatorEntries = {}
        self._latest = self._writing = self._written

    def load(self) -> OperatorEntries:
        """Return the stored entries; empty if the file does not exist or cannot be read in time."""
        try:
            return self._write.lane.call(lambda: load_entries(self._path), READ_S)
        except LaneTimeout:
            return {}

    def set_entries(self, words: OperatorEntries) -> None:
        """Set the entries to write in the next tick, if they changed."""
        if words != self._latest:
            self._latest = words

    def write_if_due(self) -> None:
        """Start or finish a write, without waiting."""
        if self._write.ended():
            try:
                self._write.take()
            except LaneTimeout:
                pass
            else:
                self._written = self._writing
        words = self._latest
        if (
            not self._write.pending
            and words is not self._written
            and self._write.start(lambda: save_entries(self._path, words))
        ):
            self._writing = words

    def close(self) -> None:
        """Write the last entries; waits at most CLOSE_S for the disk."""
        until_us = self._clock.mono_us() + int(CLOSE_S * 1e6)
        if self._write.idle(until_us):
            self.write_if_due()
        self._write.idle(until_us)
        self._write.close()


def load_entries(path: Path) -> OperatorEntries:
    """Return the content of the file; empty if it does not exist or cannot be read."""
    try:
        data = path.read_bytes()
        return _DECODER.decode(data) if len(data) <= SIZE_LIMIT else {}
    except (OSError, msgspec.MsgspecError):
        return {}


def save_entries(path: Path, words: OperatorEntries) -> None:
    """Write the entries, readable only by the owner. After a failure only the next agent misses them."""
    if not any(words.values()) and not path.exists():
        return
    from dba_console.core.atomic_files import write_atomically  # only needed for writing

    try:
        write_atomically(str(path.parent), path.name, msgspec.json.encode(words), synced=False)
    except OSError:
        pass


PART = "findings"
REPEAT_US = 10_000_000
"""Unchanged findings are repeated at this interval, so that their age is always known."""
LONGEST_SILENCE_S = 30 * 86_400.0


class FindingService:
    """Used by the tick; requests of operators come from the listener's thread."""

    def __init__(self, findings: Mapping[str, Any], words: Path, clock: Clock, *, keep: bool = True) -> None:
        """`findings` is that table of the configuration, `words` the file of operators' entries. Without `keep` it is
        only read, and nothing is left behind."""
        self._configured = findings
        self._clock = clock
        self._keep = keep
        self._operator_entries = AcknowledgementsFile(words, clock)
        self._lock = threading.Lock()
        self._history = ChartHistory()
        self._judge: RuleEngine | None = None
        self._last_sent: FindingsNow | None = None
        self._last_sent_us = 0
        self._failure: str | None = None
        self._cpu_ns = 0
        self.point: dict[str, float] | None = None
        """Chart values of the latest tick, for the consoles and the recording; None if they could not be computed."""

    @property
    def cpu_us(self) -> int:
        """CPU time of rule evaluation so far."""
        return self._cpu_ns // 1000

    def load_rules(self) -> None:
        """Load the rules after the first picture was sent, so that the screen does not wait for them."""
        from dba_console.watch.findings.rule_engine import RuleEngine
        from dba_console.watch.findings.thresholds import Limits

        judge = RuleEngine(Limits.configured(self._configured))
        judge.marks.restore(self._operator_entries.load(), self._clock.wall_us())
        self._judge = judge
        self._save(judge)

    def tick(self, picture: Picture) -> tuple[Part | None, list[Event]]:
        """Return the part for this sample, None if nothing changed, and the events of changes."""
        self.point = None
        try:
            point = self.point = point_of(picture)
            with self._lock:
                self._history.add(picture.wall_us, point)
                if self._judge is None:
                    return None, []
                self._operator_entries.write_if_due()
                events = self._evaluate(self._judge, picture, point)
                return self._part(self._judge, picture.mono_us), events
        except Exception as error:
            return None, self._failure_event(error, picture)

    def apply_request(self, request: Acknowledge | Silence, who: str) -> Event | str:
        """Apply an operator's request: return the event, or the sentence why it was refused."""
        if self._judge is None:
            return "no findings have been evaluated yet; try again in a second"
        wall_us = self._clock.wall_us()
        note = redact(request.note)
        with self._lock:
            if isinstance(request, Acknowledge):
                change = self._judge.acknowledge(request.finding, who, note, wall_us)
            elif request.seconds > 0:
                until_us = wall_us + int(min(request.seconds, LONGEST_SILENCE_S) * 1e6)
                change = self._judge.silence(request.finding, until_us, who, note, wall_us)
            else:
                change = self._judge.unsilence(request.finding, who, wall_us)
            self._last_sent = None
            self._save(self._judge)
        if change is None:
            return _refusal(request)
        from dba_console.watch.findings.finding_events import change_event

        return change_event(change, wall_us, self._clock.mono_us())

    def frame(self, picture: Picture) -> Frame:
        """Return the frame of the picture, with the minutes before it. Thread-safe."""
        with self._lock:
            from dba_console.watch.frames.derive import derive  # needed only by the checks of a run

            return derive(picture, self._history)

    def close(self) -> None:
        """Save the last entries; waits at most a second."""
        self._operator_entries.close()

    def _evaluate(self, judge: RuleEngine, picture: Picture, point: dict[str, float]) -> list[Event]:
        from dba_console.watch.findings.finding_events import change_event

        begun_ns = time.thread_time_ns()
        changes = judge.evaluate(picture, self._history, point)
        self._cpu_ns += time.thread_time_ns() - begun_ns
        if changes:
            self._save(judge)
        return [change_event(change, picture.wall_us, picture.mono_us) for change in changes]

    def _save(self, judge: RuleEngine) -> None:
        if self._keep:
            self._operator_entries.set_entries(judge.marks.to_save())

    def _part(self, judge: RuleEngine, mono_us: int) -> Part | None:
        now = judge.conclusions
        if now == self._last_sent and mono_us - self._last_sent_us < REPEAT_US:
            return None
        self._last_sent, self._last_sent_us = now, mono_us
        note = f"{len(now.failed)} rules failed: their findings are unknown" if now.failed else None
        return make_part(PART, now, at_us=mono_us, note=note)

    def _failure_event(self, error: Exception, picture: Picture) -> list[Event]:
        text = f"findings are not evaluated: {type(error).__name__}: {error}"
        if text == self._failure:
            return []
        self._failure = text
        return [
            Event(
                wall_us=picture.wall_us, mono_us=picture.mono_us, kind="probe.failed", severity="warning",
                text=redact(text),
            )
        ]  # fmt: skip


def _refusal(request: Acknowledge | Silence) -> str:
    if isinstance(request, Silence) and request.seconds <= 0:
        return f"{request.finding!r} is neither silenced nor acknowledged"
    return f"no open finding {request.finding!r}"
