"""Restores whose agent is killed, on a server with passwords: nothing is lost, reported twice or disclosed."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from dba_console.demo.temporary_server import Cluster
from dba_console.watch.frames.model import Frame
from tests.background import Session, session, wait_until
from tests.cli.console import Console
from tests.runbooks.dumps import CHECK_KEY, after_doing, is_password_absent, programs, table_of, values_of
from tests.runbooks.runs import WAIT_S, AnswerSource, Walk, WatchedServer, objects, open_rules
from tests.runbooks.test_restore import ERRORS, RESTORE, TAKEN, is_restore

RUNBOOK = "restore"
ORIGIN = "origin"
ROLE = "restorer"
"""Restores, and is asked for a password."""
PASSWORD = f"hush-{os.getpid()}-4712"
"""Unique: the arguments of all processes of this host are searched for it."""
INDEX_LOCK = 4712
"""An advisory lock: while it is held, the index `late` is not built."""
TABLES = 3
SOON_S = 120.0
_SCHEMA_SQL = f"""
create function let_in() returns boolean language sql as 'select pg_advisory_xact_lock_shared({CHECK_KEY}) is not null';
create function at_home() returns boolean language sql as 'select current_database() = ''{ORIGIN}''';
create function late(i int) returns int immutable language plpgsql as $$
begin
  if i = 500 then perform pg_advisory_xact_lock_shared({INDEX_LOCK}); end if;
  return i;
end $$;
create table public.held (id int check (let_in()));
insert into public.held values (1);
create table homesick (id int check (at_home()));
insert into homesick select generate_series(1, 1000);
do $$ begin
  for n in 1..{TABLES} loop
    execute format('create table items_%s (id int primary key, n int not null)', n);
    execute format('insert into items_%s select i, i %% 100 from generate_series(1, 3000) i', n);
    execute format('create index on items_%s (n)', n);
  end loop;
