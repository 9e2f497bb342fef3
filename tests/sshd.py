"""A real sshd on the loopback with keys of its own, and the name by which the system's ssh reaches it.

The operator's ssh configuration is found by the account's home, not by an environment variable. So an `ssh` goes first
in the path that gives the real one a configuration file: the product runs it as it runs any other.
"""

from __future__ import annotations

import os
import pwd
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dba_console.demo.temporary_server import child_processes, send_signals
from tests.background import wait_until
from tests.requirements import require_tool

NAME = "db-over-ssh"
BEHIND = "db-behind-a-jump-host"


class Sshd:
    """The server, its client's files in `directory`; `bin` goes first in the path. Each command is run by `through`;
    as another user who may use sudo as `sudoers` says."""

    def __init__(self, directory: Path, through: str = "", sudoers: str = "") -> None:
        self.directory, self.bin, self._sudoers = directory, directory / "bin", sudoers
        self.bin.mkdir()
        for key in ("host", "client"):
            subprocess.run(
                [require_tool("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-f", str(directory / key)], check=True
            )
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        (directory / "authorized").write_text((directory / "client.pub").read_text())
        (directory / "sshd_config").write_text(
            f"ListenAddress 127.0.0.1\nPort {self.port}\nHostKey {directory}/host\nPidFile none\nUsePAM no\n"
            f"AuthorizedKeysFile {directory}/authorized\nStrictModes no\nPasswordAuthentication no\n"
            "KbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\nMaxSessions 20\n"
            "SetEnv SHLVL=1\n"  # bash reads no .bashrc then, which may take its time
            + (f'ForceCommand {through} sh -c "$SSH_ORIGINAL_COMMAND"\n' if through else "")
        )
        self.known(f"[127.0.0.1]:{self.port} {(directory / 'host.pub').read_text()}")
        (directory / "config").write_text(
            f"Host {BEHIND}\n  ProxyJump {NAME}\nHost {NAME} {BEHIND}\n"
            f"  HostName 127.0.0.1\n  Port {self.port}\n  IdentityFile {directory}/client\n"
            f"  IdentitiesOnly yes\n  User {pwd.getpwuid(os.geteuid()).pw_name}\n"
            f"  UserKnownHostsFile {directory}/known\n  GlobalKnownHostsFile /dev/null\n"
        )
        wrapper = self.bin / "ssh"
        wrapper.write_text(f'#!/bin/sh\nexec {require_tool("ssh")} -F {directory}/config "$@"\n')
        wrapper.chmod(0o755)
        self._process: subprocess.Popen[bytes] | None = None

    def known(self, line: str) -> None:
        """The one host key that the client accepts."""
        (self.directory / "known").write_text(line)

    def start(self) -> None:
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)  # where it drops its rights; packages make it at the first boot
        command = [require_tool("sshd"), "-D", "-e", "-f", str(self.directory / "sshd_config")]
        if self._sudoers:
            (rules := self.directory / "sudoers").mkdir(exist_ok=True)
            (rules / "test").write_text(self._sudoers)
            (rules / "test").chmod(0o440)
            script = 'mount --bind "$1" /etc/sudoers.d; shift; exec "$@"'
            command = [require_tool("unshare"), "--mount", "sh", "-euc", script, "sh", str(rules), *command]
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log, cwd="/"
            )
        wait_until(self._listens, what="sshd listening")

    def logins(self) -> int:
        """How many there were since it was made."""
        return (self.directory / "log").read_text().count("Accepted publickey")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def cut(self) -> None:
        """End every connection, as a network does: what runs on the other side goes on."""
        if self._process is not None:
            sessions = child_processes(self._process.pid)
            send_signals(sessions, signal.SIGKILL)
            wait_until(lambda: not set(sessions) & set(child_processes(self._process.pid if self._process else 0)))

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Its connections stay open and nothing goes through, as behind a firewall that drops."""
        sessions = child_processes(self._process.pid) if self._process is not None else []
        send_signals(sessions, signal.SIGSTOP)
        try:
            yield
        finally:
            send_signals(sessions, signal.SIGCONT)

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)  # a client that connects again at once would keep its session
            send_signals(child_processes(self._process.pid), signal.SIGKILL)
            self._process.kill()
            self._process.wait()
            self._process = None

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


@contextmanager
def sshd(directory: Path, through: str = "", sudoers: str = "") -> Iterator[Sshd]:
    """A running sshd which `ssh NAME` of this process and its children reaches while the block lasts."""
    server = Sshd(directory, through, sudoers)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{server.bin}:{os.environ['PATH']}")
        patch.setenv("DBA_CONSOLE_RUNTIME", str(directory))
        try:
            server.start()
            yield server
        finally:
            server.stop()
