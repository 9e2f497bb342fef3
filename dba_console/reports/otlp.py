"""OpenTelemetry (OTLP) in JSON: metrics, logs (findings and other events) and traces (runs and their steps).

A request is an object of the protocol: a line of a file, as the file exporter writes it, or the body of a POST.
Sources: opentelemetry-proto (docs/specification.md, "JSON Protobuf Encoding"), the file exporter's specification.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO, NamedTuple

import msgspec

from dba_console import __version__
from dba_console.core.errors import SessionError, UsageError
from dba_console.core.redact import redact
from dba_console.core.sanitize import escape_json
from dba_console.recording.plan import JournalRecord
from dba_console.recording.recording import Recording
from dba_console.recording.run_paths import run_directories
from dba_console.recording.run_reader import StoredRun, read_run
from dba_console.recording.run_records import STARTED
from dba_console.reports.export_formats import Progress, Span
from dba_console.reports.metrics import Labels, Metric, MetricReader
from dba_console.reports.otlp_client import OtlpClient
from dba_console.watch.samples.event import Event

SIGNALS = ("metrics", "logs", "traces")
PREFIX = "dba_console."
_BATCH_POINTS, _BATCH_EVENTS = 4_000, 500
"""Points and events of a request: below a megabyte, receivers accept 4 MB or more."""
_LATE_US = 60_000_000
_SEVERITIES = {"info": 9, "warning": 13, "critical": 17}
"""INFO, WARN and ERROR of the log data model."""
_UNITS = {"seconds": "s", "bytes": "By", "ratio": "1"}
_GAUGE, _CUMULATIVE = "gauge", 2
_INTERNAL, _STATUS_OK, _STATUS_ERROR = 1, 1, 2
_STEP_STARTED, _STEP_ENDED = "step.started", "step.ended"


class Request(NamedTuple):
    """A request, and the wall time up to which it holds the recording."""

    signal: str
    content: dict[str, Any]
    wall_us: int

    def encoded(self) -> bytes:
        """Return it as one line of JSON."""
        return escape_json(msgspec.json.encode(self.content).decode()).encode()


def write_otlp(
    span: Span, out: BinaryIO, progress: Progress, *, signal: str = "metrics", every_s: float = 0
) -> list[str]:
    """Write one signal as JSON lines. Returns what was left out. Raises UsageError for an unknown signal."""
    if signal not in SIGNALS:
        raise UsageError(f"unknown signal {signal!r}", hint=f"it can be {', '.join(SIGNALS)}")
    reader = OtlpReader(span.recording, (signal,), int(every_s * 1e6))
    for request in reader.requests(span):
        out.write(request.encoded() + b"\n")
        progress(span.share(request.wall_us))
    return reader.notes


def post_otlp(span: Span, client: OtlpClient, progress: Progress, reader: OtlpReader, follow_s: float = 0) -> None:
    """Post what the reader reads of the span; with `follow_s`, read on at this interval while the session is live.

    Raises ConnectError if the endpoint does not accept it.
    """
    while True:
        is_last = not follow_s or span.recording.state != "live"
        if follow_s:
            span.recording.refresh()  # after its state: nothing is written to a closed one
            span = span._replace(to_us=span.recording.bounds_us[1])
        for request in reader.requests(span, only_ended=not is_last):
            client.post(request.signal, request.encoded())
            progress(span.share(request.wall_us))
        if is_last:
            return
        time.sleep(follow_s)
        span = span._replace(from_us=span.to_us + 1)


class OtlpReader:
    """Reads the requests of a span, then of the one after it: nothing twice."""

    def __init__(self, recording: Recording, signals: Iterable[str] = SIGNALS, every_us: int = 0) -> None:
        self._signals = tuple(signals)
        self._resource = _resource(recording)
        self._metrics = MetricReader(every_us)
        self._began: dict[tuple[Metric, Labels], tuple[int, float]] = {}
        """Of each counter: when its count began, and its newest value."""
        self._attributes: dict[tuple[Metric, Labels], list[dict[str, Any]]] = {}
        """Of each series."""
        self._event_seq = -1
        self._first_us: int | None = None
        """Start of the first span."""
        self._runs: set[str] = set()
        self._unreadable_runs: list[str] = []

    @property
    def notes(self) -> list[str]:
        """Return what was left out, in sentences."""
        return self._metrics.notes() + self._unreadable_runs

    def requests(self, span: Span, *, only_ended: bool = False) -> Iterator[Request]:
        """Yield the requests in the order of the signals. `only_ended`: a run is a trace when it has ended."""
        self._first_us = span.from_us if self._first_us is None else self._first_us
        if "metrics" in self._signals:
            yield from self._metric_requests(span)
        if "logs" in self._signals:
            yield from self._log_requests(span)
        if "traces" in self._signals:
            yield from self._trace_requests(span, only_ended)

    # Metrics.

    def _metric_requests(self, span: Span) -> Iterator[Request]:
        batch: dict[Metric, list[dict[str, Any]]] = {}
        size, at_ms = 0, span.from_us // 1000
        for at_ms, points in self._metrics.read(span):
            for metric, labels, value in points:
                batch.setdefault(metric, []).append(self._data_point(metric, labels, value, at_ms))
            size += len(points)
            if size >= _BATCH_POINTS:
                yield self._metric_request(batch, at_ms)
                batch, size = {}, 0
        if batch:
            yield self._metric_request(batch, at_ms)

    def _metric_request(self, batch: Mapping[Metric, list[dict[str, Any]]], at_ms: int) -> Request:
        metrics = [_metric(metric, points) for metric, points in batch.items()]
        scope = [{"scope": _SCOPE, "metrics": metrics}]
        content = {"resourceMetrics": [{"resource": self._resource, "scopeMetrics": scope}]}
        return Request("metrics", content, at_ms * 1000)

    def _data_point(self, metric: Metric, labels: Labels, value: float, at_ms: int) -> dict[str, Any]:
        known = self._attributes.get((metric, labels))
        if known is None:
            known = attributes(dict(zip(metric.labels, labels, strict=True)))
            self._attributes[metric, labels] = known
        point = _filled(timeUnixNano=_nanoseconds(at_ms * 1000), attributes=known) | {"asDouble": float(value)}
        if metric.kind == "counter":
            # The true start of the count is before the recording; a smaller value is a reset.
            began_ms, newest = self._began.get((metric, labels), (at_ms, value))
            began_ms = at_ms if value < newest else began_ms
            self._began[metric, labels] = (began_ms, value)
            point["startTimeUnixNano"] = _nanoseconds(began_ms * 1000)
        return point

    # Logs.

    def _log_requests(self, span: Span) -> Iterator[Request]:
        batch: list[dict[str, Any]] = []
        wall_us = span.from_us
        # An event may be written after the samples of a later time.
        late = span._replace(from_us=span.from_us - _LATE_US) if self._event_seq >= 0 else span
        sent_seq = self._event_seq
        for event in late.events():
            if event.seq <= sent_seq:
                continue
            self._event_seq = max(self._event_seq, event.seq)  # a note comes at the time that it is about
            batch.append(_log_record(event))
            wall_us = event.wall_us
            if len(batch) >= _BATCH_EVENTS:
                yield self._log_request(batch, wall_us)
                batch = []
        if batch:
            yield self._log_request(batch, wall_us)

    def _log_request(self, records: list[dict[str, Any]], wall_us: int) -> Request:
        scope = [{"scope": _SCOPE, "logRecords": records}]
        return Request("logs", {"resourceLogs": [{"resource": self._resource, "scopeLogs": scope}]}, wall_us)

    # Traces.

    def _trace_requests(self, span: Span, only_ended: bool) -> Iterator[Request]:
        for directory in run_directories(span.recording.directory):
            if directory.name in self._runs:
                continue
            try:
                run = read_run(directory)
            except SessionError as error:
                self._runs.add(directory.name)
                self._unreadable_runs.append(error.message)
                continue
            first_us, last_us = run.records[0].wall_us, run.records[-1].wall_us
            if last_us < (self._first_us or 0) or first_us > span.to_us or (only_ended and run.ended is None):
                continue
            self._runs.add(directory.name)
            scope = [{"scope": _SCOPE, "spans": run_spans(run)}]
            content = {"resourceSpans": [{"resource": self._resource, "scopeSpans": scope}]}
            yield Request("traces", content, last_us)


_SCOPE = {"name": "dba-console", "version": __version__}


def _resource(recording: Recording) -> dict[str, Any]:
    meta = recording.meta
    known: dict[str, Any] = {"service.name": "dba-console", "db.system.name": "postgresql"}
    if meta is None:
        known["service.instance.id"] = recording.directory.name
    else:
        known |= {
            "service.version": meta.program_version,
            "service.instance.id": meta.id,
            "service.namespace": meta.target,
            "host.name": meta.host,
        }
    return {"attributes": attributes(known)}


def _metric(metric: Metric, points: list[dict[str, Any]]) -> dict[str, Any]:
    kind = (
        {"sum": {"aggregationTemporality": _CUMULATIVE, "isMonotonic": True, "dataPoints": points}}
        if metric.kind == "counter"
        else {_GAUGE: {"dataPoints": points}}
    )
    return _filled(name=PREFIX + metric.name, description=metric.help, unit=_UNITS.get(metric.unit)) | kind


def _log_record(event: Event) -> dict[str, Any]:
    details = {} if event.kind.startswith("session.") else event.details  # checksums of the recording
    record = {
        "timeUnixNano": _nanoseconds(event.happened_us),
        "observedTimeUnixNano": _nanoseconds(event.wall_us),
        "severityNumber": _SEVERITIES.get(event.severity, _SEVERITIES["info"]),
        "severityText": event.severity,
        "body": {"stringValue": redact(event.text)},
        "eventName": PREFIX + event.kind,
        "attributes": attributes(
            {"seq": event.seq, "tag": event.tag, "user.name": event.who}
            | {PREFIX + name: value for name, value in details.items()}
        ),
    }
    if isinstance(run := event.details.get("run"), str):
        record |= {"traceId": trace_id(run), "spanId": span_id(run)}
    return record


# A run is a trace: a span of the whole run, and below it one of each time a step was walked.


def run_spans(run: StoredRun) -> list[dict[str, Any]]:
    """Return the spans of a run. What has not ended ends with the newest record, and says so."""
    name, about = run.directory.name, run.about
    began = next((record for record in run.records if record.kind == STARTED), run.records[0])
    whole = {
        "run": name, "runbook": about.runbook, "mode": about.mode, "target": about.target,
        "user.name": about.who or None, "damage": run.damage,
    }  # fmt: skip
    root = _span(name, "", about.title or about.runbook, began, run.ended, run.records, whole)
    titles = {} if run.plan is None else {step.id: step.title for step in run.plan.steps}
    spans = [root]
    open_steps: dict[str, tuple[JournalRecord, int]] = {}
    for position, record in enumerate(run.records):
        if record.kind == _STEP_STARTED:
            open_steps[record.step] = (record, position)
        elif record.kind == _STEP_ENDED and record.step in open_steps:
            start, first = open_steps.pop(record.step)
            title = titles.get(record.step, record.step)
            spans.append(_span(name, record.step, title, start, record, run.records[first : position + 1], {}))
    for step, (start, first) in open_steps.items():
        spans.append(_span(name, step, titles.get(step, step), start, None, run.records[first:], {}))
    return spans


def _span(
    run: str,
    step: str,
    title: str,
    start: JournalRecord,
    end: JournalRecord | None,
    records: tuple[JournalRecord, ...],
    known: dict[str, Any],
) -> dict[str, Any]:
    """Return the span of a step, or of the run if `step` is empty; its events are the records of that step."""
    last = records[-1] if end is None else end
    failed = last.state in ("failed", "aborted", "unknown", "refused")
    return _filled(
        traceId=trace_id(run),
        spanId=span_id(run, step, start.wall_us) if step else span_id(run),
        parentSpanId=span_id(run) if step else None,
        name=redact(title),
        kind=_INTERNAL,
        startTimeUnixNano=_nanoseconds(start.wall_us),
        endTimeUnixNano=_nanoseconds(max(start.wall_us, last.wall_us)),
        attributes=attributes(
            {PREFIX + "step": step or None, PREFIX + "state": last.state, PREFIX + "unfinished": end is None or None}
            | {name if name == "user.name" else PREFIX + name: value for name, value in known.items()}
        ),
        events=[_span_event(record) for record in records if record.step == step],
        status=_filled(code=_STATUS_ERROR, message=redact(last.text)) if failed else {"code": _STATUS_OK},
    )


def _span_event(record: JournalRecord) -> dict[str, Any]:
    known = {"text": record.text, "block": record.block or None, "state": record.state or None}
    return _filled(
        timeUnixNano=_nanoseconds(record.wall_us),
        name=PREFIX + record.kind,
        attributes=attributes({PREFIX + name: value for name, value in known.items()} | {"user.name": record.who}),
    )


def trace_id(run: str) -> str:
    """Return the id of a run's trace: the same in every export."""
    return hashlib.sha256(run.encode()).hexdigest()[:32]


def span_id(run: str, step: str = "", wall_us: int = 0) -> str:
    """Return the id of the span of a run, or of a step that was started at that time."""
    return hashlib.sha256(f"{run}/{step}/{wall_us}".encode()).hexdigest()[:16]


# Values of the JSON encoding: 64-bit integers are text.


def attributes(known: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return attributes in the encoding of the protocol, secrets masked; those without a value are left out."""
    return [{"key": name, "value": _value(value)} for name, value in known.items() if value is not None]


def _filled(**fields: Any) -> dict[str, Any]:
    """Return an object without its empty fields, which the encoding leaves out."""
    return {name: value for name, value in fields.items() if value not in (None, "", [])}


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int) and abs(value) < 1 << 63:
        return {"intValue": str(value)}
    if isinstance(value, int | float):
        return {"doubleValue": float(value)}
    if isinstance(value, Mapping):
        return {"kvlistValue": _filled(values=attributes({str(name): one for name, one in value.items()}))}
    if isinstance(value, list | tuple):
        return {"arrayValue": _filled(values=[_value(one) for one in value if one is not None])}
    return {"stringValue": redact(str(value))}


def _nanoseconds(wall_us: int) -> str:
    return str(max(0, wall_us) * 1000)
