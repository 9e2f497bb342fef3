"""A database with awkward names, and the runbooks `dump` and `restore` run on it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dba_console.core.errors import ConsoleError
from dba_console.demo.binaries import Binaries, find_binaries
from dba_console.demo.temporary_server import Cluster
from dba_console.recording.plan import JournalRecord
from tests.background import Session, session
from tests.requirements import lacking
from tests.runbooks.runs import AnswerSource, Walk, WatchedServer, hostile_server

DATABASE = "the 'shop'"
"""A blank and quotes: whoever pastes it somewhere is found out."""
PASSWORD = "hush-hush-4711"
"""Of the watched server's connection string; it appears nowhere."""
TABLES = 4
ROWS = 5_000
CHECK_KEY = 4711
"""An advisory lock: while it is held, the rows of `held` are not loaded."""
CLIENTS = ("psql", "pg_dump", "pg_restore", "vacuumdb")
_SCHEMA_SQL = f"""
create function let_in() returns boolean language sql as 'select pg_advisory_xact_lock_shared({CHECK_KEY}) is not null';
create table held (id int check (let_in()));
insert into held values (1);
do $$ begin
  for n in 1..{TABLES} loop
    execute format('create table items_%s (id int primary key, n int not null, note text)', n);
    execute format('insert into items_%s select i, i %% 100, md5(i::text) from generate_series(1, {ROWS}) i', n);
    execute format('create index on items_%s (n)', n);
  end loop;
end $$;
create table "odd ""one""
of two lines" (id int references items_1);
insert into "odd ""one""
of two lines" select i from generate_series(1, 100) i;
"""


def programs() -> Binaries:
    """An installation with the clients that dump and restore; ends the test where there is none."""
    try:
        return find_binaries(("initdb", "pg_ctl", "postgres", *CLIENTS))
    except ConsoleError as error:
        lacking(error.message)


@dataclass(frozen=True)
class DumpServer:
    """A watched server with the database on it, and a place for dumps."""

    cluster: Cluster
    watched: WatchedServer
    directory: Path

    @property
    def bin(self) -> str:
        return str(self.cluster.binaries.program("pg_dump").parent)

    def run_headless(self, runbook: str, *confirmed: str, **inputs: Any) -> Walk:
        return self.watched.run_headless(runbook, *confirmed, programs=self.bin, **inputs)

    def run_interactively(self, runbook: str, answers: Mapping[str, AnswerSource], **inputs: str) -> Walk:
        return self.watched.run_interactively(runbook, answers, programs=self.bin, **inputs)

    def dump_database(self, name: str, *how: str) -> Path:
        """The database, dumped by pg_dump itself."""
        path = self.directory / name
        command = [f"{self.bin}/pg_dump", *how, "-f", str(path), "-d", self.cluster.dsn(dbname=DATABASE)]
        subprocess.run(command, check=True, capture_output=True)
        return path

    def setting(self, name: str) -> str:
        return self.cluster.psql(f"show {name}")

    @contextmanager
    def session(self, database: str) -> Iterator[Session]:
        with closing(session(self.cluster, dbname=database, name="beside")) as made:
            yield made


@contextmanager
def running_dump_server(directory: Path) -> Iterator[DumpServer]:
    with Cluster(programs(), durable=False) as cluster:
        cluster.psql(f'create database "{DATABASE}"')
        cluster.psql(_SCHEMA_SQL, dbname=DATABASE)
        with hostile_server(cluster, password=PASSWORD) as watched:
            watched.wait_for_baseline()
            yield DumpServer(cluster, watched, directory)


def after_doing(act: Callable[[], object], answer: str) -> Callable[[], str]:
    """Return a function that calls `act` and then gives the answer."""

    def done() -> str:
        act()
        return answer

    return done


def table_of(walk: Walk, block: str) -> list[list[str]]:
    """Return the rows of the table in the result record of a block."""
    [record] = [one for one in _end_records(walk, block) if "table" in one.fields]
    rows: list[list[str]] = record.fields["table"]["rows"]
    return rows


def values_of(walk: Walk, block: str) -> dict[str, Any]:
    """Return the values in the result record of a block."""
    [record] = _end_records(walk, block)
    values: dict[str, Any] = record.fields["values"]
    return values


def _end_records(walk: Walk, block: str) -> list[JournalRecord]:
    """Return the result records of a block, also those resolved by a later agent."""
    return [one for kind in ("block.result", "block.settled") for one in walk.records(kind) if one.block == block]


def is_password_absent(home: Path, password: str = PASSWORD) -> bool:
    """Return whether no file below `home` contains the password."""
    files = [path for path in home.rglob("*") if path.is_file()]
    assert files
    return not [path for path in files if password.encode() in path.read_bytes()]
