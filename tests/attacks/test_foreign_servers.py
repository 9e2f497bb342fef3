"""Who takes over the port or socket of a server gets no password, and no server makes its readers huge or blind."""

from __future__ import annotations

import multiprocessing
import os
import resource
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from dba_console.actions.query_connection import QueryConnection
from dba_console.core.clock import SYSTEM
from dba_console.core.errors import ConnectError, ConsoleError
from dba_console.demo.temporary_server import Cluster
from dba_console.runbooks.libpq_environment import server_environment
from dba_console.watch.probes.postgres.connect import open_connection, parse_options
from dba_console.watch.probes.postgres.connect_errors import ConnectFailed
from dba_console.watch.samples.postgres import Server
from tests.attacks.fake_servers import (
    CLEARTEXT,
    COLUMNS,
    GREETING,
    MD5,
    NOTIFICATION,
    asking,
    flooding,
    listening,
    message,
    take_startup,
)
from tests.cli.console import Console
from tests.clusters import FreshCluster
from tests.postgres.probes import connected, reading
from tests.requirements import require_tool
from tests.sql import query

LIMIT_S = 120.0
NOBODY = 65534
PASSWORD = "hush-4711"
WIDE_ROW = message(b"D", b"\0\1" + (60_000).to_bytes(4, "big") + b"x" * 60_000)
PARAMETERS = b"".join(message(b"S", b"a%d\0" % number + b"x" * 9000 + b"\0") for number in range(7))

NOTICE = message(b"N", b"SNOTICE\0VNOTICE\0C00000\0M" + b"x" * 60_000 + b"\0\0")
FLOODS = {"rows": WIDE_ROW, "notifications": NOTIFICATION, "parameters": PARAMETERS, "notices": NOTICE}


def connect(dsn: str) -> None:
    open_connection(parse_options(dsn), 30.0, SYSTEM).finish()


def tcp(port: int, more: str = "") -> str:
    return f"host=127.0.0.1 port={port} user=app dbname=postgres password={PASSWORD} gssencmode=disable {more}"


@pytest.mark.parametrize("more", ["", "sslmode=disable", "sslmode=prefer"])
def test_a_server_that_asks_for_the_password_in_cleartext_does_not_get_it_without_tls(more: str) -> None:
    received: list[bytes] = []
    with listening(asking(CLEARTEXT, received)) as port, pytest.raises(ConnectFailed) as failure:
        connect(tcp(port, more))
    assert failure.value.kind == "auth" and "require_auth=password" in (failure.value.hint or "")
    assert received == []


def test_the_connection_string_can_permit_it() -> None:
    received: list[bytes] = []
    with listening(asking(CLEARTEXT, received)) as port:
        connect(tcp(port, "sslmode=disable require_auth=password"))
    assert PASSWORD.encode() in b"".join(received)


@pytest.fixture
def scram(reused_cluster: FreshCluster) -> Iterator[Cluster]:
    """A server that takes SCRAM and TLS."""
    cluster = reused_cluster({"listen_addresses": "127.0.0.1"})
    query(cluster, f"create role app login password '{PASSWORD}'")
    rules = Path(query(cluster, "show hba_file"))
    rules.write_text("host all app all scram-sha-256\n" + rules.read_text())
    key, certificate = cluster.data_directory / "server.key", cluster.data_directory / "server.crt"
    command = [require_tool("openssl"), "req", "-new", "-x509", "-nodes", "-subj", "/CN=test", "-keyout", str(key)]
    subprocess.run([*command, "-out", str(certificate)], check=True, capture_output=True)
    owner = cluster.data_directory.stat()
    for path in (key, certificate):
        os.chown(path, owner.st_uid, owner.st_gid)
        path.chmod(0o600)
    query(cluster, "alter system set ssl = on")
    query(cluster, "select pg_reload_conf()")
    yield cluster


def test_whoever_takes_over_the_port_gets_no_weaker_proof_of_the_password(scram: Cluster) -> None:
    connect(tcp(scram.port, "sslmode=disable"))
    scram.stop()
    for request in (CLEARTEXT, MD5, b""):
        received: list[bytes] = []
        with listening(asking(request or GREETING, received), scram.port), pytest.raises(ConnectFailed) as failure:
            connect(tcp(scram.port, "sslmode=disable"))
        assert failure.value.kind == "auth" and received == [], request


