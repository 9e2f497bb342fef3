"""Programs of real dumps are found with their options, whichever user started them, and never with a password."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dba_console.jobs.following.pipeline import Pipelines
from dba_console.jobs.following.program_arguments import command_text
from dba_console.jobs.following.program_scanner import SCAN_TURNS, ProgramScanner
from dba_console.jobs.following.session_matching import SessionProcesses
from tests.background import session, wait_until
from tests.host.held_jobs import LIMIT_S, PASSWORD, JobServer, belongs_to, environment, program, shell_quoted
from tests.requirements import require_tool
from tests.sql import query

pytestmark = pytest.mark.xdist_group("host/jobs")


def test_a_parallel_dump_is_one_program_with_its_workers_sessions_and_files(job_server: JobServer) -> None:
    with job_server.held_job(job_server.dump_command("-Fd", "-j2", "--file=under way"), 2) as job:
        found = program(job_server, "pg_dump")
        assert found.pid == job.process.pid
        assert (len(found.workers), found.under, found.root, found.unknown) == (2, None, "", ())
        reported = found.arguments
        assert (reported.format, reported.jobs, reported.compression) == ("directory", 2, "gzip")
        assert (reported.database, reported.schemas, reported.selected) == ("full_one", ("hold",), True)
        assert found.absolute_path(reported.output or "") == str(job_server.directory / "under way")
        clients = SessionProcesses().read(job.backends(), found.pids)
        assert set(clients.values()) == set(found.pids) and set(clients) == job.backends()
        assert {clients[pid] for pid in job.held_backends()} == set(found.workers)
        flow = Pipelines().read_flows([found])[found.pid]
        assert {one.pid for one in flow.outputs} == set(found.workers)
        assert {Path(one.path).parent for one in flow.outputs} == {job_server.directory / "under way"}
        assert flow.inputs == [] and flow.unknown == []


def test_a_password_in_the_arguments_reaches_no_record(job_server: JobServer) -> None:
    uri = f"postgresql://job%20dumper:{PASSWORD}@127.0.0.1:{job_server.cluster.port}/full_one"
    assert PASSWORD in job_server.tcp_dsn()
    with job_server.held_job(job_server.dump_command("-f", "over tcp", dsn=job_server.tcp_dsn()), 1) as job:
        found = program(job_server, "pg_dump")
        reported = json.dumps(dataclasses.asdict(found), ensure_ascii=False)
        assert "sesame" not in reported and "********" in (found.command or "")
        assert found.arguments.database == "full_one"
        assert SessionProcesses().read(job.backends(), found.pids) == {next(iter(job.backends())): found.pid}
    assert "sesame" not in command_text("psql", ["psql", uri, "-W", PASSWORD])


def test_pg_dumpall_is_the_parent_of_the_dump_of_each_database(job_server: JobServer) -> None:
    """pg_dumpall gives no --enable-row-security on, so it is stopped by a table somebody has locked."""
    with session(job_server.cluster, dbname="full_one") as keeper:
        keeper.execute("begin; lock table hold.one in access exclusive mode")
        command = [job_server.program_path("pg_dumpall"), "-f", "all.sql", "-d", job_server.dsn("postgres")]
        process = subprocess.Popen(
            command, cwd=job_server.directory, env=environment(), stderr=subprocess.DEVNULL, start_new_session=True
        )
        try:
            waits = "select 1 from pg_stat_activity where wait_event_type = 'Lock' and application_name = 'pg_dump'"
            wait_until(lambda: query(job_server.cluster, waits), LIMIT_S, what="pg_dump waiting for a lock")
            found = program(job_server, "pg_dump")
            assert (found.under, found.arguments.database, found.arguments.format) == (process.pid, "full_one", "plain")
            assert program(job_server, "pg_dumpall").pid == process.pid
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(LIMIT_S)
            keeper.execute("rollback")
    wait_until(
        lambda: not [one for one in ProgramScanner().scan() if belongs_to(job_server, one)],
        LIMIT_S,
        what="the end of both",
    )


def test_a_shell_that_execs_a_dump_is_found(job_server: JobServer) -> None:
    """Long known as a shell, it turns into a dump under the same process id."""
    psql = (job_server.program_path("psql"), "-X", "-d", job_server.dsn("postgres"), "-f", "-")
    script = f"read go; exec {shell_quoted(*psql)}"
    with subprocess.Popen(
        ["bash", "-c", script], cwd=job_server.directory, stdin=subprocess.PIPE, bufsize=0
    ) as process:
        assert process.stdin is not None
        programs = ProgramScanner()
        for _ in range(SCAN_TURNS):
            assert not [one for one in programs.scan() if belongs_to(job_server, one)]
        process.stdin.write(b"go\n")
        name = Path(f"/proc/{process.pid}/comm")
        wait_until(lambda: name.read_text() == "psql\n", LIMIT_S, what="the shell becoming psql")
        seen = [any(one.pid == process.pid for one in programs.scan()) for _ in range(SCAN_TURNS)]
        assert any(seen) and seen == sorted(seen), "found within so many looks, and from then on"
        process.stdin.close()
        assert process.wait(LIMIT_S) == 0


UNRELATED_PROGRAM = """
import os, sys
from dba_console.jobs.following.session_matching import SessionProcesses
from dba_console.jobs.following.pipeline import Pipelines
from dba_console.jobs.following.program_scanner import ProgramScanner
from dba_console.jobs.following.stderr_reader import StderrReader
os.setgroups([])
os.setgid(61234)
os.setuid(61234)
pid, backend = int(sys.argv[1]), int(sys.argv[2])
(found,) = [one for one in ProgramScanner("/proc").scan() if one.pid == pid]
print(found.kind, found.arguments.database, found.version, found.directory)
print(*found.unknown)
flow, peers = Pipelines().read_flows([found])[found.pid], SessionProcesses()
print(flow.inputs, flow.outputs, peers.read([backend], found.pids), "root" in peers.notes[backend])
print(StderrReader().read_new([found])[pid].unknown)
"""


OTHER_PROGRAM = """
import os, sys
from dba_console.jobs.following.session_matching import SessionProcesses
os.setgroups([])
os.setgid(61234)
os.setuid(61234)
peers = SessionProcesses()
for _ in range(2):
    print(peers.read([int(sys.argv[1])], [int(sys.argv[2])]), peers.notes)
