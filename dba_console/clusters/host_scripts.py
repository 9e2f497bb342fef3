"""Shell scripts that run on a node's host. Their texts are fixed: names, paths and passwords are arguments and input.

For /bin/sh with coreutils and util-linux, or busybox.
"""

from __future__ import annotations

_ENGLISH = "LC_ALL=C; export LC_ALL\n"
REMOTE = """PATH="$PATH:/usr/sbin:/sbin" LC_MESSAGES=C; export PATH LC_MESSAGES; unset LC_ALL LANGUAGE; cd /
timeout -s KILL "$@"; code=$?; [ "$code" -ne 255 ] || code=254; exit "$code"
"""
"""Wrapper of every command over ssh; arguments: seconds, argv. 255 is the exit code of ssh itself: that of a command
becomes 254."""
CONTENT = "dba-console: content"
READ = f"""{_ENGLISH}exec 3<"$1" || exit; echo "{CONTENT}"; exec base64 <&3"""
"""Print a file in base64 after a marker line: output of a login shell comes before it. Argument: path."""
WRITE = f"""set -eu; {_ENGLISH}umask 077
path=$1 size=$2 mode=$3 owner=
if [ -L "$path" ]; then path=$(readlink -f "$path"); fi
if [ -e "$path" ]; then mode=$(stat -c %a "$path") owner=$(stat -c %u:%g "$path"); fi
new=$path.dba-console-new
trap 'rm -f "$new"' EXIT
rm -f "$new"; set -C; cat >"$new"; set +C
[ "$(wc -c <"$new")" -eq "$size" ] || {{ echo "truncated in transit" >&2; exit 1; }}
[ -z "$owner" ] || [ "$(stat -c %u:%g "$new")" = "$owner" ] || chown "$owner" "$new"
chmod "$mode" "$new"; sync "$new"; mv -f "$new" "$path"; sync "$(dirname "$path")"
"""
"""Write a new file beside the old one, then rename it: if interrupted, the file is the complete old or new one.
Arguments: path, bytes, mode of a new file; input: the content."""
WAL_FILES = """wal_files() {
    of=$(printf %08X "$2"); last=$(LC_ALL=C ls "$1" | grep -x "$of[0-9A-F]\\{16\\}" | tail -n 1)
    [ -n "$last" ] || return
    size=$(stat -c %s "$1/$last") && printf '%s%08X%08X %s\\n' "$of" "0x${3%/*}" "$((0x${3#*/} / size))" "$last"
}
"""
"""Function: prints the WAL file with a position, and the last one, for pg_waldump. Without names it takes the size of a
segment from any file of the directory, which may be one that was never written: then it reads nothing. Arguments:
pg_wal, timeline, position."""
REMOVE = f"""set -eu; {_ENGLISH}rm -f "$1"; sync "$(dirname "$1")" """
STATE = f"""{_ENGLISH}state() {{
    if ! lines=$(cat "$1/postmaster.pid" 2>&1); then
        case $lines in *"No such file"*) [ ! -d "$1" ] || {{ echo stopped; return; }} ;; esac
        echo "$lines" >&2; exit 4
    fi
    pid=$(printf '%s\\n' "$lines" | sed 's/[^0-9]//g; q')
    case $(sed 's/.*) //; s/ .*//' "/proc/${{pid:-none}}/stat" 2>/dev/null) in ''|Z|X) echo stopped; return ;; esac
    cwd=$(readlink "/proc/$pid/cwd") || cwd=
    if [ -n "$cwd" ] && [ "$cwd" != "$(cd "$1" && pwd -P)" ]; then echo stopped; return; fi
    case $(printf '%s\\n' "$lines" | sed -n '8s/ *$//p') in ready|standby) echo ready ;; *) echo running ;; esac
}}
until=$(($(date +%s) + $3))
while now=$(state "$1") || exit; [ "$now" != "$2" ]; do
    [ "$(date +%s)" -lt "$until" ] || break
    sleep 0.02
done
echo "$now"
"""
"""Print whether a server runs: stopped, running or ready. Arguments: data directory, the state to wait for, seconds.

A reused pid is recognised by its working directory: that of a postmaster is its data directory. Line 8 is
LOCK_FILE_LINE_PM_STATUS of PostgreSQL's miscadmin.h, which pg_ctl waits for too.
"""
KILL = f"""{_ENGLISH}[ -d "$1" ] || {{ echo "no directory $1" >&2; exit 1; }}
left() {{
    for one in /proc/[0-9]*; do
        [ "$one/cwd" -ef "$1" ] || continue
        case $(readlink "$one/exe" 2>/dev/null) in */postgres|*/postgres\\ \\(deleted\\)) echo "${{one#/proc/}}" ;; esac
    done
}}
until=$(($(date +%s) + $2)) late=
while pids=$(left "$1"); [ -n "$pids" ]; do
    [ -z "$late" ] || {{ echo "processes remain:" $pids >&2; exit 1; }}
    kill -KILL $pids 2>/dev/null; sleep 0.1
    [ "$(date +%s)" -lt "$until" ] || late=yes
done
"""
"""Kill every process of a server that does not stop, until none is left. Arguments: data directory, seconds.

Its processes are the programs `postgres` that work in the data directory. No program is started for each process of
the host: on a busy one with thousands that would take longer than the time limit.
"""
DETACHED = """out=$(mktemp) || exit 1; exec 3>"$out" 4<"$out"; rm -f "$out"
setsid -w "$@" </dev/null >&3 2>&1 3>&- 4<&-; code=$?; head -c 60000 <&4; exit "$code"
"""
"""Run a command that starts a server; the server neither keeps our pipes open nor is killed with the command."""
SWITCHOVER = """wait=$1 lock=$2; shift 2; exec 9<"$lock/PG_VERSION" || exit 1
flock -w "$wait" 9 || { echo "an earlier switchover is still running" >&2; exit 75; }
HOME=$(getent passwd "$(id -u)" | cut -d: -f6); export HOME
out=$(mktemp) || exit 1; exec 3>"$out" 4<"$out"; rm -f "$out"
setsid -w "$@" </dev/null >&3 2>&1 3>&- 4<&-; code=$?; head -c 60000 <&4; exit "$code"
"""
"""Run a cluster manager's switchover: if interrupted it could leave no primary, so it continues when we, or the
connection, end. One at a time: while it runs it locks a file of the data directory that is never changed.

Arguments: seconds to wait for a running one, data directory, argv.
"""
SWITCHING = 75
ATTACHED = DETACHED.replace("setsid -w ", "")
"""Run a command that stops a server: it is killed at its timeout, so that it does not stop a server in use again."""
NEW = "dba-console-new"
"""Name below which a copy is made, beside what it replaces."""
REBUILD = """umask 077; body=$1 seconds=$2 data=$3 how=$4; shift 4
work=$data.dba-console; mkdir -p "$work" || exit 1
secret=$(mktemp "$work/XXXXXX") && exec 3<>"$secret" && rm -f "$secret" && cat >&3 || exit 1
exec 9>>"$work/lock"
flock -w "$seconds" 9 || { echo "another rebuild of $data is still running" >&2; exit 75; }
if [ "$how" != dry ] && [ "$how $(cksum <"$data/global/pg_control")" = "$(cat "$work/done")" ]; then
    cat "$work/$how.out"; exit 0
fi 2>/dev/null
setsid sh -c "$body" sh "$data" "$work" "$how" "$@" </dev/null >"$work/$how.out" 2>&1 &
wait $!; code=$?; tail -c 60000 "$work/$how.out"; exit "$code"
"""
"""Run pg_rewind or pg_basebackup, which may take hours: they continue when we, or the connection, end, because half a
pg_rewind leaves a directory on which no server starts. One at a time; a second call waits for the running one, and a
complete one is not repeated as long as no server was started on its result.

Arguments: REBUILD_BODY, seconds, data directory, dry or rewind or clone, argv; input: a passfile, which the program
reads as /dev/fd/3. The file is unlinked before the password is written: it cannot be opened, and is not left behind.
"""
REBUILD_BODY = """data=$1 work=$2 how=$3; shift 3
keep() {
    mkdir -p "$2" || return
    for one in "$1"/*.conf "$1"/*.crt "$1"/*.key "$1"/*.pem "$1"/*.crl "$1/conf.d" "$1/postmaster.opts"; do
        if [ -e "$one" ]; then rm -rf "$2/${one##*/}"; cp -a "$one" "$2/" || return; fi
    done
}
[ "$how" != dry ] || exec "$@"
if [ ! -d "$work/kept" ] || [ "$data/postmaster.opts" -nt "$work/kept" ]; then
    rm -rf "$work/kept" "$work/keeping"
    if [ -d "$data" ]; then keep "$data" "$work/keeping" && mv "$work/keeping" "$work/kept" || exit 1; fi
fi
if [ "$how" = rewind ]; then
    "$@"; code=$?
    : >"$data/standby.signal"
    [ "$code" -eq 0 ] || exit "$code"
    keep "$work/kept" "$data" || exit 1
else
    real=$(readlink -f "$data"); new=$real.dba-console-new
    if [ ! -e "$work/copied" ]; then
        rm -rf "$new"
        for one in "$@"; do case $one in --tablespace-mapping=*) rm -rf "${one##*=}" ;; esac; done
        "$@" -D "$new" || exit
        : >"$new/standby.signal"
        keep "$work/kept" "$new" && : >"$work/copied" || exit 1
    fi
    for one in "$new"/pg_tblspc/*; do
        copy=$(readlink "$one") && [ "${copy##*/}" = dba-console-new ] || continue
        place=${copy%/*}; stamp=$(date -u +%Y%m%dT%H%M%SZ)
        for part in "$copy"/*; do
            [ -e "$part" ] || continue
            own=$place/${part##*/}
            if [ -e "$own" ]; then
                mv "$own" "$own.before-$stamp" || exit; echo "the former tablespace is $own.before-$stamp"
            fi
            mv "$part" "$own" || exit
        done
        rmdir "$copy" && ln -sfn "$place" "$one" || exit
    done
    if [ -e "$real" ] && ! rmdir "$real" 2>/dev/null; then
        aside=$real.before-$(date -u +%Y%m%dT%H%M%SZ)
        mv "$real" "$aside" || exit; echo "the former data directory is $aside"
    fi
    mv "$new" "$real" && rm -f "$work/copied" || exit
fi
echo "$how $(cksum <"$data/global/pg_control")" >"$work/done"; rm -rf "$work/kept"
"""
"""The node keeps its own configuration files: pg_rewind and pg_basebackup copy those of the other server. Both results
can only start as a standby."""
