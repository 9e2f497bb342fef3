"""Recording in the foreground, and everything that is done with a session afterwards, on a real server."""

from __future__ import annotations

import shutil
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dba_console.demo.temporary_server import Cluster
from tests.background import idle_sessions, session, wait_until
from tests.cli.console import BUSY_HOST, LISTEN_LIMIT_S, Agent, CompletedCommand, Console, own_console

CONSOLE_PIDS = "select string_agg(pid::text, ' ') from pg_stat_activity where application_name like 'dba-console%'"


@pytest.fixture(scope="module")
def recorded(cluster: Cluster) -> Iterator[Console]:
    """A console whose only session was recorded for three seconds with three idle sessions on the server."""
    with own_console() as console:
        with idle_sessions(cluster, 3, name="loafer"):
            done = console.run("record", "--for", "3s", cluster.dsn())
        assert done.code == 0, done.err
        assert done.err.startswith("watching ")
        yield console


@pytest.fixture(scope="module")
def recording(cluster: Cluster) -> Iterator[tuple[Console, Agent]]:
    """A console with an agent under `record`."""
    with own_console() as console:
        console.write_config(BUSY_HOST)
        with console.watching(cluster.dsn()) as agent:
            yield console, agent


def only(done: CompletedCommand) -> dict[str, object]:
    assert done.code == 0, done.err
    [found] = done.objects()
    assert isinstance(found, dict)
    return found


def test_a_finished_recording_is_listed_as_closed(recorded: Console) -> None:
    row = only(recorded.run("session", "list", "--json"))
    assert row["state"] == "closed"
    assert row["pinned"] is False
    assert isinstance(row["samples"], int)
    assert row["samples"] >= 3


def test_a_session_lists_its_events(recorded: Console) -> None:
    shown = recorded.run("session", "show")
    assert shown.code == 0
    [reported] = recorded.run("session", "show", "--json").objects()
    assert ("no gaps" in shown.out) == (reported["gaps"] == [])
    assert "recording ended: the requested time is over" in shown.out


def test_replay_prints_what_was_shown_live(recorded: Console) -> None:
    frame = only(recorded.run("replay", "last", "--show", "--json"))
    panels = frame["panels"]
    assert isinstance(panels, dict)
    names = [row["application"] for row in panels["sessions"]["rows"]]
    assert {"loafer-0", "loafer-1", "loafer-2"} <= set(names)
    text = recorded.run("replay", "last", "--show", "sessions")
    assert "loafer-0" in text.out


def test_replay_starts_at_a_time_and_continues_from_there(recorded: Console) -> None:
    first = only(recorded.run("replay", "last", "--at", "+0s", "--json"))
    done = recorded.run("replay", "last", "--at", "+0s", "--for", "1h", "--json")
    seqs = [frame["seq"] for frame in done.objects()]
    assert seqs[0] == first["seq"]
    assert len(seqs) >= 3
    assert seqs == sorted(seqs)


def test_a_time_before_the_end_may_be_written_with_a_minus(recorded: Console) -> None:
    last = only(recorded.run("replay", "last", "--json"))
    before = only(recorded.run("replay", "last", "--at", "-1s", "--json"))
    # JSON objects are typed as object; both values are text.
    assert before["at"] < last["at"]  # type: ignore[operator]


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (("last", "--at", "tomorrow", "--show"), 2, "not a time: 'tomorrow'"),
        (("last", "--at", "2001-01-01", "--show"), 6, "nothing was recorded"),
        (("nosuch", "--show"), 6, "unknown session 'nosuch'"),
        (("last", "locks"), 2, "panels need --show"),
        (("locks", "--show"), 2, "no session named"),
    ],
)
def test_a_replay_error_is_reported_in_one_sentence(
    recorded: Console, arguments: tuple[str, ...], code: int, expected: str
) -> None:
    done = recorded.run("replay", *arguments)
    assert (done.code, done.out) == (code, "")
    assert expected in done.err


def test_replay_without_a_terminal_names_the_text_command(recorded: Console) -> None:
    done = recorded.run("replay", "last")
    assert done.code == 5
    assert "dba-console show" in done.err


def test_verify_finds_an_event_that_was_changed(recorded: Console, tmp_path: Path) -> None:
    assert recorded.run("session", "verify").code == 0
    [session] = recorded.sessions.iterdir()
    copy = tmp_path / session.name
    shutil.copytree(session, copy)
    connection = sqlite3.connect(copy / "session.db")
    connection.execute("update journal set line = replace(line, '\"kind\":', '\"kind\": ') where seq = 2")
    connection.commit()
    connection.close()
    done = recorded.run("session", "verify", str(copy))
    assert done.code == 6
    assert "event 2" in done.out


