"""The runbook `dump`, walked on a database with awkward names: begun where it may be, whole where it has its name."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator

import pytest

from dba_console.core.decoding import from_json
from dba_console.recording.run_paths import SUMMARY
from dba_console.runbooks.run_summary import RunSummary, StepSummary
from tests.background import Session, waiting_for_lock
from tests.runbooks.dumps import DATABASE, TABLES, Ground, ground, hushed, table_of, then, values_of
from tests.runbooks.runs import Says

BOOK = "dump"
MOMENT = "preconditions"
DUMP = "dump-it/run"


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with ground(tmp_path_factory.mktemp("dumps")) as made:
        yield made


def test_a_dump_gets_its_name_once_it_is_complete_and_its_durations_are_reported(here: Ground) -> None:
    to = here.place / "nightly 'one'"
    walk = here.headless(BOOK, database=DATABASE, to=str(to), jobs="2", same_disk="yes", verify="sample")
    assert walk.code == 0, walk.text
    assert (to / "toc.dat").exists() and not to.with_name(to.name + ".partial").exists()
    assert f"the data of {TABLES + 2} tables" in walk.output
    assert values_of(walk, DUMP)["errors"] == 0
    told = "\n".join(" ".join(row) for row in table_of(walk, DUMP))
    assert "data" in told and "items_1" in told, told
    assert hushed(here.scene.console.home), "the password is written down"


def test_the_typical_duration_of_a_step_comes_from_dumps_of_the_same_database(here: Ground) -> None:
    def dumped(database: str, name: str) -> tuple[RunSummary, StepSummary]:
        walk = here.headless(BOOK, database=database, to=str(here.place / name), format="custom", same_disk="yes")
        assert walk.code == 0, walk.text
        kept = from_json((walk.papers.directory / SUMMARY).read_bytes(), RunSummary)
        return kept, next(one for one in kept.steps if one.id == "dump-it")

    here.cluster.psql("create database mid")
    first, before = dumped(DATABASE, "first")
    assert first.about == DATABASE and first.identity
    assert dumped("mid", "of mid")[1].usual_s is None
    assert dumped(DATABASE, "second")[1].usual_runs == before.usual_runs + 1


@pytest.mark.parametrize("format", ["custom", "plain"])
def test_a_dump_is_one_file_if_requested(here: Ground, format: str) -> None:
    to = here.place / format
    walk = here.headless(BOOK, database=DATABASE, to=str(to), format=format, compression="gzip", same_disk="yes")
    assert walk.code == 0, walk.text
    assert to.is_file() and to.stat().st_mode & 0o077 == 0, "others may read it"


def test_it_does_not_start_if_it_would_cause_or_suffer_harm(here: Ground) -> None:
    to = here.place / "never"
    beside = here.cluster.data_directory.parent / "never"
    assert refused(here, to=str(beside)) == [f"{MOMENT}/disk"], "beside the data, and nobody said that this is meant"
    to.with_name("never.partial").mkdir()
    assert refused(here, to=str(to), same_disk="yes") == [f"{MOMENT}/place"]
    to.with_name("never.partial").rmdir()
    assert refused(here, to="/nowhere/at/all", same_disk="yes")[0] == f"{MOMENT}/place"
    here.cluster.psql(f'alter database "{DATABASE}" connection limit 1')
    assert refused(here, to=str(to), same_disk="yes") == [f"{MOMENT}/slots"]
    here.cluster.psql(f'alter database "{DATABASE}" connection limit -1')
    here.cluster.psql("create table wanted (i int)")
    with here.session("postgres") as holder:
        holder.execute("begin")
        holder.execute("select * from wanted")
        with waiting_for_lock(here.cluster, "alter table wanted add x int"):
            assert refused(here, database="postgres", to=str(to), same_disk="yes") == [f"{MOMENT}/locks"]
    assert not to.exists() and not to.with_name("never.partial").exists()


def test_leftovers_of_a_failure_are_named_and_removed_only_after_confirmation(here: Ground) -> None:
    to = here.place / "cut short"
    partial = to.with_name(to.name + ".partial")
    inputs = {"database": DATABASE, "to": str(to), "jobs": "2", "same_disk": "yes", "lock_wait": "1s"}
    with here.session(DATABASE) as holder:
        answers: dict[str, Says] = {"start": "yes", DUMP: then(lambda: held(holder), "y"), "failed": "abort"}
        walk = here.person(BOOK, {**answers, "undo": "none"}, **inputs)
        assert walk.code == 7, walk.text
        assert partial.exists() and not to.exists()
        assert "statement timeout" in walk.ending and "not reverted: dump-it" in walk.ending
        assert values_of(walk, DUMP)["errors"] == 1
        assert "items_2" in walk.output, "which table it was"
        holder.execute("rollback")
        walk = here.person(BOOK, {**answers, "undo": "all", "yes": "yes"}, **inputs)
        assert walk.code == 7, walk.text
        assert not partial.exists() and not to.exists(), "it was to be removed, and is there still"
        [aside] = here.place.glob("cut short.partial*")
        assert f"was renamed to {aside}:" in walk.output, "what the first one had left"


def test_the_next_dump_of_the_name_starts_next_to_leftovers_and_never_next_to_foreign_files(
    here: Ground,
) -> None:
    to = here.place / "nightly"
    partial, lock = to.with_name("nightly.partial"), to.with_name("nightly.partial.lock")
    inputs = {"database": DATABASE, "to": str(to), "format": "custom", "same_disk": "yes", "lock_wait": "1s"}
    with here.session(DATABASE) as holder:
        answers: dict[str, Says] = {"start": "yes", DUMP: then(lambda: held(holder), "y"), "failed": "abort"}
        assert here.person(BOOK, {**answers, "undo": "none"}, **inputs).code == 7
    with lock.open() as writing:
        fcntl.flock(writing, fcntl.LOCK_EX)
        assert refused(here, **inputs) == [f"{MOMENT}/place"], "somebody writes it still"
    left = partial.stat().st_ino
    walk = here.headless(BOOK, **inputs)
    assert walk.code == 0, walk.text
    [aside] = here.place.glob("nightly.partial*")
    assert aside.stat().st_ino == left and f"was renamed to {aside}:" in walk.output
    assert to.is_file() and not lock.exists()
    to.unlink()
    aside.rename(partial)
    lock.write_text("1 1\n")
    assert refused(here, **inputs) == [f"{MOMENT}/place"], "of somebody else"
    assert partial.exists()


def held(session: Session) -> None:
    session.execute("begin")
    session.execute("lock table items_2 in access exclusive mode")


def refused(here: Ground, **inputs: str) -> list[str]:
    """The checks that did not hold; nothing was begun."""
    walk = here.headless(BOOK, **{"database": DATABASE, **inputs})
    assert walk.code == 7, walk.text
    assert walk.records("run.started") == [] and walk.done() == []
    return walk.red()
