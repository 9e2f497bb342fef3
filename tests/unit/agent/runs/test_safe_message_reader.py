"""A reader of messages that stumbles costs what they tell: the command is attended to its end all the same."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from dba_console.agent.runs.action_control import ActionControl
from dba_console.agent.runs.commands import AttachedCommand
from dba_console.agent.runs.dump_messages import DumpMessages, SafeMessageReader
from dba_console.core.clock import SYSTEM
from dba_console.keeper.command_status import StampedLine
from dba_console.keeper.launch import CommandSpec
from dba_console.runbooks.requests import Outcome

SAID = (
    "pg_restore: launching item 1 TABLE DATA t\npg_restore: \x1b[2J hostile\npg_restore: finished item 1 TABLE DATA t\n"
)


class Stumbling(DumpMessages):
    """Chokes on a line, on being asked how far it is, or at the end."""

    def __init__(self, at: str) -> None:
        super().__init__("pg_restore", None, 2, SYSTEM)
        self.at, self.asked = at, list[str]()

    def feed(self, lines: Sequence[StampedLine]) -> None:
        self._stumble("feed", any("hostile" in line.text for line in lines))
        super().feed(lines)

    def told(self) -> str:
        self._stumble("told", True)
        return super().told()

    def ended(self, outcome: Outcome, ended_us: int) -> Outcome:
        self._stumble("ended", True)
        return super().ended(outcome, ended_us)

    def _stumble(self, at: str, here: bool) -> None:
        assert "stumbled" not in self.asked, "asked again"
        if here and at == self.at:
            self.asked.append("stumbled")
            raise ValueError("no such sign: \x1b[2J hostile")


def followed(
    place: Path, at: str, code: int, program: str = "pg_restore"
) -> tuple[Outcome, list[StampedLine], ActionControl]:
    """The end of a command that prints what is said, and what was passed on of it."""
    said, fed, controls = place / "said", list[StampedLine](), ActionControl(SYSTEM, lambda: None)
    said.write_text(SAID)
    directory = place / "step.run.1"
    attendance = AttachedCommand(
        directory, SYSTEM, controls, fed.extend, (0, 1), SafeMessageReader(Stumbling(at), program)
    )
    argv = ("/bin/sh", "-c", f'cat "$1" >&2; exit {code}', "sh", str(said))
    try:
        assert attendance.start(CommandSpec(argv=argv, directory=str(directory), tag="T", host="h")) is None
        return attendance.follow(), fed, controls
    finally:
        attendance.close()


@pytest.mark.parametrize("at", ["feed", "told", "ended"])
def test_the_command_goes_on_to_its_end_and_what_it_prints_is_passed_on(tmp_path: Path, at: str) -> None:
    outcome, fed, controls = followed(tmp_path, at, 0)
    assert outcome.state == "ok" and outcome.values["exit"] == 0
    assert [line.text for line in fed if line.stream == "e"] == SAID.splitlines()
    assert outcome.text.startswith("exit 0; its messages were not read to the end: internal error")
    assert "ValueError: no such sign" in outcome.text and "(test_safe_message_reader.py:" in outcome.text
    assert "\x1b" not in outcome.text
    if at != "ended":
        assert "not read to the end" in controls.progress


def test_what_its_messages_would_have_told_is_unknown_and_not_none(tmp_path: Path) -> None:
    outcome, _, _ = followed(tmp_path, "feed", 0)
    assert outcome.values["errors"] == 0, "pg_restore ends with 0 only where there were none"
    assert outcome.values["data_s"] is None and outcome.values["objects"] is None
    assert outcome.values["wall_s"] == outcome.values["seconds"]
    (tmp_path / "psql").mkdir()
    assert followed(tmp_path / "psql", "feed", 0, "psql")[0].values["errors"] is None


def test_errors_nobody_has_counted_are_no_success(tmp_path: Path) -> None:
    outcome, _, _ = followed(tmp_path, "feed", 1)
    assert outcome.state == "failed" and outcome.values["errors"] is None
    assert "exit 1: unknown whether it finished" in outcome.text
