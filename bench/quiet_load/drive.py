"""Run the quiet hour: start each activity at its time, in its own thread, and write the diary."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

from bench.quiet_load import beside, clients, upkeep
from bench.quiet_load.diary import Diary
from bench.quiet_load.place import QuietServer
from bench.quiet_load.schedule import Entry

Activity = Callable[[QuietServer, float], None]


def _sql(*statements: str) -> Activity:
    return lambda server, seconds: server.execute(*statements)


ACTIVITIES: dict[str, Activity] = {
    "standby connected": upkeep.standby_connected,
    "low load": partial(clients.pgbench, clients=4, rate=20),
    "moderate load": partial(clients.pgbench, clients=12, rate=120),
    "full speed": partial(clients.pgbench, clients=8, rate=None),
    "reconnecting clients": partial(clients.pgbench, clients=4, rate=25, reconnect=True),
    "pool filled in half a minute": partial(clients.pool, fill_s=30.0),
    "pool filled at once": partial(clients.pool, fill_s=0.0),
    "short idle transaction": clients.idle_in_transaction,
    "longer idle transaction": clients.idle_in_transaction,
    "short lock waits": clients.short_lock_waits,
    "quick schema change": clients.quick_schema_change,
    "operator looks": clients.operator_session,
    "vacuum": _sql("vacuum"),
    "vacuum freeze": _sql("vacuum (freeze)"),
    "analyze": _sql("analyze"),
    "checkpoint": _sql("checkpoint"),
    "wal switch": _sql("select pg_switch_wal()"),
    "reload that changes nothing": _sql("select pg_reload_conf()"),
    "reindex concurrently": _sql("reindex table concurrently pgbench_accounts"),
    "create index": upkeep.create_index,
    "vacuum full of a small table": upkeep.vacuum_full,
    "restart": upkeep.restart,
    "log rotation": upkeep.log_rotation,
    "statistics reset": upkeep.statistics_reset,
    "base backup": upkeep.base_backup,
    "create and drop a database": upkeep.create_and_drop_database,
    "regular dump": upkeep.regular_dump,
    "parallel dump": upkeep.parallel_dump,
    "parallel restore": upkeep.parallel_restore,
    "bulk load": upkeep.bulk_load,
    "truncate": upkeep.truncate,
    "drop table": upkeep.drop_table,
    "big sort": upkeep.big_sort,
    "old archive removed": upkeep.old_archive_removed,
    "build": beside.build,
    "big file written and removed": beside.big_file,
    "console held up": beside.stopped_console,
    "program takes memory": beside.allocate_memory,
}


def drive(server: QuietServer, entries: Sequence[Entry], diary: Diary, span_s: float) -> int:
    """Run the entries at their times and wait for the last; return the number of failed activities.

    A failed activity is only a line in the diary: the others continue.
    """
    begun = time.monotonic()
    failed: list[str] = []
    threads = []
    for entry in sorted(entries):
        time.sleep(max(0.0, begun + entry.at_s - time.monotonic()))
        thread = threading.Thread(target=_one, args=(server, entry, diary, failed), name=entry.name)
        thread.start()
        threads.append(thread)
    time.sleep(max(0.0, begun + span_s - time.monotonic()))
    for thread in threads:
        thread.join()
    return len(failed)


def _one(server: QuietServer, entry: Entry, diary: Diary, failed: list[str]) -> None:
    diary.write(entry.name, "began")
    try:
        ACTIVITIES[entry.name](server, entry.lasts_s)
    except Exception as error:  # any failure is written to the diary, and the hour continues
        failed.append(entry.name)
        diary.write(entry.name, "failed", f"{type(error).__name__}: {error}"[:400])
    else:
        diary.write(entry.name, "ended")
