"""What others with less rights can do to a cutover: owners of databases and of data directories, hosts and poolers that
lie, programs of other accounts, and the environment. No secret is left where others read."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import psycopg
import pytest
from msgspec.structs import replace
from psycopg.waiting import Ready, Wait

from dba_console.actions.acting_connection import ActingConnection
from dba_console.actions.action import ActionContext
from dba_console.actions.deadline_connection import DeadlineExceeded, connect
from dba_console.cli.config_file import find_problem
from dba_console.clusters.cutover_plan import FILE, LIMIT, CutoverPlan, NodePlan, save_plan
from dba_console.clusters.host_facts import read_host
from dba_console.clusters.node_host import Host, NotOwnedByUser, read_file
from dba_console.clusters.node_state import NodeState, read_node
from dba_console.clusters.patroni_members import members_by_api
from dba_console.clusters.pooler_file import change_file, check_file
from dba_console.clusters.pooler_state import read_pooler
from dba_console.clusters.server_control import ServerControl
from dba_console.clusters.steps.begin_cutover import _check_directory
from dba_console.clusters.steps.drain import _WRITE_ACTIVITY
from dba_console.clusters.steps.hold_clients import END_SESSIONS
from dba_console.clusters.steps.step import APPLICATION, open_node
from dba_console.clusters.survey import survey
from dba_console.core.clock import SYSTEM
from dba_console.core.config import ClusterConfig, NodeConfig, PoolerConfig
from dba_console.core.errors import ConnectError, ConsoleError, PermissionDenied, Refused, Unsupported
from dba_console.demo.server_account import server_account
from dba_console.demo.temporary_server import Cluster
from tests.attacks.fake_servers import COLUMNS, GREETING, ROW, listening
from tests.background import wait_until

NOBODY = 65534
OLD, NEW = ("db1", "5432"), ("db2", "5433")
PLAN = CutoverPlan(
    cluster="shop", kind="cutover", old="db1", to="db2", system_identifier="1", timeline=1, version_num=150000,
    nodes={"db1": NodePlan(data_directory="/data")},
)  # fmt: skip
INI = "[databases]\nshop = host=db1 port=5432\n"


@pytest.fixture
def passable_directory() -> Iterator[Path]:
    """A directory that every account may pass."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        yield Path(made)


def node_of(cluster: Cluster, ssh: str | None = None) -> NodeConfig:
    return NodeConfig(dsn=cluster.dsn(), data_directory=str(cluster.data_directory), ssh=ssh)


# -- the owner of a database -------------------------------------------------------------------------------------


def test_a_view_in_place_of_a_pg_cron_table_is_not_read(cluster: Cluster) -> None:
    cluster.psql("create role landlord login; grant create on database postgres to landlord")
    cluster.psql(
        "set role landlord; create schema cron; create function cron.act() returns int language plpgsql as "
        "$$begin raise log 'HOSTILE as %', current_user; return 1; end$$; "
        "create view cron.job as select true as active, 'x'::text as nodename, cron.act() as nodeport; "
        "grant usage on schema cron to public; grant select on cron.job to public"
    )
    found = read_node("db1", node_of(cluster), SYSTEM, detailed=True)
    assert found.reached and found.details is not None and found.details.configured, found
    cluster.psql("drop owned by landlord cascade; drop role landlord")
    assert "HOSTILE as" not in cluster.log_text().replace("raise log 'HOSTILE as", "")


def test_a_client_with_our_application_name_is_terminated_with_the_others(cluster: Cluster) -> None:
    cluster.psql("create role app login")
    with (
        psycopg.connect(
            cluster.dsn(user="app", application_name=f"{APPLICATION}-heartbeat"), autocommit=True
        ) as client,
        psycopg.connect(cluster.dsn(application_name=APPLICATION), autocommit=True) as ours,
        closing(ActingConnection(cluster.dsn(), application=APPLICATION)) as link,
    ):
        [row] = link.rows(_WRITE_ACTIVITY, {"spared": []})
        assert (row["clients"], row["example"]) == (1, "app")
        link.execute_change(END_SESSIONS, {"spared": []}, transaction=False)
        with pytest.raises(psycopg.OperationalError):
            client.execute("select 1")
        assert ours.execute("select 1").fetchone() == (1,)
    cluster.psql("drop role app")


