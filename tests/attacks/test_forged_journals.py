"""The directory of a run that another user may have written: shown, but never continued.

Its plan is code, and its hash chain has no key: who can write it can make one that matches.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest

from dba_console.agent.runs.interrupted_runs import find_interrupted_runs
from dba_console.core.errors import SessionError
from dba_console.recording.run_journal import RunJournal
from dba_console.recording.run_paths import run_directory
from dba_console.recording.run_reader import read_run
from dba_console.recording.run_records import RunAbout
from dba_console.recording.run_verification import compare_with_sessions
from dba_console.runbooks.compile import compile_text
from tests.attacks.fuzzing import chained
from tests.unit.runbooks.scripted_agent import run as walk_through
from tests.unit.runbooks.short_runbooks import fence, runbook_text
from tests.unit.runbooks.test_walk_documents import ObligingAgent

RUN = "20261120T145307Z-forged-1a2b"
NOBODY = 65534


@pytest.fixture
def interrupted(tmp_path: Path) -> Path:
    """The directory of a run that was interrupted before its end."""
    text = runbook_text(fence("sh {check}", "test -e /etc"))
    plan = compile_text(text, "forged.md")
    directory = run_directory(tmp_path / "sessions" / "20261120T145307Z-db2-1a2b3c4d", RUN)
    about = RunAbout(run=RUN, runbook=plan.id, title=plan.title, target="appdb", target_key="key1")
    journal = RunJournal.create(directory, about, text=text, plan=plan)
    _, _, world = walk_through(plan, ObligingAgent())
    for record in world.records[:-1]:
        journal.append(record)
    journal.close()
    return directory


def _forge(directory: Path) -> None:
    """Replace the command of the plan, and make every hash match again."""
    papers = (directory / "plan.json").read_bytes()
    made = papers.replace(b'"body": "test -e', b'"body": "touch /root/forged;')
    assert made != papers
    (directory / "plan.json").write_bytes(made)
    lines = [json.loads(line) for line in (directory / "journal.jsonl").read_bytes().splitlines()]
    lines[0]["fields"]["plan_sha256"] = hashlib.sha256(made).hexdigest()
    (directory / "journal.jsonl").write_bytes(chained(lines, RUN))
    assert read_run(directory).damage is None


def _sessions(directory: Path) -> Path:
    return directory.parents[2]


def test_an_own_run_can_be_continued(interrupted: Path) -> None:
    compare_with_sessions(read_run(interrupted)).require_resumable()


@pytest.mark.root
@pytest.mark.parametrize("name", [".", "plan.json", "journal.jsonl", "runbook.md"])
def test_a_run_with_a_file_of_another_user_is_not_continued(name: str, interrupted: Path) -> None:
    _forge(interrupted)
    os.chown(interrupted / name, NOBODY, NOBODY)
    with pytest.raises(SessionError, match=r"others may have changed it: .* belongs to nobody"):
        compare_with_sessions(read_run(interrupted)).require_resumable()
    [shown] = find_interrupted_runs(_sessions(interrupted), "key1")
    assert "others may have changed it" in shown.note


def test_a_run_whose_directory_others_may_write_is_not_continued(interrupted: Path) -> None:
    _forge(interrupted)
    interrupted.chmod(0o777)
    with pytest.raises(SessionError, match="others may write"):
        compare_with_sessions(read_run(interrupted)).require_resumable()


@pytest.mark.root
def test_a_link_to_the_run_of_another_user_is_not_continued(interrupted: Path, tmp_path: Path) -> None:
    _forge(interrupted)
    elsewhere = tmp_path / RUN
    shutil.move(interrupted, elsewhere)
    os.chown(elsewhere, NOBODY, NOBODY)
    interrupted.symlink_to(elsewhere)
    for found in find_interrupted_runs(_sessions(interrupted), "key1"):
        assert "others may have changed it" in found.note
