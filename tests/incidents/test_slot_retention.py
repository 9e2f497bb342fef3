"""A slot without a reader, without root: no disk can be filled, so the slot itself is lost.

That it is named in time, and what is done then: `runbooks/test_slot_retention.py`.
"""

from __future__ import annotations

from pathlib import Path

from tests.incidents.unprivileged import demo_without_root


def test_without_root_the_loss_of_the_slot_is_reported(tmp_path: Path) -> None:
    done = demo_without_root(tmp_path, "--incident", "slot-retention", "--headless", "--for", "26s")
    assert done.returncode == 0, done.stderr
    assert "the slot is lost" in done.stdout
