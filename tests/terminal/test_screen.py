"""The console in a real terminal, on a real server: what it shows, what it answers, how it leaves."""

from __future__ import annotations

import os
import re
import shlex
import signal

import pytest

from dba_console.demo.temporary_server import Cluster
from tests.background import idle_sessions
from tests.terminal.consoles import OVERVIEW, PROGRAM, Workspace, recorded_s, shared_workspace, workspace
from tests.terminal.tmux import Tmux

pytestmark = pytest.mark.terminal
__all__ = ["shared_workspace", "workspace"]


def test_the_overview_fits_eighty_by_twenty_four_in_sixteen_colours(
    cluster: Cluster, shared_workspace: Workspace
) -> None:
    with idle_sessions(cluster, 7), shared_workspace.terminal(cluster.dsn()) as terminal:
        terminal.wait_for(OVERVIEW)
        shown = terminal.wait_for(r"idle 7")
        assert "primary" in shown and "1-9 panel" in shown
        coloured = terminal.screen(colours=True)
        assert "\x1b[38;" not in coloured and "\x1b[48;" not in coloured
        assert re.search(r"\x1b\[[0-9;]*3[0-7]m", coloured)


def test_leaving_restores_the_terminal_and_says_that_the_agent_continues(
    cluster: Cluster, shared_workspace: Workspace
) -> None:
    with shared_workspace.shell(cluster.dsn()) as terminal:
        terminal.wait_for(OVERVIEW)
        terminal.keys("q")
        shown = terminal.wait_for("code=0")
        assert "The agent keeps recording for 1m" in shown
        after = terminal.wait_for("iutf8")
        assert "─ Connections" not in after
        assert all(re.search(rf"(?<!-)\b{flag}\b", after) for flag in ("icanon", "echo", "isig", "icrnl"))
        assert len(shared_workspace.agents()) == 1


def test_a_mark_of_one_console_is_shown_on_the_other(cluster: Cluster, shared_workspace: Workspace) -> None:
    with shared_workspace.terminal(cluster.dsn()) as first, shared_workspace.terminal(cluster.dsn()) as second:
        first.wait_for(OVERVIEW)
        second.wait_for(OVERVIEW)
        first.keys("m")
        first.type("pages are slow")
        first.keys("Enter")
        second.wait_for("pages are slow")
        assert len(shared_workspace.agents()) == 1


def test_reattaching_shows_what_was_recorded_meanwhile(cluster: Cluster, shared_workspace: Workspace) -> None:
    with shared_workspace.terminal(cluster.dsn()) as terminal:
        terminal.wait_for(OVERVIEW)
        terminal.keys("n")
        terminal.type("before I left")
        terminal.keys("Enter")
        terminal.keys("q")
        terminal.wait_ended()
    with shared_workspace.terminal("attach") as terminal:
        terminal.wait_for(OVERVIEW)
        terminal.keys("0")
        terminal.wait_for("before I left")
        terminal.type("[")

        def paused(screen: str) -> bool:
            if "no mark, note or finding" in screen:
                terminal.type("[")  # the recording may be a moment behind the live picture
            return "PAUSED" in screen

        terminal.wait_for(paused)


def test_a_recording_is_replayed_with_the_same_keys_and_accepts_no_marks(
    cluster: Cluster, shared_workspace: Workspace
) -> None:
    with shared_workspace.terminal(cluster.dsn()) as terminal:
        terminal.wait_for(OVERVIEW)
        terminal.wait_for(lambda shown: recorded_s(shown) >= 2)
    with shared_workspace.terminal("replay", "last") as terminal:
        terminal.wait_for(r"REPLAY .* PAUSED")
        terminal.keys("Right")
        terminal.type("+")
        terminal.wait_for(r"REPLAY .* ×1")
        terminal.keys("m")
        terminal.wait_for("nothing can be added")
        terminal.keys("9")
        terminal.wait_for("Sessions")
        terminal.keys("q")
        assert terminal.wait_ended() == 0


