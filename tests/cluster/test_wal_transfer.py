"""WAL of a killed server: where it ends, and its files copied into a standby that replays them without a restart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dba_console.clusters.cluster_check import lsn_text, parse_lsn
from dba_console.clusters.server_control import ServerControl
from dba_console.clusters.wal_files import segment_names
from dba_console.clusters.wal_transfer import copy_files, existing_files, read_wal_end
from dba_console.core.clock import SYSTEM
from dba_console.core.config import NodeConfig
from dba_console.core.errors import ConsoleError
from dba_console.demo.temporary_server import Cluster
from tests.clusters import FreshCluster
from tests.sql import query, wait_for
from tests.sshd import NAME, Sshd, sshd
from tests.standbys import copied_standby, preallocate_wal

pytestmark = pytest.mark.xdist_group("sshd")
POSITION = "select greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn())"


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with sshd(tmp_path_factory.mktemp("s")) as running:
        yield running


def control_of(cluster: Cluster, ssh: str | None = None) -> ServerControl:
    config = NodeConfig(dsn=cluster.dsn(), ssh=ssh, bin_directory=str(cluster.binaries.directory))
    return ServerControl("db", config, str(cluster.data_directory), None, SYSTEM)


@pytest.mark.parametrize("ends", ["in a record", "after a switch"])
def test_files_of_a_killed_primary_reach_a_standby_on_this_and_on_another_host(
    fresh_cluster: FreshCluster, remote: Sshd, ends: str
) -> None:
    primary = fresh_cluster({"max_wal_senders": "5"})
    with copied_standby(primary) as standby:
        query(standby, "alter system set primary_conninfo = ''")
        query(standby, "select pg_reload_conf()")
        wait_for(standby, "select count(*) = 0 from pg_stat_wal_receiver")
        query(primary, "set synchronous_commit = on; create table saved as select generate_series(1, 300000) i")
        if ends == "after a switch":
            query(primary, "select pg_switch_wal()")
        expected = parse_lsn(query(primary, "select pg_current_wal_flush_lsn()"))
        primary.kill()
        preallocate_wal(primary)
        (primary.data_directory / "pg_wal" / f"00000001{'z' * 16}").touch()  # no name of a WAL file
        position = parse_lsn(query(standby, POSITION))
        source, target = control_of(primary, NAME), control_of(standby)
        end = read_wal_end(source, 1, position)
        assert expected - 8 <= end <= expected + 8192, (lsn_text(end), lsn_text(expected))
        names = segment_names(1, position, end)
        assert len(names) > 1
        reported: list[str] = []
        copy_files(source, target, names, lambda name, _: reported.append(name))
        assert reported == names and existing_files(target, names) == {*names}
        wait_for(standby, f"select pg_last_wal_replay_lsn() >= '{lsn_text(end)}'")
        assert query(standby, "select count(*) from saved") == "300000"
        assert read_wal_end(target, 1, position) == end
        with pytest.raises(ConsoleError, match="cannot be"):
            read_wal_end(source, 7, position)


def test_an_interrupted_copy_leaves_the_file_as_it_was(
    fresh_cluster: FreshCluster, remote: Sshd, tmp_path: Path
) -> None:
    primary = fresh_cluster()
    primary.kill()
    source, target = control_of(primary, NAME), control_of(primary)
    with pytest.raises(ConsoleError):
        copy_files(source, target, ["000000010000000000000077"], lambda _name, _number: None)
    assert not list((primary.data_directory / "pg_wal").glob("*77"))