def test_database_settings_by_its_owner_do_not_stop_a_cutover(cluster: Cluster) -> None:
    settings = ["statement_timeout = '1ms'", "lock_timeout = '1ms'", "datestyle = 'SQL, DMY'"]
    version = int(cluster.psql("show server_version_num"))
    settings += ["idle_session_timeout = '1ms'"] if version >= 140000 else []
    cluster.psql("create database tenant")
    cluster.psql("; ".join(f"alter database tenant set {one}" for one in settings))
    for _ in range(3):
        with open_node(cluster.dsn(dbname="tenant"), ActionContext(), version) as link:
            assert link.read_identity().database == "tenant"
            assert link.rows("SELECT pg_catalog.pg_sleep(0.01)")
            link.execute_change("CHECKPOINT", transaction=False)
    cluster.psql("alter database tenant reset all")
    cluster.psql("drop database tenant")


# -- the account of a server, or another one, where the console is root ------------------------------------------


@pytest.mark.root
def test_with_a_link_in_place_of_a_data_directory_root_writes_nothing(passable_directory: Path) -> None:
    (roots := passable_directory / "roots").mkdir()
    (roots / "global").mkdir()
    (link := passable_directory / "data").symlink_to(roots)
    os.chown(link, NOBODY, NOBODY, follow_symlinks=False)
    control = ServerControl("db1", NodeConfig(dsn=""), str(link), "/nonexistent", SYSTEM)
    for act in (control.fence, lambda: control.rewind("host=db2", dry_run=True, timeout_s=1), control.stop_command):
        with pytest.raises(Unsupported, match="belongs to root, and PostgreSQL does not run as root"):
            act()
    assert sorted(os.listdir(passable_directory)) == ["data", "roots"] and os.listdir(roots) == ["global"]


@pytest.mark.root
def test_a_file_of_another_account_is_not_opened(passable_directory: Path) -> None:
    """Opening a device acts on it. A lease shows whether a file was opened."""
    path = passable_directory / "postmaster.pid"
    path.write_text("1\n")
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    try:
        with path.open("r+") as file:
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            with pytest.raises(NotOwnedByUser):
                read_file(str(path), server_account().name)
            assert fcntl.fcntl(file, fcntl.F_GETLEASE) == fcntl.F_WRLCK
    finally:
        signal.signal(signal.SIGIO, before)


@pytest.mark.root
def test_root_does_not_follow_a_link_when_it_changes_a_pooler_file(passable_directory: Path) -> None:
    (theirs := passable_directory / "theirs").mkdir()
    (secret := passable_directory / "secret").write_text(INI)
    secret.chmod(0o600)
    (theirs / "pgbouncer.ini").symlink_to(secret)
    os.chown(theirs, NOBODY, NOBODY)
    config = PoolerConfig(dsn="host=db1", config=f"{theirs}/pgbouncer.ini")
    for act in (check_file, change_file):
        with pytest.raises(ConsoleError, match="Permission denied"):
            act("main", config, ["shop"], OLD, NEW, SYSTEM)
    assert secret.read_text() == INI
    (theirs / "pgbouncer.ini").unlink()
    (own := theirs / "pgbouncer.ini").write_text(INI)
    os.chown(own, NOBODY, NOBODY)
    change_file("main", config, ["shop"], OLD, NEW, SYSTEM)
    assert "host=db2" in own.read_text() and own.stat().st_uid == NOBODY, "its own file its account may change"