def test_a_program_that_is_started_requires_the_same(scram: Cluster) -> None:
    dsn = tcp(scram.port)
    connect(dsn)
    required = server_environment(dsn, {})
    assert (required["PGREQUIREAUTH"], required["PGSSLMODE"]) == ("scram-sha-256", "require")
    connect(f"host={scram.socket_directory} port={scram.port} user=postgres dbname=postgres")
    socket_dsn = f"host={scram.socket_directory} port={scram.port} user=postgres dbname=postgres"
    assert server_environment(socket_dsn, {})["PGREQUIREPEER"] == scram.socket_directory.owner()
    chosen = server_environment(f"{dsn} require_auth=md5 sslmode=verify-full", {"PGREQUIREPEER": "x"})
    assert (chosen["PGREQUIREAUTH"], chosen["PGSSLMODE"]) == ("md5", "verify-full")
    received: list[bytes] = []
    scram.stop()
    psql = str(scram.binaries.program("psql"))
    with listening(asking(CLEARTEXT, received), scram.port):
        done = subprocess.run([psql, "-Xc", "select 1"], env=required, capture_output=True, check=False)
    assert done.returncode != 0 and received == []


def test_a_reconnect_requires_the_tls_that_the_last_connection_had(scram: Cluster) -> None:
    def serves_tls() -> bool:
        return query(scram, "show ssl") == "on"

    assert serves_tls()
    connect(tcp(scram.port))
    query(scram, "alter system set ssl = off")
    scram.restart()
    with pytest.raises(ConnectFailed) as failure:
        connect(tcp(scram.port))
    assert failure.value.kind == "ssl" and "the last connection used TLS" in (failure.value.hint or "")


@contextmanager
def squatted(path: Path, uid: int) -> Iterator[list[bytes]]:
    """Another user's process that listens at a unix socket and asks for the password in cleartext."""
    received: list[bytes] = []
    with socket.socket(socket.AF_UNIX) as server:
        os.seteuid(uid)
        try:
            server.bind(str(path))
            server.listen()
        finally:
            os.seteuid(0)

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection, suppress(OSError):
                    take_startup(connection)
                    connection.sendall(CLEARTEXT)
                    received.append(connection.recv(8192))
                    connection.sendall(GREETING)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield received
        finally:
            server.shutdown(socket.SHUT_RDWR)
            path.unlink()
    thread.join()


@pytest.mark.root
def test_another_users_socket_in_a_directory_of_all_gets_nothing(tmp_path: Path) -> None:
    for above in (tmp_path, *tmp_path.parents[:4]):
        above.chmod(above.stat().st_mode | 0o011)
    place = tmp_path / "s"
    place.mkdir()
    place.chmod(0o1777)
    dsn = f"host={place} port=5432 user=app dbname=postgres password={PASSWORD}"
    with squatted(place / ".s.PGSQL.5432", NOBODY) as received:
        with pytest.raises(ConnectFailed) as failure:
            connect(dsn)
        assert "belongs to nobody" in failure.value.message and "requirepeer=nobody" in (failure.value.hint or "")
        assert [one for one in received if one] == []
        connect(f"{dsn} requirepeer=nobody")
        assert PASSWORD.encode() in received[-1]


@pytest.mark.root
def test_a_socket_that_changed_its_owner_gets_nothing(tmp_path: Path) -> None:
    for above in (tmp_path, *tmp_path.parents[:4]):
        above.chmod(above.stat().st_mode | 0o011)
    place = tmp_path / "s"
    place.mkdir()
    dsn = f"host={place} port=5432 user=app dbname=postgres password={PASSWORD}"
    with squatted(place / ".s.PGSQL.5432", 0) as received:
        connect(dsn)
        assert PASSWORD.encode() in received[-1]
    os.chown(place, NOBODY, 0)
    with squatted(place / ".s.PGSQL.5432", NOBODY) as received, pytest.raises(ConnectFailed) as failure:
        connect(dsn)
    assert "at the last connection to root" in failure.value.message and [one for one in received if one] == []


