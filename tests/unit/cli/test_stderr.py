"""Diagnostics on a terminal."""

from __future__ import annotations

import pytest

from dba_console.cli.stderr import print_diagnostic


def test_a_diagnostic_that_quotes_foreign_text_has_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    print_diagnostic("error: no run in a\x1b[2Jb\u202ec\nhint: d")
    assert capsys.readouterr().err == "error: no run in a␛[2Jb\ufffdc\nhint: d\n"
