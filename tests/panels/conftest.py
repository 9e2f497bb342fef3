"""Panels are laid out in local time: the tests hold the zone still."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from dba_console.watch.frames.model import Frame
from tests.build import busy_frame


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


@pytest.fixture
def frame() -> Frame:
    return busy_frame()
