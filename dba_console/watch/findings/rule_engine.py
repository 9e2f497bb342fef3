"""The rule engine: runs the rules, groups signals by cause, reports raised, changed, joined and cleared findings.

Nothing is raised from a first tick, a gap or a clock change: rates are unknown there, conditions that must hold for a
time start over after a gap, and durations use the monotonic clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import structs

from dba_console.core.redact import redact
from dba_console.core.sanitize import clean
from dba_console.watch import subjects
from dba_console.watch.findings.finding_events import FindingChange, FindingMarks, Kind, changes_between
from dba_console.watch.findings.finding_groups import (
    FindingGroup,
    Key,
    SignalTracker,
    cause_paths,
    conjunction_between,
    find_causes,
    group_by_cause,
    group_text,
)
from dba_console.watch.findings.rule import Rule, RuleContext
from dba_console.watch.findings.thresholds import Limits
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.picture import PartReading, Picture
from dba_console.watch.samples.findings import FindingNow, FindingsNow, Severity

_ORDER = (
    "connections", "locks", "io", "memory", "safety", "jobs", "wal", "disks", "server", "cluster", "console",
)  # fmt: skip
"""Of the documentation."""
FAMILIES = tuple(subjects.families()[name] for name in _ORDER)
RULES: tuple[Rule, ...] = tuple(rule for family in FAMILIES for rule in family.rules)

GAP_US = 5_000_000
"""Ticks further apart are a gap (or five intervals, if longer)."""
REFRESH_US = 5_000_000
"""How often the numbers in the sentence of an open finding are refreshed; at once when the finding changes."""
MAX_FAILURE_TEXT = 300
"""Characters kept of a rule's exception, which may quote what was read."""


class RuleEngine:
    """All findings of one target since the agent started. Not thread-safe."""

    def __init__(self, limits: Limits, rules: Sequence[Rule] = RULES) -> None:
        self._limits = limits
        self._rules: dict[str, list[Rule]] = {}
        for rule in rules:
            if rule.name not in limits.off:
                for part in rule.parts:
                    self._rules.setdefault(part, []).append(rule)
        self._tracks = SignalTracker()
        self._memos: dict[str, dict[str, Any]] = {}
        self._last_read: dict[str, PartReading] = {}
        self._last_us = self._tick_us = 0
        self._boot = ""
        self._begun_us: int | None = None
        self._open: dict[str, FindingNow] = {}
        self._shape: list[tuple[Key, Severity, bool]] = []
        self._joined_us = 0
        self._known_causes: dict[Key, tuple[Key, ...]] = {}
        self._reported: dict[str, tuple[Severity, set[str]]] = {}
        self._failed: dict[str, str] = {}
        self.marks = FindingMarks()
        """The operators' acknowledgements and silences."""

    @property
    def conclusions(self) -> FindingsNow:
        """All open findings, the oldest first, and the rules that failed."""
        rows = sorted(self._open.values(), key=lambda row: (row.since_us, row.id))
        failed = [f"{name}: {why}" for name, why in sorted(self._failed.items())]
        pending = {track.id: track.rule.raise_after_s for track in self._tracks.pending}
        return FindingsNow(rows, failed, self._begun_us, pending)

    def evaluate(self, picture: Picture, history: ChartHistory, point: dict[str, float]) -> list[FindingChange]:
        """Run the rules on the picture of one tick; return the changes of findings, in order.

        `point` holds the chart values of this tick, which `history` already has. A rule that fails does not raise: it
        is named in the conclusions, and its signals stay as they were.
        """
        self._begin_tick(picture)
        read = self._parts_read(picture)
        context = RuleContext(picture, history, point, read, self._limits, self._memos, self._tracks.open_keys())
        for rule in self._rules_due(read):
            self._run_rule(rule, context)
        return self._update_findings(picture.wall_us)

    def acknowledge(self, finding_id: str, who: str, note: str, wall_us: int) -> FindingChange | None:
        """Acknowledge an open finding. None if no such finding is open."""
        found = self._open.get(finding_id)
        if found is None:
            return None
        self.marks.acknowledge(finding_id, who, note)
        return self._apply_mark("acknowledged", found, wall_us)

    def silence(self, finding_id: str, until_us: int, who: str, note: str, wall_us: int) -> FindingChange | None:
        """Silence a finding until then; also one that is not open, by its id or its rule's name.

        None if it is neither open nor the name of a rule.
        """
        found = self._open.get(finding_id)
        if found is None and finding_id.partition(":")[0] not in self.rule_names:
            return None
        self.marks.silence(finding_id, until_us, who, note)
        if found is None:
            return FindingChange("silenced", _placeholder(finding_id, until_us, who, note, wall_us))
        return self._apply_mark("silenced", found, wall_us)

    def unsilence(self, finding_id: str, who: str, wall_us: int) -> FindingChange | None:
        """Remove a silence or an acknowledgement. None if there was neither."""
        if not self.marks.remove(finding_id):
            return None
        found = self._open.get(finding_id)
        if found is None:
            return FindingChange("unsilenced", _placeholder(finding_id, None, who, "", wall_us))
        return self._apply_mark("unsilenced", found, wall_us)

    @property
    def rule_names(self) -> set[str]:
        return {rule.name for rules in self._rules.values() for rule in rules}

    def _begin_tick(self, picture: Picture) -> None:
        if picture.boot != self._boot:
            self._boot, self._last_read, self._begun_us = picture.boot, {}, picture.mono_us
        elif picture.mono_us - self._last_us > max(GAP_US, 5 * self._tick_us):
            self._tracks.after_gap(picture.mono_us)
        self._last_us, self._tick_us = picture.mono_us, picture.tick_us

    def _parts_read(self, picture: Picture) -> set[str]:
        """Return the parts with another reading, or another status, than in the previous tick."""
        before, self._last_read = self._last_read, picture.latest
        return {name for name, reading in picture.latest.items() if not _is_same(before.get(name), reading)}

    def _rules_due(self, read: Iterable[str]) -> list[Rule]:
        due: dict[str, Rule] = {}
        for part in read:
            for rule in self._rules.get(part, ()):
                due[rule.name] = rule
        return list(due.values())

    def _run_rule(self, rule: Rule, context: RuleContext) -> None:
        try:
            signals = list(rule.check(context))
        except Exception as error:
            self._failed[rule.name] = redact(clean(f"{type(error).__name__}: {error}"))[:MAX_FAILURE_TEXT]
            return
        self._failed.pop(rule.name, None)
        if signals or self._tracks.has(rule):
            self._tracks.update(rule, signals, context.now_us, context.mono_us)

    def _update_findings(self, wall_us: int) -> list[FindingChange]:
        raised = self._tracks.raised
        if not raised and not self._open:
            return []
        shape = [(track.key, track.signal.severity, track.present) for track in raised]
        before = self._open
        if shape != self._shape or not 0 <= wall_us - self._joined_us < REFRESH_US:
            self._shape, self._joined_us = shape, wall_us
            causes = find_causes(raised, held=self._known_causes)
            self._known_causes = cause_paths(causes)
            groups = [one for one in group_by_cause(raised, causes) if one.named_after.id in before or _is_seen(one)]
            self._open = {row.id: row for row in map(_make_conclusion, groups)}
        self.marks.prune(self._open, wall_us)
        self._open = {row.id: self.marks.apply(row, wall_us) for row in self._open.values()}
        return [change for change in changes_between(before, self._open) if self._is_news(change)]

    def _is_news(self, change: FindingChange) -> bool:
        """Whether a change deserves an event: another severity, or a part the finding did not have before."""
        row = change.finding
        if change.kind in ("cleared", "joined"):
            self._reported.pop(row.id, None)
            return True
        severity, parts = self._reported.get(row.id, (None, set[str]()))
        self._reported[row.id] = (row.severity, parts | row.parts)
        return change.kind != "changed" or severity != row.severity or not row.parts <= parts

    def _apply_mark(self, kind: Kind, found: FindingNow, wall_us: int) -> FindingChange:
        now = self.marks.apply(found, wall_us)
        self._open[found.id] = now
        return FindingChange(kind, now)


