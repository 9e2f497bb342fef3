"""A full disk under the recording, a frozen one under the database: live goes on, and says so."""

from __future__ import annotations

import tempfile
from pathlib import Path

import psycopg
import pytest

from dba_console.agent.protocol import Mark
from dba_console.demo.binaries import find_binaries
from dba_console.demo.temporary_server import Cluster
from dba_console.watch.frames.model import Frame
from tests.agent.agents import agent
from tests.background import wait_until
from tests.disks import fill, frozen, loop_mounted, mounted
from tests.faults.test_server_trouble import assert_steady, connected

pytestmark = pytest.mark.root


def test_a_full_disk_under_the_recording_is_reported_and_live_view_continues(cluster: Cluster, tmp_path: Path) -> None:
    sessions = mounted("tmpfs", tmp_path / "sessions", "-o", "size=4m,mode=700")
    with sessions as small, agent(cluster.dsn(), tmp_path) as running:
        watch = running.watch()
        watch.until(connected)
        wait_until(lambda: list(small.glob("*/session.db")), 60, what="a recording that can fail")
        filler = fill(small)

        def failed(frame: Frame) -> bool:
            # The file system is full, but the log of SQLite has room left within its file.
            watch.client.send(Mark(text="x" * 4000))
            return frame.own.recording == "failed"

        frame = watch.until(failed, what="the failed recording")
        assert frame.own.recording_note
        assert frame.connections.used is not None
        assert_steady(watch, 9)
        filler.unlink()
        watch.until(lambda frame: frame.own.recording == "ok", what="the recording's recovery")


def test_a_frozen_file_system_under_the_database_does_not_slow_the_agent(tmp_path: Path) -> None:
    # Outside tmp_path, which only its owner may enter: the server runs as somebody else.
    with tempfile.TemporaryDirectory() as outside, loop_mounted(tmp_path / "image", Path(outside) / "fs") as place:
        Path(outside).chmod(0o755)
        place.chmod(0o777)
        data = place / "data"
        with Cluster(find_binaries(), data_directory=data) as cluster, agent(cluster.dsn(), tmp_path) as running:
            watch = running.watch()
            watch.until(connected)
            cluster.psql("create table public.t as select 1 as a")
            with psycopg.connect(cluster.dsn(), autocommit=True) as writer:
                with frozen(place):
                    writer.pgconn.send_query(b"insert into public.t select generate_series(1, 200000)")
                    assert_steady(watch, 8)
                    assert watch.next_frame().io.procs_blocked is not None
                while writer.pgconn.get_result() is not None:
                    pass
            assert_steady(watch, 9)
