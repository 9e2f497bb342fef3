"""Bouts in which a file system does not answer while page cache is reclaimed: what story S1 saw in `vmstat`.

A freeze (fsfreeze(8), the kernel's FIFREEZE) is never left behind: each is ended by a process of its own that was
started before it and thaws whatever signal it gets; whoever stops the bouts thaws at once; and the guard of the disk
thaws at the end.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from dba_console.demo.child_processes import end_child, start_child
from dba_console.demo.incidents.memory_reclaim import ReclaimMethod
from dba_console.demo.server_account import clean_environment
from dba_console.errors import Unsupported

FROZEN_S = 9
BETWEEN_S = 11
"""With the ones above a bout every twenty seconds; in story S1 it was every twenty minutes, for one or two."""
_SHARES = "70 40 10"
"""Percent of the filled cache that is left, step by step, half a second between."""

# $1: the file system to freeze, $2: seconds of it, $3: seconds between, $4: a sparse file, $5: its size in bytes,
# $6: the control group or nothing, $7: its file that limits memory, $8: what lifts the limit.
# Every wait is for a process in the background: then a signal is heeded at once, not when the process ends.
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
    `start_freezing` on.

    Until `stop`, or the end of this process.
    """

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
        """Return when the cache is filled. Raises Unsupported with what went wrong."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if line != b"ready\n":
            self.stop()
            raise Unsupported(
                f"page cache cannot be filled and reclaimed here: {line.decode(errors='replace').strip()}"
            )

    def start_freezing(self) -> None:
        """The first freeze, now."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"begin\n")
        self._process.stdin.flush()

    def stop(self) -> None:
        """Thaw, and leave no group. May be called twice."""
        end_child(self._process, patience_s=15.0)
