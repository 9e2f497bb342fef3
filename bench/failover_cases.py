"""What can be wrong when a primary is to be replaced: each case a fault on a real trio, and what must come of it."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import psutil

from bench.failover_operator import Hands, console, walk
from bench.trio import POOLER, STREAMING, Trio
from dba_console.core.errors import ConsoleError
from dba_console.demo.temporary_server import Settings, child_processes
from tests.agent.runs.agent_that_kills_itself import DIES
from tests.background import wait_until

Fault = Callable[[Trio], object]
BULK = """
create table if not exists bulk (n bigint, t text);
insert into bulk select g, repeat('x', 200) from generate_series(1, {rows}) g
"""


def nothing(trio: Trio) -> None:
    return None


def power_off(trio: Trio) -> None:
    trio.power_off("db1")


@dataclass(frozen=True)
class Case:
    """`fault` happens, then the operator runs the failover to `to`."""

    name: str
    what: str
    fault: Fault
    ends: Literal["promoted", "refused", "either"] = "promoted"
    """`refused` where the primary lives or recovers; `either` where both are right."""
    to: str = "db2"
    at: Mapping[str, Fault] = field(default_factory=dict)
    """Step or block whose question is open -> what happens meanwhile."""
    fixes: Mapping[str, Fault] = field(default_factory=dict)
    """Pattern of a text on the screen -> what the operator does because of it."""
    cut_off: Fault = power_off
    """What the operator does when told to cut off the old primary."""
    after: Fault = nothing
    comes_back: str = "rewind"
    patience_s: float = 60.0
    observed: bool = True
    """The console has seen the primary a moment before the fault."""
    readable: bool = True
    """The WAL that only the old primary has can be read: its host is reachable, or another standby has it."""
    most: str = ""
    """The standby with the most WAL, if nothing else can be read: what is lost with it is lost."""
    settings: Settings = field(default_factory=dict)
    extra: str = ""
    """More lines of the configuration."""
    data_directory: bool = True


def _kill(trio: Trio) -> None:
    trio.kill_server("db1")


def _vanish(trio: Trio) -> None:
    """No packet reaches or leaves the host of db1."""
    trio.network.cut("db1")


def _freeze(trio: Trio) -> None:
    trio.network.hosts["db1"].signal(signal.SIGSTOP, "postgres")


def _frozen_behind(trio: Trio) -> None:
    trio.network.cut("db1", "db2", "db3")
    trio.more_commits(40)
    _freeze(trio)
    trio.network.join("db1", "db2", "db3")


def _thaw(trio: Trio) -> None:
    trio.network.hosts["db1"].signal(signal.SIGCONT)


def _start(trio: Trio) -> None:
    """What a supervisor does."""
    node = trio.nodes["db1"]
    if node.host.has_power and not node.running:
        with suppress(ConsoleError):
            node.start(timeout_s=20.0)


def _killed_behind(*standbys: str) -> Fault:
    """These lack the last commits when the server is killed."""

    def fault(trio: Trio) -> None:
        trio.network.cut("db1", *standbys)
        trio.nodes["db1"].psql(BULK.format(rows=20000))
        trio.more_commits(40)
        trio.kill_server("db1")
        trio.network.join("db1", *standbys)

    return fault


def _vanished_behind(*standbys: str) -> Fault:
    def fault(trio: Trio) -> None:
        trio.network.cut("db1", *standbys)
        trio.more_commits(40)
        trio.network.cut("db1")

    return fault


def _ahead_and_down(trio: Trio) -> None:
    """db3 alone has the last commits, and is shut down; the host of db1 is gone."""
    _vanished_behind("db2")(trio)
    trio.nodes["db3"].stop()


def _observed_long_ago(trio: Trio) -> None:
    _killed_behind("db2", "db3")(trio)


def _killed_without_ssh(trio: Trio) -> None:
    trio.network.hosts["db1"].signal(signal.SIGKILL, "sshd")
    trio.kill_server("db1")


def _in_recovery(trio: Trio) -> None:
    """db1 was killed and started again by its supervisor; the replay of its WAL stands still."""
    db1 = trio.nodes["db1"]
    db1.psql("checkpoint; " + BULK.format(rows=400000))
    trio.kill_server("db1")
    db1._spawn()
    until = time.monotonic() + 20
    while time.monotonic() < until:
        for child in child_processes(db1.pid or 0):
            with suppress(OSError, psutil.NoSuchProcess):
                if b"recovering" in Path(f"/proc/{child.pid}/cmdline").read_bytes():
                    child.suspend()
                    return
    raise AssertionError("crash recovery was over before it was seen")


def _in_slow_recovery(trio: Trio) -> None:
    """The same, and the replay goes on slowly."""
    _in_recovery(trio)

    def pulse() -> None:
        over = threading.Event()
        with suppress(OSError):  # the host is gone: the case is over
            while trio.nodes["db1"].running and not over.wait(0.3):
                _thaw(trio)
                over.wait(0.01)
                trio.network.hosts["db1"].signal(signal.SIGSTOP, "recovering")

    threading.Thread(target=pulse, daemon=True).start()


def _restarted_at_once(trio: Trio) -> None:
    trio.kill_server("db1")
    trio.nodes["db1"].start()


def _paused(trio: Trio) -> None:
    trio.nodes["db2"].psql("select pg_wal_replay_pause()")
    trio.more_commits(20)
    trio.kill_server("db1")


def _delayed(trio: Trio) -> None:
    trio.nodes["db2"].set("recovery_min_apply_delay", "1h")
    trio.more_commits(20)
    trio.kill_server("db1")


def _weaker(trio: Trio) -> None:
    """max_connections of db1 and db3 were raised, that of db2 was forgotten: its replay is paused."""
    for name in ("db3", "db1"):
        trio.nodes[name].restart({"max_connections": 150})
    paused = "select pg_get_wal_replay_pause_state() = 'paused'"
    wait_until(lambda: trio.nodes["db2"].psql(paused) == "t", what="the pause of db2's replay")
    wait_until(lambda: trio.nodes["db1"].psql(STREAMING) == "2", what="two standbys that stream")
    trio.more_commits(20)
    trio.kill_server("db1")


def _pooler_dead(trio: Trio) -> None:
    trio.pooler.stop()
    trio.kill_server("db1")


def _pooler_cut_off(trio: Trio) -> None:
    trio.network.cut(POOLER, "console")
    trio.kill_server("db1")


def _pooler_on_lost_host(trio: Trio) -> None:
    trio.power_off(POOLER)
    trio.power_off("db1")


def _session_mode(trio: Trio) -> None:
    trio.pooler.set_mode("session")
    trio.pooler.stop()
    trio.pooler.launch()
    trio.more_commits(20)
    _vanish(trio)


def _archive_down(trio: Trio) -> None:
    db1 = trio.nodes["db1"]
    db1.psql("select pg_switch_wal()")
    wait_until(lambda: list(trio.archive.glob("[0-9A-F]" * 24)), what="a segment in the archive")
    db1.set("archive_command", "false")
    for _ in range(4):
        db1.psql("create table if not exists filler (n int); insert into filler select 1; select pg_switch_wal()")
    trio.more_commits(20)
    trio.kill_server("db1")


def _standbys_behind(*standbys: str) -> Fault:
    return _killed_behind(*standbys)


def _console_cut_off(trio: Trio) -> None:
    trio.network.cut("console", "db1")


def _console_and_pooler_cut_off(trio: Trio) -> None:
    trio.network.cut("console", "db1")
    trio.network.cut(POOLER, "db1")


def _pooler_reaches_it_again(trio: Trio) -> None:
    """The network is repaired, which no failover can do: clients go on when the pooler's connections retransmit."""
    trio.network.join(POOLER, "db1")
    trio.more_commits(timeout_s=60.0)


