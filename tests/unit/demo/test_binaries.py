"""Programs are found where they are, and reached by the user that must run them."""

from __future__ import annotations

from pathlib import Path

import pytest

from dba_console.core.errors import Unsupported
from dba_console.demo.binaries import Binaries, find_binaries, is_readable_by_all, readable_copy, wheel_directories
from tests.requirements import lacking


@pytest.mark.parametrize(("version", "major"), [("15.18", 15), ("18beta1", 18), ("17.0", 17), ("unknown", 0)])
def test_the_major_version_is_the_first_number(version: str, major: int) -> None:
    assert Binaries(Path("/nowhere"), version).major == major


def test_an_installation_without_a_program_names_it() -> None:
    with pytest.raises(Unsupported, match="no psql in /nowhere"):
        Binaries(Path("/nowhere"), "15").program("psql")


def test_the_installation_found_has_every_program_of_a_practice_ground() -> None:
    found = find_binaries()
    assert all(found.has(name) for name in ("postgres", "initdb", "psql", "pgbench"))
    assert found.major >= 14


def test_a_directory_named_in_the_environment_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DBA_CONSOLE_PG_BINDIR", str(wheel()))
    assert find_binaries().directory == readable_copy(wheel())


def test_if_no_installation_is_found_the_hint_names_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DBA_CONSOLE_PG_BINDIR", str(tmp_path))
    with pytest.raises(Unsupported) as caught:
        find_binaries()
    assert "dba-console[demo]" in str(caught.value.hint)


def test_an_unavailable_version_is_refused_with_its_number() -> None:
    with pytest.raises(Unsupported, match="version 99 or later"):
        find_binaries(at_least=99)


def test_programs_below_a_private_directory_are_not_reachable(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    (closed / "postgres").touch(mode=0o755)
    assert not is_readable_by_all(closed / "postgres")
    assert is_readable_by_all(Path("/bin/sh"))


def wheel() -> Path:
    """The program directory of the wheel; ends the test where it is not installed."""
    return next((path for path in wheel_directories() if path.is_dir()), None) or lacking("the demo extra")
