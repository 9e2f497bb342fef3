"""The agent's conclusions: the judge with its ten minutes, the part it gives each sample, the operators' words on it.

Judging may fail in ways nobody foresaw; then it is said once, and the agent goes on watching.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from dba_console.agent.acknowledgements_file import AcknowledgementsFile
from dba_console.agent.protocol import Acknowledge, Silence
from dba_console.clock import Clock
from dba_console.frames.chart_history import ChartHistory
from dba_console.frames.chart_points import point_of
from dba_console.frames.picture import Picture
from dba_console.limits import Limits
from dba_console.redact import redact
from dba_console.samples.event import Event
from dba_console.samples.sample import Part, make_part

if TYPE_CHECKING:
    from dba_console.findings.rule_engine import RuleEngine
    from dba_console.frames.model import Frame
    from dba_console.samples.findings import FindingsNow

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
        from dba_console.findings.rule_engine import RuleEngine

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
        from dba_console.findings.finding_events import change_event

        return change_event(change, wall_us, self._clock.mono_us())

    def frame(self, picture: Picture) -> Frame:
        """What the picture means, with the minutes before it. May be asked by any thread."""
        with self._lock:
            from dba_console.frames.derive import derive  # by a run's first look, and by nobody else

            return derive(picture, self._history)

    def close(self) -> None:
        """Keep what was said last; waits for it no longer than a second."""
        self._operator_entries.close()

    def _evaluate(self, judge: RuleEngine, picture: Picture) -> list[Event]:
        from dba_console.findings.finding_events import change_event

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
