"""One agent per target, also after one was killed."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dba_console.agent.target_lock import TargetLock, socket_path
from dba_console.core.errors import ConfigError


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DBA_CONSOLE_RUNTIME", str(tmp_path / "run"))
    return tmp_path / "run"


def test_a_second_agent_does_not_get_the_lock_and_is_given_its_owner() -> None:
    first, second = TargetLock("a"), TargetLock("a")
    assert first.acquire()
    assert not second.acquire()
    assert second.holder() == os.getpid()
    first.release()
    assert second.holder() is None
    assert second.acquire()
    second.release()


def test_a_caller_that_only_asks_does_not_keep_an_agent_from_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    lock = TargetLock("a")
    lock.path.touch()
    asking = os.open(lock.path, os.O_RDONLY)
    fcntl.flock(asking, fcntl.LOCK_SH)
    monkeypatch.setattr("time.sleep", lambda _: fcntl.flock(asking, fcntl.LOCK_UN))
    assert lock.acquire()
    assert TargetLock("a").holder() == os.getpid()
    lock.release()
    os.close(asking)


def test_locks_of_other_targets_do_not_interfere() -> None:
    first, other = TargetLock("a"), TargetLock("b")
    assert first.acquire()
    assert other.acquire()
    first.release()
    other.release()


def test_the_lock_of_a_killed_agent_is_released() -> None:
    code = (
        "from dba_console.agent.target_lock import TargetLock; TargetLock('a').acquire(); print(1, flush=True); input()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as agent:
        assert agent.stdout is not None
        agent.stdout.readline()
        lock = TargetLock("a")
        assert lock.holder() == agent.pid
        agent.kill()
        agent.wait()
        assert lock.acquire()
        lock.release()


def test_a_socket_path_that_is_too_long_is_refused_with_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DBA_CONSOLE_RUNTIME", "/tmp/" + "x" * 110)
    with pytest.raises(ConfigError, match="DBA_CONSOLE_RUNTIME"):
        socket_path("a")
