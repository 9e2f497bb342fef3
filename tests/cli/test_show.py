"""`show`, `check` and `doctor` on a real server, reading for themselves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from dba_console.demo.temporary_server import Cluster
from dba_console.watch.subjects import PANEL_NAMES
from tests.background import idle_sessions, session, wait_until
from tests.cli.console import BUSY_HOST, Console
from tests.clusters import FreshCluster
from tests.sql import query

CONSOLE_SESSIONS = "select count(*) from pg_stat_activity where application_name like 'dba-console%'"
NOWHERE = "host=/nonexistent-directory dbname=app user=nobody"


@pytest.fixture
def plain(cluster: Cluster) -> Iterator[str]:
    """A role without any privilege."""
    cluster.psql("create role plain login")
    yield "plain"
    cluster.psql("drop role plain")


def files_left(console: Console) -> list[str]:
    """Files below the console's home, locks of targets left out: they are empty and say nothing."""
    return sorted(str(path) for path in console.home.rglob("*") if path.is_file() and path.suffix != ".lock")


def test_json_is_one_object_with_every_panel_and_rates_are_known(console: Console, cluster: Cluster) -> None:
    done = console.run("show", "--json", cluster.dsn())
    assert (done.code, done.err) == (0, "")
    [frame] = done.objects()
    assert list(frame["panels"]) == list(PANEL_NAMES)
    assert frame["target"]["role"] == "primary"
    assert frame["panels"]["connections"]["source"] == "sql"
    assert frame["panels"]["io"]["iowait_pct"] is not None
    assert frame["panels"]["connections"]["max"] == int(cluster.psql("show max_connections"))
    assert frame["target"]["system_identifier"] == cluster.psql("select system_identifier from pg_control_system()")


def test_nothing_is_left_behind(console: Console, cluster: Cluster) -> None:
    assert console.run("show", cluster.dsn()).code == 0
    assert files_left(console) == []
    with closing(session(cluster)) as asking:
        wait_until(lambda: asking.execute(CONSOLE_SESSIONS).fetchall() == [(0,)], 60, what="the end of its connection")


def test_the_overview_as_text_fits_the_requested_width(console: Console, cluster: Cluster) -> None:
    done = console.run("show", "--width", "80", cluster.dsn())
    assert (done.code, done.err) == (0, "")
    assert "Connections" in done.out
    assert max(len(line) for line in done.out.splitlines()) <= 80


def test_a_named_panel_is_shown_in_full_and_alone(console: Console, cluster: Cluster) -> None:
    with idle_sessions(cluster, 3, name="loafer"):
        done = console.run("show", "sessions", cluster.dsn())
        [frame] = console.run("show", "sessions", "--json", cluster.dsn()).objects()
    assert "loafer-0" in done.out
    assert list(frame["panels"]) == ["sessions"]
    assert {row["application"] for row in frame["panels"]["sessions"]["rows"]} >= {"loafer-0", "loafer-1", "loafer-2"}


def test_count_prints_that_many_objects_in_order(console: Console, cluster: Cluster) -> None:
    done = console.run("show", "--json", "--every", "250ms", "--count", "3", cluster.dsn())
    seqs = [frame["seq"] for frame in done.objects()]
    assert len(seqs) == 3
    assert seqs == sorted(set(seqs))


def test_a_word_that_is_neither_panel_nor_target_gets_the_nearest_match(console: Console) -> None:
    done = console.run("show", "lokcs")
    assert done.code == 2
    assert "did you mean locks?" in done.err


def test_a_named_target_of_the_configuration_is_shown(console: Console, cluster: Cluster) -> None:
    console.write_config(f'[targets.here]\ndsn = "{cluster.dsn()}"\n')
    assert console.run("show", "here", "--json").objects()[0]["panels"]["connections"]["source"] == "sql"


def test_without_a_server_known_values_are_printed_and_the_exit_code_says_so(console: Console) -> None:
    done = console.run("show", "--json", NOWHERE)
    assert done.code == 3
    assert done.err.startswith("error: not connected: ")
    [frame] = done.objects()
    assert frame["panels"]["connections"]["used"] is None


def test_without_a_free_slot_blind_mode_is_printed_and_is_not_an_error(
    console: Console, fresh_cluster: FreshCluster
) -> None:
    full = fresh_cluster({"max_connections": 10, "superuser_reserved_connections": 3})
    full.psql("create role plain login")
    with idle_sessions(full, 7, user="plain"):
        done = console.run("show", "--json", full.dsn(user="plain"))
    assert done.code == 0, done.err
    [frame] = done.objects()
    assert frame["panels"]["connections"]["source"] == "process_titles"
    # Our own attempt to connect may be one of the processes just then.
    assert frame["panels"]["connections"]["used"] in (7, 8)


