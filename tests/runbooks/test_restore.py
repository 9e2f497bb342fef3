"""The runbook `restore`, run with real dumps: its settings are always reverted, an error is reported as one."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from dba_console.core.decoding import from_json
from dba_console.recording.run_paths import SUMMARY
from dba_console.runbooks.run_summary import RunSummary
from tests.background import Session, session, wait_until
from tests.requirements import require_tool
from tests.runbooks.dumps import (
    CHECK_KEY,
    DATABASE,
    DumpServer,
    after_doing,
    is_password_absent,
    running_dump_server,
    table_of,
    values_of,
)
from tests.runbooks.runs import AS_ASKED, WAIT_S, AnswerSource, Walk
from tests.runbooks.test_put_back import pending_files

RUNBOOK = "restore"
CHECK_STEP, EXISTING_STEP = "can-it-be-restored-here", "what-is-there-already"
RESTORE, SQL = "restore-it/run", "restore-it/sql"
KEYS = "check-the-keys/run"
ERRORS = "what-could-not-be-restored"
TAKEN = ("maintenance_work_mem", "max_wal_size", "checkpoint_timeout", "autovacuum", "synchronous_commit")
WITH_STATISTICS = 18
"""The version from which on a dump may hold them."""
_COPY_WAITS = f"select 1 from pg_locks where locktype = 'advisory' and objid = {CHECK_KEY} and not granted"


@pytest.fixture(scope="module")
def dump_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DumpServer]:
    with running_dump_server(tmp_path_factory.mktemp("restores")) as made:
        yield made


@pytest.fixture(scope="module")
def archive(dump_server: DumpServer) -> Path:
    dump_server.cluster.psql("analyze", dbname=DATABASE)
    for text in ("revoke temporary on database {} from public", "comment on database {} is 'the shop'",
                 "alter database {} connection limit 77", "alter database {} set work_mem = '7MB'"):  # fmt: skip
        dump_server.cluster.psql(text.format(f'"{DATABASE}"'))
    with_statistics = ("--statistics",) if dump_server.cluster.major >= WITH_STATISTICS else ()
    return dump_server.dump_database("whole", "--format=directory", "--jobs=2", *with_statistics)


@pytest.fixture(scope="module")
def archive_with_broken_key(dump_server: DumpServer) -> Path:
    """A dump in which one key does not hold, as triggers that were switched off leave it."""
    dump_server.cluster.psql("create table orphans (id int references items_2)", dbname=DATABASE)
    dump_server.cluster.psql("set session_replication_role = replica; insert into orphans values (-1)", dbname=DATABASE)
    made = dump_server.dump_database("broken", "--format=custom")
    dump_server.cluster.psql("drop table orphans", dbname=DATABASE)
    return made


def belongings(database: str) -> str:
    """A query for what belongs to a database itself."""
    literal = database.replace("'", "''")
    return (
        "select datdba, datacl, datconnlimit, shobj_description(oid, 'pg_database'), "
        "(select array_agg(setconfig order by setrole) from pg_db_role_setting where setdatabase = d.oid) "
        f"from pg_database d where datname = '{literal}'"
    )


def marks(dump_server: DumpServer) -> list[str]:
    """The databases whose restore is not finished, and the dumps, as the agent reads them."""
    sql = """select datname || ' from ' || substr(c, 23) from pg_db_role_setting
             join pg_database d on d.oid = setdatabase, unnest(setconfig) c where c like 'dba_console.restoring=%'"""
    return dump_server.cluster.psql(sql).splitlines()


def settings(dump_server: DumpServer) -> list[str]:
    return [dump_server.setting(name) for name in TAKEN]


def test_everything_is_restored_its_phases_are_reported_and_the_settings_are_reverted(
    dump_server: DumpServer, archive: Path
) -> None:
    before = settings(dump_server)
    how = "dump" if dump_server.cluster.major >= WITH_STATISTICS else "analyze"
    walk = dump_server.run_headless(
        RUNBOOK, database="a 'copy'", archive=str(archive), jobs="2", speed="fast", statistics=how
    )
    assert walk.code == 0, walk.text
    assert dump_server.cluster.psql("select count(*) from items_1, held", dbname="a 'copy'") == "5000"
    assert (
        dump_server.cluster.psql("select count(*) from pg_stats where tablename = 'items_1'", dbname="a 'copy'") == "3"
    )
    assert settings(dump_server) == before
    assert dump_server.cluster.psql(belongings("a 'copy'")) == dump_server.cluster.psql(belongings(DATABASE))
    assert marks(dump_server) == []
    assert any("autovacuum" in one.text for one in walk.records("block.result", "settings-for-the-restore"))
    found = values_of(walk, RESTORE)
    assert found["errors"] == 0 and found["data_s"] is not None and found["indexes_s"] is not None
    rows = table_of(walk, RESTORE)
    assert {"data", "indexes"} <= {row[1] for row in rows if row[0] == "phase"}
    longest = [row[1] for row in rows if row[0] == "longest"]
    assert "TABLE DATA public.items_1" in longest and any(name.startswith("INDEX public.items_") for name in longest), (
        rows
    )
    assert any("FK CONSTRAINT" in row[1] for row in table_of(walk, KEYS) if row[0] == "longest")
    assert dump_server.cluster.psql("select bool_and(convalidated) from pg_constraint", dbname="a 'copy'") == "t"
    assert is_password_absent(dump_server.watched.console.home), "the password is written down"


def test_ignored_errors_are_reported_and_the_operator_decides(
    dump_server: DumpServer, archive_with_broken_key: Path
) -> None:
    inputs = {"archive": str(archive_with_broken_key), "jobs": "2", "speed": "safe", "statistics": "none"}
    before = settings(dump_server)
    walk = dump_server.run_headless(RUNBOOK, f"{ERRORS}=accept", database="accepted", keys="within", **inputs)
    assert walk.code == 0, walk.text
    assert values_of(walk, RESTORE) | {"exit": 1, "errors": 1} == values_of(walk, RESTORE)
    [reported] = [row[1] for row in table_of(walk, RESTORE) if row[0] == "error"]
    assert "orphans_id_fkey" in reported and "violates foreign key" in reported
    [end] = [one for one in walk.records("block.result") if one.block == RESTORE]
    assert "ended with errors" in end.text and ": ok" not in end.text
    walk = dump_server.run_headless(RUNBOOK, "keys-that-do-not-hold=stop", database="refused", **inputs)
    assert walk.code == 7, walk.text
    assert values_of(walk, RESTORE)["errors"] == 0 and values_of(walk, KEYS)["errors"] == 1
    assert "put-back" in walk.text and settings(dump_server) == before
    undecided = dump_server.run_headless(RUNBOOK, database="undecided", **inputs)
    assert undecided.code == 8, "nobody said what is to become of the errors"
    assert "result" not in undecided.states()
    assert settings(dump_server) == before


def test_a_killed_restore_is_a_failure_and_leaves_no_setting_behind(dump_server: DumpServer, archive: Path) -> None:
    """Nobody is there to ask: not about the failure, not about the settings, and the next restore is not refused."""
    before = settings(dump_server)
    dump_server.cluster.psql('create database "cut short"')
    killer = threading.Thread(target=lambda: kill_when_waiting(dump_server, archive))
    inputs = {"archive": str(archive), "jobs": "2", "speed": "fast", "statistics": "none"}
    # A session of the console is none that works in the database.
    with closing(session(dump_server.cluster, dbname="cut short", name="dba-console:beside")) as holder:
        holder.execute(f"select pg_advisory_lock({CHECK_KEY})")
        killer.start()
        walk = dump_server.run_headless(RUNBOOK, database="cut short", **inputs)
    killer.join(WAIT_S)
    assert walk.code == 7, walk.text
    assert "signal 9" in walk.ending or "SIGKILL" in walk.ending, walk.ending
    assert re.search(r"processes it started are still running: \d+ \(pg_restore\)", walk.ending), (
        "its workers go on loading"
    )
    assert walk.ending.endswith("; temporary settings reverted"), walk.ending
    assert "restore-it" not in walk.states() and "statistics" not in walk.states()
    assert f"cut short from {archive}" in marks(dump_server)
    assert settings(dump_server) == before and pending_files(dump_server.watched) == []
    assert "undo" not in {one["kind"] for one in walk.questions}, "nothing else can be taken back"
    dump_server.cluster.psql('drop database "cut short" with (force)')
    assert dump_server.run_headless(RUNBOOK, database="cut short", **inputs).code == 0
    assert settings(dump_server) == before


def test_how_its_programs_ended_is_recorded_in_the_history(dump_server: DumpServer, archive: Path) -> None:
    dump_server.cluster.psql("create database remembered")
    with ExitStack() as stack:
        waiting: list[threading.Thread] = []

        def hold_program(kind: str, statement: str, database: str) -> Callable[[], None]:
            """A session holds the program up until the agent has seen it."""

            def hold() -> None:
                holder = stack.enter_context(dump_server.session(database))
                holder.execute(statement)
                waiting.append(threading.Thread(target=lambda: release_when_seen(dump_server, kind, holder)))
                waiting[-1].start()

            return hold

        restoring = hold_program("pg_restore", f"select pg_advisory_lock({CHECK_KEY})", "remembered")
        analyzing = hold_program("vacuumdb", "begin; lock items_1 in exclusive mode", "remembered")
        answers: dict[str, AnswerSource] = {
            "start": "yes",
            RESTORE: after_doing(restoring, "y"),
            "statistics/confirm": after_doing(analyzing, "y"),
            "ack": "y",
        }
        walk = dump_server.run_interactively(
            RUNBOOK, answers, database="remembered", archive=str(archive), jobs="2", speed="none"
        )
        for thread in waiting:
            thread.join(WAIT_S)
    assert walk.code == 0 and len(waiting) == 2, walk.text
    kept = from_json((walk.stored_run.directory / SUMMARY).read_bytes(), RunSummary)
    assert kept.about == f"a dump of {DATABASE}", "whatever it was restored into"
    wanted = {("pg_restore", "good", 0), ("vacuumdb", "good", 0)}
    wait_until(lambda: wanted <= ended_runs(dump_server, "remembered"), WAIT_S, what="how they ended")


def test_durability_is_not_disabled_if_there_are_other_databases(dump_server: DumpServer, archive: Path) -> None:
    before = settings(dump_server)
    confirmed = "give-up-protection=a crash may lose all of it"
    walk = dump_server.run_headless(
        RUNBOOK, confirmed, database="risked", archive=str(archive), jobs="2", speed="risky"
    )
    assert walk.code == 8, walk.text
    assert walk.unmet() == ["give-up-protection/action"], walk.text
    assert "restore-it" not in walk.done()
    assert settings(dump_server) == before


def test_less_wal_is_written_between_two_restarts_by_the_operator(dump_server: DumpServer, archive: Path) -> None:
    counted: list[str] = []

    def restart_server() -> None:
        dump_server.cluster.restart()
        counted.append(dump_server.setting("wal_level"))

    answers: dict[str, AnswerSource] = {
        "start": "yes",
        "type": AS_ASKED,
        "ack": "y",
        "manual": after_doing(restart_server, "ann"),
        "yes": "yes",
    }
    inputs = {"archive": str(archive), "jobs": "2", "speed": "none", "statistics": "none", "minimal_wal": "yes"}
    walk = dump_server.run_interactively(RUNBOOK, answers, database="lean", **inputs)
    assert walk.code == 0, walk.text
    assert counted == ["minimal", "replica"]
    assert dump_server.cluster.psql("select count(*) from items_1", dbname="lean") == "5000"


@pytest.fixture(scope="module")
def plain_script(dump_server: DumpServer) -> bytes:
    """A script, before it a line of data that would make a database if it were a statement."""
    line = b"CREATE TABLE public.lines (x text);\nCOPY public.lines (x) FROM stdin;\nCREATE DATABASE x;\n\\.\n"
    return line + dump_server.dump_database("all.sql").read_bytes()


@pytest.mark.parametrize(("packer", "statistics"), [("gzip", "stages"), ("lz4", "none"), ("zstd", "none")])
def test_compressed_sql_is_restored_statement_by_statement(
    dump_server: DumpServer, plain_script: bytes, packer: str, statistics: str
) -> None:
    packed, database = dump_server.directory / f"all.sql.{packer}", f"of {packer}"
    done = subprocess.run([require_tool(packer), "-c"], input=plain_script, capture_output=True, check=True)
    packed.write_bytes(done.stdout)
    walk = dump_server.run_headless(
        RUNBOOK, database=database, archive=str(packed), speed="none", statistics=statistics
    )
    assert walk.code == 0, walk.text
    assert dump_server.cluster.psql("select count(*) from items_1", dbname=database) == "5000"
    assert values_of(walk, SQL)["errors"] == 0
    assert any("items_1" in row[1] for row in table_of(walk, SQL) if row[0] == "longest")


def test_a_truncated_compressed_file_is_reported_with_the_error_of_its_program(
    dump_server: DumpServer, plain_script: bytes
) -> None:
    packed = dump_server.directory / "cut.sql.gz"
    whole = subprocess.run([require_tool("gzip"), "-c"], input=plain_script, capture_output=True, check=True).stdout
    packed.write_bytes(whole[: len(whole) // 2])
    walk = dump_server.run_headless(
        RUNBOOK, database="cut in half", archive=str(packed), speed="none", statistics="none"
    )
    assert walk.code == 7, walk.text
    [end] = [one for one in walk.records("block.result") if one.block == SQL]
    assert "gzip: stdin: unexpected end of file" in end.text, end.text


def test_it_does_not_start_with_a_file_that_is_not_a_dump_of_this_server(
    dump_server: DumpServer, archive_with_broken_key: Path
) -> None:
    content = archive_with_broken_key.read_bytes()
    newer, cut, none = dump_server.directory / "newer", dump_server.directory / "cut", dump_server.directory / "none"
    newer.write_bytes(content[:6] + bytes([99]) + content[7:])
    cut.write_bytes(content[:200])
    none.write_bytes(b"no dump at all\n" * 100)
    for path in (newer, cut, none, dump_server.directory / "nowhere"):
        assert run_refused(dump_server, archive=str(path)).unmet() == [f"{CHECK_STEP}/dump"], path
    wandering = dump_server.directory / "wandering.sql"
    wandering.write_text("\\connect postgres\n-- PostgreSQL database dump complete\n")
    assert run_refused(dump_server, archive=str(wandering)).unmet() == [f"{CHECK_STEP}/elsewhere"]
    dump_server.cluster.psql("select pg_create_physical_replication_slot('unread', true)")
    assert run_refused(dump_server, archive=str(archive_with_broken_key)).unmet() == [f"{CHECK_STEP}/wal"]
    dump_server.cluster.psql("select pg_drop_replication_slot('unread')")


def test_it_does_not_start_in_an_empty_database_in_use(dump_server: DumpServer, archive_with_broken_key: Path) -> None:
    dump_server.cluster.psql('create database "some one\'s"')
    with dump_server.session("some one's"):
        walk = dump_server.run_headless(
            RUNBOOK, database="some one's", archive=str(archive_with_broken_key), speed="none"
        )
    assert walk.code == 7 and walk.unmet() == [f"{EXISTING_STEP}/busy"] and "restore-it" not in walk.done(), walk.text


def test_minimal_wal_is_refused_if_it_would_change_nothing(
    dump_server: DumpServer, archive_with_broken_key: Path
) -> None:
    walk = dump_server.run_headless(
        RUNBOOK, database="never", archive=str(archive_with_broken_key), jobs="1", speed="none", minimal_wal="yes"
    )
    assert walk.code == 7 and walk.unmet() == [f"{EXISTING_STEP}/lean"] and "create-the-database" not in walk.done(), (
        walk.text
    )


def release_when_seen(dump_server: DumpServer, kind: str, holder: Session) -> None:
    """Close the session once the agent has found the program."""
    dump_server.watched.frame(
        lambda f: any(one.kind == kind and one.process for one in f.progress.operations), what=kind
    )
    holder.close()


def ended_runs(dump_server: DumpServer, database: str) -> set[tuple[str, str, int | None]]:
    """How each run of the history of a database ended, with its exit code."""
    done = dump_server.watched.console.run(
        "session", "report", "--dumps", "--target", dump_server.watched.dsn, "--json"
    )
    jobs = [job for job in done.objects() if job["database"] == database]
    return {(job["kind"], run["ending"], run["exit"]) for job in jobs for run in job["runs"]}


def run_refused(dump_server: DumpServer, **inputs: str) -> Walk:
    """A run that was refused."""
    walk = dump_server.run_headless(RUNBOOK, **{"database": "never", "speed": "none", **inputs})
    assert walk.code == 7, walk.text
    assert walk.records("run.started") == [] and walk.done() == []
    assert dump_server.cluster.psql("select count(*) from pg_database where datname = 'never'") == "0"
    return walk


def kill_when_waiting(dump_server: DumpServer, archive: Path) -> None:
    with dump_server.session("postgres") as asking:
        wait_until(lambda: asking.execute(_COPY_WAITS).fetchall(), WAIT_S, what="a COPY that waits")
    found = [process for process in map(int, filter(str.isdigit, os.listdir("/proc"))) if is_restore(process, archive)]
    [leader] = [process for process in found if parent_of(process) not in found]
    os.kill(leader, signal.SIGKILL)


def parent_of(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def is_restore(process: int, archive: Path) -> bool:
    try:
        words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return words[0].endswith(b"pg_restore") and str(archive).encode() in words
