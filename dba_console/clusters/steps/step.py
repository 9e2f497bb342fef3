"""Base of the cutover steps: common settings, and connections to nodes whose identity is checked against the plan.

A step opens and closes its own connections: between two steps the agent may die and another one continue.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any, ClassVar, NamedTuple

from msgspec import Struct

from dba_console.actions.acting_connection import ActingConnection
from dba_console.actions.action import Action, ActionContext, ActionResult, Control
from dba_console.actions.action_preview import ActionPreview
from dba_console.actions.deadline_connection import SESSION_TIMEOUTS
from dba_console.actions.identity import ServerIdentity
from dba_console.clusters.cluster_check import parse_lsn
from dba_console.clusters.cutover_plan import CutoverPlan, cluster_config, load_plan
from dba_console.clusters.host_facts import read_free_space
from dba_console.clusters.node_host import HostConnectionLost, last_line
from dba_console.clusters.pooler_admin import PoolerAdmin
from dba_console.clusters.server_control import ServerControl
from dba_console.core.config import ClusterConfig, NodeConfig
from dba_console.core.declarations import Duration
from dba_console.core.errors import ConsoleError, Refused
from dba_console.core.redact import redact
from dba_console.core.sanitize import clean
from dba_console.core.short_command import CommandResult
from dba_console.core.target import conninfo, parse_conninfo
from dba_console.core.units import human_bytes, parse_duration
from dba_console.watch.probes.postgres.connect import refuse_host_override

APPLICATION = "dba-console:cutover"
CONNECT_S = 3.0
POLL_S = 0.01
"""Poll interval of a step: a longer one would prolong the outage."""


ENDS_S, WAIT_S = 3.0, 0.05
"""How long a server that does not answer is given to end, and how often it is checked."""
FULL_BYTES = 16 << 20
"""Free space below which a server cannot write: it allocates WAL by segments of this size."""


class StepSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    cluster: str
    """Name of the cluster in the configuration."""
    to: str
    """Node to promote."""


class TimedSettings(StepSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    timeout: Duration = "30s"
    """Maximum wait, as a duration."""

    @property
    def timeout_s(self) -> float:
        return parse_duration(self.timeout)


class NothingChanged(Refused):
    """A step failed before it changed anything: an abort has nothing to revert for it."""


class CutoverStep(Action):
    """Base class of the steps."""

    Settings: ClassVar[type[Struct]] = StepSettings
    needs_server: ClassVar[bool] = False
    acts_on_cluster: ClassVar[bool] = True
    no_undo: ClassVar[str] = "this step cannot be reverted"

    safe_to_repeat: ClassVar[str] = ""
    """Why an interrupted step can simply be repeated; empty: its outcome has to be found."""

    def preview(self, settings: Any, context: ActionContext) -> ActionPreview:
        return self.show(load_cutover(settings, context), settings)

    def act(self, settings: Any, preview: ActionPreview, context: ActionContext, control: Control) -> ActionResult:
        """Run the step. A step that failed halfway can be undone too."""
        try:
            return self.run(settings, context, control)
        except NothingChanged:
            raise
        except HostConnectionLost as error:
            return ActionResult(state="unknown", text=clean(redact(error.message)), undo={} if self.undoable else None)
        except ConsoleError as error:
            return ActionResult(state="failed", text=clean(redact(error.message)), undo={} if self.undoable else None)

    def settle(self, settings: Any, preview: ActionPreview, context: ActionContext) -> ActionResult:
        if self.safe_to_repeat:
            return self.retry_result(self.safe_to_repeat)
        return self.find_outcome(load_cutover(settings, context), settings)

    def undo(self, settings: Any, data: Mapping[str, Any], context: ActionContext, control: Control) -> ActionResult:
        try:
            return self.revert(load_cutover(settings, context), settings, control)
        except Refused as error:
            text = "; ".join([error.message, *([error.hint] if error.hint else [])])
            return ActionResult(state="failed", text=clean(redact(text)))

    def run(self, settings: Any, context: ActionContext, control: Control) -> ActionResult:
        return self.do(load_cutover(settings, context), settings, control)

    def show(self, at: Cutover, settings: Any) -> ActionPreview:
        """Return what the step would do."""
        raise NotImplementedError

    def do(self, at: Cutover, settings: Any, control: Control) -> ActionResult:
        """Run the step."""
        raise NotImplementedError

    def find_outcome(self, at: Cutover, settings: Any) -> ActionResult:
        """Return the outcome of the interrupted step."""
        raise NotImplementedError

    def revert(self, at: Cutover, settings: Any, control: Control) -> ActionResult:
        """Revert the step, if `undoable`."""
        return ActionResult(state="failed", text=self.no_undo)

    def retry_result(self, text: str) -> ActionResult:
        """Return the result of a step done not or partly: repeating it is safe, and so is its undo."""
        return ActionResult(state="failed", text=text, again=True, undo={} if self.undoable else None)


class Cutover(NamedTuple):
    """The plan of the run, with the configuration of its nodes."""

    plan: CutoverPlan
    config: ClusterConfig
    context: ActionContext

    def node(self, name: str) -> NodeConfig:
        """Return the configuration of a node. Raises Refused if it was removed."""
        if name not in self.config.nodes:
            raise Refused(f"{name} is no longer in the configuration of {self.plan.cluster}")
        return self.config.nodes[name]

    def control(self, name: str) -> ServerControl:
        planned = self.plan.nodes[name]
        return ServerControl(name, self.node(name), planned.data_directory, planned.bin_directory, self.context.clock)

    def poolers(self) -> Iterator[tuple[str, PoolerAdmin, tuple[str, ...]]]:
        """Return each pooler with its paused databases."""
        for name, databases in self.plan.databases.items():
            if name not in self.config.poolers:
                raise Refused(f"the pooler {name} is no longer in the configuration of {self.plan.cluster}")
            yield name, PoolerAdmin(name, self.config.poolers[name], self.context.clock), databases

    @contextmanager
    def connect(self, name: str) -> Iterator[tuple[ActingConnection, ServerIdentity]]:
        """Connect to a node, and return its identity. Raises ConnectError; Refused if it is another server."""
        refuse_host_override(name, self.node(name).dsn)
        with open_node(self.node(name).dsn, self.context, self.plan.version_num) as connection:
            now = connection.read_identity()
            if now.system_identifier is None:
                raise Refused(f"this role may not read the system identifier of {name}", hint="connect as a superuser")
            if now.system_identifier != self.plan.system_identifier:
                raise Refused(
                    f"{name} is another server: its system identifier is {now.system_identifier}, that of "
                    f"{self.plan.cluster} is {self.plan.system_identifier}"
                )
            yield connection, now


_TIMEOUTS = {"statement_timeout": 0, "lock_timeout": 0, **SESSION_TIMEOUTS}
"""Timeout -> first version that has it. The owner of a database may set them for all sessions: a cutover that lost its
connections between stop and promotion could not even be reverted. Options of the client take precedence."""


@contextmanager
def open_node(dsn: str, context: ActionContext, version_num: int = 0) -> Iterator[ActingConnection]:
    options = parse_conninfo(dsn)
    off = [f"-c {name}=0" for name, since in _TIMEOUTS.items() if since <= version_num]
    dsn = conninfo({**options, "options": " ".join([options.get("options", ""), *off]).strip()})
    with closing(
        ActingConnection(dsn, application=APPLICATION, connect_timeout_s=CONNECT_S, clock=context.clock)
    ) as connection:
        yield connection


def load_cutover(settings: StepSettings, context: ActionContext) -> Cutover:
    """Return the cutover of the run. Raises Refused without a plan, UsageError if the cluster is not configured."""
    return Cutover(
        load_plan(context, settings.cluster, settings.to), cluster_config(context, settings.cluster), context
    )


def does_not_answer(at: Cutover, name: str, error: ConsoleError, control: Control | None = None) -> str:
    """Return a sentence about a node that stopped answering: does it run, is its disk full, what starts it."""
    text = f"{name} does not answer: {error.message}"
    start = ""
    try:
        server = at.control(name)
        for _left in remaining_seconds(at.context, ENDS_S if control is not None else 0.0):
            if not server.running() or (control is not None and control.wait(WAIT_S)):
                break  # a server that fails takes a moment to end
        down = not server.running()
        text += "; it is not running" if down else ""
        full = [mount for mount in read_free_space(server) if mount.free < FULL_BYTES]
        text += "".join(f"; {mount.path} is full: {human_bytes(mount.free)} free" for mount in full)
        start = f"; start it with `{shlex.join(server.start_command())}`" if down else ""
    except ConsoleError:
        pass  # its host does not answer either, or start is not allowed: report what is known
    return clean(redact(f"{text}; its server log says why{start}. When it answers, retry"))


_POSITIONS = """
SELECT pg_last_wal_receive_lsn()::text AS received, pg_last_wal_replay_lsn()::text AS replayed,
       pg_is_wal_replay_paused() AS paused
