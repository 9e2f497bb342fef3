"""The one way back to a primary asks the other nodes first."""

from __future__ import annotations

from pathlib import Path

import dba_console

PACKAGE = Path(dba_console.__file__).parent


def test_nothing_but_unfence_lets_a_stopped_server_start_as_a_primary() -> None:
    callers = [path.name for path in PACKAGE.rglob("*.py") if ".undo_standby(" in path.read_text()]
    assert callers == ["second_primary.py"]
