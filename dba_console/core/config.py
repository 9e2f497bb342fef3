"""Declaration of the configuration, with all defaults; docs/configuration.md has the docstrings of its fields.

cli/config_file.py reads the file, which only contains differences.
"""

from __future__ import annotations

import math
import re
from functools import partial
from typing import Annotated, Any, Literal

from msgspec import Struct, field, structs

from dba_console.core.declarations import Form, Size, duration, list_of
from dba_console.core.errors import UsageError
from dba_console.core.units import parse_duration

FOREVER = "forever"
COMMAND_PLACEHOLDERS = ("cluster", "from", "to")
"""Placeholders in the arguments of a cutover's commands."""


def _at_least(minimum: str, text: str) -> float:
    if (seconds := parse_duration(text)) < parse_duration(minimum):
        raise UsageError(f"{text} is too short", hint=f"the minimum is {minimum}")
    return seconds


def _grace(text: str) -> float:
    return math.inf if text == FOREVER else parse_duration(text)


def _seconds(value: float) -> float:
    if not 0 < value < math.inf:
        raise UsageError(f"{value} must be a number of seconds greater than 0")
    return float(value)


def _argument(text: str) -> str:
    """Return an argument of a command of a cutover. Raises UsageError for an unknown placeholder."""
    for unknown in set(re.findall(r"\{(\w+)\}", text)) - set(COMMAND_PLACEHOLDERS):
        hint = f"known placeholders: {', '.join(COMMAND_PLACEHOLDERS)}"
        raise UsageError(f"unknown placeholder {{{unknown}}}", hint=hint)
    return text


def _program(values: list[str]) -> tuple[str, ...]:
    if not values or not values[0]:
        raise UsageError("names no program", hint='list the program and its arguments: ["/usr/local/bin/move-ip"]')
    return tuple(_ARGUMENTS.read(values))


def _argument_name(name: str) -> str:
    if name.startswith("-"):
        # The name becomes an argument of the operator's commands; a program would read this one as an option.
        raise UsageError("a name must not begin with `-`")
    return name


_ARGUMENTS = list_of(Form(noun="a text", read=_argument), "a list of texts")
_name = partial(Form, noun="a name", read=_argument_name)
PositiveDuration = Annotated[str, duration(partial(_at_least, "1ms"))]
Interval = Annotated[str, duration(partial(_at_least, "250ms"))]
Grace = Annotated[str, duration(_grace, "duration, as in `30s`, or `forever`")]
Seconds = Annotated[float, Form(noun="a number", read=_seconds, takes=(int, float), schema={"type": "number"})]
Arguments = Annotated[list[str], _ARGUMENTS]
Program = Annotated[list[str], structs.replace(_ARGUMENTS, read=_program)]
ClusterName = Annotated[str, _name(written="NAME")]
NodeName = Annotated[str, _name(written="NODE")]
PoolerName = Annotated[str, _name(written="POOLER")]
AddressName = Annotated[str, _name(written="ADDRESS")]
HookName = Annotated[str, _name(written="HOOK")]


