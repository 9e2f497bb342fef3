"""A real PgBouncer before two real servers: its clients are held within a time limit, let go, led to the other one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import psycopg
import pytest

from dba_console.clusters.pooler_admin import PauseExpired, PoolerAdmin
from dba_console.clusters.pooler_file import change_host
from dba_console.clusters.pooler_state import read_pooler
from dba_console.core.clock import SYSTEM
from dba_console.core.config import PoolerConfig
from dba_console.core.errors import ConnectError, ConsoleError, PermissionDenied
from dba_console.demo.temporary_server import Cluster
from tests.background import Session, wait_until
from tests.clusters import binaries_of
from tests.postgres.pgbouncer import PgBouncer
from tests.sql import query

pytestmark = pytest.mark.xdist_group("pooling")


@pytest.fixture(scope="module")
def first_cluster() -> Iterator[Cluster]:
    with Cluster(binaries_of(None), durable=False) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def second_cluster() -> Iterator[Cluster]:
    with Cluster(binaries_of(None), durable=False) as cluster:
        yield cluster


@pytest.fixture
def pooler(first_cluster: Cluster) -> Iterator[PgBouncer]:
    """In transaction mode, with the databases shop and stock; others are covered by the entry "*"."""
    to = f"{PgBouncer.database_line(first_cluster)} dbname=postgres user=postgres"
    with PgBouncer(
        first_cluster, "pooler", f"shop = {to}\nstock = {to}\n* = {to}", pool_mode="transaction", admin_users="postgres"
    ) as pooler:
        yield pooler


def admin_of(pooler: PgBouncer, *databases: str, user: str = "postgres", password: str = "hushhush") -> PoolerAdmin:
    return PoolerAdmin("main", config_of(pooler, *databases, user=user, password=password), SYSTEM)


def config_of(pooler: PgBouncer, *databases: str, user: str = "postgres", password: str = "hushhush") -> PoolerConfig:
    dsn = f"{pooler.dsn('pgbouncer', user=user)} password={password}"
    return PoolerConfig(dsn=dsn, databases=list(databases))


def client(pooler: PgBouncer, dbname: str = "shop", name: str = "till") -> Session:
    return psycopg.connect(f"{pooler.dsn(dbname)} application_name={name}", autocommit=True, prepare_threshold=None)


def port_of(pooler: PgBouncer, dbname: str = "shop") -> str:
    """The port of the server that a new client of the pooler reaches."""
    with client(pooler, dbname) as session:
        return str(session.execute("show port").fetchone()[0])  # type: ignore[index]


def never_stopped() -> bool:
    return False


@contextmanager
def waiting_statement(session: Session, sql: str = "show port") -> Iterator[Callable[[], list[str]]]:
    """`sql` runs beside the test; the callable gives its rows when it ended."""
    rows: list[str] = []

    def run() -> None:
        rows.extend(str(row[0]) for row in session.execute(sql.encode()))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def ended() -> list[str]:
        thread.join(30)
        return rows

    yield ended
    thread.join(30)


def admin_console(pooler: PgBouncer, command: str) -> list[tuple[object, ...]]:
    with psycopg.connect(pooler.dsn("pgbouncer"), autocommit=True) as connection:
        cursor = psycopg.ClientCursor(connection)
        cursor.execute(command.encode())
        return cursor.fetchall() if cursor.description else []


def has_queued_clients(pooler: PgBouncer, dbname: str = "shop", count: int = 1) -> bool:
    """Whether `count` clients wait for a server connection."""
    return any(row[0] == dbname and int(str(row[3])) >= count for row in admin_console(pooler, "SHOW POOLS"))


def test_a_client_waiting_through_pause_new_host_and_resume_reaches_the_other_server(
    pooler: PgBouncer, first_cluster: Cluster, second_cluster: Cluster
) -> None:
    admin = admin_of(pooler, "shop")
    with client(pooler) as session:
        assert session.execute("show port").fetchone() == (str(first_cluster.port),)
        admin.pause([], 30, never_stopped)
        assert admin.paused(["shop", "stock"]) == {"shop": True, "stock": False}
        with waiting_statement(session) as ended:
            wait_until(lambda: has_queued_clients(pooler), what="the client waiting")
            assert port_of(pooler, "stock") == str(first_cluster.port)
            to = (str(second_cluster.socket_directory), str(second_cluster.port))
            pooler.ini.write_text(change_host(pooler.ini.read_text(), ["shop"], *to))
            admin.reload({"shop": to})
            admin.resume([])
            assert ended() == [str(second_cluster.port)]
    assert port_of(pooler, "stock") == str(first_cluster.port)
    assert admin.paused([]) == {"shop": False}


def test_an_open_transaction_is_named_and_the_clients_continue(pooler: PgBouncer, first_cluster: Cluster) -> None:
    admin = admin_of(pooler, "shop", "stock")
    with client(pooler, name="report") as session, session.transaction():
        session.execute("select 1")
        pid = session.execute("select pg_backend_pid()").fetchone()
        with pytest.raises(PauseExpired) as expired:
            admin.pause([], 0.3, never_stopped)
        assert port_of(pooler) == port_of(pooler, "stock") == str(first_cluster.port)
        [blocker] = admin.blockers([])
    assert expired.value.blockers == (blocker,)
    assert (blocker.database, blocker.user, blocker.application, blocker.pid) == (
        "shop",
        "postgres",
        "report",
        *(pid or ()),
    )
    assert '"shop", "stock" could not be paused within 0.3 s; its clients are resumed' in str(expired.value)
    assert f'"report", server process {blocker.pid})' in str(expired.value)
    assert f"terminate on the primary: {blocker.pid}" in str(expired.value)
    assert admin.paused([]) == {"shop": False, "stock": False}


def test_the_wait_ends_when_it_is_stopped_or_when_the_blocker_ends(pooler: PgBouncer) -> None:
    admin = admin_of(pooler, "shop")
    with client(pooler) as session, session.transaction():
        session.execute("select 1")
        with pytest.raises(PauseExpired, match="was stopped during its pause"):
            admin.pause([], 60, lambda: True)
        with waiting_pause(admin) as ended:
            wait_until(lambda: admin.paused([])["shop"], what="the pause beginning")
            session.execute("select 1")
    ended()
    assert admin.paused([]) == {"shop": True}
    admin.pause([], 1, never_stopped)  # one that is paused stays so
    admin.resume([])
    admin.resume([])


@contextmanager
def waiting_pause(admin: PoolerAdmin) -> Iterator[Callable[[], None]]:
    """`admin` pauses beside the test; the callable ends when it did, and raises what it raised."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            admin.pause([], 60, never_stopped)
        except BaseException as error:  # handed on to the test
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def ended() -> None:
        thread.join(30)
        assert not thread.is_alive()
        if raised:
            raise raised[0]

    yield ended


