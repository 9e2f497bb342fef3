"""The pen of a run: what can be written nowhere is asked about again, and ends no run by itself; an abort ends it, and
reverts, from the reserve."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from dba_console.agent.runs.operators import ConsoleOperator
from dba_console.agent.runs.questions import OperatorQuestions
from dba_console.agent.runs.run_execution import IN_MEMORY, JournalWriter
from dba_console.core.clock import SYSTEM
from dba_console.recording.append_file import AppendFile
from dba_console.recording.plan import JournalRecord
from dba_console.recording.run_journal import JournalFull, RunJournal
from dba_console.recording.run_paths import memory_directory
from dba_console.runbooks.requests import OperatorInterrupt
from tests.disks import fill, mounted
from tests.unit.recording.run_journals import INTENT, begun

ANNA = ConsoleOperator("anna", 1)
PATIENCE_S = 120.0


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[RunJournal]:
    """Its disk is one that is always full."""
    made = begun(tmp_path, run=f"20260101T000000Z-p{os.getpid()}-{os.urandom(2).hex()}")
    disk, full = made._file, os.open("/dev/full", os.O_RDWR | os.O_APPEND)
    made._file = AppendFile(disk.path, full, 0)
    yield made
    made.close()
    disk.close()


@pytest.fixture
def taken(journal: RunJournal) -> Iterator[Path]:
    """Something else stands where the journal would go on in memory."""
    place = memory_directory(journal.run, os.geteuid())
    place.parent.mkdir(mode=0o700, exist_ok=True)
    place.touch()
    yield place
    if place.is_file():
        place.unlink()
    with contextlib.suppress(OSError):
        place.parent.rmdir()


def test_if_memory_takes_no_journal_either_the_question_is_asked_again(journal: RunJournal, taken: Path) -> None:
    asked: queue.Queue[int] = queue.Queue()
    written: list[JournalRecord] = []

    def changed() -> None:
        if desk.question is not None:
            asked.put(desk.question.id)

    desk = OperatorQuestions(SYSTEM, changed)
    pen = JournalWriter(journal, desk, "TAG", lambda event: None)
    thread = threading.Thread(target=lambda: written.append(pen.write(INTENT)), daemon=True)
    thread.start()
    assert desk.answer(asked.get(timeout=PATIENCE_S), IN_MEMORY, ANNA, drives=True) is None
    second = asked.get(timeout=PATIENCE_S)
    assert not written and not journal.in_memory
    taken.unlink()
    assert desk.answer(second, IN_MEMORY, ANNA, drives=True) is None
    thread.join(PATIENCE_S)
    assert [record.kind for record in written] == ["block.intent"]
    assert journal.in_memory


@pytest.mark.root
def test_a_full_disk_prevents_neither_an_abort_nor_reverting(tmp_path: Path) -> None:
    asked: queue.Queue[int] = queue.Queue()
    written: list[JournalRecord] = []

    def changed() -> None:
        if desk.question is not None:
            asked.put(desk.question.id)

    desk = OperatorQuestions(SYSTEM, changed)
    with mounted("tmpfs", tmp_path / "small", "-o", "size=512k,mode=700") as small:
        journal = begun(small)
        fill(small)
        with contextlib.suppress(JournalFull):
            while True:
                journal.append(INTENT)
        pen = JournalWriter(journal, desk, "TAG", lambda event: None)
        thread = threading.Thread(target=lambda: written.append(pen.write(INTENT)), daemon=True)
        thread.start()
        asked.get(timeout=PATIENCE_S)
        desk.add_interrupt(OperatorInterrupt(verb="abort", who="anna"))
        thread.join(PATIENCE_S)
        assert [record.kind for record in written] == ["block.intent"] and not journal.in_memory
        desk.take_interrupt()
        reverting = replace(INTENT, fields={"item": "drop-it/action@1"})
        assert pen.try_once(reverting).fields == reverting.fields
        with pytest.raises(JournalFull):
            pen.try_once(INTENT)
        journal.close()
