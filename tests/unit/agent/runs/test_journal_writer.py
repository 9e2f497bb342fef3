"""The journal writer of a run: a record that fits nowhere is asked about again; an abort still ends it and reverts."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from dba_console.agent.runs.operator_answers import OperatorQuestions
from dba_console.agent.runs.operator_identity import ConsoleOperator
from dba_console.agent.runs.run_execution import IN_MEMORY, JournalWriter
from dba_console.core.clock import SYSTEM
from dba_console.recording.append_file import AppendFile
from dba_console.recording.plan import JournalRecord
from dba_console.recording.run_journal import JournalFull, RunJournal
from dba_console.recording.run_paths import memory_directory
from dba_console.runbooks.walk_requests import OperatorInterrupt
from tests.disks import fill, mounted
from tests.unit.recording.run_journals import INTENT, begin_journal

ANNA = ConsoleOperator("anna", 1)
LIMIT_S = 120.0


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[RunJournal]:
    """Its disk is one that is always full."""
    made = begin_journal(tmp_path, run=f"20260101T000000Z-p{os.getpid()}-{os.urandom(2).hex()}")
    disk, full = made._file, os.open("/dev/full", os.O_RDWR | os.O_APPEND)
    made._file = AppendFile(disk.path, full, 0)
    yield made
    made.close()
    disk.close()


@pytest.fixture
def blocked_path(journal: RunJournal) -> Iterator[Path]:
    """Something else stands where the journal would go on in memory."""
    place = memory_directory(journal.run, os.geteuid())
    place.parent.mkdir(mode=0o700, exist_ok=True)
    place.touch()
    yield place
    if place.is_file():
        place.unlink()
    with contextlib.suppress(OSError):
        place.parent.rmdir()


def test_if_memory_takes_no_journal_either_the_question_is_asked_again(journal: RunJournal, blocked_path: Path) -> None:
    asked: queue.Queue[int] = queue.Queue()
    written: list[JournalRecord] = []

    def changed() -> None:
        if questions.question is not None:
            asked.put(questions.question.id)

    questions = OperatorQuestions(SYSTEM, changed)
    writer = JournalWriter(journal, questions, "TAG", lambda event: None)
    thread = threading.Thread(target=lambda: written.append(writer.write(INTENT)), daemon=True)
    thread.start()
    assert questions.answer(asked.get(timeout=LIMIT_S), IN_MEMORY, ANNA, drives=True) is None
    second = asked.get(timeout=LIMIT_S)
    assert not written and not journal.in_memory
    blocked_path.unlink()
    assert questions.answer(second, IN_MEMORY, ANNA, drives=True) is None
    thread.join(LIMIT_S)
    assert [record.kind for record in written] == ["block.intent"]
    assert journal.in_memory


@pytest.mark.root
def test_a_full_disk_prevents_neither_an_abort_nor_reverting(tmp_path: Path) -> None:
    asked: queue.Queue[int] = queue.Queue()
    written: list[JournalRecord] = []

    def changed() -> None:
        if questions.question is not None:
            asked.put(questions.question.id)

    questions = OperatorQuestions(SYSTEM, changed)
    with mounted("tmpfs", tmp_path / "small", "-o", "size=512k,mode=700") as small:
        journal = begin_journal(small)
        fill(small)
        with contextlib.suppress(JournalFull):
            while True:
                journal.append(INTENT)
        writer = JournalWriter(journal, questions, "TAG", lambda event: None)
        thread = threading.Thread(target=lambda: written.append(writer.write(INTENT)), daemon=True)
        thread.start()
        asked.get(timeout=LIMIT_S)
        questions.add_interrupt(OperatorInterrupt(verb="abort", who="anna"))
        thread.join(LIMIT_S)
        assert [record.kind for record in written] == ["block.intent"] and not journal.in_memory
        questions.take_interrupt()
        reverting = replace(INTENT, fields={"item": "drop-it/action@1"})
        assert writer.try_once(reverting).fields == reverting.fields
        with pytest.raises(JournalFull):
            writer.try_once(INTENT)
        journal.close()
