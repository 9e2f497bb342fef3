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
from tests.host.held_jobs import LIMIT_S, ROWS, JobServer, program, shell_quoted

pytestmark = pytest.mark.xdist_group("host/jobs")


def flow_of(job_server: JobServer, kind: str) -> DataFlow:
    found = program(job_server, kind)
    return Pipelines().read_flows([found])[found.pid]


def parts(job_server: JobServer) -> list[Path]:
    return sorted(job_server.directory.glob("part.a?"))


def is_restored(job_server: JobServer, database: str) -> bool:
    return job_server.rows(database) == 2 * ROWS


def test_a_dump_compressed_through_a_pipe_is_followed_to_its_file(job_server: JobServer) -> None:
    with job_server.held_job(f"{shell_quoted(*job_server.dump_command())} | gzip > 'out of pipe.gz'", 1):
        flow = flow_of(job_server, "pg_dump")
        (written,) = flow.outputs
        assert written.path == str(job_server.directory / "out of pipe.gz")
        assert written.program == "gzip" and flow.through == [f"gzip (process {written.pid})"]
        assert flow.unknown == [] and flow.sink_pid is None


def test_a_dump_into_a_file_opened_by_the_shell_is_followed_too(job_server: JobServer) -> None:
    with job_server.held_job(f"{shell_quoted(*job_server.dump_command('-Fc'))} > shell.dump 2> shell.log", 1):
        flow = flow_of(job_server, "pg_dump")
        assert [one.path for one in flow.outputs] == [str(job_server.directory / "shell.dump")]
        assert 0 < flow.outputs[0].size <= DumpOutput(flow.outputs[0].path).measure().size


def test_a_dump_into_shared_memory_is_followed_like_any_other(job_server: JobServer) -> None:
    """It lies below /dev, where there are no files else."""
    with (
        tempfile.TemporaryDirectory(dir="/dev/shm") as place,
        job_server.held_job(job_server.dump_command("-Fc", "-f", f"{place}/c"), 1),
    ):
        assert [one.path for one in flow_of(job_server, "pg_dump").outputs] == [f"{place}/c"]


def test_a_dump_into_a_named_pipe_is_followed_to_the_file_at_its_other_end(job_server: JobServer) -> None:
    os.mkfifo(job_server.directory / "drain")
    with job_server.held_job(
        f"cat drain > drained & {shell_quoted(*job_server.dump_command('-f', 'drain'))}; ended=$?; wait; exit $ended", 1
    ):
        flow = flow_of(job_server, "pg_dump")
        assert [(one.path, one.program) for one in flow.outputs] == [(str(job_server.directory / "drained"), "cat")]
        assert flow.unknown == []
    assert b"\n-- PostgreSQL database dump complete\n" in (job_server.directory / "drained").read_bytes()


def test_each_worker_of_a_restore_has_its_table_file_and_session(job_server: JobServer) -> None:
    target = job_server.new_target_database()
    command = [job_server.program_path("pg_restore"), "-a", "-j2", "-d", job_server.dsn(target), "d"]
    with job_server.held_job(command, 2, target) as job:
        found = program(job_server, "pg_restore")
        assert (found.arguments.input, found.arguments.to_database) == ("d", True)
        flow = Pipelines().read_flows([found])[found.pid]
        clients = SessionProcesses().read(job.held_backends(), found.pids)
        assert {one.pid for one in flow.inputs} == set(clients.values()) == set(found.workers)
        assert all(0 < one.pos < one.size for one in flow.inputs)
        ids = {dump_id_of(one.path) for one in flow.inputs}
        assert len(ids) == 2 and None not in ids
        assert flow.outputs == [] and flow.unknown == []
    assert is_restored(job_server, target)


def test_a_psql_restore_of_a_compressed_file_has_the_progress_of_that_file(job_server: JobServer) -> None:
    target = job_server.new_target_database()
    with job_server.held_job(
        f"zcat p.sql.gz | {shell_quoted(job_server.program_path('psql'), '-qX', '-d', job_server.dsn(target))}",
        1,
        target,
    ):
        flow = flow_of(job_server, "psql")
        (reading,) = flow.inputs
        assert reading.path == str(job_server.directory / "p.sql.gz")
        assert 0 < reading.bytes_read < reading.total == os.path.getsize(job_server.directory / "p.sql.gz")
        assert flow.source_pid is None and flow.unknown == []
    assert is_restored(job_server, target)


def test_parts_of_a_split_dump_are_counted_together(job_server: JobServer) -> None:
    job_server.run_program("split", "-n", "4", "p.sql.gz", "part.")
    target = job_server.new_target_database()
    command = (
        f"cat part.a? | gunzip | {shell_quoted(job_server.program_path('psql'), '-qX', '-d', job_server.dsn(target))}"
    )
    with job_server.held_job(command, 1, target):
        (reading,) = flow_of(job_server, "psql").inputs
        assert reading.total == os.path.getsize(job_server.directory / "p.sql.gz")
        assert reading.before in [
            sum(os.path.getsize(job_server.directory / f"part.a{i}") for i in "abcd"[:n]) for n in range(4)
        ]
        assert 0 < reading.bytes_read < reading.total
    assert is_restored(job_server, target)


