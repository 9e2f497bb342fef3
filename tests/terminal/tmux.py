"""A real terminal for tests: a tmux server of one's own, its screen read as text, its keys typed.

Nothing is waited for by the clock: `wait_for` looks at the screen until it shows what is expected, and shows the
screen when it does not.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.background import wait_until
from tests.requirements import require_tool

LIMIT_S = 120.0
"""For whatever is waited for: the machine may have other things to do."""
OF_THE_SIZE = ("COLUMNS", "LINES")
"""Variables that say a size of the terminal whatever it is; pytest-xdist sets them."""
TICK_S = 0.05
"""Between two readings of the screen; each is a process."""


class Tmux:
    """One window of `columns` × `lines` running `command`; the pane stays after the command ended.

    `term` is what programs inside see as TERM. `environment` is added to this process's own.
    """

    def __init__(
        self,
        command: list[str],
        *,
        columns: int = 80,
        lines: int = 24,
        term: str = "screen-256color",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._tmux = require_tool("tmux")
        self._directory = Path(tempfile.mkdtemp(prefix="dba-tmux-"))
        self._socket = str(self._directory / "s")
        configuration = self._directory / "conf"
        configuration.write_text(
            f"set -g default-terminal {term}\nset -g status off\nset -g remain-on-exit on\nset -g escape-time 0\n"
            "set -g history-limit 2000\n"
            "set -g default-shell /bin/sh\n"  # the account's own may be nologin
        )
        clean = {name: value for name, value in os.environ.items() if name not in OF_THE_SIZE and name[:4] != "TMUX"}
        self._environment = {**clean, "LC_ALL": "C.UTF-8", **(environment or {})}
        size = ["-x", str(columns), "-y", str(lines)]
        self._run("-f", str(configuration), "new-session", "-d", *size, f"exec {shlex.join(command)}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def screen(self, *, colours: bool = False) -> str:
        """What the screen shows now, lines joined by newlines; with `colours`, its escape sequences too."""
        return self._run("capture-pane", "-p", "-N", *(["-e"] if colours else []))

    def wait_for(self, expected: str | Callable[[str], bool], timeout: float = LIMIT_S) -> str:
        """The first screen that matches the regular expression, or pleases the function.

        Raises AssertionError with the screen when none does in time.
        """
        tick, end = threading.Event(), time.monotonic() + timeout
        while True:
            in_time, shown = time.monotonic() < end, self.screen()
            if re.search(expected, shown) if isinstance(expected, str) else expected(shown):
                return shown
            if not in_time:
                raise AssertionError(f"never on the screen: {expected!r}\n{shown}")
            tick.wait(TICK_S)

    def keys(self, *keys: str) -> None:
        """Press keys by tmux's names: `q`, `Enter`, `Left`, `C-c`, `S-Right`."""
        self._run("send-keys", *keys)

    def type(self, text: str) -> None:
        """Type text as it is."""
        self._run("send-keys", "-l", text)

    def resize(self, columns: int, lines: int) -> None:
        self._run("resize-window", "-x", str(columns), "-y", str(lines))

    @property
    def pid(self) -> int:
        """The process id of the command."""
        return int(self._ask("#{pane_pid}"))

    @property
    def running(self) -> bool:
        return self._ask("#{pane_dead}") == "0"

    def wait_ended(self, timeout: float = LIMIT_S) -> int:
        """The exit status of the command, once it has ended; minus the signal's number if one ended it."""

        def status() -> str:
            # The pane is dead when its tty closes, the status follows when the process is reaped. tmux 3.3a overlooks
            # that now and then until another child of its own ends too; in the background, for the end of that one may
            # be overlooked as well.
            self._run("run-shell", "-b", "true")
            return self._ask("#{?pane_dead_signal,-#{pane_dead_signal},#{pane_dead_status}}")

        try:
            return int(wait_until(status, timeout))
        except AssertionError:
            raise AssertionError(f"the command did not end:\n{self.screen()}") from None

    def hang_up(self) -> None:
        """Take the terminal away, as a lost SSH connection does: the command gets SIGHUP, its tty is gone."""
        self._run("kill-pane")

    def close(self) -> None:
        """End the tmux server and what runs in it."""
        subprocess.run(
            [self._tmux, "-S", self._socket, "kill-server"], capture_output=True, check=False, env=self._environment
        )
        shutil.rmtree(self._directory, ignore_errors=True)

    def _ask(self, what: str) -> str:
        return self._run("display-message", "-p", what).strip()

    def _run(self, *arguments: str) -> str:
        done = subprocess.run(
            [self._tmux, "-S", self._socket, *arguments], capture_output=True, check=False, env=self._environment,
            timeout=LIMIT_S,
        )  # fmt: skip
        if done.returncode != 0:
            raise AssertionError(f"tmux {arguments[0]}: {done.stderr.decode(errors='replace').strip()}")
        return done.stdout.decode(errors="replace")
