"""The summary of a period, per server: findings, dumps and restores, runs, growth, forecasts, gaps.

A number without a source does not appear: what was not recorded is named as a gap, what could not be read as missing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from dba_console import __version__
from dba_console.core.clock import rfc3339
from dba_console.core.decoding import convert
from dba_console.core.errors import SessionError
from dba_console.core.redact import redact
from dba_console.core.sanitize import clean, escape_json
from dba_console.core.units import human_duration
from dba_console.jobs.history.duration_trend import JobWindows, PastRuns, TargetJobHistory, forecast_window
from dba_console.jobs.history.history_reader import job_history_view, read_job_history
from dba_console.jobs.history.kept_history import KeptHistory, KeptJob
from dba_console.jobs.history.run_statistics import JobRun, RunFacts, make_run
from dba_console.jobs.pages.history_page import forecast_sentences
from dba_console.recording.layout import parse_name
from dba_console.recording.recording import Recording
from dba_console.recording.run_paths import run_directories
from dba_console.recording.run_reader import RunRow, row_of
from dba_console.reports.documents import local_zone, new_environment
from dba_console.reports.growth import ComingDate, Growth, Reading, coming_dates, growth_of, reading_of
from dba_console.reports.postmortem.episodes import Episode, read_episodes
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.derive import derive
from dba_console.watch.samples.event import Event
from dba_console.watch.samples.jobs import JobKey

READINGS = 16
"""Sizes are read at least this often in the period, and at the start and the end of each session."""
SETTLED_US = 90_000_000
"""A session has read every size this long after its start."""
MIN_GAP_US = 60_000_000
"""Shorter gaps are counted, not listed."""
MAX_GAPS = 20
_SEVERITIES = ("info", "warning", "critical")


class SummarySession(Struct, frozen=True, kw_only=True):
    """A session in the period."""

    id: str
    host: str
    state: str
    first_us: int
    last_us: int
    damage: str = ""
    redacted: str = ""
    """Level of a redacted copy; empty for an original."""


class RecordingGap(Struct, frozen=True, kw_only=True):
    """A time without samples."""

    from_us: int
    to_us: int
    reason: str


class FindingSummary(Struct, frozen=True, kw_only=True):
    """All times one finding was open in the period."""

    id: str
    severity: str
    """The highest."""
    times: int
    open_s: float
    """In total, in the period."""
    longest_s: float
    worst_us: int
    worst_text: str
    """The sentence when it was most severe."""
    open_at_end: bool
    runbook: str = ""


class SummaryJob(Struct, frozen=True, kw_only=True):
    """Runs of one dump or restore in the period, with its trend and window over all known runs."""

    name: str
    runs: int
    failed: int
    unknown: int
    """Runs whose result was not observed."""
    last_us: int
    last_s: float
    longest_s: float
    usual_s: float | None
    forecast: list[str]
    """Sentences."""
    last_error: str = ""


class SummaryRun(Struct, frozen=True, kw_only=True):
    """A run or rehearsal of a runbook."""

    run: str
    runbook: str
    rehearsal: bool
    who: str
    began_us: int | None
    took_s: float | None
    state: str
    ending: str


class ServerSummary(Struct, frozen=True, kw_only=True):
    """One server in the period."""

    target: str
    sessions: list[SummarySession]
    recorded_s: float
    dates: list[ComingDate]
    """The nearest first."""
    findings: list[FindingSummary]
    """The most severe first."""
    jobs: list[SummaryJob]
    jobs_note: str | None
    runs: list[SummaryRun]
    growth: list[Growth]
    gaps: list[RecordingGap]
    """The longest first; at most MAX_GAPS."""
    other_gaps: int
    other_gaps_s: float
    missing: list[str]
    """What could not be read."""


class PeriodSummary(Struct, frozen=True, kw_only=True):
    from_us: int
    to_us: int
    servers: list[ServerSummary]
    missing: list[str]

    @property
    def sessions(self) -> list[SummarySession]:
        return [session for server in self.servers for session in server.sessions]


class _Part(NamedTuple):
    """The part of a session that lies in the period."""

    recording: Recording
    from_us: int
    to_us: int

    @property
    def seconds(self) -> float:
        return max(0.0, (self.to_us - self.from_us) / 1e6)


def summarize_period(
    directories: Sequence[Path], from_us: int, to_us: int, windows: JobWindows, progress: Callable[[float], None]
) -> PeriodSummary:
    """Return the diary of these sessions between two wall times. `progress` gets the share done, 0 to 1."""
    missing: list[str] = []
    servers: dict[str, list[_Part]] = {}
    try:
        for path in directories:
            try:
                recording = Recording.open(path)
            except SessionError as error:
                name = parse_name(path.name)
                if name is None or from_us <= name.start_us <= to_us:
                    missing.append(clean(error.message))
                continue
            part = _Part(recording, max(from_us, recording.first_us), min(to_us, recording.last_us))
            if part.from_us > part.to_us:
                recording.close()
                continue
            meta = recording.meta
            servers.setdefault(f"unknown {path.name}" if meta is None else meta.target_key, []).append(part)
        found = []
        for place, (key, parts) in enumerate(servers.items()):
            parts.sort(key=lambda part: part.from_us)
            found.append(_server(key, parts, from_us, to_us, windows))
            progress((place + 1) / len(servers))
    finally:
        for parts in servers.values():
            for part in parts:
                part.recording.close()
    found.sort(key=lambda one: one.target)
    return PeriodSummary(from_us=from_us, to_us=to_us, servers=found, missing=missing)


def _server(key: str, parts: list[_Part], from_us: int, to_us: int, windows: JobWindows) -> ServerSummary:
    readings = list(_readings(parts, (to_us - from_us) // READINGS))
    findings, ended_jobs = _read_events(parts, from_us, to_us)
    history = read_job_history(key)
    if not history.jobs:
        history = _history_of_events(ended_jobs, history)
    jobs = [_job(job, from_us, to_us, windows) for job in history.jobs]
    gaps, short = _gaps(parts, from_us, to_us)
    dates = [*coming_dates(readings), *_outgrown(history.jobs, windows)]
    return ServerSummary(
        target=_target(parts),
        sessions=[_session(part.recording) for part in parts],
        recorded_s=max(0.0, (to_us - from_us - sum(gap.to_us - gap.from_us for gap in [*gaps, *short])) / 1e6),
        dates=sorted(dates, key=lambda one: one.at_us or 0),
        findings=findings,
        jobs=[job for job in jobs if job is not None],
        jobs_note=None if history.note is None else clean(history.note),
        runs=list(_runs(parts, from_us, to_us)),
        growth=growth_of(readings),
        gaps=gaps[:MAX_GAPS],
        other_gaps=len(gaps[MAX_GAPS:]) + len(short),
        other_gaps_s=sum((gap.to_us - gap.from_us) / 1e6 for gap in [*gaps[MAX_GAPS:], *short]),
        missing=[clean(f"{_id(part.recording)}: {part.recording.damage}") for part in parts if part.recording.damage],
    )


def _target(parts: Sequence[_Part]) -> str:
    meta = parts[-1].recording.meta
    return "target not recorded" if meta is None else clean(meta.target)


def _id(recording: Recording) -> str:
    name = parse_name(recording.directory.name)
    return recording.directory.name if name is None else name.id


def _session(recording: Recording) -> SummarySession:
    meta = recording.meta
    return SummarySession(
        id=_id(recording), host="" if meta is None else clean(meta.host), state=recording.state,
        first_us=recording.first_us, last_us=recording.last_us, damage=clean(recording.damage or ""),
        redacted="" if meta is None or (copy := meta.redacted()) is None else clean(copy.level),
    )  # fmt: skip


# Findings: how often, how long, when worst. Times that overlap, as seen by two agents, count once.


class _Found:
    """What is known of one finding so far. Keeps no event but the worst."""

    def __init__(self) -> None:
        self.spans: list[tuple[int, int]] = []
        self.worst: tuple[int, int, str] = (-1, 0, "")
        """Rank, time and sentence when it was most severe."""
        self.last_us = 0
        self.open_at_end = False
        self.runbook = ""

    def add(self, episode: Episode, start_us: int, end_us: int) -> None:
        self.spans.append((start_us, end_us))
        self.worst = max(self.worst, (_rank(episode.severity), episode.worst.wall_us, episode.worst.text))
        if end_us >= self.last_us:
            self.last_us, self.open_at_end, self.runbook = end_us, episode.end is None, episode.runbook

    def summary(self, name: str) -> FindingSummary:
        spans = _joined(self.spans)
        rank, worst_us, text = self.worst
        lengths = [(end - start) / 1e6 for start, end in spans]
        return FindingSummary(
            id=name, severity=_SEVERITIES[rank], times=len(spans), open_s=sum(lengths), longest_s=max(lengths),
            worst_us=worst_us, worst_text=clean(redact(text.partition(": ")[2] or text)), open_at_end=self.open_at_end,
            runbook=self.runbook,
        )  # fmt: skip


def _read_events(
    parts: Sequence[_Part], from_us: int, to_us: int
) -> tuple[list[FindingSummary], list[tuple[JobKey, JobRun]]]:
    """Return the findings of the period, and the dumps and restores that the sessions saw end."""
    by_id: dict[str, _Found] = {}
    jobs: list[tuple[JobKey, JobRun]] = []
    for part in parts:
        events = part.recording.events()
        for episode in read_episodes(events):
            end_us = episode.end_us(part.recording.last_us)
            if episode.since_us <= to_us and end_us >= from_us:
                found = by_id.setdefault(episode.id, _Found())
                found.add(episode, max(from_us, episode.since_us), min(to_us, end_us))
        jobs += [run for event in events if event.kind == "job.ended" and (run := _run_of_event(event)) is not None]
    findings = [found.summary(name) for name, found in by_id.items()]
    return sorted(findings, key=lambda one: (-_rank(one.severity), -one.open_s, one.id)), jobs


def _rank(severity: str) -> int:
    return _SEVERITIES.index(severity) if severity in _SEVERITIES else 0


def _joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the spans with overlapping ones joined.

    >>> _joined([(5, 9), (1, 6), (20, 30)])
    [(1, 9), (20, 30)]
    """
    found: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, max(start, end)))
    return found


