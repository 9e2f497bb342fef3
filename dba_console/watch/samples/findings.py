"""The findings of one tick: recorded and sent like every other part, so that a replay shows what was reported then.

Structs are stored by position (`array_like`): a field may be added at the end with a default, never moved or removed.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Struct

from dba_console.watch.part import NameKind

Severity = Literal["info", "warning", "critical"]
State = Literal["open", "acknowledged", "silenced"]


class FindingNow(Struct, array_like=True, frozen=True):
    """One open finding."""

    id: str
    """The rule's name, or `rule:subject` if there may be several."""
    rule: str
    severity: Severity
    subject: str
    text: str
    """One sentence with the numbers as of `at_us`; without the time since when."""
    evidence: dict[str, Any]
    """The numbers that prove it, under the names of `show --json`."""
    since_us: int
    """Host wall time of its start: from a reading if available, else when it was first seen."""
    at_us: int
    """Host wall time of the numbers."""
    chain: list[str]
    """Ids of the joined findings, from the effect to the root cause; only its own id if nothing is joined."""
    series: list[str]
    """Names of the chart values (frames/chart_points.py) that show it."""
    runbook: str | None = None
    advice: str | None = None
    state: State = "open"
    who: str | None = None
    """Who acknowledged or silenced it."""
    note: Annotated[str, NameKind("note")] | None = None
    until_us: int | None = None
    """End of the silence, wall time."""
    also: list[str] = []
    """Ids of further effects of the same causes, off the path from the effect to the root cause."""

    @property
    def parts(self) -> set[str]:
        """Ids of all joined findings."""
        return {*self.chain, *self.also}


class FindingsNow(Struct, array_like=True, frozen=True):
    """All open findings; an empty list means that the rules found nothing."""

    rows: list[FindingNow]
    failed: list[str] = []
    """Rules that failed, each with its error: their findings are unknown."""
    begun_us: int | None = None
    """Monotonic time of the first evaluated tick: a rule that needs a longer time is not conclusive yet."""
    pending: dict[str, float] = {}
    """Ids of signals not raised yet, each with the seconds for which it must last."""
