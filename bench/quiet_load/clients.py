"""Clients: pgbench at various rates, pools, transactions left open for a while, short lock waits."""

from __future__ import annotations

import threading
import time
from contextlib import suppress

import psycopg

from bench.quiet_load.place import QuietServer

POOL = 180


def pgbench(server: QuietServer, seconds: float, *, clients: int, rate: int | None, reconnect: bool = False) -> None:
    """Run pgbench for `seconds`; restart it when a restart of the server disconnects it."""
    until = time.monotonic() + seconds
    while (left := round(until - time.monotonic())) >= 1:
        options = ["-n", "-c", str(clients), "-j", "2", "-T", str(left)]
        options += [] if rate is None else ["-R", str(rate)]
        options += ["-C"] if reconnect else []
        server.tool("pgbench", *options, *server.connection_options(), tolerate=True, timeout_s=seconds + 60)
        time.sleep(0.2)


def pool(server: QuietServer, seconds: float, *, fill_s: float) -> None:
    """Keep 180 almost idle sessions, opened over `fill_s`; they reconnect after a restart."""
    until = time.monotonic() + seconds
    sessions: list[psycopg.Connection[object]] = []
    try:
        for _ in range(POOL):
            sessions.append(server.connect("shop-pool"))
            time.sleep(min(fill_s, seconds / 4) / POOL)
        while time.monotonic() < until:
            _use_in_turn(server, sessions)
            time.sleep(1.0)
    finally:
        for session in sessions:
            session.close()


def idle_in_transaction(server: QuietServer, seconds: float) -> None:
    """An operator in psql: begin, change a row, wait, commit."""
    with server.connect("psql") as session:
        session.execute("begin")
        session.execute("update visits set page = 'changed by hand' where id = 1")
        time.sleep(max(1.0, seconds))
        session.execute("commit")


def short_lock_waits(server: QuietServer, seconds: float) -> None:
    """Let two sessions update the same row; each wait takes 0.1 to 2 s."""
    until = time.monotonic() + max(1.0, seconds)
    with server.connect("shop-orders") as holder, server.connect("shop-orders") as waiter:
        holds = [0.1, 0.4, 0.2, 2.0, 1.0]
        while holds and time.monotonic() < until:
            _one_wait(holder, waiter, holds.pop(0))


def quick_schema_change(server: QuietServer, seconds: float) -> None:
    """Add a column while another session reads: it waits a second, and so do the readers behind it."""
    with server.connect("shop-report") as reader, server.connect("migrate") as change:
        reader.execute("begin")
        reader.execute("select count(*) from visits")
        waiting = _in_thread(change, "alter table visits add column if not exists seen boolean")
        time.sleep(min(1.2, max(0.2, 60 * server.size)))
        reader.execute("commit")
        waiting.join()


def operator_session(server: QuietServer, seconds: float) -> None:
    """An operator in psql, idle between two queries."""
    until = time.monotonic() + seconds
    with server.connect("psql") as session:
        while True:
            session.execute("select pid, state, query from pg_stat_activity")
            session.execute("select pg_database_size(current_database())")
            if (left := until - time.monotonic()) <= 0:
                return
            time.sleep(min(5.0, left))


def _use_in_turn(server: QuietServer, sessions: list[psycopg.Connection[object]]) -> None:
    """Run a query in a tenth of the pool; reconnect sessions that a restart disconnected."""
    tenth = int(time.monotonic()) % 10
    for index, session in enumerate(sessions):
        if index % 10 == tenth or session.closed:
            try:
                session.execute("select 1")
            except psycopg.OperationalError:
                session.close()
                sessions[index] = server.connect("shop-pool", limit_s=60.0)


def _one_wait(holder: psycopg.Connection[object], waiter: psycopg.Connection[object], hold_s: float) -> None:
    change = "update visits set page = page where id = 2"
    holder.execute("begin")
    holder.execute(change)
    waiting = _in_thread(waiter, change)
    time.sleep(hold_s)
    holder.execute("commit")
    waiting.join()


def _in_thread(session: psycopg.Connection[object], statement: str) -> threading.Thread:
    """Execute the statement in a thread; ignore its failure, such as by a restart."""

    def execute() -> None:
        with suppress(psycopg.Error):
            session.execute(statement.encode())

    thread = threading.Thread(target=execute)
    thread.start()
    return thread
