"""A primary, two standbys and a PgBouncer, each on a host of its own (`hosts.py`), reached by ssh; and three loads.

The loads keep ledgers of acknowledged commits: `pooled` through the pooler; `around` from the same host to whichever
node accepts writes; `local` on the host of the first primary, through its socket. Data directories lie side by side
below `base`, so that whoever measures can read those of a host that is gone.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from bench.hosts import Host, Network
from dba_console.clusters.wal_files import segment_name
from dba_console.demo.binaries import NEEDED, Binaries, find_binaries
from dba_console.demo.child_processes import end_child, start_child
from dba_console.demo.cleanup_process import CleanupProcess
from dba_console.demo.ledger import LedgerVerdict, ledger_verdict, start_ledger
from dba_console.demo.pooler import Pooler, find_pgbouncer
from dba_console.demo.practice_cluster import Node
from dba_console.demo.server_account import Account, clean_environment
from dba_console.demo.temporary_server import PID_FILE, PgCtlServer, Settings, StartedInBlock, conninfo
from tests.background import wait_until
from tests.requirements import require_tool

NAME = "shop"
NODES = ("db1", "db2", "db3")
POOLER, CLIENTS = "pool", "app"
ROLE = "shop_web"
SILENCE = "15s"
"""wal_receiver_timeout and wal_sender_timeout: a minute, as is usual, would make each vanished host last a minute."""
LOADS = {"pooled": (1, 4, 40.0), "around": (101, 2, 10.0), "local": (201, 1, 5.0)}
"""Number of the first client, clients, commits per second."""
SETTINGS: Settings = {
    "max_connections": 100, "shared_buffers": "32MB", "wal_level": "replica", "wal_log_hints": "on",
    "max_wal_senders": 10, "max_replication_slots": 10, "wal_keep_size": "128MB", "max_wal_size": "512MB",
    "archive_mode": "on", "wal_retrieve_retry_interval": "500ms", "checkpoint_timeout": "5min",
    "wal_receiver_timeout": SILENCE, "wal_sender_timeout": SILENCE, "min_wal_size": "80MB",
}  # fmt: skip
_TRUST = "host all all 10.77.0.0/24 trust\nhost replication all 10.77.0.0/24 trust\n"
STREAMING = "select count(*) from pg_stat_replication where state = 'streaming'"


class HostNode(Node):
    """A node whose server runs on `host`, however it is started."""

    def __init__(self, host: Host, base: Path, binaries: Binaries, settings: Settings) -> None:
        super().__init__(host.name, base, binaries, {**settings, "listen_addresses": host.address})
        self.host = host

    def tcp(self, dbname: str = NAME, **more: str | int) -> str:
        return conninfo({"host": self.host.address, "port": self.port, "user": "postgres", "dbname": dbname, **more})

    def follow(self, primary: Node) -> None:
        assert isinstance(primary, HostNode)
        source = conninfo({"host": primary.host.address, "port": primary.port, "user": "postgres"})
        with (self.data_directory / "postgresql.auto.conf").open("a") as file:
            file.write(f"primary_conninfo = '{source}'\nprimary_slot_name = '{self.name}'\n")
        (self.data_directory / "standby.signal").touch()
        self.account.chown(self.data_directory / "standby.signal")

    def set(self, name: str, value: str | None) -> None:
        """Change a setting of the running server, and wait until it has read it."""
        self.psql(f"alter system {'reset ' + name if value is None else f'set {name} = ' + _literal(value)}")
        loaded = "select pg_conf_load_time()"
        before = self.psql(loaded)
        self.psql("select pg_reload_conf()")
        wait_until(lambda: self.psql(loaded) != before, what=f"{name} of {self.name}")

    def control_value(self, label: str) -> str:
        found = re.search(rf"^{label}:\s+(.*)$", self.run("pg_controldata", str(self.data_directory)), re.M)
        assert found is not None, label
        return found[1]

    def end_of_wal(self) -> int:
        """The end of the valid WAL in the stopped server's directory, in bytes from 0/0."""
        start, timeline = (
            self.control_value(f"Latest checkpoint's {what}") for what in ("REDO location", "TimeLineID")
        )
        first = segment_name(int(timeline), position(start))
        last = max(path.name for path in (self.data_directory / "pg_wal").glob(first[:8] + "?" * 16))
        done = subprocess.run(
            [str(self.binaries.program("pg_waldump")), "-p", f"{self.data_directory}/pg_wal", "-s", start, "-q",
             first, last],
            capture_output=True, text=True, check=False, cwd="/", env=clean_environment(), **self.account.spawn,
        )  # fmt: skip
        if (found := re.search(r"error in WAL record at \S+: .* at ([0-9A-F]+/[0-9A-F]+)", done.stderr)) is not None:
            return position(found[1])
        missing = re.search(r"could not find file \"[0-9A-F]{8}([0-9A-F]{8})([0-9A-F]{8})\"", done.stderr)
        assert missing is not None, done.stderr
        return (int(missing[1], 16) << 32) + (int(missing[2], 16) << 24)

    def forked_at(self, timeline: int) -> int | None:
        """Where `timeline` left the one before it, in bytes from 0/0."""
        path = self.data_directory / "pg_wal" / f"{timeline:08X}.history"
        lines = [line for line in path.read_text().splitlines() if line.strip()] if path.exists() else []
        return position(lines[-1].split("\t")[1]) if lines else None

    def _spawn(self) -> PgCtlServer:
        with self.host.inside():
            return super()._spawn()


