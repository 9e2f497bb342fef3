"""What a dump or restore reads and writes is found through its pipes, at the very place it is at."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from dba_console.jobs.following.dump_progress import DumpOutput, dump_id_of
from dba_console.jobs.following.pipeline import DataFlow, Pipelines
from dba_console.jobs.following.session_matching import SessionProcesses
from tests.background import session, wait_until
from tests.host.held_jobs import LIMIT_S, ROWS, Ground, program, quoted

pytestmark = pytest.mark.xdist_group("host/jobs")


def flow_of(ground: Ground, kind: str) -> DataFlow:
    found = program(ground, kind)
    return Pipelines().read_flows([found])[found.pid]


def parts(ground: Ground) -> list[Path]:
    return sorted(ground.directory.glob("part.a?"))


def restored(ground: Ground, database: str) -> bool:
    return ground.rows(database) == 2 * ROWS


def test_a_dump_compressed_through_a_pipe_is_followed_to_its_file(ground: Ground) -> None:
    with ground.held(f"{quoted(*ground.dump())} | gzip > 'out of pipe.gz'", 1):
        flow = flow_of(ground, "pg_dump")
        (written,) = flow.outputs
        assert written.path == str(ground.directory / "out of pipe.gz")
        assert written.program == "gzip" and flow.through == [f"gzip (process {written.pid})"]
        assert flow.unknown == [] and flow.sink_pid is None


def test_a_dump_into_a_file_opened_by_the_shell_is_followed_too(ground: Ground) -> None:
    with ground.held(f"{quoted(*ground.dump('-Fc'))} > shell.dump 2> shell.log", 1):
        flow = flow_of(ground, "pg_dump")
        assert [one.path for one in flow.outputs] == [str(ground.directory / "shell.dump")]
        assert 0 < flow.outputs[0].size <= DumpOutput(flow.outputs[0].path).measure().size


def test_a_dump_into_shared_memory_is_followed_like_any_other(ground: Ground) -> None:
    """It lies below /dev, where there are no files else."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place, ground.held(ground.dump("-Fc", "-f", f"{place}/c"), 1):
        assert [one.path for one in flow_of(ground, "pg_dump").outputs] == [f"{place}/c"]


def test_a_dump_into_a_named_pipe_is_followed_to_the_file_at_its_other_end(ground: Ground) -> None:
    os.mkfifo(ground.directory / "drain")
    with ground.held(f"cat drain > drained & {quoted(*ground.dump('-f', 'drain'))}; ended=$?; wait; exit $ended", 1):
        flow = flow_of(ground, "pg_dump")
        assert [(one.path, one.program) for one in flow.outputs] == [(str(ground.directory / "drained"), "cat")]
        assert flow.unknown == []
    assert b"\n-- PostgreSQL database dump complete\n" in (ground.directory / "drained").read_bytes()


def test_each_worker_of_a_restore_has_its_table_file_and_session(ground: Ground) -> None:
    target = ground.target()
    command = [ground.path("pg_restore"), "-a", "-j2", "-d", ground.dsn(target), "d"]
    with ground.held(command, 2, target) as job:
        found = program(ground, "pg_restore")
        assert (found.arguments.input, found.arguments.to_database) == ("d", True)
        flow = Pipelines().read_flows([found])[found.pid]
        clients = SessionProcesses().read(job.held_backends(), found.pids)
        assert {one.pid for one in flow.inputs} == set(clients.values()) == set(found.workers)
        assert all(0 < one.pos < one.size for one in flow.inputs)
        ids = {dump_id_of(one.path) for one in flow.inputs}
        assert len(ids) == 2 and None not in ids
        assert flow.outputs == [] and flow.unknown == []
    assert restored(ground, target)


def test_a_psql_restore_of_a_compressed_file_has_the_progress_of_that_file(ground: Ground) -> None:
    target = ground.target()
    with ground.held(f"zcat p.sql.gz | {quoted(ground.path('psql'), '-qX', '-d', ground.dsn(target))}", 1, target):
        flow = flow_of(ground, "psql")
        (reading,) = flow.inputs
        assert reading.path == str(ground.directory / "p.sql.gz")
        assert 0 < reading.bytes_read < reading.total == os.path.getsize(ground.directory / "p.sql.gz")
        assert flow.source_pid is None and flow.unknown == []
    assert restored(ground, target)


def test_parts_of_a_split_dump_are_counted_together(ground: Ground) -> None:
    ground.ran("split", "-n", "4", "p.sql.gz", "part.")
    target = ground.target()
    command = f"cat part.a? | gunzip | {quoted(ground.path('psql'), '-qX', '-d', ground.dsn(target))}"
    with ground.held(command, 1, target):
        (reading,) = flow_of(ground, "psql").inputs
        assert reading.total == os.path.getsize(ground.directory / "p.sql.gz")
        assert reading.before in [
            sum(os.path.getsize(ground.directory / f"part.a{i}") for i in "abcd"[:n]) for n in range(4)
        ]
        assert 0 < reading.bytes_read < reading.total
    assert restored(ground, target)


