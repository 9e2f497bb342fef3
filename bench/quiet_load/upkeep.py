"""Maintenance on an ordinary day: vacuum, dumps and restores, a restart, data loaded and removed."""

from __future__ import annotations

import shutil
import threading
import time

from bench.quiet_load.place import Place

COPY_DATABASE = "shop_copy"
DUMP_TRIES = 10


def regular_dump(place: Place, seconds: float) -> None:
    """Dump in custom format and replace the previous dump, like a nightly job."""
    # a unique name: on a slow host the next dump starts before this one has ended
    new, kept = place.dumps / f"shop.dump.new-{threading.get_ident()}", place.dumps / "shop.dump"
    new.unlink(missing_ok=True)
    place.tool("pg_dump", "-Fc", "-f", str(new), *place.where())
    new.replace(kept)


def parallel_dump(place: Place, seconds: float) -> None:
    """Dump in directory format with two workers."""
    with place.dumping:
        _dump_in_parallel(place)


def parallel_restore(place: Place, seconds: float) -> None:
    """Restore the last parallel dump into another database with two workers."""
    with place.dumping:
        source = place.dumps / "shop.dir"
        if not (source / "toc.dat").exists():
            _dump_in_parallel(place)
        place.execute(f"drop database if exists {COPY_DATABASE}", f"create database {COPY_DATABASE}", dbname="postgres")
        place.tool("pg_restore", "-j2", "-d", *reversed_where(place, COPY_DATABASE), str(source))


def _dump_in_parallel(place: Place) -> None:
    """Dump; retry if a worker could not get its leader's lock because DDL of another session queued in between."""
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
    """Take a base backup and remove it."""
    target = place.dumps / "base"
    shutil.rmtree(target, ignore_errors=True)
    place.tool("pg_basebackup", "-D", str(target), "-c", "fast", "-d", place.cluster.dsn(dbname="postgres"))
    shutil.rmtree(target, ignore_errors=True)


def bulk_load(place: Place, seconds: float) -> None:
    """Load some 100 MB by COPY, like a nightly import."""
    line = b"\t".join([b"4711", b"x" * 80]) + b"\n"
    with place.connect("import") as session:
        session.execute("create table if not exists import (id bigint, line text)")
        with session.cursor().copy("copy import from stdin") as copy:
            for _ in range(round(1500 * place.size)):
                copy.write(line * 1000)


def truncate(place: Place, seconds: float) -> None:
    """Truncate the imported table."""
    place.execute("create table if not exists import (id bigint, line text)", "truncate import")


def drop_table(place: Place, seconds: float) -> None:
    """Create and drop a table of some 200 MB."""
    rows = round(2_500_000 * place.size)
    place.execute(
        "drop table if exists batch",  # may be left over from a restart
        f"create table batch as select g, repeat('x', 40) as line from generate_series(1, {rows}) g",
        "drop table batch",
    )


def big_sort(place: Place, seconds: float) -> None:
    """Sort more than work_mem three times: some 10 MB of temporary files."""
    rows = round(600_000 * place.size)
    sort = f"select count(*) from (select md5(g::text) as m from generate_series(1, {rows}) g order by m offset 1) s"
    place.execute("set work_mem = '1MB'", *[sort] * 3, application="shop-report")


def create_index(place: Place, seconds: float) -> None:
    place.execute("create index if not exists accounts_balance on pgbench_accounts (abalance)", application="migrate")


def vacuum_full(place: Place, seconds: float) -> None:
    place.execute("vacuum full visits")


def restart(place: Place, seconds: float) -> None:
    """Restart the server in order: fast shutdown, start, connections accepted again."""
    place.cluster.restart()


def standby_connected(place: Place, seconds: float) -> None:
    """Start the standby, let it stream, and stop it in order; its slot is kept, as during a reboot."""
    if place.standby is None:
        raise RuntimeError("no standby was created")
    place.standby.start()
    time.sleep(seconds)
    place.standby.stop()


def log_rotation(place: Place, seconds: float) -> None:
    place.execute("select pg_rotate_logfile()")


def statistics_reset(place: Place, seconds: float) -> None:
    """Reset the counters of the database and the shared ones."""
    targets = ("bgwriter", "archiver", "wal")
    place.execute("select pg_stat_reset()", *[f"select pg_stat_reset_shared('{target}')" for target in targets])


def create_and_drop_database(place: Place, seconds: float) -> None:
    place.execute("create database trial", "drop database trial", dbname="postgres")


def old_archive_removed(place: Place, seconds: float) -> None:
    """Remove all archived WAL files except the newest ten."""
    for path in sorted(place.archive.iterdir())[:-10]:
        path.unlink(missing_ok=True)


def reversed_where(place: Place, dbname: str) -> list[str]:
    """Return connection options with the database first, for programs that take it as the value of an option."""
    *options, _ = place.where()
    return [dbname, *options]
