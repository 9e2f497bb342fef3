"""What dumps and restores say is read where it can be, from the right line on, and never with a secret in it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dba_console.jobs.following.job_detection import ObservationRequest
from dba_console.jobs.following.program_scanner import RunningProgram
from dba_console.jobs.following.session_matching import SessionMatcher, program_key
from dba_console.jobs.following.stderr_reader import NewMessages, StderrReader
from dba_console.keeper.command_status import wait
from tests.background import session, wait_until
from tests.host.held_jobs import LIMIT_S, JobServer, environment, program, shell_quoted
from tests.keeper.keepers import CommandStarter
from tests.readings import activity, sessions

pytestmark = pytest.mark.xdist_group("host/jobs")


def texts(message: NewMessages) -> list[str]:
    return [line.text for line in message.lines]


def test_its_own_log_is_read_from_its_first_to_its_last_line(job_server: JobServer) -> None:
    logs = StderrReader()
    with job_server.held_job(f"{shell_quoted(*job_server.dump_command('-v', '-f', 'spoken'))} 2> spoken.log", 1):
        found = program(job_server, "pg_dump")
        first = logs.read_new([found])[found.pid]
        assert first.source == f"stderr in {job_server.directory / 'spoken.log'}"
        assert first.from_start and first.old and first.unknown is None
        assert any(text.startswith("pg_dump: last built-in OID is ") for text in texts(first))
        assert logs.read_new([found])[found.pid].lines == ()
    rest = texts(logs.read_last(found))
    assert 'pg_dump: dumping contents of table "hold.two"' in rest
    assert texts(first) + rest == (job_server.directory / "spoken.log").read_text().splitlines()


def test_in_a_log_of_a_script_only_this_run_is_read(job_server: JobServer) -> None:
    earlier = 'pg_dump: last built-in OID is 1\npg_dump: dumping contents of table "of.yesterday"\n'
    (job_server.directory / "all.log").write_text(earlier)
    with job_server.held_job(f"({shell_quoted(*job_server.dump_command('-v', '-f', 'again'))}) >> all.log 2>&1", 1):
        found = program(job_server, "pg_dump")
        message = StderrReader().read_new([found])[found.pid]
        assert message.from_start and texts(message)[0].startswith("pg_dump: last built-in OID is 1")
        assert "of.yesterday" not in " ".join(texts(message))


def test_a_quiet_run_in_a_shared_log_gets_no_earlier_lines(job_server: JobServer) -> None:
    (job_server.directory / "others.log").write_text('pg_dump: dumping contents of table "of.yesterday"\n')
    logs = StderrReader()
    with job_server.held_job(f"{shell_quoted(*job_server.dump_command('-f', 'quiet'))} 2>> others.log", 1):
        found = program(job_server, "pg_dump")
        message = logs.read_new([found])[found.pid]
        assert (message.from_start, message.lines) == (False, ())
        with (job_server.directory / "others.log").open("a") as file:
            file.write("pg_dump: warning: Command was: ALTER ROLE a PASSWORD 'open sesame'\npg_dump: and a hal")
        assert texts(logs.read_new([found])[found.pid]) == [
            "pg_dump: warning: Command was: ALTER ROLE a PASSWORD '********'"
        ]
    assert texts(logs.read_last(found)) == ["pg_dump: and a hal"]


def test_a_rotated_log_is_not_read_as_the_old_one(job_server: JobServer) -> None:
    log = job_server.directory / "rotated.log"
    logs = StderrReader()
    with job_server.held_job(f"{shell_quoted(*job_server.dump_command('-v', '-f', 'rotating'))} 2> rotated.log", 1):
        found = program(job_server, "pg_dump")
        logs.read_new([found])
        os.rename(log, log.with_suffix(".1"))
        log.write_text("somebody else's\n")
        message = logs.read_new([found])[found.pid]
        assert message.lines == () and message.unknown == f"{log} was rotated: it is another file now"


def test_a_restore_that_logs_through_tee_is_read(job_server: JobServer) -> None:
    target = job_server.new_target_database()
    restore = shell_quoted(job_server.program_path("pg_restore"), "-v", "-a", "-d", job_server.dsn(target), "c")
    with job_server.held_job(f"{restore} 2>&1 | tee heard.log > /dev/null", 1, target):
        found = program(job_server, "pg_restore")
        message = StderrReader().read_new([found])[found.pid]
        assert message.source == f"stderr in {job_server.directory / 'heard.log'}"
        assert texts(message)[0] == "pg_restore: connecting to database for restore"


@pytest.mark.parametrize(
    ("options", "where", "expected"),
    [
        (("-f", "silent"), "2> /dev/null", "discarded"),
        (("-f", "silent"), "2> >(cat > /dev/null)", "which cannot be read"),
        ((), "> mixed.sql 2>&1", "the same file as its output"),
    ],
)
def test_if_nothing_can_be_read_the_reason_is_reported(
    job_server: JobServer, options: tuple[str, ...], where: str, expected: str
) -> None:
    with job_server.held_job(f"{shell_quoted(*job_server.dump_command(*options))} {where}", 1):
        found = program(job_server, "pg_dump")
        message = StderrReader().read_new([found])[found.pid]
        assert expected in (message.unknown or "") and message.lines == () and message.source is None


def test_a_command_of_a_run_is_read_from_its_keeper_log_with_its_own_stamps(
    job_server: JobServer, tmp_path: Path
) -> None:
    directory = tmp_path / "runs" / "20261122T091500Z-dump-1a2b" / "steps" / "take.1"
    directory.mkdir(parents=True)
    keep, logs = CommandStarter(tmp_path), StderrReader()
    dumping = shell_quoted(*job_server.dump_command("-v", "-f", "kept"))
    script = f"cd {shell_quoted(str(job_server.directory))} && {dumping}"
    with session(job_server.cluster, dbname="full_one") as holder:
        holder.execute("begin; lock table hold.one in access exclusive mode")
        keep.run_in(directory, script, env=environment() | {"PGHOST": "db2"})
        found = wait_until(lambda: _only_program(job_server), LIMIT_S, what="pg_dump under its keeper")
        message = logs.read_new([found])[found.pid]
        assert message.source == f"keeper in {directory}"
        assert message.run == "20261122T091500Z-dump-1a2b" and message.from_start and not message.old
        _assert_own_session_from_any_address(job_server, found, logs)
        holder.execute("rollback")
        standing = wait(directory, LIMIT_S)
        assert standing.exit is not None and standing.exit.ok
    lines = [*message.lines, *logs.read_last(found).lines]
    assert lines[0].text.startswith("pg_dump: ")
    assert 'pg_dump: dumping contents of table "hold.two"' in [line.text for line in lines]
    assert all(line.stream == "e" for line in lines)


def _assert_own_session_from_any_address(job_server: JobServer, found: RunningProgram, logs: StderrReader) -> None:
    """Its session is its own on a server of another host too, whose clock goes another way."""
    ahead_us = 3_600_000_000
    row = activity(77, "active", application="pg_dump", client="192.0.2.7", database="full_one",
                   backend_start=found.started_us + ahead_us + 50_000)  # fmt: skip
    reading = sessions(row, now_us=found.started_us + ahead_us + 9_000_000)
    on_db2, on_db3 = (
        ObservationRequest(reading, (), None, dsn, here=False, wall_us=found.started_us + 9_000_000, mono_us=1)
        for dsn in ("host=db2", "host=db3")
    )
    assert SessionMatcher(logs.has_keeper).match(on_db2, [found]).sessions == {program_key(found): [row]}
    assert SessionMatcher(logs.has_keeper).match(on_db3, [found]).unmatched == [row], "a run on another server"
    assert SessionMatcher().match(on_db2, [found]).unmatched == [row], "a program of others may be another one"


def _only_program(job_server: JobServer) -> RunningProgram | None:
    try:
        return program(job_server, "pg_dump")
    except ValueError:
        return None
