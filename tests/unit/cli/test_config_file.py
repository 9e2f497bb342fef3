"""The configuration file is read strictly, and every complaint says where."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dba_console.cli.config_command import setting_rows
from dba_console.cli.config_file import LoadedConfig, load_config, sessions_directory
from dba_console.core.errors import ConfigError


def load(tmp_path: Path, text: str, **environ: str) -> LoadedConfig:
    file = tmp_path / "config.toml"
    file.write_text(text, "utf-8")
    return load_config(file, environ)


def complaint(tmp_path: Path, text: str, **environ: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text, **environ)
    return str(caught.value)


def test_a_missing_file_means_defaults(tmp_path: Path) -> None:
    loaded = load_config(tmp_path / "none.toml", {})
    assert loaded.config.agent.grace == "10m"
    assert loaded.origin("agent.grace") == "default"
    assert not loaded.file_found


def test_a_file_named_by_the_environment_must_exist(tmp_path: Path) -> None:
    missing = tmp_path / "none.toml"
    with pytest.raises(ConfigError, match=r"no configuration file .*none\.toml"):
        load_config(missing, {"DBA_CONSOLE_CONFIG": str(missing)})


def test_a_value_of_the_file_keeps_its_line_number(tmp_path: Path) -> None:
    loaded = load(tmp_path, '# the agent\n\n[agent]\ngrace = "1h"\n')
    assert loaded.config.agent.grace == "1h"
    assert loaded.origin("agent.grace") == f"{tmp_path}/config.toml:4"


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ('[agent]\ninterval = "1s"\ngraze = "1h"\n', ":3: agent has no key 'graze'\nhint: did you mean grace?"),
        (
            '[targets.db1]\ndsn = "host=db1"\nhost_panel = true\n',
            ":3: targets.db1 has no key 'host_panel'\nhint: did you mean host_panels?",
        ),
        ('[screen]\nmouse = "yes"\n', ":2: screen.mouse: 'yes' is not true or false"),
        (
            "[agent]\ninterval = 1\n",
            ':2: agent.interval must be a duration, not a number\nhint: write it in quotes: "1"',
        ),
        ('[recording]\nkeep = "long"\n', ":2: recording.keep: not a duration: 'long'"),
        ('[agent]\ninterval = "10ms"\n', "the minimum is 250ms"),
        (
            "[targets.db1]\nhost_panels = true\n",
            ":1: targets.db1 needs 'dsn'\nhint: libpq connection string, URI,",
        ),
        ("agent = 3\n", ":1: agent must be a table, not a number"),
        ("[agent\ngrace = 1\n", "is not valid TOML"),
    ],
)
def test_an_error_is_named_with_its_line_and_a_hint(tmp_path: Path, text: str, reported: str) -> None:
    complaint_text = complaint(tmp_path, text)
    assert f"{tmp_path}/config.toml" in complaint_text and reported in complaint_text


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="is not UTF-8 text"):
        load_config(file, {})


@pytest.mark.root
def test_an_unreadable_file_in_the_home_of_another_user_names_that_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, 65534, 65534)
    for owner, hint in ((str(home), f"HOME is {home}, another user's: `sudo -H -u USER …` sets it"), (tmp_path, None)):
        monkeypatch.setenv("HOME", str(owner))
        with pytest.raises(ConfigError, match="cannot read") as failure:
            load_config(tmp_path, {})
        assert failure.value.hint == hint


def test_a_directory_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        load_config(tmp_path, {})


def test_the_environment_overrides_the_file(tmp_path: Path) -> None:
    loaded = load(tmp_path, '[recording]\ndirectory = "/file"\n', DBA_CONSOLE_SESSIONS="/variable")
    assert sessions_directory(loaded.config) == Path("/variable")
    assert loaded.origin("recording.directory") == "environment DBA_CONSOLE_SESSIONS"


def test_any_single_value_can_come_from_the_environment(tmp_path: Path) -> None:
    loaded = load(tmp_path, "", DBA_CONSOLE_AGENT_GRACE="forever", DBA_CONSOLE_SCREEN_MOUSE="off")
    assert loaded.config.agent.grace == "forever"
    assert loaded.config.screen.mouse is False
    assert loaded.origin("screen.mouse") == "environment DBA_CONSOLE_SCREEN_MOUSE"


def test_an_invalid_variable_is_named(tmp_path: Path) -> None:
    assert "DBA_CONSOLE_SCREEN_MOUSE must be true or false" in complaint(tmp_path, "", DBA_CONSOLE_SCREEN_MOUSE="maybe")
    assert "DBA_CONSOLE_AGENT_GRACE: agent.grace: not a dur" in complaint(tmp_path, "", DBA_CONSOLE_AGENT_GRACE="soon")


def test_an_option_overrides_everything_and_says_so(tmp_path: Path) -> None:
    loaded = load(tmp_path, "", DBA_CONSOLE_SESSIONS="/variable")
    loaded = loaded.with_option(("recording", "directory"), "/option", "--sessions")
    assert sessions_directory(loaded.config) == Path("/option")
    assert loaded.origin("recording.directory") == "option --sessions"


def test_a_password_in_a_target_is_neither_shown_nor_in_a_repr(tmp_path: Path) -> None:
    loaded = load(tmp_path, '[targets.db1]\ndsn = "host=db1 password=s3cret"\n')
    shown = {key: value for key, value, _ in setting_rows(loaded)}
    assert shown["targets.db1.dsn"] == "host=db1 password=********"
    assert "s3cret" not in repr(loaded)


def test_windows_of_jobs_are_durations_and_shown_with_their_source(tmp_path: Path) -> None:
    text = '[jobs]\nwindow = "8h"\n[jobs.windows]\n"pg_dump of app" = "90m"\n'
    rows = {key: (value, origin) for key, value, origin in setting_rows(load(tmp_path, text))}
    assert rows["jobs.window"] == ("8h", f"{tmp_path}/config.toml:2")
    assert rows['jobs.windows."pg_dump of app"'] == ("90m", f"{tmp_path}/config.toml:4")
    assert load(tmp_path, text, DBA_CONSOLE_JOBS_WINDOW="6h").config.jobs.window == "6h"
    for wrong in ('window = "0s"', 'windows = { a = "soon" }', "windows = { a = 3 }", 'windows = "8h"'):
        assert "jobs.window" in complaint(tmp_path, f"[jobs]\n{wrong}\n")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('run = ["move-ip", "{node}"]', "unknown placeholder {node}\nhint: known placeholders: cluster, from, to"),
        ('run = ["move-ip"]\nundo = ["{nodes}"]', "unknown placeholder {nodes}"),
        ("run = []", "names no program"),
        ('run = [""]', "names no program"),
        ('run = ["move-ip"]\ntimeout_s = 0', "must be a number of seconds greater than 0"),
    ],
)
def test_a_cutover_command_that_cannot_run_is_refused(tmp_path: Path, line: str, message: str) -> None:
    for kind in ("addresses", "hooks"):
        text = complaint(tmp_path, f'[clusters.shop.nodes.db1]\ndsn = ""\n[clusters.shop.{kind}.vip]\n{line}\n')
        assert message in text and f"clusters.shop.{kind}.vip." in text


def test_braces_without_a_known_name_stay_in_a_cutover_command(tmp_path: Path) -> None:
    text = """[clusters.shop.nodes.db1]\ndsn = ""\n[clusters.shop.hooks.api]\nrun = ["curl", '{"to": "{to}"}']\n"""
    assert load(tmp_path, text).config.clusters["shop"].hooks["api"].run == ["curl", '{"to": "{to}"}']
