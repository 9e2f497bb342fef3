"""Slots that keep WAL for replicas that are gone, late, or there: named in time, and walked by `slot-retention`."""

from __future__ import annotations

import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dba_console.demo.clients import LoadPlan
from dba_console.demo.cluster import Cluster, Settings
from dba_console.demo.incidents.slot_retention import SLOT
from tests.background import wait_until
from tests.clusters import binaries_of
from tests.runbooks.runs import WAIT_S, Scene, assert_named, incident, watched

BOOK = "slot-retention"
SMALL = LoadPlan(clients=1, rate_per_s=5, idle=2, forgotten=False, scale=1)
ASKED = "ask-about-the-reader=the team of the reports, by telephone"
TOLD = "prevent-a-recurrence=told them, ticket 4711"
MIB = 1 << 20
SLOTS = """
select string_agg(slot_name || ' ' || coalesce(wal_status, '-'), ', ' order by slot_name) from pg_replication_slots
"""


def reserve(cluster: Cluster, slot: str) -> None:
    cluster.psql(f"select pg_create_physical_replication_slot('{slot}', true)")


def write(cluster: Cluster, mebibytes: int) -> None:
    """So much WAL, and nothing else."""
    cluster.psql(
        f"select count(pg_logical_emit_message(false, 'test', repeat('x', {MIB}))) from generate_series(1, {mebibytes})"
    )


@contextmanager
def frozen_reader(cluster: Cluster, slot: str) -> Iterator[None]:
    """Somebody who is connected to the slot, and takes nothing."""
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


def seen_unread(scene: Scene, slot: str) -> None:
    """Wait until it is known for how long nobody has read the slot."""
    scene.frame(
        lambda frame: any(row.name == slot and row.unread_s is not None for row in frame.replication.slots),
        f"{slot}, unread",
    )


@pytest.fixture(scope="module")
def small_files() -> Iterator[Cluster]:
    """A server of few and small files of WAL, and no slot yet."""
    settings: Settings = {"max_wal_size": "32MB", "min_wal_size": "32MB", "wal_sender_timeout": 0}
    with Cluster(binaries_of(None), settings=settings, durable=False) as made:
        yield made


@pytest.fixture(scope="module")
def scene(small_files: Cluster) -> Iterator[Scene]:
    with watched(small_files.dsn()) as made:
        yield made


@pytest.fixture
def cluster(small_files: Cluster) -> Iterator[Cluster]:
    """The same, given back without slots and as it was set."""
    yield small_files
    small_files.psql("select pg_drop_replication_slot(slot_name) from pg_replication_slots where not active")
    small_files.psql("alter system reset all")
    small_files.psql("select pg_reload_conf()")


def test_the_slot_of_a_lost_replica_is_named_and_dropped_and_its_wal_is_removed() -> None:
    with incident(BOOK, SMALL) as scene:
        assert_named(scene.named())
        frame = scene.frame(
            lambda frame: any((row.retained_bytes or 0) > 64 * MIB for row in frame.replication.slots), "kept WAL"
        )
        assert [row.name for row in frame.replication.slots] == [SLOT]
        scene.cluster.psql("select pg_create_physical_replication_slot('unused')")
        gone = (BOOK, ASKED, "ask-about-the-reader=gone", TOLD)
        counted = scene.headless(*gone, "drop-the-slots=1", unread_for="0s")
        assert counted.code == 8 and counted.done() == [], "one slot is confirmed by its name"
        walk = scene.headless(*gone, f"drop-the-slots={SLOT}", unread_for="0s")
        assert walk.code == 0, walk.text
        assert walk.done() == ["drop-the-slots", "is-there-enough-free-space"]
        assert scene.cluster.psql(SLOTS) == "unused -"
        reserve(scene.cluster, SLOT)
        scene.end()
        assert scene.cluster.psql(SLOTS) == "unused -", "the end of the incident drops its slot too"


def test_a_slot_in_use_is_not_dropped(scene: Scene, cluster: Cluster) -> None:
    reserve(cluster, "left")
    reserve(cluster, "read")
    with frozen_reader(cluster, "read"):
        write(cluster, 100)
        seen_unread(scene, "left")
        walk = scene.person(
            BOOK,
            {"start": "yes", "ask-about-the-reader/choose": "gone", "manual": "told", "drop-the-slots": "left",
             "is-there-enough-free-space/change": "no", "failed": "abort", "undo": "none"},
            unread_for="0s",
        )  # fmt: skip
        assert walk.code == 7, walk.text
        assert walk.done() == ["drop-the-slots"]
        assert cluster.psql("select string_agg(slot_name, ',') from pg_replication_slots") == "read"


def test_a_returning_reader_is_waited_for(scene: Scene, cluster: Cluster) -> None:
    reserve(cluster, "late")
    write(cluster, 100)

    def comes_back() -> str:
        cluster.psql("select pg_replication_slot_advance('late', pg_current_wal_lsn())")
        return "it is started, and reads"

    walk = scene.person(
        BOOK,
        {"start": "yes", "choose": "back", "let-it-catch-up": comes_back, "manual": "told", "ack": "y"},
    )
    assert walk.code == 0, walk.text
    assert walk.done() == ["is-there-enough-free-space"]
    assert cluster.psql(SLOTS) == "late reserved"


