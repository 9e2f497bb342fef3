"""Every test here has directories of its own for sessions, sockets and configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agent.agents import environment


@pytest.fixture(autouse=True)
def own_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
