"""The judge: asks the rules, joins what they see, and says what has been raised, changed, joined and cleared.

Nothing is raised from a first tick, a gap or a clock that was set: rules see rates as unknown there, what must hold for
a time begins anew after a gap, and durations are taken from the monotonic clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import structs

from dba_console.findings.chain import Joined, causes_of, join, paths_of, text_of, word_between
from dba_console.findings.changes import Change, Kind, changes_between
from dba_console.findings.quiet import Quiet
from dba_console.findings.registry import RULES
from dba_console.findings.rule import Rule
from dba_console.findings.situation import Situation
from dba_console.findings.tracks import Key, Tracks
from dba_console.frames.history import History
from dba_console.frames.picture import Picture, Reading
from dba_console.harmless import clean
from dba_console.limits import Limits
from dba_console.redact import redact
from dba_console.samples.findings import Conclusion, Conclusions, Severity

GAP_US = 5_000_000
"""Ticks further apart have a gap between them (or five intervals, where those are longer)."""
REFRESH_US = 5_000_000
"""The numbers in the sentence of an open finding are renewed so often, and at once when it changes."""
LONGEST_FAILURE = 300
"""An exception may quote what was read: characters kept of it."""


class Judge:
    """Everything concluded about one target since the agent began. Used by one thread."""

    def __init__(self, limits: Limits, rules: Sequence[Rule] = RULES) -> None:
        self._limits = limits
        self._rules: dict[str, list[Rule]] = {}
        for rule in rules:
            if rule.name not in limits.off:
                for part in rule.parts:
                    self._rules.setdefault(part, []).append(rule)
        self._tracks = Tracks()
        self._memos: dict[str, dict[str, Any]] = {}
        self._seen: dict[str, Reading] = {}
        self._last_us = self._tick_us = 0
        self._boot = ""
        self._begun_us: int | None = None
        self._open: dict[str, Conclusion] = {}
        self._shape: list[tuple[Key, Severity, bool]] = []
        self._joined_us = 0
        self._held: dict[Key, tuple[Key, ...]] = {}
        self._told: dict[str, tuple[Severity, set[str]]] = {}
        self._failed: dict[str, str] = {}
        self.quiet = Quiet()
        """What the operators acknowledged or silenced."""

    @property
    def conclusions(self) -> Conclusions:
        """Every finding open now, the one that began first at the head, and the rules that failed."""
        rows = sorted(self._open.values(), key=lambda row: (row.since_us, row.id))
        failed = [f"{name}: {why}" for name, why in sorted(self._failed.items())]
        pending = {track.id: track.rule.raise_after_s for track in self._tracks.pending}
        return Conclusions(rows, failed, self._begun_us, pending)

    def consider(self, picture: Picture, history: History, point: dict[str, float]) -> list[Change]:
        """Look at the picture of one tick; what changed among the findings, in the order to tell it.

        `point` holds the chart values of this tick, which `history` has been given already. Never raises because of a
        rule: one that fails is named in the conclusions, and what it saw before stays as it was.
        """
        self._begin(picture)
        read = self._anew(picture)
        situation = Situation(picture, history, point, read, self._limits, self._memos, self._tracks.open_keys())
        for rule in self._due(read):
            self._ask(rule, situation)
        return self._conclude(picture.wall_us)

    def acknowledge(self, finding_id: str, who: str, note: str, wall_us: int) -> Change | None:
        """Somebody knows and is on it. None where no such finding is open."""
        found = self._open.get(finding_id)
        if found is None:
            return None
        self.quiet.acknowledge(finding_id, who, note, wall_us)
        return self._requieted("acknowledged", found, wall_us)

    def silence(self, finding_id: str, until_us: int, who: str, note: str, wall_us: int) -> Change | None:
        """Keep it quiet until then; also one that is not open, by its id or its rule's name.

        None where it is neither open nor the name of a rule.
        """
        found = self._open.get(finding_id)
        if found is None and finding_id.partition(":")[0] not in self.rule_names:
            return None
        self.quiet.silence(finding_id, until_us, who, note, wall_us)
        if found is None:
            return Change("silenced", _placeholder(finding_id, until_us, who, note, wall_us))
        return self._requieted("silenced", found, wall_us)

    def unsilence(self, finding_id: str, who: str, wall_us: int) -> Change | None:
        """Take back a silence or an acknowledgement. None where there was none."""
        if not self.quiet.forget(finding_id):
            return None
        found = self._open.get(finding_id)
        if found is None:
            return Change("unsilenced", _placeholder(finding_id, None, who, "", wall_us))
        return self._requieted("unsilenced", found, wall_us)

    @property
    def rule_names(self) -> set[str]:
        return {rule.name for rules in self._rules.values() for rule in rules}

    def _begin(self, picture: Picture) -> None:
        if picture.boot != self._boot:
            self._boot, self._seen, self._begun_us = picture.boot, {}, picture.mono_us
        elif picture.mono_us - self._last_us > max(GAP_US, 5 * self._tick_us):
            self._tracks.after_gap(picture.mono_us)
        self._last_us, self._tick_us = picture.mono_us, picture.tick_us

    def _anew(self, picture: Picture) -> set[str]:
        """Parts with another reading, or another status, than in the tick before."""
        before, self._seen = self._seen, picture.latest
        return {name for name, reading in picture.latest.items() if not _is_same(before.get(name), reading)}

    def _due(self, read: Iterable[str]) -> list[Rule]:
        due: dict[str, Rule] = {}
        for part in read:
            for rule in self._rules.get(part, ()):
                due[rule.name] = rule
        return list(due.values())

    def _ask(self, rule: Rule, situation: Situation) -> None:
        try:
            signals = list(rule.look(situation))
        except Exception as error:
            self._failed[rule.name] = redact(clean(f"{type(error).__name__}: {error}"))[:LONGEST_FAILURE]
            return
        self._failed.pop(rule.name, None)
        if signals or self._tracks.has(rule):
            self._tracks.saw(rule, signals, situation.now_us, situation.mono_us)

    def _conclude(self, wall_us: int) -> list[Change]:
        raised = self._tracks.raised
        if not raised and not self._open:
            return []
        shape = [(track.key, track.signal.severity, track.seen) for track in raised]
        before = self._open
        if shape != self._shape or not 0 <= wall_us - self._joined_us < REFRESH_US:
            self._shape, self._joined_us = shape, wall_us
            causes = causes_of(raised, held=self._held)
            self._held = paths_of(causes)
            groups = [one for one in join(raised, causes) if one.named.id in before or _is_seen(one)]
            self._open = {row.id: row for row in map(_conclusion, groups)}
        self.quiet.keep_only(self._open, wall_us)
        self._open = {row.id: self.quiet.applied(row, wall_us) for row in self._open.values()}
        return [change for change in changes_between(before, self._open) if self._is_news(change)]

    def _is_news(self, change: Change) -> bool:
        """Whether a change is worth an event: another severity, or a part the finding has not had before."""
        row = change.finding
        if change.kind in ("cleared", "joined"):
            self._told.pop(row.id, None)
            return True
        severity, parts = self._told.get(row.id, (None, set[str]()))
        self._told[row.id] = (row.severity, parts | row.parts)
        return change.kind != "changed" or severity != row.severity or not row.parts <= parts

    def _requieted(self, kind: Kind, found: Conclusion, wall_us: int) -> Change:
        now = self.quiet.applied(found, wall_us)
        self._open[found.id] = now
        return Change(kind, now)


def _is_same(before: Reading | None, now: Reading) -> bool:
    # A picture carries a reading on as the same object; one made from a recording makes them anew.
    return before is now or (before is not None and before.part.at_us == now.part.at_us)


def _is_seen(joined: Joined) -> bool:
    """Whether any of it is seen now: what only waits to be cleared raises nothing anew."""
    return any(track.seen for track in joined.tracks)


def _conclusion(joined: Joined) -> Conclusion:
    named, path = joined.named, joined.path
    evidence: dict[str, Any] = {}
    for track in joined.tracks:
        for name, value in track.signal.evidence.items():
            evidence.setdefault(name, value)
    series = dict.fromkeys(name for track in joined.tracks for name in track.signal.series)
    speakers = [named, *reversed(path)]
    return Conclusion(
        id=named.id,
        rule=named.rule.name,
        severity=joined.severity,
        subject=named.signal.subject,
        text=text_of(joined, word_between),
        evidence=evidence,
        since_us=min(track.since_us for track in path),
        at_us=max(track.at_us for track in joined.tracks),
        chain=[track.id for track in path],
        also=[track.id for track in joined.others],
        series=list(series),
        runbook=next((track.signal.runbook for track in speakers if track.signal.runbook), None),
        advice=next((track.signal.advice for track in speakers if track.signal.advice), None),
    )


def _placeholder(finding_id: str, until_us: int | None, who: str, note: str, wall_us: int) -> Conclusion:
    """What stands for a finding that is not open in the event of its silence."""
    rule, _, subject = finding_id.partition(":")
    row = Conclusion(finding_id, rule, "info", subject, finding_id, {}, wall_us, wall_us, [rule], [])
    state = "open" if until_us is None else "silenced"
    return structs.replace(row, state=state, who=who, note=note or None, until_us=until_us)
