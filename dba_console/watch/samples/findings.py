"""What the agent concluded, as of one tick: recorded and sent like everything else, so that replay says what was said.

Structs are stored by position (`array_like`): a field may be added at the end with a default, never moved or removed.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

Severity = Literal["info", "warning", "critical"]
State = Literal["open", "acknowledged", "silenced"]


class FindingNow(Struct, array_like=True, frozen=True):
    """One open finding."""

    id: str
    """The rule's name, or `rule:subject` where there may be several."""
    rule: str
    severity: Severity
    subject: str
    text: str
    """One sentence with the numbers as of `at_us`; since when is not in it."""
    evidence: dict[str, Any]
    """Numbers that prove it, under the names of `show --json`."""
    since_us: int
    """Host wall time at which it began: where a reading tells, that; else when it was first seen."""
    at_us: int
    """Host wall time of the numbers."""
    chain: list[str]
    """Ids of what is joined in it, from the effect to the root cause; its own id alone where it stands for itself."""
    series: list[str]
    """Names of the chart values (frames/chart_points.py) that show it."""
    runbook: str | None = None
    advice: str | None = None
    state: State = "open"
    who: str | None = None
    """Who acknowledged or silenced it."""
    note: str | None = None
    until_us: int | None = None
    """Silenced until then."""
    also: list[str] = []
    """Ids of further effects of the same causes, which are not on the way from the effect to the root cause."""

    @property
    def parts(self) -> set[str]:
        """Ids of everything joined in it."""
        return {*self.chain, *self.also}


class FindingsNow(Struct, array_like=True, frozen=True):
    """Every finding open now; an empty list says that the rules found nothing."""

    rows: list[FindingNow]
    failed: list[str] = []
    """Rules that could not be asked, each with its error: what they would say is unknown."""
    begun_us: int | None = None
    """Monotonic time of the first tick judged: a rule that needs longer than that is ago has not spoken yet."""
    pending: dict[str, float] = {}
    """Ids of what is seen and not raised yet, each with the seconds for which it must last."""
