"""An agent on a real server: what it sends to which console, and how it ends."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dba_console.agent.find_or_start import find_agent
from dba_console.agent.protocol import Mark, Note
from dba_console.core.errors import SessionError
from dba_console.core.target import make_target
from dba_console.demo.temporary_server import Cluster
from dba_console.recording.recording import Recording
from dba_console.watch.frames.model import Frame
from tests.agent.agents import RunningAgent, agent, connection_closed, environment
from tests.background import idle_sessions, session, wait_until


@pytest.fixture(scope="module")
def shared_agent(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningAgent]:
    with agent(cluster.dsn(), tmp_path_factory.mktemp("agent")) as one:
        yield one


@pytest.fixture
def running(shared_agent: RunningAgent, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningAgent]:
    """The agent of the module, on the shared cluster, and its directories in the environment."""
    for name, value in environment(shared_agent.directory).items():
        monkeypatch.setenv(name, value)
    yield shared_agent
    shared_agent.close_clients()


def other_database_dsn(cluster: Cluster) -> str:
    """For an agent of a test's own: another database, whose sessions are those of that agent alone."""
    return cluster.dsn(dbname="template1")


def is_complete(frame: Frame) -> bool:
    return frame.connections.used is not None and frame.io.iowait_pct is not None


def test_every_panel_gets_data_from_a_server_on_this_host(running: RunningAgent, cluster: Cluster) -> None:
    def watched_sessions(frame: Frame) -> bool:
        return is_complete(frame) and (frame.connections.used or 0) >= 5

    with idle_sessions(cluster, 5):
        frame = running.watch().until(watched_sessions)
    assert frame.target.role == "primary"
    assert frame.target.local is True
    assert frame.memory.total_bytes and frame.memory.free_bytes
    assert any("data" in mount.holds and "wal" in mount.holds for mount in frame.disks.mounts)
    assert frame.safety.xid_age is not None
    assert frame.replication.role == "primary"
    assert frame.own.rss_bytes and frame.own.dropped == 0
    assert {row.database for row in frame.sessions.rows} >= {"postgres"}


def test_the_server_sees_one_read_only_connection(running: RunningAgent, cluster: Cluster) -> None:
    running.watch().until(is_complete)
    mine = "select count(*) from pg_stat_activity where application_name = 'dba-console' and datname = 'postgres'"
    ours = cluster.psql(mine)
    assert ours.strip() == "1"


def test_two_consoles_see_the_same_tick(running: RunningAgent) -> None:
    first, second = running.watch(), running.watch()
    frame = first.until(is_complete)
    again = second.until(lambda other: other.seq >= frame.seq)
    other = first.until(lambda other: other.seq >= again.seq) if again.seq > frame.seq else frame
    assert (other.seq, other.at_us) == (again.seq, again.at_us)


def test_marks_and_notes_are_events_with_their_author(running: RunningAgent) -> None:
    watch = running.watch()
    watch.client.send(Mark(text="pool lowered\x1b[2J"))
    watch.client.send(Note(text="password=s3cret of the app was rotated", occurred_us=5))
    mark = watch.event("mark")
    watch.client.send(Mark(occurred_us=7))
    watch.until(lambda _: [event.occurred_us for event in watch.events if event.kind == "mark"] == [None, 7])
    note = watch.event("note")
    assert mark.who and mark.text.startswith("pool lowered")
    assert "s3cret" not in note.text and note.occurred_us == 5
    file = running.session() / "session.log"
    wait_until(lambda: ": mark (happened 1970-01-01T00:00:00" in file.read_text(), 60, what="the last of it in the log")
    log = file.read_text()
    assert "pool lowered" in log and "s3cret" not in log
    assert "\x1b" not in log


def test_every_sample_is_in_the_recording(cluster: Cluster, tmp_path: Path) -> None:
    with agent(other_database_dsn(cluster), tmp_path) as running:
        watch = running.watch()
        for _ in range(4):
            watch.next_frame()
        assert running.end() == 0
        recording = Recording.open(running.session())
    seen = [sample.wall_us for sample in watch.samples]
    for at in seen:
        picture = recording.picture_at(at)
        assert picture is not None and picture.wall_us == at
    recording.close()


def test_an_agent_asked_to_end_says_so_and_frees_its_slot(cluster: Cluster, tmp_path: Path) -> None:
    with agent(other_database_dsn(cluster), tmp_path) as running:
        watch = running.watch()
        watch.until(is_complete)
        assert running.end() == 0
        assert connection_closed(watch)
        mine = "select from pg_stat_activity where application_name = 'dba-console' and datname = 'template1'"
        with session(cluster) as other:
            wait_until(lambda: other.execute(mine).rowcount == 0, 60, what="the slot given back")
        log = (running.session() / "session.log").read_text()
    assert "recording ended: stopped by SIGTERM" in log


def sample_on_disk(directory: Path) -> bool:
    """Whether a sample is on the disk."""
    for path in directory.glob("sessions/*/session.db"):
        try:
            with closing(Recording.open(path.parent)) as recording:
                return recording.picture_at(recording.last_us) is not None
        except SessionError:  # it is just being made
            return False
    return False


def test_after_kill_9_the_next_agent_takes_over_at_once(cluster: Cluster, tmp_path: Path) -> None:
    with agent(other_database_dsn(cluster), tmp_path) as running:
        running.watch().until(is_complete)
        wait_until(lambda: sample_on_disk(tmp_path), 60, what="a recording with a sample in it")
        os.kill(running.process.pid, signal.SIGKILL)
        running.process.wait()
        crashed = running.session()
    with closing(Recording.open(crashed)) as recording:
        assert recording.picture_at(recording.last_us) is not None
    with agent(other_database_dsn(cluster), tmp_path) as again:
        assert is_complete(again.watch().until(is_complete))
        wait_until(lambda: len(list((tmp_path / "sessions").iterdir())) == 2, 60, what="a recording of its own")


def test_the_agent_of_a_target_is_found_by_any_spelling_of_the_target(running: RunningAgent, cluster: Cluster) -> None:
    running.watch()
    uri = f"postgresql://postgres@/postgres?host={cluster.socket_directory}&port={cluster.port}"
    assert find_agent(make_target(uri)) is not None
    assert find_agent(make_target(cluster.dsn(dbname="other"))) is None


def test_no_password_is_visible_in_processes_or_files(cluster: Cluster, tmp_path: Path) -> None:
    with agent(other_database_dsn(cluster), tmp_path, extra={"PGPASSWORD": "s3cret-of-mine"}) as running:
        running.watch().until(is_complete)
        running.end()
        written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"s3cret-of-mine" not in written