def test_a_truncated_recording_is_shown_up_to_its_end(recorded: Console, tmp_path: Path) -> None:
    [session] = recorded.sessions.iterdir()
    copy = tmp_path / session.name
    shutil.copytree(session, copy)
    for name in ("session.db", "session.samples"):
        with open(copy / name, "r+b") as file:
            file.truncate((copy / name).stat().st_size // 8)
    done = recorded.run("replay", str(copy), "--show", "--json")
    assert done.code in (0, 6)
    assert done.err.startswith(("warning: ", "error: "))
    assert "Traceback" not in done.err


def test_a_pinned_session_survives_a_prune_of_all_others(recorded: Console, tmp_path: Path) -> None:
    sessions = tmp_path / "sessions"
    shutil.copytree(recorded.sessions, sessions)

    def session(*arguments: str) -> CompletedCommand:
        place = str(sessions)
        return recorded.run("session", *arguments, DBA_CONSOLE_SESSIONS=place, DBA_CONSOLE_RECORDING_MAX_SIZE="1kB")

    assert session("pin", "last").code == 0
    assert session("prune").out == "nothing to remove\n"
    assert session("unpin", "last").code == 0
    assert "would remove" in session("prune", "--dry-run").out
    assert len(list(sessions.iterdir())) == 1
    assert "removed" in session("prune").out
    assert list(sessions.iterdir()) == []


def test_a_session_report_without_dumps_names_the_command_for_incidents(recorded: Console) -> None:
    done = recorded.run("session", "report", "last")
    assert done.code == 5
    assert "dba-console report postmortem" in done.err


@pytest.mark.parametrize("format", ["csv", "jsonl", "openmetrics", "otlp"])
def test_a_recorded_session_is_exported_to_a_private_file(recorded: Console, tmp_path: Path, format: str) -> None:
    out = tmp_path / "export"
    done = recorded.run("session", "export", "last", "--format", format, "--out", str(out))
    assert (done.code, done.out, done.err) == (0, "", "")
    assert out.stat().st_mode & 0o777 == 0o600
    assert "connections" in out.read_text()
    assert [*tmp_path.iterdir()] == [out]


def test_show_check_and_doctor_use_the_agent_that_runs(recording: tuple[Console, Agent], cluster: Cluster) -> None:
    console, agent = recording
    agent.until(lambda frame: frame.connections.source == "sql", "its own connection")
    with closing(session(cluster)) as asking:

        def console_pids() -> str:
            [(pids,)] = asking.execute(CONSOLE_PIDS).fetchall()
            return str(pids)

        wait_until(lambda: len(console_pids().split()) == 1, 60, what="the agent's connection alone")
        pid = console_pids()
        assert only(console.run("show", "--json", cluster.dsn()))["seq"]
        assert console_pids() == pid
    assert console.run("check", cluster.dsn()).code == 0
    assert f"the running agent (pid {agent.process.pid})" in console.run("doctor", cluster.dsn()).out
    [listed] = console.run("attach", "--json").objects()
    assert listed["pid"] == agent.process.pid
    assert str(agent.process.pid) in console.run("attach", "--list").out


def test_show_prints_the_events_of_the_agent(recording: tuple[Console, Agent], cluster: Cluster) -> None:
    shown = only(recording[0].run("show", "events", "--json", cluster.dsn()))
    panels = shown["panels"]
    assert isinstance(panels, dict)
    assert {"session.start", "server.connected"} <= {row["kind"] for row in panels["events"]["rows"]}


def test_a_recorder_that_cannot_record_says_so(console: Console, cluster: Cluster) -> None:
    (console.home / "file").write_text("")
    done = console.run("record", "--for", "1s", "--sessions", str(console.home / "file"), cluster.dsn())
    assert done.code == 6
    assert "is not a directory" in done.err


def test_a_second_recorder_of_one_target_is_refused(recording: tuple[Console, Agent], cluster: Cluster) -> None:
    done = recording[0].run("record", "--for", "1s", cluster.dsn())
    assert done.code == 2
    assert "is already running" in done.err and "hint:" in done.err and "dba-console attach" in done.err


def test_an_interrupted_show_ends_with_the_shell_exit_code_and_no_message(console: Console, cluster: Cluster) -> None:
    with console.running("show", "--json", "--every", "1s", cluster.dsn()) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("{")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=LISTEN_LIMIT_S)
    assert (process.returncode, err) == (130, "")


def test_show_says_when_its_agent_ends(console: Console, cluster: Cluster) -> None:
    with (
        console.watching(cluster.dsn()) as agent,
        console.running("show", "--json", "--every", "1s", cluster.dsn()) as show,
    ):
        assert show.stdout is not None
        assert show.stdout.readline().startswith("{")
        agent.process.send_signal(signal.SIGTERM)
        out, err = agent.process.communicate(timeout=LISTEN_LIMIT_S)
        assert (agent.process.returncode, out, len(err.splitlines())) == (0, "", 1), err
        _, err = show.communicate(timeout=LISTEN_LIMIT_S)
    assert show.returncode == 3
    assert err.startswith("error: lost the connection to the agent")


def test_attach_without_an_agent_says_how_to_start_one(console: Console) -> None:
    done = console.run("attach")
    assert done.code == 3
    assert "`dba-console DSN` starts one" in done.err
