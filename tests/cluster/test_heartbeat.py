"""The heartbeat: what it measures of events whose times are known, what it survives, and what it leaves behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from dba_console.clusters.heartbeat import (
    FILE,
    INTERVAL_S,
    HeartbeatOutage,
    outage_lines,
    read_outage,
    start_heartbeat,
    stop_heartbeat,
)
from dba_console.clusters.heartbeat_clients import KEPT_OUT_MESSAGE
from dba_console.core.clock import SYSTEM
from dba_console.core.errors import SessionError, UsageError
from dba_console.demo.temporary_server import Cluster, make_standby
from tests.background import wait_until
from tests.clusters import binaries_of
from tests.postgres.pgbouncer import running_pgbouncer
from tests.processes import contents
from tests.sql import query, wait_for

pytestmark = pytest.mark.xdist_group("heartbeat")
HEARTBEAT_SESSIONS = "select count(*) from pg_stat_activity where application_name = 'dba-console:cutover-heartbeat'"
HEARTBEAT_SCHEMA = "select count(*) from pg_namespace where nspname = 'dba_console'"


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    stop_heartbeat(tmp_path)


def started_heartbeat(directory: Path, conninfo: str) -> HeartbeatOutage:
    """A heartbeat of which a write and a read were acknowledged."""
    start_heartbeat(directory, conninfo, SYSTEM)
    return wait_for_more(directory, HeartbeatOutage())


def wait_for_more(directory: Path, than: HeartbeatOutage) -> HeartbeatOutage:
    """What it measures once further writes and reads are on record."""

    def found() -> HeartbeatOutage | None:
        now = read_outage(directory)
        return now if now.writes > than.writes and now.reads > than.reads else None

    return wait_until(found, what="a further beat")


def multi_host_conninfo(*clusters: Cluster) -> str:
    """The conninfo of a client that knows several servers and takes the one that may be written."""
    hosts, ports = ",".join(str(one.socket_directory) for one in clusters), ",".join(str(one.port) for one in clusters)
    return f"host={hosts} port={ports} user=postgres dbname=postgres target_session_attrs=read-write"


def writers(directory: Path) -> list[str | None]:
    return [one.port for one in read_outage(directory).servers if one.kind == "write"]


def wait_for_errors(directory: Path) -> None:
    """Returns once further beats have failed."""
    before = sum(read_outage(directory).errors.values())
    wait_until(lambda: sum(read_outage(directory).errors.values()) > before, what="a further error")


def process_of(directory: Path) -> int:
    """The heartbeat's process id."""
    [pid] = processes_of(directory)
    return pid


def processes_of(directory: Path) -> list[int]:
    """Found by their command lines."""
    return [
        pid
        for pid, line in contents("cmdline")
        if (words := line.split(b"\0"))[-2:-1] == [os.fsencode(directory)]
        and b"dba_console.clusters.heartbeat_process" in words
    ]


