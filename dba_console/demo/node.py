"""A node of the practice cluster: a server that others may stop, start and promote."""

from __future__ import annotations

import subprocess
from pathlib import Path

from dba_console.demo.binaries import Binaries
from dba_console.demo.cluster import Cluster
from dba_console.demo.postmaster import PgCtlServer
from dba_console.demo.server_account import clean_environment
from dba_console.demo.server_settings import Settings, conninfo
from dba_console.errors import ConsoleError


class Node(Cluster):
    """One data directory below `base`, its server started by `pg_ctl` and nobody's child; whether it runs, its pid file
    says. Its slots and standbys go by `name`. The caller guards it."""

    def __init__(self, name: str, base: Path, binaries: Binaries, settings: Settings) -> None:
        super().__init__(binaries, base=base, settings={**settings, "cluster_name": name}, guarded=False)
        self.name = name
        self._daemon = PgCtlServer(binaries.program("pg_ctl"), self.data_directory, self.log_path, self.account)

    @property
    def running(self) -> bool:
        return self._daemon.running

    @property
    def pid(self) -> int | None:
        return self._daemon.pid

    def stop(self, mode: str = "fast", *, timeout_s: float = 30.0) -> None:
        self._daemon.stop(mode, timeout_s)

    def kill(self) -> None:
        self._daemon.kill()

    def copy_from(self, other: Node) -> None:
        """Copy the data directory of a stopped server, with owners. Raises ConsoleError where it fails."""
        done = subprocess.run(
            ["cp", "-a", "--reflink=auto", str(other.data_directory), str(self.data_directory)],
            stdin=subprocess.DEVNULL, capture_output=True, env=clean_environment(), check=False,
        )  # fmt: skip
        if done.returncode != 0:
            why = done.stderr.decode(errors="replace").strip()
            raise ConsoleError(f"the files of {self.name} could not be copied: {why}")

    def follow(self, primary: Node) -> None:
        """Make the stopped server a standby that streams from `primary` by the slot of its own name.

        The settings stand where `pg_basebackup -R` writes them, so that a cutover finds and changes them there.
        """
        source = conninfo({"host": str(primary.socket_directory), "port": primary.port, "user": "postgres"})
        source = source.replace("'", "''")
        with (self.data_directory / "postgresql.auto.conf").open("a") as file:
            file.write(f"primary_conninfo = '{source}'\nprimary_slot_name = '{self.name}'\n")
        signal_file = self.data_directory / "standby.signal"
        signal_file.touch()
        self.account.chown(signal_file)

    def is_primary(self) -> bool:
        """True when it answers, and is not in recovery."""
        try:
            return self.running and self.psql("select pg_is_in_recovery()", timeout_s=10.0) == "f"
        except (ConsoleError, subprocess.TimeoutExpired):
            return False

    def _spawn(self) -> PgCtlServer:
        self._daemon.start()
        return self._daemon

    def _running_server(self) -> PgCtlServer:
        return self._daemon
