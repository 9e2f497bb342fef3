"""WAL files of a stopped server: where its valid WAL ends, what it has not archived, and copies to another node.

Commands run on the nodes' hosts as the owners of the data directories.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Sequence

from dba_console.clusters.cluster_check import lsn_text, parse_lsn
from dba_console.clusters.host_scripts import WAL_FILES
from dba_console.clusters.node_host import last_line
from dba_console.clusters.server_control import ServerControl
from dba_console.clusters.wal_files import NAME, SEGMENT, record_end, segment_name
from dba_console.core.errors import ConsoleError

SCAN_S = 600.0
"""Time to read the WAL since the last checkpoint."""
COPY_S = 60.0
"""Time to copy one file on a host."""
PART = 2 << 20
"""Bytes of a file that travel through this host at once."""
_CONTENT = "dba-console: content"
_ENGLISH = "LC_ALL=C; export LC_ALL\n"
_SCAN = f"""{_ENGLISH}{WAL_FILES}out=$(mktemp) || exit; exec 3>"$out" 4<"$out"; rm -f "$out"
size=$(stat -c %s "$2/pg_wal/$5") || exit
last=$("$1" -p "$2/pg_wal" -t "$3" -s "$4" $(wal_files "$2/pg_wal" "$3" "$4") 2>&3 | tail -n 1)
echo "{_CONTENT}"; echo "$size"; echo "$last"; tail -n 1 <&4
"""
"""Print segment size, the last valid record, and why pg_waldump ended there. Arguments: pg_waldump, data directory,
timeline, start position, segment file of the start."""
_RECORD = re.compile(r"^rmgr: (\S+) .*len \(rec/tot\):\s*\d+/\s*(\d+),.* lsn: ([0-9A-F]+/[0-9A-F]+),.* desc: (\S*)")
_READY = f"""{_ENGLISH}echo "{_CONTENT}"; cd "$1/pg_wal/archive_status" && ls | sed -n 's/\\.ready$//p'"""
_HAS = f"""{_ENGLISH}echo "{_CONTENT}"; cd "$1/pg_wal" && while read -r one; do [ ! -f "$one" ] || echo "$one"; done"""
_COPY = f"""set -e; {_ENGLISH}new=$2/pg_wal/dba-console-new; rm -f "$new"
cp --reflink=auto "$1/pg_wal/$3" "$new"; chown "$(stat -c %u:%g "$2")" "$new"; chmod 600 "$new"; sync "$new"
mv -f "$new" "$2/pg_wal/$3"; sync "$2/pg_wal"
"""
"""Copy a file between two data directories of one host: complete or not at all. Arguments: both, file."""
_READ = f"""{_ENGLISH}exec 3<"$1/pg_wal/$2" || exit; echo "{_CONTENT}"
dd bs=1048576 skip="$3" count=2 <&3 2>/dev/null | base64"""
_APPEND = f"""{_ENGLISH}umask 077; cat >>"$1/pg_wal/dba-console-new" """
_BEGIN = f"""{_ENGLISH}rm -f "$1/pg_wal/dba-console-new" """
_SUM = f"""{_ENGLISH}echo "{_CONTENT}"; cksum <"$1/pg_wal/$2" """
_FINISH = f"""set -e; {_ENGLISH}new=$1/pg_wal/dba-console-new
[ "$(cksum <"$new")" = "$3" ] || {{ echo "the copy of $2 differs from the original" >&2; exit 1; }}
sync "$new"; mv -f "$new" "$1/pg_wal/$2"; sync "$1/pg_wal"
"""
_MARK = f"""{_ENGLISH}echo "{_CONTENT}"; cd "$1/pg_wal" && while read -r one; do
    [ -f "$one" ] || {{ echo "$one"; continue; }}
    if [ -e "archive_status/$one.done" ]; then mv "archive_status/$one.done" "archive_status/$one.ready"
    else : >"archive_status/$one.ready"; fi
done"""
"""Mark WAL files of a standby as not archived: its archiver archives them after the promotion. Prints missing ones."""


class WalEnd(ConsoleError):
    """The end of a server's WAL cannot be read."""