def test_a_resume_by_another_session_during_the_pause_is_a_failure_and_ends_the_wait(pooler: PgBouncer) -> None:
    admin = admin_of(pooler, "shop")
    with client(pooler) as session, session.transaction():
        session.execute("select 1")
        with waiting_pause(admin) as ended:
            wait_until(lambda: admin.paused([])["shop"], what="the pause beginning")
            admin_of(pooler).resume(["shop"])
            with pytest.raises(ConsoleError, match='"shop" was resumed by another session'):
                ended()


def test_a_pooler_killed_while_pausing_is_an_error_and_restarts_not_paused(pooler: PgBouncer) -> None:
    admin = admin_of(pooler, "shop")
    with closing(client(pooler)) as session:
        session.execute("begin")
        with waiting_pause(admin) as ended:
            wait_until(lambda: admin.paused([])["shop"], what="the pause beginning")
            pooler.kill()
            with pytest.raises(ConnectError, match=r'pooler "main": connection lost.*could not be resumed'):
                ended()
    with pytest.raises(ConnectError, match=r'pooler "main": .*refused'):
        admin.paused([])
    pooler.start()
    admin.pause([], 30, never_stopped)
    pooler.kill()
    pooler.start()
    assert admin.paused([]) == {"shop": False}


def test_in_session_mode_clients_delay_the_pause_which_is_shown_before(first_cluster: Cluster) -> None:
    to = f"{PgBouncer.database_line(first_cluster)} dbname=postgres"
    with PgBouncer(
        first_cluster, "sessions", f"shop = {to}", users="nobody = pool_mode=transaction", pool_mode="session",
        admin_users="postgres", query_wait_timeout=0,
    ) as pooler:  # fmt: skip
        admin = admin_of(pooler, "shop")
        assert admin.pause_warnings([]) == []
        with client(pooler) as session:
            session.execute("select 1")
            [caution] = admin.pause_warnings([])
            assert '"shop" is in session mode for user "postgres", and 1 client holds' in caution
            with pytest.raises(PauseExpired, match="connected since"):
                admin.pause([], 0.2, never_stopped)
            query(first_cluster, f"select pg_terminate_backend({admin.blockers([])[0].pid}, 10000)")
            admin.pause([], 30, never_stopped)


