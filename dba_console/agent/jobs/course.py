"""How far a job is."""

from __future__ import annotations

from typing import Any

from dba_console.agent.jobs.runs import Told


class Course:
    def __init__(self, program: Any, question: Any) -> None:
        self.version = self.format = self.compression = self.run = None
        self.phases = self.objects = self.critical = self.sources = self.unknown = ()
        self.counts = (0, 0, 0, 0)
        self.pct = self.eta_s = self.errors = self.last_error = self.done = self.total = self.unit = self.rate_per_s = None
        self.grade = self.eta_grade = "unknown"

    def see(self, seen: Any) -> None: ...
    def need_bytes(self, written: Any) -> Any: ...
    def phase(self, rows: Any) -> Any: ...
    def written(self, seen: Any) -> Any:
        return sum(one.size for one in seen.flow.writings) or None
    def ended(self, wall_us: Any, program: Any, moved: Any) -> Told:
        return Told(bytes=moved)