end $$;
create table slow (id int);
insert into slow select generate_series(1, 1000);
create index late on slow (late(id));
create table refers (id int references items_1);
"""
_WAITING = "select count(*) from pg_locks where locktype = 'advisory' and not granted"
_INDEX_COUNT = (
    "select count(*) from pg_index where indisvalid and indrelid in"
    " (select oid from pg_class where relname like 'items%')"
)
_FINISHED_ITEM = re.compile(r"PGRESTORE\b.*\bfinished item (\d+) ")


@dataclass(frozen=True)
class RestoreServer:
    """A server on which one role has to give a password, and an archive to be restored by it."""

    cluster: Cluster
    archive: Path

    @property
    def bin(self) -> str:
        return str(self.cluster.binaries.program("pg_restore").parent)

    def settings(self) -> list[str]:
        return [self.cluster.psql(f"show {name}") for name in TAKEN]

    def wait_for_counts(self, database: str, wanted: Mapping[str, int], what: str) -> None:
        """Wait until each of these queries counts what is wanted."""
        with closing(session(self.cluster, dbname=database, name="counter")) as counter:
            wait_until(lambda: all(count(counter, sql) == number for sql, number in wanted.items()), SOON_S, what=what)

    def restore_pids(self) -> set[int]:
        """pg_restore and its workers."""
        return {process for process in processes() if is_restore(process, self.archive)}

    def hold(self, sessions: ExitStack, database: str, key: int) -> Session:
        """A session there that has the lock."""
        holder = sessions.enter_context(closing(session(self.cluster, dbname=database, name="beside")))
        holder.execute(f"select pg_advisory_lock({key})")
        return holder


@pytest.fixture(scope="module")
def restore_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestoreServer]:
    with Cluster(programs(), durable=False) as cluster:
        cluster.psql(f"create database {ORIGIN}")
        cluster.psql(_SCHEMA_SQL, dbname=ORIGIN)
        archive = tmp_path_factory.mktemp("restored") / "whole"
        dump = [str(cluster.binaries.program("pg_dump")), "-Fd", "-f", str(archive), "-d", cluster.dsn(dbname=ORIGIN)]
        subprocess.run(dump, check=True, capture_output=True)
        cluster.psql(f"create role {ROLE} superuser login password '{PASSWORD}'")
        (cluster.data_directory / "pg_hba.conf").write_text(f"local all {ROLE} scram-sha-256\nlocal all all trust\n")
        cluster.reload()
        wait_until(lambda: requires_password(cluster), WAIT_S, what="the server to ask for a password")
        yield RestoreServer(cluster, archive)


def test_a_restore_outlives_its_agent_and_the_next_one_reports_all_of_it_once(restore_server: RestoreServer) -> None:
    """Killed while both jobs of pg_restore wait. One goes on while nobody looks, the other when the run is resumed."""
    before, dsn = restore_server.settings(), restore_server.cluster.dsn(user=ROLE)
    restore_server.cluster.psql("create database survivor")
    with empty_home({"PGPASSWORD": PASSWORD}) as console, seen_arguments() as seen, ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(1))
        holders: list[Session] = []
        killed: list[Future[set[int]]] = []
        with killable_agent(console, dsn) as (watched, kill):

            def confirmed() -> None:
                holders.extend(restore_server.hold(stack, "survivor", key) for key in (CHECK_KEY, INDEX_LOCK))
                killed.append(pool.submit(lambda: kill_agent_midway(restore_server, watched, kill)))

            says: dict[str, AnswerSource] = {"start": "yes", RESTORE: after_doing(confirmed, "y"), "ack": "y"}
            left = watched.run_interactively(RUNBOOK, says, **inputs(restore_server, "survivor"))
            assert killed, left.text
            at_work = killed[0].result(WAIT_S)
        assert left.code not in (0, 7, 8) and "runbook resume" in left.err, left.text
        assert restore_server.restore_pids() == at_work and len(at_work) == 3, (
            "pg_restore and its workers are not harmed"
        )
        table, index = holders
        table.execute("select pg_advisory_unlock_all()")
        alone = {_WAITING: 1, _INDEX_COUNT: 2 * TABLES}
        restore_server.wait_for_counts("survivor", alone, "all but one index, while nobody looks")
        assert restore_server.settings() != before and pending_files(console), "what was set is still set, and owed"
        with killable_agent(console, dsn) as (watched, _):
            freed = pool.submit(lambda: release_when_resumed(left, index))
            walk = resume_run(watched, f"{ERRORS}=accept")
            freed.result(WAIT_S)
            watched.frame(lambda frame: frame.judged and "settings-left" not in open_rules(frame), "nothing owed")
        assert walk.code == 0, walk.text
        assert_reported_once(walk)
        assert restore_server.settings() == before and pending_files(console) == []
        assert restore_server.cluster.psql(_INDEX_COUNT, dbname="survivor") == str(2 * TABLES)
        assert restore_server.cluster.psql("select bool_and(convalidated) from pg_constraint", dbname="survivor") == "t"
        finished = [
            one for log in console.sessions.rglob("session.log") for one in _FINISHED_ITEM.findall(log.read_text())
        ]
        assert len(finished) == len(set(finished)) > TABLES, "each line is logged once"
        assert is_password_absent(console.home, PASSWORD) and PASSWORD not in restore_server.cluster.log_text()
    assert seen == [], "the password was an argument"


def test_a_password_file_is_read_when_needed_and_its_content_is_never_written(
    restore_server: RestoreServer, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    kept.touch(0o600)
    kept.write_text(f"*:*:*:{ROLE}:{PASSWORD}\n")
    dsn = restore_server.cluster.dsn(user=ROLE, passfile=str(kept))
    with empty_home({}) as console, seen_arguments() as seen, killable_agent(console, dsn) as (watched, _):
        walk = watched.run_headless(RUNBOOK, f"{ERRORS}=accept", **inputs(restore_server, "by file"))
        assert walk.code == 0, walk.text
        assert is_password_absent(console.home, PASSWORD) and PASSWORD not in restore_server.cluster.log_text()
    assert seen == [], "the password was an argument"


def assert_reported_once(walk: Walk) -> None:
    """One command and one end; every object and the one error as if a single agent had observed it."""
    intents = [one for one in walk.records("block.intent") if one.block == RESTORE]
    assert len(intents) == 1 and len(walk.records("run.resumed")) == 1
    found, rows = values_of(walk, RESTORE), table_of(walk, RESTORE)
    assert (found["exit"], found["errors"]) == (1, 1), found
    [error] = [row[1] for row in rows if row[0] == "error"]
    assert "TABLE DATA public.homesick" in error and "violates check constraint" in error
    phases = {row[1]: row[4] for row in rows if row[0] == "phase"}
    assert (phases["data"], phases["indexes"]) == (f"{TABLES + 4}, 1 failed", f"{2 * TABLES + 1}"), rows
    longest = [row[1] for row in rows if row[0] == "longest"]
    assert len(longest) == len(set(longest)) and {"INDEX public.late", "TABLE DATA public.held"} <= set(longest)


def inputs(restore_server: RestoreServer, database: str) -> dict[str, Any]:
    archive = str(restore_server.archive)
    return {"database": database, "archive": archive, "jobs": "2", "speed": "fast", "programs": restore_server.bin}


def kill_agent_midway(restore_server: RestoreServer, watched: WatchedServer, kill: Callable[[], object]) -> set[int]:
    """Kill the agent when both jobs wait and it has reported the error; return the restoring processes."""

    def told(frame: Frame) -> bool:
        return any(row.kind == "pg_restore" and row.run and row.errors == 1 for row in frame.progress.operations)

    restore_server.wait_for_counts("survivor", {_WAITING: 2}, "a table and an index that wait")
    watched.frame(told, "the run's row with its error")
    at_work = restore_server.restore_pids()
    kill()
    return at_work


def count(connection: Session, sql: str) -> int:
    [[number]] = connection.execute(sql)
    return int(str(number))


def release_when_resumed(left: Walk, index: Session) -> None:
    wait_until(lambda: left.records("run.resumed"), WAIT_S, what="the run resumed")
    index.execute("select pg_advisory_unlock_all()")


def resume_run(watched: WatchedServer, confirmed: str) -> Walk:
    """`runbook resume`, with the answer for the error."""
    done = watched.console.run(
        "runbook", "resume", "last", "--dsn", watched.dsn, "--confirm", confirmed, "--yes", "--json", timeout=WAIT_S
    )
    return Walk(done.code, objects(done.out), done.err)


def pending_files(console: Console) -> list[Path]:
    return sorted((console.home / "state" / "dba-console" / "reverts").glob("*.json"))


def requires_password(cluster: Cluster) -> bool:
    try:
        psycopg.connect(cluster.dsn(user=ROLE)).close()
    except psycopg.OperationalError:
        return True
    return False


@contextmanager
def empty_home(environment: dict[str, str]) -> Iterator[Console]:
    """A console with nothing of this user, and what its commands find in their environment."""
    # pytest's own directories are too deep for the path of a socket.
    directory = Path(tempfile.mkdtemp(prefix="dbac-book-"))
    try:
        yield Console(directory, environment)
    finally:
        shutil.rmtree(directory)


@contextmanager
def killable_agent(console: Console, dsn: str) -> Iterator[tuple[WatchedServer, Callable[[], object]]]:
    """An agent, and what kills it as nothing can prevent."""
    with console.watching(dsn) as agent:

        def kill() -> None:
            agent.process.send_signal(signal.SIGKILL)
            agent.process.wait(WAIT_S)

        yield WatchedServer(console, dsn, agent.target, agent.socket), kill


def processes() -> set[int]:
    return set(map(int, filter(str.isdigit, os.listdir("/proc"))))


@contextmanager
def seen_arguments() -> Iterator[list[str]]:
    """Commands that have the password among their arguments, of any process of this host that was started within the
    block; looked for until the block ends."""
    found: list[str] = []
    over = threading.Event()
    before = processes()

    def look() -> None:
        while not over.wait(0.05):
            now = processes()
            before.intersection_update(now)  # the number of one that is gone may be given to another
            for process in now - before:
                try:
                    reported = Path(f"/proc/{process}/cmdline").read_bytes()
                except OSError:
                    continue  # it is gone
                if PASSWORD.encode() in reported:
                    found.append(reported.decode(errors="replace"))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join(WAIT_S)