def test_a_client_may_wait_without_limit_until_the_limit_is_restored(pooler: PgBouncer) -> None:
    admin = admin_of(pooler, "shop")
    limits = admin.wait_limits()
    assert limits == {"query_wait_timeout": "120"}
    admin.lift_wait_limits(limits)
    assert admin.wait_limits() == {}
    admin.restore_wait_limits(limits, [])
    assert admin.wait_limits() == limits


def test_an_unused_database_is_paused_and_redirected(
    pooler: PgBouncer, first_cluster: Cluster, second_cluster: Cluster
) -> None:
    admin = admin_of(pooler, "late")
    assert admin.paused([]) == {"late": None}
    admin.pause([], 30, never_stopped)
    assert admin.paused([]) == {"late": True}
    pooler.kill()  # all it knew of it is gone
    pooler.start()
    to = (str(second_cluster.socket_directory), str(second_cluster.port))
    pooler.ini.write_text(change_host(pooler.ini.read_text(), ["late"], *to))
    admin.reload({"late": to})
    assert port_of(pooler, "late") == str(second_cluster.port)
    assert port_of(pooler, "shop") == str(first_cluster.port)


def test_a_database_unknown_to_the_pooler_is_refused_and_nothing_stays_paused(first_cluster: Cluster) -> None:
    with PgBouncer(
        first_cluster, "few", f"shop = {PgBouncer.database_line(first_cluster)}", admin_users="postgres"
    ) as pooler:
        admin = admin_of(pooler)
        with pytest.raises(ConsoleError, match=r'does not have the database "late": .*no such database'):
            admin.pause(["shop", "late"], 30, never_stopped)
        assert admin.paused(["shop", "late"]) == {"shop": False, "late": None}
        admin.resume(["late"])


def test_a_pause_of_the_whole_pooler_is_detected_and_taken_over(pooler: PgBouncer) -> None:
    admin = admin_of(pooler, "shop")
    admin_console(pooler, "PAUSE")
    assert admin.paused([]) == {"shop": True}
    admin.pause([], 5, never_stopped)
    admin.resume([])
    assert admin.paused([]) == {"shop": False}


