"""The file of a pooler on its host: whether it can be changed, and the change."""

from __future__ import annotations

from pathlib import Path

import pytest

from dba_console.clusters.pooler_file import change_file, check_file
from dba_console.core.clock import SYSTEM
from dba_console.core.config import PoolerConfig
from dba_console.core.errors import ConsoleError

OLD, NEW = ("db1", "5432"), ("db2", "5433")


def pooler(path: Path) -> PoolerConfig:
    return PoolerConfig(dsn="host=db1", config=str(path))


@pytest.mark.parametrize("databases", [["shop"], []])
def test_the_file_behind_a_link_is_changed_with_other_bytes_and_mode_unchanged(
    tmp_path: Path, databases: list[str]
) -> None:
    file, link = tmp_path / "bouncer.ini", tmp_path / "link.ini"
    file.write_bytes(b"[databases]\r\nshop = host=db1 password=\xff\r\n; \xe4\n")
    file.chmod(0o640)
    link.symlink_to(file)
    check_file("main", pooler(link), databases, OLD, NEW, SYSTEM)
    assert b"host=db1" in file.read_bytes()
    for _ in range(2):
        change_file("main", pooler(link), databases, OLD, NEW, SYSTEM)
        assert file.read_bytes() == b"[databases]\r\nshop = host=db2 password=\xff port=5433\r\n; \xe4\n"
    assert link.is_symlink() and file.stat().st_mode & 0o777 == 0o640


def test_what_cannot_be_changed_is_reported_before_with_the_pooler_and_its_file(tmp_path: Path) -> None:
    file = tmp_path / "bouncer.ini"
    with pytest.raises(ConsoleError, match=f'pooler "main": {file} does not exist on this host'):
        check_file("main", pooler(file), ["shop"], OLD, NEW, SYSTEM)
    file.write_text("[databases]\n%include more.ini\n")
    with pytest.raises(ConsoleError, match=f'pooler "main": {file}: line 2 includes "more.ini"'):
        check_file("main", pooler(file), ["shop"], OLD, NEW, SYSTEM)
