"""Cutovers with `kill -9` of agent, console, pooler, ssh, heartbeat or keeper at both ends of each act, then resumed.

Each kill has its own cutover of the practice cluster under the load with a ledger. Failures are printed to stderr.
CUTOVER_KILLS: the kills to try, as `agent/stop/end`, separated by spaces.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from bench.figure import Figure
from dba_console.demo.practice_cluster import PracticeCluster
from tests.faults.cutover_kills import STEPS_OF_ACTIONS, CutoverTrials, Kill, supervised
from tests.sshd import sshd

VICTIMS = ("agent", "pooler", "console", "ssh", "heartbeat", "keeper")
LIMITED: dict[str, Callable[[str, str], bool]] = {
    "ssh": lambda act, when: act != "show" and (act, when) != ("follow", "begin"),
    "heartbeat": lambda act, when: (
        act not in ("rejoin", "follow", "show") and (act, when) not in (("heartbeat", "begin"), ("report", "end"))
    ),
    "keeper": lambda act, when: (act, when) == ("show", "begin"),
}
"""Where there is one: a command over ssh up to the return of the old primary, a heartbeat between its two acts, a
keeper for the one command that is not an act of ours."""
SMOKE = (Kill("agent", "promote", "end"), Kill("pooler", "pause", "end"))


def kills() -> Iterator[Kill]:
    """Yield the kills to try, grouped by victim."""
    if wanted := os.environ.get("CUTOVER_KILLS"):
        yield from (Kill(*one.split("/")) for one in wanted.split())
        return
    for victim in VICTIMS:
        for act in STEPS_OF_ACTIONS:
            for when in ("begin", "end"):
                if victim not in LIMITED or LIMITED[victim](act, when):
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
        direct, remote = (
            CutoverTrials(ground, _made(place / "direct")),
            CutoverTrials(ground, _made(place / "remote"), over),
        )
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
    text = f"{len(tried)} kills, one cutover each; {asked} asked for a retry; {found.sentence()}"
    return [
        Figure("cutovers with a kill that did not end with one primary, its standbys and its clients",
               len(broken), "cutovers", 0, text),
        Figure("the same: acknowledged commits lost", len(found.lost), "commits", 0),
        Figure("the same: commits duplicated", len(found.duplicated), "commits", 0),
    ]  # fmt: skip
