"""Story S1, the real thing: I/O stands still, page cache is reclaimed, connections fill, and one sentence says so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dba_console.demo.incidents.page_cache import choose
from dba_console.demo.incidents.reclaim_stall import RECORDING, ReclaimStall
from dba_console.demo.rehearsal import recorded_verdict
from dba_console.frames.model import Frame
from tests.agent.running import environment
from tests.background import wait_until
from tests.incidents.rehearsing import assert_seen, rehearse

GIB = 1 << 30
CHAIN = {"io-stalled", "reclaim-stall"}


@pytest.mark.root
def test_io_stalled_by_reclaim_is_named_with_its_whole_chain(tmp_path: Path) -> None:
    with rehearse("reclaim-stall", tmp_path) as stall:
        cached = stall.watch.next_frame().memory.cached_bytes
        verdict = stall.until_raised()
        frame = stall.until_frame(lambda frame: (frame.connections.used or 0) > 220, what="connections that fill")
        assert cached is not None and frame.memory.cached_bytes is not None
        assert_seen(verdict)
        assert verdict.seen is not None
        assert set(rules_named(frame)) >= CHAIN
        stall.incident.end(stall.ground)
        stall.until_frame(lambda frame: (frame.connections.active or 99) < 20, what="commits that return")


def rules_named(frame: Frame) -> list[str]:
    """The rules in the chain of the finding that reclaim-stall is the root of."""
    return [one.partition(":")[0] for row in frame.findings if row.rule == "reclaim-stall" for one in row.chain]


@pytest.mark.root
def test_it_is_given_back_what_it_took(tmp_path: Path) -> None:
    before = choose()
    incident = ReclaimStall()
    with incident.site() as data_directory:
        assert data_directory is not None
    wait_until(lambda: str(data_directory.parent) not in Path("/proc/self/mountinfo").read_text())
    assert before.group is None or not before.group.exists()


def test_the_shipped_recording_names_it_in_time() -> None:
    verdict = recorded_verdict(RECORDING, ReclaimStall())
    assert verdict.in_time, verdict.sentence()
    assert [event.text for event in verdict.others] == []


def test_the_shipped_recording_is_small_and_tells_nothing_of_its_host() -> None:
    files = [path for path in RECORDING.iterdir() if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 400_000
    log = (RECORDING / "session.log").read_text()
    assert {line.split()[3] for line in log.splitlines()} == {"db2"}


def test_who_is_not_root_is_shown_the_recording_and_told_so(tmp_path: Path) -> None:
    # A user namespace without a mapping: nobody to this host's rules, yet able to read what root installed.
    unprivileged = ["unshare", "--user"] if os.geteuid() == 0 else []
    done = subprocess.run(
        [*unprivileged, sys.executable, "-m", "dba_console", "demo", "--incident", "reclaim-stall", "--headless"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        env={**os.environ, **environment(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "RECORDING" in done.stderr
    assert "recorded practice" in done.stdout
    assert "memory reclaim" in done.stdout
