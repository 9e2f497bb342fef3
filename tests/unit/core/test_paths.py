"""Directories of our own: private where we make them, refused where they could be another's, never changed."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from dba_console.core.errors import ConfigError, PermissionDenied
from dba_console.core.paths import ownership_problem, private_dir


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_missing_directory_is_created_private_with_its_missing_parents(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        made = private_dir(tmp_path / "state" / "dba-console")
    finally:
        os.umask(before)
    assert (mode(made), mode(made.parent)) == (0o700, 0o700)


def test_a_directory_readable_by_others_is_used_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    assert private_dir(tmp_path) == tmp_path
    assert mode(tmp_path) == 0o755


@pytest.mark.parametrize("shared", [0o777, 0o1777, 0o770])
def test_a_directory_writable_by_others_is_refused_and_left_alone(tmp_path: Path, shared: int) -> None:
    tmp_path.chmod(shared)
    with pytest.raises(PermissionDenied, match="others may write"):
        private_dir(tmp_path)
    assert mode(tmp_path) == shared


def test_a_link_that_another_user_may_have_made_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "theirs")
    with pytest.raises(ConfigError, match="not a directory"):
        private_dir(tmp_path / "link")


def test_a_file_in_place_of_the_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="not a directory"):
        private_dir(tmp_path / "file")
    with pytest.raises(PermissionDenied, match="cannot create the directory"):
        private_dir(tmp_path / "file" / "below")
    with pytest.raises(PermissionDenied, match="cannot create the directory"):
        private_dir(Path("/proc/none/below"))


@pytest.mark.root
def test_a_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    os.chown(tmp_path, 65534, 65534)
    with pytest.raises(PermissionDenied, match="belongs to nobody, not to root"):
        private_dir(tmp_path)


def test_a_link_made_after_the_check_of_the_directory_is_not_trusted(tmp_path: Path) -> None:
    (tmp_path / "ours").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "ours")
    assert ownership_problem(tmp_path / "ours") is None
    assert ownership_problem(tmp_path / "link") is not None
