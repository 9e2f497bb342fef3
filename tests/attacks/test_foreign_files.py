"""A file another user may write is not accepted as configuration, as runbook or as location of recordings."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dba_console.core.paths import trust_problem
from dba_console.demo.temporary_server import Cluster
from tests.cli.console import Console
from tests.disks import fill, mounted

pytestmark = pytest.mark.root
NOBODY = 65534


@pytest.fixture
def console(tmp_path: Path) -> Console:
    made = Console(tmp_path)
    made.write_config(f'[runbooks]\npath = ["{tmp_path}/books"]\n')
    (tmp_path / "books").mkdir()
    (tmp_path / "books" / "mine.md").write_text(RUNBOOK)
    return made


RUNBOOK = """# Mine

A look.

```toml {runbook}
id = "mine"
```

## Look

```sh {check}
touch TOUCHED
```
"""


def test_a_file_only_its_owner_writes_is_accepted_silently(console: Console) -> None:
    done = console.run("runbook", "list")
    assert done.code == 0 and "mine" in done.out, done
    assert trust_problem(console.config) is None
    assert trust_problem("/tmp/not/there/yet") is None


@pytest.mark.parametrize(("mode", "expected"), [(0o666, "chmod go-w"), (0o620, "chmod g-w")])
def test_a_configuration_writable_by_others_is_refused_with_the_command_that_fixes_it(
    mode: int, expected: str, console: Console
) -> None:
    console.config.chmod(mode)
    os.chown(console.config, 0, NOBODY)
    done = console.run("runbook", "list")
    assert done.code == 2 and "others may write" in done.err and f"{expected} {console.config}" in done.err, done


def test_a_configuration_of_another_user_or_below_their_directory_is_refused(console: Console) -> None:
    os.chown(console.config, NOBODY, 0)
    assert "belongs to" in console.run("runbook", "list").err
    os.chown(console.config, 0, 0)
    console.config.parent.chmod(0o777)
    done = console.run("runbook", "list")
    assert done.code == 2 and f"chmod go-w {console.config.parent}" in done.err


def test_runbooks_of_a_directory_writable_by_others_are_ignored_and_replace_none(console: Console) -> None:
    books = console.home / "books"
    (books / "lock-queue.md").write_text(RUNBOOK.replace("mine", "lock-queue"))
    books.chmod(0o777)
    listed = console.run("runbook", "list", "--json")
    rows = {row["id"]: row for row in listed.objects()}
    assert "mine" not in rows and str(books) not in str(rows["lock-queue"])
    assert f"chmod go-w {books}" in console.run("runbook", "list").err
    assert f"chmod go-w {books}" in console.run("doctor", "--json").out


def test_a_document_writable_by_others_is_not_run(console: Console) -> None:
    book = console.home / "books" / "mine.md"
    book.chmod(0o666)
    for name in ("mine", str(book)):
        done = console.run("runbook", "rehearse", name)
        assert done.code != 0 and f"chmod go-w {book}" in done.err, done


def test_sessions_below_a_directory_writable_by_others_are_refused(console: Console) -> None:
    place = console.home / "open"
    place.mkdir()
    place.chmod(0o777)
    done = console.run("record", "host=/nowhere", "--for", "1s", DBA_CONSOLE_SESSIONS=str(place / "sessions"))
    assert done.code == 6 and f"chmod go-w {place}" in done.err, done
    place.chmod(0o1777)
    assert trust_problem(place / "sessions") is None, "as in /tmp: only its owner may rename what is in there"


def test_a_recording_that_never_started_is_not_a_success(console: Console, cluster: Cluster, tmp_path: Path) -> None:
    with mounted("tmpfs", tmp_path / "small", "-o", "size=64k,mode=700") as place:
        (place / "sessions").mkdir(mode=0o700)
        fill(place)
        done = console.run("record", cluster.dsn(), "--for", "2s", "--sessions", str(place / "sessions"))
    assert done.code == 6 and "nothing was recorded" in done.err, done


def test_sockets_in_a_directory_of_another_user_are_not_used_and_that_is_reported(
    console: Console, cluster: Cluster
) -> None:
    console.runtime.mkdir(exist_ok=True)
    os.chown(console.runtime, NOBODY, NOBODY)
    read = console.run("findings", "list", cluster.dsn())
    assert (
        read.code in (0, 1, 2) and "warning: the agent is not used" in read.err and "belongs to nobody" in read.err
    ), read
    unnamed = console.run("findings", "list")
    assert unnamed.code != 4 and "warning: the agent is not used" in unnamed.err, unnamed
    listed = console.run("attach", "--list")
    assert listed.code == 4 and f"chown root {console.runtime}" in listed.err, listed
