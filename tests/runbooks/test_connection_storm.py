"""An application takes every slot: named in time, and walked by the runbook `connection-storm`."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from dba_console.demo.clients import DATABASE, LoadPlan
from dba_console.demo.incident_detection import IncidentVerdict
from dba_console.demo.incidents.connection_storm import APPLICATION, LEFT, ROLE
from tests.background import wait_until
from tests.runbooks.runs import AS_ASKED, WAIT_S, WatchedServer, assert_detected, incident, watched_server

RUNBOOK = "connection-storm"
SMALL = LoadPlan(clients=4, rate_per_s=20, idle=12, forgotten=False, scale=1)
SOURCE, END = "stop-it-at-its-source", "end-its-idle-sessions"
WHOSE, LIMIT = "limit-its-role", "set-the-limit"
FOLLOW_UP = "prevent-a-recurrence=20, ticket 4711"


@pytest.fixture(scope="module")
def watched() -> Iterator[WatchedServer]:
    with incident(RUNBOOK, SMALL) as made:
        yield made


@pytest.fixture(scope="module")
def verdict(watched: WatchedServer) -> IncidentVerdict:
    """The storm; the last test of this module ends it."""
    return watched.cause_and_judge()


@pytest.fixture
def detected_storm(watched: WatchedServer, verdict: IncidentVerdict) -> WatchedServer:
    """The storm, found by the agent."""
    watched.wait_until_raised(RUNBOOK)
    wait_until(lambda: not sessions(watched, APPLICATION, "state <> 'idle'"), WAIT_S, what="idle sessions")
    return watched


def sessions(watched: WatchedServer, application: str, also: str = "true") -> int:
    where = f"application_name = '{application}' and {also}"
    return int(watched.cluster.psql(f"select count(*) from pg_stat_activity where {where}"))


def limit_of(watched: WatchedServer) -> str:
    return watched.cluster.psql(f"select rolconnlimit from pg_roles where rolname = '{ROLE}'")


def test_with_enough_free_space_it_does_not_start(watched: WatchedServer) -> None:
    walk = watched.run_headless(RUNBOOK, f"{SOURCE}=sessions", f"{END}=1", FOLLOW_UP, application=APPLICATION)
    assert walk.code == 7, walk.text
    assert walk.records("run.started") == [] and walk.done() == []


def test_a_connection_storm_is_named_within_five_seconds(
    detected_storm: WatchedServer, verdict: IncidentVerdict
) -> None:
    frame = detected_storm.frame(lambda frame: (frame.connections.used or 0) >= 240, "nearly every slot taken")
    assert frame.connections.used is not None and frame.connections.usable is not None
    assert frame.connections.usable - frame.connections.used <= LEFT
    assert frame.connections.by_application[0].name == APPLICATION
    assert_detected(verdict)


def test_another_application_is_not_the_storm_and_on_abort_the_limit_is_reverted(detected_storm: WatchedServer) -> None:
    before = sessions(detected_storm, APPLICATION)
    detected_storm.cluster.psql(f"alter role {ROLE} connection limit 300")
    other = detected_storm.run_headless(RUNBOOK, f"{SOURCE}=sessions", f"{END}=1", FOLLOW_UP, application="shop-web")
    assert other.code == 7, other.text
    assert other.records("run.started") == [] and other.done() == []
    typed = iter(("5", AS_ASKED))
    walk = detected_storm.run_interactively(
        RUNBOOK,
        {"start": "yes", SOURCE: "limit", WHOSE: ROLE, LIMIT: typed.__next__, f"{END}/action": "no", "failed": "abort",
         "undo": "all", f"{LIMIT}/undo": AS_ASKED},
        application=APPLICATION, idle_for="0s",
    )  # fmt: skip
    assert walk.code == 7, walk.text
    assert walk.done()[:1] == [LIMIT] and limit_of(detected_storm) == "300", "what was there, and not no limit at all"
    detected_storm.cluster.psql(f"alter role {ROLE} connection limit -1")
    assert sessions(detected_storm, APPLICATION) == before


def test_a_role_whose_limit_has_no_effect_or_may_not_be_set_is_not_limited(detected_storm: WatchedServer) -> None:
    walk = detected_storm.run_headless(
        RUNBOOK,
        f"{SOURCE}=limit",
        f"{WHOSE}=postgres",
        f"{LIMIT}=5",
        f"{LIMIT}={detected_storm.target}",
        application=APPLICATION,
        idle_for="0s",
    )
    assert walk.code == 7, walk.text
    assert walk.unmet() == [f"{WHOSE}/check"] and walk.done() == []
    assert "it_is_superuser true" in walk.text
    plain = detected_storm.cluster
    plain.psql('create role "On call\'s" login in role pg_monitor, pg_signal_backend')
    with watched_server(plain.dsn(user="On call's", dbname=DATABASE)) as modest:
        refused = modest.run_headless(
            RUNBOOK,
            f"{SOURCE}=limit",
            f"{WHOSE}={ROLE}",
            f"{LIMIT}=5",
            f"{LIMIT}={modest.target}",
            application=APPLICATION,
            idle_for="0s",
        )
        assert refused.unmet() == [f"{WHOSE}/check"] and refused.done() == []
        assert "may_alter_roles false" in refused.text
    assert limit_of(detected_storm) == "-1"


def test_a_session_whose_end_would_lose_something_is_marked(detected_storm: WatchedServer) -> None:
    dsn = detected_storm.cluster.dsn(user="postgres", dbname=DATABASE, application_name=APPLICATION)
    with (
        psycopg.connect(dsn, autocommit=True) as leader, psycopg.connect(dsn, autocommit=True) as maker,
        psycopg.connect(dsn, autocommit=True) as listener,
    ):  # fmt: skip
        leader.execute("select pg_advisory_lock(4711)")
        maker.execute("create temporary table kept ()")
        listener.execute("listen jobs")
        walk = detected_storm.run_headless(RUNBOOK, f"{SOURCE}=sessions", application=APPLICATION, idle_for="0s")
        rows = {row["pid"]: row for row in walk.rows(f"{END}/preview")}
        assert rows[leader.info.backend_pid]["advisory_locks"] == 1
        temporary = rows[maker.info.backend_pid]["temp_tables"]
        assert temporary == (1 if detected_storm.cluster.major >= 16 else None)
        keeping = {pid for pid, row in rows.items() if not row["no_session_state"]}
        spared = detected_storm.run_headless(
            RUNBOOK, f"{SOURCE}=sessions", f"{END}={len(rows)}", application=APPLICATION, idle_for="0s"
        )
        assert spared.code == 8 and spared.done() == [], "they are shown, and not meant"
        expected = {leader.info.backend_pid, listener.info.backend_pid}
        assert keeping == expected | ({maker.info.backend_pid} if temporary else set())


def test_its_role_is_limited_and_only_its_idle_sessions_are_terminated(detected_storm: WatchedServer) -> None:
    pool = sessions(detected_storm, "shop-web-pool")
    dsn = detected_storm.cluster.dsn(user="postgres", dbname=DATABASE, application_name=APPLICATION)
    with psycopg.connect(dsn) as at_work:
        at_work.execute("select txid_current()")
        idle = sessions(detected_storm, APPLICATION, "state = 'idle'")
        walk = detected_storm.run_headless(
            RUNBOOK,
            f"{SOURCE}=limit",
            f"{WHOSE}={ROLE}",
            f"{LIMIT}=5",
            f"{LIMIT}={detected_storm.target}",
            f"{END}={idle}",
            FOLLOW_UP,
            application=APPLICATION,
            idle_for="0s",
        )
        assert walk.code == 0, walk.text
        assert walk.done() == [LIMIT, END]
        detected_storm.wait_until_cleared(RUNBOOK)
        assert at_work.execute("select 1").fetchone() == (1,), "a session within a transaction is left alone"
    assert limit_of(detected_storm) == "5"
    assert sessions(detected_storm, "shop-web-pool") == pool > 0
