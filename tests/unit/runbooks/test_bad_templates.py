"""Three runbooks that were published and do harm, in this format: each is refused for what is wrong with it."""

from __future__ import annotations

from pathlib import Path

from dba_console.recording.plan import Plan
from dba_console.runbooks.compile import check_text
from dba_console.runbooks.problems import Problem

DOCUMENTS = Path(__file__).parent / "documents"


def problems_of(name: str) -> dict[str, Problem]:
    path = DOCUMENTS / f"{name}.md"
    checked = check_text(path.read_text(), path.name)
    assert checked.plan is None
    return {problem.rule: problem for problem in checked.problems}


def test_a_check_that_can_never_fail_is_refused() -> None:
    found = problems_of("failover-lag")
    assert set(found) == {"masked-error"}
    assert found["masked-error"].line == 13


def test_an_undo_that_releases_the_fenced_primary_after_the_promotion_is_refused() -> None:
    found = problems_of("failover-fence")
    assert set(found) == {"half-an-undo"}
    assert "promote-the-replica" in found["half-an-undo"].text
    assert "fence-the-primary" in found["half-an-undo"].text
    assert "point_of_no_return" in found["half-an-undo"].hint


def test_an_undo_on_the_promotion_itself_is_refused_if_it_is_a_point_of_no_return() -> None:
    text = (DOCUMENTS / "failover-fence.md").read_text()
    text = text.replace("## Promote the replica\n", "## Promote the replica {point_of_no_return}\n")
    assert plan_of_text(text) is not None
    undone = text.replace("-D /srv/replica\n```\n", "-D /srv/replica\n```\n\n```sh {undo}\npg_rewind\n```\n")
    (problem,) = check_text(undone, "x.md").problems
    assert problem.rule == "undo-past-no-return"


def test_a_restore_of_the_newest_file_left_by_a_broken_pipe_is_refused() -> None:
    found = problems_of("migration-restore")
    assert {"pipefail", "guessed-file", "unconfirmed", "half-an-undo", "temporary-file"} == set(found)


def plan_of_text(text: str) -> Plan | None:
    return check_text(text, "x.md").plan
