"""Slots that keep WAL for replicas that are gone, late, or there: named in time, and walked by `slot-retention`."""

from __future__ import annotations

import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dba_console.demo.clients import LoadPlan
from dba_console.demo.incidents.slot_retention import SLOT
from dba_console.demo.temporary_server import Cluster, Settings
from tests.background import wait_until
from tests.clusters import binaries_of
from tests.runbooks.runs import WAIT_S, WatchedServer, assert_detected, incident, watched_server

RUNBOOK = "slot-retention"
SMALL = LoadPlan(clients=1, rate_per_s=5, idle=2, forgotten=False, scale=1)
ASKED = "ask-about-the-reader=the team of the reports, by telephone"
FOLLOW_UP = "prevent-a-recurrence=told them, ticket 4711"
MIB = 1 << 20
SLOTS = """
select string_agg(slot_name || ' ' || coalesce(wal_status, '-'), ', ' order by slot_name) from pg_replication_slots
"""


def create_slot(cluster: Cluster, slot: str) -> None:
    cluster.psql(f"select pg_create_physical_replication_slot('{slot}', true)")


def write(cluster: Cluster, mebibytes: int) -> None:
    """Write `mebibytes` of WAL, and nothing else."""
    cluster.psql(
        f"select count(pg_logical_emit_message(false, 'test', repeat('x', {MIB}))) from generate_series(1, {mebibytes})"
    )


@contextmanager
def stalled_reader(cluster: Cluster, slot: str) -> Iterator[None]:
    """A reader that is connected to the slot and receives nothing."""
    program = cluster.binaries.program("pg_receivewal")
    with tempfile.TemporaryDirectory(prefix="dbac-reader-") as place:
        command = [str(program), "-D", place, "-S", slot, "-d", cluster.dsn()]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as reader:
            try:
                active = f"select 1 from pg_replication_slots where slot_name = '{slot}' and active"
                wait_until(lambda: cluster.psql(active), WAIT_S, what=f"the reader of {slot}")
                reader.send_signal(signal.SIGSTOP)
                yield
            finally:
                reader.kill()
                wait_until(lambda: not cluster.psql(active), WAIT_S, what=f"the end of the reader of {slot}")


def wait_until_known_unread(watched: WatchedServer, slot: str) -> None:
    """Wait until it is known how long the slot has not been read."""
    watched.frame(
        lambda frame: any(row.name == slot and row.unread_s is not None for row in frame.replication.slots),
        f"{slot}, unread",
    )


@pytest.fixture(scope="module")
def small_wal_cluster() -> Iterator[Cluster]:
    """A server of few and small files of WAL, and no slot yet."""
    settings: Settings = {"max_wal_size": "32MB", "min_wal_size": "32MB", "wal_sender_timeout": 0}
    with Cluster(binaries_of(None), settings=settings, durable=False) as made:
        yield made


@pytest.fixture(scope="module")
def watched(small_wal_cluster: Cluster) -> Iterator[WatchedServer]:
    with watched_server(small_wal_cluster.dsn()) as made:
        yield made


@pytest.fixture
def cluster(small_wal_cluster: Cluster) -> Iterator[Cluster]:
    """The same, given back without slots and as it was set."""
    yield small_wal_cluster
    small_wal_cluster.psql("select pg_drop_replication_slot(slot_name) from pg_replication_slots where not active")
    small_wal_cluster.psql("alter system reset all")
    small_wal_cluster.psql("select pg_reload_conf()")


def test_the_slot_of_a_lost_replica_is_named_and_dropped_and_its_wal_is_removed() -> None:
    with incident(RUNBOOK, SMALL) as watched:
        assert_detected(watched.cause_and_judge())
        frame = watched.frame(
            lambda frame: any((row.retained_bytes or 0) > 64 * MIB for row in frame.replication.slots), "kept WAL"
        )
        assert [row.name for row in frame.replication.slots] == [SLOT]
        watched.cluster.psql("select pg_create_physical_replication_slot('unused')")
        gone = (RUNBOOK, ASKED, "ask-about-the-reader=gone", FOLLOW_UP)
        counted = watched.run_headless(*gone, "drop-the-slots=1", inactive_for="0s")
        assert counted.code == 8 and counted.done() == [], "one slot is confirmed by its name"
        walk = watched.run_headless(*gone, f"drop-the-slots={SLOT}", inactive_for="0s")
        assert walk.code == 0, walk.text
        assert walk.done() == ["drop-the-slots", "is-there-enough-free-space"]
        assert watched.cluster.psql(SLOTS) == "unused -"
        create_slot(watched.cluster, SLOT)
        watched.end()
        assert watched.cluster.psql(SLOTS) == "unused -", "the end of the incident drops its slot too"


def test_a_slot_in_use_is_not_dropped(watched: WatchedServer, cluster: Cluster) -> None:
    create_slot(cluster, "left")
    create_slot(cluster, "read")
    with stalled_reader(cluster, "read"):
        write(cluster, 100)
        wait_until_known_unread(watched, "left")
        walk = watched.run_interactively(
            RUNBOOK,
            {"start": "yes", "ask-about-the-reader/choose": "gone", "manual": "told", "drop-the-slots": "left",
             "is-there-enough-free-space/change": "no", "failed": "abort", "undo": "none"},
            inactive_for="0s",
        )  # fmt: skip
        assert walk.code == 7, walk.text
        assert walk.done() == ["drop-the-slots"]
        assert cluster.psql("select string_agg(slot_name, ',') from pg_replication_slots") == "read"


