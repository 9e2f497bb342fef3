"""The frame: target, findings and the panels of all subjects, with the field names of the contract (`show --json`).

Bytes, seconds and plain numbers. Rates end in `_per_s`, shares in `_pct` (0-100), ages in `_age_s`. None is unknown,
which is never written as 0.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

from msgspec import Struct, field

from dba_console.watch import subjects
from dba_console.watch.panel import PanelFrame, charts

P = TypeVar("P", bound=PanelFrame)


class Finding(Struct, kw_only=True):
    """A problem, in one sentence with its evidence."""

    id: str
    """The rule's name, or `rule:subject`; for a joined finding the root cause's id."""
    severity: str
    """info, warning or critical."""
    subject: str
    text: str
    evidence: dict[str, Any] = {}
    """The numbers that prove it, with the field names of these panels."""
    runbook: str | None = None
    since: str | None = None
    """RFC 3339: when it began if a reading shows it, else when it was first observed."""
    rule: str = ""
    at: str | None = None
    """RFC 3339: when the numbers of the sentence were read."""
    chain: list[str] = []
    """Ids of the joined findings, from the effect to the root cause."""
    series: list[str] = []
    """Chart values that show it."""
    advice: str | None = None
    state: str = "open"
    """open, acknowledged or silenced."""
    who: str | None = None
    note: str | None = None
    until: str | None = None
    """RFC 3339: silenced until then."""
    also: list[str] = []
    """Ids of further effects of the same causes."""


class TargetFrame(Struct, kw_only=True):
    name: str | None = None
    """cluster_name, else the host's name: then two servers of one host differ only by their port."""
    port: int | None = None
    system_identifier: str | None = None
    role: str = "unknown"
    timeline: int | None = None
    server_version: int | None = None
    version: str | None = None
    """As usually written: 15.18, 17beta1."""
    uptime_s: float | None = None
    host: str | None = None
    local: bool | None = None
    through: str | None = None
    state: str = "connected"
    """connected, blind, disconnected (with the reason in note)."""
    note: str | None = None
    clock_offset_s: float | None = None
    postmaster_stopped: bool | None = None
    """The postmaster was stopped by a signal: sessions continue, new ones hang. None if its process is not visible."""


class SelfFrame(Struct, kw_only=True):
    cpu_pct: float | None = None
    backend_cpu_pct: float | None = None
    rss_bytes: int | None = None
    queries: int | None = None
    query_ms: float | None = None
    """Time spent waiting for the server in the last interval, milliseconds."""
    recorder_lag_s: float | None = None
    dropped: int = 0
    stuck_lanes: int = 0
    lanes: list[str] = []
    consoles: int | None = None
    late_s: float | None = None
    recording: str | None = None
    recording_note: str | None = None
    readers_dropped: int = 0
    rules_cpu_pct: float | None = None
    """The part of cpu_pct used by the finding rules, in percent of one core."""


class Frame(Struct, kw_only=True):
    """Everything derived from two samples and the last ten minutes, at one time."""

    at_us: int = 0
    seq: int = 0
    mono_us: int = 0
    boot: str = ""
    target: TargetFrame = field(default_factory=TargetFrame)
    findings: list[Finding] = []
    judged: bool = False
    """The rules were evaluated at this time: no findings then means that they found nothing."""
    judged_s: float | None = None
    """How long the rules had been evaluated by then; None without evaluation, or if a recording does not contain it."""
    pending: dict[str, float] = {}
    """Ids of detected problems that are not raised yet, each with the seconds it must last."""
    findings_note: str | None = None
    """Why findings may be missing: rules that failed."""
    own: SelfFrame = field(default_factory=SelfFrame)
    panels: dict[str, PanelFrame] = {}
    """By name."""

    def of(self, kind: type[P]) -> P:
        """Return the panel with these fields, empty if it was not derived."""
        name = next(panel.name for panel in subjects.panels().values() if panel.fields is kind)
        panel = getattr(self, name)
        assert isinstance(panel, kind)
        return panel

    def __getattr__(self, name: str) -> Any:
        """Return the panel of that name."""
        if name.startswith("_") or name not in subjects.panels():
            raise AttributeError(f"a frame has no {name!r}")
        return self.panels.setdefault(name, subjects.panels()[name].fields())


@cache
def panel_fields() -> dict[str, type[PanelFrame]]:
    """Return the fields of every panel, by name in the order of PANEL_NAMES."""
    return {name: panel.fields for name, panel in subjects.panels().items()}


@cache
def chart_titles() -> dict[str, str]:
    """Return the titles of charted fields by `panel.field`, as the chart history names them."""
    return {
        f"{name}.{field}": chart.title for name, kind in panel_fields().items() for field, chart in charts(kind).items()
    }
