"""The server is killed, restarted, stopped, full: the agent goes on at its pace and says what happened."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import median

import psycopg

from dba_console.demo.temporary_server import Cluster
from dba_console.watch.frames.model import Frame
from dba_console.watch.samples.event import Event
from tests.agent.agents import INTERVAL_S, ConsoleClient, agent
from tests.background import session, wait_until
from tests.clusters import FreshCluster

LONGEST_GAP_S = 5.0
"""Between two samples: far above the interval, because other tests use the processors too."""


def connected(frame: Frame) -> bool:
    return frame.connections.source == "sql" and frame.connections.used is not None


def assert_steady(watch: ConsoleClient, count: int) -> None:
    """`count` more samples at the agent's pace: half of them, at least, follow each other in twice the interval."""
    begun = len(watch.samples)
    for _ in range(count):
        watch.next_frame()
    times = [sample.mono_us for sample in watch.samples[begun:]]
    gaps_s = [(new - old) / 1e6 for old, new in pairwise(times)]
    assert median(gaps_s) < 2 * INTERVAL_S and max(gaps_s) < LONGEST_GAP_S, gaps_s


def rates(frame: Frame) -> list[float]:
    """What is known of commits and WAL."""
    found = [row.commits_per_s for row in frame.disks.databases] + [frame.replication.wal_bytes_per_s]
    return [rate for rate in found if rate is not None]


def read_after(event: Event, frame: Frame, name: str) -> bool:
    """Whether that panel was read after the event."""
    panel = getattr(frame, name)
    if panel.status != "ok" or panel.age_s is None or event.mono_us is None:
        return False
    return bool(frame.mono_us - panel.age_s * 1e6 > event.mono_us)


@contextmanager
def every_slot_taken(cluster: Cluster, *, user: str) -> Iterator[list[psycopg.Connection[tuple[object, ...]]]]:
    """Ordinary sessions until the server refuses one."""
    others = f"select count(*) from pg_stat_activity where backend_type = 'client backend' and usename <> '{user}'"
    with ExitStack() as stack, session(cluster) as superuser:
        held = []

        def only_ours() -> bool:
            """What psql asked last may not have given its slot back yet."""
            [[count]] = superuser.execute(f"{others} and pid <> pg_backend_pid()").fetchall()
            return int(str(count)) == watching

        watching = int(str(superuser.execute(f"{others} and application_name = 'dba-console'").fetchall()[0][0]))
        wait_until(only_ours, 60, what="the slots of others given back")
        own = Path(f"/proc/{superuser.info.backend_pid}")
        superuser.close()
        wait_until(lambda: not own.exists(), 60, what="this one's slot given back")
        while True:
            try:
                held.append(stack.enter_context(psycopg.connect(cluster.dsn(user=user), autocommit=True)))
            except psycopg.OperationalError:
                break
        yield held


def connection_lost_since(watch: ConsoleClient, before: int) -> Event | None:
    """That the connection was lost; that the server was slow for a moment is another matter."""
    reported = (one for one in watch.events[before:] if one.kind == "server.lost" and "not answer" not in one.text)
    return next(reported, None)


def test_a_killed_server_and_its_return_are_reported(fresh_cluster: FreshCluster, tmp_path: Path) -> None:
    cluster = fresh_cluster()
    with agent(cluster.dsn(), tmp_path) as running:
        watch = running.watch()
        watch.until(connected)
        watch.until(rates, what="rates before the end")
        before = len(watch.events)
        cluster.kill()
        watch.until(lambda _: connection_lost_since(watch, before), what="word of the loss")
        lost = connection_lost_since(watch, before)
        assert lost is not None
        frame = watch.next_frame()
        assert frame.target.state != "connected"
        for name in ("memory", "io"):  # the host is still there, and watched
            watch.until(lambda frame: read_after(lost, frame, name), what=f"{name} as it is now")  # noqa: B023
        frame = watch.next_frame()
        assert frame.target.uptime_s is None
        watch.until(lambda frame: not rates(frame), what="no rate of a server that is gone")
        assert frame.target.note != frame.replication.note == "no connection", "the reason stands once"
        cluster.start()
        assert "restarted" in watch.event("server.changed").text
        watch.until(connected)
        assert lost.severity == "warning"


def test_a_restart_produces_no_negative_and_no_absurd_rate(fresh_cluster: FreshCluster, tmp_path: Path) -> None:
    cluster = fresh_cluster()
    with agent(cluster.dsn(), tmp_path) as running:
        watch = running.watch()
        watch.until(connected)
        watch.until(rates, what="rates before the restart")
        cluster.restart()

        def is_known_again(frame: Frame) -> bool:
            assert all(0 <= rate < 1e9 for rate in rates(frame))
            restarted = any(event.kind == "server.changed" for event in watch.events)
            return restarted and connected(frame) and bool(rates(frame))

        for _ in range(3):
            watch.until(is_known_again, what="rates after the restart")


def test_a_stopped_postmaster_does_not_stop_the_agent(fresh_cluster: FreshCluster, tmp_path: Path) -> None:
    cluster = fresh_cluster()
    with agent(cluster.dsn(), tmp_path) as running:
        watch = running.watch()
        watch.until(connected)
        cluster.sigstop()
        try:
            assert_steady(watch, 9)
            watch.until(lambda frame: frame.target.postmaster_stopped, what="word of the stopped postmaster")
        finally:
            cluster.sigcont()
        watch.until(lambda frame: frame.target.postmaster_stopped is False, what="word of its going on")
        watch.until(connected)


def test_the_connection_slot_is_kept_when_all_others_are_taken(fresh_cluster: FreshCluster, tmp_path: Path) -> None:
    cluster = fresh_cluster({"max_connections": 12})
    cluster.psql("create role app login; create role watcher login in role pg_monitor")
    with agent(cluster.dsn(user="watcher"), tmp_path) as running:
        watch = running.watch()
        watch.until(connected)
        with every_slot_taken(cluster, user="app") as held:
            frame = watch.until(lambda frame: frame.connections.used == len(held) + 1, what="max_connections reached")
            assert frame.connections.source == "sql"
            assert frame.connections.usable == frame.connections.used


def test_blind_mode_counts_from_titles_and_takes_a_slot_when_one_is_free(
    fresh_cluster: FreshCluster, tmp_path: Path
) -> None:
    cluster = fresh_cluster({"max_connections": 12})
    cluster.psql("create role app login; create role watcher login in role pg_monitor")
    with every_slot_taken(cluster, user="app") as held, agent(cluster.dsn(user="watcher"), tmp_path) as running:
        watch = running.watch()
        frame = watch.until(lambda frame: frame.connections.source == "process_titles", what="blind mode")
        assert frame.connections.used == len(held)
        assert frame.connections.idle == len(held)
        assert frame.target.state == "blind"
        assert frame.memory.free_bytes and frame.io.procs_blocked is not None
        watch.event("server.blind")
        held.pop().close()
        assert watch.until(connected).connections.used == len(held) + 1


def test_a_reserved_slot_of_a_superuser_is_used_and_named(fresh_cluster: FreshCluster, tmp_path: Path) -> None:
    cluster = fresh_cluster({"max_connections": 12})
    cluster.psql("create role app login")
    with every_slot_taken(cluster, user="app"), agent(cluster.dsn(), tmp_path) as running:
        watch = running.watch()
        frame = watch.until(connected)
        assert frame.connections.seat == "superuser"
        assert "superuser_reserved_connections" in watch.event("server.connected").text
