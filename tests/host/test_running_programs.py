"""Programs of real dumps are found with what they were asked for, whoever started them, and never with a password."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dba_console.jobs.following.pipeline import read_flow
from dba_console.jobs.following.program_arguments import command_text
from dba_console.jobs.following.running_programs import SCAN_TURNS, ProgramScanner
from dba_console.jobs.following.session_matching import SessionProcesses
from tests.background import session, wait_until
from tests.host.held_jobs import LIMIT_S, PASSWORD, Ground, environment, of, program, quoted
from tests.requirements import require_tool
from tests.sql import query

pytestmark = pytest.mark.xdist_group("host/jobs")


def test_a_parallel_dump_is_one_program_with_its_workers_sessions_and_files(ground: Ground) -> None:
    with ground.held(ground.dump("-Fd", "-j2", "--file=under way"), 2) as job:
        found = program(ground, "pg_dump")
        assert found.pid == job.process.pid
        assert (len(found.workers), found.under, found.root, found.unknown) == (2, None, "", ())
        told = found.arguments
        assert (told.format, told.jobs, told.compression) == ("directory", 2, "gzip")
        assert (told.database, told.schemas, told.selected) == ("full_one", ("hold",), True)
        assert found.absolute_path(told.output or "") == str(ground.directory / "under way")
        clients = SessionProcesses().read(job.backends(), found.pids)
        assert set(clients.values()) == set(found.pids) and set(clients) == job.backends()
        assert {clients[pid] for pid in job.held_backends()} == set(found.workers)
        flow = read_flow(found)
        assert {one.pid for one in flow.outputs} == set(found.workers)
        assert {Path(one.path).parent for one in flow.outputs} == {ground.directory / "under way"}
        assert flow.inputs == [] and flow.unknown == []


def test_a_password_in_the_arguments_reaches_no_record(ground: Ground) -> None:
    uri = f"postgresql://job%20dumper:{PASSWORD}@127.0.0.1:{ground.cluster.port}/full_one"
    assert PASSWORD in ground.tcp()
    with ground.held(ground.dump("-f", "over tcp", dsn=ground.tcp()), 1) as job:
        found = program(ground, "pg_dump")
        told = json.dumps(dataclasses.asdict(found), ensure_ascii=False)
        assert "sesame" not in told and "********" in (found.command or "")
        assert found.arguments.database == "full_one"
        assert SessionProcesses().read(job.backends(), found.pids) == {next(iter(job.backends())): found.pid}
    assert "sesame" not in command_text("psql", ["psql", uri, "-W", PASSWORD])


def test_pg_dumpall_is_the_parent_of_the_dump_of_each_database(ground: Ground) -> None:
    """pg_dumpall gives no --enable-row-security on, so it is stopped by a table somebody has locked."""
    with session(ground.cluster, dbname="full_one") as keeper:
        keeper.execute("begin; lock table hold.one in access exclusive mode")
        command = [ground.path("pg_dumpall"), "-f", "all.sql", "-d", ground.dsn("postgres")]
        process = subprocess.Popen(
            command, cwd=ground.directory, env=environment(), stderr=subprocess.DEVNULL, start_new_session=True
        )
        try:
            waits = "select 1 from pg_stat_activity where wait_event_type = 'Lock' and application_name = 'pg_dump'"
            wait_until(lambda: query(ground.cluster, waits), LIMIT_S, what="pg_dump waiting for a lock")
            found = program(ground, "pg_dump")
            assert (found.under, found.arguments.database, found.arguments.format) == (process.pid, "full_one", "plain")
            assert program(ground, "pg_dumpall").pid == process.pid
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(LIMIT_S)
            keeper.execute("rollback")
    wait_until(lambda: not [one for one in ProgramScanner().scan() if of(ground, one)], LIMIT_S, what="the end of both")


def test_a_shell_that_execs_a_dump_is_found(ground: Ground) -> None:
    """Long known as a shell, it turns into a dump under the same process id."""
    script = f"read go; exec {quoted(ground.path('psql'), '-X', '-d', ground.dsn('postgres'), '-f', '-')}"
    with subprocess.Popen(["bash", "-c", script], cwd=ground.directory, stdin=subprocess.PIPE, bufsize=0) as process:
        assert process.stdin is not None
        programs = ProgramScanner()
        for _ in range(SCAN_TURNS):
            assert not [one for one in programs.scan() if of(ground, one)]
        process.stdin.write(b"go\n")
        name = Path(f"/proc/{process.pid}/comm")
        wait_until(lambda: name.read_text() == "psql\n", LIMIT_S, what="the shell becoming psql")
        seen = [any(one.pid == process.pid for one in programs.scan()) for _ in range(SCAN_TURNS)]
        assert any(seen) and seen == sorted(seen), "found within so many looks, and from then on"
        process.stdin.close()
        assert process.wait(LIMIT_S) == 0


STRANGER = """
import os, sys
from dba_console.jobs.following.session_matching import SessionProcesses
from dba_console.jobs.following.pipeline import read_flow
from dba_console.jobs.following.running_programs import ProgramScanner
from dba_console.jobs.following.stderr_reader import StderrReader
os.setgroups([])
os.setgid(61234)
os.setuid(61234)
pid, backend = int(sys.argv[1]), int(sys.argv[2])
(found,) = [one for one in ProgramScanner("/proc").scan() if one.pid == pid]
print(found.kind, found.arguments.database, found.version, found.directory)
print(*found.unknown)
flow, peers = read_flow(found), SessionProcesses()
print(flow.inputs, flow.outputs, peers.read([backend], found.pids), "root" in peers.notes[backend])
print(StderrReader().read_new([found])[pid].unknown)
"""


BESIDE = """
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
def test_a_tcp_session_is_identified_without_the_rights_of_the_server_user(ground: Ground) -> None:
    """Who dumps, and who watches, is one user; the server is another's."""
    with ground.held(as_user(61234, ground.dump(dsn=ground.tcp())), 1) as job:
        (backend,) = job.backends()
        done = subprocess.run(
            [sys.executable, "-c", BESIDE, str(backend), str(job.process.pid)],
            capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2],
        )  # fmt: skip
    assert done.stdout.splitlines() == [f"{{{backend}: {job.process.pid}}} {{}}"] * 2, done.stderr


def as_user(uid: int, words: list[str]) -> list[str]:
    return [require_tool("setpriv"), f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--", *words]


@pytest.mark.root
def test_a_dump_of_another_user_is_shown_and_its_hidden_parts_are_reported(ground: Ground) -> None:
    with ground.held(ground.dump("-f", "of root"), 1) as job:
        (backend,) = job.backends()
        done = subprocess.run(
            [sys.executable, "-c", STRANGER, str(job.process.pid), str(backend)],
            capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2],
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("pg_dump full_one ") and lines[0].endswith(" None")
    assert "belongs to root" in lines[1] and "visible only to that user and root" in lines[1]
    assert lines[2] == "[] [] {} True"
    assert lines[3] == f"the messages of process {job.process.pid} are readable only by its user and root"


def test_an_exited_program_is_no_longer_found(ground: Ground) -> None:
    programs = ProgramScanner()
    with ground.held(ground.dump("-f", "once"), 1):
        assert program(ground, "pg_dump", programs)
    assert not [one for one in programs.scan() if of(ground, one)]
    assert os.path.getsize(ground.directory / "once") > 1_000_000
