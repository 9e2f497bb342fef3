"""The server of the demo: PostgreSQL with 250 connections under load, removed completely at the end.

That covers every kind of end: leaving the `with` block, an error, ctrl-C, SIGTERM, a lost terminal, and `kill -9`,
where the cleanup process and PR_SET_PDEATHSIG of each client do what this process no longer can.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

from dba_console.core.errors import ConnectError
from dba_console.demo.binaries import Binaries
from dba_console.demo.clients import DATABASE, Clients, Load, LoadPlan
from dba_console.demo.temporary_server import Cluster, StartedInBlock

if TYPE_CHECKING:
    from dba_console.demo.incidents.incident import Incident

SETTINGS: dict[str, str | int] = {
    "max_connections": 250,
    "shared_buffers": "64MB",
    "track_io_timing": "on",
    "cluster_name": "practice",
    "checkpoint_timeout": "2min",
    "log_checkpoints": "on",
}


class PracticeGround(StartedInBlock):
    """`with PracticeGround() as ground:` runs it. With `keep`, its directory is left for inspection.

    An `incident` is prepared, and undone at the end; the caller causes it. `clients` are the incident's own clients.
    `say` gets a progress message for each step.
    """

    def __init__(
        self,
        plan: LoadPlan | None = None,
        *,
        binaries: Binaries | None = None,
        keep: bool = False,
        say: Callable[[str], None] = lambda _: None,
        incident: Incident | None = None,
    ) -> None:
        self.say = say
        self.keep = keep
        self.incident = incident
        self._own_data_directory = ExitStack()
        directory = None if incident is None else self._own_data_directory.enter_context(incident.own_data_directory())
        settings = {**SETTINGS, **({} if incident is None else incident.settings)}
        try:
            self.cluster = Cluster(binaries, data_directory=directory, settings=settings, keep=keep)
        except BaseException:
            self._own_data_directory.close()
            raise
        self.load = Load(self.cluster, plan or (None if incident is None else incident.plan))
        self.clients = Clients(self.cluster, "incident.log")

    @property
    def dsn(self) -> str:
        """The connection string of the database under load, as the superuser."""
        return self.cluster.dsn(dbname=DATABASE)

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables that commands need: none."""
        return {}

    def close(self) -> None:
        """Undo the incident, end load and server; remove the directory unless it is kept. May be called twice."""
        with ExitStack() as steps:  # all of these run, also if others fail; the last one first
            steps.callback(self._own_data_directory.close)
            steps.callback(self.cluster.close)
            steps.callback(self.load.stop)
            steps.callback(self.clients.stop)
            if self.incident is not None:
                incident, self.incident = self.incident, None
                incident.end(self)

    def check(self) -> None:
        """Raises ConnectError if a client of the load ended, with its last messages."""
        self.load.check()

    def wait_connected(self, timeout_s: float = 30.0) -> None:
        """Return when the whole load is connected. Raises ConnectError if part of it ended or took too long."""
        until = time.monotonic() + timeout_s
        while self.load.connected() < self.load.plan.sessions:
            self.load.check()
            if time.monotonic() > until:
                raise ConnectError("the load did not connect in time", hint=f"see {self.cluster.log_path}")
            time.sleep(0.1)

    def _set_up(self) -> None:
        binaries, plan = self.cluster.binaries, self.load.plan
        self.say(f"PostgreSQL {binaries.version} from {binaries.directory}, run by {self.cluster.account.name}")
        self.cluster.initdb()
        self.cluster.start()
        self.load.prepare()
        if self.incident is not None:
            self.incident.prepare(self)
        self.say(
            f"load: {plan.clients} clients at {plan.rate_per_s} transactions/s, {plan.idle} idle sessions, "
            f"{int(plan.forgotten)} left in a transaction"
        )
        self.load.start()
        self.wait_connected()
