"""The console of another user: its own process, which answers one question of a run.

    python -m tests.agent.runs.second_console SOCKET RUN KIND TEXT

Prints why it was refused, or nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.agent.agents import RunningAgent
from tests.agent.runs.scripted_console import LIMIT_S, Operator


class OtherConsole:
    """Starts it as this login, in the words of the console: by what sudo leaves in the environment."""

    def __init__(self, running: RunningAgent, login: str) -> None:
        self._socket, self._login = running.socket(), login

    def __enter__(self) -> OtherConsole:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def answer(self, run: str, kind: str, text: str) -> str:
        """Why its answer was not taken; empty where it was."""
        env = {**os.environ, "SUDO_USER": self._login, "SSH_CONNECTION": ""}
        done = subprocess.run(
            [sys.executable, "-m", "tests.agent.runs.second_console", str(self._socket), run, kind, text],
            env=env, capture_output=True, text=True, timeout=2 * LIMIT_S,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


def main() -> None:
    socket, run, kind, text = sys.argv[1:]
    operator = Operator.attach(Path(socket))
    operator.watch(run)
    asked = operator.question(kind)
    if not operator.may_answer:
        print(operator.why_not)
        return
    operator.answer(asked, text)
    operator.until(lambda: operator.view is not None and operator.view.question != asked, "the answer taken")


if __name__ == "__main__":
    main()