def test_psql_reads_its_own_file(ground: Ground) -> None:
    target = ground.target()
    with ground.held([ground.path("psql"), "-qX", "-d", ground.dsn(target), "-f", "p.sql"], 1, target):
        (reading,) = flow_of(ground, "psql").inputs
        assert reading.path == str(ground.directory / "p.sql") and 0 < reading.bytes_read < reading.total
    assert restored(ground, target)


def test_nothing_is_consumed_from_a_named_pipe_and_the_file_behind_it_is_found(ground: Ground) -> None:
    os.mkfifo(ground.directory / "named")
    target = ground.target()
    restore = quoted(ground.path("psql"), "-qX", "-d", ground.dsn(target), "-f", "named")
    with ground.held(f"cat p.sql > named & {restore}; ended=$?; wait; exit $ended", 1, target):
        pipelines, found = Pipelines(), program(ground, "psql")
        for _ in range(3):
            (reading,) = pipelines.read_flows([found])[found.pid].inputs
        assert reading.path == str(ground.directory / "p.sql") and 0 < reading.bytes_read < reading.total
    assert restored(ground, target)


def test_another_process_at_the_other_end_of_a_pipe_is_found_in_the_second_scan(ground: Ground) -> None:
    """It is searched for among all processes of the host, which is not done for a pipe that is gone a moment later."""
    os.mkfifo(ground.directory / "far")
    target = ground.target()
    restore = quoted(ground.path("psql"), "-qX", "-d", ground.dsn(target), "-f", "far")
    with ground.held(f"setsid -f timeout 300 bash -c 'exec cat p.sql > far'; exec {restore}", 1, target):
        pipelines, found = Pipelines(), program(ground, "psql")
        first, second = (pipelines.read_flows([found])[found.pid] for _ in range(2))
        assert (first.inputs, first.unknown) == ([], [])
        assert [one.path for one in second.inputs] == [str(ground.directory / "p.sql")]
    assert restored(ground, target)


def test_a_dump_piped_into_a_restore_is_reported_on_both_sides(ground: Ground) -> None:
    target = ground.target()
    command = f"{quoted(*ground.dump('-a'))} | {quoted(ground.path('psql'), '-qX', '-d', ground.dsn(target))}"
    with ground.held(command, 1):
        dump, restore = program(ground, "pg_dump"), program(ground, "psql")
        flows = Pipelines().read_flows([dump, restore])
        assert flows[dump.pid].sink_pid == restore.pid
        assert flows[restore.pid].source_pid == dump.pid
        assert flows[restore.pid].unknown == [] and flows[dump.pid].unknown == []
    assert restored(ground, target)


def test_when_the_pipe_is_empty_all_of_its_file_has_been_read(ground: Ground) -> None:
    """As long as its last statement takes, which for an index may be hours."""
    target = ground.target()
    whole = ground.directory / "whole.sql"
    whole.write_text((ground.directory / "p.sql").read_text() + "select from pg_advisory_lock_shared(5);\n")
    psql = quoted(ground.path("psql"), "-qX", "-d", ground.dsn(target))
    pipelines = Pipelines()
    with ground.held(f"cat whole.sql | {psql}", 1, target) as job, session(ground.cluster, dbname=target) as keeper:
        keeper.execute("select pg_advisory_lock(5)")
        found = program(ground, "psql")
        (reading,) = pipelines.read_flows([found])[found.pid].inputs
        assert reading.bytes_read < reading.total
        job.let_go()
        gone = Path(f"/proc/{reading.pid}/fd/{reading.fd}")
        wait_until(lambda: not gone.is_symlink(), LIMIT_S, what="the end of cat")
        wait_until(lambda: job.waiting() == 1, LIMIT_S, what="the last statement")
        flow = pipelines.read_flows([found])[found.pid]
        assert [one.bytes_read for one in flow.inputs] == [whole.stat().st_size]
        assert flow.unknown == []
    assert restored(ground, target)


def size_of(directory: Path) -> int:
    return sum(file.stat().st_size for file in directory.iterdir())


def test_the_files_of_a_dump_are_reported_when_they_are_started_and_finished(ground: Ground) -> None:
    with ground.held(ground.dump("-Fd", "-f", "growing"), 1):
        found = program(ground, "pg_dump")
        output, pipelines = DumpOutput(str(ground.directory / "growing")), Pipelines()
        writings = pipelines.read_flows([found])[found.pid].outputs
        names = {os.path.basename(one.path) for one in writings}
        first = output.measure(names)
        assert [one.name for one in first.running] == sorted(names) and first.finished == ()
        before = size_of(ground.directory / "growing")
        assert before <= output.measure(names).size <= size_of(ground.directory / "growing")

    def finished() -> set[int]:
        seen.update(one.dump_id for one in output.measure(()).finished)
        return seen if len(seen) == 2 else set()

    seen: set[int] = set()
    wait_until(finished, LIMIT_S, what="both files finished")
