"""What goes on around a test: idle sessions on a server, and waiting for something to become true."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TypeVar

import psycopg

from dba_console.demo.temporary_server import Cluster

T = TypeVar("T")
Session = psycopg.Connection[tuple[object, ...]]


def wait_until(condition: Callable[[], T | None], timeout: float = 60.0, *, what: str = "the condition") -> T:
    """The first true value of `condition`, asked again every 20 ms. Raises AssertionError after `timeout` seconds."""
    tick, until = threading.Event(), time.monotonic() + timeout
    while not (value := condition()):
        if time.monotonic() > until:
            raise AssertionError(f"{what} did not come true in {timeout:g} s")
        tick.wait(0.02)
    return value


def session(cluster: Cluster, *, user: str = "postgres", dbname: str = "postgres", name: str = "test") -> Session:
    """One connection in autocommit mode, named `name` in pg_stat_activity."""
    return psycopg.connect(cluster.dsn(user=user, dbname=dbname, application_name=name), autocommit=True)


@contextmanager
def idle_sessions(
    cluster: Cluster, count: int, *, user: str = "postgres", dbname: str = "postgres", name: str = "idle"
) -> Iterator[list[Session]]:
    """`count` sessions that do nothing until the block ends."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(session(cluster, user=user, dbname=dbname, name=f"{name}-{number % 5}"))
            for number in range(count)
        ]


@contextmanager
def idle_in_transaction(
    cluster: Cluster, sql: str = "select txid_current()", *, name: str = "idler", dbname: str = "postgres"
) -> Iterator[int]:
    """A session that ran `sql` in a transaction it leaves open; gives the process id of its backend."""
    connection = psycopg.connect(cluster.dsn(dbname=dbname, application_name=name))
    try:
        connection.execute(sql)
        yield connection.info.backend_pid
    finally:
        connection.close()  # rolls back, also where the test ended it


@contextmanager
def waiting_for_lock(cluster: Cluster, sql: str, *, name: str = "waiter", dbname: str = "postgres") -> Iterator[int]:
    """A session whose `sql` waits for a lock, begun and seen waiting; gives its process id. Cancelled at the end."""
    connection = session(cluster, name=name, dbname=dbname)
    pid = connection.info.backend_pid

    def run() -> None:
        try:
            connection.execute(sql)
        except psycopg.Error:
            pass  # cancelled, or the server went away: both end the wait

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    waits = f"select 1 from pg_stat_activity where pid = {pid} and wait_event_type = 'Lock'"
    try:
        with session(cluster) as asking:
            wait_until(lambda: asking.execute(waits).fetchone(), what=f"{name} waiting for a lock")
        yield pid
    finally:
        connection.cancel_safe()
        thread.join(10)
        connection.close()
