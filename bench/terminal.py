"""A terminal for the measured programs: tmux on its own socket."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from collections.abc import Sequence
from typing import Self


class Terminal:
    """One program in one tmux window."""

    def __init__(self, name: str, width: int = 160, height: int = 50) -> None:
        self._tmux = ["tmux", "-L", f"bench-{os.getpid()}-{name}", "-f", "/dev/null"]
        self._size = ["-x", str(width), "-y", str(height)]

    def __enter__(self) -> Self:
        # The tmux server is started first, so that its start is not measured.
        self._run("new-session", "-d", *self._size, "sleep 100000")
        self._run("set-option", "-g", "default-terminal", "screen-256color")
        return self

    def __exit__(self, *_: object) -> None:
        self._run("kill-server")

    def start(self, command: Sequence[str]) -> float:
        """Run the program; return the monotonic time of the request."""
        begun = time.monotonic()
        self._run("respawn-window", "-k", "exec " + shlex.join(command))
        return begun

    def keys(self, *keys: str) -> None:
        self._run("send-keys", *keys)

    def type(self, text: str) -> None:
        self._run("send-keys", "-l", text)

    def wait_for_end(self, limit_s: float = 60.0) -> None:
        """Wait until the program has ended. Raises TimeoutError with the screen."""
        end = time.monotonic() + limit_s
        while self._run("list-panes", "-F", "#{pane_pid}").strip():
            if time.monotonic() > end:
                raise TimeoutError(f"still running:\n{self.screen()}")
            time.sleep(0.1)

    def screen(self) -> str:
        return self._run("capture-pane", "-p")

    def pid(self) -> int:
        return int(self._run("list-panes", "-F", "#{pane_pid}").split()[0])

    def wait_for(self, text: str, limit_s: float = 20.0) -> float:
        """Return the monotonic time at which `text` first appeared. Raises TimeoutError with the screen."""
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            if text in self.screen():
                return time.monotonic()
            time.sleep(0.01)
        raise TimeoutError(f"{text!r} did not appear:\n{self.screen()}")

    def _run(self, *arguments: str) -> str:
        return subprocess.run([*self._tmux, *arguments], capture_output=True, text=True, check=False).stdout
