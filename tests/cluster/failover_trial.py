"""A practice cluster on which failovers are tried: one cluster for each test, whose primary ends in some way."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dba_console.demo.practice_cluster import Node, PracticeCluster
from tests.background import wait_until
from tests.cli.console import CompletedCommand, Console, own_console

RUNBOOK = Path(__file__).parents[2] / "runbooks/failover.md"
HOLD = "hold-the-clients-and-stop-the-old-primary"
DOWN, CUT_OFF, PROMOTE = "keep-the-old-primary-down", "cut-off-the-old-primary", "promote"
OVERRIDE = "go-on-although-something-is-unknown"
LATER = "can-the-old-primary-come-back=later"


@dataclass
class FailoverTrial:
    ground: PracticeCluster
    console: Console

    @property
    def db1(self) -> Node:
        return self.ground.nodes["db1"]

    @property
    def db2(self) -> Node:
        return self.ground.nodes["db2"]

    @property
    def db3(self) -> Node:
        return self.ground.nodes["db3"]

    def run(self, *answers: str, to: str = "db2", runbook: str = "failover") -> CompletedCommand:
        """The runbook without a terminal; an answer is STEP=TEXT."""
        given = [part for answer in answers for part in ("--confirm", answer)]
        dsn, environment = self.ground.nodes[to].dsn(), self.ground.environment
        with self.console.watching(dsn, **environment):
            return self.console.run(
                "runbook", "run", runbook, "--dsn", dsn, "--input", "cluster=demo", "--input", f"to={to}", "--yes",
                *given, "--plain", timeout=240, **environment,
            )  # fmt: skip

    def asked(self, *answers: str, to: str = "db2") -> tuple[str, CompletedCommand]:
        """Run up to the promotion; return the word to type."""
        done = self.run(*answers, to=to)
        words = re.findall(r"type `(\w+)`", done.out)
        assert done.code == 8 and words, done
        return words[-1], done

    def check(self, *, to: str = "db2") -> dict[str, dict[str, Any]]:
        done = self.console.run(
            "cluster", "check", "demo", "--to", to, "--failover", "--json", timeout=60, **self.ground.environment
        )
        [answer] = done.objects()
        return {one["id"]: one for one in answer["checks"]} | {"ready": answer["ready"]}

    def configure(self, old: str, new: str, *, count: int = -1) -> None:
        """Change the configuration, for this and later commands."""
        text = self.ground.config_file.read_text()
        assert old in text, text
        self.ground.config_file.write_text(text.replace(old, new, count))

    def configure_more(self, section: str) -> None:
        with self.ground.config_file.open("a") as file:
            file.write(f"\n{section}\n")

    def configure_clients_of_both(self) -> None:
        """Clients that connect to whichever of db1 and db2 accepts writes, db1 first."""
        nodes = (self.db1, self.db2)
        hosts, ports = (
            ",".join(map(str, each)) for each in zip(*((one.socket_directory, one.port) for one in nodes), strict=True)
        )
        route = f"host={hosts} port={ports} user=postgres dbname=shop target_session_attrs=read-write"
        text = self.ground.config_file.read_text()
        self.ground.config_file.write_text(re.sub(r"(?m)^clients = .*$", f'clients = "{route}"', text))

    def start_command(self, node: Node) -> str:
        command = f"{node.binaries.program('pg_ctl')} -D {node.data_directory} -w -l /dev/null start"
        return f"runuser -u {node.account.name} -- {command}" if node.account.switched else command

    def interrupt_cutover(self) -> None:
        """A cutover to db2 whose agent is killed while clients are held; the primary is killed then too."""
        document = self.ground.directory / "cutover.md"
        with own_console() as console, console.watching(self.db1.dsn(), **self.ground.environment) as agent:
            block = f'```sh {{run host role=monitor #fault title="fault"}}\nkill -9 {agent.process.pid}\n```\n\n'
            action = "```toml {action cutover-stop "
            text = (RUNBOOK.parent / "cutover.md").read_text()
            assert action in text
            document.write_text(text.replace(action, block + action, 1))
            console.run(
                "runbook", "run", str(document), "--dsn", self.db1.dsn(), "--input", "cluster=demo", "--input",
                "to=db2", "--yes", "--confirm", f"{HOLD}=yes", "--confirm", "promote=db2", "--plain", timeout=120,
                **self.ground.environment,
            )  # fmt: skip
            agent.process.wait(60)
        self.db1.kill()

    def run_with(self, before: str, script: str, *answers: str, to: str = "db2") -> CompletedCommand:
        """The runbook with a script that runs right before an action."""
        document = self.ground.directory / "failover.md"
        block = f'```sh {{run host role=monitor #fault title="fault"}}\n{script}\n```\n\n'
        action = f"```toml {{action {before} "
        text = RUNBOOK.read_text()
        assert action in text
        document.write_text(text.replace(action, block + action, 1))
        return self.run(*answers, runbook=str(document), to=to)

    def detach(self, node: Node) -> None:
        """The standby receives nothing more."""
        node.psql("alter system set primary_conninfo = ''")
        node.psql("select pg_reload_conf()")
        wait_until(lambda: not node.psql("select 1 from pg_stat_wal_receiver"))

    def assert_clients_write(self) -> None:
        """A commit of the load arrives, and no acknowledged one is missing."""
        before = self.ground.verdict().acknowledged
        wait_until(lambda: self.ground.verdict().acknowledged > before, what="a commit of the load")
        assert self.ground.verdict().all_kept, self.ground.verdict().sentence()

    def primaries(self) -> list[str]:
        return [name for name, node in self.ground.nodes.items() if node.is_primary()]


@contextmanager
def failover_trial() -> Iterator[FailoverTrial]:
    with PracticeCluster() as ground, own_console() as console:
        yield FailoverTrial(ground, console)


def unwrapped(text: str) -> str:
    return re.sub(r"\s+", " ", text)
