"""Files that get their name when they are complete."""

from __future__ import annotations

from pathlib import Path

import pytest

from dba_console.core.atomic_files import complete_file


def test_a_file_has_its_name_only_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with complete_file(path) as file:
        file.write(b"half")
        assert not path.exists()
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"half", 0o600)
    with pytest.raises(RuntimeError), complete_file(path, overwrite=True) as file:
        file.write(b"other")
        raise RuntimeError
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"half"]


def test_a_file_created_meanwhile_by_another_program_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with pytest.raises(FileExistsError), complete_file(path):
        path.write_text("theirs")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["theirs"]


def test_a_symbolic_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(FileExistsError, match="not a regular file"), complete_file(tmp_path / "link", overwrite=True):
        pass
    assert (tmp_path / "target").read_text() == "mine"
