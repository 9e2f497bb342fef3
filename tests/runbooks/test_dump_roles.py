"""The runbook `dump`, walked by a role that is no superuser, over TCP, and on a standby."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dba_console.demo.temporary_server import Cluster
from tests.runbooks.dumps import DumpServer, programs, values_of
from tests.runbooks.runs import AnswerSource, Walk, watched_server
from tests.standbys import copied_standby

RUNBOOK, MOMENT, DUMP = "dump", "preconditions", "dump-it/run"
SHOP = "the 'shop'"
DUMPER = "dump er"
_SHOP = f"""
create table parted (id int, day date) partition by range (day);
create table "parted 2026" partition of parted for values from ('2026-01-01') to ('2027-01-01') tablespace "odd space";
insert into parted select i, '2026-05-05' from generate_series(1, 1000) i;
alter table parted enable row level security;
create table alone (id int);
create subscription elsewhere connection 'dbname=nowhere' publication p with (connect = false);
grant select on all tables in schema public to "{DUMPER}"
"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Listens on this host; the dumper's settings leave no statement and no lock any time."""
    with Cluster(programs(), settings={"listen_addresses": "127.0.0.1"}, durable=False) as made:
        space = made.base / "space"
        space.mkdir()
        made.account.chown(space)
        made.psql(f"create tablespace \"odd space\" location '{space}'")
        made.psql(f"create role \"{DUMPER}\" login password 'p' in role pg_monitor")
        made.psql(f"alter role \"{DUMPER}\" set lock_timeout = '1ms'")
        made.psql(f"alter role \"{DUMPER}\" set statement_timeout = '20s'")
        made.psql(f'create database "{SHOP}"')
        made.psql(_SHOP, dbname=SHOP)
        yield made


@pytest.fixture(scope="module")
def dump_server(shop: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DumpServer]:
    dsn = f"host=127.0.0.1 port={shop.port} user='{DUMPER}' password=p dbname=postgres"
    with watched_server(dsn) as scene:
        scene.wait_for_baseline()
        yield DumpServer(shop, scene, tmp_path_factory.mktemp("dumps"))


def test_a_role_that_may_read_everything_dumps_it_together_with_the_roles(dump_server: DumpServer) -> None:
    to = dump_server.directory / "night 1"
    walk = dump_server.run_headless(RUNBOOK, database=SHOP, to=str(to), same_disk="yes", globals="yes")
    assert walk.code == 0, walk.text
    assert values_of(walk, DUMP)["errors"] == 0
    assert "1 subscriptions: only a superuser dumps them" in walk.output
    assert "read to its end by pg_restore" in walk.output, "all of it is read back unless told otherwise"
    roles = to.with_name("night 1.globals.sql")
    assert f'CREATE ROLE "{DUMPER}"' in roles.read_text() and "odd space" in roles.read_text()
    assert "without passwords" in walk.output and "PASSWORD" not in roles.read_text()
    assert roles.stat().st_mode & 0o077 == 0
    to.rename(dump_server.directory / "moved")
    again = dump_server.run_headless(RUNBOOK, database=SHOP, to=str(to), same_disk="yes", globals="yes")
    assert again.code == 7 and again.unmet() == [f"{MOMENT}/place"], again.text


def test_a_name_taken_meanwhile_is_not_overwritten_and_leftovers_go_after_confirmation(
    dump_server: DumpServer,
) -> None:
    to = dump_server.directory / "taken"
    roles = to.with_name("taken.globals.sql")

    def taken() -> str:
        assert roles.exists()
        to.write_text("of somebody else")
        return "y"

    answers: dict[str, AnswerSource] = {
        "start": "yes", "roles-and-tablespaces/run": "y", DUMP: "y", "verify-the-dump/run-2": taken,
        "failed": "abort", "undo": "all", "yes": "yes",
    }  # fmt: skip
    walk = dump_server.run_interactively(
        RUNBOOK, answers, database=SHOP, to=str(to), format="custom", same_disk="yes", globals="yes"
    )
    assert walk.code == 7, walk.text
    assert to.read_text() == "of somebody else"
    assert sorted(dump_server.directory.glob("taken*")) == [to], "it was to be removed, and is there still"


def test_over_tcp_the_data_disk_is_refused_too(dump_server: DumpServer) -> None:
    walk = dump_server.run_headless(RUNBOOK, database=SHOP, to=str(dump_server.cluster.base / "never"))
    assert walk.code == 7 and walk.unmet() == [f"{MOMENT}/disk"], walk.text
    assert "on the same disk: " in walk.text


def test_a_dump_missing_rows_hidden_by_row_security_is_refused(dump_server: DumpServer) -> None:
    dump_server.cluster.psql("alter table alone enable row level security", dbname=SHOP)
    try:
        walk = dump_server.run_headless(
            RUNBOOK, database=SHOP, to=str(dump_server.directory / "never"), same_disk="yes"
        )
    finally:
        dump_server.cluster.psql("alter table alone disable row level security", dbname=SHOP)
    assert walk.code == 7 and walk.unmet() == [f"{MOMENT}/rights"], walk.text
    assert walk.done() == [] and "row security applies: public.alone" in walk.text


def test_a_dump_with_a_damaged_file_keeps_the_name_of_an_incomplete_one(
    dump_server: DumpServer, tmp_path: Path
) -> None:
    """pg_dump ends well here: what its disk keeps of it is another matter."""
    for name in ("psql", "pg_restore", "pg_dumpall"):
        (tmp_path / name).symlink_to(f"{dump_server.bin}/{name}")
    cuts = tmp_path / "pg_dump"
    cuts.write_text(
        f'#!/bin/bash\nset -e\n{dump_server.bin}/pg_dump "$@"\nfor one in "$@"; do case "$one" in --file=*)\n'
        '  largest=$(ls -S "${one#--file=}"/[0-9]*.dat* | head -n 1); truncate -s -5 "$largest" ;; esac; done\n'
    )
    cuts.chmod(0o755)
    to = dump_server.directory / "damaged"

    def run_dump(verify: str) -> Walk:
        return dump_server.watched.run_headless(
            RUNBOOK, database=SHOP, to=str(to), same_disk="yes", programs=str(tmp_path), verify=verify
        )

    walk = run_dump("read")
    assert walk.code == 7, walk.text
    assert "verification failed" in walk.output
    assert not to.exists() and to.with_name("damaged.partial").exists()
    listed = run_dump("list")
    assert listed.code == 0 and "its data were not read" in listed.output, listed.text


def test_a_standby_is_dumped_while_its_replay_is_paused(tmp_path: Path) -> None:
    to = tmp_path / "of the standby"
    with Cluster(programs(), durable=False) as primary:
        primary.psql("create table items (id int)")
        primary.psql("create unlogged table scratch (id int)")
        with copied_standby(primary) as standby, watched_server(standby.dsn()) as scene:
            ground = DumpServer(standby, scene, tmp_path)
            refused = ground.run_headless(RUNBOOK, database="postgres", to=str(to), same_disk="yes")
            assert refused.code == 7 and refused.unmet() == [f"{MOMENT}/standby"], refused.text
            standby.psql("select pg_wal_replay_pause()")
            walk = ground.run_headless(RUNBOOK, database="postgres", to=str(to), same_disk="yes")
            assert walk.code == 0, walk.text
            assert "rows of 1 unlogged tables, which a standby does not have" in walk.output
            assert (to / "toc.dat").exists()
