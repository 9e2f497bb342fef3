"""The agent's conclusions: the judge with its ten minutes, the part it gives each sample, the operators' words on it.

Judging may fail in ways nobody foresaw; then it is said once, and the agent goes on watching.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from dba_console.agent.protocol import Acknowledge, Silence
from dba_console.core.clock import Clock
from dba_console.core.decoding import json_decoder
from dba_console.core.redact import redact
from dba_console.core.thresholds import Limits
from dba_console.watch.findings.finding_events import FindingMark
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.chart_points import point_of
from dba_console.watch.frames.picture import Picture
from dba_console.watch.probes.deadline_lane import Lane, LaneTimeout, PendingCall
from dba_console.watch.samples.event import Event
from dba_console.watch.samples.sample import Part, make_part

if TYPE_CHECKING:
    from dba_console.watch.findings.rule_engine import RuleEngine
    from dba_console.watch.frames.model import Frame
    from dba_console.watch.samples.findings import FindingsNow

# What operators said of findings, kept beside the agent's socket so that the next agent knows it too.
#
# That directory is memory-backed on most hosts and may be on a stalled disk on others ($DBA_CONSOLE_RUNTIME, /tmp): so
# it is read and written in a lane, and neither the tick nor whoever spoke waits for it. It is gone with a reboot,
# which is news enough.

OperatorEntries = dict[str, dict[str, FindingMark]]

_DECODER = json_decoder(OperatorEntries)
SIZE_LIMIT = 1 << 20
READ_S = 1.0
"""The start waits so long for what was said before; then it goes on without."""
WRITE_TIMEOUT_US = 30_000_000
"""A write that takes longer is given up, and begun anew in another thread."""
CLOSE_S = 1.0
"""The end waits so long for the last write."""


class AcknowledgementsFile:
    """The file of one target. `set_entries` may be called by any thread, the rest by the tick's alone."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path, self._clock = path, clock
        self._lane = Lane("said", clock)
        self._job: PendingCall[None] | None = None
        self._begun_us = 0
        self._written: OperatorEntries = {}
        self._latest = self._writing = self._written

    def load(self) -> OperatorEntries:
        """What was said before; nothing where there is no such file, or it cannot be read in time."""
        try:
            return self._lane.call(lambda: load_entries(self._path), READ_S)
        except LaneTimeout:
            return {}

    def set_entries(self, words: OperatorEntries) -> None:
        """To be written in the next tick, where it is not what was kept last."""
        if words != self._latest:
            self._latest = words

    def write_if_due(self) -> None:
        """See to the file, without waiting for it."""
        if self._job is not None:
            if self._job.ready(0):
                self._job, self._written = None, self._writing
            elif self._clock.mono_us() - self._begun_us > WRITE_TIMEOUT_US:
                self._lane.abandon()
                self._job = None
        words = self._latest
        if self._job is None and words is not self._written:
            try:
                self._job = self._lane.start(lambda: save_entries(self._path, words))
            except LaneTimeout:
                return
            self._writing, self._begun_us = words, self._clock.mono_us()

    def close(self) -> None:
        """Write what was said last; a disk that does not answer is waited for a second."""
        until_us = self._clock.mono_us() + int(CLOSE_S * 1e6)
        if self._job is None or self._job.ready(until_us):
            self.write_if_due()
        if self._job is not None:
            self._job.ready(until_us)
        self._lane.close()


def load_entries(path: Path) -> OperatorEntries:
    """What the file holds; nothing where there is none or it cannot be read."""
    try:
        data = path.read_bytes()
        return _DECODER.decode(data) if len(data) <= SIZE_LIMIT else {}
    except (OSError, msgspec.MsgspecError):
        return {}


def save_entries(path: Path, words: OperatorEntries) -> None:
    """Write what was said, readable by its owner alone. A failure costs only that the next agent does not know it."""
    if not any(words.values()) and not path.exists():
        return
    new = path.with_suffix(".new")
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode(words))
        os.replace(new, path)
    except OSError:
        pass


PART = "findings"
REPEAT_US = 10_000_000
"""Conclusions that did not change are repeated so often: a finding's age is then never in doubt."""
LONGEST_SILENCE_S = 30 * 86_400.0


class FindingService:
    """Used by the tick; what operators say comes from the listener's thread."""

    def __init__(self, limits: Limits, words: Path, clock: Clock, *, keep: bool = True) -> None:
        """`words` holds what operators said; without `keep` it is only read: who looks leaves nothing behind."""
        self._limits, self._clock, self._keep = limits, clock, keep
        self._operator_entries = AcknowledgementsFile(words, clock)
        self._lock = threading.Lock()
        self._history = ChartHistory()
        self._judge: RuleEngine | None = None
        self._last_sent: FindingsNow | None = None
        self._last_sent_us = 0
        self._failure: str | None = None
        self._cpu_ns = 0
        self.point: dict[str, float] | None = None
        """Chart values of the newest tick, None where they were not made."""

    @property
    def cpu_us(self) -> int:
        """CPU time of judging so far."""
        return self._cpu_ns // 1000

    def load_rules(self) -> None:
        """Load the rules, once the first picture is on its way: nobody waits for a screen because of them."""
        from dba_console.watch.findings.rule_engine import RuleEngine

        judge = RuleEngine(self._limits)
        judge.marks.restore(self._operator_entries.load(), self._clock.wall_us())
        self._judge = judge
        self._save(judge)

    def tick(self, picture: Picture) -> tuple[Part | None, list[Event]]:
        """The part for this sample, None where nothing changed, and the events of what did."""
        self.point = None
        if self._judge is None:
            return None, []
        try:
            self._operator_entries.write_if_due()
            with self._lock:
                events = self._evaluate(self._judge, picture)
                return self._part(self._judge, picture.mono_us), events
        except Exception as error:
            return None, self._failure_event(error, picture)

    def apply_request(self, request: Acknowledge | Silence, who: str) -> Event | str:
        """Do what an operator asks of a finding: the event that tells it, or the sentence why not."""
        if self._judge is None:
            return "nothing has been judged yet: ask again in a second"
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
        """What the picture means, with the minutes before it. May be asked by any thread."""
        with self._lock:
            from dba_console.watch.frames.derive import derive  # by a run's first look, and by nobody else

            return derive(picture, self._history)

    def close(self) -> None:
        """Keep what was said last; waits for it no longer than a second."""
        self._operator_entries.close()

    def _evaluate(self, judge: RuleEngine, picture: Picture) -> list[Event]:
        from dba_console.watch.findings.finding_events import change_event

        point = self.point = point_of(picture)
        begun_ns = time.thread_time_ns()
        self._history.add(picture.wall_us, point)
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
        note = f"{len(now.failed)} rules failed: what they would say is unknown" if now.failed else None
        return make_part(PART, now, at_us=mono_us, note=note)

    def _failure_event(self, error: Exception, picture: Picture) -> list[Event]:
        text = f"findings are not judged: {type(error).__name__}: {error}"
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
    return f"no finding {request.finding!r} is open now"
