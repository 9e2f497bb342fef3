"""Gathers the facts of an incident from recordings, also damaged, cut and live ones: what is missing is named."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec.structs import replace

from dba_console.core.errors import ConsoleError, UsageError
from dba_console.core.redact import MASK, names_secret
from dba_console.core.units import human_duration
from dba_console.recording.backlog import Gap
from dba_console.recording.recording import Recording
from dba_console.recording.run_reader import StoredRun
from dba_console.reports.clock_offsets import ClockOffset, measure_offset
from dba_console.reports.postmortem.decisions import MAX_DECISIONS, find_decisions
from dba_console.reports.postmortem.episodes import Episode, read_episodes
from dba_console.reports.postmortem.evidence_charts import draw_charts, ranges_of, read_series
from dba_console.reports.postmortem.facts import (
    Cause,
    Decision,
    EvidenceChart,
    GapFacts,
    IncidentFacts,
    Measured,
    ReportedRun,
    SeriesRange,
    SessionFacts,
    SettingChange,
)
from dba_console.reports.postmortem.impact import measure_impact
from dba_console.reports.postmortem.lock_episodes import LockEpisodeReader
from dba_console.reports.postmortem.responses import answering_runs
from dba_console.reports.postmortem.runs import run_facts, runs_within, sessions_of_runs, span_of
from dba_console.reports.postmortem.scope import (
    ReportScope,
    RunSpan,
    scope_of_finding,
    scope_of_run,
    scope_of_session,
    scope_of_span,
)
from dba_console.reports.postmortem.story import find_moments, open_questions, summarize_incident, title_of
from dba_console.reports.postmortem.timeline import SessionEvents, build_timeline, text_of
from dba_console.watch.connections.panel import usable_of
from dba_console.watch.drawing.findings import field_label, value_text
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.picture import Picture, PictureFacts
from dba_console.watch.samples import host, postgres
from dba_console.watch.samples.event import Event
from dba_console.watch.samples.findings import FindingNow, FindingsNow

MAX_CAUSES = 40
MAX_RUNS = 20
MAX_ROWS = 100
"""Of gaps, settings, and numbers of one finding."""
LATE_S = 10.0
"""A first sample later than this after the start of the span is named: an agent needs a moment to connect."""
_REFERENCE = ClockOffset(0, 0, "")
"""Of the first session, whose times are the axis."""


class Asked(NamedTuple):
    """What the report is about; nothing given: from the first to the last finding."""

    from_us: int | None = None
    to_us: int | None = None
    finding: str | None = None
    run: str | None = None
    at_us: int | None = None
    """With `finding`: a time when it was open; without it the last such time."""


@dataclass
class _Source:
    """A session of the report."""

    index: int
    recording: Recording
    events: list[Event]
    gaps: list[Gap]
    offset: ClockOffset = _REFERENCE
    runs: list[StoredRun] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    continued: bool = False
    """It was added because a run of the first session began or was resumed in it."""

    @property
    def shift_us(self) -> int:
        """Added to its times; 0 if the offset is not known."""
        return self.offset.offset_us or 0

    def own(self, wall_us: int) -> int:
        """Return a time of the report as that session recorded it."""
        return wall_us - self.shift_us


def gather(recording: Recording, asked: Asked, others: Sequence[Recording] = ()) -> IncidentFacts:
    """Return the facts of an incident. The times of `others` are put on the axis of the first recording.

    Sessions beside it in which its runs began or were resumed are added. Raises UsageError if what was asked for is not
    in the session.
    """
    with ExitStack() as opened:
        return _gather(recording, asked, others, opened)


def _gather(recording: Recording, asked: Asked, others: Sequence[Recording], opened: ExitStack) -> IncidentFacts:
    main = _source(0, recording)
    scope = _scope(main, read_episodes(main.events), asked)
    sources = [main, *(_source(number, other) for number, other in enumerate(others, 1))]
    _add_continued(sources, scope, opened)
    for source in sources[1:]:
        source.offset = measure_offset(recording, source.recording, scope.from_us, scope.to_us)
    runs, by_run = _runs(sources, scope)
    answering = answering_runs(((run, source.shift_us) for source in sources for run in source.runs), scope)
    about = {one.run for one in answering} | ({scope.run.run} if scope.run is not None else set())
    related = about | {part for one in scope.own for part in (one.id, *one.parts)}
    causes = _causes(sources, scope)
    timeline, omitted = build_timeline(_session_events(sources, related), scope.from_us, scope.to_us)
    decisions: list[Decision] = []
    decided = 0
    for source in sources:
        span = source.own(scope.from_us), source.own(scope.to_us)
        found, count = find_decisions(source.recording, source.events, span, source.index, source.shift_us, related)
        decisions, decided = decisions + found, decided + count
    moments = find_moments(scope, main.events, answering)
    measured = [number for run in runs if run.run in about or not related for number in by_run[run.run]]
    locks = [LockEpisodeReader(one.recording.meta) for one in sources]
    impact = measured + [one for source in sources for one in _impact(source, scope, locks[source.index])]
    blocking = [one.facts(source.index, source.shift_us) for one, source in zip(locks, sources, strict=True)]
    charts, ranges = _charts(sources, scope)
    gaps = [one for source in sources for one in _gaps(source, scope)]
    sessions = tuple(_session_facts(one) for one in sources)
    runs = [replace(one, related=one.run in about) for one in runs]
    return IncidentFacts(
        title=title_of(scope, sessions[0]),
        summary=tuple(summarize_incident(scope, sessions[0], moments, impact, causes, runs)),
        chosen=scope.chosen,
        from_us=scope.from_us,
        to_us=scope.to_us,
        spanned=scope.spanned,
        sessions=sessions,
        moments=tuple(moments),
        impact=tuple(impact),
        blocking=tuple(one for one in blocking if one is not None),
        ranges=tuple(ranges[:MAX_ROWS]),
        timeline=tuple(timeline),
        omitted=tuple(omitted),
        decisions=tuple(sorted(decisions, key=lambda one: one.at_us)),
        runs=tuple(runs),
        changes=tuple(one for source in sources for one in _setting_changes(source, scope))[:MAX_ROWS],
        charts=tuple(charts),
        causes=tuple(causes),
        others=tuple(_others(sources, scope)),
        gaps=tuple(gaps[:MAX_ROWS]),
        questions=tuple(open_questions(scope, moments, runs, gaps)),
        missing=tuple(_missing(sources, sessions, scope, decided)),
    )


def _source(index: int, recording: Recording) -> _Source:
    return _Source(index, recording, recording.events(), recording.gaps())


def _add_continued(sources: list[_Source], scope: ReportScope, opened: ExitStack) -> None:
    """Add the sessions in which runs of the first one began or were resumed within the span."""
    main, known = sources[0], {source.recording.directory.resolve() for source in sources}
    runs, _ = runs_within(main.recording.directory, main.events, scope.from_us, scope.to_us)
    names = {run.directory.name for run in runs}
    for path in sessions_of_runs(runs):
        if path.resolve() in known:
            continue
        try:
            recording = Recording.open(path)
        except ConsoleError as error:
            main.problems.append(text_of(f"session {path.name} has a part of a run: {error.message}"))
            continue
        opened.callback(recording.close)
        source = _source(len(sources), recording)
        source.continued = True
        if any(one.details.get("run") in names and scope.contains(one.wall_us) for one in source.events):
            sources.append(source)


def _session_events(sources: Sequence[_Source], related: set[str]) -> list[SessionEvents]:
    runs = {run.directory.name: run for source in sources for run in source.runs}
    return [SessionEvents(one.index, one.events, one.gaps, one.shift_us, runs, related) for one in sources]


def _scope(source: _Source, episodes: list[Episode], asked: Asked) -> ReportScope:
    recording = source.recording
    limits = recording.first_us, recording.last_us
    # The end of an incident may be known from an event although no sample was recorded any more; a note may be added
    # to a session days later.
    times = [event.wall_us for event in source.events if event.kind != "note"]
    limits = min([limits[0], *times]), max([limits[1], *times])
    if asked.run is not None:
        return scope_of_run(episodes, _run_span(_find_run(source, asked.run)), limits)
    if asked.finding is not None:
        return scope_of_finding(episodes, asked.finding, limits, asked.at_us)
    if asked.from_us is None and asked.to_us is None:
        return scope_of_session(episodes, limits)
    from_us = limits[0] if asked.from_us is None else asked.from_us
    to_us = limits[1] if asked.to_us is None else asked.to_us
    if to_us <= from_us:
        raise UsageError("the span of the report is empty: --to is not after --from")
    return scope_of_span(episodes, from_us, to_us)


def _find_run(source: _Source, name: str) -> StoredRun:
    runs, problems = runs_within(source.recording.directory, source.events, 0, 1 << 62)
    found = [run for run in runs if run.directory.name.startswith(name) or run.directory.name.endswith(f"-{name}")]
    if name == "last":
        found = runs[-1:]
    if len(found) != 1:
        what = f"no run {name!r}" if not found else f"{name!r} matches {len(found)} runs"
        known = ", ".join(run.directory.name for run in runs) or "; ".join(problems) or "none"
        raise UsageError(f"{what} in this session", hint=f"its runs: {known}")
    return found[0]


def _run_span(run: StoredRun) -> RunSpan:
    began_us, last_us = span_of(run)
    ended = run.ended
    ending = "" if ended is None else text_of(ended.text)
    return RunSpan(text_of(run.directory.name), text_of(run.about.runbook), began_us, last_us, ending)


def _runs(sources: Sequence[_Source], scope: ReportScope) -> tuple[list[ReportedRun], dict[str, list[Measured]]]:
    """Return the runs, and what each measured."""
    found: list[ReportedRun] = []
    measured: dict[str, list[Measured]] = {}
    seen: set[str] = set()
    for source in sources:
        span = source.own(scope.from_us), source.own(scope.to_us)
        runs, problems = runs_within(source.recording.directory, source.events, *span)
        source.runs = [run for run in runs if run.directory.name not in seen]
        source.problems += problems
        seen.update(run.directory.name for run in source.runs)
    # The output of a run that was resumed is in two sessions.
    output = [line for source in sources for line in source.recording.output() if line.run in seen]
    for source in sources:
        for run in source.runs[-MAX_RUNS:]:
            try:
                facts, numbers = run_facts(run, output, source.index, source.shift_us)
            except ConsoleError as error:
                source.problems.append(text_of(f"run {run.directory.name}: {error.message}"))
                continue
            found.append(facts)
            measured[facts.run] = numbers
    return sorted(found, key=lambda one: one.began_us or 0), measured


def _impact(source: _Source, scope: ReportScope, locks: LockEpisodeReader) -> Iterator[Measured]:
    began_us, ended_us = scope.core_us
    for one in measure_impact(source.recording, source.own(began_us), source.own(ended_us), locks):
        at_us = None if one.at_us is None else one.at_us + source.shift_us
        yield replace(one, at_us=at_us, session=source.index)


def _causes(sources: Sequence[_Source], scope: ReportScope) -> list[Cause]:
    """Return the findings of the incident, the main one at the top."""
    ranked = sorted(scope.own, key=lambda one: (one is not scope.main, one.ended_as == "joined"))
    return [_cause(sources[0], one) for one in ranked[:MAX_CAUSES]]


def _others(sources: Sequence[_Source], scope: ReportScope) -> list[Cause]:
    """Return the other findings of the first session, and those of other sessions that were open in the span."""
    found = [_cause(sources[0], one) for one in scope.others[:MAX_CAUSES]]
    for source in sources[1:]:
        span = source.own(scope.from_us), source.own(scope.to_us)
        found += [_cause(source, one) for one in read_episodes(source.events) if one.urgent and one.overlaps(*span)]
    return found[:MAX_CAUSES]


def _cause(source: _Source, episode: Episode) -> Cause:
    now = finding_at(source.recording, episode)
    evidence = episode.worst.details.get("evidence") if now is None else now.evidence
    shown = evidence.items() if isinstance(evidence, dict) else ()
    return Cause(
        id=episode.id,
        severity=episode.severity,
        text=text_of(sentence_of(episode.worst) if now is None else now.text),
        began_us=episode.since_us + source.shift_us,
        raised_us=episode.raised.wall_us + source.shift_us,
        ended_us=None if episode.end is None else episode.end.wall_us + source.shift_us,
        ended_as=episode.ended_as,
        session=source.index,
        chain=episode.chain,
        also=episode.also,
        evidence=tuple(
            (text_of(field_label(name)), text_of(value_text(name, value))) for name, value in shown if value is not None
        ),
        advice="" if now is None or now.advice is None else text_of(now.advice),
        runbook=episode.runbook,
    )


def finding_at(recording: Recording, episode: Episode) -> FindingNow | None:
    """Return the finding as the samples have it when it was worst; None if they do not."""
    picture = recording.picture_at(episode.worst.wall_us)
    now = None if picture is None else picture.now("findings", FindingsNow)
    rows = [] if now is None else now.rows
    return next((row for row in rows if row.id == episode.worst.details.get("id")), None)


def sentence_of(event: Event) -> str:
    """Return the sentence of a finding from the event that reported it.

    >>> sentence_of(Event(wall_us=0, kind="finding.raised", text="finding raised, critical: It is full."))
    'It is full.'
    """
    head, _, sentence = event.text.partition(": ")
    return sentence if head.startswith("finding ") and sentence else event.text


def _charts(sources: Sequence[_Source], scope: ReportScope) -> tuple[list[EvidenceChart], list[SeriesRange]]:
    charts: list[EvidenceChart] = []
    ranges: list[SeriesRange] = []
    main = sources[0].recording
    own = (finding_at(main, one) for one in scope.own)
    names = [name for now in own if now is not None for name in now.series]
    for source in (one for one in sources if not one.continued):
        recording = source.recording
        parts = [source, *(one for one in sources if one.continued and source.index == 0)]
        points = [
            (wall_us + one.shift_us, point)
            for one in parts
            for wall_us, point in one.recording.points(one.own(scope.from_us), one.own(scope.to_us))
        ]
        series = read_series(points, names if source.index == 0 else ())
        tick_us = 1_000_000 if recording.meta is None else recording.meta.interval_us
        limits = _limits(recording.picture_at(source.own(scope.core_us[1])))
        charts += draw_charts(series, scope.from_us, scope.to_us, tick_us, limits, source.index)
        if source.index == 0:
            ranges = ranges_of(series, scope.from_us, scope.core_us)
    return charts, ranges


def _limits(picture: Picture | None) -> dict[str, tuple[str, float]]:
    usable = None if picture is None else usable_of(PictureFacts(picture, ChartHistory()))
    return {} if usable is None else {"connections.used": ("usable", float(usable))}


def _gaps(source: _Source, scope: ReportScope) -> list[GapFacts]:
    shifted = (
        GapFacts(gap.from_us + source.shift_us, gap.to_us + source.shift_us, text_of(gap.reason), source.index)
        for gap in source.gaps
    )
    return [gap for gap in shifted if gap.from_us <= scope.to_us and gap.to_us >= scope.from_us]


# What was changed: settings of server and kernel at the start and at the end of the span.


def _setting_changes(source: _Source, scope: ReportScope) -> list[SettingChange]:
    recording = source.recording
    first = recording.picture_at(source.own(scope.from_us)) or _first_picture(recording)
    last = recording.picture_at(source.own(scope.to_us))
    if first is None or last is None:
        return []
    before, after = _settings(first), _settings(last)
    return [
        SettingChange(name, before[name], after[name], source.index)
        for name in sorted(before.keys() & after.keys())
        if before[name] != after[name]
    ]


def _first_picture(recording: Recording) -> Picture | None:
    return recording.picture_at(recording.first_us)


def _settings(picture: Picture) -> dict[str, str]:
    server, kernel = picture.now("pg.server", postgres.Server), picture.now("host.settings", host.HostSettings)
    found: dict[str, str] = {}
    if server is not None:
        found |= {f"setting {text_of(one.name)}": _setting_text(one.name, one.value) for one in server.settings}
        found |= {"server version": text_of(server.version), "role": "standby" if server.in_recovery else "primary"}
    if kernel is not None:
        for name in kernel.__struct_fields__:
            value = getattr(kernel, name)
            if isinstance(value, str | int | float) and name != "clock_error_us":
                found[f"kernel {name}"] = text_of(str(value))
    return found


def _setting_text(name: str, value: str) -> str:
    return MASK if names_secret(name) and value else text_of(value) or "empty"


# The sessions, and what is missing.


def _session_facts(source: _Source) -> SessionFacts:
    recording, meta = source.recording, source.recording.meta
    picture = recording.picture_at(recording.last_us)
    server = None if picture is None else picture.now("pg.server", postgres.Server)
    return SessionFacts(
        id=text_of(recording.directory.name if meta is None else meta.id),
        target="" if meta is None else text_of(meta.target),
        host="" if meta is None else text_of(meta.host),
        state=recording.state,
        first_us=recording.first_us + source.shift_us,
        last_us=recording.last_us + source.shift_us,
        server="" if server is None else _server_text(server),
        program_version="" if meta is None else text_of(meta.program_version),
        damage=text_of(recording.damage or ""),
        redacted="" if meta is None or (copy := meta.redacted()) is None else text_of(copy.level),
        continues="" if meta is None else text_of(meta.continues or ""),
        offset_us=source.offset.offset_us,
        offset_error_us=source.offset.error_us,
        offset_how=source.offset.how,
        clock_offset=_clock_offset(picture),
    )


def _server_text(server: postgres.Server) -> str:
    role = "standby" if server.in_recovery else "primary"
    timeline = "" if server.timeline is None else f", timeline {server.timeline}"
    return f"PostgreSQL {text_of(server.version)}, {role}{timeline}, system identifier " + text_of(
        server.system_identifier or "not readable"
    )


def _clock_offset(picture: Picture | None) -> str:
    server = None if picture is None else picture.now("pg.server", postgres.Server)
    if picture is None or server is None:
        return "not recorded"
    offset_s = (server.now_us - picture.current["pg.server"].wall_us) / 1e6
    if abs(offset_s) < 0.0005:
        return "0 ms"
    return f"{offset_s * 1e3:+.0f} ms" if abs(offset_s) < 10 else f"{offset_s:+.1f} s"


def _missing(
    sources: Sequence[_Source], sessions: Sequence[SessionFacts], scope: ReportScope, decisions: int
) -> list[str]:
    found = []
    for source, facts in zip(sources, sessions, strict=True):
        recording, name = source.recording, facts.id
        if recording.damage:
            found.append(f"session {name}: {text_of(recording.damage)}")
        if recording.meta is None:
            found.append(f"session {name}: its metadata is lost: target and host are not known")
        if facts.state == "live":
            found.append(f"session {name} was still being recorded when this report was made")
        elif facts.state == "crashed":
            found.append(f"session {name} was not closed: its end may be missing")
        first_us = recording.step(source.own(scope.from_us) - 1, 1)
        if first_us is None or first_us > source.own(scope.to_us):
            found.append(f"session {name} has no samples in the span of the report")
        elif not source.continued and (late_s := (facts.first_us - scope.from_us) / 1e6) > LATE_S:
            found.append(f"session {name} starts {human_duration(late_s)} after the start of the span")
        if facts.offset_us is None:
            found.append(f"session {name}: clock offset not known: {facts.offset_how}; its times are as recorded")
        for event in source.events:
            if event.kind == "clock.jump" and scope.from_us <= event.wall_us + source.shift_us <= scope.to_us:
                found.append(f"session {name}: {text_of(event.text)}; times before and after are not comparable")
        found += [f"session {name}: {problem}" for problem in source.problems]
    for what, count, shown in (
        ("findings", max(len(scope.own), len(scope.others)), MAX_CAUSES),
        ("decisions", decisions, MAX_DECISIONS),
        ("runs", sum(len(source.runs) for source in sources), MAX_RUNS),
    ):
        if count > shown:
            found.append(f"{shown} of {count} {what} are described; the timeline has the others")
    return found
