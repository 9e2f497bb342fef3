"""Every panel: title, key, and layout functions. One declaration for screen, text and documentation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.model import Frame, PanelFrame
from dba_console.watch.panels import (
    cluster,
    connections,
    console_usage,
    disks,
    events,
    findings,
    io,
    locks,
    memory,
    progress,
    replication,
    safety,
    sessions,
)
from dba_console.watch.panels.text_elements import Detail, Line, move_spare_columns_last

Compact = Callable[[Frame, int, int, ChartHistory], list[Line]]
Full = Callable[[Frame, int, ChartHistory], Detail]


@dataclass(frozen=True, slots=True)
class PanelKind:
    """A panel. `compact(frame, width, height, history)` gives its lines for the overview, most important first;
    `full(frame, width, history)` gives everything known."""

    name: str
    title: str
    key: str
    compact: Compact
    full: Full

    def detail(self, frame: Frame, width: int, history: ChartHistory) -> Detail:
        """Return everything known, with tables arranged for a screen of `width` cells."""
        detail = self.full(frame, width, history)
        return replace(detail, tables=tuple(move_spare_columns_last(table, width) for table in detail.tables))

    def status(self, frame: Frame) -> PanelFrame | None:
        """Return the panel's status; None for the console's own panel, which has no probe."""
        found = getattr(frame, self.name, None)
        return found if isinstance(found, PanelFrame) else None


_KINDS = (
    PanelKind("connections", "Connections", "1", connections.compact, connections.detail),
    PanelKind("io", "I/O", "2", io.compact, io.detail),
    PanelKind("memory", "Memory", "3", memory.compact, memory.detail),
    PanelKind("safety", "Safety", "4", safety.compact, safety.detail),
    PanelKind("progress", "Dump & restore", "5", progress.compact, progress.detail),
    PanelKind("locks", "Locks", "6", locks.compact, locks.detail),
    PanelKind("replication", "Replication & WAL", "7", replication.compact, replication.detail),
    PanelKind("disks", "Disks", "8", disks.compact, disks.detail),
    PanelKind("sessions", "Sessions", "9", sessions.compact, sessions.detail),
    PanelKind("events", "Events", "0", events.compact, events.detail),
    PanelKind("cluster", "Cluster", "o", cluster.compact, cluster.detail),
    PanelKind("findings", "Findings", "f", findings.compact, findings.detail),
    PanelKind("own", "This console", "c", console_usage.compact, console_usage.detail),
)

PANELS: dict[str, PanelKind] = {kind.name: kind for kind in _KINDS}
