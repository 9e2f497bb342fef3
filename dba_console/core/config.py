"""What can be configured, declared once. Reading the file, did-you-mean and provenance are in cli/config_file.py.

Every value has its default here with its reason; a configuration file only names what differs.
"""

from __future__ import annotations

from msgspec import Struct, field

from dba_console.core.thresholds import Limits


class TargetConfig(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """A named server, `[targets.NAME]`: `dba-console NAME`. The password belongs in a passfile, never here."""

    dsn: str
    """libpq connection string or URI."""
    host_panels: bool | None = None
    """True: the server runs on this host although it cannot be proven; False: it does not; unset: find out."""
    read_only: bool = False
    """True: nothing is changed on it from this console."""

    def __repr__(self) -> str:
        # Somebody will put a password into the connection string.
        return f"TargetConfig(host_panels={self.host_panels!r})"


class AgentConfig(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    grace: str = "10m"
    """How long the agent goes on recording after the last console left; `forever` never ends."""
    interval: str = "1s"
    """Between two samples; not below 250ms."""
    statement_timeout: str = "2s"
    """For each query of the monitor connection."""
    lock_timeout: str = "100ms"
    connect_timeout: str = "3s"
    query_texts: str = "full"
    """What is read of queries: `full` (secrets masked), `normalised` (no literals, numbers, comments), `none`."""


class RecordingConfig(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    directory: str | None = None
    """Where sessions go; unset: the default of the contract."""
    keep: str = "30d"
    """Sessions older than this are removed when a new one starts, unless pinned."""
    max_size: str = "2GB"
    """All sessions together; the oldest unpinned ones go first."""


class ScreenConfig(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    mouse: bool = True
    colours: str = "auto"
    """auto, 16, 256, truecolor, none."""
    ascii: bool = False
    """Draw with ASCII signs only."""


class ActionsConfig(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """What may be changed from here. Looking is always allowed; rehearsals are."""

    allow: bool = True
    """False: nothing is changed, by no runbook and no key."""
    deny: list[str] = []
    """Names of actions that are refused; `change` and `run` are a runbook's own SQL and commands."""


class RunbooksConfig(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    path: list[str] = []


class JobsConfig(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """Dumps and restores."""

    window: str | None = None
    """How long one may take, `8h`: the history says when it will take longer. Unset: nobody said, nothing is said."""
    windows: dict[str, str] = {}
    """For single jobs, by their name in the history: `"pg_dump of appdb" = "6h"`."""


class NodeConfig(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """A server of a cluster, `[clusters.NAME.nodes.NODE]`. The password belongs in a passfile, never here."""

    dsn: str
    control: str | None = None
    """How it is stopped and started: `pg_ctl`, `systemd:UNIT`, `pg_ctlcluster:15/main`; unset: `pg_ctl`."""
    data_directory: str | None = None
    """Unset: as the server says."""
    ssh: str | None = None
    """The host for the system's ssh; unset: this one."""
    bin_directory: str | None = None
    """Where the server's programs are; unset: beside the one that runs."""
    stop: list[str] = []
    """A command that stops the server, in place of what `control` means."""
    start: list[str] = []
    """A command that starts it."""
    replication_dsn: str | None = None
    """How other nodes connect to it for replication, without a password; unset: host and port of `dsn`."""

    def __repr__(self) -> str:
        return f"NodeConfig(control={self.control!r}, ssh={self.ssh!r})"


class PoolerConfig(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """A PgBouncer in front of a cluster, `[clusters.NAME.poolers.POOLER]`."""

    dsn: str
    """Of its admin console: database `pgbouncer`."""
    databases: list[str] = []
    """Those that lead to the cluster; empty: all."""
    config: str | None = None
    """Its configuration file, where the host of a database is changed."""
    ssh: str | None = None
    """The host of that file, for the system's ssh; unset: this one."""

    def __repr__(self) -> str:
        return f"PoolerConfig(databases={self.databases!r})"


COMMAND_PLACEHOLDERS = ("cluster", "from", "to")
"""What an argument of a command of a cutover may name in braces."""


class CommandConfig(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """A command of a cutover and the one that reverts it: `[clusters.NAME.addresses.…]`, `[clusters.NAME.hooks.…]`.

    In an argument `{cluster}`, `{from}` and `{to}` are the names of the cluster, the old and the new primary.
    """

    run: list[str]
    """Program and arguments: of an address what makes it lead to the new primary, of a hook what holds a scheduler."""
    undo: list[str] = []
    """What reverts it; empty: nothing does."""
    ssh: str | None = None
    """The host for the system's ssh; unset: this one."""
    timeout_s: float = 30.0


class ClusterConfig(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """Servers that replicate one another, `[clusters.NAME]`, and what stands before them."""

    nodes: dict[str, NodeConfig]
    poolers: dict[str, PoolerConfig] = {}
    addresses: dict[str, CommandConfig] = {}
    """Virtual address, DNS or load balancer: run after the promotion."""
    hooks: dict[str, CommandConfig] = {}
    """Schedulers and other writers: `run` before clients are held, `undo` when they are let in again."""
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
