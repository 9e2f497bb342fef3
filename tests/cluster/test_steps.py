"""The steps of a cutover refuse to act without its plan, or with the plan of another one."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from dba_console.actions.action import ActionContext
from dba_console.actions.registry import ACTIONS, parse_settings
from dba_console.clusters.cutover_plan import CutoverPlan, NodePlan, load_plan, save_plan
from dba_console.clusters.heartbeat import AnsweringServer, HeartbeatOutage
from dba_console.clusters.steps.release_clients import writing_node
from dba_console.clusters.steps.step import StepSettings
from dba_console.core.config import ClusterConfig, Config, NodeConfig
from dba_console.core.errors import Refused, UsageError

BEGINNING = ("cutover-begin", "failover-begin", "failover-evidence")
STEPS = [name for name in ACTIONS if issubclass(ACTIONS[name].Settings, StepSettings) and name not in BEGINNING]
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


@pytest.mark.parametrize(
    ("timeline", "to_us", "node"), [(1, 9_000_000, "db1"), (1, 5_500_000, None), (2, 9_000_000, "db2"), (2, 7, None)]
)
def test_the_node_that_acknowledges_writes_after_the_promotion_is_told_by_its_timeline(
    timeline: int, to_us: int, node: str | None
) -> None:
    promoted = structs.replace(plan(), new_timeline=2, promoted_us=5_000_000)
    writes = AnsweringServer(kind="write", timeline=timeline, from_us=1, to_us=to_us)
    reads = AnsweringServer(kind="read", timeline=1, from_us=1, to_us=9_000_000)
    assert writing_node(promoted, HeartbeatOutage(servers=(reads, writes)), 8_000_000) == node


def test_a_cluster_that_is_not_configured_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no cluster 'store'"):
        ACTIONS["cutover-begin"].preview(
            parse_settings("cutover-begin", SETTINGS | {"cluster": "store"}), context_with_directory(tmp_path)
        )
