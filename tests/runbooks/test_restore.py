"""The runbook `restore`, walked with real dumps: what it sets is put back whatever comes, an error is told as one."""

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
from tests.runbooks.dumps import DATABASE, HELD, Ground, ground, hushed, table_of, then, values_of
from tests.runbooks.runs import ASKED, WAIT_S, Says, Walk
from tests.runbooks.test_put_back import owed

BOOK = "restore"
HERE, THERE = "can-it-be-restored-here", "what-is-there-already"
RESTORE, SQL = "restore-it/run", "restore-it/sql"
KEYS = "check-the-keys/run"
ERRORS = "what-could-not-be-restored"
TAKEN = ("maintenance_work_mem", "max_wal_size", "checkpoint_timeout", "autovacuum", "synchronous_commit")
WITH_STATISTICS = 18
"""The version from which on a dump may hold them."""
_WAITS = f"select 1 from pg_locks where locktype = 'advisory' and objid = {HELD} and not granted"


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with ground(tmp_path_factory.mktemp("restores")) as made:
        yield made


@pytest.fixture(scope="module")
def archive(here: Ground) -> Path:
    here.cluster.psql("analyze", dbname=DATABASE)
    with_statistics = ("--statistics",) if here.cluster.major >= WITH_STATISTICS else ()
    return here.dumped("whole", "--format=directory", "--jobs=2", *with_statistics)


@pytest.fixture(scope="module")
def broken(here: Ground) -> Path:
    """A dump in which one key does not hold, as triggers that were switched off leave it."""
    here.cluster.psql("create table orphans (id int references items_2)", dbname=DATABASE)
    here.cluster.psql("set session_replication_role = replica; insert into orphans values (-1)", dbname=DATABASE)
    made = here.dumped("broken", "--format=custom")
    here.cluster.psql("drop table orphans", dbname=DATABASE)
    return made


def settings(here: Ground) -> list[str]:
    return [here.setting(name) for name in TAKEN]


def test_everything_is_restored_its_phases_are_reported_and_the_settings_are_reverted(
    here: Ground, archive: Path
) -> None:
    before = settings(here)
    how = "dump" if here.cluster.major >= WITH_STATISTICS else "analyze"
    walk = here.headless(BOOK, database="a 'copy'", archive=str(archive), jobs="2", speed="fast", statistics=how)
    assert walk.code == 0, walk.text
    assert here.cluster.psql("select count(*) from items_1, held", dbname="a 'copy'") == "5000"
    assert here.cluster.psql("select count(*) from pg_stats where tablename = 'items_1'", dbname="a 'copy'") == "3"
    assert settings(here) == before
    assert any("autovacuum" in one.text for one in walk.records("block.result", "settings-for-the-restore"))
    found = values_of(walk, RESTORE)
    assert found["errors"] == 0 and found["data_s"] is not None and found["indexes_s"] is not None
    rows = table_of(walk, RESTORE)
    assert {"data", "indexes"} <= {row[1] for row in rows if row[0] == "phase"}
    longest = [row[1] for row in rows if row[0] == "longest"]
    assert "TABLE DATA public.items_1" in longest and "INDEX public.items_1_n_idx" in longest, rows
    assert any("FK CONSTRAINT" in row[1] for row in table_of(walk, KEYS) if row[0] == "longest")
    assert here.cluster.psql("select bool_and(convalidated) from pg_constraint", dbname="a 'copy'") == "t"
    assert hushed(here.scene.console.home), "the password is written down"


def test_ignored_errors_are_reported_and_the_operator_decides(here: Ground, broken: Path) -> None:
    inputs = {"archive": str(broken), "jobs": "2", "speed": "safe", "statistics": "none"}
    before = settings(here)
    walk = here.headless(BOOK, f"{ERRORS}=accept", database="accepted", keys="within", **inputs)
    assert walk.code == 0, walk.text
    assert values_of(walk, RESTORE) | {"exit": 1, "errors": 1} == values_of(walk, RESTORE)
    [told] = [row[1] for row in table_of(walk, RESTORE) if row[0] == "error"]
    assert "orphans_id_fkey" in told and "violates foreign key" in told
    [end] = [one for one in walk.records("block.result") if one.block == RESTORE]
    assert "ended with errors" in end.text and ": ok" not in end.text
    walk = here.headless(BOOK, "keys-that-do-not-hold=stop", database="refused", **inputs)
    assert walk.code == 7, walk.text
    assert values_of(walk, RESTORE)["errors"] == 0 and values_of(walk, KEYS)["errors"] == 1
    assert "put-back" in walk.text and settings(here) == before
    undecided = here.headless(BOOK, database="undecided", **inputs)
    assert undecided.code == 8, "nobody said what is to become of the errors"
    assert "result" not in undecided.states()
    assert settings(here) == before


