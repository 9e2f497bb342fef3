"""A key's line is found whatever way TOML lets it be written."""

from __future__ import annotations

import pytest

from dba_console.cli.config_file import key_lines


@pytest.mark.parametrize(
    ("text", "path", "line"),
    [
        ('agent.grace = "1m"', ("agent", "grace"), 1),
        ('\nagent = { grace = "1m" }', ("agent", "grace"), 2),
        ('[targets."db 1"]\ndsn = ""', ("targets", "db 1", "dsn"), 2),
        ('[runbooks]\npath = [\n "a",\n "b",\n]\n[agent]\ngrace = ""', ("agent", "grace"), 7),
        ('x = """\n[agent]\ngrace = 1\n"""\n[agent]\ngrace = ""', ("agent", "grace"), 6),
        ('[agent] # a comment = "x"\ngrace = "1m" # [screen]', ("agent", "grace"), 2),
        ("[[things]]\na = 1\n[[things]]\nb = 2", ("things", "b"), 4),
    ],
)
def test_a_key_is_found_with_its_line(text: str, path: tuple[str, ...], line: int) -> None:
    assert key_lines(text)[path] == line
