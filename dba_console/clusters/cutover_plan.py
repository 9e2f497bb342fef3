"""The plan of one cutover: its servers and databases, decided when it begins and saved in the directory of its run.

Every later step loads it, also in an agent that resumes the run after a crash: configuration and roles of the nodes may
have changed by then, but the cutover acts on the same servers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dba_console.actions.action import ActionContext
from dba_console.clusters.subject.readings import CutoverMark
from dba_console.core.atomic_files import read_small, write_atomically
from dba_console.core.config import ClusterConfig, NodeConfig
from dba_console.core.decoding import from_json
from dba_console.core.errors import Refused, SessionError, UsageError
from dba_console.core.target import conninfo, parse_conninfo

FILE = "cutover.json"
LIMIT = 8 * 1024 * 1024
"""Maximum bytes: a pooler with too many names is refused before anything is changed."""
LOCK_SLOT = "dba_console_cutover"
"""A replication slot without WAL on the old primary: a second cutover of the cluster cannot create it."""
Kind = Literal["cutover", "failover"]


class NodePlan(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One node at the beginning of the cutover."""

    data_directory: str
    bin_directory: str | None = None
    slot: str = ""
    """Its replication slot on the primary; empty: it follows without a slot."""
    reached: bool = True


class ManagerPlan(Struct, frozen=True, kw_only=True):
    """The cluster manager whose own switchover replaces our stop, fence and promotion."""

    kind: str
    node: str
    """Node on whose host its switchover runs, as the owner of the data directory."""
    switchover: tuple[str, ...]
    status: str
    """The command that shows the manager's view of the cluster."""


