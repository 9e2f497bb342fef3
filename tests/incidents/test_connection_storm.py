"""One application opens connections until none is left, and is named before the last one is gone."""

from __future__ import annotations

from pathlib import Path

from dba_console.demo.incidents.connection_storm import APPLICATION, LEFT
from tests.incidents.rehearsing import assert_seen, rehearse


def test_a_storm_of_connections_is_named_within_five_seconds(tmp_path: Path) -> None:
    with rehearse("connection-storm", tmp_path) as storm:
        verdict = storm.until_raised()
        frame = storm.until_frame(lambda frame: (frame.connections.used or 0) >= 240, what="nearly every slot taken")
        assert frame.connections.used is not None and frame.connections.usable is not None
        assert frame.connections.usable - frame.connections.used <= LEFT
        assert frame.connections.by_application[0].name == APPLICATION
        assert_seen(verdict)
