"""What a rule sees in one tick, in the operator's words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dba_console.samples.findings import Severity

Value = float | int | str | bool | None | list[str]

SEVERITY_RANKS: dict[Severity, int] = {"info": 0, "warning": 1, "critical": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """Something that is wrong now, as one rule sees it.

    `text` is the whole sentence with its numbers. In a chain the words of the head are `effect`, those of what is
    behind it `cause`; both are the text where they are not given. `since_us` is the host's wall time at which it
    began, where a reading tells (the start of a transaction), else None: then it is since it was first seen.
    """

    severity: Severity
    text: str
    subject: str = ""
    """Which one, where there may be several: a slot, a mount, a process id."""
    effect: str | None = None
    cause: str | None = None
    evidence: Mapping[str, Value] = field(default_factory=dict)
    """The numbers that prove it, under the names of `show --json`, with their unit in the name."""
    series: tuple[str, ...] = ()
    """Chart values (frames/chart_points.py) that show it."""
    since_us: int | None = None
    lasted_s: float = 0.0
    """For how long it is known to have been so, where the server itself says: it need not be watched for that time."""
    runbook: str | None = None
    advice: str | None = None
    """One sentence: what to do first, or where to look."""

    @property
    def as_effect(self) -> str:
        return self.effect or self.text

    @property
    def as_cause(self) -> str:
        return self.cause or self.text
