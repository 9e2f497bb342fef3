"""An application takes every slot: named in time, and walked by the runbook `connection-storm`."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from dba_console.demo.clients import DATABASE, LoadPlan
from dba_console.demo.incidents.connection_storm import APPLICATION, LEFT, ROLE
from dba_console.demo.rehearsal import IncidentVerdict
from tests.background import wait_until
from tests.runbooks.runs import ASKED, WAIT_S, Scene, assert_named, incident, watched

BOOK = "connection-storm"
SMALL = LoadPlan(clients=4, rate_per_s=20, idle=12, forgotten=False, scale=1)
SOURCE, END = "stop-it-at-its-source", "end-its-idle-sessions"
WHOSE, LIMIT = "limit-its-role", "set-the-limit"
TOLD = "prevent-a-recurrence=20, ticket 4711"


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    with incident(BOOK, SMALL) as made:
        yield made


@pytest.fixture(scope="module")
def verdict(scene: Scene) -> IncidentVerdict:
    """The storm; the last test of this module ends it."""
    return scene.named()


@pytest.fixture
def storm(scene: Scene, verdict: IncidentVerdict) -> Scene:
    """The storm, found by the agent."""
    scene.raised(BOOK)
    wait_until(lambda: not sessions(scene, APPLICATION, "state <> 'idle'"), WAIT_S, what="idle sessions")
    return scene


def sessions(scene: Scene, application: str, also: str = "true") -> int:
    where = f"application_name = '{application}' and {also}"
    return int(scene.cluster.psql(f"select count(*) from pg_stat_activity where {where}"))


def limit_of(scene: Scene) -> str:
    return scene.cluster.psql(f"select rolconnlimit from pg_roles where rolname = '{ROLE}'")


def test_with_enough_free_space_it_does_not_start(scene: Scene) -> None:
    walk = scene.headless(BOOK, f"{SOURCE}=sessions", f"{END}=1", TOLD, application=APPLICATION)
    assert walk.code == 7, walk.text
    assert walk.records("run.started") == [] and walk.done() == []


def test_a_connection_storm_is_named_within_five_seconds(storm: Scene, verdict: IncidentVerdict) -> None:
    frame = storm.frame(lambda frame: (frame.connections.used or 0) >= 240, "nearly every slot taken")
    assert frame.connections.used is not None and frame.connections.usable is not None
    assert frame.connections.usable - frame.connections.used <= LEFT
    assert frame.connections.by_application[0].name == APPLICATION
    assert_named(verdict)


def test_another_application_is_not_the_storm_and_on_abort_the_limit_is_reverted(storm: Scene) -> None:
    before = sessions(storm, APPLICATION)
    storm.cluster.psql(f"alter role {ROLE} connection limit 300")
    other = storm.headless(BOOK, f"{SOURCE}=sessions", f"{END}=1", TOLD, application="shop-web")
    assert other.code == 7, other.text
    assert other.records("run.started") == [] and other.done() == []
    typed = iter(("5", ASKED))
    walk = storm.person(
        BOOK,
        {"start": "yes", SOURCE: "limit", WHOSE: ROLE, LIMIT: typed.__next__, f"{END}/action": "no", "failed": "abort",
         "undo": "all", f"{LIMIT}/undo": ASKED},
        application=APPLICATION, idle_for="0s",
    )  # fmt: skip
    assert walk.code == 7, walk.text
    assert walk.done()[:1] == [LIMIT] and limit_of(storm) == "300", "what was there, and not no limit at all"
    storm.cluster.psql(f"alter role {ROLE} connection limit -1")
    assert sessions(storm, APPLICATION) == before


def test_a_role_whose_limit_has_no_effect_or_may_not_be_set_is_not_limited(storm: Scene) -> None:
    walk = storm.headless(
        BOOK,
        f"{SOURCE}=limit",
        f"{WHOSE}=postgres",
        f"{LIMIT}=5",
        f"{LIMIT}={storm.target}",
        application=APPLICATION,
        idle_for="0s",
    )
    assert walk.code == 7, walk.text
    assert walk.red() == [f"{WHOSE}/check"] and walk.done() == []
    assert "it_is_superuser true" in walk.text
    plain = storm.cluster
    plain.psql('create role "On call\'s" login in role pg_monitor, pg_signal_backend')
    with watched(plain.dsn(user="On call's", dbname=DATABASE)) as modest:
        refused = modest.headless(
            BOOK,
            f"{SOURCE}=limit",
            f"{WHOSE}={ROLE}",
            f"{LIMIT}=5",
            f"{LIMIT}={modest.target}",
            application=APPLICATION,
            idle_for="0s",
        )
        assert refused.red() == [f"{WHOSE}/check"] and refused.done() == []
        assert "may_alter_roles false" in refused.text
    assert limit_of(storm) == "-1"


def test_a_session_whose_end_would_lose_something_is_marked(storm: Scene) -> None:
    dsn = storm.cluster.dsn(user="postgres", dbname=DATABASE, application_name=APPLICATION)
    with (
        psycopg.connect(dsn, autocommit=True) as leader, psycopg.connect(dsn, autocommit=True) as maker,
        psycopg.connect(dsn, autocommit=True) as listener,
    ):  # fmt: skip
        leader.execute("select pg_advisory_lock(4711)")
        maker.execute("create temporary table kept ()")
        listener.execute("listen jobs")
        walk = storm.headless(BOOK, f"{SOURCE}=sessions", application=APPLICATION, idle_for="0s")
        rows = {row["pid"]: row for row in walk.rows(f"{END}/preview")}
        assert rows[leader.info.backend_pid]["advisory_locks"] == 1
        temporary = rows[maker.info.backend_pid]["temp_tables"]
        assert temporary == (1 if storm.cluster.major >= 16 else None)
        keeping = {pid for pid, row in rows.items() if not row["no_session_state"]}
        spared = storm.headless(
            BOOK, f"{SOURCE}=sessions", f"{END}={len(rows)}", application=APPLICATION, idle_for="0s"
        )
        assert spared.code == 8 and spared.done() == [], "they are shown, and not meant"
        expected = {leader.info.backend_pid, listener.info.backend_pid}
        assert keeping == expected | ({maker.info.backend_pid} if temporary else set())


def test_its_role_is_limited_and_only_its_idle_sessions_are_terminated(storm: Scene) -> None:
    pool = sessions(storm, "shop-web-pool")
    dsn = storm.cluster.dsn(user="postgres", dbname=DATABASE, application_name=APPLICATION)
    with psycopg.connect(dsn) as at_work:
        at_work.execute("select txid_current()")
        idle = sessions(storm, APPLICATION, "state = 'idle'")
        walk = storm.headless(
            BOOK, f"{SOURCE}=limit", f"{WHOSE}={ROLE}", f"{LIMIT}=5", f"{LIMIT}={storm.target}", f"{END}={idle}", TOLD,
            application=APPLICATION, idle_for="0s",
        )  # fmt: skip
        assert walk.code == 0, walk.text
        assert walk.done() == [LIMIT, END]
        storm.cleared(BOOK)
        assert at_work.execute("select 1").fetchone() == (1,), "a session within a transaction is left alone"
    assert limit_of(storm) == "5"
    assert sessions(storm, "shop-web-pool") == pool > 0
