"""Acknowledgements and silences are saved for the next agent, without waiting for the disk."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from dba_console.agent import finding_service
from dba_console.agent.finding_service import (
    WRITE_TIMEOUT_US,
    AcknowledgementsFile,
    OperatorEntries,
    load_entries,
)
from dba_console.core.clock import SYSTEM
from dba_console.watch.findings.finding_events import FindingMark
from dba_console.watch.probes.deadline_lane import REPLACEMENTS
from tests.background import wait_until
from tests.clocks import HeldClock

ENTRIES: OperatorEntries = {
    "acknowledged": {},
    "silenced": {"disk-filling": FindingMark(who="ann", note="", until_us=9)},
}


class ShiftedClock(HeldClock):
    """The time of this host, from where it can be moved on."""

    def __init__(self) -> None:
        super().__init__(SYSTEM.wall_us(), SYSTEM.mono_us())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "key.said"


def test_acknowledgements_are_stored_for_the_next_agent_and_readable_only_by_their_owner(path: Path) -> None:
    first = AcknowledgementsFile(path, SYSTEM)
    assert first.load() == {}
    first.set_entries(ENTRIES)
    first.close()
    next_one = AcknowledgementsFile(path, SYSTEM)
    assert next_one.load() == ENTRIES
    next_one.close()
    assert path.stat().st_mode & 0o777 == 0o600


def test_without_acknowledgements_nothing_is_written(path: Path) -> None:
    kept = AcknowledgementsFile(path, SYSTEM)
    kept.set_entries({"acknowledged": {}, "silenced": {}})
    kept.write_if_due()
    kept.close()
    assert list(path.parent.iterdir()) == []


def test_a_repeated_acknowledgement_is_written_once(path: Path) -> None:
    kept = AcknowledgementsFile(path, SYSTEM)
    kept.set_entries(ENTRIES)
    kept.write_if_due()
    wait_until(lambda: load_entries(path) == ENTRIES, what="the file written")
    path.unlink()
    kept.set_entries(dict(ENTRIES))
    kept.close()
    assert not path.exists()


def test_an_unresponsive_disk_delays_no_tick(path: Path) -> None:
    part = path.with_name(f".{path.name}.part")
    os.mkfifo(part)  # opened for writing it waits for a reader, as a stalled disk waits
    clock, before = ShiftedClock(), threading.enumerate()
    kept = AcknowledgementsFile(path, clock)
    for turn in range(2 * REPLACEMENTS):
        kept.set_entries({"acknowledged": {}, "silenced": {str(turn): ENTRIES["silenced"]["disk-filling"]}})
        kept.write_if_due()
        clock.mono += WRITE_TIMEOUT_US + 1
    stuck = [thread for thread in threading.enumerate() if thread.name == "lane-said" and thread not in before]
    assert len(stuck) <= REPLACEMENTS, "threads that hang are no more than a lane may lose"
    assert not path.exists()
    with open(part, "rb"):  # the disk answers again
        wait_until(lambda: not any(thread.is_alive() for thread in stuck), what="the threads back")


def test_the_start_continues_if_the_file_does_not_answer(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding_service, "READ_S", 0.05)
    os.mkfifo(path)
    assert AcknowledgementsFile(path, SYSTEM).load() == {}
    with open(path, "wb"):
        pass
