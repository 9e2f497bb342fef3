"""Which session a word means."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dba_console.core.errors import PermissionDenied, SessionError
from dba_console.recording.session_lookup import resolve


@pytest.fixture
def sessions(tmp_path: Path) -> Path:
    for name in ("20261119T100000Z-db1-1a2b3c4d", "20261120T100000Z-db2-1a99ffff", "20261120T110000Z-db2-77aa0000"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "session.db").write_bytes(b"")
    (tmp_path / "notes").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("name", "id"),
    [
        ("last", "77aa0000"),
        ("77", "77aa0000"),
        ("1a2b3c4d", "1a2b3c4d"),
        ("20261119", "1a2b3c4d"),
        ("20261120T100000Z-db2-1a99ffff", "1a99ffff"),
    ],
)
def test_a_prefix_means_the_one_session_it_matches(sessions: Path, name: str, id: str) -> None:
    assert resolve(name, sessions).name.endswith(id)


def test_a_path_means_itself(sessions: Path) -> None:
    directory = sessions / "20261119T100000Z-db1-1a2b3c4d"
    assert resolve(str(directory), Path("/nowhere")) == directory
    assert resolve(str(directory / "session.db"), Path("/nowhere")) == directory


def test_an_ambiguous_prefix_names_every_matching_session(sessions: Path) -> None:
    with pytest.raises(SessionError) as raised:
        resolve("1a", sessions)
    assert "1a2b3c4d" in raised.value.message
    assert "1a99ffff" in raised.value.message


@pytest.mark.parametrize("name", ["", "zz", "./nothing", "notes", "..", "last"])
def test_a_prefix_without_a_match_is_reported(tmp_path: Path, name: str) -> None:
    with pytest.raises(SessionError):
        resolve(name, tmp_path)


def test_an_unreadable_directory_is_not_reported_as_empty(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o000)
    was = os.geteuid()
    if was == 0:
        os.seteuid(65534)  # root may read everything
    try:
        with pytest.raises(PermissionDenied, match="permission denied"):
            resolve("last", closed)
    finally:
        os.seteuid(was)
