"""Which agent is meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from dba_console.agent.find_or_start import RunningAgent
from dba_console.cli.attach import choose_agent
from dba_console.cli.config_file import LoadedConfig, load_config
from dba_console.cli.target_resolution import resolve_target
from dba_console.core.errors import ConnectError, UsageError


@pytest.fixture
def loaded(tmp_path: Path) -> LoadedConfig:
    return load_config(tmp_path / "none.toml", {})


def agent(target: str, key: str) -> RunningAgent:
    return RunningAgent(key, Path(f"/run/{key}.sock"), 1, target, None, 0, 0)


TWO = [agent("app@db1", "aaaa11112222"), agent("app@db2", "bbbb11112222")]


def test_the_only_agent_needs_no_name(loaded: LoadedConfig) -> None:
    assert choose_agent(TWO[:1], None, loaded, ask=None) is TWO[0]


def test_one_of_several_is_selected_by_name_key_or_prefix(loaded: LoadedConfig) -> None:
    assert choose_agent(TWO, "app@db2", loaded, ask=None) is TWO[1]
    assert choose_agent(TWO, "aaaa11112222", loaded, ask=None) is TWO[0]
    assert choose_agent(TWO, "bbbb", loaded, ask=None) is TWO[1]


def test_a_connection_string_means_the_agent_of_that_target(loaded: LoadedConfig) -> None:
    mine = agent("x", resolve_target("host=db3 dbname=x user=u", loaded).key)
    assert choose_agent([*TWO, mine], "postgresql://u@db3/x", loaded, ask=None) is mine


def test_with_several_and_no_name_a_question_is_asked(loaded: LoadedConfig) -> None:
    assert choose_agent(TWO, None, loaded, ask=lambda agents: agents[1]) is TWO[1]


def test_with_several_and_no_operator_they_are_listed(loaded: LoadedConfig) -> None:
    with pytest.raises(UsageError, match=r"name one of: app@db1 \(aaaa11112222\), app@db2"):
        choose_agent(TWO, "app@", loaded, ask=None)


def test_an_unknown_name_is_reported_with_the_running_ones(loaded: LoadedConfig) -> None:
    with pytest.raises(ConnectError, match="running: app@db1"):
        choose_agent(TWO, "nosuch", loaded, ask=None)


def test_a_missing_agent_is_a_connection_error(loaded: LoadedConfig) -> None:
    with pytest.raises(ConnectError, match="no agent runs"):
        choose_agent([], None, loaded, ask=None)
