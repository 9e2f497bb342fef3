"""Two databases of equal size to dump and restore: ten equal tables, and a big table among nine small ones.

Every table has a primary key, two more indexes and foreign keys to the previous table and to a small table that all
reference. The archives are kept for later runs (BENCH_DUMPS, `.cache/dumps`).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from dba_console.demo.server_account import clean_environment
from dba_console.demo.temporary_server import Cluster

TABLES = 10
OWNERS = 100_000
ROW_BYTES = 151
"""Size of one row in COPY format."""
BIG_SHARE = 0.8
CACHE = Path(__file__).resolve().parent.parent / ".cache" / "dumps"
QUICK: dict[str, str | int] = {
    "fsync": "off", "wal_level": "minimal", "max_wal_senders": 0, "autovacuum": "off", "max_wal_size": "8GB",
    "maintenance_work_mem": "512MB", "shared_buffers": "512MB",
}  # fmt: skip
_TABLE = """create table {name} (id bigint not null, parent bigint not null, owner bigint not null,
at timestamptz not null, code integer not null, name text not null, filler text not null);
insert into {name} select i, 1 + i * 7919 % {parents}, 1 + i * 104729 % {owners},
timestamptz '2020-01-01' + i * 7 % 100000000 * interval '1 s', hashint8(i), md5(i::text),
md5((i / 3)::text) || ' lorem ipsum dolor sit amet' from generate_series(1::bigint, {rows}) i;
alter table {name} add primary key (id); create index {name}_code on {name} (code);
create index {name}_name on {name} (name, at)"""
_OWNERS = "create table owners (id bigint primary key, name text); insert into owners select i, md5(i::text) " + (
    f"from generate_series(1, {OWNERS}) i"
)


class Archives(NamedTuple):
    """The two dumps of one database."""

    name: str
    """`even` or `uneven`."""
    plain: Path
    """pg_dump | gzip."""
    directory: Path
    """pg_dump -Fd -Z1."""
    text_bytes: int
    """Size of the plain dump before gzip."""


def rows_of(name: str, size: int) -> dict[str, int]:
    """Return the rows of each table of a database whose dump has `size` bytes of text."""
    total = size // ROW_BYTES
    if name == "even":
        return {f"t{number}": total // TABLES for number in range(TABLES)}
    small = int(total * (1 - BIG_SHARE) / (TABLES - 1))
    return {f"t{number}": small for number in range(TABLES - 1)} | {"big": int(total * BIG_SHARE)}


def fill(cluster: Cluster, name: str, size: int) -> None:
    """Create and fill the database on two connections. Its foreign keys are marked valid without a check: they hold."""
    rows = rows_of(name, size)
    tables = list(rows)
    cluster.psql(f"create database {name}")
    cluster.psql(_OWNERS, dbname=name)
    parents = dict(zip(tables, [tables[-1] if name == "even" else tables[0], *tables], strict=False))
    made = [
        _TABLE.format(name=table, rows=rows[table], parents=rows[parents[table]], owners=OWNERS) for table in tables
    ]
    together(cluster, name, sorted(made, key=lambda sql: " big " in sql, reverse=True))
    for table in tables:
        for column, other in (("owner", "owners"), ("parent", parents[table])):
            cluster.psql(f"alter table {table} add foreign key ({column}) references {other} not valid", dbname=name)
    cluster.psql("update pg_constraint set convalidated = true where contype = 'f'", dbname=name)
    cluster.psql("analyze", dbname=name, timeout_s=600)


def together(cluster: Cluster, database: str, statements: Sequence[str], width: int = 2) -> None:
    """Run statements, `width` at a time. Raises CalledProcessError for one that fails."""
    waiting, running = list(statements), list[subprocess.Popen[bytes]]()
    psql = [str(cluster.binaries.program("psql")), "-Xq", "-v", "ON_ERROR_STOP=1", "-d", cluster.dsn(dbname=database)]
    while waiting or running:
        while waiting and len(running) < width:
            running.append(subprocess.Popen([*psql, "-c", waiting.pop(0)]))
        for process in [one for one in running if one.poll() is not None]:
            running.remove(process)
            if process.returncode:
                raise subprocess.CalledProcessError(process.returncode, psql)
        time.sleep(0.02)


def dump(cluster: Cluster, name: str, place: Path) -> Archives:
    """Dump the database as plain SQL through gzip, and as a directory."""
    program, where = str(cluster.binaries.program("pg_dump")), cluster.dsn(dbname=name)
    plain, directory = place / f"{name}.sql.gz", place / f"{name}.dir"
    piped = 'set -o pipefail; "$0" -d "$1" | tee >(wc -c >"$2.bytes") | gzip >"$2"; sync "$2"'
    subprocess.run(["bash", "-c", piped, program, where, str(plain)], check=True)
    subprocess.run([program, "-Fd", "-j2", "-Z1", "-f", str(directory), "-d", where], check=True)
    return Archives(name, plain, directory, int(Path(f"{plain}.bytes").read_text()))


@contextmanager
def archives(size: int, names: Sequence[str] = ("even", "uneven")) -> Iterator[list[Archives]]:
    """Yield the archives of both databases, each of `size` bytes of text; create them unless they are kept."""
    place = Path(os.environ.get("BENCH_DUMPS", CACHE))
    place.mkdir(parents=True, exist_ok=True)
    kept = place / f"{size}"
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another bench may be creating them
        if not (kept / "complete").exists():
            _make(kept, size)
    yield [
        Archives(name, kept / f"{name}.sql.gz", kept / f"{name}.dir", int((kept / f"{name}.sql.gz.bytes").read_text()))
        for name in names
    ]


def _make(kept: Path, size: int) -> None:
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir()
    print(f"  creating databases of {size / 1e9:.2g} GB of text, kept in {kept}", file=sys.stderr, flush=True)
    for name in ("even", "uneven"):
        with Cluster(settings=QUICK) as cluster:
            fill(cluster, name, size)
            dump(cluster, name, kept)
    (kept / "complete").touch()


def environment() -> dict[str, str]:
    """Return the environment of PostgreSQL's programs: English messages, without the caller's PG* variables."""
    return clean_environment()
