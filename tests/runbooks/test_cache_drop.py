"""The runbook `cache-drop`, walked while I/O stands still and page cache is reclaimed. Root only."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.requirements import require_root
from tests.runbooks.walking import ASKED, Scene, incident, open_rules

BOOK, INCIDENT = "cache-drop", "reclaim-stall"
COUNT, ANNOUNCE, DROP, AFTER = "what-does-the-kernel-count", "announce-it", "drop-it", "did-i-o-come-back"
STARTED = "select pg_postmaster_start_time()"


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    require_root()
    if not os.access("/proc/sys/vm/drop_caches", os.W_OK):
        pytest.skip("this kernel lets nobody drop its caches here")
    with incident(INCIDENT) as made:
        made.calm()
        yield made


def test_on_a_host_without_a_stall_it_is_not_begun(scene: Scene) -> None:
    said = {"reclaim-stall", "memory-reclaim"}
    scene.frame(lambda now: now.judged and not said & open_rules(now), "a host that reclaims nothing")
    walk = scene.headless(BOOK, f"{COUNT}=stall", f"{ANNOUNCE}=ticket", f"{DROP}={scene.target}")
    assert walk.code == 7, walk.text
    assert walk.records("run.started") == [] and walk.done() == []


def test_the_cache_is_dropped_in_a_stall_and_it_is_seen_that_i_o_came_back(scene: Scene) -> None:
    started = scene.sql(STARTED)
    scene.cause()
    scene.raised(INCIDENT)

    def it_ends() -> str:
        """The stall of the demo does not mind what is dropped: it ends here, as a real one would with the drop."""
        scene.end()
        return ASKED

    walk = scene.person(
        BOOK,
        {"start": "yes", COUNT: "stall", "manual": "ticket 4711", f"{DROP}/action": it_ends, AFTER: "cure",
         "which-cure": "none"},
        look="1s",
    )  # fmt: skip
    assert walk.code == 0, walk.text
    assert walk.done() == [COUNT, DROP]
    assert "pgsteal_file +" in walk.output
    (dropped,) = walk.records("block.result", DROP)
    assert "of cache dropped in" in dropped.text
    scene.cleared(INCIDENT)
    assert scene.sql(STARTED) == started