"""


@pytest.mark.root
def test_a_tcp_session_is_identified_without_the_rights_of_the_server_user(job_server: JobServer) -> None:
    """Who dumps, and who watches, is one user; the server is another's."""
    with job_server.held_job(command_as_user(61234, job_server.dump_command(dsn=job_server.tcp_dsn())), 1) as job:
        (backend,) = job.backends()
        done = subprocess.run(
            [sys.executable, "-c", OTHER_PROGRAM, str(backend), str(job.process.pid)],
            capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2],
        )  # fmt: skip
    assert done.stdout.splitlines() == [f"{{{backend}: {job.process.pid}}} {{}}"] * 2, done.stderr


def command_as_user(uid: int, words: list[str]) -> list[str]:
    return [require_tool("setpriv"), f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--", *words]


@pytest.mark.root
def test_a_dump_of_another_user_is_shown_and_its_hidden_parts_are_reported(job_server: JobServer) -> None:
    with job_server.held_job(job_server.dump_command("-f", "of root"), 1) as job:
        (backend,) = job.backends()
        done = subprocess.run(
            [sys.executable, "-c", UNRELATED_PROGRAM, str(job.process.pid), str(backend)],
            capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2],
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("pg_dump full_one ") and lines[0].endswith(" None")
    assert "belongs to root" in lines[1] and "visible only to that user and root" in lines[1]
    assert lines[2] == "[] [] {} True"
    assert lines[3] == f"the messages of process {job.process.pid} are readable only by its user and root"


def test_an_exited_program_is_no_longer_found(job_server: JobServer) -> None:
    programs = ProgramScanner()
    with job_server.held_job(job_server.dump_command("-f", "once"), 1):
        assert program(job_server, "pg_dump", programs)
    assert not [one for one in programs.scan() if belongs_to(job_server, one)]
    assert os.path.getsize(job_server.directory / "once") > 1_000_000
