"""`kill -9` of agent, console, pooler and ssh at the begin and the end of each act of a cutover; the run is resumed.

Each is a cutover of its own, of the practice cluster under the load with a ledger. What failed is printed to stderr.
CUTOVER_KILLS: those to try, as `agent/stop/end` with blanks between.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from bench.figure import Figure
from dba_console.demo.practice_cluster import PracticeCluster
from tests.faults.cutover_kills import ACTS, Kill, Trials, supervised
from tests.sshd import sshd

VICTIMS = ("agent", "pooler", "console", "ssh")
SMOKE = (Kill("agent", "promote", "end"), Kill("pooler", "pause", "end"))


def kills() -> Iterator[Kill]:
    """All of them; a victim at a time, so that one that is weak shows."""
    if wanted := os.environ.get("CUTOVER_KILLS"):
        yield from (Kill(*one.split("/")) for one in wanted.split())
        return
    for victim in VICTIMS:
        for act in ACTS:
            for when in ("begin", "end"):
                yield Kill(victim, act, when)


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory


def run(smoke: bool) -> list[Figure]:
    tried = list(SMOKE if smoke else kills())
    broken, asked = [], 0
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-", dir="/tmp")))
        ground = stack.enter_context(PracticeCluster())
        stack.enter_context(supervised(ground))
        over = stack.enter_context(sshd(_made(place / "ssh"))) if any(kill.victim == "ssh" for kill in tried) else None
        direct, remote = Trials(ground, _made(place / "direct")), Trials(ground, _made(place / "remote"), over)
        for kill in tried:
            trials = remote if kill.victim == "ssh" else direct
            try:
                ended = trials.cut_over(kill)
                trials.assert_whole(ended)
                assert ended.state == "done", ended
            except AssertionError as error:
                broken.append(str(kill))
                print(f"{kill}: {error}", file=sys.stderr, flush=True)
            else:
                asked += any(one.startswith("failed") for one in ended.asked)
        found = ground.verdict()
    text = f"{len(tried)} kills, a cutover each; {asked} asked whether to try again; {found.sentence()}"
    return [
        Figure("cutovers with something killed in them: not ended with one primary, its standbys and its clients",
               len(broken), "cutovers", 0, text),
        Figure("the same: acknowledged commits lost", len(found.lost), "commits", 0),
        Figure("the same: commits there twice", len(found.duplicated), "commits", 0),
    ]  # fmt: skip
