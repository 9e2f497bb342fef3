"""Incident: I/O hangs while page cache is reclaimed, and connections fill up. Root only.

The data is on a private disk whose image is on another one, and that one is frozen: the upper disk accepts requests and
completes none, as with a failed storage network. So sessions that commit wait for I/O, also by the kernel's accounting.
Meanwhile page cache is really reclaimed, without a memory shortage. New sessions keep coming, none of them ends, and
the number of connections approaches the limit.

Without root a recording of it is shown.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import psutil

from dba_console.core.errors import Unsupported
from dba_console.demo.child_processes import end_child, start_child
from dba_console.demo.clients import DATABASE, LoadPlan
from dba_console.demo.incidents.incident import Incident, wait_for
from dba_console.demo.incidents.loop_disk import MIB, LoopDisk, loop_disk
from dba_console.demo.server_account import clean_environment

if TYPE_CHECKING:
    from dba_console.demo.practice_server import PracticeGround
    from dba_console.demo.temporary_server import Settings

# Memory reclaim: real, and if the kernel allows it without affecting other caches. A reader in its own control group
# fills the page cache from a sparse file, which costs no disk; lowering the group's limit makes the kernel reclaim
# those pages at once. Cached falls, free rises, and the cache of all others stays. If no group can be created, the page
# cache of the whole host is dropped instead: also real, at the cost of reading it again.

DEFAULT_BYTES = 1536 * MIB
"""1.5 times the gigabyte that must be reclaimed."""
CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class ReclaimMethod:
    """A method to have page cache reclaimed; with `group` None the host's whole cache is dropped."""

    description: str
    group: Path | None = None
    limit: str = ""
    """The group's file that limits its memory (Documentation/admin-guide/cgroup-v1/memory.rst, cgroup-v2.rst)."""
    unlimited: str = ""


DROP_CACHES = ReclaimMethod(
    "drop_caches: memory control groups are not available on this host, so its whole page cache is dropped"
)


def choose_method(cgroups: Path = CGROUPS) -> ReclaimMethod:
    """Return the method of this host with the least side effects. Its group does not exist yet."""
    name = f"dba-console-demo-{os.getpid()}"
    for method in (
        ReclaimMethod(
            "lowering the limit of a memory control group (v1)",
            cgroups / "memory" / name, "memory.limit_in_bytes", "-1",
        ),
        ReclaimMethod("lowering memory.high of a control group (v2)", cgroups / name, "memory.high", "max"),
    ):  # fmt: skip
        if _is_usable(method):
            return method
    return DROP_CACHES


