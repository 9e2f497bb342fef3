"""How far a VACUUM is, seen from another connection, told while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dba_console.actions.action import Control
from dba_console.actions.connection_api import ServerConnection, StatementFailed
from dba_console.actions.vacuum_sql import UNDER_WAY, phase_text
from dba_console.clock import Clock
from dba_console.errors import ConnectError
from dba_console.probes.postgres.readings.progress import measure
from dba_console.units import human_duration

_INTERVAL_S = 1.0
_MIN_SHARE = 0.02
"""A share of a phase below this says nothing about its end."""


class VacuumWatcher:
    """Asked while the statement runs; True stops it. A look that fails costs the progress and nothing else."""

    def __init__(self, connection: ServerConnection, clock: Clock, control: Control, where: str = "") -> None:
        """Looks over a connection of its own, beside `connection`; `where` stands before what is told. To be closed."""
        self._link, self._clock, self.control, self._prefix = connection.open_another(), clock, control, where
        self._next_us = 0
        self._phase: tuple[Any, Any] = (None, None)
        self._began_us = self._began_at = 0

    def __call__(self, pid: int) -> bool:
        if self.control.stop_requested():
            return True
        now_us = self._clock.mono_us()
        if now_us < self._next_us:
            return False
        self._next_us = now_us + int(_INTERVAL_S * 1e6)
        try:
            row = next(iter(self._link.rows(UNDER_WAY, {"pid": pid}, timeout_s=2.0)), None)
        except (StatementFailed, ConnectError) as error:
            self.control.report_progress(f"{self._prefix}vacuuming; how far cannot be seen: {error.message}")
            return False
        done, total, unit = measure("vacuum", row["progress"]) if row and row["progress"] else (None, None, "")
        self.control.report_progress(
            self._prefix + phase_text(row) + self._remaining_text(row, done, total, now_us), done, total, unit
        )
        return False

    def close(self) -> None:
        self._link.close()

    def _remaining_text(self, row: Mapping[str, Any] | None, done: int | None, total: int | None, now_us: int) -> str:
        """What is left of the phase at the pace it has had so far; the later phases are not known."""
        phase = (row and row["relation"], row and row["phase"])
        if phase != self._phase:
            self._phase, self._began_us, self._began_at = phase, now_us, done or 0
        if not total or done is None or done - self._began_at < _MIN_SHARE * total:
            return ""
        left_s = (now_us - self._began_us) / 1e6 * (total - done) / (done - self._began_at)
        return f", about {human_duration(left_s)} left of this phase (estimated)"