def test_an_outage_through_a_paused_pooler_lasts_from_pause_to_resume_and_names_both_servers(
    directory: Path,
) -> None:
    with ExitStack() as around:
        primary = around.enter_context(Cluster(binaries_of(None), durable=False))
        standby = make_standby(primary, slot="to_db2")
        around.callback(standby.close)
        standby.start()
        wait_for(primary, "select 1 from pg_stat_replication where state = 'streaming'")
        conninfo = around.enter_context(running_pgbouncer(primary, "transaction", admin=True))
        admin = around.enter_context(psycopg.connect(conninfo.replace("dbname=postgres", "dbname=pgbouncer"),
                                                     autocommit=True))  # fmt: skip
        started_heartbeat(directory, conninfo)
        unpooled = directory / "unpooled"
        unpooled.mkdir()
        around.callback(stop_heartbeat, unpooled)
        started_heartbeat(unpooled, multi_host_conninfo(primary, standby))
        before_us = SYSTEM.mono_us()
        admin.execute("PAUSE postgres")
        held_us = SYSTEM.mono_us()
        primary.stop()
        standby.psql("select pg_promote()")
        config = primary.base / "bouncer-transaction-True" / "bouncer.ini"
        config.write_text(config.read_text().replace(f"port={primary.port}", f"port={standby.port}").replace(
            str(primary.socket_directory), str(standby.socket_directory)))  # fmt: skip
        admin.execute("RELOAD")
        freed_us = SYSTEM.mono_us()
        admin.execute("RESUME postgres")
        both = [str(primary.port), str(standby.port)]
        wait_until(lambda: writers(directory) == both, what="a write after the pause")
        found = wait_for_more(directory, read_outage(directory))
        after_us = SYSTEM.mono_us()
        wait_until(lambda: writers(unpooled) == both, what="a write over there")
        stop_heartbeat(directory)
        assert query(standby, "select count(*) from dba_console.heartbeat") == "1", "of the other heartbeat"
        stop_heartbeat(unpooled)
        # A beat that was under way at the pause may have been acknowledged within it.
        assert found.write_s is not None and found.read_s is not None
        assert (freed_us - held_us) / 1e6 - INTERVAL_S <= found.write_s <= (after_us - before_us) / 1e6, found
        assert found.read_s >= (freed_us - held_us) / 1e6 - INTERVAL_S
        assert found.ended_us - found.began_us == pytest.approx((found.write_s + INTERVAL_S) * 1e6, abs=2)
        one, other = [each for each in found.servers if each.kind == "write"]
        assert (one.port, one.timeline) == (str(primary.port), 1) and one.to_us <= found.began_us
        assert (other.port, other.timeline) == (str(standby.port), 2) and other.from_us == found.ended_us
        report = "\n".join(outage_lines(read_outage(directory), {1: "db1", 2: "db2"}))
        assert f"writes on db2 (local socket:{standby.port}, timeline 2) from " in report
        assert "same time" not in report
        assert query(standby, HEARTBEAT_SCHEMA) == "0"
        clients = admin.execute("SHOW CLIENTS").fetchall()
        assert not any("dba-console:cutover-heartbeat" in row for row in clients), clients
        ended = read_outage(directory)
        assert (ended.running, ended.ended, ended.left) == (False, "it was stopped", "")


def test_it_survives_the_process_that_started_it_and_its_record_survives_its_own_kill(
    directory: Path, cluster: Cluster
) -> None:
    script = (
        "import os, sys; from pathlib import Path; from dba_console.core.clock import SYSTEM\n"
        "from dba_console.clusters.heartbeat import start_heartbeat\n"
        "start_heartbeat(Path(sys.argv[1]), sys.argv[2], SYSTEM); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", script, str(directory), cluster.dsn()], check=False)
    assert done.returncode == -signal.SIGKILL
    first = wait_for_more(directory, read_outage(directory))
    assert first.running
    pid = process_of(directory)
    assert os.getsid(pid) != os.getsid(0)
    started_heartbeat(directory, cluster.dsn())
    assert process_of(directory) == pid, "one is enough"
    os.kill(pid, signal.SIGKILL)
    killed = wait_until(lambda: None if (now := read_outage(directory)).running else now)
    assert killed.ended == "it was killed" and killed.writes >= first.writes
    start_heartbeat(directory, cluster.dsn(), SYSTEM)
    again = wait_for_more(directory, killed)
    assert again.running and again.unmeasured_s > 0 and again.writes > killed.writes
    stop_heartbeat(directory)
    wait_for(cluster, HEARTBEAT_SESSIONS.replace("count(*)", "count(*) = 0"))
    assert query(cluster, HEARTBEAT_SCHEMA) == "0", "also what the killed one had made"


