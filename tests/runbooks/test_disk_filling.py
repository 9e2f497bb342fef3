"""A disk fills up: named in time, and walked by the runbook `disk-filling`. Root only."""

from __future__ import annotations

import pytest

from dba_console.demo.clients import LoadPlan
from dba_console.demo.incidents.disk_filling import NEWER, OLDER
from dba_console.watch.frames.model import Frame
from tests.runbooks.runs import Scene, assert_named, incident

BOOK = "disk-filling"
SMALL = LoadPlan(clients=2, rate_per_s=20, idle=4, forgotten=False, scale=1)


def fullest(frame: Frame) -> float:
    """Percent used of the disk that holds the data."""
    return max((row.used_pct or 0 for row in frame.disks.mounts if "data" in row.holds), default=0)


def files(scene: Scene) -> list[str]:
    return sorted(path.name for path in scene.cluster.data_directory.iterdir())


@pytest.mark.root
def test_a_disk_that_fills_up_is_named_and_copies_are_deleted_while_data_stays() -> None:
    with incident(BOOK, SMALL) as scene:
        assert_named(scene.named())
        scene.frame(lambda frame: fullest(frame) > 80, "80 %")
        place, before = scene.cluster.data_directory.parent, files(scene)
        assert (place / NEWER).exists()

        def removed() -> str:
            scene.end()
            assert not (place / NEWER).exists()
            (place / OLDER).unlink()
            return "both copies"

        walk = scene.person(
            BOOK,
            {
                "start": "yes", "what-grows": "files", "stop-the-writer/manual": "the nightly job",
                "stop-the-writer/choose": "small", "stop-the-writer/manual-2": removed,
                "prevent-a-recurrence": "ticket 4711",
            },
            mount=str(place),
        )  # fmt: skip
        assert walk.code == 0, walk.text
        assert walk.done() == []
        assert files(scene) == before
