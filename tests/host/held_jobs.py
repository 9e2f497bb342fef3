"""Real dumps and restores that stop in the middle of a table until a test lets them go on.

The role that dumps reads two tables through a policy, and who restores them passes a trigger; both wait for an advisory
lock at a row in the middle. So a job is seen where it is meant to be seen, however slow or fast the machine is.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dba_console.demo.server_account import clean_environment
from dba_console.demo.temporary_server import Cluster
from dba_console.jobs.following.program_scanner import ProgramScanner, RunningProgram
from tests.background import Session, session, wait_until
from tests.sql import query

LIMIT_S = 120.0
"""Until something that must happen has happened, on a machine as busy as may be."""
PASSWORD = "open sesame/é@1"
DUMPER = "job dumper"
TABLES = ("hold.one", "hold.two")
ROWS = 40_000
"""Of each table: some 4 MB of text, more than sockets, pipes and programs keep between them."""
_LOCK = 771
_WAITING = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and wait_event = 'advisory'"

_SCHEMA = f"""
create schema hold;
create function hold.on() returns boolean language plpgsql as $$
begin
  perform pg_catalog.pg_advisory_lock_shared({_LOCK});
  return pg_catalog.pg_advisory_unlock_shared({_LOCK});
end $$;
create function hold.row() returns trigger language plpgsql as $$ begin perform hold.on(); return new; end $$;
"""
_TABLE = "create table {table} (i integer primary key, filler text);"
_FILL = f"insert into {{table}} select i, repeat(md5(i::text), 3) from generate_series(1, {ROWS}) i;"
_POLICY = (
    f"alter table {{table}} enable row level security; grant select on {{table}} to public;"
    f"create policy held on {{table}} using (case when i = {ROWS // 2} then hold.on() else true end);"
)
_TRIGGER = (
    "create trigger held before insert on {table} for each row"
    f" when (new.i = {ROWS // 2}) execute function hold.row();"
)


class JobServer:
    """A server with a database to be dumped (`full`), and archives of it to be restored."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.cluster = cluster
        self.directory = directory
        self._restored = 0
        query(cluster, f"create role \"{DUMPER}\" login password '{PASSWORD}'")
        query(cluster, "create database full_one")
        query(
            cluster,
            _SCHEMA + _each(_TABLE + _FILL + _POLICY) + "grant usage on schema hold to public",
            dbname="full_one",
        )
        host_based = cluster.data_directory / "pg_hba.conf"
        host_based.write_text(
            "local all all trust\nlocal replication all trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
        )
        cluster.reload()
        for name, options in (("d", ("-Fd",)), ("c", ("-Fc",)), ("p.sql", ())):
            self.run_program("pg_dump", *options, "-a", "-n", "hold", "-f", name, cluster.dsn(dbname="full_one"))
        self.run_program("gzip", "-k", "p.sql")

    def program_path(self, program: str) -> str:
        """Return the path of a program of PostgreSQL, or the name of any other program."""
        return str(self.cluster.binaries.program(program)) if self.cluster.binaries.has(program) else program

    def run_program(self, program: str, *arguments: str) -> None:
        """Run a program to its end."""
        command = [self.program_path(program), *arguments]
        subprocess.run(command, cwd=self.directory, check=True, capture_output=True, timeout=LIMIT_S, env=environment())

    def new_target_database(self) -> str:
        """Create a database whose tables hold a restore."""
        self._restored += 1
        name = f"target_{self._restored}"
        query(self.cluster, f"create database {name}")
        query(self.cluster, _SCHEMA + _each(_TABLE + _TRIGGER), dbname=name)
        return name

    def rows(self, database: str) -> int:
        return int(
            query(self.cluster, "select (select count(*) from hold.one) + count(*) from hold.two", dbname=database)
        )

    def dsn(self, database: str) -> str:
        return self.cluster.dsn(dbname=database)

    def dumper_dsn(self) -> str:
        return self.cluster.dsn(user=DUMPER, dbname="full_one")

    def tcp_dsn(self) -> str:
        """The dumper's connection string for TCP, with its password."""
        return f"host=127.0.0.1 port={self.cluster.port} user='{DUMPER}' password='{PASSWORD}' dbname=full_one"

    def dump_command(self, *options: str, dsn: str | None = None) -> list[str]:
        """The command of a pg_dump that is held."""
        return [self.program_path("pg_dump"), "--enable-row-security", "-n", "hold", *options, dsn or self.dumper_dsn()]

    @contextmanager
    def held_job(self, command: list[str] | str, waiting: int, database: str = "full_one") -> Iterator[HeldJob]:
        """A command that has come so far that `waiting` sessions of it, in `database`, are held up. A string is given
        to bash."""
        words = ["bash", "-c", command] if isinstance(command, str) else command
        with session(self.cluster, dbname=database) as keeper:
            keeper.execute(f"select pg_advisory_lock({_LOCK})")
            with (self.directory / "stderr").open("wb") as message:
                process = subprocess.Popen(
                    words, cwd=self.directory, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=message,
                    env=environment(), start_new_session=True,
                )  # fmt: skip
            job = HeldJob(self, process, keeper)
            try:
                wait_until(lambda: job.waiting() == waiting, LIMIT_S, what=f"{waiting} sessions held up")
                yield job
                job.release()
                assert process.wait(LIMIT_S) == 0, (self.directory / "stderr").read_text()
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, 9)
                    process.wait(LIMIT_S)


class HeldJob:
    """A job that is held."""

    def __init__(self, job_server: JobServer, process: subprocess.Popen[bytes], keeper: Session) -> None:
        self._ground, self._keeper = job_server, keeper
        self.process = process

    def release(self) -> None:
        """Let it continue."""
        self._keeper.execute("select pg_advisory_unlock_all()")

    def waiting(self) -> int:
        assert self.process.poll() is None, (self._ground.directory / "stderr").read_text()
        [[count]] = self._keeper.execute(_WAITING)
        return int(str(count))

    def backends(self) -> set[int]:
        """Sessions of the server but those of the test."""
        pids = query(
            self._ground.cluster,
            "select pid from pg_stat_activity where backend_type = 'client backend' and application_name like 'p%'"
            " and pid <> pg_backend_pid()",
        )
        return set(map(int, pids.split()))

    def held_backends(self) -> set[int]:
        return set(map(int, query(self._ground.cluster, _WAITING.replace("count(*)", "pid")).split()))


def program(job_server: JobServer, kind: str, programs: ProgramScanner | None = None) -> RunningProgram:
    """The only program of that kind that works in the ground's directory, or on its server."""
    (found,) = [
        one for one in (programs or ProgramScanner()).scan() if one.kind == kind and belongs_to(job_server, one)
    ]
    return found


def belongs_to(job_server: JobServer, one: RunningProgram) -> bool:
    return one.directory == str(job_server.directory)


def shell_quoted(*words: str) -> str:
    return shlex.join(words)


def environment() -> dict[str, str]:
    return clean_environment() | {"LC_ALL": "C"}


def _each(template: str) -> str:
    return "".join(template.replace("{table}", table) for table in TABLES)
