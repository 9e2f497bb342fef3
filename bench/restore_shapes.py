"""Databases of differing shape, whose restore spends its time differently: for the accuracy of predicted ends.

Each is created by SQL for `scale` 1: a restore of some 20 to 60 s on two slow processors.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

from bench.databases import CACHE, QUICK, together
from dba_console.demo.temporary_server import Cluster

_TEXT = "md5(i::text) || ' ' || md5((i / 3)::text) || ' lorem ipsum dolor sit amet'"


def _table(name: str, rows: float, *, indexes: int = 2, body: str = _TEXT, key: bool = True) -> str:
    columns = ["(code)", "(name)", "(at, code)", "(name, at)"][:indexes]
    made = (
        f"create table {name} (id bigint not null, parent bigint not null, at timestamptz not null, code integer not "
        f"null, name text not null, body text not null); insert into {name} select i, 1 + i * 7919 % 1000, "
        f"timestamptz '2020-01-01' + i * 7 % 100000000 * interval '1 s', hashint8(i), md5(i::text), {body} "
        f"from generate_series(1::bigint, {int(rows)}) i;"
    )
    made += f"alter table {name} add primary key (id);" if key else ""
    return made + "".join(f"create index on {name} {one};" for one in columns)


_PARENTS = "create table parents (id bigint primary key, name text); insert into parents select i, md5(i::text) " + (
    "from generate_series(1, 1000) i;"
)


def _keyed(name: str) -> str:
    """A foreign key that is not checked here, because it holds."""
    return f"alter table {name} add foreign key (parent) references parents not valid;"


_VALID = "update pg_constraint set convalidated = true where contype = 'f'; analyze;"


def _equal(scale: float) -> list[list[str]]:
    tables = [f"t{number}" for number in range(10)]
    return [[_PARENTS], [_table(one, 220_000 * scale) for one in tables], ["".join(map(_keyed, tables)) + _VALID]]


def _one_large(scale: float) -> list[list[str]]:
    small = [_table(f"s{number}", 8_000 * scale) for number in range(12)]
    return [[_PARENTS], [_table("large", 1_700_000 * scale), *small], [_keyed("large") + _VALID]]


def _slow_index(scale: float) -> list[list[str]]:
    body = "(select string_agg(md5((i * 31 + j)::text), ' ') from generate_series(1, 6) j)"
    article = _table("article", 110_000 * scale, indexes=1, body=body) + (
        "create index article_trgm on article using gin (body gin_trgm_ops);"
    )
    others = [_table(f"t{number}", 200_000 * scale) for number in range(6)]
    return [["create extension pg_trgm"], [article, *others], ["analyze"]]


def _many_small(scale: float) -> list[list[str]]:
    made = [_table(f"m{number}", 40 + number % 60, indexes=1) for number in range(int(1800 * scale))]
    return [["".join(made[at : at + 60]) for at in range(0, len(made), 60)], ["analyze"]]


def _view(scale: float) -> list[list[str]]:
    tables = [_table(f"t{number}", 240_000 * scale, indexes=1) for number in range(4)]
    view = (
        "create materialized view v as select a.name, count(*) n, max(md5(a.body || b.body)) m, "
        "string_agg(distinct b.code::text, ',' order by b.code::text) c from t0 a join t1 b on b.parent = a.parent "
        "and b.id % 97 = a.id % 97 group by a.name with no data; create unique index v_name on v (name);"
    )
    return [tables, [view + "refresh materialized view v; analyze"]]


def _large_objects(scale: float) -> list[list[str]]:
    made = (
        "select lo_from_bytea(0, decode(string_agg(md5((i * 1000 + j)::text), ''), 'hex')) from generate_series"
        f"(1, {int(9000 * scale)}) i, generate_series(1, 2000) j group by i"
    )
    tables = [_table(f"t{number}", 250_000 * scale) for number in range(3)]
    return [tables, [f"select count(*) from ({made}) made", "analyze"]]


def _partitions(scale: float) -> list[list[str]]:
    parts = "".join(
        f"create table p{number} partition of p for values from ({number * 280_000}) to ({(number + 1) * 280_000});"
        for number in range(24)
    )
    made = (
        "create table p (id bigint not null, parent bigint not null, at timestamptz, code integer, name text) "
        f"partition by range (id);{parts}insert into p select i, 1 + i % 1000, now(), hashint8(i), md5(i::text) from "
        f"generate_series(1::bigint, {int(1_600_000 * scale)}) i;"
        "alter table p add primary key (id); create index on p (code); create index on p (name, at);"
    )
    return [[_PARENTS], [made], ["alter table p add foreign key (parent) references parents; analyze"]]


def _documents(scale: float) -> list[list[str]]:
    body = "jsonb_build_object('a', md5(i::text), 'b', i % 50, 'c', repeat(md5((i % 40)::text), 90))::text"
    made = _table("documents", 60_000 * scale, indexes=1, body=body) + (
        "alter table documents alter body type jsonb using body::jsonb; create index on documents using gin (body);"
    )
    return [[made, *(_table(f"t{number}", 220_000 * scale) for number in range(4))], ["analyze"]]


def _keys(scale: float) -> list[list[str]]:
    tables = [f"t{number}" for number in range(4)]
    keys = "".join(
        f"alter table {one} add foreign key (id) references big not valid;" * 3 + _keyed(one) for one in tables
    )
    return [
        [_PARENTS, _table("big", 500_000 * scale, indexes=0)],
        [_table(one, 400_000 * scale, indexes=0) for one in tables],
        [keys + _VALID],
    ]


def _slow_expression(scale: float) -> list[list[str]]:
    made = (
        "create function slow(text) returns text immutable language plpgsql as $$ declare r text := $1; begin "
        "for i in 1..12 loop r := md5(r); end loop; return r; end $$;"
        + _table("t0", 350_000 * scale)
        + "create index t0_slow on t0 (public.slow(name));"
    )
    return [[made, *(_table(f"t{number}", 150_000 * scale) for number in range(1, 7))], ["analyze"]]


SHAPES: dict[str, tuple[Callable[[float], list[list[str]]], float]] = {
    "ten equal tables": (_equal, 2.5),
    "one large table": (_one_large, 2.5),
    "one slow index": (_slow_index, 1.2),
    "many small tables": (_many_small, 1.5),
    "a materialized view": (_view, 4.0),
    "large objects": (_large_objects, 1.5),
    "partitions": (_partitions, 4.0),
    "documents": (_documents, 4.0),
    "foreign keys": (_keys, 3.0),
    "a slow expression": (_slow_expression, 3.0),
}
"""Statements by steps, each of which runs in parallel, and the scale for a restore of that time."""


def archive_of(shape: str, scale: float) -> Path:
    """Return the directory archive of a shape; it is created unless kept from an earlier run (BENCH_DUMPS)."""
    place = Path(os.environ.get("BENCH_DUMPS", CACHE)) / f"shapes-{scale:g}"
    place.mkdir(parents=True, exist_ok=True)
    path, complete = place / shape.replace(" ", "_"), place / f"{shape.replace(' ', '_')}.complete"
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another bench may be creating it
        if not complete.exists():
            with Cluster(settings={**QUICK, "max_locks_per_transaction": 1024}) as cluster:
                fill(cluster, shape, "source", scale)
                dump = [str(cluster.binaries.program("pg_dump")), "-Fd", "-j2", "-Z1", "-f", str(path)]
                subprocess.run([*dump, "-d", cluster.dsn(dbname="source")], check=True)
            complete.touch()
    return path


def fill(cluster: Cluster, shape: str, database: str, scale: float) -> None:
    """Create and fill the database of a shape."""
    cluster.psql(f'create database "{database}"')
    make, factor = SHAPES[shape]
    for statements in make(scale * factor):
        together(cluster, database, statements)
