"""A transaction left open on hot rows is named with who waits for it."""

from __future__ import annotations

from pathlib import Path

from dba_console.demo.incidents.idle_in_transaction import APPLICATION, BEHIND
from tests.incidents.rehearsing import assert_seen, rehearse


def test_a_forgotten_transaction_on_hot_rows_is_named_within_five_seconds(tmp_path: Path) -> None:
    with rehearse("idle-in-transaction", tmp_path) as idle:
        verdict = idle.until_raised()
        frame = idle.until_frame(lambda frame: (frame.locks.waiting or 0) >= BEHIND, what="sessions behind it")
        (root, *_) = frame.locks.trees
        assert (root.application, root.state) == (APPLICATION, "idle in transaction")
        assert_seen(verdict)
