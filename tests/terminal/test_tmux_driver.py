"""The terminal the terminal tests stand on: real screens, real keys, real endings."""

from __future__ import annotations

import os
import signal

import pytest

from tests.background import wait_until
from tests.terminal.tmux import LIMIT_S, Tmux

pytestmark = pytest.mark.terminal
SHELL = ["sh", "-c", 'printf \'ready %s\\n\' "$TERM"; read -r line; echo "got $line"; stty size; exit 3']


def test_what_is_typed_arrives_and_the_exit_status_comes_back() -> None:
    with Tmux(SHELL) as terminal:
        terminal.wait_for("ready screen-256color")
        terminal.type("[x] ;$HOME")
        terminal.keys("Enter")
        assert terminal.wait_ended() == 3
        assert "got [x] ;$HOME\n24 80" in terminal.screen()


def test_the_screen_follows_a_resize() -> None:
    with Tmux(SHELL, columns=120, lines=40) as terminal:
        terminal.wait_for("ready")
        terminal.resize(160, 50)
        terminal.keys("Enter")
        terminal.wait_for("50 160")


def test_an_end_by_signal_is_distinguished_from_an_exit() -> None:
    with Tmux(SHELL) as terminal:
        terminal.wait_for("ready")
        os.kill(terminal.pid, signal.SIGKILL)
        assert terminal.wait_ended() == -signal.SIGKILL


def test_a_hang_up_reaches_the_command() -> None:
    with Tmux(SHELL) as terminal:
        terminal.wait_for("ready")
        pid = terminal.pid
        terminal.hang_up()
        wait_until(lambda: not os.path.exists(f"/proc/{pid}"), LIMIT_S)


def test_text_that_never_appears_is_reported_with_the_screen() -> None:
    with Tmux(SHELL) as terminal:
        terminal.wait_for("ready")
        with pytest.raises(AssertionError, match=r"(?s)never on the screen: 'absent'.*ready"):
            terminal.wait_for("absent", timeout=0.1)
