"""What a panel is: its fields, and how they follow from what was read.

A panel is declared once by its subject: a struct of fields with the names of `show --json`, and a derivation. Screen,
text, JSON, charts, exports and expressions of runbooks use the declaration. How it is drawn is its layout
(`layout.py`), which the agent does not load.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, get_type_hints

from msgspec import Struct

if TYPE_CHECKING:
    from dba_console.watch.frames.picture import PictureFacts

Points = Mapping[str, float | None]
"""Chart values of one tick by name; None is unknown."""


class PanelFrame(Struct, kw_only=True):
    """Fields of every panel: status of its reading, and its age.

    Bytes, seconds and plain numbers. Rates end in `_per_s`, shares in `_pct` (0-100), ages in `_age_s`. None is
    unknown, which is never written as 0.
    """

    status: str = "ok"
    """ok, stale, denied, unsupported, timeout or error."""
    note: str | None = None
    age_s: float | None = None


class Charted(NamedTuple):
    """Declares a field of a panel as charted: the agent keeps its last ten minutes and records them."""

    title: str
    part: str
    """The part it is read with: a tick that did not read it has no point."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A panel as its subject declares it."""

    name: str
    """As in `show --json`."""
    fields: type[PanelFrame]
    derive: Callable[[PictureFacts], Any]
    """Returns the fields, from what was read and the minutes before."""
    points: Callable[[PictureFacts], Points]
    """Returns the chart values of what was read in this tick; often `charted_points`."""


_UNITS = (
    ("bytes_per_s", "bytes/s"),
    ("written_per_s", "bytes/s"),
    ("per_s", "1/s"),
    ("per_min", "1/min"),
    ("bytes", "bytes"),
    ("pct", "%"),
    ("avg10", "%"),
    ("ms", "ms"),
    ("s", "s"),
    ("mxid_age", "multixacts"),
    ("xid_age", "transactions"),
)
"""Last words of a field's name, and the unit they stand for."""


def unit_of(field: str) -> str:
    """Return the unit of a field of a panel or of a row of its tables; empty for counts and texts.

    >>> [unit_of(name) for name in ("read_bytes_per_s", "psi_some_avg10", "bytes", "max", "age_s")]
    ['bytes/s', '%', 'bytes', '', 's']
    """
    return next((unit for end, unit in _UNITS if field == end or field.endswith(f"_{end}")), "")


@cache
def charts(panel: type[PanelFrame]) -> dict[str, Charted]:
    """Return the charted fields of a panel."""
    hints = get_type_hints(panel, include_extras=True)
    return {
        name: chart
        for name, hint in hints.items()
        for chart in getattr(hint, "__metadata__", ())
        if isinstance(chart, Charted)
    }


def charted_points(name: str, panel: PanelFrame, facts: PictureFacts) -> dict[str, float | None]:
    """Return the values of a panel's charted fields whose part was read in this tick, as `panel.field`."""
    return {
        f"{name}.{field}": getattr(panel, field)
        for field, chart in charts(type(panel)).items()
        if facts.was_read_now(chart.part)
    }
