"""The configuration schema. Reading the file, did-you-mean and provenance are in cli/config_file.py.

Every value has its default here with its reason; a configuration file only contains differences.
"""

from __future__ import annotations

from msgspec import Struct, field

from dba_console.core.thresholds import Limits


class TargetConfig(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """A named server, `[targets.NAME]`: `dba-console NAME`. The password belongs in a passfile, never here."""

    dsn: str
    """libpq connection string or URI."""
    host_panels: bool | None = None
    """True: the server runs on this host although it cannot be proven; False: it does not; unset: detect."""
    read_only: bool = False
    """True: this console changes nothing on it."""

    def __repr__(self) -> str:
        # The connection string may contain a password.
        return f"TargetConfig(host_panels={self.host_panels!r})"


class AgentConfig(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    grace: str = "10m"
    """How long the agent keeps recording after the last console left; `forever` never ends."""
    interval: str = "1s"
    """Interval between two samples; at least 250ms."""
    statement_timeout: str = "2s"
    """Timeout of each query of the monitor connection."""
    lock_timeout: str = "100ms"
    connect_timeout: str = "3s"
    query_texts: str = "full"
    """What is read of queries: `full` (secrets masked), `normalised` (no literals, numbers, comments), `none`."""


class RecordingConfig(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    directory: str | None = None
    """Directory of sessions; unset: the default location."""
    keep: str = "30d"
    """Sessions older than this are removed when a new one starts, unless pinned."""
    max_size: str = "2GB"
    """Limit of all sessions together; the oldest unpinned ones are removed first."""


class ScreenConfig(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    mouse: bool = True
    colours: str = "auto"
    """auto, 16, 256, truecolor, none."""
    ascii: bool = False
    """Draw with ASCII characters only."""


class ActionsConfig(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """What may be changed from this console. Read-only checks and rehearsals are always allowed."""

    allow: bool = True
    """False: nothing is changed, neither by a runbook nor by a key."""
    deny: list[str] = []
    """Names of actions that are refused; `change` and `run` are a runbook's own SQL and commands."""


class RunbooksConfig(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    path: list[str] = []


class JobsConfig(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """Dumps and restores."""

    window: str | None = None
    """Maximum duration of one job, `8h`; the history predicts when it will be exceeded. Unset: no prediction."""
    windows: dict[str, str] = {}
    """For individual jobs, by their name in the history: `"pg_dump of appdb" = "6h"`."""


class NodeConfig(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """A server of a cluster, `[clusters.NAME.nodes.NODE]`. The password belongs in a passfile, never here."""

    dsn: str
    control: str | None = None
    """How it is stopped and started: `pg_ctl`, `systemd:UNIT`, `pg_ctlcluster:15/main`; unset: `pg_ctl`."""
    data_directory: str | None = None
    """Unset: as reported by the server."""
    ssh: str | None = None
    """The host for the system's ssh; unset: this one."""
    bin_directory: str | None = None
    """Directory of the server's programs; unset: that of the running server."""
    stop: list[str] = []
    """A command that stops the server, instead of `control`."""
    start: list[str] = []
    """A command that starts it."""
    replication_dsn: str | None = None
    """How other nodes connect to it for replication, without a password; unset: host and port of `dsn`."""

    def __repr__(self) -> str:
        return f"NodeConfig(control={self.control!r}, ssh={self.ssh!r})"


class PoolerConfig(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """A PgBouncer in front of a cluster, `[clusters.NAME.poolers.POOLER]`."""

    dsn: str
    """Connection string of its admin console: database `pgbouncer`."""
    databases: list[str] = []
    """Databases that route to the cluster; empty: all."""
    config: str | None = None
    """Its configuration file, where the host of a database is changed."""
    ssh: str | None = None
    """The host of that file, for the system's ssh; unset: this one."""

    def __repr__(self) -> str:
        return f"PoolerConfig(databases={self.databases!r})"


COMMAND_PLACEHOLDERS = ("cluster", "from", "to")
"""Placeholders in the arguments of a cutover's commands."""


class CommandConfig(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """A command of a cutover and the one that reverts it: `[clusters.NAME.addresses.…]`, `[clusters.NAME.hooks.…]`.

    In an argument `{cluster}`, `{from}` and `{to}` are the names of the cluster, the old and the new primary.
    """

    run: list[str]
    """Program and arguments: for an address it routes to the new primary, for a hook it stops a scheduler."""
    undo: list[str] = []
    """Command that reverts it; empty: none."""
    ssh: str | None = None
    """The host for the system's ssh; unset: this one."""
    timeout_s: float = 30.0


class ClusterConfig(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """Servers that replicate one another, `[clusters.NAME]`, with their poolers, addresses and hooks."""

    nodes: dict[str, NodeConfig]
    poolers: dict[str, PoolerConfig] = {}
    addresses: dict[str, CommandConfig] = {}
    """Virtual address, DNS or load balancer: runs after the promotion."""
    hooks: dict[str, CommandConfig] = {}
    """Schedulers and other writers: `run` before clients are held, `undo` after they are released."""
    clients: str | None = None
    """How clients connect, for the heartbeat that measures the outage; unset: through the first pooler's first
    database, else to the primary."""


class Config(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    default_target: str | None = None
    targets: dict[str, TargetConfig] = {}
    clusters: dict[str, ClusterConfig] = {}
    agent: AgentConfig = field(default_factory=AgentConfig)
    recording: RecordingConfig = field(default_factory=RecordingConfig)
    screen: ScreenConfig = field(default_factory=ScreenConfig)
    runbooks: RunbooksConfig = field(default_factory=RunbooksConfig)
    actions: ActionsConfig = field(default_factory=ActionsConfig)
    jobs: JobsConfig = field(default_factory=JobsConfig)
    findings: Limits = field(default_factory=Limits)