def test_a_returning_reader_is_waited_for(watched: WatchedServer, cluster: Cluster) -> None:
    create_slot(cluster, "late")
    write(cluster, 100)

    def reader_returns() -> str:
        cluster.psql("select pg_replication_slot_advance('late', pg_current_wal_lsn())")
        return "it is started, and reads"

    walk = watched.run_interactively(
        RUNBOOK,
        {"start": "yes", "choose": "back", "let-it-catch-up": reader_returns, "manual": "told", "ack": "y"},
    )
    assert walk.code == 0, walk.text
    assert walk.done() == ["is-there-enough-free-space"]
    assert cluster.psql(SLOTS) == "late reserved"


def test_a_slot_is_invalidated_by_a_limit_and_then_dropped_as_lost(watched: WatchedServer, cluster: Cluster) -> None:
    create_slot(cluster, "perhaps")
    write(cluster, 100)
    walk = watched.run_headless(
        RUNBOOK,
        ASKED,
        "ask-about-the-reader=cap",
        "limit-what-slots-retain=48MB",
        f"limit-what-slots-retain={watched.target}",
        FOLLOW_UP,
    )
    assert walk.code == 0, walk.text
    assert cluster.psql("show max_slot_wal_keep_size") == "48MB"
    assert cluster.psql(SLOTS) == "perhaps lost"
    watched.wait_until_raised("settings-left")
    back = watched.run_headless("put-back")
    assert back.code == 0 and cluster.psql("show max_slot_wal_keep_size") == "-1", back.text
    create_slot(cluster, "fresh")
    again = watched.run_headless(RUNBOOK, ASKED, "ask-about-the-reader=gone", "drop-the-slots=perhaps", FOLLOW_UP)
    assert again.code == 0, again.text
    assert cluster.psql(SLOTS) == "fresh reserved"


def test_no_limit_is_set_that_would_invalidate_a_slot_in_use(watched: WatchedServer, cluster: Cluster) -> None:
    create_slot(cluster, "read")
    with stalled_reader(cluster, "read"):
        write(cluster, 100)
        walk = watched.run_headless(
            RUNBOOK, ASKED, "ask-about-the-reader=cap", "limit-what-slots-retain=48MB",
            f"limit-what-slots-retain={watched.target}", FOLLOW_UP,
        )  # fmt: skip
    assert walk.code == 7, walk.text
    assert walk.unmet() == ["limit-what-slots-retain/check"] and walk.done() == []
    assert "read retains 1" in walk.text
    assert cluster.psql("show max_slot_wal_keep_size") == "-1"


def test_a_slot_managed_by_another_program_or_recently_read_is_shown_and_not_preselected(
    watched: WatchedServer, cluster: Cluster
) -> None:
    for slot in ("_cnpg_shop_2", "gone"):
        create_slot(cluster, slot)
    write(cluster, 100)
    wait_until_known_unread(watched, "gone")
    unsure = watched.run_headless(RUNBOOK, ASKED, "ask-about-the-reader=gone", FOLLOW_UP)
    assert (unsure.code, unsure.done()) == (0, ["is-there-enough-free-space"]), unsure.ending
    walk = watched.run_headless(
        RUNBOOK, ASKED, "ask-about-the-reader=gone", "drop-the-slots=gone", FOLLOW_UP, inactive_for="0s"
    )
    assert walk.code == 0, walk.text
    assert "gone" not in cluster.psql(SLOTS) and "_cnpg_shop_2" in cluster.psql(SLOTS)
    rows = {row["slot_name"]: row for row in walk.rows("drop-the-slots/preview")}
    assert rows["_cnpg_shop_2"]["made_by"] == "CloudNativePG" and not rows["_cnpg_shop_2"]["long_inactive"]
    assert rows["gone"]["made_by"] is None and rows["gone"]["long_inactive"], rows


def test_a_monitoring_role_can_wait_for_a_reader_and_neither_drops_nor_makes_a_checkpoint(
    cluster: Cluster,
) -> None:
    cluster.psql('create role "Night\'s" login in role pg_monitor')
    cluster.psql(
        "alter role \"Night's\" set lock_timeout = '50ms'; alter role \"Night's\" set statement_timeout = '9s'"
    )
    create_slot(cluster, "left")
    write(cluster, 100)

    def reader_returns() -> str:
        cluster.psql("select pg_replication_slot_advance('left', pg_current_wal_lsn())")
        cluster.psql("checkpoint")
        return "it reads again"

    with watched_server(cluster.dsn(user="Night's")) as modest:
        wait_until_known_unread(modest, "left")
        refused = modest.run_headless(
            RUNBOOK, ASKED, "ask-about-the-reader=gone", "drop-the-slots=left", FOLLOW_UP, inactive_for="0s"
        )
        assert refused.code == 7 and "the server refused" in refused.text, refused.text
        assert cluster.psql("select string_agg(slot_name, ',') from pg_replication_slots") == "left"
        walk = modest.run_interactively(
            RUNBOOK, {"start": "yes", "choose": "back", "let-it-catch-up": reader_returns, "manual": "told"}
        )  # fmt: skip
        assert (walk.code, walk.done()) == (0, []), walk.text


def test_if_no_slot_retains_much_there_is_nothing_to_do(watched: WatchedServer, cluster: Cluster) -> None:
    create_slot(cluster, "fresh")
    walk = watched.run_headless(RUNBOOK, ASKED, "ask-about-the-reader=gone", "drop-the-slots=fresh", FOLLOW_UP)
    assert walk.code == 7, walk.text
    assert walk.unmet() == ["which-slots/check"] and walk.done() == []
    assert cluster.psql(SLOTS) == "fresh reserved"
