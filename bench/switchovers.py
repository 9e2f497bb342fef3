"""Three methods to change the primary of a pair: a bare script, repmgr, and the console's runbook."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from bench.console import PROGRAM
from bench.pair import NAME, Pair
from dba_console.core.errors import ConsoleError
from dba_console.demo.child_processes import end_child, start_child
from dba_console.demo.server_account import clean_environment

Steps = dict[str, float]
"""Seconds of each step of a method, in order."""


class _Watch:
    """Measure successive steps."""

    def __init__(self) -> None:
        self.steps: Steps = {}
        self._last = time.monotonic()

    def done(self, step: str) -> None:
        now = time.monotonic()
        self.steps[step] = now - self._last
        self._last = now


def bare(pair: Pair, old: str, new: str) -> Steps:
    """Switch over like a DBA's script, by the minimum of commands. No gate, no check, no fence."""
    watch = _Watch()
    pair.psql(old, "checkpoint")
    watch.done("checkpoint")
    pair.pooler(f"pause {NAME}")
    watch.done("pause")
    pair.pg_ctl(old, "stop", "-m", "fast")
    watch.done("stop")
    pair.psql(new, "select pg_promote(true, 60)")
    watch.done("promote")
    pair.pooler_leads_to(new)
    pair.pooler("reload")
    watch.done("repoint")
    pair.pooler(f"resume {NAME}")
    watch.done("resume")
    pair.follow(old, new)
    pair.pg_ctl(old, "start")
    watch.done("old primary back")
    return watch.steps


class Repmgr:
    """`repmgr standby switchover` on the pair, over a separate sshd on the loopback interface as the servers' user.

    Its metadata is created before each switchover and dropped after it, so that the other methods find an unmanaged
    pair. It leaves the clients to the operator: the pooler is repointed right after it.
    """

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self._place = pair.base / "repmgr"
        self._place.mkdir(mode=0o700)
        self._sshd: subprocess.Popen[bytes] | None = None
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = int(probe.getsockname()[1])

    def __enter__(self) -> Self:
        for name in ("host_key", "key"):
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self._place / name)], check=True
            )  # fmt: skip
        shutil.copy(self._place / "key.pub", self._place / "authorized_keys")
        (self._place / "sshd_config").write_text(
            f"Port {self._port}\nListenAddress 127.0.0.1\nHostKey {self._place}/host_key\nPidFile none\nUsePAM no\n"
            f"StrictModes no\nAuthorizedKeysFile {self._place}/authorized_keys\nPasswordAuthentication no\n"
        )
        for number, name in enumerate(self._pair.names, 1):
            self._write_conf(number, name)
        for path in (self._place, *self._place.iterdir()):
            self._pair.account.chown(path)
        found = shutil.which("sshd", path="/usr/sbin:/sbin:/usr/bin")
        if found is None:
            raise ConsoleError("sshd is not installed")
        self._sshd = start_child(
            [found, "-D", "-e", "-f", str(self._place / "sshd_config")],
            environment=clean_environment(str(self._place)), spawn=self._pair.account.spawn,
            output=(self._place / "sshd.log").open("ab"),
        )  # fmt: skip
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._sshd is not None:
            end_child(self._sshd)

    def switch(self, old: str, new: str) -> Steps:
        """Switch over once. Raises ConsoleError with repmgr's message on failure."""
        self._pair.forget_upstream(old)
        self._pair.psql(old, "create database repmgr")
        self._run(old, "primary", "register")
        self._pair.await_standbys()
        self._run(new, "standby", "register", "--force", "--upstream-node-id", self._number(old))
        watch = _Watch()
        self._run(new, "standby", "switchover")
        watch.done("switchover")
        self._pair.pooler_leads_to(new)
        self._pair.pooler("reload")
        watch.done("repoint")
        return watch.steps

    def forget(self, primary: str) -> None:
        """Drop repmgr's metadata."""
        self._pair.psql(primary, "drop database repmgr with (force)")

    def _number(self, node: str) -> str:
        return str(self._pair.names.index(node) + 1)

    def _write_conf(self, number: int, name: str) -> None:
        cluster = self._pair.nodes[name]
        options = (
            f"-q -p {self._port} -i {self._place}/key -o BatchMode=yes -o StrictHostKeyChecking=no "
            f"-o UserKnownHostsFile={self._place}/known_hosts"
        )
        (self._place / f"{name}.conf").write_text(
            f"node_id={number}\nnode_name='{name}'\nconninfo='{self._pair.dsn(name, 'repmgr')} connect_timeout=5'\n"
            f"data_directory='{cluster.data_directory}'\npg_bindir='{cluster.binaries.directory}'\n"
            f"repmgr_bindir='{cluster.binaries.directory}'\nssh_options='{options}'\n"
            f"pg_ctl_options='-l {cluster.log_path}'\n"
        )

    def _run(self, node: str, *arguments: str) -> None:
        cluster = self._pair.nodes[node]
        command = [str(cluster.binaries.directory / "repmgr"), "-f", str(self._place / f"{node}.conf"), *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=180, check=False, cwd="/",
            env=clean_environment(str(self._place)), **self._pair.account.spawn,
        )  # fmt: skip
        with (self._place / "repmgr.log").open("a") as log:
            log.write(done.stdout + done.stderr)
        if done.returncode != 0:
            raise ConsoleError(f"repmgr {' '.join(arguments)} failed: {done.stderr.strip()}")


CONFIRMED = {"hold-the-clients-and-stop-the-old-primary": "yes", "promote": "{to}"}
"""Confirmations of the steps of the runbook `cutover`."""


def ours(to: str) -> Steps:
    """Run the runbook `cutover` without a terminal, confirmed by arguments; return the seconds of each block.

    The configuration is that of `$XDG_CONFIG_HOME`. Raises ConsoleError with the run's last lines on failure.
    """
    done = subprocess.run(cutover_command(to), capture_output=True, text=True, timeout=300, check=False)
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0:
        last = [str(one.get("text", "")) for one in events[-6:]]
        raise ConsoleError(f"the cutover to {to} ended with exit code {done.returncode}: {last} {done.stderr.strip()}")
    return block_seconds(events)


def cutover_command(to: str, cluster: str = NAME) -> list[str]:
    given = [PROGRAM, "runbook", "run", "cutover", "--input", f"cluster={cluster}", "--input", f"to={to}"]
    confirmed = [part for step, text in CONFIRMED.items() for part in ("--confirm", f"{step}={text.format(to=to)}")]
    return [*given, "--yes", "--json", *confirmed]


def block_seconds(events: list[dict[str, Any]]) -> Steps:
    """Return the seconds from the first to the last journal record of each block."""
    first: dict[str, float] = {}
    last: dict[str, float] = {}
    for event in events:
        if event["event"] == "record" and event.get("block"):
            at = datetime.fromisoformat(event["at"].replace("Z", "+00:00")).timestamp()
            last[event["block"]] = at
            first.setdefault(event["block"], at)
    return {block: last[block] - first[block] for block in first}
