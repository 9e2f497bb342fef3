"""Real servers are stopped, started, made standbys, rewound and copied, here and over ssh."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from dba_console.actions.acting_connection import ActingConnection
from dba_console.clusters.node_host import HostConnectionLost
from dba_console.clusters.server_control import ServerControl
from dba_console.clusters.steps.make_plan import find_directories
from dba_console.core.clock import SYSTEM
from dba_console.core.config import NodeConfig
from dba_console.core.errors import ConfigError, ConsoleError, PermissionDenied, Refused, Unsupported
from dba_console.demo.temporary_server import Cluster, child_processes, make_standby, send_signals
from tests.background import wait_until
from tests.cluster.test_node_host import processes
from tests.clusters import FreshCluster
from tests.processes import shown_by_processes
from tests.requirements import require_tool
from tests.sshd import NAME, Sshd, sshd

pytestmark = pytest.mark.xdist_group("sshd")  # where paths are long their shared connections lie in one directory

PASSWORD = "it's: a \\ secret"
STREAMS = "select 1 from pg_stat_replication where state = 'streaming'"


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with sshd(tmp_path_factory.mktemp("s")) as running:
        yield running


@pytest.fixture(params=["here", "ssh"])
def ssh(request: pytest.FixtureRequest) -> str | None:
    if request.param == "here":
        return None
    request.getfixturevalue("remote")
    return NAME


def control_of(
    cluster: Cluster, ssh: str | None = None, *, control: str | None = None, bin_directory: str | None = None
) -> ServerControl:
    config = NodeConfig(dsn=cluster.dsn(), ssh=ssh, control=control, bin_directory=bin_directory)
    return ServerControl("db1", config, str(cluster.data_directory), str(cluster.binaries.directory), SYSTEM)


@contextmanager
def stopped_at_end(*controls: ServerControl) -> Iterator[None]:
    """What a control has started is not the child of the `Cluster`."""
    try:
        yield
    finally:
        for control in controls:
            control.stop(30)


@contextmanager
def pair(fresh_cluster: FreshCluster) -> Iterator[tuple[Cluster, Cluster]]:
    """A primary that wants a password over TCP, and its standby."""
    primary = fresh_cluster({"listen_addresses": "127.0.0.1", "synchronous_commit": "on", "wal_keep_size": "64MB"})
    quoted = PASSWORD.replace("'", "''")
    primary.psql(f"create role rep superuser login replication password '{quoted}'")
    primary.psql("create table t (n int)")
    with make_standby(primary) as standby:
        wait_until(lambda: primary.psql(STREAMS), what="the standby streaming")
        yield primary, standby


def conninfo(cluster: Cluster) -> str:
    quoted = PASSWORD.replace("\\", "\\\\").replace("'", "\\'")
    return f"host=127.0.0.1 port={cluster.port} user=rep dbname=postgres password='{quoted}'"


def test_a_server_is_stopped_and_started_with_its_options_and_its_shutdown_is_read_from_its_files(
    fresh_cluster: FreshCluster, ssh: str | None
) -> None:
    cluster = fresh_cluster()
    control = control_of(cluster, ssh)
    identifier = cluster.psql("select system_identifier from pg_control_system()")
    cluster.stop()
    cluster.run(
        "pg_ctl", "start", "-w", "-D", str(cluster.data_directory), "-l", str(cluster.log_path),
        "-o", "-c work_mem=7MB -c search_path='\"a b\"'",
    )  # fmt: skip
    with stopped_at_end(control):
        assert control.running()
        assert control.control_file().state == "in production"
        assert control.stop(30).code == 0
        assert not control.running()
        read = control.control_file()
        assert (read.state, read.system_identifier) == ("shut down", identifier)
        shown = cluster.run("pg_controldata", str(cluster.data_directory))
        assert f"Latest checkpoint location:           {read.checkpoint_lsn}\n" in shown
        assert control.stop(30).code == 0, "one that is down is fine"
        assert control.start(30).code == 0
        assert control.start(30).code == 0
        assert cluster.psql("show work_mem; show search_path") == '7MB\n"a b"'


def test_a_server_that_does_not_start_is_not_reported_as_started(fresh_cluster: FreshCluster, ssh: str | None) -> None:
    cluster = fresh_cluster()
    control = control_of(cluster, ssh)
    assert control.stop(30).code == 0
    (cluster.data_directory / "postgresql.auto.conf").write_text("no_such_setting = 1\n")
    ended = control.start(30)
    assert ended.code == 1
    assert "could not start server" in ended.errors
    assert not control.running()


def test_a_stop_that_exceeds_its_timeout_is_reported_and_the_server_still_runs(
    fresh_cluster: FreshCluster, ssh: str | None
) -> None:
    cluster = fresh_cluster()
    control = control_of(cluster, ssh)
    cluster.sigstop()
    try:
        assert control.stop(1).code is None
        assert control.running()
    finally:
        cluster.sigcont()
    wait_until(lambda: not control.running(), what="the end of the server")
    assert control.control_file().state == "shut down"


def test_a_frozen_server_is_killed_however_short_the_time(fresh_cluster: FreshCluster, ssh: str | None) -> None:
    cluster = fresh_cluster()
    control = control_of(cluster, ssh)
    assert cluster.pid is not None
    send_signals([psutil.Process(cluster.pid), *child_processes(cluster.pid)], signal.SIGSTOP)
    with suppress(ConsoleError):  # some of its processes may not have ended yet
        control.kill(0.0)
    wait_until(lambda: not control.running(), what="the end of the server")


def test_a_stop_with_a_lost_connection_is_decided_by_the_files_over_another_one(
    fresh_cluster: FreshCluster, remote: Sshd
) -> None:
    cluster = fresh_cluster()
    control = control_of(cluster, NAME)
    assert control.running()
    cluster.sigstop()

    def cut_connection() -> None:
        wait_until(lambda: processes(f"{cluster.data_directory}\0stopped\0"), what="the stop")
        remote.cut()
        cluster.sigcont()

    thread = threading.Thread(target=cut_connection)
    thread.start()
    assert control.stop(60).code == 0
    thread.join()
    assert control.control_file().state == "shut down"


def test_a_stop_whose_host_is_gone_has_an_unknown_outcome(fresh_cluster: FreshCluster, remote: Sshd) -> None:
    cluster = fresh_cluster()
    control = control_of(cluster, NAME)
    cluster.sigstop()

    def owner_missing() -> None:
        wait_until(lambda: processes(f"{cluster.data_directory}\0stopped\0"), what="the stop")
        remote.stop()

    thread = threading.Thread(target=owner_missing)
    thread.start()
    try:
        with pytest.raises(HostConnectionLost, match="the state of db1 cannot be read"):
            control.stop(60)
    finally:
        thread.join()
        cluster.sigcont()
        remote.start()
    wait_until(lambda: not control.running(), what="the end of the server")
    assert control.control_file().state == "shut down"


@pytest.mark.root
def test_an_account_that_is_not_the_owner_needs_sudo_for_everything(
    fresh_cluster: FreshCluster, tmp_path: Path
) -> None:
    require_tool("sudo")
    cluster = fresh_cluster()
    owner = cluster.account.name
    if owner != "postgres":  # else the account may not even see the directory
        cluster.base.chmod(0o711)
    account = "setpriv --reuid=daemon --regid=daemon --clear-groups"
    (tmp_path / "without").mkdir()
    with sshd(tmp_path / "without", through=account), pytest.raises(PermissionDenied, match="daemon may not run"):
        control_of(cluster, NAME).stop(30)
    assert cluster.running
    with sshd(tmp_path, through=account, sudoers=f"daemon ALL=({owner}) NOPASSWD: ALL\n"):
        control = control_of(cluster, NAME)
        assert control.stop_command()[:5] == ["sudo", "-n", "-u", owner, "--"]
        assert control.stop(30).code == 0
        control.make_standby(conninfo(cluster), None)
        control.undo_standby()
        assert control.start(30).code == 0
        assert cluster.psql("select pg_is_in_recovery()") == "f"
        assert control.stop(30).code == 0


def test_custom_start_and_stop_commands_are_used_and_keep_no_output_open(fresh_cluster: FreshCluster) -> None:
    cluster = fresh_cluster()
    programs, data = cluster.binaries.directory, cluster.data_directory
    as_owner = ["runuser", "-u", cluster.account.name, "--"] if cluster.account.switched else []
    config = NodeConfig(
        dsn=cluster.dsn(),
        stop=[*as_owner, f"{programs}/pg_ctl", "stop", "-D", str(data)],
        start=[*as_owner, "sh", "-c", f"{programs}/postgres -D {data} &"],
    )
    control = ServerControl("db1", config, str(data), None, SYSTEM)
    with stopped_at_end(control):
        assert control.stop_command() == config.stop
        assert control.stop(30).code == 0
        assert control.start(30).code == 0, "the server holds the output of the command that started it"
        assert cluster.psql("select 1") == "1"


def test_the_standby_settings_are_written_once_and_reverted_exactly(
    fresh_cluster: FreshCluster, ssh: str | None
) -> None:
    cluster = fresh_cluster()
    cluster.psql("alter system set work_mem = '7MB'")
    control = control_of(cluster, ssh)
    with pytest.raises(Refused, match="must be stopped before it is made a standby"):
        control.make_standby(conninfo(cluster), None)
    control.stop(30)
    path = cluster.data_directory / "postgresql.auto.conf"
    before, status = path.read_bytes(), path.stat()
    with stopped_at_end(control):
        control.make_standby(conninfo(cluster), "first")
        (cluster.data_directory / "postgresql.auto.conf.dba-console-new").write_text("half")  # of one that was killed
        control.make_standby(conninfo(cluster), "second")
        assert path.read_text().count("primary_conninfo") == 1
        assert not list(cluster.data_directory.glob("*dba-console-new"))
        assert (path.stat().st_uid, path.stat().st_mode) == (status.st_uid, status.st_mode)
        control.start(30)
        shown = cluster.psql("select pg_is_in_recovery(), current_setting('primary_slot_name')")
        assert shown == "t|second"
        assert cluster.psql("show primary_conninfo") == conninfo(cluster)
        control.stop(30)
        assert control.control_file().state == "shut down in recovery"
        control.undo_standby()
        control.undo_standby()
        assert path.read_bytes() == before
        control.start(30)
        assert cluster.psql("select pg_is_in_recovery()") == "f"


def test_a_crashed_primary_is_rewound_with_its_own_settings_and_no_password_is_visible(
    fresh_cluster: FreshCluster, remote: Sshd
) -> None:
    with pair(fresh_cluster) as (old, new):
        control = control_of(old, NAME)
        new.stop()
        old.psql("insert into t values (1)")  # reaches nobody
        old.kill()
        new.start()
        new.psql("select pg_promote()")
        new.psql("insert into t values (2)")
        new.psql("checkpoint")
        with pytest.raises(Refused, match="was not shut down: pg_control says `in production`"):
            control.rewind(conninfo(new), dry_run=True, timeout_s=60)
        control.make_standby(conninfo(new), None)
        with stopped_at_end(control):
            assert control.start(60).code == 0
            assert old.psql("select n from t") == "1"
            assert control.stop(60).code == 0
            with shown_by_processes([PASSWORD]) as seen:
                dry = control.rewind(conninfo(new), dry_run=True, timeout_s=60)
                assert (dry.code, control.control_file().timeline) == (0, 1), dry.errors + dry.output
                done = control.rewind(conninfo(new), dry_run=False, timeout_s=60)
                assert done.code == 0, done.output
                assert control.rewind(conninfo(new), dry_run=False, timeout_s=60).output == done.output
            assert seen == set()
            assert control.start(60).code == 0
            wait_until(lambda: new.psql(STREAMS), what="the old primary streaming")
            assert old.psql("select n from t; select pg_is_in_recovery()") == "2\nt"
            assert old.psql("show port") == str(old.port)


def test_a_rewind_continues_when_the_connection_is_lost_and_the_next_call_waits_for_it(
    fresh_cluster: FreshCluster, remote: Sshd, tmp_path: Path
) -> None:
    with pair(fresh_cluster) as (old, new):
        new.psql("select pg_promote()")
        old.psql("insert into t values (1)")
        old.stop()
        new.psql("checkpoint")
        programs = old.base / "programs"
        programs.mkdir()
        programs.chmod(0o777)
        slow = programs / "pg_rewind"
        slow.write_text(
            f"#!/bin/sh\necho run >>{programs}/runs\nuntil [ -e {programs}/go ]; do sleep 0.05; done\n"
            f'exec {old.binaries.program("pg_rewind")} "$@"\n'
        )
        slow.chmod(0o755)
        control = control_of(old, NAME, bin_directory=str(programs))

        def cut_connection() -> None:
            wait_until((programs / "runs").exists)
            remote.cut()

        thread = threading.Thread(target=cut_connection)
        thread.start()
        with pytest.raises(HostConnectionLost):
            control.rewind(conninfo(new), dry_run=False, timeout_s=60)
        thread.join()
        assert control.rewind(conninfo(new), dry_run=False, timeout_s=1).code in (None, 75)
        (programs / "go").touch()
        done = control.rewind(conninfo(new), dry_run=False, timeout_s=60)
        assert done.code == 0, done.output + done.errors
        assert (programs / "runs").read_text() == "run\n"


def test_a_copy_replaces_the_old_directory_which_is_kept_next_to_it(fresh_cluster: FreshCluster) -> None:
    with pair(fresh_cluster) as (old, new):
        control = control_of(old)
        with pytest.raises(Refused, match="must be stopped before it is copied"):
            control.clone(conninfo(new), 60)
        new.psql("select pg_promote()")
        old.psql("insert into t values (1)")
        control.stop(30)
        wrong = control.clone(conninfo(new).replace("user=rep", "user=nobody_here"), 60)
        assert wrong.code == 1
        assert "nobody_here" in wrong.output
        assert control.control_file().timeline == 1, "the old directory is untouched"
        done = control.clone(conninfo(new), 60)
        assert done.code == 0, done.output
        [aside] = old.base.glob("data.before-*")
        assert f"the former data directory is {aside}\n" in done.output
        assert (aside / "PG_VERSION").exists()
        with stopped_at_end(control):
            control.make_standby(conninfo(new), None)
            assert control.start(60).code == 0
            wait_until(lambda: new.psql(STREAMS), what="the copy streaming")
            assert old.psql("select count(*) from t; show port") == f"0\n{old.port}"


def test_a_copy_replaces_tablespaces_too_and_keeps_their_former_content(fresh_cluster: FreshCluster) -> None:
    old = fresh_cluster({"listen_addresses": "127.0.0.1", "wal_keep_size": "64MB"})
    quoted = PASSWORD.replace("'", "''")
    old.psql(f"create role rep superuser login replication password '{quoted}'")
    new = Cluster(old.binaries, settings=old.settings)
    places = {one: one.base / "space" for one in (old, new)}
    for one, place in places.items():
        place.mkdir()
        one.account.chown(place)
    old.psql(f"create tablespace space location '{places[old]}'")
    old.psql("create table t tablespace space as select 1 as n")
    mapping = f"--tablespace-mapping={places[old]}={places[new]}"
    new.run("pg_basebackup", "-D", str(new.data_directory), "-d", old.dsn(), "-R", "-c", "fast", mapping)
    with new:
        wait_until(lambda: old.psql(STREAMS), what="the standby streaming")
        new.psql("select pg_promote()")
        old.psql("insert into t values (2)")
        control = control_of(old)
        control.stop(30)
        [(oid, location)] = [
            line.split("|") for line in new.psql("select oid, pg_tablespace_location(oid) from pg_tablespace "
                                                 "where spcname = 'space'").splitlines()
        ]  # fmt: skip
        assert location == str(places[new])
        done = control.clone(conninfo(new), 60, {int(oid): location})
        assert done.code == 0, done.output
        with stopped_at_end(control):
            control.make_standby(conninfo(new), None)
            assert control.start(60).code == 0
            wait_until(lambda: new.psql(STREAMS), what="the copy streaming")
            assert old.psql("select n from t") == "1"
        assert (old.data_directory / "pg_tblspc" / oid).resolve() == places[old].resolve()
        [aside] = places[old].glob("PG_*.before-*")
        assert f"the former tablespace is {aside}" in done.output
        assert new.psql("select n from t") == "1", "the source is untouched"
        with pytest.raises(Refused, match="is not empty, and not a tablespace of this server"):
            control.clone(conninfo(new), 60, {99999: location})


def test_directories_of_a_running_server_are_read_from_the_server(fresh_cluster: FreshCluster) -> None:
    cluster = fresh_cluster()
    cluster.psql("create role app login; create role seer login; grant pg_read_all_settings to seer")
    config = NodeConfig(dsn="")
    directory, programs = str(cluster.data_directory), str(cluster.binaries.directory)

    def found(user: str, config: NodeConfig) -> tuple[str, str | None]:
        operator = ActingConnection(cluster.dsn(user=user))
        try:
            return find_directories(operator, "db1", config, SYSTEM)
        finally:
            operator.close()

    assert found("postgres", config) == (directory, programs)
    assert found("seer", config)[0] == directory
    with pytest.raises(ConfigError, match="the data directory of db1 is unknown"):
        found("app", config)
    configured = NodeConfig(dsn="", data_directory=directory)
    assert found("app", configured) == (directory, None)
    control = ServerControl("db1", configured, directory, None, SYSTEM)
    assert control.program("pg_ctl") == f"{programs}/pg_ctl", "the options of the last start name it"


def test_a_missing_prerequisite_is_a_clear_error(fresh_cluster: FreshCluster, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="control of db1 is 'systemd'"):
        control_of(cluster := fresh_cluster(), control="systemd")
    nowhere = ServerControl("db1", NodeConfig(dsn=""), f"{tmp_path}/none", None, SYSTEM)
    with pytest.raises(ConsoleError, match=f"db1: cannot find data directory {tmp_path}/none on this host"):
        nowhere.running()
    cluster.stop()
    with pytest.raises(Unsupported, match="pg_rewind is missing on this host"):
        control_of(cluster, bin_directory="/nowhere").rewind(conninfo(cluster), dry_run=True, timeout_s=5)
