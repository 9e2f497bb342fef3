"""Runs among sessions: found, named, checked with their session, and never pruned before their end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dba_console.cli.session import show_lines, verify_lines
from dba_console.core.errors import SessionError
from dba_console.recording.hash_chain import ChainHead
from dba_console.recording.layout import SessionMeta
from dba_console.recording.plan import JournalRecord
from dba_console.recording.retention import candidates, remove
from dba_console.recording.run_journal import RunJournal
from dba_console.recording.run_paths import run_directory
from dba_console.recording.run_reader import list_runs, read_run, resolve_run, row_of, unfinished_runs
from dba_console.recording.run_records import check, event_of
from dba_console.recording.run_verification import compare_with_sessions, verify_run
from dba_console.recording.session_lookup import row_of as session_row
from dba_console.recording.verify import verify
from dba_console.watch.samples.event import Event
from tests.build import NOW_US
from tests.unit.recording.recordings import meta, record_samples, recorder, ticks
from tests.unit.recording.run_journals import ENDED, INTENT, RESULT, RUN, begin_journal

OTHER = "20261121T090000Z-lock-queue-ffff"
LATER_US = NOW_US + 400 * 86_400_000_000


def _session(sessions: Path, *records: JournalRecord, run: str = RUN, about: SessionMeta | None = None) -> Path:
    """A closed session with one run, whose records are in its chain of events."""
    made = recorder(sessions, about)
    record_samples(made, ticks(3))
    journal = begin_journal(made.directory, run=run)
    made.put_event(journal.event("CACHEDROP"))
    for record in records:
        journal.append(record)
        made.put_event(journal.event("CACHEDROP"))
    journal.close()
    assert made.close("done")
    return made.directory


def test_runs_are_listed_with_their_outcome(tmp_path: Path) -> None:
    _session(tmp_path, INTENT, RESULT, ENDED)
    _session(tmp_path, INTENT, run=OTHER)
    rows = list_runs(tmp_path)
    assert [(row.run, row.state) for row in rows] == [(RUN, "done"), (OTHER, "interrupted")]
    assert rows[0].ending == ENDED.text
    assert rows[0].about is not None and rows[0].about.target == "appdb"


def test_only_unfinished_runs_are_offered_to_their_own_target(tmp_path: Path) -> None:
    _session(tmp_path, ENDED)
    _session(tmp_path, INTENT, run=OTHER)
    assert [stored.about.run for stored in unfinished_runs(tmp_path, "key1")] == [OTHER]
    assert unfinished_runs(tmp_path, "key2") == []


def test_a_run_that_is_open_is_not_offered(tmp_path: Path) -> None:
    directory = _session(tmp_path, ENDED)
    journal = begin_journal(directory, run=OTHER)
    assert unfinished_runs(tmp_path) == []
    assert row_of(journal.directory).state == "running"
    journal.close()


@pytest.mark.parametrize("name", [RUN, "20261120T14", "1a2b"])
def test_a_prefix_or_suffix_means_the_one_run_it_matches(tmp_path: Path, name: str) -> None:
    directory = _session(tmp_path, ENDED)
    assert resolve_run(name, tmp_path) == run_directory(directory, RUN)


def test_last_is_the_newest_run_and_a_path_is_that_run(tmp_path: Path) -> None:
    _session(tmp_path, ENDED)
    newest = run_directory(_session(tmp_path, ENDED, run=OTHER), OTHER)
    assert resolve_run("last", tmp_path) == newest
    assert resolve_run(str(newest), tmp_path) == newest


def test_of_two_runs_of_one_second_the_later_one_is_last(tmp_path: Path) -> None:
    directory = _session(tmp_path, ENDED, run=RUN)
    os.utime(run_directory(directory, RUN) / "runbook.md", (1, 1))
    journal = begin_journal(directory, run=RUN[:-4] + "0000")
    journal.close()
    assert resolve_run("last", tmp_path) == journal.directory


@pytest.mark.parametrize(
    ("name", "expected"),
    [("2026112", "matches 2 runs"), ("nope", "unknown run 'nope'"), ("", "no run named"), ("/tmp", "no run")],
)
def test_a_run_name_with_no_or_several_matches_is_reported(tmp_path: Path, name: str, expected: str) -> None:
    _session(tmp_path, ENDED)
    _session(tmp_path, ENDED, run=OTHER)
    with pytest.raises(SessionError, match=expected):
        resolve_run(name, tmp_path)


def test_a_session_is_verified_with_its_runs(tmp_path: Path) -> None:
    directory = _session(tmp_path, INTENT, RESULT, ENDED)
    found = verify(directory)
    assert (found.ok, [(run.run, run.ok, run.records) for run in found.runs]) == (True, [(RUN, True, 4)])
    assert f"run {RUN}: verified, 4 records" in verify_lines("s", found)


def _cut(directory: Path, records: int) -> Path:
    journal = run_directory(directory, RUN) / "journal.jsonl"
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:records]))
    return journal.parent


def test_a_truncated_run_does_not_match_its_session(tmp_path: Path) -> None:
    directory = _session(tmp_path, INTENT, RESULT, ENDED)
    assert verify_run(_cut(directory, 2)).ok, "by itself nothing is wrong with it"
    assert verify(directory).first_bad == f"run {RUN}: record 3: missing; the session has 4"


def test_a_run_is_not_resumed_if_its_session_has_more_records(tmp_path: Path) -> None:
    there = _cut(_session(tmp_path, INTENT, RESULT), 2)
    stored = compare_with_sessions(read_run(there))
    reported = f"ends with record 2, but the session {there.parent.parent.name} has 3: the end was removed. Missing: "
    assert stored.damage is not None and reported in stored.damage and RESULT.text in stored.damage
    with pytest.raises(SessionError, match="cannot continue the run"):
        RunJournal.reopen(stored)


def test_records_of_a_run_in_a_later_session_count_too(tmp_path: Path) -> None:
    home = _session(tmp_path, INTENT)
    journal = RunJournal.reopen(read_run(run_directory(home, RUN)))
    later = recorder(tmp_path)
    journal.append(RESULT)
    later.put_event(journal.event("CACHEDROP"))
    journal.close()
    later.close("done")
    assert compare_with_sessions(read_run(journal.directory)).damage is None
    assert "ends with record 2, but" in (compare_with_sessions(read_run(_cut(home, 2))).damage or "")


def test_a_journal_with_more_records_than_its_session_can_be_resumed(tmp_path: Path) -> None:
    there = run_directory(_session(tmp_path, INTENT), RUN)
    journal = RunJournal.reopen(read_run(there))
    journal.append(RESULT)  # and its agent is killed before the session hears of it
    journal.close()
    assert compare_with_sessions(read_run(there)).damage is None


def test_a_recreated_journal_is_not_resumed(tmp_path: Path) -> None:
    there = run_directory(_session(tmp_path, INTENT, RESULT), RUN)
    other = run_directory(_session(tmp_path / "other", RESULT, RESULT, RESULT), RUN)
    (there / "journal.jsonl").write_bytes((other / "journal.jsonl").read_bytes())
    assert "does not match the session" in (compare_with_sessions(read_run(there)).damage or "")
    assert "does not match" in (verify(there.parent.parent).first_bad or "")


def test_a_run_whose_session_cannot_be_read_is_verified_by_its_journal_alone(tmp_path: Path) -> None:
    directory = _session(tmp_path, INTENT, RESULT)
    (directory / "session.db").unlink()
    assert compare_with_sessions(read_run(run_directory(directory, RUN))).damage is None


@pytest.mark.parametrize("number", [-5, 0])
def test_an_event_with_a_nonexistent_record_number_says_nothing_about_a_run(tmp_path: Path, number: int) -> None:
    made = recorder(tmp_path)
    record_samples(made, ticks(3))
    there = begin_journal(made.directory)
    there.close()
    details = {"run": RUN, "seq": number, "hash": "0" * 64}
    made.put_event(Event(wall_us=NOW_US, kind="block.seen", text="made up", details=details))
    assert made.close("done")
    assert compare_with_sessions(read_run(there.directory)).damage is None
    assert verify(made.directory).ok


def test_a_missing_run_is_named(tmp_path: Path) -> None:
    directory = _session(tmp_path, ENDED)
    run_directory(directory, RUN).rename(tmp_path / "away")
    assert verify(directory).first_bad == f"run {RUN}: its directory is missing"


def test_a_run_recorded_by_a_later_session_is_verified_in_its_own_directory(tmp_path: Path) -> None:
    home = _session(tmp_path, INTENT, ENDED)
    there = run_directory(home, RUN)
    later = recorder(tmp_path)
    stored = read_run(there)
    line = check(stored.lines[0].rstrip(b"\n"), ChainHead.of(RUN))
    later.put_event(event_of(line, RUN, "CACHEDROP"))
    later.close("done")
    assert [run.run for run in verify(later.directory).runs] == [RUN]
    (there / "runbook.md").write_text("something else")
    assert "runbook.md is not the document" in (verify(later.directory).first_bad or "")


def test_a_session_with_an_unfinished_run_is_never_pruned(tmp_path: Path) -> None:
    unfinished, finished = _session(tmp_path, INTENT), _session(tmp_path, ENDED, run=OTHER, about=meta())
    chosen = candidates(tmp_path, keep_s=1, max_bytes=1, now_us=LATER_US)
    assert [one.path for one in chosen] == [finished]
    with pytest.raises(SessionError, match="is unfinished"):
        remove(unfinished)
    remove(finished)
    assert unfinished.exists() and not finished.exists()


def test_the_runs_of_a_session_are_shown(tmp_path: Path) -> None:
    directory = _session(tmp_path, ENDED)
    lines = show_lines(session_row(directory), [], [], [row_of(run_directory(directory, RUN))])
    assert any(f"{RUN}: done" in line and line.endswith(ENDED.text) for line in lines)