def _is_same(before: PartReading | None, now: PartReading) -> bool:
    # Live pictures keep an unchanged reading as the same object; recorded ones create it again.
    return before is now or (before is not None and before.part.at_us == now.part.at_us)


def _is_seen(group: FindingGroup) -> bool:
    """Whether a signal of the group is present: signals that wait to be cleared raise nothing."""
    return any(track.present for track in group.tracks)


def _make_conclusion(group: FindingGroup) -> FindingNow:
    named, path = group.named_after, group.path
    evidence: dict[str, Any] = {}
    for track in group.tracks:
        for name, value in track.signal.evidence.items():
            evidence.setdefault(name, value)
    series = dict.fromkeys(name for track in group.tracks for name in track.signal.series)
    naming_order = [named, *reversed(path)]
    return FindingNow(
        id=named.id,
        rule=named.rule.name,
        severity=group.severity,
        subject=named.signal.subject,
        text=group_text(group, conjunction_between),
        evidence=evidence,
        since_us=min(track.since_us for track in path),
        at_us=max(track.at_us for track in group.tracks),
        chain=[track.id for track in path],
        also=[track.id for track in group.others],
        series=list(series),
        runbook=next((track.signal.runbook for track in naming_order if track.signal.runbook), None),
        advice=next((track.signal.advice for track in naming_order if track.signal.advice), None),
    )


def _placeholder(finding_id: str, until_us: int | None, who: str, note: str, wall_us: int) -> FindingNow:
    """Return a stand-in for a finding that is not open, for the event of its silence."""
    rule, _, subject = finding_id.partition(":")
    row = FindingNow(finding_id, rule, "info", subject, finding_id, {}, wall_us, wall_us, [rule], [])
    state = "open" if until_us is None else "silenced"
    return structs.replace(row, state=state, who=who, note=note or None, until_us=until_us)