def test_a_killed_restore_is_a_failure_and_leaves_no_setting_behind(here: Ground, archive: Path) -> None:
    """Nobody is there to ask: not about the failure, not about the settings, and the next restore is not refused."""
    before = settings(here)
    here.cluster.psql('create database "cut short"')
    killer = threading.Thread(target=lambda: kill_when_it_waits(here, archive))
    inputs = {"archive": str(archive), "jobs": "2", "speed": "fast", "statistics": "none"}
    # A session of the console is none that works in the database.
    with closing(session(here.cluster, dbname="cut short", name="dba-console:beside")) as holder:
        holder.execute(f"select pg_advisory_lock({HELD})")
        killer.start()
        walk = here.headless(BOOK, database="cut short", **inputs)
    killer.join(WAIT_S)
    assert walk.code == 7, walk.text
    assert "signal 9" in walk.ending or "SIGKILL" in walk.ending, walk.ending
    assert re.search(r"processes it started are still running: \d+ \(pg_restore\)", walk.ending), (
        "its workers go on loading"
    )
    assert walk.ending.endswith("; temporary settings reverted"), walk.ending
    assert "restore-it" not in walk.states() and "statistics" not in walk.states()
    assert settings(here) == before and owed(here.scene) == []
    assert "undo" not in {one["kind"] for one in walk.questions}, "nothing else can be taken back"
    here.cluster.psql('drop database "cut short" with (force)')
    assert here.headless(BOOK, database="cut short", **inputs).code == 0
    assert settings(here) == before


def test_how_its_programs_ended_is_recorded_in_the_history(here: Ground, archive: Path) -> None:
    here.cluster.psql("create database remembered")
    with ExitStack() as stack:
        waiting: list[threading.Thread] = []

        def held(kind: str, statement: str, database: str) -> Callable[[], None]:
            """A session holds the program up until the agent has seen it."""

            def hold() -> None:
                holder = stack.enter_context(here.session(database))
                holder.execute(statement)
                waiting.append(threading.Thread(target=lambda: release_when_seen(here, kind, holder)))
                waiting[-1].start()

            return hold

        restoring = held("pg_restore", f"select pg_advisory_lock({HELD})", "remembered")
        analyzing = held("vacuumdb", "begin; lock items_1 in exclusive mode", "remembered")
        answers: dict[str, Says] = {
            "start": "yes", RESTORE: then(restoring, "y"), "statistics/confirm": then(analyzing, "y"), "ack": "y",
        }  # fmt: skip
        walk = here.person(BOOK, answers, database="remembered", archive=str(archive), jobs="2", speed="none")
        for thread in waiting:
            thread.join(WAIT_S)
    assert walk.code == 0 and len(waiting) == 2, walk.text
    kept = from_json((walk.papers.directory / SUMMARY).read_bytes(), RunSummary)
    assert kept.about == f"a dump of {DATABASE}", "whatever it was restored into"
    wanted = {("pg_restore", "good", 0), ("vacuumdb", "good", 0)}
    wait_until(lambda: wanted <= endings(here, "remembered"), WAIT_S, what="how they ended")


def test_durability_is_not_disabled_if_there_are_other_databases(here: Ground, archive: Path) -> None:
    before = settings(here)
    confirmed = "give-up-protection=a crash may lose all of it"
    walk = here.headless(BOOK, confirmed, database="risked", archive=str(archive), jobs="2", speed="risky")
    assert walk.code == 8, walk.text
    assert walk.red() == ["give-up-protection/action"], walk.text
    assert "restore-it" not in walk.done()
    assert settings(here) == before


def test_less_wal_is_written_between_two_restarts_by_the_operator(here: Ground, archive: Path) -> None:
    counted: list[str] = []

    def anew() -> None:
        here.cluster.restart()
        counted.append(here.setting("wal_level"))

    answers: dict[str, Says] = {"start": "yes", "type": ASKED, "ack": "y", "manual": then(anew, "ann"), "yes": "yes"}
    inputs = {"archive": str(archive), "jobs": "2", "speed": "none", "statistics": "none", "minimal_wal": "yes"}
    walk = here.person(BOOK, answers, database="lean", **inputs)
    assert walk.code == 0, walk.text
    assert counted == ["minimal", "replica"]
    assert here.cluster.psql("select count(*) from items_1", dbname="lean") == "5000"


@pytest.fixture(scope="module")
def plain(here: Ground) -> bytes:
    """A script, before it a line of data that would make a database if it were a statement."""
    line = b"CREATE TABLE public.lines (x text);\nCOPY public.lines (x) FROM stdin;\nCREATE DATABASE x;\n\\.\n"
    return line + here.dumped("all.sql").read_bytes()


