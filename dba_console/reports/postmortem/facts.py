"""The facts of an incident as records, from which the Markdown and HTML templates of a postmortem are filled.

Every text in it is sanitized and redacted. A value that is not known is None and says why; a number has its source.
Times are wall time in microseconds on the axis of the first session.
"""

from __future__ import annotations

from msgspec import Struct

from dba_console.runbooks.run_view import RunTable


class IncidentTime(Struct, frozen=True):
    """A time of the incident, and how it is known, or why it is not."""

    name: str
    """began, detected, acknowledged, cleared, ended."""
    at_us: int | None
    how: str
    after_s: float | None = None
    """Seconds since it began."""


class Measured(Struct, frozen=True):
    """A number of the impact."""

    name: str
    value: str | None
    """None: not known, and `source` says why."""
    source: str
    at_us: int | None = None
    """When it had this value, if it is one of a moment."""
    session: int = 0

    @property
    def is_zero(self) -> bool:
        """Return whether it says that there was nothing of it."""
        return self.value is not None and self.value.startswith(("0.0s", "none"))


class ReportedWaiter(Struct, frozen=True, kw_only=True):
    """A session that waited for a blocker."""

    who: str
    lock: str
    """Mode and relation it waited for last."""
    waited_s: float
    from_us: int
    to_us: int


class ReportedBlocker(Struct, frozen=True, kw_only=True):
    """A session that blocked others and waited for none."""

    who: str
    state: str
    """In which it blocked others the longest, with its statement then."""
    statement: str
    waited_s: float
    """Sum over the sessions that waited for it."""
    from_us: int
    to_us: int
    waiters: tuple[ReportedWaiter, ...]
    omitted: int = 0
    """Waiters that are not listed, and their time."""
    omitted_s: float = 0.0


class BlockingFacts(Struct, frozen=True, kw_only=True):
    """Who blocked whom in a session."""

    session: int
    blockers: tuple[ReportedBlocker, ...]
    """The most time waited first."""
    omitted: int = 0
    """Blockers that are not listed, and the time waited for them."""
    omitted_s: float = 0.0
    unread_s: float = 0.0
    """Time in which locks were not read; nothing of it counts as waiting."""


class SeriesRange(Struct, frozen=True):
    """A charted value before and during the incident, as text with its unit."""

    name: str
    before: str | None
    """Median before it began; None if too little was recorded."""
    lowest: str
    lowest_us: int
    highest: str
    highest_us: int


class TimelineRow(Struct, frozen=True, kw_only=True):
    at_us: int
    recorded_us: int | None = None
    """When it was recorded, if it happened at another time."""
    session: int = 0
    """Index of its session."""
    who: str
    kind: str
    text: str
    brief: str = ""
    """Its sentence in the short timeline; empty: not listed there."""
    rank: int = 3
    """0 if the report is about it; of too many rows in the short timeline those with the highest are left out."""
    exact: tuple[str, ...] = ()
    """Lines of the statement or command as executed."""
    source: str
    severity: str = "info"
    last_us: int | None = None
    """Of several equal events in a row: the time of the last."""
    count: int = 1


class Decision(Struct, frozen=True, kw_only=True):
    """A decision of an operator, and what was on the screen."""

    at_us: int
    session: int = 0
    who: str
    text: str
    asked: str = ""
    """The question that was answered."""
    findings: tuple[str, ...] = ()
    """Sentences of the open findings."""
    screen: tuple[str, ...] = ()
    """The overview as text; empty if no sample is known then."""
    screen_us: int | None = None
    """Time of that sample."""
    missing: str = ""
    """Why there is no screen."""
    related: bool = False
    """It is about the incident, or made in a run that is."""
    routine: bool = False
    """Confirmed by one key, as each act of a run is."""
    repeated: bool = False
    """The sample is that of an earlier decision, which has its findings and its screen."""


