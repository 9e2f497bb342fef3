"""OTLP: every request is what OpenTelemetry's own types encode, and numbers, findings and runs are in it once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto_json.logs.v1.logs import LogsData
from opentelemetry.proto_json.metrics.v1.metrics import MetricsData
from opentelemetry.proto_json.trace.v1.trace import TracesData

from dba_console.core.errors import UsageError
from dba_console.recording.plan import JournalRecord
from dba_console.recording.recording import Recording
from dba_console.reports.export_formats import whole
from dba_console.reports.metrics import METRICS
from dba_console.reports.otlp import OtlpReader, span_id, trace_id
from dba_console.watch.samples.event import Event
from tests.build import NOW_US, part, sample
from tests.clocks import HeldClock
from tests.readings import cpu
from tests.unit.recording.recordings import record, record_samples, recorder, ticks
from tests.unit.recording.run_journals import ENDED, INTENT, RESULT, RUN, begin_journal
from tests.unit.reports.exports import PRACTICE, exported

KINDS: dict[str, Any] = {"metrics": MetricsData, "logs": LogsData, "traces": TracesData}


def requests(directory: Path, signal: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in exported(directory, "otlp", signal=signal).splitlines()]


def metrics(directory: Path) -> Iterator[dict[str, Any]]:
    for request in requests(directory, "metrics"):
        for resource in request["resourceMetrics"]:
            for scope in resource["scopeMetrics"]:
                yield from scope["metrics"]


def values(owner: dict[str, Any]) -> dict[str, Any]:
    """The attributes of something, by name."""
    return {one["key"]: next(iter(one["value"].values()), None) for one in owner["attributes"]}


@pytest.fixture
def with_run(tmp_path: Path) -> Path:
    """A session with a run of one step, which ended."""
    clock = HeldClock()
    made = recorder(tmp_path, clock=clock)
    record_samples(made, ticks(3))
    journal = begin_journal(made.directory, clock=clock)
    started = JournalRecord(kind="step.started", text="drop it", step="drop-it")
    ended = JournalRecord(kind="step.ended", text="dropped it", step="drop-it", state="done")
    for one in (started, INTENT, RESULT, ended, ENDED):
        clock.advance(2)
        journal.append(one)
    journal.close()
    clock.advance(2)
    assert made.close("done")
    return made.directory


@pytest.mark.parametrize("signal", KINDS)
def test_what_is_written_is_what_the_types_of_opentelemetry_encode(signal: str, with_run: Path) -> None:
    found = requests(PRACTICE, signal) + requests(with_run, signal)
    assert found
    for request in found:
        assert json.loads(KINDS[signal].from_json(json.dumps(request)).to_json()) == request


def test_counters_are_cumulative_sums_and_gauges_have_base_units() -> None:
    found = {metric["name"]: metric for metric in metrics(PRACTICE)}
    cpu = found["dba_console.host_cpu_seconds"]
    assert cpu["unit"] == "s"
    assert (cpu["sum"]["aggregationTemporality"], cpu["sum"]["isMonotonic"]) == (2, True)
    iowait = found["dba_console.io_iowait_ratio"]
    assert iowait["unit"] == "1"
    assert all(0 <= point["asDouble"] <= 1 for point in iowait["gauge"]["dataPoints"])


def test_a_counter_that_was_reset_begins_a_new_count(tmp_path: Path) -> None:
    counts = (100, 150, 7, 9)
    samples = [
        sample(part("host.cpu", cpu(user=user), at_s=second), at_s=second, seq=second)
        for second, user in enumerate(counts, 1)
    ]
    metric = next(one for one in metrics(record(tmp_path, samples)) if one["name"] == "dba_console.host_cpu_seconds")
    points = [one for one in metric["sum"]["dataPoints"] if values(one)["mode"] == "user"]
    assert [one["asDouble"] for one in points] == [1.0, 1.5, 0.07, 0.09]
    times = [one["timeUnixNano"] for one in points]
    assert [one["startTimeUnixNano"] for one in points] == [times[0], times[0], times[2], times[2]]


def test_findings_and_notes_are_log_records_with_both_times(tmp_path: Path) -> None:
    [logs] = requests(PRACTICE, "logs")
    records = logs["resourceLogs"][0]["scopeLogs"][0]["logRecords"]
    raised = next(one for one in records if one["eventName"] == "dba_console.finding.raised")
    assert raised["severityNumber"] in (13, 17)
    assert values(raised)["dba_console.id"]
    made = recorder(tmp_path)
    secret = "alter role app password 'hunter2'"
    made.put_event(Event(wall_us=NOW_US, occurred_us=NOW_US - 5, kind="note", text=secret, who="ann"))
    record_samples(made, ticks(1))
    assert made.close("done")
    text = exported(made.directory, "otlp", signal="logs")
    assert "hunter2" not in text
    records = json.loads(text)["resourceLogs"][0]["scopeLogs"][0]["logRecords"]
    note = next(one for one in records if one["eventName"] == "dba_console.note")
    assert int(note["observedTimeUnixNano"]) - int(note["timeUnixNano"]) == 5000
    assert values(note)["user.name"] == "ann"


def test_a_note_about_an_earlier_time_hides_no_event(tmp_path: Path) -> None:
    made = recorder(tmp_path)
    for second in (5, 6):
        made.put_event(Event(wall_us=NOW_US + second, kind="mark", text=f"at {second}"))
    made.put_event(Event(wall_us=NOW_US + 7, occurred_us=NOW_US + 4, kind="note", text="about 4"))
    record_samples(made, ticks(1))
    assert made.close("done")
    [logs] = requests(made.directory, "logs")
    records = logs["resourceLogs"][0]["scopeLogs"][0]["logRecords"]
    bodies = [record["body"]["stringValue"] for record in records]
    assert [one for one in bodies if one.startswith(("at", "about"))] == ["about 4", "at 5", "at 6"]


def test_a_run_is_a_trace_and_its_steps_are_spans(with_run: Path) -> None:
    [request] = requests(with_run, "traces")
    root, step = request["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert (root["name"], step["name"]) == ("Drop the cache", "Drop it")
    assert root["traceId"] == step["traceId"] == trace_id(RUN)
    assert (step["parentSpanId"], root.get("parentSpanId")) == (span_id(RUN), None)
    assert int(step["endTimeUnixNano"]) - int(step["startTimeUnixNano"]) == 6_000_000_000
    assert [event["name"] for event in step["events"]][1:] == ["dba_console.block.intent", "dba_console.step.ended"]
    assert root["status"] == {"code": 1}


def test_nothing_is_read_twice_from_a_session_that_is_being_written(tmp_path: Path) -> None:
    made = recorder(tmp_path)
    samples = ticks(40)
    record_samples(made, samples[:15])
    recording = Recording.open(made.directory)
    reader = OtlpReader(recording)
    early = whole(recording)
    both = list(reader.requests(early))
    record_samples(made, samples[15:])
    assert made.close("done")
    recording.refresh()
    both += reader.requests(whole(recording)._replace(from_us=early.to_us + 1))
    recording.close()
    live = [one for request in both if request.signal == "metrics" for one in _points_of(request.content)]
    assert sorted(live) == sorted(one for request in requests(made.directory, "metrics") for one in _points_of(request))


def _points_of(request: dict[str, Any]) -> list[tuple[str, str, str]]:
    """The points of readings: the recorder of these tests makes chart values of its own."""
    declared = {f"dba_console.{metric.name}" for metric in METRICS}
    return [
        (metric["name"], str(point.get("attributes")), point["timeUnixNano"])
        for metric in request["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]
        if metric["name"] in declared
        for point in (metric.get("sum") or metric["gauge"])["dataPoints"]
    ]


def test_an_unknown_signal_is_named_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="unknown signal 'spans'"):
        exported(PRACTICE, "otlp", signal="spans")
