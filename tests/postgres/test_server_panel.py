"""The panel of the server, read from a real one of every version."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from dba_console.demo.temporary_server import Cluster
from dba_console.watch.drawing.registry import PANELS
from dba_console.watch.drawing.text_elements import line_text
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.derive import derive
from dba_console.watch.frames.model import Frame
from dba_console.watch.frames.picture import Picture
from dba_console.watch.samples.sample import Sample
from dba_console.watch.server.panel import ServerPanel
from dba_console.watch.server.readings import DueTables
from tests.background import session
from tests.clusters import FreshCluster
from tests.postgres.probes import connected_probe, read, reading
from tests.sql import query

PARTS = (
    "pg.server", "pg.activity", "pg.config", "pg.slru", "pg.session_counts", "pg.io", "pg.wal", "pg.autovacuum_due",
)  # fmt: skip


def frame_of(cluster: Cluster, *, user: str = "postgres", between: Callable[[], object] = lambda: None) -> Frame:
    """The frame of two readings; `between` is called after the first."""
    picture = Picture()
    with connected_probe(cluster, user=user) as probe:
        for number in (1, 2):
            parts = list(read(probe, *PARTS).values())
            at_us = max(part.at_us for part in parts)
            picture = picture.with_sample(Sample(number, 1_795_186_649_000_000 + at_us, at_us, parts, "b1"))
            if number == 1:
                between()
    return derive(picture, ChartHistory())


def panel_of(cluster: Cluster, **options: object) -> ServerPanel:
    return frame_of(cluster, **options).of(ServerPanel)  # type: ignore[arg-type]


def test_the_panel_of_every_version_has_what_the_version_counts(server: Cluster) -> None:
    query(server, "create temp table t as select 1; checkpoint")
    frame = frame_of(server)
    panel = frame.of(ServerPanel)
    assert (panel.status, panel.note) == ("ok", None)
    assert panel.version == query(server, "show server_version").split()[0]
    assert panel.data_directory == str(server.data_directory) and panel.restarted is None
    assert panel.settings == [] and panel.config_errors_known and panel.config_loaded is not None
    if server.major >= 15:  # before, a collector has them later
        assert {row.name for row in panel.slrus} & {"transaction", "Xact"}
    assert panel.sessions_total is not None and panel.sessions_per_s is not None
    assert bool(panel.io) == (server.major >= 16)
    assert (panel.io_workers or 0) == (3 if server.major >= 18 else 0)
    assert panel.checkpoints_requested is not None and panel.autovacuum_max_workers == 3
    lines = [line_text(line) for line in PANELS["server"].compact(frame, 78, 6, ChartHistory())]
    assert lines[1].startswith("settings that need a restart 0 · errors in files 0")


@pytest.fixture
def altered(reused_cluster: FreshCluster) -> Iterator[Cluster]:
    """A server whose files have a value that needs a restart and a value that is wrong."""
    cluster = reused_cluster()
    auto = cluster.data_directory / "postgresql.auto.conf"
    before = auto.read_text()
    auto.write_text(f"{before}\nmax_connections = 321\nwork_mem = 'plenty'\n")
    query(cluster, "select pg_reload_conf(), pg_sleep(0.5)")
    yield cluster
    auto.write_text(before)
    query(cluster, "select pg_reload_conf()")


def test_settings_that_need_a_restart_and_errors_in_the_files_are_listed(altered: Cluster) -> None:
    in_effect = query(altered, "show max_connections")
    auto = str(altered.data_directory / "postgresql.auto.conf")
    auto_lines = (altered.data_directory / "postgresql.auto.conf").read_text().splitlines()
    rows = {row.name: row for row in panel_of(altered).settings}
    waiting, wrong = rows["max_connections"], rows["work_mem"]
    assert (waiting.value, waiting.file_value, waiting.problem) == (in_effect, "321", "needs a restart")
    assert waiting.place == f"{auto}:{auto_lines.index('max_connections = 321') + 1}"
    assert wrong.file_value is None and wrong.problem != "needs a restart"


def test_a_role_without_rights_sees_what_needs_a_restart_and_that_errors_are_not_visible(altered: Cluster) -> None:
    query(altered, "create role bare login")
    try:
        frame = frame_of(altered, user="bare")
        panel = frame.of(ServerPanel)
        assert [(row.name, row.place) for row in panel.settings] == [("max_connections", None)]
        assert not panel.config_errors_known
        assert "errors in files ?" in line_text(PANELS["server"].compact(frame, 78, 6, ChartHistory())[1])
    finally:
        query(altered, "drop role bare")


def test_tables_beyond_their_own_thresholds_are_due_unless_autovacuum_is_off_for_them(server: Cluster) -> None:
    query(server, "create database vacuums")
    try:
        with session(server, dbname="vacuums") as connection:
            for name, option in (("due", "autovacuum_vacuum_threshold = 10"), ("quiet", "autovacuum_enabled = off")):
                connection.execute(
                    f"create table {name} with ({option}) as select n from generate_series(1, 500) n".encode()
                )
                connection.execute(f"analyze {name}; delete from {name} where n <= 300".encode())
            connection.execute(b"select pg_sleep(1.1)")
        with connected_probe(server, dbname="vacuums") as probe:
            due = reading(probe, "pg.autovacuum_due")
        assert isinstance(due, DueTables) and due.database == "vacuums"
        [row] = [row for row in due.rows if row.name.startswith("public.")]
        assert row.name == "public.due"
        assert row.dead == pytest.approx(300 / (10 + 0.2 * 500)) and row.age < 1
    finally:
        query(server, "drop database vacuums with (force)")
