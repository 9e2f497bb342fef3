"""A standby as the target, through a real agent: what it is, how far behind, and that it was promoted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dba_console.demo.temporary_server import Cluster
from dba_console.watch.frames.model import Frame
from dba_console.watch.samples.sample import PARTS
from tests.agent.agents import INTERVAL_S, agent
from tests.clusters import FreshCluster
from tests.standbys import copied_standby


@pytest.mark.parametrize("major", [14, 18])
def test_a_standby_is_read_through_its_promotion(major: int, fresh_cluster: FreshCluster, tmp_path: Path) -> None:
    primary = fresh_cluster(major=major)
    with streaming_standby(primary) as standby, agent(standby.dsn(), tmp_path) as running:
        watch = running.watch()
        before = watch.until(streaming, what="a streaming standby")
        assert before.target.role == before.replication.role == "standby"
        assert (before.replication.lag_bytes, before.replication.lag_s) == (0, 0.0)
        assert [slot.name for slot in before.replication.slots] == ["downstream"]
        assert before.target.system_identifier == primary.psql("select system_identifier from pg_control_system()")
        assert unexpected_log_lines(standby) == []
        standby.psql("select pg_promote()")
        promoted = len(watch.samples)
        after = watch.until(lambda frame: (frame.target.role, frame.target.timeline) == ("primary", 2))
        changed = watch.event("server.changed")
        ticks = len(watch.samples) - promoted
    assert after.replication.role == "primary"
    assert changed.text == "the standby was promoted: it is a primary now"
    assert ticks < PARTS["pg.server"].every_s / INTERVAL_S, "it is asked who it is at once, not when its turn comes"
    assert unexpected_log_lines(standby) == []


def streaming(frame: Frame) -> bool:
    known = frame.replication.receiver_status == "streaming" and frame.replication.lag_bytes == 0
    return known and frame.target.timeline == 1


@contextmanager
def streaming_standby(primary: Cluster) -> Iterator[Cluster]:
    """A streaming standby with a slot of its own."""
    with copied_standby(primary) as standby:
        standby.psql("select pg_create_physical_replication_slot('downstream', true)")
        yield standby


def unexpected_log_lines(cluster: Cluster) -> list[str]:
    return [line for line in cluster.log_text().splitlines() if "ERROR" in line or "WARNING" in line]