# Dumps, restores, runs.


def _job(job: PastRuns, from_us: int, to_us: int, windows: JobWindows) -> SummaryJob | None:
    runs = [run for run in job.runs if run.ended_us >= from_us and run.started_us <= to_us]
    if not runs:
        return None
    failed = [run for run in runs if run.ending == "failed"]
    found = forecast_window([run for run in job.runs if run.started_us <= to_us], windows.for_job(job))
    error = next((run.last_error for run in reversed(failed) if run.last_error), None)
    return SummaryJob(
        name=clean(job.title), runs=len(runs), failed=len(failed), unknown=sum(run.ending == "unknown" for run in runs),
        last_us=runs[-1].started_us, last_s=runs[-1].seconds, longest_s=max(run.seconds for run in runs),
        usual_s=job.usual_s, forecast=forecast_sentences(found),
        last_error=clean(redact(error or "")),
    )  # fmt: skip


class _EndedJob(Struct):
    """Details of the event of a job's end; without a start they are not of use here."""

    kind: str
    started_us: int
    seconds: float
    database: str | None = None
    user: str | None = None


_RUN_FACTS = ("size_bytes", "bytes", "format", "version", "jobs", "exit", "errors", "last_error")


def _history_of_events(ended: Sequence[tuple[JobKey, JobRun]], known: TargetJobHistory) -> TargetJobHistory:
    """Return the dumps and restores of events, for a server whose job history is not on this host."""
    if not ended:
        return known
    runs: dict[JobKey, list[JobRun]] = {}
    for key, run in ended:
        runs.setdefault(key, []).append(run)
    jobs = [KeptJob(*key, watched_since_us=0, runs=job_runs) for key, job_runs in runs.items()]
    note = "from the events of these sessions: the job history of this server is not on this host"
    return msgspec.structs.replace(job_history_view(KeptHistory(0, jobs)), note=note)