@pytest.mark.root
def test_root_changes_no_file_in_a_group_writable_directory(passable_directory: Path) -> None:
    (shared := passable_directory / "shared").mkdir()
    os.chown(shared, 0, NOBODY)
    shared.chmod(0o775)
    (shared / "pgbouncer.ini").write_text(INI)
    config = PoolerConfig(dsn="host=db1", config=f"{shared}/pgbouncer.ini")
    with pytest.raises(PermissionDenied, match='pooler "main": other users may replace'):
        check_file("main", config, ["shop"], OLD, NEW, SYSTEM)


@pytest.mark.root
def test_a_process_of_another_account_is_not_mistaken_for_a_cluster_manager(cluster: Cluster) -> None:
    node = read_node("db1", node_of(cluster), SYSTEM)
    for uid, seen in ((NOBODY - 1, 0), (cluster.data_directory.stat().st_uid, 1)):
        command = ["repmgrd", "4713"]
        with subprocess.Popen(command, executable="/bin/sleep", user=uid, group=uid, extra_groups=[], cwd="/") as one:
            try:
                line = Path(f"/proc/{one.pid}/cmdline")
                wait_until(partial(_begins, line, b"repmgrd"))
                found = read_host(node, node_of(cluster), None, SYSTEM)
                assert not found.error and found.managers.count("repmgrd 4713") == seen, found
            finally:
                one.kill()


def _begins(path: Path, text: bytes) -> bool:
    return path.read_bytes().startswith(text)


# -- a host behind ssh -------------------------------------------------------------------------------------------


