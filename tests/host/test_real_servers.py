"""Real servers seen from outside must be what they say of themselves."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dba_console.demo.temporary_server import Cluster
from dba_console.watch.probes.host.file_systems import HostContext
from dba_console.watch.probes.host.kernel_files import read_stat
from dba_console.watch.probes.host.postmasters import find_postmasters
from dba_console.watch.probes.host.probe import HostProbe
from dba_console.watch.samples.host import ControlFile, Process, Processes, ProcessTitle, ProcessTitles
from tests.background import idle_in_transaction, idle_sessions, session, wait_until, waiting_for_lock
from tests.clusters import FreshCluster
from tests.requirements import require_root
from tests.sql import query


@pytest.fixture
def probe() -> Iterator[HostProbe]:
    probe = HostProbe()
    yield probe
    probe.close()


def context(cluster: Cluster) -> HostContext:
    return HostContext(cluster.pid, str(cluster.data_directory))


def titles(probe: HostProbe, cluster: Cluster) -> ProcessTitles:
    [part] = probe.read(["host.titles"], context(cluster))
    reading = part.decode()
    assert isinstance(reading, ProcessTitles), part.note
    return reading


def processes(probe: HostProbe, cluster: Cluster) -> Processes:
    [part] = probe.read(["host.processes"], context(cluster))
    reading = part.decode()
    assert isinstance(reading, Processes), part.note
    return reading


def row(reading: Processes, pid: int) -> Process:
    return next(row for row in reading.rows if row.pid == pid)


def clients(reading: ProcessTitles) -> dict[int, ProcessTitle]:
    return {row.pid: row for row in reading.rows if row.kind == "client backend"}


def test_the_control_file_agrees_with_the_server(server: Cluster, probe: HostProbe) -> None:
    query(server, "checkpoint")
    [part] = probe.read(["host.control"], context(server))
    assert (part.status, part.note) == ("ok", None)
    ours = part.decode()
    assert isinstance(ours, ControlFile)
    theirs = query(
        server,
        "select system_identifier, pg_control_version, c.timeline_id, split_part(c.next_xid, ':', 2), c.oldest_xid, "
        "current_setting('max_connections'), current_setting('data_checksums') = 'on', current_setting('port') "
        "from pg_control_system(), pg_control_checkpoint() c",
    )
    checksums = "t" if ours.data_checksums else "f"
    reported = [ours.system_identifier, ours.version_number, ours.timeline, ours.next_xid, ours.oldest_xid]
    assert "|".join(map(str, [*reported, ours.max_connections, checksums, ours.port])) == theirs
    assert (ours.state, ours.major, ours.postmaster_pid) == ("in production", server.major, server.pid)


def test_titles_count_and_name_the_same_clients_as_the_server(server: Cluster, probe: HostProbe) -> None:
    with idle_sessions(server, 7), idle_in_transaction(server) as idler:
        found = clients(titles(probe, server))
        theirs = query(
            server, "select pid from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()"
        )
        assert set(map(int, theirs.split())) <= set(found)
        assert found[idler].state == "idle in transaction"
        assert (found[idler].user, found[idler].database, found[idler].client) == ("postgres", "postgres", "[local]")
        assert sum(1 for title in found.values() if title.state == "idle") >= 7


def test_server_processes_are_named_as_the_server_names_them(server: Cluster, probe: HostProbe) -> None:
    kinds = {row.kind for row in titles(probe, server).rows}
    theirs = query(
        server,
        "select distinct backend_type from pg_stat_activity where backend_type <> 'client backend' "
        "and backend_type not like '%worker'",
    )
    assert set(theirs.split("\n")) <= kinds


def test_a_running_server_is_found_with_its_port_socket_and_data_directory(server: Cluster) -> None:
    found = next(postmaster for postmaster in find_postmasters() if postmaster.pid == server.pid)
    assert found.port == server.port
    assert found.socket_directory == str(server.socket_directory)
    assert found.data_directory is not None
    assert os.path.samefile(found.data_directory, server.data_directory)


def test_a_waiting_backend_shows_it_in_its_title(cluster: Cluster, probe: HostProbe) -> None:
    with (
        idle_in_transaction(cluster, "select pg_advisory_xact_lock(4242)"),
        waiting_for_lock(cluster, "select pg_advisory_lock(4242)") as waiter,
    ):
        assert clients(titles(probe, cluster))[waiter].state == "SELECT waiting"


def test_names_with_spaces_are_counted_but_not_guessed(cluster: Cluster, probe: HostProbe) -> None:
    query(cluster, 'create role "my app" login superuser')
    try:
        with session(cluster, user="my app") as connection:
            title = clients(titles(probe, cluster))[connection.info.backend_pid]
            assert (title.user, title.database, title.state) == (None, None, "idle")
    finally:
        query(cluster, 'drop role "my app"')


def test_a_cluster_name_and_titles_that_are_not_updated_are_read(
    reused_cluster: FreshCluster, probe: HostProbe
) -> None:
    cluster = reused_cluster({"cluster_name": "my: clu", "update_process_title": "off"})
    with session(cluster) as connection:
        reading = titles(probe, cluster)
        title = clients(reading)[connection.info.backend_pid]
        assert (title.user, title.database, title.state) == ("postgres", "postgres", None)
        assert not reading.update_process_title
        assert "checkpointer" in {row.kind for row in reading.rows}


def test_a_working_backend_uses_cpu_and_a_waiting_one_does_not(cluster: Cluster, probe: HostProbe) -> None:
    with session(cluster) as busy, session(cluster) as idle:
        wait_until(lambda: is_sleeping(idle.info.backend_pid), what="it sleeps")
        before = processes(probe, cluster)
        deadline = time.monotonic() + 30
        used = 0
        while used < 5 and time.monotonic() < deadline:
            busy.execute("select count(*) from generate_series(1, 200000)")
            after = row(processes(probe, cluster), busy.info.backend_pid)
            used = after.user_ticks + after.system_ticks - cpu(row(before, busy.info.backend_pid))
        assert used >= 5
        active = HostContext(cluster.pid, active_pids=frozenset((idle.info.backend_pid,)))
        [part] = probe.read(["host.processes"], active)
        # what it took for its last answer may fill a tick when the kernel books it
        assert cpu(row(part.decode(), idle.info.backend_pid)) - cpu(row(before, idle.info.backend_pid)) <= 1


def is_sleeping(pid: int) -> bool:
    stat = read_stat("/proc", pid)
    return stat is not None and stat.state == "S"


def cpu(process: Process) -> int:
    return process.user_ticks + process.system_ticks


def test_every_child_is_counted_as_the_server_counts_its_processes(cluster: Cluster, probe: HostProbe) -> None:
    with idle_sessions(cluster, 3) as sessions:
        pids = {one.info.backend_pid for one in sessions}

        def all_counted() -> Processes | None:
            """Where none ended between being listed and being read."""
            reading = processes(probe, cluster)
            return reading if reading.total == len(reading.rows) - 1 else None

        reading = wait_until(all_counted, what="as many as are counted")
        assert pids <= {row.pid for row in reading.rows}
        # Rows are in the order of their pids, which begin anew after the highest: the first may be a child.
        assert cluster.pid == reading.postmaster
        assert reading.postmaster in {row.pid for row in reading.rows}


def test_a_stopped_postmaster_is_shown_as_stopped_and_nothing_hangs(
    reused_cluster: FreshCluster, probe: HostProbe
) -> None:
    cluster = reused_cluster()
    where = context(cluster)
    cluster.sigstop()
    try:
        postmaster = where.postmaster_pid or 0
        wait_until(lambda: row(processes(probe, cluster), postmaster).state == "T", what="the stop")
        parts = probe.read(["host.processes", "host.titles", "host.control"], where)
    finally:
        cluster.sigcont()
    assert {part.status for part in parts} == {"ok"}


def test_a_killed_server_has_ended_and_its_next_start_is_read_again(
    reused_cluster: FreshCluster, probe: HostProbe
) -> None:
    cluster = reused_cluster()
    where = context(cluster)
    probe.read(["host.processes"], where)
    cluster.kill()
    [part] = probe.read(["host.processes"], where)
    assert (part.status, part.note) == ("error", f"the postmaster, process {where.postmaster_pid}, has ended")
    cluster.start()
    assert processes(probe, cluster).postmaster == cluster.pid


UNRELATED_POSTMASTER = """
import os, sys
from dba_console.watch.probes.host.file_systems import HostContext
from dba_console.watch.probes.host.probe import HostProbe
context = HostContext(int(sys.argv[1]), sys.argv[2])
os.setgroups([])
os.setgid(61234)
os.setuid(61234)
processes, control = HostProbe().read(["host.processes", "host.control"], context)
rows = processes.decode().rows
print(processes.status, {row.read_bytes for row in rows}, min(row.rss for row in rows) > 0, "root" in processes.note)
print(control.status, control.decode().system_identifier, "root" in control.note)
"""


def test_another_user_sees_cpu_and_memory_and_the_rights_the_rest_needs(cluster: Cluster) -> None:
    require_root()
    done = subprocess.run(
        [sys.executable, "-c", UNRELATED_POSTMASTER, str(cluster.pid), str(cluster.data_directory)],
        capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.stdout.splitlines() == ["ok {None} True True", "denied None True"], done.stderr