def _partition(trio: Trio) -> None:
    """Clients and pooler reach db1, its standbys and the console do not."""
    trio.network.cut("db1", "console", "db2", "db3")


def interrupted_cutover(act: tuple[str, int], when: str = "before:block.result") -> Fault:
    """A cutover to db2 whose agent was killed at the end of an act."""

    def fault(trio: Trio) -> None:
        step, number = act
        with console(trio.environment, trio.base / "first", kill={DIES: f"{when}:{step}:{number}"}) as running:
            walked = walk(running, "cutover", "db2", Hands(trio))
        assert walked.state == "killed", walked

    return fault


def _then_killed(fault: Fault) -> Fault:
    def both(trio: Trio) -> None:
        fault(trio)
        trio.kill_server("db1")

    return both


def resume_the_first(trio: Trio) -> None:
    """The operator of the interrupted cutover comes back, resumes it and aborts what fails."""
    with console(trio.environment, trio.base / "first") as running:
        walk(running, "resume", "db2", Hands(trio, patience_s=5.0))


HOLD = "hold-the-clients-and-stop-the-old-primary"
_HOOK = """
[clusters.shop.hooks.cron]
run = ["true"]
undo = ["true"]
ssh = "db1"
timeout_s = 5.0
"""

CASES = (
    Case("killed", "server killed, its host is there", _kill),
    Case("killed-clone", "the same, and the old primary comes back as a clone", _kill, comes_back="clone"),
    Case("killed-later", "the same, and it comes back later: its supervisor starts it again", _kill,
         comes_back="later", after=_start),
    Case("unobserved", "server killed, the console has no record of it", _kill, observed=False),
    Case("behind", "both standbys lack commits that the killed server's disk has", _killed_behind("db2", "db3")),
    Case("vanished", "no packet reaches or leaves the host", _vanish, readable=False, comes_back="later"),
    Case("vanished-rewind", "the same, and the operator hopes that it is back soon", _vanish, readable=False),
    Case("vanished-behind", "the host vanishes, and both standbys lack commits", _vanished_behind("db2", "db3"),
         readable=False, comes_back="later"),
    Case("frozen", "all processes of the server stand still", _freeze),
    Case("frozen-behind", "the same, and both standbys lack commits that its disk has", _frozen_behind),
    Case("frozen-thawed-before-fence", "they go on while the first question is open", _freeze, ends="either",
         at={"keep-the-old-primary-down": _thaw}),
    Case("frozen-thawed-before-promotion", "they go on while the promotion is asked for", _freeze, ends="either",
         at={"promote": _thaw}),
    Case("console-cut-off", "only the console does not reach the primary", _console_cut_off, ends="refused",
         patience_s=20.0),
    Case("console-and-pooler-cut-off", "console and pooler do not reach it, its standbys do",
         _console_and_pooler_cut_off, ends="refused", patience_s=20.0, after=_pooler_reaches_it_again),
    Case("partition", "clients and pooler reach it, standbys and console do not", _partition, readable=False,
         comes_back="later"),
    Case("in-recovery", "its supervisor started it: crash recovery stands still", _in_recovery, ends="refused",
         patience_s=10.0, after=_thaw),
    Case("in-slow-recovery", "its supervisor started it: crash recovery goes on slowly", _in_slow_recovery,
         ends="refused", patience_s=10.0, after=_thaw),
    Case("restarted-before", "its supervisor started it before the run", _restarted_at_once, ends="refused",
         patience_s=10.0),
    Case("restarted-before-fence", "its supervisor starts it while the first question is open", _kill, ends="either",
         at={"keep-the-old-primary-down": _start}),
    Case("restarted-before-promotion", "its supervisor starts it while the promotion is asked for", _kill,
         ends="either", at={"promote": _start}),
    Case("restarted-unreachable", "the same where ssh does not reach its host, and it was stopped by hand",
         _killed_without_ssh, ends="either", readable=False, cut_off=_kill, at={"promote": _start},
         comes_back="later"),
    Case("db3-ahead", "db2 lacks commits that db3 has", _killed_behind("db2")),
    Case("db2-ahead", "db3 lacks commits that db2 has", _killed_behind("db3")),
    Case("db3-ahead-and-down", "only db3 has the last commits, and it is shut down", _ahead_and_down,
         fixes={"db3": lambda trio: trio.nodes["db3"].start()}, most="db3", comes_back="later"),
    Case("paused", "replay of db2 is paused", _paused),
    Case("delayed", "replay of db2 is delayed by an hour", _delayed),
    Case("weaker", "db2 cannot be promoted: max_connections is lower", _weaker,
         fixes={"raise them on db2": lambda trio: trio.nodes["db2"].restart({"max_connections": 150})}),
    Case("pooler-dead", "pooler and server are killed", _pooler_dead),
    Case("pooler-cut-off", "the console does not reach the pooler", _pooler_cut_off),
    Case("session-mode", "session pooling, and the host vanishes", _session_mode, readable=False, comes_back="later"),
    Case("archive-down", "archiving failed before: four segments wait on the disk of the killed server",
         _archive_down),
    Case("no-data-directory", "the configuration does not say where the data lie", _kill, data_directory=False,
         comes_back="later", after=_start),
    Case("hooks-dead", "a hook's host vanishes with the server", _vanish, extra=_HOOK, readable=False,
         comes_back="later"),
    Case("cutover-interrupted", "a cutover to db2 was killed after the fence; the failover goes to db3",
         interrupted_cutover((HOLD, 7)), to="db3", after=resume_the_first, comes_back="later"),
    Case("cutover-interrupted-held", "a cutover to db2 was killed after the clients were kept out, then the server",
         _then_killed(interrupted_cutover((HOLD, 3))), after=resume_the_first, comes_back="later"),
)  # fmt: skip