def _run_of_event(event: Event) -> tuple[JobKey, JobRun] | None:
    details = event.details
    facts = {name: details[name] for name in _RUN_FACTS if name in details} | {"whole": details.get("ok")}
    try:
        one = convert(details, _EndedJob)
        run = make_run(one.started_us, one.seconds, False, convert(facts, RunFacts))
        return (one.kind, one.database, one.user), run
    except msgspec.ValidationError:
        return None  # its start was not observed


def _outgrown(jobs: Sequence[PastRuns], windows: JobWindows) -> Iterator[ComingDate]:
    for job in jobs:
        found = forecast_window(job.runs, windows.for_job(job))
        if found.window_s is None or not (found.beyond or found.day_us is not None):
            continue
        yield ComingDate(
            what=clean(f"{job.title} outgrows its window of {human_duration(found.window_s)}"), at_us=found.day_us,
            earliest_us=found.earliest_us, latest_us=found.latest_us,
            based_on=f"{found.trend.runs} runs over {found.trend.days:.0f} days",
        )  # fmt: skip


def _runs(parts: Sequence[_Part], from_us: int, to_us: int) -> Iterator[SummaryRun]:
    rows = [row_of(path) for part in parts for path in run_directories(part.recording.directory)]
    rows = [row for row in rows if row.began_us is None or from_us <= row.began_us <= to_us]
    for row in sorted(rows, key=lambda row: row.began_us or 0):
        yield _run(row)


