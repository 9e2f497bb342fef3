"""Tests marked `alone` disturb or measure the host: no test of another worker or of another run runs at the same time.

Two file locks of the machine: each worker holds `host` while a test runs, shared, or exclusive for a test alone. It
locks `gate` first, so that a test that waits to be alone is not overtaken for ever.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.leftovers import disk_parent_directory
from tests.scheduling import is_pure


class HostLocks:
    """The locks of this process; taken before each test, outside of its time limit."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(mode=0o755, exist_ok=True)
        self._gate = os.open(directory / "gate", os.O_RDWR | os.O_CREAT, 0o644)
        self._host = os.open(directory / "host", os.O_RDWR | os.O_CREAT, 0o644)
        self._alone = False

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, object, object]:
        """Tests alone follow each other without letting others in between. Pure tests run at any time."""
        alone = item.get_closest_marker("alone") is not None
        if is_pure(item):
            return (yield)
        if not self._alone:
            self.acquire(alone=alone)
        self._alone = alone
        try:
            return (yield)
        finally:
            if not alone or nextitem is None or nextitem.get_closest_marker("alone") is None:
                self.release()
                self._alone = False

    def acquire(self, *, alone: bool) -> None:
        """Return when this test may run: together with others, or alone."""
        fcntl.flock(self._gate, fcntl.LOCK_EX)
        fcntl.flock(self._host, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(self._gate, fcntl.LOCK_UN)

    def release(self) -> None:
        fcntl.flock(self._host, fcntl.LOCK_UN)


def host_locks() -> HostLocks:
    return HostLocks(disk_parent_directory())
