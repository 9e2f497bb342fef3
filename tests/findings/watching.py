"""What a real agent raises, seen by a console that is attached to it, with the second it was raised in."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dba_console.frames.model import Finding
from dba_console.samples.event import Event
from tests.agent.running import Watch, agent

NEWS = ("finding.raised", "finding.changed", "finding.joined")


class Watching:
    """One agent and what it says of one server."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch

    def calm(self, ticks: int = 5) -> None:
        """Let it see so many ticks before anything happens."""
        for _ in range(ticks):
            self.watch.next_frame()

    def news(self, rule: str) -> list[Event]:
        """Events that tell of a finding of this rule, its own or one it is part of."""
        return [event for event in self.watch.events if event.kind in NEWS and rule in _rules(event)]

    def raised(self, rule: str, within_s: float = 20.0) -> Event:
        """The first event that tells of it, waited for."""
        self.watch.until(lambda _: self.news(rule), within_s, what=rule)
        return self.news(rule)[0]

    def open(self, rule: str, within_s: float = 20.0, *, severity: str | None = None) -> Finding:
        """The finding this rule is part of, once it is open and of this severity."""

        def found() -> list[Finding]:
            return [
                row for row in self.findings if rule in _heads(row.chain) and severity in (None, row.severity)
            ]  # fmt: skip

        self.watch.until(lambda frame: self._take(frame.findings) and found(), within_s, what=rule)
        return found()[0]

    findings: list[Finding]

    def _take(self, rows: list[Finding]) -> bool:
        self.findings = rows
        return bool(rows)

    def critical(self, within_s: float = 5.0) -> set[str]:
        """Ids of everything critical that was told, the first of it waited for."""
        self.watch.until(lambda _: self._critical(), within_s, what="something critical")
        return self._critical()

    def _critical(self) -> set[str]:
        told = [event for event in self.watch.events if event.kind in NEWS]
        return {str(event.details["id"]) for event in told if event.details["severity"] == "critical"}

    def never_critical(self) -> bool:
        return not self._critical()


def _rules(event: Event) -> list[str]:
    return [str(event.details.get("name", "")), *_heads(event.details.get("chain") or [])]


def _heads(chain: list[str]) -> list[str]:
    return [str(part).partition(":")[0] for part in chain]


def seconds_since(began_us: int, event: Event) -> float:
    """From a moment of this host's clock to the event."""
    return (event.wall_us - began_us) / 1e6


def now_us() -> int:
    return time.time_ns() // 1000


@contextmanager
def watching(dsn: str, place: Path, *, calm: int = 5) -> Iterator[Watching]:
    """A real agent that has watched this server in peace for some seconds."""
    with agent(dsn, place) as running:
        made = Watching(running.watch())
        made.calm(calm)
        yield made