def test_what_a_killed_one_of_an_earlier_run_left_is_removed_by_the_next_one(
    directory: Path, tmp_path: Path, cluster: Cluster
) -> None:
    (other := tmp_path / "earlier").mkdir()
    started_heartbeat(other, cluster.dsn())
    os.kill(process_of(other), signal.SIGKILL)
    wait_for(cluster, HEARTBEAT_SESSIONS.replace("count(*)", "count(*) = 0"))
    query(cluster, "update dba_console.heartbeat set at = now() - interval '11 minutes'")
    started_heartbeat(directory, cluster.dsn())
    stop_heartbeat(directory)
    assert query(cluster, HEARTBEAT_SCHEMA) == "0"


def test_it_ends_when_its_record_is_removed(directory: Path, cluster: Cluster) -> None:
    started_heartbeat(directory, cluster.dsn())
    pid = process_of(directory)
    shutil.rmtree(directory)
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), what="the end of the heartbeat")
    assert query(cluster, HEARTBEAT_SCHEMA) == "0"


def test_if_no_table_may_be_created_it_writes_messages_and_says_why(directory: Path, cluster: Cluster) -> None:
    query(cluster, "create role plain login")
    try:
        start_heartbeat(directory, cluster.dsn(user="plain"), SYSTEM)
        found = wait_for_more(directory, HeartbeatOutage())
        assert found.advisory == "the role plain may not create a schema in postgres" and not found.errors
        assert any(found.advisory in line for line in outage_lines(found))
    finally:
        stop_heartbeat(directory)
        wait_for(cluster, HEARTBEAT_SESSIONS.replace("count(*)", "count(*) = 0"))
        query(cluster, "drop role plain")


def test_no_table_is_created_if_its_rows_would_be_replicated_to_subscribers(directory: Path, cluster: Cluster) -> None:
    query(cluster, "create publication everything for all tables")
    try:
        assert "subscribers of everything" in started_heartbeat(directory, cluster.dsn()).advisory
        assert query(cluster, HEARTBEAT_SCHEMA) == "0"
    finally:
        query(cluster, "drop publication everything")


def test_a_table_of_another_role_is_not_written(directory: Path, cluster: Cluster) -> None:
    query(cluster, "create role maker; create schema dba_console authorization maker; create role plain login")
    try:
        found = started_heartbeat(directory, cluster.dsn(user="plain"))
        assert found.advisory == "the schema dba_console belongs to the role maker"
    finally:
        stop_heartbeat(directory)
        wait_for(cluster, HEARTBEAT_SESSIONS.replace("count(*)", "count(*) = 0"))
        query(cluster, "drop schema dba_console; drop role maker; drop role plain")


def test_objects_of_another_user_in_the_schema_stay(directory: Path, cluster: Cluster) -> None:
    started_heartbeat(directory, cluster.dsn())
    query(cluster, "create table dba_console.theirs ()")
    try:
        stop_heartbeat(directory)
        assert read_outage(directory).left == ""
        assert query(cluster, "select count(*) from dba_console.theirs") == "0"
        assert query(cluster, "select to_regclass('dba_console.heartbeat') is null") == "t"
    finally:
        query(cluster, "drop schema dba_console cascade")


def test_a_session_that_is_ended_is_an_error_and_the_next_one_continues(directory: Path, cluster: Cluster) -> None:
    before = started_heartbeat(directory, cluster.dsn())
    query(cluster, HEARTBEAT_SESSIONS.replace("count(*)", "count(pg_terminate_backend(pid))"))
    after = wait_for_more(directory, before)
    errors = wait_until(lambda: read_outage(directory).errors)
    assert any("terminating connection" in text for text in errors), errors
    assert after.running


def test_where_clients_are_blocked_it_writes_nothing_even_as_a_superuser(directory: Path, cluster: Cluster) -> None:
    query(cluster, "create database shop")
    try:
        started_heartbeat(directory, cluster.dsn(dbname="shop"))
        query(cluster, "alter database shop connection limit 0")
        wait_until(lambda: KEPT_OUT_MESSAGE in read_outage(directory).errors, what="a beat that is held")
        beats = "select beats from dba_console.heartbeat"
        last = query(cluster, beats, dbname="shop")
        wait_for_errors(directory)
        assert query(cluster, beats, dbname="shop") == last
        query(cluster, "alter database shop connection limit -1")
        wait_for_more(directory, read_outage(directory))
    finally:
        stop_heartbeat(directory)
        wait_for(cluster, HEARTBEAT_SESSIONS.replace("count(*)", "count(*) = 0"))
        query(cluster, "drop database shop")


