"""Where the histories of two servers of one cluster separated, and what one of them wrote after that, by pg_waldump."""

from __future__ import annotations

import re
from typing import NamedTuple

from dba_console.clusters.cluster_check import parse_lsn
from dba_console.clusters.host_scripts import WAL_FILES

_LINE = re.compile(r"^\s*(\d+)\s+([0-9A-Fa-f]+/[0-9A-Fa-f]+)")
ENDLESS = 1 << 64


class Fork(NamedTuple):
    """The last timeline both servers were on, and the position at which the first of them left it."""

    timeline: int
    lsn: int

    def __str__(self) -> str:
        return f"{self.lsn >> 32:X}/{self.lsn & 0xFFFFFFFF:X} of timeline {self.timeline}"


def timelines(timeline: int, history: str) -> list[tuple[int, int]]:
    """Return the timelines a server went through, each with its end; the current one has none.

    >>> timelines(3, "1\\t0/3000060\\tno recovery target specified\\n\\n2\\t0/5000148\\tx\\n")[:2]
    [(1, 50331744), (2, 83886408)]
    """
    found = [(int(match[1]), parse_lsn(match[2])) for line in history.splitlines() if (match := _LINE.match(line))]
    return [*found, (timeline, ENDLESS)]


def find_fork(mine: list[tuple[int, int]], other: list[tuple[int, int]]) -> Fork | None:
    """Return where they separated; None: not by a promotion, as both are on the same timeline, or not known.

    >>> find_fork(timelines(1, ""), timelines(2, "1\\t0/3000060\\tx"))
    Fork(timeline=1, lsn=50331744)
    >>> find_fork(timelines(2, "1\\t0/3000060\\tx"), timelines(3, "1\\t0/4000000\\tx"))
    Fork(timeline=1, lsn=50331744)
    >>> find_fork(timelines(2, "1\\t0/3000060\\tx"), timelines(2, "1\\t0/3000060\\tx")) is None
    True
    """
    for (timeline, end), (other_timeline, other_end) in zip(mine, other, strict=False):
        if timeline != other_timeline:
            return None
        if end != other_end:
            return Fork(timeline, min(end, other_end))
    return None


SUMMARY = (
    WAL_FILES
    + r"""set -f; dump=$1 wal=$2 timeline=$3 start=$4; errors=$(mktemp) || exit 1; trap 'rm -f "$errors"' EXIT
names=$(wal_files "$wal" "$timeline" "$start")
LC_ALL=C "$dump" -p "$wal" -t "$timeline" -s "$start" $names 2>"$errors" | LC_ALL=C awk '
function number(text) { match($0, text); return substr($0, RSTART + RLENGTH) + 0 }
function finish(xid, committed,   parts, n, i) {
    if (committed) { n = split(held[xid], parts, " "); for (i = 1; i <= n; i += 2) rows[parts[i]] += parts[i + 1] }
    delete held[xid]
}
/^rmgr: Heap2? / && / desc: (INSERT|HOT_UPDATE|UPDATE|DELETE|MULTI_INSERT)/ {
    if (!match($0, / rel [0-9]+\/[0-9]+\/[0-9]+/)) next
    relation = substr($0, RSTART + 5, RLENGTH - 5); changed = 1
    if (match($0, /ntuples: [0-9]+/)) changed = substr($0, RSTART + 9, RLENGTH - 9) + 0
    else if (match($0, /MULTI_INSERT[^ ]* [0-9]+ tuples/)) {
        split(substr($0, RSTART), words, " "); changed = words[2] + 0
    }
    xid = number("tx: *"); held[xid] = held[xid] relation " " changed " "
}
/^rmgr: Transaction / && / desc: (COMMIT|ABORT)/ {
    done = / desc: COMMIT/; xid = / desc: [A-Z]+_PREPARED / ? number("_PREPARED ") : number("tx: *")
    if (done) {
        commits++; match($0, /[0-9]+-[0-9]+-[0-9]+ [0-9:.]+ [^ ;,]+/); last = substr($0, RSTART, RLENGTH)
        if (first == "") first = last
    }
    finish(xid, done)
    if (match($0, /subxacts: [0-9 ]+/)) {
        n = split(substr($0, RSTART + 10, RLENGTH - 10), subs, " "); for (i = 1; i <= n; i++) finish(subs[i] + 0, done)
    }
}
/^rmgr: Transaction / && / desc: PREPARE / { prepared++ }
match($0, /lsn: [0-9A-F]+\/[0-9A-F]+/) { end = substr($0, RSTART + 5, RLENGTH - 5) }
END {
    print "commits\t" commits + 0 "\t" first "\t" last; print "prepared\t" prepared + 0; print "end\t" end
    for (relation in rows) print "relation\t" relation "\t" rows[relation] | "sort -t \"\t\" -k 3,3nr | head -n 200"
}'
echo "error	$(head -c 400 "$errors" | tr '\n\t' '  ')" """
)
"""Print what was committed from a position to the end of WAL: commits with the first and the last time, and changed
rows by relation (tablespace/database/file). Only transactions in progress are held in memory.

pg_waldump ends with an error at the end of WAL, and also where WAL is missing: the caller compares `end`.

Arguments: path of pg_waldump, pg_wal, timeline, position. The messages are those of pg_waldump 13 to 18: rmgrdesc and
xactdesc.c, heapdesc.c."""


class Written(NamedTuple):
    """What one server committed after the fork."""

    commits: int
    first: str
    last: str
    prepared: int
    end: str
    rows: dict[str, int]
    """By `tablespace/database/file`, the most changed first."""


def parse_summary(output: str) -> Written | str:
    """Return what SUMMARY printed; text: why it could not be read."""
    lines = [line.split("\t") for line in output.splitlines() if "\t" in line]
    one = {words[0]: words[1:] for words in lines if words[0] != "relation"}
    error = " ".join(one.get("error", ["no output"])).strip()
    if not one.get("end", [""])[0]:
        return error or "pg_waldump printed nothing"
    commits, first, last = one["commits"]
    rows = {words[1]: int(words[2]) for words in lines if words[0] == "relation"}
    return Written(int(commits), first, last, int(one["prepared"][0]), one["end"][0], rows)
