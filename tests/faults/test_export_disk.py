"""An export onto a disk that fills up."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.console import own_console
from tests.disks import mounted
from tests.unit.reports.exports import PRACTICE

pytestmark = pytest.mark.root


def test_a_full_disk_leaves_no_half_file_and_is_reported_in_one_sentence(tmp_path: Path) -> None:
    with mounted("tmpfs", tmp_path / "small", "-o", "size=64k,mode=700") as place, own_console() as console:
        out = place / "export.om"
        done = console.run("session", "export", str(PRACTICE), "--format", "openmetrics", "--out", str(out))
        assert done.code == 2
        assert done.err == f"error: cannot write {out}: No space left on device; nothing was left there\n"
        assert [*place.iterdir()] == []