def test_psql_reads_its_own_file(job_server: JobServer) -> None:
    target = job_server.new_target_database()
    with job_server.held_job(
        [job_server.program_path("psql"), "-qX", "-d", job_server.dsn(target), "-f", "p.sql"], 1, target
    ):
        (reading,) = flow_of(job_server, "psql").inputs
        assert reading.path == str(job_server.directory / "p.sql") and 0 < reading.bytes_read < reading.total
    assert is_restored(job_server, target)


def test_nothing_is_consumed_from_a_named_pipe_and_the_file_behind_it_is_found(job_server: JobServer) -> None:
    os.mkfifo(job_server.directory / "named")
    target = job_server.new_target_database()
    restore = shell_quoted(job_server.program_path("psql"), "-qX", "-d", job_server.dsn(target), "-f", "named")
    with job_server.held_job(f"cat p.sql > named & {restore}; ended=$?; wait; exit $ended", 1, target):
        pipelines, found = Pipelines(), program(job_server, "psql")
        for _ in range(3):
            (reading,) = pipelines.read_flows([found])[found.pid].inputs
        assert reading.path == str(job_server.directory / "p.sql") and 0 < reading.bytes_read < reading.total
    assert is_restored(job_server, target)


def test_another_process_at_the_other_end_of_a_pipe_is_found_in_the_second_scan(job_server: JobServer) -> None:
    """It is searched for among all processes of the host, which is not done for a pipe that is gone a moment later."""
    os.mkfifo(job_server.directory / "far")
    target = job_server.new_target_database()
    restore = shell_quoted(job_server.program_path("psql"), "-qX", "-d", job_server.dsn(target), "-f", "far")
    with job_server.held_job(f"setsid -f timeout 300 bash -c 'exec cat p.sql > far'; exec {restore}", 1, target):
        pipelines, found = Pipelines(), program(job_server, "psql")
        first, second = (pipelines.read_flows([found])[found.pid] for _ in range(2))
        assert (first.inputs, first.unknown) == ([], [])
        assert [one.path for one in second.inputs] == [str(job_server.directory / "p.sql")]
    assert is_restored(job_server, target)


def test_a_dump_piped_into_a_restore_is_reported_on_both_sides(job_server: JobServer) -> None:
    target = job_server.new_target_database()
    restoring = shell_quoted(job_server.program_path("psql"), "-qX", "-d", job_server.dsn(target))
    command = f"{shell_quoted(*job_server.dump_command('-a'))} | {restoring}"
    with job_server.held_job(command, 1):
        dump, restore = program(job_server, "pg_dump"), program(job_server, "psql")
        flows = Pipelines().read_flows([dump, restore])
        assert flows[dump.pid].sink_pid == restore.pid
        assert flows[restore.pid].source_pid == dump.pid
        assert flows[restore.pid].unknown == [] and flows[dump.pid].unknown == []
    assert is_restored(job_server, target)


def test_when_the_pipe_is_empty_all_of_its_file_has_been_read(job_server: JobServer) -> None:
    """As long as its last statement takes, which for an index may be hours."""
    target = job_server.new_target_database()
    whole = job_server.directory / "whole.sql"
    whole.write_text((job_server.directory / "p.sql").read_text() + "select from pg_advisory_lock_shared(5);\n")
    psql = shell_quoted(job_server.program_path("psql"), "-qX", "-d", job_server.dsn(target))
    pipelines = Pipelines()
    with (
        job_server.held_job(f"cat whole.sql | {psql}", 1, target) as job,
        session(job_server.cluster, dbname=target) as keeper,
    ):
        keeper.execute("select pg_advisory_lock(5)")
        found = program(job_server, "psql")
        (reading,) = pipelines.read_flows([found])[found.pid].inputs
        assert reading.bytes_read < reading.total
        job.release()
        gone = Path(f"/proc/{reading.pid}/fd/{reading.fd}")
        wait_until(lambda: not gone.is_symlink(), LIMIT_S, what="the end of cat")
        wait_until(lambda: job.waiting() == 1, LIMIT_S, what="the last statement")
        flow = pipelines.read_flows([found])[found.pid]
        assert [one.bytes_read for one in flow.inputs] == [whole.stat().st_size]
        assert flow.unknown == []
    assert is_restored(job_server, target)


def size_of(directory: Path) -> int:
    return sum(file.stat().st_size for file in directory.iterdir())


def test_the_files_of_a_dump_are_reported_when_they_are_started_and_finished(job_server: JobServer) -> None:
    with job_server.held_job(job_server.dump_command("-Fd", "-f", "growing"), 1):
        found = program(job_server, "pg_dump")
        output, pipelines = DumpOutput(str(job_server.directory / "growing")), Pipelines()
        writings = pipelines.read_flows([found])[found.pid].outputs
        names = {os.path.basename(one.path) for one in writings}
        first = output.measure(names)
        assert [one.name for one in first.running] == sorted(names) and first.finished == ()
        before = size_of(job_server.directory / "growing")
        assert before <= output.measure(names).size <= size_of(job_server.directory / "growing")

    def finished() -> set[int]:
        seen.update(one.dump_id for one in output.measure(()).finished)
        return seen if len(seen) == 2 else set()

    seen: set[int] = set()
    wait_until(finished, LIMIT_S, what="both files finished")
