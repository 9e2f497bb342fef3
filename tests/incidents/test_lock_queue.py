"""DDL waits behind a dump and everybody behind the DDL: the queue is named, with both."""

from __future__ import annotations

from pathlib import Path

from dba_console.demo.incidents.lock_queue import BEHIND, MIGRATION
from tests.background import wait_until
from tests.incidents.rehearsing import assert_seen, rehearse


def test_a_migration_behind_a_dump_is_named_with_the_queue_behind_it(tmp_path: Path) -> None:
    with rehearse("lock-queue", tmp_path) as queue:
        verdict = queue.until_raised()
        frame = queue.until_frame(lambda frame: (frame.locks.waiting or 0) > BEHIND, what="a queue of locks")
        (root, *_) = frame.locks.trees
        assert root.application == "pg_dump"
        assert any(waiter.application == MIGRATION for waiter in root.waiters)
        assert_seen(verdict)


def test_after_the_end_of_the_incident_nobody_waits(tmp_path: Path) -> None:
    with rehearse("lock-queue", tmp_path) as queue:
        queue.incident.end(queue.ground)
        wait_until(lambda: queue.ground.cluster.psql(_NOBODY_WAITS), what="the end of the queue")


_NOBODY_WAITS = (
    "select 1 where not exists (select from pg_stat_activity where application_name in ('pg_dump', 'migration'))"
)