def test_a_slot_is_invalidated_by_a_limit_and_then_dropped_as_lost(scene: Scene, cluster: Cluster) -> None:
    reserve(cluster, "perhaps")
    write(cluster, 100)
    walk = scene.headless(
        BOOK,
        ASKED,
        "ask-about-the-reader=cap",
        "limit-what-slots-keep=48MB",
        f"limit-what-slots-keep={scene.target}",
        TOLD,
    )
    assert walk.code == 0, walk.text
    assert cluster.psql("show max_slot_wal_keep_size") == "48MB"
    assert cluster.psql(SLOTS) == "perhaps lost"
    scene.raised("settings-left")
    back = scene.headless("put-back")
    assert back.code == 0 and cluster.psql("show max_slot_wal_keep_size") == "-1", back.text
    reserve(cluster, "fresh")
    again = scene.headless(BOOK, ASKED, "ask-about-the-reader=gone", "drop-the-slots=perhaps", TOLD)
    assert again.code == 0, again.text
    assert cluster.psql(SLOTS) == "fresh reserved"


def test_no_limit_is_set_that_would_invalidate_a_slot_in_use(scene: Scene, cluster: Cluster) -> None:
    reserve(cluster, "read")
    with frozen_reader(cluster, "read"):
        write(cluster, 100)
        walk = scene.headless(
            BOOK, ASKED, "ask-about-the-reader=cap", "limit-what-slots-keep=48MB",
            f"limit-what-slots-keep={scene.target}", TOLD,
        )  # fmt: skip
    assert walk.code == 7, walk.text
    assert walk.red() == ["limit-what-slots-keep/check"] and walk.done() == []
    assert "read retains 1" in walk.text
    assert cluster.psql("show max_slot_wal_keep_size") == "-1"


def test_a_slot_managed_by_another_program_or_recently_read_is_shown_and_not_preselected(
    scene: Scene, cluster: Cluster
) -> None:
    for slot in ("_cnpg_shop_2", "gone"):
        reserve(cluster, slot)
    write(cluster, 100)
    seen_unread(scene, "gone")
    unsure = scene.headless(BOOK, ASKED, "ask-about-the-reader=gone", TOLD)
    assert (unsure.code, unsure.done()) == (0, ["is-there-enough-free-space"]), unsure.ending
    walk = scene.headless(BOOK, ASKED, "ask-about-the-reader=gone", "drop-the-slots=gone", TOLD, unread_for="0s")
    assert walk.code == 0, walk.text
    assert "gone" not in cluster.psql(SLOTS) and "_cnpg_shop_2" in cluster.psql(SLOTS)
    rows = {row["slot_name"]: row for row in walk.rows("drop-the-slots/preview")}
    assert rows["_cnpg_shop_2"]["made_by"] == "CloudNativePG" and not rows["_cnpg_shop_2"]["long_unread"]
    assert rows["gone"]["made_by"] is None and rows["gone"]["long_unread"], rows


def test_a_monitoring_role_can_wait_for_a_reader_and_neither_drops_nor_makes_a_checkpoint(
    cluster: Cluster,
) -> None:
    cluster.psql('create role "Night\'s" login in role pg_monitor')
    cluster.psql(
        "alter role \"Night's\" set lock_timeout = '50ms'; alter role \"Night's\" set statement_timeout = '9s'"
    )
    reserve(cluster, "left")
    write(cluster, 100)

    def comes_back() -> str:
        cluster.psql("select pg_replication_slot_advance('left', pg_current_wal_lsn())")
        cluster.psql("checkpoint")
        return "it reads again"

    with watched(cluster.dsn(user="Night's")) as modest:
        seen_unread(modest, "left")
        refused = modest.headless(
            BOOK, ASKED, "ask-about-the-reader=gone", "drop-the-slots=left", TOLD, unread_for="0s"
        )
        assert refused.code == 7 and "the server refused" in refused.text, refused.text
        assert cluster.psql("select string_agg(slot_name, ',') from pg_replication_slots") == "left"
        walk = modest.person(
            BOOK, {"start": "yes", "choose": "back", "let-it-catch-up": comes_back, "manual": "told"}
        )  # fmt: skip
        assert (walk.code, walk.done()) == (0, []), walk.text


def test_if_no_slot_retains_much_there_is_nothing_to_do(scene: Scene, cluster: Cluster) -> None:
    reserve(cluster, "fresh")
    walk = scene.headless(BOOK, ASKED, "ask-about-the-reader=gone", "drop-the-slots=fresh", TOLD)
    assert walk.code == 7, walk.text
    assert walk.red() == ["which-slots/check"] and walk.done() == []
    assert cluster.psql(SLOTS) == "fresh reserved"
