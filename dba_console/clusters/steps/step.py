"""What the steps of a cutover share: their settings, and how they reach nodes that are what the plan says.

A step opens what it needs and closes it: between two steps an agent may die and another one go on.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any, ClassVar, NamedTuple

from msgspec import Struct

from dba_console.actions.acting_connection import ActingConnection
from dba_console.actions.action import ActionContext, ActionPreview, ActionResult, Control
from dba_console.actions.identity import ServerIdentity
from dba_console.clusters.cutover_plan import CutoverPlan, cluster_config, conninfo, load_plan
from dba_console.clusters.host_facts import read_free_space
from dba_console.clusters.node_host import HostConnectionLost
from dba_console.clusters.pooler_admin import PoolerAdmin
from dba_console.clusters.server_control import ServerControl
from dba_console.core.config import ClusterConfig, NodeConfig
from dba_console.core.errors import ConsoleError, Refused
from dba_console.core.redact import redact
from dba_console.core.sanitize import clean
from dba_console.core.short_command import CommandResult
from dba_console.core.target import parse_conninfo
from dba_console.core.units import human_bytes, parse_duration
from dba_console.watch.probes.postgres.connect import refuse_host_override

APPLICATION = "dba-console:cutover"
CONNECT_S = 3.0
POLL_S = 0.01
"""Between two readings of what a step waits for: the outage lasts as long as it waits too long."""


ENDS_S, WAIT_S = 3.0, 0.05
"""How long a server that does not answer is given to end, and how often it is asked."""
FULL_BYTES = 16 << 20
"""Free space with which a server cannot write: it takes a segment of WAL at a time."""


class StepSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    cluster: str
    """Name of the cluster in the configuration."""
    to: str
    """The node that becomes the primary."""


class TimedSettings(StepSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    timeout: str = "30s"
    """How long it waits at most, as a duration."""

    @property
    def timeout_s(self) -> float:
        return parse_duration(self.timeout)


class NothingChanged(Refused):
    """A step failed before it changed anything: giving up is as if it had not been tried."""


class CutoverStep:
    """What is the same for every step."""

    Settings: ClassVar[type[Struct]] = StepSettings
    needs_server: ClassVar[bool] = False
    needs_root: ClassVar[bool] = False
    acts_on_cluster: ClassVar[bool] = True
    undoable: ClassVar[bool] = False

    def act(self, settings: Any, preview: ActionPreview, context: ActionContext, control: Control) -> ActionResult:
        """Do it. What fails in the middle can be undone as well."""
        try:
            return self.do(settings, context, control)
        except NothingChanged:
            raise
        except HostConnectionLost as error:
            return ActionResult(state="unknown", text=clean(redact(error.message)), undo={} if self.undoable else None)
        except ConsoleError as error:
            return ActionResult(state="failed", text=clean(redact(error.message)), undo={} if self.undoable else None)

    def do(self, settings: Any, context: ActionContext, control: Control) -> ActionResult:
        raise NotImplementedError

    def undo(self, settings: Any, data: Mapping[str, Any], context: ActionContext, control: Control) -> ActionResult:
        return ActionResult(state="failed", text="nothing of it can be reverted")

    def retry_result(self, text: str) -> ActionResult:
        """Of a step that was not done, or in part: doing it again is safe, and so is undoing it."""
        return ActionResult(state="failed", text=text, again=True, undo={} if self.undoable else None)


class Cutover(NamedTuple):
    """The plan of the run, and the configuration by which its nodes are reached."""

    plan: CutoverPlan
    config: ClusterConfig
    context: ActionContext

    def node(self, name: str) -> NodeConfig:
        """Raises Refused where it is configured no more."""
        if name not in self.config.nodes:
            raise Refused(f"{name} is not in the configuration of {self.plan.cluster} any more")
        return self.config.nodes[name]

    def control(self, name: str) -> ServerControl:
        planned = self.plan.nodes[name]
        return ServerControl(name, self.node(name), planned.data_directory, planned.bin_directory, self.context.clock)

    def poolers(self) -> Iterator[tuple[str, PoolerAdmin, tuple[str, ...]]]:
        """Each pooler with its databases that are held."""
        for name, databases in self.plan.databases.items():
            if name not in self.config.poolers:
                raise Refused(f"the pooler {name} is not in the configuration of {self.plan.cluster} any more")
            yield name, PoolerAdmin(name, self.config.poolers[name], self.context.clock), databases

    @contextmanager
    def connect(self, name: str) -> Iterator[tuple[ActingConnection, ServerIdentity]]:
        """A connection to a node, and who answers there. Raises ConnectError; Refused where it is another server."""
        refuse_host_override(name, self.node(name).dsn)
        with open_node(self.node(name).dsn, self.context, self.plan.version_num) as connection:
            now = connection.read_identity()
            if now.system_identifier is None:
                raise Refused(
                    f"{name} does not let this role read its system identifier", hint="connect as a superuser"
                )
            if now.system_identifier != self.plan.system_identifier:
                raise Refused(
                    f"{name} is another server: its system identifier is {now.system_identifier}, that of "
                    f"{self.plan.cluster} is {self.plan.system_identifier}"
                )
            yield connection, now


_TIMEOUTS = {
    "statement_timeout": 0, "lock_timeout": 0, "idle_in_transaction_session_timeout": 0, "idle_session_timeout": 140000,
    "transaction_timeout": 170000,
}  # fmt: skip
"""And the version that has it first. The owner of a database may set them for all who connect: a cutover that lost
its connections between stop and promotion could not even be reverted. What a client asks for goes before that."""


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
    """Raises Refused where the run has no plan, UsageError where the cluster is not configured."""
    return Cutover(
        load_plan(context, settings.cluster, settings.to), cluster_config(context, settings.cluster), context
    )


def does_not_answer(at: Cutover, name: str, error: ConsoleError, control: Control | None = None) -> str:
    """A sentence for a node that ceased to answer: whether it runs, whether its disk is full, how it is started."""
    text, start = f"{name} does not answer: {error.message}", ""
    try:
        server = at.control(name)
        for _left in remaining_seconds(at.context, ENDS_S if control is not None else 0.0):
            if not server.running() or (control is not None and control.wait(WAIT_S)):
                break  # a server that ends on an error of its own needs a moment for it
        down = not server.running()
        text += "; it is not running" if down else ""
        full = [mount for mount in read_free_space(server) if mount.free < FULL_BYTES]
        text += "".join(f"; {mount.path} is full: {human_bytes(mount.free)} free" for mount in full)
        start = f"; start it with `{shlex.join(server.start_command())}`" if down else ""
    except ConsoleError:
        pass  # its host does not answer either, or may not be used to start it: what is known is enough
    return clean(redact(f"{text}; its server log says why{start}. When it answers, retry"))


def printed_line(ended: CommandResult) -> list[str]:
    """What a command printed last, where it printed anything."""
    lines = (ended.errors.strip() or ended.output.strip()).splitlines()
    return [clean(redact(lines[-1]))] if lines else []


def remaining_seconds(context: ActionContext, timeout_s: float) -> Iterator[float]:
    """Seconds left, until there are none: `for left in bounded(…)` with a wait in its body."""
    until_us = context.clock.mono_us() + int(timeout_s * 1e6)
    while (left := (until_us - context.clock.mono_us()) / 1e6) > 0:
        yield left
