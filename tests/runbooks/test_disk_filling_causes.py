"""The runbook `disk-filling`, walked on a small disk that queries, WAL or big files have filled. Root only."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dba_console.core.errors import ConsoleError
from dba_console.demo.incidents.loop_disk import MIB, LoopDisk, loop_disk
from dba_console.demo.temporary_server import Cluster, Settings
from dba_console.watch.frames.model import Frame
from tests.background import idle_sessions, session, wait_until
from tests.clusters import binaries_of
from tests.requirements import lacking, require_root
from tests.runbooks.runs import WAIT_S, AnswerSource, WatchedServer, watched_server

RUNBOOK = "disk-filling"
FOLLOW_UP = "prevent-a-recurrence=ticket 4711"
SIZE_BYTES = 512 * MIB
SPILLS = """
select pg_sleep(case when number = 1 then 3600 else 0 end)
  from (select row_number() over () as number from
         (select repeat(md5(g::text), 30) as t from generate_series(1, 90000) g order by t) as sorted) as numbered
"""
"""Sorts some 90 MB on disk, and keeps them as long as it sleeps over the first row."""
WRITES = """
select count(pg_logical_emit_message(false, 'test', repeat('x', 100000 + 0 * g))) from generate_series(1, 600) g,
  lateral pg_sleep(0.02 + 0 * g)
