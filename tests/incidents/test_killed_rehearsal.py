"""A rehearsal on a disk of its own that is killed leaves no mount, no file, no process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dba_console.demo.temporary_server import scratch_directory
from tests.agent.agents import environment
from tests.background import wait_until
from tests.processes import mentioned_by

pytestmark = pytest.mark.root


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A temporary directory that others than root may enter: the server runs as another user."""
    with tempfile.TemporaryDirectory(dir=scratch_directory()) as made:
        Path(made).chmod(0o755)
        yield Path(made)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_rehearsal_leaves_no_mount_file_or_process(
    number: signal.Signals, tmp_path: Path, scratch: Path
) -> None:
    command = [sys.executable, "-m", "dba_console", "demo", "--incident", "disk-filling", "--headless", "--for", "10m"]
    with subprocess.Popen(
        command, env={**os.environ, **environment(tmp_path), "TMPDIR": str(scratch)}, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    ) as demo:  # fmt: skip
        assert demo.stderr is not None
        message = ""
        while "the cause is present" not in message:
            message += (line := demo.stderr.readline())
            assert line, message
        assert str(scratch) in Path("/proc/self/mountinfo").read_text()
        demo.send_signal(number)
        demo.stderr.read()
    wait_until(lambda: mentioned_by(scratch) == [], 120, what=f"the end of everything that mentions {scratch}")
    assert str(scratch) not in Path("/proc/self/mountinfo").read_text()
    assert list(scratch.iterdir()) == []


def test_a_demo_too_short_for_its_incident_and_a_disk_that_is_not_kept_are_reported(
    tmp_path: Path, scratch: Path
) -> None:
    command = [sys.executable, "-m", "dba_console", "demo", "--incident", "temp-spill", "--keep", "--headless"]
    done = subprocess.run(
        [*command, "--for", "1s"], env={**os.environ, **environment(tmp_path), "TMPDIR": str(scratch)},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "the incident did not begin" in done.stderr
    assert "temp-spill was not raised" in done.stderr
    assert done.returncode == 1
    assert "the data is not kept" in done.stderr
    assert [path.name for path in scratch.rglob("server.log")] == ["server.log"]
    assert list(scratch.rglob("PG_VERSION")) == []
