"""A run's journal: what was acknowledged is there, in order, unchanged; what is not there was not acknowledged."""

from __future__ import annotations

import base64
import json
import os
import stat
import urllib.parse
from collections.abc import Callable
from pathlib import Path

import pytest

from dba_console.core.errors import SessionError
from dba_console.recording.plan import JournalRecord
from dba_console.recording.run_journal import RESERVE_BYTES, JournalFull, RunJournal
from dba_console.recording.run_paths import is_open, run_directory
from dba_console.recording.run_reader import read_run
from dba_console.recording.run_records import REOPENED
from dba_console.recording.run_verification import verify_run
from tests.unit.recording.run_journals import (
    ENDED,
    INTENT,
    PATIENT_S,
    PLAN,
    RESULT,
    RUN,
    TEXT,
    begin_journal,
    record_of,
)


def _ended(tmp_path: Path) -> Path:
    journal = begin_journal(tmp_path)
    for record in (record_of(1), INTENT, RESULT, ENDED):
        journal.append(record)
    journal.close()
    return journal.directory


def _lines(directory: Path) -> list[bytes]:
    return (directory / "journal.jsonl").read_bytes().splitlines(keepends=True)


def _rewrite(directory: Path, lines: list[bytes]) -> None:
    (directory / "journal.jsonl").write_bytes(b"".join(lines))


def test_appended_records_are_read_back_in_order(tmp_path: Path) -> None:
    stored = read_run(_ended(tmp_path))
    assert [record.kind for record in stored.records] == [
        "journal.began", "step.started", "block.intent", "block.result", "run.ended",
    ]  # fmt: skip
    assert (stored.damage, stored.torn, stored.live, stored.in_memory) == (None, 0, False, False)
    assert (stored.text, stored.plan) == (TEXT, PLAN)
    assert stored.ended is not None and stored.ended.state == "done"
    assert stored.records[1].fields == {"number": 1}
    assert all(record.wall_us and record.mono_us for record in stored.records)


@pytest.fixture
def journal(tmp_path: Path) -> RunJournal:
    return begin_journal(tmp_path)


def test_a_row_keeps_the_order_of_its_columns(tmp_path: Path, journal: RunJournal) -> None:
    row = {"part": "holds", "pid": 4711, "application_name": "pg_dump"}
    journal.append(JournalRecord(kind="block.seen", text="1 row", fields={"rows": [row]}))
    journal.close()
    stored = read_run(journal.directory)
    assert list(stored.records[-1].fields["rows"][0]) == list(row)
    assert verify_run(journal.directory).ok


def test_a_stored_run_is_readable_by_its_owner_alone(tmp_path: Path, journal: RunJournal) -> None:
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in journal.directory.iterdir()}
    assert modes == {
        "runbook.md": 0o600, "plan.json": 0o600, "journal.jsonl": 0o600, "lock": 0o600, "reserve": 0o600,
        "steps": 0o700,
    }  # fmt: skip
    assert stat.S_IMODE(journal.directory.stat().st_mode) == 0o700
    assert (journal.directory / "reserve").stat().st_blocks * 512 >= RESERVE_BYTES
    journal.close()


def test_a_finished_run_releases_its_reserve(tmp_path: Path) -> None:
    assert not (_ended(tmp_path) / "reserve").exists()


def test_one_agent_at_a_time_has_a_run_open(tmp_path: Path, journal: RunJournal) -> None:
    assert is_open(journal.directory)
    assert read_run(journal.directory).live
    with pytest.raises(SessionError, match="another agent"):
        RunJournal.reopen(read_run(journal.directory), deadline_s=PATIENT_S)
    journal.close()
    assert not is_open(journal.directory)


def test_a_resumed_run_continues_the_same_chain(tmp_path: Path, journal: RunJournal) -> None:
    journal.append(INTENT)
    journal.close()
    again = RunJournal.reopen(read_run(journal.directory), who="anna", deadline_s=PATIENT_S)
    again.append(RESULT)
    again.close()
    stored = read_run(journal.directory)
    assert [record.kind for record in stored.records][1:] == ["block.intent", REOPENED, "block.result"]
    assert stored.records[2].who == "anna"
    assert verify_run(journal.directory).ok


@pytest.mark.parametrize("cut", [1, 2, 40])
def test_a_truncated_line_is_reported_and_never_appended_to(tmp_path: Path, cut: int, journal: RunJournal) -> None:
    journal.append(record_of(1))
    journal.append(INTENT)
    journal.close()
    whole = (journal.directory / "journal.jsonl").read_bytes()
    _rewrite(journal.directory, [whole[:-cut]])
    stored = read_run(journal.directory)
    # The last line may have lost nothing but its end: then it says all it had to say.
    kept = ["journal.began", "step.started"] + (["block.intent"] if cut == 1 else [])
    assert [record.kind for record in stored.records] == kept
    assert stored.damage is None
    assert bool(stored.torn) == (cut > 1)
    again = RunJournal.reopen(stored, deadline_s=PATIENT_S)
    again.append(record_of(2))
    again.close()
    after = read_run(journal.directory)
    assert [record.kind for record in after.records] == [*kept, REOPENED, "step.started"]
    assert after.damage is None and after.torn == 0
    assert bool(after.notes) == (cut > 1)
    assert verify_run(journal.directory).ok


