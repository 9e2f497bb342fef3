"""The steps of a cutover refuse to act without its plan, or with the plan of another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from dba_console.actions.action import ActionContext
from dba_console.actions.registry import ACTIONS, parse_settings
from dba_console.clusters.cutover_plan import CutoverPlan, NodePlan, load_plan, save_plan
from dba_console.core.config import ClusterConfig, Config, NodeConfig
from dba_console.core.errors import Refused, UsageError

STEPS = [name for name in ACTIONS if ACTIONS[name].acts_on_cluster and name != "cutover-begin"]
SETTINGS = {"cluster": "shop", "to": "db2"}


def context_with_directory(directory: Path) -> ActionContext:
    nodes = {name: NodeConfig(dsn="host=127.0.0.1 port=1") for name in ("db1", "db2")}
    return ActionContext(run_directory=str(directory), config=Config(clusters={"shop": ClusterConfig(nodes=nodes)}))


def plan(cluster: str = "shop", to: str = "db2") -> CutoverPlan:
    nodes = {name: NodePlan(data_directory=f"/nowhere/{name}") for name in ("db1", "db2")}
    return CutoverPlan(
        cluster=cluster, kind="cutover", old="db1", to=to, system_identifier="7", timeline=1, version_num=150018,
        nodes=nodes,
    )  # fmt: skip


@pytest.mark.parametrize("name", STEPS)
def test_a_step_of_a_run_that_has_not_started_a_cutover_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="has not started a cutover"):
        ACTIONS[name].preview(parse_settings(name, SETTINGS), context_with_directory(tmp_path))


@pytest.mark.parametrize("other", [{"cluster": "store"}, {"to": "db1"}])
def test_the_plan_of_another_cutover_is_refused(other: dict[str, str], tmp_path: Path) -> None:
    here = context_with_directory(tmp_path)
    save_plan(here, plan(**other))
    with pytest.raises(Refused, match="not of shop to db2"):
        load_plan(here, "shop", "db2")


def test_a_plan_that_cannot_be_read_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "cutover.json").write_text("{")
    with pytest.raises(Refused, match="cannot be read"):
        load_plan(context_with_directory(tmp_path), "shop", "db2")


def test_a_cluster_that_is_not_configured_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no cluster 'store'"):
        ACTIONS["cutover-begin"].preview(
            parse_settings("cutover-begin", SETTINGS | {"cluster": "store"}), context_with_directory(tmp_path)
        )