def test_two_recordings_are_replayed_at_the_same_moment_and_a_key_switches(
    cluster: Cluster, workspace: Workspace
) -> None:
    with workspace.terminal(cluster.dsn()) as one, workspace.terminal(cluster.dsn(dbname="template1")) as other:
        # The second one starts later: the moment must be in both recordings.
        other.wait_for(lambda shown: recorded_s(shown) >= 4)
        one.wait_for(lambda shown: recorded_s(shown) >= 8)
    first, second = map(str, sorted(workspace.sessions.glob("*/session.db")))
    with workspace.terminal("replay", first, "--with", second, "--at", "+6s") as terminal:
        shown = terminal.wait_for("host 1 of 2  & ")
        at = re.search(r"REPLAY \S+ \S+", shown)
        terminal.wait_for("both sessions were")
        terminal.type("&")
        shown = terminal.wait_for("host 2 of 2  & ")
        assert at is not None and at[0] in shown
        terminal.type("q")
        assert terminal.wait_ended() == 0


def test_a_terminal_resized_under_the_console_is_laid_out_again(cluster: Cluster, shared_workspace: Workspace) -> None:
    with shared_workspace.terminal(cluster.dsn()) as terminal:
        terminal.wait_for(OVERVIEW)
        terminal.resize(20, 5)
        terminal.wait_for("too small")
        terminal.resize(160, 50)
        terminal.wait_for(lambda shown: max(map(len, shown.splitlines())) > 120 and "LIVE" in shown)


def test_without_colour_no_colour_is_sent(cluster: Cluster, shared_workspace: Workspace) -> None:
    with shared_workspace.terminal(cluster.dsn(), term="screen-256color", NO_COLOR="1") as terminal:
        terminal.wait_for(OVERVIEW)
        assert not re.search(r"\x1b\[(?:[0-9]+;)*(?:3[0-8]|4[0-8]|9[0-7])[;m]", terminal.screen(colours=True))


def test_a_dumb_terminal_is_refused_and_the_text_command_is_named(cluster: Cluster, workspace: Workspace) -> None:
    script = 'TERM=dumb "$@"; echo "code=$?"; exec cat'
    command = ["sh", "-c", script, "sh", *PROGRAM, cluster.dsn()]
    with Tmux(command, environment=workspace.environment) as terminal:
        shown = terminal.wait_for("code=5")
        assert "dba-console show" in shown
        assert workspace.agents() == []


def test_a_killed_agent_is_reported_as_lost_and_another_takes_over(cluster: Cluster, workspace: Workspace) -> None:
    with workspace.terminal(cluster.dsn()) as terminal:
        terminal.wait_for(OVERVIEW)
        (agent,) = workspace.agents()
        os.kill(agent.pid, signal.SIGKILL)
        terminal.wait_for(lambda shown: any(other.pid != agent.pid and other.consoles for other in workspace.agents()))
        terminal.wait_for(OVERVIEW)
        terminal.keys("m", "Enter")
        terminal.wait_for("mark recorded")


def test_ctrl_z_returns_to_the_shell_and_fg_to_the_console(cluster: Cluster, workspace: Workspace) -> None:
    script = "exec env PS1='$ ' bash --norc --noprofile -i"
    with Tmux(["sh", "-c", script], term="screen", environment=workspace.environment) as terminal:
        terminal.wait_for(r"\$ ")
        terminal.type(shlex.join([*PROGRAM, cluster.dsn()]))
        terminal.keys("Enter")
        terminal.wait_for(OVERVIEW)
        terminal.keys("C-z")
        terminal.wait_for("Stopped")
        terminal.type("echo here-$((40+2)); fg")
        terminal.keys("Enter")
        terminal.wait_for(OVERVIEW)
        terminal.keys("m")
        terminal.wait_for("mark this moment")
        terminal.keys("C-z")
        terminal.wait_for("here-42")
        terminal.type("fg")
        terminal.keys("Enter")
        terminal.wait_for("mark this moment")
        terminal.keys("Escape")
        terminal.wait_for("1-9 panel")
        terminal.keys("q")
        terminal.wait_for("The agent keeps recording")
        terminal.type("echo left-$?")
        terminal.keys("Enter")
        terminal.wait_for("left-0")


def test_without_a_waiting_shell_ctrl_z_says_so(cluster: Cluster, workspace: Workspace) -> None:
    with workspace.terminal(cluster.dsn()) as terminal:
        terminal.wait_for(OVERVIEW)
        terminal.keys("C-z")
        terminal.wait_for("not started from a shell with job control")
        assert terminal.running
