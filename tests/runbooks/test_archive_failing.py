"""The archive is taken away: named in time, and walked by the runbook `archive-failing`."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dba_console.demo.clients import LoadPlan
from dba_console.demo.cluster import Cluster
from dba_console.demo.incidents.archive_failing import archive_directory, moved_archive
from dba_console.runbooks.compile import compile_text
from dba_console.runbooks.values import statement
from tests.background import session, wait_until
from tests.clusters import binaries_of
from tests.runbooks.runs import WAIT_S, Walk, WatchedServer, assert_detected, incident

RUNBOOK = "archive-failing"
DOCUMENT = Path(__file__).parents[2] / "runbooks" / f"{RUNBOOK}.md"
SMALL = LoadPlan(clients=1, rate_per_s=5, idle=2, forgotten=False, scale=1)
CAUSE_NOTE = "why-does-archiving-fail/manual=cp: no such directory"
CAUSE_CHOICE = "why-does-archiving-fail/choose"
PLACE, OWN = "archive-into-a-directory", "archive-with-your-own-command"
WHOLE = "is-the-archive-complete"
FOLLOW_UP = "detect-it-earlier-next-time=ticket 4711"
COMMAND = "select setting from pg_settings where name = 'archive_command'"


@pytest.fixture(scope="module")
def watched() -> Iterator[WatchedServer]:
    with incident(RUNBOOK, SMALL) as made:
        yield made


@pytest.fixture
def with_archive(watched: WatchedServer) -> Iterator[WatchedServer]:
    """The server with its archive, which is back afterwards."""
    yield watched
    watched.end()
    watched.ground.clients.stop()  # type: ignore[union-attr]
    watched.cluster.psql("alter system reset archive_command")
    watched.cluster.psql("select pg_reload_conf()")
    wait_until(lambda: watched.cluster.psql(COMMAND).endswith(f"{archive_directory(watched.cluster)}/%f"), WAIT_S)


@pytest.fixture
def without_archive(with_archive: WatchedServer) -> WatchedServer:
    """The archive is gone, and the agent has found it."""
    with_archive.cause()
    with_archive.wait_until_raised(RUNBOOK)
    return with_archive


def archived_segments(*directories: Path) -> list[str]:
    """WAL files that lie there, in their order."""
    return sorted(path.name for one in directories for path in one.iterdir() if len(path.name) == 24)


def is_contiguous(names: list[str]) -> bool:
    numbers = [int(name[8:16], 16) * 256 + int(name[16:], 16) for name in names]
    return numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def test_a_working_archive_is_left_alone(watched: WatchedServer) -> None:
    walk = watched.run_headless(RUNBOOK, CAUSE_NOTE, f"{CAUSE_CHOICE}=fix", FOLLOW_UP)
    assert walk.code == 7, walk.text
    assert walk.unmet() == ["what-waits-and-since-when/check"] and walk.done() == []


def test_the_failure_is_named_and_once_the_path_is_fixed_every_file_is_archived(with_archive: WatchedServer) -> None:
    command, there = with_archive.cluster.psql(COMMAND), len(archived_segments(archive_directory(with_archive.cluster)))
    assert_detected(with_archive.cause_and_judge())
    frame = with_archive.frame(lambda frame: (frame.replication.archive_ready_count or 0) > 2, "a backlog")
    assert (frame.replication.archive_failed_count or 0) > 0

    def archive_repaired() -> str:
        with_archive.end()
        return "mounted again"

    walk = with_archive.run_interactively(
        RUNBOOK,
        {
            "start": "yes", "why-does-archiving-fail/manual": "no such directory",
            "why-does-archiving-fail/choose": "fix", "fix-the-archive-location": archive_repaired,
            f"{WHOLE}/input": str(archive_directory(with_archive.cluster)), f"{WHOLE}/choose": "complete",
            "detect-it-earlier-next-time": "ticket 4711",
        },
    )  # fmt: skip
    assert walk.code == 0, walk.text
    assert walk.done() == []
    [[looked, first, last]] = gaps(walk)
    assert looked.endswith(" files checked") and first < last
    assert with_archive.cluster.psql(COMMAND) == command
    with_archive.wait_until_cleared(RUNBOOK)
    archived = archived_segments(archive_directory(with_archive.cluster))
    assert is_contiguous(archived) and len(archived) > there + 2


def test_it_archives_into_a_directory_temporarily_and_reverts_that(
    without_archive: WatchedServer, disk_directory: Path
) -> None:
    cluster, command = without_archive.cluster, without_archive.cluster.psql(COMMAND)
    disk_directory.chmod(0o755)
    other = disk_directory / "elsewhere"
    other.mkdir(mode=0o700)
    begun = (CAUSE_NOTE, f"{CAUSE_CHOICE}=directory")
    # Not where pg_wal is itself, and not where the server may not write.
    for place in (str(cluster.base), str(other)):
        refused = without_archive.run_headless(
            RUNBOOK, *begun, f"{PLACE}/input={place}", f"{PLACE}/action={without_archive.target}"
        )
        assert refused.code == 7 and refused.unmet() == [f"{PLACE}/check-2"], refused.text
    assert cluster.psql(COMMAND) == command
    cluster.account.chown(other)
    walk = without_archive.run_headless(
        RUNBOOK, *begun, f"{PLACE}/input={other}", f"{PLACE}/action={without_archive.target}", f"{WHOLE}/input={other}",
        f"{WHOLE}/choose=complete", FOLLOW_UP,
    )  # fmt: skip
    assert walk.code == 0, walk.text
    assert walk.done() == [PLACE] and walk.unmet() == []
    assert is_contiguous(archived_segments(moved_archive(cluster), other))
    without_archive.wait_until_raised("settings-left")
    back = without_archive.run_headless("put-back")
    assert back.code == 0, back.text
    assert cluster.psql(COMMAND) == command
    without_archive.wait_until_cleared("settings-left")


def test_a_custom_command_is_monitored_and_a_gap_requires_a_new_base_backup(without_archive: WatchedServer) -> None:
    cluster = without_archive.cluster
    other = cluster.base / "elsewhere"
    other.mkdir(mode=0o700)
    cluster.account.chown(other)

    def lost() -> str:
        """Two files are gone from the archive, and a third was cut."""
        wait_until(lambda: len(archived_segments(other)) > 3, WAIT_S, what="four files there")
        files = [other / name for name in archived_segments(other)]
        files[1].unlink()
        files[2].write_bytes(b"cut")
        return str(other)

    command = f"test ! -f {other}/%f && cp %p {other}/new && mv {other}/new {other}/%f"
    assert len(command) > 200
    walk = without_archive.run_interactively(
        RUNBOOK,
        {
            "start": "yes", "why-does-archiving-fail/manual": "gone", CAUSE_CHOICE: "command", "type": "=",
            f"{OWN}/input": command, f"{OWN}/manual": "looked, 16 MB",
            f"{WHOLE}/input": lost, f"{WHOLE}/choose": "gap", "close-the-gap": "taken, and told them",
            "detect-it-earlier-next-time": "ticket 4711",
        },
    )  # fmt: skip
    assert walk.code == 0, walk.text
    assert walk.done() == [OWN] and str(other) in cluster.psql(COMMAND)
    names = archived_segments(other)
    assert gaps(walk)[1:] == [["1 missing, too short", names[0], names[1]]]
    assert without_archive.run_headless("put-back").code == 0


def test_a_command_is_not_offered_if_a_library_archives(without_archive: WatchedServer) -> None:
    cluster = without_archive.cluster
    if cluster.major < 15:
        pytest.skip("archive_library came with 15")
    command = cluster.psql(COMMAND)
    cluster.psql("alter system set archive_library = 'basic_archive'")
    cluster.psql("select pg_reload_conf()")
    try:
        wait_until(lambda: cluster.psql("show archive_library") == "basic_archive", WAIT_S)
        asked = {"start": "yes", "manual": "looked", "choose": "/abort not tonight", "undo": "none"}
        walk = without_archive.run_interactively(RUNBOOK, asked)
        [question] = [one for one in walk.questions if one["kind"] == "choose"]
        assert [option["key"] for option in question["options"]] == ["fix", "library"]
        assert walk.done() == []
        assert cluster.psql(COMMAND) == command
    finally:
        cluster.psql("alter system reset archive_library")
        cluster.psql("select pg_reload_conf()")


def test_the_generated_command_never_overwrites_and_accepts_an_equal_file(tmp_path: Path) -> None:
    plan = compile_text(DOCUMENT.read_text(encoding="utf-8"), DOCUMENT.name)
    _, block = plan.block(f"{PLACE}/measure")
    place, file = tmp_path / "place", tmp_path / "00000001000000000000002A"
    place.mkdir()
    file.write_bytes(b"x" * 4096)

    def archived(made: str) -> int:
        return subprocess.run(["sh", "-c", made.replace("%p", str(file)).replace("%f", file.name)]).returncode

    with Cluster(binaries_of(None), durable=False) as cluster:
        text, params = statement(block.body, {"directory": f"{place}/"})
        with session(cluster) as asking:
            [(made,)] = asking.execute(text.encode(), params).fetchall()
    assert isinstance(made, str)
    (place / f"{file.name}.part").write_bytes(b"of a copy that broke off")
    assert archived(made) == 0 and (place / file.name).read_bytes() == file.read_bytes()
    assert archived(made) == 0, "the same file once more, as after a crash"
    assert [path.name for path in place.iterdir()] == [file.name]
    file.write_bytes(b"y" * 4096)
    assert archived(made) != 0 and (place / file.name).read_bytes() == b"x" * 4096


def gaps(walk: Walk) -> list[list[str]]:
    """What the archive lacks, as it was shown."""
    tables = [event["table"] for event in walk.events if event["event"] == "table"]
    return [row for one in tables if one["columns"][0] == "what" for row in one["rows"]]
