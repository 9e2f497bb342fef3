"""A run's overhead between two acts: from the end of one to the start of the next, over ten trivial actions.

It consists of the records that are durable before the second act (result of the first, end of its step, start of the
next, preview, question, answer, intent), the question's round trip to a console, and the second check of the gate.
Measured with the command and `--yes`, and with a console that answers at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

from msgspec import Struct

from bench.console import own_directories
from bench.figure import Figure
from dba_console.actions import registry
from dba_console.actions.action import Action, ActionContext, ActionResult, Control
from dba_console.actions.action_preview import ActionPreview
from dba_console.agent import find_or_start
from dba_console.agent.client import AgentClient
from dba_console.agent.protocol import RunAnswer, RunBegin, RunViewMessage
from dba_console.runbooks.run_view import ENDED_STATES

ACTS = 10
GOAL_MS = 25.0
MODULE = "bench.run_overhead"
DSN = "host={} port=5999 dbname=down user=nobody"
"""Without a server, so that the agent reads and records little beside the run."""


class StampSettings(Struct, forbid_unknown_fields=True, frozen=True):
    file: str


class Stamp(Action):
    """An action that appends its start and end times to a file."""

    name: ClassVar[str] = "stamp"
    summary: ClassVar[str] = "Record the time."
    Settings: ClassVar[type[Struct]] = StampSettings
    needs_server: ClassVar[bool] = False
    acts_on_cluster: ClassVar[bool] = True

    def preview(self, settings: StampSettings, context: ActionContext) -> ActionPreview:
        return ActionPreview(text="the time is recorded", exact=f"append to {settings.file}")

    def act(
        self, settings: StampSettings, preview: ActionPreview, context: ActionContext, control: Control
    ) -> ActionResult:
        with open(settings.file, "a") as file:
            begun = time.monotonic_ns()
            file.write(json.dumps([begun, time.monotonic_ns()]) + "\n")
        return ActionResult(state="ok", text="recorded")

    def settle(self, settings: StampSettings, preview: ActionPreview, context: ActionContext) -> ActionResult:
        return ActionResult(state="unknown", text="no evidence")

    def undo(
        self, settings: StampSettings, data: Mapping[str, Any], context: ActionContext, control: Control
    ) -> ActionResult:
        return ActionResult(state="failed", text="nothing to undo")


PROSE = "What is done here, why it comes before the next step, and what to read when it fails. " * 6
SECRETS = """[clusters.shop.nodes.db1]
dsn = "host=db1 dbname=shop password=a-password-of-db1"
[clusters.shop.nodes.db2]
dsn = "host=db2 dbname=shop password=a-password-of-db2"
[clusters.shop.poolers.main]
dsn = "host=db1 port=6432 dbname=pgbouncer password=a-password-of-the-pooler"
"""
"""As in a real cluster: a run masks these passwords in all it shows and writes."""


def _book(*, together: bool = False) -> str:
    """Return a runbook with each act in its own step, or all in one, confirmed by one question."""
    head = '# Ten acts\n\n```toml {runbook}\nid = "ten"\n[inputs.file]\ntype = "path"\n```\n\n' + PROSE
    act = '```toml {action stamp confirm=ack undo=none}\nfile = "%(file)s"\n```\n'
    if together:
        acts = (act.replace(" confirm=ack", "") + "\n") * ACTS
        return f"{head}\n\n## All\n\n{PROSE}\n\n```toml {{confirm ack}}\n```\n\n{acts}"
    return head + "".join(f"\n\n## Step {number}\n\n{PROSE}\n\n{act}" for number in range(1, ACTS + 1))


def run(smoke: bool = False) -> list[Figure]:
    rounds = 1 if smoke else 5
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DISK")) as place, own_directories():
        config = Path(os.environ["XDG_CONFIG_HOME"]) / "dba-console" / "config.toml"
        config.parent.mkdir(parents=True)
        config.touch(0o600)
        config.write_text(SECRETS)
        sync = _sync_ms(Path(place))
        command = [gap for number in range(rounds) for gap in _headless(Path(place), number)]
        console = [gap for number in range(rounds) for gap in _attached(Path(place), number)]
        together = [gap for number in range(rounds) for gap in _attached(Path(place), number, together=True)]
    text = f"slowest {{:.1f}} ms, {rounds * (ACTS - 1)} blocks; a write with fdatasync takes {sync:.2f} ms here"
    return [
        Figure("a run's overhead between two acts, command with --yes, median", statistics.median(command), "ms",
               GOAL_MS, text.format(max(command))),
        Figure("the same, a console that answers at once", statistics.median(console), "ms", GOAL_MS,
               text.format(max(console))),
        Figure("the same, all acts in one step, confirmed by one question", statistics.median(together), "ms", GOAL_MS,
               text.format(max(together))),
    ]  # fmt: skip


def _sync_ms(place: Path) -> float:
    """Return the median milliseconds to write and sync one journal line."""
    taken = []
    with (place / "synced").open("ab", buffering=0) as file:
        for _ in range(50):
            begun = time.perf_counter()
            file.write(b"x" * 400)
            os.fdatasync(file.fileno())
            taken.append((time.perf_counter() - begun) * 1000)
    return statistics.median(taken)


def _gaps(file: Path) -> list[float]:
    """Return the milliseconds from the end of each act to the start of the next."""
    times = [json.loads(line) for line in file.read_text().splitlines()]
    if len(times) != ACTS:
        raise RuntimeError(f"only {len(times)} of {ACTS} acts were executed")
    return [(after[0] - before[1]) / 1e6 for before, after in pairwise(times)]


def _headless(place: Path, number: int) -> list[float]:
    book, file = place / "ten.md", place / f"headless-{number}"
    book.write_text(_book())
    command = [sys.executable, "-m", MODULE, "runbook", "run", str(book), "--dsn", DSN.format(place), "--yes"]
    subprocess.run([*command, "--input", f"file={file}"], check=True, stdout=subprocess.DEVNULL)
    return _gaps(file)


def _attached(place: Path, number: int, *, together: bool = False) -> list[float]:
    file = place / f"attached-{number}-{together}"
    with _client() as client:
        client.send(RunBegin(text=_book(together=together), source="ten.md", inputs={"file": str(file)}, mode="run"))
        answered = 0
        while True:
            message = client.receive(60.0)
            if not isinstance(message, RunViewMessage) or not message.yours:
                continue
            if message.view.state in ENDED_STATES:
                return _gaps(file)
            asked = message.view.question
            if asked is not None and message.may_answer and asked.id > answered:
                answered = asked.id
                text = "yes" if asked.kind == "start" else "y"
                client.send(RunAnswer(run=message.view.run, question=asked.id, text=text))


@contextlib.contextmanager
def _client() -> Iterator[AgentClient]:
    """Connect a console to the agent that the command started."""
    [socket] = Path(os.environ["DBA_CONSOLE_RUNTIME"]).glob("*.sock")
    client = AgentClient.connect(socket)
    try:
        yield client
    finally:
        client.close()


def _command() -> int:
    """Run the command, or the agent it starts, with the action registered."""
    registry._CLASS_PATHS["stamp"] = f"{MODULE}:Stamp"
    if len(sys.argv) > 1:
        from dba_console.__main__ import main

        find_or_start._COMMAND = [sys.executable, "-m", MODULE]
        return main()
    from dba_console.agent.__main__ import main as agent

    return agent()


if __name__ == "__main__":
    sys.exit(_command())
