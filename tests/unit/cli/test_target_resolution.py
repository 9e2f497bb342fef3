"""What was typed, what is configured and what libpq would do lead to one target."""

from __future__ import annotations

from pathlib import Path

import pytest

from dba_console.cli.config_file import LoadedConfig, load_config
from dba_console.cli.target_resolution import resolve_target
from dba_console.core.errors import ConfigError, UsageError

CONFIG = """
default_target = "prod"
[targets.prod]
dsn = "host=db1 dbname=app"
[targets.staging]
dsn = "postgresql://app@db2/app"
host_panels = false
"""


@pytest.fixture
def loaded(tmp_path: Path) -> LoadedConfig:
    file = tmp_path / "config.toml"
    file.write_text(CONFIG)
    return load_config(file, {})


def test_a_connection_string_is_used_as_it_is(loaded: LoadedConfig) -> None:
    target = resolve_target("host=db9 dbname=x", loaded, environ={})
    assert (target.name, target.conninfo) == ("x@db9", "host=db9 dbname=x")


def test_a_word_names_a_configured_target(loaded: LoadedConfig) -> None:
    target = resolve_target("staging", loaded, environ={})
    assert (target.name, target.host_panels) == ("staging", False)


def test_a_named_target_and_its_connection_string_share_one_key(loaded: LoadedConfig) -> None:
    named = resolve_target("staging", loaded, environ={})
    typed = resolve_target("host=db2 user=app dbname=app", loaded, environ={})
    assert named.key == typed.key


def test_no_argument_means_the_default_target(loaded: LoadedConfig) -> None:
    assert resolve_target(None, loaded, environ={"PGHOST": "elsewhere"}).name == "prod"


def test_without_a_default_target_the_libpq_environment_decides(tmp_path: Path) -> None:
    empty = load_config(tmp_path / "none.toml", {})
    target = resolve_target(None, empty, environ={"PGHOST": "db7", "PGDATABASE": "app"})
    assert target.name == "app@db7"


def test_an_unknown_name_gets_the_nearest_match(loaded: LoadedConfig) -> None:
    with pytest.raises(UsageError) as caught:
        resolve_target("stagin", loaded, environ={})
    assert "no target named 'stagin'" in str(caught.value)
    assert "did you mean staging?" in str(caught.value)


def test_an_unknown_name_without_a_match_shows_how_to_name_a_database(loaded: LoadedConfig) -> None:
    with pytest.raises(UsageError, match="for a database of that name use 'dbname=zzz'"):
        resolve_target("zzz", loaded, environ={})


def test_a_missing_default_target_is_reported_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('default_target = "gone"\n')
    with pytest.raises(ConfigError, match=r"default_target \(.*config\.toml:1\): no target named 'gone'"):
        resolve_target(None, load_config(file, {}), environ={})


@pytest.mark.parametrize("dsn", ["host=db1 password=s3cret", "postgresql://app:s3cret@db1/app"])
def test_a_password_on_the_command_line_works_with_a_warning_that_does_not_repeat_it(
    loaded: LoadedConfig, dsn: str
) -> None:
    message: list[str] = []
    target = resolve_target(dsn, loaded, environ={}, warn=message.append)
    assert "s3cret" in target.conninfo
    assert "s3cret" not in repr(target)
    assert len(message) == 1
    assert "s3cret" not in message[0]
    assert ".pgpass" in message[0]


def test_a_connection_string_without_a_password_causes_no_warning(loaded: LoadedConfig) -> None:
    message: list[str] = []
    resolve_target("host=db1 passfile=/x", loaded, environ={}, warn=message.append)
    assert message == []


def test_invalid_text_is_not_a_connection_string(loaded: LoadedConfig) -> None:
    with pytest.raises(UsageError, match="not UTF-8 text"):
        resolve_target("dbname=\udcff", loaded, environ={})


def test_an_environment_with_invalid_text_still_names_a_target(loaded: LoadedConfig) -> None:
    assert resolve_target("host=db9", loaded, environ={"PGDATABASE": "\udcff"}).key
