"""Interrupted runs: each is reported, whatever its records look like."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dba_console.agent.runs import interrupted_runs
from dba_console.recording.plan import JournalRecord, Plan
from dba_console.recording.run_reader import StoredRun
from dba_console.runbooks.apply_records import replay_records
from dba_console.runbooks.run_state import RunState
from dba_console.runbooks.walk_context import planned
from tests.unit.recording.run_journals import INTENT, PLAN, begin_journal

UNKNOWN_RECORDS = JournalRecord(kind="block.seen", text="of another version", block="drop-it/action", state="ok")


def _replay(plan: Plan, records: Sequence[JournalRecord]) -> RunState:
    _refuse_unknown(records)
    return replay_records(plan, records)


def _against_sessions(stored: StoredRun) -> StoredRun:
    _refuse_unknown(stored.records)
    return stored


def _refuse_unknown(records: Sequence[JournalRecord]) -> None:
    if any(record.text == UNKNOWN_RECORDS.text for record in records):
        raise KeyError("strange")


@pytest.mark.parametrize(
    ("name", "choosy"), [("replay_records", _replay), ("compare_with_sessions", _against_sessions)]
)
def test_a_run_whose_records_cannot_be_parsed_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, choosy: Any
) -> None:
    monkeypatch.setattr(interrupted_runs, name, choosy)
    session = tmp_path / "20260101T000000Z-db2-1a2b3c4d"
    session.mkdir()
    for run, record in (("20260101T000000Z-strange-1a2b", UNKNOWN_RECORDS), ("20260101T000001Z-plain-1a2b", INTENT)):
        journal = begin_journal(session, run=run)
        first = planned(PLAN, run=run, mode="run", target="db2", identity="id", who="ann")
        for one in (first, record):
            journal.append(one)
        journal.close()
    strange, plain = interrupted_runs.find_interrupted_runs(tmp_path, "key1")
    assert strange.note == "its records cannot be read: KeyError"
    assert (strange.view.state, strange.view.ending) == ("interrupted", strange.note)
    assert (plain.run, plain.note) == ("20260101T000001Z-plain-1a2b", "")