class HostPooler(Pooler):
    """PgBouncer on a host of its own, reached by TCP."""

    def __init__(self, host: Host, program: str, directory: Path, account: Account) -> None:
        super().__init__(program, directory, account, ("postgres", ROLE))
        self.host = host

    def dsn(self, *, user: str = "postgres", dbname: str = "pgbouncer", **more: str | int) -> str:
        return conninfo({"host": self.host.address, "port": 6432, "user": user, "dbname": dbname, **more})

    def launch(self) -> None:
        text = self.config.read_text().replace("listen_addr =\n", f"listen_addr = {self.host.address}\n")
        self.config.write_text(text)
        with self.host.inside():
            super().launch()

    def lead_to(self, node: HostNode) -> None:
        """What an operator does by hand."""
        text = re.sub(
            rf"(?m)^{NAME} = .*$", f"{NAME} = host={node.host.address} port={node.port}", self.config.read_text()
        )
        self.config.write_text(text)


class _Place:
    """Where the pooler leads to."""

    def __init__(self, node: HostNode) -> None:
        self.socket_directory, self.port = node.host.address, node.port


class Trio(StartedInBlock):
    """`with Trio() as trio:` runs it. `settings` are those of all nodes, `own` those of single ones."""

    def __init__(self, settings: Settings | None = None, own: Mapping[str, Settings] | None = None) -> None:
        self._stack = ExitStack()
        self.base = Path(tempfile.mkdtemp(prefix="fo-", dir="/tmp"))
        self.base.chmod(0o711)
        self._stack.callback(partial(shutil.rmtree, self.base, ignore_errors=True))
        self.network = Network((*NODES, POOLER, CLIENTS))
        self.archive, self.config_file = self.base / "archive", self.base / "config.toml"
        self._settings, self._own = {**SETTINGS, **(settings or {})}, own or {}
        self.nodes: dict[str, HostNode] = {}
        self._loads: list[subprocess.Popen[bytes]] = []

    def _set_up(self) -> None:
        self._stack.enter_context(self.network)
        hosts = self.network.hosts
        binaries = find_binaries([*NEEDED, "pg_ctl", "pg_rewind", "pg_waldump"])
        kept = f"{self.archive}/%f"
        copy = f"cmp -s %p {kept} || {{ cp %p {kept}.part && mv {kept}.part {kept}; }}"
        for name in NODES:
            settings = {**self._settings, "archive_command": copy, **self._own.get(name, {})}
            self.nodes[name] = HostNode(hosts[name], self.base / name, binaries, settings)
        db1 = self.nodes["db1"]
        program = find_pgbouncer() or require_tool("pgbouncer")
        self.pooler = HostPooler(hosts[POOLER], program, self.base / "pooler", db1.account)
        pid_files = [*(node.data_directory / PID_FILE for node in self.nodes.values()), self.pooler.pid_file]
        self._stack.callback(CleanupProcess(pid_files, [self.base]).release)
        self.archive.mkdir()
        db1.account.chown(self.archive)
        db1.initdb("--no-sync")
        with (db1.data_directory / "pg_hba.conf").open("a") as file:
            file.write(_TRUST)
        for name in ("db2", "db3"):
            self.nodes[name].copy_from(db1)
            self.nodes[name].follow(db1)
        for node in self.nodes.values():
            node.start()
            if node is db1:
                for name in ("db2", "db3"):
                    db1.psql(f"select pg_create_physical_replication_slot('{name}', true)")
                db1.psql(f"create role {ROLE} login")
                db1.psql(f"create database {NAME} owner {ROLE}")
                db1.psql("create table probe (node text, at timestamptz default now())")
        self.pooler.start(NAME, _Place(db1))
        self._start_ssh()
        self._start_loads()
        self.write_config()
        wait_until(lambda: db1.psql(STREAMING) == "2", what="two standbys that stream")

    def close(self) -> None:
        for load in self._loads:
            end_child(load)
        self._stack.close()

    # -- loads ---------------------------------------------------------------------------------------------------

    def _start_loads(self) -> None:
        everywhere: dict[str, str | int] = {
            "host": ",".join(node.host.address for node in self.nodes.values()),
            "port": ",".join(str(node.port) for node in self.nodes.values()),
            "user": ROLE, "dbname": NAME, "target_session_attrs": "read-write", "connect_timeout": 2,
        }  # fmt: skip
        db1 = self.nodes["db1"]
        routes = {
            "pooled": (CLIENTS, self.pooler.dsn(user=ROLE, dbname=NAME)),
            "around": (CLIENTS, conninfo(everywhere)),
            "local": ("db1", db1.dsn(user=ROLE, dbname=NAME)),
        }
        for name, (host, dsn) in routes.items():
            first, clients, rate = LOADS[name]
            with self.network.hosts[host].inside():
                load = start_ledger(self.ledger(name), dsn, clients=clients, rate_per_s=rate, first=first)
            self._loads.append(load)
            wait_until(lambda name=name: self.acknowledged(name), what=f"a commit of the load {name}")  # type: ignore[misc]

    def ledger(self, load: str) -> Path:
        return self.base / f"ledger-{load}"

    def acknowledged(self, load: str = "pooled") -> int:
        return sum(path.read_text().count("acked") for path in self.ledger(load).glob("client-*.ledger"))

    def more_commits(self, count: int = 10, load: str = "pooled", timeout_s: float = 30.0) -> None:
        before = self.acknowledged(load)
        wait_until(lambda: self.acknowledged(load) >= before + count, timeout_s, what=f"{count} commits of {load}")

    def verdicts(self, primary: HostNode) -> dict[str, LedgerVerdict]:
        dsn = primary.dsn(dbname=NAME)
        return {name: ledger_verdict(self.ledger(name), dsn) for name in LOADS}

    # -- hosts ---------------------------------------------------------------------------------------------------

    def power_off(self, name: str) -> None:
        self.network.cut(name)
        self.network.hosts[name].power_off()

    def kill_server(self, name: str) -> None:
        """The server ends as with the OOM killer; its host and what else runs there go on."""
        node = self.nodes[name]
        node.kill()

    def _start_ssh(self) -> None:
        place = self.base / "ssh"
        (place / "bin").mkdir(parents=True, mode=0o700)
        for key in ("host", "client"):
            command = [require_tool("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-f", str(place / key)]
            subprocess.run(command, check=True)
        shutil.copy(place / "client.pub", place / "authorized")
        Path("/run/sshd").mkdir(exist_ok=True)
        known, config = "", ""
        for name in (*NODES, POOLER):
            address = self.network.hosts[name].address
            known += f"{address} {(place / 'host.pub').read_text()}"
            config += f"Host {name}\n  HostName {address}\n"
            (place / f"{name}.conf").write_text(
                f"ListenAddress {address}\nPort 22\nHostKey {place}/host\nPidFile none\nUsePAM no\nStrictModes no\n"
                f"AuthorizedKeysFile {place}/authorized\nPasswordAuthentication no\nMaxSessions 20\nSetEnv SHLVL=1\n"
            )
            self._sshd(place, name)
        (place / "known").write_text(known)
        (place / "config").write_text(
            f"{config}Host *\n  User root\n  IdentityFile {place}/client\n  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {place}/known\n  GlobalKnownHostsFile /dev/null\n"
        )
        wrapper = place / "bin" / "ssh"
        wrapper.write_text(f'#!/bin/sh\nexec {require_tool("ssh")} -F {place}/config "$@"\n')
        wrapper.chmod(0o755)

    def _sshd(self, place: Path, name: str) -> None:
        with self.network.hosts[name].inside(), (place / "log").open("ab") as log:
            process = start_child([require_tool("sshd"), "-D", "-e", "-f", str(place / f"{name}.conf")], output=log)
        self._stack.callback(partial(end_child, process))

    @property
    def environment(self) -> dict[str, str]:
        """What commands need to find the cluster and its hosts."""
        return {"DBA_CONSOLE_CONFIG": str(self.config_file), "PATH": f"{self.base}/ssh/bin:{os.environ['PATH']}"}

    def write_config(self, *, data_directory: bool = True, extra: str = "") -> None:
        """Write the console's configuration; `extra` are more lines of it."""
        lines = [f"[clusters.{NAME}]", f"clients = {_toml(self.pooler.dsn(user=ROLE, dbname=NAME))}"]
        for name, node in self.nodes.items():
            lines += [f"[clusters.{NAME}.nodes.{name}]", f"dsn = {_toml(node.tcp())}", 'control = "pg_ctl"']
            lines += [f'ssh = "{name}"', f"bin_directory = {_toml(str(node.binaries.directory))}"]
            lines += [f"data_directory = {_toml(str(node.data_directory))}"] if data_directory else []
        lines += [f"[clusters.{NAME}.poolers.main]", f"dsn = {_toml(self.pooler.dsn())}", f'databases = ["{NAME}"]']
        lines += [f"config = {_toml(str(self.pooler.config))}", f'ssh = "{POOLER}"', extra]
        self.config_file.touch(mode=0o600)
        self.config_file.write_text("\n".join(lines) + "\n")


def position(lsn: str) -> int:
    high, low = lsn.strip().split("/")
    return (int(high, 16) << 32) + int(low, 16)


def _literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _toml(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
