"""The archive is taken away: named in time, and walked by the runbook `archive-failing`."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dba_console.demo.clients import LoadPlan
from dba_console.demo.incidents.archive_failing import archive_directory, moved_archive
from dba_console.demo.temporary_server import Cluster
from dba_console.runbooks.compile import compile_text
from dba_console.runbooks.values import statement
from tests.background import session, wait_until
from tests.clusters import binaries_of
from tests.runbooks.runs import WAIT_S, Walk, WatchedServer, assert_detected, hostile_server, incident

RUNBOOK = "archive-failing"
DOCUMENT = Path(__file__).parents[2] / "runbooks" / f"{RUNBOOK}.md"
SMALL = LoadPlan(clients=1, rate_per_s=5, idle=2, forgotten=False, scale=1)
CAUSE_NOTE = "why-does-archiving-fail-or-hang/manual=cp: no such directory"
CAUSE_CHOICE = "why-does-archiving-fail-or-hang/choose"
PLACE, OWN = "archive-into-a-directory", "archive-with-your-own-command"
WHOLE = "is-the-archive-complete"
FOLLOW_UP = "detect-it-earlier-next-time=ticket 4711"
COMMAND = "select setting from pg_settings where name = 'archive_command'"


@pytest.fixture(scope="module", autouse=True)
def hanging() -> Iterator[Cluster]:
    """A server whose archive command hangs from here on: when its test comes, it has done so for a minute or nearly."""
    with Cluster(binaries_of(None), settings={"archive_mode": "on", "archive_command": ""}, durable=False) as cluster:
        os.mkfifo(pipe_of(cluster), 0o600)
        cluster.account.chown(pipe_of(cluster))
        cluster.reload({"archive_command": f"cat {pipe_of(cluster)} && false"})
        cluster.psql("select pg_logical_emit_message(false, 'test', 'x')")
        cluster.psql("select pg_switch_wal()")
        yield cluster


def pipe_of(cluster: Cluster) -> Path:
    return cluster.base / "dead-mount"


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


def changed(walk: Walk) -> list[str]:
    """The steps in which something was changed: one only lists processes."""
    return [step for step in walk.done() if step != "why-does-archiving-fail-or-hang"]


def is_contiguous(names: list[str]) -> bool:
    numbers = [int(name[8:16], 16) * 256 + int(name[16:], 16) for name in names]
    return numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def test_a_working_archive_is_left_alone(watched: WatchedServer) -> None:
    walk = watched.run_headless(RUNBOOK, CAUSE_NOTE, f"{CAUSE_CHOICE}=fix", FOLLOW_UP)
    assert walk.code == 7, walk.text
    assert walk.unmet() == ["what-waits-and-since-when/check"] and changed(walk) == []


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
            "start": "yes", "why-does-archiving-fail-or-hang/manual": "no such directory",
            "why-does-archiving-fail-or-hang/choose": "fix", "fix-the-archive-location": archive_repaired,
            f"{WHOLE}/input": str(archive_directory(with_archive.cluster)), f"{WHOLE}/choose": "complete",
            "detect-it-earlier-next-time": "ticket 4711",
        },
    )  # fmt: skip
    assert walk.code == 0, walk.text
    assert changed(walk) == []
    [[looked, first, last]] = gaps(walk)
    assert looked.endswith(" files checked, to timeline 00000001") and first < last
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
    assert changed(walk) == [PLACE] and walk.unmet() == []
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
            "start": "yes", "why-does-archiving-fail-or-hang/manual": "gone", CAUSE_CHOICE: "command", "type": "=",
            f"{OWN}/input": command, f"{OWN}/manual": "looked, 16 MB",
            f"{WHOLE}/input": lost, f"{WHOLE}/choose": "gap", "close-the-gap": "taken, and told them",
            "detect-it-earlier-next-time": "ticket 4711",
        },
    )  # fmt: skip
    assert walk.code == 0, walk.text
    assert changed(walk) == [OWN] and str(other) in cluster.psql(COMMAND)
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
        assert changed(walk) == []
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


def test_a_command_that_hangs_is_named_with_its_process_and_ended_so_that_the_new_one_is_used(
    hanging: Cluster,
) -> None:
    def hangs_for_a_minute() -> bool:
        ran = subprocess.run(["pgrep", "-f", "-o", f"^cat {pipe_of(hanging)}"], capture_output=True, text=True)
        if not ran.stdout:
            return False
        age = subprocess.run(["ps", "-o", "etimes=", "-p", ran.stdout.strip()], capture_output=True, text=True)
        return int(age.stdout or 0) > 61

    def archive_repaired() -> str:
        hanging.reload({"archive_command": "true"})
        return "the path is right again"

    with hostile_server(hanging) as watched:
        watched.frame(lambda frame: (frame.replication.archive_ready_count or 0) >= 1, "a waiting file")
        wait_until(hangs_for_a_minute, WAIT_S, what="a command that hangs for a minute")
        walk = watched.run_interactively(
            RUNBOOK,
            {
                "start": "yes", CAUSE_CHOICE: "fix", "fix-the-archive-location": archive_repaired,
                "does-an-old-command-still-run": "end", "end-the-hanging-command": "yes", f"{WHOLE}/input": "-",
                f"{WHOLE}/choose": "complete", "manual": "seen",
            },
            left="0",
        )  # fmt: skip
    assert walk.code == 0, (walk.ending, walk.unmet(), walk.failed())
    assert f"cat {pipe_of(hanging)}" in walk.output and "ending " in walk.output


def gaps(walk: Walk) -> list[list[str]]:
    """What the archive lacks, as it was shown."""
    tables = [event["table"] for event in walk.events if event["event"] == "table"]
    return [row for one in tables if one["columns"][0] == "what" for row in one["rows"]]


def gaps_of(cluster: Cluster, archive: Path) -> list[list[str | None]]:
    """What the search for gaps shows of an archive."""
    plan = compile_text(DOCUMENT.read_text(encoding="utf-8"), DOCUMENT.name)
    _, block = plan.block(f"{WHOLE}/preview")
    text, params = statement(block.body, {"archive": str(archive)})
    with session(cluster) as asking:
        return [
            [None if value is None else str(value) for value in row]
            for row in asking.execute(text.encode(), params).fetchall()
        ]


def test_a_gap_before_a_promotion_is_found_across_the_timelines() -> None:
    """Segments 1 to 3 of timeline 1, promoted in 8: those between were never archived."""
    with Cluster(binaries_of(None), durable=False) as cluster:
        place = cluster.base / "archive"
        place.mkdir(mode=0o755)

        def archived(timeline: int, *numbers: int, suffix: str = "") -> None:
            for number in numbers:
                path = place / f"{timeline:08X}00000000{number:08X}{suffix}"
                path.touch()
                os.truncate(path, 16 << 20)

        archived(1, 1, 2, 3)
        history = place / "00000002.history"
        history.write_text("1\t0/80000A0\tno recovery target specified\n")
        wrong = gaps_of(cluster, place)[1:]
        assert wrong == [["4 missing", "000000010000000000000003", "00000002.history"]], "before anything is archived"
        archived(1, 8, suffix=".partial")
        archived(2, 8, 9)
        first, *wrong = gaps_of(cluster, place)
        assert first[0] == "5 files checked, to timeline 00000002"
        assert wrong == [["4 missing", "000000010000000000000003", "000000020000000000000008"]]
        history.unlink()
        assert [row[0] for row in gaps_of(cluster, place)][1:] == ["missing: 00000002.history", "4 missing"]
        history.write_text("1\t0/80000A0\tno recovery target specified\n")
        archived(1, 4, 5, 6, 7)
        assert gaps_of(cluster, place)[1:] == []
        archived(1, 10, 11)  # by the old primary, which was still running
        assert gaps_of(cluster, place)[1:] == [], "of a timeline that was left"


def test_a_command_that_has_just_ended_is_not_taken_for_one_that_hangs(tmp_path: Path) -> None:
    """Before, the exit code of `cat` or `ps` for a process that was gone said: more than a minute."""
    text = DOCUMENT.read_text()
    script = text[text.index("```sh {run role=monitor as=running") :].split("\n", 1)[1].split("\n```", 1)[0]
    ended = subprocess.Popen(["true"])
    ended.wait()
    psql = tmp_path / "psql"
    psql.write_text(f"#!/bin/sh\necho {ended.pid}\n")
    psql.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    result = subprocess.run(["bash", "-c", script], env={"PATH": path}, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (0, f"the archiver {ended.pid} runs no command now\n"), result.stderr
