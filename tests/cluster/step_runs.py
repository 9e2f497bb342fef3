"""Steps of a cutover on two real servers, without a runbook: a plan made by hand, and a control that never stops."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from dba_console.actions.action import ActionContext, ActionResult
from dba_console.actions.action_preview import ActionPreview
from dba_console.actions.registry import ACTIONS, parse_settings
from dba_console.clusters.cutover_plan import CutoverPlan, NodePlan, save_plan
from dba_console.core.config import ClusterConfig, Config, NodeConfig
from dba_console.demo.temporary_server import Cluster


class Going:
    """A control that is never stopped; keeps what was reported."""

    def __init__(self) -> None:
        self.reported: list[str] = []

    def stop_requested(self) -> bool:
        return False

    def pause_requested(self) -> bool:
        return False

    def report_progress(self, text: str, done: float | None = None, total: float | None = None, unit: str = "") -> None:
        self.reported.append(text)

    def wait(self, seconds: float) -> bool:
        threading.Event().wait(seconds)
        return False


class StepRuns:
    """A cutover of `shop` from db1 (`old`) to db2 (`new`), which is promoted on `timeline`."""

    def __init__(
        self,
        directory: Path,
        old: Cluster,
        new: Cluster,
        timeline: int = 2,
        third: Cluster | None = None,
        slots: dict[str, str] | None = None,
        **values: Any,
    ) -> None:
        self.control = Going()
        nodes = {"db1": old, "db2": new, **({} if third is None else {"db3": third})}
        config = {
            name: NodeConfig(dsn=one.dsn(), data_directory=str(one.data_directory)) for name, one in nodes.items()
        }
        self.context = ActionContext(
            run_directory=str(directory), run="run-1", config=Config(clusters={"shop": ClusterConfig(nodes=config)})
        )
        planned = {
            name: NodePlan(
                data_directory=str(one.data_directory),
                bin_directory=str(one.binaries.directory),
                slot=(slots or {}).get(name, ""),
            )
            for name, one in nodes.items()
        }
        identifier = new.psql("select system_identifier::text from pg_control_system()")
        plan = CutoverPlan(
            cluster="shop", kind="failover", old="db1", to="db2", system_identifier=identifier, timeline=timeline - 1,
            version_num=int(new.psql("show server_version_num")), nodes=planned, new_timeline=timeline,
        )  # fmt: skip
        save_plan(self.context, replace(plan, **values))

    def show(self, name: str, **settings: Any) -> ActionPreview:
        return ACTIONS[name].preview(self._settings(name, settings), self.context)

    def act(self, name: str, **settings: Any) -> ActionResult:
        shown = self.show(name, **settings)
        assert shown.refusal is None, shown
        return ACTIONS[name].act(self._settings(name, settings), shown, self.context, self.control)

    def _settings(self, name: str, settings: dict[str, Any]) -> Any:
        return parse_settings(name, {"cluster": "shop", "to": "db2", **settings})