def peak_of(read: Callable[[int], str], port: int) -> tuple[str, float]:
    """What a reader says in a process of its own, and how many MB it grew to beyond its start."""
    here, there = multiprocessing.get_context("fork").Pipe()

    def run() -> None:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        there.send((read(port), (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024))

    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    assert here.poll(LIMIT_S)
    said, grown = here.recv()
    process.join()
    return said, grown


def watch(port: int) -> str:
    try:
        with connected(f"host=127.0.0.1 port={port} user=x sslmode=disable gssencmode=disable"):
            return "connected"
    except ConnectError as error:
        return error.message


def ask(port: int) -> str:
    dsn = f"host=127.0.0.1 port={port} user=x sslmode=disable gssencmode=disable"
    with closing(QueryConnection(dsn, application="t", connect_timeout_s=60)) as connection:
        try:
            connection.rows("select 1")
        except ConnectError as error:
            return error.message
    return "answered"


@pytest.mark.parametrize("reader", [watch, ask])
@pytest.mark.parametrize("flood", FLOODS)
def test_an_answer_without_end_is_abandoned_before_it_fills_the_memory(
    flood: str, reader: Callable[[int], str]
) -> None:
    with listening(flooding(FLOODS[flood], before=COLUMNS)) as port:
        said, grown = peak_of(reader, port)
    assert "connected" != said != "answered" and grown < 300, (said, grown)


def test_a_login_without_end_is_abandoned() -> None:
    def serve(connection: socket.socket, ended: threading.Event) -> None:
        take_startup(connection)
        connection.sendall(GREETING[:9])
        while not ended.is_set():
            connection.sendall(PARAMETERS)

    with listening(serve) as port:
        said, grown = peak_of(watch, port)
    assert "more than 4 MB before it was ready" in said and grown < 100, (said, grown)


def test_the_role_that_a_databases_owner_sets_is_reset_and_reported(
    reused_cluster: FreshCluster, tmp_path: Path
) -> None:
    cluster = reused_cluster()
    query(cluster, "create role evilowner login")
    query(cluster, "create database evil owner evilowner")
    query(cluster, "alter database evil set role = evilowner", dbname="evil")
    dsn = cluster.dsn(dbname="evil")
    with connected(dsn) as probe:
        server: Server = reading(probe, "pg.server")
        assert server.superuser and server.current_user == "postgres" and server.reset_role == "evilowner"
    with closing(QueryConnection(dsn, application="t", connect_timeout_s=60)) as connection:
        assert connection.rows("select current_user::text as me") == [{"me": "postgres"}]
        assert connection.read_identity().user == "postgres"
    shown = subprocess.run(
        [str(cluster.binaries.program("psql")), "-XAtc", "select current_user"],
        env={"PATH": os.environ["PATH"], **server_environment(dsn, {})}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert shown.stdout.strip() == "postgres"
    console = Console(tmp_path)
    doctor, show = console.run("doctor", dsn, timeout=LIMIT_S), console.run("show", dsn, timeout=LIMIT_S)
    assert "sets role = evilowner" in doctor.out and "ALTER DATABASE evil RESET role" in doctor.out, doctor
    assert "TO evilowner" not in doctor.out + doctor.err + show.out + show.err


@pytest.mark.parametrize("name", ["idle_session_timeout", "statement_timeout", "transaction_timeout"])
def test_a_timeout_that_a_databases_owner_sets_does_not_blind_the_console(
    name: str, reused_cluster: FreshCluster
) -> None:
    cluster = reused_cluster()
    query(cluster, "create database hasty")
    try:
        query(cluster, f"alter database hasty set {name} = 1")
    except ConsoleError:
        pytest.skip(f"this version has no {name}")
    with connected(cluster.dsn(dbname="hasty")) as probe:
        assert reading(probe, "pg.server").database == "hasty"
        assert reading(probe, "pg.activity") is not None
    with closing(QueryConnection(cluster.dsn(dbname="hasty"), application="t", connect_timeout_s=60)) as connection:
        assert connection.rows("select pg_sleep(0.1)::text as slept") == [{"slept": ""}]
        assert connection.rows("select 1 as n") == [{"n": 1}]