@pytest.mark.parametrize("everything", [True, False], ids=["everything", "one database"])
def test_new_clients_between_reload_and_resume_and_open_pools_need_no_login_retry(
    first_cluster: Cluster, second_cluster: Cluster, everything: bool
) -> None:
    to = f"{PgBouncer.database_line(first_cluster)} dbname=postgres user=postgres"
    entries = f"shop = {to}" if everything else f"shop = {to}\nstock = {to}"
    with PgBouncer(
        first_cluster, f"busy{everything}", entries, pool_mode="transaction", admin_users="postgres", min_pool_size=2,
        server_login_retry=600,
    ) as pooler:  # fmt: skip
        admin = admin_of(pooler, "shop")
        assert ("min_pool_size" in "".join(admin.pause_warnings([]))) is not everything
        with client(pooler) as session:
            session.execute("select 1")
            admin.pause([], 30, never_stopped)
            [shown] = read_pooler("main", config_of(pooler, "shop"), SYSTEM).databases
            assert shown.paused
            with waiting_statement(session) as ended:
                wait_until(lambda: has_queued_clients(pooler), what="the client waiting")
                pooler.ini.write_text(
                    change_host(
                        pooler.ini.read_text(), ["shop"], str(second_cluster.socket_directory), str(second_cluster.port)
                    )
                )
                admin.reload()
                thread = threading.Thread(target=lambda: client(pooler).close(), daemon=True)
                thread.start()
                wait_until(lambda: has_queued_clients(pooler, count=2), what="the second client waiting")
                admin.reload({"shop": (str(second_cluster.socket_directory), str(second_cluster.port))})
                admin.resume([])
                assert ended() == [str(second_cluster.port)]
                thread.join(30)
        assert ("server_login_retry", "600") in {row[:2] for row in admin_console(pooler, "SHOW CONFIG")}


def test_a_reload_of_an_unchanged_or_unreadable_file_is_a_failure(pooler: PgBouncer, second_cluster: Cluster) -> None:
    admin = admin_of(pooler, "shop")
    to = (str(second_cluster.socket_directory), str(second_cluster.port))
    with pytest.raises(ConsoleError) as failed:
        admin.reload({"shop": to})
    assert f'not to {to[0]}:{to[1]}: it reads "{pooler.ini}", its log is "{pooler.directory}/bouncer.log"' in str(
        failed.value
    )
    pooler.ini.write_text("[databases]\nbroken\n" + pooler.ini.read_text())
    with pytest.raises(ConsoleError, match="its log is"):
        admin.reload({"shop": to})


def test_pgbouncer_reads_the_changed_file_as_intended(first_cluster: Cluster) -> None:
    lines = [
        "a=host = /old  port=1\r", "b =", "c = password='it''s host=x' dbname=c", "  d=host='/o l''d' port= 2",
        "e = port=3", "[users]", "ann = pool_mode=session", "[databases] f = host=old", "# g = host=old",
    ]  # fmt: skip
    to = ("/tmp/it's new", "5433")
    changed = change_host("[databases]\n" + "\n".join(lines), list("abcdef"), *to)
    with PgBouncer(first_cluster, "read", changed, admin_users="postgres") as pooler:
        admin_of(pooler).reload(dict.fromkeys("abcdef", to))  # raises if one leads elsewhere


def test_a_read_only_admin_role_and_a_wrong_password_are_clear_errors(first_cluster: Cluster) -> None:
    with PgBouncer(
        first_cluster,
        "strict",
        f"shop = {PgBouncer.database_line(first_cluster)}",
        auth_type="scram-sha-256",
        admin_users="postgres",
        stats_users="nobody",
    ) as pooler:
        asking = admin_of(pooler, "shop", user="nobody")
        assert asking.paused([]) == {"shop": False}
        with pytest.raises(PermissionDenied, match="admin access needed\nhint: add the role"):
            asking.pause([], 5, never_stopped)
        with pytest.raises(PermissionDenied, match="admin access needed"):
            asking.reload()
        wrong = admin_of(pooler, password="wrongsecret")
        with pytest.raises(ConnectError, match=r'pooler "main": .*failed') as refused:
            wrong.pause(["shop"], 5, never_stopped)
        assert "wrongsecret" not in str(refused.value)