"""
"""Some 4 MB of WAL a second, for as long as a walk takes."""
SPILLING = "select coalesce(sum(size), 0) from pg_ls_tmpdir()"


@pytest.fixture(scope="module")
def disk() -> Iterator[LoopDisk]:
    require_root()
    try:
        with loop_disk(SIZE_BYTES) as made:
            yield made
    except ConsoleError as error:
        lacking(error.message)


@pytest.fixture(scope="module")
def cluster(disk: LoopDisk) -> Iterator[Cluster]:
    settings: Settings = {"max_wal_size": "32MB", "min_wal_size": "32MB", "work_mem": "64kB"}
    with Cluster(binaries_of(None), data_directory=disk.data_directory, settings=settings, durable=False) as made:
        yield made


@pytest.fixture(scope="module")
def watched(cluster: Cluster) -> Iterator[WatchedServer]:
    with watched_server(cluster.dsn()) as made:
        made.wait_for_baseline()
        yield made


@pytest.fixture
def sized_file(disk: LoopDisk) -> Iterator[Path]:
    """A file beside the data that is as large as one likes."""
    path = disk.path / "appdb-monday.dump"
    yield path
    path.unlink(missing_ok=True)


def fill_to(disk: LoopDisk, path: Path, pct: float) -> None:
    """Let the file be so large that the disk is used to this share, as df says it."""
    path.unlink(missing_ok=True)
    room = os.statvfs(disk.path)
    wanted = int(room.f_blocks * pct / 100) - (room.f_blocks - room.f_bfree)
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, wanted * room.f_frsize)


def used_pct(frame: Frame, disk: LoopDisk) -> float | None:
    return next((row.used_pct for row in frame.disks.mounts if row.path == str(disk.path)), None)


def test_a_disk_with_space_and_an_unknown_one_are_left_alone(watched: WatchedServer, disk: LoopDisk) -> None:
    for mount in (disk.path, Path("/nowhere")):
        walk = watched.run_headless(RUNBOOK, "what-grows=temp", mount=str(mount))
        assert walk.code == 7, walk.text
        assert walk.unmet() == ["how-full-how-fast/check"] and walk.done() == []


def test_a_big_file_or_a_slot_ends_the_run_and_names_its_runbook(
    watched: WatchedServer, disk: LoopDisk, sized_file: Path
) -> None:
    fill_to(disk, sized_file, 86)
    watched.frame(lambda frame: (used_pct(frame, disk) or 0) > 80, "80 %")
    big = watched.run_headless(
        RUNBOOK, "what-grows=files", "stop-the-writer=stopped", "stop-the-writer=big", mount=str(disk.path)
    )
    slot = watched.run_headless(RUNBOOK, "what-grows=wal", "what-retains-wal=slot", mount=str(disk.path))
    for walk in (big, slot):
        assert walk.code == 0, walk.text
        assert walk.done() == [] and walk.states()["is-there-enough-free-space"] == "skipped"
    assert sized_file.exists()


def test_the_fastest_growth_is_shown_first_with_its_amount(
    watched: WatchedServer, cluster: Cluster, disk: LoopDisk, sized_file: Path
) -> None:
    cluster.psql("select pg_create_physical_replication_slot('left', true)")
    fill_to(disk, sized_file, 86)
    watched.frame(lambda frame: (used_pct(frame, disk) or 0) > 80, "80 %")
    with closing(session(cluster, name="writer")) as writer:
        writer.pgconn.send_query(WRITES.encode())
        walk = watched.run_headless(RUNBOOK, "what-grows=wal", "what-retains-wal=slot", mount=str(disk.path))
        writer.cancel_safe()
    cluster.psql("select pg_drop_replication_slot('left')")
    assert walk.code == 0, walk.text
    first = walk.rows("what-grows/preview-4")[0]
    assert first["what"] == "WAL retained by slot left" and "MB" in first["grown_in_5s"], first
    kept = {row["retained_for"]: row for row in walk.rows("what-retains-wal/preview-3")}
    assert kept["slot left"]["consumer_active"] is False and kept["slot left"]["wal_status"] is not None
    assert {"wal_keep_size", "max_wal_size", "min_wal_size"} <= set(kept)


def test_the_biggest_relations_are_named_while_they_are_rewritten(
    watched: WatchedServer, cluster: Cluster, disk: LoopDisk, sized_file: Path
) -> None:
    other = disk.path / "other"
    other.mkdir()
    cluster.account.chown(other)
    cluster.psql(f"create tablespace \"Slow's\" location '{other}'")
    cluster.psql("""
        create schema "Old"; create table "Old"."big one" (i int, t text) partition by range (i);
        create table "Old"."big one p" partition of "Old"."big one" default tablespace "Slow's";
        insert into "Old"."big one" select g, repeat(md5(g::text), 20) from generate_series(1, 9000) g;
        create index on "Old"."big one" (t)
    """)
    cluster.psql('vacuum analyze "Old"."big one p"')
    fill_to(disk, sized_file, 86)
    watched.frame(lambda frame: (used_pct(frame, disk) or 0) > 80, "80 %")
    with closing(session(cluster, name="rewriting")) as rewriting:
        rewriting.execute("begin")
        rewriting.execute('lock table "Old"."big one p"')

        def grown() -> str:
            sized_file.unlink()
            return "the volume was grown"

        answers: dict[str, AnswerSource] = {
            "start": "yes",
            "what-grows": "data",
            "more-space-for-data": grown,
            "manual": "ticket 4711",
        }
        walk = watched.run_interactively(RUNBOOK, answers, mount=str(disk.path))
    assert walk.code == 0, walk.text
    first = walk.rows("more-space-for-data/preview")[0]
    assert first["relation"] == '"Old"."big one p"' and first["tablespace"] == "Slow's", first
    listed = {row["what"]: row["location"] for row in walk.rows("what-grows/preview-4")}
    assert listed["tablespace Slow's"] == str(other)
    sizes = {row["what"]: row["size"] for row in walk.rows("what-grows/preview-4")}
    assert sizes["database postgres"].endswith(("kB", "MB")), "the largest by the panel is measured"
    cluster.psql('drop schema "Old" cascade')
    cluster.psql('drop tablespace "Slow\'s"')


def test_a_spilling_statement_is_cancelled_and_frees_its_space(
    watched: WatchedServer, cluster: Cluster, disk: LoopDisk, sized_file: Path
) -> None:
    with (
        idle_sessions(cluster, 1, name="bystander") as (bystander,),
        closing(session(cluster, name="report")) as report,
    ):
        report.pgconn.send_query(SPILLS.encode())
        asleep = f"select 1 from pg_stat_activity where pid = {report.info.backend_pid} and wait_event = 'PgSleep'"
        wait_until(lambda: cluster.psql(asleep), WAIT_S, what="the sort done, and its files there")
        assert int(cluster.psql(SPILLING)) > 60 * MIB
        fill_to(disk, sized_file, 90)
        watched.frame(lambda frame: (used_pct(frame, disk) or 0) > 80, "80 %")
        watched.wait_until_raised(RUNBOOK)
        walk = watched.run_headless(
            RUNBOOK, "what-grows=temp", "cancel-queries-that-spill=1", FOLLOW_UP, mount=str(disk.path)
        )
        assert walk.code == 0, walk.text
        assert walk.done() == ["cancel-queries-that-spill"]
        assert cluster.psql(SPILLING) == "0"
        assert bystander.execute("select 1").fetchone() == (1,)


def test_wal_is_removed_once_less_must_be_kept(
    watched: WatchedServer, cluster: Cluster, disk: LoopDisk, sized_file: Path
) -> None:
    cluster.psql("alter system set wal_keep_size = '96MB'")
    cluster.psql("select pg_reload_conf()")
    cluster.psql(
        f"select count(pg_logical_emit_message(false, 'test', repeat('x', {MIB}))) from generate_series(1, 112)"
    )
    fill_to(disk, sized_file, 88)
    watched.frame(lambda frame: (used_pct(frame, disk) or 0) > 80, "80 %")
    watched.wait_until_raised(RUNBOOK)

    def lowered() -> str:
        cluster.psql("alter system reset wal_keep_size")
        cluster.psql("select pg_reload_conf()")
        wait_until(lambda: cluster.psql("show wal_keep_size") == "0", WAIT_S)
        return "wal_keep_size to 0"

    walk = watched.run_interactively(
        RUNBOOK,
        {
            "start": "yes", "what-grows": "wal", "what-retains-wal": "settings", "retain-less-wal/manual": lowered,
            "ack": "y", "manual": "ticket 4711",
        },
        mount=str(disk.path),
    )  # fmt: skip
    assert walk.code == 0, walk.text
    assert walk.done() == ["retain-less-wal"]
    assert int(cluster.psql("select sum(size) from pg_ls_waldir()")) < 64 * MIB
