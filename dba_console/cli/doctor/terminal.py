"""Doctor checks of the terminal and the login session: what the screen needs, and what a lost connection ends."""

from __future__ import annotations

import locale
import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from dba_console.cli.doctor.check import DoctorCheck, missing, ok, unknown
from dba_console.core.users import default_user

TERMINAL = "terminal"
WIDTH, HEIGHT = 80, 24
"""The minimum size the screens are designed for."""


@dataclass(frozen=True, slots=True)
class TerminalFacts:
    """Facts about the terminal and the login session; None is unknown."""

    size: tuple[int, int] | None
    """Columns and lines; None where no terminal is attached."""
    encoding: str
    environ: Mapping[str, str]
    user: str
    kill_user_processes: bool | None
    """KillUserProcesses of logind; None if logind does not answer."""
    lingers: bool
    client_alive_s: int | None
    """ClientAliveInterval of sshd; None where its configuration cannot be read."""


def check_terminal(facts: TerminalFacts) -> Iterator[DoctorCheck]:
    if facts.size is None:
        lost = "the screen; dba-console show and record need no terminal"
        yield unknown(TERMINAL, "terminal", "no terminal is attached", lost=lost, fix="ssh -t, or dba-console show")
    else:
        yield _check_colours(facts)
        yield _size(*facts.size)
    yield _encoding(facts.encoding)
    yield _multiplexer(facts.environ)
    yield _logout(facts)
    if facts.environ.get("SSH_CONNECTION"):
        yield _keepalive(facts.client_alive_s)


def terminal_colours(environ: Mapping[str, str]) -> str:
    """Return the colours the terminal reports: none, 16, 256 or truecolor (NO_COLOR: https://no-color.org).

    >>> (terminal_colours({"TERM": "xterm-256color"}), terminal_colours({"TERM": "screen"}),
    ...  terminal_colours({"TERM": "xterm", "NO_COLOR": "1"}))
    ('256', '16', 'none')
    """
    term = environ.get("TERM", "")
    if environ.get("NO_COLOR") or term in ("", "dumb") or term.endswith("-m") or term == "vt100":
        return "none"
    if environ.get("COLORTERM", "") in ("truecolor", "24bit"):
        return "truecolor"
    return "256" if "256color" in term else "16"


def _check_colours(facts: TerminalFacts) -> DoctorCheck:
    term = facts.environ.get("TERM", "")
    if term in ("", "dumb"):
        return missing(
            TERMINAL, "colours", f"TERM is {term or 'not set'}: the screen cannot be drawn", lost="the screen",
            fix="export TERM=xterm, or use dba-console show",
        )  # fmt: skip
    found = terminal_colours(facts.environ)
    shown = {"none": "without colours; symbols and text show the same", "16": "with 16 colours"}
    return ok(TERMINAL, "colours", f"TERM={term}: drawn {shown.get(found, f'with {found} colours')}")


def _size(width: int, height: int) -> DoctorCheck:
    if width >= WIDTH and height >= HEIGHT:
        return ok(TERMINAL, "size", f"{width}×{height}")
    lost = "parts of the overview; its minimum size is 80×24"
    return missing(TERMINAL, "size", f"{width}×{height} is small", lost=lost, fix="enlarge the window or its font")


def _encoding(encoding: str) -> DoctorCheck:
    if encoding.lower().replace("-", "") in ("utf8", "utf8sig"):
        return ok(TERMINAL, "encoding", "the locale uses UTF-8")
    return missing(
        TERMINAL, "encoding", f"the locale uses {encoding}, not UTF-8", lost="bars and lines of the screen",
        fix="export LC_ALL=C.UTF-8, or screen.ascii = true in the configuration",
    )  # fmt: skip


def _multiplexer(environ: Mapping[str, str]) -> DoctorCheck:
    inside = "tmux" if environ.get("TMUX") else "screen" if environ.get("STY") else None
    if inside is not None:
        return ok(TERMINAL, "multiplexer", f"inside {inside}")
    if not environ.get("SSH_CONNECTION"):
        return ok(TERMINAL, "multiplexer", "not in an SSH session, which could drop")
    return missing(
        TERMINAL, "multiplexer", "an SSH session outside tmux",
        lost="the screen when the connection drops; the agent keeps running, and dba-console attach reopens it",
        fix="tmux new -A -s dba",
    )  # fmt: skip


def _logout(facts: TerminalFacts) -> DoctorCheck:
    """Check KillUserProcesses (logind.conf(5)): it ends the session's scope, lingering or not; root is excluded."""
    if facts.kill_user_processes is None:
        return unknown(TERMINAL, "logout", "whether logind ends processes at logout: it does not answer")
    if not facts.kill_user_processes or facts.user == "root":
        return ok(TERMINAL, "logout", "logind leaves processes running at logout")
    linger = "" if facts.lingers else f"loginctl enable-linger {facts.user}; "
    return missing(
        TERMINAL, "logout", "logind ends every process of the session at logout (KillUserProcesses=yes)",
        lost="the agent, tmux and the recording, when the SSH session ends",
        fix=f"{linger}systemd-run --user --scope dba-console record, or the systemd unit in docs/",
    )  # fmt: skip


def _keepalive(interval_s: int | None) -> DoctorCheck:
    fix = "ServerAliveInterval 30 in the client's ~/.ssh/config, or ClientAliveInterval 30 in sshd_config"
    if interval_s is None:
        text = "whether SSH detects a dead connection: sshd's configuration cannot be read"
        return unknown(TERMINAL, "ssh_keepalive", text, fix=fix)
    if interval_s > 0:
        return ok(TERMINAL, "ssh_keepalive", f"sshd checks the client every {interval_s} s")
    return missing(
        TERMINAL, "ssh_keepalive", "sshd does not check whether the client is alive",
        lost="an idle session through a firewall may freeze, unnoticed until a key is pressed", fix=fix,
    )  # fmt: skip


# Gathering the facts of the terminal and the login session. Nothing waits longer than two seconds.

SSHD_CONFIG = Path("/etc/ssh/sshd_config")
LINGER_DIRECTORY = Path("/var/lib/systemd/linger")
_KILL_USER_PROCESSES = (
    "busctl", "get-property", "org.freedesktop.login1", "/org/freedesktop/login1",
    "org.freedesktop.login1.Manager", "KillUserProcesses",
)  # fmt: skip


def terminal_facts() -> TerminalFacts:
    """Return the facts for the terminal checks."""
    user = default_user()
    return TerminalFacts(
        size=_terminal_size(),
        encoding=locale.getpreferredencoding(False),
        environ=os.environ,
        user=user,
        kill_user_processes=_kill_user_processes(),
        lingers=(LINGER_DIRECTORY / user).exists(),
        client_alive_s=_read_client_alive_s(SSHD_CONFIG),
    )


def client_alive_interval(lines: Iterable[str]) -> int:
    """Return ClientAliveInterval in seconds from lines of sshd_config, 0 if it is not set (sshd_config(5)).

    The first value counts; Match blocks are ignored.

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
    """Debian's sshd_config includes sshd_config.d/*.conf at its beginning, so these files are read first."""
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
