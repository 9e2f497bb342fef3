"""Story S1: I/O stalls while page cache is reclaimed: detected in time, handled by `cache-drop`. Root only."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dba_console.watch.frames.model import Frame
from tests.requirements import require_root
from tests.runbooks.runs import AS_ASKED, WatchedServer, assert_detected, incident, open_rules

pytestmark = pytest.mark.alone
RUNBOOK, INCIDENT = "cache-drop", "reclaim-stall"
CHAIN = {"io-stalled", "reclaim-stall"}
COUNT, ANNOUNCE, DROP, AFTER = "what-does-the-kernel-count", "announce-it", "drop-it", "did-i-o-come-back"
STARTED = "select pg_postmaster_start_time()"


@pytest.fixture(scope="module")
def watched(disk_directory: Path) -> Iterator[WatchedServer]:
    """On a real disk: what is read from memory is not cached."""
    require_root()
    if not os.access("/proc/sys/vm/drop_caches", os.W_OK):
        pytest.skip("this kernel lets nobody drop its caches here")
    disk_directory.chmod(0o711)  # the server's user passes through
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(disk_directory))
        with incident(INCIDENT, durable=True) as made:
            yield made


def test_on_a_host_without_a_stall_it_does_not_start(watched: WatchedServer) -> None:
    message = {"reclaim-stall", "memory-reclaim"}
    watched.frame(lambda now: now.judged and not message & open_rules(now), "a host that reclaims nothing")
    walk = watched.run_headless(RUNBOOK, f"{COUNT}=stall", f"{ANNOUNCE}=ticket", f"{DROP}={watched.target}")
    assert walk.code == 7, walk.text
    assert walk.records("run.started") == [] and walk.done() == []


def test_a_stall_is_named_with_its_causes_and_recovered_io_is_detected_after_the_drop(watched: WatchedServer) -> None:
    started = watched.sql(STARTED)
    assert_detected(watched.cause_and_judge())
    frame = watched.frame(lambda frame: (frame.connections.used or 0) > 220, "connections that fill")
    assert rules_in_stall_chain(frame) >= CHAIN

    def it_ends() -> str:
        """The stall of the demo does not mind what is dropped: it ends here, as a real one would with the drop."""
        watched.end()
        return AS_ASKED

    walk = watched.run_interactively(
        RUNBOOK,
        {"start": "yes", COUNT: "stall", "manual": "ticket 4711", f"{DROP}/action": it_ends, AFTER: "enough"},
        look="1s",
    )
    assert walk.code == 0, walk.text
    assert walk.done() == [COUNT, DROP]
    assert [asked["expects"] for asked in walk.questions if asked.get("block") == f"{DROP}/action"] == [watched.target]
    assert "pgsteal_file +" in walk.output
    (dropped,) = walk.records("block.result", DROP)
    assert "of cache dropped in" in dropped.text
    watched.frame(lambda frame: (frame.connections.active or 99) < 20, "commits that return")
    assert watched.sql(STARTED) == started


def rules_in_stall_chain(frame: Frame) -> set[str]:
    """The rules in the chain of the finding that reclaim-stall is the root of."""
    return {one.partition(":")[0] for row in frame.findings if row.rule == INCIDENT for one in row.chain}
