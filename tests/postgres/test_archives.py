"""What real pg_dump and pg_restore write and say is read as they mean it: every format, every client at hand."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import Struct

from dba_console.demo.binaries import Binaries, binaries_in, candidates, wheel_directories
from dba_console.demo.temporary_server import Cluster
from dba_console.jobs.archives.archive_file import open_archive
from dba_console.jobs.archives.dump_plan import DumpPlan
from dba_console.jobs.archives.object_progress import ObjectProgress
from dba_console.jobs.archives.toc import ArchiveError

SCHEMA = """
create schema "Weird ""S";
create table parent (id bigint primary key, n int, note text, check (n > -5));
create table child (id bigint primary key, parent_id bigint references parent, note text);
create index child_note on child (note);
create table "Weird ""S"."odd ""one""
of two lines; --" (id int primary key, note text);
create table parted (id int, k int, primary key (id, k)) partition by list (k);
create table part1 partition of parted for values in (1);
create index parted_k on parted (k);
create materialized view mv as select count(*) from parent;
create sequence s1;
select lo_from_bytea(0, 'large');
comment on table parent is E'of two\\nlines';
grant select on parent to public;
create statistics st1 on id, n from parent;
alter table parent enable row level security;
create policy pol on parent using (true);
insert into parent select i, i, repeat(md5(i::text), 3) from generate_series(1, 3000) i;
insert into child select i, i, md5(i::text) from generate_series(1, 2000) i;
insert into "Weird ""S"."odd ""one""
of two lines; --" select i, 'x' from generate_series(1, 100) i;
insert into parted select i, 1 from generate_series(1, 100) i;
analyze;
"""
ENVIRONMENT = {**os.environ, "LC_ALL": "C", "PG_COLOR": "never"}
_LISTED = re.compile(r"^(\d+); \d+ (\d+) ", re.MULTILINE)


class ClientDumps(Struct, frozen=True):
    """What one client dumped."""

    client: Binaries
    directory: Path
    messages: str

    def path(self, form: str) -> Path:
        return self.directory / form


@pytest.fixture(scope="module")
def shop(cluster: Cluster) -> Iterator[Cluster]:
    cluster.psql("create database archived")
    cluster.psql(SCHEMA, dbname="archived")
    yield cluster
    cluster.psql("drop database if exists archived with (force)")


@pytest.fixture(scope="module")
def client_dumps(shop: Cluster, tmp_path_factory: pytest.TempPathFactory) -> list[ClientDumps]:
    """A dump in each format by each client here that may dump this server."""
    return [
        dump_all_formats(shop, client, tmp_path_factory.mktemp(f"by{client.major}")) for client in clients(shop.major)
    ]


def clients(least: int) -> list[Binaries]:
    found: dict[int, Binaries] = {}
    for directory in (*candidates(), *wheel_directories()):
        if (directory / "pg_restore").exists() and (client := binaries_in(directory)) is not None:
            found.setdefault(client.major, client)
    return [client for major, client in sorted(found.items()) if major >= least]


def dump_all_formats(shop: Cluster, client: Binaries, directory: Path) -> ClientDumps:
    source = shop.dsn(dbname="archived")
    message = ""
    for form, more in (("d", ["-j2"]), ("c", []), ("t", []), ("p", [])):
        path = str(directory / form)
        done = run(client, "pg_dump", "-v", f"-F{form}", *more, "-f", path, "-d", source)
        message = done.stderr if form == "d" else message
    with (directory / "piped").open("wb") as out:
        command = [str(client.program("pg_dump")), "-Fc", "-d", source]
        piped = subprocess.Popen(command, stdout=subprocess.PIPE, env=ENVIRONMENT)
        assert piped.stdout is not None
        shutil.copyfileobj(piped.stdout, out)
        piped.stdout.close()
        assert piped.wait(60) == 0
    return ClientDumps(client, directory, message)


def run(client: Binaries, program: str, *arguments: str, good: bool = True) -> subprocess.CompletedProcess[str]:
    command = [str(client.program(program)), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=ENVIRONMENT, check=False)
    assert not good or done.returncode == 0, done.stderr
    return done


def progress_of(plan: DumpPlan | None, program: str, jobs: int, text: str, code: int) -> ObjectProgress:
    ledger = ObjectProgress(plan, program, jobs)
    for at, line in enumerate(text.split("\n")):
        ledger.add_line(at * 1000, line)
    ledger.program_ended(10**9, code)
    return ledger


def test_every_format_lists_the_same_entries_as_pg_restore(client_dumps: list[ClientDumps]) -> None:
    assert client_dumps
    for one in client_dumps:
        for form, named in (("d", "directory"), ("c", "custom"), ("t", "tar"), ("piped", "custom")):
            listed = run(one.client, "pg_restore", "-l", str(one.path(form))).stdout
            plan = open_archive(one.path(form))
            reported = [(str(entry.dump_id), str(entry.oid or 0)) for entry in plan.entries]
            assert reported == _LISTED.findall(listed), (one.client.version, form)
            assert (plan.format, plan.database, plan.dump_version) == (named, "archived", one.client.version)


def test_table_data_has_the_weight_of_its_size_and_a_piped_archive_has_none(client_dumps: list[ClientDumps]) -> None:
    for one in client_dumps:
        for form in ("d", "c", "t"):
            plan = {(entry.desc, entry.tag): entry for entry in open_archive(one.path(form)).entries}
            rows = plan["TABLE DATA", "parent"]
            assert rows.weight is not None
            assert rows.weight > (plan["TABLE DATA", "child"].weight or 0) > 0
            assert plan["CONSTRAINT", "parent parent_pkey"].weight == rows.weight
            fk = plan["FK CONSTRAINT", "child child_parent_id_fkey"]
            assert fk.table == plan["TABLE DATA", "child"].dump_id
            assert {rows.dump_id, plan["CONSTRAINT", "parent parent_pkey"].dump_id} <= set(fk.needs)
        piped = {(entry.desc, entry.tag): entry for entry in open_archive(one.path("piped")).entries}
        assert piped["TABLE DATA", "parent"].weight is None


def test_a_plain_dump_names_its_writer(client_dumps: list[ClientDumps], shop: Cluster) -> None:
    for one in client_dumps:
        plan = open_archive(one.path("p"))
        assert (plan.format, plan.dump_version, plan.server_version) == (
            "plain",
            one.client.version,
            shop.binaries.version,
        )


def test_an_incomplete_archive_is_reported(client_dumps: list[ClientDumps], tmp_path: Path) -> None:
    one = client_dumps[-1]
    cut = tmp_path / "cut"
    cut.write_bytes(one.path("c").read_bytes()[:3000])
    (tmp_path / "text").write_text("hello")
    (tmp_path / "empty").touch()
    os.mkfifo(tmp_path / "fifo")
    for name in ("cut", "text", "empty", "fifo", ".", "missing"):
        with pytest.raises(ArchiveError, match=re.escape(str(tmp_path / name))):
            open_archive(tmp_path / name)


def test_messages_of_a_parallel_dump_give_the_time_of_every_table(client_dumps: list[ClientDumps]) -> None:
    for one in client_dumps:
        ledger = progress_of(open_archive(one.path("d")), "pg_dump", 2, one.messages, 0)
        assert {item.state for item in ledger.objects().values()} == {"done"}
        assert min(ledger.objects()) > 0, "an object nobody planned"


def test_messages_of_a_restore_decide_every_object_and_its_errors(
    client_dumps: list[ClientDumps], shop: Cluster
) -> None:
    one = client_dumps[0]  # of the server's own version, or the nearest: a later one sets what the server does not know
    archive = str(one.path("d"))
    plan = open_archive(archive)
    shop.psql("create database archived_again")
    try:
        target = shop.dsn(dbname="archived_again")
        good = run(one.client, "pg_restore", "-v", "-j2", "-d", target, archive)
        ledger = progress_of(plan, "pg_restore", 2, good.stderr, 0)
        assert {item.state for item in ledger.objects().values()} == {"done"}
        assert ledger.error_count == 0
        for jobs in (1, 2):
            bad = run(one.client, "pg_restore", "-v", f"-j{jobs}", "-d", target, archive, good=False)
            again = progress_of(plan, "pg_restore", jobs, bad.stderr, bad.returncode)
            key = next(item for item in again.objects().values() if item.entry.tag == "parent parent_pkey")
            assert (bad.returncode, again.ignored is not None) == (1, True)
            # of two workers that fail at once, one may print between the two lines of the other
            assert key.state == "failed" if jobs == 1 else key.state in ("failed", "done")
            assert again.error_count > 10
            assert not again.running_objects
    finally:
        shop.psql("drop database if exists archived_again with (force)")