def test_any_truncation_leaves_the_records_before_it(tmp_path: Path) -> None:
    directory = _ended(tmp_path)
    lines = _lines(directory)
    whole = b"".join(lines)
    for length in range(len(lines[0]), len(whole)):
        _rewrite(directory, [whole[:length]])
        stored = read_run(directory)
        complete = whole[: length + 1].count(b"\n")
        assert len(stored.records) == complete
        assert stored.damage is None


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda lines: [*lines[:2], lines[2].replace(b"drops", b"keeps"), *lines[3:]], "record 3: changed"),
        (lambda lines: [*lines[:2], *lines[3:]], "record 3: missing"),
        (lambda lines: [*lines[:3], lines[2], *lines[3:]], "record 4"),
        (lambda lines: [*lines[:2], b"\x00\xff nonsense\n", *lines[2:]], "record 3"),
        (lambda lines: [lines[1], lines[0], *lines[2:]], "record 1"),
    ],
    ids=["changed", "removed", "repeated", "put in", "swapped"],
)
def test_the_first_damaged_record_is_named(
    tmp_path: Path, damage: Callable[[list[bytes]], list[bytes]], named: str
) -> None:
    directory = _ended(tmp_path)
    _rewrite(directory, damage(_lines(directory)))
    found = verify_run(directory)
    assert not found.ok
    assert named in (found.first_bad or "")


def test_another_document_or_plan_than_that_of_the_start_is_damage(tmp_path: Path) -> None:
    directory = _ended(tmp_path)
    (directory / "plan.json").write_text("{}")
    assert "plan.json is not the plan" in (verify_run(directory).first_bad or "")
    (directory / "runbook.md").write_text(TEXT.replace("level = 1", "level = 3"))
    assert "runbook.md is not the document" in (verify_run(directory).first_bad or "")


def test_a_damaged_or_ended_run_does_not_continue(tmp_path: Path) -> None:
    directory = _ended(tmp_path)
    with pytest.raises(SessionError, match="has ended: done"):
        RunJournal.reopen(read_run(directory))
    lines = _lines(directory)
    _rewrite(directory, [*lines[:2], *lines[3:4]])
    with pytest.raises(SessionError, match=r"cannot continue the run .*: record 3: missing"):
        RunJournal.reopen(read_run(directory))


def test_no_form_of_a_secret_gets_into_the_journal(tmp_path: Path) -> None:
    secret = "p'4ss/w0rd ä+"
    forms = [secret, urllib.parse.quote(secret, safe=""), base64.b64encode(secret.encode()).decode(),
             secret.replace("'", "''"), json.dumps(secret)[1:-1]]  # fmt: skip
    journal = begin_journal(tmp_path, secrets=(secret,))
    fields = {"deep": [{"list": [f"<{form}>" for form in forms]}], secret: 1, "url": "postgresql://a:b@c/d"}
    written = journal.append(JournalRecord(kind="block.seen", text=f"saw {secret}", who=secret, fields=fields))
    journal.close()
    assert secret not in str(written)
    for path in journal.directory.iterdir():
        if path.is_file():
            text = path.read_text()
            assert not any(form in text for form in [*forms, ":b@"])
    assert read_run(journal.directory).records[1] == written


def test_values_json_cannot_represent_are_written_as_text(tmp_path: Path, journal: RunJournal) -> None:
    written = journal.append(
        JournalRecord(kind="block.seen", text="saw", fields={"a": {1, 2}, "path": Path("/x"), "3": None})
    )
    journal.close()
    assert written.fields["path"] == "/x"
    assert read_run(journal.directory).records[1] == written


def test_a_record_becomes_an_event_bound_to_its_line(tmp_path: Path, journal: RunJournal) -> None:
    journal.append(RESULT)
    event = journal.event("CACHEDROP")
    journal.close()
    assert (event.kind, event.tag, event.text) == ("block.result", "CACHEDROP", "dropped")
    assert event.details == {
        "run": RUN, "seq": 2, "hash": journal.head, "block": "drop-it/action", "execution": 1, "state": "ok",
    }  # fmt: skip


def test_a_run_is_not_started_in_the_directory_of_another(tmp_path: Path, journal: RunJournal) -> None:
    with pytest.raises(SessionError, match="already"):
        begin_journal(tmp_path)
    journal.close()


def test_only_a_run_is_read(tmp_path: Path) -> None:
    with pytest.raises(SessionError, match="not the name of a run"):
        read_run(tmp_path)
    with pytest.raises(SessionError, match="no run"):
        read_run(run_directory(tmp_path, RUN))
    (run_directory(tmp_path, RUN)).mkdir(parents=True)
    with pytest.raises(SessionError, match="cannot read the run"):
        read_run(run_directory(tmp_path, RUN))


def test_a_link_in_place_of_a_journal_is_not_followed(tmp_path: Path) -> None:
    directory = _ended(tmp_path)
    os.rename(directory / "journal.jsonl", tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", directory / "journal.jsonl")
    with pytest.raises(SessionError, match="cannot read the run"):
        read_run(directory)


def test_a_run_that_could_not_be_resumed_releases_its_lock(tmp_path: Path, journal: RunJournal) -> None:
    journal.append(INTENT)
    journal.close()
    stored = read_run(journal.directory)
    file = journal.directory / "journal.jsonl"
    file.rename(aside := file.with_name("aside"))
    file.mkdir()
    with pytest.raises(JournalFull):
        RunJournal.reopen(stored, deadline_s=PATIENT_S)
    assert not is_open(journal.directory)
    file.rmdir()
    aside.rename(file)
    again = RunJournal.reopen(stored, deadline_s=PATIENT_S)
    again.append(RESULT)
    again.close()
    assert verify_run(journal.directory).ok
