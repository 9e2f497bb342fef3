"""Where sessions lie, judged from the kernel's own texts."""

from __future__ import annotations

from pathlib import Path

from dba_console.session.place import examine


def _mountinfo(proc: Path, *lines: str) -> str:
    (proc / "self").mkdir(parents=True)
    (proc / "self/mountinfo").write_text("".join(line + "\n" for line in lines))
    return str(proc)


def test_a_network_file_system_is_warned_of(tmp_path: Path) -> None:
    place = tmp_path / "with blank"
    place.mkdir()
    point = str(place).replace(" ", "\\040")
    proc = _mountinfo(
        tmp_path / "proc", "1 0 8:1 / / rw - ext4 /dev/sda1 rw", f"2 1 0:40 / {point} rw shared:1 - nfs4 filer:/x rw"
    )
    found = examine(place / "sessions", {}, proc=proc)
    assert (found.mount, found.fstype) == (str(place), "nfs4")
    assert any("network file system" in warning for warning in found.warnings)


def test_sharing_a_file_system_with_the_server_is_said(tmp_path: Path) -> None:
    found = examine(tmp_path / "sessions", {"data": str(tmp_path), "wal": "/nowhere", "session": str(tmp_path)})
    assert found.shares_with == ["data"]
    assert any("data" in warning for warning in found.warnings)


def test_what_cannot_be_read_is_unknown_and_not_raised(tmp_path: Path) -> None:
    found = examine(tmp_path / "sessions", {"data": "/does/not/exist"}, proc=str(tmp_path / "no-proc"))
    assert (found.mount, found.fstype, found.shares_with) == (None, None, [])
    assert found.free_bytes is not None
