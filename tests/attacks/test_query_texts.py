"""Queries as long as clients like, and what the configuration leaves of their texts."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from bench.process import peak_mb
from dba_console.core.redact import normalise, redact, redact_statement
from dba_console.demo.temporary_server import Cluster
from dba_console.watch.frames.model import Frame
from dba_console.watch.probes.postgres.connect import MonitorOptions
from dba_console.watch.samples.postgres import MAX_QUERY_BYTES, WITHHELD, Activity, Sessions
from dba_console.watch.sessions.panel import SessionsPanel
from tests.background import session
from tests.cli.console import Console
from tests.clusters import FreshCluster
from tests.postgres.probes import LONG_TIMEOUTS, connected_probe, reading

S = "Zq7hunter2x"
MB = 1 << 20
LIMIT_S = 120.0
LONG: dict[str, str | int] = {"track_activity_query_size": "1MB", "logging_collector": "off"}


def _observed_activity(
    cluster: Cluster, raw: bytes, options: MonitorOptions = LONG_TIMEOUTS, dbname: str = "postgres"
) -> Activity:
    """A session as the probe reads it that ran `raw`, byte for byte; the probe is in the database postgres."""
    with session(cluster, dbname=dbname, name="speaker") as speaker, connected_probe(cluster, options=options) as probe:
        speaker.pgconn.exec_(raw)
        sessions: Sessions = reading(probe, "pg.activity")
        return next(row for row in sessions.rows if row.pid == speaker.info.backend_pid)


def test_the_start_of_a_long_query_is_read_with_its_total_length(reused_cluster: FreshCluster) -> None:
    cluster = reused_cluster(LONG)
    raw = f"select {'1 + ' * 200_000} 1".encode()
    row = _observed_activity(cluster, raw)
    assert (row.query.encode(), row.query_bytes) == (raw[:MAX_QUERY_BYTES], len(raw))


@pytest.mark.parametrize("longer", [0, 1])
def test_only_longer_text_is_marked_as_cut(reused_cluster: FreshCluster, longer: int) -> None:
    raw = b"select 1 --".ljust(MAX_QUERY_BYTES + longer, b"x")
    row = _observed_activity(reused_cluster(LONG), raw)
    assert (len(row.query), row.query_bytes) == (MAX_QUERY_BYTES, len(raw) if longer else None)


def test_no_partial_character_is_left_at_the_cut(reused_cluster: FreshCluster) -> None:
    row = _observed_activity(reused_cluster(LONG), ("select 1 -- " + "漢" * 2_000).encode())
    assert row.query == "select 1 -- " + "漢" * ((MAX_QUERY_BYTES - 12) // 3)


def test_bytes_invalid_in_our_database_encoding_do_not_fail_the_read(reused_cluster: FreshCluster) -> None:
    cluster = reused_cluster(LONG)
    with session(cluster) as other:
        other.execute("create database bytes template template0 encoding 'SQL_ASCII' lc_collate 'C' lc_ctype 'C'")
        try:
            row = _observed_activity(cluster, b"select '" + b"\xff\xe6\xbc" * 2_000, dbname="bytes")
        finally:
            other.execute("drop database bytes with (force)")
    assert row.query == f"select '{'*' * 8}'" and row.query_bytes == 6_008


def test_a_secret_whose_name_is_in_the_unread_part_is_masked(reused_cluster: FreshCluster) -> None:
    late = f"select '{S}', {'1, ' * 2_000} 2 as password"
    row = _observed_activity(reused_cluster(LONG), late.encode())
    assert S not in row.query and row.query.startswith("select '********', 1, 1,")


def test_agent_and_recording_stay_small_with_long_queries(reused_cluster: FreshCluster, tmp_path: Path) -> None:
    """Twenty texts of 1 MB in each sample; what of them is recorded is a few kB each."""
    cluster, console = reused_cluster(LONG), Console(tmp_path)

    def all_read(frame: Frame) -> bool:
        rows = frame.of(SessionsPanel).rows
        return sum(row.application == "long" and bool(row.query_bytes) for row in rows) == 20

    with ExitStack() as sessions:
        for number in range(20):
            speaker = sessions.enter_context(session(cluster, name="long"))
            speaker.pgconn.exec_(f"select {number}, {'1 + ' * (MB // 4 - 100)} 1".encode())
        with console.watching(cluster.dsn()) as agent:
            frame = agent.until(all_read, "twenty long queries")
            peak = peak_mb(agent.process.pid)
            agent.end()
    assert all(len(row.query or "") <= MAX_QUERY_BYTES for row in frame.sessions.rows)
    assert peak < 96
    (directory,) = console.sessions.iterdir()
    assert sum(path.stat().st_size for path in directory.rglob("*") if path.is_file()) < 2 * MB


@pytest.mark.parametrize(
    ("texts", "shown"),
    [
        ("full", "select 'seen', 471104711471 -- why"),
        ("normalised", "select ?, ?  "),
        ("none", WITHHELD),
    ],
)
def test_the_configuration_decides_how_much_of_a_query_leaves_the_agent(
    cluster: Cluster, tmp_path: Path, texts: str, shown: str
) -> None:
    console = Console(tmp_path)
    console.environment["DBA_CONSOLE_AGENT_QUERY_TEXTS"] = texts
    with session(cluster, name="speaker") as speaker, console.watching(cluster.dsn()) as agent:
        speaker.pgconn.exec_(b"select 'seen', 471104711471 -- why")
        pid = speaker.info.backend_pid
        agent.until(lambda frame: any((row.pid, row.query) == (pid, shown) for row in frame.sessions.rows), shown)
        agent.end()
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert texts == "full" or b"471104711471" not in written


def test_a_policy_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    console = Console(tmp_path)
    console.environment["DBA_CONSOLE_AGENT_QUERY_TEXTS"] = "normalized"
    done = console.run("record", "host=/nowhere", "--for", "1s", timeout=LIMIT_S)
    assert done.code == 2 and "did you mean normalised?" in done.err


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("select $$a$$, $x$ b $x$, E'c\\'d', U&'e', B'01', x'1f', 'f''g'", "select ?, ?, ?, ?, ?, ?, ?"),
        ("select 1.5e3, 0x1f, 1_000, .5 from t1 where id = $1", "select ?, ?, ?, .? from t1 where id = $1"),
        ("select /* a /* b */ 4711 */ 1 -- c\n, \"a 1\"", "select   ?  \n, \"a 1\""),
        ("select 'cut by the serv", "select ?"),
        ("select $$cut by the serv", "select ?"),
        ("select 1 /* cut by the serv", "select ?  "),
        ("select 'where backslashes escape \\'hidden' || 'x'", "select ? …"),
    ],
)  # fmt: skip
def test_a_normalised_statement_contains_no_literal_number_or_comment(text: str, shown: str) -> None:
    assert normalise(text) == shown


def test_a_literal_after_a_nested_comment_is_masked() -> None:
    assert S not in redact(f"/* a /* ' */ ' */ alter role a password '{S}'")


def test_in_a_cut_text_the_complete_statement_keeps_its_literals() -> None:
    assert redact_statement("select 'seen'; insert into t values ('x', 'y", cut=True) == (
        "select 'seen'; insert into t values ('********', '********'"
    )


def test_a_session_that_has_run_nothing_is_not_reported_as_hidden(cluster: Cluster) -> None:
    with connected_probe(cluster, options=replace(LONG_TIMEOUTS, query_texts="none")) as probe:
        rows = reading(probe, "pg.activity").rows
    assert {row.query for row in rows if row.backend_type == "checkpointer"} == {""}
