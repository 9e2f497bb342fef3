"""A disk fills up: named in time, and walked by the runbook `disk-filling`. Root only."""

from __future__ import annotations

import pytest

from dba_console.demo.clients import LoadPlan
from dba_console.demo.incidents.disk_filling import NEWER, OLDER
from dba_console.watch.frames.model import Frame
from tests.runbooks.runs import WatchedServer, assert_detected, incident

RUNBOOK = "disk-filling"
SMALL = LoadPlan(clients=2, rate_per_s=20, idle=4, forgotten=False, scale=1)


def fullest(frame: Frame) -> float:
    """Percent used of the disk that holds the data."""
    return max((row.used_pct or 0 for row in frame.disks.mounts if "data" in row.holds), default=0)


def files(watched: WatchedServer) -> list[str]:
    return sorted(path.name for path in watched.cluster.data_directory.iterdir())


@pytest.mark.root
def test_a_disk_that_fills_up_is_named_and_copies_are_deleted_while_data_stays() -> None:
    with incident(RUNBOOK, SMALL) as watched:
        assert_detected(watched.cause_and_judge())
        watched.frame(lambda frame: fullest(frame) > 80, "80 %")
        place, before = watched.cluster.data_directory.parent, files(watched)
        assert (place / NEWER).exists()

        def removed() -> str:
            watched.end()
            assert not (place / NEWER).exists()
            (place / OLDER).unlink()
            return "both copies"

        walk = watched.run_interactively(
            RUNBOOK,
            {
                "start": "yes", "what-grows": "files", "stop-the-writer/manual": "the nightly job",
                "stop-the-writer/choose": "small", "stop-the-writer/manual-2": removed,
                "prevent-a-recurrence": "ticket 4711",
            },
            mount=str(place),
        )  # fmt: skip
        assert walk.code == 0, walk.text
        assert walk.done() == []
        assert files(watched) == before