class FailoverPlan(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a failover knows about the old primary, and what it leaves to the operator."""

    messages: dict[str, float] = {}
    """When each standby that was connected to the old primary received its last message, by the clock of its server: a
    later one shows that it runs."""
    overridden: bool = False
    """The operator confirmed by name that evidence is missing."""
    seen_us: int = 0
    """Wall time at which the old primary last answered; 0: no record."""
    least_lost: int | None = None
    """Bytes of WAL that it had then, and the new primary lacked."""
    signal_written: bool = False
    """standby.signal was written into its data directory."""
    fenced: bool = False
    """Its server was proven stopped, and can only start as a standby."""
    end_lsn: str = ""
    """End of the valid WAL in its data directory; empty: not read."""
    not_archived: tuple[str, ...] = ()
    """WAL files that it had not archived."""
    last_archived: str = ""
    """The last file that it archived, as last observed; used if its data directory cannot be read."""
    by_hand: tuple[str, ...] = ()
    """Poolers and addresses that must be pointed to the new primary by hand."""
    taken_over: CutoverMark | None = None
    """The mark of an interrupted cutover, whose limits and pauses this failover reverts."""
    warnings: tuple[str, ...] = ()
    """What did not work and was not waited for; shown again at the end."""


class CutoverPlan(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The servers and databases of one cutover, and the results of its steps so far."""

    cluster: str
    kind: Kind
    old: str
    """The node that is, or in a failover was, the primary at the beginning."""
    to: str
    system_identifier: str
    timeline: int
    version_num: int
    nodes: dict[str, NodePlan]
    databases: dict[str, tuple[str, ...]] = {}
    """Pooler -> its databases to pause."""
    slots_made: tuple[str, ...] = ()
    """Replication slots created on the new primary for its future standbys."""
    has_lock_slot: bool = False
    """The lock slot, which excludes other cutovers, was created."""
    limits: dict[str, int] = {}
    """CONNECTION LIMIT of each database before connections were blocked."""
    shutdown_lsn: str = ""
    """Checkpoint with which the old primary was shut down."""
    manager: ManagerPlan | None = None
    """None: the cluster has no manager, or it is paused."""
    held_lsn: str = ""
    """End of WAL of a managed primary when clients were held: the new timeline must not begin before it."""
    lost_bytes: int | None = None
    """In a failover: WAL that the old primary had and the new one lacks; None: unknown."""
    new_timeline: int = 0
    """Timeline of the new primary; 0: not promoted yet."""
    mark: CutoverMark | None = None
    """The mark that other operators see, as this run wrote it last; None: not marked, as a failover before its
    promotion."""
    pooler_settings: dict[str, dict[str, str]] = {}
    """Pooler -> settings as they were before this cutover, or an interrupted one, changed them."""
    failover: FailoverPlan = FailoverPlan()
    promoted_us: int = 0
    """Wall time at which the promotion was requested."""

    @property
    def others(self) -> list[str]:
        """Nodes that are neither the old nor the new primary."""
        return [name for name in self.nodes if name not in (self.old, self.to)]


def save_plan(context: ActionContext, plan: CutoverPlan) -> None:
    """Save it atomically, synced. Raises SessionError; Refused if it is too large to be loaded."""
    if len(content := msgspec.json.encode(plan)) > LIMIT:
        raise Refused(f"the plan of this cutover has {len(content)} bytes, more than {LIMIT}: too many databases")
    try:
        write_atomically(context.run_directory, FILE, content)
    except OSError as error:
        text = f"the plan of this cutover cannot be written to {context.run_directory}: {error.strerror}"
        raise SessionError(text, hint="free space there, or make it writable, then retry") from None


def save_failover(context: ActionContext, plan: CutoverPlan, **changes: Any) -> CutoverPlan:
    """Save changed values of `plan.failover`; return the new plan. Raises as `save_plan`."""
    plan = replace(plan, failover=replace(plan.failover, **changes))
    save_plan(context, plan)
    return plan


def load_plan(context: ActionContext, cluster: str, to: str) -> CutoverPlan:
    """Return the plan of this run. Raises Refused if it has none yet, or one of another cluster or target."""
    try:
        plan = from_json(read_small(Path(context.run_directory) / FILE, LIMIT), CutoverPlan)
    except FileNotFoundError:
        raise Refused("this run has not started a cutover", hint="run its first step, cutover-begin") from None
    except (OSError, msgspec.MsgspecError) as error:
        raise Refused(f"the plan of this cutover cannot be read: {error}", hint="start a new run") from None
    if (plan.cluster, plan.to) != (cluster, to):
        raise Refused(f"this run is a cutover of {plan.cluster} to {plan.to}, not of {cluster} to {to}")
    return plan


def cluster_config(context: ActionContext, name: str) -> ClusterConfig:
    """Return the configuration of a cluster. Raises UsageError if this agent's configuration does not have it."""
    clusters = {} if context.config is None else context.config.clusters
    if name not in clusters:
        raise UsageError(
            f"no cluster {name!r} is configured for this agent; configured: {', '.join(clusters) or 'none'}",
            hint="an agent reads the configuration when it starts: restart it after a change",
        )
    return clusters[name]


def slot_name(node: str) -> str:
    """Return the slot name for a node: lower case, digits and underscores only (ReplicationSlotValidateName).

    >>> slot_name("DB-1.example")
    'db_1_example'
    """
    return "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in node.lower())[:63]


def replication_address(config: NodeConfig) -> dict[str, str]:
    """Return host and port at which other nodes reach a node."""
    options = parse_conninfo(config.replication_dsn or config.dsn)
    return {key: options[key] for key in ("host", "hostaddr", "port") if key in options}


def node_address(config: NodeConfig) -> tuple[str, str]:
    """Return host (or socket directory) and port at which poolers reach a node."""
    address = replication_address(config)
    return address.get("host") or address.get("hostaddr") or "127.0.0.1", address.get("port") or "5432"


def conninfo_to(base: str, config: NodeConfig, follower: str) -> str:
    """Return `primary_conninfo` for a standby of the node of `config`: `base`, of another node, with a new address."""
    options = parse_conninfo(base)
    unchanged = {key: value for key, value in options.items() if key not in ("host", "hostaddr", "port")}
    if "application_name" in unchanged:
        unchanged["application_name"] = follower
    return conninfo({**unchanged, **replication_address(config)})
