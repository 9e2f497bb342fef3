"""What one cutover acts on, decided when it begins and kept in the directory of its run.

Every later step reads it again, also by an agent that takes the run up after a crash: the configuration may change
meanwhile, the nodes have other roles by then, and the cutover still means the same servers.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from dba_console.actions.action import ActionContext
from dba_console.clusters.cluster_check import parse_lsn
from dba_console.clusters.node_state import NodeState
from dba_console.core.atomic_files import write_atomically
from dba_console.core.config import ClusterConfig, NodeConfig
from dba_console.core.decoding import from_json
from dba_console.core.errors import Refused, SessionError, UsageError
from dba_console.core.target import parse_conninfo

FILE = "cutover.json"
LIMIT = 8 * 1024 * 1024
"""A pooler that shows names without end is refused before anything is changed."""
LOCK_SLOT = "dba_console_cutover"
"""A replication slot that keeps nothing, on the old primary: a second cutover of the cluster cannot make it."""
Kind = Literal["cutover", "failover"]


class NodePlan(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One node as it was when the cutover began."""

    data_directory: str
    bin_directory: str | None = None
    slot: str = ""
    """Its replication slot on whichever node is primary; empty: it follows without one."""
    reached: bool = True


class ManagerPlan(Struct, frozen=True, kw_only=True):
    """The cluster manager whose own switchover changes the primary, in place of our stop, fence and promotion."""

    kind: str
    node: str
    """On whose host its switchover runs, as the owner of the data directory."""
    switchover: tuple[str, ...]
    status: str
    """The command that shows how it sees the cluster."""


class CutoverPlan(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The servers and databases of one cutover, and what its steps have found out so far."""

    cluster: str
    kind: Kind
    old: str
    """The node that is primary when it begins, or was."""
    to: str
    system_identifier: str
    timeline: int
    version_num: int
    nodes: dict[str, NodePlan]
    databases: dict[str, tuple[str, ...]] = {}
    """Databases of each pooler that are held."""
    slots_made: tuple[str, ...] = ()
    """Replication slots made on the new primary for the nodes that will follow it."""
    has_lock_slot: bool = False
    """The slot that keeps other cutovers away was made."""
    limits: dict[str, int] = {}
    """CONNECTION LIMIT of each database before clients were kept out."""
    shutdown_lsn: str = ""
    """Checkpoint with which the old primary was shut down."""
    manager: ManagerPlan | None = None
    """None: nothing manages the cluster, or what does is kept from acting."""
    held_lsn: str = ""
    """Where WAL of a managed primary ended when clients were held: the new timeline must not begin before it."""
    lost_bytes: int | None = None
    """In a failover: WAL that the old primary had and the new one has not, at least; None: unknown."""
    new_timeline: int = 0
    """Of the new primary; 0: not promoted yet."""

    @property
    def others(self) -> list[str]:
        """Nodes that are neither the old nor the new primary."""
        return [name for name in self.nodes if name not in (self.old, self.to)]


def save_plan(context: ActionContext, plan: CutoverPlan) -> None:
    """Keep it, whole and synced. Raises SessionError; Refused where it could not be read again."""
    if len(content := msgspec.json.encode(plan)) > LIMIT:
        raise Refused(f"the plan of this cutover has {len(content)} bytes, more than {LIMIT}: too many databases")
    try:
        write_atomically(context.run_directory, FILE, content)
    except OSError as error:
        text = f"the plan of this cutover cannot be written to {context.run_directory}: {error.strerror}"
        raise SessionError(text, hint="make room there, or make it writable, then try again") from None


def load_plan(context: ActionContext, cluster: str, to: str) -> CutoverPlan:
    """The plan of this run. Raises Refused where it has none yet, or one of another cluster or target."""
    try:
        descriptor = os.open(Path(context.run_directory) / FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            plan = from_json(file.read(LIMIT), CutoverPlan)
    except FileNotFoundError:
        raise Refused("this run has not begun a cutover", hint="its first step checks the cluster") from None
    except (OSError, msgspec.MsgspecError) as error:
        raise Refused(f"the plan of this cutover cannot be read: {error}", hint="start a new run") from None
    if (plan.cluster, plan.to) != (cluster, to):
        raise Refused(f"this run is a cutover of {plan.cluster} to {plan.to}, not of {cluster} to {to}")
    return plan


def cluster_config(context: ActionContext, name: str) -> ClusterConfig:
    """Raises UsageError where the configuration of this agent has no such cluster."""
    clusters = {} if context.config is None else context.config.clusters
    if name not in clusters:
        raise UsageError(
            f"no cluster {name!r} is configured for this agent; there are: {', '.join(clusters) or 'none'}",
            hint="an agent reads the configuration when it starts: end it after a change",
        )
    return clusters[name]


def slot_name(node: str) -> str:
    """A replication slot for a node: lower case, digits and underscores only (ReplicationSlotValidateName).

    >>> slot_name("DB-1.example")
    'db_1_example'
    """
    return "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in node.lower())[:63]


def replication_address(config: NodeConfig) -> dict[str, str]:
    """Host and port at which other nodes reach a node."""
    options = parse_conninfo(config.replication_dsn or config.dsn)
    return {key: options[key] for key in ("host", "hostaddr", "port") if key in options}


def node_address(config: NodeConfig) -> tuple[str, str]:
    """Host, or socket directory, and port of a node as poolers reach it."""
    address = replication_address(config)
    return address.get("host") or address.get("hostaddr") or "127.0.0.1", address.get("port") or "5432"


def conninfo_to(base: str, config: NodeConfig, follower: str) -> str:
    """`primary_conninfo` of a node that follows the one of `config`: as in `base`, which leads to another node, with
    the address exchanged."""
    options = parse_conninfo(base)
    unchanged = {key: value for key, value in options.items() if key not in ("host", "hostaddr", "port")}
    if "application_name" in unchanged:
        unchanged["application_name"] = follower
    return conninfo({**unchanged, **replication_address(config)})


def conninfo(values: dict[str, str]) -> str:
    """Keywords and values as libpq reads them.

    >>> conninfo({"host": "/tmp/a b", "password": "it's"})
    "host='/tmp/a b' password='it\\\\'s'"
    """
    return " ".join(f"{key}={_quoted(value)}" for key, value in values.items())


def _quoted(value: str) -> str:
    if value and not any(sign in " '\\" or sign.isspace() for sign in value):
        return value
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def has_replayed_past(node: NodeState, lsn: str) -> bool:
    """Whether a standby has received and replayed everything up to and with the record at this position."""
    positions = (node.lsn, node.replayed_lsn)
    return all(one is not None and parse_lsn(one) > parse_lsn(lsn) for one in positions)
