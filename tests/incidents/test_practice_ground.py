"""The practice ground lays out what an incident needs, in order, and gives it back whatever fails."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory

import pytest

from dba_console.core.errors import ConsoleError
from dba_console.demo.clients import DATABASE, LoadPlan
from dba_console.demo.incidents.checksum_failure import TABLE, ChecksumFailure
from dba_console.demo.incidents.incident import Incident
from dba_console.demo.practice_server import PracticeGround
from dba_console.demo.server_account import server_account
from dba_console.demo.temporary_server import Cluster, scratch_directory
from tests.background import wait_until

SMALL = LoadPlan(clients=1, rate_per_s=5, idle=2, forgotten=False, scale=1)


class RecordedIncident(Incident):
    """Records its calls, and whether the server ran then."""

    name = "noted"
    title = "nothing happens"
    settings = {"work_mem": "7MB"}

    def __init__(self, directory: Path) -> None:
        self.place = directory
        self.notes: list[str] = []

    @contextmanager
    def own_data_directory(self) -> Iterator[Path]:
        self.notes.append("site entered")
        self.place.mkdir()
        server_account().chown(self.place)
        yield self.place / "data"
        self.notes.append(f"site left, lock file there: {(self.place / 'data' / 'postmaster.pid').exists()}")

    def prepare(self, ground: PracticeGround) -> None:
        self.notes.append(f"prepared, load connected: {ground.load.connected()}")

    def end(self, ground: PracticeGround) -> None:
        self.notes.append(f"ended, load connected: {ground.load.connected()}")


class FailingEnd(RecordedIncident):
    def end(self, ground: PracticeGround) -> None:
        raise ConsoleError("it cannot be undone")


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A directory the server's user can enter, not made yet."""
    with TemporaryDirectory(dir=scratch_directory()) as directory:
        Path(directory).chmod(0o711)
        yield Path(directory) / "site"


def test_an_incident_is_prepared_before_the_load_and_ended_before_the_server(open_place: Path) -> None:
    incident = RecordedIncident(open_place)
    with PracticeGround(SMALL, incident=incident) as ground:
        assert ground.cluster.psql("show work_mem") == "7MB"
        assert ground.cluster.psql("show data_directory") == str(open_place / "data")
        # pgbench opens one more at its begin, and closes it
        wait_until(lambda: ground.load.connected() == 3, what="the load's own sessions")
        ground.close()
        ground.close()
    assert incident.notes == [
        "site entered", "prepared, load connected: 0", "ended, load connected: 3",
        "site left, lock file there: False",
    ]  # fmt: skip


def test_an_incident_that_cannot_be_undone_still_leaves_no_server_and_no_directory(open_place: Path) -> None:
    incident = FailingEnd(open_place)
    with pytest.raises(ConsoleError, match="cannot be undone"), PracticeGround(SMALL, incident=incident) as ground:
        pid, base = ground.cluster.pid, ground.cluster.base
    assert not os.path.exists(f"/proc/{pid}")
    assert not base.exists()
    assert incident.notes[-1].startswith("site left")


def test_a_damaged_page_is_repaired_although_the_server_is_gone() -> None:
    incident = ChecksumFailure()
    with PracticeGround(SMALL, incident=incident, keep=True) as ground:
        incident.cause(ground)
        ground.cluster.stop()
        base, binaries = ground.cluster.base, ground.cluster.binaries
    try:
        with Cluster(binaries, base=base) as again:
            assert again.psql(f"select count(*) from {TABLE}", dbname=DATABASE) == "5000"
    finally:
        rmtree(base)
