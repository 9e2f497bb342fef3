"""The operator's own commands of a cutover: filled in, run without a shell, and their failure as a sentence."""

from __future__ import annotations

from typing import Any

from dba_console.clusters.node_host import failure_text, run_command
from dba_console.core.clock import SYSTEM
from dba_console.core.config import CommandConfig
from dba_console.core.short_command import CommandResult


def run(*argv: str, undo: bool = False, to: str = "db2", **more: Any) -> CommandResult:
    config = CommandConfig(run=["false"] if undo else list(argv), undo=list(argv) if undo else [], **more)
    return run_command(config, cluster="shop", from_="db1", to=to, undo=undo, clock=SYSTEM)


def test_names_are_substituted_and_no_shell_reads_them() -> None:
    ended = run("printf", "%s|", "{cluster}", "--from={from}", "{to}", to="db2; $(touch /tmp/x) {from}")
    assert ended.output == "shop|--from=db1|db2; $(touch /tmp/x) {from}|"
    assert failure_text("hook cron", ended) is None
    assert run("printf", "{to}", undo=True).output == "db2"


def test_a_failed_command_is_an_error_with_its_last_line_and_without_secrets() -> None:
    ended = run("sh", "-c", "echo first; printf 'password=hushhush \\033[2J' >&2; exit 3")
    assert failure_text("address vip", ended) == "address vip failed with exit code 3: password=******** ␛[2J"
    assert failure_text("address vip", run("sh", "-c", "exit 3")) == "address vip failed with exit code 3: exit code 3"
    assert "no such" in str(failure_text("address vip", run("/nonexistent/move-ip"))).lower()


def test_a_command_that_exceeds_its_timeout_is_killed() -> None:
    assert str(failure_text("hook cron", run("sleep", "60", timeout_s=0.1))).startswith("hook cron did not end in time")
