"""`session export`: the file appears when it is complete, and nothing else is touched."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.cli.console import CompletedCommand, Console
from tests.unit.reports.exports import PRACTICE


def export(console: Console, *arguments: str, session: Path = PRACTICE) -> CompletedCommand:
    return console.run("session", "export", str(session), *arguments)


def test_an_existing_file_is_overwritten_only_on_request(console: Console, tmp_path: Path) -> None:
    out = tmp_path / "events.csv"
    out.write_text("mine")
    arguments = ("--format", "csv", "--table", "events", "--out", str(out))
    refused = export(console, *arguments)
    assert (refused.code, out.read_text()) == (2, "mine")
    assert f"{out} exists" in refused.err
    assert export(console, *arguments, "--force").code == 0
    assert out.read_text().startswith("at,recorded_at,")
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in export(console, *arguments[:-1], str(tmp_path / "pipe"), "--force").err
    assert {path.name for path in tmp_path.iterdir()} >= {"events.csv", "pipe"}
    assert not [*tmp_path.glob(".*.part")]


def test_an_export_is_the_same_in_another_locale_and_time_zone(console: Console) -> None:
    arguments = ("--format", "csv", "--table", "events", "--out", "-")
    here = export(console, *arguments)
    assert here.code == 0
    there = console.run("session", "export", str(PRACTICE), *arguments, TZ="Asia/Kolkata", LC_ALL="C")
    assert there.out == here.out


def test_a_span_is_exported_and_one_without_samples_is_empty(console: Console) -> None:
    arguments = ("--format", "csv", "--out", "-")
    part = export(console, *arguments, "--from", "+10s", "--to", "2026-11-20T21:38:59Z")
    assert [line[:19] for line in part.out.splitlines()[1:]] == [
        f"2026-11-20T21:38:5{second}" for second in range(4, 9)
    ]
    after = export(console, *arguments, "--from", "2027-01-01T00:00Z", "--to", "2027-01-02T00:00Z")
    assert (after.code, len(after.out.splitlines())) == (0, 1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--format", "xls", "--out", "-"), "unknown format 'xls'"),
        (("--format", "csv"), "name one output"),
        (("--format", "csv", "--table", "nosuch", "--out", "-"), "unknown table 'nosuch'"),
        (("--format", "openmetrics", "--table", "events", "--out", "-"), "--table is not an option of openmetrics"),
        (("--format", "otlp", "--otlp-endpoint", "http://u:p@h", "--out", "-"), "name one output"),
        (("--format", "otlp", "--otlp-endpoint", "http://u:p@h"), "contains credentials"),
        (("--format", "otlp", "--out", "-", "--follow"), "--follow needs --otlp-endpoint"),
        (("--format", "csv", "--out", "-", "--from", "+50s", "--to", "+20s"), "--to +20s is before --from +50s"),
    ],
)
def test_an_export_error_is_reported_in_one_sentence(console: Console, arguments: tuple[str, ...], said: str) -> None:
    done = export(console, *arguments)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


def test_an_endpoint_that_does_not_answer_is_reported_with_its_exit_code(console: Console) -> None:
    done = export(console, "--format", "otlp", "--otlp-endpoint", "http://127.0.0.1:9")
    assert done.code == 3
    assert "http://127.0.0.1:9/v1/metrics did not accept the export" in done.err


@pytest.mark.parametrize("format", ["csv", "openmetrics", "otlp"])
def test_a_session_cut_short_is_exported_as_far_as_it_can_be_read(
    console: Console, tmp_path: Path, format: str
) -> None:
    session = tmp_path / PRACTICE.name
    shutil.copytree(PRACTICE, session)
    os.truncate(session / "session.samples", (session / "session.samples").stat().st_size // 2)
    done = export(console, "--format", format, "--out", "-", session=session)
    assert done.code == 0
    assert len(done.out.splitlines()[-1] if format == "otlp" else done.out) > 100
    assert "warning: the recording is damaged" in done.err
