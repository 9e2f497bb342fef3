"""Where things really lie, links followed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dba_console.watch.probes.host.file_systems import NO_ACCESS, named_paths, resolve_links


def test_links_in_a_nonexistent_path_are_resolved(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    followed, note = resolve_links({"session": f"{tmp_path}/link/a/b"})
    assert followed == {"session": f"{tmp_path}/real/a/b"}
    assert note is None


def test_an_inaccessible_path_is_left_out_rather_than_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(path: str, *, strict: bool) -> str:
        if path.endswith("pg_wal"):
            raise PermissionError(13, "Permission denied", path)
        return path

    monkeypatch.setattr(os.path, "realpath", closed)
    followed, note = resolve_links({"data": "/pg", "wal": "/pg/pg_wal"})
    assert followed == {"data": "/pg"}
    assert note == NO_ACCESS


def test_a_relative_path_needs_a_data_directory() -> None:
    assert named_paths({"log": "log"}, None) == {}
    assert named_paths({"log": "log"}, "/pg")["log"] == "/pg/log"


def test_if_the_server_reports_the_wal_path_nothing_is_assumed() -> None:
    assert named_paths({"data": "/pg", "wal": "/fast/wal"}, None)["wal"] == "/fast/wal"
