"""Events worth telling that only show between ticks: outages, changes of the server, clock jumps, stuck lanes."""

from __future__ import annotations

from collections.abc import Iterator

from dba_console.agent.collector import Collector
from dba_console.agent.server_changes import connection_slot_text, server_changes
from dba_console.samples.event import Event
from dba_console.samples.postgres import Server
from dba_console.samples.sample import Sample
from dba_console.units import human_duration

CLOCK_JUMP_US = 2_000_000
"""The wall clock moved this much against the monotonic one between two ticks: it was set, not slewed (NTP slews by
500 ppm)."""


class TickEvents:
    """Compares what a tick left behind with the tick before it."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._last: Sample | None = None
        self._server: Server | None = None
        self._outage: str | None = "new"
        self._lanes: frozenset[str] = frozenset()

    def events(self, sample: Sample) -> Iterator[Event]:
        """Events of this tick, in the order they make sense to read."""
        if self._last is not None:
            yield from self._clock_events(self._last, sample)
        self._last = sample
        for kind, severity, text in (*self._server_events(), *self._lane_events()):
            yield Event(wall_us=sample.wall_us, mono_us=sample.mono_us, kind=kind, severity=severity, text=text)

    def _clock_events(self, last: Sample, now: Sample) -> Iterator[Event]:
        elapsed = now.mono_us - last.mono_us
        jump = now.wall_us - last.wall_us - elapsed
        if abs(jump) > CLOCK_JUMP_US:
            text = f"the host's clock was set {'forward' if jump > 0 else 'back'} by {human_duration(abs(jump) / 1e6)}"
            yield Event(
                wall_us=now.wall_us, mono_us=now.mono_us, kind="clock.jump", severity="warning", text=text,
                details={"jump_us": jump},
            )  # fmt: skip

    def _server_events(self) -> Iterator[tuple[str, str, str]]:
        outage, server = self._collector.server.outage, self._collector.server.server
        kind = None if outage is None else outage.kind
        if kind != self._outage:
            if outage is not None and kind != "new":
                blind = kind == "no_slots"
                yield ("server.blind" if blind else "server.lost", "warning", outage.text)
            elif outage is None and server is not None:
                yield ("server.connected", "info", connection_slot_text(server))
            self._outage = kind
        if server is not None and server is not self._server:
            if self._server is not None:
                for text in server_changes(self._server, server):
                    yield ("server.changed", "warning", text)
            self._server = server

    def _lane_events(self) -> Iterator[tuple[str, str, str]]:
        lanes = frozenset(self._collector.host.stuck)
        for name in sorted(lanes - self._lanes):
            yield ("lane.stuck", "warning", f"{name} does not answer; its panel shows its last state with its age")
        for name in sorted(self._lanes - lanes):
            yield ("lane.recovered", "info", f"{name} answers again")
        self._lanes = lanes