def cache_bytes(wanted: int = DEFAULT_BYTES) -> int:
    """Return the bytes of cache to fill: `wanted`, at most a third of the available, so memory is not short."""
    return min(wanted, int(psutil.virtual_memory().available) // 3)


def _is_usable(method: ReclaimMethod) -> bool:
    assert method.group is not None
    try:
        method.group.mkdir()
    except OSError:
        return False
    try:
        return (method.group / method.limit).exists()
    finally:
        method.group.rmdir()


# Freeze cycles: a file system hangs while page cache is reclaimed, as `vmstat` showed it in the original incident.
# A freeze (fsfreeze(8), the kernel's FIFREEZE) is never left behind: each is ended by a separate process that was
# started before it and thaws at any signal; stopping the cycles thaws at once; and the disk's cleanup process thaws at
# the end.

FROZEN_S = 9
BETWEEN_S = 11
"""Together one cycle every twenty seconds; in the original incident it was every twenty minutes, for one or two."""
_SHARES = "70 40 10"
"""Percent of the filled cache that remains, step by step, half a second apart."""

# $1: the file system to freeze, $2: seconds frozen, $3: seconds in between, $4: a sparse file, $5: its size in bytes,
# $6: the control group or nothing, $7: its file that limits memory, $8: the value that removes the limit. Every wait is
# for a background process: so a signal is handled at once, not when the process ends.
_SCRIPT = rf"""
cd /
below=$1 frozen=$2 between=$3 sparse=$4 bytes=$5 group=$6 limit=$6/$7 unlimited=$8 busy= thawer=
leave() {{
    trap '' HUP INT TERM
    fsfreeze -u "$below" 2>/dev/null
    for child in $busy $thawer; do kill "$child" 2>/dev/null; done
    wait
    [ -z "$group" ] || rmdir "$group"
    exit "${{1:-0}}"
}}
stay() {{ "$@" & busy=$!; wait "$busy"; busy=; }}
thaw_later() {{
    trap '' HUP INT
    sleep "$frozen" &
    trap 'kill $!' TERM
    wait $!
    fsfreeze -u "$below"
}}
fill() {{
    if [ -n "$group" ]; then
        echo "$unlimited" > "$limit"
        stay sh -c 'echo $$ > "$1"; exec cat "$2"' cache "$group/cgroup.procs" "$sparse" > /dev/null
    else
        stay cat "$sparse" > /dev/null
    fi
}}
shrink() {{
    [ -n "$group" ] || {{ echo 1 > /proc/sys/vm/drop_caches; return; }}
    for share in {_SHARES}; do echo $((bytes / 100 * share)) > "$limit"; stay sleep 0.5; done
}}
trap leave HUP INT TERM
[ -z "$group" ] || mkdir "$group" || exit 1
fill
echo ready
read -r word || leave
while :; do
    thaw_later < /dev/null > /dev/null 2>&1 & thawer=$!
    fsfreeze -f "$below" || leave 1
    shrink
    wait $thawer
    thawer=
    fsfreeze -u "$below" 2>/dev/null  # where the freeze itself took longer than its time
    fill
    stay sleep "$between"
done
"""


class FreezeCycles:
    """Fills `bytes_` of page cache from the file `sparse` at once; freezes the file system `below` from
    `start_freezing` on, until `stop` or the end of this process."""

    def __init__(
        self,
        below: Path,
        sparse: Path,
        bytes_: int,
        reclaim: ReclaimMethod,
        *,
        frozen_s: int = FROZEN_S,
        between_s: int = BETWEEN_S,
    ) -> None:
        with sparse.open("wb") as file:
            file.truncate(bytes_)
        path = os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/sbin"
        group = "" if reclaim.group is None else str(reclaim.group)
        self._process = start_child(
            ["/bin/sh", "-c", _SCRIPT, "bouts", str(below), str(frozen_s), str(between_s), str(sparse), str(bytes_),
             group, reclaim.limit, reclaim.unlimited],
            stdin=subprocess.PIPE,
            output=subprocess.PIPE,
            environment={**clean_environment(), "PATH": path},
        )  # fmt: skip

    def wait_filled(self) -> None:
        """Return when the cache is filled. Raises Unsupported with the reason if that fails."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if line != b"ready\n":
            self.stop()
            raise Unsupported(
                f"page cache cannot be filled and reclaimed on this host: {line.decode(errors='replace').strip()}"
            )

    def start_freezing(self) -> None:
        """Start the first freeze."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"begin\n")
        self._process.stdin.flush()

    def stop(self) -> None:
        """Thaw, and remove the group. May be called twice."""
        end_child(self._process, patience_s=15.0)


SIZE_BYTES = 1024 * MIB
ARRIVALS_PER_S = 14
MOST_ARRIVALS = 116
"""With the load's 120 and the console, 237 of 247 usable: nearly every slot, and the load keeps its connections."""
RECORDING = Path(__file__).parents[1] / "recordings" / "reclaim-stall"
_BLOCKED = "count(*) >= 10 from pg_stat_activity where wait_event like 'WAL%'"


class ReclaimStall(Incident):
    name: ClassVar[str] = "reclaim-stall"
    title: ClassVar[str] = "I/O hangs for 9 s at a time while page cache is reclaimed"
    finding: ClassVar[str] = "reclaim-stall"
    needs_root: ClassVar[bool] = True
    plan: ClassVar[LoadPlan] = LoadPlan(idle=100, forgotten=False)
    settings: ClassVar[Settings] = {"max_wal_size": "128MB", "min_wal_size": "64MB"}

    def __init__(self) -> None:
        self._disk: LoopDisk | None = None
        self._freeze_cycles: FreezeCycles | None = None

    @contextmanager
    def own_data_directory(self) -> Iterator[Path | None]:
        with loop_disk(SIZE_BYTES, stacked=True) as disk:
            self._disk = disk
            yield disk.data_directory

    def recording(self) -> Path | None:
        return RECORDING if RECORDING.is_dir() else None

    def prepare(self, ground: PracticeGround) -> None:
        """Fill the page cache that will be reclaimed."""
        assert self._disk is not None and self._disk.lower_path is not None
        method, bytes_ = choose_method(), cache_bytes()
        ground.say(f"{bytes_ // MIB} MB of page cache will be reclaimed by {method.description}")
        self._freeze_cycles = FreezeCycles(self._disk.lower_path, self._disk.host_directory / "cached", bytes_, method)
        self._freeze_cycles.wait_filled()

    def cause(self, ground: PracticeGround) -> None:
        """Return when commits wait for the frozen disk."""
        assert self._freeze_cycles is not None
        script = ground.clients.script("checkout.sql", _CHECKOUT)
        ground.clients.pgbench(
            "-C", "-c", str(MOST_ARRIVALS), "-R", str(ARRIVALS_PER_S), "-f", str(script),
            role="shop_web", application="shop-checkout", dbname=DATABASE,
        )  # fmt: skip
        self._freeze_cycles.start_freezing()
        wait_for(ground.cluster, f"(select {_BLOCKED})")

    def end(self, ground: PracticeGround) -> None:
        """Thaw: all waiting sessions continue."""
        if self._freeze_cycles is not None:
            self._freeze_cycles.stop()


_CHECKOUT = "insert into pgbench_history (tid, bid, aid, delta, mtime) values (1, 1, 1, 1, now());\n"
