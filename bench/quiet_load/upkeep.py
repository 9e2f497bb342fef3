"""Maintenance on an ordinary day: vacuum, dumps and restores, a restart, data loaded and removed."""

from __future__ import annotations

import shutil
import threading
import time

from bench.quiet_load.place import QuietServer

COPY_DATABASE = "shop_copy"
DUMP_TRIES = 10


def regular_dump(server: QuietServer, seconds: float) -> None:
    """Dump in custom format and replace the previous dump, like a nightly job."""
    # a unique name: on a slow host the next dump starts before this one has ended
    new, kept = server.dumps / f"shop.dump.new-{threading.get_ident()}", server.dumps / "shop.dump"
    new.unlink(missing_ok=True)
    server.tool("pg_dump", "-Fc", "-f", str(new), *server.connection_options())
    new.replace(kept)


def parallel_dump(server: QuietServer, seconds: float) -> None:
    """Dump in directory format with two workers."""
    with server.dumping:
        _dump_in_parallel(server)


def parallel_restore(server: QuietServer, seconds: float) -> None:
    """Restore the last parallel dump into another database with two workers."""
    with server.dumping:
        source = server.dumps / "shop.dir"
        if not (source / "toc.dat").exists():
            _dump_in_parallel(server)
        server.execute(
            f"drop database if exists {COPY_DATABASE}", f"create database {COPY_DATABASE}", dbname="postgres"
        )
        server.tool("pg_restore", "-j2", "-d", *database_first_options(server, COPY_DATABASE), str(source))


def _dump_in_parallel(server: QuietServer) -> None:
    """Dump; retry if a worker could not get its leader's lock because DDL of another session queued in between."""
    target = server.dumps / "shop.dir"
    for left in reversed(range(DUMP_TRIES)):
        shutil.rmtree(target, ignore_errors=True)
        try:
            server.tool("pg_dump", "-Fd", "-j2", "-f", str(target), *server.connection_options())
            return
        except RuntimeError as error:
            if not left or "could not obtain lock" not in str(error):
                raise


def base_backup(server: QuietServer, seconds: float) -> None:
    """Take a base backup and remove it."""
    target = server.dumps / "base"
    shutil.rmtree(target, ignore_errors=True)
    server.tool("pg_basebackup", "-D", str(target), "-c", "fast", "-d", server.cluster.dsn(dbname="postgres"))
    shutil.rmtree(target, ignore_errors=True)


def bulk_load(server: QuietServer, seconds: float) -> None:
    """Load some 100 MB by COPY, like a nightly import."""
    line = b"\t".join([b"4711", b"x" * 80]) + b"\n"
    with server.connect("import") as session:
        session.execute("create table if not exists import (id bigint, line text)")
        with session.cursor().copy("copy import from stdin") as copy:
            for _ in range(round(1500 * server.size)):
                copy.write(line * 1000)


def truncate(server: QuietServer, seconds: float) -> None:
    """Truncate the imported table."""
    server.execute("create table if not exists import (id bigint, line text)", "truncate import")


def drop_table(server: QuietServer, seconds: float) -> None:
    """Create and drop a table of some 200 MB."""
    rows = round(2_500_000 * server.size)
    server.execute(
        "drop table if exists batch",  # may be left over from a restart
        f"create table batch as select g, repeat('x', 40) as line from generate_series(1, {rows}) g",
        "drop table batch",
    )


def big_sort(server: QuietServer, seconds: float) -> None:
    """Sort more than work_mem three times: some 10 MB of temporary files."""
    rows = round(600_000 * server.size)
    sort = f"select count(*) from (select md5(g::text) as m from generate_series(1, {rows}) g order by m offset 1) s"
    server.execute("set work_mem = '1MB'", *[sort] * 3, application="shop-report")


def create_index(server: QuietServer, seconds: float) -> None:
    server.execute("create index if not exists accounts_balance on pgbench_accounts (abalance)", application="migrate")


def vacuum_full(server: QuietServer, seconds: float) -> None:
    server.execute("vacuum full visits")


def restart(server: QuietServer, seconds: float) -> None:
    """Restart the server in order: fast shutdown, start, connections accepted again."""
    server.cluster.restart()


def standby_connected(server: QuietServer, seconds: float) -> None:
    """Start the standby, let it stream, and stop it in order; its slot is kept, as during a reboot."""
    if server.standby is None:
        raise RuntimeError("no standby was created")
    server.standby.start()
    time.sleep(seconds)
    server.standby.stop()


def log_rotation(server: QuietServer, seconds: float) -> None:
    server.execute("select pg_rotate_logfile()")


def statistics_reset(server: QuietServer, seconds: float) -> None:
    """Reset the counters of the database and the shared ones."""
    targets = ("bgwriter", "archiver", "wal")
    server.execute("select pg_stat_reset()", *[f"select pg_stat_reset_shared('{target}')" for target in targets])


def create_and_drop_database(server: QuietServer, seconds: float) -> None:
    server.execute("create database trial", "drop database trial", dbname="postgres")


def old_archive_removed(server: QuietServer, seconds: float) -> None:
    """Remove all archived WAL files except the newest ten."""
    for path in sorted(server.archive.iterdir())[:-10]:
        path.unlink(missing_ok=True)


def database_first_options(server: QuietServer, dbname: str) -> list[str]:
    """Return connection options with the database first, for programs that take it as the value of an option."""
    *options, _ = server.connection_options()
    return [dbname, *options]