@pytest.fixture
def remote_command(passable_directory: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes `ssh` a script: `$last` is the command that the host gets."""

    def make(script: str) -> None:
        (program := passable_directory / "ssh").write_text(f"#!/bin/sh\nfor last; do :; done\n{script}\n")
        program.chmod(0o755)

    monkeypatch.setenv("PATH", f"{passable_directory}:{os.environ['PATH']}")
    monkeypatch.setenv("DBA_CONSOLE_RUNTIME", str(passable_directory / "run"))
    monkeypatch.setenv("TMPDIR", str(passable_directory))
    return make


@pytest.mark.parametrize(
    "printed",
    ["", "banana", "dba-console: content\\nx", "dba-console: content\\na\\nb\\nc\\nd e\\nf\\n\\n", "root"],
    ids=["nothing", "a word", "our mark", "facts", "root"],
)
def test_a_host_with_an_unexpected_answer_is_a_clear_error(printed: str, remote_command: Callable[[str], None]) -> None:
    remote_command(f"printf '{printed}'")
    config = NodeConfig(dsn="host=db1", ssh="db1", data_directory="/data")
    found = read_host(NodeState(name="db1", asked_us=0, data_directory="/data"), config, None, SYSTEM)
    assert found.error and "Traceback" not in found.error, found
    control = ServerControl("db1", config, "/data", None, SYSTEM)
    for act in (control.running, control.control_file):
        with pytest.raises(ConsoleError):
            act()


def test_facts_are_read_after_the_output_of_a_login_shell(
    cluster: Cluster, remote_command: Callable[[str], None]
) -> None:
    remote_command('printf "Welcome to db1\\n\\n5432\\n"; exec sh -c "$last"')
    found = read_host(read_node("db1", node_of(cluster), SYSTEM), node_of(cluster, ssh="db1"), None, SYSTEM)
    assert not found.error and found.data is not None, found


def test_an_endless_login_greeting_does_not_fill_the_disk(remote_command: Callable[[str], None]) -> None:
    remote_command("while :; do head -c 400000 /dev/zero; sleep 0.1; done")
    with pytest.raises(ConnectError, match="printed too much"):
        Host("db1", SYSTEM).run(["true"])


def test_an_api_that_answers_byte_by_byte_is_abandoned_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dba_console.clusters.patroni_members.API_S", 0.5)
    with listening(send_slowly) as port:
        assert members_by_api([], f"connect_address: 127.0.0.1:{port}") == ()
    assert members_by_api([], "connect_address: 127.0.0.1:99999 connect_address: 127.0.0.1:²") == ()


def send_slowly(connection: socket.socket, ended: threading.Event) -> None:
    while not ended.wait(0.3):
        connection.sendall(b"x")


# -- a server or pooler that lies --------------------------------------------------------------------------------


def rows_without_end(connection: socket.socket, ended: threading.Event) -> None:
    """Lets everybody in, and answers the first question with more rows than anybody wants."""
    connection.recv(8192)
    connection.sendall(GREETING)
    connection.recv(8192)
    connection.sendall(COLUMNS)
    while not ended.is_set():
        connection.sendall(ROW * 1024)


def test_a_pooler_that_returns_endless_rows_is_abandoned_after_some_of_them() -> None:
    with listening(rows_without_end) as port:
        config = PoolerConfig(dsn=f"host=127.0.0.1 port={port} user=x sslmode=disable gssencmode=disable")
        assert read_pooler("main", config, SYSTEM).error == "its answer is longer than 16 MB"


def test_a_server_whose_answer_never_ends_is_abandoned_at_the_deadline(cluster: Cluster) -> None:
    def answer_always_ready() -> Generator[Wait, Ready | int, int]:
        for _ in range(10_000):
            yield Wait.W
        return 0

    with closing(connect(cluster.dsn(), application="test", database=None, timeout_s=3, clock=SYSTEM)) as connection:
        connection.deadline_us = SYSTEM.mono_us()
        with pytest.raises(DeadlineExceeded):
            connection.wait(answer_always_ready())


def test_a_node_with_an_invalid_answer_is_shown_as_an_error(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def answer_falsely(*_: object, **__: object) -> NodeState:
        raise ValueError("not enough values to unpack password=hushhush")

    monkeypatch.setattr("dba_console.clusters.survey.read_node", answer_falsely)
    found = survey("shop", ClusterConfig(nodes={"db1": NodeConfig(dsn="")}), SYSTEM)
    assert "its answer cannot be read: ValueError" in found.nodes[0].error
    assert "hushhush" not in found.nodes[0].error + "".join(capfd.readouterr())


def test_a_server_that_names_the_directory_of_another_one_is_not_stopped_there(cluster: Cluster) -> None:
    control = ServerControl("db1", node_of(cluster), str(cluster.data_directory), None, SYSTEM)
    own = cluster.psql("select system_identifier from pg_control_system()")
    _check_directory(control, replace(PLAN, system_identifier=own))
    with pytest.raises(Refused, match=f"belongs to another server than db1: its system identifier is {own}, not 1"):
        _check_directory(control, PLAN)


def test_a_plan_that_could_not_be_read_again_is_not_stored(tmp_path: Path) -> None:
    world = ActionContext(run_directory=str(tmp_path))
    save_plan(world, PLAN)
    kept = (tmp_path / FILE).read_bytes()
    with pytest.raises(Refused, match="too many databases"):
        save_plan(world, replace(PLAN, databases={"main": ("x" * LIMIT,)}))
    assert (tmp_path / FILE).read_bytes() == kept


# -- environment and configuration -------------------------------------------------------------------------------


def test_the_environment_does_not_redirect_a_node_to_another_server(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read_node("db1", node_of(cluster), SYSTEM).reached
    monkeypatch.setenv("PGHOSTADDR", "127.0.0.1")
    found = read_node("db1", node_of(cluster), SYSTEM)
    assert "leads to 127.0.0.1 instead of the host of db1" in found.error


def test_a_name_that_a_program_would_parse_as_an_option_is_refused() -> None:
    node = {"dsn": "host=db1"}
    assert find_problem({"clusters": {"shop": {"nodes": {"db-1": node}}}}) is None
    for clusters in ({"-rf": {"nodes": {"db1": node}}}, {"shop": {"nodes": {"--to": node}}}):
        problem = find_problem({"clusters": clusters})
        assert problem is not None and "must not begin with `-`" in problem.text
