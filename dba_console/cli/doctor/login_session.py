"""Facts of the terminal and the login session, asked of the system. Nothing is waited for longer than two seconds."""

from __future__ import annotations

import locale
import os
import pwd
import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from dba_console.cli.doctor.terminal import TerminalFacts

SSHD_CONFIG = Path("/etc/ssh/sshd_config")
LINGER_DIRECTORY = Path("/var/lib/systemd/linger")
_KILL_USER_PROCESSES = (
    "busctl", "get-property", "org.freedesktop.login1", "/org/freedesktop/login1",
    "org.freedesktop.login1.Manager", "KillUserProcesses",
)  # fmt: skip


def terminal_facts(environ: Mapping[str, str] = os.environ) -> TerminalFacts:
    """Everything the terminal's checks look at."""
    user = _user_name()
    return TerminalFacts(
        size=_terminal_size(),
        encoding=locale.getpreferredencoding(False),
        environ=environ,
        user=user,
        kill_user_processes=_kill_user_processes(),
        lingers=(LINGER_DIRECTORY / user).exists(),
        client_alive_s=_read_client_alive_s(SSHD_CONFIG),
    )


def client_alive_interval(lines: Iterable[str]) -> int:
    """ClientAliveInterval in seconds from lines of sshd_config, 0 where it is not set (sshd_config(5)).

    The first value counts; what stands in a Match block is for others.

    >>> client_alive_interval(["# ClientAliveInterval 5", "ClientAliveInterval 2m", "ClientAliveInterval 7"])
    120
    """
    for line in lines:
        if re.match(r"\s*match\b", line, re.I):
            break
        found = re.match(r"\s*clientaliveinterval[\s=]+\"?(\d+)([smhd]?)\"?\s*$", line, re.I)
        if found:
            return int(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[found[2].lower()]
    return 0


def _read_client_alive_s(file: Path) -> int | None:
    """Debian's sshd_config includes sshd_config.d/*.conf at its beginning, so those come first."""
    try:
        lines: list[str] = []
        for path in (*sorted(file.parent.glob(file.name + ".d/*.conf")), file):
            lines += path.read_text("utf-8", "replace").splitlines()
    except OSError:
        return None
    return client_alive_interval(lines)


def _kill_user_processes() -> bool | None:
    try:
        done = subprocess.run(
            _KILL_USER_PROCESSES, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=2, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return {"b true": True, "b false": False}.get(done.stdout.strip())


def _terminal_size() -> tuple[int, int] | None:
    for descriptor in (1, 0, 2):
        try:
            size = os.get_terminal_size(descriptor)
        except OSError:
            continue
        return size.columns, size.lines
    return None


def _user_name() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
