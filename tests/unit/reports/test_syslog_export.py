"""Events and output as log lines: one line each whatever their text, in the forms that log daemons read."""

from __future__ import annotations

import io
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dba_console.recording.journal import LogLine
from dba_console.reports.export_formats import Exporter, Span
from dba_console.reports.syslog_export import export_journald, export_syslog
from tests.build import NOW_US
from tests.requirements import require_tool
from tests.unit.recording.recordings import ticks
from tests.unit.reports.sessions import HOSTILE, SECOND, event, opened, recorded

LINE = re.compile(
    r"<(?P<pri>\d{1,3})>1 (?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z) (?P<host>[!-~]{1,255}) (?P<app>[!-~]{1,48}) "
    r'- (?P<msgid>[!-~]{1,32}) \[dba-console@32473(?P<sd>( [a-z]+="([^"\\\]]|\\["\\\]])*")*)\] (?P<msg>[^\n]*)'
)
"""RFC 5424, section 6, as far as these lines use it."""


def exported(export: Exporter, span: Span) -> str:
    file = io.BytesIO()
    export(span, file, lambda share: None)
    return file.getvalue().decode()


def syslog(span: Span) -> list[dict[str, Any]]:
    lines = exported(export_syslog, span).removesuffix("\n").split("\n")
    found = [LINE.fullmatch(line) for line in lines]
    assert None not in found, lines
    return [match.groupdict() for match in found if match is not None]


@pytest.fixture(scope="module")
def span(tmp_path_factory: pytest.TempPathFactory) -> Span:
    events = [
        event(5, "finding.raised", "connections fill", severity="critical", details={"id": "connections:1"}),
        event(7, "note", HOSTILE, who=HOSTILE, tag="NOTE]"),
        event(9, "note", "seen in the chat", occurred_us=NOW_US + 3 * SECOND),
    ]
    lines = [LogLine(NOW_US + 6 * SECOND, "PGRESTORE", HOSTILE, "e", "r-1", "b2", 1)]
    return opened(recorded(tmp_path_factory.mktemp("session"), ticks(10), events, lines))


def test_each_event_and_line_of_output_is_one_line_of_rfc_5424(span: Span) -> None:
    rows = [(row["time"][11:-8], row["pri"], row["app"], row["msgid"]) for row in syslog(span)]
    assert sorted(rows) == [
        ("14:57:29", "14", "DBACONSOLE", "session.start"),
        ("14:57:32", "14", "DBACONSOLE", "note"),
        ("14:57:34", "10", "DBACONSOLE", "finding.raised"),
        ("14:57:35", "14", "PGRESTORE", "output"),
        ("14:57:36", "14", "NOTE]", "note"),
        ("15:57:29", "14", "DBACONSOLE", "session.end"),
    ]


def test_text_of_outsiders_stays_in_its_field(span: Span) -> None:
    note = next(row for row in syslog(span) if row["app"] == "NOTE]")
    assert note["msg"].startswith("select 1 -- ␛]0;owned␇␛[2J␛[31m") and note["msg"].isprintable()
    assert 'script>x</script> \\"\\]"' in note["sd"]


def test_a_note_has_the_time_it_is_about_and_the_time_it_was_written(span: Span) -> None:
    note = next(row for row in syslog(span) if row["msg"] == "seen in the chat")
    assert note["time"] == "2026-11-20T14:57:32.000000Z" and 'recorded="2026-11-20T14:57:38.000000Z"' in note["sd"]


def test_a_span_has_only_what_happened_in_it(span: Span) -> None:
    inside = Span(span.recording, NOW_US + 4 * SECOND, NOW_US + 6 * SECOND)
    assert [row["msgid"] for row in syslog(inside)] == ["finding.raised", "output"]


def test_output_says_which_command_it_is_of(span: Span) -> None:
    line = next(row for row in syslog(span) if row["msgid"] == "output")
    assert all(part in line["sd"] for part in ('run="r-1"', 'block="b2"', 'stream="e"'))


def test_journald_reads_the_export(span: Span, tmp_path: Path) -> None:
    remote, journalctl = require_tool("/lib/systemd/systemd-journal-remote"), require_tool("journalctl")
    (tmp_path / "export").write_text(exported(export_journald, span))
    subprocess.run([remote, "-o", str(tmp_path / "a.journal"), str(tmp_path / "export")], check=True, timeout=30)
    command = [journalctl, "--file", str(tmp_path / "a.journal"), "-o", "json", "--all"]
    read = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout
    rows = [json.loads(line) for line in read.splitlines()]
    assert len(rows) == 6
    finding = next(row for row in rows if row["CONSOLE_KIND"] == "finding.raised")
    assert (finding["PRIORITY"], finding["_HOSTNAME"], finding["__REALTIME_TIMESTAMP"]) == (
        "2", "db2", str(NOW_US + 5 * SECOND),
    )  # fmt: skip
    assert len({row["MESSAGE_ID"] for row in rows}) == len({row["CONSOLE_KIND"] for row in rows}) == 5
    assert all(row["MESSAGE"].isprintable() for row in rows) and not any(row["MESSAGE"] == "forged" for row in rows)