def test_an_unresponsive_server_is_measured_and_does_not_keep_it_from_starting(directory: Path) -> None:
    start_heartbeat(directory, "host=127.0.0.1 port=1 user=u", SYSTEM, life_s=0.1)
    found = wait_until(lambda: now if (now := read_outage(directory)).ended else None)
    assert found.write_s is None and found.ended == "its maximum lifetime of 0.1 s was reached"
    assert any("refused" in text for text in found.errors)
    assert outage_lines(found)[0] == "whether clients could write is unknown: no write was acknowledged"


def test_its_password_is_neither_in_its_arguments_nor_in_its_environment(
    directory: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", "from-the-environment")
    started_heartbeat(directory, cluster.dsn() + " password=from-the-conninfo")
    place = Path("/proc") / str(process_of(directory))
    seen = (place / "cmdline").read_bytes() + (place / "environ").read_bytes() + (directory / FILE).read_bytes()
    assert b"from-the" not in seen
    assert (directory / FILE).stat().st_mode & 0o777 == 0o600


def test_an_unwritable_directory_and_an_invalid_connection_string_are_refused(
    tmp_path: Path,
) -> None:
    with pytest.raises(UsageError):
        start_heartbeat(tmp_path, "host", SYSTEM)
    with pytest.raises(SessionError, match="cannot write to"):
        start_heartbeat(tmp_path / "missing", "host=127.0.0.1", SYSTEM)
    wait_until(lambda: not processes_of(tmp_path / "missing"), what="the end of the process")


def test_a_truncated_record_is_read_up_to_its_end(tmp_path: Path) -> None:
    header = '["start",{"pid":1,"ticks":0,"boot":"b","wall_us":1000000,"mono_us":0}]\n'
    lines = '["server",0,{"address":"10.0.0.1","port":"5432","in_recovery":"false","timeline":"0000000A"}]\n'
    beats = '["w",0,10000,0]\n["w",30000,40000,0]\n["w",50000,900000,0]\n["at",1000000]\n["w",9100'
    (tmp_path / FILE).write_text(header + lines + beats)
    found = read_outage(tmp_path)
    assert (found.write_s, found.began_us, found.ended_us) == (0.84, 1040000, 1900000)
    assert (found.writes, found.reads, found.read_s, found.until_us) == (3, 0, None, 2000000)
    assert found.servers[0].server == "10.0.0.1:5432, timeline 10"
    assert read_outage(tmp_path / "none") == HeartbeatOutage()


@pytest.mark.parametrize("first", [["W", 1_000_000, 1_100_000, 0], ["at", 1_200_000]], ids=["failed", "was held"])
def test_an_outage_that_started_before_the_heartbeat_is_unknown_with_the_reason(
    first: list[object], tmp_path: Path
) -> None:
    header = {"pid": 1, "ticks": 0, "boot": "another", "wall_us": SYSTEM.wall_us(), "mono_us": 1_000_000}
    lines = [["start", header], ["error", 0, "connection refused"], first]
    for ended in (9_000_000, 9_020_000, 9_060_000):
        lines += [["w", ended - 10_000, ended, 1], ["r", ended - 10_000, ended, 1]]
    (tmp_path / FILE).write_text("\n".join(map(json.dumps, lines)))
    found = read_outage(tmp_path)
    assert (found.write_s, found.write_before_s) == (None, 8.0)
    assert "how long clients could not write is unknown: the heartbeat started" in outage_lines(found)[0]
    with open(tmp_path / FILE, "a") as file:
        file.write('\n["w", 9100000, 30000000, 1]')
    assert read_outage(tmp_path).write_s == pytest.approx(20.94 - INTERVAL_S), "a longer one that was seen counts"
