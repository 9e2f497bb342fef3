"""The quiet hour in a quarter of a minute: every activity is really done, recorded, and can be judged."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.quiet import DIARY, judged, live
from bench.quiet_load.diary import read_diary
from bench.quiet_load.schedule import names

CUT_OFF = ("terminating connection", "shutting down", "starting up", "server closed", "connection to server", "57P")
"""What a client may say when the restart, hours away from it in a real hour, comes into its middle."""


@pytest.mark.alone  # its activities take memory and processors, and come into each other's way where they take longer
def test_an_hour_compressed_into_minutes_is_run_and_evaluated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DBA_CONSOLE_RUNTIME", "DBA_CONSOLE_SESSIONS", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path))  # so that what the run sets is taken back
    live(tmp_path, 15.0)
    lines = read_diary(tmp_path / DIARY)
    assert {line.activity for line in lines if line.did == "began"} == names()
    failed = [line.note for line in lines if line.did == "failed"]
    assert [note for note in failed if not any(words in note for words in CUT_OFF)] == []
    for how in ("live", "today"):
        verdict = judged(tmp_path, how)
        assert verdict.quiet_s > 10
        assert verdict.failed == set()
        assert "server-restarted" in {row.rule for row in verdict.found}, how