def test_a_password_in_the_connection_string_causes_a_warning_and_is_never_printed(
    console: Console, cluster: Cluster
) -> None:
    done = console.run("show", cluster.dsn(password="s3cret-word"))
    assert done.code == 0
    assert "can read the password in the connection string" in done.err
    assert "s3cret-word" not in done.out + done.err


def test_check_is_ok_with_performance_data_on_a_quiet_server(console: Console, cluster: Cluster) -> None:
    console.write_config(BUSY_HOST)
    done = console.run("check", cluster.dsn())
    assert done.code == 0, done.out + done.err
    assert done.out.startswith("DBACONSOLE OK - ")
    assert " | connections=" in done.out.splitlines()[0]
    assert "used_pct=" in done.out


def test_a_mistyped_panel_with_a_server_gets_the_nearest_match(console: Console) -> None:
    done = console.run("show", "locsk", NOWHERE)
    assert (done.code, done.err) == (2, "error: 'locsk' is neither a panel nor a target\nhint: did you mean locks?\n")


def test_check_is_critical_if_nothing_can_be_connected_to(console: Console) -> None:
    done = console.run("check", "--json", NOWHERE)
    assert done.code == 2
    assert done.objects()[0]["status"] == "CRITICAL"


@pytest.mark.parametrize("scope", ["server", "role", "database"])
def test_states_of_sessions_that_are_not_tracked_are_unknown_with_the_reason(
    console: Console, reused_cluster: FreshCluster, scope: str
) -> None:
    console.write_config(BUSY_HOST)
    cluster = reused_cluster({"track_activities": "off" if scope == "server" else "on"})
    query(cluster, "create role app login")
    query(cluster, "create database app")
    if scope != "server":
        query(cluster, f"alter {scope} app set track_activities = off")
    with session(cluster, user="app", dbname="app", name="app") as idle:
        idle.execute("begin")
        [tick] = console.run("show", "--json", cluster.dsn()).objects()
        text = console.run("show", "connections", cluster.dsn()).out
        checked = console.run("check", cluster.dsn())
    panel = tick["panels"]["connections"]
    assert [panel[name] for name in ("active", "idle", "idle_in_transaction", "other_states")] == [None] * 4
    assert (panel["status"], panel["used"] >= 2) == ("unsupported", True)
    assert "track_activities is off for" in panel["note"] and "track_activities is off for" in text
    assert "active ?" in text
    assert "track_activities is off for" in checked.out.splitlines()[0], checked.out


def test_doctor_finds_missing_rights_of_a_plain_role(console: Console, cluster: Cluster, plain: str) -> None:
    done = console.run("doctor", "--json", cluster.dsn(user=plain))
    found = {check["id"]: check for check in done.objects()}
    assert done.code == 0, done.err
    assert found["connection"]["status"] == "ok"
    assert found["pg_monitor"]["fix"] == f"GRANT pg_monitor TO {plain};"
    cluster.psql(found["pg_monitor"]["fix"])
    mended = {check["id"]: check for check in console.run("doctor", "--json", cluster.dsn(user=plain)).objects()}
    assert mended["pg_monitor"]["status"] == "ok"
    assert mended["processes"]["status"] == "ok"


def test_doctor_leaves_nothing_behind(console: Console, cluster: Cluster) -> None:
    assert console.run("doctor", cluster.dsn()).code == 0
    assert files_left(console) == []
    assert not console.sessions.exists()


def test_doctor_without_a_server_says_so_with_its_exit_code(console: Console) -> None:
    done = console.run("doctor", NOWHERE)
    assert done.code == 3
    assert "critical: connection" in done.out


def test_doctor_says_when_sessions_cannot_be_written(console: Console, cluster: Cluster) -> None:
    done = console.run("doctor", "--json", cluster.dsn(), DBA_CONSOLE_SESSIONS="/proc/self/sessions")
    found = {check["id"]: check for check in done.objects()}
    assert found["writable"]["status"] == "missing"
    assert done.code == 6


def test_json_of_names_with_terminal_escapes_contains_no_escapes(console: Console, cluster: Cluster) -> None:
    with session(cluster) as hostile:
        hostile.execute("select 'a\u202eb\u009b2J\u200b\ufeff'")
        done = console.run("show", "sessions", "--json", cluster.dsn())
    assert done.out.strip().isprintable(), done.out
    assert any("a\u202eb\u009b2J" in row["query"] for row in done.objects()[0]["panels"]["sessions"]["rows"])
