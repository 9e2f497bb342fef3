"""Clients of a pair during a cutover: pgbench at a share of its maximum, the load with a ledger, and a heartbeat."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.pair import Pair
from dba_console.demo.child_processes import end_child, start_child
from dba_console.demo.ledger import LedgerVerdict, ledger_verdict, start_ledger
from dba_console.demo.server_account import clean_environment

CLIENTS = 8
SHARE = 0.7
"""Share of the maximum measured on the same pair."""


def maximum_tps(pair: Pair, seconds: int) -> float:
    """Return the transactions per second of pgbench through the pooler at full speed."""
    text = pair.program("pgbench", "-n", "-c", str(CLIENTS), "-j", "2", "-T", str(seconds), pair.clients)
    found = re.search(r"^tps = ([\d.]+)", text, re.MULTILINE)
    assert found is not None, text
    return float(found[1])


class Traffic:
    """The load through the pooler. A pgbench whose connection broke is restarted, as an application reconnects."""

    def __init__(self, pair: Pair, rate_per_s: float, *, conninfo: str | None = None) -> None:
        self._pair, self._rate_per_s = pair, rate_per_s
        self._conninfo = conninfo or pair.clients
        self.ledger = pair.base / "ledger"
        self._load: subprocess.Popen[bytes] | None = None
        self._benches: list[subprocess.Popen[bytes]] = []
        self.restarts = 0

    def __enter__(self) -> Self:
        self._load = start_ledger(self.ledger, self._conninfo)
        if self._rate_per_s:
            self._benches = [self._pgbench() for _ in range(CLIENTS)]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for process in (*self._benches, *([self._load] if self._load else [])):
            process.terminate()
            end_child(process)

    def keep_going(self) -> None:
        """Restart ended clients. Call it in the thread that entered the context: a client ends with the thread that
        started it."""
        for index, process in enumerate(self._benches):
            if process.poll() is not None:
                self._benches[index] = self._pgbench()
                self.restarts += 1

    def verdict(self, node: str) -> LedgerVerdict:
        return ledger_verdict(self.ledger, self._pair.dsn(node))

    def _pgbench(self) -> subprocess.Popen[bytes]:
        program = self._pair.path_of("pgbench")
        # A transaction that is a second late is skipped, so that no burst follows an outage.
        pace = ["-R", f"{self._rate_per_s / CLIENTS:g}", "-L", "1000"]
        with Path(self._pair.base / "pgbench.log").open("ab") as log:
            return start_child(
                [program, "-n", "-c", "1", "-T", "100000", *pace, self._conninfo], output=log,
                environment=clean_environment(str(self._pair.base)), spawn=self._pair.account.spawn,
            )  # fmt: skip
