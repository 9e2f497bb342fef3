"""`dba-console config`, and configuration errors as every command reports them."""

from __future__ import annotations

import pytest

from tests.cli.console import Console


def test_every_value_is_shown_with_its_source(console: Console) -> None:
    console.write_config('[agent]\ngrace = "1h"\n[targets.prod]\ndsn = "host=db1 password=s3cret"\n')
    done = console.run("config", "show", "--json", DBA_CONSOLE_SESSIONS="/srv/sessions")
    found = {row["key"]: (row["value"], row["origin"]) for row in done.objects()}
    assert found["agent.grace"] == ("1h", f"{console.config}:2")
    assert found["agent.statement_timeout"] == ("2s", "default")
    assert found["recording.directory"] == ("/srv/sessions", "environment DBA_CONSOLE_SESSIONS")
    assert found["targets.prod.dsn"][0] == "host=db1 password=********"
    assert "s3cret" not in done.out + done.err + console.run("config", "show").out


def test_the_path_is_shown_whether_or_not_the_file_exists(console: Console) -> None:
    assert console.run("config", "path").out.strip() == str(console.config)


@pytest.mark.parametrize("command", [("config", "show"), ("show",), ("doctor",), ("record",), ("host=x",)])
def test_every_command_refuses_a_file_with_an_error_and_names_the_line(
    console: Console, command: tuple[str, ...]
) -> None:
    console.write_config('[agent]\ngraze = "1h"\n')
    done = console.run(*command)
    assert (done.code, done.out) == (2, "")
    assert done.err == f"error: {console.config}:2: agent has no key 'graze'\nhint: did you mean grace?\n"


def test_a_check_that_cannot_run_is_unknown_and_not_critical(console: Console) -> None:
    console.write_config("nonsense = 1\n")
    done = console.run("check")
    assert done.code == 3
    assert done.out.startswith("DBACONSOLE UNKNOWN - ")
