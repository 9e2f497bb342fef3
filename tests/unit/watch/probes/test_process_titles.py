"""Process titles, as the versions write them and as hostile names bend them."""

from __future__ import annotations

import pytest

from dba_console.watch.probes.host.processes import (
    CLIENT_BACKEND,
    STARTING,
    ParsedTitle,
    cluster_name,
    parse_title,
    titles_are_updated,
)


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("postgres: app shop [local] idle", ("app", "shop", "[local]", "idle")),
        ("postgres: app shop 10.0.0.7(52114) SELECT", ("app", "shop", "10.0.0.7", "SELECT")),
        ("postgres: app shop ::1(4444) idle in transaction (aborted)",
         ("app", "shop", "::1", "idle in transaction (aborted)")),
        ("postgres: app shop db.example.org(99) UPDATE waiting", ("app", "shop", "db.example.org", "UPDATE waiting")),
        ("postgres: app shop [local] CREATE TABLE AS", ("app", "shop", "[local]", "CREATE TABLE AS")),
        ("postgres: archiver shop [local] idle", ("archiver", "shop", "[local]", "idle")),
    ],
)  # fmt: skip
def test_a_client_is_read_field_by_field(title: str, expected: tuple[str, str, str, str]) -> None:
    assert parse_title(title) == ParsedTitle(CLIENT_BACKEND, *expected)


@pytest.mark.parametrize(
    ("title", "kind"),
    [
        ("postgres: checkpointer", "checkpointer"),
        ("postgres: background writer", "background writer"),
        ("postgres: startup recovering 000000010000000000000003", "startup"),
        ("postgres: walreceiver streaming 0/3000148", "walreceiver"),
        ("postgres: logical replication launcher", "logical replication launcher"),
        ("postgres: logical replication apply worker for subscription 16390", "logical replication apply worker"),
        ("postgres: parallel worker for PID 4711", "parallel worker"),
        ("postgres: io worker 2", "io worker"),
        ("postgres: pg_cron launcher", "pg_cron launcher"),
    ],
)
def test_a_server_process_has_its_kind(title: str, kind: str) -> None:
    parsed = parse_title(title)
    assert parsed.kind == kind
    assert parsed.client is None


def test_an_autovacuum_worker_names_its_database() -> None:
    assert parse_title("postgres: autovacuum worker shop").database == "shop"


def test_a_walsender_has_a_user_and_only_for_decoding_a_database() -> None:
    assert parse_title("postgres: walsender rep 10.0.0.8(4000) streaming 0/3000148") == ParsedTitle(
        "walsender", "rep", None, "10.0.0.8", "streaming 0/3000148"
    )
    assert parse_title("postgres: walsender rep shop [local] START_REPLICATION").database == "shop"


def test_names_with_spaces_are_not_guessed() -> None:
    parsed = parse_title("postgres: my app my shop [local] idle")
    assert parsed == ParsedTitle(CLIENT_BACKEND, None, None, "[local]", "idle")


def test_a_name_that_resembles_an_address_does_not_hide_the_real_one() -> None:
    parsed = parse_title("postgres: evil [local] idle 10.0.0.1(5) shop 10.6.6.6(666) DELETE")
    assert (parsed.kind, parsed.client, parsed.state) == (CLIENT_BACKEND, "10.6.6.6", "DELETE")
    assert parsed.user is None


def test_the_cluster_name_is_read_from_the_checkpointer() -> None:
    titles = ["/usr/bin/postgres -D /pg", "postgres: my: clu: checkpointer", "postgres: my: clu: app shop [local] idle"]
    assert cluster_name(titles) == "my: clu"
    assert parse_title(titles[2], "my: clu").user == "app"


def test_without_a_cluster_name_none_is_invented() -> None:
    assert cluster_name(["postgres: checkpointer", "postgres: app shop [local] idle"]) is None


def test_a_client_cannot_forge_a_cluster_name() -> None:
    hostile = "postgres: x db [local] idle: checkpointer"
    assert cluster_name(["postgres: checkpointer", "postgres: app shop [local] idle", hostile]) is None


def test_an_unnamed_child_is_starting() -> None:
    assert parse_title("/usr/lib/postgresql/15/bin/postgres -D /pg").kind == STARTING


def test_titles_without_any_state_mean_they_are_not_updated() -> None:
    off = [parse_title("postgres: app shop [local]"), parse_title("postgres: checkpointer")]
    assert off[0] == ParsedTitle(CLIENT_BACKEND, "app", "shop", "[local]", None)
    assert not titles_are_updated(off)
    assert titles_are_updated([*off, parse_title("postgres: app shop [local] idle")])
    assert titles_are_updated([parse_title("postgres: checkpointer")])