class TargetConfig(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """A named server, `[targets.NAME]`: `dba-console NAME`. The password belongs in a passfile, never here."""

    dsn: str
    """libpq connection string, URI, or `service=…`; `dba-console NAME`."""
    host_panels: bool | None = None
    """`true`: the server runs on this host although this cannot be proven; `false`: it does not; unset: detected."""
    read_only: bool = False
    """`true`: nothing is changed on this server from this console, whichever connection string is used to reach it."""

    def __repr__(self) -> str:
        # The connection string may contain a password.
        return f"TargetConfig(host_panels={self.host_panels!r})"


class AgentConfig(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    grace: Grace = "10m"
    """How long the agent keeps recording after the last console left; `forever`: without end."""
    interval: Interval = "1s"
    """Time between two samples, at least `250ms`, so that monitoring stays cheap."""
    statement_timeout: PositiveDuration = "2s"
    """For each query of the console's connection."""
    lock_timeout: PositiveDuration = "100ms"
    """For each lock that a query may wait for."""
    connect_timeout: PositiveDuration = "3s"
    """For each connection attempt."""
    query_texts: Literal["full", "normalised", "none"] = "full"
    """How much of sessions' queries is read: `full` (passwords masked), `normalised` (`?` for each literal and number,
    no comments), `none`; applies to screen, recording and `--json` alike."""


class RecordingConfig(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    directory: str | None = None
    """Where sessions are stored; unset: see below."""
    keep: PositiveDuration = "30d"
    """Older sessions are removed when a new one starts, unless pinned."""
    max_size: Size = "2GB"
    """Total size of all sessions; the oldest unpinned ones are removed first."""


class ScreenConfig(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    mouse: bool = True
    """`--no-mouse` disables it once."""
    colours: Literal["auto", "16", "256", "truecolor", "none"] = "auto"
    """Number of colours; `auto`: what the terminal can show."""
    ascii: bool = False
    """Only ASCII characters, on the screen and in `show`."""


class ActionsConfig(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """What may be changed from this console. Read-only checks and rehearsals are always allowed."""

    allow: bool = True
    """`false`: no runbook and no key changes anything; monitoring, checks and rehearsals remain."""
    deny: list[str] = []
    """Names of [actions](actions.md) that are refused; `change` and `run` are a runbook's own SQL and commands."""


class RunbooksConfig(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    path: list[str] = []
    """Directories of your own runbooks; one with the name of a shipped runbook replaces it, and the console reports
    that."""


class JobsConfig(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """Dumps and restores."""

    window: PositiveDuration | None = None
    """Maximum duration of a dump or restore, `8h`: the history of jobs shows when it will be exceeded."""
    windows: dict[str, PositiveDuration] = {}
    """The same for single jobs, named as in the history: `"pg_dump of appdb" = "6h"`."""


class NodeConfig(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """A server of a cluster, `[clusters.NAME.nodes.NODE]`. The password belongs in a passfile, never here."""

    dsn: str
    """Connection string of a server of a [cluster](clusters.md); `dba-console cluster show NAME`."""
    control: str | None = None
    """How it is [stopped and started](clusters.md#how-nodes-are-reached): `pg_ctl`, `systemd:UNIT`,
    `pg_ctlcluster:15/main`; unset: `pg_ctl`."""
    data_directory: str | None = None
    """Unset: as the server reports; needed if the role may not read it (`pg_read_all_settings`) or the server is not
    running."""
    ssh: str | None = None
    """Host of the server, as a name for the system's ssh; unset: this host."""
    bin_directory: str | None = None
    """Directory of `pg_ctl`, `pg_rewind` and `pg_basebackup` of the server's version; unset: that of the running
    program."""
    stop: list[str] = []
    """Program and arguments that stop it, instead of `control`; run without a shell, under the agent's or ssh's
    account."""
    start: list[str] = []
    """Program and arguments that start it, likewise."""
    replication_dsn: str | None = None
    """How standbys connect to it; without a password, which belongs in their owner's passfile; unset: host and port of
    `dsn`."""

    def __repr__(self) -> str:
        return f"NodeConfig(control={self.control!r}, ssh={self.ssh!r})"


class PoolerConfig(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """A PgBouncer in front of a cluster, `[clusters.NAME.poolers.POOLER]`."""

    dsn: str
    """A PgBouncer in front of the cluster: its admin console, database `pgbouncer`."""
    databases: list[str] = []
    """The pooler's databases that point to the cluster; empty: all."""
    config: str | None = None
    """Its configuration file, in which a cutover changes the host of these databases; unset: the host there is a name
    that an address command moves."""
    ssh: str | None = None
    """Host of that file, for the system's ssh; unset: this host."""

    def __repr__(self) -> str:
        return f"PoolerConfig(databases={self.databases!r})"


class CommandConfig(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """A command of a cutover and the one that reverts it: `[clusters.NAME.addresses.…]`, `[clusters.NAME.hooks.…]`."""

    run: Program
    """Program and arguments, run without a shell; `{cluster}`, `{from}` and `{to}` are replaced with the names of
    cluster, old and new primary. Of an address: points a virtual address, DNS name or load balancer to the new primary.
    Of a hook: holds a scheduler or another writer, before clients are held."""
    undo: Arguments = []
    """Command that reverts it; of a hook it runs when clients are admitted again; empty: nothing does."""
    ssh: str | None = None
    """Where it runs, for the system's ssh; unset: this host."""
    timeout_s: Seconds = 30.0
    """Seconds after which it is killed and counts as failed."""


class ClusterConfig(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """Servers that replicate one another, `[clusters.NAME]`, with their poolers, addresses and hooks."""

    nodes: dict[NodeName, NodeConfig]
    poolers: dict[PoolerName, PoolerConfig] = {}
    addresses: dict[AddressName, CommandConfig] = {}
    hooks: dict[HookName, CommandConfig] = {}
    clients: str | None = None
    """How clients connect, for the heartbeat that measures the outage; unset: through the first pooler's first
    database, else to the primary."""


class Config(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    default_target: str | None = None
    """Target used when none is named; if unset, libpq's environment decides."""
    targets: dict[str, TargetConfig] = {}
    clusters: dict[ClusterName, ClusterConfig] = {}
    agent: AgentConfig = field(default_factory=AgentConfig)
    recording: RecordingConfig = field(default_factory=RecordingConfig)
    screen: ScreenConfig = field(default_factory=ScreenConfig)
    runbooks: RunbooksConfig = field(default_factory=RunbooksConfig)
    actions: ActionsConfig = field(default_factory=ActionsConfig)
    jobs: JobsConfig = field(default_factory=JobsConfig)
    # As written: cli/config_declaration.py declares the values, which are the thresholds of the rules.
    findings: dict[str, Any] = {}
