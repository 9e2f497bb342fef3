"""The incident of story S1 undone, and as a recording for users other than root.

That the real thing is named in time, and what is done then: `runbooks/test_cache_drop.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from dba_console.demo.incident_detection import recorded_verdict
from dba_console.demo.incidents.reclaim_stall import RECORDING, ReclaimStall, choose_method
from tests.background import wait_until
from tests.incidents.unprivileged import demo_without_root


@pytest.mark.root
def test_its_mount_and_its_control_group_are_removed(tmp_path: Path) -> None:
    before = choose_method()
    incident = ReclaimStall()
    with incident.own_data_directory() as data_directory:
        assert data_directory is not None
    wait_until(lambda: str(data_directory.parent) not in Path("/proc/self/mountinfo").read_text())
    assert before.group is None or not before.group.exists()


def test_the_shipped_recording_names_the_finding_in_time() -> None:
    verdict = recorded_verdict(RECORDING, ReclaimStall())
    assert verdict.in_time, verdict.sentence()
    assert [event.text for event in verdict.others] == []


def test_the_shipped_recording_is_small_and_reveals_nothing_of_its_host() -> None:
    files = [path for path in RECORDING.iterdir() if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 400_000
    log = (RECORDING / "session.log").read_text()
    assert {line.split()[3] for line in log.splitlines()} == {"db2"}


def test_without_root_the_recording_is_shown_with_a_notice(tmp_path: Path) -> None:
    done = demo_without_root(tmp_path, "--incident", "reclaim-stall", "--headless")
    assert done.returncode == 0, done.stderr
    assert "RECORDING" in done.stderr
    assert "recorded practice" in done.stdout
    assert "memory reclaim" in done.stdout