def read_wal_end(server: ServerControl, timeline: int, near: int) -> int:
    """Return where the valid WAL of a stopped server ends, as crash recovery would find it.

    Reads from the segment of `near`, the position of a standby, else from the last checkpoint. Raises ConsoleError.
    """
    begin = max(0, near - 1) // SEGMENT * SEGMENT
    checkpoint = parse_lsn(server.control_file().checkpoint_lsn or "0/0")
    why = "no WAL record was found"
    for start in dict.fromkeys((begin, checkpoint)):
        name = segment_name(timeline, start)
        argv = [server.program("pg_waldump"), server.data_directory, str(timeline), lsn_text(start), name]
        ended = server.host.run(["sh", "-c", _SCAN, "sh", *argv], user=server.owner(), timeout_s=SCAN_S)
        size, record, *rest = [*ended.output.rpartition(f"{_CONTENT}\n")[2].splitlines(), "", ""]
        if (match := _RECORD.match(record)) is None or not size.isdigit():
            why = next((line for line in (*rest, last_line(ended)) if line), why)
            continue
        if int(size) != SEGMENT:
            raise WalEnd(f"{server.name} has WAL segments of {size} bytes: the end of its WAL was not read")
        return _end_of(match)
    raise WalEnd(f"the end of WAL of {server.name} cannot be read: {why}")


def _end_of(match: re.Match[str]) -> int:
    """Return the end of a record; the rest of a segment after a switch is part of it.

    >>> line = "rmgr: XLOG        len (rec/tot):     24/    24, tx: 0, lsn: 0/03000148, prev 0/03000110, desc: SWITCH "
    >>> found = _RECORD.match(line)
    >>> found is not None and hex(_end_of(found))
    '0x4000000'
    """
    start = parse_lsn(match[3])
    if match[1] == "XLOG" and match[4] == "SWITCH":
        return (start // SEGMENT + 1) * SEGMENT
    return record_end(start, int(match[2]))


def unarchived_files(server: ServerControl) -> tuple[str, ...]:
    """Return the files of a server that wait for its archiver, oldest first. Raises ConsoleError."""
    return tuple(sorted(one for one in _run(server, _READY).splitlines() if NAME.fullmatch(one)))


def existing_files(server: ServerControl, names: Sequence[str]) -> set[str]:
    """Return which of these files are in pg_wal. Raises ConsoleError."""
    return set(_run(server, _HAS, data=_list(names)).splitlines())


def copy_files(
    source: ServerControl, target: ServerControl, names: Sequence[str], report: Callable[[str, int], None]
) -> None:
    """Copy segment files of a stopped server into pg_wal of a standby, where it finds them. Raises ConsoleError.

    Each appears complete under its name. A standby without a WAL receiver reads them, without a restart.
    """
    for number, name in enumerate(names):
        report(name, number)
        if source.host.ssh == target.host.ssh:
            user = source.owner() if source.owner() == target.owner() else "root"
            argv = ["sh", "-c", _COPY, "sh", source.data_directory, target.data_directory, name]
            ended = source.host.run(argv, user=user, timeout_s=COPY_S, repeatable=True)
            if ended.code != 0:
                raise ConsoleError(f"{name} cannot be copied from {source.name} to {target.name}: {last_line(ended)}")
        else:
            _copy_between_hosts(source, target, name)


def _copy_between_hosts(source: ServerControl, target: ServerControl, name: str) -> None:
    expected = _run(source, _SUM, name).strip()
    _run(target, _BEGIN)
    for number in range(0, SEGMENT // (1 << 20), PART // (1 << 20)):
        try:
            data = base64.b64decode("".join(_run(source, _READ, name, str(number)).split()), validate=True)
        except binascii.Error as error:
            raise ConsoleError(f"{name} of {source.name} cannot be read: {error}") from error
        if not data:
            break
        _run(target, _APPEND, data=data)
    _run(target, _FINISH, name, expected)


def mark_for_archive(server: ServerControl, names: Sequence[str]) -> tuple[str, ...]:
    """Mark files of a standby as not archived, right before its promotion; return those it does not have."""
    return tuple(_run(server, _MARK, data=_list(names)).split())


def _run(server: ServerControl, script: str, *arguments: str, data: bytes = b"") -> str:
    """Run a script with the data directory as its first argument; return what it prints after the marker line."""
    argv = ["sh", "-c", script, "sh", server.data_directory, *arguments]
    ended = server.host.run(argv, user=server.owner(), data=data, timeout_s=COPY_S, limit=2 * PART)
    if ended.code != 0:
        raise ConsoleError(f"{server.name}, {server.data_directory}/pg_wal: {last_line(ended)}")
    return ended.output.rpartition(f"{_CONTENT}\n")[2]


def _list(names: Sequence[str]) -> bytes:
    return "".join(f"{name}\n" for name in names).encode()
