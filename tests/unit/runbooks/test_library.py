"""Where runbooks are: shipped and configured, found by name or as a file; a hidden one is reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from dba_console.core.errors import RunbookError
from dba_console.runbooks import library
from tests.unit.runbooks.short_runbooks import fence, runbook_text

CHECK = fence("expr {check}", "memory.free_bytes > 1GB")


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A library of the test's own in place of the shipped one."""
    directory = tmp_path / "shipped"
    directory.mkdir()
    monkeypatch.setattr(library, "SHIPPED", directory)
    return directory


def write(directory: Path, name: str, *, text: str | None = None) -> Path:
    directory.mkdir(exist_ok=True)
    path = directory / f"{name}.md"
    path.write_text(runbook_text(CHECK).replace('id = "book"', f'id = "{name}"') if text is None else text)
    return path


def test_a_configured_runbook_replaces_the_shipped_one_and_that_is_reported(tmp_path: Path, shipped: Path) -> None:
    hidden = write(shipped, "one")
    write(shipped, "two")
    own = write(tmp_path / "own", "one")
    first, second = library.entries([str(tmp_path / "own")])
    assert (first.path, first.origin, first.shadows) == (own, str(tmp_path / "own"), (hidden,))
    assert (second.id, second.origin, second.shadows) == ("two", "shipped", ())
    assert library.find("one", [str(tmp_path / "own")]).entry == first


def test_a_link_to_the_same_file_hides_nothing(tmp_path: Path, shipped: Path) -> None:
    path = write(shipped, "one")
    own = tmp_path / "own"
    own.mkdir()
    (own / "one.md").symlink_to(path)
    (entry,) = library.entries([str(own)])
    assert entry.shadows == ()


def test_only_callable_runbooks_are_listed(shipped: Path) -> None:
    for name in ("one", "README", "Two Words", ".hidden"):
        write(shipped, name)
    assert [entry.id for entry in library.entries()] == ["one"]


def test_a_missing_directory_is_reported_and_hides_no_other(tmp_path: Path, shipped: Path) -> None:
    write(shipped, "one")
    missing = str(tmp_path / "missing")
    assert [entry.id for entry in library.entries([missing])] == ["one"]
    (sentence,) = library.unreadable([missing, str(shipped)])
    assert missing in sentence and "No such file" in sentence


def test_a_runbook_that_cannot_run_is_listed_with_the_reason(shipped: Path) -> None:
    write(shipped, "broken", text=runbook_text(fence("expr {chek}", "true")).replace('"book"', '"broken"'))
    (shipped / "foreign.md").write_bytes(b"\xff\xfe")
    broken, foreign = library.listed()
    assert broken.title == "A title" and broken.plan is None
    assert broken.error.startswith("line 9: unknown kind of block 'chek'")
    assert "is not UTF-8 text" in foreign.error


def test_a_runbook_has_the_name_of_its_file(shipped: Path) -> None:
    write(shipped, "one", text=runbook_text(CHECK))
    (one,) = library.listed()
    assert one.error == "line 4: the id is 'book', but the file is named one.md"


def test_runbooks_are_found_by_their_finding(shipped: Path) -> None:
    write(shipped, "book", text=runbook_text(CHECK, head='answers = ["lock-queue"]\n'))
    write(shipped, "other")
    rows = library.listed()
    assert [row.entry.id for row in library.answering("lock-queue:8123", rows)] == ["book"]
    assert library.answering("disk-filling", rows) == []


def test_a_name_with_a_slash_or_ending_in_md_is_a_file(
    tmp_path: Path, shipped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(shipped, "one")
    path = write(tmp_path / "here", "one")
    monkeypatch.chdir(path.parent)
    assert library.find("one").entry is not None
    for name in ("./one.md", "one.md", str(path)):
        found = library.find(name)
        assert found.entry is None and found.plan().id == "one"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("on", "unknown runbook 'on'"),
        ("./nowhere.md", "cannot read nowhere.md: No such file or directory"),
        ("/", "cannot read /: Is a directory"),
    ],
)
def test_a_missing_runbook_is_reported_in_one_sentence(shipped: Path, name: str, expected: str) -> None:
    write(shipped, "one")
    with pytest.raises(RunbookError) as refused:
        library.find(name)
    assert refused.value.message == expected
    if name == "on":
        assert refused.value.hint == "did you mean one?"


def test_starting_it_reports_the_first_problem_and_their_number(tmp_path: Path) -> None:
    path = write(tmp_path, "one", text=runbook_text(fence("expr {chek}", "true"), fence("expr {chek}", "true")))
    with pytest.raises(RunbookError) as refused:
        library.find(str(path)).plan()
    assert refused.value.message == f"{path}:9: unknown kind of block 'chek'"
    assert refused.value.hint is not None and "did you mean check?" in refused.value.hint
    assert "more: `dba-console runbook lint` lists them" in refused.value.hint
