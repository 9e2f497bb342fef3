"""Dumps of a real server are seen to begin and to end, and are remembered by the next agent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dba_console.agent.job_service import OBSERVATION_MAX_AGE_US
from dba_console.core.clock import SYSTEM
from dba_console.core.target import make_target
from dba_console.demo.temporary_server import Cluster
from dba_console.jobs.history.history_files import load_or_set_aside
from dba_console.jobs.history.history_reader import read_job_history
from dba_console.recording.recording import Recording
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.derive import derive
from dba_console.watch.progress.rows import ProgressRow
from tests.agent.agents import agent
from tests.agent.dumps import TABLE, create_table_to_dump, dump, dump_row, ended_jobs, jobs_part, observe_dump
from tests.background import wait_until
from tests.clusters import FreshCluster


@pytest.fixture(scope="module")
def dumpable_cluster(cluster: Cluster) -> Iterator[Cluster]:
    create_table_to_dump(cluster)
    yield cluster
    cluster.psql(f"drop table {TABLE}")


def history_file(directory: Path) -> list[Path]:
    return sorted((directory / "state" / "dba-console" / "jobs").glob("*.json"))


def test_the_end_of_a_dump_is_reported_with_its_duration(dumpable_cluster: Cluster, tmp_path: Path) -> None:
    with agent(dumpable_cluster.dsn(), tmp_path) as running:
        event = observe_dump(running.watch(), dumpable_cluster)
    assert event.text.startswith("pg_dump of postgres ended after ")
    assert event.details["kind"] == "pg_dump"
    assert event.details["ok"] is None, "whether it succeeded is not known to who saw its sessions only"
    started, finished, seconds = (event.details[name] for name in ("started_us", "ended_us", "seconds"))
    assert seconds > 0 and abs((finished - started) / 1e6 - seconds) < 0.01


def test_the_typical_duration_survives_the_agent_and_is_replayed_as_shown(
    dumpable_cluster: Cluster, tmp_path: Path
) -> None:
    with agent(dumpable_cluster.dsn(), tmp_path) as running:
        watch = running.watch()
        took = sorted(observe_dump(watch, dumpable_cluster).details["seconds"] for _ in range(3))
        (file,) = wait_until(lambda: history_file(tmp_path), what="the history's file")
        wait_until(lambda: (kept := load_or_set_aside(file)) and len(kept.jobs[0].runs) == 3, what="three runs in it")
        running.process.kill()
        running.process.wait()
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    second = tmp_path / "second"
    with agent(dumpable_cluster.dsn(), tmp_path, "--sessions", str(second)) as running, dump(dumpable_cluster):
        frame = running.watch().until(lambda frame: (one := dump_row(frame)) and one.usual_s, what="a usual duration")
        running.end()
    shown = dump_row(frame)
    assert shown is not None and shown.usual_s == pytest.approx(took[1], abs=0.01)
    assert replayed_row(second, frame.at_us) == shown


def replayed_row(sessions: Path, at_us: int) -> ProgressRow | None:
    """The dump's row as replay shows it at that moment."""
    (directory,) = sessions.iterdir()
    with closing(Recording.open(directory)) as recording:
        picture = recording.picture_at(at_us)
    assert picture is not None
    return dump_row(derive(picture, ChartHistory()))


def test_the_history_is_per_server_whichever_database_is_watched(dumpable_cluster: Cluster, tmp_path: Path) -> None:
    dumpable_cluster.psql("create database shop")
    with agent(dumpable_cluster.dsn(), tmp_path) as running:
        watch = running.watch()
        observe_dump(watch, dumpable_cluster)
        shop, before = dumpable_cluster.dsn(dbname="shop"), dumpable_cluster.dsn()
        with agent(shop, tmp_path, "--sessions", str(tmp_path / "second")) as later:
            other = later.watch()
            linked = tmp_path / "state" / "dba-console" / "jobs" / make_target(shop).key
            wait_until(linked.is_symlink, what="the second agent, at the file of the first")
            observe_dump(watch, dumpable_cluster, others=[other])
            other.until(lambda _: ended_jobs(other), what="the end of the second dump, seen from shop")
            assert later.end() == 0
        assert running.end() == 0
    assert len(history_file(tmp_path)) == 1
    for dsn in (shop, before):
        (job,) = read_job_history(make_target(dsn).key).jobs
        assert (job.name, len(job.runs)) == ("pg_dump of postgres", 2)
    dumpable_cluster.psql("drop database shop")


def test_a_damaged_history_is_renamed_and_reported_once(dumpable_cluster: Cluster, tmp_path: Path) -> None:
    with agent(dumpable_cluster.dsn(), tmp_path) as running:
        watch = running.watch()
        observe_dump(watch, dumpable_cluster)
        wait_until(lambda: history_file(tmp_path), what="the history's file")
        running.end()
    (file,) = history_file(tmp_path)
    file.write_bytes(b'{"until_us": 5, "jobs": [{"kind"')
    with agent(dumpable_cluster.dsn(), tmp_path, "--sessions", str(tmp_path / "second")) as running:
        watch = running.watch()
        event = watch.event("job.history")
        assert file.with_suffix(".damaged").name in event.text
        observe_dump(watch, dumpable_cluster)
        wait_until(file.exists, what="a new history")
        assert [one.kind for one in watch.events].count("job.history") == 1
    assert file.with_suffix(".damaged").read_bytes().endswith(b'"kind"')


def test_a_dump_that_ends_with_the_server_did_not_finish(fresh_cluster: FreshCluster, tmp_path: Path) -> None:
    server = fresh_cluster()
    create_table_to_dump(server)
    with agent(server.dsn(), tmp_path) as running:
        watch = running.watch()
        with dump(server) as held:
            watch.until(lambda _: (seen := jobs_part(watch)) is not None and seen.running, what="a dump that runs")
            server.stop("immediate")
            held.cancel()
            gone_us = SYSTEM.mono_us()
            # Its program may have been seen before it went; what was seen so long ago no longer counts.
            watch.until(lambda frame: frame.mono_us - gone_us > OBSERVATION_MAX_AGE_US, what="a look that is old")
            server.start()
            event = watch.event("job.ended")
        seen = jobs_part(watch)
    assert (event.details["ended_us"], event.details["seconds"], event.details["ok"]) == (None, None, None)
    assert "its end time is unknown" in event.text
    assert seen is not None and seen.past == []