def _run(row: RunRow) -> SummaryRun:
    about = row.about
    took_s = None if row.began_us is None or row.ended_us is None else max(0.0, (row.ended_us - row.began_us) / 1e6)
    return SummaryRun(
        run=row.run, runbook="" if about is None else clean(about.runbook),
        who="" if about is None else clean(about.who), rehearsal=about is not None and about.mode == "rehearse",
        began_us=row.began_us, took_s=took_s, state=row.state, ending=clean(redact(row.ending or row.note or "")),
    )  # fmt: skip


# Growth and gaps.


def _readings(parts: Sequence[_Part], every_us: int) -> Iterator[Reading]:
    """Yield sizes near the start and at the end of each session, and regularly between."""
    for recording, from_us, to_us in parts:
        at_us = min(max(from_us, recording.first_us + SETTLED_US), to_us)
        times = [*range(at_us, to_us, max(every_us, SETTLED_US)), to_us]
        for time_us in times:
            picture = recording.picture_at(time_us)
            if picture is not None:
                yield reading_of(derive(picture, ChartHistory()), picture)


def _gaps(parts: Sequence[_Part], from_us: int, to_us: int) -> tuple[list[RecordingGap], list[RecordingGap]]:
    """Return the gaps of at least a minute, the longest first, and the shorter ones."""
    found = []
    for part in parts:
        found += [(max(from_us, gap.from_us), min(to_us, gap.to_us), gap.reason) for gap in part.recording.gaps()]
    covered_us, why = from_us, "before the first of these sessions"
    for part in parts:
        if part.from_us > covered_us:
            found.append((covered_us, part.from_us, why))
        if part.to_us >= covered_us:
            covered_us, why = part.to_us, _why_ended(part.recording)
    if to_us > covered_us:
        found.append((covered_us, to_us, why))
    gaps = [RecordingGap(from_us=a, to_us=b, reason=clean(redact(reason))) for a, b, reason in found if b > a]
    gaps.sort(key=lambda gap: gap.from_us - gap.to_us)
    long = [gap for gap in gaps if gap.to_us - gap.from_us >= MIN_GAP_US]
    return long, gaps[len(long) :]


def _why_ended(recording: Recording) -> str:
    name = _id(recording)
    if recording.state == "live":
        return f"session {name} is still being recorded"
    if recording.closed is None:
        return f"session {name} ended without being closed"
    try:
        return f"session {name} ended: {json.loads(recording.closed)['reason']}"
    except (ValueError, KeyError, TypeError):
        return f"session {name} ended"


def summary_object(found: PeriodSummary) -> dict[str, Any]:
    """Return the summary as JSON types: times in RFC 3339 under names without `_us`, unknown is null."""
    plain: dict[str, Any] = _with_times(msgspec.to_builtins(found))
    return plain


def _with_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name.removesuffix("_us"): rfc3339(one) if name.endswith("_us") else _with_times(one)
            for name, one in value.items()
        }
    return [_with_times(one) for one in value] if isinstance(value, list) else value


# The diary of a period as Markdown, as one HTML file, and as JSON.

MARKDOWN, HTML, JSON = "summary.md", "summary.html", "summary.json"


def summary_markdown(found: PeriodSummary, made_us: int) -> str:
    """Return the summary as Markdown. `made_us`: when it was made."""
    return _render(found, made_us, html=False)


def summary_json(found: PeriodSummary) -> str:
    """Return the summary as one JSON object on one line."""
    return escape_json(msgspec.json.encode(summary_object(found)).decode())


def summary_documents(found: PeriodSummary, made_us: int) -> dict[str, str]:
    """Return the three forms by file name."""
    return {
        MARKDOWN: summary_markdown(found, made_us),
        HTML: _render(found, made_us, html=True),
        JSON: summary_json(found) + "\n",
    }


def _render(found: PeriodSummary, made_us: int, *, html: bool) -> str:
    template = new_environment(html=html).get_template(f"{HTML if html else MARKDOWN}.j2")
    return template.render(summary=found, version=__version__, made_us=made_us, zone=local_zone(made_us))
