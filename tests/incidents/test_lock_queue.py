"""DDL waits behind a dump and everybody behind the DDL: the queue is named, with both."""

from __future__ import annotations

from pathlib import Path

from dba_console.demo.incidents.lock_queue import BEHIND, MIGRATION
from dba_console.samples.event import Event
from tests.incidents.rehearsing import assert_seen, rehearse


def test_a_migration_behind_a_dump_is_named_with_the_queue_behind_it(tmp_path: Path) -> None:
    with rehearse("lock-queue", tmp_path) as queue:
        verdict = queue.until_raised()
        frame = queue.until_frame(lambda frame: (frame.locks.waiting or 0) > BEHIND, what="a queue of locks")
        (root, *_) = frame.locks.trees
        assert root.application == "pg_dump"
        assert any(waiter.application == MIGRATION for waiter in root.waiters)
        assert_seen(verdict)


def test_after_the_end_of_the_incident_nobody_waits_and_the_finding_clears(tmp_path: Path) -> None:
    with rehearse("lock-queue", tmp_path) as queue:
        raised = queue.until_raised().seen
        assert raised is not None
        queue.incident.end(queue.ground)
        queue.until_frame(lambda frame: frame.locks.waiting == 0, what="an end of waiting")
        queue.until_frame(lambda _: any(_clears(event, raised) for event in queue.watch.events), what="its clearing")


def _clears(event: Event, raised: Event) -> bool:
    return event.kind == "finding.cleared" and event.details["id"] == raised.details["id"]