@pytest.mark.parametrize(("packer", "statistics"), [("gzip", "stages"), ("lz4", "none"), ("zstd", "none")])
def test_compressed_sql_is_restored_statement_by_statement(
    here: Ground, plain: bytes, packer: str, statistics: str
) -> None:
    packed, database = here.place / f"all.sql.{packer}", f"of {packer}"
    done = subprocess.run([require_tool(packer), "-c"], input=plain, capture_output=True, check=True)
    packed.write_bytes(done.stdout)
    walk = here.headless(BOOK, database=database, archive=str(packed), speed="none", statistics=statistics)
    assert walk.code == 0, walk.text
    assert here.cluster.psql("select count(*) from items_1", dbname=database) == "5000"
    assert values_of(walk, SQL)["errors"] == 0
    assert any("items_1" in row[1] for row in table_of(walk, SQL) if row[0] == "longest")


def test_a_truncated_compressed_file_is_reported_with_the_error_of_its_program(here: Ground, plain: bytes) -> None:
    packed = here.place / "cut.sql.gz"
    whole = subprocess.run([require_tool("gzip"), "-c"], input=plain, capture_output=True, check=True).stdout
    packed.write_bytes(whole[: len(whole) // 2])
    walk = here.headless(BOOK, database="cut in half", archive=str(packed), speed="none", statistics="none")
    assert walk.code == 7, walk.text
    [end] = [one for one in walk.records("block.result") if one.block == SQL]
    assert "gzip: stdin: unexpected end of file" in end.text, end.text


def test_it_does_not_start_with_a_file_that_is_not_a_dump_of_this_server(here: Ground, broken: Path) -> None:
    content = broken.read_bytes()
    newer, cut, none = here.place / "newer", here.place / "cut", here.place / "none"
    newer.write_bytes(content[:6] + bytes([99]) + content[7:])
    cut.write_bytes(content[:200])
    none.write_bytes(b"no dump at all\n" * 100)
    for path in (newer, cut, none, here.place / "nowhere"):
        assert refused(here, archive=str(path)).red() == [f"{HERE}/dump"], path
    wandering = here.place / "wandering.sql"
    wandering.write_text("\\connect postgres\n-- PostgreSQL database dump complete\n")
    assert refused(here, archive=str(wandering)).red() == [f"{HERE}/elsewhere"]
    here.cluster.psql("select pg_create_physical_replication_slot('unread', true)")
    assert refused(here, archive=str(broken)).red() == [f"{HERE}/wal"]
    here.cluster.psql("select pg_drop_replication_slot('unread')")


def test_it_does_not_start_in_an_empty_database_in_use(here: Ground, broken: Path) -> None:
    here.cluster.psql('create database "some one\'s"')
    with here.session("some one's"):
        walk = here.headless(BOOK, database="some one's", archive=str(broken), speed="none")
    assert walk.code == 7 and walk.red() == [f"{THERE}/busy"] and "restore-it" not in walk.done(), walk.text


def test_minimal_wal_is_refused_if_it_would_change_nothing(here: Ground, broken: Path) -> None:
    walk = here.headless(BOOK, database="never", archive=str(broken), jobs="1", speed="none", minimal_wal="yes")
    assert walk.code == 7 and walk.red() == [f"{THERE}/lean"] and "create-the-database" not in walk.done(), walk.text


def release_when_seen(here: Ground, kind: str, holder: Session) -> None:
    """Close the session once the agent has found the program."""
    here.scene.frame(lambda f: any(one.kind == kind and one.process for one in f.progress.operations), what=kind)
    holder.close()


def endings(here: Ground, database: str) -> set[tuple[str, str, int | None]]:
    """How each run of the history of a database ended, with its exit code."""
    done = here.scene.console.run("session", "report", "--dumps", "--target", here.scene.dsn, "--json")
    jobs = [job for job in done.objects() if job["database"] == database]
    return {(job["kind"], run["ending"], run["exit"]) for job in jobs for run in job["runs"]}


def refused(here: Ground, **inputs: str) -> Walk:
    """A walk that was not begun."""
    walk = here.headless(BOOK, **{"database": "never", "speed": "none", **inputs})
    assert walk.code == 7, walk.text
    assert walk.records("run.started") == [] and walk.done() == []
    assert here.cluster.psql("select count(*) from pg_database where datname = 'never'") == "0"
    return walk


def kill_when_it_waits(here: Ground, archive: Path) -> None:
    with here.session("postgres") as asking:
        wait_until(lambda: asking.execute(_WAITS).fetchall(), WAIT_S, what="a COPY that waits")
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