class Cause(Struct, frozen=True, kw_only=True):
    """A finding and how it is joined with others, as the console concluded it."""

    id: str
    severity: str
    text: str
    began_us: int
    raised_us: int
    ended_us: int | None
    ended_as: str
    """cleared, joined, or empty if it was still open."""
    session: int = 0
    chain: tuple[str, ...] = ()
    """From the effect to the root cause."""
    also: tuple[str, ...] = ()
    evidence: tuple[tuple[str, str], ...] = ()
    advice: str = ""
    runbook: str = ""


class ReportedRun(Struct, frozen=True, kw_only=True):
    """A run of a runbook: planned against actual."""

    run: str
    runbook: str
    title: str
    mode: str
    state: str
    who: str
    session: int = 0
    related: bool = False
    """The report is about it, or it answers the main finding."""
    began_us: int | None
    ended_us: int | None
    verdict: str
    inputs: tuple[tuple[str, str], ...] = ()
    steps: RunTable | None = None
    measures: RunTable | None = None
    sentences: tuple[str, ...] = ()
    """Steps and measured values in the short form, if they need no table."""
    deviations: tuple[str, ...] = ()
    output: tuple[str, ...] = ()
    """The last lines of its commands that failed, and warnings and errors of the others."""
    error_output: tuple[str, ...] = ()
    """The last lines of error output of commands that ended well: expected progress, as of pg_dump -v."""
    notes: tuple[str, ...] = ()
    """Damage of its journal, and what is missing."""


class SettingChange(Struct, frozen=True):
    name: str
    before: str
    after: str
    session: int = 0


class ChartSeries(Struct, frozen=True):
    title: str
    points: tuple[tuple[int, float], ...]
    """Lowest and highest value of each part of the span."""
    breaks_us: tuple[int, ...] = ()
    """Times of the points before which nothing was read for longer than a few readings."""


class EvidenceChart(Struct, frozen=True, kw_only=True):
    """Values of one unit on the time axis of the report."""

    title: str
    ending: str
    """A name with the unit of its values, for `unit_format`."""
    series: tuple[ChartSeries, ...]
    limit: float | None = None
    limit_name: str = ""
    session: int = 0


class GapFacts(Struct, frozen=True):
    from_us: int
    to_us: int
    reason: str
    session: int = 0


class SessionFacts(Struct, frozen=True, kw_only=True):
    """A session that the report was made from."""

    id: str
    target: str
    host: str
    state: str
    first_us: int
    last_us: int
    server: str = ""
    """Version, role and system identifier; empty if not recorded."""
    program_version: str = ""
    damage: str = ""
    redacted: str = ""
    """Level of a redacted copy; empty for an original."""
    continues: str = ""
    offset_us: int | None = 0
    """Added to its times; None if not known, then its times are as recorded."""
    offset_error_us: int | None = None
    offset_how: str = ""
    clock_offset: str = ""
    """Offset of the server's clock to that of the recording host, as text."""


class IncidentFacts(Struct, frozen=True, kw_only=True):
    title: str
    summary: tuple[str, ...]
    """Sentences."""
    chosen: str
    """How the span was chosen."""
    from_us: int
    to_us: int
    spanned: bool = False
    """All of the span was asked for: nothing in it is only context."""
    sessions: tuple[SessionFacts, ...]
    moments: tuple[IncidentTime, ...]
    impact: tuple[Measured, ...]
    blocking: tuple[BlockingFacts, ...] = ()
    ranges: tuple[SeriesRange, ...]
    timeline: tuple[TimelineRow, ...]
    omitted: tuple[tuple[str, int], ...] = ()
    """Events that are not in the timeline, by kind."""
    decisions: tuple[Decision, ...] = ()
    runs: tuple[ReportedRun, ...] = ()
    changes: tuple[SettingChange, ...] = ()
    charts: tuple[EvidenceChart, ...] = ()
    causes: tuple[Cause, ...] = ()
    others: tuple[Cause, ...] = ()
    """Findings that are not part of the incident."""
    gaps: tuple[GapFacts, ...] = ()
    questions: tuple[str, ...] = ()
    """What only people can answer."""
    missing: tuple[str, ...] = ()
    """What could not be read, and what the report therefore lacks."""
