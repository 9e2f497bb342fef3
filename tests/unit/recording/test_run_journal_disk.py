"""A disk that is full or stalled under a run's journal: nothing is done that was not written, and nothing is lost."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dba_console.recording.plan import JournalRecord
from dba_console.recording.run_journal import RESERVE_BYTES, JournalFull, JournalStalled, RunJournal
from dba_console.recording.run_paths import is_open, memory_directory
from dba_console.recording.run_reader import read_run, unfinished_runs
from dba_console.recording.run_verification import verify_run
from tests.clocks import HeldClock
from tests.disks import fill, frozen, loop_mounted, mounted
from tests.unit.recording.run_journals import ENDED, INTENT, PATIENT_S, RESULT, begin_journal, record_of

pytestmark = pytest.mark.root

IMPATIENT_S = 0.2
"""A deadline that is meant to be missed, by a disk that is frozen all the while."""


@pytest.fixture
def run() -> Iterator[str]:
    """A run of its own name: the memory it may go on in is the machine's."""
    name = f"20260101T000000Z-t{os.getpid()}-{os.urandom(2).hex()}"
    try:
        yield name
    finally:
        subprocess.run(["rm", "-rf", str(memory_directory(name, os.geteuid()))], check=True)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of half a megabyte."""
    with mounted("tmpfs", tmp_path / "small", "-o", "size=512k,mode=700") as place:
        yield place


@pytest.fixture
def ext4(tmp_path: Path) -> Iterator[Path]:
    """A small file system that can be frozen."""
    with loop_mounted(tmp_path / "image", tmp_path / "fs", "16M") as place:
        yield place


def _fill_journal(journal: RunJournal) -> int:
    """Intents until the last page of its file is full as well; returns how many were taken."""
    taken = 0
    try:
        while True:
            journal.append(INTENT)
            taken += 1
    except JournalFull:
        return taken


def test_a_full_disk_accepts_no_intent_except_the_end_of_the_run(small: Path, run: str) -> None:
    journal = begin_journal(small, run=run)
    journal.append(record_of(1))
    fill(small)
    taken = _fill_journal(journal)
    assert "is full" in journal.trouble
    # What has been done already is told: the reserve is for that.
    journal.append(RESULT)
    with pytest.raises(JournalFull):
        journal.append(INTENT)
    journal.append(ENDED)
    journal.close()
    stored = read_run(journal.directory)
    assert [record.kind for record in stored.records][1:] == [
        "step.started", *["block.intent"] * taken, "block.result", "run.ended",
    ]  # fmt: skip
    assert verify_run(journal.directory).ok


def test_with_space_again_the_run_makes_changes_again(small: Path, run: str) -> None:
    journal = begin_journal(small, run=run)
    filler = fill(small)
    _fill_journal(journal)
    journal.append(RESULT)
    filler.unlink()
    journal.append(INTENT)
    assert journal.trouble == ""
    assert (journal.directory / "reserve").stat().st_size == RESERVE_BYTES
    journal.close()
    assert verify_run(journal.directory).ok


def test_no_run_is_started_on_a_full_disk(small: Path, run: str) -> None:
    fill(small)
    with pytest.raises(JournalFull, match="no space left"):
        begin_journal(small, run=run)


def test_on_a_full_disk_the_journal_continues_in_memory(small: Path, run: str) -> None:
    journal = begin_journal(small, run=run)
    filler = fill(small)
    _fill_journal(journal)
    journal.fall_back()
    journal.append(INTENT)
    assert journal.in_memory
    filler.unlink()
    journal.append(RESULT)
    journal.append(ENDED)
    journal.close()
    stored = read_run(journal.directory)
    assert stored.ended is not None
    assert (stored.in_memory, stored.damage) == (False, None)
    assert not memory_directory(run, os.geteuid()).exists()


def test_a_stalled_disk_is_reported_and_the_intent_counts_as_not_written(ext4: Path, run: str) -> None:
    journal = begin_journal(ext4, run=run)
    journal._deadline_us = int(IMPATIENT_S * 1e6)
    with frozen(ext4):
        with pytest.raises(JournalStalled, match="has not completed a write"):
            journal.append(INTENT)
        with pytest.raises(JournalStalled):
            journal.append(INTENT)
    journal._deadline_us = int(PATIENT_S * 1e6)
    # The disk wrote it after all: said again, it is not written twice.
    journal.append(INTENT)
    journal.append(RESULT)
    journal.close()
    kinds = [record.kind for record in read_run(journal.directory).records]
    assert kinds == ["journal.began", "block.intent", "block.result"]
    assert journal.trouble == ""


def test_a_stalled_record_is_in_its_place_without_a_repetition(ext4: Path, run: str) -> None:
    journal = begin_journal(ext4, run=run)
    journal._deadline_us = int(IMPATIENT_S * 1e6)
    with frozen(ext4), pytest.raises(JournalStalled):
        journal.append(INTENT)
    journal._deadline_us = int(PATIENT_S * 1e6)
    journal.append(JournalRecord(kind="run.paused", text="paused"))
    journal.close()
    kinds = [record.kind for record in read_run(journal.directory).records]
    assert kinds == ["journal.began", "block.intent", "run.paused"]
    assert verify_run(journal.directory).ok


def test_a_journal_in_memory_returns_to_disk_when_that_works_again(ext4: Path, run: str) -> None:
    clock = HeldClock()
    journal = begin_journal(ext4, run=run, clock=clock)
    journal.append(record_of(1))
    journal._deadline_us = int(IMPATIENT_S * 1e6)
    with frozen(ext4):
        with pytest.raises(JournalStalled):
            journal.append(INTENT)
        journal._deadline_us = int(PATIENT_S * 1e6)
        journal.fall_back()
        assert "in memory" in journal.trouble
        journal.append(INTENT)
        stored = read_run(journal.directory)
        assert stored.in_memory
        assert [record.kind for record in stored.records][1:] == ["step.started", "journal.fallback", "block.intent"]
        clock.advance(60)
        journal.try_return_to_disk()  # hangs in a lane of its own
        journal.append(RESULT)
        assert journal.in_memory
    journal.append(ENDED)
    journal.close()
    stored = read_run(journal.directory)
    assert [record.kind for record in stored.records if record.kind != "journal.home"] == [
        "journal.began", "step.started", "journal.fallback", "block.intent", "block.result", "run.ended",
    ]  # fmt: skip
    assert (stored.in_memory, stored.damage) == (False, None)
    assert verify_run(journal.directory).ok
    assert not memory_directory(run, os.geteuid()).exists()


def test_a_disk_stall_during_a_resume_does_not_prevent_a_later_resume(ext4: Path, run: str) -> None:
    journal = begin_journal(ext4, run=run)
    journal.append(INTENT)
    journal.close()
    (journal.directory / "reserve").unlink()
    stored, before = read_run(journal.directory), set(threading.enumerate())
    with frozen(ext4), pytest.raises(JournalStalled):
        RunJournal.reopen(stored, deadline_s=IMPATIENT_S)
    for late in set(threading.enumerate()) - before:
        late.join(PATIENT_S)
    assert not is_open(journal.directory)
    RunJournal.reopen(stored, deadline_s=PATIENT_S).close()


def test_records_in_memory_count_while_the_return_to_disk_hangs(ext4: Path, run: str) -> None:
    """The disk took the word that the journal is home, but too late to be believed; the run went on in memory."""
    clock = HeldClock()
    journal = begin_journal(ext4, run=run, clock=clock)
    journal.fall_back()
    journal.append(record_of(1))
    home = journal._own("journal.home", "the journal is on the disk of the session again", {})
    copy = b"".join(line.raw + b"\n" for line in [*journal._lines, home])
    (journal.directory / "journal.jsonl").write_bytes(copy)
    journal.append(INTENT)
    stored = read_run(journal.directory)
    assert stored.in_memory
    assert stored.records[-1].kind == "block.intent"
    journal.close()


def test_a_run_left_in_memory_is_found_and_continues(ext4: Path, run: str) -> None:
    session = ext4 / "20260101T000000Z-db2-1a2b3c4d"
    session.mkdir()
    journal = begin_journal(session, run=run)
    journal._deadline_us = int(IMPATIENT_S * 1e6)
    with frozen(ext4):
        with pytest.raises(JournalStalled):
            journal.append(INTENT)
        journal._deadline_us = int(PATIENT_S * 1e6)
        journal.fall_back()
        journal.append(INTENT)
        # As if the agent were killed now: its lock goes, nothing else happens.
        journal._lock.release()
        found = unfinished_runs(ext4, "key1")
        assert [stored.directory.name for stored in found] == [run]
        assert found[0].records[-1].kind == "block.intent"
    again = RunJournal.reopen(read_run(journal.directory), deadline_s=PATIENT_S)
    assert again.in_memory
    again.append(RESULT)
    again.append(ENDED)
    again.close()
    stored = read_run(journal.directory)
    assert stored.ended is not None
    assert not stored.in_memory
    assert [record.kind for record in stored.records].count("block.intent") == 1
    assert verify_run(journal.directory).ok
