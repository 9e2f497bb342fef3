"""An incident on a practice ground with the real agent watching it, as `dba-console demo --incident` runs it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dba_console.demo.binaries import Binaries
from dba_console.demo.incidents.incident import Incident
from dba_console.demo.incidents.registry import find
from dba_console.demo.load import LoadPlan
from dba_console.demo.practice import PracticeGround
from dba_console.demo.rehearsal import CALM_TICKS, Rehearsal
from dba_console.demo.verdict import Verdict
from dba_console.frames.model import Frame
from tests.agent.running import Watch, agent

MOST_TICKS = 90
AFTERWARDS_TICKS = 3
"""Ticks looked at after the finding was raised: time for what else may be raised."""


class Rehearsed:
    """A rehearsal under way: the ground, a console attached to its agent, and what the recording says so far."""

    def __init__(self, ground: PracticeGround, incident: Incident, watch: Watch, rehearsal: Rehearsal) -> None:
        self.ground = ground
        self.incident = incident
        self.watch = watch
        self._rehearsal = rehearsal

    def until_raised(self) -> Verdict:
        """The verdict a few ticks after the finding was raised, or when the recording has gone on for long enough.

        A disk others keep busy may hold the recording up; the times in it stay those of the ticks.
        """
        seen_at = 0
        for tick in range(1, MOST_TICKS):
            self.watch.next_frame()
            recorded_s = self._rehearsal.recorded_s
            if recorded_s and not seen_at and self._rehearsal.verdict().seen is not None:
                seen_at = tick
            if recorded_s > self.incident.within_s + 5 or (seen_at and tick >= seen_at + AFTERWARDS_TICKS):
                break
        return self._rehearsal.verdict()

    def until_frame(self, wanted: Callable[[Frame], object], *, what: str) -> Frame:
        """The first frame that `wanted` accepts, from now on."""
        return self.watch.until(wanted, what=what)


@contextmanager
def rehearse(
    name: str, place: Path, plan: LoadPlan | None = None, *, binaries: Binaries | None = None
) -> Iterator[Rehearsed]:
    """The incident of that name, calm before, caused, and undone at the end; `plan` is a smaller load."""
    incident = find(name)
    with (
        PracticeGround(plan, binaries=binaries, incident=incident) as ground,
        agent(ground.dsn, place, extra={"DBA_CONSOLE_AGENT_GRACE": "1s"}) as running,
    ):
        watch = running.watch()
        rehearsal = Rehearsal(ground, incident, lambda _: None)
        assert rehearsal.wait_calm(CALM_TICKS, lambda: running.process.poll() is None)
        rehearsal.begin()
        yield Rehearsed(ground, incident, watch, rehearsal)


def assert_seen(verdict: Verdict) -> None:
    """The finding came in time, and nothing else critical with it."""
    assert verdict.in_time, f"{verdict.sentence()}; raised: {[event.text for event in verdict.findings]}"
    assert [event.text for event in verdict.others] == []
