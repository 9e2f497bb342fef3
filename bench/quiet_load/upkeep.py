"""What is done to the server on an ordinary day: vacuum, dumps and restores, a restart, data that comes and goes."""

from __future__ import annotations

import shutil
import threading
import time

from bench.quiet_load.place import Place

COPY_DATABASE = "shop_copy"
DUMP_TRIES = 10


def regular_dump(place: Place, seconds: float) -> None:
    """The nightly job in little: a new dump in custom format takes the old one's place."""
    # a name of its own: where the host is slow, the next one begins before this one has ended
    new, kept = place.dumps / f"shop.dump.new-{threading.get_ident()}", place.dumps / "shop.dump"
    new.unlink(missing_ok=True)
    place.tool("pg_dump", "-Fc", "-f", str(new), *place.where())
    new.replace(kept)


def parallel_dump(place: Place, seconds: float) -> None:
    """A dump by hand, in directory format, by two workers."""
    with place.dumping:
        _dump_in_parallel(place)


def parallel_restore(place: Place, seconds: float) -> None:
    """The last parallel dump into another database, by two workers."""
    with place.dumping:
        source = place.dumps / "shop.dir"
        if not (source / "toc.dat").exists():
            _dump_in_parallel(place)
        place.execute(f"drop database if exists {COPY_DATABASE}", f"create database {COPY_DATABASE}", dbname="postgres")
        place.tool("pg_restore", "-j2", "-d", *reversed_where(place, COPY_DATABASE), str(source))


def _dump_in_parallel(place: Place) -> None:
    """Begun again where a worker could not have a lock that its leader has: somebody's DDL queued up in between."""
    target = place.dumps / "shop.dir"
    for left in reversed(range(DUMP_TRIES)):
        shutil.rmtree(target, ignore_errors=True)
        try:
            place.tool("pg_dump", "-Fd", "-j2", "-f", str(target), *place.where())
            return
        except RuntimeError as error:
            if not left or "could not obtain lock" not in str(error):
                raise


def base_backup(place: Place, seconds: float) -> None:
    """A base backup, removed when it is done."""
    target = place.dumps / "base"
    shutil.rmtree(target, ignore_errors=True)
    place.tool("pg_basebackup", "-D", str(target), "-c", "fast", "-d", place.cluster.dsn(dbname="postgres"))
    shutil.rmtree(target, ignore_errors=True)


def bulk_load(place: Place, seconds: float) -> None:
    """Some 100 MB by COPY, as a nightly import does it."""
    line = b"\t".join([b"4711", b"x" * 80]) + b"\n"
    with place.connect("import") as session:
        session.execute("create table if not exists import (id bigint, line text)")
        with session.cursor().copy("copy import from stdin") as copy:
            for _ in range(round(1500 * place.size)):
                copy.write(line * 1000)


def truncate(place: Place, seconds: float) -> None:
    """What was imported is thrown away."""
    place.execute("create table if not exists import (id bigint, line text)", "truncate import")


def drop_table(place: Place, seconds: float) -> None:
    """A table of some 200 MB is made and dropped."""
    rows = round(2_500_000 * place.size)
    place.execute(
        "drop table if exists batch",  # a restart may have come between
        f"create table batch as select g, repeat('x', 40) as line from generate_series(1, {rows}) g",
        "drop table batch",
    )


def big_sort(place: Place, seconds: float) -> None:
    """A sort that does not fit: some 10 MB of temporary files, three times."""
    rows = round(600_000 * place.size)
    sort = f"select count(*) from (select md5(g::text) as m from generate_series(1, {rows}) g order by m offset 1) s"
    place.execute("set work_mem = '1MB'", *[sort] * 3, application="shop-report")


def create_index(place: Place, seconds: float) -> None:
    place.execute("create index if not exists accounts_balance on pgbench_accounts (abalance)", application="migrate")


def vacuum_full(place: Place, seconds: float) -> None:
    place.execute("vacuum full visits")


def restart(place: Place, seconds: float) -> None:
    """An orderly restart: fast shutdown, start, connections taken again."""
    place.cluster.restart()


def standby_connected(place: Place, seconds: float) -> None:
    """The standby is started, streams, and is stopped in order: its slot is kept, as over a reboot."""
    if place.standby is None:
        raise RuntimeError("there is no standby")
    place.standby.start()
    time.sleep(seconds)
    place.standby.stop()


def log_rotation(place: Place, seconds: float) -> None:
    place.execute("select pg_rotate_logfile()")


def statistics_reset(place: Place, seconds: float) -> None:
    """All counters of the database and the shared ones go back to zero."""
    targets = ("bgwriter", "archiver", "wal")
    place.execute("select pg_stat_reset()", *[f"select pg_stat_reset_shared('{target}')" for target in targets])


def create_and_drop_database(place: Place, seconds: float) -> None:
    place.execute("create database trial", "drop database trial", dbname="postgres")


def old_archive_removed(place: Place, seconds: float) -> None:
    """All archived WAL but the newest ten files goes."""
    for path in sorted(place.archive.iterdir())[:-10]:
        path.unlink(missing_ok=True)


def reversed_where(place: Place, dbname: str) -> list[str]:
    """Connection options with the database first, for programs that take it as an option's value."""
    *options, _ = place.where()
    return [dbname, *options]
