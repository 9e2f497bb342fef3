"""The archive is taken away: named in time, and walked by the runbook `archive-failing`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dba_console.demo.incidents.archive_failing import archive_of, taken_away
from dba_console.demo.load import LoadPlan
from tests.background import wait_until
from tests.runbooks.walking import WAIT_S, Scene, assert_named, incident

BOOK = "archive-failing"
SMALL = LoadPlan(clients=1, rate_per_s=5, idle=2, forgotten=False, scale=1)
SAID = "what-does-the-command-say=cp: no such directory"
TOLD = "so-that-it-is-noticed-earlier=ticket 4711"
COMMAND = "select setting from pg_settings where name = 'archive_command'"


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    with incident(BOOK, SMALL) as made:
        yield made


@pytest.fixture
def undone(scene: Scene) -> Iterator[Scene]:
    """The server with its archive, which is back afterwards."""
    yield scene
    scene.end()
    scene.ground.clients.stop()  # type: ignore[union-attr]
    scene.cluster.psql("alter system reset archive_command")
    scene.cluster.psql("select pg_reload_conf()")
    wait_until(lambda: scene.cluster.psql(COMMAND).endswith(f"{archive_of(scene.cluster)}/%f"), WAIT_S)


@pytest.fixture
def failing(undone: Scene) -> Scene:
    """The archive is gone, and the agent has found it."""
    undone.cause()
    undone.raised(BOOK)
    return undone


def segments(*directories: Path) -> list[str]:
    """WAL files that lie there, in their order."""
    return sorted(path.name for one in directories for path in one.iterdir() if len(path.name) == 24)


def without_gap(names: list[str]) -> bool:
    numbers = [int(name[8:16], 16) * 256 + int(name[16:], 16) for name in names]
    return numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def test_an_archive_that_works_is_left_alone(scene: Scene) -> None:
    walk = scene.headless(BOOK, SAID, "what-does-the-command-say=mend", TOLD)
    assert walk.code == 7, walk.text
    assert walk.red() == ["what-waits-and-since-when/check"] and walk.done() == []


def test_it_is_named_and_once_the_place_is_mended_every_file_arrives(undone: Scene) -> None:
    command, there = undone.cluster.psql(COMMAND), len(segments(archive_of(undone.cluster)))
    assert_named(undone.named())
    frame = undone.frame(lambda frame: (frame.replication.archive_ready_count or 0) > 2, "a backlog")
    assert (frame.replication.archive_failed_count or 0) > 0

    def mended() -> str:
        undone.end()
        return "mounted again"

    walk = undone.person(
        BOOK,
        {
            "start": "yes", "what-does-the-command-say/manual": "no such directory",
            "what-does-the-command-say/choose": "mend", "mend-the-place": mended, "is-the-archive-whole": "whole",
            "so-that-it-is-noticed-earlier": "ticket 4711",
        },
    )  # fmt: skip
    assert walk.code == 0, walk.text
    assert walk.done() == []
    assert undone.cluster.psql(COMMAND) == command
    undone.cleared(BOOK)
    archived = segments(archive_of(undone.cluster))
    assert without_gap(archived) and len(archived) > there + 2


def test_it_is_archived_elsewhere_and_a_gap_asks_for_a_new_base_backup(failing: Scene) -> None:
    cluster = failing.cluster
    other = cluster.base / "elsewhere"
    other.mkdir(mode=0o700)
    cluster.account.own(other)
    walk = failing.headless(
        BOOK, SAID, "what-does-the-command-say=elsewhere",
        f"archive-elsewhere=test ! -f {other}/%f && cp %p {other}/%f", f"archive-elsewhere={failing.target}",
        "is-the-archive-whole=gap", "close-the-gap=taken, and told them", TOLD,
    )  # fmt: skip
    assert walk.code == 0, walk.text
    assert walk.done() == ["archive-elsewhere"]
    assert str(other) in cluster.psql(COMMAND)
    assert without_gap(segments(taken_away(cluster), other))


def test_a_command_is_not_set_where_a_library_archives(failing: Scene) -> None:
    cluster = failing.cluster
    if cluster.major < 15:
        pytest.skip("archive_library came with 15")
    command = cluster.psql(COMMAND)
    cluster.psql("alter system set archive_library = 'basic_archive'")
    cluster.psql("select pg_reload_conf()")
    try:
        wait_until(lambda: cluster.psql("show archive_library") == "basic_archive", WAIT_S)
        walk = failing.headless(
            BOOK, SAID, "what-does-the-command-say=elsewhere", "archive-elsewhere=cp %p /nowhere/%f",
            f"archive-elsewhere={failing.target}", TOLD,
        )  # fmt: skip
        assert walk.code == 7, walk.text
        assert walk.red() == ["archive-elsewhere/check"] and walk.done() == []
        assert cluster.psql(COMMAND) == command
    finally:
        cluster.psql("alter system reset archive_library")
        cluster.psql("select pg_reload_conf()")
