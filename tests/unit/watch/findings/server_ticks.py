"""Ticks of a server made by hand: its sessions and locks second by second, and what the rules of a family conclude."""

from __future__ import annotations

from typing import Any

from dba_console.agent.server_service import failure_text
from dba_console.watch.connections.rules import FAMILY
from dba_console.watch.findings.rule import Rule
from dba_console.watch.findings.thresholds import Limits
from dba_console.watch.probes.postgres.connect_errors import connect_failed
from dba_console.watch.samples import postgres
from dba_console.watch.samples.console import AgentHealth
from dba_console.watch.samples.findings import FindingNow
from dba_console.watch.samples.sample import Status
from tests.build import NOW_US, part
from tests.readings import activity, of, server, sessions
from tests.unit.watch.findings.rule_ticks import RuleTicks


class ServerTicks(RuleTicks):
    """Ticks of a server with 250 connections, 247 of them usable, with the given rules."""

    def __init__(self, *rules: Rule | str, limits: Limits | None = None, **server_fields: Any) -> None:
        super().__init__(*rules, limits=limits)
        self.rows: list[postgres.Activity] = []
        self.locks: list[postgres.LockWaiter] = []
        self.held: list[postgres.HeldLock] = []
        self.extra: dict[str, Any] = {"pg.server": server(**server_fields)}
        """Further parts, read in the next tick."""
        self.clock_us = NOW_US
        """What the server's clock shows at second 0."""

    @property
    def now_us(self) -> int:
        """The server's clock in the next tick."""
        return self.clock_us + int((self.at_s + 1) * 1e6)

    def ago(self, seconds: float) -> int:
        """The time `seconds` before the next tick, by the server's clock."""
        return self.now_us - int(seconds * 1e6)

    def tick(self, after_s: float = 1.0) -> list[FindingNow]:
        """Read everything once more; what is open then."""
        self.at_s += after_s
        now_us = self.clock_us + int(self.at_s * 1e6)
        read = {
            "pg.activity": sessions(*self.rows, now_us=now_us),
            "pg.locks": postgres.Locks(self.locks, self.held),
            **self.extra,
        }
        self.extra = {}
        return self._evaluate(*(part(name, value, at_s=self.at_s) for name, value in read.items()))

    def tick_unread(self, after_s: float = 1.0, status: Status = "timeout") -> list[FindingNow]:
        """A tick in which the server did not answer in time, or at all."""
        self.at_s += after_s
        return self._evaluate(
            *(part(name, None, at_s=self.at_s, status=status, note="late") for name in ("pg.activity", "pg.locks"))
        )

    def tick_only(self, **readings: Any) -> list[FindingNow]:
        """A tick in which nothing but these parts was read."""
        self.at_s += 1.0
        return self._evaluate(*(part(name, value, at_s=self.at_s) for name, value in readings.items()))

    def tick_refused(self, raw: str, **readings: Any) -> list[FindingNow]:
        """A tick in which the attempt at a connection failed with these words of libpq, and these parts were read."""
        self.at_s += 1.0
        error = connect_failed(raw)
        own = of(AgentHealth, outage=error.kind, refused_by=error.limit)
        read = [part(name, value, at_s=self.at_s) for name, value in {**readings, "self": own}.items()]
        notes = {"pg.server": failure_text(error), "pg.activity": "no connection"}
        lost = [part(name, None, at_s=self.at_s, status="error", note=note) for name, note in notes.items()]
        return self._evaluate(*lost, *read)

    def _evaluate(self, *parts: Any) -> list[FindingNow]:
        self.evaluate(*parts)
        return self.open

    def ticks(self, count: int) -> list[FindingNow]:
        """Tick `count` seconds in which nothing changes; return the open findings."""
        for _ in range(count):
            self.tick()
        return self.open

    def pool(
        self, count: int, first_pid: int = 1000, state: str | None = "idle", **fields: Any
    ) -> list[postgres.Activity]:
        """Return `count` sessions of one application, by default opened long ago; not among the rows yet."""
        made = {"backend_start": self.ago(3600), "state_change": self.ago(600), **fields}
        return [activity(first_pid + number, state, **made) for number in range(count)]


def server_ticks(used: int, limits: Limits | None = None, **fields: Any) -> ServerTicks:
    """A server with `used` idle sessions of one pool, after two quiet seconds with the rules about connections."""
    made = ServerTicks(*FAMILY.rules, limits=limits, **fields)
    made.rows = made.pool(used, application="shop-web-pool")
    made.ticks(2)
    return made


def waiting(
    pid: int, *blockers: int, mode: str = "RowExclusiveLock", locktype: str = "relation", since: int | None = None,
    relation: str | None = "public.orders",
) -> postgres.LockWaiter:  # fmt: skip
    """A session that waits for these."""
    return postgres.LockWaiter(pid, list(blockers), locktype, mode, relation, since)