"""


def wait_for_wal(
    at: Cutover, is_enough: Callable[[int], bool], timeout_s: float, control: Control
) -> tuple[bool, dict[str, Any]]:
    """Wait until the new primary has received and replayed enough WAL; return whether it has, and its last positions.

    Raises ConsoleError if it is no standby.
    """
    row: dict[str, Any] = {}
    with at.connect(at.plan.to) as (connection, now):
        if now.role != "standby":
            raise ConsoleError(f"{at.plan.to} is already a {now.role}")
        for _left in remaining_seconds(at.context, timeout_s):
            [row] = connection.rows(_POSITIONS)
            if all(row[one] is not None and is_enough(parse_lsn(row[one])) for one in ("received", "replayed")):
                return True, row
            if row["paused"] or control.wait(POLL_S):
                break
    return False, row


def missing_wal_reason(row: Mapping[str, Any]) -> str:
    """Return why the WAL has not arrived, by the last positions."""
    return "replay is paused there" if row.get("paused") else "its WAL receiver may have lost the connection"


def printed_line(ended: CommandResult) -> list[str]:
    """Return the last line that a command printed, if any."""
    return [last_line(ended)] if ended.errors.strip() or ended.output.strip() else []


def remaining_seconds(context: ActionContext, timeout_s: float) -> Iterator[float]:
    """Yield the remaining seconds until the timeout: `for left in remaining_seconds(…)`, with a wait in its body."""
    until_us = context.clock.mono_us() + int(timeout_s * 1e6)
    while (left := (until_us - context.clock.mono_us()) / 1e6) > 0:
        yield left
