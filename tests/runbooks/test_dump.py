"""The runbook `dump`, run on a database with awkward names: refused where it must be, complete when it has its name."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator

import pytest

from dba_console.core.decoding import from_json
from dba_console.recording.run_paths import SUMMARY
from dba_console.runbooks.run_summary import RunSummary, StepSummary
from tests.background import Session, waiting_for_lock
from tests.runbooks.dumps import (
    DATABASE,
    TABLES,
    DumpServer,
    after_doing,
    is_password_absent,
    running_dump_server,
    table_of,
    values_of,
)
from tests.runbooks.runs import AnswerSource

RUNBOOK = "dump"
MOMENT = "preconditions"
DUMP = "dump-it/run"


@pytest.fixture(scope="module")
def dump_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DumpServer]:
    with running_dump_server(tmp_path_factory.mktemp("dumps")) as made:
        yield made


def test_a_dump_gets_its_name_once_it_is_complete_and_its_durations_are_reported(dump_server: DumpServer) -> None:
    to = dump_server.directory / "nightly 'one'"
    walk = dump_server.run_headless(RUNBOOK, database=DATABASE, to=str(to), jobs="2", same_disk="yes", verify="sample")
    assert walk.code == 0, walk.text
    assert (to / "toc.dat").exists() and not to.with_name(to.name + ".partial").exists()
    assert f"the data of {TABLES + 2} tables" in walk.output
    assert values_of(walk, DUMP)["errors"] == 0
    reported = "\n".join(" ".join(row) for row in table_of(walk, DUMP))
    assert "data" in reported and "public.items_" in reported, reported
    assert is_password_absent(dump_server.watched.console.home), "the password is written down"


def test_the_typical_duration_of_a_step_comes_from_dumps_of_the_same_database(dump_server: DumpServer) -> None:
    def dumped(database: str, name: str) -> tuple[RunSummary, StepSummary]:
        walk = dump_server.run_headless(
            RUNBOOK, database=database, to=str(dump_server.directory / name), format="custom", same_disk="yes"
        )
        assert walk.code == 0, walk.text
        kept = from_json((walk.stored_run.directory / SUMMARY).read_bytes(), RunSummary)
        return kept, next(one for one in kept.steps if one.id == "dump-it")

    dump_server.cluster.psql("create database mid")
    first, before = dumped(DATABASE, "first")
    assert first.about == DATABASE and first.identity
    assert dumped("mid", "of mid")[1].usual_s is None
    assert dumped(DATABASE, "second")[1].usual_runs == before.usual_runs + 1


@pytest.mark.parametrize("format", ["custom", "plain"])
def test_a_dump_is_one_file_if_requested(dump_server: DumpServer, format: str) -> None:
    to = dump_server.directory / format
    walk = dump_server.run_headless(
        RUNBOOK, database=DATABASE, to=str(to), format=format, compression="gzip", same_disk="yes"
    )
    assert walk.code == 0, walk.text
    assert to.is_file() and to.stat().st_mode & 0o077 == 0, "others may read it"


def test_it_does_not_start_if_it_would_cause_or_suffer_harm(dump_server: DumpServer) -> None:
    to = dump_server.directory / "never"
    beside = dump_server.cluster.data_directory.parent / "never"
    assert refused_checks(dump_server, to=str(beside)) == [f"{MOMENT}/disk"], (
        "beside the data, and nobody said that this is meant"
    )
    to.with_name("never.partial").mkdir()
    assert refused_checks(dump_server, to=str(to), same_disk="yes") == [f"{MOMENT}/place"]
    to.with_name("never.partial").rmdir()
    assert refused_checks(dump_server, to="/nowhere/at/all", same_disk="yes")[0] == f"{MOMENT}/place"
    dump_server.cluster.psql(f'alter database "{DATABASE}" connection limit 1')
    assert refused_checks(dump_server, to=str(to), same_disk="yes") == [f"{MOMENT}/slots"]
    dump_server.cluster.psql(f'alter database "{DATABASE}" connection limit -1')
    dump_server.cluster.psql("create table wanted (i int)")
    with dump_server.session("postgres") as holder:
        holder.execute("begin")
        holder.execute("select * from wanted")
        with waiting_for_lock(dump_server.cluster, "alter table wanted add x int"):
            assert refused_checks(dump_server, database="postgres", to=str(to), same_disk="yes") == [f"{MOMENT}/locks"]
    assert not to.exists() and not to.with_name("never.partial").exists()


def test_leftovers_of_a_failure_are_named_and_removed_only_after_confirmation(dump_server: DumpServer) -> None:
    to = dump_server.directory / "cut short"
    partial = to.with_name(to.name + ".partial")
    inputs = {"database": DATABASE, "to": str(to), "jobs": "2", "same_disk": "yes", "lock_wait": "1s"}
    with dump_server.session(DATABASE) as holder:
        answers: dict[str, AnswerSource] = {
            "start": "yes",
            DUMP: after_doing(lambda: lock_table(holder), "y"),
            "failed": "abort",
        }
        walk = dump_server.run_interactively(RUNBOOK, {**answers, "undo": "none"}, **inputs)
        assert walk.code == 7, walk.text
        assert partial.exists() and not to.exists()
        assert "statement timeout" in walk.ending and "not reverted: dump-it" in walk.ending
        assert values_of(walk, DUMP)["errors"] == 1
        assert "items_2" in walk.output, "which table it was"
        holder.execute("rollback")
        walk = dump_server.run_interactively(RUNBOOK, {**answers, "undo": "all", "yes": "yes"}, **inputs)
        assert walk.code == 7, walk.text
        assert not partial.exists() and not to.exists(), "it was to be removed, and is there still"
        [aside] = dump_server.directory.glob("cut short.partial*")
        assert f"was renamed to {aside}:" in walk.output, "what the first one had left"


def test_the_next_dump_of_the_name_starts_next_to_leftovers_and_never_next_to_foreign_files(
    dump_server: DumpServer,
) -> None:
    to = dump_server.directory / "nightly"
    partial, lock = to.with_name("nightly.partial"), to.with_name("nightly.partial.lock")
    inputs = {"database": DATABASE, "to": str(to), "format": "custom", "same_disk": "yes", "lock_wait": "1s"}
    with dump_server.session(DATABASE) as holder:
        answers: dict[str, AnswerSource] = {
            "start": "yes",
            DUMP: after_doing(lambda: lock_table(holder), "y"),
            "failed": "abort",
        }
        assert dump_server.run_interactively(RUNBOOK, {**answers, "undo": "none"}, **inputs).code == 7
    with lock.open() as writing:
        fcntl.flock(writing, fcntl.LOCK_EX)
        assert refused_checks(dump_server, **inputs) == [f"{MOMENT}/place"], "somebody writes it still"
    left = partial.stat().st_ino
    walk = dump_server.run_headless(RUNBOOK, **inputs)
    assert walk.code == 0, walk.text
    [aside] = dump_server.directory.glob("nightly.partial*")
    assert aside.stat().st_ino == left and f"was renamed to {aside}:" in walk.output
    assert to.is_file() and not lock.exists()
    to.unlink()
    aside.rename(partial)
    lock.write_text("1 1\n")
    assert refused_checks(dump_server, **inputs) == [f"{MOMENT}/place"], "of somebody else"
    assert partial.exists()


def lock_table(session: Session) -> None:
    session.execute("begin")
    session.execute("lock table items_2 in access exclusive mode")


def refused_checks(dump_server: DumpServer, **inputs: str) -> list[str]:
    """The failed checks; nothing was dumped."""
    walk = dump_server.run_headless(RUNBOOK, **{"database": DATABASE, **inputs})
    assert walk.code == 7, walk.text
    assert walk.records("run.started") == [] and walk.done() == []
    return walk.unmet()
