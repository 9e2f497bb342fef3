"""Story S1: I/O stands still while page cache is reclaimed: named in time, and walked by `cache-drop`. Root only."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dba_console.watch.frames.model import Frame
from tests.requirements import require_root
from tests.runbooks.runs import ASKED, Scene, assert_named, incident, open_rules

pytestmark = pytest.mark.alone
BOOK, INCIDENT = "cache-drop", "reclaim-stall"
CHAIN = {"io-stalled", "reclaim-stall"}
COUNT, ANNOUNCE, DROP, AFTER = "what-does-the-kernel-count", "announce-it", "drop-it", "did-i-o-come-back"
STARTED = "select pg_postmaster_start_time()"


@pytest.fixture(scope="module")
def scene(disk_directory: Path) -> Iterator[Scene]:
    """On a real disk: what is read from memory is not cached."""
    require_root()
    if not os.access("/proc/sys/vm/drop_caches", os.W_OK):
        pytest.skip("this kernel lets nobody drop its caches here")
    disk_directory.chmod(0o711)  # the server's user passes through
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(disk_directory))
        with incident(INCIDENT, durable=True) as made:
            yield made


def test_on_a_host_without_a_stall_it_does_not_start(scene: Scene) -> None:
    said = {"reclaim-stall", "memory-reclaim"}
    scene.frame(lambda now: now.judged and not said & open_rules(now), "a host that reclaims nothing")
    walk = scene.headless(BOOK, f"{COUNT}=stall", f"{ANNOUNCE}=ticket", f"{DROP}={scene.target}")
    assert walk.code == 7, walk.text
    assert walk.records("run.started") == [] and walk.done() == []


def test_a_stall_is_named_with_its_causes_and_recovered_io_is_detected_after_the_drop(scene: Scene) -> None:
    started = scene.sql(STARTED)
    assert_named(scene.named())
    frame = scene.frame(lambda frame: (frame.connections.used or 0) > 220, "connections that fill")
    assert chain_of_the_stall(frame) >= CHAIN

    def it_ends() -> str:
        """The stall of the demo does not mind what is dropped: it ends here, as a real one would with the drop."""
        scene.end()
        return ASKED

    walk = scene.person(
        BOOK,
        {"start": "yes", COUNT: "stall", "manual": "ticket 4711", f"{DROP}/action": it_ends, AFTER: "enough"},
        look="1s",
    )
    assert walk.code == 0, walk.text
    assert walk.done() == [COUNT, DROP]
    assert "pgsteal_file +" in walk.output
    (dropped,) = walk.records("block.result", DROP)
    assert "of cache dropped in" in dropped.text
    scene.frame(lambda frame: (frame.connections.active or 99) < 20, "commits that return")
    assert scene.sql(STARTED) == started


def chain_of_the_stall(frame: Frame) -> set[str]:
    """The rules in the chain of the finding that reclaim-stall is the root of."""
    return {one.partition(":")[0] for row in frame.findings if row.rule == INCIDENT for one in row.chain}
